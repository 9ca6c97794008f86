"""The stream of records, driven as a real process."""

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import waits
from decksmith.core import cli, stream
from decksmith.measure.judging.records import DeckRecord
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]

STAGE = '''"""A stage for tests."""
import asyncio, json, sys, time
import click
from decksmith.core import cli, stream
from decksmith.core.records import Row

@cli.command(__doc__)
@cli.run_option
@click.option("--jobs", type=int, default=4)
@click.option("--key", default="gen")
@click.option("--needs", default="messages")
def main(run, jobs, key, needs):
    async def work(record):
        with open("did", "a") as log:
            log.write(record["id"] + "\\n")
        await asyncio.sleep(record.get("sleep", 0))
        if "fault" in record:
            raise stream.Fault(record["fault"], "planned", "as asked", retriable=record.get("retriable"))
        if "bug" in record:
            raise ZeroDivisionError("a bug")
        if "missing" in record:
            raise cli.Missing(record["missing"])
        return {"n": record.get("n", 0) * 2}
    return stream.stage(key, work, takes=Row, needs=needs, run=run, inputs=lambda r: r.get("n"), jobs=jobs)
main()
'''


@pytest.fixture
def stage(tmp_path):
    (tmp_path / "x-stage").write_text(STAGE)

    def run(rows, *args, **options):
        data = (
            rows if isinstance(rows, bytes) else b"".join(stream.dumps(row) + b"\n" for row in rows)
        )
        return subprocess.run(
            [sys.executable, "x-stage", *args],
            input=data,
            capture_output=True,
            cwd=tmp_path,
            env=dict(os.environ, PYTHONPATH=str(ROOT / "lib")),
            timeout=waits.HANG,
            **options,
        )

    run.did = lambda: (tmp_path / "did").read_text().split() if (tmp_path / "did").exists() else []
    run.path = tmp_path
    return run


def rows(n, **more):
    return [{"id": f"r{i}", "n": i, "messages": [], **more} for i in range(n)]


def values(done):
    return [(row["id"], row["gen"].get("n")) for row in map(json.loads, done.stdout.splitlines())]


def test_order_is_kept_whatever_the_speed_of_each_record(stage):
    data = rows(30)
    for i, row in enumerate(data):
        row["sleep"] = 0.2 if i % 7 == 0 else 0
    done = stage(data)
    assert done.returncode == 0
    assert values(done) == [(f"r{i}", 2 * i) for i in range(30)]


def test_unknown_keys_and_unicode_pass_through_untouched(stage):
    row = {
        "id": "r",
        "n": 1,
        "messages": [],
        "x": {"é": ["漢", "\u2028", None, 1.5, True]},
        "y": "\U0001f600",
    }
    done = stage([row])
    out = json.loads(done.stdout)
    del out["gen"]
    assert out == row


def test_a_broken_line_is_named_and_the_others_are_done(stage):
    done = stage(
        b'{"id":"a","messages":[]}\n{"id":\n[1]\n{"id":"../x","messages":[]}\n{"id":"a","messages":[]}\n{"id":"b"}\n{"id":"c","messages":[]}'
    )
    assert done.returncode == 65
    assert [ident for ident, _ in values(done)] == ["a", "c"]
    errors = done.stderr.decode().splitlines()
    assert errors[0].startswith("x-stage: stdin:2: not JSON")
    assert (
        errors[1]
        == "x-stage: stdin:3: not an object but a JSON array; jq -c '.[]' makes lines of it"
    )
    assert errors[2].startswith('x-stage: stdin:4: no usable "id"')
    assert errors[3] == "x-stage: stdin:5: a: this id came before; ids must be unique"
    assert errors[4].startswith('x-stage: stdin:6: b: no "messages" in this record')


