"""A figure of votes with its interval, where prompts and raters are both samples.

A vote belongs to a prompt and to a rater, so a figure's variance is that of clusters by prompt plus
that of clusters by rater minus that of their cells, which both hold (Cameron, Gelbach and Miller
2011, Journal of Business and Economic Statistics 29:238). Each of the three is a Bayesian bootstrap
(Rubin 1981, The Annals of Statistics 9:130): clusters get random weights and none is ever lost, so
a resample never has a model without a win where the data has one. Ends are Student's t with the
freedom of the fewer clusters.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from decksmith.measure.results import stats
from decksmith.people.study.records import Vote

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

RESAMPLES = 2000
# With fewer, how raters differ cannot be estimated: prompts alone are resampled, and the tally says
# so.
RATERS = 5
HELD = 4_000_000  # random weights that are held at once


class Estimate(TypedDict):
    mean: float | None  # the value; null where there is none
    lo: float | None  # the lower end of its 95 % interval
    hi: float | None  # the upper end
    n: int  # votes, prompts or pairs that it is of


UNKNOWN: Estimate = {"mean": None, "lo": None, "hi": None, "n": 0}


def spread(
    statistic: "Callable[[Array], Array]", sums: "Array", votes: Sequence[Vote]
) -> "tuple[Array, Array, int]":
    """A statistic's value, its standard error and degrees of freedom: arrays of shape (figures,),
    and a number.

    statistic  maps weighted sums of shape (b, m) to (b, figures)
    sums       shape (votes, m): what each vote adds to the m sums that the statistic is made of
    votes      with fewer than RATERS raters, prompts alone are resampled"""
    import numpy

    prompts, raters = [vote["prompt"] for vote in votes], [vote["rater"] for vote in votes]
    value = statistic(sums.sum(axis=0)[None])[0]
    groups, people = len(set(prompts)), len(set(raters))
    if groups < 2:
        return value, numpy.full(value.shape, numpy.nan), 0
    by_prompt = _variance(statistic, sums, prompts, 1)
    if people < RATERS:
        return value, numpy.sqrt(by_prompt), groups - 1
    by_rater = _variance(statistic, sums, raters, 2)
    by_cell = _variance(statistic, sums, list(zip(prompts, raters, strict=True)), 3)
    found = numpy.maximum(by_prompt + by_rater - by_cell, numpy.maximum(by_prompt, by_rater))
    return value, numpy.sqrt(found), min(groups, people) - 1


def _variance(
    statistic: "Callable[[Array], Array]", sums: "Array", clusters: Sequence[Hashable], salt: int
) -> "Array":
    import numpy

    members = codes(clusters)
    groups = members.max() + 1
    table = numpy.zeros((groups, sums.shape[1]))
    numpy.add.at(table, members, sums)
    random = numpy.random.default_rng([stats.SEED, salt])
    block = max(1, min(RESAMPLES, HELD // groups))
    found = []
    for start in range(0, RESAMPLES, block):
        weights = random.standard_exponential((min(block, RESAMPLES - start), groups))
        found.append(statistic(weights / weights.mean(axis=1, keepdims=True) @ table))
    # Dirichlet weights spread a mean by s2 (G - 1) / (G (G + 1)); clusters drawn anew spread it by
    # s2 / G.
    variance: Array = numpy.concatenate(found).var(axis=0) * (groups + 1) / (groups - 1)
    return variance


def codes(labels: Iterable[Hashable]) -> "Array":
    """A number from 0 for each label, the same one for the same label; shape (labels,)."""
    import numpy

    place: dict[Hashable, int] = {}
    return numpy.array([place.setdefault(label, len(place)) for label in labels], dtype=int)


def ends(value: "Array", error: "Array", freedom: int) -> "tuple[Array, Array]":
    """The two ends of the interval, NaN where there is no error; numbers or arrays."""
    from scipy.special import stdtrit

    reach = stdtrit(freedom, (1 + stats.LEVEL) / 2) * error if freedom else error
    return value - reach, value + reach


def figure(
    value: "Array",
    error: "Array",
    freedom: int,
    n: int,
    low: float | None = None,
    high: float | None = None,
    form: Callable[[float], float] = float,
) -> Estimate:
    """The figure of a number and its error; the ends are cut at what is possible, from `low` to
    `high`, and go through `form`.

    Where all clusters are at one of these, resampling sees no doubt: the other end is then that
    of Clopper and Pearson (1934, Biometrika 26:404) for as many clusters, all alike."""
    lo, hi = ends(value, error, freedom)
    if error < 1e-12 and freedom and low is not None and high is not None and value in (low, high):
        reach = (high - low) * (1 - ((1 - stats.LEVEL) / 2) ** (1 / (freedom + 1)))
        lo, hi = value - reach, value + reach
    least = float(lo) if low is None or not lo < low else low
    most = float(hi) if high is None or not hi > high else high
    return {
        "mean": stats.number(form(float(value))),
        "lo": stats.number(form(least)),
        "hi": stats.number(form(most)),
        "n": int(n),
    }


def share(values: "Sequence[float] | Array", votes: Sequence[Vote]) -> Estimate:
    """The mean of `values` from 0 to 1, one for each vote, with its interval."""
    return mean(values, votes, 0, 1) if len(values) else UNKNOWN


def mean(
    values: "Sequence[float] | Array", votes: Sequence[Vote], low: float, high: float
) -> Estimate:
    """The mean of `values` from `low` to `high`, one for each vote, with its interval."""
    return figure(*spread_of_mean(values, votes), len(votes), low, high)


def spread_of_mean(
    values: "Sequence[float] | Array", votes: Sequence[Vote]
) -> "tuple[Array, Array, int]":
    """`spread` of the mean of `values`, one for each vote; the first two are numbers."""
    import numpy

    sums = numpy.stack([numpy.asarray(values, dtype=float), numpy.ones(len(values))], axis=1)
    value, error, freedom = spread(lambda some: some[:, :1] / some[:, 1:], sums, votes)
    return value[0], error[0], freedom


def credited(pairs: Sequence[tuple[Vote, float]]) -> Estimate:
    """The mean of `[(vote, credit from 0 to 1)]` with its interval."""
    return share([credit for _, credit in pairs], [vote for vote, _ in pairs])
