"""Grading one reply: right, wrong or no answer; what a grader cannot decide is an error of its row, never a verdict.

Graders run in processes of their own with a limit for each row: symbolic comparison can hang, and a crash must cost one row only. An answer
that stalls or crashes its grader is wrong, since that is the model's doing; a machine that is too busy to grade is an error of the row.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from decksmith.bench.benchmarks import graders, gym, tasks
from decksmith.bench.benchmarks.graders import calls, code, lean, math, plus, said, simple, sql
from decksmith.bench.benchmarks.records import (
    BenchmarkSpec,
    BenchRecord,
    Grade,
    Sampling,
    Task,
    Verdict,
)
from decksmith.core import cli, stream
from decksmith.core.records import Record, prompt_of
from decksmith.core.stream import Fault
from decksmith.models import registry, replies
from decksmith.models.records import Usage

if TYPE_CHECKING:
    from decksmith.models.client import Client

SECONDS = 2.0  # of CPU time that a grader has for one row; an answer that takes more is wrong
WALL = 30  # times as long by the clock: a process that has come to no end by then is looked at a second time
START = 120  # seconds for a grader to start and to grade a known answer
MEMORY = 2 << 30  # bytes of address space of a grader
UNREAD = "(no grader could evaluate it)"  # the answer that such rows are counted under
ROWS = 32  # at once: those that wait for a judge cost nothing, and of the others as many are graded as there are processes
ASKED = 3  # of how a judge is asked and read: raised when its verdicts, which are paid for, no longer hold
VERSION = 7  # of the rules: raised when a verdict can change, so that kept grades are made again


# How a grader's process ends that somebody else ended; None: it has not.
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT, None)


class Graders:
    """Grades records: `await work(record)` gives the value of "grade"; `jobs` processes, `seconds` of
    CPU for each row.

    `judge` (an entry of the registry) and `endpoint` (base_url, slug, key_env) replace the judge that
    a benchmark names; with `run` its verdicts are kept there.
    """

    def __init__(
        self,
        jobs: int = 2,
        seconds: float = SECONDS,
        run: Path | None = None,
        judge: str | None = None,
        **endpoint: str | None,
    ) -> None:
        self.jobs, self.seconds, self.run = jobs, seconds, run
        self.judge, self.endpoint = judge, endpoint
        self.slots = asyncio.Semaphore(jobs)
        self.all: list[_GraderProcess] = []
        self.idle: dict[str, list[_GraderProcess]] = defaultdict(list)  # by grader
        self.judges: dict[str, ReplyJudge] = {}  # by benchmark
        self.verdicts: stream.Journal | None = None
        self.verifiers = gym.Verifiers(jobs)

    def inputs(self, record: BenchRecord) -> list[object]:
        """Everything a grade depends on."""
        gen, spec = record["gen"], tasks.load(record["task"]["bench"])
        if lack := tasks.lack(spec, record["task"]):  # an error, as long as the row is this one
            return [lack, record["task"]]
        judged = []
        if spec["grader"] in JUDGED or (spec["grader"] == "gym" and self._judged_here(spec)):
            judged.append(registry.model(self._judge_of(spec), **self.endpoint).slug)
        if spec["grader"] in JUDGED:
            judged.append(tasks.template(JUDGED[spec["grader"]]))
        return [
            rules(spec, record["task"]),
            gen.get("text"),
            gen.get("finish_reason"),
            *([gen.get("calls")] if spec["grader"] == "tools" else []),
            record["task"],
            tasks.order(record),
            [spec.get(key) for key in ("grader", "judge")],
            prompt_of(record),
            *judged,
        ]

    def _judge_of(self, spec: BenchmarkSpec) -> str | None:
        """The registry's name of the judge of a benchmark; None where an endpoint is its whole description."""
        if self.endpoint.get("base_url") and self.endpoint.get("slug"):
            return None
        return self.judge or spec.get("judge", {}).get("model")

    async def work(self, record: BenchRecord) -> Grade:
        spec, gen = tasks.load(record["task"]["bench"]), record["gen"]
        if spec["grader"] == "deck":
            said = "decks are scored by deck-parse .. deck-score (make baseline), not here"
            raise cli.BadData(f"{record['id']}: {said}")
        if spec["grader"] == "outside":
            raise cli.BadData(f"{spec['name']} is graded by its own harness: {spec['note']}")
        if lack := tasks.lack(spec, record["task"]):
            raise Fault("judge", "bad-row", f"{lack}; mend it and run bench-prepare again")
        found = await self._found(spec, record, gen.get("text") or "")
        detail = found.get("detail") or {}
        if fault := detail.get("fault"):
            stream.warn(record["id"], f"wrong, since {fault['message']}")
        return {
            "verdict": found["verdict"],
            "score": found.get("score", float(found["verdict"] == "right")),
            "answer": found.get("answer"),
            "truncated": gen.get("finish_reason") == "length",
            "detail": detail,
            "rules": rules(spec, record["task"]),
        }

    async def _found(self, spec: BenchmarkSpec, record: BenchRecord, text: str) -> Grade:
        """Verdict, score, answer and detail, as far as the grader has them."""
        task = record["task"]
        if spec["grader"] == "tools":  # nothing of a reply is run or evaluated: it needs no process
            return calls.tools(task, record["gen"].get("calls") or [], text)
        if not text.strip():
            return {"verdict": "no_answer"}
        if spec["grader"] in JUDGED:
            return await judged(self._open(spec), spec, record)
        if spec["grader"] == "gym":
            return await self._gym(spec, record, text)
        if spec["grader"] == "choice":
            choices = task["fields"]["choices"]
            shown = [choices[place] for place in tasks.order(record)]
            fields = {**task["fields"], "choices": shown}
            task = {**task, "fields": fields, "expected": tasks.right_letter(record)}
        async with self.slots:
            return await asyncio.to_thread(self._apart, spec, task, text)

    async def _gym(self, spec: BenchmarkSpec, record: BenchRecord, text: str) -> Grade:
        """The verdict of an official verifier; what it asks a judge, ours answers."""
        own = spec["source"]["gym"]
        if gym.judged_by(own) and not self._judged_here(spec):
            said = "its verifier asks a judge: bench-grade --judge NAME"
            raise cli.BadConfig(f"{spec['name']}: {said}, an entry of assets/models.toml")

        async def ask(request: gym.JudgeBody) -> str:
            if not self._judged_here(spec):
                raise Fault("judge", "no-judge", "the verifier asks a judge: bench-grade --judge")
            return await self._open(spec).said(record["id"], *gym.judged(request))

        row, cut = record["task"]["expected"], record["gen"].get("finish_reason") == "length"
        row = {**row, "responses_create_params": {"input": record.get("messages") or []}}
        return await self.verifiers.grade(own, row, text, cut, ask)

    def _judged_here(self, spec: BenchmarkSpec) -> bool:
        return bool(self._judge_of(spec) or self.endpoint.get("base_url"))

    def _open(self, spec: BenchmarkSpec) -> ReplyJudge:
        """The judge of a benchmark, opened once. Raises cli.BadConfig for an unknown model or a missing key."""
        from decksmith.models.client import Client

        if self.run is not None and not self.verdicts:
            self.verdicts = stream.Journal(self.run / "journal" / "verdicts.jsonl", "verdicts")
        if spec["name"] not in self.judges:
            client = Client.open(self._judge_of(spec), blame="judge", **self.endpoint)
            judge = ReplyJudge(client, self.verdicts, spec.get("judge", {}).get("sampling"))
            self.judges[spec["name"]] = judge
        return self.judges[spec["name"]]

    def valid(self, _record: BenchRecord, value: Grade) -> bool:
        """Whether a kept grade holds: one of an answer that took too long not where it is now given longer."""
        blamed = (value.get("detail") or {}).get("fault")
        return not blamed or blamed.get("seconds", self.seconds) >= self.seconds

    def _apart(self, spec: BenchmarkSpec, task: Task, text: str) -> Grade:
        """The grade from a process. One that ends or hangs is replaced and the row tried once more,
        since the machine may be at fault; what happens again is the answer's doing, if the new process
        was in order before."""
        grader = spec["grader"]
        own: float | None = self.seconds
        seconds = self.seconds * WALL
        if grader == "code":  # the sandbox has limits of its own
            own, seconds = None, code.seconds(task)
        if grader == "lean":  # the proof, and its statement alone
            own, seconds = None, code.BUSY * 4 * lean.SECONDS
        if grader == "sql":  # two queries
            own, seconds = 3 * sql.SECONDS, 3 * sql.SECONDS * WALL
        for attempt in (1, 2):
            worker = self.idle[grader].pop() if self.idle[grader] else _GraderProcess(self, grader)
            try:
                found = worker.ask((spec, task, text), own, seconds)
            except (TimeoutError, EOFError, OSError) as failure:
                timeout = isinstance(failure, TimeoutError)
                ended = worker.ended(0 if timeout else 10)
                if ended == -signal.SIGPROF:  # its own limit
                    said = f"its answer takes a grader more than {self.seconds:g} s of CPU time"
                    return blamed("stalls-grader", said, seconds=self.seconds)
                # By the sandbox: it is not the answer's doing.
                confined = grader in ("code", "lean")
                if attempt == 1 and not confined:
                    continue
                return self._failed(confined, worker.took, timeout, ended, seconds)
            self.idle[grader].append(worker)
            if isinstance(found, str):
                raise cli.Missing(found)
            if "error" in found:
                raise Fault("judge", found["error"]["class"], found["error"]["message"])
            return found
        raise AssertionError("the second attempt returns or raises")

    def _failed(
        self, confined: bool, start: float, timeout: bool, ended: int | None, seconds: float
    ) -> Grade:
        """The grade of an answer that a grader's process stumbled over; start: the seconds until it was
        ready. Raises Fault where the machine may have done it."""
        if timeout:
            if not confined and start <= seconds / 3:
                said = f"its answer holds up a grader for more than {seconds:g} s"
                return blamed("stalls-grader", said, seconds=self.seconds)
            said = f"the grader took more than {seconds:g} s; the machine may be too busy"
            raise Fault("judge", "grader-timeout", said)
        if confined or ended in FROM_OUTSIDE:
            said = f"the grader's process was ended from outside ({ended})"
            raise Fault("judge", "grader-crash", said)
        return blamed("crashes-grader", f"its answer ends the process of a grader ({ended})")

    async def close(self) -> None:
        for worker in self.all:
            worker.end()
        await self.verifiers.close()
        for judge in self.judges.values():
            await judge.client.close()
        if self.verdicts:
            self.verdicts.close()


