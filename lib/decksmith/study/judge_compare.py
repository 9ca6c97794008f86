"""Judges beside people: any number of judges over the pairs that people voted on.

A judge is what it said of the decks, `judge.Decks`: {pair: {model: {measure: number}}}. Of one that scores decks these are
its scores; of one that was asked which of two decks it prefers (pair_judge), the share of its answers that a deck has.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.results import claims, judge_agreement, layout, runs, stats
from decksmith.study import intervals, judge, outside, pair_judge, people, store, tally
from decksmith.study.intervals import Figure, Vote

DIMENSIONS = ("content", "design", "coherence")
EQUAL = judge.EQUAL
TRAITS = {
    "words": "longer",
    "craft": "with more features",
}  # of a deck: what a judge may be drawn to


@dataclass
class Judge:
    """What one judge said of a study's decks."""

    name: str
    measure: str  # what it prefers a deck by: "choice" or "overall"
    decks: judge.Decks
    of: str = ""  # of one that scored decks, the name in their records
    answers: list[Record] = field(default_factory=list)  # as pair_judge.votes has them
    usage: list[Record] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    asks: dict[str, Record] = field(default_factory=dict)  # of a prompt, as far as its records say
    traits: dict[tuple[str, str, int], dict[str, float]] = field(default_factory=dict)


# What judges said


def read(study: store.Study, name: str, paths: Sequence[Path]) -> Judge:
    """A judge from run folders (their scores.jsonl), files of scores of another tool, or what pair-judge wrote.

    Raises cli.Missing and cli.BadData, naming the file; also where nothing in them is of the study's decks."""
    rows = [(path, row) for path in paths for row in _rows(path)]
    if all("pictures" in row for _, row in rows):
        found = _voter(name, [row for _, row in rows])
    elif any("pictures" in row for _, row in rows):
        raise cli.BadData(
            f"{name}: scores and answers of pair-judge are two judges; name them apart"
        )
    else:
        found = _scorer(study, name, rows)
    if not found.decks:
        raise cli.BadData(
            f"{name}: none of the study's pairs has both decks in {', '.join(map(str, paths))}"
        )
    return found


def _rows(path: Path) -> list[Record]:
    if path.is_dir():
        if not (path / "scores.jsonl").is_file():
            raise layout.missing(path)
        found = [row for _, row in stream.records(path / "scores.jsonl")]
        return [{**row, "run": layout.run_name(path)} for row in found]
    if not path.is_file():
        raise cli.Missing(f"there is no {path}; a judge is NAME=a run's folder or a file")
    first = next((row for _, row in stream.records(path)), None)
    if first is None:
        raise cli.BadData(f"{path} is empty")
    if "pictures" in first:
        return [row for _, row in stream.records(path)]
    return [{**row, "run": run["name"]} for run in runs.load([path]) for row in run["records"]]


def _voter(name: str, rows: Sequence[Record]) -> Judge:
    """A judge that was asked which of two decks it prefers."""
    answers = pair_judge.votes(rows)
    credits: dict[str, dict[str, dict[str, list[float]]]] = {}
    for answer in answers:
        for measure, side in {"choice": answer["choice"], **answer["dimensions"]}.items():
            for one in ("left", "right"):
                share = 0.5 if side == "tie" else float(side == one)
                deck = credits.setdefault(answer["pair"], {}).setdefault(answer[one], {})
                deck.setdefault(measure, []).append(share)
    decks = {
        pair: {
            model: {measure: statistics.fmean(shares) for measure, shares in said.items()}
            for model, said in both.items()
        }
        for pair, both in credits.items()
    }
    done = [row["judge"] for row in rows if "choice" in (row.get("judge") or {})]
    return Judge(
        name,
        "choice",
        decks,
        answers=answers,
        usage=[value.get("usage") or {} for value in done],
        seconds=_seconds(done),
    )


def _scorer(study: store.Study, name: str, rows: Sequence[tuple[Path, Record]]) -> Judge:
    """A judge that scores each deck by itself."""
    scores: outside.Scores = {}
    found = Judge(name, "overall", {})
    judged = []
    for path, row in rows:
        said = row.get("score")
        if not isinstance(said, dict):
            raise cli.BadData(
                f'{path}: {row["id"]}: no "score" in this record; deck-score writes it'
            )
        sample = (row.get("gen") or {}).get("sample") or {}
        deck = (row["run"], str(sample.get("of", row["id"])), sample.get("k", 0))
        own = said.get("judge_only")
        scores[deck] = {
            "overall": said.get("overall") if own is None else own,
            **{key: value for key, value in (said.get("dimensions") or {}).items()},
            "checklist": said.get("checklist"),
        }
        found.asks[deck[1]] = row.get("asks") or {}
        found.traits[deck] = _traits(row)
        judged.append(row.get("judge") or {})
        found.of = str(said.get("judge") or "")
    found.decks = tally.decks_of(study, scores, {})
    found.usage = [value.get("usage") or {} for value in judged]
    found.seconds = _seconds(judged)
    return found


