"""Serve evaluations to a training loop: a queue that survives, behind two doors.

`POST /evaluate` is the eval delegate of slime up to v0.2.1, of its old example on slime's head, and of miles: it blocks until all benchmarks
ran. `/jobs` is the same queue for everybody else. A job is a folder; each of its benchmarks is a process group of our scripts with its own
journals, which outlives the server: a server that starts again takes up what still runs, and starts only what nobody works on.

  ROOT/jobs/KEY.N/{request,state}.json  events.jsonl  BENCH/{task,process,result,summary}.json  prompts.jsonl  rows.jsonl  journal/  log
"""

import asyncio
import contextlib
import errno
import fcntl
import fnmatch
import ipaddress
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from decksmith.benchmarks import tasks as bench_tasks
from decksmith.core import cli, stream
from decksmith.evalserver import trainer, worker
from decksmith.evalserver.worker import SLIDEV

HEARTBEAT = 0.5  # seconds between blanks to whoever waits: each restarts the client's read timeout, and a second is the shortest there is
PATIENCE = 60.0  # seconds that a router may take to answer before its job fails
TRIES = 3  # starts of a benchmark whose process dies
GRACE = 5.0  # seconds between TERM and KILL
ENDED = ("done", "partial", "failed", "cancelled", "superseded")
# What a request may say of how a benchmark is asked, with the type, the least and the most. The first five are the protocol's own.
SAMPLING = {
    "n_samples_per_eval_prompt": (int, 1, 1024),
    "temperature": (float, 0, 100),
    "top_p": (float, 1e-9, 1),
    "top_k": (int, -1, 1 << 30),
    "max_response_len": (int, 1, 1 << 24),
    "seed": (int, 0, 1 << 31),
    "limit": (int, 0, 1 << 31),
}
KEYS = (
    "rollout_id",
    "router_url",
    "router_urls",
    "benchmarks",
    "defaults",
    "run",
    "model",
    "checkpoint",
    "weight_version",
    "on_failure",
    "supersede",
)
MILES = (
    "model_name",
    "api_base",
    "n_tasks",
    "n_concurrent",
    "dataset_path",
    "task_ids",
    "n_attempts",
    "metric_prefix",
)
NOTHING = {"n_errors": 1, "seconds": 0.0, "coverage": 0.0}
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\Z")
HOST = re.compile(r"[0-9A-Za-z._:%-]{1,253}\Z")
JOB = re.compile(r"[0-9a-f]{16}\.[1-9][0-9]{0,8}\Z")


@dataclass
class Settings:
    """What the server's owner decides. root: its folder. allow: routers beside those of this machine, as host names with * or networks.
    model: its name where the router lists none. limit: questions of each benchmark, 0 for all. jobs: benchmarks at once. requests: in
    flight for each. keep: finished jobs that keep their rows, None for all. key_env: the variable with the router's key."""

    root: Path
    allow: tuple = ()
    model: str | None = None
    limit: int = 0
    protocol: str = "offline"
    jobs: int = 2
    requests: int = 64
    keep: int | None = None
    key_env: str | None = None


# What is asked


def names():
    """The benchmarks that may be asked for."""
    return [name for name in bench_tasks.names() if "prompt" not in bench_tasks.load(name)]


def defaults(name, settings, n=None):
    """How a benchmark is asked unless the request says otherwise, in the protocol's words; `n`: samples, where they are said. One sample
    is asked at temperature 0, several at 0.7 and top-p 0.95, as `make bench` does; decks as the server's protocol says."""
    spec = bench_tasks.load(name)
    n = n or spec["samples"]
    if spec["grader"] == "deck":
        from decksmith.core.protocol import Protocol

        own = Protocol.load(settings.protocol).sampling
        own = {
            "max_response_len": own.get("max_tokens", 16384),
            **{key: own[key] for key in ("temperature", "top_p", "seed") if key in own},
        }
    else:
        own = {"max_response_len": spec.get("max_tokens", 8192)}
        own |= {"temperature": 0.7, "top_p": 0.95} if n > 1 else {"temperature": 0.0}
    return {
        "n_samples_per_eval_prompt": n,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "seed": 0,
        "limit": settings.limit,
        **own,
    }


async def wanted(body, settings, run=None):
    """A request as a job holds it: every key there, every URL looked at, every number explicit. `body`: an object with no keys but KEYS;
    `run`: what the header X-Run-Id said. Raises cli.BadData with one sentence for whoever asked."""
    body = {key: value for key, value in body.items() if value is not None}
    rollout = body.get("rollout_id")
    if isinstance(rollout, str) and re.fullmatch(
        r"[0-9]{1,15}", rollout
    ):  # as the first server did
        rollout = int(rollout)
    if "rollout_id" not in body:
        raise cli.BadData("rollout_id is missing: the trainer's step, a whole number")
    urls = body.get("router_urls", [body["router_url"]] if "router_url" in body else [])
    if not isinstance(urls, list) or not 1 <= len(urls) <= 256:
        raise cli.BadData(
            "router_url is missing: where the model is asked, http://HOST:PORT without /v1 (or a list of them as router_urls)"
        )
    given = body.get("benchmarks", [])
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise cli.BadData("benchmarks: not a list of objects")
    common = _sampling("defaults", body.get("defaults", {}))
    found = {
        "run": _text("run", body.get("run", run)),
        "rollout_id": _number("rollout_id", rollout, int, 0, 1 << 53),
        "router_urls": [
            await trusted(url, settings.allow) for url in dict.fromkeys(map(str, urls))
        ],
    }
    found |= {key: _text(key, body.get(key)) for key in ("model", "checkpoint", "weight_version")}
    for key, words in (("on_failure", ("soft", "hard")), ("supersede", ("newer", "none"))):
        if body.get(key) not in (None, *words):
            raise cli.BadData(f"{key}: {str(body[key])[:80]!r} is none of {', '.join(words)}")
        found[key] = body.get(key)
    known, chosen = names(), {}
    for each in given:
        name = each.get("name")
        if name not in known:
            raise cli.BadData(f"no benchmark {str(name)[:80]!r}; there are: {', '.join(known)}")
        if name in chosen:
            raise cli.BadData(f"{name} is there twice")
        said = common | _sampling(
            name, {key: value for key, value in each.items() if key != "name"}
        )
        chosen[name] = {
            "name": name,
            **defaults(name, settings, said.get("n_samples_per_eval_prompt")),
            **said,
        }
        if name == SLIDEV:
            chosen[name]["protocol"] = settings.protocol
    return {**found, "benchmarks": list(chosen.values())}


