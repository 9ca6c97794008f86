"""data/prompts.jsonl keeps what it promises."""

from collections import Counter
from pathlib import Path

import pytest
from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import identity, prompt_rows
from decksmith.train.corpus import overlap

ROOT = Path(__file__).resolve().parents[2]
ROWS = [row for _, row in stream.records(ROOT / "data/prompts.jsonl")]


def test_every_row_is_of_the_schema_and_its_checklist_finds_its_reference_sentences():
    for row in ROWS:
        prompt_rows.valid(row)
        assert 6 <= len(row["checklist"]) == len(row["references"]) <= 12, row["id"]
        assert len({item["id"] for item in row["checklist"]}) == len(row["checklist"]), row["id"]


def test_a_reference_sentence_hardly_ever_satisfies_another_item():
    """Items that name elements only are satisfied by whatever shows these, so that they are left out."""
    loose = []
    for row in ROWS:
        items = row["checklist"]
        worded = {item["id"] for item in items if not all(map(_is_element, item["match"]))}
        for item, sentence in zip(items, row["references"], strict=True):
            others = set(prompt_rows.found(items, item, sentence)) & worded - {item["id"]}
            loose += [(row["id"], item["id"], other) for other in sorted(others)]
    assert loose == [
        ("p003", "c5", "c7"),
        ("p111", "c2", "c3"),
        ("p111", "c2", "c4"),
        ("p116", "c1", "c8"),
    ]


def _is_element(entry):
    return all(option.startswith("@") for option in entry.split("|"))


def test_the_core_is_frozen():
    """Runs over it are compared for years: what the model and the judge see of it may not change."""
    core = [row for row in ROWS if "core" in row["sets"]]
    seen = [[row[key] for key in ("id", "messages", "asks", "checklist")] for row in core]
    assert stream.fingerprint(seen) == (
        "6215bacf06661f3198fb5d81fa04188d5cbf66e66d5061fb99559e51b02382a3"
    )


def test_the_published_protocol_takes_the_rows_that_are_not_wide():
    keep = stream.program(Protocol.load("published").prompts["where"])
    assert [row["id"] for row in ROWS if keep(row)] == [f"p{n:03}" for n in range(1, 133)]


def test_a_reference_sentence_changes_no_identity():
    held, bare = ROWS[1], {key: value for key, value in ROWS[1].items() if key != "references"}
    assert identity.prompts([held]) == identity.prompts([bare])


def test_the_rows_are_many_and_varied():
    def count(field):
        return Counter(row["asks"].get(field) for row in ROWS)

    assert len(ROWS) >= 300
    assert len(count("domain")) >= 20
    assert len(count("audience")) >= 3
    assert set(count("theme")) == {"default", "seriph", "apple-basic", None}
    assert set(count("slides")) >= set(range(4, 15))
    assert len(count("language")) >= 10
    assert count("language")["en"] < 0.75 * len(ROWS)
    sets = Counter(name for row in ROWS for name in row["sets"])
    assert sets["edit"] >= 25 and sets["vague"] >= 12 and sets["conflict"] >= 12
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
        assert row["asks"].get("theme", "") in request.casefold(), row["id"]
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


def test_no_two_requests_are_near_duplicates_by_their_letters():
    requests = [overlap.plain(row["messages"][1]["content"]) for row in ROWS]
    assert overlap.jaccard(requests) == []
