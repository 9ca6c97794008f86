"""The only Slidev parser of the toolkit: it slices decks exactly as @slidev/parser 52.20.1 does, without Node, in time linear
in the text, and never raises on any text: what is wrong with a deck is recorded in it."""

import functools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decksmith.measure.decks.frontmatter import Block, Mark, parse_block

# What JavaScript's trim() and \s mean by white space; Python's own set differs (it lacks U+FEFF and has U+001C to
# U+001F, U+0085).
JS_SPACE = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)

# Characters of hostile frontmatter that are read. The largest block in an honest deck is below 2 kB.
YAML_BLOCK, YAML_DECK = 16_384, 262_144

# The themes that we ship, by the name a deck gives: {package, published (of the published corpus), seeds (our
# seeds ask for it, and set-up bundles it), layouts (its own, besides Slidev's)}. `make theme` adds one.
THEMES = json.loads(
    (Path(__file__).resolve().parents[4] / "assets/renderer/themes.json").read_bytes()
)

# Slidev's built-in layouts; the slots are the `::name::` parts that a layout shows besides its default one.
_ONE_PART = (
    "default center cover end fact full intro none quote section statement "
    "image image-left image-right iframe iframe-left iframe-right"
)
LAYOUTS: dict[str, tuple[str, ...]] = dict.fromkeys(_ONE_PART.split(), ())
LAYOUTS |= {"two-cols": ("right",), "two-cols-header": ("left", "right")}

