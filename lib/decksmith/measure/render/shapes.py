"""What a slide was taken apart into (assets/renderer/editable.mjs) as shapes of a PowerPoint slide.

A worker has read a stranger's deck, so nothing of what it says is believed: lengths are held to a few canvases,
colours to their range, text to what XML may hold, addresses to those of the web and of mail."""

import io
import math
import re
from collections.abc import Sequence
from typing import TypedDict, cast

from lxml import etree
from lxml.etree import _Element as Element
from PIL import Image
from pptx.chart.data import ChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.enum.shapes import MSO_SHAPE
from pptx.opc.constants import RELATIONSHIP_TYPE as KIND
from pptx.oxml.ns import qn
from pptx.shapes.autoshape import Shape as Autoshape
from pptx.shapes.base import BaseShape
from pptx.shapes.graphfrm import GraphicFrame
from pptx.slide import Slide
from pptx.util import Emu, Length, Pt

from decksmith.measure.decks.templates import meet
from decksmith.measure.render.worker import OWN_ADDRESS, words

# --- what the worker says of a slide: lengths in CSS px, colours [r, g, b, alpha] -----------------

Colour = list[float]
Edge = tuple[float, Colour, str]  # width, colour, style


class Gradient(TypedDict):
    angle: float
    stops: list[tuple[float, Colour]]


class Shadow(TypedDict):
    x: float
    y: float
    blur: float
    colour: Colour


class StyledRun(TypedDict, total=False):
    """Text in one style, a line break (of text alone), or the room of a picture (of `gap` alone)."""

    text: str
    gap: float
    size: float
    font: str
    ink: Colour
    gradient: Gradient | None
    highlight: Colour | None
    bold: bool
    italic: bool
    underline: bool
    strike: bool
    caps: bool
    raised: float
    spacing: float
    link: str


class Marker(TypedDict, total=False):
    """Of a list's item: a sign, or a kind of number and where it starts."""

    hang: float
    ink: Colour
    sign: str
    number: str
    start: int


class Paragraph(TypedDict):
    runs: list[StyledRun]
    align: str
    rtl: bool
    height: float
    before: float
    left: float
    right: float
    marker: Marker | None
    level: int


class TableCell(TypedDict):
    row: int
    column: int
    down: int
    across: int
    inset: list[float]
    middle: bool
    edges: list[Edge | None]
    fill: Colour | Gradient | None
    paragraphs: list[Paragraph]


class Chart(TypedDict):
    """The data of a chart. kind: one of CHARTS; series: (name, a value for each category)."""

    kind: str
    title: str
    categories: list[str]
    series: list[tuple[str, list[float]]]


class Node(TypedDict, total=False):
    """A box, a text, a table or a picture; which keys there are depends on `kind`. place: of its slide's
    layout, where it fills one: the title's is 0."""

    kind: str
    rect: list[float]
    place: int
    wrap: bool
    full: float
    paragraphs: list[Paragraph]
    fill: Colour | Gradient | None
    edges: list[Edge | None]
    radius: float
    shadow: Shadow | None
    rows: list[float]
    columns: list[float]
    cells: list[TableCell]
    frame: int
    ground: bool
    alt: str
    link: str
    chart: Chart | None


class Part(TypedDict):
    """A slide taken apart. pseudo: whether its last frame shows what CSS draws before and after elements; shots: PNG, base64."""

    background: Colour
    layout: str
    nodes: list[Node]
    pseudo: bool
    shots: list[str]


WIDTH = 980  # px of a slide; lengths of a wider or narrower one are as those of one of this width
EMU = 12192000 / WIDTH  # of a CSS px: a slide is as wide as PowerPoint's own
POINT = EMU / 12700  # points of a CSS px
NO_STYLE = "{2D5ABB26-0587-4C30-8999-92F81FD0307C}"  # PowerPoint's table without one
MOST_VALUES = 2000  # of a chart
CHARTS = {
    "pie": XL_CHART_TYPE.PIE,
    "bar": XL_CHART_TYPE.BAR_CLUSTERED,
    "column": XL_CHART_TYPE.COLUMN_CLUSTERED,
    "line": XL_CHART_TYPE.LINE,
}
ALIGN = {"center": "ctr", "right": "r", "justify": "just"}
_LINK = re.compile(r"(?:https?://|mailto:)[^\x00-\x20\x7f\s<>\"\\^`{|}\ud800-\udfff]+\Z")
# A link in PowerPoint has the theme's colour unless it is told to keep the text's.
_KEEPS_COLOUR = (
    '<a:extLst xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main">'
    '<a:ext uri="{A12FA001-AC4F-418D-AE19-62706E023703}"><ahyp:hlinkClr val="tx" '
    'xmlns:ahyp="http://schemas.microsoft.com/office/drawing/2018/hyperlinkcolor"/></a:ext></a:extLst>'
)


