"""Labelled cases: forgeries of a real small run, each named by what it is; the honest runs they are made of are silent."""

import copy
import itertools
import json
import shutil
import sys
from pathlib import Path

import pytest
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import identity, scoring
from decksmith.measure.results import claims, looks, runs, unnoticed, verify
from decksmith.measure.results.summary import summarize
from shadow import ROOT, endpoint, environment, make

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import synthetic  # noqa: E402

REGISTRY = """
[ada]
base_url = "{url}"
slug = "fake"
[reference]
base_url = "files:data/reference/"
slug = "reference"
"""
PIPELINE = """for m in ada reference; do R=results/runs/$m/offline; mkdir -p $R; cp data/prompts.jsonl $R
bin/chat-generate --model $m --protocol offline --run $R < $R/prompts.jsonl | bin/deck-parse --run $R |
bin/deck-illustrate --run $R | bin/deck-render --run $R | bin/deck-judge --run $R | bin/deck-scan --run $R |
bin/deck-score > $R/scores.jsonl; bin/run-summarize --run $R < $R/scores.jsonl > $R/summary.json; done"""
ADA, REFERENCE = "ada/offline", "reference/offline"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """results/runs with the runs of an endpoint's model and of the reference decks, two prompts each."""
    import subprocess

    folder = tmp_path_factory.mktemp("unnoticed")
    server, url = endpoint(folder)
    shipped = [row for _, row in stream.records(ROOT / "data/prompts.jsonl")]
    prompts = [row for row in shipped if row["id"] in ("p002", "p010")]
    root = make(folder / "root", prompts, REGISTRY.format(url=url))
    (root / "data/reference").symlink_to(ROOT / "data/reference")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", PIPELINE],
        cwd=root,
        env=environment(root),
        capture_output=True,
        text=True,
    )
    server.kill()
    assert done.returncode == 0, done.stderr
    return root / "results/runs"


def rows_of(folder):
    return [row for _, row in stream.records(folder / "scores.jsonl")]


def settle(folder, rows):
    """What a careful forger does: score, identity and summary follow from the edited records."""
    protocol = Protocol.load("offline")
    for row in rows:
        row["score"] = scoring.score(protocol, row)
    (folder / "scores.jsonl").write_bytes(b"".join(stream.dumps(row) + b"\n" for row in rows))
    (folder / "protocol.json").write_text(json.dumps(identity.identity(protocol, rows)))
    (folder / "summary.json").write_text(json.dumps(summarize(enumerate(rows, 1))))


def journaled(folder, change):
    """Edit every reply of the journal, too."""
    path = folder / "journal/gen.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    for entry in entries:
        change(entry["gen"])
        entry.pop("crc", None)
    path.write_bytes(b"".join(stream.dumps(entry) + b"\n" for entry in entries))


def rename(folder, old, new):
    rows = rows_of(folder)
    for row in rows:
        row["gen"]["model"]["name"] = new
    settle(folder, rows)


# The forgeries. Each is given results/runs, edits it, and says which runs are then compared.


def two_names(there):
    """The replies of one model, said to be of two."""
    shutil.copytree(there / "ada", there / "eve")
    rename(there / "eve/offline", "ada", "eve")
    journaled(there / "eve/offline", lambda gen: gen["model"].update(name="eve"))
    return [ADA, "eve/offline"]


def renamed(there):
    """The model's name edited in the records alone."""
    rename(there / ADA, "ada", "gpt")
    return [ADA, REFERENCE]


def another_answers(there):
    """The endpoint answers one request as another model."""
    rows = rows_of(there / ADA)
    for row, name in zip(rows, ("fake-large", "fake-small"), strict=True):
        row["gen"]["by"]["response"] = {"model": name}
    settle(there / ADA, rows)
    return [ADA, REFERENCE]


def better_verdict(there):
    """Every check is passed, in the verdict alone; score and summary follow from it."""
    rows = rows_of(there / ADA)
    for row in rows:
        row["judge"]["findings"] = []
        row["judge"]["checks"]["passed"] = row["judge"]["checks"]["of"]
    settle(there / ADA, rows)
    return [ADA, REFERENCE]


