"""What every script does: it is quiet when its reader has seen enough, and says its version."""

import os
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
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
        "print('x')",
        "[click.echo('x') for _ in range(100_000)]",
        *(
            pytest.param(body, marks=pytest.mark.long)
            for body in (
                "print('x' * 1_000_000)",
                "print('x', flush=True)",
                "click.echo('x' * 1_000_000)",
            )
        ),
    ],
)
def test_output_that_nobody_reads_is_no_error(tmp_path, body):
    assert piped(tmp_path, body) == (0, "")


def test_help_that_nobody_reads_is_no_error(tmp_path):
    assert piped(tmp_path, "pass", "--help") == (0, "")


def test_an_error_after_such_output_keeps_its_sentence_and_status(tmp_path):
    status, said = piped(tmp_path, "print('x'); raise cli.BadData('line 7 is wrong')")
    assert (status, said) == (65, "a-script: line 7 is wrong\n")


VERSION = tomllib.loads((cli.ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path.name, marks=[] if n % 3 == 0 else pytest.mark.long)
        for n, path in enumerate(sorted((cli.ROOT / "bin").glob("*-*"))[::10])
    ],
)
def test_scripts_say_the_version(script):
    done = subprocess.run(
        [cli.ROOT / "bin" / script, "--version"],
        capture_output=True,
        text=True,
        env={**os.environ, "IMAGES": "off"},
    )
    assert (done.returncode, done.stdout) == (0, f"decksmith {VERSION}\n"), done.stderr


def test_the_version_is_the_same_everywhere():
    from decksmith import __version__

    cited = yaml.safe_load((cli.ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## ([0-9.]+)", (cli.ROOT / "CHANGELOG.md").read_text(), re.M)
    assert {__version__, cited["version"], newest[1]} == {VERSION}
    assert f"decksmith {VERSION}, protocol" in cited["message"]
