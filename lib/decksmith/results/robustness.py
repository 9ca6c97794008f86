"""How far a ranking holds: the same scores under other weights, without a dimension, a domain or a family of prompts, by the judge
alone, with either feature scan, and under either accounting.

A rank here is the place of a model's mean among the means, ties sharing. It is only ever given as a range over such changes, and
the range over all of them takes in what the paired tests leave open.
"""

import itertools
import math

from decksmith.core.records import prompt_of
from decksmith.results import runs, stats

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


def card(loaded, tested=None):
    """The robustness card of several runs (`runs.load`), or None for fewer than two runs, a single dimension (nothing can be weighed
    otherwise) or too few prompts that all have.

    `tested`: `{label: [best, worst]}`, the ranks that the paired tests at the protocol's weights leave open (`claims.ranks`); None
    when they make no claim, which leaves every rank open. Weights are the protocol's, equal ones where it names none. Returns

    - `models`, `prompts` (shared by all models), `tried` ({kind: changes tried}, kinds as in KINDS);
    - `ranks`: {label: {"any": [best, worst], kind: [best, worst]}}. `test` is `tested`; each other kind spans its changes and no
      change; `any` spans all of these;
    - `swaps`: per pair {"a", "b", "move", "of", "to", "where"}: the least share of the weight that must move for their means to
      change places (None: no weights do that), where most of it comes from and goes to, and the other changes that swap them.
    """
    import numpy

    labels = [run["label"] for run in loaded]
    if len(loaded) < 2:
        return None
    floor = [runs.columns(run["records"], "floor") for run in loaded]
    weights = loaded[0]["protocol"]["score"].get("weights") or dict.fromkeys(
        (
            name
            for record in loaded[0]["records"]
            for name in record["score"].get("dimensions") or {}
        ),
        1,
    )
    names = list(weights)
    prompts = _shared(floor, names)
    if len(names) < 2 or len(prompts) < stats.FEWEST:
        return None
    at = numpy.array(list(weights.values())) / sum(weights.values())
    cube = _cube(floor, prompts, names)  # (models, prompts, dimensions)
    means = cube.mean(axis=1)
    grid = simplex(len(names))
    tried = {
        "weights": [("", row) for row in grid @ means.T],
        "dimension": [],
        "domain": [],
        "prompts": [],
        "judge": [],
        "craft": [],
        "accounting": [],
    }
    for place, name in enumerate(names):
        rest = numpy.where(numpy.arange(len(names)) == place, 0, at)
        if rest.sum() > 0:
            tried["dimension"].append(
                (f"without {runs.TITLES.get(name, name)}", means @ rest / rest.sum())
            )
    judged = numpy.where([name == "viscraft" for name in names], 0, at)
    if "viscraft" in names and judged.sum() > 0:
        tried["judge"].append(("judge only", means @ judged / judged.sum()))
    overall = cube @ at  # (models, prompts)
    for kind, what, left_out in _families(loaded, prompts):
        if (~left_out).sum() >= stats.FEWEST:
            tried[kind].append((f"without {what}", overall[:, ~left_out].mean(axis=1)))
    for scan in ("craft", "craft_v5"):
        other = [scan if name == "viscraft" else name for name in names]
        if "viscraft" in names and len(both := _shared(floor, other)) >= stats.FEWEST:
            tried["craft"].append((runs.TITLES[scan], _cube(floor, both, other).mean(axis=1) @ at))
    renderable = [runs.columns(run["records"], "renderable") for run in loaded]
    if len(both := _shared(renderable, names)) >= stats.FEWEST:
        tried["accounting"].append(
            (
                f"renderable only ({len(both)} prompts)",
                _cube(renderable, both, names).mean(axis=1) @ at,
            )
        )

    base = means @ at
    ranks = {
        kind: _ranks(numpy.array([base, *(values for _, values in changes)]))
        for kind, changes in tried.items()
        if changes
    }
    ranks = {
        "test": numpy.array([(tested or {}).get(label, [1, len(labels)]) for label in labels]).T,
        **ranks,
    }
    ranks["any"] = numpy.array(
        [
            numpy.min([r[0] for r in ranks.values()], axis=0),
            numpy.max([r[1] for r in ranks.values()], axis=0),
        ]
    )
    return {
        "models": labels,
        "prompts": len(prompts),
        "tried": {"test": 1, **{kind: len(changes) for kind, changes in tried.items()}},
        "ranks": {
            label: {kind: [int(ends[0][m]), int(ends[1][m])] for kind, ends in ranks.items()}
            for m, label in enumerate(labels)
        },
        "swaps": _swaps(labels, names, at, means, base, tried),
    }