# Judges

JUDGED = {"equal": "judge-equal", "pairwise": "judge-pairwise", "rubric": "judge-rubric"}
TRIES = 3  # replies of a judge for a verdict
LONGEST = 20_000  # characters at a reply's end that are read
AGAIN = "There is no usable verdict in this. Give it once, in the required form, at the end."
Said = TypeVar("Said")


@dataclass
class ReplyJudge:
    """A model that is asked for verdicts on texts nobody vouches for. What it said stands in `journal`
    under the request it answers, so that no verdict is paid for twice."""

    client: Client
    journal: stream.Journal | None
    sampling: Sampling | None

    async def verdict(
        self,
        ident: str,
        template: str,
        fields: Mapping[str, object],
        read: Callable[[str], Said | None],
    ) -> tuple[Said, Usage]:
        """What `read(text)` finds in the judge's reply to a filled template, `(value, usage)`; None is no
        verdict, and it is asked again. {mark} in the template is a word that none of the texts can
        foresee. Raises Fault: of kind judge when no reply has a verdict."""
        mark = stream.fingerprint(fields)[:8]
        prompt = tasks.filled(tasks.template(template), {**fields, "mark": mark}, ident)
        messages = [{"role": "user", "content": prompt}]
        inputs = stream.fingerprint([ASKED, self.client.request(messages, self.sampling)])
        if kept := self._kept(ident, inputs):
            return kept["said"], kept["usage"]
        spent: list[Usage] = []
        for attempt in range(TRIES):
            reply = await self.client.ask(messages, self.sampling, seed=attempt)
            spent.append(reply.usage)
            text = reply.text[-LONGEST:]
            if (said := read(text)) is not None:
                self._keep(ident, inputs, said, replies.added(*spent))
                return said, replies.added(*spent)
            own = {"role": "assistant", "content": text[-4000:] or "(empty)"}
            messages = [messages[0], own, {"role": "user", "content": AGAIN}]
        said_last = f"no verdict in {TRIES} replies; the last ended: {text[-200:]!r}"
        raise Fault("judge", "unparseable", said_last)

    async def said(self, ident: str, messages: list[Record], sampling: Sampling) -> str:
        """The judge's reply to a request that somebody else worded, kept in the journal like a verdict."""
        sampling = sampling | (self.sampling or {})
        inputs = stream.fingerprint([ASKED, self.client.request(messages, sampling)])
        if kept := self._kept(ident, inputs):
            return str(kept["said"])
        reply = await self.client.ask(messages, sampling)
        self._keep(ident, inputs, reply.text, reply.usage)
        return reply.text

    def _kept(self, ident: str, inputs: str) -> Record | None:
        return self.journal.get(ident, inputs) if self.journal else None

    def _keep(self, ident: str, inputs: str, said: object, usage: Usage) -> None:
        if self.journal:
            self.journal.put(ident, inputs, {"said": said, "usage": usage})


