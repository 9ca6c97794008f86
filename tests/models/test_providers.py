"""The shipped entries of providers against stand-ins that take and refuse what the providers' own pages and error reports say."""

import asyncio
import json
import os
import subprocess
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from decksmith.core import cli
from decksmith.core.stream import Fault
from decksmith.models import errors, registry, replies
from decksmith.models.client import Client

HELLO = [{"role": "user", "content": "Hello"}]
# What assets/protocols/offline.toml and published.toml ask for.
SAMPLING = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 4096}
RULE = {"stop_early": {"repeats": 3, "repeated_characters": 400, "no_slide_tokens": 600}}
KEYS = {
    "openai": "OPENAI_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "hf": "HF_TOKEN",
}


def reply(text="---\n# One", finish="stop", usage=(10, 5), **more):
    said = {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}
        ],
    }
    if usage:
        said["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return 200, said | more


def openai_error(message, status=400, **more):
    said = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return status, {"error": said | more}


def openai(body):
    """Reasoning models: another name for the limit, and the default temperature alone."""
    if "max_tokens" in body:
        said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        return openai_error(said, param="max_tokens", code="unsupported_parameter")
    if body.get("temperature", 1) != 1:
        said = "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported."
        return openai_error(said, param="temperature", code="unsupported_value")
    return reply()


def azure(body):
    """As OpenAI; a stream begins with an event that has no choice and one that has no delta."""
    status, said = openai(body)
    if status != 200 or not body.get("stream"):
        return status, said
    verdict = {"hate": {"filtered": False, "severity": "safe"}}
    filters = [{"prompt_index": 0, "content_filter_results": verdict}]
    part = {"index": 0, "finish_reason": None, "content_filter_results": verdict}
    events = [
        {"id": "", "choices": [], "prompt_filter_results": filters},
        {"id": "", "choices": [part], "usage": None},
        {"id": "c", "choices": [part | {"delta": {"role": "assistant", "content": "---\n# One"}}]},
        {"id": "c", "choices": [part | {"delta": {}, "finish_reason": "stop"}]},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
    ]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return 200, "".join([*lines, "data: [DONE]\n\n"])


def anthropic(body):
    said = {"type": "error", "error": {"type": "invalid_request_error", "message": ""}}
    if "temperature" in body and "top_p" in body:
        said["error"]["message"] = (
            "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        )
        return 400, said
    if body.get("n", 1) != 1:
        said["error"]["message"] = "n: must be 1"
        return 400, said
    return reply()


TAKEN_BY_GEMINI = set(
    "model messages temperature top_p max_tokens max_completion_tokens stream stream_options stop n tools tool_choice"
    " response_format reasoning_effort".split()
)


def gemini(body):
    """Names the fields that it does not know in a list with one error."""
    if unknown := sorted(set(body) - TAKEN_BY_GEMINI):
        said = "\n".join(
            f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
            for name in unknown
        )
        return 400, [{"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}]
    return reply()


def hf(body):
    """Whoever serves an open model takes what vLLM takes."""
    return reply()


TAKERS = {"openai": openai, "azure": azure, "anthropic": anthropic, "gemini": gemini, "hf": hf}


class Provider:
    """Answers by `answer(body)` -> (status, JSON or the text of a stream[, headers]); `asked`: (path, key, body) of each."""

    def __init__(self, answer):
        self.asked, provider = [], self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                provider.asked.append((self.path, self.headers["Authorization"], body))
                status, said, *headers = answer(body)
                is_stream = isinstance(said, str)
                data = said.encode() if is_stream else json.dumps(said).encode()
                self.send_response(status)
                kind = "text/event-stream" if is_stream else "application/json; charset=utf-8"
                for name, value in {
                    "Content-Type": kind,
                    **(headers[0] if headers else {}),
                }.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def provider(monkeypatch):
    for key in KEYS.values():
        monkeypatch.setenv(key, f"key-of-{key}")
    started = []

    def start(answer):
        started.append(Provider(answer))
        return started[-1]

    yield start
    for one in started:
        one.server.shutdown()
        one.server.server_close()


def ask(entry, url, times=1, **more):
    """The replies, or faults, of so many requests to an entry at another address."""

    async def run():
        client = Client(replace(entry, base_url=url), retries=2)
        try:
            found = []
            for _ in range(times):
                try:
                    found.append(await client.ask(HELLO, SAMPLING | RULE, seed=3, **more))
                except Fault as fault:
                    found.append(fault)
            return found, client
        finally:
            await client.close()

    return asyncio.run(run())


@pytest.mark.parametrize("name", TAKERS)
def test_what_a_protocol_asks_for_is_taken_by_each_provider_as_its_entry_says_it(name, provider):
    standing = provider(TAKERS[name])
    entry = registry.model(name)
    [got], _ = ask(entry, standing.url)
    assert got.text == "---\n# One" and got.usage["completion_tokens"] == 5, str(got)
    [(path, key, body)] = standing.asked
    assert (path, key) == ("/v1/chat/completions", f"Bearer key-of-{KEYS[name]}")
    assert 4096 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert body["model"] == entry.slug and "stop_early" not in body


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("openai", 'write rename = { max_tokens = "max_completion_tokens" } into the entry [mine]'),
        ("anthropic", 'write drop = ["temperature"] into the entry [mine]'),
        ("gemini", 'Unknown name "seed": Cannot find field.; write drop = ["seed"] into the entry'),
    ],
)
def test_a_field_that_is_refused_is_named_with_what_to_write_and_asked_once(name, said, provider):
    standing = provider(TAKERS[name])
    [fault], _ = ask(registry.Model("mine", "", "m"), standing.url)
    assert said in fault.error["message"] and fault.error["class"] == "http-400", fault.error
    assert '{"error' not in fault.error["message"] and len(standing.asked) == 1


@pytest.mark.parametrize(
    ("name", "status", "said", "heard"),
    [
        (
            "openai",
            429,
            openai_error(
                "You exceeded your current quota, please check your plan and billing details.",
                type="insufficient_quota",
                code="insufficient_quota",
            )[1],
            "said 402, the account has no credit: HTTP 429: You exceeded your current quota",
        ),
        (
            "gemini",
            400,
            [
                {
                    "error": {
                        "code": 400,
                        "message": "API key not valid. Please pass a valid API key.",
                        "status": "INVALID_ARGUMENT",
                        "details": [{"reason": "API_KEY_INVALID"}],
                    }
                }
            ],
            "said 401, the key is refused: HTTP 400: API key not valid. .* (key from GEMINI_API_KEY)",
        ),
        (
            "anthropic",
            401,
            {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}},
            "said 401, the key is refused: HTTP 401: invalid x-api-key (key from ANTHROPIC_API_KEY)",
        ),
        (
            "azure",
            404,
            {"error": {"code": "DeploymentNotFound", "message": "The API deployment for this resource does not exist."}},
            "said 404, no such model or path: HTTP 404: The API deployment for this resource does not exist.",
        ),
        (
            "hf",
            402,
            {"error": "You have exceeded your monthly included credits for Inference Providers."},
            "said 402, the account has no credit: HTTP 402: You have exceeded your monthly included credits",
        ),
    ],
)  # fmt: skip
def test_what_no_request_can_mend_is_asked_once_and_ends_all(name, status, said, heard, provider):
    standing = provider(lambda body: (status, said))
    faults, _ = ask(registry.model(name), standing.url, times=3)
    for part in heard.split(".*"):
        assert part in faults[0].error["message"]
    assert [fault.error["class"] for fault in faults[1:]] == ["circuit-open"] * 2
    assert len(standing.asked) == 1


def test_a_rate_limit_is_waited_for_in_each_form_and_the_reply_paid_once(provider):
    said = "You exceeded your current quota, please check your plan and billing details."
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.05s"}]
    forms = {
        "gemini": (429, [{"error": {"code": 429, "message": said, "details": details}}]),
        "azure": (429, {"error": {"code": "429", "message": "busy"}}, {"retry-after-ms": "50"}),
        "anthropic": (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, {"retry-after": "0.05"}),
        "hf": (429, {"message": "Rate limit reached"}, {"Retry-After": "0.05"}),
    }  # fmt: skip
    for name, refusal in forms.items():
        count = []

        def answer(body, name=name, refusal=refusal, count=count):
            count.append(body)
            return refusal if len(count) == 1 else TAKERS[name](body)

        standing = provider(answer)
        [got], _ = ask(registry.model(name), standing.url)
        assert got.text == "---\n# One" and got.attempts == 2 == len(standing.asked), name
    assert (
        errors.RequestError.of_status(
            *forms["gemini"][:1], json.dumps(forms["gemini"][1]), {}
        ).after
        == 0.05
    )


def test_a_filter_that_refuses_a_request_is_its_row_s_error_and_the_next_is_asked(provider):
    said = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
    inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {}}
    standing = provider(lambda _: openai_error(said, code="content_filter", innererror=inner))
    faults, _ = ask(registry.model("azure"), standing.url, times=2)
    assert [fault.error["message"] for fault in faults] == [f"HTTP 400: {said}"] * 2
    assert len(standing.asked) == 2


