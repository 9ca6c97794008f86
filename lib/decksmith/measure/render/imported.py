"""Decks that other programs made: read once into a folder, which the pipeline takes like a model's (bin/deck-import).

A folder of data/decks has for each deck ID.md, its words, and ID.deck, its pictures and measures as pool.store keeps
them. Both hold the hash of what was read, so that what was changed by hand is noticed."""

import asyncio
import base64
import functools
import hashlib
import io
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from decksmith.core import cli, stream
from decksmith.core.cells import contained
from decksmith.core.records import Record
from decksmith.measure.decks.records import Page
from decksmith.measure.render import cell, pool, toolchain
from decksmith.measure.render.worker import Measured, RenderRequest, Worker, bounded

FORM = "import-2"  # raise it when a deck is read otherwise
LARGEST = 100 << 20  # bytes of a file, or of all in a folder
SECONDS, MEMORY = 120, 4096  # CPU seconds and MB of LibreOffice, or of a browser
PICTURES = {".png", ".jpg", ".jpeg", ".webp"}
BESIDE = PICTURES | {".css", ".js", ".mjs", ".svg", ".gif", ".avif", ".woff", ".woff2", ".ttf"}
_in_order = functools.partial(re.sub, r"\d+", lambda digits: digits[0].zfill(12))  # 2 before 10
_CONVERT = f"""ulimit -v {MEMORY << 10}; ulimit -t {SECONDS}; cat > deck
soffice -env:UserInstallation=file://"$PWD"/profile --headless --convert-to pdf deck >&2 && cat deck.pdf"""


def named(words: Iterable[str]) -> dict[str, tuple[Path, Path | None]]:
    """{id: (deck, a PDF of it)} of FILE and ID=FILE; a PDF belongs to a PowerPoint file of its name. Raises cli.BadData."""
    found: dict[str, list[Path]] = {}
    for word in words:
        ident, _, rest = ("", "", word) if Path(word).exists() else word.partition("=")
        path = Path(rest)
        if not rest or not path.exists():
            raise cli.BadData(
                f"there is no {rest or word}; name a file, a folder of pictures, or ID=FILE"
            )
        ident = ident or (path.resolve().name if path.is_dir() else path.stem)
        ident = re.sub(r"[^A-Za-z0-9._~-]+", "-", ident)[:100].strip("._~-") or "deck"
        found.setdefault(ident, []).append(path)
    for ident, paths in found.items():
        paths.sort(key=lambda path: path.suffix.lower() == ".pdf")
        pdfs = sum(path.suffix.lower() == ".pdf" for path in paths)
        if len(paths) > 2 or (len(paths) == 2 and pdfs != 1):
            raise cli.BadData(
                f"{paths[0]} and {paths[1]} would both be {ident}; give one as ID=FILE"
            )
    return {ident: (paths[0], (*paths, None)[1]) for ident, paths in found.items()}


def import_deck(ident: str, path: Path, drawn: Path | None, into: Path) -> tuple[str, int, bool]:
    """Read the deck of a file or folder into `into`, whole or not at all; `drawn` is a PDF of a PowerPoint file. Returns
    what it is, how many slides it has, and whether it was read already. Raises cli.BadData, cli.Missing."""
    files = _files(path)
    data = files.get(path.name) or _packed(files)
    pdf = drawn.read_bytes() if drawn else b""
    parts = [[name, hashlib.sha256(each).hexdigest()] for name, each in files.items()]
    key = stream.fingerprint([FORM, parts, hashlib.sha256(pdf).hexdigest()])
    kept = cast(Record | None, pool.load_kept(into, f"{ident}.deck"))
    if kept and kept["key"] == key and (into / f"{ident}.md").is_file():
        return kept["imported"], kept["expected"], True
    kind, slides = _said(path, data)
    if kind == "html":
        slides = asyncio.run(_shown(path, files))
    elif kind in ("pptx", "office"):
        drawings = _said(path, pdf or _converted(path, data))[1]
        if kind == "pptx" and len(slides) != len(drawings):
            counts = f"{path} shows {len(slides)} slides, its PDF has {len(drawings)} pages"
            raise cli.BadData(f"{counts}; export the PDF again, a page for each slide")
        said = slides or [{"page": {}}] * len(drawings)
        pairs = zip(drawings, said, strict=True)
        slides = [{**a, **b, "page": {**a["page"], **b["page"]}} for a, b in pairs]
    text = _markdown(key, slides)  # which tells each page its line
    pages = [slide["page"] for slide in slides]
    drawn_deck = bounded(Measured(expected=len(slides), errors=[], xray=pages))
    pictures = [base64.b64decode(slide["picture"]) for slide in slides]
    about = {**drawn_deck, "pictures": pictures, "imported": kind, "key": key}
    pool.store(into / f"{ident}.deck", about)
    stream.write(into / f"{ident}.md", text)
    return kind, len(slides), False


