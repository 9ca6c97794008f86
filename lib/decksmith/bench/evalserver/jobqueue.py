"""A queue of evaluations that survives its server.

Each benchmark of a job is a process group of our scripts with its own journals, which outlives the
server: a server that starts again takes up what still runs, and starts only what nobody works on.
"""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from decksmith.bench.evalserver import jobs, request, router, worker
from decksmith.bench.evalserver.jobs import NOTHING, BenchmarkState, Ending, Job, Store, now
from decksmith.bench.evalserver.request import Door, JobRequest, Params, Settings
from decksmith.bench.evalserver.worker import SLIDEV
from decksmith.core import cli, stream

PATIENCE = 60.0  # seconds that a router may take to answer before its job fails
TRIES = 3  # starts of a benchmark whose process dies
GRACE = 5.0  # seconds between TERM and KILL
LOOK = 0.2  # seconds between two looks at a benchmark that runs
# What reading a damaged summary may raise.
DAMAGED = (KeyError, TypeError, AttributeError, StopIteration, ValueError, ArithmeticError)

Found = TypeVar("Found")


class Queue:
    """All jobs of a root, which one process has. Raises what Store raises.

    As an asynchronous context manager it works: unfinished jobs are taken up at its beginning, and
    left running at its end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.root = Path(settings.root).resolve()
        self.store = Store(self.root)
        (self.root / "jobs").mkdir(exist_ok=True)
        self.jobs: dict[str, Job] = {}  # by id, in the order in which they came
        self.latest: dict[str, Job] = {}  # by key, the last attempt
        self.slots = asyncio.Semaphore(settings.jobs)
        self.admission = asyncio.Lock()
        self.routers = router.RouterClient(settings.allow)
        self.unbroken: set[asyncio.Task[Any]] = set()  # what goes on when whoever asked is gone
        for ident, asked, state in self.store.jobs():
            self._add(Job(self.store, self._folder(ident), asked, state))

    def _folder(self, ident: str) -> Path:
        return self.root / "jobs" / ident

    def _add(self, job: Job) -> None:
        self.jobs[job.id] = self.latest[job.key] = job

    async def __aenter__(self) -> "Queue":
        await self.routers.__aenter__()
        going = [job for job in self.jobs.values() if not job.ended]
        for job in going:
            job.task = asyncio.create_task(self._run(job))
        if going:
            cli.say(f"{len(going)} unfinished jobs are taken up")
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*self.unbroken, return_exceptions=True)
        tasks = [job.task for job in self.jobs.values() if job.task and not job.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.routers.__aexit__()
        going = [job for job in self.jobs.values() if not job.ended]
        left = sum(
            worker.busy(job.folder / name) for job in going for name in job.state["benchmarks"]
        )
        if left:
            cli.say(f"{left} benchmarks go on by themselves; the next eval-serve takes them up")
        self.store.close()

    # Coming in

    async def submit(
        self, body: dict[str, Any], run: str | None = None, door: Door = "jobs"
    ) -> tuple[Job, bool]:
        """`(job, created)` for a request. One that was asked before and whose result nobody has
        got yet is joined; so is one of pinned weights that is complete. Raises cli.BadData. It is
        done to its end whatever happens to whoever asked."""
        asked = await request.wanted(body, self.settings, run, door)
        return await self._to_its_end(self._submit(asked))

    async def cancel(self, job: Job) -> None:
        """End a job and everything that works for it."""
        await self._to_its_end(self._stop(job, "cancelled"))

    async def _to_its_end(self, work: Coroutine[Any, Any, Found]) -> Found:
        task = asyncio.create_task(work)
        self.unbroken.add(task)
        task.add_done_callback(self.unbroken.discard)
        return await asyncio.shield(task)

    async def _submit(self, asked: JobRequest) -> tuple[Job, bool]:
        door = asked["door"]
        same = {name: each for name, each in asked.items() if name != "door"}
        key = stream.fingerprint(same)[:16]
        async with self.admission:
            before = self.latest.get(key)
            if before:
                verdict = await self._again(before, door)
                if verdict == "join":
                    return before, False
                if verdict == "reopen":
                    self._reopen(before)
                    return before, False
                await self._stop(before, "superseded", "the router's weights are others now")
            await self._supersede(asked)
            job = self._create(key, before.attempt + 1 if before else 1, asked)
            job.task = asyncio.create_task(self._run(job))
            for note in asked["notes"]:
                cli.say(f"{job.id}: {note}")
            return job, True

    async def _again(self, job: Job, door: Door) -> Literal["join", "reopen", "attempt"]:
        """What becomes of a request that is made again: it joins the job, has what is missing of
        it done, or is another attempt."""
        called_off = job.state["status"] == "cancelled" and door == "jobs"
        if not job.state["delivered"] and not called_off:
            return "attempt" if await self._moved(job) else "join"
        if job.complete:
            return "join" if job.pinned else "attempt"
        return "reopen" if job.pinned or job.hard else "attempt"

    async def _moved(self, job: Job) -> bool:
        """Whether the weights are known to be others than those that the job began with."""
        then = job.state.get("weights")
        if job.pinned or not then:
            return False
        weights = await self.routers.weights(job.request["router_urls"], seconds=0.5)
        return weights is not None and weights != then

    async def _supersede(self, asked: JobRequest) -> None:
        """End older rollouts of the same run that somebody asked for at the blocking route and
        waits for no more, where this one comes that way too."""
        if asked["run"] is None or asked["door"] != "evaluate":
            return
        for other in [job for job in self.jobs.values() if not job.ended]:
            is_older = other.request["rollout_id"] < asked["rollout_id"]
            is_idle = other.request["door"] == "evaluate" and not other.waiting
            if other.request["run"] == asked["run"] and is_older and is_idle:
                why = f"rollout {asked['rollout_id']} of {asked['run']} came"
                await self._stop(other, "superseded", why)

    def _create(self, key: str, attempt: int, asked: JobRequest) -> Job:
        """A job and its folder. Raises cli.TryAgain where it cannot be kept."""
        while self._folder(f"{key}.{attempt}").exists():  # of a jobs.db that is gone
            attempt += 1
        job = Job(self.store, self._folder(f"{key}.{attempt}"), asked)
        try:
            job.folder.mkdir()
            self.store.put(job.id, asked, job.state)
        except (OSError, sqlite3.Error) as error:
            with contextlib.suppress(OSError):
                job.folder.rmdir()
            raise cli.TryAgain(f"the job cannot be kept: {self.root}: {error}") from None
        self._add(job)
        return job

    def _reopen(self, job: Job) -> None:
        """Have what is missing of a job done; what is there stays."""
        for name, each in job.state["benchmarks"].items():
            if each["status"] != "done":
                for file in ("result.json", "rows.jsonl", "summary.json"):
                    (job.folder / name / file).unlink(missing_ok=True)
                job.state["benchmarks"][name] = {"status": "queued"}
        job.state |= {"status": "queued", "finished": None, "delivered": None, "model": None}
        job.save()
        job.done.clear()
        job.ending = job.trouble = None
        job.task = asyncio.create_task(self._run(job))

    # At work

    async def _run(self, job: Job) -> None:
        await asyncio.gather(*(self._guarded(job, name) for name in job.open_benchmarks()))
        self._end(job)

    async def _guarded(self, job: Job, name: str) -> None:
        """Work on a benchmark. What breaks in us (a full disk, a folder taken away) is told to
        whoever waits, and the others go on."""
        try:
            async with self.slots:
                found = await self._finished(job, name)
                if child := job.children.pop(name, None):
                    child.poll()
                weights = await self.routers.weights(job.request["router_urls"])
                self._measured(job, name, found, weights)
        except Exception as error:
            traceback.print_exc()
            await self._kill(job, name)
            job.state["benchmarks"][name] = {
                "status": "failed",
                "error": f"eval-serve: {error!r}"[:300],
                "delegate": dict(NOTHING),
            }

    async def _finished(self, job: Job, name: str) -> worker.WorkerResult:
        """result.json of a benchmark, once it is there, or an error. Whoever works on it already
        is waited for."""
        folder, starts = job.folder / name, 0
        while not (found := worker.result(folder)):
            # The last look is for one that ended between the two before.
            if not self._at_work(job, name) and not worker.result(folder):
                if starts == TRIES:
                    words = worker.last_words(folder / "log")
                    return {"error": f"its process was killed {TRIES} times: {words}"}
                if trouble := await self._opened(job):
                    return {"error": trouble}
                await self._begin(job, name)
                starts += 1
            await asyncio.sleep(LOOK)
        return found

    def _at_work(self, job: Job, name: str) -> bool:
        """Whether somebody works on a benchmark: a child of ours, perhaps so young that it has no
        lock yet, or a process that was there before us."""
        child = job.children.get(name)
        return (child is not None and child.poll() is None) or worker.busy(job.folder / name)

    async def _begin(self, job: Job, name: str) -> None:
        if job.state["benchmarks"][name]["status"] == "queued":
            weights = await self.routers.weights(job.request["router_urls"])
            running: BenchmarkState = {"status": "running", "started": now(), "weights": weights}
            job.state["benchmarks"][name] = running
            job.state["status"] = "running"
            job.save()
        self._start(job, name)

    def _start(self, job: Job, name: str) -> None:
        """Start the process group of a benchmark."""
        folder, params = job.folder / name, job.params(name)
        folder.mkdir(exist_ok=True)
        task = {**params, "ask": self._ask(job, params)}
        if "DECKSMITH_IMAGES" in os.environ:
            task["IMAGES"] = os.environ["DECKSMITH_IMAGES"]
        stream.write(folder / "task.json", json.dumps(task, indent=2) + "\n")
        hosts = {urlsplit(url).hostname or "" for url in job.request["router_urls"]}
        direct = ",".join([os.environ.get("no_proxy", ""), *hosts]).strip(",")
        with open(folder / "log", "ab") as log:
            job.children[name] = subprocess.Popen(
                [sys.executable, "-m", "decksmith.bench.evalserver.worker", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cli.ROOT,
                env={**os.environ, "no_proxy": direct, "NO_PROXY": direct},
                start_new_session=True,
            )

    def _ask(self, job: Job, params: Params) -> list[str]:
        """The flags of chat-generate for a benchmark."""
        flags = [
            f"--slug={job.state['model']}",
            *(f"--base-url={url}/v1" for url in job.request["router_urls"]),
            f"--samples={params['n_samples_per_eval_prompt']}",
            f"--temperature={params['temperature']}",
            f"--top-p={params['top_p']}",
            f"--max-tokens={params['max_response_len']}",
            f"--seed={params['seed']}",
            f"--jobs={self.settings.requests}",
        ]
        if params["top_k"] > 0:
            flags.append(f"--top-k={params['top_k']}")
        return flags

    # At its end

    def _measured(
        self, job: Job, name: str, found: worker.WorkerResult, weights: str | None
    ) -> None:
        """Note how a benchmark ended: `found` is its result.json, `weights` are those that the
        routers have now."""
        before = job.state["benchmarks"][name]
        error = found.get("error")
        numbers: dict[str, jobs.Modes] = {}
        coverage, errors = 0.0, 1
        if not error:
            try:
                summary = worker.read(job.folder / name / "summary.json")
                summary = summary if name == SLIDEV else summary[name]
                samples = job.params(name)["n_samples_per_eval_prompt"]
                numbers, coverage, errors = jobs.reported(name, summary, samples)
                error = _first_errors(name, summary)
            except DAMAGED as wrong:
                error = f"its summary is damaged: {wrong!r}"
        seconds = found.get("seconds", 0.0)
        told = {"n_errors": errors, "seconds": seconds, "coverage": round(coverage, 4)}
        first = before.get("weights")
        if first is not None and weights is not None:
            told["weights_changed"] = int(first != weights)
        state: BenchmarkState = {
            "status": "done" if coverage == 1 else "partial" if coverage else "failed",
            "started": before.get("started"),
            "finished": now(),
            "weights": first,
            "delegate": told,
            "metrics": numbers,
        }
        if error:
            state["error"] = error
        job.state["benchmarks"][name] = state
        job.save()

    def _end(self, job: Job, word: Ending | None = None, why: str | None = None) -> None:
        """Note that a job ended, by itself or as `word` says."""
        statuses = {each["status"] for each in job.state["benchmarks"].values()}
        statuses |= {"failed"} if job.request["unknown"] else set()
        if word:
            job.state["status"] = word
        elif statuses <= {"done"}:
            job.state["status"] = "done"
        else:
            job.state["status"] = "partial" if statuses & {"done", "partial"} else "failed"
        job.state["finished"] = now()
        if why:
            job.state["why"] = why
        job.save()
        job.done.set()

    # The router

    async def _opened(self, job: Job) -> str | None:
        """Have the model of a job found out, once for all its benchmarks; what is wrong, or
        None."""
        async with job.lock:
            if not job.state["model"] and not job.trouble:
                job.trouble = await self._open(job)
        return job.trouble

    async def _open(self, job: Job) -> str | None:
        """Find out what the model is called and which weights it has; None, or what is wrong once
        a minute has not mended it."""
        urls = job.request["router_urls"]
        until, seen = time.monotonic() + PATIENCE, ""
        while time.monotonic() < until:
            try:
                listed = [] if job.request["model"] else await self.routers.models(urls[0])
                model = job.request["model"] or self._choice(listed)
                if model is None:
                    how = "name it with eval-serve --model, or in the request"
                    return f"{urls[0]} lists no model; {how}"
                job.state |= {"model": model, "weights": await self.routers.weights(urls)}
                job.save()
                return None
            except router.FAILURES as error:
                seen = str(error) or type(error).__name__
            await asyncio.sleep(1)
        return f"{urls[0]} did not answer for {PATIENCE:.0f} s: {seen}"[:300]

    def _choice(self, listed: list[str]) -> str | None:
        """The model to ask of those that a router lists: the one that --model names, or the
        first."""
        own = self.settings.model
        return own if own in listed or not listed else listed[0]

    # Ending

    async def _stop(self, job: Job, word: Ending, why: str | None = None) -> None:
        if job.ended or job.ending:
            return
        job.ending = word
        if job.task:
            job.task.cancel()
            await asyncio.gather(job.task, return_exceptions=True)
        if job.ended:  # it ended while we asked
            return
        names = job.open_benchmarks()
        await asyncio.gather(*(self._kill(job, name) for name in names))
        for name in names:
            delegate = NOTHING | {"n_errors": 0}
            ended: BenchmarkState = {"status": word, "finished": now(), "delegate": delegate}
            job.state["benchmarks"][name] |= ended
        self._end(job, word, why)

    async def _kill(self, job: Job, name: str) -> None:
        """End the process group of a benchmark: TERM, and KILL where that is not heeded."""
        folder, child = job.folder / name, job.children.pop(name, None)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if child and child.poll() is None:  # perhaps so young that it has not said who it is
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, number)
            elif worker.busy(folder):
                worker.send(folder, number)
            until = time.monotonic() + GRACE
            while time.monotonic() < until:
                if not worker.busy(folder) and (child is None or child.poll() is not None):
                    return
                await asyncio.sleep(0.05)
        cli.say(f"{folder}: somebody still works there, and does not end")

    async def end_all(self) -> None:
        """Ctrl-C: nobody works on when we are gone. Nothing is lost by it; the next server goes on
        from the journals."""
        going = [job for job in self.jobs.values() if not job.ended]
        for job in self.jobs.values():
            if job.task and not job.task.done():
                job.task.cancel()
        kills = [self._kill(job, name) for job in going for name in job.state["benchmarks"]]
        await asyncio.gather(*kills)


def _first_errors(name: str, summary: dict[str, Any]) -> str | None:
    """What went wrong with answers, not counting what a deck's own model brought about: the three
    most frequent, in one line."""
    classes = (summary.get("errors") or summary.get("faults") or {})["classes"]
    ours = [each for each in classes if name != SLIDEV or each["kind"] != "model"]
    return "; ".join(f"{each['n']} x {each['stage']} {each['class']}" for each in ours[:3]) or None
