"""A chain of trainings, such as base, SFT, DPO, GRPO: each model against the one before it and against the first.

A run of a chain has the key `chain`: {label of an earlier run: [{"benchmark", "difference", "verdict", ..}]}, what general
benchmarks say of the two (benchmarks.metrics.note_chain).
"""

from decksmith.core.records import Record
from decksmith.measure.results import claims, text
from decksmith.measure.results.comparison import Comparison, Run, Step
from decksmith.measure.results.pairs import HEADLINE

TITLE = "The chain, step by step"
NOTE = (
    "The runs in the order in which they were given, each against the one before it and against the first. p corrected: by Holm's "
    "method over all pairs of these runs, as in the headline."
)
BENCHMARKS = (
    " General benchmarks: the difference over the same questions, p corrected over the benchmarks of each two models; worse: a "
    "loss is shown; holds: a loss of more than the benchmark's margin is ruled out (bin/bench-compare has the sentences)."
)
NO_BENCHMARKS = " No two of these models have results of a general benchmark (make regressions)."


def pairs(runs: list[Run]) -> list[tuple[Run, Run]]:
    """[(a run, an earlier one)]: the one before it, then the first, which are the same for the second run."""
    first, *later = sorted(runs, key=lambda run: run["order"])
    found, before = [], first
    for run in later:
        found.append((run, before))
        if before is not first:
            found.append((run, first))
        before = run
    return found


def steps(runs: list[Run], compared: Comparison) -> list[Step]:
    """The comparisons of a chain; the difference is the model's less the earlier one's, of the headline's measure."""
    found = []
    for run, other in pairs(runs):
        difference, pair = claims.difference(compared, run["label"], other["label"], *HEADLINE)
        if difference is None or pair is None:
            continue
        step: Step = {
            "model": run["label"],
            "against": other["label"],
            "difference": difference,
            "p_holm": pair["p_holm"],
            "family": pair["family"],
            "verdict": pair["verdict"],
            "sentence": pair["sentence"],
            "benchmarks": run["chain"].get(other["label"], []),
        }
        found.append(step)
    return found


def table(runs: list[Run], compared: Comparison) -> tuple[str, list[str], list[list[str]], str]:
    """The chain as (title, header, rows of text, note)."""
    found = steps(runs, compared)
    names = sorted({entry["benchmark"] for step in found for entry in step["benchmarks"]})
    header = ["Step", "Against", "Prompts", "Difference", "p corrected", "Verdict", *names]
    rows = []
    for step in found:
        difference = step["difference"]
        measured = {entry["benchmark"]: entry for entry in step["benchmarks"]}
        rows.append(
            [
                step["model"],
                step["against"],
                str(difference["n"]),
                text.interval(difference),
                text.p_value(step["p_holm"]),
                claims.direction(step),
                *(_benchmark(measured.get(name)) for name in names),
            ]
        )
    return TITLE, header, rows, NOTE + (BENCHMARKS if names else NO_BENCHMARKS)


def _benchmark(entry: Record | None) -> str:
    """What a benchmark says of a step; a dash where one of the two models has no results."""
    if entry is None:
        return text.DASH
    if entry["verdict"] == "refused":
        return "not compared"
    return f"{text.interval(entry['difference'])} {entry['verdict']}"
