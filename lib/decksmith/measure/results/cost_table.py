"""What decks took, beside what they scored: tokens, USD and seconds a deck.

A deck under a condition took what all its samples and revisions took, not only those that were kept.
"""

import numpy

from decksmith.core.records import prompt_of
from decksmith.measure.judging.records import Spent
from decksmith.measure.results import stats, usage
from decksmith.measure.results.comparison import Cost, CostTable, Run
from decksmith.measure.results.summary import domains

KINDS = ("tokens", "seconds", "usd")
UNITS = {"tokens": "tokens in and out", "seconds": "seconds of generation", "usd": "USD"}


def per_deck(run: Run) -> Cost:
    """The means of a run over its prompts by kind of KINDS; None where some deck does not say what it took."""
    rows: dict[str, list[Spent]] = {}
    for record in run["records"]:
        rows.setdefault(prompt_of(record), []).append(usage.of(record))
    labels = domains(run["records"])
    found: Cost = dict.fromkeys(KINDS)
    for kind in KINDS:
        totals = [usage.added(_value(one, kind) for one in some) for some in rows.values()]
        if None in totals:
            continue
        column = numpy.array(totals, dtype=float) / list(map(len, rows.values()))
        most = max(float(column.max()), 1e-9)  # the interval's method wants a scale that ends
        mean = stats.means(
            column[:, None] / most,
            (numpy.zeros(1), numpy.ones(1)),
            [labels.get(prompt) for prompt in rows],
        )
        lo, hi = (stats.number(mean[end][0]) for end in ("lo", "hi"))
        found[kind] = {
            "mean": float(column.mean()),
            "lo": None if lo is None else lo * most,
            "hi": None if hi is None else hi * most,
            "n": len(rows),
        }
    return found


def _value(took: Spent, kind: str) -> float | None:
    if kind == "usd":
        return took["cost"]
    if kind == "seconds":
        return took["seconds"]
    completion = took["completion_tokens"]
    return None if completion is None else (took["prompt_tokens"] or 0) + completion


def _amount(cost: Cost, kind: str) -> float | None:
    """The mean of a kind; None where it is not known, or nothing."""
    value = cost[kind]
    return value["mean"] or None if value else None


def table(runs: list[Run]) -> CostTable | None:
    """None where no run is under a condition or nobody says what their decks took. Runs are held against each other by USD where
    all have a price, else by tokens, else by seconds."""
    if not any(run.get("condition") for run in runs):
        return None
    found = {run["label"]: per_deck(run) for run in runs}
    asked = [cost for cost in found.values() if any(_amount(cost, kind) for kind in KINDS)]
    for kind in ("usd", "tokens", "seconds"):
        if asked and all(_amount(cost, kind) for cost in asked):
            return {"unit": kind, "runs": found}
    return None


def ratio(table: CostTable | None, a: str, b: str) -> float | None:
    """How many times as much as `b` a deck of `a` costs, in the table's unit; None where that is not known."""
    if table is None:
        return None
    ours, theirs = (_amount(table["runs"][label], table["unit"]) for label in (a, b))
    return ours / theirs if ours and theirs else None
