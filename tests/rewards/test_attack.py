"""What `layout` pays for nonsense, as docs/rewards.md says it, and the tables of that page."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

sys.path.insert(0, str(ROOT / "tests/exam"))

import gaming  # noqa: E402
import planted_defects as defects  # noqa: E402
import reward_attack  # noqa: E402
import reward_decks  # noqa: E402


@pytest.mark.browser
@pytest.mark.slow
def test_layout_sees_what_cannot_be_read_and_pays_for_words_in_no_order(tmp_path):
    names = ("honest", "shuffled_words", "one_pixel_text")
    decks = [(row, deck) for row, deck in reward_attack.bad_decks() if row["id"] in names]
    records = reward_attack.rendered(tmp_path, decks)
    found = reward_attack.rewards(tmp_path, records)
    assert found["one_pixel_text"] < 0.5 < found["shuffled_words"] == found["honest"]


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.long("test_layout_sees_what_cannot_be_read_and_pays_for_words_in_no_order")
def test_no_single_defect_costs_more_than_two_of_eight_slides(tmp_path):
    [whole] = reward_attack.rendered(
        tmp_path, [deck for deck in reward_attack.bad_decks() if deck[0]["id"] == "honest"]
    )
    text, decks = gaming.decks()["honest"], []
    makers = {name.replace(" ", "-"): make for name, (_, make) in defects.DEFECTS.items()}
    makers |= defects.CHECKS
    for name, make in makers.items():
        made = make(defects.Case(whole, text, name))
        changed, asks = made if isinstance(made, tuple) else (made, {})
        if changed:
            row = {key: whole[key] for key in ("messages", "checklist")}
            row |= {"id": f"with-{name}", "asks": {**whole["asks"], **asks}}
            decks.append((row, changed))
    found = reward_attack.rewards(
        tmp_path,
        reward_attack.rendered(
            tmp_path, [*decks, ({**decks[0][0], "id": "honest", "asks": whole["asks"]}, text)]
        ),
    )
    good = found.pop("honest")
    assert good == 1 and len(found) >= 24
    lost = {
        name: round(good - reward, 3) for name, reward in found.items() if good - reward > 2 / 8
    }
    assert not lost
    assert sum(reward == good for reward in found.values()) <= 2  # and nearly each costs something


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.long("test_layout_sees_what_cannot_be_read_and_pays_for_words_in_no_order")
def test_good_decks_of_every_school_get_what_the_plainest_gets_and_a_ransom_note_does_not(tmp_path):
    decks = [
        deck
        for deck in reward_decks.schools()
        if deck[0]["id"] in ("plain", "agenda", "pictures-first", "arabic")
    ]
    found = reward_attack.rewards(tmp_path, reward_attack.rendered(tmp_path, decks))
    assert min(found.values()) > found["plain"] - reward_attack.APART["layout"]
    prompt = reward_attack.bad_decks()[0][0]
    names = (
        "ransom note",
        "magenta on lime",
        "12 px in a corner",
        "bodies in 12 px",
        "each word a colour",
    )
    made = [
        (
            {**prompt, "id": name.replace(" ", "_")},
            reward_decks.SEEN[name](gaming.decks()["honest"]),
        )
        for name in names
    ]
    found = reward_attack.rewards(tmp_path, reward_attack.rendered(tmp_path, made))
    assert max(found.values()) < 1 - reward_attack.APART["layout"]


@pytest.mark.long("test_layout_sees_what_cannot_be_read_and_pays_for_words_in_no_order")
@pytest.mark.browser
@pytest.mark.slow
def test_a_reader_that_is_asked_through_deck_judge_pays_for_what_is_told_and_not_for_its_words(
    tmp_path,
):
    names = ("honest", "shuffled_words", "wrong_figures", "under_paper", "praise_for_the_judge")
    records = reward_attack.rendered(
        tmp_path, [deck for deck in reward_attack.bad_decks() if deck[0]["id"] in names]
    )
    honest = next(record for record in records if record["id"] == "honest")
    readers = {honest["messages"][-1]["content"]: reward_attack.reader(tmp_path, honest)}
    found = reward_attack.read(tmp_path, records, readers)
    assert found.pop("honest") == 1 and max(found.values()) <= 1 - reward_attack.APART["read"]
    assert found["under_paper"] == 0  # nothing to read is an answer, and no fault of the judge


def test_a_bad_deck_near_the_honest_one_is_counted_and_bold():
    found = {"honest": 0.9, "word_salad": 0.88, "keywords": 0.5}
    read = {**found, "word_salad": 0.1}
    table = reward_attack.bad_table(found, {**found, "keywords": 0.9}, read).splitlines()
    assert table[0].startswith("1 of 2 bad decks get within 0.05 of the honest deck, or more")
    assert "(bold); 2 where the request is only: A talk" in table[0]
    assert table[0].endswith("Under `read` 0 get within 0.25.")
    assert table[5:6] == ["| word salad | **0.88** | **0.88** | 0.10 |"]
    assert table[6:] == ["", "The others get less than 0.7 under `layout`."]
    page = "a\n<!-- bad -->\nold\n<!-- /bad -->\nb\n"
    assert reward_attack.written(page, {"bad": "new"}) == page.replace("old", "new")
