"""A stranger's process in a cell, from the fork of the guard to its end. No import of this package."""

import atexit
import builtins
import errno
import io
import linecache
import os
import re
import resource
import sys
import threading
import traceback
import types
from typing import Any

FULL = {errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EFBIG, errno.EDQUOT}
_UNLIMITED = resource.RLIM_INFINITY
Space = dict[str, Any]  # the names of a program


def _execute(code: str, space: Space) -> tuple[str, int]:
    """(status, exit code) of a text in a namespace; what it does not catch is printed as an
    interpreter would."""
    try:
        exec(compile(code, "main.py", "exec", dont_inherit=True), space)
        return "ok", 0
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return "error" if stop.code else "exit", (stop.code or 0) & 255
        print(stop.code, file=sys.stderr)
        return "error", 1
    except KeyboardInterrupt:
        return "error", 130
    except BaseException as error:
        if isinstance(error, MemoryError):
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))  # so that it can be told
        status = _name(error)
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        try:
            traceback.print_exception(error)
        except BaseException:  # of the stranger's making, or no memory is left for it
            pass
        return status, 1


def _name(error: BaseException) -> str:
    """The status of a run that ended with an exception."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return "memory"
    no_thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    if isinstance(error, BlockingIOError) or no_thread:
        return "processes"
    return "files" if number in FULL else "error"


def bound(most: dict[str, Any], confined: bool) -> None:
    """Set what bounds each process by itself, as far as we may; `confined`: there are walls."""
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


def _counts_alone() -> bool:
    """Whether the kernel counts the processes of this cell alone: it has its own user (walls.py),
    or the kernel counts by namespace (Linux 5.14). Else the user's others count too, and only the
    guard and the cell's own bound stop them."""
    if 61184 <= os.getuid() < 65520:
        return True
    version = re.findall(r"\d+", os.uname().release)[:2]
    return tuple(map(int, version)) >= (5, 14)


def open_streams() -> None:
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


def run(order: dict[str, Any], note: int) -> None:
    """Run what was ordered; never returns. `note` tells the guard how it ended: what explains a
    failure, and whether the last line was reached. The stranger could lie there, as about all that
    it says of itself; not about limits and signals."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"], sys.argv = main, ["main.py"]
    sys.path.insert(0, os.getcwd())
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    own, text = os.getpid(), order["code"]
    # Let tracebacks quote the lines.
    linecache.cache["main.py"] = (len(text), None, text.splitlines(True), "main.py")
    status, code = _execute(text, main.__dict__)
    if status in ("ok", "exit", "error"):
        for module, end in ((threading, "_shutdown"), (atexit, "_run_exitfuncs")):
            try:
                getattr(module, end)()
            except BaseException:
                traceback.print_exc()
    if not _flush():
        status, code = "files", 1
    if os.getpid() == own:  # a fork of it comes by here as well
        os.write(note, status.encode())
    os._exit(code)


def _flush() -> bool:
    """Whether all that was printed went out."""
    good = True
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except BaseException:
            good = False
    return good
