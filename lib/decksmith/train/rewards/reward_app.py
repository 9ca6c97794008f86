"""Serve rewards to training loops until told to stop: one scorer, asked in the words of several loops.

Each answer is of one reply to one prompt. What is said of a fault of ours is in the loop's own
words, and never 0: NeMo Gym (nemo-gym 0.7.0) has `mask_sample`; ours has null.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from aiohttp import web as http

from decksmith.core import cli, stream, validation, web
from decksmith.train.rewards.reward_queue import SPAN, RewardQueue, RewardStore
from decksmith.train.rewards.rows import REPLY, RewardAnswer, Row, Rows, masked, spoken
from decksmith.train.rewards.rules import contributions
from decksmith.train.rewards.scorer import Scorer

AGAIN = {"Retry-After": "2"}  # seconds that a deck takes, about
BODY = 32 << 20  # bytes of a request: a collector's has tokens and their probabilities in it


def serve(
    root: Path,
    *,
    rules: str,
    prompts: Path | None,
    allow: Collection[str],
    jobs: int,
    waiting: int,
    deadline: float,
    address: Path,
    host: str,
    port: int,
) -> None:
    """Serve until SIGTERM or Ctrl-C. Without a port it takes the one that it had last time, so that
    clients find it again after a restart. Raises cli.TryAgain for a root that another server has,
    cli.Missing where no deck can be rendered, cli.BadConfig for rules, and cli.BadData for prompts,
    that cannot be used.

    rules     of assets/rewards, or a path to some
    prompts   a file of prompts that rows may name by id, or None
    allow     who may ask beside this machine, networks and addresses; none: whoever has the token
    jobs      decks that are rendered at once
    waiting   decks that may wait
    deadline  seconds that anybody waits for an answer
    """
    web.Clients(allow)  # what is wrong is said before a browser is started

    @contextlib.asynccontextmanager
    async def make(url: str) -> AsyncIterator[http.Application]:
        async with contextlib.AsyncExitStack() as stack:
            store = stack.enter_context(contextlib.closing(RewardStore(root)))
            rows = Rows(prompts)
            scorer = Scorer(root, rules, jobs=jobs)
            stack.push_async_callback(scorer.close)
            await scorer.warm()
            # One is drawn while another is parsed or scored, and others wait for the judge.
            at_once = 2 * jobs + (scorer.judge.jobs if scorer.judge else 0)
            queue = RewardQueue(scorer.score, store, jobs=at_once, most=waiting, deadline=deadline)
            token = web.secret(root, "DECKSMITH_REWARD_TOKEN")
            app = web.application(token=token, clients=allow or None, body=BODY)
            app.router.add_routes(RewardRoutes(scorer, queue, rows).table())
            stream.write(root / "port", url.rpartition(":")[2])
            facts = {"url": url, "token": token, "job": os.environ.get("SLURM_JOB_ID")}
            facts |= {"host": socket.gethostname(), "rules": scorer.rules.sha256}
            await stack.enter_async_context(queue)
            talking = asyncio.create_task(_talk(queue))
            stack.callback(talking.cancel)
            stack.enter_context(web.announced(address, facts))
            said = f"{url} rewards by {scorer.rules.name}, {len(store)} rewards are kept"
            cli.say(f"{said}; address and token are in {address}")
            yield app

    web.run(make, host, port or web.last_port(root, host))


async def _talk(queue: RewardQueue) -> None:
    """The line a minute; none where nothing happened."""
    before = ""
    while True:
        await asyncio.sleep(SPAN)
        said = queue.line()
        if said != before:
            cli.say(said)
        before = said


class RewardRoutes:
    """The handlers of the routes."""

    def __init__(self, scorer: Scorer, queue: RewardQueue, rows: Rows) -> None:
        self.scorer, self.queue, self.rows = scorer, queue, rows

    def table(self) -> list[http.RouteDef]:
        return [
            http.get("/health", self.health),
            http.post("/reward", self.reward),
            http.post("/verify", self.verify),
        ]

    async def _answer(self, row: Row, asked: object, reply: object) -> RewardAnswer:
        """The answer for the reply to a row's prompt. Raises cli.BadData for a row that cannot be
        used, and status 503 where the queue is full."""
        if not isinstance(reply, str):
            raise cli.BadData("the reply is not text")
        if len(reply) > REPLY:
            why = f"the reply has more than {REPLY} characters"
            return {"reward": 0.0, "components": {}, "masked": False, "why": why}
        prompt = self.rows.prompt(row, asked)
        try:
            return await self.queue.answer(self.scorer.key(prompt, reply), prompt, reply)
        except asyncio.QueueFull:
            self.queue.counts["refused 503"] += 1
            words = "the queue is full"
            raise http.HTTPServiceUnavailable(text=words, headers=AGAIN) from None

    async def reward(self, request: http.Request) -> http.Response:
        """{reply or response, prompt, id, asks, checklist, label} -> a RewardAnswer."""
        try:
            row = validation.parse(await request.read())
            reply = row["reply"] if "reply" in row else row.get("response")
            return http.json_response(await self._answer(row, row.get("prompt"), reply))
        except cli.BadData:
            self.queue.counts["refused 400"] += 1
            raise

    async def verify(self, request: http.Request) -> http.Response:
        """What a resources server of NeMo Gym is asked: the request and its reward."""
        body = validation.parse(await request.read())
        response, params = body.get("response"), body.get("responses_create_params")
        if not isinstance(response, dict) or not isinstance(params, dict):
            raise http.HTTPUnprocessableEntity(
                text="responses_create_params and response are missing"
            )
        asked = params.get("input")
        if isinstance(asked, list) and params.get("instructions"):
            asked = [{"role": "system", "content": spoken(params["instructions"])}, *asked]
        try:
            value = await self._answer(body, asked, reply_of(response))
        except cli.BadData as error:
            # A collector takes a status for a broken server, and a 0 for a bad deck: this is
            # neither.
            value = masked("row", str(error))
            self.queue.counts["masked row"] += 1
        return http.json_response(_verified(body, value))

    async def health(self, request: http.Request) -> http.Response:
        rules = self.scorer.rules
        said = {"status": "ok", "rules": rules.name, "sha256": rules.sha256}
        waiting, working = self.queue.queue.qsize(), self.queue.working
        counts = {"waiting": waiting, "working": working, "scored": self.queue.scored}
        return http.json_response(said | counts)


def reply_of(response: Row) -> str:
    """The text of the last message in an answer of OpenAI's Responses; empty where there is none."""
    items = response.get("output")
    for item in reversed(items if isinstance(items, list) else []):
        if isinstance(item, dict) and item.get("type") == "message":
            return spoken(item.get("content"))
    return ""


def _verified(body: Row, value: RewardAnswer) -> Row:
    """The answer of /verify: the request and its reward. `reward_components` sum to the reward, the
    same names for each row; `component_NAME` is each component as it was measured, for Gym's
    statistics."""
    said = {
        **body,
        "reward": value["reward"] or 0.0,
        "reward_components": contributions(value["components"]),
        **{f"component_{name}": quality for name, quality in value["components"].items()},
        "mask_sample": value["masked"],
        "why": value["why"],
        "failure_kind": None,
        "failure_reason": None,
    }
    if value["masked"]:
        # A kind that Gym has no name for bears ours (nemo_gym.failure_kinds).
        said |= {"failure_kind": f"decksmith:{value['cause']}", "failure_reason": value["why"]}
    return said
