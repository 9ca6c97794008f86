"""GRPO on this machine: a random model of two layers whose tokens are bytes, its SFT adapter, and rollouts that are stood in for
by a text of the policy's prompts: the engine serves no such model."""

import gc
import json
import os
import signal
import time

import pytest
from decksmith.core import cli, stream
from decksmith.train.training import adapters, recipes, train
from small_runs import (
    conversation,
    finished,
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
    "policy.precision=float32",
    "policy.dtensor_cfg.lora_cfg.dim=4",
)


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    """What trains, once for all the forks, which walk none of it; 3 s of CPU, spent here alone."""
    from decksmith.train.training import grpo_trainer  # noqa: F401

    gc.freeze()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
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


def deck(name, prompt, k, seed):
    """A deck record: the rewards of a prompt's answers differ, those of a validation rise, and the share of checks
    goes against them."""
    value = {"val_0": 0.2, "val_2": 0.6, "val_4": 0.7}.get(name, (seed + 7 * k) % 10 / 10)
    return {
        "id": f"{prompt['id']}~{k}",
        "gen": {
            "text": f"deck {k} of {seed}",
            "finish_reason": "length" if k else "stop",
            "usage": {"completion_tokens": 12},
            "sample": {"of": prompt["id"], "k": k},
        },
        "reward": {"reward": None if value == 0 else value, "masked": value == 0, "components": {}},
        "score": {"checks": round(1 - value, 2)},
    }


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """Rollouts that write a line in their folder for each set that is asked for."""

    def ask(self, name, peft, prompts, samples, seed):
        assert (peft / "adapter_model.safetensors").is_file()
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "asked", "a") as file:
            file.write(name + "\n")
        return [deck(name, prompt, k, seed) for prompt in prompts for k in range(samples)]

    from decksmith.train.training import grpo_trainer

    monkeypatch.setattr(grpo_trainer.Rollouts, "ask", ask)


@pytest.fixture
def recipe(model, sft, tmp_path):
    """A function that writes a run of four steps of two prompts into tmp_path/NAME and returns the folder."""
    data = tmp_path / "data"
    data.mkdir()
    for side, numbers in (("train", range(8)), ("test", range(90, 92))):
        rows = [
            {"id": f"r{n}", "messages": conversation(n)[:1], "asks": {"slides": 3}, "checklist": []}
            for n in numbers
        ]
        (data / f"{side}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(name, *overrides):
        run = tmp_path / name
        config = recipes.recipe(
            "smol-grpo",
            data=recipes.freeze("smol-grpo", data, run / "data"),
            run=run,
            overrides=[
                f"policy.model_name={model}",
                f"start.adapter={sft}",
                "policy.max_total_sequence_length=256",
                "policy.generation.max_new_tokens=16",
                "grpo.val_period=2",
                *SMALL,
                *overrides,
            ],
        )
        stream.write(run / "recipe.yaml", recipes.dump(config))
        return run

    return write


def asked(run):
    return (run / "rollouts/asked").read_text().split()


def test_rewards_train_the_adapter_and_the_curve_has_every_measure(recipe, sft):
    run = recipe("run")
    assert trained(run) == 0, (run / "log").read_text()
    assert steps(run)[-1] == 4
    assert asked(run) == ["val_0", "step_1", "step_2", "val_2", "step_3", "step_4", "val_4"]
    lines = metrics(run)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert lines[0]["kl"] == 0 < lines[-1]["kl"]  # the reference is what the adapter was
    assert all(0 <= line["reward"] < 1 and line["tokens"] > 3 for line in lines)
    assert (sft / "adapter_model.safetensors").read_bytes() != weights(run, 4)
    curve = [json.loads(line) for line in (run / "curve/curve.jsonl").read_text().splitlines()]
    assert [line["step"] for line in curve] == [0, 2, 4]
    wanted = {"reward", "checks", "length", "diversity", "adversarial"}
    assert all(wanted <= line["metrics"].keys() for line in curve)
    assert "kl" in curve[-1]["metrics"] and (run / "curve/curve.png").is_file()
    assert adapters.export(run)["step"] == 4


@pytest.mark.skipif("DECKSMITH_RL" not in os.environ, reason="make test-rl asks for it")
def test_a_run_that_is_killed_ends_in_the_same_bytes_as_one_that_is_not(recipe):
    whole, killed = recipe("whole"), recipe("killed")
    assert trained(whole) == 0
    process = start(train.run, killed, log=killed / "log")
    while process.is_alive() and written(killed) < 300:
        time.sleep(0.001)
    assert process.is_alive(), (killed / "log").read_text()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert trained(killed) == 0
    assert weights(killed, 4) == weights(whole, 4)
    assert metrics(killed) == metrics(whole)
    assert (killed / "curve/curve.jsonl").read_bytes() == (whole / "curve/curve.jsonl").read_bytes()


def test_a_prompt_that_nothing_can_be_measured_by_is_named(recipe):
    run = recipe("run")
    path = run / "data/train.jsonl"
    row = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps({**row, "label": {"id": "r0"}}) + "\n")
    with pytest.raises(cli.BadData, match="train.jsonl:1: r0: a prompt needs asks or a checklist"):
        train.TrainPlan(run)
