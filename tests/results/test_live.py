"""The report of a run that is not finished: bin/run-report --during, fed as the pipeline feeds it."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/web"))
import synthetic  # noqa: E402

pytestmark = pytest.mark.slow
SCRIPT = ROOT / "bin/run-report"


@pytest.fixture
def runs(tmp_path):
    """Two finished runs of three prompts; the second's scores are taken away and returned as lines."""
    made = []
    for model, skill in (("smol", 0.45), ("smol-sft", 0.8)):
        folder = synthetic.run(tmp_path / model / "offline", model, skill, 3, slides_too="plain")
        lines = (folder / "scores.jsonl").read_bytes().splitlines(keepends=True)
        asked = ("id", "messages", "asks", "checklist")
        rows = [{k: json.loads(line).get(k) for k in asked} for line in lines]
        (folder / "prompts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (folder / "scores.jsonl").touch()
        made.append((folder, lines))
    (first, _), (second, lines) = made
    (second / "scores.jsonl").unlink()
    return first, second, lines


def follow(out, during, *folders):
    return subprocess.Popen(
        [SCRIPT, "--out", out, "--during", during, *folders],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def live_of(page):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(found[1])["live"]


def written(job, file):
    """The page, once it is there; the job is not waited for longer than it lives."""
    while not file.is_file():
        assert job.poll() is None, job.stderr.read()
        time.sleep(0.05)
    return file.read_text()


@pytest.mark.long(
    "tests/results/test_report.py::test_the_page_of_a_run_that_goes_on_says_how_far_it_is_compares_nothing_and_is_no_look"
)
def test_page_comes_with_the_first_deck_and_compares_nothing_and_the_report_that_follows_is_another(
    runs, tmp_path
):
    first, second, lines = runs
    out = tmp_path / "report"
    job = follow(out, second, first, second)
    job.stdin.write(lines[0])
    job.stdin.flush()
    page = written(job, out / "index.html")
    live = live_of(page)
    assert (live["model"], live["done"], live["of"]) == ("SmolLM2 135M (fine-tuned)", 1, 3)
    assert "SmolLM2 135M" in page and "<table>" not in page and "more prompts" not in page
    said, errors = job.communicate(b"".join(lines[1:]))
    assert said == b"".join(lines)
    assert job.returncode == 0
    assert f"The report so far: file://{out}/index.html" in errors.decode()
    assert live_of((out / "index.html").read_text())
    before = (out / "version.js").read_text()
    assert "report_live = true" in before
    (second / "scores.jsonl").write_bytes(b"".join(lines))
    subprocess.run([SCRIPT, "--out", out, first, second], check=True, capture_output=True)
    page = (out / "index.html").read_text()
    assert live_of(page) is None
    assert "live" not in (out / "version.js").read_text()


@pytest.mark.long(
    "tests/results/test_report.py::test_the_page_of_a_run_that_goes_on_says_how_far_it_is_compares_nothing_and_is_no_look"
)
def test_a_run_of_other_prompts_is_left_out(runs, tmp_path):
    first, second, lines = runs
    (first / "prompts.jsonl").write_text("{}\n")
    out = tmp_path / "report"
    follow(out, second, first, second).communicate(b"".join(lines))
    page = (out / "index.html").read_text()
    assert page.count('<article class="model">') == 1
    assert live_of(page)["model"] == "SmolLM2 135M (fine-tuned)"


def test_a_page_that_cannot_be_written_costs_no_record(runs, tmp_path):
    first, second, lines = runs
    out = tmp_path / "report"
    out.mkdir()
    (out / "img").write_text("no folder")
    job = follow(out, second, first, second)
    said, errors = job.communicate(b"".join(lines))
    assert said == b"".join(lines)
    assert job.returncode == 0
    assert "the report so far was not written" in errors.decode()
