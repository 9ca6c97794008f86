"""Results of other harnesses as graded rows of ours, so that tables, intervals and the gate read them.

A reader takes a folder or a file and yields records as bench-grade prints them; one function for each harness.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, cast

from decksmith.bench.benchmarks import grading, sources, tasks
from decksmith.bench.benchmarks import gym as verifiers
from decksmith.bench.benchmarks.records import BenchmarkSpec, BenchRecord, Grade, Task
from decksmith.core import cli
from decksmith.core.records import Error, Record, expanded
from decksmith.core.stream import Fault
from decksmith.models.records import Gen

SEED = re.compile(r"output-rs(\d+)\.jsonl\Z")
PART = re.compile(r"output.*_chunk_\d+\.jsonl\Z")


class Followed(TypedDict):
    follow_all_instructions: bool
    follow_instruction_list: list[bool]


class SkillsRow(TypedDict, total=False):
    """A row of NeMo-Skills, as far as it is read here; what else it holds goes into the fields."""

    generation: str | None
    reasoning_content: str
    finish_reason: str
    num_input_tokens: int
    num_generated_tokens: int
    generation_start_time: float
    generation_time: float
    problem: str
    question: str
    expected_answer: object
    predicted_answer: str | None
    subset_for_metrics: str
    judgement: str
    graded_list: list[bool]
    strict_eval: Followed
    loose_eval: Followed


TASK = {"problem", "question", "expected_answer", "generation", "subset_for_metrics"}


def skills(folder: Path, bench: str, model: str, ungraded: bool = False) -> Iterator[BenchRecord]:
    """NeMo-Skills' outputs of one benchmark, `FOLDER/output.jsonl` or `FOLDER/output-rsSEED.jsonl`: their verdicts as grades, or with
    `ungraded` none, for bench-grade to make. `bench`: which of our benchmarks it is.

    What a prompt was is not in these files, so that such rows are compared with other rows of theirs only. Raises cli.Missing,
    cli.BadData naming the file and the line.
    """
    spec = tasks.load(bench)
    files = _outputs(Path(folder))
    passes = [sources.parsed(str(path), path.read_bytes()) for path in files]
    lengths = {len(rows) for rows in passes}
    if len(lengths) > 1:
        said = ", ".join(
            f"{path.name}: {len(rows)}" for path, rows in zip(files, passes, strict=True)
        )
        raise cli.BadData(f"{folder}: each seed has all questions, but here are {said} rows")
    scores = []
    for number in range(lengths.pop()):
        for k, made in enumerate(expanded({"id": f"{bench}-{number + 1:05d}"}, len(files))):
            row, where = passes[k][number], f"{files[k]}:{number + 1}"
            if not isinstance(row, dict) or not isinstance(row.get("generation"), str | None):
                raise cli.BadData(f"{where}: a row of NeMo-Skills is an object with a generation")
            record = _record(made, cast(SkillsRow, row), spec, model)
            if not ungraded:
                record["grade"] = _grade(cast(SkillsRow, row), spec, where)
                scores.append(record["grade"]["score"])
            yield record
    _said(Path(folder), bench, scores)


def _outputs(folder: Path) -> list[Path]:
    """The files of a folder's passes, by seed."""
    whole = [folder / "output.jsonl"] if (folder / "output.jsonl").is_file() else []
    seeds = {
        int(match[1]): path
        for path in folder.glob("output-rs*.jsonl")
        if (match := SEED.match(path.name))
    }
    if whole and seeds:
        raise cli.BadData(
            f"{folder} has output.jsonl and output-rs*.jsonl; remove those of one run"
        )
    if parts := sorted(path.name for path in folder.glob("output*.jsonl") if PART.match(path.name)):
        raise cli.BadData(
            f"{folder} has parts that were not joined ({parts[0]}); let NeMo-Skills join them"
        )
    if not whole and not seeds:
        raise cli.Missing(
            f"{folder} has no output.jsonl and no output-rs*.jsonl; it is a folder eval-results/BENCHMARK of NeMo-Skills"
        )
    return whole or [seeds[seed] for seed in sorted(seeds)]


def _record(made: Record, row: SkillsRow, spec: BenchmarkSpec, model: str) -> BenchRecord:
    """The record of a row without its grade."""
    started, took = row.get("generation_start_time"), row.get("generation_time")
    by: Record = {"tool": "NeMo-Skills"}
    if isinstance(started, int | float) and isinstance(took, int | float):
        by |= {"at": datetime.fromtimestamp(started, UTC).isoformat(), "took": took}
    gen = {
        "text": row.get("generation") or "",
        "finish_reason": row.get("finish_reason"),
        "reasoning": row.get("reasoning_content"),
        "model": {"name": model, "slug": model},
        "usage": {
            "prompt_tokens": row.get("num_input_tokens"),
            "completion_tokens": row.get("num_generated_tokens"),
        },
        "by": by,
    }
    fields = {
        key: value
        for key, value in row.items()
        if key not in TASK and isinstance(value, str | int | float) and not isinstance(value, bool)
    }
    asked = row.get("problem", row.get("question"))
    task: Task = {
        "bench": spec["name"],
        "split": None,
        "fields": {**fields, "problem": asked} if asked is not None else fields,
        "expected": row.get("expected_answer"),
        "subset": row.get("subset_for_metrics"),
        "revision": "NeMo-Skills",
    }
    return {"id": made["id"], "task": task, "gen": cast(Gen, {**gen, **made.get("gen", {})})}


