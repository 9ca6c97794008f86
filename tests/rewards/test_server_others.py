"""Somebody else's training loops against a real reward server: TRL's trainer, which is here; NeMo Gym and verifiers where an
interpreter that has them is named, as `make test-doors` does."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from reward_server import ASKS, DECK, ROOT, prompt

pytestmark = [pytest.mark.browser, pytest.mark.slow]

GYM, VERIFIERS = os.environ.get("DECKSMITH_GYM"), os.environ.get("DECKSMITH_VERIFIERS")


def export(kind, folder, rows):
    """What env-export makes of rows."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    subprocess.run(
        [ROOT / "bin/env-export", "--kind", kind, "--out", folder],
        input=text,
        text=True,
        check=True,
        env={**os.environ, "IMAGES": "off"},
    )
    return folder


def result(done):
    """What a client of another environment printed at last."""
    _, word, said = done.stdout.rpartition("RESULT ")
    assert word, done.stderr[-3000:]
    return json.loads(said)


# TRL


def tiny():
    """A model of bytes that knows nothing, and its tokenizer."""
    import tokenizers
    import transformers

    alphabet = ["<s>", "</s>", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())]
    words = {word: at for at, word in enumerate(alphabet)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(words, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    config = transformers.LlamaConfig(
        vocab_size=len(alphabet),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)
    return transformers.LlamaForCausalLM(config), tokenizer


@pytest.mark.long(
    "tests/rewards/test_server.py::test_a_deck_has_one_reward_at_each_door_and_is_rendered_once"
)
def test_trls_grpo_trainer_takes_a_step_on_rewards_of_decks_and_leaves_masked_ones_out(
    server, monkeypatch, tmp_path
):
    torch = pytest.importorskip("torch")
    pytest.importorskip("trl")
    from datasets import Dataset
    from decksmith.train.rewards import reward_client as client
    from trl import GRPOConfig, GRPOTrainer

    monkeypatch.delenv("DECKSMITH_REWARD_URL", raising=False)
    monkeypatch.delenv("DECKSMITH_REWARD_TOKEN", raising=False)
    monkeypatch.setenv("DECKSMITH_REWARD_ADDRESS", str(server.address))
    model, tokenizer = tiny()
    seen = []

    async def watched(prompts, completions, **columns):
        """TRL's own completions are noise, so that half of them are replaced by a deck; one is a fault of ours."""
        decks = [
            DECK.format(word=f"word {n}") if n % 2 else text for n, text in enumerate(completions)
        ]
        rewards = await client.trl(prompts, decks, **columns)
        seen.append([*rewards[:-1], None])
        return seen[-1]

    rows = [
        {"prompt": "Three slides", "id": "p001", "asks": None, "request": None},
        {"prompt": "Three slides", "id": "own", **ASKS},
    ]
    made = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=watched,
        train_dataset=Dataset.from_list(rows),
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=8,
            max_steps=1,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            logging_steps=1,
            save_strategy="no",
        ),
    )
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    made.train()
    (rewards,) = seen
    assert all(0 <= each <= 1 for each in rewards[:3]) and rewards[3] is None
    log = next(each for each in made.state.log_history if "deck/masked" in each)
    assert log["deck/masked"] == 0.0 and log["deck/slides"] > 0
    changed = [
        name for name, each in model.named_parameters() if not torch.equal(before[name], each)
    ]
    assert changed


# NeMo Gym


@pytest.mark.skipif(
    not GYM, reason="no interpreter with nemo-gym 0.7.0: make test-doors GYM=/path/to/python"
)
def test_nemo_gyms_collector_agent_and_environment_server_get_rewards(server, tmp_path):
    deck, first = DECK.format(word="gym"), prompt()
    rows = [
        {"reply": deck, "row": {"label": {"id": first["id"]}}},
        {"reply": "", "row": {"label": json.dumps(first)}},
        {"reply": deck, "row": ASKS},
        {"reply": deck, "row": {"own": "nothing of ours"}},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    exported = export("nemo-gym", tmp_path / "gym", [first])
    done = subprocess.run(
        [GYM, Path(__file__).with_name("gym_client.py"), server.url, server.token, path, exported],
        capture_output=True,
        text=True,
        timeout=500,
    )
    found = result(done)
    results = found["results"]
    assert found["mode"] == "stateless"
    assert [one["mask_sample"] for one in results] == [False, False, False, True]
    assert results[2]["reward"] == server.ask("/reward", {"reply": deck, **ASKS}).json()["reward"]
    assert results[1]["reward"] < results[0]["reward"]
    assert results[3]["failure_kind"] == "decksmith:row"
    for one in results:
        assert sum(one["reward_components"].values()) == pytest.approx(one["reward"])
    assert found["aggregate"]["agent_metrics"]["coverage/masked_rollouts"] == 1


# verifiers


@pytest.mark.skipif(
    not VERIFIERS,
    reason="no interpreter with verifiers 0.4: make test-doors VERIFIERS=/path/to/python",
)
@pytest.mark.parametrize("revises", [False, True])
def test_verifiers_runs_the_exported_environment(server, tmp_path, revises):
    first = prompt()
    folder = export("verifiers", tmp_path / "env", [first, prompt(1)])
    (tmp_path / "deck.md").write_text(DECK.format(word="verifiers"))
    # It mends what it is told, a finding a turn, and is paid for its last deck alone.
    for number, text in enumerate(["no deck", "# One slide"]):
        (tmp_path / f"{number}.md").write_text(text)
    files = [tmp_path / f"{number}.md" for number in range(2)] if revises else []
    done = subprocess.run(
        [VERIFIERS, Path(__file__).with_name("verifiers_client.py"), *files, tmp_path / "deck.md"],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(folder),
            "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",  # its harness is started by uv
            "DECKSMITH_REWARD_URL": server.url,
            "DECKSMITH_REWARD_TOKEN": server.token,
        },
    )
    found = result(done)
    assert [each["id"] for each in found] == ["p001", "p002"]
    for each, row in zip(found, (first, prompt(1)), strict=True):
        said = server.ask(
            "/reward", {"reply": (tmp_path / "deck.md").read_text().strip(), **row}
        ).json()
        assert each["prompt"] == row["messages"][1]["content"]
        assert each["rewards"]["deck"]["score"] == said["reward"] and each["errors"] == []
        assert each["metrics"] == said["components"]
        assert each["turns"] == (3 if revises else 1)
