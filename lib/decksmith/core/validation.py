"""What a request to one of our servers may say: a pydantic model, and one sentence for whoever
sent something else.

A field's `description` is what should have been sent; the sentence names the field, what came, and
the description.
"""

from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from decksmith.core import cli, incoming, records

# What should have been sent where no field says it: in a list, or an object of any names.
WORDS = {"string_type": "text", "is_instance_of": "text"}
UNKNOWN = "extra_forbidden"


class Body(BaseModel):
    """The JSON object of a request. No other keys; no text for a number, and no truth value. 1.0
    is a whole number."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value


Kind = TypeVar("Kind", bound=Body)


def sentence(text: str) -> PydanticCustomError:
    """What a validator raises whose message says all: no field is named before it."""
    return PydanticCustomError("sentence", "{text}", {"text": text})


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object that a request brings; an empty body is an empty object. Raises
    cli.BadData."""
    try:
        found = incoming.parsed(body or b"{}")
    except ValueError:
        raise cli.BadData("the body is no JSON") from None
    if not isinstance(found, dict):
        raise cli.BadData("the body is no JSON object")
    return found


def check(model: type[Kind], data: dict[str, Any], context: dict[str, Any] | None = None) -> Kind:
    """`data` as `model` has it; `context` is for its validators. Raises cli.BadData with a
    sentence on the first thing that is wrong, unknown keys before all else."""
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        found = error.errors(include_url=False)
    unknown = [each for each in found if each["type"] == UNKNOWN]
    raise cli.BadData(_sentence(model, unknown or found, data))


def problems(model: type[Body], data: dict[str, Any]) -> list[tuple[tuple[int | str, ...], str]]:
    """Everything that is wrong with `data`: its place, and the sentence on it."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        return [(each["loc"], _sentence(model, [each], data)) for each in found]
    return []


def read(model: type[Kind], body: bytes, context: dict[str, Any] | None = None) -> Kind:
    """The body of a request as `model` has it, as of `check`. Raises cli.BadData."""
    return check(model, parse(body), context)


def _sentence(model: type[Body], errors: list[ErrorDetails], data: object) -> str:
    """What is said of the first of these errors; of unknown keys, all those of the same object."""
    error, place = errors[0], errors[0]["loc"]
    owner, field = _field_at(model, place)
    if error["type"] == UNKNOWN:
        names = sorted(str(each["loc"][-1]) for each in errors if each["loc"][:-1] == place[:-1])
        named, known = ", ".join(map(repr, names))[:200], ", ".join(_fields(owner))
        return f"{_path(place[:-1], data)}unknown key {named}; there are: {known}"
    if error["type"] == "sentence":
        return error["msg"]
    wanted = field.description if field else WORDS.get(error["type"])
    path = _path(place, data).removesuffix(": ") or "the body"
    if error["type"] == "missing":
        return f"{path} is missing" + (f": {wanted}" if wanted else "")
    if error["type"] == "value_error":
        return f"{path}: {error['ctx']['error']}"
    return (
        f"{path}: {str(error['input'])[: records.SHOWN]!r} is not {wanted}"
        if wanted
        else f"{path}: {error['msg']}"
    )


def _path(place: tuple[int | str, ...], data: Any) -> str:
    """The way to a value, as `defaults: top_k: `; an entry of a list goes by its name, where it
    has one."""
    words: list[str] = []
    for step in place:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            data = None
        named = isinstance(step, int) and isinstance(data, dict) and data.get("name")
        if named and words:
            words.pop()
        words.append(str(named or step)[: records.SHOWN])
    return "".join(f"{word}: " for word in words)


def _fields(model: type[Body] | None) -> dict[str, FieldInfo]:
    """The fields of a model by the names that a request gives them."""
    known = model.model_fields if model else {}
    return {field.alias or name: field for name, field in known.items()}


def _field_at(
    model: type[Body], place: tuple[int | str, ...]
) -> tuple[type[Body] | None, FieldInfo | None]:
    """The model and the field that an error's place names; None inside of a list or an object that
    has no model."""
    owner: type[Body] | None = model
    for step in place[:-1]:
        if owner is not None and isinstance(step, str):
            field = _fields(owner).get(step)
            owner = _model_in(field.annotation) if field else None
    return owner, _fields(owner).get(str(place[-1])) if place else None


def _model_in(annotation: Any) -> type[Body] | None:
    """The model in an annotation such as `list[Benchmark] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Body):
        return annotation
    inside = (_model_in(each) for each in get_args(annotation))
    return next((each for each in inside if each), None)
