"""Our results as files of other harnesses."""

import json
import zipfile

import pytest
from decksmith.bench.benchmarks import harnesses
from decksmith.core import stream


@pytest.fixture
def graded(tmp_path):
    """A model's folder with one benchmark of four rows, of which the last has no grade."""
    task = {"bench": "aime25", "fields": {}, "expected": "1", "subset": None, "revision": "r"}
    gen = {"text": "t", "model": {"name": "m", "slug": "org/m"}, "sampling": {}}
    grade = {"verdict": "right", "score": 1.0, "answer": "1", "truncated": False, "detail": {}}
    found = [
        {"id": f"aime25-{n:05d}", "task": task, "messages": [], "gen": gen, "grade": grade}
        for n in range(1, 5)
    ]
    error = {"kind": "judge", "class": "grader-timeout", "message": "m"}
    found[3] = {**found[3], "grade": {"error": error}}
    lines = b"".join(stream.dumps(row) + b"\n" for row in found)
    stream.write(tmp_path / "m/aime25/rows.jsonl", lines)
    return tmp_path / "m"


def test_results_become_a_log_of_inspect_in_which_a_row_without_a_grade_has_an_error(
    tmp_path, graded
):
    (path,) = harnesses.inspect(tmp_path / "out", graded)
    assert path.name == "org__m_aime25.eval"
    with zipfile.ZipFile(path) as log:
        header = json.loads(log.read("header.json"))
        last = json.loads(log.read("samples/aime25-00004_epoch_1.json"))
        first = json.loads(log.read("samples/aime25-00001_epoch_1.json"))
    assert header["results"]["scores"][0]["metrics"]["mean"]["value"] == 1.0
    assert (header["results"]["total_samples"], header["results"]["completed_samples"]) == (4, 3)
    assert first["scores"] == {"symbolic_correct": {"value": 1.0, "answer": "1"}}
    assert last["scores"] == {} and last["error"]["message"].startswith(
        "judge fault, grader-timeout"
    )
