"""Queries are graded by what they give, in SQLite, where they can read one database and do nothing else."""

import json
import sqlite3

import pytest
from decksmith.bench.benchmarks import grading, tasks
from decksmith.bench.benchmarks.graders import sql
from decksmith.core import cli, stream

pytestmark = pytest.mark.slow

ROWS = [("Danube", 10, 2850.5), ("Rhine", 6, 1233.0), ("Elbe", 2, 1094.0), ("Oder", 3, 854.0)]


@pytest.fixture
def rivers(tmp_path):
    """A folder of databases with one in it."""
    path = tmp_path / "dbs" / "rivers" / "rivers.sqlite"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE river (name TEXT, countries INTEGER, length REAL)")
        db.executemany("INSERT INTO river VALUES (?, ?, ?)", ROWS)
    return path


def verdict(path, reference, reply, **more):
    expected = {"sql": reference, "database": str(path), **more}
    return sql.grade({"expected": expected}, f"So:\n```sql\n{reply}\n```")


@pytest.mark.parametrize(
    "reference, reply, found",
    [
        ("SELECT name FROM river", "SELECT name FROM river ORDER BY length", "right"),
        ("SELECT name FROM river", "SELECT DISTINCT upper(name) FROM river", "wrong"),
        ("SELECT name FROM river ORDER BY length", "SELECT name FROM river", "wrong"),
        ("SELECT name FROM river ORDER BY name", "SELECT name FROM river ORDER BY 1;", "right"),
        ("SELECT name, countries FROM river", "SELECT countries, name FROM river", "right"),
        ("SELECT name FROM river", "SELECT name, countries FROM river", "wrong"),
        ("SELECT count(*) FROM river", "SELECT 4.0", "right"),
        ("SELECT 1.0/3", "SELECT 0.33333333", "right"),
        ("SELECT 1.0/3", "SELECT 0.33", "wrong"),
        ("SELECT name FROM river WHERE countries > 99", "SELECT 1 WHERE 0", "right"),
        ("SELECT name FROM river", "SELECT name FROM river UNION ALL SELECT 'Oder'", "wrong"),
        ("SELECT name FROM river", "SELECT nme FROM river", "wrong"),
    ],
)
def test_a_query_is_right_that_gives_the_same_rows(rivers, reference, reply, found):
    assert verdict(rivers, reference, reply)["verdict"] == found


def test_as_bird_compares_rows_count_once_and_columns_in_their_order(rivers):
    twice = "SELECT name FROM river UNION ALL SELECT name FROM river"
    assert verdict(rivers, "SELECT name FROM river", twice, set=True)["verdict"] == "right"
    turned = "SELECT countries, name FROM river"
    reference = "SELECT name, countries FROM river"
    assert verdict(rivers, reference, turned, set=True)["verdict"] == "wrong"


@pytest.mark.parametrize(
    "reply",
    [
        "DELETE FROM river",
        "ATTACH 'made.db' AS other",
        "SELECT load_extension('x')",
        "SELECT zeroblob(1000000000)",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
        *(
            pytest.param(reply, marks=pytest.mark.long)
            for reply in (
                "DROP TABLE river",
                "CREATE TABLE more (x)",
                "INSERT INTO river VALUES ('x', 1, 1)",
                "PRAGMA writable_schema = 1",
                "ATTACH '/etc/passwd' AS other",
                "VACUUM INTO 'made.db'",
                "SELECT readfile('/etc/passwd')",
                "SELECT name FROM river; DELETE FROM river",
                "SELECT printf('%.*c', 1000000000, 'x')",
                "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
                "SELECT a.name FROM river a, river b, river c, river d, river e, river f, river g, river h, river i, river j",
                "(" * 5000 + "SELECT 1",
            )
        ),
    ],
)
def test_a_query_reads_its_database_and_does_nothing_else(rivers, reply, monkeypatch, tmp_path):
    monkeypatch.setattr(sql, "SECONDS", 0.2)
    monkeypatch.setattr(sql, "MOST", 100_000)
    monkeypatch.chdir(tmp_path)
    before = rivers.read_bytes()
    assert verdict(rivers, "SELECT name FROM river", reply)["verdict"] == "wrong"
    assert rivers.read_bytes() == before
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["rivers.sqlite"]


def test_what_is_no_query_is_no_answer_and_what_is_ours_no_verdict(rivers, tmp_path):
    task = {"expected": {"sql": "SELECT 1", "database": str(rivers)}}
    assert sql.grade(task, "I would rather not.")["verdict"] == "no_answer"
    assert sql.grade(task, "select 1")["verdict"] == "right"
    with pytest.raises(stream.Fault, match="no such table"):
        verdict(rivers, "SELECT x FROM nowhere", "SELECT 1")
    with pytest.raises(cli.Missing, match="docs/benchmarks"):
        verdict(tmp_path / "none.sqlite", "SELECT 1", "SELECT 1")


def test_rows_with_a_database_are_asked_with_its_tables(rivers, tmp_path, monkeypatch):
    monkeypatch.setenv("DECKSMITH_BENCHMARKS", str(tmp_path))
    (tmp_path / "own-sql.toml").write_text(
        'title = "x"\nsource = { file = "q.jsonl", databases = "dbs" }\nlicence = "CC0"\n'
        'template = "sql"\ngrader = "sql"\n'
        "row = '{fields: {question, schema, hint: \"\"}, expected: {sql, database}}'\n"
    )
    row = {"question": "Which is longest?", "db_id": "rivers"}
    row["sql"] = "SELECT name FROM river ORDER BY length DESC LIMIT 1"
    (tmp_path / "q.jsonl").write_text(json.dumps(row))
    (record,) = tasks.prepare("own-sql", tmp_path / "kept")
    assert "CREATE TABLE river (name TEXT" in tasks.messages(record)[0]["content"]
    found = grading.grade(tasks.load("own-sql"), record["task"], f"```sql\n{row['sql']}\n```")
    assert found["verdict"] == "right"
    (tmp_path / "q.jsonl").write_text(json.dumps(row | {"db_id": "../rivers"}))
    with pytest.raises(cli.BadData, match="no plain name"):
        list(tasks.prepare("own-sql", tmp_path / "kept"))
    (tmp_path / "q.jsonl").write_text(json.dumps(row | {"db_id": "lakes"}))
    with pytest.raises(cli.Missing, match=r"lakes\.sqlite"):
        list(tasks.prepare("own-sql", tmp_path / "kept"))
