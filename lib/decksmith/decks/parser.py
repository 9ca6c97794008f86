"""The only Slidev parser of the toolkit.

Slices decks exactly as @slidev/parser 52.20.1 does (tests/decks/test_parser.py compares the two), without Node, in time
linear in the text, and never raises on any text: what is wrong with a deck is recorded in it.
"""

import functools
import itertools
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What JavaScript's trim() and \s mean by white space; Python's own set differs (it lacks U+FEFF and has U+001C to
# U+001F, U+0085).
JS_SPACE = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)

# Bounds against hostile frontmatter. The largest block in an honest deck is below 2 kB.
YAML_BLOCK, YAML_DECK, YAML_NODES, YAML_DEPTH = 16_384, 262_144, 5_000, 40

# The themes that we ship, by the name a deck gives: {package, published (a theme of the published corpus), seeds (our seeds
# ask for it, and set-up bundles it), layouts (its own, besides Slidev's)}. `make theme` adds one.
THEMES = json.loads(
    (Path(__file__).resolve().parents[3] / "assets/renderer/themes.json").read_bytes()
)

# Slidev's built-in layouts; the slots are the `::name::` parts that a layout shows besides its default one.
LAYOUTS = {
    "default": (),
    "center": (),
    "cover": (),
    "end": (),
    "fact": (),
    "full": (),
    "intro": (),
    "none": (),
    "quote": (),
    "section": (),
    "statement": (),
    "image": (),
    "image-left": (),
    "image-right": (),
    "iframe": (),
    "iframe-left": (),
    "iframe-right": (),
    "two-cols": ("right",),
    "two-cols-header": ("left", "right"),
}

