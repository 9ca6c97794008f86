"""A bundle: the files of a folder that are published, and a card written from them to FOLDER/card.

Nothing is on a card that is not in the files (docs/records.md). Only the files named here are ever
sent.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict, cast

from decksmith import __version__
from decksmith.core import cli, pages, stream
from decksmith.measure.results.text import markdown_table

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


class Report(TypedDict, total=False):
    """What is known of how a folder was made: report.json, manifest.json and, over them,
    about.toml."""

    licence: str
    limits: object
    models: object
    generation: object
    cost: object
    limit: object
    dedup: object
    kept: object
    dropped: object
    recipe: object
    data: object


@dataclass
class Bundle:
    """A folder ready to be sent: `files` by their names on the Hub, `rows` of a dataset, `notes` to
    be said."""

    kind: Literal["dataset", "adapter"]
    repo: str
    files: dict[str, Path]
    rows: Rows = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def json_object(path: Path) -> dict[str, object]:
    """The JSON object in a file. Raises cli.BadData."""
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise cli.BadData(f"{path}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise cli.BadData(f"{path}: not a JSON object")
    return value


def report(bundle: Bundle, folder: Path) -> Report:
    """What is known of how the folder was made. Raises cli.BadData, cli.BadConfig.

    about.toml has what no tool knows: licence, limits and the like.
    """
    known: dict[str, object] = {}
    for name in ("manifest.json", "report.json"):  # of model-export, of chat-split
        if name in bundle.files:
            known |= json_object(bundle.files[name])
    if (path := folder / "about.toml").exists():
        try:
            known |= tomllib.loads(path.read_text())
        except ValueError as error:
            raise cli.BadConfig(f"{path}: {error}") from None
    if not known.get("licence"):
        bundle.notes.append(f'no licence is named; {path} may: licence = "apache-2.0"')
    return cast(Report, known)


# --- cards ----------------------------------------------------------------------------------------


def write_card(path: Path, kind: str, meta: Mapping[str, object], **known: object) -> None:
    """Fill assets/cards/KIND.md.j2 with what is known; what is None in `meta` is left out."""
    from huggingface_hub.utils import yaml_dump

    templates = pages.environment(cli.ROOT / "assets" / "cards")
    body = templates.get_template(f"{kind}.md.j2").render(
        table=_table,
        plain=plain,
        listed=_listed,
        flat=_flat,
        money=_money,
        version=__version__,
        **known,
    )
    given = {key: value for key, value in meta.items() if value is not None}
    head = yaml_dump(given, sort_keys=False)
    stream.write(path, f"---\n{head}---\n\n{body.strip()}\n")


def plain(value: object) -> str:
    """A value as text of one line that markdown and HTML leave alone."""
    return re.sub(r"([<>`*]|(?<=\])\()", r"\\\1", " ".join(_text(value).split()))


def _table(header: list[str], rows: Sequence[Sequence[object]], words: int = 1) -> str:
    return "\n".join(markdown_table(header, [[plain(cell) for cell in row] for row in rows], words))


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)


def _flat(value: object, prefix: str = "") -> list[tuple[str, str]]:
    """`[(dotted name, text)]` of a nested object."""
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _flat(inner, f"{prefix}{key}.")]
    return [(prefix.rstrip("."), _text(value))]


def _listed(value: object) -> list[str]:
    """The items of a list as text; anything but a list is a list of one."""
    return [plain(item) for item in (value if isinstance(value, list) else [value])]


def _money(cost: object) -> str:
    """A number is in USD; anything else is told as it stands."""
    return f"{cost:.2f} USD" if isinstance(cost, int | float) else plain(cost)
