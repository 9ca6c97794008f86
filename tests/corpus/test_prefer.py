"""Pairs and best answers: margins, lengths, near-duplicates, leaks; and what a row holds."""

import itertools
import json
import random
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.train.corpus import preference_pairs, sampled_answers

TOPICS = [
    "How a beehive survives the winter, for a club of hobby keepers",
    "Reading tide tables before walking out on the mudflats",
    "Why bridges hum in the wind, a talk for first-year engineers",
    "Budget of a village library that opens on Sundays",
    "What a pension fund does when interest rates rise",
    "Three ways to prune an apple tree, with pictures",
    "Onboarding for nurses of the night shift on ward seven",
    "Sales of folding bicycles in the last two quarters",
]


def words(n, seed):
    dice = random.Random(seed)
    return " ".join(f"{dice.choice('bcdfghklm')}{dice.randrange(10**6)}" for _ in range(n))


def answer(prompt, k, worth, size=60, **gen):
    """A deck record of sample k of a prompt; `size` is the answer's length in words."""
    return {
        "id": f"{prompt}~{k}",
        "messages": [
            {"role": "system", "content": "You write decks."},
            {"role": "user", "content": TOPICS[int(prompt[1:]) % len(TOPICS)]},
        ],
        "gen": {
            "text": words(size, f"{prompt}{k}"),
            "reasoning": "Think.",
            "finish_reason": "stop",
            "model": {"name": "smol"},
            "sample": {"of": prompt, "k": k},
            **gen,
        },
        "reward": {
            "reward": worth,
            "components": {},
            "masked": worth is None,
            "why": "",
            "rules": "layout 2c4a54ed11e1",
        },
    }


@pytest.fixture
def chosen(tmp_path):
    """A function of records that returns (rows, report)."""

    def choose(samples, held=(), best=False):
        path = tmp_path / "samples.jsonl"
        path.write_text("".join(json.dumps(one) + "\n" for one in samples))
        reader = sampled_answers.Reader()
        chooser = preference_pairs.PairChooser(
            reader, preference_pairs.read_rules(), held, best=best
        )
        rows = [preference_pairs.row(*made) for made in chooser.choose(str(path))]
        return rows, chooser.report()

    return choose


def picked(rows):
    return [(row["prefer"]["chosen"], row["prefer"]["rejected"]) for row in rows]


def test_the_two_answers_that_lie_furthest_apart_become_the_pair(chosen):
    rows, report = chosen([answer("p0", k, worth) for k, worth in enumerate((0.5, 0.9, 0.2, 0.6))])
    assert picked(rows) == [("p0~1", "p0~2")]
    (row,) = rows
    assert row["prefer"]["margin"] == 0.7 and row["id"] == "p0"
    better, worse = row["completions"]
    assert (better["rank"], worse["rank"]) == (0, 1)
    assert better["completion"][0] == {
        "role": "assistant",
        "content": words(60, "p01"),
        "reasoning_content": "Think.",
    }
    assert [message["role"] for message in row["context"]] == ["system", "user"]
    assert report["rows"] == 1 and report["means"] == {
        "chosen": 0.9,
        "margin": 0.7,
        "rejected": 0.2,
    }


def test_every_prompt_ends_as_a_row_or_with_the_reason_why_it_does_not(chosen):
    same = {"text": words(60, "same")}
    nearly = {"text": words(60, "same") + " more"}
    rows, report = chosen(
        [
            answer("p0", 0, 0.9),  # alone
            answer("p1", 0, 0.50),
            answer("p1", 1, 0.55),  # within the margin
            answer("p2", 0, 0.9, **same),
            answer("p2", 1, 0.1, **nearly),
            answer("p3", 0, None),  # masked
            answer("p3", 1, 0.9, finish_reason="length"),
            answer("p3", 2, 0.2, text=""),
            answer("p3", 3, 0.8),
            answer("p4", 0, 0.9, size=200),
            answer("p4", 1, 0.1, size=60),
            answer("p5", 0, 0.9),
            answer("p5", 1, 0.1),
        ]
    )
    assert picked(rows) == [("p5~0", "p5~1")]
    assert report["left_out"] == {
        "prompts": {"few": 2, "margin": 1, "alike": 1, "length": 1},
        "answers": {"empty": 1, "masked": 1, "truncated": 1},
    }
    assert report["prompts"] == report["rows"] + sum(report["left_out"]["prompts"].values())


def test_where_longer_answers_earn_more_the_chosen_one_is_not_the_longer_one_for_that(chosen):
    dice = random.Random(3)
    samples = []
    for n in range(200):
        for k in range(6):
            size = dice.randrange(50, 75)
            worth = min(1.0, max(0.0, (size - 45) / 35 + dice.gauss(0, 0.15)))
            samples.append(answer(f"p{n}", k, worth, size))
            samples[-1]["messages"][1]["content"] = words(9, n)
    rows, report = chosen(samples)
    controlled, best_is_longer = report["length"], 0
    for _, group in itertools.groupby(samples, key=lambda one: one["id"].partition("~")[0]):
        ranked = sorted(group, key=lambda one: one["reward"]["reward"])
        worst, best = (len(one["gen"]["text"]) for one in (ranked[0], ranked[-1]))
        best_is_longer += best > worst
    assert best_is_longer > 0.85 * 200  # by margin alone
    assert 0.4 <= controlled["longer"] <= 0.56 and 0.95 <= controlled["ratio"] <= 1.05
    assert len(rows) > 120
    longer = sum(r["prefer"]["tokens"]["chosen"] > r["prefer"]["tokens"]["rejected"] for r in rows)
    assert controlled["longer"] == round(longer / len(rows), 4)


