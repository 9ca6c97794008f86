"""Jobs: what was asked, how far it is, what came of it, and where that is kept.

  ROOT/jobs.db                     requests and states
  ROOT/jobs/KEY.N/BENCHMARK/       {task,process,result,summary}.json prompts.jsonl rows.jsonl
                                   journal/ log

KEY is of the request, N counts its attempts.
"""

import asyncio
import contextlib
import math
import os
import re
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from decksmith.bench.evalserver.eval_client import ENDED
from decksmith.bench.evalserver.records import EvalAnswer, EvalRun
from decksmith.bench.evalserver.request import JobRequest, Params
from decksmith.bench.evalserver.worker import SLIDEV
from decksmith.core import cli, stream, web

# How a benchmark went that gave no numbers.
NOTHING: dict[str, float] = {"n_errors": 1, "seconds": 0.0, "coverage": 0.0}
SCHEMA = """CREATE TABLE IF NOT EXISTS jobs
  (id TEXT PRIMARY KEY, request TEXT NOT NULL, state TEXT NOT NULL)"""

Status = Literal["queued", "running", "done", "partial", "failed", "cancelled", "superseded"]
Ending = Literal["cancelled", "superseded"]
Modes = dict[str, dict[str, float]]  # {mode: {metric: number}}


class BenchmarkState(TypedDict):
    """How far a benchmark is."""

    status: Status
    started: NotRequired[str | None]
    finished: NotRequired[str]
    weights: NotRequired[str | None]  # which the routers had when it began
    delegate: NotRequired[dict[str, float]]  # how it went, in numbers
    metrics: NotRequired[dict[str, Modes]]  # by dataset
    error: NotRequired[str]


class JobState(TypedDict):
    """How far a job is; changed whole."""

    status: Status
    created: str
    finished: str | None
    delivered: str | None  # when somebody got the result
    model: str | None  # what the router calls it
    benchmarks: dict[str, BenchmarkState]
    weights: NotRequired[str | None]
    why: NotRequired[str]


def now() -> str:
    """The time as files and answers say it: ISO 8601 with milliseconds, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Store:
    """ROOT/jobs.db. One process has a root, from here until `close`. What was written survives
    kill -9 and a power cut. Raises as web.database does."""

    def __init__(self, root: Path) -> None:
        self.db = web.database(root / "jobs.db", SCHEMA, "eval-serve", "FULL")

    def jobs(self) -> Iterator[tuple[str, JobRequest, JobState]]:
        """(id, request, state) of each job, in the order in which they came."""
        for ident, *texts in self.db.execute("SELECT * FROM jobs ORDER BY rowid"):
            request, state = (stream.unsummed(text.encode()) for text in texts)
            if request and state:
                yield ident, cast(JobRequest, request), cast(JobState, state)
            else:
                cli.say(
                    f"{ident} is damaged in jobs.db; its folder stays, the same request is anew"
                )

    def put(self, ident: str, request: JobRequest, state: JobState) -> None:
        """Keep a job. Raises sqlite3.Error where it cannot be kept."""
        row = (ident, *(stream.summed(each).decode() for each in (request, state)))
        sql = "INSERT INTO jobs VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = ?"
        self.db.execute(sql, (*row, row[2]))

    def close(self) -> None:
        self.db.close()


class Job:
    """One request and what came of it. `request` never changes; `state` is kept at each change."""

    def __init__(
        self, store: Store, folder: Path, request: JobRequest, state: JobState | None = None
    ) -> None:
        self.store, self.folder, self.id, self.request = store, folder, folder.name, request
        # What all attempts at one request have in common, and which of them this is.
        self.key, _, number = self.id.partition(".")
        self.attempt = int(number)
        self.state: JobState = state or {
            "status": "queued",
            "created": now(),
            "finished": None,
            "delivered": None,
            "model": None,
            "benchmarks": {each["name"]: {"status": "queued"} for each in request["benchmarks"]},
        }
        self.done = asyncio.Event()
        if self.state["status"] in ENDED:
            self.done.set()
        self.waiting = 0  # connections that wait for its answer
        self.task: asyncio.Task[None] | None = None
        self.ending: Ending | None = None  # how it is being ended
        self.lock = asyncio.Lock()  # held while its router is opened
        self.trouble: str | None = None  # why its router cannot be opened
        self.children: dict[str, subprocess.Popen[bytes]] = {}  # by benchmark: what we started
        self._counts: dict[Path, tuple[int, int]] = {}  # of growing files: bytes read, lines

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
    def hard(self) -> bool:
        return self.request["on_failure"] == "hard"

    @property
    def failed_hard(self) -> bool:
        """Whether all or nothing was asked for, and not all is there."""
        return self.hard and not self.complete

    def params(self, name: str) -> Params:
        """How a benchmark of this job is asked."""
        return next(each for each in self.request["benchmarks"] if each["name"] == name)

    def open_benchmarks(self) -> list[str]:
        """The benchmarks that have not ended."""
        states = self.state["benchmarks"].items()
        return [name for name, each in states if each["status"] not in ENDED]

    def save(self) -> None:
        """Keep the state. A full disk does not end a job: it is made again of what the benchmarks
        left."""
        try:
            self.store.put(self.id, self.request, self.state)
        except sqlite3.Error as error:
            cli.say(f"{self.id}: its state is not kept: {error}")

    def deliver(self) -> None:
        """Note that somebody has the result: the same request is a new attempt from here on."""
        if not self.state["delivered"]:
            self.state["delivered"] = now()
            self.save()

    def progress(self, name: str) -> dict[str, int | None]:
        """Of a benchmark that runs: graded answers, replies that came, and how many it will be
        (None: not known yet)."""
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

    def brief(self) -> dict[str, object]:
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

    def full(self) -> dict[str, object]:
        """What GET /jobs/ID says."""
        states = {
            name: each if self.ended else {**each, **self.progress(name)}
            for name, each in self.state["benchmarks"].items()
        }
        sampling = {each["name"]: {**each} for each in self.request["benchmarks"]}
        for each in sampling.values():
            del each["name"]
        said = {"sampling": sampling, "benchmarks": states, "raw_metrics": self.metrics()}
        return {"job_id": self.id, **self.request, **self.state, **said, "waiting": self.waiting}

    def metrics(self) -> dict[str, object]:
        """raw_metrics: of each benchmark that ended its numbers, and how it went, as numbers
        too."""
        found: dict[str, object] = {
            word(name): {"delegate": {"ok": 0, **NOTHING, "unknown": 1}}
            for name in self.request["unknown"]
        }
        for name, each in self.state["benchmarks"].items():
            status = each["status"]
            if status not in ENDED:
                continue
            delegate = {"ok": int(status == "done"), **each.get("delegate", {})}
            if status in ("cancelled", "superseded"):
                delegate[f"skipped_{status}"] = 1
            numbers = each.get("metrics", {})
            found |= {**numbers, name: {**numbers.get(name, {}), "delegate": delegate}}
        return found

    def troubles(self) -> str:
        """What is missing of it, in one sentence."""
        states = self.state["benchmarks"].items()
        missing = {name: each for name, each in states if each["status"] != "done"}
        words = [f"{name}: {each.get('error', each['status'])}" for name, each in missing.items()]
        return f"{self.id} is {self.state['status']}: {'; '.join(words)}"

    def answer(self) -> EvalAnswer:
        """The body that /evaluate gives."""
        runs: list[EvalRun] = []
        for name, each in self.state["benchmarks"].items():
            folder = str(self.folder / name)
            runs.append({"benchmark": name, "status": each["status"], "output_dir": folder})
            if error := each.get("error"):
                runs[-1]["error"] = error
        answer: EvalAnswer = {
            "job_id": self.id,
            "status": self.state["status"],
            "raw_metrics": self.metrics(),
            "runs": runs,
        }
        if notes := self.request["notes"]:
            answer["warning"] = "; ".join(notes)
        return answer


# Numbers of a benchmark's summary


def word(text: str) -> str:
    """A name as a part of a metric's, in which blanks and slashes would part it."""
    return re.sub(r"[^\w.@+-]+", "_", text, flags=re.ASCII)


