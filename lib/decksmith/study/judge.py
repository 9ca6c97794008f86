"""The judge beside people: how often its numbers go with their votes, and which weights would
follow them most closely.

decks, in what follows, is {pair: {model: {measure: number or None}}}: what the judge said of the
two decks of a pair.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from decksmith.results import stats
from decksmith.study import intervals
from decksmith.study.estimates import PRIOR
from decksmith.study.intervals import Vote

if TYPE_CHECKING:
    from decksmith.study.intervals import Array

Decks = Mapping[str, Mapping[str, Mapping[str, float | None]]]
DRAWN = 300  # resamples of the weights
FOLDS = 10
FEWEST = 50  # votes that weights are fitted to
# A sum of coefficients at or below this says that no dimension goes with what people prefer.
NOTHING = 1e-6
EQUAL = 1e-9  # numbers of a judge that differ by less are equal


def judged(votes: Sequence[Vote], decks: Decks) -> dict[str, Any]:
    """How often each of the judge's numbers is higher for the deck that a person prefers (equal
    numbers count a half), over the untied votes: `{measure: {"choice": figure, "own": figure,
    "equal": share of equal numbers, "shared": figure}}`.

    "choice": the vote itself. "own": what people said of the dimension of that name, where they
    did. "shared": "choice" over those votes that agreement() is made of.
    """
    seen = Counter(vote["pair"] for vote in votes)
    measures = dict.fromkeys(
        name for pair in decks.values() for deck in pair.values() for name in deck
    )
    found = {}
    for name in measures:
        gaps = _gaps(votes, decks, name)
        if not gaps:
            continue
        choice = _credits((vote, vote["choice"], gap) for vote, gap in gaps)
        own = _credits((vote, (vote.get("dimensions") or {}).get(name), gap) for vote, gap in gaps)
        equal = sum(credit == 0.5 for _, credit in choice)
        found[name] = {
            "choice": intervals.credited(choice),
            "own": intervals.credited(own),
            "equal": round(equal / len(choice), 4) if choice else None,
            "shared": intervals.credited([one for one in choice if seen[one[0]["pair"]] > 1]),
        }
    return found


def _gaps(votes: Iterable[Vote], decks: Decks, name: str) -> list[tuple[Vote, float]]:
    """`[(vote, the measure of the left deck minus that of the right)]` of the votes for which
    both are known."""
    found = []
    for vote in votes:
        left, right = (deck.get(name) for deck in _sides(vote, decks))
        if left is not None and right is not None:
            found.append((vote, left - right))
    return found


def _sides(vote: Vote, decks: Decks) -> list[Mapping[str, float | None]]:
    """The measures of the left and the right deck; empty where nothing is known."""
    pair = decks.get(vote["pair"], {})
    return [pair.get(vote["left"], {}), pair.get(vote["right"], {})]


def _credits(said: Iterable[tuple[Vote, str | None, float]]) -> list[tuple[Vote, float]]:
    """`[(vote, credit)]` of `(vote, choice, gap)` with a side: 1 where the gap has the side of
    the choice, a half where it is 0."""
    found = []
    for vote, choice, gap in said:
        if choice in ("left", "right"):
            side = (gap > EQUAL) - (gap < -EQUAL)
            found.append((vote, (1 + (side if choice == "left" else -side)) / 2))
    return found


def _suggested(
    known: list[str],
    names: list[str],
    current: Mapping[str, float],
    whole: Any,
    lo: Any,
    hi: Any,
) -> dict[str, dict[str, float | None]]:
    """The weight of each known dimension now, and as fitted; `whole`, `lo`, `hi`: of those in `names`."""
    total = sum(current[name] for name in known) or 1
    found: dict[str, dict[str, float | None]] = {}
    for name in known:
        suggested, least, most = None, None, None  # of a dimension in which no two decks differ
        if name in names:
            at = names.index(name)
            suggested, least, most = map(stats.number, (whole[at] / whole.sum(), lo[at], hi[at]))
        now = round(current[name] / total, 4)
        found[name] = {"current": now, "suggested": suggested, "lo": least, "hi": most}
    return found


def weights(
    votes: Iterable[Vote], decks: Decks, current: Mapping[str, float]
) -> dict[str, Any] | None:
    """Weights of the judge's dimensions that would follow the untied votes most closely, beside the
    `current` ones.

    A logistic regression of the side preferred on the differences of the dimensions and a constant
    (the bias to a side), coefficients at least 0; the weights are the coefficients over their sum.
    The intervals are percentiles over prompts and raters drawn anew together (Owen 2007, The Annals
    of Applied Statistics 1:386: rather too wide). `accuracy` is the share of votes whose side the
    weighted mean has (equal: a half): of the votes that the weights were fitted to, of votes on
    prompts that were held out of ten fits, and with the current weights; `gain` is held out minus
    current. A dimension in which no two decks differ has no weight to suggest. None where fewer
    than 50 votes or 6 prompts can be used.
    """
    import numpy

    measured = {name for pair in decks.values() for deck in pair.values() for name in deck}
    known = [name for name in current if name in measured]
    used = [vote for vote in votes if _complete(vote, decks, known)]
    names = [name for name in known if any(gap for _, gap in _gaps(used, decks, name))]
    prompts = {vote["prompt"] for vote in used}
    if len(names) < 2 or len(used) < FEWEST or len(prompts) < stats.FEWEST:
        return None
    gap = numpy.array([[gap for _, gap in _gaps(used, decks, name)] for name in names]).T
    sign = numpy.array([1.0 if vote["choice"] == "left" else -1.0 for vote in used])
    whole = _regression(gap, sign, numpy.ones(len(used)))[:-1]
    if whole.sum() < NOTHING:
        return None
    random = numpy.random.default_rng(stats.SEED)
    lo, hi = _percentiles(gap, sign, used, random)
    fitted = _credit(gap @ whole, sign)
    held_out = _credit(_held_out(gap, sign, used, random), sign)
    now = _credit(gap @ numpy.array([current[name] for name in names]), sign)
    gain = intervals.ratio(held_out - now, used, -1, 1)
    return {
        "dimensions": _suggested(known, names, current, whole, lo, hi),
        "votes": len(used),
        "prompts": len(prompts),
        "raters": len({vote["rater"] for vote in used}),
        "accuracy": {
            "fitted": intervals.share(fitted, used),
            "held_out": intervals.share(held_out, used),
            "current": intervals.share(now, used),
        },
        "gain": gain,
        "advice": "adopt" if gain["lo"] is not None and gain["lo"] > 0 else "keep",
    }


def _complete(vote: Vote, decks: Decks, names: Sequence[str]) -> bool:
    """Whether a vote has a side, and all of these measures are known of both decks."""
    if vote["choice"] not in ("left", "right"):
        return False
    return all(deck.get(name) is not None for deck in _sides(vote, decks) for name in names)


def _credit(value: "Array", sign: "Array") -> "Array":
    """1 where `value` has the sign, a half where it is 0; shape (votes,)."""
    import numpy

    side = numpy.where(numpy.abs(value) < EQUAL, 0, numpy.sign(value))
    credit: Array = (1 + sign * side) / 2
    return credit


def _percentiles(
    gap: "Array", sign: "Array", votes: Sequence[Vote], random: Any
) -> "tuple[Array, Array]":
    """The ends of each dimension's weight, shapes (dimensions,), prompts and raters drawn anew
    together."""
    import numpy

    by_prompt = intervals.codes(vote["prompt"] for vote in votes)
    by_rater = intervals.codes(vote["rater"] for vote in votes)
    people = by_rater.max() + 1
    start = _regression(gap, sign, numpy.ones(len(votes)))
    drawn = []
    for _ in range(DRAWN):
        weight = random.standard_exponential(by_prompt.max() + 1)[by_prompt]
        if people >= intervals.RATERS:
            weight = weight * random.standard_exponential(people)[by_rater]
        found = _regression(gap, sign, weight / weight.mean(), start)[:-1]
        if found.sum() <= NOTHING:
            found = numpy.full(len(found), numpy.nan)
        drawn.append(found / found.sum())
    lo, hi = numpy.nanquantile(drawn, [0.025, 0.975], axis=0)
    return lo, hi


def _held_out(gap: "Array", sign: "Array", votes: Sequence[Vote], random: Any) -> "Array":
    """What weights say of each vote that were fitted to other prompts than its own; shape (votes,)."""
    import numpy

    by_prompt = intervals.codes(vote["prompt"] for vote in votes)
    fold = random.permutation(by_prompt.max() + 1)[by_prompt] % FOLDS
    found = numpy.zeros(len(votes))
    for one in sorted(set(fold)):
        rest = fold != one
        fitted = _regression(gap[rest], sign[rest], numpy.ones(rest.sum()))[:-1]
        found[~rest] = gap[~rest] @ fitted
    return found


def _regression(
    gap: "Array", sign: "Array", weight: "Array", start: "Array | None" = None
) -> "Array":
    """Coefficients >= 0 and a constant that make `sign` most likely: P(left) = 1 / (1 +
    exp(-(gap @ c + constant)))."""
    import numpy
    from scipy.optimize import minimize

    rows = numpy.hstack([gap, numpy.ones((len(gap), 1))])

    def loss(at: "Array") -> "tuple[float, Array]":
        """The loss and its gradient."""
        margin = sign * (rows @ at)
        pull = -weight * sign / (1 + numpy.exp(numpy.clip(margin, -500, 500)))
        value = (weight * numpy.logaddexp(0, -margin)).sum() + at @ at / 2 / PRIOR**4
        return value, pull @ rows + at / PRIOR**4

    found: Array = minimize(
        loss,
        numpy.zeros(rows.shape[1]) if start is None else start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * gap.shape[1] + [(None, None)],
    ).x
    return found
