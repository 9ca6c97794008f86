"""The demo: what somebody asks for becomes a deck by one model or by two; whose it is, how many there
may be, and the reference decks, which are everybody's.

All that happens to an ask is an event (ask.py).
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import traceback
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict, Unpack

from aiohttp import web as http

from decksmith.core import cli, incoming, stream
from decksmith.measure.decks import clean
from decksmith.measure.decks.parser import Deck
from decksmith.measure.decks.templates import Template
from decksmith.models import registry as model_registry
from decksmith.people.demo import ask as journal
from decksmith.people.demo.ask import AskedModel, DeckAsk, DeckWish, EventFacts, SideState
from decksmith.people.demo.writer import DeckWriter

AT_ONCE, WAITING = 4, 60  # decks of one visitor that are in work or wait; of all
ASKS, KEPT, VERSIONS = 30, 1000, 50  # asks kept of one visitor, of all; versions of one deck
LOADED = 100  # asks in memory that nobody works on
STOPPED = "What had arrived is kept."
DAMAGED = "nobody"  # whose the decks are that do not say it any more; they are kept
EVERYBODY = "everybody"  # whose the reference decks are: seen by all, changed by nobody
ASK_ID = r"[0-9a-f]{32}"
REFERENCE: AskedModel = {"model": "", "label": "Reference deck, by people", "color": "#c77d2e"}


@dataclass(frozen=True)
class ReferenceDeck:
    """A deck that people wrote for a prompt of the benchmark: no model is needed."""

    ask: str  # the id of the ask in which it is shown
    request: str
    text: str
    title: str
    theme: str
    slides: int


@cache
def references() -> dict[str, ReferenceDeck]:
    """The decks of data/reference by their prompts' ids; empty in a checkout without them."""
    prompts_file = cli.ROOT / "data/prompts.jsonl"
    if not prompts_file.is_file():
        return {}
    rows = (json.loads(line) for line in prompts_file.read_text().splitlines())
    requests = {row["id"]: row["messages"][-1]["content"] for row in rows}
    found = {}
    for path in sorted((cli.ROOT / "data/reference").glob("*.md")):
        name, text = path.stem, path.read_text(encoding="utf-8")
        if name in requests:
            deck = Deck.parse(text)
            found[name] = ReferenceDeck(
                ask=hashlib.sha256(f"{name}\n{text}".encode()).hexdigest()[:32],
                request=requests[name],
                text=text,
                title=str(deck.headmatter.get("title") or name),
                theme=str(deck.theme),
                slides=len(deck.shown),
            )
    return found


class PastAsk(TypedDict):
    """An ask in a visitor's list. at: seconds since 1970."""

    id: str
    at: float
    prompt: str
    sides: list[SideState]


