"""Authors of drafts: a command of anybody's in a cell of its own, or a model of the registry; the validator decides.

Each seed has a folder `<run>/work/<id>`: what the author is given (seed.json, INSTRUCTIONS.md, EXAMPLE.md, reasons.txt),
what it writes (PROMPT.md, think.md, deck.md), what it said (run.log) and where it stands (status.json). A command gets
a copy of the folder under the same name; when it has ended, three files are taken out of the copy and nothing else
(workspace.py, inside of core/walls.py). Folders are locked one by one, so that processes and hosts can share a run.
"""

import asyncio
import base64
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from decksmith.core import cli, masking, stream
from decksmith.core.stream import Fault
from decksmith.corpus import rules
from decksmith.render.cell import WALLS

CELL = cli.ROOT / "lib/decksmith/core/walls.py"
DESK = cli.ROOT / "lib/decksmith/corpus/workspace.py"
GIVEN = ("seed.json", "INSTRUCTIONS.md", "EXAMPLE.md", "reasons.txt")
LOG = {"attempt": 64 << 10, "line": 4 << 10, "file": 512 << 10}  # bytes that are kept
OURS = {*GIVEN, *rules.FILES, "status.json", "run.log", "delivery.json", ".lock"}
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


# --- folders ----------------------------------------------------------------------------------------------------------


def key(seed):
    """What a finished draft belongs to: {"seed_sha", "instructions_sha"}."""
    return {
        "seed_sha": stream.fingerprint(seed),
        "instructions_sha": hashlib.sha256(rules.instructions().encode()).hexdigest(),
    }


@functools.cache
def _gold():
    """[(name, seed)] of data/gold, in order."""
    return [
        (folder.name, rules.seed(folder))
        for folder in sorted((cli.ROOT / "data/gold").glob("*/"))
        if (folder / "seed.json").is_file()
    ]


def example(ident, seed):
    """The folder of the gold draft nearest to a seed: theme first, then language and features in common, then size."""
    asked = set(seed.get("features") or [])

    def near(entry):
        name, gold = entry
        has = set(gold.get("features") or [])
        return (
            gold.get("theme") != seed.get("theme"),
            gold.get("language") != seed.get("language"),
            -len(asked & has) + len(asked ^ has) / 10,
            hashlib.sha256(f"{ident}:{name}".encode()).hexdigest(),
        )

    gold = _gold()
    if not gold:
        raise cli.Missing("data/gold holds no drafts to show as examples")
    return cli.ROOT / "data/gold" / min(gold, key=near)[0]


def _example_text(folder):
    parts = [
        "# A draft that was accepted",
        "Its seed was:",
        "```json\n"
        + json.dumps(
            {k: v for k, v in rules.seed(folder).items() if k != "id"}, ensure_ascii=False, indent=1
        )
        + "\n```",
    ]
    for name in rules.FILES:
        parts += [
            f"## {name}",
            f"`````md\n{(folder / name).read_text(encoding='utf-8').strip()}\n`````",
        ]
    return "\n\n".join(parts) + "\n"


def _lay(folder, ident, seed):
    given = {
        "seed.json": json.dumps({"id": ident, **seed}, ensure_ascii=False, indent=1) + "\n",
        "INSTRUCTIONS.md": rules.instructions(),
        "EXAMPLE.md": _example_text(example(ident, seed)),
    }
    for name, text in given.items():
        if _text(folder / name) != text:
            stream.write(folder / name, text)


def _text(path):
    try:
        return rules.read(path).decode("utf-8", "replace")
    except OSError:
        return None


def _load(folder, name="status.json"):
    try:
        value = json.loads(rules.read(folder / name))
        return value if isinstance(value, dict) else {}
    except (OSError, ValueError):
        return {}


def _save(folder, status, **news):
    status.update(news)
    stream.write(folder / "status.json", json.dumps(status, ensure_ascii=False, indent=1) + "\n")


