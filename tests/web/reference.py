"""The picture of data/reference for README: of each of its decks the cover and another slide.

python tests/web/reference.py results/runs/reference/offline docs/reference.png
"""

import json
import sys
from pathlib import Path

from PIL import Image

TILE, ACROSS, OTHER = (
    (360, 203),
    6,
    3,
)  # pixels of a slide, how many in a row, the second slide's place


def picture(run: Path, out: Path) -> None:
    """Write the picture of the decks in a run's folder."""
    records = [json.loads(line) for line in (run / "scores.jsonl").read_text().splitlines()]
    decks = [record["render"]["slides"] for record in sorted(records, key=lambda one: one["id"])]
    slides = [run / deck[at] for deck in decks for at in (0, OTHER)]
    size = (TILE[0] * ACROSS, TILE[1] * -(-len(slides) // ACROSS))
    made = Image.new("RGB", size, "white")
    for at, file in enumerate(slides):
        with Image.open(file) as slide:
            small = slide.convert("RGB").resize(TILE, Image.Resampling.LANCZOS)
        made.paste(small, (at % ACROSS * TILE[0], at // ACROSS * TILE[1]))
    made.quantize(256).save(out, optimize=True)


if __name__ == "__main__":
    picture(Path(sys.argv[1]), Path(sys.argv[2]))
