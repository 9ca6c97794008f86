"""Benchmarks of NeMo Gym: their own rows and prompts, and verdicts by their official verifiers.

The verifiers live in .venv-gym, another Python (`make .venv-gym`). A worker (assets/gym/gym_worker.py) holds
them and is asked by JSON lines. assets/gym.toml says what there is: `make gym-table`
writes it from the wheel.
"""

import asyncio
import contextlib
import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TypedDict, cast

from decksmith.bench.benchmarks.records import BenchmarkSpec, Grade, Sampling
from decksmith.core import cells, cli, config_files, stream
from decksmith.core.records import Record
from decksmith.core.stream import Fault

WORKER = cli.ROOT / "assets/gym/gym_worker.py"
START = 300.0  # seconds for a verifier to be imported, on a busy machine too
SECONDS = 60.0  # for one verdict; what a judge takes is not counted
MOST = 64 << 20  # bytes of a line
SHOWN = 2000  # characters of a text of the verifier's that is kept in a grade
WHY_NOT = {
    "turns": "an agent of several turns; Gym's own collector plays it, and bench-import reads its rollouts",
    "audio": "it asks with sound, which chat-generate does not send",
    "pictures": "it asks with pictures",
    "sandbox": "its verifier runs what a reply holds beside what it expects, where the reply can read it",
}


class GymFact(TypedDict):
    """What the table says of a benchmark."""

    licence: str
    server: str
    needs: list[str]
    packages: list[str]
    elsewhere: bool  # it needs packages that PyPI does not have
    repeats: int
    tested: bool


class GymTable(TypedDict):
    version: str  # of the wheel
    benchmarks: dict[str, GymFact]


def table() -> GymTable:
    """What assets/gym.toml says."""
    return cast(GymTable, config_files.asset("gym.toml"))


def description(name: str) -> Record:
    """The description of a benchmark of Gym. Raises cli.BadConfig for a name that it does not have."""
    row = _row(name)
    return {
        "title": f"{name} (NeMo Gym {table()['version']})",
        "source": {"gym": name},
        "licence": row["licence"],
        "grader": "gym",
        "samples": row["repeats"],
    }


def _row(name: str) -> GymFact:
    """What the table says of a benchmark."""
    if found := table()["benchmarks"].get(name):
        return found
    said = f"NeMo Gym {table()['version']} has no benchmark {name!r}"
    raise cli.BadConfig(f"{said}; `bench-prepare --list` shows all")


def judged_by(name: str) -> bool:
    """Whether its verifier may ask a judge."""
    return "judge" in _row(name)["needs"]


def lack(name: str) -> str | None:
    """Why a benchmark cannot run here, None where it can; that it needs a judge is no lack."""
    row = _row(name)
    for need in row["needs"]:
        if need in WHY_NOT:
            return WHY_NOT[need]
    if row["elsewhere"]:
        return "its verifier needs packages that PyPI does not have"
    if not row["tested"]:
        return "no test of ours vouches for its verifier"
    return None


def listed() -> Iterator[list[str]]:
    """Lines for people: name, server, licence, samples, what it needs, whether it runs here."""
    for name, row in table()["benchmarks"].items():
        known = [row["server"] or "-", row["licence"], str(row["repeats"])]
        here = lack(name) or ("runs" if python().exists() else "runs after `make .venv-gym`")
        yield [f"gym-{name}", *known, ",".join(row["needs"]) or "-", here]


def python() -> Path:
    """The interpreter of the toolchain."""
    named = os.environ.get("DECKSMITH_GYM_PYTHON")
    return Path(named) if named else cli.ROOT / ".venv-gym" / "bin" / "python3"


def command(*words: str) -> list[str]:
    """The worker's command line. Raises cli.Missing without its toolchain."""
    if not python().exists():
        raise cli.Missing("NeMo Gym's verifiers are not here; `make .venv-gym` installs them")
    return [str(python()), str(WORKER), *words]


# Rows


class ResponseItem(TypedDict, total=False):
    """Of the input of a Responses API request: a message, or what cannot be shown here."""

    type: str
    role: str
    content: str | list[dict[str, str]]


def revision() -> str:
    """Of its rows: the version of the wheel."""
    return f"nemo-gym {table()['version']}"


