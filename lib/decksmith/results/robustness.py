"""How far a ranking holds: the same scores under other weights, without a dimension, a domain or a family of prompts, by the judge
alone, with either feature scan, and under either accounting.

A rank here is the place of a model's mean among the means, ties sharing. It is only ever given as a range over such changes, and
the range over all of them takes in what the paired tests leave open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from decksmith.core.records import Record
from decksmith.results import stats, text
from decksmith.results.summary import TITLES, Columns, columns, prompt_of

if TYPE_CHECKING:
    from decksmith.results.stats import Array

    Changes = list[tuple[str, Array]]  # what was changed, and every model's mean then

TIE = 1e-9
KINDS = {
    "test": "Paired tests",
    "weights": "Any weights",
    "dimension": "A dimension left out",
    "domain": "A domain left out",
    "prompts": "A prompt family left out",
    "judge": "Judge only",
    "craft": "craft or craft-v5",
    "accounting": "Renderable only",
}


def card(loaded: list[Record], tested: dict[str, list[int]] | None = None) -> Record | None:
    """The robustness card of several runs (`runs.load`), or None for fewer than two runs, a single dimension (nothing can be
    weighed otherwise) or too few prompts that all have.

    `tested`: `{label: [best, worst]}`, the ranks that the paired tests at the protocol's weights leave open
    (`claims.ranks`); None when they make no claim, which leaves every rank open. Weights are the protocol's, equal ones
    where it names none. Returns

    - `models`, `prompts` (shared by all models), `tried` ({kind: changes tried}, kinds as in KINDS);
    - `ranks`: {label: {"any": [best, worst], kind: [best, worst]}}. `test` is `tested`; each other kind spans its changes
      and no change; `any` spans all of these;
    - `swaps`: per pair {"a", "b", "move", "of", "to", "where"}: the least share of the weight that must move for their
      means to change places (None: no weights do that), where most of it comes from and goes to, and the other changes
      that swap them.
    """
    import numpy

    if len(loaded) < 2:
        return None
    labels = [run["label"] for run in loaded]
    weights = loaded[0]["protocol"]["score"].get("weights") or _equal(loaded[0])
    names = list(weights)
    floor = [columns(run["records"], "floor") for run in loaded]
    prompts = _shared(floor, names)
    if len(names) < 2 or len(prompts) < stats.FEWEST:
        return None
    at = numpy.array(list(weights.values())) / sum(weights.values())
    cube = _cube(floor, prompts, names)  # (models, prompts, dimensions)
    means = cube.mean(axis=1)
    tried = {
        **_weighed(means, at, names),
        **_left_out(cube @ at, loaded, prompts),
        **_measured(loaded, floor, at, names),
    }
    tried = {kind: tried[kind] for kind in KINDS if kind != "test"}
    base = means @ at
    ranks = {"test": numpy.array([(tested or {}).get(name, [1, len(labels)]) for name in labels]).T}
    for kind, changes in tried.items():
        if changes:
            ranks[kind] = _ranks(numpy.array([base, *(values for _, values in changes)]))
    ranks["any"] = numpy.array(
        [
            numpy.min([best for best, _ in ranks.values()], axis=0),
            numpy.max([worst for _, worst in ranks.values()], axis=0),
        ]
    )
    return {
        "models": labels,
        "prompts": len(prompts),
        "tried": {"test": 1, **{kind: len(changes) for kind, changes in tried.items()}},
        "ranks": {
            label: {
                kind: [int(best[place]), int(worst[place])] for kind, (best, worst) in ranks.items()
            }
            for place, label in enumerate(labels)
        },
        "swaps": _swaps(labels, names, at, means, base, tried),
    }


def _equal(run: Record) -> dict[str, float]:
    """The same weight for every dimension that a run has."""
    scores = (record["score"].get("dimensions") or {} for record in run["records"])
    return dict.fromkeys(itertools.chain.from_iterable(scores), 1)


def _weighed(means: Array, at: Array, names: list[str]) -> dict[str, Changes]:
    """Other weights of the same means: all there are, a dimension left out, and the judge's dimensions alone."""
    import numpy

    place = numpy.arange(len(names))
    without = {name: numpy.where(place == at_place, 0, at) for at_place, name in enumerate(names)}
    changed: dict[str, Changes] = {
        "weights": [("", row) for row in simplex(len(names)) @ means.T],
        "dimension": [
            (f"without {TITLES.get(name, name)}", means @ rest / rest.sum())
            for name, rest in without.items()
            if rest.sum() > 0
        ],
        "judge": [],
    }
    judged = without.get("viscraft")
    if judged is not None and judged.sum() > 0:
        changed["judge"].append(("judge only", means @ judged / judged.sum()))
    return changed


