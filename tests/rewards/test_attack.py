"""Bad decks of every kind that was thought of or found, against the good deck for the same request; and what the page says."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import adversaries  # noqa: E402
import reward_attack  # noqa: E402
from decksmith.train.rewards.rules import read  # noqa: E402

RULES = read("rendered")
# As unreadable as `blurred`, `backwards` and `under_paper`, or out of order as `shuffled_lines`: tests/judging/test_gaming.py
# has the rule of each.
LIKE = {
    "behind_frosted_glass",
    "dots_for_letters",
    "letters_piled_up",
    "lightened_away",
    "mirrored",
    "shuffled_slides",
    "shuffled_words",
    "struck_out",
    "upside_down",
}
PAGE = (ROOT / "docs/rewards.md").read_text()


def scored(run, work):
    """What `work(scorer)` returns, with a scorer that is closed after it."""

    async def go():
        scorer = reward_attack.Scorer(run, RULES)
        try:
            return await work(scorer)
        finally:
            await scorer.close()

    return asyncio.run(go())


@pytest.mark.browser
@pytest.mark.slow
def test_no_bad_deck_comes_near_the_good_one_but_what_only_a_reader_can_tell(tmp_path):
    """For one request, of like kinds one; `make reward-attack` asks for all of them."""
    name = "g006-sourdough-jar"
    (target,) = adversaries.targets([name])

    async def work(scorer):
        good = (await scorer.score(target.row, target.deck))["reward"]
        return {
            "target": name,
            "good": good,
            "kinds": await reward_attack.kinds(scorer, target, LIKE),
        }

    row = scored(tmp_path, work)
    assert len(adversaries.suite(target)) >= 30 and row["good"] > 0.85
    assert row["kinds"].keys() == adversaries.suite(target).keys() - LIKE
    assert reward_attack.near([{**row, "found": []}]) == []


@pytest.mark.browser
@pytest.mark.slow
def test_a_search_that_was_killed_goes_on_from_its_journal(tmp_path, monkeypatch):
    (target,) = adversaries.targets(["g006-sourdough-jar"])

    def found(decks):
        return scored(tmp_path, lambda scorer: reward_attack.search(scorer, target, decks))

    first = found(2)
    monkeypatch.setattr(
        "decksmith.measure.render.pool.Pool.render", None
    )  # nothing is rendered again
    assert found(2) == first


def test_the_same_seed_makes_the_same_bad_decks_and_none_of_them_the_good_one():
    targets = adversaries.targets(["seeds", "p010", "g005-dunkler-himmel"])
    assert [target.language for target in targets] == ["en", "es", "de"]
    for target in targets:
        chance, found = random.Random(1), []
        while len(found) < 30:
            genome = reward_attack._next(found, chance)
            found.append((chance.random(), genome))
            deck = adversaries.built(target, genome)
            assert deck == adversaries.built(target, genome) != target.deck


def test_a_bad_deck_within_the_margin_is_named_and_the_table_shows_the_best_of_each():
    genome = adversaries.Genome()
    kinds = {"blurred": 0.1, "crammed_cover": 0.75, "shuffled_lines": 0.9}
    row = {"target": "p1", "good": 0.9, "kinds": kinds, "found": [(0.2, genome), (0.3, genome)]}
    assert reward_attack.near([row]) == [("p1", "crammed_cover", 0.75)]
    assert reward_attack.table([row]).split("\n")[2] == (
        "| p1 | 0.90 | 2 | 0.75 crammed cover | 2 | 0.30 "
        "words request, shape sentences, near anywhere, paired False, lines 3 |"
    )


def test_the_page_has_the_tables_as_they_are():
    tables = {
        "components": reward_attack.components(RULES),
        "unrewarded": reward_attack.unrewarded(),
    }
    assert reward_attack.written(PAGE, tables) == PAGE, "run: make reward-attack"
