"""Rendering: a pool of long-lived Node workers (assets/renderer), each with its own browser, clock and memory.

A worker is given the deck's text and pictures and gives back pictures and measures; it reads and writes no file of the
run, and lives in a cell (core/walls.py) that has none. What a deck does to its worker (never ends, eats the memory, crashes
the page) costs that worker only: it is killed and replaced.
"""

import asyncio
import base64
import fcntl
import functools
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.core.protocol import refused
from decksmith.core.walls import SYSTEM
from decksmith.decks.parser import THEMES
from decksmith.render import cache

RENDERER = cli.ROOT / "assets" / "renderer"
MODULES = cli.TOOLCHAIN / "assets" / "renderer" / "node_modules"
CELL = cli.ROOT / "lib/decksmith/core/walls.py"
# From strongest to weakest: the walls of the cell, and whether root becomes another user in it.
WALLS = [(walls, other) for other in (True, False) for walls in ("full", "shared-pids")]
WALLS += [("bubblewrap", True), ("plain", True), ("plain", False)]
NO_WALLS = "this machine grants no namespaces, so a deck would run as a program of yours, with your files and your network"
# What every worker renders unless we are broken: it tells whose fault it is when another deck does not.
KNOWN_GOOD = "---\ntheme: {theme}\n---\n\n# A\n\n- one\n\n$a^2$\n\n---\n\n# B\n\n```js\n1\n```\n"
MAX_TEXT, MAX_PICTURE, MAX_PICTURES, MAX_ERRORS = 2 << 20, 32 << 20, 96 << 20, 200
_TICK = os.sysconf("SC_CLK_TCK")


def node():
    """Path of the Node that belongs to this checkout; raises cli.Missing."""
    for place in (
        cli.TOOLCHAIN / ".venv" / "bin" / "node",
        *(Path(folder) / "node" for folder in os.get_exec_path()),
    ):
        if place.is_file() and os.access(place, os.X_OK):
            return place
    raise cli.Missing("Node is not installed; run: make setup")


def engine(scale=1):
    """What decides the pixels, as the record keeps it: versions and hashes. Raises cli.Missing."""
    return {**_engine(), "scale": scale, "mode": "page"}


def themes():
    """The names a deck may give its theme, sorted; the table is assets/renderer/themes.json."""
    return sorted(THEMES)


@functools.cache
def _engine():
    if (
        not (MODULES / "@slidev" / "cli" / "package.json").is_file()
        or not (MODULES / "@sparticuz" / "chromium" / "package.json").is_file()
    ):
        raise cli.Missing("the renderer is not installed; run: make setup")

    def version(package):
        return json.loads((MODULES / package / "package.json").read_text())["version"]

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


def _chromium_version():
    """What the browser of DECKSMITH_CHROMIUM says of itself, or None where the one of the lock is used."""
    if not (path := os.environ.get("DECKSMITH_CHROMIUM")):
        return None
    try:
        done = subprocess.run(
            [path, "--version"], env=_environment(), capture_output=True, text=True, timeout=60
        )
        if os.path.isabs(path) and done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        pass
    raise cli.Missing(
        f"DECKSMITH_CHROMIUM={path} is not the absolute path of a browser that runs; mend or unset it"
    )


