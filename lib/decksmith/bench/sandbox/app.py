"""Run code for whoever has the token, over HTTP. Nothing of a request is trusted."""

import asyncio
import base64
import contextlib
import dataclasses
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aiohttp import web as http
from pydantic import Field, InstanceOf

from decksmith.bench.sandbox.cell import Limits, Result
from decksmith.bench.sandbox.pool import Pool
from decksmith.bench.sandbox.session import Dead, Session
from decksmith.core import cli, validation, web

BODY = 16 << 20  # bytes of a request
ROUTES = "GET /health, POST /run, POST /sessions, POST /sessions/ID/run, DELETE /sessions/ID"
# Any text of JSON, also with halves of surrogate pairs: in stdin and files they stand for bytes
# that are no UTF-8.
Text = InstanceOf[str]


class RunRequest(validation.Body):
    """The body of POST /run."""

    code: Text = Field(description="text")
    language: Text = Field(default="python", description="text")
    stdin: Text = Field(default="", description="text")
    files: dict[Text, Text] = Field(default={}, description="an object of texts, by their names")
    take: list[Text] = Field(default=[], description="a list of names")
    limits: Limits = Field(default=Limits(), description="an object")


class SessionRequest(validation.Body):
    """The body of POST /sessions."""

    limits: Limits = Field(default=Limits(), description="an object")


class CodeRequest(validation.Body):
    """The body of POST /sessions/ID/run."""

    code: Text = Field(description="text")


def _within(asked: Limits, ours: Limits) -> Limits:
    """What is asked for, and of `ours` what is not said. Raises cli.BadData for more than ours."""
    said, most = asked.model_dump(exclude_unset=True), ours.model_dump()
    for name, value in said.items():
        if most[name] is not None and value is not None and value > most[name]:
            raise cli.BadData(f"limits: {name} may be at most {most[name]:g} here")
    return Limits(**(most | said))


class Refusal(Exception):
    """A reply that is no result."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Server:
    """The requests of an HTTP server: `answer(method, path, body) -> (status, value)`, from as
    many threads as there are requests.

    jobs: runs at once; others wait, at most `waiting` of them. sessions: at most so many, ended
    after `idle` seconds without a call.
    """

    def __init__(
        self, pool: Pool, jobs: int, *, waiting: int = 64, sessions: int = 16, idle: float = 600.0
    ) -> None:
        self.pool, self.jobs, self.waiting = pool, jobs, waiting
        self.most, self.idle = sessions, idle
        self.turns = threading.Semaphore(jobs)
        self.room = threading.Semaphore(jobs + waiting)
        self.lock = threading.Lock()  # of the sessions
        self.sessions: dict[str, Session | None] = {}  # by name; None while one is made

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Raises Refusal, cli.BadData, ValueError, Dead, cli.Missing."""
        words = path.strip("/").split("/")
        match (method, *words):
            case ("GET", "health"):
                return 200, self._health()
            case ("POST", "run"):
                asked = validation.read(RunRequest, body)
                limits = _within(asked.limits, self.pool.limits)
                return 200, self._turn(lambda: self._run(asked, limits))
            case ("POST", "sessions"):
                wanted = validation.read(SessionRequest, body).limits
                return 201, {"id": self._open(_within(wanted, self.pool.limits))}
            case ("POST", "sessions", name, "run"):
                code, session = validation.read(CodeRequest, body).code, self._session(name)
                return 200, self._turn(lambda: session.run(code))
            case ("DELETE", "sessions", name):
                session = self._session(name)
                with self.lock:
                    self.sessions.pop(name, None)
                session.close()
                return 200, {"id": name}
        raise Refusal(404, f"{method} {path[:80]}: there are {ROUTES}")

    def close(self) -> None:
        """End the sessions and the pool."""
        with self.lock:
            for session in filter(None, self.sessions.values()):
                session.kill("the server ended")
        self.pool.close()

    def _health(self) -> dict[str, Any]:
        with self.lock:
            sessions = len(self.sessions)
        return {"status": "ok", "walls": self.pool.walls, "sessions": sessions, "jobs": self.jobs}

    def _run(self, asked: RunRequest, limits: Limits) -> Result:
        return self.pool.run(
            asked.code,
            language=asked.language,
            stdin=asked.stdin,
            files=asked.files,
            take=asked.take,
            limits=limits,
        )

    def _turn(self, work: Callable[[], Result]) -> dict[str, Any]:
        """The Result of some work as JSON has it, when it is its turn."""
        if not self.room.acquire(blocking=False):
            raise Refusal(503, "too many requests wait; ask again")
        try:
            with self.turns:
                result = work()
        finally:
            self.room.release()
        files = {name: base64.b64encode(data).decode() for name, data in result.files.items()}
        return dataclasses.asdict(result) | {"files": files}

    def _open(self, limits: Limits) -> str:
        """The name of a new session. Raises Refusal where there are too many."""
        name = os.urandom(16).hex()
        with self.lock:
            self._end_idle()
            if len(self.sessions) >= self.most:
                raise Refusal(
                    503,
                    f"there are {self.most} sessions already; end one, "
                    f"or wait until one was idle for {self.idle:g} seconds",
                )
            self.sessions[name] = None
        try:
            session = self.pool.session(limits)
        except BaseException:
            with self.lock:
                del self.sessions[name]
            raise
        with self.lock:
            self.sessions[name] = session
        return name

    def _end_idle(self) -> None:
        late = time.monotonic() - self.idle
        for name, session in list(self.sessions.items()):
            if session and session.used < late and not session.lock.locked():
                del self.sessions[name]
                session.close()

    def _session(self, name: str) -> Session:
        with self.lock:
            session = self.sessions.get(name)
        if not session:
            raise Refusal(404, "there is no such session")
        return session


def serve(
    port: int,
    token: str,
    *,
    jobs: int,
    address: Path,
    unsafe: bool = False,
    limits: Limits | None = None,
) -> None:
    """Serve on loopback until SIGTERM or Ctrl-C; while requests are answered, `address` has
    {"url", "token", "walls", "pid"} for its owner's eyes. Raises cli.Missing where nothing
    confines the code, and for a port in use."""
    server = Server(Pool(limits, warm=jobs, unsafe=unsafe), jobs)
    # Some more than may wait, so that one too many is told so.
    threads = ThreadPoolExecutor(server.waiting + jobs + 16, "answer")

    async def answer(request: http.Request) -> http.Response:
        asked = request.method, request.path, await request.read()
        loop = asyncio.get_running_loop()
        try:
            status, value = await loop.run_in_executor(threads, server.answer, *asked)
        except Refusal as refusal:
            status, value = refusal.status, {"error": str(refusal)}
        except (cli.BadData, ValueError) as error:
            status, value = 400, {"error": str(error)}
        except Dead as error:
            status, value = 410, {"error": str(error)}
        text = json.dumps(value) + "\n"
        return http.Response(status=status, text=text, content_type="application/json")

    @contextlib.asynccontextmanager
    async def make(url: str) -> AsyncIterator[http.Application]:
        try:
            walls = server.pool.open()
            app = web.application(token=token, body=BODY)
            app.router.add_route("*", "/{path:.*}", answer)
            with web.announced(address, {"url": url, "token": token, "walls": walls}):
                how = "WITHOUT ANY WALLS" if walls == "none" else f"in {walls}"
                cli.say(f"{url} runs code {how}; the token is in {address}")
                yield app
        finally:
            server.close()
            threads.shutdown(wait=False, cancel_futures=True)

    web.run(make, port=port)
