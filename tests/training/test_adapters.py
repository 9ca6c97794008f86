"""Adapters checked and exported, on a made-up model of one layer; the embedded model exported for real."""

import json
import multiprocessing
import os
import subprocess
import sys

import numpy
import pytest
from decksmith.core import cli
from decksmith.models import embedded
from decksmith.train.hub import weights
from decksmith.train.training import adapters, base_models

HEADS, GROUPS, WIDTH = 4, 2, 16
SHAPES = {
    "model.layers.0.self_attn.q_proj": (16, 16),
    "model.layers.0.self_attn.k_proj": (8, 16),
    "model.layers.0.mlp.up_proj": (24, 16),
    "model.embed_tokens": (30, 16),
}


def save(path, arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        base_models.safetensors(
            {name: ("F32", one.shape, one.astype("<f4").tobytes()) for name, one in arrays.items()}
        )
    )


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "base"
    save(
        folder / "model.safetensors",
        {f"{name}.weight": numpy.ones(shape) for name, shape in SHAPES.items()},
    )
    (folder / "config.json").write_text(
        json.dumps(
            {"model_type": "llama", "num_attention_heads": HEADS, "num_key_value_heads": GROUPS}
        )
    )
    (folder / "tokenizer.json").write_text("{}")
    return folder


def lora(folder, change=lambda arrays: arrays, **config):
    dice = numpy.random.default_rng(1)
    arrays = {}
    for name in list(SHAPES)[:2]:
        out, width = SHAPES[name]
        arrays[f"base_model.model.{name}.lora_A.weight"] = dice.standard_normal((2, width))
        arrays[f"base_model.model.{name}.lora_B.weight"] = dice.standard_normal((out, 2))
    save(folder / "adapter_model.safetensors", change(arrays))
    (folder / "adapter_config.json").write_text(
        json.dumps(
            {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "/a/path"}
            | config
        )
    )
    return folder


def test_an_adapter_that_fits_is_described(tmp_path, base):
    assert adapters.check(lora(tmp_path / "a"), base) == {
        "rank": 2,
        "alpha": 4,
        "modules": {"k_proj": 1, "q_proj": 1},
        "parameters": 2 * (16 + 16 + 16 + 8),
        "untrained": [],
    }


def renamed(old, new):
    return lambda arrays: {name.replace(old, new): one for name, one in arrays.items()}


def zeroed(part):
    return lambda arrays: {name: one * (part not in name) for name, one in arrays.items()}


@pytest.mark.parametrize(
    ("change", "config", "said"),
    [
        (renamed("q_proj", "w_proj"), {}, "model.layers.0.self_attn.w_proj is no matrix of"),
        (renamed("lora_B", "lora_C"), {}, "lora_C.weight is no part of a LoRA adapter"),
        (
            lambda arrays: arrays,
            {"r": 4},
            r"shapes \[\[2, 16\], \[8, 2\]\] do not fit rank 4 on \[8, 16\]",
        ),
        (
            lambda arrays: {
                name: one for name, one in arrays.items() if "k_proj.lora_B" not in name
            },
            {},
            r"\[\[2, 16\], None\] do not fit",
        ),
        (zeroed("lora_B"), {}, "every lora_B is zero: this adapter changes nothing"),
        (lambda arrays: {name: one * numpy.nan for name, one in arrays.items()}, {}, "not finite"),
        (lambda arrays: arrays, {"peft_type": "IA3"}, "not the configuration of a LoRA adapter"),
    ],
)
def test_an_adapter_that_would_serve_the_base_silently_is_refused_with_the_reason(
    tmp_path, base, change, config, said
):
    with pytest.raises(cli.BadData, match=said):
        adapters.check(lora(tmp_path / "a", change, **config), base)


def test_modules_that_were_not_trained_are_named(tmp_path, base):
    assert adapters.check(lora(tmp_path / "a", zeroed("k_proj.lora_B")), base)["untrained"] == [
        "model.layers.0.self_attn.k_proj"
    ]


def test_names_match_under_another_prefix_of_the_model(tmp_path, base):
    assert adapters.check(lora(tmp_path / "a", renamed("model.layers", "backbone.layers")), base)[
        "modules"
    ] == {"k_proj": 1, "q_proj": 1}


