"""A comparison as tables of text cells, and as markdown."""

import json
import textwrap
from collections.abc import Iterable
from statistics import fmean

from decksmith.core import stream
from decksmith.core.records import ChecklistItem, Record, prompt_of
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.judging.scoring import JUDGED
from decksmith.measure.results import claims, cost_table, stats, text
from decksmith.measure.results.claims import ranked, settings
from decksmith.measure.results.comparison import Comparison, CostTable, Pair, Run
from decksmith.measure.results.pairs import ACCOUNTINGS, better, is_headline
from decksmith.measure.results.records import Mean, Summary
from decksmith.measure.results.runs import caption, measures, titles
from decksmith.measure.results.summary import BESIDE, columns, domains, fault_of, means
from decksmith.measure.results.text import few

Table = tuple[str, list[str], list[list[str]], str]  # title, header, rows, note

HAPPENED = (
    "Truncated: cut off at the token limit. Faults: whose doing it was that a deck has no score. Capped: decks in which something the "
    "judge saw limits a score."
)
APART = " Judges apart: the mean distance of two judges of the panel, in points of a dimension."
NOTES = (
    "Means over prompts with 95 % intervals. Prompts of one domain resemble each other, so a domain counts as one observation. "
    "floor: a failure counts as 1 where a judge reads, of a share as 0. renderable: only decks that rendered. all scored: prompts for "
    "which every model's deck rendered. Faults of the renderer, the judge and the network are in none. Where failures are counted, "
    "intervals of fewer than about 30 prompts are wide on purpose: they allow for failures that did not occur."
)
FAMILY = (
    "The headline has two tests: how many render, and how good the decks are where both render. p is corrected for the number of "
    "comparisons. d: mean difference over its standard deviation. Bounds: what the decks without a score could make of the "
    "difference. docs/statistics.md has the methods."
)
DOMINATED = (
    "Of all samples and revisions, not only of what was kept; no judging but one that chose. Dominated by: that run's mean score is "
    "as high or higher, and a deck of it costs no more ({unit}); whether the scores are separated is said in the headline."
)
# What an item's @.. can name.
ELEMENTS = {"code", "mermaid", "katex", "table", "image", "two-cols", "quote", "cover", "end"}
CHECKED = "Items answered yes with the slide that shows each, and the mean share over prompts."
CHAIN = "The chain, step by step"
CHAIN_NOTE = (
    "The runs in the order in which they were given, each against the one before it and against the first. p corrected: by Holm's "
    "method over both measures and all pairs of these runs, as in the headline."
)
BENCHMARKS = (
    " General benchmarks: the difference over the same questions, p corrected over the benchmarks of each two models; worse: a "
    "loss is shown; holds: a loss of more than the benchmark's margin is ruled out (bin/bench-compare has the sentences)."
)
NO_BENCHMARKS = " No two of these models have results of a general benchmark (make regressions)."
ASKED = "How the models were asked"
SHOWN = [("floor", "overall"), ("floor", "judge_only")]


def markdown(runs: list[Run], compared: Comparison) -> str:
    """The comparison as markdown, models by their names; the headline comes last."""
    protocol = (runs[0]["protocol"].get("hash") or "unknown")[:12]
    lines = [f"{caption(runs)}. Protocol {protocol}.", ""]
    for title, header, rows, note in tables(runs, compared):
        words = {"What happened": 1, ASKED: len(header)}.get(title, 2)
        lines += [f"**{title}**", "", *text.markdown_table(header, rows, words), ""]
        if note:
            lines += [note, ""]
    return "\n".join([*lines, *headline(compared)]) + "\n"