def _finite(number: object) -> float:
    value = float(number) if isinstance(number, int | float) else math.nan
    if not math.isfinite(value):
        raise ValueError(f"the worker named a number that cannot be: {number!r:.80}")
    return value


def emu(length: object) -> Length:
    """A length in CSS px as EMU, within four canvases."""
    return Emu(round(max(-4 * WIDTH, min(4 * WIDTH, _finite(length))) * EMU))


def ink(colour: Sequence[float]) -> str:
    """A colour [r, g, b, ..] as RRGGBB."""
    return "".join(f"{max(0, min(255, round(channel))):02X}" for channel in colour[:3])


def like(family: str) -> dict[str, str]:
    """The kind of a font, by which a machine that lacks it finds another: fixed, with serifs or without."""
    kinds = (("Code|Mono|Courier", "49"), ("Serif", "18"), ("", "34"))
    pitch = next(number for name, number in kinds if re.search(name, family))
    return {"pitchFamily": pitch, "charset": "0"}


def link(address: object) -> str | None:
    """An address of the web or of mail that a file may lead to, or None."""
    text = str(address)
    allowed = len(text) < 2000 and _LINK.match(text) and not OWN_ADDRESS.match(text)
    return text if allowed else None


def _sub(parent: Element, tag: str, **attributes: object) -> Element:
    """A new child element, its attributes as text."""
    texts = {name: str(value) for name, value in attributes.items()}
    return etree.SubElement(parent, qn(tag), texts)


def _hyperlink(slide: Slide, parent: Element, address: object) -> Element | None:
    """A new child that leads to an address, or None for one that no file may lead to."""
    if not (allowed := link(address)):
        return None
    related = slide.part.relate_to(allowed, KIND.HYPERLINK, is_external=True)
    return _sub(parent, "a:hlinkClick", **{qn("r:id"): related})


def _clear(parent: Element) -> Element:
    """The element without its children."""
    for child in list(parent):
        parent.remove(child)
    return parent


