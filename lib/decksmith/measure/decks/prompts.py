"""What a model is told before a request for a deck; the one reader of assets/prompts."""

import functools

from decksmith.core import cli


@functools.cache
def text(name: str) -> str:
    """The text of assets/prompts/<name>, as a model gets it."""
    return (cli.ROOT / "assets" / "prompts" / name).read_text(encoding="utf-8").strip()


def system() -> str:
    """The system message of every request for a deck: in data/prompts.jsonl, in chat rows, in the demo."""
    return text("deck-system.txt")
