"""Whether the statistics hold what they print, on synthetic scores whose truth is known: prints a markdown page (docs/statistics-bench.md).

The cells are the cases that break intervals: floors on one side, nearly deterministic models, ties, whole numbers, domains that lean to
a model, several samples. Shares of benchmarks are enumerated, not simulated, where a question has one sample.
"""

import itertools
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # its threads spin: on a busy machine they cost four times the CPU
import numpy  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "lib"))

from decksmith.measure.results import looks, power, stats  # noqa: E402

stats.EXCHANGES = 2000  # of each repeat; what is printed to people has 20,000
REPEATS, LEVEL = 3000, 0.05
LEAST, MOST, WRONG = 0.93, 0.97, 0.055  # what an interval is to hold, and the most false claims
SIZES = (12, 30, 120)
FLOORS = ((0.05, 0.0), (0.10, 0.0), (0.30, 0.05), (0.20, 0.20))
FORMS = ("continuous", "whole numbers", "ties")
NOISE = {"nearly deterministic": 0.10, "usual": 0.50}
LAYOUTS = {
    "one prompt a domain": (0, 1),
    "one or two a domain, as the core prompts": (0, 2),
    "six a domain": (0, 6),
    "six a domain that leans to a model": (0.3, 6),
}


def domains(prompts, each):
    """The domain of each prompt: `each` in every one; of two each, half of the prompts have a domain to themselves."""
    place = numpy.arange(prompts)
    if each == 2:
        return numpy.where(place < prompts // 2, place // 2, place)
    return place // each


def flat(random, sd, shape):
    """Even draws around 0: they keep within the scale, so that the true means are exact."""
    return sd * 3**0.5 * random.uniform(-1, 1, shape)


def cell(random, repeats, prompts, floors, form, noise, samples, lean, each):
    """Per-prompt scores of as many models as there are floors, each of shape (prompts, repeats), all with the same true mean.

    Each deck is floored to 1 with its model's share of `floors`; without the floor its score is a level that makes up for it,
    plus prompt, domain x model (sd `lean`) and noise. Ties: whole numbers that equal latent scores round alike.
    """
    level = 2.8
    mean = (1 - min(floors)) * level + min(floors)
    label = domains(prompts, each)
    prompt = flat(random, 0.10, (prompts, repeats, 1))
    alike = random.random((prompts, repeats, samples))
    found = []
    for floor in floors:
        own = flat(random, lean, (label.max() + 1, repeats, 1))[label]
        score = (
            (mean - floor) / (1 - floor)
            + prompt
            + own
            + flat(random, noise, (prompts, repeats, samples))
        )
        if form != "continuous":
            score = numpy.floor(score + (alike if form == "ties" else random.random(score.shape)))
        found.append(numpy.where(random.random(score.shape) < floor, 1.0, score).mean(axis=2))
    return found, mean


def blocks(columns, each=500):
    return numpy.array_split(numpy.arange(columns), -(-columns // each))


def compared(a, b, label, scale=(1, 5), strict=False):
    """`stats.differences`, some columns at a time: `{name: array}`."""
    parts = [
        stats.differences(a[:, block], b[:, block], scale, label, strict)
        for block in blocks(a.shape[1])
    ]
    return {name: numpy.concatenate([part[name] for part in parts]) for name in ("lo", "hi", "p")}


def formerly(values, columns=200):
    """The mean width of the interval that was printed before: the expanded percentile bootstrap (Hesterberg 2015), 2,000 resamples."""
    from scipy.special import ndtr, stdtrit

    random, n = numpy.random.default_rng(5), len(values)
    drawn = random.multinomial(n, [1 / n] * n, 2000) @ values[:, :columns] / n
    tail = ndtr(numpy.sqrt(n / (n - 1)) * stdtrit(n - 1, LEVEL / 2))
    lo, hi = numpy.quantile(drawn, [tail, 1 - tail], axis=0)
    return (hi - lo).mean()


def shown(held, wrong=None):
    """One cell of the table; a star where it misses what is asked."""
    missed = not LEAST <= held <= MOST or wrong is not None and wrong > WRONG
    return (
        f"{100 * held:.1f}{'' if wrong is None else f' / {100 * wrong:.1f}'}{'*' if missed else ''}"
    )


# Scores like ours

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
    quality = (
        level
        + 0.7
        - 0.35 * random.gamma(2, 1, (1, prompts, 1))
        + 0.30 * random.normal(size=(2, prompts, 1))
        + 0.45
        - 0.45 * random.gamma(1, 1, cells)
        + shift * numpy.array([1, 0])[:, None, None]
    )
    failed = random.random(cells) < 1 / (1 + (1 / failing - 1) * numpy.exp(1.5 * (quality - level)))
    # A judging's noise is partly common to the four dimensions.
    own = 0.30 * random.normal(size=(*cells, judgings, 4)) + 0.25 * random.normal(
        size=(*cells, judgings, 1)
    )
    lean = 0.3 * random.normal(size=(*cells, 1, 4))
    seen = (
        numpy.clip(numpy.round((3 + quality[..., None, None] + lean + own) / step) * step, 1, 5)
        @ weights
    )
    return numpy.where(failed[..., None], 1.0, seen)


def tested(a, b):
    """The functions under test, for columns of per-prompt values: `(lo, hi, p)`."""
    return list(compared(a, b, None).values())


def repeated(random, repeats, prompts, samples=1, judgings=1, **how):
    """Per-prompt values of two models, each of shape (prompts, repeats): what the reported statistics are given."""
    drawn = scores(random, prompts * repeats, samples, judgings, **how).mean(axis=(2, 3))
    return drawn.reshape(2, repeats, prompts).transpose(0, 2, 1)


@lru_cache
def truth(shift, kind="Overall", prompts=200_000):
    """The true difference of the two models' mean scores (standard error about 0.003)."""
    a, b = scores(numpy.random.default_rng(99), prompts, shift=shift, kind=kind).mean(
        axis=(1, 2, 3)
    )
    return a - b


def coverage(prompts, samples=1, shift=0.0, kind="Overall", repeats=REPEATS, seed=1):
    """Shares of the repeats: `(intervals that hold the truth, p at most 5 %, intervals without 0, both of these: a claim)`."""
    lo, hi, p = tested(
        *repeated(numpy.random.default_rng(seed), repeats, prompts, samples, shift=shift, kind=kind)
    )
    real = truth(shift, kind) if shift else 0.0
    found, apart = p <= LEVEL, (lo > 0) | (hi < 0)
    return [share.mean() for share in ((lo <= real) & (real <= hi), found, apart, found & apart)]


def simulated_mde(prompts, near=0.4, kind="Overall", repeats=1000, seed=2):
    """The true difference that the sign-flip test finds in 80 % of the repeats: probit through four shifts around `near`."""
    from scipy.stats import norm

    slope = truth(near, kind) / near  # score per latent unit
    shifts = [near * factor / slope for factor in (0.75, 0.92, 1.08, 1.3)]
    found = [
        (
            tested(
                *repeated(
                    numpy.random.default_rng(seed),
                    repeats,
                    prompts,
                    shift=shift,
                    kind=kind,
                )
            )[2]
            <= LEVEL
        ).mean()
        for shift in shifts
    ]
    line = numpy.polyfit(
        norm.ppf(numpy.clip(found, 0.5 / repeats, 1 - 0.5 / repeats)),
        [truth(shift, kind) for shift in shifts],
        1,
    )
    return float(numpy.polyval(line, norm.ppf(power.POWER)))


def pilot(random, prompts, kind="Overall"):
    """The standard deviation of the differences in an earlier comparison, as run-plan estimates it."""
    drawn = scores(random, prompts, kind=kind).mean(axis=(2, 3))
    return power.deviation([dict(enumerate(model.tolist())) for model in drawn])


NOTE = """**Cells above 97 %.** With 12 prompts a model that fails at one deck in twenty shows no failure in 54 % of all draws, one in 34 %, two in
10 %, three in 2 %. Models that are otherwise deterministic tell nothing else, so an interval is a rule from the number of failures to a
set of rates, and the chance that it holds 5 % is a sum of these figures: 88 % (up to one), 98 % (up to two), and nothing between 93 and
97 %. For one in ten it is 28, 38, 23, 9 and 2 %: 89 or 97.4 %. The interval takes the larger sum. With two domains Student's t has one
degree of freedom; what is added for failures that went unseen can only make it hold more often. The other stars above 97 % are no such
proof but a price: with 30 prompts of nearly deterministic models one failure in twenty still goes unseen in 21 % of all draws, and with
four samples the interval allows for prompts at which all samples fail together, while here they fail each by itself.
"""


def table(header, rows):
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    print()


def differences_row(name, samples, n, floors):
    """In each cell held / claimed."""
    (lean, each), cells, widths = LAYOUTS[name], [], []
    label = domains(n, each).tolist()
    for form, noise in itertools.product(FORMS, NOISE.values()):
        (a, b), _ = cell(
            numpy.random.default_rng(1), REPEATS, n, floors, form, noise, samples, lean, each
        )
        found = compared(a, b, label)
        apart = (found["lo"] > 0) | (found["hi"] < 0)
        cells.append(shown(1 - apart.mean(), (apart & (found["p"] <= LEVEL)).mean()))
        widths.append((found["hi"] - found["lo"]).mean() / formerly(a - b))
    return name, samples, n, percent(*floors), *cells, f"{widths[0]:.2f}", f"{widths[1]:.2f}"


def means_row(name, n, floor):
    (lean, each), cells, widths = LAYOUTS[name], [], []
    label = domains(n, each).tolist()
    for form, noise, samples in itertools.product(FORMS[:2], NOISE.values(), (1, 4)):
        (values,), mean = cell(
            numpy.random.default_rng(2), REPEATS, n, (floor,), form, noise, samples, lean, each
        )
        parts = [stats.means(values[:, block], (1, 5), label) for block in blocks(REPEATS)]
        lo, hi = (numpy.concatenate([part[end] for part in parts]) for end in ("lo", "hi"))
        cells.append(shown(((lo <= mean) & (mean <= hi)).mean()))
        widths.append((hi - lo).mean() / formerly(values))
    return name, n, percent(floor), *cells, f"{widths[0]:.2f}", f"{widths[2]:.2f}"


def rows(pool, make, *choices):
    """The rows of a table, made side by side, in order."""
    return pool.map(make, *zip(*itertools.product(*choices), strict=True))


def percent(*shares):
    return "/".join(f"{100 * share:.0f}" for share in shares) + " %"


def family_row(name, kind, repeats=500):
    """Six models with the same true mean: how often any of the 15 pairs is claimed."""
    (lean, each), row = LAYOUTS[name], [name, kind]
    for n in SIZES:
        models, _ = cell(
            numpy.random.default_rng(3),
            repeats,
            n,
            (0.0, 0.0, 0.05, 0.10, 0.10, 0.30),
            "continuous",
            NOISE[kind],
            1,
            lean,
            each,
        )
        found = [
            compared(a, b, domains(n, each).tolist()) for a, b in itertools.combinations(models, 2)
        ]
        adjusted = numpy.apply_along_axis(stats.holm, 0, numpy.stack([pair["p"] for pair in found]))
        apart = numpy.stack([(pair["lo"] > 0) | (pair["hi"] < 0) for pair in found])
        row.append(f"{100 * (apart & (adjusted <= LEVEL)).any(axis=0).mean():.1f}")
    return row


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
CELLS = {  # sd of a model's own part of a prompt, shares of decks floored, share of prompts on which both do equally well
    "no floors": (0.5, (0.0, 0.0), 0.0),
    "5 % and 0 % floored": (0.5, (0.05, 0.0), 0.0),
    "30 % and 5 % floored": (0.5, (0.3, 0.05), 0.0),
    "20 % and 20 % floored": (0.5, (0.2, 0.2), 0.0),
    "mostly ties": (0.5, (0.0, 0.0), 0.7),
    "nearly deterministic, 10 % and 0 % floored": (0.1, (0.1, 0.0), 0.0),
}


def looked_at(random, shape, cell, models=2, shift=0.0):
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


def separated(a, b):
    """Which columns of `a` and `b`, shape (prompts, columns), run-compare would separate: interval and test agree."""
    blocks = numpy.array_split(numpy.arange(a.shape[1]), -(-a.shape[1] // 100))
    found = [stats.differences(a[:, block], b[:, block], (1, 5)) for block in blocks]
    return numpy.concatenate(
        [(part["p"] <= LEVEL) & ((part["lo"] > 0) | (part["hi"] < 0)) for part in found]
    )


def again(cell, repeats=LOOKS):
    """How often equal models are separated at least once, by the number of looks at GROWING."""
    a, b = looked_at(numpy.random.default_rng(1), (GROWING[-1], repeats), cell)
    once = numpy.array([separated(a[:n], b[:n]) for n in GROWING])
    return numpy.logical_or.accumulate(once).mean(axis=1)


def best_of(checkpoints, prompts=30, repeats=LOOKS):
    """How often the best of some checkpoints, all as good as their base, is said to be better than it."""
    every = looked_at(numpy.random.default_rng(2), (prompts, repeats), "no floors", checkpoints + 1)
    base, others = every[0], every[1:]
    best = numpy.take_along_axis(others, others.mean(axis=1).argmax(axis=0)[None, None], axis=0)[0]
    return separated(best, base).mean()


def looks_section():
    """What looking again does to error rates."""
    stats.EXCHANGES = 20_000  # as people get it: few looks at many models
    print("\n## The headline's test, looked at again\n")
    print(
        f"{LOOKS:,} seeded repeats in each row; a share of 5 % has a standard error of 0.5 points. Two equal models, compared at "
        f"{', '.join(map(str, GROWING[:-1]))} and {GROWING[-1]} prompts, each comparison with the prompts of the one before: how "
        "often they were separated at least once. Bound: what run-compare says of so many looks; it takes one look for right.\n"
    )
    bound = [f"{looks.false_chance(k):.1%}" for k in range(1, len(GROWING) + 1)]
    found = [(cell, *(f"{share:.1%}" for share in again(cell))) for cell in CELLS]
    table(["scores", "one look", "two", "three", "four"], [*found, ("bound", *bound)])
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
        f"Written by `make bench-stats`: synthetic scores with a known truth (tests/bench_stats.py), {REPEATS:,} seeded repeats in each cell, "
        "whose shares have standard errors of 0.4 points near 95 %. docs/statistics.md has the methods.\n"
    )
    print("## Differences of two models that are equally good\n")
    print(
        "In each cell: 95 % intervals that hold the true difference of 0 / claims made (interval without 0 and p at most 5 %), in percent. "
        f"Asked: {100 * LEAST:.0f} to {100 * MOST:.0f} and at most {100 * WRONG:.1f}; a star marks what is outside. Floors: decks of either model "
        "that fail and get 1, while the model that fails more makes up for it with its other decks. Nearly deterministic: a deck's noise "
        f"has the sd {NOISE['nearly deterministic']}, else {NOISE['usual']}. Ties: whole numbers, the same for both models wherever their latent scores allow. "
        "Leans: domain x model effects of sd 0.3. Width: mean width of the interval over that of the expanded percentile bootstrap, "
        "which takes each prompt by itself.\n"
    )
    heads = [f"{form}, {kind}" for form, kind in itertools.product(FORMS, NOISE)]
    table(
        ["domains", "samples", "prompts", "floors", *heads, *(f"width, {kind}" for kind in NOISE)],
        rows(pool, differences_row, LAYOUTS, (1, 4), SIZES, FLOORS),
    )
    print(NOTE)
    print("## Any claim among six equally good models\n")
    print(
        "Floors of 0, 0, 5, 10, 10 and 30 %, 15 pairs, p corrected by Holm's method: percent of 500 repeats with at least one claim.\n"
    )
    table(
        ["domains", "noise", *(f"{n} prompts" for n in SIZES)],
        rows(pool, family_row, LAYOUTS, NOISE),
    )
    print("## Means of one model\n")
    print("95 % intervals that hold the true mean, in percent; else as above.\n")
    heads = [
        f"{form}, {kind}, {samples}"
        for form, kind, samples in itertools.product(FORMS[:2], NOISE, ("1 sample", "4 samples"))
    ]
    table(
        ["domains", "prompts", "floor", *heads, *(f"width, {kind}" for kind in NOISE)],
        rows(pool, means_row, LAYOUTS, SIZES, (0.05, 0.10, 0.20, 0.30)),
    )
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

    print("## Scores like ours\n")
    print(
        "A latent quality with skewed prompt, prompt x model, sample and judging parts, judged in four dimensions that are rounded and weighted; a share "
        "of the decks fails and is floored.\n"
    )
    like_ours = (
        (
            kind,
            n,
            k,
            f"{truth(shift, kind) if shift else 0:.2f}",
            *(f"{share:.1%}" for share in coverage(n, k, shift, kind)),
        )
        for kind, n, (k, shift) in itertools.product(
            KINDS, (30, 120), ((1, 0.0), (3, 0.0), (1, 0.4))
        )
    )
    table(
        [
            "scores",
            "prompts",
            "samples",
            "true difference",
            "95 % intervals that hold it",
            "p at most 5 %",
            "interval without 0",
            "both: claimed",
        ],
        like_ours,
    )
    print(
        "Where the true difference is 0, the last three columns are false positives; elsewhere they are power.\n"
    )

    print("## The planner's minimum detectable effect\n")
    print(
        "Simulated: the difference that the sign-flip test finds in 80 % of the repeats. Planned: from one earlier comparison of "
        "3,000 prompts, and the median and the middle 90 % over 100 earlier comparisons of 30 prompts.\n"
    )
    planned_rows = []
    for kind in ("Overall", "one whole score 1 to 5"):
        random = numpy.random.default_rng(3)
        large, small = pilot(random, 3000, kind), [pilot(random, 30, kind) for _ in range(100)]
        for n in (30, 120):
            planned = stats.mde(large.value, n)
            real = simulated_mde(n, near=planned, kind=kind)
            each = [stats.mde(one.value, n) for one in small]
            low, middle, high = numpy.quantile(each, [0.05, 0.5, 0.95])
            off, spread = f"{planned / real - 1:+.0%}", f"{low:.2f} to {high:.2f}"
            planned_rows.append(
                (kind, n, f"{real:.3f}", f"{planned:.3f}", off, f"{middle:.3f}", spread)
            )
    header = ["scores", "prompts", "simulated", "planned from 3,000", "off"]
    table([*header, "planned from 30", "middle 90 %"], planned_rows)
    looks_section()


if __name__ == "__main__":
    main()
