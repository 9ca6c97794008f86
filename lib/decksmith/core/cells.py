"""The command line that puts a command into a cell (walls.py), and which walls there are to try."""

import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from decksmith.core import cli
from decksmith.core.walls import SYSTEM

CELL = cli.ROOT / "lib/decksmith/core/walls.py"
Walls = tuple[str, bool]  # what is around a cell, and whether root becomes another user in it
# From strongest to weakest.
WALLS: list[Walls] = [
    ("full", True),
    ("shared-pids", True),
    ("full", False),
    ("shared-pids", False),
    ("bubblewrap", True),
    ("plain", True),
    ("plain", False),
]


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
    programs. net: leave it the host's network (not under bubblewrap).
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
    before: list[str] = []
    if kind == "bubblewrap":  # has its walls where it is setuid and users may make no namespaces
        spec |= {"walls": "plain", "parent": 1}
        shown = [*SYSTEM, sys.base_prefix, os.path.realpath(sys.base_prefix), python, str(CELL)]
        before = ["bwrap", *_bubblewrap([*shown, *read], home)]
    return [*before, python, "-IS", str(CELL), json.dumps(spec), *map(str, command)]


def _bubblewrap(shown: Sequence[str], home: Path) -> list[str]:
    """The arguments of bwrap around a cell that may read the paths of `shown`."""
    there = [path for path in shown if os.path.exists(path)]
    links = [("--symlink", os.readlink(path), path) for path in shown if os.path.islink(path)]
    binds = [("--ro-bind", path, path) for path in there if not os.path.islink(path)]
    parents = {str(folder) for path in [*shown, str(home)] for folder in Path(path).parents}
    # Without this the folders above would be open to root alone.
    above = [("--perms", "0755", "--dir", folder) for folder in sorted(parents - {"/"})]
    capable = ["--cap-add", "ALL"] if os.geteuid() == 0 else []  # what the cell gives up itself
    return [
        *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent"),
        *capable,
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
        *itertools.chain(*above, *links, *binds),
        *("--bind", str(home), str(home)),
    ]


def links(path: str) -> Iterator[str]:
    """Where a path leads: what each of its links names, and the place itself."""
    for _ in range(40):  # as many as Linux follows
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        yield path
    yield os.path.realpath(path)
