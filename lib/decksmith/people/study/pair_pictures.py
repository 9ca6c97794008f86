"""What a voter sees of a pair: its slides, drawn anew at one width, without what files say of
their origin."""

import io
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from decksmith.core import cli, stream
from decksmith.people.study import store
from decksmith.people.study.records import DeckKey, StudyPair

if TYPE_CHECKING:
    from PIL.Image import Image

WIDEST = 1960  # pixels of a picture
QUALITY = 88  # of WebP


class _Picture(NamedTuple):
    """What a picture shows; equal ones have equal bytes."""

    slide: Path
    width: int
    damaged_by: Path | None = None  # the slide that is printed over it, in a damaged copy of a deck
    place: int = 0  # of a slide in a damaged copy: it decides the damage


def draw(
    folder: Path,
    secret: bytes,
    pairs: Sequence[StudyPair],
    slides: Mapping[DeckKey, Sequence[Path]],
) -> None:
    """Draw the slides of `pairs` into `folder`/pictures, both sides of a pair at one width, and
    name them in the pairs: {"pictures": {"left": [name], "right": [..]}}.

    slides: the pictures of each deck, {(run, prompt, sample): paths}. Raises cli.BadData for one
    that cannot be read."""
    (folder / "pictures").mkdir(exist_ok=True)
    for left_over in (folder / "pictures").glob("*.tmp"):  # of a build that was killed
        left_over.unlink()
    drawn = _DrawnPictures()

    def one(pair: StudyPair) -> None:
        decks = {"left": pair["left"], "right": pair["right"]}
        sources = {
            side: slides[deck["run"], pair["prompt"], deck["sample"]]
            for side, deck in decks.items()
        }
        width = min([WIDEST, *(_width(path) for paths in sources.values() for path in paths)])
        for side, paths in sources.items():
            names = []
            for place, path in enumerate(paths):
                picture = _Picture(path, width)
                if decks[side].get("broken"):
                    picture = _Picture(path, width, paths[(place + 1) % len(paths)], place)
                names.append(f"{store.keyed(secret, 'picture', pair['id'], side, place)}.webp")
                drawn.put(folder / "pictures" / names[-1], picture)
            pair["pictures"][side] = names

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(one, pairs):
            pass  # what one of them raised is raised here


class _DrawnPictures:
    """The pictures that were drawn, each once; the same slide in another pair is another name
    for the same bytes."""

    def __init__(self) -> None:
        self.files: dict[_Picture, Path] = {}
        self.lock = threading.Lock()

    def put(self, target: Path, picture: _Picture) -> None:
        """Write one picture to `target`."""
        with self.lock:
            source = self.files.get(picture)
        if source is None:
            stream.write(target, _webp(picture))
            with self.lock:
                self.files[picture] = target
            return
        fresh = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            os.link(source, fresh)
        except OSError:  # a file system without links
            stream.write(target, source.read_bytes())
            return
        os.replace(fresh, target)


def _webp(picture: _Picture) -> bytes:
    image = _scaled(_opened(picture.slide), picture.width)
    if picture.damaged_by:
        other = _scaled(_opened(picture.damaged_by), picture.width).resize(image.size)
        image = _damaged(image, other, picture.place)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=QUALITY, method=4)
    return buffer.getvalue()


def _opened(path: Path) -> "Image":
    """The picture as bare pixels: what a file says beside them (EXIF, colour profile, comments)
    is left behind."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            pixels = picture.convert("RGBA")
        bare = Image.new("RGB", pixels.size, "white")
        bare.paste(pixels, mask=pixels.getchannel("A"))
        return bare
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise cli.BadData(f"{path}: cannot be read as a picture ({error})") from None


def _width(path: Path) -> int:
    from PIL import Image

    try:
        with Image.open(path) as picture:
            return picture.width
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise cli.BadData(f"{path}: cannot be read as a picture ({error})") from None


def _scaled(picture: "Image", width: int) -> "Image":
    from PIL import Image

    if picture.width == width:
        return picture
    height = max(1, round(picture.height * width / picture.width))
    return picture.resize((width, height), Image.Resampling.LANCZOS)


def _damaged(picture: "Image", other: "Image", place: int) -> "Image":
    """What nobody would present: in turn so large that the right and lower part is cut off, printed
    over by another slide, and empty."""
    from PIL import Image

    if place % 3 == 0:
        part = picture.crop((0, 0, round(picture.width / 1.9), round(picture.height / 1.9)))
        return part.resize(picture.size, Image.Resampling.LANCZOS)
    if place % 3 == 1:
        return Image.blend(picture, other.transpose(Image.Transpose.ROTATE_180), 0.5)
    return Image.new("RGB", picture.size, picture.getpixel((2, 2)))
