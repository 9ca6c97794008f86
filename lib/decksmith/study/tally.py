"""What people's votes say, as vote-tally prints it: one object of everything that the other modules
estimate.

A vote is a dict as `store.Study.votes()` yields it: {"pair", "kind", "of", "expect", "rater",
"prompt", "left", "right" (models), "choice" (left, right, tie, bad), "dimensions", "seconds", ..}.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.results import stats
from decksmith.study import crowds, estimates, intervals, judge, outside, people, store
from decksmith.study.intervals import Vote
from decksmith.study.messages import CHOICES
from decksmith.study.people import preferred


@dataclass(frozen=True)
class _Selected:
    """Which votes count."""

    kept: list[Vote]
    with_ties: list[Vote]  # what `kept` is where ties count
    with_crowds: list[Vote]  # what `with_ties` is where crowds count
    raters: list[dict[str, Any]]  # as people.raters has them
    crowds: dict[str, Any]  # as crowds.find has them


def _selected(
    votes: Sequence[Vote],
    came: Sequence[dict[str, Any]] = (),
    without_crowds: bool = False,
    ties: str = "half",
) -> _Selected:
    with_crowds, raters = people.counted(votes)
    gathered, with_ties = crowds.find(came, with_crowds), with_crowds
    if without_crowds:
        with_ties, raters = people.counted(votes, frozenset(gathered["raters"]))
    kept = with_ties if ties == "half" else [vote for vote in with_ties if preferred(vote)]
    return _Selected(kept, with_ties, with_crowds, raters, gathered)


def precision(
    votes: Iterable[Vote],
    wanted: float | None = None,
    *,
    came: Iterable[dict[str, Any]] = (),
    without_crowds: bool = False,
    ties: str = "half",
) -> dict[str, Any]:
    """estimates.precision of those votes that `tally` counts; options as there."""
    chosen = _selected(list(votes), list(came), without_crowds, ties)
    return estimates.precision(chosen.kept, wanted)


def tally(
    votes: Iterable[Vote],
    decks: judge.Decks | None = None,
    current: Mapping[str, float] | None = None,
    *,
    came: Iterable[dict[str, Any]] = (),
    without_crowds: bool = False,
    ties: str = "half",
) -> dict[str, Any]:
    """Everything the votes say, JSON-able.

    votes           as Study.votes() yields them
    decks           {pair: {model: measures}} of the judge; current: its weights by dimension
    came            who came whence and when (crowds.find); without_crowds: leave crowds out
    ties            a vote that prefers neither deck is a "half" for each, or "drop": not counted at
                    all

    Raises cli.BadData where nothing is left to count."""
    votes, came = list(votes), list(came)
    chosen = _selected(votes, came, without_crowds, ties)
    kept = chosen.kept
    if not kept:
        raise cli.BadData(
            "no vote counts: there is none yet, or all are by raters who are left out"
            + (", or ties" if ties == "drop" else "")
        )
    crowd = frozenset(chosen.crowds["raters"])
    raters = {vote["rater"] for vote in kept}
    strong = estimates.strengths(kept)
    over = "prompts and raters" if len(raters) >= intervals.RATERS else "prompts"
    return {
        "votes": _counts(votes, chosen, ties),
        "prompts": len({vote["prompt"] for vote in kept}),
        "raters": len(raters),
        "rule": people.RULE,
        "people": chosen.raters,
        "interval": {
            "level": stats.LEVEL,
            "resamples": intervals.RESAMPLES,
            "seed": stats.SEED,
            "over": over,
        },
        "pairs": estimates.preferences(kept, frozenset() if without_crowds else crowd),
        "models": _models(kept),
        "strengths": strong,
        "position": _position(kept, chosen.raters, strong),
        "seconds": _seconds(kept),
        "agreement": people.agreement(kept),
        "judge": judge.judged(kept, decks) if decks else None,
        "weights": judge.weights(kept, decks, current) if decks and current else None,
        "precision": estimates.precision(kept),
        "crowds": {
            **chosen.crowds,
            "left_out": without_crowds,
            "by_time": crowds.by_time(came, votes),
        },
        "otherwise": _otherwise(votes, chosen, without_crowds, ties),
    }


def _counts(votes: Sequence[Vote], chosen: _Selected, ties: str) -> dict[str, Any]:
    """How many votes there are of each kind, and how many count."""
    kinds = [vote["kind"] for vote in votes]
    choices = [vote["choice"] for vote in chosen.kept]
    return {
        "all": len(votes),
        "counted": len(chosen.kept),
        "gold": kinds.count("gold"),
        "repeats": kinds.count("repeat"),
        "unseen": sum(not vote.get("seen", True) for vote in votes),
        "of_raters_left_out": len(people.usable(votes)) - len(chosen.with_ties),
        "ties": ties,
        "ties_dropped": len(chosen.with_ties) - len(chosen.kept),
        "choices": {name: choices.count(name) for name in CHOICES},
    }


def _models(votes: Sequence[Vote]) -> dict[str, Any]:
    """Of each model: the share of its votes that prefer it, and the share that find both decks bad."""
    found = {}
    for model in sorted({vote[side] for vote in votes for side in ("left", "right")}):
        mine = [vote for vote in votes if model in (vote["left"], vote["right"])]
        won = [{None: 0.5, model: 1.0}.get(preferred(vote), 0.0) for vote in mine]
        bad = [float(vote["choice"] == "bad") for vote in mine]
        found[model] = {"share": intervals.share(won, mine), "bad": intervals.share(bad, mine)}
    return found


def _position(
    votes: Sequence[Vote], raters: Sequence[dict[str, Any]], strong: dict[str, Any]
) -> dict[str, Any]:
    """How far the left side is preferred for being left."""
    untied = [vote for vote in votes if preferred(vote)]
    lefts = [float(vote["choice"] == "left") for vote in untied]
    repeats = [rater["repeats"] for rater in raters if not rater["excluded"]]
    return {
        "left": intervals.share(lefts, untied),
        "log_odds": strong["bias"],
        "repeats": {key: sum(one[key] for one in repeats) for key in ("n", "same", "against")},
    }


def _seconds(votes: Sequence[Vote]) -> dict[str, float] | None:
    """The quartiles of the time in view, or None where nobody measured it."""
    import numpy

    times = [vote["seconds"] for vote in votes if isinstance(vote.get("seconds"), int | float)]
    if not times:
        return None
    quartiles = numpy.quantile(times, [0.25, 0.5, 0.75])
    return {
        name: round(float(time), 1)
        for name, time in zip(("lower", "median", "upper"), quartiles, strict=True)
    }


def _otherwise(
    votes: Sequence[Vote], chosen: _Selected, without_crowds: bool, ties: str
) -> dict[str, Any]:
    """The figures that a reader compares, of votes that are counted in other ways."""
    crowd = frozenset(chosen.crowds["raters"])
    doubted = frozenset() if without_crowds else crowd
    found = {
        "with_raters_left_out": _brief(people.usable(votes), crowd),
        "without_both_bad": _brief(
            [vote for vote in chosen.with_ties if vote["choice"] != "bad"], doubted
        ),
    }
    if crowd and without_crowds:
        found["with_crowds"] = _brief(chosen.with_crowds, crowd)
    elif crowd:
        found["without_crowds"] = _brief([one for one in chosen.kept if one["rater"] not in crowd])
    untied = [vote for vote in chosen.with_ties if preferred(vote)]
    if len(untied) < len(chosen.with_ties):
        if ties == "drop":
            found["ties_half"] = _brief(chosen.with_ties, doubted)
        else:
            found["ties_dropped"] = _brief(untied, doubted)
    return found


def _brief(votes: Sequence[Vote], crowd: frozenset[str] = frozenset()) -> dict[str, Any]:
    if not votes:
        return {"votes": 0, "pairs": [], "log_odds": []}
    shown = ("a", "b", "votes", "share", "difference", "sentence")
    return {
        "votes": len(votes),
        "pairs": [
            {key: pair[key] for key in shown} for pair in estimates.preferences(votes, crowd)
        ],
        "log_odds": [
            {"a": pair["a"], "b": pair["b"], **pair["log_odds"]}
            for pair in estimates.strengths(votes)["pairs"]
        ],
    }


# A study


def of_study(
    study: store.Study, *, without_crowds: bool = False, ties: str = "half"
) -> tuple[dict[str, Any], list[Vote]]:
    """`(tally of a study, its votes)`, the models by their labels, the judge from the scores of the
    runs where they have one.

    Options as tally takes them. Adds "study": {"title", "question", "closed", "unjudged": runs
    without scores}."""
    about = study.about
    labels = {run["name"]: run["label"] for run in about["runs"]}
    if len(set(labels.values())) < len(labels):
        labels = {}  # two runs have one label: names tell them apart
    votes = list(study.votes())
    named = [
        {**vote, **{side: labels.get(vote[side], vote[side]) for side in ("left", "right")}}
        for vote in votes
    ]
    if outside.made(study):
        scores, current, unjudged = outside.measures(study)
    else:
        scores, current, unjudged = _scores(about["runs"])
    decks = decks_of(study, scores, labels)
    found = tally(
        named, decks, current, came=study.raters(), without_crowds=without_crowds, ties=ties
    )
    heading = {
        "title": about["title"],
        "question": about["question"],
        "closed": study.closed,
        "unjudged": unjudged,
    }
    return {"study": heading, **found}, votes


def decks_of(study: store.Study, scores: outside.Scores, labels: Mapping[str, str]) -> judge.Decks:
    """The measures of both decks of each pair to vote on that has them, by the models' labels."""
    found = {}
    for ident, pair in study.pairs.items():
        measured = {}
        for side in (pair["left"], pair["right"]):
            measures = scores.get((side["run"], pair["prompt"], side["sample"]))
            if measures:
                measured[labels.get(side["model"], side["model"])] = measures
        if pair["kind"] == "vote" and len(measured) == 2:
            found[ident] = measured
    return found


def _scores(
    runs: Iterable[Mapping[str, str]],
) -> tuple[outside.Scores, dict[str, float] | None, list[str]]:
    """`({(run, prompt, sample): measures}, weights of the dimensions, names of runs without
    scores)` from the folders of our runs."""
    scores: outside.Scores = {}
    current, unjudged = None, []
    for run in runs:
        folder = Path(run["path"])
        try:
            for _, record in stream.records(folder / "scores.jsonl"):
                sample = (record.get("gen") or {}).get("sample") or {}
                score = record.get("score")
                if isinstance(score, dict):
                    prompt = str(sample.get("of", record["id"]))
                    scores[run["name"], prompt, sample.get("k", 0)] = {
                        "overall": score.get("overall"),
                        "judge_only": score.get("judge_only"),
                        **(score.get("dimensions") or {}),
                        "checklist": score.get("checklist"),
                    }
            if not current:
                protocol = json.loads((folder / "protocol.json").read_text())
                current = protocol["score"]["weights"]
        except (OSError, ValueError, KeyError):
            unjudged.append(run["name"])
    return scores, current, unjudged
