"""The pure parts of the client and its streams; what else it does on the wire is tested in tests/bin/chat-generate.bats."""

import asyncio
import email.utils
import subprocess
import sys
import time
from pathlib import Path

import aiohttp.test_utils
import pytest
import waits
from decksmith.core import cli
from decksmith.core.stream import Fault
from decksmith.models import client as chat_client
from decksmith.models import errors, registry, replies, servers
from hypothesis import given
from hypothesis import strategies as st

ENDPOINT = Path(__file__).parents[1] / "endpoint.py"


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        ("plain", "plain", ""),
        ("<think>\na thought\n</think>\n\n---\ndeck", "---\ndeck", "a thought"),
        ("  <think>cut off in the middle", "", "cut off in the middle"),
        ("opened by the template</think>\ndeck", "deck", "opened by the template"),
        ("---\n`<think>` in a code span stays", "---\n`<think>` in a code span stays", ""),
        ("", "", ""),
    ],
)
def test_thought_and_answer_are_parted(text, answer, reasoning):
    assert replies.split_reasoning(text) == (answer, reasoning)


def test_retry_after_is_read_as_seconds_milliseconds_or_a_date_and_is_bounded():
    assert errors.retry_after({"retry-after": "2.5"}) == 2.5
    assert errors.retry_after({"retry-after-ms": "250"}) == 0.25
    assert errors.retry_after({"retry-after": "99999"}) == 300
    date = email.utils.formatdate(time.time() + 250, usegmt=True)
    assert 0 < errors.retry_after({"retry-after": date}) <= 250
    assert errors.retry_after({"retry-after": "soon"}) is None
    assert errors.retry_after({}) is None


def test_a_request_takes_parameters_in_order_of_strength_and_speaks_the_endpoint_s_names():
    model = registry.Model(
        "m",
        "http://x/v1",
        "maker/m",
        params={"temperature": 1, "max_tokens": 10},
        rename={"max_tokens": "max_completion_tokens"},
        drop=["top_p"],
        extra_body={"usage": {"include": True}},
    )
    body = chat_client.Client(model).request(
        [{"role": "user", "content": "x"}], {"temperature": 0.2, "top_p": 0.9}, seed=3
    )
    assert body == {
        "model": "maker/m",
        "messages": [{"role": "user", "content": "x"}],
        "temperature": 0.2,
        "seed": 3,
        "max_completion_tokens": 10,
        "usage": {"include": True},
    }


def test_a_request_goes_through_the_site_s_proxy_with_our_key_and_not_with_one_of_netrc(
    monkeypatch, tmp_path
):
    (tmp_path / "netrc").write_text("machine model.invalid login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("OWN_KEY", "sk-0123456789")
    seen = []

    async def proxy(request):
        seen.append((request.raw_path, {**request.headers}))
        return aiohttp.web.json_response({"choices": [{"message": {"content": "by the proxy"}}]})

    async def main():
        server = aiohttp.test_utils.RawTestServer(proxy)
        await server.start_server()
        monkeypatch.setenv("http_proxy", f"user:word@{server.host}:{server.port}")
        model = registry.Model("m", "http://model.invalid/v1", "m", key_env="OWN_KEY")
        client = chat_client.Client(model)
        try:
            return await client.ask([{"role": "user", "content": "x"}])
        finally:
            await client.close()
            await server.close()

    assert asyncio.run(main()).text == "by the proxy"
    [(asked, headers)] = seen
    assert asked == "http://model.invalid/v1/chat/completions"
    assert headers["Authorization"] == "Bearer sk-0123456789"
    assert headers["Proxy-Authorization"].startswith("Basic ")
    monkeypatch.setenv("no_proxy", "model.invalid")
    assert servers.proxy_of("http://model.invalid/v1") is None


def test_every_entry_of_the_registry_is_complete():
    known = registry.models()
    assert {"smol", "smol-sft", "judge"} <= set(known)
    assert all(entry.base_url and entry.slug for entry in known.values())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[m]\nslug = 'x'\n", "[m] lacks 'base_url'"),
        ("[m]\nslug = 'x'\nbase_url = ' '\n", "[m] lacks 'base_url', a text that is not empty"),
        ("[m]\nslug = 3\nbase_url = 'u'\n", "[m] lacks 'slug', a text"),
        (
            "[m]\nslug = 'x'\nbase_url = 'u'\ntemprature = 1\n",
            "[m] has an unknown key 'temprature'",
        ),
        ("[m\n", "models.toml"),
        (
            "[m]\nslug = 'x'\nbase_url = 'u'\nextra_body = { messages = [] }\n",
            "[m] extra_body.messages: not a model's to set",
        ),
        (
            "[m]\nslug = 'x'\nbase_url = 'u'\nextra_body = { model = 'y' }\n",
            "[m] extra_body.model: not a model's to set",
        ),
        (
            "[m]\nslug = 'x'\nbase_url = 'u'\nextra_body = { models = ['y'] }\n",
            "[m] extra_body.models: not a model's to set",
        ),
        (
            "[m]\nslug = 'x'\nbase_url = 'u'\nparams = { n = 4 }\n",
            "[m] params.n: not a model's to set",
        ),
        (
            "[m]\nslug = 'x'\nbase_url = 'u'\nparams = { stream_options = {} }\n",
            "[m] params.stream_options: not a model's to set",
        ),
        (
            "[m]\nslug = 'x'\nbase_url = 'u'\nrename = { top_k = 'n' }\n",
            "[m] rename.n: not a model's to set",
        ),
        (
            "[m]\nslug = 'x'\nbase_url = 'u'\nrename = { messages = 'input' }\n",
            "[m] rename.input: not a model's to set",
        ),
        (
            "[m]\nslug = 'x'\nbase_url = 'u'\ndrop = ['messages']\n",
            "[m] drop.messages: not a model's to set",
        ),
    ],
)
def test_a_faulty_registry_is_named_with_its_key(tmp_path, monkeypatch, text, words):
    monkeypatch.setattr(registry, "REGISTRY", tmp_path / "models.toml")
    registry.REGISTRY.write_text(text)
    with pytest.raises(cli.BadConfig, match=words.replace("[", r"\[")):
        registry.models()


