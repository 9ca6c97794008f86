"""What is in a deck that another program made: `python3 -I foreign.py SCALE < FILE`.

Runs alone in a cell, on a stranger's bytes, as xray.mjs does for our own decks. First a line of JSON that says what the
file is, `{"kind": "pdf"}`; then one for each page, `{"page": as the X-ray has it, "picture": PNG in base64}`, of a
PowerPoint file what its author said of each slide, `{"page", "note", "parts"}`; or `{"not_read": why}`. Lengths are px of the canvas.
"""

import base64
import ctypes
import io
import itertools
import json
import math
import re
import resource
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

CANVAS = (980, 552)
PAGES, LETTERS, BOXES = 300, 20_000, 60  # of a deck; of a page
PIXELS, UNPACKED = 100_000_000, 300 << 20  # of a picture; bytes of a PowerPoint file
SECONDS, MEMORY = 120, 3 << 30
NEAR = 12  # of 255: colours no farther apart look alike
GAP = 1.6  # of the size: what stands farther from the letter before it is another text

Line = dict[str, Any]


TAKES = (
    "a PDF, PowerPoint or OpenDocument file, a page of reveal.js or Marp, "
    "a picture (PNG, JPEG, WebP) or a folder or zip of pictures"
)


class NotRead(ValueError):
    """A file that cannot be used; the words say why."""


