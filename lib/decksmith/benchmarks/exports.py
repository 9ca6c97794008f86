"""Graded benchmarks as the files that lm-eval writes: OUT/MODEL/results_TIME.json and samples_TASK_TIME.jsonl.

The layout is that of lm-eval 0.4.13 (its evaluation tracker). A task is a benchmark of ours under its own name, since prompts and
graders are ours too; rows without a grade are left out, and `n-samples` says how many stayed.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from decksmith import __version__
from decksmith.benchmarks import metrics, tasks
from decksmith.core import cli, stream
from decksmith.core.records import Record

Results = dict[str, metrics.Questions]


def lm_eval(out: Path, folder: Path) -> Iterator[Path]:
    """Write a model's results (metrics.load) into `out`; yields the files. Equal rows give equal bytes.

    Raises cli.Missing where the folder has no graded benchmark, cli.BadData where it holds several models.
    """
    results = metrics.load(folder)
    summaries = {
        name: metrics.summarize(questions, tasks.size(name, questions))
        for name, questions in results.items()
    }
    models = {(one["model"] or {}).get("slug") or Path(folder).name for one in summaries.values()}
    if len(models) > 1:
        raise cli.BadData(f"{folder} has results of {', '.join(sorted(models))}; export each apart")
    model = models.pop()
    start, end = _span(results)
    stamp = start.replace(tzinfo=None).isoformat(timespec="microseconds").replace(":", "-")
    home = Path(out) / re.sub(r'["<>:/|\\?*\[\]]+', "__", model)
    samples = {name: list(_samples(summaries[name], results[name])) for name in results}
    whole = _whole(summaries, samples, model, start, end)
    path = home / f"results_{stamp}.json"
    stream.write(path, json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
    yield path
    for name, rows in samples.items():
        path = home / f"samples_{name}_{stamp}.jsonl"
        stream.write(path, b"".join(stream.dumps(row) + b"\n" for row in rows))
        yield path


def _whole(
    summaries: dict[str, Record],
    samples: dict[str, list[Record]],
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
            f"{metric},none": mode[metric],
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
        "model_name_sanitized": re.sub(r'["<>:/|\\?*\[\]]+', "__", model),
        "total_evaluation_time_seconds": str((end - start).total_seconds()),
    }


def _config(name: str, summary: Record) -> Record:
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


def _samples(summary: Record, questions: metrics.Questions) -> Iterator[Record]:
    """The rows of samples_TASK_TIME.jsonl, a question each; several replies to it stand in one."""
    metric, means = summary["metric"], metrics.means(questions)
    for number, (ident, samples) in enumerate(questions.items()):
        if ident not in means:
            continue
        first = samples[0]
        gens = [record.get("gen") or {} for record in samples]
        grades = [record.get("grade") or {} for record in samples]
        doc = {"id": ident, **first["task"]["fields"]}
        target = stream.dumps(first["task"].get("expected")).decode()
        prompt = stream.dumps(first.get("messages") or []).decode()
        yield {
            "doc_id": number,
            "doc": doc,
            "target": target,
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": gens[0].get("sampling") or {}}},
            "resps": [[gen.get("text") or "" for gen in gens]],
            "filtered_resps": [str(grade.get("answer") or "") for grade in grades],
            "filter": "none",
            "metrics": [metric],
            "doc_hash": _hash(stream.dumps(doc).decode()),
            "prompt_hash": _hash(prompt),
            "target_hash": _hash(target),
            metric: means[ident],
        }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _span(results: Results) -> tuple[datetime, datetime]:
    """When the first request was made and the last was answered; the epoch where no record says."""
    spans = [
        (start, start + timedelta(seconds=by.get("took") or 0))
        for questions in results.values()
        for samples in questions.values()
        for record in samples
        if (by := (record.get("gen") or {}).get("by") or {}).get("at")
        and (start := datetime.fromisoformat(by["at"]))
    ]
    unknown = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return min((s for s, _ in spans), default=unknown), max((e for _, e in spans), default=unknown)
