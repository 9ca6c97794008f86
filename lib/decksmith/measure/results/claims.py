"""What may be said about several runs. Every sentence that separates or ranks models is written here, by a test, or for
benchmarks in regressions.py."""

from collections.abc import Callable

from decksmith.core import cli
from decksmith.measure.results import cost_table, floor, pairs, stats, text
from decksmith.measure.results.comparison import (
    Comparison,
    CostTable,
    Guided,
    Pair,
    PairedDifference,
    Run,
    TestedPair,
    Trained,
)
from decksmith.measure.results.pairs import COUNTED, is_headline
from decksmith.measure.results.records import Mean
from decksmith.measure.results.runs import caption, judged_by, titles, unmatched
from decksmith.measure.results.unnoticed import STOPPED, asked_otherwise, unnoticed
from decksmith.models import registry

LEVEL = 1 - stats.LEVEL


def compare(runs: list[Run]) -> Comparison:
    """The comparison as data: each run's summary, every pair under every accounting, the claims
    and rank ranges they allow, and the caveats. Raises cli.BadData naming the ids when the runs have other prompts or
    samples: they are no pair."""
    if lacking := unmatched(runs):
        raise cli.BadData(
            f"{text.listed([run['label'] for run in runs])} cannot be compared: {lacking}. What a model failed at is a row too "
            "(docs/records.md): have these added, or compare what all have: run-compare --common"
        )
    found = pairs.between(runs)
    cost = cost_table.table(runs)
    _say(found)
    headlines = [pair for pair in found if is_headline(pair)]
    return {
        "judge": judged_by(runs),
        "caption": caption(runs),
        "titles": titles(runs),
        "protocol": runs[0]["protocol"].get("hash"),
        "unshipped": runs[0]["unshipped"],
        "left_out": {run["label"]: run["left_out"] for run in runs if run["left_out"] is not None},
        "runs": [
            {"run": str(run["path"]), "label": run["label"], **run["summary"]} for run in runs
        ],
        "caveats": caveats(runs),
        "kin": kin(runs),
        "unsettled": bool(headlines) and all(pair["open"] for pair in headlines),
        "costs": cost,
        "headlines": _headlines(found, runs, cost),
        "ranks": ranks([run["label"] for run in runs], headlines),
        "pairs": found,
    }


def _say(found: list[Pair]) -> None:
    """Give each pair its verdict and its sentence."""
    rendering = {(pair["a"], pair["b"]): pair for pair in found if pair["clause"] == "renders"}
    for pair in found:
        if pair["clause"] == "renders":
            said = _renders(pair)
        elif pair["clause"] == "better":
            said = _better(pair, rendering.get((pair["a"], pair["b"])))
        else:
            said = verdict(pair)
        pair["verdict"], pair["sentence"] = said
        pair["open"] = said[0] == "inconclusive" and bool(pair["cut"] or pair["lost"])


def _headlines(found: list[Pair], runs: list[Run], cost: CostTable | None) -> list[str]:
    """Some sentences for each two runs: how many of their decks render, how good they are where both do, and under a judge
    that reads what counting failures as 1 gives. Of runs whose model was trained on a reward, or whose decks were chosen
    by one, it says so (rewards.rules.note_training); under conditions also what a deck costs (`cost_table.table`)."""
    by_label = {run["label"]: run for run in runs}
    said: dict[tuple[str, str], list[str]] = {}
    for pair in found:
        if pair["clause"] == "renders" or pair["clause"] and pair["difference"]["n"]:
            clause = pair["sentence"]
            if pair["clause"] == "better" and pair["difference"]["mean"]:
                gap = pair["difference"]
                clause += floor.below(by_label[pair["a"]], gap["mean"] or 0, gap["n"])
            said.setdefault((pair["a"], pair["b"]), []).append(clause)
    for pair in found:
        if (pair["accounting"], pair["measure"]) == COUNTED:
            counted = f"Overall, counting failures as 1: {pair['sentence']}"
            said.setdefault((pair["a"], pair["b"]), []).append(counted)
    sentences = []
    for (a, b), clauses in said.items():
        sentence = ". ".join(clauses)
        for label in (a, b):
            if trained := by_label[label].get("trained"):
                sentence += trained_on(label, trained)
            if guided := by_label[label].get("guided"):
                sentence += chosen_by(label, guided)
        asked = asked_otherwise(by_label[a], by_label[b])
        sentences.append(f"{sentence}{at_what_cost(a, b, cost)}{asked}.")
    return sentences


