"""Replies: what an endpoint wrote, its thought apart from its answer, whether it came whole or in pieces."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from decksmith.core.records import Record
from decksmith.models.trouble import Trouble

# What an endpoint says of a reply (OpenAI's API reference, chat completions).
NAMED = ("id", "model", "created", "system_fingerprint")
# Called with what arrives of a streamed reply: its kind ("reasoning", "text", "turn") and the piece.
Heard = Callable[[str, str], Any]


@dataclass
class Reply:
    """text and reasoning apart; finish_reason as the endpoint said it; usage with tokens and cost in USD (None: unknown).

    response: what the endpoint calls this reply, of `id`, `model`, `created`, `system_fingerprint` what it said.
    shortened: {"asked", "sent"}, the max_tokens that did not fit the context and those that did; None where nothing was shortened.
    cut_by: what ended a reply of finish_reason `length` (`cut_by`); None for any other, and where it is not known.
    tool_calls: the tools that it calls, `{"id", "type", "function": {"name", "arguments"}}`, where arguments is the text as it came.
    """

    text: str
    reasoning: str
    finish_reason: str | None
    usage: Record
    took: float
    attempts: int
    response: Record = field(default_factory=dict)
    shortened: Record | None = None
    cut_by: str | None = None
    tool_calls: list[Record] = field(default_factory=list)

    def value(self) -> Record:
        """What of it stands in a record (docs/records.md, gen)."""
        said = {
            "text": self.text,
            "reasoning": self.reasoning,
            "finish_reason": self.finish_reason,
            "usage": self.usage,
        }
        more = {"shortened": self.shortened, "cut_by": self.cut_by}
        return said | {name: value for name, value in more.items() if value}


def cut_by(reply: Reply, limit: int | None) -> str | None:
    """What ended a reply of finish_reason `length` to a request for `limit` tokens: "max_tokens", or "server" where fewer were
    written, since its context was full (vLLM shortens in silence) or it has a limit of its own.

    None for any other end, and where the endpoint's counts do not say it.
    """
    written, thought = reply.usage["completion_tokens"], reply.usage["reasoning_tokens"]
    if reply.finish_reason != "length" or not limit or not written:
        return None
    if written >= limit:
        return "max_tokens"
    # Some endpoints count the thought apart from the reply, some within it.
    return "server" if written + thought < limit else None


def split_reasoning(text: str) -> tuple[str, str]:
    """Part `<think>` text from the answer: `(answer, reasoning)`. A thought that never ends leaves an empty answer."""
    head = text.lstrip()
    if head.startswith("<think>"):
        thought, closed, answer = head[len("<think>") :].partition("</think>")
        return (answer.lstrip("\n"), thought.strip()) if closed else ("", thought.strip())
    thought, closed, answer = text.partition("</think>")  # the server's template opened it
    return (answer.lstrip("\n"), thought.strip()) if closed else (text, "")


def read(data: Any, took: float, attempts: int) -> Reply:
    """The reply in an endpoint's JSON; its cost is null where the endpoint does not say it. Raises Trouble for one of another form."""
    try:
        choice = data["choices"][0]
        message = choice["message"] if "message" in choice else {"content": choice["text"]}
        text = message.get("content") or ""
        if isinstance(text, list):
            text = "".join(part.get("text") or "" for part in text)
        if not isinstance(text, str):
            raise TypeError("content is not text")
        reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
        used = data.get("usage") or {}
        details = used.get("completion_tokens_details") or {}
        usage = {
            "prompt_tokens": int(used.get("prompt_tokens") or 0),
            "completion_tokens": int(used.get("completion_tokens") or 0),
            "reasoning_tokens": int(details.get("reasoning_tokens") or 0),
            "cost": used.get("cost") if isinstance(used.get("cost"), int | float) else None,
        }
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise Trouble(
            "malformed", f"the endpoint's reply has no usable choice ({error!r})"
        ) from None
    if not isinstance(reasoning, str):
        reasoning = json.dumps(reasoning)
    text, thought = split_reasoning(text)
    named = {
        name: data[name][:200] if isinstance(data[name], str) else data[name]
        for name in NAMED
        if isinstance(data.get(name), str | int) and not isinstance(data[name], bool)
    }
    return Reply(
        text,
        reasoning or thought,
        choice.get("finish_reason"),
        usage,
        took,
        attempts,
        named,
        tool_calls=_tool_calls(message.get("tool_calls")),
    )


def _tool_calls(said: Any) -> list[Record]:
    """The calls of tools in a message, each in OpenAI's form; what is none is left out."""
    found: list[Record] = []
    for number, call in enumerate(said if isinstance(said, list) else ()):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        name, given, ident = function.get("name"), function.get("arguments"), call.get("id")
        found.append(
            {
                "id": ident if isinstance(ident, str) and ident else f"call_{number}",
                "type": "function",
                "function": {
                    "name": name if isinstance(name, str) else "",
                    "arguments": given if isinstance(given, str) else json.dumps(given or {}),
                },
            }
        )
    return found


class Ear:
    """Parts a reply that comes in pieces as `split_reasoning` parts a whole one. A piece that may be the beginning of a tag waits for the next."""

    def __init__(self, heard: Heard) -> None:
        self.heard = heard
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.state, self.rest, self.letters = "head", "", 0

    def hear(self, delta: Record | None) -> None:
        delta = delta or {}
        for kind, value in (
            ("reasoning", delta.get("reasoning") or delta.get("reasoning_content")),
            ("content", delta.get("content")),
        ):
            if isinstance(value, list):
                value = "".join(part.get("text") or "" for part in value)
            if not value:
                continue
            if not isinstance(value, str):
                raise TypeError(f"{kind} is not text")
            getattr(self, kind).append(value)
            self.letters += len(value)
            if kind == "reasoning":
                self.heard("reasoning", value)
            else:
                self.rest += value
                while self._step():
                    pass

    def _step(self) -> bool:
        """Pass on what is certain of `rest`; True when the state changed and there may be more."""
        if self.state == "head":
            head = self.rest.lstrip()
            if "<think>".startswith(head[:7]) and len(head) < 7:
                return False
            self.state, self.rest = (
                ("think", head[7:]) if head.startswith("<think>") else ("text", self.rest)
            )
            return True
        if self.state in ("think", "text"):
            said, closed, after = self.rest.partition("</think>")
            if not closed:
                held = next((n for n in range(7, 0, -1) if said.endswith("</think>"[:n])), 0)
                said, after = said[: len(said) - held], said[len(said) - held :]
            self._say("reasoning" if self.state == "think" else "text", said)
            if closed and self.state == "text":
                self.heard("turn", "")
            self.state, self.rest = "gap" if closed else self.state, after
            return bool(closed)
        if self.state == "gap":
            self.rest = self.rest.lstrip("\n")
            self.state = "answer" if self.rest else "gap"
        if self.state == "answer":
            self._say("text", self.rest)
            self.rest = ""
        return False

    def _say(self, kind: str, piece: str) -> None:
        if piece:
            self.heard(kind, piece)

    def end(self) -> None:
        self._say(
            "reasoning" if self.state == "think" else "text",
            "" if self.state == "gap" else self.rest,
        )
        self.rest = ""