def test_what_an_endpoint_cannot_take_may_be_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "REGISTRY", tmp_path / "models.toml")
    registry.REGISTRY.write_text(
        "[m]\nslug = 'x'\nbase_url = 'u'\ndrop = ['stream_options', 'seed', 'response_format', 'top_p']\n"
    )
    assert registry.models()["m"].drop == ["stream_options", "seed", "response_format", "top_p"]


def test_two_models_were_asked_the_same_where_the_fingerprints_of_their_requests_are_equal():
    def asked(slug, **body):
        return chat_client.asked(
            {"model": slug, "messages": [{"role": "user", "content": "Deck"}], **body}
        )

    one = asked("a", temperature=0.7)
    assert one["sampling"] == {"temperature": 0.7} and one == asked("b", temperature=0.7)
    for other in (
        asked("a", temperature=0.6),
        asked("a"),
        asked("a", temperature=0.7, reasoning={"effort": "high"}),
        asked("a", temperature=0.7, messages=[{"role": "user", "content": "Decks"}]),
    ):
        assert other["request"] != one["request"]


def parted(pieces):
    """What a listener of a stream makes of it: (text, reasoning)."""
    said = {"text": "", "reasoning": ""}

    def on_chunk(kind, piece):
        if kind == "turn":
            said["reasoning"], said["text"] = said["reasoning"] + said["text"], ""
        else:
            said[kind] += piece

    splitter = replies.StreamSplitter(on_chunk)
    for piece in pieces:
        splitter.feed({"content": piece})
    splitter.end()
    return said["text"], said["reasoning"].strip()


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    "<think>",
                    "</think>",
                    "<thi",
                    "nk>",
                    "</",
                    "</thin",
                    "k>",
                    "\n",
                    " ",
                    "---\n",
                    "a",
                ]
            ),
            st.text(max_size=4),
        ),
        max_size=12,
    )
)
def test_a_stream_is_parted_as_the_whole_reply_wherever_it_is_cut(pieces):
    assert parted(pieces) == replies.split_reasoning("".join(pieces))


def stream(endpoint, *, model="m", **how):
    """(Reply or the fault's error, what was heard) of one streamed request."""
    heard = []

    async def go():
        client = chat_client.Client(registry.Model("m", endpoint, model), **{"retries": 2, **how})
        try:
            return await client.ask(
                [{"role": "user", "content": "Deck"}],
                on_chunk=lambda kind, piece: heard.append((kind, piece)),
            ), client
        except Fault as fault:
            return fault.error, client
        finally:
            await client.close()

    return *asyncio.run(go()), heard


