"""What has no score through no fault of its model is done again by the next make, and nothing else."""

import json
import subprocess

import pytest
from shadow import core, endpoint, environment, make

pytestmark = pytest.mark.browser

DIMENSION = {"why": "plain", "evidence": [{"slide": 1, "seen": "a title"}], "score": 3}
VERDICT = {
    **dict.fromkeys(("content", "design", "coherence"), DIMENSION),
    "observations": [],
    "checklist": [{"id": "c1", "yes": True, "slide": 1}],
}
ENTRY = '[{}]\nlabel = "X"\ncolor = "#336699"\nbase_url = "{}"\nslug = "x"\n'


@pytest.mark.long(
    "tests/make/test_baseline.py::test_the_embedded_model_needs_no_key_and_no_network_and_is_asked_once"
)
def test_a_judge_that_failed_is_asked_again_by_the_same_command(tmp_path):
    rows = core(1)
    for row in rows:
        row["checklist"] = [{"id": "c1", "ask": "Is there a title?", "match": ["deck"]}]
    (tmp_path / "verdict.json").write_text("I like it.")
    writer, writes = endpoint(tmp_path, "--log", "asked.jsonl")
    judge, judges = endpoint(tmp_path, "--reply", "verdict.json")
    root = make(
        tmp_path / "root", rows, ENTRY.format("gpt", writes) + ENTRY.format("judge", judges)
    )

    def baseline():
        # Without comparison, plots and page, which ask nobody.
        goal = "results/runs/gpt/published/summary.json"
        command = ["make", goal, "MODEL=gpt", "PROTOCOL=published"]
        done = subprocess.run(
            command,
            cwd=root,
            env=environment(root),
            stdin=subprocess.DEVNULL,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout
        lines = (root / "results/runs/gpt/published/scores.jsonl").read_text().splitlines()
        return [json.loads(line)["score"] for line in lines]

    try:
        assert [(score["overall"], score["fault"]["kind"]) for score in baseline()] == [
            (None, "judge")
        ]
        asked = (tmp_path / "asked.jsonl").read_text()
        (tmp_path / "verdict.json").write_text(json.dumps(VERDICT))
        assert all(score["overall"] for score in baseline())
        assert (tmp_path / "asked.jsonl").read_text() == asked, "no deck was written again"
    finally:
        writer.kill()
        judge.kill()