def test_ends_of_their_own_names_and_answers_without_text_or_usage_are_read(provider):
    standing = provider(lambda _: reply(None, "MAX_TOKENS", usage=None))
    [cut], _ = ask(registry.model("gemini"), standing.url)
    assert (cut.text, cut.finish_reason) == ("", "length")
    standing = provider(lambda _: reply("", "content_filter", usage=None))
    [filtered], _ = ask(registry.model("azure"), standing.url)
    assert (filtered.text, filtered.finish_reason) == ("", "content_filter")


def test_a_reply_without_usage_counts_against_a_budget_by_a_guess(provider):
    text = "---\n# One\n\n" + " ".join(f"word-{n:b}" for n in range(400))
    standing = provider(lambda _: reply(text, usage=None))
    entry = replace(registry.model("anthropic"), price={"prompt": 1, "completion": 1000})
    [got], client = ask(entry, standing.url)
    assert got.usage["completion_tokens"] == replies.guessed(text) > 2000
    assert client.spent == got.usage["cost"] > 2
    free = replace(entry, price={"prompt": 0, "completion": 0})
    assert ask(free, standing.url)[0][0].usage["completion_tokens"] == 0


def test_an_address_takes_a_part_from_the_environment_and_asks_for_it(monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    for wrong in (None, "", "evil.example/x?", "a b", "${HOME}"):
        monkeypatch.delenv("AZURE_OPENAI_RESOURCE", raising=False)
        if wrong is not None:
            monkeypatch.setenv("AZURE_OPENAI_RESOURCE", wrong)
        with pytest.raises(
            cli.BadConfig,
            match="azure needs AZURE_OPENAI_RESOURCE, a part of its address .* in .env",
        ):
            Client(registry.model("azure"))
    monkeypatch.setenv("AZURE_OPENAI_RESOURCE", "team-9")
    assert registry.model("azure").base_url == "https://team-9.openai.azure.com/openai/v1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[entry", "Expected"),
        ("x = 3", "'x' is no entry's name; write [NAME] of letters"),
        ('["a/b"]\nbase_url = "http://h"\nslug = "x"', "'a/b' is no entry's name"),
        ('[".."]\nbase_url = "http://h"\nslug = "x"', "'..' is no entry's name"),
        (
            '[a]\nbase_url = "http://h"\nslug = "x"\nkeyenv = "K"',
            "unknown key 'keyenv' (did you mean key_env?)",
        ),
        ('[a]\nbase_url = "http://h"\nslug = ""', "[a] lacks 'slug'"),
    ],
)
def test_an_entry_that_cannot_be_used_is_named_with_its_file(text, said, monkeypatch, tmp_path):
    (tmp_path / "mine.toml").write_text(text)
    monkeypatch.setenv("DECKSMITH_MODELS", str(tmp_path))
    with pytest.raises(cli.BadConfig) as refused:
        registry.models()
    assert str(refused.value).startswith(f"{tmp_path}/mine.toml: ") and said in str(refused.value)


