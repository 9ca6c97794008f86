"""What stands in the files of a study and of its tally, and what the pages may send (models of
core/validation.py)."""

from typing import Annotated, Literal, NotRequired

from pydantic import Field, field_validator
from typing_extensions import TypedDict

from decksmith.core import validation

PairKind = Literal["vote", "repeat", "gold"]
Choice = Literal["left", "right", "tie", "bad"]
SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
Measures = dict[str, float | None]  # what a judge gave a deck, by measure
DeckKey = tuple[str, str, int]  # run, prompt and sample
Scores = dict[DeckKey, Measures]

CHOICES = {
    "left": "Left is better",
    "right": "Right is better",
    "tie": "About the same",
    "bad": "Both are bad",
}
DIMENSIONS = {"content": "Content", "design": "Design", "coherence": "Coherence"}
TAGS = {
    "request": "Follows the request",
    "substance": "Says more",
    "facts": "Gets facts right",
    "thread": "Has a clear thread",
    "readable": "Easier to read",
    "looks": "Looks better",
    "pictures": "Better pictures or charts",
    "broken": "The other is cut off or broken",
}
LONGEST_VIEW = 86_400  # seconds that two decks can be in view: a day


# Files of a study


class StudyRun(TypedDict):
    name: str  # of the model
    label: str  # how the tally names it
    path: str  # the run's folder


class StudyAbout(TypedDict):
    title: str  # what people see as the study's name
    question: str  # what they are asked of each pair
    seed: int | None  # of prompts, sides and samples; null where votes were imported
    raters_per_pair: int  # how many people are to see a pair
    per_rater: int  # how many pairs a person is given
    runs: list[StudyRun]  # whose decks are compared
    # Of a study of imported votes, the names of their files.
    imported: NotRequired[list[str]]


class PairSide(TypedDict):
    model: Annotated[str, "who wrote the deck"]
    run: Annotated[str, "the run's folder"]
    sample: Annotated[int, "which sample"]
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


def preferred(vote: Vote) -> str | None:
    """The model whose deck a vote prefers, or None."""
    choice = vote["choice"]
    return vote[choice] if choice == "left" or choice == "right" else None


class Rater(TypedDict):
    id: str  # a keyed hash of the name, or the name in an imported file
    name: str  # as the person gave it
    # A chosen name, the owner's invitation, or a file.
    source: Literal["handle", "link", "imported"]
    at: str  # when the name was added, ISO 8601 in UTC
    network: str | None  # a keyed hash of where a name was chosen; null of all others
    given: int  # pairs in the queue
    votes: int  # cast
    skipped: int  # pairs passed over
    last: str | None  # time of the last vote


# What the pages may send

KEY_RULE = "a name of 8 to 64 characters that the client makes, another for each thing it asks"
Key = Annotated[str, Field(pattern=r"^[\x20-\x7e]{8,64}$", description=KEY_RULE)]
SideOrTie = Literal["left", "right", "tie"]
Dimension = Literal["content", "design", "coherence"]
Tag = Literal["request", "substance", "facts", "thread", "readable", "looks", "pictures", "broken"]


class Ballot(validation.Body):
    """What a person says of a pair."""

    choice: Choice = Field(description=f"one of {', '.join(CHOICES)}")
    dimensions: dict[Dimension, SideOrTie] = Field(
        default={}, description=f"for {', '.join(DIMENSIONS)} left, right or tie"
    )
    tags: list[Tag] = Field(default=[], description=f"of {', '.join(TAGS)}")
    seconds: float = Field(
        ge=0, le=LONGEST_VIEW, description=f"the time in view in seconds, from 0 to {LONGEST_VIEW}"
    )
    seen: bool = Field(description="true or false")

    @field_validator("seen")
    @classmethod
    def _shown(cls, seen: bool) -> bool:
        if not seen:
            raise validation.sentence(
                "seen is not true: a vote counts when every slide of both decks was shown"
            )
        return seen


class Join(validation.Body):
    """Somebody chooses a name (POST /join)."""

    name: str = Field(description="a name of 1 to 40 characters")


class PairRequest(validation.Body):
    """A rater passes over a pair, or takes back what was said of it (POST skip, undo)."""

    pair: str = Field(description="the id of a pair")
    key: Key


class VoteRequest(PairRequest):
    """A rater's ballot on a pair (POST vote)."""

    ballot: Ballot = Field(description="an object")


class Invitation(validation.Body):
    """The owner asks for links (POST /owner/../raters)."""

    names: list[str] = Field(default=[], max_length=500, description="a list of at most 500 names")
