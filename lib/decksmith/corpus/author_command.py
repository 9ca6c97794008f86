"""An author that is anybody's command, in a cell of its own (core/walls.py).

The command gets a copy of the draft's folder under the same name; when it has ended, three files are taken out of the
copy and nothing else (workspace.py, inside of the cell).
"""

import asyncio
import base64
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decksmith.core import cli, masking, stream
from decksmith.core.cells import WALLS, Walls, enclosed, links
from decksmith.core.stream import Fault
from decksmith.corpus import drafts, elsewhere, workfolders
from decksmith.corpus.workfolders import GIVEN, Seed, Status

WORKSPACE = cli.ROOT / "lib/decksmith/core/workspace.py"
LOG = {"attempt": 64 << 10, "line": 4 << 10, "file": 512 << 10}  # bytes that are kept
GRACE = 3.0  # seconds between TERM and KILL
NETWORK = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
)
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")  # what every cell shows
TASK = (
    "Read INSTRUCTIONS.md in this folder and do what it says: write PROMPT.md, think.md and deck.md for the seed in "
    "seed.json. EXAMPLE.md is a draft that was accepted. Write nothing outside of this folder."
)
AGAIN = " reasons.txt says why the last attempt was refused: mend these places and keep the rest."
ENFORCED = {
    "full": "authors see their own folder, the system's programs and nothing else of files or processes",
    "shared-pids": "authors see their own folder and the system's programs; processes of the host are visible to them",
    "plain": "this host grants no namespaces: authors can read what this user can, the network is open to them, one runs at "
    "a time, and what it changes in the home, the working and the run's folders is found by comparison",
}


@dataclass
class Ended:
    """How a cell ended: what the workspace delivered ({} for nothing), the last that it said, its exit status."""

    out: dict[str, Any]
    said: str
    status: int

    def texts(self) -> dict[str, str]:
        """{name: text} of the files that the command left."""
        return {
            name: base64.b64decode(data).decode("utf-8", "surrogateescape")
            for name, data in self.out["files"].items()
        }


