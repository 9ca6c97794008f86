"""The queue of decks that wait for a reward, each content once, however often it is asked for; what
of it is counted; and the rewards that were given, on disk: a deck that has one is never rendered
again."""

import asyncio
import sqlite3
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

from decksmith.core import cli, stream, web
from decksmith.train.rewards.rows import Prompt, RewardAnswer, masked

GRACE = 35.0  # seconds that a deck waits on for somebody who asks again; slime's pauses end at 31
SPAN = 60.0  # seconds that a line of counts is about

SCHEMA = """CREATE TABLE IF NOT EXISTS rewards
  (key TEXT PRIMARY KEY, value TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID"""

Score = Callable[[str, Prompt, str], Awaitable[RewardAnswer]]  # of scorer.Scorer


class RewardStore:
    """ROOT/rewards.db: answers by key. One process has a root, from here until `close`.

    What `put` returned from survives the end of this process; a power cut may take the last of
    them, which are then made anew. Raises as web.database does.
    """

    def __init__(self, root: Path) -> None:
        self.db = web.database(root / "rewards.db", SCHEMA, "reward-serve", "NORMAL")

    def get(self, key: str) -> RewardAnswer | None:
        """The answer of a key, or None."""
        row = self.db.execute("SELECT value FROM rewards WHERE key = ?", (key,)).fetchone()
        answer = stream.unsummed(row[0].encode()) if row else None
        if row and answer is None:
            stream.lost(f"the reward {key} is damaged on its disk", free=True)
        return cast(RewardAnswer | None, answer)

    def put(self, key: str, value: RewardAnswer) -> None:
        """Keep an answer. Raises sqlite3.OperationalError where the disk is full."""
        row = (key, stream.summed(value).decode(), time.time())
        self.db.execute("INSERT OR REPLACE INTO rewards VALUES (?, ?, ?)", row)

    def __len__(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM rewards").fetchone()[0])

    def close(self) -> None:
        self.db.close()


class _Deck:
    """A deck that waits or is in work; `done` gets its answer."""

    def __init__(self, key: str, prompt: Prompt, reply: str) -> None:
        self.key, self.prompt, self.reply = key, prompt, reply
        self.done: asyncio.Future[RewardAnswer] = asyncio.get_running_loop().create_future()
        self.asked_by = 0  # who wait for it now
        self.left_at = time.monotonic()  # when the last of them left

    @property
    def deserted(self) -> bool:
        return not self.asked_by and time.monotonic() - self.left_at > GRACE


class RewardQueue:
    """Answers in the order in which they were first asked for, `jobs` at a time; what has one is in
    the store. As an asynchronous context manager it works.

    most      decks that may wait
    deadline  seconds that anybody waits; the deck goes on, and whoever asks again joins it
    """

    def __init__(
        self, score: Score, store: RewardStore, *, jobs: int, most: int, deadline: float
    ) -> None:
        self.score, self.store = score, store
        self.jobs, self.deadline = jobs, deadline
        self.decks: dict[str, _Deck] = {}
        self.queue: asyncio.Queue[_Deck] = asyncio.Queue(most)
        self.working = self.scored = 0  # decks in work now; decks that were in work
        self.counts: Counter[str] = Counter()  # since the last line

    async def __aenter__(self) -> "RewardQueue":
        self.tasks = [asyncio.create_task(self._work()) for _ in range(self.jobs)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def answer(self, key: str, prompt: Prompt, reply: str) -> RewardAnswer:
        """The answer of a deck, masked with the cause `overload` when it is not there by the
        deadline. Raises asyncio.QueueFull."""
        if value := self.store.get(key):
            self.counts["cached"] += 1
            return value
        deck = self.decks.get(key)
        if deck is None:
            deck = _Deck(key, prompt, reply)
            self.queue.put_nowait(deck)
            self.decks[key] = deck
        value = await self._waited(deck)
        if value["masked"]:
            self.counts[f"masked {value['cause']}"] += 1
        return value

    def line(self) -> str:
        """What was answered, masked and refused since the last line, in a line."""
        counts, self.counts = self.counts, Counter()
        made = f"{counts.pop('scored', 0)} decks in {SPAN:.0f} s"
        kept = f"{counts.pop('cached', 0)} more from the cache"
        now = f"{self.working} in work, {self.queue.qsize()} waiting"
        more = [f"{what} {count}" for what, count in sorted(counts.items())]
        return "; ".join([f"{made}, {kept}", now, *more])

    async def _waited(self, deck: _Deck) -> RewardAnswer:
        deck.asked_by += 1
        try:
            async with asyncio.timeout(self.deadline):
                return await asyncio.shield(deck.done)
        except TimeoutError:
            why = f"no answer within {self.deadline:g} s; {self.queue.qsize()} decks wait"
            return masked("overload", why)
        finally:
            deck.asked_by -= 1
            deck.left_at = time.monotonic()

    async def _work(self) -> None:
        while True:
            deck = await self.queue.get()
            if deck.deserted:
                value = masked("deserted", "whoever asked has gone")
            else:
                self.working += 1
                self.scored += 1
                try:
                    value = await self._scored(deck)
                finally:
                    self.working -= 1
            del self.decks[deck.key]
            deck.done.set_result(value)

    async def _scored(self, deck: _Deck) -> RewardAnswer:
        """The answer of a deck, which is on disk when this returns, unless it is masked: that is
        tried again when asked."""
        try:
            value = await self.score(deck.key, deck.prompt, deck.reply)
            if not value["masked"]:
                self.store.put(deck.key, value)
                self.counts["scored"] += 1
        except sqlite3.Error as error:
            value = masked("infra", f"the reward cannot be kept: {cli.full(error) or error}")
        except Exception as error:
            traceback.print_exc()
            value = masked("scorer", f"{type(error).__name__}: {error}"[:500])
        return value
