"""An edit in two numbers: the share of its checks that the deck meets, and the share of the rest that stayed as it was.

A slide that the request leaves alone stays where its markdown is the same byte for byte, but for blank lines at its ends, and
its picture pixel for pixel. `may` of an edit says what else may change: of a slide by its number, or of every slide by `*`,

    all     anything
    note    the note
    look    frontmatter and picture
    [..]    anything but these lines, which stay in their order
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard, cast

from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Edit
from decksmith.measure.decks.parser import Deck, Slide
from decksmith.measure.decks.records import Finding
from decksmith.measure.decks.words import fold, language_share
from decksmith.measure.judging import identity, vision
from decksmith.measure.judging.records import Asked, DeckRecord, Judge
from decksmith.models.records import Usage

NAME = "edit checks"
_POINT = re.compile(r"^[^\S\n]*(?:[-*+]|\d+[.)])\s+\S", re.M)
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_IMPORTED = re.compile(r"^imported: \w+\n", re.M)
_ROW = re.compile(r"^\|.*\|\s*$", re.M)


Pictures = dict[int, Path]  # of a deck's slides, by number from 1
Drawn = tuple[Pictures, Pictures]  # before and after


def _alike(drawn: Drawn, number: int, at: int) -> bool:
    """Whether slide `number` before and slide `at` after are equal in every pixel."""
    from PIL import Image, ImageChops

    if number not in drawn[0] or at not in drawn[1]:
        return False
    with Image.open(drawn[0][number]) as a, Image.open(drawn[1][at]) as b:
        one, two = a.convert("RGB"), b.convert("RGB")
    return one.size == two.size and ImageChops.difference(one, two).getbbox() is None


def may_of(edit: Edit, number: int) -> str | list[str]:
    """What may change of slide `number` of the deck before; `` for nothing."""
    return cast(str | list[str], edit["may"].get(str(number), edit["may"].get("*", "")))


def is_same(was: Slide, now: Slide, may: str | list[str]) -> bool:
    """Whether a slide kept all but what may change of it, as far as its markdown says."""
    if isinstance(may, list):
        lines = iter(now.raw.split("\n"))
        return all(line in lines for line in may)
    if may == "note":
        return (was.frontmatter, was.content) == (now.frontmatter, now.content)
    if may == "look":
        return (was.content, was.note) == (now.content, now.note)
    return was.raw.strip("\n") == now.raw.strip("\n")


def kept(edit: Edit, after: Deck, drawn: Drawn | None = None) -> tuple[int, int, list[Finding]]:
    """(how many slides stayed, of how many that should, what did not). Slides stay in their order; each slide more than
    before and the reference have counts as one that did not stay. drawn: without it pictures are not looked at."""
    before = Deck.parse(edit["before"])
    held = [slide for slide in before.shown if may_of(edit, slide.no) != "all"]
    pairs = dict(_aligned(edit, held, after.shown))
    found: list[Finding] = []
    for slide in held:
        number, at = slide.no, pairs.get(slide.no)
        if at is None:
            found.append(_broke(number, f"slide {number} is not what it was"))
        elif may_of(edit, number) not in ("", "note"):
            continue  # its picture may be another
        elif drawn and not _alike(drawn, number, at):
            found.append(_broke(number, f"the picture of slide {number} is not what it was"))
    most = max(edit["slides"], len(before.shown))
    more = max(0, len(after.shown) - most)
    if more:
        found.append(_broke(None, f"{more} more than {most} slides"))
    stayed = len(held) - sum(one["slide"] is not None for one in found)
    return stayed, len(held) + more, found


def _broke(slide: int | None, message: str) -> Finding:
    return cast(Finding, {"check": "kept", "slide": slide, "line": None, "message": message})


def _aligned(edit: Edit, held: list[Slide], now: list[Slide]) -> tuple[tuple[int, int], ...]:
    """The longest common sequence of slides that stayed: (number before, number after)."""
    best: list[list[tuple[tuple[int, int], ...]]]
    best = [[()] * (len(now) + 1) for _ in range(len(held) + 1)]
    for i, was in reversed([*enumerate(held)]):
        may = may_of(edit, was.no)
        for j in range(len(now) - 1, -1, -1):
            found = max(best[i + 1][j], best[i][j + 1], key=len)
            if is_same(was, now[j], may):
                found = max(((was.no, j + 1), *best[i + 1][j + 1]), found, key=len)
            best[i][j] = found
    return best[0][0]


# --- whether a request is met ---------------------------------------------------------------------


def met(edit: Edit, after: Deck, drawn: Drawn | None = None) -> list[Asked]:
    """Each check of an edit with its answer: yes where all that it names holds, of its slide of the deck after, or, where it
    names none, of the whole deck (docs/edit.md has the names)."""
    said: list[Asked] = []
    for check in edit["checks"]:
        number = check.get("slide")
        names = {name: what for name, what in check.items() if name != "slide"}
        if number is None:
            yes = all(_of_deck(name, what, after, drawn) for name, what in names.items())
        elif 0 < number <= len(after.shown):
            slide = after.shown[number - 1]
            yes = all(_of_slide(name, what, slide, edit) for name, what in names.items())
        else:
            yes = False
        words = ", ".join(f"{name} {what}" for name, what in names.items())
        said.append({"check": edit["kind"], "what": words, "yes": yes, "slide": number})
    return said


def _of_deck(name: str, what: object, deck: Deck, drawn: Drawn | None) -> bool:
    if name == "slides":
        return len(deck.shown) == what
    if name == "theme":
        return deck.theme == what
    if name == "redrawn":  # every picture is another one
        numbers = range(1, len(deck.shown) + 1)
        return drawn is not None and not any(_alike(drawn, n, n) for n in numbers)
    return _has(deck.text, str(what)) == (name == "has")


# What a check of a slide holds for, by its name.
_HOLDS: dict[str, Callable[[Slide, Any], bool]] = {
    "has": lambda slide, what: _has(_said(slide.content), what),
    "lacks": lambda slide, what: not _has(f"{slide.content}\n{slide.note}", what),
    "title": lambda slide, what: _has(slide.title or "", what),
    "note": lambda slide, what: _has(slide.note or "", what),
    "words": lambda slide, most: 0 < len(slide.text.split()) <= most,
    "points": lambda slide, n: len(_POINT.findall(slide.prose)) == n,
    "row": lambda slide, cells: cells in _rows(slide),
    # No language has more function words, of which at least three tell.
    "language": lambda slide, code: language_share([fold(slide.text)], code) == 1,
    "layout": lambda slide, name: slide.layout == name,
    "code": lambda slide, lang: any(fence.lang == lang for fence in slide.fences),
}


def _of_slide(name: str, what: Any, slide: Slide, edit: Edit) -> bool:
    if name == "row" and "imported" in edit:  # the frontmatter is deck-import's, not a model's
        parts = slide.frontmatter.get("parts")
        said = [str(part[-1]) for part in parts if part] if _are_lists(parts) else []
        return what in [row.split(" | ") for one in said for row in one.split("\n")]
    if name != "was":
        return _HOLDS[name](slide, what)
    was = Deck.parse(edit["before"]).shown[what - 1]
    return (was.content, was.note) == (slide.content, slide.note)


def _are_lists(parts: Any) -> TypeGuard[list[list[object]]]:
    return isinstance(parts, list) and all(isinstance(part, list) for part in parts)


def _rows(slide: Slide) -> list[list[str]]:
    """The rows of a slide's tables, cells without marks of bold."""
    found = _ROW.findall(slide.prose)
    return [[cell.strip(" *") for cell in row.strip().strip("|").split("|")] for row in found]


