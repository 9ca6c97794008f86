"""One run in numbers: what its scored records say, as means, counts, faults, tokens, cost and time.

The accountings never mix: `floor` counts a model fault as 1 in every dimension (checklist: 0), `renderable` looks only
at decks that rendered. Judge, renderer and infra faults are in neither; they are counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from statistics import fmean
from typing import TYPE_CHECKING, cast

from decksmith import __version__
from decksmith.core import cli, stream
from decksmith.core.records import Asks, By, prompt_of, sample_of
from decksmith.measure.judging.records import DeckRecord, Features, Grounding, Judge, Score
from decksmith.measure.results import stats, usage
from decksmith.measure.results.comparison import Fault
from decksmith.measure.results.records import Faults, Mean, ParametersSent, Summary, Took
from decksmith.models.records import Asked, Gen

if TYPE_CHECKING:
    from decksmith.measure.judging.records import Spent
    from decksmith.measure.results.stats import Array
Cells = dict[str, float]  # a value for each prompt
Columns = dict[str, Cells]  # and these for each measure

TITLES = {
    "overall": "Overall",
    "judge_only": "Judge only",
    "viscraft": "VisCraft",
    "design": "Design",
    "content": "Content",
    "coherence": "Coherence",
    "checklist": "Checklist",
    "craft": "craft",
    "craft_v5": "craft-v5",
    "grounding": "Grounding",
    "coverage": "Coverage",
    "claims": "Claims",
    "kept": "Kept",
}
# Measures that are shares, from 0 to 1; those of a deck's documents and turns stand beside the score and are no part of it.
BESIDE = ("grounding", "coverage", "claims", "kept")
SHARES = ("checklist", *BESIDE)
ACCOUNTINGS = ("floor", "renderable")
UNMEASURED = ("overall", "judge_only", "content")  # where the prompt lacks what they need


def summarize(numbered: Iterable[tuple[int, DeckRecord]], where: object = "stdin") -> Summary:
    """One object for the records of one run, given as `(line number, record)` of the file `where`.

    Means are over prompts: several samples of a prompt are averaged first. Raises cli.BadData on empty input, a record
    without score, mixed models or mixed judges.
    """
    records, model, judge = _one_run(numbered, where)
    scores = [record["score"] for record in records]
    replied = [(record, gen) for record in records if (gen := _reply(record))]
    spent = [usage.of(record) for record, _ in replied]
    judged = [value for record in records if (value := _verdict(record))]
    cut = [gen for _, gen in replied if gen.get("finish_reason") == "length"]
    found: Summary = {
        "model": {**model, "params": _own(gen for _, gen in replied)},
        "asked": _asked(replied),
        "judge": judge,
        "n": len(records),
        "prompts": len({prompt_of(record) for record in records}),
        "rendered": sum(bool(score.get("rendered")) for score in scores),
        "partial": sum(status_of(record) == "partial" for record in records),
        "truncated": len(cut),
        "capped": sum(bool(value.get("caps")) for value in judged),
        "faults": _faults([fault for record in records if (fault := fault_of(record))]),
        "tokens": _tokens(spent),
        "cost": _cost(one["cost"] for one in spent),
        "judge_cost": _cost(_judging_cost(value) for value in judged),
        "means": {
            accounting: means(columns(records, accounting), domains(records))
            for accounting in ACCOUNTINGS
        },
        "interval": {
            "level": stats.LEVEL,
            "method": stats.METHOD,
            "over": stats.rule(stats.groups(domains(records).values())),
        },
        "by": _took(records),
    }
    if early := sum(gen.get("cut_by") == "server" for gen in cut):
        found["cut_by_server"] = early
    if lacks := Counter(what for score in scores for what in score.get("lacks") or ()):
        found["lacks"] = dict(sorted(lacks.items()))
    if apart := _apart(judged):
        found["disagreement"] = apart
    if turns := _turns(records):
        found["turns"] = turns
    return found


def _one_run(
    numbered: Iterable[tuple[int, DeckRecord]], where: object
) -> tuple[list[DeckRecord], Asked, str | None]:
    """The records, their one model and their one judge. Raises cli.BadData."""
    records: list[DeckRecord] = []
    model, judge = _Only("model", where), _Only("judge", where)
    for number, record in numbered:
        if not isinstance(record.get("score"), dict):
            raise cli.BadData(
                f'{where}:{number}: {record["id"]}: no "score" in this record; deck-score writes it'
            )
        model.take(number, record["id"], _model(record))
        judge.take(number, record["id"], (record.get("judge") or {}).get("judge"))
        records.append(record)
    if not records:
        raise cli.BadData("no records on stdin; a summary needs the scores.jsonl of a run")
    asked = model.value or {"name": None, "slug": None}
    return records, cast(Asked, asked), cast(str | None, judge.value)


class _Only:
    """What is to be the same in all records that say it."""

    def __init__(self, what: str, where: object) -> None:
        self.what, self.where, self.first = what, where, ""
        self.value: object = None

    def take(self, number: int, ident: str, value: object) -> None:
        """Raises cli.BadData for another value than the first."""
        if not value:
            return
        if not self.first:
            self.first, self.value = ident, value
        if value != self.value:
            known, now = (json.dumps(each, sort_keys=True) for each in (self.value, value))
            raise cli.BadData(
                f"{self.where}:{number}: {ident}: one summary is for one {self.what}, here are two: "
                f"{self.first} has {known}, {ident} has {now}"
            )


def _reply(record: DeckRecord) -> Gen | None:
    """What the model replied, None where it did not."""
    gen = record.get("gen")
    return gen if gen and not gen.get("error") else None


def _verdict(record: DeckRecord) -> Judge | None:
    """What the judge said, None where it failed or was not asked."""
    judge = record.get("judge")
    return judge if judge and not judge.get("error") else None


def _apart(judged: list[Judge]) -> dict[str, float]:
    """How far two models of a panel are apart on average, by dimension; nothing where one model judged."""
    apart: dict[str, list[float]] = {}
    for value in judged:
        for name, distance in (value.get("disagreement") or {}).items():
            apart.setdefault(name, []).append(distance)
    return {name: round(fmean(distances), 4) for name, distances in apart.items()}


def _faults(faults: list[Fault]) -> Faults:
    classes = Counter((fault["kind"], fault["stage"], fault["class"]) for fault in faults)
    ordered = sorted(classes.items(), key=lambda item: (-item[1], item[0]))
    return {
        "kinds": {kind: sum(fault["kind"] == kind for fault in faults) for kind in stream.KINDS},
        "classes": [
            {"kind": kind, "stage": stage, "class": name, "n": n}
            for (kind, stage, name), n in ordered
        ],
    }


# The values behind the means


def _turns(records: list[DeckRecord]) -> dict[str, dict[str, float]]:
    """`{number of the turn: {"n", and the mean under `floor` of overall, checklist and kept}}`, where prompts have turns."""
    turns: dict[str, list[DeckRecord]] = {}
    for record in records:
        if turn := record.get("turn"):
            turns.setdefault(str(turn["n"]), []).append(record)
    found = {}
    for n, own in sorted(turns.items()):
        table = columns(own, "floor")
        means = {
            name: round(sum(cells.values()) / len(cells), 4)
            for name in ("overall", "checklist", "kept")
            if (cells := table.get(name))
        }
        found[n] = {"n": len(own), **means}
    return found


def domains(records: Iterable[DeckRecord]) -> dict[str, str | None]:
    """What intervals are clustered by: `{prompt: the domain that it asks for, or None}`."""
    found = {}
    for record in records:
        asks: Asks = record.get("asks") or {}
        found[prompt_of(record)] = asks.get("domain")
    return found


def scale(measure: str) -> tuple[int, int]:
    """The least and the most that a measure can be."""
    return (0, 1) if measure in SHARES else (1, 5)


def scales(measures: Iterable[str]) -> tuple[Array, Array]:
    """The least and the most that these measures can be, two arrays."""
    import numpy

    ends = [scale(measure) for measure in measures]
    least, most = zip(*ends, strict=True) if ends else ((), ())
    return numpy.array(least, dtype=float), numpy.array(most, dtype=float)


def means(table: Columns, domains: dict[str, str | None]) -> dict[str, Mean]:
    """`stats.means` of every column, clustered by the domains of the prompts: `{measure: {"mean", "lo", "hi", "n"}}`."""
    import numpy

    prompts = sorted({prompt for cells in table.values() for prompt in cells})
    place = {prompt: index for index, prompt in enumerate(prompts)}
    values = numpy.full((len(place), len(table)), numpy.nan)
    for column, cells in enumerate(table.values()):
        values[[place[prompt] for prompt in cells], column] = list(cells.values())
    found = stats.means(values, scales(table), [domains.get(prompt) for prompt in prompts])
    return {measure: stats.entry(found, column) for column, measure in enumerate(table)}


def columns(records: list[DeckRecord], accounting: str, excluded: int | None = None) -> Columns:
    """The values behind the means: `{measure: {prompt: value}}` under one accounting, samples of one prompt averaged.

    Decks that lack a score through no fault of the model are left out; with `excluded` 0 or 1 they get the lowest or the
    highest score there is, to see what they could change.
    """
    table: dict[str, dict[str, list[float]]] = {measure: {} for measure in _measures(records)}
    for record in records:
        if _counts(record, accounting, excluded):
            for measure, cells in table.items():
                value = _value(record, measure, excluded)
                if value is not None:
                    cells.setdefault(prompt_of(record), []).append(value)
    return {
        measure: {prompt: sum(values) / len(values) for prompt, values in cells.items()}
        for measure, cells in table.items()
        if cells
    }


def _measures(records: list[DeckRecord]) -> list[str]:
    """The measures that any of these records has, in the order of the tables."""
    known = {
        name for record in records for name, value in found_of(record).items() if value is not None
    }
    scans = ["craft", "craft_v5", *BESIDE]
    order = ["overall", "judge_only", *_dimensions(records), "checklist", *scans]
    return [measure for measure in order if measure in known]


def _counts(record: DeckRecord, accounting: str, excluded: int | None) -> bool:
    """Whether a record stands in the means of this accounting."""
    fault = fault_of(record)
    if not fault:
        return bool(record["score"].get("rendered"))
    if accounting == "renderable":
        return False
    return fault["kind"] == "model" or excluded is not None


def _value(record: DeckRecord, measure: str, excluded: int | None) -> float | None:
    """What a record that counts adds to the mean of a measure; None where it says nothing of it."""
    fault, score, own = fault_of(record), record["score"], found_of(record).get(measure)
    if score.get("lacks") and measure in UNMEASURED:
        return None
    if measure in SHARES and own is None and not _asks_for(record, measure):
        return None
    if not fault:
        return own
    if fault["kind"] == "model":
        return _floor(measure, score)
    return scale(measure)[1 if excluded else 0]


def _asks_for(record: DeckRecord, measure: str) -> bool:
    """Whether a record's prompt has what a share is of."""
    if measure == "kept":
        turn = record.get("turn")
        return bool(turn and turn.get("keeps"))
    return bool(record.get("checklist") if measure == "checklist" else record.get("sources"))