class Studio:
    """The asks of all visitors, and who works on them.

    folder: where all of it is kept. models: registry entries by name. budget: in USD for each
    model; all decks but the reference ones are under `template`. Raises cli.Missing for a folder
    in which another server works.
    Refusals are aiohttp's exceptions."""

    def __init__(
        self,
        folder: Path,
        models: dict[str, model_registry.Model],
        *,
        budget: float | None = None,
        template: Template | None = None,
    ) -> None:
        self.folder = Path(folder) / "decks"
        self.models = models
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = open(incoming.own(self.folder / ".lock", closed=0), "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise cli.Missing(
                f"another demo-serve works in {folder}; stop it, or name another folder with --run"
            ) from None
        self.writer = DeckWriter(self.folder, models, budget, template)
        self.loaded: dict[str, DeckAsk] = {}  # by id, those that were looked at
        self.owner = self._kept()  # the visitor of each ask, the oldest ask first
        # What was being removed, or made for an ask that was removed meanwhile.
        for path in self.folder.iterdir():
            if re.match(ASK_ID, path.name) and path.name[:32] not in self.owner:
                shutil.rmtree(path, ignore_errors=True)

    def _kept(self) -> dict[str, str]:
        """The visitors of the asks that are on the disk, the oldest ask first."""
        found: list[tuple[float, str, str]] = []
        for path in self.folder.glob("*/journal.jsonl"):
            with contextlib.suppress(OSError, ValueError, KeyError, cli.Missing):
                with open(incoming.own(path, os.O_RDONLY), "rb") as file:
                    line = file.readline()
                if line.endswith(b"\n"):  # else it was not begun
                    first = stream.unsummed(line[:-1]) or {"at": 0.0, "visitor": DAMAGED}
                    found.append((first["at"], path.parent.name, first["visitor"]))
        return {ident: visitor for _, ident, visitor in sorted(found)}

    def _of(self, visitor: str) -> list[str]:
        """The asks of a visitor, the oldest first."""
        return [ident for ident, owner in self.owner.items() if owner == visitor]

    async def close(self) -> None:
        """End all work, and say so in the journals."""
        for ask in list(self.loaded.values()):
            for side in list(ask.tasks):
                await self.stop(ask, side, "interrupted", journal.INTERRUPTED)
            ask.close()
        await self.writer.close()
        self.lock.close()

    # Asks

    def may_see(self, visitor: str | None, ident: str) -> bool:
        """Whether an ask is this visitor's, or everybody's."""
        return visitor is not None and self.owner.get(ident) in (visitor, EVERYBODY)

    def find(self, visitor: str | None, ident: str) -> DeckAsk:
        """An ask of this visitor or of everybody; raises HTTPNotFound for any other."""
        if not self.may_see(visitor, ident):
            raise http.HTTPNotFound(text="there is no such deck of yours")
        if ident not in self.loaded:
            try:
                self.loaded[ident] = DeckAsk.load(self.folder, ident)
            except (OSError, ValueError, cli.Missing) as error:
                why = f"this deck cannot be read any more: {error}"
                raise http.HTTPNotFound(text=why) from None
            self._unload()
        return self.loaded[ident]

    def _unload(self) -> None:
        """Beyond LOADED asks, leave those to their journals that were opened longest ago."""
        *before, _ = self.loaded.values()
        resting = [ask for ask in before if ask.resting()]
        for old in resting[: max(0, len(self.loaded) - LOADED)]:
            old.close()
            del self.loaded[old.id]

    def begin(self, visitor: str, asked: DeckWish, names: list[str]) -> DeckAsk:
        """Take an ask for one deck of each of the models `names`; returns it. Raises
        HTTPTooManyRequests, HTTPServiceUnavailable."""
        self._check_room(visitor, len(names))
        models: list[AskedModel] = []
        for name in names:
            model = self.models[name]
            models.append({"model": name, "label": model.label or name, "color": model.color})
        ask = self._open_ask(visitor=visitor, request=asked, models=models)
        for side in range(len(names)):
            self._work(ask, side, self.writer.write(ask, side))
        self._shrink(visitor)
        return ask

    def _check_room(self, visitor: str, more: int) -> None:
        """Raises HTTPTooManyRequests, HTTPServiceUnavailable for too many replies at once."""
        mine = [ask for ask in self.loaded.values() if ask.asked["visitor"] == visitor]
        at_work = sum(len(ask.tasks) for ask in mine)
        if at_work + more > AT_ONCE:
            raise http.HTTPTooManyRequests(
                text=f"{at_work} of your decks are still in work; wait for one, or stop it"
            )
        if sum(len(line.waiting) for line in self.writer.lines.values()) + more > WAITING:
            raise http.HTTPServiceUnavailable(
                text="too many are waiting; come back in some minutes",
                headers={"Retry-After": "120"},
            )

    def _open_ask(self, ident: str | None = None, **facts: Unpack[EventFacts]) -> DeckAsk:
        """A new ask, whose first event says these facts."""
        ask = DeckAsk(self.folder, ident or secrets.token_hex(16))
        facts["seed"] = secrets.randbelow(2**31)
        ask.say(None, "asked", **facts)
        self.loaded[ask.id], self.owner[ask.id] = ask, facts["visitor"]
        return ask

    def reference(self, name: str) -> DeckAsk:
        """The ask in which everybody sees this reference deck; rendered when it is first looked at,
        and kept. Raises HTTPNotFound."""
        if name not in references():
            raise http.HTTPNotFound(text="there is no such reference deck")
        deck = references()[name]
        with contextlib.suppress(http.HTTPNotFound):
            kept = self.find(EVERYBODY, deck.ask)
            if kept.tasks or kept.sides()[0]["status"] == "done":
                return kept
        self._remove(deck.ask)  # one that failed
        ask = self._open_ask(
            deck.ask,
            visitor=EVERYBODY,
            request={"prompt": deck.request},
            models=[REFERENCE],
            reference=name,
        )
        self._work(ask, 0, self.writer.finish(ask, 0, deck.text, "reference"))
        return ask

    def edit(self, ask: DeckAsk, side: int, text: str) -> None:
        """Render another text for one deck of an ask. Raises HTTPConflict."""
        at = self._at_rest(ask, side)
        if not at["version"]:  # a reply that was stopped: it has not been cleaned yet
            text = clean.clean(text)[0]
        self._work(ask, side, self.writer.finish(ask, side, text, "edit"))

    @staticmethod
    def _at_rest(ask: DeckAsk, side: int) -> SideState:
        """How a deck stands that may get another version. Raises HTTPConflict."""
        at = ask.sides()[side]
        if side in ask.tasks:
            raise http.HTTPConflict(text="this deck is still in work; stop it first")
        if at["version"] >= VERSIONS:
            raise http.HTTPConflict(
                text=f"this deck has {VERSIONS} versions already; begin a new one with its text"
            )
        return at

    def change(self, ask: DeckAsk, side: int, slide: int, wish: str) -> None:
        """Have the model write one slide of a deck anew. Raises HTTPConflict, HTTPBadRequest, and
        what `begin` raises."""
        at = self._at_rest(ask, side)
        if not at["version"]:
            raise http.HTTPConflict(text="there is no deck yet; render it first")
        if ask.asked["models"][side]["model"] not in self.models:
            raise http.HTTPConflict(text="the model of this deck is no longer here")
        text = ask.last(side, "deck")["text"]
        shown = len(Deck.parse(text).shown)
        if not 1 <= slide <= shown:
            has = "1 slide" if shown == 1 else f"{shown} slides"
            raise http.HTTPBadRequest(text=f"there is no slide {slide}; the deck has {has}")
        self._check_room(ask.asked["visitor"], 1)
        self._work(ask, side, self.writer.change(ask, side, text, slide, wish))

    def history(self, visitor: str) -> list[PastAsk]:
        """The visitor's asks, newest first, each with how its decks stand."""
        found: list[PastAsk] = []
        for ident in reversed(self._of(visitor)):
            with contextlib.suppress(http.HTTPNotFound):
                ask = self.find(visitor, ident)
                prompt = ask.asked["request"]["prompt"]
                found.append(
                    {"id": ident, "at": ask.asked["at"], "prompt": prompt, "sides": ask.sides()}
                )
        return found

    async def forget(self, ask: DeckAsk) -> None:
        """Remove an ask and all that came of it."""
        for side in list(ask.tasks):
            await self.stop(ask, side)
        self._remove(ask.id)

    def _remove(self, ident: str) -> None:
        self.owner.pop(ident, None)
        if ask := self.loaded.pop(ident, None):
            ask.close()
        for path in [*self.folder.glob(f"{ident}.*"), self.folder / ident]:
            shutil.rmtree(path, ignore_errors=True)

    def _shrink(self, visitor: str) -> None:
        """Make room: the oldest asks of this visitor, then of all, that nobody works on."""
        working = {ident for ident, ask in self.loaded.items() if ask.tasks}
        for owned_by, most in ((visitor, ASKS), (None, KEPT)):
            asks = self._of(owned_by) if owned_by else list(self.owner)
            resting = [ident for ident in asks if ident not in working]
            for ident in resting[: max(0, len(asks) - most)]:
                self._remove(ident)

    # Work on one deck

    def _work(self, ask: DeckAsk, side: int, work: Coroutine[object, object, None]) -> None:
        ask.tasks[side] = asyncio.get_running_loop().create_task(self._guarded(ask, side, work))

    async def _guarded(
        self, ask: DeckAsk, side: int, work: Coroutine[object, object, None]
    ) -> None:
        """Do the work, and say how it failed if it does."""
        try:
            await work
            return
        except (stream.Fault, cli.Stop) as error:
            message = str(error)
        except Exception as error:
            traceback.print_exc()
            what = type(error).__name__
            message = f"A fault of the demo itself ({what}); its log says more."
        finally:
            ask.tasks.pop(side, None)
        ask.flush(side)
        ask.say(side, "end", status="failed", message=message)

    async def stop(
        self, ask: DeckAsk, side: int, status: str = "stopped", message: str = STOPPED
    ) -> None:
        """End the work on a deck: at the endpoint, in the line, in the renderer."""
        task = ask.tasks.get(side)
        if not task or task.done():
            return
        task.cancel()
        await asyncio.wait([task])
        if ask.sides()[side]["status"] not in journal.ENDS:
            ask.flush(side)
            ask.say(side, "end", status=status, message=message)


def registry(
    names: Iterable[str], base_url: str | None = None, key_env: str | None = None
) -> dict[str, model_registry.Model]:
    """The models of these names: of the registry, or at the endpoint `base_url`. Raises
    cli.BadConfig."""
    found = {}
    for name in names:
        if name in found:
            raise cli.BadConfig("a model is named twice")
        if base_url:
            found[name] = model_registry.model(slug=name, base_url=base_url, key_env=key_env)
        else:
            found[name] = model_registry.model(name)
    if len(found) > 1:  # two that the embedded engine runs write side by side
        os.environ.setdefault("DECKSMITH_ENGINE_PARALLEL", "2")
    return found
