"""Whether a copy of a fine-tune is the one that was measured: where its greedy replies part from the measured one's, and one gate
over that, the checks that its decks pass and benchmarks. `make shipped` (make/shipped.py) asks the copies.
"""

from collections.abc import Sequence
from typing import Any, TypedDict, cast

import numpy

from decksmith.bench.benchmarks import metrics
from decksmith.bench.benchmarks.metrics import BenchComparison
from decksmith.core.records import Record
from decksmith.measure.results import regressions, stats
from decksmith.measure.results.comparison import PairedDifference, Run
from decksmith.measure.results.summary import worth
from decksmith.train.serving import readiness

MEASURED = "measured"
MARGIN = 0.1  # of the checks passed, a deck that does not render passing none
LESS = 0.05  # by how much less likely a copy may find the measured one's replies: geometric means over their tokens
TOKENS = 64  # of a greedy reply


class Parting(TypedDict):
    """Of one prompt: at which token a copy's greedy reply parts from the measured one's, None where it does not; there the
    chances, by the measured copy and by this one, of the measured one's token and of this one's; `likely`: geometric means of the
    chances that both give to the measured reply's tokens; `prompt`: whether both read the same prompt, token for token."""

    at: int | None
    measured: list[float]
    copy: list[float]
    likely: list[float]
    prompt: bool


def reply(url: str, messages: Any) -> list[int]:
    """The greedy reply of a server of make/plain.py, as numbers of tokens. Raises OSError, ValueError."""
    body = {"model": MEASURED, "messages": messages, "temperature": 0, "max_tokens": TOKENS}
    said = readiness.get(url, "/v1/chat/completions", body, 3600)
    return cast(list[int], said["choices"][0]["token_ids"])


def parting(measured: str, url: str, name: str, messages: Any, said: list[int]) -> Parting:
    """Where the copy `name` at `url` parts from the measured reply. Both read that reply: up to the first other token it is the
    copy's own, so that one pass tells all. Raises OSError, ValueError."""

    def read(server: str, model: str, tokens: list[int]) -> Record:
        body = {"model": model, "messages": messages, "tokens": tokens}
        return cast(Record, readiness.get(server, "/v1/likelihood", body, 3600))

    ours, theirs = read(measured, MEASURED, said), read(url, name, said)
    found: Parting = {
        "at": next((n for n, top in enumerate(theirs["top"]) if top != said[n]), None),
        "measured": [],
        "copy": [],
        "likely": [2 ** -(sum(one["bits"]) / len(said)) for one in (ours, theirs)],
        "prompt": ours["prompt"] == theirs["prompt"],
    }
    if (at := found["at"]) is not None:
        other = read(measured, MEASURED, [*said[:at], theirs["top"][at]])["bits"][at]
        found["measured"] = [2 ** -ours["bits"][at], 2**-other]
        found["copy"] = [2 ** -theirs["bits"][at], 2 ** -theirs["top_bits"][at]]
    return found


def decks(run: Run, measured: Run) -> BenchComparison:
    """The part of the gate about decks."""
    ours, theirs = worth(run["records"]), worth(measured["records"])
    both = sorted(ours.keys() & theirs.keys())
    found, needed = metrics.gap([ours[k] for k in both], [theirs[k] for k in both], MARGIN)
    return _entry("decks", MARGIN, found, needed)


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
    """Give each entry, by copy, its p by Holm's method over all copies and parts, its verdict and its sentence."""
    every = [(name, entry) for name, entries in found.items() for entry in entries]
    metrics.corrected([entry for _, entry in every if not entry["refused"]])
    for name, entry in every:
        own = entry["benchmark"] == "replies"
        said = _replies(name, entry) if own else regressions.benchmark(name, MEASURED, entry)
        entry["verdict"], entry["sentence"] = said


def _replies(name: str, entry: BenchComparison) -> tuple[str, str]:
    found, p = entry["difference"], entry.get("p_holm")
    less = 100 * (LESS - (found["mean"] or 0))
    said = f"replies: to {name} a token of the measured ones is {abs(less):.1f} points {'less' if less >= 0 else 'more'} likely"
    if found["n"] < stats.FEWEST or p is None or p > 1 - stats.LEVEL:
        return "cannot tell", f"{said}; cannot tell whether by more than {100 * LESS:g}"
    if (found["mean"] or 0) > 0:
        return "holds", f"{said}; more than {100 * LESS:g} is ruled out"
    return "worse", f"{said}, which is more than {100 * LESS:g}"


def verdict(entries: Sequence[BenchComparison], partings: Sequence[Parting]) -> str:
    """What may be said of a copy: "is worse" where any part shows a loss, "may ship" where every part rules one out, else
    of how few prompts nothing is known."""
    said = {entry.get("verdict") for entry in entries}
    if "worse" in said:
        return "is worse"
    if not all(one["prompt"] for one in partings):
        return "not known: it reads other prompts"
    if said and said <= {"holds", "better"}:
        return "may ship"
    few = [entry["difference"]["n"] for entry in entries if entry.get("verdict") == "cannot tell"]
    return f"not known with {min(few, default=0)} prompts"
