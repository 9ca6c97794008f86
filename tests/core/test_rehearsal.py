"""The phases of a long target, with a small Makefile of their own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import waits
from decksmith.core import progress

ROOT = Path(__file__).resolve().parents[2]


def run(folder, *wanted):
    return subprocess.run(
        [sys.executable, "-m", "decksmith.core.progress", "log/phases.jsonl", *wanted],
        cwd=folder,
        text=True,
        capture_output=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT / "lib")),
        timeout=waits.HANG,
    )


def test_what_is_left_is_scaled_by_the_phases_that_really_ran_here():
    typical = [100, 200, 300]
    assert progress.left(typical, []) == 600
    assert progress.left(typical, [200]) == 2 * 500
    assert progress.left(typical, [0.5, 300]) == 1.5 * 300, (
        "a phase that was done before says nothing about speed"
    )
    assert progress.left(typical, [100, 200, 300]) == 0


def test_phases_run_in_order_each_with_what_is_left_and_a_failure_stops_them(tmp_path):
    (tmp_path / "Makefile").write_text("a:\n\t@echo a $(X)\nb:\n\t@false\nc:\n\t@echo c\n")
    done = run(tmp_path, "first|60|a X=1", "second|120|c")
    assert (done.returncode, done.stdout) == (0, "a 1\nc\n")
    assert done.stderr.splitlines() == [
        "log: 1 of 2, first; 0 min so far, about 3 min to go",
        "log: 2 of 2, second; 0 min so far, about 2 min to go",
        "log: done in 0 min",
    ]
    done = run(tmp_path, "first|60|a", "broken|60|b", "never|60|c")
    assert done.returncode == 2 and "c\n" not in done.stdout
    assert (
        done.stderr.splitlines()[-1] == "log: stopped in broken; what is done is kept: run it again"
    )
    log = [json.loads(line) for line in (tmp_path / "log/phases.jsonl").read_text().splitlines()]
    assert [(line["phase"], line["exit"]) for line in log] == [
        ("first", 0),
        ("second", 0),
        ("first", 0),
        ("broken", 2),
    ]


def test_an_interrupt_waits_until_the_phase_has_put_its_things_away(tmp_path):
    recipe = "trap 'sleep 0.5; echo put away; exit 130' INT; echo up; while :; do sleep 0.1; done"
    (tmp_path / "Makefile").write_text(f"long:\n\t@{recipe}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "decksmith.core.progress", "log/phases.jsonl", "long|60|long"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=str(ROOT / "lib")),
        start_new_session=True,
    )
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGINT)
    said, words = process.communicate(timeout=waits.HANG)
    assert process.returncode and said == "put away\n"
    assert "Traceback" not in words
    assert words.splitlines()[-1] == "log: stopped in long; what is done is kept: run it again"
