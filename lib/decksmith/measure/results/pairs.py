"""Pairs of runs in numbers: under each accounting and measure the difference by prompt, its interval, its tests.

The headline has two clauses, chosen before anybody looked, each with a test of its own: how many more prompts render (exact,
paired), and by how much the decks are better where both render (t). Their p-values are corrected together, over both clauses and
all pairs of models; pairs with decks that were read from a folder, which people wrote, are a family of their own. Under a judge
that reads, the floor Overall stands beside them and is a family of its own. All other measures and accountings are secondary:
their p-values are corrected together, over pairs and measures of one accounting.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from decksmith.core import stream
from decksmith.core.records import prompt_of
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.judging.scoring import not_checked, without
from decksmith.measure.results import stats
from decksmith.measure.results.comparison import Bounds, Pair, PairedDifference, Run
from decksmith.measure.results.runs import titles
from decksmith.measure.results.stats import Array
from decksmith.measure.results.summary import Cells, Columns, columns, domains, scales

ACCOUNTINGS = {"floor": "floor", "scored": "both scored"}
RENDERS = ("floor", "renders")
COUNTED = ("floor", "overall")  # failures counted as 1, beside the headline
LIMITS = {"excluded": 0.01, "truncated": 0.05}  # of runs whose protocol names none
WORST, BEST = 0, 1  # what the excluded decks of a run could have been


def better(runs: list[Run]) -> tuple[str, str]:
    """The accounting and measure of the second clause: the checks passed, or Overall where a judge reads; of edits met times
    stayed, where a model's failure counts 0."""
    kind = (runs[0]["protocol"].get("judge") or {}).get("kind")
    if kind == "edit":
        return "floor", "edit"
    return "scored", "checks" if kind == "offline" else "overall"


def is_headline(pair: Pair) -> bool:
    """Whether a pair is one of the two clauses of a headline."""
    return bool(pair["clause"])


@dataclass
class Column:
    """One difference to be estimated: two runs' values of a measure, an entry for each prompt, NaN where there is none."""

    a: Run
    b: Run
    accounting: str
    measure: str
    ours: Array
    theirs: Array

    @property
    def is_uncertain(self) -> bool:
        """Whether decks without a score could change the difference."""
        return bool(excluded(self.a) or excluded(self.b))

    @property
    def kind(self) -> str:
        """By which test it is compared: "share", "t" or "hull"."""
        if self.measure == "renders":
            return "share"
        return "hull" if self.accounting == "floor" else "t"


def between(runs: list[Run]) -> list[Pair]:
    """Every pair of runs under every accounting and measure, without what may be said of it (claims); pairs of models
    first."""
    prompts = sorted({prompt_of(record) for run in runs for record in run["records"]})
    tables = {
        (run["order"], accounting): columns(run["records"], accounting)
        for run in runs
        for accounting in ("floor", "renderable")
    }
    wanted: list[Column] = []
    for (a, b), accounting in itertools.product(itertools.combinations(runs, 2), ACCOUNTINGS):
        sides = on_both(a, b)
        ours, theirs = (
            tables[run["order"], _table(accounting)]
            if records is run["records"]
            else columns(records, _table(accounting))
            for run, records in zip((a, b), sides, strict=True)
        )
        for measure in ours:
            if measure in theirs:
                values = [_values(prompts, side[measure]) for side in (ours, theirs)]
                _keep_shared(*values)
                wanted.append(Column(a, b, accounting, measure, *values))
    if not wanted:
        return []
    estimates = _estimates(runs, prompts, [*wanted, *_extremes(runs, prompts, wanted)])
    found = [_pair(runs, *one) for one in zip(wanted, estimates, strict=False)]
    ends = iter(estimates[len(found) :])
    for column, pair in zip(wanted, found, strict=True):
        if column.is_uncertain:
            pair["bounds"] = _bounds(next(ends), next(ends))
    people = {run["label"] for run in runs if from_folder(run)}
    _correct(found, people)
    return sorted(found, key=lambda pair: _is_with(people, pair))


def on_both(a: Run, b: Run) -> tuple[list[DeckRecord], list[DeckRecord]]:
    """The records of two runs, each with the share of those checks that apply to both decks of its prompt: an imported deck
    has no theme, and a short one is not read."""
    lacking: dict[str, set[str]] = {}
    for record in (*a["records"], *b["records"]):
        lacking.setdefault(prompt_of(record), set()).update(not_checked(record))
    if better([a])[1] != "checks" or not any(lacking.values()):
        return a["records"], b["records"]
    ours, theirs = (
        [without(record, lacking[prompt_of(record)]) for record in run["records"]] for run in (a, b)
    )
    return ours, theirs


