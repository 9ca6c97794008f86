"""What every record holds: whose fault an error is, who made a value, the row of a prompt; and whether one is of its type.

What a stage adds is typed in records.py of the room that owns the stage, and whoever reads it
imports that type. Each field has its sentence; `make numbers` writes them into docs/records.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from functools import lru_cache, partial, reduce
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Union, get_args, get_origin

from annotated_types import MaxLen, Predicate
from typing_extensions import TypedDict, is_typeddict

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, SchemaValidator

Record = dict[str, Any]  # one line of JSONL
Numbers = dict[str, float]  # by name
Optionals = dict[str, float | None]  # by name, None where there is no number
Kind = Literal["model", "renderer", "judge", "infra"]  # whose fault it is


def prompt_of(record: Mapping[str, Any]) -> str:
    """The id of the prompt that a record answers: its own, or the one that this is a sample of."""
    of: str = _sample(record).get("of") or record["id"]
    return of


def sample_of(record: Mapping[str, Any]) -> int:
    """Which sample of its prompt a record is, from 0; 0 where there is only one."""
    k: int = _sample(record).get("k") or 0
    return k


def expanded(record: Record, samples: int) -> list[Record]:
    """A record as so many, which are asked apart: id~0, id~1 and on; itself where it is one."""
    if samples == 1:
        return [record]
    of = record["id"]
    return [
        {**record, "id": f"{of}~{k}", "gen": {"sample": {"of": of, "k": k}}} for k in range(samples)
    ]


def _sample(record: Mapping[str, Any]) -> Record:
    sample: Record = (record.get("gen") or {}).get("sample") or {}
    return sample


# --- common to every stage ------------------------------------------------------------------------


class By(TypedDict):
    tool: Annotated[str, "the script that made the value"]
    version: Annotated[str, "the version of decksmith"]
    image: Annotated[str, "the image it ran in, `host` without one"]
    inputs: Annotated[str | None, "fingerprint of everything the value depends on"]
    at: Annotated[str, "when it was begun, ISO 8601 in UTC"]
    took: Annotated[float, "seconds"]
    attempts: Annotated[NotRequired[int], "requests until there was a reply"]
    latency: Annotated[NotRequired[float], "seconds of the request that was answered (`gen`)"]
    response: Annotated[
        NotRequired[Record],
        "`id`, `model`, `created`, `system_fingerprint` as far as the endpoint says them (`gen`); no "
        "proof, but a provider can look them up",
    ]
    cached: Annotated[NotRequired[bool], "an earlier run had rendered the same deck (`render`)"]
    files: Annotated[NotRequired[str], "the file that was read in place of a reply (`gen`)"]
    sha256: Annotated[NotRequired[str], "of that file (`gen`)"]


Error = TypedDict(
    "Error",
    {
        "kind": Annotated[Kind, "whose fault it is"],
        "class": Annotated[str, "what failed, a word that is counted by", MaxLen(80)],
        "message": Annotated[str, "a sentence for people", MaxLen(4000)],
        "slide": Annotated[NotRequired[int | None], "from 1"],
        "line": Annotated[NotRequired[int | None], "of deck.md, from 1"],
        "retriable": Annotated[
            NotRequired[bool],
            "false: the endpoint refuses this request for good (a 400); it is not asked again",
        ],
        "status": Annotated[NotRequired[int], "the HTTP status that the endpoint gave"],
    },
)


class Failure(Error):
    """The decisive error of a record."""

    stage: Annotated[str, "the key that it stands under"]


class Row(TypedDict):
    """What every record has."""

    id: Annotated[str, "unique and stable"]


class Value(TypedDict, total=False):
    """What every stage's value may have."""

    error: Annotated[Error, "in place of the rest"]
    by: Annotated[By, "who made it"]


# --- the prompt's row -----------------------------------------------------------------------------


class Message(TypedDict):
    role: Annotated[Literal["system", "user", "assistant"], "who speaks"]
    content: Annotated[str, "the text"]
    reasoning_content: Annotated[NotRequired[str], "the thought before it (chat rows)"]


