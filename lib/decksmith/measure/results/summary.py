"""One run in numbers: what its scored records say, as means, counts, faults, tokens, cost and time.

`renders` is 1 for a deck that renders and 0 for one that its model failed. Where a judge reads, a model fault counts as 1 in every
dimension under `floor` (checklist: 0); `renderable` looks only at decks that rendered, and `checks` is of these alone. Judge,
renderer and infra faults are in neither; they are counted.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import numpy
from pydantic_core import from_json, to_json

from decksmith import __version__
from decksmith.core import cli, stream
from decksmith.core.records import Asks, By, Failure, PromptRow, Record, prompt_of, sample_of
from decksmith.measure.judging.records import DeckRecord, Features, Grounding, Score, Spent
from decksmith.measure.judging.scoring import EDIT
from decksmith.measure.results import stats, usage
from decksmith.measure.results.records import Faults, Mean, ParametersSent, Summary, Took
from decksmith.measure.results.stats import Array
from decksmith.models.records import Asked, Gen
from decksmith.models.replies import CUT

Cells = dict[str, float]  # a value for each prompt
Columns = dict[str, Cells]  # and these for each measure

TITLES = {
    "renders": "Renders",
    "checks": "Checks passed",
    "edit": "Met x stayed",
    "met": "Request met",
    "stayed": "Rest stayed",
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
    "claims": "Claims",
    "kept": "Kept",
}
# Measures that are shares, from 0 to 1; those of a deck's documents and turns stand beside the score and are no part of it.
BESIDE = ("grounding", "claims", "kept")
SHARES = ("renders", "checks", "checklist", *EDIT, *BESIDE)
ERROR = (
    "with an error"  # of a deck that renders: one of its slides could not be drawn as it is written
)
ONLY = {"renders": "floor", "checks": "renderable"}  # the accounting that has it
ACCOUNTINGS = ("floor", "renderable")
PROMPT = PromptRow.__annotations__.keys() - {"id"}


class Light:
    """Records as they are read, each then without its X-ray, and what several have held once: of 108 kB in memory 26 are left."""

    def __init__(self, asked: dict[str, object] | None = None) -> None:
        """asked: what prompts hold, by its fingerprint, for all runs that are read together."""
        self.sum, self.between = hashlib.sha256(), b"["
        self.asked = {} if asked is None else asked

    def take(self, record: DeckRecord) -> DeckRecord:
        self.sum.update(self.between + stream.canonical(record))
        self.between = b","
        cast(Record, record.get("render") or {}).pop("xray", None)
        light = from_json(to_json(record))  # which holds equal words once
        for key in PROMPT & light.keys():
            light[key] = self.asked.setdefault(stream.fingerprint(light[key]), light[key])
        return cast(DeckRecord, light)

    def fingerprint(self) -> str:
        """What `stream.fingerprint` gives for the list of all, as they were."""
        ended = self.sum.copy()
        ended.update(b"]" if self.between == b"," else b"[]")
        return ended.hexdigest()


def summarize(
    numbered: Iterable[tuple[int, DeckRecord]],
    where: object = "stdin",
    made_from: str | None = None,
) -> Summary:
    """One object for the records of one run, given as `(line number, record)` of the file `where`. `made_from`: the
    fingerprint of all of them, where they are not whole.

    Means are over prompts: several samples of a prompt are averaged first. Raises cli.BadData on empty input, a record
    without score, mixed models or mixed judges.
    """
    records, model, judge = _one_run(numbered, where)
    scores = [record["score"] for record in records]
    replied = [
        (record, gen) for record in records if (gen := record.get("gen")) and not gen.get("error")
    ]
    judged = [one for record in records if (one := record.get("judge")) and not one.get("error")]
    spent = [usage.of(record) for record, _ in replied]
    cut = [gen for _, gen in replied if gen.get("finish_reason") in CUT]
    params = [gen["model"].get("params") for _, gen in replied if gen.get("model")]
    prompts = domains(records)
    found: Summary = {
        "model": {**model, "params": next(filter(None, params), {})},
        "asked": _asked(replied),
        "judge": judge,
        "n": len(records),
        "prompts": len(prompts),
        "rendered": sum(bool(score.get("rendered")) for score in scores),
        "partial": sum(status_of(record) == "partial" for record in records),
        "truncated": len(cut),
        "capped": sum(bool(value.get("caps")) for value in judged),
        "faults": _faults([fault for record in records if (fault := fault_of(record))]),
        "tokens": _tokens(spent),
        "cost": _cost(one["cost"] for one in spent),
        # A verdict that nobody was asked for costs nothing.
        "judge_cost": _cost(one["usage"]["cost"] if one.get("usage") else 0 for one in judged),
        "means": {each: means(columns(records, each), prompts, each) for each in ACCOUNTINGS},
        "interval": {
            "level": stats.LEVEL,
            "method": stats.METHOD,
            "over": stats.rule(stats.groups(prompts.values())),
        },
        "by": _took(records, made_from or stream.fingerprint(records)),
    }
    if early := sum(gen.get("cut_by") == "server" for gen in cut):
        found["cut_by_server"] = early
    if stopped := sum("stopped" in gen for gen in cut):
        found["stopped"] = stopped
    found["by"]["sum"] = stream.fingerprint({**found, "by": None})
    return found


def _one_run(
    numbered: Iterable[tuple[int, DeckRecord]], where: object
) -> tuple[list[DeckRecord], Asked, str | None]:
    """The records, their one model and their one judge. Raises cli.BadData."""
    records: list[DeckRecord] = []
    first: dict[str, tuple[str, object]] = {}  # who said it first, and what
    for number, record in numbered:
        here = f"{where}:{number}: {record['id']}"
        if not isinstance(record.get("score"), dict):
            raise cli.BadData(f'{here}: no "score" in this record; deck-score writes it')
        judge = (record.get("judge") or {}).get("judge")
        for what, value in (("model", _model(record)), ("judge", judge)):
            if not value:
                continue
            ident, known = first.setdefault(what, (record["id"], value))
            if value != known:
                before, now = (json.dumps(each, sort_keys=True) for each in (known, value))
                raise cli.BadData(
                    f"{here}: one summary is for one {what}, here are two: "
                    f"{ident} has {before}, {record['id']} has {now}"
                )
        records.append(record)
    if not records:
        raise cli.BadData("no records on stdin; a summary needs the scores.jsonl of a run")
    _, asked = first.get("model", ("", {"name": None, "slug": None}))
    return records, cast(Asked, asked), cast(str | None, first.get("judge", ("", None))[1])


def _faults(faults: list[Failure]) -> Faults:
    classes = Counter((fault["kind"], fault["stage"], fault["class"]) for fault in faults)
    ordered = sorted(classes.items(), key=lambda item: (-item[1], item[0]))
    return {
        "kinds": {kind: sum(fault["kind"] == kind for fault in faults) for kind in stream.KINDS},
        "classes": [
            {"kind": kind, "stage": stage, "class": name, "n": n}
            for (kind, stage, name), n in ordered
        ],
    }


def rendering(summary: Mapping[str, Any]) -> tuple[int, int]:
    """How many decks of a summary render, and of how many: those with a fault that is not the model's are in neither."""
    kinds = summary["faults"]["kinds"]
    counted = summary["n"] - (sum(kinds.values()) - kinds["model"])
    return counted - kinds["model"], counted


