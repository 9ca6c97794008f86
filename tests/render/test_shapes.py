"""What a worker says of a slide is held to what a file may have; no browser: the parts are written here."""

import base64
import io
import re
import zipfile

import pytest
from decksmith.measure.render import powerpoint, shapes
from PIL import Image
from pptx import Presentation
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Emu

STYLE = {
    "font": "Inter", "size": 20, "ink": [0, 0, 0, 1], "gradient": None, "bold": False, "italic": False, "underline": False,
    "strike": False, "spacing": 0, "caps": False, "raised": 0, "highlight": None, "link": "",
}  # fmt: skip


def text(*runs, **more):
    """A text node of one paragraph."""
    paragraph = {**shapes.EMPTY, "height": 24, "runs": list(runs)}
    node = {"kind": "text", "rect": [10, 10, 300, 24], "wrap": True, "full": 0.5}
    return node | {"paragraphs": [paragraph]} | more


def sheet(
    *nodes, background=(255, 255, 255, 1), pseudo=False, shots=(), layout="Title and Content"
):
    """A slide of these nodes, as a worker tells it."""
    part = {
        "background": list(background),
        "layout": layout,
        "nodes": list(nodes),
        "pseudo": pseudo,
    }
    return part | {"shots": [base64.b64encode(shot).decode() for shot in shots]}


def result(*parts):
    """What a worker makes of a deck of these slides."""
    pages, count = [{"title": "T", "text": "A"}] * len(parts), len(parts)
    return {"parts": parts, "pictures": [""] * count, "xray": pages, "notes": ["N"] * count}


def file_of(*parts):
    """The presentation of these slides."""
    return Presentation(io.BytesIO(powerpoint.powerpoint(result(*parts))))


def made(*nodes, **facts):
    """The presentation of one slide of these nodes."""
    return file_of(sheet(*nodes, **facts))


def frame(*drawn, size=(1960, 1104)):
    """A frame, PNG bytes, with these rectangles drawn in it."""
    picture = Image.new("RGBA", size)
    for rect in drawn:
        picture.paste((255, 0, 0, 255), rect)
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "javascript:x", "\\\\host\\share", "http://a b", "/2", "http://0123456789abcdef01234567.deck/2",
     "https://x/" + "a" * 2000, "ms-word:ofe|u|http://x", "http://x/\x00", 'http://x/"', " https://x"],
)  # fmt: skip
def test_an_address_that_is_not_of_the_web_or_of_mail_is_no_link(address):
    assert shapes.link(address) is None
    slide = made(text({**STYLE, "text": "x", "link": address})).slides[0]
    assert not [one for one in slide.part.rels.values() if one.is_external]


def test_addresses_of_the_web_and_of_mail_are_links():
    for address in ("https://example.org/a?b=1&c=2#d", "http://x", "mailto:a@example.org"):
        slide = made(text({**STYLE, "text": "x", "link": address})).slides[0]
        assert slide.shapes[0].text_frame.paragraphs[0].runs[0].hyperlink.address == address


def test_text_loses_what_xml_cannot_hold():
    slide = made(text({**STYLE, "text": "a\x00b\x08\ud800c <&> ]]>"})).slides[0]
    assert slide.shapes[0].text_frame.text == "abc <&> ]]>"


@pytest.mark.parametrize("length", [float("nan"), float("inf"), "12", None])
def test_a_length_that_is_none_is_refused(length):
    with pytest.raises(ValueError, match="number that cannot be"):
        shapes.emu(length)


def test_lengths_and_colours_are_held_to_their_range():
    assert shapes.emu(1e12) == shapes.emu(4 * shapes.WIDTH)
    assert shapes.ink([300, -5, 16.4, 1]) == "FF0010"
    assert (
        made(text({**STYLE, "text": "x", "size": 1e9})).slides[0].shapes[0].text_frame.text == "x"
    )


def test_a_frame_that_is_no_png_or_not_of_a_slide_is_refused():
    node = {
        "kind": "picture",
        "rect": [0, 0, 10, 10],
        "frame": 0,
        "alt": "",
        "link": "",
        "ground": False,
    }
    with pytest.raises(OSError):
        made(node, shots=[b"GIF89a"])
    with pytest.raises(ValueError, match="frame of"):
        made(node, shots=[frame(size=(100, 100))])


