"""How a row of somebody's training data names its prompt: its own fields, or the id of a prompt
that the server knows. And the other way round: prompts as rows of somebody else's environment."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from decksmith.core import cli, incoming, stream
from decksmith.core.records import Asks, ChecklistItem, Edit, Message, Record
from decksmith.measure.judging import prompt_rows
from decksmith.measure.judging.records import Reward
from decksmith.train.corpus import chat_rows

# Of a prompt, all that are looked at.
FIELDS = ("id", "request", "messages", "asks", "checklist", "edit")
NESTED = ("messages", "asks", "checklist", "edit")
HOW = (
    "give asks or checklist, or the id of a prompt that reward-serve was started with (--prompts): "
    "docs/reward-server.md"
)
REPLY = 400_000  # characters of a reply

Row = dict[str, Any]  # an object that somebody sends, checked key by key


class Prompt(TypedDict):
    """What a reply is an answer to."""

    id: str
    messages: list[Message]
    asks: Asks
    checklist: list[ChecklistItem]
    edit: NotRequired[Edit]


class RewardAnswer(Reward, total=False):
    """What the server says of a reply; `cause` where it is masked."""

    cause: str


def masked(cause: str, why: str) -> RewardAnswer:
    """The answer for a deck that no reward can be said of, through no fault of the model's."""
    return {"reward": None, "components": {}, "masked": True, "why": why, "cause": cause}


class Rows:
    """The prompts that a server knows, by id: the rows of a file like data/prompts.jsonl. Raises
    cli.BadData."""

    def __init__(self, path: Path | None) -> None:
        self.known: dict[str, Prompt] = {}
        for number, row in stream.records(path) if path else ():
            try:
                self.known[row["id"]] = _prompt(row)
            except ValueError as error:
                name = str(path).removeprefix("/dev/")  # as stream.records calls it
                raise cli.BadData(f"{name}:{number}: {error}") from None

    def prompt(self, row: Row, asked: object = None) -> Prompt:
        """The prompt that a row names: by its own fields, by those of an object (or its JSON) in
        `label`, or by an id in either place. `asked` is what the model was asked, text or
        messages: the request of a row that has none. Raises cli.BadData with a sentence."""
        label = row.get("label")
        if isinstance(label, str):
            found = _parsed(label)
            label = found if isinstance(found, dict) else {"id": label}
        fields = {**_fields(row), **_fields(label if isinstance(label, dict) else {})}
        if not any(fields.get(name) for name in ("asks", "checklist", "edit")):
            if known := self.known.get(str(fields.get("id"))):
                return known
            named = "the row names no prompt"
            if "id" in fields:
                named = f"no prompt {str(fields['id'])[:80]!r} here"
            raise cli.BadData(f"{named}; {HOW}")
        if not fields.get("request") and not fields.get("messages"):
            if isinstance(asked, str):
                fields["request"] = asked
            elif isinstance(asked, list):
                fields["messages"] = list(_messages(asked))
        try:
            return _prompt(fields)
        except ValueError as error:
            raise cli.BadData(str(error)) from None


def _parsed(text: str) -> object:
    """The JSON in a text, or else the text."""
    try:
        return incoming.parsed(text)
    except ValueError:
        return text


def _fields(row: Row) -> Row:
    """Those of FIELDS that a row has. Where something nested is wanted its JSON will do: some
    tables hold nothing deeper than text."""
    found: Row = {}
    for name in FIELDS:
        value = row.get(name)
        if isinstance(value, str) and name in NESTED:
            value = _parsed(value)  # what it is not, the schema says
        if value is not None:
            found[name] = _without_nulls(value)
    return found


def _without_nulls(value: object) -> object:
    """A table of columns has a null for each key that another row has."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value if each is not None]
    return value


def _messages(asked: Iterable[object]) -> Iterator[Message]:
    """Messages of a chat, or input items of OpenAI's Responses, as role and text."""
    roles: dict[str, Literal["user", "system"]]
    roles = {"system": "system", "developer": "system", "user": "user"}
    for message in asked:
        if isinstance(message, dict):
            role, text = roles.get(str(message.get("role"))), spoken(message.get("content"))
            if role and text:
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


def _prompt(fields: Row) -> Prompt:
    """A checked prompt of fields; its asks are those that are given, as in data/prompts.jsonl.
    Raises ValueError with a sentence."""
    messages, ident = fields.get("messages"), fields.get("id")
    if not messages and isinstance(fields.get("request"), str):
        messages = [{"role": "user", "content": fields["request"]}]
    if not messages:
        raise ValueError("no request and no messages in this row")
    made = {
        "id": ident if isinstance(ident, str) and stream.ID.match(ident) else "row",
        "messages": messages,
        "asks": fields.get("asks") or {},
        "checklist": fields.get("checklist") or [],
        **({"edit": fields["edit"]} if fields.get("edit") else {}),
    }
    prompt_rows.valid({**made, "sets": []})
    return cast(Prompt, made)


# Prompts as an environment of somebody else's library: files of its own that ask a reward server

ENVIRONMENTS = cli.ROOT / "assets/environments"
# Of each kind: where its folder has the client, and the prompts.
PLACES = {
    "verifiers": ("decksmith_decks", "decksmith_decks/prompts.jsonl"),
    "nemo-gym": ("resources_servers/decksmith", "resources_servers/decksmith/data/train.jsonl"),
}
EVALUATION = cli.ROOT / "data/prompts.jsonl"


def export(kind: str, folder: Path) -> tuple[int, int]:
    """Write an environment of the prompts on stdin into a new folder; returns how many there are,
    and how many of them EVALUATION asks too. `kind`: of PLACES. Raises cli.BadData for prompts
    that cannot be used, cli.Missing for a folder that is there."""
    if folder.exists():
        raise cli.Missing(f"{folder} is there already; remove it, or give another --out")
    prompts = Rows(Path("/dev/stdin")).known.values()
    if not prompts:
        raise cli.BadData("stdin: no prompt in it")
    fresh = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(ENVIRONMENTS / kind, fresh, ignore=shutil.ignore_patterns("__pycache__"))
    place, data = PLACES[kind]
    client = Path(__file__).with_name("reward_client.py")
    shutil.copy(client, fresh / place / "decksmith_reward.py")
    records = cast(list[Record], list(prompts))
    rows = records if kind == "verifiers" else map(chat_rows.gym_row, records)
    stream.write(fresh / data, b"".join(stream.dumps(row) + b"\n" for row in rows))
    fresh.rename(folder)
    evaluated = {_asked(row["messages"]) for _, row in stream.records(EVALUATION)}
    return len(prompts), sum(_asked(row["messages"]) in evaluated for row in prompts)


def _asked(messages: list[Message]) -> tuple[str, ...]:
    """What a prompt's user says."""
    return tuple(message["content"] for message in messages if message["role"] == "user")
