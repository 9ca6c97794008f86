"""The checklist by kind of item."""

import json

import pytest
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import scoring, vision
from decksmith.measure.results import tables

ITEMS = [
    {"id": "c1", "ask": "A table", "match": ["@table", "cost"]},
    {"id": "c2", "ask": "A year", "match": ["1912|1913"]},
    {"id": "c3", "ask": "A chart or a picture", "match": ["@mermaid|@image"]},
]


def record(ident, answers, fault=None, **asks):
    said = [
        {"id": f"c{n}", "yes": slide is not None, "slide": slide}
        for n, slide in enumerate(answers, 1)
    ]
    return {
        "id": ident,
        "checklist": ITEMS,
        "asks": {"features": ["table"], "language": "en", **asks},
        "render": {"slides": [f"{ident}/slides/{n:02}.png" for n in (1, 2, 3)]},
        "judge": {"checklist": said},
        "score": {
            "fault": fault and {"stage": "render", "kind": fault, "class": "x", "message": "x"}
        },
    }


def counted(records):
    return {
        family: (v["yes"], v["n"], v["prompts"], v["share"]["mean"])
        for family, v in tables.checklist_families(records).items()
    }


def test_items_are_told_apart_by_the_element_they_ask_for():
    rows = [record("a", [1, None, 3]), record("b", [2, 2, None])]
    assert counted(rows) == {
        "facts": (1, 2, 2, 0.5),
        "image": (1, 2, 2, 0.5),
        "mermaid": (1, 2, 2, 0.5),
        "table": (2, 2, 2, 1.0),
    }


def test_a_failed_deck_satisfies_nothing_and_a_failed_judge_says_nothing():
    rows = [
        record("a", [1, 1, 1], fault="model"),
        record("b", [1, 1, 1]),
        record("c", [1, 1, 1], fault="judge"),
    ]
    assert counted(rows)["facts"] == (1, 2, 2, 0.5)


def test_samples_of_one_prompt_are_one_value():
    rows = [record("a~0", [1, 1, 1]), record("a~1", [1, None, 1]), record("b", [1, None, 1])]
    for k in (0, 1):
        rows[k]["gen"] = {"sample": {"of": "a", "k": k}}
    found = tables.checklist_families(rows)["facts"]
    assert (found["yes"], found["n"], found["prompts"], found["share"]["mean"]) == (1, 3, 2, 0.25)


@pytest.mark.parametrize("slide", [0, 4, -1, "2", True, 2.0, None])
def test_a_yes_without_a_slide_of_the_deck_is_a_no(slide):
    row = record("a", [1, 1, 1])
    row["judge"]["checklist"][1]["slide"] = slide
    row["judge"]["checklist"].append({"id": "c9", "yes": True, "slide": 1})
    assert tables.satisfied(row) == {"c1", "c3"}


@pytest.mark.parametrize("slide", [None, 0, 7])
def test_a_judge_that_says_yes_without_a_slide_it_was_shown_is_not_heard(slide):
    part = {"why": "plain", "evidence": [{"slide": 1, "seen": "a title"}], "score": 3}
    said = {name: part for name in scoring.JUDGED} | {
        "observations": [],
        "checklist": [{"id": "c1", "yes": True, "slide": slide}],
    }
    with pytest.raises(ValueError, match="checklist"):
        vision.usable(json.dumps(said), Protocol.load("published").schema, ITEMS[:1], [1, 2, 3])


def test_the_table_has_a_row_for_each_family_and_a_column_for_each_run():
    runs = [
        {"label": "One", "records": [record("a", [1, None, 3]), record("b", [2, 2, None])]},
        {"label": "Two", "records": [record("a", [None, None, None])]},
    ]
    title, header, rows, _ = tables.checklist_table(runs)
    assert title == "Checklist by kind of item"
    assert header == ["Kind of item", "Prompts", "One", "Two"]
    assert [row[0] for row in rows] == ["facts", "image", "mermaid", "table"]
    assert rows[-1][2].startswith("2 of 2: 1.00 [") and rows[-1][3] == "0 of 1: 0.00"
