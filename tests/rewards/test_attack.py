"""What `layout` pays for nonsense, as docs/rewards.md says it, and the tables of that page."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import reward_attack  # noqa: E402


@pytest.mark.browser
@pytest.mark.slow
def test_layout_sees_what_cannot_be_read_and_pays_for_words_in_no_order(tmp_path):
    names = ("honest", "shuffled_words", "one_pixel_text")
    decks = [(row, deck) for row, deck in reward_attack.bad_decks() if row["id"] in names]
    records = reward_attack.rendered(tmp_path, decks)
    found = reward_attack.rewards(tmp_path, records)
    assert found["one_pixel_text"] < 0.5 < found["shuffled_words"] == found["honest"]


def test_a_bad_deck_near_the_honest_one_is_counted_and_bold():
    found = {"honest": 0.9, "word_salad": 0.88, "keywords": 0.5}
    table = reward_attack.bad_table(found, {**found, "keywords": 0.9}).splitlines()
    assert table[0].startswith("1 of 2 bad decks get within 0.05 of the honest deck, or more")
    assert "(bold); 2 where the request is only: A talk" in table[0]
    assert table[5:] == ["| word salad | **0.88** | **0.88** |", "| keywords | 0.50 | **0.90** |"]
    page = "a\n<!-- bad -->\nold\n<!-- /bad -->\nb\n"
    assert reward_attack.written(page, {"bad": "new"}) == page.replace("old", "new")
