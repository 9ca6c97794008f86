"""Requests in the files that people have: what is taken, what is refused and in which words, and what becomes of files that are
damaged (lib/decksmith/measure/judging/request_files.py)."""

import io
import json
import os
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import fuzz
import openpyxl
import pytest
from decksmith.core import cli
from decksmith.measure.judging import prompt_rows, request_files

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TIDES = "Six slides on tide pools for a school class"
BUDGET = "Eight slides on our budget for the council, with a table"
NURSES = "A deck on onboarding new nurses"
HEAT = "Zehn Folien über Wärmepumpen für Hausbesitzer"
FOUR = [TIDES, BUDGET, NURSES, HEAT]
TEXT = "\n".join(FOUR) + "\n"
BLOCKS = "Six slides on tide pools.\nAudience: a class\nfive species.\n\nEight slides on our budget\nfor the council.\n"
BLOCKED = [
    "Six slides on tide pools.\nAudience: a class\nfive species.",
    "Eight slides on our budget\nfor the council.",
]


def book(*rows, cover=True, hidden=None):
    """The bytes of a workbook with these rows, behind an empty sheet."""
    made = openpyxl.Workbook()
    sheet = made.create_sheet("Briefs") if cover else made.active
    for row in rows:
        sheet.append(row)
    if hidden:
        made.create_sheet("Old", 0).append(hidden)
        made["Old"].sheet_state = "hidden"
    data = io.BytesIO()
    made.save(data)
    return data.getvalue()


def packed(**parts):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for name, part in parts.items():
            file.writestr(name.replace("__", "/").replace("_", "."), part)
    return data.getvalue()


