"""Where the rows of benchmarks come from: files, addresses, programs, generators, packages, the Hub.

A reader takes a description and gives the revision that came and the rows as they are there.
"""

import ast
import base64
import contextlib
import csv
import functools
import gzip
import hashlib
import io
import json
import mimetypes
import pickle
import re
import shlex
import sqlite3
import subprocess
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from decksmith.bench.benchmarks import generators
from decksmith.bench.benchmarks.graders import plus
from decksmith.bench.benchmarks.records import BenchmarkSpec, RowSource
from decksmith.core import cli, incoming
from decksmith.core.records import Record

LARGEST = 1 << 30  # bytes of rows, unpacked
SECONDS = 600  # for a program, and for an address to answer
Rows = tuple[str, Iterable[Any]]  # the revision, and the rows


def parsed(name: str, data: bytes) -> list[Any]:
    """The rows of a file by the end of its name: .json (a list), .csv, .tsv, .parquet, each also with
    .gz; any other end is JSONL. Raises cli.BadData naming the file and the line."""
    if name.endswith(".gz"):
        try:
            unpacked = gzip.GzipFile(fileobj=io.BytesIO(data))
            chunks = iter(lambda: unpacked.read(1 << 16), b"")
            return parsed(name[:-3], incoming.together(chunks, LARGEST))
        except (OSError, EOFError, zlib.error, incoming.TooLarge) as error:
            raise cli.BadData(f"{name}: {error}") from None
    if name.endswith(".parquet"):
        import pyarrow.parquet

        try:
            return list(pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist())
        except (OSError, ValueError) as error:
            raise cli.BadData(f"{name}: {error}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise cli.BadData(f"{name}: not UTF-8 ({error})") from None
    if name.endswith((".csv", ".tsv")):
        separator = "," if name.endswith(".csv") else "\t"
        return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator))
    if name.endswith(".json"):
        rows = _json(name, text)
        if isinstance(rows, list):
            return rows
        raise cli.BadData(f"{name}: a file .json holds a list of rows; one row a line is .jsonl")
    lines = enumerate(text.split("\n"), 1)
    return [_json(f"{name}:{number}", line) for number, line in lines if line.strip()]


def _json(where: str, text: str | bytes) -> Any:
    try:
        return incoming.parsed(text)
    except ValueError as error:
        raise cli.BadData(f"{where}: {error}") from None


def _file(spec: BenchmarkSpec) -> Rows:
    """Of a file, by its path from the folder of the description."""
    path = Path(spec["folder"]) / spec["source"]["file"]
    try:
        return _checked(spec, str(path), path.read_bytes())
    except OSError as error:
        raise cli.Missing(f"{spec['name']}: its rows are in {path}: {error.strerror}") from None


def _address(spec: BenchmarkSpec) -> Rows:
    """Of an address. Raises cli.TryAgain where it cannot be reached, cli.Missing where it has no such file."""
    import requests

    url = spec["source"]["url"]
    try:
        answer = requests.get(url, timeout=SECONDS, stream=True)
        data = incoming.together(answer.iter_content(1 << 16), LARGEST)
    except incoming.TooLarge as error:
        raise cli.BadData(f"{spec['name']}: {url}: {error}") from None
    except requests.RequestException as error:
        raise cli.TryAgain(f"{spec['name']}: {url} cannot be reached: {error}") from None
    if answer.status_code in (429, *range(500, 600)):
        raise cli.TryAgain(f"{spec['name']}: {url} answers {answer.status_code}")
    if answer.status_code != 200:
        raise cli.Missing(f"{spec['name']}: {url} answers {answer.status_code}; mend its address")
    return _checked(spec, url.split("?")[0], data)


