"""Where rows of chat data lie: a file, a folder of files, a saved dataset, a dataset of the Hub.

What a file is, its first bytes say. Rows are read as a stream, of JSON no more than one at once.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from decksmith.core import cli, incoming, stream
from decksmith.core.records import Record

LARGEST = 16 << 20  # characters of a row
SPACE = " \t\r\n"
KINDS = "DATA= takes JSONL, a JSON array, CSV, parquet, arrow, a folder of them, or owner/name"
TAKEN = """columns messages, conversations, instruction and output, prompt and completion, question \
and answer, or chosen and rejected (jq -c '{prompt: .A, completion: .B}' renames others)"""
TABLES = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}
OTHERS = {b"%PDF": "a PDF", b"PK\3\4": "a ZIP archive or an Office document", b"GGUF": "a model"}
OTHERS |= {b"\x1f\x8b": "compressed (gunzip it)", b"(\xb5/\xfd": "compressed (unzstd it)"}
ENDS = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow")
BESIDE = re.compile(
    r"\b((dataset_\w+|state|report)\.json|split\.tsv)"
)  # no rows, but what is said of them
Rows = Iterator[tuple[str, Record | str]]  # the place of each row; the row, or what is wrong there


class Part(NamedTuple):
    """The rows of one file, or of one split of a dataset."""

    name: str
    side: str  # train, validation or test
    kind: str
    rows: Callable[[], Rows]


def parts(data: str) -> tuple[str, list[Part]]:
    """(sha256 of the content, its parts). Raises cli.BadData, cli.Missing, cli.TryAgain."""
    path = Path(data)
    if not (path.exists() or path.parent.is_dir()) and re.fullmatch(
        r"[\w-][\w.-]*/[\w.-]+(/[\w.-]+)?", data
    ):
        return _hub(data)
    # A link may lead to what nobody gave, unless the Hub's cache has it.
    inside = [one for one in sorted(path.rglob("*")) if one.name.casefold().endswith(ENDS)]
    inside = [one for one in inside if not one.is_symlink() or one.resolve().parent.name == "blobs"]
    named = {one: one.relative_to(path).as_posix() for one in inside if one.is_file()}
    found = [_file(one, _side(name)) for one, name in named.items() if not BESIDE.search(name)]
    if path.is_file():
        found = [_file(path, "train")]
    if not found:
        raise cli.Missing(
            f"no chat data in {data}; {KINDS}; make corpus makes data/chat, bin/chat-prefer pairs"
        )
    sums = []
    for part in found:
        with open(part.name, "rb") as file:
            sums.append(hashlib.file_digest(file, "sha256").hexdigest())
    return sums[0] if path.is_file() else stream.fingerprint([*named.values(), *sums]), found


def _hub(data: str) -> tuple[str, list[Part]]:
    """The splits of owner/name, or of owner/name/configuration; its fingerprint."""
    import datasets

    datasets.disable_progress_bars()
    owner, name, *config = data.split("/")
    try:
        found = datasets.load_dataset(f"{owner}/{name}", *config)
    except Exception as error:  # of its readers, which are many
        said = " ".join(str(error).split())[:300]
        if isinstance(error, ConnectionError | TimeoutError):
            raise cli.TryAgain(f"no file {data} here, and the Hub is not reached: {said}") from None
        mend = (
            f"of several configurations name one, {owner}/{name}/NAME; a gated one needs HF_TOKEN"
        )
        raise cli.Missing(
            f"no file {data} here, nor such data on the Hub: {said}; {mend}"
        ) from None
    sums = [split._fingerprint for split in found.values()]
    return stream.fingerprint(sums), [
        Part(f"{data}/{side}", _side(side), "Hub", partial(_numbered, split.__iter__))
        for side, split in found.items()
    ]


def _side(name: str) -> str:
    """The side of a file or split by its name, as the Hub tells it."""
    words = {*re.split("[^a-z]+", name.casefold())}
    if words & {"validation", "valid", "val", "dev", "eval"}:
        return "validation"
    return "test" if "test" in words else "train"


def _file(path: Path, side: str) -> Part:
    """A file as a part. Raises cli.BadData for one that is of no kind that is taken."""
    with open(path, "rb") as file:
        head = file.read(1 << 16)
    other = next((OTHERS[magic] for magic in OTHERS if head.startswith(magic)), "")
    table = next((TABLES[magic] for magic in TABLES if head.startswith(magic)), None)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if other or not text or (not table and re.search(rb"[\0-\x08\x0e-\x1f]", head)):
        other = other or ("no text in UTF-8" if text else "empty")
        raise cli.BadData(f"{path} is {other}, no chat data; {KINDS}: {TAKEN}")
    kind, rows = table or "CSV", partial(_table, table) if table else _cells
    if not table and text[:1] in (b"[", b"{"):
        # An object may go on over lines.
        is_whole = path.suffix != ".json" or text.partition(b"\n")[0].rstrip().endswith(b"}")
        is_lines = text[:1] == b"{" and is_whole
        kind, rows = ("JSONL", _lines) if is_lines else ("JSON", _values)
    return Part(str(path), side, kind, partial(rows, path))


def _lines(path: Path) -> Rows:
    with open(path, "rb") as file:
        for number, line in enumerate(iter(partial(file.readline, LARGEST), b""), 1):
            try:
                if line := line.removeprefix(b"\xef\xbb\xbf").strip():
                    yield f"line {number}", stream.json_object(line)
            except ValueError as error:
                yield f"line {number}", str(error).partition(" (")[0]


def _values(path: Path) -> Rows:
    """The objects of a JSON array, or objects that go on over lines."""
    decode = json.JSONDecoder(parse_constant=incoming.no_constant).raw_decode
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        buffer, number = file.read(1 << 16).lstrip(SPACE), 1
        is_open = buffer.startswith("[")
        buffer = buffer.removeprefix("[")
        while buffer := buffer.lstrip(SPACE + ","):
            try:
                row, end = decode(buffer)
            except (ValueError, RecursionError):
                more = file.read(max(1 << 16, len(buffer))) if len(buffer) < LARGEST else ""
                if not more:
                    is_open = not is_open or buffer.rstrip(SPACE) != "]"
                    break
                buffer += more
                continue
            yield f"row {number}", row if isinstance(row, dict) else "not a JSON object"
            buffer, number = buffer[end:] or file.read(1 << 16), number + 1
        if is_open:
            yield f"row {number}", "not JSON, and all that follows"


def _cells(path: Path) -> Rows:
    csv.field_size_limit(LARGEST)
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        first = file.readline(LARGEST)
        separator = max(",;\t|", key=first.count)
        names = next(csv.reader(io.StringIO(first, newline=""), delimiter=separator), [])
        rows = csv.DictReader(file, names, restkey="", delimiter=separator, strict=True)
        while True:
            try:
                row: Record = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                row = {"": str(error)}
            place = f"line {rows.line_num + 1}"
            yield place, "not CSV of as many cells as columns" if "" in row else row


def _table(kind: str, path: Path) -> Rows:
    import datasets

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what is wrong, a reason says
    file = {"data_files": str(path), "split": "train", "streaming": True}
    return _numbered(partial(datasets.load_dataset, kind, **file))


def _numbered(table: Callable[[], Iterable[Record]]) -> Rows:
    number = 0
    try:
        for number, row in enumerate(table(), 1):
            yield f"row {number}", row
    except Exception as error:  # of its readers, which are many
        yield f"row {number + 1}", f"not to be read ({type(error).__name__}), nor what follows"
