"""What the X-ray of a rendered deck (assets/renderer/xray.mjs) says to its author: findings, each with a check, a line of
deck.md, and a box. Each element of the page is found again in the markdown by its words."""

import functools
import html
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.measure.decks import templates
from decksmith.measure.decks import words as deck_words
from decksmith.measure.decks.clean import illustrated
from decksmith.measure.decks.parser import LINK, PICTURE, SLOT, TAG, Deck
from decksmith.measure.decks.records import BOXES, Box, Finding, Limits, Page, Xray

CANVAS = (980, 552)  # px of a slide whose deck says nothing else

# Text below so many times the least size is fine print where it takes up less than that share of the slide: none of 828 slides of good decks.
FINE, ROOM = 1.2, 0.1
# What stands farther out behind all else past the edge was put there; it did not flow there.
GAP_PX = 60
# Layouts that show a statement, a picture or nothing in place of a title.
UNTITLED = {"end", "fact", "full", "image", "none", "quote", "statement", "center"}

_SAME = {"missing-image": "broken-picture"}  # the renderer's class for what is a rule here

# What a check finds: its name, the place of the element in `boxes` (None for the slide), message, area.
Rectangle = list[int]  # x, y, width, height in CSS px
Found = Iterator[tuple[str, int | None, str, Rectangle | None]]
_NUMBER = re.compile(r"\{(\d+)\}")  # in a message: an element, by its place in `boxes`


def canvas(page: Page) -> tuple[int, int]:
    """Px of a slide, across and down. Raises ValueError for what no slide has."""
    across, down = page.get("canvas") or CANVAS
    if not (100 <= across <= 3840 and 100 <= down <= 3840 and 1 / 4 <= across / down <= 4):
        raise ValueError(f"no slide has {across} x {down} px")
    return across, down


@functools.cache
def limits() -> Limits:
    """The limits of the checks in the protocol `offline`, which decks are drawn and examined by elsewhere too."""
    return cast(Limits, Protocol.load("offline").checks)


def findings(record: Record, text: str, bounds: Limits | None = None) -> list[Finding]:
    """What is wrong with the layout of a rendered deck of this text, in order of slide and line; a check gives at most
    one finding a slide, for its first or worst element (overflow: one an edge). Bounds: those of `offline` unless given."""
    render, bounds = record["render"], bounds or limits()
    source = Source(text)
    out: list[Finding] = []

    def add(
        line: int | None, slide: int | None, rule: str, message: str, box: Rectangle | None = None
    ) -> None:
        out.append(Finding(line=line, slide=slide, check=rule, message=message, box=box))

    for error in render.get("errors") or []:
        rule = _SAME.get(error["class"], error["class"])
        add(error.get("line"), error.get("slide"), rule, error["message"])
    failed = {finding["slide"] for finding in out}
    for page in render.get("xray") or []:
        boxes = page.get("boxes") or []
        broken = [box for box in boxes if box.get("broken") and _place(box)]
        for finding in out:
            if finding["check"] == "broken-picture" and finding["slide"] == page["slide"]:
                at = (b["box"] for b in broken if source.picture(page, b) == finding["line"])
                finding["box"] = next(at, None)
        if page.get("blank"):
            if page["slide"] not in failed:
                add(page["line"], page["slide"], "blank", "nothing can be seen on the slide")
            continue
        lines = source.lines(page)
        for rule in (_overflow, _overlap, _unreadable, _of_slide):
            for name, index, message, area in rule(page, boxes, bounds):
                line = source.first(page) if index is None else lines[index]
                if other := _NUMBER.search(message):
                    message = message.replace(other[0], str(lines[int(other[1])]))
                add(line, page["slide"], name, message, area)
    return sorted(out, key=lambda f: (f["slide"] or 0, f["line"] or 0))


# --- the rules: each yields (rule, index of the box or None for the slide, message, box) ----------------------------

_NOUNS = dict(title="the title", code="code", image="a picture", background="a picture")
_NOUNS |= dict(table="a table", diagram="a diagram", formula="a formula")


def _noun(box: Box) -> str:
    return _NOUNS.get(box["kind"], "text")