async def judged(judge: ReplyJudge, spec: BenchmarkSpec, record: BenchRecord) -> Grade:
    """The grade that a judge gives one reply."""
    kinds = {"equal": _equal, "rubric": _rubric, "pairwise": _pairwise}
    found = await kinds[spec["grader"]](judge, record)
    return {**found, "detail": {"judge": judge.client.model.slug, **found["detail"]}}


async def _equal(judge: ReplyJudge, record: BenchRecord) -> Grade:
    """Whether the reply comes to what is expected."""
    task, reply = record["task"], record["gen"]["text"]
    fields = {**task["fields"], "expected": task["expected"], "reply": reply}
    said, usage = await judge.verdict(record["id"], JUDGED["equal"], fields, judgement)
    return {"verdict": "right" if said else "wrong", "detail": {"usage": usage}}


async def _rubric(judge: ReplyJudge, record: BenchRecord) -> Grade:
    """How many of its criteria the reply meets."""
    wanted = record["task"]["expected"]["criteria"]
    asks = "\n".join(f"{number}. {ask}" for number, ask in enumerate(wanted, 1))
    fields = {**record["task"]["fields"], "criteria": asks, "reply": record["gen"]["text"]}

    def read(text: str) -> list[bool] | None:
        return criteria(text, len(wanted))

    said, usage = await judge.verdict(record["id"], JUDGED["rubric"], fields, read)
    verdict: Verdict = "right" if all(said) else "wrong"
    detail = {"met": said, "usage": usage}
    return {"verdict": verdict, "score": sum(said) / len(said), "detail": detail}


