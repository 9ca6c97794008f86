import json
import os
import shutil
from pathlib import Path

import pytest
import yaml
from decksmith.train.training import check_report, preflight, recipes

pytestmark = pytest.mark.slow

THINKER = Path(__file__).parents[1] / "fixtures" / "sft" / "thinker"
RECIPE = "nemotron-nano-lora"
THINKS = ["policy.tokenizer.chat_template_kwargs.enable_thinking=true"]


def row(k, **reply):
    return {
        "id": f"s{k}",
        "messages": [
            {"role": "system", "content": "You write."},
            {"role": "user", "content": f"A deck about {k}"},
            {
                "role": "assistant",
                "content": f"# Deck {k}",
                "reasoning_content": f"It is about {k}.",
                **reply,
            },
        ],
    }


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A run without a fault: 35 rows for training, 16 for validation, as sft-config leaves it."""
    made = tmp_path_factory.mktemp("sound")
    (made / "chat").mkdir()
    for side, first, last in (("train", 0, 35), ("test", 35, 51)):
        write(made / "chat" / f"{side}.jsonl", [row(k) for k in range(first, last)])
    run = made / "run"
    config = recipes.recipe(
        RECIPE, data=recipes.freeze(RECIPE, made / "chat", run / "data"), run=run
    )
    (run / "recipe.yaml").write_text(recipes.dump(config))
    return run


@pytest.fixture
def run(sound, tmp_path):
    """A copy of it, which names itself."""
    run = shutil.copytree(sound, tmp_path / "run")
    text = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(text.replace(str(sound), str(run)))
    return run


def write(path, rows):
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in rows)
    )


def edit(run, key, value):
    """Set a dotted key of RUN/recipe.yaml; ... removes it."""
    config = yaml.safe_load((run / "recipe.yaml").read_text())
    *path, last = key.split(".")
    section = config
    for part in path:
        section = section.setdefault(part, {})
    if value is ...:
        del section[last]
    else:
        section[last] = value
    (run / "recipe.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def line(run, k, change, side="train"):
    """Replace the k-th row by change(row)."""
    path = run / "data" / f"{side}.jsonl"
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    rows[k] = change(rows[k])
    write(path, rows)


def reply(run, k, **more):
    line(
        run,
        k,
        lambda old: {**old, "messages": [*old["messages"][:2], {**old["messages"][2], **more}]},
    )


def folder(tmp_path, template=None, **files):
    """The tokenizer's folder with another template or other files."""
    made = shutil.copytree(THINKER, tmp_path / "model")
    if template:
        (made / "chat_template.jinja").write_text(
            template((made / "chat_template.jinja").read_text())
        )
    for name, value in files.items():
        (made / f"{name}.json").write_text(json.dumps(value))
    return made


def test_a_sound_run_passes_and_is_described(run):
    report, shown = preflight.check(run / "recipe.yaml", THINKER, preview=1)
    assert (
        report["ok"]
        and report["failures"] == []
        and report["prompted"] == {"train": 0, "validation": 0}
    )
    assert report["rows"] == {"train": 35, "validation": 16} and (
        report["steps"],
        report["epochs"],
        report["left_over"],
    ) == (4, 2, 3)
    tokens = report["tokens"]["train"]
    assert (
        tokens["reasoned"] == 35
        and tokens["max"] < report["limit"]
        and tokens["share"] == round(tokens["trained"] / tokens["total"], 4)
    )
    assert shown == [
        {
            "id": "s0",
            "runs": [
                (
                    False,
                    "<|im_start|>system\nYou write.<|im_end|>\n<|im_start|>user\nA deck about 0<|im_end|>\n<|im_start|>assistant\n<think>\n",
                ),
                (True, "It is about 0.\n</think>\n# Deck 0<|im_end|>\n"),
            ],
        }
    ]
    assert (
        report["lora"]["trainable"] == 181_747_712 and report["estimate"]["memory_gib"]["total"] > 3
    )
    assert [name for name, _ in check_report.table(report)] == [
        "model",
        "keys",
        "rows",
        "our system prompt",
        "steps",
        "tokens, train",
        "tokens, validation",
        "adapter",
        "",
        "memory",
        "time",
        "disk",
        "not checked",
        "not checked",
    ]


