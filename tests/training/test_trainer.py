"""The peft trainer, on a random model of two layers whose tokens are bytes."""

import json
import multiprocessing
import os
import random
import re
import signal
import sys
import time

import pytest
from decksmith.core import cli, stream
from decksmith.training import recipes, trainer

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
WORDS = ["kettle", "harbour", "lamp", "amber", "nine", "slide", "theme", "moth"]
CONTEXT = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of the model; made in a process of its own, so that this one can be forked from."""
    folder = tmp_path_factory.mktemp("model")
    import peft  # noqa: F401  # once, for all the forks
    import torch  # noqa: F401
    import transformers  # noqa: F401
    from decksmith.results import plots
    from matplotlib import pyplot  # noqa: F401

    plots._fonts()
    assert finished(start(make_model, folder)) == 0
    return folder


def make_model(folder):
    import tokenizers
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    alphabet = ["<s>", "</s>", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())]
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(alphabet),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            bos_token_id=0,
            eos_token_id=1,
        )
    ).save_pretrained(folder)
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE({word: at for at, word in enumerate(alphabet)}, [])
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<s>", "</s>"])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def conversation(number):
    dice = random.Random(number)

    def text(n):
        return " ".join(dice.choice(WORDS) for _ in range(n))

    return [{"role": "user", "content": text(3)}, {"role": "assistant", "content": text(6)}]


@pytest.fixture
def recipe(model, tmp_path):
    """A function that writes a run of 11 rows in steps of 2 into tmp_path/NAME and returns the folder."""
    data = tmp_path / "data"
    data.mkdir()
    for side, numbers in (("train", range(11)), ("test", range(90, 93))):
        (data / f"{side}.jsonl").write_text(
            "".join(
                json.dumps({"id": f"r{n}", "messages": conversation(n)}) + "\n" for n in numbers
            )
        )

    def write(name, *overrides):
        run = tmp_path / name
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


def start(function, *arguments, log=None):
    """`function` in a fork; its exit status is the return value, or that of the cli.Stop it raised."""

    def go():
        import torch

        torch.set_num_threads(1)
        if log:
            sys.stdout = sys.stderr = open(log, "a", buffering=1)
        try:
            status = function(*arguments)
        except cli.Stop as stop:
            cli.say(str(stop))
            status = stop.status
        os._exit(status or 0)

    process = CONTEXT.Process(target=go)
    process.start()
    return process


def finished(process):
    process.join(120)
    return process.exitcode


def trained(run, log=None):
    return finished(start(trainer.run, run, log=log or run / "log"))


def steps(run):
    return sorted(int(path.name[5:]) for path in (run / "checkpoints").glob("step_*"))


def weights(run, step):
    return (
        run / f"checkpoints/step_{step}" / trainer.WEIGHTS / "adapter_model.safetensors"
    ).read_bytes()


def written(run):
    path = run / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_a_run_that_is_killed_again_and_again_ends_in_the_same_bytes_as_one_that_is_not(recipe):
    whole, killed = (
        recipe("whole", "sft.max_num_epochs=4"),
        recipe("killed", "sft.max_num_epochs=4"),
    )
    assert trained(whole) == 0
    dice = random.Random(7)
    for kill in range(6):
        process, before = start(trainer.run, killed, log=killed / "log"), written(killed)
        while process.is_alive() and (
            written(killed) == before
            if kill % 2
            else not list((killed / "checkpoints").glob("tmp_step_*"))
        ):
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.05))
        assert process.is_alive(), "the run is meant to be long enough for these kills"
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert trained(killed) == 0
    assert steps(killed) == steps(whole) == [18, 20]
    for step in (18, 20):
        assert weights(killed, step) == weights(whole, step)
    assert metrics(killed) == metrics(whole)
    assert [line["step"] for line in metrics(whole) if "loss" in line] == list(range(1, 21))
    assert not list((killed / "checkpoints").glob("tmp_*"))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_a_signal_saves_what_is_trained_and_the_same_command_goes_on_to_the_same_end(recipe, name):
    long = (
        "sft.max_num_epochs=12",
        "sft.val_period=60",
        "sft.val_at_start=false",
        "checkpointing.save_period=60",
    )
    run = recipe("run", *long)
    process = start(trainer.run, run, log=run / "log")
    while not (run / "metrics.jsonl").exists() or len(metrics(run)) < 3:
        time.sleep(0.01)
    os.kill(process.pid, getattr(signal, name))
    assert finished(process) == 75
    (step,) = steps(run)
    assert 2 <= step < 60
    assert (
        f"unfinished: {name} at step {step} of 60; saved step_{step}; run the same command again"
        in (run / "log").read_text()
    )
    assert trained(run) == 0
    if name == "SIGTERM":
        whole = recipe("whole", *long)
        assert trained(whole) == 0
        assert weights(run, 60) == weights(whole, 60) and metrics(run) == metrics(whole)


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


def test_a_finished_run_is_not_trained_again(recipe):
    run = recipe("run", "sft.max_num_epochs=1")
    assert trained(run) == 0
    before = metrics(run), weights(run, 5)
    assert trained(run) == 0
    assert (metrics(run), weights(run, 5)) == before
    assert "done before: 5 of 5 steps" in (run / "log").read_text()


def test_checkpoints_of_another_recipe_are_refused(recipe):
    run = recipe("run", "sft.max_num_epochs=1")
    assert trained(run) == 0
    recipe("run", "sft.max_num_epochs=1", "policy.optimizer.kwargs.lr=0.5")
    assert trained(run) == 78
    assert "step_5 was trained by another recipe or on other data" in (run / "log").read_text()


def test_a_checkpoint_has_the_layout_of_nemo_rl_and_the_best_and_the_newest_are_kept(recipe):
    run = recipe(
        "run",
        "sft.max_num_epochs=4",
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
    assert best < 20
    assert steps(run) == [best, 20]
    files = sorted(
        str(path.relative_to(run / "checkpoints/step_20"))
        for path in (run / "checkpoints/step_20").rglob("*")
        if path.is_file()
    )
    assert files == [
        "config.yaml",
        "policy/optimizer/state.pt",
        "policy/tokenizer/chat_template.jinja",
        "policy/tokenizer/tokenizer.json",
        "policy/tokenizer/tokenizer_config.json",
        "policy/weights/model/adapter_config.json",
        "policy/weights/model/adapter_model.safetensors",
        "training_info.json",
    ]
    info = json.loads((run / "checkpoints/step_20/training_info.json").read_text())
    assert {key: info[key] for key in ("epoch", "step", "total_steps", "consumed_samples")} == {
        "epoch": 3,
        "step": 5,
        "total_steps": 20,
        "consumed_samples": 40,
    }
    assert info["val:val_loss"] == pytest.approx(losses[20], abs=1e-5)
    config = json.loads(
        (run / "checkpoints/step_20/policy/weights/model/adapter_config.json").read_text()
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
        assert lines[1]["tokens"] == found[0][1]["tokens"]


def test_rows_that_are_too_long_are_named_and_train_nothing(recipe):
    run = recipe(
        "run",
        "sft.max_num_epochs=1",
        "policy.max_total_sequence_length=8",
        "sft.val_period=0",
        "sft.val_at_end=false",
    )
    assert trained(run) == 0
    assert re.search(r"11 of 11 rows of \S+/train.jsonl train nothing", (run / "log").read_text())
    assert {line["loss"] for line in metrics(run)} == {None}


def test_a_run_draws_its_loss_and_says_what_it_used(recipe):
    run = recipe("run", "sft.max_num_epochs=1")
    assert trained(run) == 0
    said = json.loads(
        next(line for line in (run / "log").read_text().splitlines() if line.startswith("{"))
    )
    assert (said["step"], said["of"]) == (5, 5) and said["val_loss"] < said["train_loss"] + 1
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG") and (run / "loss.svg").exists()


def test_two_trainers_do_not_share_a_run(recipe):
    import fcntl

    run = recipe("run")
    with open(run / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(cli.TryAgain, match="another process trains"):
            trainer.run(run)


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
    assert trainer.targets(LINEAR, lora) == chosen


def test_whole_names_are_given_where_last_parts_would_match_more():
    assert trainer.targets(
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
        trainer.targets(LINEAR, lora)
