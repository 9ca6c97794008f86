"""Rows of one's own: from a file beside the description, an address with its hash, or the output of a program."""

import csv
import gzip
import hashlib
import io
import json
import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from decksmith.bench.benchmarks.records import BenchmarkSpec
from decksmith.core import cli
from decksmith.core.records import Record

SECONDS = 600  # for a program, and for an address to answer
Rows = tuple[str, Iterable[Any]]  # the revision, and the rows


class GeneratedSource(TypedDict):
    """Rows that a function of generators.py draws from a seed."""

    generated: str
    rows: int
    seed: int


class SourceRow(TypedDict):
    """What a description makes of a row, and a generator yields; docs/records.md has its keys under `Task`."""

    fields: Record
    expected: NotRequired[Any]
    subset: NotRequired[str | None]
    tools: NotRequired[list[Record]]  # in OpenAI's form
    tool_code: NotRequired[str]


NOT_LINES = (".gz", ".parquet", ".csv", ".tsv", ".json")  # ends of files that are read as a whole


def parsed(name: str, data: bytes) -> list[Any]:
    """The rows of a file by the end of its name: .jsonl (also for any other end), .json (a list), .csv, .tsv, .parquet; each
    also with .gz. Raises cli.BadData naming the file and the line."""
    if name.endswith(".gz"):
        try:
            return parsed(name[:-3], gzip.decompress(data))
        except (OSError, EOFError) as error:
            raise cli.BadData(f"{name}: {error}") from None
    if name.endswith(".parquet"):
        import pyarrow.parquet

        try:
            found: list[Any] = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
        except (OSError, ValueError) as error:
            raise cli.BadData(f"{name}: {error}") from None
        return found
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise cli.BadData(f"{name}: not UTF-8 ({error})") from None
    if name.endswith((".csv", ".tsv")):
        separator = "," if name.endswith(".csv") else "\t"
        return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator))
    if name.endswith(".json"):
        rows = _json(name, text)
        if not isinstance(rows, list):
            raise cli.BadData(
                f"{name}: a file .json holds a list of rows; one row a line is .jsonl"
            )
        return rows
    lines = enumerate(text.split("\n"), 1)
    return [_json(f"{name}:{number}", line) for number, line in lines if line.strip()]


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise cli.BadData(f"{where}: not JSON ({error})") from None


def file(spec: BenchmarkSpec) -> Rows:
    """Of a file, by its path from the folder of the description; JSONL is read line by line. Raises cli.Missing, cli.BadData."""
    path = Path(spec["folder"]) / spec["source"]["file"]
    try:
        if path.name.endswith(NOT_LINES):
            return _checked(spec, str(path), path.read_bytes())
        with path.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise cli.Missing(f"{spec['name']}: its rows are in {path}: {error.strerror}") from None
    return _revision(spec, str(path), found), _lines(spec, path)


def _lines(spec: BenchmarkSpec, path: Path) -> Iterator[Any]:
    """The rows of JSONL. Raises cli.BadData naming the line."""
    rows = 0
    with path.open(encoding="utf-8-sig", newline="\n") as opened:
        try:
            for number, line in enumerate(opened, 1):
                if line.strip():
                    yield _json(f"{path}:{number}", line)
                    rows += 1
        except UnicodeDecodeError as error:
            raise cli.BadData(f"{path}: not UTF-8 ({error})") from None
    if not rows:
        raise cli.BadData(f"{spec['name']}: {path} has no rows")


def address(spec: BenchmarkSpec) -> Rows:
    """Of an address. Raises cli.TryAgain where it cannot be reached, cli.Missing where it has no such file, cli.BadData."""
    import requests

    url = spec["source"]["url"]
    try:
        answer = requests.get(url, timeout=SECONDS)
    except requests.RequestException as error:
        raise cli.TryAgain(f"{spec['name']}: {url} cannot be reached: {error}") from None
    if answer.status_code in (429, *range(500, 600)):
        raise cli.TryAgain(f"{spec['name']}: {url} answers {answer.status_code}")
    if answer.status_code != 200:
        raise cli.Missing(f"{spec['name']}: {url} answers {answer.status_code}; mend its address")
    return _checked(spec, url.split("?")[0], answer.content)


def program(spec: BenchmarkSpec) -> Rows:
    """Of what a program prints, one row a line; it runs in the folder of the description. Raises cli.BadData, cli.Missing."""
    command = spec["source"]["program"]
    try:
        done = subprocess.run(
            shlex.split(command), cwd=spec["folder"], capture_output=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise cli.BadData(f"{spec['name']}: {command} took more than {SECONDS} s") from None
    except (OSError, ValueError) as error:
        raise cli.Missing(f"{spec['name']}: {command} does not start: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise cli.BadData(
            f"{spec['name']}: {command} ended with {done.returncode}: {' '.join(said) or 'it said nothing'}"
        )
    return _checked(spec, command, done.stdout)


def _checked(spec: BenchmarkSpec, name: str, data: bytes) -> Rows:
    """The rows of bytes that have the hash that the description names."""
    revision = _revision(spec, name, hashlib.sha256(data).hexdigest())
    rows = parsed(name if spec["kind"] != "program" else "", data)
    if not rows:
        raise cli.BadData(f"{spec['name']}: {name} has no rows")
    return revision, rows


def _revision(spec: BenchmarkSpec, name: str, found: str) -> str:
    """The revision of what has the sha256 `found`. Raises cli.BadData where the description names another."""
    wanted = spec["source"].get("sha256")
    if wanted and found != wanted:
        raise cli.BadData(
            f"{spec['name']}: {name} has the sha256 {found}, and {wanted} was expected"
        )
    if not wanted and spec["kind"] == "url":
        cli.say(
            f'{spec["name"]}: took what is there; to pin it: sha256 = "{found}" in {spec["path"]}'
        )
    return f"sha256 {found[:16]}"


READERS: dict[str, Callable[[BenchmarkSpec], Rows]] = {
    "file": file,
    "url": address,
    "program": program,
}
LOCAL = ("file", "program")  # read anew each time: they change without their description
