"""Each pairing of assets/pairings.toml: its Gym's own agent and collector around our resources server, and the answers as that
trainer reads them. `make test-pairings` installs each Gym. The reward server is a stand-in that says what a reply is worth; the
real one is asked through Gym in test_server_others.py."""

import json
import os
import subprocess
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from test_server_others import export, result

ROOT = Path(__file__).resolve().parents[2]
PAIRINGS = tomllib.loads((ROOT / "assets/pairings.toml").read_text())
WORK = {name: one for name, one in PAIRINGS.items() if one["works"]}
PROMPT = {"id": "p1", "request": "Three slides", "asks": {"slides": 3}, "checklist": []}
PROMPT["messages"] = [{"role": "user", "content": "Three slides"}]

pytestmark = pytest.mark.skipif(
    "DECKSMITH_PAIRINGS" not in os.environ, reason="make test-pairings installs three NeMo Gyms"
)


@pytest.fixture
def rewards():
    """A reward server to whom a reply "0.5" is worth 0.5, and any word a fault of ours."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = row["response"]["output"][-1]["content"][0]["text"]
            worth = float(said) if said[0].isdigit() else None
            answer = {**row, "reward": worth or 0.0, "mask_sample": worth is None}
            answer |= {"reward_components": {}, "failure_kind": None, "failure_reason": None}
            answer |= {"why": f"{said} is too little"}
            if worth is None:
                answer |= {"failure_kind": "decksmith:renderer", "failure_reason": "no Chromium"}
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def collected(pairing, tmp_path, url, replies, samples, turns=0):
    """What a Gym's collector brings of replies, of which `samples` have the same request."""
    python = ROOT / f".venv-gym-{WORK[pairing]['gym']}/bin/python3"
    rows = [
        {"reply": reply, "request": f"request {n // samples}", "row": {"label": {"id": "p1"}}}
        for n, reply in enumerate(replies)
    ]
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = subprocess.run(
        [python, Path(__file__).with_name("gym_client.py"), url, "token", path]
        + [export("nemo-gym", tmp_path / "gym", [PROMPT])],
        capture_output=True,
        text=True,
        env={**os.environ, "SAMPLES": str(samples), "TURNS": str(turns)},
    )
    found = result(done)
    print(done.stderr[-4000:])  # for whoever reads a failure
    return found


@pytest.mark.parametrize("pairing", WORK)
def test_a_fault_of_ours_moves_nothing_in_its_group(pairing, tmp_path, rewards):
    replies = ["1", "0", "broken", "0.2", "0.5", "0.5", "0.5", "0.9"]
    found = collected(pairing, tmp_path, rewards, replies, 4)
    assert "error" not in found, found
    found = found["results"]
    by = {}
    for one in found:
        by.setdefault(one["response"]["output"][-1]["content"][0]["text"], []).append(one)
    (lost,) = by["broken"]
    assert lost["reward"] == pytest.approx(0.4)  # as NeMo-RL v0.7.0 reads it
    assert lost["instance_config"]["mask_sample"] is True  # as NeMo-RL's head does
    assert lost["mask_sample"] is True and lost["failure_reason"] == "no Chromium"
    assert [one["reward"] for one in by["0.5"]] == [0.5, 0.5, 0.5]
    assert not any((one.get("instance_config") or {}).get("mask_sample") for one in by["0.5"])


@pytest.mark.parametrize("pairing", WORK)
def test_a_run_of_which_too_many_decks_have_no_reward_ends(pairing, tmp_path, rewards):
    replies = ["0.5", "broken"] * 30
    found = collected(pairing, tmp_path, rewards, replies, 2)
    assert "error" in found and "500" in found["error"]


def texts(result):
    """What was said in a rollout, as (role, text)."""
    for item in result["response"]["output"]:
        content = item["content"]
        yield item["role"], content if isinstance(content, str) else content[0]["text"]


@pytest.mark.parametrize("pairing", WORK)
def test_a_model_that_mends_a_finding_a_turn_is_paid_for_its_last_deck_alone(
    pairing, tmp_path, rewards
):
    replies = [["0.2", "0.6", "1", "never said"], ["0.9", "0.4", "0.5", "0.7"]]
    found = collected(pairing, tmp_path, rewards, replies, 1, turns=4)
    assert "error" not in found, found
    mended, worse = found["results"]
    assert (mended["reward"], worse["reward"]) == (1.0, 0.7)
    roles = [role for role, _ in texts(mended)]
    assert roles == ["assistant", "user", "assistant", "user", "assistant"]
    assert "0.2 is too little" in dict(enumerate(texts(mended)))[1][1]
    assert (mended["turns"], worse["turns"]) == (3, 4)
    alone = collected(pairing, tmp_path / "alone", rewards, ["1", "0.7"], 1)["results"]
    assert [one["reward"] for one in alone] == [mended["reward"], worse["reward"]]
    # Each answer was written in sight of all that was said before.
    assert max(len(told) for told in found["heard"]) == 4


@pytest.mark.parametrize("pairing", WORK)
def test_a_fault_of_ours_in_any_turn_masks_the_rollout(pairing, tmp_path, rewards):
    replies = [["0.2", "broken"], ["broken", "1"], ["0.3", "0.4"], ["0.5", "0.6"]]
    rows = [["0.1", *reply] for reply in replies]
    found = collected(pairing, tmp_path, rewards, rows, 1, turns=3)
    assert "error" not in found, found
    first, second, third, fourth = found["results"]
    for lost in (first, second):
        assert lost["mask_sample"] is True and lost["instance_config"]["mask_sample"] is True
        assert lost["failure_reason"] == "no Chromium"
    assert (third["reward"], fourth["reward"]) == (0.4, 0.6)
    assert not third.get("mask_sample") and len(list(texts(second))) == 3