_FRONTMATTER = re.compile(r"---[^\n\r\u2028\u2029]*\r?\n(.*?)---", re.S)
_YAML_FENCE = re.compile(rf"[{JS_SPACE}]*```ya?ml(.*?)```", re.S)
_JS_CODE = re.compile(r"(?:\A|(?<=[\n\r\u2028\u2029]))```.+?(?:(?<=[\n\r\u2028\u2029])```)", re.S)
_JS_HEADING = re.compile(r"(?:\A|(?<=[\n\r\u2028\u2029]))#+ ([^\n\r\u2028\u2029]*)")
FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*([^\s`{]*)(.*)")


@dataclass
class Fence:
    """A fenced block: language (lower case, may be empty), rest of the info string, first and last line, text."""

    lang: str
    info: str
    line: int
    end: int
    text: str
    closed: bool


@dataclass
class Image:
    """A picture a slide asks for. `kind`: markdown, src, url, or the frontmatter key (image, background, ...)."""

    url: str
    line: int
    kind: str


@dataclass
class Query:
    """An image query and the characters `start`..`stop` that it takes. `kind`: `key` (an entry `image-query: ..`), `uri`
    (`image-query://..`) or `value` (that of the image which a slide with such an entry already names)."""

    text: str
    line: int
    start: int
    stop: int
    kind: str


@dataclass
class Slide:
    """One slide as Slidev cuts it. Lines are 1-based in the deck's text, both ends included.

    `start`, `end`: the slide with its frontmatter, without the separator in front of a slide that has none.
    `frontmatter_error`: None or (message, line). `content`: trimmed, without frontmatter and trailing note.
    `layout`: what Slidev will show. `yaml`: the frontmatter as text, `marks` where its keys stand in it."""

    no: int
    start: int
    end: int
    raw: str
    frontmatter: dict[str, Any]
    frontmatter_error: tuple[str, int | None] | None
    frontmatter_line: int | None
    content: str
    content_line: int
    note: str | None
    title: str | None
    layout: str
    offset: int
    content_offset: int
    yaml: str = field(repr=False)
    yaml_offset: int = field(repr=False)
    marks: dict[str, Mark] = field(repr=False)

    @property
    def hidden(self) -> bool:
        """True when Slidev drops the slide: by `hide` or `disabled`, or for the slides of the file that `src` names."""
        said = map(self.frontmatter.get, ("hide", "disabled", "src"))
        # What JavaScript takes for true: an empty list, and no number that is none.
        return any(value not in (None, False, 0, "") and value == value for value in said)

    def key_line(self, key: str) -> int:
        """The line of a key of the frontmatter, or of the slide where it has no such key."""
        return self.marks[key].line if key in self.marks else self.start

    @functools.cached_property
    def fences(self) -> list[Fence]:
        """Fenced code blocks of the content, in order."""
        return _fences(self.content, self.content_line)

    @functools.cached_property
    def _unfenced(self) -> str:
        """The content with fences blanked, line for line and character for character."""
        lines = self.content.split("\n")
        for fence in self.fences:
            for i in range(fence.line - self.content_line, fence.end - self.content_line + 1):
                lines[i] = " " * len(lines[i])
        return "\n".join(lines)

    @functools.cached_property
    def prose(self) -> str:
        """The content with fences and HTML comments blanked, line for line and character for character."""
        return _blanked(self._unfenced, _comments(self._unfenced))

    @functools.cached_property
    def comments(self) -> list[tuple[int, str]]:
        """HTML comments outside fences as (line, text), without the note."""
        bare = self._unfenced
        return [
            (self.content_line + bare.count("\n", 0, a), bare[a + 4 : b - 3].strip())
            for a, b in _comments(bare)
        ]

    @functools.cached_property
    def images(self) -> list[Image]:
        """Every picture of the slide: frontmatter, markdown images, src attributes, css url()."""
        out = []
        for key in ("image", "background", "backgroundImage"):
            value = self.frontmatter.get(key)
            if isinstance(value, str) and value and (key != "background" or _IMAGE.search(value)):
                out.append(Image(value, self.key_line(key), key))
        for kind, pattern in (("markdown", _MD_IMAGE), ("src", _SRC), ("url", _URL)):
            for m in pattern.finditer(self.prose):
                url = next(g for g in m.groups() if g is not None).strip()
                if kind == "markdown":
                    url = re.sub(r"\s+(\"[^\"]*\"|'[^']*')$", "", url).strip("<>").strip()
                if url:
                    line = self.content_line + self.prose.count("\n", 0, m.start())
                    out.append(Image(url, line, kind))
        return out

    @functools.cached_property
    def text(self) -> str:
        """The visible words: no code, comments, tags, markdown marks, formulas or diagrams."""
        return visible(self.prose)


@dataclass
class Deck:
    """A parsed deck. `text` is the text that line numbers refer to (without BOM, CRLF as LF)."""

    text: str
    slides: list[Slide]

    @classmethod
    def parse(cls, text: str) -> "Deck":
        """Cut a deck into slides by Slidev's rules. Any string gives a Deck; time is linear in its length."""
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        slides: list[Slide] = []
        budget = YAML_DECK
        for start, end, offset, stop in _slices(text):
            slide = _slide(text[offset:stop], len(slides) + 1, start, end, offset, budget)
            budget -= len(slide.yaml) + 32 * bool(slide.yaml)  # a block costs more than its letters
            slides.append(slide)
        deck = cls(text, slides)
        usual, cover = deck.headmatter.get("defaults"), next(iter(deck.shown), None)
        layout = usual.get("layout") if isinstance(usual, dict) else None
        for slide in slides:
            named = slide.frontmatter.get("layout", layout)
            slide.layout = str(named or ("cover" if slide is cover else "default"))
        return deck

    @property
    def headmatter(self) -> dict[str, Any]:
        """The first slide's frontmatter, which also configures the deck."""
        return self.slides[0].frontmatter if self.slides else {}

    @property
    def theme(self) -> str:
        """The theme's name; `default` when none is named."""
        theme = self.headmatter.get("theme")
        return theme if isinstance(theme, str) and theme else "default"

    @property
    def shown(self) -> list[Slide]:
        """The slides that Slidev shows: those neither hidden nor disabled."""
        return [s for s in self.slides if not s.hidden]

    @property
    def faults(self) -> list[tuple[int, int | None, str]]:
        """Frontmatter errors as (slide number, line, message)."""
        return [(s.no, e[1], e[0]) for s in self.slides if (e := s.frontmatter_error)]

    @functools.cached_property
    def queries(self) -> list[Query]:
        """Image queries in text order (see Query): frontmatter entries and URIs outside code and comments."""
        found = [query for slide in self.slides for query in _queries(self.text, slide)]
        return sorted(found, key=lambda query: query.start)


def _slices(text: str) -> Iterator[tuple[int, int, int, int]]:
    """(first line, line after the last, offsets of the first and the last character) of each slide."""
    lines = text.split("\n")
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    closes = _closing_marks(lines)
    start = i = 0
    comment = False
    while i < len(lines):
        line = lines[i].rstrip(JS_SPACE)
        if comment:
            comment = _in_comment(lines[i], True)
        elif line.startswith("---"):
            if start != i:
                yield start, i, offsets[start], offsets[i] - 1
                start = i + 1
            if line[3:4] != "-" and i + 1 < len(lines) and lines[i + 1].strip(JS_SPACE):
                start = i
                i += 1
                while i < len(lines) and lines[i].rstrip(JS_SPACE) != "---":
                    i += 1
        elif line.lstrip(JS_SPACE).startswith("```"):
            i = closes.get(i, i)
        else:
            comment = _in_comment(lines[i], False)
        i += 1
    if start < len(lines):
        yield start, len(lines), offsets[start], len(text)


def _closing_marks(lines: list[str]) -> dict[int, int]:
    """For each line with a code mark, the next as deep with as many ticks: it closes the block."""
    closes: dict[int, int] = {}
    below: dict[str, list[tuple[int, int]]] = {}  # by indentation: marks that still can close one
    for i in range(len(lines) - 1, -1, -1):
        bare = lines[i].lstrip(JS_SPACE)
        if bare.startswith("```"):
            ticks = len(bare) - len(bare.lstrip("`"))
            marks = below.setdefault(lines[i][: len(lines[i]) - len(bare)], [])
            while marks and marks[-1][1] < ticks:
                marks.pop()
            if marks:
                closes[i] = marks[-1][0]
            marks.append((i, ticks))
    return closes


def _in_comment(line: str, inside: bool) -> bool:
    """Whether an HTML comment is open after `line`."""
    at = 0
    while (at := line.find("-->" if inside else "<!--", at)) >= 0:
        at += 3 if inside else 4
        inside = not inside
    return inside


def _slide(raw: str, no: int, start: int, end: int, offset: int, budget: int) -> Slide:
    """Slide `no` of lines `start`..`end` (0-based, without the last); `budget`: characters of frontmatter to read."""
    m = _FRONTMATTER.match(raw) or _YAML_FENCE.match(raw)
    block = Block({}, None, {})
    yaml, yaml_line, yaml_at, rest = "", None, 0, 0
    if m:
        rest, yaml_at = m.end(), offset + m.start(1)
        yaml_line = start + 1 + raw.count("\n", 0, m.start(1))
        if len(m.group(1)) > min(YAML_BLOCK, budget):
            block = Block({}, ("frontmatter is too large to read", yaml_line), {})
        else:
            yaml = m.group(1)
            block = parse_block(yaml, yaml_line)
    body = raw[rest:]
    content = body.strip(JS_SPACE)
    at = rest + len(body) - len(body.lstrip(JS_SPACE))
    note = None
    found = _comments(content)
    if found and found[-1][1] >= len(content):
        a, b = found[-1]
        note = content[a + 4 : b - 3].strip(JS_SPACE)
        content = content[:a].strip(JS_SPACE)
    return Slide(
        no=no,
        start=start + 1,
        end=end,
        raw=raw,
        frontmatter=block.data,
        frontmatter_error=block.error,
        frontmatter_line=yaml_line,
        content=content,
        content_line=start + 1 + raw.count("\n", 0, at),
        note=note,
        title=_title(block.data, content),
        layout="",
        offset=offset,
        content_offset=offset + at,
        yaml=yaml,
        yaml_offset=yaml_at,
        marks=block.marks,
    )


def _title(data: dict[str, Any], content: str) -> str | None:
    """The title that the frontmatter names, or the first heading outside of code."""
    title = data.get("title") or data.get("name")
    if title is not None and title not in ("", False, 0):
        return str(title)
    m = _JS_HEADING.search(_JS_CODE.sub("", content))
    return m.group(1).strip(JS_SPACE) if m else None


def _comments(text: str) -> list[tuple[int, int]]:
    """(start, end) of each HTML comment, in linear time."""
    out, at = [], 0
    while (a := text.find("<!--", at)) >= 0 and (b := text.find("-->", a + 4)) >= 0:
        at = b + 3
        out.append((a, at))
    return out


_MD_IMAGE = re.compile(r"!\[[^\]\n]{0,300}\]\(([^)\n]{1,2000})\)")
_SRC = re.compile(r"""\b(?:src|image)\s*=\s*(?:"([^"\n]{1,2000})"|'([^'\n]{1,2000})')""")
_URL = re.compile(
    r"""\burl\(\s*(?:"([^"\n]{1,2000})"|'([^'\n]{1,2000})'|([^"')\n]{1,2000}))\s*\)"""
)
_IMAGE = re.compile(
    r"^(?-i:/|http|image-query:)|\.(png|jpe?g|gif|svg|webp|avif|ico|bmp|tiff?)$", re.I
)


def _fences(content: str, first: int) -> list[Fence]:
    """Fenced blocks by markdown's rules (a close is the same mark, at least as long, alone on its line)."""
    out: list[Fence] = []
    opened, mark, body = None, "", [""]
    for number, line in enumerate(content.split("\n"), first):
        m = FENCE.match(line)
        if opened is None:
            if m and not (m[1][0] == "`" and "`" in m[3]):
                opened = Fence(m[2].lower(), m[3].strip(), number, number, "", False)
                mark, body = m[1], []
                out.append(opened)
        elif m and m[1].startswith(mark) and not (m[2] + m[3]).strip():
            opened.end, opened.text, opened.closed = number, "\n".join(body), True
            opened = None
        else:
            body.append(line)
    if opened:
        opened.end, opened.text = first + content.count("\n"), "\n".join(body)
    return out


def _blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """A text with blanks in place of some spans, line for line."""
    out, at = [], 0
    for a, b in spans:
        out += [text[at:a], re.sub(r"[^\n]", " ", text[a:b])]
        at = b
    return "".join(out) + text[at:]


def visible(prose: str) -> str:
    """The words a reader sees. Also drops style and script blocks, slot marks and table rules."""
    text = re.sub(r"\$\$[^$]{0,5000}\$\$", " ", _blanked(prose, _blocks(prose)))
    text = TAG.sub(" ", LINK.sub(r"\1", PICTURE.sub(" ", text)))
    words = []
    for line in text.split("\n"):
        line = line.strip()
        if line.strip("|:- \t") and not SLOT.fullmatch(line):
            words += _MARKS.sub(" ", _LEAD.sub("", line)).split()
    return " ".join(words)


TAG = re.compile(r"</?[A-Za-z][^<>]{0,2000}>")
PICTURE = re.compile(r"!\[[^\]\n]{0,300}\]\([^)\n]{0,2000}\)")
LINK = re.compile(r"\[([^\]\n]{0,300})\]\([^)\n]{0,2000}\)")
SLOT = re.compile(r"::\s*([\w.:-]+)\s*::")
_LEAD = re.compile(r"(?:#{1,6}\s|[-*+]\s|\d{1,9}[.)]\s|>\s?)+")
_MARKS = re.compile(r"[*_`~|]+")


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """The spans of <style> and <script> elements; an unclosed one swallows the rest, as in a browser."""
    at = 0
    for m in re.finditer(r"<(style|script)\b[^<>\n]{0,300}>", text, re.I):
        if m.start() < at:
            continue
        close = re.compile(rf"</{m.group(1)}\s*>", re.I).search(text, m.end())
        at = close.end() if close else len(text)
        yield m.start(), at


_URI = re.compile(
    r"""(?<=")image-query://([^"\n]*) | (?<=')image-query://([^'\n]*) | (?<=<)image-query://([^<>\n]*)
    | (?<=\()\s*image-query://([^()\n"'<>]*?)(?=\s*(?:\s["'][^\n"']*["']\s*)?\)) | image-query://([^\s()"'<>`\]}]*)""",
    re.X,
)


def _queries(text: str, slide: Slide) -> list[Query]:
    from urllib.parse import unquote_plus

    base, marks = slide.yaml_offset, slide.marks
    taken: list[tuple[int, int]] = []
    found: list[Query] = []

    def add(words: str, line: int, a: int, b: int, kind: str) -> None:
        words = " ".join(words.split())
        if words and not any(a < y and x < b for x, y in taken):
            taken.append((a, b))
            found.append(Query(words, line, a, b, kind))

    value = slide.frontmatter.get("image-query")
    named = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    if named and (entry := marks.get("image-query")):
        span = (base + entry.key, base + entry.value_end)
        if image := marks.get("image"):  # a second `image:` would be a key twice
            taken.append(span)
            add(str(value), image.line, base + image.value, base + image.value_end, "value")
        else:
            add(str(value), entry.line, *span, "key")
    for key, mark in marks.items():
        value = slide.frontmatter.get(key)
        if isinstance(value, str) and value.startswith("image-query://"):
            at = (base + mark.value, base + mark.value_end)
            add(unquote_plus(value[14:]), mark.line, *at, "uri")
    bare = re.sub(r"(`+)[^`\n]{1,500}?\1", lambda m: " " * len(m.group()), slide.prose)
    for offset, part in ((slide.content_offset, bare), (base, slide.yaml if marks else "")):
        for m in _URI.finditer(part):
            a = offset + part.index("image-query:", m.start())
            words = unquote_plus(next(g for g in m.groups() if g is not None))
            add(words, text.count("\n", 0, a) + 1, a, offset + m.end(), "uri")
    return found
