"""Stands where NeMo-RL's driver stands in its image, for tests/slurm: the same command line, recipe, checkpoint layout and exit codes.

It really trains, over all nodes of the Ray cluster: one actor per node holds that node's GPUs, the actors are the ranks of a gloo process
group, the model predicts the next byte of the assistant's words in the recipe's own chat rows. `standin` in the recipe says what
shall go wrong: {"pause": seconds per step, "crash_at": step, "hang_at": step}.
"""

import argparse
import json
import os
import socket
import sys
import time
from pathlib import Path

import ray
import yaml
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

CONTEXT = 8


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    options, overrides = parser.parse_known_args()
    config = yaml.safe_load(Path(options.config).read_text())
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        *sections, last = key.split(".")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    ray.init(
        address="auto", log_to_driver=True
    )  # as NeMo-RL does; without RAY_ADDRESS this would start a cluster of its own
    nodes, gpus = config["cluster"]["num_nodes"], config["cluster"]["gpus_per_node"]
    print(
        f"Ray has {ray.cluster_resources().get('GPU', 0):.0f} GPUs on {len([n for n in ray.nodes() if n['Alive']])} nodes",
        flush=True,
    )
    group = placement_group([{"GPU": gpus}] * nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready(), timeout=120)
    workers = [
        ray.remote(Rank)
        .options(
            num_cpus=0,
            num_gpus=gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank),
        )
        .remote(config, rank, nodes)
        for rank in range(nodes)
    ]
    address = ray.get(workers[0].address.remote())
    print(ray.get([worker.join.remote(address) for worker in workers]), flush=True)
    print(train(config, workers), flush=True)


def train(config, workers):
    folder, steps = (
        Path(config["checkpointing"]["checkpoint_dir"]),
        int(config["sft"]["max_num_steps"]),
    )
    period, wrong = int(config["checkpointing"]["save_period"]), config.get("standin") or {}
    saved = sorted((int(path.name[5:]) for path in folder.glob("step_*")), reverse=True)
    done = (
        ray.get([worker.load.remote(str(folder / f"step_{saved[0]}")) for worker in workers])[0]
        if saved
        else 0
    )
    print(f"from step {done} of {steps}", flush=True)
    must_save_by, started = (
        seconds(config["checkpointing"].get("checkpoint_must_save_by")),
        time.monotonic(),
    )
    while done < steps:
        if wrong.get("crash_at") == done + 1:
            raise RuntimeError("the stand-in was told to crash here")
        if wrong.get("hang_at") == done + 1:
            time.sleep(3600)
        began = time.monotonic()
        loss = sum(ray.get([worker.step.remote(done) for worker in workers])) / len(workers)
        done += 1
        time.sleep(wrong.get("pause", 0))
        with open(folder.parent / "metrics.jsonl", "a") as file:
            file.write(
                json.dumps({"step": done, "loss": loss, "seconds": time.monotonic() - began}) + "\n"
            )
        print(f"step {done}/{steps} loss {loss:.4f}", flush=True)
        late = must_save_by is not None and time.monotonic() - started > must_save_by
        if late or done == steps or done % period == 0:
            partial = folder / f"tmp_step_{done}"
            ray.get(workers[0].save.remote(str(partial), done))
            (partial / "config.yaml").write_text(yaml.safe_dump(config))
            (partial / "training_info.json").write_text(
                json.dumps({"step": done, "total_steps": done, "epoch": 0, "train:loss": loss})
            )
            partial.rename(folder / f"step_{done}")
        if late:
            return f"Timeout has been reached, stopping training early at step {done}"
    return "Max number of steps has been reached, stopping training early"


def seconds(clock):
    """DD:HH:MM:SS -> seconds."""
    if clock is None:
        return None
    days, hours, minutes, rest = map(int, clock.split(":"))
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


class Rank:
    """One node's share of the training."""

    def __init__(self, config, rank, world):
        import torch

        self.rank, self.world = rank, world
        torch.set_num_threads(1)
        torch.manual_seed(config["sft"]["seed"])
        rows = [
            json.loads(line)
            for line in Path(config["data"]["train"]["data_path"]).read_text().splitlines()
        ]
        self.texts = [row["messages"][-1]["content"].encode()[:400] for row in rows]
        self.share = config["policy"]["train_global_batch_size"] // world
        self.model = torch.nn.Sequential(
            torch.nn.Embedding(256, 16),
            torch.nn.Flatten(),
            torch.nn.Linear(16 * CONTEXT, 64),
            torch.nn.ReLU(),
            torch.nn.Linear(64, 256),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)

    def address(self):
        with socket.socket() as free:
            free.bind(("", 0))
            return f"tcp://{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"

    def join(self, address):
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=address, rank=self.rank, world_size=self.world)
        return {
            "rank": self.rank,
            "gpus": ray.get_gpu_ids(),
            "uid": os.getuid(),
            "image": os.environ.get("APPTAINER_NAME"),
            "home": os.environ.get("HOME"),
        }

    def step(self, done):
        """One step on this rank's share of the batch; gradients are averaged over the ranks -> its loss."""
        import torch
        import torch.distributed as dist

        first = (done * self.world + self.rank) * self.share
        text = torch.cat(
            [
                torch.tensor(list(self.texts[(first + i) % len(self.texts)]))
                for i in range(self.share)
            ]
        )
        windows = text.unfold(0, CONTEXT + 1, 1)
        loss = torch.nn.functional.cross_entropy(self.model(windows[:, :-1]), windows[:, -1])
        self.optimizer.zero_grad()
        loss.backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= self.world
        self.optimizer.step()
        return loss.item()

    def save(self, folder, done):
        import torch

        weights = Path(folder) / "policy/weights/model"
        weights.mkdir(parents=True)
        torch.save(
            {
                "done": done,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
            },
            weights / "state.pt",
        )

    def load(self, folder):
        import torch

        state = torch.load(Path(folder) / "policy/weights/model/state.pt")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return state["done"]


if __name__ == "__main__":
    sys.exit(main())