_FRONTMATTER = re.compile(r"---[^\n\r\u2028\u2029]*\r?\n(.*?)---", re.S)
_YAML_FENCE = re.compile(rf"[{JS_SPACE}]*```ya?ml(.*?)```", re.S)
_JS_CODE = re.compile(r"(?:\A|(?<=[\n\r\u2028\u2029]))```.+?(?:(?<=[\n\r\u2028\u2029])```)", re.S)
_JS_HEADING = re.compile(r"(?:\A|(?<=[\n\r\u2028\u2029]))#+ ([^\n\r\u2028\u2029]*)")
FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*([^\s`{]*)(.*)")


@dataclass
class Fence:
    """A fenced block: language (lower case, may be empty), rest of the info string, first and last line in the deck,
    and its text."""

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
    """An image query: its text, where it stands in the deck's text (characters `start`..`stop`), and what kind of
    place that is.

    `kind` is `key` (a frontmatter entry `image-query: ..`, the span covers key and value), `uri` (`image-query://..`,
    the span covers the whole URI) or `value` (an entry whose slide already names an image: the span covers that
    image's value).
    """

    text: str
    line: int
    start: int
    stop: int
    kind: str


@dataclass
class Slide:
    """One slide as Slidev cuts it. Lines are 1-based in the deck's text, both ends included.

    `start`, `end`: the slide with its frontmatter, without the separator in front of a slide that has none.
    `frontmatter_error`: None or (message, line). `content`: trimmed, without frontmatter and trailing note;
    `content_line` its first line. `layout`: what Slidev will show (cover for slide 1, else default, when nothing is
    named).
    """

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
    _marks: dict[str, Any] = field(default_factory=dict, repr=False)
    content_offset: int = field(default=0, repr=False)
    _yaml_offset: int = field(default=0, repr=False)

    @property
    def hidden(self) -> bool:
        """True when Slidev drops the slide (`hide: true` or `disabled: true`)."""
        return bool(self.frontmatter.get("hide") or self.frontmatter.get("disabled"))

    def key_line(self, key: str) -> int:
        """The line of a key of the frontmatter, or of the slide where it has no such key."""
        return self._marks[key][0] if key in self._marks else self.start

    @functools.cached_property
    def fences(self) -> list[Fence]:
        """Fenced code blocks of the content, in order."""
        return _fences(self.content, self.content_line)

    @functools.cached_property
    def prose(self) -> str:
        """The content with fences and HTML comments blanked, line for line and character for character."""
        return _blank_comments(_blank_fences(self.content, self.fences, self.content_line))

    @functools.cached_property
    def comments(self) -> list[tuple[int, str]]:
        """HTML comments outside fences as (line, text), without the note."""
        bare = _blank_fences(self.content, self.fences, self.content_line)
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
            if (
                isinstance(value, str)
                and value
                and (key != "background" or _looks_like_image(value))
            ):
                out.append(Image(value, self.key_line(key), key))
        for kind, pattern in (("markdown", _MD_IMAGE), ("src", _SRC), ("url", _URL)):
            for m in pattern.finditer(self.prose):
                url = next(g for g in m.groups() if g is not None).strip()
                if kind == "markdown":
                    url = re.sub(r"\s+(\"[^\"]*\"|'[^']*')$", "", url).strip("<>").strip()
                if url:
                    out.append(
                        Image(url, self.content_line + self.prose.count("\n", 0, m.start()), kind)
                    )
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
        for start, end, offset in _slices(text):
            slide = _slide(text, len(slides) + 1, start, end, offset, budget)
            budget -= len(slide._marks.get("", ""))
            slides.append(slide)
        return cls(text, slides)

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
        return [
            (s.no, s.frontmatter_error[1], s.frontmatter_error[0])
            for s in self.slides
            if s.frontmatter_error
        ]

    @property
    def images(self) -> list[tuple[int, Image]]:
        """Every picture of the deck as (slide number, Image)."""
        return [(s.no, image) for s in self.slides for image in s.images]

    @functools.cached_property
    def queries(self) -> list[Query]:
        """Image queries in text order (see Query): frontmatter entries and URIs outside code and comments."""
        return sorted(
            (q for s in self.slides for q in _queries(self.text, s)), key=lambda q: q.start
        )


# --- slicing --------------------------------------------------------------------------------------


def _slices(text):
    """(first line, line after the last, character offset) of each slide, lines 0-based: the official parser's loop as
    a scan by lines."""
    lines = text.split("\n")
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    marks = _Marks(lines)
    start = i = 0
    comment = False
    while i < len(lines):
        line = lines[i].rstrip(JS_SPACE)
        if comment:
            comment = _in_comment(lines[i], True)
        elif line.startswith("---"):
            if start != i:
                yield start, i, offsets[start]
                start = i + 1
            if line[3:4] != "-" and i + 1 < len(lines) and lines[i + 1].strip(JS_SPACE):
                start = i
                i += 1
                while i < len(lines) and lines[i].rstrip(JS_SPACE) != "---":
                    i += 1
        elif line.lstrip(JS_SPACE).startswith("```"):
            close = marks.close(i)
            i = i if close is None else close
        else:
            comment = _in_comment(lines[i], False)
        i += 1
    if start < len(lines):
        yield start, len(lines), offsets[start]


class _Marks:
    """Lines that begin with a code mark, by indentation: finds the line that closes a block in time linear over a
    whole deck."""

    def __init__(self, lines):
        self.by_indent = {}
        for i, line in enumerate(lines):
            bare = line.lstrip(JS_SPACE)
            if bare.startswith("```"):
                ticks = len(bare) - len(bare.lstrip("`"))
                self.by_indent.setdefault(line[: len(line) - len(bare)], []).append((i, ticks))
        self.most = {}  # for each marked line, the longest mark at its indentation from there on
        for marks in self.by_indent.values():
            longest = 0
            for i, ticks in reversed(marks):
                longest = self.most[i] = max(longest, ticks)
        self.place = {
            i: (indent, k)
            for indent, marks in self.by_indent.items()
            for k, (i, _) in enumerate(marks)
        }

    def close(self, i):
        """The line that closes the block opened on line i (same indentation, at least as many ticks, anything after
        them), or None."""
        indent, k = self.place[i]
        marks = self.by_indent[indent]
        if k + 1 == len(marks) or self.most[marks[k + 1][0]] < marks[k][1]:
            return None
        return next(j for j, ticks in itertools.islice(marks, k + 1, None) if ticks >= marks[k][1])


def _in_comment(line, inside):
    """Whether an HTML comment is open after `line`."""
    at = 0
    while at < len(line):
        end = line.find("-->" if inside else "<!--", at)
        if end < 0:
            return inside
        if inside:
            inside, at = False, end + 3
        else:
            inside, at = True, end + 4
            if at >= len(line):
                return True
    return inside


def _slide(text, no, start, end, offset, budget):
    lines_end = offset
    for _ in range(end - start):
        lines_end = text.find("\n", lines_end) + 1 or len(text) + 1
    raw = text[offset : lines_end - 1]
    m = _FRONTMATTER.match(raw) or _YAML_FENCE.match(raw)
    data, error, marks, yaml_line, yaml_at = {}, None, {}, None, 0
    rest = 0
    if m:
        rest, yaml_at = m.end(), offset + m.start(1)
        yaml_line = start + 1 + raw.count("\n", 0, m.start(1))
        source = m.group(1)
        if len(source) > min(YAML_BLOCK, budget):
            error = ("frontmatter is too large to read", yaml_line)
        elif source:
            data, fault, spans = _yaml(source)
            marks = {
                key: (yaml_line + line, a, b, c, d) for key, (line, a, b, c, d) in spans.items()
            }
            error = fault and (fault[0], yaml_line + fault[1])
            marks[""] = source
    body = raw[rest:]
    content = body.strip(JS_SPACE)
    at = rest + len(body) - len(body.lstrip(JS_SPACE))
    note = None
    found = _comments(content)
    if found and found[-1][1] >= len(content):
        a, b = found[-1]
        note = content[a + 4 : b - 3].strip(JS_SPACE)
        content = content[:a].strip(JS_SPACE)
    title = data.get("title") or data.get("name")
    if title is None or title == "" or title is False or title == 0:
        m = _JS_HEADING.search(_JS_CODE.sub("", content))
        title = m.group(1).strip(JS_SPACE) if m else None
    layout = data.get("layout") or ("cover" if no == 1 else "default")
    return Slide(
        no,
        start + 1,
        end,
        raw,
        data,
        error,
        yaml_line,
        content,
        start + 1 + raw.count("\n", 0, at),
        note,
        title if title is None else str(title),
        str(layout),
        offset,
        marks,
        offset + at,
        yaml_at,
    )


def _comments(text):
    """(start, end) of each HTML comment, in linear time."""
    out, at = [], 0
    while (a := text.find("<!--", at)) >= 0 and (b := text.find("-->", a + 4)) >= 0:
        out.append((a, b + 3))
        at = b + 3
    return out


# --- frontmatter ----------------------------------------------------------------------------------


def _yaml(source):
    """One block of YAML 1.2 (core schema) as (dict, error, marks), cached by text.

    `error`: None or (message, line within the block); `marks`: key -> (line, key start, key end, value start, value
    end) within it. Never raises. A block that is not a mapping is an error: Slidev drops its text from the slide
    without a word.
    """
    data, error, marks = _yaml_cached(source)
    return _copy(data), error, marks


def _copy(value):
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list) else value


# ruamel ends lines at these; YAML 1.2 and Slidev do not.
_YAML_END = re.compile(r"(?m)^\.\.\.[ \t\r]*$")
_BREAKS = {0x85: 0xE085, 0x2028: 0xE028, 0x2029: 0xE029}
_BREAKS_BACK = {b: a for a, b in _BREAKS.items()}


@functools.lru_cache(4096)
def _yaml_cached(source):
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    # As Slidev's YAML does: `...` ends the block, and tabs after a colon or at a line's end are blanks (ruamel refuses
    # them), except for a tab that stands alone on the last line below a key without a value.
    if end := _YAML_END.search(source):
        after = [
            n
            for n, line in enumerate(source[end.end() :].split("\n"))
            if line.split("#")[0].strip()
        ]
        if after:
            return (
                {},
                (
                    "there is text after the end mark `...`",
                    source.count("\n", 0, end.start()) + after[0],
                ),
                {},
            )
        source = source[: end.start()]
    if "\t" in source:
        if tail := re.search(r":[ \t\r]*\n\t[ \t]*\Z", source):
            return {}, ("a tab cannot indent", source.count("\n", 0, tail.end())), {}
        source = re.sub(r"(?m)[ \t]+$|(?<=:)[ \t]+", lambda m: " " * len(m.group()), source)
    depth = 0
    for c in re.findall(r"[\[\]{}]", source):
        depth += 1 if c in "[{" else -1
        if depth > YAML_DEPTH:  # the scanner is quadratic in open brackets
            return {}, ("frontmatter is nested too deeply", 0), {}
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.composer.warn_double_anchors = False
        node = yaml.compose(source.translate(_BREAKS))
        if node is None:
            return {}, None, {}
        data = _plain(node, [YAML_NODES], 0)
    except _Bad as e:
        return {}, (e.args[0], e.args[1]), {}
    except MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        return (
            {},
            (
                " ".join(str(e.problem or e.context or "malformed YAML").split()),
                mark.line if mark else 0,
            ),
            {},
        )
    except RecursionError:
        return {}, ("frontmatter is nested too deeply", 0), {}
    except Exception as e:  # ruamel raises plain errors (ValueError, AttributeError, ReaderError, ..) on some malformed texts
        at = getattr(e, "position", 0) or 0
        return (
            {},
            (
                " ".join(str(getattr(e, "reason", "") or e or type(e).__name__).split()),
                source.count("\n", 0, at),
            ),
            {},
        )
    if data is None:
        return {}, None, {}
    if not isinstance(data, dict):
        return (
            {},
            (
                "frontmatter is not a list of `key: value` lines; its text is lost",
                node.start_mark.line,
            ),
            {},
        )
    marks = {
        str(k.value): (
            k.start_mark.line,
            k.start_mark.index,
            k.end_mark.index,
            v.start_mark.index,
            v.end_mark.index,
        )
        for k, v in node.value
        if k.id == "scalar"
    }
    return data, None, marks


class _Bad(Exception):
    """A YAML fault that ruamel does not see: (message, line)."""


def _plain(node, budget, depth):
    """A composed node as plain data. Bounded: an alias costs as much as its target, so that alias bombs end early."""
    budget[0] -= 1
    if budget[0] < 0 or depth > YAML_DEPTH:
        raise _Bad(
            "frontmatter is too large or nested too deeply (aliases count each time)",
            node.start_mark.line,
        )
    if node.id == "scalar":
        return _scalar(node)
    if node.id == "sequence":
        return [_plain(v, budget, depth + 1) for v in node.value]
    out = {}
    for k, v in node.value:
        key = _plain(k, budget, depth + 1)
        if not isinstance(key, str):
            key = _key(key, False)
        if key in out:
            raise _Bad(f"the key {key[:40]!r} stands there twice", k.start_mark.line)
        if getattr(v, "style", None) in ("|", ">") and v.start_mark.line > k.start_mark.line:
            if v.start_mark.column <= k.start_mark.column:
                raise _Bad("a block of text must be indented", v.start_mark.line)
        out[key] = _plain(v, budget, depth + 1)
    return out


def _key(value, nested=True):
    """A key that is not text, as JavaScript's object gets it: null is empty, `{{ a }}` becomes `{ a }`."""
    if value is None:
        return "null" if nested else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(k if v is None else f"{k}: {_key(v)}" for k, v in value.items()) + " }"
            if value
            else "{}"
        )
    if isinstance(value, list):
        return "[ " + ", ".join(_key(v) for v in value) + " ]" if value else "[]"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


_INT = re.compile(r"[-+]?[0-9]+")
_OCT = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INF = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")
_WORDS = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
    ".nan": float("nan"),
    ".NaN": float("nan"),
    ".NAN": float("nan"),
}


