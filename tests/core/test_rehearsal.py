"""The phases of a long target (make/rehearse.mk), in a small Makefile of their own."""

import json
import subprocess
from pathlib import Path

REHEARSE = Path(__file__).resolve().parents[2] / "make/rehearse.mk"
MAKEFILE = """SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
{phases}
all:
\t@$(PHASES) log/phases.jsonl 'first|60|a X=1' 'broken|90|b' 'never|60|c'
a:
\t@echo a $(X)
b:
\t@exit 3
c:
\t@echo c
"""


def test_phases_run_in_order_and_a_failure_stops_them(tmp_path):
    define = REHEARSE.read_text().partition("define PHASES")[2].partition("endef")[0]
    text = MAKEFILE.format(phases=f"define PHASES{define}endef")
    (tmp_path / "Makefile").write_text(text)
    done = subprocess.run(["make", "all"], cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 2 and done.stdout == "a 1\n"
    said = [line for line in done.stderr.splitlines() if line.startswith("all: ")]
    assert said == [
        "all: first, usually 1 min",
        "all: broken, usually 2 min",
        "all: stopped in broken; what is done is kept: run it again",
    ]
    log = [json.loads(line) for line in (tmp_path / "log/phases.jsonl").read_text().splitlines()]
    assert [(line["phase"], line["exit"]) for line in log] == [("first", 0), ("broken", 2)]
