"""Stands where NeMo-RL's GRPO driver stands in its image, for tests/slurm: the same command line, recipe, checkpoint layout and exit codes.

It trains no model and samples from none: the "rollouts" of a prompt are decks of data/gold cut at several lengths, and what it
learns is which length pays, one number. Ray, the rows of NeMo Gym, its request bodies, the reward servers that answer them and the
overlay of the image are real: a worker on each node writes into the image, as NeMo-RL does, and asks /verify through the very client
that our resources server uses. `standin` in the recipe: {"decks": folder of gold decks, "pause": seconds a step}.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import ray
import yaml
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

GYM = Path("/opt/nemo-rl/3rdparty/Gym-workspace/Gym/resources_servers/decksmith")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    options, _ = parser.parse_known_args()
    config = yaml.safe_load(Path(options.config).read_text())
    ray.init(address="auto", log_to_driver=True)
    nodes, gpus = config["cluster"]["num_nodes"], config["cluster"]["gpus_per_node"]
    group = placement_group([{"GPU": gpus}] * nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready(), timeout=120)
    workers = [
        ray.remote(Worker)
        .options(
            num_cpus=0,
            num_gpus=gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank),
        )
        .remote()
        for rank in range(nodes)
    ]
    print(ray.get([worker.patch.remote() for worker in workers]), flush=True)
    train(config, workers)


def train(config, workers):
    folder = Path(config["checkpointing"]["checkpoint_dir"])
    rows = [json.loads(line) for line in open(config["data"]["train"]["data_path"])]
    decks = [(Path(config["standin"]["decks"]) / row["id"] / "deck.md").read_text() for row in rows]
    steps, period = config["grpo"]["max_num_steps"], config["checkpointing"]["save_period"]
    samples = config["grpo"]["num_generations_per_prompt"]
    done = max((int(path.name[5:]) for path in folder.glob("step_*")), default=0)
    print(f"from step {done} of {steps}", flush=True)
    while done < steps:
        at = done % len(rows)
        replies = [decks[at][: len(decks[at]) * (k + 1) // samples] for k in range(samples)]
        asked = [
            workers[k % len(workers)].verify.remote(rows[at], reply)
            for k, reply in enumerate(replies)
        ]
        found = ray.get(asked)
        done += 1
        time.sleep(config["standin"]["pause"])
        line = {
            "step": done,
            "rewards": [one["reward"] for one in found],
            "masked": [bool(one.get("mask_sample")) for one in found],
            "components": sorted(found[-1]["reward_components"]),
        }
        with open(folder.parent / "metrics.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)
        if done == steps or done % period == 0:
            partial = folder / f"tmp_step_{done}"
            (partial / "policy/weights/model").mkdir(parents=True, exist_ok=True)
            (partial / "training_info.json").write_text(
                json.dumps({"total_steps": done, "val:total_reward/mean": max(line["rewards"])})
            )
            partial.rename(folder / f"step_{done}")


class Worker:
    """One node's worker."""

    def patch(self):
        """Write into the image, as NeMo-RL patches vLLM; says where it could, and what of Gym is shown."""
        mark = Path(ray.__file__).with_name("patched")
        mark.write_text("x")
        return {"patched": mark.exists(), "gym": sorted(path.name for path in GYM.glob("*.py"))}

    def verify(self, row, reply):
        sys.path.insert(0, str(GYM))
        import decksmith_reward

        message = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": reply, "annotations": []}],
        }
        response = {
            "id": "r",
            "created_at": 0.0,
            "model": "standin",
            "object": "response",
            "output": [message],
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
        }
        return decksmith_reward.verify({**row, "response": response})


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
