"""Before spending: the smallest difference between two models that a design could detect, and what the design costs.

A design is n prompts, k samples (replies) of each, r judgings of each reply, the same for both models. The model of a score is

    score[model, prompt, sample, judging] = model + prompt + prompt x model + sample + judging

with independent parts. What is compared is the paired difference by prompt, in which the prompt's common part cancels:

    variance of one prompt's difference = 2 (prompt x model + sample / k + judging / (k r))

(Searle, Casella and McCulloch 1992, Variance Components; Miller 2024, arXiv:2411.00640, for evaluations of language models).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.models import registry
from decksmith.results import runs, stats, text
from decksmith.results.summary import busy, prompt_of

if TYPE_CHECKING:
    from decksmith.models.registry import Model
    from decksmith.results.stats import Array

Scores = dict[str, list[list[float]]]  # the score of each judging of each sample, by prompt
POWER = 0.8
PROMPTS, SAMPLES, JUDGINGS = (
    (30, 60, 120, 240, 480),
    (1, 2, 4),
    (1, 3),
)  # the designs that are shown


# Variance components: plain functions


def deviation(parts: Record, samples: int = 1, judgings: int = 1) -> float:
    """The standard deviation of one prompt's paired difference under a design, from what `components` found."""
    return math.sqrt(
        2
        * (
            parts["interaction"]
            + (parts["sample"] or 0) / samples
            + (parts["judge"] or 0) / samples / judgings
        )
    )


def components(scores: list[Scores], judge: float | None = None) -> Record:
    """Variance components of nested scores by the method of moments (unweighted means: Burdick and Graybill 1992, chapter 5).

    `scores`: one dict per model, `{prompt: [[score of each judging] of each sample]}`; cells may have different sizes, and at least
    two prompts must be there for every model: the others are left out. `judge`: the variance of one judging where it is known
    from elsewhere; otherwise replies that were judged twice tell it.

    Returns `prompt` (common to the models; None for a single model), `interaction` (prompt x model), `sample`, `judge`. None is
    what the scores cannot tell: then that part is in the one before it. For a single model `interaction` is all that varies
    between prompts: an upper bound of what a paired comparison would keep of it, as long as the other model does not find hard
    what this one finds easy. Negative estimates are 0. `n`: the prompts behind it. `spread`: the factors between which
    `deviation` at one sample and one judging may be off (95 %, 500 seeded resamples of the prompts).
    """
    import numpy

    cells = _cells(scores)
    n, random = cells["mean"].shape[1], numpy.random.default_rng(stats.SEED)
    parts = _moments(cells, judge)
    draws = []
    for _ in range(500):
        drawn = random.integers(0, n, n)
        draws.append(
            deviation(_moments({name: values[:, drawn] for name, values in cells.items()}, judge))
        )
    base = deviation(parts)
    return {
        **parts,
        "n": n,
        "spread": [float(q) for q in numpy.quantile(draws, [0.025, 0.975]) / base]
        if base
        else None,
    }


def _cells(scores: list[Scores]) -> dict[str, Array]:
    """What the moments need of every (model, prompt), as arrays of that shape."""
    import numpy

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


def _moments(cells: dict[str, Array], judge: float | None) -> Record:
    """Solve the expected mean squares for the components, from the lowest level up."""
    import numpy

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
    return {
        "prompt": prompt,
        "interaction": max(0.0, float(interaction)),
        "sample": None if sample is None else float(sample),
        "judge": None if judge is None else float(judge),
    }


# Runs


def plan(
    loaded: list[Record],
    effect: float | None = None,
    card: Record | None = None,
    gpus: int | None = None,
) -> Record:
    """A plan from earlier runs (`runs.load`): `{"models", "prompts", "parts", "effect", "designs", "notes"}`.

    Runs of one model are pooled: equal replies to one prompt are one sample judged again, others are further samples. `card`:
    what `deck-judge --exam` wrote; its `noise_variance` is that of one judging's judge-only score. `designs` are ordered by cost,
    each `{"prompts", "samples", "judgings", "mde", "requests", "tokens", "cost", "seconds", "gpu_hours", "reaches"}` for one run
    of every model. Raises cli.BadData where the runs cannot carry a plan.
    """
    loaded, dead = _rendered(loaded)
    groups: dict[str, list[Record]] = {}
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
    parts = components(scores, _judge_noise(loaded, card))
    if not deviation(parts):
        raise cli.BadData(
            f"{names}: the scores do not vary, so no difference is too small to detect; plan from other runs"
        )
    rates = [_rates(group, gpus) for group in models]
    sizes = _sizes(parts, len(shared), effect)
    designs = sorted((_design(parts, rates, effect, *size) for size in sizes), key=_expense)
    if effect:
        designs = _around(designs)
    return {
        "models": [group[0]["label"] for group in models],
        "prompts": len(shared),
        "parts": parts,
        "effect": effect,
        "designs": designs,
        "measure": runs.titles(loaded)["overall"],
        "notes": _notes(models, parts, rates, loaded, dead, card, gpus),
    }


