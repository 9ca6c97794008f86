"""PowerPoint files to edit: what the browser shows is read back from the package as text, tables, notes and pictures."""

import functools
import re
import shutil
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.measure.decks import pictures
from drawing import shared_workers  # noqa: F401
from pptx import Presentation
from pptx.util import Emu
from pypdf import PdfReader
from test_pool import FEATURES
from test_site import GIF, Canary, build

pytestmark = [pytest.mark.browser, pytest.mark.slow]

OURS = {
    "reference": cli.ROOT / "data/reference/p002.md",
    "gold": cli.ROOT / "data/gold/g001-swarm-democracy/deck.md",
}
LOOK = """---
theme: default
---

# Ways to *say* it

Plain, **bold**, `code`, ~~gone~~ and [a link](https://example.org/a?b=1&c=2) in one line

1. first
2. second
   - deeper

<div style="background: #204060; color: #ffffff; padding: 20px; border-radius: 8px">In a box</div>

---

# Two columns

<div style="display: flex">
<div style="width: 50%">

Left one

Left two

</div>
<div style="width: 50%; text-align: right">Right one</div>
</div>

A formula $a^2$ in a line

<table><tr><th colspan="2">Both</th></tr><tr><td>one</td><td>two</td></tr></table>

---
zoom: 1.5
---

# Larger

<p style="font-size: 20px; line-height: 30px; margin: 0">Text of twenty</p>

<div class="before" style="position: relative; height: 40px"></div>

<style>
.before::before { content: ''; position: absolute; width: 30px; height: 30px; background: #ff0000; }
</style>
"""


CHARTS = """---
theme: default
---

# A year of rain

Three charts and a diagram

---
layout: section
---

# Data

---

# Rain by month

```mermaid
xychart-beta
  title "Rain"
  x-axis [Jan, "Feb, or so", Mar]
  y-axis "mm" 0 --> 90
  bar [78, 52.5, 61]
```

---

# Who drinks what

```mermaid {scale: 0.6}
pie showData title Drinks
  "Tea" : 40
  "Coffee" : 60
```

---

# Neither

```mermaid {scale: 0.3}
xychart-beta
  x-axis [a, b]
  bar [1, 2]
  line [2, 1]
```

```mermaid
flowchart LR
  A[Start] --> B[End]
```

---
layout: two-cols
---

# Sides

- left one
- left two

::right::

1. right one
2. right two
   - deeper

---
layout: image-right
image: images/a.png
---

# A picture

Beside it these words
"""


def effective(slide, paragraph, tag):
    """What a paragraph in a place has of this kind: its own, its layout's, or the master's."""
    level = f"{{*}}lvl{paragraph.level + 1}pPr"
    [shape] = [one for one in slide.placeholders if paragraph._p in list(one._element.iter("{*}p"))]
    base = slide.slide_layout.placeholders.get(shape.placeholder_format.idx)._element
    is_title = shape.placeholder_format.idx == 0
    master = slide.slide_layout.slide_master._element
    style = master.find("{*}txStyles/{*}titleStyle" if is_title else "{*}txStyles/{*}bodyStyle")
    for about in (paragraph._p.pPr, base.find(f".//{{*}}lstStyle/{level}"), style.find(level)):
        if about is not None and (found := about.find(f"{{*}}{tag}")) is not None:
            return found


def text_of(slide):
    """The texts of a slide in the order of its shapes: a paragraph each, the cells of a table by rows."""
    found = []
    for shape in slide.shapes:
        frames = [shape.text_frame] if shape.has_text_frame else []
        if shape.has_table:
            cells = [cell for row in shape.table.rows for cell in row.cells]
            frames = [cell.text_frame for cell in cells if not cell.is_spanned]
        found += [one.text for frame in frames for one in frame.paragraphs if one.text.strip()]
    return found


def words(text):
    return Counter(re.findall(r"\w+", text.casefold()))


def alt(shape):
    return shape._element.nvPicPr.cNvPr.get("descr", "")


