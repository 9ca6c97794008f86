"""The list of NeMo-RL's keys: how it is read from sources, and which keys of other versions it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.train.training import preflight

SOURCES = {
    "nemo_rl/algorithms/sft.py": """
class SFTConfig(BaseModel, extra="allow"):
    seed: int = 42
    def method(self): pass
class MasterConfig(BaseModel, extra="allow"):
    sft: SFTConfig
    policy: PolicyConfig
    data: DataConfig
""",
    "nemo_rl/algorithms/grpo.py": "class MasterConfig(BaseModel):\n    grpo: int\n",
    "nemo_rl/policy.py": """
class LoRAConfig(TypedDict):
    dim: int
class PolicyConfig(TypedDict):
    lora: NotRequired[LoRAConfig | None]
    generation: NotRequired[LoRAConfig]
    kwargs: dict[str, Any]
    targets: list[str]
""",
    "nemo_rl/data.py": """
class ResponseDatasetConfig(TypedDict):
    data_path: str
class PreferenceDatasetConfig(TypedDict):
    chosen_key: str
class DataConfig(TypedDict):
    train: ResponseDatasetConfig | PreferenceDatasetConfig | list[ResponseDatasetConfig]
class OpenAIFormatDataset:
    def __init__(self, data_path: str, chat_key: str = "messages", **kwargs): pass
""",
    "examples/configs/sft.yaml": "sft: {seed: 1, only_here: 2}\npolicy: {kwargs: {any: 1}}\n",
}
LIST = """\
data.train: chat_key data_path
data.validation: chat_key data_path
policy: generation.* kwargs.* targets
policy.lora: dim
sft: only_here seed
"""
CLONE = Path(os.environ.get("TRAINERS") or cli.ROOT / "results/trainers") / "RL"


def read(checkout, algorithm="sft"):
    command = [sys.executable, cli.ROOT / "tests/nemo_rl_keys.py", checkout, "v0.7.0", algorithm]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_keys_are_read_from_classes_defaults_and_the_data_sets_parameters(tmp_path):
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    head, *found = read(tmp_path).split("\n", 3)
    assert head.startswith("# NeMo-RL v0.7.0: ") and found[-1] == LIST


@pytest.mark.skipif(not CLONE.exists(), reason="no clone of NeMo-RL: TRAINERS=/path")
@pytest.mark.parametrize("algorithm", ["sft", "dpo", "grpo"])
def test_the_list_is_what_a_checkout_says(algorithm, tmp_path):
    tag = preflight.keys_version(algorithm)
    command = ["git", "-C", CLONE.resolve(), "archive", tag, "nemo_rl", "examples"]
    packed = subprocess.check_output(command)
    subprocess.run(["tar", "-x", "-C", tmp_path], input=packed, check=True)
    assert read(tmp_path, algorithm) == preflight.KEYS[algorithm].read_text()


def test_a_key_that_the_pinned_version_ignores_is_unknown_and_one_that_it_newly_reads_is_known():
    names, free = preflight.known_keys("sft")
    assert not {"checkpointing.ft_keep_latest_k", "checkpointing.ft_save_period"} & names
    assert {"sft.only_unmask_final", "policy.dtensor_cfg.dp_replicate_size"} <= names
    assert {"policy.megatron_cfg", "policy.optimizer.kwargs"} <= free


def test_each_algorithm_knows_its_own_keys_and_not_those_of_the_others():
    dpo, _ = preflight.known_keys("dpo")
    grpo, free = preflight.known_keys("grpo")
    assert "dpo.reference_policy_kl_penalty" in dpo and "sft.max_num_steps" not in dpo
    assert {"grpo.num_prompts_per_step", "loss_fn.ratio_clip_max"} <= grpo and "env" in free
    assert "policy.generation.vllm_cfg.tensor_parallel_size" in grpo
