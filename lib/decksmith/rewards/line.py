"""The line of decks that wait for a reward: each content once, however often it is asked for."""

import asyncio
import math
import sqlite3
import time
import traceback
from collections.abc import Awaitable, Callable

from decksmith.core import cli
from decksmith.core.records import Record
from decksmith.rewards.meter import Meter
from decksmith.rewards.scorer import masked
from decksmith.rewards.store import Store

GRACE = 35.0  # seconds that a deck waits on for somebody who asks again; slime's pauses end at 31
LONGEST = 30  # seconds, the longest pause that is asked for

Score = Callable[[str, Record, str], Awaitable[Record]]  # of scorer.Scorer


class Full(Exception):
    """The line is full; `seconds` is when to ask again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the line is full; again in {seconds} s")
        self.seconds = seconds


class _Deck:
    """A deck in the line or in work; `done` gets its answer."""

    def __init__(self, key: str, prompt: Record, reply: str) -> None:
        self.key, self.prompt, self.reply = key, prompt, reply
        self.done: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self.asked_by = 0  # who wait for it now
        self.left_at = time.monotonic()  # when the last of them left

    @property
    def deserted(self) -> bool:
        return not self.asked_by and time.monotonic() - self.left_at > GRACE


class Line:
    """Answers in the order in which they were first asked for, `jobs` at a time; what has one is in the store.

    most: decks that may wait. deadline: seconds that anybody waits; the deck goes on, and whoever asks again joins it.
    As an asynchronous context manager it works."""

    def __init__(
        self, score: Score, store: Store, *, jobs: int, most: int, deadline: float
    ) -> None:
        self.score, self.store = score, store
        self.jobs, self.most, self.deadline = jobs, most, deadline
        self.decks: dict[str, _Deck] = {}
        self.queue: asyncio.Queue[_Deck] = asyncio.Queue()
        self.room = asyncio.Condition()
        self.working = 0
        self.pace = 2.0  # seconds that a deck takes, smoothed
        self.meter = Meter(self.queue.qsize, lambda: self.working)

    async def __aenter__(self) -> "Line":
        self.tasks = [asyncio.create_task(self._work()) for _ in range(self.jobs)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def answer(
        self, key: str, prompt: Record, reply: str, *, patient: bool = False
    ) -> Record:
        """The answer of a deck: {reward, components, masked, why}, masked with the cause `overload` when it is not there by
        the deadline. Raises Full where the line is; `patient` waits for room instead."""
        began = time.monotonic()
        until = began + self.deadline
        source = "scored"
        while True:
            if value := self.store.get(key):
                source = "cached"
                break
            if deck := self.decks.get(key):
                source = "joined"
            elif self.queue.qsize() < self.most:
                deck = self._queued(key, prompt, reply)
            elif not patient:
                raise Full(self.pause())
            elif await self._room(until):
                continue
            value = await self._waited(deck, until) if deck else self._overload()
            break
        self.meter.answered(value, source, time.monotonic() - began)
        return value

    def pause(self) -> int:
        """Seconds until there is likely to be room for another deck."""
        return max(1, min(LONGEST, math.ceil(self.pace / self.jobs)))

    def _queued(self, key: str, prompt: Record, reply: str) -> _Deck:
        deck = self.decks[key] = _Deck(key, prompt, reply)
        self.queue.put_nowait(deck)
        return deck

    async def _room(self, until: float) -> bool:
        """Wait for room in the line; whether there is some, or was."""
        try:
            async with asyncio.timeout(until - time.monotonic()), self.room:
                await self.room.wait()
                return True
        except TimeoutError:
            return False

    async def _waited(self, deck: _Deck, until: float) -> Record:
        deck.asked_by += 1
        try:
            async with asyncio.timeout(until - time.monotonic()):
                return await asyncio.shield(deck.done)
        except TimeoutError:
            return self._overload()
        finally:
            deck.asked_by -= 1
            deck.left_at = time.monotonic()

    def _overload(self) -> Record:
        why = f"no answer within {self.deadline:g} s; {self.queue.qsize()} decks wait"
        return masked("overload", why)

    async def _work(self) -> None:
        while True:
            deck = await self.queue.get()
            async with self.room:
                self.room.notify()
            if deck.deserted:
                value = masked("deserted", "whoever asked has gone")
            else:
                self.working += 1
                try:
                    value = await self._scored(deck)
                finally:
                    self.working -= 1
            del self.decks[deck.key]
            deck.done.set_result(value)

    async def _scored(self, deck: _Deck) -> Record:
        """The answer of a deck, which is on disk when this returns, unless it is masked: that is tried again when asked."""
        began = time.monotonic()
        try:
            value = await self.score(deck.key, deck.prompt, deck.reply)
            if not value["masked"]:
                self.store.put(deck.key, value)
        except sqlite3.Error as error:
            value = masked("infra", f"the reward cannot be kept: {cli.full(error) or error}")
        except Exception as error:
            traceback.print_exc()
            value = masked("scorer", f"{type(error).__name__}: {error}"[:500])
        self.pace += 0.1 * (time.monotonic() - began - self.pace)
        return value