def test_a_wrong_key_is_named_before_any_work_and_what_is_lacking_or_unknown_passes(tmp_path):
    usage = {"prompt_tokens": 1, "completion_tokens": None}
    prompt = {"id": "p1", "messages": [{"role": "user", "content": "x"}], "mine": {"any": [1]}}
    good = [
        {**prompt, "gen": {"text": "x", "usage": {**usage, "cost": 1}}},
        {**prompt, "id": "p2", "gen": {"error": {"kind": "model", "class": "c", "message": "m"}}},
        {"id": "p3"},
    ]
    bad = [
        {**prompt, "gen": {"usage": {**usage, "cost": "0.1"}}},
        {**prompt, "messages": ["x"]},
        {**prompt, "deck": {"slides": True}},
    ]
    path = tmp_path / "rows.jsonl"
    stream.write_records(path, good)
    assert [record for _, record in stream.records(path, DeckRecord)] == good
    places = []
    for row in bad:
        stream.write_records(path, [*good, row])
        with pytest.raises(cli.BadData) as stop:
            list(stream.records(path, DeckRecord))
        places.append(str(stop.value).removeprefix(f"{path}:4: ").split(": ")[0])
    assert places == ["gen.usage.cost", "messages.0", "deck.slides"]
    data = "".join(json.dumps(row) + "\n" for row in [*good, {**bad[0], "id": "p4"}])
    script = [ROOT / "bin" / "deck-score"]
    done = subprocess.run(script, input=data, capture_output=True, text=True, cwd=tmp_path)
    said = "deck-score: stdin:4: gen.usage.cost: input should be a valid number, not '0.1'\n"
    assert (done.returncode, said in done.stderr) == (65, True), done.stderr
    assert "Traceback" not in done.stderr


def test_infra_faults_exit_75_and_are_done_again_while_other_faults_are_kept(stage):
    data = rows(4)
    data[1]["fault"], data[2]["fault"] = "infra", "model"
    assert stage(data).returncode == 75
    assert stage(data).returncode == 75
    assert sorted(stage.did()) == ["r0", "r1", "r1", "r2", "r3"]
    data[1].pop("fault")
    done = stage(data)
    assert done.returncode == 0
    assert values(done) == [("r0", 0), ("r1", 2), ("r2", None), ("r3", 6)]


ERROR = {"kind": "judge", "class": "x", "message": "it failed"}


@pytest.mark.parametrize("key", ["gen", "grade", "build", "a-stage-of-tomorrow"])
def test_a_fault_under_any_key_passes_a_later_stage_untouched(stage, key):
    row = rows(1, **{key: {"error": ERROR}})[0]
    done = stage([row], "--key", "next")
    assert done.returncode == 0 and json.loads(done.stdout) == row


def test_the_decisive_fault_is_the_first_in_the_order_of_the_record():
    later, earlier = {**ERROR, "class": "later"}, {**ERROR, "class": "earlier"}
    record = {"id": "a", "grade": {"error": earlier}, "gen": {"error": later}}
    assert stream.fault(record) == {"stage": "grade", **earlier}


def test_what_is_no_stages_error_is_no_fault():
    record = {"id": "a", "error": "x", "asks": {"error": "of a model"}, "near": [{"error": ERROR}]}
    assert stream.fault(record | {"gen": {"error": None}}) is None


def test_a_fault_for_good_is_neither_retried_nor_an_exit_status(stage):
    data = rows(1, fault="infra", retriable=False)
    assert stage(data).returncode == 0
    assert stage(data).returncode == 0
    assert stage.did() == ["r0"]


def test_a_record_that_failed_earlier_goes_through_untouched(stage):
    row = {
        "id": "r",
        "messages": [],
        "deck": {"error": {"kind": "model", "class": "c", "message": "m"}},
    }
    done = stage([row])
    assert json.loads(done.stdout) == row
    assert stage.did() == []


def test_a_bug_is_a_traceback_and_exit_1_and_keeps_what_was_finished(stage):
    data = rows(3)
    data[2] |= {"bug": 1, "sleep": 0.2}
    done = stage(data)
    assert done.returncode == 1
    assert b"ZeroDivisionError: a bug" in done.stderr
    del data[2]["bug"]
    assert stage(data).returncode == 0
    assert sorted(stage.did()) == ["r0", "r1", "r2", "r2"]


def test_what_several_records_lack_is_said_once_for_the_first_of_them(stage):
    done = stage(
        [
            {**row, "sleep": 0.1, "missing": f"{row['id']} needs a thing; fetch it: make thing"}
            for row in rows(4)
        ]
    )
    assert (done.returncode, done.stdout) == (69, b"")
    assert done.stderr.decode().splitlines()[0].endswith("r0 needs a thing; fetch it: make thing")
    assert b"Traceback" not in done.stderr and b"r1 needs" not in done.stderr


