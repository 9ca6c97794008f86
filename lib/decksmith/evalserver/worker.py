"""One benchmark of a job, worked on by a process group that outlives whoever started it: python3 -m decksmith.evalserver.worker FOLDER

A pipeline of our scripts does what FOLDER/task.json says, with its journals in the folder, and leaves prompts.jsonl, rows.jsonl, summary.json
and at last result.json there. Each is whole when it is there, and is not made again; all that went wrong is in `log`.
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

from decksmith.core import cli, stream

TRIES = 3  # runs of a pipeline in which something failed for a passing reason
SLIDEV = "slidevbench"


def measure(folder):
    """Do what the folder says. Whoever else works in it is left to it: all processes of the group hold the folder's lock, so that it is free
    when, and only when, nobody works there."""
    folder = Path(folder)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(20):  # for whoever only looks, an instant
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            time.sleep(0.05)
    else:
        return
    if read(folder / "result.json"):
        return
    stream.write(
        folder / "process.json",
        json.dumps(
            {"pid": os.getpid(), "began": _began(os.getpid()), "host": socket.gethostname()}
        ),
    )
    task, started = json.loads((folder / "task.json").read_text()), time.monotonic()
    if "IMAGES" in task:
        os.environ["IMAGES"] = task["IMAGES"]
    run, limit = ["--run", "."], ["--limit", str(task["limit"])]
    ask = ["chat-generate", *run, *task["ask"]]
    if task["name"] == SLIDEV:
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
        reduce = ["run-summarize", *run, *protocol]
    else:
        take = [["bench-prepare", task["name"]], ["record-sample", *limit], ["bench-prompt"]]
        score, reduce = [ask, ["bench-grade", *run]], ["bench-summarize"]
    error, again = None, False
    for commands, source, sink in (
        (take, None, "prompts.jsonl"),
        (score, "prompts.jsonl", "rows.jsonl"),
        ([reduce], "rows.jsonl", "summary.json"),
    ):
        if (folder / sink).exists():
            continue
        for attempt in range(TRIES):
            statuses = _pipe(commands, folder, source, sink, lock)
            broken = next(
                (name for name, status in statuses.items() if status not in (0, 75)), None
            )
            again = 75 in statuses.values()
            if not again or broken:
                break
            time.sleep(2**attempt if attempt + 1 < TRIES else 0)
        named = [
            name
            for name in (broken, *(name for name in statuses if again and statuses[name] == 75))
            if name
        ]
        if broken or again and sink != "rows.jsonl":
            error = (
                f"{named[0]} ended with status {statuses[named[0]]}: {last_words(folder / 'log')}"
            )
            break
        os.replace(folder / f"{sink}.tmp", folder / sink)
    stream.write(
        folder / "result.json",
        json.dumps({"error": error, "seconds": round(time.monotonic() - started, 1)}) + "\n",
    )


def _pipe(commands, folder, source, sink, lock):
    """Run a pipeline from a file (None: nothing) into SINK.tmp; exit statuses by name."""
    processes = []
    with (
        open(folder / "log", "ab") as log,
        open(folder / f"{sink}.tmp", "wb") as out,
        open(folder / source if source else os.devnull, "rb") as first,
    ):
        for index, command in enumerate(commands):
            last = index + 1 == len(commands)
            processes.append(
                subprocess.Popen(
                    [str(cli.ROOT / "bin" / command[0]), *command[1:]],
                    cwd=folder,
                    stdin=processes[-1].stdout if processes else first,
                    stdout=out if last else subprocess.PIPE,
                    stderr=log,
                    pass_fds=[lock],
                )
            )
            if index:
                processes[-2].stdout.close()
        return {
            command[0]: process.wait() for command, process in zip(commands, processes, strict=True)
        }


def last_words(path):
    """The last line of a log."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 4096))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"
    return "it has no log"


def _began(pid):
    """When a process began, in ticks since the machine started; None when there is none (proc(5), field 22 of stat)."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def busy(folder):
    """Whether somebody works in a benchmark's folder."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(lock)


def send(folder, number):
    """Send a signal to the process group that works in a folder; False when it cannot be the one that is written there."""
    worker = read(folder / "process.json")
    if (
        worker.get("host") != socket.gethostname()
        or not isinstance(worker.get("pid"), int)
        or worker["pid"] < 2
    ):
        return False
    if _began(worker["pid"]) not in (None, worker.get("began")):
        return False  # another process has that number now
    with contextlib.suppress(OSError):
        os.killpg(
            worker["pid"], number
        )  # the group's number is its leader's, also after the leader is gone
        return True
    return False


def read(path):
    """The JSON object in a file; an empty one where there is none."""
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


if __name__ == "__main__":
    measure(sys.argv[1])