class Painter:
    """Draws nodes on slides, with the colours and fonts that the deck's theme has by name."""

    def __init__(self, names: dict[str, str], fonts: dict[str, str], height: float = 552) -> None:
        """names: scheme names by RRGGBB; fonts: `+mj-lt` and `+mn-lt` by family; height: px of a slide."""
        self.names, self.fonts, self.height = names, fonts, height

    def draw(self, slide: Slide, part: Part, shots: Sequence[Image.Image]) -> None:
        """Draw the nodes of `part` on an empty slide; shots: the frames that its pictures are cut from."""
        nodes = list(part["nodes"])
        x, y, width, height = nodes[0]["rect"] if nodes else [0, 0, 0, 0]
        is_whole = x < 1 and y < 1 and width > WIDTH - 2 and height > self.height - 2
        is_behind = is_whole and nodes[0]["kind"] == "picture" and nodes[0]["ground"]
        if is_behind and "place" not in nodes[0]:
            self._background(slide, part, shots[nodes.pop(0)["frame"]])
        elif self.names.get(ink(part["background"])) != "bg1":
            about = _ground(slide)
            self._fill(about, part["background"])
            _sub(about, "a:effectLst")
        extra = _pieces(shots[-1]) if part["pseudo"] else []
        empty = {one.placeholder_format.idx: one for one in slide.placeholders}
        for node in nodes:
            place = empty.pop(node.get("place", -1), None)
            if node["kind"] in ("text", "table"):
                for piece in [one for one in extra if meet(one, node["rect"])]:
                    extra.remove(piece)
                    self._picture(slide, {"rect": piece}, shots[-1])
            if node["kind"] == "box":
                self._box(slide, node)
            elif node["kind"] == "text":
                self._text(slide, node, place)
            elif node["kind"] == "table":
                _put(place, self._table(slide, node))
            elif chart := node.get("chart"):
                _put(place, self._chart(slide, node, chart))
            else:
                _put(place, self._picture(slide, node, shots[node["frame"]]))
        for piece in extra:
            self._picture(slide, {"rect": piece}, shots[-1])
        for unused in empty.values():
            unused._element.getparent().remove(unused._element)

    def _colour(self, parent: Element, colour: Sequence[float]) -> None:
        hexed = ink(colour)
        name = self.names.get(hexed)
        element = _sub(parent, "a:schemeClr" if name else "a:srgbClr", val=name or hexed)
        if colour[3] < 0.995:
            _sub(element, "a:alpha", val=round(max(0.0, colour[3]) * 100000))

    def _fill(self, parent: Element, fill: Colour | Gradient | None) -> None:
        """A colour, a gradient or nothing, as the child of a shape, cell, line or run."""
        if not fill:
            _sub(parent, "a:noFill")
        elif isinstance(fill, dict):
            blend = _sub(parent, "a:gradFill", rotWithShape=1)
            stops = _sub(blend, "a:gsLst")
            for share, colour in fill["stops"]:
                at = round(max(0.0, min(1.0, share)) * 100000)
                self._colour(_sub(stops, "a:gs", pos=at), colour)
            _sub(blend, "a:lin", ang=round(fill["angle"] % 360 * 60000), scaled=0)
        else:
            self._colour(_sub(parent, "a:solidFill"), fill)

    def _line(self, parent: Element, tag: str, edge: Edge | None) -> None:
        """An edge [width, colour, style] of a shape or cell."""
        if not edge:
            _sub(_sub(parent, tag), "a:noFill")
            return
        width, colour, style = edge
        line = _sub(parent, tag, w=emu(width))
        self._fill(line, colour)
        if style in ("dashed", "dotted"):
            _sub(line, "a:prstDash", val="dash" if style == "dashed" else "sysDot")

    def _shape(self, slide: Slide, kind: MSO_SHAPE, rect: Sequence[float]) -> Autoshape:
        """A bare shape: no theme's line, shadow or text style."""
        shape = slide.shapes.add_shape(kind, *map(emu, rect))
        shape._element.remove(shape._element.find(qn("p:style")))
        for child in list(shape._element.spPr)[2:]:
            shape._element.spPr.remove(child)
        return shape

    def _box(self, slide: Slide, node: Node) -> None:
        edges = node["edges"] or [None] * 4
        whole = edges[0] if all(edge == edges[0] for edge in edges) else None
        x, y, width, height = node["rect"]
        if node["fill"] or whole:
            inset = whole[0] / 2 if whole else 0  # a line lies on both sides of its edge
            rect = [x + inset, y + inset, max(0, width - 2 * inset), max(0, height - 2 * inset)]
            radius = node["radius"]
            shorter = max(1.0, min(width, height))
            round_ = radius > 0.48 * shorter and abs(width - height) < 2
            kind = MSO_SHAPE.ROUNDED_RECTANGLE if radius > 0.5 else MSO_SHAPE.RECTANGLE
            shape = self._shape(slide, MSO_SHAPE.OVAL if round_ else kind, rect)
            if radius > 0.5 and not round_:
                shape.adjustments[0] = min(0.5, radius / shorter)
            properties = shape._element.spPr
            self._fill(properties, node["fill"])
            self._line(properties, "a:ln", whole)
            if shadow := node["shadow"]:
                self._shadow(properties, shadow)
        for side, edge in enumerate([] if whole else edges):
            if edge:
                thick = edge[0]
                left = x + width - thick if side == 1 else x
                top = y + height - thick if side == 2 else y
                size = [width, thick] if side in (0, 2) else [thick, height]
                shape = self._shape(slide, MSO_SHAPE.RECTANGLE, [left, top, *size])
                self._fill(shape._element.spPr, edge[1])
                self._line(shape._element.spPr, "a:ln", None)

    def _shadow(self, properties: Element, shadow: Shadow) -> None:
        far = math.hypot(shadow["x"], shadow["y"])
        turn = math.degrees(math.atan2(shadow["y"], shadow["x"])) % 360
        blur, angle = max(0, emu(shadow["blur"])), round(turn * 60000)
        facts = {"blurRad": blur, "dist": emu(far), "dir": angle, "algn": "ctr", "rotWithShape": 0}
        outer = _sub(_sub(properties, "a:effectLst"), "a:outerShdw", **facts)
        self._colour(outer, shadow["colour"])

    def _text(self, slide: Slide, node: Node, place: BaseShape | None) -> None:
        x, y, width, height = node["rect"]
        wraps = node["wrap"] or place is not None
        if wraps and node["full"] > 0.96:  # another program sets the words a little wider
            extra = 4 + width * 0.02
            align = node["paragraphs"][0]["align"]
            x -= {"center": extra / 2, "right": extra}.get(align, 0)
            width += extra
        shape = place or slide.shapes.add_textbox(*map(emu, (x, y, width, height)))
        if place:
            slide.shapes._spTree.append(place._element)  # it comes in its turn
            place.left, place.top, place.width, place.height = map(emu, (x, y, width, height))
        body = _clear(shape._element.txBody)
        facts = {"lIns": 0, "tIns": 0, "rIns": 0, "bIns": 0, "anchor": "t", "rtlCol": 0}
        about = _sub(body, "a:bodyPr", wrap="square" if wraps else "none", **facts)
        # Where a font is missing, what is in a place gets smaller, and has no line more.
        _sub(about, "a:normAutofit" if place else "a:noAutofit")
        _sub(body, "a:lstStyle")
        for one in node["paragraphs"]:
            self._paragraph(slide, body, one)

    def _paragraph(self, slide: Slide, body: Element, one: Paragraph) -> None:
        paragraph = _sub(body, "a:p")
        runs, marker = one["runs"], one["marker"]
        hang = min(one["left"], marker["hang"]) if marker else 0
        facts: dict[str, object] = {
            "marL": max(0, emu(one["left"])),
            "marR": max(0, emu(one["right"])),
            "indent": -max(0, emu(hang)),
            "algn": ALIGN.get(one["align"], "r" if one["rtl"] and one["align"] == "start" else "l"),
        }
        if one["level"]:
            facts["lvl"] = min(8, int(one["level"]))
        if one["rtl"]:
            facts["rtl"] = 1
        about = _sub(paragraph, "a:pPr", **facts)
        for tag, length in (
            ("a:lnSpc", one["height"]),
            ("a:spcBef", one["before"]),
            ("a:spcAft", 0),
        ):
            points = max(0, min(158400, round(length * POINT * 100)))
            _sub(_sub(about, tag), "a:spcPts", val=points)
        self._marker(about, marker)
        for at, run in enumerate(runs):
            near = [*runs[at:], *runs[at::-1]]  # a break or a gap looks as what is next to it
            style = next((one for one in near if "size" in one), None)
            self._run(slide, paragraph, run, style)

    def _marker(self, about: Element, marker: Marker | None) -> None:
        if not marker:
            _sub(about, "a:buNone")
            return
        if marker.get("ink"):
            self._colour(_sub(about, "a:buClr"), marker["ink"])
        _sub(about, "a:buFont", typeface="Arial" if "sign" in marker else "+mj-lt")
        if kind := marker.get("number"):
            if not re.fullmatch(r"(?:arabic|alphaLc|alphaUc|romanLc|romanUc)Period", kind):
                raise ValueError(f"the worker named a numbering that cannot be: {kind!r:.40}")
            start = max(1, min(32767, int(marker["start"])))
            _sub(about, "a:buAutoNum", type=kind, **({"startAt": start} if start > 1 else {}))
        else:
            _sub(about, "a:buChar", char=words(marker["sign"]))

    def _run(
        self, slide: Slide, paragraph: Element, run: StyledRun, style: StyledRun | None
    ) -> None:
        text = run.get("text")
        if text == "\n":
            self._style(slide, _sub(_sub(paragraph, "a:br"), "a:rPr"), style)
            return
        if "gap" in run:
            size = style["size"] if style else 16.0
            room = min(4000, run["gap"] * POINT - 0.26 * size * POINT)  # a space is about that wide
            style = {**(style or {}), "spacing": room / POINT, "link": "", "highlight": None}
            text = "\u00a0"
        element = _sub(paragraph, "a:r")
        self._style(slide, _sub(element, "a:rPr"), style)
        _sub(element, "a:t").text = words(text)

    def _style(self, slide: Slide, about: Element, style: StyledRun | None) -> None:
        if not style or "size" not in style:
            return
        about.set("lang", "en-US")
        about.set("sz", str(max(100, min(400000, round(style["size"] * POINT * 10) * 10))))
        about.set("b", str(int(style["bold"])))
        about.set("i", str(int(style["italic"])))
        about.set("u", "sng" if style["underline"] else "none")
        if style["strike"]:
            about.set("strike", "sngStrike")
        if style["caps"]:
            about.set("cap", "all")
        if abs(style["spacing"]) > 0.01:
            about.set("spc", str(round(style["spacing"] * POINT * 100)))
        if style["raised"]:
            about.set("baseline", str(int(style["raised"]) * 1000))
        self._fill(about, style["gradient"] or style["ink"])
        if style["highlight"]:
            _sub(_sub(about, "a:highlight"), "a:srgbClr", val=ink(style["highlight"]))
        family = words(style["font"])[:80]
        named = self.fonts.get(family)
        for tag in ("a:latin", "a:cs"):
            _sub(about, tag, typeface=named or family, **({} if named else like(family)))
        if (hyperlink := _hyperlink(slide, about, style["link"])) is not None:
            hyperlink.append(etree.fromstring(_KEEPS_COLOUR))

    def _table(self, slide: Slide, node: Node) -> BaseShape:
        rows, columns = len(node["rows"]), len(node["columns"])
        frame = slide.shapes.add_table(rows, columns, *map(emu, node["rect"]))
        table = frame.table
        about: Element = table._tbl.tblPr
        about.attrib.clear()
        about.find(qn("a:tableStyleId")).text = NO_STYLE
        for at, width in enumerate(node["columns"]):
            table.columns[at].width = emu(width)
        for at, height in enumerate(node["rows"]):
            table.rows[at].height = emu(height)
        for one in node["cells"]:
            cell = table.cell(one["row"], one["column"])
            if one["down"] > 1 or one["across"] > 1:
                last = one["row"] + one["down"] - 1, one["column"] + one["across"] - 1
                cell.merge(table.cell(*last))
            self._cell(slide, cell._tc, one)
        return frame

    def _cell(self, slide: Slide, element: Element, one: TableCell) -> None:
        body = element.get_or_add_txBody()
        for empty in body.findall(qn("a:p")):
            body.remove(empty)
        for paragraph in one["paragraphs"] or [EMPTY]:
            self._paragraph(slide, body, paragraph)
        about = element.get_or_add_tcPr()
        top, right, bottom, left = one["inset"]
        if one["middle"]:
            about.set("anchor", "ctr")
            top = bottom = 0
        for name, length in (("marL", left), ("marR", right), ("marT", top), ("marB", bottom)):
            about.set(name, str(max(0, emu(length))))
        above, after, below, before = one["edges"]
        for tag, edge in (("a:lnL", before), ("a:lnR", after), ("a:lnT", above), ("a:lnB", below)):
            self._line(about, tag, edge)
        self._fill(about, one["fill"])

    def _picture(self, slide: Slide, node: Node, shot: Image.Image) -> BaseShape | None:
        cut = _cut(shot, node["rect"])
        if cut is None:
            return None
        shape = slide.shapes.add_picture(_png(cut), *map(emu, node["rect"]))
        facts: Element = shape._element.find(f".//{qn('p:cNvPr')}")
        facts.set("name", f"Picture {len(slide.shapes)}")
        facts.set("descr", words(node.get("alt", "")))
        _hyperlink(slide, facts, node.get("link", ""))
        return shape

    def _chart(self, slide: Slide, node: Node, told: Chart) -> BaseShape:
        """A chart with its table of numbers. Raises ValueError for one that cannot be."""
        names, kind = told["categories"], CHARTS.get(told["kind"])
        sizes = {len(values) for _, values in told["series"]}
        if kind is None or sizes != {len(names)} or len(names) * len(told["series"]) > MOST_VALUES:
            raise ValueError(f"the worker named a chart that cannot be: {told!r:.80}")
        data = ChartData()
        data.categories = [_label(name) for name in names]
        for name, values in told["series"]:
            data.add_series(_label(name), [_finite(value) for value in values])
        x, y, width, height = map(emu, node["rect"])
        frame = cast(GraphicFrame, slide.shapes.add_chart(kind, x, y, width, height, data))
        frame._element.find(f".//{qn('p:cNvPr')}").set("descr", words(node["alt"]))
        chart = frame.chart
        chart.font.size = Pt(12)
        chart.has_title = bool(told["title"])
        if told["title"]:
            chart.chart_title.text_frame.text = words(told["title"])[:200]
        chart.has_legend = told["kind"] == "pie" or len(told["series"]) > 1
        if chart.has_legend:
            chart.legend.include_in_layout = False
        return frame

    def _background(self, slide: Slide, part: Part, shot: Image.Image) -> None:
        """The picture of a whole slide, as its background: nobody drags that away by accident."""
        ground = Image.new("RGBA", shot.size, f"#{ink(part['background'])}")
        ground.alpha_composite(shot.convert("RGBA"))
        _, related = slide.part.get_or_add_image_part(_png(ground.convert("RGB")))
        about = _ground(slide)
        fill = _sub(about, "a:blipFill", dpi=0, rotWithShape=1)
        _sub(fill, "a:blip", **{qn("r:embed"): related})
        _sub(_sub(fill, "a:stretch"), "a:fillRect")
        _sub(about, "a:effectLst")