def rendered(summary: Mapping[str, Any]) -> str:
    """`12 of 12, 6 with an error`: how many decks render, in the words of terminal, tables and page."""
    partial = summary["partial"]
    return "{} of {}".format(*rendering(summary)) + f", {partial} {ERROR}" * bool(partial)


# The values behind the means


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
    ends = [scale(measure) for measure in measures]
    least, most = zip(*ends, strict=True) if ends else ((), ())
    return numpy.array(least, dtype=float), numpy.array(most, dtype=float)


def means(table: Columns, domains: dict[str, str | None], accounting: str) -> dict[str, Mean]:
    """The mean of every column, clustered by the domains of the prompts: `{measure: {"mean", "lo", "hi", "n"}}`. Of
    `renders` by `stats.shares`, of rendered decks by `stats.t_means`, with failures counted by `stats.means`."""
    prompts = sorted({prompt for cells in table.values() for prompt in cells})
    place = {prompt: index for index, prompt in enumerate(prompts)}
    clusters = [domains.get(prompt) for prompt in prompts]
    values = numpy.full((len(place), len(table)), numpy.nan)
    for column, cells in enumerate(table.values()):
        values[[place[prompt] for prompt in cells], column] = list(cells.values())
    interval = stats.means if accounting == "floor" else stats.t_means
    found = interval(values, scales(table), clusters)
    entries = {measure: stats.entry(found, column) for column, measure in enumerate(table)}
    if "renders" in table:
        column = [*table].index("renders")
        entries["renders"] = stats.entry(stats.shares(values[:, [column]], clusters), 0)
    return entries


def columns(records: list[DeckRecord], accounting: str, excluded: int | None = None) -> Columns:
    """The values behind the means: `{measure: {prompt: value}}` under one accounting, samples of one prompt averaged.

    Decks that lack a score through no fault of the model are left out; with `excluded` 0 or 1 they get the lowest or the
    highest score there is, to see what they could change.
    """
    table: dict[str, dict[str, list[float]]] = {
        measure: {} for measure in _measures(records) if ONLY.get(measure, accounting) == accounting
    }
    for record in records:
        fault, found = fault_of(record), found_of(record)
        model = bool(fault and fault["kind"] == "model")
        if model:
            counts = accounting == "floor"
        else:
            counts = excluded is not None if fault else bool(record["score"].get("rendered"))
        for measure, cells in table.items() if counts else ():
            value = found.get(measure)
            if fault and (value is not None or _asks_for(record, measure)):
                ends = scale(measure)
                value = _floor(measure, record["score"]) if model else ends[bool(excluded)]
            if value is not None:
                cells.setdefault(prompt_of(record), []).append(value)
    return {
        measure: {prompt: sum(values) / len(values) for prompt, values in cells.items()}
        for measure, cells in table.items()
        if cells
    }


