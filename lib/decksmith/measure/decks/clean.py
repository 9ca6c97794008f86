"""From a model's reply to a clean deck: reasoning, fences and chatter removed, the author's text otherwise kept."""

import hashlib
import itertools
import re
from pathlib import Path
from typing import Any

from decksmith.core.records import Record
from decksmith.measure.decks.parser import FENCE, Deck

_THINK = re.compile(r"\s*<(think|thinking)>", re.I)
_DECK_LANGS = {"", "markdown", "md", "mdx", "slidev", "yaml", "yml", "text", "txt", "plaintext"}
_KEY = re.compile(r"[A-Za-z][\w-]*[ \t]*:(?:\s|$)")


def clean(text: str) -> tuple[str, str | None]:
    """A reply without what is not deck: (deck text, leftover reasoning or None). The deck text may be empty.

    In this order: BOM and CRLF; a leading think block (an opened one that never closes leaves no answer); an outer
    code fence with what stands around it; chatter before the headmatter; blank lines at both ends. Everything else
    stays as the author wrote it.
    """
    text = text.replace("\ufeff", "", 1) if text.lstrip().startswith("\ufeff") else text
    text = text.encode("utf-8", "replace").decode().replace("\r\n", "\n").lstrip("\n")
    text, thought = _unthink(text)
    lines = text.split("\n")
    outer = _outer_fence(lines)
    if outer:
        lines = outer
        text, again = _unthink("\n".join(lines).lstrip("\n"))
        thought, lines = thought or again, text.split("\n")
    text = "\n".join(lines[_chatter(lines) :])
    text = text.strip("\n") if text.strip() else ""
    return (text.rstrip() + "\n" if text else ""), thought


def _unthink(text: str) -> tuple[str, str | None]:
    thoughts: list[str] = []
    while m := _THINK.match(text):
        close = re.compile(rf"</{m.group(1)}>", re.I).search(text, m.end())
        if not close:
            return "", "\n".join([*thoughts, text[m.end() :].strip()])
        thoughts.append(text[m.end() : close.start()].strip())
        text = text[close.end() :].lstrip("\n")
    if not text.startswith("---"):  # a chat template may have written the opening tag itself
        close = re.search(r"</think(?:ing)?>[ \t]*(?:\n|$)", text, re.I)
        if close and not re.search(r"<think(?:ing)?>", text[: close.start()], re.I):
            thoughts.append(text[: close.start()].strip())
            text = text[close.end() :].lstrip("\n")
    return (text.lstrip() if thoughts else text), "\n".join(t for t in thoughts if t) or None


def _rule(line: str) -> bool:
    return line.rstrip() == "---"


def _frontmatter_at(lines: list[str], i: int) -> bool:
    """Whether line i opens a frontmatter block: a rule followed by a `key:` line, perhaps below a comment."""
    below = lines[i + 1 : i + 3]
    if not _rule(lines[i]) or not below:
        return False
    if _KEY.match(below[0]):
        return True
    return below[0].lstrip().startswith("#") and bool(_KEY.match(below[-1]))


def _outer_fence(lines: list[str]) -> list[str] | None:
    """The lines inside the code fence around a whole deck, or None when there is none."""
    for i, line in enumerate(lines):
        if _rule(line) and _frontmatter_at(lines, i):
            return None  # the deck has begun: a fence further down belongs to it
        m = FENCE.fullmatch(line)
        if not m or line.lstrip().startswith(">"):
            continue
        mark, lang = m.group(1), m.group(2).lower()
        inside = next((j for j in range(i + 1, len(lines)) if lines[j].strip()), None)
        if lang not in _DECK_LANGS or inside is None:
            return None
        first = lines[inside]
        if not (_rule(first) or first.startswith("# ") or _THINK.match(first)):
            return None
        if any(before.startswith("#") for before in lines[:i]):
            if lang not in ("markdown", "md", "slidev", "") or not _frontmatter_at(lines, inside):
                return None
        close = _closing(lines, i + 1, mark)
        body = lines[i + 1 : close]
        if lang in ("yaml", "yml") and close is not None:
            block = "\n".join(body).strip("\n").split("\n")
            ends = _rule(block[-1]) and sum(map(_rule, block)) == 2
            if ends and _slides_in(lines[close + 1 :]):  # only the headmatter was fenced
                return block + lines[close + 1 :]
        return body
    return None


