"""What an adapter touches and what a training run takes, from a model's shape and a recipe: memory, time, disk."""

import re
from collections import Counter
from typing import TypedDict

from decksmith.core import cli
from decksmith.core.records import Optionals
from decksmith.models import shapes
from decksmith.models.shapes import Shape
from decksmith.train.training.recipes import Recipe, algorithm, get

GIB = 2**30
LORA = "policy.dtensor_cfg.lora_cfg"


class LoraConfig(TypedDict, total=False):
    """policy.dtensor_cfg.lora_cfg of a recipe."""

    enabled: bool
    dim: int
    alpha: int
    dropout: float
    target_modules: list[str]
    exclude_modules: list[str]
    match_all_linear: bool


class Coverage(TypedDict):
    """What an adapter touches: its parameters, how many modules, and of each kind [adapted, all]."""

    trainable: int
    modules: int
    classes: dict[str, list[int]]


def adapted(lora: LoraConfig, layers: list[shapes.Layer]) -> list[shapes.Layer]:
    """Which of the linear `layers` an adapter touches, by the rules of NeMo-RL's DTensor path (NeMo Automodel's matcher). A pattern
    stands for the whole name, with `*` for anything; the last part of a name alone is meant for our own trainer, NeMo-RL takes it
    for nothing (preflight says so). `target_modules` and `exclude_modules` exclude each other; `match_all_linear` excludes both;
    none of them means `*_proj`. Raises cli.BadConfig."""
    targets, excluded = lora.get("target_modules") or [], lora.get("exclude_modules") or []
    every = bool(lora.get("match_all_linear"))
    if sum(map(bool, (targets, excluded, every))) > 1:
        keys = "target_modules, exclude_modules and match_all_linear: true"
        raise cli.BadConfig(f"{LORA}: {keys} exclude each other")
    is_left_out = bool(excluded or every)
    patterns = excluded if is_left_out else targets or ["*_proj"]
    meant = [any(matches(pattern, name) for pattern in patterns) for name, _, _ in layers]
    return [layer for layer, is_meant in zip(layers, meant, strict=True) if is_meant != is_left_out]


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern of an adapter means the module of this name. As in NeMo Automodel, a
    pattern is a regular expression in which `*` and `.*` are any text: a dot is any character.
    Raises cli.BadConfig."""
    try:
        is_like = re.fullmatch(re.sub(r"\.?\*", ".*", pattern), name) is not None
    except re.error as error:
        raise cli.BadConfig(f"{LORA}: {pattern!r} is no pattern ({error})") from None
    return is_like or pattern == name.rpartition(".")[2]


def targets(linear: set[str], lora: LoraConfig) -> list[str]:
    """The names for peft's target_modules, of the names of a model's linear modules: last parts
    where they say the same, else whole names. lora: lora_cfg of the recipe; adapted says what it
    means. Raises cli.BadConfig where a pattern or all of it matches nothing."""
    for pattern in lora.get("target_modules") or []:
        if not any(matches(pattern, name) for name in linear):
            what = f"no linear module of the model matches {pattern!r}"
            raise cli.BadConfig(f"lora_cfg.target_modules: {what}")
    chosen = {name for name, *_ in adapted(lora, [(name, 0, 0) for name in linear])}
    if not chosen:
        raise cli.BadConfig("lora_cfg leaves no linear module to train")
    last = {name.rpartition(".")[2] for name in chosen}
    meant = {name for name in linear if name.rpartition(".")[2] in last}
    return sorted(last if meant == chosen else chosen)


def coverage(lora: LoraConfig, layers: list[shapes.Layer]) -> Coverage:
    """{"trainable": parameters, "modules": how many are adapted, "classes": {kind: [adapted, of all]}} of an adapter."""
    touched = adapted(lora, layers)
    every = Counter(shapes.kind(name) for name, _, _ in layers)
    counts = Counter(shapes.kind(name) for name, _, _ in touched)
    return {
        "trainable": shapes.size(lora["dim"], touched),
        "modules": len(touched),
        "classes": {name: [counts[name], total] for name, total in every.items()},
    }


def memory(shape: Shape, recipe: Recipe, trainable: int, longest: int) -> dict[str, float]:
    """An estimate of GiB for each GPU while the longest row is trained: {"weights", "gathered",
    "adapter", "activations", "logits", "total"}. Weights in bf16, sharded over all GPUs; two whole
    layers gathered; adapter with gradient and two moments in fp32; 34 bytes x hidden size x layers
    x tokens of activations (Korthikanti et al. 2022, flash attention), or their inputs alone where
    they are recomputed; 10 bytes a logit."""
    gpus = recipe["cluster"]["num_nodes"] * recipe["cluster"]["gpus_per_node"]
    sides = 2 if "dpo" in recipe else 1  # of a pair, which go through the model together
    tokens = sides * longest * recipe["policy"]["train_micro_batch_size"]
    layer = 34 * shape.hidden  # bytes a token
    kept = layer * shape.depth
    if get(recipe, "policy.dtensor_cfg.activation_checkpointing"):
        kept = layer + 2 * shape.hidden * shape.depth
    parts = {
        "weights": 2 * shape.parameters / gpus,
        "gathered": 4 * shape.largest if gpus > 1 else 0,
        "adapter": 16 * trainable / gpus,
        "activations": tokens * kept,
        "logits": 10 * tokens * shape.vocabulary,
    }
    found = {name: round(size / GIB, 2) for name, size in parts.items()}
    return {**found, "total": round(sum(parts.values()) / GIB, 1)}


def hours(recipe: Recipe, pace: dict[str, float], mean: float, tail: float, held: int) -> Optionals:
    """{"hours", "gpu_hours"} by a measured pace, None without one. pace: {"step", "tokens_of_a_row"} (a step waits for its longest
    row: `tail` tokens, the 95th percentile; validation comes on top) or {"token"} (without a GPU; `mean` tokens a row, and half
    the time for each of the `held` ones of a validation: they go one way only)."""
    own = recipe[algorithm(recipe)]
    steps, period = own["max_num_steps"], own.get("val_period") or own["max_num_steps"] + 1
    if "token" in pace:
        ends = bool(own.get("val_at_end")) and steps % period > 0
        often = bool(own.get("val_at_start")) + steps // period + ends
        tokens = steps * recipe["policy"]["train_global_batch_size"] * mean + often * held / 2
        return {"hours": round(tokens * pace["token"] / 3600, 2), "gpu_hours": 0}
    if "step" not in pace:
        return {"hours": None, "gpu_hours": None}
    gpus = recipe["cluster"]["num_nodes"] * recipe["cluster"]["gpus_per_node"]
    taken = steps * pace["step"] * max(1, tail / pace["tokens_of_a_row"]) / 3600
    return {"hours": round(taken, 2), "gpu_hours": round(gpus * taken, 1)}


def disk(recipe: Recipe, trainable: int) -> int:
    """Bytes that the checkpoints take at most: adapter and two moments in fp32, 32 MiB of tokenizer, those kept and two more on the way."""
    saves = recipe[algorithm(recipe)]["max_num_steps"] // recipe["checkpointing"]["save_period"] + 1
    keep = recipe["checkpointing"].get("keep_top_k")
    return (12 * trainable + 32 * 2**20) * min(saves, keep + 2 if keep else saves)
