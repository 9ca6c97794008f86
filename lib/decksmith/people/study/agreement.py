"""How far people agree with each other, and a judge's numbers with their votes."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from decksmith.measure.results import stats
from decksmith.people.study import intervals
from decksmith.people.study.intervals import Estimate
from decksmith.people.study.records import SIDES, Choice, Measures, Vote

SIGNS: dict[Choice, int] = {"left": 1, "right": -1, "tie": 0, "bad": 0}
EQUAL = 1e-9  # numbers of a judge that differ by less are equal

# What a judge said of the two decks of a pair: {pair: {model: measures}}.
PairMeasures = Mapping[str, Mapping[str, Measures]]


# People with each other


class RaterAgreement(TypedDict):
    pairs: int  # that several people saw
    alpha: float | None  # Krippendorff's, ordinal
    another: Estimate  # how often another person prefers the same deck


def of_people(votes: Iterable[Vote]) -> RaterAgreement:
    """How far people agree with each other, over pairs that several saw: Krippendorff's alpha, and how often another person prefers the deck that a person prefers (a tie
    counts a half)."""
    of = defaultdict(list)
    for vote in votes:
        of[vote["pair"]].append(vote)
    shared = [pair for pair in of.values() if len(pair) > 1]
    another: list[tuple[Vote, float]] = []
    for pair in shared:
        signs = _signs(pair)
        for vote, sign in zip(pair, signs, strict=True):
            if sign:
                others = sum(signs) - sign
                another.append((vote, (1 + sign * others / (len(pair) - 1)) / 2))
    return {"pairs": len(shared), "alpha": _alpha(shared), "another": intervals.credited(another)}


def _signs(pair: Sequence[Vote]) -> list[int]:
    """What each vote on a pair prefers, with the sides that the first vote had: 1 left, -1 right,
    0 neither."""
    return [SIGNS[vote["choice"]] * (1 if vote["left"] == pair[0]["left"] else -1) for vote in pair]


def _alpha(shared: Sequence[Sequence[Vote]]) -> float | None:
    """Krippendorff's ordinal alpha over pairs that several people saw; None where nobody ever said
    anything else, and there is nothing to measure by."""
    import krippendorff

    # Of each pair how many people preferred the right deck, neither, and the left one.
    signs = [_signs(pair) for pair in shared]
    counts = [[one.count(sign) for sign in (-1, 0, 1)] for one in signs]
    if sum(map(any, zip(*counts, strict=True))) < 2:
        return None
    alpha = krippendorff.alpha(value_counts=counts, level_of_measurement="ordinal")
    return stats.number(alpha)


# A judge with people


class JudgeAgreement(TypedDict):
    choice: Estimate  # share of the untied votes whose deck has the higher number
    own: Estimate  # the same of what people said of the dimension of that name
    shared: Estimate  # `choice` over pairs that several people saw


def of_judge(votes: Sequence[Vote], decks: PairMeasures) -> dict[str, JudgeAgreement]:
    """How often each of the judge's numbers is higher for the deck that a person prefers, by
    measure, over the untied votes. Equal numbers count a half."""
    seen = Counter(vote["pair"] for vote in votes)
    measures = dict.fromkeys(
        name for pair in decks.values() for deck in pair.values() for name in deck
    )
    found: dict[str, JudgeAgreement] = {}
    for name in measures:
        known = gaps(votes, decks, name)
        if not known:
            continue
        choice = credits((vote, vote["choice"], gap) for vote, gap in known)
        own = credits((vote, vote["dimensions"].get(name), gap) for vote, gap in known)
        found[name] = {
            "choice": intervals.credited(choice),
            "own": intervals.credited(own),
            "shared": intervals.credited([one for one in choice if seen[one[0]["pair"]] > 1]),
        }
    return found


def gaps(votes: Iterable[Vote], decks: PairMeasures, measure: str) -> list[tuple[Vote, float]]:
    """`[(vote, the measure of the left deck minus that of the right)]` of the votes for which
    both are known."""
    found = []
    for vote in votes:
        pair = decks.get(vote["pair"], {})
        left, right = (pair.get(vote[side], {}).get(measure) for side in SIDES)
        if left is not None and right is not None:
            found.append((vote, left - right))
    return found


def credits(said: Iterable[tuple[Vote, str | None, float]]) -> list[tuple[Vote, float]]:
    """`[(vote, credit)]` of `(vote, choice, gap)` with a side: 1 where the gap has the side of
    the choice, a half where it is 0."""
    return [
        (vote, (1 + sign(gap) * (1 if choice == "left" else -1)) / 2)
        for vote, choice, gap in said
        if choice in ("left", "right")
    ]


def sign(gap: float) -> int:
    """1 where the judge prefers the left deck, -1 where it prefers the right one, 0 for neither."""
    return (gap > EQUAL) - (gap < -EQUAL)
