"""A real reward server: its doors, its cache, its end by kill -9, and the one client file that other loops take."""

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
import waits
from decksmith.measure.render.worker import tree
from reward_server import ASKS, DECK, PROMPTS, ROOT, prompt

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CLIENT = ROOT / "lib/decksmith/train/rewards/reward_client.py"


def deck(word):
    """A deck that nobody has asked for yet."""
    return DECK.format(word=word)


@pytest.fixture
def client(monkeypatch, tmp_path):
    """The client file as a trainer has it: alone, from a copy; its environment names no server yet."""
    for name in ("URL", "TOKEN", "ADDRESS"):
        monkeypatch.delenv(f"DECKSMITH_REWARD_{name}", raising=False)
    copy = tmp_path / "decksmith_reward.py"
    copy.write_bytes(CLIENT.read_bytes())
    spec = importlib.util.spec_from_file_location("decksmith_reward", copy)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def asked(client, server, monkeypatch):
    """The same, asking the server of this file."""
    monkeypatch.setenv("DECKSMITH_REWARD_ADDRESS", str(server.address))
    return client


# Doors


def test_a_deck_has_one_reward_at_each_door_and_is_rendered_once(server):
    before = server.ask("/health").json()["scored"]
    body = {"reply": deck("limpets"), **ASKS}
    said = server.ask("/reward", body).json()
    assert said["masked"] is False and 0 < said["reward"] <= 1 and said["components"]["slides"] > 0
    label = json.dumps(ASKS)
    again = server.ask("/reward", {"prompt": "x", "response": deck("limpets"), "label": label})
    assert again.json() == said
    text = [{"type": "output_text", "text": deck("limpets"), "annotations": []}]
    response = {"output": [{"type": "message", "role": "assistant", "content": text}]}
    params = {"input": [{"role": "user", "content": ASKS["request"]}]}
    row = {"responses_create_params": params, "response": response, "asks": ASKS["asks"]}
    gym = server.ask("/verify", row).json()
    assert gym["reward"] == said["reward"] and gym["mask_sample"] is False
    assert sum(gym["reward_components"].values()) == pytest.approx(said["reward"])
    assert gym["component_slides"] > 0 and gym["asks"] == ASKS["asks"]
    assert server.ask("/health").json()["scored"] == before + 1


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/reward", {"reply": "x"}, 400, "the row names no prompt"),
        ("/reward", {"asks": {"slides": 3}, "request": "x"}, 400, "the reply is not text"),
        ("/reward", {"reply": 7, **ASKS}, 400, "the reply is not text"),
        ("/reward", [], 400, "the body is no JSON object"),
        (
            "/reward",
            {"prompt": "x", "response": "x", "label": "p999"},
            400,
            "no prompt 'p999' here",
        ),
        (
            "/reward",
            {"prompt": "x", "response": None, "label": "p001"},
            400,
            "the reply is not text",
        ),
        ("/verify", {"response": {}}, 422, "responses_create_params and response are missing"),
    ],
)
def test_what_cannot_be_used_gets_a_sentence(server, path, body, status, said):
    reply = server.ask(path, body)
    assert reply.status_code == status and said in reply.json()["error"]


def test_a_gym_row_without_our_fields_is_masked_and_says_why(server):
    body = {"responses_create_params": {"input": "x"}, "response": {"output": []}, "own": 1}
    said = server.ask("/verify", body).json()
    assert said["mask_sample"] is True and said["reward"] == 0.0 and said["own"] == 1
    assert said["failure_kind"] == "decksmith:row"
    assert said["failure_reason"].startswith("the row names no prompt; give asks or checklist")


def test_a_reply_without_a_deck_is_the_models_and_gets_next_to_nothing(server):
    for reply in ("", "I cannot do that.", "<think>" + "so " * 1000, "\ud800", "x" * 500_000):
        said = server.ask("/reward", {"reply": reply, **ASKS}).json()
        assert said["masked"] is False and said["reward"] < 0.1, reply[:20]


