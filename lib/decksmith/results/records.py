"""What stands in the files of a run and in rows of scores."""

from typing import Annotated, NotRequired, TypedDict

from decksmith.core.records import Kind, Numbers, Optionals, Record
from decksmith.decks.records import Engine
from decksmith.models.records import Asked


class Summary(TypedDict, total=False):
    model: Annotated[Asked, "who answered"]
    asked: Annotated[
        Record,
        "`parameters`: every one, a list where records differ; `sha256`: fingerprint of all requests "
        "less the model",
    ]
    judge: Annotated[str | None, "its name"]
    n: Annotated[int, "records"]
    prompts: Annotated[int, "different ones"]
    rendered: Annotated[int, "decks that the protocol accepts"]
    partial: Annotated[int, "of them, those with an error"]
    truncated: Annotated[int, "replies that ended at the token limit"]
    cut_by_server: Annotated[int, "of them, those that the server ended before `max_tokens`"]
    lacks: Annotated[dict[str, int], "records by what their prompts lack for the offline judge"]
    capped: Annotated[int, "records with a cap"]
    faults: Annotated[Record, "`kinds`: records by kind; `classes`: [{kind, stage, class, n}]"]
    tokens: Annotated[dict[str, int], "prompt, completion, reasoning; records that say them"]
    cost: Annotated[float | None, "USD of all replies"]
    judge_cost: Annotated[float | None, "USD of all judgings"]
    means: Annotated[
        dict[str, dict[str, Record]],
        "by accounting (`floor`, `renderable`) and measure: {mean, lo, hi, n}",
    ]
    turns: Annotated[
        dict[str, Record],
        "of prompts with turns, by the turn's number: {n, overall, checklist, kept} under `floor`",
    ]
    interval: Annotated[Record, "{level, method, over}: what `lo` and `hi` are"]
    by: Annotated[Record, "tool, version, and seconds of generation, wall time and each stage"]


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
