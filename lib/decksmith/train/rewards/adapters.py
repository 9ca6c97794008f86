"""The routes of a reward server: one scorer, asked in the words of several training loops.

Each answer is of one reply to one prompt. What is said of a fault of ours is in the loop's own
words, and never 0: NeMo Gym (nemo-gym 0.7.0) has `mask_sample`; ours has null; slime's remote_rm,
which takes a number alone, has a status after which it asks again.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable

from aiohttp import web as http

from decksmith.core import cli, validation
from decksmith.train.rewards.components import contributions
from decksmith.train.rewards.reward_queue import Full, RewardQueue
from decksmith.train.rewards.rows import REPLY, Answer, Row, Rows, masked, spoken
from decksmith.train.rewards.rules import Rules
from decksmith.train.rewards.scorer import Scorer

# A collector that watches its rollouts puts this in front of Gym's paths.
GYM = ("", "/ng-rollout/{rollout}")
# Gym's shared names of what failed, by our cause; what it has no name for is ours (nemo_gym.failure_kinds).
KINDS = {
    "overload": "provider_quota_exhausted",
    "deserted": "cancelled",
    "infra": "provider_unavailable",
    "renderer": "verifier_error",
    "judge": "judge_failed",
    "scorer": "verifier_error",
    "row": "decksmith:row_without_prompt",
}
TASK, ROLLOUT = "_ng_task_index", "_ng_rollout_index"
STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "max": max,
    "min": min,
    "median": statistics.median,
    "std": lambda values: statistics.stdev(values) if len(values) > 1 else 0.0,
}


class Adapters:
    """The handlers of the routes."""

    def __init__(self, scorer: Scorer, queue: RewardQueue, rows: Rows) -> None:
        self.scorer, self.queue, self.rows = scorer, queue, rows
        self.metrics = queue.metrics

    def routes(self) -> list[http.RouteDef]:
        found = [
            http.get("/health", self.health),
            http.get("/metrics", self.prometheus),
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
        self, row: Row, asked: object, reply: object, *, patient: bool = False
    ) -> Answer:
        """The answer for the reply to a row's prompt. Raises cli.BadData for a row that cannot be
        used, Full."""
        if not isinstance(reply, str):
            raise cli.BadData("the reply is not text")
        if len(reply) > REPLY:
            why = f"the reply has more than {REPLY} characters"
            return {"reward": 0.0, "components": {}, "masked": False, "why": why}
        prompt = self.rows.prompt(row, asked)
        key = self.scorer.key(prompt, reply)
        return await self.queue.answer(key, prompt, reply, patient=patient)

    # Ours, and slime's and miles' remote_rm

    async def reward(self, request: http.Request) -> http.Response:
        """{reply or response, prompt, id, asks, checklist, label} -> an Answer."""
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
            return self._busy(self.queue.pause(), f"{value['cause']}: {value['why']}")
        return http.json_response(value["reward"])

    async def _of_body(self, request: http.Request) -> Answer:
        try:
            row = validation.parse(await request.read())
            reply = row["reply"] if "reply" in row else row.get("response")
            return await self._answer(row, row.get("prompt"), reply)
        except cli.BadData:
            self.metrics.refused["400"] += 1
            raise

    def _busy(self, seconds: int, words: str) -> http.Response:
        self.metrics.refused["503"] += 1
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
        asked = params.get("input")
        if isinstance(asked, list) and params.get("instructions"):
            asked = [{"role": "system", "content": spoken(params["instructions"])}, *asked]
        try:
            value = await self._answer(body, asked, reply_of(response), patient=True)
        except cli.BadData as error:
            # A collector takes a status for a broken server, and a 0 for a bad deck: this is
            # neither.
            value = masked("row", str(error))
            self.metrics.answered(value, "scored", 0.0)
        return http.json_response(_verified(body, value, self.scorer.rules))

    async def aggregate(self, request: http.Request) -> http.Response:
        body = validation.parse(await request.read())
        responses = body.get("verify_responses")
        if not isinstance(responses, list) or not all(isinstance(one, dict) for one in responses):
            raise http.HTTPUnprocessableEntity(text="verify_responses: not a list of objects")
        return http.json_response(aggregated(responses))

    async def reverify(self, request: http.Request) -> http.Response:
        """A stored rollout may be scored again: all that counts is in it."""
        return http.json_response("stateless")

    # The server

    async def health(self, request: http.Request) -> http.Response:
        rules = self.scorer.rules
        said = {"status": "ok", "rules": rules.name, "sha256": rules.sha256}
        return http.json_response({**said, "waiting": self.queue.queue.qsize()})

    async def prometheus(self, request: http.Request) -> http.Response:
        kind = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return http.Response(body=self.metrics.prometheus().encode(), headers=kind)


# NeMo Gym's words


def reply_of(response: Row) -> str:
    """The text of the last message in an answer of OpenAI's Responses; empty where there is none."""
    items = response.get("output")
    for item in reversed(items if isinstance(items, list) else []):
        if isinstance(item, dict) and item.get("type") == "message":
            return spoken(item.get("content"))
    return ""


