"""Parts as tasks of a real Ray on this machine (make test-ray): each runs once with its SHARD, and one that fails is named."""

import os
import subprocess

import pytest
from decksmith.core import cli

PYTHON = cli.ROOT / ".venv-ray/bin/python3"
pytestmark = pytest.mark.skipif(
    not os.environ.get("DECKSMITH_RAY"), reason="make test-ray sets up Ray"
)


def shards(tmp_path, fails):
    command = [
        "sh",
        "-c",
        f'echo "$SHARD" >> {tmp_path}/done; [ "$SHARD" != "{fails}" ] || {{ echo lost a disk; exit 3; }}',
    ]
    done = subprocess.run(
        [PYTHON, cli.ROOT / "make/ray_shards.py", "3", *command],
        env={**os.environ, "CPUS": "1"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr


def test_each_part_runs_once_and_one_that_fails_is_named(tmp_path):
    status, said = shards(tmp_path, "2/3")
    assert status == 75
    assert "part 2/3 ended with 3:\nlost a disk" in said and "part 1/3" not in said
    assert sorted((tmp_path / "done").read_text().split()) == ["1/3", "2/3", "3/3"]
    assert shards(tmp_path, "none")[0] == 0
