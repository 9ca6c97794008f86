"""Rules with a judge that reads: what its verdict is worth, and what is said where there is none."""

import asyncio
import json
import subprocess
import sys

import pytest
from decksmith.core import cli
from decksmith.train.rewards.scorer import Scorer
from reward_server import ASKS, DECK

ROOT = cli.ROOT
PROMPT = {
    "messages": [{"role": "user", "content": ASKS["request"]}],
    "asks": ASKS["asks"],
    "checklist": [{"id": "c1", "ask": "names an animal", "match": ["crab"]}],
}


def said(content, yes, quote="Crabs anemones"):
    """A reply of the reader: this score for content, 3 for coherence, its answer to the checklist, and what it found of
    three things that the request asks for."""

    def dimension(score):
        return {"why": "so", "evidence": [{"slide": 1, "seen": "a heading"}], "score": score}

    return json.dumps(
        {
            "asked": [{"what": "a fact", "yes": True, "slide": 2, "quote": quote}] * 3,
            "content": dimension(content),
            "coherence": dimension(4),
            "observations": [],
            "checklist": [{"id": "c1", "yes": yes, "slide": 2 if yes else None}],
        }
    )


@pytest.fixture
def endpoint(tmp_path, monkeypatch):
    """A judge on loopback that says what stands in a file: (process, file)."""
    reply = tmp_path / "verdict"
    command = [sys.executable, ROOT / "tests/endpoint.py", "--reply", reply]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    url = process.stdout.readline().strip()
    entries = tmp_path / "models"
    entries.mkdir()
    (entries / "judge.toml").write_text(
        f'[judge-text]\nbase_url = "{url}"\nslug = "reads"\njobs = 2\n'
    )
    monkeypatch.setenv("DECKSMITH_MODELS", str(entries))
    yield process, reply
    process.kill()
    process.wait()


@pytest.mark.long(
    "tests/rewards/test_attack.py::test_layout_sees_what_cannot_be_read_and_pays_for_words_in_no_order"
)
@pytest.mark.browser
@pytest.mark.slow
def test_a_deck_off_its_request_gets_nothing_for_its_looks_and_without_a_judge_there_is_no_number(
    endpoint, tmp_path
):
    process, reply = endpoint

    async def asked():
        scorer = Scorer(tmp_path / "root", "read", jobs=1)
        scorer.judge.client.retries = 0
        deck = DECK.format(word="tea")
        try:
            await scorer.warm()  # asks nobody: there is no verdict yet
            reply.write_text(said(5, True))
            yield await scorer.score("a", PROMPT, deck)
            reply.write_text(said(1, False))
            yield await scorer.score("b", PROMPT, deck)
            reply.write_text(said(5, True, quote="lobsters"))
            yield await scorer.score("f", PROMPT, deck)
            reply.write_text("I like it")
            yield await scorer.score("c", PROMPT, deck)
            process.kill()
            process.wait()
            yield await scorer.score("d", PROMPT, deck)
            yield await scorer.score("e", PROMPT, "")  # no deck: nobody needs to look
        finally:
            await scorer.close()

    async def all_of_them():
        return [value async for value in asked()]

    good, bad, invented, unusable, down, empty = asyncio.run(all_of_them())
    assert good["components"]["answers"] == 1 and good["reward"] == 1
    assert bad["components"]["answers"] == bad["reward"] == 0
    assert bad["components"]["asked"] < good["components"]["asked"]
    # What the reader quotes and no slide shows is not there, whatever mark it gives.
    assert invented["components"]["answers"] == invented["reward"] == 0
    assert [one["reward"] for one in (unusable, down)] == [None, None]
    assert [one["cause"] for one in (unusable, down)] == ["judge", "infra"]
    assert unusable["why"].startswith("judge fault, unparseable: no usable reply in 4 tries")
    assert (empty["reward"], empty["masked"]) == (0, False)
