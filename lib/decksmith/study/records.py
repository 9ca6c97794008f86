"""What stands in the files of a study and of its tally."""

from typing import Annotated, Literal, NotRequired, TypedDict

PairKind = Literal["vote", "repeat", "gold"]
Choice = Literal["left", "right", "tie", "bad"]
Measures = dict[str, float | None]  # what a judge gave a deck, by measure
DeckKey = tuple[str, str, int]  # run, prompt and sample
Scores = dict[DeckKey, Measures]


class Figure(TypedDict):
    mean: Annotated[float | None, "the value; null where there is none"]
    lo: Annotated[float | None, "the lower end of its 95 % interval"]
    hi: Annotated[float | None, "the upper end"]
    n: Annotated[int, "votes, prompts or pairs that it is of"]


class PairSide(TypedDict):
    model: Annotated[str, "who wrote the deck"]
    run: Annotated[str, "the run's folder"]
    sample: Annotated[int, "which sample"]
    rendered: Annotated[bool, "the protocol accepts it"]
    broken: Annotated[NotRequired[bool], "the damaged copy of an attention item"]


class StudyPair(TypedDict):
    id: Annotated[str, "says nothing of what it holds"]
    kind: Annotated[PairKind, "a question, again with sides swapped, attention"]
    prompt: Annotated[str, "its id"]
    request: Annotated[str, "what was asked, as people see it"]
    left: Annotated[PairSide, "of the pair"]
    right: Annotated[PairSide, "of the pair"]
    pictures: Annotated[dict[str, list[str]], "left, right: files in pictures/"]
    of: Annotated[str | None, "the pair that this one repeats"]
    expect: Annotated[str | None, "the better side of an attention item"]
    round: Annotated[int, "when the pair was added, from 1"]


class StudyRun(TypedDict):
    name: Annotated[str, "of the model"]
    label: Annotated[str, "how the tally names it"]
    path: Annotated[str, "the run's folder"]
    protocol: Annotated[str, "its name"]


class BuildRound(TypedDict):
    round: Annotated[int, "from 1"]
    at: Annotated[str, "ISO 8601 in UTC"]
    prompts: Annotated[int, "as asked: for each two models"]
    repeats: Annotated[float, "as asked: share of the pairs"]
    gold: Annotated[float, "as asked: share of the pairs"]
    failed: Annotated[bool, "as asked: also answers without an accepted deck"]
    added: Annotated[dict[str, int], "pairs that were added, by kind"]


class VotesFile(TypedDict):
    file: Annotated[str, "its name"]
    sha256: Annotated[str, "of its bytes"]


class StudyAbout(TypedDict):
    title: Annotated[str, "what people see as the study's name"]
    question: Annotated[str, "what they are asked of each pair"]
    seed: Annotated[int | None, "of prompts, sides and samples; null where votes were imported"]
    raters_per_pair: Annotated[int, "how many people are to see a pair"]
    per_rater: Annotated[int, "how many pairs a person is given"]
    runs: Annotated[list[StudyRun], "whose decks are compared"]
    made: Annotated[list[BuildRound], "each time that pairs were added"]
    imported: Annotated[
        NotRequired[list[VotesFile]], "where the votes came from, of a study of imported votes"
    ]


class Vote(TypedDict):
    pair: Annotated[str, "its id"]
    kind: Annotated[PairKind, "of the pair"]
    of: Annotated[str | None, "of the pair"]
    expect: Annotated[str | None, "of the pair"]
    rater: Annotated[str, "an id, or the name in an imported file"]
    prompt: Annotated[str, "its id"]
    left: Annotated[str, "the model on this side"]
    right: Annotated[str, "the model on this side"]
    choice: Annotated[Choice, "the answer"]
    dimensions: Annotated[dict[str, str], "choices for single dimensions"]
    tags: Annotated[list[str], "what the rater ticked"]
    seconds: Annotated[float | None, "until the answer"]
    seen: Annotated[bool, "all slides of both were looked at"]
    source: Annotated[Literal["web", "imported"], "where the vote was cast"]
    order: Annotated[int, "its place in the rater's queue"]
    at: Annotated[str, "ISO 8601 in UTC; empty where an imported file does not say"]


class Rater(TypedDict):
    id: Annotated[str, "a keyed hash of the name, or the name in an imported file"]
    name: Annotated[str, "as the person gave it"]
    source: Annotated[
        Literal["handle", "link", "imported"], "a chosen name, the owner's invitation, or a file"
    ]
    at: Annotated[str, "when the name was added, ISO 8601 in UTC"]
    network: Annotated[str | None, "a keyed hash of where a name was chosen; null of all others"]
    given: Annotated[int, "pairs in the queue"]
    votes: Annotated[int, "cast"]
    skipped: Annotated[int, "pairs passed over"]
    last: Annotated[str | None, "time of the last vote"]


