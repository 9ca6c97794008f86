"""The pure parts of serving, and one real server; the rest is in tests/bin/model-serve.bats and tests/slurm/test_serve.py."""

import dataclasses
import json
import math
import re
import tomllib

import pytest
from decksmith.core import cli, stream
from decksmith.measure.results import verify
from decksmith.models import servers
from decksmith.train.serving import vllm
from decksmith.train.serving.vllm import Adapter
from decksmith.train.training import base_models


@pytest.fixture
def found(tmp_path):
    (tmp_path / "adapter_config.json").write_text(
        json.dumps(
            {"r": 8, "rank_pattern": {"lm_head": 200}, "base_model_name_or_path": "maker/base"}
        )
    )
    (tmp_path / "adapter_model.safetensors").write_bytes(
        weights({f"{AT}.q_proj.lora_A": (8, 64), f"{AT}.q_proj.lora_B": (32, 8)})
    )
    return Adapter.load(tmp_path)


AT = "base_model.model.model.layers.0.self_attn"


def weights(tensors):
    """A safetensors file of zeros, {name: shape}."""
    made = {
        f"{name}.weight": ("BF16", shape, b"\0" * 2 * math.prod(shape))
        for name, shape in tensors.items()
    }
    return base_models.safetensors(made)


def options(line):
    """{option: its values} of a command line."""
    found = {}
    for word in line[3:]:
        if word.startswith("--"):
            found[word] = []
        else:
            found[list(found)[-1]].append(word)
    return found


def test_the_option_list_is_that_of_the_pinned_image():
    pinned = re.search(
        r"^serve\s+\S*vllm-openai\s+v(\S+)", (cli.ROOT / "containers/images.lock").read_text(), re.M
    )[1]
    assert json.loads(vllm.OPTIONS.read_text())["version"] == pinned


def test_the_rank_is_the_largest_of_the_adapter_s_modules_rounded_up_to_what_vllm_takes(found):
    assert found.rank == 200
    for rank, taken in ((1, "1"), (9, "16"), (200, "256"), (512, "512")):
        line = vllm.command({"tuned": dataclasses.replace(found, rank=rank)}, "b", "127.0.0.1", 1)
        assert line[line.index("--max-lora-rank") + 1] == taken
    with pytest.raises(cli.BadData, match="its rank is 513"):
        vllm.command({"tuned": dataclasses.replace(found, rank=513)}, "b", "127.0.0.1", 1)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ["--max-lora-rank", "100"],
            "--max-lora-rank: invalid choice: '100' (choose from '1', '8', '16'",
        ),
        (["--enable-lorra"], "unrecognized arguments: --enable-lorra"),
        (["--enable-lora", "yes"], "unrecognized arguments: yes"),
        (["--tensor-parallel-size"], "--tensor-parallel-size/-tp: expected one argument"),
        (["2"], "unrecognized arguments: 2"),
    ],
)
def test_a_line_that_vllm_would_refuse_is_refused_here(found, more, said):
    with pytest.raises(cli.BadData, match=re.escape(said)):
        vllm.command({"tuned": found}, "b", "127.0.0.1", 1, more)


def test_a_reasoning_parser_is_only_that_of_the_model_s_own_family(found):
    assert "--reasoning-parser" not in vllm.command(
        {"tuned": found}, "HuggingFaceTB/SmolLM2", "127.0.0.1", 1
    )
    line = vllm.command(
        {"tuned": found}, "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "127.0.0.1", 1
    )
    assert line[line.index("--reasoning-parser") + 1] == "nemotron_v3"


def test_what_vllm_would_take_passes(found):
    vllm.command(
        {"tuned": found},
        "b",
        "0.0.0.0",
        1,
        [
            "--tensor-parallel-size=2",
            "--reasoning_config.reasoning_start_str",
            "<think>",
            "--dtype",
            "bfloat16",
            "--reasoning-config",
            '{"reasoning_start_str":"<think>"}',
        ],
    )


