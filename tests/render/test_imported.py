"""Decks of other programs as people have them, ugly ones too, made here: what is read of them, and what is refused."""

import io
import shutil
import subprocess
import sys
import zipfile

import fuzz
import pytest
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.decks.parser import Deck
from decksmith.measure.judging import checks, scoring
from decksmith.measure.judging.rendered import Pages
from decksmith.measure.render import imported, pool
from PIL import Image, ImageDraw
from pptx import Presentation
from pptx.util import Inches, Pt

pytestmark = pytest.mark.slow

READER = cli.ROOT / "assets/renderer/foreign.py"


def pdf(*pages, box="0 0 960 540", more="", trailer=""):
    """A PDF by hand: each page is what it draws."""
    count = len(pages)
    kids = " ".join(f"{3 + 2 * n} 0 R" for n in range(count))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {trailer} >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>",
    ]
    for n, drawn in enumerate(pages):
        font = "<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
        place = f"/MediaBox [{box}] {more} /Resources {font} /Contents {4 + 2 * n} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R {place} >>")
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    out, places = "%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{each}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF"
    return f"{out}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{end}".encode("latin-1")


def say(x, y, size, text, colour="0 0 0"):
    return f"BT /F1 {size} Tf {colour} rg {x} {y} Td ({text}) Tj ET "


TITLE = say(60, 440, 40, "Seals of the harbour") + say(
    60, 300, 20, "They rest on sandbanks at low tide"
)
UGLY = [
    TITLE,
    TITLE + say(60, 200, 20, "Nobody can read these words", "1 1 1"),
    TITLE + say(60, 200, 6, "Small print that stands below"),
    TITLE + say(800, 200, 24, "These words run over the right edge of it"),
    TITLE + say(60, 302, 20, "Another text lies on the first of them"),
    say(60, 440, 40, "Turned") + "BT /F1 20 Tf 0 1 -1 0 400 100 Tm (words that climb up) Tj ET",
    TITLE + say(60, 200, 20, "Covered words") + "1 g 50 190 400 40 re f",
]


def slides(path, tmp_path, drawn=None, ident="p001"):
    imported.import_deck(ident, path, drawn, tmp_path / "in")
    return pool.load_kept(tmp_path / "in", f"{ident}.deck")


def record(tmp_path, deck, **row):
    """A record as deck-render leaves it, with its pictures."""
    names = []
    for number, data in enumerate(deck["pictures"], 1):
        stream.write(tmp_path / f"run/p001/slides/{number:02d}.png", data)
        names.append(f"p001/slides/{number:02d}.png")
    shutil.copy(tmp_path / "in/p001.md", tmp_path / "run/p001/deck.md")
    render = {"slides": names, "expected": len(names), "errors": [], "xray": deck["xray"]}
    made = {"id": "p001", "messages": [], "asks": {}, "checklist": [], **row}
    made |= {"deck": {"path": "p001/deck.md"}, "render": {**render, "imported": deck["imported"]}}
    return made


def judged(tmp_path, deck, **row):
    made = record(tmp_path, deck, **row)
    return made, checks.verdict(Pages(made, tmp_path / "run", Protocol.load("offline").checks))


def test_an_ugly_pdf_has_the_findings_that_its_slides_deserve(tmp_path):
    (tmp_path / "ugly.pdf").write_bytes(pdf(*UGLY))
    deck = slides(tmp_path / "ugly.pdf", tmp_path)
    assert [page["title"] for page in deck["xray"]] == ["Seals of the harbour"] * 5 + ["Turned"] + [
        "Seals of the harbour"
    ]
    assert deck["xray"][0]["font"] == {"min": 20.4, "dominant": 20, "title": 40.8}
    assert deck["xray"][5]["text"] == "Turned\nwords that climb up"
    picture = Image.open(io.BytesIO(deck["pictures"][0]))
    assert picture.size == (1960, 1104)
    _, value = judged(tmp_path, deck)
    found = {(one["slide"], one["check"]) for one in value["findings"]} - {
        (n, "twice") for n in range(8)
    }
    assert found == {
        (2, "low-contrast"),
        (3, "small-text"),
        (4, "overflow"),
        (5, "overlap"),
        (7, "overlap"),
    } or found == {
        (2, "low-contrast"),
        (3, "small-text"),
        (4, "off-canvas"),
        (5, "overlap"),
        (7, "overlap"),
    }
    text = (tmp_path / "in/p001.md").read_text()
    assert len(Deck.parse(text).shown) == 7
    lines = text.split("\n")
    assert all(lines[page["line"]].startswith("# ") for page in deck["xray"])