def test_who_has_no_token_learns_nothing_but_health(server):
    assert requests.get(server.url + "/health", timeout=waits.HANG).json()["status"] == "ok"
    assert requests.post(server.url + "/reward", json={}, timeout=waits.HANG).status_code == 401
    body = {"prompt": "x", "response": "", "label": "p001"}
    inside = server.url.replace("//", f"//reward:{server.token}@")
    assert requests.post(inside + "/reward", json=body, timeout=waits.HANG).json()["reward"] < 0.1


def test_the_scoring_process_that_is_killed_costs_nobody_a_reward(server):
    """Both it and the deck that it had are tried again."""
    os.kill(helpers(server.process.pid)[0], signal.SIGKILL)
    said = server.ask("/reward", {"reply": deck("whelks"), **ASKS}).json()
    assert said["masked"] is False and said["components"]["slides"] > 0


def helpers(pid):
    """The scoring processes of a server."""
    found = []
    for child in tree(pid):
        with contextlib.suppress(OSError):  # the others come and go
            if b"rewards.helper" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


# The end of a server


@pytest.mark.long(
    "tests/rewards/test_revising.py::test_a_better_deck_is_kept_and_a_kill_asks_for_nothing_twice"
)
def test_after_kill_9_what_was_answered_is_there_and_what_was_not_is_asked_again(
    serving, client, monkeypatch
):
    server = serving("root", "--prompts", PROMPTS)
    monkeypatch.setenv("DECKSMITH_REWARD_ADDRESS", str(server.address))
    first = client.ask({"reply": deck("mussels"), **ASKS})
    port = server.url
    answers = []
    rows = [{"reply": deck(word), **ASKS} for word in ("starfish", "urchins", "gobies")]
    thread = threading.Thread(target=lambda: answers.extend(client.ask_all(rows)))
    thread.start()
    waits.until(lambda: server.ask("/health").json()["working"] > 0)
    scoring = helpers(server.process.pid)
    server.kill()
    waits.until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in scoring))
    server.start()
    thread.join(waits.HANG)
    assert len(answers) == 3 and not any(answer["masked"] for answer in answers)
    assert server.url == port
    assert client.ask({"reply": deck("mussels"), **ASKS}) == first
    assert [client.ask(row) for row in rows] == answers
    # The first was answered by the server that was killed: this one found it on its disk.
    assert server.ask("/health").json()["scored"] <= 3


def test_a_second_server_of_a_root_says_so_and_the_first_goes_on(server):
    done = subprocess.run(
        [ROOT / "bin/reward-serve", "--root", server.folder, "--address", server.folder / "b.json"],
        env={**os.environ, "IMAGES": "off"},
        capture_output=True,
        text=True,
        timeout=waits.HANG,
    )
    assert done.returncode == 75
    assert re.search("another reward-serve has this folder; give another with --root", done.stderr)
    assert server.ask("/health").json()["status"] == "ok"


# The client file


def test_slime_and_miles_get_a_number_for_a_sample_and_a_list_for_a_group(asked):
    args = SimpleNamespace(reward_key=None)

    def sample(reply, **more):
        told = {
            "prompt": "x",
            "response": reply,
            "label": None,
            "metadata": {},
            "remove_sample": False,
        }
        return SimpleNamespace(**told | more)

    one = sample(deck("crabs"), label="p001")
    number = asyncio.run(asked.slime(args, one))
    assert isinstance(number, float) and number > 0 and one.remove_sample is False
    group = [sample(deck("crabs"), metadata=ASKS), sample("", label=json.dumps(ASKS))]
    rewards = asyncio.run(asked.slime(args, group, evaluation=False))
    assert rewards[0] > rewards[1] >= 0
    keyed = asyncio.run(asked.slime(SimpleNamespace(reward_key="reward"), group))
    assert [each["reward"] for each in keyed] == rewards and keyed[0]["slides"] > 0