class Command:
    """An author that is a command template, run in the seed's folder inside of a cell.

    template: words as a shell would part them; {dir}, {id} and {prompt} are replaced inside of words. No shell runs.
    timeout: seconds for one attempt. net: leave it the network. names: variables of our environment that it gets.
    show: paths it may read besides. walls: the strongest that the host grants unless given.
    Raises cli.BadConfig, cli.Missing.
    """

    def __init__(
        self,
        template: str,
        *,
        timeout: float = 1800.0,
        net: bool = False,
        names: Iterable[str] = (),
        show: Iterable[Path | str] = (),
        walls: Walls | None = None,
    ):
        try:
            self.argv = shlex.split(template)
        except ValueError as error:
            raise cli.BadConfig(f"--author {template!r}: {error}") from None
        if not self.argv:
            raise cli.BadConfig("--author is empty")
        self.name, self.timeout, self.net, self.walls = template, timeout, net, walls
        self.passed = _environment(names)
        self._find(show)
        self.probing, self.alone = asyncio.Lock(), asyncio.Lock()

    def _find(self, show: Iterable[Path | str]) -> None:
        """Find where the command is (argv[0]), what its cell shows (`shown`) and the PATH in it (`path`)."""
        venv = str(cli.TOOLCHAIN / ".venv")
        places = [place for place in os.get_exec_path() if os.path.isabs(place)]
        own = [place for place in places if not place.startswith(venv)]  # `within` put ours there
        found = _which(self.argv[0], own) or _which(self.argv[0], places)
        if not found:
            raise cli.Missing(
                f"the author's command {self.argv[0]} is not there; install it or give its path"
            )
        self.argv[0] = os.path.abspath(found)
        shown = {sys.base_prefix, os.path.realpath(sys.executable), str(WORKSPACE), self.argv[0]}
        shown |= {str(Path(path).absolute()) for path in show}
        shown |= {word for word in self.argv[1:] if os.path.isabs(word) and os.path.isfile(word)}
        if self.argv[0].startswith(venv):
            shown.add(venv)
        if self.net:
            shown |= set(NETWORK)
        shown |= {step for path in shown for step in links(path)}
        there = [path for path in shown if os.path.exists(path)]
        self.shown = sorted(path for path in there if not _is_below(path, SYSTEM))
        usual = [*own, "/usr/local/bin", "/usr/bin", "/bin"]
        visible = [place for place in usual if _is_below(place, (*SYSTEM, *self.shown))]
        self.path = os.pathsep.join(dict.fromkeys(visible))

    async def close(self) -> None:
        """Nothing is held between attempts."""

    async def ready(self, parent: Path) -> contextlib.AbstractAsyncContextManager[Any]:
        """Find the walls that this host grants, once; without walls drafts are written one at a time: the context."""
        async with self.probing:
            if self.walls is None:
                self.walls = await self._probe(parent)
                enforced = ENFORCED[self.walls[0]]
                if self.walls[0] != "plain":
                    enforced += "; the network is theirs" if self.net else "; no network"
                cli.say(enforced)
        return self.alone if self.walls[0] == "plain" else contextlib.nullcontext()

    async def attempt(self, folder: Path, seed: Seed, status: Status) -> dict[str, Any]:
        """Run the command once; what it delivered, with what is held against it by its behaviour.

        Raises stream.Fault of kind infra for a cell that failed, cli.Missing for a command that cannot start in it.
        """
        assert self.walls is not None  # `ready` was awaited
        number = status["attempt"]
        given = {name: workfolders.text(folder / name) for name in (*GIVEN, *drafts.FILES)}
        files = {name: text for name, text in given.items() if text is not None}
        task = TASK + (AGAIN if "reasons.txt" in files else "")
        status.update(walls=self.walls[0])
        env = self.environment(folder) | {
            "SEED_DIR": str(folder),
            "SEED_ID": folder.name,
            "SEED_JSON": f"{folder}/seed.json",
            "ATTEMPT": str(number),
            "REASONS_FILE": f"{folder}/reasons.txt",
        }
        return await self.carry_out(folder, files, task, env, drafts.FILES, f"attempt {number}")

    async def carry_out(
        self,
        folder: Path,
        files: dict[str, str],
        task: str,
        env: dict[str, str],
        take: Sequence[str],
        said: str,
    ) -> dict[str, Any]:
        """Run the command in a cell over a folder of `files`; what it delivered of the names in `take`, as `attempt` says.

        said: how its part of run.log begins. Raises as `attempt` does; `ready` was awaited.
        """
        assert self.walls is not None
        order = {
            "files": files,
            "argv": self._argv(folder, task),
            "timeout": self.timeout,
            "grace": GRACE,
            "take": take,
            "most": drafts.LARGEST,
        }
        log = Log(folder / "run.log")
        log.line(f"--- {said}, {workfolders.now()}: {self.name}")
        foreign = self.walls[1] and os.geteuid() == 0
        before = elsewhere.snapshot(folder, foreign) if self.walls[0] == "plain" else None
        ended = await self._run(folder, order, env, self.walls, log)
        escaped = []
        if before is not None:
            escaped = elsewhere.changes(folder, before, elsewhere.snapshot(folder, foreign))
            elsewhere.sweep(folder)
        out = ended.out
        late = ", out of time" if out.get("timeout") else ""
        log.close(f"--- ended, exit status {out.get('rc')}{late}")
        if "cannot" in out:
            raise cli.Missing(
                f"the author's command does not start in its cell: {out['cannot']}; --show what it needs"
            )
        if "files" not in out:
            raise Fault(
                "infra",
                "cell",
                f"the author's cell ended (status {ended.status}) and delivered nothing: {ended.said[-300:]}",
            )
        written = any(files.get(name) != text for name, text in ended.texts().items())
        if out["rc"] in (126, 127) and not written:
            raise Fault(
                "infra",
                "command",
                f"the author's command lacks something in its cell (exit status {out['rc']}, it said: "
                f"{_last(log.tail)}); --show what it needs",
            )
        return self._outcome(ended, escaped, log.tail, len(take))

    def _argv(self, folder: Path, task: str) -> list[str]:
        words = {"dir": str(folder), "id": folder.name, "prompt": task}
        fields = re.compile(r"\{(dir|id|prompt)\}")
        return [fields.sub(lambda match: words[match[1]], word) for word in self.argv]

    def environment(self, folder: Path) -> dict[str, str]:
        """The environment of a command in a folder."""
        return {
            "PATH": self.path,
            "HOME": str(folder),
            "TMPDIR": f"{folder}/.tmp",
            "LANG": "C.UTF-8",
            "TIMEOUT": f"{self.timeout:g}",
            **self.passed,
        }

    def _outcome(self, ended: Ended, escaped: list[str], tail: str, wanted: int) -> dict[str, Any]:
        """The delivery of an attempt (authors.Delivery): files without our secrets, and what is held against it."""
        out = ended.out
        files, leaks = {}, []
        for name, text in ended.texts().items():
            files[name] = masking.mask(text)
            if files[name] != text:
                leaks.append(
                    f"{name}:1: a secret of our environment stands in the file; take it out"
                )
        odd = [f"{name}: {why}; write it as a regular file" for name, why in out["odd"].items()]
        kind, reason = self._conduct(out, escaped, tail, bool(leaks), wanted)
        return {
            "rc": out["rc"],
            "files": files,
            "reasons": [*([reason] if reason else []), *leaks, *odd],
            "noted": [f"left running and ended: {out['left']}"] if out["left"] else [],
            "class": kind,
            "said": _last(tail),
        }

    def _conduct(
        self, out: dict[str, Any], escaped: list[str], tail: str, leaked: bool, wanted: int
    ) -> tuple[str | None, str | None]:
        """(class, reason) of the worst that is held against an attempt besides its files, or (None, None)."""
        if escaped:
            more = f" and {len(escaped) - 5} more" if len(escaped) > 5 else ""
            return (
                "escaped",
                f"files outside of the folder were written: {', '.join(escaped[:5])}{more}; write in this folder alone",
            )
        if leaked:
            return "secret", None
        if out["timeout"]:
            return "timeout", f"no end within {self.timeout:g} seconds; be done earlier"
        linked = any("link" in name or "link" in why for name, why in out["odd"].items())
        refused = out["rc"] and re.search(r"Read-only file system|Permission denied", tail)
        if linked or (refused and len(out["files"]) < wanted):
            return (
                "escaped",
                "it tried to write or read outside of its folder, which the cell does not grant; write in "
                "this folder alone",
            )
        if out["rc"] < 0:
            return "crash", f"the author was killed by {_signal(-out['rc'])}"
        return None, None

    async def _probe(self, parent: Path) -> Walls:
        """The strongest walls in which an interpreter runs here. Raises cli.Missing."""
        order = {
            "files": {},
            "argv": [os.path.realpath(sys.executable), "-IS", "-c", "pass"],
            "timeout": 60,
            "grace": 1,
            "take": [],
            "most": 0,
        }
        refusals, root = [], os.geteuid() == 0
        for walls in WALLS:
            if walls[0] == "bubblewrap" or not (root or walls[1]):
                continue
            trial = parent / f".trial-{os.getpid()}"
            trial.mkdir(exist_ok=True)
            try:
                ended = await self._run(trial, order, {"PATH": self.path}, walls, None)
            finally:
                shutil.rmtree(trial, ignore_errors=True)
            if ended.out.get("rc") == 0:
                return walls
            refusals.append(f"{walls[0]}: {ended.said[-200:] or ended.out}")
        raise cli.Missing(f"no author can be confined here: {'; '.join(refusals)}")

    async def _run(
        self,
        home: Path,
        order: dict[str, Any],
        env: dict[str, str],
        walls: Walls,
        log: "Log | None",
    ) -> Ended:
        """Run an order in a cell; everything is ended on the way out."""
        reads, writes = os.pipe()
        python = os.path.realpath(sys.executable)
        command = [python, "-IS", WORKSPACE, str(writes)]
        owner = os.stat(home)
        process = subprocess.Popen(
            enclosed(walls, home, command, self.shown, net=self.net),
            env=env,
            cwd="/",
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[writes],
            start_new_session=True,
        )
        os.close(writes)
        try:
            data, said = await _delivered(process, reads, order, log)
        finally:
            process.kill()
            process.wait()
            if os.stat(home).st_uid != owner.st_uid:  # without walls it was lent to another user
                os.chown(home, owner.st_uid, owner.st_gid)
        try:
            out = json.loads(data)
        except ValueError:
            out = {}
        return Ended(out, said, process.returncode)


