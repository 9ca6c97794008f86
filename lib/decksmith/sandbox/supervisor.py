"""The inside of the sandbox: `python3 -IS supervisor.py SPEC`, with a socket of sandbox.Pool as
stdin; SPEC is a cell's.

Every message on that socket asks for one cell and brings the socket by which it is led. The
process that listens has seen no stranger's code and holds no secret. It forks; the child enters a
cell (walls.py) as its first process, the guard, and says {"ready": true}. With the first order on
its own socket the guard forks the stranger: an interpreter that is already warm, without
environment, under limits and a system call filter. The guard cannot be signalled, traced or read
from inside. It watches what no limit of the kernel covers (the memory and processes of all
together, the room in the folder), ends everything, and reports through a file in memory that only
it holds. A cell serves one stranger.

Words of the leash: "interrupt" (SIGINT), "stop" and "go" (all processes), "end"; when it closes,
everything ends. No import of this package.
"""

import ast
import atexit
import base64
import builtins
import ctypes
import errno
import importlib.util
import io
import json
import linecache
import os
import platform
import re
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
import types

MOST = 8 << 20  # bytes of files handed back
# What the stranger's imports find warm: most generated code begins with some of these.
WARM = (
    "bisect",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "random",
    "statistics",
    "string",
    "typing",
    "unittest",
)
FULL = {errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EFBIG, errno.EDQUOT}
_PAGE = resource.getpagesize()
_PIPE = 16 * _PAGE
with socket.socket(socket.AF_UNIX) as _any:  # a message may begin where a buffer is nearly full
    _SOCKET = _any.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) + (64 << 10)
_UNLIMITED = resource.RLIM_INFINITY
cell: types.ModuleType  # core/walls.py
desk: types.ModuleType  # corpus/workspace.py
confined: bool  # whether there are any walls


