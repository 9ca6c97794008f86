"""Where runs lie and what they are called: results/runs/<model>[+<condition>]/<protocol>[@<file>-<hash>]/.

`python3 -m decksmith.measure.results.layout` lists them (`make runs`).
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import click

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.decks import conditions
from decksmith.measure.results import text
from decksmith.measure.results.summary import rendered

RUNS = cli.ROOT / "results/runs"


def run_name(folder: Path) -> str:
    """What a run is called: its model, and the condition behind a + where it has one, where it lies under results/runs, else its folder's name."""
    model, protocol = _place(folder)
    return model if protocol else folder.resolve().name


def shown(folder: Path) -> str:
    """A run's folder as seen from the checkout, results/runs/..; elsewhere its name alone."""
    model, under = _place(folder)
    return f"results/runs/{model}/{under}" if under else model


def make_command(folder: Path) -> str:
    """The make command that makes this run, or makes it again; of a folder that is in no results/runs, with a place for
    the model's name."""
    model, under = _place(folder)
    ours = under or folder.resolve().parent.parts[-2:] == ("results", "runs")
    model, condition = conditions.split(model)
    command = f"make baseline MODEL={model if ours else 'NAME'}"
    command += f" CONDITION={condition}" if condition != conditions.PLAIN else ""
    if not under:
        return command
    protocol, _, prompts = under.partition("@")
    file = prompts.rpartition("-")[0] or f"{prompts}.jsonl"  # of a run before there was a hash
    return f"{command} PROTOCOL={protocol}" + (f" PROMPTS={file}" if prompts else "")


def finished(runs: Path | None = None) -> Iterator[Path]:
    """The run folders that have a summary, ordered by model and protocol."""
    yield from sorted(path.parent for path in (runs or RUNS).glob("*/*/summary.json"))


def missing(folder: Path) -> cli.Missing:
    """The error that says there is no such run, what to type, and which runs there are under its model."""
    held = [*folder.glob("*/summary.json"), *folder.glob("*/*/summary.json")]
    if held:
        names = ", ".join(sorted(str(path.parent) for path in held))
        return cli.Missing(f"{folder} is no run but holds {len(held)}: {names}")
    if folder.is_dir() and not _place(folder)[1]:
        return cli.Missing(
            f"{folder} is no run: it has no scores.jsonl; `make baseline MODEL=NAME` makes one, `make runs` lists those "
            "there are"
        )
    return cli.Missing(f"there is no run {folder}; `{make_command(folder)}` makes it")


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


def _place(folder: Path) -> tuple[str, str]:
    """The model and the protocol's folder of a run under some results/runs; elsewhere its name and ''."""
    # As it is named, since results may be a link to another disk; then where it really lies.
    for parts in (folder.absolute().parts, folder.resolve().parts):
        for at in range(len(parts) - 3, 0, -1):
            if parts[at - 1 : at + 1] == ("results", "runs"):
                return parts[at + 1], parts[at + 2]
    return parts[-1], ""


@cli.command(__doc__)
def main() -> None:
    click.echo("\n".join(table()))


if __name__ == "__main__":
    main()
