"""The rules of the corpus: what a draft must keep to by its text alone, and what to do about each.

deck_rules.py has those of deck.md; check.py sees what is rendered.
"""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from decksmith.core import config_files
from decksmith.measure.decks import templates, words
from decksmith.measure.decks.parser import THEMES, Deck
from decksmith.train.corpus import deck_rules, drafts
from decksmith.train.corpus.drafts import (
    FEATURES,
    FILES,
    HEADINGS,
    LEAST,
    SEED_THEMES,
    WORDS,
    fault,
    line_at,
)
from decksmith.train.corpus.records import DraftFault, Seed

VERSION = "check-3"  # raise it when a verdict changes: journals keep verdicts
MOST = 100  # faults of a draft that are told
Place = tuple[int, str, str]  # offset in a text, rule, message
_FILE_NAMES = re.compile(
    r"(?i)\b(?:PROMPT\.md|think\.md|deck\.md|seed\.json|INSTRUCTIONS\.md|EXAMPLE\.md|status\.json"
    r"|reasons\.txt|run\.log)\b"
)
_TRAINING = re.compile(
    r"(?i)\b(?:chain[- ]of[- ]thought|training (?:data|set|example)s?|SFT|supervised fine[- ]tuning"
    r"|internal pipeline|reasoning trace|system prompt|seed record|data ?set row)\b"
)
_OF_TRAINING = re.compile(
    r"(?i)\btrain|machine learning|language model|\bLLM|neural|deep learning|\bAI\b|artificial"
    r"|fine[- ]tun|\bprompt"
)
_SECRET = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{20,}|hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|AKIA[A-Z0-9]{16}"
    r"|xox[abp]-[A-Za-z0-9-]{20,})\b|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_UNWANTED = (("\r", "a carriage return"), ("\0", "a NUL"), ("\u2028", "a line separator"))
_WORDS = config_files.asset("draft-words.toml")
_RENDER_CLAIM = re.compile(_WORDS["render_claim"])
# A sentence with one of these may name what the deck does not have.
_NEGATION = re.compile(_WORDS["negation"])
_END = re.compile(r"[.!?;]\s|[。！？；]|\n\s*\n|\n(?=\s*(?:[-*+]|\d{1,2}[.)])\s)")


def faults(folder: Path | str, seed: Seed) -> list[DraftFault]:
    """What is wrong with a draft by its text alone, in order of file and line; see `check.rendered`
    for the rest."""
    found, unread = drafts.texts(folder)
    out = [*unread, *_strict(found, seed)]
    if (under := seed.get("template")) and (deck := found["deck.md"]):
        template = templates.held(folder, under, Path(folder).name)
        for one in templates.findings(template, deck):
            out.append(fault("deck.md", one["line"] or 1, one["check"], one["message"]))
    once = {(f["file"], f["line"], f["rule"], f["message"]): f for f in out}.values()
    return sorted(once, key=drafts.place)[:MOST]


def instructions() -> str:
    """INSTRUCTIONS.md of an author's folder: the task, the strict rules as they are checked, the
    cheat sheet."""
    told = [f"- {rule}: {remedy}" for rule, remedy in drafts.STRICT.items()]
    task = templates.prompt_text("author-instructions.md").replace("{rules}", "\n".join(told))
    return f"{task}\n\n{templates.prompt_text('slidev-cheatsheet.md')}\n"


def seed_faults(seed: Seed) -> Iterator[DraftFault]:
    """What is wrong with a seed itself, as faults of seed.json."""
    if seed.get("theme") not in THEMES:
        yield fault("seed.json", 1, "seed", f"the theme is not one of {', '.join(THEMES)}")
    if not isinstance(seed.get("slides"), int) or isinstance(seed["slides"], bool):
        yield fault("seed.json", 1, "seed", "slides is not a whole number")
    if not isinstance(seed.get("language"), str):
        yield fault("seed.json", 1, "seed", "no language")
    if unknown := [f for f in seed.get("features") or [] if f not in FEATURES]:
        yield fault("seed.json", 1, "seed", f"unknown features: {', '.join(map(str, unknown))}")


