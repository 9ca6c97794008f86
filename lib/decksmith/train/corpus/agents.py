"""An agent as a model: `base_url = "command:LINE"` of a registry entry runs a command line over
each request, in a cell.

The cell is that of an author of the corpus (author_command.py). The agent finds the request in its
folder and leaves deck.md there, which is the reply. Nobody counts its tokens: what it asks, it asks
by itself.
"""

import time
from pathlib import Path
from typing import cast

from decksmith.core import cli
from decksmith.core.records import By, Record
from decksmith.core.stream import Fault
from decksmith.measure.decks.conditions import Condition
from decksmith.models.asking import Answerer
from decksmith.models.records import Asked, ChatMessage, ChatRequest, Gen, Usage
from decksmith.models.registry import COMMAND, Model
from decksmith.train.corpus.author_command import Command

DECK = "deck.md"
TASK = (
    "REQUEST.md in this folder asks for a slide deck; INSTRUCTIONS.md, where it is there, says how decks are written, and EARLIER.md what was said "
    "before. Write the whole deck to deck.md in this folder, and nothing outside of it. Where deck.md is there already, change it as REQUEST.md asks."
)
UNCOUNTED: Usage = {
    "prompt_tokens": None,
    "completion_tokens": None,
    "reasoning_tokens": None,
    "cost": None,
}


class Agent(Answerer):
    """The agent of one registry entry, at work in <run>/agents/<id>. Raises cli.BadConfig, cli.Missing as Command does."""

    def __init__(self, entry: Model, run: Path, condition: Condition | None = None) -> None:
        self.entry, self.run, self.condition = entry, run.resolve(), condition
        self.jobs = entry.jobs
        self.line = entry.base_url.removeprefix(COMMAND).strip()
        self.command = Command(
            self.line,
            timeout=entry.timeout,
            net=entry.net,
            names=entry.pass_env,
            show=[cli.ROOT / Path(path).expanduser() for path in entry.show],
        )

    def files(self, record: ChatRequest, messages: list[ChatMessage]) -> dict[str, str]:
        """{name: text} of what the agent finds in its folder."""
        asked = cast(list[Record], messages)
        if self.condition:
            asked = self.condition.messages({**record, "messages": messages})
        told = [one["content"] for one in asked if one.get("role") == "system"]
        *earlier, request = [one for one in asked if one.get("role") != "system"]
        found = {"REQUEST.md": request["content"] + "\n"}
        if edit := cast(Record, record).get("edit"):
            found[DECK] = edit["before"]
        if told:
            found["INSTRUCTIONS.md"] = "\n\n".join(told) + "\n"
        if earlier:
            turns = [f"## {one['role']}\n\n{one['content']}\n" for one in earlier]
            found["EARLIER.md"] = "\n".join(turns)
        return found

    async def inputs(self, record: ChatRequest, messages: list[ChatMessage]) -> object:
        """Everything that a reply depends on and that is ours to know."""
        cell = {"timeout": self.command.timeout, "net": self.command.net, "task": TASK}
        files = self.files(record, messages)
        return {"command": self.line, "files": files, "id": record["id"], **cell}

    async def answer(self, record: ChatRequest, messages: list[ChatMessage]) -> Gen:
        """The `gen` value of a record. Raises Fault model for an agent that leaves no deck, leaves
        its folder or gives away a key."""
        folder = self.run / "agents" / record["id"]
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        await self.command.ready(folder.parent)
        files = self.files(record, messages)
        done = await self.command.carry_out(folder, files, TASK, [DECK], record["id"])
        left = done["files"].get(DECK, "")
        text = left.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if done["conduct"] in ("escaped", "secret") or (done["conduct"] and not text.strip()):
            raise Fault("model", done["conduct"], done["reasons"][0])
        if not text.strip():
            said = f"exit status {done['rc']}, it said: {done['said']}"
            raise Fault("model", "no-deck", f"the agent left no deck.md ({said})")
        model: Asked = {
            "name": self.entry.name,
            "slug": self.entry.slug,
            "params": {},
            "command": self.line,
        }
        by = {"attempts": 1, "latency": round(time.monotonic() - began, 3)}
        return {
            "text": text,
            "reasoning": "",
            "finish_reason": "length" if done["conduct"] == "timeout" else "stop",
            "usage": UNCOUNTED,
            "model": model,
            "by": cast(By, by),
        }
