"""What people's votes say: strengths of the models, how far people agree with each other, and how far the judge agrees with them.

A vote is a dict as `blindtest.Study.votes()` yields it: {"pair", "kind", "of", "expect", "rater", "prompt", "left", "right" (models),
"choice" (left, right, tie, bad), "dimensions", "seconds", ..}. Sentences that separate models are written by claims.verdict alone.

Both prompts and raters are samples, and a vote belongs to one of each, so a figure's variance is that of clusters by prompt plus that of
clusters by rater minus that of their cells, which both hold (Cameron, Gelbach and Miller 2011, Journal of Business and Economic Statistics
29:238). Each of the three is a Bayesian bootstrap (Rubin 1981, The Annals of Statistics 9:130): clusters get random weights and none is ever
lost, so a resample never has a model without a win where the data has one. Ends are Student's t with the freedom of the fewer clusters.
"""

import itertools
import json
from collections import Counter, defaultdict

from decksmith.core import cli, stream
from decksmith.core.records import prompt_of, sample_of
from decksmith.results import claims, plots, stats
from decksmith.results.runs import COLORS, TITLES, interval, markdown_table
from decksmith.study import crowds, outside

RESAMPLES = 2000
RATERS = 5  # with fewer, how raters differ cannot be estimated: prompts alone are resampled, and the tally says so
PRIOR = 3.0  # sd of a log strength before any vote: keeps resamples finite, moves 30 votes by less than a hundredth
# A rater is left out for these and nothing else; the numbers stood here before anybody voted.
RULE = {"gold": {"least": 3, "failed": 1 / 3}, "repeats": {"least": 5}, "seconds": 2.0}
CHOICES = ("left", "right", "tie", "bad")


# Resampling


def spread(statistic, sums, prompts, raters):
    """A statistic's value, its standard error and degrees of freedom: arrays of shape (figures,).

    sums: shape (votes, m), what each vote adds to the m sums that the statistic is made of. statistic: maps weighted sums of shape (b, m)
    to (b, figures). prompts, raters: each vote's prompt and rater; raters None: prompts alone are resampled.
    """
    import numpy

    value = statistic(sums.sum(axis=0)[None])[0]
    blank = numpy.full(value.shape, numpy.nan)
    groups = len(set(prompts))
    if groups < 2:
        return value, blank, 0
    by_prompt = _variance(statistic, sums, prompts, 1)
    people = len(set(raters)) if raters is not None else 0
    if people < RATERS:
        return value, numpy.sqrt(by_prompt), groups - 1
    by_rater = _variance(statistic, sums, raters, 2)
    by_cell = _variance(statistic, sums, list(zip(prompts, raters, strict=True)), 3)
    found = numpy.maximum(by_prompt + by_rater - by_cell, numpy.maximum(by_prompt, by_rater))
    return value, numpy.sqrt(found), min(groups, people) - 1


