"""What a worker says of a slide is held to what a file may have; no browser: the parts are written here."""

import io

import pytest
from decksmith.measure.render import powerpoint, shapes
from PIL import Image
from pptx import Presentation

STYLE = {
    "font": "Inter", "size": 20, "ink": [0, 0, 0, 1], "gradient": None, "bold": False, "italic": False, "underline": False,
    "strike": False, "spacing": 0, "caps": False, "raised": 0, "highlight": None, "link": "",
}  # fmt: skip


def text(*runs, **more):
    """A text node of one paragraph."""
    paragraph = {**shapes.EMPTY, "height": 24, "runs": list(runs)}
    node = {"kind": "text", "rect": [10, 10, 300, 24], "wrap": True, "full": 0.5, "heading": False}
    return node | {"paragraphs": [paragraph]} | more


def made(*nodes, background=(255, 255, 255, 1), pseudo=False, shots=()):
    """The presentation of one slide of these nodes."""
    part = {"background": list(background), "nodes": list(nodes), "pseudo": pseudo}
    data = powerpoint.powerpoint([part], [list(shots)], [b""], ["T"], ["A"], ["N"])
    return Presentation(io.BytesIO(data))


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
    with pytest.raises(ValueError, match="length that cannot be"):
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
    assert (
        'schemeClr val="tx1"' in slide._element.xml
        and 'schemeClr val="accent1"' in slide._element.xml
    )


def test_a_numbering_that_powerpoint_does_not_have_is_refused():
    node = text({**STYLE, "text": "x"})
    node["paragraphs"][0] |= {"left": 20, "marker": {"number": "evil", "start": 1, "hang": 10}}
    with pytest.raises(ValueError, match="numbering"):
        made(node)
