"""The reward of one deck: what is masked, what counts, and what adds up."""

import copy

import pytest
from decksmith.core import cli
from decksmith.train.rewards import components, rules
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

RULES, READ = rules.read("rendered"), rules.read("read")
PAGE = {
    "images": 0,
    "images_broken": 0,
    "code_lines": 0,
    "table_cells": 0,
    "diagrams": 0,
    "formulas": 0,
    "quotes": 0,
    "columns": 1,
    "overflow": {"x": 0, "y": 0},
    "overlap": 0.0,
    "font": {"min": 16, "dominant": 18, "title": 36},
    "contrast": 9.0,
    "whitespace": 0.6,
    "blank": False,
}
TEXTS = [
    "Puffins of the harbour",
    "When they come\nIn April the first puffins reach the island and look for their old holes",
    "What they need\nA quiet slope with soft soil, and sand eels within an hour of flight",
]


SLIDES = [f"p1/slides/0{n}.png" for n in (1, 2, 3)]


@pytest.fixture
def record():
    xray = [
        {**PAGE, "slide": n, "layout": "default", "title": text.split("\n")[0], "text": text}
        for n, text in enumerate(TEXTS, 1)
    ]
    return {
        "id": "p1",
        "messages": [{"role": "user", "content": "Three slides on harbour puffins, in English"}],
        "asks": {"slides": 3, "theme": "seriph", "language": "en", "features": ["table"]},
        "checklist": [{"id": "c1", "ask": "food", "match": ["eel"]}],
        "deck": {"path": "p1/deck.md", "slides": 3, "theme": "seriph"},
        "render": {
            "status": "ok",
            "slides": SLIDES,
            "expected": 3,
            "errors": [],
            "xray": xray,
        },
    }


@pytest.fixture
def scored(record, tmp_path):
    """The reward of the record, whose pictures each show a bar of another length."""
    for n, path in enumerate(record["render"]["slides"], 1):
        picture = Image.new("L", (980, 552), 250)
        picture.paste(40, (60, 50, 200 * n, 200))
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        picture.save(tmp_path / path)
    return lambda changed=None, by=RULES: components.reward(changed or record, by, tmp_path)


def test_a_deck_gets_a_number_from_its_components(scored):
    value = scored()
    assert 0.5 < value["reward"] < 1 and value["masked"] is False
    assert value["components"]["slides"] == 1 and value["components"]["elements"] == 0
    assert value["why"].startswith("lost most by elements 0.00, layout 0.")


def test_what_components_add_sums_to_the_reward(scored):
    value = scored()
    parts = components.contributions(value["components"], RULES)
    assert {*parts} <= {*RULES.weights}
    assert sum(parts.values()) == pytest.approx(value["reward"], abs=1e-5)


def test_a_component_that_does_not_apply_to_a_prompt_is_left_out(record, scored):
    asked = scored()
    del record["asks"]["features"], record["checklist"]
    value = scored()
    assert {"elements", "checklist"} <= {*asked["components"]} - {*value["components"]}
    assert value["reward"] > asked["reward"]


@pytest.mark.parametrize("stage", ["gen", "deck", "images", "render"])
@pytest.mark.parametrize("kind", ["infra", "renderer"])
def test_a_fault_that_is_not_the_models_is_masked_and_never_zero(record, stage, kind):
    error = {"kind": kind, "class": "timeout", "message": "no answer in 30 s"}
    record[stage] = {**record.get(stage, {}), "error": error, "errors": [error]}
    value = components.reward(record, RULES)
    assert value["reward"] is None and value["masked"] and value["components"] == {}
    assert value["why"] == f"{kind} fault, timeout: no answer in 30 s"