Reported = tuple[dict[str, Modes], float, int]


def reported(name: str, summary: dict[str, Any], samples: int) -> Reported:
    """(metrics as a trainer's log takes them, by dataset; the share of answers that were graded;
    how many were not). Of several k only the largest; shares from 0 to 1; what is not a number is
    left out. Raises what a summary that is damaged brings about."""
    return _decks(name, summary, samples) if name == SLIDEV else _graded(name, summary, samples)


def _decks(name: str, summary: dict[str, Any], samples: int) -> Reported:
    kinds = summary["faults"]["kinds"]
    not_the_models = sum(kinds[kind] for kind in ("renderer", "judge", "infra"))
    found = {**summary["means"]["renderable"], **summary["means"]["floor"]}
    means = {word(measure): value["mean"] for measure, value in found.items()}
    if "overall" in means:
        values = {"overall": means["overall"]}  # a curve follows what comes first
    else:  # with one sample a prompt, the mean of scoring.worth
        values = {"worth": (means.get("renders") or 0.0) * (means.get("checks") or 0.0)}
    values |= means
    values["num_entries"] = summary["prompts"]
    values["truncated"] = summary["truncated"] / summary["n"]
    mode = "pass@1" if samples == 1 else f"pass@1[avg-of-{samples}]"
    return {name: {mode: _numbers(values)}}, 1 - not_the_models / summary["n"], not_the_models


def _graded(name: str, summary: dict[str, Any], samples: int) -> Reported:
    metric = summary["metric"]
    keep = (metric, "std_err", "no_answer", "num_entries", "avg_tokens", "gen_seconds")
    first = next(iter(summary["modes"]))
    modes = {
        mode: _numbers({key: values.get(key) for key in keep})
        for mode, values in summary["modes"].items()
        if mode == first or mode.endswith(f"@{samples}")
    }
    modes[first] |= _numbers({"truncated": summary["truncated"]})
    found = {name: modes}
    for subset, subset_modes in summary["subsets"].items():
        values = {key: subset_modes[first][key] for key in (metric, "num_entries")}
        found[f"{name}-{word(subset)}"] = {first: _numbers(values)}
    return found, summary["coverage"] or 0.0, summary["errors"]["n"]


def _numbers(values: Mapping[str, object]) -> dict[str, float]:
    return {
        key: round(value, 4)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
