"""Which pairs people are asked about next, by the votes so far.

What was seen of the votes decides only which pairs are asked about, so a likelihood of the votes
stays what it was; and a rater sees pair ids and nothing of it.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from decksmith.study import estimates, people, store

if TYPE_CHECKING:
    from decksmith.study.intervals import Array, Vote

Candidate = Mapping[str, Any]  # {"prompt", "left": model, "right": model}


def choose(study: store.Study, rater: str, candidates: Sequence[str], n: int) -> list[str]:
    """`most_telling` as the hook of store.Study: all but 1 in `raters_per_pair` of the pairs are
    such as others voted on too."""
    votes, pairs, each = list(study.votes()), study.pairs, study.about["raters_per_pair"]
    kept, _ = people.counted(votes)
    seen = Counter(vote["pair"] for vote in votes)

    def best(some: Sequence[str], n: int) -> list[str]:
        rows = [
            {
                "prompt": pairs[one]["prompt"],
                "left": pairs[one]["left"]["model"],
                "right": pairs[one]["right"]["model"],
            }
            for one in some
        ]
        return [some[at] for at in most_telling(kept, rows, n)]

    begun = [pair for pair in candidates if 0 < seen[pair] < each]
    first = best(begun, round(n * (each - 1) / each))
    rest = [pair for pair in candidates if pair not in first and seen[pair] < each]
    more = best(rest, n - len(first))
    full = [pair for pair in candidates if pair not in {*first, *more}]
    return [*first, *more, *full][:n]


def most_telling(votes: "Sequence[Vote]", candidates: Sequence[Candidate], n: int) -> list[int]:
    """The places in `candidates` of the `n` that the votes so far call for most, in order.

    Each step takes the pair of models whose next vote is expected to shrink the variances of all
    differences of strengths most (by expected information, as Glickman and Jensen 2005, Journal of
    Statistical Planning and Inference 127:279), on the prompt that has the fewest votes.
    """
    models = sorted({row[side] for row in [*votes, *candidates] for side in ("left", "right")})
    place = {model: at for at, model in enumerate(models)}
    asked = Counter(vote["prompt"] for vote in votes)
    known = _Known(votes, place)
    waiting: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, row in enumerate(candidates):
        waiting[place[row["left"]], place[row["right"]]].append(index)
    chosen: list[int] = []
    while len(chosen) < n and waiting:
        sides = known.least(waiting)
        known.add(sides)
        index = min(waiting[sides], key=lambda one: (asked[candidates[one]["prompt"]], one))
        waiting[sides].remove(index)
        if not waiting[sides]:
            del waiting[sides]
        asked[candidates[index]["prompt"]] += 1
        chosen.append(index)
    return chosen


class _Known:
    """What is known of the strengths: their mode and their covariance, which each vote shrinks."""

    def __init__(self, votes: "Iterable[Vote]", place: Mapping[str, int]) -> None:
        import numpy

        size = len(place)
        played: Counter[tuple[int, int, int]] = Counter()
        for vote in votes:
            outcome = estimates.OUTCOMES.get(vote["choice"], 2)
            played[place[vote["left"]], place[vote["right"]], outcome] += 1
        rows = sorted({(a, b) for a, b, _ in played}) or [(0, 1)]
        left, right = numpy.array(rows).T
        counts = numpy.array([[[played[a, b, c] for c in range(3)] for a, b in rows]], dtype=float)
        self.at = estimates.fit(counts, left, right, size)
        design = estimates.design_of(left, right, size)
        _, curve = estimates.slope_and_curve(self.at, design, counts)
        self.cover = numpy.linalg.inv(curve[0] + numpy.eye(size + 2) / estimates.PRIOR**2)
        # Each row is the difference of two strengths.
        self.differences = numpy.zeros((size * (size - 1) // 2, size + 2))
        for row, (a, b) in zip(
            self.differences, itertools.combinations(range(size), 2), strict=True
        ):
            row[[a, b]] = 1, -1

    def _vote(self, sides: tuple[int, int]) -> "tuple[Array, float]":
        """A vote on two models, left and right, as a row of the design; and its expected
        information."""
        x = estimates.design_of([sides[0]], [sides[1]], self.cover.shape[0] - 2)[0]
        for_left, for_right, _ = estimates.chances(self.at[0] @ x, self.at[0, -1])
        return x, float((for_left + for_right - (for_left - for_right) ** 2) / 4)

    def least(self, waiting: Iterable[tuple[int, int]]) -> tuple[int, int]:
        """The two models a vote on which shrinks the variances of all differences most; of equal
        ones the first."""
        best, found = -1.0, (0, 1)
        for sides in waiting:
            x, told = self._vote(sides)
            shrunk = ((self.differences @ self.cover @ x) ** 2).sum()
            gain = told * shrunk / (1 + told * x @ self.cover @ x)
            if gain > best + 1e-12:
                best, found = gain, sides
        return found

    def add(self, sides: tuple[int, int]) -> None:
        """Count a vote on these two models that is still to be cast."""
        import numpy

        x, told = self._vote(sides)
        way = self.cover @ x
        self.cover = self.cover - told * numpy.outer(way, way) / (1 + told * x @ way)
