"""The trainer of this machine, on a random model of two layers whose tokens are bytes, and on the embedded one.

`python3 test_trainer.py FOLDER` writes the run of the embedded model whose first losses stand below.
"""

import fcntl
import functools
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from decksmith.core import cli, stream
from decksmith.train.training import estimates, recipes, train
from small_runs import (
    CONTEXT,
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


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of the model; made in a process of its own, so that this one can be forked from."""
    folder = tmp_path_factory.mktemp("model")
    load()
    assert finished(start(make_model, folder)) == 0
    return folder


def gold(long):
    """The 64 gold drafts as conversations, prompt and deck cut to so many characters."""
    folders = sorted((cli.ROOT / "data/gold").iterdir())
    return [
        [
            {"role": "user", "content": (folder / "PROMPT.md").read_text()[:long]},
            {"role": "assistant", "content": (folder / "deck.md").read_text()[:long]},
        ]
        for folder in folders
    ]


def gold_run(run, long, train, *overrides):
    """A run of the embedded model in fp32, on the first gold drafts; the others are for validation."""
    rows = gold(long)
    data = write_rows(run / "rows", train=rows[:train], test=rows[60:])
    config = recipes.recipe(
        "smol-lora", data=data, run=run, overrides=["policy.precision=float32", *overrides]
    )
    stream.write(run / "recipe.yaml", recipes.dump(config))
    return run


LONG = 300  # characters of a prompt and of a deck
FIRST = ("policy.train_global_batch_size=2", "sft.max_num_steps=2", "sft.val_at_start=false")


@pytest.fixture
def recipe(model, tmp_path):
    return writer(model, tmp_path)


def writer(model, folder):
    """A function that writes a run of 11 rows in steps of 2 into FOLDER/NAME and returns it."""
    data = write_rows(
        folder / "data",
        train=[conversation(n) for n in range(11)],
        test=[conversation(n) for n in range(90, 93)],
    )

    def write(name, *overrides):
        run = folder / name
        config = recipes.recipe(
            "smol-lora",
            data=data,
            run=run,
            overrides=[
                f"policy.model_name={model}",
                "policy.max_total_sequence_length=256",
                "policy.train_global_batch_size=2",
                "policy.precision=float32",
                "policy.dtensor_cfg.lora_cfg.dim=4",
                "policy.dtensor_cfg.lora_cfg.dropout=0.1",
                "sft.max_num_epochs=2",
                "sft.val_period=2",
                "checkpointing.save_period=2",
                *overrides,
            ],
        )
        stream.write(run / "recipe.yaml", recipes.dump(config))
        return run

    return write


@pytest.fixture(scope="module")
def plain(model, tmp_path_factory):
    """A run without overrides, trained to its end; it is only looked at."""
    run = writer(model, tmp_path_factory.mktemp("plain"))("run")
    assert trained(run) == 0
    return run


@pytest.mark.parametrize("kills", [2, pytest.param(4, marks=pytest.mark.long)])
def test_a_run_that_is_killed_again_and_again_ends_in_the_same_bytes_as_one_that_is_not(
    recipe, plain, kills
):
    epochs = f"sft.max_num_epochs={kills}"
    whole, killed, end = plain, recipe("killed", epochs), 5 * kills
    if kills != 2:
        whole = recipe("whole", epochs)
        assert trained(whole) == 0
    dice = random.Random(7)
    hits = 0
    for kill in range(kills):
        process, before = start(train.run, killed, log=killed / "log"), written(killed)
        while process.is_alive() and (
            written(killed) == before
            if kill % 2
            else not list((killed / "checkpoints").glob("checkpoint-*"))
        ):
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.05))
        hits += process.is_alive()
        process.kill()
        process.join()
    assert hits > 1, "the run is meant to be long enough for these kills"
    assert trained(killed) == 0
    assert steps(killed) == steps(whole) == [end - 2, end]
    for step in (end - 2, end):
        assert weights(killed, step) == weights(whole, step)
    assert metrics(killed) == metrics(whole)
    assert [line["step"] for line in metrics(whole) if "loss" in line] == list(range(1, end + 1))
    assert {path.name for path in (killed / "checkpoints").iterdir()} == {
        f"step_{end - 2}",
        f"step_{end}",
    }


def dies(run, *, before):
    """Train until the first validation, which a kill cuts off, before its loss is known or after it was written down."""
    from decksmith.train.training import trl_trainer

    trainer, name = (
        (trl_trainer.Tuner, "evaluate") if before else (trl_trainer.RecipeCallback, "on_evaluate")
    )
    setattr(trainer, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    train.run(run)


@pytest.mark.long(
    "test_a_run_that_is_killed_again_and_again_ends_in_the_same_bytes_as_one_that_is_not"
)
@pytest.mark.parametrize("period, before", [(10, True), (2, True), (10, False)])
def test_what_is_trained_is_kept_where_its_validation_is_killed(recipe, period, before):
    asked = (f"sft.val_period={period}", f"checkpointing.save_period={period}")
    whole, killed = (recipe(name, *asked, "sft.val_at_start=false") for name in ("whole", "killed"))
    assert trained(whole) == 0
    process = start(functools.partial(dies, before=before), killed, log=killed / "log")
    assert finished(process) == -signal.SIGKILL and steps(killed) == [period]
    assert trained(killed) == 0
    said = (killed / "log").read_text()
    assert f"going on after step {period}" in said and said.count("step 10 of 10, loss") == 1
    assert metrics(killed) == metrics(whole) and steps(killed) == steps(whole)
    assert weights(killed, 10) == weights(whole, 10)
    made = [run / "checkpoints/step_10/training_info.json" for run in (whole, killed)]
    assert made[0].read_bytes() == made[1].read_bytes() and b"val_loss" in made[0].read_bytes()
    assert trained(killed) == 0 and metrics(killed) == metrics(whole)


AS_WELL = [pytest.param(name, marks=pytest.mark.long) for name in ("SIGUSR1", "SIGINT")]


@pytest.mark.parametrize("name", ["SIGTERM", *AS_WELL])
def test_a_signal_saves_what_is_trained_and_the_same_command_goes_on_to_the_same_end(recipe, name):
    long = (
        "sft.max_num_epochs=5",
        "sft.val_period=25",
        "sft.val_at_start=false",
        "checkpointing.save_period=25",
    )
    run = recipe("run", *long)
    process = start(train.run, run, log=run / "log")
    while not (run / "metrics.jsonl").exists() or len(metrics(run)) < 3:
        time.sleep(0.01)
    os.kill(process.pid, getattr(signal, name))
    assert finished(process) == 75
    (step,) = steps(run)
    assert 2 <= step < 25
    assert (
        f"unfinished: {name} at step {step} of 25; saved step_{step}; run the same command again"
        in (run / "log").read_text()
    )
    assert trained(run) == 0
    if name == "SIGTERM":
        whole = recipe("whole", *long)
        assert trained(whole) == 0
        assert weights(run, 25) == weights(whole, 25) and metrics(run) == metrics(whole)


@pytest.mark.long(
    "test_a_signal_saves_what_is_trained_and_the_same_command_goes_on_to_the_same_end"
)
def test_a_run_whose_time_is_up_makes_a_step_saves_and_says_so(recipe):
    run = recipe(
        "run", "checkpointing.checkpoint_must_save_by='00:00:00:00'", "sft.val_at_start=false"
    )
    for step in (1, 2):
        assert trained(run) == 75
        assert max(steps(run)) == step
    assert (
        "unfinished: checkpointing.checkpoint_must_save_by at step 1 of 10; saved step_1"
        in (run / "log").read_text()
    )


def test_a_finished_run_has_drawn_its_loss_said_what_it_used_and_is_not_trained_again(recipe):
    run = recipe("run", "sft.max_num_epochs=1")
    assert trained(run) == 0
    said = json.loads(
        next(line for line in (run / "log").read_text().splitlines() if line.startswith("{"))
    )
    assert (said["step"], said["of"]) == (5, 5) and said["val_loss"] < said["train_loss"] + 1
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG") and (run / "loss.svg").exists()
    before = metrics(run), weights(run, 5)
    assert trained(run) == 0
    assert (metrics(run), weights(run, 5)) == before
    assert "done before: 5 of 5 steps" in (run / "log").read_text()
    # Checkpoints of another recipe are refused.
    recipe("run", "sft.max_num_epochs=1", "policy.optimizer.kwargs.lr=0.5")
    assert trained(run) == 78
    assert "step_5 was trained by another recipe or on other data" in (run / "log").read_text()


def test_a_checkpoint_has_the_layout_of_nemo_rl_and_the_best_and_the_newest_are_kept(recipe):
    run = recipe(
        "run",
        "checkpointing.keep_top_k=1",
        "checkpointing.metric_name=val:val_loss",
        "checkpointing.higher_is_better=true",
    )
    assert trained(run) == 0
    losses = {
        line["step"]: line["val_loss"]
        for line in metrics(run)
        if "val_loss" in line and line["step"]
    }
    best = max(losses, key=losses.get)
    assert best < 10
    assert steps(run) == [best, 10]
    files = sorted(
        str(path.relative_to(run / "checkpoints/step_10"))
        for path in (run / "checkpoints/step_10").rglob("*")
        if path.is_file()
    )
    assert files == [
        "config.yaml",
        "policy/optimizer/adapter_config.json",
        "policy/optimizer/adapter_model.safetensors",
        "policy/optimizer/optimizer.pt",
        "policy/optimizer/rng_state.pth",
        "policy/optimizer/scheduler.pt",
        "policy/optimizer/trainer_state.json",
        "policy/tokenizer/chat_template.jinja",
        "policy/tokenizer/tokenizer.json",
        "policy/tokenizer/tokenizer_config.json",
        "policy/weights/model/adapter_config.json",
        "policy/weights/model/adapter_model.safetensors",
        "training_info.json",
    ]
    info = json.loads((run / "checkpoints/step_10/training_info.json").read_text())
    assert {key: info[key] for key in ("epoch", "step", "total_steps", "consumed_samples")} == {
        "epoch": 1,
        "step": 5,
        "total_steps": 10,
        "consumed_samples": 20,
    }
    assert info["val:val_loss"] == pytest.approx(losses[10], abs=1e-5)
    config = json.loads(
        (run / "checkpoints/step_10/policy/weights/model/adapter_config.json").read_text()
    )
    assert config["target_modules"] == sorted(
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )


def test_the_loss_is_the_mean_over_the_assistants_tokens_whatever_the_micro_batch(recipe, model):
    found = []
    for micro in (1, 2):
        run = recipe(
            f"micro{micro}",
            "sft.max_num_steps=1",
            "data.shuffle=false",
            f"policy.train_micro_batch_size={micro}",
            "sft.val_at_start=true",
            "policy.dtensor_cfg.lora_cfg.dropout=0",
        )
        assert trained(run) == 0
        found.append(metrics(run))
    loss = CONTEXT.Value("d", 0.0)

    def expected():
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer, plain = (
            AutoTokenizer.from_pretrained(model),
            AutoModelForCausalLM.from_pretrained(model),
        )
        total = count = 0
        for number in (0, 1):
            prompt, reply = (message["content"] for message in conversation(number))
            given = tokenizer(
                f"<s>user\n{prompt}</s>\n<s>assistant\n", add_special_tokens=False
            ).input_ids
            wanted = tokenizer(f"{reply}</s>\n", add_special_tokens=False).input_ids
            labels = torch.tensor([[-100] * len(given) + wanted])
            total += float(plain(torch.tensor([given + wanted]), labels=labels).loss) * len(wanted)
            count += len(wanted)
        loss.value = total / count

    assert finished(start(expected)) == 0
    for lines in found:
        assert lines[1]["loss"] == pytest.approx(
            loss.value, abs=1e-4
        )  # lora_B is zero in the first step


# What the loop that was here before TRL trained, at commit 8f2ae42 with torch 2.13.0: (loss, gradient norm) of each step,
# and the loss of the validations. On the random model, as RUN/metrics.jsonl of the runs of the test has them:
LOOP = {
    "dropout": [
        (5.555009, 0.79),
        (5.543186, 0.6652),
        (5.555742, 0.8165),
        (5.518797, 0.7945),
        (5.526431, 0.8101),
        (5.510463, 0.8883),
        (5.500146, 0.8854),
        (5.494141, 1.0998),
        (5.470981, 0.8558),
        (5.487096, 0.9597),
    ],
    "micro batches of two": [
        (5.555009, 0.7828),
        (5.543173, 0.6476),
        (5.55553, 0.7982),
        (5.518329, 0.793),
        (5.525439, 0.8202),
        (5.510371, 0.8686),
        (5.499619, 0.8721),
        (5.492667, 1.0793),
        (5.466693, 0.8483),
        (5.485675, 0.9599),
    ],
}
LOOP_HELD = {
    "dropout": [5.537738, 5.53156, 5.508637, 5.48756, 5.475632, 5.471061],
    "micro batches of two": [5.537738, 5.53132, 5.507877, 5.486328, 5.47423, 5.469618],
}
# On the embedded model: `PYTHONPATH=lib .venv/bin/python3 tests/training/test_trainer.py RUN` here, then, in a checkout of that
# commit, `bin/sft-train --run RUN`.
LOOP_SMOL = [(3.111413, 0.9438), (3.58913, 1.0296)]
LOOP_SMOL_HELD = [3.220296]


def same_losses(run, steps, held):
    """The losses and norms of a run are those of the loop, up to rounding."""
    lines = metrics(run)
    found = [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line]
    assert len(found) == len(steps)
    for (loss, norm), (wanted, wanted_norm) in zip(found, steps, strict=True):
        assert loss == pytest.approx(wanted, abs=2e-5)
        assert norm == pytest.approx(wanted_norm, abs=2e-4)
    found = [line["val_loss"] for line in lines if "val_loss" in line]
    assert found == pytest.approx(held, abs=2e-5)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("dropout", []),
        pytest.param(
            "micro batches of two",
            ["policy.train_micro_batch_size=2", "policy.dtensor_cfg.lora_cfg.dropout=0"],
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("dropout", ["policy.dtensor_cfg.activation_checkpointing=true"]),
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_losses_are_those_of_the_loop_that_was_here_before(recipe, plain, name, overrides):
    run = plain
    if overrides:
        run = recipe("run", *overrides)
        assert trained(run) == 0
    same_losses(run, LOOP[name], LOOP_HELD[name])


@pytest.mark.skipif("DECKSMITH_RL" not in os.environ, reason="make test-rl asks for it")
def test_the_losses_of_the_embedded_model_are_those_of_the_loop_that_was_here_before(
    model, tmp_path
):
    run = gold_run(tmp_path / "run", LONG, 60, *FIRST)
    assert finished(start(train.run, run, log=run / "log")) == 0
    same_losses(run, LOOP_SMOL, LOOP_SMOL_HELD)


def nemo_rl(messages, tokenizer):
    """The tokens and the mask of a conversation by NeMo-RL's rule (get_formatted_message_log, add_generation_prompt on),
    with transformers' own tokenizer and template: what a message adds to the text is tokenized alone."""
    ids, mask, before = [], [], ""
    for index, message in enumerate(messages):
        text = tokenizer.apply_chat_template(
            messages[: index + 1],
            add_generation_prompt=message["role"] == "user",
            tokenize=False,
            enable_thinking=False,
        )
        added = tokenizer(text[len(os.path.commonprefix([before, text])) :]).input_ids
        ids, before = ids + added, text
        mask += [message["role"] == "assistant"] * len(added)
    return ids, mask


@pytest.mark.parametrize("drafts", [8, pytest.param(64, marks=pytest.mark.long)])
def test_trl_trains_the_tokens_that_nemo_rl_would_train(model, tmp_path, drafts):
    run = gold_run(tmp_path / "run", 100_000, drafts, "sft.max_num_epochs=1")

    def compare():
        import transformers
        from decksmith.train.training import trl_trainer

        plan = train.TrainPlan(run)
        callback = trl_trainer.RecipeCallback(plan, train.StopSignal(), 0)
        tuner = trl_trainer.tuner_of(plan, callback, measures=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(plan.base)
        talks, seen = gold(100_000), 0
        for at, batch in zip(callback.order, tuner.get_train_dataloader(), strict=True):
            ids, mask = nemo_rl(talks[at], tokenizer)
            assert batch["input_ids"].tolist() == [ids]
            assert (batch["labels"] != train.UNTRAINED).tolist() == [mask]
            trained_ids = [token for token, trained in zip(ids, mask, strict=True) if trained]
            assert batch["labels"][batch["labels"] != train.UNTRAINED].tolist() == trained_ids
            seen += 1
        assert seen == len(set(callback.order)) == drafts

    assert finished(start(compare, log=run / "log")) == 0, (run / "log").read_text()


def test_the_loss_of_a_cpu_is_that_of_trl_on_every_other_machine(recipe):
    run = recipe("run", "policy.train_micro_batch_size=2", "data.shuffle=false")

    def compare():
        import trl
        from decksmith.train.training import trl_trainer

        plan = train.TrainPlan(run)
        tuner = trl_trainer.tuner_of(
            plan, trl_trainer.RecipeCallback(plan, train.StopSignal(), 0), measures=True
        )
        for batch in tuner.get_train_dataloader():
            tuner.model.train()
            ours = tuner.compute_loss(tuner.model, dict(batch), num_items_in_batch=50)
            theirs = trl.SFTTrainer.compute_loss(
                tuner, tuner.model, dict(batch), num_items_in_batch=50
            )
            for loss in ours, theirs:
                assert loss.requires_grad
            assert float(ours) == pytest.approx(float(theirs), rel=0.02)  # dropout is on
            tuner.model.eval()
            ours = tuner.compute_loss(tuner.model, dict(batch))
            theirs = trl.SFTTrainer.compute_loss(
                tuner, tuner.model, dict(batch), num_items_in_batch=tuner.held_tokens
            )
            assert float(ours) == pytest.approx(float(theirs), rel=1e-6)

    assert finished(start(compare, log=run / "log")) == 0, (run / "log").read_text()


def test_the_loss_of_a_mixture_of_experts_is_that_of_its_tokens_alone(recipe, model, tmp_path):
    mixture = tmp_path / "mixture"
    shutil.copytree(model, mixture)
    lora = "policy.dtensor_cfg.lora_cfg"
    run = recipe("run", f"policy.model_name={mixture}", f"{lora}.target_modules=[q_proj]")

    def compare():
        import torch
        from decksmith.train.training import trl_trainer
        from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

        config = Qwen3MoeConfig(
            vocab_size=258,
            hidden_size=32,
            intermediate_size=48,
            moe_intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            num_experts=4,
            num_experts_per_tok=2,
            output_router_logits=True,
        )
        Qwen3MoeForCausalLM(config).save_pretrained(mixture)
        plan = train.TrainPlan(run)
        callback = trl_trainer.RecipeCallback(plan, train.StopSignal(), 0)
        tuner = trl_trainer.tuner_of(plan, callback, measures=True)
        tuner.model.eval()
        for batch in tuner.get_eval_dataloader():
            with torch.no_grad():
                loss = tuner.compute_loss(tuner.model, dict(batch)) * tuner.held_tokens
                logits = tuner.model(input_ids=batch["input_ids"]).logits[:, :-1]
            wanted = batch["labels"][:, 1:].flatten()
            plain = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted, reduction="sum")
            assert float(loss) == pytest.approx(float(plain), rel=1e-5)

    assert finished(start(compare, log=run / "log")) == 0, (run / "log").read_text()


@pytest.mark.long(
    "test_a_checkpoint_has_the_layout_of_nemo_rl_and_the_best_and_the_newest_are_kept"
)
def test_without_a_period_it_is_validated_at_start_and_end_as_the_recipe_says(recipe):
    run = recipe("run", "sft.val_period=0", "checkpointing.save_period=5")
    assert trained(run) == 0
    assert [line["step"] for line in metrics(run) if "val_loss" in line] == [0, 10]
    assert steps(run) == [5, 10]


def test_rows_that_are_too_long_are_named_and_train_nothing(recipe):
    run = recipe(
        "run",
        "sft.max_num_epochs=1",
        "policy.max_total_sequence_length=8",
        "sft.val_period=0",
        "sft.val_at_end=false",
    )
    assert trained(run) == 0
    assert re.search(r"11 rows of \S+/train.jsonl train nothing", (run / "log").read_text())
    assert {line["loss"] for line in metrics(run)} == {None}


def test_a_gradient_that_is_not_finite_ends_the_run_before_it_is_saved(recipe):
    run = recipe("run", "policy.optimizer.kwargs.lr=1e30", "checkpointing.save_period=1")
    assert trained(run) == 65
    log = (run / "log").read_text()
    assert re.search(r"step (\d+): the gradient is (nan|inf); a lower policy.optimizer", log)
    assert max(steps(run)) < int(re.search(r"step (\d+): the gradient", log)[1])


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["policy.train_micro_batch_size=3", "policy.train_global_batch_size=4"],
            "policy.train_global_batch_size is 4, no multiple of policy.train_micro_batch_size, 3",
        ),
        (
            ["policy.dtensor_cfg.lora_cfg.target_modules=[lm_head]"],
            "lora_cfg adapts lm_head, and TRL trains no adapter there; leave it out: exclude_modules: ['*lm_head*']",
        ),
        (["policy.optimizer.name=os.system"], "os.system is no class of torch.optim"),
        (
            ["checkpointing.checkpoint_must_save_by=soon"],
            "checkpointing.checkpoint_must_save_by is 'soon'; write DD:HH:MM:SS",
        ),
    ],
)
def test_a_recipe_that_cannot_be_trained_here_is_refused_at_its_key(recipe, overrides, said):
    run = recipe("run", *overrides)
    assert trained(run) == 78
    assert said in (run / "log").read_text()


