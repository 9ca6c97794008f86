"""Replies: what an endpoint wrote, its thought apart from its answer, whether it came whole or in pieces."""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from decksmith.models.errors import RequestError
from decksmith.models.records import CutBy, Gen, Stopped, ToolCall, Usage

# What an endpoint says of a reply (OpenAI's API reference, chat completions).
NAMED = ("id", "model", "created", "system_fingerprint")
TOKENS, USD = 100_000_000, 1000  # that one reply has at most
CUT = ("length", "stopped")  # how a reply ended that its model did not end
# Called with what arrives of a streamed reply: its kind ("reasoning", "text", "turn") and the piece.
OnChunk = Callable[[str, str], object]


@dataclass
class Reply:
    """text and reasoning apart; finish_reason as the endpoint said it; usage with tokens and cost in USD (None: unknown).

    response: what the endpoint calls this reply, of `NAMED` what it said.
    cut_by: what ended a reply of finish_reason `length` (`cut_by`); None for any other, and where it is not known.
    stopped: where and why the rule of the protocol ended it (models/stopping.py), or None.
    tool_calls: the tools that it calls.
    """

    text: str
    reasoning: str
    finish_reason: str | None
    usage: Usage
    took: float
    attempts: int
    response: dict[str, str | int] = field(default_factory=dict)
    cut_by: CutBy | None = None
    stopped: Stopped | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)

    def value(self) -> Gen:
        """What of it stands in a record (docs/records.md, gen)."""
        said: Gen = {
            "text": self.text,
            "reasoning": self.reasoning,
            "finish_reason": self.finish_reason,
            "usage": self.usage,
        }
        if self.cut_by:
            said["cut_by"] = self.cut_by
        if self.stopped:
            said["stopped"] = self.stopped
        return said


def cut_by(reply: Reply, limit: int | None) -> CutBy | None:
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
    return "server" if written + (thought or 0) < limit else None


def split_reasoning(text: str) -> tuple[str, str]:
    """Part `<think>` text from the answer: `(answer, reasoning)`. A thought that never ends leaves an empty answer."""
    head = text.lstrip()
    if head.startswith("<think>"):
        thought, closed, answer = head[len("<think>") :].partition("</think>")
        return (answer.lstrip("\n") if closed else ""), thought.strip()
    thought, closed, answer = text.partition("</think>")  # the server's template opened it
    return (answer.lstrip("\n"), thought.strip()) if closed else (text, "")


def read(data: Any, took: float, attempts: int) -> Reply:
    """The reply in an endpoint's JSON; its cost is null where the endpoint does not say it. Raises RequestError for one of another
    form."""
    try:
        choice = data["choices"][0]
        message = choice["message"] if "message" in choice else {"content": choice["text"]}
        text = _text(message.get("content"))
        reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
        used = data.get("usage") or {}
        details = used.get("completion_tokens_details") or {}
        is_said = isinstance(used.get("cost"), int | float)  # some have an object there
        usage: Usage = {
            "prompt_tokens": int(_amount(used, "prompt_tokens", TOKENS)),
            "completion_tokens": int(_amount(used, "completion_tokens", TOKENS)),
            "reasoning_tokens": int(_amount(details, "reasoning_tokens", TOKENS)),
            "cost": _amount(used, "cost", USD) if is_said else None,
        }
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        said = f"the endpoint's reply has no usable choice or usage ({error!r})"
        raise RequestError("malformed", said) from None
    if not isinstance(reasoning, str):
        reasoning = json.dumps(reasoning)
    text, thought = split_reasoning(text)
    response: dict[str, str | int] = {}
    for name in NAMED:
        value = data.get(name)
        if isinstance(value, str):
            response[name] = value[:200]
        elif isinstance(value, int) and not isinstance(value, bool):
            response[name] = value
    finish, calls = choice.get("finish_reason"), _tool_calls(message.get("tool_calls"))
    finish = finish[:40] if isinstance(finish, str) else None
    finish = "length" if str(finish).lower() == "max_tokens" else finish  # Gemini's and Anthropic's
    return Reply(
        text, reasoning or thought, finish, usage, took, attempts, response, tool_calls=calls
    )


