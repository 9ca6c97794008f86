"""Means with intervals: plain functions over arrays."""

from functools import lru_cache

RESAMPLES, SEED, LEVEL = 20_000, 0, 0.95
FEWEST = 6  # pairs: with fewer, even differences that all point one way have a two-sided sign test above 5 % (2 / 2**5)


def mean(values):
    """The mean of `values` with its 95 % percentile bootstrap interval: `{"mean", "lo", "hi", "n"}`.

    20,000 seeded resamples (Efron and Tibshirani 1993, chapter 13). Values must be independent: one per prompt. A single value
    has no interval (`lo` and `hi` are None), and no value has no mean either. Rounded to four places.
    """
    import numpy

    values = numpy.asarray(list(values), dtype=float)
    n = len(values)
    if n < 2:
        return {"mean": round(float(values[0]), 4) if n else None, "lo": None, "hi": None, "n": n}
    means = numpy.concatenate([counts @ values for counts in _counts(n)]) / n
    lo, hi = numpy.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"mean": round(float(values.mean()), 4), "lo": round(float(lo), 4), "hi": round(float(hi), 4), "n": n}


def paired(a, b):
    """The mean of `a[key] - b[key]` over the keys that both dicts have, with its interval, as `mean` gives it."""
    return mean(a[key] - b[key] for key in a if key in b)


def _counts(n):
    """Blocks of resamples: how often each of `n` values is drawn, as arrays of shape (block, n). Small ones are kept for the next call."""
    return _kept(n) if n * RESAMPLES <= 12_000_000 else _drawn(n)


@lru_cache(maxsize=2)
def _kept(n):
    return tuple(_drawn(n))


def _drawn(n, block=1000):
    import numpy

    random, rows = numpy.random.default_rng(SEED), numpy.arange(block)[:, None]
    for _ in range(RESAMPLES // block):
        drawn = random.integers(0, n, (block, n)) + rows * n
        yield numpy.bincount(drawn.ravel(), minlength=block * n).reshape(block, n).astype(float)
