import json

import pytest
from decksmith.core import cli, config_files
from decksmith.models import families

OPTIONS = json.loads((cli.ROOT / "assets/vllm-options.json").read_text())


@pytest.mark.parametrize(
    ("name", "family", "parser"),
    [
        ("smol", "smollm2", None),
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "smollm2", None),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano", "nemotron_v3"),
        (
            "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16",
            "nemotron-3_5-lightning",
            "nemotron_v3",
        ),
        ("Qwen/Qwen3-8B", "qwen3", "qwen3"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-moe", "qwen3"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-instruct", None),
        ("Qwen/Qwen3.5-9B", "qwen3_5", "qwen3"),
        ("Qwen/Qwen3.5-35B-A3B", "qwen3_5-moe", "qwen3"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3", None),
        ("openai/gpt-oss-20b", "gpt-oss", "openai_gptoss"),
        ("somebody/else", "", None),
    ],
)
def test_a_model_is_of_the_family_that_its_name_says(name, family, parser):
    found = families.of(name)
    assert (found.name, found.reasoning_parser) == (family, parser)


def test_a_folder_is_of_the_family_that_its_configuration_says():
    experts = {"model_type": "nemotron_h", "n_routed_experts": 8}
    assert families.of("/models/mine", experts).reasoning_parser == "nemotron_v3"
    # Nemotron-H before version 3 has no experts, and other thoughts.
    assert families.of("/models/mine", {"model_type": "nemotron_h"}).name == ""
    # What a llama is called says which one it is; its type does not.
    assert families.of("/models/mine", {"model_type": "llama"}).name == ""


SAVED = {  # the keys by which they differ, as transformers 5 saves both
    "model_type": "nemotron_h",
    "hidden_size": 2688,
    "n_routed_experts": 128,
    "mtp_layers_block_type": ["full_attention", "moe"],
}


def test_nemotrons_of_one_type_are_told_apart_by_what_they_are(tmp_path):
    nano = families.of("/m", {**SAVED, "num_nextn_predict_layers": 0})
    assert (nano.name, nano.sampling) == ("nemotron-3-nano", {})
    assert families.of("/m", {**SAVED, "num_nextn_predict_layers": 1}).sampling["top_p"] == 0.95
    # A larger one with such a head is neither.
    other = {**SAVED, "hidden_size": 4096, "num_nextn_predict_layers": 1}
    assert families.of("/m", other).name == ""


def test_a_merged_model_is_of_its_bases_family_however_often_it_was_merged(tmp_path):
    base = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / families.MERGED).write_text(json.dumps({"base": base}))
        base = str(tmp_path / name)
    assert families.of(base, {"model_type": "llama"}).name == "nemotron-3-nano"
    (tmp_path / "first" / families.MERGED).write_text(json.dumps({"base": base}))  # a circle ends
    assert families.of(base, {"model_type": "llama"}).name == ""


@pytest.mark.parametrize(
    ("shown", "parser"),
    [
        ("{% if tools %}<tool_call><function=x>", "qwen3_coder"),
        ('{% if tools %}<tool_call>{"name"', "hermes"),
        ("{% if tools %}[TOOL_CALLS]", "mistral"),
        ("{{ messages }}", None),
    ],
)
def test_a_model_of_no_family_has_the_tool_parser_of_what_its_template_shows(
    tmp_path, shown, parser
):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": shown}))
    found = families.of(str(tmp_path), {"model_type": "new"})
    assert (found.name, found.tool_parser) == ("", parser)
    assert parser is None or parser in OPTIONS["tools"]


def test_a_template_without_thoughts_takes_the_reasoning_parser_away(tmp_path):
    config = {"model_type": "qwen3"}
    path = tmp_path / "chat_template.jinja"
    path.write_text("{{ messages }}{% if enable_thinking %}<think></think>{% endif %}")
    assert families.of(str(tmp_path), config).reasoning_parser == "qwen3"
    path.write_text("{{ messages }}")
    found = families.of(str(tmp_path), config)
    assert (found.name, found.reasoning_parser, found.thinking) == ("qwen3", None, {})
    path.write_text("<|channel|>analysis")
    assert families.of(str(tmp_path), {"model_type": "gpt_oss"}).reasoning_parser


def test_the_context_is_the_familys_or_the_models_own_limit_where_that_is_less():
    qwen = families.of("Qwen/Qwen3-8B")
    assert qwen.length(None) == qwen.length({"max_position_embeddings": 262144}) == 40960
    assert qwen.length({"max_position_embeddings": 4096}) == 4096
    none = families.of("somebody/else")
    assert none.length(None) is None
    assert none.length({"text_config": {"max_position_embeddings": 8192}}) == 8192
    assert none.length({"max_position_embeddings": 10**6}) == families.CONTEXT


def test_a_folders_configuration_is_read_and_of_what_is_not_here_there_is_none(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert families.configuration("somebody/not-here") is None
    assert families.configuration("no name / at all") is None
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert families.configuration(str(tmp_path)) == {"model_type": "llama"}
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(cli.BadConfig, match="config.json: not JSON"):
        families.configuration(str(tmp_path))


@pytest.mark.parametrize("name", config_files.asset(families.TABLE))
def test_an_entry_names_its_source_and_what_the_pinned_vllm_takes(name):
    entry = config_files.asset(families.TABLE)[name]
    found = families.of(entry["names"][0].replace("*", "x"))
    assert found.name == name and found.source
    assert found.unverified or name == "smollm2"
    assert all(flag in OPTIONS["options"] for flag in found.flags)
    assert (cli.ROOT / "assets/recipes" / f"{found.recipe}.yaml").is_file()
    # Named in vLLM, by whoever reads its sources for the option list; no parser is checked by its command line.
    assert found.reasoning_parser in (None, *OPTIONS["reasoning"])
    assert found.tool_parser in (None, *OPTIONS["tools"])