RECIPES = [  # rule, key, value; a message
    ("unknown-key", "sft.max_nm_steps", 4, "did you mean sft.max_num_steps?"),
    ("unknown-key", "polcy.precision", "bfloat16", "did you mean policy.precision?"),
    (
        "unknown-key",
        "checkpointing.ft_save_period",
        5,
        "checkpointing.ft_save_period is no key of NeMo-RL v0.7.0's SFT",
    ),
    ("unfilled", "data.train.data_path", "???", "data.train.data_path is still ???"),
    ("unfilled", "cluster.num_nodes", ..., "cluster.num_nodes is None"),
    ("checkpointing", "checkpointing.enabled", False, "nothing would be saved"),
    ("checkpointing", "checkpointing.enabled", ..., "nothing would be saved"),
    ("checkpointing", "checkpointing.checkpoint_dir", "results/sft", "not absolute"),
    ("checkpointing", "checkpointing.checkpoint_dir", ..., "not absolute"),
    (
        "batch",
        "policy.train_micro_batch_size",
        2,
        "16 GPUs with a micro batch of 2 take a multiple of 32",
    ),
    ("batch", "sft.val_global_batch_size", 24, "take a multiple of 16"),
    ("batch", "sft.val_global_batch_size", 32, "16 validation rows are less than one batch of 32"),
    ("batch", "sft.val_global_batch_size", 48, "rm data/chat/split.tsv && make corpus SHARE=.."),
    ("template", "policy.tokenizer.chat_template", ..., "inherited: a demo"),
    (
        "template",
        "policy.tokenizer.chat_template",
        (THINKER / "chat_template.jinja").read_text(),
        "written out",
    ),
    (
        "template",
        "policy.tokenizer.chat_template",
        os.path.relpath(THINKER / "chat_template.jinja"),
        "is not absolute",
    ),
    ("dataset", "data.validation.dataset_name", "squad", "data.validation is not of openai_format"),
    ("dataset", "data._override_", ..., "data has no _override_"),
    ("dataset", "data.num_workers", ..., "there is no data.num_workers"),
    ("override", "data.train._override_", True, "NeMo-RL takes data.train._override_ for a key"),
    (
        "override",
        "policy.dtensor_cfg.automodel_kwargs",
        {"_override_": True, "force_hf": True},
        "marks a section of the first level only",
    ),
    ("steps", "sft.max_num_steps", 5, "2 epochs of floor(35 rows / 16) = 2 steps are 4"),
    ("steps", "sft.max_num_epochs", 3, "3 epochs of floor(35 rows / 16) = 2 steps are 6"),
    ("periods", "checkpointing.save_period", 3, "a save every 3 steps and a validation every 2"),
    ("periods", "sft.val_at_end", False, None),
    (
        "schedule",
        "policy.scheduler",
        [{"kwargs": {}}, {"kwargs": {"T_max": 9}}, {"milestones": [1]}],
        "are 10 steps, the run has 4",
    ),
    ("logger", "logger.wandb_enabled", ..., "WANDB_API_KEY is not set"),
    ("lora", "policy.dtensor_cfg.lora_cfg.enabled", False, "all of the model would be trained"),
    ("lora", "policy.dtensor_cfg.lora_cfg.dim", 100, "a rank that vLLM does not serve"),
    ("lora", "policy.dtensor_cfg.lora_cfg.target_modules", ["q_proj"], "exclude each other"),
    (
        "lora",
        "policy.dtensor_cfg.lora_cfg.exclude_modules",
        ["*lm_head*", "*mixer.experts*"],
        "out_proj of Mamba is adapted",
    ),
    (
        "lora",
        "policy.dtensor_cfg.lora_cfg.exclude_modules",
        ["*out_proj*", "*mixer.experts*"],
        "lm_head is adapted",
    ),
    (
        "lora",
        "policy.dtensor_cfg.lora_cfg.exclude_modules",
        ["*out_proj*", "*lm_head*", "*mixer.experts*", "*gate_proj"],
        "'*gate_proj' matches no module",
    ),
    ("lora", "policy.dtensor_cfg.lora_cfg.exclude_modules", ["*"], "touches no module"),
    (
        "lora",
        "policy.dtensor_cfg.lora_cfg.exclude_modules",
        ["*out_proj*", "*lm_head*", "*mixer.experts*", "k_proj"],
        "'k_proj' means nothing to NeMo-RL, which compares whole names; write '*k_proj'",
    ),
]