def _left_out(overall: Array, loaded: list[Record], prompts: list[str]) -> dict[str, Changes]:
    """The means without each family of prompts of which enough others are left; overall has the shape (models, prompts)."""
    changed: dict[str, Changes] = {"domain": [], "prompts": []}
    for kind, what, left_out in _families(loaded, prompts):
        if (~left_out).sum() >= stats.FEWEST:
            changed[kind].append((f"without {what}", overall[:, ~left_out].mean(axis=1)))
    return changed


def _measured(
    loaded: list[Record], floor: list[Columns], at: Array, names: list[str]
) -> dict[str, Changes]:
    """The means with another scan in VisCraft's place, and over the decks that rendered."""
    changed: dict[str, Changes] = {"craft": [], "accounting": []}
    for scan in ("craft", "craft_v5"):
        other = [scan if name == "viscraft" else name for name in names]
        both = _shared(floor, other)
        if "viscraft" in names and len(both) >= stats.FEWEST:
            changed["craft"].append((TITLES[scan], _cube(floor, both, other).mean(axis=1) @ at))
    renderable = [columns(run["records"], "renderable") for run in loaded]
    both = _shared(renderable, names)
    if len(both) >= stats.FEWEST:
        means = _cube(renderable, both, names).mean(axis=1) @ at
        changed["accounting"].append((f"renderable only ({len(both)} prompts)", means))
    return changed


def simplex(dimensions: int) -> Array:
    """All weights that sum to 1 in equal steps, shape (weights, dimensions): steps of 0.05 up to four dimensions, coarser beyond."""
    import numpy

    parts = next(n for n in (20, 10, 5, 2, 1) if n == 1 or math.comb(n + dimensions - 1, n) <= 4000)
    bars = numpy.array(list(itertools.combinations(range(parts + dimensions - 1), dimensions - 1)))
    edges = numpy.hstack(
        [numpy.full((len(bars), 1), -1), bars, numpy.full((len(bars), 1), parts + dimensions - 1)]
    )
    return (numpy.diff(edges, axis=1) - 1) / parts


def swap(weights: Array, gap: Array) -> Array | None:
    """The least change of `weights` (sum 1) after which `weights @ gap` is 0: the new weights, or None when no weights turn its sign.

    Least in half the sum of absolute changes, the share of the weight that moves. All of it goes to the dimension that speaks
    most for the other side, and comes first from the one that speaks most against it: a fractional knapsack.
    """
    import numpy

    weights, gap = numpy.array(weights, dtype=float), numpy.asarray(gap, dtype=float)
    gap = gap * (1 if weights @ gap >= 0 else -1)
    left, to = float(weights @ gap), int(numpy.argmin(gap))
    if left <= TIE:
        return weights
    if gap[to] >= -TIE:
        return None
    for place in numpy.argsort(-gap, kind="stable"):
        moved = min(weights[place], left / (gap[place] - gap[to])) if gap[place] > gap[to] else 0.0
        weights[place] -= moved
        weights[to] += moved
        left -= moved * (gap[place] - gap[to])
        if left <= TIE:
            break
    return weights


def _shared(tables: list[Columns], names: list[str]) -> list[str]:
    """The prompts that have every measure of `names` in every table."""
    if not names or not all(name in table for table in tables for name in names):
        return []
    return sorted(set.intersection(*(set(table[name]) for table in tables for name in names)))


