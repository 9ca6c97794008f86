import pytest
from decksmith.core import cli
from decksmith.training import estimates

NEMOTRON = estimates.known("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")["config"]
TINY = {
    "llama": {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 96,
        "vocab_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
    },
    "nemotron_h": {
        "hybrid_override_pattern": "ME*M",
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "intermediate_size": 128,
        "vocab_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
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
        "tie_word_embeddings": False,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("family", TINY)
def test_the_linear_layers_are_those_that_transformers_builds(family):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(family, **TINY[family])
        )
    real = {
        (name, module.in_features, module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    layers = estimates.linears({"model_type": family, **TINY[family]})
    assert {(name, inputs, outputs) for name, _, inputs, outputs in layers} == real
    matrices = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if parameter.dim() > 1 and "conv" not in name and ".gate." not in name
    )
    assert estimates.parameters({"model_type": family, **TINY[family]}, layers)[0] == matrices


def test_nemotron_has_the_parameters_that_are_told_of_it():
    layers = estimates.linears(NEMOTRON)
    assert estimates.parameters(NEMOTRON, layers)[0] == pytest.approx(31.6e9, rel=0.002)
    published = estimates.coverage({"dim": 256, "exclude_modules": ["*out_proj*"]}, layers)
    ours = estimates.coverage({"dim": 256, "exclude_modules": ["*out_proj*", "*lm_head*"]}, layers)
    assert (round(published["trainable"] / 1e6), round(ours["trainable"] / 1e6)) == (216, 182)
    assert ours["classes"] == {
        "mamba in_proj": [23, 23],
        "mamba out_proj": [0, 23],
        "shared expert up_proj": [23, 23],
        "shared expert down_proj": [23, 23],
        "attention q_proj": [6, 6],
        "attention k_proj": [6, 6],
        "attention v_proj": [6, 6],
        "attention o_proj": [6, 6],
        "lm_head": [0, 1],
    }


@pytest.mark.parametrize(
    "lora, classes",
    [
        ({"target_modules": ["q_proj"]}, {"attention q_proj"}),
        ({"target_modules": ["*_proj"]}, None),
        ({"match_all_linear": True}, "all"),
        ({}, "all"),
        ({"target_modules": ["proj"]}, set()),
        (
            {
                "exclude_modules": [
                    "in_proj",
                    "*.mixer.o*",
                    "*shared*",
                    "lm_head",
                    "*.k_proj",
                    "*.v_proj",
                ]
            },
            {"attention q_proj"},
        ),
    ],
)
def test_patterns_mean_the_last_part_or_the_whole_name(lora, classes):
    layers = estimates.linears(NEMOTRON)
    every = {layer[1] for layer in layers}
    expected = every if classes == "all" else every - {"lm_head"} if classes is None else classes
    assert {layer[1] for layer in estimates.adapted(lora, layers)} == expected


def test_targets_and_excludes_exclude_each_other():
    with pytest.raises(cli.BadConfig, match="exclude each other"):
        estimates.adapted({"target_modules": ["q_proj"], "exclude_modules": ["o_proj"]}, [])


def test_a_family_that_is_not_known_has_no_list():
    assert estimates.linears({"model_type": "unheard-of", "hidden_size": 8}) is None


def test_time_follows_the_pace_and_a_step_waits_for_its_longest_row():
    recipe = {
        "sft": {"max_num_steps": 90},
        "cluster": {"num_nodes": 2, "gpus_per_node": 8},
        "policy": {"train_global_batch_size": 16},
    }
    assert estimates.hours(recipe, {"step": 10, "tokens_of_a_row": 2048}, 1000, 1500) == (0.25, 4.0)
    assert estimates.hours(recipe, {"step": 10, "tokens_of_a_row": 2048}, 1000, 4096) == (0.5, 8.0)
    assert estimates.hours(recipe, {"token": 0.01}, 500, 900) == (2.0, 0)
    assert estimates.hours(recipe, None, 500, 900) is None


def test_checkpoints_take_what_is_kept_and_two_on_the_way():
    recipe = {"sft": {"max_num_steps": 100}, "checkpointing": {"save_period": 10, "keep_top_k": 2}}
    one = 12 * 1000 + 32 * 2**20
    assert estimates.disk(recipe, 1000) == 4 * one
    recipe["checkpointing"] = {"save_period": 10, "keep_top_k": None}
    assert estimates.disk(recipe, 1000) == 11 * one


def test_weights_are_sharded_and_activations_can_be_recomputed():
    recipe = {
        "policy": {"train_micro_batch_size": 1, "dtensor_cfg": {}},
        "cluster": {"num_nodes": 1, "gpus_per_node": 1},
    }
    layers = estimates.linears(NEMOTRON)
    alone = estimates.memory(NEMOTRON, recipe, layers, 10**8, 4096)
    recipe["cluster"] = {"num_nodes": 2, "gpus_per_node": 8}
    many = estimates.memory(NEMOTRON, recipe, layers, 10**8, 4096)
    assert (
        alone["weights"] == pytest.approx(16 * many["weights"], rel=0.01)
        and alone["gathered"] == 0 < many["gathered"]
    )
    recipe["policy"]["dtensor_cfg"]["activation_checkpointing"] = True
    assert (
        estimates.memory(NEMOTRON, recipe, layers, 10**8, 4096)["activations"]
        < many["activations"] / 8
    )
