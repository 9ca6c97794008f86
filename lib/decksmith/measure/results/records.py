"""What stands in the files of a run, and in rows of scores."""

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from decksmith.core.records import Kind, Numbers, Optionals, Record
from decksmith.measure.decks.records import Engine
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
    made_from: Annotated[str, "fingerprint of the scored records"]
    sum: Annotated[NotRequired[str], "fingerprint of the summary without `by`"]
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
    truncated: Annotated[int, "replies that ended at the token limit or were stopped"]
    stopped: Annotated[NotRequired[int], "of them, those that were stopped"]
    cut_by_server: Annotated[
        NotRequired[int], "of them, those that the server ended before `max_tokens`"
    ]
    capped: Annotated[int, "records with a cap"]
    faults: Annotated[Faults, "counted"]
    tokens: Annotated[dict[str, int], "prompt, completion, reasoning; records that say them"]
    cost: Annotated[float | None, "USD of all replies"]
    judge_cost: Annotated[float | None, "USD of all judgings"]
    means: Annotated[
        dict[str, dict[str, Mean]], "by accounting (`floor`, `renderable`) and measure"
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
