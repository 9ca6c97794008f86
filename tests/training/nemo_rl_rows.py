"""What NeMo-RL itself makes of runs of ours, as one JSON object for each recipe.

  PYTHONPATH=NeMo-RL:Automodel python tests/training/nemo_rl_rows.py OUT NeMo-RL RUN/recipe.yaml ..

Runs NeMo-RL's own drivers (examples/run_sft.py and its kin), as they are, on one CPU: loader, schema,
tokenizer, datasets, masks, `setup`, and the policy's worker with the base model, adapter, optimizer and
schedule. In place of Ray the worker is an object of this process, in place of NCCL gloo, and vLLM's
workers, which would need a GPU at once, are where GRPO's `setup` is left. Nothing of decksmith is imported.
"""

import importlib
import json
import os
import runpy
import sys
import traceback
import types
import typing
from pathlib import Path

import typing_extensions

if sys.version_info < (3, 12):  # Pydantic wants this one; NeMo-RL's own Python is 3.13
    typing.TypedDict = typing_extensions.TypedDict
import ray  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from nemo_automodel._transformers import auto_model  # noqa: E402
from nemo_rl.algorithms import dpo, grpo, sft  # noqa: E402
from nemo_rl.data import collate_fn, llm_message_utils  # noqa: E402
from nemo_rl.distributed import virtual_cluster  # noqa: E402
from nemo_rl.models.automodel import setup as automodel  # noqa: E402
from nemo_rl.models.generation.vllm import vllm_worker_async  # noqa: E402
from nemo_rl.models.policy import lm_policy  # noqa: E402

DRIVERS = {"sft": "examples/run_sft.py", "dpo": "examples/run_dpo.py"}
DRIVERS["grpo"] = "examples/nemo_gym/run_grpo_nemo_gym.py"
workers: list = []


class Reached(Exception):
    """A driver is as far as it comes without a GPU."""


class Cluster:
    """Ray's placement of the recipe's GPUs: their number."""

    _sorted_bundle_indices = None

    def __init__(self, *, bundle_ct_per_node_list, num_gpus_per_node, **_):
        self.sizes, self.num_gpus_per_node = bundle_ct_per_node_list, num_gpus_per_node

    def world_size(self):
        return sum(self.sizes)

    def _init_placement_groups(self, **_):
        pass

    def get_placement_groups(self):
        raise Reached("vLLM's workers are placed")


class Group:
    """The workers of a policy: the first, in this process."""

    def __init__(self, cluster, builder, *_, **__):
        module, _, name = builder.ray_actor_class_fqn.rpartition(".")
        actor = getattr(importlib.import_module(module), name)
        words = dict(builder.kwargs)
        worker = actor.__ray_metadata__.modified_class.__new__(
            actor.__ray_metadata__.modified_class
        )
        workers.append(worker)
        worker.__init__(*builder.args, **words)
        raise Reached("the policy's worker is set up")


def on_cpu():
    """Put this process in the place of GPUs."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"MASTER_PORT": "0", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    torch.distributed.init_process_group = lambda **_: None
    config = automodel.FSDP2Config
    automodel.FSDP2Config = lambda **given: config(**given | {"backend": "gloo"})
    torch.cuda.current_device = lambda: 0
    torch.cuda.synchronize = lambda *_: None
    copied = automodel.get_cpu_state_dict
    automodel.get_cpu_state_dict = lambda items, pin_memory: copied(items, pin_memory=False)
    build = auto_model.apply_model_infrastructure
    auto_model.apply_model_infrastructure = lambda *given, **named: build(
        *given, **named | {"device": torch.device("cpu")}
    )
    # On one GPU Automodel asks this class for it, which has none; on more it wraps the layers itself.
    transformers.NemotronHForCausalLM.gradient_checkpointing_enable = lambda _: None
    ray.get_gpu_ids = lambda: [0]
    ray.get_runtime_context = lambda: types.SimpleNamespace(get_node_id=lambda: None)
    virtual_cluster.init_ray = lambda *_: None
    for module in (sft, dpo, grpo):
        module.RayVirtualCluster = Cluster
    lm_policy.RayWorkerGroup, lm_policy.RayQueue = Group, lambda: None


def one(home, recipe):
    """What a driver makes of a recipe: {"config", "rows", "setup", "worker"} or {"failed"}."""
    text = Path(recipe).read_text()
    name = next(name for name in DRIVERS if f"\n{name}:" in text)
    algorithm = {"sft": sft, "dpo": dpo, "grpo": grpo}[name]
    real, found = algorithm.setup, {}

    def setup(config, tokenizer, train, held, *rest, **words):
        found["config"] = json.loads(json.dumps(config.model_dump(), default=str))
        sides = {"train": train, "validation": held}
        found["rows"] = {
            side: list(READ[name](data, tokenizer, config)) for side, data in sides.items() if data
        }
        try:
            real(config, tokenizer, train, held, *rest, **words)
        except Reached as where:
            found["setup"] = str(where)
        if name == "grpo":
            found["turns"] = turns(tokenizer)
            cluster = Cluster(bundle_ct_per_node_list=[8, 8], num_gpus_per_node=8)
            try:
                lm_policy.Policy(cluster, config.policy, tokenizer, init_reference_model=True)
            except Reached as where:
                found["setup"] += f", {where}"
        raise Reached

    algorithm.setup = setup
    sys.argv = [DRIVERS[name], "--config", str(recipe), "logger.monitor_gpus=false"]
    try:
        runpy.run_path(str(Path(home) / DRIVERS[name]), run_name="__main__")
    except Reached:
        found["worker"] = about(workers.pop())
    except BaseException:
        found["failed"] = traceback.format_exc()[-3000:]
    finally:
        algorithm.setup = real
        workers.clear()
    return found


def about(worker):
    """The model of a worker: its class, what is trained of it, and its schedule's rates."""
    trained = {
        name: one.numel() for name, one in worker.model.named_parameters() if one.requires_grad
    }
    rates = []
    for _ in range(4):
        rates.append(worker.optimizer.param_groups[0]["lr"])
        worker.scheduler.step()
    return {
        "class": type(worker.model).__name__,
        "own_code": any(
            "transformers_modules" in one.__module__ for one in type(worker.model).mro()
        ),
        "trained": trained,
        "dtypes": sorted({str(one.dtype) for one in worker.model.parameters()}),
        "rates": rates,
        "reference": worker.reference_model_state_dict is not None,
    }