def test_what_belongs_to_the_model_is_on_its_command_line(found):
    nemotron = options(
        vllm.command({"tuned": found}, "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "h", 1)
    )
    assert nemotron["--reasoning-parser"] == ["nemotron_v3"]
    assert nemotron["--tool-call-parser"] == ["qwen3_coder"]
    assert nemotron["--max-model-len"] == ["65536"]
    assert nemotron["--default-chat-template-kwargs"] == ['{"enable_thinking": true}']
    assert nemotron["--trust-remote-code"] == nemotron["--enable-auto-tool-choice"] == []
    assert "--override-generation-config" not in nemotron
    lightning = options(
        vllm.command({"tuned": found}, "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B", "h", 1)
    )
    assert lightning["--override-generation-config"] == ['{"temperature": 1.0, "top_p": 0.95}']


@pytest.mark.parametrize("model", ["smol", "HuggingFaceTB/SmolLM2-135M-Instruct", "some/folder"])
def test_a_model_that_does_not_think_gets_no_parser_so_that_its_answers_are_answers(found, model):
    line = options(vllm.command({"tuned": found}, model, "127.0.0.1", 1))
    for option in ("--reasoning-parser", "--trust-remote-code"):
        assert option not in line
    # Without any parser a request that has tools would be refused; this one finds none in its answers.
    assert (line["--tool-call-parser"], line["--enable-auto-tool-choice"]) == (["hermes"], [])
    assert "--default-chat-template-kwargs" not in line
    assert line.get("--max-model-len") == (None if model == "some/folder" else ["8192"])


def test_a_folder_is_served_with_the_context_of_its_own_configuration(found, tmp_path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "qwen3", "max_position_embeddings": 2048}'
    )
    line = options(vllm.command({"tuned": found}, str(tmp_path), "127.0.0.1", 1))
    assert (line["--max-model-len"], line["--reasoning-parser"]) == (["2048"], ["qwen3"])


def test_buffers_are_made_for_the_modules_that_the_adapter_has(found):
    line = options(vllm.command({"tuned": found}, "b", "127.0.0.1", 1))
    assert line["--lora-target-modules"] == ["q_proj"] and found.width == 64 + 32
    path = found.path / "adapter_model.safetensors"
    path.write_bytes(
        weights(
            {
                f"{AT}.q_proj.lora_A": (8, 64),
                "base_model.model.model.layers.1.mixer.experts.3.up_proj.lora_B": (32, 8),
                "base_model.model.model.layers.1.mlp.experts.base_layer.lora_B": (32, 8),
            }
        )
    )
    assert Adapter.load(found.path).modules == ["experts", "q_proj", "up_proj"]
    path.write_bytes(b"weights")
    with pytest.raises(cli.BadData, match="not a safetensors file"):
        vllm.command({"tuned": Adapter.load(found.path)}, "b", "127.0.0.1", 1)


def save(path, **shapes):
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(end))