def test_a_picture_is_cut_from_its_frame_and_an_empty_one_is_left_out():
    node = {
        "kind": "picture",
        "rect": [100, 50, 200, 100],
        "frame": 0,
        "alt": "red",
        "link": "",
        "ground": False,
    }
    gone = {**node, "rect": [600, 400, 50, 50]}
    slide = made(node, gone, shots=[frame((200, 100, 600, 300))]).slides[0]
    [shape] = slide.shapes
    assert shape.image.size == (400, 200)
    assert Image.open(io.BytesIO(shape.image.blob)).getcolors() == [(80000, (255, 0, 0))]


def test_a_picture_of_the_whole_slide_is_its_background():
    node = {
        "kind": "picture",
        "rect": [0, 0, 980, 552],
        "frame": 0,
        "alt": "",
        "link": "",
        "ground": True,
    }
    slide = made(node, text({**STYLE, "text": "x"}), shots=[frame((0, 0, 1960, 552))]).slides[0]
    assert [shape.text_frame.text for shape in slide.shapes] == ["x"]
    assert slide._element.find(".//{*}bgPr/{*}blipFill") is not None


def test_what_pseudo_elements_draw_comes_in_pieces_behind_the_text_over_it():
    shot = frame((20, 20, 60, 60), (1000, 800, 1100, 900))
    slide = made(text({**STYLE, "text": "over"}), pseudo=True, shots=[shot]).slides[0]
    kinds = [hasattr(shape, "image") for shape in slide.shapes]
    assert kinds == [True, False, True]


def test_the_room_of_a_picture_in_a_line_is_a_space_of_its_width():
    slide = made(text({**STYLE, "text": "a "}, {"gap": 50}, {**STYLE, "text": " b"})).slides[0]
    runs = slide.shapes[0].text_frame.paragraphs[0].runs
    assert [run.text for run in runs] == ["a ", "\u00a0", " b"]
    assert int(runs[1]._r.rPr.get("spc")) == round((50 - 0.26 * 20) * 960 / 980 * 100)


def test_lines_of_code_are_broken_and_keep_their_spaces():
    slide = made(
        text({**STYLE, "text": "if x:"}, {"text": "\n"}, {**STYLE, "text": "    y"})
    ).slides[0]
    assert slide.shapes[0].text_frame.text == "if x:\x0b    y"


def test_the_background_and_the_ink_of_most_text_are_the_themes():
    light = {**STYLE, "text": "much text in this colour", "ink": [250, 240, 230, 1]}
    accent = {**STYLE, "text": "few", "ink": [255, 128, 0, 1]}
    show = made(text(light, accent), background=(16, 32, 48, 1))
    [theme] = [
        one.target_part
        for one in show.slide_master.part.rels.values()
        if one.reltype.endswith("/theme")
    ]
    xml = theme.blob.decode()
    for slot, colour in (("lt1", "102030"), ("dk1", "FAF0E6"), ("accent1", "FF8000")):
        assert f'<a:{slot}><a:srgbClr val="{colour}"/></a:{slot}>' in xml
    slide = show.slides[0]
    assert "p:bg" not in slide._element.xml  # the master's, which is the theme's
    assert 'schemeClr val="accent1"' in slide._element.xml
    assert (
        show.slide_master._element.find("{*}txStyles/{*}bodyStyle//{*}schemeClr[@val='tx1']")
        is not None
    )


def test_a_numbering_that_powerpoint_does_not_have_is_refused():
    node = text({**STYLE, "text": "x"})
    node["paragraphs"][0] |= {"left": 20, "marker": {"number": "evil", "start": 1, "hang": 10}}
    with pytest.raises(ValueError, match="numbering"):
        made(node)


# --- layouts, places, and what the slides share ---------------------------------------------------


def title(words="Title", size=36, **more):
    run = {**STYLE, "text": words, "size": size}
    return text(run, **{"place": 0, "rect": [50, 40, 880, 48], **more})


def items(*levels, rect=(50, 120, 400, 200), sign="•", place=1):
    """A text node that is a list, an item of each of these levels."""
    node = text(rect=list(rect), place=place)
    node["paragraphs"] = [
        {
            **shapes.EMPTY,
            "height": 28,
            "left": 20 * (level + 1),
            "level": level,
            "marker": {"sign": sign, "hang": 15, "ink": [0, 0, 0, 1]},
            "runs": [{**STYLE, "text": f"item {at}", "size": 20 - 2 * level}],
        }
        for at, level in enumerate(levels)
    ]
    return node


def picture(rect, **more):
    node = {
        "kind": "picture",
        "rect": rect,
        "frame": 0,
        "alt": "a reef",
        "link": "",
        "ground": True,
    }
    return node | more


