"""What is read of a document that a visitor brings."""

import asyncio
import io

import pytest
from decksmith.measure.decks import sources
from decksmith.people.demo import demo_app
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject


def read(name, data):
    return asyncio.run(demo_app.read_document(name, data))


def pdf(pages):
    """A PDF whose pages say these texts."""
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in pages:
        page = writer.add_blank_page(600, 800)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        content = DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 40 700 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(content)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_a_short_text_is_used_whole():
    assert read("notes.md", b"\xef\xbb\xbf# Tides\r\n\r\ntwo a day\n") == {
        "name": "notes.md",
        "text": "# Tides\n\ntwo a day",
        "cut": None,
    }
    assert read("alt.TXT", "für".encode("cp1252"))["text"] == "für"


def test_a_long_text_is_cut_at_a_paragraph_and_says_so():
    paragraph = "word " * 99 + "end."
    found = read("long.txt", "\n\n".join([paragraph] * 100).encode())
    assert sources.BUDGET - 600 < len(found["text"]) <= sources.BUDGET
    assert found["text"].endswith("end.")
    used, whole = len(found["text"]), 100 * len(paragraph) + 198
    assert (
        found["cut"]
        == f"The first {used:,} of {whole:,} characters are used; the rest was left out."
    )


def test_a_pdf_is_read_as_text_and_not_beyond_the_budget():
    found = read("paper.pdf", pdf(["Eelgrass stores carbon", "It needs light"]))
    assert found["text"] == "Eelgrass stores carbon\n\nIt needs light" and found["cut"] is None
    found = read("paper.pdf", pdf(["word " * 1000] * 5))
    assert "on the first 3 of 5 pages are used" in found["cut"]


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("x.docx", b"PK", "give one of .md, .txt, .html, .pdf"),
        ("x.txt", b"a\0b", "is no text"),
        ("x.md", b" \n", "has no text"),
        ("x.md", b"a" * (sources.LARGEST + 1), "at most 5 are read"),
        ("x.pdf", b"%PDF-1.4 nothing", "cannot be read"),
        ("x.pdf", pdf([""]), "a scanned page is a picture"),
    ],
)
def test_what_cannot_be_used_is_said(name, data, why):
    with pytest.raises(sources.NotRead, match=why):
        read(name, data)
