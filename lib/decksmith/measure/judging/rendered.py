"""A rendered deck as the checks see it: what can be read on each slide, and what it shows."""

from collections.abc import Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from decksmith.core import cli
from decksmith.core.records import Asks, Record
from decksmith.measure.decks import sources
from decksmith.measure.decks.lint import CANVAS, canvas
from decksmith.measure.decks.parser import Deck
from decksmith.measure.decks.records import BOXES, LETTERS, Box, Limits, Page
from decksmith.measure.decks.words import LONGEST, fold, head, length
from decksmith.measure.judging.records import Answer

if TYPE_CHECKING:
    import numpy as np

THUMB = (98, 55)  # a tenth of the canvas, in pixels
PICTURE = 0.01  # of the canvas: what is smaller shows nothing


class _Picture(NamedTuple):
    """A slide's picture: grey values (THUMB, int16), and the boxes whose text is lost."""

    thumb: "np.ndarray"
    lost: set[int]


class Pages:
    """A rendered deck: its slides' measures, its pictures and the request, by slide number."""

    def __init__(self, record: Record, run: str | Path, limits: Limits) -> None:
        self.record, self.run, self.limits = record, Path(run), limits
        render = record["render"]
        self.asks: Asks = record.get("asks") or {}
        self.items = record.get("checklist") or []
        self.pictures = {int(Path(path).stem): path for path in render.get("slides") or []}
        self.xray = {page["slide"]: page for page in render.get("xray") or []}
        expected = range(1, (render.get("expected") or 0) + 1)
        self.numbers = sorted({*self.pictures, *self.xray, *expected})
        one_colour = {
            n for n, seen in self.looked.items() if seen.thumb.max() - seen.thumb.min() < 4
        }
        shown = [n for n in sorted(self.xray) if n not in one_colour]
        self.whole = {n: self.xray[n] for n in shown if not self.xray[n].get("blank")}

    @cached_property
    def looked(self) -> dict[int, _Picture]:
        """The pictures by slide number."""
        import numpy as np
        from PIL import Image

        from decksmith.measure.judging import legibility

        limits, looked = self.limits, {}
        for n, path in self.pictures.items():
            try:
                with Image.open(self.run / path) as opened:
                    picture = opened.convert("L")
            except OSError as error:
                raise cli.BadData(f"{self.record['id']}: {error}; render it again") from None
            lost = set[int]()
            page = self.xray.get(n, {})
            for i, box in enumerate(page.get("boxes") or []):
                if box.get("ink"):
                    scale = picture.width / canvas(page)[0]
                    likeness, contrast = legibility.look(picture, box, scale)
                    if likeness < limits["unlike"] or contrast < limits["unreadable_contrast"]:
                        lost.add(i)
            thumb = picture.resize(THUMB, Image.Resampling.BOX)
            looked[n] = _Picture(np.asarray(thumb, dtype=np.int16), lost)
        return looked

    def lost(self, n: int) -> set[int]:
        """The places in `boxes` of the lines of slide n that cannot be made out in its picture."""
        return self.looked[n].lost if n in self.looked else set()

    @cached_property
    def readable(self) -> dict[int, str]:
        """What can be read on each slide, line by line."""
        return {n: readable(page, self.limits, self.lost(n)) for n, page in self.whole.items()}

    @cached_property
    def texts(self) -> dict[int, str]:
        """The same in one form: NFKC, case-folded, single blanks; bounded."""
        return {n: fold(text) for n, text in self.readable.items()}

    @cached_property
    def request(self) -> str:
        """What the user asked for, in words, without the documents that it quotes."""
        return sources.request(self.record)

    @cached_property
    def words(self) -> dict[int, float]:
        """Words by slide number; a letter of a script without blanks counts as half a word."""
        return {n: length(text) for n, text in self.texts.items()}

    def titles(self) -> dict[int, str]:
        """The title of each slide, as far as it can be read."""
        said = {n: fold(page.get("title") or "") for n, page in self.whole.items()}
        read = {n for n, title in said.items() if letters(title) in letters(self.texts[n])}
        return {n: title if n in read else "" for n, title in said.items()}

    def has(self, n: int, element: str) -> bool:
        """Whether slide n shows an element (`mermaid`, `two-cols`, `cover` ...; docs/records.md)."""
        return n in self.whole and shows(self.whole[n], element)

    def queries(self, n: int) -> set[str]:
        """What pictures slide n asks for in words."""
        lines = sorted(page["line"] for page in self.xray.values() if "line" in page)
        first = self.xray[n]["line"] if n in self.xray else 0
        after = next((line for line in lines if line > first), 10**9)
        items = (self.record.get("images") or {}).get("items") or []
        return {item["query"] for item in items if first <= item["line"] < after}

    @cached_property
    def deck(self) -> "Deck":
        """The deck, empty where its file is not there."""
        path = self.run / self.record["deck"]["path"]
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        return Deck.parse(text)

    @cached_property
    def answers(self) -> list[Answer]:
        """The checklist by text match, with the limits that keep stuffed slides from paying."""
        credit = {
            n: int(self.limits["checklist_per_slide"]) for n in self.whole if not self._pale(n)
        }
        read = {n: head(text, self.limits["checklist_words"]) for n, text in self.texts.items()}
        answers: list[Answer] = []
        for item in self.items:
            entries = item.get("match") or []
            free = [n for n in credit if credit[n] and entries]
            shown = [n for n in free if all(self._entry(n, read[n], entry) for entry in entries)]
            best = max(shown, key=lambda n: (credit[n], -n), default=None)
            if best:
                credit[best] -= 1
            answers.append({"id": item["id"], "yes": best is not None, "slide": best})
        return answers

    def _pale(self, n: int) -> bool:
        """Whether something on slide n is too small or too pale to be read."""
        limits, page = self.limits, self.whole[n]
        font, contrast = (page.get("font") or {}).get("min"), page.get("contrast")
        least = limits["unreadable_px"] * canvas(page)[0] / CANVAS[0]
        small = font is not None and font < least
        return small or (contrast is not None and contrast < limits["unreadable_contrast"])

    def _entry(self, n: int, text: str, entry: str) -> bool:
        """Whether a slide has one of an entry's options: an element, or words."""
        options = entry.split("|")
        said = any(fold(o) and fold(o) in text for o in options if not o.startswith("@"))
        return said or any(self.has(n, o[1:]) for o in options if o.startswith("@"))


