"""data/documents.jsonl and the documents that it names keep what they promise."""

import functools
import json
import random
import re

import pytest
from decksmith.core import cli
from decksmith.measure.decks import sources
from decksmith.measure.judging import grounding, prompt_rows

LINES = (cli.ROOT / "data/documents.jsonl").read_text().splitlines()
NAMES = sorted(path.name for path in sources.FOLDER.iterdir())
TOTALS = (
    "all",
    "all routes",
    "total revenue",
    "total cost",
    "together",
    "zusammen",
    "alle Besuche",
    "ensemble",
    "total",
    "semaine",
)


@functools.cache  # a PDF is read in a cell: not while the tests are collected
def whole(name):
    return sources.find(name, 10**6)


@functools.cache
def rows():
    return [row for line in LINES for row in prompt_rows.rows(line)]


def test_there_are_as_many_as_the_page_says():
    with_sources = [json.loads(line) for line in LINES if '"sources"' in line]
    assert len(with_sources) >= 24
    assert sum('"turns"' in line for line in LINES) >= 8
    assert {"en", "de", "fr"} <= {row["asks"]["language"] for row in with_sources}
    named = {name for row in with_sources for name in row["sources"]}
    assert named == set(NAMES) - {"imkerverein-bericht.md"}  # what the PDF is made of
    assert {name.rpartition(".")[2] for name in named} == {"md", "txt", "html", "pdf"}


def test_every_row_is_of_the_schema_and_every_item_has_its_reference():
    for row in rows():
        prompt_rows.valid(row)
        assert len(row["references"]) == len(row["checklist"]) > 0, row["id"]


@pytest.mark.parametrize("name", NAMES)
def test_a_document_has_two_to_twenty_pages_and_its_totals_are_sums(name):
    document = whole(name)
    assert 2 <= document.of <= 20
    for table in re.findall(r"(?:^\|.*\n?)+", "\n\n".join(document.pages), re.MULTILINE):
        rows = [
            [cell.strip() for cell in row.strip("|").split("|")]
            for row in table.strip().split("\n")
        ]
        rows = [row for row in rows if not set("".join(row)) <= set("-: ")]
        if rows[-1][0] in TOTALS:
            for column in range(1, len(rows[0])):
                cells = [re.sub(r"\D", "", row[column]) for row in rows[1:]]
                if "," in rows[-1][column] and "," not in rows[1][column]:
                    continue  # a mean
                numbers = [int(cell or 0) for cell in cells]
                assert sum(numbers[:-1]) == numbers[-1], (name, rows[0][column])


def test_the_pdf_says_what_its_markdown_says():
    figures = [
        {
            f.text
            for page in whole(f"imkerverein-bericht.{kind}").pages
            for f in grounding.figures_in(page)
        }
        for kind in ("md", "pdf")
    ]
    assert figures[0] - figures[1] == set()


def judged(row, text):
    found = grounding.measured(row, f"---\ntheme: default\n---\n\n# X\n\n{text}")
    return found["figures"], [one["text"] for one in found["unsupported"]]


def test_our_own_sentences_are_grounded_and_with_other_figures_most_are_not():
    chance = random.Random(1)
    figures = named = 0
    for row in rows():
        if row.get("sources"):
            text = "\n\n".join(row["references"])
            assert judged(row, text)[1] in ([], ["630 000"]), row["id"]  # a product: no rule has it
            other = re.sub(r"\d", lambda m: str((int(m[0]) + chance.randint(1, 9)) % 10), text)
            count, lost = judged(row, other)
            figures, named = figures + count, named + len(lost)
    assert named / figures > 0.7


@pytest.mark.parametrize(
    "path", ["../prompts.jsonl", "/etc/passwd", "none.md", "orchard-trial.md/x"]
)
def test_a_row_reads_nothing_outside_of_the_folder(path):
    with pytest.raises(ValueError, match="u-.*: sources: "):
        prompt_rows.rows(json.dumps({"request": "Four slides", "sources": [path]}))


def test_the_request_and_its_id_are_apart_from_the_documents_and_a_budget_cuts_them():
    row = {"request": "Four slides", "sources": ["ferry-report.md", "cantine-etude.md"]}
    (whole,) = prompt_rows.rows(json.dumps(row))
    (cut,) = prompt_rows.rows(json.dumps({**row, "budget": 4_000}))
    (plain,) = prompt_rows.rows(json.dumps({"request": "Four slides"}))
    assert whole["id"] == cut["id"] == plain["id"]
    assert sources.request(cut) == "Four slides" and cut["asks"] == plain["asks"]
    assert [source["cut"] for source in cut["sources"]] == [True, True]
    assert sum(map(len, sources.material(cut).values())) <= 4_100
    assert "[ferry-report.md: the rest is left out]" in cut["messages"][1]["content"]
