"""Groups of benchmarks that are asked and held against another model's as one: assets/groups.

A group has parts, each a benchmark with so many of its questions, and aspects, each with the parts it is measured by and the
largest loss that its gate lets stay open. What no part could be asked of is named and never passed over.
"""

import math
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from decksmith.benchmarks import metrics, tasks
from decksmith.core import cli
from decksmith.core.records import Record
from decksmith.models import registry
from decksmith.results import pairs, regressions, stats, text

Results = dict[str, metrics.Questions]  # by benchmark
SKIPPED = "skipped.txt"  # in a part's folder: why it was not asked (make/bench)
POWER = 0.8


def names() -> list[str]:
    return sorted(path.stem for path in _folder().glob("*.toml"))


def _folder() -> Path:
    return cli.ROOT / "assets" / "groups"


def load(name: str) -> Record:
    """`{"name", "title", "margin", "aspects": {aspect: margin}, "parts": [{"bench", "aspect", "questions", "tokens"}]}`.
    Raises cli.BadConfig naming file and key."""
    path = _folder() / f"{name}.toml"
    try:
        group = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise cli.BadConfig(f"no group {path}; there are: {', '.join(names())}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    if set(group) != {"title", "margin", "aspects", "parts"}:
        raise cli.BadConfig(f"{path}: it has the keys title, margin, aspects and parts")
    for part in group["parts"]:
        if set(part) != {"bench", "aspect", "questions", "tokens"}:
            raise cli.BadConfig(
                f"{path}: a part has bench, aspect, questions and tokens; this has {part}"
            )
        if part["bench"] not in tasks.names() or part["aspect"] not in group["aspects"]:
            raise cli.BadConfig(f"{path}: {part['bench']}: no such benchmark, or no such aspect")
    return {"name": name, **group}


def of_aspect(group: Record, aspect: str) -> list[Record]:
    return [part for part in group["parts"] if part["aspect"] == aspect]


def skipped(folder: Path) -> dict[str, str]:
    """Why parts were not asked, by benchmark, of a model's results of a group."""
    return {
        path.parent.name: path.read_text().strip()
        for path in sorted(Path(folder).glob(f"*/{SKIPPED}"))
    }


# One model


def table(group: Record, summaries: dict[str, Record]) -> tuple[list[str], list[list[str]]]:
    """The metrics of one model by aspect, as text cells: `(header, rows)`."""
    rows = []
    for aspect in group["aspects"]:
        found = [one for part in of_aspect(group, aspect) if (one := summaries.get(part["bench"]))]
        rows.append(_row(aspect, found))
        if len(found) > 1:
            rows += [_row(f"  {one['benchmark']}", [one]) for one in found]
    rows.append(_row("all", list(summaries.values())))
    return ["aspect", "questions", "score", "truncated", "coverage", "tokens", "cost"], rows


def _row(name: str, found: list[Record]) -> list[str]:
    if not found:
        return [name, "0", *[text.DASH] * 5]
    costs = [one["cost"] for one in found]
    return [
        name,
        str(sum(one["num_questions"] for one in found)),
        metrics.text(_weighted([(_score(one), one["num_questions"]) for one in found])),
        *(
            metrics.text(_weighted([(one[key], one["num_questions"]) for one in found]))
            for key in ("truncated", "coverage")
        ),
        _tokens(found),
        text.price(None if None in costs else sum(costs)),
    ]


def _score(summary: Record) -> float | None:
    mode = metrics.main_mode(summary)[1]
    score: float | None = mode[summary["metric"]]
    return score


def _weighted(values: list[tuple[float | None, int]]) -> float | None:
    """The mean over questions of what each benchmark says."""
    known = [(value, n) for value, n in values if value is not None]
    return sum(value * n for value, n in known) / sum(n for _, n in known) if known else None


def _tokens(found: list[Record]) -> str:
    """The mean length of a reply, thoughts included."""
    counts = [(metrics.main_mode(one)[1]["avg_tokens"], one["num_questions"]) for one in found]
    mean = _weighted(counts)
    return text.DASH if mean is None else f"{mean:.0f}"


def sentence(group: Record, summaries: dict[str, Record], left_out: dict[str, str]) -> str:
    """What was asked of a group, and which parts were not."""
    asked = sum(one["num_questions"] for one in summaries.values())
    whole = sum(part["questions"] for part in group["parts"])
    said = f"{group['name']}: {asked:,} of {whole:,} questions, in {len(summaries)} of {len(group['parts'])} parts"
    missing = [part["bench"] for part in group["parts"] if part["bench"] not in summaries]
    if missing:
        said += f"; not asked: {', '.join(missing)}"
    if why := sorted({left_out[name] for name in missing if name in left_out}):
        said += f" ({why[0]}{f', and {len(why) - 1} more reasons' if why[1:] else ''})"
    return said


# Two models


def compare(group: Record, ours: Results, base: Results, model: str, other: str) -> list[Record]:
    """Two models held against each other: an entry (as metrics.compare has them, with verdict and sentence) for all questions,
    then one for each aspect. Scores of all benchmarks of an aspect are pooled by question; p is corrected over the aspects."""
    parts = {entry["benchmark"]: entry for entry in metrics.compare(ours, base)}
    whole = _entry("all", group["parts"], parts, group["margin"], ours, base)
    whole["p_holm"], whole["family"] = whole["difference"]["p"], 1
    aspects = [
        _entry(aspect, of_aspect(group, aspect), parts, margin, ours, base)
        for aspect, margin in group["aspects"].items()
    ]
    usable = [entry for entry in aspects if entry["difference"]["n"]]
    pairs.holm(usable)
    for entry in usable:
        entry["family"] = len(usable)
    for entry in (whole, *aspects):
        entry["verdict"], entry["sentence"] = _said(entry, model, other)
    return [whole, *aspects]


def _entry(
    name: str,
    wanted: list[Record],
    parts: dict[str, Record],
    margin: float,
    ours: Results,
    base: Results,
) -> Record:
    """The entry of several parts. `refused`: why one of them cannot be compared; `missing`: those that neither model was asked."""
    asked = [part["bench"] for part in wanted if part["bench"] in parts]
    refused = [
        f"{each}: {parts[each]['refused']}" for each in asked if parts[each]["refused"] is not None
    ]
    sides: list[list[float]] = [[], []]
    for bench in asked:
        means = [metrics.means(results.get(bench, {})) for results in (ours, base)]
        for ident in means[0].keys() & means[1].keys():
            for side, mean in zip(sides, means, strict=True):
                side.append(mean[ident])
    gaps = [a - b for a, b in zip(*sides, strict=True)]
    return {
        "benchmark": name,
        "metric": "score",
        "ours": _pooled([parts[each]["ours"] for each in asked], sides[0]),
        "base": _pooled([parts[each]["base"] for each in asked], sides[1]),
        "refused": "; ".join(refused) or None,
        "missing": [part["bench"] for part in wanted if part["bench"] not in parts],
        "difference": metrics.difference(*sides) if gaps else metrics.NOTHING,
        "margin": margin,
        "needed": metrics.needed(gaps, margin) if gaps else None,
    }


def _pooled(found: list[Record | None], scores: list[float]) -> Record:
    """What is shown of one model in an entry, in the form of a summary."""
    known = [one for one in found if one]
    mean = sum(scores) / len(scores) if scores else None
    return {
        "metric": "score",
        "modes": {"all": {"score": mean}},
        "truncated": _weighted([(one["truncated"], one["num_questions"]) for one in known]),
        "tokens": _tokens(known),
    }


def _said(entry: Record, model: str, other: str) -> tuple[str, str]:
    """The verdict and the sentence of an entry."""
    name = entry["benchmark"]
    if not entry["difference"]["n"] and not entry["refused"]:
        return (
            "cannot tell",
            f"{name}: cannot tell; neither was asked {', '.join(entry['missing'])}",
        )
    verdict, said = regressions.benchmark(model, other, entry)
    tokens = [entry[side]["tokens"] for side in ("ours", "base")]
    said += f". Tokens of a reply: {tokens[0]} and {tokens[1]}"
    if entry["missing"] and name != "all":
        said += f". Not asked: {', '.join(entry['missing'])}"
    return verdict, said


def summary(group: Record, entries: list[Record], model: str, other: str) -> tuple[str, str]:
    """The one sentence under a comparison of a group, and "pass", "open" or "fail" (regressions.summary)."""
    said, outcome = regressions.summary(model, other, entries[1:], "aspect")
    whole = entries[0]
    said = f"{group['name']}: {said}. Over all questions: {whole['sentence'].partition(': ')[2]}"
    if whole["missing"]:
        said += f". Not asked: {', '.join(whole['missing'])}"
    order = {"worse": "fail", "refused": "fail", "cannot tell": "open"}
    outcomes = {outcome, order.get(whole["verdict"], "pass")}
    return said, next(each for each in ("fail", "open", "pass") if each in outcomes)


# Before it is asked


def plan(
    group: Record,
    differ: float = 0.15,
    gpus: int = 8,
    pace: float = 1000,
    stream: float = 40,
    model: str | None = None,
    measured: tuple[Results, Results] | None = None,
) -> Record:
    """What asking a group shows and takes, before it is asked.

    differ: the share of questions on which the two models are assumed to have different scores. pace: tokens a second that a
    GPU writes for all requests together, stream: for one of them. model: of the registry, for its price. measured: results of
    two models that were asked the group; then `differ` and the lengths are theirs. Raises cli.BadConfig.
    """
    price = registry.model(model).price if model else None
    found = []
    for aspect, margin in group["aspects"].items():
        wanted = of_aspect(group, aspect)
        n = sum(part["questions"] for part in wanted)
        if n:
            spread = _spread(wanted, measured, differ)
            found.append({"aspect": aspect, "parts": wanted, **_shown(n, margin, spread)})
    lengths = {part["bench"]: _length(part, measured) for part in group["parts"]}
    asked, written = (
        sum(part["questions"] * lengths[part["bench"]][k] for part in group["parts"])
        for k in (0, 1)
    )
    whole = sum(part["questions"] for part in group["parts"])
    longest = max(tasks.load(part["bench"]).get("max_tokens", 0) for part in group["parts"])
    cost = None
    if price:
        cost = (asked * price["prompt"] + written * price["completion"]) / 1e6
    return {
        "group": group["name"],
        "aspects": found,
        "all": _shown(whole, group["margin"], _spread(group["parts"], measured, differ)),
        "passes": math.prod(one["power"] for one in found),
        "tokens": {"prompt": round(asked), "completion": round(written)},
        "cost": cost,
        "seconds": written / (gpus * pace) + longest / stream,
        "longest": longest,
        "gpus": gpus,
        "pace": pace,
        "stream": stream,
        "measured": measured is not None,
    }


def _shown(n: int, margin: float, spread: float) -> Record:
    return {
        "questions": n,
        "margin": margin,
        "spread": spread,
        "least": stats.mde(spread, n, POWER),
        "power": stats.power(margin, spread, n),
    }


def _spread(wanted: list[Record], measured: tuple[Results, Results] | None, differ: float) -> float:
    """The standard deviation of a question's difference: as measured, around 0 and with one question won and one lost more, else
    that of a score of 0 or 1 which differs on a share of the questions."""
    gaps: list[float] = []
    for part in wanted if measured else ():
        ours, base = (metrics.means(side.get(part["bench"], {})) for side in measured or ())
        gaps += [ours[ident] - base[ident] for ident in ours.keys() & base.keys()]
    if not gaps:
        return math.sqrt(differ)
    return math.sqrt((sum(gap**2 for gap in gaps) + 2) / (len(gaps) + 2))


def _length(part: Record, measured: tuple[Results, Results] | None) -> tuple[float, float]:
    """Tokens of a request and of its reply."""
    usages: list[Any] = []
    for questions in (side.get(part["bench"], {}) for side in measured or ()):
        for samples in questions.values():
            usages += [(record.get("gen") or {}).get("usage") or {} for record in samples]
    known = [one for one in usages if one.get("completion_tokens") is not None]
    if not known:
        return part["tokens"][0], part["tokens"][1]
    prompt, completion = (
        sum(one.get(f"{kind}_tokens") or 0 for one in known) / len(known)
        for kind in ("prompt", "completion")
    )
    return prompt, completion


def planned(found: Record) -> str:
    """A plan as text: the table, and what it takes."""
    rows = [
        _planned(one["aspect"], ", ".join(part["bench"] for part in one["parts"]), one)
        for one in found["aspects"]
    ]
    rows.append(_planned("all", "", found["all"]))
    header = ["Aspect", "Benchmarks", "Questions", "Finds a loss of", "Margin", "Rules it out"]
    how = "as these results say" if found["measured"] else "assumed (assets/groups)"
    price = (
        f" The replies of a model cost about {text.price(found['cost'])}." if found["cost"] else ""
    )
    return "\n".join(
        [
            *text.markdown_table(header, rows, 2),
            "",
            f"Finds: with a chance of {text.percent(POWER)}. Rules it out: the chance that a loss of more than the margin is ruled "
            f"out where nothing is lost; for every aspect at once about {found['passes']:.0%}, if they are independent.",
            "",
            f"**{found['group']}: {found['all']['questions']:,} questions of each model find a loss of "
            f"{found['all']['least']:.3f}; about {found['tokens']['prompt']:,} tokens read and "
            f"{found['tokens']['completion']:,} written, {how}: {found['seconds'] / 3600:.1f} h on {found['gpus']} GPUs that "
            f"write {found['pace']:g} tokens a second each, the longest reply ({found['longest']:,} tokens at "
            f"{found['stream']:g} a second) included.{price}**",
        ]
    )


def _planned(name: str, benches: str, one: Record) -> list[str]:
    least, margin = f"{one['least']:.3f}", f"{one['margin']:.2f}"
    return [name, benches, f"{one['questions']:,}", least, margin, f"{one['power']:.0%}"]


def main(arguments: Iterable[str]) -> None:
    """Print a group's parts, a line each: the benchmark and its number of questions."""
    for name in arguments:
        for part in load(name)["parts"]:
            print(part["bench"], part["questions"])


if __name__ == "__main__":  # python3 -m decksmith.benchmarks.groups GROUP
    try:
        main(sys.argv[1:])
    except cli.Stop as stop:
        print(f"bench: {stop}", file=sys.stderr)
        sys.exit(stop.status)
