"""Run generated code that nobody has read: common().run(code) -> Result.

Each run has a cell of its own (walls.py: namespaces, a user that owns nothing, a read-only root in
memory that shows the system's programs and Python's, a small folder /tmp, no network, not even to
itself) and in it a guard (supervisor.py) that sets the limits and the system call filter, and
reports. Cells stand ready: a run costs milliseconds more than its code. Around all cells there is
one more wall where the host has it (py): Apptainer with containers/sandbox.sif.

What the code does is told by name: ok, error (it failed by itself), timeout, memory, output,
processes, files (too many open, too large, no room), killed (by a signal, or its sandbox ended).
Text and exit codes are whatever the code wanted; `finished` says that its last line was reached,
so that exit(0) in front of the tests is no pass. Code that means to deceive shares its process
with the tests that it is given, and can forge even that: what must not be forged runs in another
cell (`pair`).
"""

import atexit
import collections
import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from decksmith.bench.sandbox.cell import Limits, Result, as_bytes, order, ready, running, sealed
from decksmith.core import cli
from decksmith.core.walls import SYSTEM

LIB = cli.ROOT / "lib"  # the only thing of ours that the supervisor sees
HOMES = [home for home in ("/tmp", "/mnt", "/srv", "/var/tmp") if Path(home).is_dir()]
ATTEMPTS = 3  # at a cell, before there is none to be had


