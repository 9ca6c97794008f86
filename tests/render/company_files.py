"""Files of invented companies whose look is known: PowerPoint templates and saved pages, as bin/template-learn is given them."""

import base64
import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

from lxml import etree
from PIL import Image, ImageDraw
from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.oxml.ns import qn
from pptx.util import Emu, Inches

WIDE = (12192000, 6858000)
SPACES = " ".join(f'xmlns:{name}="{qn(name + ":x")[1:-2]}"' for name in ("a", "p", "r"))
EMF = b"\x01\x00\x00\x00" + bytes(36) + b" EMF" + bytes(60)


def logo(colour: str = "#c0392b", size: tuple[int, int] = (300, 100)) -> io.BytesIO:
    """A picture of a logo: a bar and a disc."""
    image = Image.new("RGBA", size, (0, 0, 0, 0))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, size[1] // 3, size[0] - 1, 2 * size[1] // 3), fill=colour)
    draw.ellipse((0, 0, size[1] - 1, size[1] - 1), fill=colour)
    out = io.BytesIO()
    image.save(out, "PNG")
    out.seek(0)
    return out


def show(size: tuple[int, int] = WIDE):
    """python-pptx's own template in another size: layouts and master are stretched to it."""
    made = Presentation()
    across, down = size[0] / made.slide_width, size[1] / made.slide_height
    made.slide_width, made.slide_height = map(Emu, size)
    for page in (made.slide_master, *made.slide_layouts):
        for place in page._element.iter(qn("a:off"), qn("a:ext")):
            for name, factor in (("x", across), ("cx", across), ("y", down), ("cy", down)):
                if name in place.attrib:
                    place.set(name, str(round(int(place.get(name)) * factor)))
    return made


def edit_theme(made, change: Callable[[etree._Element], None], master: int = 0) -> None:
    """Change the XML of a master's theme."""
    [part] = [
        one.target_part
        for one in made.slide_masters[master].part.rels.values()
        if one.reltype.endswith("/theme")
    ]
    tree = etree.fromstring(part.blob)
    change(tree)
    part._blob = etree.tostring(tree, xml_declaration=True, encoding="UTF-8", standalone=True)


def theme(made, colours: dict[str, str], major: str, minor: str, east: str = "") -> None:
    """Give the theme colours (RRGGBB by slot) and fonts."""

    def change(tree):
        for slot, colour in colours.items():
            held = tree.find(f".//{qn('a:clrScheme')}/{qn(f'a:{slot}')}")
            held[:] = [etree.Element(qn("a:srgbClr"), {"val": colour})]
        for kind, family in (("a:majorFont", major), ("a:minorFont", minor)):
            held = tree.find(f".//{qn(kind)}")
            latin = held.find(qn("a:latin"))
            latin.attrib.clear()
            latin.set("typeface", family)
            held.find(qn("a:ea")).set("typeface", east)

    edit_theme(made, change)


def sizes(made, title: float, body: float) -> None:
    """Set the master's sizes, in points."""
    for style, points in (("p:titleStyle", title), ("p:bodyStyle", body)):
        held = made.slide_master._element.find(f"{qn('p:txStyles')}/{qn(style)}")
        held.find(f"{qn('a:lvl1pPr')}/{qn('a:defRPr')}").set("sz", str(round(points * 100)))


def put(page, data: io.BytesIO, box: tuple[int, int, int, int], name: str, crop: str = "") -> None:
    """Put a picture on a master or a layout, above its background and below the rest."""
    _, relation = page.part.get_or_add_image_part(data)
    page._element.find(f"{qn('p:cSld')}/{qn('p:spTree')}").insert(
        2, _picture(relation, box, name, crop)
    )


def ground(page, xml: str) -> None:
    """Put a background of one's own behind a master or a layout."""
    sheet = page._element.find(qn("p:cSld"))
    for old in sheet.findall(qn("p:bg")):
        sheet.remove(old)
    sheet.insert(0, etree.fromstring(f"<p:bg {SPACES}>{xml}</p:bg>"))


def fill(colour: str) -> str:
    return f'<p:bgPr><a:solidFill><a:srgbClr val="{colour}"/></a:solidFill><a:effectLst/></p:bgPr>'


def slides(made) -> None:
    """Three slides as a company has them in its template."""
    texts = (("Tidal power", "A short course"), ("Three sites", "One\nTwo\nThree"))
    for number, (title, text) in enumerate(texts):
        slide = made.slides.add_slide(made.slide_layouts[number])
        slide.shapes.title.text, slide.placeholders[1].text = title, text
    slide = made.slides.add_slide(made.slide_layouts[2])
    slide.shapes.title.text = "What it costs"


