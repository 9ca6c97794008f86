"""How a row of somebody's training data names its prompt: its own fields, or the id of a prompt that the server knows."""

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.judging import own_prompts

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

FIELDS = ("id", "request", "messages", "asks", "checklist")  # of a prompt, all that are looked at
HOW = "give asks or checklist, or the id of a prompt that reward-serve was started with (--prompts): docs/reward-server.md"
REPLY = 400_000  # characters of a reply


class Rows:
    """The prompts that a server knows, by id: the rows of a file like data/prompts.jsonl. Raises cli.BadData."""

    def __init__(self, path: Path | None) -> None:
        self.known: dict[str, Record] = {}
        for number, row in stream.records(path) if path else ():
            try:
                self.known[row["id"]] = _prompt(row)
            except ValueError as error:
                raise cli.BadData(f"{path}:{number}: {error}") from None

    def prompt(self, row: Record, asked: object = None) -> Record:
        """The prompt that a row names, as {id, messages, asks, checklist}: by its own fields, by those of an object (or its
        JSON) in `label`, or by an id in either place. `asked` is what the model was asked, text or messages: the request of
        a row that has none. Raises cli.BadData with a sentence."""
        label = _label(row.get("label"))
        fields = {name: _said(row[name]) for name in FIELDS if row.get(name) is not None}
        fields |= {name: _said(label[name]) for name in FIELDS if label.get(name) is not None}
        if not fields.get("asks") and not fields.get("checklist"):
            if found := self.known.get(str(fields.get("id"))):
                return found
            named = (
                f"no prompt {str(fields['id'])[:80]!r} here"
                if "id" in fields
                else "the row names no prompt"
            )
            raise cli.BadData(f"{named}; {HOW}")
        if not fields.get("request") and not fields.get("messages"):
            fields |= _request(asked)
        try:
            return _prompt(fields)
        except ValueError as error:
            raise cli.BadData(str(error)) from None


def _label(label: object) -> Record:
    """What stands in `label`: an object, the JSON of one, or an id."""
    if isinstance(label, str):
        try:
            found = json.loads(label)
        except (ValueError, RecursionError):
            found = None
        label = found if isinstance(found, dict) else {"id": label}
    return label if isinstance(label, dict) else {}


def _said(value: Any) -> Any:
    """A value without its nulls: a table of columns has one for each key that another row has. Text that is the JSON of an
    object or a list is that, since some tables hold nothing deeper than text."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if isinstance(value, dict):
        return {name: _said(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_said(each) for each in value if each is not None]
    return value


def _request(asked: object) -> Record:
    if isinstance(asked, str):
        return {"request": asked}
    if isinstance(asked, list):
        return {"messages": list(_messages(asked))}
    return {}


def _messages(asked: Iterable[object]) -> Iterable[Record]:
    """Messages of a chat, or input items of OpenAI's Responses, as role and text."""
    for message in asked:
        if not isinstance(message, dict) or message.get("role") not in (
            "system",
            "developer",
            "user",
        ):
            continue
        role = "user" if message["role"] == "user" else "system"
        if text := spoken(message.get("content")):
            yield {"role": role, "content": text}


def spoken(content: object) -> str:
    """The text of a message's content, which may come in parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(
        part["text"]
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


@functools.cache
def _schema() -> "Draft202012Validator":
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads((cli.ROOT / "assets/schemas/prompt.json").read_text()))


def _prompt(fields: Record) -> Record:
    """A checked prompt of fields; its asks are those that are given, as in data/prompts.jsonl. Raises ValueError with a
    sentence."""
    messages = fields.get("messages")
    if not messages and isinstance(fields.get("request"), str):
        messages = [{"role": "user", "content": fields["request"]}]
    if not messages:
        raise ValueError("no request and no messages in this row")
    ident = fields.get("id")
    made = {
        "id": ident if isinstance(ident, str) and stream.ID.match(ident) else "row",
        "messages": messages,
        "asks": fields.get("asks") or {},
        "checklist": fields.get("checklist") or [],
    }
    own_prompts.valid(_schema(), {**made, "sets": []})
    return made