def _now():
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextlib.asynccontextmanager
async def _held(ident, folder):
    """The folder's lock; whoever comes second waits and then finds the draft finished."""
    folder.mkdir(exist_ok=True)
    with open(
        os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644), "r+b"
    ) as file:
        said = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    stream.warn(ident, "another process is at work on this draft; waiting for it")
                said = True
                await asyncio.sleep(0.2)
        for rest in folder.glob("*.tmp"):
            rest.unlink(missing_ok=True)
        yield


# --- one draft --------------------------------------------------------------------------------------------------------


async def write(run, record, author, *, retries=2, mend=False):
    """The `draft` value of a record (docs/records.md). `author` is a Command or a Model; each attempt is judged by
    corpus.faults, and its reasons go into the next. A valid draft of the same seed and instructions is kept; a failure
    of the same author is kept until there are more attempts to make.
    """
    ident, seed, folder = record["id"], record["seed"], Path(run).resolve() / "work" / record["id"]
    folder.parent.mkdir(parents=True, exist_ok=True)
    async with await author.ready(folder.parent), _held(ident, folder):
        status, wanted = _load(folder), key(seed)
        if {k: status.get(k) for k in wanted} != wanted:
            status = _begin(folder, ident, wanted)
        _lay(folder, ident, seed)
        if bad := next((f for f in rules.faults(folder, seed) if f["file"] == "seed.json"), None):
            raise Fault("model", "seed", f"{bad['message']}; {bad['remedy']}")
        mended = status.get("state") == "failed" and status.get("sha256") != _hashes(
            folder
        )  # by a person
        if (status.get("state") == "valid" or mended) and not rules.faults(folder, seed):
            (folder / "delivery.json").unlink(
                missing_ok=True
            )  # left by a kill between the verdict and here
            return _good(folder, status)
        if status.get("author") != author.name:
            status = {**_begin(folder, ident, wanted), "author": author.name}
        try:
            return await _attempts(folder, seed, status, author, retries, mend)
        except asyncio.CancelledError:
            _save(folder, status, state="interrupted")
            raise
        except Fault as fault:
            _save(
                folder,
                status,
                state="infra",
                ended=_now(),
                **{"class": fault.error["class"]},
                reasons=[fault.error["message"]],
            )
            raise


def _begin(folder, ident, wanted):
    """A fresh status; what was written for another seed, by other instructions or another author goes to `before/`."""
    for name in (*rules.FILES, "delivery.json", "reasons.txt"):
        if (folder / name).exists():
            (folder / "before").mkdir(exist_ok=True)
            os.replace(folder / name, folder / "before" / name)
    return {"id": ident, "state": "waiting", "attempt": 0, **wanted}


async def _attempts(folder, seed, status, author, retries, mend):
    while True:
        done = _load(folder, "delivery.json")  # authored, and killed before it was judged
        if done.get("attempt") != status["attempt"] or status["state"] not in (
            "running",
            "interrupted",
        ):
            if status["state"] not in ("running", "interrupted", "infra"):
                if status["attempt"] > retries:
                    return _bad(folder, status)
                status["attempt"] += 1
            _save(
                folder,
                status,
                state="running",
                started=_now(),
                ended=None,
                rc=None,
                pid=os.getpid(),
                host=socket.gethostname(),
            )
            done = {**await author.attempt(folder, seed, status), "attempt": status["attempt"]}
            stream.write(folder / "delivery.json", json.dumps(done))
        await asyncio.to_thread(_judge, folder, seed, status, done, mend)
        (folder / "delivery.json").unlink(missing_ok=True)
        if status["state"] == "valid":
            return _good(folder, status)
        more = status["attempt"] <= retries
        stream.warn(
            status["id"],
            f"attempt {status['attempt']} of {max(status['attempt'], retries + 1)}: {status['class']}: "
            f"{status['reasons'][0]}{'; once more' if more else ''}",
        )
        if not more:
            _save(folder, status, state="failed")


