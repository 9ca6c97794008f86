"""`make test-gym`: an environment with tools, played by NeMo Gym's own servers and collector against a scripted endpoint of ours."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from decksmith.benchmarks import collector
from decksmith.core import cli
from decksmith.models import client as chat_client


class Endpoint(BaseHTTPRequestHandler):
    """Asks for one synonym's value, then answers the task with what the tool said: right where that is all that it asks for."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body["messages"])
        told = [each["content"] for each in body["messages"] if each["role"] == "tool"]
        if not told:
            message = calling("get_synonym_value", {"synonym": "Big"})
        elif len(told) == 1:
            values = [json.loads(told[0])["synonym_value"]]
            message = calling("extract_synonym_values", {"synonym_values": values})
        else:
            message = {"role": "assistant", "content": "Done."}
        stop = "tool_calls" if "tool_calls" in message else "stop"
        answer = {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": stop, "message": message}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
        }
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def calling(name, arguments):
    made = {
        "id": "call-1",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    return {"role": "assistant", "content": None, "tool_calls": [made]}


@pytest.fixture
def endpoint():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def asking(url):
    return chat_client.Client.open(base_url=url, slug="m")


def test_what_cannot_be_collected_is_a_sentence(tmp_path, monkeypatch, endpoint):
    def collect(name, url="http://127.0.0.1:9/v1"):
        list(collector.collect(name, asking(url), tmp_path))

    with pytest.raises(cli.BadConfig, match="no benchmark 'nowhere'"):
        collect("nowhere")
    monkeypatch.setenv("DECKSMITH_GYM_PYTHON", str(tmp_path / "none"))
    with pytest.raises(cli.Missing, match="make .venv-gym"):
        collect("example_multi_step")
    monkeypatch.setenv("DECKSMITH_GYM_PYTHON", sys.executable)
    with pytest.raises(cli.TryAgain, match=r"http://127.0.0.1:9/v1 does not answer"):
        collect("example_multi_step")
    with pytest.raises(
        cli.BadData, match="other rollouts are here .name 'example_multi_step', now"
    ):
        collect("workplace_assistant")
    # Any Python without nemo-gym: the collector's last words are said.
    with pytest.raises(cli.TryAgain, match="Gym's collector failed .*nemo_gym"):
        collect("example_multi_step", f"http://127.0.0.1:{endpoint.server_port}/v1")


@pytest.mark.skipif(not os.environ.get("DECKSMITH_GYM"), reason="make test-gym")
def test_an_environment_with_tools_is_played_to_its_reward(tmp_path, endpoint):
    big = sum(map(ord, "Big"))
    rows = tmp_path / "mine.jsonl"
    tool = {"type": "object", "properties": {}, "additionalProperties": True}
    rows.write_text(
        "".join(json.dumps(row(n, [value], tool)) + "\n" for n, value in ((0, big), (1, 1)))
    )
    url = f"http://127.0.0.1:{endpoint.server_port}/v1"
    home = tmp_path / "run"
    found = list(collector.collect("example_multi_step", asking(url), home, rows))
    assert [each["grade"]["verdict"] for each in found] == ["right", "wrong"]
    assert [each["gen"]["text"] for each in found] == ["Done.", "Done."]
    assert found[0]["task"]["bench"] == "gym-example_multi_step"
    assert len(endpoint.asked) == 6
    # Nothing that Gym started is left, and what is there is not asked for again.
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(home) not in running
    assert list(collector.collect("example_multi_step", asking(url), home, rows)) == found
    assert len(endpoint.asked) == 6


def row(number, values, parameters):
    """A task of the environment, in its format: which values are right."""
    tools = [
        {"type": "function", "name": name, "parameters": parameters, "strict": False}
        for name in ("get_synonym_value", "extract_synonym_values")
    ]
    asked = [{"role": "user", "content": "Extract the values."}]
    return {
        "id": number,
        "responses_create_params": {"input": asked, "tools": tools},
        "expected_synonym_values": values,
        "expected_synonyms": ["Big"],
        "minefield_label": "Small",
        "minefield_label_value": 0,
    }