def table(rect):
    cell = {"row": 0, "column": 0, "down": 1, "across": 1, "inset": [4, 4, 4, 4], "middle": False,
            "edges": [None] * 4, "fill": None, "paragraphs": text({**STYLE, "text": "cell"})["paragraphs"]}  # fmt: skip
    return {
        "kind": "table",
        "place": 1,
        "rect": rect,
        "rows": [30],
        "columns": [rect[2]],
        "cells": [cell],
    }


def chart(**more):
    told = {"kind": "column", "title": "Sales", "categories": ["a", "b"]}
    told |= {"series": [["one", [1, 2.5]]]} | more
    return picture([50, 120, 400, 300], chart=told, ground=False, place=1)


def filled(slide):
    """{place: text, table, chart or picture} of the places of a slide."""
    return {
        one.placeholder_format.idx: one.text_frame.text
        if one.has_text_frame
        else "table"
        if one.has_table
        else "chart"
        if one.has_chart
        else "picture"
        for one in slide.placeholders
    }


def test_nodes_fill_the_places_of_their_slides_layout_and_empty_places_go():
    left, right = items(0), items(0, 1, rect=(520, 120, 400, 200), place=2)
    shot = [frame((0, 0, 1960, 1104))]
    cases = [
        ("Title Slide", [title(), text({**STYLE, "text": "sub"}, place=1)], {0: "Title", 1: "sub"}),
        ("Section Header", [title()], {0: "Title"}),
        ("Two Content", [title(), left, right], {0: "Title", 1: "item 0", 2: "item 0\nitem 1"}),
        ("Picture with Caption", [picture([490, 0, 490, 552], place=1), title(), right], {0: "Title", 1: "picture", 2: "item 0\nitem 1"}),
        ("Picture with Caption", [picture([0, 0, 980, 552], place=1)], {1: "picture"}),
        ("Title and Content", [title(), text({**STYLE, "text": "free"}), left], {0: "Title", 1: "item 0"}),
        ("Title and Content", [title(), table([50, 100, 300, 30])], {0: "Title", 1: "table"}),
        ("Title and Content", [chart()], {1: "chart"}),
        ("Title Only", [title(), text({**STYLE, "text": "free"}, place=7)], {0: "Title"}),
        ("Blank", [], {}),
    ]  # fmt: skip
    show = file_of(*(sheet(*nodes, layout=name, shots=shot) for name, nodes, _ in cases))
    for slide, (name, _, places) in zip(show.slides, cases, strict=True):
        assert (slide.slide_layout.name, filled(slide)) == (name, places), name
    assert made(title(), layout="../evil").slides[0].slide_layout.name == "Blank"
    reef = next(one for one in show.slides[3].placeholders if one.placeholder_format.idx == 1)
    assert reef._element.nvPicPr.cNvPr.get("descr") == "a reef"


def test_what_most_slides_share_is_the_masters_so_that_a_change_of_it_changes_them():
    cover = sheet(title("Cover", size=60, rect=[50, 200, 880, 70]), layout="Title Slide")
    plain = [sheet(title(f"Slide {no}"), items(0, 0, 1)) for no in range(3)]
    odd = sheet(title("Odd", size=44, rect=[50, 60, 880, 48]), items(0, sign="–"))
    show = file_of(cover, *plain, odd)
    master = show.slide_master
    level = master._element.find("{*}txStyles/{*}titleStyle/{*}lvl1pPr")
    sizes = [slide.shapes.title.text_frame.paragraphs[0].runs[0].font.size for slide in show.slides]
    assert sizes[:4] == [None] * 4 and sizes[4] is not None
    assert level.find("{*}defRPr").get("sz") and level.find("{*}lnSpc/{*}spcPts") is not None
    [own] = [one for one in show.slide_layouts[0].placeholders if one.placeholder_format.idx == 0]
    assert own._element.find(".//{*}lvl1pPr/{*}defRPr").get("sz") != level.find("{*}defRPr").get(
        "sz"
    )
    # Bullets and levels are the master's; who differs says so.
    bullets = master._element.find("{*}txStyles/{*}bodyStyle")
    assert bullets.find("{*}lvl1pPr/{*}buChar").get("char") == "•"
    assert int(bullets.find("{*}lvl2pPr").get("marL")) > int(bullets.find("{*}lvl1pPr").get("marL"))
    bodies = [slide.placeholders[1].text_frame.paragraphs for slide in list(show.slides)[1:]]
    assert [[one.level for one in body] for body in bodies[:3]] == [[0, 0, 1]] * 3
    assert bodies[0][0]._p.pPr.find("{*}buChar") is None
    assert bodies[3][0]._p.pPr.find("{*}buChar").get("char") == "–"
    # They stand where the layout says, until it says otherwise.
    place = show.slides[1].shapes.title
    assert place._element.spPr.find("{*}xfrm") is None and place.top == shapes.emu(40)
    assert show.slides[4].shapes.title.top == shapes.emu(60)
    assert show.slides[0].shapes.title.top == shapes.emu(200)
    next(one for one in master.placeholders if one.placeholder_format.idx == 0).top = Emu(99)
    assert [slide.shapes.title.top for slide in show.slides][1:4] == [Emu(99)] * 3


