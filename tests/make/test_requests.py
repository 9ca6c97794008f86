"""Requests of one's own from files (PROMPTS=): a run is named by what its file holds, and no request is paid for twice."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from decksmith.core import stream
from decksmith.measure.results import merge
from shadow import ROOT, core, endpoint, environment, make

pytestmark = pytest.mark.slow

REGISTRY = (
    '[fake]\nlabel = "Fake"\ncolor = "#336699"\nbase_url = "{url}"\nslug = "fake"\njobs = 2\n'
)
REQUESTS = [f"{n} slides on the tides of bay {n} for a class" for n in range(3, 13)]


@pytest.fixture
def root(tmp_path):
    """A root whose endpoint logs what it is asked."""
    server, url = endpoint(tmp_path, "--log", "asked.jsonl", "--latency", "0.2")
    yield make(tmp_path / "root", core(1), REGISTRY.format(url=url))
    server.kill()


def setting(folder, *settings):
    """The name of the run folder that make takes for these settings."""
    command = ["make", "-pn", "help", "MODEL=fake", *settings]
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), text=True, capture_output=True
    )
    return next(
        line.split()[-1] for line in done.stdout.splitlines() if line.startswith("SETTING := ")
    )


def asked(folder):
    """How often each request was answered."""
    log = folder.parent / "asked.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return Counter(json.loads(line)["key"] for line in lines)


def prepared(folder, file, run):
    """The prompts of a file in the run's folder, and what other runs have of them."""
    here = {
        "cwd": folder,
        "env": environment(folder, PYTHONPATH=str(ROOT / "lib"), YES="1"),
        "check": True,
    }
    run.mkdir(parents=True, exist_ok=True)
    with open(run / "prompts.jsonl", "wb") as rows:
        subprocess.run(
            [ROOT / "bin/prompt-check", file], stdout=rows, stderr=subprocess.DEVNULL, **here
        )
    price = [sys.executable, "-m", "decksmith.measure.results.cost_prompt", "--protocol", "offline"]
    return subprocess.run([*price, run], capture_output=True, text=True, **here).stderr


def generate(folder, run):
    """chat-generate over the run's prompts, started."""
    command = [ROOT / "bin/chat-generate", "--model", "fake", "--protocol", "offline", "--run", run]
    with open(run / "prompts.jsonl", "rb") as rows:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment(folder),
            stdin=rows,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def test_a_run_is_named_by_what_its_file_holds(root):
    for name, request in (("a", 0), ("b", 1), ("copy", 0)):
        (root / name).mkdir()
        (root / name / "q.txt").write_text(REQUESTS[request])
    a, b, copy = (setting(root, f"PROMPTS={name}/q.txt") for name in ("a", "b", "copy"))
    assert a == copy != b and a.startswith("offline@q.txt-")
    assert setting(root) == "offline"


@pytest.mark.long("test_a_run_is_named_by_what_its_file_holds")
def test_a_run_is_named_by_what_is_asked_for_in_any_kind_of_file(root):
    for name in ("a", "b"):
        (root / name).mkdir()
        (root / name / "q.txt").write_text(REQUESTS[ord(name) - ord("a")])
    (root / "a/copy").mkdir()
    (root / "a/copy/q.txt").write_text(REQUESTS[0])
    (root / "q.json").write_text(json.dumps(REQUESTS[:1]))
    (root / "q.csv").write_text(f"request,text\n{REQUESTS[0]},{REQUESTS[1]}\n")
    (root / "briefs/q").mkdir(parents=True)
    (root / "briefs/q.txt").write_text(REQUESTS[0])
    files = ["a/q.txt", "b/q.txt", "q.json", "q.csv", "briefs"]
    names = [setting(root, f"PROMPTS={file}") for file in files]
    names.append(setting(root, "PROMPTS=q.csv", "REQUEST=text"))
    assert len(set(names)) == 6
    for name, file in zip(names, [*files, "q.csv"], strict=True):
        assert (
            name.startswith(f"offline@{os.path.basename(file)}-")
            and len(name.rpartition("-")[2]) == 8
        )
    assert setting(root, "PROMPTS=a/copy/q.txt") == names[0]
    assert setting(root, "PROMPTS=briefs/") == names[4]
    (root / "briefs/q/facts.md").write_text("1,284 ships")
    assert setting(root, "PROMPTS=briefs") not in names
    (root / "briefs/aside").mkdir()
    before = setting(root, "PROMPTS=briefs")
    (root / "briefs/aside/other.md").write_text("of no brief")
    assert setting(root, "PROMPTS=briefs") == before