# Of each rule the first is tried in `make test`.
CASES = [
    pytest.param(*one, marks=[pytest.mark.long] * (one[0] in {rule for rule, *_ in RECIPES[:at]}))
    for at, one in enumerate(RECIPES)
]


@pytest.mark.parametrize("rule, key, value, message", CASES)
def test_a_recipe_with_a_fault_is_refused_at_its_key(run, monkeypatch, rule, key, value, message):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    edit(run, key, value)
    if (key, value) == ("sft.val_at_end", False):
        edit(run, "sft.max_num_steps", 3)
        message = "step 3, the last, is saved and not validated"
    if rule in ("steps", "periods"):
        edit(run, "policy.scheduler", ...)
    report, _ = preflight.check(run / "recipe.yaml", THINKER)
    assert set(report["counts"]) == {rule} and any(
        message in failure["message"] for failure in report["failures"]
    )


def test_a_run_without_validation_saves_by_the_epoch_and_is_ranked_by_no_loss(run):
    off = ["sft.val_period=0", "sft.val_at_start=false"]
    never = [*off, "sft.val_at_end=false"]
    for overrides, faults in (
        (off, {}),
        (never, {"periods": 1}),
        ([*never, "checkpointing.metric_name=null"], {}),
    ):
        config = recipes.recipe(RECIPE, data=run / "data", run=run, overrides=overrides)
        assert config["checkpointing"]["save_period"] == 2
        (run / "recipe.yaml").write_text(recipes.dump(config))
        report, _ = preflight.check(run / "recipe.yaml", THINKER)
        assert report["counts"] == faults, report["failures"]


def test_a_fault_of_the_recipe_has_the_line_of_its_key_or_of_the_section_that_lacks_it(run):
    edit(run, "sft.max_nm_steps", 4)
    edit(run, "checkpointing.enabled", ...)
    report, _ = preflight.check(run / "recipe.yaml", THINKER)
    text = (run / "recipe.yaml").read_text().splitlines()
    assert [text[failure["line"] - 1] for failure in report["failures"]] == [
        "  max_nm_steps: 4",
        "checkpointing:",
    ]


def test_a_data_path_that_nemo_rl_misreads_or_that_is_not_there_is_refused(run):
    shutil.copytree(run / "data", run / "v0.1")
    edit(run, "data.train.data_path", str(run / "v0.1" / "train.jsonl"))
    edit(run, "data.validation.data_path", str(run / "data" / "none.jsonl"))
    report, _ = preflight.check(run / "recipe.yaml", THINKER)
    assert report["counts"] == {"dataset": 1, "absent": 1}


def test_checkpoints_that_do_not_fit_on_the_disk_are_refused(run, monkeypatch):
    monkeypatch.setattr(
        shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(100, 99, 2**20)
    )
    assert preflight.check(run / "recipe.yaml", THINKER)[0]["counts"] == {"disk": 1}


ROWS = [  # rule, change of the third row, message
    ("reasoning", {"reasoning_content": ""}, "no reasoning"),
    ("reasoning", {"reasoning_content": None}, "no reasoning"),
    ("too-long", {"content": "x" * 9000}, "tokens, the limit is 8192"),
    ("end", {"content": "# Deck<|im_end|> more"}, "'more<|im_end|>' is trained after the first"),
]


