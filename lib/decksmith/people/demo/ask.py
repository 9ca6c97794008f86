"""What one visitor asked for, as events: one JSON line each of
`<folder>/decks/<ask>/journal.jsonl`.

The page is drawn from these events alone, so a reload, a second window and a server that was
killed show the same.
"""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from operator import itemgetter
from pathlib import Path
from typing import IO, NotRequired, TypedDict, Unpack, cast

from decksmith.core import stream
from decksmith.measure.decks.records import Finding
from decksmith.models.records import Usage

BEAT = 0.08  # seconds between two events of text
ENDS = ("done", "failed", "stopped", "interrupted")
INTERRUPTED = "The server was stopped in the meantime. What had arrived is kept."


class AskedMaterial(TypedDict):
    """A document, and a sentence about what was cut of it."""

    name: str
    text: str
    cut: NotRequired[str | None]


class DeckWish(TypedDict):
    """The form's fields."""

    prompt: str
    audience: NotRequired[str]
    tone: NotRequired[str]
    slides: NotRequired[int | None]
    theme: NotRequired[str]
    material: NotRequired[AskedMaterial]


class AskedModel(TypedDict):
    model: str
    label: str
    color: str | None


class ShownPage(TypedDict):
    """A rendered slide as the page lists it. line: where it begins in the deck."""

    line: int
    title: str
    text: str


class EventFacts(TypedDict, total=False):
    """What an event says, by its type: asked, place, started, text, reasoning, turn, written, wish,
    changing, unchanged, slide, deck, rendered, end."""

    visitor: str  # asked, and the next four
    request: DeckWish
    seed: int
    models: list[AskedModel]
    reference: str
    place: int
    text: str
    finish: str | None
    usage: Usage | None
    slide: int
    wish: str
    no: int
    line: int
    title: str
    findings: list[Finding]
    picture: str
    version: int
    source: str
    status: str
    slides: int
    site: bool
    took: float
    pages: list[ShownPage]
    message: str | None


class Event(EventFacts):
    """n: from 0; at: seconds since 1970; side: of which deck, None for the first event."""

    n: int
    at: float
    side: int | None
    type: str


class SideState(AskedModel):
    """How one of the decks of an ask stands."""

    status: str
    version: int
    slides: int
    picture: str | None
    title: str | None


class DeckAsk:
    """What one visitor asked for, and what came of it: the events of its journal, in memory while
    somebody looks or works."""

    def __init__(self, folder: Path, ident: str) -> None:
        self.path, self.id = folder / ident / "journal.jsonl", ident
        self.events: list[Event] = []
        self.changed = asyncio.Event()  # set, and replaced, with each event
        self.tasks: dict[int, asyncio.Task[None]] = {}  # by side: who works on it
        self.pending: dict[int, list[tuple[str, str]]] = {}  # by side: text not yet said
        self.file: IO[bytes] | None = None

    @classmethod
    def load(cls, folder: Path, ident: str) -> "DeckAsk":
        """From its journal; half a line at its end is dropped, and work that nobody does any more
        has ended there. Raises OSError, and ValueError for a journal without a beginning."""
        ask = cls(folder, ident)
        with open(ask.path, "rb+") as file:
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            file.truncate(len(whole))
        for line in whole.splitlines():
            with contextlib.suppress(ValueError):
                ask.events.append(json.loads(line))
        if not ask.events or ask.events[0].get("type") != "asked":
            raise ValueError("the journal does not begin with what was asked")
        for side, at in enumerate(ask.sides()):
            if at["status"] not in ENDS:
                ask.say(side, "end", status="interrupted", message=INTERRUPTED)
        ask.close()
        return ask

    @property
    def asked(self) -> Event:
        """The first event, which has visitor, request, seed and models."""
        return self.events[0]

    def say(self, side: int | None, kind: str, **facts: Unpack[EventFacts]) -> None:
        """Add one event; `side`: of which deck, None for the first."""
        at = round(time.time(), 3)
        head = {"n": len(self.events), "at": at, "side": side, "type": kind}
        event = cast(Event, {**head, **facts})
        if self.file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = open(self.path, "ab", buffering=0)
        self.file.write(stream.dumps(event) + b"\n")
        self.events.append(event)
        self.changed.set()
        self.changed = asyncio.Event()

    def hear(self, side: int, kind: str, piece: str) -> None:
        """Text that arrives: events of their own would be many, so it waits a moment for more."""
        waiting = self.pending.setdefault(side, [])
        if not waiting:
            asyncio.get_running_loop().call_later(BEAT, self.flush, side)
        waiting.append((kind, piece))

    def flush(self, side: int) -> None:
        """Say what waits."""
        for kind, pieces in itertools.groupby(self.pending.pop(side, []), key=itemgetter(0)):
            self.say(side, kind, text="".join(piece for _, piece in pieces))

    def sides(self) -> list[SideState]:
        """How each deck stands."""
        at_first = {"status": "queued", "version": 0, "slides": 0, "picture": None, "title": None}
        sides = [cast(SideState, {**model, **at_first}) for model in self.asked["models"]]
        for event in self.events[1:]:
            if event["side"] is not None:
                self._follow(sides[event["side"]], event)
        return sides

    def _follow(self, at: SideState, event: Event) -> None:
        """Bring one deck to where it stands after an event."""
        match event["type"]:
            case "started" | "changing":
                at["status"] = "writing"
            case "wish":
                at["status"] = "queued"
            case "deck":
                at["status"], at["version"] = "rendering", event["version"]
                at["title"] = event["title"]
            case "slide":
                at["picture"] = at["picture"] or event["picture"]
            case "rendered":
                folder = version_id(self.id, event["side"] or 0, event["version"])
                at["slides"] = event["slides"]
                at["picture"] = f"{folder}/slides/01.png" if event["slides"] else None
            case "end":
                at["status"] = event["status"]

    def last(self, side: int, kind: str) -> EventFacts:
        """The newest event of a kind of one deck; empty where there is none."""
        for event in reversed(self.events):
            if event["type"] == kind and event["side"] == side:
                return event
        return {}

    def resting(self) -> bool:
        """Whether nothing more will come by itself."""
        return not self.tasks and all(at["status"] in ENDS for at in self.sides())

    def close(self) -> None:
        if self.file:
            self.file.close()
        self.file = None


def version_id(ask: str, side: int, version: int) -> str:
    """The id, and so the folder, of one version of a deck."""
    return f"{ask}.{side}.{version}"


class TurnQueue:
    """At most `width` at once; the others wait in turn, and are told their places."""

    def __init__(self, width: int) -> None:
        self.width, self.free = width, asyncio.Semaphore(width)
        self.waiting: list[Callable[[int], None]] = []  # who is told a place, the first one first

    @contextlib.asynccontextmanager
    async def turn(self, tell: Callable[[int], None]) -> AsyncIterator[None]:
        """One's turn; `tell` is called with one's place, from 1, whenever it changes."""
        if self.free.locked():
            self.waiting.append(tell)
            tell(len(self.waiting))
        try:
            await self.free.acquire()
        finally:
            if tell in self.waiting:
                at = self.waiting.index(tell)
                del self.waiting[at]
                for place, later in enumerate(self.waiting[at:], at + 1):
                    later(place)
        try:
            yield
        finally:
            self.free.release()
