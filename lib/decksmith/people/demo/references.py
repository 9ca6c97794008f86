"""The decks of data/reference as examples: people wrote them, so no model is needed."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from decksmith.core import cli
from decksmith.measure.decks.parser import Deck

FOLDER = cli.ROOT / "data/reference"
PROMPTS = cli.ROOT / "data/prompts.jsonl"


@dataclass(frozen=True)
class Reference:
    """A deck that people wrote for a prompt of the benchmark."""

    id: str
    request: str
    text: str
    title: str
    theme: str
    slides: int


@cache
def all_of() -> dict[str, Reference]:
    """The reference decks by their prompts' ids; empty in a checkout without them."""
    if not PROMPTS.is_file():
        return {}
    rows = (json.loads(line) for line in PROMPTS.read_text().splitlines())
    requests = {row["id"]: row["messages"][-1]["content"] for row in rows}
    paths = sorted(path for path in FOLDER.glob("*.md") if path.stem in requests)
    return {path.stem: _read(path, requests[path.stem]) for path in paths}


def _read(path: Path, request: str) -> Reference:
    text = path.read_text(encoding="utf-8")
    deck = Deck.parse(text)
    title = str(deck.headmatter.get("title") or path.stem)
    return Reference(path.stem, request, text, title, str(deck.theme), len(deck.shown))