def _variance(statistic, sums, clusters, salt):
    import numpy

    codes = _codes(clusters)
    groups = codes.max() + 1
    table = numpy.zeros((groups, sums.shape[1]))
    numpy.add.at(table, codes, sums)
    random, found = numpy.random.default_rng([stats.SEED, salt]), []
    block = max(1, min(RESAMPLES, 4_000_000 // groups))
    for start in range(0, RESAMPLES, block):
        weights = random.standard_exponential((min(block, RESAMPLES - start), groups))
        found.append(statistic(weights / weights.mean(axis=1, keepdims=True) @ table))
    # Dirichlet weights spread a mean by s2 (G - 1) / (G (G + 1)); clusters drawn anew spread it by s2 / G.
    return numpy.concatenate(found).var(axis=0) * (groups + 1) / (groups - 1)


def _codes(labels):
    import numpy

    place = {}
    return numpy.array([place.setdefault(label, len(place)) for label in labels])


def ends(value, error, freedom, level=stats.LEVEL):
    """The two ends of the interval, NaN where there is no error."""
    from scipy.special import stdtrit

    reach = stdtrit(freedom, (1 + level) / 2) * error if freedom else error
    return value - reach, value + reach


def figure(value, error, freedom, n, low=None, high=None, form=lambda x: x):
    """`{"mean", "lo", "hi", "n"}` as in stats.mean; the ends are cut at what is possible, from `low` to `high`.

    Where all clusters are at one of these, resampling sees no doubt: the other end is then that of Clopper and Pearson (1934, Biometrika
    26:404) for as many clusters, all alike."""
    lo, hi = ends(value, error, freedom)
    if error < 1e-12 and freedom and value in (low, high):
        reach = (high - low) * (1 - ((1 - stats.LEVEL) / 2) ** (1 / (freedom + 1)))
        lo, hi = value - reach, value + reach
    cut = lambda x: (
        x if x != x else min(max(x, x if low is None else low), x if high is None else high)
    )  # noqa: E731
    return {
        "mean": stats.number(form(value)),
        "lo": stats.number(form(cut(lo))),
        "hi": stats.number(form(cut(hi))),
        "n": int(n),
    }


def share(values, weights, prompts, raters):
    """The weighted mean of `values` from 0 to 1 with its interval, clustered: `{"mean", "lo", "hi", "n"}`."""
    import numpy

    values, weights = numpy.asarray(values, dtype=float), numpy.asarray(weights, dtype=float)
    if not len(values) or not weights.sum():
        return {"mean": None, "lo": None, "hi": None, "n": 0}
    value, error, freedom = spread(
        lambda s: s[:, :1] / s[:, 1:],
        numpy.stack([values * weights, weights], axis=1),
        prompts,
        raters,
    )
    return figure(value[0], error[0], freedom, len(values), 0, 1)


# Strengths


def fit(counts, left, right, models):
    """Davidson's model of paired comparison with ties (1970, JASA 65:317), with a common advantage of the left side (Davidson and Beaver
    1977, Biometrics 33:693): P(left) : P(right) : P(tie) = exp(e/2) : exp(-e/2) : exp(t), e = s[left] - s[right] + bias.

    counts: shape (b, rows, 3), votes for left, for right, tied, of `rows` ordered pairs of models (`left`, `right`: their places) in b
    data sets. Returns (b, models + 2): log strengths with mean 0, bias, t, at the mode under normal priors of sd PRIOR. The likelihood is
    concave in all of them; Newton's method finds its top.
    """
    import numpy

    rows, sizes = len(left), models + 2
    design = numpy.zeros((rows, sizes))
    design[numpy.arange(rows), left] += 1
    design[numpy.arange(rows), right] -= 1
    design[:, models] = 1
    tie = numpy.zeros(sizes)
    tie[-1] = 1
    total, prior = counts.sum(axis=2), numpy.eye(sizes) / PRIOR**2
    at = numpy.zeros((len(counts), sizes))
    for _ in range(60):
        slope, curve = _slope(at, design, counts, total, tie)
        step = numpy.linalg.solve(curve + prior, (slope - at @ prior)[..., None])[..., 0]
        step *= numpy.minimum(
            1, 2 / numpy.maximum(numpy.abs(step).max(axis=1, keepdims=True), 1e-12)
        )
        at += step
        if numpy.abs(step).max() < 1e-9:
            break
    return at


def chances(eta, tie):
    """P(left), P(right), P(tie) for the advantage `eta` of the left side and the log weight `tie` of a tie."""
    import numpy

    top = numpy.maximum(numpy.abs(eta) / 2, tie)
    parts = [numpy.exp(eta / 2 - top), numpy.exp(-eta / 2 - top), numpy.exp(tie - top)]
    return [part / sum(parts) for part in parts]


def _slope(at, design, counts, total, tie):
    """Gradient and minus the Hessian of the log likelihood, shapes (b, k) and (b, k, k)."""
    import numpy

    for_left, for_right, tied = chances(at @ design.T, at[:, -1:])
    lead = for_left - for_right
    slope = ((counts[..., 0] - counts[..., 1] - total * lead) / 2) @ design
    slope[:, -1] += (counts[..., 2] - total * tied).sum(axis=1)
    curve = numpy.einsum(
        "br,ri,rj->bij", total * (for_left + for_right - lead**2) / 4, design, design, optimize=True
    )
    cross = (-total * lead * tied / 2) @ design
    curve += cross[:, :, None] * tie + cross[:, None, :] * tie[:, None]
    curve[:, -1, -1] += (total * tied * (1 - tied)).sum(axis=1)
    return slope, curve


def groups(votes, models):
    """Sets of models between which strengths are finite: from each to each other leads a chain of votes that were not lost (Ford 1957,
    American Mathematical Monthly 64:28; a tie counts both ways). Outside of one set the votes give an order at most, or nothing."""
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


def strengths(votes):
    """Log strengths of the models by `fit`, with intervals: {"groups", "models": {model: figure}, "pairs": [{"a", "b", "log_odds",
    "chance"}], "bias": figure, "tie": .., "width": the widest interval of a pair's log odds}.

    votes: those that count. "chance" is that of a's deck being preferred where one is. Both bad is no preference, and goes in as a tie.
    Models outside of each other's group have no finite difference: they get none.
    """
    import numpy

    models = sorted({vote[side] for vote in votes for side in ("left", "right")})
    found = {
        "groups": groups(votes, models),
        "models": {},
        "pairs": [],
        "bias": None,
        "tie": None,
        "width": None,
    }
    for group in found["groups"]:
        inside = [vote for vote in votes if {vote["left"], vote["right"]} <= set(group)]
        if len(group) < 2:
            found["models"][group[0]] = {
                "mean": None,
                "lo": None,
                "hi": None,
                "n": sum(group[0] in (v["left"], v["right"]) for v in votes),
            }
            continue
        value, error, freedom = _fitted(inside, group)
        size, pairs = len(group), list(itertools.combinations(range(len(group)), 2))
        played = Counter(model for vote in inside for model in (vote["left"], vote["right"]))
        met = Counter(frozenset((vote["left"], vote["right"])) for vote in inside)
        for at, model in enumerate(group):
            found["models"][model] = figure(value[at], error[at], freedom, played[model])
        for (a, b), odds, doubt in zip(pairs, value[size + 2 :], error[size + 2 :], strict=True):
            n = met[frozenset((group[a], group[b]))]
            found["pairs"].append(
                {
                    "a": group[a],
                    "b": group[b],
                    "log_odds": figure(odds, doubt, freedom, n),
                    "chance": figure(
                        odds, doubt, freedom, n, form=lambda x: 1 / (1 + numpy.exp(-x))
                    ),
                }
            )
        if len(group) == max(map(len, found["groups"])):
            found["bias"] = figure(value[size], error[size], freedom, len(inside))
            found["tie"] = (
                stats.number(value[size + 1])
                if any(v["choice"] in ("tie", "bad") for v in inside)
                else None
            )
    widths = [
        pair["log_odds"]["hi"] - pair["log_odds"]["lo"]
        for pair in found["pairs"]
        if pair["log_odds"]["lo"] is not None
    ]
    found["width"] = stats.number(max(widths)) if widths and len(found["groups"]) == 1 else None
    return found


def _fitted(votes, models):
    """`spread` of the strengths, the bias, the tie's weight and every difference of two strengths."""
    import numpy

    place = {model: at for at, model in enumerate(models)}
    rows = sorted({(place[vote["left"]], place[vote["right"]]) for vote in votes})
    row = {pair: at for at, pair in enumerate(rows)}
    left, right = numpy.array(rows).T
    sums = numpy.zeros((len(votes), 3 * len(rows)))
    for at, vote in enumerate(votes):
        outcome = {"left": 0, "right": 1}.get(vote["choice"], 2)
        sums[at, 3 * row[place[vote["left"]], place[vote["right"]]] + outcome] = 1
    pairs = numpy.array(list(itertools.combinations(range(len(models)), 2)))

    def statistic(weighted):
        found = fit(weighted.reshape(len(weighted), len(rows), 3), left, right, len(models))
        return numpy.concatenate([found, found[:, pairs[:, 0]] - found[:, pairs[:, 1]]], axis=1)

    return spread(
        statistic, sums, [vote["prompt"] for vote in votes], [vote["rater"] for vote in votes]
    )


# Raters


def raters(votes):
    """What each rater did, in order of name: votes, gold items and swapped repeats with what went wrong, share of left among the untied,
    median seconds, and `excluded`: why RULE leaves this rater out, or None."""
    import statistics

    of = defaultdict(list)
    for vote in votes:
        of[vote["rater"]].append(vote)
    found = []
    for name in sorted(of):
        mine = of[name]
        first = {vote["pair"]: vote for vote in mine if vote["kind"] == "vote"}
        gold = [vote for vote in mine if vote["kind"] == "gold"]
        failed = sum(vote["choice"] != vote["expect"] for vote in gold)
        turned = [
            (preferred(first[vote["of"]]), preferred(vote))
            for vote in mine
            if vote["kind"] == "repeat" and vote.get("of") in first
        ]
        against = sum(a is not None and b is not None and a != b for a, b in turned)
        decided = sum(a is not None and b is not None for a, b in turned)
        sided = [
            vote["choice"]
            for vote in mine
            if vote["kind"] == "vote" and vote["choice"] in ("left", "right")
        ]
        seconds = [vote["seconds"] for vote in mine if isinstance(vote.get("seconds"), int | float)]
        pace = statistics.median(seconds) if seconds else None
        why = []
        if len(gold) >= RULE["gold"]["least"] and failed > RULE["gold"]["failed"] * len(gold):
            why.append(f"failed {failed} of {len(gold)} gold items")
        if against == decided >= RULE["repeats"]["least"]:
            why.append(f"chose the other deck in all of {decided} swapped repeats")
        if pace is not None and pace < RULE["seconds"]:
            why.append(f"median of {pace:.1f} s a vote")
        found.append(
            {
                "rater": name,
                "votes": len(first),
                "gold": {"n": len(gold), "failed": failed},
                "repeats": {
                    "n": len(turned),
                    "same": sum(a == b for a, b in turned),
                    "against": against,
                },
                "left": round(sided.count("left") / len(sided), 4) if sided else None,
                "tied": sum(v["choice"] == "tie" for v in first.values()),
                "bad": sum(v["choice"] == "bad" for v in first.values()),
                "seconds": stats.number(pace, 1) if pace is not None else None,
                "excluded": " and ".join(why) or None,
            }
        )
    return found


def preferred(vote):
    """The model whose deck a vote prefers, or None."""
    return vote[vote["choice"]] if vote["choice"] in ("left", "right") else None


def _turned(vote, left):
    """The choice of a vote as it is where the deck of `left` stands left."""
    return (
        vote["choice"]
        if vote["left"] == left
        else {"left": "right", "right": "left"}.get(vote["choice"], vote["choice"])
    )


def agreement(votes):
    """How far people agree with each other, over pairs that several saw: Krippendorff's alpha (prompts resampled), and how often another
    person, or the majority of the others, prefers the deck that a person prefers (a tie counts a half). `at_most`: the most that any judge
    can reach on these pairs, as far as people's agreement tells (see `most`)."""
    import krippendorff
    import numpy

    of = defaultdict(list)
    for vote in votes:
        of[vote["pair"]].append(vote)
    shared = [pair for pair in of.values() if len(pair) > 1]
    found = {
        "pairs": len(shared),
        "raters": len({vote["rater"] for pair in shared for vote in pair}),
    }
    for level, kinds in (
        ("ordinal", {"right": 0, "tie": 1, "bad": 1, "left": 2}),
        ("nominal", dict(zip(CHOICES, range(4), strict=True))),
    ):
        size = 1 + max(kinds.values())
        counts = numpy.array(
            [
                numpy.bincount(
                    [kinds[_turned(vote, pair[0]["left"])] for vote in pair], minlength=size
                )
                for pair in shared
            ]
        )
        counts = counts.reshape(-1, size)
        prompts = (
            _codes([pair[0]["prompt"] for pair in shared]) if shared else numpy.array([], dtype=int)
        )

        def alpha(rows, counts=counts, level=level):
            if (counts[rows].sum(axis=0) > 0).sum() < 2:
                return (
                    numpy.nan
                )  # everybody always said the same: there is nothing to measure agreement by
            return krippendorff.alpha(
                value_counts=counts[rows],
                value_domain=list(range(counts.shape[1])),
                level_of_measurement=level,
            )

        clusters = int(prompts.max()) + 1 if len(prompts) else 0
        value, error = alpha(numpy.arange(len(counts))) if shared else numpy.nan, numpy.nan
        if clusters > 1:
            members, random = (
                [numpy.flatnonzero(prompts == one) for one in range(clusters)],
                numpy.random.default_rng(stats.SEED),
            )
            drawn = [
                alpha(
                    numpy.concatenate(
                        [members[one] for one in random.integers(0, clusters, clusters)]
                    )
                )
                for _ in range(1000)
            ]
            error = (
                numpy.nanstd(drawn) * (clusters / (clusters - 1)) ** 0.5
                if not numpy.isnan(drawn).all()
                else numpy.nan
            )
        found[f"alpha_{level}"] = figure(value, error, max(clusters - 1, 0), len(shared), -1, 1)
    another, majority = [], []
    for pair in shared:
        signs = [{"left": 1, "right": -1}.get(_turned(vote, pair[0]["left"]), 0) for vote in pair]
        for vote, sign in zip(pair, signs, strict=True):
            if sign:
                others = sum(signs) - sign
                another.append((vote, (1 + sign * others / (len(pair) - 1)) / 2))
                if len(pair) > 2:
                    majority.append((vote, (1 + sign * ((others > 0) - (others < 0))) / 2))
    person, untied = _credit(another), len(another) / sum(map(len, shared)) if shared else 0
    at_most = {
        **person,
        **{
            end: stats.number(most(value, untied))
            for end in ("mean", "lo", "hi")
            if (value := person[end]) is not None
        },
    }
    return {**found, "another": person, "majority": _credit(majority), "at_most": at_most}


def most(another, untied):
    """The most votes that a judge can follow where another person follows the share `another` of them, and `untied` of all have a side.

    A judge who knows what most people prefer says one thing where people say several. If a person's vote on pair i is d_i for one side on
    average, another person follows (1 + mean d_i^2 / untied) / 2 and that judge (1 + mean |d_i| / untied) / 2, and mean |d_i| is between
    the mean and the root of the mean of d_i^2 (Jensen): so he is at `another` or above it, and at this value or below it."""
    return (1 + min(1, (max(0, 2 * another - 1) / untied) ** 0.5)) / 2


def _credit(pairs):
    """The mean of `[(vote, credit from 0 to 1)]` with its interval."""
    return share(
        [credit for _, credit in pairs],
        [1] * len(pairs),
        [vote["prompt"] for vote, _ in pairs],
        [vote["rater"] for vote, _ in pairs],
    )


# The judge beside people


def judged(votes, decks):
    """How often each of the judge's numbers is higher for the deck that a person prefers (equal numbers count a half), over the untied
    votes: `{measure: {"choice": figure, "own": figure, "equal": share of equal numbers, "shared": figure}}`.

    decks: {pair: {model: measures of its deck}}. "choice": the vote itself. "own": what people said of the dimension of
    that name, where they did. "shared": "choice" over those votes that agreement() is made of.
    """
    seen = Counter(vote["pair"] for vote in votes)
    measures = list(
        dict.fromkeys(name for pair in decks.values() for deck in pair.values() for name in deck)
    )
    found = {}
    for name in measures:
        gaps = [
            (vote, left[name] - right[name])
            for vote in votes
            if (left := decks.get(vote["pair"], {}).get(vote["left"]))
            and (right := decks[vote["pair"]].get(vote["right"]))
            and left.get(name) is not None
            and right.get(name) is not None
        ]
        if not gaps:
            continue
        choice = [
            (vote, credit)
            for vote, gap in gaps
            if (credit := _sides(vote["choice"], gap)) is not None
        ]
        own = [
            (vote, credit)
            for vote, gap in gaps
            if (credit := _sides((vote.get("dimensions") or {}).get(name), gap)) is not None
        ]
        found[name] = {
            "choice": _credit(choice),
            "own": _credit(own),
            "equal": round(sum(c == 0.5 for _, c in choice) / len(choice), 4) if choice else None,
            "shared": _credit(
                [(vote, credit) for vote, credit in choice if seen[vote["pair"]] > 1]
            ),
        }
    return found


def _sides(choice, gap):
    """1 where the number's difference, left minus right, has the side of the choice, a half where it is 0; None without a choice."""
    sign = {"left": 1, "right": -1}.get(choice)
    return None if sign is None else (1 + sign * ((gap > 1e-9) - (gap < -1e-9))) / 2


def weights(votes, decks, current):
    """Weights of the judge's dimensions that would follow the untied votes most closely, beside the `current` ones.

    A logistic regression of the side preferred on the differences of the dimensions and a constant (the bias to a side), coefficients at
    least 0; the weights are the coefficients over their sum. The intervals are percentiles over prompts and raters drawn anew together
    (Owen 2007, The Annals of Applied Statistics 1:386: rather too wide). `accuracy` is the share of votes whose side the weighted mean has
    (equal: a half): of the votes that the weights were fitted to, of votes on prompts that were held out of ten fits, and with the current
    weights; `gain` is held out minus current. A dimension in which no two decks differ has no weight to suggest. None where fewer than 50
    votes or 6 prompts can be used.
    """
    import numpy

    known = [
        name
        for name in current
        if any(name in deck for pair in decks.values() for deck in pair.values())
    ]

    def sides(vote):
        return [decks.get(vote["pair"], {}).get(vote[side], {}) for side in ("left", "right")]

    used = [
        vote
        for vote in votes
        if vote["choice"] in ("left", "right")
        and all(deck.get(name) is not None for deck in sides(vote) for name in known)
    ]
    names = [
        name for name in known if any(left[name] != right[name] for left, right in map(sides, used))
    ]
    prompts, people = [vote["prompt"] for vote in used], [vote["rater"] for vote in used]
    if len(names) < 2 or len(used) < 50 or len(set(prompts)) < stats.FEWEST:
        return None
    gap = numpy.array(
        [[left[name] - right[name] for name in names] for left, right in map(sides, used)]
    )
    sign = numpy.array([1.0 if vote["choice"] == "left" else -1.0 for vote in used])
    whole = _regression(gap, sign, numpy.ones(len(used)))
    if whole[:-1].sum() < 1e-6:
        return None  # no dimension goes with what people prefer
    by_prompt, by_rater = _codes(prompts), _codes(people)
    random, drawn = numpy.random.default_rng(stats.SEED), []
    for _ in range(300):
        weight = random.standard_exponential(by_prompt.max() + 1)[by_prompt]
        if by_rater.max() + 1 >= RATERS:
            weight = weight * random.standard_exponential(by_rater.max() + 1)[by_rater]
        found = _regression(gap, sign, weight / weight.mean(), whole)[:-1]
        drawn.append(
            found / found.sum() if found.sum() > 1e-6 else numpy.full(len(names), numpy.nan)
        )
    lo, hi = numpy.nanquantile(drawn, [0.025, 0.975], axis=0)
    fold = random.permutation(by_prompt.max() + 1)[by_prompt] % 10
    out = numpy.zeros(len(used))
    for one in sorted(set(fold)):
        rest = fold != one
        out[~rest] = gap[~rest] @ _regression(gap[rest], sign[rest], numpy.ones(rest.sum()))[:-1]

    def credit(value):
        return (1 + sign * numpy.where(numpy.abs(value) < 1e-9, 0, numpy.sign(value))) / 2

    old = credit(gap @ numpy.array([current[name] for name in names]))
    value, error, freedom = spread(
        lambda s: s[:, :1] / s[:, 1:],
        numpy.stack([credit(out) - old, numpy.ones(len(used))], axis=1),
        prompts,
        people,
    )
    ones, total = numpy.ones(len(used)), sum(current[name] for name in known) or 1
    silent = {
        name: {
            "current": round(current[name] / total, 4),
            "suggested": None,
            "lo": None,
            "hi": None,
        }
        for name in known
        if name not in names
    }
    gain = figure(value[0], error[0], freedom, len(used), -1, 1)
    return {
        "dimensions": {
            name: {
                "current": round(current[name] / total, 4),
                "suggested": stats.number(whole[at] / whole[:-1].sum()),
                "lo": stats.number(lo[at]),
                "hi": stats.number(hi[at]),
            }
            for at, name in enumerate(names)
        }
        | silent,
        "votes": len(used),
        "prompts": len(set(prompts)),
        "raters": len(set(people)),
        "accuracy": {
            name: share(values, ones, prompts, people)
            for name, values in (
                ("fitted", credit(gap @ whole[:-1])),
                ("held_out", credit(out)),
                ("current", old),
            )
        },
        "gain": gain,
        "advice": "adopt" if gain["lo"] is not None and gain["lo"] > 0 else "keep",
    }


def _regression(gap, sign, weight, start=None):
    """Coefficients >= 0 and a constant that make `sign` most likely: P(left) = 1 / (1 + exp(-(gap @ c + constant)))."""
    import numpy
    from scipy.optimize import minimize

    rows = numpy.hstack([gap, numpy.ones((len(gap), 1))])

    def loss(at):
        margin = sign * (rows @ at)
        pull = -weight * sign / (1 + numpy.exp(numpy.clip(margin, -500, 500)))
        return (
            weight * numpy.logaddexp(0, -margin)
        ).sum() + at @ at / 2 / PRIOR**4, pull @ rows + at / PRIOR**4

    ends = [(0, None)] * gap.shape[1] + [(None, None)]
    return minimize(
        loss,
        numpy.zeros(rows.shape[1]) if start is None else start,
        jac=True,
        method="L-BFGS-B",
        bounds=ends,
    ).x


# Which pairs next, and when to stop


def choose(votes, candidates, n):
    """The places in `candidates` of the `n` that the votes so far call for most, in order.

    candidates: [{"prompt", "left", "right"}] of pairs that could be shown. Each step takes the pair of models whose next vote is expected
    to shrink the variances of all differences of strengths most (by expected information, as Glickman and Jensen 2005, Journal of Statistical
    Planning and Inference 127:279), on the prompt that has the fewest votes. What was seen of the votes decides
    only which pairs are asked about, so a likelihood of the votes stays what it was; and a rater sees pair ids and nothing of it.
    """
    import numpy

    models = sorted({row[side] for row in [*votes, *candidates] for side in ("left", "right")})
    place, size = {model: at for at, model in enumerate(models)}, len(models)
    played, weight = Counter(), Counter(vote["prompt"] for vote in votes)
    for vote in votes:
        played[
            place[vote["left"]],
            place[vote["right"]],
            {"left": 0, "right": 1}.get(vote["choice"], 2),
        ] += 1
    rows = sorted({(a, b) for a, b, _ in played}) or [(0, 1)]
    left, right = numpy.array(rows).T
    counts = numpy.array([[[played[a, b, c] for c in range(3)] for a, b in rows]], dtype=float)
    at = fit(counts, left, right, size)
    design = numpy.zeros((len(rows), size + 2))
    (
        design[numpy.arange(len(rows)), left],
        design[numpy.arange(len(rows)), right],
        design[:, size],
    ) = 1, -1, 1
    tie = numpy.eye(size + 2)[-1]
    cover = numpy.linalg.inv(
        _slope(at, design, counts, counts.sum(axis=2), tie)[1][0] + numpy.eye(size + 2) / PRIOR**2
    )
    pairs = numpy.zeros((size * (size - 1) // 2, size + 2))
    for row, (a, b) in zip(pairs, itertools.combinations(range(size), 2), strict=True):
        row[[a, b]] = 1, -1
    waiting = defaultdict(list)
    for index, row in enumerate(candidates):
        waiting[place[row["left"]], place[row["right"]]].append(index)
    chosen = []
    while len(chosen) < n and waiting:
        best = None
        for a, b in waiting:
            x = numpy.zeros(size + 2)
            x[[a, b, size]] = 1, -1, 1
            for_left, for_right, _ = chances(at[0] @ x, at[0, -1])
            told = (for_left + for_right - (for_left - for_right) ** 2) / 4
            gain = told * ((pairs @ cover @ x) ** 2).sum() / (1 + told * x @ cover @ x)
            if best is None or gain > best[0] + 1e-12:
                best = gain, (a, b), x, told
        _, key, x, told = best
        cover = cover - told * numpy.outer(cover @ x, cover @ x) / (1 + told * x @ cover @ x)
        index = min(waiting[key], key=lambda one: (weight[candidates[one]["prompt"]], one))
        waiting[key].remove(index)
        if not waiting[key]:
            del waiting[key]
        weight[candidates[index]["prompt"]] += 1
        chosen.append(index)
    return chosen


def precision(votes, wanted=None, **how):
    """How precise the strengths are, and nothing of what they are: {"votes", "raters", "prompts", "width", "wanted", "enough", "about"}.

    width: of the widest 95 % interval of a difference of log strengths; None while the votes do not join all models. enough: it is at
    most `wanted`, over FEWEST prompts and RATERS raters or more. about: how many votes of this kind that would take. A rule that looks at
    the width alone may be asked as often as one likes: it stops no sooner for a finding than for none (Chow and Robbins 1965, The Annals of
    Mathematical Statistics 36:457). A rule that looks at who leads may not. how: as tally takes it.
    """
    return _precision(_selected(votes, **how)["kept"], wanted)


def _precision(kept, wanted):
    strong = strengths(kept) if kept else {"width": None}
    prompts, people = len({vote["prompt"] for vote in kept}), len({vote["rater"] for vote in kept})
    width = strong["width"]
    return {
        "votes": len(kept),
        "raters": people,
        "prompts": prompts,
        "width": width,
        "wanted": wanted,
        "enough": None
        if wanted is None
        else width is not None and width <= wanted and prompts >= stats.FEWEST and people >= RATERS,
        "about": round(len(kept) * max(1, (width / wanted) ** 2)) if wanted and width else None,
    }


def adaptive(study, rater, candidates, n):
    """`choose` as the hook of blindtest.Study: all but 1 in `raters_per_pair` of the pairs are such as others voted on too."""
    votes, pairs, each = list(study.votes()), study.pairs, study.about["raters_per_pair"]
    kept, seen = counted(votes)[0], Counter(vote["pair"] for vote in votes)

    def rows(some):
        return [
            {
                "prompt": pairs[one]["prompt"],
                **{side: pairs[one][side]["model"] for side in ("left", "right")},
            }
            for one in some
        ]

    begun = [pair for pair in candidates if 0 < seen[pair] < each]
    first = [begun[at] for at in choose(kept, rows(begun), round(n * (each - 1) / each))]
    rest = [pair for pair in candidates if pair not in set(first) and seen[pair] < each]
    more = [rest[at] for at in choose(kept, rows(rest), n - len(first))]
    full = [pair for pair in candidates if pair not in {*first, *more}]
    return [*first, *more, *full][:n]


# The whole


def counted(votes, crowd=frozenset()):
    """`(votes that count, raters as raters() has them)`: neither gold nor repeats, all slides seen, raters that RULE does not leave out
    and that are not of the `crowd`."""
    votes = list(votes)
    people = raters(votes)
    for rater in people:
        if rater["rater"] in crowd:
            rater["excluded"] = " and ".join(filter(None, [rater["excluded"], "of a crowd"]))
    out = {rater["rater"] for rater in people if rater["excluded"]}
    return [
        vote
        for vote in votes
        if vote["kind"] == "vote" and vote.get("seen", True) and vote["rater"] not in out
    ], people


def preferences(votes, crowd=frozenset()):
    """Every pair of models: counts, the share for each with half of what is tied or both bad, the net preference (share for a minus share
    for b) with its interval and test, and the sentence that it bears (claims.verdict) with what limits it.

    crowd: raters of whom nobody knows how many people they are. Where they cast much of a pair's votes, the sentence says so and what
    the others say, and one that the others do not bear out separates nothing."""
    import numpy

    met = defaultdict(list)
    for vote in votes:
        met[tuple(sorted((vote["left"], vote["right"])))].append(vote)
    found = []
    for (a, b), mine in sorted(met.items()):
        signs = [
            0 if vote["choice"] in ("tie", "bad") else 1 if vote[vote["choice"]] == a else -1
            for vote in mine
        ]
        prompts, people = [vote["prompt"] for vote in mine], [vote["rater"] for vote in mine]
        codes = _codes(prompts)
        sides = numpy.zeros((codes.max() + 1, 2))
        for code, sign in zip(codes, signs, strict=True):
            if sign:
                sides[code, 0 if sign > 0 else 1] += 1
        # A prompt counts by its votes: the mean over prompts is then the share of all votes.
        sides *= len(sides) / len(mine)
        sd = (sides[:, 0] - sides[:, 1]).std(ddof=1) if len(sides) > 1 else 0.0
        p = stats.exchanged(sides[:, :1], sides[:, 1:])[0]
        value, error, freedom = spread(
            lambda s: s[:, :1] / s[:, 1:],
            numpy.array([[sign, 1.0] for sign in signs]),
            prompts,
            people,
        )
        net = figure(value[0], error[0], freedom, len(sides), -1, 1)
        found.append(
            {
                "a": a,
                "b": b,
                "votes": len(mine),
                "for_a": signs.count(1),
                "for_b": signs.count(-1),
                "tied": sum(vote["choice"] == "tie" for vote in mine),
                "bad": sum(vote["choice"] == "bad" for vote in mine),
                "share": figure(
                    value[0], error[0], freedom, len(mine), -1, 1, form=lambda x: (1 + x) / 2
                ),
                "difference": {**net, "sd": stats.number(sd), "p": stats.number(p, 6)},
            }
        )
    adjusted = stats.holm(
        [
            numpy.nan if pair["difference"]["p"] is None else pair["difference"]["p"]
            for pair in found
        ]
    )
    for pair, p in zip(found, adjusted, strict=True):
        pair["p_holm"], pair["family"] = stats.number(p, 6), len(found)
        pair["verdict"], pair["sentence"] = claims.verdict(pair)
    without = (
        {
            (pair["a"], pair["b"]): pair
            for pair in preferences([vote for vote in votes if vote["rater"] not in crowd])
        }
        if crowd
        else {}
    )
    for pair in found:
        _limit(pair, met[pair["a"], pair["b"]], crowd, without.get((pair["a"], pair["b"])))
    return found


def _limit(pair, votes, crowd, rest):
    """Add to a pair's sentence that few people or a crowd said it. rest: the pair without the crowd, None where no vote is left."""
    limits, people = [], len({vote["rater"] for vote in votes})
    cast = [vote["rater"] for vote in votes if vote["rater"] in crowd]
    if crowds.large(len(cast) / len(votes)):
        said = (
            f"{100 * len(cast) / len(votes):.0f} % of the votes are by {len(set(cast))} names that came from few addresses or in bursts, and without "
            + (f"these it is {interval(rest['difference'])}" if rest else "these there is none")
        )
        held = (
            rest
            and rest["verdict"] == "beats"
            and (rest["difference"]["mean"] > 0) == (pair["difference"]["mean"] > 0)
        )
        if pair["verdict"] == "beats" and not held:
            pair["verdict"], pair["sentence"] = claims.verdict({**pair, "doubts": [said]})
        else:
            limits.append(said)
    if people < RATERS:
        limits.append(
            f"this speaks for {f'these {people} people' if people > 1 else 'one person'} only"
        )
    pair["sentence"] = "; ".join([pair["sentence"], *limits])


def _selected(votes, *, came=(), without_crowds=False, ties="half"):
    """What tally counts: {"kept", "by_the_rule": with ties, "whole": with crowds too, "people": as raters() has them, "gathered": crowds}."""
    votes = list(votes)
    whole, people = counted(votes)
    gathered, by_the_rule = crowds.find(came, whole), whole
    if without_crowds:
        by_the_rule, people = counted(votes, frozenset(gathered["raters"]))
    kept = by_the_rule if ties == "half" else [vote for vote in by_the_rule if preferred(vote)]
    return {
        "kept": kept,
        "by_the_rule": by_the_rule,
        "whole": whole,
        "people": people,
        "gathered": gathered,
    }


def tally(
    votes, decks=None, current=None, wanted=None, *, came=(), without_crowds=False, ties="half"
):
    """Everything the votes say, JSON-able.

    votes: as Study.votes() yields them. decks: {pair: {model: measures}} of the judge; current: its weights by dimension. came: who came
    whence and when (crowds.find); without_crowds: leave crowds out. ties: a vote that prefers neither deck is a "half" for each, or
    "drop": not counted at all. Raises cli.BadData where nothing is left to count.
    """
    import numpy

    votes, came = list(votes), list(came)
    kept, by_the_rule, whole, people, gathered = _selected(
        votes, came=came, without_crowds=without_crowds, ties=ties
    ).values()
    crowd = frozenset(gathered["raters"])
    if not kept:
        raise cli.BadData(
            "no vote counts: there is none yet, or all are by raters who are left out"
            + (", or ties" if ties == "drop" else "")
        )
    everyone = [vote for vote in votes if vote["kind"] == "vote" and vote.get("seen", True)]
    doubted = frozenset() if without_crowds else crowd
    otherwise = {
        "with_raters_left_out": (everyone, crowd),
        "without_both_bad": ([vote for vote in by_the_rule if vote["choice"] != "bad"], doubted),
    }
    if crowd:
        otherwise |= (
            {"with_crowds": (whole, crowd)}
            if without_crowds
            else {"without_crowds": ([v for v in kept if v["rater"] not in crowd], ())}
        )
    if any(preferred(vote) is None for vote in by_the_rule):
        otherwise |= (
            {"ties_half": (by_the_rule, doubted)}
            if ties == "drop"
            else {"ties_dropped": ([v for v in kept if preferred(v)], doubted)}
        )
    prompts, names = [vote["prompt"] for vote in kept], [vote["rater"] for vote in kept]
    pairs, strong = preferences(kept, doubted), strengths(kept)
    models = sorted({vote[side] for vote in kept for side in ("left", "right")})
    sided = [vote for vote in kept if vote["choice"] in ("left", "right")]
    seconds = [vote["seconds"] for vote in kept if isinstance(vote.get("seconds"), int | float)]
    repeats = [rater["repeats"] for rater in people if not rater["excluded"]]
    of = {
        model: [vote for vote in kept if model in (vote["left"], vote["right"])] for model in models
    }
    decks = decks or {}
    return {
        "votes": {
            "all": len(votes),
            "counted": len(kept),
            "gold": sum(vote["kind"] == "gold" for vote in votes),
            "repeats": sum(vote["kind"] == "repeat" for vote in votes),
            "unseen": sum(not vote.get("seen", True) for vote in votes),
            "of_raters_left_out": len(everyone) - len(by_the_rule),
            "ties": ties,
            "ties_dropped": len(by_the_rule) - len(kept),
            "choices": {name: sum(v["choice"] == name for v in kept) for name in CHOICES},
        },
        "prompts": len(set(prompts)),
        "raters": len(set(names)),
        "rule": RULE,
        "people": people,
        "interval": {
            "level": stats.LEVEL,
            "resamples": RESAMPLES,
            "seed": stats.SEED,
            "over": "prompts and raters" if len(set(names)) >= RATERS else "prompts",
        },
        "pairs": pairs,
        "models": {
            model: {
                "share": share(
                    [0.5 if preferred(v) is None else float(preferred(v) == model) for v in mine],
                    [1] * len(mine),
                    [v["prompt"] for v in mine],
                    [v["rater"] for v in mine],
                ),
                "bad": share(
                    [float(v["choice"] == "bad") for v in mine],
                    [1] * len(mine),
                    [v["prompt"] for v in mine],
                    [v["rater"] for v in mine],
                ),
            }
            for model, mine in of.items()
        },
        "strengths": strong,
        "position": {
            "left": share(
                [float(v["choice"] == "left") for v in sided],
                [1] * len(sided),
                [v["prompt"] for v in sided],
                [v["rater"] for v in sided],
            ),
            "log_odds": strong["bias"],
            "repeats": {key: sum(one[key] for one in repeats) for key in ("n", "same", "against")},
        },
        "seconds": dict(
            zip(
                ("lower", "median", "upper"),
                map(lambda x: stats.number(x, 1), numpy.quantile(seconds, [0.25, 0.5, 0.75])),
                strict=True,
            )
        )
        if seconds
        else None,
        "agreement": agreement(kept),
        "judge": judged(kept, decks) if decks else None,
        "weights": weights(kept, decks, current) if decks and current else None,
        "precision": _precision(kept, wanted),
        "crowds": {**gathered, "left_out": without_crowds, "by_time": crowds.by_time(came, votes)},
        "otherwise": {name: _brief(*how) for name, how in otherwise.items()},
    }


def _brief(votes, crowd=frozenset()):
    """The figures that a reader compares when votes are counted in another way."""
    return {
        "votes": len(votes),
        "pairs": [
            {key: pair[key] for key in ("a", "b", "votes", "share", "difference", "sentence")}
            for pair in preferences(votes, crowd)
        ]
        if votes
        else [],
        "log_odds": [
            {"a": pair["a"], "b": pair["b"], **pair["log_odds"]}
            for pair in strengths(votes)["pairs"]
        ]
        if votes
        else [],
    }


def of_study(study, wanted=None, **how):
    """`(tally of a blindtest.Study, its votes)`, the models by their labels, the judge from the scores of the runs where they have one.
    how: as tally takes it.

    Adds "study": {"title", "question", "closed", "unjudged": runs without scores}."""
    about = study.about
    labels = {run["name"]: run["label"] for run in about["runs"]}
    if len(set(labels.values())) < len(labels):
        labels = {name: name for name in labels}
    votes = list(study.votes())
    named = [
        {
            **vote,
            "left": labels.get(vote["left"], vote["left"]),
            "right": labels.get(vote["right"], vote["right"]),
        }
        for vote in votes
    ]
    scores, current, unjudged = (
        outside.measures(study) if outside.made(study) else _scores(about["runs"])
    )
    decks = {}
    for ident, pair in study.pairs.items():
        sides = [
            scores.get((pair[side]["run"], pair["prompt"], pair[side]["sample"]))
            for side in ("left", "right")
        ]
        if pair["kind"] == "vote" and all(sides):
            decks[ident] = {
                labels.get(pair[side]["model"], pair[side]["model"]): deck
                for side, deck in zip(("left", "right"), sides, strict=True)
            }
    found = tally(named, decks, current, wanted, came=study.raters(), **how)
    return {
        "study": {
            "title": about["title"],
            "question": about["question"],
            "closed": study.closed,
            "unjudged": unjudged,
        },
        **found,
    }, votes


def _scores(runs):
    """`({(run, prompt, sample): measures}, weights of the dimensions, names of runs without scores)` from the folders of our runs."""
    from pathlib import Path

    scores, current, unjudged = {}, None, []
    for run in runs:
        folder = Path(run["path"])
        try:
            for _, record in stream.records(folder / "scores.jsonl"):
                if isinstance(value := record.get("score"), dict):
                    scores[run["name"], prompt_of(record), sample_of(record)] = {
                        "overall": value.get("overall"),
                        "judge_only": value.get("judge_only"),
                        **(value.get("dimensions") or {}),
                        "checklist": value.get("checklist"),
                    }
            current = (
                current or json.loads((folder / "protocol.json").read_text())["score"]["weights"]
            )
        except (OSError, ValueError, KeyError):
            unjudged.append(run["name"])
    return scores, current, unjudged


# As text and pictures


def markdown(found, title="Votes"):
    """The tally as markdown."""
    of, lines = found["votes"], [f"# {title}", ""]
    lines += [
        f"{of['counted']:,} votes by {found['raters']} rater{'s' * (found['raters'] != 1)} on {found['prompts']} prompts count"
        + (
            f"; {of['of_raters_left_out']} by raters who are left out do not"
            if of["of_raters_left_out"]
            else ""
        )
        + (
            f"; {of['ties_dropped']} that prefer neither deck are dropped"
            if of["ties_dropped"]
            else ""
        )
        + f". Gold items {of['gold']}, swapped repeats {of['repeats']}. Intervals are of 95 %, over {found['interval']['over']}.",
        "",
    ]
    if found["interval"]["over"] == "prompts":
        lines += [
            f"Fewer than {RATERS} raters: the intervals speak for these people, not for others.",
            "",
        ]
    for warning in found["crowds"]["warnings"]:
        lines += [
            f"**Warning:** {warning}"
            + (". They are left out." if found["crowds"]["left_out"] else "."),
            "",
        ]
    for name, header, rows, words, note in tables(found):
        lines += [
            f"**{name}**",
            "",
            *markdown_table(header, rows, words),
            "",
            *([note, ""] if note else []),
        ]
    return "\n".join(
        [
            *lines,
            "**What may be said of the models**",
            "",
            *(f"- {pair['sentence']}" for pair in found["pairs"]),
            "",
        ]
    )


def tables(found):
    """Every table of the tally, `[(title, header, rows, columns of words, note)]`, cells as text."""
    shown = [
        (
            "Preference",
            [
                "Models",
                "Votes",
                "For the first",
                "For the second",
                "Tied",
                "Both bad",
                "Share of the first",
                "Difference",
                "p corrected",
            ],
            [
                [
                    f"{p['a']} and {p['b']}",
                    str(p["votes"]),
                    str(p["for_a"]),
                    str(p["for_b"]),
                    str(p["tied"]),
                    str(p["bad"]),
                    interval(p["share"]),
                    interval(p["difference"]),
                    claims.p_text(p["p_holm"]),
                ]
                for p in found["pairs"]
            ],
            1,
            "Share: ties and both bad count a half. Difference: share of the votes for the first minus share for the second; p: sign-flip "
            "permutation test over prompts, Holm's correction over the pairs.",
        )
    ]
    strong, joined = found["strengths"], len(found["strengths"]["groups"]) == 1
    rows = [
        [model, interval(strong["models"][model]), interval(value["share"]), interval(value["bad"])]
        for model, value in found["models"].items()
    ]
    shown.append(
        (
            "Strength",
            ["Model", "Log strength", "Share of its votes", "Both bad"],
            rows,
            1,
            "Davidson's model: ties and the bias to a side are part of it; both bad goes in as a tie. "
            + (
                "A difference of 1 is odds of 2.7 to 1."
                if joined
                else "The votes do not join all models: "
                + "; ".join(", ".join(group) for group in strong["groups"])
                + ". Between these groups one side lost every vote, or there was none, so a difference of strengths is not finite."
            ),
        )
    )
    shown.append(
        (
            "Raters",
            [
                "Rater",
                "Votes",
                "Gold failed",
                "Repeats the same",
                "Left",
                "Tied",
                "Both bad",
                "Seconds",
                "Left out",
            ],
            [
                [
                    p["rater"],
                    str(p["votes"]),
                    f"{p['gold']['failed']} of {p['gold']['n']}",
                    f"{p['repeats']['same']} of {p['repeats']['n']}",
                    _percent(p["left"]),
                    str(p["tied"]),
                    str(p["bad"]),
                    "–" if p["seconds"] is None else f"{p['seconds']:.1f}",
                    p["excluded"] or "",
                ]
                for p in found["people"]
            ],
            1,
            f"Left out: more than a third of {RULE['gold']['least']} or more gold items failed, the other deck in all of "
            f"{RULE['repeats']['least']} or more swapped repeats (without a tie), or a median below {RULE['seconds']:g} s.",
        )
    )
    shown += _came(found["crowds"])
    people, place = found["agreement"], found["position"]
    rows = [
        ["Another person", interval(people["another"]), "", "", str(people["another"]["n"])],
        [
            "Majority of the others",
            interval(people["majority"]),
            "",
            "",
            str(people["majority"]["n"]),
        ],
        ["Any judge, at most", interval(people["at_most"]), "", "", ""],
    ]
    rows += [
        [
            TITLES.get(name, name),
            interval(value["choice"]),
            interval(value["shared"]),
            interval(value["own"]),
            str(value["choice"]["n"]),
        ]
        for name, value in (found["judge"] or {}).items()
    ]
    shown.append(
        (
            "Who prefers the deck that a person prefers",
            ["By", "The choice", "Of shared pairs", "The same dimension", "Votes"],
            rows,
            1,
            "Of untied votes; a tie or equal numbers count a half, so 0.50 is chance. The first three lines are from "
            f'{people["pairs"]} pairs that several people saw, to be held against "Of shared pairs". Another person is no ceiling: who knows '
            "what most people prefer follows more votes than a person does; the third line is as high as that can be. "
            f"Krippendorff's alpha {interval(people['alpha_ordinal'])} (ordinal), "
            f"{interval(people['alpha_nominal'])} (four choices).",
        )
    )
    if fitted := found["weights"]:
        accuracy = fitted["accuracy"]
        shown.append(
            (
                "Weights of the judge",
                ["Dimension", "Now", "Fitted to people", "Interval"],
                [
                    [
                        TITLES.get(name, name),
                        f"{value['current']:.2f}",
                        *(
                            ("–", "no two decks differ")
                            if value["suggested"] is None
                            else (
                                f"{value['suggested']:.2f}",
                                f"[{value['lo']:.2f}, {value['hi']:.2f}]",
                            )
                        ),
                    ]
                    for name, value in fitted["dimensions"].items()
                ],
                1,
                f"Votes followed: {interval(accuracy['current'])} with the weights of now, {interval(accuracy['held_out'])} with weights fitted "
                f"to other prompts (difference {interval(fitted['gain'])}), {interval(accuracy['fitted'])} of the votes they were fitted to. "
                + (
                    "The gain holds on prompts that were held out."
                    if fitted["advice"] == "adopt"
                    else "No gain on held-out prompts is shown: keep the weights."
                ),
            )
        )
    turned, pace = place["repeats"], found["seconds"]
    shown.append(
        (
            "Position and time",
            ["", "", ""],
            [
                ["Left, of untied votes", interval(place["left"]), ""],
                ["Advantage of the left side, log odds", interval(place["log_odds"]), ""],
                [
                    "Swapped repeats",
                    f"{turned['same']} of {turned['n']} the same",
                    f"{turned['against']} the other deck",
                ],
            ]
            + (
                [
                    [
                        "Seconds a vote",
                        f"{pace['median']:.1f}",
                        f"[{pace['lower']:.1f}, {pace['upper']:.1f}] middle half",
                    ]
                ]
                if pace
                else []
            ),
            1,
            "",
        )
    )
    other = {
        "with_raters_left_out": "all raters",
        "without_both_bad": "without both bad",
        "with_crowds": "with crowds",
        "without_crowds": "without crowds",
        "ties_half": "ties a half for each",
        "ties_dropped": "without ties",
    }
    rows = [
        [
            f"{p['a']} and {p['b']}",
            word,
            str(p["votes"]),
            interval(p["share"]),
            interval(p["difference"]),
        ]
        for pair in found["pairs"]
        for word, brief in [
            ("as above", found["pairs"]),
            *(
                (w, found["otherwise"][k]["pairs"])
                for k, w in other.items()
                if k in found["otherwise"]
            ),
        ]
        for p in brief
        if (p["a"], p["b"]) == (pair["a"], pair["b"])
    ]
    shown.append(
        (
            "Counted in other ways",
            ["Models", "Votes", "Number", "Share of the first", "Difference"],
            rows,
            2,
            "",
        )
    )
    return shown


def _came(found):
    """Tables of who chose a name whence and when; none where nobody did and no vote has a time."""
    if found["chose"]:
        rows = [
            [
                f"Address {one['networks'][0][:6]}"
                if one["by"] == "address"
                else f"Within a minute, {len(one['networks'])} addresses",
                str(one["people"]),
                str(one["votes"]),
                _percent(one["share"]),
                one["first"][:16].replace("T", " "),
                one["last"][:16].replace("T", " "),
            ]
            for one in found["found"]
        ]
        rule = found["rule"]
        yield (
            "Crowds",
            ["From", "People", "Votes", "Share of votes", "First name", "Last name"],
            rows,
            1,
            f"{found['chose']} people chose their names, from {found['addresses']} address{'es' * (found['addresses'] != 1)}; "
            f"{found['people']} of them are in a crowd: {rule['people']} or more of one address, or {rule['burst']} or more names within "
            f"{rule['seconds']} s. Whom the owner gave a link is in none.",
        )
    if found["by_time"]:
        yield (
            "Time",
            ["From", "Names chosen", "Votes"],
            [[time, str(names), str(votes)] for time, names, votes in found["by_time"]],
            1,
            "In UTC.",
        )


def _percent(value):
    return "–" if value is None else f"{100 * value:.0f} %"


def export(votes):
    """The votes as `(JSONL, CSV)`, bytes; in the CSV dimensions have columns of their own and tags stand with blanks between. Cells that
    a spreadsheet would take for a formula get a quote before them."""
    import csv
    import io

    votes = list(votes)
    lines = b"".join(stream.dumps(vote) + b"\n" for vote in votes)
    dimensions = sorted({name for vote in votes for name in vote.get("dimensions") or {}})
    plain = list(
        dict.fromkeys(key for vote in votes for key in vote if key not in ("dimensions", "tags"))
    )
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*plain, *dimensions, "tags"])
    for vote in votes:
        cells = [
            *(vote.get(key) for key in plain),
            *((vote.get("dimensions") or {}).get(name) for name in dimensions),
            " ".join(vote.get("tags") or []),
        ]
        writer.writerow(
            [
                f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell
                for cell in cells
            ]
        )
    return lines, text.getvalue().encode("utf-8", "replace")


def pictures(out, found, colors=None, formats=("png", "svg"), inks=("light",)):
    """Draw the tally into the folder `out`; returns the file names. colors: {model: colour}."""
    colors = {**dict(zip(sorted(found["models"]), itertools.cycle(COLORS))), **(colors or {})}
    kinds = {
        "strengths": _plot_strengths,
        "preference": _plot_preference,
        "agreement": _plot_agreement,
    }
    return [
        file
        for name, draw in kinds.items()
        for file in plots._each(
            out,
            name,
            lambda pyplot, tone, draw=draw: draw(pyplot, found, colors, tone),
            formats,
            inks,
        )
    ]


def _line(axes, y, value, color, tone):
    if value["lo"] is not None:
        axes.plot(
            [value["lo"], value["hi"]], [y, y], color=color, linewidth=2.2, solid_capstyle="round"
        )
    axes.plot([value["mean"]], [y], "o", markersize=7, color=color, markeredgewidth=1.6)
    axes.text(
        1.03,
        y,
        interval(value),
        va="center",
        size=9,
        transform=axes.get_yaxis_transform(),
        color=tone["ink"],
    )


def _plot_strengths(pyplot, found, colors, tone):
    rows = [
        (model, value)
        for model, value in sorted(found["strengths"]["models"].items(), reverse=True)
        if value["mean"] is not None
    ]
    if len(found["strengths"]["groups"]) > 1 or not rows:
        return None  # strengths of different groups have no common scale
    figure, axes = pyplot.subplots(figsize=(8.4, 1.45 + 0.5 * len(rows)))
    for y, (model, value) in enumerate(rows):
        _line(axes, y, value, colors[model], tone)
    _zeroed(axes, tone, [plots._wrapped(model) for model, _ in rows])
    figure.subplots_adjust(left=0.23, right=0.74, bottom=0.35 / figure.get_figheight())
    plots._titled(
        figure, tone, "Strength by people's votes", f"Log odds, mean 0. {_votes(found)}", 0.85
    )
    return figure


def _votes(found, lines=" Lines are 95 % intervals."):
    return f"{found['votes']['counted']:,} votes, {found['raters']} raters, {found['prompts']} prompts.{lines}"


def _zeroed(axes, tone, names, at=0.0):
    axes.axvline(at, color=tone["soft"], linewidth=1)
    axes.grid(axis="x", color=tone["line"], linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)


def _plot_preference(pyplot, found, colors, tone):
    pairs = list(reversed(found["pairs"]))
    figure, axes = pyplot.subplots(figsize=(8.8, 1.75 + 0.62 * len(pairs)))
    for y, pair in enumerate(pairs):
        left = 0
        for key, color, alpha in (
            ("for_a", colors[pair["a"]], 0.75),
            ("tied", tone["soft"], 0.3),
            ("bad", tone["soft"], 0.6),
            ("for_b", colors[pair["b"]], 0.75),
        ):
            width = pair[key] / pair["votes"]
            axes.barh(y, width, left=left, height=0.42, color=color, alpha=alpha, linewidth=0)
            if width > 0.05:
                axes.text(left + width / 2, y, str(pair[key]), ha="center", va="center", size=9)
            left += width
        axes.text(
            1.03,
            y,
            f"{interval(pair['share'])}\n{'separated' if pair['verdict'] == 'beats' else pair['verdict']}",
            va="center",
            size=9,
            transform=axes.get_yaxis_transform(),
        )
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "half", "all"])
    axes.set_yticks(
        range(len(pairs)),
        [f"{plots._wrapped(pair['a'])}\nand {plots._wrapped(pair['b'])}" for pair in pairs],
    )
    axes.set_ylim(-0.6, len(pairs) - 0.4)
    figure.subplots_adjust(left=0.23, right=0.74, bottom=0.4 / figure.get_figheight())
    plots._titled(
        figure,
        tone,
        "Votes for each of two models",
        "From the left: for the first, tied, both bad (darker), for the second.\n"
        f"At the right: share of the first (ties and both bad a half) in its 95 % interval. {_votes(found, '')}",
        1.0,
    )
    return figure


def _plot_agreement(pyplot, found, colors, tone):
    rows = [
        (TITLES.get(name, name), value["choice"], "#3d7ea6")
        for name, value in (found["judge"] or {}).items()
        if value["choice"]["n"]
    ]
    people = [
        (name, found["agreement"][key], "#c2912b")
        for name, key in (
            ("Another person", "another"),
            ("Majority of the others", "majority"),
            ("Any judge, at most", "at_most"),
        )
        if found["agreement"][key]["n"]
    ]
    if not people and not rows:
        return None
    rows = [*reversed(rows), *reversed(people)]
    figure, axes = pyplot.subplots(figsize=(8.4, 1.65 + 0.42 * len(rows)))
    for y, (_, value, color) in enumerate(rows):
        _line(axes, y, value, color, tone)
    _zeroed(axes, tone, [name for name, *_ in rows], 0.5)
    axes.set_xlim(0, 1)
    figure.subplots_adjust(left=0.23, right=0.74, bottom=0.35 / figure.get_figheight())
    plots._titled(
        figure,
        tone,
        "Who prefers the deck that a person prefers",
        "Of untied votes; 0.5 is chance. Another person is no ceiling: a judge can "
        "be above.\nLines are 95 % intervals.",
        1.05,
    )
    return figure
