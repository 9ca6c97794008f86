"""Serve rewards to training loops until told to stop."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web as http

from decksmith.core import cli, stream, web
from decksmith.train.rewards.adapters import Adapters
from decksmith.train.rewards.metrics import SPAN
from decksmith.train.rewards.reward_queue import RewardQueue, Store
from decksmith.train.rewards.rows import Rows
from decksmith.train.rewards.scorer import Scorer

BODY = 32 << 20  # bytes of a request: a collector's has tokens and their probabilities in it


@dataclass
class Settings:
    """How reward-serve was started.

    root      its folder
    rules     of assets/rewards, or a path to some
    prompts   a file of prompts that rows may name by id, or None
    allow     who may ask beside this machine, networks and addresses; none: whoever has the token
    jobs      decks that are rendered at once
    waiting   decks that may wait
    deadline  seconds that anybody waits for an answer
    """

    root: Path
    rules: str = "rendered"
    prompts: Path | None = None
    allow: tuple[str, ...] = ()
    jobs: int = 2
    waiting: int = 2048
    deadline: float = 100.0


def serve(settings: Settings, *, address: Path, host: str = "127.0.0.1", port: int = 0) -> None:
    """Serve until SIGTERM or Ctrl-C. Without a port it takes the one that it had last time, so that
    clients find it again after a restart. Raises cli.TryAgain for a root that another server has,
    cli.Missing where no deck can be rendered, cli.BadConfig for rules, and cli.BadData for prompts,
    that cannot be used."""
    root = settings.root
    web.Clients(settings.allow)  # what is wrong is said before a browser is started

    @contextlib.asynccontextmanager
    async def make(url: str) -> AsyncIterator[http.Application]:
        store = Store(root)
        try:
            rows = Rows(settings.prompts)
            scorer = Scorer(root, settings.rules, jobs=settings.jobs)
            try:
                async with _opened(settings, store, scorer, rows, url, address) as app:
                    yield app
            finally:
                await scorer.close()
        finally:
            store.close()

    web.run(make, host, port or web.last_port(root, host))


@contextlib.asynccontextmanager
async def _opened(
    settings: Settings, store: Store, scorer: Scorer, rows: Rows, url: str, address: Path
) -> AsyncIterator[http.Application]:
    """The application, once the renderer is warm."""
    await scorer.warm()
    queue = RewardQueue(
        scorer.score,
        store,
        # One is drawn while another is parsed or scored, and others wait for the judge.
        jobs=2 * settings.jobs + (scorer.judge.jobs if scorer.judge else 0),
        most=settings.waiting,
        deadline=settings.deadline,
    )
    token = web.secret(settings.root, "DECKSMITH_REWARD_TOKEN")
    app = web.application(token=token, clients=settings.allow or None, body=BODY)
    app.router.add_routes(Adapters(scorer, queue, rows).routes())
    stream.write(settings.root / "port", url.rpartition(":")[2])
    facts = {"url": url, "token": token, "job": os.environ.get("SLURM_JOB_ID")}
    facts |= {"host": socket.gethostname(), "rules": scorer.rules.sha256}
    async with queue:
        talking = asyncio.create_task(_talk(queue))
        try:
            with web.announced(address, facts):
                said = f"{url} rewards by {scorer.rules.name}, {len(store)} rewards are kept"
                cli.say(f"{said}; address and token are in {address}")
                yield app
        finally:
            talking.cancel()


async def _talk(queue: RewardQueue) -> None:
    """The line a minute; none where nothing happened."""
    before = ""
    while True:
        await asyncio.sleep(SPAN)
        said = queue.metrics.line()
        if said != before:
            cli.say(said)
        before = said