def from_folder(run: Run) -> bool:
    """Whether a run's decks were read from a folder: no model was asked."""
    return bool(run["summary"]["model"].get("files"))


def _table(accounting: str) -> str:
    """The accounting by which the values of each run are taken."""
    return "floor" if accounting == "floor" else "renderable"


def _keep_shared(ours: Array, theirs: Array) -> None:
    """Leave only the prompts for which both have a value."""
    lacking = numpy.isnan(ours) | numpy.isnan(theirs)
    ours[lacking] = theirs[lacking] = numpy.nan


def _values(prompts: list[str], cells: Cells) -> Array:
    return numpy.array([cells.get(prompt, numpy.nan) for prompt in prompts])


def _pair(runs: list[Run], column: Column, difference: PairedDifference) -> Pair:
    a, b, accounting, measure = column.a, column.b, column.accounting, column.measure
    return {
        "a": a["label"],
        "b": b["label"],
        "accounting": accounting,
        "measure": measure,
        "clause": _clause(runs, accounting, measure),
        "sides": _sides(column),
        "asked": len(column.ours),
        "on": _on(runs, difference["n"], len(column.ours), accounting, measure),
        "cut": _cut(a, b),
        "lost": _lost(a, b) if column.is_uncertain else 0,
        "difference": difference,
        "p_holm": None,
        "family": 0,
        "verdict": "",
        "sentence": "",
        "open": False,
    }


def _clause(runs: list[Run], accounting: str, measure: str) -> str:
    """Which clause of the headline a pair is: "renders", "better" or none."""
    if (accounting, measure) == RENDERS:
        return "renders"
    return "better" if (accounting, measure) == better(runs) else ""


def _sides(column: Column) -> tuple[float, float] | None:
    """For how many prompts the decks of the two runs render, or their means over the prompts of both; None without any."""
    summed = [float(numpy.nansum(side)) for side in (column.ours, column.theirs)]
    n = int((~numpy.isnan(column.ours)).sum())
    if column.measure == "renders":
        return summed[0], summed[1]
    counts = column.accounting == "scored" or column.measure == "edit"
    return (summed[0] / n, summed[1] / n) if n and counts else None


def _extremes(runs: list[Run], prompts: list[str], wanted: list[Column]) -> list[Column]:
    """Of each uncertain difference two: the excluded at their worst for the first run and at their best for the second, and
    the reverse."""
    tables: dict[tuple[int, int, str], list[list[Columns]]] = {}  # of each pair by end and side
    found = []
    for column in wanted:
        key = column.a["order"], column.b["order"], _table(column.accounting)
        if column.is_uncertain:
            if key not in tables:
                both = on_both(column.a, column.b)
                tables[key] = [[columns(each, key[2], end) for each in both] for end in (0, 1)]
            ends = tables[key]
            for ours, theirs in ((WORST, BEST), (BEST, WORST)):
                sides = [
                    _values(prompts, ends[end][side][column.measure])
                    for side, end in enumerate((ours, theirs))
                ]
                _keep_shared(*sides)
                found.append(Column(column.a, column.b, column.accounting, column.measure, *sides))
    return found


def _estimates(runs: list[Run], prompts: list[str], wanted: list[Column]) -> list[PairedDifference]:
    """The differences of these columns, each by the test of its kind, rounded."""
    asked = domains(record for run in runs for record in run["records"])
    clusters = [asked[prompt] for prompt in prompts]
    found: dict[int, PairedDifference] = {}
    for kind in ("share", "t", "hull"):
        places = [place for place, column in enumerate(wanted) if column.kind == kind]
        if not places:
            continue
        a = numpy.stack([wanted[place].ours for place in places], axis=1)
        b = numpy.stack([wanted[place].theirs for place in places], axis=1)
        scale = scales(wanted[place].measure for place in places)
        if kind == "share":
            results = stats.share_differences(a, b, clusters)
        elif kind == "t":
            results = stats.t_differences(a, b, scale, clusters)
        else:
            results = stats.differences(a, b, scale, clusters)
        found |= {place: stats.difference(results, n) for n, place in enumerate(places)}
    return [found[place] for place in range(len(wanted))]


