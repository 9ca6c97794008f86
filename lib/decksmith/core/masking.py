"""Secrets by value: what must never be written, in whatever text leaves a process.

An endpoint may quote a key in an error, a proxy's address holds a password, a traceback shows a
header. So nobody has to remember where secrets may turn up: stderr (cli), records and journals
(stream.dumps) and whole files (stream.write) pass through `mask`, which knows the values.
"""

import functools
import json
import os
import re
from collections.abc import Iterable
from typing import Any, TextIO, TypeVar
from urllib.parse import unquote, urlsplit

# Characters of a secret. What only the name of a variable gives away must be longer than any word,
# or DB_PASSWORD=password would be cut out of decks; what was used as a key is one for certain.
SHORTEST, SHORTEST_BY_NAME = 8, 16
_NAME = re.compile(
    r"(?:^|_)(?:api_?)?(?:key|token|secret|password|passwd|pass|credentials?|auth)s?$", re.I
)
_PROXY = re.compile(r"(?:^|_)proxy$", re.I)
_added: dict[str, str] = {}
Text = TypeVar("Text", str, bytes)


def secret_name(name: str) -> bool:
    """Whether an environment variable of this name holds a secret: HF_TOKEN, OPENAI_API_KEY, .."""
    return bool(_NAME.search(name))


def add(value: str | None, name: str) -> None:
    """Mask `value`, line by line, as [name] from now on; it was used as a key."""
    _added.update((line, name) for line in (value or "").splitlines() if len(line) >= SHORTEST)
    _forms.cache_clear()


def known(shortest: int = SHORTEST_BY_NAME) -> dict[str, str]:
    """Every known secret, value to name: what variables hold by their names, if it has `shortest`
    characters and is no file's path; passwords in the addresses of proxies; and what was added."""
    found: dict[str, str] = {}
    for name, value in os.environ.items():
        if secret_name(name):
            lines = [line for line in value.splitlines() if len(line) >= shortest]
            found.update((line, name) for line in lines if not os.path.exists(line))
        elif _PROXY.search(name) and len(password := _password(value) or "") >= SHORTEST:
            found.update({password: name, unquote(password): name})
    return found | _added


def mask(text: Text) -> Text:
    """`text` with every known secret replaced by the name of what holds it."""
    for value, name, raw, mark in _forms():
        if isinstance(text, bytes):
            text = text.replace(raw, mark) if raw in text else text
        elif value in text:
            text = text.replace(value, f"[{name}]")
    return text


def shown(name: str, value: str) -> str:
    """How a setting is printed: "(set)" for a secret, else its value without any."""
    password = _PROXY.search(name) and _password(value)
    return "(set)" if secret_name(name) else mask(value.replace(password or "\n", "(set)"))


class Stream:
    """A text stream, such as stderr, that writes what `mask` leaves."""

    def __init__(self, inner: TextIO) -> None:
        self._inner = inner

    def write(self, text: str) -> int:
        self._inner.write(mask(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _password(address: str) -> str | None:
    try:
        return urlsplit(address if "//" in address else f"//{address}").password
    except ValueError:
        return None


@functools.cache
def _forms() -> list[tuple[str, str, bytes, bytes]]:
    """(value, name, bytes, mark) of each secret, also as it stands inside of JSON; longest first."""
    found = {}
    for value, name in known().items():
        for form in (value, json.dumps(value)[1:-1]):
            found[form] = name
    ordered = sorted(found.items(), key=lambda item: -len(item[0]))
    return [(v, n, v.encode("utf-8", "surrogateescape"), f"[{n}]".encode()) for v, n in ordered]
