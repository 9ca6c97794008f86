"""A comparison as tables of text cells, and as markdown."""

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from decksmith.core import stream
from decksmith.measure.judging import checks
from decksmith.measure.judging.records import DeckRecord, Judge
from decksmith.measure.judging.scoring import EDIT, JUDGED
from decksmith.measure.results import cost_table, stats, text
from decksmith.measure.results.claims import ranked
from decksmith.measure.results.comparison import Comparison, CostTable, Pair, Run
from decksmith.measure.results.pairs import better, is_headline
from decksmith.measure.results.records import Mean, Summary
from decksmith.measure.results.runs import caption, measures, of_edits, offline, titles
from decksmith.measure.results.summary import (
    BESIDE,
    SHARES,
    columns,
    domains,
    means,
    rendered,
    rendering,
)
from decksmith.measure.results.text import few

Table = tuple[str, list[str], list[list[str]], str]  # title, header, rows, note

HAPPENED = "Cut off: the reply ended at the token limit. Faults: why a deck has no score, and who is at fault."
CAPPED = " Capped: something that the judge saw limits a score of the deck."
NOTES = (
    "Brackets hold 95 % intervals over requests. Prompts of one domain resemble each other, so a domain counts as one observation. "
    "Of such requests: how many would have a deck that renders. Faults of the renderer, the judge and the network are left out."
)
COUNTED = (
    " Failures as 1: a deck that its model failed counts 1 in every dimension, and 0 in the checklist. With fewer than about 30 "
    "prompts these intervals are wide on purpose: they allow for failures that did not occur."
)
EDITED = "Request met and rest stayed (docs/edit.md), with failures as 0: an edit that cannot be applied or rendered has neither."
CHECKS = (
    "How many slides pass, or how many of the things that were asked for are there, in decks that render. "
    "docs/judge-card.md says how often each check is right."
)
FAMILY = (
    "The headline has two tests: how many render, and how good the decks are where both render. p is corrected for the number of "
    "comparisons. d: mean difference over its standard deviation. Bounds: what the decks without a score could make of the "
    "difference. docs/statistics.md has the methods."
)
TOOK = "Of all samples and revisions, not only of what was kept; no judging but one that chose."
# Which decks a difference is of.
DECKS = {"floor": "failures as 1", "renderable": "that render", "scored": "where both render"}
SHOWN = [("floor", "overall"), ("floor", "judge_only")]
# What a column is left out for where every cell is one of these.
EMPTY = {text.DASH, "", "0", "$0.00", "unknown"}
# The columns of words at the left of a table, where that is not one.
WORDS = {"Scores": 2, "Conditions and what they cost": 2, "Paired by prompt": 2, "Checks": 2}


def markdown(runs: list[Run], compared: Comparison) -> str:
    """The comparison as markdown: what was found, then every table, models by their names."""
    protocol = (runs[0]["protocol"].get("hash") or "unknown")[:12]
    lines = [f"{caption(runs)}. Protocol {protocol}.", "", *headline(compared), ""]
    for title, header, rows, note in tables(runs, compared):
        table = text.markdown_table(header, rows, words_in(title))
        lines += [f"**{title}**", "", *table, ""]
        if note:
            lines += [note, ""]
    return "\n".join(lines).rstrip() + "\n"


def words_in(title: str) -> int:
    """How many columns at the left of a table are words; the others stand to the right."""
    return WORDS.get(title, 1)


def brief(runs: list[Run], compared: Comparison) -> str:
    """What a terminal shows: who wrote how many decks, what they scored, and what may be said of it."""
    good, is_read = better(runs)[1], not offline(runs)
    shown = [name for name in (*JUDGED, *EDIT[1:]) if is_read and name in measures(runs)]
    named = titles(runs)
    header = ["model", "renders", named[good].lower(), "failures as 1"]
    header += [*(named[name].lower() for name in shown), "cost"]
    rows = []
    for run in runs:
        summary = run["summary"]
        drawn, all_of = (summary["means"][name] for name in ("renderable", "floor"))
        drawn = all_of if of_edits(runs) else drawn
        cells = [goodness(drawn.get(good), good)]
        marks = [all_of.get("overall") if is_read else None, *(drawn.get(name) for name in shown)]
        cells += [
            goodness(one, good) if of_edits(runs) else text.interval(one).partition(" ")[0]
            for one in marks
        ]
        rows.append([run["label"], rendered(summary), *cells, text.price(summary["cost"])])
    header, rows = trimmed(header, rows)
    rows = [header, *rows]
    lines = [*text.wrapped(f"{caption(runs)}."), "", *text.columns(rows, len(header)), ""]
    if cost := compared.get("costs"):
        _, header, rows, _ = conditions_table(runs, cost)
        header, rows = trimmed(header, rows, 2)
        lines += [*text.columns([header, *rows], 2), ""]
    for line in headline(compared):
        lines += text.wrapped(line)
    return "\n".join(lines) + "\n"


