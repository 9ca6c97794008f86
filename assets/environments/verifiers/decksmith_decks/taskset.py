"""Requests for decks, each with what is to be checked of its answer."""

import json
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from decksmith_decks import decksmith_reward

PROMPTS = Path(__file__).with_name("prompts.jsonl")
TOLD = """This is what the rendered deck lacks: {why}

Answer with the whole deck again, mended."""


class DeckData(vf.TaskData):
    """A request; `row` has its id, its messages, and what is to be checked."""

    row: dict[str, Any]


class DeckTask(vf.Task[DeckData]):
    """One request for a deck, rewarded from 0 to 1 by a reward server."""

    @vf.reward(weight=1.0)
    async def deck(self, trace: vf.Trace) -> float:
        answer = await self.measured(trace.last_reply)
        for name, quality in answer["components"].items():
            trace.record_metric(name, float(quality))
        return float(answer["reward"])

    async def measured(self, reply: str) -> dict[str, Any]:
        """What the reward server says of a reply. Raises RuntimeError where nobody could measure it."""
        answer = await decksmith_reward.ask_async({**self.data.row, "reply": reply})
        if answer["masked"]:
            raise RuntimeError(
                f"the deck could not be measured ({answer['cause']}): {answer['why']}"
            )
        return answer


class DecksEnvConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig()
    turns: int = 1
    """Answers, the first included. The last one is rewarded, as if it stood alone."""


class DecksEnv(vf.Env[DecksEnvConfig]):
    """A deck that may be revised: the model is told what the rendered deck lacks, and answers again."""

    async def run(self, task: Any, agents: Any) -> None:
        if self.config.turns <= 1:
            await agents.agent.run(task)
            return
        async with agents.agent.interaction(task) as talk:
            said = await talk.turn()
            for _ in range(self.config.turns - 1):
                if said.terminated:
                    break
                answer = await task.measured(said.last_reply)
                if answer["reward"] == 1:
                    break
                said = await talk.turn(TOLD.format(why=answer["why"]))


class DecksTaskset(vf.Taskset[DeckTask, vf.TasksetConfig]):
    """The requests of prompts.jsonl."""

    def load(self) -> list[DeckTask]:
        rows = map(json.loads, PROMPTS.read_text(encoding="utf-8").splitlines())
        return [DeckTask(self._data(row), self.config.task) for row in rows]

    @staticmethod
    def _data(row: dict[str, Any]) -> DeckData:
        said = {message["role"]: message["content"] for message in row["messages"]}
        return DeckData(
            id=row["id"], prompt=said["user"], system_prompt=said.get("system"), row=row
        )
