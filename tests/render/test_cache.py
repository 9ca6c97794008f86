"""Kept renders: what went in comes out, whoever else writes, dies or damages something meanwhile."""

import os
import signal
import subprocess
import sys
import time

import pytest
import waits
from decksmith.core import cli
from decksmith.measure.render import pool

FAULT = {"kind": "model", "class": "katex", "slide": 2, "line": 9, "message": "ἄ \ufffd"}
RESULT = {
    "pictures": [b"\x89PNG\n1", b"", b"\n\n2"],
    "expected": 3,
    "errors": [FAULT],
    "xray": [{"slide": 1, "x": 0.1}],
}
KEY = "ab" * 32


def test_what_was_kept_comes_back_as_it_was(tmp_path):
    assert pool.load_kept(tmp_path / "renders", KEY) is None
    pool.keep(tmp_path / "renders", KEY, RESULT)
    assert pool.load_kept(tmp_path / "renders", KEY) == RESULT
    assert pool.load_kept(tmp_path / "renders", KEY[::-1]) is None
    assert os.listdir(tmp_path / "renders") == [KEY]


@pytest.mark.parametrize("at", [0, 70, -1])
def test_a_damaged_one_counts_as_none_and_is_replaced(tmp_path, at):
    pool.keep(tmp_path, KEY, RESULT)
    whole = (tmp_path / KEY).read_bytes()
    damaged = bytearray(whole)
    damaged[at] ^= 1
    for data in (damaged, whole[:at], whole[:-1], whole + b"x", b""):
        (tmp_path / KEY).write_bytes(data)
        assert pool.load_kept(tmp_path, KEY) is None
    pool.keep(tmp_path, KEY, RESULT)
    assert pool.load_kept(tmp_path, KEY) == RESULT


@pytest.mark.parametrize(
    "change", [{"kind": "renderer", "class": "crash"}, {"class": "deadline"}, {"class": "memory"}]
)
def test_what_another_machine_could_do_better_is_not_kept(tmp_path, change):
    pool.keep(tmp_path, KEY, RESULT | {"errors": [FAULT, FAULT | change]})
    assert os.listdir(tmp_path) == []


def test_what_was_used_longest_ago_goes_first_and_so_does_what_a_killed_process_left(
    tmp_path, monkeypatch
):
    for number, name in enumerate("abcd"):
        pool.keep(tmp_path, name, RESULT)
        os.utime(tmp_path / name, (number, number))
    (tmp_path / "e.1-2.tmp").write_bytes(b"half")
    (tmp_path / "f.1-2.tmp").write_bytes(b"half")
    os.utime(tmp_path / "e.1-2.tmp", (1, 1))
    assert pool.load_kept(tmp_path, "a") == RESULT
    monkeypatch.setattr(pool, "KEPT_MOST", 3 * (tmp_path / "a").stat().st_size + 8)
    pool.keep(tmp_path, "g", RESULT)
    assert sorted(os.listdir(tmp_path)) == ["a", "d", "f.1-2.tmp", "g"]


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path):
    (tmp_path / "file").write_text("")
    pool.keep(tmp_path / "file" / "renders", KEY, RESULT)
    assert pool.load_kept(tmp_path / "file" / "renders", KEY) is None


def test_the_folder_is_beside_the_pictures_or_where_it_is_said_or_nowhere(monkeypatch, tmp_path):
    for name in ("DECKSMITH_RENDERS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert pool.kept_folder() == cli.ROOT / "data" / "renders"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert pool.kept_folder() == tmp_path / "decksmith" / "renders"
    monkeypatch.setenv("DECKSMITH_RENDERS", "here")
    assert str(pool.kept_folder()) == "here"
    monkeypatch.setenv("DECKSMITH_RENDERS", "off")
    assert pool.kept_folder() is None


WRITER = """
import sys
from pathlib import Path
from decksmith.measure.render import pool
pool.KEPT_MOST = 12 << 20
place = Path(sys.argv[1])
print(flush=True)
for number in range(int(sys.argv[2])):
    name = str(number % 5)
    pool.keep(place, name, {"pictures": [name.encode() * (1 << 20)] * 3, "expected": 3, "errors": [], "xray": []})
    found = pool.load_kept(place, str((number + 2) % 5))
    assert found is None or found["pictures"] == [str((number + 2) % 5).encode() * (1 << 20)] * 3
"""


def test_many_processes_write_and_die_at_once_and_nobody_reads_half_a_render(tmp_path):
    def start(rounds):
        command = [sys.executable, "-c", WRITER, tmp_path, str(rounds)]
        return subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": str(cli.ROOT / "lib")}, stdout=subprocess.PIPE
        )

    writers, victims = [start(15) for _ in range(2)], [start(1000) for _ in range(2)]
    for victim in victims:
        victim.stdout.readline()
        time.sleep(0.2)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    assert [writer.wait(waits.HANG) for writer in writers] == [0, 0]
    names = [name for name in os.listdir(tmp_path) if not name.endswith(".tmp")]
    assert names and all(
        pool.load_kept(tmp_path, name)["pictures"][0][:1].decode() == name for name in names
    )
    assert sum((tmp_path / name).stat().st_size for name in names) <= 12 << 20
