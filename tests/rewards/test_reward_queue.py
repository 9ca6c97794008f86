"""What stands between a reward server's doors and its scorer: the line, the store, the counts, and how a row names its prompt."""

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import waits
from aiohttp.web import HTTPServiceUnavailable
from decksmith.core import cli
from decksmith.train.rewards import reward_app, reward_queue
from decksmith.train.rewards.reward_queue import RewardQueue, RewardStore
from decksmith.train.rewards.rows import Rows, masked
from reward_server import ASKS, PROMPTS, prompt

VALUE = {"reward": 0.5, "components": {"layout": 0.5}, "masked": False, "why": "lost nothing"}


class Desk:
    """A scorer of our own, which waits until it is let go, and says what it was asked."""

    def __init__(self, values=()):
        self.asked, self.go, self.values = [], asyncio.Event(), list(values)

    async def score(self, key, prompt, reply):
        self.asked.append(key)
        await self.go.wait()
        value = self.values.pop(0) if self.values else VALUE
        if isinstance(value, Exception):
            raise value
        return value


def run(tmp_path, test, values=(), **more):
    """Run a coroutine function of (line, desk) with a line of one job."""

    async def main():
        desk, store = Desk(values), RewardStore(tmp_path)
        settings = {"jobs": 1, "most": 10, "deadline": waits.HANG} | more
        try:
            async with RewardQueue(desk.score, store, **settings) as line:
                await test(line, desk)
        finally:
            store.close()

    asyncio.run(main())


async def until(check):
    async with asyncio.timeout(waits.HANG):
        while not check():
            await asyncio.sleep(0.01)


def test_a_deck_that_many_ask_for_is_scored_once_and_then_is_in_the_store(tmp_path):
    async def test(line, desk):
        asking = [asyncio.create_task(line.answer("a", {}, "x")) for _ in range(5)]
        await until(lambda: desk.asked)
        desk.go.set()
        assert await asyncio.gather(*asking) == [VALUE] * 5
        assert await line.answer("a", {}, "x") == VALUE
        assert desk.asked == ["a"]
        assert line.counts == {"scored": 1, "cached": 1}

    run(tmp_path, test)
    store = RewardStore(tmp_path)
    assert store.get("a") == VALUE and len(store) == 1
    store.close()


def test_who_asks_at_a_full_line_is_told_when_to_come_again(tmp_path):
    async def test(line, desk):
        asking = [asyncio.create_task(line.answer("a", {}, "a"))]
        await until(lambda: desk.asked)
        asking += [asyncio.create_task(line.answer(key, {}, key)) for key in "bc"]
        await until(lambda: line.queue.qsize() == 2)
        with pytest.raises(asyncio.QueueFull):
            await line.answer("d", {}, "d")
        routes = reward_app.RewardRoutes(SimpleNamespace(key=lambda *_: "e"), line, Rows(None))
        with pytest.raises(HTTPServiceUnavailable, match="Service Unavailable") as full:
            await routes._answer({"request": "x", "asks": {"slides": 3}}, None, "e")
        assert full.value.headers["Retry-After"] == "2" and line.counts == {"refused 503": 1}
        desk.go.set()
        assert await asyncio.gather(*asking) == [VALUE] * 3
        assert await line.answer("d", {}, "d") == VALUE
        assert desk.asked == ["a", "b", "c", "d"]

    run(tmp_path, test, most=2)


def test_at_the_deadline_the_answer_is_masked_and_whoever_asks_again_joins_the_work(tmp_path):
    async def test(line, desk):
        late = await line.answer("a", {}, "x")
        assert late["masked"] and late["reward"] is None and late["cause"] == "overload"
        assert line.counts == {"masked overload": 1}
        line.deadline = waits.HANG
        again = asyncio.create_task(line.answer("a", {}, "x"))
        await asyncio.sleep(0)
        desk.go.set()
        assert await again == VALUE and desk.asked == ["a"]

    run(tmp_path, test, deadline=0.05)


