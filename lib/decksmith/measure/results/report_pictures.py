"""The pictures of a report: slides as AVIF in the report's folder, or inside the page."""

import base64
import hashlib
import io
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from decksmith.core import stream
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.results.comparison import Run

# Width in pixels and AVIF quality: a thumbnail is 240 points wide, a slide on a phone 366, at two pixels per point.
IMAGES = {"small": (490, 40), "full": (980, 42)}
Source = tuple[Run, str]  # a run, and the path of a slide in its folder


@dataclass
class Pictures:
    """What became of the slides of some runs."""

    names: dict[tuple[str, str], str | None]  # of AVIF, by the run's name and the path in it
    made: int = 0  # how many were not there yet

    def counts(self) -> dict[str, int]:
        """How many slides there are, how many pictures were made now, how many slides have none."""
        lost = sum(name is None for name in self.names.values())
        return {"pictures": len(self.names), "made": self.made, "lost": lost}


def in_folder(out: Path, runs: list[Run]) -> Pictures:
    """Make the files below `out`/img that are not there yet, and remove those that nothing names."""
    first, names = _sources(runs)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        done = threads.map(lambda name: _sizes(out, name, first[name]), first)
        made = dict(zip(first, done, strict=True))
    good = {name for name, count in made.items() if count is not None}
    for file in out.glob("img/*/*.*"):  # also those of another format or size
        if file.name not in good or file.parent.name not in IMAGES:
            file.unlink()
    kept = {key: name if name in good else None for key, name in names.items()}
    return Pictures(kept, sum(bool(count) for count in made.values()))


def weight(out: Path) -> int:
    """The bytes of the large pictures in a report's folder."""
    return sum(file.stat().st_size for file in out.glob("img/full/*"))


def inside(out: Path) -> dict[str, str]:
    """The large pictures of a report's folder as data URIs, by name."""
    return {file.name: address(out, f"img/full/{file.name}") for file in out.glob("img/full/*")}


def address(inside: Path | None, path: str) -> str:
    """The address of a picture of the report's folder; a data URI for a page that has it inside."""
    if inside is None:
        return path
    kind = "svg+xml" if path.endswith(".svg") else "avif"
    data = base64.b64encode((inside / path).read_bytes()).decode()
    return f"data:image/{kind};base64,{data}"


def avif(source: Path, width: int, quality: int) -> bytes:
    """A picture as AVIF of at most so many pixels in width. Raises OSError where it is none."""
    from PIL import Image

    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    picture.thumbnail((width, picture.height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "AVIF", quality=quality, speed=9, max_threads=1)
    return buffer.getvalue()


def slides(record: DeckRecord) -> list[str]:
    """The paths of a deck's pictures, in its run's folder, and of the deck's before an edit."""
    render = record.get("render") or {}
    return [*(render.get("slides") or []), *(render.get("before") or [])]


def inside_run(run: Run, path: str | None) -> Path | None:
    """A file of a run's folder; None where there is none, or the path leads out of the folder."""
    file: Path | None = (run["path"] / path).resolve() if path else None
    if not file or not file.is_relative_to(run["path"].resolve()) or not file.is_file():
        return None
    return file


def _sources(runs: list[Run]) -> tuple[dict[str, Source], dict[tuple[str, str], str | None]]:
    """The slide that each picture is made of (equal slides are one picture), and the names of all."""
    decks = [[(run, at) for at in slides(deck)] for run in runs for deck in run["records"]]
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # by deck: what waits takes a kilobyte
        found = threads.map(lambda deck: [(source, _name(source)) for source in deck], decks)
        named = list(itertools.chain.from_iterable(found))
    first = {name: source for source, name in reversed(named) if name}
    return first, {(run["name"], path): name for (run, path), name in named}


def _name(source: Source) -> str | None:
    """The name of a slide's picture, by its bytes; None where the run has no such file."""
    file = inside_run(*source)
    return hashlib.sha256(file.read_bytes()).hexdigest()[:20] + ".avif" if file else None


def _sizes(out: Path, name: str, source: Source) -> int | None:
    """Make a picture in all sizes; how many were not there yet, None where it cannot be read."""
    made = 0
    for size, look in IMAGES.items():
        file = out / "img" / size / name
        if not file.exists():
            run, path = source
            try:
                data = avif(run["path"] / path, *look)
            except OSError as error:
                stream.warn(f"{run['name']}/{path}", f"cannot be read as a picture ({error})")
                return None
            stream.write(file, data)
            made += 1
    return made
