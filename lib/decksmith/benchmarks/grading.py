"""Grading one reply: right, wrong or no answer; what a grader cannot decide is an error of its row, never a verdict.

Graders run in processes of their own with a limit for each row: symbolic comparison can hang, and a crash must cost one row only. An answer
that stalls or crashes its grader is wrong, since that is the model's doing; a machine that is too busy to grade is an error of the row.
"""

import asyncio
import contextlib
import os
import re
from collections import defaultdict
from pathlib import Path

from decksmith.benchmarks import tasks
from decksmith.benchmarks.graders import choice, code, math
from decksmith.core import cli, stream
from decksmith.core.records import prompt_of
from decksmith.core.stream import Fault

SECONDS = (
    2.0  # of its own CPU time that a grader has for one row; an answer that takes more is wrong
)
WALL = 30  # times as long by the clock: a process that has come to no end by then is looked at a second time
START = 120  # seconds for a grader to start and to grade a known answer
MEMORY = 2 << 30  # bytes of address space of a grader
UNREAD = "(no grader could evaluate it)"  # the answer that such rows are counted under
ROWS = 32  # at once: those that wait for a judge cost nothing, and of the others as many are graded as there are processes
VERSION = 3  # of the rules: raised when a verdict can change, so that kept grades are made again


class Graders:
    """Grades records: `await work(record)` gives the value of "grade"; `jobs` processes, `seconds` of CPU for each row. `judge` (an entry of the
    registry) and `endpoint` (base_url, slug, key_env) replace the judge that a benchmark names; with `run` its verdicts are kept there."""

    def __init__(self, jobs=2, seconds=SECONDS, run=None, judge=None, **endpoint):
        self.jobs, self.seconds, self.run, self.judge, self.endpoint = (
            jobs,
            seconds,
            run,
            judge,
            endpoint,
        )
        self.idle, self.all, self.judges, self.verdicts, self.slots = (
            defaultdict(list),
            [],
            {},
            None,
            asyncio.Semaphore(jobs),
        )

    def inputs(self, record):
        """Everything a grade depends on."""
        gen, spec = record["gen"], tasks.load(record["task"]["bench"])
        judged = []
        if spec["grader"] in JUDGED:
            from decksmith.models import registry

            judged = [
                registry.model(self._named(spec), **self.endpoint).slug,
                tasks.template(JUDGED[spec["grader"]]),
            ]
        return [
            rules(spec, record["task"]),
            gen.get("text"),
            gen.get("finish_reason"),
            record["task"],
            tasks.order(record),
            [spec.get(key) for key in ("grader", "extract", "judge")],
            prompt_of(record),
            *judged,
        ]

    def _named(self, spec):
        return (
            None
            if self.endpoint.get("base_url") and self.endpoint.get("slug")
            else self.judge or spec["judge"]["model"]
        )

    async def work(self, record):
        spec, gen = tasks.load(record["task"]["bench"]), record["gen"]
        if spec["grader"] == "deck":
            raise cli.BadData(
                f"{record['id']}: decks are scored by deck-parse .. deck-score (make baseline), not here"
            )
        text, cut = gen.get("text") or "", gen.get("finish_reason") == "length"
        if not text.strip():
            found = {"verdict": "no_answer", "answer": None}
        elif spec["grader"] in JUDGED:
            if self.run is not None and not self.verdicts:
                self.verdicts = verdicts(self.run)
            if spec["name"] not in self.judges:
                self.judges[spec["name"]] = Judge(
                    self._named(spec), self.verdicts, spec["judge"].get("sampling"), **self.endpoint
                )
            found = await judged(self.judges[spec["name"]], spec, record)
        else:
            task = dict(record["task"])
            if spec["grader"] == "choice":
                task["expected"] = tasks.letter(record)
            async with self.slots:
                found = await asyncio.to_thread(self._apart, spec, task, text)
            if blamed := (found.get("detail") or {}).get("fault"):
                stream.warn(record["id"], f"wrong, since {blamed['message']}")
        score = found.pop("score", float(found["verdict"] == "right"))
        return {
            "verdict": found["verdict"],
            "score": score,
            "answer": found.get("answer"),
            "truncated": cut,
            "detail": found.get("detail") or {},
            "rules": rules(spec, record["task"]),
        }

    def valid(self, _record, value):
        """Whether a kept grade holds: one of an answer that took too long not where it is now given longer."""
        blamed = (value.get("detail") or {}).get("fault")
        return not blamed or blamed.get("seconds", self.seconds) >= self.seconds

    def _apart(self, spec, task, text):
        """The grade from a process. One that ends or hangs is replaced and the row tried once more, since the machine may be at fault;
        what happens again is the answer's doing, if the new process was in order before."""
        coded, own = spec["grader"] == "code", self.seconds
        seconds = code.seconds(task) if coded else own * WALL  # the sandbox has limits of its own
        for attempt in (1, 2):
            worker = (
                self.idle[spec["grader"]].pop()
                if self.idle[spec["grader"]]
                else _Worker(self, spec["grader"])
            )
            try:
                kind, value = worker.ask((spec, task, text), None if coded else own, seconds)
            except (TimeoutError, EOFError, OSError) as failure:
                found = self._failed(worker, failure, attempt, coded, seconds)
                if found:
                    return found
                continue
            self.idle[spec["grader"]].append(worker)
            if kind == "stop":
                raise cli.Missing(value)
            if kind == "fault":
                raise Fault("judge", *value)
            return value

    def _failed(self, worker, failure, attempt, coded, seconds):
        """What follows from a grader's end: the grade of its answer, or None where the row is to be tried again. Raises Fault."""
        import signal

        worker.process.join(0 if isinstance(failure, TimeoutError) else 10)
        ended = worker.process.exitcode
        worker.end()
        if ended == -signal.SIGPROF:
            return blamed(
                "stalls-grader",
                f"its answer takes a grader more than {self.seconds:g} s of CPU time",
                seconds=self.seconds,
            )
        if attempt == 1 and not coded:
            return None
        if isinstance(failure, TimeoutError):
            if coded or worker.took > seconds / 3:
                raise Fault(
                    "judge",
                    "grader-timeout",
                    f"the grader took more than {seconds:g} s; the machine may be too busy",
                )
            return blamed(
                "stalls-grader",
                f"its answer holds up a grader for more than {seconds:g} s",
                seconds=self.seconds,
            )
        if coded or ended in (
            -signal.SIGKILL,
            -signal.SIGTERM,
            -signal.SIGHUP,
            -signal.SIGINT,
            None,
        ):
            raise Fault(
                "judge", "grader-crash", f"the grader's process was ended from outside ({ended})"
            )
        return blamed("crashes-grader", f"its answer ends the process of a grader ({ended})")

    async def close(self):
        for worker in self.all:
            worker.end()
        for judge in self.judges.values():
            await judge.close()
        if self.verdicts:
            self.verdicts.close()


