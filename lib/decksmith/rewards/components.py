"""The reward of one deck: components from 0 to 1, their weighted mean, and the gates that multiply it."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from decksmith.core import cli
from decksmith.core.records import Record
from decksmith.judging import offline, scoring
from decksmith.judging.rendered import Pages
from decksmith.rewards.rules import COMPONENTS, Rules

DIGITS = 6


def reward(record: Record, rules: Rules, run: str | Path = ".") -> Record:
    """The value of `reward` (docs/records.md) for a record that deck-render is done with.

    `reward` is 0 to 1, or None where `masked`: a fault that is not the model's says nothing about a deck. `components` has
    each component that applies to the prompt, 0 to 1. `why` says in a sentence what cost most, or what failed.

    run: the folder that the record's paths are relative to. Raises cli.BadData for a record that lacks what an earlier
    stage writes, or whose pictures are gone.
    """
    fault = scoring.fault(rules.protocol, record)
    if fault and fault["kind"] != "model":
        why = f"{fault['kind']} fault, {fault['class']}: {fault['message']}"
        return {"reward": None, "components": {}, "masked": True, "why": why}
    if not fault and not isinstance(record.get("render"), dict):
        raise cli.BadData(f"{record['id']}: no render in this record; deck-render writes it")
    if fault:
        found: dict[str, float] = {"parses": _parses(record, rules)}
        value = found["parses"] * rules.weights.get("parses", 0.0)
        why = f"{fault['class']}: {fault['message']}"
    else:
        found = measured(Pages(record, run, rules.measures), rules)
        value = worth(found, rules)
        why = _why(found, rules)
    return {
        "reward": round(value, DIGITS),
        "components": {name: round(quality, DIGITS) for name, quality in found.items()},
        "masked": False,
        "why": why,
    }


def worth(found: Mapping[str, float], rules: Rules) -> float:
    """The reward of components: the weighted mean of those that have a weight, times the gates."""
    weights = {name: weight for name, weight in rules.weights.items() if name in found}
    mean = sum(found[name] * weight for name, weight in weights.items()) / sum(weights.values())
    for name, least in rules.gates.items():
        if name in found:
            mean *= least + (1 - least) * found[name]
    return mean


def measured(pages: Pages, rules: Rules) -> dict[str, float]:
    """The components of a rendered deck by name, 0 to 1; those that do not apply to the prompt are not there."""
    found = {"parses": _parses(pages.record, rules), "length": _length(pages)}
    for name in {**rules.weights, **rules.gates}:
        if measures := COMPONENTS[name][1]:
            quality = _quality(pages, rules, measures)
            if quality is not None:
                found[name] = quality
    return found


def _quality(pages: Pages, rules: Rules, measures: Iterable[str]) -> float | None:
    """What a component's measures say together, 0 to 1, or None where none of them applies.

    Merits are averaged and faults lower the average, as in the offline judge; faults alone are multiplied.
    """
    every = offline.measured(pages, rules.measures, measures)
    here = {name: found for name, found in every.items() if found["quality"] is not None}
    if any(rules.measures[name]["role"] == "merit" for name in here):
        return offline.share(here, rules.measures, bool(pages.whole))[0]
    return math.prod(found["quality"] for found in here.values()) if here else None


def _parses(record: Record, rules: Rules) -> float:
    """Slides of the source against the fewest that the protocol takes for a deck; 0 without a deck."""
    deck = record.get("deck")
    made = (deck or {}).get("slides") or 0
    return min(1.0, made / rules.protocol.render["min_slides"])


def _length(pages: Pages) -> float:
    """Words that can be read on a slide, on average, on a ramp."""
    if not pages.words:
        return 0.0
    mean = sum(pages.words.values()) / len(pages.numbers)
    return offline.quality(mean, LENGTH)


LENGTH = (1, 6, 90, 180)


def _why(found: Mapping[str, float], rules: Rules) -> str:
    """One sentence: the components that cost most."""
    losses = {name: rules.weights.get(name, 0.0) * (1 - quality) for name, quality in found.items()}
    for name, least in rules.gates.items():
        losses[name] = losses.get(name, 0.0) + (1 - least) * (1 - found.get(name, 1.0))
    worst = sorted((n for n in losses if losses[n] > 0.005), key=lambda n: (-losses[n], n))[:3]
    return (
        "lost most by " + ", ".join(f"{n} {found[n]:.2f}" for n in worst)
        if worst
        else "lost nothing"
    )
