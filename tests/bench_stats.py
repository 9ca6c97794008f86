"""Whether the statistics hold what they print, on decks whose truth is known: prints a markdown page (docs/statistics-bench.md).

The cells are the cases that break intervals: failures on one side or both, decks that pass almost every check, ties, domains that lean to
a model, few prompts. Shares of benchmarks are enumerated, not simulated, where a question has one sample.
"""

import itertools
import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # its threads spin: on a busy machine they cost four times the CPU
import numpy  # noqa: E402
from scipy.special import expit, ndtri  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "lib"))

from decksmith.bench.benchmarks import metrics  # noqa: E402
from decksmith.measure.results import looks, power, stats  # noqa: E402

stats.EXCHANGES = 1000  # of each repeat; what is printed to people has 20,000
REPEATS, LEVEL = 2000, 0.05
LEAST, MOST, WRONG = 0.93, 0.97, 0.065  # what an interval is to hold, and the most false findings
SIZES = (6, 12, 30, 100, 302)
LAYOUTS = {  # domains (below 0: so many prompts in each), and how far one leans to a model
    "each prompt by itself": (0, 0.0),
    "26 domains, as ours": (26, 0.0),
    "26 domains that lean": (26, 0.4),
    "six a domain, which leans": (-6, 0.4),
}
FAILURES = ((0.0, 0.0), (0.0, 0.1), (0.05, 0.2), (0.3, 0.3), (0.1, 0.6), (0.6, 0.6))
KINDS = {  # logit of the share of checks passed, its sd by deck, share of prompts on which both decks pass the same
    "half passed": (0.5, 0.6, 0.0),
    "nearly all passed": (3.0, 0.8, 0.0),
    "mostly ties": (1.0, 0.6, 0.85),
}
BETTER = 0.3  # logits by which one model is better, where one is


def domains(prompts, count, seed=0):
    """The domain of each prompt."""
    if count < 0:
        return numpy.arange(prompts) // -count
    random = numpy.random.default_rng([prompts, seed])
    return random.integers(0, count, prompts) if count else numpy.arange(prompts)


def decks(random, label, repeats, failures, kind, lean, shift=0.0):
    """Of models that fail so often: whether each deck renders, and the share of its checks that it passes (NaN where it does
    not), arrays of shape (prompts, repeats). The first model is better by `shift` logits."""
    level, spread, ties = KINDS[kind]
    shape, count = (len(label), repeats), label.max() + 1
    hard, of = random.standard_normal(shape), random.integers(10, 26, shape)
    same, first, found = random.random(shape) < ties, None, []
    for place, failing in enumerate(failures):
        own, more = (lean * random.standard_normal((count, repeats))[label] for _ in range(2))
        sd = (1 + 0.7**2 + lean**2) ** 0.5
        failed = 0.7 * hard + own + random.standard_normal(shape) > -ndtri(failing) * sd
        better = 0.0 if place else shift
        share = expit(level + better - 0.4 * hard + more + spread * random.standard_normal(shape))
        passed = random.binomial(of, share) / of
        first = passed if first is None else first
        passed = numpy.where(same, first, passed)
        found.append(((~failed).astype(float), numpy.where(failed, numpy.nan, passed)))
    return found


@lru_cache
def truth(failures, kind, lean, shift):
    """The true mean and sd of the difference where both render, and the shares of prompts where both do, only the first, only the
    second."""
    alone = numpy.arange(500_000)
    (a, good), (b, other) = decks(
        numpy.random.default_rng(99), alone, 1, failures, kind, lean, shift
    )
    gap = good - other
    mean = numpy.nanmean(gap) if shift else 0.0
    return mean, numpy.nanstd(gap), (a * b).mean(), (a > b).mean(), (a < b).mean()


