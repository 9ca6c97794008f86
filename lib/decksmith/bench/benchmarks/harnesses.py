"""Results of other tools as graded rows of ours, and ours in the trackers that people keep their experiments in. assets/harnesses
says of each tool how its files are recognised, and what in them is a question, a score and a group, in jq; here they are read as
streams, within limits. Nothing of a file is run or followed."""

import codecs
import copy
import functools
import itertools
import json
import math
import os
import re
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any, NamedTuple, TypedDict, cast

from decksmith import __version__
from decksmith.bench.benchmarks import metrics
from decksmith.bench.benchmarks.metrics import BenchComparison, BenchSummary, Results
from decksmith.bench.benchmarks.records import BenchRecord
from decksmith.core import cli, stream
from decksmith.core.records import Record

LARGEST = 64 << 20  # characters of one record; bytes of a file that is read beside a log
ALL = 8 << 30  # characters of all records: what a small file may unpack to
MOST = 18  # benchmarks that a comment shows
AHEAD = 10_000  # records among which a first score is looked for
FOLDER = cli.ROOT / "assets/harnesses"
Records = Iterator[tuple[int, Record]]  # with their numbers, from 1


class Harness(TypedDict, total=False):
    """A file of assets/harnesses; `first`, `each`, `head` and `row` are jq programs."""

    title: str
    takes: str  # in words
    made: str  # the command that writes it
    beside: list[str]  # patterns of a file that says more, from the log's folder
    files: list[str]  # what such files are called in a folder
    columns: list[str]  # of a table that are read
    skips: bool  # some of its records are no rows
    together: bool  # several files of one benchmark are samples of its questions
    first: str  # whether a first record is of this tool
    each: str  # of a log that is one object: its records, an array
    head: str  # what a log says of itself (Head), of the first record with `second` and `beside`
    row: str  # what record.jq makes a graded row of, of each record


class Head(TypedDict, total=False):
    """What a log says of itself, and what somebody asks of it in place of that."""

    tool: str
    bench: str
    model: str
    version: object
    how: object  # it was asked: settings that are named where they differ
    rules: object  # of the scorer
    metric: str
    part: object  # of the metric; rows of other parts are left out
    scale: tuple[float, float]
    means: dict[str, float]  # by metric


class Log(NamedTuple):
    """A file of another tool, of which only the beginning was read."""

    path: Path
    harness: Harness
    head: Head
    rows: Records


def _short(value: object) -> str:
    """A value in a few letters: as it is, or its fingerprint."""
    text = value if isinstance(value, str) else json.dumps(value)
    return (
        ",".join(map(plain, text.split(","))) if len(text) <= 80 else stream.fingerprint(text)[:12]
    )


def plain(name: object) -> str:
    """A name as a folder, a table and a comment can have it."""
    return re.sub(r"[^A-Za-z0-9._/:+-]+", "-", str(name)).strip("-./")[:120] or "unnamed"


@functools.cache
def harnesses() -> list[Harness]:
    files = sorted(FOLDER.glob("*.toml"))
    return [cast(Harness, tomllib.loads(path.read_text())) for path in files]


# Files as records


class _Text:
    """The text of a file as far as it was needed; errors name `where`."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        self.read, self.where = codecs.getreader("utf-8-sig")(file).read, where
        self.text, self.at, self.total = "", 0, 0

    def more(self) -> bool:
        """Whether there was more. Raises cli.BadData for what is no text, and past ALL."""
        try:
            more = self.read(max(1 << 20, len(self.text) - self.at))
        except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            said = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error
            raise cli.BadData(f"{self.where}: {said}") from None
        self.text, self.at, self.total = self.text[self.at :] + more, 0, self.total + len(more)
        if self.total > ALL:
            raise cli.BadData(f"{self.where}: it unpacks to more than {ALL >> 30} GiB")
        return bool(more)

    def peek(self) -> str:
        """The next sign that is no blank and no comma, which stays; none at the end."""
        while True:
            self.at = cast(re.Match[str], _BLANK.match(self.text, self.at)).end()
            if self.at < len(self.text) or not self.more():
                return self.text[self.at : self.at + 1]


_BLANK = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)  # Python writes NaN, which is no score


def _objects(file: IO[bytes], where: str) -> Records:
    """The objects of JSON lines, of an array or of a whole file, as they come. Raises cli.BadData."""
    text = _Text(file, where)
    end = "]" if text.peek() == "[" else ""
    text.at += len(end)
    for number in itertools.count(1):
        said = "a record is an object in braces"
        while text.peek() == "{":
            try:
                record, text.at = _DECODER.raw_decode(text.text, text.at)
                break
            except (ValueError, RecursionError) as error:
                said = re.sub(r": line \d+ column \d+.*", "", str(error))
                if len(text.text) - text.at > LARGEST or not text.more():
                    raise cli.BadData(f"{where}: record {number}: not JSON ({said})") from None
        else:
            if text.peek() == end:
                return
            raise cli.BadData(f"{where}: record {number}: not JSON ({said})")
        yield number, record


def _whole(file: IO[bytes], where: str) -> Record:
    """The one object of a small file."""
    return next(_objects(file, where), (0, cast(Record, {})))[1]


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """A file of a zip, packed as zlib or, by Inspect today, as Zstandard, which Python's zipfile cannot unpack before 3.14."""
    info = archive.getinfo(name)
    if info.compress_type != 93:
        return archive.open(info)
    import pyarrow

    raw = copy.copy(info)
    raw.compress_type, raw.file_size = zipfile.ZIP_STORED, raw.compress_size
    del raw.CRC  # of what is unpacked
    return cast(IO[bytes], pyarrow.CompressedInputStream(archive.open(raw), "zstd"))


