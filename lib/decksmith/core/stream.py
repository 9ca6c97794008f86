"""Streams of records: ordered, concurrent, resumable.

A stage reads JSONL on stdin, adds one key to each record, and writes JSONL on stdout in the same order. What it has finished
stands in an append-only journal, so that a process killed at any moment repeats nothing it was done with.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import hashlib
import io
import itertools
import json
import os
import re
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Generic, ParamSpec, TypeVar, cast, overload

from decksmith import __version__
from decksmith.core import cli, incoming, masking
from decksmith.core.progress import Progress
from decksmith.core.records import By, Error, Failure, Record, Row, Value, check_record, misfit

P = ParamSpec("P")
R = TypeVar("R", bound=Row)  # a record
V = TypeVar("V", bound=Value)  # what a stage makes of it
KINDS = ("model", "renderer", "judge", "infra")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}\Z")


class Fault(Exception):
    """A failure that belongs to one record; `kind` says whose fault it is (docs/records.md)."""

    def __init__(self, kind: str, cls: str, message: str, **more: object) -> None:
        """more: what else the error says; what is None, it does not say."""
        assert kind in KINDS, kind
        super().__init__(message)
        known = {key: value for key, value in more.items() if value is not None}
        self.error = cast(Error, {"kind": kind, "class": cls, "message": message, **known})


def fingerprint(data: object) -> str:
    """The sha256 (hex) of `data` as `canonical` JSON."""
    return hashlib.sha256(canonical(data)).hexdigest()


def canonical(data: object) -> bytes:
    """`data` as JSON with sorted keys, without blanks."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), default=str).encode()


def shuffled(ident: str) -> str:
    """What ids are sorted by where their order may have nothing to do with what they name; the same for ever."""
    return hashlib.sha256(f"order {ident}".encode()).hexdigest()


def part(ident: str, parts: int) -> int:
    """The part, from 1 to `parts`, that a record belongs to: by its id and nothing else; all turns of a
    prompt by the first's (`turns.root`)."""
    return int(fingerprint(ident)[:8], 16) % parts + 1


def fault(record: Mapping[str, object]) -> Failure | None:
    """The decisive error of a record, with its `stage`, or None.

    Any key may hold one. It is the first in the order of the record's keys, which is the order in
    which the stages added them.
    """
    for stage, value in record.items():
        if isinstance(value, dict) and isinstance(value.get("error"), dict):
            return cast(Failure, {"stage": stage, **value["error"]})
    return None