def test_text_in_places_gets_smaller_where_a_font_is_missing_and_never_a_line_more():
    tight = title("As wide as its box", wrap=False, full=0.97)
    slide = made(tight, items(0)).slides[0]
    for shape in slide.placeholders:
        body = shape._element.find(".//{*}bodyPr")
        assert body.find("{*}normAutofit") is not None and body.get("wrap") is None
        base = slide.slide_layout.placeholders.get(shape.placeholder_format.idx)
        assert base._element.find(".//{*}bodyPr").get("wrap") == "square"
    assert slide.shapes.title.width > shapes.emu(880)


def test_fonts_say_what_a_machine_that_lacks_them_may_take():
    code = {**STYLE, "text": "x = 1", "font": "Fira Code"}
    show = made(text({**STYLE, "text": "much more text than code"}), text(code))
    [theme] = [
        one.target_part
        for one in show.slide_master.part.rels.values()
        if one.reltype.endswith("/theme")
    ]
    assert re.search(rb'<a:latin typeface="Inter" pitchFamily="34"', theme.blob)
    assert re.search(r'typeface="Fira Code" pitchFamily="49"', show.slides[0]._element.xml)


@pytest.mark.parametrize(("kind", "made_as"), [
    ("pie", XL_CHART_TYPE.PIE), ("bar", XL_CHART_TYPE.BAR_CLUSTERED),
    ("column", XL_CHART_TYPE.COLUMN_CLUSTERED), ("line", XL_CHART_TYPE.LINE_MARKERS),
])  # fmt: skip
def test_the_data_of_a_diagram_is_a_chart_of_powerpoints_own(kind, made_as):
    slide = made(title(), chart(kind=kind)).slides[0]
    [frame_] = [one for one in slide.shapes if one.has_chart]
    drawn = frame_.chart
    assert drawn.chart_type in (made_as, XL_CHART_TYPE.LINE)
    assert list(drawn.plots[0].categories) == ["a", "b"]
    assert list(drawn.plots[0].series[0].values) == [1, 2.5]
    assert drawn.chart_title.text_frame.text == "Sales" and drawn.has_legend == (kind == "pie")
    assert frame_._element.find(".//{*}cNvPr").get("descr") == "a reef"


@pytest.mark.parametrize("told", [
    {"kind": "evil"}, {"categories": ["a"]}, {"series": []}, {"series": [["x", [1, "2"]]]},
    {"series": [["x", [1, float("nan")]]]}, {"categories": ["a"] * 3000, "series": [["", [1] * 3000]]},
])  # fmt: skip
def test_a_chart_that_cannot_be_is_refused(told):
    with pytest.raises(ValueError, match="the worker named a (chart|number)"):
        made(chart(**told))


def test_words_of_a_chart_are_no_formula_and_no_link_and_its_file_is_the_same_each_time():
    names = [
        '=HYPERLINK("http://x")',
        "http://example.org/x",
        "{=1+1}",
        "@SUM(1)",
        "external:x",
        "Jan: 1",
    ]
    values = [float(at) for at in range(len(names))]
    evil = chart(title="=1+1", categories=names, series=[["mailto:a@b.c", values]])
    data = powerpoint.powerpoint(result(sheet(evil)))
    assert data == powerpoint.powerpoint(result(sheet(evil)))
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        [table_] = [name for name in package.namelist() if name.endswith(".xlsx")]
        with zipfile.ZipFile(io.BytesIO(package.read(table_))) as book:
            everything = {name: book.read(name) for name in book.namelist()}
    assert b"<f>" not in everything["xl/worksheets/sheet1.xml"]
    assert not [name for name in everything if "rels" in name and b"External" in everything[name]]
    assert b"2024-01-01T00:00:00Z" in everything["docProps/core.xml"]
