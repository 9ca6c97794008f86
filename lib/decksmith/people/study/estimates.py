"""Which models people prefer, and by how much: shares and differences of each two, and strengths of
all on one scale.

Sentences that separate models are written by claims.verdict alone.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from decksmith.measure.results import claims, pairs, stats
from decksmith.measure.results.comparison import TestedPair
from decksmith.people.study import intervals, raters
from decksmith.people.study.intervals import RATERS, Estimate, figure, spread
from decksmith.people.study.records import SIDES, Vote, preferred

if TYPE_CHECKING:
    from decksmith.people.study.intervals import Array

# The sd of a log strength before any vote: keeps resamples finite, moves 30 votes by less than a
# hundredth.
PRIOR = 3.0
STEPS = 60  # of Newton's method, which needs about ten
OUTCOMES = {"left": 0, "right": 1}  # of a vote, in counts; whatever prefers neither deck is 2


# Strengths


class OddsPair(TypedDict):
    a: str  # a model
    b: str  # another
    log_odds: Estimate  # difference of their log strengths


class Strengths(TypedDict):
    groups: list[list[str]]  # models between which strengths are finite
    models: dict[str, Estimate]  # log strength of each model
    pairs: list[OddsPair]  # each two models of a group
    bias: Estimate | None  # advantage of the left side in log odds


class TestedDifference(Estimate):
    sd: float | None  # standard deviation over prompts
    p: float | None  # of a permutation test over prompts


class Settled(TypedDict):
    p_holm: float | None  # p corrected over all pairs
    family: int  # how many pairs these are
    verdict: str  # `beats`, `not separated` or `inconclusive`
    sentence: str  # what may be said of the two


class ComparedVotes(Settled):
    a: str  # a model, or a judge
    b: str  # another
    votes: int  # on the two, or that both judges say something of
    difference: TestedDifference  # share for a minus share for b


class Preference(ComparedVotes):
    for_a: int  # votes that prefer a's deck
    for_b: int  # votes that prefer b's deck
    tied: int  # about the same
    bad: int  # both bad
    share: Estimate  # of the votes for a; ties and both bad are a half


UNSETTLED: Settled = {"p_holm": None, "family": 0, "verdict": "", "sentence": ""}


def fit(
    counts: "Array", left: "Sequence[int] | Array", right: "Sequence[int] | Array", models: int
) -> "Array":
    """Davidson's model of paired comparison with ties (1970, JASA 65:317), with a common advantage
    of the left side (Davidson and Beaver 1977, Biometrics 33:693): P(left) : P(right) : P(tie) =
    exp(e/2) : exp(-e/2) : exp(t), e = s[left] - s[right] + bias.

    counts: shape (b, rows, 3), votes for left, for right, tied, of `rows` ordered pairs of models
    (`left`, `right`: their places) in b data sets. Returns (b, models + 2): log strengths with mean
    0, bias, t, at the mode under normal priors of sd PRIOR. The likelihood is concave in all of
    them; Newton's method finds its top.
    """
    import numpy
    from scipy.special import softmax

    # Of each row, by outcome, what the parameters weigh: e / 2, -e / 2 and t.
    design = numpy.zeros((len(left), 3, models + 2))
    rows = numpy.arange(len(left))
    design[rows, 0, left] += 0.5
    design[rows, 0, right] -= 0.5
    design[:, 0, models] = 0.5
    design[:, 1] = -design[:, 0]
    design[:, 2, models + 1] = 1
    prior = numpy.eye(models + 2) / PRIOR**2
    total = counts.sum(axis=2, keepdims=True)
    at = numpy.zeros((len(counts), models + 2))
    for _ in range(STEPS):
        chances = softmax(numpy.einsum("bk,rok->bro", at, design), axis=2)
        slope = numpy.einsum("bro,rok->bk", counts - total * chances, design) - at @ prior
        mean = numpy.einsum("bro,rok->brk", chances, design)
        # Minus the Hessian: the features' covariance under these chances, summed over the votes.
        curve = numpy.einsum("bro,rok,rol->bkl", total * chances, design, design, optimize=True)
        curve += prior - mean.swapaxes(1, 2) @ (total * mean)
        step = numpy.linalg.solve(curve, slope[..., None])[..., 0]
        longest = numpy.abs(step).max(axis=1, keepdims=True)
        step *= numpy.minimum(1, 2 / numpy.maximum(longest, 1e-12))
        at += step
        if longest.max() < 1e-9:
            break
    return at


def groups(votes: Iterable[Vote], models: Sequence[str]) -> list[list[str]]:
    """Sets of models between which strengths are finite: from each to each other leads a chain
    of votes that were not lost (Ford 1957, American Mathematical Monthly 64:28; a tie counts
    both ways). Outside of one set the votes give an order at most, or nothing."""
    import numpy
    from scipy.sparse.csgraph import connected_components

    place = {model: at for at, model in enumerate(models)}
    kept = numpy.zeros((len(models), len(models)))
    for vote in votes:
        a, b = place[vote["left"]], place[vote["right"]]
        kept[a, b] += vote["choice"] != "right"
        kept[b, a] += vote["choice"] != "left"
    _, label = connected_components(kept, directed=True, connection="strong")
    return [
        [model for model, at in zip(models, label, strict=True) if at == one]
        for one in sorted(set(label))
    ]


def strengths(votes: Sequence[Vote]) -> Strengths:
    """Log strengths of the models by `fit`, with intervals.

    votes: those that count. Both bad is no preference, and goes in as a tie. Models outside of
    each other's group have no finite difference: they get none.
    """
    models = sorted({vote[side] for vote in votes for side in SIDES})
    played = Counter(vote[side] for vote in votes for side in SIDES)
    met = Counter(tuple(sorted((vote["left"], vote["right"]))) for vote in votes)
    joined = groups(votes, models)
    largest = max(map(len, joined))
    found: Strengths = {"groups": joined, "models": {}, "pairs": [], "bias": None}
    for group in joined:
        if len(group) == 1:
            found["models"][group[0]] = {**intervals.UNKNOWN, "n": played[group[0]]}
            continue
        inside = [vote for vote in votes if {vote["left"], vote["right"]} <= set(group)]
        played_inside = Counter(vote[side] for vote in inside for side in SIDES)
        value, error, freedom = fitted(inside, group)
        size = len(group)
        for at, model in enumerate(group):
            strength = figure(value[at], error[at], freedom, played_inside[model])
            found["models"][model] = strength
        for at, (a, b) in enumerate(itertools.combinations(group, 2), size + 2):
            odds = figure(value[at], error[at], freedom, met[a, b])
            found["pairs"].append({"a": a, "b": b, "log_odds": odds})
        if size == largest:
            found["bias"] = figure(value[size], error[size], freedom, len(inside))
    return found


def fitted(votes: Sequence[Vote], models: Sequence[str]) -> "tuple[Array, Array, int]":
    """`spread` of the strengths, the bias, the tie's weight and all differences of strengths."""
    import numpy

    place = {model: at for at, model in enumerate(models)}
    sides = [(place[vote["left"]], place[vote["right"]]) for vote in votes]
    rows = sorted(set(sides))
    left, right = numpy.array(rows).T
    sums = numpy.zeros((len(votes), len(rows), 3))
    for at, vote in enumerate(votes):
        sums[at, rows.index(sides[at]), OUTCOMES.get(vote["choice"], 2)] = 1
    a, b = numpy.array(list(itertools.combinations(range(len(models)), 2))).T

    def statistic(weighted: "Array") -> "Array":
        found = fit(weighted.reshape(len(weighted), len(rows), 3), left, right, len(models))
        return numpy.concatenate([found, found[:, a] - found[:, b]], axis=1)

    return spread(statistic, sums.reshape(len(votes), -1), votes)


