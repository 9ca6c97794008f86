"""What chat-generate does with a record: who answers it, the request that it becomes, and whether a kept reply still stands."""

import abc
import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.core.records import Record, expanded, sample_of
from decksmith.core.stream import ID, Fault
from decksmith.models import client as chat_client
from decksmith.models import loops, registry, servers, stopping
from decksmith.models.client import Client
from decksmith.models.records import ChatMessage, ChatRequest, Gen, Messages, Usage
from decksmith.models.registry import FILES, Model
from decksmith.models.turns import Conversations

# Of a deck that was read from a file.
FREE: Usage = {"prompt_tokens": 0, "completion_tokens": 0, "reasoning_tokens": 0, "cost": 0.0}
LARGEST = 1_000_000  # bytes of a deck in a folder


class Answerer(abc.ABC):
    """Who answers records: a model at an endpoint (`Endpoint`), a folder of decks (`DeckFolder`), or an agent (corpus/agents.py).

    `messages` are a record's own, with the replies to the turns before where it `follows_turns`. `needs`: keys of a record.
    """

    jobs = 1
    follows_turns = True
    needs: tuple[str, ...] = ("messages",)

    @abc.abstractmethod
    async def inputs(self, record: ChatRequest, messages: list[ChatMessage]) -> object:
        """All that the answer depends on."""

    @abc.abstractmethod
    async def answer(self, record: ChatRequest, messages: list[ChatMessage]) -> Gen:
        """The value of `gen`. Raises Fault."""

    def valid(self, value: Gen) -> bool:
        """Whether a kept answer of the same inputs stands."""
        return True

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Called at the end, whatever happened."""


def generate(
    answerer: Answerer, run: str | Path | None, samples: int, condition: Mapping[str, object] | None
) -> int:
    """Have each record of stdin answered; the status to exit with. condition: what each `gen` says of the condition."""
    talk = Conversations()

    def expand(record: ChatRequest) -> list[ChatRequest]:
        loops.check(record)
        made: list[Any] = expanded(dict(record), samples)
        for each in made if answerer.follows_turns else ():
            talk.expect(each)
        return made

    async def inputs(record: ChatRequest) -> object:
        try:
            return await answerer.inputs(record, await talk.messages(record))
        except Fault as fault:  # of the turn before; `work` says it
            return fault.error

    async def work(record: ChatRequest) -> Gen:
        try:
            value = await answerer.answer(record, await talk.messages(record))
        except Fault as fault:
            value = {"error": fault.error}
        value = {**value, **record.get("gen", {})}
        talk.answered(record, value)
        return value

    def valid(record: ChatRequest, value: Gen) -> bool:
        stands = answerer.valid(value)
        if stands:
            talk.answered(record, value)
        return stands

    def merge(record: ChatRequest, value: Gen) -> Any:  # the condition is no part of asking
        said = {"condition": condition} if condition else {}
        return {**record, "gen": {**value, **said}}

    return stream.stage(
        "gen",
        work,
        takes=ChatRequest,
        needs=answerer.needs,
        run=run,
        inputs=inputs,
        valid=valid,
        jobs=answerer.jobs,
        expand=expand,
        merge=merge,
        close=answerer.close,
    )


class Endpoint(Answerer):
    """The model of a registry's entry, asked with the sampling that a protocol and flags ask for."""

    def __init__(
        self,
        entry: Model,
        sampling: Record,
        use: loops.Use,
        *,
        run: str | Path | None,
        under: Callable[[ChatRequest], Messages] | None = None,
        **limits: Any,
    ) -> None:
        """use: runs a tool. under: the messages that a condition makes of a record's. limits: as of Client.
        Raises as Client does."""
        self.params, self.under = entry.params | entry.extra_body, under
        self.sampling = entry.params | sampling
        self.seed = self.sampling.pop("seed", None)  # of a prompt's first sample
        client = Client(replace(entry, params={}), blame="model", **limits)
        self.jobs = client.jobs
        # What replies depend on beside the request.
        origin = {"served": client.served, "weights": registry.weights(entry)}
        by = {name: value for name, value in origin.items() if value}
        self.loop = loops.Loops(client, use, run, by)
        self.needs = ("messages",) if under else ()  # a completion is asked under no condition

    def request(self, record: ChatRequest, messages: list[ChatMessage]) -> Record:
        """The body of a record's request."""
        client = self.loop.client
        seed = None if self.seed is None else self.seed + sample_of(record)
        if "messages" not in record:
            return client.completion(record["prompt"], self.sampling, seed=seed)
        said = self.under({**record, "messages": messages}) if self.under else messages
        body = client.request(said, self.sampling, seed=seed)
        offered = loops.offered(record)
        return body | {"tools": offered} if offered else body

    def show_first(self, samples: int) -> int:
        """Print what the first record of stdin would be asked, and where; ask nothing."""
        for _, record in stream.records("/dev/stdin", ChatRequest):
            loops.check(record)
            first: Any = expanded(dict(record), samples)[0]
            body = self.request(first, record.get("messages", []))
            said = {"url": self.loop.client.model.base_url + servers.path(body), "body": body}
            print(json.dumps(said, ensure_ascii=False, indent=2))
            break
        return 0

    async def inputs(self, record: ChatRequest, messages: list[ChatMessage]) -> object:
        """All that the reply depends on."""
        body = self.request(record, messages)
        if "tools" in body:  # the limits of a loop are part of what it answers
            return [body, record.get("tool_code"), loops.CALLS, loops.SECONDS]
        return body

    def valid(self, value: Gen) -> bool:
        """Whether a kept reply stands. Another adapter behind the same name is another model; without a server, what is
        there stands."""
        by = self.loop.by or {}
        made_by: Mapping[str, object] = value.get("model") or {}
        return all(made_by.get(name) == by[name] for name in by)

    async def answer(self, record: ChatRequest, messages: list[ChatMessage]) -> Gen:
        """The value of `gen`, its calls of tools also beside an error."""
        calls: list[ChatMessage] = []
        body = self.request(record, messages)
        try:
            if "tools" in body:
                reply = await self.loop.converse(record, body, calls)
            else:
                reply = await self.loop.client.post(body)
        except Fault as fault:
            return {"error": fault.error, **({"calls": calls} if calls else {})}
        if len(calls) > 1 and calls[-1].get("tool_calls"):
            stream.warn(record["id"], f"it still calls tools after {loops.CALLS} replies")
        if reply.finish_reason == "length":
            by = ", by the server before max_tokens" if reply.cut_by == "server" else ""
            written = reply.usage["completion_tokens"]
            stream.warn(record["id"], f"truncated after {written} tokens{by}")
        if reply.stopped:
            read, why = reply.stopped["read"], stopping.WORDS[reply.stopped["why"]]
            stream.warn(record["id"], f"stopped after {read} characters: {why}")
        # Of a later turn without the replies before it, which are each model's own.
        said = chat_client.asked(self.request(record, record.get("messages", [])))
        model = self.loop.client.model
        asked: Any = {"name": model.name, "slug": model.slug, "params": self.params}
        by_reply: Any = {
            "attempts": reply.attempts,
            "latency": round(reply.took, 3),
            "response": reply.response,
        }
        kept: Gen = {"calls": calls} if calls else {}
        return {
            **reply.value(),
            **kept,
            "model": asked | self.loop.by,
            "sampling": said["sampling"],
            "request": said["request"],
            "by": by_reply,
        }

    async def close(self) -> None:
        """Close the journal and the client."""
        await self.loop.close()


