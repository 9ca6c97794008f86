"""Our figures beside those that makers publish of the same models (assets/published.toml), with what is known to differ."""

import itertools
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatch
from typing import NotRequired, TypedDict, cast

from decksmith.bench.benchmarks import metrics, tasks
from decksmith.bench.benchmarks.metrics import BenchSummary
from decksmith.core import cli
from decksmith.measure.results import text
from decksmith.models.records import Asked


class PublishedFigure(TypedDict):
    """A figure of assets/published.toml."""

    models: list[str]  # patterns of their names
    bench: str
    score: float
    how: str
    source: list[str]  # addresses
    measure: NotRequired[list[str]]
    differs: NotRequired[str]


class PublishedComparison(TypedDict):
    """A published figure and ours."""

    bench: str
    ours: float | None
    interval: list[float | None]
    asked: str
    published: float
    verdict: str | None
    how: str
    differs: str | None
    source: list[str]


def figures() -> list[PublishedFigure]:
    """Every published figure, each with its `source` as a list of addresses. Raises cli.BadConfig naming the entry."""
    path = cli.ROOT / "assets" / "published.toml"
    try:
        table = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    found: list[PublishedFigure] = []
    for number, figure in enumerate(table.get("figures", []), 1):
        where = f"{path}: figure {number} ({figure.get('bench')})"
        needed, may = PublishedFigure.__required_keys__, set(PublishedFigure.__annotations__)
        if not needed <= set(figure) <= may:
            raise cli.BadConfig(f"{where}: it has {', '.join(sorted(needed))}, of {sorted(may)}")
        if figure["bench"] not in tasks.names() or figure["source"] not in table["sources"]:
            raise cli.BadConfig(f"{where}: no such benchmark, or no such source")
        found.append(figure | {"source": table["sources"][figure["source"]]})
    return found


def compare(
    summaries: Iterable[BenchSummary], known_as: str | None = None
) -> list[PublishedComparison]:
    """The published figures of the models and benchmarks of these summaries.

    known_as: what the model is, where its names here do not say it. The verdict is "agrees" where the
    published figure lies inside our interval, "lower" or "higher" where ours is so, and None where we
    have no interval of it.
    """
    return [
        _entry(summary, figure)
        for summary in summaries
        for figure in figures()
        if figure["bench"] == summary["benchmark"]
        and _is_of(figure, {known_as} if known_as else _names(summary["model"]))
    ]


def _names(model: Asked | None) -> set[str]:
    """What a model is called in its records; one with an adapter is not the model it was made of."""
    if model is None:
        return set()
    served = model.get("served")
    base = None if served is None or served.get("adapter") else served.get("base")
    return {name for name in (model.get("name"), model.get("slug"), base) if name}


def _is_of(figure: PublishedFigure, names: set[str]) -> bool:
    pairs = itertools.product(names, figure["models"])
    return any(fnmatch(name.casefold(), pattern.casefold()) for name, pattern in pairs)


def _entry(summary: BenchSummary, figure: PublishedFigure) -> PublishedComparison:
    mode, metric = metrics.main_mode(summary)[1], summary["metric"]
    known = {**cast(dict[str, float | None], summary), metric: metrics.main_score(summary)}
    wanted = figure.get("measure", [metric])
    scores = [score for name in wanted if (score := known.get(name)) is not None]
    ours = sum(scores) / len(scores) if len(scores) == len(wanted) else None
    low, high = mode["interval"] if wanted == [metric] else (None, None)
    verdict = None
    if ours is not None and low is not None and high is not None:
        verdict = "lower" if ours < figure["score"] else "higher"
        if low <= figure["score"] <= high:
            verdict = "agrees"
    return {
        "bench": summary["benchmark"],
        "ours": ours,
        "interval": [low, high],
        "asked": _asked(summary),
        "published": figure["score"],
        "verdict": verdict,
        "how": figure["how"],
        "differs": figure.get("differs"),
        "source": figure["source"],
    }


def _asked(summary: BenchSummary) -> str:
    """How the model was asked here."""
    sampling, n = summary["sampling"] or {}, summary["samples"]
    of = "" if summary["rows"] in (None, summary["num_questions"]) else f" of {summary['rows']:,}"
    said = [f"{summary['num_questions']:,}{of} questions", f"{n} sample{'' if n == 1 else 's'}"]
    if "temperature" in sampling:
        said.append(f"temperature {sampling['temperature']:g}")
    if "max_tokens" in sampling:
        said.append(f"at most {sampling['max_tokens']:,} tokens")
    return ", ".join(said)


def lines(found: list[PublishedComparison]) -> list[str]:
    """Such entries as lines of markdown: a table, then for each how it was asked here and there."""
    if not found:
        where = "of this model on these benchmarks (assets/published.toml)"
        return [f"No figure is published {where}; --as NAME says which model it is."]
    rows, notes = [], []
    for one in found:
        low, high = one["interval"]
        reach = text.DASH if low is None else f"[{metrics.text(low)}, {metrics.text(high)}]"
        scores = [metrics.text(one["ours"]), reach, metrics.text(one["published"])]
        rows.append([one["bench"], *scores, one["verdict"] or text.DASH])
        differs = f" Differs: {one['differs']}." if one["differs"] else ""
        asked = f"here {one['asked']}; there {one['how']}.{differs}"
        notes.append(f"- {one['bench']}: {asked} Source: {', '.join(one['source'])}")
    header = ["Benchmark", "Ours", "95 %", "Published", "Ours is"]
    return [*text.markdown_table(header, rows, 1), "", *notes]