def _place(box: Box) -> bool:
    """Whether a box takes any room."""
    return min(box["box"][2:]) > 0


def _union(boxes: list[Rectangle]) -> Rectangle:
    x, y = min(b[0] for b in boxes), min(b[1] for b in boxes)
    return [x, y, max(b[0] + b[2] for b in boxes) - x, max(b[1] + b[3] for b in boxes) - y]


# By edge: how far a box begins and ends past it, in px.
_EDGES: dict[str, Callable[[Rectangle, int, int], tuple[int, int]]] = {
    "bottom": lambda box, wide, high: (box[1] - high, box[1] + box[3] - high),
    "right": lambda box, wide, high: (box[0] - wide, box[0] + box[2] - wide),
    "top": lambda box, wide, high: (-box[1] - box[3], -box[1]),
    "left": lambda box, wide, high: (-box[0] - box[2], -box[0]),
}


def _overflow(page: Page, boxes: list[Box], bounds: Limits) -> Found:
    cut = [i for i, box in enumerate(boxes) if max(box.get("cut") or [0]) > bounds["overflow_px"]]
    if cut:
        first = boxes[cut[0]]
        reach = max(max(boxes[i]["cut"]) for i in cut)
        yield "overflow", cut[0], f"{_noun(first)} overflows its box by {reach} px", first["box"]
    done: set[int] = set()
    for side, past in _EDGES.items():
        spans = {i: past(box["box"], *canvas(page)) for i, box in enumerate(boxes)}
        past_it = [i for i in spans if spans[i][1] > bounds["overflow_px"] and i not in done]
        out = [i for i in past_it if _place(boxes[i]) and not _bleeds(page, boxes[i], bounds)]
        flow, edge = _flow(out, spans, side, len(boxes))
        if flow:
            at = min(
                flow, key=lambda i: (boxes[i]["kind"] == "table", i)
            )  # it is read by its cells
            where = "" if side == "bottom" else f" at the {side}"
            area = _union([boxes[i]["box"] for i in flow])
            yield "overflow", at, f"{_noun(boxes[at])} overflows by {edge} px{where}", area
        if beyond := [i for i in out if i not in flow]:
            first = boxes[beyond[0]]
            far = max(0, spans[beyond[0]][0])
            message = f"{_noun(first)} stands outside the slide, {far} px past the {side} edge"
            yield "off-canvas", beyond[0], message, first["box"]
        done.update(out)


def _bleeds(page: Page, box: Box, bounds: Limits) -> bool:
    """Whether a picture may reach past the edge: a background, or one of which little is cut off."""
    if box["kind"] != "image":
        return box["kind"] == "background"
    x, y, width, height = box["box"]
    across, down = canvas(page)
    seen_x = max(0, min(x + width, across) - max(x, 0))
    seen_y = max(0, min(y + height, down) - max(y, 0))
    return 1 - seen_x * seen_y / (width * height) <= bounds["picture_cut"]


def _flow(
    out: list[int], spans: dict[int, tuple[int, int]], side: str, shown: int
) -> tuple[list[int], int]:
    """(those of the boxes past an edge that flowed there, how far they reach); the others were put there."""
    flow, edge = [], 0
    for i in sorted(out, key=lambda i: spans[i][0]):
        start, end = spans[i]
        if start <= edge + GAP_PX or shown >= BOXES:  # some between them are left out
            flow.append(i)
            edge = max(edge, end)
    # Lines go on below the edge; beside the slide something that nothing leads to was put there.
    if side != "bottom" and all(spans[i][0] >= 0 for i in flow):
        return [], edge
    return flow, edge


def _overlap(page: Page, boxes: list[Box], bounds: Limits) -> Found:
    for i, box in enumerate(boxes):
        if box.get("covered"):
            message = f"{_noun(box)} lies under something that covers it"
            yield "overlap", i, message, box["box"]
            return
    pairs = [(share, i, other) for i, box in enumerate(boxes) for other, share in box.get("on", [])]
    share, i, other = max(pairs, key=lambda pair: pair[0], default=(0, 0, 0))
    if share >= bounds["overlap"]:
        message = f"{_noun(boxes[i])} lies on that of line {{{other}}}, {share:.0%} of it"
        yield "overlap", i, message, _union([boxes[i]["box"], boxes[other]["box"]])


