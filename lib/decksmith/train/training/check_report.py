"""What is wrong with a training run before it begins, rule by rule, and the report of it for people."""

import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decksmith.core import cli
from decksmith.core.records import Optionals
from decksmith.train.training.records import CheckFailure

ELIDED = 1200  # of a long text, so many characters are shown
SHOWN = 10  # findings of one rule that are listed; the rest is counted

# Each rule with what to do about it.
RULES: dict[str, str] = tomllib.loads((cli.ROOT / "assets/remedies.toml").read_text())["train"]

Report = dict[str, Any]  # what preflight.check and rl_check.check return


class Findings:
    """What is wrong, by rule: all counted, the first few kept with place and words."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.listed: list[CheckFailure] = []

    def add(
        self, rule: str, message: str, file: Path, line: int | None = None, ident: str | None = None
    ) -> None:
        """Add a finding in a file; `ident` is the id of a row."""
        self.counts[rule] += 1
        if self.counts[rule] <= SHOWN:
            place: CheckFailure = {"rule": rule, "file": str(file), "line": line, "id": ident}
            self.listed.append({**place, "message": message, "remedy": RULES[rule]})


def lines(report: Report) -> Iterator[str]:
    """One line for each failure: place, id, rule, what, what to do."""
    for found in report["failures"]:
        place = found["file"]
        if found["line"] is not None:
            place += f":{found['line']}"
        parts = [place, found["id"], found["rule"], f"{found['message']}; {found['remedy']}"]
        yield ": ".join(part for part in parts if part)
    for rule, count in report["counts"].items():
        if count > SHOWN:
            yield f"{rule}: {count - SHOWN} more"


def marked(trained: bool, text: str) -> str:
    """A part of a row for stderr: long ones cut, what is trained in green, off a terminal in [[ ]]."""
    if len(text) > ELIDED:
        cut, half = f"{len(text) - ELIDED:,} characters", ELIDED // 2
        text = f"{text[:half]} .. {cut} .. {text[-half:]}"
    if not trained:
        return text
    return f"\033[32m{text}\033[0m" if sys.stderr.isatty() else f"[[{text}]]"


def table(report: Report) -> Iterator[tuple[str, str]]:
    """The report as lines of a table, (what, how it stands)."""
    yield "model", str(report["model"])
    yield "keys", f"compared with {report['parent']['keys']}"
    if rows := report.get("rows"):
        yield "rows", _facts(rows)
    if prompted := report.get("prompted"):
        yield "our system prompt", f"begins {_facts(prompted)} of them"
    if "batch" in report:
        epoch = f"floor({report['rows'].get('train', 0):,} / {report['batch']})"
        over = f"{report['left_over']} rows left over in each"
        yield "steps", f"{report['steps']} = {report['epochs']} epochs x {epoch}, {over}"
    if "rollouts" in report:
        yield "steps", f"{report['steps']} of {report['rollouts']} rollouts"
    for side, found in report.get("tokens", {}).items():
        limit = {"limit": report["limit"]} if "limit" in report else {}
        yield f"tokens, {side}", _facts({**found, **limit})
    if "held_out" in report:
        held, how = report["held_out"], report["compared"]
        yield "held out", f"{held:,} requests of evaluations, compared by {how}"
    if pairing := report.get("pairing"):
        yield "trainer", _pairing(pairing)
    if planted := report.get("planted"):
        yield "planted sample", _facts(planted)
    if pace := report.get("pace"):
        seconds, decks = pace["reward_seconds"], pace["decks_a_minute"]
        yield "rewards", f"{seconds} s a step at {decks:g} decks a minute"
    if judge := report.get("judge"):
        yield "judge", f"{_facts(judge)}: the run's rewards, validation on top"
    for when, parts in report.get("memory_gib", {}).items():
        yield f"memory, {when}", f"{_facts(parts)} GiB a GPU, estimated"
    if lora := report.get("lora"):
        trained, whole = lora["trainable"] / 1e6, lora["of"] / 1e6
        size = f"{trained:.1f} M of {whole:,.0f} M parameters ({lora['source']})"
        yield "adapter", f"rank {lora['rank']} on {lora['modules']:,} modules, {size}"
        touched = [f"{name} {some}/{every}" for name, (some, every) in lora["classes"].items()]
        yield "", ", ".join(touched)
    if estimate := report.get("estimate"):
        yield from _estimated(estimate)
    for what in report["unchecked"]:
        yield "not checked", what


def _estimated(estimate: Report) -> Iterator[tuple[str, str]]:
    if memory := estimate.get("memory_gib"):
        yield "memory", f"{_facts(memory)} GiB a device, estimated"
    if estimate.get("hours") is not None:
        gpus = f", {estimate['gpu_hours']} GPU-hours" if estimate["gpu_hours"] else ""
        yield "time", f"about {estimate['hours']} h{gpus}, estimated ({estimate['pace']})"
    saved, free = estimate["checkpoints_gib"], estimate["free_gib"]
    yield "disk", f"checkpoints up to {saved} GiB, {free} GiB free"


MASKS = {
    "none": "a deck without a reward gets the mean of the others, which moves nothing",
    "loss": "a deck without a reward trains nothing, and has the mean of the others",
}


def _pairing(found: dict[str, str]) -> str:
    """A trainer and what it carries, in words."""
    parts = {"NeMo Gym": "gym", "Python": "python", "vLLM": "vllm"}
    carries = [f"{word} {found[key]}" for word, key in parts.items() if key in found]
    return "; ".join(
        [", ".join([found["trainer"], *carries]), MASKS.get(found.get("mask", ""), "")]
    )


def _facts(found: Optionals) -> str:
    """Numbers with their names."""
    said = {name: "none" if one is None else f"{one:,}" for name, one in found.items()}
    return ", ".join(f"{name.replace('_', ' ')} {one}" for name, one in said.items())
