"""Calm pictures drawn from words: a topic chooses scene and palette, a hash of the words the rest; no fonts, no
network."""

import functools
import hashlib
import random
import re
import tomllib
from typing import Any

from decksmith.core import cli
from decksmith.decks import canvas, scenes

VERSION = "drawn-1"  # raise it when a change alters the pictures
NIGHT = {"night", "dark", "evening", "midnight", "deep"}
WARM = {"sunset", "sunrise", "dusk", "dawn", "warm", "autumn", "golden"}


@functools.cache
def known() -> dict[str, Any]:
    """assets/pictures.toml: topics, and what there is without one."""
    return tomllib.loads((cli.ROOT / "assets/pictures.toml").read_text(encoding="utf-8"))


def draw(query: str) -> bytes:
    """A calm 1600 x 900 picture as PNG bytes, drawn from the words of the query.

    The topic that most of the words belong to gives scene and palette (abstract shapes when none does), a hash of the
    query gives the rest. The same query gives the same bytes with the same version of Pillow. About 0.2 to 0.4 CPU
    seconds.
    """
    words = query.casefold()
    digest = hashlib.sha256(f"{VERSION}\n{words}".encode()).digest()
    rnd = random.Random(int.from_bytes(digest[:8], "big"))
    seen = re.findall(r"[^\W\d_]+", words)
    scores = [_score(seen, set(topic["words"].split())) for topic in known()["topic"]]
    if max(scores):
        topic = known()["topic"][scores.index(max(scores))]
        scene, palettes = topic["scene"], topic["palettes"]
    else:
        palettes = known()["abstract"]["palettes"]
        scene = rnd.choice(known()["abstract"]["scenes"])
    palette = rnd.choice(palettes)
    if NIGHT & set(seen):
        palette = min(palettes, key=lambda colours: sum(bytes.fromhex(colours[:6])))
    elif WARM & set(seen):
        palette = max(palettes, key=lambda colours: int(colours[:2], 16) - int(colours[4:6], 16))
    picture = canvas.Canvas(rnd, palette, seen)
    scenes.SCENES[scene](picture)
    return canvas.png(picture.image)


def _score(seen: list[str], topic: set[str]) -> int:
    """How many of the words belong to a topic, also in the plural."""
    return sum(
        bool({word, word.removesuffix("s"), word.removesuffix("es")} & topic) for word in seen
    )
