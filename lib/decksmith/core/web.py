"""What the web servers share: where they listen and say so, what a page may do, whose requests are believed, how they end.

The server is aiohttp's. It listens on loopback unless told otherwise, and what it sends carries the strictest policy that its pages bear.
"""

import asyncio
import base64
import binascii
import contextlib
import hmac
import ipaddress
import json
import os
import resource
import secrets
import signal
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from decksmith.core import cli, incoming, slurm

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
PAGE = {
    "default-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
# What a page may load of its own server, for `policy`.
OWN = {
    **dict.fromkeys(("script_src", "style_src", "connect_src"), "'self'"),
    "img_src": "'self' data:",
}
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
# Seconds in which a connection must have asked something, a body come, a reply be taken.
IDLE = float(os.environ.get("DECKSMITH_IDLE") or 60)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BUSY = web.AppKey("busy", dict)  # connections whose request is being answered, and how many


def policy(**sources: str) -> str:
    """A Content-Security-Policy (W3C CSP 3) that forbids everything but what is named: `policy(script_src="'self'")`."""
    named = {name.replace("_", "-"): value for name, value in sources.items()}
    return "; ".join(f"{name} {value}" for name, value in (PAGE | named).items())


def public(url: str | None) -> str | None:
    """The origin that `--public-url` names, as browsers write it. Raises cli.BadConfig."""
    if not url:
        return None
    parts = urlsplit(url)
    is_origin = parts.scheme in ("http", "https") and parts.hostname
    if not is_origin or parts.path.strip("/") or parts.query:
        raise cli.BadConfig(
            f"--public-url {url}: write the address that people open, https://name or "
            "https://name:port, without a path"
        )
    return f"{parts.scheme}://{parts.netloc.lower()}"


def remote(request: web.Request) -> str:
    """Who asks: the address of the other side; where a reverse proxy of this machine stands between, the last that it names
    (X-Forwarded-For), which the asker cannot choose."""
    named = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
    if named and request.app[PROXIED] and request.remote in LOOPBACK:
        return named[:64]
    return request.remote or ""


PROXIED = web.AppKey("proxied", bool)


def application(
    *,
    csp: str | None = None,
    hosts: Collection[str] | None = None,
    public: str | None = None,
    token: str | None = None,
    clients: Collection[str] | None = None,
    body: int = 1 << 20,
) -> web.Application:
    """An aiohttp application whose handlers are spared what is not meant for them.

    csp: the policy of its pages (`policy`); by default pages may do nothing.
    hosts: the names by which it may be called (Host header): a page elsewhere cannot reach it under a name of its own (DNS
    rebinding); None: any, for a server that asks for a token.
    public: the origin under which a reverse proxy shows this server (`public`): it may be called by that name too, and pages of that
    origin are its own, whatever Host the proxy passes on.
    token: if given, each request but those for /health must bring `Authorization: Bearer TOKEN`, or the token as the password of
    http://name:TOKEN@host, which is all that some clients can be told.
    clients: the networks and addresses that may ask, beside this machine (`Clients`); None: any.
    body: bytes a request may have.
    A request that changes something from a page of another origin is refused (Fetch standard: Origin, Sec-Fetch-Site). Errors are JSON,
    `{"error": sentence}`; an exception of cli becomes 400 (BadData) or 503 with its sentence."""
    allowed = Clients(clients) if clients else None
    names = {*(hosts or ()), *([urlsplit(public).hostname] if public else [])}

    def refuse(request: web.Request) -> None:
        host = urlsplit(f"//{request.headers.get('Host', '')}").hostname
        if hosts is not None and host not in names:
            said = f"this server is not called {host}; there are: {', '.join(sorted(hosts))}"
            raise web.HTTPMisdirectedRequest(text=said)
        if allowed and not allowed.may_ask(request.remote or ""):
            raise web.HTTPForbidden(text=f"{request.remote} may not ask here; --allow lets it")
        if token is not None and request.path != "/health":
            given = _given(request.headers.get("Authorization", ""))
            if not hmac.compare_digest(given, token.encode()):
                said = "the token is missing or wrong: Authorization: Bearer TOKEN"
                raise web.HTTPUnauthorized(text=said)
        if request.method not in ("GET", "HEAD") and not _from_own_page(request, public):
            raise web.HTTPForbidden(text="a page of another origin may not ask this")

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        busy, connection = request.config_dict[BUSY], request.protocol
        busy[connection] = busy.get(connection, 0) + 1
        try:
            refuse(request)
            await _read_body(request, body)
            response = await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            response = _said(error)
        except cli.Stop as error:
            response = problem(400 if isinstance(error, cli.BadData) else 503, str(error))
        except Exception as error:
            if not (sentence := cli.full(error)):
                raise
            cli.say(sentence)
            response = problem(507, "no room is left on the server's disk; ask again later")
        finally:
            busy[connection] -= 1
            if not busy[connection]:
                del busy[connection]
        if not response.prepared:
            for name, value in ({"Content-Security-Policy": csp or policy()} | HEADERS).items():
                response.headers.setdefault(name, value)
        return response

    app = web.Application(middlewares=[guard], client_max_size=body)
    app[BUSY] = {}
    app[PROXIED] = public is not None
    return app


async def _read_body(request: web.Request, most: int) -> None:
    """Wait for the body: what comes in drips ends here, and not in the handler. Nothing is unpacked, whatever it was packed with:
    none of our clients packs, and a bound on bytes is then a bound on memory."""
    if not request.can_read_body:
        return
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        said = "a body is taken as it is: send it without a Content-Encoding"
        raise web.HTTPUnsupportedMediaType(text=said, headers={"Accept-Encoding": "identity"})
    if (length := request.content_length or 0) > most:
        raise web.HTTPRequestEntityTooLarge(most, length)
    try:
        await asyncio.wait_for(request.read(), IDLE)
    except TimeoutError:
        text = f"the body did not come within {IDLE:g} s"
        raise web.HTTPRequestTimeout(text=text) from None


def _from_own_page(request: web.Request, public: str | None) -> bool:
    """Whether a page of this server asks, or no page at all."""
    if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("Origin")
    return origin in (None, public) or urlsplit(origin).netloc == request.headers.get("Host")


def _given(header: str) -> bytes:
    """The token in an Authorization header: a bearer's, or a password (RFC 7617)."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.encode("utf-8", "replace")
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


def _said(error: web.HTTPException) -> web.Response:
    """An exception of aiohttp as JSON, with the sentence that somebody wrote for it, if any."""
    written = error.text and not error.text.startswith(f"{error.status}:")
    response = problem(error.status, str(error.text if written else error.reason))
    for name in ("Accept-Encoding", "Allow", "Retry-After"):
        if name in error.headers:
            response.headers[name] = error.headers[name]
    return response


def problem(status: int, message: str) -> web.Response:
    """A response `{"error": message}`."""
    return web.json_response({"error": message}, status=status)


class Clients:
    """Who may ask a server: this machine, and what stands in `allow`, networks and addresses. Raises cli.BadConfig."""

    def __init__(self, allow: Collection[str]) -> None:
        self.networks = []
        for each in allow:
            try:
                self.networks.append(ipaddress.ip_network(each))
            except ValueError:
                raise cli.BadConfig(
                    f"--allow {each}: no network and no address; write 10.0.0.0/8 or 10.1.2.3"
                ) from None

    def may_ask(self, address: str) -> bool:
        """Whether somebody at this address may."""
        try:
            known = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(known in network for network in self.networks) or is_own(address)


class Rate:
    """At most `most` events of one key in `seconds` (a bucket that refills evenly); `check` raises HTTPTooManyRequests beyond that."""

    KEYS = 100_000  # that are remembered

    def __init__(self, most: float, seconds: float) -> None:
        self.most, self.refill = most, most / seconds
        self.buckets: dict[object, tuple[float, float]] = {}  # what is left, and when it was

    def check(self, key: object) -> None:
        now = time.monotonic()
        left, at = self.buckets.pop(key, (self.most, now))
        left = min(self.most, left + (now - at) * self.refill)
        if left < 1:
            self.buckets[key] = left, now
            wait = (1 - left) / self.refill
            raise web.HTTPTooManyRequests(
                text=f"too many requests; again in {wait:.0f} s",
                headers={"Retry-After": str(int(wait) + 1)},
            )
        self.buckets[key] = left - 1, now
        while len(self.buckets) > self.KEYS:  # the one longest unseen
            del self.buckets[next(iter(self.buckets))]


@contextlib.contextmanager
def announced(path: Path, facts: Mapping[str, object]) -> Iterator[None]:
    """While this lasts, `path` holds `facts` as JSON for its owner's eyes alone (0600); it is whole whenever it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps({**facts, "pid": os.getpid()}) + "\n"
    _write_private(path, data)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if path.read_text() == data:
                path.unlink()


def _write_private(path: Path, text: str) -> None:
    """Write a file that nobody else may read, and that is never there in half."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    os.replace(fresh, path)


def database(path: Path, schema: str, server: str, synchronous: str) -> sqlite3.Connection:
    """A server's own database: one process has it and its folder until it is closed. Raises cli.TryAgain for one that another
    process has, cli.BadData for a file that is no such database, cli.Missing for one that others could have made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(incoming.own(path))
    opened = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        # The lock is kept, and no memory shared, which network file systems cannot.
        opened.execute("PRAGMA locking_mode = EXCLUSIVE")
        opened.execute("PRAGMA journal_mode = WAL")
        opened.execute(f"PRAGMA synchronous = {synchronous}")
        opened.executescript(f"BEGIN EXCLUSIVE; {schema}; COMMIT;")
    except sqlite3.DatabaseError as error:
        opened.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            words = f"{path.parent}: another {server} has this folder; give another with --root"
            raise cli.TryAgain(words) from None
        raise cli.BadData(f"{path}: {error}; remove it to begin with an empty one") from None
    return opened


def secret(root: Path, variable: str) -> str:
    """A server's token: that of the environment variable, else the one of ROOT/token, which is made once, so that clients survive
    a restart; to be called by whoever has the root's lock. Raises cli.BadConfig for a file that cannot be read, cli.Missing for one
    that others could have made."""
    if given := os.environ.pop(variable, ""):
        return given
    path = Path(root) / "token"
    try:
        kept = contextlib.suppress(FileNotFoundError)
        with kept, open(incoming.own(path, os.O_RDONLY, closed=incoming.SECRET)) as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                os.fchmod(file.fileno(), 0o600)
                cli.say(
                    f"{path}: others could read the token, now they cannot; to have a new one, remove the file and start again"
                )
            if token := file.read().strip():
                return token
        token = secrets.token_urlsafe(32)
        _write_private(path, token)
        return token
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", error)
        raise cli.BadConfig(f"{path}: no token can be kept there: {why}") from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def last_port(root: Path, host: str) -> int:
    """The port that a server of this root had last time (ROOT/port), if it is free; else 0."""
    with contextlib.suppress(OSError, ValueError, OverflowError):
        port = int((root / "port").read_text())
        socket.create_server((host, port), family=_family(host)).close()
        return port
    return 0


def is_own(address: str) -> bool:
    """Whether an address is this machine's own: what is sent there is sent from there."""
    with contextlib.suppress(OSError), socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return bool(probe.getsockname()[0] == address)
    return False


@contextlib.asynccontextmanager
async def serving(app: web.Application, listening: socket.socket) -> AsyncIterator[None]:
    """Serve an `application` on a listening socket meanwhile. A connection that asks nothing, or does not take its reply, is cut off
    after IDLE seconds; it costs a descriptor and no thread."""
    # Where 1024 is usual, so many idle connections would stop the server.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, 1 << 16) if hard >= 0 else 1 << 16
    if 0 <= soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    # Of bytes that nobody takes, in ms; connections inherit it.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * IDLE))
    runner = web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        handler_cancellation=True,
        shutdown_timeout=0.5,
        keepalive_timeout=IDLE,
    )
    await runner.setup()
    sweeper = asyncio.create_task(_sweep(runner.server, app[BUSY]))
    try:
        await web.SockSite(runner, listening, backlog=512).start()
        yield
    finally:
        sweeper.cancel()
        await runner.cleanup()


