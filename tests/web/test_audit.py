"""The page of judge-export from disk in the pinned Chromium, and what judge-tally counts of its answers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from decksmith.core import cli, stream
from decksmith.study import audit

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ballots as drawn  # noqa: E402

NODE = cli.ROOT / ".venv" / "bin" / "node"


@pytest.fixture
def run(tmp_path):
    """A run of three decks with four items each; the judge says yes to the first two."""
    folder = drawn.run(tmp_path / "run", prompts=3, slides=2)
    rows = []
    for _, row in stream.records(folder / "scores.jsonl"):
        row["checklist"] = [{"id": f"c{n}", "ask": f"Item {n} <b>"} for n in range(1, 5)]
        said = [{"id": f"c{n}", "yes": n < 3, "slide": 1} for n in range(1, 5)]
        row["judge"] = {"judge": "j", "checklist": said}
        rows.append(stream.dumps(row) + b"\n")
    stream.write(folder / "scores.jsonl", b"".join(rows))
    return folder


@pytest.mark.browser
def test_a_person_answers_by_keys_and_clicks_and_saves_what_outlives_a_reload(run, tmp_path):
    text = audit.page(run, 2, "ada")
    assert '"yes"' not in text and text.count("data:image/avif") == 4
    stream.write(tmp_path / "page.html", text)
    done = subprocess.run(
        [NODE, Path(__file__).with_name("audit.mjs"), tmp_path / "page.html", tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found == {"after": "deck 1 of 2, 3 of 8 items", "findings": [], "trouble": []}
    people = audit.read(run, [tmp_path / "out/answers.json"])
    (deck,) = {deck for deck, _ in people["ada"]}
    assert people["ada"] == {(deck, "c1"): True, (deck, "c2"): False, (deck, "c3"): True}


def answers(path, run, who, said, more=()):
    ids = [record["id"] for record in audit.chosen(run, 3)]
    given = {ident: {f"c{n}": said(n) for n in range(1, 5)} for ident in ids}
    path.write_text(
        json.dumps({"run": audit._named(run), "who": who, "answers": given} | dict(more))
    )
    return path


def test_agreement_of_judge_people_and_text_match(run, tmp_path, monkeypatch):
    monkeypatch.setattr(  # what it finds is offline.judge's business (tests/judging)
        audit,
        "_matched",
        lambda run, records: {(r["id"], f"c{n}"): n == 1 for r in records for n in range(1, 5)},
    )
    paths = [
        answers(tmp_path / "a.json", run, "ada", lambda n: n < 3),
        answers(tmp_path / "b.json", run, "bob", lambda n: n < 4),
    ]
    found = audit.compare(run, audit.read(run, paths))
    same = {one["between"]: one["same"]["mean"] for one in found["agreement"]}
    kappa = {one["between"]: one["kappa"] for one in found["agreement"]}
    assert same == {
        "person and judge": 0.875,
        "person and text match": 0.625,
        "judge and text match": 0.75,
        "two persons": 0.75,
    }
    assert kappa["judge and text match"] == 0.5  # (0.75 - 0.5) / (1 - 0.5)
    assert {(one["person"], one["item"]) for one in found["differ"]} == {("bob", "c3")}
    assert "bob says yes, the judge no" in audit.markdown(found)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"run": "0" * 16}, "the answers of another run"),
        ({"answers": {"nobody": {"c1": True}}}, "nobody: c1: no such item"),
        ({"answers": []}, "no file of answers"),
    ],
)
def test_a_file_that_is_not_of_this_run_is_named(run, tmp_path, more, message):
    path = answers(tmp_path / "a.json", run, "ada", lambda n: True, more)
    with pytest.raises(cli.BadData, match=f"a.json: {message}"):
        audit.read(run, [path])


def test_a_run_without_checklists_says_so(tmp_path):
    with pytest.raises(cli.BadData, match="no deck with a checklist was judged"):
        audit.chosen(drawn.run(tmp_path / "run", prompts=1, slides=1), 3)
