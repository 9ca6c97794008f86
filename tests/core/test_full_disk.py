"""A disk without room ends a script with a sentence and exit 75, wherever it meets it, and costs nothing that was finished."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import waits
from decksmith.core import cli, stream

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(path.name for path in (ROOT / "bin").glob("*-*"))[::10]
STAGE = '''"""A stage for tests."""
from decksmith.core import cli, stream
from decksmith.core.records import Row

@cli.command(__doc__)
def main():
    def work(record):
        with open("did", "a") as log:
            log.write(record["id"] + "\\n")
        return {"text": "x" * record["size"]}
    return stream.stage("gen", work, takes=Row, run=".", inputs=lambda record: record["size"])
main()
'''


def run(command, folder, **options):
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "lib"), IMAGES="off")
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=waits.HANG,
        **options,
    )


@pytest.mark.parametrize(
    "script",
    [pytest.param(x, marks=pytest.mark.long if n % 3 else []) for n, x in enumerate(SCRIPTS)],
)
def test_scripts_say_so_when_its_output_has_no_room(script, tmp_path):
    with open("/dev/full", "w") as sink:
        done = run([ROOT / "bin" / script, "--help"], tmp_path, stdout=sink)
    said = f"{script}: no room is left on the disk; make room and run the same command again, what is finished is kept\n"
    assert (done.returncode, done.stderr) == (75, said)


def rows(sizes):
    return "".join(json.dumps({"id": f"r{n}", "size": size}) + "\n" for n, size in enumerate(sizes))


def test_a_stage_keeps_what_is_finished_when_its_journal_or_its_output_has_no_room(tmp_path):
    (tmp_path / "x-stage").write_text(STAGE)
    stage, data = [sys.executable, "x-stage"], rows([100, 100, 9000, 100])
    done = run(
        stage,
        tmp_path,
        input=data,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )
    assert done.returncode == 75 and "Traceback" not in done.stderr
    assert done.stderr.startswith(
        "x-stage: a file would be larger than this process may write (ulimit -f)"
    )
    lines = (tmp_path / "journal/gen.jsonl").read_text().splitlines()
    assert {json.loads(line)["id"] for line in lines} >= {
        "r0",
        "r1",
    }  # no half line is left, or glued to the next
    with open("/dev/full", "w") as sink:
        done = run(stage, tmp_path, input=data, stdout=sink)
    assert done.returncode == 75 and done.stderr.startswith(
        "x-stage: no room is left on the disk;"
    ), done.stderr
    done = run(stage, tmp_path, input=data, stdout=subprocess.PIPE)
    assert done.returncode == 0 and [
        json.loads(line)["id"] for line in done.stdout.splitlines()
    ] == ["r0", "r1", "r2", "r3"]
    assert (tmp_path / "did").read_text().split()[:2] == ["r0", "r1"] and (
        tmp_path / "did"
    ).read_text().count("r0") == 1


def test_a_stage_on_a_disk_that_is_really_full_goes_on_once_there_is_room(tmp_path):
    (tmp_path / "x-stage").write_text(STAGE)
    (tmp_path / "rows").write_text(rows([1000] * 100))
    script = f"""mount -t tmpfs -o size=64k none {tmp_path}/disk || exit 99
        cp x-stage rows disk; cd disk; {sys.executable} x-stage < rows > /dev/null 2> ../said; echo $? > ../first
        wc -l < journal/gen.jsonl > ../kept
        mount -o remount,size=4m . && {sys.executable} x-stage < rows > ../out; echo $? > ../second; sort did | uniq -d > ../twice"""
    (tmp_path / "disk").mkdir()
    done = run(["unshare", "-rm", "sh", "-c", script], tmp_path)
    if done.returncode == 99 or done.stderr.startswith("unshare:"):
        pytest.skip("no file system can be mounted here: no user namespaces")
    assert [(tmp_path / name).read_text().strip() for name in ("first", "second")] == ["75", "0"], (
        tmp_path / "said"
    ).read_text()
    said = (tmp_path / "said").read_text().splitlines()
    assert len(said) == 1 and said[0].startswith("x-stage: no room is left on the disk"), said
    assert (
        20 < int((tmp_path / "kept").read_text()) < 100
        and (tmp_path / "out").read_text().count("\n") == 100
    )
    kept = int((tmp_path / "kept").read_text())
    assert all(
        int(name[1:]) >= kept for name in (tmp_path / "twice").read_text().split()
    )  # those that had no room


def test_a_file_that_has_no_room_leaves_the_old_one_and_no_remains(tmp_path):
    path = tmp_path / "file"
    stream.write(path, "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError) as error:
            stream.write(path, "new" * 9000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert (
        "ulimit -f" in cli.full(error.value)
        and path.read_text() == "old"
        and [p.name for p in tmp_path.iterdir()] == ["file"]
    )


def test_words_that_nobody_can_read_do_not_end_the_work(tmp_path):
    (tmp_path / "x-stage").write_text(STAGE)
    with open("/dev/full", "w") as sink:
        done = subprocess.run(
            [sys.executable, "x-stage"],
            cwd=tmp_path,
            input=rows([1]),
            text=True,
            stdout=subprocess.PIPE,
            stderr=sink,
            env=dict(os.environ, PYTHONPATH=str(ROOT / "lib")),
        )
    assert done.returncode == 0 and json.loads(done.stdout)["gen"]["text"] == "x"


def test_a_full_database_is_a_full_disk_and_a_bug_is_none():
    import sqlite3

    database = sqlite3.connect(":memory:")
    database.execute("pragma max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as error:
        for n in range(99):
            database.execute(f"create table t{n} (x)")
    assert cli.full(error.value).startswith("no room is left on the disk")
    assert cli.full(FileNotFoundError(2, "no", "x")) is None and cli.full(ValueError("x")) is None


def test_a_server_without_room_says_so_to_whoever_asks_and_goes_on():
    import asyncio

    from aiohttp import web as http
    from aiohttp.test_utils import TestClient, TestServer
    from decksmith.core import web

    async def vote(_):
        with open("/dev/full", "w") as file:
            file.write("a vote")

    async def health(_):
        return http.json_response({"status": "ok"})

    async def go():
        app = web.application()
        app.router.add_post("/vote", vote)
        app.router.add_get("/health", health)
        async with TestClient(TestServer(app)) as client:
            full, well = await client.post("/vote", json={}), await client.get("/health")
            return full.status, await full.json(), well.status

    assert asyncio.run(go()) == (
        507,
        {"error": "no room is left on the server's disk; ask again later"},
        200,
    )
