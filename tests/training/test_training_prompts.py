"""data/training-prompts.jsonl keeps what it promises: measurable prompts of data/gold that no evaluation asks."""

import json

from decksmith.core import cli, stream
from decksmith.train.corpus import overlap
from jsonschema import Draft202012Validator

ROWS = [row for _, row in stream.records(cli.ROOT / "data/training-prompts.jsonl")]
ASKED = [row for _, row in stream.records(cli.ROOT / "data/prompts.jsonl")]


def test_each_is_a_prompt_with_what_its_decks_are_measured_by():
    schema = json.loads((cli.ROOT / "assets/schemas/prompt.json").read_text())
    valid = Draft202012Validator(schema)
    for row in ROWS:
        valid.validate(row)
        assert row["asks"]["slides"] and row["asks"]["theme"] and row["asks"]["language"] == "en"
        assert len(row["checklist"]) >= 5 and all(item["match"] for item in row["checklist"])
    assert len({row["id"] for row in ROWS}) == len(ROWS) == 32


def test_each_is_the_request_of_a_gold_draft_and_asks_what_its_seed_says():
    for row in ROWS:
        folder = cli.ROOT / "data/gold" / row["id"]
        assert row["messages"][1]["content"] == (folder / "PROMPT.md").read_text().strip()
        seed = json.loads((folder / "seed.json").read_text())
        assert row["asks"].items() <= seed.items()


def test_none_is_near_a_prompt_of_an_evaluation():
    assert ROWS[0]["messages"][0] == ASKED[0]["messages"][0]  # the system prompt of both
    ours, theirs = ([overlap.plain(overlap.request(one)) for one in rows] for rows in (ROWS, ASKED))
    assert overlap.jaccard(ours, theirs) == []