def _rendered(loaded: list[Record]) -> tuple[list[Record], list[Record]]:
    """(runs with a rendered deck, runs without). Raises cli.BadData where no run has one."""
    alive = [
        run for run in loaded if any(record["score"].get("rendered") for record in run["records"])
    ]
    if not alive:
        raise cli.BadData(
            f"{' and '.join(run['label'] for run in loaded)}: no deck rendered, so every score is "
            "the floor and nothing can be learned about how scores vary; plan from a run that "
            "renders"
        )
    return alive, [run for run in loaded if run not in alive]


def _sizes(parts: Record, shared: int, effect: float | None) -> set[tuple[int, int, int]]:
    """Designs to look at as (prompts, samples, judgings): usual ones, the runs' own number of
    prompts, and those that just reach the effect."""
    samples = SAMPLES if parts["sample"] else (1,)
    judgings = JUDGINGS if parts["judge"] else (1,)
    sizes = set()
    for k, r in itertools.product(samples, judgings):
        prompts = {*PROMPTS, shared}
        if effect:
            prompts.add(max(stats.FEWEST, stats.needed(effect, deviation(parts, k, r))))
        sizes |= {(n, k, r) for n in prompts}
    return sizes


def _expense(design: Record) -> tuple[float, ...]:
    """What designs are ordered by: money, then GPUs, then time."""
    known = (design["cost"] or 0, design["gpu_hours"] or 0, design["seconds"] or 0)
    return (*known, design["requests"], design["prompts"])


def _scores(group: list[Record]) -> Scores:
    """`{prompt: [[score of each judging] of each sample]}` of the runs of one model."""
    cells: dict[str, dict[Any, list[float]]] = {}
    for place, run in enumerate(group):
        for record in run["records"]:
            if (value := record["score"].get("overall")) is not None:
                gen = record.get("gen") or {}
                which = ((gen.get("sample") or {}).get("k"), gen.get("text", place))
                cells.setdefault(prompt_of(record), {}).setdefault(which, []).append(value)
    return {prompt: list(samples.values()) for prompt, samples in cells.items()}


def _judge_noise(loaded: list[Record], card: Record | None) -> float | None:
    """The variance that one judging puts into Overall: 0 for the offline measures, from the card, or None. Floored decks have none."""
    if runs.offline(loaded):
        return 0.0
    if card is None:
        return None
    if not isinstance(card.get("noise_variance"), int | float):
        raise cli.BadData(
            'the judge card has no "noise_variance"; `deck-judge --exam` gives it when it judges more than once'
        )
    if card.get("judge") != runs.judged_by(loaded):
        raise cli.BadData(
            f"the card is of the judge {card.get('judge')}, and these runs were judged by {runs.judged_by(loaded)}"
        )
    weights = loaded[0]["protocol"]["score"]["weights"]
    share: float = 1 - weights.get("viscraft", 0) / sum(weights.values())
    records = [record for run in loaded for record in run["records"]]
    noise: float = card["noise_variance"]
    return noise * share**2 * sum(map(_judged, records)) / len(records)


def _judged(record: Record) -> bool:
    return isinstance(record.get("judge"), dict) and "error" not in record["judge"]


# Costs


def _rates(group: list[Record], gpus: int | None) -> Record:
    """What one reply and one judging cost, as measured in the runs of one model."""
    records = [record for run in group for record in run["records"]]
    summary, judge = group[0]["summary"], group[0]["protocol"].get("judge") or {}
    replies = [
        record["gen"] for record in records if record.get("gen") and "error" not in record["gen"]
    ]
    judged = [record["judge"] for record in records if _judged(record)]
    known = registry.models()
    reply = _each([gen.get("usage") for gen in replies], known.get(summary["model"]["name"]))
    names = judge.get("model") or []
    if isinstance(names, str):
        verdict = _each([one.get("usage") for one in judged], known.get(names))
    else:
        verdict = _panel(judged, names, known)
    generating = _per(busy(records, ["gen"]), len(replies))
    hours = None
    if gpus and generating and reply["cost"] is None:
        hours = generating * gpus / 3600
    return {
        "name": summary["model"]["name"],
        "judge": names if isinstance(names, str) else ", ".join(names) or None,
        "asks": 1 if isinstance(names, str) else len(names),
        "share": len(judged) / len(records),
        "reply": reply,
        "verdict": verdict,
        "seconds": _per(busy(records), len(records)),
        "judging": _per(busy(records, ["judge"]), len(judged)),
        "gpu_hours": hours,
    }


