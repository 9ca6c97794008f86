"""Where runs lie and what they are called: results/runs/<model>[+<condition>]/<protocol>[@<file>-<hash>]/."""

from collections.abc import Iterator
from pathlib import Path

from decksmith.core import cli
from decksmith.measure.decks import conditions

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


def _place(folder: Path) -> tuple[str, str]:
    """The model and the protocol's folder of a run under some results/runs; elsewhere its name and ''."""
    # As it is named, since results may be a link to another disk; then where it really lies.
    for parts in (folder.absolute().parts, folder.resolve().parts):
        for at in range(len(parts) - 3, 0, -1):
            if parts[at - 1 : at + 1] == ("results", "runs"):
                return parts[at + 1], parts[at + 2]
    return parts[-1], ""
