"""Run generated code that nobody has read: sandbox.run(code) -> Result, or a Session in which variables persist.

Each run has a cell of its own (walls.py: namespaces, a user that owns nothing, a read-only root in memory that shows the
system's programs and Python's, a small folder /tmp, no network, not even to itself) and in it a guard (supervisor.py) that sets the limits and
the system call filter, and reports. Cells stand ready: a run costs milliseconds more than its code. Around all cells
there is one more wall where the host has it: Apptainer with containers/sandbox.sif, or else bubblewrap.

What the code does is told by name: ok, error (it failed by itself), timeout, memory, output, processes, files (too many
open, too large, no room), killed (by a signal, or its sandbox ended). Text and exit codes are whatever the code wanted;
`finished` says that its last line was reached, so that exit(0) in front of the tests is no pass. Code that means to deceive
shares its process with the tests that it is given, and can forge even that: what must not be forged runs in another cell (`pair`).
"""

import atexit
import base64
import collections
import contextlib
import dataclasses
import fcntl
import json
import os
import posixpath
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from decksmith.core import cli

PACKAGE = cli.ROOT / "lib/decksmith"  # its files are loaded by path inside
WALLS = ("apptainer", "bubblewrap", "namespaces")  # from strongest to weakest
STATUSES = ("ok", "error", "timeout", "memory", "output", "processes", "files", "killed")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")  # what every cell shows
LANGUAGES = ("python", "sh")
GRACE = 5.0  # seconds that the guard has to report after its deadline
LOST = "the sandbox of this run ended"
_SEALS = 0x0F  # F_SEAL_SEAL, _SHRINK, _GROW, _WRITE


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of one run (in a session: wall and output of each call, the others of the whole).

    wall, cpu: seconds; cpu counts for each process, None is wall + 1. memory, disk, output: bytes; memory for each process and for
    all together. processes counts threads. disk and inodes bound the folder, disk also each file.
    """

    wall: float = 10.0
    cpu: float | None = None
    memory: int = 512 << 20
    processes: int = 32
    open_files: int = 256
    disk: int = 64 << 20
    inodes: int = 4096
    output: int = 1 << 20

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if name == "cpu" and value is None:
                continue
            whole = name not in ("wall", "cpu")
            if (
                isinstance(value, bool)
                or not isinstance(value, int if whole else (int, float))
                or not 0 < value < 1 << 50
            ):
                raise ValueError(
                    f"limits: {name} is {value!r}, and must be a positive {'whole ' if whole else ''}number"
                )


@dataclasses.dataclass
class Result:
    """How a run ended. code: exit status, negative for a signal; left: processes that it left behind, ended; files:
    {name: bytes} of what was asked for; odd: {name: why it was not taken}; message: a sentence on what is not ok."""

    status: str
    stdout: str
    stderr: str
    seconds: float
    walls: str
    code: int | None = None
    finished: bool = False
    left: int = 0
    files: dict = dataclasses.field(default_factory=dict)
    odd: dict = dataclasses.field(default_factory=dict)
    message: str = ""


class Dead(Exception):
    """The session has ended; the message says of what."""


def run(code, *, language="python", stdin="", files=None, take=(), limits=None):
    """Run a text once in a fresh cell of this process's pool: a Result. Raises cli.Missing where nothing can confine it.

    files: {relative name: text or bytes} laid out in the working folder, from where Python imports; take: names of regular files to
    hand back. May be called from many threads.
    """
    return _pool().run(code, language=language, stdin=stdin, files=files, take=take, limits=limits)


_common, _guarding = None, threading.Lock()


def pair(code, other, *, limits=None):
    """As Pool.pair, in cells of this process's pool."""
    return _pool().pair(code, other, limits=limits)


def _pool():
    global _common
    with _guarding:
        if _common is None:
            _common = Pool()
            atexit.register(_common.close)
        return _common