@pytest.mark.slow
def test_of_a_base_model_on_the_hub_only_the_headers_are_fetched(tmp_path, base, monkeypatch):
    hub = tmp_path / "hub"
    shapes = {f"{name}.weight": shape for name, shape in SHAPES.items()} | {
        "model.ballast.weight": (1000, 1000)
    }
    for part, names in (("1", list(shapes)[:2]), ("2", list(shapes)[2:])):
        save(
            hub / f"models/lab/base/model-{part}.safetensors",
            {name: numpy.ones(shapes[name]) for name in names},
        )
    index = {
        "weight_map": {
            name: f"model-{1 if at < 2 else 2}.safetensors" for at, name in enumerate(shapes)
        }
    }
    (hub / "models/lab/base/model.safetensors.index.json").write_text(json.dumps(index))
    process = subprocess.Popen(
        [sys.executable, cli.ROOT / "tests/hub.py", hub], stdout=subprocess.PIPE, text=True
    )
    try:
        env = os.environ | {
            "HF_ENDPOINT": process.stdout.readline().strip(),
            "HF_HOME": str(tmp_path / "home"),
            "PYTHONPATH": str(cli.ROOT / "lib"),
        }
        code = (
            "import json, sys; from decksmith.train.training import adapters\n"
            "for folder, base in zip(sys.argv[1::2], sys.argv[2::2]):\n"
            "    try: print(json.dumps(adapters.check(folder, base)))\n"
            "    except adapters.cli.Stop as refused: print(refused)"
        )
        fits, odd = lora(tmp_path / "a"), lora(tmp_path / "b", r=4)
        done = subprocess.run(
            [sys.executable, "-c", code, fits, "lab/base", odd, "lab/base", fits, "lab/none"],
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found, refused, missing = done.stdout.splitlines()
        assert json.loads(found)["modules"] == {"k_proj": 1, "q_proj": 1}
        assert not [
            path
            for path in (tmp_path / "home").rglob("*")
            if path.is_file() and path.stat().st_size > 100_000
        ]
        assert "do not fit rank 4 on [8, 16] of lab/base" in refused
        assert "lab/none: the Hub does not give its headers" in missing
    finally:
        process.kill()
        process.wait()


def test_a_file_that_was_cut_off_is_refused(tmp_path, base):
    path = lora(tmp_path / "a") / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(cli.BadData, match="cut off"):
        adapters.check(tmp_path / "a", base)


def test_the_gguf_adapter_adds_to_the_permuted_matrix_what_the_adapter_adds_to_the_matrix(
    tmp_path, base
):
    import gguf

    folder = lora(tmp_path / "a")
    adapters.gguf(folder, base, tmp_path / "a.gguf")
    reader = gguf.GGUFReader(tmp_path / "a.gguf")
    assert [
        reader.fields[key].contents()
        for key in ("general.type", "adapter.type", "adapter.lora.alpha", "general.architecture")
    ] == ["adapter", "lora", 4.0, "llama"]
    found = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors
    }
    assert sorted(found) == [
        f"blk.0.attn_{part}.weight.lora_{half}" for part in "kq" for half in "ab"
    ]
    theirs = adapters.values_of(
        folder / "adapter_model.safetensors", weights.tensors(folder / "adapter_model.safetensors")
    )
    for part, heads in (("q", HEADS), ("k", GROUPS)):
        a, b = (
            theirs[f"base_model.model.model.layers.0.self_attn.{part}_proj.lora_{half}.weight"]
            for half in "AB"
        )
        delta = (
            found[f"blk.0.attn_{part}.weight.lora_b"] @ found[f"blk.0.attn_{part}.weight.lora_a"]
        )
        size = len(b) // heads
        rows = [
            head * size + half * (size // 2) + pair
            for head in range(heads)
            for pair in range(size // 2)
            for half in (0, 1)
        ]
        assert numpy.allclose(delta, (b @ a)[rows], atol=5e-3)  # 16 bits have eleven binary digits


def test_permuting_and_back_is_nothing():
    rows = numpy.arange(48).reshape(12, 4)
    assert (base_models.unpermuted(base_models.permuted(rows, 3), 3) == rows).all() and (
        base_models.permuted(rows, 3) != rows
    ).any()


def run_folder(tmp_path, base, losses):
    run = tmp_path / "run"
    for step, loss in losses.items():
        lora(
            run / f"checkpoints/step_{step}/policy/weights/model",
            lambda arrays, step=step: {k: v * step for k, v in arrays.items()},
        )
        (run / f"checkpoints/step_{step}/training_info.json").write_text(
            json.dumps({"total_steps": step} | ({"val:val_loss": loss} if loss else {}))
        )
    (run / "checkpoints/tmp_step_99").mkdir()
    (run / "recipe.yaml").write_text(
        f"policy: {{model_name: {base}}}\nsft: {{max_num_steps: 30}}\n"
    )
    return run


@pytest.mark.parametrize(
    ("losses", "step", "chosen"),
    [
        ({10: 2.0, 20: 1.0, 30: 1.5}, 20, "best of 3 by val:val_loss"),
        ({10: 1.0, 20: 1.0, 30: None}, 20, "best of 2 by val:val_loss"),
        ({10: None, 9: None}, 10, "the last; no checkpoint has val:val_loss"),
    ],
)
def test_the_best_checkpoint_is_exported_and_the_manifest_says_which(
    tmp_path, base, losses, step, chosen
):
    run = run_folder(tmp_path, base, losses)
    manifest = adapters.export(run)
    assert (manifest["step"], manifest["of"], manifest["chosen"], manifest["val_loss"]) == (
        step,
        30,
        chosen,
        losses[step],
    )
    assert sorted(path.name for path in (run / "adapter").iterdir()) == [
        "README.md",
        "adapter.gguf",
        "adapter_config.json",
        "adapter_model.safetensors",
        "manifest.json",
        "tokenizer.json",
    ]
    assert json.loads((run / "adapter/manifest.json").read_text()) == manifest
    assert (run / "adapter/adapter_model.safetensors").read_bytes() == (
        run / f"checkpoints/step_{step}/policy/weights/model/adapter_model.safetensors"
    ).read_bytes()


def test_a_recipe_that_names_no_metric_gets_its_last_checkpoint(tmp_path, base):
    run = run_folder(tmp_path, base, {10: 1.0, 20: 2.0})
    (run / "recipe.yaml").write_text(
        (run / "recipe.yaml").read_text() + "checkpointing: {metric_name: null}\n"
    )
    assert [adapters.export(run)[key] for key in ("step", "chosen")] == [20, "the last"]


def test_a_step_can_be_named_and_the_older_export_is_replaced(tmp_path, base):
    run = run_folder(tmp_path, base, {10: 2.0, 20: 1.0})
    adapters.export(run)
    (run / "adapter/about.toml").write_text('licence = "apache-2.0"\n')
    manifest = adapters.export(run, step=10)
    assert (manifest["step"], manifest["chosen"]) == (10, "asked for")
    assert "license: apache-2.0" in (run / "adapter/README.md").read_text()
    assert {path.name for path in run.iterdir()} == {"adapter", "checkpoints", "recipe.yaml"}
    with pytest.raises(cli.Missing, match="no checkpoint of step 15; there are: 10, 20"):
        adapters.export(run, step=15)


def test_a_refused_adapter_leaves_the_older_export_alone(tmp_path, base):
    run = run_folder(tmp_path, base, {10: 2.0})
    adapters.export(run)
    lora(run / "checkpoints/step_10/policy/weights/model", zeroed("lora_B"))
    with pytest.raises(cli.BadData, match="changes nothing"):
        adapters.export(run)
    assert json.loads((run / "adapter/manifest.json").read_text())["step"] == 10 and not list(
        run.glob("*.tmp")
    )


def test_a_base_that_is_nowhere_is_missing_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(cli.Missing, match="no such folder, and the Hub does not give it"):
        base_models.folder("nobody/nothing-of-this-name")
    with pytest.raises(cli.Missing, match=r"no config.json"):
        base_models.folder(tmp_path)


@pytest.mark.engine
@pytest.mark.long(
    "tests/serving/test_fidelity.py::test_a_gguf_copy_has_the_values_of_the_merged_model_in_llamas_order"
)
def test_two_processes_export_the_embedded_model_once_and_it_is_the_model_of_the_gguf_file(
    monkeypatch, tmp_path
):
    import gguf
    from tokenizers import Tokenizer

    monkeypatch.setattr(cli, "ROOT", tmp_path)
    made = multiprocessing.get_context("fork").Value("i", 0)
    really = base_models.export

    def export(*arguments):
        made.value += 1
        really(*arguments)

    monkeypatch.setattr(base_models, "export", export)
    (tmp_path / "data/models/smol.123.tmp").mkdir(parents=True)  # of an export that was killed
    children = [
        multiprocessing.get_context("fork").Process(target=base_models.folder, args=("smol",))
        for _ in range(2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    folder = base_models.folder("smol")
    assert made.value == 1 and sorted(path.name for path in folder.parent.iterdir()) == [
        ".lock",
        "smol",
    ]

    reader = gguf.GGUFReader(embedded.weights())
    path = folder / "model.safetensors"
    header = weights.tensors(path)
    values = adapters.values_of(
        path,
        {
            key: header[key]
            for key in ("model.norm.weight", "model.layers.7.self_attn.k_proj.weight")
        },
    )
    theirs = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type)
        for tensor in reader.tensors
        if tensor.name in ("output_norm.weight", "blk.7.attn_k.weight")
    }
    assert len(header) == len(reader.tensors)
    assert numpy.allclose(values["model.norm.weight"], theirs["output_norm.weight"], rtol=2**-8)
    assert numpy.allclose(
        base_models.permuted(values["model.layers.7.self_attn.k_proj.weight"], 3),
        theirs["blk.7.attn_k.weight"],
        rtol=2**-8,
    )
    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert words.encode("Ünal's 2024 <|im_end|>\n", add_special_tokens=False).tokens == [
        "Ã",
        "ľ",
        "nal",
        "'s",
        "Ġ",
        "2",
        "0",
        "2",
        "4",
        "Ġ",
        "<|im_end|>",
        "Ċ",
    ]
