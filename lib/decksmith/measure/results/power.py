"""Before spending: the smallest difference between two models that a design could detect, and what the design costs.

A design is n prompts, k samples (replies) of each, r judgings of each reply, the same for both models. The model of a score is

    score[model, prompt, sample, judging] = model + prompt + prompt x model + sample + judging

with independent parts. What is compared is the paired difference by prompt, in which the prompt's common part cancels:

    variance of one prompt's difference = 2 (prompt x model + sample / k + judging / (k r))

(Searle, Casella and McCulloch 1992, Variance Components; Miller 2024, arXiv:2411.00640, for evaluations of language models).
"""

import itertools
import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy

from decksmith.core import cli, stream
from decksmith.core.records import prompt_of, sample_of
from decksmith.measure.results import runs, stats, text
from decksmith.measure.results.records import Run
from decksmith.measure.results.stats import Array
from decksmith.measure.results.summary import busy
from decksmith.measure.results.usage import added
from decksmith.models.records import Gen, Usage

Scores = dict[str, list[list[float]]]  # the score of each judging of each sample, by prompt
POWER = 0.8
# The designs that are shown.
PROMPTS = (30, 60, 120, 240, 480)
SAMPLES = (1, 2, 4)
JUDGINGS = (1, 3)


@dataclass
class Parts:
    """Variance components of one score; None is what the scores cannot tell: then that part is in the one before it."""

    prompt: float | None  # common to the models; None for a single model
    interaction: float  # prompt x model; for a single model all that varies between prompts
    sample: float | None
    judge: float | None
    n: int = 0  # prompts behind them
    spread: tuple[float, float] | None = None  # factors between which `deviation` may be off


@dataclass
class Design:
    """So many prompts, samples of each and judgings of each sample, and what one run of every model comes to."""

    prompts: int
    samples: int
    judgings: int
    mde: float
    requests: int
    cost: float | None  # USD
    seconds: float | None
    reaches: bool  # whether it finds the effect that was asked for


@dataclass
class Rates:
    """What one reply and one judging took, as measured in the runs of one model."""

    model: str
    reply: float | None  # USD
    verdict: float | None
    asks: int  # models that judge a deck
    share: float  # of the decks that are judged
    seconds: float | None  # of a deck through the whole pipeline
    judging: float | None


@dataclass
class Plan:
    """A plan from earlier runs; `designs` are ordered by cost."""

    models: list[str]
    prompts: int
    parts: Parts
    effect: float | None
    designs: list[Design]
    measure: str
    notes: list[str]


# Variance components: plain functions


def deviation(parts: Parts, samples: int = 1, judgings: int = 1) -> float:
    """The standard deviation of one prompt's paired difference under a design."""
    sample = (parts.sample or 0) / samples
    judge = (parts.judge or 0) / samples / judgings
    return math.sqrt(2 * (parts.interaction + sample + judge))


def components(scores: list[Scores], judge: float | None = None) -> Parts:
    """Variance components of nested scores by the method of moments (unweighted means: Burdick and Graybill 1992, chapter 5).

    `scores`: one dict per model; cells may have different sizes, and at least two prompts must be there for every model:
    the others are left out. `judge`: the variance of one judging where it is known from elsewhere; otherwise replies that
    were judged twice tell it.

    For a single model `interaction` is an upper bound of what a paired comparison would keep of it, as long as the other
    model does not find hard what this one finds easy. Negative estimates are 0. `spread` is of 95 %, by 500 seeded
    resamples of the prompts.
    """
    cells = _cells(scores)
    n, random = cells["mean"].shape[1], numpy.random.default_rng(stats.SEED)
    parts = _moments(cells, judge)
    draws = []
    for _ in range(500):
        drawn = random.integers(0, n, n)
        again = {name: values[:, drawn] for name, values in cells.items()}
        draws.append(deviation(_moments(again, judge)))
    parts.n = n
    if base := deviation(parts):
        low, high = numpy.quantile(draws, [0.025, 0.975]) / base
        parts.spread = float(low), float(high)
    return parts


