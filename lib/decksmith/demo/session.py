"""The demo: what somebody asks for becomes a deck in the browser, slide by slide while a model writes it, by one model or by two.

All that happens to an ask is an event, one JSON line of `<folder>/decks/<ask>/journal.jsonl`; the page is drawn from these events alone,
so a reload, a second window and a server that was killed show the same. Each text that was rendered is a version with a folder of its
own, `<folder>/decks/<ask>.<side>.<version>`, as deck-render and deck-build make it. Model output reaches the page as text and as
pictures; as a page it runs only under the second origin, in a frame that may do nothing else.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import socket
import time
import traceback
import zipfile
from collections import OrderedDict, defaultdict
from pathlib import Path

from aiohttp import web as http

from decksmith.core import cli, pages, stream, web
from decksmith.core.protocol import Protocol
from decksmith.decks import clean, lint
from decksmith.decks import pictures as deck_pictures
from decksmith.decks.parser import Deck
from decksmith.models import client as chat_client
from decksmith.models import registry as model_registry
from decksmith.render import site

# What a visitor may ask for.
PROMPT, WORDS, SLIDES = 4000, 80, 20  # characters of the request, of audience and tone; slides
TEXT, LONGEST, REPLY = (
    60_000,
    60,
    120_000,
)  # characters and slides of a deck that is rendered, characters of a reply (then it is stopped)
AT_ONCE, WAITING = 4, 60  # decks of one visitor that are in work or wait; of all
ASKS, KEPT, VERSIONS = 30, 1000, 50  # asks kept of one visitor, of all; versions of one deck
LOADED = 100  # asks in memory that nobody works on
SECONDS = 900  # for one reply
STREAMS = 12  # open event streams of one visitor
DEADLINE = (
    12  # CPU seconds for a rendering while the model writes; building may take twice that (site.py)
)
BATCH = 3  # slides rendered together while the model writes
BEAT = 0.08  # seconds between two events of text
COOKIE, MONTH = "decksmith_demo", 30 * 86400
ENDS = ("done", "failed", "stopped", "interrupted")
# What the first block says about the whole deck, and not about its first slide.
SETTINGS = ("theme", "themeConfig", "colorSchema", "lineNumbers", "mdc", "comark", "defaults")
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_ID = r"[0-9a-f]{32}"
_PICTURE = re.compile(
    rf"({_ID})(?:\.([01])\.(\d+)/slides/(\d+)\.png|/early/([01])/(\d+)/slides/(\d+)\.png)\Z"
)
_SITE = re.compile(rf"(?:_runtime|{_ID}\.[01]\.\d+/build)/[\w./@-]+\Z")


def messages(asked):
    """What a model is asked: the benchmark's system prompt, and the request with what the form adds to it in words like those of its prompts."""
    slides, theme = asked.get("slides"), asked.get("theme")
    says = [
        f"{slides} slide{'s' * (slides != 1)}{f' in the {theme} theme' if theme else ''}."
        if slides
        else f"Use the {theme} theme."
        if theme
        else "",
        f"It is for {asked['audience']}." if asked.get("audience") else "",
        f"The tone is {asked['tone']}." if asked.get("tone") else "",
    ]
    system = (
        (cli.ROOT / "assets" / "prompts" / "deck-system.txt").read_text(encoding="utf-8").strip()
    )
    prompt = asked["prompt"] + "." * bool(any(says) and asked["prompt"][-1:].isalnum())
    user = "\n\n".join(filter(None, (prompt, " ".join(filter(None, says)))))
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def excerpt(deck, slides):
    """`(text, lines)`: a deck of some slides of `deck` alone, under its settings. Line i + 1 of the text is line `lines[i]` of the deck."""
    out, lines = [], []
    for slide in slides:
        own = {} if slide.frontmatter_error else slide.frontmatter
        front = (
            {name: deck.headmatter[name] for name in SETTINGS if name in deck.headmatter}
            if not out
            else {}
        )
        front |= {
            name: value for name, value in own.items() if slide.no > 1 or name not in SETTINGS
        } | {"layout": slide.layout}
        at = slide.frontmatter_line or slide.start
        for line in [
            "---",
            *(f"{json.dumps(str(name))}: {json.dumps(value)}" for name, value in front.items()),
            "---",
            "",
        ]:
            out.append(line)
            lines.append(at)
        for number, line in enumerate(slide.content.split("\n")):
            out.append(line)
            lines.append(slide.content_line + number)
        out.append("")
        lines.append(slide.end)
    return "\n".join(out), lines


# --- an ask and its events ----------------------------------------------------------------------------------------------