def _judge(folder, seed, status, done, mend):
    """Put the files of an attempt in place and say in status.json and reasons.txt what the validator says."""
    texts, reasons, cls = done["files"], list(done.get("reasons", [])), done.get("class")
    if cls not in ("escaped", "secret"):
        for name, text in texts.items():
            stream.write(folder / name, text.encode("utf-8", "surrogateescape"))
    noted = list(done.get("noted", []))
    if mend:
        noted += ["mended: {file}:{line}: {message}".format(**f) for f in rules.fix(folder)]
    faults = rules.faults(folder, seed)
    said = ["{file}:{line}: {message} ({rule}); {remedy}".format(**f) for f in faults]
    state = "valid" if not faults and cls in (None, "timeout", "crash") else "refused"
    if state == "refused":
        missing = {f["file"] for f in faults if f["rule"] == "missing"}
        if cls is None and len(missing) == len(rules.FILES):
            cls = "empty"
            reasons.insert(
                0,
                f"the author wrote nothing (exit status {done.get('rc')}, it said: {done.get('said')})",
            )
        cls = cls or (
            "no-deck"
            if "deck.md" in missing
            else "language"
            if any(f["rule"] == "language" for f in faults)
            else "invalid"
        )
        reasons += said
        stream.write(folder / "reasons.txt", "\n".join(reasons) + "\n")
    else:
        noted += reasons
        cls, reasons = None, []
        (folder / "reasons.txt").unlink(missing_ok=True)
    status.pop("noted", None)
    _save(
        folder,
        status,
        state=state,
        rc=done.get("rc"),
        ended=_now(),
        reasons=reasons,
        sha256=_hashes(folder),
        **{"class": cls},
        **({"noted": noted} if noted else {}),
    )


def _hashes(folder):
    return {
        name: hashlib.sha256(rules.read(folder / name)).hexdigest()
        for name in rules.FILES
        if _text(folder / name) is not None
    }


def _value(folder, status):
    return {
        "path": f"work/{folder.name}",
        "attempts": status["attempt"],
        "author": status.get("author"),
        **{name: status[name] for name in ("noted", "usage") if status.get(name)},
    }


def _good(folder, status):
    sums = _hashes(folder)
    if status.get("sha256") != sums or status["state"] != "valid":
        _save(folder, status, state="valid", reasons=[], sha256=sums, **{"class": None})
    return _value(folder, status) | {"sha256": sums}


def _bad(folder, status):
    message = f"{status['reasons'][0]} (after {status['attempt']} attempts)"
    return _value(folder, status) | {
        "error": {"kind": "model", "class": status["class"], "message": message}
    }


# --- a command as the author ------------------------------------------------------------------------------------------


