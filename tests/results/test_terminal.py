"""What the tables of runs look like on a real terminal: nothing is wider than it, nothing is lost."""

import fcntl
import os
import re
import struct
import sys
import termios

import pytest
from decksmith.core import cli
from decksmith.measure.results import text

sys.path.append(str(cli.ROOT / "tests/web"))

import synthetic

pytestmark = pytest.mark.slow

HEAD = ["Model", "Renders", "Checks passed", "d", "p corrected", "Cost"]
ROWS = [
    [
        "A model of a rather long name, fine-tuned",
        "12 of 12",
        "61 % [52, 70]",
        "",
        "0.031",
        "$0.00",
    ],
    ["smol", "0 of 12", "–", "", "< 0.001", "$12.50"],
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    names = ("a-model-of-a-rather-long-name-fine-tuned", "another-of-such-a-length", "three")
    for name, good in zip(names, (0.7, 0.8, 0.9), strict=True):
        synthetic.run(folder / f"{name}/offline", name, good, 30, slides_too=False)
    return [folder / f"{name}/offline" for name in names]


def on_terminal(command, width):
    """What a command prints on a terminal of so many columns, line by line."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = os.posix_spawnp(
        command[0],
        [str(word) for word in command],
        env | {"IMAGES": "off", "TERM": "dumb"},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, theirs, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
    )
    os.close(theirs)
    said = b""
    try:
        while block := os.read(ours, 65536):
            said += block
    except OSError:  # nobody writes there any more
        pass
    os.close(ours)
    os.waitpid(process, 0)
    return said.decode().splitlines()


@pytest.mark.parametrize("width", [80, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "script",
    [
        "run-compare",
        *(pytest.param(x, marks=pytest.mark.long) for x in ("run-plan", "run-compare --page")),
    ],
)
def test_nothing_is_wider_than_the_terminal(runs, tmp_path, script, width):
    name, *flags = script.split()
    more = [*flags, *([tmp_path / "page.md"] if flags else [])]
    lines = on_terminal([cli.ROOT / "bin" / name, *more, *runs], width)
    assert len(lines) > 10 and max(map(len, lines)) <= width, max(lines, key=len)
    assert not any(line.startswith("|") for line in lines)


def test_a_file_or_a_pipe_gets_the_page_as_it_is(capsys):
    page = "**Bold** of a line that is " + "very " * 30 + "long\n"
    assert text.shown(page) == page


def test_no_cell_is_lost_however_little_room_there_is(monkeypatch):
    for width in ("300", "80"):
        monkeypatch.setenv("COLUMNS", width)
        lines = text.columns([HEAD * 3, *(row * 3 for row in ROWS)], 1)
        assert max(map(len, lines)) <= int(width)
        words = re.findall(r"\S+", " ".join(lines))
        for cell in [*HEAD, *ROWS[0], *ROWS[1]]:
            assert all(words.count(word) >= 3 for word in cell.split()), cell


def test_a_table_that_fits_is_left_as_it_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")  # taken as 80
    assert text.columns([["name", "n"], ["a b", "10"]], 1) == ["name   n", "a b   10"]
