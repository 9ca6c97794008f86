import json

import pytest
from decksmith.core import cli
from decksmith.train.serving import vllm
from decksmith.train.serving.vllm import Adapter
from decksmith.train.training import base_models

NEMOTRON = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"


@pytest.fixture
def adapter(tmp_path, monkeypatch):
    """Of rank 256, with one module of 1024 inputs and 3072 outputs."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-models"))
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 256}))
    tensors = {"m.q_proj.lora_A": (256, 1024), "m.q_proj.lora_B": (3072, 256)}
    made = {
        name: ("BF16", shape, bytes(2 * shape[0] * shape[1])) for name, shape in tensors.items()
    }
    (tmp_path / "adapter_model.safetensors").write_bytes(base_models.safetensors(made))
    return Adapter.load(tmp_path)


def line(adapter, *more, model=NEMOTRON):
    return vllm.command({"tuned": adapter}, model, "127.0.0.1", 1, more)


def memory(arguments, adapter, gpu):
    return vllm.memory(vllm.Line(arguments, arguments[2], [adapter]), gpu)


def check(arguments, adapter, gpu=None):
    return vllm.check_memory(vllm.Line(arguments, arguments[2], [adapter]), gpu)


def test_nemotron_fits_one_gpu_of_80_gib_when_buffers_are_for_its_adapter_alone(adapter, capsys):
    found = check(line(adapter), adapter, 80)
    assert found.gpus == 1 and found.weights == pytest.approx(58.8, abs=0.1)
    assert found.adapter == 2 * 256 * 4096 / vllm.GIB
    # Six layers of attention keep 6 KiB a token; 23 Mamba layers 2 MiB a sequence each.
    assert found.sequence == pytest.approx((65536 * 6144 + 23 * 2**21) / vllm.GIB)
    assert 1 < found.at_once < 64
    said = capsys.readouterr().err
    assert "each of 1 GPU of 80 GiB: 58.8 GiB of weights" in said
    assert f"{found.at_once} of 64 such sequences at once, the others wait" in said


def test_two_gpus_share_what_can_be_shared(adapter):
    one = memory(line(adapter), adapter, 80)
    two = memory(line(adapter, "-tp", "2"), adapter, 80)
    assert (two.gpus, two.weights, two.sequence) == (2, one.weights / 2, one.sequence / 2)
    assert two.adapter == pytest.approx(one.adapter * 3 / 4)
    # Two heads of keys and values are not split over four.
    four = memory(line(adapter, "--tensor-parallel-size=4"), adapter, 80)
    assert four.weights == one.weights / 4 and four.sequence > one.sequence / 4
    piped = memory(line(adapter, "-tp", "2", "--pipeline-parallel-size", "2"), adapter, 80)
    assert (piped.gpus, piped.sequence) == (4, two.sequence / 2)
    assert memory(line(adapter, "-dp", "4"), adapter, 80).gpus == 4


def test_a_job_of_two_nodes_parts_the_layers_between_them(adapter, monkeypatch):
    one = memory(line(adapter), adapter, 80)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    both = memory(line(adapter), adapter, 80)
    assert (both.gpus, both.weights, both.sequence) == (2, one.weights / 2, one.sequence / 2)


def test_what_does_not_fit_is_refused_with_the_fewest_gpus_that_do(adapter):
    with pytest.raises(cli.BadConfig) as refused:
        check(line(adapter), adapter, 48)
    said = str(refused.value)
    assert f"{NEMOTRON} does not fit a GPU of 48 GiB: 58.8 GiB of weights" in said
    assert 'SERVE="--tensor-parallel-size 2"' in said and "context" not in said
    with pytest.raises(cli.BadConfig, match="It wants larger GPUs, or more than one node"):
        check(line(adapter), adapter, 8)


def test_a_context_that_is_too_long_has_another_remedy(adapter):
    long = line(adapter, "--max-model-len", "4M")
    with pytest.raises(
        cli.BadConfig, match=r'shorter context: SERVE="--max-model-len \d+"'
    ) as told:
        check(long, adapter, 80)
    shorter = str(told.value).rpartition(" ")[2].strip('"')
    assert check(line(adapter, "--max-model-len", shorter), adapter, 80).at_once == 1


def test_a_folder_weighs_what_its_files_do(adapter, tmp_path, capsys):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"model_type": "unheard-of", "max_position_embeddings": 4096, "num_hidden_layers": 2, '
        '"num_attention_heads": 4, "hidden_size": 256}'
    )
    arguments = line(adapter, model=str(folder))
    assert check(arguments, adapter, 80).weights is None
    assert "memory is not computed" in capsys.readouterr().err
    (folder / "model-1.safetensors").write_bytes(bytes(4096))
    found = check(arguments, adapter, 80)
    assert (found.weights, found.length) == (4096 / vllm.GIB, 4096)
    assert found.sequence == 4096 * 2 * 2 * 4 * 64 * 2 / vllm.GIB


def test_a_gpu_is_named_or_told_and_without_one_nothing_is_computed(adapter, monkeypatch, capsys):
    assert (vllm.gpu_named("H200"), vllm.gpu_named("46.5")) == (140, 46.5)
    assert vllm.gpu_named(None) == 79 and "are assumed (h100)" in capsys.readouterr().err
    with pytest.raises(cli.BadConfig, match="--gpu tpu: name one of a100"):
        vllm.gpu_named("tpu")
    monkeypatch.setenv("PATH", "/nowhere")
    assert vllm.gpu_here() is None and check(line(adapter), adapter) is None


def test_the_smallest_gpu_of_a_machine_counts(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 81559\necho 46068\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert vllm.gpu_here() == 46068 / 1024


def test_a_number_of_gpus_that_is_none_is_refused(adapter):
    with pytest.raises(cli.BadData, match="--tensor-parallel-size/-tp: two: a whole number from 1"):
        memory(line(adapter, "-tp", "two"), adapter, 80)
