"""Rendering: a pool of long-lived workers under a protocol's render settings; the deck of a record in, pictures out."""

import asyncio
import base64
import contextlib
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import cast

from decksmith.core import cli, stream, workspace
from decksmith.core.cells import Walls
from decksmith.core.protocol import Protocol, refused
from decksmith.core.records import By, Edit, Error, Record, misfit
from decksmith.measure.decks import clean, templates
from decksmith.measure.decks.lint import CANVAS
from decksmith.measure.decks.parser import THEMES
from decksmith.measure.decks.pictures import cache_folder, illustrate, is_whole
from decksmith.measure.decks.records import Render
from decksmith.measure.decks.templates import Style
from decksmith.measure.render import cell, toolchain
from decksmith.measure.render.worker import (
    DeckError,
    Drawn,
    RenderRequest,
    RenderResult,
    Worker,
    failure,
)

# What every worker renders unless we are broken: it tells whose fault it is when another deck does not.
KNOWN_GOOD = "---\ntheme: {theme}\n---\n\n# A\n\n- one\n\n$a^2$\n\n---\n\n# B\n\n```js\n1\n```\n"
IMPORTS = cli.ROOT / "data/decks"  # decks that other programs made (imported.py)
KEPT_MOST = 2 << 30  # bytes of finished renders, some 6000 decks; then the longest unused goes
MAX_TEXT, MAX_PICTURE, MAX_PICTURES, MAX_ERRORS = 2 << 20, 32 << 20, 96 << 20, 200


def source(run: str | Path, record: Record) -> tuple[str, dict[str, bytes]]:
    """The deck of a record as `(text, {name: bytes})`: pictures are regular files of `images/` that it names,
    beside what deck-illustrate wrote or beside the deck."""
    path, text = clean.illustrated(run, record)
    own = (record.get("deck") or {}).get("path")
    folders = dict.fromkeys([path.parent, *([(Path(run) / own).parent] if own else [])])
    pictures: dict[str, bytes] = {}
    left = MAX_PICTURES
    names = sorted(set(re.findall(r"images/[A-Za-z0-9][\w.-]*", text)))
    for name, folder in itertools.product(names, folders):
        place = folder / name
        if name in pictures or place.parent.is_symlink():
            continue
        with contextlib.suppress(OSError):
            pictures[name] = workspace.take(place, min(MAX_PICTURE, left))
            left -= len(pictures[name])
    return text, pictures


def dress(run: str | Path, record: Record) -> list[Style]:
    """The style of the template that a deck is under, as a worker is given it; [] without a template."""
    template = templates.of(run, record)
    return [template.style()] if template else []


def inputs(run: str | Path, record: Record, protocol: Protocol) -> list[object]:
    """Everything the rendering of a record depends on, for the journal."""
    text, pictures = source(run, record)
    return [
        hashlib.sha256(text.encode()).hexdigest(),
        hashes(pictures),
        toolchain.engine(protocol.render["scale"]),
        protocol.render,
        *dress(run, record),
        *([record["edit"]["before"]] if "edit" in record else []),
    ]


def intact(run: str | Path, value: Render) -> bool:
    """Whether a journaled value is whole, and its pictures are still there and whole."""
    wrong = misfit(value, Render, without=("engine", "by"))
    names = [*value.get("slides", []), *value.get("before", [])]
    return not wrong and all(is_whole(Path(run) / name) for name in names)


