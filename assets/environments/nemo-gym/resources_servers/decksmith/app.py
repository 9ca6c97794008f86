"""Rewards of slide decks: what NeMo Gym asks of this resources server, reward servers of decksmith answer.

Which they are is said by DECKSMITH_REWARD_URL (several with commas) and DECKSMITH_REWARD_TOKEN, or DECKSMITH_REWARD_ADDRESS.
It runs under Gym 0.4 to 0.7: what 0.4 does not have is left out.

A deck that nobody could measure, through no fault of the model's, has no reward. Trainers that read `mask_sample` leave it out
(NeMo-RL that of `instance_config`, and keeps its number in the group's mean); others train on the number. So the number is the
mean of the other decks of its prompt, which moves nothing; and where too many are without a reward, the run ends.

/look is asked by the agent decksmith_turns: what is wrong with a deck that its model may still revise. It is counted nowhere.
"""

import asyncio
import hashlib
import json
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from fastapi import FastAPI, HTTPException
from nemo_gym import base_resources_server as gym
from pydantic import ConfigDict, PrivateAttr

sys.path.insert(0, str(Path(__file__).parent))
import decksmith_reward

AT_ONCE = 1024  # decks that are waited for
RECENT, FEWEST = 400, 40  # answers among which faults are counted, and how many say something
WAIT = 300.0  # seconds for the other decks of a prompt
ANSWER = getattr(gym, "BaseMultiRewardVerifyResponse", gym.BaseVerifyResponse)


class DecksConfig(gym.BaseResourcesServerConfig):
    if hasattr(gym, "ReverifyMode"):
        REVERIFY_MODE: ClassVar[Any] = gym.ReverifyMode.STATELESS

    samples: int = 1  # of a prompt in a step: the trainer's num_generations_per_prompt
    faults: float = 0.25  # the share of decks without a reward from which on a run is worth nothing


class DecksRequest(gym.BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class DecksResponse(ANSWER):
    model_config = ConfigDict(extra="allow")


class Group:
    """The answers to one prompt in one step."""

    def __init__(self) -> None:
        self.rewards: list[float] = []
        self.lost = 0

    def size(self) -> int:
        return len(self.rewards) + self.lost


def _lost(asked: dict[str, Any], kind: str, why: str) -> dict[str, Any]:
    """The answer for a deck that nobody could measure."""
    found = {**asked, "reward_components": {}, "mask_sample": True}
    return {**found, "failure_kind": kind, "failure_reason": why}


class DecksServer(gym.SimpleResourcesServer):
    ray_enabled: ClassVar[bool] = False
    config: DecksConfig
    _threads: ThreadPoolExecutor = PrivateAttr(default_factory=lambda: ThreadPoolExecutor(AT_ONCE))
    _groups: dict[str, Group] = PrivateAttr(default_factory=dict)
    # Of the last answers the reward, None where there was none.
    _recent: deque[float | None] = PrivateAttr(default_factory=lambda: deque(maxlen=RECENT))

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/look")(self.look)
        return app

    async def look(self, body: DecksRequest) -> dict[str, Any]:
        """{"why": what is wrong, "passes": whether nothing is, "lost": why nobody can say, or None}."""
        found = await self._measured(body.model_dump(mode="json"))
        lost = found["failure_reason"] if found.get("mask_sample") else None
        return {"why": found.get("why", ""), "passes": found.get("reward") == 1.0, "lost": lost}

    async def verify(self, body: DecksRequest) -> DecksResponse:
        asked = body.model_dump(mode="json")
        group = self._group(asked)
        if why := asked.get("lost"):  # an answer before this one could not be measured
            found = _lost(asked, "decksmith:look", why)
        else:
            found = await self._measured(asked)
        lost = bool(found.get("mask_sample"))
        self._recent.append(None if lost else found["reward"])
        if not lost:
            group.rewards.append(found["reward"])
            return DecksResponse.model_validate(found)
        group.lost += 1
        self._refuse_if_many(found["failure_reason"])
        found["reward"] = await self._neutral(group)
        found["instance_config"] = {**(asked.get("instance_config") or {}), "mask_sample": True}
        return DecksResponse.model_validate(found)

    async def _measured(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What the reward servers say, or that none answers."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, decksmith_reward.verify, asked)
        except decksmith_reward.RewardUnavailable as error:
            return _lost(asked, "transport_unreachable", str(error))

    def _group(self, asked: dict[str, Any]) -> Group:
        """The answers to this prompt in this step; those of a step before were all there."""
        prompt = [asked["responses_create_params"].get("input"), asked.get("label")]
        key = hashlib.sha256(json.dumps(prompt, sort_keys=True).encode()).hexdigest()
        group = self._groups.get(key)
        if group is None or group.size() >= self.config.samples:
            group = self._groups[key] = Group()
        return group

    async def _neutral(self, group: Group) -> float:
        """The mean of the others' rewards, once they are there; without any, that of all prompts."""
        until = time.monotonic() + WAIT
        while group.size() < self.config.samples and time.monotonic() < until:
            await asyncio.sleep(0.2)
        known = group.rewards or [one for one in self._recent if one is not None]
        return sum(known) / len(known) if known else 0.0

    def _refuse_if_many(self, why: str) -> None:
        """End the run where too many decks have no reward. Raises HTTPException."""
        lost = self._recent.count(None)
        if len(self._recent) >= FEWEST and lost > self.config.faults * len(self._recent):
            said = f"of the last {len(self._recent)} decks {lost} have no reward, more than {self.config.faults:.0%}"
            raise HTTPException(500, f"decksmith: {said}; the last: {why}")


if __name__ == "__main__":
    DecksServer.run_webserver()
