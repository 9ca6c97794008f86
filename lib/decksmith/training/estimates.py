"""What a model and its LoRA weigh, from config.json alone: layers by class, trainable parameters, memory, time, disk."""

import json
import re
from collections import Counter
from typing import Any

from decksmith.core import cli
from decksmith.training.recipes import get

GIB = 2**30
# Families that are alike in the names and shapes of their linear layers.
LLAMA = ("llama", "mistral", "qwen2", "qwen3", "smollm3")
SERVED_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vLLM 0.32: --max-lora-rank

Config = dict[str, Any]  # a config.json of Hugging Face
Layer = tuple[str, str, int, int]  # of a linear layer: name, class, inputs, outputs


def known(name: str) -> dict[str, Any]:
    """What assets/recipes/models.json says of a model: {"config", "source", "seconds", "seconds_source"}, each where known."""
    return json.loads((cli.ROOT / "assets/recipes/models.json").read_text()).get(name) or {}


def linears(config: Config) -> list[Layer] | None:
    """The linear layers of a model, `[(name, class, inputs, outputs)]`, or None for a family that is not known here.

    Routed experts are no linear layers (transformers 5 keeps them as one 3-D parameter), embeddings neither.
    """
    if config.get("model_type") in LLAMA:
        found = _llama_layers(config)
    elif config.get("model_type") == "nemotron_h" and config.get("hybrid_override_pattern"):
        found = _nemotron_layers(config)
    else:
        return None
    return [*found, ("lm_head", "lm_head", config["hidden_size"], config["vocab_size"])]


def _attention(config: Config, at: str) -> list[Layer]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    q, kv = heads * size, (config.get("num_key_value_heads") or heads) * size
    return [
        (f"{at}.q_proj", "attention q_proj", hidden, q),
        (f"{at}.k_proj", "attention k_proj", hidden, kv),
        (f"{at}.v_proj", "attention v_proj", hidden, kv),
        (f"{at}.o_proj", "attention o_proj", q, hidden),
    ]


def _llama_layers(config: Config) -> list[Layer]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    found = []
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        found += _attention(config, f"{at}.self_attn")
        found += [
            (f"{at}.mlp.gate_proj", "mlp gate_proj", hidden, inner),
            (f"{at}.mlp.up_proj", "mlp up_proj", hidden, inner),
            (f"{at}.mlp.down_proj", "mlp down_proj", inner, hidden),
        ]
    return found


def _nemotron_layers(config: Config) -> list[Layer]:
    """A letter of the pattern is a layer: M is Mamba, * attention, E experts, anything else an MLP."""
    hidden, heads = config["hidden_size"], config["mamba_num_heads"]
    inner = heads * config["mamba_head_dim"]
    states = 2 * config["n_groups"] * config["ssm_state_size"]
    shared = config.get("n_shared_experts", 0)
    shared *= config.get("moe_shared_expert_intermediate_size", 0)
    found: list[Layer] = []
    for layer, kind in enumerate(config["hybrid_override_pattern"]):
        at = f"model.layers.{layer}.mixer"
        if kind == "M":
            found += [
                (f"{at}.in_proj", "mamba in_proj", hidden, 2 * inner + states + heads),
                (f"{at}.out_proj", "mamba out_proj", inner, hidden),
            ]
        elif kind == "*":
            found += _attention(config, at)
        elif kind == "E":
            found += _two_projections(f"{at}.shared_experts", "shared expert", hidden, shared)
        else:
            found += _two_projections(at, "mlp", hidden, config["intermediate_size"])
    return found


def _two_projections(at: str, name: str, hidden: int, width: int) -> list[Layer]:
    if not width:
        return []
    return [
        (f"{at}.up_proj", f"{name} up_proj", hidden, width),
        (f"{at}.down_proj", f"{name} down_proj", width, hidden),
    ]


