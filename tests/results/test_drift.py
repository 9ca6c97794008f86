"""A judge that moved, one that did not, and one of which nobody knows."""

import random

import pytest
from decksmith.core import cli
from decksmith.judging.scoring import JUDGED
from decksmith.results import drift


def judged(move, noise=0.0, decks=30):
    random.seed(3)
    for n in range(decks):
        scores = {
            name: min(5, max(1, 3 + n % 2 + move + random.uniform(-noise, noise)))
            for name in JUDGED
        }
        item = {"id": "c1", "yes": n % 3 > 0 or move > 0, "slide": 1}
        yield {"id": f"d{n}", "judge": {"scores": scores, "checklist": [item]}}


@pytest.mark.parametrize(
    ("move", "noise", "decks", "verdict"),
    [
        (0.0, 0.0, 30, "the same"),
        (0.05, 0.3, 30, "the same"),
        (0.6, 0.3, 30, "another"),
        (-0.6, 0.3, 30, "another"),
        (0.1, 2.0, 6, "undecided"),
    ],
)
def test_how_far_a_judge_moved(move, noise, decks, verdict):
    found = drift.compare(judged(0.0, decks=decks), judged(move, noise, decks))
    assert found["verdict"] == verdict
    assert drift.SAID[verdict] in drift.sentence(found) and f"by {decks} decks" in drift.sentence(
        found
    )
    if not move:
        assert found["equal"] == found["checklist"] == 1


def test_faults_are_left_out_and_too_few_decks_say_so():
    rows = [*judged(0.0, decks=6), {"id": "x", "judge": {"error": {"kind": "judge"}}}]
    assert drift.compare(rows, rows)["decks"] == 6
    with pytest.raises(cli.BadData, match="5 decks were judged both times"):
        drift.compare(rows[:5], rows)


def test_the_decks_are_thirty_and_always_the_same():
    first, again = ([row["id"] for row in drift.decks()] for _ in range(2))
    assert len(set(first)) == 30 and first == again
