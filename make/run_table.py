"""The finished runs, a line each: `make runs`."""

import sys
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import click  # noqa: E402
from decksmith.core import cli, stream  # noqa: E402
from decksmith.core.records import Record  # noqa: E402
from decksmith.measure.results import text  # noqa: E402
from decksmith.measure.results.layout import RUNS, finished, make_command  # noqa: E402
from decksmith.measure.results.summary import rendered  # noqa: E402


def table(runs: Path | None = None) -> list[str]:
    """The finished runs, a line each: model, protocol, how many decks render, how good these are, USD and day."""
    rows = [["model", "protocol", "renders", "score", "USD", "made"]]
    for folder in finished(runs):
        path = folder / "summary.json"
        summary, made = stream.json_file(path), datetime.fromtimestamp(path.stat().st_mtime)
        own = stream.fingerprint({**summary, "by": None})
        if (summary.get("by") or {}).get("sum", own) != own:
            cli.say(f"{path} is damaged on its disk: rm {path} && {make_command(folder)}")
            continue
        cells = [folder.parent.name, folder.name, rendered(summary), _score(summary)]
        rows.append([*cells, _cost(summary), f"{made:%Y-%m-%d %H:%M}"])
    if len(rows) == 1:
        return [f"no finished run in {runs or RUNS}; `make baseline` makes the first"]
    lines = text.columns(rows, len(rows[0]))
    return [*lines, "", "The folder of a run is results/runs/MODEL/PROTOCOL."]


def _score(summary: Record) -> str:
    """`61 % of checks`, or `3.31 of 5` where a judge read the decks."""
    means = summary["means"]["renderable"]
    if edit := summary["means"].get("floor", {}).get("edit"):
        return f"{text.whole_percent(edit['mean'])} of edits"
    if checks := means.get("checks"):
        return f"{text.whole_percent(checks['mean'])} of checks"
    return f"{means['overall']['mean']:.2f} of 5" if "overall" in means else "-"


def _cost(summary: Record) -> str:
    costs = [summary.get("cost"), summary.get("judge_cost")]
    known = [cost for cost in costs if cost is not None]
    if 0 < sum(known) < 0.005:
        return "<0.01"  # 0.00 is what costs nothing
    return f"{sum(known):.2f}" if known else "-"


if __name__ == "__main__":
    cli.command(__doc__)(lambda: click.echo("\n".join(table())))()
