"""What stands in the files of a study and of its tally."""

from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

PairKind = Literal["vote", "repeat", "gold"]
Choice = Literal["left", "right", "tie", "bad"]
Measures = dict[str, float | None]  # what a judge gave a deck, by measure
DeckKey = tuple[str, str, int]  # run, prompt and sample
Scores = dict[DeckKey, Measures]


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
