"""NeMo Gym's words for a reward (nemo-gym 0.7.0): what its resources servers answer, and the statistics that they keep."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from decksmith.core.records import Record
from decksmith.rewards.components import contributions
from decksmith.rewards.rows import spoken
from decksmith.rewards.rules import Rules

# Gym's shared names of what failed, by our cause; what it has no name for is ours (nemo_gym.failure_kinds).
KINDS = {
    "overload": "provider_quota_exhausted",
    "deserted": "cancelled",
    "infra": "provider_unavailable",
    "renderer": "verifier_error",
    "judge": "judge_failed",
    "scorer": "verifier_error",
    "row": "decksmith:row_without_prompt",
}
TASK, ROLLOUT = "_ng_task_index", "_ng_rollout_index"
STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "max": max,
    "min": min,
    "median": statistics.median,
    "std": lambda values: statistics.stdev(values) if len(values) > 1 else 0.0,
}


def reply(response: Record) -> str:
    """The text of the last message in an answer of OpenAI's Responses; empty where there is none."""
    items = response.get("output")
    for item in reversed(items if isinstance(items, list) else []):
        if isinstance(item, dict) and item.get("type") == "message":
            return spoken(item.get("content"))
    return ""


def verified(body: Record, value: Record, rules: Rules) -> Record:
    """The answer of /verify: the request and its reward. `reward_components` sum to the reward, the same names for each
    row; `component_NAME` is each component as it was measured, for Gym's statistics."""
    said = {
        **body,
        "reward": value["reward"] or 0.0,
        "reward_components": shares(value, rules),
        **{f"component_{name}": quality for name, quality in value["components"].items()},
        "mask_sample": value["masked"],
        "failure_kind": None,
        "failure_reason": None,
    }
    if value["masked"]:
        said |= {"failure_kind": KINDS.get(value["cause"], "verifier_error")}
        said |= {"failure_reason": value["why"]}
    return said


def shares(value: Record, rules: Rules) -> dict[str, float]:
    """What each component with a weight brings to the reward, gates included; together they are the reward."""
    parts = contributions(value["components"], rules)
    total = sum(parts.values())
    scale = (value["reward"] or 0.0) / total if total else 0.0
    return {name: parts.get(name, 0.0) * scale for name in rules.weights}


def aggregated(responses: list[Record]) -> Record:
    """The answer of /aggregate_metrics: mean, max, min, median and standard deviation of each number of the responses, those
    of their tokens too, over all (`agent_metrics`) and by task (`group_level_metrics`). What is masked is counted and nothing
    else."""
    kept = [one for one in responses if not one.get("mask_sample")]
    tasks: defaultdict[Any, list[Record]] = defaultdict(list)
    for one in kept:
        tasks[one.get(TASK)].append(one)
    overall = _summary(kept) | _coverage(responses, kept)
    shown = ("mean/", "coverage/")
    return {
        "group_level_metrics": [{TASK: task, **_summary(rows)} for task, rows in tasks.items()],
        "agent_metrics": overall,
        "key_metrics": {name: each for name, each in overall.items() if name.startswith(shown)},
    }


def _coverage(responses: list[Record], kept: list[Record]) -> dict[str, float]:
    """How many rollouts and tasks the statistics are of, where some were masked."""
    if len(kept) == len(responses):
        return {}
    every, measured = ({one.get(TASK) for one in rows} for rows in (responses, kept))
    return {
        "coverage/measured_rollouts": len(kept),
        "coverage/masked_rollouts": len(responses) - len(kept),
        "coverage/measured_tasks": len(measured),
        "coverage/fully_masked_tasks": len(every - measured),
    }


def _summary(rows: list[Record]) -> dict[str, float]:
    """{"mean/reward": .., ..} of the numbers at the top of rows."""
    columns: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, number in _numbers(row):
            columns[name].append(number)
    return {
        f"{how}/{name}": float(function(values))
        for how, function in STATISTICS.items()
        for name, values in columns.items()
    }


def _numbers(row: Record) -> list[tuple[str, float]]:
    response = row.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    columns = {**row, **(usage if isinstance(usage, dict) else {})}
    return [
        (name, float(value))
        for name, value in columns.items()
        if not name.startswith("_")
        and name != "mask_sample"
        and isinstance(value, bool | int | float)
        and math.isfinite(value)
    ]
