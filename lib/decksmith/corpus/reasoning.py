"""The strict rules for think.md: its form, no claim to have seen a render, and nothing said of the deck that it has not."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from decksmith.corpus import slides
from decksmith.corpus.drafts import HEADINGS, WORDS, Fault, fault, line_at
from decksmith.decks import words as deck_words
from decksmith.decks.parser import Deck

_RENDER_CLAIM = re.compile(r"""(?ix)
    \b(?:I|we)\s(?:have\s|then\s|also\s)*(?:rendered|previewed|exported|screenshotted)\b
    | \b(?:I|we)\s(?:have\s|then\s)*(?:saw|seen|looked\sat|opened|checked|viewed)\s(?:the|it|each|every|all)\b
      [^.\n]{0,40}\b(?:render\w*|screenshots?|preview|browser|on\sscreen|PNGs?|PDF)\b
    | \b(?:after|post|on|upon|once|when\sI)[\s-]render(?:ing|ed)?\b | \brender(?:ing)?[\s-]feedback\b
    | \b(?:the|this|my)\s(?:\w+\s)?(?:render(?:ed|ing)?|screenshots?|preview)\b(?:\s\w+){0,2}\s
      (?:shows?|showed|looks?|looked|confirms?|confirmed|revealed|came\sout)\b
    | \bin\sthe\s(?:render|rendered\s\w+|screenshot|preview)\b
    | \bnach\sdem\srendern\b|\bgerendert|\bim\sscreenshot\b|\bdie\svorschau\szeigt
    | \baprès\s(?:le\s)?rendu\b|\bj'ai\s(?:rendu|affiché|prévisualisé)\b|\bcapture\sd'écran
    | \b(?:tras|al|después\sde)\srenderizar|\brenderiz(?:ado|ada|ei|é)\b|\bcaptura\sde\s(?:pantalla|tela|ecrã)
    | \bdopo\s(?:il\s)?render|\bho\srenderizzato|\bna\shet\srenderen\b""")
# A sentence with one of these may name what the deck does not have.
_NEGATION = re.compile(r"""(?ix)\b(?:not?|non|none|never|nothing|nowhere|without|rather|instead|avoid\w*|skip\w*|drop\w*
    |reject\w*|consider\w*|tempt\w*|unlike|neither|nor|would|could|might|omit\w*|cannot|against|left\sout|leave\w*|spare\w*
    |kein\w*|nicht|ohne|statt|anstatt|weder|verzicht\w*|wäre\w*|würde\w*|könnte\w*|pas|sans|plutôt|aucune?|ni|jamais|serait
    |sin|sem|não|ningun\w*|nenhum\w*|lugar|vez|sería|seria|senza|nessun\w*|invece|geen|niet|zonder|zou
    |ingen|inga|inget|utan|ikke|uden|inte|nie|bez|не|без|нет|ani)\b|n't\b|n’t\b|ない|せず|使わ|ません|不|没|沒|無|无|않|없""")
_END = re.compile(r"[.!?;]\s|[。！？；]|\n\s*\n|\n(?=\s*(?:[-*+]|\d{1,2}[.)])\s)")
_TABLE = r"\ba table\b|\btable of\b|^\s*\d+[.)] (?:`[\w-]+`:? )?Table\b"
# How think.md names what a deck may have, by the names of slides.found_features.
_NAMES = (("mermaid", r"\bmermaid\b"), ("katex", r"\bkatex\b"), ("clicks", r"\bv-clicks?\b"))