def saved(made, path: Path, rewrite: Callable[[str, bytes], bytes] | None = None) -> Path:
    """Write a presentation; `rewrite` may change each part."""
    loose = io.BytesIO()
    made.save(loose)
    with zipfile.ZipFile(loose) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, rewrite(name, data) if rewrite else data)
    return path


PALETTE = {"dk1": "10333F", "lt1": "FBF8F2", "dk2": "0B3C49", "lt2": "E8E1D3", "accent1": "0B6E69"}
PALETTE |= {"accent2": "F2A33A", "accent3": "C0392B", "accent4": "7D5BA6", "accent5": "3A86C8"}
PALETTE |= {"accent6": "5D6D3E", "hlink": "1B5FAA", "folHlink": "6B4E9B"}


def plain(folder: Path) -> Path:
    """16:9, a palette and fonts of its own, a logo on the master, a footer."""
    made = show()
    theme(made, PALETTE, "Georgia", "Calibri")
    sizes(made, 36, 20)
    put(made.slide_master, logo(), (9800000, 6200000, 1800000, 600000), "Company logo")
    slides(made)
    for slide in made.slides:
        for one in slide.slide_layout.placeholders:
            if one.placeholder_format.type.name == "FOOTER":
                one.text_frame.text = "Linder AG | internal"
    return saved(made, folder / "plain.pptx")


def dark(folder: Path) -> Path:
    """White on dark: the master maps bg1 to dk1, and its title has an accent's colour."""
    made = show()
    theme(made, {**PALETTE, "dk1": "101820", "lt1": "F4F6F8"}, "Arial", "Arial")
    mapped = made.slide_master._element.find(qn("p:clrMap"))
    mapped.attrib.update({"bg1": "dk1", "tx1": "lt1", "bg2": "dk2", "tx2": "lt2"})
    style = made.slide_master._element.find(f"{qn('p:txStyles')}/{qn('p:titleStyle')}")
    for named in style.find(qn("a:lvl1pPr")).iter(qn("a:schemeClr")):
        named.set("val", "accent2")
    sizes(made, 40, 18)
    slides(made)
    return saved(made, folder / "dark.pptx")


def two_masters(folder: Path) -> Path:
    """Two masters, each with its theme; the slides are on the second, whose theme is the company's."""
    made = show()
    theme(made, PALETTE, "Cambria", "Verdana")
    slides(made)
    masters, relation = "sldMaster2147483649", "rIdOther"

    def rewrite(name: str, data: bytes) -> bytes:
        if name == "ppt/presentation.xml":
            other = f'<p:sldMasterId id="2147483660" r:id="{relation}"/>'.encode()
            return re.sub(rb"(<p:sldMasterIdLst>)", rb"\1" + other, data)
        if name == "ppt/_rels/presentation.xml.rels":
            kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/slideMaster"
            one = (
                f'<Relationship Id="{relation}" Type="{kind}" Target="slideMasters/{masters}.xml"/>'
            )
            return data.replace(b"</Relationships>", one.encode() + b"</Relationships>")
        if name == "[Content_Types].xml":
            main = "application/vnd.openxmlformats-officedocument"
            more = (
                f'<Override PartName="/ppt/slideMasters/{masters}.xml" '
                f'ContentType="{main}.presentationml.slideMaster+xml"/>'
                f'<Override PartName="/ppt/theme/themeOther.xml" ContentType="{main}.theme+xml"/>'
            )
            return data.replace(b"</Types>", more.encode() + b"</Types>")
        return data

    path = saved(made, folder / "two-masters.pptx", rewrite)
    with zipfile.ZipFile(path) as old:
        sheet, dress = (
            old.read("ppt/slideMasters/slideMaster1.xml"),
            old.read("ppt/theme/theme1.xml"),
        )
    sheet = re.sub(rb"<p:sldLayoutIdLst>.*?</p:sldLayoutIdLst>", b"", sheet, flags=re.S)
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/theme"
    space = "http://schemas.openxmlformats.org/package/2006/relationships"
    rels = (
        f'<Relationships xmlns="{space}"><Relationship Id="rId1" Type="{kind}" '
        'Target="../theme/themeOther.xml"/></Relationships>'
    )
    with zipfile.ZipFile(path, "a") as new:
        new.writestr(f"ppt/slideMasters/{masters}.xml", sheet)
        new.writestr(f"ppt/slideMasters/_rels/{masters}.xml.rels", rels)
        new.writestr("ppt/theme/themeOther.xml", dress.replace(b"0B6E69", b"FF00FF"))
    return path