def _verified(body: Row, value: Answer, rules: Rules) -> Row:
    """The answer of /verify: the request and its reward. `reward_components` sum to the reward, the
    same names for each row; `component_NAME` is each component as it was measured, for Gym's
    statistics."""
    said = {
        **body,
        "reward": value["reward"] or 0.0,
        "reward_components": shares(value, rules),
        **{f"component_{name}": quality for name, quality in value["components"].items()},
        "mask_sample": value["masked"],
        "failure_kind": None,
        "failure_reason": None,
    }
    if value["masked"]:
        said |= {"failure_kind": KINDS.get(value["cause"], "verifier_error")}
        said |= {"failure_reason": value["why"]}
    return said


def shares(value: Answer, rules: Rules) -> dict[str, float]:
    """What each component with a weight brings to the reward, gates included; together they are the
    reward."""
    parts = contributions(value["components"], rules)
    total = sum(parts.values())
    scale = (value["reward"] or 0.0) / total if total else 0.0
    return {name: parts.get(name, 0.0) * scale for name in rules.weights}


def aggregated(responses: list[Row]) -> dict[str, object]:
    """The answer of /aggregate_metrics: mean, max, min, median and standard deviation of each
    number of the responses, those of their tokens too, over all (`agent_metrics`) and by task
    (`group_level_metrics`). What is masked is counted and nothing else."""
    kept = [one for one in responses if not one.get("mask_sample")]
    tasks: defaultdict[object, list[Row]] = defaultdict(list)
    for one in kept:
        tasks[one.get(TASK)].append(one)
    overall = _summary(kept)
    if len(kept) < len(responses):
        every, measured = ({one.get(TASK) for one in rows} for rows in (responses, kept))
        overall |= {
            "coverage/measured_rollouts": len(kept),
            "coverage/masked_rollouts": len(responses) - len(kept),
            "coverage/measured_tasks": len(measured),
            "coverage/fully_masked_tasks": len(every - measured),
        }
    shown = ("mean/", "coverage/")
    return {
        "group_level_metrics": [{TASK: task, **_summary(rows)} for task, rows in tasks.items()],
        "agent_metrics": overall,
        "key_metrics": {name: each for name, each in overall.items() if name.startswith(shown)},
    }


def _summary(rows: list[Row]) -> dict[str, float]:
    """{"mean/reward": .., ..} of the numbers at the top of rows, and of their tokens."""
    columns: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        response = row.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        for name, value in {**row, **(usage if isinstance(usage, dict) else {})}.items():
            is_number = isinstance(value, bool | int | float) and math.isfinite(value)
            if is_number and not name.startswith("_") and name != "mask_sample":
                columns[name].append(float(value))
    return {
        f"{how}/{name}": float(function(values))
        for how, function in STATISTICS.items()
        for name, values in columns.items()
    }
