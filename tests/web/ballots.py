"""Runs to vote on, for the tests: decks of a few drawn slides by models that have nothing to hide but their names."""

import sys
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / "lib"),
    str(Path(__file__).resolve().parent),
]

import synthetic  # noqa: E402
from decksmith.core import stream  # noqa: E402


def run(folder, *, prompts=6, slides=3, failed=(), excluded=(), size=None, request=None, samples=1):
    """Write a run of `prompts` requests, each answered by `slides` slides; of those in `failed` nothing could be rendered. With a `size`
    the slides are bars, so many pixels wide."""
    rows = []
    for index in range(prompts):
        for k in range(samples):
            row = synthetic.prompt(index)
            ident = row["id"] if samples == 1 else f"{row['id']}~{k}"
            row = {
                "id": ident,
                **{key: row[key] for key in ("messages", "asks")},
                "gen": {"model": {"name": folder.name}, "sample": {"of": row["id"], "k": k}},
            }
            if index % 3 == 0:
                row["messages"][1]["content"] += " " + synthetic.HOSTILE[
                    index // 3 % len(synthetic.HOSTILE)
                ].replace("\ud800", "")
            if request:
                row["messages"][1]["content"] = request
            names = [f"{ident}/slides/{n:02d}.png" for n in range(1, slides + 1)]
            row["render"] = {"status": "ok", "slides": names}
            if index in failed or index in excluded:
                row["render"] = {
                    "status": "failed",
                    "slides": [],
                    "error": {
                        "kind": "model" if index in failed else "renderer",
                        "class": "yaml",
                        "message": "no",
                    },
                }
            else:
                for number, name in enumerate(names, 1):
                    if size:
                        plain(folder / name, size, f"{folder.name} {index} {k} {number}")
                    else:
                        synthetic.slide(
                            folder / name,
                            number,
                            f"Slide {number} of request {index}",
                            "default",
                            folder.name + str(k),
                        )
            row["score"] = {"overall": 3}
            rows.append(row)
    stream.write(folder / "scores.jsonl", b"".join(stream.dumps(row) + b"\n" for row in rows))
    return folder


def plain(path, width, salt):
    """Write a slide of bars: nobody looks at it."""
    import random

    from PIL import Image, ImageDraw

    path.parent.mkdir(parents=True, exist_ok=True)
    dice, picture = (
        random.Random(salt),
        Image.new("RGB", (width, round(width * 552 / 980)), "white"),
    )
    draw = ImageDraw.Draw(picture)
    for bar in range(7):
        draw.rectangle(
            (
                bar * width / 7,
                dice.random() * picture.height,
                (bar + 0.6) * width / 7,
                picture.height,
            ),
            fill=(dice.randrange(200), 90, 120),
        )
    picture.save(path)


def smaller(path):
    """Write a screenshot again with 256 colours: a third of the bytes, and nobody sees it."""
    from PIL import Image

    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(
            256, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE
        )
    few.save(path, optimize=True)
