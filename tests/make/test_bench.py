"""What `make bench` hands on of the command line, by make's own word; nothing is run."""

import subprocess

import pytest
from decksmith.core import cli


@pytest.mark.parametrize("given", [[], ["RULES=own"]])
def test_whose_rules_grade_is_said_by_the_user_alone(given):
    words = ["make", "-n", "bench", "MODEL=local", "BENCH=arithmetic", *given]
    done = subprocess.run(words, cwd=cli.ROOT, capture_output=True, text=True, check=True)
    assert f" RULES='{'own' if given else ''}' " in done.stdout
