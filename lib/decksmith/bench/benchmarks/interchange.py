"""Results of other harnesses as graded rows of ours, so that tables, intervals and the gate read them; and ours as their files, in
which a task is a benchmark of ours under its own name, since prompts and graders are ours too.

A reader yields records as bench-grade prints them, a writer the files that it wrote; one function for each form.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, cast

from decksmith import __version__
from decksmith.bench.benchmarks import grading, metrics, sources, tasks
from decksmith.bench.benchmarks import gym as verifiers
from decksmith.bench.benchmarks.metrics import BenchSummary
from decksmith.bench.benchmarks.records import BenchmarkSpec, BenchRecord, Grade, Task
from decksmith.core import cli, stream
from decksmith.core.records import Error, Record, expanded, prompt_of, sample_of
from decksmith.core.stream import Fault
from decksmith.measure.results import inspect_log
from decksmith.models.records import Gen

USAGE = ("prompt_tokens", "completion_tokens")
SEED = re.compile(r"output-rs(\d+)\.jsonl\Z")


def _answered(
    made: Record, spec: BenchmarkSpec, said: Record, model: str, slug: str, task: Record
) -> BenchRecord:
    """An ungraded record of somebody else's reply; made: its id, and which sample it is."""
    named = {"model": {"name": model, "slug": slug}}
    whole: Record = {"bench": spec["name"], "split": None, "expected": None, "subset": None}
    gen = cast(Gen, said | named | made.get("gen", {}))
    return {"id": made["id"], "task": cast(Task, whole | task), "gen": gen}


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
    `ungraded` none. What a prompt was is not in these files, so that such rows are compared with other rows of theirs only.

    bench: which of our benchmarks it is. Raises cli.Missing, cli.BadData naming the file and the line.
    """
    spec = tasks.load(bench)
    passes = {path: sources.parsed(str(path), path.read_bytes()) for path in _outputs(folder)}
    lengths = {len(rows) for rows in passes.values()}
    if len(lengths) > 1:
        said = ", ".join(f"{path.name}: {len(rows)}" for path, rows in passes.items())
        raise cli.BadData(f"{folder}: each seed has all questions, but here are {said} rows")
    scores = []
    for number in range(lengths.pop()):
        samples = expanded({"id": f"{bench}-{number + 1:05d}"}, len(passes))
        for made, (path, rows) in zip(samples, passes.items(), strict=True):
            row, where = rows[number], f"{path}:{number + 1}"
            if not isinstance(row, dict) or not isinstance(row.get("generation"), str | None):
                raise cli.BadData(f"{where}: a row of NeMo-Skills is an object with a generation")
            record = _skills_record(made, cast(SkillsRow, row), spec, model)
            if not ungraded:
                record["grade"] = _skills_grade(cast(SkillsRow, row), spec, where)
                scores.append(record["grade"]["score"])
            yield record
    _say_whether_equal(folder, bench, scores)


def _outputs(folder: Path) -> list[Path]:
    """The files of a folder's passes, by seed."""
    names = sorted(path.name for path in folder.glob("output*.jsonl"))
    whole = [name for name in names if name == "output.jsonl"]
    seeds = [name for name in names if SEED.match(name)]
    if whole and seeds:
        said = "output.jsonl and output-rs*.jsonl; remove those of one run"
        raise cli.BadData(f"{folder} has {said}")
    if parts := [name for name in names if re.search(r"_chunk_\d+\.jsonl\Z", name)]:
        said = f"parts that were not joined ({parts[0]}); let NeMo-Skills join them"
        raise cli.BadData(f"{folder} has {said}")
    if not whole and not seeds:
        said = "it is a folder eval-results/BENCHMARK of NeMo-Skills"
        raise cli.Missing(f"{folder} has no output.jsonl and no output-rs*.jsonl; {said}")
    seeds.sort(key=lambda name: int(name[len("output-rs") : -len(".jsonl")]))
    return [folder / name for name in whole or seeds]


def _skills_record(made: Record, row: SkillsRow, spec: BenchmarkSpec, model: str) -> BenchRecord:
    """The record of a row without its grade."""
    started, took = row.get("generation_start_time"), row.get("generation_time")
    by: Record = {"tool": "NeMo-Skills"}
    if isinstance(started, int | float) and isinstance(took, int | float):
        by |= {"at": datetime.fromtimestamp(started, UTC).isoformat(), "took": took}
    tokens = (row.get("num_input_tokens"), row.get("num_generated_tokens"))
    said = {
        "text": row.get("generation") or "",
        "finish_reason": row.get("finish_reason"),
        "reasoning": row.get("reasoning_content"),
        "usage": dict(zip(USAGE, tokens, strict=True)),
        "by": by,
    }
    fields = {key: value for key, value in row.items() if type(value) in (str, int, float)}
    fields = {key: value for key, value in fields.items() if key not in TASK}
    asked = row.get("problem", row.get("question"))
    task = {
        "fields": fields if asked is None else {**fields, "problem": asked},
        "expected": row.get("expected_answer"),
        "subset": row.get("subset_for_metrics"),
        "revision": "NeMo-Skills",
    }
    return _answered(made, spec, said, model, model, task)


