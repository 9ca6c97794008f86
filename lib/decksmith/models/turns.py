"""Prompts of several turns: a row for each turn, and the conversation in which the client asks them.

The row of turn n has the user's messages up to that turn. The replies between them are the model's own, so they stand in no
prompt: `Conversations` puts them in when the turn is asked.
"""

import asyncio
from collections.abc import Mapping

from decksmith.core.records import Record
from decksmith.core.stream import Fault, fault


def expand(row: Record) -> list[Record]:
    """The rows of a prompt that may have `turns`; one without is alone. The first keeps the prompt's id, the others have it
    with .2, .3 ..; `asks` of a turn are those of the turn before with its own over them (null takes one away), and its
    checklist is its own. Raises ValueError for a turn without `request`."""
    turns = row.get("turns")
    if not turns:
        return [row]
    base = {key: value for key, value in row.items() if key != "turns"}
    rows = [{**base, "turn": {"of": row["id"], "n": 1}}]
    for n, turn in enumerate(turns, 2):
        if not isinstance(turn, dict) or not isinstance(turn.get("request"), str):
            raise ValueError(f'{row["id"]}: turn {n} has no "request"')
        asks = rows[-1]["asks"] | (turn.get("asks") or {})
        own = {key: value for key, value in turn.items() if key not in ("request", "keeps")}
        said = {"role": "user", "content": turn["request"]}
        made = {
            **{key: value for key, value in base.items() if key != "references"},
            "checklist": [],
            **own,
            "id": f"{row['id']}.{n}",
            "messages": [*rows[-1]["messages"], said],
            "asks": {key: value for key, value in asks.items() if value is not None},
            "turn": {"of": row["id"], "n": n},
        }
        if "keeps" in turn:
            made["turn"]["keeps"] = turn["keeps"]
        rows.append(made)
    return rows


def root(record: Record) -> str:
    """The id of the prompt of which a record is a turn; its own where it is none."""
    of: str = (record.get("turn") or {}).get("of") or record["id"]
    return of


def before(record: Record) -> list[str]:
    """The ids of the turns before a record, in their order; of a sample, the same sample's."""
    turn = record.get("turn") or {}
    sample = ((record.get("gen") or {}).get("sample") or {}).get("k")
    end = "" if sample is None else f"~{sample}"
    return [f"{turn['of']}{f'.{n}' if n > 1 else ''}{end}" for n in range(1, turn.get("n", 1))]


def woven(record: Record, values: Mapping[str, Record]) -> list[Record]:
    """The record's messages, with the replies to the turns before between its last ones. values: `gen` by id. As they stand
    where one of the replies is not there."""
    messages: list[Record] = record["messages"]
    said = [values[ident] for ident in before(record) if ident in values]
    first = len(messages) - len(before(record))
    if len(said) < len(before(record)) or any(value.get("text") is None for value in said):
        return messages
    found = messages[:first]
    for value, follow in zip(said, messages[first:], strict=True):
        found += [*_reply(value), follow]
    return found


def _reply(value: Record) -> list[Record]:
    """A turn's reply as messages: with its calls of tools, unless the last of them got no result."""
    calls: list[Record] = value.get("calls") or []
    if calls and calls[-1].get("tool_calls"):
        calls = []
    return [*calls[:-1], {"role": "assistant", "content": value["text"] or "(empty)"}]


class Conversations:
    """The replies that one run of the client has, for the turns that follow them. All turns of a prompt pass through the same
    stage in their order; a later one waits until the earlier have their replies, new or from the journal."""

    def __init__(self) -> None:
        self.ready: dict[str, asyncio.Event] = {}
        self.values: dict[str, Record] = {}

    def expect(self, record: Record) -> None:
        """Call it for each record in their order. Raises ValueError where the turn before has not come."""
        if "turn" not in record:
            return
        if gone := [ident for ident in before(record) if ident not in self.ready]:
            raise ValueError(
                f"{record['id']}: a turn follows {gone[0]}, which is not before it in this input"
            )
        self.ready[record["id"]] = asyncio.Event()
        if failed := fault(record):  # it passes through and is not asked
            self.heard(record, {"error": failed})

    def heard(self, record: Record, value: Record) -> None:
        """Call it with the value of `gen` of each record, asked now or kept."""
        if event := self.ready.get(record["id"]):
            self.values[record["id"]] = value
            event.set()

    async def messages(self, record: Record) -> list[Record]:
        """The record's messages, with the replies to the turns before where these were asked. Waits for them. Raises Fault where
        one of them failed: of the kind that it was."""
        for ident in before(record):
            await self.ready[ident].wait()
            value = self.values[ident]
            if error := value.get("error"):
                raise Fault(
                    error["kind"],
                    "no-turn-before",
                    f"{ident} has no reply to go on from: {error['message']}",
                )
        return woven(record, self.values)
