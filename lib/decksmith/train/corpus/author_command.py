"""An author that is anybody's command, in a cell of its own (core/walls.py).

The command gets a copy of the draft's folder under the same name; when it has ended, the wanted
files are taken out of the copy and nothing else (workspace.py, inside of the cell).
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
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, cast

from decksmith.core import cli, masking, stream
from decksmith.core.cells import Walls, enclosed, granted, links
from decksmith.core.stream import Fault
from decksmith.train.corpus import drafts
from decksmith.train.corpus.authors import GIVEN, Delivery
from decksmith.train.corpus.drafts import Status
from decksmith.train.corpus.records import Seed

WORKSPACE = cli.ROOT / "lib/decksmith/core/workspace.py"
OURS = {*GIVEN, *drafts.FILES, "status.json", "run.log", "delivery.json", ".lock"}
LOG = {"attempt": 64 << 10, "line": 4 << 10, "file": 512 << 10}  # bytes that are kept
GRACE = 3.0  # seconds between TERM and KILL
NETWORK = (
    "/etc/resolv.conf /etc/hosts /etc/nsswitch.conf /etc/services /etc/ssl /etc/pki "
    "/etc/ca-certificates /etc/ca-certificates.conf"
).split()
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")  # what every cell shows
TASK = (
    "Read INSTRUCTIONS.md in this folder and do what it says: write PROMPT.md, think.md and deck.md for the seed in "
    "seed.json. EXAMPLE.md is a draft that was accepted. Write nothing outside of this folder."
)
AGAIN = " reasons.txt says why the last attempt was refused: mend these places and keep the rest."
ENFORCED = {
    "full": "authors see their own folder, the system's programs and nothing else of files or processes",
    "shared-pids": "authors see their own folder and the system's programs; processes of the host are visible to them",
    "plain": "without walls, as DECKSMITH_WALLS=plain accepts: authors can read and change what this user can",
}


class Outcome(TypedDict, total=False):
    """What core/workspace.py answers; `cannot` stands alone."""

    cannot: str
    rc: int
    timeout: bool
    left: int
    files: dict[str, str]
    odd: dict[str, str]


class Command:
    """An author that is a command template, run in the seed's folder inside of a cell.

    template: words as a shell would part them; {dir}, {id} and {prompt} are replaced inside of
    words. No shell runs.
    timeout: seconds for one attempt. net: leave it the network. names: variables of our environment
    that it gets.
    show: paths it may read besides. walls: the strongest that the host grants unless given.
    Raises cli.BadConfig, cli.Missing.
    """

    jobs = 2

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
        self.passed: dict[str, str] = {}  # variables; their values are masked from here on
        for name in names:
            if name not in os.environ:
                said = f"--pass-env {name}: it is not set in the environment or in .env"
                raise cli.BadConfig(said)
            self.passed[name] = os.environ[name]
            masking.add(self.passed[name], name)
        self._find(show)
        self.probing = asyncio.Lock()

    def _find(self, show: Iterable[Path | str]) -> None:
        """Find where the command is (argv[0]), what its cell shows (`shown`) and the PATH in it (`path`)."""
        venv = str(cli.TOOLCHAIN / ".venv")
        places = [place for place in os.get_exec_path() if os.path.isabs(place)]
        own = [place for place in places if not place.startswith(venv)]  # `within` put ours there
        # Ours last: whoever has the same program elsewhere means that one.
        found = shutil.which(self.argv[0], path=os.pathsep.join([*own, *places]))
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

    async def ready(self, parent: Path) -> None:
        """Find the walls that this host grants, once. Raises cli.Missing."""
        async with self.probing:
            if self.walls is None:
                trial = [os.path.realpath(sys.executable), "-IS", "-c", "pass"]
                what = "an author's command"
                self.walls = await asyncio.to_thread(granted, trial, self.shown, what)
                enforced = ENFORCED[self.walls[0]]
                if self.walls[0] != "plain":
                    enforced += "; the network is theirs" if self.net else "; no network"
                cli.say(enforced)

    async def attempt(self, folder: Path, seed: Seed, status: Status) -> Delivery:
        """Run the command once; what it delivered, with what is held against it by its behaviour. Raises stream.Fault of kind
        infra for a cell that failed, cli.Missing for a command that cannot start in it."""
        given = {name: drafts.text(folder / name) for name in (*GIVEN, *drafts.FILES)}
        files = {name: text for name, text in given.items() if text is not None}
        task = TASK + (AGAIN if "reasons.txt" in files else "")
        said = f"attempt {status['attempt']}"
        return await self.carry_out(folder, files, task, drafts.FILES, said)

    async def carry_out(
        self, folder: Path, files: dict[str, str], task: str, take: Sequence[str], said: str
    ) -> Delivery:
        """Run the command in a cell over a folder of `files`; what it delivered of the names in
        `take`.

        said: how its part of run.log begins. Raises as `attempt` does; `ready` was awaited.
        """
        assert self.walls is not None
        words = {"dir": str(folder), "id": folder.name, "prompt": task}
        fields = re.compile(r"\{(dir|id|prompt)\}")
        argv = [fields.sub(lambda match: words[match[1]], word) for word in self.argv]
        env = {
            "PATH": self.path,
            "HOME": str(folder),
            "TMPDIR": f"{folder}/.tmp",
            "LANG": "C.UTF-8",
            **self.passed,
        }
        log = Log(folder / "run.log")
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        log.line(f"--- {said}, {now}: {self.name}")
        out, status, last = await self._run(
            folder, argv, env, self.walls, timeout=self.timeout, files=files, take=take, log=log
        )
        if self.walls[0] == "plain":
            _sweep(folder)
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
                f"the author's cell ended (status {status}) and delivered nothing: {last[-300:]}",
            )
        texts = {
            name: base64.b64decode(data).decode("utf-8", "surrogateescape")
            for name, data in out["files"].items()
        }
        written = any(files.get(name) != text for name, text in texts.items())
        if out["rc"] in (126, 127) and not written:
            raise Fault(
                "infra",
                "command",
                f"the author's command lacks something in its cell (exit status {out['rc']}, it said: "
                f"{_last(log.tail)}); --show what it needs",
            )
        return self._delivery(out, texts, log.tail, len(take))

    def _delivery(self, out: Outcome, texts: dict[str, str], tail: str, wanted: int) -> Delivery:
        """The delivery of an attempt: files without our secrets, and what is held against it."""
        files = {name: masking.mask(text) for name, text in texts.items()}
        leaks = [
            f"{name}:1: a secret of our environment stands in the file; take it out"
            for name in texts
            if files[name] != texts[name]
        ]
        odd = [f"{name}: {why}; write it as a regular file" for name, why in out["odd"].items()]
        kind, reason = ("secret", None) if leaks else self._conduct(out, tail, wanted)
        return {
            "rc": out["rc"],
            "files": files,
            "reasons": [*([reason] if reason else []), *leaks, *odd],
            "noted": [f"left running and ended: {out['left']}"] if out["left"] else [],
            "conduct": kind,
            "said": _last(tail),
        }

    def _conduct(self, out: Outcome, tail: str, wanted: int) -> tuple[str | None, str | None]:
        """(class, reason) of the worst that is held against an attempt besides its files, or (None, None)."""
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
            names = {int(one): one.name for one in signal.Signals}
            name = names.get(-out["rc"], f"signal {-out['rc']}")
            return "crash", f"the author was killed by {name}"
        return None, None

    async def _run(
        self,
        home: Path,
        argv: Sequence[str],
        env: Mapping[str, str],
        walls: Walls,
        *,
        timeout: float,
        files: Mapping[str, str],
        take: Sequence[str],
        log: "Log",
    ) -> tuple[Outcome, int | None, str]:
        """Run a command in a cell: (what was delivered, exit status, the last that was said).
        Everything is ended on the way out."""
        order = {"argv": argv, "timeout": timeout, "grace": GRACE, "files": files}
        order |= {"take": take, "most": drafts.LARGEST}
        reads, writes = os.pipe()
        python = os.path.realpath(sys.executable)
        command = [python, "-IS", WORKSPACE, str(writes)]
        owner = os.stat(home)
        process = await asyncio.create_subprocess_exec(
            *enclosed(walls, home, command, self.shown, net=self.net),
            env=env,
            cwd="/",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=[writes],
            start_new_session=True,
        )
        os.close(writes)
        assert process.stdin and process.stdout
        delivery, data = asyncio.StreamReader(limit=1 << 26), b""
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(delivery), open(reads, "rb", buffering=0)
        )
        said, talk = bytearray(), process.stdout  # the last of what it says

        async def listen() -> None:
            while data := await talk.read(1 << 16):
                said.extend(data)
                del said[:-1000]
                log.feed(data)

        listener = asyncio.create_task(listen())
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")  # it stays open
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout + GRACE + 60):
                    data = await delivery.read(-1)
                    await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            transport.close()
            await asyncio.wait([listener], timeout=1)
            listener.cancel()
            await process.wait()
            if os.stat(home).st_uid != owner.st_uid:  # without walls it was lent to another user
                os.chown(home, owner.st_uid, owner.st_gid)
        last = said.decode("utf-8", "replace").strip()
        try:
            return cast(Outcome, json.loads(data)), process.returncode, last
        except ValueError:
            return {}, process.returncode, last


def _is_below(path: str, tops: Sequence[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _last(said: str) -> str:
    return said.strip().rpartition("\n")[2][:200] or "nothing"


def _sweep(folder: Path) -> None:
    """Take away what a command without walls left besides the files that belong there, and `before`."""
    for entry in list(os.scandir(folder)):
        if entry.name == "before":
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name not in OURS or not entry.is_file(follow_symlinks=False):
            os.unlink(entry.path)


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
