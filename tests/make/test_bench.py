"""`make bench`: what it hands on of the command line, and a benchmark from end to end."""

import json
import subprocess

import pytest
from shadow import core, endpoint, environment, make

ENTRY = '[fake]\nbase_url = "{url}"\nslug = "fake"\n'


@pytest.mark.browser
@pytest.mark.slow
def test_two_questions_are_asked_graded_and_summarized(tmp_path):
    reply = tmp_path / "reply.md"
    reply.write_text("So it is \\boxed{180}.")
    server, url = endpoint(tmp_path, "--reply", str(reply))
    root = make(tmp_path / "root", core(1), ENTRY.format(url=url))
    # -o: what grades is in the group dev, which runs this.
    words = ["make", "-o", ".venv/.bench", "bench", "MODEL=fake", "BENCH=arithmetic", "LIMIT=2"]
    try:
        done = subprocess.run(
            words, cwd=root, env=environment(root), capture_output=True, text=True
        )
    finally:
        server.kill()
    assert done.returncode == 0, done.stdout + done.stderr
    (rows,) = root.glob("results/**/rows.jsonl")
    grades = [json.loads(line)["grade"] for line in rows.read_text().splitlines()]
    assert [grade["answer"] for grade in grades] == ["180", "180"], grades
    assert "arithmetic" in done.stdout


GROUP = """title = "Small"
margin = 0.5
aspects = { reasoning = 0.5 }
[[parts]]
bench = "arithmetic"
aspect = "reasoning"
questions = 40
tokens = [100, 300]
"""
PAID = ENTRY + "price = {{ prompt = 1, completion = 10 }}\n"


@pytest.mark.long("tests/make/test_baseline.py::test_money_is_spent_only_where_somebody_agrees")
@pytest.mark.slow
def test_the_guard_says_what_it_costs_before_it_asks_and_ends_in_a_sentence_and_a_status(tmp_path):
    reply, log = tmp_path / "reply.md", tmp_path / "asked.jsonl"
    reply.write_text("So it is \\boxed{180}.")
    server, url = endpoint(tmp_path, "--reply", str(reply), "--log", str(log))
    registry = PAID.format(url=url) + PAID.format(url=url).replace("[fake]", "[other]")
    root = make(tmp_path / "root", core(1), registry)
    (root / "assets/groups").unlink()
    (root / "assets/groups").mkdir()
    (root / "assets/groups/guard.toml").write_text(GROUP)
    words = ["make", "-o", ".venv/.bench", "guard", "MODEL=fake", "BASE=other"]

    def run(**more):
        env = environment(root, **more)
        return subprocess.run(words, cwd=root, env=env, capture_output=True, text=True)

    try:
        refused, done = run(), run(YES="1")
    finally:
        server.kill()
    assert refused.returncode == 2
    assert "fake: 40 replies, 100 + 300 tokens each (assumed): about 0.12 USD" in refused.stderr
    assert "together about 0.25 USD" in refused.stderr and "nothing was asked" in refused.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert "arithmetic" in done.stdout and "ruled out" in done.stdout
    assert not (root / "results/bench/other/guard/arithmetic/skipped.txt").exists()
