"""What strangers send, and files that others could have made: bodies up to a bound, JSON that every reader can hold, no borrowed file.

The standard library only, so that no script waits for it.
"""

import errno
import json
import math
import os
import re
import stat
from collections.abc import AsyncIterable, Iterable
from pathlib import Path
from typing import Any

from decksmith.core import cli

DEEPEST = 200  # levels of JSON: whoever writes or checks it again needs as much of the stack
LONGEST = 300  # digits of a whole number: more is beyond a double, which jq and others read it as
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ELSE = bytes(set(range(256)) - set(b"[]{}"))


class TooLarge(ValueError):
    """A body that goes on beyond its bound."""


def together(chunks: Iterable[bytes], most: int) -> bytes:
    """A body of which parts come, unpacked where it was packed. Raises TooLarge beyond `most` bytes, before more is read."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > most:
            raise TooLarge(f"it has more than {most} bytes, unpacked")
    return bytes(body)


async def gathered(chunks: AsyncIterable[bytes], most: int, *, cut: bool = False) -> bytes:
    """`together`, of parts that are waited for; or `cut` there."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > most and cut:
            break
        if len(body) > most:
            raise TooLarge(f"it has more than {most} bytes, unpacked")
    return bytes(body[:most])


def parsed(data: str | bytes) -> Any:
    """The value of a stranger's JSON in UTF-8. Raises ValueError, a sentence, where `value` does and beyond DEEPEST levels."""
    data = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    found, depth = value(data), 0
    for sign in _STRING.sub(b"", data).translate(None, _ELSE):
        depth += 1 if sign in b"[{" else -1
        if depth > DEEPEST:
            raise ValueError("JSON nested too deeply")
    return found


def value(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError, a sentence, also where Python's own parser takes NaN, reads 1e999 as infinite, or
    is at the end of its stack."""
    try:
        return json.loads(
            text, parse_constant=no_constant, parse_float=_finite, parse_int=_countable
        )
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    except ValueError as error:
        why = re.sub(r": line 1 (column \d+).*", r", \1", str(error))
        raise ValueError(f"not JSON ({why})") from None


def no_constant(name: str) -> Any:
    """What `parse_constant` of json is. Raises ValueError."""
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


def _countable(digits: str) -> int:
    if len(digits) > LONGEST:
        raise ValueError(f"a number of {len(digits)} digits is too large")
    return int(digits)


SECRET = 0o022  # who may not write what is secret: the group, nor the rest; a journal: ..
RECORD = 0o002  # .. the rest; a lock has nothing in it, 0
KEPT = os.O_RDWR | os.O_CREAT  # what is made where it is not there


def own(path: str | Path, flags: int = KEPT, mode: int = 0o664, closed: int = RECORD) -> int:
    """A descriptor of a regular file that is ours: no symbolic link, of this user or of whoever has its folder, and with none of the
    mode bits `closed`. The folder itself may be a link, to another disk. Raises cli.Missing for any other file, and OSError as
    os.open does."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _refused(path, "is a symbolic link", "remove the link, or link its folder") from None
    info, owner = os.fstat(descriptor), os.stat(Path(path).parent).st_uid
    if not stat.S_ISREG(info.st_mode):
        wrong = _refused(path, "is no regular file", "remove it")
    elif info.st_uid not in (os.geteuid(), owner):
        wrong = _refused(path, f"is of user {info.st_uid}", "move it away, or chown it")
    elif info.st_mode & closed:
        wrong = _refused(path, "may be written by others", f"look at it, then chmod go-w {path}")
    else:
        return descriptor
    os.close(descriptor)
    raise wrong


def _refused(path: str | Path, what: str, mend: str) -> cli.Missing:
    return cli.Missing(f"{path} {what}: somebody else could have made it; {mend}")
