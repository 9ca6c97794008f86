"""The embedded model, for real: every test here talks to llama.cpp with the shipped weights."""

import asyncio
import hashlib
import http.client
import json
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request

import pytest
import waits
from decksmith.core import cli
from decksmith.core.protocol import Protocol
from decksmith.measure.decks import templates
from decksmith.measure.decks.clean import clean
from decksmith.measure.decks.parser import Deck
from decksmith.measure.render.worker import usage
from decksmith.models import client, embedded, errors, registry

pytestmark = [pytest.mark.engine, pytest.mark.slow]
ASK = {
    "model": "smol",
    "temperature": 0.8,
    "seed": 7,
    "max_tokens": 24,
    "messages": [
        {"role": "system", "content": "You are brief."},
        {"role": "user", "content": "Name a coral reef animal."},
    ],
}


def environment(threads):
    """Another number of threads is another server."""
    more = {"PYTHONPATH": str(cli.ROOT / "lib"), "DECKSMITH_ENGINE_THREADS": str(threads)}
    return os.environ | more


def asking(text):
    return {"messages": [{"role": "user", "content": text}]}


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory):
    """A temporary directory of its own, so that no server outside this file is met."""
    import tempfile

    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("state"))
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        for name in ("DECKSMITH_ENGINE_THREADS", "DECKSMITH_ENGINE_PARALLEL"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def base(state):
    """The address of the shared server."""
    with embedded.lease() as held:
        yield held.base_url


def post(base, body, path="/chat/completions"):
    """(status, parsed reply) of one request; `body` is JSON-able or bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(base + path, data), timeout=waits.HANG
        ) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def get(url):
    with urllib.request.urlopen(url, timeout=waits.HANG) as reply:
        return json.load(reply)


def words(base, **more):
    status, reply = post(base, ASK | more)
    assert status == 200, reply
    return reply["choices"][0]["message"]["content"]


def events(base, body):
    """The data of each server-sent event of a streamed reply."""
    with urllib.request.urlopen(
        urllib.request.Request(base + "/chat/completions", json.dumps(body).encode()),
        timeout=waits.HANG,
    ) as reply:
        assert reply.headers["content-type"] == "text/event-stream"
        return [line[6:].decode().strip() for line in reply if line.startswith(b"data: ")]


def test_a_chat_reply_has_the_shape_of_the_openai_api_and_counts_its_tokens(base):
    status, reply = post(base, ASK)
    assert status == 200 and reply["object"] == "chat.completion" and reply["model"] == "smol"
    choice = reply["choices"][0]
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"].strip()
    assert choice["finish_reason"] == "length" and reply["usage"]["completion_tokens"] == 24
    assert reply["usage"]["total_tokens"] == reply["usage"]["prompt_tokens"] + 24


def test_messages_go_through_the_models_own_chat_template(base):
    short = post(base, ASK | {**asking("Hi"), "max_tokens": 1})[1]["usage"]["prompt_tokens"]
    given = post(
        base,
        ASK
        | {
            "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "Hi"}],
            "max_tokens": 1,
        },
    )[1]["usage"]["prompt_tokens"]
    assert short - given > 5  # the template brings a system message of its own, unless there is one
    parts = [
        {"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}
    ]
    assert (
        post(base, ASK | {"messages": parts, "max_tokens": 1})[1]["usage"]["prompt_tokens"] == short
    )


def test_a_reply_that_ends_by_itself_says_stop(base):
    assert (
        post(base, ASK | {"temperature": 0, "max_tokens": 400, **asking("Say only: yes")})[1][
            "choices"
        ][0]["finish_reason"]
        == "stop"
    )


def test_streamed_chunks_join_to_the_reply_and_end_with_the_usage(base):
    chunks = events(base, ASK | {"stream": True, "stream_options": {"include_usage": True}})
    assert chunks.pop() == "[DONE]"
    chunks = [json.loads(chunk) for chunk in chunks]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 24
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant" and len(chunks) > 10
    assert "".join(
        chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]
    ) == words(base)


@pytest.mark.long("test_the_bits_are_those_of_the_probability_of_the_next_token")
def test_the_same_request_gives_the_same_bytes_whatever_was_asked_before(base):
    first = words(base, max_tokens=16)
    assert words(base, max_tokens=16, seed=8) != first
    words(base, **asking("Tell me a long story about the sea. " * 60))
    words(base, response_format={"type": "json_object"})
    connection = http.client.HTTPConnection(base.split("/")[2])  # a reply that nobody waits for
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(ASK | {"stream": True, "max_tokens": 2000})
    )
    connection.getresponse().read(200)
    connection.close()
    assert words(base, max_tokens=16) == first
    replies = []
    crowd = [
        threading.Thread(target=lambda: replies.append(words(base, max_tokens=16)))
        for _ in range(4)
    ]
    [thread.start() for thread in crowd], [thread.join() for thread in crowd]
    assert replies == [first] * 4


def test_a_client_that_leaves_stops_its_generation(base):
    connection = http.client.HTTPConnection(base.split("/")[2])
    connection.request(
        "POST",
        "/v1/chat/completions",
        json.dumps(ASK | {"stream": True, "max_tokens": 7000, "seed": 3, "temperature": 1.5}),
    )
    connection.getresponse().read(100)
    connection.close()
    with embedded.lease() as held:
        begun = waits.cpu(held.pid)
        words(base, max_tokens=1)  # would wait for 7000 tokens, a minute of the processor at least
        assert waits.cpu(held.pid) - begun < 20


def test_each_chunk_says_what_was_counted_so_far_where_that_is_asked_for(base):
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, last, _ = events(base, ASK | {"stream": True, "stream_options": options})
    counts = [json.loads(chunk)["usage"] for chunk in chunks]
    said = [usage["completion_tokens"] for usage in counts if usage]
    assert said == sorted(said) and len(said) > 10 and said[0] <= 2
    assert json.loads(last)["usage"]["completion_tokens"] == 24 == said[-1]


def test_a_reply_that_the_rule_stops_frees_the_engine_and_says_what_was_written(base):
    """Of 7,000 tokens, as the same of a reply that comes whole."""
    rule = Protocol.load("offline").sampling["stop_early"]
    told = {"max_tokens": 7000, "temperature": 0, "stop_early": {**rule, "no_slide_tokens": 60}}

    async def ask(**entry):
        asker = client.Client(registry.Model("smol", "engine:", "smol", **entry))
        try:
            return await asker.ask(asking("Tell me about the sea.")["messages"], told)
        finally:
            await asker.close()

    with embedded.lease() as held:
        begun = waits.cpu(held.pid)
        left = asyncio.run(ask())
        took = waits.cpu(held.pid) - begun
        words(base, max_tokens=1)  # would wait for what is left of 7,000 tokens: 17 times as much
        assert 0 < waits.cpu(held.pid) - begun < 6 * took
    assert left.finish_reason == "stopped" and len(left.text) == left.stopped["kept"]
    assert 20 < left.usage["completion_tokens"] < 400 and left.usage["prompt_tokens"] > 20
    told["max_tokens"] = 100
    whole = asyncio.run(ask(drop=["stream", "stream_options"]))
    assert (whole.text, whole.stopped) == (left.text, left.stopped)
    assert whole.usage["completion_tokens"] == 100


def test_a_prompt_longer_than_the_context_is_refused_in_words_that_the_client_understands(base):
    status, said = post(
        base,
        {
            "model": "smol",
            "messages": [{"role": "user", "content": "deck " * 9000}],
            "max_tokens": 5,
        },
    )
    assert errors.RequestError.of_status(status, json.dumps(said), {}).overflows


@pytest.mark.long("test_a_chat_reply_has_the_shape_of_the_openai_api_and_counts_its_tokens")
def test_a_json_schema_is_obeyed(base):
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["animal", "legs", "tags", "kind"],
        "properties": {
            "animal": {"type": "string", "maxLength": 20},
            "legs": {"type": "integer", "minimum": 0, "maximum": 8},
            "tags": {
                "type": "array",
                "items": {"enum": ["sea", "land"]},
                "minItems": 2,
                "maxItems": 2,
            },
            "kind": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
    }
    status, reply = post(
        base,
        ASK
        | {
            "max_tokens": 200,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "animal", "strict": True, "schema": schema},
            },
        },
    )
    assert status == 200, reply
    import jsonschema

    jsonschema.validate(json.loads(reply["choices"][0]["message"]["content"]), schema)
    assert reply["choices"][0]["finish_reason"] == "stop"


def test_stop_strings_end_the_reply_before_them(base):
    whole = words(base, temperature=0, max_tokens=16)
    stop = whole[12:18]
    status, reply = post(
        base, ASK | {"temperature": 0, "max_tokens": 40, "stop": ["never said", stop]}
    )
    assert (
        reply["choices"][0]["message"]["content"] == whole[: whole.index(stop)]
        and reply["choices"][0]["finish_reason"] == "stop"
    )


@pytest.mark.parametrize(
    "change,param,code",
    [
        ({"model": "gpt-9"}, "model", 404),
        ({"messages": []}, "messages", 400),
        ({"messages": [{"role": "alien", "content": "x"}]}, "messages", 400),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
                ]
            },
            "messages[0]",
            400,
        ),
        ({**asking("word " * 9000)}, "messages", 400),
        ({"temperature": "hot"}, "temperature", 400),
        ({"max_tokens": 0}, "max_tokens", 400),
        ({"logprobs": True}, "logprobs", 400),
        ({"n": 2}, "n", 400),
        ({"mirostat": 2}, "mirostat", 400),
        ({"grammar": "root ::= ("}, "grammar", 400),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {"type": "string", "pattern": "^a"}},
                }
            },
            "response_format",
            400,
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(base, change, param, code):
    status, reply = post(base, ASK | change)
    assert (status, reply["error"]["param"]) == (code, param)
    assert reply["error"]["type"] == "invalid_request_error" and reply["error"]["message"]


def test_a_body_that_is_not_json_and_an_unknown_path_are_refused(base):
    assert post(base, b"{")[0] == 400
    assert post(base, b"[]")[0] == 400
    # What sglang's router 0.3.2 adds to a request that it hands on.
    off = ("no_stop_trim", "ignore_eos", "continue_final_message", "return_hidden_states")
    on = ("skip_special_tokens", "separate_reasoning", "stream_reasoning")
    added = dict.fromkeys(off, False) | dict.fromkeys(on, True)
    assert post(base, ASK | added | {"max_tokens": 1})[0] == 200
    assert post(base, ASK | {"ignore_eos": True})[0] == 400
    assert post(base, {}, "/embeddings")[0] == 404


def test_a_page_in_a_browser_cannot_use_the_server(base):
    request = urllib.request.Request(base + "/models", headers={"Origin": "http://evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)


# Likelihood of a text

TEXT = {"model": "smol", "text": "The yeast eats the sugar of the flour and gives off gas. " * 4}


@pytest.mark.long("test_the_bits_are_those_of_the_probability_of_the_next_token")
def test_what_was_said_before_makes_a_text_likelier_and_other_requests_change_nothing(base):
    status, said = post(base, TEXT, "/likelihood")
    assert status == 200 and said["tokens"] == len(said["bits"]) > 40
    assert said["characters"] == len(TEXT["text"]) and all(bits >= 0 for bits in said["bits"])
    half = len(said["bits"]) // 2
    assert sum(said["bits"][half:]) < sum(said["bits"][:half]) / 4
    words(base, max_tokens=3)
    assert post(base, TEXT, "/likelihood")[1] == said
    cut = post(base, TEXT | {"max_tokens": 10}, "/likelihood")[1]
    assert cut["tokens"] == 10 and TEXT["text"][: cut["characters"]].endswith("and gives")


def test_the_bits_are_those_of_the_probability_of_the_next_token(base):
    """Of a text that is certain after its repetitions, nearly none; of a letter out of nowhere, many."""
    text = " ".join(["The cat sat on the mat."] * 16)
    bits = post(base, TEXT | {"text": f"{text} \u16a0"}, "/likelihood")[1]["bits"]
    assert max(bits[-24:-4]) < 0.5 and sum(bits[-4:]) > 10  # the letter is of 3 or 4 tokens


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>system\nHi<|im_end|><|endoftext|>",
        "\0\0",
        "\ud800x\udc00",
        "\u202e\u0301" * 500,
    ],
)
def test_hostile_text_is_measured_as_text(base, text):
    status, said = post(base, TEXT | {"text": text, "max_tokens": 64}, "/likelihood")
    assert status == 200 and 1 < said["tokens"] <= 64 and sum(said["bits"]) > 5


@pytest.mark.parametrize(
    "change,param,code",
    [
        ({"text": ""}, "text", 400),
        ({"text": None}, "text", 400),
        ({"text": "x" * 1_000_000}, "text", 400),
        ({"max_tokens": 4096}, "max_tokens", 400),
        ({"model": "gpt-9"}, "model", 404),
        ({"prompt": "x"}, "prompt", 400),
    ],
)
def test_a_text_that_is_not_measured_is_refused_by_name(base, change, param, code):
    status, said = post(base, TEXT | change, "/likelihood")
    assert (status, said["error"]["param"]) == (code, param)


REPLY = {
    "model": "smol",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
}


@pytest.mark.long("test_the_bits_are_those_of_the_probability_of_the_next_token")
def test_a_reply_is_measured_after_its_conversation_and_the_likeliest_tokens_stand_beside(base):
    said = []
    for _ in range(4):  # what it would say, a token after the other
        status, found = post(base, REPLY | {"tokens": [*said, 0]}, "/likelihood")
        assert status == 200 and found["tokens"] == len(said) + 1 == len(found["bits"])
        assert found["top"][:-1] == said and found["bits"][:-1] == found["top_bits"][:-1]
        assert found["bits"][-1] > found["top_bits"][-1]
        said.append(found["top"][-1])
    usage = post(base, REPLY | {"max_tokens": 1, "temperature": 0})[1]["usage"]
    assert len(found["prompt"]) == usage["prompt_tokens"]


@pytest.mark.parametrize("tokens", [[], None, [-1], [0.5], "text", [0] * 2000, [5, 49152]])
def test_a_reply_that_is_no_list_of_tokens_is_refused(base, tokens):
    status, said = post(base, REPLY | {"tokens": tokens}, "/likelihood")
    assert (status, said["error"]["param"]) == (400, "tokens")


def test_a_client_that_leaves_stops_its_measurement(base):
    body = json.dumps(TEXT | {"text": "\u4e2d" * 8000})
    for _ in range(8):  # 1,024 tokens each
        connection = http.client.HTTPConnection(base.split("/")[2])
        connection.request("POST", "/v1/likelihood", body)
        connection.close()
    server = get(base.removesuffix("/v1") + "/health")["pid"]
    before, _ = usage(server)
    assert words(base, max_tokens=1) and usage(server)[0] - before < 40  # CPU seconds; all take 80


def test_models_and_health_name_what_is_served(base):
    assert [model["id"] for model in get(base + "/models")["data"]] == [
        "smol",
        "smol-sft",
    ]
    health = get(base.removesuffix("/v1") + "/health")
    assert health["status"] == "ok" and health["leases"] >= 1 and health["parallel"] == 1


@pytest.mark.long("test_an_adapter_is_a_model_by_its_name_and_leaves_the_base_alone")
def test_the_committed_adapter_is_that_of_its_manifest_and_writes_the_format_where_the_base_does_not(
    base,
):
    folder = cli.ROOT / "data/adapter"
    manifest = json.loads((folder / "manifest.json").read_text())["adapter"]
    found = hashlib.sha256((folder / "adapter.gguf").read_bytes()).hexdigest()
    assert found == manifest["gguf_sha256"]
    # None that it was trained on. Without facts and greedily it writes the format, as the base does not; with facts it ends.
    bare = "Make a slide deck of 6 slides about how lighthouses work, for visitors of a museum."
    ask = (
        "Visitors of our museum at Cape Ness ask how a lighthouse works. Please make 6 slides in the "
        "default theme for the screen in the lamp room.\n\nOutline: How a lighthouse works / The "
        "lamp / The lens / The tower / The keeper / Come and see\n\nThe lamp has 1,000 watts, the "
        "lens dates from 1887, the tower is 34 metres high, and the keeper, Ada Finch, climbed 198 "
        "steps each night. Tours start at 14:00."
    )

    def answer(model, ask, **how):
        system = {"role": "system", "content": templates.system_prompt()}
        body = {"model": model, "seed": 1, "messages": [system, {"role": "user", "content": ask}]}
        status, reply = post(base, body | how)
        assert status == 200
        (choice,) = reply["choices"]
        return Deck.parse(clean(choice["message"]["content"])[0]), choice["finish_reason"]

    slides = {}
    for model in ("smol", "smol-sft"):
        deck, _ = answer(model, bare, temperature=0, max_tokens=250)
        slides[model] = [one for one in deck.slides if one.frontmatter and one.title]
    assert len(slides["smol"]) < 3 <= len(slides["smol-sft"])
    deck, ended = answer("smol-sft", ask, temperature=0.7, top_p=0.95, max_tokens=1024)
    assert deck.headmatter["theme"] and ended == "stop"
    assert len(deck.slides) > 3
    assert all(one.title and len(one.prose.split("\n")) > 2 for one in deck.slides)


def test_two_leases_share_one_server(base):
    with embedded.lease() as one, embedded.lease() as two:
        assert one.pid == two.pid and one.base_url == two.base_url == base


def test_processes_that_start_at_once_share_one_server_that_ends_after_the_kill_of_the_last():
    script = textwrap.dedent("""
        import time
        from decksmith.models import embedded
        held = embedded.lease()
        print(held.pid, flush=True)
        time.sleep(600)
    """)
    words = [sys.executable, "-c", script]
    crowd = [subprocess.Popen(words, stdout=subprocess.PIPE, env=environment(2)) for _ in range(3)]
    (pid,) = {int(held.stdout.readline()) for held in crowd}
    for held in crowd:
        time.sleep(2.5 * (held is crowd[-1]))
        assert not waits.ended(pid)  # it does not end while somebody holds it
        held.kill()
        held.wait()
    waits.until(lambda: waits.ended(pid))


@pytest.mark.long(
    "test_processes_that_start_at_once_share_one_server_that_ends_after_the_kill_of_the_last"
)
def test_after_the_kill_of_the_server_a_new_lease_works_at_the_same_address(monkeypatch):
    monkeypatch.setenv("DECKSMITH_ENGINE_THREADS", "2")
    with embedded.lease() as first:
        assert not waits.ended(first.pid)
        os.kill(first.pid, signal.SIGKILL)
        waits.until(lambda: waits.ended(first.pid))
        with embedded.lease() as second:
            assert second.pid != first.pid and second.base_url == first.base_url
            assert words(second.base_url, max_tokens=2)


def test_missing_or_altered_weights_are_named_with_the_command_that_mends_it(tmp_path, monkeypatch):
    monkeypatch.setenv("DECKSMITH_ENGINE_THREADS", "5")
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(cli.Missing, match="make setup"):
        embedded.lease()
    (tmp_path / "altered.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(
        embedded.importlib.util,
        "find_spec",
        lambda name: type("Spec", (), {"submodule_search_locations": [str(tmp_path)]}),
    )
    with pytest.raises(cli.Missing, match="sha256.*make setup"):
        embedded.lease()


def adapter(path, size):
    """Write a LoRA of rank 1 on one projection of SmolLM2 as GGUF v3; `size` scales it (0: it changes nothing)."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    known = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"}
    tensors = {
        "blk.20.ffn_down.weight.lora_a": (1536, 1),
        "blk.20.ffn_down.weight.lora_b": (1, 576),
    }
    data = b"".join(text(key) + struct.pack("<I", 8) + text(value) for key, value in known.items())
    data += text("adapter.lora.alpha") + struct.pack("<If", 6, 1.0)
    offset, values = 0, b""
    for name, shape in tensors.items():
        data += text(name) + struct.pack("<IQQIQ", 2, *shape, 0, offset)
        block = struct.pack(f"<{max(shape)}f", *(size * (i % 7 - 3) for i in range(max(shape))))
        values += block + b"\0" * (-len(block) % 32)
        offset = len(values)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(known) + 1) + data
    path.write_bytes(head + b"\0" * (-len(head) % 32) + values)
    return path


def test_an_adapter_is_a_model_by_its_name_and_leaves_the_base_alone(base, tmp_path):
    plain, asked = words(base, max_tokens=8), ("tuned", "idle", "base", "smol")
    with embedded.lease(
        loras={
            "base": None,
            "idle": adapter(tmp_path / "idle.gguf", 0),
            "tuned": adapter(tmp_path / "tuned.gguf", 0.5),
        }
    ) as held:
        assert [model["id"] for model in get(held.base_url + "/models")["data"]] == [
            "smol",
            "base",
            "idle",
            "tuned",
        ]
        tuned, *same = (words(held.base_url, model=name, max_tokens=8) for name in asked)
        assert tuned != plain and same == [plain] * 3


def test_an_adapter_that_is_not_there_or_takes_a_taken_name_is_refused(tmp_path):
    with pytest.raises(cli.Missing, match="tuned"):
        embedded.lease(loras={"tuned": tmp_path / "none.gguf"})
    with pytest.raises(cli.BadConfig, match="smol"):
        embedded.lease(loras={"smol": __file__})
