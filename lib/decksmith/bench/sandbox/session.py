"""An interpreter in a cell whose variables persist."""

import contextlib
import json
import socket
import threading
import time
from typing import Any

from decksmith.bench.sandbox.cell import (
    STATUSES,
    TIMEOUT,
    Limits,
    Pipes,
    Result,
    follow,
    give,
    order,
    result,
    sealed,
)

CPU = 60  # of a session, unless it is said: so many times the wall time of a call
OUT_OF_TURN = "it spoke out of turn"


class Dead(Exception):
    """The session has ended; the message says of what."""


class Session:
    """An interpreter that waits for the next piece of code, and stands still between calls. `dead`
    is None, or says of what it died.

    control: of a cell whose guard waits for its order; walls: what is around it."""

    def __init__(self, control: socket.socket, limits: Limits, walls: str) -> None:
        self.control, self.limits, self.walls = control, limits, walls
        self.dead: str | None = None
        self.number = 0  # of calls
        self.lock, self.pipes = threading.Lock(), Pipes(limits.output)
        self.talk, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        whole = limits.model_copy(update={"cpu": limits.cpu or CPU * limits.wall})
        with theirs, sealed(b"") as nothing:
            held = [nothing.fileno(), *self.pipes.writes, theirs.fileno()]
            give(control, order("", limits=whole), held)
        self.pipes.sent()

    def run(self, code: str) -> Result:
        """A Result. A call that is out of time is interrupted, and ends the session if it does not
        heed that. Raises Dead."""
        with self.lock:
            if self.dead:
                raise Dead(self.dead)
            began = time.monotonic()
            self._ask(code)
            said = follow(self.control, self.pipes, began + self.limits.wall, self.talk)
            late = said == TIMEOUT
            if late:
                self._tell(b"interrupt")
                said = follow(self.control, self.pipes, time.monotonic() + 1, self.talk)
            report, answered = _judged(said, self.number, late)
            alive = answered and not self.pipes.over
            if alive:
                self._tell(b"stop")
            found = result(report, self.pipes, began, self.limits, self.walls)
            if not alive:
                self._end(f"the session died: {found.status}: {found.message}")
            return found

    def close(self) -> None:
        """End its processes."""
        self._end("the session was closed")

    def _ask(self, code: str) -> None:
        """Let it go on, with the next piece of code."""
        self.number += 1
        self.pipes.begin(self.limits.output)
        asked = json.dumps({"number": self.number, "code": code}).encode()
        self._tell(b"go")
        with contextlib.suppress(OSError), sealed(asked) as file:
            socket.send_fds(self.talk, [b"order"], [file.fileno()])

    def _tell(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            self.control.send(word)

    def _end(self, why: str) -> None:
        if not self.dead:
            self.dead = why
            self.pipes.close()
            self.talk.close()
            self.control.close()


def _judged(
    said: dict[str, Any] | bytes | None, number: int, late: bool
) -> tuple[dict[str, Any], bool]:
    """What is reported of call `number`, and whether the interpreter answered it: else it ended,
    which a session's must not, or it spoke out of turn."""
    answer = _answer(said, number) if isinstance(said, bytes) else None
    if answer is not None:
        return (answer | {"status": "timeout"} if late else answer), True
    report = {"status": "killed", "code": None, "message": OUT_OF_TURN}
    if isinstance(said, dict):
        report = dict(said)
    if late:
        report["status"] = "timeout"
    elif report["status"] in ("ok", "error"):
        report["status"] = "killed"
        report["message"] = f"its process ended, exit status {report.get('code')}"
    return report, False


def _answer(said: bytes, number: int) -> dict[str, Any] | None:
    """The reply to call `number`, or None: the stranger shares the process that speaks, so nothing
    in it is trusted."""
    try:
        reply = json.loads(said)
        status, code = reply["status"], reply["code"]
        if reply["number"] != number or status not in STATUSES or type(code) is not int:
            return None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return {"status": status, "code": code, "finished": status == "ok"}
