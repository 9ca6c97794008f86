"""The walls around all cells: which there are here, and the command line that starts supervisor.py
inside of them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from decksmith.core import cli
from decksmith.core.walls import SYSTEM

LIB = cli.ROOT / "lib"  # the only thing of ours that the supervisor sees
WALLS = ("apptainer", "namespaces")  # from strongest to weakest
HOMES = [home for home in ("/tmp", "/mnt", "/srv", "/var/tmp") if Path(home).is_dir()]


def candidates(unsafe: bool) -> list[str]:
    """The walls to try here, from strongest to weakest, as IMAGES says; `unsafe`: at last, none."""
    images, inside = os.environ.get("IMAGES", "auto"), os.environ.get("DECKSMITH_IMAGE")
    found = []
    if images != "off" and not inside and _image().exists() and shutil.which("apptainer"):
        found.append("apptainer")
    if images == "on" and not inside:
        return found
    found.append("namespaces")
    if unsafe:
        found.append("none")
    return found


def command(walls: str) -> list[str]:
    """The command line that starts supervisor.py inside of these walls. Raises cli.Missing where
    the image is not ours."""
    python = os.path.realpath(sys.executable)
    wanted = sorted({sys.base_prefix, os.path.realpath(sys.base_prefix), python})
    shown: list[str] = []  # what Python has elsewhere than the system's programs
    for path in wanted:
        if not _below(path, [*SYSTEM, *shown]):
            shown.append(path)
    spec = {
        # A folder for the cell's own, with nothing in it that is shown.
        "home": next(home for home in HOMES if not any(_below(path, [home]) for path in shown)),
        "read": shown,
        "walls": "none" if walls == "none" else "full",
        "become": True,
        "loopback": False,
    }
    if walls == "apptainer":
        return _apptainer(json.dumps(spec | {"home": "/tmp", "read": []}))
    return [python, "-IS", str(LIB / "decksmith/bench/sandbox/supervisor.py"), json.dumps(spec)]


def _below(path: str, tops: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(top) for top in tops)


def _image() -> Path:
    return cli.ROOT / "containers/sandbox.sif"


def _apptainer(spec: str) -> list[str]:
    verified = subprocess.run(
        [cli.ROOT / "containers/verify", "sandbox"], capture_output=True, text=True
    )
    if verified.returncode:
        raise cli.Missing(verified.stderr.strip().removeprefix("within: "))
    # What root in a container or virtual machine often lacks itself.
    drop = ("--drop-caps", "CAP_SYS_RESOURCE") if os.geteuid() == 0 else ()
    return [
        *("apptainer", "--silent", "exec", "--containall", "--cleanenv", "--no-home"),
        *("--net", "--network", "none", "--pwd", "/"),
        *drop,
        *("--bind", f"{LIB}:/mnt:ro", str(_image())),
        *("/usr/bin/python3", "-IS", "/mnt/decksmith/bench/sandbox/supervisor.py", spec),
    ]