class DeckFolder(Answerer):
    """Decks that lie in a folder and are read as if a model had written them: `base_url = "files:data/reference/"`.

    A folder has `ID.md` or `ID/deck.md` for each prompt's id. Nobody is asked, so that nothing is sampled and nothing paid.
    """

    follows_turns = False

    def __init__(self, model: Model) -> None:
        """Raises cli.Missing where the folder is none."""
        self.model = model
        self.name = model.base_url.removeprefix(FILES).strip()
        self.path = (cli.ROOT / self.name).resolve()
        if not self.name or not self.path.is_dir():
            raise cli.Missing(
                f"{model.name}: {self.path} is no folder; base_url is {FILES}FOLDER/, seen from "
                f"{cli.ROOT}, and FOLDER has ID.md or ID/deck.md for each prompt"
            )

    def find(self, ident: str) -> tuple[Path, bytes]:
        """(file, its bytes) of the deck for this prompt.

        Raises Fault("infra", ..), since no model was asked: `no-file` where there is none, `bad-file` for a name or a link
        that leads out of the folder, and for a file that cannot be a deck. It is final until the folder changes: the other
        decks are scored meanwhile, this one is excluded and counted.
        """
        names = (f"{ident}.md", f"{ident}/deck.md")
        there = [
            self.path / name for name in names if ID.match(ident) and (self.path / name).exists()
        ]
        cls, wrong = "bad-file", ""
        if not ID.match(ident):
            wrong = f"the id {ident!r} can be no file's name"
        elif not there:
            cls, wrong = "no-file", f"{self.path} has neither {' nor '.join(names)}"
        elif not there[0].resolve().is_relative_to(self.path):
            wrong = f"{there[0]} is a link out of {self.path}"
        elif not there[0].is_file() or there[0].stat().st_size > LARGEST:
            wrong = f"{there[0]} is no file of at most {LARGEST} bytes"
        if wrong:
            raise Fault("infra", cls, wrong, retriable=False)
        return there[0], there[0].read_bytes()

    async def inputs(self, record: ChatRequest, messages: list[ChatMessage]) -> object:
        """The folder and the deck's sha256, null where there is no deck."""
        sha256 = None
        with contextlib.suppress(Fault):
            sha256 = hashlib.sha256(self.find(record["id"])[1]).hexdigest()
        return {"files": self.name, "sha256": sha256}

    async def answer(self, record: ChatRequest, messages: list[ChatMessage]) -> Gen:
        """The value of `gen`. Raises Fault as `find` does."""
        found, data = self.find(record["id"])
        sha256 = hashlib.sha256(data).hexdigest()
        by: Any = {"files": f"{found.relative_to(self.path)}", "sha256": sha256}
        name, slug = self.model.name, self.model.slug
        return {
            "text": data.decode("utf-8", "replace"),
            "reasoning": "",
            "finish_reason": "stop",
            "usage": FREE,
            "model": {"name": name, "slug": slug, "params": {}, "files": self.name},
            "by": by,
        }
