"""Loops: a conversation that grows by calls, of the model and of its tools, until the model answers without one.

There is one mechanism. A call that ended is journaled at once, under the record's id and the sha256 of all that it depends on, the
conversation so far among it. A process killed at any moment goes through the same conversation again, and what stands in the
journal is neither asked nor run again.
"""

import asyncio
import dataclasses
import json
import keyword
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from decksmith.core.records import Record
from decksmith.core.stream import Journal, dumps, fault, fingerprint
from decksmith.models.client import Client
from decksmith.models.replies import Reply
from decksmith.models.toolserver import ToolServer

Cells = Sequence[tuple[str, str]]  # programs of `python` in one loop, and what the model was told
# Runs a tool: (source of the functions, name, arguments, seconds it may take, earlier programs) ->
# what the model is told.
Use = Callable[[str, str, Record, float, Cells], str]

AT_ONCE = 16  # calls of tools that one reply may make
PYTHON: Record = {
    "type": "function",
    "function": {
        "name": "python",
        "description": "Runs Python code and returns what it prints, and the value of a last expression. "
        "Variables, functions and imports are kept from one call to the next.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "the code"}},
            "required": ["code"],
        },
    },
}


@dataclasses.dataclass(frozen=True)
class Limits:
    """Of one loop. calls: how often the model is asked; seconds: of a tool's call; letters: of its result."""

    calls: int = 10
    seconds: float = 10.0
    letters: int = 10_000


def offered(record: Record, more: Sequence[Record] = ()) -> list[Record]:
    """The tools of a record in OpenAI's form, "python" among them the built-in one, and `more`, less
    those that are called as one of the record's."""
    own = [PYTHON if tool == "python" else tool for tool in record.get("tools") or ()]
    taken = {tool["function"]["name"] for tool in own}
    return own + [tool for tool in more if tool["function"]["name"] not in taken]


def names(record: Record) -> list[str]:
    """What a record's tools are called, in their order."""
    return [tool["function"]["name"] for tool in offered(record)]


def check(record: Record) -> None:
    """Raise ValueError for a record that cannot be asked: without messages or prompt, or with tools of another form."""
    ident = record["id"]
    if fault(record):
        return
    if not isinstance(record.get("messages"), list) and not isinstance(record.get("prompt"), str):
        raise ValueError(
            f'{ident}: no "messages" in this record; an earlier stage writes it (docs/records.md)'
        )
    if "tools" not in record:
        return
    if "messages" not in record:
        raise ValueError(f"{ident}: tools need messages; a completion (prompt) calls none")
    try:
        known = names(record)
        fitting = all(name.isidentifier() for name in known)
    except (TypeError, KeyError, AttributeError):
        fitting = False
    if not fitting:
        raise ValueError(
            f'{ident}: tools is a list of "python" and of {{"type": "function", "function": {{"name", ..}}}}, '
            "where each name is one of Python's"
        )
    if any(keyword.iskeyword(name) for name in known) or "python" in [
        tool["function"]["name"] for tool in record["tools"] if tool != "python"
    ]:
        raise ValueError(
            f'{ident}: a function of the row is called like a keyword of Python, or "python", which is the built-in tool'
        )
    if set(known) - {"python"} and not isinstance(record.get("tool_code"), str):
        raise ValueError(f"{ident}: tools without tool_code, the Python source of these functions")


