"""What one visitor asked for, as events: one JSON line each of
`<folder>/decks/<ask>/journal.jsonl`.

The page is drawn from these events alone, so a reload, a second window and a server that was
killed show the same.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, Any

from decksmith.core import stream

BEAT = 0.08  # seconds between two events of text
ENDS = ("done", "failed", "stopped", "interrupted")
INTERRUPTED = "The server was stopped in the meantime. What had arrived is kept."


class Ask:
    """What one visitor asked for, and what came of it: the events of its journal, in memory while
    somebody looks or works."""

    def __init__(self, folder: Path, ident: str) -> None:
        self.path, self.id = folder / ident / "journal.jsonl", ident
        self.events: list[dict[str, Any]] = []
        self.changed = asyncio.Event()  # set, and replaced, with each event
        self.tasks: dict[int, asyncio.Task[None]] = {}  # by side: who works on it
        self.pending: dict[int, list[tuple[str, list[str]]]] = {}  # by side: text not yet said
        self.file: IO[bytes] | None = None

    @classmethod
    def load(cls, folder: Path, ident: str) -> "Ask":
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
    def asked(self) -> dict[str, Any]:
        """The first event: {visitor, request, seed, models}."""
        return self.events[0]

    def say(self, side: int | None, kind: str, **facts: Any) -> None:
        """Add one event; `side`: of which deck, None for the first."""
        event = {
            "n": len(self.events),
            "at": round(time.time(), 3),
            "side": side,
            "type": kind,
            **facts,
        }
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
        if waiting and waiting[-1][0] == kind:
            waiting[-1][1].append(piece)
        else:
            waiting.append((kind, [piece]))

    def flush(self, side: int) -> None:
        """Say what waits."""
        for kind, pieces in self.pending.pop(side, []):
            if kind == "turn":
                self.say(side, "turn")
            else:
                self.say(side, kind, text="".join(pieces))

    def sides(self) -> list[dict[str, Any]]:
        """How each deck stands: {model, label, status, version, slides, picture, title, text}."""
        sides = [
            {**model, "status": "queued", "version": 0, "slides": 0, "picture": None, "text": ""}
            for model in self.asked["models"]
        ]
        for event in self.events[1:]:
            self._follow(sides[event["side"]], event)
        return sides

    def _follow(self, at: dict[str, Any], event: dict[str, Any]) -> None:
        """Bring one deck to where it stands after an event."""
        match event["type"]:
            case "text":
                at["text"] += event["text"]
            case "turn":
                at["text"] = ""
            case "started" | "changing":
                at["status"] = "writing"
            case "wish":
                at["status"] = "queued"
            case "deck":
                at |= {"status": "rendering", "version": event["version"], "title": event["title"]}
            case "slide":
                at["picture"] = at["picture"] or event["picture"]
            case "rendered":
                folder = version_id(self.id, event["side"], event["version"])
                first = f"{folder}/slides/01.png" if event["slides"] else None
                at |= {"slides": event["slides"], "picture": first}
            case "end":
                at["status"] = event["status"]

    def last(self, side: int, kind: str) -> dict[str, Any]:
        """The newest event of a kind of one deck; empty where there is none."""
        found = (e for e in reversed(self.events) if e["type"] == kind and e["side"] == side)
        return next(found, {})

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


class Line:
    """At most `width` at once; the others wait in turn, and are told their places."""

    def __init__(self, width: int) -> None:
        self.width, self.inside = width, 0
        self.waiting: list[tuple[asyncio.Future[None], Callable[[int], None]]] = []

    @contextlib.asynccontextmanager
    async def turn(self, tell: Callable[[int], None]) -> AsyncIterator[None]:
        """One's turn; `tell` is called with one's place, from 1, whenever it changes."""
        if self.inside < self.width:
            self.inside += 1
        else:
            await self._wait(tell)
        try:
            yield
        finally:
            self._next()

    async def _wait(self, tell: Callable[[int], None]) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mine = (turn, tell)
        self.waiting.append(mine)
        tell(len(self.waiting))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it had come already: it is the next one's
                self._next()
            elif mine in self.waiting:
                self.waiting.remove(mine)
                self._tell()
            raise

    def _next(self) -> None:
        self.inside -= 1
        while self.waiting:
            turn, _ = self.waiting.pop(0)
            if not turn.cancelled():  # else it is leaving, and has not run since
                self.inside += 1
                turn.set_result(None)
                break
        self._tell()

    def _tell(self) -> None:
        for place, (_, tell) in enumerate(self.waiting, 1):
            tell(place)
