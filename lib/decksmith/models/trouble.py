"""Requests that failed: what an endpoint said, and whether asking again can help."""

import time
from collections.abc import Mapping

from decksmith.core.stream import Fault
from decksmith.models import context

RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
ENDS_ALL = {
    401: "the key is refused",
    402: "the account has no credit",
    403: "access is refused",
    404: "no such model or path",
}


class Trouble(Exception):
    """A request that failed; `final` when asking again cannot help, `after` the seconds the endpoint wants us to wait, `elsewhere` when
    its server is gone and another one is there, `overflow` (context.Overflow) when the request does not fit the context."""

    def __init__(
        self,
        cls: str,
        message: str,
        status: int | None = None,
        after: float | None = None,
        final: bool = False,
        elsewhere: bool = False,
        overflow: context.Overflow | None = None,
    ) -> None:
        super().__init__(message)
        self.cls, self.status, self.after = cls, status, after
        self.final, self.elsewhere, self.overflow = final, elsewhere, overflow

    @classmethod
    def status_error(
        cls, status: int, text: str, headers: Mapping[str, str], asked: int | None = None
    ) -> "Trouble":
        """The trouble of an answer with this HTTP status and body to a request for `asked` tokens."""
        said, over = " ".join(str(text).split())[:300], context.overflow(status, str(text), asked)
        return cls(
            f"http-{status}",
            f"HTTP {status}: {said}",
            status,
            retry_after(headers),
            status not in RETRIED,
            overflow=over,
        )


class Overflow(Fault):
    """A request that does not fit the model's context; its error has `context`, `prompt_tokens` and `max_tokens` as far as known."""

    def __init__(self, kind: str, said: context.Overflow, limit: int | None, words: str) -> None:
        known = {"context": said.context, "prompt_tokens": said.prompt, "max_tokens": limit}
        if said.most is not None:
            where = f"the model writes at most {said.most} tokens"
        else:
            size = f" of {said.context} tokens" if said.context else ""
            where = f"the request does not fit the model's context{size}"
        parts = []
        if said.prompt is not None:
            parts.append(f"the prompt has {said.prompt}")
        if limit is not None:
            parts.append(f"max_tokens asks for {limit}")
        super().__init__(
            kind,
            "context-overflow",
            f"{where}{': ' * bool(parts)}{', '.join(parts)} ({words})",
            retriable=False,
            **known,
        )
        self.said = said


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds from a Retry-After header (RFC 9110 10.2.3: seconds or a date), at most five minutes; None without one."""
    value = headers.get("retry-after-ms")
    try:
        if value:
            return min(300.0, max(0.0, float(value) / 1000))
        value = headers.get("retry-after")
        if not value:
            return None
        try:
            seconds = float(value)
        except ValueError:
            from email.utils import parsedate_to_datetime  # brings all of email

            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        return min(300.0, max(0.0, seconds))
    except (ValueError, TypeError):
        return None
