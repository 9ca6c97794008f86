"""Parallel thinking: several drafts of a reply, then one more request that shows them all and asks
which is best (GenSelect, as NeMo-Skills calls it).

Each request is journaled by the loop that makes it, so that after a kill none is made again.
"""

import asyncio
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

from decksmith.core import cli
from decksmith.core.records import Record, prompt_of, sample_of
from decksmith.core.stream import Fault, fingerprint
from decksmith.models.client import Client
from decksmith.models.loops import Loops, total
from decksmith.models.records import (
    ChatMessage,
    ChatRequest,
    ContentPart,
    DraftChoice,
    Gen,
    ReplyDraft,
)
from decksmith.models.replies import Reply

PROMPT = cli.ROOT / "assets" / "prompts" / "choose-draft.txt"
_BEST = re.compile(r"best:\W*(\d+)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class DraftChooser:
    """Who chooses among `n` drafts: a model, asked with this sampling and seed; `by` is what its
    answer depends on beside the request, such as its weights."""

    n: int
    client: Client
    sampling: Mapping[str, object]
    seed: int | None = None
    by: Mapping[str, object] | None = None

    def setting(self) -> dict[str, object]:
        """What of it two runs must share to be compared; it stands in gen.sampling."""
        return {"n": self.n, "chooser": self.client.model.slug}

    async def best(
        self, loop: Loops, record: ChatRequest, body: Callable[[ChatRequest], Record]
    ) -> tuple[Reply, Gen]:
        """The draft that was chosen, its usage that of all requests, and what `gen` keeps of the
        others (docs/records.md: drafts, choice, calls). body: the request of a draft. Raises Fault:
        infra where any request failed, so that the next run makes the missing ones, else the
        model's where no draft came to its end."""
        made = [_draft(record, k, self.n) for k in range(self.n)]
        said: list[list[ChatMessage]] = [[] for _ in made]
        asked = (
            loop.converse(draft, body(draft), calls)
            for draft, calls in zip(made, said, strict=True)
        )
        ends = await asyncio.gather(*asked, return_exceptions=True)
        replies = _replies(ends)
        choice = await self._choice(loop, record, body(made[0]), replies)
        usages = [choice["usage"]] if "usage" in choice else []
        usages += [reply.usage for reply in replies.values()]
        chosen = dataclasses.replace(replies[choice["k"]], usage=total(usages))
        more: Gen = {"drafts": [_kept(end) for end in ends], "choice": choice}
        if loop.tools(record):
            more["calls"] = said[choice["k"]]
        return chosen, more

    async def _choice(
        self, loop: Loops, record: ChatRequest, body: Record, replies: dict[int, Reply]
    ) -> DraftChoice:
        """Which draft, and what is kept of how it was chosen."""
        shown = [k for k, reply in replies.items() if reply.text.strip()]
        first = (shown or list(replies))[0]
        if len({replies[k].text for k in shown}) < 2:
            return {"k": first, "by": None}
        words = [question(body["messages"], [replies[k].text for k in shown])]
        sampling = {**self.sampling, **self.client.model.params}
        wanted = self.client.request(words, sampling, seed=self.seed)
        slug = self.client.model.slug
        try:
            reply = await loop.reply(f"{record['id']}~", wanted, self.client, self.by)
        except Fault as fault:
            if fault.error["kind"] != "model":
                raise
            return {"k": first, "by": slug, "error": fault.error}
        number = chosen(reply.text, len(shown))
        return {
            "k": shown[(number or 1) - 1],
            "by": slug,
            "text": reply.text,
            "usage": reply.usage,
            "read": number is not None,
        }


def question(messages: Sequence[ChatMessage], drafts: Sequence[str]) -> ChatMessage:
    """The message that shows a task and the drafts, with the task's pictures, and asks for the best.
    The marks depend on every draft, so that none of them can hold one."""
    mark = fingerprint([messages, drafts])[:12]
    pictures: list[ContentPart] = []
    task = []
    for message in messages:
        content = message.get("content") or ""
        if not isinstance(content, str):
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
    if not pictures:
        return {"role": "user", "content": text}
    return {"role": "user", "content": [*pictures, {"type": "text", "text": text}]}


def chosen(text: str, n: int) -> int | None:
    """The number in the last "Best: .." of a text, from 1 to n; None where there is none."""
    found = _BEST.findall(text)
    number = int(found[-1][:9]) if found else 0
    return number if 1 <= number <= n else None


def _draft(record: ChatRequest, k: int, n: int) -> ChatRequest:
    """A record as its own draft k: under an id of its own, asked with a seed of its own."""
    gen: Gen = {"sample": {"of": prompt_of(record), "k": sample_of(record) * n + k}}
    return {**record, "id": f"{record['id']}~{k}", "gen": gen}


def _replies(ends: Sequence[Reply | BaseException]) -> dict[int, Reply]:
    """The drafts that came to their end. Raises what ended the others where it was not the model's
    doing, or where there is none."""
    failed = [end for end in ends if not isinstance(end, Reply)]
    for end in failed:
        if not isinstance(end, Fault) or end.error["kind"] != "model":
            raise end
    if len(failed) == len(ends):
        raise failed[0]
    return {k: end for k, end in enumerate(ends) if isinstance(end, Reply)}


def _kept(end: Reply | BaseException) -> ReplyDraft:
    if isinstance(end, Reply):
        return {"text": end.text, "finish_reason": end.finish_reason, "usage": end.usage}
    assert isinstance(end, Fault)  # `_replies` raised all else
    return {"error": end.error}
