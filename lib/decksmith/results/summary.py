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
from typing import TYPE_CHECKING, Any

from decksmith import __version__
from decksmith.core import cli, stream
from decksmith.core.records import Record, sample_of
from decksmith.results import stats, usage, verify

if TYPE_CHECKING:
    from decksmith.results.stats import Array
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


def summarize(numbered: Iterable[tuple[int, Record]], where: object = "stdin") -> Record:
    """One object for the records of one run, given as `(line number, record)` of the file `where`.

    Means are over prompts: several samples of a prompt are averaged first. Raises cli.BadData on empty input, a record
    without score, mixed models or mixed judges.
    """
    records, model, judge = _one_run(numbered, where)
    scores = [record["score"] for record in records]
    faults = [fault for record in records if (fault := fault_of(record))]
    generated = [gen for record in records if (gen := _done(record, "gen")) is not None]
    usages = [usage.of(record) for record in records if _done(record, "gen") is not None]
    judged = [value for record in records if (value := _done(record, "judge")) is not None]
    lacks = Counter(what for score in scores for what in score.get("lacks") or ())
    early = sum(gen.get("cut_by") == "server" for gen in generated)
    return {
        "model": {**(model or {"name": None, "slug": None}), "params": _own(generated)},
        "asked": _asked(records),
        "judge": judge,
        "n": len(records),
        "prompts": len({prompt_of(record) for record in records}),
        "rendered": sum(bool(score.get("rendered")) for score in scores),
        "partial": sum(status_of(record) == "partial" for record in records),
        "truncated": sum(gen.get("finish_reason") == "length" for gen in generated),
        **({"cut_by_server": early} if early else {}),
        **({"lacks": dict(sorted(lacks.items()))} if lacks else {}),
        "capped": sum(bool((record.get("judge") or {}).get("caps")) for record in records),
        **_apart(judged),
        "faults": _faults(faults),
        "tokens": _tokens(usages),
        "cost": _cost(usages),
        "judge_cost": _cost(value.get("usage") or {"cost": 0} for value in judged),
        "means": {
            accounting: means(columns(records, accounting), domains(records))
            for accounting in ACCOUNTINGS
        },
        **({"turns": by_turn} if (by_turn := _turns(records)) else {}),
        "interval": {
            "level": stats.LEVEL,
            "method": stats.METHOD,
            "over": stats.rule(stats.groups(domains(records).values())),
        },
        "by": {"tool": "run-summarize", "version": __version__, **_seconds(records)},
    }


def _one_run(
    numbered: Iterable[tuple[int, Record]], where: object
) -> tuple[list[Record], Record | None, Any]:
    """The records, their one model and their one judge. Raises cli.BadData."""
    records: list[Record] = []
    seen: dict[str, tuple[str, Any]] = {}
    for number, record in numbered:
        ident = record["id"]
        if not isinstance(record.get("score"), dict):
            raise cli.BadData(
                f'{where}:{number}: {ident}: no "score" in this record; deck-score writes it'
            )
        for what, value in (("model", _model(record)), ("judge", _judge(record))):
            if not value:
                continue
            first, known = seen.setdefault(what, (ident, value))
            if known != value:
                raise cli.BadData(
                    f"{where}:{number}: {ident}: one summary is for one {what}, here are two: {first} has "
                    f"{json.dumps(known, sort_keys=True)}, {ident} has {json.dumps(value, sort_keys=True)}"
                )
        records.append(record)
    if not records:
        raise cli.BadData("no records on stdin; a summary needs the scores.jsonl of a run")
    return records, seen.get("model", ("", None))[1], seen.get("judge", ("", None))[1]


def _done(record: Record, stage: str) -> Record | None:
    """What a stage made of the record, None where it failed or was not reached."""
    value = record.get(stage)
    return value if isinstance(value, dict) and not value.get("error") else None


def _apart(judged: list[Record]) -> Record:
    """How far two models of a panel are apart on average, by dimension; nothing where one model judged."""
    said = [value["disagreement"] for value in judged if value.get("disagreement")]
    names = dict.fromkeys(name for one in said for name in one)
    means = {name: fmean(one[name] for one in said if name in one) for name in names}
    return {"disagreement": {k: round(v, 4) for k, v in means.items()}} if said else {}