def _scalar(node):
    """YAML 1.2 core schema: dates, yes/no and 1_000 stay text, as in Slidev."""
    text = node.value.translate(_BREAKS_BACK)
    if node.style is not None or (not node.tag.startswith("tag:yaml.org,2002:")):
        return text
    if node.tag == "tag:yaml.org,2002:str" and (text in _WORDS or _INT.fullmatch(text)):
        return text  # an explicit !!str
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > 300:
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _OCT.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    m = _INF.fullmatch(text)
    return float(m.group(1) + "inf") if m else text


# --- what stands on a slide -----------------------------------------------------------------------

_MD_IMAGE = re.compile(r"!\[[^\]\n]{0,300}\]\(([^)\n]{1,2000})\)")
_SRC = re.compile(r"""\b(?:src|image)\s*=\s*(?:"([^"\n]{1,2000})"|'([^'\n]{1,2000})')""")
_URL = re.compile(
    r"""\burl\(\s*(?:"([^"\n]{1,2000})"|'([^'\n]{1,2000})'|([^"')\n]{1,2000}))\s*\)"""
)
_IMAGE_FILE = re.compile(r"\.(png|jpe?g|gif|svg|webp|avif|ico|bmp|tiff?)$", re.I)


def _looks_like_image(value):
    return bool(_IMAGE_FILE.search(value)) or value.startswith(("/", "http", "image-query:"))