def _seconds(values: Iterable[Record]) -> list[float]:
    said = ((value.get("by") or {}).get("took") for value in values)
    return [took for took in said if isinstance(took, int | float)]


def _traits(row: Record) -> dict[str, float]:
    """What a judge may be drawn to in a deck, as far as its record says."""
    found = {}
    if text := (row.get("gen") or {}).get("text"):
        found["words"] = float(len(text.split()))
    craft = (row.get("features") or {}).get("craft")
    if craft is not None:
        found["craft"] = float(craft)
    return found


# The comparison


def compare(study: store.Study, judges: Sequence[Judge]) -> dict[str, Any]:
    """Judges beside people, JSON-able: of each how often it prefers the deck that a person prefers, by dimension, domain,
    language and length; what it is drawn to; its order bias, price and time; of each two, who follows people more often.

    Raises cli.BadData where no vote counts."""
    votes, _ = people.counted(study.votes())
    if not votes:
        raise cli.BadData(f"{study.folder}: no vote counts yet; ask people first (make vote)")
    votes = _with_facts(study, votes, judges)
    return {
        "study": study.about["title"],
        "votes": len(votes),
        "prompts": len({vote["prompt"] for vote in votes}),
        "raters": len({vote["rater"] for vote in votes}),
        "people": people.agreement(votes),
        "judges": [_judge(one, votes) for one in judges],
        "differences": _differences(judges, votes),
    }


def keep(found: Mapping[str, Any]) -> list[Path]:
    """Keep for the captions of comparisons (results/judge_agreement.py) how far each judge that scored decks follows people."""
    return [
        judge_agreement.keep(
            one["of"],
            {
                "study": found["study"],
                "votes": found["votes"],
                "agreement": one["agreement"],
            },
        )
        for one in found["judges"]
        if one["of"]
    ]


def _with_facts(study: store.Study, votes: Sequence[Vote], judges: Sequence[Judge]) -> list[Vote]:
    """The votes with what the judges' records say of prompt and decks: `by` and `traits`."""
    asks = {prompt: said for one in judges for prompt, said in one.asks.items() if said}
    traits = {deck: said for one in judges for deck, said in one.traits.items() if said}
    found = []
    for vote in votes:
        pair = study.pairs[vote["pair"]]
        sides = {}
        for side in ("left", "right"):
            deck = pair[side]
            # A vote has its own sides: a pair may be shown either way round.
            own = "left" if deck["model"] == vote["left"] else "right"
            sides[own] = traits.get((deck["run"], pair["prompt"], deck["sample"]), {})
        asked = asks.get(vote["prompt"], {})
        by = {key: str(asked[key]) for key in ("domain", "language") if asked.get(key)}
        found.append({**vote, "by": by, "traits": sides})
    lengths = [_words(vote) for vote in found]
    known = [words for words in lengths if words is not None]
    middle = statistics.median(known) if known else 0
    for vote, words in zip(found, lengths, strict=True):
        if words is not None:
            vote["by"]["length"] = "the longer half" if words > middle else "the shorter half"
    return found


def _words(vote: Vote) -> float | None:
    """The mean length of the two decks of a vote, in words."""
    said = [vote["traits"].get(side, {}).get("words") for side in ("left", "right")]
    known = [words for words in said if words is not None]
    return statistics.fmean(known) if len(known) == 2 else None


def _judge(one: Judge, votes: Sequence[Vote]) -> dict[str, Any]:
    credits = _credits(one, votes)
    groups: dict[str, dict[str, list[tuple[Vote, float]]]] = defaultdict(lambda: defaultdict(list))
    for vote, credit in credits:
        for kind, name in vote["by"].items():
            groups[kind][name].append((vote, credit))
    by_measure = judge.judged(votes, one.decks)
    equal = by_measure.get(one.measure, {}).get("equal")
    return {
        "judge": one.name,
        "of": one.of,
        "asked": "which of two" if one.answers else "one deck at a time",
        "agreement": intervals.credited(credits),
        "equal": equal,
        "dimensions": {name: by_measure[name]["own"] for name in DIMENSIONS if name in by_measure},
        "by": {
            kind: {name: intervals.credited(some) for name, some in sorted(names.items())}
            for kind, names in groups.items()
            if len(names) > 1
        },
        "drawn_to": {
            trait: drawn for trait in TRAITS if (drawn := _drawn_to(one, votes, trait)) is not None
        },
        "order": _order(one.answers),
        "cost": _cost(one),
        "seconds": round(statistics.median(one.seconds), 2) if one.seconds else None,
    }


