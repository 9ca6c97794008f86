"""The servers behind one model: what running ones say of themselves in files, which of them answers, and which is asked next."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from decksmith import __version__
from decksmith.core import cli, incoming
from decksmith.core.records import Record
from decksmith.models import replies
from decksmith.models.errors import RequestError
from decksmith.models.records import Served, ServedEndpoint
from decksmith.models.registry import Model
from decksmith.models.replies import StreamSplitter

if TYPE_CHECKING:
    import aiohttp

Answer = TypeVar("Answer")
PULSE = float(os.environ.get("DECKSMITH_PULSE") or 2)  # of several servers: seconds between looks
PULSE_LIMIT = 5 * PULSE  # seconds for an answer to a look
MISSES = 3  # unanswered looks until a server is given up
IDLE = 5  # seconds that an unused connection is kept; servers close theirs no earlier
NEW = "not asked yet"
# Bytes, unpacked: of a reply or one event of its stream, of a stream, of what a refusal is quoted
# from, of a list of models.
REPLY, STREAM, REFUSAL, LISTING = 16 << 20, 64 << 20, 1 << 16, 16 << 20


# Running servers of `make serve`


def folder() -> Path:
    """Where a running server says that it is there, a file each."""
    return Path(os.environ.get("DECKSMITH_SERVE") or cli.ROOT / "results/serve")


def running() -> list[ServedEndpoint]:
    """What the files of running servers say, by name of the file; a file that is no endpoint is passed over."""
    found: list[ServedEndpoint] = []
    for path in sorted(folder().glob("*.json")):
        try:
            said = json.loads(path.read_text())
            said |= {"url": said["url"], "models": list(said["models"]), "file": str(path)}
            said.setdefault("adapters", {})
        except (OSError, ValueError, KeyError, TypeError):  # gone since the glob, or not ours
            continue
        found.append(said)
    return found


def chosen(engine: str | None, name: str) -> Record:
    """What a body says to ask an adapter. SGLang takes it by a field of its own; by the model's name its base answers."""
    return {"model": name} | ({"lora_path": name} if (engine or "").startswith("sglang") else {})


def served_by(server: ServedEndpoint, slug: str) -> Served:
    """What decides how a server answers under this name; the base has no adapter."""
    adapter = server["adapters"].get(slug)
    found: Served = {
        "engine": server.get("engine"),
        "base": server.get("base"),
        "adapter": adapter.get("sha256") if adapter else None,
    }
    if adapter and adapter.get("rewards"):
        found["rewards"] = adapter["rewards"]
    return found


def served(slug: str) -> Served | None:
    """What all running servers answer with under this name, or None without one. Raises cli.BadData when they differ: their
    replies are no one model's."""
    found = [server for server in running() if slug in server["models"]]
    if not found:
        return None
    first, wanted = found[0], served_by(found[0], slug)
    for other in found[1:]:
        its = served_by(other, slug)
        if differing := [name for name, value in wanted.items() if its.get(name) != value]:
            raise cli.BadData(
                f"{first['file']} and {other['file']} serve different models (another {', '.join(differing)}); stop one, or "
                "remove the file of one that is gone, or name another folder with DECKSMITH_SERVE"
            )
    return wanted


def addresses(slug: str, wanted: Served | None) -> list[str]:
    """The addresses of the running servers that answer with this."""
    found = [server for server in running() if slug in server["models"]]
    return [server["url"] for server in found if served_by(server, slug) == wanted]


# Asking them


class ModelServer:
    """One address of a model: its requests in flight, and why it gets none just now."""

    def __init__(self, url: str, trouble: str | None = None, proxy: str | None = None) -> None:
        self.url, self.trouble, self.misses, self.proxy = url.rstrip("/"), trouble, 0, proxy
        self.calls: set[asyncio.Task[Any]] = set()

    async def during(self, request: Coroutine[Any, Any, Answer]) -> Answer:
        """What the coroutine `request` returns; it is cancelled when the server is given up."""
        call = asyncio.create_task(request)
        self.calls.add(call)
        try:
            return await call
        finally:
            self.calls.discard(call)
            del call  # else its failure holds this frame, that the call, and both what was received