def page_of(number: int, picture: Any, scale: int, **measures: object) -> Line:
    """What is said of a page, its picture whole and in the middle of the canvas."""
    from PIL import Image, ImageOps

    whole = Image.new("RGB", [side * scale for side in CANVAS], "white")
    if max(abs(a - b) for a, b in zip(picture.size, whole.size, strict=True)) > scale:
        picture = ImageOps.contain(picture, whole.size)
    corner = [(a - b) // 2 for a, b in zip(whole.size, picture.size, strict=True)]
    whole.paste(picture, tuple(corner))
    out = io.BytesIO()
    whole.save(out, "PNG")
    page = {"slide": number, "line": 1, "layout": "", "title": "", "text": "", "images": 0}
    page |= {"images_broken": 0, "blank": False, "boxes": [], **measures}
    page["words"] = len(re.findall(r"[^\W_]+(?:['’.-][^\W_]+)*", page["text"]))
    return {"page": page, "picture": base64.b64encode(out.getvalue()).decode()}


def kind_of(data: bytes) -> str:
    """What a file is, by its content."""
    head = data[:65536]
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if head[:8] == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1":
        return "office"  # PowerPoint of before 2007
    if head[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            entries = packed.infolist()
        if sum(entry.file_size for entry in entries) > UNPACKED or len(entries) > 20 * PAGES:
            raise NotRead(f"unpacked it has more than {UNPACKED >> 20} MB or {20 * PAGES} files")
        names = [entry.filename.lower() for entry in entries]
        if "ppt/presentation.xml" in names:
            return "pptx"
        if b"opendocument.presentation" in head[:200]:
            return "office"
        if names and all(name.endswith((".png", ".jpg", ".jpeg", ".webp", "/")) for name in names):
            return "pictures"
    if head[:8] == b"\x89PNG\r\n\x1a\n" or head[:3] == b"\xff\xd8\xff" or head[8:12] == b"WEBP":
        return "pictures"
    if (
        re.search(rb"(?i)<(?:!doctype html|html|head|body|section|div)\b", head)
        and b"\0" not in head
    ):
        return "html"
    raise NotRead(f"it is none of these: {TAKES}; export it as PDF")


def pictures(data: bytes, scale: int) -> Iterator[Line]:
    """A page for each picture of a zip, in its order; or for the one that is there."""
    from PIL import Image, ImageOps

    Image.MAX_IMAGE_PIXELS = None
    files = {"it": data}
    if data[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            files = {name: packed.read(name) for name in packed.namelist() if name[-1:] != "/"}
    if len(files) > PAGES:
        raise NotRead(f"it has {len(files)} pictures; a deck has 1 to {PAGES}")
    for number, (name, picture) in enumerate(files.items(), 1):
        try:
            opened = Image.open(io.BytesIO(picture), formats=("PNG", "JPEG", "WEBP"))
            if opened.width * opened.height > PIXELS:
                raise NotRead(f"{name} has {opened.width} x {opened.height} pixels, too many")
            shown = ImageOps.exif_transpose(opened).convert("RGBA")
        except (OSError, SyntaxError, ValueError, IndexError, KeyError) as error:
            said = error if isinstance(error, NotRead) else f"{name} is no whole picture"
            raise NotRead(str(said)) from None
        ground = Image.new("RGBA", shown.size, "white")
        yield page_of(number, Image.alpha_composite(ground, shown).convert("RGB"), scale, images=1)


def parts(shapes: Any) -> Iterator[list[Any]]:
    """The text boxes, tables and pictures of a slide, from the back to the front: [x, y, width, height, what it says], in
    px. A table says its cells, a picture its hash."""
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            yield from parts(shape.shapes)
            continue
        said = shape.text_frame.text if shape.has_text_frame else ""
        if getattr(shape, "has_table", False):
            cells = [[cell.text for cell in row.cells] for row in shape.table.rows]
            said = "\n".join(" | ".join(row) for row in cells)
        elif hasattr(shape, "image"):
            said = f"picture {shape.image.sha1[:12]}"
        place = [shape.left, shape.top, shape.width, shape.height]
        yield [*(round((length or 0) / 9525) for length in place), said[:LETTERS]]


def powerpoint(data: bytes, scale: int) -> Iterator[Line]:
    """What the author of a PowerPoint file said of each slide that is not hidden; nobody has drawn them yet."""
    from pptx import Presentation

    for slide in itertools.islice(Presentation(io.BytesIO(data)).slides, 10 * PAGES):
        tables = [shape.table for shape in slide.shapes if shape.has_table]
        title = slide.shapes.title
        notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        page: Line = {"table_cells": sum(len(each.rows) * len(each.columns) for each in tables)}
        if title is not None and title.text_frame.text.strip():
            page["title"] = " ".join(title.text_frame.text.split())
        if slide._element.get("show") not in ("0", "false"):
            note = notes.text if notes is not None else ""
            found = [*itertools.islice(parts(slide.shapes), 10 * BOXES)]
            yield {"page": page, "note": note, "parts": found}


def opened(data: bytes) -> Any:
    """A PDF. Nothing of it runs: this PDFium has no JavaScript, and no form is drawn."""
    import pypdfium2

    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        locked = error.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD
        said = "it needs a password; save it without one" if locked else "it is no whole PDF"
        raise NotRead(said) from None


def letters(page: Any) -> Iterator[str]:
    """The characters of a text page, one for each of its places."""
    from pypdfium2 import raw

    for index in range(min(raw.FPDFText_CountChars(page), LETTERS)):
        code = raw.FPDFText_GetUnicode(page, index)
        letter = chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
        yield letter if letter.isprintable() or letter in "\r\n" else " "


def pdf(data: bytes, scale: int) -> Iterator[Line]:
    """The pages of a PDF."""
    document = opened(data)
    if not 0 < len(document) <= PAGES:
        raise NotRead(f"it has {len(document)} pages; a deck has 1 to {PAGES}")
    for number, page in enumerate(document, 1):
        width, height = page.get_size()
        factor = min(CANVAS[0] / width, CANVAS[1] / height) if min(width, height) > 0 else 0
        if not min(width, height) * factor >= 1:
            raise NotRead(f"page {number} is {width:g} x {height:g} points, no slide's size")
        picture = page.render(scale=factor * scale, may_draw_forms=False).to_pil().convert("RGB")
        measures = Sheet(page, factor, picture).measures()
        yield page_of(number, picture, scale, **measures)


class Sheet:
    """A page of a PDF and its picture; factor: px of the canvas for a point of the page."""

    def __init__(self, page: Any, factor: float, picture: Any) -> None:
        from pypdfium2 import raw

        self.raw, self.page, self.factor, self.picture = raw, page, factor, picture
        self.size = [side * factor for side in page.get_size()]
        self.turn = math.radians(page.get_rotation())

    def measures(self) -> Line:
        """What can be measured of the page."""
        boxes: list[Line] = []
        images = self.page.get_objects([self.raw.FPDF_PAGEOBJ_IMAGE], max_depth=4)
        for each in itertools.islice(images, BOXES // 2):
            place = self.box(*each.get_bounds())
            behind = place[2] * place[3] > 0.9 * self.size[0] * self.size[1]
            boxes.append({"kind": "background" if behind else "image", "tag": "img", "box": place})
        shown = len(boxes)
        found = self.pieces()
        said = [text | self.look(text) for text in found[: BOXES - shown]]
        boxes += said
        overlaps(said, shown)
        sizes = Counter(round(text["size"]) for text in said for _ in text["text"])
        dominant = max(sizes, key=lambda size: (sizes[size], -size), default=None)
        title = titled(said, dominant or 0)
        for text in title:
            text["kind"] = "title"
        said_text = "\n".join(text["text"] for text in found)
        for box in boxes:
            box["box"] = [*map(round, box["box"])]
            for name in ("ink", "foot", "last"):
                box.pop(name, None)
            if "text" in box:
                box["text"] = box["text"][:80]
        return {
            "title": " ".join(text["text"] for text in title),
            "text": said_text,
            "images": shown,
            "contrast": min(
                (text["contrast"] for text in said if "contrast" in text), default=None
            ),
            "font": {
                "min": min((text["size"] for text in said), default=None),
                "dominant": dominant,
                "title": title[0]["size"] if title else None,
            },
            "boxes": boxes,
        }

    def box(self, left: float, bottom: float, right: float, top: float) -> list[float]:
        """[x, y, width, height] on the canvas of a rectangle on the page, however the page is turned."""
        across, down = ctypes.c_int(), ctypes.c_int()
        size = [max(1, round(side * 16)) for side in self.size]
        ends = []
        for x, y in ((left, bottom), (right, top)):
            self.raw.FPDF_PageToDevice(self.page, 0, 0, *size, 0, x, y, across, down)
            ends.append((bounded(across.value / 16), bounded(down.value / 16)))
        (a, b), (c, d) = ends
        x, y = ((most - side) / 2 for most, side in zip(CANVAS, self.size, strict=True))
        return [min(a, c) + x, min(b, d) + y, abs(a - c), abs(b - d)]

    def pieces(self) -> list[Line]:
        """The texts of the page: letters of like size on a line that no wide gap parts. PDFium may mix two texts that stand
        side by side, a small one and a large; a text drawn on itself, as a shadow is, is one."""
        raw, page, found = self.raw, self.page.get_textpage(), list[Line]()
        spaced = ended = False
        for index, letter in enumerate(letters(page)):
            if letter.isspace():
                spaced, ended = True, ended or letter in "\r\n"
                continue
            edges = [ctypes.c_double() for _ in range(4)]
            raw.FPDFText_GetCharBox(page, index, *edges)  # left, right, bottom, top
            place, size = (
                self.box(*(edges[n].value for n in (0, 2, 1, 3))),
                self.size_of(page, index),
            )
            raw.FPDFText_GetCharOrigin(page, index, *edges[:2])
            origin = self.box(edges[0].value, edges[1].value, edges[0].value, edges[1].value)
            lean = abs(math.sin(raw.FPDFText_GetCharAngle(page, index) + self.turn))
            across = 1 if lean > 0.9 else 0  # of x and y, the one along which the letters stand
            is_slanted = 0.1 < lean < 0.9
            foot = origin[1 - across]
            for piece in found[-1:] if is_slanted else reversed(found[-3:]):
                gaps = away(piece["last"], place)
                gap = max(gaps) if is_slanted else gaps[across]
                near_by = gap < GAP * max(size, 4)
                on_line = (
                    not ended if is_slanted else abs(foot - piece["foot"]) < 0.6 * piece["size"]
                )
                if near_by and on_line and 0.5 < size / piece["size"] < 2:
                    break
            else:
                piece = {"kind": "text", "tag": "p", "text": "", "size": size, "foot": foot}
                piece |= {"box": place, "last": place, "ink": self.ink_of(page, index)}
                found.append(piece)
                gap = 0
            piece["text"] += " " * (spaced and gap > 0.1 * size) + letter
            piece["size"] = min(piece["size"], size) if letter.isalpha() else piece["size"]
            piece["box"], piece["last"] = union(piece["box"], place), place
            spaced = ended = False
        return [
            piece
            for n, piece in enumerate(found)
            if not any(same(piece, b) for b in found[max(0, n - 9) : n])
        ]

    def size_of(self, page: Any, index: int) -> float:
        """The size of a letter in px, whatever scales it."""
        matrix = self.raw.FS_MATRIX()
        self.raw.FPDFText_GetMatrix(page, index, matrix)
        size = self.raw.FPDFText_GetFontSize(page, index) * math.hypot(matrix.c, matrix.d)
        return round(bounded(size * self.factor), 1) or 0.1

    def ink_of(self, page: Any, index: int) -> list[int] | None:
        """Red, green, blue and alpha that fill a letter; None where nothing or a pattern does."""
        parts = [ctypes.c_uint() for _ in range(4)]
        mode = self.raw.FPDFTextObj_GetTextRenderMode(self.raw.FPDFText_GetTextObject(page, index))
        known = self.raw.FPDFText_GetFillColor(page, index, *parts) and mode in (0, 2, 4, 6)
        return [part.value for part in parts] if known else None

    def look(self, text: Line) -> Line:
        """How a text stands out in the picture: its colour against the commonest one around its letters."""
        x, y, width, height = text["box"]
        corner = [(most - side) / 2 for most, side in zip(CANVAS, self.size, strict=True)]
        edges = (x - 2, y - 2, x + width + 2, y + height + 2)
        scale = self.picture.width / self.size[0]
        room = self.picture.size * 2
        crop = [
            min(max(0, round((edge - corner[n % 2]) * scale)), room[n])
            for n, edge in enumerate(edges)
        ]
        if crop[2] - crop[0] < 3 or crop[3] - crop[1] < 3:
            return {}
        part, ink = self.picture.crop(crop), text["ink"]
        counts = {colour: n for n, colour in part.getcolors(part.width * part.height)}
        ground = max(counts, key=counts.__getitem__)
        if all(near(ground, colour) for colour in counts):  # no letter can be seen
            return {"covered": True} if ink and not near(ink, ground) else {"contrast": 1.0}
        others = {c: n for c, n in counts.items() if not ink or not near(ink, c)}
        ground = max(others, key=others.__getitem__)
        flat = sum(n for colour, n in others.items() if near(ground, colour))
        if not ink or flat < 0.4 * sum(others.values()):
            return {"unjudged": True}
        shown = [
            a * ink[3] / 255 + b * (1 - ink[3] / 255) for a, b in zip(ink, ground, strict=False)
        ]
        dark, light = sorted((luminance(shown), luminance(ground)))
        return {"contrast": round((light + 0.05) / (dark + 0.05), 2)}


def bounded(value: float) -> float:
    """A length that a record may hold."""
    return max(-1e5, min(1e5, value)) if math.isfinite(value) else 0.0


def near(a: Any, b: Any) -> bool:
    """Whether two colours look alike."""
    return all(abs(x - y) <= NEAR for x, y in zip(a[:3], b[:3], strict=True))


def luminance(colour: Any) -> float:
    """The relative luminance (WCAG 2) of red, green and blue, 0 to 255."""
    parts = (value / 255 for value in colour)
    r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return float(0.2126 * r + 0.7152 * g + 0.0722 * b)


def away(last: list[float], place: list[float]) -> list[float]:
    """How far a letter stands beside another, and above or below it."""
    return [
        max(place[n] - last[n] - last[n + 2], last[n] - place[n] - place[n + 2]) for n in (0, 1)
    ]


def union(a: list[float], b: list[float]) -> list[float]:
    """The rectangle around two."""
    x, y = min(a[0], b[0]), min(a[1], b[1])
    right, bottom = max(a[0] + a[2], b[0] + b[2]), max(a[1] + a[3], b[1] + b[3])
    return [x, y, right - x, bottom - y]


def same(a: Line, b: Line) -> bool:
    """Whether two texts are one, drawn twice."""
    pairs = zip(a["box"], b["box"], strict=True)
    return a["text"] == b["text"] and max(abs(x - y) for x, y in pairs) < 4


def overlaps(texts: list[Line], first: int) -> None:
    """Note on each text the earlier ones that it lies on, and which share of the smaller one; `first` boxes stand before."""
    inner = [(x, y + 0.15 * h, x + w, y + 0.85 * h) for x, y, w, h in (t["box"] for t in texts)]
    for (i, a), (j, b) in itertools.combinations(enumerate(inner), 2):
        if min(len(texts[i]["text"]), len(texts[j]["text"])) < 4:
            continue  # bullets, and parts of formulas
        across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
        least = min((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
        if across > 0 and down > 0 and across * down >= 0.02 * least > 0:
            pair = [i + first, round(min(1.0, across * down / least), 2)]
            texts[j].setdefault("on", []).append(pair)


def titled(texts: list[Line], dominant: int) -> list[Line]:
    """The lines of the title: the first text that is larger than most, or than others, and its like below it."""
    sizes = [text["size"] for text in texts]
    largest = max(sizes, default=0)
    least = 1.15 * dominant if largest >= 1.15 * dominant else largest
    large = [text for text in texts if text["size"] >= least > 1.1 * min(sizes)]
    named = [text for text in large if any(c.isalpha() for c in text["text"])]
    first = min(named, key=lambda text: text["box"][1], default=None)
    return [text for text in large if first and text["size"] == first["size"]][:4]


def lines(data: bytes, scale: int) -> Iterator[Line]:
    """All that is said of a file."""
    kind = kind_of(data)
    yield {"kind": kind}
    read = {"pdf": pdf, "pptx": powerpoint, "pictures": pictures}.get(kind)
    yield from read(data, scale) if read else ()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        for each in lines(sys.stdin.buffer.read(), int(sys.argv[1])):
            print(json.dumps(each), flush=True)
    except NotRead as error:
        print(json.dumps({"not_read": str(error)}))
    except Exception as error:  # what a library says of a file that somebody broke
        print(json.dumps({"not_read": f"it is damaged ({type(error).__name__})"}))


if __name__ == "__main__":
    main()