class CrowdRule(TypedDict):
    people: Annotated[int, "so many names of one address are a crowd"]
    burst: Annotated[int, "so many names within `seconds` are one"]
    seconds: Annotated[int, "of a burst"]
    share: Annotated[float, "of the votes, above which a crowd is warned of"]


class Crowd(TypedDict):
    by: Annotated[str, "`address` or `burst`"]
    networks: Annotated[list[str], "keyed hashes of where the names came from"]
    first: Annotated[str, "when the first name was chosen"]
    last: Annotated[str, "when the last name was chosen"]
    raters: Annotated[list[str], "their ids"]
    people: Annotated[int, "how many names"]
    votes: Annotated[int, "that they cast"]
    share: Annotated[float, "of all votes"]


class Crowds(TypedDict):
    rule: Annotated[CrowdRule, "what makes a crowd"]
    chose: Annotated[int, "people who chose their names"]
    addresses: Annotated[int, "that they came from"]
    found: Annotated[list[Crowd], "the crowds, by votes"]
    raters: Annotated[list[str], "everybody in a crowd"]
    people: Annotated[int, "how many these are"]
    votes: Annotated[int, "that they cast"]
    share: Annotated[float, "of all votes"]
    warnings: Annotated[list[str], "a sentence for each crowd that cast much of the votes"]


class JudgeAgreement(TypedDict):
    choice: Annotated[Figure, "share of the untied votes whose deck has the higher number"]
    own: Annotated[Figure, "the same of what people said of the dimension of that name"]
    equal: Annotated[float | None, "share of votes on decks with equal numbers"]
    shared: Annotated[Figure, "`choice` over pairs that several people saw"]


class GoldRule(TypedDict):
    least: Annotated[int, "attention items that must have been shown"]
    failed: Annotated[float, "share of them that may fail"]


class RepeatRule(TypedDict):
    least: Annotated[int, "repeats with a side both times that must have been shown"]


class ExclusionRule(TypedDict):
    gold: Annotated[GoldRule, "attention items"]
    repeats: Annotated[RepeatRule, "the other deck in all swapped repeats"]
    seconds: Annotated[float, "a median below it leaves a rater out"]


class GoldCount(TypedDict):
    n: Annotated[int, "attention items"]
    failed: Annotated[int, "answered otherwise than expected"]


class RepeatCount(TypedDict):
    n: Annotated[int, "swapped repeats"]
    same: Annotated[int, "the same deck again"]
    against: Annotated[int, "the other deck"]


class RaterSummary(TypedDict):
    rater: Annotated[str, "the id"]
    votes: Annotated[int, "without gold items and repeats"]
    gold: Annotated[GoldCount, "attention items"]
    repeats: Annotated[RepeatCount, "swapped repeats"]
    left: Annotated[float | None, "share of the left side among the untied"]
    tied: Annotated[int, "votes for neither"]
    bad: Annotated[int, "votes that found both decks bad"]
    seconds: Annotated[float | None, "median in view"]
    excluded: Annotated[str | None, "why the rule leaves this rater out"]


class RaterAgreement(TypedDict):
    pairs: Annotated[int, "that several people saw"]
    raters: Annotated[int, "who saw them"]
    alpha: Annotated[Figure, "Krippendorff's, ordinal"]
    another: Annotated[Figure, "how often another person prefers the same deck"]
    at_most: Annotated[Figure, "the most that any judge can reach"]


class OddsPair(TypedDict):
    a: Annotated[str, "a model"]
    b: Annotated[str, "another"]
    log_odds: Annotated[Figure, "difference of their log strengths"]
    chance: Annotated[Figure, "that a's deck is preferred where one is"]


class Strengths(TypedDict):
    groups: Annotated[list[list[str]], "models between which strengths are finite"]
    models: Annotated[dict[str, Figure], "log strength of each model"]
    pairs: Annotated[list[OddsPair], "each two models of a group"]
    bias: Annotated[Figure | None, "advantage of the left side in log odds"]


class Difference(Figure):
    sd: Annotated[float | None, "standard deviation over prompts"]
    p: Annotated[float | None, "of a permutation test over prompts"]


class Preference(TypedDict):
    a: Annotated[str, "a model"]
    b: Annotated[str, "another"]
    votes: Annotated[int, "on the two"]
    for_a: Annotated[int, "votes that prefer a's deck"]
    for_b: Annotated[int, "votes that prefer b's deck"]
    tied: Annotated[int, "about the same"]
    bad: Annotated[int, "both bad"]
    share: Annotated[Figure, "of the votes for a; ties and both bad are a half"]
    difference: Annotated[Difference, "share for a minus share for b"]
    p_holm: Annotated[float | None, "p corrected over all pairs of models"]
    family: Annotated[int, "how many pairs these are"]
    verdict: Annotated[str, "`beats`, `not separated` or `inconclusive`"]
    sentence: Annotated[str, "what may be said of the two"]


