"""Connections that ask nothing, or half of something, are cut off by every server of ours, and cost it no threads."""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import waits

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HALVES = (b"", b"GET /hea", b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
HALF_BODY = b'POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer secret\r\nContent-Length: 100\r\n\r\n{"a"'


@pytest.fixture
def serving(tmp_path):
    """Start a script and wait for its address file: `serving("eval-serve", .., address="x.json")` gives (process, its facts)."""
    started = []

    def start(*command, address, **variables):
        environment = {
            **os.environ,
            "PATH": f"{ROOT / 'bin'}:{ROOT / '.venv/bin'}:{os.environ['PATH']}",
            "IMAGES": "off",
            "DECKSMITH_IDLE": "2",
            "PYTHONPATH": str(ROOT / "lib"),
            **variables,
        }
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard)),
        )
        started.append(process)
        path = tmp_path / address
        waits.until(path.exists, process)
        return process, json.loads(path.read_text())

    yield start
    for process in started:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(waits.HANG)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(autouse=True)
def room():
    """Descriptors for 1,200 connections of our own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3000:
        pytest.skip(f"this shell may have {hard} files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def besiege(url, pid, n, halves=HALVES, health="/health"):
    """Open n connections that never ask anything whole; the server answers others meanwhile, with as many threads as before (what it
    answers with may start), and cuts all of them off."""
    host, port = url.removeprefix("http://").split("/")[0].split(":")
    with urllib.request.urlopen(f"http://{host}:{port}{health}", timeout=waits.HANG) as reply:
        assert reply.status == 200
    before = threads(pid)
    with contextlib.ExitStack() as held:
        strangers = []
        for number in range(n):
            stranger = held.enter_context(
                socket.create_connection((host, int(port)), timeout=waits.HANG)
            )
            stranger.sendall(halves[number % len(halves)])
            strangers.append(stranger)
        for _ in range(3):
            with urllib.request.urlopen(
                f"http://{host}:{port}{health}", timeout=waits.HANG
            ) as reply:
                assert reply.status == 200
        assert threads(pid) <= before + 8
        poll, left = select.poll(), {stranger.fileno(): stranger for stranger in strangers}
        for number in left:
            poll.register(number, select.POLLIN | select.POLLHUP)
        while left:
            found = poll.poll(waits.HANG * 1000)
            assert found, f"{len(left)} of {n} are still connected"
            for number, _ in found:
                with contextlib.suppress(ConnectionError):
                    if left[number].recv(4096):  # a word of farewell
                        continue
                poll.unregister(number)
                del left[number]


def test_the_eval_server_bears_1200(serving, tmp_path):
    process, facts = serving(
        "eval-serve", "--root", "eval", address="eval/server.json", DECKSMITH_EVAL_TOKEN="secret"
    )
    besiege(
        facts["url"],
        process.pid,
        1200,
        (*HALVES, HALF_BODY.replace(b"/v1/chat/completions", b"/jobs")),
    )


@pytest.mark.long("test_the_eval_server_bears_1200")
@pytest.mark.engine
def test_the_embedded_engine_bears_1200(serving, tmp_path):
    code = """import json, sys, time
from decksmith.models import embedded
with embedded.lease() as lease:
    with open("new.json", "w") as file: json.dump({"url": lease.base_url, "pid": lease.pid}, file)
    import os
    os.rename("new.json", "a.json")
    time.sleep(600)"""
    _, facts = serving(sys.executable, "-c", code, address="a.json", TMPDIR=str(tmp_path))
    besiege(facts["url"], facts["pid"], 1200, (*HALVES, HALF_BODY))


@pytest.mark.long("test_the_eval_server_bears_1200")
def test_the_vote_server_cuts_strangers_off(serving, tmp_path):
    make = """import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import ballots
for name in ("one", "two"): ballots.run(Path(name), prompts=2, slides=1, size=98)"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lib"), "IMAGES": "off"}
    subprocess.run(
        [sys.executable, "-c", make, ROOT / "tests/web"], cwd=tmp_path, check=True, env=environment
    )
    subprocess.run(
        [ROOT / "bin/pair-build", "--study", "study", "one", "two"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        env=environment,
    )
    process, facts = serving("vote-serve", "--study", "study", address="study/server.json")
    besiege(
        facts["url"],
        process.pid,
        100,
        (*HALVES, HALF_BODY.replace(b"/v1/chat/completions", b"/join")),
        health="/",
    )


@pytest.mark.long("test_the_eval_server_bears_1200")
def test_the_demo_cuts_strangers_off_on_both_of_its_ports(serving):
    process, facts = serving(
        "demo-serve",
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--model",
        "m",
        "--port",
        "0",
        "--run",
        "run",
        address="run/address.json",
    )
    besiege(
        facts["url"],
        process.pid,
        100,
        (*HALVES, HALF_BODY.replace(b"/v1/chat/completions", b"/asks")),
        health="/",
    )
    host, port = facts["decks"].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=waits.HANG) as stranger:
        stranger.sendall(b"GET /x")
        assert stranger.recv(100) == b""


def test_who_is_being_answered_is_not_cut_off_and_who_does_not_take_the_answer_is(
    serving, tmp_path
):
    code = """import asyncio, contextlib, json
from aiohttp import web as http
from decksmith.core import web

async def slow(request):
    await asyncio.sleep(4)
    return http.Response(text="late")

async def large(request):
    return http.Response(body=bytes(64 << 20))

@contextlib.asynccontextmanager
async def make(url):
    app = web.application()
    app.router.add_get("/slow", slow)
    app.router.add_get("/large", large)
    from pathlib import Path
    with web.announced(Path("a.json"), {"url": url}):
        yield app

web.run(make)"""
    process, facts = serving(sys.executable, "-c", code, address="a.json")
    idle = len(os.listdir(f"/proc/{process.pid}/fd"))
    host, port = facts["url"].removeprefix("http://").split(":")
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect((host, int(port)))
        stuck.sendall(b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        with urllib.request.urlopen(f"{facts['url']}/slow", timeout=waits.HANG) as reply:
            assert reply.read() == b"late"  # twice the seconds that an idle connection has
        waits.until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) <= idle)
