"""The doors of a reward server: one scorer, asked in the words of several training loops.

Each answer is of one reply to one prompt. What a door says of a fault of ours is in its own words, and never 0: NeMo Gym has
`mask_sample`; ours has null; slime's remote_rm, which takes a number alone, has a status after which it asks again.
"""

from typing import Any

from aiohttp import web as http

from decksmith.core import cli, validation
from decksmith.core.records import Record
from decksmith.rewards import gym
from decksmith.rewards.line import Full, Line
from decksmith.rewards.rows import REPLY, Rows, spoken
from decksmith.rewards.scorer import Scorer, masked

# A collector that watches its rollouts puts this in front of Gym's paths.
GYM = ("", "/ng-rollout/{rollout}")


class Doors:
    """The handlers of the routes."""

    def __init__(self, scorer: Scorer, line: Line, rows: Rows) -> None:
        self.scorer, self.line, self.rows = scorer, line, rows

    def routes(self) -> list[http.RouteDef]:
        found = [
            http.get("/health", self.health),
            http.get("/metrics", self.metrics),
            http.post("/reward", self.reward),
            http.post("/rm", self.number),
        ]
        for before in GYM:
            found += [
                http.post(before + "/seed_session", self.seed),
                http.post(before + "/close_session", self.seed),
                http.post(before + "/verify", self.verify),
                http.post(before + "/aggregate_metrics", self.aggregate),
                http.get(before + "/reverify_mode", self.reverify),
            ]
        return found

    async def _answer(
        self, row: Record, asked: object, reply: object, *, patient: bool = False
    ) -> Record:
        """The answer for the reply to a row's prompt. Raises cli.BadData for a row that cannot be used, Full."""
        if not isinstance(reply, str):
            raise cli.BadData("the reply is not text")
        if len(reply) > REPLY:
            why = f"the reply has more than {REPLY} characters"
            return {"reward": 0.0, "components": {}, "masked": False, "why": why}
        prompt = self.rows.prompt(row, asked)
        key = self.scorer.key(prompt, reply)
        return await self.line.answer(key, prompt, reply, patient=patient)

    # Ours, and slime's and miles' remote_rm

    async def reward(self, request: http.Request) -> http.Response:
        """{reply or response, prompt, id, asks, checklist, label} -> {reward or null, components, masked, why}."""
        try:
            return http.json_response(await self._of_body(request))
        except Full as full:
            return self._busy(full.seconds, str(full))

    async def number(self, request: http.Request) -> http.Response:
        """{prompt, response, label} -> the reward, a JSON number."""
        try:
            value = await self._of_body(request)
        except Full as full:
            return self._busy(full.seconds, str(full))
        if value["masked"]:
            return self._busy(self.line.pause(), f"{value['cause']}: {value['why']}")
        return http.json_response(value["reward"])

    async def _of_body(self, request: http.Request) -> Record:
        try:
            row = validation.parse(await request.read())
            reply = row["reply"] if "reply" in row else row.get("response")
            return await self._answer(row, row.get("prompt"), reply)
        except cli.BadData:
            self.line.meter.refused["400"] += 1
            raise

    def _busy(self, seconds: int, words: str) -> http.Response:
        self.line.meter.refused["503"] += 1
        return http.json_response(
            {"error": words}, status=503, headers={"Retry-After": str(seconds)}
        )

    # NeMo Gym's resources server

    async def seed(self, request: http.Request) -> http.Response:
        """We keep no session: what names one has its name again."""
        body = validation.parse(await request.read())
        name = "resources_session_id"
        return http.json_response({name: body[name]} if name in body else {})

    async def verify(self, request: http.Request) -> http.Response:
        body = validation.parse(await request.read())
        response, params = body.get("response"), body.get("responses_create_params")
        if not isinstance(response, dict) or not isinstance(params, dict):
            raise http.HTTPUnprocessableEntity(
                text="responses_create_params and response are missing"
            )
        asked: Any = params.get("input")
        if isinstance(asked, list) and params.get("instructions"):
            asked = [{"role": "system", "content": spoken(params["instructions"])}, *asked]
        try:
            value = await self._answer(body, asked, gym.reply(response), patient=True)
        except cli.BadData as error:
            # A collector takes a status for a broken server, and a 0 for a bad deck: this is neither.
            value = masked("row", str(error))
            self.line.meter.answered(value, "scored", 0.0)
        return http.json_response(gym.verified(body, value, self.scorer.rules))

    async def aggregate(self, request: http.Request) -> http.Response:
        body = validation.parse(await request.read())
        responses = body.get("verify_responses")
        if not isinstance(responses, list) or not all(isinstance(one, dict) for one in responses):
            raise http.HTTPUnprocessableEntity(text="verify_responses: not a list of objects")
        return http.json_response(gym.aggregated(responses))

    async def reverify(self, request: http.Request) -> http.Response:
        """A stored rollout may be scored again: all that counts is in it."""
        return http.json_response("stateless")

    # The server

    async def health(self, request: http.Request) -> http.Response:
        rules = self.scorer.rules
        said = {"status": "ok", "rules": rules.name, "sha256": rules.sha256}
        return http.json_response({**said, "waiting": self.line.queue.qsize()})

    async def metrics(self, request: http.Request) -> http.Response:
        text = self.line.meter.prometheus()
        return http.Response(
            body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )
