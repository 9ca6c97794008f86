import json
import sys
from pathlib import Path

import pytest
import yaml
from decksmith.core import cli
from decksmith.train.training import recipes
from omegaconf import OmegaConf

THINKER = (
    Path(__file__).parents[1] / "fixtures" / "sft" / "thinker"
)  # one token a byte, and a template that thinks
TALK = [
    {"role": "system", "content": "You write."},
    {"role": "user", "content": "A deck, ä"},
    {"role": "assistant", "content": "# Deck", "reasoning_content": "Let me think."},
]
RECIPE = {
    "policy": {
        "max_total_sequence_length": 400,
        "tokenizer": {"chat_template_kwargs": {"enable_thinking": True}},
    },
    "data": {"add_bos": False, "add_eos": True, "add_generation_prompt": True},
}


def trained(example, template):
    return template.decode(
        [token for token, mask in zip(example["ids"], example["mask"], strict=True) if mask]
    )


def with_data(**more):
    return {**RECIPE, "data": {**RECIPE["data"], **more}}


@pytest.fixture
def chat(tmp_path):
    """A folder of 35 rows for training and 4 for validation."""
    for side, first, last in (("train", 0, 35), ("test", 35, 39)):
        rows = [
            {
                "id": f"s{k}",
                "messages": [*TALK[:1], {"role": "user", "content": f"Deck {k}"}, TALK[2]],
                "seed": {"n": k},
            }
            for k in range(first, last)
        ]
        (tmp_path / "chat").mkdir(exist_ok=True)
        (tmp_path / "chat" / f"{side}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
    return tmp_path / "chat"


@pytest.mark.slow
def test_a_conversation_is_rendered_as_transformers_renders_it():
    transformers = pytest.importorskip("transformers")
    theirs, ours = (
        transformers.AutoTokenizer.from_pretrained(THINKER),
        recipes.ChatTemplate(THINKER),
    )
    for messages, prompt, kwargs in (
        (TALK, False, {}),
        (TALK[:2], True, {}),
        (TALK[:2], True, {"enable_thinking": False}),
        (TALK[1:2], True, {}),
    ):
        text = theirs.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=prompt, **kwargs
        )
        assert ours.render(messages, add_generation_prompt=prompt, **kwargs) == text
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert (ours.eos, ours.eos_id) == (theirs.eos_token, theirs.eos_token_id)


def test_the_prompt_belongs_to_the_user_and_the_reply_alone_is_trained():
    template = recipes.ChatTemplate(THINKER)
    assert [(role, text) for role, text, _ in recipes.chunks(TALK, template, RECIPE)] == [
        ("system", "<|im_start|>system\nYou write.<|im_end|>\n"),
        ("user", "<|im_start|>user\nA deck, ä<|im_end|>\n<|im_start|>assistant\n<think>\n"),
        ("assistant", "Let me think.\n</think>\n# Deck<|im_end|>\n"),
    ]
    example = recipes.example(TALK, template, RECIPE)
    assert trained(example, template) == "Let me think.\n</think>\n# Deck<|im_end|>\n"
    assert not example["masked_out"] and example["length"] == len(example["ids"]) == len(
        example["mask"]
    )


def test_without_the_generation_prompt_the_header_is_trained_too():
    template = recipes.ChatTemplate(THINKER)
    example = recipes.example(TALK, template, with_data(add_generation_prompt=False))
    assert (
        trained(example, template)
        == "<|im_start|>assistant\n<think>\nLet me think.\n</think>\n# Deck<|im_end|>\n"
    )


def test_a_row_without_thoughts_is_cut_where_no_server_cuts():
    template = recipes.ChatTemplate(THINKER)
    row = recipes.example([*TALK[:2], {"role": "assistant", "content": "# Deck"}], template, RECIPE)
    assert trained(row, template) == "</think># Deck<|im_end|>\n"


def test_a_bos_is_put_before_the_first_message_and_an_eos_only_where_none_is():
    template = recipes.ChatTemplate(THINKER)
    first = recipes.chunks(TALK, template, with_data(add_bos=True))[0][1]
    assert first == "<s><|im_start|>system\nYou write.<|im_end|>\n"
    template.eos = "</s>"
    assert recipes.chunks(TALK, template, RECIPE)[-1][1].endswith("# Deck<|im_end|>\n</s>")
    assert recipes.chunks(TALK, template, with_data(add_eos=False))[-1][1].endswith(
        "# Deck<|im_end|>\n"
    )


def test_a_row_as_long_as_the_limit_trains_nothing():
    template = recipes.ChatTemplate(THINKER)
    length = recipes.example(TALK, template, RECIPE)["length"]
    limited = {**RECIPE, "policy": {**RECIPE["policy"], "max_total_sequence_length": length}}
    row = recipes.example(TALK, template, limited)
    assert (
        row["masked_out"]
        and sum(row["mask"]) == 0
        and len(row["ids"]) == 3 * recipes.PARTED
        and row["length"] == length
    )
    limited["policy"]["max_total_sequence_length"] = length + 1
    assert not recipes.example(TALK, template, limited)["masked_out"]


def test_only_the_last_turn_is_trained_when_the_recipe_says_so():
    template = recipes.ChatTemplate(THINKER)
    talk = [
        *TALK,
        {"role": "user", "content": "Shorter."},
        {"role": "assistant", "content": "# D", "reasoning_content": "Cut."},
    ]
    both = trained(recipes.example(talk, template, RECIPE), template)
    assert both == "Let me think.\n</think>\n# Deck<|im_end|>\nCut.\n</think>\n# D<|im_end|>\n"
    assert (
        trained(
            recipes.example(talk, template, {**RECIPE, "sft": {"only_unmask_final": True}}),
            template,
        )
        == "Cut.\n</think>\n# D<|im_end|>\n"
    )


def test_a_template_may_come_from_the_configuration_a_file_or_the_recipe(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((THINKER / "tokenizer.json").read_bytes())
    with pytest.raises(cli.Missing, match="no chat template"):
        recipes.ChatTemplate(tmp_path)
    listed = [
        {"name": "tool_use", "template": "no"},
        {"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}"},
    ]
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": listed, "bos_token": {"content": "<s>"}})
    )
    assert recipes.ChatTemplate(tmp_path).render(TALK) == "<s>You write."
    (tmp_path / "own.jinja").write_text(
        "{% generation %}{{ messages | length }}{% endgeneration %}"
    )
    own = {"policy": {"tokenizer": {"chat_template": str(tmp_path / "own.jinja")}}}
    assert recipes.template(own, tmp_path).render(TALK) == "3"
    assert recipes.ChatTemplate(tmp_path, "{{ messages[1].role }}").render(TALK) == "user"


def test_a_template_cannot_reach_the_machine_or_the_date(tmp_path):
    with pytest.raises(cli.BadData, match="refuses the messages"):
        recipes.ChatTemplate(THINKER, "{{ messages.__class__.__mro__ }}").render(TALK)
    with pytest.raises(cli.BadData, match="no two runs"):
        recipes.ChatTemplate(THINKER, "{{ strftime_now('%Y') }}").render(TALK)
    with pytest.raises(cli.BadConfig, match="line 1"):
        recipes.ChatTemplate(THINKER, "{% if %}")


