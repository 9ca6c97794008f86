"""What makefiles, batch scripts and pages give to a script, the script takes."""

import re
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[2]
USERS = [
    ROOT / "Makefile",
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("make/*.mk")),
    ROOT / "make/bench",
    *sorted(ROOT.glob("slurm/*.s*")),
    *sorted(ROOT.glob("docs/*.md")),
]
SCRIPTS = sorted(ROOT.glob("bin/*-*"))
# From a script's name to the end of its command; a line that ends in a backslash goes on.
COMMAND = re.compile(
    r"(?<![\w/.-])(?:bin/)?({})(?=\s)((?:\\\n|(?!\.\s)[^\n|;&<>`#])*)".format(
        "|".join(path.name for path in SCRIPTS)
    )
)
FLAG = re.compile(r"(?<=\s)--[a-z][a-z0-9-]*")


def command(script: Path) -> click.Command:
    """The command of a script. It is run as text: importing it would leave a folder of bytecode in bin."""
    scope = {"__name__": "script", "__file__": str(script)}
    exec(compile(script.read_text(encoding="utf-8"), script, "exec"), scope)
    return scope["main"].command


def options(script: Path) -> set[str]:
    """The flags of a script, as click knows them."""
    found = {flag for each in command(script).params for flag in (*each.opts, *each.secondary_opts)}
    return found | {"--help", "--version"}


def given(text: str) -> dict[str, set[str]]:
    """The flags that a text gives to each script; what stands behind ` -- ` is somebody else's."""
    found: dict[str, set[str]] = {}
    for name, words in COMMAND.findall(text):
        own = re.split(r"\s--\s|\s\$\(FLAGS\)", words)[0]
        found.setdefault(name, set()).update(FLAG.findall(own))
    return found


@pytest.mark.parametrize("path", USERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_flag_that_is_given_is_there(path):
    unknown = [
        f"{name} {flag}"
        for name, flags in given(path.read_text(encoding="utf-8")).items()
        for flag in sorted(flags - options(ROOT / "bin" / name))
    ]
    assert unknown == []


def test_flags_are_read_from_recipes_and_pages():
    text = (
        "x=$$(bin/model-wait --pid $$p --address) && bin/run-plan \\\n  --effect 1 -- --not-ours\n"
    )
    assert given(text) == {"model-wait": {"--pid", "--address"}, "run-plan": {"--effect"}}


def test_every_script_has_a_bats_file_and_its_own_help():
    for path in SCRIPTS:
        assert (ROOT / "tests/bin" / f"{path.name}.bats").exists(), path.name
        made = command(path)
        said = made.get_help(click.Context(made, info_name=path.name))
        assert said.split("\n")[0] in path.read_text(encoding="utf-8"), path.name
