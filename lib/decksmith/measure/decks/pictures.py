"""Pictures for decks: image queries become files, of the two dozen drawn ones in assets/pictures or from Pexels or Unsplash."""

import functools
import hashlib
import io
import json
import os
import re
import threading
import time
import tomllib
import unicodedata
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict
from urllib.parse import urljoin, urlsplit

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.decks.parser import Deck
from decksmith.measure.decks.records import Attribution, Fallback, ImageItem, Images

if TYPE_CHECKING:
    import requests

VERSION = "drawn-2"  # raise it when another picture is drawn or chosen
DRAWN = cli.ROOT / "assets" / "pictures"
SIZE = (1600, 900)  # px, of a photo at most
QUERY_LENGTH = 160  # characters of a query that count; the rest is cut
# Further queries share the last picture: a deck of ten thousand queries must not stall the batch.
PICTURES_PER_DECK = 24
BYTES, PIXELS = 24_000_000, 60_000_000
ATTEMPTS, LONGEST_WAIT, TIMEOUT, DEADLINE = 3, 20, (5, 20), 60  # seconds, but for the first
# Transient failures in a row; then the provider is left alone for the rest of the process.
GIVE_UP_AFTER = 3


class Facts(TypedDict):
    """What an item of `images` says of its picture."""

    provider: str
    attribution: Attribution | None
    fallback: Fallback | None


# --- the stage ------------------------------------------------------------------------------------


def illustrate(run: str | Path, record: Record, provider: "Provider") -> Images:
    """Replace the image queries of a record's deck.

    `provider` comes from `providers(name)`. Writes <id>/images/<hash of the picture>.jpg (.png of a photo) and
    <id>/illustrated.md, which keeps every line of deck.md in its place. A query that the provider cannot serve gets a
    drawn picture, with the reason under `fallback`.
    """
    source, ident = Path(run) / record["deck"]["path"], record["id"]
    try:
        deck = Deck.parse(source.read_bytes().decode("utf-8", "replace"))
    except OSError as error:
        raise cli.Missing(
            f"{ident}: {source}: {error.strerror}; is --run the folder that deck-parse wrote to?"
        ) from None
    folder = Path(run) / ident
    items: list[ImageItem] = []
    parts, at = [], 0
    found: dict[str, tuple[bytes, Facts]] = {}
    for query in deck.queries:
        words = normal(query.text)
        if words not in found and len(found) < PICTURES_PER_DECK:
            found[words] = _picture(provider, words)
        data, facts = found.get(words) or list(found.values())[-1]
        name = _file_name(data)
        if not (folder / name).exists():
            stream.write(folder / name, data)
        span = deck.text[query.start : query.stop]
        new = f"image: {name}" if query.kind == "key" else name
        parts += [deck.text[at : query.start], new, "\n" * span.count("\n")]
        at = query.stop
        items.append({"query": words, "path": f"{ident}/{name}", "line": query.line, **facts})
    for old in (folder / "images").glob("*"):
        if f"{ident}/images/{old.name}" not in [item["path"] for item in items]:
            old.unlink()
    if not items:
        (folder / "illustrated.md").unlink(missing_ok=True)
        return {"path": record["deck"]["path"], "items": []}
    stream.write(folder / "illustrated.md", "".join(parts) + deck.text[at:])
    return {"path": f"{ident}/illustrated.md", "items": items}


def inputs(record: Record, provider: str) -> list[str]:
    """What the `images` value of a record depends on, for the journal."""
    return [record["deck"]["sha256"], provider, VERSION]


def usable(run: str | Path, value: Images) -> bool:
    """Whether a journaled value may be used again: its files are there and no picture was a stand-in for the time
    being."""
    if "error" in value:
        return True
    if any(item["fallback"] and item["fallback"]["transient"] for item in value["items"]):
        return False
    paths = [value["path"], *(item["path"] for item in value["items"])]
    return all((Path(run) / path).exists() for path in paths)