# Preferences


def preferences(votes: Iterable[Vote], alike: frozenset[str] = frozenset()) -> list[Preference]:
    """Every pair of models: counts, the share for each with half of what is tied or both bad, the
    net preference (share for a minus share for b) with its interval and test, and the sentence that
    it bears (claims.verdict) with what limits it. alike: raters who may be one (raters.alike)."""
    met: dict[tuple[str, str], list[Vote]] = defaultdict(list)
    for vote in votes:
        a, b = sorted((vote["left"], vote["right"]))
        met[a, b].append(vote)
    found = [_preference(a, b, votes) for (a, b), votes in sorted(met.items())]
    settle(found, {models: _of_one_network(some, alike) for models, some in met.items()})
    for pair in found:
        people = len({vote["rater"] for vote in met[pair["a"], pair["b"]]})
        if people < RATERS:
            they = f"these {people} people" if people > 1 else "one person"
            pair["sentence"] += f"; this speaks for {they} only"
    return found


def _of_one_network(votes: Sequence[Vote], alike: frozenset[str]) -> list[str]:
    """Why votes on two models may be fewer people's than they seem, a clause; nothing where few are."""
    share = sum(vote["rater"] in alike for vote in votes) / len(votes)
    said = f"{100 * share:.0f} % of the votes are by names of one network, which may be one person"
    return [said] if share > raters.SHARE else []