def trimmed(
    header: list[str], rows: list[list[str]], words: int = 1
) -> tuple[list[str], list[list[str]]]:
    """A table without the columns that say nothing in any row, and without the rows that say nothing beyond their first
    `words` cells; the first column stays."""
    rows = [row for row in rows if {*row[words:]} - {text.DASH, ""} or not row[words:]]
    kept = [at for at in range(len(header)) if not at or {row[at] for row in rows} - EMPTY]
    return [header[at] for at in kept], [[row[at] for at in kept] for row in rows]


def renders(run: Run) -> str:
    """`12 of 12`: how many decks of a run render."""
    made, counted = rendering(run["summary"])
    return f"{made} of {counted}"


def goodness(mean: Mean | None, measure: str) -> str:
    """How good the decks that render are: `61 %` of the checks, or `3.31 [3.02, 3.60]` of 5."""
    if mean is None or mean["mean"] is None:
        return text.DASH
    return text.whole_percent(mean["mean"]) if measure in SHARES else text.interval(mean)


def headline(compared: Comparison) -> list[str]:
    """The lines that sum up the comparison: what is claimed, with the range of ranks it leaves open, and under what caveats."""
    lines: list[str] = []
    if len(compared["runs"]) > 1:
        looks = [f"{one}." for one in (compared["looks"]["said"] if "looks" in compared else ())]
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
    said = [*compared["caveats"], *compared["kin"]]
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
    found = [scores_table(runs)]
    if of_edits(runs):
        found.append(edits_table(runs))
    if offline(runs):
        found.append(checks_table(runs))
    if several:
        found.append(paired_table(compared))
    if cost := compared.get("costs"):
        found.append(conditions_table(runs, cost))
    found.append(happened_table(runs))
    return [
        (title, *trimmed(header, rows, words_in(title)), note)
        for title, header, rows, note in found
        if rows
    ]


def happened_table(runs: list[Run]) -> Table:
    """What became of the decks of each run, and what they took."""
    header = ["Model", "Render", "Cut off"]
    header += [f"{kind.capitalize()} faults" for kind in stream.KINDS]
    header += ["Capped", "Tokens in", "Tokens out", "Cost", "Wall"]
    rows = []
    for run in runs:
        summary = run["summary"]
        faults = [str(summary["faults"]["kinds"][kind]) for kind in stream.KINDS]
        rows.append([run["label"], rendered(summary), str(summary["truncated"]), *faults])
        rows[-1] += [str(summary["capped"]), *spent(summary)]
    capped = any(run["summary"]["capped"] for run in runs)
    return "What happened", header, rows, HAPPENED + CAPPED * capped


def spent(summary: Summary) -> list[str]:
    """Tokens in, tokens out, cost and wall time as text."""
    tokens = summary["tokens"]
    known = ["unknown", "unknown"]
    if tokens["records"]:
        known = [f"{tokens[name]:,}" for name in ("prompt", "completion")]
    return [*known, text.price(summary["cost"]), text.duration(summary["by"]["wall_s"])]


