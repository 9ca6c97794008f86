"""Scores of another tool as runs: a file of `{"model", "id", "scores": {dimension: 1..5 or null}, "weights", "rendered",
"error_kind"}` (docs/records.md), one run for each model in it."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.results.summary import summarize

PROTOCOL = "scores of another tool"  # stands where a run has the name of its protocol


def is_external(run: Record) -> bool:
    """Whether a run (runs.load) is scores of another tool and nothing else."""
    return bool(run["protocol"].get("protocol") == PROTOCOL)


def read(path: Path) -> Iterator[Record]:
    """The runs in a file of scores, in the form of runs.load. Without weights every dimension counts the same.

    Raises cli.BadData for a row that is not of this form, or that has other dimensions or weights than the first.
    """
    models: dict[str, dict[str, list[Record]]] = {}
    dimensions: set[str] = set()
    weights: dict[str, float] = {}
    for number, row in stream.records(path):
        where = f"{path}:{number}: {row['id']}"
        _check(where, row)
        scores, kind = row["scores"], row.get("error_kind")
        dimensions = dimensions or set(scores)
        if set(scores) != dimensions:
            raise cli.BadData(
                f"{where}: scores for {', '.join(sorted(scores))}, and for {', '.join(sorted(dimensions))} in the first row"
            )
        weights = weights or _weights(where, row, dimensions)
        if row.get("weights", weights) != weights:
            raise cli.BadData(
                f"{where}: weights are {json.dumps(row['weights'])}, and {json.dumps(weights)} in the first row"
            )
        if not row["rendered"]:
            kind = kind or "model"
        elif None in scores.values():
            kind = kind or "judge"
        samples = models.setdefault(row["model"], {}).setdefault(row["id"], [])
        samples.append(
            {
                "id": row["id"],
                "gen": {
                    "model": {"name": row["model"]},
                    "sample": {"of": row["id"], "k": len(samples)},
                },
                "score": _score(scores, weights, kind, row["rendered"]),
            }
        )
    if not models:
        raise cli.BadData(f"{path} is empty; a file of scores has one row for each deck")
    for model, prompts in models.items():
        records = [record for samples in prompts.values() for record in samples]
        yield {
            "path": path,
            "name": model,
            "label": model,
            "color": None,
            "records": records,
            "summary": summarize(enumerate(records, 1), path),
            "unshipped": [],
            "remedy": "have these scored again",
            "protocol": {
                "protocol": PROTOCOL,
                "score": {"overall": _overall(weights), "weights": weights},
            },
        }


def _check(where: str, row: Record) -> None:
    """Whether a row by itself has the form. Raises cli.BadData."""
    named = isinstance(row.get("model"), str) and isinstance(row.get("rendered"), bool)
    if not named or not isinstance(row.get("scores"), dict) or not row["scores"]:
        raise cli.BadData(
            f'{where}: a row of scores needs "model" (a name), "rendered" (true or false) and "scores" (an object)'
        )
    kind = row.get("error_kind")
    if kind not in (None, *stream.KINDS):
        raise cli.BadData(
            f"{where}: error_kind is {json.dumps(kind)}; it is null or one of {', '.join(stream.KINDS)}"
        )
    for name, value in row["scores"].items():
        if value is not None and not (_number(value) and 1 <= value <= 5):
            raise cli.BadData(
                f"{where}: scores.{name} is {json.dumps(value)}; it is a number from 1 to 5, or null"
            )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _weights(where: str, row: Record, dimensions: set[str]) -> dict[str, float]:
    """The weight of each dimension, as the first row gives them. Raises cli.BadData."""
    weights = row.get("weights", dict.fromkeys(sorted(dimensions), 1))
    usable = (
        isinstance(weights, dict)
        and set(weights) == dimensions
        and all(_number(value) and 0 <= value < math.inf for value in weights.values())
        and sum(weights.values()) > 0
    )
    if not usable:
        raise cli.BadData(
            f"{where}: weights is {json.dumps(row.get('weights'))}; it has a number from 0 for each dimension of scores "
            f"({', '.join(sorted(dimensions))}), not all 0"
        )
    return dict(weights)


def _overall(weights: dict[str, float]) -> str:
    """What Overall is, in words."""
    if len(weights) == 1:
        return f"Overall ({next(iter(weights))})"
    equal = len(set(weights.values())) == 1
    return "Mean of the dimensions" if equal else "Weighted mean of the dimensions"


def _score(
    scores: dict[str, float], weights: dict[str, float], kind: str | None, rendered: bool
) -> Record:
    """A row as deck-score would have it: of a model's failure 1 in every dimension, of another's no overall score."""
    fault, whole = None, None
    if kind:
        fault = {
            "stage": "judge" if rendered else "render",
            "kind": kind,
            "class": "as-reported",
            "message": "reported by the other tool",
        }
    if kind == "model":
        scores = dict.fromkeys(scores, 1)
    if kind in (None, "model"):
        total = sum(scores[name] * weight for name, weight in weights.items())
        whole = total / sum(weights.values())
    return {
        "overall": whole,
        "judge_only": None,
        "checklist": None,
        "dimensions": scores,
        "rendered": rendered and kind != "model",
        "floored": kind == "model",
        "fault": fault,
    }
