"""A run whose files were edited contradicts itself, and the message names file, id, field and both values."""

import copy
import json
import sys
import tempfile
from pathlib import Path

import pytest
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import prompt_of
from decksmith.measure.judging import identity
from decksmith.measure.results import runs, verify
from decksmith.measure.results.summary import summarize

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import synthetic  # noqa: E402


def load(paths):
    """Runs that were read and computed again."""
    loaded = runs.load(paths)
    verify.check(loaded)
    return loaded


FOLDER = tempfile.TemporaryDirectory()
ROWS = [
    synthetic.record(Path(FOLDER.name), "smol", 0.8, index, slides_too=False, reads=True)
    for index in range(8)
]
for row in ROWS:
    row["score"]["by"] = {"tool": "deck-score", "at": "2026-01-01T10:00:00+00:00", "took": 0.1}


@pytest.fixture
def run(tmp_path):
    """Write an untouched run of `records` with its prompts.jsonl, then let `edit(records)` change scores.jsonl alone."""

    def write(edit=None, records=ROWS):
        folder = synthetic.write(tmp_path / "smol", records, Protocol.load("published"))
        save(folder / "prompts.jsonl", asked(records))
        if edit:
            records = copy.deepcopy(records)
            save(folder / "scores.jsonl", edit(records) or records)
        return folder

    return write


def asked(records):
    """The prompts of records, once each, as record-sample writes them."""
    rows = [
        {"id": place(record), **{key: record[key] for key in ("messages", "asks", "checklist")}}
        for record in records
    ]
    return list({row["id"]: row for row in rows}.values())


def place(record):
    return prompt_of(record)


def save(path, rows):
    path.write_bytes(b"".join(stream.dumps(row) + b"\n" for row in rows))


def sampled(k):
    """Every record `k` times, as samples."""
    rows = []
    for record in ROWS:
        for n in range(k):
            gen = {**record["gen"], "sample": {"of": record["id"], "k": n}}
            rows.append({**record, "id": f"{record['id']}~{n}", "gen": gen})
    return rows


def said(folder, **how):
    with pytest.raises(cli.BadData) as refusal:
        load([folder], **how)
    first, *lines = str(refusal.value).split("\n  ")
    assert first == f"{folder} contradicts itself:"
    assert (
        lines.pop()
        == f"to derive all of it again from what was paid for: rm {folder}/scores.jsonl && make baseline MODEL=NAME"
    )
    return lines


def test_a_run_as_it_was_made_passes_with_samples_and_without_prompts_jsonl(run):
    folder = run()
    assert load([folder])[0]["unshipped"] == []
    (folder / "prompts.jsonl").unlink()
    assert len(load([folder])[0]["records"]) == 8
    assert len(load([run(records=sampled(3))])[0]["records"]) == 24
    assert len(load([run(records=ROWS[:3])])[0]["records"]) == 3


def test_rows_deleted_from_scores_are_named(run):
    lines = said(run(lambda rows: rows[2:]))
    assert lines[0] == "scores.jsonl: lacks 2 of the 8 prompts in prompts.jsonl: p001, p002"
    assert "protocol.json: prompts.count is 8, the records give 6" in lines


def test_rows_deleted_from_scores_and_prompts_are_still_missing_in_the_protocol(run):
    folder = run(lambda rows: rows[2:])
    (folder / "prompts.jsonl").unlink()
    assert said(folder)[0] == "protocol.json: prompts.count is 8, the records give 6"


def test_failed_samples_deleted_from_scores_are_named_whatever_the_summary_says(run):
    folder = run(
        lambda rows: [row for row in rows if row["id"] not in ("p002~1", "p005~0")], sampled(3)
    )
    left = [record for _, record in stream.records(folder / "scores.jsonl")]
    (folder / "summary.json").write_text(json.dumps(summarize(enumerate(left, 1))))
    assert said(folder) == ["scores.jsonl: lacks 2 samples that other prompts have: p002~1, p005~0"]


def test_rows_that_nobody_asked_for_and_other_requests_are_named(run):
    folder = run()
    save(folder / "prompts.jsonl", asked(ROWS)[:6])
    assert said(folder) == ["prompts.jsonl: lacks 2 of the 8 prompts in scores.jsonl: p007, p008"]
    rows = copy.deepcopy(asked(ROWS))
    rows[3]["asks"]["slides"] = 60
    save(folder / "prompts.jsonl", rows)
    assert said(folder) == ["scores.jsonl: p004: asks differs from prompts.jsonl"]


def test_an_id_that_is_there_twice_or_hides_another_is_named(run):
    lines = said(run(lambda rows: [*rows, rows[0]]))
    assert lines[0] == "scores.jsonl: p001: this id is there twice"

    def hide(rows):
        rows[1]["gen"]["sample"] = {"of": "p001", "k": 1}

    assert said(run(hide))[0] == "scores.jsonl: p002: id is p002, and gen.sample says p001~1"


RENDERED = next(
    n for n, row in enumerate(ROWS) if row["score"]["rendered"] and not row["score"]["fault"]
)
FAILED = next(n for n, row in enumerate(ROWS) if row["score"]["floored"])


@pytest.mark.parametrize(
    "at, path, new, computed",
    [
        (RENDERED, "score.overall", 4.9, "the stages and weights give"),
        (RENDERED, "score.judge_only", 4.9, "the stages and weights give"),
        (RENDERED, "score.dimensions.design", 4.9, "the stages and weights give"),
        (RENDERED, "score.checklist", 0.99, "the stages and weights give"),
        (FAILED, "score.overall", 4.9, "the stages and weights give"),
        (FAILED, "score.floored", False, "the stages and weights give"),
        (FAILED, "score.fault", None, "the stages and weights give"),
    ],
)
def test_an_edited_score_is_named_with_both_values(run, at, path, new, computed):
    def edit(rows):
        *steps, last = path.split(".")
        part = rows[at]
        for step in steps:
            part = part[step]
        part[last] = new

    old = json.loads(json.dumps(ROWS[at]["score"]))
    for step in path.split(".")[1:]:
        old = old[step]
    line = next(line for line in said(run(edit)) if line.startswith("scores.jsonl: "))
    assert line.startswith(
        f"scores.jsonl: {ROWS[at]['id']}: {path} is {json.dumps(new)}, {computed} "
    )
    assert json.dumps(old, ensure_ascii=False)[:40] in line


