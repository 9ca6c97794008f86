"""A deck that its model changes: one slide at a person's wish (the demo), whatever the reply says of the others; or what a
request or findings name, by search-and-replace blocks, a unified diff, whole slides, or a whole deck."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from decksmith.measure.decks import clean, templates
from decksmith.measure.decks.parser import Deck, Slide
from decksmith.measure.decks.records import Finding

# Of the first block: what belongs to the deck, which a change of its first slide leaves alone.
SETTINGS = ("theme", "themeConfig", "colorSchema", "lineNumbers", "mdc", "comark", "defaults")
_HEADING = re.compile(r"^(#{1,6} |<h[1-6]\b)", re.M)
_DIFF = re.compile(r"^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@.*$|^@@.*$", re.M)
_BEGINS, _PARTS, _ENDS = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"
_MARK = re.compile(r"^=== slide (\d+) ===[ \t]*$", re.M | re.I)
BEFORE = "\n\nThe deck:\n\n"  # between the request for an edit and its deck
FINDINGS = 20  # that a model is told at once
_MEND = """\
Your deck was rendered, and this is wrong with it:
{findings}

Mend exactly that and leave everything else as it is. Reply in one of these forms, without a remark:
- search-and-replace blocks: a line <<<<<<< SEARCH, whole lines of the deck, a line =======, the lines in their place, a line >>>>>>> REPLACE,
- a unified diff of the deck, hunks that begin with @@,
- the slides that change, each whole and under a line like === slide 3 ===,
- the whole deck.

The deck with its line numbers, which are no part of it:
{deck}"""


class NoEdit(ValueError):
    """A reply that changes nothing; the words say why."""


def messages(request: str, text: str, number: int, wish: str) -> list[dict[str, str]]:
    """What a model is asked for another slide `number` (from 1, of those shown) of its deck `text`."""
    user = (
        f"Change slide {number} of your deck, and no other: {wish}\n\n"
        f"Reply with the new slide {number} alone, in the same format: its frontmatter between "
        "lines of --- where it needs one, its content, and its notes. No other slide, no remark."
    )
    said = [
        ("system", templates.system_prompt()),
        ("user", request),
        ("assistant", text),
        ("user", user),
    ]
    return [{"role": role, "content": content} for role, content in said]


def changed(text: str, number: int, reply: str) -> str:
    """The deck `text` with slide `number` (from 1, of those shown) taken from a model's reply: the slide
    alone, or a whole deck of as many slides. Raises NoEdit."""
    deck = Deck.parse(text)
    old = deck.shown[number - 1]
    made = _spliced(text, old, _slide(deck, old, number, clean.clean(reply)[0]))
    again = Deck.parse(made).slides
    if len(again) != len(deck.slides):
        raise NoEdit("the model's reply would change the number of slides")
    for was, now in zip(deck.slides, again, strict=True):
        if was.no != old.no and _shown(was) != _shown(now):
            raise NoEdit(f"the model's reply would change slide {was.no} as well")
    return made


def _shown(slide: Slide) -> tuple[object, ...]:
    return slide.content, slide.note, slide.frontmatter, slide.hidden


def _slide(deck: Deck, old: Slide, number: int, reply: str) -> Slide:
    """The slide that a reply means."""
    given = Deck.parse(reply).shown if reply.strip() else []
    if not given:
        raise NoEdit("the model's reply is empty")
    if len(given) not in (1, len(deck.shown)):
        raise NoEdit(f"the model's reply has {len(given)} slides and not slide {number} alone")
    new = given[0] if len(given) == 1 else given[number - 1]
    if new.frontmatter_error:
        raise NoEdit(f"the frontmatter of the model's reply is no YAML: {new.frontmatter_error[0]}")
    is_slide = new.frontmatter or _HEADING.search(new.content)
    if not new.content.strip() or not (is_slide or not old.title):
        raise NoEdit("the model's reply is no slide: it has neither a heading nor a frontmatter")
    return new


def _spliced(text: str, old: Slide, new: Slide) -> str:
    lines = text.split("\n")
    before, after = lines[: old.start - 1], lines[old.end :]
    front: dict[str, Any] = new.frontmatter
    if old.no == 1:
        own = {key: value for key, value in front.items() if key not in SETTINGS}
        front = {**old.frontmatter, **own}  # of a broken block nothing is known
    elif old.frontmatter_line is None:
        while before and not before.pop().strip():
            pass  # blank lines, and the separator before them
    block = [f"{json.dumps(key)}: {json.dumps(value, default=str)}" for key, value in front.items()]
    opening = ["---", *block, "---"] if block else ["---"] if old.no > 1 else []
    note = ["", f"<!--\n{new.note}\n-->"] if new.note else []
    return "\n".join([*before, *opening, "", new.content.strip("\n"), *note, "", *after])


def findings(text: str, found: list[Finding]) -> str:
    """What a model is told to mend in its deck `text`, by the line of the deck (`found` as from lint.findings)."""
    lines = []
    for one in found[:FINDINGS]:
        said = " ".join(one["message"].split())[:300]
        lines.append(f"- line {one['line'] or '?'}, slide {one['slide'] or '?'}: {said}")
    if found[FINDINGS:]:
        lines.append(f"- and {len(found) - FINDINGS} more")
    numbered = [f"{number}: {line}" for number, line in enumerate(text.splitlines(), 1)]
    return _MEND.format(findings="\n".join(lines), deck="\n".join(numbered))


def edited(text: str, reply: str) -> str:
    """The same as `applied`; a reply that changes nothing raises NoEdit too."""
    made = applied(text, reply)
    if made.strip() == text.strip():
        raise NoEdit("the model's reply changes nothing")
    return made


def applied(text: str, reply: str) -> str:
    """The deck `text` changed by a reply: search-and-replace blocks, a unified diff, slides under `=== slide N ===`, or a
    whole deck. Raises NoEdit."""
    if not reply.strip():
        raise NoEdit("the model's reply is empty")
    if any(line.rstrip() == _BEGINS for line in reply.split("\n")):
        made = replaced(text, reply)
    elif _DIFF.search(reply):
        made = patched(text, reply)
    elif _MARK.search(reply):
        made = text
        for mark, part in _parts(_MARK, reply):
            number, shown = int(mark[1]), len(Deck.parse(text).shown)
            if not 1 <= number <= shown:
                raise NoEdit(f"the model's reply changes slide {number}, and the deck has {shown}")
            made = changed(made, number, part.strip("\n").removesuffix("```"))
    else:
        made = _whole(reply)
    return made


def replaced(text: str, reply: str) -> str:
    """The deck with every search-and-replace block applied, or none. A block's searched lines stand in the deck once, to the
    letter, as the blocks before it left the deck. Raises NoEdit."""
    made = f"\n{text}\n"  # so that whole lines have an end on both sides
    for number, (old, new) in enumerate(_blocks(reply), 1):
        if not old.strip():
            raise NoEdit(f"block {number} of the model's reply searches for nothing")
        found = len(re.findall(f"(?=\n{re.escape(old)})", made))  # they may share a line's end
        if found != 1:
            places = "not in the deck" if not found else f"at {found} places of the deck"
            raise NoEdit(f"the lines of block {number} of the model's reply are {places}")
        made = made.replace(f"\n{old}", f"\n{new}")
    return made[1:-1]


def _blocks(reply: str) -> Iterator[tuple[str, str]]:
    """What each search-and-replace block searches for, and what it puts there: whole lines. Raises NoEdit."""
    old: list[str] | None = None
    new: list[str] | None = None
    for line in reply.split("\n"):
        mark = line.rstrip()
        if old is None:
            old = [] if mark == _BEGINS else None
        elif new is None and mark == _PARTS:
            new = []
        elif new is not None and mark == _ENDS:
            yield "".join(old), "".join(new)
            old = new = None
        else:
            (old if new is None else new).append(f"{line}\n")
    if old is not None:
        raise NoEdit("a search-and-replace block of the model's reply does not end")


def _parts(marks: re.Pattern[str], reply: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each mark of a reply with what stands behind it."""
    found = [*marks.finditer(reply)]
    ends = [mark.start() for mark in found[1:]] + [len(reply)]
    for mark, end in zip(found, ends, strict=True):
        yield mark, reply[mark.end() : end]


