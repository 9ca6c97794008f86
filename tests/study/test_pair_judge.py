"""A vision model that votes on pairs, against a real endpoint on loopback."""

import asyncio
import base64
import io
import json

import pytest
from aiohttp import web
from decksmith.core import cli
from decksmith.core.protocol import Protocol
from decksmith.study import pair_judge
from PIL import Image

PUBLISHED = Protocol.load("published")


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study of one pair: base's deck is red, tuned's is blue and longer."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "test")
    (tmp_path / "pictures").mkdir()
    names = {"left": ["a1"], "right": [f"b{n}" for n in range(1, 31)]}
    for side, colour in (("left", "red"), ("right", "blue")):
        for name in names[side]:
            Image.new("RGB", (64, 36), colour).save(tmp_path / "pictures" / f"{name}.webp")
    pair = {
        "id": "k7",
        "kind": "vote",
        "prompt": "p001",
        "request": "Three slides on reefs",
        "left": {"run": "base", "model": "base", "sample": 0},
        "right": {"run": "tuned", "model": "tuned", "sample": 0},
        "pictures": {side: [f"{name}.webp" for name in names[side]] for side in names},
    }
    return tmp_path, pair


def reply(text):
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1, "cost": 0.5}}


def ask(folder, pair, answers):
    """The values for both orders of a pair, from an endpoint that calls `answers(request, count)` for its text."""
    seen = []

    async def serve(request):
        seen.append(await request.json())
        return web.json_response(reply(answers(seen[-1], len(seen))))

    async def go():
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", serve)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        voter = pair_judge.Voter(folder, PUBLISHED, "judge", base_url=f"http://127.0.0.1:{port}/v1")
        try:
            return [await voter.work(one) for one in pair_judge.both_orders(pair)]
        finally:
            await voter.close()
            await runner.cleanup()

    return asyncio.run(go()), seen


def colours(request):
    """The colour of each picture of a request, by deck."""
    found, deck = {"A": [], "B": []}, None
    for part in request["messages"][1]["content"]:
        if part["type"] == "text" and part["text"].startswith("Deck ") and ":" in part["text"]:
            deck = part["text"][5]
        elif part["type"] == "image_url":
            data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
            red, _, blue = Image.open(io.BytesIO(data)).convert("RGB").getpixel((3, 3))
            found[deck].append("red" if red > blue else "blue")
    return found


def prefers(colour):
    """An endpoint that always prefers the deck of a colour."""

    def answers(request, count):
        shown = colours(request)
        letter = "A" if colour in shown["A"] else "B"
        said = dict.fromkeys(("content", "design", "coherence", "choice"), letter)
        return json.dumps({"why": "Its slide 1 is better.", **said})

    return answers


def test_both_orders_are_asked_and_the_side_is_that_of_the_record(study):
    folder, pair = study
    values, seen = ask(folder, pair, prefers("blue"))
    assert [value["choice"] for value in values] == ["right", "left"]
    assert colours(seen[0])["A"] == ["red"] and set(colours(seen[1])["A"]) == {"blue"}
    assert len(colours(seen[0])["B"]) == PUBLISHED.judge["max_slides"] // 2
    rows = [
        {**one, "judge": value}
        for one, value in zip(pair_judge.both_orders(pair), values, strict=True)
    ]
    said = pair_judge.votes(rows)
    assert [(one[one["choice"]], one["order"], one["pair"]) for one in said] == [
        ("tuned", 0, "k7"),
        ("tuned", 1, "k7"),
    ]


def test_a_reply_that_cannot_be_used_is_asked_for_again_and_its_cost_counts(study):
    folder, pair = study

    def answers(request, count):
        return "A is better." if count == 1 else prefers("red")(request, count)

    values, seen = ask(folder, pair, answers)
    assert values[0]["choice"] == "left" and values[0]["usage"]["cost"] == 1.0 and len(seen) == 3
    assert "cannot be used" in seen[1]["messages"][-1]["content"]


def test_a_judge_that_never_answers_is_a_fault_of_the_judge(study):
    folder, pair = study
    values, seen = ask(folder, pair, lambda request, count: '{"choice": "C"}')
    assert {value["error"]["kind"] for value in values} == {"judge"}
    assert len(seen) == 2 * (PUBLISHED.judge["retries"] + 1)


def test_a_repeat_is_not_asked_and_an_offline_protocol_has_no_settings(study):
    folder, pair = study
    assert pair_judge.both_orders({**pair, "kind": "repeat"}) == []
    with pytest.raises(cli.BadConfig, match="no vision judge"):
        pair_judge.Voter(folder, Protocol.load("offline"), "judge")
