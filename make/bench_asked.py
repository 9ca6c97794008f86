"""How a benchmark or a group is asked, for make/bench.

python3 make/bench_asked.py flags NAME:N MODEL    the flags of chat-generate
python3 make/bench_asked.py parts GROUP           its benchmarks, with so many questions
python3 make/bench_asked.py costs GROUP MODEL ..  what asking paid models takes; a terminal is asked
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
from decksmith.bench.benchmarks import groups, tasks  # noqa: E402
from decksmith.core import cli  # noqa: E402
from decksmith.measure.results import cost_prompt  # noqa: E402
from decksmith.models import registry  # noqa: E402


def flags(each: str, model: str | None = None) -> str:
    """The flags of chat-generate for "NAME:N" (N samples; without N those of the benchmark) and a
    model of the registry.

    One sample is asked at temperature 0, several at 0.7 and top-p 0.95 with seeds, as NeMo-Skills
    does; the model's own params win, of max_tokens the smaller does.
    """
    name, _, samples = each.partition(":")
    spec, known = tasks.load(name), registry.models()
    own = known[model].params if model in known else {}
    if samples and not samples.isdecimal():
        raise cli.BadConfig(f"{each!r} is no NAME:N")
    n = int(samples or spec["samples"]) or 1
    wanted: dict[str, float] = {"temperature": 0.0}
    if n > 1:
        wanted = {"samples": n, "seed": 0, "temperature": 0.7, "top_p": 0.95}
    wanted = {key: value for key, value in wanted.items() if key not in own}
    if "max_tokens" in spec:
        wanted["max_tokens"] = min(spec["max_tokens"], own.get("max_tokens", spec["max_tokens"]))
    return " ".join(f"--{key.replace('_', '-')} {value}" for key, value in wanted.items())


def agreed(name: str, models: Sequence[str]) -> None:
    """Say what asking a group of paid models takes at most, and ask a terminal whether to. Raises cli.BadConfig for a
    model that is not there, and where nobody can answer."""
    group = groups.load(name)
    bills = []
    for each in models:
        entry, done = registry.model(each), cli.ROOT / "results/bench" / each / name
        parts = [
            one for one in group["parts"] if not (done / one["bench"] / "rows.jsonl").is_file()
        ]
        asked = sum(part["questions"] for part in parts)
        if not asked or not cost_prompt.costs(entry):
            continue
        read, written = (
            sum(part["questions"] * part["tokens"][k] for part in parts) / asked for k in (0, 1)
        )
        price = entry.price or cost_prompt.listed(entry)
        bills.append(cost_prompt.Bill(entry, "gen", asked, read, written, False, None, price))
    budget = os.environ.get("BUDGET")
    cost_prompt.agree(bills, bool(os.environ.get("YES")), float(budget) if budget else None)


def main(what: str, name: str, *models: str) -> None:
    if what == "flags":
        print(flags(name, *models))
    elif what == "costs":
        agreed(name, models)
    else:
        for part in groups.load(name)["parts"]:
            print(part["bench"], part["questions"])


if __name__ == "__main__":
    cli.ends_with(lambda: main(*sys.argv[1:]))
