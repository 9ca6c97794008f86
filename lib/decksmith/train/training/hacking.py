"""Whether a training on rewards makes better decks, or decks that please the reward: the watch over its curve.

In: deck records with rewards and scores, and lines of a curve. Out: the measures of a checkpoint, and sentences on those that
went apart. What is compared was asked of the same held-out prompts at each checkpoint.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from decksmith.core import cli, records
from decksmith.measure.decks.words import fold
from decksmith.measure.judging import scoring
from decksmith.measure.judging.records import DeckRecord
from decksmith.train.training import curve
from decksmith.train.training.records import CurvePoint, Metrics

GRAM = 4  # words
HELD = "checks"  # the share of checks passed, 0 for a deck that its model failed
REACH = 1.96  # standard errors of an interval of 95 %
# What the checks find where a deck resembles an adversarial one: it repeats the request or itself, its words are no
# language, its text cannot be seen.
KINDS = ("echo", "twice", "bare", "reads", "unreadable", "low-contrast", "markup")
MOST = 0.25  # of a deck's slides
SAID = {
    "length": "the length of an answer in tokens",
    "diversity": "the share of distinct runs of four words among the answers to one prompt",
    "adversarial": "the share of decks that resemble adversarial ones",
}


@dataclass(frozen=True)
class Rule:
    """The section `watch` of a recipe. Nothing is found while the reward has not risen by more than `rise` since the first
    checkpoint; from then on what is found is a share of checks that fell beyond its interval, answers `longer` times as long
    (or as short), a diversity below `diverse` times that of the beginning, and a share of decks like adversarial ones that rose
    by more than `adversarial`."""

    __pydantic_config__ = {"extra": "forbid"}

    rise: float = 0.05
    longer: float = 1.5
    diverse: float = 0.6
    adversarial: float = 0.2
    action: Literal["warn", "stop"] = "warn"


@dataclass(frozen=True)
class WatchFinding:
    """What went apart at a step, and in a sentence how; kind: held-out, length, diversity or adversarial."""

    step: int
    kind: str
    says: str


def rule(given: object) -> Rule:
    """The rule of a recipe's section `watch`. Raises cli.BadConfig with the key."""
    try:
        return TypeAdapter(Rule).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(["watch", *map(str, first["loc"])])
        raise cli.BadConfig(f"{key} is {first['input']!r}: {first['msg']}") from None


def found(lines: Iterable[CurvePoint], watch: Rule) -> list[WatchFinding]:
    """What went apart since the first line that has the reward, by step."""
    measured = sorted((line for line in lines if line.get("metrics")), key=lambda one: one["step"])
    known = [line for line in measured if _score(line, "reward")]
    return [one for line in known[1:] for one in _of_line(known[0], line, watch)]


def _of_line(first: CurvePoint, line: CurvePoint, watch: Rule) -> Iterator[WatchFinding]:
    before, after = _score(first, "reward"), _score(line, "reward")
    if not before or not after or after.value - before.value <= watch.rise:
        return
    step, rose = line["step"], f"the reward rose from {before.value:.2f} to {after.value:.2f}"
    old, new = _score(first, HELD), _score(line, HELD)
    if old and new:
        reach = REACH * math.hypot(old.error or 0.0, new.error or 0.0)
        if new.value + reach < old.value:
            fell = f"fell from {old.value:.2f} to {new.value:.2f}"
            words = f"the share of checks passed {fell}, beyond its interval of {reach:.2f}"
            yield WatchFinding(step, "held-out", f"{rose}, and {words}")
    is_apart: dict[str, Callable[[float, float], bool]] = {
        "length": lambda old, new: not 1 / watch.longer <= new / max(old, 1e-9) <= watch.longer,
        "diversity": lambda old, new: new < watch.diverse * old,
        "adversarial": lambda old, new: new - old > watch.adversarial,
    }
    for kind, test in is_apart.items():
        old, new = _score(first, kind), _score(line, kind)
        if old and new and test(old.value, new.value):
            words = f"{SAID[kind]} went from {old.value:.2f} to {new.value:.2f}"
            yield WatchFinding(step, kind, f"{rose}, and {words}")


def _score(line: CurvePoint, name: str) -> curve.CurveScore | None:
    return curve.headline(line["metrics"].get(name))


def measures(decks: Sequence[DeckRecord], rules: str) -> Metrics:
    """The metrics of deck records that deck-reward and deck-score are done with, as a line of a
    curve holds them. rules: the name of the reward. Masked rewards and scores that are none of the
    model's are left out. The error is that of the prompts' means, since the answers to one prompt
    are alike."""
    by_prompt: dict[str, list[DeckRecord]] = defaultdict(list)
    for record in decks:
        by_prompt[records.prompt_of(dict(record))].append(record)
    values: dict[str, tuple[str, Callable[[DeckRecord], float | None]]] = {
        "reward": (rules, lambda one: one["reward"]["reward"]),
        HELD: ("share", lambda one: scoring.worth(one["score"])),
        "length": ("tokens", _tokens),
        "adversarial": ("share", _adversarial),
    }
    found: Metrics = {}
    for name, (mode, value_of) in values.items():
        groups = [[value_of(one) for one in group] for group in by_prompt.values()]
        found[name] = {mode: _mean(groups)}
    several = [group for group in by_prompt.values() if len(group) > 1]
    if several:
        texts = [[str(one["gen"].get("text") or "") for one in group] for group in several]
        found["diversity"] = {"distinct": _mean([distinct(group)] for group in texts)}
    return found


def distinct(texts: Iterable[str]) -> float | None:
    """Share of the runs of four words of several texts that are different ones; None without such runs."""
    runs: list[tuple[str, ...]] = []
    for text in texts:
        words = fold(text).split()
        runs += zip(*(words[k:] for k in range(GRAM)), strict=False)
    return len(set(runs)) / len(runs) if runs else None


def _mean(groups: Iterable[Sequence[float | None]]) -> dict[str, float | int | None]:
    """The mean of the groups' means, with its standard error; None where no value is known."""
    known = [[one for one in group if one is not None] for group in groups]
    means = [statistics.fmean(group) for group in known if group]
    if not means:
        return {"mean": None, "std_err": None, "num_entries": 0}
    mean, error = round(statistics.fmean(means), 6), None
    if len(means) > 1:
        error = round(statistics.stdev(means) / math.sqrt(len(means)), 6)
    return {"mean": mean, "std_err": error, "num_entries": len(means)}


def _tokens(record: DeckRecord) -> float | None:
    usage = record["gen"].get("usage")
    return usage.get("completion_tokens") if usage else None


def _adversarial(record: DeckRecord) -> float | None:
    """Whether a deck resembles an adversarial one, by what the checks find on its slides."""
    if record["reward"]["masked"]:
        return None
    found = (record.get("judge") or {}).get("findings") or []
    slides = {one["slide"] for one in found if one["check"] in KINDS}
    made = len((record.get("render") or {}).get("slides") or [])
    return float(len(slides) > MOST * made)
