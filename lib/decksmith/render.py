"""Rendering: a pool of long-lived Node workers (assets/renderer), each with its own browser, clock and memory.

A worker is given the deck's text and pictures and gives back pictures and measures; it reads and writes no file of the
run. What a deck does to its worker (never ends, eats the memory, crashes the page) costs that worker only: it is
killed and replaced.
"""

import asyncio
import base64
import ctypes
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import tempfile
import time
from pathlib import Path

from decksmith import cli, rubric, stream

RENDERER = cli.ROOT / "assets" / "renderer"
MAX_TEXT, MAX_PICTURE, MAX_PICTURES = 2 << 20, 32 << 20, 96 << 20
_TICK = os.sysconf("SC_CLK_TCK")


def node():
    """Path of the Node that belongs to this checkout; raises cli.Missing."""
    for place in (cli.ROOT / ".venv" / "bin" / "node", *(Path(folder) / "node" for folder in os.get_exec_path())):
        if place.is_file() and os.access(place, os.X_OK):
            return place
    raise cli.Missing("Node is not installed; run: make setup")


def engine(scale=1):
    """What decides the pixels, as the record keeps it: versions and hashes. Raises cli.Missing."""
    return {**_engine(), "scale": scale, "mode": "page"}


@functools.cache
def _engine():
    modules = RENDERER / "node_modules"
    if (
        not (modules / "@slidev" / "cli" / "package.json").is_file()
        or not (modules / "@sparticuz" / "chromium" / "package.json").is_file()
    ):
        raise cli.Missing("the renderer is not installed; run: make setup")

    def version(package):
        return json.loads((modules / package / "package.json").read_text())["version"]

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
        "browser": f"chromium {version('@sparticuz/chromium')}",
        "fonts": stream.fingerprint(fonts),
        "code": code.hexdigest(),
    }


def source(run, record):
    """The deck of a record as `(text, {name: bytes})`: pictures are regular files of `images/` that it names."""
    path = Path(run) / (record.get("images") or record.get("deck") or {}).get("path", "")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise cli.BadData(f"{record['id']}: the deck of this record cannot be read: {error}") from None
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
        {name: hashlib.sha256(data).hexdigest() for name, data in pictures.items()},
        engine(protocol.render["scale"]),
        protocol.render,
    ]


def intact(run, value):
    """Whether the pictures of a journaled value are still there."""
    return all((Path(run) / name).is_file() for name in value.get("slides", []))


class Pool:
    """`jobs` workers under the render settings of a protocol: `scale` (device pixels per CSS pixel), `deadline` (CPU
    seconds a deck may use, and ten times as many on the clock), `memory` (MB it may add to a worker), `min_slides`."""

    def __init__(self, protocol, *, jobs=1):
        self.protocol, self.settings = protocol, protocol.render
        self.engine = engine(self.settings["scale"])
        self.home = Path(tempfile.mkdtemp(prefix="decksmith-render-"))
        self.ready = None
        self.idle = asyncio.LifoQueue()
        self.workers = [_Worker(self.home / str(number)) for number in range(jobs)]
        for worker in self.workers:
            self.idle.put_nowait(worker)

    async def close(self):
        """End every worker and its browser."""
        for worker in self.workers:
            worker.kill()
        await asyncio.gather(*(worker.reap() for worker in self.workers))
        shutil.rmtree(self.home, ignore_errors=True)

    async def render(self, run, record):
        """Render one record and return its `render` value; pictures are written to `<run>/<id>/slides`."""
        text, pictures = source(run, record)
        folder = Path(run) / record["id"] / "slides"
        if len(text) > MAX_TEXT:
            result = _failure("memory", f"the deck has {len(text) >> 20} MB of text")
        else:
            result = await self._result(
                {
                    "id": record["id"],
                    "text": text,
                    "scale": self.settings["scale"],
                    "least": self.settings["min_slides"],
                    "images": {name: base64.b64encode(data).decode() for name, data in pictures.items()},
                }
            )
        names = await asyncio.to_thread(_publish, folder, result.pop("pictures", []))
        errors = result["errors"]
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
        elif error := rubric.refused(self.protocol, value):
            value["error"] = error
        return value

    async def _result(self, request):
        self.ready = self.ready or asyncio.ensure_future(asyncio.to_thread(build))
        await asyncio.shield(self.ready)
        worker = await self.idle.get()
        try:
            for attempt in (1, 2):
                result = await worker.ask(request, self.settings["deadline"], self.settings["memory"])
                kind = result["errors"][0]["kind"] if not result.get("pictures") and result["errors"] else None
                if kind != "renderer" or attempt == 2:
                    return result
                stream.warn(
                    request["id"],
                    f"renderer fault, {result['errors'][0]['message'].splitlines()[0]}; once more on a fresh worker",
                )
        finally:
            self.idle.put_nowait(worker)


def _failure(cls, message, kind="model", slide=None, line=None, expected=0):
    error = {"kind": kind, "class": cls, "slide": slide, "line": line, "message": message}
    return {"pictures": [], "expected": expected, "errors": [error], "xray": []}


