"""Requests as people have them: lines, paragraphs, markdown, a table, JSON, or a folder of briefs.

What a file holds is decided by its content. Where that leaves two ways, nothing is guessed: the name
of a column, or one of WAYS, decides.
"""

import bisect
import contextlib
import csv
import functools
import itertools
import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decksmith.core import cli, config_files, stream
from decksmith.core.records import PromptRow, Record

KINDS = config_files.asset("request-files.toml")
TAKES = "PROMPTS= takes .txt, .md, .csv, .tsv, .xlsx, .json, .jsonl or a folder of briefs"
WAYS = ("line", "paragraph", "heading", "item")
ASKED = {"request", "messages", "prompt"}
OWN = {*PromptRow.__annotations__, "request", "budget", "turns"}  # keys of a row; others are tags
TYPES = {"id": str, "source": dict}  # other tools have numbers and names there
LONGEST, LINE, WHOLE = 100_000, 1_000_000, 50_000_000  # characters of a request, a line, a file
SHEET = 500_000_000  # bytes of a workbook, unpacked
SAMPLE, COLUMNS = 200, 1_000  # rows by which it is decided which column it is, and how many
_MARK = re.compile(
    r" {0,3}(?:(#{1,6})|[-*+•]|\d{1,4}[.)])\s+(?:\[[ xX]\]\s+)?(.*\S)"
)  # a heading, or an item
# Four words that begin like a sentence, and no `Audience: ..` or bullet: a request by itself.
_ALONE = re.compile(r"(?!\w[\w ]{0,30}:)[^\W_a-z]\S*(?: +\S+){3}")
_STRUCTURE = re.compile(r"\s*(?:\{\s*[\"}]|\{\s*$|\[\s*[\"{\[]|\[\s*\]?\s*$)")

_PIECE = re.compile(rf"\A{_STRUCTURE.pattern}|%PDF|\A\d+ \d+ obj\b|(?m:^sep=.$)")
Row = tuple[str, list[str]]  # where, and the cells
Item = tuple[str, Record | ValueError]  # where, and the row or what is wrong there
Lines = Callable[[], Iterator[tuple[int, str]]]
Values = Callable[[], Iterator[tuple[str, object]]]  # where, and a value as of JSON


class LeftOut(ValueError):
    """Of a request that is counted and left out; any other fault of a row is an error."""


@dataclass
class Found:
    """The requests of a file, as a stream, by what they were told apart; and what became of them."""

    how: str
    items: Iterable[tuple[str, str | Record | ValueError]]
    count: int = 0
    first: str = ""
    bad: int = 0
    left: Counter[str] = field(default_factory=Counter)

    def took(self, given: str | Record) -> None:
        """Count a request. The first is shown."""
        self.count += 1
        if not self.first and isinstance(given, dict):
            said = given.get("request") or given.get("prompt") or given["messages"][-1]["content"]
            self.first = " ".join(str(said)[:200].split())[:90]

    def lost(self, where: str, error: ValueError) -> None:
        """Say what is wrong with a row, or count it."""
        if isinstance(error, LeftOut):
            self.left[str(error)] += 1
        else:
            self.bad += 1
            cli.say(f"{where}: {error}")

    def look(self, path: Path | None) -> None:
        """Say of a file what was taken of it. Raises cli.BadData where that is nothing."""
        left = ", ".join(f"{n} {what}" for what, n in self.left.items())
        left = f"; left out: {left}" if left else ""
        if not self.count:
            usage = f"; {TAKES}" if path else cli.Script.usage
            raise cli.BadData(f"{path or 'stdin'}: no request in it{left}{usage}")
        if path:
            said = f"{self.count} request{'s' * (self.count != 1)} from {path.name}, {self.how}"
            cli.say(f"{said}; first: {self.first}{left}")


def opened(path: Path, by: str = "") -> Found:
    """The requests of a file or a folder; by: the column's name or number, or one of WAYS. Raises cli.Missing, and
    cli.BadData for what holds no requests or can be read in two ways."""
    try:
        found = _folder(path) if path.is_dir() else _file(path, by.strip())
    except OSError as error:
        raise cli.Missing(f"{path}: {error.strerror}; {TAKES}") from None
    found.items = ((where, _checked(row)) for where, row in found.items)
    return found


