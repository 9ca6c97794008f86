"""What people would prefer on all prompts, from their votes on some and the judge's scores on all.

The judge's scores are a control variate (prediction-powered inference: Angelopoulos and others 2023, Science 382:669; PPI++,
arXiv 2311.01453): the votes say how far the judge is from people, the prompts without votes what the judge says of the rest. The
estimate is unbiased whatever the judge is worth, as the judge's weight is fitted to people's votes; a judge that does not go with
them weighs nothing. The weight that corrects a prompt is fitted without it, so that few votes do not fit their own error.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TypedDict

from decksmith.core import cli
from decksmith.core.records import prompt_of
from decksmith.measure.judging import scoring
from decksmith.measure.results import stats
from decksmith.measure.results.comparison import Run
from decksmith.measure.results.text import share, wrapped
from decksmith.people.study import intervals, raters, store
from decksmith.people.study.intervals import RATERS, Estimate
from decksmith.people.study.records import SIDES, Vote, preferred

FEWEST = 6  # voted prompts, and prompts without votes: with fewer the votes stand alone
SURE = 0.8  # the chance of a claim that "would tell" stands for
REACH = 20  # times as many votes: what takes more is out of reach


class Prediction(TypedDict):
    a: str  # a model
    b: str  # another
    votes: int  # on the two
    prompts: int  # that were voted on
    people: int  # who voted
    unvoted: int  # that the judge alone says something of
    alone: Estimate  # share of people for a, by the votes
    joined: Estimate  # the same by votes and judge
    weight: float  # of the judge: by how much of the share a gap of 1 in its scores moves people
    saved: int  # votes that the judge is worth
    more: int | None  # votes that would tell the two apart; 0: they are told; null: out of reach


def of_study(study: store.Study, runs: Sequence[Run]) -> list[Prediction]:
    """What people would prefer of each two of these runs that the study has votes on.

    Raises cli.BadData where no vote counts, or none is on two of the runs."""
    votes, _ = raters.counted(list(study.votes()))
    found = []
    for one, other in combinations(runs, 2):
        sides = {name: run for run in (one, other) if (name := _voted(study, run))}
        on_both = [vote for vote in votes if {vote[side] for side in SIDES} == set(sides)]
        if len(sides) == 2 and on_both:
            gaps = _gaps(one, other)
            first, second = sides
            signs = [{first: 1, second: -1}.get(preferred(vote) or "", 0) for vote in on_both]
            found.append(predict(one["label"], other["label"], signs, on_both, gaps))
    if not found:
        names = ", ".join(run["name"] for run in study.about["runs"])
        raise cli.BadData(
            f"{study.folder}: no vote that counts is on two of these runs; it has {names}"
        )
    return found


def _voted(study: store.Study, run: Run) -> str | None:
    """The name that a run's model has in the study's votes, by its folder, else by its name."""
    known = study.about["runs"]
    by_path = [one["name"] for one in known if one["path"] and _same(one["path"], run["path"])]
    by_name = [one["name"] for one in known if one["name"] in (run["name"], run["label"])]
    return next(iter([*by_path, *by_name]), None)


def _same(path: str, other: Path) -> bool:
    return Path(path).resolve() == Path(other).resolve()


def _gaps(one: Run, other: Run) -> dict[str, float]:
    """By prompt, the judge's score of the one less that of the other, where a deck of both was drawn: what people vote on."""
    means = []
    for run in (one, other):
        of: dict[str, list[float]] = {}
        for record in run["records"]:
            score = record.get("score")
            worth = scoring.worth(score) if score and not score.get("floored") else None
            if worth is not None:
                of.setdefault(prompt_of(record), []).append(worth)
        means.append({prompt: sum(some) / len(some) for prompt, some in of.items()})
    first, second = means
    return {prompt: first[prompt] - second[prompt] for prompt in first if prompt in second}