def _table(path: Path) -> Records:
    """The rows of a parquet file, of the columns that a harness reads."""
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(path)
    known = {name for one in harnesses() for name in one.get("columns", ())}
    names = [name for name in table.schema_arrow.names if name in known]
    batches = table.iter_batches(1000, columns=names) if names else ()
    yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)


def _opened(path: Path) -> tuple[Record, Record, Records]:
    """The first two records of a file, and all; of a log of Inspect its header, and its samples as its summaries list them."""
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"PK\3\4":
        if not zipfile.is_zipfile(path):
            raise _unknown(path, "a damaged zip")
        archive = zipfile.ZipFile(path)
        if "header.json" not in archive.namelist():
            said = "a zip without header.json; of an evaluation that has not ended, `inspect eval-retry LOG` goes on with it"
            raise cli.BadData(f"{path}: {said}")
        head = _whole(_member(archive, "header.json"), f"{path}: header.json")
        member = _member(archive, "summaries.json")
        return head, {}, _objects(member, f"{path}: summaries.json")
    begins = magic.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if magic != b"PAR1" and begins not in (b"{", b"[", b""):
        raise _unknown(path, "no JSON, zip or parquet")
    rows = _table(path) if magic == b"PAR1" else _objects(path.open("rb"), str(path))
    ahead = list(itertools.islice(rows, 2))
    first, second = ([one for _, one in ahead] + [{}, {}])[:2]
    samples = first.pop("samples") if isinstance(first.get("samples"), list) else None
    if samples is not None and "eval" in first:
        return first, {}, enumerate((one for one in samples if isinstance(one, dict)), 1)
    return first, second, itertools.chain(ahead, rows)


# Logs


def _program(text: str, path: Path, head: Head | None = None) -> Callable[[Any], Any]:
    folders = [parent.name for parent in path.absolute().parents][:4]
    known = {"file": path.name, "folders": folders, "head": head or {}}
    return stream.program((FOLDER / "record.jq").read_text() + text, known)


def opened(path: Path, given: Head) -> Log | None:
    """A file as the log that it is, None for one of no tool that is known. Raises cli.BadData for one that is broken."""
    try:
        first, second, rows = _opened(path)
        for harness in harnesses():
            if _program(harness["first"], path)(first) is True:
                said = {**first, "second": second, **_beside(path, harness)}
                own = _program(harness["head"], path)(said)
                head: Head = {**own, "tool": harness["title"], **given}
                head["bench"] = re.sub("[/:+]", "-", plain(head.get("bench") or path.stem))[:60]
                head["model"] = plain(head.get("model") or "unknown")
                if "each" in harness:
                    rows = iter(enumerate(_program(harness["each"], path)(first), 1))
                return _chosen(Log(path, harness, head, rows))
    except ImportError:
        mend = "`make .venv/.hub` installs it"
        raise cli.Missing(f"{path}: this form is read by pyarrow; {mend}") from None
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise cli.BadData(f"{path}: {' '.join(str(error).split())[:300]}") from None
    return None


def _beside(path: Path, harness: Harness) -> Record:
    """The file that says more of a log: the one that is named so, or of several by a pattern the one of the same date."""
    patterns = harness.get("beside", [])
    found = [one for each in patterns for one in sorted(path.parent.glob(each))]
    same = [one for one in found if one.stem.endswith(path.stem.rpartition("_")[2])]
    certain = same or (found if len(found) == 1 or "*" not in "".join(patterns) else [])
    if not certain or certain[0].stat().st_size > LARGEST:
        return {}
    with certain[0].open("rb") as file:
        return {"beside": _whole(file, str(certain[0]))}