def _grade(row: SkillsRow, spec: BenchmarkSpec, where: str) -> Grade:
    """Their verdict on a row as a grade. Raises cli.BadData for a row that has none."""
    answer, right = row.get("predicted_answer"), _verdict(row, spec)
    if right is None:
        raise cli.BadData(
            f"{where}: no verdict in this row; --ungraded leaves it to bench-grade, or let NeMo-Skills evaluate it"
        )
    silent = "predicted_answer" in row and answer is None and not right
    evaluated = {"strict": row.get("strict_eval"), "loose": row.get("loose_eval")}
    return {
        "verdict": "right" if right else "no_answer" if silent else "wrong",
        "score": float(right),
        "answer": answer,
        "truncated": row.get("finish_reason") == "length",
        "detail": {
            how: found["follow_instruction_list"] for how, found in evaluated.items() if found
        },
        "rules": "NeMo-Skills",
    }


def _verdict(row: SkillsRow, spec: BenchmarkSpec) -> bool | None:
    """What their evaluators wrote into a row: a judge's verdict, a math comparison, tests or instructions."""
    if "judgement" in row:
        return bool(grading.judgement(str(row["judgement"])))
    names = ["symbolic_correct", "is_correct"]
    if spec["name"].endswith("-plus"):
        names.insert(0, "is_correct-plus")
    found = {name: bool(value) for name, value in row.items() if name in names}
    for name in names:
        if name in found:
            return found[name]
    if row.get("graded_list"):
        return bool(row["graded_list"][0])
    return row["strict_eval"]["follow_all_instructions"] if "strict_eval" in row else None


def _said(folder: Path, bench: str, scores: list[float]) -> None:
    """Say whether the mean of these rows is the one in their metrics.json, where there is one."""
    try:
        modes = next(iter(json.loads((folder / "metrics.json").read_text()).values()))
    except (OSError, ValueError, AttributeError, StopIteration):
        return
    if not scores or not isinstance(modes, dict):
        return
    mean = 100 * sum(scores) / len(scores)
    theirs = [
        (name, value)
        for mode, found in modes.items()
        if mode.startswith("pass@1") and isinstance(found, dict)
        for name, value in found.items()
        if isinstance(value, int | float) and re.search("correct|accuracy|passing", name)
    ]
    if any(abs(value - mean) < 0.01 for _, value in theirs):
        cli.say(f"{bench}: {mean:.2f} %, as in their metrics.json")
    else:
        shown = ", ".join(f"{name} {value}" for name, value in theirs) or "nothing of the kind"
        cli.say(f"{bench}: these rows come to {mean:.2f} %; their metrics.json has {shown}")


def gym(path: Path, bench: str, model: str, ungraded: bool = False) -> Iterator[BenchRecord]:
    """Rollouts of NeMo Gym's collector, a file of them: rewards as grades, or with `ungraded` none. Rows come by task, and a task's
    rollouts are its samples.

    Raises cli.BadData naming file and line of a row that is no rollout.
    """
    spec = tasks.load(bench)
    by_task: dict[int, list[tuple[str, Record]]] = {}
    for number, row in enumerate(sources.parsed(str(path), Path(path).read_bytes()), 1):
        where = f"{path}:{number}"
        task = row.get("_ng_task_index") if isinstance(row, dict) else None
        if not isinstance(task, int) or not isinstance(row.get("response"), dict):
            raise cli.BadData(f"{where}: a rollout has _ng_task_index and response; this has not")
        by_task.setdefault(task, []).append((where, row))
    for task, some in sorted(by_task.items()):
        some.sort(key=lambda one: one[1].get("_ng_rollout_index") or 0)
        base = {"id": f"{bench}-{task + 1:05d}"}
        for made, (where, row) in zip(expanded(base, len(some)), some, strict=True):
            record = _rollout(made, row, spec, model, where)
            if not ungraded:
                try:
                    record["grade"] = verifiers.graded(_verified(row)) | {"rules": "NeMo Gym"}
                except Fault as fault:
                    record["grade"] = {"error": cast(Error, fault.error)}
            yield record


def _verified(row: Record) -> verifiers.Verification:
    """What a verifier said in a rollout; the request and the reply stand elsewhere in it."""
    plain = {key: value for key, value in row.items() if not isinstance(value, dict | list)}
    return cast(verifiers.Verification, plain)


def _rollout(made: Record, row: Record, spec: BenchmarkSpec, model: str, where: str) -> BenchRecord:
    """The record of a rollout without its grade; its text is that of its last message."""
    response = row["response"]
    usage = response.get("usage") or {}
    asked = row.get("responses_create_params") or {}
    try:
        messages = [one for one in response.get("output") or () if one.get("type") == "message"]
        parts = messages[-1].get("content") or () if messages else ()
        cut = (response.get("incomplete_details") or {}).get("reason") == "max_output_tokens"
        counts = [usage.get(f"{kind}_tokens") for kind in ("input", "output")]
        said = verifiers.chat(asked.get("input") or [], asked.get("instructions"))
        text = "".join(part.get("text") or "" for part in parts)
    except (cli.BadData, AttributeError, TypeError) as error:
        raise cli.BadData(f"{where}: {error}") from None
    gen = {
        "text": text,
        "finish_reason": "length" if cut else "stop",
        "reasoning": "",
        "model": {"name": model, "slug": response.get("model") or model},
        "usage": dict(zip(("prompt_tokens", "completion_tokens"), counts, strict=True)),
        "by": {"tool": "NeMo Gym"},
    }
    task: Task = {
        "bench": spec["name"],
        "split": None,
        "fields": {"question": said[-1]["content"]} if said else {},
        "expected": None,
        "subset": None,
        "revision": "NeMo Gym",
    }
    reply = cast(Gen, {**gen, **made.get("gen", {})})
    return {"id": made["id"], "task": task, "messages": said, "gen": reply}


READERS: dict[str, Callable[[Path, str, str, bool], Iterator[BenchRecord]]] = {
    "gym": gym,
    "skills": skills,
}
