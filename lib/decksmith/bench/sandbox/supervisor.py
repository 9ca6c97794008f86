"""The inside of the sandbox: `python3 -IS supervisor.py SPEC`, with a socket of a CellPool as
stdin; SPEC is a cell's.

Every message on that socket asks for one cell and brings the socket by which it is led. The
process that listens has seen no stranger's code and holds no secret. It forks; the child enters a
cell (walls.py) as its first process, the guard, and says {"ready": true}. With the first order on
its own socket the guard forks the stranger: an interpreter that is already warm, without
environment, under limits and a system call filter. The guard cannot be signalled, traced or read
from inside. It watches what no limit of the kernel covers (the memory and processes of all
together, the room in the folder), ends everything, and reports through a file in memory that only
it holds. A cell serves one stranger.

Whatever comes on the control socket after that ends everything, and so does its closing. What it
imports of this package needs nothing but Python.
"""

import base64
import errno
import importlib.util
import json
import os
import platform
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

LIB = os.path.abspath(__file__).rpartition("/decksmith/")[0]
sys.path.insert(0, LIB)  # by -IS there is nothing of ours, nor what our packages need
from decksmith.bench.sandbox import child, syscalls  # noqa: E402
from decksmith.core import walls, workspace  # noqa: E402

MOST = 8 << 20  # bytes of files handed back
# What the stranger's imports find warm: most generated code begins with some of these.
WARM = """bisect collections copy dataclasses datetime decimal fractions functools heapq itertools
math operator random statistics string typing unittest""".split()
_PAGE = resource.getpagesize()
_PIPE = 16 * _PAGE
with socket.socket(socket.AF_UNIX) as _any:  # a message may begin where a buffer is nearly full
    _SOCKET = _any.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) + (64 << 10)
Order = dict[str, Any]  # as JSON brings it
confined: bool  # whether there are any walls


def _become(order: Order, files: Iterable[int], bytecode: bytes | None) -> None:
    """Turn this fork of the guard into the stranger's process; what it may hold is `files`: stdin,
    stdout, stderr."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    os.environ.clear()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's threads would take the memory of a run
    child.open_streams()
    walls.prctl(4, 1)  # its own /proc entries are its own
    try:  # of all processes here the first to end where memory is short
        walls.write("/proc/self/oom_score_adj", "1000")
    except OSError:
        pass
    child.bound(order["limits"], confined)
    if bytecode:
        syscalls.install(bytecode)


def _excess(most: Order, room: str) -> str | None:
    """The name of the bound that the processes of this cell have passed together, or None."""
    memory, tasks, members = 0, 0, []
    if os.getpid() == 1:  # in a namespace of its own, all that it sees; dead ones count too
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
    else:
        pids = workspace.others()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                words = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        tasks += int(words[17])
        memory += int(words[21]) * _PAGE
        members.append(pid)
    if tasks > most["processes"]:
        return "processes"
    held = _buffers(members, most["open_files"])
    # One process that holds nothing else is bounded by its own limit. The exact count takes long:
    # only where it may matter.
    together = len(members) > 1 or held
    if together and memory + held > most["memory"]:
        if sum(map(_share, members)) + held > most["memory"]:
            return "memory"
    return "files" if _full(room) else None


class _Clock:
    """The time that a run had. While its processes wait for a processor that others hold, it stands still."""

    def __init__(self, most: Order) -> None:
        self.most, self.began = most, time.monotonic()
        self.delays: dict[str, int] = {}  # by thread, in nanoseconds
        self.waited = 0.0

    def ends(self) -> float:
        """time.monotonic at which the run has had its time, or has waited too long."""
        return self.began + min(self.most["wall"] + self.waited, self.most["guard"])

    def look(self) -> str | None:
        """Note how long its threads waited. Gives why the run has to end, if it has to."""
        longest = ticks = 0
        for pid in workspace.others():
            try:
                with open(f"/proc/{pid}/stat") as file:
                    words = file.read().rpartition(")")[2].split()
                ticks += sum(map(int, words[11:15]))
                for thread in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                        delay = int(file.read().split()[1])
                    longest = max(longest, delay - self.delays.get(thread, 0))
                    self.delays[thread] = delay
            except OSError:  # it ended, or this kernel does not tell
                continue
        now = time.monotonic()
        self.waited = min(self.waited + longest / 1e9, now - self.began)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")
        # Processes that wait for each other's processor have had their time too.
        if (
            used > self.most["cpu"] * (os.cpu_count() or 1)
            or now - self.began - self.waited >= self.most["wall"]
        ):
            return "timeout"
        return "starved" if now - self.began >= self.most["guard"] else None


def _full(room: str) -> bool:
    """Whether a folder has no room for a byte, or for a file."""
    space = os.statvfs(room)
    return space.f_bavail == 0 or space.f_favail == 0


def _buffers(members: list[int], most: int) -> int:
    """Bytes that the kernel may hold for these processes at most: what a pipe takes unless it is
    enlarged, and a stream of AF_UNIX; those on their way from one process to another stand in the
    table of sockets too. `most`: open files of a process."""
    pipes, hidden = set(), 0
    for pid in members:
        try:
            with os.scandir(f"/proc/{pid}/fd") as files:
                for file in files:
                    name = os.readlink(file.path)
                    if name.startswith("pipe:"):
                        pipes.add(name)
        except FileNotFoundError:
            continue
        except OSError:
            hidden += most
    with open("/proc/self/net/unix") as table:
        sockets = sum(1 for _ in table) - 1
    return (len(pipes) + hidden) * _PIPE + sockets * _SOCKET


def _share(pid: int) -> int:
    """Its memory in bytes, pages that are shared counted in parts; where it hides that, counted in
    full."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) << 10
    except (OSError, StopIteration):
        try:
            with open(f"/proc/{pid}/statm") as file:
                return int(file.read().split()[1]) * _PAGE
        except OSError:
            return 0


