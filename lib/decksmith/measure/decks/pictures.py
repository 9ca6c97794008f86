"""Pictures for decks: image queries become files, drawn ones of assets/pictures or photos of Pexels."""

import functools
import hashlib
import io
import json
import os
import re
import threading
import time
import unicodedata
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from decksmith.core import cli, config_files, incoming, stream
from decksmith.core.records import Record
from decksmith.measure.decks.clean import markdown
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
GIVE_UP_AFTER = 3  # transient failures in a row; then the process leaves the service alone


def illustrate(run: str | Path, record: Record, provider: "Pexels | None") -> Images:
    """Replace the image queries of a record's deck.

    Writes <id>/images/<hash>.jpg (.png of a photo) and <id>/illustrated.md, which keeps every line in
    its place. What the provider cannot serve gets a drawn picture, the reason under `fallback`."""
    ident, deck = record["id"], Deck.parse(markdown(run, record))
    folder = Path(run) / ident
    items: list[ImageItem] = []
    parts, at = [], 0
    found: dict[str, tuple[bytes, str, Attribution | None, Fallback | None]] = {}
    for query in deck.queries:
        words = normal(query.text)
        if words not in found and len(found) < PICTURES_PER_DECK:
            found[words] = _picture(provider, words)
        data, source, attribution, fallback = found.get(words) or list(found.values())[-1]
        kind = "jpg" if data.startswith(b"\xff\xd8") else "png"
        digest = hashlib.sha256(data).hexdigest()
        name = f"images/{digest[:16]}.{kind}"
        if _sha256(folder / name) != digest:
            stream.write(folder / name, data)
        span = deck.text[query.start : query.stop]
        new = f"image: {name}" if query.kind == "key" else name
        parts += [deck.text[at : query.start], new, "\n" * span.count("\n")]
        at = query.stop
        item: ImageItem = {
            "query": words,
            "path": f"{ident}/{name}",
            "line": query.line,
            "provider": source,
            "attribution": attribution,
            "fallback": fallback,
        }
        items.append(item)
    made = {Path(item["path"]).name for item in items}
    for old in [*(folder / "images").glob("*")]:
        if re.fullmatch(r"[0-9a-f]{16}\.(jpg|png)", old.name) and old.name not in made:
            old.unlink()  # one of ours; others are the deck's own
    if not items:
        (folder / "illustrated.md").unlink(missing_ok=True)
        return {"path": record["deck"]["path"], "items": []}
    text = folder / "illustrated.md"
    stream.write(text, "".join(parts) + deck.text[at:])
    return {"path": f"{ident}/{text.name}", "sha256": _sha256(text), "items": items}


def inputs(record: Record, provider: str) -> list[str]:
    """What the `images` value of a record depends on, for the journal."""
    return [record["deck"]["sha256"], provider, VERSION]


def usable(run: str | Path, value: Images) -> bool:
    """Whether a journaled value may be used again: its files are as they were, no picture only stood in."""
    if "error" in value:
        return True
    passing = any(item["fallback"] and item["fallback"]["transient"] for item in value["items"])
    sha256 = _sha256(Path(run) / value["path"])
    if passing or not sha256 or value.get("sha256", sha256) != sha256:
        return False
    paths = [Path(run) / item["path"] for item in value["items"]]  # called by their hashes
    return all(_sha256(path)[:16] == path.stem for path in paths)


