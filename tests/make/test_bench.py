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
