"""Intervals and tests: plain functions over arrays with one row per prompt. NaN stands for no value.

Prompts are what is sampled; several decks for one prompt are averaged before they come here. Where prompts belong together, as
those of one domain do, the caller says to which cluster each row belongs, and clusters are what is sampled.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy
from numpy.typing import NDArray

from decksmith.measure.results.comparison import PairedDifference
from decksmith.measure.results.records import Mean

Array = NDArray[Any]
Scale = tuple[Any, Any]  # the least and the most, two numbers or two arrays
Labels = Sequence[Hashable]  # the cluster of each row

LEVEL = 0.95
EXCHANGES, SEED = 20_000, 0
DRAWS, MOST = 4_000, 1_000_000  # of a plan; prompts that a plan looks up to
STEP = 0.1  # of the scale: by how much two decks could differ where all that were seen are ties
FEWEST = 6  # pairs: with fewer, even differences that all point one way have a two-sided sign-flip p above 5 % (2 / 2**5)
BLOCK = 1000  # exchanges held at once
EXACT = 14  # prompts or clusters of which all exchanges are counted
UNSEEN = 0.04  # what no row shows is ruled out only from the share on that would go unseen with less than this chance
METHOD = "shares: exact; decks that render: Student's t (CR2); failures counted: hull of t, empirical likelihood, and what so many prompts can fail to show"


def mean(values: Iterable[float], scale: Scale | None = None, strict: bool = False) -> Mean:
    """The mean of `values` with its 95 % interval (see `means`), rounded to four places.

    A single value has no interval (`lo` and `hi` are None), and no value has no mean either.
    """
    column = numpy.asarray(list(values), dtype=float)[:, None]
    return entry(means(column, scale, strict=strict), 0)


def entry(found: dict[str, Array], column: int) -> Mean:
    """One column of what `means` returns, rounded."""
    mean, lo, hi = (number(found[name][column]) for name in ("mean", "lo", "hi"))
    return {"mean": mean, "lo": lo, "hi": hi, "n": int(found["n"][column])}


def means(
    values: Array, scale: Scale | None = None, clusters: Labels | None = None, strict: bool = False
) -> dict[str, Array]:
    """The mean of each column of `values`, shape (prompts, columns), with its 95 % interval.

    scale: the least and the most that a value can be, two numbers or two arrays with one entry per column; None: only what was
    seen is possible. clusters: a label for each row (None: a cluster of its own), or None. strict: wider, see `_interval`.
    Returns arrays, one entry per column: `mean`, `lo`, `hi` (NaN with fewer than two values), `n`, and `clusters`: how many
    clusters the interval rests on, 0 where each row stands alone.
    """
    present = ~numpy.isnan(values)
    n = present.sum(axis=0)
    with numpy.errstate(invalid="ignore", divide="ignore"):
        centre = numpy.where(present, values, 0.0).sum(axis=0) / n
        rest = numpy.where(present, values - centre, 0.0)
        ends = (scale[0], scale[1] if strict else _best(scale, values)) if scale else (None, None)
        lo, hi, _, groups = _interval(centre, rest, present, ends, _labels(clusters), strict)
    if scale:
        lo, hi = numpy.maximum(lo, scale[0]), numpy.minimum(hi, scale[1])
    return {"mean": centre, "lo": lo, "hi": hi, "n": n, "clusters": groups}


def differences(
    a: Array,
    b: Array,
    scale: Scale | None = None,
    clusters: Labels | None = None,
    strict: bool = False,
) -> dict[str, Array]:
    """The paired differences of the columns of `a` and `b`, shapes (prompts, columns), over the rows with both values.

    The other arguments as in `means`. Returns arrays, one entry per column: `mean`, `lo`, `hi`, `clusters`, `p` (two-sided; the
    larger of the interval's own and the sign-flip permutation test's, so that p and interval never contradict each other), `n`,
    `wins`, `ties`, `losses`, `sd` of the differences, and `effect` (Cohen's d_z).
    """
    gap = a - b
    present = ~numpy.isnan(gap)
    n = present.sum(axis=0)
    with numpy.errstate(invalid="ignore", divide="ignore"):
        mean_a, mean_b = (numpy.where(present, side, 0.0).sum(axis=0) / n for side in (a, b))
        centre = mean_a - mean_b
        ends = (None, None)
        if scale and strict:
            ends = (scale[0] - scale[1], scale[1] - scale[0])
        elif scale:
            # One of the two fails, or is as good as either ever was, where the other does as on average.
            best = _best(scale, *(numpy.where(present, side, numpy.nan) for side in (a, b)))
            ends = (
                numpy.minimum(scale[0] - mean_b, mean_a - best),
                numpy.maximum(mean_a - scale[0], best - mean_b),
            )
        rest = numpy.where(present, gap - centre, 0.0)
        lo, hi, own, groups = _interval(centre, rest, present, ends, _labels(clusters), strict)
        if scale:
            lo, hi = numpy.maximum(lo, scale[0] - scale[1]), numpy.minimum(hi, scale[1] - scale[0])
        p = numpy.fmax(exchanged(gap, clusters), numpy.where(n > 1, own, 0.0))
    found = {"mean": centre, "lo": lo, "hi": hi, "clusters": groups, **_counted(gap)}
    return found | {"p": numpy.where(n > 0, p, numpy.nan)}


def t_means(
    values: Array, scale: Scale | None = None, clusters: Labels | None = None
) -> dict[str, Array]:
    """As `means`, with Student's t on clusters (CR2) alone: what is compared is what is there, and no failure stands for
    a value."""
    present = ~numpy.isnan(values)
    n = present.sum(axis=0)
    with numpy.errstate(invalid="ignore", divide="ignore"):
        centre = numpy.where(present, values, 0.0).sum(axis=0) / n
        rest = numpy.where(present, values - centre, 0.0)
        labels = _labels(clusters)
        lo, hi, p, _ = _student(
            centre, _gathered(rest, labels), _gathered(present.astype(float), labels), n
        )
    if scale:
        lo, hi = numpy.maximum(lo, scale[0]), numpy.minimum(hi, scale[1])
    lo, hi = (numpy.where(n > 1, end, numpy.nan) for end in (lo, hi))
    groups = (_gathered(present.astype(float), labels) > 0).sum(axis=0) * (labels is not None)
    return {"mean": centre, "lo": lo, "hi": hi, "n": n, "clusters": groups, "p": p}


def t_differences(
    a: Array, b: Array, scale: Scale | None = None, clusters: Labels | None = None
) -> dict[str, Array]:
    """As `differences`, by Student's t on clusters (CR2) alone; p is that of the t test. Where most rows are ties, few tell how far
    the two are apart, and the interval is that of one row won and one lost more."""
    gap = a - b
    ends = (scale[0] - scale[1], scale[1] - scale[0]) if scale else None
    found = t_means(gap, ends, clusters) | _counted(gap)
    apart = found["n"] - found["ties"]
    with numpy.errstate(invalid="ignore", divide="ignore"):
        size = numpy.sqrt(numpy.nansum(gap**2, axis=0) / apart)
    size = numpy.where(apart > 0, size, 0.0 if scale is None else STEP * (scale[1] - scale[0]))
    size = numpy.where(apart < found["ties"], size, numpy.nan)
    found |= _with_one_more(gap, size, ends, clusters)
    return found | {"p": numpy.where(found["n"] > 1, found["p"], numpy.nan)}


def _with_one_more(
    gap: Array, size: Array, ends: Scale | None, clusters: Labels | None
) -> dict[str, Array]:
    """`lo` and `hi` by t with one row more that is won by so much and one that is lost by it, each by itself; none where `size` is NaN."""
    labels = [*clusters, None, None] if clusters and _labels(clusters) is not None else None
    wide = t_means(numpy.concatenate([gap, [size], [-size]]), ends, labels)
    enough = (~numpy.isnan(gap)).sum(axis=0) > 1
    return {end: numpy.where(enough, wide[end], numpy.nan) for end in ("lo", "hi")}


def shares(values: Array, clusters: Labels | None = None) -> dict[str, Array]:
    """As `means`, of values that are yes or no (or means of some): the exact interval of a share (Clopper and Pearson 1934,
    Biometrika 26:404). Where clusters resemble each other, it is that of so many fewer prompts (Korn and Graubard 1998, Survey
    Methodology 24:193)."""
    from scipy.special import betaincinv

    found = t_means(values, (0, 1), clusters)
    by_cluster, alone = t_means(values, None, clusters), t_means(values)
    with numpy.errstate(invalid="ignore", divide="ignore"):
        wider = (by_cluster["hi"] - by_cluster["lo"]) / (alone["hi"] - alone["lo"])
        n = found["n"] / numpy.where(wider > 1, wider**2, 1.0)
        yes = found["mean"] * n
        lo = numpy.where(yes > 1e-9, betaincinv(yes, n - yes + 1, (1 - LEVEL) / 2), 0.0)
        hi = numpy.where(n - yes > 1e-9, betaincinv(yes + 1, n - yes, (1 + LEVEL) / 2), 1.0)
    lo, hi = (numpy.where(found["n"] > 1, end, numpy.nan) for end in (lo, hi))
    return found | {"lo": lo, "hi": hi}


def share_differences(a: Array, b: Array, clusters: Labels | None = None) -> dict[str, Array]:
    """As `differences`, of values that are yes or no (or means of some). p: McNemar's exact test, by clusters or with several
    samples the sign-flip permutation test; interval: Student's t (CR2) with one prompt won and one lost more, which keeps it honest
    where few prompts or none tell the two apart (Bonett and Price 2012, J. Educ. Behav. Stat. 37:479)."""
    gap = a - b
    found = t_means(gap, (-1, 1), clusters) | _counted(gap)
    found |= _with_one_more(gap, numpy.ones(gap.shape[1]), (-1, 1), clusters)
    if _labels(clusters) is None and (numpy.isnan(gap) | numpy.isin(gap, (-1, 0, 1))).all():
        p = _mcnemar(found["wins"], found["losses"])
    else:
        p = exchanged(gap, clusters)
    return found | {"p": numpy.where(found["n"] > 0, p, numpy.nan)}


def _counted(gap: Array) -> dict[str, Array]:
    """Of paired differences: `n`, `wins`, `ties`, `losses`, `sd`, and `effect` (Cohen's d_z)."""
    n = (~numpy.isnan(gap)).sum(axis=0)
    with numpy.errstate(invalid="ignore", divide="ignore"):
        paired = numpy.nansum(gap, axis=0) / n
        squares = numpy.nansum((gap - paired) ** 2, axis=0)
        sd = numpy.where(n > 1, numpy.sqrt(squares / (n - 1)), numpy.nan)
        effect = numpy.where(sd > 0, paired / sd, numpy.nan)
    return {
        "n": n,
        "wins": (gap > 1e-9).sum(axis=0),
        "ties": (numpy.abs(gap) <= 1e-9).sum(axis=0),
        "losses": (gap < -1e-9).sum(axis=0),
        "sd": sd,
        "effect": effect,
    }


def difference(found: dict[str, Array], column: int) -> PairedDifference:
    """One column of what `differences` returns, rounded."""
    wins, ties, losses = (int(found[name][column]) for name in ("wins", "ties", "losses"))
    return {
        **entry(found, column),
        "clusters": int(found["clusters"][column]),
        "p": number(found["p"][column], 6),
        "wins": wins,
        "ties": ties,
        "losses": losses,
        "sd": number(found["sd"][column]),
        "effect": number(found["effect"][column]),
    }


def groups(clusters: Iterable[Hashable]) -> int:
    """How many clusters these labels make, one for each row; 0 where each row stands alone."""
    labels = _labels(list(clusters))
    return 0 if labels is None else int(labels.max()) + 1


def rule(clusters: int, what: str = "domain") -> str:
    """In words, on what an interval rests: `clusters` as `means` and `differences` return it for one column."""
    return f"clustered by {what} ({clusters} {what}s)" if clusters else "each prompt by itself"


def holm(p: Sequence[float]) -> Array:
    """Adjusted p-values of one family, in the order given (Holm 1979, Scandinavian Journal of Statistics 6:65). NaN stays NaN."""
    values = numpy.asarray(p, dtype=float)
    order = numpy.argsort(values)  # NaN last
    m = int((~numpy.isnan(values)).sum())
    adjusted = numpy.full(len(values), numpy.nan)
    adjusted[order[:m]] = numpy.minimum(
        1.0, numpy.maximum.accumulate(values[order[:m]] * numpy.arange(m, 0, -1))
    )
    return adjusted


@dataclass(frozen=True)
class Expected:
    """What a comparison to come is like, beside its number of prompts."""

    both: float = 1.0  # the share of prompts where both models' decks render
    apart: tuple[float, float] = (0.0, 0.0)  # where only the first's do, and only the second's
    domains: int = 0  # from which prompts are drawn; 0: each stands alone
    alike: float = 0.0  # the share of the difference's variance that lies between domains
    tests: int = 2  # that Holm's method corrects together


def power(effect: float, sd: float, n: int, expected: Expected = Expected()) -> float:
    """The chance that the claim "better where both render" is made of `n` prompts, by seeded draws of the very tests.

    effect, sd: the true mean of the paired difference where both render, and its standard deviation.
    """
    from scipy.special import stdtr

    if n < 2 or expected.both <= 0:
        return 0.0
    shared, noise, error, freedom, renders = _draws(n, expected)
    mean = effect / sd + noise
    with numpy.errstate(invalid="ignore", divide="ignore"):
        p = 2 * stdtr(freedom, -numpy.abs(mean) / error)
    # Holm: the smaller of the two against the stricter level, then the larger against the next.
    strict, next_one = (1 - LEVEL) / expected.tests, (1 - LEVEL) / max(1, expected.tests - 1)
    passes = (p <= strict) | ((p <= next_one) & (renders <= strict))
    return float((passes & (mean > 0) & (shared >= FEWEST)).mean())


@lru_cache(maxsize=64)
def _draws(n: int, expected: Expected) -> tuple[Array, Array, Array, Array, Array]:
    """Of DRAWS comparisons: how many prompts both render, the error of the mean of differences whose mean is 0 and sd 1, its
    standard error, its degrees of freedom, and McNemar's p of how many render."""
    draw = numpy.random.default_rng([SEED, n])
    shared = draw.binomial(n, expected.both, DRAWS)
    rest = max(1 - expected.both, 1e-12)
    more = draw.binomial(n - shared, min(1.0, expected.apart[0] / rest))
    left = max(rest - expected.apart[0], 1e-12)
    less = draw.binomial(n - shared - more, min(1.0, expected.apart[1] / left))
    some = numpy.maximum(shared, 1)
    if expected.domains:
        sizes = draw.multinomial(shared, [1 / expected.domains] * expected.domains).T.astype(float)
        own = math.sqrt(expected.alike) * draw.standard_normal(sizes.shape) * sizes
        own += math.sqrt(1 - expected.alike) * draw.standard_normal(sizes.shape) * numpy.sqrt(sizes)
        noise = own.sum(axis=0) / some
        with numpy.errstate(invalid="ignore", divide="ignore"):
            error, freedom = _error(own - sizes * noise, sizes, some)
    else:
        freedom = numpy.maximum(shared - 1, 1)
        noise = draw.standard_normal(DRAWS) / numpy.sqrt(some)
        error = numpy.sqrt(draw.chisquare(freedom) / freedom / some)
    return shared, noise, error, freedom, _mcnemar(more, less)


def render_power(n: int, more: float, less: float, tests: int = 2) -> float:
    """The chance that the claim "renders more often" is made of `n` prompts. more, less: the true shares of prompts where only the
    first model's deck renders, and only the second's."""
    if n < FEWEST:
        return 0.0
    draw = numpy.random.default_rng([SEED, n])
    won = draw.binomial(n, more, DRAWS)
    lost = draw.binomial(n - won, min(1.0, less / max(1 - more, 1e-12)))
    return float(((_mcnemar(won, lost) <= (1 - LEVEL) / tests) & (won > lost)).mean())


def _mcnemar(more: Array, less: Array) -> Array:
    """The two-sided p of McNemar's exact test."""
    from scipy.special import bdtr

    found: Array = numpy.minimum(1.0, 2 * bdtr(numpy.minimum(more, less), more + less, 0.5))
    return found


def smallest_sample(
    chance: Callable[[int], float], wanted: float = 0.8, most: int = MOST
) -> int | None:
    """The smallest number of prompts whose `chance` of a claim is `wanted`, to a hundredth; None where it takes more than `most`."""
    low, high = 1, 2
    while chance(high) < wanted:
        low, high = high, 2 * high
        if low > most:
            return None
    while high - low > max(1, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if chance(middle) >= wanted else (middle, high)
    return high


def apparent_sd(found: PairedDifference) -> float | None:
    """The standard deviation that a difference of prompts that stand alone would have to have for an interval as wide as
    this one by t; more than `sd` where domains lean to a model."""
    from scipy.special import stdtrit

    n, lo, hi = found["n"], found["lo"], found["hi"]
    if n < 2 or lo is None or hi is None:
        return found["sd"]
    wide = (hi - lo) / 2 / float(stdtrit(n - 1, (1 + LEVEL) / 2)) * math.sqrt(n)
    return max(wide, found["sd"] or 0.0)


def smallest_effect(chance: Callable[[float], float], most: float, wanted: float = 0.8) -> float:
    """The minimum detectable effect: the smallest difference whose `chance` of being found is `wanted`; infinite where
    none up to `most` is."""
    low, high = 0.0, most
    if chance(high) < wanted:
        return math.inf
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if chance(middle) >= wanted else (middle, high)
    return high


def number(value: float, digits: int = 4) -> float | None:
    """A plain rounded float for a record, None for NaN and infinities."""
    return round(float(value), digits) + 0.0 if math.isfinite(value) else None


def _best(scale: Scale, *sides: Array) -> Array:
    """The highest value of each column; where nothing is above the least that can be, the most that can be."""
    values = numpy.concatenate(sides)
    best = numpy.where(numpy.isnan(values), -numpy.inf, values).max(axis=0, initial=-numpy.inf)
    found: Array = numpy.where(best > scale[0], best, scale[1])
    return found


def _labels(clusters: Labels | None) -> Array | None:
    """The clusters as numbers from 0, one for each row; None where no cluster has two rows or all rows are in one."""
    if clusters is None:
        return None
    place: dict[Hashable, int] = {}
    labels = [
        place.setdefault((index,) if label is None else label, len(place))
        for index, label in enumerate(clusters)
    ]
    return numpy.array(labels) if 1 < len(place) < len(labels) else None


# The interval


def _interval(
    centre: Array,
    rest: Array,
    present: Array,
    ends: tuple[Any, Any],
    labels: Array | None,
    strict: bool,
) -> tuple[Array, Array, Array, Array]:
    """The 95 % interval of each column's mean, its two-sided p against 0, and its number of clusters: `(lo, hi, p, clusters)`.

    centre: the means; rest: the values less their mean, shape (rows, columns), 0 where `present` is False; ends: the least and
    the most that a value could be, arrays or None; labels: as from `_labels`.

    It is the hull of three intervals, each of which holds where another one does not (`make bench-stats`):

    * Student's t on clusters, with the standard error CR2 and Satterthwaite's degrees of freedom (Bell and McCaffrey 2002, Survey
      Methodology 28:169; Pustejovsky and Tipton 2018, Journal of Business & Economic Statistics 36:672).
    * Empirical likelihood on the clusters, calibrated by F (Owen 1988, Biometrika 75:237), of which a part may be at the ends of the
      scale: it follows the skewness that rare failures bring. `strict` puts one row more at the end in question: shares as those
      of benchmarks then keep to 2.5 % errors on each side (compare Clopper and Pearson 1934, Biometrika 26:404).
    * What may have gone unseen: a share of all prompts at the end of the scale that `n` rows miss with a chance of `UNSEEN`.
    """
    n = present.sum(axis=0)
    least = numpy.minimum(
        rest.min(axis=0, initial=0.0), numpy.inf if ends[0] is None else ends[0] - centre
    )
    most = numpy.maximum(
        rest.max(axis=0, initial=0.0), -numpy.inf if ends[1] is None else ends[1] - centre
    )
    sums, sizes = _gathered(rest, labels), _gathered(present.astype(float), labels)
    groups = (sizes > 0).sum(axis=0)
    lo, hi, p, freedom = _student(centre, sums, sizes, n)
    # What each cluster adds, so that the mean over clusters is the mean; at the end is a cluster of which one prompt more is there.
    scaled = sums * groups / n
    down, p_down = _likelihood(
        scaled, sizes > 0, -least * groups / n, centre, freedom, float(strict)
    )
    up, p_up = _likelihood(-scaled, sizes > 0, most * groups / n, -centre, freedom, float(strict))
    share = 1 - UNSEEN ** (1 / numpy.maximum(n, 1))
    lo = numpy.fmin(lo, centre + numpy.minimum(down, share * least))
    hi = numpy.fmax(hi, centre + numpy.maximum(-up, share * most))
    end = numpy.where(centre > 0, least, most)  # on the side of 0
    far = numpy.minimum(1.0, numpy.abs(centre) / numpy.maximum(numpy.abs(end), 1e-12))
    missed = numpy.minimum(1.0, (1 - far) ** n * (1 - LEVEL) / UNSEEN)
    p = numpy.fmax(p, numpy.fmax(missed, numpy.where(centre > 0, p_down, p_up)))
    p = numpy.where(centre == 0, 1.0, p)
    return (
        numpy.where(n > 1, lo, numpy.nan),
        numpy.where(n > 1, hi, numpy.nan),
        p,
        groups * (labels is not None),
    )


def _student(
    centre: Array, sums: Array, sizes: Array, n: Array
) -> tuple[Array, Array, Array, Array]:
    """Student's t over clusters: `(lo, hi, p, freedom)`; NaN where a column's rows are all in one cluster.

    sums: of each cluster's residuals, shape (clusters, columns); sizes: its rows. For a mean, CR2 divides the squared sum of a
    cluster by 1 - its share of the rows.
    """
    from scipy.special import stdtr, stdtrit

    error, freedom = _error(sums, sizes, n)
    reach = stdtrit(freedom, (1 + LEVEL) / 2) * error
    p = 2 * stdtr(freedom, -numpy.abs(centre) / numpy.maximum(error, 1e-300))
    return centre - reach, centre + reach, p, freedom


def _error(sums: Array, sizes: Array, n: Array) -> tuple[Array, Array]:
    """The standard error CR2 of a mean, and Satterthwaite's degrees of freedom; the arguments as in `_student`."""
    left = 1 - sizes / n
    ratio = sizes**2 / n / left
    freedom = n**2 / ((sizes**2).sum(axis=0) + ratio.sum(axis=0) ** 2 - (ratio**2).sum(axis=0))
    return numpy.sqrt((sums**2 / left).sum(axis=0)) / n, freedom


def _likelihood(
    rest: Array, present: Array, reach: Array, centre: Array, freedom: Array, extra: float
) -> tuple[Array, Array]:
    """The lower end of the empirical likelihood interval of each column, less the mean, and the two-sided p of a mean of 0.

    The distributions of the highest likelihood among those with one mean give each value x a weight in proportion to 1 / (c + x -
    end), one c > 0 for each mean: the lower the mean, the smaller the c. So c is found by bisection, once for the limit of the
    likelihood ratio and once for a mean of 0. reach: how far the end lies below the mean.
    """
    from scipy.special import stdtr, stdtrit

    spare = max(extra, 1e-9)  # of what no row shows, next to nothing is put at the end
    total, freedom = present.sum(axis=0) + spare, numpy.where(freedom >= 1, freedom, 1.0)
    reach = numpy.maximum(reach, -rest.min(axis=0, initial=0.0))
    width = numpy.maximum(reach + rest.max(axis=0, initial=0.0), 1e-12)
    x = numpy.where(
        present, (rest + reach) / width, numpy.inf
    )  # from 0, the end, to 1; no value has no weight
    zero, limit = numpy.maximum(reach - centre, 0.0) / width, stdtrit(freedom, (1 + LEVEL) / 2) ** 2
    eights = numpy.arange(0, len(x), 8)

    def moved(log_c: Array) -> Array:  # the mean of the weights that belong to c
        weight, at_end = 1 / (numpy.exp(log_c) + x), spare * numpy.exp(-log_c)
        mass = weight.sum(axis=0)
        # Sum of weight x, from weight (c + x) = 1.
        mean: Array = (total - spare - numpy.exp(log_c) * mass) / (mass + at_end)
        return mean

    def ratio(log_c: Array) -> Array:
        weight = 1 / (numpy.exp(log_c) + x)
        whole = weight.sum(axis=0) + spare * numpy.exp(-log_c)
        weight[~present] = 1.0
        eight = numpy.multiply.reduceat(weight, eights, axis=0)  # a logarithm of eight at once
        logs = numpy.log(eight).sum(axis=0)
        found: Array = -2 * (logs - spare * log_c - total * numpy.log(whole / total))
        return found

    def solve(too_low: Callable[[Array], Array]) -> Array:
        low, high = numpy.full(width.shape, -45.0), numpy.full(width.shape, 15.0)
        for _ in range(32):
            middle = (low + high) / 2
            below = too_low(middle)
            low, high = numpy.where(below, middle, low), numpy.where(below, high, middle)
        return (low + high) / 2

    bound = moved(solve(lambda log_c: ratio(log_c) > limit)) * width - reach
    p = 2 * stdtr(
        freedom, -numpy.sqrt(numpy.maximum(ratio(solve(lambda log_c: moved(log_c) < zero)), 0.0))
    )
    return numpy.minimum(bound, 0.0), p


# The permutation test


def exchanged(gap: Array, clusters: Labels | None = None) -> Array:
    """The two-sided p of the sign-flip permutation test for each column of differences: under the null hypothesis the two models'
    results for a prompt, and with clusters for all prompts of a cluster at once, could be exchanged. All exchanges are counted up
    to 14 prompts or clusters, 20,000 seeded ones beyond, as Phipson and Smyth 2010 do, so never 0."""
    values = _gathered(numpy.where(numpy.isnan(gap), 0.0, gap), _labels(clusters))
    total = values.sum(axis=0)
    beyond, drawn = numpy.zeros(gap.shape[1]), 0
    for kept in _exchanges(len(values)):
        flipped = 2 * (kept @ values) - total
        beyond += (numpy.abs(flipped) >= numpy.abs(total) - 1e-7).sum(axis=0)
        drawn += len(kept)
    exact = len(values) <= EXACT
    return (beyond + (not exact)) / (drawn + (not exact))


def _gathered(rows: Array, labels: Array | None) -> Array:
    """The sums of rows by cluster, shape (clusters, columns); the rows themselves without clusters."""
    if labels is None:
        return rows
    found = numpy.zeros((labels.max() + 1, rows.shape[1]))
    numpy.add.at(found, labels, rows)
    return found


def _exchanges(n: int) -> Iterator[Array]:
    """Blocks of 0 and 1, shape (block, n): which prompts keep their places; all 2**n of them up to n = 14."""
    if n <= EXACT:
        yield (numpy.arange(2**n)[:, None] >> numpy.arange(n) & 1).astype(float)
        return
    for start in range(0, EXCHANGES, BLOCK):
        yield _drawn(n, start)


@lru_cache(maxsize=2 * EXCHANGES // BLOCK)
def _drawn(n: int, start: int) -> Array:
    random = numpy.random.default_rng([SEED, n, start])
    return random.integers(0, 2, (BLOCK, n)).astype(numpy.float64)