def _forked():
    """In a fork of this process: leave the pool to the parent, and the fork to a pool of its own."""
    global _common, _guarding
    if _common:
        _common.starting, _common.process = threading.RLock(), None
        for held in (*_common.ready, *filter(None, [_common.asks])):
            held.close()
        _common.ready.clear()
    _common, _guarding = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)


class Pool:
    """Cells that stand ready. limits: the default; warm: how many; walls: insist on these; unsafe: do without any if none is granted."""

    def __init__(self, limits=None, *, warm=None, walls=None, unsafe=False):
        self.limits, self.wanted, self.unsafe = limits or Limits(), walls, unsafe
        self.warm = (os.cpu_count() or 1) if warm is None else warm
        self.ready, self.starting = collections.deque(), threading.RLock()
        self.process = self.asks = self.walls = None

    def run(self, code, *, language="python", stdin="", files=None, take=(), limits=None):
        """As sandbox.run."""
        limits = limits or self.limits
        order = _order(code, language, files or {}, take, limits)
        with _sealed(_bytes(stdin)) as given, _Running(self, order, limits, given) as running:
            return running.result()

    def pair(self, code, other, *, limits=None):
        """Run two Python texts at once, each in a cell of its own, the standard input of each a socket to the other's: their two Results.
        `other` is ended when `code` has ended. What either writes beyond the socket reaches us alone, and nothing joins them but that."""
        limits = limits or self.limits
        ours, theirs = socket.socketpair()
        with ours, theirs, contextlib.ExitStack() as held:
            asks, answers = (
                held.enter_context(
                    _Running(self, _order(text, "python", {}, (), limits), limits, end)
                )
                for text, end in ((code, ours), (other, theirs))
            )
            ours.close()
            theirs.close()
            return asks.result(), answers.result(ended=True)

    def session(self, limits=None):
        """A Session: an interpreter that waits for the next piece of code."""
        return Session(self, limits or self.limits)

    def close(self):
        """End everything that was started here."""
        with self.starting:
            while self.ready:
                self.ready.pop().close()
            if self.process:
                self.asks.close()
                try:
                    self.process.wait(5)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
                self.process = None

    def open(self):
        """Start what there is to start, and name the walls."""
        with self.starting:
            if self.process is None or self.process.poll() is not None:
                self._start()
            while len(self.ready) < self.warm:
                self.ready.append(self._ask(self.limits))
        return self.walls

    def _result(self, report, pipes, began, limits):
        seconds = time.monotonic() - began
        out, err = pipes.texts()
        report = report or {"status": "killed", "code": None, "message": LOST}
        status = "output" if pipes.over else report["status"]
        message = report.get("message") or {
            "timeout": f"no end within {limits.wall:g} seconds",
            "memory": f"more than {limits.memory >> 20} MiB of memory",
            "output": f"more than {limits.output} bytes of output",
            "processes": f"more than {limits.processes} processes or threads",
            "files": "no room, or too many or too large files",
            "killed": f"ended by signal {-(report.get('code') or 0)}",
            "error": f"exit status {report.get('code')}",
        }.get(status, "")
        files = {name: base64.b64decode(data) for name, data in report.get("files", {}).items()}
        return Result(
            status,
            out,
            err,
            seconds,
            self.walls,
            report.get("code"),
            report.get("finished", False) and status == "ok",
            report.get("left", 0),
            files,
            report.get("odd", {}),
            message,
        )

    def _cell(self, limits):
        """The leash of a guard that waits for its order."""
        room = (limits.disk, limits.inodes)
        for attempt in (1, 2, 3):
            with self.starting:
                self.open()
                if room == (self.limits.disk, self.limits.inodes) and self.ready:
                    leash = self.ready.popleft()
                    self.ready.append(self._ask(self.limits))
                else:
                    leash = self._ask(limits)
            try:
                return _ready(leash)
            except OSError as error:
                leash.close()
                if attempt == 3:
                    raise cli.Missing(f"no cell for the sandbox: {error}") from None

    def _ask(self, limits):
        """Have a cell made; it says when it is ready."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                space = {"space": f"size={limits.disk},nr_inodes={limits.inodes}"}
                socket.send_fds(self.asks, [json.dumps(space).encode()], [theirs.fileno()])
            except OSError:  # it was killed: the next look finds that out
                self.process.wait()
        return ours

    def _start(self):
        refusals = []
        self.close()
        for walls in self._candidates():
            command = _command(walls)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with tempfile.TemporaryFile() as words:
                with theirs:
                    try:
                        self.process = subprocess.Popen(
                            command,
                            stdin=theirs,
                            stdout=subprocess.DEVNULL,
                            stderr=words,
                            cwd="/",
                            start_new_session=True,
                            env={"PATH": os.environ.get("PATH", os.defpath)}
                            if walls == "apptainer"
                            else {},
                        )
                    except OSError as error:
                        refusals.append(f"{walls}: {error}")
                        ours.close()
                        continue
                self.asks, leash = ours, None
                try:
                    leash = self._ask(self.limits)
                    self.ready.append(_ready(leash, socket.MSG_PEEK))
                    self.walls = walls
                    return
                except OSError as error:
                    self.close()
                    words.seek(0)
                    said = words.read()[-300:].decode("utf-8", "replace").strip()
                    refusals.append(f"{walls}: {error}{': ' * bool(said)}{said}")
        raise cli.Missing(
            f"code cannot be confined here ({'; '.join(refusals) or 'no walls to choose from'}); build the image "
            "(make image-sandbox), allow user namespaces, or take the risk (--unsafe)"
        )

    def _candidates(self):
        if self.wanted:
            return [self.wanted]
        images, inside = os.environ.get("IMAGES", "auto"), os.environ.get("DECKSMITH_IMAGE")
        found = []
        if images != "off" and not inside and _sif().exists() and shutil.which("apptainer"):
            found.append("apptainer")
        if images == "on" and not inside:
            return found
        return [
            *found,
            *["bubblewrap"] * bool(shutil.which("bwrap")),
            "namespaces",
            *["none"] * self.unsafe,
        ]


def _sif():
    return cli.ROOT / "containers/sandbox.sif"


def _command(walls):
    """The command line that starts supervisor.py inside of these walls. Raises cli.Missing where the image is not ours."""
    python = os.path.realpath(sys.executable)
    shown = sorted({sys.base_prefix, os.path.realpath(sys.base_prefix), python})
    shown = [
        path
        for path in shown
        if not _below(path, (*SYSTEM, *(top for top in shown if top != path)))
    ]
    home = next(
        place
        for place in ("/tmp", "/mnt", "/srv", "/var/tmp")
        if os.path.isdir(place) and not any(_below(path, (place,)) for path in shown)
    )
    spec = {
        "home": home,
        "read": shown,
        "walls": "none" if walls == "none" else "full",
        "become": True,
        "loopback": False,
    }
    if walls == "apptainer":
        verified = subprocess.run(
            [cli.ROOT / "containers/verify", "sandbox"], capture_output=True, text=True
        )
        if verified.returncode:
            raise cli.Missing(verified.stderr.strip().removeprefix("within: "))
        return [
            "apptainer",
            "--silent",
            "exec",
            "--containall",
            "--cleanenv",
            "--no-home",
            "--net",
            "--network",
            "none",
            "--pwd",
            "/",
            *["--drop-caps", "CAP_SYS_RESOURCE"]
            * (os.geteuid() == 0),  # what root in a container or virtual machine often lacks itself
            "--bind",
            f"{PACKAGE}:/mnt:ro",
            _sif(),
            "/usr/bin/python3",
            "-IS",
            "/mnt/sandbox/supervisor.py",
            json.dumps(spec | {"home": "/tmp", "read": []}),
        ]
    inner = [python, "-IS", str(PACKAGE / "sandbox/supervisor.py"), json.dumps(spec)]
    if walls == "bubblewrap":
        root = (
            os.geteuid() == 0
        )  # keeps what the cell needs, and gives it up there; no namespace of one user, which has no other to become
        divide = (
            ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--cap-add", "ALL"]
            if root
            else ["--unshare-all"]
        )
        wrap = [
            shutil.which("bwrap") or "bwrap",
            *divide,
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
            "--tmpfs",
            "/run",
        ]
        for path in (*SYSTEM, "/lib32", "/libx32", "/etc/ld.so.cache", "/etc/alternatives"):
            if os.path.islink(path):
                wrap += ["--symlink", os.readlink(path), path]
            elif os.path.exists(path):
                wrap += ["--ro-bind", path, path]
        for path in (*shown, str(PACKAGE)):
            wrap += ["--ro-bind", path, path]
        return [*wrap, *inner]
    return inner


def _below(path, tops):
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _ready(leash, flags=0):
    """The leash, when its guard is at its post. Raises OSError."""
    leash.settimeout(60)
    try:
        word = leash.recv(4096, flags)
    except TimeoutError:
        raise OSError("no cell within 60 seconds") from None
    leash.settimeout(None)
    if not word:
        raise OSError("it ended before it was ready")
    said = json.loads(word)
    if "refused" in said:
        raise OSError(said["refused"])
    return leash


def _bytes(text):
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)


def _order(code, language, files, take, limits):
    if language not in LANGUAGES:
        raise ValueError(f"language: {language!r} is none of {', '.join(LANGUAGES)}")
    if language == "sh" and ("\0" in code or len(_bytes(code)) > 100_000):
        raise ValueError("code: a script of the shell has no NUL and at most 100,000 bytes")
    for name in (*files, *take):
        if (
            not name
            or name.startswith("/")
            or posixpath.normpath(name) != name
            or name.split("/")[0] in ("..", ".")
            or "\0" in name
        ):
            raise ValueError(f"files: {name!r} is no relative path in its plainest form")
    most = dataclasses.asdict(limits)
    most["cpu"] = -(-(limits.cpu or limits.wall + 1) // 1)
    return {
        "code": code,
        "language": language,
        "files": {name: base64.b64encode(_bytes(data)).decode() for name, data in files.items()},
        "take": list(take),
        "limits": most,
    }


@contextlib.contextmanager
def _sealed(data):
    """A file in memory that nobody can change or enlarge any more; who gets it holds no more than these bytes of us."""
    with open(os.memfd_create("order", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+b") as file:
        file.write(data)
        file.flush()
        file.seek(0)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
        yield file


def _send(sock, descriptors):
    with contextlib.suppress(BrokenPipeError):  # it ended; the report, or its absence, says why
        socket.send_fds(sock, [b"order"], descriptors)


class _Pipes:
    """stdout and stderr of a run: what it writes, up to a bound for both together."""

    def __init__(self, most):
        self.reads, self.writes = [], []
        for _ in range(2):
            read, write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read, False)
            self.reads.append(read)
            self.writes.append(write)
        self.begin(most)

    def begin(self, most):
        self.most, self.over, self.data = most, False, [bytearray(), bytearray()]

    def read(self, number):
        """Take what is there; False at the end of this pipe, or when nothing is there."""
        try:
            data = os.read(self.reads[number], 1 << 16)
        except BlockingIOError:
            return False
        room = self.most - sum(map(len, self.data))
        self.over |= len(data) > room
        self.data[number] += data[: max(room, 0)]
        return data != b""

    def drain(self):
        for number in (0, 1):
            while not self.over and self.read(number):
                pass

    def texts(self):
        return [bytes(data).decode("utf-8", "replace") for data in self.data]

    def sent(self):
        for descriptor in self.writes:
            os.close(descriptor)
        self.writes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sent()
        for descriptor in self.reads:
            os.close(descriptor)
        self.reads = []


def _follow(leash, pipes, deadline, talk=None):
    """The guard's report (a dict, or None if it ended without), or with `talk` what the interpreter sent there (bytes)."""
    poll, ended = select.poll(), False
    for source in (leash, talk, *pipes.reads):
        if source is not None:
            poll.register(source, select.POLLIN)
    numbers = dict(zip(pipes.reads, (0, 1), strict=True))
    while (left := deadline - time.monotonic()) > 0:
        events = dict(poll.poll(left * 1000))
        for descriptor, number in numbers.items():
            if (
                descriptor in events
                and not pipes.read(number)
                and events[descriptor] & select.POLLHUP
            ):
                poll.unregister(descriptor)
                events.pop(descriptor)
        if pipes.over and not ended:
            ended = True
            with contextlib.suppress(OSError):
                leash.send(b"end")
        if leash.fileno() in events:
            report = _report(leash)
            pipes.drain()
            return report
        if talk is not None and talk.fileno() in events and not ended:
            said = talk.recv(1 << 16)
            if said:
                pipes.drain()
                return said
            poll.unregister(talk)
    return {"status": "timeout", "code": None}