def _each(usages: list[Any], entry: Model | None) -> Record:
    """Tokens and USD of one request: by the registry's price, else as the endpoint said it, else None."""
    usages = [usage for usage in usages if usage and usage.get("completion_tokens") is not None]
    if not usages:
        return {"tokens": None, "cost": None}
    tokens = {
        name: sum(usage.get(f"{name}_tokens") or 0 for usage in usages) / len(usages)
        for name in ("prompt", "completion")
    }
    said = [usage.get("cost") for usage in usages]
    if entry and entry.price:
        cost = sum(tokens[name] * entry.price[name] for name in tokens) / 1e6
    else:
        cost = None if None in said else sum(said) / len(said)
    return {"tokens": sum(tokens.values()), "cost": cost}


def _panel(judged: list[Record], names: list[str], known: dict[str, Model]) -> Record:
    """Tokens and USD of one deck's judging by several models, or by none."""
    each = [
        _each(
            [(one.get("members") or {}).get(name, {}).get("usage") for one in judged],
            known.get(name),
        )
        for name in names
    ]
    return {
        key: None if any(one[key] is None for one in each) else sum(one[key] for one in each)
        for key in ("tokens", "cost")
    }


def _per(total: float | None, count: int) -> float | None:
    return None if total is None or not count else total / count


def _design(
    parts: Record, rates: list[Record], effect: float | None, n: int, k: int, r: int
) -> Record:
    """One design and what it comes to: `n` prompts, `k` samples of each, `r` judgings of each sample."""
    replies, sd = n * k, deviation(parts, k, r)
    hours = [rate["gpu_hours"] for rate in rates if rate["gpu_hours"] is not None]
    requests = sum(replies * (1 + rate["asks"] * r * rate["share"]) for rate in rates)
    return {
        "prompts": n,
        "samples": k,
        "judgings": r,
        "mde": stats.mde(sd, n),
        "requests": round(requests),
        "tokens": _total(_priced(rate, "tokens", replies, r) for rate in rates),
        "cost": _total(_priced(rate, "cost", replies, r) for rate in rates),
        "seconds": _total(_timed(rate, replies, r) for rate in rates),
        "gpu_hours": replies * sum(hours) if hours else None,
        "reaches": effect and stats.power(effect, sd, n) >= POWER,
    }