def _end_all() -> None:
    """End every other process of the cell and wait until none is left."""
    if os.getpid() != 1:
        workspace.end_all()
        return
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            while True:
                os.waitpid(-1, 0)
        except ChildProcessError:
            if not workspace.others():
                return
            time.sleep(0.001)


def _lay(home: str, files: dict[str, str]) -> None:
    """Put the files of an order into the folder."""
    for name, data in files.items():
        place = os.path.join(home, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "xb") as file:
            file.write(base64.b64decode(data))


def _take(home: str, names: list[str]) -> tuple[dict[str, str], dict[str, str | None]]:
    """({name: base64}, {name: why it was not taken}); all others are dead, so nothing moves under
    the feet."""
    taken: dict[str, str] = {}
    odd: dict[str, str | None] = {}
    left = MOST
    for name in names:
        place = os.path.join(home, name)
        try:
            direct = os.path.join(os.path.realpath(home), os.path.normpath(name))
            if os.path.realpath(place) != direct:
                raise OSError(0, "it is or lies behind a symbolic link")
            data = workspace.take(place, left)
            taken[name], left = base64.b64encode(data).decode(), left - len(data)
        except OSError as error:
            odd[name] = error.strerror
    return taken, odd


def _received(control: socket.socket) -> tuple[Order, list[int]] | None:
    """(the order that comes in a file in memory, the descriptors behind it), or None at the end."""
    word, files, *_ = socket.recv_fds(control, 64, 4)
    if not word:
        return None
    with open(files[0], "rb") as file:
        data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
    return json.loads(data), files[1:]


def _keep(control: socket.socket, home: str, bytecode: bytes | None) -> Order | None:
    """Serve one order: the report on it."""
    ordered = _received(control)
    if ordered is None:
        return None
    order, (given, out, err) = ordered
    most = order["limits"]
    clock = _Clock(most)
    try:
        _lay(home, order["files"])
    except OSError as error:
        message = f"the files given: {error.strerror}"
        return {"status": "files", "code": None, "left": 0, "message": message}
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    hears, note = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    pid = os.fork()
    if not pid:
        for file in (woken, wakes, hears):
            os.close(file)
        control.close()
        try:
            _become(order, (given, out, err), bytecode)
            for file in (given, out, err):
                os.close(file)
            child.run(order, note)
        finally:
            os._exit(1)
    for file in (note, given, out, err):
        os.close(file)
    code, why = _watch(control, pid, woken, most, home, clock)
    return _report(order, home, code, why, hears) | {"waited": clock.waited}


def _report(order: Order, home: str, code: int | None, why: str | None, hears: int) -> Order:
    """End what is left of a run, and say what became of it. `code`, `why`: of _watch; `hears`: the
    stranger's own word."""
    try:
        said = os.read(hears, 32).decode("ascii", "replace")
    except BlockingIOError:
        said = ""
    if not why and code and _full(home):  # met at the very end, a bound is a reason too
        why = "files"
    left = len(workspace.others()) - (code is None)
    _end_all()
    taken, odd = _take(home, order["take"])
    return {
        "status": why or _status(code or 0, said),
        "code": code,
        "left": max(left, 0),
        "finished": said == "ok",
        "files": taken,
        "odd": odd,
    }


