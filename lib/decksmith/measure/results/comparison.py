"""What a loaded run is, and what a comparison of several holds: the values that this room's modules hand each other."""

from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict

from decksmith.core.records import Record
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.results.records import Identity, Mean, Summary


class Trained(TypedDict):
    reward: str  # the names of the rewards
    shared: str | None  # what they and the score have in common, in words


class Guided(TypedDict):
    by: str  # the reward that chose the decks, or "judge"
    shared: str | None  # what it and the score have in common, in words


class Run(TypedDict):
    """One run, as runs.load returns it. What other rooms know of it they add before it is compared: see the last two keys."""

    path: Path  # its folder, or the file of scores
    name: str  # model, and condition behind a +
    order: int  # its place among those that were named
    label: str  # what tables call it, unique among the runs that were loaded together
    color: str
    summary: Summary  # computed anew from the records
    protocol: Identity  # protocol.json; of a file of scores its name and weights alone
    records: list[DeckRecord]  # scored
    condition: Record | None  # condition.json
    unshipped: list[str]  # in what its protocol differs from the shipped one of its name
    left_out: list[str] | None  # decks that not all runs have (--common)
    remedy: str  # what does missing decks again
    made_from: NotRequired[str]  # of scores.jsonl, whose records `records` are without their X-rays
    altered: NotRequired[list[str]]  # ids of records that are others than those that were scored
    trained: NotRequired[Trained]  # on which reward (rewards.rules.note_training)
    guided: NotRequired[Guided]  # what chose its decks (rewards.rules.note_training)


class PairedDifference(Mean):
    """Of two runs by prompt; None where it cannot be said (stats.differences)."""

    clusters: int  # that the interval rests on, 0 where each prompt stands alone
    p: float | None
    wins: int
    ties: int
    losses: int
    sd: float | None
    effect: float | None


class Bounds(TypedDict):
    """What the decks without a score could make of a difference: of its mean, and of its interval."""

    least: float
    most: float
    lo: float
    hi: float


class TestedPair(TypedDict):
    """What a verdict is made of: two runs, or a model and its base on a benchmark."""

    a: str
    b: str
    difference: PairedDifference
    p_holm: float | None  # corrected within the family
    family: int  # how many differences were tested together
    on: NotRequired[str]  # on what it was compared, the end of a clause
    bounds: NotRequired[Bounds]  # under the floor, where decks have no score
    lost: NotRequired[int]  # decks without a score, where that is more than the protocol allows
    cut: NotRequired[str | None]  # which run was cut off too often, a clause
    doubts: NotRequired[list[str]]  # sentences that keep it from separating


class Pair(TestedPair):
    """Two runs under one accounting and measure."""

    accounting: str
    measure: str
    clause: str  # of the headline: "renders", "better", or none
    sides: (
        tuple[float, float] | None
    )  # of `renders`: for how many prompts those of each do; of "better": both means
    asked: int  # prompts, whether or not both have a value
    verdict: str
    sentence: str
    open: bool  # whether lost or cut-off decks keep it from saying anything


class RunSummary(Summary):
    run: str  # its folder
    label: str


Cost = dict[str, float | None]  # of a deck, by kind: tokens, seconds, usd; None where not known


class CostTable(TypedDict):
    unit: str  # the kind by which runs are held against each other
    runs: dict[str, Cost]  # by label


class Look(TypedDict):
    a: str
    b: str
    looks: int  # how many there were, this one with them
    prompts: list[int]  # of each, oldest first


class Looks(TypedDict):
    pairs: list[Look]
    said: list[str]  # sentences


class Comparison(TypedDict):
    """Several runs side by side, as `run-compare --json` prints them."""

    judge: str | None
    caption: str
    titles: dict[str, str]  # of measures
    protocol: str | None  # its hash
    unshipped: list[str]
    left_out: dict[str, list[str]]
    runs: list[RunSummary]
    caveats: list[str]
    kin: list[str]
    unsettled: bool  # whether lost or cut-off decks leave every headline inconclusive
    costs: CostTable | None
    headlines: list[str]
    ranks: dict[str, list[int]]  # best and worst that the tests leave open
    pairs: list[Pair]
    looks: NotRequired[Looks]
