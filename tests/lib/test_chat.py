"""The pure parts of the client; what it does on the wire is tested in tests/bin/chat-generate.bats."""

import email.utils
import time

import pytest
from decksmith import chat, cli


@pytest.mark.parametrize(("text", "answer", "reasoning"), [
    ("plain", "plain", ""),
    ("<think>\na thought\n</think>\n\n---\ndeck", "---\ndeck", "a thought"),
    ("  <think>cut off in the middle", "", "cut off in the middle"),
    ("opened by the template</think>\ndeck", "deck", "opened by the template"),
    ("---\n`<think>` in a code span stays", "---\n`<think>` in a code span stays", ""),
    ("", "", ""),
])
def test_thought_and_answer_are_parted(text, answer, reasoning):
    assert chat.split_reasoning(text) == (answer, reasoning)


def test_retry_after_is_read_as_seconds_milliseconds_or_a_date_and_is_bounded():
    assert chat._retry_after({"retry-after": "2.5"}) == 2.5
    assert chat._retry_after({"retry-after-ms": "250"}) == 0.25
    assert chat._retry_after({"retry-after": "99999"}) == 300
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert 25 < chat._retry_after({"retry-after": date}) <= 30
    assert chat._retry_after({"retry-after": "soon"}) is None
    assert chat._retry_after({}) is None


def test_a_request_takes_parameters_in_order_of_strength_and_speaks_the_endpoint_s_names():
    model = chat.Model("m", "http://x/v1", "maker/m", params={"temperature": 1, "max_tokens": 10}, rename={"max_tokens": "max_completion_tokens"},
                       drop=["top_p"], extra_body={"usage": {"include": True}})
    body = chat.Client(model).request([{"role": "user", "content": "x"}], {"temperature": 0.2, "top_p": 0.9}, seed=3)
    assert body == {"model": "maker/m", "messages": [{"role": "user", "content": "x"}], "temperature": 0.2, "seed": 3,
                    "max_completion_tokens": 10, "usage": {"include": True}}


def test_every_entry_of_the_registry_is_complete():
    known = chat.models()
    assert {"smol", "smol-outline", "judge"} <= set(known)
    assert all(entry.base_url and entry.slug for entry in known.values())


@pytest.mark.parametrize(("text", "words"), [
    ("[m]\nslug = 'x'\n", "[m] lacks 'base_url'"),
    ("[m]\nslug = 'x'\nbase_url = 'u'\ntemprature = 1\n", "[m] has an unknown key 'temprature'"),
    ("[m\n", "models.toml"),
])
def test_a_faulty_registry_is_named_with_its_key(tmp_path, monkeypatch, text, words):
    monkeypatch.setattr(chat, "REGISTRY", tmp_path / "models.toml")
    chat.REGISTRY.write_text(text)
    with pytest.raises(cli.BadConfig, match=words.replace("[", r"\[")):
        chat.models()