async def _delivered(
    process: subprocess.Popen[bytes], reads: int, order: dict[str, Any], log: "Log | None"
) -> tuple[bytes, str]:
    """(what comes out of the pipe `reads` once the process has ended, the last that the process said)."""
    loop = asyncio.get_running_loop()
    delivery, talk = asyncio.StreamReader(limit=1 << 26), asyncio.StreamReader()
    transports: list[asyncio.BaseTransport] = []
    said = bytearray()

    async def read_pipe(reader: asyncio.StreamReader, pipe: Any) -> None:
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
        transports.append(transport)

    async def listen() -> None:
        while data := await talk.read(1 << 16):
            said.extend(data)
            del said[:-1000]
            if log:
                log.feed(data)

    try:
        await read_pipe(delivery, open(reads, "rb", buffering=0))
        await read_pipe(talk, process.stdout)
        orders, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        transports.append(orders)
        listener = asyncio.create_task(listen())
        orders.write(json.dumps(order).encode() + b"\n")
        try:
            async with asyncio.timeout(order["timeout"] + order["grace"] + 60):
                data = await delivery.read(-1)
                while process.poll() is None:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            data = b""
        finally:
            process.kill()
            await asyncio.wait([listener], timeout=1)
            listener.cancel()
    finally:
        for transport in transports:
            transport.close()
    return data, bytes(said).decode("utf-8", "replace").strip()


