"""Rows of one's own: files, addresses, programs; and descriptions that lie outside of the repository."""

import gzip
import hashlib
import http.server
import json
import threading

import pytest
from decksmith.bench.benchmarks import sources, tasks
from decksmith.core import cli

ROWS = [{"q": "1+1", "a": "2"}, {"q": "1+2", "a": "3"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
ZIPPED = gzip.compress(LINES, mtime=0)  # a part of a test's name, the same in every process
MINE = """title = "Mine"
source = {{ {source} }}
row = '{{fields: {{problem: .q}}, expected: .a}}'
template = "problem"
grader = "math"
metric = "symbolic_correct"
licence = "CC0"
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Writes a description of one's own and gives its rows; each has a name of its own, since descriptions are read once."""
    monkeypatch.setenv("DECKSMITH_BENCHMARKS", str(tmp_path))
    (tmp_path / "rows.jsonl").write_bytes(LINES)

    def rows(name, source):
        (tmp_path / f"{name}.toml").write_text(MINE.format(source=source))
        return list(tasks.prepare(name, tmp_path / "kept"))

    return rows


@pytest.mark.parametrize(
    "name, data",
    [
        ("rows.jsonl", LINES),
        ("rows.jsonl.gz", ZIPPED),
        ("rows.json", json.dumps(ROWS).encode()),
        ("rows.csv", b"\xef\xbb\xbfq,a\r\n1+1,2\r\n1+2,3\r\n"),
        ("rows.tsv", b"q\ta\n1+1\t2\n1+2\t3\n"),
    ],
)
def test_the_end_of_a_name_says_how_a_file_is_read(name, data):
    assert sources.parsed(name, data) == ROWS


@pytest.mark.parametrize(
    "name, data, said",
    [
        ("rows.jsonl", LINES + b"{", r"rows.jsonl:3: not JSON"),
        ("rows.json", b"{}", "a list of rows"),
        ("rows.jsonl.gz", LINES, "rows.jsonl.gz: "),
        ("rows.csv", b"\xff", "not UTF-8"),
        ("rows.parquet", LINES, "rows.parquet: "),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name, data, said):
    with pytest.raises(cli.BadData, match=said):
        sources.parsed(name, data)


def test_rows_of_a_file_beside_the_description_are_read_anew_when_it_changes(mine, tmp_path):
    found = mine("own-file", 'file = "rows.jsonl"')
    assert [row["id"] for row in found] == ["own-file-00001", "own-file-00002"]
    assert found[0]["task"]["fields"] == {"problem": "1+1"}
    assert found[0]["task"]["revision"] == "sha256 " + hashlib.sha256(LINES).hexdigest()[:16]
    (tmp_path / "rows.jsonl").write_bytes(LINES * 2)
    assert len(list(tasks.prepare("own-file", tmp_path / "kept"))) == 4
    with pytest.raises(cli.Missing, match=r"none\.jsonl: No such file"):
        mine("own-none", 'file = "none.jsonl"')
    with pytest.raises(cli.BadData, match="was expected"):
        mine("own-pinned", f'file = "rows.jsonl", sha256 = "{"0" * 64}"')


def test_a_broken_file_of_lines_leaves_nothing(mine, tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_bytes(LINES + b"{")
    with pytest.raises(cli.BadData, match=r"broken\.jsonl:3: not JSON"):
        mine("own-torn", f'file = "{path.name}"')
    assert not list((tmp_path / "kept").rglob("*.*"))
    path.write_bytes(b"\xff\n")
    with pytest.raises(cli.BadData, match=r"broken\.jsonl: not UTF-8"):
        mine("own-torn", f'file = "{path.name}"')
    path.write_bytes(b"\xef\xbb\xbf\n\n")
    with pytest.raises(cli.BadData, match=r"broken\.jsonl has no rows"):
        mine("own-torn", f'file = "{path.name}"')


def test_rows_of_a_program_come_from_what_it_prints(mine):
    assert len(mine("own-program", "program = 'cat rows.jsonl'")) == 2
    with pytest.raises(cli.BadData, match="ended with 1: cat: none: No such"):
        mine("own-broken", "program = 'cat none'")
    with pytest.raises(cli.Missing, match="does not start"):
        mine("own-lost", "program = 'no-such-program'")
    with pytest.raises(cli.BadData, match="has no rows"):
        mine("own-empty", "program = 'true'")


def test_rows_of_an_address_are_held_to_their_hash(mine, capsys):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/rows.jsonl" else 404)
            self.end_headers()
            self.wfile.write(LINES)

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    url, sha = f"http://127.0.0.1:{server.server_port}", hashlib.sha256(LINES).hexdigest()
    assert len(mine("own-url", f'url = "{url}/rows.jsonl", sha256 = "{sha}"')) == 2
    assert len(mine("own-unpinned", f'url = "{url}/rows.jsonl"')) == 2
    assert f'sha256 = "{sha}"' in capsys.readouterr().err
    with pytest.raises(cli.BadData, match=f"has the sha256 {sha}"):
        mine("own-moved", f'url = "{url}/rows.jsonl", sha256 = "{"0" * 64}"')
    with pytest.raises(cli.Missing, match="answers 404"):
        mine("own-gone", f'url = "{url}/other.jsonl"')
    server.shutdown()
    server.server_close()
    assert len(mine("own-url", f'url = "{url}/rows.jsonl", sha256 = "{sha}"')) == 2  # kept
    with pytest.raises(cli.TryAgain, match="cannot be reached"):
        mine("own-away", f'url = "{url}/rows.jsonl"')


def test_a_bad_description_names_itself_and_stops_nobody_else(mine, tmp_path, capsys):
    mine("own-good", 'file = "rows.jsonl"')
    (tmp_path / "own-bad.toml").write_text("title = ")
    (tmp_path / "own-worse.toml").write_bytes(b"\xff")
    found = tasks.usable()
    assert "own-good" in found and "gsm8k" in found and "own-bad" not in found
    said = capsys.readouterr().err
    assert "left out: " in said and "own-bad.toml" in said and "own-worse.toml" in said


def test_a_row_program_that_makes_no_fields_is_told_with_the_row(mine, tmp_path):
    (tmp_path / "own-shape.toml").write_text(
        MINE.format(source='file = "rows.jsonl"').replace(
            "{fields: {problem: .q}, expected: .a}", ".q"
        )
    )
    with pytest.raises(cli.BadData, match=r'row 1: .*own-shape.toml makes no "fields"'):
        list(tasks.prepare("own-shape", tmp_path / "kept"))