def _checked(row: Any) -> Any:
    if not isinstance(said := _text(row), str):
        return row
    if not re.search(r"[^\W\d_]{2}|[^\W\d_a-zA-Z]", said):
        return LeftOut("without words")
    if _named([said]) or _PIECE.search(said):
        return ValueError(f"{said[:20]!r} is a name of a column or a piece of a file, no request")
    if len(said) > LONGEST:
        return ValueError(f"a request of {len(said)} characters; at most {LONGEST} are taken")
    return row


def _text(row: Record | ValueError) -> object:
    return None if isinstance(row, ValueError) or row.get("messages") else row.get("request")


def _refused(path: Path, found: str, then: str) -> cli.BadData:
    return cli.BadData(f"{path} is {found}; {TAKES}; {then.replace('{name}', path.name)}")


def _two_ways(path: Path, **ways: int) -> cli.BadData:
    first, second = (f"{n} (REQUEST={way})" for way, n in ways.items())
    return cli.BadData(f"{path} may hold {first} or {second} requests: say which")


def _file(path: Path, by: str) -> Found:
    if path.exists() and not path.is_file():
        raise _refused(path, "no file", "put its requests into a .txt, one a line")
    with open(path, "rb") as file:
        head = file.read(1024).decode("latin-1")
    if head.startswith("PK"):
        try:
            with zipfile.ZipFile(path) as packed:
                head = f"PK {' '.join(packed.namelist())}"
        except (zipfile.BadZipFile, ValueError, NotImplementedError):
            raise _refused(path, "a damaged archive", "save it again as .csv") from None
        if "xl/workbook.xml" in head:
            return _table(path, "", functools.partial(_sheet, path), by)
    for kind in KINDS["refused"]:
        if re.match(kind["begins"], head):
            raise _refused(path, kind["is"], kind["then"])
    encoding, said = _encoding(path)
    lines = functools.partial(_lines, path, encoding)
    start = next((line for _, line in lines() if line.strip()), "")
    suffix = path.suffix.lower()
    if by not in WAYS and (suffix in (".json", ".jsonl", ".ndjson") or _STRUCTURE.match(start)):
        return _json(path, said, lines, start, by)
    if suffix in (".md", ".markdown"):
        return _markdown(path, said, lines, by)
    separator = _separator(start)
    is_table = suffix in (".csv", ".tsv", ".tab") or _named(_cells(start, separator))
    if by not in WAYS and is_table:
        return _table(path, said, functools.partial(_csv, path, lines, separator), by)
    if suffix not in (".txt", ".text", ""):
        raise _refused(path, f"a {suffix} file", "copy its requests into a .txt, one a line")
    return _plain(path, said, lines, by)


# Text


def _encoding(path: Path) -> tuple[str, str]:
    """`(encoding, what to say of it)`. Raises cli.BadData for what is no text."""
    with open(path, "rb") as file:
        head = file.read(1024)
    is_utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not is_utf16 and re.search(rb"[\0-\x08\x0e-\x1f\x7f]", head):
        raise _refused(path, "no text", "put its requests into a .txt, one a line")
    for encoding in ("utf-16",) if is_utf16 else ("utf-8-sig", "cp1252"):
        letters = others = 0
        try:
            with open(path, encoding=encoding) as text:
                while part := text.read(1 << 20):
                    letters += len(part)
                    others += len(part) - len(part.encode("ascii", "ignore"))
                    if re.search(r"[\0-\x08\x0e-\x1f\x7f]", part):
                        raise UnicodeError
        except UnicodeError:
            continue
        if encoding == "cp1252" and others > letters / 5:
            break  # Cyrillic, Greek or Chinese in an encoding of its own
        said = {"utf-16": ", UTF-16", "cp1252": ", not UTF-8 and read as Windows-1252 (Latin-1)"}
        return encoding, said.get(encoding, "")
    then = "iconv -f ENCODING -t UTF-8 {name} > utf8-{name}"
    raise _refused(path, "neither UTF-8 nor Latin-1", then)


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    with open(path, encoding=encoding) as file:
        for number in itertools.count(1):
            if not (line := file.readline(LINE + 1)):
                return
            if len(line) > LINE:
                raise cli.BadData(f"{path}:{number}: a line of over {LINE} characters")
            yield number, line.rstrip("\n")


def _whole(path: Path, lines: Lines, then: str) -> str:
    if path.stat().st_size > WHOLE:
        raise _refused(path, f"over {WHOLE // 1_000_000} MB", then)
    return "\n".join(line for _, line in lines())


