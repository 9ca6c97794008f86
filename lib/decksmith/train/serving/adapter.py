"""An adapter's folder, and what of it decides how it is served."""

import hashlib
import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from decksmith.core import cli
from decksmith.train.hub import weights

WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in a PEFT folder. `sha256` is of config and weights; `gguf` the embedded
    engine's form of it, or None."""

    path: Path
    rank: int
    base: str | None
    sha256: str
    gguf: Path | None

    @classmethod
    def load(cls, path: Path) -> "Adapter":
        """Of a checkpoint's policy/weights/model, or of what model-export made. Raises
        cli.Missing, cli.BadData."""
        config, gguf = path / "adapter_config.json", path / "adapter.gguf"
        for needed in (config, path / WEIGHTS):
            if not needed.is_file():
                why = f"{needed.name} is not there; model-export writes it"
                raise cli.Missing(f"{path} is no adapter: {why}")
        try:
            said = json.loads(config.read_text())
            # The largest of its modules' ranks.
            rank = max(map(int, [said["r"], *(said.get("rank_pattern") or {}).values()]))
            base = said.get("base_model_name_or_path")
        except (ValueError, KeyError, TypeError) as error:
            raise cli.BadData(f"{config}: not the config of a LoRA adapter ({error!r})") from None
        digest = sha256(config, path / WEIGHTS)
        return cls(path.resolve(), rank, base, digest, gguf.resolve() if gguf.is_file() else None)

    @cached_property
    def modules(self) -> list[str]:
        """The last parts of the names of the modules that it has weights for, as vLLM's --lora-target-modules takes them.
        Raises cli.BadData."""
        names = [name.partition(".lora_")[0].removesuffix(".base_layer") for name in self._tensors]
        found = {name.rpartition(".")[2] for name in names}
        if any(".experts." in name for name in names):
            found.add("experts")  # vLLM has those of a layer in one module of this name
        return sorted(found)

    @cached_property
    def width(self) -> int:
        """What it has numbers for at rank 1: inputs and outputs of all its modules together. Raises cli.BadData."""
        shapes = [tensor.shape for tensor in self._tensors.values()]
        return sum(math.prod(shape) // max(1, min(shape, default=1)) for shape in shapes)

    @cached_property
    def _tensors(self) -> dict[str, weights.Tensor]:
        found = weights.tensors(self.path / WEIGHTS)
        return {name: tensor for name, tensor in found.items() if ".lora_" in name}

    @property
    def rewards(self) -> list[str]:
        """What it was trained to please, as its manifest says; none without one."""
        try:
            said = json.loads((self.path / "manifest.json").read_text()).get("rewards") or []
            return [reward for reward in said if re.fullmatch(r"[\w.-]{1,64}", reward)]
        except (OSError, ValueError, AttributeError, TypeError):
            return []

    def check_base(self, base: str | Path) -> None:
        """Hold the adapter's matrices to those of a base whose folder is here; vLLM would end
        with a traceback. Raises cli.BadData for an adapter of another base."""
        sizes = {
            name.removesuffix(".weight"): tensor.shape
            for file in sorted(Path(base).glob("*.safetensors"))
            for name, tensor in weights.tensors(file).items()
        }
        if not sizes:
            return
        for name, tensor in self._tensors.items():
            module, _, half = name.removeprefix("base_model.model.").partition(".lora_")
            axis = {"A.weight": 1, "B.weight": 0}.get(half)
            if axis is None or module not in sizes or len(tensor.shape) != 2:
                continue
            has, wants = sizes[module][axis], tensor.shape[axis]
            if has != wants:
                raise cli.BadData(
                    f"{self.path / WEIGHTS}: {module} was trained for a matrix of {wants}, that of {base} has "
                    f"{has}: the adapter belongs to another base ({self.base}); name that with --base"
                )


def sha256(*paths: Path) -> str:
    """One digest (hex) of some files."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
