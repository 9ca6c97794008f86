"""The profile `published`: the gates of the published corpus one by one, as they are, weaknesses included.

Facts of trillion-labs/nemoslides, cli/codex_pipeline.py and pipeline/slidev_reference.py.
"""

import re
from collections.abc import Iterator

from decksmith.corpus.drafts import FILES, HEADINGS, LEAST, WORDS, Fault, fault, line_at
from decksmith.decks.parser import THEMES

REMEDIES = {
    "prompt-size": "write at least 40 bytes to PROMPT.md",
    "prompt-stub": "replace the stub",
    "prompt-short": "write at least 40 bytes besides blanks",
    "prompt-fenced": "take the code fence away from around the prompt",
    "prompt-terms": "ask for a deck without words about training or reasoning",
    "think-size": "write at least 400 bytes to think.md",
    "think-stub": "replace the stub",
    "think-headings": "write all six headings as they are given",
    "think-short": "write at least 250 words",
    "think-long": "write at most 1200 words",
    "think-seed": "speak of the user prompt and not of a seed",
    "think-render": "do not claim to have seen a render",
    "deck-size": "write at least 300 bytes to deck.md",
    "deck-stub": "replace the stub",
    "deck-start": "begin the deck with a line `---` and nothing before it",
    "deck-headmatter": "close the first frontmatter with a line `---`",
    "deck-cover": "write layout: cover, without quotes, into the first frontmatter",
    "deck-no-theme": "name the theme in the first frontmatter",
    "deck-theme": "name one of the listed themes",
    "deck-no-layout": "give the slides a layout",
    "deck-layout": "use the listed layouts, also inside of code",
    "deck-blank-line": "let the frontmatter follow its `---` at once",
    "deck-layout-first": "begin the frontmatter of each slide with layout:",
    "deck-image-url": "write image-query: in place of an address",
    "deck-slides": "write at least 4 slides, each with a frontmatter that begins with layout:",
}
LISTED_THEMES = tuple(name for name, theme in THEMES.items() if theme["published"])
LISTED_LAYOUTS = (
    "cover",
    "default",
    "center",
    "section",
    "statement",
    "fact",
    "intro",
    "end",
    "two-cols",
    "image-right",
    "image-left",
    "image",
    "quote",
    "full",
)
_PREFIX = {"PROMPT.md": "prompt", "think.md": "think", "deck.md": "deck"}
_TERMS = re.compile(
    r"(?i)\b(?:think\.md|chain[- ]of[- ]thought|training data|sft|supervised fine[- ]tuning"
    r"|internal pipeline)\b"
)
# The last never matches: it is sought in lower-case text.
_RENDER_CLAIMS = ("render feedback", "after rendering", "post-render", "I rendered")


def faults(found: dict[str, str | None], unread: list[Fault]) -> Iterator[Fault]:
    """What is wrong with a draft's texts (`drafts.texts`), file by file. A file that cannot be read counts as too short."""
    for lack in unread:
        if lack["rule"] == "missing":
            yield fault(lack["file"], 1, f"{_PREFIX[lack['file']]}-size", lack["message"])
    for name, gate in zip(FILES, (_prompt, _think, _deck), strict=True):
        text = found[name]
        if text is not None:
            yield from _sized(name, text)
            yield from gate(text)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _sized(name: str, text: str) -> Iterator[Fault]:
    if _bytes(text) < LEAST[name]:
        yield fault(name, 1, f"{_PREFIX[name]}-size", f"fewer than {LEAST[name]} bytes")
    if text.strip().startswith("<!--\nCodex:"):
        yield fault(name, 1, f"{_PREFIX[name]}-stub", "the file is still its stub")


def _prompt(text: str) -> Iterator[Fault]:
    bare = text.strip()
    if _bytes(bare) < LEAST["PROMPT.md"] <= _bytes(text):
        yield fault("PROMPT.md", 1, "prompt-short", "fewer than 40 bytes besides blanks")
    if bare.startswith("```") or bare.endswith("```"):
        yield fault("PROMPT.md", 1, "prompt-fenced", "the prompt begins or ends with a code fence")
    if match := _TERMS.search(text):
        line = line_at(text, match.start())
        yield fault("PROMPT.md", line, "prompt-terms", f"the prompt says {match[0]!r}")


def _think(text: str) -> Iterator[Fault]:
    for heading in HEADINGS:  # anywhere, in any order
        if f"## {heading}" not in text:
            yield fault("think.md", 1, "think-headings", f"no heading {heading!r}")
    length = len(text.split())
    if length < WORDS[0]:
        yield fault("think.md", 1, "think-short", f"{length} words")
    if length > WORDS[1]:
        yield fault("think.md", 1, "think-long", f"{length} words")
    low = text.lower()
    if "seed" in low and "user prompt" not in low:  # never alone: the first heading has these words
        line = line_at(text, low.index("seed"))
        yield fault("think.md", line, "think-seed", "a seed is named, the user prompt is not")
    if phrase := next((phrase for phrase in _RENDER_CLAIMS if phrase in low), None):
        line = line_at(text, low.index(phrase))
        yield fault("think.md", line, "think-render", f"think says {phrase!r}")


def _named(text: str, key: str) -> list[tuple[str, int]]:
    """[(value, line)] of a key wherever it stands, in code too."""
    matches = re.finditer(rf"(?m)^\s*{key}:\s*(\S+)", text)
    return [(match[1].strip("\"'"), line_at(text, match.start(1))) for match in matches]


def _deck(text: str) -> Iterator[Fault]:
    def wrong(line: int, rule: str, message: str) -> Fault:
        return fault("deck.md", line, rule, message)

    if not text.startswith("---\n"):
        yield wrong(1, "deck-start", "the deck does not begin with `---` and a line's end")
    head = re.match(r"---\n(.*?)\n---\n", text, re.S)
    if not head:
        yield wrong(1, "deck-headmatter", "the first frontmatter is not closed, or not there")
    elif not re.search(r"(?m)^\s*layout:\s*cover\b", head[1]):
        yield wrong(1, "deck-cover", "the first frontmatter has no layout: cover")
    themes, layouts = _named(text, "theme"), _named(text, "layout")
    if not themes:
        yield wrong(1, "deck-no-theme", "no theme is named")
    elif themes[0][0] not in LISTED_THEMES:
        name, line = themes[0]
        yield wrong(line, "deck-theme", f"the theme {name} is not on the list")
    if not layouts:
        yield wrong(1, "deck-no-layout", "no layout is named")
    unknown = [(name, line) for name, line in layouts if name not in LISTED_LAYOUTS]
    if unknown:
        names = ", ".join(sorted({name for name, _ in unknown}))
        yield wrong(unknown[0][1], "deck-layout", f"unknown layouts: {names}")
    if blank := re.search(r"\n---\n(?:[ \t]*\n)+layout:\s*\S", text):
        line = line_at(text, blank.start() + 1)
        yield wrong(line, "deck-blank-line", "a blank line before the frontmatter")
    slides = len(re.findall(r"\n---\nlayout:\s*\S", text)) + 1  # that begin with a layout
    if layouts and len(layouts) != slides:
        message = f"{len(layouts)} layouts are named, {slides} slides begin with one"
        yield wrong(1, "deck-layout-first", message)
    if url := re.search(r"(?m)^\s*image:\s*https?://", text):
        yield wrong(line_at(text, url.end()), "deck-image-url", "an image is an address")
    if slides < 4:
        yield wrong(1, "deck-slides", f"{slides} slides")
