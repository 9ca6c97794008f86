"""data/prompts.jsonl keeps what it promises."""

import json
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
from decksmith.core import stream

ROOT = Path(__file__).resolve().parents[2]
ROWS = [row for _, row in stream.records(ROOT / "data/prompts.jsonl")]


@pytest.mark.slow
def test_every_row_is_of_the_schema():
    schema = json.loads((ROOT / "assets/schemas/prompt.json").read_text())
    for row in ROWS:
        jsonschema.validate(row, schema)
        assert 6 <= len(row["checklist"]) <= 12, row["id"]
        assert len({item["id"] for item in row["checklist"]}) == len(row["checklist"]), row["id"]


def test_the_rows_are_many_and_varied():
    def count(field):
        return Counter(row["asks"][field] for row in ROWS)

    assert len(ROWS) >= 120
    assert len(count("domain")) >= 20
    assert len(count("audience")) >= 3
    assert set(count("theme")) == {"default", "seriph", "apple-basic"}
    assert set(count("slides")) == set(range(5, 15))
    assert len(count("language")) >= 10
    features = Counter(feature for row in ROWS for feature in row["asks"]["features"])
    assert all(features[name] >= 12 for name in ("code", "mermaid", "katex", "table", "image"))
    assert sum("outline" in row["asks"] for row in ROWS) >= 30


def test_the_core_is_thirty_rows_over_all_themes_and_several_languages():
    core = [row for row in ROWS if "core" in row["sets"]]
    assert len(core) == 30
    assert {row["asks"]["theme"] for row in core} == {"default", "seriph", "apple-basic"}
    assert len({row["asks"]["language"] for row in core}) >= 4
    assert len({row["asks"]["domain"] for row in core}) >= 15


def test_every_row_is_asked_with_the_same_system_prompt():
    system = (ROOT / "assets/prompts/deck-system.txt").read_text().strip()
    assert {row["messages"][0]["content"] for row in ROWS} == {system}
    assert {tuple(m["role"] for m in row["messages"]) for row in ROWS} == {("system", "user")}


def test_what_a_row_asks_for_stands_in_its_request():
    for row in ROWS:
        request = row["messages"][1]["content"]
        assert row["asks"]["theme"] in request.casefold(), row["id"]
        for title in row["asks"].get("outline", []):
            assert title.casefold() in request.casefold(), (row["id"], title)


@pytest.mark.parametrize("words", [8])
def test_no_two_rows_share_a_run_of_words(words):
    seen = {}
    for row in ROWS:
        tokens = row["messages"][1]["content"].casefold().split()
        for start in range(len(tokens) - words + 1):
            run = tuple(tokens[start : start + words])
            assert seen.setdefault(run, row["id"]) == row["id"], (row["id"], seen[run], run)
