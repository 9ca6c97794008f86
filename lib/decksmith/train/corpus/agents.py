"""An agent as a model: `base_url = "command:LINE"` of a registry entry runs a command line over
each request, in a cell.

The cell is that of an author of the corpus (author_command.py). The agent finds the request in its
folder and leaves deck.md there, which is the reply. Nobody counts its tokens: what it asks, it asks
by itself.
"""

import time
from pathlib import Path

from decksmith.core import cli
from decksmith.core.records import Record
from decksmith.core.stream import Fault
from decksmith.measure.decks.conditions import Condition
from decksmith.models.registry import COMMAND, Model
from decksmith.train.corpus.author_command import Command

DECK = "deck.md"
TASK = (
    "REQUEST.md in this folder asks for a slide deck; INSTRUCTIONS.md, where it is there, says how decks are written, and EARLIER.md what was said "
    "before. Write the whole deck to deck.md in this folder, and nothing outside of it."
)
UNCOUNTED = dict.fromkeys(("prompt_tokens", "completion_tokens", "reasoning_tokens", "cost"))


class Agent:
    """The agent of one registry entry, at work in <run>/agents/<id>. Raises cli.BadConfig,
    cli.Missing as Command does."""

    def __init__(self, entry: Model, run: Path, condition: Condition | None = None) -> None:
        self.entry, self.run, self.condition = entry, run.resolve(), condition
        self.line = entry.base_url.removeprefix(COMMAND).strip()
        self.command = Command(
            self.line,
            timeout=entry.timeout,
            net=entry.net,
            names=entry.pass_env,
            show=[cli.ROOT / Path(path).expanduser() for path in entry.show],
        )

    def files(self, record: Record) -> dict[str, str]:
        """{name: text} of what the agent finds in its folder."""
        messages = self.condition.messages(record) if self.condition else record["messages"]
        told = [one["content"] for one in messages if one.get("role") == "system"]
        *earlier, request = [one for one in messages if one.get("role") != "system"]
        found = {"REQUEST.md": request["content"] + "\n"}
        if told:
            found["INSTRUCTIONS.md"] = "\n\n".join(told) + "\n"
        if earlier:
            turns = [f"## {one['role']}\n\n{one['content']}\n" for one in earlier]
            found["EARLIER.md"] = "\n".join(turns)
        return found

    def inputs(self, record: Record) -> Record:
        """Everything that a reply depends on and that is ours to know."""
        cell = {"timeout": self.command.timeout, "net": self.command.net, "task": TASK}
        return {"command": self.line, "files": self.files(record), "id": record["id"], **cell}

    async def write(self, record: Record) -> Record:
        """The `gen` value of a record; an error of kind `model` for an agent that leaves no deck,
        leaves its folder or gives away a key."""
        try:
            return await self._written(record)
        except Fault as fault:
            return {"error": fault.error, **record.get("gen", {})}

    async def _written(self, record: Record) -> Record:
        folder = self.run / "agents" / record["id"]
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        await self.command.ready(folder.parent)
        files = self.files(record)
        done = await self.command.carry_out(folder, files, TASK, [DECK], record["id"])
        left = done["files"].get(DECK, "")
        text = left.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if done["conduct"] in ("escaped", "secret") or (done["conduct"] and not text.strip()):
            raise Fault("model", done["conduct"], done["reasons"][0])
        if not text.strip():
            said = f"exit status {done['rc']}, it said: {done['said']}"
            raise Fault("model", "no-deck", f"the agent left no deck.md ({said})")
        model = {"name": self.entry.name, "slug": self.entry.slug, "params": {}}
        return {
            "text": text,
            "reasoning": "",
            "finish_reason": "length" if done["conduct"] == "timeout" else "stop",
            "usage": UNCOUNTED,
            "model": {**model, "command": self.line},
            **record.get("gen", {}),
            "by": {"attempts": 1, "latency": round(time.monotonic() - began, 3)},
        }
