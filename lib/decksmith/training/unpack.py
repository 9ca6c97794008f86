"""The adapter of this repository as a PEFT folder: what training goes on from where no rehearsal has trained one.

    python3 -m decksmith.training.unpack data/adapter results/rehearsal-rl/sft/adapter

data/adapter has the adapter as the embedded engine reads it, in 8 bits. These very numbers become the folder, so that what
training begins with is what `smol-sft` answers with.
"""

import json
import os
import sys
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.training import adapters, base_models

NAME = "smol"  # whose adapter it is


def unpack(source: Path, out: Path) -> adapters.AdapterCheck:
    """Write SOURCE/adapter.gguf, an adapter of the embedded model, as the PEFT folder `out`, with its manifest.json.

    Returns what adapters.check says of it. Raises cli.Missing, cli.BadData.
    """
    try:
        import gguf
        import numpy
    except ImportError as error:
        raise cli.Missing(f"{error.name} is not installed; {base_models.MEND}") from None
    path = source / "adapter.gguf"
    if not path.is_file():
        raise cli.Missing(f"there is no {path}; make adapter writes it")
    reader = gguf.GGUFReader(path)
    model = base_models.config(NAME)
    heads = {"q_proj": model["num_attention_heads"], "k_proj": model["num_key_value_heads"]}
    tensors = {}
    for tensor in reader.tensors:
        module, half = _module(path, tensor.name)
        value = gguf.dequantize(tensor.data, tensor.tensor_type).astype("<f4")
        if half == "B" and (count := heads.get(module.rpartition(".")[2])):
            value = base_models.unpermuted(value, count)
        name = f"base_model.model.{module}.lora_{half}.weight"
        tensors[name] = ("F32", value.shape, numpy.ascontiguousarray(value).tobytes())
    ranks = {shape[0] for name, (_, shape, _) in tensors.items() if ".lora_A." in name}
    if len(ranks) != 1:
        raise cli.BadData(f"{path}: its matrices have the ranks {sorted(ranks)}; one is wanted")
    setting = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_models.known(NAME),
        "r": ranks.pop(),
        "lora_alpha": int(reader.fields["adapter.lora.alpha"].contents()),
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.split(".")[-3] for name in tensors}),
    }
    out.mkdir(parents=True, exist_ok=True)
    stream.write(out / "adapter_config.json", json.dumps(setting, indent=2) + "\n")
    stream.write(out / "adapter_model.safetensors", base_models.safetensors(tensors))
    stream.write(out / "manifest.json", (source / "manifest.json").read_bytes())
    return adapters.check(out, NAME)


def _module(path: Path, name: str) -> tuple[str, str]:
    """`blk.0.attn_q.weight.lora_a` -> (`model.layers.0.self_attn.q_proj`, `A`). Raises cli.BadData."""
    match name.split("."):
        case ["blk", layer, part, "weight", ("lora_a" | "lora_b") as half] if (
            part in base_models.LAYERS
        ):
            return f"model.layers.{layer}.{base_models.LAYERS[part]}", half[-1].upper()
    raise cli.BadData(f"{path}: {name} is no part of an adapter of the embedded model")


if __name__ == "__main__":
    given, made = map(Path, sys.argv[1:])
    cli.say(f"{made} has {unpack(given, made)['parameters']:,} parameters of {os.fspath(given)}")
