"""`make serve SBATCH=..`: what is handed to Slurm, with `echo` in the place of sbatch."""

import json
import os
import subprocess

import pytest
from decksmith.core import cli
from decksmith.train.hub import models
from decksmith.train.training import base_models

pytestmark = pytest.mark.slow
NANO = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"

QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "max_position_embeddings": 40960,
}


@pytest.fixture
def adapter(tmp_path):
    config = {"r": 8, "base_model_name_or_path": NANO}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    tensors = {"m.q_proj.lora_A": ("BF16", (8, 16), bytes(256))}
    (tmp_path / "adapter_model.safetensors").write_bytes(base_models.safetensors(tensors))
    return tmp_path


def fetched(adapter, name, **config):
    """The weights of a model lie in the cache already, so that nothing is asked of the Hub."""
    folder = adapter / "no-models/hub" / f"models--{name.replace('/', '--')}"
    commit = models.pinned(name)
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("c0ffee")
    there = folder / "snapshots" / ("c0ffee" if commit == "main" else commit)
    there.mkdir(parents=True)
    for file in ("tokenizer.json", "model.safetensors"):
        (there / file).write_text("{}")
    (there / "config.json").write_text(json.dumps(config))


def serve(adapter, *words):
    """(status, stdout, stderr); nothing is set up (-o)."""
    command = [
        "make",
        "-o",
        ".venv/.python",
        "-o",
        ".venv/.hub",
        "serve",
        f"ADAPTER={adapter}",
        "SBATCH=echo",
        *words,
    ]
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env |= {"IMAGES": "off", "CONTAINER": "none", "HF_HOME": str(adapter / "no-models")}
    done = subprocess.run(command, cwd=cli.ROOT, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_more_for_the_server_reaches_it_and_the_job_asks_for_as_many_gpus(adapter):
    fetched(adapter, NANO)
    status, said, words = serve(adapter, "SERVE=--tensor-parallel-size 2", "GPU=h100")
    assert (status, said) == (
        0,
        f"--output=results/serve/%j.out --gres=none --gres=gpu:2 slurm/serve.sbatch --adapter {adapter} --engine vllm -- --tensor-parallel-size 2\n",
    )
    assert "each of 2 GPU of 79 GiB: 29.4 GiB of weights" in words
    assert "To end it: scancel --batch --signal=USR1 JOB" in words


def test_a_server_that_will_not_fit_is_not_submitted(adapter):
    status, said, words = serve(adapter, "GPU=l40s")
    assert status and said == ""
    assert "does not fit a GPU of 44 GiB" in words and 'SERVE="--tensor-parallel-size 2"' in words


def test_another_base_is_named_to_the_server(adapter):
    fetched(adapter, "Qwen/Qwen3-8B", **QWEN3_8B)
    status, said, words = serve(adapter, "BASE=Qwen/Qwen3-8B", "SERVERS=3")
    assert (status, said) == (
        0,
        f"--output=results/serve/%j.out --gres=none --gres=gpu:1 --array=1-3 slurm/serve.sbatch --adapter {adapter} --engine vllm --base Qwen/Qwen3-8B\n",
    )
    assert (
        "GPUs of 79 GiB are assumed (h100)" in words
        and "5.6 for each sequence of 40,960 tokens" in words
    )
