"""Which copy of a fine-tune may ship: the gate on made-up answers, and copies of the embedded model that really answer."""

import json
import os
import shutil
import subprocess
import sys
import time

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
        "few": "not known: 8 prompts",
        "broken": "is worse",
        "other": "reads other prompts",
    }
    assert {entry["family"] for parts in entries.values() for entry in parts} == {8}
    assert "40.0 points less likely, which is more than 5" in entries["broken"][1]["sentence"]


def test_decks_that_fail_are_a_loss_although_the_replies_are_likely(monkeypatch):
    near = [parted(0.89)] * 20
    entries = {"q4": [decks(monkeypatch, [0.1] * 20, [0.6] * 20), fidelity.replies(near)]}
    assert said(entries, {"q4": near}) == {"q4": "is worse"}


def run_of(monkeypatch, values):
    monkeypatch.setattr(fidelity, "worth", lambda records: dict(enumerate(records)))
    return {"records": list(values)}


def test_decks_that_could_never_tell_show_losses_alone_and_the_verdict_says_so(monkeypatch):
    dice = numpy.random.default_rng(1)
    alike, apart = dice.uniform(0.75, 0.85, 60), dice.integers(0, 2, 12)
    assert 50 < fidelity.prompts_wanted(run_of(monkeypatch, alike)) < 90
    assert fidelity.prompts_wanted(run_of(monkeypatch, apart)) > 200  # they render, or do not
    near, told = [parted(0.89 + step) for step in dice.uniform(0, 0.01, 12)], {}
    for name, ours in (("q8", apart[::-1]), ("dead", [0] * 12)):
        theirs = apart if name == "q8" else [0.8] * 12
        told[name] = [decks(monkeypatch, list(ours), list(theirs)), fidelity.replies(near)]
    fidelity.settle(told)
    assert fidelity.verdict(told["q8"], near) == "not known: 12 prompts"
    assert fidelity.verdict(told["q8"], near, by_decks=False) == "may ship, by replies"
    assert fidelity.verdict(told["dead"], near, by_decks=False) == "is worse"


def test_what_one_interval_shows_is_not_enough_among_many_copies(monkeypatch):
    ours = numpy.random.default_rng(7).normal(0.5, 0.1, 60).clip(0, 1)
    theirs = (ours + numpy.random.default_rng(8).normal(0, 0.25, 60)).clip(0, 1)
    near = [parted(0.9)] * 60
    verdicts = {}
    for copies_asked in (1, 12):
        entries = {
            f"copy{n}": [decks(monkeypatch, ours, theirs), fidelity.replies(near)]
            for n in range(copies_asked)
        }
        fidelity.settle(entries)
        verdicts[copies_asked] = entries["copy0"][0]["verdict"]
    assert verdicts == {1: "holds", 12: "cannot tell"}


ASKED = """
import os, sys, time
from pathlib import Path
import shipped
out, log = Path(sys.argv[1]), open(sys.argv[2], "ab", buffering=0)
def made(prompt):
    log.write(prompt["id"].encode() + b"\\n")
    time.sleep(0.1)
    return {"at": int(prompt["id"][1:])}
prompts = [{"id": f"p{n}", "messages": [str(n)]} for n in range(12)]
print(sum(one["at"] for one in shipped.kept(out, "q8", prompts, ["x"], made).values()))
"""


@pytest.mark.long(
    "tests/models/test_stopping.py::test_a_run_that_is_killed_amid_a_reply_asks_for_none_before_it_again"
)
def test_greedy_replies_of_a_command_killed_twice_are_asked_once(tmp_path):
    (tmp_path / "replies").mkdir()
    log, kept = tmp_path / "log", tmp_path / "replies/q8.jsonl"
    path = f"{base_models.cli.ROOT / 'lib'}:{base_models.cli.ROOT / 'make'}"
    command = [sys.executable, "-c", ASKED, tmp_path, log]
    for wanted in (3, 7):
        asking = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path})
        while not kept.is_file() or kept.read_bytes().count(b"\n") < wanted:
            assert asking.poll() is None
            time.sleep(0.01)
        asking.kill()
        asking.wait()
    with open(kept, "ab") as torn:
        torn.write(b'{"id":"p9","inputs":"')  # as a kill within a write would leave it
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.stdout == "66\n", done.stderr
    asked = log.read_text().split()
    assert {*asked} == {f"p{n}" for n in range(12)}
    assert len(asked) <= 12 + 2  # what was under way at a kill, and nothing else, comes again


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
@pytest.mark.long("test_the_verdicts_are_those_of_the_parts")
def test_a_good_copy_says_what_the_measured_one_says_and_a_wrongly_scaled_one_does_not(
    tmp_path,
):
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
        reply = plain.reply(measured, asked, 24)

        def own(tokens):
            return plain.read(measured, "transformers", "measured", asked, tokens)

        for name, adapter in (("good", good), ("broken", broken)):
            copies.adapters.merge_into(adapter, "smol", tmp_path / f"{name}-merged")
            file = tmp_path / f"{name}.gguf"
            copies.write(tmp_path / f"{name}-merged", embedded.weights(), file, "q8")
            chosen = embedded.EngineSettings(1, 1, {}, name, str(file), 4096)
            with embedded.share(chosen) as lease:
                theirs = plain.read(lease.base_url, "embedded", name, asked, reply)
                found[name] = fidelity.parting(reply, own(reply), theirs, own)
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