@pytest.mark.parametrize("rule, change, message", ROWS)
def test_a_row_with_a_fault_is_named_by_file_line_and_id(run, rule, change, message):
    reply(run, 2, **change)
    report, _ = preflight.check(run / "recipe.yaml", THINKER)
    failure = report["failures"][0]
    assert (failure["rule"], failure["file"], failure["line"], failure["id"]) == (
        rule,
        str(run / "data" / "train.jsonl"),
        3,
        "s2",
    )
    assert message in failure["message"] and report["counts"][rule] == 1
    assert set(report["counts"]) == ({rule, "pieces"} if rule == "reasoning" else {rule})
    assert (
        list(check_report.lines(report))[0]
        == f"{run}/data/train.jsonl:3: s2: {rule}: {failure['message']}; {failure['remedy']}"
    )


def test_a_line_that_is_no_record_is_named_and_the_others_are_read(run):
    path = run / "data" / "train.jsonl"
    write(path, [*path.read_text().splitlines()[:34], "{oops"])
    report, _ = preflight.check(run / "recipe.yaml", THINKER)
    assert (
        report["counts"] == {"json": 1}
        and report["failures"][0]["line"] == 35
        and report["rows"]["train"] == 35
    )


def test_a_bos_that_no_server_sends_is_seen_in_every_row(run):
    edit(run, "data.add_bos", True)
    report, _ = preflight.check(run / "recipe.yaml", THINKER)
    assert report["counts"] == {"prompt": 51, "pieces": 51}
    assert "'<s>', in a server's prompt '<|im_start|>'" in next(
        found["message"] for found in report["failures"] if found["rule"] == "prompt"
    )
    assert [text for text in check_report.lines(report) if "more" in text] == [
        "pieces: 41 more",
        "prompt: 41 more",
    ]


def test_rows_without_thoughts_pass_where_the_prompt_is_not_cut(run):
    reply(run, 2, reasoning_content=None)
    edit(run, "data.add_generation_prompt", False)
    assert preflight.check(run / "recipe.yaml", THINKER)[0]["ok"]


def test_a_template_that_drops_the_thoughts_is_refused_unless_thinking_is_off(run, tmp_path):
    plain = folder(
        tmp_path,
        lambda text: (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        ),
    )
    report, _ = preflight.check(run / "recipe.yaml", plain)
    assert (
        report["counts"] == {"trained": 51}
        and "the reasoning is not in the trained text" in report["failures"][0]["message"]
    )
    edit(run, "policy.tokenizer.chat_template_kwargs", {"enable_thinking": False})
    assert preflight.check(run / "recipe.yaml", plain)[0]["ok"]


def test_thoughts_that_are_trained_though_thinking_is_off_are_refused(run):
    edit(run, "policy.tokenizer.chat_template_kwargs", {"enable_thinking": False})
    assert set(preflight.check(run / "recipe.yaml", THINKER)[0]["counts"]) == {"pieces", "trained"}


def test_a_template_that_renders_the_prompt_otherwise_when_it_is_answered_is_refused(run, tmp_path):
    odd = folder(tmp_path, lambda text: "{% if messages | length > 2 %}Talk:\n{% endif %}" + text)
    assert preflight.check(run / "recipe.yaml", odd)[0]["counts"] == {"pieces": 51, "end": 51}


TOOL = {"type": "function", "function": {"name": "weather", "parameters": {}}}


def test_tools_that_the_template_leaves_out_are_named_and_others_are_trained(run, tmp_path):
    line(run, 6, lambda old: {**old, "tools": [TOOL]})
    report, _ = preflight.check(run / "recipe.yaml", THINKER)
    assert report["counts"] == {"tools": 1}
    assert "leaves the tool weather out" in report["failures"][0]["message"]
    knows = folder(tmp_path, lambda text: "{% if tools %}{{ tools | tojson }}{% endif %}" + text)
    report, _ = preflight.check(run / "recipe.yaml", knows)
    assert report["counts"] == {}


