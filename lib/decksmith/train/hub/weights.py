"""The header of a safetensors file: what tensors it holds, and whether all of it is there."""

import json
import math
from pathlib import Path
from typing import NamedTuple

from decksmith.core import cli


class Tensor(NamedTuple):
    """A tensor of a file: its bytes are those from `start` up to `end`."""

    dtype: str
    shape: list[int]
    start: int
    end: int


def tensors(path: Path) -> dict[str, Tensor]:
    """{name: Tensor} of a safetensors file. Raises cli.BadData where it is none or is cut off."""
    size = path.stat().st_size
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, size)))
        header.pop("__metadata__", None)
        found = {}
        for name, one in header.items():
            start, end = one["data_offsets"]
            found[name] = Tensor(one["dtype"], one["shape"], 8 + length + start, 8 + length + end)
        whole = max((tensor.end for tensor in found.values()), default=8 + length)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise cli.BadData(f"{path}: not a safetensors file, or cut off") from None
    if size != whole:
        raise cli.BadData(f"{path}: {size} bytes, its header says {whole}: cut off")
    return found


def parameters(path: Path) -> int:
    """How many numbers a safetensors file holds. Raises cli.BadData."""
    return sum(math.prod(tensor.shape) for tensor in tensors(path).values())