async def _pairwise(judge: ReplyJudge, record: BenchRecord) -> Grade:
    """Two games against the baseline's reply, ours as A and as B: a game won counts 1, a draw 0.5."""
    baseline, ours = record["task"]["expected"]["baseline"], record["gen"]["text"]
    games, spent = [], []
    for sign, a, b in ((1, ours, baseline), (-1, baseline, ours)):
        fields = {**record["task"]["fields"], "a": a, "b": b}
        said, usage = await judge.verdict(record["id"], JUDGED["pairwise"], fields, preference)
        games.append(sign * said)
        spent.append(usage)
    won, drawn = sum(game > 0 for game in games), games.count(0)
    score = (won + drawn / 2) / 2
    detail = {"games": games, "flipped": games[0] * games[1] < 0, "usage": replies.added(*spent)}
    return {"verdict": "right" if score > 0.5 else "wrong", "score": score, "detail": detail}


def _ending(text: str, n: int = 1) -> list[str]:
    """The last `n` lines of a judge's reply that hold a word or a verdict: what it quotes above is no verdict of its own."""
    return [line for line in text.splitlines() if re.search(r"\w", line)][-n:]


def judgement(text: str) -> bool | None:
    """What a judge says in its last line after "Judgement:": True, False, or None when it is neither yes nor no."""
    _, mark, said = "".join(_ending(text)).rpartition("Judgement:")
    found = re.match(r"[\s*_\"']*(yes|no)\b", said, re.I) if mark else None
    return found[1].lower() == "yes" if found else None