def no_theme_colours(folder: Path) -> Path:
    """Office's theme as it comes; the company's colours are set on shapes and runs one by one."""
    made = show()
    slides(made)
    for slide in made.slides:
        box = slide.shapes.add_shape(1, Inches(1), Inches(5), Inches(4), Inches(1))
        box.fill.solid()
        box.fill.fore_color.rgb = RGBColor.from_string("00843D")
        style = box._element.find(qn("p:style"))
        box._element.remove(style)  # the accents of the theme
        run = slide.shapes.title.text_frame.paragraphs[0].runs[0]
        run.font.color.rgb = RGBColor.from_string("00843D")
    slide.shapes[0].text_frame.paragraphs[0].runs[0].font.color.rgb = RGBColor.from_string("FFB81C")
    return saved(made, folder / "no-theme-colours.pptx")


def logo_in_layout(folder: Path) -> Path:
    """The logo is on each layout, nameless and cropped; a metafile and a photograph are there too."""
    made = show()
    theme(made, PALETTE, "Franklin Gothic Book", "Franklin Gothic Book")
    for layout in made.slide_layouts:
        box = (300000, 250000, 1200000, 400000)
        put(layout, logo("#0b6e69"), box, "Picture 7", 'r="10000"')
    big = Image.new("RGB", (64, 36), "#335577")
    out = io.BytesIO()
    big.save(out, "JPEG")
    out.seek(0)
    put(made.slide_layouts[0], out, (0, 0, *WIDE), "Photo")
    slides(made)
    return saved(made, folder / "logo-in-layout.pptx")


def _picture(relation: str, box: tuple[int, int, int, int], name: str, crop: str):
    x, y, wide, high = box
    return etree.fromstring(
        f'<p:pic {SPACES}><p:nvPicPr><p:cNvPr id="99" name="{name}"/><p:cNvPicPr/><p:nvPr/></p:nvPicPr>'
        f'<p:blipFill><a:blip r:embed="{relation}"/><a:srcRect {crop}/><a:stretch><a:fillRect/></a:stretch>'
        f'</p:blipFill><p:spPr><a:xfrm><a:off x="{x}" y="{y}"/><a:ext cx="{wide}" cy="{high}"/></a:xfrm>'
        '<a:prstGeom prst="rect"><a:avLst/></a:prstGeom></p:spPr></p:pic>'
    )


def east_asian(folder: Path) -> Path:
    """Fonts for two scripts; the title's Latin one is empty. An EMF is the logo."""
    made = show()
    theme(made, PALETTE, "", "Times New Roman", "Yu Mincho")
    path = saved(made, folder / "east-asian.pptx")
    rels = "ppt/slideMasters/_rels/slideMaster1.xml.rels"
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/image"
    one = f'<Relationship Id="rIdEmf" Type="{kind}" Target="../media/mark.emf"/></Relationships>'
    mark = etree.tostring(_picture("rIdEmf", (300000, 250000, 1200000, 400000), "Logo", ""))

    def rewrite(name: str, data: bytes) -> bytes:
        if name == rels:
            return data.replace(b"</Relationships>", one.encode())
        if name == "[Content_Types].xml":
            emf = b'<Default Extension="emf" ContentType="image/x-emf"/></Types>'
            return data.replace(b"</Types>", emf)
        if name == "ppt/slideMasters/slideMaster1.xml":
            return data.replace(b"</p:spTree>", mark + b"</p:spTree>")
        return data

    loose = Presentation(path)
    path = saved(loose, path, rewrite)
    with zipfile.ZipFile(path, "a") as new:
        new.writestr("ppt/media/mark.emf", EMF)
    return path


def paper_size(folder: Path) -> Path:
    """4:3, as from A4: larger letters for the slide's width, and a logo that must stay as wide as it is high."""
    made = show((9144000, 6858000))
    theme(made, PALETTE, "Garamond", "Segoe UI")
    sizes(made, 32, 24)
    put(made.slide_master, logo(size=(120, 120)), (8200000, 100000, 800000, 800000), "logo")
    slides(made)
    return saved(made, folder / "paper-size.pptx")


def potx(folder: Path) -> Path:
    """A .potx: another content type, and no slides."""
    made = show()
    theme(made, PALETTE, "Rockwell Slab", "Courier New")
    sizes(made, 30, 16)

    def rewrite(name: str, data: bytes) -> bytes:
        return data.replace(b"presentationml.presentation.main", b"presentationml.template.main")

    return saved(made, folder / "template.potx", rewrite)


