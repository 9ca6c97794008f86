"""Adapters and the models under them: the embedded model as a Hugging Face folder, LoRA adapters checked and turned into GGUF."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import warnings
from collections import Counter
from pathlib import Path

from decksmith.core import cli, stream

EXPORT = 1  # raised when an exported folder must be made again
MEND = "run: make .venv/.train"
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
PART = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight\Z")  # of an adapter's tensors
LIMITS = [
    "A rehearsal: a model of 135 million parameters learns the file format; what it writes about a subject is mostly wrong."
]


def base(name, *, small=False):
    """The folder (Path) of a base model in Hugging Face form.

    `smol`, the embedded model, is exported once from its GGUF file into data/models/smol (5 s, 270 MB, equal bytes every time);
    a folder is itself; anything else is a name on the Hub, fetched into the Hub's cache (`small`: all but the weights).
    Raises cli.Missing.
    """
    if str(name) == "smol":
        return _smol(cli.ROOT / "data/models/smol")
    if (folder := Path(name)).is_dir():
        if not (folder / "config.json").is_file():
            raise cli.Missing(
                f"{folder}: no config.json; the folder of a model in Hugging Face form has one"
            )
        return folder
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise cli.Missing(
            f"{name}: no such folder, and huggingface_hub is not installed; {MEND}"
        ) from None
    try:
        return Path(
            snapshot_download(
                str(name),
                ignore_patterns=["*.safetensors", "*.bin", "*.gguf", "*.pt", "*.pth"]
                if small
                else None,
            )
        )
    except Exception as error:
        raise cli.Missing(
            f"{name}: no such folder, and the Hub does not give it ({' '.join(str(error).split())[:200]})"
        ) from None


def _smol(folder):
    from decksmith.models import embedded

    mark = {"weights": embedded.WEIGHTS_SHA256, "export": EXPORT}

    def there():
        with contextlib.suppress(OSError, ValueError):
            return json.loads((folder / "source.json").read_text()) == mark

    if there():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not there():
            for old in folder.parent.glob(
                "smol.*.tmp"
            ):  # of a killed export; under the lock nobody else has one
                shutil.rmtree(old)
            shutil.rmtree(folder, ignore_errors=True)
            made = folder.with_name(f"smol.{os.getpid()}.tmp")
            _export(embedded.weights(), made)
            stream.write(made / "source.json", json.dumps(mark))
            os.rename(made, folder)
    return folder


def _export(weights, out):
    """Write the llama model of a GGUF file as config.json, model.safetensors (bf16), tokenizer.json and chat template."""
    try:
        import gguf
        import tokenizers
    except ImportError as error:
        raise cli.Missing(f"{error.name} is not installed; {MEND}") from None
    import numpy

    reader = gguf.GGUFReader(weights)

    def said(key):
        return reader.fields[key].contents()

    heads, groups = said("llama.attention.head_count"), said("llama.attention.head_count_kv")
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        name = _hf_name(tensor.name)
        if count := {"q_proj": heads, "k_proj": groups}.get(name.split(".")[-2]):
            values = unpermuted(values, count)
        bits = numpy.ascontiguousarray(values, dtype="<f4").view("<u4")
        bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")  # to bf16, ties to even
        tensors[name] = ("BF16", values.shape, bits.tobytes())
    out.mkdir(parents=True)
    stream.write(out / "model.safetensors", _safetensors(tensors))
    words, kinds = said("tokenizer.ggml.tokens"), said("tokenizer.ggml.token_type")
    bos, eos, unk, pad = (
        said(f"tokenizer.ggml.{key}_token_id") for key in ("bos", "eos", "unknown", "padding")
    )

    def put(name, value):
        stream.write(out / name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    put(
        "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "dtype": "bfloat16",
            "hidden_act": "silu",
            "hidden_size": said("llama.embedding_length"),
            "intermediate_size": said("llama.feed_forward_length"),
            "num_hidden_layers": said("llama.block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": groups,
            "max_position_embeddings": said("llama.context_length"),
            "rms_norm_eps": 1e-5,
            "rope_theta": said("llama.rope.freq_base"),
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "vocab_size": len(words),
            "bos_token_id": bos,
            "eos_token_id": eos,
            "pad_token_id": pad,
        },
    )
    put("generation_config.json", {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad})
    put(
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": False,
            "add_prefix_space": False,
            "bos_token": words[bos],
            "eos_token": words[eos],
            "unk_token": words[unk],
            "pad_token": words[pad],
            "clean_up_tokenization_spaces": False,
            "model_max_length": said("llama.context_length"),
        },
    )
    stream.write(out / "chat_template.jinja", said("tokenizer.chat_template"))

    pairs = [tuple(merge.split(" ")) for merge in said("tokenizer.ggml.merges")]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE({word: at for at, word in enumerate(words)}, pairs)
    )
    # what llama.cpp does for the pre-tokenizer "smollm": digits one by one, then GPT-2's words
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(
        [
            tokenizers.AddedToken(word, normalized=False, special=True)
            for word, kind in zip(words, kinds, strict=True)
            if kind == gguf.TokenType.CONTROL
        ]
    )
    stream.write(out / "tokenizer.json", made.to_str(pretty=False))


def _safetensors(tensors):
    """{name: (dtype, shape, bytes)} as the bytes of a safetensors file."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in sorted(tensors.items()):
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [at, at := at + len(data)],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join(
        [
            len(text).to_bytes(8, "little"),
            text,
            *(data for _, (_, _, data) in sorted(tensors.items())),
        ]
    )


