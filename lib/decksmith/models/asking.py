"""What chat-generate does with a record: the request that it becomes, the reply, and whether a kept one still stands."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from decksmith.core.records import Record, sample_of
from decksmith.core.stream import Fault, warn
from decksmith.models import client as chat_client
from decksmith.models.drafts import Chooser
from decksmith.models.loops import Loops
from decksmith.models.replies import Reply
from decksmith.models.turns import Conversations


@dataclass(frozen=True)
class Asker:
    """Asks the model of `loop` with this sampling; the seed is that of a prompt's first sample. What `loop` says it depends on,
    `{"served", "weights"}` as far as they are known, stands in the record.

    params: what the registry sets, as the record says it. talk: the turns of the run. under: the messages that a condition makes
    of a record's. chooser: who chooses among drafts; None: nobody does.
    """

    loop: Loops
    talk: Conversations
    sampling: Record
    seed: int | None
    params: Record
    under: Callable[[Record], list[Record]]
    chooser: Chooser | None = None

    def request(self, record: Record, messages: list[Record] | None = None) -> Record:
        """The body of a record's request. messages: its own, with the replies to the turns before."""
        client = self.loop.client
        seed = None if self.seed is None else self.seed + sample_of(record)
        if "messages" not in record:
            return client.completion(record["prompt"], self.sampling, seed=seed)
        record = {**record, "messages": messages or record["messages"]}
        body = client.request(self.under(record), self.sampling, seed=seed)
        offered = self.loop.tools(record)
        return body | {"tools": offered} if offered else body

    async def inputs(self, record: Record) -> Any:
        """All that the reply depends on."""
        try:
            body = self.request(record, await self._messages(record))
        except Fault as fault:  # of the turn before; `work` says it
            return fault.error
        found: Any = body
        if "tools" in body:  # the limits of a loop are part of what it answers
            limits, server = self.loop.limits, self.loop.server
            found = [body, record.get("tool_code"), limits.calls, limits.seconds]
            found += [server.command] if server else []
        return [found, self.chooser.setting(), self.chooser.by] if self.chooser else found

    async def work(self, record: Record) -> Record:
        """The value of `gen`; the turns that follow hear of it."""
        value = await self._asked(record)
        self.talk.heard(record, value)
        return value

    def valid(self, record: Record, value: Record) -> bool:
        """Whether a kept reply stands. Another adapter behind the same name is another model; without a server, what is
        there stands."""
        client, by, made_by = self.loop.client, self.loop.by, value.get("model", {})
        stands = (
            chat_client.stands(value, client.model.shorten)
            and ("served" not in by or made_by.get("served") == client.served)
            and ("weights" not in by or made_by.get("weights") == by["weights"])
        )
        if stands:
            self.talk.heard(record, value)
        return stands

    async def close(self) -> None:
        """Close the journal, the tools and the clients."""
        await self.loop.close()
        if self.chooser and self.chooser.client is not self.loop.client:
            await self.chooser.client.close()

    async def _messages(self, record: Record) -> list[Record] | None:
        if self.loop.server:
            await self.loop.server.open()
        return await self.talk.messages(record) if "messages" in record else None

    async def _asked(self, record: Record) -> Record:
        calls: list[Record] = []
        more: Record = {}
        try:
            messages = await self._messages(record)
            body = self.request(record, messages)
            if self.chooser:
                reply, more = await self.chooser.best(
                    self.loop, record, lambda draft: self.request(draft, messages)
                )
                calls = more.get("calls") or []
            elif "tools" in body:
                reply = await self.loop.converse(record, body, calls)
            else:
                reply = await self.loop.client.post(body)
        except Fault as fault:
            kept = {"calls": calls} if calls else {}
            return {"error": fault.error, **kept, **record.get("gen", {})}
        self._warn(record["id"], reply, calls)
        model = self.loop.client.model
        return {
            **reply.value(),
            **({"calls": calls} if calls else {}),
            **more,
            "model": {
                "name": model.name,
                "slug": model.slug,
                "params": self.params,
                **self.loop.by,
            },
            **self._sent(record),
            **record.get("gen", {}),
            "by": {
                "attempts": reply.attempts,
                "latency": round(reply.took, 3),
                "response": reply.response,
            },
        }

    def _warn(self, ident: str, reply: Reply, calls: list[Record]) -> None:
        if calls and calls[-1].get("tool_calls"):
            most = self.loop.limits.calls
            warn(ident, f"it still calls tools after {most} replies (--calls)")
        if reply.finish_reason == "length":
            by = ", by the server before max_tokens" if reply.cut_by == "server" else ""
            warn(ident, f"truncated after {reply.usage['completion_tokens']} tokens{by}")

    def _sent(self, record: Record) -> Record:
        """What of the request a record keeps."""
        said = chat_client.asked(self.request(record))
        if self.chooser:
            said["sampling"] = said["sampling"] | {"drafts": self.chooser.setting()}
        return said