def test_a_prompt_of_an_evaluation_and_one_that_came_before_are_left_out_and_named(chosen, capsys):
    held = [{"id": "e7", "messages": [{"role": "user", "content": TOPICS[1].upper() + "!"}]}]
    pair = [(0, 0.9), (1, 0.1)]
    samples = [
        answer(f"p{n}", k, worth) for n in (0, 1, 8) for k, worth in pair
    ]  # 8 asks what 0 asks
    rows, report = chosen(samples, held)
    assert [row["id"] for row in rows] == ["p0"]
    assert report["left_out"]["prompts"] == {"held-out": 1, "repeated": 1}
    said = capsys.readouterr().err
    assert (
        "p1: left out, near the held-out e7" in said and "p8: left out, near the prompt p0" in said
    )


def test_a_prompt_that_came_in_an_earlier_block_is_known_too(chosen, monkeypatch):
    monkeypatch.setattr(preference_pairs, "BLOCK", 1)
    pair = [(0, 0.9), (1, 0.1)]
    rows, report = chosen([answer(f"p{n}", k, worth) for n in (0, 1, 8) for k, worth in pair])
    assert rows[0]["id"] == "p0" and report["left_out"]["prompts"]["repeated"] == 1


def test_the_best_answer_is_of_middling_length_among_those_as_good_and_good_enough(chosen):
    rows, report = chosen(
        [
            answer("p0", 0, 0.92, size=120),
            answer("p0", 1, 0.90, size=60),  # within the margin, and as long as most
            answer("p0", 2, 0.30, size=62),
            answer("p1", 0, 0.45),
            answer("p1", 1, 0.10),  # none worth training
        ],
        best=True,
    )
    assert [row["prefer"]["chosen"] for row in rows] == ["p0~1"]
    assert [message["role"] for message in rows[0]["messages"]] == ["system", "user", "assistant"]
    assert rows[0]["messages"][-1]["reasoning_content"] == "Think."
    assert report["left_out"]["prompts"] == {"least": 1}


def test_an_answer_is_chosen_once(chosen):
    same = {"text": words(60, "same")}
    rows, report = chosen(
        [
            answer(f"p{n}", k, w, **(same if k == 0 else {}))
            for n in (0, 1)
            for k, w in ((0, 0.9), (1, 0.1))
        ]
    )
    assert [row["id"] for row in rows] == ["p0"] and report["left_out"]["prompts"] == {"copied": 1}


def test_the_same_records_give_the_same_rows_and_a_row_has_what_the_trainer_reads(chosen):
    samples = [answer("p0", 0, 0.9), answer("p0", 1, 0.1)]
    assert chosen(samples) == chosen(samples)
    ((row,), _) = chosen(samples)
    assert row["context"] == samples[0]["messages"] and row["prefer"]["reward"] == "layout"
    sides = [side["completion"][0]["content"] for side in row["completions"]]
    assert sides == [words(60, "p00"), words(60, "p01")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"reward": None},
            'samples.jsonl:2: p0~1: no "reward" in this record; deck-reward writes it',
        ),
        ({"reward": {"reward": 7}}, "reward is 7, no number from 0 to 1"),
        ({"reward": {"reward": True}}, "reward is True, no number"),
        ({"messages": []}, "its messages are not those of the other answers to p0"),
        ({"id": "p0~0"}, "samples.jsonl:2: p0~0: this id came before"),
    ],
)
def test_a_bad_record_is_named_with_file_and_line(chosen, change, message):
    with pytest.raises(cli.BadData) as caught:
        chosen([answer("p0", 0, 0.9), answer("p0", 1, 0.1) | change])
    assert message in str(caught.value)


def test_answers_to_a_prompt_that_are_not_together_are_an_error_that_says_how_to_sort(chosen):
    with pytest.raises(cli.BadData, match=r"samples.jsonl:3: p0~1: other prompts stand between"):
        chosen([answer("p0", 0, 0.9), answer("p1", 0, 0.1), answer("p0", 1, 0.1)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'name = "a"\nmargin = -1',
            r"margin: Input should be greater than or equal to 0",
        ),
        ("margin = ", "Invalid value"),
        (None, "there is no"),
    ],
)
def test_rules_that_cannot_be_read_are_one_sentence(tmp_path, text, message):
    path = tmp_path / "rules.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(cli.Stop, match=message):
        preference_pairs.read_rules(path)


def test_what_every_evaluation_here_asks_is_held_out(tmp_path, monkeypatch):
    root = Path(tmp_path)
    monkeypatch.setattr(cli, "ROOT", root)
    ask = [{"role": "user", "content": "A deck on tides"}]
    files = {
        "data/prompts.jsonl": {"id": "p001", "messages": ask},
        "results/runs/smol/offline@mine/prompts.jsonl": {"id": "mine1", "messages": ask},
        "results/bench/smol/gsm8k/questions.jsonl": {
            "id": "g1",
            "task": {"fields": {"q": "2 + 2?"}},
        },
        "more.jsonl": {"id": "x", "messages": ask},
    }
    for name, record in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(json.dumps(record) + "\n")
    found = preference_pairs.held_out([root / "more.jsonl"])
    assert [record["id"] for record in found] == ["p001", "mine1", "g1", "x"]
    assert found[2]["messages"][0]["content"] == "2 + 2?"