@pytest.mark.parametrize(
    "key, field, new",
    [
        ("judge", "scores.content", 9),
        ("judge", "scores.content", "5"),
        ("features", "craft_v5", True),
    ],
)
def test_a_score_that_no_judge_and_no_scan_can_give_is_named(run, key, field, new):
    def edit(rows):
        *steps, last = field.split(".")
        part = rows[RENDERED][key]
        for step in steps:
            part = part[step]
        part[last] = new

    assert (
        f"scores.jsonl: {ROWS[RENDERED]['id']}: {key}.{field} is {identity.short(new)}; it is a number from 1 to 5"
        in said(run(edit))
    )


@pytest.mark.parametrize("counted", [{"passed": 99, "of": 15}, {"passed": 0, "of": 0}])
def test_more_checks_passed_than_there_are_is_named_and_so_are_none(tmp_path, counted):
    row = synthetic.record(tmp_path, "smol", 1, 0, slides_too=False)
    row["judge"]["checks"] = counted
    line = f"{row['id']}: judge.checks is {json.dumps(counted)}; it is passed of all there are"
    assert line in said(synthetic.write(tmp_path / "smol", [row]))[0]


def test_a_stage_of_another_form_is_bad_data_and_no_crash(run):
    lines = said(run(lambda rows: rows[RENDERED]["judge"].update(scores=[5, 5])))
    assert any(
        line.startswith(
            f"scores.jsonl: {ROWS[RENDERED]['id']}: a stage's value has another form than docs/records.md says"
        )
        for line in lines
    )


@pytest.mark.parametrize(
    "field, new, old",
    [
        ("means.floor.design.mean", 1.25, None),
        ("n", 7, 8),
        ("faults.kinds.model", 0, None),
        ("truncated", 0, 1),
        ("means.floor.overall.lo", 4.5, None),
    ],
)
def test_an_edited_summary_is_named_with_both_values(run, field, new, old):
    folder = run()
    stored = json.loads((folder / "summary.json").read_text())
    *steps, last = field.split(".")
    part = stored
    for step in steps:
        part = part[step]
    old, part[last] = part[last], new
    (folder / "summary.json").write_text(json.dumps(stored))
    assert said(folder) == [f"summary.json: {field} is {new}, the records give {old}"]


def test_a_summary_whose_intervals_are_of_another_method_is_no_contradiction(run):
    folder = run()
    stored = json.loads((folder / "summary.json").read_text())
    stored["interval"]["method"], stored["means"]["floor"]["overall"]["lo"] = "another", 1.0
    (folder / "summary.json").write_text(json.dumps(stored))
    assert load([folder])[0]["summary"]["means"]["floor"]["overall"]["lo"] != 1.0


def test_an_edited_protocol_is_named_by_its_hash_its_scores_and_its_records(run):
    folder = run()
    held = json.loads((folder / "protocol.json").read_text())
    held["score"]["weights"]["design"] = 0.9
    (folder / "protocol.json").write_text(json.dumps(held))
    assert said(folder)[0].startswith(
        f"protocol.json: hash is {held['hash'][:12]}.., its content gives "
    )
    held["hash"] = stream.fingerprint({key: part for key, part in held.items() if key != "hash"})
    (folder / "protocol.json").write_text(json.dumps(held))
    assert any(": score.overall is " in line for line in said(folder))
    held["score"]["weights"] = {"design": "much"}
    (folder / "protocol.json").write_text(json.dumps(held))
    assert any(line.startswith("protocol.json: score.weights") for line in said(folder))


def test_sampling_that_the_records_do_not_have_is_named(run):
    folder = run()
    held = json.loads((folder / "protocol.json").read_text())
    held["sampling"]["temperature"] = 0.1
    held["hash"] = stream.fingerprint({key: part for key, part in held.items() if key != "hash"})
    (folder / "protocol.json").write_text(json.dumps(held))
    assert said(folder) == ["protocol.json: sampling.temperature is 0.1, the records give 0.7"]


def test_a_request_that_was_edited_is_named(run):
    from decksmith.models import client

    rows = copy.deepcopy(ROWS)
    for row in rows:
        if "error" not in row["gen"]:
            row["gen"] |= client.asked(
                {"model": "x", "messages": row["messages"], **row["gen"]["sampling"]}
            )
    assert load([run(records=rows)])

    def edit(rows):
        rows[RENDERED]["gen"]["sampling"]["reasoning"] = {"effort": "low"}

    assert any(
        line.startswith(f"scores.jsonl: {ROWS[RENDERED]['id']}: gen.request is ")
        for line in said(run(edit, rows))
    )


def test_the_first_contradictions_are_shown_and_the_others_counted(run):
    def edit(rows):
        for row in rows:
            row["score"]["overall"] = 4.9

    lines = said(run(edit))
    assert len(lines) == 6 and lines[-1].startswith("and ") and lines[-1].endswith(" more")


def test_json_of_another_kind_is_named(run):
    folder = run()
    (folder / "summary.json").write_text("[]")
    with pytest.raises(
        cli.BadData,
        match="summary.json: not a JSON object; delete it and `make baseline MODEL=NAME`",
    ):
        load([folder])
