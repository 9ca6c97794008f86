"""What looking again does to error rates, and what a confidence sequence does and costs: prints a markdown page
(docs/looks-bench.md). Scores are synthetic: prompts of different difficulty, two models, dimensions rounded, some decks floored.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "lib"))

from decksmith.results import (  # noqa: E402
    looks,
    sequential,
    stats,  # noqa: E402
)

REPEATS, LEVEL, LONGEST = 2000, 0.05, 1000
SIZES = (12, 30, 60, 132)  # prompts at the looks of somebody who adds some until there is a finding
CELLS = {  # sd of a model's own part of a prompt, shares of decks floored, share of prompts on which both do equally well
    "no floors": (0.5, (0.0, 0.0), 0.0),
    "5 % and 0 % floored": (0.5, (0.05, 0.0), 0.0),
    "30 % and 5 % floored": (0.5, (0.3, 0.05), 0.0),
    "20 % and 20 % floored": (0.5, (0.2, 0.2), 0.0),
    "mostly ties": (0.5, (0.0, 0.0), 0.7),
    "nearly deterministic, 10 % and 0 % floored": (0.1, (0.1, 0.0), 0.0),
}


def scores(random, shape, cell, models=2, shift=0.0):
    """Scores from 1 to 5, shape (models, *shape); the first model's mean is higher by `shift`, and the others' are equal."""
    own, floors, ties = CELLS[cell]
    floors = numpy.array([floors[0], *[floors[1]] * (models - 1)]).reshape(-1, *[1] * len(shape))
    common = random.normal(0, 0.5, shape) - 0.3 * random.gamma(1, 1, shape)
    parts = random.normal(0, own, (models, *shape))
    parts = numpy.where(random.random(shape) < ties, parts[:1], parts)
    level = 2.9 * numpy.ones_like(floors)
    level[0] = (2.6 * (1 - floors[1]) + floors[1] - floors[0] + shift) / (
        1 - floors[0]
    ) + 0.3  # the same mean for all
    found = numpy.round(numpy.clip(level + common + parts, 1, 5), 2)
    return numpy.where(random.random((models, *shape)) < floors, 1.0, found)


def claimed(a, b):
    """Which columns of `a` and `b`, shape (prompts, columns), run-compare would separate: interval and test agree."""
    blocks = numpy.array_split(numpy.arange(a.shape[1]), -(-a.shape[1] // 100))
    found = [stats.differences(a[:, block], b[:, block], (1, 5)) for block in blocks]
    return numpy.concatenate(
        [(part["p"] <= LEVEL) & ((part["lo"] > 0) | (part["hi"] < 0)) for part in found]
    )


def again(cell, repeats=REPEATS):
    """How often equal models are separated at least once, by the number of looks at SIZES."""
    a, b = scores(numpy.random.default_rng(1), (SIZES[-1], repeats), cell)
    once = numpy.array([claimed(a[:n], b[:n]) for n in SIZES])
    return numpy.logical_or.accumulate(once).mean(axis=1)


def best_of(checkpoints, prompts=30, repeats=REPEATS):
    """How often the best of some checkpoints, all as good as their base, is said to be better than it."""
    every = scores(numpy.random.default_rng(2), (prompts, repeats), "no floors", checkpoints + 1)
    base, others = every[0], every[1:]
    best = numpy.take_along_axis(others, others.mean(axis=1).argmax(axis=0)[None, None], axis=0)[0]
    return claimed(best, base).mean()


def watched(cell, shift=0.0, longest=LONGEST, repeats=REPEATS, seed=3):
    """After how many prompts a confidence sequence that is looked at after each one first excludes 0, shape (repeats,); else infinite."""
    a, b = scores(numpy.random.default_rng(seed), (longest, repeats), cell, shift=shift)
    scaled = (a - b + 4) / 8
    gained = sequential.capital(scaled, sequential.bets(scaled, stats.LEVEL), 0.5).max(axis=0)
    out = gained >= numpy.log(2 / LEVEL)
    return numpy.where(out.any(axis=0), 1 + out.argmax(axis=0), numpy.inf)


def main():
    print("# What looking again does\n")
    print(
        f"Written by `make bench-looks`: synthetic scores (tests/bench_looks.py), {REPEATS:,} seeded repeats in each row; a share of "
        "5 % has a standard error of 0.5 points.\n"
    )
    print("## The headline's test, looked at again\n")
    print(
        f"Two equal models, compared at {', '.join(map(str, SIZES[:-1]))} and {SIZES[-1]} prompts, each comparison with the prompts "
        "of the one before: how often they were separated at least once. Bound: what run-compare says of so many looks; it takes one look "
        "for right, which docs/statistics-bench.md looks at.\n"
    )
    print("| scores | one look | two | three | four |")
    print("|---|---:|---:|---:|---:|")
    for cell in CELLS:
        print(f"| {cell} | {' | '.join(f'{share:.1%}' for share in again(cell))} |", flush=True)
    print(
        f"| bound | {' | '.join(f'{looks.false_chance(k):.1%}' for k in range(1, len(SIZES) + 1))} |\n"
    )
    print(
        f"The best of ten checkpoints, all as good as their base, by its mean over 30 prompts: said to be better or worse than the "
        f"base in {best_of(10):.1%} of the repeats (bound for ten looks {looks.false_chance(10):.1%}).\n",
        flush=True,
    )
    print("## The confidence sequence, looked at after every prompt\n")
    print(
        f"Equal models: how often 0 is excluded after any of the first {LONGEST:,} prompts. At most 5 % is promised, for any "
        "number.\n"
    )
    print("| scores | excluded at least once |")
    print("|---|---:|")
    for cell in CELLS:
        print(f"| {cell} | {numpy.isfinite(watched(cell)).mean():.1%} |", flush=True)
    print("\n## Its price\n")
    print(
        "How many prompts it takes until 0 is excluded, looked at after each: in half of the repeats, and in four of five. Beside "
        "it the number that run-plan names for one look with the same chance of four in five.\n"
    )
    print("| scores | true difference | half | four of five | one look at | times |")
    print("|---|---:|---:|---:|---:|---:|")
    for cell in ("no floors", "5 % and 0 % floored", "20 % and 20 % floored"):
        a, b = scores(numpy.random.default_rng(4), (200_000,), cell)
        for shift in (0.2, 0.3, 0.5, 1.0):
            half, most = numpy.quantile(watched(cell, shift, 3000, 1000), [0.5, 0.8])
            planned = max(stats.FEWEST, stats.needed(shift, (a - b).std()))
            print(
                f"| {cell} | {shift:.1f} | {half:.0f} | {most:.0f} | {planned} | {most / planned:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