EMPTY = Paragraph(
    runs=[], align="left", rtl=False, height=1, before=0, left=0, right=0, marker=None, level=0
)


def _put(place: BaseShape | None, shape: BaseShape | None) -> None:
    """Have a picture, table or chart fill a place of its slide's layout."""
    if place and shape:
        kind = place._element.find(f".//{qn('p:ph')}")
        shape._element.find(f".//{qn('p:nvPr')}").insert(0, kind)
    if place:
        place._element.getparent().remove(place._element)


def _label(text: object) -> str:
    """A word of a chart: in a spreadsheet nothing of a deck's is a formula or a link."""
    label = words(text)[:200]
    return f" {label}" if re.match(r"[={+@-]|\w+:", label) else label


def _ground(slide: Slide) -> Element:
    """The properties of a slide's own background, empty."""
    return _clear(slide.background._cSld.get_or_add_bgPr())


def _cut(shot: Image.Image, rect: Sequence[float]) -> Image.Image | None:
    """The part of a frame that a rectangle in CSS px names, or None where nothing is drawn."""
    scale = shot.width / WIDTH
    x, y, width, height = (float(one) * scale for one in rect)
    left, top = max(0, math.floor(x)), max(0, math.floor(y))
    right, bottom = min(shot.width, math.ceil(x + width)), min(shot.height, math.ceil(y + height))
    if right <= left or bottom <= top:
        return None
    cut = shot.crop((left, top, right, bottom))
    low, high = cut.getchannel("A").getextrema()
    if not high:
        return None
    return cut.convert("RGB") if low == 255 else cut


def _png(picture: Image.Image) -> io.BytesIO:
    out = io.BytesIO()
    picture.save(out, "PNG")
    out.seek(0)
    return out


def _pieces(shot: Image.Image) -> list[list[float]]:
    """The rectangles [x, y, width, height], in CSS px, of what is drawn apart from each other in a frame."""
    import numpy
    from scipy import ndimage

    step = 8  # what is this near to each other, in pixels, is one piece
    coarse = numpy.asarray(shot.getchannel("A").reduce(step)) > 1
    labels, _ = ndimage.label(coarse, structure=numpy.ones((3, 3)))
    found = ndimage.find_objects(labels)
    if len(found) > 60:
        found = ndimage.find_objects(coarse.astype(int))
    scale, rects = shot.width / WIDTH / step, []
    for rows, columns in found:
        x, y = columns.start, rows.start
        rects.append([one / scale for one in (x, y, columns.stop - x, rows.stop - y)])
    return rects