def others_decks(there):
    """The decks of the reference behind the replies of the model."""
    rows = rows_of(there / ADA)
    theirs = {row["id"]: row for row in rows_of(there / REFERENCE)}
    for row in rows:
        for stage in ("deck", "images", "render", "judge", "features"):
            row[stage] = theirs[row["id"]][stage]
        shutil.rmtree(there / ADA / row["id"])
        shutil.copytree(there / REFERENCE / row["id"], there / ADA / row["id"])
    settle(there / ADA, rows)
    return [ADA, REFERENCE]


def cut_checklists(there):
    """Two items of each checklist, under the ids of the shipped prompts."""
    for run in (ADA, REFERENCE):
        rows = rows_of(there / run)
        for row in rows:
            kept = [item["id"] for item in row["checklist"][:2]]
            row["checklist"] = row["checklist"][:2]
            said = row["judge"]
            said["checklist"] = [one for one in said["checklist"] if one["id"] in kept]
            gone = [a for a in said["asked"] if a["check"] == "checklist" and a["what"] not in kept]
            said["asked"] = [one for one in said["asked"] if one not in gone]
            said["findings"] = [
                one
                for one in said["findings"]
                if one["check"] != "checklist"
                or any(f"item {ident} of" in one["message"] for ident in kept)
            ]
            said["checks"]["of"] -= len(gone)
            said["checks"]["passed"] -= sum(one["yes"] for one in gone)
        settle(there / run, rows)
        prompts = [
            {key: row[key] for key in ("id", "messages", "asks", "checklist")} for row in rows
        ]
        (there / run / "prompts.jsonl").write_bytes(
            b"".join(stream.dumps(row) + b"\n" for row in prompts)
        )
    return [ADA, REFERENCE]


def no_journal(there):
    (there / ADA / "journal/gen.jsonl").unlink()
    return [ADA, REFERENCE]


def another_reply(there):
    """The journal's replies are others than the records'."""
    journaled(there / ADA, lambda gen: gen.update(text="# Another deck"))
    return [ADA, REFERENCE]


REFUSED = {
    renamed: "gen.model is ",
    better_verdict: "judge.checks.passed is ",
    others_decks: "deck.sha256 is ",
    another_reply: "gen.text is ",
}
NAMED = {
    two_names: "ada and eve gave the same reply to 2 of 2 requests, word for word (p002, p010)",
    another_answers: "ada: the endpoint answered as 2 models: fake-large (1) and fake-small (1)",
    cut_checklists: "2 of 2 prompts have another checklist than data/prompts.jsonl has under their ids (p002, p010)",
}


def loaded(there, names):
    return runs.load([there / name for name in names])


@pytest.fixture
def there(made, tmp_path):
    shutil.copytree(made, tmp_path / "results/runs")
    return tmp_path / "results/runs"


@pytest.mark.long(
    "tests/hostile/test_rot.py::test_flipped_bits_of_a_finished_run_are_noticed_or_change_nothing"
)
@pytest.mark.slow
@pytest.mark.browser
def test_honest_runs_are_silent(there):
    honest = loaded(there, [ADA, REFERENCE])
    verify.check(honest)
    assert unnoticed.unnoticed(honest) == []
    assert not any("its journal" in line for line in looks.remember(honest)["said"])


@pytest.mark.long(
    "tests/hostile/test_rot.py::test_flipped_bits_of_a_finished_run_are_noticed_or_change_nothing"
)
@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("forge", REFUSED, ids=lambda forge: forge.__name__)
def test_a_run_that_contradicts_itself_is_refused(there, forge):
    compared = loaded(there, forge(there))
    with pytest.raises(cli.BadData) as refusal:
        verify.check(compared)
    assert f": {REFUSED[forge]}" in str(refusal.value)


@pytest.mark.long("test_how_two_models_were_asked_and_what_was_cut_off_stands_in_the_headline")
@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("forge", NAMED, ids=lambda forge: forge.__name__)
def test_what_contradicts_nothing_is_named_beside_the_claims(there, forge):
    compared = loaded(there, forge(there))
    verify.check(compared)
    found = unnoticed.unnoticed(compared)
    assert any(line.startswith(NAMED[forge]) for line in found), found
    assert set(found) <= set(claims.compare(compared)["caveats"])