def blocks(columns, each=500):
    return numpy.array_split(numpy.arange(columns), -(-columns // each))


def columnwise(function, *sides):
    """A function of `stats`, some columns at a time: `{name: array}`."""
    parts = [function(*(side[:, block] for side in sides)) for block in blocks(sides[0].shape[1])]
    names = parts[0].keys() & {"lo", "hi", "p", "n"}
    return {name: numpy.concatenate([part[name] for part in parts]) for name in names}


def renders(a, b, label):
    """What the clause "how many more decks render" says of two models of `decks`."""
    rows = label.tolist()
    return columnwise(lambda x, y: stats.share_differences(x, y, rows), a[0], b[0])


def better(a, b, label):
    """The same of "how much better, where both render"."""
    rows = label.tolist()
    found = columnwise(lambda x, y: stats.t_differences(x, y, (0, 1), rows), a[1], b[1])
    found["p"] = numpy.where(found["n"] < stats.FEWEST, numpy.nan, found["p"])
    return found


def clauses(a, b, label):
    return renders(a, b, label), better(a, b, label)


def claimed(found):
    """Which differences are claimed, shape (differences, columns): p corrected as `stats.holm` does."""
    p = numpy.stack([one["p"] for one in found])
    adjusted = numpy.apply_along_axis(stats.holm, 0, p)
    return (adjusted <= LEVEL) & numpy.stack([apart(one) for one in found])


def apart(found):
    return (found["lo"] > 0) | (found["hi"] < 0)


def held(found, real):
    """The share of intervals that hold the truth, of those with prompts enough."""
    enough = found["n"] >= stats.FEWEST
    inside = (found["lo"] <= real + 1e-9) & (found["hi"] >= real - 1e-9)
    return inside[enough].mean() if enough.sum() > 100 else math.nan


def shown(share, wrong=None):
    """One cell of a table; a star where it misses what is asked."""
    if math.isnan(share):
        return "-"
    missed = not LEAST <= share <= MOST or (wrong is not None and wrong > WRONG)
    ends = "" if wrong is None else f" / {100 * wrong:.1f}"
    return f"{100 * share:.1f}{ends}{'*' if missed else ''}"


def table(header, rows):
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    print()


def rows(pool, make, *choices):
    """The rows of a table, made side by side, in order."""
    return pool.map(make, *zip(*itertools.product(*choices), strict=True))


def percent(*shares):
    return "/".join(f"{100 * share:.0f}" for share in shares) + " %"


# The two clauses


def renders_row(layout, n):
    (count, lean), cells = LAYOUTS[layout], []
    label = domains(n, count)
    for failures in FAILURES:
        a, b = decks(numpy.random.default_rng(1), label, REPEATS, failures, "half passed", lean)
        found = renders(a, b, label)
        wrong = (found["p"] <= LEVEL).mean() if failures[0] == failures[1] else None
        cells.append(shown(held(found, failures[1] - failures[0]), wrong))
    return layout, n, *cells


def one_model_row(layout, n):
    (count, lean), cells = LAYOUTS[layout], []
    label = domains(n, count)
    for failing in (0.02, 0.1, 0.3, 0.6):
        ((a, _),) = decks(
            numpy.random.default_rng(1), label, REPEATS, (failing,), "half passed", lean
        )
        found = columnwise(lambda x: stats.shares(x, label.tolist()), a)
        cells.append(shown(held(found, 1 - failing)))
    return layout, n, *cells


def better_row(layout, n, kind):
    """In each cell held where the first model is better / found where both are equal."""
    (count, lean), cells = LAYOUTS[layout], []
    label = domains(n, count)
    for failures in FAILURES:
        found = []
        for shift in (BETTER, 0.0):
            a, b = decks(numpy.random.default_rng(1), label, REPEATS, failures, kind, lean, shift)
            found.append(better(a, b, label))
        p = found[1]["p"]
        wrong = (p[~numpy.isnan(p)] <= LEVEL).mean() if (~numpy.isnan(p)).sum() > 100 else math.nan
        cells.append(shown(held(found[0], truth(failures, kind, lean, BETTER)[0]), wrong))
    return layout, n, *cells


def family_row(layout, kind, repeats=500):
    """Six models that are equally good and fail equally often: how often anything is claimed of any of the 15 pairs."""
    (count, lean), row = LAYOUTS[layout], [layout, kind]
    for n in SIZES[1:]:
        label = domains(n, count)
        models = decks(numpy.random.default_rng(3), label, repeats, (0.2,) * 6, kind, lean)
        found = [one for a, b in itertools.combinations(models, 2) for one in clauses(a, b, label)]
        row.append(f"{100 * claimed(found).any(axis=0).mean():.1f}")
    return row


PLACINGS = 10  # of prompts in domains, over which a power is taken
PROMISES = [  # layout, prompts, failures, kind, logits by which the first model is better
    ("each prompt by itself", 12, (0.0, 0.0), "half passed", 0.9),
    ("each prompt by itself", 30, (0.0, 0.0), "half passed", 0.45),
    ("each prompt by itself", 30, (0.1, 0.6), "half passed", 0.8),
    ("each prompt by itself", 60, (0.3, 0.3), "half passed", 0.45),
    ("each prompt by itself", 100, (0.0, 0.1), "nearly all passed", 0.4),
    ("each prompt by itself", 302, (0.05, 0.2), "mostly ties", 0.45),
    ("26 domains, as ours", 60, (0.05, 0.2), "half passed", 0.4),
    ("26 domains, as ours", 132, (0.3, 0.3), "nearly all passed", 0.45),
    ("26 domains, as ours", 302, (0.0, 0.0), "half passed", 0.13),
    ("26 domains that lean", 60, (0.0, 0.0), "half passed", 0.45),
    ("26 domains that lean", 132, (0.05, 0.2), "half passed", 0.4),
    ("26 domains that lean", 302, (0.1, 0.6), "nearly all passed", 0.5),
]


@lru_cache
def alike(failures, kind, lean, shift, each=40):
    """The share of the variance between domains, as the planner sees it in 16,000 prompts."""
    label = numpy.arange(16_000) // each
    models = decks(numpy.random.default_rng(98), label, 1, failures, kind, lean, shift)
    cells = [
        {n: value for n, value in enumerate(good[:, 0].tolist()) if not math.isnan(value)}
        for _, good in models
    ]
    return power.between_domains(cells, dict(enumerate(map(str, label))))[1]


def promise(cell, repeats=4000):
    """The power that the planner promises from the true sd and rates, and that with which "better" is claimed."""
    layout, n, failures, kind, shift = cell
    count, lean = LAYOUTS[layout]
    mean, sd, both, more, less = truth(failures, kind, lean, shift)
    expected = stats.Expected(
        both, (more, less), count, alike(failures, kind, lean, shift) if lean else 0.0
    )
    claims = []
    for seed in range(PLACINGS):
        label = domains(n, count, seed)
        random = numpy.random.default_rng([5, seed])
        models = decks(random, label, repeats // PLACINGS, failures, kind, lean, shift)
        found = clauses(*models, label)
        claims.append(claimed(found)[1] & (found[1]["lo"] > 0))
    return stats.power(mean, sd, n, expected), numpy.mean(claims)


RENDER_PROMISES = [(30, 0.3, 0.0), (30, 0.4, 0.05), (100, 0.15, 0.02), (302, 0.08, 0.03)]


def render_promise(n, more, less, repeats=20_000):
    """The same of "renders more often"."""
    drawn = numpy.random.default_rng(6).random((n, repeats))
    won, lost = drawn < more, (drawn >= more) & (drawn < more + less)
    found = columnwise(stats.share_differences, won.astype(float), lost.astype(float))
    claims = (found["p"] <= LEVEL / 2) & (found["lo"] > 0)
    return stats.render_power(n, more, less), claims.mean()


RULED_OUT = [(100, 0.07, 0.07, 0.12), (300, 0.02, 0.05, 0.08), (1000, 0.05, 0.05, 0.03)]


def ruled_out_promise(n, more, less, margin, repeats=1000):
    """The same of a benchmark's "a loss of more than the margin is ruled out"."""
    drawn = numpy.random.default_rng(6).random((n, repeats))
    gap = (drawn < more).astype(float) - ((drawn >= more) & (drawn < more + less))
    lo = columnwise(lambda x: stats.means(x, (-1, 1), strict=True), gap)["lo"]
    seen = [1.0] * round(1000 * more) + [-1.0] * round(1000 * less)
    seen += [0.0] * (1000 - len(seen))
    return metrics.ruled_out(seen, margin, n), (lo > -margin).mean()


def width_row(n, sd=0.2):
    """Mean widths over that of Student's t where no deck fails: of the second clause, and of Overall counting failures as 1."""
    random = numpy.random.default_rng(4)
    a, b = random.normal(3, sd / 2**0.5, (2, n, 500))
    plain = columnwise(lambda x, y: stats.t_means(x - y), a, b)
    kinds = (
        columnwise(lambda x, y: stats.t_differences(x, y, (1, 5)), a, b),
        columnwise(lambda x, y: stats.differences(x, y, (1, 5)), a, b),
    )
    wide = (plain["hi"] - plain["lo"]).mean()
    return n, *(f"{(one['hi'] - one['lo']).mean() / wide:.2f}" for one in kinds)


# Overall, counting failures as 1


COUNTED = ((0.05, 0.0), (0.10, 0.0), (0.30, 0.05), (0.20, 0.20))
NOISE = {"nearly deterministic": 0.10, "usual": 0.50}


def flat(random, sd, shape):
    """Even draws around 0: they keep within the scale, so that the true means are exact."""
    return sd * 3**0.5 * random.uniform(-1, 1, shape)


def counted_row(layout, n, failures):
    """In each cell held / claimed, of two models with the same true mean: who fails more makes up for it with its other decks."""
    (count, lean), cells = LAYOUTS[layout], []
    label = domains(n, count)
    for noise, whole in itertools.product(NOISE.values(), (False, True)):
        random, sides = numpy.random.default_rng(1), []
        mean = (1 - min(failures)) * 2.8 + min(failures)
        prompt = flat(random, 0.10, (n, REPEATS))
        for failing in failures:
            own = flat(random, 0.75 * lean, (label.max() + 1, REPEATS))[label]
            level = (mean - failing) / (1 - failing)
            score = level + prompt + own + flat(random, noise, (n, REPEATS))
            if whole:
                score = numpy.floor(score + random.random(score.shape))
            sides.append(numpy.where(random.random(score.shape) < failing, 1.0, score))
        found = columnwise(lambda x, y: stats.differences(x, y, (1, 5), label.tolist()), *sides)
        claims = apart(found) & (found["p"] <= LEVEL)
        cells.append(shown(1 - apart(found).mean(), claims.mean()))
    return layout, n, percent(*failures), *cells


def compared(a, b, label, scale=(1, 5), strict=False):
    """`stats.differences`, some columns at a time: `{name: array}`."""
    return columnwise(lambda x, y: stats.differences(x, y, scale, label, strict), a, b)


# Shares

GRID = (
    0.002,
    0.005,
    0.01,
    0.02,
    0.03,
    0.05,
    0.07,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
)


def tango(wins, losses, n):
    """The lower end of Tango's score interval (1998, Statistics in Medicine 17:891) of (wins - losses) / n."""
    from scipy.special import ndtri

    low, high = numpy.full(len(wins), -1 + 1e-12), (wins - losses) / n
    for _ in range(60):
        at = (low + high) / 2
        half, last = -wins - losses + (2 * n - wins + losses) * at, -losses * at * (1 - at)
        share = (numpy.sqrt(numpy.maximum(half**2 - 8 * n * last, 0)) - half) / (4 * n)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            far = (wins - losses - n * at) / numpy.sqrt(
                n * numpy.maximum(2 * share + at * (1 - at), 1e-300)
            )
        low, high = (
            numpy.where(far > -ndtri(LEVEL / 2), at, low),
            numpy.where(far > -ndtri(LEVEL / 2), high, at),
        )
    return low


def paired_shares(n):
    """The largest chance that the lower end is above the true difference, over all chances of a win and a loss in GRID: of ours and
    of Tango's interval. The upper end is its mirror image."""
    wins, losses = numpy.array(
        [(won, lost) for won in range(n + 1) for lost in range(n + 1 - won)]
    ).T
    place = numpy.arange(n)[:, None]
    won, lost = place < wins, (place >= wins) & (place < wins + losses)
    ends = [
        compared(won.astype(float), lost.astype(float), None, (0, 1), True)["lo"],
        tango(wins, losses, n),
    ]
    worst = [0.0, 0.0]
    for p, q in itertools.product((0.0, *GRID), repeat=2):
        if p + q <= 1 + 1e-9:
            chance = outcomes(n, (wins, losses, n - wins - losses), (p, q, max(0.0, 1 - p - q)))
            worst = [
                max(before, chance[end > p - q + 1e-9].sum())
                for before, end in zip(worst, ends, strict=True)
            ]
    return worst


def single_shares(n):
    """The same for one share: the larger of both sides, over shares of 0.002 to 0.998; of ours and of Wilson's interval."""
    from scipy.special import ndtri

    right, z2 = numpy.arange(n + 1), ndtri(LEVEL / 2) ** 2
    ours = stats.means((numpy.arange(n)[:, None] < right).astype(float), (0, 1), strict=True)["lo"]
    share = right / n
    wilson = (share + z2 / 2 / n - numpy.sqrt(z2 * (share * (1 - share) + z2 / 4 / n) / n)) / (
        1 + z2 / n
    )
    worst = [0.0, 0.0]
    for p in numpy.r_[0.002, numpy.arange(0.005, 1, 0.005), 0.998]:
        chance = outcomes(n, (right, n - right), (p, 1 - p))
        worst = [
            max(before, chance[end > p + 1e-9].sum())
            for before, end in zip(worst, (ours, wilson), strict=True)
        ]
    return worst


def outcomes(n, counts, chances):
    """The multinomial chance of each outcome."""
    from scipy.special import gammaln, xlogy

    return numpy.exp(
        gammaln(n + 1)
        + sum(
            xlogy(count, chance) - gammaln(count + 1)
            for count, chance in zip(counts, chances, strict=True)
        )
    )


SOLVED = {
    "questions of every difficulty": lambda random, shape: random.uniform(0, 1, shape),
    "solved always or never, but for some": lambda random, shape: random.beta(0.2, 0.2, shape),
    "solved always but for one in twenty, half of the time": lambda random, shape: numpy.where(
        random.random(shape) < 0.05, 0.5, 1.0
    ),
}


def sampled_shares(samples=4):
    """Question means over several samples: the share of the repeats in which a side of the interval excludes the true difference."""
    for (name, draw), n in itertools.product(SOLVED.items(), (12, 30, 100)):
        row = [name, n]
        for loss in (0.0, 0.1):
            random = numpy.random.default_rng(4)
            chance = draw(random, (n, REPEATS))
            fails = random.random((n, REPEATS)) < loss  # on these the first model always fails
            a, b = (
                random.binomial(samples, numpy.where(fails, 0, chance)) / samples,
                random.binomial(samples, chance) / samples,
            )
            found, real = (
                compared(a, b, None, (0, 1), True),
                -loss * float(draw(random, 1_000_000).mean()),
            )
            row.append(
                f"{100 * (found['lo'] > real).mean():.1f} / {100 * (found['hi'] < real).mean():.1f}"
            )
        yield row


# Looking again

LOOKS = 2000  # repeats
# Prompts at the looks of somebody who adds some until there is a finding.
GROWING = (12, 30, 60, 132)
AGAIN = [((0.0, 0.0), "half passed"), ((0.2, 0.2), "half passed"), ((0.2, 0.2), "mostly ties")]


def again(failures, kind, repeats=LOOKS):
    """How often something is claimed of equal models at least once, by the number of looks at GROWING."""
    label = numpy.arange(GROWING[-1])
    models = decks(numpy.random.default_rng(1), label, repeats, failures, kind, 0.0)
    once = []
    for n in GROWING:
        a, b = ([part[:n] for part in model] for model in models)
        once.append(claimed(clauses(a, b, label[:n])).any(axis=0))
    return numpy.logical_or.accumulate(once).mean(axis=1)


def best_of(checkpoints, prompts=30, repeats=LOOKS):
    """How often something is claimed of the best of some checkpoints, all as good as their base."""
    label, failures = numpy.arange(prompts), (0.0,) * (checkpoints + 1)
    base, *others = decks(numpy.random.default_rng(2), label, repeats, failures, "half passed", 0.0)
    good = numpy.stack([other[1] for other in others])
    best = good.mean(axis=1).argmax(axis=0)
    chosen = numpy.take_along_axis(good, best[None, None], axis=0)[0]
    return claimed(clauses((others[0][0], chosen), base, label)).any(axis=0).mean()


def looks_section():
    """What looking again does to error rates."""
    print("\n## The headline, looked at again\n")
    print(
        f"{LOOKS:,} seeded repeats in each row. Two equal models, compared at {', '.join(map(str, GROWING[:-1]))} and {GROWING[-1]} "
        "prompts, each comparison with the prompts of the one before: how often something was claimed at least once. Bound: what "
        "run-compare says of so many looks; it takes one look for right.\n"
    )
    bound = [f"{looks.false_chance(k):.1%}" for k in range(1, len(GROWING) + 1)]
    found = [
        (percent(*failures), kind, *(f"{share:.1%}" for share in again(failures, kind)))
        for failures, kind in AGAIN
    ]
    table(
        ["failures", "decks", "one look", "two", "three", "four"], [*found, ("bound", "", *bound)]
    )
    print(
        f"The best of ten checkpoints, all as good as their base, by its mean over 30 prompts: said to be better or worse than the "
        f"base in {best_of(10):.1%} of the repeats (bound for ten looks {looks.false_chance(10):.1%})."
    )


def main():
    with ProcessPoolExecutor() as pool:
        page(pool)


def page(pool):
    print("# What the statistics hold\n")
    print(
        f"Written by `make bench-stats`: synthetic decks with a known truth (tests/bench_stats.py), {REPEATS:,} seeded repeats in each cell, "
        "whose shares have standard errors of 0.5 points near 95 %. docs/statistics.md has the methods. Asked of 95 % intervals: "
        f"{100 * LEAST:.0f} to {100 * MOST:.0f} % hold the truth, and at most {100 * WRONG:.1f} % of equal models have a p of 5 % or less; a star "
        "marks what is outside. Columns: how often the decks of either model fail.\n"
    )
    heads = [percent(*failures) for failures in FAILURES]
    print("## How many more decks render\n")
    print(
        "Intervals that hold the true difference / p at most 5 % where both fail equally often. More than 97 % is the price of an exact "
        "test: a few failures are whole numbers, and where no deck fails there is nothing to be wrong about.\n"
    )
    table(["domains", "prompts", *heads], rows(pool, renders_row, LAYOUTS, SIZES))
    print("## How many decks of one model render\n")
    print("Intervals that hold the true share: exact, so more than 95 % where few decks fail.\n")
    heads_of_one = [percent(failing) for failing in (0.02, 0.1, 0.3, 0.6)]
    table(["domains", "prompts", *heads_of_one], rows(pool, one_model_row, LAYOUTS, SIZES))
    for kind in KINDS:
        print(f"## How much better, where both render: {kind}\n")
        print(
            "Intervals that hold the true difference of a model that is better / p at most 5 % where both are equal. A dash: "
            f"fewer than {stats.FEWEST} prompts where both render. Six prompts of one domain say nothing of other domains.\n"
        )
        if kind == "mostly ties":
            print(
                "On 85 % of the prompts both decks pass the same checks. Where most prompts are ties the interval is that of one prompt "
                "won and one lost more: wide on purpose while hardly a prompt tells the two apart.\n"
            )
        table(["domains", "prompts", *heads], rows(pool, better_row, LAYOUTS, SIZES, [kind]))
    print("## Any claim among six equally good models\n")
    print(
        "Every model fails at 20 % of its decks; 15 pairs, two clauses each, p corrected by Holm's method: percent of 500 repeats "
        "with at least one claim.\n"
    )
    heads_of_sizes = [f"{n} prompts" for n in SIZES[1:]]
    table(["domains", "decks", *heads_of_sizes], rows(pool, family_row, LAYOUTS, KINDS))
    promises(pool)
    print("## Width where no deck fails\n")
    print("Mean width over that of Student's t, differences with a standard deviation of 0.2.\n")
    header = ["prompts", "better where both render", "Overall, counting failures as 1"]
    table(header, pool.map(width_row, SIZES[1:]))
    print("## Overall, counting failures as 1\n")
    print(
        "The third number under a judge that reads. Two models with the same true mean, in each cell held / claimed; a deck's noise has "
        f"the sd {NOISE['nearly deterministic']} (nearly deterministic) or {NOISE['usual']}.\n"
    )
    heads = [f"{kind}{form}" for kind in NOISE for form in ("", ", whole numbers")]
    layouts = ("each prompt by itself", "six a domain, which leans")
    table(
        ["domains", "prompts", "failures", *heads],
        rows(pool, counted_row, layouts, (12, 30, 120), COUNTED),
    )
    questions(pool)
    looks_section()


def promises(pool):
    print("## What the planner promises\n")
    print(
        'Twelve cells: the chance that "better where both render" is claimed, promised from the true standard deviation and rates, and '
        "found over 4,000 repeats.\n"
    )
    found = [
        (*cell[:2], percent(*cell[2]), cell[3], *(f"{100 * share:.1f}" for share in both))
        for cell, both in zip(PROMISES, pool.map(promise, PROMISES), strict=True)
    ]
    table(["domains", "prompts", "failures", "decks", "promised %", "found %"], found)
    print('"Renders more often", by the shares of prompts where only one model\'s deck renders:\n')
    cells = [(*cell, *render_promise(*cell)) for cell in RENDER_PROMISES]
    header = ["prompts", "only the first", "only the second", "promised %", "found %"]
    table(header, [promised(cell) for cell in cells])
    print('"A loss of more than the margin is ruled out", of a benchmark\'s questions:\n')
    cells = [(*cell, *ruled_out_promise(*cell)) for cell in RULED_OUT]
    header = ["questions", "won", "lost", "margin", "promised %", "found %"]
    table(header, [promised(cell) for cell in cells])


def promised(cell):
    *what, said, found = cell
    return *what, f"{100 * said:.1f}", f"{100 * found:.1f}"


def questions(pool):
    print("## Shares of questions\n")
    print(
        "The largest chance, in percent, that one side of the interval excludes the truth: enumerated over all outcomes, and over chances of a "
        "win and of a loss (or of a right answer) from 0 to 1. At most 2.5 is asked.\n"
    )
    sizes = (12, 20, 30, 50, 75, 100)
    found = zip(sizes, pool.map(paired_shares, sizes), pool.map(single_shares, sizes), strict=True)
    shares = (
        (
            n,
            *(
                f"{100 * chance:.2f}{'*' if chance > 0.025 else ''}"
                for chance in (*paired, *single)
            ),
        )
        for n, paired, single in found
    )
    table(
        ["questions", "paired difference", "Tango's interval", "one share", "Wilson's interval"],
        shares,
    )
    print(
        "With four samples of each question, simulated: percent of the repeats in which the lower / upper end excludes the true difference.\n"
    )
    table(["questions", "n", "equally good", "one always fails at a tenth"], sampled_shares())


if __name__ == "__main__":
    main()