def test_what_the_model_failed_at_counts_and_a_deck_is_worth_more_than_none(record):
    error = {"kind": "model", "class": "vue-compile", "message": "m"}
    record["render"] = {"status": "failed", "errors": [error], "error": error}
    unrendered = components.reward(record, RULES)
    record["deck"] = {"error": {"kind": "model", "class": "no-deck", "message": "m"}}
    undecked = components.reward(record, RULES)
    assert (unrendered["reward"], undecked["reward"]) == (RULES.weights["parses"], 0.0)
    assert unrendered["why"] == "vue-compile: m" and not unrendered["masked"]


def test_no_deck_is_worth_less_than_one_about_something_else_and_that_less_than_a_poor_one(
    record, scored
):
    def said(*slides):
        """The reward of the deck with these texts on its slides."""
        other = copy.deepcopy(record)
        for page, text in zip(other["render"]["xray"], slides, strict=True):
            page |= {"title": text.split("\n")[0], "text": text}
        return scored(other)["reward"]

    good = scored()["reward"]
    poor = said(TEXTS[0], TEXTS[1].replace("first puffins", "birds"), "What they need\nFish")
    elsewhere = said(
        "Kette und Ritzel\nDas Fahrrad trägt seinen Fahrer auf zwei Rädern durch die Stadt",
        "Bremsen\nDie Beläge drücken auf die Felge, bis das Rad steht",
        "Reifen\nVor einer langen Fahrt werden sie mit der Pumpe gefüllt",
    )
    error = {"kind": "model", "class": "too-few-slides", "message": "m"}
    record["render"] = {"status": "failed", "errors": [error], "error": error}
    unrendered = components.reward(record, RULES)["reward"]
    record["deck"]["slides"] = 1  # of a reply in prose
    prose = components.reward(record, RULES)["reward"]
    assert 0 < prose < unrendered < elsewhere < poor < good


def test_a_record_that_was_not_rendered_is_named(record):
    del record["render"]
    with pytest.raises(cli.BadData, match="p1: no render in this record; deck-render writes it"):
        components.reward(record, RULES)


def test_a_fault_of_the_judge_is_nothing_to_a_reward_without_one(record, scored):
    record["judge"] = {"error": {"kind": "judge", "class": "unparseable", "message": "m"}}
    assert scored()["reward"] > 0.5
    assert scored(by=READ) == {
        "reward": None,
        "components": {},
        "masked": True,
        "why": "judge fault, unparseable: m",
    }


def test_a_deck_that_does_not_answer_its_request_gets_nothing_for_its_layout(record, scored):
    def judged(content):
        judge = {"judge": "a-model", "scores": {"content": content}, "checklist": [{"yes": True}]}
        return scored({**record, "judge": judge}, READ)

    bad, good = judged(1), judged(5)
    assert (bad["components"]["answers"], bad["components"]["layout"]) == (0, 0)
    assert good["components"]["answers"] == 1 and bad["reward"] < 0.3 * good["reward"]


@pytest.mark.parametrize("judge", [None, {"judge": "offline-v3", "scores": {"content": 5}}])
def test_a_reward_with_a_judge_needs_one_that_reads(record, scored, judge):
    record |= {"judge": judge} if judge else {}
    with pytest.raises(
        cli.BadData, match="p1: no judge.scores of a judge that reads in this record"
    ):
        scored(by=READ)


def test_samples_of_one_prompt_seldom_tie(record, scored):
    seen = set()
    for words in range(11, 50, 2):
        other = copy.deepcopy(record)
        other["render"]["xray"][2]["whitespace"] = words / 200
        seen.add(scored(other)["reward"])
    assert len(seen) == 20


@given(st.dictionaries(st.sampled_from(sorted(RULES.used)), st.floats(0, 1)))
def test_a_reward_is_from_0_to_1_and_better_components_never_lower_it(found):
    found = {name: 0.5 for name in RULES.weights} | found
    value = components.worth(found, RULES)
    assert 0 <= value <= 1 + 1e-9
    for name in found:
        assert components.worth({**found, name: 1.0}, RULES) >= value - 1e-9
