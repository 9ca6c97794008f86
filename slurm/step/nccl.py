"""Sum a number over all GPUs of a node, a process each: `python -m torch.distributed.run --nproc-per-node=N nccl.py`."""

import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
world = dist.get_world_size()
data = torch.full((64 << 20,), 1.0, device="cuda")
for number in range(6):
    if number == 1:  # the first one sets the connections up
        torch.cuda.synchronize()
        began = time.monotonic()
    data.fill_(1.0)
    dist.all_reduce(data)
torch.cuda.synchronize()
took = (time.monotonic() - began) / 5
if data[0].item() != world or data[-1].item() != world:
    raise SystemExit(f"the sum over {world} GPUs is {data[0].item()}")
dist.barrier()
dist.destroy_process_group()
if rank == 0:
    name = torch.cuda.get_device_name(0)
    print(f"{world} x {name}: sums are right, {data.nbytes / took / 1e9:.1f} GB/s each")