def _unreadable(page: Page, boxes: list[Box], bounds: Limits) -> Found:
    placed = [(i, box) for i, box in enumerate(boxes) if _place(box)]
    least_px = round(bounds["small_px"] * canvas(page)[0] / CANVAS[0], 1)
    small = [(box["size"], i) for i, box in placed if 0 < box.get("size", 0) < least_px]
    if small:
        size, worst = min(small)
        message = f"{_noun(boxes[worst])} is set in {size:g} px, below {least_px:g}{_others(small)}"
        yield "small-text", worst, message, boxes[worst]["box"]
    elif fine := _fine_print(page, FINE * least_px):
        yield "small-text", None, f"most text is set in {fine:g} px on a slide with room", None
    said = ("cut", "covered")  # by another finding
    unseen = [i for i, box in enumerate(boxes) if box.get("unseen") and not any(map(box.get, said))]
    if unseen:
        message = f"{_noun(boxes[unseen[0]])} cannot be seen{_others(unseen)}"
        yield "low-contrast", unseen[0], message, boxes[unseen[0]]["box"]
        return
    least = [bounds["code_contrast" if box["kind"] == "code" else "contrast"] for box in boxes]
    ratios = [(box["contrast"], i) for i, box in placed if box.get("contrast")]
    if faint := [(ratio, i) for ratio, i in ratios if ratio < least[i]]:
        ratio, worst = min(faint)
        message = f"{_noun(boxes[worst])} has a contrast of {ratio:.2f}, below {least[worst]:g}"
        yield "low-contrast", worst, message + _others(faint), boxes[worst]["box"]


def _fine_print(page: Page, least_px: float) -> float | None:
    """The size of most of a slide's text where it is small and takes up next to nothing of it, else None; code, diagrams
    and formulas have sizes of their own."""
    if page.get("code_lines") or page.get("diagrams") or page.get("formulas"):
        return None
    size = page["font"]["dominant"] if "font" in page else None
    is_fine = size is not None and size < least_px and page.get("text_area", 1) < ROOM
    return size if is_fine else None


def _others(found: Sequence[object]) -> str:
    return f", and {len(found) - 1} more" if len(found) > 1 else ""


def _of_slide(page: Page, boxes: list[Box], bounds: Limits) -> Found:
    said = deck_words.length(deck_words.fold((page.get("text") or "")[: deck_words.LONGEST]))
    if said > bounds["words"]:
        yield "dense", None, f"the slide has {said:g} words, more than {bounds['words']:g}", None
    if not page.get("title") and page.get("layout") not in UNTITLED:
        yield "no-title", None, "the slide has no title", None


# --- lines: where in the markdown an element of the page comes from ---------------------------------------------------

_WORD = re.compile(r"[^\W_]+")


def _words(text: str) -> list[str]:
    """The words of a text or a line of markdown; what emphasis and code marks leave of a word stays one word."""
    plain = unicodedata.normalize("NFKC", html.unescape(text))
    return _WORD.findall(re.sub("[*`~]", "", plain).casefold())


Word = tuple[str, int]  # and its line