def test_a_logger_that_is_not_installed_is_named_with_what_mends_it(recipe):
    name = next(name for name in train.LOGGERS if not importlib.util.find_spec(name))
    run = recipe("run", f"logger.{name}_enabled=true")
    assert trained(run) == 69
    assert (
        f"logger.{name}_enabled is true, and {name} is not installed; run: .venv/bin/uv pip install {name}, "
        f"or set logger.{name}_enabled=false" in (run / "log").read_text()
    )


def test_losses_go_to_tensorboard_where_the_recipe_says_so(recipe):
    pytest.importorskip("tensorboard")
    run = recipe("run", "sft.max_num_epochs=1", "logger.tensorboard_enabled=true")
    assert trained(run) == 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "logs/tensorboard")).Reload()
    found = [(event.step, round(event.value, 5)) for event in events.Scalars("train/loss")]
    assert found == [
        (line["step"], round(line["loss"], 5)) for line in metrics(run) if "loss" in line
    ]


class Hub(BaseHTTPRequestHandler):
    """Stands where the Hub stands, and writes down what it is asked."""

    asked = []

    def do_GET(self):
        self.asked.append(self.path)
        self.send_error(404)

    do_HEAD = do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.mark.long(
    "test_a_finished_run_has_drawn_its_loss_said_what_it_used_and_is_not_trained_again"
)
def test_a_training_shows_one_live_line_with_the_losses_asks_the_hub_for_nothing_and_tells_it_nothing(
    recipe,
):
    run = recipe("run", "sft.max_num_epochs=1")
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    off = ("CI", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "HTTP_PROXY", "http_proxy")
    kept = {name: value for name, value in os.environ.items() if name not in off}
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever).start()
        address = f"http://127.0.0.1:{hub.server_port}"
        process = subprocess.Popen(
            [cli.ROOT / "bin/sft-train", "--run", run],
            env=kept | {"HF_ENDPOINT": address, "IMAGES": "off"},
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the other side is closed
            while part := os.read(ours, 4096):
                shown += part
        os.close(ours)
        said, _ = process.communicate()
        hub.shutdown()
    assert process.returncode == 0, shown
    assert Hub.asked == []
    said = json.loads(said)
    assert said["step"] == 5
    live = shown.decode().split("\r")
    assert [one for one in live if "step 4 of 5, loss " in one and "\n" not in one]
    assert f"step 5: val loss {said['val_loss']:.4f}\x1b[K" in live
    assert "sft-train: step" not in shown.decode()


def test_two_trainers_do_not_share_a_run(recipe):
    run = recipe("run")
    with open(run / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(cli.TryAgain, match="another process trains"):
            train.run(run)


LINEAR = {
    "model.layers.0.mixer.in_proj",
    "model.layers.0.mixer.out_proj",
    "model.layers.1.mixer.q_proj",
    "model.layers.1.mixer.o_proj",
    "lm_head",
}


@pytest.mark.parametrize(
    ("lora", "chosen"),
    [
        ({"target_modules": ["q_proj", "o_proj"]}, ["o_proj", "q_proj"]),
        ({"target_modules": ["*.1.*"]}, ["o_proj", "q_proj"]),
        (
            {"target_modules": [], "exclude_modules": ["*out_proj*", "*lm_head*"]},
            ["in_proj", "o_proj", "q_proj"],
        ),
        ({"match_all_linear": True}, ["in_proj", "lm_head", "o_proj", "out_proj", "q_proj"]),
    ],
)
def test_lora_goes_where_automodel_puts_it(lora, chosen):
    assert estimates.targets(LINEAR, lora) == chosen


def test_whole_names_are_given_where_last_parts_would_match_more():
    assert estimates.targets(
        LINEAR | {"model.layers.2.mixer.q_proj"}, {"target_modules": ["*.1.mixer.*"]}
    ) == ["model.layers.1.mixer.o_proj", "model.layers.1.mixer.q_proj"]


@pytest.mark.parametrize(
    ("lora", "said"),
    [
        ({"target_modules": ["q_proj"], "exclude_modules": ["*x*"]}, "exclude each other"),
        ({"target_modules": ["q_porj"]}, "matches 'q_porj'"),
        ({"exclude_modules": ["*"]}, "no linear module"),
    ],
)
def test_patterns_that_cannot_be_meant_are_refused(lora, said):
    with pytest.raises(cli.BadConfig, match=said):
        estimates.targets(LINEAR, lora)


if __name__ == "__main__":
    gold_run(Path(sys.argv[1]), LONG, 60, *FIRST)