class Ask:
    """What one visitor asked for, and what came of it: the events of its journal, in memory while somebody looks or works."""

    def __init__(self, folder, ident):
        self.path, self.id = folder / ident / "journal.jsonl", ident
        self.events, self.changed, self.tasks, self.pending = [], asyncio.Event(), {}, {}
        self.file = None

    @classmethod
    def load(cls, folder, ident):
        """From its journal; half a line at its end is dropped, and work that nobody does any more has ended there."""
        ask = cls(folder, ident)
        with open(ask.path, "rb+") as file:
            data = file.read()
            file.truncate(data.rfind(b"\n") + 1)
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            with contextlib.suppress(ValueError):
                ask.events.append(json.loads(line))
        if not ask.events or ask.events[0].get("type") != "asked":
            raise ValueError("the journal does not begin with what was asked")
        for side, at in enumerate(ask.sides()):
            if at["status"] not in ENDS:
                ask.say(
                    side,
                    "end",
                    status="interrupted",
                    message="The server was stopped in the meantime. What had arrived is kept.",
                )
        ask.close()
        return ask

    @property
    def asked(self):
        return self.events[0]

    def say(self, side, kind, **facts):
        """Add one event."""
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

    def hear(self, side, kind, piece):
        """Text that arrives: events of their own would be many, so it waits a moment for more."""
        waiting = self.pending.setdefault(side, [])
        if not waiting:
            asyncio.get_running_loop().call_later(BEAT, self.flush, side)
        if waiting and waiting[-1][0] == kind:
            waiting[-1][1].append(piece)
        else:
            waiting.append((kind, [piece]))

    def flush(self, side):
        for kind, pieces in self.pending.pop(side, []):
            self.say(side, kind, text="".join(pieces)) if kind != "turn" else self.say(side, "turn")

    def sides(self):
        """How each deck stands: {model, label, status, version, slides, picture, title, text}."""
        sides = [
            {**model, "status": "queued", "version": 0, "slides": 0, "picture": None, "text": ""}
            for model in self.asked["models"]
        ]
        for event in self.events[1:]:
            at, kind = sides[event["side"]], event["type"]
            if kind == "text":
                at["text"] += event["text"]
            elif kind == "turn":
                at["text"] = ""
            elif kind == "started":
                at["status"] = "writing"
            elif kind == "deck":
                at |= {"status": "rendering", "version": event["version"], "title": event["title"]}
            elif kind == "slide":
                at["picture"] = at["picture"] or event["picture"]
            elif kind == "rendered":
                at |= {
                    "slides": event["slides"],
                    "picture": f"{self.id}.{event['side']}.{event['version']}/slides/01.png"
                    if event["slides"]
                    else None,
                }
            elif kind == "end":
                at["status"] = event["status"]
        return sides

    def resting(self):
        return not self.tasks and all(at["status"] in ENDS for at in self.sides())

    def close(self):
        if self.file:
            self.file.close()
        self.file = None


class Line:
    """At most `width` at once; the others wait in turn, and are told their places."""

    def __init__(self, width):
        self.width, self.inside, self.waiting = width, 0, []

    @contextlib.asynccontextmanager
    async def turn(self, tell):
        if self.inside < self.width:
            self.inside += 1
        else:
            mine = (asyncio.get_running_loop().create_future(), tell)
            self.waiting.append(mine)
            tell(len(self.waiting))
            try:
                await mine[0]
            except asyncio.CancelledError:
                if mine[0].done() and not mine[0].cancelled():
                    self._next()
                else:
                    self.waiting.remove(mine)
                    self._tell()
                raise
        try:
            yield
        finally:
            self._next()

    def _next(self):
        self.inside -= 1
        if self.waiting:
            self.inside += 1
            self.waiting.pop(0)[0].set_result(None)
            self._tell()

    def _tell(self):
        for place, (_, tell) in enumerate(self.waiting, 1):
            tell(place)


# --- the work -----------------------------------------------------------------------------------------------------------