def _floor(measure: str, score: Score) -> float:
    """What a measure counts where the model failed: the protocol's floor, of a share nothing."""
    if measure in SHARES:
        return 0
    given = [value for value in score["dimensions"].values() if value is not None]
    return given[0] if given else score["overall"] or 1


def found_of(record: DeckRecord) -> dict[str, float | None]:
    """Every measure that a record may have a value of."""
    score = record["score"]
    features: Features = record.get("features") or {}
    grounding = cast(Grounding, features.get("grounding") or {})
    return {
        "overall": score.get("overall"),
        "judge_only": score.get("judge_only"),
        **(score.get("dimensions") or {}),
        "checklist": score.get("checklist"),
        "craft": features.get("craft"),
        "craft_v5": features.get("craft_v5"),
        "grounding": grounding.get("grounding"),
        "coverage": grounding.get("coverage"),
        "claims": (record.get("claims") or {}).get("share"),
        "kept": features.get("kept"),
    }


def _dimensions(records: list[DeckRecord]) -> list[str]:
    """The dimensions of these records: those with a title in the titles' order, then the others as they come."""
    found = {name: None for record in records for name in record["score"].get("dimensions") or {}}
    order = list(TITLES)
    return sorted(found, key=lambda name: order.index(name) if name in order else len(order))


