"""What people's votes say, as vote-tally prints it: one object of everything that the other modules
estimate, and as markdown."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, cast

from decksmith.core import cli, pages, stream
from decksmith.core.records import prompt_of, sample_of
from decksmith.measure.decks.records import Rendered
from decksmith.measure.judging import scoring
from decksmith.measure.judging.records import DeckRecord, Score
from decksmith.measure.results import layout, runs
from decksmith.measure.results.summary import TITLES
from decksmith.measure.results.text import interval, p_value, price
from decksmith.people.study import agreement, estimates, intervals, raters, store
from decksmith.people.study.agreement import JudgeAgreement, PairMeasures, RaterAgreement
from decksmith.people.study.estimates import Preference, Strengths
from decksmith.people.study.intervals import Estimate
from decksmith.people.study.raters import RaterSummary, RepeatCount
from decksmith.people.study.records import SIDES, DeckKey, Measures, Rater, Scores, Vote, preferred


class VoteCounts(TypedDict):
    all: int  # votes that stand
    counted: int  # of them, those that count
    gold: int  # on attention items
    repeats: int  # on swapped repeats
    unseen: int  # on decks that were not looked at to the end
    of_raters_left_out: int  # by raters whom the rule leaves out
    of_one_network: int  # of those that count, by names that may be one person's (raters.alike)


class ModelVotes(TypedDict):
    share: Estimate  # of the votes on it that prefer it
    bad: Estimate  # of the votes on it that find both decks bad


class Position(TypedDict):
    left: Estimate  # share of the left side, of untied votes
    repeats: RepeatCount  # swapped repeats of raters who count


class Tally(TypedDict):
    votes: VoteCounts  # how many there are
    prompts: int  # that were voted on
    raters: int  # who count
    people: list[RaterSummary]  # what each rater did
    resampled: str  # what the intervals are over
    pairs: list[Preference]  # each two models
    models: dict[str, ModelVotes]  # each model
    strengths: Strengths  # all models on one scale
    position: Position  # how far being left is preferred
    agreement: RaterAgreement  # of people with each other
    judge: dict[str, JudgeAgreement] | None  # the judge beside people, by measure


class StudyHeading(TypedDict):
    title: str  # of the study
    closed: bool  # votes neither come nor go
    unjudged: list[str]  # runs without scores


class StudyTally(Tally):
    study: StudyHeading  # which study


def tally(
    votes: Sequence[Vote], decks: PairMeasures | None = None, came: Iterable[Rater] = ()
) -> Tally:
    """Everything the votes say. decks: what the judge said of them; came: who came whence. Raises
    cli.BadData where nothing is left to count."""
    kept, people = raters.counted(votes)
    if not kept:
        raise cli.BadData(
            "no vote counts: there is none yet, or all are by raters who are left out"
        )
    voters, alike = {vote["rater"] for vote in kept}, raters.alike(came)
    return {
        "votes": _counts(votes, kept, alike),
        "prompts": len({vote["prompt"] for vote in kept}),
        "raters": len(voters),
        "people": people,
        "resampled": "prompts and raters" if len(voters) >= intervals.RATERS else "prompts",
        "pairs": estimates.preferences(kept, alike),
        "models": _models(kept),
        "strengths": estimates.strengths(kept),
        "position": _position(kept, people),
        "agreement": agreement.of_people(kept),
        "judge": agreement.of_judge(kept, decks) if decks else None,
    }


def _counts(votes: Sequence[Vote], kept: Sequence[Vote], alike: frozenset[str]) -> VoteCounts:
    """How many votes there are of each kind, and how many count."""
    kinds = [vote["kind"] for vote in votes]
    return {
        "all": len(votes),
        "counted": len(kept),
        "gold": kinds.count("gold"),
        "repeats": kinds.count("repeat"),
        "unseen": sum(not vote["seen"] for vote in votes),
        "of_raters_left_out": len(raters.usable(votes)) - len(kept),
        "of_one_network": sum(vote["rater"] in alike for vote in kept),
    }


def _models(votes: Sequence[Vote]) -> dict[str, ModelVotes]:
    """How the votes on each model went."""
    found: dict[str, ModelVotes] = {}
    for model in sorted({vote[side] for vote in votes for side in SIDES}):
        mine = [vote for vote in votes if model in (vote["left"], vote["right"])]
        won = [{None: 0.5, model: 1.0}.get(preferred(vote), 0.0) for vote in mine]
        bad = [float(vote["choice"] == "bad") for vote in mine]
        found[model] = {"share": intervals.share(won, mine), "bad": intervals.share(bad, mine)}
    return found


def _position(votes: Sequence[Vote], people: Sequence[RaterSummary]) -> Position:
    """How far the left side is preferred for being left."""
    untied = [vote for vote in votes if preferred(vote)]
    lefts = [float(vote["choice"] == "left") for vote in untied]
    repeats = [rater["repeats"] for rater in people if not rater["excluded"]]
    return {
        "left": intervals.share(lefts, untied),
        "repeats": {
            "n": sum(one["n"] for one in repeats),
            "same": sum(one["same"] for one in repeats),
            "against": sum(one["against"] for one in repeats),
        },
    }


# A study


def of_study(study: store.Study) -> tuple[StudyTally, list[Vote]]:
    """`(tally, votes)` of a study, with the judge's scores where its runs, or the file that came
    with imported votes, have them. Models go by their labels, where these differ. Raises
    cli.BadData where nothing counts."""
    about = study.about
    labels = {run["name"]: run["label"] for run in about["runs"]}
    if len(set(labels.values())) < len(labels):
        labels = {}  # two runs have one label: names tell them apart
    votes = list(study.votes())
    named = [_labelled(vote, labels) for vote in votes]
    scores, unjudged = scores_of(study)
    found = tally(named, decks_of(study, scores, labels), study.raters())
    heading: StudyHeading = {"title": about["title"], "closed": study.closed, "unjudged": unjudged}
    return {"study": heading, **found}, votes


def _labelled(vote: Vote, labels: Mapping[str, str]) -> Vote:
    left, right = (labels.get(vote[side], vote[side]) for side in SIDES)
    return {**vote, "left": left, "right": right}


def decks_of(study: store.Study, scores: Scores, labels: Mapping[str, str]) -> PairMeasures:
    """The measures of both decks of each pair to vote on that has them, by the models' labels."""
    found = {}
    for ident, pair in study.pairs.items():
        measured = {}
        for side in (pair["left"], pair["right"]):
            measures = scores.get((side["run"], pair["prompt"], side["sample"]))
            if measures:
                measured[labels.get(side["model"], side["model"])] = measures
        if pair["kind"] == "vote" and len(measured) == 2:
            found[ident] = measured
    return found