def _chosen(log: Log) -> Log:
    """The log with its metric: the one asked for, or the first that a row has."""
    metric, comma, part = str(log.head.get("metric") or "").partition(",")
    made, ahead, seen = _program(log.harness["row"], log.path), [], dict[str, None]()
    for number, each in log.rows if not comma else ():
        ahead.append((number, each))
        try:
            row = made(each)
        except ValueError:  # which rows() says
            row = {}
        scores = row.get("scores") or {}
        seen |= dict.fromkeys(scores)
        if scores and (not metric or metric in scores):
            metric, part = metric or next(iter(scores)), row.get("part")
            break
        if len(ahead) == AHEAD:
            break
    if not metric or (not comma and metric not in seen):
        there = ", ".join(map(plain, [*seen][:12])) or "no score at all"
        raise cli.BadData(f"{log.path}: no score {plain(metric) if metric else ''}; it has {there}")
    log.head["metric"], log.head["part"] = metric, part
    return log._replace(rows=itertools.chain(ahead, log.rows))


def _unknown(path: Path, what: str) -> cli.BadData:
    taken = "; ".join(f"{h['title']}: {h['takes']}, by `{h['made']}`" for h in harnesses())
    return cli.BadData(f"{path}: {what}, none of these. {taken}; ours: rows.jsonl of bench-grade")


def logs(path: Path, given: Head | None = None) -> dict[str, list[Log]]:
    """The logs of a file, or of a folder with all that is in it, by benchmark; given: what is asked in place of what they say.
    Raises cli.BadData, naming what was found and what is taken."""
    found: dict[str, list[Log]] = {}
    inside = sorted(one for one in path.rglob("*") if one.is_file())
    patterns = [pattern for harness in harnesses() for pattern in harness["files"]]
    named = [one for one in inside if any(fnmatch(one.name, each) for each in patterns)]
    for file in named if path.is_dir() else [path]:
        if (log := opened(file, cast(Head, {"scale": (0, 1), **(given or {})}))) is None:
            continue
        same = found.setdefault(log.head["bench"], [])
        if same and not (log.harness.get("together") and file.parent == same[0].path.parent):
            said = f"{same[0].path} and {file} are both of {log.head['bench']}; name one of them"
            raise cli.BadData(said)
        same.append(log)
    if not found:
        first = {} if path.is_dir() else _opened(path)[0]
        means = " (means alone say nothing of a question)" if "results" in first else ""
        keys = f"a file with the keys {', '.join(map(plain, [*first][:8])) or '(none)'}{means}"
        what = f"a folder of {len(inside)} files" if path.is_dir() else keys
        raise _unknown(path, what)
    models = sorted({log.head["model"] for some in found.values() for log in some})
    if len(models) > 1:
        raise cli.BadData(f"{path} has logs of {', '.join(models)}; name those of one, or --model")
    return found


def rows(log: Log) -> Iterator[BenchRecord]:
    """A log's records as graded rows; at the end stderr says what was taken. Raises cli.BadData naming the record."""
    head = log.head
    label = f"{head['metric']},{head['part']}" if head.get("part") else head["metric"]
    rules = f" {_short(head['rules'])}" if head.get("rules") else ""
    version = head.get("version")
    known = "of unknown version" if version is None else _short(version)
    shown = {"label": _short(label), "revision": f"{head['tool']} {known}"}
    shown["rules"] = f"{head['tool']}: {shown['label']}{rules}"
    each_row = f"def row: {log.harness['row']}; .n as $n | .each | row | .n = $n | record"
    made = _program(each_row, log.path, cast(Head, {**head, **shown}))
    count, lost, others, total = 0, 0, 0, 0.0
    for number, each in log.rows:
        try:
            record = made({"n": number, "each": each})
        except ValueError as error:
            if isinstance(error, stream.NoResult) and log.harness.get("skips"):
                continue
            said = " ".join(str(error).split())[:400]
            raise cli.BadData(f"{log.path}: record {number}: {said}") from None
        if "other" in record:
            others += 1
            continue
        count, lost = count + 1, lost + ("error" in record["grade"])
        total += record["grade"].get("score", 0.0)
        yield _with_id(record, log.head["bench"])
    mean = total / (count - lost) if count > lost else math.nan
    said = f"{log.path}: {count:,} rows of {head['bench']} by {head['model']} ({head['tool']}, {shown['label']}: {mean:.3f}"
    theirs = (head.get("means") or {}).get(label)
    if isinstance(theirs, int | float) and tuple(head["scale"]) == (0, 1):
        said += ", as the log says" if abs(theirs - mean) < 0.0006 else f"; the log says {theirs:g}"
    said += f"); {lost:,} without a score" if lost else ")"
    cli.say(said + (f"; {others:,} of other metrics left out" if others else ""))