# Judges

JUDGED = {"equal": "judge-equal", "pairwise": "judge-pairwise", "rubric": "judge-rubric"}
TRIES, LONGEST = (
    3,
    20_000,
)  # replies of a judge for a verdict; characters at a reply's end that are read


class Judge:
    """A model that is asked for verdicts on texts nobody vouches for. What it said stands in `journal` (see `verdicts`) under the request
    it answers, so that no verdict is paid for twice."""

    def __init__(self, name=None, journal=None, sampling=None, **endpoint):
        """Raises cli.BadConfig for an unknown model or a missing key."""
        from decksmith.models import client

        self.client, self.journal, self.sampling = (
            client.Client.open(name, blame="judge", **endpoint),
            journal,
            sampling,
        )

    async def verdict(self, ident, template, fields, read):
        """What `read(text)` finds in the judge's reply to a filled template, `(value, usage)`; None is no verdict, and it is asked again.

        {mark} in the template is a word that none of the texts can foresee. Raises Fault: of kind judge when no reply has a verdict.
        """
        prompt = tasks.filled(
            tasks.template(template), {**fields, "mark": stream.fingerprint(fields)[:8]}, ident
        )
        messages, spent = [{"role": "user", "content": prompt}], []
        inputs = stream.fingerprint([VERSION, self.client.request(messages, self.sampling)])
        if self.journal and (kept := self.journal.get(ident, inputs)):
            return kept["said"], kept["usage"]
        for attempt in range(TRIES):
            reply = await self.client.ask(messages, self.sampling, seed=attempt)
            spent.append(reply.usage)
            text = reply.text[-LONGEST:]
            if (said := read(text)) is not None:
                if self.journal:
                    self.journal.put(ident, inputs, {"said": said, "usage": _sum(spent)})
                return said, _sum(spent)
            messages = [
                *messages[:1],
                {"role": "assistant", "content": text[-4000:] or "(empty)"},
                {
                    "role": "user",
                    "content": "There is no usable verdict in this. Give it once, in the required form, at the end.",
                },
            ]
        raise Fault(
            "judge",
            "unparseable",
            f"no verdict in {TRIES} replies; the last ended: {text[-200:]!r}",
        )

    async def close(self):
        await self.client.close()