class Source:
    """The deck's markdown, searched for the words that a slide shows."""

    def __init__(self, text: str) -> None:
        self.slides = dict(enumerate(Deck.parse(text).shown, 1))
        self._words: dict[int, list[list[Word]]] = {}

    def first(self, page: Page) -> int:
        """The first line of a slide's content."""
        slide = self.slides.get(page["slide"])
        return slide.content_line if slide and slide.content else page["line"]

    def words(self, number: int) -> list[list[Word]]:
        """[(word, line)] of a slide as a reader sees it, and of all that it is written in."""
        if number not in self._words:
            slide = self.slides[number]
            bare = TAG.sub(lambda tag: "\n" * tag[0].count("\n"), slide.prose)
            prose = LINK.sub(r"\1", PICTURE.sub("", bare)).split("\n")
            seen = ["" if SLOT.fullmatch(line.strip()) else line for line in prose]
            for fence in slide.fences:
                at = fence.line + 1 - slide.content_line
                rows = fence.text.split("\n")[: fence.end - fence.line]
                seen[at : at + len(rows)] = rows
            both = ((slide.content_line, seen), (slide.start, slide.raw.split("\n")))
            self._words[number] = [
                [(word, first + i) for i, line in enumerate(rows) for word in _words(line)]
                for first, rows in both
            ]
        return self._words[number]

    def lines(self, page: Page) -> list[int]:
        """The line of each box of a slide; the slide's own first line where its words are not in the markdown."""
        slide, boxes = self.slides.get(page["slide"]), page.get("boxes") or []
        if slide is None:
            return [page["line"]] * len(boxes)
        diagrams = iter([fence.line for fence in slide.fences if fence.lang == "mermaid"])
        out: list[int] = []
        at = 0
        for i, box in enumerate(boxes):
            if box["kind"] == "diagram":
                line = next(diagrams, None)
            elif box.get("src"):
                line = self.picture(page, box)
            else:
                # A table has no words of its own: its first cell's.
                cells = (other.get("text") for other in boxes[i + 1 :] if other["kind"] == "cell")
                text = box.get("part") or box.get("text") or next(cells, "")
                line, after = self._find(page["slide"], text, at)
                if after is not None and box["kind"] != "table":
                    at = after
            out.append(line or page["line"])
        return out

    def _find(self, number: int, text: str | None, start: int) -> tuple[int | None, int | None]:
        """Where the words of `text` stand: (line, place to look on from). The next place after `start` wins,
        then the first, then one in frontmatter or tags; (None, None) when they are nowhere."""
        wanted = _words(text or "")
        seen, raw = self.words(number)
        # The text may be cut within a word; what the page puts in between (a count, an expression) is passed over.
        parts = [wanted, wanted[:-1], *(wanted[a : a + 6] for a in range(1, 4))]
        parts += [wanted[a : a + 3] for a in range(len(wanted) - 2)]
        for part in parts:
            if not part or (len(part) == 1 and len(wanted) > 2):
                continue
            for words, begin in ((seen, start), (seen, 0), (raw, 0)):
                for i in range(begin, len(words) - len(part) + 1):
                    if all(words[i + j][0] == word for j, word in enumerate(part)):
                        return words[i][1], i + len(part) if words is seen else None
        return None, None

    def picture(self, page: Page, box: Box) -> int | None:
        """The line that names a picture, or None (a theme's own)."""
        slide, source = self.slides.get(page["slide"]), (box.get("src") or "").lstrip("/")
        if not slide or not source:
            return None
        images = [i for i in slide.images if i.url.removeprefix("./").lstrip("/") == source]
        is_image = box["kind"] == "image"  # and no background
        named = [((i.kind in ("markdown", "src")) != is_image, i.line) for i in images]
        rows = enumerate(slide.raw.split("\n"), slide.start)
        first = next((line for line, text in rows if source in text), None)
        return min(named)[1] if named else first


def examine(run: str | Path, record: Record) -> Xray:
    """The `xray` value of a rendered record. Raises cli.BadData."""
    if not isinstance(record.get("render"), dict):
        if stream.fault(record):
            return {"findings": []}
        raise cli.BadData(f'{record["id"]}: no "render" in this record; deck-render writes it')
    return {"findings": found(run, record, illustrated(run, record)[1])}


def found(run: str | Path, record: Record, text: str) -> list[Finding]:
    """`findings`, and behind them where the deck departs from its template, by its text and by its pictures."""
    out = findings(record, text)
    if template := templates.of(run, record):
        out += templates.findings(template, text) + templates.unseen_logo(template, run, record)
    return out


def lint(record: Record, value: Xray) -> list[str]:
    """The findings as lines of text: `p001/deck.md:42: text overflows by 131 px (overflow)`."""
    path = (record.get("deck") or record.get("images") or {}).get("path", f"{record['id']}/deck.md")
    said = [(f["line"] or 1, " ".join(f["message"].split()), f["check"]) for f in value["findings"]]
    return [f"{path}:{line}: {message} ({rule})" for line, message, rule in said]