def _faults(faults: list[Record]) -> Record:
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


def _turns(records: list[Record]) -> dict[str, Record]:
    """`{number of the turn: {"n", and the mean under `floor` of overall, checklist and kept}}`, where prompts have turns."""
    turns: dict[str, list[Record]] = {}
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


def domains(records: Iterable[Record]) -> dict[str, str | None]:
    """What intervals are clustered by: `{prompt: the domain that it asks for, or None}`."""
    return {prompt_of(record): (record.get("asks") or {}).get("domain") for record in records}


def scale(measure: str) -> tuple[int, int]:
    """The least and the most that a measure can be."""
    return (0, 1) if measure in SHARES else (1, 5)


def scales(measures: Iterable[str]) -> tuple[Array, Array]:
    """The least and the most that these measures can be, two arrays."""
    import numpy

    ends = [scale(measure) for measure in measures]
    least, most = zip(*ends, strict=True) if ends else ((), ())
    return numpy.array(least, dtype=float), numpy.array(most, dtype=float)


def means(table: Columns, domains: dict[str, str | None]) -> dict[str, Record]:
    """`stats.means` of every column, clustered by the domains of the prompts: `{measure: {"mean", "lo", "hi", "n"}}`."""
    import numpy

    prompts = sorted({prompt for cells in table.values() for prompt in cells})
    place = {prompt: index for index, prompt in enumerate(prompts)}
    values = numpy.full((len(place), len(table)), numpy.nan)
    for column, cells in enumerate(table.values()):
        values[[place[prompt] for prompt in cells], column] = list(cells.values())
    found = stats.means(values, scales(table), [domains.get(prompt) for prompt in prompts])
    return {
        measure: {
            **{name: stats.number(found[name][column]) for name in ("mean", "lo", "hi")},
            "n": int(found["n"][column]),
        }
        for column, measure in enumerate(table)
    }


def columns(records: list[Record], accounting: str, excluded: int | None = None) -> Columns:
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


def _measures(records: list[Record]) -> list[str]:
    """The measures that any of these records has, in the order of the tables."""
    known = {
        name for record in records for name, value in _found(record).items() if value is not None
    }
    scans = ["craft", "craft_v5", *BESIDE]
    order = ["overall", "judge_only", *_dimensions(records), "checklist", *scans]
    return [measure for measure in order if measure in known]


def _counts(record: Record, accounting: str, excluded: int | None) -> bool:
    """Whether a record stands in the means of this accounting."""
    fault = fault_of(record)
    if not fault:
        return bool(record["score"].get("rendered"))
    if accounting == "renderable":
        return False
    return fault["kind"] == "model" or excluded is not None


def _value(record: Record, measure: str, excluded: int | None) -> float | None:
    """What a record that counts adds to the mean of a measure; None where it says nothing of it."""
    fault, score, own = fault_of(record), record["score"], _found(record).get(measure)
    if score.get("lacks") and measure in UNMEASURED:
        return None
    if measure in SHARES and own is None and not _asks_for(record, measure):
        return None
    if not fault:
        return own
    if fault["kind"] == "model":
        return _floor(measure, score)
    return scale(measure)[1 if excluded else 0]


def _asks_for(record: Record, measure: str) -> bool:
    """Whether a record's prompt has what a share is of."""
    if measure == "kept":
        return bool((record.get("turn") or {}).get("keeps"))
    return bool(record.get("checklist" if measure == "checklist" else "sources"))


def _floor(measure: str, score: Record) -> float:
    """What a measure counts where the model failed: the protocol's floor, of a share nothing."""
    if measure in SHARES:
        return 0
    given = (value for value in score["dimensions"].values() if value is not None)
    floor: float = next(given, score["overall"])
    return floor


def _found(record: Record) -> dict[str, Any]:
    score, features = record["score"], record.get("features") or {}
    grounding = features.get("grounding") or {}
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


def _dimensions(records: list[Record]) -> list[str]:
    """The dimensions of these records: those with a title in the titles' order, then the others as they come."""
    found = {name: None for record in records for name in record["score"].get("dimensions") or {}}
    order = list(TITLES)
    return sorted(found, key=lambda name: order.index(name) if name in order else len(order))


# One record


