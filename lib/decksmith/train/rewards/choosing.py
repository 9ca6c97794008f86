"""Which of several decks is taken: by X-ray findings, by a reward, or by the score of the
evaluation's own judge."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import cast

from decksmith.core import stream
from decksmith.core.records import Record, prompt_of, sample_of
from decksmith.measure.decks import lint
from decksmith.measure.decks.conditions import Condition
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.results import usage
from decksmith.train.rewards import components
from decksmith.train.rewards import rules as reward_rules
from decksmith.train.rewards.rules import Rules

RULES = "rendered"  # of assets/rewards, where a condition names none


def rules_of(table: Record, by: str) -> Rules | None:
    """The reward's rules that a table of a condition names, None where no reward decides."""
    return reward_rules.read(table.get("rules", RULES)) if by == "reward" else None


def worth(record: Record, by: str, run: str | Path, rules: Rules | None) -> float | None:
    """What a rendered deck is worth by a rule, more is better; None where its model failed.

    xray: minus the findings a slide; reward: 0 to 1 by `rules`; judge: the score that is there.
    Raises cli.BadData for a record that lacks what an earlier stage writes.
    """
    if stream.fault(record):
        return None
    if by == "judge":
        score: float | None = record["score"]["overall"]
        return score
    if by == "reward":
        assert rules
        value: float | None = components.reward(record, rules, run)["reward"]
        return value
    slides = len(record["render"].get("slides") or []) or 1
    return -round(len(lint.examine(run, record)["findings"]) / slides, 4)


def chosen(records: Iterable[Record], condition: Condition, run: str | Path) -> Iterator[Record]:
    """Of each prompt's samples, which follow each other, the best by the condition's rule, under the
    prompt's id; the first of equals. `choose` says what the others were worth and took.

    A sample that failed through no fault of its model leaves the prompt undecided: the record has
    that fault. By `judge`, records without a score pass through as they are, and so does what was
    chosen before: the same command stands before and behind the judge.
    """
    by = condition.samples["choose"]
    rules = rules_of(condition.samples, by)
    for _, group in groupby(records, prompt_of):
        samples = list(group)
        is_early = by == "judge" and "score" not in samples[0]
        if is_early or "choose" in samples[0]:
            yield from samples
            continue
        worths = [worth(sample, by, run, rules) for sample in samples]
        best = max(range(len(samples)), key=lambda k: (_or_least(worths[k]), -k))
        value: Record = {
            "rule": by if rules is None else f"{by} {rules.name} {rules.sha256[:12]}",
            "k": sample_of(samples[best]),
            "n": condition.n,
            "worth": worths,
            "spent": usage.of_all(cast(list[DeckRecord], samples)),
        }
        if lost := _lost(samples, condition.n):
            value["error"] = lost
        yield {**samples[best], "id": prompt_of(samples[best]), "choose": value}


def _or_least(value: float | None) -> float:
    return float("-inf") if value is None else value


def _lost(samples: list[Record], n: int) -> Record | None:
    """Why nothing can be chosen, as an error, or None."""
    for sample in samples:
        fault = stream.fault(sample)
        if fault and fault["kind"] != "model":
            said = f"{sample['id']}: {fault['message']}"
            return {"kind": fault["kind"], "class": fault["class"], "message": said}
    if len(samples) < n:
        said = f"{len(samples)} of {n} samples arrived; run again"
        return {"kind": "infra", "class": "samples-missing", "message": said}
    return None
