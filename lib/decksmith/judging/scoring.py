"""The arithmetic of a deck's score: caps, floors, dimensions and their weighted mean."""

from decksmith.core import cli
from decksmith.core.protocol import refused
from decksmith.judging import offline

DIMENSIONS = ("viscraft", "design", "content", "coherence")
JUDGED = ("content", "design", "coherence")


def capped(protocol, scores, observations, asked, made):
    """Apply the protocol's caps to a judge's scores: `(scores, caps)`.

    scores: {content, design, coherence} in 1..5. observations: [{"seen", "slide"}] as the judge reported them.
    asked, made: slides in the request (None when it names no number) and in the deck.
    """
    caps, scores = [], dict(scores)
    for cap in protocol.judge.get("caps", []):
        if cap.get("counted"):
            why = f"{made} of {asked} slides" if asked and made * 2 < asked else None
        else:
            slides = [o["slide"] for o in observations if o["seen"] == cap["seen"]]
            why = cap["means"] + (
                " (slide " + ", ".join(map(str, sorted(set(s for s in slides if s)))) + ")"
                if any(slides)
                else ""
            )
            why = why if slides else None
        if why and scores[cap["dimension"]] > cap["max"]:
            caps.append(
                {"dimension": cap["dimension"], "max": cap["max"], "seen": cap["seen"], "why": why}
            )
    for cap in caps:
        scores[cap["dimension"]] = min(scores[cap["dimension"]], cap["max"])
    return scores, caps


def fault(protocol, record):
    """What keeps a record from being scored, as `{"stage", "kind", "class", "message", ..}`, or None.

    It is the first of the record's errors (`stream.fault`); about the render the protocol decides
    (`refused`).
    """
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


def score(protocol, record):
    """The value of `score` (docs/records.md) for one record that the other stages are done with.

    A model fault sets every dimension to the floor; any other fault leaves `overall` null. Raises cli.BadData when a
    stage is missing.
    """
    weights, floor = protocol.score["weights"], protocol.score["floor"]
    error = fault(protocol, record)
    items = len(record.get("checklist") or [])
    lacks = unmeasured(protocol, record)
    if error and error["kind"] == "model":
        dimensions = dict.fromkeys(DIMENSIONS, floor) | ({"content": None} if lacks else {})
        return {
            "overall": mean(dimensions, weights),
            "judge_only": mean(dimensions, {name: weights[name] for name in JUDGED}),
            "checklist": 0.0 if items else None,
            "dimensions": dimensions,
            "rendered": _rendered(protocol, record),
            "floored": True,
            "fault": error,
            **({"lacks": lacks} if lacks else {}),
        }
    if error:
        dimensions = dict.fromkeys(DIMENSIONS)
        dimensions["viscraft"] = (record.get("features") or {}).get(protocol.score["viscraft"])
        return {
            "overall": None,
            "judge_only": None,
            "checklist": None,
            "dimensions": dimensions,
            "rendered": _rendered(protocol, record),
            "floored": False,
            "fault": error,
        }
    judge, features = (
        _get(record, "judge", "scores"),
        _get(record, "features", protocol.score["viscraft"]),
    )
    dimensions = {
        "viscraft": features,
        **{name: judge[name] for name in ("design", "content", "coherence")},
    }
    yes = sum(1 for item in record["judge"].get("checklist") or [] if item["yes"])
    return {
        "overall": mean(dimensions, weights),
        "judge_only": mean(dimensions, {name: weights[name] for name in JUDGED}),
        "checklist": round(yes / items, 4) if items else None,
        "dimensions": dimensions,
        "rendered": True,
        "floored": False,
        "fault": None,
        **({"lacks": lacks} if lacks else {}),
    }


def unmeasured(protocol, record):
    """What the prompt of a record lacks for its content to be measured offline (`offline.lacking`), or []. It is a property
    of the prompt: a deck that failed has no content score there either, or failing would be the only way to have one."""
    if protocol.judge["kind"] != "offline":
        return []
    return offline.lacking(record, protocol.judge["needed"])


def mean(dimensions, weights):
    """The weighted mean over the dimensions that have a weight, rounded to 4 digits; None when the weights sum to 0 or a
    dimension with a weight is None."""
    total = sum(weights.values())
    if any(dimensions[name] is None for name, weight in weights.items() if weight):
        return None
    return (
        round(sum(dimensions[name] * weight for name, weight in weights.items()) / total, 4)
        if total
        else None
    )


def _rendered(protocol, record):
    """Whether the pictures are there and the protocol accepts them, whatever failed afterwards."""
    render = {key: record[key] for key in ("gen", "deck", "images", "render") if key in record}
    return "render" in render and fault(protocol, render) is None


def _get(record, stage, key):
    value = record.get(stage)
    if not isinstance(value, dict) or value.get(key) is None:
        raise cli.BadData(
            f"{record['id']}: no {stage}.{key} in this record; deck-{'judge' if stage == 'judge' else 'scan'} writes it"
        )
    return value[key]
