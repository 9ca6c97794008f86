"""Groups of benchmarks that are asked and held against another model's as one: assets/groups.

A group has parts, each a benchmark with so many of its questions, and aspects, each with the parts it is measured by and the
largest loss that its gate lets stay open. What no part could be asked of is named and never passed over.
"""

import itertools
import math
import tomllib
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

from decksmith.bench.benchmarks import graders, metrics, tasks
from decksmith.bench.benchmarks.metrics import BenchSummary, Questions, Results
from decksmith.bench.benchmarks.records import Group, GroupPart
from decksmith.core import cli
from decksmith.measure.results import power, regressions, stats, text

SKIPPED = "skipped.txt"  # in a part's folder: why it was not asked (make/bench)
Share = Callable[[BenchSummary], float | None]
POWER = 0.8
# Differences by question that are assumed: two models' scores differ on 15 % of them, either way.
ASSUMED = [1.0] * 75 + [-1.0] * 75 + [0.0] * 850
# What bench-plan assumes of a machine: GPUs, tokens a second that each writes, and of a single reply.
GPUS, PACE, REPLY_PACE = 8, 1000, 40


def load(name: str) -> Group:
    """A group of assets/groups. Raises cli.BadConfig naming file and key."""
    path = cli.ROOT / "assets" / "groups" / f"{name}.toml"
    try:
        group = tomllib.loads(path.read_text())
    except FileNotFoundError:
        there = sorted(path.stem for path in path.parent.glob("*.toml"))
        raise cli.BadConfig(f"no group {path}{cli.instead(name, there)}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    if set(group) != {"title", "margin", "aspects", "parts"}:
        raise cli.BadConfig(f"{path}: it has the keys title, margin, aspects and parts")
    for part in group["parts"]:
        if set(part) != set(GroupPart.__annotations__):
            said = f"a part has bench, aspect, questions and tokens; this has {part}"
            raise cli.BadConfig(f"{path}: {said}")
        if part["bench"] not in tasks.names() or part["aspect"] not in group["aspects"]:
            raise cli.BadConfig(f"{path}: {part['bench']}: no such benchmark, or no such aspect")
    return cast(Group, {"name": name, **group})


def of_aspect(group: Group, aspect: str) -> list[GroupPart]:
    return [part for part in group["parts"] if part["aspect"] == aspect]


def skipped(folder: Path) -> dict[str, str]:
    """Why parts were not asked, by benchmark, of a model's results of a group."""
    found = sorted(Path(folder).glob(f"*/{SKIPPED}"))
    return {path.parent.name: path.read_text().strip() for path in found}


# One model


def table(group: Group, summaries: dict[str, BenchSummary]) -> tuple[list[str], list[list[str]]]:
    """The metrics of one model by aspect, as text cells: `(header, rows)`."""
    rows = []
    for aspect in group["aspects"]:
        found = [one for part in of_aspect(group, aspect) if (one := summaries.get(part["bench"]))]
        rows.append(_row(aspect, found))
        if len(found) > 1:
            rows += [_row(f"  {one['benchmark']}", [one]) for one in found]
    rows.append(_row("all", list(summaries.values())))
    return ["aspect", "questions", "score", "truncated", "coverage", "tokens", "cost"], rows


def _row(name: str, found: list[BenchSummary]) -> list[str]:
    if not found:
        return [name, "0", *[text.DASH] * 5]
    known = [cost for one in found if (cost := one["cost"]) is not None]
    shares: list[Share] = [metrics.main_score, itemgetter("truncated"), itemgetter("coverage")]
    shown = [metrics.text(_weighted(found, of)) for of in shares]
    price = text.price(sum(known) if len(known) == len(found) else None)
    return [name, str(sum(one["num_questions"] for one in found)), *shown, _tokens(found), price]


def _weighted(found: list[BenchSummary], of: Share) -> float | None:
    """The mean over questions of what each benchmark says."""
    known = [(value, one["num_questions"]) for one in found if (value := of(one)) is not None]
    return sum(value * n for value, n in known) / sum(n for _, n in known) if known else None


def _tokens(found: list[BenchSummary]) -> str:
    """The mean length of a reply, thoughts included."""
    mean = _weighted(found, lambda one: metrics.main_mode(one)[1]["avg_tokens"])
    return text.DASH if mean is None else f"{mean:.0f}"


def sentence(group: Group, summaries: dict[str, BenchSummary], left_out: dict[str, str]) -> str:
    """What was asked of a group, and which parts were not."""
    asked = sum(one["num_questions"] for one in summaries.values())
    whole = sum(part["questions"] for part in group["parts"])
    said = f"{group['name']}: {asked:,} of {whole:,} questions, in {len(summaries)} of {len(group['parts'])} parts"
    missing = [part["bench"] for part in group["parts"] if part["bench"] not in summaries]
    if missing:
        said += f"; not asked: {', '.join(missing)}"
    if why := sorted({left_out[name] for name in missing if name in left_out}):
        more = f", and {len(why) - 1} more reasons" if why[1:] else ""
        said += f" ({why[0]}{more})"
    return said


# Two models


class Pooled(TypedDict):
    """What is shown of one model over several benchmarks; the first three as in metrics.BenchSummary."""

    metric: str
    modes: dict[str, dict[str, float | None]]
    truncated: float | None
    tokens: str


class AspectEntry(metrics.Compared):
    """Two models on an aspect; `missing`: the parts that neither was asked."""

    ours: Pooled
    base: Pooled
    missing: list[str]


def compare(
    group: Group, ours: Results, base: Results, model: str, other: str
) -> list[AspectEntry]:
    """Two models held against each other: an entry for all questions, then one for each aspect. Scores
    of all benchmarks of an aspect are pooled by question; p is corrected over the aspects."""
    parts = {entry["benchmark"]: entry for entry in metrics.compare(ours, base)}
    whole = _entry("all", group["parts"], parts, group["margin"], ours, base)
    whole["p_holm"], whole["family"] = whole["difference"]["p"], 1
    aspects = [
        _entry(aspect, of_aspect(group, aspect), parts, margin, ours, base)
        for aspect, margin in group["aspects"].items()
    ]
    metrics.corrected([entry for entry in aspects if entry["difference"]["n"]])
    for entry in (whole, *aspects):
        entry["verdict"], entry["sentence"] = _said(entry, model, other)
    return [whole, *aspects]


def _entry(
    name: str,
    wanted: list[GroupPart],
    parts: dict[str, metrics.BenchComparison],
    margin: float,
    ours: Results,
    base: Results,
) -> AspectEntry:
    asked = [parts[part["bench"]] for part in wanted if part["bench"] in parts]
    refused = [f"{each['benchmark']}: {each['refused']}" for each in asked if each["refused"]]
    sides: list[list[float]] = [[], []]
    for each in asked:
        means = [metrics.means(results.get(each["benchmark"], {})) for results in (ours, base)]
        for ident in means[0].keys() & means[1].keys():
            for side, mean in zip(sides, means, strict=True):
                side.append(mean[ident])
    difference, needed = metrics.gap(sides[0], sides[1], margin)
    return {
        "benchmark": name,
        "metric": "score",
        "ours": _pooled([each["ours"] for each in asked], sides[0]),
        "base": _pooled([each["base"] for each in asked], sides[1]),
        "refused": "; ".join(refused) or None,
        "missing": [part["bench"] for part in wanted if part["bench"] not in parts],
        "difference": difference,
        "margin": margin,
        "needed": needed,
    }


def _pooled(found: list[BenchSummary | None], scores: list[float]) -> Pooled:
    known = [one for one in found if one]
    mean = sum(scores) / len(scores) if scores else None
    return {
        "metric": "score",
        "modes": {"all": {"score": mean}},
        "truncated": _weighted(known, itemgetter("truncated")),
        "tokens": _tokens(known),
    }


def _said(entry: AspectEntry, model: str, other: str) -> tuple[str, str]:
    """The verdict and the sentence of an entry."""
    name = entry["benchmark"]
    if not entry["difference"]["n"] and not entry["refused"]:
        said = f"{name}: cannot tell; neither was asked {', '.join(entry['missing'])}"
        return "cannot tell", said
    verdict, said = regressions.benchmark(model, other, entry)
    said += f". Tokens of a reply: {entry['ours']['tokens']} and {entry['base']['tokens']}"
    if entry["missing"] and name != "all":
        said += f". Not asked: {', '.join(entry['missing'])}"
    return verdict, said


def summary(group: Group, entries: list[AspectEntry], model: str, other: str) -> tuple[str, str]:
    """The one sentence under a comparison of a group, and "pass", "open" or "fail" (regressions.summary)."""
    said, outcome = regressions.summary(model, other, entries[1:], "aspect")
    whole = entries[0]
    said = f"{group['name']}: {said}. Over all questions: {whole['sentence'].partition(': ')[2]}"
    if whole["missing"]:
        said += f". Not asked: {', '.join(whole['missing'])}"
    if errors := graders.errors(tasks.load(part["bench"])["grader"] for part in group["parts"]):
        said += f". {errors}"
    order = {"worse": "fail", "refused": "fail", "cannot tell": "open"}
    outcomes = {outcome, order.get(whole["verdict"], "pass")}
    return said, next(each for each in ("fail", "open", "pass") if each in outcomes)


# Before it is asked


class PlannedAspect(NamedTuple):
    """What so many questions show."""

    aspect: str
    parts: list[GroupPart]
    questions: int
    margin: float
    least: float  # the loss that is found with a chance of POWER
    power: float  # the chance that a loss of more than the margin is ruled out where there is none


class GroupPlan(TypedDict):
    group: str
    aspects: list[PlannedAspect]
    all: PlannedAspect
    passes: float  # the chance that all margins are met where nothing is lost
    tokens: tuple[int, int]  # read and written
    seconds: float  # on GPUS that write at PACE, the longest reply included
    measured: bool


def plan(group: Group, measured: tuple[Results, Results] | None = None) -> GroupPlan:
    """What asking a group shows and takes, before it is asked.

    measured: results of two models that were asked the group; how often their scores differ and how
    long replies are is then theirs, else ASSUMED and as the group says.
    """
    found = [
        _shown(aspect, parts, margin, measured)
        for aspect, margin in group["aspects"].items()
        if (parts := of_aspect(group, aspect))
    ]
    lengths = [(part["questions"], _length(part, measured)) for part in group["parts"]]
    asked, written = (sum(n * length[k] for n, length in lengths) for k in (0, 1))
    longest = max(tasks.load(part["bench"]).get("max_tokens", 0) for part in group["parts"])
    return {
        "group": group["name"],
        "aspects": found,
        "all": _shown("all", group["parts"], group["margin"], measured),
        "passes": math.prod(one.power for one in found),
        "tokens": (round(asked), round(written)),
        "seconds": written / (GPUS * PACE) + longest / REPLY_PACE,
        "measured": measured is not None,
    }


def _shown(
    aspect: str, parts: list[GroupPart], margin: float, measured: tuple[Results, Results] | None
) -> PlannedAspect:
    n = sum(part["questions"] for part in parts)
    gaps: list[float] = []
    for part in parts if measured else ():
        ours, base = (metrics.means(side.get(part["bench"], {})) for side in measured or ())
        gaps += [ours[ident] - base[ident] for ident in ours.keys() & base.keys()]
    gaps = gaps or ASSUMED
    spread, one_test = metrics.spread(gaps), stats.Expected(tests=1)
    least = stats.smallest_effect(lambda loss: stats.power(loss, spread, n, one_test), 1.0, POWER)
    return PlannedAspect(aspect, parts, n, margin, least, metrics.ruled_out(gaps, margin, n))


def needed(sides: list[Questions], effect: float, tests: int) -> list[str]:
    """Of a benchmark that one or two models were asked: its questions, the standard deviation of a difference, what difference they
    find, and how many questions find `effect`, in one of so many tests, clustered as metrics.compare does."""
    cells = [metrics.means(side) for side in sides]
    shared = [ident for ident in cells[0] if ident in cells[-1]]
    if (n := len(shared)) < stats.FEWEST:
        return [str(n), *[text.DASH] * 3]
    mean = sum(cells[0][ident] for ident in shared) / n
    other = cells[1] if cells[1:] else dict.fromkeys(shared, mean)
    spread = metrics.spread([cells[0][ident] - other[ident] for ident in shared])
    spread *= 1 if cells[1:] else math.sqrt(2)  # as if another model varied as much, by itself
    groups = {ident: sides[0][ident][0]["task"].get("subset") for ident in shared}
    expected = stats.Expected(tests=tests)
    if len(set(groups.values())) >= stats.FEWEST:
        common = [{ident: cell[ident] for ident in shared} for cell in cells]
        domains, alike = power.between_domains(common, groups)
        expected = stats.Expected(domains=domains, alike=alike, tests=tests)
    least = stats.smallest_effect(lambda size: stats.power(size, spread, n, expected), 1.0, POWER)
    wanted = stats.smallest_sample(lambda m: stats.power(effect, spread, m, expected), POWER)
    finds = "none" if math.isinf(least) else f"{least:.3f}"
    return [f"{n:,}", f"{spread:.3f}", finds, f"{wanted:,}" if wanted else "no number of"]


def _length(part: GroupPart, measured: tuple[Results, Results] | None) -> tuple[float, float]:
    """Tokens of a request and of its reply."""
    asked, written = [], []
    for side in measured or ():
        for record in itertools.chain.from_iterable(side.get(part["bench"], {}).values()):
            usage = record.get("gen", {}).get("usage")
            if usage and usage.get("completion_tokens") is not None:
                asked.append(usage.get("prompt_tokens") or 0)
                written.append(usage["completion_tokens"] or 0)
    if not asked:
        return part["tokens"][0], part["tokens"][1]
    return sum(asked) / len(asked), sum(written) / len(written)


def planned(found: GroupPlan) -> str:
    """A plan as text: the table, and what it takes."""
    rows = []
    for one in (*found["aspects"], found["all"]):
        named = [] if one is found["all"] else [part["bench"] for part in one.parts]
        shown = [f"{one.questions:,}", f"{one.least:.3f}", f"{one.margin:.2f}"]
        rows.append([one.aspect, ", ".join(named), *shown, f"{one.power:.0%}"])
    header = ["Aspect", "Benchmarks", "Questions", "Finds a loss of", "Margin", "Rules it out"]
    how = "as these results say" if found["measured"] else "assumed (assets/groups)"
    read, written = found["tokens"]
    return "\n".join(
        [
            *text.markdown_table(header, rows, 2),
            "",
            f"Finds: with a chance of {text.percent(POWER)}. Rules it out: the chance that a loss of more than "
            "the margin is ruled out where nothing is lost; for every aspect at once about "
            f"{found['passes']:.0%}, if they are independent.",
            "",
            f"**{found['group']}: {found['all'].questions:,} questions of each model find a loss of "
            f"{found['all'].least:.3f}; about {read:,} tokens read and {written:,} written, {how}: "
            f"{found['seconds'] / 3600:.1f} h on {GPUS} GPUs that write {PACE:,} tokens a second each.**",
        ]
    )
