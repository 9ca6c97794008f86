"""Before spending: the smallest difference between two models that so many prompts could detect, and what these cost.

What is planned is the claim that is made (claims): by how much the decks are better where both render, tested beside how many
render. Two models' runs over the same prompts tell how much the difference varies from prompt to prompt, and how often both render;
one run gives an upper bound. What a prompt asks of all models cancels; what replies and judgings vary by stays (Miller 2024,
arXiv:2411.00640).
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy

from decksmith.core import cli, stream
from decksmith.core.records import prompt_of
from decksmith.measure.results import floor, runs, stats, text
from decksmith.measure.results.comparison import Run
from decksmith.measure.results.pairs import better
from decksmith.measure.results.summary import SHARES, Cells, busy, columns, domains
from decksmith.measure.results.usage import added
from decksmith.models.records import Usage

POWER = 0.8
PROMPTS = (30, 60, 120, 240, 480)  # of the designs that are shown
AROUND = 4  # designs shown on either side of the one that reaches the effect


@dataclass
class Deviation:
    """The standard deviation of one prompt's paired difference."""

    value: float  # from one model an upper bound
    n: int  # prompts behind it
    spread: tuple[float, float]  # factors between which it may be off


@dataclass
class Design:
    """So many prompts, and what one run of every model comes to."""

    prompts: int
    mde: float  # where both render
    renders: float  # the same of the share of prompts whose decks render
    requests: int
    cost: float | None  # USD
    seconds: float | None
    reaches: bool  # whether it finds the effect that was asked for


@dataclass
class Rates:
    """What a prompt took of one model, as measured in its runs: all replies to it and their judgings."""

    model: str
    requests: float
    reply: float | None  # USD
    verdict: float | None  # USD; 0 where nobody is asked
    seconds: float | None


@dataclass
class Plan:
    """A plan from earlier runs; `designs` are ordered by prompts."""

    models: list[str]
    deviation: Deviation
    effect: float | None
    designs: list[Design]
    expected: stats.Expected
    is_share: bool  # the measure is a share of checks, and no mark
    notes: list[str]


def deviation(scores: list[Cells]) -> Deviation:
    """From scores by prompt, a dict for each model; prompts that some model lacks are left out.

    Of a single model the value is an upper bound, as long as the other model does not find hard what this one finds easy. `spread`
    is of 95 %, by 500 seeded resamples of the prompts.
    """
    prompts = sorted(set.intersection(*map(set, scores)))
    values = numpy.array([[cells[prompt] for prompt in prompts] for cells in scores])
    n, random = len(prompts), numpy.random.default_rng(stats.SEED)
    draws = [_deviation(values[:, random.integers(0, n, n)]) for _ in range(500)]
    found = _deviation(values)
    low, high = numpy.quantile(draws, [0.025, 0.975]) / (found or 1)
    return Deviation(found, n, (float(low), float(high)))


def _deviation(values: stats.Array) -> float:
    """`values`: shape (models, prompts)."""
    squares = [gap.var(ddof=1) for gap in _gaps(values)]
    return math.sqrt(numpy.mean(squares) * (2 if len(values) == 1 else 1))


def plan(loaded: list[Run], effect: float | None = None) -> Plan:
    """A plan from earlier runs; those of one model are pooled. Raises cli.BadData where the runs cannot carry a plan."""
    alive = [run for run in loaded if run["summary"]["rendered"]]
    if not alive:
        raise cli.BadData(
            f"{' and '.join(run['label'] for run in loaded)}: no deck rendered, so every score is "
            "the floor and nothing can be learned about how scores vary; plan from a run that "
            "renders"
        )
    groups: dict[str, list[Run]] = {}
    for run in alive:
        groups.setdefault(stream.fingerprint(run["summary"]["model"]), []).append(run)
    models = list(groups.values())
    records = [[record for run in group for record in run["records"]] for group in models]
    measure = better(alive)[1]
    if effect and effect >= 1 and measure in SHARES:
        raise cli.BadData(
            f"{effect:g}: a difference of shares is below 1; 0.05 are 5 points of the checks"
        )
    scores = [columns(each, "renderable").get(measure, {}) for each in records]
    expected = _expected(
        [columns(each, "floor").get("renders", {}) for each in records],
        *between_domains(scores, domains(record for each in records for record in each)),
    )
    names = " and ".join(group[0]["label"] for group in models)
    shared = len(set.intersection(*map(set, scores)))
    if shared < stats.FEWEST:
        raise cli.BadData(
            f"{names}: {shared} prompt{'' if shared == 1 else 's'} that render"
            f"{' in every run' if len(models) > 1 else ''}; a plan needs at least {stats.FEWEST}"
        )
    varies = deviation(scores)
    if not varies.value:
        raise cli.BadData(
            f"{names}: the scores do not vary, so no difference is too small to detect; plan from other runs"
        )
    rates = [_rates(group) for group in models]
    left_out = "is left out: none of its decks rendered, so its scores do not vary."
    dead = [f"{run['label']} {left_out}" for run in loaded if run not in alive]
    return Plan(
        models=[group[0]["label"] for group in models],
        deviation=varies,
        effect=effect,
        designs=_designs(varies, expected, rates, effect),
        expected=expected,
        is_share=measure in SHARES,
        notes=[*dead, *_notes(varies, rates, alive), *floor.planned(alive[0])],
    )


