"""Our results elsewhere: as logs of Inspect, in which a task is a benchmark of ours under its own name, since prompts and
graders are ours too, and in the trackers that people keep their experiments in."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from decksmith.bench.benchmarks import metrics, tasks
from decksmith.bench.benchmarks.metrics import BenchSummary
from decksmith.bench.benchmarks.records import BenchRecord, Grade
from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.results import inspect_log


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
    spec, sampling = tasks.of(records[0]["task"]), summary["sampling"] or {}
    error = metrics.main_mode(summary)[1]["std_err"]
    values = {"mean": metrics.main_score(summary), "stderr": error}
    known = {key: value for key, value in values.items() if value is not None}
    score = {
        "name": summary["metric"],
        "scorer": f"decksmith/{spec['grader']}",
        "metrics": {key: {"name": key, "value": value} for key, value in known.items()},
    }
    evaluated: Record = {
        "task": spec["name"],
        "task_id": stream.fingerprint([spec["name"], model])[:22],
        "task_version": str(summary["revision"]),
        "dataset": {"name": spec["title"]},
        "model": model,
        "model_generate_config": {k: sampling[k] for k in inspect_log.SAMPLING if k in sampling},
        "config": {"epochs": summary["samples"]},
        "metadata": {"judge": summary["judge"], "rules": summary["rules"]},
    }
    tokens = {f"{kind}_tokens": count for kind, count in summary["tokens"].items()}
    usage = inspect_log.usage_of(tokens, summary["cost"])
    return inspect_log.header(evaluated, samples, [score], usage, cast(list[Record], records))


def _inspected(summary: BenchSummary, record: BenchRecord) -> Record:
    """One reply as a sample of a log."""
    grade, fault = record.get("grade") or cast(Grade, {}), metrics.fault_of(record)
    target = stream.dumps(record["task"].get("expected")).decode()
    sample = inspect_log.sample(record, target, fault)
    subset, text = record["task"].get("subset"), (record.get("gen") or {}).get("text")
    sample["metadata"] = {"status": "excluded" if fault else grade["verdict"], "subset": subset}
    sample["uuid"] = stream.fingerprint([record["id"], text])[:22]
    if not fault:
        answer = None if grade.get("answer") is None else str(grade["answer"])
        sample["scores"][summary["metric"]] = {"value": grade["score"], "answer": answer}
    return sample


# Trackers: what belongs to one model's results is one run there; sent again, it is the same run

PROJECT = "decksmith"  # where the tracker's own variable names none


def flat(summaries: Mapping[str, BenchSummary]) -> dict[str, float]:
    """The metrics of each benchmark as `bench/mode/metric`, with its coverage."""
    found: dict[str, float] = {}
    for bench, summary in summaries.items():
        found[f"{bench}/coverage"] = summary["coverage"] or 0.0
        for mode, values in summary["modes"].items():
            for name, value in values.items():
                if isinstance(value, int | float):
                    found[f"{bench}/{mode.replace('@', '-')}/{name}"] = float(value)
    return found


def send(tracker: str, name: str, summaries: Mapping[str, BenchSummary]) -> None:
    """Log summaries as a run of this name, by the tracker's own settings (WANDB_*, MLFLOW_*). Raises cli.Missing without
    its package, cli.TryAgain where it does not take them."""
    ident = stream.fingerprint([name, *sorted(summaries)])[:16]
    try:
        {"wandb": _wandb, "mlflow": _mlflow}[tracker](ident, name, flat(summaries))
    except ImportError:
        raise cli.Missing(f"{tracker} is not installed: pip install {tracker}") from None
    except Exception as error:  # whatever its client raises: the results themselves are kept
        raise cli.TryAgain(f"{tracker} did not take the results: {error}") from None


def _wandb(ident: str, name: str, found: Mapping[str, float]) -> None:
    import wandb

    project = os.environ.get("WANDB_PROJECT", PROJECT)
    with wandb.init(project=project, name=name, id=ident, resume="allow") as run:
        run.summary.update(found)


def _mlflow(ident: str, name: str, found: Mapping[str, float]) -> None:
    import mlflow

    mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    same = mlflow.search_runs(filter_string=f"tags.decksmith = '{ident}'", output_format="list")
    kept = {"run_id": same[0].info.run_id} if same else {"run_name": name}
    with mlflow.start_run(**kept, tags={"decksmith": ident}):
        mlflow.log_metrics(dict(found))
