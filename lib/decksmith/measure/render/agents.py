"""What an agent is shown of its own deck, as an MCP server: pictures, and findings by line.

Every call is a deck as text, rendered in the cell by warm workers, in a folder that goes with the call; nothing of the
agent's machine is read. What a deck does wrong is the answer, and costs the next caller nothing."""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.measure.decks import edits, lint, pictures, templates
from decksmith.measure.decks.parser import Deck
from decksmith.measure.decks.templates import Template
from decksmith.measure.render import pool

if TYPE_CHECKING:
    from mcp.server.fastmcp import FastMCP

LONGEST = 200_000  # characters of a deck
SLIDES = 100  # of a deck
SHOWN = 12  # pictures that one call gives
WIDTH, WIDEST = 490, 980  # px of a picture
WAITING = 16  # calls in work or in line
FINDINGS = 100  # lines that one call gives
_ABOUT = f"the whole Slidev deck, markdown, at most {LONGEST} characters"
Text = Annotated[str, Field(description=_ABOUT)]


class Refused(Exception):
    """Why a call has no answer, for the caller."""


class Tools:
    """render, xray and edit over `jobs` warm workers; all decks are under `template`, where there is one."""

    def __init__(self, *, jobs: int = 1, template: Template | None = None) -> None:
        protocol = Protocol.load("offline")
        protocol.render.update(min_slides=1, scale=1)
        self.pool = pool.Pool(protocol, jobs=jobs, kept=pool.kept_folder())
        self.template = template
        self.at_work = 0

    async def render(
        self, deck: str, slides: Iterable[int] = (), width: int = WIDTH
    ) -> tuple[str, list[bytes]]:
        """(what was drawn, PNG files) of some slides of a deck, by default the first SHOWN. Raises Refused."""
        if not 100 <= width <= WIDEST:
            raise Refused(f"width is {width}; it is 100 to {WIDEST}")
        wanted = list(dict.fromkeys(slides))
        async with self._drawn(deck) as (run, record):
            names = {int(Path(name).stem): name for name in record["render"].get("slides") or []}
            if unknown := [slide for slide in wanted if slide not in names]:
                raise Refused(f"there is no picture of slide {unknown[0]}; {_standing(record)}")
            chosen = (wanted or sorted(names))[:SHOWN]
            shots = [pool.resized(run / names[slide], width) for slide in chosen]
            said = _standing(record)
            if chosen:
                said += f" Pictures of slides {', '.join(map(str, chosen))}."
            if left := len(wanted or names) - len(chosen):
                said += f" {left} more: ask for them by number, at most {SHOWN} a call."
            return said, shots

    async def xray(self, deck: Text) -> str:
        """Draw a Slidev deck and list what can be seen to be wrong, by line: overflow, overlap, small or faint text,
        missing pictures, errors, departures from the template."""
        async with self._drawn(deck) as (run, record):
            value = await asyncio.to_thread(lint.examine, run, record)
            lines = [line.removeprefix("deck/") for line in lint.lint(record, value)]
            more = [f"and {len(lines) - FINDINGS} more"] if len(lines) > FINDINGS else []
            return "\n".join([_standing(record), *(lines[:FINDINGS] or ["No findings."]), *more])

    async def edit(self, deck: Text, changes: str) -> str:
        """Change a Slidev deck by search-and-replace blocks, a unified diff, or slides each under a line like === slide 3 ===;
        the answer is the whole deck, or why nothing changed. Nothing is drawn."""
        _check(deck)
        try:
            return await asyncio.to_thread(edits.edited, deck, changes)
        except edits.NoEdit as error:
            raise Refused(str(error)) from None

    @asynccontextmanager
    async def _drawn(self, deck: str) -> AsyncIterator[tuple[Path, Record]]:
        """(folder, record with `render`) of a deck while it is looked at."""
        _check(deck)
        if self.at_work >= WAITING:
            raise Refused(f"{WAITING} decks are in work; ask again later")
        self.at_work += 1
        try:
            with tempfile.TemporaryDirectory(prefix="deck-serve-") as folder:
                run = Path(folder)
                record = self._record(run, deck)
                record["images"] = await asyncio.to_thread(pictures.illustrate, run, record)
                record["render"] = await self.pool.render(run, record)
                for error in record["render"]["errors"]:
                    if error["kind"] != "model":
                        said = error["message"][:300]
                        raise Refused(f"the renderer failed, through no fault of the deck: {said}")
                yield run, record
        finally:
            self.at_work -= 1

    def _record(self, run: Path, deck: str) -> Record:
        stream.write(run / "deck" / "deck.md", deck.encode("utf-8", "replace"))
        under = {"template": templates.put(run, self.template)} if self.template else {}
        return {"id": "deck", "deck": {"path": "deck/deck.md", **under}}


def _check(deck: str) -> None:
    """Raises Refused for a text that is no deck to work on."""
    if not deck.strip():
        raise Refused("the deck is empty")
    if len(deck) > LONGEST:
        raise Refused(f"the deck has {len(deck)} characters; at most {LONGEST} are taken")
    if (slides := len(Deck.parse(deck).shown)) > SLIDES:
        raise Refused(f"the deck has {slides} slides; at most {SLIDES} are taken")


def _standing(record: Record) -> str:
    """How the rendering of a deck stands, in a sentence; its text is the deck's in part, and bounded."""
    render = record["render"]
    made, errors = len(render.get("slides") or []), render["errors"]
    said = f"{made} of {render['expected']} slides drawn."
    if errors:
        first = re.sub(r"\s+", " ", errors[0]["message"])[:300]
        said += f" {len(errors)} errors, the first at line {errors[0]['line'] or 1}: {first}."
    return said


def server(tools: Tools) -> "FastMCP":
    """The tools behind MCP. Raises cli.Missing where its package is not installed."""
    try:
        from mcp.server.fastmcp import FastMCP, Image
    except ImportError:
        mend = "make .venv/.mcp (and set IMAGES=off where there are images)"
        raise cli.Missing(f"the package mcp is not installed; run: {mend}") from None
    made = FastMCP("decksmith", log_level="WARNING")

    @made.tool(structured_output=False)
    async def render(
        deck: Text,
        slides: Annotated[list[int] | None, Field(description=f"from 1, at most {SHOWN}")] = None,
        width: Annotated[int, Field(description=f"px of a picture, 100 to {WIDEST}")] = WIDTH,
    ) -> list[Any]:
        """Draw a Slidev deck and look at its slides: one picture each, in order."""
        said, shots = await tools.render(deck, slides or (), width)
        return [said, *(Image(data=shot, format="png") for shot in shots)]

    made.add_tool(tools.xray, structured_output=False)
    made.add_tool(tools.edit, structured_output=False)
    return made


async def speak(*, jobs: int = 1, template: Template | None = None) -> None:
    """Serve MCP on stdin and stdout until stdin ends."""
    tools = Tools(jobs=jobs, template=template)
    try:
        await server(tools).run_stdio_async()
    finally:
        await tools.pool.close()
