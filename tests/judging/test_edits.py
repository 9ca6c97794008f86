"""Edits: the data holds what it says, editors of a script get what they must, and each way to spoil a deck is seen."""

import difflib
import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.decks import edits
from decksmith.measure.judging import edited, scoring
from decksmith.models import stopping
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

sys.path.insert(0, str(cli.ROOT / "tests/web"))
import synthetic  # noqa: E402

spec = importlib.util.spec_from_file_location("make_edits", cli.ROOT / "make/edits.py")
assert spec and spec.loader
made = importlib.util.module_from_spec(spec)
spec.loader.exec_module(made)

LINES = (cli.ROOT / "data/edits/edits.jsonl").read_text(encoding="utf-8").splitlines()
ROWS = {row["id"]: row for row in map(json.loads, LINES)}


def judged(row, reply):
    """(share of the checks, share of what stayed) of a reply, by the markdown alone."""
    edit = made.prompt(row)["edit"]
    found = edited.verdict(edit, edits.applied(edit["before"], reply))
    # What only pictures tell is not asked here.
    asked = [one["yes"] for one in found["asked"] if "redrawn" not in one["what"]]
    kept = found["edit"]["kept"]
    return sum(asked) / len(asked), kept["passed"] / kept["of"]


def test_the_data_is_what_the_page_says():
    rows = [*ROWS.values()]
    assert len(LINES) == len(rows) >= 120
    kinds = Counter(row["kind"] for row in rows)
    assert set(kinds) == set(made.KINDS) and len(kinds) == 12 and min(kinds.values()) >= 8
    assert min(Counter(row["level"] for row in rows).values()) >= 30
    assert min(Counter(row["language"] for row in rows).values()) >= 25
    halves = [{row["deck"] for row in rows if row["sets"] == [half]} for half in ("open", "held")]
    assert not halves[0] & halves[1]  # whoever trains on one half has seen no deck of the other
    counts = Counter(row["sets"][0] for row in rows)
    assert abs(counts["open"] - counts["held"]) <= 4
    assert len({row["request"] for row in rows}) == len(rows)


@pytest.mark.parametrize("ident", ROWS)
def test_the_scripted_editors_get_what_they_must(ident):
    row = ROWS[ident]
    assert judged(row, made.perfect(row)) == (1, 1)
    assert judged(row, made.before_after(row)[1]) == (1, 1)  # the same as a whole deck
    assert judged(row, made.nothing(row)) == (0, 1)
    assert judged(row, made.rewrite(row))[1] <= 0.2


MOVE, NOTES, NUMBER, THEME, INSERT = (
    next(row for row in ROWS.values() if row["kind"] == kind and row["sets"] == ["held"])
    for kind in ("move", "notes", "number", "theme", "insert")
)


@pytest.mark.parametrize(
    "row, old, new",
    [
        (NUMBER, "In thousands", "In millions"),  # another slide
        (NUMBER, "One day lost", "Two days lost"),  # a line of the slide that is changed
        (NOTES, "C[Harbour office]", "C[Office]"),  # what the audience sees of it
        (THEME, "Thank the crew", "Thank the whole crew"),
        (MOVE, "@skarvo.example", "@skarvo.example\n\n---\n\n# More"),  # one slide more
        (INSERT, "grep -n", "grep -i"),
    ],
)
def test_what_was_not_asked_for_does_not_stay(row, old, new):
    after = made.before_after(row)[1]
    assert after.count(old) == 1
    met, stayed = judged(row, after.replace(old, new))
    assert (met, stayed < 1) == (1, True)


def test_slides_that_change_places_did_not_stay():
    row = NUMBER
    after = made.before_after(row)[1]
    cut = after.split("\n---\n")
    cut[-2], cut[-1] = cut[-1], cut[-2]
    assert judged(row, "\n---\n".join(cut))[1] < 1


def test_a_pixel_is_seen(tmp_path):
    from PIL import Image

    for name in ("a/1", "a/2", "b/1", "b/2"):
        (tmp_path / name[0]).mkdir(exist_ok=True)
        Image.new("RGB", (9, 9), "white").save(tmp_path / f"{name}.png")
    with Image.open(tmp_path / "b/2.png") as picture:
        other = picture.copy()
    other.putpixel((4, 4), (255, 255, 254))
    other.save(tmp_path / "b/2.png")
    drawn = [{n: tmp_path / f"{folder}/{n}.png" for n in (1, 2)} for folder in "ab"]
    text = "# A\n\none\n\n---\n\n# B\n\ntwo\n"
    edit = {"before": text, "slides": 2, "may": {}, "checks": [], "kind": "number"}
    _, _, found = edited.kept(edit, edited.Deck.parse(text), drawn)
    assert [one["slide"] for one in found] == [2]


