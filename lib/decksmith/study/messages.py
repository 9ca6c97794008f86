"""What pages and ballots may send: pydantic models, and one sentence for whoever sends something
else.

A field's `description` is the whole sentence that is said where its value is wrong.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from decksmith.core import cli

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

KEY_RULE = (
    "key is a name of 8 to 64 characters that the client makes, another for each thing it asks"
)
Key = Annotated[str, Field(pattern=r"^[\x20-\x7e]{8,64}$", description=KEY_RULE)]
Choice = Literal["left", "right", "tie", "bad"]
Side = Literal["left", "right", "tie"]
Dimension = Literal["content", "design", "coherence"]
Tag = Literal["request", "substance", "facts", "thread", "readable", "looks", "pictures", "broken"]


class Message(BaseModel):
    """A JSON object with these keys and no others. Values have exactly these types: 1 is no true."""

    model_config = ConfigDict(extra="forbid", strict=True)


Kind = TypeVar("Kind", bound=Message)


class Ballot(Message):
    """What a person says of a pair, with all its keys in one order: equal ballots are equal as
    text."""

    choice: Choice = Field(description=f"choice is one of {', '.join(CHOICES)}")
    dimensions: dict[Dimension, Side] = Field(
        default={}, description=f"dimensions has for {', '.join(DIMENSIONS)} left, right or tie"
    )
    tags: list[Tag] = Field(default=[], description=f"tags are of {', '.join(TAGS)}")
    seconds: float = Field(
        ge=0, le=LONGEST_VIEW, description=f"seconds is the time in view, from 0 to {LONGEST_VIEW}"
    )
    seen: bool = Field(
        description="seen is not true: a vote counts when every slide of both decks was shown"
    )

    @field_validator("dimensions", "tags", mode="before")
    @classmethod
    def _nothing_said(cls, value: Any, info: Any) -> Any:
        """JSON's null is as good as the key left out."""
        return cls.model_fields[info.field_name].default if value is None else value

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
            raise ValueError
        return seen


class Join(Message):
    """Somebody chooses a name (POST /join)."""

    name: str = Field(description="a name has 1 to 40 characters")


class OnePair(Message):
    """A rater passes over a pair, or takes back what was said of it (POST skip, undo)."""

    pair: str
    key: Key


class Vote(OnePair):
    """A rater's ballot on a pair (POST vote; in a file of answers)."""

    ballot: Ballot = Field(description="a ballot is an object")


Pair = TypeVar("Pair", bound=OnePair)


class Invitation(Message):
    """The owner asks for links (POST /owner/../raters)."""

    names: list[str] = Field(
        default=[], max_length=500, description="names is a list of at most 500 names"
    )


def read(kind: type[Kind], body: bytes) -> Kind:
    """The JSON object that a request brings; an empty body is an empty object. Raises cli.BadData."""
    try:
        return kind.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise cli.BadData(sentence(kind, error)) from None


def checked(ballot: Any) -> dict[str, Any]:
    """`ballot` with all its keys (Ballot). Raises cli.BadData, whose sentence says what is wrong."""
    try:
        return Ballot.model_validate(ballot).model_dump()
    except ValidationError as error:
        raise cli.BadData(sentence(Ballot, error)) from None


_KEY: TypeAdapter[str] = TypeAdapter(Key, config=ConfigDict(strict=True))


def check_key(key: Any) -> None:
    """Raises cli.BadData for what is no Key."""
    try:
        _KEY.validate_python(key)
    except ValidationError:
        raise cli.BadData(KEY_RULE) from None


def sentence(kind: type[Message], error: ValidationError) -> str:
    """What is wrong, in one sentence; of several things unknown keys, else the first."""
    found = error.errors(include_url=False)
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    place = [step for step in first["loc"] if isinstance(step, str)]
    if first["type"] == "json_invalid":
        return f"the body is no JSON: {first['ctx']['error']}"
    if not place:
        return "a ballot is an object" if kind is Ballot else "the body is no JSON object"
    owner: type[BaseModel] = Ballot if place[0] == "ballot" and len(place) > 1 else kind
    if first["type"] == "extra_forbidden":
        return f"unknown key {place[-1][:40]!r}; there are: {', '.join(owner.model_fields)}"
    name = place[1] if owner is not kind else place[0]
    if wanted := owner.model_fields[name].description:
        return wanted
    return f"{name}: {'which one?' if first['type'] == 'missing' else 'not of the right type'}"