def _closing(lines: list[str], i: int, mark: str) -> int | None:
    """The line that closes the outer fence, or None (cut off). Inner fences of the same length are told apart by their
    info string and, when they have none, by what follows."""
    marks: dict[int, bool] = {}  # lines with such a mark: whether nothing else stands there
    for j in range(i, len(lines)):
        m = FENCE.fullmatch(lines[j])
        if m and m.group(1)[0] == mark[0] and len(m.group(1)) >= len(mark):
            marks[j] = not (m.group(2) + m.group(3)).strip()
    last = max((j for j, bare in marks.items() if bare), default=None)
    inner = False
    more_slides: tuple[bool, int] | None = None  # below a line; looked for again past it only
    for j, bare in marks.items():
        if not bare:
            inner = True
        elif inner:
            inner = False
        elif j == last:
            return j
        else:
            if more_slides is None or j > more_slides[1]:
                more_slides = (_slides_in(lines[j + 1 :]), j)
            if not lines[j + 1].strip() and not more_slides[0]:
                return j
            inner = True
    return last if inner else None


def _slides_in(lines: list[str]) -> bool:
    """Whether these lines hold slides: a frontmatter block, or a rule whose next text is a heading."""
    for i, line in enumerate(lines):
        if _rule(line):
            following = next((x for x in lines[i + 1 : i + 6] if x.strip()), "")
            if _frontmatter_at(lines, i) or following.startswith("# "):
                return True
    return False


def _chatter(lines: list[str]) -> int:
    """How many lines stand before the deck. Text before the headmatter is chatter when that block names a theme (only
    a headmatter does), or when it is prose without any slide in it."""
    for i in range(len(lines)):
        if not _rule(lines[i]):
            m = FENCE.fullmatch(lines[i])
            if m and not lines[i].lstrip().startswith(">"):
                return 0
            continue
        if not _frontmatter_at(lines, i):
            continue
        before = [x for x in lines[:i] if x.strip()]
        if not before:
            return i
        block = itertools.takewhile(lambda x: not _rule(x), lines[i + 1 :])
        if any(x.startswith("theme:") for x in block):
            return i
        prose = all(x.lstrip()[:1] not in "#|<-*!" and not _KEY.match(x) for x in before)
        return i if prose and (before[-1].rstrip().endswith(":") or len(before) == 1) else 0
    return 0


def current(run: Path, value: Record) -> bool:
    """Whether a journaled `deck` value may be used again: a fault, or a deck.md that still has the bytes it names."""
    if "error" in value:
        return True
    try:
        return hashlib.sha256((run / value["path"]).read_bytes()).hexdigest() == value["sha256"]
    except OSError:
        return False


def parse(run: Path, record: Record) -> Record:
    """Write <id>/gen.md, reasoning.md (if any) and deck.md under `run` from `record["gen"]`; returns the `deck` value
    of docs/records.md; under a condition with a template, `template` is that one.

    Raises stream.Fault of kind model: `empty-reply` (no text and no reasoning), `no-deck` (reasoning only, or nothing
    left).
    """
    from decksmith.core import stream

    gen, folder = record["gen"], run / record["id"]
    reply, reasoning = gen.get("text") or "", gen.get("reasoning") or ""
    text, thought = clean(reply)
    reasoning = reasoning if reasoning.strip() else thought or ""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("deck.md", "reasoning.md"):
        (folder / name).unlink(missing_ok=True)  # nothing of an earlier reply may stay behind
    stream.write(folder / "gen.md", reply.encode("utf-8", "replace"))
    if reasoning.strip():
        stream.write(folder / "reasoning.md", (reasoning.strip() + "\n").encode("utf-8", "replace"))
    if not text and reasoning.strip():
        raise stream.Fault("model", "no-deck", "the reply holds reasoning but no deck")
    if not text and reply.strip():
        raise stream.Fault("model", "no-deck", "nothing is left of the reply")
    if not text:
        raise stream.Fault("model", "empty-reply", "the reply is empty")
    data = text.encode()
    stream.write(folder / "deck.md", data)
    parsed = Deck.parse(text)
    return {
        "path": f"{record['id']}/deck.md",
        "slides": len(parsed.shown),
        "theme": parsed.theme,
        "sha256": hashlib.sha256(data).hexdigest(),
        **template_of(record),
    }


def inputs(record: Record) -> list[Any]:
    """Everything that the `deck` value of a record depends on, for the journal."""
    gen = record["gen"]
    return ["clean-1", gen.get("text"), gen.get("reasoning"), *template_of(record).values()]


def template_of(record: Record) -> Record:
    """`{"template": ..}` of a reply under a condition with a template, else {}."""
    under = (record["gen"].get("condition") or {}).get("template")
    return {"template": under} if under else {}