def _program(spec: BenchmarkSpec) -> Rows:
    """Of what a program prints, one row a line; it runs in the folder of the description."""
    name, command = spec["name"], spec["source"]["program"]
    try:
        done = subprocess.run(
            shlex.split(command), cwd=spec["folder"], capture_output=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise cli.BadData(f"{name}: {command} took more than {SECONDS} s") from None
    except (OSError, ValueError) as error:
        raise cli.Missing(f"{name}: {command} does not start: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise cli.BadData(f"{name}: {command} ended with {done.returncode}: {said[-1]}")
    return _checked(spec, command, done.stdout)


def _checked(spec: BenchmarkSpec, name: str, data: bytes) -> Rows:
    """The rows of bytes, whose hash is their revision. Raises cli.BadData where the description names another."""
    wanted, found = spec["source"].get("sha256"), hashlib.sha256(data).hexdigest()
    if wanted and found != wanted:
        said = f"has the sha256 {found}, and {wanted} was expected"
        raise cli.BadData(f"{spec['name']}: {name} {said}")
    if not wanted and spec["kind"] == "url":
        pin = f'sha256 = "{found}" in {spec["path"]}'
        cli.say(f"{spec['name']}: took what is there; to pin it: {pin}")
    rows = parsed("" if spec["kind"] == "program" else name, data)
    if not rows:
        raise cli.BadData(f"{spec['name']}: {name} has no rows")
    return f"sha256 {found[:16]}", rows


def _generated(spec: BenchmarkSpec) -> Rows:
    source = spec["source"]
    return f"seed {source['seed']}", generators.GENERATORS[source["generated"]](source)


def _package(spec: BenchmarkSpec) -> Rows:
    """Of a file of an installed package; nothing of it is imported."""
    source = spec["source"]
    wanted = f"{source['package']} {source['revision']}"
    try:
        found = metadata.distribution(source["package"])
    except metadata.PackageNotFoundError:
        found = None
    if found is None or found.version != source["revision"]:
        said = f"its rows are in the package {wanted}, which is not installed"
        raise cli.Missing(f"{spec['name']}: {said}; `make .venv/.bench` installs it")

    def path(file: str) -> str:
        return str(found.locate_file(file))

    if "files" in source:
        return wanted, list(_files(source, path))
    return wanted, parsed(source["file"], Path(path(source["file"])).read_bytes())


def _hub(spec: BenchmarkSpec) -> Rows:
    """Of a dataset of the Hub at its commit. Raises cli.Missing for one that is gated or not there,
    cli.TryAgain where the Hub does not answer, cli.BadConfig for what the dataset does not have."""
    import huggingface_hub
    from datasets.exceptions import DatasetNotFoundError
    from httpx import HTTPError
    from huggingface_hub import errors

    name, source = spec["name"], spec["source"]
    hub, file = source["hub"], f"assets/benchmarks/{name}.toml"
    how = "if it is gated, ask for access there and set HF_TOKEN"
    if "gated" in spec:
        how = f"accept its terms at {spec['gated']} and set HF_TOKEN"
        if not huggingface_hub.get_token():
            raise cli.Missing(f"{name}: {hub} is gated: {how}")
    revision = source.get("revision", "")
    try:
        if not revision:
            revision = str(huggingface_hub.HfApi().dataset_info(hub).sha)
            pin = f'revision = "{revision}" in {file}'
            cli.say(f"{name}: took the newest revision; to pin it: {pin}")
        if "files" in source:

            def path(file: str) -> str:
                return huggingface_hub.hf_hub_download(
                    hub, file, repo_type="dataset", revision=revision
                )

            return revision, list(_files(source, path))
        return revision, _dataset(source, revision, file)
    except (errors.GatedRepoError, DatasetNotFoundError):
        raise cli.Missing(f"{name}: the Hub does not give {hub} at {revision}; {how}") from None
    except errors.RepositoryNotFoundError:
        raise cli.Missing(f"{name}: the Hub has no public dataset {hub}; {how}") from None
    except (errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        said = str(error).splitlines()[0]
        raise cli.BadConfig(f"{file}: {hub} has not what this asks of it: {said}") from None
    except (errors.HfHubHTTPError, HTTPError, OSError) as error:
        if getattr(getattr(error, "response", None), "status_code", None) == 401:
            another = "make another at https://huggingface.co/settings/tokens"
            raise cli.Missing(
                f"{name}: the Hub does not take the token in HF_TOKEN; {another}"
            ) from None
        said = " ".join(str(error).split())[:300]
        raise cli.TryAgain(f"{name}: the Hub did not answer: {said}") from None


def _dataset(source: RowSource, revision: str, file: str) -> Iterable[Record]:
    """The rows of a split."""
    from datasets import Image, load_dataset
    from datasets.exceptions import DatasetNotFoundError
    from huggingface_hub.errors import HfHubHTTPError

    config, split = source.get("config"), source["split"]
    try:
        found = load_dataset(source["hub"], config, revision=revision, split=split)
        pictures = [name for name, kind in found.features.items() if isinstance(kind, Image)]
        for name in pictures:  # their bytes as they are
            found = found.cast_column(name, Image(decode=False))
        return (row | {name: _picture(row[name]) for name in pictures} for row in found)
    except DatasetNotFoundError as error:  # what the Hub answered is its cause
        cause = error.__cause__
        raise (cause if isinstance(cause, HfHubHTTPError) else error) from None
    except ValueError as error:  # a config, split or script that datasets does not take
        raise cli.BadConfig(f"{file}: {error}") from None


def _picture(image: Record | None) -> str | None:
    """A picture of a dataset as an address that holds it."""
    if not image or not image["bytes"]:
        return None
    kind = mimetypes.guess_type(image["path"] or "")[0] or "image/png"
    return f"data:{kind};base64,{base64.b64encode(image['bytes']).decode()}"


def _files(source: RowSource, path: Callable[[str], str]) -> Iterator[Record]:
    """The rows of JSONL files, which lie where `path` says; with `join` each gets the row of other files with the same key, as `joined`."""

    def lines(file: str) -> Iterator[Record]:
        with open(path(file)) as opened:
            yield from (json.loads(line) for line in opened if line.strip())

    on = source.get("join")
    others = {row[on["on"]]: row for file in on["files"] for row in lines(file)} if on else {}
    for file in source["files"]:
        for row in lines(file):
            yield {**row, "joined": others.get(row[on["on"]])} if on else row


READERS: dict[str, Callable[[BenchmarkSpec], Rows]] = {
    "file": _file,
    "url": _address,
    "program": _program,
    "generated": _generated,
    "package": _package,
    "hub": _hub,
}
LOCAL = ("file", "program")  # read anew each time: they change without their description


def _contest(row: Record) -> Record:
    """LiveCodeBench packs its hidden tests as base64 of zlib of a pickled JSON string; a pickle that names any class is refused."""

    class Plain(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> NoReturn:
            said = f"name {module}.{name}; they may only hold text"
            raise cli.BadData(f"the hidden tests of {row.get('question_id')} {said}")

    hidden = row["private_test_cases"]
    try:
        tests = json.loads(hidden)
    except ValueError:
        tests = json.loads(Plain(io.BytesIO(zlib.decompress(base64.b64decode(hidden)))).load())
    return {**row, "tests": json.loads(row["public_test_cases"]) + tests}


def _listed(row: Record) -> Record:
    """MMMU-Pro writes the list of its choices as Python does."""
    return row | {"options": ast.literal_eval(row["options"])}


# How rows are unpacked before the description's own program sees them (`decode`).
DECODERS = {"livecodebench": _contest, "evalplus": plus.row, "mmmu": _listed}


@functools.cache
def database(folder: Path, name: str) -> dict[str, str]:
    """What a row gets of the SQLite database that it asks about: `schema`, its tables as they were made,
    and `database`, where it lies. Raises cli.Missing, cli.BadData for a name that is a path."""
    if not re.fullmatch(r"[\w-]+", name):
        raise cli.BadData(f"db_id {name!r} is no plain name")
    path = (folder / name / f"{name}.sqlite").resolve()
    if not path.is_file():
        said = "docs/benchmarks.md says where databases come from"
        raise cli.Missing(f"there is no database {path}; {said}")
    tables = "SELECT sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        schema = ";\n\n".join(sql for (sql,) in db.execute(tables))
    own = path.relative_to(cli.ROOT) if path.is_relative_to(cli.ROOT) else path
    return {"schema": schema, "database": str(own)}
