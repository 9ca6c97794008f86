"""Pictures for decks: image queries become drawn pictures of assets/pictures."""

import functools
import hashlib
import os
import re
import unicodedata
import zlib
from pathlib import Path

from decksmith.core import cli, config_files, stream
from decksmith.core.records import Record
from decksmith.measure.decks.clean import markdown
from decksmith.measure.decks.parser import Deck
from decksmith.measure.decks.records import ImageItem, Images

VERSION = "drawn-2"  # raise it when another picture is drawn or chosen
DRAWN = cli.ROOT / "assets" / "pictures"
QUERY_LENGTH = 160  # characters of a query that count; the rest is cut
# Further queries share the last picture: a deck of ten thousand queries must not stall the batch.
PICTURES_PER_DECK = 24


def illustrate(run: str | Path, record: Record) -> Images:
    """Replace the image queries of a record's deck.

    Writes <id>/images/<hash>.jpg and <id>/illustrated.md, which keeps every line in its place."""
    ident, deck = record["id"], Deck.parse(markdown(run, record))
    folder = Path(run) / ident
    items: list[ImageItem] = []
    parts, at = [], 0
    found: dict[str, bytes] = {}
    for query in deck.queries:
        words = normal(query.text)
        if words not in found and len(found) < PICTURES_PER_DECK:
            found[words] = drawn(words)
        data = found.get(words) or list(found.values())[-1]
        digest = hashlib.sha256(data).hexdigest()
        name = f"images/{digest[:16]}.jpg"
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
            "provider": "drawn",
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
    """Whether a journaled value may be used again: its files are as they were."""
    if "error" in value:
        return True
    sha256 = _sha256(Path(run) / value["path"])
    if not sha256 or value.get("sha256", sha256) != sha256:
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
    """A query as a picture is chosen by it: printable, single blanks, at most QUERY_LENGTH characters."""
    whole = unicodedata.normalize("NFC", query[: 4 * QUERY_LENGTH])
    text = "".join(c if c.isprintable() else " " for c in whole)
    return " ".join(text.split())[:QUERY_LENGTH].strip() or "abstract"


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


def cache_folder(name: str) -> Path:
    """Where pictures or renders are kept for all runs: below XDG_CACHE_HOME, else in data."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) / "decksmith" if home else cli.ROOT / "data") / name
