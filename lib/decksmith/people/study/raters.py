"""What each rater did, who is left out and why, and how far people agree with each other."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from decksmith.measure.results import stats
from decksmith.people.study import intervals
from decksmith.people.study.intervals import Estimate
from decksmith.people.study.records import Choice, Vote

if TYPE_CHECKING:
    from decksmith.people.study.intervals import Array

# A rater is left out for these and nothing else; the numbers stood here before anybody voted.
GOLD, FAILED = 3, 1 / 3  # of so many attention items or more, a larger share failed
REPEATS = 5  # in all of so many swapped repeats or more that had a side, the other deck
FASTEST = 2.0  # seconds: a smaller median
SIGNS: dict[Choice, int] = {"left": 1, "right": -1, "tie": 0, "bad": 0}
SWAPPED: dict[Choice, Choice] = {"left": "right", "right": "left", "tie": "tie", "bad": "bad"}
ALPHAS = 1000  # resamples of an alpha


class GoldCount(TypedDict):
    n: int  # attention items
    failed: int  # answered otherwise than expected


class RepeatCount(TypedDict):
    n: int  # swapped repeats
    same: int  # the same deck again
    against: int  # the other deck


class RaterSummary(TypedDict):
    rater: str  # the id
    votes: int  # without gold items and repeats
    gold: GoldCount  # attention items
    repeats: RepeatCount  # swapped repeats
    left: float | None  # share of the left side among the untied
    tied: int  # votes for neither
    bad: int  # votes that found both decks bad
    seconds: float | None  # median in view
    excluded: str | None  # why the rule leaves this rater out


class RaterAgreement(TypedDict):
    pairs: int  # that several people saw
    raters: int  # who saw them
    alpha: Estimate  # Krippendorff's, ordinal
    another: Estimate  # how often another person prefers the same deck
    at_most: Estimate  # the most that any judge can reach


def preferred(vote: Vote) -> str | None:
    """The model whose deck a vote prefers, or None."""
    choice = vote["choice"]
    return vote[choice] if choice == "left" or choice == "right" else None


def counted(votes: Sequence[Vote]) -> tuple[list[Vote], list[RaterSummary]]:
    """`(votes that count, what each rater did)`: neither gold nor repeats, all slides seen, raters
    who are not left out."""
    people = summaries(votes)
    out = {rater["rater"] for rater in people if rater["excluded"]}
    return [vote for vote in usable(votes) if vote["rater"] not in out], people


def usable(votes: Iterable[Vote]) -> list[Vote]:
    """Neither gold nor repeats, all slides seen: what would count if nobody was left out."""
    return [vote for vote in votes if vote["kind"] == "vote" and vote["seen"]]


def summaries(votes: Iterable[Vote]) -> list[RaterSummary]:
    """What each rater did, in order of name."""
    of = defaultdict(list)
    for vote in votes:
        of[vote["rater"]].append(vote)
    return [_rater(name, of[name]) for name in sorted(of)]


def _rater(name: str, votes: Sequence[Vote]) -> RaterSummary:
    first = {vote["pair"]: vote for vote in votes if vote["kind"] == "vote"}
    sides = [vote["choice"] for vote in votes if vote["kind"] == "vote"]
    untied = sides.count("left") + sides.count("right")
    times = [vote["seconds"] for vote in votes if vote["seconds"] is not None]
    pace = statistics.median(times) if times else None
    gold = [vote for vote in votes if vote["kind"] == "gold"]
    failed = sum(vote["choice"] != vote["expect"] for vote in gold)
    gold_count: GoldCount = {"n": len(gold), "failed": failed}
    repeats, decided = _repeats(votes, first)
    return {
        "rater": name,
        "votes": len(first),
        "gold": gold_count,
        "repeats": repeats,
        "left": round(sides.count("left") / untied, 4) if untied else None,
        "tied": sides.count("tie"),
        "bad": sides.count("bad"),
        "seconds": None if pace is None else stats.number(pace, 1),
        "excluded": _why_excluded(gold_count, repeats, decided, pace),
    }


def _repeats(votes: Sequence[Vote], first: Mapping[str, Vote]) -> tuple[RepeatCount, int]:
    """`(what a rater said of swapped repeats, how many of them had a side both times)`. first: the
    rater's votes by pair."""
    turned = [
        (preferred(first[of]), preferred(vote))
        for vote in votes
        if vote["kind"] == "repeat" and (of := vote["of"] or "") in first
    ]
    decided = [(before, now) for before, now in turned if before and now]
    same = sum(before == now for before, now in decided)
    count: RepeatCount = {"n": len(turned), "same": same, "against": len(decided) - same}
    return count, len(decided)


