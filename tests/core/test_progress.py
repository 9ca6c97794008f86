"""The line of a pipeline: the last stage speaks for all, on a terminal and elsewhere."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from decksmith.core import stream
from decksmith.core.progress import Progress

LIB = Path(stream.__file__).resolve().parents[2]
STAGE = """
import sys
from decksmith.core import stream
from decksmith.core.records import Row
def work(record):
    if record["id"] == sys.argv[2]:
        raise stream.Fault(sys.argv[3], "planted", "planted\\nhere")
    return {}
sys.exit(stream.stage(sys.argv[1], work, takes=Row, passes_faults=sys.argv[1] != "score"))
"""
PIPE = (
    "{py} gen - - < rows | {py} render p1 {kind} | {py} judge - - | {py} score - - > out; echo >&2"
)


@pytest.fixture
def pipe(tmp_path):
    (tmp_path / "stage.py").write_text(STAGE)
    rows = [{"id": f"p{n}"} for n in range(20)]
    (tmp_path / "rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "live").write_text("# smol/offline\n")

    def command(kind):
        return PIPE.format(py=f"{sys.executable} {tmp_path}/stage.py", kind=kind)

    env = {**os.environ, "PYTHONPATH": str(LIB), "TOTAL": "20", "LIVE": str(tmp_path / "live")}
    return command, {"cwd": tmp_path, "env": env, "shell": True}


def test_the_last_stage_says_what_all_have_done(pipe):
    command, settings = pipe
    done = subprocess.run(command("model"), stderr=subprocess.PIPE, text=True, **settings)
    said = done.stderr.strip().splitlines()
    assert all(line.startswith("smol/offline: ") for line in said), said
    assert said[-1].startswith(
        "smol/offline: 20 of 20, answered 20, rendered 19, judged 19, 1 model fault, "
    )


@pytest.mark.long("test_the_last_stage_says_what_all_have_done")
def test_a_fault_that_is_no_model_s_is_said_by_name(pipe):
    command, settings = pipe
    done = subprocess.run(command("renderer"), stderr=subprocess.PIPE, text=True, **settings)
    assert "stage.py: p1: renderer fault, planted: planted here" in done.stderr
    assert "1 renderer fault" in done.stderr.strip().splitlines()[-1]


def test_a_stage_that_has_not_told_of_what_came_through_it_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "live").write_text("# m/offline\ngen 1 0 model=1\nrender 5 4 model=1\n")
    monkeypatch.setenv("LIVE", str(tmp_path / "live"))
    monkeypatch.setenv("TOTAL", "20")
    one = Progress("score")
    one.last, one.count = True, 5
    one.close()
    assert one.line().startswith("m/offline: 5 of 20, rendered 4, 1 model fault")


def test_a_terminal_has_one_line_that_is_written_over(pipe):
    command, settings = pipe
    here, there = pty.openpty()
    running = subprocess.Popen(command("model"), stderr=there, **settings)
    os.close(there)
    said = b""
    while True:
        try:
            chunk = os.read(here, 4096)
        except OSError:  # the other end is closed
            break
        said += chunk
    assert running.wait() == 0
    lines = said.decode().split("\r\n")
    assert (
        "20 of 20, answered 20, rendered 19, judged 19, 1 model fault" in lines[0].split("\r")[-1]
    )
    assert len([line for line in lines if line.strip()]) == 1
