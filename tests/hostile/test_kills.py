"""Whatever is killed, and whenever: the same command again completes with the same bytes, and nothing is left over."""

import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
import waits
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.render import cell, toolchain, worker
from decksmith.measure.render import pool as render_pool

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HEAD = "---\ntheme: default\n---\n\n"
DECK = (
    HEAD + "# Deck {n}\n\n---\n\n# Two\n\n- a\n- b\n\n---\n\n# Three\n\n```js\nlet a = {n}\n```\n"
)
LOOP = '---\ntheme: default\n---\n\n# One\n\n<div :ref="() => {{ while (true) {{}} }}" />\n'
# The parent, then the worker; `make stress` goes on with the browser and the walls, and once more around.
ROUNDS = int(os.environ.get("KILLS") or (8 if "DECKSMITH_STRESS" in os.environ else 2))


def prepare(folder, count=3, deck=DECK):
    records = []
    for n in range(count):
        (folder / f"d{n}").mkdir(parents=True)
        (folder / f"d{n}" / "deck.md").write_text(deck.format(n=n))
        records.append({"id": f"d{n}", "deck": {"path": f"d{n}/deck.md"}})
    (folder / "in.jsonl").write_bytes(b"".join(stream.dumps(record) + b"\n" for record in records))


def start(folder, *options, **environment):
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [cli.ROOT / "bin/deck-render", "--run", folder, *options],
        env=os.environ
        | {"IMAGES": "off", "DECKSMITH_RENDERS": "off", "TMPDIR": str(folder / "tmp")}
        | environment,
        stdin=open(folder / "in.jsonl", "rb"),
        stdout=open(folder / "out.jsonl", "wb"),
        stderr=open(folder / "err", "ab"),
    )


def command(pid):
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except (FileNotFoundError, ProcessLookupError):
        return ""


def family(pid, seen):
    seen.update((child, command(child)) for child in [*worker.tree(pid), pid])
    return {
        word: [child for child in seen if word in command(child)]
        for word in ("chromium", "worker.mjs", "walls.py")
    }


def nothing_left(seen):
    """Waits until none of the family runs the program that it ran."""
    waits.until(lambda: not any(text and command(pid) == text for pid, text in seen.items()))


def pictures(folder):
    files = sorted(folder.glob("d*/slides/*.png"))
    for file in files:
        data = file.read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND", f"{file} is torn"
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


@pytest.mark.long("test_an_interrupted_batch_ends_at_once_and_leaves_nothing")
def test_a_batch_that_is_killed_at_random_completes_with_the_same_bytes(tmp_path):
    quiet = tmp_path / "quiet"
    prepare(quiet)
    began = time.monotonic()
    assert start(quiet).wait() == 0
    length, expected = time.monotonic() - began, pictures(quiet)
    assert len(expected) == 9
    chance = random.Random(3)
    for number in range(ROUNDS):
        victim = ["parent", "worker.mjs", "chromium", "walls.py"][number % 4]
        run = tmp_path / f"round{number}"
        prepare(run)
        stage, seen, members = start(run), {}, {}
        moment = time.monotonic() + chance.uniform(0.1, length)
        while time.monotonic() < moment and stage.poll() is None:
            time.sleep(0.02)
            members = family(stage.pid, seen)
        if victim == "parent":
            stage.kill()
        elif members.get(victim):
            try:
                os.kill(chance.choice(members[victim]), signal.SIGKILL)
            except ProcessLookupError:
                pass
        stage.wait(waits.HANG)
        family(stage.pid, seen)
        nothing_left(seen)
        pictures(run)
        if victim == "parent":
            for rest in (run / "tmp").iterdir():
                os.utime(rest, (1, 1))
            assert start(run).wait(waits.HANG) == 0
        assert pictures(run) == expected, (number, victim, (run / "err").read_text())
        records = [json.loads(line) for line in (run / "out.jsonl").read_text().splitlines()]
        assert [record["render"]["status"] for record in records] == ["ok"] * 3, (number, victim)
        assert not list(run.glob("d*/*.tmp")) and not list((run / "tmp").iterdir()), (
            number,
            victim,
        )