def decorated(folder: Path) -> Path:
    """A gradient behind the master, a bar on it, a cover of another colour, layouts of the company's own names."""
    made = show()
    theme(made, PALETTE, "Roboto", "Roboto")
    stops = '<a:gs pos="0"><a:schemeClr val="bg2"/></a:gs><a:gs pos="100000"><a:schemeClr val="bg1"/></a:gs>'
    ground(
        made.slide_master,
        f'<p:bgPr><a:gradFill><a:gsLst>{stops}</a:gsLst><a:lin ang="0"/></a:gradFill><a:effectLst/></p:bgPr>',
    )
    bar = made.slide_master.shapes
    layouts = list(made.slide_layouts)
    ground(layouts[0], fill("0B3C49"))
    for layout, name in (
        (layouts[1], "Inhalt"),
        (layouts[3], "Zwei Spalten"),
        (layouts[6], "Danke"),
    ):
        layout.name = name
        layout._element.attrib.pop("type", None)
    tree = bar._spTree
    tree.insert(
        2,
        etree.fromstring(
            f'<p:sp {SPACES}><p:nvSpPr><p:cNvPr id="90" name="Bar"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr>'
            '<a:xfrm><a:off x="0" y="0"/><a:ext cx="12192000" cy="124400"/></a:xfrm><a:prstGeom prst="rect">'
            '<a:avLst/></a:prstGeom><a:solidFill><a:schemeClr val="accent1"><a:lumMod val="50000"/></a:schemeClr>'
            "</a:solidFill></p:spPr></p:sp>"
        ),
    )
    for shape in layouts[0].placeholders:
        if shape.placeholder_format.idx == 0:
            style = shape._element.find(f".//{qn('a:lstStyle')}")
            style.append(
                etree.fromstring(
                    f'<a:lvl1pPr {SPACES} algn="ctr"><a:defRPr sz="5400" b="1"><a:solidFill>'
                    '<a:schemeClr val="bg1"/></a:solidFill></a:defRPr></a:lvl1pPr>'
                )
            )
    slides(made)
    return saved(made, folder / "decorated.pptx")


SEEN = (plain, dark, two_masters, no_theme_colours)
UNSEEN = (logo_in_layout, east_asian, paper_size, potx, decorated)


LINKED = """<!doctype html><html><head><title>Linder</title><meta name="theme-color" content="#0b6e69">
<link rel="stylesheet" href="files/site.css"><link rel="icon" href="files/icon.png"></head>
<body><header><img class="brand-logo" src="files/mark.png" alt="Linder"></header><h1>Huts</h1><p>Text</p></body></html>"""
SHEET = """/* a comment { } */
:root { --brand-primary: #0b6e69; --color-accent: rgb(242, 163, 58); --gap: 4px; --ink: #10333f; }
@media (prefers-color-scheme: dark) { :root { --ink: #ffffff } body { background: #000 } }
@media print { h1 { font-size: 10px } }
@font-face { font-family: Brand; src: url(brand.woff2) }
body { margin: 0; background: #fbf8f2 url(wave.png); color: var(--ink); font-family: "Open Sans", Arial, sans-serif; font-size: 1.125rem }
h1, h2 { font-family: Georgia, serif; font-weight: 600 }
h1 { font-size: clamp(2rem, 5vw, 3rem); color: var(--brand-primary, red) }
a { color: #1b5faa }
"""


def linked_site(folder: Path) -> Path:
    """A page with a style sheet, custom properties and a logo beside it."""
    (folder / "files").mkdir(exist_ok=True)
    (folder / "linked.html").write_text(LINKED)
    (folder / "files/site.css").write_text(SHEET)
    (folder / "files/mark.png").write_bytes(logo().getvalue())
    (folder / "files/icon.png").write_bytes(logo("#0b6e69", (64, 64)).getvalue())
    return folder / "linked.html"


def inline_site(folder: Path) -> Path:
    """A page saved as one file: everything in a style element, short colours, an icon in place of a logo."""
    icon = base64.b64encode(logo("#336699", (64, 64)).getvalue()).decode()
    (folder / "inline.html").write_text(
        f"""<html lang=de><head><style>html{{font-size:20px}}body{{color:#222;background:#fff;font-family:Lora,serif}}
        h1{{font-size:2.4em;color:#369}}.btn{{background:#369;color:#fff}}@media (max-width:600px){{h1{{font-size:1em}}}}
        @media(min-width:900px){{body{{font-size:22px}}}}</style>
        <link rel="shortcut icon" href="data:image/png;base64,{icon}"></head><body><h1>Guten Tag<p>unclosed"""
    )
    return folder / "inline.html"


SEEN_SITES, UNSEEN_SITES = (linked_site,), (inline_site,)
