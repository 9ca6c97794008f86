"""PowerPoint files of what the renderer made of a deck: text is text, a table a table, a box a shape, the rest pictures
cut from the slide as it was drawn. Equal slides give equal bytes: no date, no identifier."""

import base64
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence

from lxml import etree
from lxml.etree import _Element as Element
from PIL import Image
from pptx import Presentation
from pptx.opc.constants import RELATIONSHIP_TYPE as KIND
from pptx.oxml.ns import qn
from pptx.presentation import Presentation as Show
from pptx.util import Emu

from decksmith.measure.decks import lint
from decksmith.measure.decks.templates import SLOTS, Template
from decksmith.measure.render import master, shapes
from decksmith.measure.render.shapes import Node, Part, StyledRun
from decksmith.measure.render.worker import RenderResult, words

DATE = b"2024-01-01T00:00:00Z"  # of every file, so that equal slides give equal bytes


def powerpoint(
    result: RenderResult, template: Template | None = None, *, whole: bool = False
) -> bytes:
    """A file (bytes) of the slides that a worker drew, with the theme of their template; `whole`: each is its
    picture, as is one without parts. Raises ValueError for strange parts."""
    canvas, count = lint.canvas(result["xray"][0]), len(result["pictures"])
    show = _empty(height := shapes.WIDTH * canvas[1] / canvas[0])
    parts: Sequence[Part | None] = [None] * count if whole else result["parts"]
    titles = [page["title"] for page in result["xray"]]
    drawn = [part for part in parts if part]
    painter = shapes.Painter(*(_theme(show, drawn, template) if drawn else ({}, {})), height)
    layouts = {layout.name: layout for layout in show.slide_layouts}
    for number, (part, page) in enumerate(zip(parts, result["xray"], strict=True)):
        slide = show.slides.add_slide(layouts.get(part["layout"] if part else "", layouts["Blank"]))
        if part:
            painter.draw(slide, part, [_frame(shot, canvas) for shot in part["shots"]])
        else:
            picture = base64.b64decode(result["pictures"][number])
            title = page["title"] or f"Slide {number + 1}"
            place = Emu(0), Emu(0), show.slide_width, show.slide_height
            shape = slide.shapes.add_picture(io.BytesIO(picture), *place)
            facts: Element = shape._element.find(f".//{qn('p:cNvPr')}")
            facts.set("name", words(title))
            facts.set("descr", words(page["text"] or page["title"]))
        if (note := result["notes"][number]) and (frame := slide.notes_slide.notes_text_frame):
            frame.text = words(note)
    if template:  # one family of the renderer's may stand in for both of the company's
        for font in _title_fonts(show):
            font.set("typeface", "+mj-lt")
    master.share(show)
    return _saved(show, titles)


def _empty(height: float) -> Show:
    """A presentation without slides, as high as `height` to shapes.WIDTH; its layouts are made as wide as that, and their
    texts look as the master's."""
    show = Presentation()
    package = show.part.package
    for key, relation in list(package._rels.items()):
        if relation.reltype == KIND.THUMBNAIL:  # the library's, of a white page
            package.drop_rel(key)
    size = shapes.emu(shapes.WIDTH), shapes.emu(height)
    across, down = size[0] / (show.slide_width or 1), size[1] / (show.slide_height or 1)
    show.slide_width, show.slide_height = size
    for page in (show.slide_master, *show.slide_layouts):
        for place in page._element.iter(qn("a:off"), qn("a:ext")):
            for name, factor in (("x", across), ("cx", across), ("y", down), ("cy", down)):
                if name in place.attrib:
                    place.set(name, str(round(int(place.get(name)) * factor)))
        for style in [] if page is show.slide_master else page._element.iter(qn("a:lstStyle")):
            style.clear()
    return show


def _frame(data: str, canvas: tuple[int, int]) -> Image.Image:
    """A frame of the worker's browser, in base64, of a slide of so many px. Raises ValueError for anything else."""
    picture = Image.open(io.BytesIO(base64.b64decode(data)), formats=["PNG"])
    if picture.size not in [(scale * canvas[0], scale * canvas[1]) for scale in (1, 2)]:
        raise ValueError(f"the worker sent a frame of {picture.width} x {picture.height} pixels")
    return picture.convert("RGBA")


