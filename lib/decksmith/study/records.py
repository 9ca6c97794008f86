"""What stands in the files of a study."""

from typing import Annotated, Literal, TypedDict


class Side(TypedDict):
    model: Annotated[str, "who wrote the deck"]
    run: Annotated[str, "the run's folder"]
    sample: Annotated[int, "which sample"]
    rendered: Annotated[bool, "the protocol accepts it"]


class Pair(TypedDict):
    id: Annotated[str, "says nothing of what it holds"]
    kind: Annotated[
        Literal["vote", "repeat", "gold"], "a question, again with sides swapped, attention"
    ]
    prompt: Annotated[str, "its id"]
    request: Annotated[str, "what was asked, as people see it"]
    left: Annotated[Side, "of the pair"]
    right: Annotated[Side, "of the pair"]
    pictures: Annotated[dict[str, list[str]], "left, right: files in pictures/"]
    of: Annotated[str | None, "the pair that this one repeats"]
    expect: Annotated[str | None, "the better side of an attention item"]
    round: Annotated[int, "when the pair was added, from 1"]


class Vote(TypedDict):
    pair: Annotated[str, "its id"]
    kind: Annotated[Literal["vote", "repeat", "gold"], "of the pair"]
    of: Annotated[str | None, "of the pair"]
    expect: Annotated[str | None, "of the pair"]
    rater: Annotated[str, "an id, or the name in a file from elsewhere"]
    prompt: Annotated[str, "its id"]
    left: Annotated[str, "the model on this side"]
    right: Annotated[str, "the model on this side"]
    choice: Annotated[Literal["left", "right", "tie", "bad"], "the answer"]
    dimensions: Annotated[dict[str, str], "choices for single dimensions"]
    tags: Annotated[list[str], "what the rater ticked"]
    seconds: Annotated[float, "until the answer"]
    seen: Annotated[bool, "all slides of both were looked at"]
    source: Annotated[Literal["web", "ballot", "outside"], "where the vote was cast"]
    order: Annotated[int, "its place in the rater's queue"]
    at: Annotated[str, "ISO 8601 in UTC"]


class Ballot(TypedDict):
    ballot: Annotated[int, "version of the form"]
    payload: Annotated[str, "JSON: {study, rater, at, answers: [{pair, key, ballot}], skipped}"]
    signature: Annotated[str, "HMAC-SHA256 of the payload under the key of that ballot"]
