"""Loops: a conversation that grows by calls, of the model and of its tools, until the model answers without one.

There is one mechanism. A call that ended is journaled at once, under the record's id and the sha256 of all that it depends on, the
conversation so far among it. A process killed at any moment goes through the same conversation again, and what stands in the
journal is neither asked nor run again.
"""

import asyncio
import dataclasses
import json
import keyword
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from decksmith.core import config_files
from decksmith.core.records import Record
from decksmith.core.stream import Journal, dumps, fault, fingerprint
from decksmith.models.client import Client
from decksmith.models.records import ChatMessage, ChatRequest, Tool, ToolCall, Usage
from decksmith.models.replies import Reply, added

Cells = Sequence[tuple[str, str]]  # programs of `python` in one loop, and what the model was told
# Runs a tool: (source of the functions, name, arguments, seconds it may take, earlier programs) ->
# what the model is told.
Use = Callable[[str, str, Record, float, Cells], str]

CALLS = 10  # how often the model is asked
SECONDS = 10.0  # of one call of a tool
LETTERS = 10_000  # of its result
AT_ONCE = 16  # calls of tools that one reply may make


def offered(record: ChatRequest) -> list[Tool]:
    """The tools of a record in OpenAI's form, "python" among them the built-in one."""
    return [
        cast(Tool, config_files.asset("schemas/python-tool.json"))
        if isinstance(tool, str)
        else tool
        for tool in record.get("tools") or ()
    ]


def check(record: ChatRequest) -> None:
    """Raise ValueError for a record that cannot be asked: without messages or prompt, or with tools of another form."""
    ident = record["id"]
    if fault(record):
        return
    if "messages" not in record and "prompt" not in record:
        raise ValueError(
            f'{ident}: no "messages" in this record; an earlier stage writes it (docs/records.md)'
        )
    if "tools" not in record:
        return
    if "messages" not in record:
        raise ValueError(f"{ident}: tools need messages; a completion (prompt) calls none")
    tools = [tool for tool in record["tools"] if tool != "python"]
    own = [tool["function"]["name"] for tool in tools if not isinstance(tool, str)]
    if len(own) < len(tools) or not all(map(str.isidentifier, own)):
        wrong = (
            'tools is a list of "python" and of {"type": "function", "function": {"name", ..}}, '
            "where each name is one of Python's"
        )
    elif "python" in own or any(map(keyword.iskeyword, own)):
        wrong = (
            'a function of the row is called like a keyword of Python, or "python", '
            "which is the built-in tool"
        )
    elif own and not isinstance(record.get("tool_code", ""), str):
        wrong = "tool_code is a text, the Python source of these functions"
    else:
        return
    raise ValueError(f"{ident}: {wrong}")


class Loops:
    """The loops of one run. `use` runs a tool; with `run` each call is kept in
    run/journal/calls.jsonl; `by` is what else a reply depends on, such as the weights that answer."""

    def __init__(
        self,
        client: Client,
        use: Use,
        run: str | Path | None = None,
        by: Mapping[str, object] | None = None,
    ) -> None:
        self.client, self.use, self.by = client, use, by
        self.path = None if run is None else Path(run) / "journal" / "calls.jsonl"
        self.journal: Journal | None = None  # opened for the first loop

    async def converse(self, record: ChatRequest, body: Record, calls: list[ChatMessage]) -> Reply:
        """The last reply to a request with tools, its usage that of all. `calls` gets every message after the request's own, also
        where a Fault ends the loop; the last of them calls tools where the model was not asked again.
        Functions that no `tool_code` defines are not run: what the first reply calls is the answer."""
        run = "tool_code" in record or record.get("tools") == ["python"]
        usages: list[Usage] = []
        cells: list[tuple[str, str]] = []
        for number in range(CALLS):
            asked = {**body, "messages": [*body["messages"], *calls]}
            reply = await self.reply(record["id"], asked)
            usages.append(reply.usage)
            said: ChatMessage = {"role": "assistant", "content": reply.text}
            if reply.tool_calls:
                said["tool_calls"] = reply.tool_calls
            calls.append(said)
            if not reply.tool_calls or number + 1 == CALLS or not run:
                break
            for place, call in enumerate(reply.tool_calls):
                now = [*body["messages"], *calls]
                text = await self._used(record, call, place, now, cells)
                calls.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        reply.usage = added(*usages)
        return reply

    async def close(self) -> None:
        """Close the journal and the client."""
        if self.journal:
            self.journal.close()
        await self.client.close()

    async def _once(self, ident: str, inputs: object, make: Callable[[], Awaitable[object]]) -> Any:
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

    async def reply(self, ident: str, body: Record) -> Reply:
        """The reply to one body under an id."""

        async def ask() -> object:
            return dataclasses.asdict(await self.client.post(body))

        return Reply(**await self._once(ident, ["model", self.by, body], ask))

    async def _used(
        self,
        record: ChatRequest,
        call: ToolCall,
        place: int,
        messages: list[ChatMessage],
        cells: list[tuple[str, str]],
    ) -> str:
        """What the model is told of a call, at most so many letters; a program of `python` joins
        `cells`, also where the journal has its result."""
        if place >= AT_ONCE:
            return f"error: not run, since a reply may make at most {AT_ONCE} calls"
        name, given = call["function"]["name"], call["function"]["arguments"]
        known = [tool["function"]["name"] for tool in offered(record)]
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

        async def run() -> str:
            return await asyncio.to_thread(self.use, source, name, arguments, SECONDS, tuple(cells))

        inputs = ["tool", source, SECONDS, place, call, messages]
        text: str = await self._once(record["id"], inputs, run)
        if name == "python" and isinstance(arguments.get("code"), str):
            cells.append((arguments["code"], text))
        return (
            text if len(text) <= LETTERS else f"{text[:LETTERS]}\n(cut after {LETTERS} characters)"
        )
