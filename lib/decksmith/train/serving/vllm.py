"""An adapter's folder, and the command line of `vllm serve` for it: what every server of ours has, what belongs to the model,
and what the adapter needs. It is held to the options of the pinned version, and its memory to that of the GPUs, before
anything is loaded."""

import hashlib
import json
import math
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypedDict

from decksmith.core import cli
from decksmith.models import families, shapes
from decksmith.train.hub import weights

WEIGHTS = "adapter_model.safetensors"
OPTIONS = cli.ROOT / "assets/vllm-options.json"
# What every server of ours has. Prefix caching has changed scores: vLLM #45699.
FIXED = (
    *("--served-model-name", "base"),
    *("--max-num-seqs", "64"),
    "--no-enable-prefix-caching",
    "--enable-lora",
    *("--max-loras", "1"),
)
SHORT = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size"}
SHORT["-dp"] = "--data-parallel-size"
GIB = 2**30
Words = Sequence[str]
# About how many GiB a GPU of this name has, for a plan; where a server starts, nvidia-smi says it.
NAMED = {"a100": 79, "h100": 79, "h200": 140, "gh200": 95, "b200": 178, "l40s": 44, "a10": 22}
ASSUMED = "h100"  # where a job is submitted and nobody says what its nodes have
# What vLLM takes besides: activations of a batch, CUDA graphs, the allocator's rest. Assumed; not measured by us.
BESIDES = 4.0
UTILIZATION = "0.92"  # vLLM 0.27.1, config/cache.py
UNITS = {"k": 1000, "K": 1024, "m": 10**6, "M": 2**20}  # of a length, as vLLM reads it


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter in a PEFT folder. `sha256` is of config and weights; `gguf` the embedded
    engine's form of it, or None."""

    path: Path
    rank: int
    base: str | None
    sha256: str
    gguf: Path | None

    @classmethod
    def load(cls, path: Path) -> "Adapter":
        """Of a checkpoint's policy/weights/model, or of what model-export made. Raises
        cli.Missing, cli.BadData."""
        config, gguf = path / "adapter_config.json", path / "adapter.gguf"
        for needed in (config, path / WEIGHTS):
            if not needed.is_file():
                why = f"{needed.name} is not there; model-export writes it"
                raise cli.Missing(f"{path} is no adapter: {why}")
        try:
            said = json.loads(config.read_text())
            # The largest of its modules' ranks.
            rank = max(map(int, [said["r"], *(said.get("rank_pattern") or {}).values()]))
            base = said.get("base_model_name_or_path")
        except (ValueError, KeyError, TypeError) as error:
            raise cli.BadData(f"{config}: not the config of a LoRA adapter ({error!r})") from None
        digest = sha256(config, path / WEIGHTS)
        return cls(path.resolve(), rank, base, digest, gguf.resolve() if gguf.is_file() else None)

    @cached_property
    def modules(self) -> list[str]:
        """The last parts of the names of the modules that it has weights for, as vLLM's --lora-target-modules takes them.
        Raises cli.BadData."""
        names = [name.partition(".lora_")[0].removesuffix(".base_layer") for name in self._tensors]
        found = {name.rpartition(".")[2] for name in names}
        if any(".experts." in name for name in names):
            found.add("experts")  # vLLM has those of a layer in one module of this name
        return sorted(found)

    @cached_property
    def width(self) -> int:
        """What it has numbers for at rank 1: inputs and outputs of all its modules together. Raises cli.BadData."""
        shapes = [tensor.shape for tensor in self._tensors.values()]
        return sum(math.prod(shape) // max(1, min(shape, default=1)) for shape in shapes)

    @cached_property
    def _tensors(self) -> dict[str, weights.Tensor]:
        found = weights.tensors(self.path / WEIGHTS)
        return {name: tensor for name, tensor in found.items() if ".lora_" in name}

    @property
    def rewards(self) -> list[str]:
        """What it was trained to please, as its manifest says; none without one."""
        try:
            said = json.loads((self.path / "manifest.json").read_text()).get("rewards") or []
            return [reward for reward in said if re.fullmatch(r"[\w.-]{1,64}", reward)]
        except (OSError, ValueError, AttributeError, TypeError):
            return []

    def check_base(self, base: str | Path) -> None:
        """Hold the adapter's matrices to those of a base whose folder is here; vLLM would end
        with a traceback. Raises cli.BadData for an adapter of another base."""
        sizes = {
            name.removesuffix(".weight"): tensor.shape
            for file in sorted(Path(base).glob("*.safetensors"))
            for name, tensor in weights.tensors(file).items()
        }
        if not sizes:
            return
        for name, tensor in self._tensors.items():
            module, _, half = name.removeprefix("base_model.model.").partition(".lora_")
            axis = {"A.weight": 1, "B.weight": 0}.get(half)
            if axis is None or module not in sizes or len(tensor.shape) != 2:
                continue
            has, wants = sizes[module][axis], tensor.shape[axis]
            if has != wants:
                how = f"was trained for a matrix of {wants}, that of {base} has {has}"
                mend = f"the adapter belongs to another base ({self.base}); name that with --base"
                raise cli.BadData(f"{self.path / WEIGHTS}: {module} {how}: {mend}")


def sha256(*paths: Path) -> str:
    """One digest (hex) of some files."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


class Option(TypedDict, total=False):
    """What assets/vllm-options.json says of an option: how many values it takes, and which."""

    values: int
    choices: list[str | int]


def command(adapter: Adapter, base: str, host: str, port: int, more: Words = ()) -> list[str]:
    """The argument list of a vLLM with base and adapter; `more` arguments come last and win.
    Raises cli.BadData where `lint` objects."""
    _, options = _options()
    ranks = map(int, options["--max-lora-rank"]["choices"])
    taken = [rank for rank in ranks if rank >= adapter.rank]
    if not taken:
        raise cli.BadData(f"{adapter.path}: its rank is {adapter.rank}, more than vLLM takes")
    arguments = ["vllm", "serve", base, "--host", host, "--port", str(port), *FIXED]
    arguments += _of_the_model(base)
    # Buffers are made for the modules that the adapter has and for no others: for all of a mixture
    # of experts they would take as much again as a quarter of its weights.
    if adapter.modules:
        arguments += ["--lora-target-modules", *adapter.modules]
    arguments += ["--lora-modules", f"tuned={adapter.path}", "--max-lora-rank", str(taken[0])]
    arguments += more
    lint(arguments)
    return arguments


def _of_the_model(base: str) -> list[str]:
    """The options that a model wants, by its family and its own configuration."""
    config = families.configuration(base)
    family = families.of(base, config)
    found = [*family.flags]
    if family.remote_code:
        found.append("--trust-remote-code")
    if length := family.length(config):
        found += ["--max-model-len", str(length)]
    if family.reasoning_parser:
        found += ["--reasoning-parser", family.reasoning_parser]
    if family.tool_parser:
        found += ["--enable-auto-tool-choice", "--tool-call-parser", family.tool_parser]
    if family.sampling:
        found += ["--override-generation-config", json.dumps(family.sampling)]
    if family.thinking:
        found += ["--default-chat-template-kwargs", json.dumps(family.thinking)]
    return found


def value(arguments: Words, option: str) -> str | None:
    """The value of an option, of two the later; None where it is not there."""
    found = None
    for word, following in zip(arguments, [*arguments[1:], None], strict=True):
        name, equals, given = word.partition("=")
        if SHORT.get(name, name.replace("_", "-")) == option:
            found = given if equals else following
    return found


def number(arguments: Words, option: str) -> int:
    """The whole number of an option, 1 where it is not there. Raises cli.BadConfig."""
    text = value(arguments, option) or "1"
    if not text.isdigit() or not int(text):
        raise cli.BadConfig(f"{option} {text}: a whole number from 1 is wanted")
    return int(text)


def lint(arguments: Words) -> None:
    """Hold the arguments of `vllm serve` to the option names and choices of the pinned version.
    Raises cli.BadData with all that is wrong."""
    (version, known), wrong = _options(), []
    words = list(arguments[3:])  # behind `vllm serve BASE`
    while words:
        option, _, value = words.pop(0).partition("=")
        option = SHORT.get(option, option)
        if not option.startswith("-"):
            wrong.append(f"{option} belongs to no option")
            continue
        values = [value] if value else []
        while words and not words[0].startswith("--") and words[0] not in SHORT:
            values.append(words.pop(0))
        if option.startswith("--"):
            # --reasoning-config.field is its way into JSON
            option = option.replace("_", "-").split(".")[0]
        wrong += _objections(option, values, known.get(option))
    if wrong:
        raise cli.BadData(f"vLLM {version} would refuse this: {'; '.join(wrong)}")


def _objections(option: str, values: list[str], facts: Option | None) -> Iterator[str]:
    """What is wrong with one option and its values; `facts`: how many it takes (one, unless they
    say), and which."""
    if facts is None:
        yield f"it has no {option}"
        return
    takes, choices = facts.get("values", 1), list(map(str, facts.get("choices") or ()))
    if takes == 0 and values:
        yield f"{option} takes no value"
    elif takes == 1 and len(values) != 1:
        yield f"{option} takes one value"
    elif choices:
        there = ", ".join(choices)
        yield from (f"{option} {one} is none of {there}" for one in values if one not in choices)


def _options() -> tuple[str, dict[str, Option]]:
    """The pinned version, and its options."""
    found = json.loads(OPTIONS.read_text())
    return found["version"], found["options"]


@dataclass(frozen=True)
class Memory:
    """GiB of one GPU. `weights` is None where nothing says how large the model is; `sequence`: one of full length."""

    gpus: int
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


def memory(arguments: Words, adapter: Adapter, gpu: float) -> Memory:
    """What `vllm serve ARGUMENTS` takes of each of its GPUs of `gpu` GiB."""
    base = arguments[2]
    config = families.configuration(base)
    config = config or families.of(base, config).dimensions
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
    return Memory(
        gpus=parts * number(arguments, "--data-parallel-size"),
        weights=weights,
        adapter=loras,
        token=token,
        sequence=state + length * token,
        length=length,
        sequences=number(arguments, "--max-num-seqs"),
        left=usable - BESIDES - loras - (weights or 0),
    )


def check_memory(arguments: Words, adapter: Adapter, gpu: float | None = None) -> Memory | None:
    """The memory of a command line, said in one line; None without a GPU (vLLM's CPU build has
    rules of its own). gpu: the GiB of one; else what nvidia-smi says of this machine's. Raises
    cli.BadConfig, with the remedy, where not even one sequence of full length fits."""
    gpu = gpu or gpu_here()
    if gpu is None:
        return None
    found = memory(arguments, adapter, gpu)
    if found.weights is None:
        cli.say(f"memory is not computed: nothing here says how large {arguments[2]} is")
        return found
    parts = (
        f"{found.weights:.1f} GiB of weights, {found.adapter:.1f} of adapter, {BESIDES:.0f} besides (assumed), "
        f"{found.sequence:.1f} for each sequence of {found.length:,} tokens"
    )
    if found.left < found.sequence:
        mend = " ".join(_remedies(arguments, adapter, found, gpu))
        mend = mend or "It wants larger GPUs, or more than one node"
        raise cli.BadConfig(f"{arguments[2]} does not fit a GPU of {gpu:.0f} GiB: {parts}. {mend}")
    room = min(found.at_once, found.sequences)
    waiting = "" if room == found.sequences else ", the others wait"
    cli.say(
        f"each of {found.gpus} GPU of {gpu:.0f} GiB: {parts}; {room} of {found.sequences} such sequences at once{waiting}"
    )
    return found


def _remedies(arguments: Words, adapter: Adapter, found: Memory, gpu: float) -> Iterator[str]:
    """The fewest GPUs that do, and the context that would."""
    tensor = number(arguments, "--tensor-parallel-size")
    for wider in (2 * tensor, 4 * tensor, 8 * tensor):
        more = [*arguments, "--tensor-parallel-size", str(wider)]
        other = memory(more, adapter, gpu)
        if wider <= 8 and other.left >= other.sequence:
            yield f'on more GPUs: SERVE="--tensor-parallel-size {wider}"'
            break
    if found.token:
        state = found.sequence - found.length * found.token
        shorter = math.floor((found.left - state) / found.token / 1024) * 1024
        if shorter > 0:
            yield f'or with a shorter context: SERVE="--max-model-len {shorter}"'


def gpu_here() -> float | None:
    """The GiB of the smallest GPU of this machine, by nvidia-smi; None where there is none."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return min(int(line) for line in done.stdout.split("\n") if line) / 1024
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def gpu_named(text: str | None) -> float:
    """The GiB of a GPU by its name (h100) or by a number; without either those of ASSUMED. Raises cli.BadConfig."""
    name = (text or ASSUMED).lower()
    if not text:
        cli.say(f"GPUs of {NAMED[ASSUMED]} GiB are assumed ({ASSUMED}); name yours: --gpu, GPU=")
    try:
        return NAMED[name] if name in NAMED else float(name)
    except ValueError:
        known = ", ".join(NAMED)
        raise cli.BadConfig(f"--gpu {text}: name one of {known}, or its GiB") from None


def _length(text: str | None) -> int | None:
    """Tokens of context: 65536, 64k, 64K; None where the model decides."""
    digits, unit = (text[:-1], UNITS[text[-1]]) if text and text[-1] in UNITS else (text or "", 1)
    return int(digits) * unit if digits.isdigit() else None


def _weights(base: str, config: families.Config) -> int | None:
    """The bytes of a model's weights: of its files, where they are here, else two for each parameter."""
    folder = families.local(base)
    files = Path(folder).glob("*.safetensors") if folder else ()
    if size := sum(path.stat().st_size for path in files):
        return size
    shape = shapes.Shape.assumed(config, "") if config else None
    return 2 * shape.parameters if shape else None