def _amount(said: Mapping[str, Any], name: str, most: float) -> float:
    """A number of tokens or of USD, 0 where it is not said. Raises ValueError for one that no single reply can have."""
    found = said.get(name) or 0
    if not isinstance(found, int | float) or not 0 <= found <= most:
        raise ValueError(f"{name}: {str(found)[:40]} is no number from 0 to {most:,}")
    return found


def _text(content: Any) -> str:
    """The text of a message's content, which may come in parts. Raises TypeError for another form."""
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content)
    if not isinstance(content or "", str):
        raise TypeError("content is not text")
    return content or ""


def _tool_calls(said: Any) -> list[ToolCall]:
    """The calls of tools in a message, each in OpenAI's form; what is none is left out."""
    found: list[ToolCall] = []
    for number, call in enumerate(said if isinstance(said, list) else ()):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        name, given, ident = function.get("name"), function.get("arguments"), call.get("id")
        arguments = given if isinstance(given, str) else json.dumps(given or {})
        found.append(
            {
                "id": ident if isinstance(ident, str) and ident else f"call_{number}",
                "type": "function",
                "function": {"name": name if isinstance(name, str) else "", "arguments": arguments},
            }
        )
    return found


def added(*usages: Mapping[str, Any]) -> Usage:
    """The usage of several requests together; what one of them does not say is None."""
    sums: dict[str, float | None] = {}
    for key, value in (pair for usage in usages for pair in usage.items()):
        before = sums.get(key, 0)
        sums[key] = None if value is None or before is None else before + value
    return cast(Usage, sums)


def guessed(text: str) -> int:
    """The tokens of a text where nobody counts them, rather too many: two bytes are one, and so is a digit."""
    return (len(text.encode("utf-8", "replace")) + sum(map(str.isdecimal, text)) + 1) // 2


class StreamSplitter:
    """Parts a reply that comes in pieces as `split_reasoning` parts a whole one. A piece that may be the beginning of a tag waits for
    the next. `enough`: whether the listener has heard enough, and the stream shall be left."""

    def __init__(self, on_chunk: OnChunk) -> None:
        self.on_chunk, self.enough = on_chunk, False
        self.came: dict[str, list[str]] = {"content": [], "reasoning": []}
        self.held = ""  # of the content, what has not been passed on
        self.state = "head"  # "reasoning" or "text" until a tag closes, "gap", "answer"

    @property
    def guessed(self) -> int:
        """How many tokens came, where nobody counts them: at least one a piece."""
        pieces = [piece for came in self.came.values() for piece in came]
        return max(guessed("".join(pieces)), len(pieces))

    def feed(self, delta: Mapping[str, Any] | None) -> None:
        """Take the next piece, the `delta` of an event. Raises TypeError for one of another form."""
        delta = delta or {}
        if thought := _text(delta.get("reasoning") or delta.get("reasoning_content")):
            self.came["reasoning"].append(thought)
            self.on_chunk("reasoning", thought)
        if piece := _text(delta.get("content")):
            self.came["content"].append(piece)
            self.held += piece
            self._pass_on(ended=False)

    def whole(self, data: Any) -> None:
        """Take a reply that came in one piece; one of another form is for `read` to refuse."""
        with contextlib.suppress(LookupError, TypeError, AttributeError):
            self.feed(data["choices"][0]["message"])
            self.end()

    def end(self) -> None:
        """Pass on what still waited."""
        self._pass_on(ended=True)

    def _pass_on(self, ended: bool) -> None:
        if self.state == "head":
            head = self.held.lstrip()
            opened = head.startswith("<think>")
            if not opened and not ended and "<think>".startswith(head):
                return
            self.state, self.held = ("reasoning", head[7:]) if opened else ("text", self.held)
        if self.state in ("reasoning", "text"):
            before, closed, after = self.held.partition("</think>")
            if not closed and not ended:
                held = next((n for n in range(7, 0, -1) if before.endswith("</think>"[:n])), 0)
                before, after = before[: len(before) - held], before[len(before) - held :]
            if before:
                self.on_chunk(self.state, before)
            if closed and self.state == "text":
                self.on_chunk("turn", "")
            self.state, self.held = ("gap" if closed else self.state), after
        if self.state == "gap":
            self.held = self.held.lstrip("\n")
        if self.state in ("gap", "answer") and self.held:
            self.on_chunk("text", self.held)
            self.state, self.held = "answer", ""
