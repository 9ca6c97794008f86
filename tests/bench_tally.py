"""Whether vote-tally holds what it prints, on simulated votes whose truth is known: prints a markdown page (docs/statistics-bench.md).

People vote by Davidson's model; each person and each prompt leans to a model of its own. The truth of an interval is what endlessly many
people would say of endlessly many prompts, which leanings of their own draw towards equal; it is found by one very large simulation.
"""

import os
import sys
from functools import lru_cache
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy  # noqa: E402
from scipy.special import softmax  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "lib"))

from decksmith.people.study import estimates, intervals, predicted  # noqa: E402

MODELS, STRENGTH, BIAS, TIE = ("a", "b", "c"), numpy.array([0.5, -0.5, 0.0]), 0.2, -0.5
REPEATS = 1000
DESIGNS = [
    (0.0, 0.0, 20, 30, 40),
    (0.6, 0.0, 20, 30, 40),
    (0.0, 0.6, 20, 30, 40),
    (0.6, 0.6, 20, 30, 40),
    (0.6, 0.6, 10, 15, 30),
    (0.6, 0.6, 40, 100, 60),
]


def chances(lead, tie):
    """P(left), P(right), P(tie) for an advantage `lead` of the left side and the log weight of a tie (numbers or arrays)."""
    return softmax([lead / 2, -lead / 2, tie + 0 * lead], axis=0)


def simulated(random, by_prompt, by_rater, raters, prompts, each, strength=STRENGTH):
    """Codes of votes: prompt, rater, left, right, outcome (0 left, 1 right, 2 tied); a rater sees a pair at most once."""
    n = len(strength)
    pairs = numpy.array(
        [(p, a, b) for p in range(prompts) for a in range(n) for b in range(a + 1, n)]
    )
    taste, leaning = (
        random.normal(0, by_rater, (raters, n)),
        random.normal(0, by_prompt, (prompts, n)),
    )
    flip = random.random(len(pairs)) < 0.5
    pairs[flip] = pairs[flip][:, [0, 2, 1]]
    order = numpy.argsort(random.random((raters, len(pairs))), axis=1)[:, :each]
    rater = numpy.repeat(numpy.arange(raters), order.shape[1])
    prompt, left, right = pairs[order.ravel()].T
    worth = strength + taste[rater] + leaning[prompt]
    at = numpy.arange(len(rater))
    for_left, for_right, _ = chances(worth[at, left] - worth[at, right] + BIAS, TIE)
    drawn = random.random(len(rater))
    outcome = numpy.where(drawn < for_left, 0, numpy.where(drawn < for_left + for_right, 1, 2))
    return prompt, rater, left, right, outcome


@lru_cache
def truth(by_prompt, by_rater, strength=tuple(STRENGTH)):
    """What the estimates tend to: differences a - b, a - c, b - c, the bias, and the net preference for a over b."""
    random = numpy.random.default_rng(99)
    prompt, rater, left, right, outcome = simulated(
        random, by_prompt, by_rater, 3000, 400, 200, numpy.array(strength)
    )
    rows = [(a, b) for a in range(len(strength)) for b in range(len(strength)) if a != b]
    counts = numpy.array(
        [
            [
                [((left == a) & (right == b) & (outcome == c)).sum() for c in range(3)]
                for a, b in rows
            ]
        ],
        dtype=float,
    )
    found = estimates.fit(counts, *numpy.array(rows).T, len(strength))[0]
    met = {0, 1}
    here = numpy.array([{a, b} == met for a, b in zip(left[:50_000], right[:50_000], strict=True)])
    winner = numpy.where(outcome == 0, left, numpy.where(outcome == 1, right, -1))[:50_000][here]
    return (
        *(found[a] - found[b] for a, b in ((0, 1), (0, 2), (1, 2))),
        found[3],
        (winner == 0).mean() - (winner == 1).mean(),
    )


def ballots(codes):
    """The codes as votes of a study."""
    return [
        {
            "pair": f"{p}-{min(a, b)}-{max(a, b)}",
            "kind": "vote",
            "of": None,
            "expect": None,
            "rater": f"r{r}",
            "prompt": f"p{p}",
            "left": MODELS[a],
            "right": MODELS[b],
            "choice": ("left", "right", "tie")[o],
            "seconds": 20.0,
            "seen": True,
        }
        for p, r, a, b, o in zip(*codes, strict=True)
    ]


def coverage(design, repeats):
    """Shares of intervals that hold the truth: of strengths' differences, of the bias; the same of prompts alone, of votes taken for
    independent; and the mean width of the first."""
    held, width, real = numpy.zeros(4), 0.0, truth(*design[:2])
    for seed in range(repeats):
        codes = simulated(numpy.random.default_rng([seed, 7]), *design)
        votes = ballots(codes)
        value, error, freedom = estimates.fitted(votes, list(MODELS))
        lo, hi = intervals.ends(value, error, freedom)
        held[0] += sum(lo[5 + k] <= real[k] <= hi[5 + k] for k in range(3)) / 3
        held[1] += lo[3] <= real[3] <= hi[3]
        width += (hi[5] - lo[5]) / repeats
        for at, labels in (
            (2, lambda one: one["prompt"]),
            (3, lambda one: (one["prompt"], one["rater"], one["pair"])),
        ):
            named = [{**vote, "prompt": labels(vote), "rater": "one"} for vote in votes]
            value, error, freedom = estimates.fitted(named, list(MODELS))
            lo, hi = intervals.ends(value, error, freedom)
            held[at] += sum(lo[5 + k] <= real[k] <= hi[5 + k] for k in range(3)) / 3
    return held / repeats, width


