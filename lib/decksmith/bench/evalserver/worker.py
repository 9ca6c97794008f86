"""One benchmark of a job, worked on by a process group that outlives whoever started it: python3
-m decksmith.bench.evalserver.worker FOLDER

A pipeline of our scripts does what FOLDER/task.json says, with its journals in the folder, and
leaves prompts.jsonl, rows.jsonl, summary.json and at last result.json there. Each is whole when it
is there, and is not made again; all that went wrong is in `log`.
"""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TypedDict, cast

from decksmith.core import cli, incoming, stream

TRIES = 3  # runs of a pipeline in which something failed for a passing reason
AGAIN = 75  # the exit status of a script that failed for a passing reason
SLIDEV = "slidevbench"

Commands = list[list[str]]


class WorkerResult(TypedDict, total=False):
    """What result.json says."""

    error: str | None
    seconds: float


class WorkerTask(TypedDict, total=False):
    """What task.json says."""

    name: str
    limit: int
    protocol: str  # of slidevbench
    ask: list[str]  # the flags of chat-generate
    IMAGES: str  # of the environment


def measure(folder: Path) -> None:
    """Do what the folder says. Whoever else works in it is left to it: all processes of the group
    hold the folder's lock, so that it is free when, and only when, nobody works there."""
    lock = _lock(folder)
    if lock is None or result(folder):
        return
    own = os.getpid()
    who = {"pid": own, "began": _began(own), "host": socket.gethostname()}
    stream.write(folder / "process.json", json.dumps(who))
    task = cast(WorkerTask, read(folder / "task.json"))
    started = time.monotonic()
    if "IMAGES" in task:
        os.environ["IMAGES"] = task["IMAGES"]
    take, score, reduce = _pipelines(task)
    error = (
        _run(folder, lock, take, None, "prompts.jsonl")
        # Rows that failed for a passing reason stand among the others as errors, and are counted.
        or _run(folder, lock, score, "prompts.jsonl", "rows.jsonl", some_may_fail=True)
        or _run(folder, lock, reduce, "rows.jsonl", "summary.json")
    )
    ended: WorkerResult = {"error": error, "seconds": round(time.monotonic() - started, 1)}
    stream.write(folder / "result.json", json.dumps(ended) + "\n")


def _lock(folder: Path, tries: int = 20) -> int | None:
    """The descriptor of the folder's lock, which is ours from here on; None where somebody has it.
    Who only looks has it for an instant. Raises OSError where there is no folder."""
    lock = incoming.own(folder / "lock", mode=0o600, closed=0)
    for _ in range(tries):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            time.sleep(0.05)
    os.close(lock)
    return None


def _pipelines(task: WorkerTask) -> tuple[Commands, Commands, Commands]:
    """The three pipelines of a benchmark: to its prompts, from them to graded rows, and from those
    to its summary."""
    run, limit = ["--run", "."], ["--limit", str(task["limit"])]
    ask = ["chat-generate", *run, *task["ask"]]
    if task["name"] != SLIDEV:
        take = [["bench-prepare", task["name"]], ["record-sample", *limit], ["bench-prompt"]]
        return take, [ask, ["bench-grade", *run]], [["bench-summarize"]]
    protocol = ["--protocol", task["protocol"]]
    take = [["bench-prepare", SLIDEV], ["record-sample", *protocol, *limit]]
    score = [
        ask + protocol,
        ["deck-parse", *run],
        ["deck-illustrate", *run, *protocol],
        ["deck-render", *run, *protocol],
        ["deck-judge", *run, *protocol],
        ["deck-scan", *run],
        ["deck-score", *protocol],
    ]
    return take, score, [["run-summarize", *run, *protocol]]


def _run(
    folder: Path,
    lock: int,
    commands: Commands,
    source: str | None,
    sink: str,
    some_may_fail: bool = False,
) -> str | None:
    """Make the file `sink` of the file `source` by a pipeline, unless it is there: None, or which
    command failed and its last words. What fails for a passing reason is run again; with
    `some_may_fail` its output is taken if it fails to the end."""
    if (folder / sink).exists():
        return None
    for attempt in range(TRIES):
        statuses = _pipe(commands, folder, source, sink, lock)
        broken = [name for name, status in statuses.items() if status not in (0, AGAIN)]
        late = [name for name, status in statuses.items() if status == AGAIN]
        if broken or not late:
            break
        if attempt + 1 < TRIES:
            time.sleep(2**attempt)
    if broken or (late and not some_may_fail):
        name = [*broken, *late][0]
        return f"{name} ended with status {statuses[name]}: {last_words(folder / 'log')}"
    os.replace(folder / f"{sink}.tmp", folder / sink)
    return None


def _pipe(
    commands: Commands, folder: Path, source: str | None, sink: str, lock: int
) -> dict[str, int]:
    """Run a pipeline from a file (None: nothing) into SINK.tmp; exit statuses by name."""
    processes: list[subprocess.Popen[bytes]] = []
    with (
        open(folder / "log", "ab") as log,
        open(folder / f"{sink}.tmp", "wb") as out,
        open(folder / source if source else os.devnull, "rb") as first,
    ):
        for command in commands:
            before = processes[-1].stdout if processes else None
            last = command is commands[-1]
            processes.append(
                subprocess.Popen(
                    [str(cli.ROOT / "bin" / command[0]), *command[1:]],
                    cwd=folder,
                    stdin=before or first,
                    stdout=out if last else subprocess.PIPE,
                    stderr=log,
                    pass_fds=[lock],
                )
            )
            if before:
                before.close()
        names = [command[0] for command in commands]
        return {name: process.wait() for name, process in zip(names, processes, strict=True)}


def last_words(path: Path) -> str:
    """The last line of a log."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 4096))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"
    return "it has no log"


def _began(pid: int) -> int | None:
    """When a process began, in ticks since the machine started; None when there is none (proc(5),
    field 22 of stat)."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def busy(folder: Path) -> bool:
    """Whether somebody works in a benchmark's folder."""
    with contextlib.suppress(OSError):
        lock = _lock(folder, tries=1)
        if lock is None:
            return True
        os.close(lock)
    return False


def send(folder: Path, number: int) -> bool:
    """Send a signal to the process group that works in a folder; False when it cannot be the one
    that is written there."""
    found = read(folder / "process.json")
    pid = found.get("pid")
    if found.get("host") != socket.gethostname() or not isinstance(pid, int) or pid < 2:
        return False
    if _began(pid) not in (None, found.get("began")):
        return False  # another process has that number now
    try:
        # The group's number is its leader's, also after the leader is gone.
        os.killpg(pid, number)
    except OSError:
        return False
    return True


def result(folder: Path) -> WorkerResult:
    """The result of a benchmark; empty where there is none yet."""
    return cast(WorkerResult, read(folder / "result.json"))


def read(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where there is none."""
    try:
        return stream.json_object(path.read_bytes())
    except (OSError, ValueError):
        return {}


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