def brief(runs: list[Run], compared: Comparison, width: int) -> str:
    """What a terminal of so many columns shows: who wrote how many decks, what they scored, and what may be said of it."""
    good = better(runs)[1]
    shown = [name for name in ("design", "content", "coherence") if name in measures(runs)]
    rows = [["model", "renders", titles(runs)[good].lower(), *shown, "cost"]]
    for run in runs:
        summary, drawn = run["summary"], run["summary"]["means"]["renderable"]
        means_of = [text.interval(drawn.get(name)).partition(" ")[0] for name in shown]
        price = text.price(summary["cost"])
        rows.append([run["label"], renders(run), goodness(drawn.get(good), good), *means_of, price])
    lines = [*textwrap.wrap(f"{caption(runs)}.", width), "", *_fitting(rows, width), ""]
    if cost := compared.get("costs"):
        lines += [*_costs(runs, cost, width), ""]
    for line in headline(compared):
        lines += textwrap.wrap(line.replace("**", ""), width, subsequent_indent="  ") or [""]
    return "\n".join(lines) + "\n"


def renders(run: Run) -> str:
    """`12 of 12`: how many decks of a run render."""
    summary = run["summary"]
    return f"{summary['rendered']} of {summary['n']}"


def goodness(mean: Mean | None, measure: str) -> str:
    """How good the decks that render are: `61 %` of the checks, or `3.31 [3.02, 3.60]` of 5."""
    if mean is None or mean["mean"] is None:
        return text.DASH
    return f"{mean['mean']:.0%}".replace("%", " %") if measure == "checks" else text.interval(mean)


def _costs(runs: list[Run], cost: CostTable, width: int) -> list[str]:
    """What each run adds, and what a deck of it takes, for a terminal."""
    rows = [["model", "tokens a deck", "seconds", "USD", "dominated by"]]
    said = []
    for run in runs:
        label, took = run["label"], cost["runs"][run["label"]]
        cells = [_took(took[kind], kind).partition(" ")[0] for kind in cost_table.KINDS]
        rows.append([label, *cells, cost["dominated"].get(label, text.DASH)])
        if under := run["summary"]["model"].get("condition"):
            said += textwrap.wrap(f"{label}: {'; '.join(under['adds'])}", width)
    return [*_fitting(rows, width), "", *said]