class Pool:
    """`jobs` workers under the render settings of a protocol: `scale` (device pixels per CSS pixel), `deadline` (CPU
    seconds a deck may use, and ten times as many on the clock), `memory` (MB it may add to a worker), `min_slides`.
    `kept`: a folder of finished renders (`keep`); what it holds needs no worker."""

    def __init__(self, protocol: Protocol, *, jobs: int = 1, kept: Path | None = None) -> None:
        self.protocol, self.settings = protocol, protocol.render
        self.engine = toolchain.engine(self.settings["scale"])
        self.home, self._lock = cell.private_folder()
        self.kept = kept
        self.ready: asyncio.Future[Walls] | None = None  # the walls of every worker
        self.bundles: dict[str, asyncio.Future[None]] = {}  # by theme
        self.befores: dict[str, asyncio.Future[Render]] = {}  # by the deck before an edit
        self.idle: asyncio.LifoQueue[Worker] = asyncio.LifoQueue()
        self.workers = [Worker(self.home / str(number)) for number in range(jobs)]
        for worker in self.workers:
            self.idle.put_nowait(worker)

    async def close(self) -> None:
        """End every worker and its browser."""
        tasks = [task for task in (self.ready, *self.bundles.values()) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(worker.reap() for worker in self.workers))
        shutil.rmtree(self.home, ignore_errors=True)
        os.close(self._lock)

    async def render(self, run: str | Path, record: Record) -> Render:
        """Render one record and return its `render` value; pictures are written to `<run>/<id>/slides`."""
        deck = *source(run, record), dress(run, record)
        if made := await asyncio.to_thread(imported, record, deck[0], self.settings["scale"]):
            value: Render = {**await self._value(run, record, made[0]), "imported": made[1]}
        else:
            result, cached = await self._kept_result(record["id"], *deck)
            value = await self._value(run, record, result)
            if cached:
                value["by"] = cast(By, {"cached": True})
            elif self.ready:
                value["by"] = cast(By, {"walls": (await self.ready)[0]})
        if "edit" in record:
            value["before"] = await self._before(Path(run), record["edit"])
        return value

    async def _before(self, run: Path, edit: Edit) -> list[str]:
        """The pictures of the deck before an edit: all edits of a run on one deck share them, in its folder before-HASH. Raises
        stream.Fault where it has none, which is no fault of the model's."""
        text = edit["before"]
        files, _, ident = edit.get("imported", "").rpartition("/")
        ident = ident or f"before-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        if ident not in self.befores:
            stream.write(run / ident / "deck.md", text.encode())
            record: Record = {"id": ident, "deck": {"path": f"{ident}/deck.md"}}
            record["gen"] = {"model": {"files": files}}
            record["images"] = illustrate(run, record)
            self.befores[ident] = asyncio.ensure_future(self.render(run, record))
        value = await asyncio.shield(self.befores[ident])
        if error := value.get("error"):
            raise stream.Fault("renderer", "before", f"the deck before: {error['message']}")
        return value["slides"]

    async def _value(self, run: str | Path, record: Record, result: Drawn) -> Render:
        """The `render` value of a result whose pictures are bytes; they are published."""
        folder = Path(run) / record["id"] / "slides"
        names = await asyncio.to_thread(_publish, folder, result["pictures"])
        errors = result["errors"]  # in the order of the slides
        few = next((error for error in errors if error["class"] == "too-few-slides"), None)
        value: Render = {
            "status": "failed" if few or not names else "partial" if errors else "ok",
            "slides": [f"{record['id']}/slides/{name}" for name in names],
            "expected": result["expected"],
            "errors": errors,
            "xray": result["xray"],
            "engine": self.engine,
        }
        if value["status"] == "failed":
            value["error"] = few or errors[0]
        elif error := refused(self.protocol, dict(value)):
            value["error"] = cast(Error, error)
        return value

    async def _kept_result(
        self, ident: str, text: str, pictures: dict[str, bytes], dressed: list[Style]
    ) -> tuple[Drawn, bool]:
        """(the result for a deck, its pictures as bytes; whether an earlier run kept it)."""
        if len(text) > MAX_TEXT:
            return drawn(failure("memory", f"the deck has {len(text) >> 20} MB of text")), False
        settings = [self.settings[name] for name in ("scale", "min_slides", "deadline", "memory")]
        key = stream.fingerprint(
            ["render 2", text, hashes(pictures), self.engine, settings, *dressed]
        )
        if self.kept and (known := await asyncio.to_thread(load_kept, self.kept, key)):
            return known, True
        result = drawn(await self._result(self.request(ident, text, pictures, dressed)))
        if self.kept:
            await asyncio.to_thread(keep, self.kept, key, result)
        return result, False

    def request(
        self, ident: str, text: str, pictures: dict[str, bytes], dressed: list[Style]
    ) -> RenderRequest:
        """What a worker is asked for a deck."""
        return {
            "id": ident,
            "text": text,
            "scale": self.settings["scale"],
            "least": self.settings["min_slides"],
            "images": {name: base64.b64encode(data).decode() for name, data in pictures.items()},
            "template": dressed[0] if dressed else {},
        }

    async def _result(self, request: RenderRequest) -> RenderResult:
        self.ready = self.ready or asyncio.ensure_future(cell.prepare(self.home))
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
                message = f"the deck breaks what renders it: {error['message']}"[:1500]
                error["kind"], error["message"] = "model", message
                if error["class"] == "internal":
                    error["class"] = "crash"
            else:
                if error["class"] == "deadline":
                    error["class"] = "internal"
                said = f"renderer fault, of a deck known to be good too: {error['message']}"
                stream.warn(request["id"], said.splitlines()[0])
            return result
        finally:
            self.idle.put_nowait(worker)

    async def _known_good(self, worker: Worker, request: RenderRequest, walls: Walls) -> bool:
        """Whether a deck that should work does, in the same theme; at last on a fresh worker."""
        named = re.search(r"^theme:[ \t]*['\"]?([\w-]+)", request["text"], re.M)
        theme = named[1] if named and named[1] in THEMES else "default"
        text, ident = KNOWN_GOOD.format(theme=theme), f"{request['id']} (known good)"
        good: RenderRequest = {**request, "id": ident, "text": text, "images": {}, "least": 1}
        if (await self._ask(worker, good, walls))["pictures"]:
            return True
        await worker.reap()
        return bool((await self._ask(worker, good, walls))["pictures"])

    async def _ask(self, worker: Worker, request: RenderRequest, walls: Walls) -> RenderResult:
        """One deck through a worker; a theme that no deck has named before is bundled first, at nobody's expense."""
        limits = self.settings["deadline"], self.settings["memory"], walls
        result = await worker.ask(request, *limits)
        theme = cast(DeckError, result["errors"][0]).get("unbundled") if result["errors"] else None
        if theme and theme in THEMES:
            if theme not in self.bundles:
                self.bundles[theme] = asyncio.ensure_future(cell.bundle(theme))
            try:
                await asyncio.shield(self.bundles[theme])
            except cli.Missing as error:
                return failure("internal", f"the theme {theme}: {error}", kind="renderer")
            result = await worker.ask(request, *limits)
        return result


