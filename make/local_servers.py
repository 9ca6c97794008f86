"""Model servers that run on this machine or that its environment names: Ollama, and llama.cpp's llama-server.

The standard library only: `make doctor` asks before any set-up.
"""

import ctypes
import json
import os
import signal
import time
from urllib.parse import urlsplit

LLAMA_SERVER = "http://127.0.0.1:8080"  # where llama-server listens unless told otherwise
SECONDS = 3.0  # for an answer
PR_SET_PDEATHSIG = 1  # prctl(2)
LONGEST = 16 << 20  # bytes of a list: routers have hundreds of models


def dies_with_us() -> None:
    """In a child that is a server: no way of ending us leaves an orphan."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def ollama_address() -> str:
    """Ollama's address: OLLAMA_HOST, in the forms that Ollama takes (`host`, `host:port`, a URL), else its default."""
    said = os.environ.get("OLLAMA_HOST", "").strip() or "127.0.0.1"
    url = urlsplit(said if "://" in said else f"http://{said}")
    host = url.hostname or "127.0.0.1"
    if host in ("0.0.0.0", "::"):  # what a server listens on; a client calls loopback
        host = "127.0.0.1"
    default = {"http": 80, "https": 443}.get(url.scheme, 11434) if "://" in said else 11434
    return f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{url.port or default}"


def listed(address: str, owner: str | None = None) -> list[str] | None:
    """The models that a server at `address` (with its path, else at /v1) lists, or None where nobody answers with such a list soon,
    or another one than `owner` says that it has them.

    No proxy of the site is asked about this machine's servers, which it does not know.
    """
    import http.client
    import urllib.request  # brings all of http and email, and most scripts ask nobody

    try:
        url = urlsplit(address.rstrip("/"))
        is_here = (url.hostname or "").startswith(("localhost", "127.", "::1"))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({} if is_here else None))
        place = url._replace(path=(url.path or "/v1") + "/models").geturl()
        with opener.open(place, timeout=SECONDS) as answer:
            text, ends = b"", time.monotonic() + 5 * SECONDS
            while (piece := answer.read1(65536)) and len(text) < LONGEST:
                text += piece
                if time.monotonic() > ends:
                    return None
        found = json.loads(text)["data"]
        if owner and not all(entry.get("owned_by") == owner for entry in found):
            return None
        return [entry["id"] for entry in found if isinstance(entry["id"], str)]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    except http.client.HTTPException:  # what answers does not speak HTTP
        return None