def test_an_end_at_which_no_server_stops_is_refused(run, tmp_path):
    other = folder(tmp_path, tokenizer_config={"bos_token": "<s>", "eos_token": "</s>"})
    report, _ = preflight.check(run / "recipe.yaml", other)
    assert set(report["counts"]) == {
        "pieces"
    }  # </s> is put behind <|im_end|>, which ends the turn already
    edit(run, "data.add_eos", False)
    assert preflight.check(run / "recipe.yaml", other)[0]["counts"] == {"end": 51}
    (other / "generation_config.json").write_text('{"eos_token_id": [257, 259]}')
    assert preflight.check(run / "recipe.yaml", other)[0]["ok"]


def test_a_template_without_an_end_takes_the_eos_of_the_recipe(run, tmp_path):
    bare = folder(tmp_path, lambda text: text.replace("<|im_end|>\\n", "\\n"))
    assert preflight.check(run / "recipe.yaml", bare)[0]["ok"]
    edit(run, "data.add_eos", False)
    assert preflight.check(run / "recipe.yaml", bare)[0]["counts"] == {"end": 51}


def test_a_template_that_takes_null_for_something_is_refused(run, tmp_path):
    odd = folder(
        tmp_path,
        lambda text: text.replace(
            "{{- message.content",
            "{%- if message.reasoning_content is defined and message.role == 'user' -%}!"
            "{%- endif -%}{{- message.content",
        ),
    )
    report, _ = preflight.check(run / "recipe.yaml", odd)
    assert set(report["counts"]) == {"nulls"}


def test_a_template_that_refuses_a_row_is_said_for_the_row(run, tmp_path):
    odd = folder(
        tmp_path,
        lambda text: (
            "{% if '7' in messages[-1].content %}{{ raise_exception('no sevens') }}{% endif %}"
            + text
        ),
    )
    report, _ = preflight.check(run / "recipe.yaml", odd)
    assert (
        set(report["counts"]) == {"template-refuses"}
        and "no sevens" in report["failures"][0]["message"]
        and report["failures"][0]["id"] == "s7"
    )


def test_without_a_tokenizer_all_else_is_checked_and_the_rest_is_named(run):
    path = run / "data/train.jsonl"
    write(path, [*path.read_text().splitlines()[:34], '{"id": "s34"}'])
    report, _ = preflight.check(run / "recipe.yaml")
    assert report["counts"] == {"json": 1} and report["unchecked"][0].startswith(
        "everything that needs the tokenizer"
    )
    assert report["tokens"] == {} and report["lora"]["trainable"] == 181_747_712


def test_keys_are_compared_with_the_parent_where_it_is_on_this_machine(run, tmp_path):
    (tmp_path / "parent.yaml").write_text(
        "sft: {a_newer_key: 1}\nlogger: {wandb_enabled: false}\npolicy: {dtensor_cfg: {context_parallel_size: 4}}\n"
    )
    edit(run, "defaults", str(tmp_path / "parent.yaml"))
    edit(run, "sft.a_newer_key", 2)
    report, _ = preflight.check(run / "recipe.yaml", THINKER)
    assert (
        report["ok"]
        and report["parent"] == {"absent": None, "keys": "the parent"}
        and [text.split(":")[0] for text in report["unchecked"]]
        == ["the modules of the class that is trained"]
    )
    edit(run, "sft.an_older_key", 2)
    assert preflight.check(run / "recipe.yaml", THINKER)[0]["counts"] == {"unknown-key": 1}


def test_the_configuration_of_the_model_says_what_is_adapted(run, tmp_path):
    small = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 96,
        "vocab_size": 262,
        "num_attention_heads": 4,
    }
    edit(run, "policy.dtensor_cfg.lora_cfg.exclude_modules", ["*lm_head*"])
    report, _ = preflight.check(run / "recipe.yaml", folder(tmp_path, config=small))
    assert (
        report["ok"]
        and report["lora"]["source"] == "by its config.json"
        and report["lora"]["classes"]["lm_head"] == [0, 1]
    )
    unknown = folder(tmp_path / "other", config={**small, "model_type": "unheard-of"})
    report, _ = preflight.check(run / "recipe.yaml", unknown)
    assert report["ok"] and "no config.json of a family whose layers" in report["unchecked"][-1]