def _fences(content, first):
    """Fenced blocks by markdown's rules (a close is the same mark, at least as long, alone on its line)."""
    out, opened, body = [], None, []
    for i, line in enumerate(content.split("\n")):
        m = FENCE.match(line)
        if opened is None:
            if m and not (m.group(1)[0] == "`" and "`" in m.group(3)):
                opened, body = (m.group(1), m.group(2).lower(), m.group(3).strip(), first + i), []
        elif (
            m
            and m.group(1)[0] == opened[0][0]
            and len(m.group(1)) >= len(opened[0])
            and not (m.group(2) + m.group(3)).strip()
        ):
            out.append(Fence(opened[1], opened[2], opened[3], first + i, "\n".join(body), True))
            opened = None
        else:
            body.append(line)
    if opened is not None:
        out.append(
            Fence(
                opened[1], opened[2], opened[3], first + content.count("\n"), "\n".join(body), False
            )
        )
    return out


def _blank_fences(content, fences, first):
    lines = content.split("\n")
    for f in fences:
        for i in range(f.line - first, f.end - first + 1):
            lines[i] = " " * len(lines[i])
    return "\n".join(lines)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def _blank_comments(text):
    out, at = [], 0
    for a, b in _comments(text):
        out += [text[at:a], _blank(text[a:b])]
        at = b
    return "".join(out) + text[at:]