def _plain(path: Path, said: str, lines: Lines, by: str) -> Found:
    """A request a line; a paragraph, where blank lines part blocks of several lines."""
    rows = ((f"{path}:{n}", {"request": line.strip()}) for n, line in lines() if line.strip())
    if not by:
        blocks = several = count = alone = 0
        for filled, block in itertools.groupby(lines(), key=_filled):
            before = count
            for _, line in block if filled else ():
                count, alone = count + 1, alone + bool(_ALONE.match(line))
            blocks, several = blocks + filled, several + (count > before + 1)
        if several and blocks > 1 and alone == count:
            raise _two_ways(path, line=count, paragraph=blocks)
        by = "paragraph" if several and blocks > 1 else "line"
    if by == "line":
        return Found(f"line by line{said}", rows)
    return Found(f"paragraph by paragraph{said}", _paragraphs(path, lines()))


def _filled(line: tuple[int, str]) -> bool:
    return bool(line[1].strip())


def _paragraphs(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Item]:
    """What stands between blank lines; it ends where it is longer than any request."""
    for filled, block in itertools.groupby(lines, key=_filled):
        while filled and (kept := list(itertools.islice(block, 1_000))):
            yield f"{path}:{kept[0][0]}", {"request": "\n".join(line for _, line in kept).strip()}