def _environment(names: Iterable[str]) -> dict[str, str]:
    """The variables that the command gets; their values are masked from here on. Raises cli.BadConfig."""
    passed = {}
    for name in names:
        if name not in os.environ:
            raise cli.BadConfig(f"--pass-env {name}: it is not set in the environment or in .env")
        passed[name] = os.environ[name]
    for name, value in passed.items():
        masking.add(value, name)
    return passed


def _which(command: str, places: Sequence[str]) -> str | None:
    return shutil.which(command, path=os.pathsep.join(places))


def _is_below(path: str, tops: Sequence[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _last(said: str) -> str:
    return said.strip().rpartition("\n")[2][:200] or "nothing"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Log:
    """What an author says, in run.log: whole lines without our secrets, so many of an attempt and no more."""

    def __init__(self, path: Path):
        self.rest, self.left, self.dropped, self.tail = b"", LOG["attempt"], 0, ""
        if path.is_symlink():
            path.unlink()
        if path.exists() and path.stat().st_size > LOG["file"]:
            stream.write(path, path.read_bytes()[-LOG["file"] // 2 :])
        self.file = open(path, "ab", buffering=0)

    def line(self, text: str) -> None:
        """Write a line of ours."""
        self.file.write(text.encode("utf-8", "replace") + b"\n")

    def feed(self, data: bytes) -> None:
        """Take what the author said, in pieces as they come."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self._keep(line)
        if len(self.rest) > 2 * LOG["line"]:
            # A line without end. It is masked before it is cut: a cut may fall within a secret.
            self.rest = masking.mask(self.rest.decode("utf-8", "replace")).encode()
        while len(self.rest) > 2 * LOG["line"]:
            self._keep(self.rest[: LOG["line"]])
            self.rest = self.rest[LOG["line"] :]

    def _keep(self, line: bytes) -> None:
        text = masking.mask(line.decode("utf-8", "replace"))
        self.tail = (self.tail + text + "\n")[-4000:]
        if len(text) < self.left:
            self.left -= len(text) + 1
            self.line(text)
        else:
            self.left = 0
            self.dropped += len(line) + 1

    def close(self, text: str) -> None:
        """Write what is left, and a last line of ours."""
        if self.rest:
            self._keep(self.rest)
        if self.dropped:
            self.line(f"--- {self.dropped} more bytes were not kept; the last of them:")
            self.line(self.tail[-2000:].rstrip("\n"))
        self.line(text)
        self.file.close()
