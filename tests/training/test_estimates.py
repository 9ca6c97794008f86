import pytest
from decksmith.core import cli
from decksmith.models import families, shapes
from decksmith.train.training import estimates

NAME = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
NEMOTRON = shapes.Shape.assumed(families.of(NAME).dimensions, "test")


def test_nemotron_has_the_parameters_that_are_told_of_it():
    assert NEMOTRON.parameters == pytest.approx(31.6e9, rel=0.002)

    def coverage(*excluded):
        return estimates.coverage({"dim": 256, "exclude_modules": excluded}, NEMOTRON.linears)

    published = coverage("*out_proj*")
    assert published["modules"] == 5981 + 1 and round(published["trainable"] / 1e6) == 7065
    experts = coverage("*out_proj*", "*lm_head*")
    assert (experts["modules"], round(experts["trainable"] / 1e6)) == (5981, 7031)
    ours = coverage("*out_proj*", "*lm_head*", "*mixer.experts*")
    assert (ours["modules"], round(ours["trainable"] / 1e6)) == (93, 182)
    assert ours["classes"] == {
        "mixer.in_proj": [23, 23],
        "mixer.out_proj": [0, 23],
        "mixer.experts.up_proj": [0, 2944],
        "mixer.experts.down_proj": [0, 2944],
        "mixer.shared_experts.up_proj": [23, 23],
        "mixer.shared_experts.down_proj": [23, 23],
        "mixer.q_proj": [6, 6],
        "mixer.k_proj": [6, 6],
        "mixer.v_proj": [6, 6],
        "mixer.o_proj": [6, 6],
        "lm_head": [0, 1],
    }


@pytest.mark.parametrize(
    "lora, classes",
    [
        ({"target_modules": ["q_proj"]}, {"mixer.q_proj"}),
        ({"target_modules": ["*_proj"]}, None),
        ({"match_all_linear": True}, "all"),
        ({}, None),  # Automodel's own default is *_proj
        ({"target_modules": ["proj"]}, set()),
        (
            {
                "exclude_modules": [
                    "in_proj",
                    "*.mixer.o*",
                    "*shared*",
                    "*mixer.experts*",
                    "lm_head",
                    "*.k_proj",
                    "*.v_proj",
                ]
            },
            {"mixer.q_proj"},
        ),
    ],
)
def test_patterns_mean_the_last_part_or_the_whole_name(lora, classes):
    every = {shapes.kind(name) for name, _, _ in NEMOTRON.linears}
    expected = every if classes == "all" else every - {"lm_head"} if classes is None else classes
    adapted = estimates.adapted(lora, NEMOTRON.linears)
    assert {shapes.kind(name) for name, _, _ in adapted} == expected


@pytest.mark.parametrize(
    ("pattern", "name", "is_meant"),
    [
        ("*mixer.experts*", "model.layers.1.mixer.experts.7.up_proj", True),
        ("*mixer.experts*", "model.layers.1.mixer.shared_experts.up_proj", False),
        # As in NeMo Automodel, whose dot is any character.
        ("*.experts.*", "model.layers.1.mixer.shared_experts.up_proj", True),
        (families.ROUTED, "model.layers.1.mixer.shared_experts.up_proj", False),
        (families.ROUTED, "model.layers.1.mixer.experts.7.up_proj", True),
        ("*.layers.0.*.q_proj", "model.layers.0.self_attn.q_proj", True),
        ("*.layers.0.*.q_proj", "model.layers.1.self_attn.q_proj", False),
        ("q_proj", "model.layers.1.self_attn.q_proj", True),
        ("lm_head", "model.lm_head_norm", False),
    ],
)
def test_a_pattern_means_what_it_means_to_the_trainer(pattern, name, is_meant):
    assert estimates.matches(pattern, name) == is_meant


def test_what_is_no_pattern_is_refused():
    with pytest.raises(cli.BadConfig, match=r"'\*\(' is no pattern"):
        estimates.matches("*(", "q_proj")


def test_targets_and_excludes_exclude_each_other():
    with pytest.raises(cli.BadConfig, match="exclude each other"):
        estimates.adapted({"target_modules": ["q_proj"], "exclude_modules": ["o_proj"]}, [])


def test_time_follows_the_pace_and_a_step_waits_for_its_longest_row():
    recipe = {
        "sft": {"max_num_steps": 90},
        "cluster": {"num_nodes": 2, "gpus_per_node": 8},
        "policy": {"train_global_batch_size": 16},
    }

    def hours(pace, mean, tail, held=0):
        return tuple(estimates.hours(recipe, pace, mean, tail, held).values())

    assert hours({"step": 10, "tokens_of_a_row": 2048}, 1000, 1500) == (0.25, 4.0)
    assert hours({"step": 10, "tokens_of_a_row": 2048}, 1000, 4096) == (0.5, 8.0)
    assert hours({"token": 0.01}, 500, 900) == (2.0, 0)
    assert hours({}, 500, 900) == (None, None)
    # Validated at the start, at 40, 80 and the end; a token that is only read costs half.
    recipe["sft"] |= {"val_at_start": True, "val_period": 40, "val_at_end": True}
    assert hours({"token": 0.01}, 500, 900, 18000) == (2.1, 0)


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
    alone = estimates.memory(NEMOTRON, recipe, 10**8, 4096)
    recipe["cluster"] = {"num_nodes": 2, "gpus_per_node": 8}
    many = estimates.memory(NEMOTRON, recipe, 10**8, 4096)
    assert (
        alone["weights"] == pytest.approx(16 * many["weights"], rel=0.01)
        and alone["gathered"] == 0 < many["gathered"]
    )
    recipe["policy"]["dtensor_cfg"]["activation_checkpointing"] = True
    assert estimates.memory(NEMOTRON, recipe, 10**8, 4096)["activations"] < many["activations"] / 8
