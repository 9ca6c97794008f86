"""Where a host grants no walls: what an author changed outside of its folder, found by comparing before and after."""

import contextlib
import os
import pwd
import shutil
import socket
import stat
from pathlib import Path

from decksmith.corpus import workfolders

MOST = 20_000  # entries that are looked at
CELL_USERS = range(61184, 65520)  # whom core/walls.py makes of root

Snapshot = dict[str, tuple[int, int, int]]  # {path: (mtime in ns, size, inode)}


def snapshot(folder: Path, foreign: bool = False) -> Snapshot:
    """What tells a change around a draft's folder: the home, the working folder, the run, the other drafts.

    Folders that everybody writes to are left out. `foreign`: only what belongs to a cell's own user.
    """
    found: Snapshot = {}
    above = {str(path) for path in (folder, *folder.parents)}
    for top, depth in _places(folder.parent):
        waiting = [(top, depth)]
        while waiting and len(found) < MOST:
            place, depth = waiting.pop()
            try:
                entries = list(os.scandir(place))
            except OSError:
                continue
            for entry in entries:
                if entry.path in above:
                    continue
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    if not foreign or info.st_uid in CELL_USERS:
                        found[entry.path] = (info.st_mtime_ns, info.st_size, info.st_ino)
                    if depth > 1 and entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth - 1))
    return found


def _places(work: Path) -> list[tuple[str, int]]:
    """[(folder, how many levels of it are looked at)]."""
    places = [
        (pwd.getpwuid(os.getuid()).pw_dir, 2),
        (os.getcwd(), 1),
        (str(work.parent), 1),
        (str(work), 2),
    ]
    if os.environ.get("HOME"):
        places.append((os.environ["HOME"], 2))
    return [(top, depth) for top, depth in places if os.path.isdir(top) and not _is_public(top)]


def _is_public(folder: str) -> bool:
    return bool(os.stat(folder).st_mode & stat.S_ISVTX)  # sticky, as /tmp


def changes(folder: Path, before: Snapshot, after: Snapshot) -> list[str]:
    """The paths that differ, without the drafts that another process was at work on in the meantime."""
    others = tuple(
        f"{path}/" for path in folder.parent.iterdir() if path != folder and _is_anothers(path)
    )
    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    return sorted(path for path in changed if not f"{path}/".startswith(others))


def _is_anothers(folder: Path) -> bool:
    """Whether a draft is, or was last, in the hands of another process."""
    if workfolders.is_held(folder):
        return True
    status = workfolders.load(folder)
    own = (os.getpid(), socket.gethostname())
    return bool(status) and (status.get("pid"), status.get("host")) != own


def sweep(folder: Path) -> None:
    """Take away what an author left in the real folder besides the files that belong there, and `before`."""
    for entry in list(os.scandir(folder)):
        if entry.name == "before":
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name not in workfolders.OURS or not entry.is_file(follow_symlinks=False):
            os.unlink(entry.path)