def _cells(scores: list[Scores]) -> dict[str, Array]:
    """What the moments need of every (model, prompt), as arrays of that shape."""
    prompts = sorted(set.intersection(*map(set, scores)))
    names = (
        "mean",
        "per_sample",
        "per_judging",
        "ss_sample",
        "df_sample",
        "share",
        "ss_judge",
        "df_judge",
    )
    cells = {name: numpy.zeros((len(scores), len(prompts))) for name in names}
    for place in numpy.ndindex(len(scores), len(prompts)):
        samples = scores[place[0]][prompts[place[1]]]
        means, each = (
            numpy.array([numpy.mean(judgings) for judgings in samples]),
            numpy.array([1 / len(j) for j in samples]),
        )
        k = len(samples)
        found = (
            means.mean(),
            1 / k,
            each.sum() / k**2,
            ((means - means.mean()) ** 2).sum(),
            k - 1,
            (k - 1) * each.mean(),
            sum(((numpy.array(j) - numpy.mean(j)) ** 2).sum() for j in samples),
            sum(len(j) - 1 for j in samples),
        )
        for name, value in zip(names, found, strict=True):
            cells[name][place] = value
    return cells


def _moments(cells: dict[str, Array], judge: float | None) -> Parts:
    """Solve the expected mean squares for the components, from the lowest level up."""
    total = {name: values.sum() for name, values in cells.items()}
    if judge is None and total["df_judge"]:
        judge = total["ss_judge"] / total["df_judge"]
    sample = None
    if total["df_sample"]:
        sample = max(0.0, (total["ss_sample"] - (judge or 0) * total["share"]) / total["df_sample"])
    noise = ((sample or 0) * cells["per_sample"] + (judge or 0) * cells["per_judging"]).mean(axis=1)
    mean, prompt = cells["mean"], None
    if len(mean) == 1:
        interaction = mean.var(ddof=1) - noise[0]
    else:
        pairs = list(itertools.combinations(range(len(mean)), 2))
        interaction = (
            numpy.mean([(mean[a] - mean[b]).var(ddof=1) - noise[a] - noise[b] for a, b in pairs])
            / 2
        )
        prompt = max(0.0, float(numpy.mean([numpy.cov(mean[a], mean[b])[0, 1] for a, b in pairs])))
    return Parts(
        prompt=prompt,
        interaction=max(0.0, float(interaction)),
        sample=None if sample is None else float(sample),
        judge=None if judge is None else float(judge),
    )


# Runs


def plan(loaded: list[Run], effect: float | None = None) -> Plan:
    """A plan from earlier runs. Runs of one model are pooled: equal replies to one prompt are one sample judged again,
    others are further samples. Raises cli.BadData where the runs cannot carry a plan."""
    loaded, dead = _rendered(loaded)
    groups: dict[str, list[Run]] = {}
    for run in loaded:
        groups.setdefault(stream.fingerprint(run["summary"]["model"]), []).append(run)
    models = list(groups.values())
    scores = [_scores(group) for group in models]
    names = " and ".join(group[0]["label"] for group in models)
    shared = set.intersection(*map(set, scores))
    if len(shared) < stats.FEWEST:
        raise cli.BadData(
            f"{names}: {len(shared)} prompt{'' if len(shared) == 1 else 's'} with a score"
            f"{' in every run' if len(models) > 1 else ''}; a plan needs at least {stats.FEWEST}"
        )
    parts = components(scores, 0.0 if runs.offline(loaded) else None)
    if not deviation(parts):
        raise cli.BadData(
            f"{names}: the scores do not vary, so no difference is too small to detect; plan from other runs"
        )
    rates = [_rates(group) for group in models]
    sizes = _sizes(parts, len(shared), effect)
    designs = sorted((_design(parts, rates, effect, *size) for size in sizes), key=_expense)
    return Plan(
        models=[group[0]["label"] for group in models],
        prompts=len(shared),
        parts=parts,
        effect=effect,
        designs=_around(designs) if effect else designs,
        measure=runs.titles(loaded)["overall"],
        notes=_notes(parts, rates, loaded, dead),
    )


def _rendered(loaded: list[Run]) -> tuple[list[Run], list[Run]]:
    """(runs with a rendered deck, runs without). Raises cli.BadData where no run has one."""
    alive = [run for run in loaded if run["summary"]["rendered"]]
    if not alive:
        raise cli.BadData(
            f"{' and '.join(run['label'] for run in loaded)}: no deck rendered, so every score is "
            "the floor and nothing can be learned about how scores vary; plan from a run that "
            "renders"
        )
    return alive, [run for run in loaded if run not in alive]


