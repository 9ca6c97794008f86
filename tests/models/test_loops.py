"""Tools, prefill and completions, asked of a scripted endpoint on loopback."""

import asyncio
import os
import signal

import pytest
from decksmith.core.stream import Fault
from decksmith.models import client as chat_client
from decksmith.models import loops
from scripted import calling, generate, saying

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        },
    },
}
ROW = {
    "id": "r1",
    "messages": [{"role": "user", "content": "2 + 3?"}],
    "tools": [ADD],
    "tool_code": "def add(a, b):\n    return a + b\n",
}


def converse(endpoint, record, use=None, run=None):
    """(reply or Fault, messages, how often tools were used) of a loop in this process."""
    used, made = [], []

    def counted(source, name, arguments, seconds, cells):
        used.append((name, arguments))
        return use(name, arguments, cells) if use else "5"

    async def go():
        client = chat_client.Client.open(base_url=endpoint.url, slug="m", retries=0, blame="model")
        loop = loops.Loops(client, counted, run)
        body = client.request(record["messages"]) | {"tools": loops.offered(record)}
        try:
            return await loop.converse(record, body, made)
        except Fault as failed:
            return failed
        finally:
            await loop.close()

    return asyncio.run(go()), made, used


def test_what_a_model_gets_wrong_is_said_to_it_and_the_loop_goes_on(endpoint, monkeypatch):
    monkeypatch.setattr(loops, "LETTERS", 20)
    wrong = [("add", "{"), ("add", "[1]"), ("sub", "{}"), ("add", "[" * 90_000)]
    endpoint.script = lambda n, body: (
        200,
        calling(*wrong, *[("add", '{"a": 2}')] * 14) if n == 1 else saying("5"),
    )
    reply, made, used = converse(endpoint, ROW, lambda *_: "é" * 30)
    assert reply.text == "5" and reply.usage["prompt_tokens"] == 20
    told = endpoint.tools_seen()
    assert told[0].startswith("error: the arguments are no JSON (")
    assert told[1] == "error: the arguments are no JSON object"
    assert told[2] == "error: no function 'sub'; there are: add"
    assert told[3].startswith("error: the arguments are no JSON (")
    assert told[4] == "é" * 20 + "\n(cut after 20 characters)"
    assert told[16:] == ["error: not run, since a reply may make at most 16 calls"] * 2
    assert used == [("add", {"a": 2})] * 12
    assert [message["role"] for message in made] == ["assistant", *["tool"] * 18, "assistant"]


def test_a_model_that_never_stops_calling_is_asked_so_often_and_no_more(endpoint, monkeypatch):
    monkeypatch.setattr(loops, "CALLS", 3)
    endpoint.script = lambda n, body: (200, calling(("add", "{}")))
    reply, made, used = converse(endpoint, ROW)
    assert len(endpoint.asked) == 3 and len(used) == 2 and reply.text == ""
    assert made[-1]["tool_calls"] and reply.usage["completion_tokens"] == 6


def test_a_conversation_that_outgrows_the_context_keeps_what_it_has(endpoint):
    over = {"error": {"message": "This model's maximum context length is 64 tokens."}}
    endpoint.script = lambda n, body: (200, calling(("add", "{}"))) if n == 1 else (400, over)
    failed, made, _ = converse(endpoint, ROW)
    assert (failed.error["kind"], failed.error["class"]) == ("model", "context-overflow")
    assert [message["role"] for message in made] == ["assistant", "tool"]


def test_a_loop_that_goes_on_asks_and_runs_nothing_twice(endpoint, tmp_path):
    """Also where what came has half of a surrogate pair, which no file keeps."""
    endpoint.script = lambda n, body: (
        (200, calling(("add", '{"a": "\ud800"}'))) if n == 1 else (503, {"error": "busy"})
    )
    failed, made, used = converse(endpoint, ROW, lambda *_: "half \udfff", tmp_path)
    assert isinstance(failed, Fault) and len(made) == 2 and len(used) == 1
    before = len(endpoint.asked)
    endpoint.script = lambda n, body: (200, saying("5"))
    reply, made, used = converse(endpoint, ROW, run=tmp_path)
    assert reply.text == "5" and used == [] and len(endpoint.asked) == before + 1
    assert endpoint.tools_seen() == ["half \ufffd"]
    before = len(endpoint.asked) - 1
    converse(endpoint, {**ROW, "id": "r2"}, run=tmp_path)  # another record is asked for itself
    assert len(endpoint.asked) == before + 2


