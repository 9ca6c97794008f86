"""Graded benchmarks as the files of other harnesses, in which a task is a benchmark of ours under its own name, since prompts and
graders are ours too.

lm-eval: OUT/MODEL/results_TIME.json and samples_TASK_TIME.jsonl, laid out as lm-eval 0.4.13 does (its evaluation tracker); rows
without a grade are left out, and `n-samples` says how many stayed. Inspect: a log OUT/MODEL_TASK.eval for each benchmark
(results/inspect_log.py), in which a row without a grade has an error and no score.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypedDict, cast

from decksmith import __version__
from decksmith.bench.benchmarks import metrics, tasks
from decksmith.bench.benchmarks.metrics import BenchSummary, Results
from decksmith.bench.benchmarks.records import BenchRecord, Grade
from decksmith.core import cli, stream
from decksmith.core.records import Record, prompt_of, sample_of
from decksmith.measure.results import inspect_log
from decksmith.models.records import Gen

Summaries = dict[str, BenchSummary]  # by benchmark


class LmEvalSample(TypedDict):
    """A row of lm-eval's samples file; under the metric's own name it has the score."""

    doc_id: int
    doc_hash: str
    prompt_hash: str
    target_hash: str


def lm_eval(out: Path, folder: Path) -> Iterator[Path]:
    """Write a model's results (metrics.load) into `out`; yields the files. Equal rows give equal bytes.

    Raises cli.Missing where the folder has no graded benchmark, cli.BadData where it holds several models.
    """
    results, summaries, model = _loaded(folder)
    start, end = _span(results)
    stamp = start.replace(tzinfo=None).isoformat(timespec="microseconds").replace(":", "-")
    home = Path(out) / _plain(model)
    samples = {name: list(_samples(summaries[name], results[name])) for name in results}
    whole = _whole(summaries, samples, model, start, end)
    path = home / f"results_{stamp}.json"
    stream.write(path, json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
    yield path
    for name, rows in samples.items():
        path = home / f"samples_{name}_{stamp}.jsonl"
        stream.write(path, b"".join(stream.dumps(row) + b"\n" for row in rows))
        yield path


def _loaded(folder: Path) -> tuple[Results, Summaries, str]:
    """A model's results, their summaries, and what the model is called."""
    results = metrics.load(folder)
    summaries = {
        name: metrics.summarize(questions, tasks.size(name, questions))
        for name, questions in results.items()
    }
    asked = [one["model"] for one in summaries.values()]
    models = {model["slug"] if model else Path(folder).name for model in asked}
    if len(models) > 1:
        raise cli.BadData(f"{folder} has results of {', '.join(sorted(models))}; export each apart")
    return results, summaries, models.pop()


def _whole(
    summaries: Summaries,
    samples: dict[str, list[LmEvalSample]],
    model: str,
    start: datetime,
    end: datetime,
) -> Record:
    """The object of results_TIME.json."""
    found: Record = {"results": {}, "group_subtasks": {}, "configs": {}, "versions": {}}
    found |= {"n-shot": {}, "higher_is_better": {}, "n-samples": {}, "task_hashes": {}}
    for name, summary in summaries.items():
        metric, mode = summary["metric"], metrics.main_mode(summary)[1]
        found["results"][name] = {
            "alias": name,
            f"{metric},none": metrics.scored(mode, metric),
            f"{metric}_stderr,none": "N/A" if mode["std_err"] is None else mode["std_err"],
        }
        found["group_subtasks"][name] = []
        found["configs"][name] = _config(name, summary)
        found["versions"][name] = summary["revision"]
        found["n-shot"][name] = 0
        found["higher_is_better"][name] = {metric: True}
        found["n-samples"][name] = {
            "original": summary["rows"] or summary["num_questions"],
            "effective": len(samples[name]),
        }
        hashes = [
            row["doc_hash"] + row["prompt_hash"] + row["target_hash"] for row in samples[name]
        ]
        found["task_hashes"][name] = _hash("".join(hashes))
    return {
        **found,
        "config": {"model": "decksmith", "model_args": {"model": model}, "limit": None},
        "git_hash": None,
        "date": start.timestamp(),
        "decksmith_version": __version__,
        "model_source": "decksmith",
        "model_name": model,
        "model_name_sanitized": _plain(model),
        "total_evaluation_time_seconds": str((end - start).total_seconds()),
    }


