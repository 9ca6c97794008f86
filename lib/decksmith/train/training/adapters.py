"""LoRA adapters: checked against their base model, turned into GGUF and back, exported from a run's
checkpoints with a manifest.

`python3 -m decksmith.train.training.adapters data/adapter OUT` makes a PEFT folder of an adapter.gguf.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any, TypedDict

import numpy
from numpy import ndarray

from decksmith.core import cli, stream
from decksmith.models import families
from decksmith.train.hub import repository, weights
from decksmith.train.hub.weights import Tensor
from decksmith.train.training import base_models, recipes
from decksmith.train.training.checkpoints import Checkpoint, finished, ranked
from decksmith.train.training.recipes import Recipe

PART = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight\Z")  # of an adapter's tensors
SMALL = "A rehearsal: a model of 135 million parameters learns the file format; what it writes about a subject is mostly wrong."
# What of job.json goes with an adapter: nothing that names a place.
JOB = "trainer revision image images nodes device dtype seed seeds versions".split()
WEIGHTS = "adapter_model.safetensors"


class AdapterConfig(TypedDict, total=False):
    """adapter_config.json of a PEFT folder, as far as it is read."""

    r: int
    lora_alpha: int
    rank_pattern: dict[str, int] | None
    use_rslora: bool
    peft_type: str
    base_model_name_or_path: str


class AdapterCheck(TypedDict):
    """What an adapter consists of; `untrained`: modules whose lora_B is zero."""

    rank: int
    alpha: int
    modules: dict[str, int]
    parameters: int
    untrained: list[str]


def check(folder: Path | str, name: str | Path) -> AdapterCheck:
    """Whether a PEFT folder is a trained LoRA adapter of the base model `name`, of which the headers alone are read. Every tensor
    is half of a pair of the stated rank that fits a matrix of the base, all are finite, and some lora_B is not zero (it begins as
    zero); `untrained` are the modules where it still is. Raises cli.BadData, cli.Missing."""
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise cli.Missing(f"there is no {path}")
    config = _config(folder)
    header = weights.tensors(path)
    pairs: dict[str, dict[str, str]] = {}  # {module: {"A" or "B": tensor}}
    for tensor in header:
        if not (part := PART.match(tensor)):
            raise cli.BadData(f"{path}: {tensor} is no part of a LoRA adapter")
        pairs.setdefault(part[1], {})[part[2]] = tensor
    matrices, values = _matrices(name), values_of(path, header)
    modules: Counter[str] = Counter()
    untrained = []
    for module, pair in sorted(pairs.items()):
        if (wanted := matrices.get(_key(module))) is None:
            raise cli.BadData(f"{path}: {module} is no matrix of {name}; a server would ignore it")
        rank = (config.get("rank_pattern") or {}).get(module, config["r"])
        shapes = [header[pair[half]].shape if half in pair else None for half in "AB"]
        if shapes != [[rank, wanted[1]], [wanted[0], rank]]:
            fit = f"shapes {shapes} do not fit rank {rank} on {list(wanted)} of {name}"
            raise cli.BadData(f"{path}: {module}: {fit}")
        if not all(numpy.isfinite(values[tensor]).all() for tensor in pair.values()):
            raise cli.BadData(f"{path}: {module} holds numbers that are not finite")
        modules[module.rpartition(".")[2]] += 1
        if not values[pair["B"]].any():
            untrained.append(module)
    if len(untrained) == len(pairs):
        raise cli.BadData(f"{path}: every lora_B is zero: this adapter changes nothing")
    return {
        "rank": config["r"],
        "alpha": config["lora_alpha"],
        "modules": dict(sorted(modules.items())),
        "parameters": sum(one.size for one in values.values()),
        "untrained": untrained,
    }


def base_of(folder: Path) -> str:
    """The base model of an adapter, `smol` for the embedded one. Raises cli.BadData, cli.Missing."""
    base = _config(folder)["base_model_name_or_path"]
    return "smol" if base == base_models.known("smol") else base


def _config(folder: Path | str) -> AdapterConfig:
    path = Path(folder) / "adapter_config.json"
    try:
        config = json.loads(path.read_text())
        is_lora = config["peft_type"] == "LORA" and config["r"] and config["lora_alpha"]
    except FileNotFoundError:
        raise cli.Missing(f"there is no {path}") from None
    except (ValueError, KeyError, TypeError):
        is_lora = False
    if not is_lora:
        what = "the configuration of a LoRA adapter (peft_type, r, lora_alpha)"
        raise cli.BadData(f"{path}: not {what}")
    return config


def _matrices(name: str | Path) -> base_models.Shapes:
    """{key of a module: [out, in]} of the matrices of a base model."""
    found = {
        _key(tensor.removesuffix(".weight")): shape
        for tensor, shape in base_models.shapes(name).items()
        if tensor.endswith(".weight") and len(shape) == 2
    }
    for key in [key for key in found if key.endswith("embed_tokens")]:
        found.setdefault("lm_head", found[key])  # where the two are tied
    return found


def _key(module: str) -> str:
    """What of a module's name is the same under every prefix of model classes (model., backbone., language_model.model.)."""
    at = module.find("layers.")
    return module[at:] if at >= 0 else module


