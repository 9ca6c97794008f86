"""What the trainer does on a GPU, beside what it does on a CPU and what was estimated: random models, runs, docs/gpu.md.

`python3 measure.py SIZE FOLDER` makes a model with random weights, on the GPU where there is one.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from decksmith.core import cli, stream
from decksmith.train.training import base_models, recipes
from decksmith.train.training.train import TrainPlan

# The shapes of SmolLM2-135M, Llama-3.2-1B and Llama-3.1-8B.
SIZES = {
    "135 M": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
    "1 B": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
    "8 B": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    },
    "tiny": {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
}
ROWS = 8  # a run trains each of them once
WARM = 2  # steps that are not timed


class Losses(NamedTuple):
    """The loss of each step on a CPU in fp32 and on the device in bf16."""

    cpu: list[float]
    device: list[float]


class Killed(NamedTuple):
    """The loss of each step of a run that was killed after step `at` and started again, and of one that was not."""

    at: int
    killed: list[float]
    whole: list[float]


class Size(NamedTuple):
    """A model's training: parameters, of the adapter, the longest row and the speed in tokens, the peak and the estimate
    in GiB."""

    parameters: int
    adapter: int
    longest: int
    tokens_per_second: float
    peak: float
    estimate: float


def make(size: str, folder: Path) -> None:
    """Write a llama of this size with random weights in bf16, with the tokenizer of the embedded model."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        **SIZES[size], max_position_embeddings=4096, bos_token_id=1, eos_token_id=2
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    for name in base_models.TOKENIZER:
        if (base_models.folder("smol") / name).is_file():
            shutil.copyfile(base_models.folder("smol") / name, folder / name)


def made(size: str, folder: Path) -> Path:
    """The folder of a model, made in a process of its own, which gives the GPU back."""
    environment = os.environ | {"PYTHONPATH": str(cli.ROOT / "lib")}
    subprocess.run([sys.executable, __file__, size, folder], check=True, env=environment)
    return folder


def write_run(run: Path, model: Path, long: int, *overrides: str) -> Path:
    """A run of one epoch over some gold drafts, prompt and deck cut to `long` characters."""
    lines = []
    for folder in sorted((cli.ROOT / "data/gold").iterdir())[: ROWS + 1]:
        talk = [
            {"role": "user", "content": (folder / "PROMPT.md").read_text()[:long]},
            {"role": "assistant", "content": (folder / "deck.md").read_text()[:long]},
        ]
        lines.append(json.dumps({"id": folder.name, "messages": talk}) + "\n")
    stream.write(run / "rows/train.jsonl", "".join(lines[:ROWS]))
    stream.write(run / "rows/test.jsonl", lines[ROWS])
    config = recipes.recipe(
        "smol-lora",
        data=run / "rows",
        run=run,
        overrides=[
            f"policy.model_name={model}",
            "sft.max_num_epochs=1",
            "sft.val_at_start=false",
            *overrides,
        ],
    )
    stream.write(run / "recipe.yaml", recipes.dump(config))
    return run


def start(run: Path, device: str) -> "subprocess.Popen[str]":
    """bin/sft-train on `cuda` or `cpu`."""
    return subprocess.Popen(
        [cli.ROOT / "bin/sft-train", "--run", run],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "0" if device == "cuda" else ""},
        stdout=subprocess.PIPE,
        text=True,
    )


def train(run: Path, device: str) -> dict[str, Any]:
    """What bin/sft-train says of a run that it finished."""
    process = start(run, device)
    said, _ = process.communicate()
    assert process.returncode == 0, f"sft-train ended with {process.returncode}"
    assert json.loads((run / "job.json").read_text())["device"] == device
    return json.loads(said)


