"""Requests that do not fit a model's context: how endpoints say so, and how many tokens of reply would fit.

There is no standard. OpenAI documents the code `context_length_exceeded`; vLLM, sglang, llama.cpp's llama-server, OpenRouter and
others each have a sentence of their own, some with both numbers, some with one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from decksmith.core.records import Record

LIMITS = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
)  # names of a reply's most tokens
_ELSE = {401, 402, 403, 404, 408, 429}  # statuses that speak of something else, whatever the words
_SAYS = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|model's context length"
    r"|available context size|exceed context limit|prompt is too long|maximum prompt length"
    r"|maximum number of tokens allowed|exceeds? the configured limit|`max_new_tokens` must be"
    r"|supports at most \d+ completion tokens|cannot be greater than max_model_len",
    re.IGNORECASE,
)
_OVER = r"(?:>|\\u003e)"
_CONTEXT = (
    r"context length (?:is|of)(?: only)? (\d+)",  # OpenAI, vLLM, sglang, OpenRouter
    r"context length \((\d+)",  # sglang, of a prompt
    r"context size \((\d+)",  # llama-server
    r'"n_ctx": ?(\d+)',  # llama-server
    r"the context holds (\d+)",  # the embedded engine
    r"(\d+) maximum context length",  # Mistral
    r"maximum prompt length is (\d+)",  # xAI
    r"tokens allowed \((\d+)",  # Gemini
    r"configured limit of (\d+)",  # OpenAI, newer models
    rf"context limit: \d+ \+ \d+ {_OVER} (\d+)",  # Anthropic
    rf"too long: \d+ tokens {_OVER} (\d+)",  # Anthropic
    r"`max_new_tokens` must be <= (\d+)",  # TGI
)
_PROMPT = (
    r"\((\d+) (?:in the messages|in your prompt|in the prompt|of text input)",
    r"(\d+) tokens from the input messages",
    r"has (\d+) input tokens",
    r"messages resulted in (\d+) tokens",
    r"request \((\d+) tokens",
    r'"n_prompt_tokens": ?(\d+)',
    r"the prompt has (\d+) tokens",
    r"input \((\d+) tokens",
    r"prompt contains (\d+) tokens",
    r"request contains (\d+) tokens",
    r"token count \((\d+)",
    r"too long: (\d+) tokens",
    r"context limit: (\d+) \+",
    r"given: (\d+) `inputs`",
)
_TOTAL = (r"you requested (?:about )?(\d+) tokens",)
_LEAST = (r"at least (\d+) input tokens",)  # vLLM stops counting where it is too much
_MOST = (
    r"supports at most (\d+) completion tokens",
    r"cannot be greater than max_model_len=(\d+)",  # vLLM 0.32, which else shortens in silence
)


@dataclass
class Overflow:
    """What an endpoint said of a request that does not fit; None is what it did not say. All in tokens.

    context: of prompt and reply together. prompt: of this prompt. least: at least so many of this prompt. most: of any reply.
    """

    context: int | None = None
    prompt: int | None = None
    least: int | None = None
    most: int | None = None

    def room(self) -> int | None:
        """How many tokens a reply may have, zero or less for none; None where that was not said."""
        if self.most is not None:
            return self.most
        if self.context is None:
            return None
        if self.prompt is not None:
            return self.context - self.prompt
        return 0 if self.least is not None and self.least >= self.context else None


def overflow(status: int, text: str, asked: int | None = None) -> Overflow | None:
    """What an answer with this status and body says of a request for `asked` tokens; None if it speaks of something else."""
    if status in _ELSE or not _SAYS.search(text):
        return None
    found = Overflow(*(_number(patterns, text) for patterns in (_CONTEXT, _PROMPT, _LEAST, _MOST)))
    total = _number(_TOTAL, text)
    if found.prompt is None and total is not None and asked is not None and total > asked:
        found.prompt = total - asked
    return found


def limit_of(body: Record) -> tuple[str | None, int | None]:
    """Where a request says how many tokens its reply may have, and how many; (None, None) where it does not."""
    for name in LIMITS:
        if isinstance(body.get(name), int) and not isinstance(body[name], bool):
            return name, body[name]
    return None, None


def _number(patterns: Iterable[str], text: str) -> int | None:
    for pattern in patterns:
        if found := re.search(pattern, text, re.IGNORECASE):
            return int(found[1])
    return None
