"""Decks to look at: interactive sites, PDF and PowerPoint files, made by the renderer's workers from what they render.

A deck is built only after its slides came to rest in the worker's browser: nobody's browser is handed one that never
does. Slides that failed there are error slides here too."""

import asyncio
import base64
import bisect
import hashlib
import io
import os
import re
import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.measure.decks import lint, templates
from decksmith.measure.decks.records import Build, BuiltFile, ImageItem, Render
from decksmith.measure.render import pool, toolchain
from decksmith.measure.render.worker import (
    OWN_ADDRESS,
    RenderRequest,
    RenderResult,
    SiteFiles,
    words,
)

SCALE = 2  # device pixels per CSS pixel of the pictures in a PowerPoint file
File = Literal["pdf", "pptx", "pptx_image"]  # of a `build` value
FILES: tuple[File, ...] = ("pdf", "pptx", "pptx_image")
SHARED = "_runtime"  # no id begins with "_"
Pictures = dict[str, bytes]  # by their names in the deck
_FILE = re.compile(r"(?:index\.html|style\.css|(?:slides|configs|titles|slide/\d{1,4})\.js)\Z")
_FONT = re.compile(r"(?:@[\w-]+/[\w-]+/files|katex/dist/fonts)/[\w\[\]-][\w.\[\]-]*\.woff2\Z")
_NAME = re.compile(r"[0-9a-f]{16}(?:\.woff2)?\Z")


def intact(run: Path | str, value: Build) -> bool:
    """Whether the files of a journaled value are still there."""
    needed: list[str | Path] = [value[name]["path"] for name in FILES if name in value]
    if site := value.get("site"):
        folder = Path(site["path"]).parent
        own = ["index.html", "style.css", "slides.js"]
        own += [f"slide/{no}.js" for no in range(1, value["slides"] + 1)]
        needed += [site["runtime"] + "/main.js", *(folder / name for name in own)]
    return all((Path(run) / name).is_file() for name in needed)


class Builder(pool.Pool):
    """Workers that build `formats`; a build may take twice the CPU time that a rendering may."""

    def __init__(self, protocol: Protocol, formats: Iterable[str], *, jobs: int = 1) -> None:
        super().__init__(protocol, jobs=jobs)
        self.formats = list(formats)
        self.settings = {
            **protocol.render,
            "scale": _scale(self.formats),
            "min_slides": 1,
            "deadline": 2 * protocol.render["deadline"],
        }

    def inputs(self, run: Path | str, record: Record) -> list[object]:
        """Everything the build of a record depends on, for the journal."""
        if earlier := _fault(record):
            return [earlier]
        text, pictures = pool.source(run, record)
        return [
            hashlib.sha256(text.encode()).hexdigest(),
            pool.hashes(pictures),
            toolchain.engine(self.settings["scale"]),
            self.settings,
            self.formats,
            *pool.dress(run, record),
            *filter(None, [record["deck"].get("template")]),
        ]

    async def build(
        self, run: Path | str, record: Record, formats: list[str] | None = None
    ) -> Build:
        """Build one record's files into `<run>/<id>/build`. Raises stream.Fault where there is no deck."""
        formats = formats or self.formats
        return await self._built(run, record, formats, *await self._worked(run, record, formats))

    async def show(self, run: Path | str, record: Record) -> tuple[Render, Build]:
        """`(render value, build value)` of one record in one pass over its slides."""
        result, pictures = await self._worked(run, record, self.formats)
        value = await self._value(run, record, pool.drawn(result))
        return value, await self._built(run, record, self.formats, result, pictures)

    async def _worked(
        self, run: Path | str, record: Record, formats: list[str]
    ) -> tuple[RenderResult, Pictures]:
        """(what a worker made of a deck, the pictures that it shows)."""
        if earlier := _fault(record):
            words = f"there is no deck to build: {earlier['message']}"
            raise stream.Fault(earlier["kind"], earlier["class"], words)
        text, pictures = pool.source(run, record)
        if len(text) > pool.MAX_TEXT:
            raise stream.Fault("model", "memory", f"the deck has {len(text) >> 20} MB of text")
        request = self.request(record["id"], text, pictures, pool.dress(run, record))
        asked: RenderRequest = {**request, "scale": _scale(formats), "formats": formats}
        return await self._result(asked), pictures

    async def _built(
        self,
        run: Path | str,
        record: Record,
        formats: list[str],
        result: RenderResult,
        pictures: Pictures,
    ) -> Build:
        if not result.get("pictures"):
            return {"slides": 0, "errors": result["errors"], "error": result["errors"][0]}
        _describe(result, (record.get("images") or {}).get("items") or [])
        look = templates.of(run, record)
        return await asyncio.to_thread(
            _write, Path(run), record["id"], formats, result, pictures, look
        )


