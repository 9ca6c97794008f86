"""The servers behind one model: which of them answers, and which is asked next."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from decksmith import __version__
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
IDLE = 5  # seconds that an unused connection is kept; servers close theirs no earlier
NEW = "not asked yet"


class Server:
    """One address of a model: its requests in flight, and why it gets none just now."""

    def __init__(self, url: str, trouble: str | None = None, proxy: str | None = None) -> None:
        self.url, self.trouble, self.misses = url, trouble, 0
        self.proxy = proxy
        self.sdk: AsyncOpenAI | None = None  # Pool.sdk makes it
        self.calls: set[asyncio.Task[Any]] = set()

    async def during(self, request: Coroutine[Any, Any, Answer]) -> Answer:
        """What the coroutine `request` returns; it is cancelled when the server is given up."""
        call = asyncio.create_task(request)
        self.calls.add(call)
        try:
            return await call
        finally:
            self.calls.discard(call)


def proxy_of(url: str) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY name for a URL, or None. aiohttp
    would ask that in a thread for each request, and take a key from ~/.netrc as well."""
    import urllib.request  # brings all of http and email

    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    named = urllib.request.getproxies()
    found = named.get(parts.scheme) or named.get("all")
    return f"http://{found}" if found and "://" not in found else found


class Pool:
    """The servers of one model, at the addresses that `find()` gives. With `start()` they are watched: one that stops answering loses
    its requests to the others and is back as soon as it answers, and addresses may come and go."""

    def __init__(self, model: Model, key: str, jobs: int, find: Callable[[], list[str]]) -> None:
        self.model, self.key, self.jobs, self.find = model, key, jobs, find
        self.session: aiohttp.ClientSession | None = None
        self.wire: aiohttp.ClientSession | None = None
        self.watcher: asyncio.Task[None] | None = None
        # A proxy of the site does not know its own compute nodes.
        self.trust_env = model.base_url != "serve:"
        self.servers = [self._server(url) for url in find()]

    def _server(self, url: str, trouble: str | None = None) -> Server:
        return Server(url, trouble, proxy_of(url) if self.trust_env else None)

    async def post(
        self, server: Server, path: str, body: bytes
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Post a request to a server's path: the status, body and headers of the answer. Prompts and key go to the
        host that was named, and to no other. Raises ConnectionError."""
        import aiohttp

        if not self.wire:
            self.wire = self._wire()
        url = server.url.rstrip("/") + path
        try:
            asking = self.wire.post(url, data=body, allow_redirects=False, proxy=server.proxy)
            async with asking as reply:
                return reply.status, await reply.read(), reply.headers
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error) or repr(error)) from None

    def _wire(self) -> "aiohttp.ClientSession":
        """The connections that requests share; who waits for an answer has a timeout of its own."""
        import aiohttp

        secure: dict[str, Any] = {}
        if any(server.url.startswith("https:") for server in self.servers):
            import httpx2

            # The certificates that the openai package trusts.
            secure["ssl"] = httpx2.create_ssl_context(trust_env=self.trust_env)
        return aiohttp.ClientSession(
            headers={
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "application/json",
                "Accept": "application/json",
                "User-Agent": f"decksmith/{__version__}",
            },
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE, **secure),
            timeout=aiohttp.ClientTimeout(total=None),
        )

    def sdk(self, server: Server) -> "AsyncOpenAI":
        """The openai package's client of a server: for streams. Its import takes longer than a
        hundred requests, so whoever does not stream goes without."""
        import httpx2
        from openai import AsyncOpenAI, DefaultAioHttpClient

        if not server.sdk:
            limits = httpx2.Limits(max_connections=self.jobs, max_keepalive_connections=self.jobs)
            timeout = httpx2.Timeout(self.model.timeout)
            client = DefaultAioHttpClient(
                limits=limits, timeout=timeout, trust_env=self.trust_env, follow_redirects=False
            )
            server.sdk = AsyncOpenAI(
                base_url=server.url,
                api_key=self.key,
                max_retries=0,
                timeout=timeout,
                http_client=client,
            )
        return server.sdk

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
            trust_env=self.trust_env,
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
        for session in (self.session, self.wire):
            if session:
                await session.close()
        for server in self.servers:
            if server.sdk:
                await server.sdk.close()