def _publish(folder, pictures):
    """Put the pictures in place all at once; whatever lay there before is gone. Returns their names."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for rest in folder.parent.glob("slides.*.tmp"):
        shutil.rmtree(rest, ignore_errors=True)
    fresh, old = (folder.with_name(f"slides.{os.getpid()}-{word}.tmp") for word in ("new", "old"))
    names = [f"{number:02d}.png" for number in range(1, len(pictures) + 1)]
    if names:
        fresh.mkdir()
        for name, data in zip(names, pictures, strict=True):
            with open(fresh / name, "wb") as file:
                file.write(base64.b64decode(data))
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
        name: os.environ[name] for name in ("DECKSMITH_RENDER_CACHE", "DECKSMITH_RENDER_DEBUG") if name in os.environ
    }
    return {"LANG": "C.UTF-8", "TZ": "UTC", "PATH": "/usr/bin:/bin", "NODE_ENV": "production", **kept}


def build():
    """Unpack the browser and bundle the runtimes, where they are not there yet (once). Raises cli.Missing."""
    import subprocess

    _engine()
    with tempfile.TemporaryDirectory(prefix="decksmith-build-") as home:
        done = subprocess.run(
            [node(), RENDERER / "build.mjs"],
            env={**_environment(), "HOME": home, "TMPDIR": home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    if done.returncode:
        raise cli.Missing(
            f"the renderer could not be made ready; run: make setup ({done.stderr.strip().splitlines()[-1:]})"
        )


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class _Worker:
    """One Node process and its browser, started when first asked and again after it was killed."""

    def __init__(self, home):
        self.home, self.process = home, None

    async def _start(self):
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True, mode=0o700)
        environment = {**_environment(), "HOME": str(self.home), "TMPDIR": str(self.home)}
        root = RENDERER.resolve()
        readable = {root, root / "node_modules", Path(environment.get("DECKSMITH_RENDER_CACHE", root)), self.home}
        self.process = await asyncio.create_subprocess_exec(
            node(),
            "--no-warnings",
            "--max-old-space-size=1536",
            "--permission",
            "--allow-addons",
            "--allow-child-process",
            *(f"--allow-fs-read={place.resolve()}" for place in sorted(readable)),
            f"--allow-fs-write={self.home.resolve()}",
            "--import",
            root / "wall.mjs",
            root / "worker.mjs",
            self.home,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=self.home,
            start_new_session=True,
            preexec_fn=_die_with_parent,
            limit=1 << 29,
        )
        self.words = bytearray()
        self.listener = asyncio.create_task(self._listen(self.process.stderr))
        try:
            ready = await asyncio.wait_for(self._reply(None, None), 180)
        except TimeoutError:
            ready = None
        if not ready or "ready" not in ready:
            self.kill()
            await self.reap()
            return False
        return True

    async def _listen(self, pipe):
        while data := await pipe.read(1 << 16):
            self.words += data
            del self.words[:-4000]

    def _last_words(self):
        return self.words.decode("utf-8", "replace").strip()[-800:] or "it said nothing"

    async def _reply(self, request, seen):
        """The next reply that is not news about the slide in work (kept in `seen`); None when the worker has ended."""
        while line := await self.process.stdout.readline():
            reply = json.loads(line)
            if seen is not None and "slide" in reply:
                seen.update(slide=reply["slide"], line=reply["line"], of=reply["of"])
            elif request is None or reply.get("id") == request["id"]:
                return reply
        return None

    async def ask(self, request, deadline, memory):
        """One deck through this worker: {pictures, expected, errors, xray}; what costs the worker is an error in it."""
        if self.process is None or self.process.returncode is not None:
            if not await self._start():
                return _failure("crash", f"the render worker did not start: {self._last_words()}", kind="renderer")
        seen, peak = {"slide": None, "line": None, "of": 0}, 0
        began, (cpu, resident) = time.monotonic(), _usage(self.process.pid)
        answer = asyncio.ensure_future(self._reply(request, seen))
        verdict = None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            while not (await asyncio.wait([answer], timeout=0.1))[0]:
                used, now = _usage(self.process.pid)
                peak = max(peak, now - resident)
                if now - resident > memory << 20:
                    verdict = ("model", "memory", f"the deck took more than {memory} MB")
                elif used - cpu > deadline:
                    verdict = ("model", "deadline", f"the deck took more than {deadline:g} CPU seconds")
                elif time.monotonic() - began > 10 * deadline:
                    verdict = (
                        "renderer",
                        "internal",
                        f"no reply in {10 * deadline:g} seconds, {used - cpu:.1f} of them in use",
                    )
                if verdict:
                    break
            reply = None if verdict else answer.result()
        except (BrokenPipeError, ConnectionResetError):
            reply = None
        finally:
            answer.cancel()
            if not answer.done() or verdict:
                self.kill()
        if reply and "result" in reply:
            return reply["result"]
        self.kill()
        await self.reap()
        if not verdict and reply and reply.get("page") and peak > 256 << 20:
            verdict = ("model", "memory", "the page ran out of memory")
        if not verdict:
            text = reply["crash"] if reply else f"the render worker ended: {self._last_words()}"
            verdict = ("renderer", "internal" if reply and not reply.get("page") else "crash", text[:1500])
        kind, cls, message = verdict
        return _failure(cls, message, kind=kind, slide=seen["slide"], line=seen["line"], expected=seen["of"])

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
        if self.process is not None:
            await self.process.wait()
            self.listener.cancel()
            self.process = None


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
        resident += sum(int(value) << 10 for value in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.M))
    return cpu / _TICK, resident
