"""Base models: the embedded one as a Hugging Face folder, any other by its folder or its name on the Hub; their shapes.

`python3 -m decksmith.train.training.base_models smol` prints the folder of the embedded model.
"""

import contextlib
import fcntl
import importlib
import json
import os
import shutil
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
from numpy import ndarray

from decksmith.core import cli, incoming, stream
from decksmith.models import embedded
from decksmith.train.hub import models, weights

# The embedded model's config.json, generation_config.json and tokenizer_config.json.
SETTINGS = cli.ROOT / "assets/engine/smol"
EXPORT = 1  # raised when an exported folder must be made again
MEND = "run: make .venv/.train"
TOKENIZER = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
TOKENIZER += ["chat_template.jinja"]
# llama's names in GGUF and in Hugging Face form, of the parts of a layer and of the whole
LAYERS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

Shapes = dict[str, list[int]]  # {tensor: shape}


def library(name: str) -> Any:
    """A package of the group `train`. Raises cli.Missing."""
    warnings.filterwarnings("ignore", category=FutureWarning)  # of transformers about peft
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise cli.Missing(f"{error.name} is not installed; {MEND}") from None


def folder(name: str | Path, *, small: bool = False) -> Path:
    """The folder of a base model in Hugging Face form. `smol`, the embedded model, is exported once
    from its GGUF file into data/models/smol (5 s, 270 MB, equal bytes every time); a folder is
    itself; anything else is a name on the Hub, from its cache or fetched into it (`small`: all but
    the weights). Raises cli.Missing."""
    if str(name) == "smol":
        return _smol(cli.ROOT / "data/models/smol")
    if (path := Path(name)).is_dir():
        if not (path / "config.json").is_file():
            raise cli.Missing(f"{path}: no config.json, which a Hugging Face model's folder has")
        return path
    try:
        return models.fetch(str(name), small=small)
    except cli.Stop as error:
        words = f"no such folder, and the Hub does not give it ({error})"
        raise cli.Missing(f"{name}: {words}") from None


def config(name: str | Path) -> dict[str, Any]:
    """The config.json of a base model. Raises cli.Missing."""
    return json.loads((folder(name, small=True) / "config.json").read_text())


def known(name: str | Path) -> str:
    """The name under which others find a base model: that of the embedded one is a short form of ours."""
    return "HuggingFaceTB/SmolLM2-135M-Instruct" if str(name) == "smol" else str(name)


def shapes(name: str | Path) -> Shapes:
    """{tensor: shape} of a base model. Raises cli.Missing. Of one on the Hub that is not in the
    cache the headers alone are fetched, not its gigabytes."""
    if str(name) == "smol" or Path(name).is_dir():
        return _local_shapes(folder(name))
    hub = models.library()
    with contextlib.suppress(Exception):  # not in the cache, or in part
        return _local_shapes(Path(hub.snapshot_download(str(name), local_files_only=True)))
    try:
        files = hub.get_safetensors_metadata(str(name)).files_metadata
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        raise cli.Missing(f"{name}: the Hub does not give its headers ({words})") from None
    tensors = [tensor for file in files.values() for tensor in file.tensors.items()]
    return {name: list(info.shape) for name, info in tensors}


def _local_shapes(path: Path) -> Shapes:
    index, files = path / "model.safetensors.index.json", {"model.safetensors"}
    if index.is_file():
        files = set(json.loads(index.read_text())["weight_map"].values())
    found: Shapes = {}
    for file in sorted(path / name for name in files):
        if not file.is_file():
            raise cli.Missing(f"there is no {file}; the adapter is checked against it")
        found |= {name: tensor.shape for name, tensor in weights.tensors(file).items()}
    return found


def _smol(place: Path) -> Path:
    mark = {"weights": embedded.WEIGHTS_SHA256, "export": EXPORT}

    def is_there() -> bool:
        with contextlib.suppress(OSError, ValueError):
            return json.loads((place / "source.json").read_text()) == mark
        return False

    if is_there():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(incoming.own(place.parent / ".lock", closed=0), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_there():
            return place
        # Under the lock nobody else has one: these are of exports that were killed.
        for old in place.parent.glob("smol.*.tmp"):
            shutil.rmtree(old)
        shutil.rmtree(place, ignore_errors=True)
        made = place.with_name(f"smol.{os.getpid()}.tmp")
        export(embedded.weights(), made)
        stream.write(made / "source.json", json.dumps(mark))
        os.rename(made, place)
    return place


def export(source: Path, out: Path) -> None:
    """Write the embedded model's GGUF file as model.safetensors (bf16), tokenizer.json and chat template, with SETTINGS."""
    gguf = library("gguf")
    library("tokenizers")  # asked for before anything is written
    reader = gguf.GGUFReader(source)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    heads, tensors = projected_heads(json.loads((SETTINGS / "config.json").read_text())), {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        stem, _, kind = tensor.name.rpartition(".")
        module = hf_module(stem)
        if count := heads.get(module.rpartition(".")[2]):
            values = unpermuted(values, count)
        tensors[f"{module}.{kind}"] = ("BF16", values.shape, _bf16(values))
    shutil.copytree(SETTINGS, out)
    stream.write(out / "model.safetensors", safetensors(tensors))
    stream.write(out / "chat_template.jinja", fields["tokenizer.chat_template"])
    stream.write(out / "tokenizer.json", _tokenizer(fields, gguf.TokenType.CONTROL))


def _bf16(values: ndarray) -> bytes:
    """Numbers as bf16, rounded to even where they lie between two."""
    bits = numpy.ascontiguousarray(values, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def _tokenizer(fields: dict[str, Any], control: int) -> str:
    """tokenizer.json: what llama.cpp does for the pre-tokenizer "smollm", digits one by one, then GPT-2's words."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({word: at for at, word in enumerate(words)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, letters])
    made.decoder = decoders.ByteLevel()
    special = [word for word, kind in zip(words, kinds, strict=True) if kind == control]
    made.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in special])
    return made.to_str(pretty=False)


def safetensors(tensors: Mapping[str, tuple[str, Sequence[int], bytes]]) -> bytes:
    """{name: (dtype, shape, bytes)} as a safetensors file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts, end = [], 0
    for name, (dtype, shape, data) in sorted(tensors.items()):
        start, end = end, end + len(data)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def hf_module(name: str) -> str:
    """`blk.0.attn_q` -> `model.layers.0.self_attn.q_proj`. Raises KeyError for no part of a llama."""
    *block, part = name.split(".")
    return f"model.layers.{block[1]}.{LAYERS[part]}" if block else WHOLE[part]


def projected_heads(model: dict[str, Any]) -> dict[str, int]:
    """How many heads lie in the rows of those projections whose rows llama.cpp orders otherwise, by a config.json."""
    heads = model["num_attention_heads"]
    return {"q_proj": heads, "k_proj": model.get("num_key_value_heads") or heads}


def permuted(rows: ndarray, heads: int) -> ndarray:
    """The rows of a q or k projection ([out, ..], `heads` heads) from Hugging Face's rotary layout (halves) to
    llama.cpp's (pairs)."""
    parted = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return parted.swapaxes(1, 2).reshape(rows.shape)


def unpermuted(rows: ndarray, heads: int) -> ndarray:
    """The inverse of `permuted`."""
    parted = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return parted.swapaxes(1, 2).reshape(rows.shape)


if __name__ == "__main__":
    cli.ends_with(lambda: print(folder(sys.argv[1])))
