"""A worker: one Node process with its browser in a cell, its clock and its memory.

It is given the deck's text and pictures and gives back pictures and measures; it reads and writes no file of the run. What a deck
does to its worker (never ends, eats the memory, crashes the page) costs that worker only: it is killed, and starts again when asked.
"""

import asyncio
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from decksmith.core.records import Record
from decksmith.render import cell, toolchain

_TICK = os.sysconf("SC_CLK_TCK")


def failure(
    cls: str,
    message: str,
    kind: str = "model",
    slide: int | None = None,
    line: int | None = None,
    expected: int = 0,
) -> Record:
    """The result of a deck of which there is no picture: one error says why."""
    error = {"kind": kind, "class": cls, "slide": slide, "line": line, "message": message}
    return {"pictures": [], "expected": expected, "errors": [error], "xray": []}


class Worker:
    """One Node process and its browser, started when first asked and again after it was killed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None
        self.listener: asyncio.Task[None] | None = None
        self.pipes: list[Any] = []  # transports; the last is the one that is written to

    async def _start(self, walls: tuple[str, bool]) -> bool:
        await self.reap()
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(mode=0o700)
        root, readable = toolchain.RENDERER.resolve(), cell.readable()
        command = [
            toolchain.node().resolve(),
            "--no-warnings",
            "--max-old-space-size=1536",
            "--expose-gc",
            "--permission",
            "--allow-addons",
            "--allow-child-process",
            *(f"--allow-fs-read={place}" for place in [*readable, self.home]),
            f"--allow-fs-write={self.home}",
            "--import",
            root / "wall.mjs",
            root / "worker.mjs",
            self.home,
        ]
        # Not asyncio's own subprocesses: their wait() lasts until every pipe is closed, and for ever when they are
        # cancelled before the pipes are connected (base_subprocess.py of 3.11).
        self.process = subprocess.Popen(
            cell.enclosed(*walls, self.home, command, readable),
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
            ready = await asyncio.wait_for(self._reply(None, None), 180)
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

    async def _reply(self, request: Record | None, seen: Record | None) -> Record | None:
        """The next reply that is not news about the slide in work (kept in `seen`); None when the worker has ended."""
        while (line := await self.replies.readline()).endswith(
            b"\n"
        ):  # else it was killed in the middle of it
            reply: Record = json.loads(line)
            if seen is not None and "slide" in reply:
                seen.update(slide=reply["slide"], line=reply["line"], of=reply["of"])
            elif request is None or reply.get("id") == request["id"]:
                return reply
        return None

    async def ask(
        self, request: Record, deadline: float, memory: int, walls: tuple[str, bool]
    ) -> Record:
        """One deck through this worker: {pictures, expected, errors, xray}; what costs the worker is an error in it."""
        if self.process is None or self.process.poll() is not None:
            if not await self._start(walls):
                return failure(
                    "crash",
                    f"the render worker did not start: {self._last_words()}",
                    kind="renderer",
                )
        assert self.process
        pid, peak = self.process.pid, 0
        seen: Record = {"slide": None, "line": None, "of": 0}
        began, (cpu, resident) = time.monotonic(), usage(pid)
        answer = asyncio.ensure_future(self._reply(request, seen))
        verdict = None
        try:
            self.pipes[-1].write(json.dumps(request).encode() + b"\n")
            while not (await asyncio.wait([answer], timeout=0.1))[0]:
                used, now = usage(pid)
                peak = max(peak, now - resident)
                if now - resident > memory << 20:
                    verdict = ("model", "memory", f"the deck took more than {memory} MB")
                elif used - cpu > deadline:
                    verdict = (
                        "model",
                        "deadline",
                        f"the deck took more than {deadline:g} CPU seconds",
                    )
                elif time.monotonic() - began > 10 * deadline:
                    verdict = (
                        "renderer",
                        "deadline",
                        f"no reply in {10 * deadline:g} seconds, {used - cpu:.1f} of them in use",
                    )
                if verdict:
                    break
            try:
                reply = None if verdict else answer.result()
            except ValueError:  # a line without an end
                reply, verdict = None, ("model", "memory", "what is known of the deck is too large")
        finally:
            answer.cancel()
            if not answer.done() or verdict:
                self.kill()
        if reply and "result" in reply:
            result: Record = reply["result"]
            return result
        if reply and not reply.get(
            "page"
        ):  # what it threw leaves it in order; a known good deck tells
            return failure(
                "internal",
                reply["crash"][:1500],
                "renderer",
                seen["slide"],
                seen["line"],
                seen["of"],
            )
        await self.reap()
        if not verdict and reply and reply.get("page") and peak > 256 << 20:
            verdict = ("model", "memory", "the page ran out of memory")
        if not verdict:
            text = reply["crash"] if reply else f"the render worker ended: {self._last_words()}"
            verdict = ("renderer", "crash", text[:1500])
        kind, cls, message = verdict
        return failure(
            cls, message, kind=kind, slide=seen["slide"], line=seen["line"], expected=seen["of"]
        )

    def kill(self) -> None:
        """Kill the worker, its browser and every process of theirs."""
        if self.process is None:
            return
        for pid in [*tree(self.process.pid), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

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
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
            children = [
                int(child)
                for task in tasks
                for child in Path(f"/proc/{parent}/task/{task}/children").read_text().split()
            ]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += children
        waiting += children
    return found


def usage(pid: int) -> tuple[float, int]:
    """(CPU seconds, bytes of private and shared anonymous memory) of a process and its descendants."""
    cpu, resident = 0, 0
    for member in [pid, *tree(pid)]:
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{member}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        cpu += sum(int(value) for value in fields[11:15])
        resident += sum(
            int(value) << 10
            for value in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.M)
        )
    return cpu / _TICK, resident
