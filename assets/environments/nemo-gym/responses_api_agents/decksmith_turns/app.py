"""A deck that may be revised: the model is told what the rendered deck lacks and answers again, up to `turns` answers in all.

What it is told is what the reward server says of the answer before: the findings that cost most, in text. The last answer is paid,
as if it stood alone. An answer that passes every check ends it, as does one that was cut off at the token limit. Where an answer
could not be measured through no fault of the model's, the rollout is masked: nobody knows what it would have become.

It runs under Gym 0.4 to 0.7 and asks the resources server for /look after each answer but the last, and for /verify at the end.
"""

from typing import Any

from fastapi import Body, Request, Response
from nemo_gym.base_resources_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseRunRequest,
    BaseVerifyResponse,
)
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, raise_for_status
from pydantic import ConfigDict, Field

TOLD = """This is what the rendered deck lacks: {why}

Answer with the whole deck again, mended."""


class TurnsConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    turns: int = Field(default=3, ge=1)  # answers, the first included


class TurnsRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class TurnsResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class TurnsAgent(SimpleResponsesAPIAgent):
    config: TurnsConfig

    async def responses(
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),
    ) -> NeMoGymResponse:
        """One answer of the model; it is `run` that revises."""
        said, cookies = await self._post(
            self.config.model_server, "/v1/responses", body, request.cookies
        )
        for name, value in cookies.items():
            response.set_cookie(name, value)
        return NeMoGymResponse.model_validate(said)

    async def run(self, request: Request, body: TurnsRequest) -> TurnsResponse:
        row = body.model_dump()
        params = body.responses_create_params
        asked = params.input
        if isinstance(asked, str):
            asked = [{"role": "user", "content": asked, "type": "message"}]
        # From Gym 0.5 on a rollout's calls of the model go by a path of its own.
        path = "/v1/responses"
        if own := getattr(self, "url_path_for_run", None):
            path = own(path, body)
        resources, cookies = self.config.resources_server, None
        _, session = await self._post(resources, "/seed_session", row, request.cookies)
        output: list[Any] = []
        lost = None
        for turn in range(1, self.config.turns + 1):
            now = params.model_copy(update={"input": [*asked, *output]})
            said, cookies = await self._post(self.config.model_server, path, now, cookies)
            NeMoGymResponse.model_validate(said)
            output += said["output"]
            if turn == self.config.turns or said.get("incomplete_details"):
                break
            seen, _ = await self._post(resources, "/look", {**row, "response": said}, session)
            if seen["lost"] or seen["passes"]:
                lost = seen["lost"]
                break
            told = TOLD.format(why=seen["why"])
            output.append({"role": "user", "content": told, "type": "message"})
        paid = {**row, "response": said, "lost": lost, "turns": turn}
        answer, _ = await self._post(resources, "/verify", paid, session)
        answer["response"]["output"] = output
        return TurnsResponse.model_validate(answer)

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:
        found, _ = await self._post(self.config.resources_server, "/aggregate_metrics", body, None)
        return AggregateMetrics.model_validate(found)

    async def _post(self, server: Any, path: str, body: Any, cookies: Any) -> tuple[Any, Any]:
        """What one of Gym's servers answers, and the cookies that belong to its session."""
        reply = await self.server_client.post(
            server_name=server.name, url_path=path, json=body, cookies=cookies
        )
        await raise_for_status(reply)
        return await get_response_json(reply), reply.cookies or cookies


if __name__ == "__main__":
    TurnsAgent.run_webserver()
