"""The servers of a model under training: whether one may be asked at all, what it calls the model,
which weights it has."""

import asyncio
import contextlib
import fnmatch
import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from decksmith.core import cli, incoming, web

HOST = re.compile(r"[0-9A-Za-z._:%-]{1,253}\Z")
PORTS = {"http": 80, "https": 443}
ANSWER = 1 << 20  # bytes
WORKERS = 256  # servers behind one router that are asked
UNKNOWN = "unknown"  # what sglang's router calls a model that it knows nothing of
# What asking a router may end in; the last two come of answers that are not what they should be.
FAILURES = (aiohttp.ClientError, OSError, ValueError, AttributeError, TypeError)


async def trusted(url: str, allow: Iterable[str]) -> str:
    """The URL of a router as it will be asked: scheme, host and port, nothing else of what came. A
    host must be this machine, or stand in `allow`; one that was looked up is asked by its address,
    so that its name cannot mean another one later. Raises cli.BadData."""
    scheme, host, port = _split(url)
    networks = []
    for pattern in allow:
        try:
            networks.append(ipaddress.ip_network(pattern))
        except ValueError:
            if fnmatch.fnmatchcase(host, pattern.lower()):
                return f"{scheme}://{_bracketed(host)}:{port}"
    try:
        looked = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise cli.BadData(f"router_url: nobody knows the host {host[:200]!r}") from None
    addresses = {str(entry[4][0]) for entry in looked}
    for address in addresses:
        allowed = any(ipaddress.ip_address(address) in network for network in networks)
        if not allowed and not web.is_own(address):
            raise cli.BadData(
                f"router_url: {host[:200]} is not this machine; "
                f"eval-serve --allow {host[:200]} lets it be asked"
            )
    first = min(addresses, key=lambda address: ":" in address)  # IPv4, where there is one
    return f"{scheme}://{_bracketed(first)}:{port}"


def _split(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of http://HOST:PORT, with or without /v1. Raises cli.BadData for
    anything else."""
    refusal = cli.BadData(f"router_url: {url[:200]!r} is not http://HOST:PORT")
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise refusal from None
    more = parts.username is not None or parts.query or parts.fragment
    if more or parts.path.rstrip("/") not in ("", "/v1") or not HOST.match(parts.hostname or ""):
        raise refusal
    return parts.scheme, parts.hostname or "", port


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class RouterClient:
    """Asks routers, and the servers behind them that are this machine's or in `allow`. Used as an
    asynchronous context manager."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self.allow = tuple(allow)

    async def __aenter__(self) -> "RouterClient":
        # No proxy stands between nodes of a cluster.
        self.session = aiohttp.ClientSession(trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def get(self, url: str, path: str, seconds: float = 5.0) -> dict[str, Any] | None:
        """A JSON object that a router gives, or None where it has no such path. Raises one of
        FAILURES. It is not followed elsewhere: only its own host was looked at."""
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with self.session.get(url + path, allow_redirects=False, timeout=timeout) as reply:
            if reply.status >= 500:
                raise ValueError(f"HTTP {reply.status}")
            if reply.status != 200:
                return None
            found = incoming.parsed(await incoming.gathered(reply.content.iter_any(), ANSWER))
        return found if isinstance(found, dict) else None

    async def models(self, url: str) -> list[str]:
        """The names of the models that a router lists, or the servers behind it where it knows
        none: sglang's calls the model "unknown" unless its servers are sglang's. Raises one of
        FAILURES."""
        names = await self._listed(url)
        if names != [UNKNOWN]:
            return names
        servers: list[str] = []
        with contextlib.suppress(cli.BadData):
            servers = await self._behind(url)
        found = await asyncio.gather(*(self._heard(each) for each in servers if each != url))
        return list(dict.fromkeys(name for each in found for name in each))

    async def _listed(self, url: str) -> list[str]:
        listed = (await self.get(url, "/v1/models") or {}).get("data") or []
        names = [entry.get("id") for entry in listed]
        texts = [name for name in names if isinstance(name, str)]
        return [name for name in texts if name.isprintable() and 0 < len(name) <= 500]

    async def _heard(self, url: str) -> list[str]:
        """What a server lists; nothing where it does not answer."""
        with contextlib.suppress(*FAILURES):
            return await self._listed(url)
        return []

    async def _behind(self, url: str, seconds: float = 5.0) -> list[str]:
        """The servers behind a router that may be asked; the router itself where it names none.
        Raises cli.BadData where one may not be asked, or one of FAILURES."""
        listed = (await self.get(url, "/workers", seconds) or {}).get("workers") or []
        found = [await trusted(str(entry.get("url")), self.allow) for entry in listed[:WORKERS]]
        return found or [url]

    async def weights(self, urls: list[str], seconds: float = 2.0) -> str | None:
        """The weight_version of all servers behind some routers (sglang), one text for all of
        them; None where a router does not say.

        sglang's router hands /get_model_info to one of its servers, always the same one: weights
        that changed in another would not be noticed. So each server is asked. One that is dead
        answers nobody, and does not count."""
        found = await asyncio.gather(*(self._weights(url, seconds) for url in urls))
        if not all(found):
            return None
        return ", ".join(sorted(set().union(*found)))

    async def _weights(self, url: str, seconds: float) -> set[str]:
        """What the servers behind a router say; empty where none does, or one that answers."""
        servers = [url]
        with contextlib.suppress(cli.BadData, *FAILURES):
            servers = await self._behind(url, seconds)
        said = await asyncio.gather(*(self._version(each, seconds) for each in servers))
        alive = {version for version in said if version is not None}
        return set() if "" in alive else alive

    async def _version(self, url: str, seconds: float) -> str | None:
        """A server's weight_version, empty where it has none, or None where it does not answer."""
        try:
            for path in ("/model_info", "/get_model_info"):
                version = (await self.get(url, path, seconds) or {}).get("weight_version")
                if version is not None:
                    return str(version)[:200]
        except FAILURES:
            return None
        return ""
