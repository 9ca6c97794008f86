"""Rewards of slide decks: what NeMo Gym asks of this resources server, reward servers of decksmith answer.

Which they are is said by DECKSMITH_REWARD_URL (several with commas) and DECKSMITH_REWARD_TOKEN, or DECKSMITH_REWARD_ADDRESS.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import sys
from typing import ClassVar

from pydantic import ConfigDict, PrivateAttr

from nemo_gym.base_resources_server import (
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    ReverifyMode,
    SimpleResourcesServer,
)

sys.path.insert(0, str(Path(__file__).parent))
import decksmith_reward

AT_ONCE = 1024  # decks that are waited for


class DecksConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS


class DecksRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class DecksResponse(BaseMultiRewardVerifyResponse):
    model_config = ConfigDict(extra="allow")


class DecksServer(SimpleResourcesServer):
    ray_enabled = False
    config: DecksConfig
    _threads: ThreadPoolExecutor = PrivateAttr(default_factory=lambda: ThreadPoolExecutor(AT_ONCE))

    async def verify(self, body: DecksRequest) -> DecksResponse:
        asked = body.model_dump(mode="json")
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._threads, decksmith_reward.verify, asked)
        except decksmith_reward.RewardUnavailable as error:
            found = {**asked, "reward": 0.0, "reward_components": {}, "mask_sample": True}
            found |= {"failure_kind": "transport_unreachable", "failure_reason": str(error)}
        return DecksResponse.model_validate(found)


if __name__ == "__main__":
    DecksServer.run_webserver()