def is_picture(shape):
    return hasattr(shape, "image")


def external(path):
    """The targets outside of the package that its relationships name."""
    found = []
    with zipfile.ZipFile(path) as package:
        for name in package.namelist():
            if name.endswith(".rels"):
                relations = re.findall(r"<Relationship [^>]*>", package.read(name).decode())
                outside = [one for one in relations if 'TargetMode="External"' in one]
                found += [re.search(r'Target="([^"]*)"', one)[1] for one in outside]
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What makes decks, each once: `made(name)` is (the file to edit, the file of pictures)."""
    run = tmp_path_factory.mktemp("powerpoint")
    decks = {"look": LOOK, "features": (FEATURES.replace("THEME", "seriph"), {"images/a.png": GIF})}
    decks["charts"] = (CHARTS, {"images/a.png": GIF})

    @functools.cache
    def files(name):
        if name in OURS:
            (run / name).mkdir()
            (run / name / "deck.md").write_text(OURS[name].read_text())
            shown = pictures.illustrate(run, {"id": name, "deck": {"path": f"{name}/deck.md"}})
            read = {
                str(Path(one["path"]).relative_to(name)): (run / one["path"]).read_bytes()
                for one in shown["items"]
            }
            decks[name] = ((run / shown["path"]).read_text(), read)
        value = build(run, {name: decks[name]}, formats=("pptx", "pptx-image"))[name]
        assert "error" not in value
        return tuple(run / value[kind]["path"] for kind in ("pptx", "pptx_image"))

    return files


SMALL = ["look", "features", "charts"]
SOME = pytest.mark.parametrize("names", [SMALL, pytest.param([*OURS], marks=pytest.mark.long)])


@SOME
def test_every_word_of_a_slide_is_text_in_the_file_or_the_description_of_a_picture(made, names):
    for name in names:
        edited, pictured = made(name)
        show, shown = Presentation(edited), Presentation(pictured)
        assert len(show.slides) == len(shown.slides) > 0
        assert (show.slide_width, show.slide_height) == (
            Emu(12192000),
            Emu(round(552 * 12192000 / 980)),
        )
        for number, (slide, picture) in enumerate(zip(show.slides, shown.slides, strict=True), 1):
            seen = words(alt(picture.shapes[0]))
            written = words(" ".join(text_of(slide)))
            described = words(" ".join(alt(one) for one in slide.shapes if is_picture(one)))
            if any(one.has_chart for one in slide.shapes):
                continue  # its words are in the chart, and who drew it had others on its axis
            assert written <= seen, (name, number, written - seen)
            if not any(map(is_picture, slide.shapes)):
                assert written == seen, (name, number)
            elif name != "features":  # whose formulas are described by their source
                assert set(seen - written) <= set(described), (name, number)


def test_text_stands_in_the_order_of_the_slides_and_the_first_heading_is_the_title(made):
    slides = list(Presentation(made("features")[0]).slides)
    assert [text_of(slide) for slide in slides] == [
        ["Coral reefs 珊瑚礁", "A short tour"],
        ["Code", "def reef(n):\x0b    total = 0\x0b    return total"],
        ["Diagram"],
        ["Formula", "Inline \u00a0 and"],
        ["Table", "Reef", "Area", "North", "120"],
        ["Clicks", "one", "two", "hidden until a click", "Said somebody"],
        ["Left", "Right"],
        ["Picture"],
    ]
    assert [slide.shapes.title.text_frame.text for slide in slides][:2] == [
        "Coral reefs 珊瑚礁",
        "Code",
    ]
    notes = [slide.has_notes_slide and slide.notes_slide.notes_text_frame.text for slide in slides]
    assert notes == [False] * 5 + ["a note for the speaker"] + [False] * 2
    count = [sum(map(is_picture, slide.shapes)) for slide in slides]
    assert count == [0, 0, 1, 2, 0, 2, 0, 0]  # the last shows a picture of nothing


def test_layouts_places_and_charts_are_powerpoints_own(made):
    slides = list(Presentation(made("charts")[0]).slides)
    assert [slide.slide_layout.name for slide in slides] == [
        "Title Slide", "Section Header", "Title and Content", "Title and Content", "Title Only", "Two Content", "Picture with Caption",
    ]  # fmt: skip
    charts = [shape for slide in slides for shape in slide.shapes if shape.has_chart]
    assert [one.chart.chart_title.text_frame.text for one in charts] == ["Rain", "Drinks"]
    assert [list(one.chart.plots[0].categories) for one in charts] == [
        ["Jan", "Feb, or so", "Mar"],
        ["Tea", "Coffee"],
    ]
    assert [list(one.chart.plots[0].series[0].values) for one in charts] == [
        [78, 52.5, 61],
        [40, 60],
    ]
    assert [one.placeholder_format.idx for one in charts] == [1, 1]
    assert sum(map(is_picture, slides[4].shapes)) == 2  # no single chart shows bars and a line
    left, right = (slides[5].placeholders[at].text_frame.paragraphs for at in (1, 2))
    assert [(one.text, one.level) for one in left] == [("left one", 0), ("left two", 0)]
    assert [(one.text, one.level) for one in right] == [
        ("right one", 0),
        ("right two", 0),
        ("deeper", 1),
    ]
    assert effective(slides[5], left[0], "buChar") is not None
    assert effective(slides[5], right[0], "buAutoNum").get("type") == "arabicPeriod"
    assert slides[6].placeholders[2].text_frame.text == "Beside it these words"


@pytest.mark.skipif(not shutil.which("soffice"), reason="LibreOffice is not here")
@pytest.mark.parametrize(
    "names, least", [(SMALL, 10), pytest.param([*SMALL, *OURS], 25, marks=pytest.mark.long)]
)
def test_titles_of_one_line_are_one_line_in_libreoffice_without_the_fonts(
    made, tmp_path, names, least
):
    files = [tmp_path / f"{name}.pptx" for name in names]
    for file in files:
        shutil.copyfile(made(file.stem)[0], file)
    home = f"-env:UserInstallation=file://{tmp_path}/home"
    command = ["soffice", home, "--headless", "--convert-to", "pdf", "--outdir", tmp_path, *files]
    subprocess.run(command, check=True, capture_output=True)
    seen, wrapped = 0, []
    for file in files:
        pages = PdfReader(file.with_suffix(".pdf")).pages
        for page, slide in zip(pages, Presentation(file).slides, strict=True):
            title = slide.shapes.title
            if not title or not title.text_frame.text:
                continue
            paragraphs = title.text_frame.paragraphs
            heights = [int(effective(slide, one, "lnSpc")[0].get("val")) for one in paragraphs]
            if round(title.height.pt * 100 / sum(heights)) == 1 and len(paragraphs) == 1:
                seen += 1
                lines = [re.sub(r"[^!-~]", "", line) for line in page.extract_text().splitlines()]
                if not any(re.sub(r"[^!-~]", "", title.text_frame.text) in line for line in lines):
                    wrapped.append((file.stem, title.text_frame.text))
    assert seen > least and wrapped == []


def test_tables_are_tables_with_their_widths_and_merged_cells(made):
    [table] = [
        one.table
        for one in list(Presentation(made("features")[0]).slides)[4].shapes
        if one.has_table
    ]
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["Reef", "Area"],
        ["North", "120"],
    ]
    assert table.cell(1, 1).text_frame.paragraphs[0].alignment == 3  # right, as the deck has it
    assert sum(column.width for column in table.columns) > Emu(9_000_000)
    [merged] = [
        one.table for one in list(Presentation(made("look")[0]).slides)[1].shapes if one.has_table
    ]
    assert merged.cell(0, 0).is_merge_origin and merged.cell(0, 1).is_spanned
    assert [cell.text for cell in merged.rows[1].cells] == ["one", "two"]


def test_runs_say_how_text_looks_and_where_links_lead(made):
    slide = Presentation(made("look")[0]).slides[0]
    [line] = [
        one
        for shape in slide.shapes
        if shape.has_text_frame
        for one in shape.text_frame.paragraphs
        if one.text.startswith("Plain")
    ]
    runs = {run.text: run for run in line.runs}
    assert (
        "".join(run.text for run in line.runs) == "Plain, bold, code, gone and a link in one line"
    )
    assert runs["bold"].font.bold and not runs["Plain, "].font.bold
    assert runs["a link"].hyperlink.address == "https://example.org/a?b=1&c=2"
    assert runs["gone"]._r.rPr.get("strike") == "sngStrike"
    assert runs["code"].font.name == "Fira Code"
    assert runs["code"]._r.rPr.find("{*}highlight") is not None
    assert external(made("look")[0]) == ["https://example.org/a?b=1&amp;c=2"]


def test_lists_are_lists_and_a_box_is_a_shape_of_its_colour(made):
    slide = Presentation(made("look")[0]).slides[0]
    body = slide.placeholders[1].text_frame.paragraphs
    items = {one.text: one for one in body}
    assert [one.level for one in body] == [0, 0, 0, 1]
    assert effective(slide, items["first"], "buAutoNum").get("type") == "arabicPeriod"
    assert effective(slide, items["deeper"], "buChar").get("char")
    xml = [shape._element.xml for shape in slide.shapes if "roundRect" in shape._element.xml]
    assert len(xml) == 1
    fill = re.search(r'<a:solidFill>\s*<a:(?:srgbClr|schemeClr) val="(\w+)"', xml[0])[1]
    assert fill == "204060" or fill.startswith("accent")


def test_columns_are_boxes_beside_each_other_and_paragraphs_of_one_column_share_a_box(made):
    slide = list(Presentation(made("look")[0]).slides)[1]
    boxes = {one.text_frame.text: one for one in slide.shapes if one.has_text_frame}
    left, right = boxes["Left one\nLeft two"], boxes["Right one"]
    assert left.left < right.left and abs(left.top - right.top) < Emu(300_000)
    assert right.text_frame.paragraphs[0].alignment == 3
    picture = next(one for one in slide.shapes if is_picture(one))
    assert alt(picture) == "a^2"
    assert "A formula \u00a0 in a line" in boxes


def test_zoom_counts_and_what_a_style_draws_is_a_picture_in_its_place(made):
    slide = list(Presentation(made("look")[0]).slides)[2]
    [line] = [
        one
        for one in slide.shapes
        if one.has_text_frame and one.text_frame.text == "Text of twenty"
    ]
    paragraph = line.text_frame.paragraphs[0]
    size = effective(slide, paragraph, "defRPr").get("sz")
    assert abs(int(size) / 100 - 30 * 960 / 980) < 0.1
    height = effective(slide, paragraph, "lnSpc")[0].get("val")
    assert abs(int(height) / 100 - 45 * 960 / 980) < 0.1
    [drawn] = [one for one in slide.shapes if is_picture(one)]
    assert abs(drawn.width - 45 * 12192000 / 980) < 10 * 12192000 / 980


@pytest.mark.parametrize(
    "grounds",
    [
        {"look": "FFFFFF"},
        pytest.param({"gold": "FFFFFF", "reference": None}, marks=pytest.mark.long),
    ],
)
def test_the_theme_has_the_colours_and_fonts_of_the_deck(made, grounds):
    for name, ground in grounds.items():
        with zipfile.ZipFile(made(name)[0]) as package:
            theme = package.read("ppt/theme/theme1.xml").decode()
        colours = dict(re.findall(r'<a:(\w+)><a:srgbClr val="(\w{6})"/></a:\1>', theme))
        assert ground in (None, colours["lt1"]) and colours["dk1"] != colours["lt1"]
    with zipfile.ZipFile(made("features")[0]) as package:
        theme = package.read("ppt/theme/theme1.xml").decode()
        slide = package.read("ppt/slides/slide5.xml").decode()
    assert re.search('<a:minorFont><a:latin typeface="PT Serif" pitchFamily="18"[^>]*/>', theme)
    assert 'typeface="+mn-lt"' in slide and 'val="tx1"' in slide


@pytest.mark.long("test_text_stands_in_the_order_of_the_slides_and_the_first_heading_is_the_title")
def test_the_reference_deck_is_text_on_its_slides_and_keeps_its_notes(made):
    slides = list(Presentation(made("reference")[0]).slides)
    notes = [slide.notes_slide.notes_text_frame.text for slide in slides if slide.has_notes_slide]
    written = re.findall(r"<!--\s*(.*?)\s*-->", OURS["reference"].read_text(), re.S)
    assert [" ".join(note.split()) for note in notes] == [
        " ".join(note.split()) for note in written
    ]
    assert any(shape.has_table for slide in slides for shape in slide.shapes)
    assert all(text_of(slide) for slide in slides)


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_deck_made_again_has_the_same_bytes(made, tmp_path, fresh):
    value = build(tmp_path, {"look": LOOK}, formats=("pptx",), fresh=fresh)["look"]
    assert (tmp_path / value["pptx"]["path"]).read_bytes() == made("look")[0].read_bytes()


@pytest.mark.long(
    "tests/render/test_site.py::test_what_a_deck_says_cannot_break_the_page_the_pdf_or_the_powerpoint_file"
)
def test_nothing_of_a_hostile_deck_reaches_the_network_or_a_file_or_stands_in_the_package(tmp_path):
    canary = Canary()
    secret = tmp_path / "secret.txt"
    secret.write_text("the-secret-words")
    there = f"http://127.0.0.1:{canary.port}"
    deck = f"""---
