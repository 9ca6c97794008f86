"""Whether a server fits its GPUs: computed before anything is loaded, from files, shapes and the command line."""

import math
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from decksmith.core import cli
from decksmith.models import families, shapes
from decksmith.train.serving.adapter import Adapter
from decksmith.train.serving.vllm import value

GIB = 2**30
# About how many GiB a GPU of this name has, for a plan; where a server starts, nvidia-smi says it.
NAMED = {"a100": 79, "h100": 79, "h200": 140, "gh200": 95, "b200": 178, "l40s": 44, "a10": 22}
ASSUMED = "h100"  # where a job is submitted and nobody says what its nodes have
# What vLLM takes besides: activations of a batch, CUDA graphs, the allocator's rest. Assumed; not measured by us.
BESIDES = 4.0
UTILIZATION = "0.92"  # vLLM 0.27.1, config/cache.py


@dataclass(frozen=True)
class Plan:
    """GiB of one GPU. `weights` is None where nothing says how large the model is; `sequence`: one of full length."""

    gpus: int
    gpu: float
    weights: float | None
    adapter: float
    token: float
    sequence: float
    length: int
    sequences: int
    left: float

    @property
    def at_once(self) -> int:
        """How many sequences of full length fit beside each other."""
        return max(0, math.floor(self.left / self.sequence)) if self.sequence else self.sequences


def plan(arguments: Sequence[str], adapter: Adapter, gpu: float) -> Plan:
    """What `vllm serve ARGUMENTS` takes of each of its GPUs of `gpu` GiB."""
    base = arguments[2]
    config = families.configuration(base)
    family = families.of(base, config)
    config = config or family.dimensions
    tensor = number(arguments, "--tensor-parallel-size")
    # A job of several nodes parts a server's layers between them (slurm/serve.sbatch).
    nodes = int(os.environ.get("SLURM_JOB_NUM_NODES") or 1)
    parts = tensor * max(nodes, number(arguments, "--pipeline-parallel-size"))
    rank = number(arguments, "--max-lora-rank")
    # Half of an adapter's matrices is split over tensor-parallel GPUs (vLLM, fully_sharded_loras), in bf16.
    each = 2 * rank * adapter.width * (1 + 1 / tensor) / 2 / (parts / tensor) / GIB
    loras = each * number(arguments, "--max-loras")
    length = _length(value(arguments, "--max-model-len")) or families.limit(config) or 0
    token = state = 0.0
    if config:
        # Heads are split over tensor-parallel GPUs, layers over those of a pipeline.
        of_token, of_sequence = shapes.cache(config)
        groups = int(shapes.text(config).get("num_key_value_heads") or tensor)
        token = of_token / min(tensor, groups) * tensor / parts / GIB
        state = of_sequence / parts / GIB
    size = _weights(base, config)
    weights = None if size is None else size / parts / GIB
    usable = gpu * float(value(arguments, "--gpu-memory-utilization") or UTILIZATION)
    return Plan(
        gpus=parts * number(arguments, "--data-parallel-size"),
        gpu=gpu,
        weights=weights,
        adapter=loras,
        token=token,
        sequence=state + length * token,
        length=length,
        sequences=number(arguments, "--max-num-seqs"),
        left=usable - BESIDES - loras - (weights or 0),
    )


def check(arguments: Sequence[str], adapter: Adapter, gpu: float | None = None) -> Plan | None:
    """The plan of a command line, said in one line; None without a GPU (vLLM's CPU build has rules of its own).

    gpu: the GiB of one; else what nvidia-smi says of this machine's. Raises cli.BadConfig, with the remedy, where not even one
    sequence of full length fits.
    """
    gpu = gpu or here()
    if gpu is None:
        return None
    found = plan(arguments, adapter, gpu)
    if found.weights is None:
        cli.say(f"memory is not computed: nothing here says how large {arguments[2]} is")
        return found
    parts = (
        f"{found.weights:.1f} GiB of weights, {found.adapter:.1f} of adapter, "
        f"{BESIDES:.0f} besides (assumed), "
        f"{found.sequence:.1f} for each sequence of {found.length:,} tokens"
    )
    if found.left < found.sequence:
        raise cli.BadConfig(
            f"{arguments[2]} does not fit a GPU of {gpu:.0f} GiB: {parts}. "
            f"{_remedy(arguments, adapter, found)}"
        )
    room = min(found.at_once, found.sequences)
    cli.say(
        f"each of {found.gpus} GPU of {gpu:.0f} GiB: {parts}; {room} of {found.sequences} such sequences at once"
        + ("" if room == found.sequences else ", the others wait")
    )
    return found


def _remedy(arguments: Sequence[str], adapter: Adapter, found: Plan) -> str:
    """The fewest GPUs that do, and the context that would."""
    said = []
    tensor = number(arguments, "--tensor-parallel-size")
    for wider in (2 * tensor, 4 * tensor, 8 * tensor):
        more = [*arguments, "--tensor-parallel-size", str(wider)]
        other = plan(more, adapter, found.gpu)
        if wider <= 8 and other.left >= other.sequence:
            said.append(f'on more GPUs: SERVE="--tensor-parallel-size {wider}"')
            break
    if found.token:
        state = found.sequence - found.length * found.token
        shorter = math.floor((found.left - state) / found.token / 1024) * 1024
        if shorter > 0:
            said.append(f'or with a shorter context: SERVE="--max-model-len {shorter}"')
    return " ".join(said) or "It wants larger GPUs, or more than one node"


def here() -> float | None:
    """The GiB of the smallest GPU of this machine, by nvidia-smi; None where there is none."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return min(int(line) for line in done.stdout.split("\n") if line) / 1024
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def named(text: str | None) -> float:
    """The GiB of a GPU by its name (h100) or by a number; without either those of ASSUMED. Raises cli.BadConfig."""
    name = (text or ASSUMED).lower()
    if not text:
        cli.say(f"GPUs of {NAMED[ASSUMED]} GiB are assumed ({ASSUMED}); name yours: --gpu, GPU=")
    try:
        return NAMED[name] if name in NAMED else float(name)
    except ValueError:
        known = ", ".join(NAMED)
        raise cli.BadConfig(f"--gpu {text}: name one of {known}, or its GiB") from None


def number(arguments: Sequence[str], option: str) -> int:
    """The whole number of an option, 1 where it is not there. Raises cli.BadConfig."""
    text = value(arguments, option) or "1"
    if not text.isdigit() or not int(text):
        raise cli.BadConfig(f"{option} {text}: a whole number from 1 is wanted")
    return int(text)


def _length(text: str | None) -> int | None:
    """Tokens of context, as vLLM reads them: 65536, 64k (thousands), 64K (1024 each); None where the model decides."""
    units = {"k": 1000, "K": 1024, "m": 10**6, "M": 2**20}
    if text and text[-1] in units and text[:-1].isdigit():
        return int(text[:-1]) * units[text[-1]]
    return int(text) if text and text.isdigit() else None


def _weights(base: str, config: families.Config) -> int | None:
    """The bytes of a model's weights: of its files, where they are here, else two for each parameter."""
    folder = families.local(base)
    if folder:
        sizes = [path.stat().st_size for path in Path(folder).glob("*.safetensors")]
        if sizes:
            return sum(sizes)
    shape = shapes.Shape.assumed(config, "") if config else None
    return 2 * shape.parameters if shape else None
