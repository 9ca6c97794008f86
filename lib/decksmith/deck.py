"""The only Slidev parser of the toolkit, the cleaning of replies, and the two feature scans.

Slices decks exactly as @slidev/parser 52.20.1 does (tests/lib/test_deck.py compares the two), without Node, in time
linear in the text, and never raises on any text: what is wrong with a deck is recorded in it.
"""

import functools
import hashlib
import itertools
import re
from dataclasses import dataclass, field

# What JavaScript's trim() and \s mean by white space; Python's own set differs (it lacks U+FEFF and has U+001C to
# U+001F, U+0085).
JS_SPACE = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))

# Bounds against hostile frontmatter. The largest block in an honest deck is below 2 kB.
YAML_BLOCK, YAML_DECK, YAML_NODES, YAML_DEPTH = 16_384, 262_144, 5_000, 40

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
_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*([^\s`{]*)(.*)")


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
    frontmatter: dict
    frontmatter_error: tuple | None
    frontmatter_line: int | None
    content: str
    content_line: int
    note: str | None
    title: str | None
    layout: str
    offset: int
    _marks: dict = field(default_factory=dict, repr=False)
    _content_offset: int = field(default=0, repr=False)
    _yaml_offset: int = field(default=0, repr=False)

    @property
    def hidden(self):
        """True when Slidev drops the slide (`hide: true` or `disabled: true`)."""
        return bool(self.frontmatter.get("hide") or self.frontmatter.get("disabled"))

    @functools.cached_property
    def fences(self):
        """Fenced code blocks of the content, in order."""
        return _fences(self.content, self.content_line)

    @functools.cached_property
    def prose(self):
        """The content with fences and HTML comments blanked, line for line and character for character."""
        return _blank_comments(_blank_fences(self.content, self.fences, self.content_line))

    @functools.cached_property
    def comments(self):
        """HTML comments outside fences as (line, text), without the note."""
        bare = _blank_fences(self.content, self.fences, self.content_line)
        return [(self.content_line + bare.count("\n", 0, a), bare[a + 4 : b - 3].strip()) for a, b in _comments(bare)]

    @functools.cached_property
    def images(self):
        """Every picture of the slide: frontmatter, markdown images, src attributes, css url()."""
        out = []
        for key in ("image", "background", "backgroundImage"):
            value = self.frontmatter.get(key)
            if isinstance(value, str) and value and (key != "background" or _looks_like_image(value)):
                line = self._marks[key][0] if key in self._marks else self.start
                out.append(Image(value, line, key))
        for kind, pattern in (("markdown", _MD_IMAGE), ("src", _SRC), ("url", _URL)):
            for m in pattern.finditer(self.prose):
                url = next(g for g in m.groups() if g is not None).strip()
                if kind == "markdown":
                    url = re.sub(r"\s+(\"[^\"]*\"|'[^']*')$", "", url).strip("<>").strip()
                if url:
                    out.append(Image(url, self.content_line + self.prose.count("\n", 0, m.start()), kind))
        return out

    @functools.cached_property
    def text(self):
        """The visible words: no code, comments, tags, markdown marks, formulas or diagrams."""
        return _visible(self.prose)


@dataclass
class Deck:
    """A parsed deck. `text` is the text that line numbers refer to (without BOM, CRLF as LF)."""

    text: str
    slides: list

    @classmethod
    def parse(cls, text):
        """Cut a deck into slides by Slidev's rules. Any string gives a Deck; time is linear in its length."""
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        slides, budget = [], YAML_DECK
        for start, end, offset in _slices(text):
            slide = _slide(text, len(slides) + 1, start, end, offset, budget)
            budget -= len(slide._marks.get("", ""))
            slides.append(slide)
        return cls(text, slides)

    @property
    def headmatter(self):
        """The first slide's frontmatter, which also configures the deck."""
        return self.slides[0].frontmatter if self.slides else {}

    @property
    def theme(self):
        """The theme's name; `default` when none is named."""
        theme = self.headmatter.get("theme")
        return theme if isinstance(theme, str) and theme else "default"

    @property
    def shown(self):
        """The slides that Slidev shows: those neither hidden nor disabled."""
        return [s for s in self.slides if not s.hidden]

    @property
    def faults(self):
        """Frontmatter errors as (slide number, line, message)."""
        return [(s.no, s.frontmatter_error[1], s.frontmatter_error[0]) for s in self.slides if s.frontmatter_error]

    @property
    def images(self):
        """Every picture of the deck as (slide number, Image)."""
        return [(s.no, image) for s in self.slides for image in s.images]

    @functools.cached_property
    def queries(self):
        """Image queries in text order (see Query): frontmatter entries and URIs outside code and comments."""
        return sorted((q for s in self.slides for q in _queries(self.text, s)), key=lambda q: q.start)


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
        self.place = {i: (indent, k) for indent, marks in self.by_indent.items() for k, (i, _) in enumerate(marks)}

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
            marks = {key: (yaml_line + line, a, b, c, d) for key, (line, a, b, c, d) in spans.items()}
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
    # them).
    if end := _YAML_END.search(source):
        after = [n for n, line in enumerate(source[end.end() :].split("\n")) if line.split("#")[0].strip()]
        if after:
            return {}, ("there is text after the end mark `...`", source.count("\n", 0, end.start()) + after[0]), {}
        source = source[: end.start()]
    if "\t" in source:
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
        return {}, (" ".join(str(e.problem or e.context or "malformed YAML").split()), mark.line if mark else 0), {}
    except RecursionError:
        return {}, ("frontmatter is nested too deeply", 0), {}
    except (
        Exception
    ) as e:  # ruamel raises plain errors (ValueError, AttributeError, ReaderError, ..) on some malformed texts
        at = getattr(e, "position", 0) or 0
        return (
            {},
            (" ".join(str(getattr(e, "reason", "") or e or type(e).__name__).split()), source.count("\n", 0, at)),
            {},
        )
    if data is None:
        return {}, None, {}
    if not isinstance(data, dict):
        return {}, ("frontmatter is not a list of `key: value` lines; its text is lost", node.start_mark.line), {}
    marks = {
        str(k.value): (k.start_mark.line, k.start_mark.index, k.end_mark.index, v.start_mark.index, v.end_mark.index)
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
        raise _Bad("frontmatter is too large or nested too deeply (aliases count each time)", node.start_mark.line)
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
            "{ " + ", ".join(k if v is None else f"{k}: {_key(v)}" for k, v in value.items()) + " }" if value else "{}"
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
_URL = re.compile(r"""\burl\(\s*(?:"([^"\n]{1,2000})"|'([^'\n]{1,2000})'|([^"')\n]{1,2000}))\s*\)""")
_IMAGE_FILE = re.compile(r"\.(png|jpe?g|gif|svg|webp|avif|ico|bmp|tiff?)$", re.I)


def _looks_like_image(value):
    return bool(_IMAGE_FILE.search(value)) or value.startswith(("/", "http", "image-query:"))


def _fences(content, first):
    """Fenced blocks by markdown's rules (a close is the same mark, at least as long, alone on its line)."""
    out, opened, body = [], None, []
    for i, line in enumerate(content.split("\n")):
        m = _FENCE.match(line)
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
        out.append(Fence(opened[1], opened[2], opened[3], first + content.count("\n"), "\n".join(body), False))
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


def _visible(prose):
    """The words a reader sees. Also drops style and script blocks, slot marks and table rules."""
    text = re.sub(r"\$\$[^$]{0,5000}\$\$", " ", _drop_blocks(prose))
    text = re.sub(r"!\[[^\]\n]{0,300}\]\([^)\n]{0,2000}\)", " ", text)
    text = re.sub(r"\[([^\]\n]{0,300})\]\([^)\n]{0,2000}\)", r"\1", text)
    text = re.sub(r"</?[A-Za-z][^<>]{0,2000}>", " ", text)
    words = []
    for line in text.split("\n"):
        line = line.strip()
        if line.strip("|:- \t") and not _SLOT.fullmatch(line):
            words += _MARKS.sub(" ", _LEAD.sub("", line)).split()
    return " ".join(words)


_SLOT = re.compile(r"::\s?([\w-]+)\s?::")
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
    if "image-query" in marks and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        line, a, _, _, b = marks["image-query"]
        if "image" in marks:  # a second `image:` would be a duplicate key: the existing one gets the picture
            taken.append((base + a, base + b))
            line, _, _, a, b = marks["image"]
            yield from query(str(value), line, base + a, base + b, "value")
        else:
            yield from query(str(value), line, base + a, base + b, "key")
    for key, (line, _, _, a, b) in marks.items():
        value = slide.frontmatter.get(key)
        if isinstance(value, str) and value.startswith("image-query://"):
            yield from query(unquote_plus(value[14:]), line, base + a, base + b, "uri")
    parts = [(slide._content_offset, re.sub(r"(`+)[^`\n]{1,500}?\1", lambda m: " " * len(m.group()), slide.prose))]
    if marks:
        parts.append((base, slide._marks[""]))
    for offset, part in parts:
        for m in _URI.finditer(part):
            a = offset + part.index("image-query:", m.start())
            words = unquote_plus(next(g for g in m.groups() if g is not None))
            yield from query(words, text.count("\n", 0, a) + 1, a, offset + m.end(), "uri")


# --- features -------------------------------------------------------------------------------------

SCANNER = "craft-v5 craft-1"  # raise it when a score changes: it is part of a run's identity


def features(text):
    """The `features` value of docs/records.md for a deck's text: {"scanner", "craft_v5", "craft", "counts"}; see the
    two functions."""
    v5, parts = craft_v5(text)
    score, counts = craft(Deck.parse(text))
    return {"scanner": SCANNER, "craft_v5": v5, "craft": score, "counts": {**counts, "v5": parts}}


def craft_v5(text):
    """The published VisCraft scan: (score 1 to 5, what it saw). Source: trillion-labs/nemoslides, eval/features.py.

    score = min(5, 1 + points). Points: one for each distinct layout other than `default`, at most two; one each for a
    fence with a language (not markdown, md, text, txt, plain), a mermaid fence, a formula, `<v-click(s)>` or
    `v-click=` or a line `click:`, a `notes:` key, a `transition:` key, a theme other than `default`.

    Its weaknesses are part of it: lines `---` are paired first with second, third with fourth, .. wherever they stand,
    and keys count only between the two of a pair (a slide without frontmatter shifts all pairs after it); notes as
    comments are not seen; a mermaid fence counts as code as well; a theme, a transition and a notes key earn points in
    a deck without content.
    """
    lines, rules = text.split("\n"), []
    for i, line in enumerate(lines):
        if line.startswith("---") and not line[3:].strip():
            rules.append(i)
    blocks = ["\n".join([*lines[a + 1 : b], ""]) for a, b in zip(rules[::2], rules[1::2], strict=False)]
    named = {
        k: [re.findall(rf"(?m)^\s*{k}:\s*[\"']?([\w-]+)[\"']?\s*$", b) for b in blocks] for k in ("layout", "theme")
    }
    layouts = {name.lower() for names in named["layout"] for name in names} - {"default"}
    theme = next((names[0].lower() for names in named["theme"] if names), "default")

    def keyed(key):
        return any(line.lstrip().startswith(key) for b in blocks for line in b.split("\n"))

    fences = re.findall(r"```([a-zA-Z][\w+-]*)", text)
    plain = re.compile(r"(?:markdown|md|text|txt|plain)(?!\w)")
    first = text.find("$$")
    # A formula between two neighbouring dollars has no blank at its ends and one of these signs inside, unlike "$4M
    # and $5M".
    dollars = any(
        len(t) > 2 and not t[0].isspace() and not t[-1].isspace() and set(t[1:-1]) & set("\\^_{}=+-")
        for t in text.split("$")[1:-1]
    )
    seen = {
        "layouts": len(layouts),
        "code": any(not plain.match(f) for f in fences),
        "mermaid": bool(re.search(r"```mermaid\b", text)),
        "katex": dollars or (first >= 0 and text.find("$$", first + 2) >= 0),
        "clicks": bool(re.search(r"<v-clicks?\b|\bv-click\s*=", text))
        or any(x.lstrip().startswith("click:") for x in lines),
        "notes": keyed("notes:"),
        "transitions": keyed("transition:"),
        "theme": theme != "default",
    }
    points = min(2, seen["layouts"]) + sum(bool(v) for k, v in seen.items() if k != "layouts")
    return float(min(5, 1 + points)), seen


TRANSITIONS = {"fade", "fade-out", "slide-left", "slide-right", "slide-up", "slide-down", "view-transition"}
_CLICK = re.compile(r"<v-(?:clicks?|after|switch)\b|\sv-(?:click|after|mark)\b")
_EDGE = re.compile(
    r"<?(?:-{2,3}|={2,3}|-\.+-|~{3})[>xo]|-{1,2}>{1,2}|--\s?[\w\"]|[|}o][|o]?(?:--|\.\.)[|o]?[|{o]|<\|--|\*--|o--|\.\.>"
)
_KINDS = (
    "pie",
    "gantt",
    "mindmap",
    "timeline",
    "journey",
    "quadrantchart",
    "xychart-beta",
    "gitgraph",
    "sankey-beta",
    "block-beta",
    "kanban",
)
_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def craft(deck):
    """How much of Slidev a deck puts to use, on the real parser: (score 1.0 to 5.0, counts).

    score = 1 + 4 * substance * mean(nine categories), rounded to 3 digits; every part lies in 0..1.

    Only shown slides count, and slides with the same words, code and pictures count once. words = visible words (two
    CJK characters are one) in distinct lines. A slide is substantial with 8 words, or with 3 words and one qualifying
    code block, diagram, table, formula or picture.

        substance   = min(1, substantial slides / 5) * min(1, words / 150)
        g(n, h)     = n / (n + h): the first use counts most, the sum never saturates

        layouts     g(n, 3)  distinct known layouts other than default, each on a slide that fills it:
        two-cols(-header) 3 words or an
                             element in every column; image layouts a picture (image-left/right also 5 words); the
                             others 2 words
        notes       share of substantial slides with a note of 5 different words that no other slide has
        code        g(n, 1)  closed fences with a language (no diagrams, no plain text) and 3 different lines on slides
        with 3 words mermaid     g(n, 1)  closed mermaid fences with 2 edges (charts without edges, such as pie: 3
        entries) katex       g(n, 2)  different formulas that look like one (not two prices) on substantial slides
        clicks      g(n, 2)  substantial slides with v-click, v-clicks, v-after, v-mark or v-switch
        transitions g(n, 1)  known transitions that at least 2 substantial slides use
        tables      g(n, 1)  tables with 2 columns, 2 rows and 4 filled cells
        images      g(n, 2)  different pictures or image queries on substantial slides or in layout image

    A bare deck with every key scores 1.0; a good deck of ten slides lies near 2.5; nothing reaches 5.
    """
    seen, slides, lines = set(), [], set()
    for slide in deck.shown:
        identity = (slide.text, tuple(f.text for f in slide.fences), tuple(i.url for i in slide.images))
        if identity not in seen:
            seen.add(identity)
            slides.append(_Scanned(slide))
    words = 0
    for s in slides:
        for line in s.slide.prose.split("\n"):
            line = _visible(line)
            if line and line not in lines:
                lines.add(line)
                words += _words(line)
    solid = [s for s in slides if s.solid]
    notes = {}
    for s in solid:
        if (
            s.slide.note
            and len({w.lower() for w in _WORD.findall(s.slide.note)})
            + _words(s.slide.note) // 4 * bool(_CJK.search(s.slide.note))
            >= 5
        ):
            notes.setdefault(" ".join(s.slide.note.split()), s)
    moves = {}
    default_move = deck.headmatter.get("transition")
    for s in solid:
        move = s.slide.frontmatter.get("transition", default_move)
        for name in str(move).split("|") if isinstance(move, str) else []:
            moves.setdefault(name.strip(), set()).add(s.slide.no)
    counts = {
        "slides": len(deck.shown),
        "substantial": len(solid),
        "words": words,
        "layouts": len({s.slide.layout for s in slides if s.slide.layout != "default" and s.fills}),
        "notes": len(notes),
        "code": len({f for s in slides for f in s.code}),
        "mermaid": len({f for s in slides for f in s.diagrams}),
        "katex": len({f for s in solid for f in s.formulas}),
        "clicks": sum(bool(_CLICK.search(s.slide.prose)) for s in solid),
        "transitions": sum(name in TRANSITIONS and len(on) > 1 for name, on in moves.items()),
        "tables": len({t for s in slides for t in s.tables}),
        "images": len({p for s in slides if s.solid or s.slide.layout == "image" for p in s.pictures}),
    }
    parts = [
        counts[k] / (counts[k] + half)
        for k, half in (
            ("layouts", 3),
            ("code", 1),
            ("mermaid", 1),
            ("katex", 2),
            ("clicks", 2),
            ("transitions", 1),
            ("tables", 1),
            ("images", 2),
        )
    ]
    parts.append(counts["notes"] / len(solid) if solid else 0.0)
    substance = min(1, len(solid) / 5) * min(1, words / 150)
    return round(1 + 4 * substance * sum(parts) / 9, 3), counts


def _words(text):
    cjk = len(_CJK.findall(text))
    return cjk // 2 + len(_WORD.findall(_CJK.sub(" ", text)))


class _Scanned:
    """What a slide really holds, for craft."""

    def __init__(self, slide):
        self.slide, self.words = slide, _words(slide.text)
        self.diagrams, self.code = [], []
        for f in slide.fences:
            rows = [x.strip() for x in f.text.split("\n") if x.strip() and not x.strip().startswith("%%")]
            if f.closed and f.lang == "mermaid":
                head = rows[0].split()[0].lower().rstrip(":") if rows else ""
                if (
                    (len(set(rows[1:])) >= 3)
                    if head in _KINDS
                    else len({x for x in rows if _EDGE.search(x)}) >= 2
                    or sum(len(_EDGE.findall(x)) for x in set(rows)) >= 2
                ):
                    self.diagrams.append(" ".join(rows))
            elif (
                f.closed
                and f.lang not in ("", "md", "markdown", "text", "txt", "plain", "plaintext", "plantuml")
                and len(set(rows)) >= 3
                and self.words >= 3
            ):
                self.code.append(" ".join(rows))
        self.tables = _tables(slide.prose)
        self.formulas = _formulas(slide.prose)
        self.pictures = [i.url for i in slide.images]
        query = slide.frontmatter.get("image-query")
        if isinstance(query, str) and query.strip():
            self.pictures.append(query)
        elements = self.diagrams or self.code or self.tables or self.formulas or self.pictures
        self.solid = self.words >= 8 or (self.words >= 3 and bool(elements))

    @property
    def fills(self):
        """Whether the slide has what its layout is for."""
        layout, shown = self.slide.layout, self.slide.frontmatter
        if layout not in LAYOUTS:
            return False
        if layout.startswith("two-cols"):
            parts, name = {"default": []}, "default"
            for line in self.slide.content.split("\n"):
                m = _SLOT.fullmatch(line.strip())
                if m:
                    name = m.group(1)
                parts.setdefault(name, []).append(line if not m else "")
            need = LAYOUTS[layout] if layout == "two-cols-header" else ("default", "right")
            return all(_words("\n".join(parts.get(n, []))) >= 3 for n in need)
        if layout.startswith("iframe"):
            return isinstance(shown.get("url"), str) and (layout == "iframe" or self.words >= 5)
        if layout.startswith("image"):
            return bool(self.pictures) and (layout == "image" or self.words >= 5)
        return self.words >= 2


def _tables(prose):
    """Markdown tables worth the name, each as its text."""
    out, rows = [], []
    for line in [*prose.split("\n"), ""]:
        line = line.strip()
        if line.startswith("|"):
            rows.append(line)
            continue
        if len(rows) >= 4 and not rows[1].strip("|:- \t") and "-" in rows[1]:
            cells = [[c.strip() for c in r.strip("|").split("|")] for r in rows]
            body = [r for r in cells[2:] if sum(map(bool, r)) >= 2]
            if len(cells[0]) >= 2 and len({tuple(r) for r in body}) >= 2:
                out.append("\n".join(rows))
        rows = []
    return out


def _formulas(prose):
    """The different formulas of a slide: $$blocks$$, and $inline$ with a sign that prices do not have."""
    out = []
    for i, part in enumerate(prose.split("$$")):
        if i % 2:
            if len(part.split()) and len(part.strip()) >= 3:
                out.append(" ".join(part.split()))
        else:
            for line in part.split("\n"):
                pieces = line.split("$")
                k = 1
                while k < len(pieces) - 1:
                    t = pieces[k]
                    if len(t) >= 3 and not t[0].isspace() and not t[-1].isspace() and set(t) & set("\\^_={}+<>/*"):
                        out.append(t)
                        k += 1
                    k += 1
    return out


def scan(run, record):
    """The `features` value of a record, read from its deck.md under `run`; nulls where there is no deck (its stage
    says why)."""
    from decksmith import cli

    path = (record.get("deck") or {}).get("path")
    if not path:
        return {"scanner": SCANNER, "craft_v5": None, "craft": None, "counts": {}}
    try:
        return features((run / path).read_bytes().decode("utf-8", "replace"))
    except OSError as error:
        raise cli.Missing(
            f"{record['id']}: {run / path}: {error.strerror}; is --run the folder that deck-parse wrote to?"
        ) from None


# --- replies --------------------------------------------------------------------------------------

_THINK = re.compile(r"\s*<(think|thinking)>", re.I)
_DECK_LANGS = {"", "markdown", "md", "mdx", "slidev", "yaml", "yml", "text", "txt", "plaintext"}
_KEY = re.compile(r"[A-Za-z][\w-]*[ \t]*:(?:\s|$)")


def clean(text):
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


def _unthink(text):
    thoughts = []
    while m := _THINK.match(text):
        close = re.compile(rf"</{m.group(1)}>", re.I).search(text, m.end())
        if not close:
            return "", "\n".join([*thoughts, text[m.end() :].strip()])
        thoughts.append(text[m.end() : close.start()].strip())
        text = text[close.end() :].lstrip("\n")
    if not text.startswith("---"):  # a chat template may have written the opening tag into the prompt
        close = re.search(r"</think(?:ing)?>[ \t]*(?:\n|$)", text, re.I)
        if close and not re.search(r"<think(?:ing)?>", text[: close.start()], re.I):
            thoughts.append(text[: close.start()].strip())
            text = text[close.end() :].lstrip("\n")
    return (text.lstrip() if thoughts else text), "\n".join(t for t in thoughts if t) or None


def _rule(line):
    return line.rstrip() == "---"


def _frontmatter_at(lines, i):
    """Whether line i opens a frontmatter block: a rule followed by a `key:` line."""
    return (
        _rule(lines[i])
        and i + 1 < len(lines)
        and bool(
            _KEY.match(lines[i + 1])
            or (lines[i + 1].lstrip().startswith("#") and i + 2 < len(lines) and _KEY.match(lines[i + 2]))
        )
    )


def _outer_fence(lines):
    """The lines inside the code fence around a whole deck, or None when there is none."""
    for i, line in enumerate(lines):
        if _rule(line) and _frontmatter_at(lines, i):
            return None  # the deck has begun: a fence further down belongs to it
        m = _FENCE.fullmatch(line)
        if not m or line.lstrip().startswith(">"):
            continue
        mark, lang = m.group(1), m.group(2).lower()
        inside = next((j for j in range(i + 1, len(lines)) if lines[j].strip()), None)
        if (
            lang not in _DECK_LANGS
            or inside is None
            or not (_rule(lines[inside]) or lines[inside].startswith("# ") or _THINK.match(lines[inside]))
        ):
            return None
        headed = any(before.startswith("#") for before in lines[:i])
        if headed and not (lang in ("markdown", "md", "slidev", "") and _frontmatter_at(lines, inside)):
            return None
        close = _closing(lines, i + 1, mark)
        body = lines[i + 1 : close]
        if lang in ("yaml", "yml") and close is not None:
            block = [k for k, x in enumerate(body) if x.strip()]
            if (
                body
                and _rule(body[block[-1]])
                and len([k for k in block if _rule(body[k])]) == 2
                and _slides_in(lines[close + 1 :])
            ):
                return body[block[0] : block[-1] + 1] + lines[close + 1 :]  # only the headmatter was fenced
        return body
    return None


def _closing(lines, i, mark):
    """The line that closes the outer fence, or None (cut off). Inner fences of the same length are told apart by their
    info string and, when they have none, by what follows."""
    bare = [
        j
        for j in range(i, len(lines))
        if (m := _FENCE.fullmatch(lines[j]))
        and m.group(1)[0] == mark[0]
        and len(m.group(1)) >= len(mark)
        and not (m.group(2) + m.group(3)).strip()
    ]
    if not bare:
        return None
    last, inner, j = bare[-1], False, i
    bare = set(bare)
    seen_slides = None
    while j < len(lines):
        if j in bare:
            if inner:
                inner = False
            elif j == last:
                return j
            else:
                if seen_slides is None or j > seen_slides[1]:
                    seen_slides = (_slides_in(lines[j + 1 :]), j)
                if not lines[j + 1].strip() and not seen_slides[0]:
                    return j
                inner = True
        elif (
            not inner
            and (m := _FENCE.fullmatch(lines[j]))
            and m.group(1)[0] == mark[0]
            and len(m.group(1)) >= len(mark)
        ):
            inner = True
        j += 1
    return last if inner and last >= i else None


def _slides_in(lines):
    """Whether these lines hold slides: a frontmatter block, or a rule whose next text is a heading."""
    for i, line in enumerate(lines):
        if _rule(line):
            following = next((x for x in lines[i + 1 : i + 6] if x.strip()), "")
            if _frontmatter_at(lines, i) or following.startswith("# "):
                return True
    return False


def _chatter(lines):
    """How many lines stand before the deck. Text before the headmatter is chatter when that block names a theme (only
    a headmatter does), or when it is prose without any slide in it."""
    for i in range(len(lines)):
        if not _rule(lines[i]):
            m = _FENCE.fullmatch(lines[i])
            if m and not lines[i].lstrip().startswith(">"):
                return 0
            continue
        if not _frontmatter_at(lines, i):
            continue
        before = [x for x in lines[:i] if x.strip()]
        if not before:
            return i
        block = []
        for x in lines[i + 1 :]:
            if _rule(x):
                break
            block.append(x)
        if any(x.startswith("theme:") for x in block):
            return i
        prose = all(x.lstrip()[:1] not in "#|<-*!" and not _KEY.match(x) for x in before)
        return i if prose and (before[-1].rstrip().endswith(":") or len(before) == 1) else 0
    return 0


def current(run, value):
    """Whether a journaled `deck` value may be used again: a fault, or a deck.md that still has the bytes it names."""
    try:
        return "error" in value or hashlib.sha256((run / value["path"]).read_bytes()).hexdigest() == value["sha256"]
    except OSError:
        return False


def parse_reply(run, record):
    """Write <id>/gen.md, reasoning.md (if any) and deck.md under `run` from `record["gen"]`; returns the `deck` value
    of docs/records.md.

    Raises stream.Fault of kind model: `empty-reply` (no text and no reasoning), `no-deck` (reasoning only, or nothing
    left).
    """
    from decksmith import stream

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
    if not text:
        if reasoning.strip() or reply.strip():
            raise stream.Fault(
                "model",
                "no-deck",
                "the reply holds reasoning but no deck" if reasoning.strip() else "nothing is left of the reply",
            )
        raise stream.Fault("model", "empty-reply", "the reply is empty")
    data = text.encode()
    stream.write(folder / "deck.md", data)
    parsed = Deck.parse(text)
    return {
        "path": f"{record['id']}/deck.md",
        "slides": len(parsed.shown),
        "theme": parsed.theme,
        "sha256": hashlib.sha256(data).hexdigest(),
    }
