"""Our results as logs of Inspect, in which a task is a benchmark of ours under its own name, since prompts and graders are ours too."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from decksmith import __version__
from decksmith.bench.benchmarks import metrics, tasks
from decksmith.bench.benchmarks.metrics import BenchSummary
from decksmith.bench.benchmarks.records import BenchRecord, Grade
from decksmith.core import cli, stream
from decksmith.core.records import Record, prompt_of, sample_of
from decksmith.measure.results import inspect_log
from decksmith.models.records import Gen


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
    summary: BenchSummary, samples: list[Record], model: str, records: list[BenchRecord]
) -> Record:
    """What was evaluated, and the score."""
    started, ended = inspect_log.span(cast(list[Record], records))
    spec = tasks.of(records[0]["task"])
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
