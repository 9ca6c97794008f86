"""Run code for whoever has the token, over HTTP. Nothing of a request is trusted."""

import asyncio
import base64
import contextlib
import dataclasses
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from aiohttp import web as http
from pydantic import Field, InstanceOf

from decksmith.bench.sandbox.cell import Limits, Result
from decksmith.bench.sandbox.pool import CellPool
from decksmith.bench.sandbox.session import Dead, Session
from decksmith.core import cli, validation, web

BODY = 16 << 20  # bytes of a request
WAITING = 64  # requests that wait while others run
SESSIONS = 16
IDLE = 600.0  # seconds without a call until a session may be ended for another
ROUTES = "GET /health, POST /run, POST /sessions, POST /sessions/ID/run, DELETE /sessions/ID"
# Any text of JSON, also with halves of surrogate pairs: in stdin and files they stand for bytes
# that are no UTF-8.
Text = InstanceOf[str]


class SessionRequest(validation.Body):
    """The body of POST /sessions."""

    limits: Limits = Field(default=Limits(), description="an object")

    def within(self, ours: Limits) -> Limits:
        """What is asked for, and of `ours` what is not said. Raises cli.BadData for more than
        ours."""
        said, most = self.limits.model_dump(exclude_unset=True), ours.model_dump()
        for name, value in said.items():
            if most[name] is not None and value is not None and value > most[name]:
                raise cli.BadData(f"limits: {name} may be at most {most[name]:g} here")
        return Limits(**(most | said))


class CodeRequest(validation.Body):
    """The body of POST /sessions/ID/run."""

    code: Text = Field(description="text")


class RunRequest(CodeRequest, SessionRequest):
    """The body of POST /run."""

    language: Text = Field(default="python", description="text")
    stdin: Text = Field(default="", description="text")
    files: dict[Text, Text] = Field(default={}, description="an object of texts, by their names")
    take: list[Text] = Field(default=[], description="a list of names")


Found = TypeVar("Found")


class SandboxHandlers:
    """The handlers of the routes. jobs: runs at once."""

    def __init__(self, pool: CellPool, jobs: int) -> None:
        self.pool, self.jobs = pool, jobs
        self.present, self.turns = 0, asyncio.Semaphore(jobs)
        self.sessions: dict[str, Session | None] = {}  # by name; None while one is made
        self.threads = ThreadPoolExecutor(jobs + SESSIONS, "sandbox")

    def routes(self) -> list[http.RouteDef]:
        return [
            http.get("/health", self.health),
            http.post("/run", self.run),
            http.post("/sessions", self.begin),
            http.post("/sessions/{id}/run", self.go_on),
            http.delete("/sessions/{id}", self.end),
            http.route("*", "/{path:.*}", self.unknown),
        ]

    async def health(self, request: http.Request) -> http.Response:
        walls, sessions = self.pool.walls, len(self.sessions)
        return http.json_response(
            {"status": "ok", "walls": walls, "sessions": sessions, "jobs": self.jobs}
        )

    async def unknown(self, request: http.Request) -> http.Response:
        text = f"{request.method} {request.path[:80]}: there are {ROUTES}"
        raise http.HTTPNotFound(text=text)

    async def run(self, request: http.Request) -> http.Response:
        asked = validation.read(RunRequest, await request.read())
        how = asked.model_dump(exclude={"limits", "code"})
        limits = asked.within(self.pool.limits)
        return await self._turn(lambda: self.pool.run(asked.code, **how, limits=limits))

    async def begin(self, request: http.Request) -> http.Response:
        asked = validation.read(SessionRequest, await request.read())
        limits, name = asked.within(self.pool.limits), os.urandom(16).hex()
        self._end_idle()
        if len(self.sessions) >= SESSIONS:
            words = f"there are {SESSIONS} sessions already; end one, or wait until one was idle"
            raise http.HTTPServiceUnavailable(text=f"{words} for {IDLE:g} seconds")
        self.sessions[name] = None
        try:
            self.sessions[name] = await self._aside(lambda: self.pool.session(limits))
        except BaseException:
            del self.sessions[name]
            raise
        return http.json_response({"id": name}, status=201)

    async def go_on(self, request: http.Request) -> http.Response:
        code = validation.read(CodeRequest, await request.read()).code
        session = self._session(request)
        return await self._turn(lambda: session.run(code))

    async def end(self, request: http.Request) -> http.Response:
        session, name = self._session(request), request.match_info["id"]
        del self.sessions[name]
        await self._aside(session.close)
        return http.json_response({"id": name})

    async def _aside(self, work: Callable[[], Found]) -> Found:
        """Some work in a thread of its own."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    async def _turn(self, work: Callable[[], Result]) -> http.Response:
        """The Result of some work as JSON has it, when it is its turn."""
        if self.present >= self.jobs + WAITING:
            raise http.HTTPServiceUnavailable(text="too many requests wait; ask again")
        self.present += 1
        try:
            async with self.turns:
                result = await self._aside(work)
        except ValueError as error:
            raise cli.BadData(str(error)) from None
        except Dead as error:
            raise http.HTTPGone(text=str(error)) from None
        finally:
            self.present -= 1
        files = {name: base64.b64encode(data).decode() for name, data in result.files.items()}
        return http.json_response(dataclasses.asdict(result) | {"files": files})

    def _end_idle(self) -> None:
        late = time.monotonic() - IDLE
        for name, session in list(self.sessions.items()):
            if session and session.used < late and not session.lock.locked():
                del self.sessions[name]
                session.close()

    def _session(self, request: http.Request) -> Session:
        session = self.sessions.get(request.match_info["id"])
        if not session:
            raise http.HTTPNotFound(text="there is no such session")
        return session

    def close(self) -> None:
        """End the sessions and the pool."""
        for session in filter(None, self.sessions.values()):
            session.kill("the server ended")
        self.pool.close()
        self.threads.shutdown(wait=False, cancel_futures=True)


def serve(port: int, token: str, *, jobs: int, address: Path, unsafe: bool = False) -> None:
    """Serve on loopback until SIGTERM or Ctrl-C; while requests are answered, `address` has
    {"url", "token", "walls", "pid"} for its owner's eyes. Raises cli.Missing where nothing
    confines the code, and for a port in use."""
    server = SandboxHandlers(CellPool(warm=jobs, unsafe=unsafe), jobs)

    @contextlib.asynccontextmanager
    async def make(url: str) -> AsyncIterator[http.Application]:
        try:
            walls = server.pool.open()
            app = web.application(token=token, body=BODY)
            app.router.add_routes(server.routes())
            with web.announced(address, {"url": url, "token": token, "walls": walls}):
                how = "WITHOUT ANY WALLS" if walls == "none" else f"in {walls}"
                cli.say(f"{url} runs code {how}; the token is in {address}")
                yield app
        finally:
            server.close()

    web.run(make, port=port)