# llama's names in GGUF and in Hugging Face form
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


def _hf_name(name):
    """`blk.0.attn_q.weight` -> `model.layers.0.self_attn.q_proj.weight`."""
    match name.split("."):
        case "blk", layer, part, kind:
            return f"model.layers.{layer}.{LAYERS[part]}.{kind}"
        case part, kind:
            return f"{WHOLE[part]}.{kind}"


def permuted(rows, heads):
    """The rows of a q or k projection ([out, ..], `heads` heads) from Hugging Face's rotary layout (halves) to llama.cpp's (pairs)."""
    return (
        rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
        .swapaxes(1, 2)
        .reshape(rows.shape)
    )


def unpermuted(rows, heads):
    """The inverse of `permuted`."""
    return (
        rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
        .swapaxes(1, 2)
        .reshape(rows.shape)
    )


def known(name):
    """The name under which others find a base model: that of the embedded one is a short form of ours."""
    return "HuggingFaceTB/SmolLM2-135M-Instruct" if str(name) == "smol" else str(name)


def tensors(path):
    """The header of a safetensors file: {name: (dtype, shape, first byte, last byte + 1)}. Raises cli.BadData."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, path.stat().st_size)))
        header.pop("__metadata__", None)
        found = {
            name: (one["dtype"], one["shape"], *(8 + length + at for at in one["data_offsets"]))
            for name, one in header.items()
        }
        whole = max((end for *_, end in found.values()), default=8 + length)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise cli.BadData(f"{path}: not a safetensors file, or cut off") from None
    if path.stat().st_size != whole:
        raise cli.BadData(f"{path}: {path.stat().st_size} bytes, its header says {whole}: cut off")
    return found


def _values(path, header):
    """{name: float32 array} of a safetensors file of F32, F16 or BF16."""
    import numpy

    data, found = numpy.memmap(path, mode="r"), {}
    for name, (dtype, shape, start, end) in header.items():
        if dtype == "BF16":
            one = (data[start:end].view("<u2").astype("<u4") << 16).view("<f4")
        elif dtype in ("F32", "F16"):
            one = data[start:end].view("<f4" if dtype == "F32" else "<f2").astype("<f4")
        else:
            raise cli.BadData(f"{path}: {name} is of type {dtype}; F32, F16 and BF16 are read")
        found[name] = one.reshape(shape)
    return found


def check(folder, name):
    """Whether a PEFT folder is a trained LoRA adapter of the base model `name`: {"rank", "alpha", "modules", "parameters", "untrained"}.

    Every tensor is half of a pair of the stated rank that fits a matrix of the base, all are finite, and some lora_B is not zero (it
    begins as zero); `untrained` are the modules where it still is. Reads headers of the base only. Raises cli.BadData, cli.Missing.
    """
    import numpy

    path = Path(folder) / "adapter_model.safetensors"
    if not path.is_file():
        raise cli.Missing(f"there is no {path}")
    config = _config(folder)
    header = tensors(path)
    matrices, pairs = _matrices(name), {}
    for tensor, (_, shape, *_) in header.items():
        if not (part := PART.match(tensor)):
            raise cli.BadData(f"{path}: {tensor} is no part of a LoRA adapter")
        pairs.setdefault(part[1], {})[part[2]] = (tensor, shape)
    values, modules, untrained = _values(path, header), Counter(), []
    for module, pair in sorted(pairs.items()):
        if (wanted := matrices.get(_key(module))) is None:
            raise cli.BadData(
                f"{path}: {module} is no matrix of {name}; a server would leave it out silently"
            )
        rank = (config.get("rank_pattern") or {}).get(module, config["r"])
        shapes = [pair[half][1] if half in pair else None for half in "AB"]
        if shapes != [[rank, wanted[1]], [wanted[0], rank]]:
            raise cli.BadData(
                f"{path}: {module}: shapes {shapes} do not fit rank {rank} on {list(wanted)} of {name}"
            )
        if not all(numpy.isfinite(values[tensor]).all() for tensor, _ in pair.values()):
            raise cli.BadData(f"{path}: {module} holds numbers that are not finite")
        modules[module.rpartition(".")[2]] += 1
        if not values[pair["B"][0]].any():
            untrained.append(module)
    if len(untrained) == len(pairs):
        raise cli.BadData(f"{path}: every lora_B is zero: this adapter changes nothing")
    return {
        "rank": config["r"],
        "alpha": config["lora_alpha"],
        "modules": dict(sorted(modules.items())),
        "parameters": sum(one.size for one in values.values()),
        "untrained": untrained,
    }


def _config(folder):
    path = Path(folder) / "adapter_config.json"
    try:
        config = json.loads(path.read_text())
        if config["peft_type"] != "LORA" or not config["r"] or not config["lora_alpha"]:
            raise ValueError
    except FileNotFoundError:
        raise cli.Missing(f"there is no {path}") from None
    except (ValueError, KeyError, TypeError):
        raise cli.BadData(
            f"{path}: not the configuration of a LoRA adapter (peft_type, r, lora_alpha)"
        ) from None
    return config


def _matrices(name):
    """{key of a module: [out, in]} of the matrices of a base model."""
    found = {
        _key(tensor.removesuffix(".weight")): shape
        for tensor, shape in _shapes(name).items()
        if tensor.endswith(".weight") and len(shape) == 2
    }
    if "lm_head" not in found and (
        tied := next((shape for key, shape in found.items() if key.endswith("embed_tokens")), None)
    ):
        found["lm_head"] = tied
    return found


def _shapes(name):
    """{tensor: shape} of a base model. Of one on the Hub that is not in the cache the headers alone are fetched, not its gigabytes."""
    if str(name) == "smol" or Path(name).is_dir():
        return _local_shapes(base(name))
    try:
        import huggingface_hub
    except ImportError:
        raise cli.Missing(
            f"{name}: no such folder, and huggingface_hub is not installed; {MEND}"
        ) from None
    with contextlib.suppress(Exception):  # not there, or in part
        return _local_shapes(
            Path(huggingface_hub.snapshot_download(str(name), local_files_only=True))
        )
    try:
        files = huggingface_hub.get_safetensors_metadata(str(name)).files_metadata
    except Exception as error:
        raise cli.Missing(
            f"{name}: the Hub does not give its headers ({' '.join(str(error).split())[:200]})"
        ) from None
    return {
        tensor: list(info.shape) for file in files.values() for tensor, info in file.tensors.items()
    }


def _local_shapes(folder):
    index = folder / "model.safetensors.index.json"
    files = (
        sorted(set(json.loads(index.read_text())["weight_map"].values()))
        if index.is_file()
        else ["model.safetensors"]
    )
    for name in files:
        if not (folder / name).is_file():
            raise cli.Missing(f"there is no {folder / name}; the adapter is checked against it")
    return {
        tensor: shape for name in files for tensor, (_, shape, *_) in tensors(folder / name).items()
    }


def _key(module):
    """What of a module's name is the same under every prefix of model classes (model., backbone., language_model.model.)."""
    return module[at:] if (at := module.find("layers.")) >= 0 else module