def scores_of(study: store.Study) -> tuple[Scores, list[str]]:
    """`(scores of the decks, names of runs without any)` from the folders of our runs, or from the
    file beside imported votes.

    There the mean of several samples of a deck counts, because a vote does not say which of them
    was seen; a sample without scores is left out."""
    if study.imported:
        paths = [path for path in [study.folder / "scores.jsonl"] if path.is_file()]
    else:
        folders = [Path(run["path"]) for run in study.about["runs"]]
        paths = [folder for folder in folders if (folder / "scores.jsonl").is_file()]
    samples: dict[DeckKey, list[Measures]] = defaultdict(list)
    for path in paths:
        for (name, prompt, sample), record in scored(path):
            if score := record.get("score"):
                which = 0 if study.imported else sample
                samples[name, prompt, which].append(deck_measures(score))
    scores = {
        deck: {name: _mean(one.get(name) for one in some) for name in some[0]}
        for deck, some in samples.items()
    }
    judged = {name for name, *_ in scores}
    return scores, [run["name"] for run in study.about["runs"] if run["name"] not in judged]


def scored(path: Path) -> Iterator[tuple[DeckKey, DeckRecord]]:
    """The records with a judge's scores in a run's folder, or in a file of another tool, each with
    its deck."""
    if path.is_dir():
        if not (path / "scores.jsonl").is_file():
            raise layout.missing(path)
        found = [row for _, row in stream.records(path / "scores.jsonl", Rendered)]
        named = [(layout.run_name(path), cast(list[DeckRecord], found))]
    elif path.is_file():
        named = [(run["name"], run["records"]) for run in runs.load([path])]
    else:
        raise cli.Missing(f"there is no {path}; a judge is NAME=a run's folder or a file")
    for name, rows in named:
        for row in rows:
            yield (name, prompt_of(row), sample_of(row)), row


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of those values that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def deck_measures(score: Score) -> Measures:
    """The numbers of a `score` value that votes are held against: the checks passed, or the marks."""
    if "checks" in score:
        return {"checks": scoring.worth(score), "checklist": score.get("checklist")}
    return {
        "checks": score.get("checks"),
        "overall": score.get("overall"),
        "judge_only": score.get("judge_only"),
        **score.get("dimensions", {}),
        "checklist": score.get("checklist"),
    }


# For people


def card(name: str, **known: object) -> str:
    """The text of assets/cards/NAME.md.j2, filled with what is known."""
    import jinja2

    templates = pages.environment(
        cli.ROOT / "assets" / "cards", keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    templates.filters |= {
        "cell": lambda text: text.replace("|", "\\|"),
        "figure": interval,
        "p_value": p_value,
        "percent": lambda share: "–" if share is None else f"{100 * share:.0f} %",
        "price": price,
    }
    return templates.get_template(f"{name}.md.j2").render(known)


def markdown(found: StudyTally) -> str:
    """The tally as markdown."""
    rules = {
        "RATERS": intervals.RATERS,
        "GOLD": raters.GOLD,
        "REPEATS": raters.REPEATS,
        "FASTEST": raters.FASTEST,
        "PEOPLE": raters.PEOPLE,
    }
    return card("tally", **found, rules=rules, titles=TITLES)
