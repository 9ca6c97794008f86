"""Mending what is mechanical in a draft: line ends, think tags, fences, misplaced separators (draft-check --fix)."""

import re
from pathlib import Path

from decksmith.core import stream
from decksmith.corpus import drafts, rules, slides
from decksmith.corpus.drafts import FILES, Fault, fault, line_at
from decksmith.decks import clean
from decksmith.decks.parser import Deck

Said = list[tuple[int, str, str]]  # what a step did: (line, rule, message)


def fix(folder: Path | str) -> list[Fault]:
    """Mend a draft's files, each written whole or not at all; returns what was done as [{"file", "line", "rule",
    "message"}]."""
    done = []
    for name in FILES:
        path = Path(folder) / name
        try:
            before = drafts.read(path).decode()
        except (OSError, UnicodeDecodeError):
            continue
        text = before
        for step in STEPS[name]:
            text, said = step(text)
            done += [fault(name, line, rule, message) for line, rule, message in said]
        if text != before:
            stream.write(path, text)
    return done


def _encoding(text: str) -> tuple[str, Said]:
    said = []
    if text.startswith("\ufeff"):
        text = text[1:]
        said.append((1, "encoding", "byte order mark taken away"))
    if "\r" in text:
        said.append((line_at(text, text.index("\r")), "encoding", "line ends made LF"))
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, said


def _fence(text: str) -> tuple[str, Said]:
    bare = text.strip()
    if not rules.is_fenced(bare):
        return text, []
    inside = "\n".join(bare.split("\n")[1:-1]).strip()
    return f"{inside}\n", [(1, "prompt-fenced", "the fence around it taken away")]


def _tags(text: str) -> tuple[str, Said]:
    bare = re.sub(r"(?i)\A\s*<think(?:ing)?>\s*|\s*</think(?:ing)?>\s*\Z", "", text)
    if bare == text:
        return text, []
    return bare.strip() + "\n", [(1, "tags", "think tags taken away")]


def _wrapped(text: str) -> tuple[str, Said]:
    bare = clean.clean(text)[0]
    if not bare or bare.strip() == text.strip():
        return text, []
    return bare, [(1, "wrapped", "what stood around the deck taken away")]


def _loose(text: str) -> tuple[str, Said]:
    """Frontmatter that a blank line parts from its separator."""
    said = []
    while slide := _first_loose(text):
        lines = text.split("\n")
        del lines[slide.start - 1 : slide.content_line - 1]
        text = "\n".join(lines)
        message = "blank line before the frontmatter taken away"
        said.append((slide.start, "frontmatter-blank", message))
    return text, said


def _first_loose(text: str):
    for slide in Deck.parse(text).slides[1:]:
        if slides.is_loose_frontmatter(slide) and slide.content_line > slide.start:
            return slide
    return None


def _double(text: str) -> tuple[str, Said]:
    """A deck whose first frontmatter is followed by that of its first slide."""
    first_two = Deck.parse(text).slides[:2]
    if len(first_two) < 2:
        return text, []
    head, slide = first_two
    both = head.frontmatter and slide.frontmatter
    is_bare = not (head.content or head.note)
    if not both or not is_bare or set(head.frontmatter) & set(slide.frontmatter):
        return text, []
    lines = text.split("\n")
    close = next(i for i in range(head.start, len(lines)) if lines[i].rstrip() == "---")
    del lines[close : slide.start]
    message = "two frontmatters at the beginning made one"
    return "\n".join(lines), [(close + 1, "empty-slide", message)]


def _trailing(text: str) -> tuple[str, Said]:
    said = []
    while _ends_with_separator(text):
        bare = text.rstrip()
        text = bare[: bare.rindex("\n---")].rstrip() + "\n"
        said.append((line_at(text, len(text)), "empty-slide", "trailing `---` taken away"))
    return text, said


def _ends_with_separator(text: str) -> bool:
    """Whether the last slide is nothing but the separator in front of it."""
    last = Deck.parse(text).slides[-1:]
    if not last or last[0].no == 1 or last[0].frontmatter_line is not None:
        return False
    is_empty = not (last[0].content or last[0].note)
    return is_empty and re.search(r"\n---[ \t]*\Z", text.rstrip()) is not None


STEPS = {
    "PROMPT.md": (_encoding, _fence),
    "think.md": (_encoding, _tags),
    "deck.md": (_encoding, _wrapped, _loose, _double, _trailing),
}
