"""Finished renders by everything they depend on, shared by all runs: the same deck is not rendered twice.

One file each: the sha256 of the rest, a line of JSON, the pictures one after the other. It appears by a rename: any
number of processes may read, write and be killed; a damaged one counts as none.
"""

import hashlib
import json
import os
import time
from pathlib import Path
from typing import cast

from decksmith.core import cli, stream
from decksmith.measure.render.worker import Drawn

MOST = 2 << 30  # bytes in the folder, some 6000 decks; above it, what was used longest ago goes


def folder() -> Path | None:
    """Where they are kept: DECKSMITH_RENDERS (None when it says `off`), else beside the cache of pictures."""
    if place := os.environ.get("DECKSMITH_RENDERS"):
        return None if place == "off" else Path(place)
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home) / "decksmith" / "renders" if home else cli.ROOT / "data" / "renders"


def load(place: Path, key: str) -> Drawn | None:
    """What was kept under `key` (see `keep`), or None."""
    try:
        data = (place / key).read_bytes()
        digest, rest = data[:64], memoryview(data)[65:]
        if hashlib.sha256(rest).hexdigest().encode() != digest:
            return None
        os.utime(place / key)
    except OSError:
        return None
    at = data.index(b"\n", 65)
    result = json.loads(data[65:at])
    pictures = []
    for size in result["pictures"]:
        pictures.append(data[at + 1 : at + 1 + size])
        at += size
    return cast(Drawn, result | {"pictures": pictures})


def keep(place: Path, key: str, result: Drawn) -> None:
    """Keep `result`, unless another machine or day could say otherwise. No failure to write matters."""
    for error in result["errors"]:
        if error["kind"] != "model" or error["class"] in ("deadline", "memory", "crash"):
            return
    sizes = [len(data) for data in result["pictures"]]
    rest = stream.dumps({**result, "pictures": sizes}) + b"\n"
    rest += b"".join(result["pictures"])
    try:
        stream.write(place / key, hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
        _shrink(place)
    except OSError:
        pass


def _shrink(place: Path) -> None:
    """Delete the least recently used beyond MOST bytes, and what a killed process left half written."""
    entries, now = [], time.time()
    for entry in os.scandir(place):
        try:
            info = entry.stat(follow_symlinks=False)
            if entry.name.endswith(".tmp") and now - info.st_mtime > 3600:
                os.unlink(entry)
            elif entry.is_file(follow_symlinks=False):
                entries.append((info.st_mtime, info.st_size, entry.path))
        except FileNotFoundError:  # another process was first
            continue
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= MOST:
            break
        Path(path).unlink(missing_ok=True)
        total -= size