def _scores(group: list[Run]) -> Scores:
    """`{prompt: [[score of each judging] of each sample]}` of the runs of one model."""
    cells: dict[str, dict[Hashable, list[float]]] = {}
    for place, run in enumerate(group):
        for record in run["records"]:
            if (value := record["score"].get("overall")) is not None:
                gen: Gen = record.get("gen") or {}
                which = (sample_of(record), gen.get("text", place))
                cells.setdefault(prompt_of(record), {}).setdefault(which, []).append(value)
    return {prompt: list(samples.values()) for prompt, samples in cells.items()}


def _sizes(parts: Parts, shared: int, effect: float | None) -> set[tuple[int, int, int]]:
    """Designs to look at as (prompts, samples, judgings): usual ones, the runs' own number of
    prompts, and those that just reach the effect."""
    samples = SAMPLES if parts.sample else (1,)
    judgings = JUDGINGS if parts.judge else (1,)
    sizes = set()
    for k, r in itertools.product(samples, judgings):
        prompts = {*PROMPTS, shared}
        if effect:
            prompts.add(max(stats.FEWEST, stats.needed(effect, deviation(parts, k, r))))
        sizes |= {(n, k, r) for n in prompts}
    return sizes


def _expense(design: Design) -> tuple[float, ...]:
    """What designs are ordered by: money, then time."""
    return (design.cost or 0, design.seconds or 0, design.requests, design.prompts)


def _around(designs: list[Design], each: int = 4) -> list[Design]:
    """The cheapest design that reaches the effect, the next-cheaper ones that do not, and dearer ones that do."""
    first = next(place for place, design in enumerate(designs) if design.reaches)
    dearer = [design for design in designs[first + 1 :] if design.reaches]
    return designs[max(0, first - each) : first + 1] + dearer[:each]


# Costs


def _rates(group: list[Run]) -> Rates:
    records = [record for run in group for record in run["records"]]
    replies = [gen for record in records if (gen := record.get("gen")) and "error" not in gen]
    judged = [one for record in records if (one := record.get("judge")) and "error" not in one]
    names = group[0]["protocol"]["judge"].get("model") or []
    return Rates(
        model=group[0]["summary"]["model"]["name"],
        reply=_mean([_cost(gen.get("usage")) for gen in replies]),
        verdict=_mean([_cost(one.get("usage")) for one in judged]),
        asks=1 if isinstance(names, str) else len(names),
        share=len(judged) / len(records),
        seconds=_per(busy(records), len(records)),
        judging=_per(busy(records, ["judge"]), len(judged)),
    )


def _cost(usage: Usage | None) -> float | None:
    return usage.get("cost") if usage else None


def _mean(costs: list[float | None]) -> float | None:
    """The mean; None where there is nothing, or any is unknown."""
    return _per(added(costs), len(costs))


def _per(total: float | None, count: int) -> float | None:
    return None if total is None or not count else total / count


def _design(
    parts: Parts, rates: list[Rates], effect: float | None, n: int, k: int, r: int
) -> Design:
    """`n` prompts, `k` samples of each, `r` judgings of each sample, and what they come to."""
    replies, sd = n * k, deviation(parts, k, r)
    return Design(
        prompts=n,
        samples=k,
        judgings=r,
        mde=stats.mde(sd, n),
        requests=round(sum(replies * (1 + rate.asks * r * rate.share) for rate in rates)),
        cost=added(_priced(rate, replies, r) for rate in rates),
        seconds=added(_timed(rate, replies, r) for rate in rates),
        reaches=effect is not None and stats.power(effect, sd, n) >= POWER,
    )


def _priced(rate: Rates, replies: int, r: int) -> float | None:
    """The USD of so many replies of one model and their judgings; None where these are unknown."""
    judgings = rate.asks * r * rate.share
    if rate.reply is None or (judgings and rate.verdict is None):
        return None
    return replies * (rate.reply + r * rate.share * (rate.verdict or 0))


def _timed(rate: Rates, replies: int, r: int) -> float | None:
    """The seconds of so many replies of one model: of the whole pipeline once, and of the further judgings."""
    if not rate.seconds:
        return None
    return replies * (rate.seconds + (r - 1) * rate.share * (rate.judging or 0))


# Words