def _files(path: Path) -> dict[str, bytes]:
    """The files that a deck is made of: one; the pictures of a folder, in natural order; or a page of HTML and what lies
    beside it under a name that it mentions. Raises cli.BadData."""
    folder, wanted = (path, PICTURES) if path.is_dir() else (path.parent, BESIDE)
    there = [path] if path.is_file() else []
    if path.is_dir() or path.suffix.lower() in (".html", ".htm"):
        text = path.read_text("utf-8", "replace") if path.is_file() else ""
        found = folder.rglob("*") if text else folder.iterdir()
        there += [
            file
            for file in sorted(found, key=lambda file: _in_order(str(file)))
            if file.suffix.lower() in wanted
            and file.resolve().is_relative_to(folder.resolve())
            and (not text or file.relative_to(folder).parts[0] in text)
        ]
    size = sum(file.stat().st_size for file in there)
    if not there or size > LARGEST:
        said = f"{path} is {len(there)} files of {size >> 20} MB"
        raise cli.BadData(
            f"{said}; a deck is a file, or a folder of pictures, of {LARGEST >> 20} MB"
        )
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in there}


def _packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return out.getvalue()


def _said(path: Path, data: bytes) -> tuple[str, list[Record]]:
    """What foreign.py, in a cell, says that a file is, and of its slides. Raises cli.BadData."""
    script = toolchain.RENDERER / "foreign.py"
    command = [Path(sys.prefix) / "bin/python3", "-I", script, 2]
    said = contained(command, data, [script, sys.prefix, sys.base_prefix])
    lines: list[Record] = [json.loads(line) for line in said.splitlines()]
    if not lines or "not_read" in lines[-1]:
        why = lines[-1]["not_read"] if lines else "it takes too much time or memory"
        raise cli.BadData(f"{path} cannot be read: {why}")
    return lines[0]["kind"], lines[1:]


def _converted(path: Path, data: bytes) -> bytes:
    """The PDF that LibreOffice makes of a file. Raises cli.Missing, cli.BadData."""
    if not shutil.which("soffice"):
        said = f"{path}: LibreOffice (soffice), which draws its slides, is not installed here"
        raise cli.Missing(f"{said}; export it as {path.stem}.pdf, and give both")
    places = [place for place in ("/etc/libreoffice", "/etc/fonts") if Path(place).exists()]
    made = contained(["/bin/sh", "-c", _CONVERT], data, places)
    if not made.startswith(b"%PDF"):
        said = f"{path}: LibreOffice makes no PDF of it"
        raise cli.BadData(f"{said}; export it as {path.stem}.pdf, and give both")
    return made


async def _shown(path: Path, files: dict[str, bytes]) -> list[Record]:
    """The slides of a page of reveal.js or Marp, in the renderer's browser. Raises cli.BadData."""
    request: RenderRequest = {
        "id": "deck",
        "text": files[path.name].decode("utf-8", "replace"),
        "scale": 2,
        "least": 300,
        "images": {name: base64.b64encode(data).decode() for name, data in files.items()},
        "template": {},
    }
    home, lock = cell.private_folder()
    worker = Worker(home / "0", "html/worker.mjs")
    try:
        result = await worker.ask(request, SECONDS, MEMORY, await cell.prepare(home))
    finally:
        await worker.reap()
        shutil.rmtree(home, ignore_errors=True)
        os.close(lock)
    if not result["pictures"]:
        said = f"{path} cannot be shown: {result['errors'][0]['message']}"
        raise cli.BadData(f"{said}; export it as PDF, and give that")
    for error in result["errors"]:
        stream.warn(path.name, f"slide {error['slide']}: {error['message']}")
    rows = zip(result["xray"], result["pictures"], result["notes"], strict=True)
    return [{"page": page, "picture": picture, "note": note} for page, picture, note in rows]


def _markdown(key: str, slides: list[Record]) -> str:
    """The words of a deck as markdown that shows them as they are, and as `parts` of each slide's frontmatter the text boxes,
    tables and pictures of a PowerPoint file; each page is told the line of its slide."""
    text = f"---\nimported: {key}\n"
    for number, slide in enumerate(slides):
        page: Page = slide["page"]
        parts = "".join(f"- {_part(part)}\n" for part in slide.get("parts", []))
        text += "\n---\n" if number else ""
        text += f"parts:\n{parts}---\n" if parts else "" if number else "---\n"
        page["line"] = text.count("\n") + 1
        text += f"\n# {_plain(page['title'])}\n"
        text += "".join(f"\n{_plain(row)}\n" for row in page["text"].split("\n") if row.strip())
        text += f"\n<!-- {_plain(slide['note'])} -->\n" if slide.get("note", "").strip() else ""
    return text


def _part(part: list[object]) -> str:
    """A part as a line of YAML."""
    said = json.dumps(part, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else " " for sign in said)


def _plain(text: str) -> str:
    """A line whose signs mean nothing."""
    line = " ".join(text.replace("--", "- -").split())
    signs = r"[<>{}\[`]|^[^\w&]|(?<=^\d)[.)]|(?<=^\d\d)[.)]"
    return re.sub(signs, lambda sign: f"&#{ord(sign[0])};", line)
