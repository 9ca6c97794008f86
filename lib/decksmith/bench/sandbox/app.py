"""Run code for whoever has the token, over HTTP. Nothing of a request is trusted."""

import asyncio
import base64
import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aiohttp import web as http
from pydantic import Field, InstanceOf

from decksmith.bench.sandbox.cell import Limits
from decksmith.bench.sandbox.pool import CellPool
from decksmith.core import cli, validation, web

BODY = 16 << 20  # bytes of a request
WAITING = 64  # requests that wait while others run
# Any text of JSON, also with halves of surrogate pairs: in stdin and files they stand for bytes
# that are no UTF-8.
Text = InstanceOf[str]


class RunRequest(validation.Body):
    """The body of POST /run."""

    limits: Limits = Field(default=Limits(), description="an object")
    code: Text = Field(description="text")
    stdin: Text = Field(default="", description="text")
    files: dict[Text, Text] = Field(default={}, description="an object of texts, by their names")
    take: list[Text] = Field(default=[], description="a list of names")

    def within(self, ours: Limits) -> Limits:
        """What is asked for, and of `ours` what is not said. Raises cli.BadData for more than
        ours."""
        said, most = self.limits.model_dump(exclude_unset=True), ours.model_dump()
        for name, value in said.items():
            if most[name] is not None and value is not None and value > most[name]:
                raise cli.BadData(f"limits: {name} may be at most {most[name]:g} here")
        return Limits(**(most | said))


class SandboxHandlers:
    """The handlers of the routes. jobs: runs at once."""

    def __init__(self, pool: CellPool, jobs: int) -> None:
        self.pool, self.jobs = pool, jobs
        self.present = 0  # requests that run or wait
        self.threads = ThreadPoolExecutor(jobs, "sandbox")

    def routes(self) -> list[http.RouteDef]:
        return [
            http.get("/health", self.health),
            http.post("/run", self.run),
        ]

    async def health(self, request: http.Request) -> http.Response:
        return http.json_response({"status": "ok", "walls": self.pool.walls, "jobs": self.jobs})

    async def run(self, request: http.Request) -> http.Response:
        asked = validation.read(RunRequest, await request.read())
        how = asked.model_dump(exclude={"limits", "code"})
        limits = asked.within(self.pool.limits)
        work = functools.partial(self.pool.run, asked.code, **how, limits=limits)
        if self.present >= self.jobs + WAITING:
            raise http.HTTPServiceUnavailable(text="too many requests wait; ask again")
        self.present += 1
        try:
            result = await asyncio.get_running_loop().run_in_executor(self.threads, work)
        except ValueError as error:
            raise cli.BadData(str(error)) from None
        finally:
            self.present -= 1
        files = {name: base64.b64encode(data).decode() for name, data in result.files.items()}
        return http.json_response(dataclasses.asdict(result) | {"files": files})

    def close(self) -> None:
        """End the pool and its threads."""
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
