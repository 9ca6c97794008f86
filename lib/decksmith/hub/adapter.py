"""An adapter's card: what it changes of which model, how it was trained, and what a comparison of runs may claim."""

import re
from pathlib import Path
from typing import Any

from decksmith.core import cli
from decksmith.hub import cards, parcels, weights
from decksmith.hub.parcels import Parcel, json_object
from decksmith.results import tables

REPO = re.compile(r"[\w.-]+/[\w.-]+")
# What the card calls the settings of adapter_config.json.
SHAPE = {
    "method": "peft_type",
    "rank": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "adapted modules": "target_modules",
}


def describe(made: Parcel, out: Path) -> dict[str, Path]:
    """Write the card of an adapter; returns it as a file. Raises cli.BadData."""
    config, report = (
        json_object(made.files["adapter_config.json"]),
        parcels.report(made, out.parent),
    )
    compared = _comparison(made)
    base = config.get("base_model_name_or_path")
    if base and not REPO.fullmatch(base):
        made.notes.append(
            f"adapter_config.json names the base model by a path, {base}: nobody else can load it, and the card leaves it out"
        )
        base = None
    data = report["data"].get("repo") if isinstance(report.get("data"), dict) else None
    meta = {
        "library_name": "peft",
        "license": report.get("licence"),
        "base_model": base,
        "pipeline_tag": "text-generation",
        "datasets": [data] if REPO.fullmatch(str(data)) else None,
        "tags": ["slidev", "slides", "lora"],
    }
    cards.write(
        out / "README.md",
        "adapter",
        meta,
        report=report,
        repo=made.repo,
        base=base,
        shape=_shape(config, made.files["adapter_model.safetensors"]),
        compared=compared,
        said=tables.headline(compared) if compared else None,
    )
    return {"README.md": out / "README.md"}


def _comparison(made: Parcel) -> dict[str, Any] | None:
    """What `run-compare --json` printed, or None with a note."""
    if "comparison.json" not in made.files:
        made.notes.append("no comparison.json (run-compare --json): the card makes no claim")
        return None
    compared = json_object(made.files["comparison.json"])
    if not all(isinstance(compared.get(key), list) for key in ("caveats", "headlines", "runs")):
        raise cli.BadData(
            f"{made.files['comparison.json']}: not what `run-compare --json` prints (caveats, headlines, runs)"
        )
    return compared


def _shape(config: dict[str, Any], tensors: Path) -> dict[str, Any]:
    shape = {name: config[key] for name, key in SHAPE.items() if config.get(key) is not None}
    if isinstance(shape.get("adapted modules"), list):
        shape["adapted modules"] = sorted(shape["adapted modules"])
    shape["parameters"] = f"{weights.parameters(tensors):,}"
    return shape
