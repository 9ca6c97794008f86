"""What each rater did, who is left out and why, and how far people agree with each other."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from decksmith.results import stats
from decksmith.study import intervals
from decksmith.study.intervals import Figure, Vote
from decksmith.study.messages import CHOICES

if TYPE_CHECKING:
    from decksmith.study.intervals import Array

# A rater is left out for these and nothing else; the numbers stood here before anybody voted.
RULE: dict[str, Any] = {
    "gold": {"least": 3, "failed": 1 / 3},
    "repeats": {"least": 5},
    "seconds": 2.0,
}
SIGNS = {"left": 1, "right": -1, "tie": 0, "bad": 0}
Level = Literal["ordinal", "nominal"]
# Krippendorff's alpha is of these values. A vote that prefers neither deck lies between the sides.
LEVELS: dict[Level, dict[str, int]] = {
    "ordinal": {"right": 0, "tie": 1, "bad": 1, "left": 2},
    "nominal": {choice: place for place, choice in enumerate(CHOICES)},
}
ALPHAS = 1000  # resamples of an alpha


def preferred(vote: Vote) -> str | None:
    """The model whose deck a vote prefers, or None."""
    return vote[vote["choice"]] if vote["choice"] in ("left", "right") else None


def counted(
    votes: Iterable[Vote], crowd: frozenset[str] = frozenset()
) -> tuple[list[Vote], list[dict[str, Any]]]:
    """`(votes that count, raters as raters() has them)`: neither gold nor repeats, all slides
    seen, raters that RULE does not leave out and that are not of the `crowd`."""
    votes = list(votes)
    people = raters(votes)
    for rater in people:
        if rater["rater"] in crowd:
            rater["excluded"] = " and ".join(filter(None, [rater["excluded"], "of a crowd"]))
    out = {rater["rater"] for rater in people if rater["excluded"]}
    return [vote for vote in usable(votes) if vote["rater"] not in out], people


def usable(votes: Iterable[Vote]) -> list[Vote]:
    """Neither gold nor repeats, all slides seen: what would count if nobody was left out."""
    return [vote for vote in votes if vote["kind"] == "vote" and vote.get("seen", True)]


def raters(votes: Iterable[Vote]) -> list[dict[str, Any]]:
    """What each rater did, in order of name: votes, gold items and swapped repeats with what
    went wrong, share of left among the untied, median seconds, and `excluded`: why RULE leaves
    this rater out, or None."""
    of = defaultdict(list)
    for vote in votes:
        of[vote["rater"]].append(vote)
    return [_rater(name, of[name]) for name in sorted(of)]


def _rater(name: str, votes: Sequence[Vote]) -> dict[str, Any]:
    first = {vote["pair"]: vote for vote in votes if vote["kind"] == "vote"}
    sides = [vote["choice"] for vote in votes if vote["kind"] == "vote"]
    untied = sides.count("left") + sides.count("right")
    gold = [vote for vote in votes if vote["kind"] == "gold"]
    failed = sum(vote["choice"] != vote["expect"] for vote in gold)
    turned = [
        (preferred(first[vote["of"]]), preferred(vote))
        for vote in votes
        if vote["kind"] == "repeat" and vote.get("of") in first
    ]
    decided = [(before, now) for before, now in turned if before and now]
    against = sum(before != now for before, now in decided)
    times = [vote["seconds"] for vote in votes if isinstance(vote.get("seconds"), int | float)]
    pace = statistics.median(times) if times else None
    why = []
    if len(gold) >= RULE["gold"]["least"] and failed > RULE["gold"]["failed"] * len(gold):
        why.append(f"failed {failed} of {len(gold)} gold items")
    if len(decided) >= RULE["repeats"]["least"] and against == len(decided):
        why.append(f"chose the other deck in all of {len(decided)} swapped repeats")
    if pace is not None and pace < RULE["seconds"]:
        why.append(f"median of {pace:.1f} s a vote")
    return {
        "rater": name,
        "votes": len(first),
        "gold": {"n": len(gold), "failed": failed},
        "repeats": {
            "n": len(turned),
            "same": sum(before == now for before, now in turned),
            "against": against,
        },
        "left": round(sides.count("left") / untied, 4) if untied else None,
        "tied": sum(vote["choice"] == "tie" for vote in first.values()),
        "bad": sum(vote["choice"] == "bad" for vote in first.values()),
        "seconds": None if pace is None else stats.number(pace, 1),
        "excluded": " and ".join(why) or None,
    }


def agreement(votes: Iterable[Vote]) -> dict[str, Any]:
    """How far people agree with each other, over pairs that several saw: Krippendorff's alpha
    (prompts resampled), and how often another person, or the majority of the others, prefers the
    deck that a person prefers (a tie counts a half). `at_most`: the most that any judge can
    reach on these pairs, as far as people's agreement tells (see `most`)."""
    of = defaultdict(list)
    for vote in votes:
        of[vote["pair"]].append(vote)
    shared = [pair for pair in of.values() if len(pair) > 1]
    another, majority = [], []
    for pair in shared:
        signs = [SIGNS[_choice(vote, pair)] for vote in pair]
        for vote, sign in zip(pair, signs, strict=True):
            others = sum(signs) - sign
            if sign:
                another.append((vote, (1 + sign * others / (len(pair) - 1)) / 2))
            if sign and len(pair) > 2:
                majority.append((vote, (1 + sign * ((others > 0) - (others < 0))) / 2))
    person = intervals.credited(another)
    untied = len(another) / sum(map(len, shared)) if shared else 0
    return {
        "pairs": len(shared),
        "raters": len({vote["rater"] for pair in shared for vote in pair}),
        **{f"alpha_{level}": _alpha(shared, level) for level in LEVELS},
        "another": person,
        "majority": intervals.credited(majority),
        "at_most": _at_most(person, untied),
    }