def settle(
    found: Sequence[ComparedVotes], doubts: Mapping[tuple[str, str], list[str]] | None = None
) -> None:
    """Correct the tests of pairs over all of them, and give each its verdict and sentence. doubts:
    by pair, clauses that keep it from separating."""
    limits = doubts or {}
    pairs.holm(found)
    for pair in found:
        pair["family"] = len(found)
        limited = {**pair, "doubts": limits.get((pair["a"], pair["b"]), [])}
        pair["verdict"], pair["sentence"] = claims.verdict(cast(TestedPair, limited))


def _preference(a: str, b: str, votes: Sequence[Vote]) -> Preference:
    """Counts, share and difference of two models, without what depends on other pairs."""
    signs = [{a: 1, b: -1}.get(preferred(vote) or "", 0) for vote in votes]
    choices = [vote["choice"] for vote in votes]
    spread = intervals.spread_of_mean(signs, votes)
    for_a, for_b = ([float(sign == one) for sign in signs] for one in (1, -1))
    return {
        "a": a,
        "b": b,
        "votes": len(votes),
        "for_a": signs.count(1),
        "for_b": signs.count(-1),
        "tied": choices.count("tie"),
        "bad": choices.count("bad"),
        "share": figure(*spread, len(votes), -1, 1, form=lambda x: (1 + x) / 2),
        "difference": tested(figure(*spread, 0, -1, 1), votes, for_a, for_b),
        **UNSETTLED,
    }


def tested(
    net: Estimate, votes: Sequence[Vote], first: Sequence[float], second: Sequence[float]
) -> TestedDifference:
    """A difference `net` of two shares with the number of prompts, its standard deviation over
    them, and the p of a sign-flip permutation test over them. first, second: what each vote adds
    to the one and the other."""
    import numpy

    codes = intervals.codes(vote["prompt"] for vote in votes)
    sides = numpy.zeros((codes.max() + 1, 2))
    numpy.add.at(sides, codes, numpy.stack([first, second], axis=1))
    # A prompt counts by its votes: the mean over prompts is then the share of all votes.
    sides *= len(sides) / len(votes)
    sd = (sides[:, 0] - sides[:, 1]).std(ddof=1) if len(sides) > 1 else 0.0
    p = stats.exchanged(sides[:, :1] - sides[:, 1:])[0]
    return {**net, "n": len(sides), "sd": stats.number(sd), "p": stats.number(p, 6)}