def _said(text: str) -> str:
    head, end, rest = text.rpartition("-->")  # each comment that begins before ends there
    return _COMMENT.sub(" ", head + end) + rest


def _has(text: str, what: str) -> bool:
    """Whether a text has one of these, parted by |; a number stands alone."""
    folded = text.casefold()
    return any(
        re.search(rf"(?<![\w.,]){re.escape(one)}(?![\w]|[.,]\d)", folded)
        if one[:1].isdigit()
        else one in folded
        for one in what.casefold().split("|")
    )


# --- the judge ------------------------------------------------------------------------------------


class Edits:
    """The judge of the protocol `edit`, with what stream.stage needs."""

    valid = None

    def __init__(self, protocol: Protocol, run: Path, jobs: int) -> None:
        self.run, self.jobs = run, jobs
        self.judging = identity.judging(protocol)
        self.rubric = stream.fingerprint(self.judging)

    def inputs(self, record: DeckRecord) -> list[object]:
        made = [record["edit"], record["deck"].get("sha256"), record["render"].get("slides")]
        return [self.judging, *made, vision.digests(self.run, record)]

    async def work(self, record: DeckRecord, seed: int = 0) -> Judge:
        value = await asyncio.to_thread(judge, record, self.run)
        return {**value, "rubric": self.rubric}

    async def close(self) -> None:
        """Nothing is open."""


def judge(record: DeckRecord, run: Path) -> Judge:
    """What is said of a rendered edit, without its rubric."""
    edit, render = record["edit"], record["render"]
    text = (run / record["deck"]["path"]).read_text(encoding="utf-8", errors="replace")
    before, after = (
        {int(Path(path).stem): run / path for path in render[name]} for name in ("before", "slides")
    )
    return verdict(edit, text, (before, after))


def verdict(edit: Edit, text: str, drawn: Drawn | None = None) -> Judge:
    """The same of a deck's markdown; without pictures a check of them is not met, and none has to stay."""
    if "imported" in edit:  # its hash is of the file, and of no slide
        edit = {**edit, "before": _IMPORTED.sub("", edit["before"], count=1)}
        text = _IMPORTED.sub("", text, count=1)
    after = Deck.parse(text)
    asked = met(edit, after, drawn)
    stayed, of, broke = kept(edit, after, drawn)
    return {
        "judge": NAME,
        "edit": {
            "met": {"passed": sum(one["yes"] for one in asked), "of": len(asked)},
            "kept": {"passed": stayed, "of": of},
        },
        "asked": asked,
        "findings": broke,
        "usage": cast(Usage, {}),
    }
