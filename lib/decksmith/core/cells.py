"""The command line that puts a command into a cell (walls.py), and which walls there are to try."""

import json
import os
import subprocess
import sys
import tempfile
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
    scratch: bool = False,
) -> list[str]:
    """The command line that runs `command` in a cell, as a child of this process.

    home: the folder that the cell has for its own. readable: what it may read besides the system's
    programs. net: leave it the host's network. scratch: give it a small /var/tmp too.
    """
    kind, become = walls
    read = [str(path) for path in readable]
    spec = {
        "home": str(home),
        "read": read,
        "walls": kind,
        "become": become,
        "net": net,
        "scratch": scratch,
        "parent": os.getpid(),
    }
    python = os.path.realpath(sys.executable)
    return [python, "-IS", str(CELL), json.dumps(spec), *map(str, command)]


def granted(trial: Sequence[object], readable: Iterable[str | Path], what: str) -> Walls:
    """The strongest walls in which a trial command runs here. Raises cli.Missing, naming `what`
    goes into them, where there are none, unless DECKSMITH_WALLS=plain does without."""
    refusals, places = [], list(readable)
    for walls in ladder(os.environ.get("DECKSMITH_WALLS") == "plain"):
        with tempfile.TemporaryDirectory() as home:
            line = enclosed(walls, Path(home), trial, places)
            done = subprocess.run(line, capture_output=True, text=True)
        if done.returncode == 0:
            return walls
        refusals.append(f"{walls[0]}: {done.stderr.strip()[-200:]}")
    raise cli.Missing(
        f"this machine grants no walls around {what} ({'; '.join(refusals)[:300]}); let users make "
        "namespaces (sysctl kernel.unprivileged_userns_clone=1), or accept that it can read and "
        "change what you can: DECKSMITH_WALLS=plain"
    )


def contained(command: Sequence[object], data: bytes, readable: Iterable[str | Path]) -> bytes:
    """What a command writes to stdout, given `data`, in the strongest walls of this host that it starts in; b"" after ten
    minutes. It limits itself in memory and CPU time."""
    with tempfile.TemporaryDirectory(prefix="decksmith-") as home:
        own = {"HOME": home, "TMPDIR": home, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        places = [real for place in readable for real in (place, *links(str(place)))]
        for walls in ladder(True):
            line = enclosed(walls, Path(home).resolve(), command, places, scratch=True)
            try:
                done = subprocess.run(line, input=data, capture_output=True, timeout=600, env=own)
            except subprocess.TimeoutExpired:
                return b""
            if done.returncode != 125:  # what walls.py ends with where it cannot build them
                break
        return done.stdout


def links(path: str) -> Iterator[str]:
    """Where a path leads: what each of its links names, and the place itself."""
    for _ in range(40):  # as many as Linux follows
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        yield path
    yield os.path.realpath(path)