def fault_of(record: Record) -> Record | None:
    """Why a scored record has no score of its own, or None."""
    fault = record["score"].get("fault") or stream.fault(record)
    return dict(fault) if fault else None


def prompt_of(record: Record) -> str:
    """The id of the prompt that a record is a sample of."""
    return verify.place(record)[0]


def status_of(record: Record) -> str:
    """ "failed" (the model's fault), "excluded" (somebody else's), "partial" or "rendered"."""
    fault = fault_of(record)
    if fault:
        return "failed" if fault["kind"] == "model" else "excluded"
    return "partial" if (record.get("render") or {}).get("status") == "partial" else "rendered"


def _model(record: Record) -> Record | None:
    model = (record.get("gen") or {}).get("model")
    if not model:
        return None
    more = {key: model[key] for key in ("served", "weights", "files") if model.get(key)}
    given = record["gen"].get("condition")
    condition = {"condition": {"name": given["name"], "adds": given["adds"]}} if given else {}
    return {"name": model.get("name"), "slug": model.get("slug"), **more, **condition}


def _judge(record: Record) -> Any:
    return (record.get("judge") or {}).get("judge")


# How the model was asked


def _own(generated: list[Record]) -> Record:
    """The parameters that the registry set for the model, beside the protocol's."""
    given = ((gen.get("model") or {}).get("params") for gen in generated)
    return next((params for params in given if params), {})


def _asked(records: list[Record]) -> Record:
    """How the model was asked: the fingerprint of all requests less its name (None where some reply does not say), and
    every parameter, `{"extra.inner": value}`, a list of values where records differ. Sample k of a prompt is asked with
    the seed plus k; that is no difference."""
    gens = [(record, gen) for record in records if (gen := _done(record, "gen")) is not None]
    found: dict[str, list[Any]] = {}
    for record, gen in gens:
        sampling = dict(gen.get("sampling") or {})
        if isinstance(sampling.get("seed"), int):
            sampling["seed"] -= sample_of(record)
        for name, value in _flat(sampling):
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    if cut := sum(bool(gen.get("shortened")) for _, gen in gens):
        found["requests with fewer max_tokens, to fit the context"] = [cut]
    requests = sorted((record["id"], gen.get("request")) for record, gen in gens)
    known = requests and all(request for _, request in requests)
    return {
        "sha256": stream.fingerprint(requests) if known else None,
        "parameters": {
            name: values[0] if len(values) == 1 else values
            for name, values in sorted(found.items())
        },
    }


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and (value or not name):
        for key, part in value.items():
            yield from _flat(part, f"{name}.{key}" if name else key)
    else:
        yield name, value


# What it took


def _tokens(usages: list[Record]) -> Record:
    usages = [usage for usage in usages if usage.get("completion_tokens") is not None]
    total = {
        name: sum(usage.get(f"{name}_tokens") or 0 for usage in usages)
        for name in ("prompt", "completion", "reasoning")
    }
    return {**total, "records": len(usages)}


def _cost(usages: Iterable[Record | None]) -> float | None:
    """USD of all; None where any does not say."""
    costs = [(usage or {}).get("cost") for usage in usages]
    known = [cost for cost in costs if cost is not None]
    return round(sum(known), 6) if costs and len(known) == len(costs) else None


def _work(records: Iterable[Record]) -> Iterator[tuple[str, Record]]:
    """Each stage that a record went through, and the `by` of what it left, where that says how long it took."""
    for record in records:
        for stage, value in record.items():
            by = value.get("by") if isinstance(value, dict) else None
            if isinstance(by, dict) and isinstance(by.get("took"), int | float):
                yield stage, by


def busy(records: Iterable[Record], stages: Collection[str] | None = None) -> float | None:
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


def _seconds(records: list[Record]) -> Record:
    """Seconds of generation, of each stage, and of wall time (`busy`). None where no record says."""
    stages: dict[str, float] = {}
    for stage, by in _work(records):
        stages[stage] = stages.get(stage, 0) + by["took"]
    wall = busy(records)
    return {
        "generation_s": round(stages["gen"], 1) if "gen" in stages else None,
        "wall_s": None if wall is None else round(wall, 1),
        "stages_s": {key: round(seconds, 1) for key, seconds in stages.items()},
    }
