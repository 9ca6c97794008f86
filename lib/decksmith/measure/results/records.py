"""What stands in the files of a run and in rows of scores; and a loaded run and a comparison of several, as this room's
modules hand them to each other."""

from pathlib import Path
from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from decksmith.core.records import Error, Kind, Numbers, Optionals, Record
from decksmith.measure.decks.records import Engine
from decksmith.measure.judging.records import DeckRecord
from decksmith.models.records import Asked


class Mean(TypedDict):
    mean: Annotated[float | None, "over prompts; null without any"]
    lo: Annotated[float | None, "the lower end of the 95 % interval; null for a single prompt"]
    hi: Annotated[float | None, "the upper end"]
    n: Annotated[int, "prompts"]


class ParametersSent(TypedDict):
    sha256: Annotated[str | None, "of all requests less the model; null where a reply does not say"]
    parameters: Annotated[Record, "every one, a list where records differ"]


FaultClass = TypedDict(
    "FaultClass",
    {
        "kind": Annotated[Kind, "whose fault it is"],
        "stage": Annotated[str, "where"],
        "class": Annotated[str, "what failed"],
        "n": Annotated[int, "records"],
    },
)


class Faults(TypedDict):
    kinds: Annotated[dict[str, int], "records by kind"]
    classes: Annotated[list[FaultClass], "the most frequent first"]


class Interval(TypedDict):
    level: Annotated[float, "0.95"]
    method: Annotated[str, "how it is made"]
    over: Annotated[str, "what is sampled: prompts or domains"]


class Took(TypedDict):
    tool: Annotated[str, "the script that made the summary"]
    version: Annotated[str, "the version of decksmith"]
    generation_s: Annotated[float | None, "seconds of all replies"]
    wall_s: Annotated[float | None, "seconds in which a record was in work"]
    stages_s: Annotated[Numbers, "seconds of each stage"]


class Summary(TypedDict):
    model: Annotated[Asked, "who answered"]
    asked: Annotated[ParametersSent, "how"]
    judge: Annotated[str | None, "its name"]
    n: Annotated[int, "records"]
    prompts: Annotated[int, "different ones"]
    rendered: Annotated[int, "decks that the protocol accepts"]
    partial: Annotated[int, "of them, those with an error"]
    truncated: Annotated[int, "replies that ended at the token limit"]
    cut_by_server: Annotated[
        NotRequired[int], "of them, those that the server ended before `max_tokens`"
    ]
    lacks: Annotated[
        NotRequired[dict[str, int]], "records by what their prompts lack for the offline judge"
    ]
    capped: Annotated[int, "records with a cap"]
    disagreement: Annotated[
        NotRequired[Numbers], "of a panel: how far two models are apart, by dimension"
    ]
    faults: Annotated[Faults, "counted"]
    tokens: Annotated[dict[str, int], "prompt, completion, reasoning; records that say them"]
    cost: Annotated[float | None, "USD of all replies"]
    judge_cost: Annotated[float | None, "USD of all judgings"]
    means: Annotated[
        dict[str, dict[str, Mean]], "by accounting (`floor`, `renderable`) and measure"
    ]
    turns: Annotated[
        NotRequired[dict[str, Numbers]],
        "of prompts with turns, by the turn's number: {n, overall, checklist, kept} under `floor`",
    ]
    interval: Annotated[Interval, "what `lo` and `hi` are"]
    by: Annotated[Took, "who made it, and what the run took"]


class Identity(TypedDict):
    protocol: Annotated[str, "its name"]
    prompts: Annotated[Record, "{count, sha256}: what was asked, the system message apart"]
    system: Annotated[str, "fingerprint of the system messages"]
    sampling: Annotated[Record, "as the records were asked, less what the model itself sets"]
    images: Annotated[Record, "the protocol's"]
    render: Annotated[Record, "the protocol's"]
    renderer: Annotated[Engine | None, "`render.engine`; null where no deck was rendered"]
    judge: Annotated[Record, "the protocol's, with slug and the hashes of prompt and schema"]
    rubric: Annotated[str, "fingerprint of caps and measures"]
    scanner: Annotated[str, "`features.scanner`"]
    score: Annotated[Record, "the protocol's"]
    claim: Annotated[Record, "the protocol's"]
    hash: Annotated[str, "of all these"]


class ScoreRow(TypedDict):
    model: Annotated[str, "its name"]
    id: Annotated[str, "of the prompt; rows that share model and id are samples of it"]
    scores: Annotated[Optionals, "dimension: 1 to 5, or null; the same dimensions in every row"]
    weights: Annotated[NotRequired[Numbers], "the same in every row; without it all count alike"]
    rendered: Annotated[bool, "whether there was a deck to look at"]
    error_kind: Annotated[NotRequired[Kind | None], "whose fault a missing score is"]


# --- runs that are compared ---------------------------------------------------------------------


class Fault(Error):
    """The decisive error of a record, with the stage that it stands under."""

    stage: str


class Trained(TypedDict):
    reward: str  # the names of the rewards
    shared: list[str] | None  # the measures that they and the score have in common
    others: list[str]  # the score's other measures


class Guided(TypedDict):
    by: str  # the reward that chose the decks, or "judge"
    shared: list[str]  # the measures that it and the score have in common


class Run(TypedDict):
    """One run, as runs.load returns it. What other rooms know of it they add before it is compared: see the last three keys."""

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
    trained: NotRequired[Trained]  # on which reward (rewards.rules.note_training)
    guided: NotRequired[Guided]  # what chose its decks (rewards.rules.note_training)
    chain: NotRequired[dict[str, list[Record]]]  # benchmarks by earlier run (metrics.note_chain)


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
    verdict: str
    sentence: str
    open: bool  # whether lost or cut-off decks keep it from saying anything


class Setting(TypedDict):
    """A parameter of the requests in which runs differ; None for a value that was not sent."""

    setting: str
    values: dict[str, object]  # by the run's label


class RunSummary(Summary):
    run: str  # its folder
    label: str


Cost = dict[str, Mean | None]  # of a deck, by kind: tokens, seconds, usd


class CostTable(TypedDict):
    unit: str  # the kind by which runs are held against each other
    runs: dict[str, Cost]  # by label
    dominated: dict[str, str]  # a run's label, and that of what is as good for less


class Look(TypedDict):
    a: str
    b: str
    looks: int  # how many there were, this one with them
    prompts: list[int]  # of each, oldest first


class Looks(TypedDict):
    pairs: list[Look]
    said: list[str]  # sentences


class Step(TypedDict):
    """A model of a chain against an earlier one."""

    model: str
    against: str
    difference: PairedDifference
    p_holm: float | None
    family: int
    verdict: str
    sentence: str
    benchmarks: list[Record]


class Comparison(TypedDict):
    """Several runs side by side, as `run-compare --json` prints them."""

    judge: str | None
    caption: str
    titles: dict[str, str]  # of measures
    protocol: str | None  # its hash
    unshipped: list[str]
    left_out: dict[str, list[str]]
    asked: list[Setting]
    runs: list[RunSummary]
    caveats: list[str]
    taught: list[str]
    kin: list[str]
    unsettled: bool  # whether lost or cut-off decks leave every headline inconclusive
    costs: CostTable | None
    headlines: list[str]
    ranks: dict[str, list[int]]  # best and worst that the tests leave open
    pairs: list[Pair]
    looks: NotRequired[Looks]
    chain: NotRequired[list[Step]]
