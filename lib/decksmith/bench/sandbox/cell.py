"""One program in one cell: what it may use, what goes in, what comes out.

On the other side of each socket is supervisor.py, inside; nothing that comes from there is trusted.
"""

import base64
import contextlib
import dataclasses
import fcntl
import json
import os
import posixpath
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Annotated, Any

from pydantic import ConfigDict, Field

from decksmith.core import validation

GRACE = 5.0  # seconds that the guard has to report after its deadline
GUARD = 40  # times its wall by the clock, after which a run that had no processor is given up
REPORT = 64 << 20  # bytes
LOST = "the sandbox of this run ended"
_SEALS = 0x0F  # F_SEAL_SEAL, _SHRINK, _GROW, _WRITE


Seconds = Annotated[float, Field(gt=0, lt=1 << 50, description="a positive number")]
Number = Annotated[int, Field(gt=0, lt=1 << 50, description="a positive whole number")]


class Limits(validation.Body):
    """Bounds of one run.

    wall: seconds that a run computes or sleeps; those in which it waits for a processor that others hold do not count, and after
    GUARD times as many by the clock it is "starved". cpu: seconds for each process, None is wall + 1. memory, disk, output: bytes;
    memory for each process and for all together. processes counts threads. disk and inodes bound
    the folder, disk also each file. Raises ValueError.
    """

    model_config = ConfigDict(frozen=True)
    wall: Seconds = 10.0
    cpu: float | None = Field(default=None, gt=0, lt=1 << 50, description="a positive number")
    memory: Number = 512 << 20
    processes: Number = 32
    open_files: Number = 256
    disk: Number = 64 << 20
    inodes: Number = 4096
    output: Number = 1 << 20


@dataclasses.dataclass
class Result:
    """How a run ended. seconds: by the clock, of which it waited for a processor; code: exit status,
    negative for a signal; left: processes that it left behind, ended; files: {name: bytes} of what was asked for; odd: {name: why it was not taken};
    message: a sentence on what is not ok."""

    status: str
    stdout: str
    stderr: str
    seconds: float
    walls: str
    waited: float = 0.0
    code: int | None = None
    finished: bool = False
    left: int = 0
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)
    odd: dict[str, str] = dataclasses.field(default_factory=dict)
    message: str = ""


# What goes in


def order(
    code: str,
    files: Mapping[str, str | bytes] | None = None,
    take: Iterable[str] = (),
    *,
    limits: Limits,
) -> dict[str, Any]:
    """What the guard is told to run. Raises ValueError for what cannot be meant."""
    files, take = files or {}, list(take)
    for name in (*files, *take):
        if not _plain(name):
            raise ValueError(f"files: {name!r} is no relative path in its plainest form")
    most = limits.model_dump()
    most["guard"] = GUARD * limits.wall
    most["cpu"] = -(-(limits.cpu or limits.wall + 1) // 1)  # whole seconds, rounded up
    return {
        "code": code,
        "files": {name: base64.b64encode(as_bytes(data)).decode() for name, data in files.items()},
        "take": take,
        "limits": most,
    }


def _plain(name: str) -> bool:
    """Whether a path stays in its folder, and is written as short as can be."""
    if not name or "\0" in name or name.startswith("/"):
        return False
    return posixpath.normpath(name) == name and name.split("/")[0] not in ("..", ".")


def as_bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)


