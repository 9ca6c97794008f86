"""Scores of another tool as runs: a file of rows `ScoreRow` (docs/records.md), one run for each model in it."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError

from decksmith.core import cli, stream
from decksmith.core.records import Kind, Numbers, Optionals, Record
from decksmith.measure.judging.records import DeckRecord, Score
from decksmith.measure.results.records import Fault, Identity, Run, ScoreRow
from decksmith.measure.results.summary import summarize

PROTOCOL = "scores of another tool"  # stands where a run has the name of its protocol


def is_external(run: Run) -> bool:
    """Whether a run is scores of another tool and nothing else."""
    return run["protocol"].get("protocol") == PROTOCOL


def read(path: Path) -> Iterator[Run]:
    """The runs in a file of scores. Without weights every dimension counts the same.

    Raises cli.BadData for a row that is not of this form, or that has other dimensions or weights than the first.
    """
    models: dict[str, dict[str, list[DeckRecord]]] = {}
    first: ScoreRow | None = None
    weights: Numbers = {}
    for number, found in stream.records(path):
        where = f"{path}:{number}: {found['id']}"
        row = _checked(where, found)
        if first is None:
            first, weights = row, row.get("weights") or dict.fromkeys(sorted(row["scores"]), 1.0)
        if row["scores"].keys() != first["scores"].keys():
            theirs, ours = (", ".join(sorted(one["scores"])) for one in (row, first))
            raise cli.BadData(f"{where}: scores for {theirs}, and for {ours} in the first row")
        if row.get("weights", weights) != weights:
            theirs, ours = json.dumps(row["weights"]), json.dumps(weights)
            raise cli.BadData(f"{where}: weights are {theirs}, and {ours} in the first row")
        samples = models.setdefault(row["model"], {}).setdefault(row["id"], [])
        samples.append(_record(row, weights, len(samples)))
    if not models:
        raise cli.BadData(f"{path} is empty; a file of scores has one row for each deck")
    held = {"protocol": PROTOCOL, "score": {"overall": _overall(weights), "weights": weights}}
    for model, prompts in models.items():
        records = [record for samples in prompts.values() for record in samples]
        yield {
            "path": path,
            "name": model,
            "order": 0,
            "label": model,
            "color": "",
            "summary": summarize(enumerate(records, 1), path),
            "protocol": cast(Identity, held),
            "records": records,
            "condition": None,
            "unshipped": [],
            "left_out": None,
            "remedy": "have these scored again",
        }


def _checked(where: str, found: object) -> ScoreRow:
    """A row that has the form. Raises cli.BadData."""
    try:
        row = TypeAdapter(ScoreRow).validate_python(found, strict=True)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise cli.BadData(
            f'{where}: {place}: {fault["msg"]}; a row of scores needs "model" (a name), "rendered" (true or false) and '
            '"scores" (an object)'
        ) from None
    if not row["scores"]:
        raise cli.BadData(f"{where}: scores is empty")
    for name, value in row["scores"].items():
        if value is not None and not 1 <= value <= 5:
            raise cli.BadData(
                f"{where}: scores.{name} is {json.dumps(value)}; it is a number from 1 to 5, or null"
            )
    weights = row.get("weights")
    if weights is not None:
        is_whole = weights.keys() == row["scores"].keys()
        are_usable = all(0 <= value < math.inf for value in weights.values())
        if not (is_whole and are_usable and sum(weights.values()) > 0):
            raise cli.BadData(
                f"{where}: weights is {json.dumps(weights)}; it has a number from 0 for each dimension of scores "
                f"({', '.join(sorted(row['scores']))}), not all 0"
            )
    return row


def _overall(weights: dict[str, float]) -> str:
    """What Overall is, in words."""
    if len(weights) == 1:
        return f"Overall ({next(iter(weights))})"
    equal = len(set(weights.values())) == 1
    return "Mean of the dimensions" if equal else "Weighted mean of the dimensions"


def _record(row: ScoreRow, weights: Numbers, k: int) -> DeckRecord:
    """A row as deck-score would have it: of a model's failure 1 in every dimension, of another's no overall score."""
    kind: Kind | None = row.get("error_kind")
    if not row["rendered"]:
        kind = kind or "model"
    elif None in row["scores"].values():
        kind = kind or "judge"
    scores: Optionals = row["scores"]
    if kind == "model":
        scores = dict.fromkeys(scores, 1.0)
    overall = None
    if kind in (None, "model"):
        total = sum((scores[name] or 0) * weight for name, weight in weights.items())
        overall = total / sum(weights.values())
    score: Score = {
        "overall": overall,
        "judge_only": None,
        "checklist": None,
        "dimensions": scores,
        "rendered": row["rendered"] and kind != "model",
        "floored": kind == "model",
        "fault": cast(Record, _fault(kind, row["rendered"])) if kind else None,
    }
    gen = {"model": {"name": row["model"]}, "sample": {"of": row["id"], "k": k}}
    return cast(DeckRecord, {"id": row["id"], "gen": gen, "score": score})


def _fault(kind: Kind, rendered: bool) -> Fault:
    return {
        "stage": "judge" if rendered else "render",
        "kind": kind,
        "class": "as-reported",
        "message": "reported by the other tool",
    }
