"""Prompts of several turns, asked of an endpoint on loopback."""

import json
import os
import signal

import pytest
from decksmith.models import turns
from scripted import generate, saying

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

    def history(*calls, text="five"):
        return turns.with_history(record, {"t": {"text": text, "calls": list(calls)}})

    assert history(asks, told, ends) == [first, asks, told, ends, second]
    assert history(asks, told, asks, text="") == [first, ends | {"content": "(empty)"}, second]
    assert history() == [first, ends, second]


def talk(endpoint, rows, run, *flags, fatal=0):
    """(status, records, stderr) of chat-generate, whose requests are answered, but for one whose last message is "no"; request `fatal`
    kills it."""
    process = []

    def script(number, body):
        if number == fatal:
            os.killpg(process[0].pid, signal.SIGKILL)
            return None
        last = body["messages"][-1]["content"]
        return (400 if last == "no" else 200), saying(f"deck for {last}")

    endpoint.script = script
    return generate(endpoint, rows, run, fatal=process.append, more=flags)


def said(endpoint):
    """The conversations that the endpoint was asked to go on."""
    asked = [body["messages"] for _, body in endpoint.asked]
    return [[f"{m['role'][0]}:{m['content']}" for m in messages] for messages in asked]


@pytest.mark.slow
def test_a_turn_is_asked_after_the_reply_before_and_killed_asks_nothing_twice(endpoint, tmp_path):
    other = {**ROW, "id": "t2", "messages": [{"role": "user", "content": "Nine slides"}]}
    rows = [row for prompt in (ROW, other) for row in turns.expand(prompt)]
    status, *_ = talk(endpoint, rows, tmp_path, "--jobs", "1", fatal=3)
    assert status == -signal.SIGKILL and len(endpoint.asked) == 3
    status, out, _ = talk(endpoint, rows, tmp_path, "--jobs", "1")
    assert status == 0 and [record["id"] for record in out] == [row["id"] for row in rows]
    assert [record["messages"] for record in out] == [row["messages"] for row in rows]
    asked = said(endpoint)
    assert len(asked) == 7  # six, and the one that was in flight
    lost = asked.pop(2)
    assert lost in asked
    assert sorted(asked)[-1] == [
        "u:Six slides",
        "a:deck for Six slides",
        "u:Shorter",
        "a:deck for Shorter",
        "u:A table",
    ]
    assert len({json.dumps(one) for one in asked}) == 6
    talk(endpoint, rows, tmp_path)
    assert len(endpoint.asked) == 7


@pytest.mark.slow
def test_after_a_turn_that_failed_none_is_asked_and_one_that_is_missing_is_named(
    endpoint, tmp_path
):
    refused = {**ROW, "messages": [{"role": "user", "content": "no"}]}
    _, *orphans = turns.expand({**ROW, "id": "t2"})
    status, out, err = talk(endpoint, [*turns.expand(refused), *orphans], tmp_path)
    assert status == 65 and len(endpoint.asked) == 1
    assert [record["gen"]["error"]["class"] for record in out] == [
        "http-400",
        "no-turn-before",
        "no-turn-before",
    ]
    assert "stdin:4: t2.2: a turn follows t2, which is not before it in this input" in err