class VoteCounts(TypedDict):
    all: Annotated[int, "votes that stand"]
    counted: Annotated[int, "of them, those that count"]
    gold: Annotated[int, "on attention items"]
    repeats: Annotated[int, "on swapped repeats"]
    unseen: Annotated[int, "on decks that were not looked at to the end"]
    of_raters_left_out: Annotated[int, "by raters whom the rule leaves out"]
    choices: Annotated[dict[str, int], "those that count, by choice"]


class ModelVotes(TypedDict):
    share: Annotated[Figure, "of the votes on it that prefer it"]
    bad: Annotated[Figure, "of the votes on it that find both decks bad"]


class Position(TypedDict):
    left: Annotated[Figure, "share of the left side, of untied votes"]
    log_odds: Annotated[Figure | None, "advantage of the left side"]
    repeats: Annotated[RepeatCount, "swapped repeats of raters who count"]


class IntervalMethod(TypedDict):
    level: Annotated[float, "of the intervals"]
    resamples: Annotated[int, "of the bootstrap"]
    seed: Annotated[int, "of the resamples"]
    over: Annotated[str, "what is resampled"]


class BriefTally(TypedDict):
    votes: Annotated[int, "that count in this way"]
    pairs: Annotated[list[Preference], "each two models"]
    log_odds: Annotated[list[OddsPair], "each two models of a group"]


class Tally(TypedDict):
    votes: Annotated[VoteCounts, "how many there are"]
    prompts: Annotated[int, "that were voted on"]
    raters: Annotated[int, "who count"]
    rule: Annotated[ExclusionRule, "what leaves a rater out"]
    people: Annotated[list[RaterSummary], "what each rater did"]
    interval: Annotated[IntervalMethod, "how the intervals are made"]
    pairs: Annotated[list[Preference], "each two models"]
    models: Annotated[dict[str, ModelVotes], "each model"]
    strengths: Annotated[Strengths, "all models on one scale"]
    position: Annotated[Position, "how far being left is preferred"]
    seconds: Annotated[dict[str, float] | None, "lower, median, upper: quartiles of time in view"]
    agreement: Annotated[RaterAgreement, "of people with each other"]
    judge: Annotated[dict[str, JudgeAgreement] | None, "the judge beside people, by measure"]
    crowds: Annotated[Crowds, "names that may be fewer people than they seem"]
    otherwise: Annotated[dict[str, BriefTally], "votes that are counted in other ways"]


class StudyHeading(TypedDict):
    title: Annotated[str, "of the study"]
    question: Annotated[str, "that people were asked"]
    closed: Annotated[bool, "votes neither come nor go"]
    unjudged: Annotated[list[str], "runs without scores"]


class StudyTally(Tally):
    study: Annotated[StudyHeading, "which study"]


class DrawnTo(TypedDict):
    judge: Annotated[Figure, "how often the judge prefers the deck that has more of it"]
    people: Annotated[Figure, "how often people do, on the same votes"]
    difference: Annotated[Figure, "the judge's bias"]


class JudgeReport(TypedDict):
    judge: Annotated[str, "as it was called"]
    of: Annotated[str, "the name in its records; empty where they say none"]
    agreement: Annotated[Figure, "share of the untied votes whose deck it prefers too"]
    equal: Annotated[float | None, "share of votes on decks that it holds for equal"]
    dimensions: Annotated[dict[str, Figure], "the same of what people said of a dimension"]
    drawn_to: Annotated[dict[str, DrawnTo], "by trait"]
    cost: Annotated[float | None, "USD of one judging; null where any does not say"]
    seconds: Annotated[float | None, "of one judging, the median"]


class JudgeDifference(TypedDict):
    a: Annotated[str, "a judge"]
    b: Annotated[str, "another"]
    votes: Annotated[int, "that both say something of"]
    on: Annotated[str, "how the sentence says what was compared"]
    difference: Annotated[Difference, "a's share of votes followed minus b's"]
    p_holm: Annotated[float | None, "p corrected over all pairs of judges"]
    family: Annotated[int, "how many pairs these are"]
    verdict: Annotated[str, "`beats`, `not separated` or `inconclusive`"]
    sentence: Annotated[str, "what may be said of the two"]


class JudgeComparison(TypedDict):
    study: Annotated[str, "its title"]
    votes: Annotated[int, "that count"]
    prompts: Annotated[int, "that were voted on"]
    raters: Annotated[int, "who count"]
    people: Annotated[RaterAgreement, "of people with each other"]
    judges: Annotated[list[JudgeReport], "each judge"]
    differences: Annotated[list[JudgeDifference], "each two judges"]
