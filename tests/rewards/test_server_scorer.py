"""Whose fault it is when a deck cannot be scored: the processes that parse and score, and what is said of a deck that breaks them."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest
import waits
from decksmith.core import cli
from decksmith.train.rewards import scorer as reward_scorer
from decksmith.train.rewards.helper import Helper, HelperBroken
from decksmith.train.rewards.scorer import Scorer
from reward_server import ASKS, DECK

pytestmark = pytest.mark.slow

PROMPT = {
    "messages": [{"role": "user", "content": ASKS["request"]}],
    "asks": ASKS["asks"],
    "checklist": [],
}
ASKED = {"id": "a", "messages": PROMPT["messages"]}
# A reply that takes seconds before it can be rendered: so many slides and pictures.
HEAVY = "".join(
    f"---\nlayout: image\nimage-query: a tree, number {n}\n---\n\n# {n}\n\n" for n in range(3000)
)


@pytest.fixture(autouse=True)
def no_pictures_of_before(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def helper():
    made = Helper("layout", deadline=float(waits.HANG), memory=1500)
    yield made
    made.kill()


def order(folder, text, do="prepare"):
    return {"do": do, "run": str(folder), "record": {**PROMPT, "id": "a", "gen": {"text": text}}}


def test_a_reply_becomes_a_deck_in_a_process_that_stays(helper, tmp_path):
    said = helper.ask(**order(tmp_path, DECK.format(word="tea")))
    first = helper.process.pid
    assert said["deck"]["slides"] == 3 and (tmp_path / said["images"]["path"]).is_file()
    assert helper.ask(**order(tmp_path, ""))["deck"]["error"]["class"] == "empty-reply"
    assert helper.process.pid == first


def test_the_process_finds_packages_where_this_one_does(helper, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    helper.ask(**order(tmp_path, ""))
    own = Path(f"/proc/{helper.process.pid}/environ").read_bytes().split(b"\0")
    assert f"PYTHONPATH={cli.ROOT / 'lib'}{os.pathsep}{tmp_path}".encode() in own


def test_an_order_that_takes_too_much_costs_its_process_and_no_other(tmp_path):
    helper = Helper("layout", deadline=0.3, memory=1500)
    with pytest.raises(HelperBroken, match="the deck took more than 0.3 CPU seconds") as broken:
        helper.ask(**order(tmp_path, HEAVY))
    assert broken.value.model and broken.value.cls == "deadline" and helper.process is None
    assert helper.ask(**order(tmp_path, ""))["deck"]["error"]["class"] == "empty-reply"
    helper.kill()


def test_what_our_own_code_throws_is_our_fault_and_the_process_lives(helper, tmp_path):
    with pytest.raises(HelperBroken, match="KeyError: 'id'") as broken:
        helper.ask(do="score", run=str(tmp_path), record={})
    assert broken.value.cls == "internal" and not broken.value.model
    assert helper.process.poll() is None


def test_a_process_that_is_killed_at_work_is_told_from_one_that_took_too_much(helper, tmp_path):
    helper.ask(**order(tmp_path, ""))
    killer = threading.Timer(0.3, helper.end)
    killer.start()
    with pytest.raises(HelperBroken, match="the scoring process ended") as broken:
        helper.ask(**order(tmp_path, HEAVY))
    assert broken.value.cls == "crash" and not broken.value.model


def test_rules_that_are_not_there_stop_it_at_once(tmp_path):
    with pytest.raises(cli.BadConfig, match="no reward"):
        Scorer(tmp_path, "nothing", jobs=1)


def scored(tmp_path, *replies, meanwhile=None):
    """The answers for replies, one after the other; `meanwhile(scorer)` is called beside."""

    async def main():
        scorer = Scorer(tmp_path, "layout", jobs=1)
        beside = threading.Thread(target=meanwhile, args=(scorer,)) if meanwhile else None
        try:
            if beside:
                beside.start()
            return [
                await scorer.score(scorer.key(PROMPT, str(reply)), PROMPT, reply)
                for reply in replies
            ]
        finally:
            if beside:
                beside.join()
            await scorer.close()

    return asyncio.run(main())


def test_a_deck_that_takes_too_much_has_no_reward_and_is_the_models(tmp_path, monkeypatch):
    monkeypatch.setattr(reward_scorer, "DEADLINE", 0.3)
    (said,) = scored(tmp_path, HEAVY)
    assert said["reward"] == 0.0 and said["masked"] is False
    assert said["why"] == (
        "the deck breaks what scores it: deadline: the deck took more than 0.3 CPU seconds"
    )


def test_where_our_code_is_wrong_the_deck_is_masked(tmp_path):
    (said,) = scored(tmp_path, 7)
    assert said["reward"] is None and said["masked"] and said["cause"] == "scorer"
    assert said["why"].startswith("internal: ")


@pytest.mark.browser
@pytest.mark.long("test_a_process_that_is_killed_at_work_is_told_from_one_that_took_too_much")
def test_a_deck_whose_process_was_killed_is_scored_again_and_leaves_nothing(tmp_path):
    def kill(scorer):
        waits.until(lambda: scorer.all[0].process and (tmp_path / "work").is_dir())
        waits.until(lambda: list((tmp_path / "work").glob("*/gen.md")))
        os.kill(scorer.all[0].process.pid, signal.SIGKILL)

    deck = HEAVY[: HEAVY.index("number 30")] + "number 30\n---\n\n# 30\n"
    first, again = scored(tmp_path, deck, deck, meanwhile=kill)
    assert first["masked"] is False and first == again
    assert not (tmp_path / "work").exists()


def test_the_key_of_a_reward_is_all_that_it_depends_on(tmp_path):
    async def main():
        scorer = Scorer(tmp_path, "layout", jobs=1)
        other = {**PROMPT, "asks": {"slides": 4}}
        keys = [
            scorer.key(PROMPT, "a"),
            scorer.key({**PROMPT, "id": "named"}, "a"),
            scorer.key(PROMPT, "b"),
            scorer.key(other, "a"),
        ]
        await scorer.close()
        return keys

    first, named, reply, asks = asyncio.run(main())
    assert first == named and len({first, reply, asks}) == 3


@pytest.mark.long(
    "tests/judging/test_edits.py::test_the_reward_of_an_edit_is_its_score_and_a_refusal_gets_nothing"
)
def test_edits_are_scored_by_prompts_that_bring_their_deck(tmp_path):
    from decksmith.train.corpus import chat_rows
    from decksmith.train.rewards import rows

    before = "# Fog\n\n- lost: 3.9\n\n---\n\n# Crew\n\n- thanks\n\n---\n\n# End\n\n- bye\n"
    edit = {"kind": "number", "before": before, "slides": 3, "may": {"1": "all"}}
    edit["checks"] = [{"slide": 1, "has": "4.2", "lacks": "3.9"}]
    block = "<<<<<<< SEARCH\n- lost: {}\n=======\n- lost: 4.2\n>>>>>>> REPLACE\n"
    replies = {block.format("3.9"): 1, block.format("9"): 0, before: 0}
    replies[before.replace("3.9", "4.2").replace("bye", "so long")] = 0.5

    async def scored():
        made = Scorer(tmp_path, "edit", jobs=1)
        try:
            await made.warm()
            row = {"request": "It was 4.2.", "edit": edit}
            prompt = rows.Rows(None).prompt({"label": chat_rows.gym_row({**ASKED, **row})["label"]})
            keys = [made.key(prompt, reply) for reply in replies]
            assert made.key({**prompt, "edit": {**edit, "slides": 4}}, before) not in keys
            pairs = zip(keys, replies, strict=True)
            return [await made.score(key, prompt, reply) for key, reply in pairs]
        finally:
            await made.close()

    found = asyncio.run(scored())
    assert [one["reward"] for one in found] == [*replies.values()]
    assert "not in the deck" in found[1]["why"]
    spoilt = {"request": "It was 4.2.", "edit": {**edit, "checks": [{"eval": "1"}]}}
    with pytest.raises(cli.BadData, match=r"edit\.checks"):
        rows.Rows(None).prompt(spoilt)