@pytest.mark.long(
    "test_what_a_judge_said_is_taken_over_with_its_files_and_nothing_that_is_there_is_replaced"
)
def test_no_request_is_paid_for_twice_whatever_was_killed(root):
    with open(root / "assets/models.toml", "a") as registry:
        registry.write("price = { prompt = 1, completion = 4 }\n")
    (root / "q.txt").write_text("\n".join(REQUESTS[:8]))
    (root / "r.json").write_text(json.dumps(REQUESTS[1:9]))  # one less, and one more
    first = root / "results/runs/fake/offline@q.txt-11111111"
    second = root / "results/runs/fake/offline@r.json-22222222"
    assert "fake: 8 replies" in prepared(root, "q.txt", first)
    # Killed once some replies are there, in the middle of a line.
    process = generate(root, first)
    journal = first / "journal/gen.jsonl"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with open(journal, "ab") as torn:
        torn.write(b'{"id":"u-0')
    kept = {json.loads(line)["id"] for line in journal.read_bytes().split(b"\n")[:-1]}
    before = asked(root)
    # Of the second file are asked those that the first has no reply to, and the first then takes
    # those: every request is answered once after the kill, or not at all.
    said = prepared(root, "r.json", second)
    wanted = {json.loads(line)["id"] for line in (second / "prompts.jsonl").open()}
    assert f"fake: {len(wanted - kept)} replies" in said
    out = generate(root, second).communicate()[0]
    assert {json.loads(line)["id"] for line in out.splitlines()} == wanted
    assert all("text" in json.loads(line)["gen"] for line in out.splitlines())
    # The server may have been told late that whoever asked was killed: such a request counts twice.
    again = {f"u-{key[:8]}" for key in asked(root) - before}
    assert wanted - kept <= again and not kept & again
    said = prepared(root, "q.txt", first)
    lacking = 1 - len(kept - wanted)  # the request that the second file does not have
    assert f"fake: {lacking} replies" in said or not lacking
    out = generate(root, first).communicate()[0]
    assert len(out.splitlines()) == 8
    again = {f"u-{key[:8]}" for key in asked(root) - before}
    assert not kept & again and len(kept | again) == 9
    assert prepared(root, "r.json", second) == ""  # nothing is to be asked, so nothing is said


def test_what_a_judge_said_is_taken_over_with_its_files_and_nothing_that_is_there_is_replaced(
    tmp_path,
):
    runs = tmp_path / "results/runs/fake"
    old, new = runs / "offline@q.csv-11111111/shard-1-of-2", runs / "offline@r.csv-22222222"
    other = runs / "published@q.csv-11111111"
    for place, text in ((old, "old"), (other, "of another protocol"), (new, "own")):
        (place / "u-1/judge").mkdir(parents=True)
        (place / "u-1/deck.md").write_text(text)
        (place / "journal").mkdir()
    (old / "u-1/judge/1.txt").write_text("a verdict")
    (old / "u-1/judge/2.txt.tmp").write_text("half a")
    (new / "prompts.jsonl").write_text('{"id":"u-1"}\n{"id":"u-2"}\n')

    def line(ident, inputs, key, value):
        entry = {"id": ident, "inputs": inputs * 64, key: value}
        return stream.summed(entry).decode() + "\n"

    mine = line("u-1", "a", "gen", {"text": "own"})
    (new / "journal/gen.jsonl").write_text(mine)
    (old / "journal/gen.jsonl").write_text(
        line("u-1", "a", "gen", {"text": "old"})
        + line("u-1", "b", "gen", {"text": "hotter"})
        + line("u-2~0", "a", "gen", {"text": "a sample"})
        + line("u-3", "a", "gen", {"text": "of no prompt here"})
    )
    verdict = line("u-1", "c", "judge", {"replies": ["u-1/judge/1.txt"]})
    (old / "journal/judge-big.jsonl").write_text(verdict)
    (other / "journal/gen.jsonl").write_text(line("u-2", "a", "gen", {"text": "no"}))
    for _ in range(2):  # the second time there is nothing to do
        merge.reuse(new)
        assert (new / "journal/gen.jsonl").read_text() == (
            mine
            + line("u-1", "b", "gen", {"text": "hotter"})
            + line("u-2~0", "a", "gen", {"text": "a sample"})
        )
        assert (new / "journal/judge-big.jsonl").read_text() == verdict
        assert (new / "u-1/judge/1.txt").read_text() == "a verdict"
        assert (new / "u-1/deck.md").read_text() == "own"
        assert not (new / "u-1/judge/2.txt.tmp").exists()
    assert not (new / "u-3").exists()
    plain = runs / "offline"
    plain.mkdir()
    merge.reuse(plain)  # of data/prompts.jsonl: it takes nothing of a file of somebody's own
    assert [*plain.iterdir()] == []
