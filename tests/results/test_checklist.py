"""Checklists that a judge answers, and the checks by name."""

import json

import pytest
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import checks, scoring, vision
from decksmith.measure.results import tables

ITEMS = [
    {"id": "c1", "ask": "A table", "match": ["@table", "cost"]},
    {"id": "c2", "ask": "A year", "match": ["1912|1913"]},
    {"id": "c3", "ask": "A chart or a picture", "match": ["@mermaid|@image"]},
]


@pytest.mark.parametrize("slide", [None, 0, 7])
def test_a_judge_that_says_yes_without_a_slide_it_was_shown_is_not_heard(slide):
    part = {"why": "plain", "evidence": [{"slide": 1, "seen": "a title"}], "score": 3}
    said = {name: part for name in scoring.JUDGED} | {
        "observations": [],
        "checklist": [{"id": "c1", "yes": True, "slide": slide}],
    }
    with pytest.raises(ValueError, match="checklist"):
        vision.usable(json.dumps(said), Protocol.load("published").schema, ITEMS[:1], [1, 2, 3])


def judged(findings, asked=(), slides=3, wanted=None, **not_checked):
    return {
        "asks": {"slides": wanted},
        "render": {"slides": [f"p/{n}.png" for n in range(slides)]},
        "judge": {
            "checks": {},
            "findings": [{"check": name, "slide": n} for name, n in findings],
            "asked": [{"check": name, "yes": yes} for name, yes in asked],
            "not_checked": not_checked,
        },
    }


def test_a_check_is_counted_over_slides_or_over_what_was_asked_for():
    first = judged(
        [("overflow", 1), ("overflow", 1), ("yaml", 2), ("heading", None)],
        asked=[("heading", True), ("heading", False)],
        wanted=5,
    )
    found = tables.passed_by_check([first, judged([], reads="too short"), {"judge": {}}])
    assert found["overflow"] == (5, 6)  # two findings on one slide are one slide
    assert found["error"] == (5, 6)  # every class of the renderer's errors
    assert found["heading"] == (1, 2)
    assert found["slides"] == (6, 8)  # two of five are missing
    assert found["reads"] == (3, 3)  # of the other deck it was not asked
    assert "theme" not in found


def test_the_table_of_checks_leaves_out_what_nothing_fails_and_says_it():
    counts = {"n": 1, "faults": {"kinds": {"model": 0}}}
    run = {"label": "One", "records": [judged([("overflow", 1)])], "summary": counts}
    title, header, rows, note = tables.checks_table([run])
    assert (title, header) == ("Checks", ["Check", "What it looks for", "One"])
    assert rows == [["overflow", checks.SAYS["overflow"], "2 of 3"]]
    assert "Nothing fails off-canvas, overlap," in note


def test_columns_that_say_nothing_anywhere_are_left_out():
    rows = [["a", "0", "1", "–"], ["b", "", "0", "$0.00"]]
    assert tables.trimmed(["x", "y", "z", "w"], rows) == (["x", "z"], [["a", "1"], ["b", "0"]])