def _strict(found: dict[str, str | None], seed: Seed) -> Iterator[DraftFault]:
    prompt, think, deck = (found[name] for name in FILES)
    plain = (think or "").removeprefix("\ufeff").replace("\r\n", "\n")
    yield from seed_faults(seed)
    for name, text in found.items():
        for offset, rule, message in _any(text, LEAST[name]) if text is not None else ():
            yield fault(name, line_at(text or "", offset), rule, message)
    for offset, rule, message in _prompt(prompt, seed) if prompt is not None else ():
        yield fault("PROMPT.md", line_at(prompt or "", offset), rule, message)
    thoughts = _think(plain, seed) if think is not None else ()
    for offset, rule, message in itertools.islice(thoughts, MOST):
        yield fault("think.md", line_at(plain, offset), rule, message)
    if deck is not None:
        yield from itertools.islice(deck_rules.faults(deck, Deck.parse(deck), seed), MOST)


def _any(text: str, least: int) -> Iterator[Place]:
    if len(text.strip().encode("utf-8", "replace")) < least:
        yield 0, "size", f"fewer than {least} bytes"
    if text.startswith("\ufeff"):
        yield 0, "encoding", "the file begins with a byte order mark"
    for bad, word in _UNWANTED:
        if bad in text:
            yield text.index(bad), "encoding", f"the text has {word}"
    if match := re.search(r"(?i)</?think(?:ing)?>", text):
        yield match.start(), "tags", f"the text has {match[0]}"
    if match := _SECRET.search(text):
        yield match.start(), "secret", "something that looks like a key"


def _prompt(text: str, seed: Seed) -> Iterator[Place]:
    lines = text.strip().split("\n")
    marks = [index for index, line in enumerate(lines) if line.lstrip().startswith("```")]
    if len(marks) == 2 and marks == [0, len(lines) - 1]:
        yield 0, "prompt-fenced", "a code fence stands around the prompt"
    if match := _FILE_NAMES.search(text):
        yield match.start(), "prompt-leak", f"the prompt names the file {match[0]}"
    keys = ("topic", "domain", "style", "outline", "audience_phrase")
    about = json.dumps([seed.get(key) for key in keys], ensure_ascii=False)
    if (match := _TRAINING.search(text)) and not _OF_TRAINING.search(about):
        yield match.start(), "prompt-leak", f"the prompt says {match[0]!r} and its topic is another"
    named = {theme for theme in THEMES if theme != "default" and re.search(_naming(theme), text)}
    if named and seed.get("theme") not in named:
        yield 0, "prompt-theme", f"the prompt names {', '.join(sorted(named))}, the seed another"


def _naming(theme: str) -> str:
    """A pattern for the name of a theme in a prompt. Other names than those of the seeds are words
    too: they count beside the word theme, or as code."""
    name = theme.replace("-", "[- ]")
    if theme in SEED_THEMES:
        return rf"(?i)\b{name}\b"
    word = r"(?:theme|Thema|thème|tema|テーマ|主题|主題)"
    return rf"(?i)`{name}`|\b{name}[- ]{word}|{word}\W{{1,3}}{name}\b"


def _think(text: str, seed: Seed) -> Iterator[Place]:
    """What is wrong with the reasoning: its form, its length, a claim to have seen a render."""
    heads = [(m[1].strip(), m) for m in re.finditer(r"(?m)^##[ \t]+(.+)$", text)]
    ends = [match.start() for _, match in heads[1:]] + [len(text)]
    seen: list[str] = []
    for (name, match), end in zip(heads, ends, strict=False):  # without heads there is one end more
        if name not in HEADINGS or name in seen:
            word = "twice" if name in HEADINGS else "besides the six"
            yield match.start(), "think-headings", f"the heading {name[:60]!r} stands {word}"
        elif not text[match.end() : end].strip():
            yield match.end(), "think-headings", f"nothing stands below {name!r}"
        seen.append(name)
    for name in HEADINGS:
        if name not in seen:
            yield 0, "think-headings", f"no heading {name!r}"
    known = [name for name in dict.fromkeys(seen) if name in HEADINGS]  # in the order of the text
    if known != sorted(known, key=HEADINGS.index):
        yield 0, "think-headings", "the headings are out of order"
    said = words.length(words.fold(text))
    if not WORDS[0] <= said <= WORDS[1]:
        yield 0, "think-words", f"{said:g} words"
    about = " ".join(str(seed.get(key) or "") for key in ("topic", "domain", "style"))
    if not re.search(r"(?i)render|screenshot", about):
        for claim in _RENDER_CLAIM.finditer(text):
            # The sentence, or the item of a list, that it stands in.
            at, first = claim.start(), max(0, claim.start() - 1000)
            start = max((match.end() for match in _END.finditer(text, first, at)), default=first)
            stop = _END.search(text, at)
            if not _NEGATION.search(text[start : stop.end() if stop else len(text)]):
                yield at, "think-render", f"think says {claim[0]!r}"
                break