def sft_rows(dataset, tokenizer, config):
    """(ids, mask, loss multiplier) of each row."""
    for index in range(len(dataset)):
        batch = collate_fn.rl_collate_fn([dataset[index]])
        llm_message_utils.add_loss_mask_to_message_log(
            batch["message_log"],
            roles_to_train_on=["assistant"],
            only_unmask_final=config.sft.only_unmask_final,
        )
        flat, lengths = llm_message_utils.batched_message_log_to_flat_message(
            batch["message_log"],
            pad_value_dict={"token_ids": tokenizer.pad_token_id},
            make_sequence_length_divisible_by=1,
        )
        end = int(lengths[0])
        yield row(
            flat["token_ids"][0], flat["token_loss_mask"][0], end, batch["loss_multiplier"][0]
        )


def dpo_rows(dataset, tokenizer, config):
    """Both sides of each pair, the chosen one first."""
    for data in dataset.values() if isinstance(dataset, dict) else [dataset]:
        for index in range(len(data)):
            batch = collate_fn.preference_collate_fn([data[index]], tokenizer, 1, True)
            for side in (0, 1):
                some = (batch[key][side] for key in ("input_ids", "token_mask", "input_lengths"))
                ids, mask, end = some
                yield row(ids, mask, int(end), batch["sample_mask"][side])


def gym_rows(dataset, tokenizer, config):
    for index in range(len(dataset)):
        yield dataset[index]["extra_env_info"]


def turns(tokenizer):
    """Whether a second turn goes on with the tokens of the first, as NeMo-RL's server of vLLM puts them together, {history kept: ..}."""
    told = [{"role": "user", "content": "A deck"}]
    answer = {"role": "assistant", "content": "# Deck", "reasoning_content": "Three slides. " * 9}
    again = {"role": "user", "content": "Slide 2 overflows"}
    names = ("_replace_prefix_tokens", "replace_prefix_tokens")  # of v0.7.0, of head
    put = next(filter(None, (getattr(vllm_worker_async, name, None) for name in names)))
    found = {}
    for kept in (False, True):
        words = {"truncate_history_thinking": not kept, "return_dict": False}
        first = tokenizer.apply_chat_template([*told, answer], **words)
        whole = tokenizer.apply_chat_template(
            [*told, answer, again], add_generation_prompt=True, **words
        )
        model = first[: len(first) - first[::-1].index(tokenizer.eos_token_id)]  # what it wrote
        try:
            ids = put(tokenizer, model, first, whole)
            rest = tokenizer.decode(ids[len(model) :])
            found[str(kept)] = ids[: len(model)] == model and rest.count(again["content"]) == 1
        except AssertionError as error:
            found[str(kept)] = str(error)[:60]
    return found


def row(ids, mask, end, multiplier):
    return {
        "ids": ids[:end].tolist(),
        "mask": [int(bit) for bit in mask[:end]],
        "multiplier": float(multiplier),
    }


READ = {"sft": sft_rows, "dpo": dpo_rows, "grpo": gym_rows}

if __name__ == "__main__":
    out, home, *given = sys.argv[1:]
    on_cpu()
    made = [one(home, recipe) for recipe in given]
    Path(out).write_text(json.dumps(made))
