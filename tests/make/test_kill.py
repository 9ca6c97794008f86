"""`make baseline` is killed at random moments, as a scheduler, an out-of-memory killer or a closed laptop would do it."""

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter

import jq
import pytest
import waits
from shadow import core, endpoint, environment, make

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# KILLS=20 make test-long TESTS=tests/make/test_kill.py: more of the same
KILLS = int(os.environ.get("KILLS") or 2)
REGISTRY = (
    '[fake]\nlabel = "Fake"\ncolor = "#336699"\nbase_url = "{url}"\nslug = "fake"\njobs = 2\n'
)


def baseline(folder, **options):
    return subprocess.Popen(
        ["make", "baseline", "MODEL=fake", "--silent"],
        cwd=folder,
        env=environment(folder, DECKSMITH_RENDERS=str(folder / "renders")),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **options,
    )


def family(session):
    """Pids of all live processes of a session, and of their descendants in other sessions (the browser's, the engine's)."""
    parents, members = {}, {session}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX":
                parents[int(entry)] = int(fields[1])
                if int(fields[3]) == session:
                    members.add(int(entry))
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in members} - members
        members |= more
        grown = bool(more)
    return sorted(members & parents.keys())


def asked(folder):
    """How often each request was answered, by the hash of its last message."""
    log = folder / "asked.jsonl"
    return (
        Counter(json.loads(line)["key"] for line in log.read_text().splitlines())
        if log.exists()
        else Counter()
    )


def finished(folder, keys):
    journal = folder / "results/runs/fake/offline/journal/gen.jsonl"
    if not journal.exists():
        return set()
    return {keys[json.loads(line)["id"]] for line in journal.read_bytes().split(b"\n")[:-1] if line}


def result(folder):
    lines = (folder / "results/runs/fake/offline/scores.jsonl").read_text()
    return jq.compile("del(..|.by?)").input_text(lines).all()


@pytest.mark.long(
    "tests/core/test_stream.py::test_killed_at_random_moments_it_finishes_and_repeats_nothing"
)
@pytest.mark.timeout(1500)
def test_killed_again_and_again_it_ends_in_the_records_of_an_undisturbed_run_and_asks_for_nothing_twice(
    tmp_path,
):
    rows = core(6)
    for row in rows:
        row["messages"][-1]["content"] += "\n(kill test)"
    keys = {
        row["id"]: hashlib.sha256(row["messages"][-1]["content"].encode()).hexdigest()
        for row in rows
    }
    dice = random.Random(20)
    servers = []
    try:
        calm, wild = tmp_path / "calm", tmp_path / "wild"
        for folder in (calm, wild):
            folder.mkdir()
            server, url = endpoint(folder, "--latency", "0.3", "--log", "asked.jsonl")
            servers.append(server)
            make(folder, rows, REGISTRY.format(url=url))

        process = baseline(calm)
        said = process.communicate()[0].decode()
        assert process.returncode == 0, said
        assert asked(calm) == dict.fromkeys(keys.values(), 1)

        survivors, repeated = set(), []
        for _ in range(KILLS):
            before, done = asked(wild), finished(wild, keys)
            process = baseline(wild)
            time.sleep(dice.uniform(0.2, 5.0))
            victims = family(process.pid)
            if victims:
                os.kill(dice.choice(victims), signal.SIGKILL)
            process.communicate(timeout=waits.HANG)
            survivors |= set(family(process.pid))
            repeated += [key for key in done if asked(wild)[key] > before[key]]
        for home in (
            "runs/fake/offline",
            "reports/offline",
        ):  # of a process whose number nobody has
            (wild / "results" / home).mkdir(parents=True, exist_ok=True)
            (wild / "results" / home / f"half.{1 << 22}.tmp").write_text("half")
        process = baseline(wild)
        said = process.communicate()[0].decode()
        assert process.returncode == 0, said
        assert not repeated, "finished rows were asked again"
        assert result(wild) == result(calm)
        assert not list((wild / "results").rglob("*.png.*")), "half a picture was left"
        assert not list((wild / "results").rglob("*.tmp")), "half a file was left"
        waits.until(lambda: all(map(waits.ended, survivors)))  # none outlives its make
    finally:
        for server in servers:
            server.kill()