BLOCK = "<<<<<<< SEARCH\n{}\n=======\n{}\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    "reply, why",
    [
        (BLOCK.format("# C", "# D"), "block 1 of the model's reply are not in the deck"),
        (BLOCK.format("same", "other"), "at 3 places"),
        (BLOCK.format(" ", "other"), "searches for nothing"),
        (BLOCK.format("# A", "# Z") + BLOCK.format("# A", "# Y"), "block 2 .* not in the deck"),
        (BLOCK.format("# A", "# Z")[:-9], "does not end"),
        (BLOCK.format("# ", "# Z"), "not in the deck"),  # whole lines alone
    ],
)
def test_blocks_are_applied_to_the_letter_or_not_at_all(reply, why):
    text = "# A\n\nsame\n\n---\n\n# B\n\nsame\nsame\n"
    with pytest.raises(edits.NoEdit, match=why):
        edits.applied(text, reply)


def test_blocks_change_their_lines_alone():
    text = "# A\n\nx\n\n---\n\n# B\n"
    reply = f"Of course:\n\n```\n{BLOCK.format('x', 'y')}{BLOCK.format('# B', '# C')}```\n"
    assert edits.applied(text, reply) == "# A\n\ny\n\n---\n\n# C\n"


def test_no_block_is_made_of_what_the_deck_has_twice():
    with pytest.raises(edits.NoEdit, match="'a.na' is at 2 places of the deck"):
        made.blocks("a\na\na", [["a\na", "b"]])  # the two share a line


@given(st.text(alphabet="ab\n", max_size=30), st.data())
def test_blocks_of_any_change_give_that_change(text, data):
    start = data.draw(st.integers(0, len(text)))
    old = text[start : data.draw(st.integers(start, len(text)))]
    if not old.strip() or text.count(old) != 1:
        return
    new = data.draw(st.text(alphabet="ab", min_size=1, max_size=5))
    try:
        said = made.blocks(text, [[old, new]])
    except edits.NoEdit:
        return
    assert edits.applied(text, said) == text.replace(old, new)


def test_the_score_is_the_product_and_a_refusal_counts():
    protocol = Protocol.load("edit")
    judge = {"edit": {"met": {"passed": 1, "of": 2}, "kept": {"passed": 3, "of": 4}}}
    record = {"id": "e", "judge": judge, "render": {"slides": ["a", "b", "c"], "status": "ok"}}
    value = scoring.score(protocol, record)
    assert (value["met"], value["stayed"], value["edit"]) == (0.5, 0.75, 0.375)
    error = {"kind": "model", "class": "no-edit", "message": "not in the deck"}
    lost = scoring.score(protocol, {"id": "e", "deck": {"error": error}})
    assert lost["edit"] == 0 and scoring.worth(lost) == 0


def test_rows_to_train_on_are_those_whose_rest_stayed():
    row = next(row for row in ROWS.values() if row["sets"] == ["open"])
    plain, blocks = made.chats(row)
    assert plain["messages"][-1]["content"] == made.before_after(row)[1]
    assert blocks["messages"][-1]["content"].startswith("<<<<<<< SEARCH")
    assert "search-and-replace" in blocks["messages"][0]["content"]
    spoilt = {**row, "edit": [*row["edit"], ["How we share", "How we divide"]]}
    assert [*made.chats(spoilt)] == []


def test_no_row_to_train_on_is_of_the_half_that_is_measured(tmp_path):
    said = subprocess.run(
        [sys.executable, cli.ROOT / "make/edits.py", "--train"],
        input="\n".join(LINES[:3] + LINES[-2:]).encode(),
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(cli.ROOT / "lib")},
    )
    halves = {
        ROWS[json.loads(line)["id"].partition("-")[0]]["sets"][0]
        for line in said.stdout.splitlines()
    }
    assert {row["sets"][0] for row in map(json.loads, LINES[:3] + LINES[-2:])} == {"open", "held"}
    assert (said.returncode, halves) == (0, {"open"})


protocol = functools.cache(lambda: Protocol.load("edit"))


