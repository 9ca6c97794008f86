"""A parcel: a folder made ready to be published, its files checked and a card written from them to FOLDER/card.

Nothing is on a card that is not in the files (docs/records.md). Only the files named here are ever sent.
"""

import json
import os
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from decksmith.core import cli

SPLITS = ("train", "test")
FILES = {
    "dataset": ("train.jsonl", "test.jsonl", "report.json", "split.tsv"),
    "adapter": (
        "adapter_config.json",
        "adapter_model.safetensors",
        "comparison.json",
        "manifest.json",
        "report.json",
        "adapter.gguf",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
    ),
}
NEEDED = {
    "dataset": ("train.jsonl", "test.jsonl"),
    "adapter": ("adapter_config.json", "adapter_model.safetensors"),
}

Rows = dict[str, tuple[str, str]]  # {id: (split, fingerprint of the content)}


@dataclass
class Parcel:
    """A folder ready to be sent: `files` by their names on the Hub, `rows` of a dataset, `notes` to be said."""

    kind: str  # dataset or adapter
    repo: str
    files: dict[str, Path]
    rows: Rows = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises cli.BadData."""
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise cli.BadData(f"{path}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise cli.BadData(f"{path}: not a JSON object")
    return value


def report(made: Parcel, folder: Path) -> dict[str, Any]:
    """What is known of how the folder was made, by whatever made it and, over that, by about.toml.

    about.toml has what no tool knows: licence, limits and the like. Raises cli.BadData, cli.BadConfig.
    """
    known: dict[str, Any] = {}
    for name in ("manifest.json", "report.json"):  # of model-export, of chat-split
        if name in made.files:
            known |= json_object(made.files[name])
    if (path := folder / "about.toml").exists():
        try:
            known |= tomllib.loads(path.read_text())
        except ValueError as error:
            raise cli.BadConfig(f"{path}: {error}") from None
    if not known.get("licence"):
        made.notes.append(f'no licence is named; {path} may: licence = "apache-2.0"')
    return known


def library() -> ModuleType:
    """The package huggingface_hub, without telemetry. Raises cli.Missing."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        import huggingface_hub
    except ImportError:
        raise cli.Missing(
            "the package huggingface_hub is not installed; `make .venv/.hub` installs it"
        ) from None
    return huggingface_hub
