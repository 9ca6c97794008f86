"""The judge beside people: how often its numbers go with their votes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from decksmith.people.study import intervals
from decksmith.people.study.intervals import Estimate
from decksmith.people.study.records import Measures, Vote

# What a judge said of the two decks of a pair: {pair: {model: measures}}.
PairMeasures = Mapping[str, Mapping[str, Measures]]
EQUAL = 1e-9  # numbers of a judge that differ by less are equal


class JudgeAgreement(TypedDict):
    choice: Estimate  # share of the untied votes whose deck has the higher number
    own: Estimate  # the same of what people said of the dimension of that name
    equal: float | None  # share of votes on decks with equal numbers
    shared: Estimate  # `choice` over pairs that several people saw


def judged(votes: Sequence[Vote], decks: PairMeasures) -> dict[str, JudgeAgreement]:
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
        equal = sum(credit == 0.5 for _, credit in choice)
        found[name] = {
            "choice": intervals.credited(choice),
            "own": intervals.credited(own),
            "equal": round(equal / len(choice), 4) if choice else None,
            "shared": intervals.credited([one for one in choice if seen[one[0]["pair"]] > 1]),
        }
    return found


def gaps(votes: Iterable[Vote], decks: PairMeasures, measure: str) -> list[tuple[Vote, float]]:
    """`[(vote, the measure of the left deck minus that of the right)]` of the votes for which
    both are known."""
    found = []
    for vote in votes:
        pair = decks.get(vote["pair"], {})
        left, right = (pair.get(vote[side], {}).get(measure) for side in ("left", "right"))
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