def test_an_adapter_on_every_routed_expert_is_refused_with_its_size(run):
    edit(run, "policy.dtensor_cfg.lora_cfg.exclude_modules", ["*out_proj*", "*lm_head*"])
    report, _ = preflight.check(run / "recipe.yaml", THINKER)
    assert report["counts"]["lora"] == 1
    said = [found["message"] for found in report["failures"] if found["rule"] == "lora"]
    assert said[0].startswith("5,888 linear layers of routed experts are adapted, 6,849 M param")
    assert (report["lora"]["modules"], report["lora"]["trainable"]) == (5981, 7_031_046_144)
    # Two checkpoints that are kept and one on the way, each 78.6 GiB.
    assert report["estimate"]["checkpoints_gib"] == pytest.approx(3 * 78.6, abs=0.5)


def test_rows_longer_than_the_model_was_made_for_are_refused(run, tmp_path):
    small = {"model_type": "unheard-of", "max_position_embeddings": 4096}
    report, _ = preflight.check(run / "recipe.yaml", folder(tmp_path, config=small))
    assert report["counts"] == {"context": 1}
    assert "the model was made for 4096 tokens" in report["failures"][0]["message"]


@pytest.mark.parametrize("recipe", ["nemotron-nano-lora", "smol-lora", "lora"])
def test_no_key_of_our_recipes_is_unknown(recipe):
    made = preflight.Checked(recipes.RECIPES / f"{recipe}.yaml")
    preflight.check_keys(made)
    assert made.findings.listed == []


def test_every_rule_has_a_row_that_breaks_it():
    tests = "".join(
        Path(__file__).with_name(f"test_{name}.py").read_text()
        for name in ("preflight", "rl_check")
    )
    assert [rule for rule in check_report.RULES if f'"{rule}"' not in tests] == []


def pair(k):
    one = row(k)["messages"]
    worse = {**one[-1], "content": f"# Worse {k}"}
    sides = [{"rank": 0, "completion": [one[-1]]}, {"rank": 1, "completion": [worse]}]
    return {"id": f"s{k}", "context": one[:2], "completions": sides}


@pytest.fixture
def pairs(tmp_path):
    """A run of DPO by NeMo-RL without a fault: 35 pairs for training, 16 for validation."""
    (tmp_path / "chat").mkdir()
    for side, first, last in (("train", 0, 35), ("test", 35, 51)):
        write(tmp_path / "chat" / f"{side}.jsonl", [pair(k) for k in range(first, last)])
    run, recipe = tmp_path / "run", "nemotron-nano-dpo"
    data = recipes.freeze(recipe, tmp_path / "chat", run / "data")
    config = recipes.recipe(recipe, data=data, run=run, base=str(THINKER), overrides=THINKS)
    (run / "recipe.yaml").write_text(recipes.dump(config))
    return run


def test_a_run_of_dpo_is_checked_by_its_own_keys_steps_and_both_sides_of_every_pair(pairs):
    report, _ = preflight.check(pairs / "recipe.yaml", THINKER)
    assert set(report["counts"]) <= {"lora", "bos"}, report["failures"]
    assert report["steps"] == 2 and report["rows"] == {"train": 35, "validation": 16}
    rows_of = [pair(k) for k in range(35)]
    rows_of[3]["completions"][1]["rank"] = None
    write(pairs / "data/train.jsonl", rows_of)
    text = (pairs / "recipe.yaml").read_text()
    (pairs / "recipe.yaml").write_text(text.replace("val_at_end", "val_at_endd"))
    report, _ = preflight.check(pairs / "recipe.yaml", THINKER)
    found = {(one["rule"], one["line"]): one["message"] for one in report["failures"]}
    assert found["json", 4].startswith("not as sft-config writes it")
    (said,) = (one["message"] for one in report["failures"] if one["rule"] == "unknown-key")
    assert said == "dpo.val_at_endd is no key of NeMo-RL v0.7.0's DPO; did you mean dpo.val_at_end?"