def _skills_grade(row: SkillsRow, spec: BenchmarkSpec, where: str) -> Grade:
    """Their verdict on a row as a grade. Raises cli.BadData for a row that has none."""
    answer, right = row.get("predicted_answer"), _verdict(row, spec)
    if right is None:
        mend = "--ungraded leaves it to bench-grade, or let NeMo-Skills evaluate it"
        raise cli.BadData(f"{where}: no verdict in this row; {mend}")
    silent = "predicted_answer" in row and answer is None and not right
    evaluated = {"strict": row.get("strict_eval"), "loose": row.get("loose_eval")}
    return {
        "verdict": "right" if right else "no_answer" if silent else "wrong",
        "score": float(right),
        "answer": answer,
        "truncated": row.get("finish_reason") == "length",
        "detail": {how: it["follow_instruction_list"] for how, it in evaluated.items() if it},
        "rules": "NeMo-Skills",
    }


def _verdict(row: SkillsRow, spec: BenchmarkSpec) -> bool | None:
    """What their evaluators wrote into a row: a judge's verdict, a math comparison, tests or instructions."""
    if "judgement" in row:
        return bool(grading.judgement(str(row["judgement"])))
    names = ["symbolic_correct", "is_correct"]
    if spec["name"].endswith("-plus"):
        names.insert(0, "is_correct-plus")
    for name in names:
        if name in row:
            return bool(cast(Record, row)[name])
    if row.get("graded_list"):
        return bool(row["graded_list"][0])
    return row["strict_eval"]["follow_all_instructions"] if "strict_eval" in row else None


def _say_whether_equal(folder: Path, bench: str, scores: list[float]) -> None:
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
        shown = ", ".join(f"{name} {value}" for name, value in theirs)
        said = f"their metrics.json has {shown or 'nothing of the kind'}"
        cli.say(f"{bench}: these rows come to {mean:.2f} %; {said}")


def gym(path: Path, bench: str, model: str, ungraded: bool = False) -> Iterator[BenchRecord]:
    """Rollouts of NeMo Gym's collector, a file of them: rewards as grades, or with `ungraded` none. Rows come by task, and a task's
    rollouts are its samples. Raises cli.BadData naming file and line of a row that is no rollout."""
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
        samples = expanded({"id": f"{bench}-{task + 1:05d}"}, len(some))
        for made, (where, row) in zip(samples, some, strict=True):
            record = _rollout(made, row, spec, model, where)
            # The request and the reply stand elsewhere in it.
            said = {key: value for key, value in row.items() if not isinstance(value, dict | list)}
            if not ungraded:
                try:
                    grade = verifiers.graded(cast(verifiers.Verification, said))
                    record["grade"] = grade | {"rules": "NeMo Gym"}
                except Fault as fault:
                    record["grade"] = {"error": cast(Error, fault.error)}
            yield record


def _rollout(made: Record, row: Record, spec: BenchmarkSpec, model: str, where: str) -> BenchRecord:
    """The record of a rollout without its grade; its text is that of its last message."""
    response = row["response"]
    usage = response.get("usage") or {}
    asked = row.get("responses_create_params") or {}
    try:
        replies = [one for one in response.get("output") or () if one.get("type") == "message"]
        parts = replies[-1].get("content") or () if replies else ()
        cut = (response.get("incomplete_details") or {}).get("reason") == "max_output_tokens"
        tokens = (usage.get("input_tokens"), usage.get("output_tokens"))
        messages = verifiers.chat(asked.get("input") or [], asked.get("instructions"))
        text = "".join(part.get("text") or "" for part in parts)
    except (cli.BadData, AttributeError, TypeError) as error:
        raise cli.BadData(f"{where}: {error}") from None
    said = {
        "text": text,
        "finish_reason": "length" if cut else "stop",
        "reasoning": "",
        "usage": dict(zip(USAGE, tokens, strict=True)),
        "by": {"tool": "NeMo Gym"},
    }
    fields = {"question": messages[-1]["content"]} if messages else {}
    task = {"fields": fields, "revision": "NeMo Gym"}
    slug = response.get("model") or model
    return {**_answered(made, spec, said, model, slug, task), "messages": messages}


READERS: dict[str, Callable[[Path, str, str, bool], Iterator[BenchRecord]]] = {
    "gym": gym,
    "skills": skills,
}


