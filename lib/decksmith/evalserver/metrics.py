"""From the summary of a benchmark to the numbers of a trainer's log."""

import math
import re
from typing import Any

from decksmith.evalserver.worker import SLIDEV

Modes = dict[str, dict[str, float]]  # {mode: {metric: number}}


def word(text: str) -> str:
    """A name as a part of a metric's, in which blanks and slashes would part it."""
    return re.sub(r"[^\w.@+-]+", "_", text, flags=re.ASCII)


def reported(
    name: str, summary: dict[str, Any], samples: int
) -> tuple[dict[str, Modes], tuple[float, int]]:
    """The metrics of one benchmark as a trainer's log takes them, `{dataset: {mode: {metric:
    number}}}`, and `(graded, errors)`, the share of answers that were and the number that were
    not. Of several k only the largest; shares from 0 to 1; what is not a number is left out.
    Raises what a summary that is damaged brings about."""
    return _decks(name, summary, samples) if name == SLIDEV else _graded(name, summary, samples)


def _decks(
    name: str, summary: dict[str, Any], samples: int
) -> tuple[dict[str, Modes], tuple[float, int]]:
    kinds = summary["faults"]["kinds"]
    not_the_models = sum(kinds[kind] for kind in ("renderer", "judge", "infra"))
    values = {word(measure): value["mean"] for measure, value in summary["means"]["floor"].items()}
    values["num_entries"] = summary["prompts"]
    values |= {key: summary[key] / summary["n"] for key in ("rendered", "truncated")}
    mode = "pass@1" if samples == 1 else f"pass@1[avg-of-{samples}]"
    return {name: {mode: _numbers(values)}}, (1 - not_the_models / summary["n"], not_the_models)


def _graded(
    name: str, summary: dict[str, Any], samples: int
) -> tuple[dict[str, Modes], tuple[float, int]]:
    metric = summary["metric"]
    keep = (metric, "std_err", "no_answer", "num_entries", "avg_tokens", "gen_seconds")
    first = next(iter(summary["modes"]))
    modes = {
        mode: _numbers({key: values.get(key) for key in keep})
        for mode, values in summary["modes"].items()
        if mode == first or mode.endswith(f"@{samples}")
    }
    modes[first] |= _numbers({"truncated": summary["truncated"]})
    found = {name: modes}
    for subset, subset_modes in summary["subsets"].items():
        values = {key: subset_modes[first][key] for key in (metric, "num_entries")}
        found[f"{name}-{word(subset)}"] = {first: _numbers(values)}
    return found, (summary["coverage"] or 0.0, summary["errors"]["n"])


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {
        key: round(value, 4)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