def between_domains(scores: list[Cells], asked: dict[str, str | None]) -> tuple[int, float]:
    """`(domains, share of the differences' variance that lies between them)` by an analysis of variance, 0.0 where its test shows
    nothing; (0, 0.0) of one model, and where most prompts have a domain to themselves."""
    from scipy.special import fdtrc

    prompts = sorted(set.intersection(*map(set, scores)))
    names = [asked.get(prompt) or prompt for prompt in prompts]
    known, label, sizes = numpy.unique(names, return_inverse=True, return_counts=True)
    n, groups = len(prompts), len(known)
    if len(scores) < 2 or groups < 2 or (sizes**2).sum() < 2 * n:
        return 0, 0.0
    values = numpy.array([[cells[prompt] for prompt in prompts] for cells in scores])
    shares = []
    for gap in _gaps(values):
        means = numpy.bincount(label, gap) / sizes
        among = (sizes * (means - gap.mean()) ** 2).sum() / (groups - 1)
        within = ((gap - means[label]) ** 2).sum() / (n - groups)
        each = (n - (sizes**2).sum() / n) / (groups - 1)
        seen = within > 0 and fdtrc(groups - 1, n - groups, among / within) <= 1 - stats.LEVEL
        shares.append((among - within) / (among + (each - 1) * within) if seen else 0.0)
    return groups, float(numpy.mean(shares))


def _gaps(values: stats.Array) -> list[stats.Array]:
    """The differences of each two models by prompt, of one model its values; values: shape (models, prompts)."""
    return [a - b for a, b in itertools.combinations(values, 2)] or [values[0]]


def _expected(renders: list[Cells], domains: int, alike: float) -> stats.Expected:
    """From whether decks render by prompt, a dict for each model; of one model, as if another's did as often."""
    if len(renders) < 2:
        rate = sum(renders[0].values()) / len(renders[0])
        apart = rate * (1 - rate)
        return stats.Expected(rate * rate, (apart, apart), domains, alike)
    prompts = set.intersection(*map(set, renders))
    pairs = [(a[p], b[p]) for a, b in itertools.combinations(renders, 2) for p in prompts]
    both, first, second = (
        sum(cells) / len(pairs)
        for cells in zip(*((a * b, a * (1 - b), b * (1 - a)) for a, b in pairs), strict=True)
    )
    return stats.Expected(both, (first, second), domains, alike)


def _designs(
    varies: Deviation, expected: stats.Expected, rates: list[Rates], effect: float | None
) -> list[Design]:
    """The usual designs, the runs' own, and, with an effect, the smallest that reaches it with some around it."""
    sizes = {*PROMPTS, varies.n}
    if effect:
        wanted = stats.smallest_sample(
            lambda n: stats.power(effect, varies.value, n, expected), POWER
        )
        if wanted:
            least = max(stats.FEWEST, wanted)
            below = sorted(n for n in sizes if n < least)[-AROUND:]
            sizes = {*below, least, *sorted(n for n in sizes if n > least)[:AROUND]}
    return [_design(varies.value, expected, rates, effect, n) for n in sorted(sizes)]


def _design(
    sd: float, expected: stats.Expected, rates: list[Rates], effect: float | None, n: int
) -> Design:
    cost = added(added([rate.reply, rate.verdict]) for rate in rates)
    seconds = added(rate.seconds for rate in rates)
    less = min(expected.apart)
    return Design(
        prompts=n,
        mde=stats.smallest_effect(lambda size: stats.power(size, sd, n, expected), 64 * sd, POWER),
        renders=stats.smallest_effect(
            lambda more: stats.render_power(n, less + more, less), 1 - 2 * less, POWER
        ),
        requests=round(n * sum(rate.requests for rate in rates)),
        cost=None if cost is None else n * cost,
        seconds=None if seconds is None else n * seconds,
        reaches=effect is not None and stats.power(effect, sd, n, expected) >= POWER,
    )