@pytest.fixture
def endpoint():
    """Start tests/endpoint.py with options: `endpoint("--plan", "cut=1")` gives its address."""
    started = []

    def start(*options):
        started.append(
            subprocess.Popen(
                [sys.executable, ENDPOINT, *options], stdout=subprocess.PIPE, text=True
            )
        )
        return started[-1].stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_streamed_reply_is_the_reply_that_comes_in_one_piece_and_is_heard_in_many(endpoint):
    url = endpoint("--plan", "reasoning=1", "--times", "9")

    async def whole():
        client = chat_client.Client(registry.Model("m", url, "m"))
        try:
            return await client.ask([{"role": "user", "content": "Deck"}])
        finally:
            await client.close()

    reply, _, heard = stream(url)
    ask = asyncio.run(whole())
    assert (reply.text, reply.reasoning, reply.finish_reason, reply.usage) == (
        ask.text,
        ask.reasoning,
        ask.finish_reason,
        ask.usage,
    )
    assert (
        len(heard) > 10 and "".join(piece for kind, piece in heard if kind == "text") == reply.text
    )
    assert [piece for kind, piece in heard if kind == "reasoning"] == ["step", " by", " step"]


@pytest.mark.long(
    "tests/bin/chat-generate.bats::passing faults of the endpoint are retried until every row has its reply"
)
@pytest.mark.slow
def test_a_stream_is_asked_for_again_until_something_was_heard_and_never_after(endpoint):
    for plan in ("500=1", "429=1", "drop=1", "empty=1"):
        reply, _, heard = stream(endpoint("--plan", plan))
        assert reply.attempts == 2 and "".join(piece for _, piece in heard) == reply.text, plan
    for plan, words in (
        ("cut=1", "the reply was cut off: "),
        ("error=1", "the reply was cut off: HTTP 503: the GPU fell off"),
    ):
        error, client, heard = stream(endpoint("--plan", plan))
        assert (error["kind"], error["class"]) == ("infra", "cut-off") and error[
            "message"
        ].startswith(words)
        assert heard and client.reserved == 0


def test_an_endpoint_that_cannot_stream_is_heard_in_one_piece(endpoint):
    reply, _, heard = stream(endpoint("--plan", "whole=1"))
    assert heard == [("text", reply.text)] and reply.attempts == 1


def test_whoever_stops_listening_stops_the_endpoint_and_pays_for_what_was_written(endpoint):
    url = endpoint("--pace", "0.01")

    async def go(stop):
        client, heard = (
            chat_client.Client(
                registry.Model("m", url, "endless", price={"prompt": 1e6, "completion": 1e6}),
                budget=1e6,
            ),
            [],
        )

        def hear(kind, piece):
            heard.append(piece)
            if len(heard) == 5:
                stop(task)

        task = asyncio.ensure_future(
            client.ask([{"role": "user", "content": "Deck"}], {"max_tokens": 9}, on_chunk=hear)
        )
        try:
            with pytest.raises((asyncio.CancelledError, Fault)):
                await task
            async with aiohttp.ClientSession() as session:
                while True:
                    async with session.get(url.replace("/v1", "/stats")) as answer:
                        if (await answer.json())["streams"] == 0:
                            return client
                    await asyncio.sleep(0.02)
        finally:
            await client.close()

    def refuse(task):
        raise Fault("model", "too-long", "enough")

    for stop in (asyncio.Task.cancel, refuse):
        client = asyncio.run(go(stop))
        assert client.spent > 5 and client.reserved == 0 and client.gate.inside == 0


# Requests that are never answered, and requests that do not fit


def asked(url, text="Deck", *, sampling=None, patience=None, **entry):
    """What becomes of one request: the Reply or the fault's error."""

    async def go():
        client = chat_client.Client(
            registry.Model("m", url, **{"slug": "m", **entry}), patience=patience, blame="model"
        )
        try:
            return await client.ask([{"role": "user", "content": text}], sampling)
        except Fault as fault:
            return fault.error
        finally:
            await client.close()

    return asyncio.run(go())


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["hang", "stall", "drip"])
def test_patience_ends_a_request_that_is_never_answered_to_the_end(endpoint, plan):
    error = asked(endpoint("--plan", f"{plan}=1", "--times", "99"), patience=1.5)
    assert (error["kind"], error["class"]) == (
        "infra",
        "timeout",
    ) and "no whole reply in 1." in error["message"], error


@pytest.mark.slow
def test_patience_ends_a_connection_that_never_opens():
    import contextlib
    import socket

    with contextlib.ExitStack() as held:
        server = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # the queue is full: the next knock is not answered
            knock = held.enter_context(socket.socket())
            knock.setblocking(False)
            knock.connect_ex(server.getsockname())
        error = asked(f"http://127.0.0.1:{server.getsockname()[1]}/v1", patience=1.5)
    assert error["class"] in ("timeout", "connection"), error


