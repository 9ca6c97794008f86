"""Whether a copy of a fine-tune is the one that was measured: where its greedy replies part from the measured one's, and one gate
over that, the checks that its decks pass and benchmarks. `make shipped` (make/shipped.py) asks the copies.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, cast

import numpy

from decksmith.bench.benchmarks import metrics
from decksmith.bench.benchmarks.metrics import BenchComparison
from decksmith.measure.results import regressions, stats
from decksmith.measure.results.comparison import PairedDifference, Run
from decksmith.measure.results.summary import worth

MEASURED = "measured"
MARGIN = 0.1  # of the checks passed, a deck that does not render passing none
LESS = 0.05  # by how much less likely a copy may find the measured one's replies: geometric means over their tokens
TOKENS = 64  # of a greedy reply


class Reading(TypedDict):
    """How a model reads a reply: the prompt's tokens; the bits of each token of the reply; and the likeliest token there, with its bits."""

    prompt: list[int]
    bits: list[float]
    top: list[int]
    top_bits: list[float]


class Parting(TypedDict):
    """Of one prompt: at which token a copy's greedy reply parts from the measured one's, None where it does not; there the
    chances, by the measured copy and by this one, of the measured one's token and of this one's; `likely`: geometric means of the
    chances that both give to the measured reply's tokens; `prompt`: whether both read the same prompt, token for token."""

    at: int | None
    measured: list[float]
    copy: list[float]
    likely: list[float]
    prompt: bool


def parting(
    said: list[int], ours: Reading, theirs: Reading, other: Callable[[list[int]], Reading]
) -> Parting:
    """Where a copy parts from the measured reply `said`, which the measured one read as `ours` and the copy as `theirs`: up to the first
    other token it is the copy's own, so that one pass tells all. other: how the measured one reads these tokens."""
    found: Parting = {
        "at": next((n for n, top in enumerate(theirs["top"]) if top != said[n]), None),
        "measured": [],
        "copy": [],
        "likely": [2 ** -(sum(one["bits"]) / len(said)) for one in (ours, theirs)],
        "prompt": ours["prompt"] == theirs["prompt"],
    }
    if (at := found["at"]) is not None:
        its = other([*said[:at], theirs["top"][at]])["bits"][at]
        found["measured"] = [2 ** -ours["bits"][at], 2**-its]
        found["copy"] = [2 ** -theirs["bits"][at], 2 ** -theirs["top_bits"][at]]
    return found


def decks(run: Run, measured: Run) -> BenchComparison:
    """The part of the gate about decks."""
    ours, theirs = worth(run["records"]), worth(measured["records"])
    both = sorted(ours.keys() & theirs.keys())
    found, needed = metrics.gap([ours[k] for k in both], [theirs[k] for k in both], MARGIN)
    return _entry("decks", MARGIN, found, needed)


def prompts_wanted(measured: Run) -> int | None:
    """With about how many prompts decks can show that a copy is no worse, at a chance of 0.8: of the measured one's decks alone, so that it
    is known before any copy is looked at. Two copies that are alike are taken to differ on a prompt as two prompts do. None: many."""
    own = [value for _, value in sorted(worth(measured["records"]).items())]
    apart = [one - other for one, other in zip(own, [*own[1:], *own[:1]], strict=True)]
    with numpy.errstate(divide="ignore"):  # of so few that are alike nothing varies
        return stats.smallest_sample(lambda n: metrics.ruled_out(apart, MARGIN, n), most=5000)


def replies(found: Sequence[Parting]) -> BenchComparison:
    """The part about greedy replies. Its difference is what the copy thinks of them, less what the measured one does, above the
    margin: what was measured finds its own replies the likeliest, so that less is no loss until it is more than LESS."""
    own, other = (numpy.array([[one["likely"][n]] for one in found]) for n in (0, 1))
    gap = stats.difference(stats.t_differences(other + LESS, own, (0, 1)), 0)
    return _entry("replies", LESS, gap, None)


def _entry(
    name: str, margin: float, found: PairedDifference, needed: int | None
) -> BenchComparison:
    side = cast(Any, {"truncated": 0.0})
    told = {"margin": margin, "difference": found, "needed": needed, "ours": side, "base": side}
    return cast(BenchComparison, {"benchmark": name, "metric": "share", "refused": None, **told})


def settle(found: dict[str, list[BenchComparison]]) -> None:
    """Give each entry, by copy, its p by Holm's method over all copies and parts, its verdict and its sentence. That a loss is
    ruled out is corrected too: what one interval alone shows is not enough where several copies are asked."""
    every = [(name, entry) for name, entries in found.items() for entry in entries]
    metrics.corrected([entry for _, entry in every if not entry["refused"]])
    for name, entry in every:
        own = entry["benchmark"] == "replies"
        said = _replies(name, entry) if own else regressions.benchmark(name, MEASURED, entry)
        entry["verdict"], entry["sentence"] = said
    ruled_out = stats.holm([_of_loss(entry) for _, entry in every])
    for (_, entry), p in zip(every, ruled_out, strict=True):
        if p > 1 - stats.LEVEL and entry["verdict"] in ("holds", "better"):
            entry["verdict"] = "cannot tell"
            entry["sentence"] += f", but not over {len(every)} tests (Holm)"


def _of_loss(entry: BenchComparison) -> float:
    """The two-sided p, by the normal distribution, that the loss is the margin, by the entry's own interval."""
    found, margin = entry["difference"], entry["margin"] or 0.0
    if entry["refused"] or found["mean"] is None or found["lo"] is None:
        return math.nan
    over = found["mean"] + (0.0 if entry["benchmark"] == "replies" else margin)
    half = found["mean"] - found["lo"]
    return math.erfc(1.96 * over / half / math.sqrt(2)) if half else 0.0


def _replies(name: str, entry: BenchComparison) -> tuple[str, str]:
    found, p = entry["difference"], entry.get("p_holm")
    less = 100 * (LESS - (found["mean"] or 0))
    said = f"replies: to {name} a token of the measured ones is {abs(less):.1f} points {'less' if less >= 0 else 'more'} likely"
    if found["n"] < stats.FEWEST or p is None or p > 1 - stats.LEVEL:
        return "cannot tell", f"{said}; cannot tell whether by more than {100 * LESS:g}"
    if (found["mean"] or 0) > 0:
        return "holds", f"{said}; more than {100 * LESS:g} is ruled out"
    return "worse", f"{said}, which is more than {100 * LESS:g}"


def verdict(
    entries: Sequence[BenchComparison], partings: Sequence[Parting], by_decks: bool = True
) -> str:
    """What may be said of a copy: "is worse" where any part shows a loss, "may ship" where every part rules one out, else
    of how few prompts nothing is known. by_decks: whether these are as many as decks need; else decks can show a loss and nothing else."""
    if any(entry.get("verdict") == "worse" for entry in entries):
        return "is worse"
    if not all(one["prompt"] for one in partings):
        return "reads other prompts"
    asked = [one for one in entries if by_decks or one["benchmark"] != "decks"]
    open_ = [one for one in asked if one.get("verdict") not in ("holds", "better")]
    if open_ or not asked:
        few = min((one["difference"]["n"] for one in open_), default=0)
        return f"not known: {few} prompt{'' if few == 1 else 's'}"
    return "may ship" if by_decks else "may ship, by replies"
