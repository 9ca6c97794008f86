"""What we say of a run is what NeMo-RL makes of it: needs a checkout of it, NEMO_RL=/path make test-nemo-rl.

NEMO_RL_PYTHON names an interpreter with what NeMo-RL imports, its own environment's or any with its data packages.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.train.training import base_models, preflight, recipes

CHECKOUT = os.environ.get("NEMO_RL")
GOLD = cli.ROOT / "data/gold"
IN_IMAGE = "/opt/nemo-rl/"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not CHECKOUT, reason="needs a checkout of NeMo-RL: NEMO_RL=/path make test-nemo-rl"
    ),
]


def rows():
    """The decks of data/gold as packed rows."""
    for folder in sorted(GOLD.iterdir()):
        if not (folder / "think.md").exists():
            continue
        answer = (folder / "deck.md").read_text()
        reasoning = (folder / "think.md").read_text()
        yield {
            "id": folder.name,
            "messages": [
                {"role": "system", "content": "You write decks."},
                {"role": "user", "content": (folder / "PROMPT.md").read_text()},
                {"role": "assistant", "content": answer, "reasoning_content": reasoning},
            ],
        }


@pytest.fixture(scope="module", params=["smol", "thinker"])
def made(request, tmp_path_factory):
    """(recipe, tokenizer's folder, what NeMo-RL made of them): the real template of the embedded model, and one that thinks."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "chat").mkdir()
    packed = [json.dumps(row) + "\n" for row in rows()]
    for name, some in (("train", packed[:-16]), ("test", packed[-16:])):
        (folder / f"chat/{name}.jsonl").write_text("".join(some))
    tokenizer = base_models.folder("smol")
    if request.param == "thinker":
        tokenizer = thinker(folder / "thinker")
    config = recipes.recipe(
        "nemotron-nano-lora",
        data=recipes.freeze("nemotron-nano-lora", folder / "chat", folder / "run/data"),
        run=folder / "run",
    )
    recipe = folder / "run/recipe.yaml"
    recipe.write_text(recipes.dump(config).replace(IN_IMAGE, f"{Path(CHECKOUT).resolve()}/"))
    done = subprocess.run(
        [
            os.environ.get("NEMO_RL_PYTHON") or sys.executable,
            Path(__file__).with_name("nemo_rl_rows.py"),
            recipe,
            tokenizer,
        ],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT), "HF_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return recipe, tokenizer, json.loads(done.stdout[done.stdout.index('{"config"') :])


def thinker(folder):
    """The embedded model's tokenizer with a template that writes reasoning as Nemotron's does."""
    folder.mkdir()
    for path in base_models.folder("smol").iterdir():
        if path.name != "chat_template.jinja" and path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    source = cli.ROOT / "tests/fixtures/sft/thinker/chat_template.jinja"
    (folder / "chat_template.jinja").write_bytes(source.read_bytes())
    return folder


def test_every_row_has_the_tokens_and_the_mask_that_we_count_with(made):
    recipe, tokenizer, theirs = made
    config = recipes.load(recipe)
    template = recipes.template(config, tokenizer)
    for side in ("train", "validation"):
        lines = Path(config["data"][side]["data_path"]).read_text().splitlines()
        assert len(lines) == len(theirs["rows"][side]) >= 16
        for line, row in zip(lines, theirs["rows"][side], strict=True):
            ours = recipes.example(json.loads(line)["messages"], template, config)
            assert ours["ids"] == row["ids"], line[:60]
            assert ours["mask"] == row["mask"], line[:60]
            assert row["multiplier"] == (0.0 if ours["masked_out"] else 1.0)


def test_its_loader_resolves_the_recipe_to_what_ours_does(made):
    recipe, _, theirs = made
    ours = {key: value for key, value in preflight.leaves(recipes.load(recipe)) if key != "absent"}
    resolved = dict(preflight.leaves(theirs["config"]))
    differing = {
        key: (value, resolved.get(key, "absent"))
        for key, value in ours.items()
        if not key.endswith("_override_") and resolved.get(key, "absent") != value
    }
    assert not differing
    nodes, gpus = (theirs["config"]["cluster"][key] for key in ("num_nodes", "gpus_per_node"))
    assert theirs["config"]["policy"]["train_global_batch_size"] % (nodes * gpus) == 0


def test_its_schema_takes_the_configuration(made):
    refused = made[2]["refused"]
    if refused and refused.startswith("not checked"):
        pytest.skip(f"this interpreter cannot load NeMo-RL's schema: {refused.splitlines()[0]}")
    assert refused is None
