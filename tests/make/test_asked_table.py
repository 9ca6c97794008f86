"""What is read of requests, as a table and as rows that people correct."""

import json
import sys

import pytest
from decksmith.core import cli, stream
from decksmith.measure.judging import prompt_rows

sys.path.insert(0, str(cli.ROOT / "make"))
import asked_table  # noqa: E402

REQUESTS = (
    "Something about bees for my daughter's class, please",
    "Fünf bis sieben Folien für Eltern, mit Tabelle. Wir sind Imker. Im Mai ernten wir 1.200 kg Honig, apple-basic",
    "用中文做一个介绍茶叶的演示文稿，8页，不要表格，并且请写清楚产地和季节以及价格",
    "Sections: Where we stand, What it costs, Who decides. At least four slides, with code, a diagram, an image and a quote",
)


@pytest.fixture
def look(tmp_path, monkeypatch, capsys):
    """The command over rows of requests, from a file of this name: what it prints."""

    def run(*lines, name="mine.txt"):
        rows = [row for line in lines for row in prompt_rows.rows(line)]
        (tmp_path / "rows").write_bytes(b"".join(stream.dumps(row) + b"\n" for row in rows))
        records = stream.records
        monkeypatch.setattr(
            asked_table.stream,
            "records",
            lambda path: records(tmp_path / "rows" if str(path) == "/dev/stdin" else path),
        )
        asked_table.main.command.main([str(tmp_path / name)], standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_the_table_says_what_was_read_and_fits_a_hundred_columns(look, tmp_path):
    said = look(*REQUESTS).splitlines()
    assert [line.split()[-7:] for line in said[1:3]] == [
        ["-", "en", "-", "-", "-", "-", "-"],
        ["5-7", "de", "apple-basic", "parents", "table", "-", "1200"],
    ]
    assert said[4].split()[4:6] == ["4+", "en"] and said[4].split()[-2:] == ["3", "-"]
    assert max(len(line) for line in said[:-2]) <= 100
    assert said[-1] == f"Next: make baseline PROMPTS={tmp_path}/mine.checked.jsonl"


def test_the_rows_are_taken_as_they_are_corrected(look, tmp_path):
    look(*REQUESTS)
    path = tmp_path / "mine.checked.jsonl"
    first, *others = path.read_text().splitlines()
    row = json.loads(first)
    assert row["asks"] == {"features": [], "language": "en", "figures": []}
    row["asks"]["language"] = "fr"
    path.write_text("\n".join([json.dumps(row), *others]) + "\n")
    (again,) = prompt_rows.rows(path.read_text().splitlines()[0])
    assert again == row
    said = look(*REQUESTS)
    assert f"{path} was corrected by somebody and stays as it is" in said
    assert json.loads(path.read_text().splitlines()[0]) == row


def test_a_file_that_nobody_corrected_follows_its_requests(look, tmp_path):
    look(REQUESTS[0])
    assert "stays as it is" not in look(*REQUESTS)
    assert len((tmp_path / "mine.checked.jsonl").read_text().splitlines()) == len(REQUESTS)


def test_a_checked_file_is_shown_and_not_written(look, tmp_path):
    said = look(*REQUESTS, name="mine.checked.jsonl")
    assert "Next: make baseline" in said and not (tmp_path / "mine.checked.jsonl").exists()


def test_a_checked_file_that_cannot_be_read_is_named(look, tmp_path):
    (tmp_path / "mine.checked.jsonl").write_text("{")
    with pytest.raises(cli.BadData, match="mine.checked.jsonl:1"):
        look(REQUESTS[0])