class Asks(TypedDict, total=False):
    domain: Annotated[str, "the field, which intervals are clustered by"]
    audience: Annotated[str, "who listens"]
    theme: Annotated[str, "a theme of assets/renderer/themes.json"]
    slides: Annotated[int, "how many; of a range the most"]
    fewest: Annotated[int, "how few will do, where a range was asked for"]
    language: Annotated[str, "ISO 639-1"]
    features: Annotated[
        list[str], "of `code mermaid katex table image two-cols quote clicks notes`"
    ]
    outline: Annotated[list[str], "headings, where the request gives them"]
    figures: Annotated[list[str], "digits that shall be shown, in place of all in the request"]


class ChecklistItem(TypedDict):
    id: Annotated[str, "unique in its row"]
    ask: Annotated[str, "a yes-or-no question about the finished deck"]
    match: Annotated[list[str], "its approximation in text: one slide contains every entry (below)"]


class Source(TypedDict):
    name: Annotated[str, "the document's file, as it is quoted"]
    sha256: Annotated[str, "of the file"]
    pages: Annotated[int, "how many it has"]
    shown: Annotated[int, "how many of them are quoted, the last maybe in part"]
    cut: Annotated[bool, "the rest is left out"]


class Turn(TypedDict):
    of: Annotated[str, "the id of the prompt, which is also that of its first turn"]
    n: Annotated[int, "which turn, from 1"]
    keeps: Annotated[
        NotRequired[Record],
        "what should not change of the deck before: {`slides`: numbers} or {`except`: numbers}",
    ]


class Edit(TypedDict):
    kind: Annotated[str, "one of the twelve of docs/edit.md"]
    level: Annotated[int, "how hard, 1 to 3"]
    deck: Annotated[str, "the file of the deck before, seen from the checkout"]
    before: Annotated[str, "its markdown"]
    imported: Annotated[NotRequired[str], "of a .pptx: the deck before as deck-import keeps it"]
    slides: Annotated[int, "how many slides the deck after it should have"]
    may: Annotated[
        Record, "what may change, by the slide's number, `*` for every one (docs/edit.md)"
    ]
    checks: Annotated[list[Record], "what must hold of the deck after it (docs/edit.md)"]


class PromptRow(TypedDict):
    id: Annotated[
        str,
        "unique and stable; letters, digits, `.`, `_`, `~`, `-`; names the record's folder in the run",
    ]
    sets: Annotated[
        list[str],
        "the subsets it belongs to: `core` is the stable one, `wide` came later (docs/prompts.md)",
    ]
    messages: Annotated[
        list[Message],
        "what the model is asked; the last one of the assistant's is continued, and `gen.text` is what it added",
    ]
    prompt: Annotated[
        NotRequired[str], "in place of `messages`: a text that a base model goes on from"
    ]
    tools: Annotated[
        NotRequired[list[Record | str]],
        "functions that the model may call, in OpenAI's form; `python` among them is the built-in one",
    ]
    tool_code: Annotated[
        NotRequired[str],
        "Python source of these functions; it runs in the sandbox. Without it the first reply's calls are the answer",
    ]
    asks: Annotated[Asks, "what the request wants, as data"]
    checklist: Annotated[list[ChecklistItem], "what a good answer must show"]
    references: Annotated[
        NotRequired[list[str]],
        "for each item of the checklist, in its order, a sentence as it could stand in a deck that "
        "satisfies it; no model and no judge sees it, and a run's identity does not hold it",
    ]
    sources: Annotated[
        NotRequired[list[Source]], "the documents that the user's message quotes (prompts.md)"
    ]
    source: Annotated[NotRequired[Record], "where bench-prepare found the row"]
    edit: Annotated[
        NotRequired[Edit], "of a request to change a deck: the deck, and what must hold"
    ]
    turn: Annotated[
        NotRequired[Turn],
        "of a prompt of several turns: `messages` has all requests up to this one; the replies "
        "between them are put in when it is asked",
    ]


# --- whether a record holds what its type says ----------------------------------------------------

SHOWN = 80  # characters of a value that a sentence repeats
PLAIN = {str: "str", int: "int", float: "float", bool: "bool", Any: "any", object: "any"}


