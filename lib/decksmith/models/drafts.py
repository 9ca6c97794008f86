"""Parallel thinking: several drafts of a reply, then one more request that shows them all and asks
which is best (GenSelect, as NeMo-Skills calls it).

Each request is journaled by the loop that makes it, so that after a kill none is made again.
"""

import asyncio
import dataclasses
import re
from collections.abc import Callable
from typing import Any

from decksmith.core import cli
from decksmith.core.records import Record, prompt_of, sample_of
from decksmith.core.stream import Fault, fingerprint
from decksmith.models.client import Client
from decksmith.models.loops import Loops, total
from decksmith.models.replies import Reply

PROMPT = cli.ROOT / "assets" / "prompts" / "choose-draft.txt"
_BEST = re.compile(r"best:\W*(\d+)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Chooser:
    """Who chooses among `n` drafts: a model, asked with this sampling and seed; `by` is what its
    answer depends on beside the request, such as its weights."""

    n: int
    client: Client
    sampling: Record
    seed: int | None = None
    by: Any = None

    def setting(self) -> Record:
        """What of it two runs must share to be compared; it stands in gen.sampling."""
        return {"n": self.n, "chooser": self.client.model.slug}

    async def best(
        self, loop: Loops, record: Record, body: Callable[[Record], Record]
    ) -> tuple[Reply, Record]:
        """The draft that was chosen, its usage that of all requests, and what `gen` keeps of the
        others (docs/records.md: drafts, choice, calls). body: the request of a draft. Raises Fault:
        infra where any request failed, so that the next run makes the missing ones, else the
        model's where no draft came to its end."""
        made = [_draft(record, k, self.n) for k in range(self.n)]
        said: list[list[Record]] = [[] for _ in made]
        asked = (
            loop.converse(draft, body(draft), calls)
            for draft, calls in zip(made, said, strict=True)
        )
        ends = await asyncio.gather(*asked, return_exceptions=True)
        replies = _replies(ends)
        k, choice, usages = await self._choice(loop, record, body(made[0]), replies)
        drafts = [_kept(end) for end in ends]
        usages += [reply.usage for reply in replies.values()]
        chosen = dataclasses.replace(replies[k], usage=total(usages))
        more = {"calls": said[k]} if loop.tools(record) else {}
        return chosen, {"drafts": drafts, "choice": {"k": k, **choice}, **more}

    async def _choice(
        self, loop: Loops, record: Record, body: Record, replies: dict[int, Reply]
    ) -> tuple[int, Record, list[Record]]:
        """(which draft, what is kept of the choice, the usage of the request if one was made)."""
        shown = [k for k, reply in replies.items() if reply.text.strip()]
        first = (shown or list(replies))[0]
        if len({replies[k].text for k in shown}) < 2:
            return first, {"by": None}, []
        words = [question(body["messages"], [replies[k].text for k in shown])]
        sampling = {**self.sampling, **self.client.model.params}
        wanted = self.client.request(words, sampling, seed=self.seed)
        slug = self.client.model.slug
        try:
            reply = await loop.reply(f"{record['id']}~", wanted, self.client, self.by)
        except Fault as fault:
            if fault.error["kind"] != "model":
                raise
            return first, {"by": slug, "error": fault.error}, []
        number = chosen(reply.text, len(shown))
        kept = {"by": slug, "text": reply.text, "usage": reply.usage, "read": number is not None}
        return shown[(number or 1) - 1], kept, [reply.usage]


def question(messages: list[Record], drafts: list[str]) -> Record:
    """The message that shows a task and the drafts, with the task's pictures, and asks for the best.
    The marks depend on every draft, so that none of them can hold one."""
    mark = fingerprint([messages, drafts])[:12]
    pictures: list[Record] = []
    task = []
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, list):
            pictures += [part for part in content if part.get("type") != "text"]
            content = "\n".join(part.get("text") or "" for part in content)
        task.append(f"--- {mark} {message['role']} ---\n{content}")
    each = [f"--- {mark} draft {n} ---\n{text}" for n, text in enumerate(drafts, 1)]
    holes = {
        "n": str(len(drafts)),
        "task": "\n".join(task),
        "drafts": "\n".join([*each, f"--- {mark} end ---"]),
    }
    text = re.sub(r"\{(\w+)\}", lambda hole: holes[hole[1]], PROMPT.read_text().strip())
    content = [*pictures, {"type": "text", "text": text}] if pictures else text
    return {"role": "user", "content": content}


def chosen(text: str, n: int) -> int | None:
    """The number in the last "Best: .." of a text, from 1 to n; None where there is none."""
    found = _BEST.findall(text)
    number = int(found[-1][:9]) if found else 0
    return number if 1 <= number <= n else None


def _draft(record: Record, k: int, n: int) -> Record:
    """A record as its own draft k: under an id of its own, asked with a seed of its own."""
    sample = {"of": prompt_of(record), "k": sample_of(record) * n + k}
    return {**record, "id": f"{record['id']}~{k}", "gen": {"sample": sample}}


def _replies(ends: list[Any]) -> dict[int, Reply]:
    """The drafts that came to their end. Raises what ended the others where it was not the model's
    doing, or where there is none."""
    failed = [end for end in ends if not isinstance(end, Reply)]
    for end in failed:
        if not isinstance(end, Fault) or end.error["kind"] != "model":
            raise end
    if len(failed) == len(ends):
        raise failed[0]
    return {k: end for k, end in enumerate(ends) if isinstance(end, Reply)}


def _kept(end: Any) -> Record:
    if isinstance(end, Fault):
        return {"error": end.error}
    return {"text": end.text, "finish_reason": end.finish_reason, "usage": end.usage}