def _sha256(path: Path) -> str:
    """Of a file; '' where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def is_whole(path: Path) -> bool:
    """Whether a file is there; of a PNG, whether its chunks are those of their checksums (PNG 3rd ed., 5.3)."""
    if path.suffix != ".png" or not path.is_file():
        return path.is_file()
    data, at = path.read_bytes(), 8
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4])
        if zlib.crc32(data[at + 4 : end - 4]).to_bytes(4) != data[end - 4 : end]:
            return False
        at = end
    return data.startswith(b"\x89PNG\r\n\x1a\n") and data[-8:-4] == b"IEND"


def normal(query: str) -> str:
    """A query as it is searched, drawn and cached: printable, single blanks, at most QUERY_LENGTH characters."""
    whole = unicodedata.normalize("NFC", query[: 4 * QUERY_LENGTH])
    text = "".join(c if c.isprintable() else " " for c in whole)
    return " ".join(text.split())[:QUERY_LENGTH].strip() or "abstract"


def _picture(
    provider: "Pexels | None", words: str
) -> tuple[bytes, str, Attribution | None, Fallback | None]:
    """(the picture's file, provider, attribution, fallback) for one query."""
    fallback: Fallback | None = None
    if provider:
        try:
            data, attribution = _cached(provider, words)
            return data, provider.name, attribution, None
        except Unavailable as error:
            fallback = {"reason": f"{provider.name}: {error}", "transient": error.transient}
    return drawn(words), "drawn", None, fallback


def drawn(query: str) -> bytes:
    """A picture (JPEG) of the topic that most words belong to; a hash of the words decides which."""
    words = query.casefold()
    seen = re.findall(r"[^\W\d_]+", words)
    forms = [{word, word.removesuffix("s"), word.removesuffix("es")} for word in seen]  # the plural
    scores = {name: sum(bool(form & topic) for form in forms) for name, topic in _topics().items()}
    best = max(scores.values())
    files = [
        path for path in sorted(DRAWN.glob("*.jpg")) if scores[path.stem.rpartition("-")[0]] == best
    ]
    digest = hashlib.sha256(words.encode("utf-8", "replace")).digest()
    return files[int.from_bytes(digest[:8], "big") % len(files)].read_bytes()


@functools.cache
def _topics() -> dict[str, set[str]]:
    """The words of each topic of assets/pictures/pictures.toml."""
    listed = config_files.asset("pictures/pictures.toml")["topic"]
    return {topic["name"]: set(topic["words"].split()) for topic in listed}


Params = dict[str, str | int]
Found = tuple[bytes, Attribution | None]  # a picture (PNG), and whom it is by


def cache_folder(name: str) -> Path:
    """Where pictures or renders are kept for all runs: below XDG_CACHE_HOME, else in data."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) / "decksmith" if home else cli.ROOT / "data") / name


def _cached(provider: "Pexels", words: str) -> Found:
    """What a provider finds, from the cache where it is there. `<key>.json` is written last and names the
    sha256 of `<key>.png`: half an entry or a damaged one counts as none."""
    key = hashlib.sha256(f"{provider.name}\n{words}".encode()).hexdigest()[:40]
    folder = cache_folder("pictures") / key[:2]
    picture, facts = folder / f"{key}.png", folder / f"{key}.json"
    try:
        known = json.loads(facts.read_bytes())
        data = picture.read_bytes()
        if hashlib.sha256(data).hexdigest() == known["sha256"]:
            return data, known["attribution"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    data, attribution = provider.find(words)
    digest = hashlib.sha256(data).hexdigest()
    known = {"source": provider.name, "query": words, "sha256": digest, "attribution": attribution}
    try:
        stream.write(picture, data)
        stream.write(facts, json.dumps(known))
    except OSError:
        pass
    return data, attribution


class Unavailable(Exception):
    """A provider has no picture for this query. `transient`: asking again later may help, `after` so many seconds."""

    def __init__(self, message: str, transient: bool, after: float | None = None) -> None:
        super().__init__(message)
        self.transient, self.after = transient, after


def providers(name: str) -> "Pexels | None":
    """The provider of photos, or None of drawn pictures alone; raises cli.BadConfig when its key is not set."""
    return Pexels() if name == "pexels" else None


class Pexels:
    """https://www.pexels.com/api/documentation/#photos-search, with bounded retries and safe downloads."""

    name = "pexels"

    def __init__(self) -> None:
        self.key = os.environ.get("PEXELS_API_KEY", "")
        if not self.key:
            mend = "set it in .env, or use --provider drawn"
            raise cli.BadConfig(f"PEXELS_API_KEY is not set; {mend}")
        self.base = os.environ.get("PEXELS_BASE_URL", "https://api.pexels.com").rstrip("/")
        self.failures, self.lock = 0, threading.Lock()

    def find(self, words: str) -> Found:
        """The best landscape photo; raises Unavailable."""
        if self.failures >= GIVE_UP_AFTER:
            raise Unavailable(f"not asked after {GIVE_UP_AFTER} failures in a row", True)
        try:
            result = self._search(words, time.monotonic() + DEADLINE)
        except Unavailable as error:
            with self.lock:
                self.failures = self.failures + 1 if error.transient else 0
            raise
        self.failures = 0
        return result

    def _search(self, words: str, deadline: float) -> Found:
        asked: Params = {"query": words, "orientation": "landscape", "per_page": 1}
        url = f"{self.base}/v1/search"
        try:
            answer = incoming.parsed(self._get(url, deadline, asked, {"Authorization": self.key}))
            photo = answer["photos"][0]
            address = photo["src"].get("large2x") or photo["src"]["original"]
            attribution: Attribution = {
                "author": str(photo.get("photographer", "")),
                "author_url": str(photo.get("photographer_url", "")),
                "source": "Pexels",
                "url": str(photo.get("url", "")),
            }
        except ValueError:
            raise Unavailable("the answer is not JSON", True) from None
        except (KeyError, IndexError, TypeError, AttributeError):
            raise Unavailable("no photo for this query", False) from None
        return clean(self._get(address, deadline, {}, {})), attribution

    def _get(self, url: str, deadline: float, params: Params, headers: dict[str, str]) -> bytes:
        """The body behind `url`, after bounded retries on 429, 5xx, time-outs and dropped connections."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._once(url, deadline, params, headers)
            except Unavailable as error:
                wait = 0.5 * 2 ** (attempt - 1) if error.after is None else error.after
                late = wait > LONGEST_WAIT or time.monotonic() + wait > deadline
                if not error.transient or attempt == ATTEMPTS or late:
                    raise
                time.sleep(wait)
        raise AssertionError  # the last attempt returns or raises

    def _once(self, url: str, deadline: float, params: Params, headers: dict[str, str]) -> bytes:
        import requests

        ask = functools.partial(requests.get, timeout=TIMEOUT, stream=True, allow_redirects=False)
        try:
            for _ in range(4):
                # Only https, and plain http only between loopback addresses (tests).
                parts, loopback = urlsplit(url), {"127.0.0.1", "localhost", "::1"}
                here = {parts.hostname, urlsplit(self.base).hostname} <= loopback
                if parts.scheme != "https" and not (parts.scheme == "http" and here):
                    said = f"will not follow {parts.scheme}://{parts.hostname or ''}"
                    raise Unavailable(said, False)
                with ask(url, params=params, headers=headers) as reply:
                    if not reply.is_redirect:
                        return _body(reply, deadline)
                    target = urljoin(reply.url, reply.headers["location"])
                    if urlsplit(target).netloc != parts.netloc:
                        headers = {}  # the key stays with the host it is for
                    url, params = target, {}
        except requests.RequestException as error:
            raise Unavailable(type(error).__name__, True) from None
        raise Unavailable("too many redirects", False)


def _body(reply: "requests.Response", deadline: float) -> bytes:
    """At most BYTES of a reply that came before the deadline; raises Unavailable."""
    if reply.status_code == 429 or reply.status_code >= 500:
        after = reply.headers.get("retry-after", "")
        wait = float(after) if re.fullmatch(r"\d{1,6}(\.\d+)?", after) else None
        raise Unavailable(f"HTTP {reply.status_code}", True, wait)
    if reply.status_code != 200:
        raise Unavailable(f"HTTP {reply.status_code}", False)
    body = bytearray()
    for chunk in reply.iter_content(1 << 16):
        body += chunk
        if len(body) > BYTES:
            raise Unavailable(f"more than {BYTES} bytes", False)
        if time.monotonic() > deadline:
            raise Unavailable(f"slower than {DEADLINE} s", True)
    return bytes(body)


def clean(data: bytes) -> bytes:
    """Downloaded bytes as a fresh PNG of at most SIZE, without metadata; raises Unavailable."""
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