PREFERENCES = {"A>>B": 2, "A>B": 1, "A=B": 0, "B>A": -1, "B>>A": -2}


def preference(text: str) -> int | None:
    """How much better A is than B by the last line, from -2 to 2; None without a verdict there or with several different ones."""
    found = set(re.findall(r"\[\[(A>>B|A>B|A=B|B>A|B>>A)\]\]", "".join(_ending(text))))
    return PREFERENCES[found.pop()] if len(found) == 1 else None


CRITERION = re.compile(r"\W*criterion\W+(\d{1,3})\b\W*(yes|no)\b", re.I)


def criteria(text: str, n: int) -> list[bool] | None:
    """Which of `n` criteria a judge's last `n` lines say are met, as a list of booleans; None when they are not one verdict for each, in
    order, or when one more stands right above them."""
    said = [CRITERION.match(line) for line in _ending(text, n)]
    above = text.rstrip().splitlines()[:-n][-1:]
    if [each and int(each[1]) for each in said] != list(range(1, n + 1)):
        return None
    if any(map(CRITERION.match, above)):
        return None
    return [each is not None and each[2].lower() == "yes" for each in said]


Question = tuple[BenchmarkSpec, Task, str]


# What a process answers: a grade, which is an error where the row cannot be decided and empty where
# it was asked whether it is ready; or a text that says what is not here.
Answer = Grade | str


class _GraderProcess:
    """A process that grades one row at a time. It is ready when it has graded a known answer: what it then stumbles over is the row's."""

    def __init__(self, owner: Graders, grader: str) -> None:
        context = multiprocessing.get_context("forkserver")
        # Once, not once a process.
        context.set_forkserver_preload([__name__, *PRELOAD.get(grader, ())])
        started = time.monotonic()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, grader), daemon=True)
        self.process.start()
        theirs.close()
        owner.all.append(self)
        try:
            found = self.ask(None, None, START)
        except (TimeoutError, EOFError, OSError):
            self.end()
            said = f"no {grader} grader was ready within {START} s; the machine may be too busy"
            raise Fault("judge", "grader-start", said) from None
        if isinstance(found, str):
            raise cli.Missing(found)
        self.took = time.monotonic() - started

    def ask(self, question: Question | None, own: float | None, seconds: float) -> Answer:
        """The answer to a question; `own`: its CPU seconds, after which the process ends itself. Raises TimeoutError after `seconds`."""
        self.pipe.send((question, own))
        if not self.pipe.poll(seconds):
            raise TimeoutError
        return cast(Answer, self.pipe.recv())

    def ended(self, seconds: float) -> int | None:
        """The exit code of the process, for which so long is waited; it is ended in any case."""
        self.process.join(seconds)
        code = self.process.exitcode
        self.end()
        return code

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def blamed(cls: str, message: str, **more: float) -> Grade:
    """The grade of an answer that no grader can evaluate: it is wrong, and what was the matter stands in detail.fault."""
    return {
        "verdict": "wrong",
        "answer": UNREAD,
        "detail": {"fault": {"kind": "model", "class": cls, "message": message, **more}},
    }