def values_of(path: Path, header: dict[str, Tensor]) -> dict[str, ndarray]:
    """{name: float32 array} of those tensors of a safetensors file, of F32, F16 or BF16. Raises cli.BadData."""
    data, found = numpy.memmap(path, mode="r"), {}
    for name, tensor in header.items():
        raw = data[tensor.start : tensor.end]
        if tensor.dtype == "BF16":
            one = (raw.view("<u2").astype("<u4") << 16).view("<f4")
        elif tensor.dtype in ("F32", "F16"):
            one = raw.view("<f4" if tensor.dtype == "F32" else "<f2").astype("<f4")
        else:
            raise cli.BadData(f"{path}: {name} is {tensor.dtype}; F32, F16 and BF16 are read")
        found[name] = one.reshape(tensor.shape)
    return found


def gguf(folder: Path | str, name: str | Path, out: Path) -> None:
    """Write the adapter as `out` for llama.cpp, in 8 bits (16 where a row is no multiple of 32
    numbers); the base must be of the llama family. Raises cli.BadData, cli.Missing."""
    llama = base_models.library("gguf")
    model, config = base_models.config(name), _config(folder)
    if (kind := model.get("model_type")) != "llama":
        raise cli.BadData(f"{name} is of type {kind}; only llama adapters are turned into GGUF")
    heads = base_models.projected_heads(model)
    path = Path(folder) / WEIGHTS
    temporary = Path(f"{out}.{os.getpid()}.tmp")
    writer = llama.GGUFWriter(temporary, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    # llama.cpp scales by alpha / rank, rsLoRA by alpha / sqrt(rank)
    scale = config["r"] ** 0.5 if config.get("use_rslora") else 1
    writer.add_float32("adapter.lora.alpha", config["lora_alpha"] * scale)
    for tensor, value in sorted(values_of(path, weights.tensors(path)).items()):
        match = PART.match(tensor)
        module, half = match.groups() if match else (tensor, "")
        place = _gguf_name(module)
        if place is None:
            raise cli.BadData(f"{path}: {module} has no place in a GGUF adapter")
        if half == "B" and (count := heads.get(module.rpartition(".")[2])):
            value = base_models.permuted(value, count)
        types = llama.GGMLQuantizationType
        form = types.F16 if value.shape[1] % 32 else types.Q8_0
        packed = llama.quantize(numpy.ascontiguousarray(value), form)
        writer.add_tensor(f"{place}.weight.lora_{half.lower()}", packed, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(temporary, out)


def unpack(source: Path, out: Path) -> AdapterCheck:
    """Write SOURCE/adapter.gguf, an adapter of the embedded model, as the PEFT folder `out`, with
    its manifest.json. Returns `check` of it. Raises cli.Missing, cli.BadData."""
    llama = base_models.library("gguf")
    path = source / "adapter.gguf"
    if not path.is_file():
        raise cli.Missing(f"there is no {path}; make adapter writes it")
    reader, tensors = llama.GGUFReader(path), {}
    heads = base_models.projected_heads(base_models.config("smol"))
    for tensor in reader.tensors:
        stem, _, half = tensor.name.partition(".weight.lora_")
        module, half = base_models.hf_module(stem), half.upper()
        value = llama.dequantize(tensor.data, tensor.tensor_type).astype("<f4")
        if half == "B" and (count := heads.get(module.rpartition(".")[2])):
            value = base_models.unpermuted(value, count)
        name = f"base_model.model.{module}.lora_{half}.weight"
        tensors[name] = ("F32", value.shape, numpy.ascontiguousarray(value).tobytes())
    ranks = {shape[0] for name, (_, shape, _) in tensors.items() if ".lora_A." in name}
    setting = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_models.known("smol"),
        "r": max(ranks),  # `check` finds those of another
        "lora_alpha": int(reader.fields["adapter.lora.alpha"].contents()),
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.split(".")[-3] for name in tensors}),
    }
    out.mkdir(parents=True, exist_ok=True)
    stream.write(out / "adapter_config.json", json.dumps(setting, indent=2) + "\n")
    stream.write(out / WEIGHTS, base_models.safetensors(tensors))
    stream.write(out / "manifest.json", (source / "manifest.json").read_bytes())
    return check(out, "smol")


