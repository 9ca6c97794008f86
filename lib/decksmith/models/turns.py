"""Prompts of several turns: a row for each turn, and the conversation in which the client asks them.

The row of turn n has the user's messages up to that turn. The replies between them are the model's own, so they stand in no
prompt: `Conversations` puts them in when the turn is asked.
"""

import asyncio
from collections.abc import Mapping
from typing import cast

from decksmith.core.records import Record
from decksmith.core.stream import Fault, fault
from decksmith.models.records import ChatMessage, ChatRequest, Gen


def expand(row: Record) -> list[Record]:
    """The rows of a prompt that may have `turns`; one without is alone. The first keeps the prompt's id, the others have it
    with .2, .3 ..; `asks` of a turn are those of the turn before with its own over them (null takes one away), and its
    checklist is its own. Raises ValueError for a turn without `request`."""
    turns = row.get("turns")
    if not turns:
        return [row]
    base = {key: value for key, value in row.items() if key != "turns"}
    rows = [{**base, "turn": {"of": row["id"], "n": 1}}]
    base.pop("references", None)
    for n, turn in enumerate(turns, 2):
        if not isinstance(turn, dict) or not isinstance(turn.get("request"), str):
            raise ValueError(f'{row["id"]}: turn {n} has no "request"')
        own = {key: value for key, value in turn.items() if key not in ("request", "keeps")}
        asks = rows[-1]["asks"] | (turn.get("asks") or {})
        keeps = {"keeps": turn["keeps"]} if "keeps" in turn else {}
        rows.append(
            {
                **base,
                "checklist": [],
                **own,
                "id": f"{row['id']}.{n}",
                "messages": [*rows[-1]["messages"], {"role": "user", "content": turn["request"]}],
                "asks": {key: value for key, value in asks.items() if value is not None},
                "turn": {"of": row["id"], "n": n, **keeps},
            }
        )
    return rows


def _table(value: object) -> Record:
    return value if isinstance(value, dict) else {}


def root(record: Mapping[str, object]) -> str:
    """The id of the prompt of which a record is a turn; its own where it is none."""
    return str(_table(record.get("turn")).get("of") or record["id"])


def before(record: Mapping[str, object]) -> list[str]:
    """The ids of the turns before a record, in their order; of a sample, the same sample's."""
    turn = _table(record.get("turn"))
    sample = _table(_table(record.get("gen")).get("sample")).get("k")
    end = "" if sample is None else f"~{sample}"
    return [f"{turn['of']}{f'.{n}' if n > 1 else ''}{end}" for n in range(1, turn.get("n", 1))]


def with_history(
    record: Mapping[str, object], values: Mapping[str, Mapping[str, object]]
) -> list[Record]:
    """The record's messages, with the replies to the turns before between its last ones. values: `gen` by id. As they stand
    where one of the replies is not there."""
    messages = cast(list[Record], record["messages"])
    earlier = before(record)
    said = [values[ident] for ident in earlier if ident in values]
    first = len(messages) - len(earlier)
    if len(said) < len(earlier) or any(value.get("text") is None for value in said):
        return messages
    found = messages[:first]
    for value, follow in zip(said, messages[first:], strict=True):
        found += [*_reply(value), follow]
    return found


def _reply(value: Mapping[str, object]) -> list[Record]:
    """A turn's reply as messages: with its calls of tools, unless the last of them got no result."""
    calls = cast(list[Record], value.get("calls") or [])
    if calls and calls[-1].get("tool_calls"):
        calls = []
    return [*calls[:-1], {"role": "assistant", "content": value["text"] or "(empty)"}]


class Conversations:
    """The replies that one run of the client has, for the turns that follow them. All turns of a prompt pass through the same
    stage in their order; a later one waits until the earlier have their replies, new or from the journal."""

    def __init__(self) -> None:
        self.ready: dict[str, asyncio.Event] = {}
        self.values: dict[str, Gen] = {}

    def expect(self, record: ChatRequest) -> None:
        """Call it for each record in their order. Raises ValueError where the turn before has not come."""
        if "turn" not in record:
            return
        if gone := [ident for ident in before(record) if ident not in self.ready]:
            raise ValueError(
                f"{record['id']}: a turn follows {gone[0]}, which is not before it in this input"
            )
        self.ready[record["id"]] = asyncio.Event()
        if failed := fault(record):  # it passes through and is not asked
            self.answered(record, {"error": failed})

    def answered(self, record: ChatRequest, value: Gen) -> None:
        """Call it with the value of `gen` of each record, asked now or kept."""
        if event := self.ready.get(record["id"]):
            self.values[record["id"]] = value
            event.set()

    async def messages(self, record: ChatRequest) -> list[ChatMessage]:
        """The record's messages, with the replies to the turns before where these were asked; none of a completion. Waits for
        them. Raises Fault where one of them failed: of the kind that it was."""
        if record["id"] not in self.ready:
            return record.get("messages", [])
        for ident in before(record):
            await self.ready[ident].wait()
            if error := self.values[ident].get("error"):
                said = f"{ident} has no reply to go on from: {error['message']}"
                raise Fault(error["kind"], "no-turn-before", said)
        return cast(list[ChatMessage], with_history(record, self.values))
