"""Shares of the rows for a dose curve, and what the line through it says."""

import json

import numpy
import pytest
from decksmith.core import cli
from decksmith.train.training import dose


def rows(path, asked):
    path.mkdir()
    for side in ("train", "test"):
        talks = [
            {
                "id": f"{side}{n}",
                "messages": [
                    {"role": "user", "content": text},
                    {"role": "assistant", "content": f"Answer {n}"},
                ],
            }
            for n, text in enumerate(asked)
        ]
        (path / f"{side}.jsonl").write_text("".join(json.dumps(talk) + "\n" for talk in talks))
    return path


def idents(folder):
    return {json.loads(line)["id"] for line in (folder / "train.jsonl").read_text().splitlines()}


def test_smaller_shares_are_in_larger_ones_and_rows_that_ask_the_same_stay_together(tmp_path):
    data = rows(tmp_path / "data", [f"Deck {n // 3}, please." for n in range(48)])
    counts = dose.split(data, tmp_path / "out")
    parts = {n: idents(tmp_path / f"out/{n}") for n in counts}
    assert parts[8] < parts[4] < parts[2] < parts[1] == idents(data)
    assert {n: len(part) for n, part in parts.items()} == counts == {8: 6, 4: 12, 2: 24, 1: 48}
    for part in parts.values():
        groups = [int(ident.removeprefix("train")) // 3 for ident in part]
        assert all(groups.count(group) == 3 for group in groups)
    assert dose.split(data, tmp_path / "again") == counts
    assert idents(tmp_path / "again/8") == parts[8]
    assert dose.split(data, tmp_path / "few", 16)[1] == 18  # no group is torn
    held = [json.loads(line)["id"] for line in open(tmp_path / "few/held.jsonl")]
    assert len(held) == dose.HELD and not {*held} & idents(tmp_path / "few/1")
    # An eighth of seven is none; of two kinds the halves are as many.
    for most, kinds in ((7, 16), (None, 2)):
        data = rows(tmp_path / f"few-{kinds}", [f"Deck {n % kinds}, please." for n in range(48)])
        with pytest.raises(cli.BadData, match=f"of which {kinds} ask different things"):
            dose.split(data, tmp_path / "none", most)


def test_one_curve_has_the_same_steps_and_the_other_the_same_epochs():
    found = dose.points({8: 2, 4: 4, 2: 8, 1: 16}, epochs=2, batch=1)
    assert [(one["name"], one["steps"]) for one in found] == [
        ("steps-8", 32),
        ("steps-4", 32),
        ("steps-2", 32),
        ("epochs-8", 4),
        ("epochs-4", 8),
        ("epochs-2", 16),
        ("all", 32),
    ]


def worth(slope, luck=(0, 0, 0, 0), prompts=24, noise=0.1, seed=1):
    dice = numpy.random.default_rng(seed)
    level = dice.uniform(0.3, 0.6, prompts)
    return [
        {str(n): level[n] + slope * k + luck[k] + dice.normal(0, noise) for n in range(prompts)}
        for k in range(4)
    ]


def doubled(*arguments, **how):
    domains = dict.fromkeys(map(str, range(24)))
    return dose.doubling([2, 4, 8, 16], worth(*arguments, **how), domains)


def test_the_slope_is_found_and_a_gain_beyond_its_interval_is_ruled_out():
    found = doubled(0.08)
    assert found["lo"] < 0.08 < found["hi"] and found["lo"] > 0
    assert dose.sentence(found).endswith(": more rows help")
    flat = doubled(0.0)
    assert flat["lo"] < 0 < flat["hi"] < 0.1
    assert f"more than {numpy.ceil(100 * flat['hi']) / 100:.2f} is ruled out" in dose.sentence(flat)
    assert "any gain is ruled out" in dose.sentence(doubled(-0.15, noise=0.01))


def test_a_training_that_had_bad_luck_widens_the_interval():
    lucky, unlucky = doubled(0.05), doubled(0.05, luck=(0, -0.2, 0.2, 0))
    assert unlucky["hi"] - unlucky["lo"] > 2 * (lucky["hi"] - lucky["lo"])


@pytest.mark.simulation
def test_the_interval_holds_the_true_gain_where_trainings_have_luck():
    dice, held = numpy.random.default_rng(3), 0
    for seed in range(400):
        found = doubled(0.05, luck=dice.normal(0, 0.03, 4), seed=seed)
        held += found["lo"] <= 0.05 <= found["hi"]
    assert held >= 0.93 * 400