def scores_table(runs: list[Run]) -> Table:
    """How many decks of each run render and how good these are; where there are several runs also for the prompts for which
    all have one, and under a judge that reads also with failures counted as 1."""
    good, named = better(runs)[1], titles(runs)
    beside = ("renders", "checklist") if offline(runs) else ("renders",)
    shown = [measure for measure in measures(runs) if measure not in beside]
    header = ["Model", "Decks", "Renders", "Of such requests", "Requests"]
    header += [named.get(measure, measure) for measure in shown]
    common, rows = _scored_by_all(runs), []
    is_less = any(
        one.get(good) != run["summary"]["means"]["renderable"].get(good)
        for run, one in zip(runs, common, strict=True)
    )
    for run, shared in zip(runs, common, strict=True):
        found = run["summary"]["means"]
        decks = {"that render": found["renderable"]}
        if is_less and good in shared and shared[good]["n"]:
            decks["where all render"] = shared
        if not offline(runs):
            decks["all, failures as 0" if of_edits(runs) else "all, failures as 1"] = found["floor"]
        first = [renders(run), _reach(found["floor"].get("renders"))]
        for name, means_of in decks.items():
            n = means_of[good]["n"] if good in means_of else 0
            cells = [valued(measure, means_of.get(measure)) for measure in shown]
            rows.append([run["label"], name, *first, str(n), *cells])
            first = ["", ""]
    apart = [named[measure] for measure in shown if measure in BESIDE]
    note = f" {text.listed(apart)}: no part of the score." if apart else ""
    counted = not (offline(runs) or of_edits(runs))
    return "Scores", header, rows, NOTES + COUNTED * counted + note


def valued(measure: str, mean: Mean | None) -> str:
    """A mean as text: a share in per cent, a mark with two digits."""
    return text.share(mean) if measure in SHARES else text.interval(mean)


def _reach(mean: Mean | None) -> str:
    """The interval of a share alone: `74 to 100 %`."""
    if mean is None or mean["lo"] is None or mean["hi"] is None:
        return text.DASH
    return f"{100 * mean['lo']:.0f} to {100 * mean['hi']:.0f} %"


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


def passed_by_check(records: Iterable[DeckRecord]) -> dict[str, tuple[int, int]]:
    """`{check: (how many pass, of how many)}` over the decks that the checks saw: slides, or things that were asked for. A
    deck that has too few slides fails `slides` for each that is missing."""
    found: dict[str, list[int]] = {name: [0, 0] for name in checks.SAYS}
    for record in records:
        judge: Judge = record.get("judge") or {}
        if "checks" not in judge:
            continue
        made, asks = len(record["render"]["slides"]), record.get("asks") or {}
        wrong: dict[str, set[int | None]] = {}
        for one in judge["findings"]:
            name = one["check"] if one["check"] in checks.SAYS else "error"
            wrong.setdefault(name, set()).add(one["slide"])
        for name, count in found.items():
            if name in checks.ASKED_CHECKS or name in judge["not_checked"]:
                continue
            failed, of = len(wrong.get(name, ())), made
            if name == "slides":
                least, most = checks.fewest(asks), asks.get("slides") or made
                failed, of = max(least - made, made - most, 0), max(made, least)
            count[0] += max(0, of - failed)
            count[1] += of
        for answer in judge["asked"]:
            found[answer["check"]][0] += answer["yes"]
            found[answer["check"]][1] += 1
    return {name: (passed, of) for name, (passed, of) in found.items() if of}


def checks_table(runs: list[Run]) -> Table:
    """A row for each check that some deck does not pass, a column for each run."""
    found = [passed_by_check(run["records"]) for run in runs]
    rows, all_pass = [], []
    for name, says in checks.SAYS.items():
        counts = [each[name] for each in found if name in each]
        if any(passed < of for passed, of in counts):
            rows.append([name, says, *(_passed(each.get(name)) for each in found)])
        elif counts:
            all_pass.append(name)
    note = CHECKS
    if empty := [run["label"] for run in runs if not rendering(run["summary"])[0]]:
        note += f" No deck of {text.listed(empty)} renders."
    if all_pass:
        note += f" Nothing fails {text.listed(all_pass)}."
    if unread := _not_checked(runs):
        note += f" Not checked: {unread}."
    return "Checks", ["Check", "What it looks for", *(run["label"] for run in runs)], rows, note


def edits_table(runs: list[Run]) -> Table:
    """A row for each kind of edit, for each run its two numbers."""
    cells: dict[str, list[str]] = {}
    kinds = sorted({kind for run in runs for kind in domains(run["records"]).values() if kind})
    for kind in [*kinds, "all"]:
        for run in runs:
            some = [r for r in run["records"] if kind in ("all", r["edit"]["kind"])]
            found = columns(some, "floor") if some else {}
            means = [fmean(found[name].values()) for name in EDIT[1:] if found.get(name)]
            both = " and ".join(text.whole_percent(mean) for mean in means)
            cells.setdefault(kind, []).append(both or text.DASH)
    counts = Counter(record["edit"]["kind"] for record in runs[0]["records"])
    rows = [[kind, str(counts[kind] or len(runs[0]["records"])), *cells[kind]] for kind in cells]
    return "Edits by kind", ["Kind", "Edits", *(run["label"] for run in runs)], rows, EDITED