def records(spec: BenchmarkSpec, path: Path | None) -> Iterator[Record]:
    """Our records of a benchmark's rows, with the messages that its prompt makes of them. path: rows in
    Gym's format; None: the benchmark's own preparation is run. Raises cli.Missing for what cannot run
    here, cli.TryAgain where its preparation fails, cli.BadData for a row that does not fit."""
    name, ours = spec["source"]["gym"], spec["name"]
    own = f"data/bench/{ours}/gym.jsonl"
    if why := lack(name):
        raise cli.Missing(f"{ours}: {why}")
    words = command("prepare", name, *([str(path.resolve())] if path else []))
    ran = subprocess.run(words, capture_output=True, text=True, cwd=WORKER.parent)
    if ran.returncode:
        said = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1][:500]
        if path:
            raise cli.BadData(f"{ours}: {said}")
        failed = f"its own preparation failed ({said})"
        raise cli.TryAgain(f"{ours}: {failed}; rows that you have go to {own}")
    for number, line in enumerate(ran.stdout.splitlines(), 1):
        row = json.loads(line)
        params = row.pop("responses_create_params")
        if params.get("tools"):
            raise cli.BadData(f"{ours}: row {number} offers tools, which is not asked here")
        messages = chat(params["input"], params.get("instructions"))
        task = {
            "bench": ours,
            "split": None,
            "fields": {"question": messages[-1]["content"]},
            "expected": row,
            "subset": None,
            "revision": revision(),
        }
        yield {"id": f"{ours}-{number:05d}", "task": task, "messages": messages}


def chat(asked: str | list[ResponseItem], instructions: str | None = None) -> list[Record]:
    """Messages of the chat completions API for the input of a Responses API request.
    Raises cli.BadData for an item that is no message of text."""
    said = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(asked, str):
        return [*said, {"role": "user", "content": asked}]
    for item in asked:
        role = "system" if item.get("role") == "developer" else item.get("role")
        if role is None or item.get("content") is None:
            raise cli.BadData(f"an item of type {item.get('type')!r} is no message of text")
        said.append({"role": role, "content": _words(item["content"])})
    return said


def _words(content: str | list[dict[str, str]]) -> str:
    """The text of a message's content. Raises cli.BadData for a part that is no text."""
    if isinstance(content, str):
        return content
    for part in content:
        if "text" not in part:
            raise cli.BadData(f"a part of type {part.get('type')!r} is no text")
    return "".join(part["text"] for part in content)


# Verdicts


class JudgeBody(TypedDict, total=False):
    """Of a verifier's request to its judge, of either API."""

    messages: list[Record]
    input: str | list[ResponseItem]
    instructions: str | None
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    max_output_tokens: int | None


Ask = Callable[[JudgeBody], Awaitable[str]]


class Verification(TypedDict, total=False):
    """What a verifier said of a row; it may say more."""

    failed: str  # in place of all others
    reward: float
    mask_sample: bool
    failure_reason: str
    failure_kind: str
    extracted_answer: str | None


