"""The rules of the corpus: what a draft must keep to by its text alone.

Two profiles judge drafts. `published` has the gates of the published corpus as they are (published.py); `strict` reads
the deck with our parser (here, slides.py and reasoning.py) and what is rendered of it (check.py).
"""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decksmith.corpus import drafts, published, reasoning, slides
from decksmith.corpus.drafts import FEATURES, FILES, LEAST, SEED_THEMES, Fault, fault, line_at
from decksmith.decks import prompts, templates
from decksmith.decks.parser import THEMES, Deck

VERSION = "check-2"  # raise it when a verdict changes: journals keep verdicts
MOST = 100  # faults of a draft that are told
# Each strict rule with what to do about it.
STRICT = {
    "seed": "write the seed as docs/records.md has it",
    "missing": "write the file, as a regular file of at most 256 kB",
    "size": "write the whole text",
    "encoding": "save the file as UTF-8 with LF line ends and without BOM (--fix does it)",
    "tags": "leave out <think> tags (--fix does it)",
    "secret": "take the key out and revoke it",
    "prompt-fenced": "take the code fence away from around the prompt (--fix does it)",
    "prompt-leak": "ask as a person would who wants a deck and knows nothing of how it is made",
    "prompt-theme": "ask for the seed's theme, or for none",
    "think-headings": "write the six headings once each, in their order, each with text below it",
    "think-words": "write 250 to 1200 words",
    "think-render": "say what is planned; nobody has seen this deck on a screen",
    "think-deck": "let think.md and deck.md agree: change one of them",
    "wrapped": "write the deck alone: no fence, thought or greeting around it (--fix does it)",
    "headmatter": "begin the deck with a frontmatter that names theme and title",
    "frontmatter-blank": "let the frontmatter follow its `---` at once (--fix does it)",
    "yaml": "write the frontmatter as `key: value` lines; put values with *, &, %, :, # or ` in quotes",
    "theme": "name the theme that was asked for in the first frontmatter",
    "slides": f"come to the number of slides that was asked for, at most {slides.SLIDES_OFF} off",
    "unknown-layout": "use a layout of Slidev or of the theme",
    "slots": "write the slot marks of the layout (`::right::`; `::left::` and `::right::` with a header) on own lines",
    "remote-url": "load nothing and link nowhere: write image-query: for a picture, plain words for a source",
    "picture": "ask for pictures by image-query: in an image layout, or by ![caption](image-query://words+with+plus)",
    "note": "write the note as one HTML comment at the end of the slide",
    "comment": "close each HTML comment before the next slide",
    "empty-slide": "give the slide words or take it out (--fix takes a trailing `---` away)",
    "fence": "close the code fence with the mark that opened it, on a line of its own",
    "unknown-component": "use plain HTML or Slidev's own components; show <T> and the like as `code`",
    "forbidden": "leave out scripts, frames, embeds, handlers and files",
    "interpolation": "write `{{` only inside of code; Vue evaluates it elsewhere",
    "language": "write the deck in the language that was asked for",
    "feature": "use what was asked for",
    "placeholder": "write the real text",
    # what only a rendered deck shows
    "overflow": "shorten the slide, split it, or set a smaller zoom in its frontmatter",
    "blank": "give the slide something that can be seen",
    "missing-image": "ask for the picture by image-query:",
    "vue-compile": "close every HTML tag that is opened; keep blank lines around markdown inside of tags",
    "vue-runtime": "use no variables in the deck",
    "unknown-theme": f"name one of the themes {', '.join(THEMES)}",
    "mermaid": "write a diagram that Mermaid reads; quote labels with brackets or colons",
    "katex": "write a formula that KaTeX reads",
    "too-few-slides": "come to the number of slides that was asked for",
    "fenced-deck": "write the deck without a fence around it",
    "deadline": "make the deck cheaper to draw",
    "memory": "make the deck smaller",
}
# Of a seed with a template (docs/templates.md); no author without one is told of them.
OF_TEMPLATE = dict.fromkeys(templates.RULES, "follow the template")
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
# Of a deck with one of these, nothing can be said that think.md must agree with: it is cut wrongly.
_CUT_WRONGLY = {"wrapped", "frontmatter-blank", "yaml", "unknown-layout", "fence", "comment"}


def faults(folder: Path | str, seed: dict[str, Any], profile: str = "strict") -> list[Fault]:
    """What is wrong with a draft by its text alone, in order of file and line; see `check.rendered` for the rest."""
    found, unread = drafts.texts(folder)
    if profile == "published":
        out = list(published.faults(found, unread))
        remedies = published.REMEDIES
    else:
        out = [*unread, *_strict(found, seed)]
        if seed.get("template") and found["deck.md"]:
            out += _of_template(Path(folder), seed, found["deck.md"])
        remedies = STRICT | OF_TEMPLATE
    once = {(f["file"], f["line"], f["rule"], f["message"]): f for f in out}.values()
    for one in once:
        one["remedy"] = remedies[one["rule"]]
    return sorted(once, key=lambda f: (f["file"] != "seed.json", *drafts.place(f)))[:MOST]