# By the name of a file: what it holds, the column or way that is named, the requests that it has.
TAKEN = [
    ("lines.txt", TEXT, "", FOUR),
    ("bom.txt", "\ufeff" + TEXT.replace("\n", "\r\n"), "", FOUR),
    ("old-mac.txt", TEXT.replace("\n", "\r"), "", FOUR),
    ("gaps.txt", TEXT.replace("\n", "\n\n \n"), "", FOUR),
    ("latin.txt", TEXT.encode("cp1252"), "", FOUR),
    ("wide.txt", TEXT.encode("utf-16"), "", FOUR),
    ("no-suffix", TEXT, "", FOUR),
    ("blocks.txt", BLOCKS, "", BLOCKED),
    ("groups.txt", f"{TIDES}\n{BUDGET}\n\n{NURSES}\n", "line", [TIDES, BUDGET, NURSES]),
    ("groups.txt", f"{TIDES}\n{BUDGET}\n\n{NURSES}\n", "paragraph", [f"{TIDES}\n{BUDGET}", NURSES]),
    ("asian.txt", "为学校班级制作六张关于潮池的幻灯片\n学校のための潮だまりについての六枚のスライド\n", "",
     ["为学校班级制作六张关于潮池的幻灯片", "学校のための潮だまりについての六枚のスライド"]),
    ("brackets.txt", "[Draft] Six slides on tides\n{Board} Four slides\n", "", ["[Draft] Six slides on tides", "{Board} Four slides"]),
    ("heads.md", "---\ntitle: x\n---\n# Ours\n\nOf May.\n\n## Tides\n\nSix slides.\n\n- a table\n\n## Budget\nEight.\n```\n# code\n```\n", "",
     ["Tides\n\nSix slides.\n\n- a table", "Budget\n\nEight.\n```\n# code\n```"]),
    ("bare.md", f"## {TIDES}\n## {BUDGET}\n", "", [TIDES, BUDGET]),
    ("list.md", f"# Ours\n\n- {TIDES}\n* {BUDGET}\n  and a figure\n\n1. {NURSES}\n", "", [TIDES, f"{BUDGET}\n\nand a figure", NURSES]),
    ("one.md", "# Tides\n\nSix slides for a class.\n", "", ["Tides\n\nSix slides for a class."]),
    ("prose.md", f"{TIDES}\n\n{BUDGET}\n", "", [TIDES, BUDGET]),
    ("groups.md", f"## School\n- {TIDES}\n- {NURSES}\n## Firm\n- {BUDGET}\n", "item", [TIDES, NURSES, BUDGET]),
    ("named.csv", f'id,who,Brief\n1,class,"{TIDES},\nplease"\n2,,"{BUDGET}"\n3,x,\n', "", [f"{TIDES},\nplease", BUDGET]),
    ("found.csv", "Thema;Was soll sie zeigen?;bis\nMeer;Sechs Folien über Gezeiten für uns;Mai\n".encode("cp1252"), "", ["Sechs Folien über Gezeiten für uns"]),
    ("excel.csv", f"sep=;\r\nwho;request\r\nme;{TIDES}\r\n", "", [TIDES]),
    ("one.csv", "request\nSix slides, with a table\nEight \"slides\"\n", "", ["Six slides, with a table", 'Eight "slides"']),
    ("two.csv", f"prompt,text\n{TIDES},{NURSES}\n", "TEXT", [NURSES]),
    ("two.csv", f"prompt,text\n{TIDES},{NURSES}\n", "1", [TIDES]),
    ("tab.tsv", f"who\tquestion\nme\t{TIDES}\n", "", [TIDES]),
    ("table.txt", f"request\tdue\n{TIDES}\tMay\n", "", [TIDES]),
    ("book.xlsx", book(["Briefs"], [], ["Who", "Request", "Due"], ["me", TIDES, 3], [None, BUDGET]), "", [TIDES, BUDGET]),
    ("hidden.xlsx", book(["task"], [TIDES], cover=False, hidden=["request", "old"]), "", [TIDES]),
    ("texts.json", json.dumps(FOUR), "", FOUR),
    ("objects.json", json.dumps([{"title": "x", "brief": r} for r in FOUR], indent=1), "", FOUR),
    ("held.json", json.dumps({"version": 1, "items": [{"prompt": TIDES}, BUDGET]}, indent=1), "", [TIDES, BUDGET]),
    ("array.txt", json.dumps(FOUR, indent=1), "", FOUR),
    ("pretty.json", json.dumps({"request": TIDES, "asks": {"slides": 6}}, indent=1), "", [TIDES]),
    ("rows.jsonl", "\n".join(json.dumps({"request": r}) for r in FOUR), "", FOUR),
    ("texts.jsonl", "\n".join(map(json.dumps, FOUR)), "", FOUR),
    ("lines.json", "\n".join(json.dumps({"q": "x", "Question": r}) for r in FOUR), "", FOUR),
    ("forms.csv", f'"Timestamp","What is it about, and for whom?"\n"2026/05/01 9:12:01 AM","{BUDGET}"\n', "", [BUDGET]),
    ("check.md", f"# Backlog\n\n- [ ] {TIDES}\n- [x] {BUDGET}\n", "", [TIDES, BUDGET]),
    ("lines.md", f"Tides\n=====\n\n{TIDES}\n\nRain\n====\n\n{NURSES}\n", "", [f"Tides\n\n{TIDES}", f"Rain\n\n{NURSES}"]),
    ("numbers.json", json.dumps([{"id": 1, "source": "x", "prompt": TIDES}, {"id": 2, "prompt": BUDGET}]), "", [TIDES, BUDGET]),
    ("api.json", json.dumps({"data": [{"id": 7, "description": BUDGET}], "meta": {}}), "", [BUDGET]),
    ("chat.jsonl", json.dumps({"messages": [{"role": "user", "content": TIDES}]}), "", [TIDES]),
    ("two.jsonl", json.dumps({"instruction": TIDES, "input": NURSES}), "input", [NURSES]),
]  # fmt: skip