def _title_fonts(show: Show) -> Iterator[Element]:
    """The fonts of the titles that are the theme's for text."""
    for title in filter(None, (slide.shapes.title for slide in show.slides)):
        for font in title._element.iter(qn("a:latin"), qn("a:cs")):
            if font.get("typeface") == "+mn-lt":
                yield font


def _runs(node: Node) -> Iterator[StyledRun]:
    """The styled runs of a text or a table."""
    inside = [cell["paragraphs"] for cell in node.get("cells", [])]
    for paragraphs in [node.get("paragraphs", []), *inside]:
        for paragraph in paragraphs:
            yield from (run for run in paragraph["runs"] if "size" in run)


def _theme(
    show: Show, parts: Sequence[Part], template: Template | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Gives the file's theme the colours and fonts of the template, else of the deck; (scheme names by RRGGBB,
    theme fonts by family): the commonest background is bg1, ink tx1, the others accents."""
    grounds, inks, fonts, headings = (Counter[str]() for _ in range(4))
    for part in parts:
        grounds[shapes.ink(part["background"])] += 1
        for node in part["nodes"]:
            if node["kind"] == "box" and isinstance(node["fill"], list):
                inks[shapes.ink(node["fill"])] += 5
            for run in _runs(node):
                inks[shapes.ink(run["ink"])] += len(run["text"])
                kind = headings if node.get("place") == 0 else fonts
                kind[words(run["font"])[:80]] += len(run["text"])
    ground = max(grounds, key=lambda one: grounds[one])  # of equally frequent ones the first met
    used = [one for one, _ in inks.most_common() if one != ground] or ["000000"]
    names = ["lt1", "dk1", *(f"accent{number}" for number in range(1, 7))]
    colours = dict(zip(names, [ground, *used], strict=False))
    minor = max(fonts, key=lambda one: fonts[one], default="Arial")
    major = max(headings, key=lambda one: headings[one], default=minor)
    own: dict[str, str] = {}
    slots: dict[str, str] = {}
    if template:
        named, own = template.colours, template.powerpoint
        minor = template.fonts.get("text", minor)
        major = template.fonts.get("title") or template.fonts.get("text", major)
        slots = {slot: named[name][1:].upper() for name, slot in SLOTS.items() if name in named}
    if slots:  # what the template does not name looks like it, and is nobody's else
        rest = dict.fromkeys(SLOTS.values(), slots.get("accent1", colours["dk1"]))
        colours = rest | {"lt1": ground, "dk1": colours["dk1"]} | slots
    [part] = [
        one.target_part for one in show.slide_master.part.rels.values() if one.reltype == KIND.THEME
    ]
    part.blob = _themed(part.blob, colours, own.get("title", major), own.get("text", minor))
    scheme = {"lt1": "bg1", "dk1": "tx1", "lt2": "bg2", "dk2": "tx2"}
    by_ink = {one: scheme.get(name, name) for name, one in reversed(colours.items())}
    return by_ink, {major: "+mj-lt", minor: "+mn-lt"}


def _themed(blob: bytes, colours: dict[str, str], major: str, minor: str) -> bytes:
    """The XML of a theme with these colours and fonts in place of its own."""
    theme = etree.fromstring(blob)
    for name, colour in colours.items():
        slot = theme.find(f".//{qn('a:clrScheme')}/{qn(f'a:{name}')}")
        slot[:] = [etree.Element(qn("a:srgbClr"), {"val": colour})]
    for kind, family in (("a:majorFont", major), ("a:minorFont", minor)):
        latin = theme.find(f".//{qn(kind)}/{qn('a:latin')}")
        latin.attrib.update({"typeface": family, **shapes.like(family)})
    out: bytes = etree.tostring(theme, xml_declaration=True, encoding="UTF-8", standalone=True)
    return out


def _saved(show: Show, titles: Sequence[str]) -> bytes:
    """The bytes of a presentation: one date for all."""
    facts = show.core_properties
    facts.author = facts.last_modified_by = facts.keywords = facts.comments = ""
    facts.title = words(next(filter(None, titles), ""))[:255]
    facts.revision = 1
    loose = io.BytesIO()
    show.save(loose)
    return _still(loose.getvalue())


def _still(data: bytes) -> bytes:
    """A package, with the tables of its charts in it, as of one date."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                text = old.read(name)
                if name == "docProps/core.xml":
                    text = re.sub(rb"\d{4}-\d\d-\d\dT[\d:]+Z", DATE, text)
                new.writestr(entry, _still(text) if name.endswith(".xlsx") else text)
    return out.getvalue()
