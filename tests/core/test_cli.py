"""A script whose reader has seen enough: no traceback, and the status is 0."""

import subprocess
import sys

import pytest
from decksmith.core import cli

SCRIPT = '''"""What it does.

{doc}
"""
from decksmith.core import cli
import click

@cli.command(__doc__)
def main():
    {body}

main()
'''


def piped(tmp_path, body, *arguments):
    """(status, stderr) of a script whose stdout nobody reads any more."""
    (tmp_path / "a-script").write_text(SCRIPT.format(doc="more\n" * 20_000, body=body))
    process = subprocess.Popen(
        [sys.executable, tmp_path / "a-script", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(cli.ROOT / "lib"), "PATH": ""},
    )
    process.stdout.close()
    said = process.stderr.read()
    return process.wait(), said


@pytest.mark.parametrize(
    "body",
    [
        "print('x' * 1_000_000)",
        "print('x', flush=True)",
        "print('x')",
        "click.echo('x' * 1_000_000)",
        "[click.echo('x') for _ in range(100_000)]",
    ],
)
def test_output_that_nobody_reads_is_no_error(tmp_path, body):
    assert piped(tmp_path, body) == (0, "")


def test_help_that_nobody_reads_is_no_error(tmp_path):
    assert piped(tmp_path, "pass", "--help") == (0, "")


def test_an_error_after_such_output_keeps_its_sentence_and_status(tmp_path):
    status, said = piped(tmp_path, "print('x'); raise cli.BadData('line 7 is wrong')")
    assert (status, said) == (65, "a-script: line 7 is wrong\n")