# One record


def fault_of(record: DeckRecord) -> Fault | None:
    """Why a scored record has no score of its own, or None."""
    return cast(Fault | None, record["score"].get("fault") or stream.fault({**record}))


def place(record: DeckRecord) -> tuple[str, int]:
    """`(prompt's id, number of the sample)` of a record; what was chosen of several samples stands for its prompt."""
    return prompt_of(record), 0 if "choose" in record else sample_of(record)


def status_of(record: DeckRecord) -> str:
    """ "failed" (the model's fault), "excluded" (somebody else's), "partial" or "rendered"."""
    fault = fault_of(record)
    if fault:
        return "failed" if fault["kind"] == "model" else "excluded"
    render = record.get("render")
    return "partial" if render and render.get("status") == "partial" else "rendered"


def _model(record: DeckRecord) -> dict[str, object] | None:
    """What the records of a run have in common of their model."""
    gen: Gen = record.get("gen") or {}
    model = gen.get("model")
    if not model:
        return None
    found: dict[str, object] = {"name": model.get("name"), "slug": model.get("slug")}
    more = {key: model.get(key) for key in ("served", "weights", "files")}
    found |= {key: value for key, value in more.items() if value}
    if given := gen.get("condition"):
        found["condition"] = {"name": given["name"], "adds": given["adds"]}
    return found


