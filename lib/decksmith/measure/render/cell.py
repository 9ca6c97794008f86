"""The cell of a process that renders: its folder, the strongest walls of this host, what it may read."""

import asyncio
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from decksmith.core import cli
from decksmith.core.cells import Walls, enclosed, ladder
from decksmith.measure.render import toolchain

NO_WALLS = "this machine grants no namespaces, so a deck would run as a program of yours, with your files and your network"


def private_folder() -> tuple[Path, int]:
    """(a private folder for temporary files, an open lock on it); folders whose owner was killed are swept first.

    The owner of a folder holds its lock as long as it lives, but for the moment after the folder was made.
    """
    for left in Path(tempfile.gettempdir()).glob("decksmith-render-*"):
        try:
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            info = os.fstat(descriptor)
            if info.st_uid == os.geteuid() and time.time() - info.st_mtime > 5:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(descriptor)
    folder = tempfile.mkdtemp(prefix="decksmith-render-")
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.geteuid() == 0:
        os.chmod(folder, 0o711)  # the workers are other users
    return Path(os.path.realpath(folder)), lock


def readable() -> list[Path]:
    """What a worker reads: the renderer, Node, and where they are elsewhere the cache and the browser."""
    root = toolchain.RENDERER.resolve()
    places = {root, toolchain.MODULES.resolve(), toolchain.node().resolve()}
    if cli.TOOLCHAIN != cli.ROOT:
        # The image's: where a module of the checkout finds its packages.
        places.add(Path("/node_modules"))
    if kept := os.environ.get("DECKSMITH_RENDER_CACHE"):
        places |= {Path(kept), Path(kept).resolve()}
    if browser := os.environ.get("DECKSMITH_CHROMIUM"):
        places |= {Path(browser).parent, Path(browser).resolve().parent}
    return sorted(place for place in places if place.exists())


async def run(command: Sequence[str], home: Path) -> tuple[int, str]:
    """(status, what it said on stderr) of a command; ended at once when this is cancelled, tried again when killed."""
    environment = {**toolchain.environment(), "HOME": str(home), "TMPDIR": str(home)}
    attempt = 0
    while True:
        attempt += 1
        with tempfile.TemporaryFile() as words:
            none = subprocess.DEVNULL
            process = subprocess.Popen(
                command, env=environment, stdin=none, stdout=none, stderr=words
            )
            try:
                while process.poll() is None:
                    await asyncio.sleep(0.02)
            finally:
                process.kill()
                process.wait()
            if attempt == 3 or 0 <= process.returncode < 128:
                words.seek(0)
                return process.returncode, words.read().decode("utf-8", "replace").strip()


async def bundle(theme: str | None = None) -> None:
    """Unpack the browser and bundle the runtimes that are not there yet; or the runtime of one theme. Raises cli.Missing."""
    toolchain.engine(1)
    folder, lock = private_folder()
    command: list[Path | str] = [toolchain.node(), toolchain.RENDERER / "build.mjs"]
    if theme:
        command = [toolchain.node(), toolchain.RENDERER.resolve() / "site.mjs", theme]
    try:
        status, words = await run(enclosed(("none", False), folder, command), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
    if status:
        raise cli.Missing(
            f"the renderer could not be made ready; run: make setup (status {status}; {words[-300:]})"
        )


async def prepare(home: Path) -> Walls:
    """Build what is missing and find the strongest walls this host grants: an element of WALLS."""
    _, walls = await asyncio.gather(bundle(), _walls(home))
    return walls


async def _walls(home: Path) -> Walls:
    """The strongest of WALLS in which Node runs; none at all only where DECKSMITH_WALLS accepts that, or an image is a wall."""
    refusals: list[str] = []
    image = os.environ.get("DECKSMITH_IMAGE")
    accepted = os.environ.get("DECKSMITH_WALLS", "")
    if accepted not in ("", "plain"):
        raise cli.BadConfig(
            f"DECKSMITH_WALLS is {accepted!r}; it is unset, or plain to do without walls"
        )
    plain = bool(accepted or image)
    for around in ladder(plain):
        walls, _ = around
        trial = Path(tempfile.mkdtemp(dir=home))
        status, words = await run(
            enclosed(around, trial, [toolchain.node().resolve(), "--version"], readable()), trial
        )
        if status == 0:
            if walls == "plain" and not image:
                cli.say(NO_WALLS)
            return around
        refusals.append(f"{walls}: {words[-200:]}")
    if plain:
        raise cli.Missing(f"Node does not run in any cell: {'; '.join(refusals)}")
    raise cli.Missing(
        f"{NO_WALLS} ({'; '.join(refusals)[:300]}); let users make namespaces (sysctl "
        "kernel.unprivileged_userns_clone=1), or use the image (make image-render); for decks that are "
        "your own: --walls plain, or DECKSMITH_WALLS=plain"
    )