def _rates(group: list[Run]) -> Rates:
    records = [record for run in group for record in run["records"]]
    prompts = len(set(map(prompt_of, records)))
    replies = [gen for record in records if (gen := record.get("gen")) and "error" not in gen]
    judged = [one for record in records if (one := record.get("judge")) and "error" not in one]
    names = group[0]["protocol"]["judge"].get("model") or []
    asks = 1 if isinstance(names, str) else len(names)
    seconds = busy(records)
    reply = _mean(gen.get("usage") for gen in replies)
    verdict = _mean(one.get("usage") for one in judged) if asks and judged else 0
    return Rates(
        model=group[0]["summary"]["model"]["name"],
        requests=(len(records) + asks * len(judged)) / prompts,
        reply=None if reply is None else reply * len(records) / prompts,
        verdict=None if verdict is None else verdict * len(judged) / prompts,
        seconds=seconds / prompts if seconds else None,
    )


def _mean(usages: Iterable[Usage | None]) -> float | None:
    """The mean USD; None where there is nothing, or any is unknown."""
    costs = [usage.get("cost") if usage else None for usage in usages]
    total = added(costs)
    return total / len(costs) if costs and total is not None else None


# Words

UPPER_BOUND = (
    "One model: what its scores share with another model's on the same prompts cannot be seen, so every difference shown is "
    "an upper bound (as long as the other model does not find hard what this one finds easy). A second model's run over the same "
    "prompts tells."
)
NO_PRICE = "the price is unknown: no `price` in assets/models.toml, and no cost in the records"
LEGEND = (
    "The smallest true difference that is found in 4 of 5 such studies of two models: in how many decks render, and {measure} where "
    "both render. With more models compared at once you need more prompts. Prompts are drawn as these were, with as many replies to each. Requests, price and time are for one "
    "run of {models}, one after the other, at the rates of these runs."
)


def _notes(varies: Deviation, rates: list[Rates], loaded: list[Run]) -> list[str]:
    low, high = varies.spread
    notes = [UPPER_BOUND] if len(rates) == 1 else []
    notes.append(
        f"The estimate rests on {varies.n} prompts: another draw of prompts could make every difference that is found {low:.2f} "
        f"to {high:.2f} times the one shown (95 %)."
    )
    if unpriced := [rate.model for rate in rates if rate.reply is None]:
        notes.append(f"{', '.join(unpriced)}: {NO_PRICE}.")
    if any(rate.verdict is None for rate in rates):
        notes.append(f"{runs.judged_by(loaded)} (the judge): {NO_PRICE}.")
    return notes


def markdown(found: Plan) -> str:
    """The plan as text."""
    varies, shared = found.deviation, "shared " if len(found.models) > 1 else ""
    lines = [
        f"Planned from {' and '.join(found.models)}: {varies.n} {shared}prompts whose decks render. Both models' decks are taken to "
        f"render for {text.whole_percent(found.expected.both)} of prompts; the difference of two such decks has a standard deviation of "
        f"{_size(found, varies.value)}{_between(found.expected)}.",
        "",
    ]
    if found.effect:
        lines += [_cheapest(found, found.effect), ""]
    measure = "checks passed" if found.is_share else "Overall"
    header = ["Prompts", "Renders", measure.capitalize(), *(["Enough"] if found.effect else [])]
    rows = []
    for design in found.designs:
        cells = [str(design.prompts), _points(design.renders), _size(found, design.mde)]
        cells += ["yes" if design.reaches else "no"] if found.effect else []
        time = text.duration(design.seconds, longest=120)
        rows.append([*cells, f"{design.requests:,}", text.price(design.cost), time])
    table = text.markdown_table([*header, "Requests", "Price", "Time"], rows, 0)
    lines += ["**Designs, the cheapest first**", "", *table, ""]
    measure = f"in the share of {measure}" if found.is_share else f"in {measure}"
    models = ("each of " if found.models[1:] else "") + ", ".join(found.models)
    legend = LEGEND.format(measure=measure, models=models)
    return "\n".join([*lines, legend, "", *(f"- {note}" for note in found.notes), ""])


def _cheapest(found: Plan, effect: float) -> str:
    """The smallest design that finds the effect, in a sentence."""
    size = _size(found, effect)
    best = next((design for design in found.designs if design.reaches), None)
    if best is None:
        return f"**No number of prompts finds a difference of {size} in 4 of 5 studies.**"
    cost = f"price {text.price(best.cost)}, time {text.duration(best.seconds, longest=120)}"
    return f"**To find a difference of {size}**, the cheapest design is {best.prompts:,} prompts: {cost}."


def _between(expected: stats.Expected) -> str:
    """How far prompts of one domain agree, as the end of a clause."""
    if not expected.domains:
        return ""
    share = text.whole_percent(expected.alike)
    return f", {share} of its variance between the {expected.domains} domains"


def _size(found: Plan, value: float) -> str:
    """A difference as text: points of a share, or of a mark."""
    return _points(value) if found.is_share else "none" if math.isinf(value) else f"{value:.2f}"


def _points(value: float) -> str:
    return "none" if math.isinf(value) else f"{100 * value:.1f} points"