class CellPool:
    """Cells that stand ready. limits: the default; warm: how many; walls: insist on these;
    image: in which; read: folders that they show besides."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        warm: int | None = None,
        walls: str | None = None,
        image: str = "sandbox",
        read: Iterable[str] = (),
    ) -> None:
        self.image, self.read = image, list(read)
        self.limits, self.wanted = limits or Limits(), walls
        self.warm = (os.cpu_count() or 1) if warm is None else warm
        # The control sockets of guards that wait, or will soon.
        self.ready: collections.deque[socket.socket] = collections.deque()
        self.starting = threading.RLock()
        self.process: subprocess.Popen[bytes] | None = None
        self.asks: socket.socket | None = None  # to supervisor.py: each message asks for a cell
        self.walls = ""  # that stand; none before the first start

    def run(
        self,
        code: str,
        *,
        stdin: str | bytes = "",
        files: Mapping[str, str | bytes] | None = None,
        take: Iterable[str] = (),
        limits: Limits | None = None,
    ) -> Result:
        """Run a Python text once in a fresh cell. Raises cli.Missing where nothing can confine it, ValueError
        for what cannot be meant.

        files: {relative name: text or bytes} laid out in the working folder, from where Python
        imports; take: names of regular files to hand back. May be called from many threads."""
        limits = limits or self.limits
        task = order(code, files, take, limits=limits)
        with sealed(as_bytes(stdin)) as given:
            control = self._cell(limits)
            with running(control, task, limits, given, self.walls) as finished:
                return finished()

    def pair(self, code: str, other: str, *, limits: Limits) -> tuple[Result, Result]:
        """Run two Python texts at once, each in a cell of its own, the standard input of each a
        socket to the other's: their two Results. `other` is ended when `code` has ended. What
        either writes beyond the socket reaches us alone, and nothing joins them but that."""
        ours, theirs = socket.socketpair()
        with ours, theirs, contextlib.ExitStack() as held:
            ends = []
            for text, given in ((code, ours), (other, theirs)):
                task, control = order(text, limits=limits), self._cell(limits)
                run = running(control, task, limits, given, self.walls)
                ends.append(held.enter_context(run))
                given.close()
            asked = ends[0]()
            with contextlib.suppress(OSError):
                control.send(b"end")
            return asked, ends[1]()

    def open(self) -> str:
        """Start what there is to start, and name the walls. Raises cli.Missing where nothing
        confines the code."""
        with self.starting:
            if self.process is None or self.process.poll() is not None:
                self._start()
            while len(self.ready) < self.warm:
                self.ready.append(self._ask(self.limits))
        return self.walls

    def close(self) -> None:
        """End everything that was started here."""
        with self.starting:
            while self.ready:
                self.ready.pop().close()
            if self.process and self.asks:
                self.asks.close()
                try:
                    self.process.wait(5)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
                self.process = None

    def abandon(self) -> None:
        """In a fork: leave everything to the parent, and hold nothing of it."""
        self.starting, self.process = threading.RLock(), None
        for held in self.ready:
            held.close()
        self.ready.clear()
        if self.asks:
            self.asks.close()

    # Cells

    def _cell(self, limits: Limits) -> socket.socket:
        """The control socket of a guard that waits for its order. Raises cli.Missing."""
        for attempt in range(1, ATTEMPTS + 1):
            control = self._next(limits)
            try:
                return ready(control)
            except OSError as error:
                control.close()
                if attempt == ATTEMPTS:
                    raise cli.Missing(f"no cell for the sandbox: {error}") from None
        raise AssertionError("unreachable")

    def _next(self, limits: Limits) -> socket.socket:
        """The control socket of the next cell: of one that stands ready where its folder has the room that
        is asked for, else of a new one."""
        room, usual = (limits.disk, limits.inodes), (self.limits.disk, self.limits.inodes)
        with self.starting:
            self.open()
            if room != usual or not self.ready:
                return self._ask(limits)
            control = self.ready.popleft()
            self.ready.append(self._ask(self.limits))
            return control

    def _ask(self, limits: Limits) -> socket.socket:
        """Have a cell made; it says when it is ready."""
        assert self.asks and self.process
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        space = {"space": f"size={limits.disk},nr_inodes={limits.inodes}"}
        with theirs:
            try:
                socket.send_fds(self.asks, [json.dumps(space).encode()], [theirs.fileno()])
            except OSError:  # it was killed: the next look finds that out
                self.process.wait()
        return ours

    # Walls

    def _start(self) -> None:
        """Start supervisor.py in the strongest walls that are granted. Raises cli.Missing with all
        refusals."""
        refusals = []
        self.close()
        for walls in [self.wanted] if self.wanted else candidates():
            refusal = self._try(walls)
            if refusal is None:
                self.walls = walls
                return
            refusals.append(f"{walls}: {refusal}")
        raise cli.Missing(
            f"code cannot be confined here ({'; '.join(refusals) or 'no walls to choose from'}); build the image "
            "(make image-sandbox), or allow user namespaces"
        )

    def _try(self, walls: str) -> str | None:
        """Start in these walls, and wait for the first cell; None, or what was said instead."""
        line, path = command(walls, self.image, self.read), os.environ.get("PATH", os.defpath)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tempfile.TemporaryFile() as words:
            with theirs:
                try:
                    self.process = subprocess.Popen(
                        line,
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        stderr=words,
                        cwd="/",
                        start_new_session=True,
                        env={"PATH": path} if walls == "apptainer" else {},
                    )
                except OSError as error:
                    ours.close()
                    return str(error)
            self.asks = ours
            try:
                self.ready.append(ready(self._ask(self.limits), socket.MSG_PEEK))
                return None
            except OSError as error:
                self.close()
                words.seek(0)
                said = words.read()[-300:].decode("utf-8", "replace").strip()
                return f"{error}: {said}" if said else str(error)


def candidates() -> list[str]:
    """The walls to try here, from strongest to weakest, as IMAGES says."""
    images, inside = os.environ.get("IMAGES", "auto"), os.environ.get("DECKSMITH_IMAGE")
    found = []
    if images != "off" and not inside and image("sandbox").exists() and shutil.which("apptainer"):
        found.append("apptainer")
    if images == "on" and not inside:
        return found
    found.append("namespaces")
    return found


def command(walls: str, name: str = "sandbox", read: Iterable[str] = ()) -> list[str]:
    """The command line that starts supervisor.py inside of these walls. Raises cli.Missing where
    the image is not ours."""
    python = os.path.realpath(sys.executable)
    wanted = sorted({sys.base_prefix, os.path.realpath(sys.base_prefix), python, *read})
    shown: list[str] = []  # what Python has elsewhere than the system's programs
    for path in wanted:
        if not _below(path, [*SYSTEM, *shown]):
            shown.append(path)
    packages, beside = _numpy()
    spec = {
        "packages": packages if walls == "none" else "/packages",
        "beside": beside,
        # A folder for the cell's own, with nothing in it that is shown.
        "home": next(home for home in HOMES if not any(_below(path, [home]) for path in shown)),
        "read": shown,
        "walls": "none" if walls == "none" else "full",
        "become": True,
        "loopback": False,
    }
    if walls == "apptainer":
        debian = "/usr/lib/python3/dist-packages"
        return _apptainer(
            name, json.dumps(spec | {"home": "/tmp", "read": [], "beside": [], "packages": debian})
        )
    return [python, "-IS", str(LIB / "decksmith/bench/sandbox/supervisor.py"), json.dumps(spec)]


def _numpy() -> tuple[str | None, list[str]]:
    """Where this Python has numpy, and the folders that belong to it: programs of contests may use it, as in their harness."""
    found = importlib.util.find_spec("numpy")
    if found is None or not found.origin:
        return None, []
    home = Path(found.origin).resolve().parent
    folders = [home, home.parent / "numpy.libs"]
    return str(home.parent), [str(folder) for folder in folders if folder.is_dir()]


def _below(path: str, tops: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(top) for top in tops)


def image(name: str) -> Path:
    """Where an image of ours lies, once it is built."""
    return cli.ROOT / f"containers/{name}.sif"


def _apptainer(name: str, spec: str) -> list[str]:
    verified = subprocess.run(
        [cli.ROOT / "containers/verify", name], capture_output=True, text=True
    )
    if verified.returncode:
        raise cli.Missing(verified.stderr.strip().removeprefix("within: "))
    # What root in a container or virtual machine often lacks itself.
    drop = ("--drop-caps", "CAP_SYS_RESOURCE") if os.geteuid() == 0 else ()
    return [
        *("apptainer", "--silent", "exec", "--containall", "--cleanenv", "--no-home"),
        *("--net", "--network", "none", "--pwd", "/"),
        *drop,
        *("--bind", f"{LIB}:/mnt:ro", str(image(name))),
        *("/usr/bin/python3", "-IS", "/mnt/decksmith/bench/sandbox/supervisor.py", spec),
    ]


# --- the pool of this process --------------------------------------------------------------------

_common: CellPool | None = None
_guarding = threading.Lock()


def common() -> CellPool:
    """The pool of this process, which is started when it is first needed and ends with the
    process."""
    global _common
    with _guarding:
        if _common is None:
            _common = CellPool()
            atexit.register(_common.close)
        return _common


def _forked() -> None:
    """In a fork of this process: leave the pool to the parent, and the fork to a pool of its
    own."""
    global _common, _guarding
    if _common:
        _common.abandon()
    _common, _guarding = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)