def check_record(record: Mapping[str, object], takes: type) -> None:
    """Hold a record against its TypedDict. Keys that it lacks or has besides are no fault. Raises
    ValueError naming the first key whose value is of another type."""
    keys = [key for key in takes.__annotations__ if key in record]
    for each in _misfits(record, takes, *keys) if keys else []:
        if each["type"] != "missing":
            raise ValueError(_said(each))


def misfit(value: object, takes: type, without: Collection[int | str] = ()) -> str | None:
    """A sentence on the first thing of a value of JSON that does not fit its type; None where all
    does. A key that it lacks does not, unless it is below one of `without`."""
    for each in _misfits(value, takes):
        if each["type"] != "missing" or not any(step in without for step in each["loc"][:-1]):
            return _said(each)
    return None


def cut(value: Any, takes: type) -> str | None:
    """Cut in place what is longer than the type of a value of JSON has it. Returns a sentence on
    the first, None where all fits. Raises ValueError on what no cut makes fit."""
    first = None
    while wrong := _misfits(value, takes):
        first = first or _said(wrong[0])
        for each in wrong:
            if not (most := each.get("ctx", {}).get("max_length")):
                raise ValueError(_said(each))
            *way, last = each["loc"]
            holder = reduce(lambda held, step: held[step], way, value)
            holder[last] = holder[last][:most]
    return first


def _misfits(value: object, takes: type, *keys: str) -> list["ErrorDetails"]:
    """With keys, of those of a TypedDict alone."""
    from pydantic_core import ValidationError  # no --help waits for it

    validator = _validator(takes, *keys)
    try:
        validator.validate_python(value)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


def _said(error: "ErrorDetails") -> str:
    place, said = ".".join(map(str, error["loc"]))[:SHOWN], error["msg"]
    return f"{place}: {said[:1].lower()}{said[1:]}, not {repr(error['input'])[:SHOWN]}"


@lru_cache(64)
def _validator(takes: type, *keys: str) -> "SchemaValidator":
    from pydantic_core import SchemaValidator

    schema = _schema(takes)
    schema["fields"] = {key: schema["fields"][key] for key in keys or schema["fields"]}
    return SchemaValidator(schema)


def _schema(kind: Any) -> Any:
    """What pydantic's TypeAdapter makes of a record's type, without pydantic: its import is half of
    a filter's start. Raises TypeError where records hold no such type yet."""
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if is_typeddict(kind):
        hints, needed = kind.__annotations__.items(), kind.__required_keys__
        fields = {key: {"schema": _schema(hint), "required": key in needed} for key, hint in hints}
        strict = {"strict": True}
        return {"type": "typed-dict", "cls": kind, "fields": fields, "config": strict}
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"type": "literal", "expected": list(args)}
    if origin in (Annotated, NotRequired):
        return reduce(_within, args[1:], _schema(args[0]))
    inner = [_schema(each) for each in args if each is not NoneType]
    if origin is list:
        return {"type": "list", "items_schema": inner[0]}
    if origin is tuple:  # in JSON it is a list
        return {"type": "tuple", "items_schema": inner, "strict": False}
    if origin is dict:
        return {"type": "dict", "keys_schema": inner[0], "values_schema": inner[1]}
    if origin in (Union, UnionType):
        made = inner[0] if len(inner) == 1 else {"type": "union", "choices": inner}
        return {"type": "nullable", "schema": made} if NoneType in args else made
    raise TypeError(kind)


def _within(schema: Any, note: Any) -> Any:
    """A schema within a bound of annotated_types; a field's sentence is none."""
    if isinstance(note, Predicate):
        held = {"type": "no-info", "function": partial(_held, note.func)}
        return {"type": "function-after", "function": held, "schema": schema}
    if not isinstance(note, str):
        bounds = {key: bound for key, bound in asdict(note).items() if bound is not None}
        schema.get("schema", schema).update(bounds)  # None itself has no bounds
    return schema


def _held(rule: Callable[[Any], object], value: Any) -> Any:
    if not rule(value):
        from pydantic_core import PydanticCustomError

        said = f"Predicate {getattr(rule, '__qualname__', rule)!r} failed"
        raise PydanticCustomError("predicate_failed", said)
    return value
