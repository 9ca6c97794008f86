"""A worker: one Node process with its browser in a cell, its clock and its memory.

It is given the deck's text and pictures and gives back pictures and measures; it touches no file of the run. A deck
that never ends, eats the memory or crashes the page costs its worker only, which starts again when asked.
"""

import asyncio
import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, TypeVar, cast

from decksmith.core import stream
from decksmith.core.cells import Walls, enclosed
from decksmith.core.records import Error, Kind, Record, cut
from decksmith.measure.decks.records import Page
from decksmith.measure.decks.templates import Style
from decksmith.measure.render import cell, toolchain

if TYPE_CHECKING:  # python-pptx, for those who want such a file
    from decksmith.measure.render.shapes import Part

_TICK = os.sysconf("SC_CLK_TCK")
MOST = 16 << 20  # bytes of errors and measures of a deck
TOO_LARGE = "what is known of the deck is too large"
LOOK = 0.3  # seconds between two looks at what a deck takes; a look costs 2 ms of CPU
OWN_ADDRESS = re.compile(r"https?://[0-9a-f]{24}\.deck(?::\d+)?(?:/|\Z)")  # the worker's server
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
# A pattern that ran often is compiled another way, which does not agree on all of Shiki's: colours hung on earlier decks.
FLAGS = ("--no-warnings", "--max-old-space-size=1536", "--expose-gc", "--no-regexp-tier-up")


def words(text: object) -> str:
    """What a worker says as XML and PDF may hold it."""
    return _CONTROL.sub("", str(text))


class RenderRequest(TypedDict):
    """What a worker is asked. images: PNG or JPEG by name, base64; formats: what to build besides pictures."""

    id: str
    text: str
    scale: int
    least: int
    images: dict[str, str]
    template: Style
    formats: NotRequired[list[str]]


class SiteFiles(TypedDict):
    """A site's own files by name, and what it shares with others: a runtime, fonts by their names."""

    files: dict[str, str]
    runtime: dict[Literal["name", "folder"], str]
    fonts: dict[str, str]


class DeckError(Error):
    unbundled: NotRequired[str]  # the theme that is to be bundled first


class Measured(TypedDict):
    """What is known of a deck besides its pictures."""

    expected: int | None
    errors: list[Error]
    xray: list[Page]


class RenderResult(Measured):
    """What a worker made of a deck; pictures (PNG) and prints (PDF) in base64, the rest as it was asked for."""

    pictures: list[str]
    site: NotRequired[SiteFiles]
    prints: NotRequired[list[str]]
    parts: NotRequired["list[Part | None]"]
    notes: NotRequired[list[str]]


Held = TypeVar("Held", bound=Measured)


class Drawn(Measured):
    """A deck with its pictures (PNG)."""

    pictures: list[bytes]


def failure(
    cls: str,
    message: str,
    kind: Kind = "model",
    slide: int | None = None,
    line: int | None = None,
    expected: int = 0,
) -> RenderResult:
    """The result of a deck of which there is no picture."""
    error: Error = {"kind": kind, "class": cls, "slide": slide, "line": line, "message": message}
    return {"pictures": [], "expected": expected, "errors": [error], "xray": []}


def bounded(result: Held) -> Held:
    """A result held against the types of what a page has a hand in. What is longer is cut, and
    measures that do not fit are those of an empty slide: the deck's fault, and said."""
    for number, page in enumerate(result["xray"], 1):
        line = page.setdefault("line", 1)
        try:
            wrong = cut(page, Page)
        except ValueError as error:
            wrong = str(error)
            none = Page(slide=number, line=line, title="", text="", blank=True)
            result["xray"][number - 1] = none
        if wrong:
            said = f"what the page reports is too much: {wrong}"
            result["errors"] += failure("out-of-bounds", said, "model", number, line)["errors"]
    for found in result["errors"]:
        found["message"] = words(found["message"])[:4000]
    return result


class ResourceUse:
    """What a deck takes of a process and its children, against what it may take."""

    def __init__(self, pid: int, deadline: float, memory: int) -> None:
        """deadline: CPU seconds; memory: MB."""
        self.pid, self.deadline, self.memory = pid, deadline, memory
        self.began, (self.cpu, self.resident) = time.monotonic(), usage(pid)
        self.peak = 0  # bytes

    def verdict(self) -> tuple[Kind, str, str] | None:
        """(kind, class, message) of the failure where it is too much by now."""
        cpu, resident = usage(self.pid)
        cpu, resident = cpu - self.cpu, resident - self.resident
        self.peak = max(self.peak, resident)
        if resident > self.memory << 20:
            return "model", "memory", f"the deck took more than {self.memory} MB"
        if cpu > self.deadline:
            return "model", "deadline", f"the deck took more than {self.deadline:g} CPU seconds"
        patience = 10 * self.deadline
        if time.monotonic() - self.began > patience:
            said = f"no reply in {patience:g} seconds, {cpu:.1f} of them in use"
            return "renderer", "deadline", said
        return None