class Command:
    """An author that is a command template, run in the seed's folder inside of a cell.

    template: words as a shell would part them; {dir}, {id} and {prompt} are replaced inside of words. No shell runs.
    timeout: seconds for one attempt. net: leave it the network. names: variables of our environment that it gets.
    show: paths it may read besides. walls: (name, whether root becomes another user) of render.WALLS; else the
    strongest that the host grants. Raises cli.BadConfig, cli.Missing.
    """

    def __init__(self, template, *, timeout=1800.0, net=False, names=(), show=(), walls=None):
        try:
            self.argv = shlex.split(template)
        except ValueError as error:
            raise cli.BadConfig(f"--author {template!r}: {error}") from None
        if not self.argv:
            raise cli.BadConfig("--author is empty")
        self.name, self.timeout, self.net, self.walls = template, timeout, net, walls
        if lacking := [name for name in names if name not in os.environ]:
            raise cli.BadConfig(
                f"--pass-env {lacking[0]}: it is not set in the environment or in .env"
            )
        self.passed = {name: os.environ[name] for name in names}
        for name, value in self.passed.items():
            masking.add(value, name)
        self.find(show)
        self.probing, self.alone = asyncio.Lock(), asyncio.Lock()

    def find(self, show):
        """Where the command is, what the cell shows, and the PATH in it."""
        venv, python = str(cli.TOOLCHAIN / ".venv"), os.path.realpath(sys.executable)
        places = [p for p in os.get_exec_path() if os.path.isabs(p)]
        own = [p for p in places if not p.startswith(venv)]  # `within` put ours there
        found = next(
            (
                f
                for p in (own, places)
                if (f := shutil.which(self.argv[0], path=os.pathsep.join(p)))
            ),
            None,
        )
        if not found:
            raise cli.Missing(
                f"the author's command {self.argv[0]} is not there; install it or give its path"
            )
        self.argv[0] = os.path.abspath(found)
        shown = {str(Path(path).absolute()) for path in show} | {
            sys.base_prefix,
            python,
            str(DESK),
            self.argv[0],
        }
        shown |= {word for word in self.argv[1:] if os.path.isabs(word) and os.path.isfile(word)}
        if self.argv[0].startswith(venv):
            shown.add(venv)
        if self.net:
            shown |= {path for path in NETWORK if os.path.exists(path)}
        shown |= {os.path.realpath(path) for path in shown}
        self.shown = sorted(
            path for path in shown if os.path.exists(path) and not _below(path, SYSTEM)
        )
        seen = [
            p
            for p in dict.fromkeys([*own, "/usr/local/bin", "/usr/bin", "/bin"])
            if _below(p, (*SYSTEM, *self.shown))
        ]
        self.path = os.pathsep.join(seen)

    async def close(self):
        """Nothing is held between attempts."""

    async def ready(self, parent):
        """Find the walls that this host grants, once; without walls drafts are written one at a time: the context."""
        async with self.probing:
            if self.walls is None:
                self.walls = await self._probe(parent)
                open_net = self.walls[0] != "plain" and (
                    "; the network is theirs" if self.net else "; no network"
                )
                cli.say(ENFORCED[self.walls[0]] + (open_net or ""))
        return self.alone if self.walls[0] == "plain" else contextlib.nullcontext()

    async def attempt(self, folder, seed, status):
        """Run the command once; what it delivered, with what is held against it by its behaviour."""
        number = status["attempt"]
        again = (folder / "reasons.txt").exists()
        task = TASK + (AGAIN if again else "")
        words = {"dir": str(folder), "id": folder.name, "prompt": task}
        argv = [re.sub(r"\{(dir|id|prompt)\}", lambda m: words[m[1]], word) for word in self.argv]
        env = {
            "PATH": self.path,
            "HOME": str(folder),
            "TMPDIR": f"{folder}/.tmp",
            "LANG": "C.UTF-8",
            "SEED_DIR": str(folder),
            "SEED_ID": folder.name,
            "SEED_JSON": f"{folder}/seed.json",
            "ATTEMPT": str(number),
            "REASONS_FILE": f"{folder}/reasons.txt",
            "TIMEOUT": f"{self.timeout:g}",
            **self.passed,
        }
        files = {
            name: text
            for name in (*GIVEN, *rules.FILES)
            if (text := _text(folder / name)) is not None
        }
        order = {
            "files": files,
            "argv": argv,
            "timeout": self.timeout,
            "grace": GRACE,
            "take": rules.FILES,
            "most": rules.LARGEST,
        }
        status.update(walls=self.walls[0])
        log = _Log(folder / "run.log")
        log.line(f"--- attempt {number}, {_now()}: {self.name}")
        foreign = self.walls[1] and os.geteuid() == 0
        before = _snapshot(folder, foreign) if self.walls[0] == "plain" else None
        out, words, rc = await self._run(folder, order, env, self.walls, log)
        escaped = []
        if before is not None:
            escaped = _changes(folder, before, _snapshot(folder, foreign))
            _sweep(folder)
        log.close(
            f"--- ended, exit status {out.get('rc')}" + ", out of time" * bool(out.get("timeout"))
        )
        if "cannot" in out:
            raise cli.Missing(
                f"the author's command does not start in its cell: {out['cannot']}; --show what it needs"
            )
        if "files" not in out:
            raise Fault(
                "infra",
                "cell",
                f"the author's cell ended (status {rc}) and delivered nothing: {words[-300:]}",
            )
        if out["rc"] in (126, 127) and not any(
            files.get(name) != text for name, text in _texts(out)
        ):
            raise Fault(
                "infra",
                "command",
                f"the author's command lacks something in its cell (exit status {out['rc']}, it said: "
                f"{_last(log.tail)}); --show what it needs",
            )
        return self._outcome(out, escaped, log.tail)

    def _outcome(self, out, escaped, tail):
        done = {
            "rc": out["rc"],
            "files": {},
            "reasons": [],
            "noted": [],
            "class": None,
            "said": _last(tail),
        }
        for name, text in _texts(out):
            clear = masking.mask(text)
            if clear != text:
                done["class"] = "secret"
                done["reasons"].append(
                    f"{name}:1: a secret of our environment stands in the file; take it out"
                )
            done["files"][name] = clear
        if out["left"]:
            done["noted"].append(f"left running and ended: {out['left']}")
        if links := [f"{name}: {why}" for name, why in out["odd"].items()]:
            done["reasons"] += [f"{line}; write it as a regular file" for line in links]
        refused = re.search(r"Read-only file system|Permission denied", tail) if out["rc"] else None
        if escaped:
            shown = ", ".join(escaped[:5]) + (
                f" and {len(escaped) - 5} more" if len(escaped) > 5 else ""
            )
            done["class"] = "escaped"
            done["reasons"].insert(
                0, f"files outside of the folder were written: {shown}; write in this folder alone"
            )
        elif done["class"]:
            pass
        elif out["timeout"]:
            done["class"] = "timeout"
            done["reasons"].insert(0, f"no end within {self.timeout:g} seconds; be done earlier")
        elif any("link" in line for line in links) or (refused and len(out["files"]) < 3):
            done["class"] = "escaped"
            done["reasons"].insert(
                0,
                "it tried to write or read outside of its folder, which the cell does not grant; write in "
                "this folder alone",
            )
        elif out["rc"] < 0:
            done["class"] = "crash"
            done["reasons"].insert(0, f"the author was killed by {_signal(-out['rc'])}")
        return done

    async def _probe(self, parent):
        """The strongest walls in which an interpreter runs here."""
        refusals, root = [], os.geteuid() == 0
        for walls in [pair for pair in WALLS if (root or pair[1]) and pair[0] != "bubblewrap"]:
            trial = parent / f".trial-{os.getpid()}"
            trial.mkdir(exist_ok=True)
            try:
                order = {
                    "files": {},
                    "argv": [os.path.realpath(sys.executable), "-IS", "-c", "pass"],
                    "timeout": 60,
                    "grace": 1,
                    "take": [],
                    "most": 0,
                }
                out, words, _ = await self._run(trial, order, {"PATH": self.path}, walls, None)
            finally:
                shutil.rmtree(trial, ignore_errors=True)
            if out.get("rc") == 0:
                return walls
            refusals.append(f"{walls[0]}: {words[-200:] or out}")
        raise cli.Missing(f"no author can be confined here: {'; '.join(refusals)}")

    async def _run(self, home, order, env, walls, log):
        """(what the desk delivered or {}, what the cell said, its exit status); everything is ended on the way out."""
        spec = {
            "home": str(home),
            "read": self.shown,
            "walls": walls[0],
            "become": walls[1],
            "net": self.net,
            "parent": os.getpid(),
        }
        reads, writes = os.pipe()
        python = os.path.realpath(sys.executable)
        owner = os.stat(home)
        process = subprocess.Popen(
            [python, "-IS", str(CELL), json.dumps(spec), python, "-IS", str(DESK), str(writes)],
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
        loop, pipes, said = asyncio.get_running_loop(), [], bytearray()
        try:
            delivery, talk = asyncio.StreamReader(limit=1 << 26), asyncio.StreamReader()
            for reader, pipe in (
                (delivery, open(reads, "rb", buffering=0)),
                (talk, process.stdout),
            ):
                protocol = asyncio.StreamReaderProtocol(reader)
                pipes.append(
                    (await loop.connect_read_pipe(lambda protocol=protocol: protocol, pipe))[0]
                )
            pipes.append((await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin))[0])

            async def listen():
                while data := await talk.read(1 << 16):
                    said.extend(data)
                    del said[:-1000]
                    if log:
                        log.feed(data)

            listener = asyncio.create_task(listen())
            pipes[-1].write(json.dumps(order).encode() + b"\n")
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
            for pipe in pipes:
                pipe.close()
            process.kill()
            process.wait()
            if (
                os.stat(home).st_uid != owner.st_uid
            ):  # without walls the folder was lent to another user
                os.chown(home, owner.st_uid, owner.st_gid)
        try:
            out = json.loads(data)
        except ValueError:
            out = {}
        return out, bytes(said).decode("utf-8", "replace").strip(), process.returncode