def _fitting(rows: list[list[str]], width: int) -> list[str]:
    """The table with as many of its columns as fit, aligned; the last goes first, the model's name is cut."""
    cells = [[row[0][:36], *row[1:]] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width and len(widths) > 2:
        widths.pop()
    padded = [[cell.ljust(n) for cell, n in zip(row, widths, strict=False)] for row in cells]
    return ["  ".join(row).rstrip() for row in padded]


def headline(compared: Comparison) -> list[str]:
    """The lines that sum up the comparison: what is claimed, with the range of ranks it leaves open, and under what caveats."""
    lines: list[str] = []
    if len(compared["runs"]) > 1:
        looks = compared["looks"]["said"] if "looks" in compared else []
        order = ranked(compared)
        lines += ["**What was found**", ""]
        lines += [
            f"- {said}" for said in [*compared["headlines"], *([order] if order else []), *looks]
        ]
    if reasons := limited(compared):
        if lines:
            lines.append("")
        lines += ["**What limits this**", "", *(f"- {reason}" for reason in reasons)]
    return lines


def limited(compared: Comparison) -> list[str]:
    """What a reader of the headline must know beside it, one sentence each."""
    said = [*compared["caveats"], *compared["taught"], *compared["kin"]]
    if unshipped := compared["unshipped"]:
        more = " .." if unshipped[3:] else ""
        said.append(f"the protocol is not the shipped one: {'; '.join(unshipped[:3])}{more}")
    for label, idents in compared["left_out"].items():
        if idents:
            said.append(
                f"{label}: {len(idents)} of its decks are left out, which not all have ({few(idents)})"
            )
    return said


def tables(runs: list[Run], compared: Comparison) -> list[Table]:
    """Every table of a comparison, cells as text."""
    several = len(runs) > 1
    found = [happened_table(runs)]
    if several:
        found.append(asked_table(runs, compared))
    found.append(scores_table(runs))
    if cost := compared.get("costs"):
        found.append(conditions_table(runs, cost))
    if several:
        found.append(paired_table(compared))
    if several and "chain" in runs[0]:
        found.append(chain_table(runs, compared))
    of_items = checklist_table(runs)
    return [*found, of_items] if len(of_items[2]) > 1 else found


def happened_table(runs: list[Run]) -> Table:
    """What became of the decks of each run, and what they took."""
    header = ["Model", "n", "Rendered", "Truncated"]
    header += [f"{kind.capitalize()} faults" for kind in stream.KINDS]
    panel = any(run["summary"].get("disagreement") for run in runs)
    header += ["Capped", *(["Judges apart"] if panel else [])]
    header += ["Tokens in", "Tokens out", "Cost", "Wall"]
    rows = []
    for run in runs:
        summary = run["summary"]
        n, cut = summary["n"], summary["truncated"]
        partial = f" ({summary['partial']} in part)" if summary["partial"] else ""
        share = f" ({100 * cut / n:.0f} %)" if cut else ""
        rows.append(
            [
                run["label"],
                str(n),
                f"{summary['rendered']}{partial}",
                f"{cut}{share}",
                *(str(summary["faults"]["kinds"][kind]) for kind in stream.KINDS),
                str(summary["capped"]),
                *([_apart(summary)] if panel else []),
                *spent(summary),
            ]
        )
    return "What happened", header, rows, HAPPENED + (APART if panel else "")


def _apart(summary: Summary) -> str:
    """How far the judges of a panel are apart, over the three dimensions, as text."""
    apart = summary.get("disagreement") or {}
    points = [apart[name] for name in JUDGED if name in apart]
    return f"{fmean(points):.2f}" if points else "unknown"


def spent(summary: Summary) -> list[str]:
    """Tokens in, tokens out, cost and wall time as text."""
    tokens = summary["tokens"]
    known = ["unknown", "unknown"]
    if tokens["records"]:
        known = [f"{tokens[name]:,}" for name in ("prompt", "completion")]
    return [*known, text.price(summary["cost"]), text.duration(summary["by"]["wall_s"])]


def scores_table(runs: list[Run]) -> Table:
    """The means of each run under each accounting, and where there are several over the prompts that all have scored."""
    shown, named = measures(runs), titles(runs)
    header = ["Model", "Accounting", "Prompts", *(named.get(measure, measure) for measure in shown)]
    rows = []
    for run, common in zip(runs, _scored_by_all(runs), strict=True):
        accountings = dict(run["summary"]["means"])
        if len(runs) > 1:
            accountings["all scored"] = common
        for accounting, found in accountings.items():
            n = max((mean["n"] for mean in found.values()), default=0)
            cells = [text.interval(found.get(measure)) for measure in shown]
            rows.append([run["label"], accounting, str(n), *cells])
    beside = [named[measure] for measure in shown if measure in BESIDE]
    note = f" {text.listed(beside)}: shares, 0 to 1, no part of the score." if beside else ""
    return "Scores", header, rows, NOTES + note


def _scored_by_all(runs: list[Run]) -> list[dict[str, Mean]]:
    """For each run its means over the prompts for which every run has a rendered and scored deck."""
    found = [columns(run["records"], "renderable") for run in runs]
    good = better(runs)[1]
    common = set.intersection(*(set(table.get(good, {})) for table in found))
    for table in found:
        for measure, cells in table.items():
            table[measure] = {prompt: cells[prompt] for prompt in cells if prompt in common}
    return [
        means(table, domains(run["records"]), "renderable")
        for run, table in zip(runs, found, strict=True)
    ]


def conditions_table(runs: list[Run], cost: CostTable) -> Table:
    """What each run adds to asking once, what its decks took, and which other run does as well for less."""
    good = better(runs)[1]
    header = ["Run", "What it adds", titles(runs)[good]]
    header += [f"{cost_table.TITLES[kind]} a deck" for kind in cost_table.KINDS]
    header += ["Dominated by"]
    rows = []
    for run in runs:
        under = run["summary"]["model"].get("condition")
        overall = goodness(run["summary"]["means"]["renderable"].get(good), good)
        took = cost["runs"][run["label"]]
        cells = [_took(took[kind], kind) for kind in cost_table.KINDS]
        adds = "; ".join(under["adds"]) if under else text.DASH
        beaten = cost["dominated"].get(run["label"], text.DASH)
        rows.append([run["label"], adds, overall, *cells, beaten])
    unit = cost_table.UNITS[cost["unit"]]
    return "Conditions and what they cost", header, rows, DOMINATED.format(unit=unit)


def _took(found: Mean | None, kind: str) -> str:
    """The mean of what a deck took, with its interval."""
    if found is None or found["mean"] is None:
        return "unknown"
    form = "{:,.4f}" if kind == "usd" else "{:,.0f}" if found["mean"] >= 100 else "{:,.1f}"
    mean = form.format(found["mean"])
    if found["lo"] is None:
        return mean
    return f"{mean} [{form.format(found['lo'])}, {form.format(found['hi'])}]"


def asked_table(runs: list[Run], compared: Comparison) -> Table:
    """How the models were asked; a row for each setting that differs."""
    labels = [run["label"] for run in runs]
    read = [run["label"] for run in runs if run["summary"]["model"].get("files")]
    silent = [run["label"] for run in runs if not settings(run) and run["label"] not in read]
    rows = []
    for entry in compared["asked"]:
        values = entry["values"]
        cells = [_setting(values[each]) if each in values else "unknown" for each in labels]
        rows.append([entry["setting"], *cells])
    if not rows:
        known = dict.fromkeys(silent, "unknown") | dict.fromkeys(read, "not asked")
        rows = [["every setting", *(known.get(label, "the same") for label in labels)]]
    note = f"What was sent to {text.listed(silent)} is not recorded." if silent else ""
    hashes = {run["summary"]["asked"]["sha256"] for run in runs}
    if len(hashes) == 1 and None not in hashes:
        note = "All requests are the same but for the model's name."
    if read:
        note += f" {text.listed(read)}: read from a folder; nobody was asked."
    return ASKED, ["Setting", *labels], rows, note


def _setting(value: object) -> str:
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def chain_table(runs: list[Run], compared: Comparison) -> Table:
    """Each step of a chain of trainings, with what benchmarks say of it."""
    steps = claims.chain_steps(runs, compared)
    names = sorted({entry["benchmark"] for step in steps for entry in step["benchmarks"]})
    header = ["Step", "Against", "Of", "Prompts", "Difference", "p corrected", "Verdict", *names]
    rows = []
    for step in steps:
        difference, p = step["difference"], text.p_value(step["p_holm"])
        measured = {entry["benchmark"]: entry for entry in step["benchmarks"]}
        title = compared["titles"][step["measure"]]
        row = [step["model"], step["against"], title, str(difference["n"])]
        rows.append([*row, text.interval(difference), p, claims.direction(step)])
        rows[-1] += [_benchmark(measured.get(name)) for name in names]
    return CHAIN, header, rows, CHAIN_NOTE + (BENCHMARKS if names else NO_BENCHMARKS)


def _benchmark(entry: Record | None) -> str:
    """What a benchmark says of a step; a dash where one of the two models has no results."""
    if entry is None:
        return text.DASH
    if entry["verdict"] == "refused":
        return "not compared"
    return f"{text.interval(entry['difference'])} {entry['verdict']}"


def paired_table(compared: Comparison) -> Table:
    """The differences by prompt of every pair, with their tests."""
    header = ["Difference", "Of", "Prompts", "Mean", "Bounds", "p", "p corrected"]
    header += ["Win/tie/loss", "d"]
    rows = [
        _paired(pair, compared["titles"][pair["measure"]])
        for pair in compared["pairs"]
        if pair["clause"] or (pair["accounting"], pair["measure"]) in SHOWN
    ]
    return "Paired by prompt", header, rows, f"{FAMILY} {rule(compared)}"


def _paired(pair: Pair, title: str) -> list[str]:
    found, bounds, tests = pair["difference"], pair.get("bounds"), [text.DASH, text.DASH]
    mean, effect = text.interval(found), text.DASH
    if found["n"] >= stats.FEWEST:
        tests = [text.p_value(found["p"]), text.p_value(pair["p_holm"])]
        effect = text.DASH if found["effect"] is None else text.figure(found["effect"])
    elif found["n"]:
        mean = text.figure(found["mean"] or 0)
    return [
        f"{pair['a']} minus {pair['b']}",
        f"{title}, {ACCOUNTINGS[pair['accounting']]}",
        str(found["n"]),
        mean,
        text.bounds(bounds["least"], bounds["most"]) if bounds else text.DASH,
        *tests,
        f"{found['wins']}/{found['ties']}/{found['losses']}",
        effect,
    ]


def rule(compared: Comparison) -> str:
    """On what the headline's intervals rest, in one sentence."""
    counts = {pair["difference"]["clusters"] for pair in compared["pairs"] if is_headline(pair)}
    if not counts:
        return ""
    return f"Intervals and p of the headline: {' or '.join(map(stats.rule, sorted(counts)))}."


# The checklists of the prompts: binary items, each with the slide that shows it. Where renderer, judge or network failed
# nothing is known, and the deck is left out.


def checklist_families(records: Iterable[DeckRecord]) -> dict[str, Record]:
    """`{family: {"yes", "n", "prompts", "share"}}` of scored records: items satisfied, items in all, prompts that have
    any, and the mean over these prompts of their share, with its interval (`stats.mean`).

    An item belongs to the element it asks for (`table`, `mermaid` ..), else to `facts`. Samples of one prompt are averaged first,
    because intervals take values as independent.
    """
    answers: dict[str, list[bool]] = {}
    shares: dict[str, dict[str, list[float]]] = {}
    for record in records:
        fault = fault_of(record)
        if not record.get("checklist") or (fault and fault["kind"] != "model"):
            continue
        yes = set() if fault else satisfied(record)
        here: dict[str, list[bool]] = {}
        for item in record["checklist"]:
            for family in _elements(item):
                here.setdefault(family, []).append(item["id"] in yes)
        for family, said in here.items():
            answers.setdefault(family, []).extend(said)
            of_prompt = shares.setdefault(family, {}).setdefault(prompt_of(record), [])
            of_prompt.append(sum(said) / len(said))
    order = sorted(answers, key=lambda family: (-len(answers[family]), family))
    return {
        family: {
            "yes": sum(answers[family]),
            "n": len(answers[family]),
            "prompts": len(shares[family]),
            "share": stats.mean((sum(v) / len(v) for v in shares[family].values()), (0, 1)),
        }
        for family in order
    }


def _elements(item: ChecklistItem) -> list[str]:
    options = [option for entry in item.get("match") or [] for option in entry.split("|")]
    named = [each[1:] for each in options if each[:1] == "@" and each[1:] in ELEMENTS]
    return list(dict.fromkeys(named)) or ["facts"]


def satisfied(record: DeckRecord) -> set[str]:
    """The ids of the items that the judge answered with yes and a slide that the deck has."""
    render = record.get("render") or {}
    shown = {int(path.rpartition("/")[2].partition(".")[0]) for path in render.get("slides") or []}
    known = {item["id"] for item in record.get("checklist") or []}
    return {
        answer["id"]
        for answer in (record.get("judge") or {}).get("checklist") or []
        if answer.get("yes") is True
        and answer["id"] in known
        and type(answer.get("slide")) is int
        and answer["slide"] in shown
    }


def checklist_table(runs: list[Run]) -> Table:
    """A row for each family of items, a column for each run."""
    found = [checklist_families(run["records"]) for run in runs]
    prompts = {family: value["prompts"] for each in found for family, value in each.items()}
    rows = []
    for family, n in prompts.items():
        rows.append([family, str(n), *(_answered(each.get(family)) for each in found)])
    header = ["Kind of item", "Prompts", *(run["label"] for run in runs)]
    return "Checklist by kind of item", header, rows, CHECKED


def _answered(family: Record | None) -> str:
    if family is None:
        return text.DASH
    return f"{family['yes']} of {family['n']}: {text.interval(family['share'])}"
