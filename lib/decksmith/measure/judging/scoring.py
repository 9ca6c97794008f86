"""The arithmetic of a deck's score: the share of checks, or caps, floors, dimensions and their weighted mean."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from decksmith.core import cli
from decksmith.core.protocol import Protocol, refused
from decksmith.core.records import Record
from decksmith.measure.judging.records import Cap, DeckRecord, Judge, Observation, Score

DIMENSIONS = ("viscraft", "design", "content", "coherence")
EDIT = ("edit", "met", "stayed")  # of edits: the product, and its two numbers
JUDGED = ("content", "design", "coherence")


def capped(
    protocol: Protocol,
    scores: Mapping[str, float],
    observations: Sequence[Observation],
    asked: int | None,
    made: int,
) -> tuple[dict[str, float], list[Cap]]:
    """`(scores, caps)`: the protocol's caps on a judge's scores; asked (or None), made: slides."""
    caps: list[Cap] = []
    for cap in protocol.judge.get("caps", []):
        if cap.get("counted"):
            why = f"{made} of {asked} slides" if asked and made * 2 < asked else None
        else:
            slides = {seen["slide"] for seen in observations if seen["seen"] == cap["seen"]}
            named = ", ".join(str(slide) for slide in sorted(filter(None, slides)))
            said = f"{cap['means']} (slide {named})" if named else str(cap["means"])
            why = said if slides else None  # nobody saw it
        if why and scores[cap["dimension"]] > cap["max"]:
            caps.append(Cap(dimension=cap["dimension"], max=cap["max"], seen=cap["seen"], why=why))
    kept = dict(scores)
    for one in caps:
        kept[one["dimension"]] = min(kept[one["dimension"]], one["max"])
    return kept, caps


def fault(protocol: Protocol, record: Record) -> Record | None:
    """What keeps a record from being scored: the first of its errors, as {stage, kind, class, ..}."""
    for stage, value in record.items():
        if not isinstance(value, dict):
            continue
        error = value.get("error")
        if stage == "render" and "errors" in value:
            # A render that another protocol refused was never judged: then its error stands.
            error = refused(protocol, value) or (error if "judge" not in record else None)
        if error:
            return {"stage": stage, **error}
    return None


def weighed(record: Record) -> Record:
    """What a record's score is made from: all that stands before it, but for the id, which deck-choose may change."""
    before = itertools.takewhile(lambda item: item[0] != "score", record.items())
    return {key: value for key, value in before if key != "id"}


def score(protocol: Protocol, record: Record) -> Score:
    """The value of `score` for a record that the other stages are done with: a model fault sets every
    dimension to the floor; others leave `overall` null. Raises cli.BadData for a missing stage."""
    error = fault(protocol, record)
    value: Score = {
        "checklist": None,
        "rendered": not error or _rendered(protocol, record),
        "floored": bool(error and error["kind"] == "model"),
        "fault": error,
    }
    kind = protocol.judge["kind"]
    part = {"offline": "checks", "edit": "edit"}.get(kind, "scores")
    judged = None if error else _get(record, "judge", part)
    if record.get("checklist") and value["floored"]:
        value["checklist"] = 0.0
    elif not error and (answers := record["judge"].get("checklist")):
        # An imported deck has answers to those items alone that can be looked for in it.
        value["checklist"] = round(sum(item["yes"] for item in answers) / len(answers), 4)
    if kind == "edit":
        lost = cast(Score, dict.fromkeys(EDIT, 0.0 if value["floored"] else None))
        return {**value, **(of_edit(record["id"], judged) if judged else lost)}
    if kind == "offline":
        value["checks"] = None if error else _share(record["id"], judged)
        return value
    return {**value, **_marks(protocol, record, error)}


def of_edit(ident: str, judged: Any) -> Score:
    """The two numbers of an edit and their product."""
    met, stayed = (_share(ident, judged[name]) for name in ("met", "kept"))
    return {"met": met, "stayed": stayed, "edit": round(met * stayed, 4)}