@pytest.mark.parametrize("ident", ROWS)
def test_no_form_of_a_reference_is_near_being_stopped(ident):
    row = ROWS[ident]
    before, after = made.before_after(row)
    asked = made.prompt(row)["messages"][-1]["content"]
    diff = "\n".join(difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm=""))
    rule = protocol().sampling["stop_early"]
    half = {**rule, "no_line_tokens": rule["no_line_tokens"] // 2}
    for reply in (after, made.perfect(row), diff):
        watch = stopping.Watch(half, asked=asked)
        watch.hear("text", reply)
        assert watch.stopped is None


def office(tmp_path, number="48,200", more=()):
    """A PowerPoint file, as deck-import writes its words and parts."""
    from decksmith.measure.render import imported
    from pptx import Presentation
    from pptx.util import Inches

    show = Presentation()
    for title, said in (("Ferry", f"{number} passengers"), ("Fog", "One day lost")):
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = title, said
        slide.shapes.add_table(1, 2, *[Inches(2)] * 4).table.cell(0, 0).text = title
        for place in more if title == "Fog" else ():
            slide.shapes.add_textbox(*map(Inches, place)).text_frame.text = "so"
    show.save(tmp_path / "a.pptx")
    kind, slides = imported._said(tmp_path / "a.pptx", (tmp_path / "a.pptx").read_bytes())
    said = [{**one, "page": {"text": "", **one["page"]}} for one in slides]
    assert kind == "pptx"
    return imported._markdown(stream.fingerprint([number, more])[:12], said)


def test_of_a_powerpoint_file_text_boxes_and_their_places_stay(tmp_path):
    checks = [{"slide": 2, "row": ["Fog", ""]}]
    edit = {"before": office(tmp_path), "slides": 2, "may": {"1": "all"}, "checks": checks}
    edit = {**edit, "kind": "number", "imported": "data/decks/edits/a"}

    def numbers(text, edit=edit):
        found = edited.verdict(edit, text)["edit"]
        return found["met"]["passed"], found["kept"]["passed"]

    assert numbers(office(tmp_path, "49,300")) == (1, 1)
    boxed = office(tmp_path, more=[(1, 1, 1, 1)])
    assert numbers(boxed) == (1, 0)
    assert numbers(boxed, {**edit, "before": boxed}) == (1, 1)
    moved = office(tmp_path, more=[(1, 1, 1, 1.1)])
    assert numbers(moved, {**edit, "before": boxed}) == (1, 0)
    for parts in ("[1, [2]]", "x", "[[]]", "{a: 1}"):  # as a model may write them
        assert numbers(f"# A\n\n---\nparts: {parts}\n---\n\n# B\n")[0] == 0
    del edit["imported"]  # of a model's own deck the frontmatter shows nothing
    assert numbers(edit["before"], edit)[0] == 0


def test_the_reward_of_an_edit_is_its_score_and_a_refusal_gets_nothing(tmp_path):
    from decksmith.train.rewards import rules
    from PIL import Image

    row = NUMBER
    edit = made.prompt(row)["edit"]
    numbers = range(1, edit["slides"] + 1)
    for name in ("before", "slides"):
        (tmp_path / name).mkdir()
        for n in numbers:
            Image.new("RGB", (9, 9), "white").save(tmp_path / name / f"{n:02}.png")
    render = {name: [f"{name}/{n:02}.png" for n in numbers] for name in ("before", "slides")}
    (tmp_path / "deck.md").write_text(made.before_after(row)[1], encoding="utf-8")
    record = {"id": "e", "edit": edit, "deck": {"path": "deck.md"}, "render": render}
    by = rules.read("edit")
    given = rules.reward(record, by, tmp_path)
    assert (given["reward"], given["components"]) == (1, {"met": 1, "stayed": 1})
    Image.new("RGB", (9, 9), "red").save(tmp_path / "slides/03.png")
    given = rules.reward(record, by, tmp_path)
    assert given["reward"] == given["components"]["stayed"] < 1
    assert "picture of slide 3" in given["why"]
    error = {"kind": "model", "class": "no-edit", "message": "not in the deck"}
    assert rules.reward({"id": "e", "edit": edit, "deck": {"error": error}}, by)["reward"] == 0
    with pytest.raises(cli.BadData, match="no edit in this record"):
        rules.reward({key: record[key] for key in ("id", "deck", "render")}, by, tmp_path)


def test_a_reply_is_applied_by_the_parser_or_is_the_models_fault(tmp_path):
    from decksmith.measure.decks import clean

    edit = made.prompt(NUMBER)["edit"]
    thought = "<think>SEARCH</think>\n" + made.perfect(NUMBER)
    value = clean.parse(tmp_path, {"id": "e", "edit": edit, "gen": {"text": thought}})
    text = (tmp_path / value["path"]).read_text(encoding="utf-8")
    assert text == made.before_after(NUMBER)[1]
    with pytest.raises(stream.Fault, match="block 1") as said:
        clean.parse(tmp_path, {"id": "e", "edit": edit, "gen": {"text": BLOCK.format("a", "b")}})
    assert (said.value.error["kind"], said.value.error["class"]) == ("model", "no-edit")
    assert not (tmp_path / "e/deck.md").exists() and (tmp_path / "e/gen.md").exists()
    hostile = {"id": "e", "edit": edit, "gen": {"text": "# \ud800\r\n\n---\n\n# B\n"}}
    assert clean.parse(tmp_path, hostile)["slides"] == 2


def scored(run, name, editor, rows):
    """A run folder of these edits by an editor of a script, with pictures that are white, or say which slide they are of."""
    import hashlib

    from decksmith.measure.decks import clean
    from PIL import Image

    protocol, found = Protocol.load("edit"), []
    for row in rows:
        record = made.prompt(row)
        model = {"name": name, "slug": name, "params": {}}
        record["gen"] = {"text": editor(row), "finish_reason": "stop", "model": model, "usage": {}}
        try:
            record["deck"] = clean.parse(run, record)
        except stream.Fault as fault:
            record["deck"] = {"error": fault.error}
            found.append({**record, "score": scoring.score(protocol, record)})
            continue
        paths = {}
        for key, text in (("before", record["edit"]["before"]), ("slides", None)):
            text = text or (run / record["deck"]["path"]).read_text(encoding="utf-8")
            paths[key] = []
            for n, slide in enumerate(edited.Deck.parse(text).shown, 1):
                color = "#" + hashlib.sha256(slide.content.encode()).hexdigest()[:6]
                path = f"{row['id']}/{key}/{n:02}.png"
                (run / path).parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (98, 55), color).save(run / path)
                paths[key].append(path)
        record["render"] = {"status": "ok", "errors": [], "xray": [], "expected": 7, **paths}
        judge = edited.judge(record, run)
        record["judge"] = {**judge, "rubric": edited.Edits(protocol, run, 1).rubric}
        found.append({**record, "score": scoring.score(protocol, record)})
    return synthetic.write(run, found, protocol)