@pytest.mark.slow
def test_patience_is_the_entry_s_timeout_where_that_is_longer_and_does_not_run_while_a_request_waits_for_its_turn(
    endpoint,
):
    assert chat_client.Client(registry.Model("m", "u", "m", timeout=3600)).patience == 3600
    assert chat_client.Client(registry.Model("m", "u", "m", timeout=60)).patience == 900
    url = endpoint("--latency", "0.3")

    async def go():
        client = chat_client.Client(registry.Model("m", url, "m"), jobs=1, patience=waits.HANG)
        loop, ahead, real = asyncio.get_running_loop(), 0, asyncio.get_running_loop().time
        loop.time = lambda: real() + ahead
        try:
            asks = [
                asyncio.create_task(client.ask([{"role": "user", "content": str(n)}]))
                for n in range(4)
            ]
            for ask in asks:  # before each of them the others have waited for half of it
                await ask
                ahead += waits.HANG / 2
        finally:
            await client.close()

    asyncio.run(go())


@pytest.fixture(scope="module")
def narrow():
    """An endpoint whose models have a context of 1000 tokens, and each the words of another server."""
    process = subprocess.Popen(
        [sys.executable, ENDPOINT, "--context", "1000"], stdout=subprocess.PIPE, text=True
    )
    yield process.stdout.readline().strip()
    process.kill()
    process.wait()


SERVERS = ["openai", "vllm", "vllm-0.9", "openrouter", "total", "sglang", "llama.cpp", "mute"]
PROMPT = "word" * 200  # 200 tokens of the endpoint's


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(("prompt", "limit"), [(PROMPT, 900), ("word" * 1200, 900)])
def test_a_request_that_does_not_fit_is_the_model_s_fault(narrow, server, prompt, limit):
    if server == "llama.cpp" and prompt is PROMPT:
        pytest.skip("it looks at the prompt alone")
    error = asked(narrow, prompt, slug=server, sampling={"max_tokens": limit})
    assert (error["kind"], error["class"], error["retriable"]) == (
        "model",
        "context-overflow",
        False,
    ), error
    assert error["message"].startswith("the request does not fit the model's context (HTTP 4")


@pytest.mark.parametrize(
    ("finish", "limit", "written", "thought", "said"),
    [
        ("length", 100, 100, 0, "max_tokens"),
        ("length", 100, 60, 0, "server"),
        ("length", 100, 60, 30, "server"),
        ("length", 100, 60, 50, None),  # as many as were asked for, if the thought counts apart
        ("length", 100, 0, 0, None),  # the endpoint counts nothing
        ("length", None, 60, 0, None),
        ("stop", 100, 60, 0, None),
    ],
)
def test_what_cut_a_reply_off_follows_from_its_counts(finish, limit, written, thought, said):
    usage = {"completion_tokens": written, "reasoning_tokens": thought}
    reply = replies.Reply("x", "", finish, usage, 1.0, 1)
    assert replies.cut_by(reply, limit) == said


def test_a_request_that_fits_is_answered(narrow):
    assert asked(narrow, PROMPT, slug="vllm", sampling={"max_tokens": 800}).text


@pytest.mark.parametrize(
    "text",
    [
        '{"error": {"code": "context_length_exceeded", "message": "Input tokens exceed the configured limit of 272000 tokens. Your messages '
        'resulted in 300012 tokens. Please reduce the length of the messages."}}',
        '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens \\u003e 200000 maximum"}}',
        # vLLM 0.32.0, which itself shortens a reply whose max_tokens alone would fit
        "max_tokens=4096 cannot be greater than max_model_len=2048. Please request fewer output tokens. (parameter=max_tokens, value=4096)",
        "input length and `max_tokens` exceed context limit: 198000 + 8192 > 200000, decrease input length or `max_tokens`",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        "Prompt contains 235396 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000 `inputs` tokens and 2000 `max_new_tokens`",
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
        "the prompt has 9000 tokens, the context holds 8192 (context_length_exceeded)",
    ],
)
def test_the_words_of_other_endpoints_are_understood(text):
    assert errors.RequestError.of_status(400, text, {}).overflows


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (429, "Rate limit reached: maximum context length tokens per minute"),
        (400, "temperature must be at most 2"),
        (401, "context_length_exceeded"),
        (400, "this image is too large"),
        (500, "out of memory"),
    ],
)
def test_what_speaks_of_something_else_is_no_overflow(status, text):
    assert not errors.RequestError.of_status(status, text, {}).overflows


def test_what_the_endpoint_calls_its_reply_is_kept_be_it_whole_or_streamed(endpoint):
    url = endpoint()
    for number, (reply, *_) in enumerate(([asked(url)], stream(url)), 1):
        assert reply.response == {
            "id": f"chatcmpl-{number}",
            "model": "m",
            "created": 1700000000,
            "system_fingerprint": "fp_44709d6fcb",
        }