@contextlib.contextmanager
def sealed(data: bytes) -> Iterator[IO[bytes]]:
    """A file in memory that nobody can change or enlarge any more; who gets it holds no more than
    these bytes of us."""
    with open(os.memfd_create("order", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+b") as file:
        file.write(data)
        file.flush()
        file.seek(0)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
        yield file


def ready(control: socket.socket, flags: int = 0) -> socket.socket:
    """The control socket, when its guard is at its post. Raises OSError."""
    control.settimeout(60)
    try:
        word = control.recv(4096, flags)
    except TimeoutError:
        raise OSError("no cell within 60 seconds") from None
    control.settimeout(None)
    if not word:
        raise OSError("it ended before it was ready")
    said = json.loads(word)
    if "refused" in said:
        raise OSError(said["refused"])
    return control


# What comes out


class Pipes:
    """stdout and stderr of a run: what it writes, up to a bound for both together."""

    def __init__(self, most: int) -> None:
        self.reads: list[int] = []
        self.writes: list[int] = []
        for _ in range(2):
            read, write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read, False)
            self.reads.append(read)
            self.writes.append(write)
        self.most, self.over = most, False
        self.data = [bytearray(), bytearray()]

    def read(self, number: int) -> bool:
        """Take what is there; False at the end of this pipe, or when nothing is there."""
        try:
            data = os.read(self.reads[number], 1 << 16)
        except BlockingIOError:
            return False
        room = self.most - sum(map(len, self.data))
        self.over |= len(data) > room
        self.data[number] += data[: max(room, 0)]
        return data != b""

    def sent(self) -> None:
        """The other side has its ends; close ours of them."""
        for descriptor in self.writes:
            os.close(descriptor)
        self.writes = []

    def close(self) -> None:
        self.sent()
        for descriptor in self.reads:
            os.close(descriptor)
        self.reads = []


def follow(control: socket.socket, pipes: Pipes, deadline: float) -> dict[str, Any] | None:
    """Take what a run writes until it ends or `deadline` (time.monotonic): the guard's report, None
    if it ended without."""
    poll, told_to_end = select.poll(), False
    for descriptor in (control.fileno(), *pipes.reads):
        poll.register(descriptor, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        events = dict(poll.poll(left * 1000))
        for number, descriptor in enumerate(pipes.reads):
            if descriptor not in events:
                continue
            empty = not pipes.read(number)
            if empty and events[descriptor] & select.POLLHUP:
                poll.unregister(descriptor)
        if pipes.over and not told_to_end:
            told_to_end = True
            with contextlib.suppress(OSError):
                control.send(b"end")
        if control.fileno() in events:
            report = _report(control)
            for number in (0, 1):
                while not pipes.over and pipes.read(number):
                    pass
            return report
    return {"status": "starved", "code": None}


def _report(control: socket.socket) -> dict[str, Any] | None:
    try:
        word, files, *_ = socket.recv_fds(control, 64, 1)
    except OSError:
        return None
    if not word or not files:
        return None
    with open(files[0], "rb") as file:
        return json.loads(os.pread(file.fileno(), REPORT, 0))


def result(
    report: dict[str, Any] | None, pipes: Pipes, began: float, limits: Limits, walls: str
) -> Result:
    """What a guard's report and the pipes make together; `began`: time.monotonic."""
    seconds = time.monotonic() - began
    stdout, stderr = (bytes(data).decode("utf-8", "replace") for data in pipes.data)
    report = report or {"status": "killed", "code": None, "message": LOST}
    status = "output" if pipes.over else report["status"]
    return Result(
        status=status,
        stdout=stdout,
        stderr=stderr,
        seconds=seconds,
        walls=walls,
        waited=min(float(report.get("waited", 0)), seconds),
        code=report.get("code"),
        finished=report.get("finished", False) and status == "ok",
        left=report.get("left", 0),
        files={name: base64.b64decode(data) for name, data in report.get("files", {}).items()},
        odd=report.get("odd", {}),
        message=report.get("message") or _message(status, report.get("code"), limits),
    )


def _message(status: str, code: int | None, limits: Limits) -> str:
    sentences = {
        "timeout": f"no end within {limits.wall:g} seconds",
        "starved": "it had no processor: the machine is too busy",
        "memory": f"more than {limits.memory >> 20} MiB of memory",
        "output": f"more than {limits.output} bytes of output",
        "processes": f"more than {limits.processes} processes or threads",
        "files": "no room, or too many or too large files",
        "killed": f"ended by signal {-(code or 0)}",
        "error": f"exit status {code}",
    }
    return sentences.get(status, "")


@contextlib.contextmanager
def running(
    control: socket.socket,
    task: dict[str, Any],
    limits: Limits,
    given: IO[bytes] | socket.socket,
    walls: str,
) -> Iterator[Callable[[], Result]]:
    """Start an order in its cell: what waits for its Result. `given` is its standard input, `walls`
    what is around it."""
    began, pipes = time.monotonic(), Pipes(limits.output)
    try:
        # If the guard ended, the report, or its absence, says why.
        with sealed(json.dumps(task).encode()) as file, contextlib.suppress(BrokenPipeError):
            descriptors = [file.fileno(), given.fileno(), *pipes.writes]
            socket.send_fds(control, [b"order"], descriptors)
        pipes.sent()

        def finished() -> Result:
            report = follow(control, pipes, began + GUARD * limits.wall + GRACE)
            return result(report, pipes, began, limits, walls)

        yield finished
    finally:
        pipes.close()
        control.close()
