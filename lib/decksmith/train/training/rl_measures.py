"""What a training on rewards does to decks, measured at a checkpoint: the reward, what the reward does
not see, and what tells decks that please it alone.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from decksmith.core import records
from decksmith.measure.decks.words import fold
from decksmith.measure.judging import scoring
from decksmith.measure.judging.records import DeckRecord
from decksmith.train.training.records import Metrics

GRAM = 4  # words
# What the checks find where a deck resembles an adversarial one: it repeats the request or itself, its words are no
# language, its text cannot be seen.
KINDS = ("echo", "twice", "bare", "reads", "unreadable", "low-contrast", "markup")
MOST = 0.25  # of a deck's slides


def measures(decks: Sequence[DeckRecord], rules: str) -> Metrics:
    """The metrics of deck records that deck-reward and deck-score are done with, as a line of a curve holds them. rules: the name
    of the reward. Masked rewards and scores that are none of the model's are left out. The error is that of the prompts' means,
    since the answers to one prompt are alike."""
    by_prompt: dict[str, list[DeckRecord]] = defaultdict(list)
    for record in decks:
        by_prompt[records.prompt_of(dict(record))].append(record)
    values: dict[str, tuple[str, Callable[[DeckRecord], float | None]]] = {
        "reward": (rules, lambda one: one["reward"]["reward"]),
        "checks": ("share", lambda one: scoring.worth(one["score"])),
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