def worth(records: list[DeckRecord]) -> Cells:
    """By prompt the share of checks that its deck passes, none where it does not render; under a judge that reads its marks, from 0
    for 1 to 1 for 5."""
    marks = columns(records, "renderable")
    good = marks.get("checks") or {key: (n - 1) / 4 for key, n in marks.get("overall", {}).items()}
    renders = columns(records, "floor").get("renders", {})
    return {prompt: value * good.get(prompt, 0.0) for prompt, value in renders.items()}


def _measures(records: list[DeckRecord]) -> list[str]:
    """The measures that any of these records has, in the order of the tables."""
    known = {
        name for record in records for name, value in found_of(record).items() if value is not None
    }
    return [name for name in TITLES if name in known] + sorted(known - {*TITLES})


def _asks_for(record: DeckRecord, measure: str) -> bool:
    """Whether a record's prompt has what a measure is of."""
    if measure == "kept":
        turn = record.get("turn")
        return bool(turn and turn.get("keeps"))
    if measure == "checklist":
        return bool(record.get("checklist"))
    return measure not in BESIDE or bool(record.get("sources"))


def _floor(measure: str, score: Score) -> float:
    """What a measure counts where the model failed: the protocol's floor, of a share nothing."""
    if measure in SHARES:
        return 0
    given = [value for value in score.get("dimensions", {}).values() if value is not None]
    return given[0] if given else score.get("overall") or 1


def found_of(record: DeckRecord) -> dict[str, float | None]:
    """Every measure that a record may have a value of."""
    score, fault = record["score"], fault_of(record)
    renders = None if fault and fault["kind"] != "model" else float(not fault)
    features: Features = record.get("features") or {}
    grounding = cast(Grounding, features.get("grounding") or {})
    return {
        "renders": renders,
        "checks": score.get("checks"),
        **{name: score.get(name) for name in EDIT},
        "overall": score.get("overall"),
        "judge_only": score.get("judge_only"),
        **(score.get("dimensions") or {}),
        "checklist": score.get("checklist"),
        "craft": features.get("craft"),
        "craft_v5": features.get("craft_v5"),
        "grounding": grounding.get("grounding"),
        "claims": (record.get("claims") or {}).get("share"),
        "kept": features.get("kept"),
    }


# One record


def fault_of(record: DeckRecord) -> Failure | None:
    """Why a scored record has no score of its own, or None."""
    return cast(Failure | None, record["score"].get("fault") or stream.fault(cast(Record, record)))


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


def made_by(records: Iterable[Mapping[str, object]]) -> Iterator[tuple[str, By]]:
    """Each stage that a record went through, and the `by` of what it left."""
    for record in records:
        for stage, value in record.items():
            by = value.get("by") if isinstance(value, dict) else None
            if isinstance(by, dict):
                yield stage, cast(By, by)


def spans(records: Iterable[Mapping[str, object]]) -> list[tuple[datetime, datetime]]:
    """When each stage of each record was at work, `[(from, to)]` in UTC and in order; those that do not say are left out."""
    found = []
    for _, by in made_by(records):
        if by.get("at"):
            start = datetime.fromisoformat(by["at"]).astimezone(UTC)
            found.append((start, start + timedelta(seconds=by.get("took") or 0)))
    return sorted(found)


def busy(records: Iterable[Mapping[str, object]]) -> float | None:
    """Seconds in which at least one record was in work, so that a pause between reruns is none; None where no record says."""
    worked = spans(records)
    total, end = 0.0, datetime.min.replace(tzinfo=UTC)
    for start, stop in worked:
        total += max(0.0, (stop - max(start, end)).total_seconds())
        end = max(end, stop)
    return total if worked else None


def _took(records: list[DeckRecord], made_from: str) -> Took:
    """Who made the summary, and seconds of generation, of wall time (`busy`) and of each stage."""
    stages: dict[str, float] = {}
    for stage, by in made_by(records):
        if isinstance(by.get("took"), int | float):
            stages[stage] = stages.get(stage, 0) + by["took"]
    wall = busy(records)
    return {
        "tool": "run-summarize",
        "version": __version__,
        "made_from": made_from,
        "generation_s": round(stages["gen"], 1) if "gen" in stages else None,
        "wall_s": None if wall is None else round(wall, 1),
        "stages_s": {key: round(seconds, 1) for key, seconds in stages.items()},
    }