def imported(record: Record, text: str, scale: int) -> tuple[Drawn, str] | None:
    """(an imported deck as it was drawn, what it was), by its record and text; None for another. Raises stream.Fault where it is
    not there as it was (measure/render/imported.py)."""
    files = ((record.get("gen") or {}).get("model") or {}).get("files")
    place = Path(cli.ROOT, str(files)).resolve()
    if not files or not place.is_relative_to(IMPORTS.resolve()):
        return None
    kept = cast(Record | None, load_kept(place, f"{record['id']}.deck"))
    if kept is None or f"imported: {kept['key']}" not in text[:200]:
        said = (
            f"{place}/{record['id']}.deck is not the deck that was read; bin/deck-import it again"
        )
        raise stream.Fault("infra", "no-import", said, retriable=False)
    pictures = [resized(data, CANVAS[0] * scale) for data in kept["pictures"]]
    return cast(Drawn, {**kept, "pictures": pictures}), kept["imported"]


def resized(picture: bytes | Path, width: int) -> bytes:
    """A picture at another width, as PNG."""
    from PIL import Image

    out = io.BytesIO()
    with Image.open(io.BytesIO(picture) if isinstance(picture, bytes) else picture) as shown:
        high = round(shown.height * width / shown.width)
        shown.convert("RGB").resize((width, high), Image.Resampling.LANCZOS).save(out, "PNG")
    return out.getvalue()


def hashes(pictures: dict[str, bytes]) -> dict[str, str]:
    """The sha256 of each picture."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in pictures.items()}


def drawn(result: RenderResult) -> Drawn:
    """A result with its pictures as they are, and no more errors than a record holds."""
    return {
        "pictures": [base64.b64decode(data) for data in result["pictures"]],
        "expected": result["expected"],
        "errors": first(result["errors"]),
        "xray": result["xray"],
    }


def first(errors: list[Error]) -> list[Error]:
    """At most MAX_ERRORS of them, the first of every class among them; the last then says how many are left out."""
    if len(errors) <= MAX_ERRORS:
        return errors
    firsts = {error["class"]: number for number, error in reversed([*enumerate(errors)])}.values()
    others = [number for number in range(len(errors)) if number not in firsts]
    *chosen, last = [*firsts, *others][:MAX_ERRORS]
    note = f"{errors[last]['message']} (and {len(errors) - MAX_ERRORS} more errors, not listed)"
    return [*(errors[number] for number in sorted(chosen)), {**errors[last], "message": note}]


def _broken(result: RenderResult) -> Error | None:
    """The error that says that the renderer failed, or None."""
    if result["pictures"] or not result["errors"]:
        return None
    error = result["errors"][0]
    return error if error["kind"] == "renderer" else None


def _publish(folder: Path, pictures: list[bytes]) -> list[str]:
    """Put the pictures (bytes) in place all at once; whatever lay there before is gone. Returns their names."""
    for rest in folder.parent.glob("slides.*.tmp"):
        shutil.rmtree(rest, ignore_errors=True)
    fresh, old = (folder.with_name(f"slides.{os.getpid()}-{word}.tmp") for word in ("new", "old"))
    names = [f"{number:02d}.png" for number in range(1, len(pictures) + 1)]
    for name, data in zip(names, pictures, strict=True):
        stream.write(fresh / name, data)
    if folder.exists():
        os.rename(folder, old)
    if names:
        os.rename(fresh, folder)
    shutil.rmtree(old, ignore_errors=True)
    return names


# --- finished renders, shared by all runs: the same deck is not rendered twice --------------------
# One file each: the sha256 of the rest, a line of JSON, the pictures. It appears by a rename: any number of processes may
# read, write and be killed; a damaged one counts as none.


def kept_folder() -> Path | None:
    """Where they are kept: DECKSMITH_RENDERS (None when it says `off`), else beside the cache of pictures."""
    place = os.environ.get("DECKSMITH_RENDERS")
    return None if place == "off" else Path(place or cache_folder("renders"))


def load_kept(place: Path, key: str) -> Drawn | None:
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
    try:
        store(place / key, cast(Record, result))
        _shrink(place)
    except OSError:
        pass


def store(path: Path, result: Record) -> None:
    """Write a drawn deck, with whatever else is to be known of it, as `load_kept` reads it."""
    sizes = [len(data) for data in result["pictures"]]
    rest = b"".join([stream.dumps({**result, "pictures": sizes}), b"\n", *result["pictures"]])
    stream.write(path, hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)


def _shrink(place: Path) -> None:
    """Delete the least recently used beyond KEPT_MOST bytes, and what a killed process left half written."""
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
        if total <= KEPT_MOST:
            break
        Path(path).unlink(missing_ok=True)
        total -= size