def test_a_second_run_of_a_provider_s_model_asks_and_pays_nothing(provider, tmp_path):
    standing = provider(gemini)
    entry = tmp_path / "models/gemini-x.toml"
    entry.parent.mkdir()
    entry.write_text(
        f'["gemini-x"]\nbase_url = "{standing.url}"\nslug = "x"\nkey_env = "GEMINI_API_KEY"\n'
        'drop = ["seed"]\nparams = { reasoning_effort = "low" }\n'
    )
    rows = "".join(json.dumps({"id": f"p{n}", "messages": HELLO}) + "\n" for n in range(3))
    command = [cli.ROOT / "bin/chat-generate", "--model", "gemini-x", "--run", tmp_path / "run"]
    env = os.environ | {"DECKSMITH_MODELS": str(entry.parent), "IMAGES": "off"}
    for _ in range(2):
        done = subprocess.run(
            [*command, "--protocol", "offline"], input=rows, env=env, capture_output=True, text=True
        )
        found = [json.loads(line)["gen"] for line in done.stdout.splitlines()]
        assert [gen["text"] for gen in found] == ["---\n# One"] * 3, done.stderr
        assert found[0]["model"]["params"] == {"reasoning_effort": "low"}
    assert len(standing.asked) == 3
    assert "key-of-GEMINI" not in (tmp_path / "run/journal/gen.jsonl").read_text()