def _sampling(where, said):
    if not isinstance(said, dict):
        raise cli.BadData(f"{where}: not an object")
    if unknown := sorted(set(said) - set(SAMPLING)):
        raise cli.BadData(
            f"{where}: unknown key {', '.join(map(repr, unknown))[:200]}; there are: {', '.join(SAMPLING)}"
        )
    return {
        key: _number(f"{where}: {key}", value, *SAMPLING[key])
        for key, value in said.items()
        if value is not None
    }


def _number(where, value, kind, least, most):
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not least <= value <= most
        or kind is int
        and value != int(value)
    ):
        raise cli.BadData(
            f"{where}: {str(value)[:80]!r} is no {'whole ' * (kind is int)}number from {least:g} to {most:g}"
        )
    return kind(value)


def _text(where, value):
    if value is not None and (
        not isinstance(value, str) or not value or len(value) > 500 or not value.isprintable()
    ):
        raise cli.BadData(f"{where}: not a line of at most 500 characters")
    return value


async def trusted(url, allow):
    """The URL of a router as it will be asked: scheme, host and port, nothing else of what came. A host must be this machine, or stand in
    `allow`; one that was looked up is asked by its address, so that its name cannot mean another one later. Raises cli.BadData."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme]
        if (
            not HOST.match(host or "")
            or parts.username is not None
            or parts.query
            or parts.fragment
            or parts.path.rstrip("/") not in ("", "/v1")
        ):
            raise ValueError
    except (ValueError, KeyError):
        raise cli.BadData(f"router_url: {url[:200]!r} is not http://HOST:PORT") from None
    networks = []
    for pattern in allow:
        try:
            networks.append(ipaddress.ip_network(pattern))
        except ValueError:
            if fnmatch.fnmatchcase(host, pattern.lower()):
                return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        looked = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise cli.BadData(f"router_url: nobody knows the host {host[:200]!r}") from None
    addresses = sorted({entry[4][0] for entry in looked}, key=lambda address: ":" in address)
    if not all(
        any(ipaddress.ip_address(address) in network for network in networks) or _ours(address)
        for address in addresses
    ):
        raise cli.BadData(
            f"router_url: {host[:200]} is not this machine; eval-serve --allow {host[:200]} lets it be asked"
        )
    return f"{parts.scheme}://{f'[{addresses[0]}]' if ':' in addresses[0] else addresses[0]}:{port}"


def _ours(address):
    """Whether an address is this machine's own: what is sent there is sent from there."""
    with (
        contextlib.suppress(OSError),
        socket.socket(
            socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM
        ) as probe,
    ):
        probe.connect((address, 9))
        return probe.getsockname()[0] == address
    return False


# What is answered


def reported(name, summary, samples):
    """The metrics of one benchmark as a trainer's log takes them, `{dataset: {mode: {metric: number}}}`, and `(graded, errors)`, the share of
    answers that were and the number that were not. Of several k only the largest; shares from 0 to 1; what is not a number is left out."""
    if name == SLIDEV:
        theirs = sum(summary["faults"]["kinds"][kind] for kind in ("renderer", "judge", "infra"))
        values = {measure: value["mean"] for measure, value in summary["means"]["floor"].items()}
        values |= {
            "num_entries": summary["prompts"],
            **{key: summary[key] / summary["n"] for key in ("rendered", "truncated")},
        }
        return {name: {_mode(samples): _numbers(values)}}, (1 - theirs / summary["n"], theirs)
    keep = (summary["metric"], "std_err", "no_answer", "num_entries", "avg_tokens", "gen_seconds")
    modes = {
        mode: _numbers({key: value.get(key) for key in keep})
        for index, (mode, value) in enumerate(summary["modes"].items())
        if not index or mode.endswith(f"@{samples}")
    }
    first = next(iter(modes))
    modes[first] |= _numbers({"truncated": summary["truncated"]})
    found = {name: modes}
    for subset, values in summary["subsets"].items():
        found[f"{name}-{subset}"] = {
            first: _numbers({key: values[first][key] for key in (summary["metric"], "num_entries")})
        }
    return found, (summary["coverage"] or 0.0, summary["errors"]["n"])


def _mode(samples):
    return "pass@1" if samples == 1 else f"pass@1[avg-of-{samples}]"