def _load(room, name):
    place = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), room, f"{name}.py"
    )
    spec = importlib.util.spec_from_file_location(f"decksmith_{name}", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- the system call filter ----------------------------------------------------------------------

# (x86_64, aarch64): what changes or enters namespaces and mounts, looks into other processes,
# reaches what no namespace divides (keys, bpf, perf, clocks), tells what others do with the files
# that all see (inotify, fanotify), allocates memory that no limit counts (memfd, System V), or has
# been many a hole.
_DENIED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "personality": (135, 92),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "fanotify_init": (300, 262),
    "vmsplice": (278, 75),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NAMESPACES = 0x7E020000  # CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET


def program(machine: str) -> bytes:
    """The filter for a machine, as bytes of struct sock_filter (linux/filter.h, seccomp(2)).
    Raises KeyError.

    Of the calls that are only granted in part: no new namespaces; sockets of the internet and
    streams of AF_UNIX alone, whose buffers the guard can count (_buffers) as long as nobody
    enlarges them (SO_SNDBUF is heard and forgotten) or pipes (F_SETPIPE_SZ); no lease and no
    notice on a file (F_SETLEASE, F_NOTIFY).
    """
    column, architecture = _MACHINES[machine]
    clone, clone3, sockets, pairs, control, option = (
        (56, 435, 41, 53, 72, 54),
        (220, 435, 198, 199, 25, 208),
    )[column]
    load, equal, larger, any_bit, mask, end = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
    first, second, third = ((load, 0, 0, 16 + 8 * number) for number in range(3))
    kill, allow, refuse = 0x80000000, 0x7FFF0000, lambda number: 0x00050000 | number
    lines = [(load, 0, 0, 4), (equal, 1, 0, architecture), (end, 0, 0, kill), (load, 0, 0, 0)]
    if machine == "x86_64":  # its other table of calls, x32
        lines += [(larger, 0, 1, 0x40000000), (end, 0, 0, refuse(errno.ENOSYS))]
    for numbers in _DENIED.values():
        number = numbers[column]
        if number is not None:
            lines += [(equal, 0, 1, number), (end, 0, 0, refuse(errno.EPERM))]
    lines += [
        (equal, 0, 1, clone3),
        (end, 0, 0, refuse(errno.ENOSYS)),
    ]  # its flags cannot be read; libc takes clone
    streams = [
        second,
        (mask, 0, 0, 0xF),
        (equal, 0, 1, socket.SOCK_STREAM),
        (end, 0, 0, allow),
        (end, 0, 0, refuse(errno.ESOCKTNOSUPPORT)),
    ]
    for number, rule in (
        (
            clone,
            [
                first,
                (any_bit, 0, 1, _NAMESPACES),
                (end, 0, 0, refuse(errno.EPERM)),
                (end, 0, 0, allow),
            ],
        ),
        (
            sockets,
            [
                first,
                (equal, 6, 0, socket.AF_INET),
                (equal, 5, 0, socket.AF_INET6),
                (equal, 1, 0, socket.AF_UNIX),
                (end, 0, 0, refuse(errno.EAFNOSUPPORT)),
                *streams,
            ],
        ),
        (pairs, streams),
        (
            control,
            [
                second,
                (equal, 2, 0, 1024),
                (equal, 1, 0, 1026),
                (equal, 0, 1, 1031),
                (end, 0, 0, refuse(errno.EPERM)),
                (end, 0, 0, allow),
            ],
        ),
        (
            option,
            [
                second,
                (equal, 0, 3, socket.SOL_SOCKET),
                third,
                (equal, 0, 1, socket.SO_SNDBUF),
                (end, 0, 0, refuse(0)),
                (end, 0, 0, allow),
            ],
        ),
    ):
        lines += [(equal, 0, len(rule), number), *rule]
    lines += [(end, 0, 0, allow)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _filter(bytecode):
    buffer = ctypes.create_string_buffer(bytecode, len(bytecode))
    head = struct.pack("HxxxxxxP", len(bytecode) // 8, ctypes.addressof(buffer))
    cell._check(cell._libc.prctl(22, ctypes.c_ulong(2), head, 0, 0), "seccomp")


# --- the stranger --------------------------------------------------------------------------------


def _execute(code, space, session):
    """(status, exit code) of a text in a namespace; what it does not catch is printed as an
    interpreter would."""
    try:
        tree = compile(code, "main.py", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        last = (
            tree.body.pop()
            if session and tree.body and isinstance(tree.body[-1], ast.Expr)
            else None
        )
        exec(compile(tree, "main.py", "exec", dont_inherit=True), space)
        if last:
            exec(compile(ast.Interactive([last]), "main.py", "single", dont_inherit=True), space)
        return "ok", 0
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return ("error" if stop.code else "ok" if session else "exit"), (stop.code or 0) & 255
        print(stop.code, file=sys.stderr)
        return "error", 1
    except KeyboardInterrupt:
        return ("timeout" if session else "error"), 130
    except BaseException as error:
        if isinstance(error, MemoryError):
            resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)
        status = _name(error)
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        try:
            traceback.print_exception(error)
        except BaseException:  # of the stranger's making, or no memory is left for it
            pass
        return status, 1


def _name(error):
    """The status of a run that ended with an exception."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return "memory"
    no_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    if isinstance(error, BlockingIOError) or no_thread:
        return "processes"
    return "files" if number in FULL else "error"


def _limits(most):
    """Set what bounds each process by itself, as far as we may."""
    bounds = [
        (resource.RLIMIT_AS, most["memory"], most["memory"] + (32 << 20)),
        (resource.RLIMIT_CPU, most["cpu"], most["cpu"] + 1),
        (resource.RLIMIT_NOFILE, most["open_files"], most["open_files"]),
        (resource.RLIMIT_FSIZE, most["disk"], most["disk"]),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_SIGPENDING, 256, 256),
        (resource.RLIMIT_CORE, 0, 0),
    ]
    if confined and _counts_alone():
        # Two more than are allowed, so that the guard sees the excess; itself is one.
        processes = most["processes"] + 3
        bounds.append((resource.RLIMIT_NPROC, processes, processes))
    for number, soft, hard in bounds:
        granted = resource.getrlimit(number)[1]
        if granted != _UNLIMITED:
            soft, hard = min(soft, granted), min(hard, granted)
        resource.setrlimit(number, (int(soft), int(hard)))


def _counts_alone():
    """Whether the kernel counts the processes of this cell alone: it has its own user (walls.py),
    or the kernel counts by namespace (Linux 5.14). Else the user's others count too, and only the
    guard and the cell's own bound stop them."""
    if 61184 <= os.getuid() < 65520:
        return True
    version = re.findall(r"\d+", os.uname().release)[:2]
    return tuple(map(int, version)) >= (5, 14)


def _streams():
    """Python's three standard streams, on the descriptors that are there now."""
    given = io.BufferedReader(io.FileIO(0, closefd=False))
    out, err = (io.BufferedWriter(io.FileIO(number, "w", closefd=False)) for number in (1, 2))
    streams = {
        "stdin": io.TextIOWrapper(given, "utf-8", "surrogateescape"),
        "stdout": io.TextIOWrapper(out, "utf-8", "surrogateescape"),
        "stderr": io.TextIOWrapper(err, "utf-8", "backslashreplace", line_buffering=True),
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _become(order, files, bytecode):
    """Turn this fork of the guard into the stranger's process; what it may hold is `files`: stdin,
    stdout, stderr."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    os.environ.clear()
    _streams()
    cell._prctl(4, 1)  # its own /proc entries are its own
    try:
        cell._write(
            "/proc/self/oom_score_adj", "1000"
        )  # of all processes here the first to end where memory is short
    except OSError:
        pass
    _limits(order["limits"])
    if bytecode:
        _filter(bytecode)


def _stranger(order, note, talk):
    """Run what was ordered; never returns. `note` tells the guard how it ended: what explains a
    failure, and whether the last line was reached. The stranger could lie there, as about all that
    it says of itself; not about limits and signals."""
    if order["language"] == "sh":
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execve("/bin/sh", ["sh", "-c", order["code"]], {"PATH": "/usr/bin:/bin"})
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"], sys.argv = main, ["main.py"]
    sys.path.insert(0, os.getcwd())
    builtins.exit = builtins.quit = sys.exit
    own = os.getpid()
    if not talk:
        _show(order["code"])
        status, code = _execute(order["code"], main.__dict__, False)
        for end in (
            (threading._shutdown, atexit._run_exitfuncs)
            if status in ("ok", "exit", "error")
            else ()
        ):
            try:
                end()
            except BaseException:
                traceback.print_exc()
        if not _flush():
            status, code = "files", 1
        if os.getpid() == own:  # a fork of it comes by here as well
            os.write(note, status.encode())
        os._exit(code)
    while True:
        try:
            asked = _received(talk)
            if asked is None:
                os._exit(0)
            number, text = asked["number"], asked["code"]
            _show(text)
            status, code = _execute(text, main.__dict__, True)
            _flush()
            if os.getpid() != own:
                os._exit(code)
            talk.send(json.dumps({"number": number, "status": status, "code": code}).encode())
        except KeyboardInterrupt:  # it came late
            continue


def _show(code):
    """Let tracebacks quote the lines."""
    linecache.cache["main.py"] = (len(code), None, code.splitlines(True), "main.py")


def _flush():
    good = True
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except BaseException:
            good = False
    return good


def _received(leash):
    """The order that comes in a file in memory, or None at the end."""
    word, files, *_ = socket.recv_fds(leash, 64, 1)
    if not word:
        return None
    with open(files[0], "rb") as file:
        return json.loads(os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0))


# --- the guard -----------------------------------------------------------------------------------


def _excess(most, room):
    """The name of the bound that the processes of this cell have passed together, or None."""
    memory, tasks, members = 0, 0, []
    for pid in _members():
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


def _members():
    """The processes of the cell but the guard: in a namespace of its own, all that it sees."""
    if os.getpid() != 1:
        return desk._others()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def _full(room):
    """Whether a folder has no room for a byte, or for a file."""
    space = os.statvfs(room)
    return space.f_bavail == 0 or space.f_favail == 0


def _buffers(members, most):
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


def _share(pid):
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


def _end_all():
    """End every other process of the cell and wait until none is left."""
    if os.getpid() != 1:
        desk._end_all()
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
            if not desk._others():
                return
            time.sleep(0.001)


def _lay(home, files):
    for name, data in files.items():
        place = os.path.join(home, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "xb") as file:
            file.write(base64.b64decode(data))


def _take(home, names):
    """({name: base64}, {name: why it was not taken}); all others are dead, so nothing moves under
    the feet."""
    taken, odd, left = {}, {}, MOST
    for name in names:
        place = os.path.join(home, name)
        try:
            if os.path.realpath(place) != os.path.join(
                os.path.realpath(home), os.path.normpath(name)
            ):
                raise OSError(0, "it is or lies behind a symbolic link")
            data = desk._take(place, left)
            taken[name], left = base64.b64encode(data).decode(), left - len(data)
        except OSError as error:
            odd[name] = error.strerror
    return taken, odd


def _keep(leash, home, bytecode):
    """Serve one order: the report on it."""
    word, files, *_ = socket.recv_fds(leash, 64, 6)
    if not word:
        return None
    with open(files[0], "rb") as file:
        order = json.loads(os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0))
    talk = socket.socket(fileno=files[4]) if len(files) > 4 else None
    most, began = order["limits"], time.monotonic()
    try:
        _lay(home, order["files"])
    except OSError as error:
        return {
            "status": "files",
            "code": None,
            "left": 0,
            "message": f"the files given: {error.strerror}",
        }
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    hears, note = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    pid = os.fork()
    if not pid:
        for file in (woken, wakes, hears):
            os.close(file)
        leash.close()
        try:
            _become(order, files[1:4], bytecode)
            for file in files[1:4]:
                os.close(file)
            _stranger(order, note, talk)
        finally:
            os._exit(1)
    for file in (note, *files[1:4]):
        os.close(file)
    if talk:
        talk.close()
    ends = None if talk else began + most["wall"]
    code, why = _watch(leash, pid, woken, most, home, ends)
    try:
        said = os.read(hears, 32).decode("ascii", "replace")
    except BlockingIOError:
        said = ""
    if not why and code and _full(home):  # met at the very end, a bound is a reason too
        why = "files"
    left = len(desk._others()) - (code is None)
    _end_all()
    status = why or _status(code, said)
    taken, odd = _take(home, order["take"])
    return {
        "status": status,
        "code": code,
        "left": max(left, 0),
        "finished": said == "ok",
        "files": taken,
        "odd": odd,
    }


def _watch(leash, pid, woken, most, home, ends):
    """(exit code, None) of the stranger's process when it ends, or (None, why it has to): killed,
    timeout, or a bound that all processes together passed. `woken` says that a child may have
    ended; `ends`: time.monotonic, or None."""
    step = 0.02
    looks = time.monotonic() + step
    while True:
        now = time.monotonic()
        if now >= looks:  # by the clock: what wakes us all the time does not keep us from it
            if why := _excess(most, home):
                return None, why
            step = min(step * 1.5, 0.1)
            looks = now + step
        if ends and now >= ends:
            return None, "timeout"
        ready = select.select([leash, woken], [], [], max(0, min(looks, ends or looks) - now))[0]
        if leash in ready:
            word = leash.recv(64)
            if word in (b"", b"end"):
                return None, "killed"
            _lead(word, pid)
        if woken in ready:
            os.read(woken, 512)
            code = desk._reap(pid)
            if code is not None:
                return code, None


def _status(code, said):
    """How a run ended that ended by itself; `said`: its own word on why."""
    if code == 0:
        return "ok"
    if code < 0:
        return {signal.SIGXCPU: "timeout", signal.SIGXFSZ: "files"}.get(-code, "killed")
    return said if said in ("memory", "processes", "files") else "error"


def _lead(word, pid):
    if word == b"interrupt":
        os.kill(pid, signal.SIGINT)
    elif word in (b"stop", b"go") and os.getpid() == 1:
        try:
            os.kill(-1, signal.SIGSTOP if word == b"stop" else signal.SIGCONT)
        except ProcessLookupError:
            pass


def _serve(spec, leash):
    """In a fork: enter the cell, serve one order, end."""
    global confined
    confined = spec["walls"] != "none"
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if confined:
            cell.enter(spec)
            home = spec["home"]
            # Not the keys of whoever started us: where the filter is, it cannot be asked for any
            # at all.
            cell._libc.syscall({"x86_64": 250, "aarch64": 219}[platform.machine()], 1, 0)
            cell._prctl(4, 0)
        else:
            home = tempfile.mkdtemp(prefix="decksmith-unsafe-")
            os.chdir(home)
            cell._prctl(36, 1)  # what loses its parent becomes our child
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        bytecode = program(platform.machine()) if confined else None
        if confined:  # whether the kernel takes it
            child = os.fork()
            if not child:
                try:
                    _filter(bytecode)
                    os._exit(0)
                finally:
                    os._exit(1)
            if os.waitpid(child, 0)[1]:
                raise OSError(errno.ENOSYS, "the kernel takes no system call filter")
    except (OSError, KeyError) as error:
        leash.send(json.dumps({"refused": str(error)}).encode())
        os._exit(cell.REFUSED)
    try:
        leash.send(b'{"ready": true}')
        report = _keep(leash, home, bytecode)
        if report is not None:
            file = os.memfd_create("report")
            os.write(file, json.dumps(report).encode())
            socket.send_fds(leash, [b"report"], [file])
    except BrokenPipeError:
        pass
    finally:
        if not confined:
            _end_all()
            shutil.rmtree(home, ignore_errors=True)
        os._exit(0)


def main() -> None:
    global cell, desk
    if len(sys.argv) == 2:  # once more without environment, which else stays readable in /proc
        os.execve(sys.executable, [sys.executable, "-IS", *sys.argv, "bare"], {})
    cell, desk = _load("core", "walls"), _load("corpus", "workspace")
    # M_ARENA_MAX: each thread of its own arena would take 64 MiB of the address space that is
    # bounded.
    cell._libc.mallopt(-8, 1)
    for name in WARM:
        importlib.import_module(name)
    sys.modules["decksmith_wire"] = _load("benchmarks/graders", "wire")
    spec = json.loads(sys.argv[1]) | {"parent": os.getpid()}
    asks = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        word, files, *_ = socket.recv_fds(asks, 4096, 1)
        if not word:
            os._exit(0)
        leash = socket.socket(fileno=files[0])
        if not os.fork():
            asks.close()
            _serve(spec | json.loads(word), leash)
        leash.close()


if __name__ == "__main__":
    main()
