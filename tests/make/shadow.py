"""A second root for tests: this checkout's code and toolchain, but its own registry, prompts and results."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make(folder, prompts, registry):
    """Lay a root at `folder` with the first `prompts` core rows (a list of records) and `registry` as assets/models.toml."""
    from decksmith.core import stream

    (folder / "assets").mkdir(parents=True)
    (folder / "data").mkdir()
    for name in ("bin", "lib", "Makefile", "make", ".venv", "pyproject.toml", "uv.lock"):
        (folder / name).symlink_to(ROOT / name)
    for path in (ROOT / "assets").iterdir():
        if path.name != "models.toml":
            (folder / "assets" / path.name).symlink_to(path)
    (folder / "data/adapter").symlink_to(ROOT / "data/adapter")
    (folder / "assets/models.toml").write_text(registry)
    (folder / "data/prompts.jsonl").write_bytes(
        b"".join(stream.dumps(row) + b"\n" for row in prompts)
    )
    return folder


def environment(folder, **more):
    names = ("PATH", "HOME", "TMPDIR", "LANG", "DECKSMITH_RENDERS")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {
        **kept,
        "DECKSMITH_ROOT": str(folder),
        "IMAGES": "off",
        **more,
    }


def endpoint(folder, *options):
    """Start tests/endpoint.py; returns (process, base URL)."""
    process = subprocess.Popen(
        [sys.executable, ROOT / "tests/endpoint.py", *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    return process, process.stdout.readline().strip()


def core(n):
    from decksmith.core import stream

    rows = [row for _, row in stream.records(ROOT / "data/prompts.jsonl") if "core" in row["sets"]]
    return rows[:n]


def remove(folder):
    shutil.rmtree(folder, ignore_errors=True)