def _bounds(worst: PairedDifference, best: PairedDifference) -> Bounds:
    """What the excluded decks could make of a difference, from its estimates at the extremes."""
    return {
        "least": worst["mean"] or 0,
        "most": best["mean"] or 0,
        "lo": -math.inf if worst["lo"] is None else worst["lo"],
        "hi": math.inf if best["hi"] is None else best["hi"],
    }


def _correct(pairs: list[Pair], people: set[str]) -> None:
    """Correct the p-values of each family: both clauses of all headlines, the floor Overall, and all else of one
    accounting; each apart for pairs with one of `people`, the labels of runs that no model wrote."""
    families: dict[tuple[str, bool], list[Pair]] = {}
    for pair in pairs:
        name = "headline" if is_headline(pair) else pair["accounting"]
        if (pair["accounting"], pair["measure"]) == COUNTED:
            name = "counted"
        families.setdefault((name, _is_with(people, pair)), []).append(pair)
    for members in families.values():
        holm(members)
        for pair in members:
            pair["family"] = sum(member["p_holm"] is not None for member in members)


def _is_with(people: set[str], pair: Pair) -> bool:
    return bool(people & {pair["a"], pair["b"]})


def holm(family: Sequence[Any]) -> None:
    """Give each pair of a family, which has a `difference`, its corrected p, `p_holm`; None stays None."""
    values = [pair["difference"]["p"] for pair in family]
    adjusted = stats.holm([float("nan") if p is None else p for p in values])
    for pair, p in zip(family, adjusted, strict=True):
        pair["p_holm"] = stats.number(p, 6)


# What a look saw


def headline_values(a: Run, b: Run) -> list[tuple[str, list[float | None], list[float | None]]]:
    """The headline's values of two runs, `[(prompt, a's, b's)]`, each whether it renders and how good it is, ordered by
    the hashes of the prompts' ids."""
    sides = []
    for records in on_both(a, b):
        renders = columns(records, "floor").get("renders", {})
        accounting, measure = better([a])
        good = columns(records, _table(accounting)).get(measure, {})
        sides.append({prompt: [value, good.get(prompt)] for prompt, value in renders.items()})
    ours, theirs = sides
    shared = sorted(ours.keys() & theirs.keys(), key=stream.shuffled)
    return [(prompt, ours[prompt], theirs[prompt]) for prompt in shared]


# What limits a pair


def _on(runs: list[Run], n: int, prompts: int, accounting: str, measure: str) -> str:
    """On what a pair was compared, as the end of a clause: ` on 29 of 30 prompts, Overall, floor`."""
    of = f" of {prompts}" if n < prompts else ""
    common = "" if runs[0]["left_out"] is None else " common"
    plural = "" if n == 1 and not of else "s"
    changed = ", not the shipped protocol" if runs[0]["unshipped"] else ""
    what = f", {titles(runs).get(measure, measure)}, {ACCOUNTINGS[accounting]}"
    if (accounting, measure) == COUNTED:
        what = ""  # its sentence begins with it
    return f" on {n}{of}{common} prompt{plural}{what}{changed}"


def limits(run: Run) -> dict[str, float]:
    """The shares of decks that a run may lose ("excluded") and have cut off ("truncated") and still be claimed about."""
    return {**LIMITS, **(run["protocol"].get("claim") or {})}


def excluded(run: Run) -> int:
    """How many decks of a run have no score through no fault of the model."""
    kinds = run["summary"]["faults"]["kinds"]
    return sum(count for kind, count in kinds.items() if kind != "model")


def lost_too_many(run: Run) -> bool:
    return excluded(run) > limits(run)["excluded"] * int(run["summary"]["n"])


def cut_too_many(run: Run) -> bool:
    return int(run["summary"]["truncated"]) > limits(run)["truncated"] * int(run["summary"]["n"])


def _lost(a: Run, b: Run) -> int:
    """The decks of two runs without a score, where one of the two lost more than its protocol allows; else 0."""
    return excluded(a) + excluded(b) if lost_too_many(a) or lost_too_many(b) else 0


def _cut(a: Run, b: Run) -> str | None:
    """Which of two runs was cut off too often to say anything about it, as a clause, or None."""
    said = [
        f"{run['summary']['truncated']} of {run['summary']['n']} replies of {run['label']} were cut off"
        for run in (a, b)
        if cut_too_many(run)
    ]
    return " and ".join(said) or None