def test_parents_are_merged_in_order_and_a_section_can_replace_theirs(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "a.yaml").write_text(
        'sft: {steps: 1, seed: 1}\ndata: {train: {name: squad, split: train}}\nwide: "${mul:${sft.steps},3}"\n'
        "env: {tests: {name: squad, split: train}}\n"
    )
    (tmp_path / "b.yaml").write_text("sft: {seed: 2}\n")
    (tmp_path / "own.yaml").write_text(
        "defaults: [base/a.yaml, b.yaml, /not/here.yaml]\nsft: {steps: 5}\ndata: {_override_: true, train: {name: mine}}\n"
        "env: {tests: {_override_: true, name: mine}}\n"
        'gap: "???"\n'
    )
    assert recipes.load(tmp_path / "own.yaml") == {
        "sft": {"steps": 5, "seed": 2},
        "data": {"train": {"name": "mine"}},
        # Below the first level NeMo-RL takes the mark for a key.
        "env": {"tests": {"_override_": True, "name": "mine", "split": "train"}},
        "wide": 15,
        "gap": "???",
        "absent": ["/not/here.yaml"],
    }


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: [", "own.yaml: while parsing"),
        ("- 1", "not a mapping"),
        ("a: ${b}", "'b' not found"),
        ("defaults: own.yaml", "inherits from itself"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_named(tmp_path, text, message):
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(cli.BadConfig, match=message):
        recipes.load(tmp_path / "own.yaml")


def test_steps_are_epochs_times_whole_batches_and_everything_follows_them(chat, tmp_path):
    made = recipes.recipe("nemotron-nano-lora", data=chat, run=tmp_path / "run")
    assert (
        made["sft"]["max_num_epochs"],
        made["sft"]["max_num_steps"],
        made["sft"]["val_period"],
        made["checkpointing"]["save_period"],
    ) == (2, 4, 2, 2)
    assert made["checkpointing"]["checkpoint_dir"] == str(tmp_path / "run" / "checkpoints")
    assert made["data"]["_override_"] is True
    assert made["data"]["validation"] == {
        "dataset_name": "openai_format",
        "data_path": str(chat / "test.jsonl"),
    }
    assert made["policy"]["scheduler"][1]["kwargs"]["T_max"] + recipes.warmup(made) == 4
    assert "???" not in recipes.dump(made)
    more = recipes.recipe(
        "nemotron-nano-lora",
        data=chat,
        run=tmp_path / "run",
        overrides=["sft.max_num_epochs=10", "+sft.val_period=5"],
    )
    assert (
        more["sft"]["max_num_steps"],
        more["sft"]["val_period"],
        more["checkpointing"]["save_period"],
        recipes.warmup(more),
    ) == (20, 5, 5, 5)
    few = recipes.recipe(
        "smol-lora",
        data=chat,
        run=tmp_path / "run",
        overrides=["sft.max_num_steps=80", "policy.optimizer.kwargs.lr=5e-4"],
    )
    assert (few["sft"]["max_num_epochs"], few["sft"]["max_num_steps"], recipes.warmup(few)) == (
        3,
        80,
        5,
    )
    assert few["policy"]["optimizer"]["kwargs"]["lr"] == 5e-4


@pytest.mark.parametrize("recipe", ["nemotron-nano-lora", "smol-lora"])
def test_a_written_recipe_is_what_the_trainer_loads(chat, tmp_path, recipe):
    made = recipes.recipe(recipe, data=chat, run=tmp_path)
    (tmp_path / "recipe.yaml").write_text(recipes.dump(made))
    loaded = recipes.load(tmp_path / "recipe.yaml")
    assert (
        loaded["policy"] == made["policy"]
        and loaded["sft"] == made["sft"]
        and loaded["data"]["train"]["data_path"] == str(chat / "train.jsonl")
    )
    assert recipes.dump(recipes.recipe(recipe, data=chat, run=tmp_path)) == recipes.dump(made)


def test_every_mandatory_change_of_the_published_recipe_is_made():
    made = yaml.safe_load((recipes.RECIPES / "nemotron-nano-lora.yaml").read_text())
    assert made["defaults"].startswith("/opt/nemo-rl/") and made["checkpointing"]["enabled"] is True
    assert (
        made["policy"]["model_name"] == "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
        and made["policy"]["max_total_sequence_length"] == 8192
    )
    assert made["policy"]["tokenizer"] == {
        "chat_template": "default",
        "chat_template_kwargs": {"enable_thinking": True},
    }
    assert made["policy"]["dtensor_cfg"]["lora_cfg"]["exclude_modules"] == [
        "*out_proj*",
        "*lm_head*",
        "*mixer.experts*",
    ]
    assert (
        made["data"]["add_bos"],
        made["data"]["add_generation_prompt"],
        made["logger"]["wandb_enabled"],
    ) == (False, True, False)
    assert (
        made["sft"]["val_batches"],
        made["sft"]["val_global_batch_size"],
        made["sft"]["val_at_end"],
    ) == (-1, 16, True)


@pytest.mark.parametrize(
    "overrides, kind, message",
    [
        (["sft.max_num_epochs"], cli.BadConfig, "is no override"),
        (["policy.train_global_batch_size=64"], cli.BadData, "less than one batch of 64"),
        (["sft.max_num_epochs=none"], cli.BadConfig, "sft.max_num_epochs is 'none'"),
        (["sft.max_num_steps=0"], cli.BadConfig, "from 1"),
        (["policy.model_name=["], cli.BadConfig, "policy.model_name="),
    ],
)
def test_overrides_that_make_no_run_are_refused(chat, tmp_path, overrides, kind, message):
    with pytest.raises(kind, match=message):
        recipes.recipe("nemotron-nano-lora", data=chat, run=tmp_path, overrides=overrides)


def test_an_unknown_recipe_or_no_data_is_said(chat, tmp_path):
    with pytest.raises(cli.Missing, match="recipes: lora, nemotron-nano-dpo, .*, smol-lora"):
        recipes.recipe("nothing", data=chat, run=tmp_path)
    with pytest.raises(cli.Missing, match="make corpus"):
        recipes.recipe("smol-lora", data=tmp_path, run=tmp_path)


def test_a_folder_with_a_dot_is_refused_because_nemo_rl_cuts_there(chat, tmp_path):
    chat.rename(tmp_path / "v0.1")
    with pytest.raises(cli.BadData, match="cuts the task's name"):
        recipes.recipe("smol-lora", data=tmp_path / "v0.1", run=tmp_path)
    assert (
        recipes.misread("data/chat/train.jsonl")
        and recipes.misread("/a/v0.1/train.jsonl")
        and not recipes.misread("/a.b/chat/train.v1.jsonl")
    )


def test_frozen_rows_keep_id_and_messages_alone(chat, tmp_path):
    out = recipes.freeze("smol-lora", chat, tmp_path / "run" / "data")
    lines = (out / "train.jsonl").read_text().splitlines()
    assert len(lines) == 35 and json.loads(lines[3]) == {
        "id": "s3",
        "messages": [TALK[0], {"role": "user", "content": "Deck 3"}, TALK[2]],
    }
    (chat / "test.jsonl").write_text('{"id":"x"}\n')
    with pytest.raises(cli.BadData, match=r"none of 36 rows can be held out .*test.jsonl line 1"):
        recipes.freeze("smol-lora", chat, tmp_path / "other")


def test_the_rewards_that_chose_the_rows_of_a_run_and_of_what_it_began_as_are_known(chat, tmp_path):
    run, before = tmp_path / "run", tmp_path / "before"
    before.mkdir()
    (before / "manifest.json").write_text('{"rewards": ["read"]}')
    config = {"sft": {}, "start": {"adapter": str(before)}}
    recipes.freeze("smol-lora", chat, run / "data")
    assert recipes.rewards_of(run, {"sft": {}}) == []
    row = json.loads((chat / "train.jsonl").read_text().splitlines()[0])
    row["prefer"] = {"reward": "layout"}
    (chat / "train.jsonl").write_text(json.dumps(row) + "\n")
    recipes.freeze("smol-lora", chat, run / "data")
    assert recipes.rewards_of(run, config) == ["layout", "read"]
    assert recipes.rewards_of(run, {"grpo": {}, "env": {"rules": "own"}}) == ["layout", "own"]
    (run / "rewards").mkdir()
    (run / "rewards/rules").write_text("other\n")
    assert recipes.rewards_of(run, {"grpo": {}}) == ["layout", "other"]


@pytest.mark.slow
def test_the_trainers_loader_fails_on_late_keys_and_takes_frozen_rows(chat, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")

    def row(k):
        thought = {"reasoning_content": "y"} if k == 149 else {}
        reply = {"role": "assistant", "content": f"{k} {'x' * 100_000}", **thought}
        return {"id": f"r{k}", "messages": [{"role": "user", "content": f"u {k}"}, reply]}

    rows = [
        {**row(k), "seed": {"n": 1, **({"outline": ["a"]} if k == 149 else {})}} for k in range(150)
    ]
    (chat / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def loaded(folder):
        return len(
            datasets.load_dataset(
                "json", data_files=str(folder / "train.jsonl"), cache_dir=str(tmp_path / "cache")
            )["train"]
        )

    with pytest.raises(datasets.exceptions.DatasetGenerationError):
        loaded(chat)
    # A row with a thought comes first, and the seed does not come.
    assert loaded(recipes.freeze("smol-lora", chat, tmp_path / "data")) == 150


def test_another_base_takes_with_it_what_belongs_to_it(chat, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))

    def made(base, name="lora", *overrides):
        config = recipes.recipe(name, data=chat, run=tmp_path, base=base, overrides=overrides)
        return config["policy"]

    qwen = made("Qwen/Qwen3-8B")
    assert qwen["model_name"] == "Qwen/Qwen3-8B"
    assert qwen["tokenizer"]["chat_template_kwargs"] == {"enable_thinking": True}
    assert qwen["dtensor_cfg"]["lora_cfg"]["exclude_modules"] == ["*lm_head*"]
    assert qwen["max_total_sequence_length"] == 8192
    experts = made("Qwen/Qwen3-30B-A3B")["dtensor_cfg"]["lora_cfg"]["exclude_modules"]
    assert "*mlp.experts*" in experts
    # A folder of no family: its own configuration says how long, and that it has experts.
    own = {"model_type": "x", "max_position_embeddings": 2048, "num_local_experts": 8}
    (tmp_path / "config.json").write_text(json.dumps(own))
    folder = made(str(tmp_path))
    assert folder["max_total_sequence_length"] == 2048
    assert folder["tokenizer"]["chat_template_kwargs"] == {"enable_thinking": False}
    assert folder["dtensor_cfg"]["lora_cfg"]["exclude_modules"] == ["*lm_head*", "*[.]experts*"]
    monkeypatch.chdir(tmp_path.parent)
    assert made(tmp_path.name) == folder  # its path is absolute: the job runs elsewhere
    # What is targeted stays so; what is said is stronger.
    smol = made("HuggingFaceTB/SmolLM2-360M-Instruct", "smol-lora", "policy.precision=float32")
    assert "exclude_modules" not in smol["dtensor_cfg"]["lora_cfg"]
    assert smol["precision"] == "float32"
    assert (
        made("Qwen/Qwen3-8B", "lora", "policy.max_total_sequence_length=512")[
            "max_total_sequence_length"
        ]
        == 512
    )


def test_a_recipe_for_any_model_wants_to_be_told_which(chat, tmp_path):
    config = recipes.recipe("lora", data=chat, run=tmp_path)
    assert config["policy"]["model_name"] == "???"


@pytest.mark.parametrize(
    "name, base, steps",
    [
        ("nemotron-nano-lora", None, 45),  # 10 s for 2048 tokens, and a row may have 8192
        ("nemotron-nano-dpo", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 30),
        ("nemotron-nano-grpo", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 6),
        ("smol-lora", None, sys.maxsize),
    ],
)
def test_a_recipe_saves_every_half_hour_whatever_an_epoch_has(name, base, steps):
    config = OmegaConf.load(recipes.RECIPES / f"{name}.yaml")
    if base:
        config.policy.model_name = base
    assert recipes._paced(config) == steps