def _why_excluded(
    gold: GoldCount, repeats: RepeatCount, decided: int, pace: float | None
) -> str | None:
    """Why a rater is left out, or None."""
    why = []
    if gold["n"] >= GOLD and gold["failed"] > FAILED * gold["n"]:
        why.append(f"failed {gold['failed']} of {gold['n']} gold items")
    if decided >= REPEATS and repeats["against"] == decided:
        why.append(f"chose the other deck in all of {decided} swapped repeats")
    if pace is not None and pace < FASTEST:
        why.append(f"median of {pace:.1f} s a vote")
    return " and ".join(why) or None


def agreement(votes: Iterable[Vote]) -> RaterAgreement:
    """How far people agree with each other, over pairs that several saw: Krippendorff's alpha
    (prompts resampled), how often another person prefers the deck that a person prefers (a tie
    counts a half), and the most that any judge can reach (see `most`)."""
    of = defaultdict(list)
    for vote in votes:
        of[vote["pair"]].append(vote)
    shared = [pair for pair in of.values() if len(pair) > 1]
    another: list[tuple[Vote, float]] = []
    for pair in shared:
        signs = [SIGNS[_choice(vote, pair)] for vote in pair]
        for vote, sign in zip(pair, signs, strict=True):
            if sign:
                others = sum(signs) - sign
                another.append((vote, (1 + sign * others / (len(pair) - 1)) / 2))
    person = intervals.credited(another)
    untied = len(another) / sum(map(len, shared)) if shared else 0
    return {
        "pairs": len(shared),
        "raters": len({vote["rater"] for pair in shared for vote in pair}),
        "alpha": _alpha(shared),
        "another": person,
        "at_most": _at_most(person, untied),
    }


def _choice(vote: Vote, pair: Sequence[Vote]) -> Choice:
    """The choice of a vote as it is with the sides that the first vote on this pair had."""
    choice = vote["choice"]
    return choice if vote["left"] == pair[0]["left"] else SWAPPED[choice]


def _at_most(person: Estimate, untied: float) -> Estimate:
    def reach(end: float | None) -> float | None:
        return None if end is None else stats.number(most(end, untied))

    lo, hi = reach(person["lo"]), reach(person["hi"])
    return {"mean": reach(person["mean"]), "lo": lo, "hi": hi, "n": person["n"]}


def most(another: float, untied: float) -> float:
    """The most votes that a judge can follow where another person follows the share `another` of
    them, and `untied` of all have a side.

    A judge who knows what most people prefer says one thing where people say several. If a
    person's vote on pair i is d_i for one side on average, another person follows (1 + mean
    d_i^2 / untied) / 2 and that judge (1 + mean |d_i| / untied) / 2, and mean |d_i| is between
    the mean and the root of the mean of d_i^2 (Jensen): so he is at `another` or above it, and
    at this value or below it."""
    return float((1 + min(1, (max(0, 2 * another - 1) / untied) ** 0.5)) / 2)


def _alpha(shared: Sequence[Sequence[Vote]]) -> Estimate:
    """Krippendorff's ordinal alpha over pairs that several people saw, prompts resampled."""
    import numpy

    if not shared:
        return intervals.UNKNOWN
    counts = numpy.array([_counted(pair) for pair in shared])
    prompts = intervals.codes([pair[0]["prompt"] for pair in shared])
    clusters = int(prompts.max()) + 1
    error = numpy.nan
    if clusters > 1:
        members = [numpy.flatnonzero(prompts == one) for one in range(clusters)]
        random = numpy.random.default_rng(stats.SEED)
        drawn = []
        for _ in range(ALPHAS):
            some = [members[one] for one in random.integers(0, clusters, clusters)]
            drawn.append(_alpha_of(counts[numpy.concatenate(some)]))
        if not numpy.isnan(drawn).all():
            error = numpy.nanstd(drawn) * (clusters / (clusters - 1)) ** 0.5
    value = numpy.asarray(_alpha_of(counts))
    return intervals.figure(value, numpy.asarray(error), clusters - 1, len(shared), -1, 1)


def _counted(pair: Sequence[Vote]) -> list[int]:
    """How many people preferred the right deck, neither, and the left one."""
    signs = [SIGNS[_choice(vote, pair)] for vote in pair]
    return [signs.count(sign) for sign in (-1, 0, 1)]


def _alpha_of(counts: "Array") -> float:
    """counts: shape (pairs, values), how many people said each value of a pair."""
    import krippendorff

    if (counts.sum(axis=0) > 0).sum() < 2:
        return float("nan")  # everybody always said the same: there is nothing to measure by
    return float(krippendorff.alpha(value_counts=counts, level_of_measurement="ordinal"))