def test_pictures_of_a_row_go_along_with_every_request_and_into_no_journal(endpoint, tmp_path):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,UE5HUE5H"}}
    shown = [{"type": "text", "text": "What is on it?"}, picture]
    row = {**ROW, "messages": [{"role": "user", "content": shown}]}
    endpoint.script = lambda n, body: (200, calling(("add", "{}")) if n == 1 else saying("bees"))
    reply, _, _ = converse(endpoint, row, run=tmp_path)
    assert reply.text == "bees"
    assert [body["messages"][0]["content"] for _, body in endpoint.asked] == [shown, shown]
    assert "UE5H" not in (tmp_path / "journal/calls.jsonl").read_text()
    blind = {"error": {"message": "base is not a multimodal model"}}
    endpoint.script = lambda n, body: (400, blind)
    failed, _, _ = converse(endpoint, {**row, "id": "blind"})
    assert (failed.error["kind"], failed.error["class"]) == ("infra", "no-pictures")


def test_a_loop_that_goes_on_hands_python_the_programs_before_it(endpoint, tmp_path):
    """From the journal where they ran before a kill, so that none runs twice for the model."""
    row = {"id": "p1", "messages": ROW["messages"], "tools": ["python"]}
    cells = [calling(("python", '{"code": "x = 6"}'), ("python", '{"code": "x * 7"}'))]
    cells += [calling(("python", '{"code": "x"}')), saying("42")]
    endpoint.script = lambda n, body: (200, cells[0]) if n == 1 else (503, {"error": "busy"})
    converse(endpoint, row, lambda name, arguments, _: f"ran {arguments['code']}", tmp_path)
    begun, seen = len(endpoint.asked), []
    endpoint.script = lambda n, body: (200, cells[n - begun])

    def use(name, arguments, earlier):
        seen.append((arguments["code"], earlier))
        return "6"

    reply, _, _ = converse(endpoint, row, use, tmp_path)
    assert reply.text == "42"
    assert seen == [("x", (("x = 6", "ran x = 6"), ("x * 7", "ran x * 7")))]


@pytest.mark.parametrize(
    "more, words",
    [
        ({"tool_code": None}, "tool_code is a text"),
        ({"tools": [{"function": {"name": "a b"}}]}, 'tools is a list of "python" and of'),
        ({"tools": ["shell"]}, 'tools is a list of "python" and of'),
    ],
)
def test_a_record_that_cannot_be_asked_is_named(more, words):
    with pytest.raises(ValueError, match=f"r1: {words}"):
        loops.check(ROW | more)


def test_a_record_without_messages_or_prompt_is_named():
    with pytest.raises(ValueError, match='r1: no "messages" in this record'):
        loops.check({"id": "r1"})


def test_tools_of_a_prompt_are_refused_and_the_built_in_one_needs_no_code():
    with pytest.raises(ValueError, match="r1: tools need messages"):
        loops.check({"id": "r1", "prompt": "x", "tools": [ADD], "tool_code": ""})
    record = {"id": "r1", "messages": [], "tools": ["python"]}
    loops.check(record)


