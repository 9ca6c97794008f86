"""Decks made to please a metric and no reader, and decks of few words as designers make them, each against an honest deck for the same
prompt (tests/fixtures/gaming, tests/fixtures/designed).

`make gaming` scores all of them and writes docs/gameability.md. What is claimed here is claimed of that table; a sample
of its rows is scored again: the decks nearest to the honest one, and of the others one of each kind.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import gaming  # noqa: E402

PAGE = (ROOT / "docs/gameability.md").read_text()
NEAREST = {
    "shuffled_lines",
    "wrong_figures",
    "shuffled_slides",
    "shuffled_words",
    "irrelevant_code_and_formulas",
    "varied_filler_on_topic",
    "half_of_it",
}
UNREADABLE = [
    "blurred",
    "mirrored",
    "upside_down",
    "dots_for_letters",
    "backwards",
    "under_paper",
    "struck_out",
]
KINDS = {
    "lightened_away",
    "prompt_echoed",
    "other_language",
    "filler_with_every_feature",
    "hidden_by_colour",
    "all_in_the_notes",
    "praise_for_the_judge",
}
SAMPLE = {"honest", "designed/poster", "designed/one_sentence", *NEAREST, *UNREADABLE, *KINDS}


@pytest.fixture(scope="module")
def found():
    return gaming.printed(PAGE)


@pytest.mark.browser
@pytest.mark.slow
def test_the_documentation_prints_the_scores_as_they_are(found, tmp_path):
    assert found.keys() == gaming.decks().keys(), "run: make gaming"
    scored = gaming.scores(tmp_path, SAMPLE)
    assert scored.keys() == SAMPLE
    _, _, *rows, _ = gaming.table(scored).split("\n")
    assert [row for row in rows if row not in PAGE] == [], "run: make gaming"


def test_no_adversarial_deck_comes_near_the_honest_deck_but_those_that_only_a_reader_can_tell(
    found,
):
    assert len(gaming.adversarial(found)) >= 30
    assert gaming.near(found) == gaming.KNOWN, f"the honest deck has {found['honest']['overall']}"


@pytest.mark.parametrize("metric", ["judge_only", "content", "coherence"])
def test_nor_does_any_reach_it_by_what_the_judge_says(found, metric):
    reached = {
        name
        for name, row in gaming.adversarial(found).items()
        if row[metric] >= found["honest"][metric]
    }
    assert reached <= gaming.KNOWN | ({"wrong_figures"} if metric == "coherence" else set())


def test_every_designed_deck_stands_above_every_deck_of_filler(found):
    best = max(gaming.FILLER, key=lambda name: found[name]["overall"])
    designed = {name: row["overall"] for name, row in found.items() if gaming.designed(name)}
    assert len(designed) == 6
    assert {
        name for name, score in designed.items() if score <= found[best]["overall"] + gaming.MARGIN
    } == set(), best


@pytest.mark.parametrize("name", UNREADABLE)
def test_text_that_cannot_be_made_out_in_the_picture_is_worth_nothing(found, name):
    assert found[name]["judge_only"] < 1.5 and found[name]["checklist"] <= 0.5


def test_the_table_is_read_as_it_is_written(found):
    assert all(line in PAGE for line in gaming.table(found).split("\n"))


def test_a_metric_that_is_fooled_is_bold_and_counted():
    row = dict.fromkeys(gaming.METRICS, 3.0)
    found = {
        "honest": row,
        "better_one": row | {"overall": 3.5},
        "even": row | {"design": 1.0},
        "designed/a_b": row,
    }
    lines = gaming.table(found).split("\n")
    assert lines[3].startswith("| designed: a b | 3.00 |")
    assert (
        lines[4].startswith("| better one | **3.50** | **3.00** |") and lines[5].count("**") == 14
    )
    assert (
        lines[6]
        == "| fooled by | 2 of 2 | 2 of 2 | 1 of 2 | 2 of 2 | 2 of 2 | 2 of 2 | 2 of 2 | 2 of 2 |"
    )
    assert gaming.near(found) == {"better_one", "even"}
