"""The frontmatter of a slide as Slidev reads it (the core schema), bounded against hostile text."""

import copy
import functools
import json
import re
from typing import Any, NamedTuple

NODES, DEPTH = 5_000, 40  # that a block may have

# ruamel ends lines at these; YAML 1.2 and Slidev do not.
_BREAKS = {0x85: 0xE085, 0x2028: 0xE028, 0x2029: 0xE029}
_BREAKS_BACK = {b: a for a, b in _BREAKS.items()}
_END = re.compile(r"(?m)^\.\.\.[ \t\r]*$")
# Tabs that indent, for Slidev's YAML: below the head of a block of text; and below a key without a value: before text, at the end,
# or on a line of blanks right below it, where another key follows.
_EMPTY = r"(?:[ \t\r]*|[ \t]+#.*)\n"
_TAB = re.compile(
    rf":(?:[ \t]+[|>][-+\d]*){_EMPTY}(?: *\n)*\t"
    rf"|:(?:[ \t]+!\S*)?{_EMPTY}(?:(?:[ \t]*(?:#.*)?\n)*+\t[ \t]*+(?:\Z|[^\s#])"
    r"|\t[ \t]*\n(?:[ \t]*\n|(?:\t[ \t]*)?#.*\n)*+[^\s#])"
)
# A line of a tab ends what a key has above it; text goes on behind it.
_WITHIN = re.compile(r"(?m)^\t[ \t]*\n\s*\S")
_DEEP = "frontmatter is nested too deeply"


class Mark(NamedTuple):
    """Where an entry stands: the line of its key, and where key and value begin and the value ends in the block."""

    line: int
    key: int
    value: int
    value_end: int


class Block(NamedTuple):
    """What a block says; `error`: None or (message, line); `marks` by key."""

    data: dict[str, Any]
    error: tuple[str, int] | None
    marks: dict[str, Mark]


def parse_block(source: str, line: int = 0) -> Block:
    """A block whose first line is `line`. Never raises. A block that is no mapping is an error: Slidev
    drops its text from the slide without a word."""
    try:
        data, marks = _cached(source)
    except _Bad as error:
        return Block({}, (error.args[0], line + error.args[1]), {})
    placed = {key: mark._replace(line=line + mark.line) for key, mark in marks.items()}
    return Block(copy.deepcopy(data), None, placed)


@functools.lru_cache(4096)
def _cached(text: str) -> tuple[dict[str, Any], dict[str, Mark]]:
    """(data, marks) of a block, lines from 0. Raises _Bad."""
    source = _as_slidev(text)
    depth = 0
    for c in re.findall(r"[\[\]{}]", source):
        depth += 1 if c in "[{" else -1
        if depth > DEPTH:  # the scanner is quadratic in open brackets
            raise _Bad(_DEEP, 0)
    node, data = _composed(source)
    if data is None:
        return {}, {}
    if not isinstance(data, dict):
        message = "frontmatter is not a list of `key: value` lines; its text is lost"
        raise _Bad(message, node.start_mark.line)
    marks = {}
    for key, value in node.value:
        if key.id == "scalar":
            at, begin, end = key.start_mark, value.start_mark.index, value.end_mark.index
            if value.id == "scalar" and (tab := _WITHIN.search(text, begin, end)):
                raise _Bad("a tab cannot indent", text.count("\n", 0, tab.start()))
            marks[str(key.value)] = Mark(at.line, at.index, begin, end)
    return data, marks


def _as_slidev(source: str) -> str:
    """A block as ruamel shall read it: to its end mark `...`, with blanks for tabs that Slidev takes."""
    if end := _END.search(source):
        for n, line in enumerate(source[end.end() :].split("\n")):
            if line.split("#")[0].strip(" \t\r"):
                at = source.count("\n", 0, end.start()) + n
                raise _Bad("there is text after the end mark `...`", at)
        source = source[: end.start()]
    if "\t" in source:
        if tail := _TAB.search(source):
            raise _Bad("a tab cannot indent", source.count("\n", 0, tail.end()))
        source = re.sub(r"(?m)[ \t]+$|(?<=:)[ \t]+|^[ \t]+(?=#)", lambda m: " " * len(m[0]), source)
    return source


def _composed(source: str) -> tuple[Any, object]:
    """(ruamel's node, plain data) of a text, (None, None) of an empty one."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.composer.warn_double_anchors = False
        node = yaml.compose(source.translate(_BREAKS))
        return node, None if node is None else _plain(node, [NODES], 0)
    except _Bad:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = str(error.problem or error.context or "malformed YAML")
        raise _Bad(" ".join(said.split()), mark.line if mark else 0) from None
    except RecursionError:
        raise _Bad(_DEEP, 0) from None
    except Exception as error:  # ruamel raises plain errors (ValueError, AttributeError, ..) on some malformed texts
        said = str(getattr(error, "reason", "") or error or type(error).__name__)
        at = getattr(error, "position", 0) or 0
        raise _Bad(" ".join(said.split()), source.count("\n", 0, at)) from None


class _Bad(Exception):
    """What is wrong with a block: (message, line)."""


def _plain(node: Any, budget: list[int], depth: int) -> object:
    """A composed node as plain data. Bounded: an alias costs as much as its target, so that alias bombs end early."""
    budget[0] -= 1
    if budget[0] < 0 or depth > DEPTH:
        message = "frontmatter is too large or nested too deeply (aliases count each time)"
        raise _Bad(message, node.start_mark.line)
    if node.id == "scalar":
        return _scalar(node)
    if node.id == "sequence":
        return [_plain(v, budget, depth + 1) for v in node.value]
    out = {}
    for k, v in node.value:
        key = _plain(k, budget, depth + 1)
        if not isinstance(key, str):  # as JavaScript's object gets it
            key = "" if key is None else json.dumps(key) if isinstance(key, bool) else _number(key)
        if key in out:
            raise _Bad(f"the key {key[:40]!r} stands there twice", k.start_mark.line)
        if getattr(v, "style", None) in ("|", ">") and v.start_mark.line > k.start_mark.line:
            if v.start_mark.column <= k.start_mark.column:
                raise _Bad("a block of text must be indented", v.start_mark.line)
        out[key] = _plain(v, budget, depth + 1)
    return out


def _number(key: object) -> str:
    return str(int(key)) if isinstance(key, float) and key.is_integer() else str(key)


_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INF = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")
_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


def _scalar(node: Any) -> object:
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
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    m = _INF.fullmatch(text)
    return float(m.group(1) + "inf") if m else text
