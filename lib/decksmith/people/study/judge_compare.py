"""Judges beside people: any number of judges over the pairs that people voted on."""

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from decksmith.core import cli
from decksmith.measure.judging import scoring
from decksmith.measure.judging.records import DeckRecord, Score
from decksmith.measure.results import runs
from decksmith.people.study import agreement, estimates, intervals, raters, store, tally
from decksmith.people.study.agreement import RaterAgreement
from decksmith.people.study.estimates import ComparedVotes
from decksmith.people.study.intervals import Estimate
from decksmith.people.study.records import DIMENSIONS, Measures, Scores, Vote, preferred

TRAITS = {"words": "longer", "craft": "with more features"}  # of a deck: what may draw a judge


class DrawnTo(TypedDict):
    judge: Estimate  # how often the judge prefers the deck that has more of it
    people: Estimate  # how often people do, on the same votes
    difference: Estimate  # the judge's bias


class JudgeReport(TypedDict):
    judge: str  # as it was called
    of: str  # the name in its records; empty where they say none
    rubric: str  # by which hash of protocol, instructions and model; empty where they say none
    agreement: Estimate  # share of the untied votes whose deck it prefers too
    dimensions: dict[str, Estimate]  # the same of what people said of a dimension
    drawn_to: dict[str, DrawnTo]  # by trait
    cost: float | None  # USD of one judging; null where any does not say
    seconds: float | None  # of one judging, the median


class JudgeDifference(ComparedVotes):
    on: str  # how the sentence says what was compared


class JudgeComparison(TypedDict):
    study: str  # its title
    votes: int  # that count
    prompts: int  # that were voted on
    raters: int  # who count
    people: RaterAgreement  # of people with each other
    judges: list[JudgeReport]  # each judge
    differences: list[JudgeDifference]  # each two judges


@dataclass
class StudyJudge:
    """What one judge said of a study's decks."""

    name: str
    decks: agreement.PairMeasures = field(default_factory=dict)
    of: str = ""  # the name in its records
    rubric: str = ""  # what it judged by
    costs: list[float | None] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    traits: Scores = field(default_factory=dict)


# What judges said


def read(study: store.Study, name: str, paths: Sequence[Path]) -> StudyJudge:
    """A judge from run folders (their scores.jsonl) or files of scores of another tool.

    Raises cli.Missing and cli.BadData, naming the file; also where nothing in them is of the
    study's decks."""
    found, scores = StudyJudge(name), Scores()
    for path in paths:
        for deck, row in tally.scored(path):
            if "score" not in row:
                raise cli.BadData(
                    f'{path}: {row["id"]}: no "score" in this record; deck-score writes it'
                )
            scores[deck] = _measures(row["score"])
            found.traits[deck] = _traits(row)
            judged = row.get("judge") or {}
            found.of = judged.get("judge", found.of)
            if (rubric := judged.get("rubric", found.rubric)) != (found.rubric or rubric):
                raise cli.BadData(
                    f"{path}: {row['id']}: {name} is two judges: this deck was judged by {rubric[:12]}.., "
                    f"others by {found.rubric[:12]}.."
                )
            found.rubric = rubric
            if usage := judged.get("usage"):
                found.costs.append(usage["cost"])
            if by := judged.get("by"):
                found.seconds.append(by["took"])
    found.decks = tally.decks_of(study, scores, {})
    if not found.decks:
        raise cli.BadData(
            f"{name}: none of the study's pairs has both decks in {', '.join(map(str, paths))}"
        )
    return found


def _measures(score: Score) -> Measures:
    """The numbers of a score. The judge prefers a deck by `overall`: here the marks of a judge that
    reads without VisCraft, where they are known, and else what a deck is worth (scoring.worth)."""
    marks = score.get("judge_only")
    return {
        **tally.deck_measures(score),
        "overall": scoring.worth(score) if marks is None else marks,
    }


def _traits(row: DeckRecord) -> Measures:
    """What a judge may be drawn to in a deck, as far as its record says."""
    found: Measures = {}
    if reply := row.get("gen", {}).get("text"):
        found["words"] = float(len(reply.split()))
    if (craft := row.get("features", {}).get("craft")) is not None:
        found["craft"] = float(craft)
    return found


# The comparison