@pytest.mark.long(
    "tests/hostile/test_rot.py::test_flipped_bits_of_a_journal_are_noticed_or_change_nothing"
)
@pytest.mark.slow
@pytest.mark.browser
def test_a_journal_that_was_removed_is_named_with_the_looks(there):
    compared = loaded(there, no_journal(there))
    verify.check(compared)
    wanted = (
        "ada: its journal (journal/gen.jsonl) has not the replies to 2 of 2 requests (p002, p010)"
    )
    assert any(line.startswith(wanted) for line in looks.remember(compared)["said"])


def requests(*texts):
    return [
        {"id": f"q{n}", "messages": [{"role": "user", "content": text}]}
        for n, text in enumerate(texts)
    ]


def test_one_request_with_words_added_is_one_request():
    asked = "Ten slides on how coral reefs recover after bleaching, for students of biology"
    added = asked.replace("coral", "the coral") + ", please!"
    other = asked.replace("coral reefs", "burnt forests")
    (line,) = unnoticed._repeated(requests(asked, other, added))
    assert "(q2 is q0)" in line.replace(": ", " (").replace(";", ")", 1)
    assert "the 3 prompts are 2 requests, and intervals take them for 3" in line
    assert list(unnoticed._repeated(requests(asked, other))) == []


def test_a_request_in_a_script_without_blanks_is_compared_by_its_letters():
    asked = "请为中学生制作一份关于珊瑚礁如何恢复的幻灯片"
    (line,) = unnoticed._repeated(requests(asked, asked.replace("制作", "精心制作")))
    assert "q1 is q0" in line


def test_the_shipped_prompts_are_different_requests():
    rows = [row for _, row in stream.records(ROOT / "data/prompts.jsonl")]
    assert list(unnoticed._repeated(rows)) == list(unnoticed._cut_prompts(rows)) == []


@pytest.fixture
def two(tmp_path):
    """Two runs of eight prompts, whose records are edited before they are written."""

    def write(edit):
        for name in ("a", "b"):
            rows = [synthetic.record(tmp_path / name, name, 1, n, False) for n in range(8)]
            edit(name, rows)
            synthetic.write(tmp_path / name, rows)
        return runs.load([tmp_path / name for name in ("a", "b")])

    return write


def test_how_two_models_were_asked_and_what_was_cut_off_stands_in_the_headline(two):
    def edit(name, rows):
        for row in rows:
            own = {"temperature": 0.7 if name == "a" else 0.2, "max_tokens": 1024}
            own |= {"chat_template_kwargs": {"enable_thinking": True}} if name == "a" else {}
            row["gen"]["finish_reason"] = "length" if name == "a" else "stop"
            row["gen"]["sampling"] = own
            row["gen"]["model"]["params"] = own
        for row in rows[:3]:
            stopped = {"why": "repeats", "kept": 30, "read": 450}
            row["gen"] |= {"finish_reason": "stopped", "stopped": stopped}

    a, b = two(edit)
    said = unnoticed.asked_otherwise(a, b)
    assert said == (
        ". a was asked at chat_template_kwargs.enable_thinking True and temperature 0.7, "
        "b at chat_template_kwargs.enable_thinking unset and temperature 0.2"
        ". 5 of 8 replies of a were cut off at 1,024 tokens and 3 of 8 replies of a and 3 of 8 replies of b were stopped, since they "
        "repeated themselves or began no slide"
    )
    for first, second in itertools.permutations((a, b)):
        compared = claims.compare([copy.deepcopy(first), copy.deepcopy(second)])
        assert any("temperature 0.7" in line for line in compared["headlines"])


def test_runs_that_were_asked_alike_have_nothing_more_to_say(two):
    def edit(name, rows):
        for row in rows:
            row["gen"].update(finish_reason="stop")

    a, b = two(edit)
    assert unnoticed.asked_otherwise(a, b) == ""
    for run, engine in ((a, "vllm 1"), (b, "vllm 2")):
        run["summary"]["model"]["served"] = {"engine": engine, "base": "base", "adapter": None}
    assert unnoticed.asked_otherwise(a, b) == ". a was asked at engine vllm 1, b at engine vllm 2"
