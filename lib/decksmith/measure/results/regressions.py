"""What may be said about a model and its base on benchmarks: whether something was lost, and how much is ruled out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from decksmith.measure.results import stats, text
from decksmith.measure.results.claims import turned, verdict
from decksmith.measure.results.comparison import PairedDifference, TestedPair
from decksmith.measure.results.pairs import LIMITS


def benchmark(model: str, base: str, entry: Mapping[str, Any]) -> tuple[str, str]:
    """What may be said about a model and its base on one benchmark (an entry of metrics.compare): `(verdict, sentence)`.

    The verdict is "worse" where a loss is shown, however small; "better" or "holds" where a loss of more than the margin is
    ruled out; "cannot tell" where neither is so, and "refused" where the two cannot be compared.
    """
    name = entry["benchmark"]
    if not (entry["ours"] and entry["base"]):
        lacks = base if entry["ours"] else model
        mend = "name a log of it" if "notes" in entry else f"make bench MODEL={lacks} BENCH={name}"
        why = f"{lacks} has no results ({mend})"
        return "refused", f"{name}: not compared; {why}"
    if entry["refused"]:
        return "refused", f"{name}: not compared; {entry['refused']}"
    said, sentence = _said(model, base, entry)
    cut = [entry[side]["truncated"] or 0 for side in ("ours", "base")]
    if max(cut) > LIMITS["truncated"]:
        ours, theirs = (text.percent(round(share, 3)) for share in cut)
        sentence += f". Cut off at the token limit: {ours} and {theirs} of the replies"
    if entry["difference"].get("clusters"):
        sentence += f", {stats.rule(entry['difference']['clusters'], 'group')}"
    for label, only in zip((model, base), entry.get("only") or ([], []), strict=True):
        if only:
            named = f"{', '.join(sorted(only)[:3])}{', ..' if only[3:] else ''}"
            sentence += f". Left out, since only {label} has them: {len(only):,} ({named})"
    if entry.get("notes"):
        sentence += f". But {'; '.join(entry['notes'])}"
    return said, f"{name}: {sentence}"


def _said(model: str, base: str, entry: Mapping[str, Any]) -> tuple[str, str]:
    """`(verdict, sentence)` of a difference that was measured."""
    found = cast(PairedDifference, entry["difference"])
    pair: TestedPair = {
        "a": model,
        "b": base,
        "difference": found,
        "p_holm": entry["p_holm"],
        "family": entry["family"],
    }
    n, lo, separated = found["n"], found["lo"], verdict(pair)[0] == "beats"
    if separated and (found["mean"] or 0) < 0:
        return "worse", f"{model} is worse than {base}, by {text.interval(turned(found))}"
    if n < stats.FEWEST or lo is None or lo <= -entry["margin"]:
        shown, needs = "no question in common", ""
        if n:
            shown = f"difference {text.interval(found)} on {n} question{'' if n == 1 else 's'}"
            needs = "; if it is as seen, no number of questions rules that out"
            if entry["needed"]:
                needs = f"; if it is as seen, about {entry['needed']:,} questions rule that out"
        lost = f"lost more than {entry['margin']:g} against {base}"
        return "cannot tell", f"cannot tell whether {model} {lost} ({shown}){needs}"
    if separated:
        return "better", f"{model} beats {base} by {text.interval(found)}"
    bound = max(0.0, math.ceil(-1000 * lo - 1e-9) / 1000)
    apart = f"{model} is not separated from {base} (difference {text.interval(found)})"
    return "holds", f"{apart}; a loss of more than {bound:.3f} is ruled out"


def summary(
    model: str, base: str, compared: Sequence[Mapping[str, Any]], what: str = "benchmark"
) -> tuple[str, str]:
    """The one line under such a comparison, of benchmarks or `what`, and what it comes to: "fail" where a loss is shown or something could not be
    compared, "open" where a benchmark has too few questions to tell, else "pass"."""
    worse, refused, unclear = (
        [entry for entry in compared if entry["verdict"] == said]
        for said in ("worse", "refused", "cannot tell")
    )
    n = len(compared) - len(refused)
    line = f"{model} is worse than {base} on {len(worse)} of {n} {what}{'' if n == 1 else 's'}"
    if worse:
        line += f": {_names(worse)}"
    if unclear:
        line += f"; cannot tell: {', '.join(map(_wanted, unclear))}"
    if refused:
        line += f"; not compared: {_names(refused)}"
    if worse or refused:
        return line, "fail"
    return line, "open" if unclear else "pass"


def _names(entries: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(entry["benchmark"] for entry in entries)


def _wanted(entry: Mapping[str, Any]) -> str:
    if not entry["needed"]:
        return str(entry["benchmark"])
    return f"{entry['benchmark']} (about {entry['needed']:,} questions would tell)"