def _gguf_name(module: str) -> str | None:
    """`model.layers.0.self_attn.q_proj` -> `blk.0.attn_q`; None for a module that GGUF has no name for."""
    short = {long: name for name, long in (base_models.LAYERS | {"output": "lm_head"}).items()}
    layer = re.fullmatch(r"(?:.*\.)?layers\.(\d+)\.(.+)", module)
    part = short.get(layer[2] if layer else module)
    return f"blk.{layer[1]}.{part}" if layer and part else part


def export(run: Path | str, *, step: int | None = None, merge: bool = False) -> dict[str, Any]:
    """Make RUN/adapter of a checkpoint: the PEFT folder, checked, with manifest.json, card, and adapter.gguf for a llama base;
    returns the manifest. step: which checkpoint; else the best by the recipe's metric, the newest where none has it. merge:
    RUN/merged too, the base model with the adapter in it. Raises cli.Missing, cli.BadData."""
    run = Path(run)
    found = finished(run / "checkpoints")
    if not found:
        what = f"there is no finished checkpoint in {run}/checkpoints"
        raise cli.Missing(f"{what}; sft-train or sft.sbatch makes them")
    if not (run / "recipe.yaml").is_file():
        raise cli.Missing(f"there is no {run}/recipe.yaml, which says what the checkpoints are of")
    config = recipes.load(run / "recipe.yaml")
    chosen, why = _chosen(found, step, config)
    made = run / f"adapter.{os.getpid()}.tmp"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        manifest = _fill(made, run, config, chosen, why)
        repository.bundle(made, "adapter", f"decksmith/{run.resolve().name}")
        os.rename(made / "card/README.md", made / "README.md")
        os.rmdir(made / "card")
        _put(made, run / "adapter")
    finally:
        shutil.rmtree(made, ignore_errors=True)
    if merge:
        merge_into(run / "adapter", config["policy"]["model_name"], run / "merged")
    return manifest


