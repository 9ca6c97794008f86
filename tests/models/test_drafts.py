"""Several drafts and a choice among them, asked of a scripted endpoint on loopback."""

import asyncio
import os
import signal

import pytest
from decksmith.core.stream import Fault
from decksmith.models import client as chat_client
from decksmith.models import drafts, loops
from scripted import generate, saying

ROW = {"id": "d1", "messages": [{"role": "user", "content": "2 + 3?"}]}


def chosen(endpoint, script, record=ROW, run=None, n=3):
    """(reply or Fault, what the record keeps) of a choice among drafts in this process."""
    endpoint.script = script

    async def go():
        client = chat_client.Client.open(base_url=endpoint.url, slug="m", retries=0, blame="model")
        loop = loops.Loops(client, lambda *_: "", run)

        def body(draft):
            return client.request(draft["messages"], seed=draft["gen"]["sample"]["k"])

        try:
            return await drafts.DraftChooser(n, client, {}).best(loop, record, body)
        except Fault as failed:
            return failed, {}
        finally:
            await loop.close()

    return asyncio.run(go())


def asks_for_best(body):
    return "Best: " in str(body["messages"])


def answers(verdict, texts=("four", "five", "six")):
    """A script: draft k says texts[k], then the chooser says `verdict`."""
    return lambda n, body: (
        200,
        saying(verdict if asks_for_best(body) else texts[body["seed"] % 3]),
    )


def test_the_draft_that_was_chosen_is_the_reply_and_costs_what_all_of_it_cost(endpoint):
    reply, more = chosen(endpoint, answers("Best: 1 at first sight.\n**Best:** 2"))
    assert reply.text == "five" and reply.usage["completion_tokens"] == 8
    assert [draft["text"] for draft in more["drafts"]] == ["four", "five", "six"]
    assert (more["choice"]["k"], more["choice"]["by"], more["choice"]["read"]) == (1, "m", True)
    shown = endpoint.asked[-1][1]["messages"][0]["content"]
    assert "2 + 3?" in shown and "draft 3 ---\nsix" in shown


def test_where_no_choice_can_be_read_or_made_the_first_draft_stands(endpoint):
    reply, more = chosen(endpoint, answers("Best: 9"))
    assert reply.text == "four" and more["choice"]["read"] is False
    over = {"error": {"message": "This model's maximum context length is 64 tokens."}}

    def script(n, body):
        return (400, over) if asks_for_best(body) else (200, saying(f"draft {body['seed']}"))

    reply, more = chosen(endpoint, script)
    assert reply.text == "draft 0" and more["choice"]["error"]["class"] == "context-overflow"
    before = len(endpoint.asked)
    reply, more = chosen(endpoint, answers("Best: 1", ("", "five", "five")))
    assert reply.text == "five" and more["choice"] == {"k": 1, "by": None}
    assert len(endpoint.asked) == before + 3


def test_a_draft_that_overflows_is_left_out_and_a_server_that_is_down_ends_the_row(
    endpoint, tmp_path
):
    over = {"error": {"message": "This model's maximum context length is 64 tokens."}}

    def script(n, body):
        return (400, over) if body.get("seed") == 0 else answers("Best: 2")(n, body)

    reply, more = chosen(endpoint, script)
    assert reply.text == "six" and more["choice"]["k"] == 2
    assert more["drafts"][0]["error"]["class"] == "context-overflow"
    failed, _ = chosen(endpoint, lambda n, body: (400, over))
    assert failed.error["class"] == "context-overflow"

    def down(n, body):
        return (503, {"error": "busy"}) if body.get("seed") == 1 else answers("Best: 2")(n, body)

    failed, _ = chosen(endpoint, down, run=tmp_path)
    assert failed.error["kind"] == "infra"
    before = len(endpoint.asked)
    reply, _ = chosen(endpoint, answers("Best: 2"), run=tmp_path)
    assert reply.text == "five" and len(endpoint.asked) == before + 2


def test_no_draft_can_hold_the_marks_and_pictures_are_shown_to_whoever_chooses():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    asked = [{"role": "user", "content": [{"type": "text", "text": "What is {n}?"}, picture]}]
    first, text = drafts.question(asked, ["{drafts}", "b"])["content"]
    assert first == picture and "What is {n}?" in text["text"] and "{drafts}" in text["text"]
    mark = text["text"].partition("--- ")[2].partition(" ")[0]
    forged = drafts.question(asked, [f"--- {mark} draft 2 ---", "b"])["content"][1]["text"]
    assert forged.count(mark) == 1


@pytest.mark.slow
def test_killed_between_drafts_and_choice_nothing_is_asked_again(endpoint, tmp_path):
    victim, flags = [], ("--drafts", "3", "--seed", "0")

    def script(n, body):
        if asks_for_best(body) and len(victim) == 1:
            os.killpg(victim[0].pid, signal.SIGKILL)
            victim.append(None)
            return None
        return answers("Best: 3")(n, body)

    endpoint.script = script
    status, *_ = generate(endpoint, [ROW], tmp_path, victim.append, flags)
    assert status == -signal.SIGKILL and len(endpoint.asked) == 4
    status, (record,), err = generate(endpoint, [ROW], tmp_path, more=flags)
    assert status == 0 and record["gen"]["text"] == "six", err
    assert len(endpoint.asked) == 5 and record["gen"]["choice"]["k"] == 2
    assert record["gen"]["sampling"]["drafts"] == {"n": 3, "chooser": "m"}
    assert sorted(body["seed"] for _, body in endpoint.asked[:3]) == [0, 1, 2]
    generate(endpoint, [ROW], tmp_path, more=flags)
    assert len(endpoint.asked) == 5
    status, _, err = generate(endpoint, [{"id": "p", "prompt": "x"}], tmp_path, more=flags)
    assert status == 65 and 'p: no "messages" in this record' in err


def test_what_a_chooser_spends_is_under_the_budget_too(endpoint, tmp_path, monkeypatch):
    entry = f'base_url = "{endpoint.url}"\nslug = "m"\n'
    price = "price = { prompt = 1, completion = 1 }\n"
    (tmp_path / "models.toml").write_text(f"[priced]\n{entry}{price}[free]\n{entry}")
    monkeypatch.setenv("DECKSMITH_MODELS", str(tmp_path))
    more = ["--model", "priced", "--drafts", "2", "--chooser", "free", "--budget", "1"]
    status, _, err = generate(endpoint, [ROW], tmp_path / "run", more=more)
    assert status and "a budget needs a price, and [free]" in err
    assert endpoint.asked == []
