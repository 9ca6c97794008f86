"""Draw a template beside what it was learnt of: `make template FROM=company.pptx` (make/measure.mk).

    python3 make/template_picture.py company.pptx data/templates/company.md results/template/company.png

On the left the file's first slides by LibreOffice, where that is installed, on the right a sample deck under the template,
below each property with its source. LibreOffice runs in a cell like the renderer's: it sees no file and no network.
"""

import asyncio
import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from decksmith.core import cli
from decksmith.core.cells import Walls, enclosed
from decksmith.core.protocol import Protocol
from decksmith.measure.decks import templates
from decksmith.measure.decks.template_site import is_page
from decksmith.measure.render import pool
from PIL import Image, ImageDraw, ImageFont

SHOWN, WIDE, HIGH, LINE = 4, 784, 442, 26  # slides; px of a slide and of a line of text
CONVERT = """ulimit -v 4194304; ulimit -t 120
here=$(mktemp -d) && trap 'rm -rf "$here"' EXIT && cd "$here" && cat > deck.pptx
soffice -env:UserInstallation=file://"$PWD"/profile --headless --convert-to pdf deck.pptx >&2 && cat deck.pdf"""
DECK = """---
title: Tidal power
---

# Tidal power for small harbours

What it costs, and who has tried it

---

# Three harbours have tried it

- Two turbines in the north, since 2019
- One barrage, closed after **four winters**
- One floating station, [still on trial](https://example.org)

---
layout: section
---

# What it costs

---

# The barrage costs most

| Site | Built | Each year |
| --- | ---: | ---: |
| North | 2.1 M | 0.2 M |
| Barrage | 9.4 M | 0.7 M |
"""


async def drawn(template: templates.Template, run: Path) -> tuple[list[Image.Image], Walls]:
    """The slides of the sample deck under a template, and the walls that this machine grants."""
    deck = {"path": "sample/deck.md", "template": templates.put(run, template)}
    (run / "sample").mkdir()
    (run / "sample/deck.md").write_text(DECK, encoding="utf-8")
    workers = pool.Pool(Protocol.load("offline"))
    try:
        value = await workers.render(run, {"id": "sample", "deck": deck})
        assert workers.ready
        walls = await workers.ready
    finally:
        await workers.close()
    if value.get("error"):
        raise cli.BadData(f"the sample deck is not drawn: {value['error']['message']}")
    return [Image.open(run / name).convert("RGB") for name in value["slides"]], walls


def original(source: Path, walls: Walls) -> list[Image.Image] | str:
    """The first slides of a PowerPoint file, or why there is no picture of them."""
    import pypdfium2

    if not shutil.which("soffice"):
        return "LibreOffice (soffice) draws the file's own slides; it is not installed here."
    places = [place for place in ("/etc/libreoffice", "/etc/fonts") if Path(place).exists()]
    scratch = Path("/tmp")  # where LibreOffice has its pipe; in the cell it is empty, and in memory
    command = enclosed(walls, scratch, ["/bin/sh", "-c", CONVERT], places)
    own = {"PATH": "/usr/bin:/bin", "HOME": str(scratch), "TMPDIR": str(scratch), "LANG": "C.UTF-8"}
    with source.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, env=own, cwd="/")
    if not done.stdout.startswith(b"%PDF"):
        return "LibreOffice makes no pictures of the file."
    pages = pypdfium2.PdfDocument(io.BytesIO(done.stdout))
    found = []
    for page in (pages[number] for number in range(min(SHOWN, len(pages)))):
        scale = min(WIDE / page.get_width(), HIGH / page.get_height())
        found.append(page.render(scale=scale).to_pil().convert("RGB"))
    return found


def properties(text: str) -> list[tuple[str, str]]:
    """(property, source) of each line of a template's file that says where it is from."""
    head = text.split("\n---\n", 1)[0].splitlines()[1:]
    found: list[tuple[str, str]] = []
    for line in head:
        what, _, source = line.removeprefix("#").partition("  # ")
        if not line.startswith("  file:"):  # the logo's bytes
            found.append((what, source))
    return found + re.findall(r"(?m)^  ([a-z-]+: .*?);  /\* (.*?) \*/$", text)[:5]


def sheet(
    theirs: list[Image.Image] | str, ours: list[Image.Image], text: str, names: tuple[str, str]
) -> Image.Image:
    """The picture: slides in two columns, below them the properties in two."""
    from matplotlib import font_manager

    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 17)
    rows = max(len(ours), len(theirs) if isinstance(theirs, list) else 1)
    lines = properties(text)
    half = -(-len(lines) // 2)
    out = Image.new("RGB", (2 * WIDE + 48, 48 + rows * (HIGH + 16) + half * LINE + 32), "#ffffff")
    draw = ImageDraw.Draw(out)
    for column, (name, slides) in enumerate(zip(names, (theirs, ours), strict=True)):
        left = 16 + column * (WIDE + 16)
        draw.text((left, 14), name, "#000000", font)
        if isinstance(slides, str):
            draw.text((left, 60), slides, "#8a1c1c", font)
            continue
        for row, slide in enumerate(slides):
            top = 48 + row * (HIGH + 16)
            slide.thumbnail((WIDE, HIGH))
            out.paste(slide, (left, top))
            draw.rectangle(
                (left - 1, top - 1, left + slide.width, top + slide.height), None, "#999999"
            )
    for number, (what, source) in enumerate(lines):
        left = 16 + number // half * (WIDE + 16)
        top = 56 + rows * (HIGH + 16) + number % half * LINE
        if colour := re.search(r"#[0-9a-f]{6}", what):
            draw.rectangle((left, top + 2, left + 18, top + 20), colour[0], "#999999")
        draw.text((left + 26, top), what[: 30 if source else 84], "#000000", font)
        draw.text((left + 320, top), source[:50], "#555555", font)
    return out


def main(source: str, path: str, out: str) -> int:
    template = templates.read(Path(path))
    with tempfile.TemporaryDirectory() as folder:
        ours, walls = asyncio.run(drawn(template, Path(folder)))
    theirs = "A site has no slides." if is_page(Path(source)) else original(Path(source), walls)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    made = sheet(theirs, ours[:SHOWN], Path(path).read_text(encoding="utf-8"), (source, path))
    made.save(out)
    if isinstance(theirs, str):
        cli.say(theirs)
    cli.say(f"{path}: the template; {out}: both beside each other")
    return 0


if __name__ == "__main__":
    cli.ends_with(lambda: main(*sys.argv[1:4]))
