"""Model servers that run on this machine or that its environment names: Ollama, and llama.cpp's llama-server.

The standard library only: `make doctor` asks before any set-up.
"""

import json
import os
from urllib.parse import urlsplit

LLAMA_SERVER = "http://127.0.0.1:8080"  # where llama-server listens unless told otherwise
SECONDS = 3.0  # for an answer


def ollama_address() -> str:
    """Ollama's address: OLLAMA_HOST, in the forms that Ollama takes (`host`, `host:port`, a URL), else its default."""
    said = os.environ.get("OLLAMA_HOST", "").strip() or "127.0.0.1"
    url = urlsplit(said if "://" in said else f"http://{said}")
    host = url.hostname or "127.0.0.1"
    if host in ("0.0.0.0", "::"):  # what a server listens on; a client calls loopback
        host = "127.0.0.1"
    default = {"http": 80, "https": 443}[url.scheme] if "://" in said else 11434
    return f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{url.port or default}"


def listed(address: str, owner: str | None = None) -> list[str] | None:
    """The models of `<address>/v1/models`, or None where nobody answers with such a list, or another one than `owner` says that
    it has them.

    No proxy of the site is asked: it does not know this machine's servers.
    """
    import urllib.request  # brings all of http and email, and most scripts ask nobody

    url = f"{address.rstrip('/').removesuffix('/v1')}/v1/models"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=SECONDS) as answer:
            found = json.load(answer)["data"]
        if owner and not all(entry.get("owned_by") == owner for entry in found):
            return None
        return [entry["id"] for entry in found if isinstance(entry["id"], str)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
