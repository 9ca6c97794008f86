"""A confidence sequence: an interval that holds at every number of prompts at once, so that one may look at any time.

Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting", Journal of the Royal Statistical
Society B 86:1, theorem 3: the hedged capital process with predictable plug-in bets. If the mean were m, two gamblers who bet
on values above and below it could not expect to gain; a mean at which either has made 2 / 0.05 of 1 is excluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decksmith.results.stats import Array

CAP = 0.75  # of the largest bet that can never lose everything; the paper names 1/2 and 3/4
GUESS = 0.125  # the standard deviation assumed before the first value, as a share of the range


def bets(values: Array, level: float) -> Array:
    """The size of the bet on each value, made of the values before it alone (the paper's equation 26, with our first guess).

    values: shape (n, ..), from 0 to 1, in the order in which they came. Any first guess keeps the guarantee.
    """
    import numpy

    place = numpy.arange(1, len(values) + 1).reshape(-1, *[1] * (values.ndim - 1))
    centre = (0.5 + values.cumsum(axis=0)) / (place + 1)
    spread = (GUESS**2 + ((values - centre) ** 2).cumsum(axis=0)) / (place + 1)
    before = numpy.concatenate([numpy.full_like(values[:1], GUESS**2), spread[:-1]])
    squares = 2 * numpy.log(2 / (1 - level)) / (before * place * numpy.log1p(place))
    sizes: Array = numpy.sqrt(squares)
    return sizes


def capital(values: Array, sizes: Array, mean: float) -> Array:
    """The logarithm of what each gambler has after each value, shape (2, n, ..): one bets on values above `mean` (strictly
    between 0 and 1), one on values below."""
    import numpy

    gap = values - mean
    return numpy.stack(
        [
            numpy.log1p(numpy.minimum(sizes, CAP / mean) * gap).cumsum(axis=0),
            numpy.log1p(-numpy.minimum(sizes, CAP / (1 - mean)) * gap).cumsum(axis=0),
        ]
    )


def interval(
    values: Sequence[float], low: float, high: float, level: float = 0.95
) -> dict[str, float]:
    """The mean of `values` with its interval after the last of them: `{"mean", "lo", "hi", "p"}`.

    values: at least one, in the order in which they came, from `low` to `high`, where low < 0 < high. p: of a mean of 0; it
    may be looked at after each value. Holds for values drawn alike, in an order that has nothing to do with them.
    """
    import numpy

    scaled = (numpy.asarray(values, dtype=float) - low) / (high - low)
    sizes, fair = bets(scaled, level), -low / (high - low)

    def end(gambler: int) -> float:
        """The end that this gambler sets: what he has falls (0) or rises (1) with the mean, so that it is found by halving."""
        inside, outside = (1.0, 0.0) if gambler == 0 else (0.0, 1.0)
        for _ in range(40):
            middle = (inside + outside) / 2
            if capital(scaled, sizes, middle)[gambler, -1] >= numpy.log(2 / (1 - level)):
                outside = middle
            else:
                inside = middle
        return low + (high - low) * outside

    gained = capital(scaled, sizes, fair)[:, -1].max() - numpy.log(2)
    return {
        "mean": float(numpy.mean(values)),
        "lo": float(end(0)),
        "hi": float(end(1)),
        "p": float(numpy.exp(-max(0.0, gained))),
    }