def test_decks_that_nobody_waits_for_any_more_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(reward_queue, "GRACE", 0.0)

    async def test(line, desk):
        first = asyncio.create_task(line.answer("a", {}, "x"))
        await until(lambda: desk.asked)
        gone = asyncio.create_task(line.answer("b", {}, "x"))
        await until(lambda: line.queue.qsize() == 1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        desk.go.set()
        assert await first == VALUE
        assert await line.answer("c", {}, "x") == VALUE
        assert desk.asked == ["a", "c"]

    run(tmp_path, test)


def test_a_fault_of_ours_is_masked_is_not_kept_and_is_tried_again(tmp_path):
    async def test(line, desk):
        desk.go.set()
        assert (await line.answer("a", {}, "x"))["cause"] == "renderer"
        broken = await line.answer("a", {}, "x")
        assert broken["cause"] == "scorer" and broken["why"] == "KeyError: 'oops'"
        assert await line.answer("a", {}, "x") == VALUE
        assert desk.asked == ["a"] * 3

    run(tmp_path, test, values=[masked("renderer", "it broke"), KeyError("oops")])


# The store


def test_what_was_put_survives_kill_9_and_one_process_has_a_root(tmp_path):
    code = (
        "import sys, time, pathlib\n"
        "from decksmith.train.rewards.reward_queue import RewardStore\n"
        "store = RewardStore(pathlib.Path(sys.argv[1]))\n"
        "for number in range(50): store.put(f'k{number}', {'reward': number / 50})\n"
        "print('put', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(cli.ROOT / "lib")},
    )
    assert process.stdout.readline() == b"put\n"
    with pytest.raises(cli.TryAgain, match="another reward-serve has this folder"):
        RewardStore(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    store = RewardStore(tmp_path)
    assert len(store) == 50 and store.get("k49") == {"reward": 0.98} and store.get("k50") is None
    store.close()


def test_a_file_that_is_no_store_is_said_so(tmp_path):
    (tmp_path / "rewards.db").write_text("this is no database, " * 100)
    with pytest.raises(cli.BadData, match="remove it to begin with an empty one"):
        RewardStore(tmp_path)


# Counting


def test_the_line_of_a_minute_says_decks_masks_and_refusals(tmp_path):
    async def test(line, desk):
        desk.go.set()
        for key in "aabcd":
            await line.answer(key, {}, "x")
        line.counts["refused 503"] += 2
        assert line.line() == (
            "3 decks in 60 s, 1 more from the cache; 0 in work, 0 waiting; masked scorer 1; refused 503 2"
        )
        assert line.line() == "0 decks in 60 s, 0 more from the cache; 0 in work, 0 waiting"

    run(tmp_path, test, [VALUE, VALUE, VALUE, ZeroDivisionError()])


# Rows

known = functools.cache(lambda: Rows(PROMPTS))  # which takes a third of a second to read
WRONG = "no request and no messages in this row"


@pytest.mark.parametrize(
    ("row", "asked", "said"),
    [
        ({}, "x", "the row names no prompt; give asks or checklist"),
        ({"label": "p9"}, "x", "no prompt 'p9' here; give asks or checklist"),
        ({"label": ["p001"]}, "x", "the row names no prompt"),
        ({"id": {"a": 1}}, "x", "no prompt \"{'a': 1}\" here"),
        ({"asks": {"slides": "six"}}, "x", "row: asks.slides: 'six' is not of type 'integer'"),
        ({"asks": {"colour": "red"}}, "x", "asks: Additional properties are not allowed"),
        ({"asks": {"slides": 6}}, None, WRONG),
        ({"asks": {"slides": 6}}, [{"role": "assistant", "content": "x"}], WRONG),
        ({"asks": 6}, "x", "row: asks: 6 is not of type 'object'"),
        ({"checklist": [{"ask": "a"}]}, "x", "row: checklist.0: 'id' is a required property"),
        ({"label": "{" * 5000}, "x", "no prompt"),
    ],
)
def test_a_row_without_a_prompt_gets_a_sentence(row, asked, said):
    with pytest.raises(cli.BadData) as refused:
        known().prompt(row, asked)
    assert said in str(refused.value)


def test_a_row_names_its_prompt_by_fields_by_a_label_or_by_an_id():
    rows, first = known(), prompt()
    wanted = {name: first[name] for name in ("id", "messages", "asks", "checklist")}
    assert rows.prompt({"id": "p001"}) == wanted
    assert rows.prompt({"label": "p001"}, "a templated prompt") == wanted
    assert rows.prompt({"label": {"id": "p001"}}) == wanted
    assert rows.prompt({"label": json.dumps(first)}) == wanted
    assert Rows(None).prompt(first) == wanted
    # A table of columns: text where things are nested, nulls for what other rows have.
    columns = {
        "asks": {**first["asks"], "colour": None},
        "checklist": json.dumps(first["checklist"]),
    }
    found = Rows(None).prompt({"id": "p001", **columns}, first["messages"])
    assert found == wanted


@pytest.mark.parametrize(
    "asked",
    [
        "Three slides on tide pools",
        [{"role": "user", "content": "Three slides on tide pools"}],
        [
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "Three slides on tide pools"}],
            }
        ],
        [{"type": "reasoning"}, {"role": "user", "content": "Three slides on tide pools"}],
    ],
)
def test_the_request_of_a_row_without_one_is_what_the_model_was_asked(asked):
    found = Rows(None).prompt({"asks": ASKS["asks"]}, asked)
    assert found["messages"] == [{"role": "user", "content": ASKS["request"]}]


def test_a_prompt_that_cannot_be_used_stops_the_server_by_its_line(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"id": "a", "request": "x", "asks": {}}\n{"id": "b", "asks": {}}\n')
    with pytest.raises(cli.BadData, match=r"prompts\.jsonl:2: no request and no messages"):
        Rows(path)


# Gym's words


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ([{"type": "message", "content": [{"type": "output_text", "text": "a deck"}]}], "a deck"),
        (
            [{"type": "message", "content": "a deck"}, {"type": "reasoning", "summary": []}],
            "a deck",
        ),
        ([{"type": "reasoning", "summary": []}], ""),
        ([None, {"type": "message", "content": None}], ""),
        (None, ""),
    ],
)
def test_the_reply_is_the_last_message_of_a_response(output, found):
    assert reward_app.reply_of({"output": output}) == found