class Verifiers:
    """Grades by workers that stay warm, `jobs` at once; `seconds` for a row."""

    def __init__(self, jobs: int, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.slots = asyncio.Semaphore(jobs)
        self.idle: list[_VerifierProcess] = []

    async def grade(self, name: str, row: Record, text: str, cut: bool, ask: Ask) -> Grade:
        """`{"verdict", "score", "answer", "detail"}` of a reply to a row of benchmark `name`; `ask` answers the
        verifier's requests to a judge. Raises Fault where there is no verdict: a worker that hangs
        or dies is replaced."""
        async with self.slots:
            worker = self.idle.pop() if self.idle else await _VerifierProcess.start()
            try:
                await worker.open(name)
                order = {"bench": name, "row": row, "text": text, "cut": cut}
                said = await worker.verify(order, ask, self.seconds)
            except BaseException:
                await worker.end()
                raise
            self.idle.append(worker)
        return graded(said)

    async def close(self) -> None:
        for worker in self.idle:
            await worker.end()


def graded(said: Verification) -> Grade:
    """The grade that a verifier's answer is. Raises Fault for a sample that it masks, and for a
    reward that is no number."""
    if "failed" in said:
        raise Fault("judge", "verifier-error", f"the verifier: {said['failed']}")
    reward = said.get("reward")
    if said.get("mask_sample"):
        why = said.get("failure_reason") or "its verifier says that this reward measures nothing"
        raise Fault("judge", said.get("failure_kind") or "masked", str(why)[:SHOWN])
    if not isinstance(reward, int | float):
        raise Fault("judge", "verifier-garbage", f"the verifier's reward is {reward!r}")
    answer = said.get("extracted_answer")
    silent = "extracted_answer" in said and answer is None and reward <= 0
    # Nested values hold whole requests to a judge, which its journal has.
    detail = {
        key: value[:SHOWN] if isinstance(value, str) else value
        for key, value in said.items()
        if isinstance(value, str | int | float) and key not in ("mask_sample", "extracted_answer")
    }
    return {
        "verdict": "no_answer" if silent else "right" if reward >= 1 else "wrong",
        "score": min(1.0, max(0.0, float(reward))),
        "answer": answer if isinstance(answer, str) else None,
        "detail": detail,
    }


@functools.cache
def shown(python: Path) -> list[Path]:
    """What a verifier's process may read besides WORKER and the system's programs: the toolchain, and what its Python imports from."""
    ask = "import sys; print(sys.prefix, sys.base_prefix, sys.executable, *sys.path, sep=chr(10))"
    ran = subprocess.run([python, "-P", "-c", ask], capture_output=True, text=True, check=True)
    places = [str(python), *ran.stdout.splitlines()]
    return sorted(map(Path, {*places, *(step for place in places for step in cells.links(place))}))


@functools.cache
def walls(python: Path) -> cells.Walls:
    """The strongest walls in which the toolchain's Python runs here. Raises as cells.granted does."""
    return cells.granted([python, "-c", ""], shown(python), "NeMo Gym's verifiers")


class _VerifierProcess:
    """A process that holds a verifier, in a cell: replies are a stranger's texts, and some verifiers evaluate them."""

    def __init__(self, process: asyncio.subprocess.Process, home: Path) -> None:
        assert process.stdin and process.stdout, "they are pipes"
        self.process, self.stdin, self.stdout = process, process.stdin, process.stdout
        self.home = home
        self.benchmarks: set[str] = set()  # whose verifiers it has loaded

    @classmethod
    async def start(cls) -> "_VerifierProcess":
        words = command("verify")
        around = await asyncio.to_thread(walls, python())
        home = Path(tempfile.mkdtemp(prefix="decksmith-gym-"))
        process = await asyncio.create_subprocess_exec(
            *cells.enclosed(around, home, words, [*shown(python()), WORKER]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "HOME": str(home), "TMPDIR": str(home), "HF_HUB_OFFLINE": "1"},
            limit=MOST,
            start_new_session=True,
        )
        return cls(process, home)

    async def open(self, name: str) -> None:
        """Load a benchmark's verifier, once."""
        if name not in self.benchmarks:
            self._tell({"bench": name})
            if (await self._heard(START)).get("ready") != name:
                raise Fault("judge", "verifier-garbage", "its first words are not that it is ready")
            self.benchmarks.add(name)

    async def verify(self, order: Mapping[str, object], ask: Ask, seconds: float) -> Verification:
        """What the verifier says of a row, or `{"failed": ..}`, after which it goes on."""
        self._tell(order)
        while True:
            found = await self._heard(seconds)
            if "ask" in found:
                self._tell({"answer": await ask(found["ask"])})
                continue
            said = found if "failed" in found else found.get("said")
            if not isinstance(said, dict):
                raise Fault("judge", "verifier-garbage", f"the verifier said {str(found)[:200]}")
            return cast(Verification, said)

    def _tell(self, value: Mapping[str, object]) -> None:
        self.stdin.write(stream.dumps(value) + b"\n")

    async def _heard(self, seconds: float) -> Record:
        """The next line. Raises Fault where none comes in time, the process ends, or it is no object."""
        try:
            line = await asyncio.wait_for(self.stdout.readline(), seconds)
            found = json.loads(line or "null")
        except TimeoutError:
            said = f"the verifier took more than {seconds:g} s"
            raise Fault("judge", "verifier-timeout", said) from None
        except (json.JSONDecodeError, UnicodeDecodeError):
            found = None
        except ValueError:  # of readline
            raise Fault("judge", "verifier-garbage", f"a line of over {MOST >> 20} MiB") from None
        if not line:
            code = await self.process.wait()
            raise Fault("judge", "verifier-crash", f"the verifier's process ended ({code})")
        if not isinstance(found, dict):
            raise Fault("judge", "verifier-garbage", f"the verifier said {line[:200]!r}")
        return found

    async def end(self) -> None:
        """Kill it and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        await self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)


def judged(body: JudgeBody) -> tuple[list[Record], Sampling]:
    """`(messages, sampling)` of a verifier's request to its judge."""
    messages = body.get("messages")
    if messages is None:
        messages = chat(body["input"], body.get("instructions"))
    asked = {
        "temperature": body.get("temperature"),
        "top_p": body.get("top_p"),
        "max_tokens": body.get("max_output_tokens") or body.get("max_tokens") or None,
    }
    return messages, {key: value for key, value in asked.items() if value is not None}