def test_checks_that_cannot_apply_are_absent_and_named(tmp_path):
    (tmp_path / "a.pdf").write_bytes(pdf(*[TITLE] * 3))
    asks = {"features": ["code", "image"], "theme": "seriph", "outline": ["Seals of the harbour"]}
    items = [
        {"id": "c1", "ask": "Sandbanks?", "match": ["sandbank"]},
        {"id": "c2", "ask": "A table?", "match": ["@table"]},
    ]
    made, value = judged(tmp_path, slides(tmp_path / "a.pdf", tmp_path), asks=asks, checklist=items)
    assert {*value["not_checked"]} == {
        *("unreadable", "markup", "bare", "broken-picture", "theme", "reads"),
        *("element code", "checklist c2"),
    }
    assert [(one["check"], one["what"], one["yes"]) for one in value["asked"]] == [
        ("heading", "Seals of the harbour", True),
        ("element", "image", False),
        ("checklist", "c1", True),
    ]
    made |= {"judge": value}
    assert scoring.score(Protocol.load("offline"), made)["checklist"] == 1.0


def test_a_folder_of_pictures_is_a_deck_in_natural_order_of_which_no_text_is_judged(tmp_path):
    folder = tmp_path / "talk"
    folder.mkdir()
    for n, kind in ((10, "png"), (2, "jpg"), (1, "webp")):
        picture = Image.new("RGB", (800, 600), (n * 20, 90, 90))
        ImageDraw.Draw(picture).rectangle((100, 100, 100 + 30 * n, 300), fill="yellow")
        picture.save(folder / f"slide{n}.{kind}")
    (folder / "notes.txt").write_text("no picture")
    deck = slides(folder, tmp_path)
    shades = [Image.open(io.BytesIO(each)).getpixel((980, 1000))[0] for each in deck["pictures"]]
    assert [round(shade / 20) for shade in shades] == [1, 2, 10]
    items = [{"id": "c1", "ask": "?", "match": ["x"]}]
    made, value = judged(tmp_path, deck, checklist=items, asks={"language": "de", "slides": 4})
    assert value["checks"] == {"passed": 3, "of": 4} and value["asked"] == value["checklist"] == []
    assert {"heading", "language", "low-contrast", "checklist"} <= {*value["not_checked"]}
    assert scoring.score(Protocol.load("offline"), made | {"judge": value})["checklist"] is None


def powerpoint(path):
    deck = Presentation()
    deck.slide_width, deck.slide_height = Inches(13.333), Inches(7.5)
    for n, title in enumerate(["Seals", "Hidden", "Counting", "שלום עולם"]):
        slide = deck.slides.add_slide(deck.slide_layouts[5])
        slide.shapes.title.text = title
        slide.notes_slide.notes_text_frame.text = f"Say {title}."
        box = slide.shapes.add_textbox(Inches(1), Inches(3), Inches(6), Inches(1)).text_frame
        box.text = f"Words of slide number {n}"
        box.paragraphs[0].runs[0].font.size = Pt(24)
        if n == 1:
            slide._element.set("show", "0")
        if n == 2:
            slide.shapes.add_table(2, 3, Inches(1), Inches(4), Inches(6), Inches(1))
    deck.save(path)


def test_a_powerpoint_file_with_its_pdf_has_titles_tables_and_notes_and_no_hidden_slide(tmp_path):
    powerpoint(tmp_path / "a.pptx")
    (tmp_path / "a.pdf").write_bytes(pdf(*[TITLE] * 3))
    deck = slides(tmp_path / "a.pptx", tmp_path, tmp_path / "a.pdf")
    assert [page["title"] for page in deck["xray"]] == ["Seals", "Counting", "שלום עולם"]
    assert [page["table_cells"] for page in deck["xray"]] == [0, 6, 0]
    assert "<!-- Say Counting. -->" in (tmp_path / "in/p001.md").read_text()
    (tmp_path / "b.pdf").write_bytes(pdf(TITLE))
    with pytest.raises(cli.BadData, match="shows 3 slides, its PDF has 1 pages; export the PDF"):
        slides(tmp_path / "a.pptx", tmp_path, tmp_path / "b.pdf")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("soffice"), reason="LibreOffice draws it")
def test_libreoffice_draws_a_powerpoint_file_in_a_cell(tmp_path):
    powerpoint(tmp_path / "a.pptx")
    deck = slides(tmp_path / "a.pptx", tmp_path)
    assert [page["title"] for page in deck["xray"]] == ["Seals", "Counting", "שלום עולם"]
    assert "Words of slide number 2" in deck["xray"][1]["text"]


