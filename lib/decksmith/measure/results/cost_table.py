"""What decks took, beside what they scored: tokens, USD and seconds a deck.

A deck under a condition took what all its samples and revisions took, not only those that were kept.
"""

from decksmith.core.records import prompt_of
from decksmith.measure.judging.records import Spent
from decksmith.measure.results import usage
from decksmith.measure.results.comparison import Cost, CostTable, Run

KINDS = ("tokens", "seconds", "usd")
UNITS = {"tokens": "tokens in and out", "seconds": "seconds of generation", "usd": "USD"}


def per_deck(run: Run) -> Cost:
    """The means of a run over its prompts by kind of KINDS; None where some deck does not say what it took."""
    rows: dict[str, list[Spent]] = {}
    for record in run["records"]:
        rows.setdefault(prompt_of(record), []).append(usage.of(record))
    found: Cost = {}
    for kind in KINDS:
        totals = [usage.added(_value(one, kind) for one in some) for some in rows.values()]
        counts = map(len, rows.values())
        each = [
            None if total is None else total / n for total, n in zip(totals, counts, strict=True)
        ]
        whole = usage.added(each)
        found[kind] = None if whole is None else whole / len(each)
    return found


def _value(took: Spent, kind: str) -> float | None:
    if kind == "usd":
        return took["cost"]
    if kind == "seconds":
        return took["seconds"]
    completion = took["completion_tokens"]
    return None if completion is None else (took["prompt_tokens"] or 0) + completion


def table(runs: list[Run]) -> CostTable | None:
    """None where no run is under a condition or nobody says what their decks took. Runs are held against each other by USD where
    all have a price, else by tokens, else by seconds."""
    if not any(run.get("condition") for run in runs):
        return None
    found = {run["label"]: per_deck(run) for run in runs}
    asked = [cost for cost in found.values() if any(cost.values())]
    for kind in ("usd", "tokens", "seconds"):
        if asked and all(cost[kind] for cost in asked):
            return {"unit": kind, "runs": found}
    return None


def ratio(table: CostTable | None, a: str, b: str) -> float | None:
    """How many times as much as `b` a deck of `a` costs, in the table's unit; None where that is not known."""
    if table is None:
        return None
    ours, theirs = (table["runs"][label][table["unit"]] for label in (a, b))
    return ours / theirs if ours and theirs else None
