"""Models that transformers really builds, on the meta device, by configurations of ours: what the families' patterns and the
dimensions alone say of their layers."""

import pytest
from decksmith.models import families, shapes
from decksmith.train.training import estimates

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _installed():
    """What builds the models; loaded only where these tests run, for it takes 2 s of CPU."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")


ATTENTION = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "intermediate_size": 96,
    "vocab_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": False,
}
NEMOTRON = ATTENTION | {
    "hybrid_override_pattern": "ME*M",
    "num_hidden_layers": 4,
    "mamba_num_heads": 4,
    "mamba_head_dim": 8,
    "ssm_state_size": 16,
    "n_groups": 2,
    "conv_kernel": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 40,
}
EXPERTS = ATTENTION | {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
}
SIZES = {
    "llama": ATTENTION,
    "qwen3": ATTENTION,
    "qwen3_moe": EXPERTS,
    "qwen3_5": ATTENTION,
    "qwen3_5_moe": EXPERTS,
    "gpt_oss": EXPERTS,
    "nemotron_h": NEMOTRON,
}
# Those whose sizes stand in a part of their configuration.
WITH_PICTURES = ("qwen3_5", "qwen3_5_moe")


def built(kind):
    """(a tiny model of this type, its linear layers)."""
    import torch
    import transformers

    sizes = {"text_config": SIZES[kind]} if kind in WITH_PICTURES else SIZES[kind]
    config = transformers.AutoConfig.for_model(kind, **sizes)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return model, [
        (name, module.in_features, module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]


@pytest.mark.parametrize("kind", SIZES)
def test_the_adapter_of_each_family_leaves_the_routed_experts_alone(kind):
    model, linears = built(kind)
    family = families.of("a folder", {"model_type": kind, "n_routed_experts": 4})
    assert bool(family.name) == (kind != "llama")
    # Not one module of the vision model is built by the class for text.
    patterns = [pattern for pattern in family.exclude if pattern != "*visual*"]
    if kind == "llama":  # dense, and of no family
        patterns = []
    modules = dict(model.named_modules())
    for pattern in patterns:
        assert any(estimates.matches(pattern, name) for name in modules), pattern
    touched = estimates.adapted({"exclude_modules": patterns}, linears)
    names = {shapes.kind(name) for name, _, _ in touched}
    assert any(name.endswith(".q_proj") for name in names) and "lm_head" not in names
    assert not any(".experts" in name for name in names)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "nemotron_h"])
def test_the_dimensions_alone_say_what_is_built(kind):
    model, linears = built(kind)
    told = shapes.Shape.assumed({"model_type": kind, **SIZES[kind]}, "by its dimensions")
    alike = [layer for layer in told.linears if not shapes.is_routed(layer[0])]
    assert set(alike) == set(linears)
    matrices = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if parameter.dim() > 1 and "conv" not in name and ".gate." not in name
    )
    assert told.parameters == matrices
    layers = next(module for name, module in model.named_modules() if name.endswith(".layers"))
    largest = max(sum(one.numel() for one in layer.parameters()) for layer in layers)
    assert told.largest == pytest.approx(largest, rel=0.05)
