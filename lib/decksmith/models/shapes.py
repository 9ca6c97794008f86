"""What a model is made of: linear layers, parameters, and the memory of what it has read. From config.json alone."""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

# Families that are alike in the names and shapes of their linear layers.
LLAMA = ("llama", "mistral", "qwen2", "qwen3", "smollm3")

Config = dict[str, Any]  # a config.json of Hugging Face
Layer = tuple[str, int, int]  # of a linear layer: name, inputs, outputs


@dataclass(frozen=True)
class Shape:
    """A model's dimensions. `largest`: the parameters of its largest layer; `source`: where these numbers come from."""

    linears: list[Layer]
    parameters: int
    largest: int
    hidden: int
    depth: int
    vocabulary: int
    source: str

    @classmethod
    def assumed(cls, config: Config, source: str) -> "Shape | None":
        """By the dimensions of a config.json; None for a family that is not known here.

        Routed experts are taken for a list of linear layers, as in the Hub's own code of Nemotron-3: the larger case.
        transformers 5 keeps them as one 3-D parameter, which no adapter of ours touches.
        """
        config = text(config)
        layers = linears(config)
        if layers is None:
            return None
        sizes: Counter[str] = Counter()
        for name, inputs, outputs in layers:
            sizes[name.split(".")[2] if name.startswith("model.") else name] += inputs * outputs
        hidden, vocabulary = config["hidden_size"], config["vocab_size"]
        embeddings = 0 if config.get("tie_word_embeddings") else hidden * vocabulary
        return cls(
            linears=layers,
            parameters=sum(sizes.values()) + embeddings,
            largest=max(sizes.values()),
            hidden=hidden,
            depth=depth(config),
            vocabulary=vocabulary,
            source=source,
        )


def text(config: Config) -> Config:
    """The part of a configuration that is about text; of a model for text alone, all of it."""
    return config.get("text_config") or config


def depth(config: Config) -> int:
    """The number of layers."""
    return int(config.get("num_hidden_layers") or len(_pattern(config)))


def linears(config: Config) -> list[Layer] | None:
    """The linear layers of a model, or None for a family that is not known here. Embeddings are none."""
    if config.get("model_type") in LLAMA:
        found = _llama_layers(config)
    elif config.get("model_type") == "nemotron_h" and _pattern(config):
        found = _nemotron_layers(config)
    else:
        return None
    return [*found, ("lm_head", config["hidden_size"], config["vocab_size"])]


def _heads(config: Config) -> tuple[int, int, int]:
    """(heads, those of keys and values, the size of one)."""
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    return heads, config.get("num_key_value_heads") or heads, size


def _attention(config: Config, at: str) -> list[Layer]:
    hidden = config["hidden_size"]
    heads, groups, size = _heads(config)
    return [
        (f"{at}.q_proj", hidden, heads * size),
        (f"{at}.k_proj", hidden, groups * size),
        (f"{at}.v_proj", hidden, groups * size),
        (f"{at}.o_proj", heads * size, hidden),
    ]


def _llama_layers(config: Config) -> list[Layer]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    found = []
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        found += _attention(config, f"{at}.self_attn")
        found.append((f"{at}.mlp.gate_proj", hidden, inner))
        found += _two_projections(f"{at}.mlp", hidden, inner)
    return found


def _pattern(config: Config) -> str:
    """A letter for each layer: M is Mamba, * attention, E experts, anything else an MLP; the Hub's
    configuration has the letters, transformers' has names."""
    letters = {"mamba": "M", "attention": "*", "moe": "E"}
    letters |= {"linear_attention": "M", "full_attention": "*"}  # since 5.23
    named = "".join(letters.get(kind, "-") for kind in config.get("layers_block_type") or ())
    return str(config.get("hybrid_override_pattern") or named)


def _nemotron_layers(config: Config) -> list[Layer]:
    """The layers of a NemotronH, by its pattern."""
    hidden, heads = config["hidden_size"], config["mamba_num_heads"]
    inner = heads * config["mamba_head_dim"]
    states = 2 * config["n_groups"] * config["ssm_state_size"]
    shared = config.get("n_shared_experts", 0)
    shared *= config.get("moe_shared_expert_intermediate_size", 0)
    found: list[Layer] = []
    for layer, kind in enumerate(_pattern(config)):
        at = f"model.layers.{layer}.mixer"
        if kind == "M":
            found.append((f"{at}.in_proj", hidden, 2 * inner + states + heads))
            found.append((f"{at}.out_proj", inner, hidden))
        elif kind == "*":
            found += _attention(config, at)
        elif kind == "E":
            for expert in range(config["n_routed_experts"]):
                width = config["moe_intermediate_size"]
                found += _two_projections(f"{at}.experts.{expert}", hidden, width)
            found += _two_projections(f"{at}.shared_experts", hidden, shared)
        else:
            found += _two_projections(at, hidden, config["intermediate_size"])
    return found


def _two_projections(at: str, hidden: int, width: int) -> list[Layer]:
    if not width:
        return []
    return [(f"{at}.up_proj", hidden, width), (f"{at}.down_proj", width, hidden)]


def kind(name: str) -> str:
    """What a module is, wherever it stands: `model.layers.3.mixer.experts.7.up_proj` is a `mixer.experts.up_proj`."""
    parts = re.sub(r"^.*?\blayers\.\d+\.", "", name).split(".")
    return ".".join(part for part in parts if not part.isdigit())


def is_routed(name: str) -> bool:
    """Whether a linear layer belongs to one of a list of routed experts."""
    return re.search(r"\.experts\.\d+\.", name) is not None


def size(rank: int, layers: list[Layer]) -> int:
    """The parameters of an adapter of this rank on these layers."""
    return rank * sum(inputs + outputs for _, inputs, outputs in layers)


# What is kept of the tokens that were read


def cache(config: Config) -> tuple[int, int]:
    """(bytes for each token, bytes for each sequence) of keys, values and states: at most, in bf16, states in fp32.

    A window that slides is counted as one that does not.
    """
    config = text(config)
    _, groups, head = _heads(config)
    kinds = _kinds(config)
    attention = sum(
        kind in ("*", "attention", "full_attention", "sliding_attention") for kind in kinds
    )
    per_token = attention * 2 * groups * head * 2
    states = 0
    if "mamba_num_heads" in config:
        state = config["mamba_num_heads"] * config["mamba_head_dim"] * config["ssm_state_size"]
        states = 4 * state * sum(kind in ("M", "mamba", "linear_attention") for kind in kinds)
    elif "linear_num_value_heads" in config:
        state = config["linear_num_value_heads"] * config["linear_value_head_dim"]
        state *= config["linear_key_head_dim"]
        states = 4 * state * kinds.count("linear_attention")
    return per_token, states


def _kinds(config: Config) -> list[str]:
    """What each layer is; where the configuration does not say, attention."""
    for key in ("layer_types", "layers_block_type", "hybrid_override_pattern"):
        if config.get(key):
            return list(config[key])
    if "linear_num_value_heads" in config:
        every = config.get("full_attention_interval", 4)  # transformers' default
        places = range(1, depth(config) + 1)
        return ["linear_attention" if place % every else "attention" for place in places]
    return ["attention"] * depth(config)
