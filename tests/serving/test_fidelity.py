"""Which copy of a fine-tune may ship: the gate on made-up answers, and copies of the embedded model that really answer."""

import json
import shutil
import sys

import numpy
import pytest
from decksmith.models import embedded, servers
from decksmith.train.serving import fidelity
from decksmith.train.training import adapters, base_models, copies

sys.path.append(str(base_models.cli.ROOT / "make"))


def parted(likely, own=0.9, prompt=True):
    return {"at": None, "measured": [], "copy": [], "likely": [own, likely], "prompt": prompt}


def decks(monkeypatch, ours, theirs):
    """The part about decks, of two runs whose decks pass these shares of their checks."""
    cells = {"ours": dict(enumerate(ours)), "theirs": dict(enumerate(theirs))}
    monkeypatch.setattr(fidelity, "worth", cells.get)
    return fidelity.decks({"records": "ours"}, {"records": "theirs"})


def said(entries, partings):
    fidelity.settle(entries)
    return {name: fidelity.verdict(parts, partings[name]) for name, parts in entries.items()}


def test_the_verdicts_are_those_of_the_parts(monkeypatch):
    dice = numpy.random.default_rng(1)
    good = dice.uniform(0.4, 0.8, 90)
    near = [parted(0.9 - step) for step in dice.uniform(0, 0.02, 90)]
    partings = {"q8": near, "few": near[:8], "broken": [parted(0.5)] * 90, "other": near}
    partings["other"] = [one | {"prompt": False} for one in near]
    entries = {
        name: [
            decks(monkeypatch, good[: len(some)], good[: len(some)]),
            fidelity.replies(some),
        ]
        for name, some in partings.items()
    }
    assert said(entries, partings) == {
        "q8": "may ship",
        "few": "not known with 8 prompts",
        "broken": "is worse",
        "other": "not known: it reads other prompts",
    }
    assert {entry["family"] for parts in entries.values() for entry in parts} == {8}
    assert "40.0 points less likely, which is more than 5" in entries["broken"][1]["sentence"]


def test_decks_that_fail_are_a_loss_although_the_replies_are_likely(monkeypatch):
    near = [parted(0.89)] * 20
    entries = {"q4": [decks(monkeypatch, [0.1] * 20, [0.6] * 20), fidelity.replies(near)]}
    assert said(entries, {"q4": near}) == {"q4": "is worse"}


def test_a_gguf_copy_has_the_values_of_the_merged_model_in_llamas_order(tmp_path):
    gguf = pytest.importorskip("gguf")
    dice = numpy.random.default_rng(2)
    shapes = {"token_embd": (40, 32), "blk.0.attn_q": (32, 32), "blk.0.attn_norm": (32,)}
    arrays = {name: dice.standard_normal(shape).astype("<f4") for name, shape in shapes.items()}
    merged = tmp_path / "merged"
    merged.mkdir()
    (merged / "config.json").write_text(
        json.dumps({"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2})
    )
    tensors = {
        f"{base_models.hf_module(name)}.weight": ("F32", one.shape, one.tobytes())
        for name, one in arrays.items()
    }
    (merged / "model.safetensors").write_bytes(base_models.safetensors(tensors))
    writer = gguf.GGUFWriter(tmp_path / "like.gguf", "llama")
    writer.add_block_count(1)
    writer.add_token_list([b"a", b"b"])
    for name, one in arrays.items():
        writer.add_tensor(f"{name}.weight", numpy.zeros_like(one))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for form, error in (("f16", 2e-3), ("q8", 0.05), ("q4", 0.6)):
        copies.write(merged, tmp_path / "like.gguf", tmp_path / f"{form}.gguf", form)
        reader = gguf.GGUFReader(tmp_path / f"{form}.gguf")
        assert reader.fields["llama.block_count"].contents() == 1
        assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
        for tensor in reader.tensors:
            value = gguf.dequantize(tensor.data, tensor.tensor_type)
            wanted = arrays[tensor.name.removesuffix(".weight")]
            if "attn_q" in tensor.name:
                wanted = base_models.permuted(wanted, 4)
            assert numpy.abs(value - wanted).max() < error


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.long
def test_a_good_copy_says_what_the_measured_one_says_and_a_wrongly_scaled_one_does_not(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(fidelity, "TOKENS", 24)
    good, broken = tmp_path / "adapter", tmp_path / "broken"
    adapters.unpack(base_models.cli.ROOT / "data/adapter", good)
    shutil.copytree(good, broken)
    import plain  # of make/

    config = json.loads((broken / "adapter_config.json").read_text())
    config["lora_alpha"] *= 4
    (broken / "adapter_config.json").write_text(json.dumps(config))
    asked = [{"role": "user", "content": "Write a Slidev deck of three slides about bees."}]
    found = {}
    with plain.served(plain.Plain(base_models.folder("smol"), good)) as measured:
        reply = fidelity.reply(measured, asked)
        for name, adapter in (("good", good), ("broken", broken)):
            copies.adapters.merge_into(adapter, "smol", tmp_path / f"{name}-merged")
            file = tmp_path / f"{name}.gguf"
            copies.write(tmp_path / f"{name}-merged", embedded.weights(), file, "q8")
            chosen = embedded.EngineSettings(1, 1, {}, name, str(file), 4096)
            with embedded.share(chosen) as lease:
                found[name] = fidelity.parting(measured, lease.base_url, name, asked, reply)
    assert found["good"]["prompt"] and found["broken"]["prompt"]
    own, likely = found["good"]["likely"]
    assert abs(own - likely) < fidelity.LESS < own - found["broken"]["likely"][1]
    other = found["broken"]
    assert other["at"] is not None and other["measured"][0] >= other["measured"][1]
    assert other["copy"][1] >= other["copy"][0]


def test_a_copy_with_other_weights_is_another_model_to_whoever_asks_it(tmp_path, monkeypatch):
    import shipped  # of make/

    monkeypatch.setenv("DECKSMITH_SERVE", str(tmp_path))
    told, copied = [], []
    for data in (b"one", b"other"):
        (tmp_path / "q4.gguf").write_bytes(data)
        copied.append(shipped.Copy("q4", tmp_path / "q4.gguf"))
        said = shipped.endpoint(copied[-1], "http://127.0.0.1:9/v1", "embedded")
        (tmp_path / "here.json").write_text(json.dumps(said))
        told.append(servers.served("q4")["adapter"])
    assert told == [copy.sha256 for copy in copied] and len({*told}) == 2
