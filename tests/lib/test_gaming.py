"""Decks made to please a metric and no reader, each against an honest deck for the same prompt (tests/fixtures/gaming)."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import gaming  # noqa: E402

# The published scan counts keys and marks; that these please it is known, printed, and why `craft` stands beside it.
PLEASE_CRAFT_V5 = {path.stem for path in gaming.DECKS.glob("*.md")} - {"honest", "all_keywords_everywhere", "sixty_slides"}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return gaming.scores(tmp_path_factory.mktemp("gaming"))


@pytest.mark.parametrize("metric", [m for m in gaming.METRICS if m != "craft_v5"])
def test_no_adversarial_deck_reaches_the_honest_deck_by(found, metric):
    reached = {name: row[metric] for name, row in found.items() if name != "honest" and row[metric] >= found["honest"][metric]}
    assert reached == {}, f"the honest deck has {found['honest'][metric]}"


def test_the_published_scan_is_pleased_by_those_it_is_known_to_be_pleased_by(found, capsys):
    pleased = {name for name, metrics in gaming.fooled(found).items() if "craft_v5" in metrics}
    with capsys.disabled():
        print(f"\ncraft_v5 puts {len(pleased)} of {len(found) - 1} adversarial decks level with the honest one, as known")
    assert pleased == PLEASE_CRAFT_V5


def test_the_documentation_prints_the_scores_as_they_are(found):
    assert gaming.table(found) in (ROOT / "docs/protocol.md").read_text(), "run: make gaming"


def test_a_metric_that_is_fooled_is_bold_and_counted():
    row = dict.fromkeys(gaming.METRICS, 3.0)
    found = {"honest": row, "better_one": row | {"craft": 3.5}, "even": row | {"design": 1.0}}
    lines = gaming.table(found).split("\n")
    assert lines[3].startswith("| better one | **3.00** | **3.50** |") and lines[4].count("**") == 14
    assert lines[5] == "| fooled by | 2 of 2 | 2 of 2 | 1 of 2 | 2 of 2 | 2 of 2 | 2 of 2 | 2 of 2 | 2 of 2 |"