def _with_id(record: Record, bench: str) -> BenchRecord:
    """A record with an id of ours for its question, equal for equal ones alone."""
    question, task = record.pop("question"), record["task"]
    for key in ("subset", "asked"):
        if task.get(key) is not None:
            task[key] = _short(task[key])
    clean = re.sub(r"[^A-Za-z0-9._-]+", "-", question)
    if clean != question or len(clean) > 60:
        clean = f"{clean[:30]}-{stream.fingerprint(question)[:8]}"
    ident = f"{bench}-{clean}"
    if sample := record["gen"].get("sample"):
        sample["of"], ident = ident, f"{ident}~{sample['k']}"
    return cast(BenchRecord, {"id": ident, **record})


def load(path: Path, given: Head | None = None) -> Results:
    """A model's results: a folder of ours (metrics.load), rows.jsonl of ours, or logs of another tool."""
    if not path.exists() or any(path.glob("*/rows.jsonl")):
        return metrics.load(path)
    if path.suffix == ".jsonl" and isinstance(_opened(path)[0].get("task"), dict):
        return metrics.read(stream.records(path), lean=True, name=str(path))
    found: Results = {}
    for some in logs(path, given).values():
        records = cast(Iterator[Record], itertools.chain.from_iterable(map(rows, some)))
        found |= metrics.read(enumerate(records, 1), lean=True, name=str(some[0].path))
    return found


def labels(paths: Sequence[Path], sides: Sequence[Results]) -> list[str]:
    """What two sides are called: folders of ours by name, logs by their model, or where that is one model by file or folder."""
    first = [next(iter(next(iter(side.values())).values()))[0] for side in sides]
    models = [one["gen"]["model"]["name"] if "metric" in one["task"] else "" for one in first]
    named = [model or path.name for model, path in zip(models, paths, strict=True)]
    stems, parents = [path.stem for path in paths], [path.absolute().parent.name for path in paths]
    whole = [each for each in (named, stems, parents) if len({*each}) > 1 and "unknown" not in each]
    return [plain(name) for name in (whole or [stems])[0]]


def comment(
    model: str, base: str, entries: Sequence[BenchComparison], said: str, looks: str, command: str
) -> str:
    """A comparison (metrics.judged) as markdown that GitHub shows, under 60 lines; command: what makes it again."""
    order = ("worse", "refused", "cannot tell", "better", "holds")
    ranked = sorted(entries, key=lambda entry: order.index(entry["verdict"]))
    table = metrics.comparison(model, base, ranked[:MOST])
    if rest := ranked[MOST:]:
        table.append(
            f"- {len(rest)} more, none worse off than the last of these (`--json` has all)"
        )
    words = {"said": said, "table": "\n".join(table), "looks": looks, "command": command}
    return (FOLDER / "comment.md").read_text().format(**words, version=__version__)


# Trackers: what belongs to one model's results is one run there; sent again, it is the same run

PROJECT = "decksmith"  # where the tracker's own variable names none


def flat(summaries: Mapping[str, BenchSummary]) -> dict[str, float]:
    """The metrics of each benchmark as `bench/mode/metric`, with its coverage."""
    found: dict[str, float] = {}
    for bench, summary in summaries.items():
        found[f"{bench}/coverage"] = summary["coverage"] or 0.0
        for mode, values in summary["modes"].items():
            for name, value in values.items():
                if isinstance(value, int | float):
                    found[f"{bench}/{mode.replace('@', '-')}/{name}"] = float(value)
    return found


def send(tracker: str, name: str, summaries: Mapping[str, BenchSummary]) -> None:
    """Log summaries as a run of this name, by the tracker's own settings (WANDB_*, MLFLOW_*). Raises cli.Missing without
    its package, cli.TryAgain where it does not take them."""
    ident = stream.fingerprint([name, *sorted(summaries)])[:16]
    try:
        {"wandb": _wandb, "mlflow": _mlflow}[tracker](ident, name, flat(summaries))
    except ImportError:
        raise cli.Missing(f"{tracker} is not installed: pip install {tracker}") from None
    except Exception as error:  # whatever its client raises: the results themselves are kept
        raise cli.TryAgain(f"{tracker} did not take the results: {error}") from None


def _wandb(ident: str, name: str, found: Mapping[str, float]) -> None:
    import wandb

    project = os.environ.get("WANDB_PROJECT", PROJECT)
    with wandb.init(project=project, name=name, id=ident, resume="allow") as run:
        run.summary.update(found)


def _mlflow(ident: str, name: str, found: Mapping[str, float]) -> None:
    import mlflow

    mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    same = mlflow.search_runs(filter_string=f"tags.decksmith = '{ident}'", output_format="list")
    kept = {"run_id": same[0].info.run_id} if same else {"run_name": name}
    with mlflow.start_run(**kept, tags={"decksmith": ident}):
        mlflow.log_metrics(dict(found))