def gguf(folder, name, out):
    """Write the adapter as `out` for llama.cpp; the base must be of the llama family. Raises cli.BadData, cli.Missing."""
    try:
        import gguf
    except ImportError:
        raise cli.Missing(f"gguf is not installed; {MEND}") from None
    import numpy

    model, config = (
        json.loads((base(name, small=True) / "config.json").read_text()),
        _config(folder),
    )
    if model.get("model_type") != "llama":
        raise cli.BadData(
            f"{name} is of type {model.get('model_type')}; only llama adapters are turned into GGUF"
        )
    heads = {
        "q_proj": model["num_attention_heads"],
        "k_proj": model.get("num_key_value_heads") or model["num_attention_heads"],
    }
    path = Path(folder) / "adapter_model.safetensors"
    short = {long: name for name, long in (LAYERS | {"output": "lm_head"}).items()}
    temporary = Path(f"{out}.{os.getpid()}.tmp")
    writer = gguf.GGUFWriter(temporary, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    # llama.cpp scales by alpha / rank
    writer.add_float32(
        "adapter.lora.alpha",
        config["lora_alpha"] * (config["r"] ** 0.5 if config.get("use_rslora") else 1),
    )
    for tensor, value in sorted(_values(path, tensors(path)).items()):
        module, half = PART.match(tensor).groups()
        layer = re.fullmatch(r"(?:.*\.)?layers\.(\d+)\.(.+)", module)
        part = short.get(layer[2] if layer else module)
        if part is None:
            raise cli.BadData(f"{path}: {module} has no place in a GGUF adapter")
        if half == "B" and (count := heads.get(module.rpartition(".")[2])):
            value = permuted(value, count)
        writer.add_tensor(
            f"{f'blk.{layer[1]}.' if layer else ''}{part}.weight.lora_{half.lower()}",
            numpy.ascontiguousarray(value),
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(temporary, out)


def checkpoints(folder):
    """The finished checkpoints in a folder, by step: [(step, path, training_info)]."""
    found = []
    for path in Path(folder).glob("step_*"):
        with contextlib.suppress(OSError, ValueError):
            found.append(
                (
                    int(path.name.removeprefix("step_")),
                    path,
                    json.loads((path / "training_info.json").read_text()),
                )
            )
    return sorted(found, key=lambda one: one[0])


def export(run, *, step=None, merge=False):
    """Make RUN/adapter of a checkpoint: the PEFT folder, checked, with manifest.json, card, and adapter.gguf for a llama base.

    step: which checkpoint; else the best by the recipe's metric, the newest where none has it. merge: RUN/merged too, the base model with the adapter in it.
    Returns the manifest. Raises cli.Missing, cli.BadData.
    """
    from decksmith.training import recipes

    run = Path(run)
    found = checkpoints(run / "checkpoints")
    if not found:
        raise cli.Missing(
            f"there is no finished checkpoint in {run}/checkpoints; sft-train or sft.sbatch makes them"
        )
    if not (run / "recipe.yaml").is_file():
        raise cli.Missing(f"there is no {run}/recipe.yaml, which says what the checkpoints are of")
    config = recipes.load(run / "recipe.yaml")
    number, chosen, info, why = _chosen(found, step, config)
    name = config["policy"]["model_name"]
    made = run / f"adapter.{os.getpid()}.tmp"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        shape = check(weights := chosen / "policy/weights/model", name)
        shutil.copyfile(weights / "adapter_model.safetensors", made / "adapter_model.safetensors")
        stream.write(
            made / "adapter_config.json",
            json.dumps(
                _config(weights) | {"base_model_name_or_path": known(name)},
                indent=2,
                sort_keys=True,
            )
            + "\n",
        )
        for source, names in (
            (base(name, small=True), TOKENIZER),
            (run / "adapter", ("about.toml",)),
        ):
            for file in names:
                if (source / file).is_file():
                    shutil.copyfile(source / file, made / file)
        manifest = {
            "base": known(name),
            "step": number,
            "of": recipes.get(config, "sft.max_num_steps"),
            "chosen": why,
            "val_loss": info.get("val:val_loss"),
            "train_loss": info.get("train:loss"),
            "recipe": {
                "sha256": _sha256(run / "recipe.yaml"),
                **{key: config[key] for key in ("policy", "sft") if key in config},
            },
            "data": {
                side: {"rows": recipes.count(path), "sha256": _sha256(path)}
                for side, path in (
                    ("train", run / "data/train.jsonl"),
                    ("validation", run / "data/test.jsonl"),
                )
                if path.is_file()
            },
            "job": _job(run / "job.json"),
            "adapter": {**shape, "sha256": _sha256(made / "adapter_model.safetensors")},
            "limits": LIMITS if str(name) == "smol" else None,
        }
        if (
            json.loads((base(name, small=True) / "config.json").read_text()).get("model_type")
            == "llama"
        ):
            gguf(made, name, made / "adapter.gguf")
            manifest["adapter"]["gguf_sha256"] = _sha256(made / "adapter.gguf")
        stream.write(
            made / "manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        )
        from decksmith.hub import folders

        folders.parcel(made, "adapter", f"decksmith/{run.resolve().name}")
        os.rename(made / "card/README.md", made / "README.md")
        os.rmdir(made / "card")
        _put(made, run / "adapter")
    finally:
        shutil.rmtree(made, ignore_errors=True)
    if merge:
        _merge(run, name)
    return manifest


def _chosen(found, step, config):
    from decksmith.training import recipes

    if step is not None:
        if not (hit := [one for one in found if one[0] == step]):
            raise cli.Missing(
                f"there is no checkpoint of step {step}; there are: {', '.join(str(one[0]) for one in found)}"
            )
        return *hit[0], "asked for"
    metric = recipes.get(config, "checkpointing.metric_name", "val:val_loss")
    if metric is None:  # NeMo-RL's way to keep the latest
        return *found[-1], "the last"
    sign = -1 if recipes.get(config, "checkpointing.higher_is_better") else 1
    if measured := [one for one in found if one[2].get(metric) is not None]:
        return *min(
            measured, key=lambda one: (sign * one[2][metric], -one[0])
        ), f"best of {len(measured)} by {metric}"
    return *found[-1], f"the last; no checkpoint has {metric}"


def _job(path):
    """What of job.json goes with an adapter: nothing that names a place."""
    with contextlib.suppress(OSError, ValueError):
        job = json.loads(path.read_text())
        return {
            key: job[key]
            for key in (
                "trainer",
                "revision",
                "image",
                "images",
                "digests",
                "nodes",
                "device",
                "dtype",
                "seed",
                "seeds",
                "versions",
            )
            if key in job
        }


def _merge(run, name):
    """RUN/merged: the base model with the adapter of RUN/adapter added to its matrices, for a server that takes no adapter."""
    try:
        import peft
        import torch
        import transformers
    except ImportError as error:
        raise cli.Missing(f"{error.name} is not installed; {MEND}") from None
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning)  # of transformers about peft
    model = transformers.AutoModelForCausalLM.from_pretrained(base(name), dtype=torch.bfloat16)
    model = peft.PeftModel.from_pretrained(model, run / "adapter").merge_and_unload()
    made = run / f"merged.{os.getpid()}.tmp"
    model.save_pretrained(made)
    for path in made.glob("*.safetensors"):
        path.chmod(0o644)  # safetensors writes for its owner alone
    for file in TOKENIZER:
        if (run / "adapter" / file).is_file():
            shutil.copyfile(run / "adapter" / file, made / file)
    _put(made, run / "merged")


def _put(made, folder):
    """Give a finished folder its name, in place of an older one."""
    old = folder.with_name(f"{folder.name}.old.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, old)
    os.rename(made, folder)
    shutil.rmtree(old, ignore_errors=True)


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":  # python3 -m decksmith.training.adapter smol
    import sys

    print(base(sys.argv[1]))