def steps(run: Path) -> list[dict[str, Any]]:
    """The lines of the steps of metrics.jsonl."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line]


def losses(run: Path) -> list[float]:
    """The loss of each step."""
    return [line["loss"] for line in steps(run)]


def compare(place: Path, model: Path, device: str, long: int) -> Losses:
    """The same rows on a CPU in fp32 and on the device in bf16."""
    slow = write_run(place / "cpu", model, long, "policy.precision=float32")
    fast = write_run(place / device, model, long) if device != "cpu" else slow
    train(slow, "cpu")
    if fast != slow:
        train(fast, device)
    return Losses(losses(slow), losses(fast))


def size(place: Path, model: Path, device: str, long: int) -> Size:
    """Speed and memory of a training, and what sft-check estimates for it."""
    run = write_run(place, model, long)
    said = train(run, device)
    checked = subprocess.run(
        [cli.ROOT / "bin/sft-check", "--run", run], capture_output=True, text=True
    )
    estimate = json.loads(checked.stdout)
    plan = TrainPlan(run)
    read = [len(plan.rows[at]["input_ids"]) for at in plan.order()]
    taken = [line["seconds"] for line in steps(run)]
    return Size(
        parameters=estimate["lora"]["of"],
        adapter=estimate["lora"]["trainable"],
        longest=max(read),
        tokens_per_second=sum(read[WARM:]) / sum(taken[WARM:]),
        peak=said["gpu_gib"] if device == "cuda" else said["peak_gib"],
        estimate=estimate["estimate"]["memory_gib"]["total"],
    )


def kill(
    place: Path, model: Path, device: str, long: int, undisturbed: Path | None = None
) -> Killed:
    """A run that is killed once it has a checkpoint, and then started again; and the same without.

    undisturbed: a finished run of the same rows, in place of one made here.
    """
    each = ("checkpointing.save_period=1", "checkpointing.keep_top_k=2")
    killed = write_run(place / "killed", model, long, *each)
    whole = undisturbed or write_run(place / "whole", model, long, *each)
    if not undisturbed:
        train(whole, device)
    process = start(killed, device)
    while not list(killed.glob("checkpoints/step_*")):
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    at = max(int(path.name[5:]) for path in killed.glob("checkpoints/step_*"))
    train(killed, device)
    assert [line["step"] for line in steps(killed)] == list(range(1, ROWS + 1))
    return Killed(at, losses(killed), losses(whole))


def page(machine: dict[str, str], compared: Losses, sizes: dict[str, Size], killed: Killed) -> str:
    """docs/gpu.md: what was measured, on which machine."""
    rows = [
        f"| {name} | {one.parameters / 1e6:,.0f} M | {one.adapter / 1e6:.1f} M | {one.longest:,} | "
        f"{one.tokens_per_second:,.0f} | {one.peak:.1f} | {one.estimate:.1f} |"
        for name, one in sizes.items()
    ]
    pairs = enumerate(zip(compared.cpu, compared.device, strict=True), 1)
    steps = [f"| {step} | {cpu:.4f} | {gpu:.4f} | {gpu - cpu:+.4f} |" for step, (cpu, gpu) in pairs]
    apart = max(abs(a - b) for a, b in zip(killed.killed, killed.whole, strict=True))
    return "\n".join(
        [
            "# On a GPU",
            "",
            "Written by `make test-gpu` (tests/gpu) where it ran: bin/sft-train on random weights, one row a step.",
            "",
            *(f"* {key}: {value}" for key, value in machine.items()),
            "",
            "## Speed and memory",
            "",
            "Tokens are all that are read. The peak is torch.cuda.max_memory_allocated; the estimate is sft-check's.",
            "",
            "| model | parameters | adapter | longest row | tokens/s | peak, GiB | estimate, GiB |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            "## The loss on the CPU in fp32 and here in bf16",
            "",
            "| step | CPU | GPU | difference |",
            "|---|---|---|---|",
            *steps,
            "",
            "## Killed and started again",
            "",
            f"A run was killed by SIGKILL after its checkpoint of step {killed.at} and started again. Over {len(killed.whole)} steps its loss "
            f"is at most {apart:.6f} from that of a run that was not killed.",
            "",
        ]
    )


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