@dataclass
class Section:
    """What stands below a heading: its text and the offset where that begins."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def wrong(text: str, offset: int, rule: str, message: str) -> Fault:
    """A fault of think.md at an offset of its text."""
    return fault("think.md", line_at(text, offset), rule, message)


def faults(text: str, seed: dict[str, Any], deck: Deck | None) -> Iterator[Fault]:
    """What is wrong with the reasoning by its text. It is compared with `deck` where there is one."""
    heads = [(m[1].strip(), m) for m in re.finditer(r"(?m)^##[ \t]+(.+)$", text)]
    sections = {}
    for index, (name, match) in enumerate(heads):
        end = heads[index + 1][1].start() if index + 1 < len(heads) else len(text)
        sections[name] = Section(match.end(), text[match.end() : end])
    yield from _headings(text, heads, sections)
    said = deck_words.length(deck_words.fold(text))
    if not WORDS[0] <= said <= WORDS[1]:
        yield wrong(text, 0, "think-words", f"{said:g} words")
    about = " ".join(str(seed.get(key) or "") for key in ("topic", "domain", "style"))
    if not re.search(r"(?i)render|screenshot", about):
        if claim := next(_asserted(text, _RENDER_CLAIM), None):
            yield wrong(text, claim.start(), "think-render", f"think says {claim[0]!r}")
    if deck is not None and deck.slides:
        yield from _disagreements(text, sections, deck)


def _headings(
    text: str, heads: list[tuple[str, re.Match[str]]], sections: dict[str, Section]
) -> Iterator[Fault]:
    for name in HEADINGS:
        if name not in sections:
            yield wrong(text, 0, "think-headings", f"no heading {name!r}")
        elif not sections[name].text.strip():
            message = f"nothing stands below {name!r}"
            yield wrong(text, sections[name].start, "think-headings", message)
    seen = set()
    for name, match in heads:
        if name in seen or name not in HEADINGS:
            word = "twice" if name in HEADINGS else "besides the six"
            message = f"the heading {name[:60]!r} stands {word}"
            yield wrong(text, match.start(), "think-headings", message)
        seen.add(name)
    known = [name for name in sections if name in HEADINGS]  # in the order of the text
    if known != sorted(known, key=HEADINGS.index):
        yield wrong(text, 0, "think-headings", "the headings are out of order")


def _sentence(text: str, at: int) -> str:
    """The sentence, or the item of a list, that stands at an offset."""
    first = max(0, at - 1000)
    start = max((match.end() for match in _END.finditer(text, first, at)), default=first)
    end = _END.search(text, at)
    return text[start : end.end() if end else len(text)]


def _asserted(
    text: str, pattern: re.Pattern[str], section: Section | None = None
) -> Iterator[re.Match[str]]:
    """The matches whose sentence has no word of negation, in all of the text or one section of it."""
    start, end = (section.start, section.end) if section else (0, len(text))
    for match in pattern.finditer(text, start, end):
        if not _NEGATION.search(_sentence(text, match.start())):
            yield match


def _disagreements(text: str, sections: dict[str, Section], deck: Deck) -> Iterator[Fault]:
    """What think.md says of the deck and the deck does not have."""
    mapping = sections.get("Key slide mapping", Section(0, ""))
    yield from _lacking_layouts(text, mapping, deck)
    counts = slides.found_features(deck)
    for name, pattern in _NAMES:
        match = next(_asserted(text, re.compile(pattern, re.I)), None)
        if match and not counts[name]:
            yield wrong(text, match.start(), "think-deck", f"the deck has no {match[0]}")
    match = next(_asserted(text, re.compile(_TABLE, re.I), mapping), None)
    if match and not counts["table"]:
        yield wrong(text, match.start(), "think-deck", "the deck has no table")
    yield from _misplaced(text, mapping, deck)


def _lacking_layouts(text: str, mapping: Section, deck: Deck) -> Iterator[Fault]:
    """A layout is named in backticks. Outside of the mapping only compound names are no plain words of some language."""
    lacking = slides.layouts(deck) - {slide.layout for slide in deck.shown}
    for match in _asserted(text, re.compile(r"`(?:layout: ?)?([\w-]+)`", re.I)):
        is_layout = "-" in match[1] or mapping.start <= match.start() < mapping.end
        if match[1] in lacking and is_layout:
            yield wrong(text, match.start(), "think-deck", f"no slide has the layout {match[1]}")


def _misplaced(text: str, mapping: Section, deck: Deck) -> Iterator[Fault]:
    """Slides that the mapping's numbered list plans and the deck does not have, or has otherwise."""
    known, shown = slides.layouts(deck), deck.shown
    items = _items(mapping.text)
    if items and items[-1][0] > len(shown):
        number, at, _ = items[-1]
        message = f"slide {number} is planned, the deck has {len(shown)}"
        yield wrong(text, mapping.start + at, "think-deck", message)
    for number, at, item in items:
        named = {name for name in re.findall(r"`([\w-]+)`", item) if name in known}
        if not named or number > len(shown) or _NEGATION.search(item):
            continue
        layout = shown[number - 1].layout
        if layout not in named:
            message = f"slide {number} is planned as {' or '.join(sorted(named))}, it is {layout}"
            yield wrong(text, mapping.start + at, "think-deck", message)


def _items(text: str) -> list[tuple[int, int, str]]:
    """(number, offset, text) of the items 1, 2, 3, .. of a numbered list, by lines or running on."""
    marks = list(re.finditer(r"(?m)^\s*(\d{1,2})[.)]\s+", text))
    if len(marks) < 2:
        marks = list(re.finditer(r"(?:\A|(?<=\s))(\d{1,2})[.)]\s+", text))
    kept: list[re.Match[str]] = []
    for mark in marks:
        if int(mark[1]) == len(kept) + 1:
            kept.append(mark)
    ends = [mark.start() for mark in kept[1:]] + [len(text)]
    return [
        (int(mark[1]), mark.start(1), text[mark.end() : end])
        for mark, end in zip(kept, ends, strict=False)  # without items there is one end more
    ]