def simplex(dimensions):
    """All weights that sum to 1 in equal steps, shape (weights, dimensions): steps of 0.05 up to four dimensions, coarser beyond."""
    import numpy

    parts = next(n for n in (20, 10, 5, 2, 1) if n == 1 or math.comb(n + dimensions - 1, n) <= 4000)
    bars = numpy.array(list(itertools.combinations(range(parts + dimensions - 1), dimensions - 1)))
    edges = numpy.hstack(
        [numpy.full((len(bars), 1), -1), bars, numpy.full((len(bars), 1), parts + dimensions - 1)]
    )
    return (numpy.diff(edges, axis=1) - 1) / parts


def swap(weights, gap):
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


def _shared(tables, names):
    """The prompts that have every measure of `names` in every table."""
    if not names or not all(name in table for table in tables for name in names):
        return []
    return sorted(set.intersection(*(set(table[name]) for table in tables for name in names)))


def _cube(tables, prompts, names):
    import numpy

    return numpy.array(
        [[[table[name][prompt] for name in names] for prompt in prompts] for table in tables]
    )


def _families(loaded, prompts):
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
        said = [asks.get(prompt, {}).get(key) for prompt in prompts]
        said = [value if isinstance(value, list) else [value] if value else [] for value in said]
        for value in sorted({value for values in said for value in values}):
            yield (
                kind,
                f"{key.removesuffix('s')} {value}",
                numpy.array([value in values for values in said]),
            )


def _ranks(values):
    """Best and worst place of each column over the rows of `values`, shape (changes, models); equal means share their places."""
    import numpy

    ahead = (
        values[:, None, :] > values[:, :, None] + TIE
    )  # [change, model, other]: the other is ahead
    return numpy.array(
        [1 + ahead.sum(axis=2).min(axis=0), values.shape[1] - ahead.sum(axis=1).min(axis=0)]
    )


def _swaps(labels, names, at, means, base, tried):
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
        far = change is not None and numpy.abs(change).max() > TIE
        found.append(
            {
                "a": labels[a],
                "b": labels[b],
                "move": None if change is None else round(float(numpy.abs(change).sum() / 2), 4),
                "of": names[int(change.argmin())] if far else None,
                "to": names[int(change.argmax())] if far else None,
                "where": where,
            }
        )
    return found


def tables(found):
    """The card as tables, `[(title, header, rows)]`, cells as text: the range of every model's rank, and what swaps two of them."""
    from decksmith.results.claims import rank_text

    kinds = [kind for kind in KINDS if found["tried"].get(kind)]
    ranks = [
        [label, *(rank_text(found["ranks"][label][kind]) for kind in ("any", *kinds))]
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
        ),
        (
            "What swaps two models",
            ["Pair", "Least weight to move", "Other changes that swap their means"],
            swaps,
        ),
    ]


def _moved(pair):
    if pair["move"] is None:
        return "no weights swap them"
    if pair["of"] is None:
        return "none: their means are equal"
    return f"{pair['move']:.2f}, most from {runs.TITLES.get(pair['of'], pair['of'])} to {runs.TITLES.get(pair['to'], pair['to'])}"


NOTE = (
    "Ranges of the place of a model's mean over the prompts that all models share, under each change and none. Paired tests: what "
    "the tests at the protocol's weights leave open. Rank, any change: over all columns. Any weights: all, in steps of 0.05."
)