REFUSED = [
    ("x.pdf", "%PDF-1.4\n1 0 obj\n", "x.pdf is a PDF; PROMPTS= takes .txt, .md"),
    ("late.txt", "junk\n%PDF-1.7\n", "is a PDF"),
    ("p.txt", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "is a picture"),
    ("b.csv", bytes(range(256)) * 9, "b.csv is no text"),
    ("d.docx", packed(word__document_xml="x"), "is a Word document; .*soffice --headless --convert-to txt d.docx"),
    ("d.pptx", packed(ppt__presentation_xml="x"), "is a presentation"),
    ("d.ods", packed(content_xml="x"), "is an OpenDocument file"),
    ("d.zip", packed(a_txt="x"), "is a zip archive; .*unzip d.zip"),
    ("cut.xlsx", book(["request"], [TIDES])[:900], "is a damaged archive"),
    ("no.xlsx", packed(xl__workbook_xml="x"), "a workbook that cannot be read"),
    ("old.xls", b"\xd0\xcf\x11\xe0\xa1\xb1", "old Office; .*soffice --headless --convert-to xlsx old.xls"),
    ("g.jsonl", b"\x1f\x8b\x08", "packed by gzip; .*gunzip g.jsonl"),
    ("page.md", "<!DOCTYPE html>\n<p>hi", "is a web page"),
    ("code.py", "print('six slides')\n", "is a .py file"),
    ("kyrillic.txt", "Шесть слайдов о приливах\n".encode("cp1251"), "is neither UTF-8 nor Latin-1; .*iconv"),
    ("nothing.txt", "", "no request in it"),
    ("marks.txt", "---\n[\n]\n***\n12\n", "no request in it; left out: 5 without words"),
    ("groups.txt", f"{TIDES}\n{BUDGET}\n\n{NURSES}\n", r"may hold 3 \(REQUEST=line\) or 2 \(REQUEST=paragraph\)"),
    ("groups.md", f"## A\n- {TIDES}\n- {NURSES}\n## B\n- {BUDGET}\n", "REQUEST=heading.* or .*REQUEST=item"),
    ("mixed.md", f"# Ours\n\n{TIDES}\n\n{BUDGET}\n", "REQUEST=paragraph.* or .*REQUEST=heading"),
    ("two.csv", f"prompt,text\n{TIDES},{NURSES}\n", "prompt, text may each hold the requests; its columns are prompt, text; name one: REQUEST=COLUMN"),
    ("short.csv", "a,b\nx,y\n", "no column is sure to hold the requests"),
    ("headless.csv", f"{TIDES}\n{NURSES}\n", "first row looks like a request"),
    ("open.csv", f'request,who\n"{TIDES},me\n' + f"{NURSES},you\n" * 4000, "open.csv:2: a cell of over 100000 characters; is a quotation mark not closed"),
    ("header.csv", "request,who\n", "no request in it"),
    ("cut.json", json.dumps(FOUR, indent=1)[:90], r"not JSON \(Unterminated"),
    ("cut.txt", json.dumps(FOUR, indent=1)[:90], "not JSON"),
    ("many.json", json.dumps({"a": [TIDES], "b": [NURSES]}), r"an object with 2 arrays \(a, b\)"),
    ("deep.json", "[" * 100_000, "nested too deeply"),
    ("endless.jsonl", '{"request": "' + "a" * 1_100_000, "a line of over 1000000 characters"),
]  # fmt: skip


