"""A template learnt of a PowerPoint file (.pptx, .potx): its theme, the master that most slides use, that master's layouts.

The package is hostile: parts are read within bounds and by their names in it alone, none with a document type.
Where a property is looked for, the layout's own comes before the master's. Lengths become px of the canvas.
"""

import colorsys
import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decksmith.core import cli
from decksmith.measure.decks.template_draft import KINDS, Draft, Page, Text, is_loud, picture, plain
from decksmith.measure.decks.templates import CANVAS, SLOTS

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

PART, ALL = 16 << 20, 80 << 20  # bytes of a part, and of all that are read
SLIDES = 60  # of which the colours are counted
_NS = {
    "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    "p": "http://schemas.openxmlformats.org/presentationml/2006/main",
    "r": "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
}
TITLE, BODY = "p:ph[@type='title' or @type='ctrTitle']", "p:ph[@idx='1' or @type='body']"
_OFFICE = {"#4f81bd", "#4472c4", "#5b9bd5", "#156082"}  # the first accents of Office's own themes
_LOST = {
    "p:timing": "animations",
    "p:transition": "transitions",
    "p:embeddedFontLst": "fonts that lie in the file",
}


def learn(path: Path) -> Draft:
    """What a file says of its look. Raises cli.BadData."""
    try:
        with path.open("rb") as file:
            if file.read(4) == b"\xd0\xcf\x11\xe0":
                raise cli.BadData("an old .ppt, or one with a password; save it as .pptx without")
        with zipfile.ZipFile(path) as opened:
            return _File(path.name, opened).draft()
    except cli.BadData as error:
        raise cli.BadData(f"{path}: {error}") from None
    except OSError as error:
        raise cli.BadData(f"{path}: {error.strerror or error}") from None
    except Exception as error:  # zipfile, lxml and damaged numbers raise of all kinds
        said = f"{type(error).__name__}: {plain(error)}"
        mend = "open it in PowerPoint or LibreOffice and save it as .pptx"
        raise cli.BadData(f"{path}: is no PowerPoint file, or damaged ({said}); {mend}") from None


