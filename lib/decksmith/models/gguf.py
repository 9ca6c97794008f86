"""Open models in GGUF that the embedded engine runs: the table assets/gguf.toml, and what of it is on this machine.

`model-fetch NAME` brings the file and writes data/models/NAME.gguf.json, the lock: `{"repo", "file", "commit", "sha256",
"size", "path"}`.
"""

import json
import os
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from decksmith.core import cli
from decksmith.core.records import Record

# The adapter of this repository, by the name that it is asked by (data/adapter/README.md says how it was made).
ADAPTERS = {"smol-sft": cli.ROOT / "data/adapter/adapter.gguf"}
TABLE = cli.ROOT / "assets/gguf.toml"
CONTEXT = 16384  # tokens of request and reply; a longer one costs memory that laptops lack
THOUGHTFUL = 8192  # tokens that a model which thinks may write


@dataclass(frozen=True)
class Weights:
    """An entry of the table, whose head explains the fields."""

    name: str
    label: str
    color: str
    repo: str
    file: str
    size: int
    licence: str
    source: str
    revision: str = "main"
    sha256: str | None = None
    thinks: bool = False


@cache
def table() -> dict[str, Weights]:
    """The table by name; empty in a folder of experiments that has none."""
    if not TABLE.is_file():
        return {}
    entries = tomllib.loads(TABLE.read_text())
    return {name: Weights(name=name, **entry) for name, entry in entries.items()}


def folder() -> Path:
    """Where a checkout keeps what is known of its models: data/models, or DECKSMITH_MODELS."""
    return Path(os.environ.get("DECKSMITH_MODELS") or cli.ROOT / "data/models")


def lock_path(name: str) -> Path:
    return folder() / f"{name}.gguf.json"


def lock(name: str) -> Record | None:
    """What was fetched under this name, or None. Raises cli.BadConfig for a lock that is none."""
    path = lock_path(name)
    try:
        found = json.loads(path.read_text())
        return {key: found[key] for key in ("repo", "file", "commit", "sha256", "size", "path")}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise cli.BadConfig(
            f"{path}: no lock of a model; remove it and run: {command(name)}"
        ) from None


def need(name: str) -> Record:
    """The lock of a model whose file is here. Raises cli.Missing with the command that fetches it."""
    found = lock(name)
    if found is None:
        size = table()[name].size / 1e9
        raise cli.Missing(f"{name} is not fetched yet ({size:.1f} GB); run: {command(name)}")
    if not is_whole(found):
        raise cli.Missing(f"{name}: {found['path']} is gone or cut short; run: {command(name)}")
    return found


def is_whole(found: Record) -> bool:
    """Whether a lock's file is there at its size; its sha256 was checked when it arrived."""
    path = Path(found["path"])
    return path.is_file() and path.stat().st_size == found["size"]


def command(name: str) -> str:
    return f"make model MODEL={name}"


def described() -> str:
    """The table as lines for a terminal: name, gigabytes, licence, whether it is here."""
    rows = [("MODEL", "GB", "LICENCE", "")]
    for name, entry in table().items():
        found = lock(name)
        state = "here" if found and is_whole(found) else ""
        rows.append((name, f"{entry.size / 1e9:.1f}", entry.licence, state))
    return "\n".join(f"{a:<20}{b:>5}  {c:<36}{d}".rstrip() for a, b, c, d in rows)