def visible(prose: str) -> str:
    """The words a reader sees. Also drops style and script blocks, slot marks and table rules."""
    text = re.sub(r"\$\$[^$]{0,5000}\$\$", " ", _drop_blocks(prose))
    text = re.sub(r"!\[[^\]\n]{0,300}\]\([^)\n]{0,2000}\)", " ", text)
    text = re.sub(r"\[([^\]\n]{0,300})\]\([^)\n]{0,2000}\)", r"\1", text)
    text = re.sub(r"</?[A-Za-z][^<>]{0,2000}>", " ", text)
    words = []
    for line in text.split("\n"):
        line = line.strip()
        if line.strip("|:- \t") and not SLOT.fullmatch(line):
            words += _MARKS.sub(" ", _LEAD.sub("", line)).split()
    return " ".join(words)


SLOT = re.compile(r"::\s?([\w-]+)\s?::")
_LEAD = re.compile(r"(?:#{1,6}\s|[-*+]\s|\d{1,9}[.)]\s|>\s?)+")
_MARKS = re.compile(r"[*_`~|]+")


def _drop_blocks(text):
    """Blank <style> and <script> elements, line for line; an unclosed one swallows the rest, as in a browser."""
    out, at = [], 0
    for m in re.finditer(r"<(style|script)\b[^<>\n]{0,300}>", text, re.I):
        if m.start() < at:
            continue
        close = re.compile(rf"</{m.group(1)}\s*>", re.I).search(text, m.end())
        end = close.end() if close else len(text)
        out += [text[at : m.start()], _blank(text[m.start() : end])]
        at = end
    return "".join(out) + text[at:]


# --- image queries --------------------------------------------------------------------------------

_URI = re.compile(
    r"""(?<=")image-query://([^"\n]*) | (?<=')image-query://([^'\n]*) | (?<=<)image-query://([^<>\n]*)
    | (?<=\()\s*image-query://([^()\n"'<>]*?)(?=\s*(?:\s["'][^\n"']*["']\s*)?\)) | image-query://([^\s()"'<>`\]}]*)""",
    re.X,
)


def _queries(text, slide):
    from urllib.parse import unquote_plus

    base, marks = slide._yaml_offset, {k: m for k, m in slide._marks.items() if k}
    taken = []

    def query(words, line, a, b, kind):
        words = " ".join(words.split())
        if words and not any(a < y and x < b for x, y in taken):
            taken.append((a, b))
            yield Query(words, line, a, b, kind)

    value = slide.frontmatter.get("image-query")
    if (
        "image-query" in marks
        and isinstance(value, (str, int, float))
        and not isinstance(value, bool)
    ):
        line, a, _, _, b = marks["image-query"]
        if (
            "image" in marks
        ):  # a second `image:` would be a duplicate key: the existing one gets the picture
            taken.append((base + a, base + b))
            line, _, _, a, b = marks["image"]
            yield from query(str(value), line, base + a, base + b, "value")
        else:
            yield from query(str(value), line, base + a, base + b, "key")
    for key, (line, _, _, a, b) in marks.items():
        value = slide.frontmatter.get(key)
        if isinstance(value, str) and value.startswith("image-query://"):
            yield from query(unquote_plus(value[14:]), line, base + a, base + b, "uri")
    parts = [
        (
            slide.content_offset,
            re.sub(r"(`+)[^`\n]{1,500}?\1", lambda m: " " * len(m.group()), slide.prose),
        )
    ]
    if marks:
        parts.append((base, slide._marks[""]))
    for offset, part in parts:
        for m in _URI.finditer(part):
            a = offset + part.index("image-query:", m.start())
            words = unquote_plus(next(g for g in m.groups() if g is not None))
            yield from query(words, text.count("\n", 0, a) + 1, a, offset + m.end(), "uri")
