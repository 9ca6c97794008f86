"""The frontmatter of a template (templates.py), checked by pydantic, which stages without one do not load."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, NonNegativeInt

from decksmith.core import validation
from decksmith.measure.decks.parser import THEMES
from decksmith.measure.decks.templates import CANVAS

# The families that the renderer has (assets/renderer/fonts.mjs): nothing is loaded from elsewhere.
FONTS = ("Nunito Sans", "Inter", "Fira Code", "PT Serif", "PT Mono")


def _on_slide(place: list[int]) -> list[int]:
    if len(place) == 4:
        x, y, wide, high = place
        if wide and high and x + wide <= CANVAS[0] and y + high <= CANVAS[1]:
            return place
    raise ValueError("write [x, y, width, height] in px of 980 x 552")


def _family(name: str) -> str:
    if name not in FONTS:
        raise ValueError(f"{name} is not one of {', '.join(FONTS)}")
    return name


def _own_family(name: str) -> str:
    if not re.fullmatch(r"\w[\w .&-]{0,59}", name):
        raise ValueError("write the name of a font, in quotes")
    return name


def _colour(text: str) -> str:
    if not re.fullmatch("#[0-9a-fA-F]{6}", text):
        raise ValueError('write it as "#rrggbb", in quotes')
    return text.lower()


class _Logo(validation.Body):
    file: str = Field(description="the name of a file")
    place: Annotated[list[NonNegativeInt], AfterValidator(_on_slide)]


class TemplateHead(validation.Body):
    """The frontmatter of a template. A field's description is what belongs there."""

    theme: Literal[tuple(THEMES)] = Field(description=f"one of {', '.join(THEMES)}")  # type: ignore[valid-type]
    fonts: dict[Literal["title", "text", "code"], Annotated[str, AfterValidator(_family)]] = {}
    powerpoint: dict[Literal["title", "text"], Annotated[str, AfterValidator(_own_family)]] = {}
    colours: dict[str, Annotated[str, AfterValidator(_colour)]] = {}
    logo: _Logo | None = Field(None, description="a `file:` and a `place:` below the key")