# How the model was asked


def _own(generated: Iterable[Gen]) -> dict[str, object]:
    """The parameters that the registry set for the model, beside the protocol's."""
    given = (gen["model"].get("params") for gen in generated if gen.get("model"))
    return next((params for params in given if params), {})


def _asked(replied: list[tuple[DeckRecord, Gen]]) -> ParametersSent:
    """How the model was asked: the fingerprint of all requests less its name (None where some reply does not say), and
    every parameter, `{"extra.inner": value}`, a list of values where records differ. Sample k of a prompt is asked with
    the seed plus k; that is no difference."""
    found: dict[str, list[object]] = {}
    for record, gen in replied:
        sampling = dict(gen.get("sampling") or {})
        if isinstance(sampling.get("seed"), int):
            sampling["seed"] -= sample_of(record)
        for name, value in _flat(sampling):
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    requests = sorted((record["id"], gen.get("request") or "") for record, gen in replied)
    known = requests and all(request for _, request in requests)
    return {
        "sha256": stream.fingerprint(requests) if known else None,
        "parameters": {
            name: values[0] if len(values) == 1 else values
            for name, values in sorted(found.items())
        },
    }


def _flat(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and (value or not name):
        for key, part in value.items():
            yield from _flat(part, f"{name}.{key}" if name else key)
    else:
        yield name, value


# What it took


def _tokens(spent: list[Spent]) -> dict[str, int]:
    """The tokens of all replies that say them, and how many these are."""
    known = [one for one in spent if one["completion_tokens"] is not None]
    return {
        "prompt": sum(one["prompt_tokens"] or 0 for one in known),
        "completion": sum(one["completion_tokens"] or 0 for one in known),
        "reasoning": sum(one["reasoning_tokens"] or 0 for one in known),
        "records": len(known),
    }


def _cost(costs: Iterable[float | None]) -> float | None:
    """USD of all; None where there is nothing, or any does not say."""
    found = list(costs)
    total = usage.added(found) if found else None
    return None if total is None else round(total, 6)


def _judging_cost(value: Judge) -> float | None:
    """USD of a verdict; one that nobody was asked for costs nothing."""
    used = value.get("usage")
    return used["cost"] if used else 0


def _work(records: Iterable[DeckRecord]) -> Iterator[tuple[str, By]]:
    """Each stage that a record went through, and the `by` of what it left, where that says how long it took."""
    for record in records:
        for stage, value in record.items():
            by = value.get("by") if isinstance(value, dict) else None
            if isinstance(by, dict) and isinstance(by.get("took"), int | float):
                yield stage, cast(By, by)


def busy(records: Iterable[DeckRecord], stages: Collection[str] | None = None) -> float | None:
    """Seconds in which at least one record was in work, in any stage or one of these, so that a pause between reruns is
    none; None where no record says."""
    spans = []
    for stage, by in _work(records):
        if by.get("at") and (stages is None or stage in stages):
            start = datetime.fromisoformat(by["at"]).timestamp()
            spans.append((start, start + by["took"]))
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total if spans else None


def _took(records: list[DeckRecord]) -> Took:
    """Who made the summary, and seconds of generation, of wall time (`busy`) and of each stage."""
    stages: dict[str, float] = {}
    for stage, by in _work(records):
        stages[stage] = stages.get(stage, 0) + by["took"]
    wall = busy(records)
    return {
        "tool": "run-summarize",
        "version": __version__,
        "generation_s": round(stages["gen"], 1) if "gen" in stages else None,
        "wall_s": None if wall is None else round(wall, 1),
        "stages_s": {key: round(seconds, 1) for key, seconds in stages.items()},
    }