def _of_template(folder: Path, seed: dict[str, Any], text: str) -> Iterator[Fault]:
    template = templates.held(folder, seed["template"], folder.name)
    for one in templates.findings(template, text):
        yield fault("deck.md", one["line"] or 1, one["rule"], one["message"])


def instructions() -> str:
    """INSTRUCTIONS.md of an author's folder: the task, the strict rules as they are checked, the cheat sheet."""
    told = [
        f"- {rule}: {remedy.replace(' (--fix does it)', '')}" for rule, remedy in STRICT.items()
    ]
    task = prompts.text("author-instructions.md").replace("{rules}", "\n".join(told))
    return f"{task}\n\n{prompts.text('slidev-cheatsheet.md')}\n"


def seed_faults(seed: dict[str, Any]) -> Iterator[Fault]:
    """What is wrong with a seed itself, as faults of seed.json."""
    if seed.get("theme") not in THEMES:
        yield fault("seed.json", 1, "seed", f"the theme is not one of {', '.join(THEMES)}")
    if not isinstance(seed.get("slides"), int) or isinstance(seed["slides"], bool):
        yield fault("seed.json", 1, "seed", "slides is not a whole number")
    if not isinstance(seed.get("language"), str):
        yield fault("seed.json", 1, "seed", "no language")
    if unknown := [f for f in seed.get("features") or [] if f not in FEATURES]:
        yield fault("seed.json", 1, "seed", f"unknown features: {', '.join(map(str, unknown))}")


def is_fenced(text: str) -> bool:
    """Whether one code fence stands around all of a text."""
    lines = text.split("\n")
    marks = [index for index, line in enumerate(lines) if line.lstrip().startswith("```")]
    return len(marks) == 2 and marks == [0, len(lines) - 1]


def _strict(found: dict[str, str | None], seed: dict[str, Any]) -> Iterator[Fault]:
    prompt, think, text = (found[name] for name in FILES)
    yield from seed_faults(seed)
    for name, whole in found.items():
        if whole is not None:
            yield from _any(name, whole)
    if prompt is not None:
        yield from _prompt(prompt, seed)
    deck = None
    if text is not None:
        deck = Deck.parse(text)
        of_deck = list(itertools.islice(slides.faults(text, deck, seed), MOST))
        yield from of_deck
        if _CUT_WRONGLY & {f["rule"] for f in of_deck}:
            deck = None
    if think is not None:
        plain = think.removeprefix("\ufeff").replace("\r\n", "\n")
        yield from itertools.islice(reasoning.faults(plain, seed, deck), MOST)


def _any(name: str, text: str) -> Iterator[Fault]:
    if len(text.strip().encode("utf-8", "replace")) < LEAST[name]:
        yield fault(name, 1, "size", f"fewer than {LEAST[name]} bytes")
    if text.startswith("\ufeff"):
        yield fault(name, 1, "encoding", "the file begins with a byte order mark")
    for bad, word in _UNWANTED:
        if bad in text:
            yield fault(name, line_at(text, text.index(bad)), "encoding", f"the text has {word}")
    if match := re.search(r"(?i)</?think(?:ing)?>", text):
        yield fault(name, line_at(text, match.start()), "tags", f"the text has {match[0]}")
    if match := _SECRET.search(text):
        line = line_at(text, match.start())
        yield fault(name, line, "secret", "something that looks like a key")


def _prompt(text: str, seed: dict[str, Any]) -> Iterator[Fault]:
    def wrong(offset: int, rule: str, message: str) -> Fault:
        return fault("PROMPT.md", line_at(text, offset), rule, message)

    if is_fenced(text.strip()):
        yield wrong(0, "prompt-fenced", "a code fence stands around the prompt")
    if match := _FILE_NAMES.search(text):
        yield wrong(match.start(), "prompt-leak", f"the prompt names the file {match[0]}")
    keys = ("topic", "domain", "style", "outline", "audience_phrase")
    about = json.dumps([seed.get(key) for key in keys], ensure_ascii=False)
    if (match := _TRAINING.search(text)) and not _OF_TRAINING.search(about):
        message = f"the prompt says {match[0]!r} and its topic is another"
        yield wrong(match.start(), "prompt-leak", message)
    named = {theme for theme in THEMES if theme != "default" and re.search(_naming(theme), text)}
    if named and seed.get("theme") not in named:
        message = f"the prompt names {', '.join(sorted(named))}, the seed another"
        yield wrong(0, "prompt-theme", message)


def _naming(theme: str) -> str:
    """A pattern for the name of a theme in a prompt.

    Other names than those of the seeds are words too: they count beside the word theme, or as code.
    """
    name = theme.replace("-", "[- ]")
    if theme in SEED_THEMES:
        return rf"(?i)\b{name}\b"
    word = r"(?:theme|Thema|thème|tema|テーマ|主题|主題)"
    return rf"(?i)`{name}`|\b{name}[- ]{word}|{word}\W{{1,3}}{name}\b"