def compare(study: store.Study, judges: Sequence[StudyJudge]) -> JudgeComparison:
    """Judges beside people: of each how often it prefers the deck that a person prefers, also by
    dimension, what it is drawn to, its price and time; of each two, who follows people more often.

    Raises cli.BadData where no vote counts."""
    votes, _ = raters.counted(list(study.votes()))
    if not votes:
        raise cli.BadData(f"{study.folder}: no vote counts yet; ask people first (make vote)")
    known = {deck: said for one in judges for deck, said in one.traits.items() if said}
    traits = tally.decks_of(study, known, {})
    return {
        "study": study.about["title"],
        "votes": len(votes),
        "prompts": len({vote["prompt"] for vote in votes}),
        "raters": len({vote["rater"] for vote in votes}),
        "people": agreement.of_people(votes),
        "judges": [_report(one, votes, traits) for one in judges],
        "differences": _differences(judges, votes),
    }


def keep(found: JudgeComparison) -> None:
    """Keep for the captions of comparisons how far each judge follows people."""
    about = {"study": found["study"], "votes": found["votes"]}
    for one in found["judges"]:
        if one["rubric"]:
            said = {"judge": one["of"], **about, "agreement": one["agreement"]}
            runs.keep_agreement(one["rubric"], said)


def _report(one: StudyJudge, votes: Sequence[Vote], traits: agreement.PairMeasures) -> JudgeReport:
    by_measure = agreement.of_judge(votes, one.decks)
    overall = by_measure.get("overall")
    drawn_to = {trait: _drawn_to(one, votes, trait, traits) for trait in TRAITS}
    costs = [cost for cost in one.costs if cost is not None]
    all_known = costs and len(costs) == len(one.costs)
    return {
        "judge": one.name,
        "of": one.of,
        "rubric": one.rubric,
        "agreement": overall["choice"] if overall else intervals.UNKNOWN,
        "dimensions": {name: by_measure[name]["own"] for name in DIMENSIONS if name in by_measure},
        "drawn_to": {trait: drawn for trait, drawn in drawn_to.items() if drawn},
        "cost": round(statistics.fmean(costs), 6) if all_known else None,
        "seconds": round(statistics.median(one.seconds), 2) if one.seconds else None,
    }


def _credits(one: StudyJudge, votes: Iterable[Vote]) -> list[tuple[Vote, float]]:
    """`[(untied vote, 1 where the judge prefers the same deck, a half where it prefers none)]`."""
    gaps = agreement.gaps(votes, one.decks, "overall")
    return agreement.credits((vote, vote["choice"], gap) for vote, gap in gaps)


def _drawn_to(
    one: StudyJudge, votes: Sequence[Vote], trait: str, traits: agreement.PairMeasures
) -> DrawnTo | None:
    """How often the judge, and how often people on the same votes, prefer the deck that has more
    of a trait; None where nothing is known of it."""
    leads = {id(vote): agreement.sign(gap) for vote, gap in agreement.gaps(votes, traits, trait)}
    used: list[Vote] = []
    judged: list[float] = []
    voted: list[float] = []
    for vote, gap in agreement.gaps(votes, one.decks, "overall"):
        more = leads.get(id(vote), 0)
        if more and preferred(vote):
            used.append(vote)
            judged.append((1 + agreement.sign(gap) * more) / 2)
            voted.append(float((vote["choice"] == "left") == (more > 0)))
    if not used:
        return None
    gaps = [one - other for one, other in zip(judged, voted, strict=True)]
    return {
        "judge": intervals.share(judged, used),
        "people": intervals.share(voted, used),
        "difference": intervals.mean(gaps, used, -1, 1),
    }


def _differences(judges: Sequence[StudyJudge], votes: Sequence[Vote]) -> list[JudgeDifference]:
    """Of each two judges how much more often the one follows people, on the votes that both say
    something of."""
    found = [_difference(a, b, votes) for a, b in itertools.combinations(judges, 2)]
    estimates.settle(found)
    return found


def _difference(a: StudyJudge, b: StudyJudge, votes: Sequence[Vote]) -> JudgeDifference:
    of_a = {id(vote): credit for vote, credit in _credits(a, votes)}
    of_b = {id(vote): credit for vote, credit in _credits(b, votes)}
    used = [vote for vote in votes if id(vote) in of_a and id(vote) in of_b]
    found: JudgeDifference = {
        "a": a.name,
        "b": b.name,
        "votes": len(used),
        "on": f" in the share of people's votes that it follows ({len(used)} votes)",
        "difference": {**intervals.UNKNOWN, "sd": None, "p": None},
        **estimates.UNSETTLED,
    }
    if used:
        first = [of_a[id(vote)] for vote in used]
        second = [of_b[id(vote)] for vote in used]
        gaps = [one - other for one, other in zip(first, second, strict=True)]
        net = intervals.mean(gaps, used, -1, 1)
        found["difference"] = estimates.tested(net, used, first, second)
    return found


def markdown(found: JudgeComparison) -> str:
    """The comparison as markdown."""
    return tally.card("judges", **found, dimensions=DIMENSIONS, traits=TRAITS)
