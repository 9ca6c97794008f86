"""What a voter sees of a pair: its slides, drawn anew at one width, without what files say of
their origin."""

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from decksmith.core import cli, stream
from decksmith.people.study import store
from decksmith.people.study.records import PairSide, StudyPair

if TYPE_CHECKING:
    from PIL.Image import Image

WIDEST = 1960  # pixels of a picture
QUALITY = 88  # of WebP


def draw(
    folder: Path,
    secret: bytes,
    pairs: Sequence[StudyPair],
    slides: Callable[[str, PairSide], Sequence[Path]],
) -> None:
    """Draw the slides of `pairs` into `folder`/pictures, both sides of a pair at one width, and
    name them in the pairs: {"pictures": {"left": [name], "right": [..]}}.

    slides: gives the pictures of a prompt's deck. Raises cli.BadData for one that cannot be
    read."""
    (folder / "pictures").mkdir(exist_ok=True)
    for left_over in (folder / "pictures").glob("*.tmp"):  # of a build that was killed
        left_over.unlink()

    def one(pair: StudyPair) -> None:
        decks = {"left": pair["left"], "right": pair["right"]}
        sources = {side: slides(pair["prompt"], deck) for side, deck in decks.items()}
        width = min([WIDEST, *(_width(path) for paths in sources.values() for path in paths)])
        for side, paths in sources.items():
            names = []
            for place, path in enumerate(paths):
                picture = _drawn(path, width)
                if decks[side].get("broken"):
                    picture = _damaged(picture, _drawn(paths[(place + 1) % len(paths)], width))
                names.append(f"{store.keyed(secret, 'picture', pair['id'], side, place)}.webp")
                buffer = io.BytesIO()
                picture.save(buffer, "WEBP", quality=QUALITY, method=4)
                stream.write(folder / "pictures" / names[-1], buffer.getvalue())
            pair["pictures"][side] = names

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(one, pairs):
            pass  # what one of them raised is raised here


@contextlib.contextmanager
def _opened(path: Path) -> Iterator["Image"]:
    from PIL import Image

    try:
        with Image.open(path) as picture:
            yield picture
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise cli.BadData(f"{path}: cannot be read as a picture ({error})") from None


def _width(path: Path) -> int:
    with _opened(path) as picture:
        return picture.width


def _drawn(path: Path, width: int) -> "Image":
    """The picture as bare pixels: what a file says beside them (EXIF, colour profile, comments)
    is left behind."""
    from PIL import Image

    with _opened(path) as picture:
        pixels = picture.convert("RGBA")
    bare = Image.new("RGB", pixels.size, "white")
    bare.paste(pixels, mask=pixels.getchannel("A"))
    if bare.width == width:
        return bare
    height = max(1, round(bare.height * width / bare.width))
    return bare.resize((width, height), Image.Resampling.LANCZOS)


def _damaged(picture: "Image", other: "Image") -> "Image":
    """What nobody would present: printed over by another slide, upside down."""
    from PIL import Image

    other = other.resize(picture.size).transpose(Image.Transpose.ROTATE_180)
    return Image.blend(picture, other, 0.5)