def _serve(pipe: Connection, grader: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, also within one step of C
    memory = MEMORY if grader == "math" else 2 * MEMORY  # a sandbox inherits it
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.set_int_max_str_digits(4300)
    while True:
        try:
            question, own = pipe.recv()
        except (EOFError, OSError):
            return
        if own:
            signal.setitimer(signal.ITIMER_PROF, own)
        answer = _answered(grader, question)
        signal.setitimer(signal.ITIMER_PROF, 0)
        pipe.send(answer)


def _answered(grader: str, question: Question | None) -> Answer:
    """What a process says to a question; None asks whether it is ready."""
    try:
        if question:
            return grade(*question)
        _ready(grader)
        return {}
    except Fault as fault:
        return {"error": fault.error}
    except cli.Stop as stop:
        return str(stop)
    except ImportError as error:
        return f"the {grader} grader needs a package that is not here: {error}"
    except Exception as error:  # a bug, or what a library makes of a strange answer
        said = f"{type(error).__name__}: {str(error)[:300]}"
    if question is None:
        return {"error": {"kind": "judge", "class": "grader-start", "message": said}}
    try:  # the same row with a plain reply: is it the row or the answer?
        spec, task, _ = question
        grade(spec, task, f"\\boxed{{{task['expected']}}}")
    except Exception:
        return {"error": {"kind": "judge", "class": "grader-error", "message": said}}
    return blamed("crashes-grader", f"its answer breaks a grader ({said})")


def _ready(grader: str) -> None:
    """Grades a known answer, which also makes the caches that a first row would otherwise pay for."""
    if grader == "math" and not math.same("\\frac{x}{2}+1", "1+0.5x"):
        said = "math-verify does not find x/2 + 1 and 1 + 0.5x equal"
        raise cli.Missing(f"{said}; the pinned packages are in uv.lock")
    if grader == "instructions":
        from decksmith.bench.benchmarks.graders import instructions

        instructions.warm()


PRELOAD = {
    "math": ["math_verify"],
    "instructions": ["decksmith.bench.benchmarks.graders.instructions"],
}


def rules(spec: BenchmarkSpec, task: Task) -> int | str:
    """Which rules grade a row: our version of them, and the harness with its version where one does.
    Raises cli.Missing."""
    if spec["grader"] == "gym":
        return f"{VERSION}: {gym.revision()}"
    if spec["grader"] == "code" and "calls" in task["expected"]:
        return f"{VERSION}: {graders.version('evalplus')}"
    if spec["grader"] != "instructions":
        return VERSION
    which = sorted({graders.harness(name) for name in task["expected"]["instructions"]})
    return f"{VERSION}: {', '.join(map(graders.version, which))}"


# --- graders: a benchmark, a task and a reply -----------------------------------------------------


def grade(spec: BenchmarkSpec, task: Task, text: str) -> Grade:
    """The grade of one reply, in this process. Raises Fault for what cannot be decided."""
    return GRADERS[spec["grader"]](task, text)


def _math(task: Task, text: str) -> Grade:
    question = " ".join(map(str, task["fields"].values()))
    expected, answer = str(task["expected"]), said.final(text, question)
    named = said.subject(text, question)
    if named and math.same(expected, named):
        answer = named
    if answer is None:
        return {"verdict": "no_answer", "answer": None}
    right = math.right(expected, answer, question)
    return {"verdict": "right" if right else "wrong", "answer": math.plain(answer) or answer}


def _choice(task: Task, text: str) -> Grade:
    choices = task["fields"]["choices"]
    question = str(task["fields"].get("question", ""))
    answer = simple.chosen_letter(text, tasks.LETTERS[: len(choices)], choices, question)
    if answer is None:
        return {"verdict": "no_answer", "answer": None}
    return {"verdict": "right" if answer == task["expected"] else "wrong", "answer": answer}


def _instructions(task: Task, text: str) -> Grade:
    from decksmith.bench.benchmarks.graders import instructions

    return instructions.grade(task, text)


def _code(task: Task, text: str) -> Grade:
    judge = plus.grade if "calls" in task["expected"] else code.grade
    return judge(task["expected"], text)


GRADERS: dict[str, Callable[[Task, str], Grade]] = {
    "math": _math,
    "choice": _choice,
    "instructions": _instructions,
    "exact": simple.exact,
    "contains": simple.contains,
    "code": _code,
    "sql": sql.grade,
    "lean": lean.grade,
}


def jobs() -> int:
    return max(1, min(8, len(os.sched_getaffinity(0))))