class _File:
    """A package whose parts are read as they are asked for."""

    def __init__(self, name: str, opened: zipfile.ZipFile) -> None:
        self.name, self.opened, self.left = name, opened, ALL
        if "ppt/presentation.xml" not in opened.namelist():
            raise cli.BadData("is no PowerPoint file; try: soffice --convert-to pptx FILE")

    def read(self, part: str) -> bytes:
        size = self.opened.getinfo(part).file_size
        self.left -= size
        if size > PART or self.left < 0:
            raise cli.BadData(f"{plain(part)} has {size >> 20} MB unpacked, more than is read")
        return self.opened.read(part)

    def xml(self, part: str) -> "Element":
        from lxml import etree

        data = self.read(part)
        if b"<!DOCTYPE" in data.replace(b"\0", b"").upper():
            raise cli.BadData(f"{plain(part)} has a document type, as no part of such a file has")
        return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))

    def related(self, part: str) -> dict[str, tuple[str, str]]:
        """(kind, part) by id of what a part leads to inside the package."""
        folder, name = posixpath.split(part)
        rels = f"{folder}/_rels/{name}.rels"
        found = self.xml(rels) if rels in self.opened.namelist() else ()
        return {
            one.get("Id", ""): (
                one.get("Type", "").rpartition("/")[2],
                posixpath.normpath(posixpath.join("/", folder, one.get("Target", "")))[1:],
            )
            for one in found
            if one.get("TargetMode") != "External"
        }

    def listed(self, part: str, sheet: "Element", path: str) -> list[str]:
        """The parts that a list in a part names, in its order."""
        links = self.related(part)
        return [links[one][1] for one in _all(sheet, f"{path}/*/@r:id") if one in links]

    def one(self, part: str, kind: str) -> str:
        """The first part of a kind that a part leads to, "" without."""
        return next((name for found, name in self.related(part).values() if found == kind), "")

    def draft(self) -> Draft:
        main = "ppt/presentation.xml"
        show = self.xml(main)
        masters = self.listed(main, show, "p:sldMasterIdLst")
        slides = self.listed(main, show, "p:sldIdLst")
        if not masters or (size := show.find("p:sldSz", _NS)) is None:
            raise cli.BadData("has no master or no size; save it again in PowerPoint")
        looked = slides[:SLIDES]
        used = Counter(self.one(self.one(name, "slideLayout"), "slideMaster") for name in looked)
        master = max(masters, key=lambda one: used[one])
        sheet, theme = self.xml(master), self.xml(self.one(master, "theme"))
        layouts = self.listed(master, sheet, "p:sldLayoutIdLst")
        sheets = {master: sheet, **{name: self.xml(name) for name in [*layouts, *looked]}}
        scale = CANVAS[0] / int(size.get("cx")), CANVAS[1] / int(size.get("cy"))
        draft = Draft(f"{plain(self.name)}: {len(slides)} slides, {len(layouts)} layouts")
        draft.lost += [f"another master, {one}" for one in masters if one != master]
        looks = {"": _Look([sheet], theme, scale)}
        for layout in (sheets[name] for name in layouts):
            name = _named(layout).removeprefix("layout ")
            if kind := _slidev(layout, name):
                draft.layouts.setdefault(kind, []).append(name)
                looks.setdefault(kind, _Look([layout, sheet], theme, scale))
            else:
                draft.lost.append(f"the layout {name}: none of Slidev is like it")
        usual = looks.setdefault("default", looks.pop(""))
        for kind, look in looks.items():
            draft.pages[kind] = look.page()
            draft.lost += look.lost
        _fonts(draft, theme)
        _colours(draft, usual, sheets.values())
        draft.padding = usual.padding()
        self._logo(draft, {name: sheets[name] for name in [master, *layouts]}, scale)
        for path, said in _LOST.items():
            if any(_all(one, f".//{path}") for one in (show, *sheets.values())):
                draft.lost.append(said)
        draft.lost.append("footer, page number and date: the renderer draws none")
        return draft

    def _logo(self, draft: Draft, sheets: dict[str, "Element"], scale: tuple[float, float]) -> None:
        """The picture that is named a logo, else one of the master, else the one on most layouts."""
        found: dict[str, list[tuple[str, Element]]] = {}
        for name, sheet in sheets.items():
            related = self.related(name)
            for shape in _all(sheet, ".//p:pic"):
                link = _said(shape, ".//a:blip/@r:embed")
                if link in related:
                    found.setdefault(related[link][1], []).append((_named(sheet), shape))

        def likely(part: str) -> tuple[bool, bool, int]:
            (where, shape), *_ = found[part]
            words = " ".join(_all(shape, "p:nvPicPr/p:cNvPr/@*")).lower()
            return "logo" in words, where == "master", len(found[part])

        for part in sorted(found, key=likely, reverse=True):
            where, shape = found[part][0]
            said = f"the picture {_said(shape, 'p:nvPicPr/p:cNvPr/@name')} of the {where}"
            x, y, wide, high = place = _place(shape, scale)
            if draft.logo or min(wide, high) < 2 or wide * high > CANVAS[0] * CANVAS[1] / 5:
                draft.lost.append(said)
                continue
            true = round(wide * scale[1] / scale[0])  # a slide of another shape does not stretch it
            place = [max(0, x + (wide - true) // 2), y, min(wide, true), high]
            cut = [_number(shape, f"p:blipFill/a:srcRect/@{side}") for side in "ltrb"]
            crop = tuple(side / 100_000 if side > 0 else 0.0 for side in cut)
            try:
                file = picture(self.read(part), (2 * place[2], 2 * place[3]), crop)
                draft.logo = {"file": file, "place": place, "source": said}
            except ValueError as error:
                draft.lost.append(f"{said}, {posixpath.splitext(part)[1]}: {error}")


class _Look:
    """A layout on its master, or the master alone, with what the theme's names stand for there."""

    def __init__(
        self, parts: list["Element"], theme: "Element", scale: tuple[float, float]
    ) -> None:
        """parts: what is asked first stands first. scale: px of an EMU, across and down."""
        self.parts, self.scale, self.lost = parts, scale, list[str]()
        maps = _all(parts[0], "p:clrMapOvr/a:overrideClrMapping") + _all(parts[-1], "p:clrMap")
        self.names = dict(maps[0].items())
        self.scheme: dict[str, str] = {}
        for slot in _all(theme, ".//a:clrScheme/*"):
            self.scheme[_tag(slot)] = self.colour(slot) or "#000000"

    def colour(self, holder: "Element | None") -> str | None:
        """The colour (#rrggbb) that an element holds; None for another fill."""
        found = next(iter(holder), None) if holder is not None else None
        if found is None:
            return None
        value = found.get("lastClr") or found.get("val") or ""
        if _tag(found) == "schemeClr":
            value = self.scheme.get(self.names.get(value, value), "")[1:]
        if not re.fullmatch("[0-9a-fA-F]{6}", value):
            return None
        parts = [int(value[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        for change in found:
            kind, share = _tag(change), int(change.get("val") or 0) / 100_000
            if kind in ("lumMod", "lumOff"):
                hue, light, strong = colorsys.rgb_to_hls(*parts)
                light = light * share if kind == "lumMod" else light + share
                parts = [*colorsys.hls_to_rgb(hue, max(0.0, min(1.0, light)), strong)]
            elif kind in ("shade", "tint"):  # of light, not of its code
                white = (1 - share) * (kind == "tint")
                parts = [(part**2.2 * share + white) ** (1 / 2.2) for part in parts]
        return "#" + "".join(f"{round(255 * max(0.0, min(1.0, part))):02x}" for part in parts)

    def usual(self, name: str) -> str:
        """What bg1 or tx1 stands for."""
        return self.scheme.get(self.names.get(name, ""), "#ffffff" if name == "bg1" else "#000000")

    def text(self, place: str, style: str) -> Text:
        """The first level of the text in a place: as the layout has it, the master's place, or its style."""
        levels = [
            f".//{place}/ancestor::p:sp//a:lstStyle/a:lvl1pPr",
            f"p:txStyles/p:{style}/a:lvl1pPr",
        ]

        def first(end: str) -> Any:
            paths = [f"{level}/{end}" for level in levels]
            found = (one for path in paths for part in self.parts for one in _all(part, path))
            return next(found, None)

        size = first("a:defRPr/@sz")
        points = int(size or (4400 if place == TITLE else 1800)) / 100
        root = size.getparent().getroottree().getroot() if size else None
        return Text(
            size=round(points * 12700 * self.scale[1]),
            ink=self.colour(first("a:defRPr/a:solidFill")) or self.usual("tx1"),
            family=first("a:defRPr/a:latin/@typeface") or ("+mj" if place == TITLE else "+mn"),
            bold=first("a:defRPr/@b") in ("1", "true"),
            align={"ctr": "center", "r": "right"}.get(first("@algn"), "left"),
            source=f"{points:g} pt, {'PowerPoint' if root is None else _named(root)}",
        )

    def page(self) -> Page:
        ground, source = self._ground()
        bars = []
        alone = self.parts[0].get("showMasterSp") in ("0", "false")
        for part in self.parts[:1] if alone else self.parts[::-1]:
            for shape in _all(part, "p:cSld/p:spTree/*[self::p:sp or self::p:cxnSp][not(.//p:ph)]"):
                colour = self.colour(shape.find("p:spPr/a:solidFill", _NS))
                place = _place(shape, self.scale)
                if colour and _all(shape, "p:spPr/a:prstGeom[@prst='rect']") and min(place[2:]) > 0:
                    if place[2] * place[3] > 0.97 * CANVAS[0] * CANVAS[1]:
                        ground, source = colour, f"a rectangle of the {_named(part)}"
                    bars.append((colour, place))
                else:
                    name = _said(shape, "*/p:cNvPr/@name")
                    self.lost.append(f"the drawing {name} of the {_named(part)}")
        bars = [one for one in bars[::-1] if one[0] != ground][:8]
        title, text = self.text(TITLE, "titleStyle"), self.text(BODY, "bodyStyle")
        return Page(paper=ground, ground=source, bars=bars, title=title, text=text)

    def _ground(self) -> tuple[str, str]:
        """The colour behind everything, and where it is from."""
        for part in self.parts:
            for ground in _all(part, "p:cSld/p:bg/*"):
                is_named = _tag(ground) == "bgRef"
                fill = ground if is_named else ground.find("a:solidFill", _NS)
                if ground.get("idx") not in ("1001", None) or fill is None:
                    self.lost.append(f"the gradient or picture behind the {_named(part)}")
                if fill is None:
                    fill = ground.find(".//a:gs", _NS)
                if colour := self.colour(fill):
                    return colour, f"background of the {_named(part)}{self.from_theme(colour)}"
        return self.usual("bg1"), "theme bg1"

    def from_theme(self, colour: str) -> str:
        """The theme's name of a colour, as the end of a source."""
        return next((f", theme {name}" for name, one in self.scheme.items() if one == colour), "")

    def place(self, place: str) -> list[int]:
        """[x, y, width, height] in px of a place of layout or master, [] without."""
        path = f".//{place}/ancestor::p:sp[.//a:off]"
        shapes = [one for part in self.parts for one in _all(part, path)]
        return _place(shapes[0], self.scale) if shapes else []

    def padding(self) -> list[int]:
        """px above, right, below and left of title and text, within what Slidev's layouts bear."""
        title, text = self.place(TITLE), self.place(BODY)
        if not title or not text:
            return []
        inset = round(91440 * self.scale[0])  # of every text box
        above = title[1] + (title[3] - 1.15 * self.text(TITLE, "titleStyle")["size"]) / 2
        right, below = CANVAS[0] - text[0] - text[2], CANVAS[1] - text[1] - text[3]
        sides = above, right + inset, below, text[0] + inset
        return [max(16, min(150, round(side))) for side in sides]


def _all(element: "Element", path: str) -> list[Any]:
    return list(element.xpath(path, namespaces=_NS))  # type: ignore[arg-type]


def _said(element: "Element", path: str) -> str:
    """The text of the first that a path finds, "" without."""
    return str(element.xpath(f"string({path})", namespaces=_NS))


def _number(element: "Element", path: str) -> float:
    """The number of the first that a path finds, nan without."""
    return float(element.xpath(f"number({path})", namespaces=_NS))  # type: ignore[arg-type]


def _tag(element: "Element") -> str:
    return str(element.tag).rpartition("}")[2]


def _named(part: "Element") -> str:
    """What a layout or a master is called in a source."""
    name = part.find("p:cSld", _NS).get("name", "")
    return f"layout {name}" if _tag(part) == "sldLayout" else "master"


def _place(shape: "Element", scale: tuple[float, float]) -> list[int]:
    """The box [x, y, width, height] of a shape in px, as far as it is on the slide."""
    ends = ("a:off/@x", "a:off/@y", "a:ext/@cx", "a:ext/@cy")
    x, y, wide, high = (_number(shape, f"p:spPr/a:xfrm/{one}") for one in ends)
    left, top = max(0, round(x * scale[0])), max(0, round(y * scale[1]))
    right = min(CANVAS[0], round((x + wide) * scale[0]))
    bottom = min(CANVAS[1], round((y + high) * scale[1]))
    return [left, top, right - left, bottom - top]


def _slidev(layout: "Element", name: str) -> str | None:
    """What a layout is in Slidev: by its type, its name, or its places."""
    by_name = sorted(KINDS.items(), key=lambda one: one[0] == "default")
    kinds = [kind for kind, about in KINDS.items() if layout.get("type") in about["types"]]
    kinds += [one for one, about in by_name if re.search(rf"\b(?:{about['words']})", name.lower())]
    bodies = len(_all(layout, ".//p:ph[not(@type) or @type='obj' or @type='body']"))
    kinds += ["image-right"] if _all(layout, ".//p:ph[@type='pic']") else []
    kinds += ["two-cols" if bodies > 1 else "default"] if bodies else []
    return next(iter(kinds), None)


def _fonts(draft: Draft, theme: "Element") -> None:
    """Families of title and text, by the theme's names or their own."""
    page = draft.pages["default"]
    for role, look in (("title", page["title"]), ("text", page["text"])):
        if not look["family"].startswith("+"):
            draft.font(role, look["family"], look["source"])
            continue
        slot = "majorFont" if look["family"].startswith("+mj") else "minorFont"
        latin, east = (_said(theme, f".//a:{slot}/a:{one}/@typeface") for one in ("latin", "ea"))
        draft.font(role, latin or east, f"theme {slot}")
        if latin and east:
            draft.lost.append(f"the East Asian font {east}: the renderer has Noto Sans")


def _colours(draft: Draft, look: _Look, parts: Iterable["Element"]) -> None:
    """The theme's colours; where none of Office's own is used, those that are set on the slides."""
    page = draft.pages["default"]
    draft.colour("paper", page["paper"], page["ground"])
    draft.colour("ink", page["text"]["ink"], f"text{look.from_theme(page['text']['ink'])}")
    named, used = Counter[str](), Counter[str]()
    for part in parts:
        named.update(map(str, _all(part, ".//a:schemeClr/@val")))
        used.update(f"#{one.lower()}" for one in _all(part, ".//a:srgbClr/@val"))
    loud = [one for one, _ in used.most_common() if is_loud(one)]
    idle = look.scheme.get("accent1") in _OFFICE and not any("accent" in one for one in named)
    for name, slot in SLOTS.items():
        if not (idle and loud):
            draft.colour(name, look.scheme.get(slot), f"theme {slot}")
    for name, colour in zip(list(SLOTS)[2:8], loud if idle else [], strict=False):
        draft.colour(name, colour, f"set {used[colour]} times; the theme's are Office's own")
