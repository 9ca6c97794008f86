"""The servers behind one model: which of them answers, and which is asked next."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from decksmith.core import cli
from decksmith.models.registry import Model
from decksmith.models.trouble import Trouble

if TYPE_CHECKING:
    import aiohttp
    from openai import AsyncOpenAI

Answer = TypeVar("Answer")
PULSE = float(os.environ.get("DECKSMITH_PULSE") or 2)  # of several servers: seconds between looks
PULSE_LIMIT = 5 * PULSE  # seconds for an answer to a look
MISSES = 3  # unanswered looks until a server is given up
NEW = "not asked yet"


class Server:
    """One address of a model: its requests in flight, and why it gets none just now."""

    def __init__(self, url: str, sdk: "AsyncOpenAI", trouble: str | None = None) -> None:
        self.url, self.sdk, self.trouble, self.misses = url, sdk, trouble, 0
        self.calls: set[asyncio.Task[Any]] = set()

    async def during(self, request: Coroutine[Any, Any, Answer]) -> Answer:
        """What the coroutine `request` returns; it is cancelled when the server is given up."""
        call = asyncio.create_task(request)
        self.calls.add(call)
        try:
            return await call
        finally:
            self.calls.discard(call)


class Pool:
    """The servers of one model, at the addresses that `find()` gives. With `start()` they are watched: one that stops answering loses
    its requests to the others and is back as soon as it answers, and addresses may come and go."""

    def __init__(self, model: Model, key: str, jobs: int, find: Callable[[], list[str]]) -> None:
        self.model, self.key, self.jobs, self.find = model, key, jobs, find
        self.session: aiohttp.ClientSession | None = None
        self.watcher: asyncio.Task[None] | None = None
        self.servers = [self._server(url) for url in find()]

    def _server(self, url: str, trouble: str | None = None) -> Server:
        import httpx2
        from openai import AsyncOpenAI, DefaultAioHttpClient

        limits = httpx2.Limits(max_connections=self.jobs, max_keepalive_connections=self.jobs)
        timeout = httpx2.Timeout(self.model.timeout)
        # A proxy of the site does not know its own compute nodes.
        client = DefaultAioHttpClient(
            limits=limits,
            timeout=timeout,
            trust_env=self.model.base_url != "serve:",
            follow_redirects=False,
        )  # prompts and key go to the host that was named, and to no other
        return Server(
            url,
            AsyncOpenAI(
                base_url=url, api_key=self.key, max_retries=0, timeout=timeout, http_client=client
            ),
            trouble,
        )

    def choose(self) -> Server:
        """The least busy server that answers; raises Trouble, with what is wrong with each, when there is none."""
        if not (there := [server for server in self.servers if not server.trouble]):
            raise Trouble("connection", self.troubles())
        return min(there, key=lambda server: len(server.calls))

    def free(self) -> bool:
        """Whether any server answers."""
        return any(not server.trouble for server in self.servers)

    def troubles(self) -> str:
        """What is wrong with each server, as a sentence."""
        return "no server answers: " + "; ".join(
            f"{server.url}: {server.trouble}" for server in self.servers
        )

    async def start(self) -> None:
        """Look at each server once, then go on watching. Raises cli.Missing when none answers."""
        import aiohttp

        self.session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self.key}"},
            trust_env=self.model.base_url != "serve:",
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=PULSE_LIMIT),
        )
        await asyncio.gather(*(self.look(server, MISSES) for server in self.servers))
        if not self.free():
            if self.model.base_url == "serve:":
                raise cli.Missing(
                    (self.troubles() if self.servers else "no server runs")
                    + "; start one: make serve"
                )
            raise cli.Missing(self.troubles())
        self.watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(PULSE)
            urls = self.find()
            known = {server.url for server in self.servers}
            self.servers += [self._server(url, NEW) for url in urls if url not in known]
            for server in self.servers:
                if server.url not in urls and not server.trouble:
                    server.trouble = "it has signed off"  # what it is doing, it may finish
            await asyncio.gather(
                *(
                    self.look(server)
                    for server in self.servers
                    if server.url in urls and (server.trouble or server.calls)
                )
            )

    async def look(self, server: Server, misses: int = 1) -> None:
        """Mark whether the server answers and has our model. A refused connection counts at once, silence after MISSES looks."""
        import aiohttp

        assert self.session, "start() comes first"
        wrong = None
        try:
            async with self.session.get(
                f"{server.url.rstrip('/')}/models", allow_redirects=False
            ) as reply:
                listed = await reply.json(content_type=None) if reply.status == 200 else {}
            names = [entry["id"] for entry in listed.get("data") or []]
            if reply.status >= 500:
                wrong, misses = f"HTTP {reply.status}", MISSES
            elif names and self.model.slug not in names:
                wrong, misses = f"it has {', '.join(names)}, and not {self.model.slug}", MISSES
        except TimeoutError:
            wrong = f"silent for {PULSE_LIMIT:.0f} s"
        except (aiohttp.ClientError, OSError) as error:
            wrong, misses = str(error), MISSES
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
        ):  # it lists its models in some way of its own
            pass
        server.misses = server.misses + misses if wrong else 0
        if server.trouble and not wrong:
            if self.watcher:
                cli.say(f"{server.url} answers{'' if server.trouble == NEW else ' again'}")
            server.trouble = None
        elif wrong and not server.trouble and server.misses >= MISSES:
            server.trouble = wrong
            if self.watcher:
                others = sum(not other.trouble for other in self.servers)
                cli.say(
                    f"{server.url} is gone ({wrong}); {f'{others} more take its requests' if others else 'there is no other'}"
                )
            for call in list(server.calls):
                call.cancel()

    async def close(self) -> None:
        if self.watcher:
            self.watcher.cancel()
        if self.session:
            await self.session.close()
        for server in self.servers:
            await server.sdk.close()