ELEMENTS = ("code", "mermaid", "katex", "table", "image", "quote")
# The X-ray of a slide that shows an element.
SHOWN: dict[str, Page] = {
    "code": {"code_lines": 1},
    "mermaid": {"diagrams": 1},
    "katex": {"formulas": 1},
    "table": {"table_cells": 1},
    "image": {"images": 1},
    "quote": {"quotes": 1},
    "two-cols": {"columns": 2},
    "cover": {"layout": "cover"},
    "end": {"layout": "end"},
}


def shows(page: Page, element: str) -> bool:
    """Whether the measures of a slide (one of render.xray) show an element, by its name in docs/records.md."""
    layout = page.get("layout") or ""
    match element:
        case "image":
            return page.get("images", 0) > page.get("images_broken", 0) and _large(page)
        case "quote":
            return page.get("quotes", 0) > 0 or layout == "quote"
        case "two-cols":
            return page.get("columns", 1) > 1 or layout.startswith("two-cols")
        case "cover":
            return layout in ("cover", "intro")
        case "end":
            return layout == "end"
    return any(page.get(key) for key in SHOWN.get(element, {}))


def _large(page: Page) -> bool:
    """Whether a picture of the slide is large enough to show something; one whose boxes were cut off is believed."""
    boxes = page.get("boxes") or []
    if not boxes or len(boxes) >= BOXES:
        return True
    shown = [box for box in boxes if box["kind"] in ("image", "background")]
    areas = [box["box"][2] * box["box"][3] for box in shown if not box.get("broken")]
    across, down = canvas(page)
    return max(areas, default=0) >= PICTURE * across * down


def readable(page: Page, limits: Limits, lost: Collection[int] = ()) -> str:
    """The lines of a slide's text that a reader can make out: not those off the canvas, covered, too small or pale for
    `limits`, or in the boxes whose places are in `lost`. A measured page without boxes is believed."""
    text, boxes = (page.get("text") or "")[:LONGEST], page.get("boxes") or []
    if not boxes:
        return text
    seen: list[str] = []
    hidden: list[str] = []
    for place, box in enumerate(boxes):
        if box.get("text"):
            unread = place in lost or _hidden(page, box, limits)
            (hidden if unread else seen).append(letters(box["text"]))
    # Lines of code, formulas and diagrams are in no box line by line.
    vouched = len(page["boxes"]) >= BOXES or any(
        page.get(key) for key in ("code_lines", "formulas", "diagrams")
    )
    kept = []
    for line in text.split("\n"):
        said = letters(line)
        if not said or _among(said, seen) or (vouched and not _among(said, hidden)):
            kept.append(line)
    return "\n".join(kept)


def _hidden(page: Page, box: Box, limits: Limits) -> bool:
    """Whether a box is off the canvas, pale, covered, unseen or too small to be read."""
    x, y, width, height = box["box"]
    across, down = canvas(page)
    off = x >= across or y >= down or x + width <= 0 or y + height <= 0
    if off or not width or not height or box.get("covered") or box.get("unseen"):
        return True
    pale = box.get("contrast", 21) < limits["unreadable_contrast"]
    return pale or box.get("size", LETTERS) < limits["unreadable_px"] * across / CANVAS[0]


def letters(text: str) -> str:
    """The letters and digits of a text in one form."""
    return "".join(c for c in fold(text) if c.isalnum())


def _among(line: str, boxes: Iterable[str]) -> bool:
    """Whether one of the boxes holds the line or, cut off as boxes are, begins it, or several make up half of it."""
    parts = {box for box in boxes if box and box in line}
    begins = any(len(box) > LETTERS // 2 and line.startswith(box) for box in boxes)
    return begins or any(line in box for box in boxes) or 2 * sum(map(len, parts)) >= len(line)