def _report(leash):
    try:
        word, files, *_ = socket.recv_fds(leash, 64, 1)
    except OSError:
        return None
    if not word or not files:
        return None
    with open(files[0], "rb") as file:
        return json.loads(os.pread(file.fileno(), 64 << 20, 0))


class _Running:
    """An order in its cell. `given` is its standard input."""

    def __init__(self, pool, order, limits, given):
        self.pool, self.limits = pool, limits
        self.leash, self.began, self.pipes = (
            pool._cell(limits),
            time.monotonic(),
            _Pipes(limits.output),
        )
        with _sealed(json.dumps(order).encode()) as file:
            _send(self.leash, [file.fileno(), given.fileno(), *self.pipes.writes])
        self.pipes.sent()

    def result(self, ended=False):
        """Its Result, when it ends, or `ended` here and now."""
        if ended:
            with contextlib.suppress(OSError):
                self.leash.send(b"end")
        report = _follow(self.leash, self.pipes, self.began + self.limits.wall + GRACE)
        return self.pool._result(report, self.pipes, self.began, self.limits)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pipes.__exit__()
        self.leash.close()


class Session:
    """An interpreter whose variables persist. It stands still between calls. `dead` is None, or says of what it died."""

    def __init__(self, pool, limits):
        self.pool, self.limits, self.dead, self.number, self.used = (
            pool,
            limits,
            None,
            0,
            time.monotonic(),
        )
        self.lock, self.leash, self.pipes = (
            threading.Lock(),
            pool._cell(limits),
            _Pipes(limits.output),
        )
        self.talk, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = _order(
            "", "python", {}, (), dataclasses.replace(limits, cpu=limits.cpu or 60 * limits.wall)
        )
        with theirs, _sealed(json.dumps(order).encode()) as file, _sealed(b"") as nothing:
            _send(
                self.leash, [file.fileno(), nothing.fileno(), *self.pipes.writes, theirs.fileno()]
            )
        self.pipes.sent()

    def run(self, code):
        """A Result. A call that is out of time is interrupted, and ends the session if it does not heed that. Raises Dead."""
        with self.lock:
            if self.dead:
                raise Dead(self.dead)
            began, self.number = time.monotonic(), self.number + 1
            self.pipes.begin(self.limits.output)
            asked = json.dumps({"number": self.number, "code": code}).encode()
            with contextlib.suppress(OSError), _sealed(asked) as file:
                self.leash.send(b"go")
                socket.send_fds(self.talk, [b"order"], [file.fileno()])
            said, late = self._follow(began + self.limits.wall), False
            if said == {"status": "timeout", "code": None}:
                late = True
                with contextlib.suppress(OSError):
                    self.leash.send(b"interrupt")
                said = self._follow(time.monotonic() + 1)
            report = _answer(said, self.number) if isinstance(said, bytes) else said
            if not isinstance(said, bytes) or report is None or self.pipes.over:
                report = report or {
                    "status": "killed",
                    "code": None,
                    "message": "it spoke out of turn",
                }
                if late:
                    report["status"] = "timeout"
                elif report["status"] in ("ok", "error"):
                    report |= {
                        "status": "killed",
                        "message": f"its process ended, exit status {report.get('code')}",
                    }
            else:
                if late:
                    report["status"] = "timeout"
                with contextlib.suppress(OSError):
                    self.leash.send(b"stop")
            result = self.pool._result(report, self.pipes, began, self.limits)
            if (
                not isinstance(said, bytes)
                or self.pipes.over
                or report.get("message") == "it spoke out of turn"
            ):
                self._end(f"the session died: {result.status}: {result.message}")
            self.used = time.monotonic()
            return result

    def close(self):
        """End its processes."""
        with self.lock:
            self._end("the session was closed")

    def _follow(self, deadline):
        return _follow(self.leash, self.pipes, deadline, self.talk)

    def _end(self, why):
        if not self.dead:
            self.dead = why
            self.pipes.__exit__()
            self.talk.close()
            self.leash.close()