def verdicts(run):
    """The journal of a run's verdicts."""
    return stream.Journal(Path(run) / "journal" / "verdicts.jsonl", "verdicts")


async def judged(judge, spec, record):
    """The grade that a judge gives one reply."""
    ident, fields, expected, text = (
        record["id"],
        record["task"]["fields"],
        record["task"]["expected"],
        record["gen"]["text"],
    )
    template, detail = JUDGED[spec["grader"]], {"judge": judge.client.model.slug}
    if spec["grader"] == "equal":
        said, usage = await judge.verdict(
            ident, template, {**fields, "expected": expected, "reply": text}, judgement
        )
        return {
            "verdict": "right" if said else "wrong",
            "answer": None,
            "detail": {**detail, "usage": usage},
        }
    if spec["grader"] == "rubric":
        asks = "\n".join(f"{number}. {ask}" for number, ask in enumerate(expected["criteria"], 1))
        said, usage = await judge.verdict(
            ident,
            template,
            {**fields, "criteria": asks, "reply": text},
            lambda text: criteria(text, len(expected["criteria"])),
        )
        return {
            "verdict": "right" if all(said) else "wrong",
            "score": sum(said) / len(said),
            "answer": None,
            "detail": {**detail, "met": said, "usage": usage},
        }
    games, spent = [], []
    for ours, theirs in (("a", "b"), ("b", "a")):
        said, usage = await judge.verdict(
            ident, template, {**fields, ours: text, theirs: expected["baseline"]}, preference
        )
        games.append(said if ours == "a" else -said)
        spent.append(usage)
    score = sum(0.5 + 0.5 * (game > 0) - 0.5 * (game < 0) for game in games) / 2
    return {
        "verdict": "right" if score > 0.5 else "wrong",
        "score": score,
        "answer": None,
        "detail": {
            **detail,
            "games": games,
            "flipped": games[0] * games[1] < 0,
            "usage": _sum(spent),
        },
    }


def _sum(usages):
    return {
        key: None if None in (values := [usage.get(key) for usage in usages]) else sum(values)
        for key in usages[0]
    }


def judgement(text):
    """What a judge said after the last "Judgement:": True, False, or None when it is neither yes nor no."""
    found = (
        re.match(r"[\s*_\"']*(yes|no)\b", text.rpartition("Judgement:")[2], re.I)
        if "Judgement:" in text
        else None
    )
    return found and found[1].lower() == "yes"


def preference(text):
    """How much better A is than B, from -2 to 2; None without a verdict or with several different ones."""
    found = set(re.findall(r"\[\[(A>>B|A>B|A=B|B>A|B>>A)\]\]", text))
    return (
        {"A>>B": 2, "A>B": 1, "A=B": 0, "B>A": -1, "B>>A": -2}[found.pop()]
        if len(found) == 1
        else None
    )


def criteria(text, n):
    """Which of `n` criteria a judge says are met, as a list of booleans; None when any has no verdict or two different ones."""
    found = {}
    for number, said in re.findall(r"^\W*criterion\W+(\d{1,3})\b\W*(yes|no)\b", text, re.I | re.M):
        if found.setdefault(int(number), said.lower()) != said.lower():
            return None
    return (
        [found[number] == "yes" for number in range(1, n + 1)]
        if sorted(found) == list(range(1, n + 1))
        else None
    )


class _Worker:
    """A process that grades one row at a time. It is ready when it has graded a known answer: what it then stumbles over is the row's."""

    def __init__(self, owner, grader):
        import multiprocessing
        import time

        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["decksmith.benchmarks.grading", *PRELOAD.get(grader, ())]
        )  # once, not once a process
        started = time.monotonic()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, grader), daemon=True)
        self.process.start()
        theirs.close()
        owner.all.append(self)
        try:
            kind, value = self.ask("ready", None, START)
        except (TimeoutError, EOFError, OSError):
            self.end()
            raise Fault(
                "judge",
                "grader-start",
                f"no {grader} grader was ready within {START} s; the machine may be too busy",
            ) from None
        if kind == "stop":
            raise cli.Missing(value)
        self.took = time.monotonic() - started

    def ask(self, question, own, seconds):
        """The answer to a question; `own`: its CPU seconds, after which the process ends itself. Raises TimeoutError after `seconds`."""
        self.pipe.send((question, own))
        if not self.pipe.poll(seconds):
            raise TimeoutError
        return self.pipe.recv()

    def end(self):
        self.process.kill()
        self.process.join()


