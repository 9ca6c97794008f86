"""DPO on this machine: a random model of two layers whose tokens are bytes, its SFT adapter, and pairs."""

import json
import math
import os
import signal
import time

import pytest
from decksmith.core import cli, stream
from decksmith.train.training import adapters, recipes, train
from small_runs import (
    conversation,
    finished,
    load,
    make_model,
    metrics,
    start,
    steps,
    trained,
    weights,
    write_rows,
    written,
)

pytestmark = [pytest.mark.engine, pytest.mark.slow]
SMALL = (
    "policy.max_total_sequence_length=256",
    "policy.train_global_batch_size=2",
    "policy.precision=float32",
    "policy.dtensor_cfg.lora_cfg.dim=4",
    "checkpointing.save_period=2",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    load()
    assert finished(start(make_model, folder)) == 0
    return folder


@pytest.fixture(scope="module")
def sft(model, tmp_path_factory):
    """A PEFT folder that two steps of SFT have made."""
    folder = tmp_path_factory.mktemp("sft")
    talks = [conversation(n) for n in range(4)]
    data = write_rows(folder / "data", train=talks, test=talks[:2])
    config = recipes.recipe(
        "smol-lora",
        data=data,
        run=folder / "run",
        overrides=[f"policy.model_name={model}", "sft.max_num_steps=2", *SMALL],
    )
    stream.write(folder / "run/recipe.yaml", recipes.dump(config))
    assert trained(folder / "run", folder / "log") == 0
    return folder / "run/checkpoints/step_2/policy/weights/model"


def pair(number):
    """Its chosen answer is of capitals, the rejected one is not."""
    asked, answered = conversation(number)
    better = {**answered, "content": answered["content"].upper()}
    sides = [{"rank": 1, "completion": [answered]}, {"rank": 0, "completion": [better]}]
    return {"id": f"r{number}", "context": [asked], "completions": sides}


@pytest.fixture
def recipe(model, sft, tmp_path):
    """A function that writes a run of nine pairs in steps of two into tmp_path/NAME and returns the folder."""
    data = tmp_path / "data"
    data.mkdir()
    for side, numbers in (("train", range(9)), ("test", range(90, 93))):
        lines = [json.dumps(pair(n)) + "\n" for n in numbers]
        (data / f"{side}.jsonl").write_text("".join(lines))

    def write(name, *overrides):
        run = tmp_path / name
        config = recipes.recipe(
            "smol-dpo",
            data=recipes.freeze("smol-dpo", data, run / "data"),
            run=run,
            overrides=[
                f"policy.model_name={model}",
                f"start.adapter={sft}",
                "policy.optimizer.kwargs.lr=0.02",
                "dpo.val_period=2",
                *SMALL,
                *overrides,
            ],
        )
        stream.write(run / "recipe.yaml", recipes.dump(config))
        return run

    return write


def test_pairs_train_the_adapter_that_was_begun_with_against_what_it_was(recipe, sft):
    rarely = ("dpo.val_period=12", "checkpointing.save_period=12")
    run = recipe("run", "dpo.max_num_epochs=6", *rarely)
    assert trained(run) == 0, (run / "log").read_text()
    assert steps(run)[-1] == 24
    lines = metrics(run)
    # With nothing trained yet the policy is its own reference, whatever the adapter begins as: -log sigmoid(0).
    assert lines[0]["step"] == 0 and math.isclose(lines[0]["val_loss"], math.log(2), abs_tol=1e-4)
    assert math.isclose(lines[1]["loss"], math.log(2), abs_tol=1e-4) and lines[1]["margin"] == 0
    last = [line for line in lines if "val_loss" in line][-1]
    assert last["val_loss"] < 0.5 and last["accuracy"] == 1 and last["margin"] > 0.3
    assert (sft / "adapter_model.safetensors").read_bytes() != weights(run, 24)
    checkpoint = run / "checkpoints/step_24"
    assert {path.name for path in (checkpoint / "policy/weights/model").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    info = json.loads((checkpoint / "training_info.json").read_text())
    assert info["val:validation-default_loss"] == pytest.approx(last["val_loss"], abs=1e-5)
    manifest = adapters.export(run)
    assert manifest["recipe"]["start"] == {"adapter": str(sft)}
    assert manifest["step"] == manifest["of"] == 24 and manifest["val_loss"]


@pytest.mark.long(
    "tests/training/test_trainer.py::test_a_run_that_is_killed_again_and_again_ends_in_the_same_bytes_as_one_that_is_not"
)
def test_a_run_that_is_killed_ends_in_the_same_bytes_as_one_that_is_not(recipe):
    whole, killed = (
        recipe("whole", "dpo.max_num_epochs=3"),
        recipe("killed", "dpo.max_num_epochs=3"),
    )
    assert trained(whole) == 0
    for _ in range(2):
        process, before = start(train.run, killed, log=killed / "log"), written(killed)
        while process.is_alive() and written(killed) < before + 300:
            time.sleep(0.001)
        assert process.is_alive(), (killed / "log").read_text()
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert trained(killed) == 0
    assert weights(killed, 12) == weights(whole, 12)
    assert metrics(killed) == metrics(whole)


def test_what_this_trainer_cannot_do_is_one_sentence(recipe, tmp_path):
    for override, said in (
        ("dpo.sft_loss_weight=1", "dpo.sft_loss_weight is 1; this trainer knows 0"),
        ("start.adapter=/nowhere", "there is no /nowhere/adapter_model.safetensors"),
        ("policy.dtensor_cfg.lora_cfg.dim=8", "is of rank 4, policy.dtensor_cfg.lora_cfg.dim is 8"),
    ):
        run = recipe(override.partition("=")[0], override)
        assert trained(run) in (69, 78)
        assert said in (run / "log").read_text()


def test_a_row_that_is_no_pair_is_named(recipe):
    run = recipe("run")
    path = run / "data/train.jsonl"
    path.write_text('{"id":"r1","context":[],"completions":[{"rank":0}]}\n' + path.read_text())
    with pytest.raises(cli.BadData, match=r"train.jsonl:1: r1: no pair; chat-prefer writes"):
        train.TrainPlan(run)
    path.write_text('{"id":"r1","messages":[]}\n')
    with pytest.raises(cli.BadData, match="none of [0-9]+ rows can be trained on"):
        recipes.freeze("smol-dpo", run / "data", run / "other")
