"""docs/maintain/rehearsal-rl.md, of the last `make rehearsal-rl` in this checkout: what its phases took and what may be said.

Printed; `make rl-page` keeps it.
"""

import json
from collections.abc import Iterator

from decksmith.core import cli
from decksmith.train.training import curve

RUN = cli.ROOT / "results/rehearsal-rl"


def read(name: str) -> list[dict]:
    """The records of a file of the run of GRPO."""
    return [json.loads(line) for line in (RUN / "grpo" / name).read_text().splitlines()]


def table(curve_lines: list[dict], trained: list[dict]) -> Iterator[str]:
    """A row for each checkpoint, then one for each trained step."""
    names = list(dict.fromkeys(name for line in curve_lines for name in line.get("metrics") or {}))
    yield f"| step | {' | '.join(names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for line in curve_lines:
        scores = [curve.headline((line.get("metrics") or {}).get(name)) for name in names]
        yield f"| {line['step']} | {' | '.join(map(cell, scores))} |"
    yield ""
    yield "| step | reward of its answers | KL, nats a token | tokens |"
    yield "|---|---|---|---|"
    for one in trained:
        if "reward" in one:
            shown = f"{one['reward']:.3f} | {one['kl']:.5f} | {one['tokens']:.0f}"
            yield f"| {one['step']} | {shown} |"


def cell(score: curve.CurveScore | None) -> str:
    """A score with its 95 % interval."""
    if score is None:
        return ""
    error = "" if score.error is None else f" ± {1.96 * score.error:.3f}"
    return f"{score.value:.3f}{error}"


def main() -> None:
    phases = [json.loads(line) for line in (RUN / "phases.jsonl").read_text().splitlines()]
    took: dict[str, float] = {}
    for phase in phases:  # one that was killed has a line for each start
        took[phase["phase"]] = took.get(phase["phase"], 0) + phase["seconds"]
    compared = (cli.ROOT / "results/reports/rehearsal-rl/compare.md").read_text()
    print("# The second act, as it went once\n")
    print("Written by `make rl-page`, of the `make rehearsal-rl` before it ([rl.md](rl.md)).\n")
    print("| phase | minutes |\n| --- | ---: |")
    for name, seconds in took.items():
        print(f"| {name} | {seconds / 60:.1f} |")
    print(f"| all | {sum(took.values()) / 60:.1f} |\n")
    print(compared[compared.index("**What was found") : compared.index("**Scores")])
    print("GRPO on held-out prompts, then the answers that it was trained on:\n")
    for line in table(read("curve/curve.jsonl"), read("metrics.jsonl")):
        print(line)


if __name__ == "__main__":
    main()