class Studio:
    """Everything that works: the models, the line before each endpoint, the warm renderer, the asks of all visitors.

    folder: where all of it is kept. models: chat.Model entries by name. `tokens` a reply may have at most, `jobs` render workers,
    `budget` in USD for each model."""

    def __init__(self, folder, models, *, tokens=4096, jobs=1, budget=None):
        self.folder, self.models, self.tokens, self.budget = (
            Path(folder) / "decks",
            models,
            tokens,
            budget,
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = open(self.folder / ".lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise cli.Missing(
                f"another demo-serve works in {folder}; stop it, or name another folder with --run"
            ) from None
        protocol = Protocol.load("offline")
        self.least = protocol.render["min_slides"]
        protocol.render.update(min_slides=1, deadline=DEADLINE, scale=1)
        self.sampling = protocol.sampling
        self.provider = deck_pictures.providers(protocol.images["provider"])
        self.lines = {model.base_url: Line(self._width(model)) for model in models.values()}
        self.clients = {name: self._open(model) for name, model in models.items()}
        self.builder = site.Builder(protocol, ["site"], jobs=jobs)
        self.loaded, self.owner, self.asks, self.making = OrderedDict(), {}, defaultdict(list), {}
        for path in self.folder.glob("*/journal.jsonl"):
            with contextlib.suppress(OSError, ValueError, KeyError), open(path, "rb") as file:
                first = json.loads(file.readline())
                self.owner[path.parent.name] = first["visitor"]
                self.asks[first["visitor"]].append((first["at"], path.parent.name))
        for asks in self.asks.values():
            asks.sort()
        for path in (
            self.folder.iterdir()
        ):  # what was being removed, or made for an ask that was removed meanwhile
            if re.match(_ID, path.name) and path.name[:32] not in self.owner:
                shutil.rmtree(path, ignore_errors=True)

    @staticmethod
    def _width(model):
        if model.base_url == "engine:":
            from decksmith.models import embedded

            return embedded.settings()["parallel"]
        return min(model.jobs, 8)

    def _open(self, model):
        return chat_client.Client(
            model,
            jobs=self.lines[model.base_url].width,
            retries=2,
            patience=SECONDS,
            budget=self.budget,
        )

    async def client(self, name):
        """The client of a model; one whose last request failed is replaced: its endpoint may have been mended, moved, or serve another adapter."""
        old = self.clients[name]
        if old.broken or (old.failed_in_a_row and not old.gate.inside):
            self.clients[name] = self._open(self.models[name])
            self.clients[name].spent = old.spent
            await old.close()
        return self.clients[name]

    async def warm(self):
        """Start what the first visitor would wait for: a render worker, and the embedded model."""
        path = self.folder / "_warm" / "deck.md"
        stream.write(path, "# Warm\n\n---\n\n## Up\n")
        try:
            await self.builder.show(self.folder, {"id": "_warm", "deck": {"path": "_warm/deck.md"}})
            for name, model in self.models.items():
                if model.base_url == "engine:":
                    await (await self.client(name)).ask(
                        [{"role": "user", "content": "Hello"}], {"max_tokens": 1}
                    )
        except (stream.Fault, cli.Stop) as error:
            cli.say(str(error))

    async def close(self):
        for ask in list(self.loaded.values()):
            for side in list(ask.tasks):
                await self.stop(
                    ask,
                    side,
                    "interrupted",
                    "The server was stopped in the meantime. What had arrived is kept.",
                )
            ask.close()
        await asyncio.gather(*(client.close() for client in self.clients.values()))
        await self.builder.close()
        self.lock.close()

    def find(self, visitor, ident):
        """An ask of this visitor; raises HTTPNotFound for any other."""
        if visitor is None or self.owner.get(ident) != visitor:
            raise http.HTTPNotFound(text="there is no such deck of yours")
        if ident not in self.loaded:
            try:
                self.loaded[ident] = Ask.load(self.folder, ident)
            except (OSError, ValueError) as error:
                raise http.HTTPNotFound(
                    text=f"this deck cannot be read any more: {error}"
                ) from None
            if len(self.loaded) > LOADED:
                for old in [ask for ask in list(self.loaded.values())[:-1] if ask.resting()][
                    : len(self.loaded) - LOADED
                ]:
                    old.close()
                    del self.loaded[old.id]
        self.loaded.move_to_end(ident)
        return self.loaded[ident]

    def begin(self, visitor, asked, names):
        """Take an ask for one deck of each of the models; returns it."""
        at_work = sum(
            len(ask.tasks) for ask in self.loaded.values() if ask.asked["visitor"] == visitor
        )
        if at_work + len(names) > AT_ONCE:
            raise http.HTTPTooManyRequests(
                text=f"{at_work} of your decks are still in work; wait for one, or stop it"
            )
        if sum(len(line.waiting) for line in self.lines.values()) + len(names) > WAITING:
            raise http.HTTPServiceUnavailable(
                text="too many are waiting; come back in some minutes",
                headers={"Retry-After": "120"},
            )
        ask = Ask(self.folder, secrets.token_hex(16))
        ask.say(
            None,
            "asked",
            visitor=visitor,
            request=asked,
            seed=secrets.randbelow(2**31),
            models=[
                {
                    "model": name,
                    "label": self.models[name].label or name,
                    "color": self.models[name].color,
                }
                for name in names
            ],
        )
        self.loaded[ask.id], self.owner[ask.id] = ask, visitor
        self.asks[visitor].append((ask.asked["at"], ask.id))
        self._shrink(visitor)
        for side in range(len(names)):
            self._work(ask, side, self._write(ask, side))
        return ask

    def edit(self, ask, side, text):
        """Render another text for one deck of an ask."""
        at = ask.sides()[side]
        if side in ask.tasks:
            raise http.HTTPConflict(text="this deck is still in work; stop it first")
        if at["version"] >= VERSIONS:
            raise http.HTTPConflict(
                text=f"this deck has {VERSIONS} versions already; begin a new one with its text"
            )
        if not at["version"]:  # a reply that was stopped: it has not been cleaned yet
            text = clean.clean(text)[0]
        self._work(ask, side, self._finish(ask, side, text, "edit"))

    def _work(self, ask, side, work):
        async def guarded():
            try:
                await work
            except stream.Fault as fault:
                ask.flush(side)
                ask.say(side, "end", status="failed", message=str(fault), fault=fault.error["kind"])
            except cli.Stop as error:
                ask.flush(side)
                ask.say(side, "end", status="failed", message=str(error), fault="infra")
            except Exception as error:
                traceback.print_exc()
                ask.flush(side)
                ask.say(
                    side,
                    "end",
                    status="failed",
                    message=f"A fault of the demo itself ({type(error).__name__}); its log says more.",
                    fault="renderer",
                )
            finally:
                ask.tasks.pop(side, None)

        ask.tasks[side] = asyncio.get_running_loop().create_task(guarded())

    async def stop(self, ask, side, status="stopped", message="What had arrived is kept."):
        """End the work on a deck: at the endpoint, in the line, in the renderer."""
        task = ask.tasks.get(side)
        if not task or task.done():
            return
        task.cancel()
        await asyncio.wait([task])
        if ask.sides()[side]["status"] not in ENDS:
            ask.flush(side)
            ask.say(side, "end", status=status, message=message)

    async def _write(self, ask, side):
        """Let the model write, rendering each slide that it has finished; then the whole deck."""
        name = ask.asked["models"][side]["model"]
        model, letters, usage, finish = self.models[name], 0, None, None
        sampling = {**self.sampling, **model.params}
        sampling["max_tokens"] = min(sampling.get("max_tokens", self.tokens), self.tokens)
        text = []

        def heard(kind, piece):
            nonlocal letters
            letters += len(piece)
            if kind == "turn":
                text.clear()
            elif kind == "text":
                text.append(piece)
            ask.hear(side, kind, piece)
            if letters > REPLY:
                raise stream.Fault(
                    "model", "too-long", f"the reply was stopped after {REPLY} characters"
                )

        async with self.lines[model.base_url].turn(
            lambda place: ask.say(side, "place", place=place)
        ):
            ask.say(side, "started")
            client, over = await self.client(name), asyncio.Event()
            early = asyncio.create_task(self._early(ask, side, text, over))
            try:
                async with asyncio.timeout(SECONDS):
                    answer = await client.stream(
                        messages(ask.asked["request"]),
                        sampling,
                        heard=heard,
                        seed=ask.asked["seed"],
                    )
                finish, usage = answer.finish_reason, answer.usage
            except TimeoutError:
                finish = "time"
            except stream.Fault as fault:
                if fault.error["class"] not in ("too-long", "cut-off"):
                    raise
                finish = fault.error["class"]
            finally:
                over.set()
                if asyncio.current_task().cancelling() or finish is None:
                    early.cancel()
                ask.flush(side)
        ask.say(side, "written", finish=finish, usage=usage)
        for trouble in await asyncio.gather(early, return_exceptions=True):
            if isinstance(
                trouble, Exception
            ):  # a fault of ours: the whole deck is rendered all the same
                traceback.print_exception(trouble)
        await self._finish(ask, side, clean.clean("".join(text))[0], "model")

    async def _early(self, ask, side, text, over):
        """Render what is finished of a text that grows, some slides at a time, until it is over."""
        seen, batch, marks, place = {}, 0, 0, self.folder / ask.id / "early" / str(side)
        while not over.is_set():
            if (more := "".join(text).count("\n---")) == marks:  # no slide ended since
                await asyncio.sleep(0.15)
                continue
            deck = Deck.parse(clean.clean("".join(text))[0][:TEXT])
            # The last slide is still being written.
            todo = [
                (no, slide)
                for no, slide in enumerate(deck.shown, 1)
                if slide is not deck.slides[-1] and seen.get(no) != slide.raw
            ][:BATCH]
            todo = todo[:1] if not seen else todo
            if not todo or todo[0][0] > 2 * SLIDES:
                marks = more
                continue
            batch += 1
            seen |= {no: slide.raw for no, slide in todo}
            part, lines = excerpt(deck, [slide for _, slide in todo])
            try:
                value, _, found = await self._render(
                    place, f"{batch:03d}", part, self.builder.render
                )
            except stream.Fault:
                return
            if any(error["class"] in ("deadline", "memory", "crash") for error in value["errors"]):
                return  # what this deck does to a worker, it need do once only
            for picture, page, (no, slide) in zip(
                value["slides"], value["xray"], todo, strict=False
            ):
                found_here = [
                    {
                        **finding,
                        "slide": no,
                        "line": lines[min(finding["line"] or 1, len(lines)) - 1],
                    }
                    for finding in found
                    if finding["slide"] == page["slide"]
                ]
                ask.say(
                    side,
                    "slide",
                    no=no,
                    line=slide.start,
                    title=_short(page["title"]),
                    text=_short(page["text"], 400),
                    findings=_few(found_here),
                    picture=f"{ask.id}/early/{side}/{picture}",
                )

    async def _finish(self, ask, side, text, source):
        """Render and build a text: the next version of a deck."""
        if not text.strip():
            raise stream.Fault(
                "model",
                "no-deck",
                "The model gave reasoning, but no deck."
                if any(
                    event["type"] == "reasoning" and event["side"] == side for event in ask.events
                )
                else "The model's reply is empty.",
            )
        if len(text) > TEXT:
            raise stream.Fault(
                "model",
                "memory",
                f"The deck has {len(text)} characters; at most {TEXT} are rendered here.",
            )
        deck, version = Deck.parse(text), ask.sides()[side]["version"] + 1
        if len(deck.shown) > LONGEST:
            raise stream.Fault(
                "model",
                "memory",
                f"The deck has {len(deck.shown)} slides; at most {LONGEST} are rendered here.",
            )
        ident = f"{ask.id}.{side}.{version}"
        title = (
            next((slide.title for slide in deck.shown if slide.title), None)
            or ask.asked["request"]["prompt"][:60]
        )
        ask.say(side, "deck", version=version, text=text, source=source, title=_short(str(title)))
        began = time.monotonic()
        (value, built), _, found = await self._render(self.folder, ident, text, self.builder.show)
        made, wanted = len(value["slides"]), ask.asked["request"]["slides"]
        if made and (made < self.least or made != (wanted or made)):
            found.insert(
                0,
                {
                    "line": 1,
                    "slide": None,
                    "rule": "too-few-slides" if made < self.least else "slides",
                    "box": None,
                    "message": f"{made} slide{'s' * (made != 1)}; a deck must have {self.least} to count"
                    if made < self.least
                    else f"{wanted} slide{'s were' if wanted != 1 else ' was'} asked for, there {'is' if made == 1 else 'are'} {made}",
                },
            )
        ask.say(
            side,
            "rendered",
            version=version,
            status=value["status"],
            slides=len(value["slides"]),
            expected=value["expected"],
            site=bool(built.get("site")),
            findings=_few(found, 300),
            error=_fault(value),
            took=round(time.monotonic() - began, 2),
            pages=[
                {
                    "line": page["line"],
                    "title": _short(page["title"]),
                    "text": _short(page["text"], 400),
                }
                for page in value["xray"][: len(value["slides"])]
            ],
        )
        failed = None if value["slides"] else _fault(value)
        ask.say(
            side,
            "end",
            status="failed" if failed else "done",
            message=failed["message"] if failed else None,
            fault=failed and failed["kind"],
        )
        if made:  # else the slides that were rendered while it was written are all there is to see
            shutil.rmtree(self.folder / ask.id / "early" / str(side), ignore_errors=True)
        for old in range(1, version - 2):
            shutil.rmtree(self.folder / f"{ask.id}.{side}.{old}", ignore_errors=True)

    async def _render(self, folder, ident, text, render):
        """(what `render` made of a text, the text with pictures, the findings)."""
        record = {"id": ident, "deck": {"path": f"{ident}/deck.md"}}
        await asyncio.to_thread(stream.write, folder / ident / "deck.md", text)
        record["images"] = await asyncio.to_thread(
            deck_pictures.illustrate, folder, record, self.provider
        )
        made = await render(folder, record)
        value = made[0] if isinstance(made, tuple) else made
        drawn = (folder / record["images"]["path"]).read_text(encoding="utf-8", errors="replace")
        return made, drawn, await asyncio.to_thread(lint.findings, {"render": value}, drawn)

    async def made(self, ask, side, version, kind):
        """The path of a version's `pdf` or `pptx`, which is made when it is first asked for."""
        ident = f"{ask.id}.{side}.{version}"
        path = self.folder / ident / "build" / f"deck.{kind}"
        if not path.is_file():
            if (ident, kind) not in self.making:
                record = {"id": ident, "deck": {"path": f"{ident}/deck.md"}}
                if (self.folder / ident / "illustrated.md").is_file():
                    record["images"] = {"path": f"{ident}/illustrated.md"}
                task = self.making[ident, kind] = asyncio.create_task(
                    self.builder.build(self.folder, record, [kind])
                )
                task.add_done_callback(lambda _: self.making.pop((ident, kind), None))
            built = await asyncio.shield(self.making[ident, kind])
            if kind not in built:
                raise http.HTTPUnprocessableEntity(
                    text=f"this deck cannot be made into a {kind} file: {built['error']['message']}"
                )
        return path

    def history(self, visitor):
        """The visitor's asks, newest first, each with how its decks stand."""
        found = []
        for at, ident in reversed(self.asks.get(visitor, [])):
            with contextlib.suppress(http.HTTPNotFound):
                ask = self.find(visitor, ident)
                found.append(
                    {
                        "id": ident,
                        "at": at,
                        "request": ask.asked["request"],
                        "sides": [
                            {
                                name: side.get(name)
                                for name in (
                                    "model",
                                    "label",
                                    "color",
                                    "status",
                                    "slides",
                                    "picture",
                                    "title",
                                )
                            }
                            for side in ask.sides()
                        ],
                    }
                )
        return found

    async def forget(self, ask):
        """Remove an ask and all that came of it."""
        for side in list(ask.tasks):
            await self.stop(ask, side)
        self._remove(ask.asked["visitor"], ask.id)

    def _remove(self, visitor, ident):
        self.asks[visitor] = [entry for entry in self.asks[visitor] if entry[1] != ident]
        self.owner.pop(ident, None)
        if ask := self.loaded.pop(ident, None):
            ask.close()
        for path in [*self.folder.glob(f"{ident}.*"), self.folder / ident]:
            shutil.rmtree(path, ignore_errors=True)

    def _shrink(self, visitor):
        """Make room: the oldest asks of this visitor, then of all, that nobody works on."""
        working = {ident for ident, ask in self.loaded.items() if ask.tasks}
        mine = [entry for entry in self.asks[visitor][:-1] if entry[1] not in working]
        for _, ident in mine[: max(0, len(self.asks[visitor]) - ASKS)]:
            self._remove(visitor, ident)
        if len(self.owner) > KEPT:
            everybody = sorted(
                (at, ident, who)
                for who, asks in self.asks.items()
                for at, ident in asks
                if ident not in working
            )
            for _, ident, who in everybody[: len(self.owner) - KEPT]:
                self._remove(who, ident)


def _short(text, most=120):
    text = " ".join(str(text or "").split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _few(findings, most=40):
    return [{**finding, "message": _short(finding["message"], 300)} for finding in findings[:most]]


def _fault(value):
    error = value.get("error")
    return error and {
        **{name: error.get(name) for name in ("kind", "class", "slide", "line")},
        "message": _short(error["message"], 400),
    }


# --- the web ------------------------------------------------------------------------------------------------------------


def serve(folder, models, *, host="127.0.0.1", port=0, public=(None, None), **options):
    """Serve the demo until SIGTERM or Ctrl-C, the page on `port` and the decks on the next one; `options` as of Studio. public: the origins
    that a reverse proxy gives the two. While it runs, `<folder>/address.json` has {"url", "decks", "pid"}. Raises cli.Missing for ports in use, and where there is no renderer."""
    folder = Path(folder)

    @contextlib.asynccontextmanager
    async def make(url):
        try:
            listening = socket.create_server(
                (host, port and port + 1), family=socket.AF_INET6 if ":" in host else socket.AF_INET
            )
        except OSError as error:
            raise cli.Missing(
                f"{host} port {port + 1}, where the decks run: {str(error.strerror).partition(' (while')[0]}; give another with --port"
            ) from None
        studio = Studio(folder, models, **options)
        main, decks = (
            origin or place
            for origin, place in zip(
                public, (int(url.rpartition(":")[2]), listening.getsockname()[1]), strict=True
            )
        )
        hosts = web.LOOPBACK if host in web.LOOPBACK else None
        beside = decks if isinstance(decks, str) else f"{url.rpartition(':')[0]}:{decks}"
        async with web.serving(_decks(studio, hosts, main, public[1]), listening):
            warming = asyncio.create_task(studio.warm())
            try:
                with web.announced(
                    folder / "address.json", {"url": public[0] or url, "decks": beside}
                ):
                    cli.say(
                        f"{public[0] or url} makes decks with {' and '.join(models)}; Ctrl-C ends it"
                    )
                    yield _pages(studio, hosts, decks, public[0])
            finally:
                warming.cancel()
                await asyncio.gather(warming, return_exceptions=True)
                await studio.close()

    web.run(make, host, port)


def _beside(request, place):
    """The other origin of this server: the one that a proxy gives it, else its port under the name by which the browser called."""
    if isinstance(place, str):
        return place
    name = request.url.host or "localhost"
    return (
        f"http://{f'[{name}]' if ':' in name else name}:{place}"
        if re.fullmatch(r"[\w.:-]+", name)
        else "'none'"
    )


# A deck is only ever shown in a frame, because only the page around a frame can forbid that it goes elsewhere (CSP frame-src). Whoever
# opens its address by itself gets this page around it.
_ALONE = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>A deck</title>
<style>html,body,iframe{margin:0;border:0;width:100%;height:100%;display:block;overflow:hidden;background:#000}</style>
<iframe sandbox="allow-scripts" referrerpolicy="no-referrer" allow="" allowfullscreen title="A deck"></iframe>
<script>document.querySelector("iframe").src = "?framed" + location.hash</script></html>
"""


def _decks(studio, hosts, main, public=None):
    """The second origin: built decks and nothing else, by names that cannot be guessed. Even on its own such a page is sandboxed."""
    app = web.application(hosts=hosts, public=public)
    alone = web.policy(
        frame_src="'self'",
        **{
            f"{tag}_src": f"'sha256-{pages.sha256(text)}'"
            for tag, text in re.findall("<(style|script)>(.*?)</", _ALONE)
        },
    )

    async def file(request):
        path = request.match_info["path"]
        place = (studio.folder / path).resolve() if _SITE.match(path) and ".." not in path else None
        if (
            not place
            or not place.is_relative_to(studio.folder.resolve())
            or not place.is_file()
            or place.suffix not in TYPES
        ):
            raise http.HTTPNotFound(text="there is no such deck")
        if place.suffix == ".html" and (
            "framed" not in request.query or request.headers.get("Sec-Fetch-Dest") == "document"
        ):
            return http.Response(
                text=_ALONE, content_type="text/html", headers={"Content-Security-Policy": alone}
            )
        return http.FileResponse(
            place,
            headers={
                "Content-Type": TYPES[place.suffix]
                + "; charset=utf-8" * (place.suffix in (".html", ".js", ".css")),
                "Content-Security-Policy": f"sandbox allow-scripts; frame-ancestors 'self' {_beside(request, main)}",
                "Access-Control-Allow-Origin": "*",
                "Cross-Origin-Resource-Policy": "cross-origin",
                "Cache-Control": "private, max-age=86400, immutable",
            },
        )

    app.router.add_get("/{path:.+}", file)
    return app


def _pages(studio, hosts, decks, public=None):
    """The first origin: the page, and what it asks for."""
    template = pages.template("demo.html.j2")
    app = web.application(hosts=hosts, public=public, body=4 * TEXT + 4096)
    asking, everybody = web.Rate(20, 600), web.Rate(200, 600)
    editing, making, looking = web.Rate(60, 600), web.Rate(40, 600), web.Rate(600, 60)
    streams, fresh = defaultdict(int), http.RequestKey("fresh", str)
    routes = http.RouteTableDef()
    from decksmith.render import pool

    themes = pool.themes()

    def visitor(request, new=False):
        """Who asks: a hash of the cookie. With `new`, whoever has none gets one."""
        token = request.cookies.get(COOKIE, "")
        if not re.fullmatch(r"[0-9a-f]{64}", token):
            if not new:
                return None
            token = request[fresh] = secrets.token_hex(32)
        return hashlib.sha256(token.encode()).hexdigest()[:24]

    def known(request):
        looking.check(visitor(request) or web.remote(request))
        return studio.find(visitor(request), request.match_info["ask"])

    def side(request, ask):
        number = int(request.match_info["side"])
        if number >= len(ask.asked["models"]):
            raise http.HTTPNotFound(text="there is no such deck of yours")
        return number

    def answer(request, value, status=200):
        response = http.json_response(value, status=status)
        if fresh in request:
            response.set_cookie(
                COOKIE,
                request[fresh],
                max_age=MONTH,
                httponly=True,
                samesite="Strict",
                secure=(public or "").startswith("https:"),
                path="/",
            )
        return response

    @routes.get("/")
    async def page(request):
        frames = _beside(request, decks)
        facts = {
            "models": [
                {"name": name, "label": model.label or name, "color": model.color}
                for name, model in studio.models.items()
            ],
            "themes": themes,
            "decks": frames,
            "limits": {"prompt": PROMPT, "words": WORDS, "slides": SLIDES, "text": TEXT},
        }
        return http.Response(
            text=template.render(data=pages.data(facts), limits=facts["limits"]),
            content_type="text/html",
            headers={
                "Content-Security-Policy": web.policy(
                    script_src="'self'",
                    style_src="'self'",
                    font_src="'self'",
                    img_src="'self' data:",
                    connect_src="'self'",
                    frame_src=frames,
                )
            },
        )

    def asset(name, kind):
        async def send(request):
            return http.FileResponse(
                pages.WEB / name, headers={"Content-Type": kind, "Cache-Control": "no-cache"}
            )

        app.router.add_get(f"/{Path(name).name}", send)

    for name, kind in (
        ("demo.css", "text/css; charset=utf-8"),
        ("element.js", "text/javascript; charset=utf-8"),
        ("demo.js", "text/javascript; charset=utf-8"),
        ("fonts/inter-400.woff", "font/woff"),
        ("fonts/inter-600.woff", "font/woff"),
    ):
        asset(name, kind)

    @routes.get("/health")
    async def health(request):
        return http.json_response(
            {
                "status": "ok",
                "models": list(studio.models),
                "at work": sum(len(ask.tasks) for ask in studio.loaded.values()),
                "waiting": sum(len(line.waiting) for line in studio.lines.values()),
            }
        )

    @routes.get("/asks")
    async def history(request):
        looking.check(web.remote(request))
        return answer(request, studio.history(visitor(request, new=True)))

    @routes.post("/asks")
    async def ask(request):
        who = visitor(request, new=True)
        asked = await web.asked(
            request,
            prompt=str,
            audience=str,
            tone=str,
            theme=str,
            slides=(int, type(None)),
            models=list,
        )
        names = asked.pop("models", [])
        if (
            not 1 <= len(names) <= 2
            or any(not isinstance(name, str) or name not in studio.models for name in names)
            or len(set(names)) < len(names)
        ):
            raise http.HTTPBadRequest(text=f"models: one or two of {', '.join(studio.models)}")
        wanted = {"prompt": _clean(asked.get("prompt", "")).strip()}
        if not wanted["prompt"]:
            raise http.HTTPBadRequest(text="Say what the deck is about.")
        for key in ("audience", "tone"):
            wanted[key] = " ".join(_clean(asked.get(key, "")).split())
        for key, most in (("prompt", PROMPT), ("audience", WORDS), ("tone", WORDS)):
            if len(wanted[key]) > most:
                raise http.HTTPBadRequest(
                    text=f"{key}: {len(wanted[key])} characters; at most {most} can be used"
                )
        if asked.get("slides") is not None and not 1 <= asked["slides"] <= SLIDES:
            raise http.HTTPBadRequest(text=f"slides: a number from 1 to {SLIDES}")
        if asked.get("theme") and asked["theme"] not in themes:
            raise http.HTTPBadRequest(text=f"theme: one of {', '.join(themes)}")
        asking.check(who)
        everybody.check(web.remote(request))
        wanted |= {"slides": asked.get("slides"), "theme": asked.get("theme") or ""}
        return answer(request, {"id": studio.begin(who, wanted, names).id}, 201)

    @routes.get(rf"/asks/{{ask:{_ID}}}/events")
    async def events(request):
        """The journal and what is added to it: each message is a JSON array of events, its id the number of the last one."""
        ask, who = known(request), visitor(request)
        if streams[who] >= STREAMS:
            raise http.HTTPTooManyRequests(text="too many windows of yours are open")
        last = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        at = min(int(last) + 1, len(ask.events)) if re.fullmatch(r"\d{1,9}", last) else 0
        response = http.StreamResponse(headers={"Content-Type": "text/event-stream", **web.HEADERS})
        streams[who] += 1
        try:
            await response.prepare(request)
            while True:
                changed, news = ask.changed, ask.events[at:]
                for start in range(0, len(news), 2000):
                    some = news[start : start + 2000]
                    data = [
                        {key: value for key, value in event.items() if key != "visitor"}
                        for event in some
                    ]
                    await response.write(
                        b"id: %d\ndata: %s\n\n" % (some[-1]["n"], stream.dumps(data))
                    )
                at += len(news)
                if at < len(ask.events):
                    continue
                if not ask.tasks and ask.resting():
                    await response.write(b"event: rest\ndata: {}\n\n")
                    return response
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), 15)
                    continue
                await response.write(b": still here\n\n")
        except ConnectionError:
            return response
        finally:
            streams[who] -= 1
            if not streams[who]:
                del streams[who]

    @routes.post(rf"/asks/{{ask:{_ID}}}/{{side:[01]}}/stop")
    async def stop(request):
        ask = known(request)
        await studio.stop(ask, side(request, ask))
        return http.json_response({})

    @routes.post(rf"/asks/{{ask:{_ID}}}/{{side:[01]}}/text")
    async def edit(request):
        ask = known(request)
        number, asked = side(request, ask), await web.asked(request, text=str)
        text = _clean(asked.get("text", "")).replace("\r\n", "\n")
        if not text.strip():
            raise http.HTTPBadRequest(text="The deck is empty.")
        if len(text) > TEXT:
            raise http.HTTPRequestEntityTooLarge(
                max_size=TEXT,
                actual_size=len(text),
                text=f"The deck has {len(text)} characters; at most {TEXT} are rendered.",
            )
        editing.check(visitor(request))
        studio.edit(ask, number, text)
        return http.json_response({}, status=202)

    @routes.delete(rf"/asks/{{ask:{_ID}}}")
    async def forget(request):
        await studio.forget(known(request))
        return http.json_response({})

    @routes.get(r"/pictures/{path:.+}")
    async def picture(request):
        found = _PICTURE.match(request.match_info["path"])
        if not found or visitor(request) is None or studio.owner.get(found[1]) != visitor(request):
            raise http.HTTPNotFound(text="there is no such picture of yours")
        place = studio.folder / request.match_info["path"]
        if not place.is_file():
            raise http.HTTPNotFound(text="this picture is no longer kept")
        return http.FileResponse(
            place,
            headers={
                "Content-Type": "image/png",
                "Cache-Control": "private, max-age=86400, immutable",
            },
        )

    @routes.get(
        rf"/asks/{{ask:{_ID}}}/{{side:[01]}}/{{version:\d{{1,3}}}}/deck.{{kind:md|pdf|pptx|zip}}"
    )
    async def download(request):
        ask, kind = known(request), request.match_info["kind"]
        number, version = side(request, ask), int(request.match_info["version"])
        place = studio.folder / f"{ask.id}.{number}.{version}"
        pictures = sorted((place / "slides").glob("*.png"))
        if not (place / "deck.md").is_file() or (kind == "zip" and not pictures):
            raise http.HTTPNotFound(
                text="this version is no longer kept"
                if version < ask.sides()[number]["version"]
                else "there is nothing to download yet"
            )
        making.check(visitor(request))
        if kind == "md":
            data = (place / "deck.md").read_bytes()
        elif kind == "zip":
            data = await asyncio.to_thread(_zip, pictures)
        else:
            data = (await studio.made(ask, number, version, kind)).read_bytes()
        title = (
            re.sub(r"[^\w-]+", "-", ask.sides()[number].get("title") or "").strip("-")[:60]
            or "deck"
        )
        title = title.encode("ascii", "ignore").decode().strip("-") or "deck"
        return http.Response(
            body=data,
            content_type={
                "md": "text/markdown",
                "zip": "application/zip",
                "pdf": "application/pdf",
            }.get(
                kind, "application/vnd.openxmlformats-officedocument.presentationml.presentation"
            ),
            headers={"Content-Disposition": f'attachment; filename="{title}.{kind}"'},
        )

    app.router.add_routes(routes)

    async def own(request, response):
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")

    app.on_response_prepare.append(own)
    return app


def _clean(text):
    """What a person may have typed: no control characters, no half of a character."""
    text = text.encode("utf-8", "replace").decode()
    return "".join(
        c
        for c in text
        if c in "\n\t" or c == "\r" or c.isprintable() or c in "\u200c\u200d\u00a0\u3000"
    )


def _zip(pictures):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path in pictures:
            archive.write(path, path.name)
    return out.getvalue()


def registry(names, base_url=None, key_env=None):
    """The models of these names, `{name: chat.Model}`: of the registry, or at the endpoint `base_url`. Raises cli.BadConfig."""
    if len(set(names)) < len(names):
        raise cli.BadConfig("a model is named twice")
    found = {
        name: model_registry.model(slug=name, base_url=base_url, key_env=key_env)
        if base_url
        else model_registry.model(name)
        for name in names
    }
    if len(found) > 1:  # two that the embedded engine runs write side by side
        os.environ.setdefault("DECKSMITH_ENGINE_PARALLEL", "2")
    return found