def source(run, record):
    """The deck of a record as `(text, {name: bytes})`: pictures are regular files of `images/` that it names."""
    path = Path(run) / (record.get("images") or record.get("deck") or {}).get("path", "")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise cli.BadData(
            f"{record['id']}: the deck of this record cannot be read: {error}"
        ) from None
    text = data.decode("utf-8", "replace")
    pictures, total = {}, 0
    for name in sorted(set(re.findall(r"images/[A-Za-z0-9][\w.-]*", text))):
        place = path.parent / name
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        with open(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            if (
                stat.S_ISREG(info.st_mode)
                and not (place.parent.is_symlink())
                and info.st_size <= MAX_PICTURE
                and total + info.st_size <= MAX_PICTURES
            ):
                pictures[name] = file.read()
                total += info.st_size
    return text, pictures


def inputs(run, record, protocol):
    """Everything the rendering of a record depends on, for the journal."""
    text, pictures = source(run, record)
    return [
        hashlib.sha256(text.encode()).hexdigest(),
        _hashes(pictures),
        engine(protocol.render["scale"]),
        protocol.render,
    ]


def intact(run, value):
    """Whether the pictures of a journaled value are still there."""
    return all((Path(run) / name).is_file() for name in value.get("slides", []))


class Pool:
    """`jobs` workers under the render settings of a protocol: `scale` (device pixels per CSS pixel), `deadline` (CPU
    seconds a deck may use, and ten times as many on the clock), `memory` (MB it may add to a worker), `min_slides`.
    `kept` is a folder of finished renders (renders.py): what it holds needs no worker."""

    def __init__(self, protocol, *, jobs=1, kept=None):
        self.protocol, self.settings = protocol, protocol.render
        self.engine = engine(self.settings["scale"])
        self.home, self._lock = _folder()
        self.ready, self.bundles, self.kept = None, {}, kept
        self.idle = asyncio.LifoQueue()
        self.workers = [_Worker(self.home / str(number)) for number in range(jobs)]
        for worker in self.workers:
            self.idle.put_nowait(worker)

    async def close(self):
        """End every worker and its browser."""
        tasks = [task for task in (self.ready, *self.bundles.values()) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(worker.reap() for worker in self.workers))
        shutil.rmtree(self.home, ignore_errors=True)
        os.close(self._lock)

    async def render(self, run, record):
        """Render one record and return its `render` value; pictures are written to `<run>/<id>/slides`."""
        result, cached = await self._kept_result(record["id"], *source(run, record))
        by = {"cached": True} if cached else {"walls": (await self.ready)[0]} if self.ready else {}
        return await self._value(run, record, result) | ({"by": by} if by else {})

    async def _value(self, run, record, result):
        """The `render` value of a result whose pictures are bytes; they are published."""
        names = await asyncio.to_thread(
            _publish, Path(run) / record["id"] / "slides", result["pictures"]
        )
        errors = result["errors"]  # in the order of the slides
        few = next((error for error in errors if error["class"] == "too-few-slides"), None)
        value = {
            "status": "failed" if few or not names else "partial" if errors else "ok",
            "slides": [f"{record['id']}/slides/{name}" for name in names],
            "expected": result["expected"],
            "errors": errors,
            "xray": result["xray"],
            "engine": self.engine,
        }
        if value["status"] == "failed":
            value["error"] = few or errors[0]
        elif error := refused(self.protocol, value):
            value["error"] = error
        return value

    async def _kept_result(self, ident, text, pictures):
        """(the result for a deck, its pictures as bytes; whether an earlier run kept it)."""
        if len(text) > MAX_TEXT:
            return _failure("memory", f"the deck has {len(text) >> 20} MB of text"), False
        settings = {
            name: self.settings[name] for name in ("scale", "min_slides", "deadline", "memory")
        }
        key = stream.fingerprint(["render 1", text, _hashes(pictures), self.engine, settings])
        if self.kept and (result := await asyncio.to_thread(cache.load, self.kept, key)):
            return result, True
        result = await self._result(
            {
                "id": ident,
                "text": text,
                "scale": self.settings["scale"],
                "least": self.settings["min_slides"],
                "images": {
                    name: base64.b64encode(data).decode() for name, data in pictures.items()
                },
            }
        )
        result["pictures"] = [base64.b64decode(data) for data in result["pictures"]]
        result["errors"] = _first(result["errors"])
        if self.kept:
            await asyncio.to_thread(cache.keep, self.kept, key, result)
        return result, False

    async def _result(self, request):
        self.ready = self.ready or asyncio.ensure_future(_prepare(self.home))
        walls = await asyncio.shield(self.ready)
        worker = await self.idle.get()
        try:
            result = await self._ask(worker, request, walls)
            if not (stalled := _broken(result)):
                return result
            good = await self._known_good(worker, request, walls)
            if good and stalled["class"] != "deadline":
                result = await self._ask(worker, request, walls)
            if not (error := _broken(result)):
                return result
            if good:  # it alone breaks what serves others
                error |= {"class": "crash"} if error["class"] == "internal" else {}
                error.update(
                    kind="model",
                    message=f"the deck breaks what renders it: {error['message']}"[:1500],
                )
            else:
                error.update({"class": "internal"} if error["class"] == "deadline" else {})
                stream.warn(
                    request["id"],
                    f"renderer fault, of a deck known to be good too: {error['message'].splitlines()[0]}",
                )
            return result
        finally:
            self.idle.put_nowait(worker)

    async def _known_good(self, worker, request, walls):
        """Whether a deck that works unless we are broken works now, in the theme of `request`: on this worker, or on a fresh one."""
        named = re.search(r"^theme:[ \t]*['\"]?([\w-]+)", request["text"], re.M)
        theme = named[1] if named and named[1] in themes() else "default"
        good = {
            **request,
            "id": f"{request['id']} (known good)",
            "text": KNOWN_GOOD.format(theme=theme),
            "images": {},
            "least": 1,
        }
        for attempt in (1, 2):
            result = await self._ask(worker, good, walls)
            if result["pictures"]:
                return True
            if attempt == 1:
                await worker.reap()
        return False

    async def _ask(self, worker, request, walls):
        """One deck through a worker; a theme that no deck has named before is bundled first, at nobody's expense."""
        ask = functools.partial(
            worker.ask, request, self.settings["deadline"], self.settings["memory"], walls
        )
        result = await ask()
        theme = result["errors"][0].get("unbundled") if result["errors"] else None
        if theme and theme in themes():
            if theme not in self.bundles:
                self.bundles[theme] = asyncio.ensure_future(_build(theme))
            try:
                await asyncio.shield(self.bundles[theme])
            except cli.Missing as error:
                return _failure("internal", f"the theme {theme}: {error}", kind="renderer")
            result = await ask()
        return result


def _hashes(pictures):
    return {name: hashlib.sha256(data).hexdigest() for name, data in pictures.items()}


def _first(errors):
    """At most MAX_ERRORS of them, the first of every class among them; the last then says how many are left out."""
    if len(errors) <= MAX_ERRORS:
        return errors
    firsts = {error["class"]: number for number, error in reversed([*enumerate(errors)])}.values()
    others = [number for number in range(len(errors)) if number not in firsts]
    *chosen, last = [*firsts, *others][:MAX_ERRORS]
    note = f"{errors[last]['message']} (and {len(errors) - MAX_ERRORS} more errors, not listed)"
    return [*(errors[number] for number in sorted(chosen)), {**errors[last], "message": note}]


def _broken(result):
    """The error that says that the renderer failed, or None."""
    first = result["errors"][0] if result["errors"] and not result["pictures"] else None
    return first if first and first["kind"] == "renderer" else None


def _failure(cls, message, kind="model", slide=None, line=None, expected=0):
    error = {"kind": kind, "class": cls, "slide": slide, "line": line, "message": message}
    return {"pictures": [], "expected": expected, "errors": [error], "xray": []}


def _publish(folder, pictures):
    """Put the pictures (bytes) in place all at once; whatever lay there before is gone. Returns their names."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for rest in folder.parent.glob("slides.*.tmp"):
        shutil.rmtree(rest, ignore_errors=True)
    fresh, old = (folder.with_name(f"slides.{os.getpid()}-{word}.tmp") for word in ("new", "old"))
    names = [f"{number:02d}.png" for number in range(1, len(pictures) + 1)]
    if names:
        fresh.mkdir()
        for name, data in zip(names, pictures, strict=True):
            with open(fresh / name, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
    if folder.exists():
        os.rename(folder, old)
    if names:
        os.rename(fresh, folder)
    shutil.rmtree(old, ignore_errors=True)
    return names


def _environment():
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


def _folder():
    """(a private folder for temporary files, an open lock on it); folders whose owner was killed are swept first.

    A folder is swept when its owner (the pid in its name) is gone and nobody holds its lock: pids mean nothing across
    containers that share a TMPDIR, and the lock is not yet held in the moment after a folder is made. One that names no
    owner (an earlier version's, which took no lock) is swept after a day.
    """
    base = tempfile.gettempdir()
    for name in os.listdir(base):
        match = re.fullmatch(r"decksmith-render-(?:(\d+)-)?\w+", name)
        if not match or (match[1] and _alive(int(match[1]))):
            continue
        try:
            descriptor = os.open(
                os.path.join(base, name), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            )
        except OSError:
            continue
        try:
            info = os.fstat(descriptor)
            if info.st_uid == os.geteuid() and time.time() - info.st_mtime > (
                5 if match[1] else 86400
            ):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(os.path.join(base, name), ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(descriptor)
    folder = tempfile.mkdtemp(prefix=f"decksmith-render-{os.getpid()}-")
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.geteuid() == 0:
        os.chmod(folder, 0o711)  # the workers are other users
    return Path(os.path.realpath(folder)), lock


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _cell(walls, become, home, command, readable=()):
    """The command line that runs `command` in a cell, as a child of this process."""
    spec = {
        "home": str(home),
        "read": [str(path) for path in readable],
        "walls": walls,
        "become": become,
    }
    if walls == "bubblewrap":  # has its walls where it is setuid and users may make no namespaces
        spec |= {"walls": "plain", "parent": 1}
        python = os.path.realpath(sys.executable)
        shown = [
            *SYSTEM,
            sys.base_prefix,
            os.path.realpath(sys.base_prefix),
            python,
            str(CELL),
            *spec["read"],
        ]
        links = [("--symlink", os.readlink(path), path) for path in shown if os.path.islink(path)]
        binds = [
            ("--ro-bind", path, path)
            for path in shown
            if os.path.exists(path) and not os.path.islink(path)
        ]
        capable = (
            ("--cap-add", "ALL") if os.geteuid() == 0 else ()
        )  # what the cell needs, and gives up
        divide = ["pid", "net", "ipc", "uts"]
        walls = [f"--unshare-{what}" for what in divide] + [
            "--die-with-parent",
            *capable,
            "--proc",
            "/proc",
        ]
        above = sorted(
            {str(folder) for path in [*shown, home] for folder in Path(path).parents} - {"/"}
        )
        open_ = itertools.chain(
            *(("--perms", "0755", "--dir", folder) for folder in above)
        )  # else they are root's alone
        walls += [
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
            *open_,
            *itertools.chain(*links, *binds),
            "--bind",
            home,
            home,
        ]
        return ["bwrap", *map(str, walls), python, "-IS", CELL, json.dumps(spec), *command]
    return [sys.executable, "-IS", CELL, json.dumps(spec | {"parent": os.getpid()}), *command]


def _readable():
    """What a worker reads: the renderer, Node, and where they are elsewhere the cache and the browser."""
    root = RENDERER.resolve()
    places = {root, MODULES.resolve(), node().resolve()}
    if cli.TOOLCHAIN != cli.ROOT:
        places.add(
            Path("/node_modules")
        )  # the image's: where a module of the checkout finds its packages
    for name, of in (
        ("DECKSMITH_RENDER_CACHE", lambda path: path),
        ("DECKSMITH_CHROMIUM", lambda path: path.parent),
    ):
        if name in os.environ:
            places |= {of(Path(os.environ[name])), of(Path(os.environ[name]).resolve())}
    return sorted(place for place in places if place.exists())


def build():
    """Unpack the browser and bundle the runtimes, where they are not there yet (once). Raises cli.Missing."""
    asyncio.run(_build())


async def _build(theme=None):
    _engine()
    folder, lock = _folder()
    command = (
        [node(), RENDERER.resolve() / "site.mjs", theme]
        if theme
        else [node(), RENDERER / "build.mjs"]
    )
    try:
        status, words = await _run(_cell("none", False, folder, command), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
    if status:
        raise cli.Missing(
            f"the renderer could not be made ready; run: make setup (status {status}; {words[-300:]})"
        )


async def _run(command, home):
    """(status, what it said on stderr) of a command; ended at once when this is cancelled, tried again when killed."""
    environment = {**_environment(), "HOME": str(home), "TMPDIR": str(home)}
    for attempt in (1, 2, 3):
        with tempfile.TemporaryFile() as words:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=words,
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


async def _prepare(home):
    """Build what is missing and find the strongest walls this host grants: an element of WALLS."""
    _, walls = await asyncio.gather(_build(), _walls(home))
    return walls


async def _walls(home):
    """The strongest of WALLS in which Node runs; none at all only where DECKSMITH_WALLS accepts that, or an image is a wall."""
    refusals, image = [], os.environ.get("DECKSMITH_IMAGE")
    accepted = os.environ.get("DECKSMITH_WALLS", "")
    if accepted not in ("", "plain"):
        raise cli.BadConfig(
            f"DECKSMITH_WALLS is {accepted!r}; it is unset, or plain to do without walls"
        )
    for walls, become in WALLS if os.geteuid() == 0 else [pair for pair in WALLS if pair[1]]:
        if walls == "bubblewrap" and not shutil.which("bwrap"):
            continue
        if walls == "plain" and not (accepted or image):
            raise cli.Missing(
                f"{NO_WALLS} ({'; '.join(refusals)[:300]}); let users make namespaces (sysctl "
                "kernel.unprivileged_userns_clone=1), or use the image (make image-render) or bubblewrap; for decks that are "
                "your own: --walls plain, or DECKSMITH_WALLS=plain"
            )
        trial = Path(tempfile.mkdtemp(dir=home))
        status, words = await _run(
            _cell(walls, become, trial, [node().resolve(), "--version"], _readable()), trial
        )
        if status == 0:
            if walls == "plain" and not image:
                cli.say(NO_WALLS)
            return walls, become
        refusals.append(f"{walls}: {words[-200:]}")
    raise cli.Missing(f"Node does not run in any cell: {'; '.join(refusals)}")


class _Worker:
    """One Node process and its browser, started when first asked and again after it was killed."""

    def __init__(self, home):
        self.home, self.process, self.listener, self.pipes = home, None, None, []

    async def _start(self, walls):
        await self.reap()
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(mode=0o700)
        root, readable = RENDERER.resolve(), _readable()
        command = [
            node().resolve(),
            "--no-warnings",
            "--max-old-space-size=1536",
            "--expose-gc",
            "--permission",
            "--allow-addons",
            "--allow-child-process",
            *(f"--allow-fs-read={place}" for place in [*readable, self.home]),
            f"--allow-fs-write={self.home}",
            "--import",
            root / "wall.mjs",
            root / "worker.mjs",
            self.home,
        ]
        # Not asyncio's own subprocesses: their wait() lasts until every pipe is closed, and for ever when they are
        # cancelled before the pipes are connected (base_subprocess.py of 3.11).
        self.process = subprocess.Popen(
            _cell(*walls, self.home, command, readable),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**_environment(), "HOME": str(self.home), "TMPDIR": str(self.home)},
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
        loop, self.words = asyncio.get_running_loop(), bytearray()
        self.replies, mutter = asyncio.StreamReader(limit=1 << 29), asyncio.StreamReader()
        for reader, pipe in ((self.replies, self.process.stdout), (mutter, self.process.stderr)):
            protocol = asyncio.StreamReaderProtocol(reader)
            self.pipes += (await loop.connect_read_pipe(lambda protocol=protocol: protocol, pipe))[
                :1
            ]
        self.pipes += (await loop.connect_write_pipe(asyncio.BaseProtocol, self.process.stdin))[:1]
        self.listener = asyncio.create_task(self._listen(mutter))
        try:
            ready = await asyncio.wait_for(self._reply(None, None), 180)
        except TimeoutError:
            ready = None
        if ready and "ready" in ready:
            return True
        await self.reap()
        return False

    async def _listen(self, pipe):
        while data := await pipe.read(1 << 16):
            self.words += data
            del self.words[:-4000]

    def _last_words(self):
        return self.words.decode("utf-8", "replace").strip()[-800:] or "it said nothing"

    async def _reply(self, request, seen):
        """The next reply that is not news about the slide in work (kept in `seen`); None when the worker has ended."""
        while (line := await self.replies.readline()).endswith(
            b"\n"
        ):  # else it was killed in the middle of it
            reply = json.loads(line)
            if seen is not None and "slide" in reply:
                seen.update(slide=reply["slide"], line=reply["line"], of=reply["of"])
            elif request is None or reply.get("id") == request["id"]:
                return reply
        return None

    async def ask(self, request, deadline, memory, walls):
        """One deck through this worker: {pictures, expected, errors, xray}; what costs the worker is an error in it."""
        if self.process is None or self.process.poll() is not None:
            if not await self._start(walls):
                return _failure(
                    "crash",
                    f"the render worker did not start: {self._last_words()}",
                    kind="renderer",
                )
        seen, peak = {"slide": None, "line": None, "of": 0}, 0
        began, (cpu, resident) = time.monotonic(), _usage(self.process.pid)
        answer = asyncio.ensure_future(self._reply(request, seen))
        verdict = None
        try:
            self.pipes[-1].write(json.dumps(request).encode() + b"\n")
            while not (await asyncio.wait([answer], timeout=0.1))[0]:
                used, now = _usage(self.process.pid)
                peak = max(peak, now - resident)
                if now - resident > memory << 20:
                    verdict = ("model", "memory", f"the deck took more than {memory} MB")
                elif used - cpu > deadline:
                    verdict = (
                        "model",
                        "deadline",
                        f"the deck took more than {deadline:g} CPU seconds",
                    )
                elif time.monotonic() - began > 10 * deadline:
                    verdict = (
                        "renderer",
                        "deadline",
                        f"no reply in {10 * deadline:g} seconds, {used - cpu:.1f} of them in use",
                    )
                if verdict:
                    break
            try:
                reply = None if verdict else answer.result()
            except ValueError:  # a line without an end
                reply, verdict = None, ("model", "memory", "what is known of the deck is too large")
        finally:
            answer.cancel()
            if not answer.done() or verdict:
                self.kill()
        if reply and "result" in reply:
            return reply["result"]
        if reply and not reply.get(
            "page"
        ):  # what it threw leaves it in order; a known good deck tells
            return _failure(
                "internal",
                reply["crash"][:1500],
                "renderer",
                seen["slide"],
                seen["line"],
                seen["of"],
            )
        await self.reap()
        if not verdict and reply and reply.get("page") and peak > 256 << 20:
            verdict = ("model", "memory", "the page ran out of memory")
        if not verdict:
            text = reply["crash"] if reply else f"the render worker ended: {self._last_words()}"
            verdict = ("renderer", "crash", text[:1500])
        kind, cls, message = verdict
        return _failure(
            cls, message, kind=kind, slide=seen["slide"], line=seen["line"], expected=seen["of"]
        )

    def kill(self):
        """Kill the worker, its browser and every process of theirs."""
        if self.process is None:
            return
        for pid in [*_tree(self.process.pid), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    async def reap(self):
        """Kill it and wait until it has ended."""
        if self.process is None:
            return
        self.kill()
        while self.process.poll() is None:
            await asyncio.sleep(0.01)
            self.kill()
        if self.listener:  # what it said last
            await asyncio.wait([self.listener], timeout=1)
            self.listener.cancel()
        for pipe in self.pipes:
            pipe.close()
        self.process = self.listener = None
        self.pipes = []


def _tree(pid):
    """The descendants of a process, nearest first."""
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
            children = [
                int(child)
                for task in tasks
                for child in Path(f"/proc/{parent}/task/{task}/children").read_text().split()
            ]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += children
        waiting += children
    return found


def _usage(pid):
    """(CPU seconds, bytes of private and shared anonymous memory) of a process and its descendants."""
    cpu, resident = 0, 0
    for member in [pid, *_tree(pid)]:
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{member}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        cpu += sum(int(value) for value in fields[11:15])
        resident += sum(
            int(value) << 10
            for value in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.M)
        )
    return cpu / _TICK, resident
