"""Models that transformers really builds, on the meta device, by configurations of ours: what is counted, and what the dimensions alone say."""

import json
import os
import subprocess
import sys

import pytest
from decksmith.core import cli
from decksmith.models import families, shapes
from decksmith.train.training import count_modules, estimates

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


def saved(tmp_path, kind):
    """A folder with the config.json of a tiny model of this type."""
    import transformers

    sizes = {"text_config": SIZES[kind]} if kind in WITH_PICTURES else SIZES[kind]
    transformers.AutoConfig.for_model(kind, **sizes).save_pretrained(tmp_path)
    return str(tmp_path)


@pytest.mark.parametrize("kind", SIZES)
def test_the_adapter_of_each_family_leaves_the_routed_experts_alone(tmp_path, kind):
    import transformers

    model, config, source = count_modules.build(saved(tmp_path, kind))
    found = shapes.Shape(**count_modules.count(model, config, source))
    assert f"transformers {transformers.__version__}, built in this machine" in found.source
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert (found.hidden, found.vocabulary, found.depth) == (
        64,
        128,
        SIZES[kind]["num_hidden_layers"],
    )
    family = families.of("a folder", {"model_type": kind, "n_routed_experts": 4})
    assert bool(family.name) == (kind != "llama")
    # Not one module of the vision model is built by the class for text.
    patterns = [pattern for pattern in family.exclude if pattern != "*visual*"]
    if kind == "llama":  # dense, and of no family
        patterns = []
    for pattern in patterns:
        assert any(estimates.matches(pattern, name) for name in found.modules), pattern
    touched = estimates.adapted({"exclude_modules": patterns}, found.linears)
    names = {shapes.kind(name) for name, _, _ in touched}
    assert any(name.endswith(".q_proj") for name in names) and "lm_head" not in names
    assert not any(".experts" in name for name in names)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "nemotron_h"])
def test_the_dimensions_alone_say_what_is_counted(tmp_path, kind):
    model, config, source = count_modules.build(saved(tmp_path, kind))
    real = shapes.Shape(**count_modules.count(model, config, source))
    told = shapes.Shape.assumed({"model_type": kind, **SIZES[kind]}, "by its dimensions")
    alike = [layer for layer in told.linears if not shapes.is_routed(layer[0])]
    assert set(alike) == {tuple(layer) for layer in real.linears}
    matrices = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if parameter.dim() > 1 and "conv" not in name and ".gate." not in name
    )
    assert told.parameters == matrices
    assert told.largest == pytest.approx(real.largest, rel=0.05)


COMMIT = "a" * 40
REMOTE = """
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

class StandInConfig(PretrainedConfig):
    model_type = "stand_in"

class Expert(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(hidden, width), nn.Linear(width, hidden)

class Mixer(nn.Module):
    def __init__(self, hidden, width, experts):
        super().__init__()
        self.experts = nn.ModuleList(Expert(hidden, width) for _ in range(experts))
        self.shared_experts = Expert(hidden, width)

class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mixer = Mixer(config.hidden_size, 24, config.n_routed_experts)

class Backbone(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))

class StandIn(PreTrainedModel):
    config_class = StandInConfig

    def __init__(self, config):
        super().__init__(config)
        self.backbone = Backbone(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()
"""


def test_a_models_own_code_with_a_list_of_experts_is_counted_as_it_is(tmp_path):
    """A stand-in for Nemotron-3's code on the Hub, which cannot be had here: in this its experts are alike."""
    cache = tmp_path / "hub/models--nvidia--stand-in"
    snapshot = cache / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs/main").write_text(COMMIT)
    (snapshot / "stand_in.py").write_text(REMOTE)
    config = {
        "model_type": "stand_in",
        "auto_map": {
            "AutoConfig": "stand_in.StandInConfig",
            "AutoModelForCausalLM": "stand_in.StandIn",
        },
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "vocab_size": 128,
        "n_routed_experts": 5,
    }
    (snapshot / "config.json").write_text(json.dumps(config))
    done = run("nvidia/stand-in", tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "model.json").write_text(done.stdout)
    found = shapes.Shape.counted(tmp_path / "model.json")
    assert "StandIn of the model's own code" in found.source
    assert len(found.linears) == 3 * (5 + 1) * 2 + 1
    routed = [layer for layer in found.linears if shapes.is_routed(layer[0])]
    assert len(routed) == 3 * 5 * 2
    excluded = families.of("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16").exclude
    patterns = [pattern for pattern in excluded if pattern != "*out_proj*"]
    touched = estimates.adapted({"exclude_modules": patterns}, found.linears)
    assert {shapes.kind(name) for name, _, _ in touched} == {
        "mixer.shared_experts.up_proj",
        "mixer.shared_experts.down_proj",
    }


def test_the_code_of_a_folder_is_not_run_and_what_cannot_be_built_is_said(tmp_path):
    (tmp_path / "evil.py").write_text("open('ran', 'w')")
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run(str(tmp_path), tmp_path)
    assert (done.returncode, done.stdout) == (69, "")
    assert "could not be built and is not counted" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_in_the_image_the_python_that_trains_is_the_one_that_counts(tmp_path):
    python = tmp_path / "nemo_rl.models.policy.workers.x.DTensorPolicyWorkerV2/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    done = run("somebody/model", tmp_path, NEMO_RL_VENV_DIR=str(tmp_path))
    assert done.stdout == "-m decksmith.train.training.count_modules somebody/model\n"


def run(name, home, **more):
    env = os.environ | {
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(cli.ROOT / "lib"),
        **more,
    }
    command = [sys.executable, "-m", "decksmith.train.training.count_modules", name]
    return subprocess.run(command, env=env, cwd=home, capture_output=True, text=True)