def adapted(lora: dict[str, Any], layers: list[Any]) -> list[Any]:
    """Which of the linear `layers` an adapter touches, by the rules of NeMo-RL's DTensor path (NeMo Automodel's matcher).

    A pattern is the last part of a name, or stands for the whole name with `*` for anything. `target_modules` and `exclude_modules`
    exclude each other; `match_all_linear` excludes both. Raises cli.BadConfig.
    """
    targets, excluded = lora.get("target_modules") or [], lora.get("exclude_modules") or []
    if sum(map(bool, (targets, excluded, lora.get("match_all_linear")))) > 1:
        raise cli.BadConfig(
            "policy.dtensor_cfg.lora_cfg: target_modules, exclude_modules and match_all_linear: true exclude each other"
        )
    if targets:
        return [layer for layer in layers if any(matches(pattern, layer[0]) for pattern in targets)]
    return [
        layer for layer in layers if not any(matches(pattern, layer[0]) for pattern in excluded)
    ]


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern of an adapter means the module of this name."""
    return (
        pattern == name.rpartition(".")[2]
        or re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None
    )


def coverage(lora: dict[str, Any], layers: list[Layer]) -> dict[str, Any]:
    """{"trainable": parameters, "classes": {class: [adapted, of all]}} of an adapter."""
    touched, every = adapted(lora, layers), Counter(layer[1] for layer in layers)
    counts = Counter(layer[1] for layer in touched)
    return {
        "trainable": lora["dim"] * sum(inputs + outputs for *_, inputs, outputs in touched),
        "classes": {name: [counts[name], total] for name, total in every.items()},
    }


def parameters(config: Config, layers: list[Layer]) -> tuple[int, int]:
    """(all parameters, those of the largest layer), without biases and norms."""
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    per_layer: Counter[str] = Counter()
    for name, _, inputs, outputs in layers:
        per_layer[name.split(".")[2] if name.startswith("model.") else name] += inputs * outputs
    for layer, kind in enumerate(config.get("hybrid_override_pattern") or ""):
        if kind == "E":
            per_layer[str(layer)] += (
                2 * config["n_routed_experts"] * hidden * config["moe_intermediate_size"]
            )
    whole = sum(per_layer.values()) + hidden * vocabulary * (
        0 if config.get("tie_word_embeddings") else 1
    )
    return whole, max(per_layer.values())


def memory(
    config: Config, recipe: dict[str, Any], layers: list[Layer], trainable: int, longest: int
) -> dict[str, float]:
    """An estimate of GiB for each GPU while the longest row is trained: {"weights", "gathered", "adapter", "activations", "logits", "total"}.

    Weights in bf16, sharded over all GPUs; two whole layers gathered; adapter with gradient and two moments in fp32; 34 bytes x hidden
    size x layers x tokens of activations (Korthikanti et al. 2022, flash attention), or their inputs alone where they are recomputed;
    10 bytes a logit.
    """
    gpus = recipe["cluster"]["num_nodes"] * recipe["cluster"]["gpus_per_node"]
    whole, largest = parameters(config, layers)
    depth = config.get("num_hidden_layers") or len(config["hybrid_override_pattern"])
    tokens, row = longest * recipe["policy"]["train_micro_batch_size"], 34 * config["hidden_size"]
    recomputed = get(recipe, "policy.dtensor_cfg.activation_checkpointing")
    parts = {
        "weights": 2 * whole / gpus,
        "gathered": 4 * largest if gpus > 1 else 0,
        "adapter": 16 * trainable / gpus,
        "activations": tokens
        * (row + 2 * config["hidden_size"] * depth if recomputed else row * depth),
        "logits": 10 * tokens * config["vocab_size"],
    }
    found = {name: round(size / GIB, 2) for name, size in parts.items()}
    return {**found, "total": round(sum(parts.values()) / GIB, 1)}


def hours(
    recipe: dict[str, Any], seconds: dict[str, float] | None, mean: float, tail: float
) -> tuple[float, float] | None:
    """(wall hours, GPU-hours) of the training steps by a measured pace, or None without one; validation comes on top.

    seconds: {"step", "tokens_of_a_row"} (a step waits for its longest row: `tail` tokens, the 95th percentile) or {"token"} (without a
    GPU; `mean` tokens a row).
    """
    if not seconds:
        return None
    steps = recipe["sft"]["max_num_steps"]
    if "token" in seconds:
        tokens = steps * recipe["policy"]["train_global_batch_size"] * mean
        return round(tokens * seconds["token"] / 3600, 2), 0
    gpus = recipe["cluster"]["num_nodes"] * recipe["cluster"]["gpus_per_node"]
    taken = steps * seconds["step"] * max(1, tail / seconds["tokens_of_a_row"]) / 3600
    return round(taken, 2), round(gpus * taken, 1)


def disk(recipe: dict[str, Any], trainable: int) -> int:
    """Bytes that the checkpoints take at most: adapter and two moments in fp32, 32 MiB of tokenizer, those kept and two more on the way."""
    saves = recipe["sft"]["max_num_steps"] // recipe["checkpointing"]["save_period"] + 1
    keep = recipe["checkpointing"].get("keep_top_k")
    return (12 * trainable + 32 * 2**20) * min(saves, keep + 2 if keep else saves)