def proxy_of(url: str) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY name for a URL, or None. aiohttp would ask that in a thread for each
    request, and take a key from ~/.netrc as well."""
    import urllib.request  # brings all of http and email

    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    named = urllib.request.getproxies()
    found = named.get(parts.scheme) or named.get("all")
    return f"http://{found}" if found and "://" not in found else found


class ServerPool:
    """The servers of one model, at the addresses that `find()` gives. With `start()` they are watched: one that stops answering loses
    its requests to the others and is back as soon as it answers, and addresses may come and go."""

    def __init__(self, model: Model, key: str, find: Callable[[], list[str]]) -> None:
        self.model, self.key, self.find = model, key, find
        self.more: Record = {}  # of every body
        self.session: aiohttp.ClientSession | None = None
        self.watcher: asyncio.Task[None] | None = None
        # A proxy of the site does not know its own compute nodes.
        self.trust_env = model.base_url != "serve:"
        self.servers = [self._server(url) for url in find()]

    def _server(self, url: str, trouble: str | None = None) -> ModelServer:
        return ModelServer(url, trouble, proxy_of(url) if self.trust_env else None)

    def _connected(self) -> "aiohttp.ClientSession":
        """The connections that requests share; who waits for an answer has a timeout of its own."""
        import aiohttp

        if self.session:
            return self.session
        secure: dict[str, Any] = {}
        if any(server.url.startswith("https:") for server in self.servers):
            import httpx2

            secure["ssl"] = httpx2.create_ssl_context(trust_env=self.trust_env)
        self.session = aiohttp.ClientSession(
            headers={
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "application/json",
                "Accept": "application/json",
                "Accept-Encoding": "identity",  # what is packed all the same is counted unpacked
                "User-Agent": f"decksmith/{__version__}",
            },
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE, **secure),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return self.session

    async def exchange(
        self, server: ModelServer, body: Record, splitter: StreamSplitter | None
    ) -> Any:
        """A server's JSON to one request; a streamed reply is put together as if it had come in one
        piece. Prompts and key go to the host that was named, and to no other. Raises RequestError,
        ConnectionError, ValueError."""
        import aiohttp

        if splitter:
            # Our servers (the embedded engine, vLLM) count while they write.
            is_ours = self.model.base_url in ("engine:", "serve:")
            counts = {"continuous_usage_stats": True} if is_ours else {}
            more = {"stream": True, "stream_options": {"include_usage": True, **counts}}
            body = body | {name: more[name] for name in more if name not in self.model.drop}
        body |= self.more
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        asking = self._connected().post(
            server.url + path(body), data=text.encode(), allow_redirects=False, proxy=server.proxy
        )
        try:
            async with asking as answer:
                if not 200 <= answer.status < 300:
                    sent = await incoming.gathered(answer.content.iter_any(), REFUSAL, cut=True)
                    said = sent.decode(errors="replace")
                    raise RequestError.of_status(answer.status, said, answer.headers)
                if splitter and "json" not in answer.headers.get("content-type", ""):
                    return await _streamed(answer.content, splitter, answer.url)
                sent = await incoming.gathered(answer.content.iter_any(), REPLY)
        except aiohttp.ClientError as error:
            number = getattr(getattr(error, "os_error", None), "errno", None) or 0
            words = os.strerror(number) if number > 0 else str(error) or repr(error)
            raise ConnectionError(words) from None
        data = _checked(incoming.parsed(sent), answer.headers)
        if splitter:  # what cannot stream
            splitter.whole(data)
        return data

    def choose(self) -> ModelServer:
        """The least busy server that answers; raises RequestError, with what is wrong with each, when
        there is none."""
        there = [server for server in self.servers if not server.trouble]
        if not there:
            raise RequestError("connection", self.troubles())
        return min(there, key=lambda server: len(server.calls))

    def any_answers(self) -> bool:
        """Whether any server answers."""
        return any(not server.trouble for server in self.servers)

    def troubles(self) -> str:
        """What is wrong with each server, as a sentence."""
        if not self.servers:
            return "no server runs"
        each = (f"{server.url}: {server.trouble}" for server in self.servers)
        return f"no server answers: {'; '.join(each)}"

    async def start(self) -> None:
        """Look at each server once, then go on watching. Raises cli.Missing when none answers."""
        await asyncio.gather(*(self.look(server, MISSES) for server in self.servers))
        if not self.any_answers():
            start_one = "; start one: make serve" if self.model.base_url == "serve:" else ""
            raise cli.Missing(self.troubles() + start_one)
        self.watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(PULSE)
            urls = [url.rstrip("/") for url in self.find()]
            known = {server.url for server in self.servers}
            self.servers += [self._server(url, NEW) for url in urls if url not in known]
            looks = []
            for server in self.servers:
                if server.url in urls and (server.trouble or server.calls):
                    looks.append(self.look(server))
                elif server.url not in urls and not server.trouble:
                    server.trouble = "it has signed off"  # what it is doing, it may finish
            await asyncio.gather(*looks)

    async def look(self, server: ModelServer, misses: int = 1) -> None:
        """Mark whether the server answers and has our model. A refused connection counts at once, silence after MISSES looks."""
        wrong, is_certain = await self._wrong_with(server)
        server.misses = server.misses + (MISSES if is_certain else misses) if wrong else 0
        if server.trouble and not wrong:
            if self.watcher:
                cli.say(f"{server.url} answers{'' if server.trouble == NEW else ' again'}")
            server.trouble = None
        elif wrong and not server.trouble and server.misses >= MISSES:
            server.trouble = wrong
            if self.watcher:
                others = sum(not other.trouble for other in self.servers)
                rest = f"{others} more take its requests" if others else "there is no other"
                cli.say(f"{server.url} is gone ({wrong}); {rest}")
            for call in list(server.calls):
                call.cancel()

    async def _wrong_with(self, server: ModelServer) -> tuple[str | None, bool]:
        """(what is wrong with a server or None, whether that is certain at once)."""
        import aiohttp

        try:
            async with asyncio.timeout(PULSE_LIMIT):
                listing = self._connected().get(
                    f"{server.url}/models", allow_redirects=False, proxy=server.proxy
                )
                async with listing as reply:
                    if reply.status >= 500:
                        return f"HTTP {reply.status}", True
                    sent = await incoming.gathered(reply.content.iter_any(), LISTING)
                    listed = incoming.parsed(sent) if reply.status == 200 else {}
            names = [entry["id"] for entry in listed.get("data") or []]
            if names and self.model.slug not in names:
                return f"it has {', '.join(names)}, and not {self.model.slug}", True
        except TimeoutError:
            return f"silent for {PULSE_LIMIT:.0f} s", False
        except (aiohttp.ClientError, OSError) as error:
            return str(error), True
        except (ValueError, TypeError, KeyError, AttributeError):
            pass  # it lists its models in some way of its own
        return None, False

    async def close(self) -> None:
        """Stop watching and close the connections."""
        if self.watcher:
            self.watcher.cancel()
        if self.session:
            await self.session.close()


def path(body: Record) -> str:
    """Where a body is posted, behind the base URL."""
    return "/completions" if "prompt" in body else "/chat/completions"


async def _streamed(content: "aiohttp.StreamReader", splitter: StreamSplitter, url: object) -> Any:
    """The events of a stream as one JSON, up to where the splitter has enough: its connection is closed
    then. Raises RequestError for a failure that comes as an event, ValueError for events of another form."""
    finish, usage = None, None
    named: Record = {}
    try:
        async for chunk in _events(content):
            _checked(chunk, {})
            usage = chunk.get("usage") or usage
            named |= {name: chunk[name] for name in replies.NAMED if chunk.get(name)}
            for choice in (chunk.get("choices") or [])[:1]:
                splitter.feed(choice.get("delta"))
                finish = choice.get("finish_reason") or finish
            if splitter.enough:
                break
    except (AttributeError, TypeError, KeyError) as error:
        raise ValueError(f"an event of another form, {error!r}") from None
    if finish is None and not splitter.enough:
        raise RequestError("connection", f"{url}: the stream ended before the reply did")
    splitter.end()
    message = {name: "".join(pieces) for name, pieces in splitter.came.items()}
    return {**named, "choices": [{"message": message, "finish_reason": finish}], "usage": usage}


async def _events(content: "aiohttp.StreamReader") -> AsyncIterator[Any]:
    """The values of a stream of server-sent events (HTML standard 9.2), up to OpenAI's [DONE]. Raises ValueError for one that is
    no JSON, incoming.TooLarge for one of more than REPLY bytes, and for more than STREAM in all."""
    rest, data, total = b"", b"", 0
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        total += len(chunk)
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b":")
            if name == b"data":
                data += value.removeprefix(b" ") + b"\n"
            elif not name and not value and data:
                if data.startswith(b"[DONE]"):
                    return
                yield incoming.parsed(data)
                data = b""
        if len(data) + len(rest) > REPLY or total > STREAM:
            raise incoming.TooLarge(f"it has more than {min(total, STREAM)} bytes, unpacked")


def _checked(data: Any, headers: Mapping[str, str]) -> Any:
    """A server's JSON. Raises RequestError for a failure that a gateway wraps in a 200."""
    error = data.get("error") if isinstance(data, dict) else None
    if isinstance(error, dict) and not data.get("choices"):
        code = error.get("code")
        status = code if isinstance(code, int) and 400 <= code < 600 else 502
        raise RequestError.of_status(status, json.dumps(data), headers)
    return data
