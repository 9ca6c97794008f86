"""`make test-gym`: an environment with tools, played by NeMo Gym's own servers and collector against a scripted endpoint of ours."""

import json
import os
import subprocess
import sys

import pytest
from decksmith.benchmarks import collector
from decksmith.core import cli
from decksmith.models import client as chat_client
from scripted import Endpoint, calling, saying


def played(number, body):
    """Asks for one synonym's value, then answers the task with what the tool said: right where that is all that it asks for."""
    told = [each["content"] for each in body["messages"] if each["role"] == "tool"]
    if not told:
        return 200, calling(("get_synonym_value", '{"synonym": "Big"}'))
    if len(told) == 1:
        values = json.dumps({"synonym_values": [json.loads(told[0])["synonym_value"]]})
        return 200, calling(("extract_synonym_values", values))
    return 200, saying("Done.")


@pytest.fixture
def endpoint():
    with Endpoint() as made:
        made.script = played
        yield made


def asking(url):
    return chat_client.Client.open(base_url=url, slug="m")


def test_what_cannot_be_collected_is_a_sentence(tmp_path, monkeypatch, endpoint):
    def collect(name, url="http://127.0.0.1:9/v1", **more):
        list(collector.collect(name, asking(url), tmp_path, **more))

    with pytest.raises(cli.BadConfig, match="no benchmark 'nowhere'"):
        collect("nowhere")
    monkeypatch.setenv("DECKSMITH_GYM_PYTHON", str(tmp_path / "none"))
    with pytest.raises(cli.Missing, match="make .venv-gym"):
        collect("example_multi_step")
    monkeypatch.setenv("DECKSMITH_GYM_PYTHON", sys.executable)
    with pytest.raises(cli.TryAgain, match=r"http://127.0.0.1:9/v1 does not answer"):
        collect("example_multi_step")
    (tmp_path / "rollouts.jsonl").touch()
    with pytest.raises(
        cli.BadData, match="other rollouts are here .name 'example_multi_step', now"
    ):
        collect("workplace_assistant")
    rows = tmp_path / "mine.jsonl"
    rows.write_text("{}\n")
    with pytest.raises(cli.BadData, match="other rollouts are here .rows None, now '[0-9a-f]{12}'"):
        collect("example_multi_step", rows=rows)
    # Any Python without nemo-gym: the collector's last words are said.
    with pytest.raises(cli.TryAgain, match="Gym's collector failed .*nemo_gym"):
        collect("example_multi_step", endpoint.url)


@pytest.mark.skipif(not os.environ.get("DECKSMITH_GYM"), reason="make test-gym")
def test_an_environment_with_tools_is_played_to_its_reward(tmp_path, endpoint):
    big = sum(map(ord, "Big"))
    rows = tmp_path / "mine.jsonl"
    tool = {"type": "object", "properties": {}, "additionalProperties": True}
    rows.write_text(
        "".join(json.dumps(row(n, [value], tool)) + "\n" for n, value in ((0, big), (1, 1)))
    )
    url = endpoint.url
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
