"""What the pages may send, as models of core/validation.py."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from decksmith.core import validation
from decksmith.people.study.records import Choice

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

KEY_RULE = "a name of 8 to 64 characters that the client makes, another for each thing it asks"
Key = Annotated[str, Field(pattern=r"^[\x20-\x7e]{8,64}$", description=KEY_RULE)]
SideOrTie = Literal["left", "right", "tie"]
Dimension = Literal["content", "design", "coherence"]
Tag = Literal["request", "substance", "facts", "thread", "readable", "looks", "pictures", "broken"]


class Ballot(validation.Body):
    """What a person says of a pair, with all its keys in one order: equal ballots are equal as
    text."""

    choice: Choice = Field(description=f"one of {', '.join(CHOICES)}")
    dimensions: dict[Dimension, SideOrTie] = Field(
        default={}, description=f"for {', '.join(DIMENSIONS)} left, right or tie"
    )
    tags: list[Tag] = Field(default=[], description=f"of {', '.join(TAGS)}")
    seconds: float = Field(
        ge=0, le=LONGEST_VIEW, description=f"the time in view in seconds, from 0 to {LONGEST_VIEW}"
    )
    seen: bool = Field(description="true or false")

    @field_validator("dimensions", "tags", mode="before")
    @classmethod
    def _nothing_said(cls, value: object, info: ValidationInfo) -> object:
        """JSON's null is as good as the key left out."""
        return cls.model_fields[str(info.field_name)].default if value is None else value

    @field_validator("dimensions")
    @classmethod
    def _in_order(cls, said: dict[str, str]) -> dict[str, str]:
        return {name: said[name] for name in DIMENSIONS if name in said}

    @field_validator("tags")
    @classmethod
    def _once_in_order(cls, said: list[str]) -> list[str]:
        return [tag for tag in TAGS if tag in said]

    @field_validator("seconds")
    @classmethod
    def _tenths(cls, seconds: float) -> float:
        return round(seconds, 1)

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
