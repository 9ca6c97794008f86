"""Pictures for decks: image queries become files, drawn from the query's words or found at Pexels or Unsplash."""

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.decks import canvas, placeholders

QUERY_LENGTH = 160  # characters of a query that count; the rest is cut
PICTURES_PER_DECK = 24  # further queries share the last picture: a deck of ten thousand queries must not stall the batch
BYTES, PIXELS = 24_000_000, 60_000_000
ATTEMPTS, LONGEST_WAIT, TIMEOUT, DEADLINE = 3, 20, (5, 20), 60
GIVE_UP_AFTER = (
    3  # transient failures in a row, then the provider is left alone for the rest of the process
)


# --- the stage ------------------------------------------------------------------------------------


def illustrate(run: str | Path, record: Record, provider: "Provider") -> Record:
    """Replace the image queries of a record's deck; returns the `images` value of docs/records.md.

    `provider` comes from `providers(name)`. Writes <id>/images/<hash of the picture>.png and <id>/illustrated.md,
    which keeps every line of deck.md in its place. A query that the provider cannot serve gets the drawn picture, with
    the reason under `fallback`.
    """
    from decksmith.decks.parser import Deck

    source, ident = Path(run) / record["deck"]["path"], record["id"]
    try:
        deck = Deck.parse(source.read_bytes().decode("utf-8", "replace"))
    except OSError as error:
        raise cli.Missing(
            f"{ident}: {source}: {error.strerror}; is --run the folder that deck-parse wrote to?"
        ) from None
    folder = Path(run) / ident / "images"
    items, parts, at = [], [], 0
    found: dict[str, tuple[bytes, Record]] = {}
    for query in deck.queries:
        words = normal(query.text)
        if words not in found:
            found[words] = (
                _picture(provider, words)
                if len(found) < PICTURES_PER_DECK
                else list(found.values())[-1]
            )
        data, facts = found[words]
        name = f"images/{hashlib.sha256(data).hexdigest()[:16]}.png"
        if not (folder.parent / name).exists():
            stream.write(folder.parent / name, data)
        span = deck.text[query.start : query.stop]
        new = f"image: {name}" if query.kind == "key" else name
        parts += [deck.text[at : query.start], new, "\n" * span.count("\n")]
        at = query.stop
        items.append({"query": words, "path": f"{ident}/{name}", "line": query.line, **facts})
    if folder.is_dir():
        kept = {Path(item["path"]).name for item in items}
        for old in folder.iterdir():
            if old.name not in kept:
                old.unlink()
    if not items:
        (folder.parent / "illustrated.md").unlink(missing_ok=True)
        return {"path": record["deck"]["path"], "items": []}
    stream.write(folder.parent / "illustrated.md", "".join(parts) + deck.text[at:])
    return {"path": f"{ident}/illustrated.md", "items": items}


def usable(run: str | Path, value: Record) -> bool:
    """Whether a journaled value may be used again: its files are there and no picture was a stand-in for the time
    being."""
    if "error" in value:
        return True
    waiting = any(i["fallback"] and i["fallback"]["transient"] for i in value["items"])
    return not waiting and all(
        (Path(run) / p).exists() for p in [value["path"], *(i["path"] for i in value["items"])]
    )


def normal(query: str) -> str:
    """A query as it is searched, drawn and cached: printable, single blanks, at most QUERY_LENGTH characters."""
    import unicodedata

    text = "".join(
        c if c.isprintable() else " "
        for c in unicodedata.normalize("NFC", query[: 4 * QUERY_LENGTH])
    )
    return " ".join(text.split())[:QUERY_LENGTH].strip() or "abstract"


def _picture(provider: "Provider", words: str) -> tuple[bytes, Record]:
    """(png bytes, {"provider", "attribution", "fallback"}) for one query, through the cache."""
    fallback = None
    if provider.name != "drawn":
        try:
            data, attribution = _cached(provider.name, words, provider.find)
            return data, {"provider": provider.name, "attribution": attribution, "fallback": None}
        except Unavailable as error:
            fallback = {"reason": f"{provider.name}: {error}", "transient": error.transient}
    drawn = f"{placeholders.VERSION} pillow-{pillow_version()}"
    data, _ = _cached(drawn, words.casefold(), _Drawn().find)
    return data, {"provider": "drawn", "attribution": None, "fallback": fallback}


def pillow_version() -> str:
    """The version of Pillow, without importing what draws."""
    from PIL import __version__

    return __version__


# --- the cache, shared by all runs ----------------------------------------------------------------


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home) / "decksmith" / "pictures" if home else cli.ROOT / "data" / "pictures"


Found = tuple[bytes, Record | None]  # a picture (PNG), and whom it is by


