"""What stands in a record of a deck, up to its pictures and files.

What a page has a hand in is held against its lengths and ranges where it comes in
(measure/render/worker.py) and where a record is read again (core/stream.py).
"""

import re
from typing import Annotated, Literal, NotRequired

from annotated_types import Interval, Len, MaxLen, Predicate
from typing_extensions import TypedDict

from decksmith.core.records import By, Error, Record, Row

# Bounds. A browser lays nothing out beyond 2**25 px; WCAG's ratios end at 21.
PX, SIZE, SHARE = Interval(ge=-1e8, le=1e8), Interval(ge=0, le=1e6), Interval(ge=0, le=1)
RATIO, COUNT = Interval(ge=0, le=22), Interval(ge=0, le=10_000_000)
BOXES, LETTERS = 60, 80  # boxes of a slide, and letters of each, that a record keeps
Pixels = list[Annotated[int, PX]]
Length = Annotated[float, PX]
Side = Annotated[int, SIZE]
Overflow = dict[Literal["x", "y"], Length]
On = tuple[Annotated[int, Interval(ge=0, lt=BOXES)], Annotated[float, SHARE]]
KINDS = "title, text, item, quote, cell, code, formula, table, diagram, image, background"


class Deck(TypedDict, total=False):
    path: Annotated[str, "deck.md, the clean deck"]
    slides: Annotated[int, "how many it shows"]
    theme: Annotated[str | None, "as its first frontmatter names it"]
    sha256: Annotated[str, "of deck.md"]
    template: Annotated[Record, "`name` and `sha256` of its template (docs/templates.md)"]
    error: Annotated[Error, "classes: `empty-reply`, `no-deck` (nothing is left beside reasoning)"]
    by: Annotated[By, "who made it"]


class ImageItem(TypedDict):
    query: Annotated[str, "what the picture is to show, printable and cut"]
    path: Annotated[str, "the picture"]
    line: Annotated[int, "of deck.md, from 1"]
    provider: Annotated[str, "`drawn`"]


class Images(TypedDict, total=False):
    path: Annotated[str, "illustrated.md, line for line as deck.md; deck.md without queries"]
    sha256: Annotated[str, "of illustrated.md"]
    items: Annotated[list[ImageItem], "one for each query, in their order"]
    error: Annotated[Error, "in place of the rest"]
    by: Annotated[By, "who made it"]


class Font(TypedDict):
    min: Annotated[float | None, "px, the smallest", SIZE]
    dominant: Annotated[float | None, "px, of most letters", SIZE]
    title: Annotated[float | None, "px, of the title", SIZE]


class Box(TypedDict):
    kind: Annotated[str, KINDS, MaxLen(20)]
    tag: Annotated[str, "the HTML element", MaxLen(80)]
    box: Annotated[Pixels, "[x, y, width, height] of what is seen of it", Len(4, 4)]
    text: Annotated[NotRequired[str], "its first 80 characters", MaxLen(LETTERS)]
    size: Annotated[NotRequired[float], "px, the smallest type", SIZE]
    contrast: Annotated[NotRequired[float], "the least ratio to what is painted under it", RATIO]
    unjudged: Annotated[NotRequired[bool], "text over a picture or gradient"]
    cut: Annotated[NotRequired[Pixels], "[x, y] px that its own or an outer box hides", Len(2, 2)]
    part: Annotated[NotRequired[str], "the line of code that is cut", MaxLen(120)]
    on: Annotated[NotRequired[list[On]], "[[index, share]] of the texts it lies on", MaxLen(BOXES)]
    covered: Annotated[NotRequired[bool], "something lies on it"]
    unseen: Annotated[NotRequired[bool], "its letters change nothing in the picture"]
    src: Annotated[NotRequired[str], "of a picture", MaxLen(200)]
    broken: Annotated[NotRequired[bool], "the picture did not load"]
    line: Annotated[NotRequired[list[Length]], "the like of its widest line's start", Len(4, 4)]
    lean: Annotated[NotRequired[float], "degrees it is turned clockwise", PX]
    ink: Annotated[
        NotRequired[str],
        "the share of ink of these letters drawn plainly: upper half of the line, lower; hexadecimal",
        Predicate(lambda ink: len(ink) in range(2, 1602, 2) and not ink.strip("0123456789abcdef")),
    ]


def _agree(boxes: list[Box]) -> bool:
    """Whether what the boxes say of each other is there."""
    others = (other for box in boxes for other, _ in box.get("on", ()))
    inked = all("line" in box for box in boxes if "ink" in box)
    return inked and max(others, default=-1) < len(boxes)