class Loops:
    """The loops of one run. `use` runs a tool; with `run` each call is kept in
    run/journal/calls.jsonl; `by` is what else a reply depends on, such as the weights that answer;
    `server` has tools for every record."""

    def __init__(
        self,
        client: Client,
        use: Use,
        run: str | Path | None = None,
        limits: Limits | None = None,
        by: Any = None,
        server: ToolServer | None = None,
    ) -> None:
        self.client, self.use, self.limits, self.by = client, use, limits or Limits(), by
        self.server = server
        self.path = None if run is None else Path(run) / "journal" / "calls.jsonl"
        self.journal: Journal | None = None  # opened for the first loop

    def tools(self, record: Record) -> list[Record]:
        """What is offered to a record: its own tools and the server's."""
        return offered(record, self.server.tools if self.server else ())

    async def converse(self, record: Record, body: Record, calls: list[Record]) -> Reply:
        """The last reply to a request with tools, its usage that of all. `calls` gets every message after the request's own, also
        where a Fault ends the loop; the last of them calls tools where the model was not asked again."""
        usages: list[Record] = []
        cells: list[tuple[str, str]] = []
        for number in range(self.limits.calls):
            asked = {**body, "messages": [*body["messages"], *calls]}
            reply = await self.reply(record["id"], asked)
            usages.append(reply.usage)
            said: Record = {"role": "assistant", "content": reply.text}
            if reply.tool_calls:
                said["tool_calls"] = reply.tool_calls
            calls.append(said)
            if not reply.tool_calls or number + 1 == self.limits.calls:
                break
            for place, call in enumerate(reply.tool_calls):
                now = [*body["messages"], *calls]
                text = await self._used(record, call, place, now, cells)
                calls.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        reply.usage = total(usages)
        return reply

    async def close(self) -> None:
        """Close the journal, the client and the server of tools."""
        if self.server:
            await self.server.close()
        if self.journal:
            self.journal.close()
        await self.client.close()

    async def _once(self, ident: str, inputs: Any, make: Callable[[], Awaitable[Any]]) -> Any:
        """What `make` gives, from the journal where it was made before; as the journal would give it (without secrets and halves of
        surrogate pairs), so that the conversation goes on alike."""
        if self.path and not self.journal:
            self.journal = Journal(self.path, "said")
        key = fingerprint(inputs)
        if self.journal and (kept := self.journal.get(ident, key)) is not None:
            return kept
        value = json.loads(dumps(await make()))
        if self.journal:
            self.journal.put(ident, key, value)
        return value

    async def reply(
        self, ident: str, body: Record, client: Client | None = None, by: Any = None
    ) -> Reply:
        """The reply to one body under an id, of this loop's client or another one with its `by`."""
        asked, made_by = (client, by) if client else (self.client, self.by)

        async def ask() -> Record:
            return dataclasses.asdict(await asked.post(body))

        return Reply(**await self._once(ident, ["model", made_by, body], ask))

    async def _used(
        self,
        record: Record,
        call: Record,
        place: int,
        messages: list[Record],
        cells: list[tuple[str, str]],
    ) -> str:
        """What the model is told of a call, at most so many letters; a program of `python` joins
        `cells`, also where the journal has its result."""
        if place >= AT_ONCE:
            return f"error: not run, since a reply may make at most {AT_ONCE} calls"
        name, given = call["function"]["name"], call["function"]["arguments"]
        known = [tool["function"]["name"] for tool in self.tools(record)]
        if name not in known:
            return f"error: no function {name[:100]!r}; there are: {', '.join(known)}"
        try:
            arguments = json.loads(given)
            json.dumps(arguments)  # not nested too deeply to be handed on
        except (ValueError, RecursionError) as error:
            return f"error: the arguments are no JSON ({error})"
        if not isinstance(arguments, dict):
            return "error: the arguments are no JSON object"
        source = record.get("tool_code") or ""
        seconds, most = self.limits.seconds, self.limits.letters

        foreign = self.server if self.server and name not in names(record) else None

        async def run() -> str:
            if foreign:
                return await foreign.use(name, arguments, seconds)
            return await asyncio.to_thread(self.use, source, name, arguments, seconds, tuple(cells))

        inputs = ["tool", foreign.command if foreign else source, seconds, place, call, messages]
        text: str = await self._once(record["id"], inputs, run)
        if name == "python" and isinstance(arguments.get("code"), str):
            cells.append((arguments["code"], text))
        return text if len(text) <= most else f"{text[:most]}\n(cut after {most} characters)"


def total(usages: list[Record]) -> Record:
    """Each number of the usages added up; None where any does not say it."""
    found: Record = {}
    for key in usages[0]:
        values = [usage[key] for usage in usages]
        found[key] = None if None in values else sum(values)
    return found
