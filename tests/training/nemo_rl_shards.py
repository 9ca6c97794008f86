"""How Automodel shards a model over 2 x 8 GPUs, without one: `{"sharded": parameters}` or `{"failed": sentence}` for each folder.

  PYTHONPATH=NeMo-RL:Automodel python tests/training/nemo_rl_shards.py MODEL ..

Sixteen ranks are torch's own fake process group; model and mesh are on the CPU.
"""

import json
import sys

import torch
from nemo_automodel.components.distributed import parallelizer
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed import fake_pg
from transformers import AutoModelForCausalLM


def sharded(folder, mesh):
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, trust_remote_code=True, dtype=torch.bfloat16
        )
        made = parallelizer.fsdp2_strategy_parallelize(model, mesh, activation_checkpointing=True)
    except Exception as error:
        return {"failed": str(error)}
    whole = [isinstance(one, DTensor) for one in made.parameters()]
    return {"sharded": sum(whole), "of": len(whole)}


if __name__ == "__main__":
    torch.distributed.init_process_group("fake", rank=0, world_size=16, store=fake_pg.FakeStore())
    names = ("dp_replicate", "dp_shard_cp", "cp", "tp")
    mesh = torch.distributed.init_device_mesh("cpu", (1, 16, 1, 1), mesh_dim_names=names)
    print(json.dumps([sharded(folder, mesh) for folder in sys.argv[1:]]))