def test_without_libreoffice_a_sentence_says_what_to_give_beside_it(tmp_path, monkeypatch):
    powerpoint(tmp_path / "a.pptx")
    monkeypatch.setattr(imported.shutil, "which", lambda name: None)
    with pytest.raises(
        cli.Missing, match=r"not installed here; export it as a\.pdf, and give both"
    ):
        slides(tmp_path / "a.pptx", tmp_path)


REFUSED = {
    "no deck at all": (b"Dear colleague, the deck follows.", "none of these: a PDF, PowerPoint"),
    "half a PDF": (b"%PDF-1.7\n1 0 obj\n<<", "no whole PDF"),
    "2,000 pages": (pdf(*[""] * 2000), "it has 2000 pages; a deck has 1 to 300"),
    "no pages": (pdf(), "no whole PDF"),
    "a page of no size": (pdf("", box="0 0 900 0.01"), "no slide's size"),
    "a zip of text": (b"PK\x03\x04" + b"0" * 40, "damaged"),
    "half a picture": (b"\x89PNG\r\n\x1a\n" + b"0" * 40, "no whole picture"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_deck_is_refused_in_a_sentence_and_leaves_nothing(tmp_path, case):
    data, why = REFUSED[case]
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(cli.BadData) as refusal:
        slides(tmp_path / "a", tmp_path)
    assert why in str(refusal.value) and str(refusal.value).startswith(
        f"{tmp_path}/a cannot be read:"
    )
    assert not (tmp_path / "in").exists()


def test_turned_pages_huge_pages_and_scripts_are_drawn_as_they_stand(tmp_path):
    script = "/OpenAction << /S /JavaScript /JS (app.alert(1)) >>"
    for more, box in (
        ("/Rotate 90", "0 0 540 960"),
        ("", "0 0 14400 8100"),
        ("/CropBox [0 0 960 540]", "-90 -90 2000 2000"),
    ):
        (tmp_path / "a.pdf").write_bytes(pdf(TITLE, box=box, more=more, trailer=script))
        deck = slides(tmp_path / "a.pdf", tmp_path)
        assert "Seals of the harbour" in deck["xray"][0]["text"].split("\n")
        assert len(deck["pictures"][0]) > 1000


def test_a_second_time_nothing_is_read_and_what_was_changed_by_hand_is_noticed(
    tmp_path, monkeypatch
):
    (tmp_path / "a.pdf").write_bytes(pdf(TITLE, TITLE, TITLE))
    first = slides(tmp_path / "a.pdf", tmp_path)
    monkeypatch.setattr(imported, "_said", None)
    assert imported.import_deck("p001", tmp_path / "a.pdf", None, tmp_path / "in") == (
        "pdf",
        3,
        True,
    )
    monkeypatch.setattr(pool, "IMPORTS", tmp_path)
    text = (tmp_path / "in/p001.md").read_text()
    row = {"id": "p001", "gen": {"model": {"files": str(tmp_path / "in")}}}
    made, kind = pool.imported(row, text, 1)
    assert kind == "pdf" and Image.open(io.BytesIO(made["pictures"][0])).size == (980, 552)
    assert (
        pool.imported({"id": "p001", "gen": {"model": {"files": "data/reference/"}}}, text, 1)
        is None
    )
    assert pool.imported({"id": "p001", "gen": {"model": {}}}, text, 1) is None
    with pytest.raises(stream.Fault, match="not the deck that was read"):
        pool.imported(row, text.replace(first["key"], "0" * 64), 1)


def test_decks_are_named_by_file_or_by_id_and_a_pdf_goes_with_its_powerpoint(tmp_path):
    for name in ("Q3 deck.pdf", "Q3 deck.pptx", "b.pdf"):
        (tmp_path / name).write_bytes(b"x")
    a, b, c = (tmp_path / name for name in ("Q3 deck.pdf", "Q3 deck.pptx", "b.pdf"))
    assert imported.named([str(a), str(b), f"p002={c}"]) == {"Q3-deck": (b, a), "p002": (c, None)}
    with pytest.raises(cli.BadData, match="would both be p1; give one as ID=FILE"):
        imported.named([f"p1={a}", f"p1={c}"])
    with pytest.raises(cli.BadData, match="there is no "):
        imported.named([str(tmp_path / "none.pdf")])


def seeds(tmp_path):
    powerpoint(tmp_path / "a.pptx")
    shot = io.BytesIO()
    Image.new("RGB", (60, 40), "red").save(shot, "PNG")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as out:
        out.writestr("1.png", shot.getvalue())
    page = b"<!doctype html><html><body><div class=reveal><section>x</section></div></body></html>"
    return [
        pdf(*UGLY[:3]),
        (tmp_path / "a.pptx").read_bytes(),
        shot.getvalue(),
        packed.getvalue(),
        page,
    ]


FUZZ = """
import io, json, os, random, resource, runpy, sys
read = runpy.run_path(sys.argv[1])
import pypdfium2, pptx, PIL.Image
files = [open(path, "rb").read() for path in sys.argv[3:]]
for number in range(int(sys.argv[2])):
    dice = random.Random(number)
    data = bytearray(files[number % len(files)])
    for _ in range(dice.choice((1, 3, 30))):
        at = dice.randrange(len(data))
        match dice.randrange(4):
            case 0: data[at] = dice.randrange(256)
            case 1: del data[at:at + dice.randrange(200)]
            case 2: data[at:at] = dice.randbytes(dice.randrange(40))
            case 3: data[at:at] = data[dice.randrange(len(data)):][:300]
        data = data or bytearray(b"x")
    child = os.fork()
    if not child:
        sys.stdin, sys.argv = io.TextIOWrapper(io.BytesIO(bytes(data))), ["", "1"]
        sys.stdout = io.StringIO()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        read["main"]()
        lines = [json.loads(line) for line in sys.stdout.getvalue().splitlines()]
        assert lines and all({"kind", "page", "not_read"} & set(line) for line in lines)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        print(number, status, flush=True)
"""


@pytest.mark.fuzz
@pytest.mark.parametrize("count", [400, pytest.param(2000, marks=pytest.mark.long)])
def test_broken_files_are_read_or_refused(tmp_path, count):
    """A crash of a library ends its own process, which the host calls unreadable; no file may end in a traceback."""
    paths = []
    for n, data in enumerate(seeds(tmp_path)):
        paths.append(tmp_path / f"seed{n}")
        paths[-1].write_bytes(data)
    command = [sys.executable, "-c", FUZZ, READER, str(fuzz.times(count)), *paths]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-2000:]
    assert done.stdout == ""
    assert {path.name for path in tmp_path.iterdir()} == {"a.pptx", *(path.name for path in paths)}


def marp(*sections):
    """A page as Marp writes it, without its script."""
    frames = "".join(
        '<svg data-marpit-svg="" viewBox="0 0 1280 720"><foreignObject width="1280" height="720">'
        f'<section style="width:1280px;height:720px;background:#fff;font-size:29px">{each}</section>'
        "</foreignObject></svg>"
        for each in sections
    )
    return f"<!doctype html><html><head></head><body><div>{frames}</div></body></html>"


@pytest.mark.browser
def test_a_page_of_marp_is_drawn_and_measured_as_our_own_slides_are(tmp_path):
    Image.new("RGB", (400, 300), "green").save(tmp_path / "seal.png")
    (tmp_path / "secret.txt").write_text("x")
    page = marp(
        "<h1>Ferries</h1><p>Three lamps and a rule</p>",
        '<h2>Pale</h2><p style="color:#fff">White words</p><script>fetch("http://example.org")</script>',
        '<h2 dir="rtl">שלום</h2><p style="font-size:9px">small print</p><img src="seal.png">',
    )
    (tmp_path / "a.html").write_text(page)
    deck = slides(tmp_path / "a.html", tmp_path)
    assert [page["title"] for page in deck["xray"]] == ["Ferries", "Pale", "שלום"]
    assert [page["images"] for page in deck["xray"]] == [0, 0, 1]
    assert deck["xray"][1]["contrast"] == 1 and deck["xray"][2]["font"]["min"] < 8
    _, value = judged(tmp_path, deck)
    found = {(one["slide"], one["check"]) for one in value["findings"]}
    assert found == {(2, "low-contrast"), (3, "small-text")}


@pytest.mark.browser
@pytest.mark.parametrize(
    "page, why",
    [
        pytest.param(
            "<html><body><p>hello</p></body></html>",
            "a page of neither reveal.js nor Marp",
            marks=pytest.mark.long,
        ),
        (
            '<html><body><div class="reveal"><div class="slides"><section>x</section></div></div>'
            '<script src="https://cdn.example.org/reveal.js"></script></body></html>',
            "it loads https://cdn.example.org/reveal.js, and nothing is fetched from here",
        ),
        (
            marp("<h1>Ferries</h1>").replace("<div>", "<script>location = 'about:blank'</script>"),
            "the page navigated",
        ),
    ],
)
def test_another_page_is_refused_in_a_sentence(tmp_path, page, why):
    (tmp_path / "a.html").write_text(page)
    with pytest.raises(cli.BadData, match=f"{why}.*; export it as PDF, and give that"):
        slides(tmp_path / "a.html", tmp_path)
