"""docs/maintain/rehearsal-rl.md, of the last `make rehearsal-rl` in this checkout: what its phases took and what may be said.

Printed; `make rl-page` keeps it.
"""

import json

from decksmith.core import cli

RUN = cli.ROOT / "results/rehearsal-rl"


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
    print((RUN / "grpo/curve/curve.md").read_text().strip())


if __name__ == "__main__":
    main()