def trained_on(label: str, trained: Trained) -> str:
    """On which reward a model was trained, and what that has in common with the score, as the end of a clause."""
    shared = f", so on {trained['shared']}" if trained["shared"] else ""
    return f"; {label} was trained on the reward {trained['reward']}{shared}"


def chosen_by(label: str, guided: Guided) -> str:
    """What chose a run's decks, where that has measures of the score itself, as the end of a clause."""
    by = guided["by"]
    if by == "judge":
        return f"; the decks of {label} were chosen by this very judge, so its score is that of a maximum"
    shared = f", which has {guided['shared']}" if guided["shared"] else ""
    return f"; the decks of {label} were chosen by the reward {by}{shared}" if shared else ""


def at_what_cost(a: str, b: str, cost: CostTable | None) -> str:
    """How many times as much the dearer of two runs costs a deck, as the end of a sentence; nothing where both cost the same."""
    ratio = cost_table.ratio(cost, a, b)
    if cost is None or ratio is None:
        return ""
    unit = cost_table.UNITS[cost["unit"]]
    dearer, times = (a, ratio) if ratio >= 1 else (b, 1 / ratio)
    if times < 1.05:
        return f"; a deck of both costs the same ({unit})"
    return f"; {dearer} costs {times:.1f} times as much ({unit})"


def verdict(pair: TestedPair) -> tuple[str, str]:
    """What may be said about one pair: `(verdict, sentence)`; the verdict is "beats", "not separated" or "inconclusive".

    "beats" needs an interval without 0, a corrected p of at most 5 %, and that no value the excluded decks could have had
    brings the interval to 0. Where more decks were lost or cut off than the protocol allows, the pair says only what its
    bounds settle.
    """
    a, b, found, on = pair["a"], pair["b"], pair["difference"], pair.get("on", "")
    mean = found["mean"] or 0
    if _too_few(found):
        shown = f"; difference {text.figure(mean)}" if found["n"] else ""
        why = undecided(pair)[0]
        return "inconclusive", f"{a} and {b}: inconclusive{on} ({why}{shown})"
    shown = text.interval(found)
    doubts, p = undecided(pair), pair["p_holm"]
    if _separated(found) and p is not None and p > LEVEL:
        of = f" corrected over {pair['family']} comparisons" if pair["family"] > 1 else ""
        doubts.append(f"p = {text.p_value(p)}{of}")
    if doubts:
        why = " and ".join(doubts)
        return "inconclusive", f"{a} and {b}: inconclusive{on} (difference {shown}, but {why})"
    if not _separated(found):
        return "not separated", f"{a} is not separated from {b}{on} (difference {shown})"
    if mean < 0:
        a, b, shown = b, a, text.interval(turned(found))
    return "beats", f"{a} beats {b} by {shown}{on}{_at_worst(pair)}"


def _renders(pair: Pair) -> tuple[str, str]:
    """`(verdict, sentence)` of the clause how many requests have a deck that renders."""
    a, b, found, (ours, theirs) = _higher_first(pair)
    n = found["n"]
    if ours == theirs:
        said = f"The decks of {a} and those of {b} render for {_of(ours, n)} requests each"
    else:
        of_a = f"The decks of {a} render for {_of(ours, n)} requests"
        said = f"{of_a}, those of {b} for {_count(theirs)}"
    if doubts := undecided(pair):
        return "inconclusive", f"{said} ({' and '.join(doubts)})"
    if _shown(pair):
        return "beats", said + _unchanged(pair)
    return "not separated", said if ours == theirs else said + _by_chance(
        pair, _prompts_to_render(pair)
    )


def _higher_first(pair: Pair) -> tuple[str, str, PairedDifference, tuple[float, float]]:
    """Both models, their difference and their values, the higher first."""
    ours, theirs = pair["sides"] or (0, 0)
    if ours >= theirs:
        return pair["a"], pair["b"], pair["difference"], (ours, theirs)
    return pair["b"], pair["a"], turned(pair["difference"]), (theirs, ours)


def _of(count: float, n: int) -> str:
    """How many of n."""
    return f"{_count(count)} of {n}" if n else "none"


def _count(count: float) -> str:
    """A number of requests; samples of one count as parts."""
    return f"{round(count, 1):g}" if count else "none"