def _config(name: str, summary: BenchSummary) -> dict[str, object]:
    """What a task was, as lm-eval says it of its own."""
    spec = tasks.load(name)
    return {
        "task": name,
        "dataset_path": spec["source"].get("hub") or spec["kind"],
        "dataset_name": spec["source"].get("config"),
        "test_split": spec["source"].get("split"),
        "description": spec["title"],
        "output_type": "generate_until",
        "repeats": summary["samples"],
        "generation_kwargs": summary["sampling"] or {},
        "metric_list": [
            {"metric": summary["metric"], "aggregation": "mean", "higher_is_better": True}
        ],
        "metadata": {"version": summary["revision"], "rules": summary["rules"]},
    }


def _samples(summary: BenchSummary, questions: metrics.Questions) -> Iterator[LmEvalSample]:
    """The rows of samples_TASK_TIME.jsonl, a question each; several replies to it stand in one."""
    metric, means = summary["metric"], metrics.means(questions)
    for number, (ident, samples) in enumerate(questions.items()):
        if ident not in means:
            continue
        first = samples[0]
        gens = [record["gen"] for record in samples if "gen" in record]
        grades = [record["grade"] for record in samples if "grade" in record]
        doc = {"id": ident, **first["task"]["fields"]}
        sampling = (gens[0].get("sampling") or {}) if gens else {}
        target = stream.dumps(first["task"].get("expected")).decode()
        prompt = stream.dumps(first.get("messages") or []).decode()
        made = {
            "doc_id": number,
            "doc": doc,
            "target": target,
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": sampling}},
            "resps": [[gen.get("text") or "" for gen in gens]],
            "filtered_resps": [str(grade.get("answer") or "") for grade in grades],
            "filter": "none",
            "metrics": [metric],
            "doc_hash": _hash(stream.dumps(doc).decode()),
            "prompt_hash": _hash(prompt),
            "target_hash": _hash(target),
            metric: means[ident],
        }
        yield cast(LmEvalSample, made)


def _plain(model: str) -> str:
    """A model's name as part of a path, as lm-eval writes it."""
    return re.sub(r'["<>:/|\\?*\[\]]+', "__", model)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _span(results: Results) -> tuple[datetime, datetime]:
    """When the first request was made and the last was answered; the epoch where no record says."""
    spans = [
        (start, start + timedelta(seconds=by.get("took") or 0))
        for questions in results.values()
        for samples in questions.values()
        for record in samples
        if (by := record.get("gen", {}).get("by"))
        and by.get("at")
        and (start := datetime.fromisoformat(by["at"]))
    ]
    unknown = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return min((s for s, _ in spans), default=unknown), max((e for _, e in spans), default=unknown)


# Inspect's logs


def inspect(out: Path, folder: Path) -> Iterator[Path]:
    """Write a model's results (metrics.load) as logs of Inspect into `out`; yields the files. Equal rows give equal bytes.

    Raises as `lm_eval` does.
    """
    results, summaries, model = _loaded(folder)
    for name, questions in results.items():
        records = [record for one in questions.values() for record in one]
        samples = [_inspected(summaries[name], record) for record in records]
        header = _header(summaries[name], samples, model, records)
        path = Path(out) / f"{_plain(model)}_{name}.eval"
        stream.write(path, inspect_log.zipped(header, samples))
        yield path


def _header(
    summary: BenchSummary, samples: list[Record], model: str, records: list[BenchRecord]
) -> Record:
    """What was evaluated, and the score."""
    started, ended = inspect_log.span(cast(list[Record], records))
    spec = tasks.load(summary["benchmark"])
    asked = stream.fingerprint([(one["id"], one["epoch"], one["output"]) for one in samples])
    sampling = summary["sampling"] or {}
    metric = summary["metric"]
    values = {
        "mean": metrics.main_score(summary),
        "stderr": metrics.main_mode(summary)[1]["std_err"],
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
            "scores": [
                {
                    "name": metric,
                    "scorer": f"decksmith/{spec['grader']}",
                    "metrics": {
                        key: {"name": key, "value": value}
                        for key, value in values.items()
                        if value is not None
                    },
                }
            ],
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
        answer = grade.get("answer")
        sample["scores"][summary["metric"]] = {
            "value": grade["score"],
            "answer": None if answer is None else str(answer),
        }
    return sample