def normal(query: str) -> str:
    """A query as it is searched, drawn and cached: printable, single blanks, at most QUERY_LENGTH characters."""
    whole = unicodedata.normalize("NFC", query[: 4 * QUERY_LENGTH])
    text = "".join(c if c.isprintable() else " " for c in whole)
    return " ".join(text.split())[:QUERY_LENGTH].strip() or "abstract"


def _picture(provider: "Provider", words: str) -> tuple[bytes, Facts]:
    """(the picture's file, what its item says of it) for one query."""
    fallback: Fallback | None = None
    if provider.name != "drawn":
        try:
            data, attribution = _cached(provider, words)
            return data, {"provider": provider.name, "attribution": attribution, "fallback": None}
        except Unavailable as error:
            fallback = {"reason": f"{provider.name}: {error}", "transient": error.transient}
    return drawn(words), {"provider": "drawn", "attribution": None, "fallback": fallback}


def _file_name(data: bytes) -> str:
    """What a picture is called in a deck: the drawn ones are JPEG files, the others PNG."""
    kind = "jpg" if data.startswith(b"\xff\xd8") else "png"
    return f"images/{hashlib.sha256(data).hexdigest()[:16]}.{kind}"


# --- the drawn pictures ---------------------------------------------------------------------------


def drawn(query: str) -> bytes:
    """The picture (JPEG) of assets/pictures for a query: one of the topic that most of its words belong to, of all
    topics where none does. A hash of the words decides which."""
    words = query.casefold()
    seen = re.findall(r"[^\W\d_]+", words)
    scores = {name: _score(seen, topic) for name, topic in _topics().items()}
    best = max(scores.values())
    files = [
        path for path in sorted(DRAWN.glob("*.jpg")) if scores[path.stem.rpartition("-")[0]] == best
    ]
    digest = hashlib.sha256(words.encode("utf-8", "replace")).digest()
    return files[int.from_bytes(digest[:8], "big") % len(files)].read_bytes()


@functools.cache
def _topics() -> dict[str, set[str]]:
    """The words of each topic of assets/pictures/pictures.toml."""
    listed = tomllib.loads((DRAWN / "pictures.toml").read_text(encoding="utf-8"))["topic"]
    return {topic["name"]: set(topic["words"].split()) for topic in listed}


def _score(seen: list[str], topic: set[str]) -> int:
    """How many of the words belong to a topic, also in the plural."""
    return sum(
        bool({word, word.removesuffix("s"), word.removesuffix("es")} & topic) for word in seen
    )


# --- the cache of photos, shared by all runs ------------------------------------------------------


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home) / "decksmith" / "pictures" if home else cli.ROOT / "data" / "pictures"


Params = dict[str, str | int]
Found = tuple[bytes, Attribution | None]  # a picture (PNG), and whom it is by


