"""Decks made to please a metric and no reader, and decks of few words as designers make them, beside an honest deck for the same
prompt (tests/fixtures/gaming, tests/fixtures/designed). `make gaming` prints all of them; a sample is checked here.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import gaming  # noqa: E402

UNREADABLE = {"blurred", "mirrored", "dots_for_letters", "under_paper", "hidden_by_colour"}
SAMPLE = {"honest", "designed/poster", "prompt_echoed", "other_language", *UNREADABLE}


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.long(
    "tests/rewards/test_attack.py::test_layout_sees_what_cannot_be_read_and_pays_for_words_in_no_order"
)
def test_nonsense_passes_less_than_an_honest_deck_and_text_that_cannot_be_seen_hardly_anything(
    tmp_path,
):
    found = gaming.judged(tmp_path, SAMPLE)
    assert found.keys() == SAMPLE
    assert gaming.near(found) == set()
    assert all(gaming.share(found[name]) < 0.5 for name in UNREADABLE)


def test_what_comes_near_the_honest_deck_is_bold():
    def judge(passed, *names):
        return {"checks": {"passed": passed, "of": 20}, "findings": [{"check": n} for n in names]}

    found = {
        "honest": judge(20),
        "even": judge(19, "twice"),
        "worse": judge(9, "blank", "twice", "blank"),
        "designed/a_b": judge(19, "figure"),
    }
    assert gaming.near(found) == {"even"}
    assert gaming.table(found).split("\n")[2:] == [
        "| honest | 20 of 20 |  |",
        "| designed: a b | 19 of 20 | figure 1 |",
        "| even | **19 of 20** | twice 1 |",
        "| worse | 9 of 20 | blank 2, twice 1 |",
    ]