def test_a_masked_sample_leaves_slimes_loss_and_its_groups_mean_where_they_were(
    client, monkeypatch
):
    answers = {
        "good": {"reward": 0.8, "components": {}, "masked": False, "why": ""},
        "bad": {"reward": 0.2, "components": {}, "masked": False, "why": ""},
        "ours": {"reward": None, "components": {}, "masked": True, "why": "x", "cause": "renderer"},
    }
    monkeypatch.setattr(client, "ask", lambda row, patience=0: answers[row["reply"]])
    group = [
        SimpleNamespace(prompt="p", response=each, label="a", metadata={}, remove_sample=False)
        for each in ("good", "ours", "bad")
    ]
    assert asyncio.run(client.slime(SimpleNamespace(), group)) == [0.8, 0.5, 0.2]
    assert [each.remove_sample for each in group] == [False, True, False]
    assert client.compute_score("", "ours", "a") == {"score": 0.5, "masked": 1.0}
    other = client.compute_score("", "ours", "another prompt")
    assert other == {"score": 0.5, "masked": 1.0}  # nothing is known of it: the mean of all


def test_verl_gets_a_score_with_its_parts(asked):
    said = asked.compute_score("decks", deck("crabs"), json.dumps(ASKS), extra_info={"index": 1})
    assert said["score"] > 0 and said["masked"] == 0.0 and said["slides"] > 0
    by_extra = asked.compute_score("decks", deck("crabs"), "", extra_info={"id": "p001"})
    assert 0 < by_extra["score"] < 1


def test_a_row_that_is_refused_ends_a_training_with_the_servers_sentence(
    asked, server, monkeypatch
):
    with pytest.raises(asked.RewardRefused, match="HTTP 400: no prompt 'p999' here"):
        asked.ask({"reply": "x", "id": "p999"})
    monkeypatch.setenv("DECKSMITH_REWARD_TOKEN", "wrong")
    with pytest.raises(asked.RewardRefused, match="HTTP 401: the token is missing or wrong"):
        asked.ask({"reply": "x", "id": "p001"})
    monkeypatch.delenv("DECKSMITH_REWARD_ADDRESS")
    with pytest.raises(asked.RewardRefused, match="neither DECKSMITH_REWARD_URL nor"):
        asked.ask({"reply": "x"})


def test_a_deck_goes_to_another_server_when_its_own_is_gone(asked, server, monkeypatch):
    gone = "http://127.0.0.1:9"  # nobody listens at the discard port
    monkeypatch.setenv("DECKSMITH_REWARD_URL", f"{gone}, {server.url}/")
    monkeypatch.setenv("DECKSMITH_REWARD_TOKEN", server.token)
    rows = [{"reply": "", "id": "p001", "request": str(number)} for number in range(8)]
    assert len({asked._servers(json.dumps(row).encode())[0] for row in rows}) == 2
    assert not any(answer["masked"] for answer in asked.ask_all(rows))
    monkeypatch.setenv("DECKSMITH_REWARD_URL", gone)
    with pytest.raises(asked.RewardUnavailable, match="no reward server answered"):
        asked.ask({"reply": "", "id": "p001"}, patience=0.5)


def test_a_server_with_a_full_line_is_asked_again_and_then_the_deck_is_masked(client, monkeypatch):
    said = [(503, 1.0, {"error": "the line is full"})] * 2
    said.append((200, 0.0, {"reward": None, "masked": True, "cause": "overload", "why": "late"}))
    said.append((200, 0.0, {"reward": 0.5, "components": {}, "masked": False, "why": ""}))
    pauses = []
    monkeypatch.setattr(client, "_post", lambda *_: said.pop(0))
    monkeypatch.setattr(client.time, "sleep", pauses.append)
    monkeypatch.setenv("DECKSMITH_REWARD_URL", "http://a")
    assert client.ask({"reply": "x"})["reward"] == 0.5
    assert pauses == [1.0, 1.0, 1.0]
    monkeypatch.setattr(client, "_post", lambda *_: (503, 30.0, {"error": "the line is full"}))
    given_up = client.ask({"reply": "x"}, patience=10.0)
    assert given_up["masked"] and given_up["cause"] == "overload" and given_up["reward"] is None
    with pytest.raises(client.RewardUnavailable, match="the line is full"):
        client.verify({}, patience=10.0)  # which is a masked sample in Gym's words


def test_a_known_prompt_is_asked_as_chat_too(asked):
    row = {"reply": deck("crabs"), "prompt": prompt()["messages"], "asks": {"slides": 3}}
    assert asked.ask(row)["masked"] is False