def _cached(provider: "Provider", words: str) -> Found:
    """What a provider finds, from the cache where it is there. A cache that cannot be written is done without.

    `<key>.json` is written last and names the sha256 of `<key>.png`: half an entry or a damaged one counts as none.
    """
    key = hashlib.sha256(f"{provider.name}\n{words}".encode()).hexdigest()[:40]
    picture, facts = _cache() / key[:2] / f"{key}.png", _cache() / key[:2] / f"{key}.json"
    try:
        known = json.loads(facts.read_bytes())
        data = picture.read_bytes()
        if hashlib.sha256(data).hexdigest() == known["sha256"]:
            return data, known["attribution"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    data, attribution = provider.find(words)
    try:
        stream.write(picture, data)
        digest = hashlib.sha256(data).hexdigest()
        known = {"source": provider.name, "query": words, "sha256": digest}
        stream.write(facts, json.dumps({**known, "attribution": attribution}))
    except OSError:
        pass
    return data, attribution


# --- providers ------------------------------------------------------------------------------------


class Unavailable(Exception):
    """A provider has no picture for this query. `transient`: asking again later may help, `after` so many seconds."""

    def __init__(self, message: str, transient: bool, after: float | None = None) -> None:
        super().__init__(message)
        self.transient, self.after = transient, after


class Provider(Protocol):
    """Where pictures come from."""

    name: str

    def find(self, words: str) -> Found:
        """The best picture; raises Unavailable."""


class _Drawn:
    name = "drawn"

    def find(self, words: str) -> Found:
        return drawn(words), None


def providers(name: str) -> Provider:
    """The provider called `drawn`, `pexels` or `unsplash`; raises cli.BadConfig when its key is not set."""
    kinds: dict[str, type[Provider]] = {"drawn": _Drawn, "pexels": _Pexels, "unsplash": _Unsplash}
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

    def find(self, words: str) -> Found:
        """The best landscape photo; raises Unavailable."""
        if self.failures >= GIVE_UP_AFTER:
            raise Unavailable(f"not asked after {GIVE_UP_AFTER} failures in a row", True)
        try:
            result = self.search(words, time.monotonic() + DEADLINE)
        except Unavailable as error:
            with self.lock:
                self.failures = self.failures + 1 if error.transient else 0
            raise
        self.failures = 0
        return result

    def headers(self) -> dict[str, str]:
        """What every request to the service carries: the key."""
        raise NotImplementedError

    def search(self, words: str, deadline: float) -> Found:
        """The best photo the service has; raises Unavailable."""
        raise NotImplementedError

    def json(self, url: str, deadline: float, **params: str | int) -> Any:
        """The JSON behind `url`."""
        try:
            return json.loads(self.get(url, deadline, params, self.headers(), 4_000_000))
        except ValueError:
            raise Unavailable("the answer is not JSON", True) from None

    def get(
        self,
        url: str,
        deadline: float,
        params: Params | None = None,
        headers: dict[str, str] | None = None,
        limit: int = BYTES,
    ) -> bytes:
        """The body behind `url`, after bounded retries on 429, 5xx, time-outs and dropped connections."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._get(url, deadline, params, headers, limit)
            except Unavailable as error:
                wait = 0.5 * 2 ** (attempt - 1) if error.after is None else error.after
                late = wait > LONGEST_WAIT or time.monotonic() + wait > deadline
                if not error.transient or attempt == ATTEMPTS or late:
                    raise
                time.sleep(wait)

    def _get(
        self,
        url: str,
        deadline: float,
        params: Params | None,
        headers: dict[str, str] | None,
        limit: int,
    ) -> bytes:
        import requests

        ask = functools.partial(requests.get, timeout=TIMEOUT, stream=True, allow_redirects=False)
        try:
            for _ in range(4):
                self._check(url)
                with ask(url, params=params, headers=headers) as reply:
                    if not reply.is_redirect:
                        return _body(reply, deadline, limit)
                    target = urljoin(reply.url, reply.headers["location"])
                    if urlsplit(target).netloc != urlsplit(url).netloc:
                        headers = None  # the key stays with the host it is for
                    url, params = target, None
        except requests.RequestException as error:
            raise Unavailable(type(error).__name__, True) from None
        raise Unavailable("too many redirects", False)

    def _check(self, url: str) -> None:
        """Only https, and plain http only between loopback addresses (tests)."""
        parts, base = urlsplit(url), urlsplit(self.base)
        loopback = {"127.0.0.1", "localhost", "::1"}
        here = parts.hostname in loopback and base.hostname in loopback
        if parts.scheme != "https" and not (parts.scheme == "http" and here):
            raise Unavailable(f"will not follow {parts.scheme}://{parts.hostname or ''}", False)


def _body(reply: "requests.Response", deadline: float, limit: int) -> bytes:
    """At most `limit` bytes of a reply that came before the deadline; raises Unavailable."""
    if reply.status_code == 429 or reply.status_code >= 500:
        after = reply.headers.get("retry-after", "")
        wait = float(after) if re.fullmatch(r"\d{1,6}(\.\d+)?", after) else None
        raise Unavailable(f"HTTP {reply.status_code}", True, wait)
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


class _Pexels(_Photos):
    """https://www.pexels.com/api/documentation/#photos-search"""

    name, key_variable = "pexels", "PEXELS_API_KEY"
    base_variable, base_url = "PEXELS_BASE_URL", "https://api.pexels.com"

    def headers(self) -> dict[str, str]:
        return {"Authorization": self.key}

    def search(self, words: str, deadline: float) -> Found:
        url = f"{self.base}/v1/search"
        answer = self.json(url, deadline, query=words, orientation="landscape", per_page=1)
        try:
            photo = answer["photos"][0]
            address = photo["src"].get("large2x") or photo["src"]["original"]
            attribution: Attribution = {
                "author": str(photo.get("photographer", "")),
                "author_url": str(photo.get("photographer_url", "")),
                "source": "Pexels",
                "url": str(photo.get("url", "")),
            }
        except (KeyError, IndexError, TypeError, AttributeError):
            raise Unavailable("no photo for this query", False) from None
        return clean(self.get(address, deadline)), attribution


class _Unsplash(_Photos):
    """https://unsplash.com/documentation#search-photos; the guidelines demand the download ping and the attribution."""

    name, key_variable = "unsplash", "UNSPLASH_ACCESS_KEY"
    base_variable, base_url = "UNSPLASH_BASE_URL", "https://api.unsplash.com"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Client-ID {self.key}", "Accept-Version": "v1"}

    def search(self, words: str, deadline: float) -> Found:
        asked: Params = {"query": words, "orientation": "landscape", "per_page": 1}
        url = f"{self.base}/search/photos"
        answer = self.json(url, deadline, content_filter="high", **asked)
        try:
            photo = answer["results"][0]
            address, ping = photo["urls"]["regular"], photo["links"]["download_location"]
            user, tail = photo["user"], "?utm_source=decksmith&utm_medium=referral"
            attribution: Attribution = {
                "author": str(user.get("name", "")),
                "author_url": str(user["links"]["html"]) + tail,
                "source": "Unsplash",
                "url": str(photo["links"]["html"]) + tail,
            }
        except (KeyError, IndexError, TypeError, AttributeError):
            raise Unavailable("no photo for this query", False) from None
        data = clean(self.get(address, deadline))
        if urlsplit(ping).netloc != urlsplit(self.base).netloc:  # the key is for the API only
            raise Unavailable("the download location is not at the API", False)
        self.get(ping, deadline, headers=self.headers(), limit=4_000_000)
        return data, attribution


def clean(data: bytes) -> bytes:
    """Downloaded bytes as a fresh PNG of at most SIZE, without metadata; raises Unavailable when they are not a sane
    picture."""
    from PIL import Image, ImageOps

    kinds = ("JPEG", "PNG", "WEBP")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=kinds) as image:
                if image.width * image.height > PIXELS or min(image.size) < 16:
                    raise Unavailable(f"a picture of {image.width} x {image.height}", False)
                image.verify()
            with Image.open(io.BytesIO(data), formats=kinds) as image:
                image.draft("RGB", SIZE)
                turned = ImageOps.exif_transpose(image).convert("RGB")
                turned.thumbnail(SIZE, Image.Resampling.LANCZOS)
                out = io.BytesIO()
                Image.frombytes("RGB", turned.size, turned.tobytes()).save(out, "PNG")
                return out.getvalue()
    except Unavailable:
        raise
    # Pillow raises OSError, SyntaxError, ValueError, struct.error, bomb errors, .. on hostile bytes.
    except Exception as error:
        raise Unavailable(f"the bytes are not a picture ({type(error).__name__})", False) from None
