"""A command as a process group whose end is a file, so that a watcher that was killed finds it again.

Its marks are files in a folder: `host` and `stat` say who it is (stat: its line of /proc), `printed` is its output, `status`
how it ended.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

# The shell notes first who it is and last how the command ended, whoever still watches then.
SCRIPT = (
    'kept=$1 && shift && cat /proc/$$/stat > "$kept/stat" && { "$@" > "$kept/printed"; echo $? > "$kept/status.tmp"; } '
    '&& mv "$kept/status.tmp" "$kept/status"'
)
ENDING = ((signal.SIGTERM, 30.0), (signal.SIGKILL, 5.0))  # (signal, seconds that are waited)


def start(
    command: list[str], marks: Path, environment: dict[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a command whose marks go to a folder that is there; what it says on stderr is added to `log`."""
    (marks / "host").write_text(socket.gethostname())
    with open(log, "ab") as errors:
        return subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "sh", str(marks), *command],
            stdout=errors,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )


def find(marks: Path) -> int | None:
    """The pid of the command with these marks if it runs on this machine."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid, since = _identity((marks / "stat").read_text())
        here = (marks / "host").read_text() == socket.gethostname()
        return pid if here and began(pid) == since else None
    return None


def status(marks: Path) -> int | None:
    """How the command ended; None where it runs or was killed."""
    try:
        return int((marks / "status").read_text())
    except (OSError, ValueError):
        return None


def seconds(marks: Path) -> float:
    """How long a command took that has ended."""
    taken = (marks / "status").stat().st_mtime - (marks / "stat").stat().st_mtime
    return max(0.0, round(taken, 1))


def began(pid: int) -> str | None:
    """When a process began, as the kernel counts it; None when it is gone or a zombie."""
    try:
        return _identity(Path(f"/proc/{pid}/stat").read_text())[1]
    except (OSError, IndexError):
        return None


def _identity(stat: str) -> tuple[int, str | None]:
    """(pid, when it began or None for a zombie) of a line of /proc/PID/stat (proc(5): fields 1, 3 and 22)."""
    fields = stat.rpartition(")")[2].split()
    return int(stat.split()[0]), None if fields[0] == "Z" else fields[19]


def end(marks: Path, child: subprocess.Popen[bytes] | None) -> None:
    """TERM to the command's process group, KILL to what is left of it half a minute later.

    child: the command, where this process started it.
    """
    pid = child.pid if child else find(marks)
    if pid is None:
        return
    for number, patience in ENDING:
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return
        if _is_gone(pid, child, patience):
            return


def _is_gone(pid: int, child: subprocess.Popen[bytes] | None, patience: float) -> bool:
    """Wait until a process group is gone, so many seconds at most."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if child:
            child.poll()  # or it stays a zombie of the group
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
