"""Would more data help: nested shares of the rows, and the line through what models trained on them are worth.

`make dose` (make/dose.py) trains and asks them. A model is worth the share of checks that its decks pass, none where they do not render;
and, which few rows move already, how likely it finds the tokens of answers that it was not trained on.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, cast

import numpy

from decksmith.core import cli, stream
from decksmith.measure.results import stats, text
from decksmith.measure.results.records import Mean
from decksmith.measure.results.summary import Cells
from decksmith.train.corpus import chat_data
from decksmith.train.corpus.records import TrainRow

DOSES = (8, 4, 2, 1)  # the rows are divided by
HELD = 8  # answers at most that no model is trained on


class Point(TypedDict):
    """A training of the curve: `rows` of train.jsonl and so many steps; `curve`: steps, epochs, or both for all rows."""

    name: str
    curve: str
    rows: int
    steps: int


def split(data: Path, out: Path, most: int | None = None) -> dict[int, int]:
    """Write OUT/N/train.jsonl with one in N of the rows of DATA/train.jsonl, for each N of DOSES, and the same test.jsonl; returns how
    many rows each has. What is in a smaller part is in the larger ones, and rows that ask the same stay together. most: of how many
    rows all are. OUT/held.jsonl has HELD rows of the test and of those that `most` leaves over. Raises cli.BadData where a part would
    have none, or as many as another."""
    rows = [cast(TrainRow, row) for _, row in stream.records(data / "train.jsonl")]
    test = (data / "test.jsonl").read_bytes()
    groups: dict[int, list[TrainRow]] = {}
    for row in rows:
        groups.setdefault(chat_data.mark(chat_data.asked(row)), []).append(row)
    ordered = sorted(groups.values(), key=lambda group: stream.shuffled(group[0]["id"]))
    whole, counts = min(most or len(rows), len(rows)), dict[int, int]()
    for dose in DOSES:
        taken: list[TrainRow] = []
        rest: list[TrainRow] = []
        for group in ordered:
            (taken if len(taken) < whole // dose else rest).extend(group)
        if not taken or len(taken) in counts.values():
            said = f"{whole} rows, of which {len(groups)} ask different things, have no four shares"
            raise cli.BadData(f"{data}/train.jsonl: {said}")
        counts[dose], folder = len(taken), out / str(dose)
        folder.mkdir(parents=True, exist_ok=True)
        stream.write_records(folder / "train.jsonl", taken)
        stream.write(folder / "test.jsonl", test)
    tests = [cast(TrainRow, row) for _, row in stream.records(data / "test.jsonl")]
    stream.write_records(out / "held.jsonl", [*tests, *rest][:HELD])
    return counts


def points(counts: dict[int, int], epochs: int, batch: int) -> list[Point]:
    """The trainings: with the steps of all rows, then with the epochs; the one on all rows belongs to both."""
    steps = {dose: max(1, epochs * (rows // batch)) for dose, rows in counts.items()}
    found: list[Point] = []
    for curve in ("steps", "epochs"):
        for dose in DOSES[:-1]:
            taken = steps[1 if curve == "steps" else dose]
            found.append(Point(name=f"{curve}-{dose}", curve=curve, rows=counts[dose], steps=taken))
    return [*found, {"name": "all", "curve": "both", "rows": counts[1], "steps": steps[1]}]


def doubling(rows: Sequence[int], worth: Sequence[Cells], domains: dict[str, str | None]) -> Mean:
    """What a doubling of the rows gains, with its 95 % interval: the slope of the line through log2(rows), by prompt, then over the
    prompts (stats.t_means, by domain). Each training was run once, so that luck is in its point: where the points lie off the line
    by more than the prompts explain, the interval is that of the line through their means. Raises cli.BadData."""
    from scipy import stats as scipy_stats

    prompts = sorted(set.intersection(*map(set, worth)))
    if len(prompts) < stats.FEWEST:
        raise cli.BadData(
            f"{len(prompts)} prompts with a deck of each model; a curve needs {stats.FEWEST}"
        )
    x = numpy.log2(rows)
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    values = numpy.array([[cells[prompt] for cells in worth] for prompt in prompts])
    clusters = [domains.get(prompt) for prompt in prompts]
    found = stats.entry(stats.t_means((values @ weights)[:, None], None, clusters), 0)
    line = scipy_stats.linregress(x, values.mean(axis=0))
    luck = float(scipy_stats.t.ppf((1 + stats.LEVEL) / 2, len(x) - 2) * line.stderr)
    mean = found["mean"] or 0.0
    lo, hi = (mean if end is None else end for end in (found["lo"], found["hi"]))
    return {**found, "lo": min(lo, mean - luck), "hi": max(hi, mean + luck)}


def sentence(found: Mean) -> str:
    """What may be said of a doubling of the rows."""
    hi, lo = found["hi"] or 0.0, found["lo"] or 0.0
    said = f"doubling the rows is expected to gain {text.interval(found)}"
    if lo > 0:
        return f"{said}: more rows help"
    if hi <= 0:
        return f"{said}; any gain is ruled out"
    return f"{said}; more than {math.ceil(100 * hi - 1e-9) / 100:.2f} is ruled out"