@pytest.mark.long(
    "tests/results/test_report.py::test_a_page_is_the_same_twice_and_only_what_changed_is_made_again"
)
def test_a_report_of_edits_has_both_numbers_the_kinds_and_the_deck_before(tmp_path):
    from decksmith.measure.results import claims, report, tables
    from decksmith.measure.results.runs import load

    rows = [row for row in ROWS.values() if row["sets"] == ["held"] and row["kind"] != "theme"][:9]
    editors = {
        "edit-perfect": made.perfect,
        "edit-nothing": made.nothing,
        "smol": lambda row: "I cannot.",
    }
    folders = [scored(tmp_path / name, name, editor, rows) for name, editor in editors.items()]
    runs = load(folders)
    compared = claims.compare(runs)
    found = {title: (header, cells) for title, header, cells, _ in tables.tables(runs, compared)}
    header, cells = found["Edits by kind"]
    assert header == ["Kind", "Edits", "Changes nothing", "Perfect editor", "SmolLM2 135M"]
    assert cells[-1] == ["all", "9", "0 % and 100 %", "100 % and 100 %", "0 % and 0 %"]
    assert {row[0] for row in cells[:-1]} == {row["kind"] for row in rows}
    said = " ".join(compared["headlines"])
    assert "Request met times rest stayed: Perfect editor 100 %, SmolLM2 135M 0 %" in said
    text = tables.brief(runs, compared)
    assert "met x stayed  request met  rest stayed" in text and "failures as 1" not in text
    page, _ = report.page(tmp_path / "report", runs)
    html = page.read_text(encoding="utf-8")
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    assert data["good"] == "edit" and "The deck:" not in json.dumps(data["prompts"])
    later = html.split('id="later">')[1].split("</script>")[0].splitlines()
    drawn = [json.loads(line)["before"] for line in later]
    assert sum(bool(one["slides"]) for one in drawn) == 18 and all(one["markdown"] for one in drawn)


def test_a_deck_of_open_comments_or_blank_lines_is_judged_at_once():
    """Seconds became minutes with the square of their number: the test runner's own limit would end it."""
    for text, check in (("<!--" * 200_000, {"has": "bees"}), ("\n" * 200_000 + "x", {"points": 3})):
        slide = edited.Deck.parse(f"# A\n\nx\n{text}\n").shown[0]
        ((name, what),) = check.items()
        assert not edited._of_slide(name, what, slide, {})
