"""The copies of a fine-tune that people ship: merged, and as GGUF files of 16, 8 and 4 bits, each with a manifest.

`python3 -m decksmith.train.training.copies ADAPTER OUT [BASE.gguf]` makes OUT/merged, OUT/f16.gguf, OUT/q8.gguf and OUT/q4.gguf,
those that are not there yet. What a GGUF file says beside its weights (tokenizer, chat template, sizes) is taken from a
GGUF file of the base, the embedded one's where none is named.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy

from decksmith.core import cli, stream
from decksmith.models import embedded
from decksmith.train.hub import weights
from decksmith.train.training import adapters, base_models

# By name of the file: the type of the matrices, that of the embedding (llama.cpp too leaves it
# more than 4 bits), and llama.cpp's number for the whole, general.file_type.
FORMS = {"f16": ("F16", "F16", 1), "q8": ("Q8_0", "Q8_0", 7), "q4": ("Q4_0", "Q8_0", 2)}
OWN = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


def make(adapter: Path, out: Path, like: Path | None = None) -> None:
    """Make the copies of an adapter that OUT lacks, or that were made of something else. like: a GGUF file of its base.
    Raises cli.BadData for a base that is no llama, cli.Missing."""
    base, sha256 = adapters.base_of(adapter), adapters.sha256
    adapters.check(adapter, base)
    like = like or (embedded.weights() if base == "smol" else None)
    if like is None:
        raise cli.Missing(f"name a GGUF file of {base}, whose tokenizer the copies take: LIKE=..")
    merged, made_of = out / "merged", {"base": base_models.known(base)}
    made_of |= {name: sha256(adapter / name) for name in (adapters.WEIGHTS, "adapter_config.json")}
    whole = merged / "model.safetensors"
    _keep(whole, merged, made_of, lambda: adapters.merge_into(adapter, base, merged))
    made_of |= {"merged": sha256(whole), "like": sha256(like)}
    for name in FORMS:
        file = out / f"{name}.gguf"
        _keep(file, out / name, made_of, partial(write, merged, like, file, name))


def _keep(file: Path, note: Path, made_of: dict[str, str], made: Callable[[], None]) -> None:
    """Have a copy made, and write its manifest last, unless it is there and was made of the same."""
    path = note.with_name(f"{note.name}.json")
    if file.is_file() and path.is_file() and stream.json_file(path)["made_of"] == made_of:
        return
    note.parent.mkdir(parents=True, exist_ok=True)
    made()
    found = {"copy": note.name, "made_of": made_of, "sha256": adapters.sha256(file)}
    stream.write(path, json.dumps(found | {"bytes": file.stat().st_size}, indent=2) + "\n")
    cli.say(f"{file}: {file.stat().st_size / 1e6:.0f} MB")


def write(merged: Path, like: Path, out: Path, form: str) -> None:
    """Write the model of a merged folder as GGUF in a form of FORMS, with the fields of `like`. Raises cli.BadData, cli.Missing."""
    llama = base_models.library("gguf")
    model = json.loads((merged / "config.json").read_text())
    if (kind := model.get("model_type")) != "llama":
        raise cli.BadData(f"{merged} is of type {kind}; only llama models are turned into GGUF")
    heads, path = base_models.projected_heads(model), merged / "model.safetensors"
    values = adapters.values_of(path, weights.tensors(path))
    reader, temporary = llama.GGUFReader(like), Path(f"{out}.{os.getpid()}.tmp")
    writer = llama.GGUFWriter(temporary, "llama")
    matrix, embedding, number = FORMS[form]
    writer.add_file_type(number)
    writer.add_quantization_version(llama.GGML_QUANT_VERSION)
    for key, field in reader.fields.items():
        if not key.startswith(OWN):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(key, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        module, _, kind = tensor.name.rpartition(".")
        try:
            module = base_models.hf_module(module)
            value = values[f"{module}.{kind}"]
        except KeyError:
            raise cli.BadData(f"{like}: {tensor.name} is not in {path}") from None
        if count := heads.get(module.rpartition(".")[2]):
            value = base_models.permuted(value, count)
        wanted = "F32" if value.ndim < 2 else embedding if "blk." not in tensor.name else matrix
        packed_as = llama.GGMLQuantizationType[wanted]
        packed = llama.quantize(numpy.ascontiguousarray(value), packed_as)
        writer.add_tensor(tensor.name, packed, raw_dtype=packed_as)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(temporary, out)


if __name__ == "__main__":
    cli.ends_with(lambda: make(*map(Path, sys.argv[1:])))