def whole(text: str) -> str:
    """`text` with U+FFFD for each half of a surrogate pair that stands alone: no UTF-8 can say it
    (RFC 3629), and jq, Arrow and others refuse JSON that has one (RFC 7493)."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def write(path: str | Path, data: str | bytes) -> None:
    """Write a whole file or nothing: `path.tmp`, flushed, then renamed. Folders are made."""
    with _appearing(path) as file:
        file.write(data if isinstance(data, bytes) else whole(masking.mask(data)).encode())


def write_records(path: str | Path, records: Iterable[Mapping[str, object]]) -> int:
    """Write a whole file of records or nothing, without holding them all; returns how many they are.
    Folders are made once the first record is there."""
    count, rest = 0, iter(records)
    first = list(itertools.islice(rest, 1))
    with _appearing(path) as file:
        for record in itertools.chain(first, rest):
            file.write(dumps(record) + b"\n")
            count += 1
    return count


@contextlib.contextmanager
def _appearing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to, which has its name once it is whole."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def dumps(record: object) -> bytes:
    """One record as a line of bytes, without the newline; it has no lone surrogates (`whole`) and no known secret."""
    from pydantic_core import PydanticSerializationError, to_json  # no --help waits for it

    try:
        line = to_json(record)  # a quarter of json's time
    except PydanticSerializationError:
        line = whole(json.dumps(record, ensure_ascii=False, separators=(",", ":"))).encode()
    return masking.mask(line)


# Half of a surrogate pair, escaped or as bytes.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")


def loads(line: str | bytes) -> Record:
    """Parse one line into a record without lone surrogates (`whole`). Raises ValueError, a sentence."""
    if line.lstrip()[:1] in ("[", b"["):
        raise ValueError("not an object but a JSON array; jq -c '.[]' makes lines of it")
    record = json_object(line)
    if not isinstance(record.get("id"), str) or not ID.match(record["id"]):
        raise ValueError("no usable \"id\" (letters, digits, '.', '_', '~', '-'; at most 128)")
    return record


def json_object(line: str | bytes) -> Record:
    """The object of a line of JSON, without lone surrogates. Raises ValueError, a sentence."""
    record = json_value(line)
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


def json_value(line: str | bytes) -> Any:
    """Any value of a line of JSON, without lone surrogates. Raises ValueError, a sentence."""
    line = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    found = incoming.value(line)
    if (rb"\u" in line or b"\xed" in line) and _HALF.search(line):
        found = json.loads(whole(json.dumps(found, ensure_ascii=False)))
    return found


def json_file(path: Path, refused: type[cli.Stop] = cli.BadData) -> Record:
    """The object of a JSON file. Raises `refused` naming the file."""
    try:
        return json_object(path.read_bytes())
    except (OSError, ValueError) as error:
        raise refused(f"{path}: {error}") from None


class NoResult(ValueError):
    """A jq program gave nothing for a value."""


def program(text: str, known: Mapping[str, object] | None = None) -> Callable[[Any], Any]:
    """A jq program, with variables, as a function of one value, that gives its first result. Raises ValueError, with jq's words, for a program that does
    not compile; the function does for a value that the program fails on or has no result for."""
    import jq

    compiled = jq.compile(text, args=dict(known or {}))

    def first(value: Any) -> Any:
        try:
            return compiled.input_text(dumps(value).decode()).first()
        except StopIteration:
            raise NoResult("it has no result") from None

    return first


@overload
def records(path: str | Path) -> Iterator[tuple[int, Record]]: ...
@overload
def records(path: str | Path, takes: type[R]) -> Iterator[tuple[int, R]]: ...


def records(path: str | Path, takes: type[R] | None = None) -> Iterator[tuple[int, Record | R]]:
    """Yield `(line number, record)` of a JSONL file, or of /dev/stdin, each of the type `takes`.

    Raises cli.BadData naming file, line and what is wrong there.
    """
    is_stdin, count = str(path) == "/dev/stdin", 0
    with io.BufferedReader(stdin) if is_stdin else open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = loads(line)
                yield number, record if takes is None else typed(record, takes)
            except ValueError as error:
                name = "stdin" if is_stdin else path
                said = cli.Script.usage if is_stdin and not count else ""
                raise cli.BadData(f"{name}:{number}: {error}{said}") from None
            count += 1
    if is_stdin:
        cli.Script.empty = not count


def typed(record: Record, takes: type[R]) -> R:
    """The record itself, once what it has is of the type `takes`; a `render` that is not so is an
    error. Raises ValueError naming another such key."""
    # What one of our own stages made was typed when it was made: it says by whom.
    ours = [k for k, v in record.items() if isinstance(v, dict) and isinstance(v.get("by"), dict)]
    outside = {key: value for key, value in record.items() if key not in ours}
    drawn, kind = record.get("render"), takes.__annotations__.get("render")
    if kind and isinstance(drawn, dict):
        # A page had its hand in it, whoever wrote it down: what is wrong here ends this record alone.
        outside.pop("render", None)
        if wrong := misfit(drawn, kind, without=("engine", "by")):
            said = f"its render is damaged, run deck-render again: {wrong}"
            warn(record["id"], said)
            record = {**record, "render": {"error": Fault("infra", "bad-record", said).error}}
    check_record(outside, takes)
    return cast(R, record)


class _Stdin(io.RawIOBase):
    """Standard input, whose first bytes can be looked at. `prepare` is called before anything is read of it."""

    def __init__(self) -> None:
        self.prepare: Callable[[], None] | None = None
        self.seen = b""
        self.waited = self.ended = False

    def peek(self) -> bytes:
        """The first bytes, which stay to be read; none at the end."""
        self.seen = self.seen or self._read(1 << 18)
        self.ended = not self.seen  # a terminal would want a second Ctrl-D
        return self.seen

    def _read(self, size: int) -> bytes:
        if not self.waited and os.isatty(0):
            cli.say(f"waiting for lines on stdin (Ctrl-D ends them){cli.Script.usage}")
        self.waited = True
        return os.read(0, size)

    def take(self, size: int = 1 << 18) -> bytes:
        """The next bytes, at most `size`; none at the end."""
        if prepare := self.prepare:
            self.prepare = None
            prepare()
        first, self.seen = self.seen[:size], self.seen[size:]
        return first or (b"" if self.ended else self._read(size))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.take(len(buffer))
        buffer[: len(data)] = data
        return len(data)


stdin = _Stdin()


def emit(record: Mapping[str, object]) -> None:
    """Write one record to stdout at once."""
    sys.stdout.buffer.write(dumps(record) + b"\n")
    sys.stdout.buffer.flush()


def warn(ident: str, message: str) -> None:
    """Say something about one record on stderr, without tearing the live line."""
    line = f"{cli.NAME}: {ident}: {message}"
    if Progress.current:
        Progress.current.warn(line)
    else:
        cli.tell(line)


# Journals that cost time alone, by name: what is damaged there is made again. A script whose judge is free adds it.
FREE = {*"deck images render build revise check grade reads embedding looks features".split()}
_CRC = b',"crc":"'


def summed(record: object) -> bytes:
    """An object as JSON with a checksum of what stands before as its last key, `crc`: CRC-32, 8 hex digits."""
    text = dumps(record)[:-1]
    return b'%s,"crc":"%08x"}' % (text, zlib.crc32(text))


def sound(text: bytes) -> bool:
    """Whether an object that `summed` gave is what it was. One without a checksum is, where it is JSON."""
    rest, crc, said = text.rpartition(_CRC)
    if crc:
        return said == b'%08x"}' % zlib.crc32(rest)
    try:
        return bool(json_object(text))
    except ValueError:
        return False


def unsummed(text: bytes) -> Record | None:
    """The object that `summed` gave, without its checksum; None where it is not what it was."""
    found = json_object(text) if sound(text) else None
    if found:
        found.pop("crc", None)
    return found


def journal(path: Path) -> Iterator[tuple[bytes, Record]]:
    """The whole lines of a journal, each with its entry; none where it was not begun or cannot be read. Those that are
    damaged are said, or refused, at the end, as by `Journal`."""
    bad: dict[int, bytes] = {}
    with contextlib.suppress(OSError), open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n") and line.strip():
                if (entry := unsummed(line[:-1])) is None:
                    bad[number] = line
                elif isinstance(entry.get("id"), str):
                    yield line, entry
    if bad:
        damaged(path, bad)


def damaged(path: Path, bad: Mapping[int, bytes]) -> None:
    """Say which lines of a journal are damaged. Raises cli.BadData where they were paid for, unless REPAIR=1 is set."""
    ids = {n: re.match(rb'\{"id":"([\w.~-]+)"', line) for n, line in [*bad.items()][:10]}
    lines = ", ".join(f"{n} ({found[1].decode()})" if found else f"{n}" for n, found in ids.items())
    more = f" and {len(bad) - 10:,} more" if len(bad) > 10 else ""
    lost(f"{path}: damaged on its disk: line {lines}{more}", path.stem in FREE)


def lost(said: str, free: bool = False) -> None:
    """Say that what is kept of something is damaged. Raises cli.BadData unless it is free, or REPAIR=1 is set."""
    if not free and not os.environ.get("REPAIR"):
        mend = "Bring it back from a copy, or type the same command with REPAIR=1: it is asked, and paid for, again"
        raise cli.BadData(f"{said}. {mend}")
    cli.say(f"{said}. It is made again")


class Journal:
    """Finished values by record id and fingerprint of their inputs, one JSON line each with a checksum (`summed`), appended by
    a single write.

    A torn last line (kill -9, full disk) is cut off on opening. Another damaged line is said, or refused (`damaged`); then it
    is moved to FILE.damaged, so that its value is made again. A second process waits for the first: the file is locked.
    A file that others could have made is refused (incoming.own).
    Of each line only the place is kept in memory, about 90 bytes.
    """

    _HEAD = re.compile(rb'\{"id":"[^"\\]+","inputs":"[0-9a-f]{64}",')
    _LENGTHS = 1 << 32  # a place is one number: offset * _LENGTHS + length

    def __init__(self, path: str | Path, key: str) -> None:
        self.key = key
        # By the hash of a line's head. Should two heads have one hash, only the later line is found.
        self.places: dict[int, int] = {}
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(incoming.own(path, incoming.KEPT | os.O_APPEND), "a+b", buffering=0)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            cli.say(f"waiting for another process that is writing {path}")
            fcntl.flock(self.file, fcntl.LOCK_EX)
        try:
            self._load(path)
        except BaseException:
            self.file.close()
            raise

    def _load(self, path: Path) -> None:
        offset, bad, at = 0, dict[int, bytes](), dict[int, int]()
        with open(self.file.fileno(), "rb", buffering=1 << 20, closefd=False) as reader:
            reader.seek(0)
            for number, line in enumerate(reader, 1):
                if not line.endswith(b"\n"):
                    if not (_CRC in line and sound(line[:-1])):
                        break  # torn; else its end alone is damaged
                    self.file.truncate(offset + len(line) - 1)
                    self.file.write(b"\n")
                if not sound(line[:-1]):
                    if line.strip():
                        bad[number], at[number] = line, offset
                elif head := self._HEAD.match(line):
                    self.places[hash(head[0])] = offset * self._LENGTHS + len(line)
                offset += len(line)
        self.file.truncate(offset)
        if bad:
            damaged(path, bad)
            with open(f"{path}.damaged", "ab") as kept:
                kept.writelines(bad.values())
            with open(path, "r+b") as file:  # blanks in their place, so that no other line moves
                for number, line in bad.items():
                    file.seek(at[number])
                    file.write(b" " * (len(line) - 1))

    def _head(self, ident: str, inputs: str) -> bytes:
        return dumps({"id": ident, "inputs": inputs})[:-1] + b","

    def _line(self, place: int) -> bytes:
        offset, length = divmod(place, self._LENGTHS)
        return os.pread(self.file.fileno(), length, offset)

    def get(self, ident: str, inputs: str) -> Any:
        """The value journaled for these inputs, or None."""
        head = self._head(ident, inputs)
        if (place := self.places.get(hash(head))) is None:
            return None
        line = self._line(place)
        return json.loads(line).get(self.key) if line.startswith(head) else None

    def put(self, ident: str, inputs: str, value: Any) -> None:
        line = summed({"id": ident, "inputs": inputs, self.key: value}) + b"\n"
        offset = os.lseek(self.file.fileno(), 0, os.SEEK_END)
        view = memoryview(line)
        try:
            while view:
                view = view[self.file.write(view) :]
        except OSError:  # a full disk: the next line must not follow half a line
            self.file.truncate(offset)
            raise
        self.places[hash(self._head(ident, inputs))] = offset * self._LENGTHS + len(line)

    def close(self) -> None:
        os.fsync(self.file.fileno())
        self.file.close()


async def _lines() -> AsyncIterator[tuple[int, bytes]]:
    """Yield `(number, line)` of stdin without blocking the loop; one read serves many lines."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | Exception] = asyncio.Queue(maxsize=1)

    def read() -> None:
        chunk: bytes | Exception = b"the first"
        while chunk and isinstance(chunk, bytes):
            try:
                chunk = stdin.take()
            except Exception as error:
                chunk = error
            taken = chunks.put(chunk)
            try:
                asyncio.run_coroutine_threadsafe(taken, loop).result()
            except (RuntimeError, concurrent.futures.CancelledError):  # the stage has ended
                taken.close()
                return

    # A daemon, because a read that never returns must not keep a stage alive whose own reader has gone.
    threading.Thread(target=read, daemon=True).start()
    rest, number = b"", 0
    while chunk := await chunks.get():
        if isinstance(chunk, Exception):
            raise chunk
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0], rest = rest + lines[0], b""
        rest += last
        for line in lines:
            number += 1
            yield number, line
    if rest:
        yield number + 1, rest


