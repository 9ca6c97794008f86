"""The command line that puts a command into a cell (walls.py), and which walls there are to try."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from decksmith.core import cli

CELL = cli.ROOT / "lib/decksmith/core/walls.py"
Walls = tuple[str, bool]  # what is around a cell, and whether root becomes another user in it
# From strongest to weakest.
WALLS: list[Walls] = [
    ("full", True),
    ("shared-pids", True),
    ("full", False),
    ("shared-pids", False),
    ("plain", True),
    ("plain", False),
]


def ladder(plain: bool) -> list[Walls]:
    """The walls to try here, from strongest to weakest; `plain`: those without namespaces too."""
    root = os.geteuid() == 0  # nobody else has another user to become
    return [each for each in WALLS if (root or each[1]) and (plain or each[0] != "plain")]


def enclosed(
    walls: Walls,
    home: Path,
    command: Sequence[object],
    readable: Iterable[str | Path] = (),
    *,
    net: bool = False,
) -> list[str]:
    """The command line that runs `command` in a cell, as a child of this process.

    home: the folder that the cell has for its own. readable: what it may read besides the system's
    programs. net: leave it the host's network.
    """
    kind, become = walls
    read = [str(path) for path in readable]
    spec = {
        "home": str(home),
        "read": read,
        "walls": kind,
        "become": become,
        "net": net,
        "parent": os.getpid(),
    }
    python = os.path.realpath(sys.executable)
    return [python, "-IS", str(CELL), json.dumps(spec), *map(str, command)]


def links(path: str) -> Iterator[str]:
    """Where a path leads: what each of its links names, and the place itself."""
    for _ in range(40):  # as many as Linux follows
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        yield path
    yield os.path.realpath(path)
