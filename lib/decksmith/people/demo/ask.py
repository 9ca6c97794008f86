"""What one visitor asks for: the forms of the page, and what came of one as events, one JSON line
each of `<folder>/decks/<ask>/journal.jsonl`.

The page is drawn from these events alone, so a reload, a second window and a server that was
killed show the same.
"""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable
from operator import itemgetter
from pathlib import Path
from typing import IO, Annotated, NotRequired, TypedDict, Unpack, cast

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from decksmith.core import incoming, stream, validation
from decksmith.measure.decks import sources
from decksmith.measure.decks.records import Finding
from decksmith.models.records import Usage

SLIDES = 20  # that a visitor may ask for
TEXT = 60_000  # characters of a deck that is rendered
# Characters of the request, of audience and tone, of a deck, and of what shall change on a slide;
# slides that may be asked for; bytes of a document.
LIMITS = {
    "prompt": 4000,
    "words": 80,
    "text": TEXT,
    "wish": 1000,
    "slides": SLIDES,
    "document": sources.LARGEST,
}
BEAT = 0.08  # seconds between two events of text
ENDS = ("done", "failed", "stopped", "interrupted")
INTERRUPTED = "The server was stopped in the meantime. What had arrived is kept."


# What a visitor may send


def visible(text: str) -> str:
    """What a person may have typed: no control characters, no half of a character."""
    text = text.encode("utf-8", "replace").decode()
    joiners_and_blanks = "\u200c\u200d\u00a0\u3000"
    return "".join(c for c in text if c in f"\n\t\r{joiners_and_blanks}" or c.isprintable())


def _typed(value: object) -> object:
    return visible(value) if isinstance(value, str) else value


def line(text: str) -> str:
    return " ".join(text.split())


def _at_most(most: int, missing: str = "") -> AfterValidator:
    """Text of at most so many characters; `missing`: what is said where there is none."""

    def check(text: str) -> str:
        text = text.strip()
        if missing and not text:
            raise validation.sentence(missing)
        if len(text) > most:
            raise ValueError(f"{len(text)} characters; at most {most} can be used")
        return text

    return AfterValidator(check)


Typed = Annotated[str, BeforeValidator(_typed), Field(description="text")]
Phrase = Annotated[Typed, AfterValidator(line), _at_most(LIMITS["words"])]


class Material(validation.Body):
    """A document as POST /material gave it back."""

    name: Annotated[Typed, Field(max_length=120)]
    text: Annotated[Typed, Field(max_length=sources.BUDGET)]
    cut: Annotated[Typed, Field(max_length=300)] | None = None


class AskRequest(validation.Body):
    """The body of POST /asks. Its context has the names of `models` and `theme` that this server
    has."""

    models: list[str] = Field(default=[], validate_default=True)
    prompt: Annotated[Typed, _at_most(LIMITS["prompt"], "Say what the deck is about.")] = Field(
        default="", validate_default=True
    )
    audience: Phrase = ""
    tone: Phrase = ""
    slides: int | None = Field(
        default=None, ge=1, le=SLIDES, description=f"a whole number from 1 to {SLIDES}"
    )
    theme: str = ""
    material: Material | None = None

    @field_validator("models", mode="before")
    @classmethod
    def _one_or_two(cls, value: object, info: ValidationInfo) -> object:
        known = (info.context or {})["models"]
        some = value if isinstance(value, list) else []
        unknown = [name for name in some if name not in known]
        if unknown or len(some) not in (1, 2) or some[0] in some[1:]:
            raise ValueError(f"one or two of {', '.join(known)}")
        return some

    @field_validator("theme", mode="before")
    @classmethod
    def _known_theme(cls, value: object, info: ValidationInfo) -> object:
        known = (info.context or {})["theme"]
        if value and value not in known:
            raise ValueError(f"one of {', '.join(known)}")
        return value


class ChangeRequest(validation.Body):
    """The body of POST /asks/ASK/SIDE/change: one slide, written anew as somebody wishes."""

    slide: int = Field(ge=1, le=1000, description="the number of a slide")
    wish: Annotated[Typed, _at_most(LIMITS["wish"], "Say what shall change on the slide.")] = Field(
        default="", validate_default=True
    )


class TextRequest(validation.Body):
    """The body of POST /asks/ASK/SIDE/text: a deck that somebody edited."""

    text: Typed = ""


# The journal


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
    """A rendered slide as the page lists it. line: where it begins in the deck; canvas: px across and down."""

    line: int
    title: str
    text: str
    canvas: tuple[int, int]


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
    canvas: tuple[int, int]
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
        has ended there. Raises OSError, and ValueError for a journal without a beginning or with a damaged line."""
        ask = cls(folder, ident)
        with open(incoming.own(ask.path, os.O_RDWR), "rb+") as file:
            data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            file.truncate(len(whole))
        for number, line in enumerate(whole.splitlines(), 1):
            if (event := stream.unsummed(line)) is None:
                raise ValueError(f"line {number} of its journal is damaged on the disk")
            ask.events.append(cast(Event, event))
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
            appending = incoming.KEPT | os.O_APPEND
            self.file = open(incoming.own(self.path, appending), "ab", buffering=0)
        self.file.write(stream.summed(event) + b"\n")
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