def _better(pair: Pair, rendering: Pair | None) -> tuple[str, str]:
    """`(verdict, sentence)` of the clause by how much the decks are better where both render; rendering: the other clause."""
    a, b, found, (ours, theirs) = _higher_first(pair)
    n = found["n"]
    if not n:
        return "inconclusive", "No request has a deck of both to compare"
    if pair["measure"] == "edit":
        gap, levels = text.points(found), (text.whole_percent(ours), text.whole_percent(theirs))
        said = f"Request met times rest stayed: {a} {levels[0]}, {b} {levels[1]}"
    elif pair["measure"] == "checks":
        gap, levels = text.points(found), (text.whole_percent(ours), text.whole_percent(theirs))
        said = f"Where both render, {a} passes {levels[0]} of the checks, {b} {levels[1]}"
    else:
        gap, levels = text.interval(found), (text.figure(ours), text.figure(theirs))
        said = f"Where both render, {a} gets {levels[0]} of 5, {b} {levels[1]}"
    on = f"on {n} request{'' if n == 1 else 's'}"
    if _too_few(found):
        return "inconclusive", f"{said} {on}, too few to tell"
    if found["ties"] == n:
        return "not separated", f"{said}: the same {on}"
    said = f"{said} (difference {gap} {on})"
    if doubts := undecided(pair):
        return "inconclusive", f"{said}, but {' and '.join(doubts)}"
    if _shown(pair):
        return "beats", said + _unchanged(pair)
    return "not separated", said + _by_chance(pair, _prompts_to_tell(pair, rendering))


def _shown(pair: TestedPair) -> bool:
    """Whether a difference is shown: its interval is without 0, and its corrected p at most 5 %."""
    p = pair["p_holm"]
    return _separated(pair["difference"]) and p is not None and p <= LEVEL


def _by_chance(pair: TestedPair, wanted: int | None) -> str:
    """The end of a clause that separates nothing; wanted: prompts that would, None where it is not worth saying."""
    found, tested = pair["difference"], pair["family"]
    alone = _separated(found) and found["p"] is not None and found["p"] <= LEVEL
    among = f" among {tested} comparisons" if alone and tested > 1 else ""
    more = f"; a new sample of about {wanted:,} prompts would tell" if wanted else ""
    return f", which may be chance{among}{more}"


def _unchanged(pair: TestedPair) -> str:
    """That the lost decks do not matter to a difference that is shown, as the end of a clause."""
    lost = pair.get("lost")
    return f"; the {lost} lost deck{'s' * (lost != 1)} could not change that" if lost else ""


def _separated(found: Mean) -> bool:
    """Whether the interval of a difference is without 0."""
    lo, hi = found["lo"], found["hi"]
    return lo is not None and hi is not None and not lo <= 0 <= hi


def _too_few(found: PairedDifference) -> bool:
    """Whether a difference rests on too few prompts for an interval."""
    return found["n"] < stats.FEWEST or found["lo"] is None


def undecided(pair: TestedPair) -> list[str]:
    """What keeps a pair from saying anything, one clause each; [] where it says something."""
    found, bounds = pair["difference"], pair.get("bounds")
    if _too_few(found):
        n = found["n"]
        return [f"{n} shared prompt{'s' * (n != 1)}, at least {stats.FEWEST} are needed"]
    separated, cut = _separated(found), pair.get("cut")
    doubts = [*([cut] if cut else []), *pair.get("doubts", [])]
    if bounds and (separated or pair.get("lost")):
        settled = bounds["lo"] > 0 if (found["mean"] or 0) > 0 else bounds["hi"] < 0
        if not (separated and settled):
            doubts.append("the decks without a score could change that")
    return doubts


MOST = 100_000  # prompts that a sentence names


def _prompts_to_render(pair: Pair) -> int | None:
    """How many prompts would show a difference in how many render, if all is as seen."""
    found = pair["difference"]
    if not found["n"] or found["wins"] + found["losses"] == 0:
        return None
    more, less = sorted((found["wins"] / found["n"], found["losses"] / found["n"]), reverse=True)
    return _wanted(pair, lambda n: stats.render_power(n, more, less, pair["family"]))


def _prompts_to_tell(pair: Pair, rendering: Pair | None) -> int | None:
    """How many prompts would show by how much decks are better where both render, if all is as seen."""
    found, mean = pair["difference"], abs(pair["difference"]["mean"] or 0)
    sd = stats.apparent_sd(found)
    if not sd or mean < 0.02 * sd or not pair["asked"]:
        return None
    seen = rendering["difference"] if rendering else None
    apart = (seen["wins"] / seen["n"], seen["losses"] / seen["n"]) if seen and seen["n"] else (0, 0)
    expected = stats.Expected(found["n"] / pair["asked"], apart, tests=pair["family"])
    return _wanted(pair, lambda n: stats.power(mean, sd, n, expected))