def _cube(tables: list[Columns], prompts: list[str], names: list[str]) -> Array:
    import numpy

    return numpy.array(
        [[[table[name][prompt] for name in names] for prompt in prompts] for table in tables]
    )


def _families(loaded: list[Record], prompts: list[str]) -> Iterator[tuple[str, str, Array]]:
    """`(kind, what, mask over prompts)` for every domain, language, theme, audience and asked feature."""
    import numpy

    asks = {prompt_of(record): record.get("asks") or {} for record in loaded[0]["records"]}
    for key, kind in (
        ("domain", "domain"),
        ("language", "prompts"),
        ("theme", "prompts"),
        ("audience", "prompts"),
        ("features", "prompts"),
    ):
        said = [_as_list(asks.get(prompt, {}).get(key)) for prompt in prompts]
        for value in sorted({value for values in said for value in values}):
            yield (
                kind,
                f"{key.removesuffix('s')} {value}",
                numpy.array([value in values for values in said]),
            )


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [value] if value else []


def _ranks(values: Array) -> Array:
    """Best and worst place of each column over the rows of `values`, shape (changes, models); equal means share their places."""
    import numpy

    ahead = (
        values[:, None, :] > values[:, :, None] + TIE
    )  # [change, model, other]: the other is ahead
    return numpy.array(
        [1 + ahead.sum(axis=2).min(axis=0), values.shape[1] - ahead.sum(axis=1).min(axis=0)]
    )


def _swaps(
    labels: list[str],
    names: list[str],
    at: Array,
    means: Array,
    base: Array,
    tried: dict[str, Changes],
) -> list[Record]:
    import numpy

    found = []
    for a, b in itertools.combinations(range(len(labels)), 2):
        moved = swap(at, means[a] - means[b])
        change = None if moved is None else moved - at
        sign = base[a] - base[b]
        where = [
            what
            for kind, changes in tried.items()
            if kind != "weights"
            for what, values in changes
            if (values[a] - values[b]) * sign < 0 and abs(values[a] - values[b]) > TIE
        ]
        pair: Record = {"a": labels[a], "b": labels[b], "move": None, "of": None, "to": None}
        if change is not None:
            pair["move"] = round(float(numpy.abs(change).sum() / 2), 4)
            if numpy.abs(change).max() > TIE:
                pair["of"], pair["to"] = names[int(change.argmin())], names[int(change.argmax())]
        found.append({**pair, "where": where})
    return found


def tables(found: Record) -> list[tuple[str, list[str], list[list[str]], str]]:
    """The card as tables, `(title, header, rows, note)`, cells as text: the range of every model's rank, and what swaps two
    of them."""
    kinds = [kind for kind in KINDS if found["tried"].get(kind)]
    ranks = [
        [label, *(text.rank(found["ranks"][label][kind]) for kind in ("any", *kinds))]
        for label in found["models"]
    ]
    swaps = [
        [f"{pair['a']} / {pair['b']}", _moved(pair), "; ".join(pair["where"]) or "none"]
        for pair in found["swaps"]
    ]
    return [
        (
            "How far the ranking holds",
            ["Model", "Rank, any change", *(KINDS[kind] for kind in kinds)],
            ranks,
            NOTE,
        ),
        (
            "What swaps two models",
            ["Pair", "Least weight to move", "Other changes that swap their means"],
            swaps,
            "",
        ),
    ]


def _moved(pair: Record) -> str:
    if pair["move"] is None:
        return "no weights swap them"
    if pair["of"] is None:
        return "none: their means are equal"
    return f"{pair['move']:.2f}, most from {TITLES.get(pair['of'], pair['of'])} to {TITLES.get(pair['to'], pair['to'])}"


NOTE = (
    "Ranges of the place of a model's mean over the prompts that all models share, under each change and none. Paired tests: what "
    "the tests at the protocol's weights leave open. Rank, any change: over all columns. Any weights: all, in steps of 0.05."
)
