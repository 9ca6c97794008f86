"""What is learnt of a company's file or site (template_office.py, template_site.py), and the template that it becomes.

Its words are hostile: they stand in comments alone, cut to harmless letters, and no model is told them.
"""

import base64
import io
import re
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from decksmith.core import cli, config_files, pages
from decksmith.measure.decks import templates

PIXELS = 40_000_000  # of a picture that is opened
# Of layouts by Slidev's names, and of fonts that stand in for others.
KINDS, ALIKE = (config_files.asset("template-learn.toml")[part] for part in ("layouts", "fonts"))


class Text(TypedDict):
    """How a text looks. size: px of the canvas; family: as it is named there; ink: #rrggbb."""

    size: int
    ink: str
    family: str
    bold: bool
    align: str
    source: str


class Page(TypedDict):
    """How a layout looks. bars: rectangles behind its text, (colour, [x, y, width, height]), the highest first."""

    paper: str
    ground: str
    bars: list[tuple[str, list[int]]]
    title: Text
    text: Text


@dataclass
class Draft:
    """What was learnt. fonts: {"family": the renderer's, "own", "source"} by role; colours: (#rrggbb, source) by name;
    layouts: their names there by Slidev's; padding: px above, right, below, left; lost: what is not carried over."""

    origin: str
    kind: str = "a PowerPoint file"
    pages: dict[str, Page] = field(default_factory=dict)
    layouts: dict[str, list[str]] = field(default_factory=dict)
    fonts: dict[str, dict[str, str]] = field(default_factory=dict)
    colours: dict[str, tuple[str, str]] = field(default_factory=dict)
    padding: list[int] = field(default_factory=list)
    logo: dict[str, Any] | None = None
    lost: list[str] = field(default_factory=list)

    def font(self, role: str, family: str, source: str) -> None:
        """Set a role's family (title, text), and what stands in for it."""
        own = family if re.fullmatch(r"\w[\w .&-]{0,59}", family) else "Arial"
        source = source if own == family else "there is no name that can be read"
        self.fonts[role] = {"family": stand_in(own), "own": own, "source": source}

    def colour(self, name: str, colour: str | None, source: str) -> None:
        """Name a colour, unless it, or the name, is there."""
        if colour and colour not in [known for known, _ in self.colours.values()]:
            self.colours.setdefault(name, (colour, source))

    def text(self) -> str:
        """The template's file. Raises cli.BadData for one that would not read back."""
        styled = [name for name in sorted(KINDS, key="default".__ne__) if KINDS[name]["selector"]]
        harmless = pages.environment(cli.ROOT / "assets/prompts", finalize=_harmless)
        template = harmless.get_template("template-learnt.md")
        once = {**vars(self), "lost": [*dict.fromkeys(self.lost)][:30]}
        made = template.render(once, styled=styled, kinds=KINDS)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "learnt.md"
            path.write_text(made := made.lstrip() + "\n", encoding="utf-8")
            try:
                templates.read(path)
            except cli.BadConfig as error:
                why = str(error).removeprefix(str(path))
                raise cli.BadData(f"{self.origin}: no template can be made of it{why}") from None
        return made


def _harmless(value: object) -> object:
    """What is put into the template's file, as it may stand there: words of others cut to plain letters."""
    if not isinstance(value, str) or hasattr(value, "__html__"):  # ours, `| safe`
        return value
    return value if re.fullmatch(r"data:image/[a-z+]+;base64,[\w+/=]+", value) else plain(value)


def plain(text: object) -> str:
    """Foreign words as they may stand in a comment: letters and a few signs, on one line."""
    return " ".join(re.sub(r"[^\w .,:;&+=%#'|©®™·–-]", " ", str(text)).split())[:120]


def is_loud(colour: str) -> bool:
    """Whether #rrggbb is neither grey nor nearly black or white."""
    parts = [int(part, 16) for part in re.findall("[0-9a-f]{2}", colour)]
    return len(parts) == 3 and max(parts) - min(parts) > 40


def stand_in(family: str) -> str:
    """The renderer's family that is most like another one, by its name."""
    return next((name for name, like in ALIKE.items() if re.search(like, family, re.I)), "Inter")


def picture(data: bytes, size: tuple[int, int], crop: tuple[float, ...] = (0, 0, 0, 0)) -> str:
    """A picture as the data URI of a PNG of at most `size` px; crop: shares cut from left, top, right, bottom.
    Raises ValueError where it is none, or too large."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            opened = Image.open(io.BytesIO(data), formats=("PNG", "JPEG", "GIF", "BMP", "ICO"))
            (left, top, right, bottom), (wide, high) = crop, opened.size
            if wide * high > PIXELS:
                raise ValueError(f"it has {wide} x {high} pixels")
            box = (left * wide, top * high, (1 - right) * wide, (1 - bottom) * high)
            image = opened.convert("RGBA").crop(tuple(map(round, box)))  # type: ignore[arg-type]
            image.thumbnail(size)
            out = io.BytesIO()
            image.save(out, "PNG")
    except Exception as error:  # Pillow raises of many kinds on hostile bytes
        raise ValueError(str(error) or type(error).__name__) from None
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