def _write(
    run: Path,
    ident: str,
    formats: list[str],
    result: RenderResult,
    pictures: Pictures,
    look: templates.Template | None,
) -> Build:
    """Write what was built; returns the `build` value."""
    folder = run / ident / "build"
    value: Build = {"slides": len(result["pictures"]), "errors": result["errors"]}
    titles = [page["title"] for page in result["xray"]]
    if "site" in formats:
        runtime = _share(run, result["site"])
        _publish(folder, result["site"]["files"], pictures)
        value["site"] = {"path": f"{ident}/build/index.html", "runtime": runtime}
    if "pdf" in formats:
        size = lint.canvas(result["xray"][0])
        data = pdf([base64.b64decode(page) for page in result["prints"]], titles, size)
        value["pdf"] = _file(run, f"{ident}/build/deck.pdf", data)
    if "pptx" in formats or "pptx-image" in formats:
        # python-pptx, for those who want such a file
        from decksmith.measure.render.powerpoint import powerpoint

        if "pptx" in formats:
            value["pptx"] = _file(run, f"{ident}/build/deck.pptx", powerpoint(result, look))
        if "pptx-image" in formats:
            data = powerpoint(result, whole=True)
            value["pptx_image"] = _file(run, f"{ident}/build/deck-image.pptx", data)
    return value


def _describe(result: RenderResult, items: Iterable[ImageItem]) -> None:
    """Describe the pictures behind slides, which have no words of their own, by what was searched for."""
    begins = [page["line"] for page in result["xray"]]
    for item in items:
        at = bisect.bisect(begins, item["line"]) - 1
        part = result["parts"][at] if result.get("parts") else None
        for node in part["nodes"] if part else []:
            if node["kind"] == "picture" and node["ground"]:
                node["alt"] = node["alt"] or item["query"]


def _file(run: Path, path: str, data: bytes) -> BuiltFile:
    """Write a file of a run; returns what the record says of it."""
    stream.write(run / path, data)
    return {"path": path, "sha256": hashlib.sha256(data).hexdigest()}


def _scale(formats: Collection[str]) -> int:
    return SCALE if {"pptx", "pptx-image"} & {*formats} else 1


def _fault(record: Record) -> Record | None:
    """What an earlier stage says about a record that has no deck, or None: later stages do not matter here."""
    for stage in ("gen", "deck", "images"):
        value = record.get(stage)
        if isinstance(value, dict) and value.get("error"):
            return {"stage": stage, **value["error"]}
    return None


def _share(run: Path, site: SiteFiles) -> str:
    """Put what the sites of a run share into `<run>/_runtime`, by the hash of its contents; returns its path
    in the run. What a worker names is checked: it has read a stranger's deck."""
    name, folder = site["runtime"]["name"], site["runtime"]["folder"]
    if not _NAME.match(name) or not re.fullmatch(r"site-[0-9a-f]{8}-runtime-[\w-]+", folder):
        raise ValueError(f"the worker named a runtime that cannot be: {name} in {folder}")
    target = run / SHARED / name
    if not target.is_dir():
        fresh = target.with_name(f"{name}.{os.getpid()}-{id(site)}.tmp")
        kept = os.environ.get("DECKSMITH_RENDER_CACHE")  # what the renderer bundled
        cache = Path(kept) if kept else toolchain.MODULES / ".cache" / "decksmith"
        shutil.copytree(cache / folder / "files", fresh)
        try:
            os.rename(fresh, target)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
            if not target.is_dir():
                raise
    for font, source in site["fonts"].items():
        if not _NAME.match(font) or not _FONT.match(source):
            raise ValueError(f"the worker named a font that cannot be: {font} from {source}")
        if not (place := run / SHARED / "font" / font).is_file():
            stream.write(place, (toolchain.MODULES / source).read_bytes())
    return f"{SHARED}/{name}"


def _publish(folder: Path, files: dict[str, str], pictures: Pictures) -> None:
    """Put the deck's own files in place; index.html goes first and comes last: a site that is there is whole."""
    (folder / "index.html").unlink(missing_ok=True)
    for old in ("slide", "images"):
        shutil.rmtree(folder / old, ignore_errors=True)
    for name, text in sorted(files.items(), key=lambda item: item[0] == "index.html"):
        if not _FILE.match(name):
            raise ValueError(f"the worker named a file that cannot be: {name}")
        if name == "index.html":
            for picture, data in pictures.items():
                stream.write(folder / picture, data)
        stream.write(folder / name, text)


def pdf(pages: Iterable[bytes], titles: Sequence[str], size: tuple[int, int]) -> bytes:
    """Join one-page PDF files (bytes) of a size in px to one with an outline; no date, no identifier: equal pages give equal bytes."""
    from pypdf import PdfReader, PdfWriter
    from pypdf.generic import ArrayObject, NameObject, RectangleObject

    writer = PdfWriter()
    for data in pages:
        writer.add_page(PdfReader(io.BytesIO(data)).pages[0])
    right, top = (side * 3 / 4 for side in size)  # in points
    for page in writer.pages:
        page.mediabox = page.cropbox = RectangleObject((0, 0, right, top))  # the browser rounds up
        kept = ArrayObject()
        for item in page.get("/Annots") or ():
            uri = str((item.get_object().get("/A") or {}).get("/URI", ""))
            if re.match(r"(?:https?|mailto):", uri) and not OWN_ADDRESS.match(uri):
                kept.append(item)
        if "/Annots" in page:
            page[NameObject("/Annots")] = kept
    for number, title in enumerate(titles):
        writer.add_outline_item(title=words(title) or f"Slide {number + 1}", page_number=number)
    named = words(next(filter(None, titles), ""))
    writer.metadata = {"/Title": named, "/Producer": "decksmith"}
    writer.compress_identical_objects(remove_duplicates=True, remove_unreferenced=True)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()
