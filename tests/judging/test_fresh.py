"""Fresh prompts: the same for a seed, many, and as sound as those of data/prompts.jsonl."""

import itertools
import json

import jsonschema
import pytest
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import asked, prompt_rows

# What the first row of this seed is on every machine and under every Python.
FIRST = "65f735b71ae09fc201aef0c91769bc30ddb24f2099ae8ec55981daa034428f33"
DRAWN = list(itertools.islice(prompt_rows.fresh(7), 200))


def test_a_seed_names_its_rows_and_the_fewer_begin_the_more():
    assert list(itertools.islice(prompt_rows.fresh(7), 20)) == DRAWN[:20]
    assert stream.fingerprint(DRAWN[0]) == FIRST
    other = list(itertools.islice(prompt_rows.fresh(8), 20))
    assert {row["id"].split("-")[1] for row in other} == {"8"}
    assert not {row["messages"][1]["content"] for row in other} & {
        row["messages"][1]["content"] for row in DRAWN
    }


def test_drawn_rows_are_different_and_sound():
    schema = json.loads((cli.ROOT / "assets/schemas/prompt.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    keep = stream.program(Protocol.load("offline").prompts["where"])
    for row in DRAWN:
        prompt_rows.valid(validator, row)
        assert keep(row) is not None and len(row["references"]) == len(row["checklist"]) >= 6
        read = asked.read(row["messages"][1]["content"])
        assert {key: read[key] for key in ("slides", "theme", "language")}.items() <= row[
            "asks"
        ].items()
    assert len({row["messages"][1]["content"] for row in DRAWN}) == len(DRAWN)
    stories = {(row["asks"]["language"], row["asks"]["domain"]) for row in DRAWN}
    assert len(stories) == len(prompt_rows.parts()["story"])


def test_a_reference_sentence_seldom_satisfies_another_item():
    loose = 0
    for row in DRAWN:
        items = row["checklist"]
        for item, sentence in zip(items, row["references"], strict=True):
            loose += len(prompt_rows.found(items, item, sentence)) - 1
    assert loose <= 0.01 * sum(len(row["checklist"]) for row in DRAWN)


def test_figures_follow_from_left_to_right_and_leave_no_rest():
    assert prompt_rows.derived(["a", "+", "b", "*", 3], {"a": 1, "b": 4}) == 15
    with pytest.raises(ValueError, match="7 is no multiple of 2"):
        prompt_rows.derived(["a", "/", 2], {"a": 7})
    for story in prompt_rows.parts()["story"]:
        ends = [(bounds[0], bounds[1]) for bounds in story["figures"].values()]
        for drawn in itertools.product(*ends):
            figures = dict(zip(story["figures"], drawn, strict=True))
            for name, steps in story["derived"].items():
                figures[name] = prompt_rows.derived(steps, figures)
                assert figures[name] > 0