UPPER_BOUND = (
    "One model: what its scores share with another model's on the same prompts cannot be seen, so every MDE is an upper "
    "bound (as long as the other model does not find hard what this one finds easy). A second model's run over the same "
    "prompts tells."
)
ONE_SAMPLE = (
    "One sample of each prompt: prompt and sample cannot be told apart, so what further samples would gain is unknown and "
    "only designs with one are shown. A run of chat-generate --samples 2 tells."
)
NO_PRICE = "the price is unknown: no `price` in assets/models.toml, and no cost in the records"
LEGEND = (
    "MDE: the true difference in {measure} (floor) that a paired comparison of two models finds with probability 80 % at a "
    "two-sided level of 5 %. It is for one comparison: of m, Holm's method tests the clearest at 5 % / m. Prompts are those "
    "with a score for both models, drawn as these were. Requests, price and time are for one run of each of {models}, one "
    "after the other, at the rates of these runs."
)


def _notes(parts: Parts, rates: list[Rates], loaded: list[Run], dead: list[Run]) -> list[str]:
    left_out = "is left out: none of its decks rendered, so its scores do not vary."
    notes = [f"{run['label']} {left_out}" for run in dead]
    if len(rates) == 1:
        notes.append(UPPER_BOUND)
    if parts.sample is None:
        notes.append(ONE_SAMPLE)
    if parts.judge is None:
        inside = "prompt and sample" if parts.sample is None else "sample"
        notes.append(
            f"The judge's own noise is unknown and counted in the {inside} share; a copy of a run whose decks were judged "
            "again tells."
        )
    elif runs.offline(loaded):
        notes.append("The judge is deterministic: judging again gains nothing.")
    if parts.spread:
        low, high = parts.spread
        notes.append(
            f"The estimate rests on {parts.n} prompts: another draw of prompts could make every MDE {low:.2f} to {high:.2f} "
            "times the one shown (95 %)."
        )
    if unpriced := [rate.model for rate in rates if rate.reply is None]:
        notes.append(f"{', '.join(unpriced)}: {NO_PRICE}.")
    if any(rate.asks and rate.share and rate.verdict is None for rate in rates):
        notes.append(f"{runs.judged_by(loaded)} (the judge): {NO_PRICE}.")
    return notes


def markdown(found: Plan) -> str:
    """The plan as text."""
    names = " and ".join(found.models)
    shared = "shared " if len(found.models) > 1 else ""
    lines = [f"Planned from {names}: {found.prompts} {shared}prompts.", ""]
    lines += [*_parts_table(found.parts), ""]
    if found.effect:
        best = next(design for design in found.designs if design.reaches)
        lines += [
            f"**To find a difference of {found.effect:g}**, the cheapest design is {_words(best)}.",
            "",
        ]
    legend = LEGEND.format(measure=found.measure, models=", ".join(found.models))
    lines += [*_designs_table(found), "", legend, "", *(f"- {note}" for note in found.notes), ""]
    return "\n".join(lines)


def _parts_table(parts: Parts) -> list[str]:
    interaction = "Prompt" if parts.prompt is None else "Prompt x model"
    sample = "Sample"
    if parts.sample is None:
        interaction += ", with sample" + (" and judge" if parts.judge is None else "")
    elif parts.judge is None:
        sample += ", with judge"
    named = [
        ("Prompt, common to the models (cancels in a pair)", parts.prompt),
        (interaction, parts.interaction),
        (sample, parts.sample),
        ("Judge", parts.judge),
    ]
    total = sum(value or 0 for _, value in named)
    rows = [
        [title, f"{value:.3f}", f"{100 * value / total:.0f} %"]
        for title, value in named
        if value is not None
    ]
    table = text.markdown_table(["Part", "Variance", "Share"], rows, 1)
    return ["**Where one score's variance lies**", "", *table]


def _designs_table(found: Plan) -> list[str]:
    header = ["Prompts", "Samples", "Judgings", "MDE", "Requests", "Price", "Time"]
    if found.effect:
        header.insert(4, "Finds it")
    rows = []
    for design in found.designs:
        cells = [str(n) for n in (design.prompts, design.samples, design.judgings)]
        cells.append(f"{design.mde:.2f}")
        if found.effect:
            cells.append("yes" if design.reaches else "no")
        cells += [f"{design.requests:,}", text.price(design.cost), _duration(design.seconds)]
        rows.append(cells)
    return ["**Designs, the cheapest first**", "", *text.markdown_table(header, rows, 0)]


def _words(design: Design) -> str:
    size = f"{design.prompts} prompts x {design.samples} sample{'s' * (design.samples > 1)}"
    size += f" x {design.judgings} judging{'s' * (design.judgings > 1)}"
    return f"{size}: price {text.price(design.cost)}, time {_duration(design.seconds)}"


def _duration(seconds: float | None) -> str:
    return text.duration(seconds, longest=120)
