"""Prompts of several turns, asked of an endpoint on loopback."""

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from decksmith.models import turns

ROOT = Path(__file__).resolve().parents[2]
ROW = {
    "id": "t1",
    "sets": ["core"],
    "messages": [{"role": "user", "content": "Six slides"}],
    "asks": {"slides": 6, "theme": "seriph"},
    "checklist": [{"id": "c1", "ask": "x"}],
    "references": ["x"],
    "turns": [
        {"request": "Shorter", "asks": {"slides": 3, "theme": None}, "keeps": {"slides": [1]}},
        {"request": "A table", "checklist": [{"id": "c1", "ask": "y"}]},
    ],
}


def test_a_prompt_with_turns_is_a_row_for_each():
    first, second, third = turns.expand(ROW)
    assert [row["id"] for row in (first, second, third)] == ["t1", "t1.2", "t1.3"]
    assert first["turn"] == {"of": "t1", "n": 1} and first["references"] == ["x"]
    assert second["asks"] == {"slides": 3} and second["checklist"] == []
    assert second["turn"] == {"of": "t1", "n": 2, "keeps": {"slides": [1]}}
    assert [m["content"] for m in third["messages"]] == ["Six slides", "Shorter", "A table"]
    assert third["checklist"] == [{"id": "c1", "ask": "y"}] and "references" not in third
    assert turns.expand({"id": "alone"}) == [{"id": "alone"}]


def test_a_turn_without_a_request_is_named():
    with pytest.raises(ValueError, match='t1: turn 2 has no "request"'):
        turns.expand({**ROW, "turns": [{"say": "Shorter"}]})


def test_samples_of_a_turn_follow_the_same_sample():
    record = {"turn": {"of": "t1", "n": 3}, "gen": {"sample": {"of": "t1.3", "k": 1}}}
    assert turns.before(record) == ["t1~1", "t1.2~1"]


def test_a_turn_goes_on_from_the_calls_of_the_turn_before_where_all_have_their_results():
    asks = {"role": "assistant", "content": "", "tool_calls": [{"id": "c0"}]}
    told = {"role": "tool", "tool_call_id": "c0", "content": "5"}
    ends = {"role": "assistant", "content": "five"}
    first, second = ({"role": "user", "content": text} for text in ("2 + 3?", "Twice?"))
    record = {"id": "t.2", "messages": [first, second], "turn": {"of": "t", "n": 2}}

    def woven(*calls, text="five"):
        return turns.woven(record, {"t": {"text": text, "calls": list(calls)}})

    assert woven(asks, told, ends) == [first, asks, told, ends, second]
    assert woven(asks, told, asks, text="") == [first, ends | {"content": "(empty)"}, second]
    assert woven() == [first, ends, second]


class Endpoint:
    """Answers each request with its number, refuses one whose last message is "no", and kills `victim` at request `fatal`."""

    def __init__(self):
        self.asked, self.fatal, self.victim = [], 0, None
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                said = [f"{m['role'][0]}:{m['content']}" for m in body["messages"]]
                endpoint.asked.append(said)
                if len(endpoint.asked) == endpoint.fatal:
                    os.killpg(endpoint.victim.pid, signal.SIGKILL)
                    return
                status = 400 if said[-1] == "u:no" else 200
                message = {"role": "assistant", "content": f"deck for {said[-1]}"}
                answer = {"choices": [{"message": message, "finish_reason": "stop"}]}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def generate(self, rows, run, *flags):
        url = f"http://127.0.0.1:{self.server.server_port}/v1"
        command = [sys.executable, ROOT / "bin/chat-generate", "--base-url", url, "--slug", "m"]
        self.victim = subprocess.Popen(
            [*command, "--run", run, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT / "lib")},
            text=True,
            start_new_session=True,
        )
        out, err = self.victim.communicate("".join(json.dumps(row) + "\n" for row in rows))
        return self.victim.returncode, [json.loads(line) for line in out.splitlines()], err


@pytest.fixture
def endpoint():
    endpoint = Endpoint()
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()


@pytest.mark.slow
def test_a_turn_is_asked_after_the_reply_before_and_killed_asks_nothing_twice(endpoint, tmp_path):
    other = {**ROW, "id": "t2", "messages": [{"role": "user", "content": "Nine slides"}]}
    rows = [row for prompt in (ROW, other) for row in turns.expand(prompt)]
    endpoint.fatal = 3
    status, *_ = endpoint.generate(rows, tmp_path, "--jobs", "1")
    assert status == -signal.SIGKILL and len(endpoint.asked) == 3
    endpoint.fatal = 0
    status, out, _ = endpoint.generate(rows, tmp_path, "--jobs", "1")
    assert status == 0 and [record["id"] for record in out] == [row["id"] for row in rows]
    assert [record["messages"] for record in out] == [row["messages"] for row in rows]
    assert len(endpoint.asked) == 7  # six, and the one that was in flight
    lost = endpoint.asked.pop(2)
    assert lost in endpoint.asked
    assert sorted(endpoint.asked)[-1] == [
        "u:Six slides",
        "a:deck for u:Six slides",
        "u:Shorter",
        "a:deck for u:Shorter",
        "u:A table",
    ]
    assert len({json.dumps(said) for said in endpoint.asked}) == 6
    endpoint.generate(rows, tmp_path)
    assert len(endpoint.asked) == 6


@pytest.mark.slow
def test_after_a_turn_that_failed_none_is_asked_and_one_that_is_missing_is_named(
    endpoint, tmp_path
):
    refused = {**ROW, "messages": [{"role": "user", "content": "no"}]}
    _, *orphans = turns.expand({**ROW, "id": "t2"})
    status, out, err = endpoint.generate([*turns.expand(refused), *orphans], tmp_path)
    assert status == 65 and len(endpoint.asked) == 1
    assert [record["gen"]["error"]["class"] for record in out] == [
        "http-400",
        "no-turn-before",
        "no-turn-before",
    ]
    assert "stdin:4: t2.2: a turn follows t2, which is not before it in this input" in err
