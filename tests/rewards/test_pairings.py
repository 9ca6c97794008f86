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
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def collected(pairing, tmp_path, url, replies, samples):
    """What a Gym's collector brings of replies, of which `samples` have the same request."""
    python = ROOT / f".venv-gym-{WORK[pairing]['gym']}/bin/python3"
    rows = [
        {"reply": reply, "request": f"request {n // samples}", "row": {"label": {"id": "p1"}}}
        for n, reply in enumerate(replies)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = subprocess.run(
        [python, Path(__file__).with_name("gym_client.py"), url, "token", path]
        + [export("nemo-gym", tmp_path / "gym", [PROMPT])],
        capture_output=True,
        text=True,
        env={**os.environ, "SAMPLES": str(samples)},
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
