"""`make test-gym`: resources servers of NeMo Gym by their own names, each with a right and a wrong reply to a row that we
wrote in its format, from bench-prepare's rows to bench-grade's verdict."""

import asyncio
import json
import os

import pytest
from decksmith.bench.benchmarks import grading, gym, tasks
from decksmith.core import cli

ROWS = json.loads((cli.ROOT / "tests" / "fixtures" / "gym-servers.json").read_text())


def test_a_server_without_a_benchmark_is_named_like_one(tmp_path, monkeypatch):
    """Without the toolchain: what the table says, and what is refused."""
    servers = gym.table()["servers"]
    assert {name for name, row in servers.items() if row["tested"]} == set(ROWS)
    assert tasks.load("gym-string_match")["source"] == {"gym": "string_match"}
    assert not [name for name in ROWS if gym.lack(name)]
    assert "runs what a reply holds" in gym.lack("nvarc")
    assert "no test of ours" in gym.lack("fukuyamabench")
    with pytest.raises(cli.Missing, match="without rows of its own"):
        list(tasks.prepare("gym-string_match", tmp_path))
    (tmp_path / "gym-string_match").mkdir()
    (tmp_path / "gym-string_match" / "gym.jsonl").write_text("{}\n")
    monkeypatch.setenv("DECKSMITH_GYM_PYTHON", str(tmp_path / "none"))
    with pytest.raises(cli.Missing, match="make .venv-gym"):
        list(tasks.prepare("gym-string_match", tmp_path))


@pytest.mark.skipif(not os.environ.get("DECKSMITH_GYM"), reason="make test-gym")
def test_each_server_tells_a_right_reply_from_a_wrong_one(tmp_path):
    prepared = {}
    for name, rows in ROWS.items():
        home = tmp_path / f"gym-{name}"
        home.mkdir()
        (home / "gym.jsonl").write_text(json.dumps(rows["row"]) + "\n")
        (prepared[name],) = tasks.prepare(f"gym-{name}", tmp_path)
        asked = rows["row"]["responses_create_params"]["input"]
        assert prepared[name]["messages"] == asked

    async def go():
        graders, found = grading.Graders(1), {}
        for name, record in prepared.items():
            for said in ("right", "wrong"):
                gen = {"text": ROWS[name][said], "finish_reason": "stop"}
                grade = await graders.work({**record, "gen": gen})
                found[name, said] = grade["verdict"], grade["detail"]["reward"]
        await graders.close()
        return found

    found = asyncio.run(go())
    assert len(found) == 2 * len(ROWS)
    assert not [
        (key, got) for key, got in found.items() if (got[0] == "right") != (key[1] == "right")
    ]
    assert not [key for key, got in found.items() if key[1] == "wrong" and got[1] >= 0.5]
