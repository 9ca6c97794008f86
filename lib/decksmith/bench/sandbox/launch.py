"""The walls around all cells: which there are here, and the command line that starts supervisor.py
inside of them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from decksmith.core import cli

PACKAGE = cli.ROOT / "lib/decksmith"  # its files are loaded by path inside
WALLS = ("apptainer", "namespaces")  # from strongest to weakest
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")  # what every cell shows


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


def environment(walls: str) -> dict[str, str]:
    """What the command sees of ours."""
    return {"PATH": os.environ.get("PATH", os.defpath)} if walls == "apptainer" else {}


def command(walls: str) -> list[str]:
    """The command line that starts supervisor.py inside of these walls. Raises cli.Missing where
    the image is not ours."""
    python = os.path.realpath(sys.executable)
    shown = _shown(python)
    spec = {
        "home": _home(shown),
        "read": shown,
        "walls": "none" if walls == "none" else "full",
        "become": True,
        "loopback": False,
    }
    if walls == "apptainer":
        return _apptainer(json.dumps(spec | {"home": "/tmp", "read": []}))
    return [python, "-IS", str(PACKAGE / "bench/sandbox/supervisor.py"), json.dumps(spec)]


def _shown(python: str) -> list[str]:
    """The paths of Python that the system's do not have, none below another."""
    paths = {sys.base_prefix, os.path.realpath(sys.base_prefix), python}
    return [
        path
        for path in sorted(paths)
        if not _below(path, SYSTEM) and not any(_below(path, (top,)) for top in paths - {path})
    ]


def _home(shown: list[str]) -> str:
    """A folder for the cell's own, with nothing in it that is shown."""
    places = ("/tmp", "/mnt", "/srv", "/var/tmp")
    return next(
        place
        for place in places
        if os.path.isdir(place) and not any(_below(path, (place,)) for path in shown)
    )


def _below(path: str, tops: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


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
        *("--bind", f"{PACKAGE}:/mnt:ro", str(_image())),
        *("/usr/bin/python3", "-IS", "/mnt/bench/sandbox/supervisor.py", spec),
    ]