@pytest.mark.slow
def test_a_closed_pipe_ends_the_stage_silently(stage):
    done = subprocess.run(
        [
            "bash",
            "-c",
            f'set -o pipefail; (for i in $(seq 200); do echo \'{{"id":"r\'$i\'","messages":[]}}\'; done; sleep 2)'
            f" | {sys.executable} x-stage | head -1",
        ],
        capture_output=True,
        cwd=stage.path,
        env=dict(os.environ, PYTHONPATH=str(ROOT / "lib")),
        timeout=waits.HANG,
    )
    assert b"Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_a_changed_input_is_done_again_and_an_unchanged_one_is_not(stage):
    stage(rows(3))
    data = rows(3)
    data[1]["n"] = 50
    assert values(stage(data)) == [("r0", 0), ("r1", 100), ("r2", 4)]
    assert values(stage(rows(3))) == [("r0", 0), ("r1", 2), ("r2", 4)]
    assert stage.did().count("r1") == 2 and len(stage.did()) == 4


@pytest.mark.slow
def test_killed_at_random_moments_it_finishes_and_repeats_nothing(stage):
    data, random_moments = rows(40, sleep=0.02), random.Random(5)
    (stage.path / "in").write_bytes(b"".join(stream.dumps(row) + b"\n" for row in data))
    finished = 0
    for _ in range(8):
        with open(stage.path / "in", "rb") as source:
            process = subprocess.Popen(
                [sys.executable, "x-stage", "--jobs", "2"],
                stdin=source,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=stage.path,
                env=dict(os.environ, PYTHONPATH=str(ROOT / "lib")),
            )
            time.sleep(random_moments.uniform(0.1, 0.5))
            process.send_signal(signal.SIGKILL)
            process.wait()
        journal = stage.path / "journal" / "gen.jsonl"
        now = journal.read_bytes().count(b"\n") if journal.exists() else 0
        assert now >= finished
        finished = now
    done = stage(data)
    assert values(done) == [(f"r{i}", 2 * i) for i in range(40)]
    # Only rows in flight at a kill (two at a time, eight kills) may have been started twice.
    assert len(stage.did()) <= 40 + 2 * 8


def test_two_processes_on_one_run_do_the_work_once(stage):
    data = rows(10, sleep=0.05)
    source = b"".join(stream.dumps(row) + b"\n" for row in data)
    both = [
        subprocess.Popen(
            [sys.executable, "x-stage"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=stage.path,
            env=dict(os.environ, PYTHONPATH=str(ROOT / "lib")),
        )
        for _ in range(2)
    ]
    for process in both:
        process.stdin.write(source)
        process.stdin.close()
    outs = [
        [json.loads(line)["gen"] for line in process.stdout.read().splitlines()] for process in both
    ]
    assert [process.wait() for process in both] == [0, 0]
    assert outs[0] == outs[1] and len(outs[0]) == 10
    assert len(stage.did()) == 10


def waiting(pipe):
    """Bytes in a pipe that nobody has read."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.slow
def test_two_pipelines_over_one_run_never_wait_for_each_other_in_a_circle(stage):
    """The first one's early stage is ahead, its late stage starts last, and its records fill the pipe between them."""
    given = b"".join(stream.dumps(row) + b"\n" for row in rows(300, pad="x" * 2000))
    (stage.path / "rows.jsonl").write_bytes(given)
    options = {
        "cwd": stage.path,
        "env": dict(os.environ, PYTHONPATH=str(ROOT / "lib")),
        "stderr": subprocess.DEVNULL,
    }

    def start(key, needs, source, sink):
        return subprocess.Popen(
            [sys.executable, "x-stage", "--run", "run", "--key", key, "--needs", needs],
            stdin=source,
            stdout=sink,
            **options,
        )

    (one_in, one_out), (two_in, two_out) = os.pipe(), os.pipe()
    with (
        open(stage.path / "rows.jsonl") as first,
        open(stage.path / "rows.jsonl") as second,
        open(stage.path / "one", "wb") as one,
        open(stage.path / "two", "wb") as two,
    ):
        ahead = start("early", "messages", first, one_out)
        os.close(one_out)
        waits.until((stage.path / "run/journal/early.jsonl").exists)
        others = [start("late", "early", two_in, two), start("early", "messages", second, two_out)]
        os.close(two_out)
        waits.until(lambda: waiting(one_in) > 30_000)  # it is full: the early stage is stopped
        others.append(start("late", "early", one_in, one))
        assert [process.wait(waits.HANG) for process in (ahead, *others)] == [0, 0, 0, 0]
    os.close(one_in), os.close(two_in)
    one, two = (
        [row["late"]["n"] for row in map(json.loads, (stage.path / name).open())]
        for name in ("one", "two")
    )
    assert one == two == [2 * n for n in range(300)]
    assert sorted(stage.did()) == sorted(
        2 * [f"r{n}" for n in range(300)]
    )  # each stage once a record


def test_the_first_record_leaves_before_the_last_has_come(stage):
    process = subprocess.Popen(
        [sys.executable, "x-stage"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=stage.path,
        env=dict(os.environ, PYTHONPATH=str(ROOT / "lib")),
    )
    process.stdin.write(b'{"id":"a","messages":[]}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == "a"
    process.stdin.write(b'{"id":"b","messages":[]}')
    process.stdin.close()
    assert json.loads(process.stdout.readline())["id"] == "b"
    assert process.wait() == 0


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    stream.write(tmp_path / "a" / "b.txt", "first")
    stream.write(tmp_path / "a" / "b.txt", b"second")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.txt"]
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"second"


def test_records_of_a_file_name_file_and_line(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"id":"a"}\n\n{"id":"b",}\n')
    with pytest.raises(cli.BadData, match=r"x\.jsonl:3: not JSON"):
        list(stream.records(tmp_path / "x.jsonl"))


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.text(),
        st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5),
    )
)
def test_a_fingerprint_depends_on_content_and_not_on_order(data):
    assert stream.fingerprint(data) == stream.fingerprint(dict(reversed(data.items())))
    assert stream.fingerprint(data) != stream.fingerprint({**data, "another key": 1})


