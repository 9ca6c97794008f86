import pytest
from decksmith.models import shapes

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "vocab_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def test_a_family_that_is_not_known_has_no_shape():
    unknown = {"model_type": "unheard-of", "hidden_size": 8}
    assert shapes.Shape.assumed(unknown, "test") is None


def test_a_model_with_pictures_has_the_shape_of_its_text():
    alone = shapes.Shape.assumed(LLAMA, "test")
    within = {"model_type": "with-pictures", "hidden_size": 9, "text_config": LLAMA}
    assert shapes.Shape.assumed(within, "test") == alone
    assert (alone.hidden, alone.depth, alone.vocabulary) == (64, 2, 128)
    # q, k, v, o and three of the MLP
    assert alone.largest == 64 * (64 + 32 + 32 + 64) + 3 * 64 * 96
    assert alone.parameters == 2 * alone.largest + 2 * 64 * 128


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.layers.3.mixer.experts.7.up_proj", "mixer.experts.up_proj"),
        ("backbone.layers.0.mixer.in_proj", "mixer.in_proj"),
        ("lm_head", "lm_head"),
    ],
)
def test_a_module_is_of_one_kind_wherever_it_stands(name, kind):
    assert shapes.kind(name) == kind
    assert shapes.is_routed(name) == (".experts.7." in name)


def test_only_layers_of_attention_keep_every_token():
    grouped = {"num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128}
    hybrid = {
        **grouped,
        "hybrid_override_pattern": "MEM*EM",
        "mamba_num_heads": 64,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
    }
    assert shapes.cache(hybrid) == (1024 * 1, 3 * 4 * 64 * 64 * 128)
    assert shapes.cache({**grouped, "num_hidden_layers": 7}) == (1024 * 7, 0)
    linear = {
        **grouped,
        "num_hidden_layers": 8,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 16,
        "linear_key_head_dim": 8,
    }
    assert shapes.cache({"text_config": linear}) == (1024 * 2, 6 * 4 * 4 * 16 * 8)
    kinds = ["sliding_attention", "full_attention"]
    assert shapes.cache({**grouped, "num_hidden_layers": 2, "layer_types": kinds}) == (2048, 0)


@pytest.mark.parametrize(
    "named",
    [["mamba", "moe", "attention", "mlp"], ["linear_attention", "moe", "full_attention", "mlp"]],
)
def test_a_nemotron_that_transformers_saved_names_its_layers_and_has_the_same_ones(named):
    sizes = {"hidden_size": 64, "vocab_size": 100, "num_attention_heads": 4, "head_dim": 16}
    sizes |= {"mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 1, "ssm_state_size": 8}
    sizes |= {"n_routed_experts": 2, "moe_intermediate_size": 16, "intermediate_size": 32}
    sizes |= {"moe_shared_expert_intermediate_size": 16, "model_type": "nemotron_h"}
    hub, saved = sizes | {"hybrid_override_pattern": "ME*-"}, sizes | {"layers_block_type": named}
    assert shapes.linears(saved) == shapes.linears(hub) and len(shapes.linears(hub)) > 8
    more = {"num_key_value_heads": 1, "ssm_state_size": 8}
    assert shapes.cache(saved | more) == shapes.cache(hub | more) and all(shapes.cache(hub | more))
