"""The reward of one deck: components from 0 to 1, their weighted mean, and the gates that multiply it."""

import math
from collections.abc import Mapping
from pathlib import Path

from decksmith.core import cli
from decksmith.core.records import Record
from decksmith.measure.judging import offline, scoring
from decksmith.measure.judging.records import Reward
from decksmith.measure.judging.rendered import Pages
from decksmith.train.rewards import wording
from decksmith.train.rewards.rules import MEASURES, Rules

DIGITS = 6
PALE = 2.0  # contrast ratio; themes have 2.6 and more
STAGES = ("gen", "deck", "images", "render")


def reward(record: Record, rules: Rules, run: str | Path = ".") -> Reward:
    """The value of `reward` for a record that deck-render, and deck-judge where the rules need it,
    are done with. A fault that is not the model's says nothing about a deck: it is masked.

    run: the folder that the record's paths are relative to. Raises cli.BadData for a record that
    lacks what an earlier stage writes, or whose pictures are gone.
    """
    stages = (*STAGES, "judge") if rules.judge else STAGES
    fault = scoring.fault(rules.protocol, {key: record[key] for key in stages if key in record})
    if fault and fault["kind"] != "model":
        why = f"{fault['kind']} fault, {fault['class']}: {fault['message']}"
        return {"reward": None, "components": {}, "masked": True, "why": why}
    if fault:
        found = {"parses": _parses(record, rules)}
        value = found["parses"] * rules.weights.get("parses", 0.0)
        why = f"{fault['class']}: {fault['message']}"
    else:
        found = measured(record, rules, run)
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
    return sum(contributions(found, rules).values())


def contributions(found: Mapping[str, float], rules: Rules) -> dict[str, float]:
    """What each component with a weight adds to the reward, gates included, 0 to 1; they sum to it.
    No gate lowers what `parses` adds: a deck about something else is still worth more than no
    deck."""
    weights = {name: weight for name, weight in rules.weights.items() if name in found}
    gates = math.prod(
        gate.factor(found[name]) for name, gate in rules.gates.items() if name in found
    )
    factors = {name: 1.0 if name == "parses" else gates for name in weights}
    total = sum(weights.values())
    return {name: found[name] * weight * factors[name] / total for name, weight in weights.items()}


def measured(record: Record, rules: Rules, run: str | Path) -> dict[str, float]:
    """The components of a rendered deck that apply to it, {name: 0..1}."""
    if not isinstance(record.get("render"), dict):
        raise cli.BadData(f"{record['id']}: no render in this record; deck-render writes it")
    pages = Pages(record, run, rules.protocol.measures)
    found = {}
    for name in sorted(rules.used):
        if (quality := _quality(name, pages, rules)) is not None:
            found[name] = quality
    if rules.judge:  # what does not answer its request gets nothing for its looks
        found["layout"] = found.get("layout", 0.0) * found["answers"]
    return found


def _quality(name: str, pages: Pages, rules: Rules) -> float | None:
    """A component of a deck, 0 to 1, or None where it does not apply."""
    if name == "parses":
        return _parses(pages.record, rules)
    if name == "checklist" and rules.judge:
        answers = pages.record["judge"].get("checklist") or []
        yes = sum(bool(answer["yes"]) for answer in answers)
        return yes / len(answers) if answers else None
    if MEASURES[name]:
        return _offline(name, pages, rules)
    value = OWN[name](pages)
    return None if value is None else offline.quality(value, rules.ramps[name])


def _offline(name: str, pages: Pages, rules: Rules) -> float | None:
    """What the offline measures of a component say together. Merits are averaged and lowered by
    faults, in the offline judge's arithmetic; faults alone are multiplied."""
    settings = rules.protocol.measures
    every = offline.measured(pages, settings, MEASURES[name])
    here = offline.qualities(every)
    if any(settings[measure]["role"] == "merit" for measure in here):
        return float(offline.share(here, settings, bool(pages.whole))[0])
    return math.prod(here.values()) if here else None


def _parses(record: Record, rules: Rules) -> float:
    """Slides of the source against the fewest that the protocol takes for a deck; 0 without one."""
    made = (record.get("deck") or {}).get("slides") or 0
    return min(1.0, int(made) / int(rules.protocol.render["min_slides"]))


def _length(pages: Pages) -> float:
    """Words that can be read on a slide, on average."""
    return sum(pages.words.values()) / len(pages.numbers) if pages.numbers else 0.0


def _pale(pages: Pages) -> float | None:
    """Share of the lines of text that hardly stand out from what is behind them in the picture,
    whatever their colours are in the page; None without lines."""
    ratios = [ratio for picture in pages.looked.values() for ratio in picture.contrasts]
    return sum(ratio < PALE for ratio in ratios) / len(ratios) if ratios else None


def _content(pages: Pages) -> float:
    """The score for content, 1 to 5, of a judge that reads."""
    judge = pages.record.get("judge") or {}
    if str(judge.get("judge")).startswith("offline") or not isinstance(judge.get("scores"), dict):
        raise cli.BadData(
            f"{pages.record['id']}: no judge.scores of a judge that reads in this record; "
            "deck-judge --protocol published writes them"
        )
    return float(judge["scores"]["content"])


OWN = {
    "length": _length,
    "pale": _pale,
    "taken": wording.taken,
    "together": wording.together,
    "phrases": wording.phrases,
    "sequence": wording.sequence,
    "own": wording.own,
    "molds": wording.molds,
    "copied": wording.copied,
    "again": wording.again,
    "answers": _content,
}


def _why(found: Mapping[str, float], rules: Rules) -> str:
    """One sentence: the components that cost most."""
    losses = {name: rules.weights.get(name, 0.0) * (1 - quality) for name, quality in found.items()}
    for name, gate in rules.gates.items():
        losses[name] = losses.get(name, 0.0) + 1 - gate.factor(found.get(name, 1.0))
    worst = sorted((n for n in losses if losses[n] > 0.005), key=lambda n: (-losses[n], n))[:3]
    said = ", ".join(f"{name} {found[name]:.2f}" for name in worst)
    return f"lost most by {said}" if said else "lost nothing"