def _marks(protocol: Protocol, record: Record, error: Record | None) -> Score:
    """The dimensions that a judge that reads gave, and their means; the floor for a model's fault."""
    weights, scan = protocol.score["weights"], protocol.score["viscraft"]
    dimensions: dict[str, float | None] = dict.fromkeys(DIMENSIONS)
    if error and error["kind"] == "model":
        dimensions = dict.fromkeys(DIMENSIONS, protocol.score["floor"])
    elif error:
        dimensions["viscraft"] = (record.get("features") or {}).get(scan)
    else:
        judged = _get(record, "judge", "scores")
        dimensions["viscraft"] = _get(record, "features", scan)
        dimensions |= {name: judged.get(name) for name in JUDGED}
    scored = not error or error["kind"] == "model"
    return {
        "overall": mean(dimensions, weights) if scored else None,
        "judge_only": mean(dimensions, {n: weights[n] for n in JUDGED}) if scored else None,
        "dimensions": dimensions,
    }


def _share(ident: str, counted: object) -> float:
    """The share of checks that a deck passes, to 4 digits. Raises cli.BadData for what is no count of them."""
    match counted:
        case {"passed": int(passed), "of": int(of)} if 0 <= passed <= of > 0:
            return round(passed / of, 4)
    said = (
        f"judge.checks is {counted}, and not how many pass of all there are; deck-judge writes it"
    )
    raise cli.BadData(f"{ident}: {said}")


def not_checked(record: DeckRecord) -> dict[str, str]:
    """The checks that do not apply to a deck, and why; `element code` is the one check of that element."""
    judge: Judge = record.get("judge") or {}
    return judge.get("not_checked") or {}


def without(record: DeckRecord, names: Collection[str]) -> DeckRecord:
    """A scored record as if these checks did not apply to its deck, as they do not to the one that it is compared with."""
    judge: Judge = record.get("judge") or {}
    if not {*names} - {*not_checked(record)} or record["score"].get("checks") is None:
        return record
    asked, kinds = judge["asked"], {one["check"] for one in judge["asked"]}
    left = [one for one in asked if not {one["check"], f"{one['check']} {one['what']}"} & {*names}]
    found = [one for one in judge["findings"] if one["check"] not in kinds]
    found = [one for one in found if (one["check"], one["slide"]) != ("slides", None)]
    kept = [one for one in found if one["check"] not in names]
    wrong, still = ({one["slide"] for one in some} - {None} for some in (found, kept))
    homeless, yet = (sum(one["slide"] is None for one in some) for some in (found, kept))
    made = judge["checks"]["passed"] - sum(one["yes"] for one in asked) + len(wrong)
    lacking = judge["checks"]["of"] - len(asked) - homeless - made  # slides that are not there
    passed = made - len(still) + sum(one["yes"] for one in left)
    of = made + (0 if "slides" in names else lacking) + yet + len(left)
    return {**record, "score": {**record["score"], "checks": round(passed / of, 4) if of else None}}


def worth(score: Score) -> float | None:
    """The one number by which decks are chosen, paired and followed: Overall where a judge reads (1 to 5), else the share
    of checks passed, 0 for a deck that its model failed; None where somebody else's fault left no score."""
    if "edit" in score:
        return score["edit"]
    if "checks" not in score:
        return score.get("overall")
    return 0.0 if score.get("floored") else score["checks"]


def mean(dimensions: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """The weighted mean to 4 digits; None when weights sum to 0 or one's dimension is None."""
    total, summed = sum(weights.values()), 0.0
    for name, weight in weights.items():
        value = dimensions[name]
        if weight and value is None:
            return None
        summed += (value or 0) * weight
    return round(summed / total, 4) if total else None


def _rendered(protocol: Protocol, record: Record) -> bool:
    """Whether the pictures are there and the protocol accepts them, whatever failed afterwards."""
    stages = ("gen", "deck", "images", "render")
    before: Record = {key: record[key] for key in stages if key in record}
    return "render" in before and fault(protocol, before) is None


def _get(record: Record, stage: str, key: str) -> Any:
    value = record.get(stage)
    if not isinstance(value, dict) or value.get(key) is None:
        writer = "deck-judge" if stage == "judge" else "deck-scan"
        raise cli.BadData(f"{record['id']}: no {stage}.{key} in this record; {writer} writes it")
    return value[key]
