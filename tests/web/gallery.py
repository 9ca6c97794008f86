"""The pictures of the demo's gallery: the first slide of each deck of data/reference, named by its ask (studio.py), a hash of the deck.

make gallery
"""

import hashlib
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from decksmith.people.demo import studio
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
DECKS, PICTURES = ROOT / "data/reference", ROOT / "assets/web/references"
SIZE, MOST = (640, 360), 15_000  # pixels; bytes of a picture


def names() -> dict[str, str]:
    """The name of each deck's picture, by the deck's id."""
    return {name: f"{name}.{deck.ask[:12]}.webp" for name, deck in studio.references().items()}


def small(slide: Path) -> bytes:
    """A slide as WebP of at most MOST bytes."""
    with Image.open(slide) as picture:
        reduced = picture.convert("RGB").resize(SIZE, Image.Resampling.LANCZOS)
    for quality in range(90, 0, -5):
        out = io.BytesIO()
        reduced.save(out, "WEBP", quality=quality, method=6)
        if out.tell() <= MOST:
            break
    return out.getvalue()


def make() -> None:
    """Draw the decks, and put their pictures in the place of those that are there."""
    decks = names()
    with tempfile.TemporaryDirectory() as run:
        records = [{"id": name, "deck": {"path": f"{name}.md"}} for name in decks]
        for record in records:
            text = (DECKS / record["deck"]["path"]).read_bytes()
            Path(run, record["deck"]["path"]).write_bytes(text)
            record["deck"]["sha256"] = hashlib.sha256(text).hexdigest()
        lines = "".join(json.dumps(record) + "\n" for record in records)
        for script in ("deck-illustrate", "deck-render"):
            command = [ROOT / "bin" / script, "--run", run]
            lines = subprocess.run(
                command, input=lines, stdout=subprocess.PIPE, text=True, check=True
            ).stdout
        drawn = {
            row["id"]: row["render"]["slides"][0] for row in map(json.loads, lines.splitlines())
        }
        made = {name: small(Path(run, drawn[ident])) for ident, name in decks.items()}
    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.glob("*.webp"):
        old.unlink()
    for name, data in made.items():
        (PICTURES / name).write_bytes(data)
    print(
        f"{len(made)} pictures, {sum(map(len, made.values()))} bytes: {PICTURES}", file=sys.stderr
    )


if __name__ == "__main__":
    make()