def _gap(one: Judge, vote: Vote) -> float | None:
    """How much more the judge has for the deck on the left of a vote; None where it says nothing."""
    decks = one.decks.get(vote["pair"], {})
    left, right = (decks.get(vote[side], {}).get(one.measure) for side in ("left", "right"))
    return None if left is None or right is None else left - right


def _credits(one: Judge, votes: Sequence[Vote]) -> list[tuple[Vote, float]]:
    """`[(untied vote, 1 where the judge prefers the same deck, a half where it prefers none)]`."""
    found = []
    for vote in votes:
        gap = _gap(one, vote)
        if gap is not None and vote["choice"] in ("left", "right"):
            side = (gap > EQUAL) - (gap < -EQUAL)
            found.append((vote, (1 + (side if vote["choice"] == "left" else -side)) / 2))
    return found


def _drawn_to(one: Judge, votes: Sequence[Vote], trait: str) -> dict[str, Figure] | None:
    """How often the judge, and how often people on the same votes, prefer the deck that has more of a trait, and the
    difference of the two; None where nothing is known of it."""
    used: list[Vote] = []
    judged: list[float] = []
    voted: list[float] = []
    for vote in votes:
        gap = _gap(one, vote)
        more = _more(vote, trait)
        if gap is None or not more or vote["choice"] not in ("left", "right"):
            continue
        side = (gap > EQUAL) - (gap < -EQUAL)
        used.append(vote)
        judged.append((1 + side * more) / 2)
        voted.append(float((vote["choice"] == "left") == (more > 0)))
    if not used:
        return None
    import numpy

    apart = intervals.ratio(numpy.subtract(judged, voted), used, -1, 1)
    return {
        "judge": intervals.share(judged, used),
        "people": intervals.share(voted, used),
        "difference": apart,
    }


def _more(vote: Vote, trait: str) -> int:
    """1 where the left deck has more of a trait, -1 where the right one has, 0 for neither."""
    left, right = (vote["traits"].get(side, {}).get(trait) for side in ("left", "right"))
    if left is None or right is None:
        return 0
    return int((left > right) - (left < right))


def _order(answers: Sequence[Record]) -> dict[str, Any] | None:
    """Of a judge that saw pairs in both orders: how often it chose the other deck when they were swapped, and how often
    the deck that was shown first. None of one that did not."""
    if not answers:
        return None
    orders: dict[str, dict[int, Record]] = defaultdict(dict)
    for answer in answers:
        orders[answer["pair"]][answer["order"]] = {**answer, "rater": "judge"}
    both = [pair for pair in orders.values() if len(pair) == 2]
    decided = [pair for pair in both if all(one["choice"] != "tie" for one in pair.values())]
    flips = [
        (pair[0], float(pair[0][pair[0]["choice"]] != pair[1][pair[1]["choice"]]))
        for pair in decided
    ]
    firsts = [
        (one, float(one["choice"] == "left"))
        for pair in both
        for one in pair.values()
        if one["choice"] != "tie"
    ]
    return {"flips": intervals.credited(flips), "first": intervals.credited(firsts)}


def _cost(one: Judge) -> float | None:
    """USD of one judging; None where any does not say."""
    said = [usage.get("cost") for usage in one.usage if usage]
    known = [cost for cost in said if cost is not None]
    return round(sum(known) / len(known), 6) if known and len(known) == len(said) else None


def _differences(judges: Sequence[Judge], votes: Sequence[Vote]) -> list[dict[str, Any]]:
    """Of each two judges how much more often the one follows people, on the votes that both say something of."""
    found = []
    for at, a in enumerate(judges):
        for b in judges[at + 1 :]:
            found.append(_difference(a, b, votes))
    tests = [pair["difference"]["p"] for pair in found]
    adjusted = stats.holm([math.nan if p is None else p for p in tests])
    for pair, p in zip(found, adjusted, strict=True):
        pair["p_holm"], pair["family"] = stats.number(p, 6), len(found)
        pair["verdict"], pair["sentence"] = claims.verdict(pair)
    return found