def _total(values: Iterable[float | None]) -> float | None:
    """The sum; None where any is unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def _priced(rate: Record, what: str, replies: int, r: int) -> float | None:
    """The tokens or USD of so many replies of one model and their judgings; None where these are unknown."""
    reply, verdict, judgings = rate["reply"][what], rate["verdict"][what], r * rate["share"]
    if reply is None or (judgings and verdict is None):
        return None
    each: float = reply + judgings * (verdict or 0)
    return replies * each


def _timed(rate: Record, replies: int, r: int) -> float | None:
    """The seconds of so many replies of one model: of the whole pipeline once, and of the further judgings."""
    if not rate["seconds"]:
        return None
    each: float = rate["seconds"] + (r - 1) * rate["share"] * (rate["judging"] or 0)
    return replies * each


def _around(designs: list[Record], each: int = 4) -> list[Record]:
    """The cheapest design that reaches the effect, the next-cheaper ones that do not, and dearer ones that do."""
    first = next(place for place, design in enumerate(designs) if design["reaches"])
    return (
        designs[max(0, first - each) : first + 1]
        + [design for design in designs[first + 1 :] if design["reaches"]][:each]
    )


# Words


def _notes(
    models: list[list[Record]],
    parts: Record,
    rates: list[Record],
    loaded: list[Record],
    dead: list[Record],
    card: Record | None,
    gpus: int | None,
) -> list[str]:
    notes = [
        f"{run['label']} is left out: none of its decks rendered, so its scores do not vary."
        for run in dead
    ]
    if len(models) == 1:
        notes.append(
            "One model: what its scores share with another model's on the same prompts cannot be seen, so every MDE is an "
            "upper bound (as long as the other model does not find hard what this one finds easy). A second model's run over "
            "the same prompts tells."
        )
    if parts["sample"] is None:
        notes.append(
            "One sample of each prompt: prompt and sample cannot be told apart, so what further samples would gain is unknown "
            "and only designs with one are shown. A run of chat-generate --samples 2 tells."
        )
    if parts["judge"] is None:
        inside = "prompt and sample" if parts["sample"] is None else "sample"
        notes.append(
            f"The judge's own noise is unknown and counted in the {inside} share; --card takes a card of deck-judge --exam."
        )
    elif runs.offline(loaded):
        notes.append("The judge is deterministic: judging again gains nothing.")
    elif card:
        notes.append(
            "The judge's noise is from its card, scaled to Overall and to the share of decks that get judged."
        )
    if parts["spread"]:
        low, high = parts["spread"]
        notes.append(
            f"The estimate rests on {parts['n']} prompts: another draw of prompts could make every MDE {low:.2f} to {high:.2f} "
            "times the one shown (95 %)."
        )
    missing = "the price is unknown: no `price` in assets/models.toml, and no cost in the records"
    if not gpus and (bare := [rate["name"] for rate in rates if rate["reply"]["cost"] is None]):
        notes.append(
            f"{', '.join(bare)}: {missing}. For a model that you serve, --gpus N gives GPU hours."
        )
    if any(rate["share"] and rate["verdict"]["cost"] is None for rate in rates):
        notes.append(f"{rates[0]['judge']} (the judge): {missing}.")
    return notes


LEGEND = (
    "MDE: the true difference in {measure} (floor) that a paired comparison of two models finds with probability 80 % at a "
    "two-sided level of 5 %. It is for one comparison: of m, Holm's method tests the clearest at 5 % / m. Prompts are those "
    "with a score for both models, drawn as these were. Requests, tokens, price and time are for {whose}, one after the "
    "other, at the rates of these runs."
)


def markdown(found: Record) -> str:
    """The plan as text."""
    names = found["models"]
    lines = [
        f"Planned from {' and '.join(names)}: {found['prompts']} {'shared ' if len(names) > 1 else ''}prompts.",
        "",
    ]
    lines += [*_parts_table(found["parts"]), ""]
    if found["effect"]:
        best = next(design for design in found["designs"] if design["reaches"])
        lines += [
            f"**To find a difference of {found['effect']:g}**, the cheapest design is {_words(best)}.",
            "",
        ]
    lines += [
        *_designs_table(found),
        "",
        LEGEND.format(
            measure=found["measure"],
            whose=f"one run of {names[0]}"
            if len(names) == 1
            else f"one run of each of {', '.join(names)}",
        ),
        "",
        *(f"- {note}" for note in found["notes"]),
        "",
    ]
    return "\n".join(lines)


def _parts_table(parts: Record) -> list[str]:
    known = {
        "prompt": "Prompt, common to the models (cancels in a pair)",
        "interaction": "Prompt x model" if parts["prompt"] is not None else "Prompt",
        "sample": "Sample",
        "judge": "Judge",
    }
    if parts["sample"] is None:
        known["interaction"] += ", with sample" + (" and judge" if parts["judge"] is None else "")
    elif parts["judge"] is None:
        known["sample"] += ", with judge"
    total = sum(parts[name] or 0 for name in known)
    rows = [
        [title, f"{parts[name]:.3f}", f"{100 * parts[name] / total:.0f} %"]
        for name, title in known.items()
        if parts[name] is not None
    ]
    return [
        "**Where one score's variance lies**",
        "",
        *text.markdown_table(["Part", "Variance", "Share"], rows, 1),
    ]


def _designs_table(found: Record) -> list[str]:
    hours = any(design["gpu_hours"] is not None for design in found["designs"])
    header = [
        "Prompts",
        "Samples",
        "Judgings",
        "MDE",
        *(["Finds it"] if found["effect"] else []),
        "Requests",
        "Tokens",
        "Price",
        "Time",
        *(["GPU hours"] if hours else []),
    ]
    rows = [
        [
            str(d["prompts"]),
            str(d["samples"]),
            str(d["judgings"]),
            f"{d['mde']:.2f}",
            *(["yes" if d["reaches"] else "no"] if found["effect"] else []),
            f"{d['requests']:,}",
            "unknown" if d["tokens"] is None else f"{d['tokens']:,.0f}",
            text.price(d["cost"]),
            _duration(d["seconds"]),
            *(["unknown" if d["gpu_hours"] is None else f"{d['gpu_hours']:.1f}"] if hours else []),
        ]
        for d in found["designs"]
    ]
    return ["**Designs, the cheapest first**", "", *text.markdown_table(header, rows, 0)]


def _words(design: Record) -> str:
    return (
        f"{design['prompts']} prompts x {design['samples']} sample{'s' * (design['samples'] > 1)} x {design['judgings']} "
        f"judging{'s' * (design['judgings'] > 1)}: price {text.price(design['cost'])}, time {_duration(design['seconds'])}"
    )


def _duration(seconds: float | None) -> str:
    return text.duration(seconds, longest=120)
