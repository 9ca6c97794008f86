"""The inside of an author's cell: `python3 -IS workspace.py FD`, with its order as one line of JSON on stdin.

    {"files": {name: text}, "argv": [..], "timeout": seconds, "grace": seconds, "take": [name..], "most": bytes}

It lays the files out in the working folder, runs the command there, and ends it at the deadline: TERM to its group,
after the grace KILL to everything it started, also what left the group. What the command leaves running ends with it.
FD gets {"rc", "timeout", "left": processes ended, "files": {name: base64}, "odd": {name: why it was not taken}} or
{"cannot": why the command does not start}. When stdin ends, whoever wants the draft is gone: everything is ended.
No import of this package.
"""

import base64
import ctypes
import json
import os
import select
import signal
import stat
import sys
import time
from typing import Any


def others() -> list[int]:
    """The living processes that this one must end: all of its pid namespace, or its descendants."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            parents[int(name)] = int(parent)
    own = os.getpid()
    if own == 1:
        return [pid for pid in parents if pid != 1]
    found = {own}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return list(found - {own})


def reap(main: int | None = None) -> int | None:
    """The exit code of `main` when it has ended; collects whatever else has."""
    code = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == main:
                code = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        pass
    return code


def end_all() -> None:
    """Kill all of `others`, and what they start meanwhile."""
    for _ in range(500):
        for pid in others():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        reap()
        if not others():
            return
        time.sleep(0.01)


def _start(argv: list[str]) -> tuple[int, str]:
    """(pid, why it did not start or an empty string)."""
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.execvp(argv[0], argv)
        except OSError as error:
            os.write(writes, f"{argv[0]}: {error.strerror}".encode())
        finally:
            os._exit(127)
    os.close(writes)
    with open(reads, "rb") as pipe:
        return pid, pipe.read().decode()


def _run(order: dict[str, Any]) -> dict[str, Any]:
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    pid, cannot = _start(order["argv"])
    if cannot:
        return {"cannot": cannot}
    ends, code, late = time.monotonic() + order["timeout"], None, False
    while code is None:
        ready = select.select([0, woken], [], [], max(0, ends - time.monotonic()))[0]
        if 0 in ready and not os.read(0, 1):
            end_all()
            os._exit(1)
        if woken in ready:
            os.read(woken, 512)
        code = reap(pid)
        if code is None and time.monotonic() >= ends:
            if late:
                break
            late, ends = True, time.monotonic() + order["grace"]
            try:
                os.killpg(pid, signal.SIGTERM)
            except OSError:
                pass
    left = len(others())
    end_all()
    return {"rc": code, "timeout": late, "left": 0 if late else left}


def take(name: str | os.PathLike[str], most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes; no link is followed. Raises OSError."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(0, "it is no regular file")
        if info.st_size > most:
            raise OSError(0, f"it has more than {most >> 10} kB")
        return file.read()


def _lay(name: str, text: str) -> None:
    """Write a file of the order, unless it lies there already (without walls the folder is the real one)."""
    data = text.encode("utf-8", "surrogateescape")
    try:
        if take(name, 1 << 24) == data:
            return
        os.unlink(name)
    except OSError:
        pass
    with open(name, "xb") as file:
        file.write(data)


def main(descriptor: int) -> None:
    """Do the order that stands on stdin."""
    order = json.loads(sys.stdin.buffer.readline())
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1, 0, 0, 0)  # what loses its parent becomes our child
    if os.getpid() != 1:
        prctl(
            1, 0, 0, 0, 0
        )  # not killed with our parent: stdin tells, and there are others to end first
    os.set_inheritable(descriptor, False)
    for name, text in order["files"].items():
        _lay(name, text)
    os.makedirs(".tmp", exist_ok=True)
    os.environ.pop("BROWSER_SANDBOX", None)
    out = _run(order)
    if "cannot" not in out:
        out |= {"files": {}, "odd": {}}
        for name in order["take"]:
            try:
                out["files"][name] = base64.b64encode(take(name, order["most"])).decode()
            except FileNotFoundError:
                pass
            except OSError as error:
                out["odd"][name] = (
                    "it is a link" if os.path.islink(name) else error.strerror or str(error)
                )
    view = memoryview(json.dumps(out).encode())
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main(int(sys.argv[1]))