def _watch(
    control: socket.socket, pid: int, woken: int, most: Order, home: str, clock: _Clock
) -> tuple[int | None, str | None]:
    """(exit code, None) of the stranger's process when it ends, or (None, why it has to): killed,
    timeout, starved, or a bound that all processes together passed. `woken` says that a child may
    have ended."""
    step = 0.02
    looks = time.monotonic() + step
    heard: list[Any] = [control, woken]
    while True:
        now = time.monotonic()
        if now >= looks:  # by the clock: what wakes us all the time does not keep us from it
            if why := _excess(most, home) or clock.look():
                return None, why
            step = min(step * 1.5, 0.1)
            looks = now + step
        if now >= clock.ends() and (why := clock.look()):
            return None, why
        patience = max(0, min(looks, clock.ends()) - now)
        ready = select.select(heard, [], [], patience)[0]
        if control in ready:
            clock.look()
            return None, "killed"
        if woken in ready:
            os.read(woken, 512)
            code: int | None = workspace.reap(pid)
            if code is not None:
                return code, None


def _status(code: int, said: str) -> str:
    """How a run ended that ended by itself; `said`: its own word on why."""
    if code == 0:
        return "ok"
    if code < 0:
        bounds = {int(signal.SIGXCPU): "timeout", int(signal.SIGXFSZ): "files"}
        return bounds.get(-code, "killed")
    return said if said in ("memory", "processes", "files") else "error"


def _try(bytecode: bytes) -> None:
    """Raises OSError where the kernel does not take the filter."""
    pid = os.fork()
    if not pid:
        try:
            syscalls.install(bytecode)
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        raise OSError(errno.ENOSYS, "the kernel takes no system call filter")


def _serve(spec: Order, control: socket.socket) -> None:
    """In a fork: enter the cell, serve one order, end."""
    global confined
    confined = spec["walls"] != "none"
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if confined:
            walls.enter(spec)
            home = spec["home"]
            # Not the keys of whoever started us: where the filter is, it cannot be asked for any
            # at all.
            walls.libc.syscall({"x86_64": 250, "aarch64": 219}[platform.machine()], 1, 0)
            walls.prctl(4, 0)
        else:
            home = tempfile.mkdtemp(prefix="decksmith-unsafe-")
            os.chdir(home)
            walls.prctl(36, 1)  # what loses its parent becomes our child
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        bytecode = syscalls.program(platform.machine()) if confined else None
        if bytecode:
            _try(bytecode)
    except (OSError, KeyError) as error:
        control.send(json.dumps({"refused": str(error)}).encode())
        os._exit(walls.REFUSED)
    try:
        control.send(b'{"ready": true}')
        report = _keep(control, home, bytecode)
        if report is not None:
            file = os.memfd_create("report")
            os.write(file, json.dumps(report).encode())
            socket.send_fds(control, [b"report"], [file])
    except BrokenPipeError:
        pass
    finally:
        if not confined:
            _end_all()
            shutil.rmtree(home, ignore_errors=True)
        os._exit(0)


def main() -> None:
    if len(sys.argv) == 2:  # once more without environment, which else stays readable in /proc
        os.execve(sys.executable, [sys.executable, "-IS", *sys.argv, "bare"], {})
    spec = json.loads(sys.argv[1]) | {"parent": os.getpid()}
    # By its path: its package imports what is not there by -IS.
    path = os.path.join(LIB, "decksmith/bench/benchmarks/graders/wire.py")
    made = importlib.util.spec_from_file_location("decksmith_wire", path)
    assert made and made.loader  # the name ends in .py
    wire = importlib.util.module_from_spec(made)
    made.loader.exec_module(wire)
    sys.modules["decksmith_wire"] = wire
    sys.path.remove(LIB)  # what the stranger imports is not ours
    if spec.get("packages"):
        sys.path.append(spec["packages"])  # of which a cell shows numpy alone
    for name in [name for name in sys.modules if name.partition(".")[0] == "decksmith"]:
        del sys.modules[name]
    # M_ARENA_MAX: each thread of its own arena would take 64 MiB of the address space that is
    # bounded.
    walls.libc.mallopt(-8, 1)
    for name in WARM:
        importlib.import_module(name)
    asks = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        word, files, *_ = socket.recv_fds(asks, 4096, 1)
        if not word:
            os._exit(0)
        control = socket.socket(fileno=files[0])
        if not os.fork():
            asks.close()
            _serve(spec | json.loads(word), control)
        control.close()


if __name__ == "__main__":
    main()