def blamed(cls, message, **more):
    """The grade of an answer that no grader can evaluate: it is wrong, and what was the matter stands in detail.fault."""
    return {
        "verdict": "wrong",
        "answer": UNREAD,
        "detail": {"fault": {"kind": "model", "class": cls, "message": message, **more}},
    }


def _serve(pipe, grader):
    import resource
    import signal
    import sys

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(
        signal.SIGPROF, signal.SIG_DFL
    )  # which ends the process, also within one long step of C
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


def _answered(grader, question):
    """What a process says to a question: `(kind, value)`."""
    try:
        if question == "ready":
            return "value", _ready(grader)
        return "value", grade(*question)
    except Fault as fault:
        return "fault", (fault.error["class"], fault.error["message"])
    except cli.Stop as stop:
        return "stop", str(stop)
    except ImportError as error:
        return "stop", f"the {grader} grader needs a package that is not here: {error}"
    except Exception as error:  # a bug, or what a library makes of a strange answer
        said = f"{type(error).__name__}: {str(error)[:300]}"
    try:  # the same row with a plain reply: is it the row or the answer?
        grade(*question[:2], f"\\boxed{{{question[1]['expected']}}}")
    except Exception:
        return "fault", ("grader-error", said)
    return "value", blamed("crashes-grader", f"its answer breaks a grader ({said})")


def _ready(grader):
    """Grades a known answer, which also makes the caches that a first row would otherwise pay for."""
    if grader == "math" and not math.same("\\frac{x}{2}+1", "1+0.5x"):
        raise cli.Missing(
            "math-verify does not find x/2 + 1 and 1 + 0.5x equal; the pinned packages are in uv.lock"
        )
    if grader == "instructions":
        from decksmith.benchmarks.graders import instructions

        with contextlib.suppress(cli.Missing):  # the first row says so
            instructions.warm()


PRELOAD = {"math": ["math_verify"], "instructions": ["decksmith.benchmarks.graders.harnesses"]}


def rules(spec, task):
    """Which rules grade a row: our version of them, and the harness with its version where one does. Raises cli.BadData, cli.Missing."""
    if spec["grader"] == "code":
        return f"{VERSION}: {harness}" if (harness := code.harness(task)) else VERSION
    if spec["grader"] != "instructions":
        return VERSION
    from decksmith.benchmarks.graders import instructions

    return f"{VERSION}: {instructions.rules(task)}"


# Graders: (spec, task, text) -> {"verdict", "answer", "score", "detail"}


def grade(spec, task, text):
    """The grade of one reply, in this process. Raises Fault for what cannot be decided."""
    return GRADERS[spec["grader"]](spec, task, text)


def _verdict(answer, right, **more):
    return {
        "verdict": "no_answer" if answer is None else "right" if right else "wrong",
        "answer": answer,
        **more,
    }


def _math(spec, task, text):
    answer = math.final(text, spec.get("extract"))
    return _verdict(
        answer and (math.plain(answer) or answer),
        bool(answer) and math.same(str(task["expected"]), answer),
    )


def _choice(spec, task, text):
    answer = choice.letter(text, tasks.LETTERS[: len(task["fields"]["choices"])])
    return _verdict(answer, answer == task["expected"])


def _instructions(spec, task, text):
    from decksmith.benchmarks.graders import instructions

    return instructions.grade(task, text)


def _exact(spec, task, text):
    answer = math.final(text, spec.get("extract")) if spec.get("extract") else text.strip()

    def folded(value):
        return " ".join(str(value).casefold().split()).strip(".")

    wanted = task["expected"] if isinstance(task["expected"], list) else [task["expected"]]
    return _verdict(answer, answer is not None and folded(answer) in map(folded, wanted))


def _contains(spec, task, text):
    wanted = task["expected"] if isinstance(task["expected"], list) else [task["expected"]]
    found = [
        bool(re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", text, re.I)) for value in wanted
    ]
    return {
        "verdict": "right" if all(found) else "wrong",
        "score": sum(found) / len(found),
        "answer": None,
        "detail": {"found": found},
    }


GRADERS = {
    "math": _math,
    "choice": _choice,
    "instructions": _instructions,
    "exact": _exact,
    "contains": _contains,
    "code": code.grade,
}


def jobs():
    return max(1, min(8, len(os.sched_getaffinity(0))))
