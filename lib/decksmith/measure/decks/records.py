"""What stands in a record of a deck, up to its pictures and files."""

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from decksmith.core.records import By, Error, Record


class Deck(TypedDict, total=False):
    path: Annotated[str, "deck.md, the clean deck"]
    slides: Annotated[int, "how many it shows"]
    theme: Annotated[str | None, "as its first frontmatter names it"]
    sha256: Annotated[str, "of deck.md"]
    template: Annotated[Record, "`name` and `sha256` of its template (docs/templates.md)"]
    error: Annotated[Error, "classes: `empty-reply`, `no-deck` (nothing is left beside reasoning)"]
    by: Annotated[By, "who made it"]


class Fallback(TypedDict):
    reason: Annotated[str, "the provider, and why it has no picture"]
    transient: Annotated[bool, "a rerun tries again"]


class Attribution(TypedDict):
    author: Annotated[str, "whose photo it is"]
    author_url: Annotated[str, "the author's page"]
    source: Annotated[str, "the service"]
    url: Annotated[str, "the photo's page"]


class ImageItem(TypedDict):
    query: Annotated[str, "what the picture is to show, as it was searched"]
    path: Annotated[str, "the picture"]
    line: Annotated[int, "of deck.md, from 1"]
    provider: Annotated[str, "`drawn`, or who was asked"]
    attribution: Annotated[Attribution | None, "whose picture it is; null of a drawn one"]
    fallback: Annotated[Fallback | None, "why the drawn picture stands in"]


class Images(TypedDict, total=False):
    path: Annotated[str, "illustrated.md, line for line as deck.md; deck.md without queries"]
    sha256: Annotated[str, "of illustrated.md"]
    items: Annotated[list[ImageItem], "one for each query, in their order"]
    error: Annotated[Error, "in place of the rest"]
    by: Annotated[By, "who made it"]


class Font(TypedDict):
    min: Annotated[float | None, "px, the smallest"]
    dominant: Annotated[float | None, "px, of most letters"]
    title: Annotated[float | None, "px, of the title"]


class Box(TypedDict):
    kind: Annotated[
        str, "title, text, item, quote, cell, code, formula, table, diagram, image, background"
    ]
    tag: Annotated[str, "the HTML element"]
    box: Annotated[list[int], "[x, y, width, height] of what is seen of it (text by its lines)"]
    text: Annotated[NotRequired[str], "its first 80 characters"]
    size: Annotated[NotRequired[float], "px, the smallest type"]
    contrast: Annotated[NotRequired[float], "the smallest ratio against what is painted under it"]
    unjudged: Annotated[NotRequired[bool], "text over a picture or gradient"]
    cut: Annotated[NotRequired[list[int]], "[x, y] px that its own or an outer box hides"]
    part: Annotated[NotRequired[str], "the line of code that is cut"]
    on: Annotated[NotRequired[list[tuple[int, float]]], "[[index, share]] of the texts it lies on"]
    covered: Annotated[NotRequired[bool], "something lies on it"]
    unseen: Annotated[NotRequired[bool], "its letters change nothing in the picture"]
    src: Annotated[NotRequired[str], "of a picture"]
    broken: Annotated[NotRequired[bool], "the picture did not load"]
    line: Annotated[NotRequired[list[float]], "[x, y, width, height] of its widest line's start"]
    lean: Annotated[NotRequired[float], "degrees that this line is turned clockwise"]
    ink: Annotated[
        NotRequired[str],
        "how these letters look drawn plainly: the share of ink, upper half of the line and lower, in "
        "hexadecimal digits (lib/decksmith/measure/judging/legibility.py)",
    ]


class Page(TypedDict, total=False):
    slide: Annotated[int, "from 1"]
    line: Annotated[int, "of deck.md, where the slide begins"]
    layout: Annotated[str, "the layout it is shown in"]
    title: Annotated[str, "its heading"]
    text: Annotated[str, "all that can be read"]
    words: Annotated[int, "of that text"]
    bullets: Annotated[int, "items of lists"]
    images: Annotated[int, "pictures"]
    images_broken: Annotated[int, "of them, that did not load"]
    code_lines: Annotated[int, "lines of code"]
    table_cells: Annotated[int, "cells of tables"]
    diagrams: Annotated[int, "mermaid diagrams"]
    formulas: Annotated[int, "KaTeX formulas"]
    quotes: Annotated[int, "block quotes"]
    columns: Annotated[int, "side by side"]
    overflow: Annotated[dict[str, float], "px `x`, `y` past the canvas or its own clipping box"]
    overlap: Annotated[float, "share of the canvas"]
    font: Annotated[Font, "sizes of type"]
    contrast: Annotated[float | None, "the smallest WCAG ratio of any text; null without text"]
    text_area: Annotated[float, "share of the canvas"]
    whitespace: Annotated[float, "share of the canvas"]
    blank: Annotated[bool, "nothing is on it"]
    canvas: Annotated[tuple[int, int], "px across and down, where they are not 980 and 552"]
    boxes: Annotated[list[Box], "at most 60 in document order; those with a defect stay"]


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
        Literal["ok", "partial", "failed"],
        "every slide clean; errors and pictures; no picture. Whatever a protocol tolerates",
    ]
    slides: Annotated[list[str], "the pictures, one for each slide"]
    expected: Annotated[int | None, "how many slides the deck has"]
    errors: Annotated[list[Error], "at most 200, the first of each class among them"]
    xray: Annotated[list[Page], "the measures of each slide"]
    engine: Annotated[Engine, "what it was rendered with"]
    imported: Annotated[str, "of another program's deck: pdf, pptx, office, html or pictures"]
    error: Annotated[Error, "the decisive one of `errors`, for which the deck does not count"]
    by: Annotated[By, "who made it"]


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