def _markdown(path: Path, said: str, lines: Lines, by: str) -> Found:
    """A request a heading with its text, or an item of a list."""
    text = _whole(path, lines, "split -C 40M {name}")
    text = re.sub(r"\A---\n.*?\n---(?=\n)", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    underlined = r"(?m)^(\S[^\n]*)\n(=|-)\2{2,} *$"  # the other way of writing a heading
    text = re.sub(underlined, lambda m: f"{'#' * (1 + (m[2] == '-'))} {m[1]}\n", text)
    code = r"(?ms)^ {0,3}(```|~~~).*?(?:^ {0,3}\1|\Z)"
    bare = re.sub(code, lambda m: re.sub("[^\n]+", "code", m[0]), text).split("\n")
    found_at = ((n, _MARK.match(line.rstrip())) for n, line in enumerate(bare))
    marks = [(n, len(mark[1] or ""), mark[2]) for n, mark in found_at if mark]
    rows = text.split("\n")
    levels = Counter(level for _, level, _ in marks if level)
    top = min((k for k, n in levels.items() if n > 1), default=min(levels, default=0))

    def cut(takes: int, ends: Collection[int]) -> Iterator[Item]:
        stops = [n for n, level, _ in marks if level in ends] + [len(bare)]
        for n, _, rest in (mark for mark in marks if mark[1] == takes):
            body = "\n".join(rows[n + 1 : stops[bisect.bisect(stops, n)]])
            if not takes:  # an item ends at a blank line that no indented one follows
                body = re.split(r"\n\s*\n(?=\S)", f"\n{body}")[0]
            yield f"{path}:{n + 1}", {"request": f"{rest}\n\n{body.strip()}".strip()}

    blocks = list(_paragraphs(path, enumerate(bare, 1)))
    prose = [item for item in blocks if not _MARK.match(str(_text(item[1])))]
    found = {"heading": list(cut(top, range(1, top + 1))) if top else []}
    found |= {"item": list(cut(0, range(7))), "paragraph": prose}
    n = {way: len(items) for way, items in found.items()}
    if by not in WAYS:
        by = "heading" if n["heading"] > 1 else "item" if n["item"] > 1 else "paragraph"
        other = {"heading": "item", "item": "paragraph", "paragraph": "heading"}[by]
        unclear = not prose and n["item"] > n["heading"] if by == "heading" else n["paragraph"] > 1
        if unclear and n[other]:
            raise _two_ways(path, **{by: n[by], other: n[other]})
        by = other if by == "paragraph" and n[other] else by
    return Found(f"{by} by {by}{said}", found["paragraph" if by == "line" else by])


# Tables


def _cells(line: str, separator: str) -> list[str]:
    return next(csv.reader([line[:LONGEST]], delimiter=separator), [])


def _separator(header: str) -> str:
    """What parts the cells, by the header; a sign that no text has, where it is of one column."""
    if header.startswith("sep=") and len(header) == 5:  # Excel's
        return header[4]
    best = max(",;\t|", key=lambda mark: len(_cells(header, mark)))
    return best if len(_cells(header, best)) > 1 else "\x1f"


def _csv(path: Path, lines: Lines, separator: str) -> Iterator[Row]:
    csv.field_size_limit(LONGEST)
    number, reader = 1, csv.reader((f"{line}\n" for _, line in lines()), delimiter=separator)
    try:
        for row in reader:
            if row[:1] != ["sep="] and any(map(str.strip, row)):
                yield f"{path}:{number}", row
            number = reader.line_num + 1
    except csv.Error:
        wrong = f"a cell of over {LONGEST} characters; is a quotation mark not closed?"
        raise cli.BadData(f"{path}:{number}: {wrong}") from None


def _sheet(path: Path) -> Iterator[Row]:
    program = str(cli.ROOT / "assets/programs/read_sheet.py")
    command = [sys.executable, program, str(path.resolve()), str(SHEET)]
    quiet = {"PYTHONNOUSERSITE": "1", "OPENBLAS_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.DEVNULL, env=quiet) as reader:
        try:
            for line in reader.stdout or ():
                number, row = json.loads(line)
                yield f"{path}, row {number}", row
            if reader.wait():
                wrong = "a workbook that cannot be read: damaged, locked or too large"
                raise _refused(path, wrong, "save its sheet as .csv")
        finally:
            reader.kill()


def _table(path: Path, said: str, cells: Callable[[], Iterator[Row]], by: str) -> Found:
    """The rows below the header: the first row, or the first of several cells below a title."""
    first = [row for _, row in itertools.islice(cells(), 10)]
    if not first:
        raise cli.BadData(f"{path} holds no request; {TAKES}")
    filled = [sum(map(bool, row)) for row in first]
    above = next((k for k, n in enumerate(filled) if n > 1), 0) if not _named(first[0]) else 0
    if len(first[above]) > COLUMNS:
        raise cli.BadData(f"{path} has {len(first[above])} columns; at most {COLUMNS} are read")
    names = [" ".join(cell.split()) or str(k) for k, cell in enumerate(first[above], 1)]
    names = [f"{name} {k}" if names.index(name) < k else name for k, name in enumerate(names)]

    def values() -> Iterator[tuple[str, object]]:
        for where, row in itertools.islice(cells(), above + 1, None):
            value: object = dict(zip(names, map(str.strip, row), strict=False))
            if any(row[len(names) :]):
                wrong = f"{len(row)} cells under {len(names)} names"
                value = ValueError(f"{wrong}; quote a cell that has a separator")
            yield where, value

    return _values(path, said, values, by, names)


def _named(cells: Iterable[str]) -> list[str]:
    return [cell for cell in cells if cell.strip().casefold() in KINDS["names"]]


def _values(path: Path, said: str, values: Values, by: str, names: list[str]) -> Found:
    """The requests of texts and objects. names: of the columns of a table; none: keys of our own rows are no tags."""
    sample = [value for _, value in itertools.islice(values(), SAMPLE) if isinstance(value, dict)]
    ours = all(ASKED & value.keys() for value in sample) and not names and not by
    header = names or list(dict.fromkeys(name for value in sample for name in value))[:COLUMNS]
    key = _column(path, header, sample, by) if sample and not ours else ""
    own = set() if names else OWN - ({"prompt", "id"} if key else set())

    def items() -> Iterator[Item]:
        for where, value in values():
            if isinstance(value, str):
                value = {"request": value}
            elif isinstance(value, dict):
                row = {
                    k: v
                    for k, v in value.items()
                    if k in own and isinstance(v, TYPES.get(k, object))
                }
                others = {k: v for k, v in value.items() if k not in row and k != key}
                tags = {k: v for k, v in others.items() if v not in ("", None)}
                row |= {"request": value.get(key, "")} if key else {}
                value = row | ({"source": {"tags": tags}} if tags else {})
            elif not isinstance(value, ValueError):
                value = ValueError("neither a text nor an object")
            yield where, value

    kind = "column" if names else "key"
    how = f'{kind} "{key}"' if key else "row by row" if sample else "text by text"
    return Found(f"{how}{said}", items())


def _listed(names: list[str]) -> str:
    return ", ".join(" ".join(name[:40].split()) for name in names[:12])


def _column(path: Path, header: list[str], rows: list[Record], by: str) -> str:
    """The name of the column that holds the requests. Raises cli.BadData where it is not plain which."""
    there = f"its columns are {_listed(header)}; name one: REQUEST=COLUMN, or its number"
    if by:
        found = [name for name in header if name.casefold() == by.casefold()]
        if not found and by.isdecimal() and 0 < int(by) <= len(header):
            return header[int(by) - 1]
        if len(found) != 1:
            raise cli.BadData(f"{path} has no one column {by!r}; {there}")
        return found[0]
    values = {name: [str(row[name]) for row in rows if row.get(name)] for name in header}
    found = [name for name in _named(header) if values[name]]
    if not found:

        def mean(name: str, size: Callable[[str], int]) -> float:
            return sum(map(size, values[name])) / max(1, len(values[name]))

        found = [s for s in header if mean(s, len) >= 20 and mean(s, lambda v: len(v.split())) >= 4]
        if len(found) == 1 and len(found[0].split()) > 5 and found[0][-1] not in "?:":
            wrong = "its first row looks like a request, and must name the columns"
            raise cli.BadData(f"{path}: {wrong}: put a row `request` above it")
    if len(found) != 1:
        which = f"{_listed(found)} may each" if found else "no column is sure to"
        raise cli.BadData(f"{path}: {which} hold the requests; {there}")
    return found[0]


# JSON


def _json(path: Path, said: str, lines: Lines, start: str, by: str) -> Found:
    """Lines of JSON, or one array, or one object that holds one array."""
    several = len(list(itertools.islice((s for _, s in lines() if s.strip()), 2))) > 1
    is_lines = path.suffix.lower() in (".jsonl", ".ndjson") and not start.lstrip().startswith("[")
    with contextlib.suppress(ValueError):
        is_lines |= isinstance(stream.json_value(start), dict | str) and several

    def of_lines() -> Iterator[tuple[str, object]]:
        for number, line in lines():
            try:
                if line.strip():
                    yield f"{path}:{number}", stream.json_value(line)
            except ValueError as error:
                yield f"{path}:{number}", error

    if is_lines:
        return _values(path, said, of_lines, by, [])
    try:
        value = stream.json_value(_whole(path, lines, "jq -c '.[]' {name} > requests.jsonl"))
    except ValueError as error:
        then = "mend it, or put one object of JSON on each line"
        raise _refused(path, f"{error}", then) from None
    if isinstance(value, dict) and not ASKED & value.keys():
        lists = [name for name, each in value.items() if isinstance(each, list)]
        if len(lists) != 1:
            found = f"an object with {len(lists)} arrays ({_listed(lists)})"
            raise _refused(path, found, "jq .NAME {name} > requests.json")
        value, said = value[lists[0]], f' of "{lists[0]}"{said}'
    listed = value if isinstance(value, list) else [value]
    numbered = [(f"{path}, item {n}", each) for n, each in enumerate(listed, 1)]
    return _values(path, said, lambda: iter(numbered), by, [])


# Folders


def _folder(path: Path) -> Found:
    """A brief a file (.txt, .md); what lies in the folder of its name is its documents."""
    inside = path.resolve()

    def files(names: Iterable[Path]) -> list[Path]:
        plain = (p for p in sorted(names) if p.is_file() and not p.name.startswith("."))
        return [p for p in plain if p.resolve().is_relative_to(inside)]

    there = files(path.iterdir())
    briefs = [p for p in there if p.suffix.lower() in (".txt", ".md")]
    stems = {brief.stem for brief in briefs}
    used = stems | {brief.name for brief in briefs}
    left = sorted(p.name for p in path.iterdir() if p.name not in used and p.name[0] != ".")
    if not briefs:
        has = f"(it has {', '.join(left[:5]) or 'nothing'})"
        then = f"name one of its files, or put a .txt for each request there {has}"
        raise _refused(path, "a folder without a brief", then)

    def items() -> Iterator[Item]:
        for brief in briefs:
            try:
                lines = functools.partial(_lines, brief, _encoding(brief)[0])
                row: Record = {"request": _whole(brief, lines, "shorten it").strip()}
            except cli.BadData as error:
                yield str(brief), ValueError(str(error))
                continue
            documents = files((path / brief.stem).rglob("*"))
            yield str(brief), {**row, "sources": documents} if documents else row

    unused = f", without {', '.join(left[:5])}{' ..' * (len(left) > 5)}" if left else ""
    return Found(f"file by file{unused}", items())