# What a stage makes of a record: a value, now or later. It is copied.
Work = Callable[[R], V | Awaitable[V]]


# How a stage says what became of its records.
TALLY = {
    "done": "done",
    "kept": "of them from the journal",
    "passed": "passed through",
    "model": "model faults",
    "renderer": "renderer faults",
    "judge": "judge faults",
    "refused": "refused by the endpoint",
    "infra": "infrastructure faults (run again)",
    "bad": "bad lines",
}


@dataclasses.dataclass
class _Stage(Generic[R, V]):
    """One run of a stage.

    work(record) -> value: a function or coroutine function, at most `jobs` at a time; raises Fault
    for a failure of this record.
    takes: the type of a record. What a record has of it is checked as it comes in.
    needs: the key or keys that earlier stages must have written.
    run, inputs: with both, finished values are kept in `run/journal/<key>.jsonl` under the
    fingerprint of `inputs(record)`, a function or coroutine function: one that waits holds no place
    of `jobs`.
    valid(record, value): whether a journaled value may be used again (are its files still there?).
    passes_faults: records that already failed go through untouched.
    expand(record) -> records: turn one record into several before the work.
    merge(record, value) -> record: how a value joins its record, where it is not simply added under
    `key`.
    close(): a coroutine function, awaited at the end whatever happened.
    """

    key: str
    work: Work[R, V]
    takes: type[R]
    needs: str | Iterable[str] = ()
    run: str | Path | None = None
    inputs: Callable[[R], object] | None = None
    valid: Callable[[R, V], bool] | None = None
    jobs: int = 1
    passes_faults: bool = True
    expand: Callable[[R], list[R]] | None = None
    merge: Callable[[R, V], R] | None = None
    close: Callable[[], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        self.needs = (self.needs,) if isinstance(self.needs, str) else tuple(self.needs)
        self.journal: Journal | None = None
        self.tasks: set[asyncio.Task[R]] = set()
        self.tally: Counter[str] = Counter()
        self.seen: set[str] = set()
        self.started = time.monotonic()

    async def go(self) -> int:
        self.progress = Progress(self.key)
        self.slots = asyncio.Semaphore(self.jobs)
        # Rows in flight, and rows that wait for a slower one ahead of them: bounds memory, keeps the
        # order. None: there is nothing more.
        window: asyncio.Queue[asyncio.Task[R] | None] = asyncio.Queue(maxsize=4 * self.jobs + 16)
        reader = asyncio.create_task(self._read_to_end(window))
        try:
            while (task := await window.get()) is not None:
                record = await task
                emit(record)
                failed = fault(record)
                here = failed["kind"] if failed and failed["stage"] == self.key else None
                self.progress.step(here, passed=bool(failed))
            await reader
        finally:
            reader.cancel()
            for left in self.tasks:  # where a closed pipe, Ctrl-C or a bug ends the stage
                left.cancel()
            await asyncio.gather(reader, *self.tasks, return_exceptions=True)
            self.progress.close()
            if self.close:
                await self.close()
            if self.journal:
                self.journal.close()
        self._say_tally()
        return 65 if self.tally["bad"] else 75 if self.tally["infra"] else 0

    async def _read_to_end(self, window: "asyncio.Queue[asyncio.Task[R] | None]") -> None:
        try:
            await self._read(window)
        except Exception:
            await window.put(None)
            raise
        await window.put(None)

    async def _read(self, window: "asyncio.Queue[asyncio.Task[R] | None]") -> None:
        async for number, line in _lines():
            if not line.strip():
                continue
            try:
                record = self._check(typed(loads(line), self.takes))
                records = self.expand(record) if self.expand else [record]
            except ValueError as error:
                self.tally["bad"] += 1
                cli.say(f"stdin:{number}: {error}")
                continue
            # With the first record, not before: of two pipelines over one run, the one whose earlier
            # stage was first is then first in every stage. With locks taken at the start, each can
            # hold what the other's next stage waits for.
            if self.run is not None and self.inputs and not self.journal:
                self.journal = Journal(Path(self.run) / "journal" / f"{self.key}.jsonl", self.key)
            for each in records:
                task = asyncio.create_task(self._one(each))
                self.tasks.add(task)
                task.add_done_callback(self._ended)
                await window.put(task)

    def _ended(self, task: "asyncio.Task[R]") -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen here: of several that stop the stage the first in order is said, once

    def _check(self, record: R) -> R:
        if record["id"] in self.seen:
            raise ValueError(f"{record['id']}: this id came before; ids must be unique")
        self.seen.add(record["id"])
        if not (self.passes_faults and fault(record)):
            for need in self.needs:
                if not isinstance(record.get(need), dict | list):
                    raise ValueError(
                        f'{record["id"]}: no "{need}" in this record; an earlier stage writes it '
                        "(docs/records.md)"
                    )
        return record

    async def _one(self, record: R) -> R:
        if self.passes_faults and fault(record):
            self.tally["passed"] += 1
            return record
        inputs: str | None = None
        value: Value | None = None
        if self.inputs:
            found = self.inputs(record)
            found = await found if isinstance(found, Awaitable) else found
            inputs = fingerprint([self.key, found])
            value = self.journal.get(record["id"], inputs) if self.journal else None
        if value is not None and (self.valid is None or self.valid(record, cast(V, value))):
            self.tally["kept"] += 1
        else:
            async with self.slots:
                value = await self._make(record, inputs)
        if error := value.get("error"):
            final = error["kind"] == "infra" and error.get("retriable") is False
            self.tally["refused" if final else error["kind"]] += 1
        else:
            self.tally["done"] += 1
        if self.merge:
            return self.merge(record, cast(V, value))
        return cast(R, {**record, self.key: value})

    async def _make(self, record: R, inputs: str | None) -> Value:
        started, at = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
        try:
            if self.jobs > 1 and not asyncio.iscoroutinefunction(self.work):
                made = await asyncio.to_thread(self.work, record)
            else:
                made = self.work(record)
            value = cast(Value, dict(await made if isinstance(made, Awaitable) else made))
        except Fault as failure:
            value = {"error": failure.error}
        made_by: By = {
            "tool": cli.NAME,
            "version": __version__,
            "image": os.environ.get("DECKSMITH_IMAGE", "host"),
            "inputs": inputs,
            "at": at,
            "took": round(time.monotonic() - started, 3),
        }
        value["by"] = cast(By, made_by | value.get("by", {}))
        error = value.get("error")
        # A model's faults are results: a pipeline counts them in its live line, and the report
        # shows each.
        if error and not (self.progress.live and error["kind"] == "model"):
            warn(record["id"], f"{error['kind']} fault, {error['class']}: {error['message']}")
        # What our renderer, the judge or the network failed at deserves another try; only the
        # model's own faults are results.
        lasting = not error or error["kind"] == "model" or error.get("retriable") is False
        if self.journal and inputs and lasting:
            self.journal.put(record["id"], inputs, value)
        return value

    def _say_tally(self) -> None:
        live, last = self.progress.live, self.progress.last
        theirs = ("renderer", "judge", "refused", "infra", "bad")  # no model's doing
        if live and not last and not any(self.tally[name] for name in theirs):
            return
        took = time.monotonic() - self.started
        if live and last:
            cli.tell(f"{self.progress.line()}, {took:.0f} s")
            return
        said = [f"{self.tally[name]} {word}" for name, word in TALLY.items() if self.tally[name]]
        usage = cli.Script.usage if list(+self.tally) == ["bad"] else ""
        if said:
            cli.say(f"{len(self.seen)} records in {took:.1f} s: {', '.join(said)}{usage}")
        cli.Script.empty = not said


def _status_of(made: Callable[P, _Stage[R, V]]) -> Callable[P, int]:
    def run(*args: P.args, **given: P.kwargs) -> int:
        return asyncio.run(made(*args, **given).go())

    return run


# Run one stage, with the arguments of `_Stage`, from stdin to stdout; the exit status: 0, 65 or 75.
stage = _status_of(_Stage)