def _choice(vote: Vote, pair: Sequence[Vote]) -> str:
    """The choice of a vote as it is with the sides that the first vote on this pair had."""
    choice: str = vote["choice"]
    if vote["left"] != pair[0]["left"]:
        return {"left": "right", "right": "left"}.get(choice, choice)
    return choice


def _at_most(person: Figure, untied: float) -> Figure:
    found = dict(person)
    for end in ("mean", "lo", "hi"):
        if person[end] is not None:
            found[end] = stats.number(most(person[end], untied))
    return found


def most(another: float, untied: float) -> float:
    """The most votes that a judge can follow where another person follows the share `another` of
    them, and `untied` of all have a side.

    A judge who knows what most people prefer says one thing where people say several. If a
    person's vote on pair i is d_i for one side on average, another person follows (1 + mean
    d_i^2 / untied) / 2 and that judge (1 + mean |d_i| / untied) / 2, and mean |d_i| is between
    the mean and the root of the mean of d_i^2 (Jensen): so he is at `another` or above it, and
    at this value or below it."""
    return float((1 + min(1, (max(0, 2 * another - 1) / untied) ** 0.5)) / 2)


def _alpha(shared: Sequence[Sequence[Vote]], level: Level) -> Figure:
    """Krippendorff's alpha over pairs that several people saw, prompts resampled."""
    import numpy

    if not shared:
        return intervals.figure(numpy.nan, numpy.nan, 0, 0, -1, 1)
    place = LEVELS[level]
    size = 1 + max(place.values())
    counts = numpy.array(
        [
            numpy.bincount([place[_choice(vote, pair)] for vote in pair], minlength=size)
            for pair in shared
        ]
    )
    prompts = intervals.codes([pair[0]["prompt"] for pair in shared])
    clusters = int(prompts.max()) + 1
    error = numpy.nan
    if clusters > 1:
        members = [numpy.flatnonzero(prompts == one) for one in range(clusters)]
        random = numpy.random.default_rng(stats.SEED)
        drawn = []
        for _ in range(ALPHAS):
            some = [members[one] for one in random.integers(0, clusters, clusters)]
            drawn.append(_alpha_of(counts[numpy.concatenate(some)], level))
        if not numpy.isnan(drawn).all():
            error = numpy.nanstd(drawn) * (clusters / (clusters - 1)) ** 0.5
    value = _alpha_of(counts, level)
    return intervals.figure(value, float(error), clusters - 1, len(shared), -1, 1)


def _alpha_of(counts: "Array", level: Level) -> float:
    """counts: shape (pairs, values), how many people said each value of a pair."""
    import krippendorff

    if (counts.sum(axis=0) > 0).sum() < 2:
        return float("nan")  # everybody always said the same: there is nothing to measure by
    return float(
        krippendorff.alpha(
            value_counts=counts,
            value_domain=list(range(counts.shape[1])),
            level_of_measurement=level,
        )
    )