def _passed(count: tuple[int, int] | None) -> str:
    """`29 of 30`."""
    return f"{count[0]} of {count[1]}" if count else text.DASH


def _not_checked(runs: list[Run]) -> str:
    """Which checks did not apply to how many decks, and the first reason."""
    reasons: dict[str, list[str]] = {}
    for record in (record for run in runs for record in run["records"]):
        for name, why in ((record.get("judge") or {}).get("not_checked") or {}).items():
            reasons.setdefault(name, []).append(why)
    return "; ".join(
        f"{name} in {len(some)} deck{'s' * (len(some) > 1)} ({', '.join(sorted(set(some)))})"
        for name, some in reasons.items()
    )


def conditions_table(runs: list[Run], cost: CostTable) -> Table:
    """What each run adds to asking once, and what its decks took."""
    good = better(runs)[1]
    header = ["Run", "What it adds", titles(runs)[good]]
    header += ["Tokens a deck", "Seconds a deck", "USD a deck"]
    rows = []
    for run in runs:
        under = run["summary"]["model"].get("condition")
        overall = goodness(run["summary"]["means"]["renderable"].get(good), good)
        took = cost["runs"][run["label"]]
        cells = [_took(took[kind], kind) for kind in cost_table.KINDS]
        adds = "; ".join(under["adds"]) if under else text.DASH
        rows.append([run["label"], adds, overall, *cells])
    return "Conditions and what they cost", header, rows, TOOK


def _took(mean: float | None, kind: str) -> str:
    """What a deck took on average."""
    if mean is None:
        return "unknown"
    return f"{mean:,.4f}" if kind == "usd" else f"{mean:,.0f}" if mean >= 100 else f"{mean:,.1f}"


def paired_table(compared: Comparison) -> Table:
    """The differences by prompt of every pair, with their tests."""
    header = ["Difference", "Of", "Requests", "Mean", "Bounds", "p", "p corrected"]
    header += ["Win/tie/loss", "d"]
    rows = [
        _paired(pair, compared["titles"][pair["measure"]])
        for pair in compared["pairs"]
        if pair["clause"] or (pair["accounting"], pair["measure"]) in SHOWN
    ]
    return "Paired by prompt", header, rows, f"{FAMILY} {rule(compared)}"


def _paired(pair: Pair, title: str) -> list[str]:
    found, bounds, tests = pair["difference"], pair.get("bounds"), [text.DASH, text.DASH]
    measure, mean, effect = pair["measure"], gap(pair["measure"], found), text.DASH
    if found["n"] >= stats.FEWEST:
        tests = [text.p_value(found["p"]), text.p_value(pair["p_holm"])]
        effect = text.DASH if found["effect"] is None else text.figure(found["effect"])
    elif found["n"]:
        mean = gap(measure, {**found, "lo": None, "hi": None})
    reach = bounds and {"mean": 0, "lo": bounds["least"], "hi": bounds["most"]}
    return [
        f"{pair['a']} minus {pair['b']}",
        title + ("" if measure in ("renders", *EDIT) else f", {DECKS[pair['accounting']]}"),
        str(found["n"]),
        mean,
        gap(measure, reach).partition(" [")[2].strip("]") if reach else text.DASH,
        *tests,
        f"{found['wins']}/{found['ties']}/{found['losses']}",
        effect,
    ]


def gap(measure: str, found: Mapping[str, Any]) -> str:
    """A difference as text: of decks that render a count, of other shares in points, of marks with two digits."""
    if found["mean"] is None:
        return text.DASH
    if measure == "renders" and "n" in found:
        return f"{round(found['mean'] * found['n'], 1):+g} of {found['n']}"
    return text.points(found) if measure in SHARES else text.interval(found)


def rule(compared: Comparison) -> str:
    """On what the headline's intervals rest, in one sentence."""
    counts = {pair["difference"]["clusters"] for pair in compared["pairs"] if is_headline(pair)}
    if not counts:
        return ""
    return f"Intervals and p of the headline: {' or '.join(map(stats.rule, sorted(counts)))}."