def test_an_adapter_of_another_base_is_refused_where_the_base_is_here(found, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    found.check_base(base)  # nothing is known of it
    save(base / "model.safetensors", **{"model.q_proj.weight": [6, 4], "model.norm.weight": [4]})
    half = "base_model.model.model.q_proj.lora_"
    file = found.path / "adapter_model.safetensors"
    save(file, **{f"{half}A.weight": [2, 4], f"{half}B.weight": [6, 2]})
    Adapter.load(found.path).check_base(base)
    save(file, **{f"{half}A.weight": [2, 8], f"{half}B.weight": [6, 2]})
    with pytest.raises(
        cli.BadData, match=r"model.q_proj was trained for a matrix of 8, .* has 4: .*\(maker/base\)"
    ):
        Adapter.load(found.path).check_base(base)


def test_the_adapter_s_hash_covers_its_scale(found, tmp_path):
    config = tmp_path / "adapter_config.json"
    config.write_text(config.read_text().replace('"r": 8', '"r": 8, "lora_alpha": 1'))
    assert Adapter.load(tmp_path).sha256 != found.sha256


def test_an_adapters_manifest_says_what_it_was_trained_on_and_a_broken_one_nothing(found):
    for text, rewards in (
        ('{"rewards": ["rendered"]}', ["rendered"]),
        ('{"rewards": ["a\\u001b[2J"]}', []),
        ('{"rewards": 7}', []),
        ("{", []),
    ):
        (found.path / "manifest.json").write_text(text)
        assert found.rewards == rewards


def test_files_that_are_no_endpoint_are_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("DECKSMITH_SERVE", str(tmp_path))
    for name, text in (
        ("a", "{"),
        ("b", "[]"),
        ("c", '{"url":"http://x/v1"}'),
        ("d", '{"url":"http://y/v1","models":["base"]}'),
    ):
        (tmp_path / f"{name}.json").write_text(text)
    assert [endpoint["url"] for endpoint in servers.running()] == ["http://y/v1"]


def test_the_rewards_of_a_served_adapter_are_its_own_and_not_the_bases():
    endpoint = {
        "engine": "e",
        "base": "b",
        "adapters": {"tuned": {"sha256": "a", "rewards": ["rendered"]}},
    }
    assert servers.served_by(endpoint, "tuned")["rewards"] == ["rendered"]
    assert "rewards" not in servers.served_by(endpoint, "base")
    endpoint["adapters"]["tuned"]["rewards"] = []
    assert "rewards" not in servers.served_by(endpoint, "tuned")


def test_servers_of_several_models_run_beside_each_other_and_each_name_finds_its_own(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("DECKSMITH_SERVE", str(tmp_path))

    def running(file, base, names):
        adapters = {name: {"sha256": name} for name in names[1:]}
        said = {"engine": "vllm 1", "base": base, "models": names, "adapters": adapters}
        (tmp_path / f"{file}.json").write_text(json.dumps(said | {"url": f"http://{file}/v1"}))

    running("one", "maker/a", ["a", "a-short", "a-long"])
    running("two", "maker/b", ["b"])
    running("three", "maker/b", ["b"])
    for name, base, where in (
        ("a", "maker/a", ["one"]),
        ("a-long", "maker/a", ["one"]),
        ("b", "maker/b", ["three", "two"]),
    ):
        wanted = servers.served(name)
        assert (wanted["base"], wanted["adapter"]) == (base, name if "-" in name else None)
        assert servers.addresses(name, wanted) == [f"http://{each}/v1" for each in where]
    assert servers.served("c") is None
    running("four", "maker/c", ["b"])
    with pytest.raises(cli.BadData, match="serve different models .another base."):
        servers.served("b")


def test_sglang_is_told_the_adapter_in_the_body_and_others_by_the_model():
    named = {"model": "tuned"}
    assert servers.chosen("sglang 0.5.23", "tuned") == named | {"lora_path": "tuned"}
    assert servers.chosen("vllm 0.27.1", "tuned") == servers.chosen(None, "tuned") == named


NEMOTRON = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"


def test_one_server_has_several_adapters_with_room_for_the_largest(found):
    other = dataclasses.replace(found, rank=3)
    line = options(vllm.command({"a": found, "b": other}, NEMOTRON, "h", 1, name="nano"))
    assert line["--lora-modules"] == [f"a={found.path}", f"b={found.path}"]
    assert (line["--max-loras"], line["--max-lora-rank"]) == (["2"], ["256"])
    assert line["--served-model-name"] == ["nano"]
    alone = options(vllm.command({}, NEMOTRON, "h", 1))
    assert not [option for option in alone if "lora" in option]


def test_sglang_gets_the_same_model_in_its_own_words(found):
    words = vllm.command({"tuned": found}, NEMOTRON, "h", 1, ("--tp-size", "2"), kind="sglang")
    assert words[:5] == ["python3", "-m", "sglang.launch_server", "--model-path", NEMOTRON]
    line = options(["", "", "", *words[5:]])
    assert (line["--reasoning-parser"], line["--tool-call-parser"]) == (
        ["nemotron_3"],
        ["qwen3_coder"],
    )
    assert line["--context-length"] == ["65536"] and line["--trust-remote-code"] == []
    assert line["--default-chat-template-kwargs"] == ['{"enable_thinking": true}']
    assert line["--lora-paths"] == [f"tuned={found.path}"]
    assert (line["--max-loras-per-batch"], line["--max-lora-rank"]) == (["2"], ["200"])
    memory = vllm.memory(vllm.Line(words, NEMOTRON, [found], "sglang"), 80)
    assert memory.gpus == 2 and memory.weights == pytest.approx(29.4, abs=0.1)
    with pytest.raises(
        cli.BadData, match="SGLang 0.5.23 would refuse this: unrecognized arguments"
    ):
        vllm.command({}, NEMOTRON, "h", 1, ("--max-model-len", "9"), kind="sglang")


def test_trtllm_serve_takes_a_merged_model_and_no_adapter(found, capsys):
    words = vllm.command({}, "Qwen/Qwen3-8B", "h", 1, kind="trtllm")
    assert words[:2] == ["trtllm-serve", "Qwen/Qwen3-8B"]
    line = options(["", *words])
    assert (line["--reasoning_parser"], line["--tool_parser"]) == (["qwen3"], ["qwen3"])
    assert line["--max_seq_len"] == ["40960"]
    assert "trtllm cannot be told this of Qwen/Qwen3-8B: thinking" in capsys.readouterr().err
    with pytest.raises(cli.BadData, match="merge it, model-export --merge"):
        vllm.command({"tuned": found}, "Qwen/Qwen3-8B", "h", 1, kind="trtllm")


@pytest.mark.parametrize("kind", ["sglang", "trtllm"])
def test_every_parser_of_a_family_is_one_that_the_other_engines_have_or_is_said_to_lack(kind):
    chosen = vllm.engine(kind)
    known = json.loads((cli.ROOT / "assets" / chosen["options"]).read_text())
    lacking = set()
    for family in tomllib.loads((cli.ROOT / "assets/recipes/families.toml").read_text()).values():
        for option, key in (("reasoning", "reasoning_parser"), ("tools", "tool_parser")):
            if its := family.get(key):
                if chosen.get("parsers", {}).get(its, its) not in known[option]:
                    lacking.add(its)
    assert (
        lacking
        == {
            "sglang": set(),
            "trtllm": {"nemotron_v3", "openai_gptoss", "openai", "llama3_json"},
        }[kind]
    )


def test_where_a_record_belongs_depends_on_its_id_alone_and_every_record_belongs_somewhere():
    idents = [f"p{n:03d}" for n in range(400)]
    places = [stream.part(ident, 4) for ident in idents]
    assert set(places) == {1, 2, 3, 4} and min(map(places.count, range(1, 5))) > 60
    assert places == [stream.part(ident, 4) for ident in reversed(idents)][::-1]


def loaded(name, served=None, ids=("p1", "p2"), protocol=None, **sampling):
    model = {"name": name, "slug": name} | ({"served": served} if served else {})
    records = [
        {
            "id": ident,
            "gen": {"model": model, "sampling": {"temperature": 0.7, "seed": n, **sampling}},
        }
        for n, ident in enumerate(ids)
    ]
    return {"protocol": {"judge": {"kind": "offline"}, **(protocol or {})}, "records": records}


def test_two_runs_that_differ_in_more_than_the_model_are_told_apart():
    one = {"engine": "vllm 1", "base": "b", "adapter": None}
    base = loaded("base", one)
    assert verify.same_but_model(base, loaded("tuned", one | {"adapter": "aaa"})) == []
    assert verify.same_but_model(base, loaded("tuned", one | {"engine": "vllm 2"})) == [
        "server.engine: vllm 1 != vllm 2"
    ]
    assert verify.same_but_model(base, loaded("tuned", one, max_tokens=9)) == [
        "gen.sampling.max_tokens: null != 9"
    ]
    assert verify.same_but_model(base, loaded("tuned", one, ids=("p1",))) == [
        "records: 1 in one run only, p2"
    ]
    assert verify.same_but_model(base, loaded("tuned", one, protocol={"rubric": "x"})) == [
        "rubric: null != x"
    ]