@pytest.mark.parametrize(
    "moment, sign",
    [
        pytest.param("at the start", signal.SIGTERM, marks=pytest.mark.long),
        ("while the worker starts", signal.SIGINT),
        ("while a deck never ends", signal.SIGTERM),
        pytest.param("while a deck never ends", signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_an_interrupted_batch_ends_at_once_and_leaves_nothing(tmp_path, sign, moment):
    prepare(tmp_path, 2, LOOP)
    stage, seen = start(tmp_path, "--deadline", "3600"), {}
    words = {
        "at the start": "decksmith-",
        "while the worker starts": "walls.py",
        "while a deck never ends": "chromium",
    }

    def come():
        family(stage.pid, seen)
        early = moment == "at the start" and list((tmp_path / "tmp").iterdir())
        return early or any(words[moment] in text for text in seen.values())

    waits.until(come, stage)
    if moment == "while a deck never ends":
        time.sleep(2)
    family(stage.pid, seen)
    stage.send_signal(sign)
    assert stage.wait(waits.HANG) == 130  # the deck would go on for an hour
    nothing_left(seen)
    assert list((tmp_path / "tmp").iterdir()) == [] and not list(tmp_path.glob("d*/*.tmp"))
    assert "Traceback" not in (tmp_path / "err").read_text()
    assert "interrupted; run the same command again" in (tmp_path / "err").read_text()


@pytest.mark.parametrize(
    "script, message",
    [
        ('case "$*" in *worker.mjs*) echo out of luck >&2; exit 3 ;; esac', "out of luck"),
        ('case "$*" in *worker.mjs*) kill -9 $$ ;; esac', "it said nothing"),
        pytest.param(
            'case "$*" in *worker.mjs*) printf %s \'{"ready":\' ;; esac',
            "it said nothing",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_worker_that_dies_at_its_start_is_a_renderer_fault_and_holds_nothing_up(
    tmp_path, monkeypatch, script, message
):
    """Node answers for its version, and ends when it should work."""
    prepare(tmp_path, 2)
    (tmp_path / "node").write_text(f"#!/bin/sh\n{script}\n")
    for path in (tmp_path / "node", tmp_path):
        path.chmod(0o755)
    monkeypatch.setattr(toolchain, "node", lambda: tmp_path / "node")

    async def go():
        pool = render_pool.Pool(Protocol.load("offline"))
        try:
            records = stream.records(tmp_path / "in.jsonl")
            return await asyncio.gather(*(pool.render(tmp_path, record) for _, record in records))
        finally:
            await pool.close()
            assert not pool.home.exists()

    values = asyncio.run(asyncio.wait_for(go(), waits.HANG))
    assert [(value["error"]["kind"], value["error"]["class"]) for value in values] == [
        ("renderer", "crash")
    ] * 2
    assert message in values[0]["error"]["message"]


def test_a_renderer_without_node_names_the_command_that_mends_it(tmp_path, monkeypatch):
    prepare(tmp_path, 1)
    monkeypatch.setattr(toolchain, "node", lambda: tmp_path / "nothing")

    async def go():
        pool = render_pool.Pool(Protocol.load("offline"))
        try:
            await pool.render(tmp_path, {"id": "d0", "deck": {"path": "d0/deck.md"}})
        finally:
            await pool.close()

    with pytest.raises(cli.Missing, match="run: make setup"):
        asyncio.run(asyncio.wait_for(go(), waits.HANG))


def test_what_a_killed_owner_left_is_swept_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(cell.tempfile, "tempdir", str(tmp_path))
    stale, fresh, link, file, locked = (
        tmp_path / f"decksmith-render-{word}" for word in ("stale", "fresh", "link", "file", "lock")
    )
    kept = tmp_path / "kept"
    for folder in (stale, fresh, kept):
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "x").write_text("x")
    (stale / "inner" / "out").symlink_to(kept)
    link.symlink_to(kept)
    file.write_text("x")
    locked.mkdir()
    holder = os.open(locked, os.O_RDONLY)
    cell.fcntl.flock(holder, cell.fcntl.LOCK_EX)
    for path in (stale, kept, locked):
        os.utime(path, (1, 1))
    mine, lock = cell.private_folder()
    assert set(tmp_path.iterdir()) == {fresh, link, file, kept, locked, mine}
    assert (kept / "inner" / "x").read_text() == "x"
    os.close(lock)
    os.close(holder)