def claims(repeats, raters, lean=0.4):
    """Shares of studies of so many raters in which claims.verdict separates two equal models (should be at most 5 %), two that are 0.6
    apart (power), and in which a sentence says that it speaks for these people only."""
    found = []
    for strength in (numpy.zeros(2), numpy.array([0.3, -0.3])):
        said = limited = 0
        for seed in range(repeats):
            codes = simulated(
                numpy.random.default_rng([seed, 9]), lean, lean, raters, 30, 30, strength
            )
            (pair,) = estimates.preferences(ballots(codes))
            said += pair["verdict"] == "beats"
            limited += pair["sentence"].endswith(" people only")
        found.append(said / repeats)
    return *found, limited / repeats


def judged(random, prompts, voted, raters, follows, net):
    """Votes of three people on each of the first `voted` prompts, and a judge's gap on all prompts, correlated by `follows` with what
    people lean to; `net` is their advantage for a. Returns signs, votes, gaps."""
    leans = random.normal(0, 1, prompts)
    gaps = follows * leans + numpy.sqrt(1 - follows**2) * random.normal(0, 1, prompts)
    tastes = random.normal(0, 0.4, raters)
    votes, signs = [], []
    for prompt in range(voted):
        for rater in random.choice(raters, 3, replace=False):
            felt = 0.8 * leans[prompt] + tastes[rater] + net + random.logistic(0, 0.6)
            signs.append(int(felt > 0.3) - int(felt < -0.3))
            votes.append({"prompt": f"p{prompt}", "rater": f"r{rater}"})
    return signs, votes, {f"p{prompt}": float(gap) for prompt, gap in enumerate(gaps)}


def predictions(repeats, prompts, voted, raters, follows, net=0.2):
    """Of a study and a judge: shares of intervals of the votes alone, and with the judge, that hold the truth; the width of these over
    that of those; the mean error; and the median of votes saved for each vote."""
    random = numpy.random.default_rng(5)
    felt = random.normal(0, 0.8, 2_000_000) + random.normal(0, 0.4, 2_000_000) + net
    felt += random.logistic(0, 0.6, 2_000_000)
    real = (1 + (felt > 0.3).mean() - (felt < -0.3).mean()) / 2
    widths, held, off, saved = numpy.zeros(2), numpy.zeros(2), 0.0, []
    for seed in range(repeats):
        drawn = judged(numpy.random.default_rng([seed, 3]), prompts, voted, raters, follows, net)
        found = predicted.predict("a", "b", *drawn)
        for at, one in enumerate((found["alone"], found["joined"])):
            widths[at] += one["hi"] - one["lo"]
            held[at] += one["lo"] <= real <= one["hi"]
        off += (found["joined"]["mean"] - found["alone"]["mean"]) / repeats
        saved.append(found["saved"] / found["votes"])
    return *(held / repeats), widths[1] / widths[0], off, numpy.median(saved)


def main():
    intervals.RESAMPLES = 400  # of each repeat; what is printed to people has 2,000
    print("# What vote-tally holds\n")
    print(
        f"Written by `make bench-tally`: simulated votes with a known truth (tests/bench_tally.py), {REPEATS:,} seeded repeats in each row; a share "
        "of 95 % has a standard error of 0.7 points. Three models, 0.5 apart, ties, and an advantage of the left side of 0.2.\n"
    )
    print("## 95 % intervals of differences of log strengths that hold the truth\n")
    print(
        "| prompts lean (sd) | raters lean (sd) | raters | prompts | votes each | as printed | bias, as printed | prompts alone | votes as if independent | width |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for design in DESIGNS:
        repeats = REPEATS if design[2] < 40 else REPEATS // 5
        (ours, bias, prompts, votes), width = coverage(design, repeats)
        print(
            f"| {design[0]} | {design[1]} | {design[2]} | {design[3]} | {design[4]} | {ours:.1%} | {bias:.1%} | {prompts:.1%} | {votes:.1%} | {width:.2f} |",
            flush=True,
        )
    print("\n## Sentences\n")
    print(
        f"How often one of two models is said to beat the other, in {REPEATS // 2} studies of 30 prompts and 30 votes each; prompts and raters lean as "
        "said. Fewer than five raters do not show how people differ, so of other people the sentence is wrong too often: it says itself that it speaks "
        "for these people only.\n"
    )
    print(
        "| raters | leanings (sd) | equal models | 0.6 apart | sentences that say so |\n|---:|---:|---:|---:|---:|"
    )
    for raters, lean in ((20, 0.4), (8, 0.4), (5, 0.4), (4, 0.4), (4, 0.2), (3, 0.4)):
        equal, apart, limited = claims(REPEATS // 2, raters, lean)
        print(f"| {raters} | {lean} | {equal:.1%} | {apart:.1%} | {limited:.0%} |", flush=True)
    print("\n## Votes and a judge together\n")
    print(
        f"`run-compare --votes`, {REPEATS // 2} studies a row, three people on each voted prompt. Width: of the interval with the judge over that of the "
        "votes alone. Moved: the mean of what the judge adds to the share. Saved: votes for each vote, the median.\n"
    )
    print(
        "| prompts | voted | raters | judge follows people (correlation) | votes alone | with the judge | width | moved | saved |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for prompts, voted, raters in (
        (40, 10, 5),
        (40, 20, 8),
        (100, 30, 10),
        (300, 40, 12),
        (1000, 40, 12),
    ):
        for follows in (0.0, 0.5, 0.9):
            alone, joined, width, off, saved = predictions(
                REPEATS // 2, prompts, voted, raters, follows
            )
            print(
                f"| {prompts} | {voted} | {raters} | {follows} | {alone:.1%} | {joined:.1%} | {width:.2f} | {off:+.3f} | {saved:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
