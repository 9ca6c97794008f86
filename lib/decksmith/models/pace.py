"""How fast requests are made: how many at once, and for how long one is tried."""

import asyncio
import random
import time


class Gate:
    """At most `width` requests at once. A 429 halves the width and holds everybody back for a while; successes widen it again
    (additive increase, multiplicative decrease, as TCP does)."""

    def __init__(self, jobs: int) -> None:
        self.jobs, self.width, self.inside, self.not_before = jobs, float(jobs), 0, 0.0
        self.waiting: list[asyncio.Future[None]] = []

    async def enter(self, wait: float) -> None:
        """Come in after `wait` seconds, and when there is room."""
        if wait:
            await asyncio.sleep(wait)
        while True:
            if (hold := self.not_before - time.monotonic()) > 0:
                await asyncio.sleep(hold + random.uniform(0, 0.1))
            elif self.inside >= int(self.width):
                turn = asyncio.get_running_loop().create_future()
                self.waiting.append(turn)
                try:
                    await turn
                except asyncio.CancelledError:  # the turn that came too late is another's
                    self._wake()
                    raise
            else:
                self.inside += 1
                return

    def leave(self) -> None:
        self.inside -= 1
        self._wake()

    def widen(self) -> None:
        self.width = min(self.jobs, self.width + 1 / self.width)
        self._wake()

    def narrow(self, wait: float) -> None:
        now = time.monotonic()
        if now >= self.not_before:  # once per storm, not once per request of it
            self.width = max(1.0, self.width / 2)
        self.not_before = max(self.not_before, now + wait)

    def _wake(self) -> None:
        free = int(self.width) - self.inside
        while free > 0 and self.waiting:
            turn = self.waiting.pop(0)
            if not turn.done():
                turn.set_result(None)
                free -= 1


class Clock:
    """The patience with one request, in seconds; it runs from the first attempt on, and not while that waits for its turn."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.started: float | None = None

    def start(self) -> None:
        self.started = self.started or time.monotonic()

    def left(self) -> float:
        if self.started is None:
            return self.patience
        return max(0.0, self.patience - (time.monotonic() - self.started))