def _fill(made: Path, run: Path, config: Recipe, chosen: Checkpoint, why: str) -> dict[str, Any]:
    """Write into `made` what an exported adapter consists of, without its card; returns the manifest."""
    name, section = config["policy"]["model_name"], recipes.algorithm(config)
    source = chosen.path / "policy/weights/model"
    shape = check(source, name)
    shutil.copyfile(source / WEIGHTS, made / WEIGHTS)
    setting = _config(source) | {"base_model_name_or_path": base_models.known(name)}
    stream.write(made / "adapter_config.json", json.dumps(setting, indent=2, sort_keys=True) + "\n")
    _copy(base_models.folder(name, small=True), made, *base_models.TOKENIZER)
    _copy(run / "adapter", made, "about.toml")
    sides = {"train": run / "data/train.jsonl", "validation": run / "data/test.jsonl"}
    sides = {side: path for side, path in sides.items() if path.is_file()}
    job = made_of = None
    with contextlib.suppress(OSError, ValueError):
        made_of = json.loads((run / "data/report.json").read_text())
    with contextlib.suppress(OSError, ValueError):
        job = json.loads((run / "job.json").read_text())
    manifest: dict[str, Any] = {
        "base": base_models.known(name),
        "step": chosen.step,
        "of": config[section]["max_num_steps"],
        "chosen": why,
        "val_loss": chosen.measured(recipes.VAL_LOSS.get(section, "")),
        "train_loss": chosen.info.get("train:loss"),
        "recipe": {
            "sha256": sha256(run / "recipe.yaml"),
            **{key: config[key] for key in ("policy", section, "start") if key in config},
        },
        "data": {
            side: {"rows": recipes.count(path), "sha256": sha256(path)}
            for side, path in sides.items()
        },
        "source": {key: made_of[key] for key in ("source", "sha256")} if made_of else None,
        "rewards": recipes.rewards_of(run, config),
        "job": {key: job[key] for key in JOB if key in job} if job else None,
        "adapter": {**shape, "sha256": sha256(made / WEIGHTS)},
        "limits": [SMALL] if str(name) == "smol" else None,
    }
    if base_models.config(name).get("model_type") == "llama":
        gguf(made, name, made / "adapter.gguf")
        manifest["adapter"]["gguf_sha256"] = sha256(made / "adapter.gguf")
    stream.write(made / "manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    return manifest


def _copy(source: Path, target: Path, *names: str) -> None:
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _chosen(found: list[Checkpoint], step: int | None, config: Recipe) -> tuple[Checkpoint, str]:
    if step is not None:
        by_step = {one.step: one for one in found}
        if step not in by_step:
            steps = ", ".join(map(str, by_step))
            raise cli.Missing(f"there is no checkpoint of step {step}; there are: {steps}")
        return by_step[step], "asked for"
    metric = recipes.get(config, "checkpointing.metric_name", "val:val_loss")
    if metric is None:  # NeMo-RL's way to keep the latest
        return found[-1], "the last"
    best = ranked(found, metric, bool(recipes.get(config, "checkpointing.higher_is_better")))
    if not best:
        return found[-1], f"the last; no checkpoint has {metric}"
    return best[0], f"best of {len(best)} by {metric}"


def merge_into(adapter: Path, name: str, out: Path) -> None:
    """Make the folder `out`: the base model `name` with the adapter added to its matrices, for a server that takes no
    adapter. All but its weights is the base's own: transformers writes names of layers that the older one in a trainer's
    image refuses, and Automodel shards a Nemotron over several GPUs by its base's own code alone."""
    peft, torch = base_models.library("peft"), base_models.library("torch")
    transformers = base_models.library("transformers")
    transformers.utils.logging.disable_progress_bar()
    base = base_models.folder(name)
    whole = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    merged = peft.PeftModel.from_pretrained(whole, adapter).merge_and_unload()
    made = out.with_name(f"{out.name}.{os.getpid()}.tmp")
    merged.save_pretrained(made)
    for path in made.glob("*.safetensors"):
        path.chmod(0o644)  # safetensors writes for its owner alone
    config = json.loads((base / "config.json").read_text())
    config["torch_dtype" if "torch_dtype" in config else "dtype"] = "bfloat16"
    stream.write(made / "config.json", json.dumps(config, indent=2) + "\n")
    _copy(base, made, *base_models.TOKENIZER, *(path.name for path in base.glob("*.py")))
    _copy(adapter, made, *base_models.TOKENIZER)
    stream.write(made / families.MERGED, json.dumps({"base": name}))
    _put(made, out)


def _put(made: Path, folder: Path) -> None:
    old = folder.with_name(f"{folder.name}.old.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, old)
    os.rename(made, folder)
    shutil.rmtree(old, ignore_errors=True)


def sha256(path: Path) -> str:
    """Of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unpack(given: Path, target: Path) -> None:
    parameters = unpack(given, target)["parameters"]
    cli.say(f"{target} has {parameters:,} parameters of {given}")


if __name__ == "__main__":
    cli.ends_with(lambda: _unpack(*map(Path, sys.argv[1:])))
