"""What decks took, beside what they scored: tokens, USD and seconds a deck, and which run is dominated by another.

A deck under a condition took what all its samples and revisions took, not only those that were kept.
"""

from typing import Any

from decksmith.core.records import Record
from decksmith.results import stats, usage
from decksmith.results.summary import domains, prompt_of

KINDS = ("tokens", "seconds", "usd")
TITLES = {"tokens": "Tokens", "seconds": "Seconds", "usd": "USD"}
UNITS = {"tokens": "tokens in and out", "seconds": "seconds of generation", "usd": "USD"}


def per_deck(run: Record) -> Record:
    """The means of a loaded run over its prompts, `{kind of KINDS: {"mean", "lo", "hi", "n"} or None}`; None where some deck does not
    say what it took."""
    import numpy

    rows: dict[str, list[Record]] = {}
    for record in run["records"]:
        rows.setdefault(prompt_of(record), []).append(usage.of(record))
    labels = domains(run["records"])
    found: Record = dict.fromkeys(KINDS)
    for kind in KINDS:
        means = [_mean([_value(each, kind) for each in some]) for some in rows.values()]
        known = [mean for mean in means if mean is not None]
        if len(known) < len(means):
            continue
        column = numpy.array(known, dtype=float)[:, None]
        most = max(float(column.max()), 1e-9)  # the interval's method wants a scale that ends
        mean = stats.means(
            column / most, (numpy.zeros(1), numpy.ones(1)), [labels.get(prompt) for prompt in rows]
        )
        ends = {name: stats.number(mean[name][0]) for name in ("lo", "hi")}
        found[kind] = {
            name: None if value is None else value * most for name, value in ends.items()
        }
        found[kind] |= {"mean": float(column.mean()), "n": len(rows)}
    return found


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _value(took: Record, kind: str) -> float | None:
    if kind == "usd":
        cost: float | None = took["cost"]
        return cost
    if kind == "seconds":
        seconds: float | None = took["seconds"]
        return seconds
    prompt, completion = took["prompt_tokens"], took["completion_tokens"]
    return None if completion is None else (prompt or 0) + completion


def unit(found: list[Record]) -> str | None:
    """The kind by which runs are held against each other: USD where all have a price, else tokens, else seconds."""
    for kind in ("usd", "tokens", "seconds"):
        values = [one[kind] for one in found]
        if all(value is not None and value["mean"] > 0 for value in values):
            return kind
    return None


def table(runs: list[Record]) -> Record | None:
    """`{"unit", "runs": {label: per_deck}, "dominated": {label: label of what dominates it}}` of runs, None where none of them is under
    a condition or nobody says what their decks took.

    Dominated: another run's mean score is as high or higher at the same cost or less, and one of both is better.
    """
    if not any(run.get("condition") for run in runs):
        return None
    found = {run["label"]: per_deck(run) for run in runs}
    scores = {run["label"]: run["summary"]["means"]["floor"].get("overall") for run in runs}
    known = {label: took for label, took in found.items() if not _free(took) and scores[label]}
    kind = unit(list(known.values()))
    if kind is None or not known:
        return None
    points = {label: (took[kind]["mean"], scores[label]["mean"]) for label, took in known.items()}
    return {"unit": kind, "runs": found, "dominated": dominated(points)}


def _free(took: Record) -> bool:
    """Whether nobody was asked: decks of a folder."""
    return not any(took[kind] and took[kind]["mean"] for kind in KINDS)


def dominated(points: dict[str, tuple[float, float]]) -> dict[str, str]:
    """`{label: the label of the best-scoring point that dominates it}` of points `(cost, score)`."""
    found = {}
    for label, (cost, score) in points.items():
        over = [
            (other[1], name)
            for name, other in points.items()
            if other[0] <= cost and other[1] >= score and other != (cost, score)
        ]
        if over:
            found[label] = max(over)[1]
    return found


def ratio(table: Record | None, a: str, b: str) -> float | None:
    """How many times as much as `b` a deck of `a` costs, in the table's unit; None where that is not known."""
    if table is None:
        return None
    kind: Any = table["unit"]
    ours, theirs = table["runs"][a][kind], table["runs"][b][kind]
    if not ours or not theirs or not ours["mean"] or not theirs["mean"]:
        return None
    return float(ours["mean"] / theirs["mean"])
