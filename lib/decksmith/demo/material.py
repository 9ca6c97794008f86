"""A document that a visitor brings: its text, cut to what a small model can read beside the request."""

import asyncio
from typing import Any

from decksmith.decks import sources
from decksmith.decks.sources import BUDGET, KINDS, LARGEST, NotRead

__all__ = ["BUDGET", "KINDS", "LARGEST", "NotRead", "read"]


async def read(name: str, data: bytes) -> dict[str, Any]:
    """`{"name", "text", "cut"}` of a document: at most BUDGET characters of it, and a sentence about what was cut (or
    None). Raises NotRead."""
    document = await asyncio.to_thread(sources.read, name, data)
    text = "\n\n".join(document.pages).strip()
    used = sources.beginning(text, BUDGET)
    cut, read = None, len(document.pages)
    unread = f" on the first {read} of {document.of} pages" if read < document.of else ""
    if unread or len(used) < len(text):
        cut = f"The first {len(used):,} of {len(text):,} characters{unread} are used; the rest was left out."
    return {"name": document.name, "text": used, "cut": cut}