def _answer(said, number):
    """The reply to call `number`, or None: the stranger shares the process that speaks, so nothing in it is trusted."""
    try:
        reply = json.loads(said)
        good = (
            reply["number"] == number and reply["status"] in STATUSES and type(reply["code"]) is int
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return (
        {"status": reply["status"], "code": reply["code"], "finished": reply["status"] == "ok"}
        if good
        else None
    )


# --- the server -------------------------------------------------------------------------------------------------------

BODY = 16 << 20  # bytes of a request
_RUN = {"code", "language", "stdin", "files", "take", "limits"}


class _Refusal(Exception):
    """(status, message) of a reply that is no result."""


class Server:
    """The requests of an HTTP server: `answer(method, path, body) -> (status, value)`. Nothing of a request is trusted.

    jobs: runs at once; others wait, at most `waiting` of them. sessions: at most so many, ended after `idle` seconds without a call.
    """

    def __init__(self, pool, jobs, *, waiting=64, sessions=16, idle=600.0):
        self.pool, self.jobs, self.waiting, self.most, self.idle = (
            pool,
            jobs,
            waiting,
            sessions,
            idle,
        )
        self.turns, self.room, self.lock, self.sessions = (
            threading.Semaphore(jobs),
            threading.Semaphore(jobs + waiting),
            threading.Lock(),
            {},
        )

    def answer(self, method, path, body):
        """Raises _Refusal."""
        words = path.strip("/").split("/")
        match (method, *words):
            case ("GET", "health"):
                with self.lock:
                    return 200, {
                        "status": "ok",
                        "walls": self.pool.walls,
                        "sessions": len(self.sessions),
                        "jobs": self.jobs,
                    }
            case ("POST", "run"):
                asked = self._asked(body, _RUN, "code")
                return 200, self._turn(lambda: self.pool.run(asked.pop("code"), **asked))
            case ("POST", "sessions"):
                asked = self._asked(body, {"limits"})
                return 201, {"id": self._open(asked.get("limits"))}
            case ("POST", "sessions", name, "run"):
                asked, session = self._asked(body, {"code"}, "code"), self._session(name)
                return 200, self._turn(lambda: session.run(asked["code"]))
            case ("DELETE", "sessions", name):
                session = self._session(name)
                with self.lock:
                    self.sessions.pop(name, None)
                session.close()
                return 200, {"id": name}
        raise _Refusal(
            404,
            f"{method} {path[:80]}: there are GET /health, POST /run, POST /sessions, POST /sessions/ID/run, DELETE /sessions/ID",
        )

    def _asked(self, body, names, *needed):
        try:
            asked = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            raise _Refusal(400, "the body is no JSON") from None
        if not isinstance(asked, dict):
            raise _Refusal(400, "the body is no object")
        if unknown := [*(asked.keys() - names)]:
            raise _Refusal(
                400, f"unknown key {unknown[0][:80]!r}; there are {', '.join(sorted(names))}"
            )
        if missing := [name for name in needed if name not in asked]:
            raise _Refusal(400, f"{missing[0]} is missing")
        for name, value in asked.items():
            kind = {"files": dict, "take": list, "limits": dict}.get(name, str)
            if not isinstance(value, kind) or (
                kind in (dict, list)
                and name != "limits"
                and not all(
                    isinstance(item, str) for item in (value.values() if kind is dict else value)
                )
            ):
                raise _Refusal(400, f"{name}: not what it must be (docs: sandbox-serve --help)")
        if "limits" in asked:
            asked["limits"] = self._limits(asked["limits"])
        return asked

    def _limits(self, asked):
        ours = dataclasses.asdict(self.pool.limits)
        for name, value in asked.items():
            if name not in ours:
                raise _Refusal(400, f"unknown limit {name[:80]!r}; there are {', '.join(ours)}")
            if not isinstance(value, int | float) or (
                ours[name] is not None and value > ours[name]
            ):
                raise _Refusal(400, f"limits: {name} may be at most {ours[name]:g} here")
        return Limits(**(ours | asked))

    def _turn(self, work):
        if not self.room.acquire(blocking=False):
            raise _Refusal(503, "too many requests wait; ask again")
        try:
            with self.turns:
                result = dataclasses.asdict(work())
        finally:
            self.room.release()
        return result | {
            "files": {
                name: base64.b64encode(data).decode() for name, data in result["files"].items()
            }
        }

    def _open(self, limits):
        with self.lock:
            late = time.monotonic() - self.idle
            for name in [
                name
                for name, session in self.sessions.items()
                if session and session.used < late and not session.lock.locked()
            ]:
                self.sessions.pop(name).close()
            if len(self.sessions) >= self.most:
                raise _Refusal(
                    503,
                    f"there are {self.most} sessions already; end one, or wait until one was idle for {self.idle:g} seconds",
                )
            name = os.urandom(16).hex()
            self.sessions[name] = None  # its place
        try:
            session = self.pool.session(limits)
        except BaseException:
            with self.lock:
                del self.sessions[name]
            raise
        with self.lock:
            self.sessions[name] = session
        return name

    def _session(self, name):
        with self.lock:
            session = self.sessions.get(name)
        if not session:
            raise _Refusal(404, "there is no such session")
        return session

    def close(self):
        """End the sessions and the pool."""
        with self.lock:
            for session in filter(None, self.sessions.values()):
                session._end("the server ended")
        self.pool.close()


def serve(port, token, *, jobs, address, unsafe=False, limits=None):
    """Serve on loopback until SIGTERM or Ctrl-C; while requests are answered, `address` has {"url", "token", "walls", "pid"} for its
    owner's eyes. Raises cli.Missing where nothing confines the code, and for a port in use."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from aiohttp import web as http

    from decksmith.core import web

    server = Server(Pool(limits, warm=jobs, unsafe=unsafe), jobs)
    threads = ThreadPoolExecutor(
        server.waiting + jobs + 16, "answer"
    )  # some more than may wait, so that one too many is told so

    async def answer(request):
        asked = request.method, request.path, await request.read()
        try:
            status, value = await asyncio.get_running_loop().run_in_executor(
                threads, server.answer, *asked
            )
        except _Refusal as refusal:
            status, value = refusal.args[0], {"error": refusal.args[1]}
        except ValueError as error:
            status, value = 400, {"error": str(error)}
        except Dead as error:
            status, value = 410, {"error": str(error)}
        return http.Response(
            status=status, text=json.dumps(value) + "\n", content_type="application/json"
        )

    @contextlib.asynccontextmanager
    async def make(url):
        try:
            server.pool.open()
            app, walls = web.application(token=token, body=BODY), server.pool.walls
            app.router.add_route("*", "/{path:.*}", answer)
            with web.announced(address, {"url": url, "token": token, "walls": walls}):
                cli.say(
                    f"{url} runs code {'WITHOUT ANY WALLS' if walls == 'none' else f'in {walls}'}; the token is in {address}"
                )
                yield app
        finally:
            server.close()
            threads.shutdown(wait=False, cancel_futures=True)

    web.run(make, port=port)
