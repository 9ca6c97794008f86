"""Whether the statistics hold what they print, on synthetic scores whose truth is known: prints a markdown page (docs/statistics-bench.md).

Scores are like ours: a latent quality with skewed prompt, prompt x model, sample and judging parts, judged in four dimensions from 1
to 5 that are rounded, weighted into Overall; a share of the decks fails and is floored to 1. Several samples of a prompt are a cluster.
"""

import itertools
import os
import sys
from functools import lru_cache
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads spin: on a busy machine they cost four times the CPU
import numpy  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "lib"))

from decksmith import plan, stats  # noqa: E402

REPEATS, LEVEL = 5000, 0.05
WEIGHTS = numpy.array([0.40, 0.25, 0.20, 0.15])
KINDS = {  # rounding of a dimension, weights, share of failures at a middling quality, level
    "Overall": (0.5, WEIGHTS, 0.10, 0.0),
    "one whole score 1 to 5": (1.0, numpy.array([0.0, 0.0, 1.0, 0.0]), 0.10, 0.0),
    "weak models, half floored": (0.5, WEIGHTS, 0.50, -0.6),
    "strong models, near the ceiling": (1.0, numpy.array([0.0, 1.0, 0.0, 0.0]), 0.02, 1.5),
}


def scores(random, prompts, samples=1, judgings=1, shift=0.0, kind="Overall"):
    """Scores of two models, shape (2, prompts, samples, judgings); the first model's latent quality is higher by `shift`."""
    step, weights, failing, level = KINDS[kind]
    cells = (2, prompts, samples)
    quality = (level + 0.7 - 0.35 * random.gamma(2, 1, (1, prompts, 1)) + 0.30 * random.normal(size=(2, prompts, 1))
               + 0.45 - 0.45 * random.gamma(1, 1, cells) + shift * numpy.array([1, 0])[:, None, None])
    failed = random.random(cells) < 1 / (1 + (1 / failing - 1) * numpy.exp(1.5 * (quality - level)))
    # A judging's noise is partly common to the four dimensions.
    own = 0.30 * random.normal(size=(*cells, judgings, 4)) + 0.25 * random.normal(size=(*cells, judgings, 1))
    lean = 0.3 * random.normal(size=(*cells, 1, 4))
    seen = numpy.clip(numpy.round((3 + quality[..., None, None] + lean + own) / step) * step, 1, 5) @ weights
    return numpy.where(failed[..., None], 1.0, seen)


def tested(a, b):
    """The functions under test, for columns of per-prompt values: `(lo, hi, p)`."""
    found = [stats.differences(a[:, block], b[:, block]) for block in numpy.array_split(numpy.arange(a.shape[1]), -(-a.shape[1] // 100))]
    return [numpy.concatenate([part[name] for part in found]) for name in ("lo", "hi", "p")]


def repeated(random, repeats, prompts, samples=1, judgings=1, **how):
    """Per-prompt values of two models, each of shape (prompts, repeats): what the reported statistics are given."""
    drawn = scores(random, prompts * repeats, samples, judgings, **how).mean(axis=(2, 3))
    return drawn.reshape(2, repeats, prompts).transpose(0, 2, 1)


@lru_cache
def truth(shift, kind="Overall", prompts=200_000):
    """The true difference of the two models' mean scores (standard error about 0.003)."""
    a, b = scores(numpy.random.default_rng(99), prompts, shift=shift, kind=kind).mean(axis=(1, 2, 3))
    return a - b


def coverage(prompts, samples=1, shift=0.0, kind="Overall", repeats=REPEATS, seed=1):
    """Shares of the repeats: `(intervals that hold the truth, p at most 5 %, intervals without 0, both of these: a claim)`."""
    lo, hi, p = tested(*repeated(numpy.random.default_rng(seed), repeats, prompts, samples, shift=shift, kind=kind))
    real = truth(shift, kind) if shift else 0.0
    found, apart = p <= LEVEL, (lo > 0) | (hi < 0)
    return [share.mean() for share in ((lo <= real) & (real <= hi), found, apart, found & apart)]


def simulated_mde(prompts, samples=1, judgings=1, near=0.4, kind="Overall", repeats=1000, seed=2):
    """The true difference that the sign-flip test finds in 80 % of the repeats: probit through four shifts around `near`."""
    from scipy.stats import norm

    slope = truth(near, kind) / near  # score per latent unit
    shifts = [near * factor / slope for factor in (0.75, 0.92, 1.08, 1.3)]
    found = [(tested(*repeated(numpy.random.default_rng(seed), repeats, prompts, samples, judgings, shift=shift, kind=kind))[2]
              <= LEVEL).mean() for shift in shifts]
    line = numpy.polyfit(norm.ppf(numpy.clip(found, 0.5 / repeats, 1 - 0.5 / repeats)), [truth(shift, kind) for shift in shifts], 1)
    return float(numpy.polyval(line, norm.ppf(plan.POWER)))


def pilot(random, prompts, samples=1, judgings=1, kind="Overall", models=2):
    """Variance components from an earlier run, as run-plan estimates them."""
    drawn = scores(random, prompts, samples, judgings, kind=kind)
    return plan.components([{str(p): model[p].tolist() for p in range(prompts)} for model in drawn[:models]])


def main():
    print("# What the statistics hold\n")
    print(f"Written by `make bench-stats`: synthetic scores with a known truth (tests/bench_stats.py), {REPEATS:,} seeded repeats in each row (1,000 "
          "for a minimum detectable effect); a share of 95 % has a standard error of 0.3 points.\n")
    print("## Intervals and tests of a paired difference\n")
    print("| scores | prompts | samples | true difference | 95 % intervals that hold it | p at most 5 % | interval without 0 | both: claimed |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for kind, n, (k, shift) in itertools.product(KINDS, (30, 120), ((1, 0.0), (3, 0.0), (1, 0.4))):
        shares = " | ".join(f"{share:.1%}" for share in coverage(n, k, shift, kind))
        print(f"| {kind} | {n} | {k} | {truth(shift, kind) if shift else 0:.2f} | {shares} |", flush=True)
    print("\nWhere the true difference is 0, the last three columns are false positives; elsewhere they are power.\n")

    print("## The planner's minimum detectable effect\n")
    print("Simulated: the difference that the sign-flip test finds in 80 % of the repeats. Planned: from one earlier comparison with 2 "
          "samples and 2 judgings of each prompt; of 3,000 prompts, and the median and the middle 90 % over 100 earlier comparisons "
          "of 30 prompts.\n")
    print("| scores | prompts | samples | judgings | simulated | planned from 3,000 | off | planned from 30 | middle 90 % |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---|")
    for kind in ("Overall", "one whole score 1 to 5"):
        random = numpy.random.default_rng(3)
        large, small = pilot(random, 3000, 2, 2, kind), [pilot(random, 30, 2, 2, kind) for _ in range(100)]
        for n, k, r in ((30, 1, 1), (120, 1, 1), (30, 3, 1), (60, 2, 3)):
            planned = stats.mde(plan.deviation(large, k, r), n)
            real = simulated_mde(n, k, r, planned, kind)
            spread = numpy.quantile([stats.mde(plan.deviation(parts, k, r), n) for parts in small], [0.05, 0.5, 0.95])
            print(f"| {kind} | {n} | {k} | {r} | {real:.3f} | {planned:.3f} | {planned / real - 1:+.0%} | {spread[1]:.3f} | "
                  f"{spread[0]:.2f} to {spread[2]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
