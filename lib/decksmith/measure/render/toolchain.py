"""What renders: Node, our renderer (assets/renderer), its packages and its browser; where they are and which."""

import functools
import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import TypedDict

from decksmith.core import cli, stream

RENDERER = cli.ROOT / "assets" / "renderer"
MODULES = cli.TOOLCHAIN / "assets" / "renderer" / "node_modules"


def node() -> Path:
    """Path of the Node that belongs to this checkout; raises cli.Missing."""
    for place in (
        cli.TOOLCHAIN / ".venv" / "bin" / "node",
        *(Path(folder) / "node" for folder in os.get_exec_path()),
    ):
        if place.is_file() and os.access(place, os.X_OK):
            return place
    raise cli.Missing("Node is not installed; run: make setup")


class Versions(TypedDict):
    """As `Engine` of docs/records.md has them."""

    slidev: str
    lock: str
    browser: str
    fonts: str
    code: str


@functools.cache
def versions() -> Versions:
    """Versions and hashes of what decides the pixels. Raises cli.Missing."""
    if (
        not (MODULES / "@slidev" / "cli" / "package.json").is_file()
        or not (MODULES / "@sparticuz" / "chromium" / "package.json").is_file()
    ):
        raise cli.Missing("the renderer is not installed; run: make setup")

    def version(package: str) -> str:
        found: str = json.loads((MODULES / package / "package.json").read_text())["version"]
        return found

    lock = (RENDERER / "package-lock.json").read_bytes()
    fonts = {
        name: data.get("integrity")
        for name, data in json.loads(lock)["packages"].items()
        if "fontsource" in name or "dejavu" in name
    }
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(RENDERER.glob("*.mjs"))))
    return {
        "slidev": version("@slidev/cli"),
        "lock": hashlib.sha256(lock).hexdigest(),
        "browser": _chromium_version() or f"chromium {version('@sparticuz/chromium')}",
        "fonts": stream.fingerprint(fonts),
        "code": code.hexdigest(),
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
    raise cli.Missing(
        f"DECKSMITH_CHROMIUM={path} is not the absolute path of a browser that runs; mend or unset it"
    )


def environment() -> dict[str, str]:
    """The whole environment of a renderer's process."""
    kept = {
        name: os.environ[name]
        for name in ("DECKSMITH_CHROMIUM", "DECKSMITH_RENDER_DEBUG", "DECKSMITH_TOOLCHAIN")
        if name in os.environ
    }
    if "DECKSMITH_RENDER_CACHE" in os.environ:
        kept["DECKSMITH_RENDER_CACHE"] = str(Path(os.environ["DECKSMITH_RENDER_CACHE"]).resolve())
    return {
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PATH": "/usr/bin:/bin",
        "NODE_ENV": "production",
        **kept,
    }
