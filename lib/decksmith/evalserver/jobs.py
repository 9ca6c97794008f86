"""Jobs on disk: what was asked, how far it is, what came of it.

  ROOT/jobs/KEY.N/{request,state}.json  events.jsonl  BENCH/{task,process,result,summary}.json  prompts.jsonl  rows.jsonl  journal/  log

KEY is of the request, N counts its attempts.
"""

import asyncio
import contextlib
import errno
import json
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.evalserver import metrics, worker
from decksmith.evalserver.worker import SLIDEV

ENDED = ("done", "partial", "failed", "cancelled", "superseded")
STATUSES = (*ENDED, "queued", "running")
# How a benchmark went that gave no numbers.
NOTHING: dict[str, float] = {"n_errors": 1, "seconds": 0.0, "coverage": 0.0}
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")
FOLDER = re.compile(r"[0-9a-f]{16}\.[1-9][0-9]{0,8}\Z")
REQUEST = {
    "run",
    "rollout_id",
    "router_urls",
    "model",
    "checkpoint",
    "weight_version",
    "on_failure",
    "supersede",
    "prefix",
    "notes",
    "unknown",
    "benchmarks",
    "door",
}


def now() -> str:
    """The time as files and answers say it: ISO 8601 with milliseconds, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Job:
    """One request and what came of it. `request` never changes; `state` is written whole at each
    change."""

    def __init__(self, folder: Path, request: dict[str, Any], state: dict[str, Any]) -> None:
        self.folder, self.id, self.request, self.state = folder, folder.name, request, state
        self.done = asyncio.Event()
        if state["status"] in ENDED:
            self.done.set()
        self.waiting = 0  # connections that wait for its answer
        self.task: asyncio.Task[None] | None = None
        self.ending: str | None = None  # how it is being ended: cancelled, superseded
        self.lock = asyncio.Lock()  # held while its router is opened
        self.trouble: str | None = None  # why its router cannot be opened
        self.children: dict[str, subprocess.Popen[bytes]] = {}  # by benchmark: what we started
        self.told: dict[str, int] = {}  # by benchmark: the last twentieth that was an event
        self._events: int | None = None  # lines of events.jsonl, once that was read
        self._counts: dict[Path, tuple[int, int]] = {}  # of growing files: bytes read, lines

    @classmethod
    def fresh(cls, folder: Path, request: dict[str, Any]) -> "Job":
        """A job that nobody has begun."""
        state = {
            "status": "queued",
            "created": now(),
            "finished": None,
            "delivered": None,
            "model": None,
            "benchmarks": {each["name"]: {"status": "queued"} for each in request["benchmarks"]},
        }
        return cls(folder, request, state)

    @classmethod
    def load(cls, folder: Path) -> "Job | None":
        """The job of a folder, or None where no request can be read; a state that is damaged is
        made again of what lies there."""
        request, state = worker.read(folder / "request.json"), worker.read(folder / "state.json")
        if not _whole_request(request):
            return None
        if not _whole_state(state, request):
            cli.say(f"{folder}/state.json is damaged; it is made again")
            return cls.fresh(folder, request)
        return cls(folder, request, state)

    @property
    def key(self) -> str:
        """What all attempts at one request have in common."""
        return self.id.partition(".")[0]

    @property
    def attempt(self) -> int:
        return int(self.id.partition(".")[2])

    @property
    def ended(self) -> bool:
        return self.done.is_set()

    @property
    def complete(self) -> bool:
        return self.state["status"] == "done"

    @property
    def pinned(self) -> bool:
        """Whether the weights have a name that no others have."""
        return bool(self.request["weight_version"] or self.request["checkpoint"])

    @property
    def failed_hard(self) -> bool:
        """Whether all or nothing was asked for, and not all is there."""
        return self.hard and not self.complete

    @property
    def hard(self) -> bool:
        return self.request["on_failure"] == "hard"

    def params(self, name: str) -> dict[str, Any]:
        """How a benchmark of this job is asked."""
        return next(each for each in self.request["benchmarks"] if each["name"] == name)

    def open_benchmarks(self) -> list[str]:
        """The benchmarks that have not ended."""
        states = self.state["benchmarks"].items()
        return [name for name, each in states if each["status"] not in ENDED]

    def save(self, **changes: Any) -> None:
        """Not flushed to the disk, so that nobody's blank waits for it: a machine that loses it
        makes it again of what the benchmarks left. For the same reason a full disk does not end
        the job."""
        self.state |= changes
        fresh = self.folder / "state.json.tmp"
        try:
            fresh.write_text(json.dumps(self.state) + "\n")
            os.replace(fresh, self.folder / "state.json")
        except OSError as error:
            cli.say(f"{self.id}: its state is not kept: {error.strerror}")

    def event(self, what: str, **facts: Any) -> None:
        """Append to events.jsonl; a line that a dead server left in half is cut first. One that
        has no room is left out."""
        try:
            with open(self.folder / "events.jsonl", "a+b", buffering=0) as file:
                if self._events is None:
                    file.seek(0)
                    whole = file.read()
                    file.truncate(whole.rfind(b"\n") + 1)
                    self._events = whole.count(b"\n")
                end = file.seek(0, os.SEEK_END)
                line = stream.dumps({"n": self._events, "at": now(), "event": what, **facts})
                if file.write(line + b"\n") < len(line) + 1:
                    file.truncate(end)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._events += 1
        except OSError as error:
            cli.say(f"{self.id}: the event {what!r} is not kept: {error.strerror}")

    def events(self, start: int) -> Iterator[bytes]:
        """The whole lines of events.jsonl that are there beyond byte `start`."""
        with contextlib.suppress(OSError), open(self.folder / "events.jsonl", "rb") as file:
            file.seek(start)
            for line in file:
                if line.endswith(b"\n"):
                    yield line

    def deliver(self) -> None:
        """Note that somebody has the result: the same request is a new attempt from here on."""
        if not self.state["delivered"]:
            self.save(delivered=now())
            self.event("delivered")

    def progress(self, name: str) -> dict[str, int | None]:
        """`{"done", "asked", "total"}` of a benchmark: graded answers, replies that came, and how
        many it will be (None: not known yet)."""
        folder = self.folder / name
        rows, prompts, total = folder / "rows.jsonl", folder / "prompts.jsonl", None
        if prompts.exists():
            total = self._lines(prompts) * self.params(name)["n_samples_per_eval_prompt"]
        return {
            "done": self._lines(rows if rows.exists() else folder / "rows.jsonl.tmp"),
            "asked": self._lines(folder / "journal/gen.jsonl"),
            "total": total,
        }

    def _lines(self, path: Path) -> int:
        """Lines of a growing file, each byte read once."""
        at, count = self._counts.get(path, (0, 0))
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < at:  # begun anew
                at = count = 0
            file.seek(at)
            while chunk := file.read(1 << 20):
                at, count = at + len(chunk), count + chunk.count(b"\n")
            self._counts[path] = at, count
        return count

    # What is said of it

    def brief(self) -> dict[str, Any]:
        """A line of GET /jobs."""
        return {
            "job_id": self.id,
            "run": self.request["run"],
            "rollout_id": self.request["rollout_id"],
            "status": self.state["status"],
            "created": self.state["created"],
            "finished": self.state["finished"],
            "delivered": self.state["delivered"],
            "benchmarks": {name: each["status"] for name, each in self.state["benchmarks"].items()},
        }

    def whole(self) -> dict[str, Any]:
        """What GET /jobs/ID says."""
        states = {
            name: each if self.ended else {**each, **self.progress(name)}
            for name, each in self.state["benchmarks"].items()
        }
        sampling = {
            each["name"]: {key: value for key, value in each.items() if key != "name"}
            for each in self.request["benchmarks"]
        }
        return {
            "job_id": self.id,
            **{key: value for key, value in self.request.items() if key != "benchmarks"},
            **self.state,
            "sampling": sampling,
            "benchmarks": states,
            "raw_metrics": self.metrics(),
            "waiting": self.waiting,
        }

    def metrics(self) -> dict[str, Any]:
        """raw_metrics: of each benchmark that ended its numbers, and how it went, as numbers
        too; below the prefix that was asked for, unless that is a benchmark's name."""
        found: dict[str, Any] = {
            metrics.word(name): {"delegate": {"ok": 0, **NOTHING, "unknown": 1}}
            for name in self.request["unknown"]
        }
        for name, each in self.state["benchmarks"].items():
            if each["status"] not in ENDED:
                continue
            delegate = {"ok": int(each["status"] == "done"), **each.get("delegate", {})}
            if each["status"] in ("cancelled", "superseded"):
                delegate[f"skipped_{each['status']}"] = 1
            found |= each.get("metrics") or {}
            found[name] = {**found.get(name, {}), "delegate": delegate}
        prefix = metrics.word(self.request["prefix"] or "")
        return {prefix: found} if prefix and prefix not in found else found

    def troubles(self) -> str:
        """What is missing of it, in one sentence."""
        missing = "; ".join(
            f"{name}: {each.get('error', each['status'])}"
            for name, each in self.state["benchmarks"].items()
            if each["status"] != "done"
        )
        return f"{self.id} is {self.state['status']}: {missing}"

    def warning(self) -> dict[str, str]:
        """What whoever asked should know of what was asked for, if anything."""
        notes = self.request["notes"]
        return {"warning": "; ".join(notes)} if notes else {}

    def answer(self) -> dict[str, Any]:
        """The body that /evaluate gives."""
        runs = [
            {
                "benchmark": name,
                "status": each["status"],
                "command": _command(name),
                "output_dir": str(self.folder / name),
                "log_path": str(self.folder / name / "log"),
                **({"error": each["error"]} if each.get("error") else {}),
            }
            for name, each in self.state["benchmarks"].items()
        ]
        return {
            "job_id": self.id,
            "status": self.state["status"],
            "command": "; ".join(run["command"] for run in runs),
            "output_dir": str(self.folder),
            "log_path": str(self.folder / "events.jsonl"),
            **self.warning(),
            "raw_metrics": self.metrics(),
            "runs": runs,
        }


def _command(name: str) -> str:
    """What a benchmark's worker runs, in short."""
    graded = "bench-grade | bench-summarize"
    stages = "deck-parse | .. | deck-score | run-summarize" if name == SLIDEV else graded
    return f"bench-prepare {name} | chat-generate | {stages}"


def _whole_request(request: dict[str, Any]) -> bool:
    try:
        names = [each["name"] for each in request["benchmarks"]]
        return (
            request.keys() >= REQUEST
            and isinstance(request["rollout_id"], int)
            and bool(request["router_urls"])
            and all(NAME.match(name) for name in names)
        )
    except (KeyError, TypeError):
        return False


def _whole_state(state: dict[str, Any], request: dict[str, Any]) -> bool:
    try:
        benchmarks = state["benchmarks"]
        statuses = [state["status"], *(each["status"] for each in benchmarks.values())]
        return (
            set(benchmarks) == {each["name"] for each in request["benchmarks"]}
            and all(status in STATUSES for status in statuses)
            and state.keys() >= {"finished", "delivered", "model"}
            and isinstance(state["created"], str)
        )
    except (KeyError, TypeError, AttributeError):
        return False