@pytest.mark.long(
    "tests/models/test_stopping.py::test_a_run_that_is_killed_amid_a_reply_asks_for_none_before_it_again"
)
@pytest.mark.slow
def test_killed_in_the_middle_of_a_loop_no_call_that_ended_is_made_again(endpoint, tmp_path):
    """The tool gives another number whenever it runs: the same number in both runs is one call."""
    row = {**ROW, "tool_code": "import os\ndef add(a, b):\n    return os.urandom(8).hex()\n"}
    victim = []

    def script(n, body):
        told = [m for m in body["messages"] if m["role"] == "tool"]
        if n == 2 or n == 4:  # the second and third turns are killed once each, while in flight
            os.killpg(victim[-1].pid, signal.SIGKILL)
            return None
        return 200, calling(("add", '{"a": 2, "b": 3}')) if len(told) < 2 else saying("done")

    endpoint.script = script
    for _ in range(2):
        status, *_ = generate(endpoint, [row], tmp_path, victim.append)
        assert status == -signal.SIGKILL
    status, (record,), err = generate(endpoint, [row], tmp_path)
    assert status == 0 and record["gen"]["text"] == "done", err
    bodies = [body["messages"] for _, body in endpoint.asked]
    assert [len(messages) for messages in bodies] == [1, 3, 3, 5, 5]
    assert bodies[1] == bodies[2] and bodies[3] == bodies[4]
    first, second = (m["content"] for m in bodies[-1] if m["role"] == "tool")
    assert len(first) == len(second) == 16 and first != second
    assert [*row["messages"], *record["gen"]["calls"]][:5] == bodies[-1]
    generate(endpoint, [row], tmp_path)
    assert len(endpoint.asked) == 5


@pytest.mark.slow
def test_rows_of_all_forms_go_their_way_and_a_server_without_tools_costs_its_row_alone(
    endpoint, tmp_path
):
    refusal = "tool choice requires --enable-auto-tool-choice and --tool-call-parser"

    def script(n, body):
        if body.get("prompt") == "lost":
            return 404, {"error": "no such path"}
        if "prompt" in body:
            return 200, {"choices": [{"text": " jumps", "finish_reason": "stop"}]}
        if body["messages"][0]["content"] == "jinja":
            return 500, {"error": {"message": "tools param requires --jinja flag"}}
        if body["messages"][0]["content"] == "refused":
            return 400, {"error": {"message": refusal}}
        if "tools" in body and len(body["messages"]) == 1:
            return 200, calling(("add", '{"a": 2, "b": 3}'), ("python", '{"code": "print(6 * 7)"}'))
        return 200, saying(f"heard {body['messages'][-1]['content']}")

    endpoint.script = script
    begun = {"role": "assistant", "content": "The answer is"}
    rows = [
        {"id": "lost", "prompt": "lost"},
        {**ROW, "id": "jinja", "messages": [{"role": "user", "content": "jinja"}]},
        {**ROW, "id": "refused", "messages": [{"role": "user", "content": "refused"}]},
        {**ROW, "id": "tools", "tools": [ADD, "python"]},
        {"id": "prefill", "messages": [*ROW["messages"], begun]},
        {"id": "base", "prompt": "The quick brown fox"},
        {"id": "neither"},
    ]
    status, out, err = generate(endpoint, rows, tmp_path)
    gens = {record["id"]: record["gen"] for record in out}
    assert gens["lost"]["error"]["class"] == "no-completions"
    assert gens["jinja"]["error"]["class"] == "no-tools"
    assert status == 65 and 'stdin:7: neither: no "messages"' in err
    assert gens["refused"]["error"]["class"] == "no-tools" and refusal in err
    assert gens["tools"]["text"] == "heard 42\n"
    assert [m["content"] for m in gens["tools"]["calls"] if m["role"] == "tool"] == ["5", "42\n"]
    assert gens["base"]["text"] == " jumps" and gens["prefill"]["text"] == "heard The answer is"
    sent = [body for path, body in endpoint.asked if path == "/v1/completions"]
    assert {body["prompt"] for body in sent} == {"lost", "The quick brown fox"}
    assert not any("messages" in body for body in sent)
    prefill = next(body for _, body in endpoint.asked if body.get("continue_final_message"))
    assert prefill["messages"][-1] == begun and prefill["add_generation_prompt"] is False


@pytest.mark.parametrize("name", ["python", "class"])
def test_a_function_that_cannot_be_told_from_the_built_in_tool_or_called_is_refused(name):
    tool = {"type": "function", "function": {**ADD["function"], "name": name}}
    with pytest.raises(ValueError, match="r1: a function of the row is called like a keyword"):
        loops.check({**ROW, "tools": [tool]})