def _cached(source: str, words: str, make: Callable[[str], Found]) -> Found:
    """(png, attribution) from the cache, else from `make(words)`, which is then kept. A cache that cannot be written
    is done without.

    `<key>.json` is written last and names the sha256 of `<key>.png`: half an entry or a damaged one counts as none.
    """
    import json

    key = hashlib.sha256(f"{source}\n{words}".encode()).hexdigest()[:40]
    picture, facts = _cache() / key[:2] / f"{key}.png", _cache() / key[:2] / f"{key}.json"
    try:
        known = json.loads(facts.read_bytes())
        data = picture.read_bytes()
        if hashlib.sha256(data).hexdigest() == known["sha256"]:
            return data, known["attribution"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    data, attribution = make(words)
    try:
        stream.write(picture, data)
        digest = hashlib.sha256(data).hexdigest()
        known = {"source": source, "query": words, "sha256": digest, "attribution": attribution}
        stream.write(facts, json.dumps(known))
    except OSError:
        pass
    return data, attribution


# --- providers ------------------------------------------------------------------------------------


class Unavailable(Exception):
    """A provider has no picture for this query. `transient`: asking again later may help."""

    def __init__(self, message: str, transient: bool) -> None:
        super().__init__(message)
        self.transient = transient


class Provider(Protocol):
    """Where pictures come from."""

    name: str

    def find(self, words: str) -> tuple[bytes, Record | None]:
        """(png bytes, attribution) of the best picture; raises Unavailable."""


class _Drawn:
    name = "drawn"

    def find(self, words: str) -> tuple[bytes, Record | None]:
        """The picture that is drawn from these words; nobody's."""
        return placeholders.draw(words), None


def providers(name: str) -> Provider:
    """The provider called `drawn`, `pexels` or `unsplash`; raises cli.BadConfig when its key is not set."""
    kinds: dict[str, type[Provider]] = {
        "drawn": _Drawn,
        "pexels": _Pexels,
        "unsplash": _Unsplash,
    }
    return kinds[name]()


class _Photos:
    """What photo services share: keys, bounded retries, giving up, safe downloads."""

    name: str
    key_variable: str  # of the environment
    base_variable: str  # of the environment: another address of the service
    base_url: str

    def __init__(self) -> None:
        self.key = os.environ.get(self.key_variable, "")
        if not self.key:
            raise cli.BadConfig(
                f"{self.key_variable} is not set; set it in .env, or use --provider drawn"
            )
        self.base = os.environ.get(self.base_variable, self.base_url).rstrip("/")
        self.failures, self.lock = 0, threading.Lock()

    def find(self, words: str) -> tuple[bytes, Record | None]:
        """(png bytes, attribution) of the best landscape photo; raises Unavailable."""
        if self.failures >= GIVE_UP_AFTER:
            raise Unavailable(f"not asked after {GIVE_UP_AFTER} failures in a row", True)
        deadline = time.monotonic() + DEADLINE
        try:
            result = self.search(words, deadline)
        except Unavailable as error:
            with self.lock:
                self.failures = self.failures + 1 if error.transient else 0
            raise
        self.failures = 0
        return result

    def headers(self) -> dict[str, str]:
        """What every request to the service carries: the key."""
        raise NotImplementedError

    def search(self, words: str, deadline: float) -> tuple[bytes, Record | None]:
        """(png bytes, attribution) of the best photo the service has; raises Unavailable."""
        raise NotImplementedError

    def json(self, url: str, deadline: float, **params: Any) -> Any:
        """The JSON behind `url`."""
        import json

        try:
            return json.loads(self.get(url, deadline, params, self.headers(), 4_000_000))
        except ValueError:
            raise Unavailable("the answer is not JSON", True) from None

    def get(
        self,
        url: str,
        deadline: float,
        params: Record | None = None,
        headers: dict[str, str] | None = None,
        limit: int = BYTES,
    ) -> bytes:
        """The body behind `url`, after bounded retries on 429, 5xx, time-outs and dropped connections."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._get(url, deadline, params, headers, limit)
            except _Again as again:
                wait = again.wait if again.wait is not None else 0.5 * 2 ** (attempt - 1)
                late = wait > LONGEST_WAIT or time.monotonic() + wait > deadline
                if attempt == ATTEMPTS or late:
                    raise Unavailable(str(again), True) from None
                time.sleep(wait)

    def _get(
        self,
        url: str,
        deadline: float,
        params: Record | None,
        headers: dict[str, str] | None,
        limit: int,
    ) -> bytes:
        import requests

        for _ in range(4):
            self._check(url)
            try:
                with requests.get(
                    url,
                    params=params,
                    headers=headers,
                    timeout=TIMEOUT,
                    stream=True,
                    allow_redirects=False,
                ) as reply:
                    if reply.is_redirect:
                        from urllib.parse import urljoin, urlsplit

                        target = urljoin(reply.url, reply.headers["location"])
                        if urlsplit(target).netloc != urlsplit(url).netloc:
                            headers = None  # the key stays with the host it is for
                        url, params = target, None
                        continue
                    if reply.status_code == 429 or reply.status_code >= 500:
                        after = reply.headers.get("retry-after", "")
                        raise _Again(
                            f"HTTP {reply.status_code}",
                            float(after) if re.fullmatch(r"\d{1,6}(\.\d+)?", after) else None,
                        )
                    if reply.status_code != 200:
                        raise Unavailable(f"HTTP {reply.status_code}", False)
                    body = bytearray()
                    for chunk in reply.iter_content(1 << 16):
                        body += chunk
                        if len(body) > limit:
                            raise Unavailable(f"more than {limit} bytes", False)
                        if time.monotonic() > deadline:
                            raise Unavailable(f"slower than {DEADLINE} s", True)
                    return bytes(body)
            except requests.RequestException as error:
                raise _Again(type(error).__name__, None) from None
        raise Unavailable("too many redirects", False)

    def _check(self, url: str) -> None:
        """Only https, and plain http only between loopback addresses (tests)."""
        from urllib.parse import urlsplit

        parts, base = urlsplit(url), urlsplit(self.base)
        loopback = {"127.0.0.1", "localhost", "::1"}
        here = parts.hostname in loopback and base.hostname in loopback
        if parts.scheme != "https" and not (parts.scheme == "http" and here):
            raise Unavailable(f"will not follow {parts.scheme}://{parts.hostname or ''}", False)


class _Again(Exception):
    def __init__(self, message: str, wait: float | None) -> None:
        super().__init__(message)
        self.wait = wait


class _Pexels(_Photos):
    """https://www.pexels.com/api/documentation/#photos-search"""

    name, key_variable = "pexels", "PEXELS_API_KEY"
    base_variable, base_url = "PEXELS_BASE_URL", "https://api.pexels.com"

    def headers(self) -> dict[str, str]:
        return {"Authorization": self.key}

    def search(self, words: str, deadline: float) -> tuple[bytes, Record | None]:
        answer = self.json(
            f"{self.base}/v1/search", deadline, query=words, orientation="landscape", per_page=1
        )
        try:
            photo = answer["photos"][0]
            url = photo["src"].get("large2x") or photo["src"]["original"]
            attribution = {
                "author": str(photo.get("photographer", "")),
                "author_url": str(photo.get("photographer_url", "")),
                "source": "Pexels",
                "url": str(photo.get("url", "")),
            }
        except (KeyError, IndexError, TypeError, AttributeError):
            raise Unavailable("no photo for this query", False) from None
        return clean(self.get(url, deadline)), attribution


class _Unsplash(_Photos):
    """https://unsplash.com/documentation#search-photos; the guidelines demand the download ping and the attribution."""

    name, key_variable = "unsplash", "UNSPLASH_ACCESS_KEY"
    base_variable, base_url = "UNSPLASH_BASE_URL", "https://api.unsplash.com"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Client-ID {self.key}", "Accept-Version": "v1"}

    def search(self, words: str, deadline: float) -> tuple[bytes, Record | None]:
        from urllib.parse import urlsplit

        answer = self.json(
            f"{self.base}/search/photos",
            deadline,
            query=words,
            orientation="landscape",
            per_page=1,
            content_filter="high",
        )
        try:
            photo = answer["results"][0]
            url, ping = photo["urls"]["regular"], photo["links"]["download_location"]
            user, tail = photo["user"], "?utm_source=decksmith&utm_medium=referral"
            attribution = {
                "author": str(user.get("name", "")),
                "author_url": str(user["links"]["html"]) + tail,
                "source": "Unsplash",
                "url": str(photo["links"]["html"]) + tail,
            }
        except (KeyError, IndexError, TypeError, AttributeError):
            raise Unavailable("no photo for this query", False) from None
        data = clean(self.get(url, deadline))
        if urlsplit(ping).netloc != urlsplit(self.base).netloc:  # the key is for the API only
            raise Unavailable("the download location is not at the API", False)
        self.get(ping, deadline, headers=self.headers(), limit=4_000_000)
        return data, attribution


def clean(data: bytes) -> bytes:
    """Downloaded bytes as a fresh PNG of at most 1600 x 900, without metadata; raises Unavailable when they are not a
    sane picture."""
    import io
    import warnings

    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as image:
                if image.width * image.height > PIXELS or min(image.size) < 16:
                    raise Unavailable(f"a picture of {image.width} x {image.height}", False)
                image.verify()
            with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as image:
                image.draft("RGB", canvas.SIZE)
                turned = ImageOps.exif_transpose(image).convert("RGB")
                turned.thumbnail(canvas.SIZE, Image.Resampling.LANCZOS)
                return canvas.png(Image.frombytes("RGB", turned.size, turned.tobytes()))
    except Unavailable:
        raise
    except Exception as error:  # Pillow raises OSError, SyntaxError, ValueError, struct.error, bomb errors, .. on hostile bytes
        raise Unavailable(f"the bytes are not a picture ({type(error).__name__})", False) from None