def inspect(out: Path, folder: Path) -> Iterator[Path]:
    """Write a model's results (metrics.load) into `out` as logs of Inspect (results/inspect_log.py),
    OUT/MODEL_TASK.eval for each benchmark; yields the files. A row without a grade has an error and
    no score. Raises cli.Missing without a graded benchmark, cli.BadData for several models."""
    results = metrics.load(folder)
    summaries = {
        name: metrics.summarize(questions, tasks.size(name, questions))
        for name, questions in results.items()
    }
    asked = [summary["model"] for summary in summaries.values()]
    models = {model["slug"] if model else Path(folder).name for model in asked}
    if len(models) > 1:
        raise cli.BadData(f"{folder} has results of {', '.join(sorted(models))}; export each apart")
    model = models.pop()
    plain = re.sub(r'["<>:/|\\?*\[\]]+', "__", model)
    for name, questions in results.items():
        records = [record for samples in questions.values() for record in samples]
        samples = [_inspected(summaries[name], record) for record in records]
        header = _header(summaries[name], samples, model, records)
        path = Path(out) / f"{plain}_{name}.eval"
        stream.write(path, inspect_log.zipped(header, samples))
        yield path


def _header(
    summary: BenchSummary, samples: list[Record], model: str, records: Iterable[BenchRecord]
) -> Record:
    """What was evaluated, and the score."""
    started, ended = inspect_log.span(cast(list[Record], records))
    spec = tasks.load(summary["benchmark"])
    asked = stream.fingerprint([(one["id"], one["epoch"], one["output"]) for one in samples])
    sampling = summary["sampling"] or {}
    error = metrics.main_mode(summary)[1]["std_err"]
    values = {"mean": metrics.main_score(summary), "stderr": error}
    known = {key: value for key, value in values.items() if value is not None}
    score = {
        "name": summary["metric"],
        "scorer": f"decksmith/{spec['grader']}",
        "metrics": {key: {"name": key, "value": value} for key, value in known.items()},
    }
    usage = {f"{kind}_tokens": count for kind, count in summary["tokens"].items()}
    return {
        "version": inspect_log.VERSION,
        "status": "success",
        "eval": {
            "eval_id": asked[:22],
            "run_id": asked[22:44],
            "created": started,
            "task": spec["name"],
            "task_id": stream.fingerprint([spec["name"], model])[:22],
            "task_version": str(summary["revision"]),
            "dataset": {
                "name": spec["title"],
                "samples": summary["num_questions"],
                "sample_ids": list(dict.fromkeys(one["id"] for one in samples)),
            },
            "model": model,
            "model_generate_config": {
                key: sampling[key] for key in inspect_log.SAMPLING if key in sampling
            },
            "config": {"epochs": summary["samples"]},
            "packages": {"decksmith": __version__},
            "metadata": {"judge": summary["judge"], "rules": summary["rules"]},
        },
        "plan": {"name": "plan", "steps": [{"solver": "decksmith"}]},
        "results": {
            "total_samples": len(samples),
            "completed_samples": sum("error" not in one for one in samples),
            "scores": [score],
        },
        "stats": {
            "started_at": started,
            "completed_at": ended,
            "model_usage": {model: inspect_log.usage_of(usage, summary["cost"])},
        },
    }


def _inspected(summary: BenchSummary, record: BenchRecord) -> Record:
    """One reply as a sample of a log."""
    gen: Gen = record.get("gen") or {}
    grade, fault = record.get("grade") or cast(Grade, {}), metrics.fault_of(record)
    asked = [inspect_log.message_of(message) for message in record.get("messages") or []]
    reply = None if gen.get("error") or not gen else inspect_log.reply_of(gen)
    started, ended = inspect_log.span([cast(Record, record)])
    sample: Record = {
        "id": prompt_of(record),
        "epoch": sample_of(record) + 1,
        "input": asked,
        "target": stream.dumps(record["task"].get("expected")).decode(),
        "messages": [*asked, *([reply] if reply else [])],
        "output": inspect_log.output_of(gen, reply) if reply else {},
        "scores": {},
        "metadata": {
            "status": "excluded" if fault else grade["verdict"],
            "subset": record["task"].get("subset"),
        },
        "model_usage": {},
        "started_at": started,
        "completed_at": ended,
        "uuid": stream.fingerprint([record["id"], gen.get("text")])[:22],
    }
    if reply:
        sample["model_usage"] = {sample["output"]["model"]: sample["output"]["usage"]}
    if fault:
        words = f"{fault['kind']} fault, {fault['class']}: {fault.get('message', '')}"
        sample["error"] = {"message": words, "traceback": "", "traceback_ansi": ""}
    else:
        answer = None if grade.get("answer") is None else str(grade["answer"])
        sample["scores"][summary["metric"]] = {"value": grade["score"], "answer": answer}
    return sample