def predict(
    a: str, b: str, signs: Sequence[float], votes: Sequence[Vote], gaps: Mapping[str, float]
) -> Prediction:
    """The share of people for `a` on all prompts.

    signs: of each vote 1 for a, -1 for b, 0 for neither; gaps: by prompt the judge's score of a less that of b, of prompts with votes
    and without. The prompts that were voted on must be a random part of all.
    """
    import numpy

    value, error, freedom = intervals.spread_of_mean(signs, votes)
    voted = {vote["prompt"] for vote in votes}
    rest = numpy.array([gap for prompt, gap in gaps.items() if prompt not in voted])
    weight, joined, joined_error = 0.0, value, error
    if min(len(rest), len(voted & gaps.keys())) >= FEWEST and rest.std() > 0:
        off = [gaps.get(vote["prompt"], rest.mean()) - rest.mean() for vote in votes]
        weights = _weights(numpy.asarray(signs, float), numpy.array(off), votes, len(rest))
        weight = float(weights.mean())
        joined, own, _ = intervals.spread_of_mean(signs - weights * off, votes)
        joined_error = numpy.hypot(own, weight * rest.std(ddof=1) / numpy.sqrt(len(rest)))
    shares = [
        intervals.figure(centre, wide, freedom, len(votes), -1, 1, form=lambda net: (1 + net) / 2)
        for centre, wide in ((value, error), (joined, joined_error))
    ]
    least, most = shares[1]["lo"], shares[1]["hi"]
    is_told = least is not None and most is not None and not least <= 0.5 <= most
    better = float(error / joined_error) ** 2 if joined_error > 0 else 1.0
    return {
        "a": a,
        "b": b,
        "votes": len(votes),
        "prompts": len(voted),
        "people": len({vote["rater"] for vote in votes}),
        "unvoted": len(rest),
        "alone": shares[0],
        "joined": shares[1],
        "weight": round(weight / 2, 4),
        "saved": max(0, round(len(votes) * (better - 1))),
        "more": 0 if is_told else _more(float(joined), float(joined_error), freedom, len(votes)),
    }


def _weights(
    signs: "intervals.Array", off: "intervals.Array", votes: Sequence[Vote], rest: int
) -> "intervals.Array":
    """The judge's weight for each vote: the slope of people's preference on the judge's gap, over the votes on all other prompts,
    less what the prompts without votes cannot bear (PPI++)."""
    import numpy

    codes = intervals.codes(vote["prompt"] for vote in votes)
    sums = numpy.zeros((codes.max() + 1, 5))
    columns = [numpy.ones(len(signs)), signs, off, signs * off, off**2]
    numpy.add.at(sums, codes, numpy.stack(columns, axis=1))
    n, y, x, xy, xx = (sums.sum(axis=0) - sums).T
    spread = xx - x * x / n
    slope = numpy.where(spread > 1e-12, (xy - x * y / n) / numpy.maximum(spread, 1e-12), 0.0)
    return (slope / (1 + len(sums) / rest))[codes]


def _more(net: float, error: float, freedom: int, votes: int) -> int | None:
    """How many votes more would tell the two apart with a chance of SURE, if people prefer as here and errors shrink with
    the root of the votes."""
    from scipy.special import ndtri, stdtrit

    if not freedom or not error > 0:
        return None
    limit = stdtrit(freedom, (1 + stats.LEVEL) / 2)
    times = ((limit + ndtri(SURE)) * error / max(abs(net), 1e-9)) ** 2
    return round(votes * (times - 1)) if times <= REACH else None


def sentences(found: Sequence[Prediction]) -> str:
    """What a terminal shows, a paragraph for each two models."""
    said = []
    for one in found:
        prefer = f"{share(one['joined'])} prefer {one['a']}'s decks to {one['b']}'s"
        saved = f"about {one['saved']} votes" if one["saved"] else "no vote"
        if one["weight"]:
            text = (
                f"Of people, on all {one['prompts'] + one['unvoted']} prompts, {prefer}: by {one['votes']} votes on {one['prompts']} of them, "
                f"and by the judge on all. The votes alone say {share(one['alone'])}. The judge saved {saved}. "
            )
        else:
            text = f"Of people, {prefer}: by {one['votes']} votes on {one['prompts']} prompts alone. The judge says nothing of the rest. "
        more = one["more"]
        if more is None:
            text += "How many more would tell them apart is out of reach."
        elif more:
            text += f"About {more} votes more, by more people, would tell them apart."
        else:
            text += "That tells them apart."
        if one["people"] < RATERS:
            text += (
                f" This speaks for {one['people']} people only."
                if one["people"] > 1
                else " This speaks for one person only."
            )
        said += wrapped(text)
    return "\n".join(said) + "\n"