class Page(TypedDict, total=False):
    slide: Annotated[int, "from 1", COUNT]
    line: Annotated[int, "of deck.md, where the slide begins", COUNT]
    layout: Annotated[str, "the layout it is shown in", MaxLen(200)]
    title: Annotated[str, "its heading", MaxLen(2000)]
    text: Annotated[str, "all that can be read", MaxLen(100_000)]
    words: Annotated[int, "of that text", COUNT]
    bullets: Annotated[int, "items of lists", COUNT]
    images: Annotated[int, "pictures", COUNT]
    images_broken: Annotated[int, "of them, that did not load", PX]
    code_lines: Annotated[int, "lines of code", COUNT]
    table_cells: Annotated[int, "cells of tables", COUNT]
    diagrams: Annotated[int, "mermaid diagrams", COUNT]
    formulas: Annotated[int, "KaTeX formulas", COUNT]
    quotes: Annotated[int, "block quotes", COUNT]
    columns: Annotated[int, "side by side", COUNT]
    overflow: Annotated[Overflow, "px past the canvas or its own clipping box"]
    overlap: Annotated[float, "share of the canvas", SHARE]
    font: Annotated[Font, "sizes of type"]
    contrast: Annotated[float | None, "the smallest WCAG ratio; null without text", RATIO]
    text_area: Annotated[float, "share of the canvas", SHARE]
    whitespace: Annotated[float, "share of the canvas", SHARE]
    blank: Annotated[bool, "nothing is on it"]
    canvas: Annotated[tuple[Side, Side], "px across and down, where they are not 980 and 552"]
    boxes: Annotated[list[Box], "at most 60", MaxLen(BOXES), Predicate(_agree)]


Numbered = Annotated[Page, Predicate(lambda page: {"slide", "line"} <= page.keys())]
Picture = Annotated[str, Predicate(re.compile(r"(?:(?!\.\./)[^/]+/)+\d{1,6}\.png").fullmatch)]


class Engine(TypedDict):
    slidev: Annotated[str, "version"]
    lock: Annotated[str, "sha256 of the renderer's package-lock.json"]
    browser: Annotated[str, "version"]
    fonts: Annotated[str, "sha256 of the fonts"]
    code: Annotated[str, "sha256 of our own renderer"]
    scale: Annotated[int, "device pixels for a CSS pixel"]
    mode: Annotated[str, "`page`: every slide in one page"]


class Render(TypedDict, total=False):
    status: Annotated[
        Literal["ok", "partial", "failed"], "every slide clean; errors and pictures; no picture"
    ]
    slides: Annotated[list[Picture], "the pictures, one for each slide"]
    expected: Annotated[int | None, "how many slides the deck has", COUNT]
    errors: Annotated[list[Error], "at most 200, the first of each class", MaxLen(200)]
    xray: Annotated[list[Numbered], "the measures of each slide", MaxLen(100_000)]
    engine: Annotated[Engine, "what it was rendered with"]
    before: Annotated[list[Picture], "of an edit: the pictures of the deck before it"]
    imported: Annotated[str, "of another program's deck: pdf, pptx, office, html or pictures"]
    error: Annotated[Error, "the decisive one of `errors`"]
    by: Annotated[By, "who made it"]


class Rendered(Row, total=False):
    """A record whose other stages are read as they are."""

    render: Render


class Limits(TypedDict):
    """The limits of the checks: `[checks]` of a protocol (assets/protocols/offline.toml says what each is)."""

    overflow_px: float
    picture_cut: float
    overlap: float
    small_px: float
    contrast: float
    code_contrast: float
    words: float
    unreadable_px: float
    unreadable_contrast: float
    unlike: float
    unreadable: float
    twice: float
    echo: float
    language: float
    reads_bits: float
    reads_characters: float
    checklist_words: float
    checklist_per_slide: int


class Finding(TypedDict):
    line: Annotated[int | None, "of deck.md"]
    slide: Annotated[int | None, "from 1"]
    check: Annotated[str, "its name (docs/protocol.md), or the class of a render error"]
    message: Annotated[str, "a sentence for the author"]
    box: Annotated[list[int] | None, "[x, y, width, height] in px"]


class Xray(TypedDict, total=False):
    findings: Annotated[list[Finding], "at most one a rule and slide (overflow: and edge)"]
    error: Annotated[Error, "in place of the rest"]
    by: Annotated[By, "who made it"]


class Site(TypedDict):
    path: Annotated[str, "index.html"]
    runtime: Annotated[str, "the folder that all sites of a run share, by content hash"]


class BuiltFile(TypedDict):
    path: Annotated[str, "the file"]
    sha256: Annotated[str, "of the file"]


class Build(TypedDict, total=False):
    slides: Annotated[int, "how many"]
    errors: Annotated[list[Error], "as under `render`; such slides are error slides"]
    site: Annotated[Site, "where it was asked for"]
    pdf: Annotated[BuiltFile, "where it was asked for"]
    pptx: Annotated[BuiltFile, "where it was asked for: the file to edit"]
    pptx_image: Annotated[BuiltFile, "where `pptx-image` was asked for: a picture per slide"]
    error: Annotated[Error, "in place of the rest"]
    by: Annotated[By, "who made it"]
