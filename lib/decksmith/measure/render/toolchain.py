"""What renders: Node, our renderer (assets/renderer), its packages and its browser; where they are and which."""

import functools
import hashlib
import json
import os
import subprocess
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.measure.decks.records import Engine

RENDERER = cli.ROOT / "assets" / "renderer"
MODULES = cli.TOOLCHAIN / "assets" / "renderer" / "node_modules"


def node() -> Path:
    """Path of the Node that belongs to this checkout; raises cli.Missing."""
    for folder in (str(cli.TOOLCHAIN / ".venv" / "bin"), *os.get_exec_path()):
        place = Path(folder, "node")
        if place.is_file() and os.access(place, os.X_OK):
            return place
    raise cli.Missing("Node is not installed; run: make setup")


@functools.cache
def engine(scale: int) -> Engine:
    """What decides the pixels, as the record keeps it: versions and hashes. Raises cli.Missing."""
    try:
        slidev, chromium = (
            json.loads((MODULES / package / "package.json").read_bytes())["version"]
            for package in ("@slidev/cli", "@sparticuz/chromium")
        )
    except FileNotFoundError:
        raise cli.Missing("the renderer is not installed; run: make setup") from None
    lock = (RENDERER / "package-lock.json").read_bytes()
    locked = {name: data.get("integrity") for name, data in json.loads(lock)["packages"].items()}
    fonts = {name: locked[name] for name in locked if "fontsource" in name or "dejavu" in name}
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(RENDERER.glob("*.mjs"))))
    return {
        "slidev": slidev,
        "lock": hashlib.sha256(lock).hexdigest(),
        "browser": _chromium_version() or f"chromium {chromium}",
        "fonts": stream.fingerprint(fonts),
        "code": code.hexdigest(),
        "scale": scale,
        "mode": "page",
    }


def _chromium_version() -> str | None:
    """What the browser of DECKSMITH_CHROMIUM says of itself, or None where the one of the lock is used."""
    if not (path := os.environ.get("DECKSMITH_CHROMIUM")):
        return None
    try:
        done = subprocess.run(
            [path, "--version"], env=environment(), capture_output=True, text=True, timeout=60
        )
        if os.path.isabs(path) and done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        pass
    why = "is not the absolute path of a browser that runs; mend or unset it"
    raise cli.Missing(f"DECKSMITH_CHROMIUM={path} {why}")


def environment() -> dict[str, str]:
    """The whole environment of a renderer's process."""
    own = {"LANG": "C.UTF-8", "TZ": "UTC", "PATH": "/usr/bin:/bin", "NODE_ENV": "production"}
    for name in ("DECKSMITH_CHROMIUM", "DECKSMITH_RENDER_DEBUG", "DECKSMITH_TOOLCHAIN"):
        if name in os.environ:
            own[name] = os.environ[name]
    if "DECKSMITH_RENDER_CACHE" in os.environ:
        own["DECKSMITH_RENDER_CACHE"] = str(Path(os.environ["DECKSMITH_RENDER_CACHE"]).resolve())
    return own
