"""Requests that failed: what an endpoint said, and whether asking again can help."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from decksmith.core import incoming

RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
ENDS_ALL = {
    401: "the key is refused",
    402: "the account has no credit",
    403: "access is refused",
    404: "no such model or path",
}
# How endpoints say that a request does not fit their context is no standard: OpenAI documents the
# code `context_length_exceeded`; vLLM, sglang, llama-server, OpenRouter and others have sentences.
_OVERFLOWS = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|model's context length"
    r"|available context size|exceed context limit|prompt is too long|maximum prompt length"
    r"|maximum number of tokens allowed|exceeds? the configured limit|`max_new_tokens` must be"
    r"|supports at most \d+ completion tokens|cannot be greater than max_model_len",
    re.IGNORECASE,
)
# Statuses that speak of something else, whatever the words.
_ELSE = {401, 402, 403, 404, 408, 429}


@dataclass(eq=False)
class RequestError(Exception):
    """A request that failed; `final` when asking again cannot help, `after` the seconds the endpoint
    wants us to wait, `elsewhere` when its server is gone and another one is there, `overflows` when
    the request does not fit the context."""

    cls: str
    message: str
    status: int | None = None
    after: float | None = None
    final: bool = False
    elsewhere: bool = False
    overflows: bool = False

    def __str__(self) -> str:
        return self.message

    @classmethod
    def of_status(cls, status: int, text: str, headers: Mapping[str, str]) -> "RequestError":
        """That of an answer with this HTTP status and body. Whoever has no credit hears 429 of OpenAI, and whose key is wrong 400 of
        Gemini: asking again helps neither."""
        means = {429: (402, "insufficient_quota"), 400: (401, "API_KEY_INVALID|API key not valid")}
        other, words = means.get(status, (status, ""))
        stated, status = status, other if re.search(words, text) else status
        later = re.search(r'"retryDelay":\s*"([0-9.]{1,8})s', text)  # Gemini's
        return cls(
            f"http-{status}",
            f"HTTP {stated}: {' '.join(said(text).split())[:300]}",
            status,
            retry_after({"retry-after": later[1]} if later else headers),
            final=status not in RETRIED,
            overflows=status not in _ELSE and bool(_OVERFLOWS.search(text)),
        )


def said(text: str) -> str:
    """The message in an endpoint's JSON of an error, in the forms that there are; any other text as it is."""
    try:
        data = incoming.parsed(text)
    except ValueError:
        return text
    data = data[0] if isinstance(data, list) and data else data  # Gemini's
    for key in ("error", "message", "detail"):
        data = data.get(key) or data if isinstance(data, dict) else data
    return data if isinstance(data, str) else text


def remedy(words: str, sent: set[str], name: str) -> str:
    """The end of the sentence on a request that was refused for one of the fields `sent`: what to write into the model's entry."""
    quoted = re.findall(r"['\"`]([a-z_]+)['\"`]", words)
    field = next((each for each in quoted if each in sent - {"model", "messages"}), None)
    other = re.search(r"[Uu]se ['\"`]([a-z_]+)['\"`] instead", words)
    change = f'rename = {{ {field} = "{other[1]}" }}' if other else f'drop = ["{field}"]'
    return f"; write {change} into the entry [{name}], and ask again" if field else ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds from a Retry-After header (RFC 9110 10.2.3: seconds or a date), at most five minutes;
    None without one."""
    try:
        if value := headers.get("retry-after-ms"):
            seconds = float(value) / 1000
        elif value := headers.get("retry-after"):
            seconds = float(value) if value[0].isdigit() else _until(value)
        else:
            return None
    except (ValueError, TypeError):
        return None
    return min(300.0, max(0.0, seconds))


def _until(date: str) -> float:
    """Seconds until an HTTP date. Raises ValueError."""
    from email.utils import parsedate_to_datetime  # brings all of email

    return parsedate_to_datetime(date).timestamp() - time.time()
