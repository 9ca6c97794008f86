"""Cards: the README.md of a repository, from a template of assets/cards below its metadata."""

import json
import re
from pathlib import Path
from typing import Any

from decksmith import __version__
from decksmith.core import cli, pages, stream
from decksmith.results.text import markdown_table


def write(path: Path, kind: str, meta: dict[str, Any], **known: Any) -> None:
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


def plain(value: Any) -> str:
    """A value as text of one line that markdown and HTML leave alone."""
    return re.sub(r"([<>`*]|(?<=\])\()", r"\\\1", " ".join(_text(value).split()))


def _table(header: list[str], rows: list[Any], words: int = 1) -> str:
    return "\n".join(markdown_table(header, [[plain(cell) for cell in row] for row in rows], words))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """`[(dotted name, text)]` of a nested object."""
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _flat(inner, f"{prefix}{key}.")]
    return [(prefix.rstrip("."), _text(value))]


def _listed(value: Any) -> list[str]:
    """The items of a list as text; an object is its name and the rest in brackets, anything but a list is a list of one."""
    return [_item(item) for item in (value if isinstance(value, list) else [value])]


def _item(item: Any) -> str:
    if not isinstance(item, dict):
        return plain(item)
    name = item.get("name", "")
    others = {key: inner for key, inner in item.items() if key != "name"}
    rest = ", ".join(" ".join(pair) for pair in _flat(others))
    return plain(f"{name} ({rest})" if rest else name).strip()


def _money(cost: Any) -> str:
    """A number is in USD; anything else is told as it stands."""
    if isinstance(cost, int | float) and not isinstance(cost, bool):
        return f"{cost:.2f} USD"
    return plain(", ".join(" ".join(pair).strip() for pair in _flat(cost)))