async def _sweep(server: web.Server | None, busy: dict[Any, int]) -> None:
    """Cut off each connection of an aiohttp server in which no request was complete for IDLE seconds."""
    since: dict[Any, float] = {}  # connections that are not busy: when that was first seen
    while True:
        await asyncio.sleep(IDLE / 4)
        now = time.monotonic()
        since = {
            connection: since.get(connection, now)
            for connection in (server.connections if server else ())
            if connection not in busy
        }
        for connection, at in since.items():
            if now - at > IDLE and connection.transport is not None:
                connection.transport.abort()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises cli.Missing for a port in use."""
    try:
        return socket.create_server((host, port), family=_family(host), backlog=512)
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]
        raise cli.Missing(f"{host} port {port}: {why}; give another with --port") from None


def run(
    make: Callable[[str], AbstractAsyncContextManager[web.Application]],
    host: str = "127.0.0.1",
    port: int = 0,
) -> None:
    """Serve until SIGTERM or Ctrl-C. `make(url)` is an asynchronous context manager that yields the application; it is entered once the
    port is known, and left after the last request ended. Open event streams are cut at the end. Raises cli.Missing for a port in use."""

    async def serve() -> None:
        listening = listen(host, port)
        name = slurm.this_node() if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        async with make(f"http://{name}:{listening.getsockname()[1]}") as app:
            async with serving(app, listening):
                await ended.wait()

    asyncio.run(serve())
