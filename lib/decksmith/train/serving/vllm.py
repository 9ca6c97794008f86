"""An adapter's folder, and the command line of a server with it (assets/engines.toml): what every server of ours has, what
belongs to the model, and what adapters need. It is held to the options of the engine's version, and its memory to that of the
GPUs, before anything is loaded."""

import argparse
import functools
import hashlib
import json
import math
import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from decksmith.core import cli, config_files
from decksmith.models import families, shapes
from decksmith.train.hub import weights

WEIGHTS = "adapter_model.safetensors"
OPTIONS = cli.ROOT / "assets/vllm-options.json"
SHORT = {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size"}
SHORT["-dp"] = "--data-parallel-size"
COUNTS = ("tensor", "pipeline", "data", "rank", "loras", "sequences")  # of an engine's `memory`
GIB = 2**30
Words = Sequence[str]
Engine = dict[str, Any]  # an entry of assets/engines.toml
# About how many GiB a GPU of this name has, for a plan; where a server starts, nvidia-smi says it.
NAMED = {"a100": 79, "h100": 79, "h200": 140, "gh200": 95, "b200": 178, "l40s": 44, "a10": 22}
ASSUMED = "h100"  # where a job is submitted and nobody says what its nodes have
# What vLLM takes besides: activations of a batch, CUDA graphs, the allocator's rest. Assumed; not measured by us.
BESIDES = 4.0
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

    @functools.cached_property
    def modules(self) -> list[str]:
        """The last parts of the names of the modules that it has weights for, as vLLM's --lora-target-modules takes them.
        Raises cli.BadData."""
        names = [name.partition(".lora_")[0].removesuffix(".base_layer") for name in self._tensors]
        found = {name.rpartition(".")[2] for name in names}
        if any(".experts." in name for name in names):
            found.add("experts")  # vLLM has those of a layer in one module of this name
        return sorted(found)

    @functools.cached_property
    def width(self) -> int:
        """What it has numbers for at rank 1: inputs and outputs of all its modules together. Raises cli.BadData."""
        shapes = [tensor.shape for tensor in self._tensors.values()]
        return sum(math.prod(shape) // max(1, min(shape, default=1)) for shape in shapes)

    @functools.cached_property
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


def engine(name: str) -> Engine:
    """An entry of assets/engines.toml."""
    found: Engine = config_files.asset("engines.toml")[name]
    return found


def command(
    adapters: Mapping[str, Adapter],
    base: str,
    host: str,
    port: int,
    more: Words = (),
    *,
    kind: str = "vllm",
    name: str = "base",
) -> list[str]:
    """The argument list of a server with a base, called `name`, and adapters by their own names; `more` arguments come last
    and win. Raises cli.BadData for arguments that the engine would refuse, and for adapters where it takes none."""
    chosen = engine(kind)
    words = [word.format(base=base) for word in chosen["program"]]
    words += ["--host", host, "--port", str(port)]
    if "base" in chosen:
        words += [chosen["base"], name]
    words += [*chosen["fixed"], *_of_the_model(base, chosen, kind), *_of_adapters(adapters, chosen)]
    words += more
    parsed(words, kind)
    return words


def _of_adapters(adapters: Mapping[str, Adapter], chosen: Engine) -> list[str]:
    """The options that adapters want: none without any."""
    if not adapters:
        return []
    if "adapters" not in chosen:
        raise cli.BadData("this engine is started without adapters: merge it, model-export --merge")
    highest = max(adapters.values(), key=lambda adapter: adapter.rank)
    options = config_files.asset(chosen["options"])["options"]
    choices = options["--max-lora-rank"].get("choices") or [highest.rank]
    taken = [rank for rank in map(int, choices) if rank >= highest.rank]
    if not taken:
        raise cli.BadData(f"{highest.path}: its rank is {highest.rank}, more than vLLM takes")
    # Buffers are made for the modules that adapters have and for no others: for all of a mixture
    # of experts they would take as much again as a quarter of its weights.
    modules = sorted({module for adapter in adapters.values() for module in adapter.modules})
    filled = {
        "{count}": [str(len(adapters) + chosen.get("beside", 0))],
        "{modules}": ["--lora-target-modules", *modules] if modules else [],
        "{pairs}": [f"{name}={adapter.path}" for name, adapter in adapters.items()],
        "{rank}": [str(taken[0])],
    }
    return [each for word in chosen["adapters"] for each in filled.get(word, [word])]


def _of_the_model(base: str, chosen: Engine, kind: str) -> list[str]:
    """The options that a model wants, by its family and its own configuration. Without a parser of tool calls a server
    refuses every request with tools; the one of a model that names none finds no call."""
    config = families.configuration(base)
    family = families.of(base, config)
    known, parsers = config_files.asset(chosen["options"]), chosen.get("parsers", {})
    found = [*family.flags] if kind == "vllm" else []
    if family.remote_code:
        found.append(chosen["remote_code"])
    wanted = {
        "length": str(family.length(config) or ""),
        "reasoning": family.reasoning_parser or "",
        "tools": family.tool_parser or families.TOOLS["<tool_call>"],
        "sampling": json.dumps(family.sampling) if family.sampling else "",
        "thinking": json.dumps(family.thinking) if family.thinking else "",
    }
    for option, value in wanted.items():
        its = parsers.get(value, value)
        if value and (option not in chosen or its not in known.get(option, [its])):
            cli.say(f"{kind} cannot be told this of {base}: {option} {value}")
        elif value:
            found += [chosen[option], its]
    return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise cli.BadData(f"{self.prog} would refuse this: {message}")


def _count(text: str) -> str:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text}: a whole number from 1 is wanted")
    return text


def parsed(arguments: Words, kind: str = "vllm") -> argparse.Namespace:
    """The options of a server's command line as text, of two the later. Raises cli.BadData for what the engine's version
    would refuse."""
    chosen = engine(kind)
    known = config_files.asset(chosen["options"])
    program = f"{chosen['label']} {known['version']}"
    parser = _Parser(prog=program, add_help=False, allow_abbrev=False)
    counts = {chosen["memory"].get(key) for key in COUNTS}
    for option, facts in known["options"].items():
        if option in SHORT:  # an option of its own there
            continue
        names = [option, *(short for short, long in SHORT.items() if long == option)]
        to = facts.get("dest") or option.lstrip("-").replace("-", "_")
        if facts.get("values") == 0:
            parser.add_argument(*names, dest=to, action="store_true")
            continue
        many = "*" if facts.get("values") == "some" else None
        choices = [str(one) for one in facts.get("choices") or ()] or None
        of = _count if to in counts else str
        parser.add_argument(*names, dest=to, nargs=many, choices=choices, type=of)
    words = []
    for word in arguments[len(chosen["program"]) :]:
        name, equals, given = word.partition("=")
        # --reasoning-config.field is vLLM's way into JSON.
        if name.startswith("--") and kind == "vllm":
            name = name.replace("_", "-").split(".")[0]
        words.append(name + equals + given)
    return parser.parse_args(words)


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


class Line(NamedTuple):
    """A server's command line, for what it takes of memory."""

    words: Words
    base: str
    adapters: Collection[Adapter]
    kind: str = "vllm"


def memory(line: Line, gpu: float) -> Memory:
    """What a server takes of each of its GPUs of `gpu` GiB."""
    config = families.configuration(line.base)
    config = config or families.of(line.base, config).dimensions
    names, given = engine(line.kind)["memory"], vars(parsed(line.words, line.kind))

    def number(key: str) -> int:
        return int(given.get(names.get(key, "")) or 1)

    tensor = number("tensor")
    # A job of several nodes parts a server's layers between them (slurm/serve.sbatch).
    nodes = int(os.environ.get("SLURM_JOB_NUM_NODES") or 1)
    parts = tensor * max(nodes, number("pipeline"))
    # Half of an adapter's matrices is split over tensor-parallel GPUs (vLLM, fully_sharded_loras), in bf16.
    width = max((adapter.width for adapter in line.adapters), default=0)
    each = 2 * number("rank") * width * (1 + 1 / tensor) / 2 / (parts / tensor) / GIB
    loras = each * number("loras")
    length = _length(given[names["length"]]) or families.limit(config) or 0
    token = state = 0.0
    if config:
        # Heads are split over tensor-parallel GPUs, layers over those of a pipeline.
        of_token, of_sequence = shapes.cache(config)
        groups = int(shapes.text(config).get("num_key_value_heads") or tensor)
        token = of_token / min(tensor, groups) * tensor / parts / GIB
        state = of_sequence / parts / GIB
    size = _weights(line.base, config)
    weights = None if size is None else size / parts / GIB
    usable = gpu * float(given[names["share"]] or names["default_share"])
    return Memory(
        gpus=parts * number("data"),
        weights=weights,
        adapter=loras,
        token=token,
        sequence=state + length * token,
        length=length,
        sequences=number("sequences"),
        left=usable - BESIDES - loras - (weights or 0),
    )


def check_memory(line: Line, gpu: float | None = None) -> Memory | None:
    """The memory of a command line, said in one line; None without a GPU (vLLM's CPU build has
    rules of its own). gpu: the GiB of one; else what nvidia-smi says of this machine's. Raises
    cli.BadConfig, with the remedy, where not even one sequence of full length fits."""
    gpu = gpu or gpu_here()
    if gpu is None:
        return None
    found = memory(line, gpu)
    if found.weights is None:
        cli.say(f"memory is not computed: nothing here says how large {line.base} is")
        return found
    parts = (
        f"{found.weights:.1f} GiB of weights, {found.adapter:.1f} of adapter, {BESIDES:.0f} besides (assumed), "
        f"{found.sequence:.1f} for each sequence of {found.length:,} tokens"
    )
    if found.left < found.sequence:
        mend = " ".join(_remedies(line, found, gpu))
        mend = mend or "It wants larger GPUs, or more than one node"
        raise cli.BadConfig(f"{line.base} does not fit a GPU of {gpu:.0f} GiB: {parts}. {mend}")
    room = min(found.at_once, found.sequences)
    waiting = "" if room == found.sequences else ", the others wait"
    cli.say(
        f"each of {found.gpus} GPU of {gpu:.0f} GiB: {parts}; {room} of {found.sequences} such sequences at once{waiting}"
    )
    return found


def _remedies(line: Line, found: Memory, gpu: float) -> Iterator[str]:
    """The fewest GPUs that do, and the context that would."""
    chosen = engine(line.kind)
    tensor = int(vars(parsed(line.words, line.kind))[chosen["memory"]["tensor"]] or 1)
    for wider in (2 * tensor, 4 * tensor, 8 * tensor):
        more = [*line.words, chosen["tensor"], str(wider)]
        other = memory(line._replace(words=more), gpu)
        if wider <= 8 and other.left >= other.sequence:
            yield f'on more GPUs: SERVE="{chosen["tensor"]} {wider}"'
            break
    if found.token:
        state = found.sequence - found.length * found.token
        shorter = math.floor((found.left - state) / found.token / 1024) * 1024
        if shorter > 0:
            yield f'or with a shorter context: SERVE="{chosen["length"]} {shorter}"'


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