HALVES = {"a": "\ud800", "b": "x\udc00y\ud83d", "\udfff": ["\ude00\ud83d"]}
MENDED = {"a": "\ufffd", "b": "x\ufffdy\ufffd", "\ufffd": ["\ufffd\ufffd"]}


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"id": "r", **HALVES}).encode(),
        json.dumps({"id": "r", **HALVES}, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        json.dumps({"id": "r", **HALVES}, ensure_ascii=False),
    ],
)
def test_half_of_a_surrogate_pair_becomes_the_replacement_character_where_records_are_read_and_written(
    line,
):
    assert stream.loads(line) == {"id": "r", **MENDED}
    assert json.loads(stream.dumps({"id": "r", **HALVES})) == {"id": "r", **MENDED}
    assert stream.loads(stream.dumps({"id": "r", **HALVES})) == {"id": "r", **MENDED}


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.text(st.characters())
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False),
            st.lists,
            max_leaves=5,
        ),
        max_size=4,
    )
)
def test_whatever_text_a_record_has_all_that_follow_can_read_it_and_whole_text_is_left_alone(
    record,
):
    line = stream.dumps({**record, "id": "r"})
    assert line.decode("utf-8") and stream.loads(line) == json.loads(line)
    if not any(0xD800 <= ord(letter) < 0xE000 for letter in json.dumps(record, ensure_ascii=False)):
        assert stream.loads(json.dumps({**record, "id": "r"})) == {**record, "id": "r"}


def test_a_jq_program_takes_any_value_that_json_can_say(tmp_path):
    keep = stream.program(".a | length")
    assert [keep({"a": text}) for text in ("\ud800", "x\udc00y", "\U0001f600", "\x00", "漢")] == [
        1,
        3,
        1,
        1,
        1,
    ]
    assert stream.program(".a")({"a": "\ud800"}) == "\ufffd"
    with pytest.raises(ValueError, match="no result"):
        stream.program("empty")({})
    with pytest.raises(ValueError, match="syntax error"):
        stream.program(".n >=")
    stream.write(tmp_path / "deck.md", "# \ud800 漢")
    assert (tmp_path / "deck.md").read_text() == "# \ufffd 漢"


def test_a_journal_is_read_again_by_the_places_of_its_lines(tmp_path):
    path = tmp_path / "journal" / "gen.jsonl"
    journal = stream.Journal(path, "gen")
    inputs = {number: stream.fingerprint(number) for number in range(2000)}
    for number, one in inputs.items():
        journal.put(f"r{number}", one, {"text": f"reply {number} " * 50})
    journal.put("r7", inputs[7], {"text": "a later reply"})
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"id":"r9","inputs":"')
    again = stream.Journal(path, "gen")
    assert again.get("r7", inputs[7]) == {"text": "a later reply"}
    assert again.get("r8", inputs[8]) == {"text": "reply 8 " * 50}
    assert again.get("r8", inputs[9]) is again.get("r2000", inputs[9]) is None
    assert len(again.places) == 2000
    assert sum(map(sys.getsizeof, [*again.places, *again.places.values()])) < 100 * len(inputs)
    # Two heads with one hash: the line of the other is no answer.
    mine, other = (hash(again._head(f"r{n}", inputs[n])) for n in (1, 2))
    again.places[mine] = again.places[other]
    assert again.get("r1", inputs[1]) is None
    again.close()