def _numbers(values):
    return {
        key: round(value, 4)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _now():
    return datetime.now(UTC).isoformat(timespec="milliseconds")


# The queue


class Job:
    """One request and what came of it. `request` never changes; `state` is written whole at each change."""

    def __init__(self, folder, request, state):
        self.folder, self.id, self.request, self.state = folder, folder.name, request, state
        self.waiting, self.task, self.ending, self.lock = 0, None, None, asyncio.Lock()
        self.done, self.counts, self.children, self.told = asyncio.Event(), {}, {}, {}
        if state["status"] in ENDED:
            self.done.set()
        self.events = self.trouble = None

    @classmethod
    def fresh(cls, folder, request):
        benchmarks = {each["name"]: {"status": "queued"} for each in request["benchmarks"]}
        return cls(
            folder,
            request,
            {
                "status": "queued",
                "created": _now(),
                "finished": None,
                "delivered": None,
                "model": None,
                "benchmarks": benchmarks,
            },
        )

    @classmethod
    def load(cls, folder):
        """The job of a folder, or None where no request can be read; a state that is damaged is made again of what lies there."""
        request, state = worker.read(folder / "request.json"), worker.read(folder / "state.json")
        try:
            planned = {each["name"] for each in request["benchmarks"]}
            assert {*KEYS, "door"} - {"router_url", "defaults"} <= set(request)
            assert (
                isinstance(request["rollout_id"], int)
                and request["router_urls"]
                and all(map(NAME.match, planned))
            )
        except (KeyError, TypeError, AssertionError):
            return None
        try:
            assert (
                state["status"] in (*ENDED, "queued", "running")
                and set(state["benchmarks"]) == planned
            )
            assert all(
                each["status"] in (*ENDED, "queued", "running")
                for each in state["benchmarks"].values()
            )
            assert {"created", "finished", "delivered", "model"} <= set(state) and isinstance(
                state["created"], str
            )
        except (KeyError, TypeError, AssertionError):
            cli.say(f"{folder}/state.json is damaged; it is made again")
            return cls.fresh(folder, request)
        return cls(folder, request, state)

    @property
    def ended(self):
        return self.done.is_set()

    @property
    def pinned(self):
        return bool(self.request["weight_version"] or self.request["checkpoint"])

    @property
    def hard(self):
        return self.request["on_failure"] == "hard"

    def save(self, **changes):
        """Not flushed to the disk, so that nobody's blank waits for it: a machine that loses it makes it again of what the benchmarks left.
        For the same reason a full disk does not end the job."""
        self.state |= changes
        fresh = self.folder / "state.json.tmp"
        try:
            fresh.write_text(json.dumps(self.state) + "\n")
            os.replace(fresh, self.folder / "state.json")
        except OSError as error:
            cli.say(f"{self.id}: its state is not kept: {error.strerror}")

    def event(self, what, **facts):
        """Append to events.jsonl; a line that a dead server left in half is cut first. One that has no room is left out."""
        try:
            with open(self.folder / "events.jsonl", "a+b", buffering=0) as file:
                if self.events is None:
                    file.seek(0)
                    whole = file.read()
                    file.truncate(whole.rfind(b"\n") + 1)
                    self.events = whole.count(b"\n")
                end, line = (
                    file.seek(0, os.SEEK_END),
                    stream.dumps({"n": self.events, "at": _now(), "event": what, **facts}) + b"\n",
                )
                if file.write(line) < len(line):
                    file.truncate(end)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self.events += 1
        except OSError as error:
            cli.say(f"{self.id}: the event {what!r} is not kept: {error.strerror}")

    def progress(self, name):
        """`{"done", "asked", "total"}` of a benchmark: graded answers, replies that came, and how many it will be (None: not known yet)."""
        folder, params = (
            self.folder / name,
            next(each for each in self.request["benchmarks"] if each["name"] == name),
        )
        rows = folder / "rows.jsonl"
        questions = (
            self._lines(folder / "prompts.jsonl") if (folder / "prompts.jsonl").exists() else None
        )
        return {
            "done": self._lines(rows if rows.exists() else folder / "rows.jsonl.tmp"),
            "asked": self._lines(folder / "journal/gen.jsonl"),
            "total": questions and questions * params["n_samples_per_eval_prompt"],
        }

    def _lines(self, path):
        """Lines of a growing file, each byte read once."""
        at, count = self.counts.get(path, (0, 0))
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < at:  # begun anew
                at = count = 0
            file.seek(at)
            while chunk := file.read(1 << 20):
                at, count = at + len(chunk), count + chunk.count(b"\n")
            self.counts[path] = at, count
        return count

    def brief(self):
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

    def whole(self):
        progress = {
            name: {**each, **({} if self.ended else self.progress(name))}
            for name, each in self.state["benchmarks"].items()
        }
        return {
            "job_id": self.id,
            **{key: value for key, value in self.request.items() if key != "benchmarks"},
            **self.state,
            "sampling": {
                each["name"]: {key: value for key, value in each.items() if key != "name"}
                for each in self.request["benchmarks"]
            },
            "benchmarks": progress,
            "raw_metrics": self.metrics(),
            "waiting": self.waiting,
        }

    def metrics(self):
        """raw_metrics: of each benchmark that ended its numbers, and how it went, as numbers too."""
        found = {}
        for name, each in self.state["benchmarks"].items():
            if each["status"] in ENDED:
                found |= each.get("metrics") or {}
                found[name] = {
                    **found.get(name, {}),
                    "delegate": {"ok": int(each["status"] == "done"), **each.get("delegate", {})},
                }
                if each["status"] in ("cancelled", "superseded"):
                    found[name]["delegate"][f"skipped_{each['status']}"] = 1
        return found

    def troubles(self):
        return f"{self.id} is {self.state['status']}: " + "; ".join(
            f"{name}: {each.get('error', each['status'])}"
            for name, each in self.state["benchmarks"].items()
            if each["status"] != "done"
        )

    def answer(self):
        """The body that /evaluate gives."""
        runs = [
            {
                "benchmark": name,
                "status": each["status"],
                "command": _said(name),
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
            "raw_metrics": self.metrics(),
            "runs": runs,
        }


def _said(name):
    stages = (
        "deck-parse | .. | deck-score | run-summarize"
        if name == SLIDEV
        else "bench-grade | bench-summarize"
    )
    return f"bench-prepare {name} | chat-generate | {stages}"


@dataclass
class Queue:
    """All jobs of a root. One process holds a root: the lock is taken here. Raises cli.TryAgain when another one has it."""

    settings: Settings
    jobs: dict = field(default_factory=dict)  # by id, in the order in which they came
    latest: dict = field(default_factory=dict)  # by key, the last attempt

    def __post_init__(self):
        self.root = Path(self.settings.root).resolve()
        self.folder = self.root / "jobs"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.held = open(self.root / "lock", "a")
        try:
            fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise cli.TryAgain(
                f"{self.root}: another eval-serve has this folder; give another with --root"
            ) from None
        self.slots, self.admission, self.session = (
            asyncio.Semaphore(self.settings.jobs),
            asyncio.Lock(),
            None,
        )
        self.unbroken = set()
        loaded = []
        for folder in self.folder.iterdir():
            if JOB.match(folder.name):
                if job := Job.load(folder):
                    loaded.append(job)
                else:
                    with contextlib.suppress(OSError):
                        folder.rmdir()  # its server was killed before it wrote anything
                        continue
                    cli.say(f"{folder}: no request in it that can be read; it is left alone")
        for job in sorted(loaded, key=lambda job: (job.state["created"], job.id)):
            self._add(job)

    def _add(self, job):
        self.jobs[job.id] = job
        key, _, attempt = job.id.partition(".")
        if key not in self.latest or int(self.latest[key].id.partition(".")[2]) < int(attempt):
            self.latest[key] = job

    async def __aenter__(self):
        import aiohttp

        self.session = aiohttp.ClientSession(
            trust_env=False, timeout=aiohttp.ClientTimeout(total=5)
        )
        going = [job for job in self.jobs.values() if not job.ended]
        for job in going:
            job.task = asyncio.create_task(self._run(job))
        if going:
            cli.say(f"{len(going)} unfinished jobs are taken up")
        return self

    async def __aexit__(self, *_):
        await asyncio.gather(*self.unbroken, return_exceptions=True)
        tasks = [job.task for job in self.jobs.values() if job.task and not job.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.session.close()
        left = [
            job.folder / name
            for job in self.jobs.values()
            if not job.ended
            for name in job.state["benchmarks"]
            if worker.busy(job.folder / name)
        ]
        if left:
            cli.say(
                f"{len(left)} benchmarks go on by themselves; the next eval-serve takes them up"
            )
        self.held.close()

    # Coming in

    async def submit(self, body, *, run=None, door="jobs"):
        """`(job, created)` for a request. One that was asked before and whose result nobody has got yet is joined; so is one of pinned
        weights that is complete. Raises cli.BadData. It is done to its end whatever happens to whoever asked."""
        return await self._whole(self._submit(body, run, door))

    async def stop(self, job, word, why=None):
        """End a job and everything that works for it. `word`: cancelled or superseded."""
        await self._whole(self._stop(job, word, why))

    async def _whole(self, work):
        task = asyncio.create_task(work)
        self.unbroken.add(task)
        task.add_done_callback(self.unbroken.discard)
        return await asyncio.shield(task)

    async def _submit(self, body, run, door):
        asked = await wanted(body, self.settings, run)
        key = stream.fingerprint(
            {name: value for name, value in asked.items() if name != "supersede"}
        )[:16]
        async with self.admission:
            if job := self.latest.get(key):
                complete, over = (
                    job.state["status"] == "done",
                    job.state["delivered"] or job.state["status"] == "cancelled" and door == "jobs",
                )
                if (complete and job.pinned) if over else not await self._moved(job):
                    job.event("joined", door=door)
                    return job, False
                if over and not complete and (job.pinned or job.hard):
                    self._reopen(job)
                    return job, False
                await self._stop(job, "superseded", "the router's weights are others now")
            await self._supersede(asked, door)
            attempt = int(job.id.partition(".")[2]) if job else 0
            try:
                while True:  # what lies there unread keeps its number
                    attempt += 1
                    with contextlib.suppress(FileExistsError):
                        (self.folder / f"{key}.{attempt}").mkdir()
                        break
                job = Job.fresh(self.folder / f"{key}.{attempt}", {**asked, "door": door})
                await asyncio.to_thread(
                    stream.write,
                    job.folder / "request.json",
                    json.dumps(job.request, indent=2, ensure_ascii=False) + "\n",
                )
                job.save()
                job.event("queued", door=door)
            except OSError as error:
                shutil.rmtree(
                    self.folder / f"{key}.{attempt}", ignore_errors=True
                )  # what was refused is not run by the next server
                raise cli.TryAgain(
                    f"the job cannot be kept: {self.folder}: {error.strerror}"
                ) from None
            self._add(job)
            job.task = asyncio.create_task(self._run(job))
            return job, True

    async def _moved(self, job):
        """Whether the weights are known to be others than those that the job began with."""
        if job.pinned or not (then := job.state.get("weights")):
            return False
        now = await self._weights(job, seconds=0.5)
        return now is not None and now != then

    async def _supersede(self, asked, door):
        mode = asked["supersede"] or ("idle" if door == "evaluate" else "none")
        if asked["run"] is None or mode == "none":
            return
        for other in [job for job in self.jobs.values() if not job.ended]:
            older = (
                other.request["run"] == asked["run"]
                and other.request["rollout_id"] < asked["rollout_id"]
            )
            if older and (
                mode == "newer" or other.request["door"] == "evaluate" and not other.waiting
            ):
                await self._stop(
                    other, "superseded", f"rollout {asked['rollout_id']} of {asked['run']} came"
                )

    def _reopen(self, job):
        for name, each in job.state["benchmarks"].items():
            if each["status"] != "done":
                for file in ("result.json", "rows.jsonl", "summary.json"):
                    (job.folder / name / file).unlink(missing_ok=True)
                job.state["benchmarks"][name] = {"status": "queued"}
        job.save(status="queued", finished=None, delivered=None, model=None, bare=False)
        job.done.clear()
        job.event("reopened")
        job.ending, job.trouble, job.task = None, None, asyncio.create_task(self._run(job))

    # At work

    async def _run(self, job):
        await asyncio.gather(
            *(
                self._guarded(job, name)
                for name, each in job.state["benchmarks"].items()
                if each["status"] not in ENDED
            )
        )
        self._end(job)

    async def _guarded(self, job, name):
        try:
            await self._measure(job, name)
        except (
            Exception
        ) as error:  # a full disk, a folder taken away: whoever waits is told, and the others go on
            import traceback

            traceback.print_exc()
            await self._kill(job, name)
            job.state["benchmarks"][name] = {
                "status": "failed",
                "error": f"eval-serve: {error!r}"[:300],
                "delegate": dict(NOTHING),
            }

    def _end(self, job, word=None, why=None):
        statuses = Counter(each["status"] for each in job.state["benchmarks"].values())
        status = word or (
            "done"
            if set(statuses) <= {"done"}
            else "partial"
            if statuses["done"] or statuses["partial"]
            else "failed"
        )
        with contextlib.suppress(OSError):
            job.save(status=status, finished=_now(), **({"why": why} if why else {}))
            job.event("ended", status=status, **({"why": why} if why else {}))
        job.done.set()
        self._forget()

    def _forget(self):
        """Beyond the newest `keep` finished jobs only what they were asked and what came of it stays."""
        if self.settings.keep is None:
            return
        ended = [job for job in self.jobs.values() if job.ended and not job.state.get("bare")]
        for job in ended[: max(0, len(ended) - self.settings.keep)]:
            for name in job.state["benchmarks"]:
                shutil.rmtree(job.folder / name, ignore_errors=True)
            job.save(bare=True)

    async def _measure(self, job, name):
        """One benchmark from its turn to its numbers. Whoever works on it already is waited for."""
        folder = job.folder / name
        async with self.slots:
            starts = 0
            while not (found := worker.read(folder / "result.json")):
                child = job.children.get(name)
                if (
                    (child is None or child.poll() is not None)
                    and not worker.busy(folder)
                    and not worker.read(folder / "result.json")
                ):
                    if starts == TRIES:
                        found = {
                            "error": f"its process was killed {TRIES} times: {worker.last_words(folder / 'log')}"
                        }
                        break
                    async with job.lock:
                        if not job.state["model"] and not job.trouble:
                            job.trouble = await self._open(job)
                    if job.trouble:
                        found = {"error": job.trouble}
                        break
                    if job.state["benchmarks"][name]["status"] == "queued":
                        job.state["benchmarks"][name] = {
                            "status": "running",
                            "started": _now(),
                            "weights": await self._weights(job),
                        }
                        job.save(status="running")
                        job.event("started", benchmark=name)
                    starts += 1
                    self._start(job, name)
                await asyncio.sleep(0.2)
                self._tell(job, name)
            if child := job.children.pop(name, None):
                child.poll()
            weights = await self._weights(job)
            self._measured(job, name, found, weights)

    def _start(self, job, name):
        folder = job.folder / name
        folder.mkdir(exist_ok=True)
        params = next(each for each in job.request["benchmarks"] if each["name"] == name)
        ask = [
            f"--slug={job.state['model']}",
            *(f"--base-url={url}/v1" for url in job.request["router_urls"]),
            f"--samples={params['n_samples_per_eval_prompt']}",
            f"--temperature={params['temperature']}",
            f"--top-p={params['top_p']}",
            f"--max-tokens={params['max_response_len']}",
            f"--seed={params['seed']}",
            f"--jobs={self.settings.requests}",
        ]
        ask += [f"--top-k={params['top_k']}"] if params["top_k"] > 0 else []
        ask += [f"--key-env={self.settings.key_env}"] if self.settings.key_env else []
        images = (
            {"IMAGES": os.environ["DECKSMITH_IMAGES"]} if "DECKSMITH_IMAGES" in os.environ else {}
        )
        stream.write(
            folder / "task.json", json.dumps({**params, "ask": ask, **images}, indent=2) + "\n"
        )
        direct = ",".join(
            [
                os.environ.get("no_proxy", ""),
                *{urlsplit(url).hostname for url in job.request["router_urls"]},
            ]
        ).strip(",")
        with open(folder / "log", "ab") as log:
            job.children[name] = subprocess.Popen(
                [sys.executable, "-m", "decksmith.evalserver.worker", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cli.ROOT,
                env={**os.environ, "no_proxy": direct, "NO_PROXY": direct},
                start_new_session=True,
            )

    def _tell(self, job, name):
        """An event for each twentieth that is done."""
        progress = job.progress(name)
        step = progress["total"] and 20 * progress["done"] // progress["total"]
        if step and step != job.told.get(name, 0):
            job.told[name] = step
            job.event("progress", benchmark=name, **progress)

    def _measured(self, job, name, found, weights=None):
        before, params = (
            job.state["benchmarks"][name],
            next(each for each in job.request["benchmarks"] if each["name"] == name),
        )
        metrics, coverage, errors, error = {}, 0.0, 1, found.get("error")
        summary = worker.read(job.folder / name / "summary.json") if not error else {}
        if not error:
            try:
                summary = summary if name == SLIDEV else summary[name]
                metrics, (coverage, errors) = reported(
                    name, summary, params["n_samples_per_eval_prompt"]
                )
                classes = (summary.get("errors") or summary.get("faults"))["classes"]
                theirs = [each for each in classes if name != SLIDEV or each["kind"] != "model"]
                error = (
                    "; ".join(
                        f"{each['n']} x {each['stage']} {each['class']}" for each in theirs[:3]
                    )
                    or None
                )
            except (
                KeyError,
                TypeError,
                AttributeError,
                StopIteration,
                ValueError,
                ArithmeticError,
            ) as wrong:
                error = f"its summary is damaged: {wrong!r}"
        status = "done" if coverage == 1 else "partial" if coverage else "failed"
        told = {
            "n_errors": errors,
            "seconds": found.get("seconds", 0.0),
            "coverage": round(coverage, 4),
        }
        first = before.get("weights")
        if first is not None and weights is not None:
            told["weights_changed"] = int(first != weights)
        job.state["benchmarks"][name] = {
            "status": status,
            "started": before.get("started"),
            "finished": _now(),
            "weights": first,
            "delegate": told,
            "metrics": metrics,
            **({"error": error} if error else {}),
        }
        job.save()
        job.event(
            "finished", benchmark=name, status=status, **told, **({"error": error} if error else {})
        )

    # The router

    async def _get(self, url, path, seconds=5.0):
        """A JSON object that a router gives, or None where it has no such path. Raises OSError, ValueError and aiohttp's errors. It is not
        followed elsewhere: only its own host was looked at."""
        import aiohttp

        key = os.environ.get(self.settings.key_env or "")
        async with self.session.get(
            url + path,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=seconds),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        ) as reply:
            if reply.status != 200:
                if reply.status >= 500:
                    raise ValueError(f"HTTP {reply.status}")
                return None
            said = b""
            async for chunk in reply.content.iter_chunked(1 << 16):
                said += chunk
                if len(said) > 1 << 20:
                    raise ValueError("an answer of more than a megabyte")
            found = json.loads(said)
            return found if isinstance(found, dict) else None

    async def _open(self, job):
        """Find out what the model is called and which weights it has; None, or what is wrong once a minute has not mended it."""
        import aiohttp

        url, until, seen = job.request["router_urls"][0], time.monotonic() + PATIENCE, ""
        while time.monotonic() < until:
            try:
                called, own = [], self.settings.model
                if not (model := job.request["model"]):
                    listed = ((await self._get(url, "/v1/models")) or {}).get("data") or []
                    called = [
                        name
                        for entry in listed
                        if isinstance(name := entry.get("id"), str)
                        and name.isprintable()
                        and 0 < len(name) <= 500
                    ]
                    model = own if own in called or not called else called[0]
                if model is None:
                    return (
                        f"{url} lists no model; name it with eval-serve --model, or in the request"
                    )
                job.save(model=model, weights=await self._weights(job))
                job.event("opened", model=model, listed=called[:20])
                return None
            except (
                aiohttp.ClientError,
                OSError,
                ValueError,
                AttributeError,
                TypeError,
                RecursionError,
            ) as error:
                seen = str(error) or type(error).__name__
            await asyncio.sleep(1)
        return f"{url} did not answer for {PATIENCE:.0f} s: {seen}"[:300]

    async def _weights(self, job, seconds=2.0):
        """The weight_version that the routers say they serve (sglang), one text for all of them; None where one does not say."""
        import aiohttp

        async def one(url):
            with contextlib.suppress(aiohttp.ClientError, OSError, ValueError, RecursionError):
                for path in ("/model_info", "/get_model_info"):
                    if (
                        said := ((await self._get(url, path, seconds)) or {}).get("weight_version")
                    ) is not None:
                        return str(said)[:200]

        found = await asyncio.gather(*map(one, job.request["router_urls"]))
        return None if None in found else ", ".join(dict.fromkeys(found))

    # Ending

    async def _stop(self, job, word, why):
        if job.ended or job.ending:
            return
        job.ending = word
        if job.task:
            job.task.cancel()
            await asyncio.gather(job.task, return_exceptions=True)
        if job.ended:  # it ended while we asked
            return
        open_ = [
            name for name, each in job.state["benchmarks"].items() if each["status"] not in ENDED
        ]
        await asyncio.gather(*(self._kill(job, name) for name in open_))
        for name in open_:
            job.state["benchmarks"][name] |= {
                "status": word,
                "finished": _now(),
                "delegate": NOTHING | {"n_errors": 0},
            }
        self._end(job, word, why)

    async def _kill(self, job, name):
        folder, child = job.folder / name, job.children.pop(name, None)
        for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
            until = time.monotonic() + patience
            if child and child.poll() is None:  # perhaps so young that it has not said who it is
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, number)
            elif worker.busy(folder):
                worker.send(folder, number)
            while time.monotonic() < until:
                if not worker.busy(folder) and (child is None or child.poll() is not None):
                    return
                await asyncio.sleep(0.05)
        cli.say(f"{folder}: somebody still works there, and does not end")

    async def end_all(self):
        """Ctrl-C: nobody works on when we are gone. Nothing is lost by it; the next server goes on from the journals."""
        for job in self.jobs.values():
            if job.task and not job.task.done():
                job.task.cancel()
        await asyncio.gather(
            *(
                self._kill(job, name)
                for job in self.jobs.values()
                if not job.ended
                for name in job.state["benchmarks"]
            )
        )


# HTTP


def application(queue, token):
    """The aiohttp application of a queue."""
    from aiohttp import web as http

    from decksmith.core import web

    app = web.application(token=token)
    route = app.router

    async def body(request, *keys):
        return await web.asked(request, **dict.fromkeys(keys, object))

    def job_of(request):
        if (job := queue.jobs.get(request.match_info["id"])) is None:
            raise http.HTTPNotFound(text="there is no such job")
        return job

    def miles(asked):
        """The request of miles' asynchronous protocol in our words: `metric_prefix` names the benchmark. How many requests are in flight is
        ours to say; a path of a request is opened by nobody."""
        if wrong := [key for key in ("dataset_path", "task_ids") if asked.get(key) is not None]:
            raise cli.BadData(f"{wrong[0]}: not taken together with api_base")
        name = str(asked.get("metric_prefix") or "").removeprefix("eval/")
        return {
            "rollout_id": 0,
            "router_url": asked.get("api_base"),
            "model": asked.get("model_name"),
            "benchmarks": [
                {
                    "name": name,
                    "limit": asked.get("n_tasks"),
                    "n_samples_per_eval_prompt": asked.get("n_attempts"),
                }
            ],
        }

    async def health(request):
        return http.json_response({"status": "ok"})

    async def evaluate(request):
        if b'"api_base"' in await request.read():
            asked = await body(request, *MILES)
            job, _ = await queue.submit(miles(asked), run=request.headers.get("X-Run-Id"))
            return http.json_response(
                {"job_id": job.id, "status": "queued", "status_url": f"/status/{job.id}"}
            )
        asked = await body(request, *KEYS)
        if asked.get("benchmarks") == []:
            return http.json_response(
                {
                    "job_id": None,
                    "warning": "no benchmarks were asked for",
                    "raw_metrics": {},
                    "runs": [],
                }
            )
        job, _ = await queue.submit(asked, run=request.headers.get("X-Run-Id"), door="evaluate")
        return await answered(request, job)

    def delivered(job):
        if not job.state["delivered"]:
            job.save(delivered=_now())
            job.event("delivered")

    async def answered(request, job):
        """The job's result as soon as it is there; until then blanks, which JSON allows in front."""
        response = None
        job.waiting += 1
        try:
            while not job.ended:
                try:
                    await asyncio.wait_for(job.done.wait(), HEARTBEAT)
                except TimeoutError:
                    if response is None:
                        response = http.StreamResponse(headers={"Content-Type": "application/json"})
                        await response.prepare(request)
                    await response.write(b" ")
            said, bad = job.answer(), job.hard and job.state["status"] != "done"
            if (
                bad and response is not None
            ):  # it has 200 on it already: cut, and whoever asks again gets the 500
                request.transport.abort()
                return response
            if bad:
                said = {"error": job.troubles(), **said}
            if response is None:
                response = http.StreamResponse(
                    status=500 if bad else 200, headers={"Content-Type": "application/json"}
                )
                await response.prepare(request)
            await response.write(
                json.dumps(said, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
            )
            await response.write_eof()
            if request.transport is not None and not request.transport.is_closing():
                delivered(job)
            return response
        except (
            asyncio.CancelledError
        ):  # we end, or the client has gone: never a last chunk behind half an answer
            if request.transport is not None:
                request.transport.abort()
            raise
        finally:
            job.waiting -= 1

    async def submit(request):
        job, created = await queue.submit(
            await body(request, *KEYS), run=request.headers.get("X-Run-Id")
        )
        return http.json_response(
            {"job_id": job.id, "status": job.state["status"], "created": created}, status=202
        )

    async def listed(request):
        run, status = request.query.get("run"), request.query.get("status")
        found = [
            job
            for job in reversed(queue.jobs.values())
            if run in (None, job.request["run"]) and status in (None, job.state["status"])
        ]
        return http.json_response(
            {"jobs": [job.brief() for job in found[:1000]], "total": len(found)}
        )

    async def shown(request):
        return http.json_response(job_of(request).whole())

    async def result(request):
        return await answered(request, job_of(request))

    async def status(request):
        """In the words of miles' asynchronous protocol."""
        job = job_of(request)
        if not job.ended:
            return http.json_response({"job_id": job.id, "status": job.state["status"]})
        delivered(job)
        if job.hard and job.state["status"] != "done":
            return http.json_response(
                {"job_id": job.id, "status": "failed", "error": job.troubles()}
            )
        return http.json_response(
            {"job_id": job.id, "status": "completed", "raw_metrics": job.metrics()}
        )

    async def cancel(request):
        job = job_of(request)
        await queue.stop(job, "cancelled")
        return http.json_response({"job_id": job.id, "status": job.state["status"]})

    async def events(request):
        job, start = job_of(request), request.query.get("from", "0")
        if not re.fullmatch(r"[0-9]{1,9}", start):
            raise http.HTTPBadRequest(text="from: not a whole number")
        start, follow = int(start), request.query.get("follow") == "1"
        response = http.StreamResponse(headers={"Content-Type": "application/jsonl"})
        await response.prepare(request)
        number = at = 0
        while True:
            ended = job.ended  # before the look, so that nothing that came between is missed
            lines = b""
            with contextlib.suppress(OSError), open(job.folder / "events.jsonl", "rb") as file:
                file.seek(at)
                lines = file.read()
            whole = lines[: lines.rfind(b"\n") + 1]
            at += len(whole)
            for line in whole.splitlines(keepends=True):
                if number >= start:
                    await response.write(line)
                number += 1
            if ended or not follow:
                await response.write_eof()
                return response
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(job.done.wait(), HEARTBEAT)
            await response.write(b" ")

    async def benchmarks(request):
        found = []
        for name in names():
            spec = bench_tasks.load(name)
            found.append(
                {
                    "name": name,
                    "title": spec["title"],
                    "grader": spec["grader"],
                    "metric": spec["metric"],
                    "ready": lacks(name) is None,
                    "defaults": defaults(name, queue.settings),
                }
            )
        return http.json_response({"benchmarks": found})

    def lacks(name):
        """What a benchmark lacks here, or None."""
        spec = bench_tasks.load(name)
        kept = Path(os.environ.get("DECKSMITH_BENCH") or cli.ROOT / "data" / "bench")
        if spec["kind"] == "hub" and not (kept / name / "card.json").is_file():
            return f"its rows are not here: bench-prepare {name} > /dev/null"
        if "judge" in spec:
            from decksmith.models import registry

            entry = registry.models().get(spec["judge"]["model"])
            if entry is None or entry.key_env and not os.environ.get(entry.key_env):
                return f"its judge: {'set ' + entry.key_env if entry else 'no model of that name in assets/models.toml'}"
        return None

    async def ready(request):
        asked = [name for name in request.query.get("benchmarks", "").split(",") if name]
        if unknown := [name for name in asked if name not in names()]:
            raise http.HTTPBadRequest(
                text=f"no benchmark {unknown[0][:80]!r}; there are: {', '.join(names())}"
            )
        free = shutil.disk_usage(queue.root).free
        wrong = {name: lack for name in asked or names() if (lack := lacks(name))}
        good = free >= 1 << 30 and not (asked and wrong)
        return http.json_response(
            {
                "ready": good,
                "disk_free": free,
                "lacking": wrong,
                "jobs": Counter(job.state["status"] for job in queue.jobs.values()),
            },
            status=200 if good else 503,
        )

    route.add_get("/health", health)
    route.add_post("/evaluate", evaluate)
    route.add_post("/jobs", submit)
    route.add_get("/jobs", listed)
    route.add_get("/jobs/{id}", shown)
    route.add_get("/jobs/{id}/result", result)
    route.add_get("/jobs/{id}/events", events)
    route.add_post("/jobs/{id}/cancel", cancel)
    route.add_get("/status/{id}", status)
    route.add_get("/benchmarks", benchmarks)
    route.add_get("/ready", ready)
    return app


def secret(root):
    """The server's token: DECKSMITH_EVAL_TOKEN, else the one of ROOT/token, which is made once, so that clients survive a restart; to be
    called by whoever has the root's lock. Raises cli.BadConfig for a file that cannot be read."""
    if given := os.environ.pop("DECKSMITH_EVAL_TOKEN", ""):
        return given
    import secrets

    path = Path(root) / "token"
    try:
        if path.exists() and path.stat().st_mode & 0o077:
            path.chmod(0o600)
            cli.say(
                f"{path}: others could read the token, now they cannot; to have a new one, remove the file and start again"
            )
        if token := path.read_text().strip() if path.exists() else "":
            return token
        token, fresh = secrets.token_urlsafe(32), path.with_name("token.tmp")
        fresh.unlink(missing_ok=True)
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token)
        os.replace(
            fresh, path
        )  # never there in half: a server without a token would refuse everybody
        return token
    except (OSError, ValueError) as error:
        raise cli.BadConfig(
            f"{path}: no token can be kept there: {getattr(error, 'strerror', error)}"
        ) from None


def serve(settings, *, address, host="127.0.0.1", port=0):
    """Serve until SIGTERM (benchmarks go on by themselves) or Ctrl-C (they are ended). Without a port it takes the one that it had last
    time, so that clients find it again after a restart. Raises cli.TryAgain for a root that another server has, cli.BadConfig for a
    protocol, a benchmark or a key that is not there."""
    from decksmith.core import web

    root = Path(settings.root)
    if settings.key_env and not os.environ.get(settings.key_env):
        raise cli.BadConfig(
            f"the router's key: set {settings.key_env} in the environment or in .env"
        )
    for (
        name
    ) in names():  # what is wrong with them is said now, and none is read while somebody waits
        defaults(name, settings)
    port = port or _last_port(root, host)

    @contextlib.asynccontextmanager
    async def make(url):
        queue = Queue(settings)
        token = secret(root)
        async with queue:
            loop = asyncio.get_running_loop()

            def interrupted():
                cli.say("ending the benchmarks; the next eval-serve goes on from what they have")
                queue.unbroken.add(ending := loop.create_task(queue.end_all()))
                ending.add_done_callback(lambda _: signal.raise_signal(signal.SIGTERM))

            loop.add_signal_handler(signal.SIGINT, interrupted)
            stream.write(root / "port", url.rpartition(":")[2])
            facts = {
                "url": url,
                "token": token,
                "job": os.environ.get("SLURM_JOB_ID"),
                "host": socket.gethostname(),
            }
            with web.announced(Path(address), facts):
                cli.say(f"{url} evaluates; address and token are in {address}")
                yield application(queue, token)

    web.run(make, host, port)


def _last_port(root, host):
    with contextlib.suppress(OSError, ValueError, OverflowError):
        port = int((root / "port").read_text())
        socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        ).close()
        return port
    return 0


# Whoever asks


class Client:
    """Asks a server: of an address file (`address`), which is read again whenever the server cannot be reached, or at a `url` with the token
    in DECKSMITH_EVAL_TOKEN. Raises cli.BadData with the server's sentence for what it refuses, cli.BadConfig for a token that is wrong,
    cli.Missing for a job that it does not know, cli.TryAgain when it cannot be reached for `patience` seconds."""

    def __init__(self, address=None, url=None, patience=60.0):
        self.address, self.url, self.patience = address, url, patience

    def _where(self):
        if self.url:
            return self.url, os.environ.get("DECKSMITH_EVAL_TOKEN", "")
        found = worker.read(self.address)
        if not isinstance(found.get("url"), str):
            raise OSError(
                f"{self.address}: no server says there where it is; start one with eval-serve, or name it with --url"
            )
        return found["url"], os.environ.get("DECKSMITH_EVAL_TOKEN") or str(found.get("token"))

    @contextlib.contextmanager
    def _open(self, method, path, body=None):
        import urllib.request

        url, token = self._where()
        request = urllib.request.Request(
            url.rstrip("/") + path,
            None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with trainer._OPENER.open(request, timeout=60) as reply:
            yield reply

    def _patiently(self, work):
        """What `work()` returns, tried again while the server cannot be reached."""
        import http.client
        import urllib.error

        until, wait = time.monotonic() + self.patience, 0.2
        while True:
            try:
                return work()
            except urllib.error.HTTPError as error:
                with error:
                    said = error.read()
                try:
                    said = json.loads(said)
                    sentence = str(said["error"])
                except (ValueError, KeyError, TypeError):
                    said, sentence = {}, f"HTTP {error.code}"
                if (
                    error.code == 500 and "raw_metrics" in said
                ):  # a job that was to be complete or nothing
                    return said
                if error.code < 500:
                    raise {401: cli.BadConfig, 404: cli.Missing}.get(error.code, cli.BadData)(
                        sentence
                    ) from None
                seen = sentence
            except (OSError, http.client.HTTPException, ValueError) as error:
                seen = str(error)
            if time.monotonic() + wait > until:
                raise cli.TryAgain(f"no answer from the server: {seen}")
            time.sleep(wait)
            wait = min(5, 2 * wait)

    def ask(self, method, path, body=None):
        """The JSON that a route answers."""

        def once():
            with self._open(method, path, body) as reply:
                return json.loads(reply.read())

        return self._patiently(once)

    def events(self, job, start=0, follow=False):
        """The events of a job from number `start`; with `follow` until it ended, across restarts of the server."""

        def more():
            with self._open(
                "GET", f"/jobs/{job}/events?from={start}{'&follow=1' if follow else ''}"
            ) as reply:
                for line in reply:
                    if line.strip():
                        if not line.endswith(b"\n"):
                            raise OSError("the stream was cut")
                        yield json.loads(line)

        lines = None

        def following():
            nonlocal lines
            lines = lines or more()
            try:
                return next(lines, None)
            except BaseException:
                lines = None
                raise

        while True:
            follow = (
                follow and self.ask("GET", f"/jobs/{job}")["status"] not in ENDED
            )  # a stream that was cut may look like one that ended
            while (event := self._patiently(following)) is not None:
                yield event
                start = event["n"] + 1
            lines = None
            if not follow:
                return

    def wait(self, job, heard=None):
        """The answer of a job once it ended, as /evaluate gives it; `heard` is called with each event meanwhile."""
        for event in self.events(job, follow=True):
            if heard:
                heard(event)
        return self.ask("GET", f"/jobs/{job}/result")
