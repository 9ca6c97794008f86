"""The programs of `make speed`, in sizes of seconds: each still finds the flags, modules and files that it names."""

import os
import re
import subprocess
import sys

import pytest
from decksmith.core import cli

MORE = [
    "bench_render.py --ours --decks 2 --many 0",
    "bench_report.py 24",
    "bench_scale.py 2000",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["bench_grading.py 60", *(pytest.param(each, marks=pytest.mark.long) for each in MORE)]
)
def test_a_part_of_the_page_is_written(line):
    name, *rest = line.split()
    command = [sys.executable, cli.ROOT / "tests" / name, *rest]
    env = {**os.environ, "PYTHONPATH": str(cli.ROOT / "lib")}
    done = subprocess.run(command, env=env, cwd=cli.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("# ") and re.search(r"(?m)^\|.*\d", done.stdout)