theme: default
---

# Hostile

[own](http://example.org/own) [page](/2) <a href="javascript:alert(1)">run</a> <a href="data:text/html,x">data</a>

<a href="file://{secret}">share</a> <a href="\\\\\\\\127.0.0.1\\share">unc</a> <a href="ms-word:ofe|u|{there}">office</a>

<img src="{there}/picture.png"> <img src="file://{secret}"> ![x]({there}/y.png)

<div style="background: url({there}/ground.png); width: 90px; height: 90px">ground</div>

<script>fetch("{there}/script")</script>

---

# Form

<form><input name="childNodes" value="v"><input name="localName"></form>

---

# Second

<div :ref="el => {{ if (el) {{ for (let i = 0; i < 1600; i++) el.append(Object.assign(el.ownerDocument.createElement('p'), {{ textContent: 'p' + i, style: 'position: absolute; top: 90px; border: 1px solid red' }})) }} }}" />

---

# Third

x
"""
    value = build(tmp_path, {"x": deck}, formats=("pptx",))["x"]
    canary.close()
    assert canary.hits == []
    assert value["slides"] == 4 and "pptx" in value
    path = tmp_path / value["pptx"]["path"]
    assert external(path) == ["http://example.org/own"]
    with zipfile.ZipFile(path) as package:
        everything = b"".join(package.read(name) for name in package.namelist())
    for never in (
        b"the-secret-words",
        b"file:",
        b"javascript:",
        there.encode(),
        b".deck/",
        b"ms-word",
    ):
        assert never not in everything, never
    slides = list(Presentation(path).slides)
    assert [is_picture(one) for one in slides[1].shapes] == [True]  # it cannot be read
    assert [is_picture(one) for one in slides[2].shapes] == [True]  # of too many parts
    assert text_of(slides[3]) == ["Third", "x"]


def test_a_slide_that_fails_is_an_error_slide_to_edit(tmp_path):
    deck = "---\ntheme: default\n---\n\n# One\n\n---\n\n# Two\n\n{{ nothing.at.all }}\n\n---\n\n# Three\n"
    value = build(tmp_path, {"x": deck}, formats=("pptx",))["x"]
    slides = list(Presentation(tmp_path / value["pptx"]["path"]).slides)
    assert text_of(slides[1])[0].startswith("Slide 2 could not be rendered")
    assert Path(value["pptx"]["path"]).name == "deck.pptx"