@dataclass
class _Hunk:
    line: int | None  # where it says that it begins, from 1
    old: list[str]
    new: list[str]


def patched(text: str, reply: str) -> str:
    """The deck with every hunk of a unified diff applied, or none. A hunk's own lines stand in the deck to
    the letter: at the line that it names, or at one place only. Raises NoEdit."""
    lines, done, shift = text.split("\n"), 0, 0
    for number, hunk in enumerate(_hunks(reply), 1):
        at = _place(lines, hunk, done, shift, number)
        lines[at : at + len(hunk.old)] = hunk.new
        done = at + len(hunk.new)
        shift += len(hunk.new) - len(hunk.old)
    return "\n".join(lines)


def _hunks(reply: str) -> Iterator[_Hunk]:
    for mark, part in _parts(_DIFF, reply):
        hunk = _Hunk(int(mark[1]) if mark[1] else None, [], [])
        for line in part.removeprefix("\n").split("\n"):
            if line.startswith(("```", "\\")):
                break
            kind, rest = line[:1], line[1:]
            if kind not in ("", " ", "+", "-"):
                raise NoEdit(f"the model's diff has a line that is none of a diff: {line[:60]!r}")
            if kind != "+":
                hunk.old.append(rest)
            if kind != "-":
                hunk.new.append(rest)
        while hunk.old and hunk.new and not hunk.old[-1] and not hunk.new[-1]:
            hunk.old.pop()  # blank lines behind a hunk are often the reply's, not the deck's
            hunk.new.pop()
        yield hunk


def _place(lines: list[str], hunk: _Hunk, done: int, shift: int, number: int) -> int:
    """The index of a hunk's first line. Raises NoEdit."""
    size = len(hunk.old)
    if not size:
        raise NoEdit(f"hunk {number} of the model's diff names no line of the deck")
    if hunk.line is not None and lines[(at := hunk.line - 1 + shift) : at + size] == hunk.old:
        if at >= done:
            return at
    found = [at for at in range(done, len(lines) - size + 1) if lines[at : at + size] == hunk.old]
    if len(found) != 1:
        places = "not in the deck" if not found else f"at {len(found)} places of the deck"
        raise NoEdit(f"the lines of hunk {number} of the model's diff are {places}")
    return found[0]


def _whole(reply: str) -> str:
    """The deck that a reply is."""
    text = clean.clean(reply)[0]
    deck = Deck.parse(text)
    if len(deck.shown) < 2:
        why = "neither a diff, nor marked slides, nor several slides"
        raise NoEdit(f"the model's reply is no deck: {why}")
    if deck.faults:
        raise NoEdit(f"the frontmatter of the model's reply is no YAML: {deck.faults[0][2]}")
    return text