def _wanted(pair: Pair, chance: Callable[[int], float]) -> int | None:
    wanted = stats.smallest_sample(chance, most=MOST)
    return wanted if wanted is not None and wanted > pair["asked"] else None


def _at_worst(pair: TestedPair) -> str:
    """What is left of a difference with the lost decks at their worst, as the end of a clause."""
    lost, bounds = pair.get("lost"), pair.get("bounds")
    if not lost or not bounds:
        return ""
    least = bounds["least"] if (pair["difference"]["mean"] or 0) > 0 else -bounds["most"]
    return f"; with the {lost} lost at their worst still by {text.figure(least)}"


def turned(found: PairedDifference) -> PairedDifference:
    """A difference seen from the other side: mean and interval with the other sign."""
    mean, lo, hi = (
        None if value is None else -value for value in (found["mean"], found["lo"], found["hi"])
    )
    return {**found, "mean": mean, "lo": hi, "hi": lo}


def decided(headlines: list[Pair]) -> dict[tuple[str, str], int]:
    """Of each two models: 1 where a clause says that the first is better and none that the second is, -1 the other way
    round, else 0."""
    said: dict[tuple[str, str], set[int]] = {}
    for pair in headlines:
        signs = said.setdefault((pair["a"], pair["b"]), set())
        if pair["verdict"] == "beats":
            signs.add(1 if (pair["difference"]["mean"] or 0) > 0 else -1)
    return {models: sum(signs) for models, signs in said.items()}


def ranks(labels: list[str], headlines: list[Pair]) -> dict[str, list[int]]:
    """The range of ranks that the headline pairs leave open for each model: `{label: [best, worst]}`, 1 is first."""
    above, below = dict.fromkeys(labels, 0), dict.fromkeys(labels, 0)
    for (a, b), sign in decided(headlines).items():
        first, second = (a, b) if sign > 0 else (b, a)
        if sign:
            below[first] += 1
            above[second] += 1
    return {label: [1 + above[label], len(labels) - below[label]] for label in labels}


def ranked(compared: Comparison) -> str | None:
    """The rank ranges in one sentence, models by name; None where the headlines say all of it."""
    ranges = list(compared["ranks"].values())
    if len(ranges) < 3 or all(best == worst for best, worst in ranges):
        return None
    if all(span == [1, len(ranges)] for span in ranges):
        return f"The tests separate no two of the {len(ranges)}."
    spans = [f"{label} {text.rank(span)}" for label, span in compared["ranks"].items()]
    return f"Ranks that the tests leave open: {'; '.join(spans)}."


def caveats(runs: list[Run]) -> list[str]:
    """Which runs lost or cut off more decks than their protocol allows, one sentence each with its remedy, and what is odd
    about them."""
    found = []
    for run in runs:
        label, summary, most = run["label"], run["summary"], pairs.limits(run)
        if pairs.lost_too_many(run):
            counts = summary["faults"]["kinds"].items()
            kinds = ", ".join(f"{kind} faults {n}" for kind, n in counts if n and kind != "model")
            found.append(
                f"{label}: {pairs.excluded(run)} of {summary['n']} decks have no score ({kinds}; "
                f"at most {text.percent(most['excluded'])} may); {run['remedy']}"
            )
        if pairs.cut_too_many(run):
            remedy = "raise max_tokens in the protocol's sampling"
            if early := summary.get("cut_by_server"):
                remedy = f"{early} of them by the server before max_tokens: serve a longer context"
            if stopped := summary.get("stopped"):
                remedy = f"{stopped} of them were {STOPPED}"
            found.append(
                f"{label}: {summary['truncated']} of {summary['n']} replies were cut off "
                f"(at most {text.percent(most['truncated'])} may); {remedy}"
            )
    return found + unnoticed(runs)


def kin(runs: list[Run]) -> list[str]:
    """Which judge is of the family of a model that it judged, or of one that wrote what that model was trained on; a
    sentence each."""
    known = registry.models()
    name = runs[0]["protocol"].get("judge", {}).get("model") or ""
    if name not in known:
        return []
    family, found = known[name].family or registry.family_of(known[name].slug), []
    for run in runs:
        model = run["summary"]["model"]
        entry = known.get(model["name"])
        served = model.get("served")
        base = (served["base"] if served else None) or model["slug"] or ""
        own = entry.family if entry and entry.family else registry.family_of(base)
        if family and family == own:
            found.append(f"the judge {name} is of the same family as {run['label']} ({family})")
        elif entry and family in entry.taught_by:
            wrote = f"the family of the judge {name} ({family}) wrote"
            found.append(f"{wrote} what {run['label']} was trained on")
    return found