class Worker:
    """One Node process and its browser, started when first asked and again after it was killed."""

    def __init__(self, home: Path, script: str = "worker.mjs") -> None:
        self.home, self.script = home, script
        self.process: subprocess.Popen[bytes] | None = None
        # Of the deck in work: the slide that is drawn, its line, and how many there are.
        self.seen: tuple[int | None, int | None, int] = None, None, 0
        self.listener: asyncio.Task[None] | None = None
        self.pipes: list[Any] = []  # transports; the last is the one that is written to

    async def _start(self, walls: Walls) -> bool:
        await self.reap()
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(mode=0o700)
        root, readable = toolchain.RENDERER.resolve(), cell.readable()
        command = [
            toolchain.node().resolve(),
            *FLAGS,
            "--permission",
            "--allow-addons",
            "--allow-child-process",
            *(f"--allow-fs-read={place}" for place in [*readable, self.home]),
            f"--allow-fs-write={self.home}",
            "--import",
            root / "wall.mjs",
            root / self.script,
            self.home,
        ]
        # Not asyncio's own subprocesses: their wait() lasts until every pipe is closed, and for ever when they
        # are cancelled before the pipes are connected (base_subprocess.py of 3.11).
        self.process = subprocess.Popen(
            enclosed(walls, self.home, command, readable),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**toolchain.environment(), "HOME": str(self.home), "TMPDIR": str(self.home)},
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        loop, self.words = asyncio.get_running_loop(), bytearray()
        self.replies, mutter = asyncio.StreamReader(limit=1 << 29), asyncio.StreamReader()
        for reader, pipe in ((self.replies, self.process.stdout), (mutter, self.process.stderr)):
            protocol = functools.partial(asyncio.StreamReaderProtocol, reader)
            transport, _ = await loop.connect_read_pipe(protocol, pipe)
            self.pipes.append(transport)
        writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self.process.stdin)
        self.pipes.append(writer)
        self.listener = asyncio.create_task(self._listen(mutter))
        try:
            ready = await asyncio.wait_for(self._reply(None), 180)
        except TimeoutError:
            ready = None
        if ready and "ready" in ready:
            return True
        await self.reap()
        return False

    async def _listen(self, pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(1 << 16):
            self.words += data
            del self.words[:-4000]

    def _last_words(self) -> str:
        return self.words.decode("utf-8", "replace").strip()[-800:] or "it said nothing"

    async def _reply(self, ident: str | None) -> Record | None:
        """The next reply to this request (None: any), or None when the worker has ended."""
        # A line without an end: it was killed in the middle of it.
        while (line := await self.replies.readline()).endswith(b"\n"):
            reply = stream.json_object(line)
            if ident and "slide" in reply:
                self.seen = reply["slide"], reply["line"], reply["of"]
            elif ident is None or reply.get("id") == ident:
                return reply
        return None

    async def ask(
        self, request: RenderRequest, deadline: float, memory: int, walls: Walls
    ) -> RenderResult:
        """One deck through this worker; what costs the worker is an error in the result."""
        if self.process is None or self.process.poll() is not None:
            if not await self._start(walls):
                said = f"the render worker did not start: {self._last_words()}"
                return failure("crash", said, kind="renderer")
        assert self.process
        used = ResourceUse(self.process.pid, deadline, memory)
        self.seen = None, None, 0
        answer = asyncio.ensure_future(self._reply(request["id"]))
        verdict: tuple[Kind, str, str] | None = None
        try:
            self.pipes[-1].write(json.dumps(request).encode() + b"\n")
            while not verdict and not (await asyncio.wait([answer], timeout=LOOK))[0]:
                verdict = used.verdict()
            try:
                reply = None if verdict else answer.result()
            except ValueError:  # a line without an end
                reply = None
                verdict = ("model", "memory", TOO_LARGE)
        finally:
            answer.cancel()
            if not answer.done() or verdict:
                self.kill()
        if reply and "result" in reply:
            result = bounded(cast(RenderResult, reply["result"]))
            if len(stream.dumps([result["errors"], result["xray"]])) > MOST:
                return failure("memory", TOO_LARGE, "model", *self.seen)
            return result
        in_page = reply and reply.get("page")
        if reply and not in_page:  # what it threw leaves it in order; a known good deck tells
            return failure("internal", reply["crash"][:1500], "renderer", *self.seen)
        await self.reap()
        if not verdict and in_page and used.peak > 256 << 20:
            verdict = ("model", "memory", "the page ran out of memory")
        if verdict:
            kind, cls, message = verdict
            return failure(cls, message, kind, *self.seen)
        text = reply["crash"] if reply else f"the render worker ended: {self._last_words()}"
        return failure("crash", text[:1500], "renderer", *self.seen)

    def kill(self) -> None:
        """Kill the worker, its browser and every process of theirs."""
        if self.process is None:
            return
        for pid in [*tree(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def reap(self) -> None:
        """Kill it and wait until it has ended."""
        if self.process is None:
            return
        self.kill()
        while self.process.poll() is None:
            await asyncio.sleep(0.01)
            self.kill()
        if self.listener:  # what it said last
            await asyncio.wait([self.listener], timeout=1)
            self.listener.cancel()
        for pipe in self.pipes:
            pipe.close()
        self.process = self.listener = None
        self.pipes = []


def tree(pid: int) -> list[int]:
    """The descendants of a process, nearest first."""
    found = [pid]
    for parent in found:  # grows
        try:
            tasks = Path(f"/proc/{parent}/task").glob("*/children")
            children = [task.read_text() for task in tasks]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += map(int, " ".join(children).split())
    return found[1:]


def usage(pid: int) -> tuple[float, int]:
    """(CPU seconds, bytes of private and shared anonymous memory) of a process and its descendants."""
    cpu, resident = 0, 0
    for member in [pid, *tree(pid)]:
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{member}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        cpu += sum(map(int, fields[11:15]))
        sizes = re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.M)
        resident += sum(map(int, sizes)) << 10
    return cpu / _TICK, resident