def _texts(out):
    return [
        (name, base64.b64decode(data).decode("utf-8", "surrogateescape"))
        for name, data in out["files"].items()
    ]


def _last(said):
    return said.strip().rpartition("\n")[2][:200] or "nothing"


def _below(path, tops):
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _signal(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Log:
    """What an author says, in run.log: whole lines without our secrets, so many of an attempt and no more."""

    def __init__(self, path):
        self.rest, self.left, self.dropped, self.tail = b"", LOG["attempt"], 0, ""
        if path.is_symlink():
            path.unlink()
        if path.exists() and path.stat().st_size > LOG["file"]:
            stream.write(path, path.read_bytes()[-LOG["file"] // 2 :])
        self.file = open(path, "ab", buffering=0)

    def line(self, text):
        self.file.write(text.encode("utf-8", "replace") + b"\n")

    def feed(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self._keep(line)
        if (
            len(self.rest) > 2 * LOG["line"]
        ):  # a line without end; its second half may end within a secret
            self.rest = masking.mask(self.rest.decode("utf-8", "replace")).encode()
        while len(self.rest) > 2 * LOG["line"]:
            self._keep(self.rest[: LOG["line"]])
            self.rest = self.rest[LOG["line"] :]

    def _keep(self, line):
        text = masking.mask(line.decode("utf-8", "replace"))
        self.tail = (self.tail + text + "\n")[-4000:]
        if len(text) < self.left:
            self.left -= len(text) + 1
            self.line(text)
        else:
            self.left = 0
            self.dropped += len(line) + 1

    def close(self, text):
        if self.rest:
            self._keep(self.rest)
        if self.dropped:
            self.line(f"--- {self.dropped} more bytes were not kept; the last of them:")
            self.line(self.tail[-2000:].rstrip("\n"))
        self.line(text)
        self.file.close()


# --- without walls: what an author changed elsewhere ------------------------------------------------------------------


def _snapshot(folder, foreign=False):
    """{path: what tells a change} around a draft's folder: the home, the working folder, the run, the other drafts; not
    folders that everybody writes to. `foreign`: only what belongs to a cell's own user."""
    work, found = folder.parent, {}
    places = [
        (pwd.getpwuid(os.getuid()).pw_dir, 2),
        (os.getcwd(), 1),
        (str(work.parent), 1),
        (str(work), 2),
    ]
    if os.environ.get("HOME"):
        places.append((os.environ["HOME"], 2))
    above = {str(path) for path in (folder, *folder.parents)}
    for top, depth in places:
        waiting = (
            [(top, depth)] if os.path.isdir(top) and not os.stat(top).st_mode & stat.S_ISVTX else []
        )
        while waiting and len(found) < 20_000:
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
                    if not foreign or 61184 <= info.st_uid < 65520:  # walls.py's users
                        found[entry.path] = (info.st_mtime_ns, info.st_size, info.st_ino)
                    if depth > 1 and entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth - 1))
    return found


def _sweep(folder):
    """Take away what an author left in the real folder besides the files that belong there."""
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False) and entry.name != "before":
            shutil.rmtree(entry.path, ignore_errors=True)
        elif (
            entry.name not in OURS | {"before"}
            or not entry.is_file(follow_symlinks=False)
            and entry.name != "before"
        ):
            os.unlink(entry.path)


def _changes(folder, before, after):
    """The paths that differ, without the drafts that another process was at work on in the meantime."""
    own = (os.getpid(), socket.gethostname())
    others = [
        f"{path}/"
        for path in folder.parent.iterdir()
        if path != folder
        and (
            _locked(path)
            or ((status := _load(path)) and (status.get("pid"), status.get("host")) != own)
        )
    ]
    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    return sorted(path for path in changed if not f"{path}/".startswith(tuple(others)))


def _locked(folder):
    try:
        with open(os.path.join(folder, ".lock"), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


# --- a model as the author --------------------------------------------------------------------------------------------


class Model:
    """An author that is a model of the registry: the prompt, then the thoughts, then the deck, each checked before the
    next is asked for. The gold draft of EXAMPLE.md is shown as an earlier turn (`shots` 0: not)."""

    STEPS = (
        ("PROMPT.md", "author-prompt.md"),
        ("think.md", "author-think.md"),
        ("deck.md", "author-deck.md"),
    )

    def __init__(self, name, *, jobs=None, budget=None, shots=1):
        from decksmith.models import client

        self.client, self.shots = client.Client.open(name, jobs=jobs, budget=budget), shots
        self.name, self.jobs = f"llm:{name}", self.client.jobs
        self.sampling = {"temperature": 0.7} | self.client.model.params

    async def close(self):
        """Give the endpoint back."""
        await self.client.close()

    async def ready(self, parent):
        """A model needs no walls."""
        return contextlib.nullcontext()

    async def attempt(self, folder, seed, status):
        """One pass over the three files: what has faults is asked for again, and so is all that follows from it."""
        texts, used = (
            {name: _text(folder / name) for name in rules.FILES},
            status.setdefault("usage", {}),
        )
        asked, cut = set(), status.pop("cut", None)
        for name, template in self.STEPS:
            faults = self._faults(folder, seed, name)
            if cut and cut["file"] == name:
                faults, cut = [cut, *faults], None
            if texts[name] is not None and not faults and not asked:
                continue
            reply = await self.client.ask(
                self._messages(folder, seed, name, template, faults, texts[name]),
                self.sampling,
                seed=int(stream.fingerprint([folder.name, name, status["attempt"]])[:7], 16),
            )
            asked.add(name)
            for part, number in reply.usage.items():
                used[part] = (
                    round(used.get(part, 0) + number, 8) if number is not None else used.get(part)
                )
            texts[name] = _cleaned(name, reply.text)
            stream.write(folder / name, texts[name].encode("utf-8", "replace"))
            if reply.finish_reason == "length":
                cut = {
                    "file": name,
                    "line": texts[name].count("\n"),
                    "remedy": "be shorter",
                    "message": f"the reply was cut off after {reply.usage['completion_tokens']} tokens",
                }
                status["cut"] = cut
            _save(folder, status)
            if cut or self._faults(folder, seed, name):
                break
        reasons = ["{file}:{line}: {message}; {remedy}".format(**cut)] if cut else []
        return {"rc": None, "files": {}, "class": "cut" if cut else None, "reasons": reasons}

    def _faults(self, folder, seed, name):
        """The faults that belong to a step: those of its file; what think.md and deck.md disagree about is the deck's."""
        found = [f for f in rules.faults(folder, seed) if f["rule"] not in ("missing", "seed")]
        if name == "deck.md":
            return [f for f in found if f["file"] == name or f["rule"] == "think-deck"]
        return [f for f in found if f["file"] == name and f["rule"] != "think-deck"]

    def _messages(self, folder, seed, name, template, faults, earlier):
        messages = []
        if name == "deck.md":
            messages.append({"role": "system", "content": rules.prompts("slidev-cheatsheet.md")})
        if self.shots:
            gold = example(folder.name, seed)
            messages += [
                {"role": "user", "content": _asked(template, rules.seed(gold), gold)},
                {"role": "assistant", "content": (gold / name).read_text(encoding="utf-8").strip()},
            ]
        reasons = ""
        if faults:
            lines = "\n".join("- line {line}: {message}; {remedy}".format(**f) for f in faults[:20])
            reasons = (
                f"This was written before and refused:\n\n{(earlier or '')[:12_000]}\n\nThe reasons:\n{lines}\n\n"
                "Write the whole text again with these places mended."
            )
        return messages + [{"role": "user", "content": _asked(template, seed, folder, reasons)}]


def _asked(template, seed, folder, reasons=""):
    """A prompt of assets/prompts with its fields filled in from a seed and the files that are there."""
    fields = {
        "seed": json.dumps(
            {k: v for k, v in seed.items() if k != "id"}, ensure_ascii=False, indent=1
        ),
        "reasons": reasons,
        "features": ", ".join(seed.get("features") or []) or "none in particular",
        **{name: str(seed.get(name)) for name in ("slides", "theme", "language")},
        "prompt": (_text(folder / "PROMPT.md") or "").strip(),
        "think": (_text(folder / "think.md") or "").strip(),
    }
    return re.sub(r"\{(\w+)\}", lambda m: fields.get(m[1], m[0]), rules.prompts(template)).strip()


def _cleaned(name, text):
    """A reply without what models put around a text."""
    if name == "deck.md":
        from decksmith.decks import clean

        return clean.clean(text)[0] or ""
    text = text.strip()
    if fenced := re.fullmatch(r"```[\w-]*\n(.*)\n```", text, re.S):
        text = fenced[1].strip()
    return text + "\n" if text else ""


# --- how a run stands -------------------------------------------------------------------------------------------------


def standing(run):
    """How the drafts of a run stand: counts by state, refusals by class, drafts a minute and the seconds that are left."""
    work, states, classes, marks, attempts = Path(run) / "work", Counter(), Counter(), [], 0
    folders = sorted(path.parent for path in work.glob("*/.lock"))
    for folder in folders:
        status = _load(folder)
        state = status.get("state", "waiting")
        if state in ("running", "refused") or (state == "waiting" and status):
            state = "running" if _locked(folder) else "interrupted"
        states[state] += 1
        attempts += status.get("attempt", 0)
        if state in ("failed", "infra"):
            classes[status.get("class")] += 1
        marks.append(
            (status.get("started"), status.get("ended") if state in ("valid", "failed") else None)
        )
    seeds = Path(run) / "seeds.jsonl"
    total = max(
        len(folders),
        sum(1 for line in open(seeds, "rb") if line.strip()) if seeds.is_file() else 0,
        int(os.environ.get("TOTAL") or 0),
    )
    finished = states["valid"] + states["failed"]
    last = sorted((end, start) for start, end in marks if end and start)[
        -50:
    ]  # how fast it goes now
    rate = eta = None
    if last:
        until = time.time() if states["running"] else _seconds(last[-1][0])
        rate = len(last) / max(until - min(_seconds(start) for _, start in last), 1e-3)
        eta = round((total - finished) / rate, 1)
    return {
        "run": str(run),
        "total": total,
        "valid": states["valid"],
        "failed": states["failed"],
        "running": states["running"],
        "interrupted": states["interrupted"],
        "infra": states["infra"],
        "waiting": total - len(folders) + states["waiting"],
        "attempts": attempts,
        "classes": dict(classes.most_common()),
        "per_minute": rate and round(rate * 60, 2),
        "eta_seconds": eta,
    }


def _seconds(text):
    return datetime.fromisoformat(text).timestamp()


def watch(run, every=2.0):
    """Show `standing` on stderr until every draft is finished; one line that is rewritten on a terminal, else a line for
    each change."""
    shown, live = None, sys.stderr.isatty()
    while True:
        now = standing(run)
        eta = (
            ""
            if now["eta_seconds"] is None
            else f", {now['per_minute']:g} a minute, {now['eta_seconds']:.0f} s left"
        )
        parts = [
            f"{now[name]} {name}"
            for name in ("running", "interrupted", "infra", "waiting")
            if now[name]
        ]
        classes = ", ".join(f"{name} {number}" for name, number in now["classes"].items())
        line = (
            f"{now['valid']} valid, {now['failed']} failed of {now['total']}{f' ({classes})' if classes else ''}; "
            f"{', '.join(parts) or 'nothing left'}"
        )
        if live:
            print(f"\r\033[K{line}{eta}", end="", file=sys.stderr, flush=True)
        elif line != shown:
            print(line + eta, file=sys.stderr, flush=True)
        shown = line
        if now["valid"] + now["failed"] == now["total"]:
            if live:
                print(file=sys.stderr)
            return
        time.sleep(every)