def put(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def requests(path, by=""):
    """(the requests, the sentences on rows that cannot be used)."""
    taken, wrong = [], []
    for _, row in request_files.opened(path, by).items:
        try:
            if isinstance(row, ValueError):
                raise row
            for made in prompt_rows.rows(row):
                prompt_rows.valid(made)
                taken.append(made["messages"][-1]["content"])
        except ValueError as error:
            wrong.append(str(error))
    return taken, wrong


@pytest.mark.parametrize(
    ("name", "data", "by", "wanted"), TAKEN, ids=[f"{c[0]}-{c[2]}" for c in TAKEN]
)
def test_what_people_have_is_taken(tmp_path, name, data, by, wanted):
    found, wrong = requests(put(tmp_path, name, data), by)
    assert found == wanted
    assert set(wrong) <= {"without words"}


def check(path, by=""):
    """(status, rows, what was said) of prompt-check."""
    command = [ROOT / "bin/prompt-check", *(["--request", by] if by else []), path.name]
    done = subprocess.run(
        command, cwd=path.parent, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize(("name", "data", "said"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_holds_no_requests_is_refused_in_one_sentence(tmp_path, capsys, name, data, said):
    path = put(tmp_path, name, data)
    with pytest.raises(cli.Stop) as refusal:
        found = request_files.opened(path)
        for where, row in found.items:
            found.lost(where, row) if isinstance(row, ValueError) else found.took(row)
        found.look(path)
    assert re.search(said, str(refusal.value)), str(refusal.value)
    assert "\n" not in str(refusal.value) and refusal.value.status in (65, 69)
    assert capsys.readouterr() == ("", "")


def test_what_was_taken_is_said_first_and_what_was_left_out(tmp_path):
    lines = (
        f"id,Audience,brief\n1,class,{TIDES}\n2,,\n3,board,{TIDES}\n4,board,Four slides on rain\n"
    )
    status, rows, said = check(put(tmp_path, "briefs.csv", lines))
    first = said.splitlines()[0]
    assert status == 0 and len(rows) == 2
    assert first == (
        f'prompt-check: 2 requests from briefs.csv, column "brief"; first: {TIDES}; left out: 1 without words, 1 said twice'
    )
    assert [row["source"]["tags"] for row in rows] == [
        {"id": "1", "Audience": "class"},
        {"id": "4", "Audience": "board"},
    ]
    # The same words have the same id in any file: nothing is asked again for it.
    again = check(put(tmp_path, "q.json", json.dumps([TIDES])))[1]
    assert again[0]["id"] == rows[0]["id"] and again[0]["messages"] == rows[0]["messages"]


def test_one_request_under_two_ids_is_asked_once(tmp_path):
    rows = [{"id": ident, "request": TIDES} for ident in ("a", "b")]
    path = put(tmp_path, "own.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    status, taken, said = check(path)
    assert status == 0 and [row["id"] for row in taken] == ["a"] and "1 said twice" in said


def test_a_row_that_cannot_be_used_is_named_and_the_others_are_written(tmp_path):
    lines = f'{{"request": "{TIDES}"}}\n{{"request": \n7\n{{"request": "{NURSES}", "asks": {{"slides": "x"}}}}\n'
    status, rows, said = check(put(tmp_path, "r.jsonl", lines))
    assert status == 65 and len(rows) == 1
    assert "r.jsonl:2: not JSON (Expecting value" in said
    assert "r.jsonl:3: neither a text nor an object" in said
    assert re.search("r.jsonl:4: u-[0-9a-f]+: asks.slides: 'x' is not of type 'integer'", said)
    ragged = put(tmp_path, "r.csv", f"request,who\nSix slides, on tides,me\n{NURSES},you\n")
    status, rows, said = check(ragged)
    assert status == 65 and "r.csv:2: 3 cells under 2 names; quote a cell" in said


def test_a_folder_of_briefs_quotes_the_documents_beside_them(tmp_path):
    folder = tmp_path / "briefs"
    (folder / "harbour").mkdir(parents=True)
    secret = put(tmp_path, "secret.txt", "Nobody shall read this.")
    for name in ("harbour.txt", "port.md"):
        put(folder, name, "Six slides on the year.\n\nFor the council.\n")
    put(folder, "old.docx", "x")
    put(folder, ".notes.txt", "x y z")
    put(folder / "harbour", "report.md", "# Harbour\n\n1,284 ships came.\n")
    put(folder / "harbour", "page.html", "<p>Three ferries <script>no</script>")
    (folder / "harbour/leak.txt").symlink_to(secret)
    (folder / "leak.txt").symlink_to(secret)
    status, rows, said = check(folder)
    assert status == 0, said
    assert said.startswith(
        "prompt-check: 2 requests from briefs, file by file, without leak.txt, old.docx; first: Six slides on the year."
    )
    assert len({row["id"] for row in rows}) == 2  # the same words, other documents
    quoted = rows[0]["messages"][-1]["content"]
    assert [one["name"] for one in rows[0]["sources"]] == ["page.html", "report.md"]
    assert "1,284 ships" in quoted and "Three ferries" in quoted and "Nobody" not in quoted
    assert "sources" not in rows[1]
    put(folder / "harbour", "table.csv", "a,b")
    status, rows, said = check(folder)
    assert (
        status == 65 and "table.csv is no document that is read here; give one of .md, .txt" in said
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    put(empty, "a.csv", "request\nx")
    status, _, said = check(empty)
    assert status == 65 and "empty is a folder without a brief" in said and "(it has a.csv)" in said


@pytest.mark.long("test_a_hostile_file_takes_time_by_its_length_alone")
def test_a_workbook_that_swells_is_refused_unread(tmp_path):
    data = io.BytesIO(book(["request"], [TIDES], cover=False))
    with zipfile.ZipFile(data, "a", zipfile.ZIP_DEFLATED) as file:
        with file.open("xl/media/zeros.bin", "w") as part:
            for _ in range(510):
                part.write(bytes(1_000_000))
    path = put(tmp_path, "bomb.xlsx", data.getvalue())
    assert path.stat().st_size < 1_000_000
    with pytest.raises(
        cli.BadData, match="damaged, locked or too large; PROMPTS= takes .*save its sheet as .csv"
    ):
        requests(path)


def test_what_is_no_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(cli.BadData, match="is no file"):
        request_files.opened(tmp_path / "pipe.txt")
    with pytest.raises(cli.Missing, match="No such file"):
        request_files.opened(tmp_path / "none.txt")


@pytest.mark.parametrize(
    "name", ["m.jsonl", *(pytest.param(x, marks=pytest.mark.long) for x in ("m.csv", "m.txt"))]
)
def test_a_file_of_any_length_is_read_as_a_stream(tmp_path, name):
    """30,000 rows of 1 kB in the memory of a few."""
    count = 30_000
    row = {"m.jsonl": '{{"request": "Slides on {} {}"}}\n', "m.csv": '"Slides on {} {}",x\n'}
    with open(tmp_path / name, "w") as file:
        file.write("request,who\n" if name == "m.csv" else "")
        for n in range(count):
            file.write(row.get(name, "Slides on {} {}\n").format(n, "words " * 160))
    code = f"""
from pathlib import Path
from decksmith.measure.judging import request_files
peak = lambda: int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = peak()
n = sum(isinstance(row, dict) for _, row in request_files.opened(Path({str(tmp_path / name)!r})).items)
print(n, peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "lib")},
    )
    taken, grown = map(int, done.stdout.split())
    assert taken == count and grown < 20_000, (done.stdout, done.stderr)  # kB, of 30 MB


HOSTILE = {
    "blanks.md": "# " + " " * 900_000 + "\n- x y z\n",
    "marks.md": "- a b\n" * 400_000,
    "fences.md": "```\n# a\n" * 200_000,
    "columns.csv": ",".join(f"c{n}" for n in range(90_000)) + "\nx\n",
    "keys.jsonl": (json.dumps({f"k{n}": n for n in range(50_000)}) + "\n") * 5,
    "words.txt": "A " * 400_000 + "\n\nB\nC\n",
    "quotes.csv": "request\n" + '"' * 90_000 + "\n",
}


def test_a_hostile_file_takes_time_by_its_length_alone(tmp_path):
    """Each would take hours if reading went by the square of its length."""
    code = """
import sys
from pathlib import Path
from decksmith.core import cli
from decksmith.measure.judging import request_files
for path in map(Path, sys.argv[1:]):
    print(path.name, flush=True)
    try:
        print(sum(1 for _ in request_files.opened(path).items))
    except cli.Stop as stop:
        print(stop)
"""
    paths = [put(tmp_path, name, data) for name, data in HOSTILE.items()]
    environ, command = {"PYTHONPATH": str(ROOT / "lib")}, [sys.executable, "-c", code, *paths]
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    said = done.stdout.splitlines()
    assert done.returncode == 0, (said[-1][:500], done.stderr[-500:])
    assert said[::2] == [*HOSTILE] and max(map(len, said)) < 1_000


# Of damaged files

RUBBISH = re.compile(r"[\0-\x08\x0e-\x1f\x7f]|^\W*$|^\s*[\[{]\s*\"|^PK|%PDF|\d obj\b|^sep=.$")


def damaged(dice, data, others):
    """A file as a bad disk, a cut connection or the wrong program leaves it."""
    data = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 5))):
        place = dice.randrange(len(data) + 1)
        way = dice.randrange(7)
        if way == 0:
            del data[place:]
        elif way == 1:
            del data[place : place + dice.randrange(1, 40)]
        elif way == 2:
            data[place:place] = dice.randbytes(dice.randrange(1, 20))
        elif way == 3:
            data[place:place] = dice.choice(
                (
                    b'"',
                    b"\n\n",
                    b",",
                    b";",
                    b"\t",
                    b"{",
                    b"[",
                    b"]",
                    b"\r",
                    b"\0",
                    b"\xff",
                    b"```\n",
                    b"# ",
                    b"- ",
                )
            )
        elif way == 4 and data:
            data[place % len(data)] ^= 1 << dice.randrange(8)
        elif way == 5:
            data += dice.choice(others)
        else:
            data[:0] = dice.choice(others)[: dice.randrange(1, 60)]
    return bytes(data)


@pytest.mark.fuzz
def test_no_damaged_file_makes_a_traceback_or_a_request_of_rubbish(tmp_path):
    dice = random.Random(34)
    whole = [
        (name, data if isinstance(data, bytes) else data.encode())
        for name, data, *_ in [*TAKEN, *REFUSED]
    ]
    whole = [(name, data) for name, data in whole if 0 < len(data) < 20_000]
    books = [case for case in whole if case[0].endswith(".xlsx")]
    texts = [case for case in whole if case not in books]
    suffixes = [".txt", ".md", ".csv", ".tsv", ".json", ".jsonl", ".xlsx"]
    others = [data for _, data in texts]
    taken = refused = 0
    for n in range(fuzz.times(2000)):
        name, data = dice.choice(books if n % 50 == 0 else texts)
        suffix = dice.choice(suffixes) if n % 3 == 0 else Path(name).suffix
        path = put(tmp_path, f"f{suffix}", damaged(dice, data, others))
        try:
            found, wrong = requests(path)
        except cli.Stop as stop:
            assert "\n" not in str(stop)
            refused += 1
            continue
        taken += bool(found)
        for text in found:
            assert not RUBBISH.search(text), (n, name, suffix, text)
            assert text.casefold() not in request_files.KINDS["names"], (n, name, suffix, text)
    assert min(taken, refused) > fuzz.times(2000) // 20