def _difference(a: Judge, b: Judge, votes: Sequence[Vote]) -> dict[str, Any]:
    import numpy

    of_a = {id(vote): credit for vote, credit in _credits(a, votes)}
    of_b = {id(vote): credit for vote, credit in _credits(b, votes)}
    used = [vote for vote in votes if id(vote) in of_a and id(vote) in of_b]
    pair: dict[str, Any] = {
        "a": a.name,
        "b": b.name,
        "votes": len(used),
        "on": f" in the share of people's votes that it follows ({len(used)} votes)",
    }
    if not used:
        return {**pair, "difference": {**intervals.UNKNOWN, "sd": None, "p": None}}
    gaps = numpy.array([of_a[id(vote)] - of_b[id(vote)] for vote in used])
    codes = intervals.codes(vote["prompt"] for vote in used)
    sides = numpy.zeros((codes.max() + 1, 2))
    for code, vote in zip(codes, used, strict=True):
        sides[code] += (of_a[id(vote)], of_b[id(vote)])
    sides *= len(sides) / len(used)
    prompts = len(sides)
    figure = intervals.ratio(gaps, used, -1, 1)
    sd = (sides[:, 0] - sides[:, 1]).std(ddof=1) if prompts > 1 else 0.0
    p = stats.exchanged(sides[:, :1], sides[:, 1:])[0]
    difference = {**figure, "n": prompts, "sd": stats.number(sd), "p": stats.number(p, 6)}
    return {**pair, "difference": difference}


# For people


def markdown(found: Mapping[str, Any]) -> str:
    """The comparison as markdown."""
    from decksmith.results import text

    def share(figure: Figure | None) -> str:
        return "-" if not figure or figure["mean"] is None else text.interval(figure)

    crowd = found["people"]
    rows = [["another person", "", share(crowd["another"]), "", "", "", "", ""]]
    rows.append(["any judge, at most", "", share(crowd["at_most"]), "", "", "", "", ""])
    for one in found["judges"]:
        dimensions = [share(one["dimensions"].get(name)) for name in DIMENSIONS]
        took = "-" if one["seconds"] is None else f"{one['seconds']:.1f} s"
        rows.append(
            [
                one["judge"],
                one["asked"],
                share(one["agreement"]),
                *dimensions,
                text.price(one["cost"]),
                took,
            ]
        )
    header = [
        "Judge",
        "Asked",
        "Follows",
        *(name.capitalize() for name in DIMENSIONS),
        "USD",
        "Time",
    ]
    lines = [
        f"# Judges beside people: {found['study']}",
        "",
        f"{found['votes']} votes of {found['raters']} people on {found['prompts']} prompts. Follows: the share of the untied votes "
        "whose deck the judge prefers too, half where it prefers neither; 0.50 is a coin. A dimension: of what people said of "
        "it. USD and time are of one judging.",
        "",
        *text.markdown_table(header, rows, 2),
        "",
    ]
    lines += _biases(found["judges"], share)
    for kind in ("domain", "language", "length"):
        lines += _groups(found["judges"], kind, share)
    return "\n".join([*lines, *(f"- {pair['sentence']}" for pair in found["differences"])]) + "\n"


Shown = Callable[[Figure | None], str]


def _biases(judges: Sequence[Mapping[str, Any]], share: Shown) -> list[str]:
    from decksmith.results import text

    rows = []
    for one in judges:
        for trait, said in one["drawn_to"].items():
            rows.append(
                [
                    one["judge"],
                    TRAITS[trait],
                    *(share(said[key]) for key in ("judge", "people", "difference")),
                ]
            )
        if one["order"]:
            rows.append(
                [one["judge"], "the deck shown first", share(one["order"]["first"]), "", ""]
            )
            rows.append(
                [one["judge"], "the other deck when swapped", share(one["order"]["flips"]), "", ""]
            )
    if not rows:
        return []
    header = ["Judge", "Prefers", "Judge", "People", "Difference"]
    return ["**What a judge is drawn to**", "", *text.markdown_table(header, rows, 2), ""]


def _groups(judges: Sequence[Mapping[str, Any]], kind: str, share: Shown) -> list[str]:
    from decksmith.results import text

    names = sorted({name for one in judges for name in one["by"].get(kind, {})})
    if not names:
        return []
    header = [kind.capitalize(), *(one["judge"] for one in judges)]
    rows = [[name, *(share(one["by"].get(kind, {}).get(name)) for one in judges)] for name in names]
    return [f"**Follows, by {kind}**", "", *text.markdown_table(header, rows, 1), ""]
