"""Bodies that unpack to a thousand times their size, JSON and figures that no reader can hold, and files that somebody else planted.

Servers and endpoints are real and on loopback; memory is the kernel's count of the process (VmHWM; ru_maxrss would begin at that of the process which began it).
"""

import asyncio
import contextlib
import functools
import http.client
import json
import os
import pty
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import waits
from decksmith.core import cli, stream, web
from decksmith.core.stream import Fault
from decksmith.models import client as chat_client
from decksmith.models import registry, servers
from decksmith.people.demo.ask import DeckAsk
from decksmith.people.study.store import Study

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MB = 300  # that a bomb unpacks to, from 300 kB
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{ROOT / 'bin'}:{ROOT / '.venv/bin'}:{os.environ['PATH']}",
    "PYTHONPATH": str(ROOT / "lib"),
    "IMAGES": "off",
}
LONG = pytest.mark.long


def bomb(packed, head=b"", tail=b""):
    """MB million bytes between head and tail, packed: a million of them is packed once."""

    def part(data):
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)

    million = b"a" * (1 << 20)
    raw = part(head) + part(million) * MB + part(tail) + b"\3\0"  # an empty part is the last
    if packed == "raw deflate":
        return raw
    check, begin, order = {
        "gzip": (zlib.crc32, b"\x1f\x8b\x08" + bytes(7), "little"),
        "deflate": (zlib.adler32, b"\x78\xda", "big"),
    }[packed]
    total = functools.reduce(lambda total, data: check(data, total), [million] * MB, check(head))
    size = len(head + tail) + MB * len(million)
    end = check(tail, total).to_bytes(4, order)
    return begin + raw + end + size.to_bytes(4, order) * (packed == "gzip")


def gzipped(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


# Our servers


def peak(pid):
    """The most memory that a process ever had, in MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The folder of a study of two runs."""
    folder = tmp_path_factory.mktemp("study")
    sys.path.insert(0, str(ROOT / "tests/web"))
    import ballots

    runs = [ballots.run(folder / name, prompts=2, slides=1, size=98) for name in ("one", "two")]
    build = [ROOT / "bin/pair-build", "--study", folder / "study", *runs]
    subprocess.run(build, check=True, capture_output=True, env=ENVIRONMENT)
    return folder / "study"


@contextlib.contextmanager
def served(command, address, stderr=subprocess.PIPE):
    """(process, its address file) of a script that serves, once it does."""
    environment = {
        **ENVIRONMENT,
        "DECKSMITH_SANDBOX_TOKEN": "sesame",
        "DECKSMITH_EVAL_TOKEN": "sesame",
        "DECKSMITH_REWARD_TOKEN": "sesame",
    }
    process = subprocess.Popen(command, env=environment, stderr=stderr, process_group=0)
    try:
        while not address.exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        yield process, json.loads(address.read_text())
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(waits.HANG)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(
    params=[
        *("vote", "eval", pytest.param("demo", marks=LONG)),
        pytest.param("reward", marks=[LONG, pytest.mark.browser]),
    ]
)
def server(request, tmp_path):
    """(process, address, a path that takes a body) of each of our servers."""
    address, model = tmp_path / "address.json", ["--base-url", "http://127.0.0.1:9/v1"]
    root = tmp_path / "root"
    if request.param == "vote":
        study = request.getfixturevalue("study")
        command, path = ["vote-serve", "--study", study], "/join"
        address = study / "server.json"
    elif request.param == "demo":
        command = ["demo-serve", *model, "--model", "m", "--port", "0", "--run", root]
        path, address = "/material?name=x.txt", root / "address.json"
    else:
        command = [f"{request.param}-serve", "--root", root, "--address", address]
        path = {"eval": "/jobs", "reward": "/reward"}[request.param]
    with served(command, address) as (process, facts):
        yield process, facts["url"], path


def posted(url, path, body, **headers):
    """(status, sentence) of a POST; a body that is a list comes in chunks, without a length."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=waits.HANG)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    headers |= {"Authorization": "Bearer sesame", "Content-Type": "application/json"}
    try:
        connection.request("POST", path, iter(body) if isinstance(body, list) else body, headers)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read()).get("error", "")
    finally:
        connection.close()


@pytest.mark.long("test_a_body_without_an_end_is_refused_at_its_bound_by_every_server")
def test_a_packed_body_is_refused_before_it_is_unpacked_by_every_server(server):
    process, url, path = server
    posted(url, path, b"{}")  # what it loads for any request
    before = peak(process.pid)
    packed = [("gzip", bomb("gzip")), ("deflate", bomb("deflate")), ("br", b"\x8b" * 100_000)]
    packed += [("deflate", bomb("raw deflate")), ("gzip, gzip", gzipped(bomb("gzip")))]
    packed += [("zstd", b"\x28\xb5\x2f\xfd" * 1000), ("GZIP", [bomb("gzip")[:70_000]] * 3)]
    for encoding, body in packed:
        status, said = posted(url, path, body, Content_Encoding=encoding)
        assert (status, said) == (
            415,
            "a body is taken as it is: send it without a Content-Encoding",
        ), encoding
    assert peak(process.pid) < before + 20
    assert posted(url, path, b"{", Content_Encoding="identity")[0] in (200, 400, 415, 422)
    status, said = posted(url, path, b"[" * 900 + b"]" * 900)
    assert "Traceback" not in said and status in (200, 400, 422)


def test_a_body_without_an_end_is_refused_at_its_bound_by_every_server(server):
    process, url, path = server
    posted(url, path, b"{}")
    before = peak(process.pid)
    netloc = urlsplit(url)
    head = f"POST {path} HTTP/1.1\r\nHost: {netloc.netloc}\r\nAuthorization: Bearer sesame\r\n"
    with socket.create_connection((netloc.hostname, netloc.port), timeout=waits.HANG) as stranger:
        stranger.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk, status = b"100000\r\n" + b" " * (1 << 20) + b"\r\n", b""
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                stranger.sendall(chunk)
                if select.select([stranger], [], [], 0)[0]:
                    status = stranger.recv(100)
                    break
    assert status.split(b" ")[1] == b"413"
    assert peak(process.pid) < before + 120  # of 200 MB; the largest bound is 32 MB


# Replies of endpoints

ASK = """
import asyncio, json, sys
from decksmith.models import client, registry
from decksmith.core.stream import Fault
async def main(url, how):
    asking = client.Client(registry.Model("m", url, "m"), retries=0)
    try:
        hear = (lambda *_: None) if how == "stream" else None
        reply = await asking.ask([{"role": "user", "content": "x"}], on_chunk=hear)
        return {"text": len(reply.text)}
    except Fault as fault:
        return fault.error
    finally:
        await asking.close()
said = [asyncio.run(main(*pair)) for pair in zip(sys.argv[1::2], sys.argv[2::2])]
peak = open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]
print(json.dumps([said, int(peak) / 1024]))
"""
WHOLE = b'{"choices":[{"message":{"content":"', b'"},"finish_reason":"stop"}]}'
EVENT = b'data: {"choices":[{"delta":{"content":"', b'"},"finish_reason":"stop"}]}\n\n'


@contextlib.contextmanager
def answering(status, headers, body):
    """The base URL of an endpoint that answers everything with this; `asked` of it counts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.asked.append(dict(self.headers))
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked, server.url = [], f"http://127.0.0.1:{server.server_port}/v1"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def asked(replies):
    """What a process prints that asks an endpoint of each (how, status, packed, body), and its peak memory in MB."""
    with contextlib.ExitStack() as stack:
        ends, command = [], [sys.executable, "-c", ASK]
        for how, status, packed, body in replies:
            kind = "text/event-stream" if (how, status) == ("stream", 200) else "application/json"
            headers = {"Content-Encoding": packed, "Content-Type": kind}
            ends.append(stack.enter_context(answering(status, headers, body)))
            command += [ends[-1].url, how]
        done = subprocess.run(command, stdout=subprocess.PIPE, env=ENVIRONMENT, check=True)
    for [sent] in (end.asked for end in ends):
        assert sent["Accept-Encoding"] == "identity"
    return json.loads(done.stdout)


def test_an_endpoint_s_packed_reply_is_counted_unpacked_while_it_is_read():
    replies = []
    for how, ends in (("whole", WHOLE), ("stream", EVENT)):
        for packed in ("gzip", "deflate", "raw deflate"):
            replies.append((how, 200, packed.removeprefix("raw "), bomb(packed, *ends)))
        replies.append((how, 200, "gzip, gzip", gzipped(bomb("gzip", *ends))))
    said, used = asked(replies)
    assert used < 120  # one reply at a time: none of the eight is held by its failure
    for one, (how, _, packed, _) in zip(said, replies, strict=True):
        assert one["kind"] == "infra", (how, packed, one)
        assert one["class"] in ("malformed", "connection")  # no second packing is taken off


def test_a_reply_that_is_packed_all_the_same_is_read_and_a_packed_refusal_is_quoted():
    refusal = bomb("gzip", b'{"error": {"message": "')
    replies = [
        ("whole", 200, "gzip", gzipped(b"fine".join(WHOLE))),
        ("stream", 200, "gzip", gzipped(b"fine".join(EVENT))),
        *((how, 500, "gzip", refusal) for how in ("whole", "stream")),
    ]
    (*good, whole, stream), used = asked(replies)
    assert good == [{"text": 4}] * 2 and used < 150
    for said in (whole, stream):
        assert said["class"] == "http-500" and len(said["message"]) < 400


def test_a_stream_without_an_end_is_left_at_its_bound(monkeypatch):
    monkeypatch.setattr(servers, "STREAM", 1 << 20)
    event = b'data: {"choices":[{"delta":{"content":"abc"}}]}\n\n'
    with answering(200, {"Content-Type": "text/event-stream"}, event * 40_000) as endpoint:
        with pytest.raises(Fault) as caught:
            reply_of(endpoint.url, hear=lambda *_: None)
    assert caught.value.error["class"] == "cut-off"
    assert "more than 1048576 bytes" in caught.value.error["message"]


def reply_of(url, hear=None, **entry):
    """(reply, client) of an endpoint that is asked once."""
    asking = chat_client.Client(registry.Model("m", url, "m", **entry), retries=0)

    async def ask():
        try:
            return await asking.ask([{"role": "user", "content": "x"}], on_chunk=hear), asking
        finally:
            await asking.close()

    return asyncio.run(ask())


def saying(usage="{}", more=""):
    text = f'{{"choices": [{{"message": {{"content": "abcd"}}{more}}}], "usage": {usage}}}'
    return text.encode()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"[" * 900 + b"]" * 900,
        b'{"a":' * 300 + b"1" + b"}" * 300,
        saying(more=', "logprobs": ' + "[" * 300 + "]" * 300),
        saying('{"prompt_tokens": ' + "9" * 400 + "}"),
        saying('{"prompt_tokens": ' + "9" * 5000 + "}"),
        saying(more=', "index": ' + "9" * 5000),
        saying(more=', "index": 1e999'),
        saying('{"completion_tokens": NaN}'),
        saying('{"completion_tokens": Infinity}'),
        saying('{"completion_tokens": -5}'),
        saying('{"completion_tokens": 1e15}'),
        saying('{"completion_tokens": "many"}'),
        saying('{"completion_tokens_details": {"reasoning_tokens": -1}}'),
        saying('{"cost": -1000}'),
        saying('{"cost": -0.01}'),
        saying('{"cost": 1e300}'),
        saying('{"cost": -Infinity}'),
        saying("[]".replace("[]", "[1]")),
        b"\xff\xfe",
        b"",
        b"null",
        b'"text"',
    ],
)
@pytest.mark.parametrize("how", ["whole", pytest.param("stream", marks=LONG)])
def test_json_and_figures_that_nobody_can_hold_are_that_reply_s_fault_and_no_money(body, how):
    hear, headers = None, {}
    if how == "stream":
        hear, headers = (lambda *_: None), {"Content-Type": "text/event-stream"}
        body = b"data: " + body.replace(b'"message"', b'"finish_reason": "stop", "delta"') + b"\n\n"
    price = {"prompt": 1.0, "completion": 4.0}
    with answering(200, headers, body) as endpoint, pytest.raises(Fault) as caught:
        asking = []
        original = chat_client.Client.__init__

        def noted(self, *args, **more):
            original(self, *args, **more)
            asking.append(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chat_client.Client, "__init__", noted)
            reply_of(endpoint.url, hear, price=price)
    error = caught.value.error
    assert error["kind"] == "infra" and error["class"] in ("malformed", "cut-off", "connection")
    [client] = asking
    # Of what was written, at most its own price: a few tokens of a stream that broke off.
    assert 0 <= client.spent < 0.001 and client.reserved == 0


@pytest.mark.parametrize(
    ("usage", "least"),
    [
        ('{"prompt_tokens": 1000, "completion_tokens": 100, "cost": 0}', 0.0014),
        ('{"prompt_tokens": 1000, "completion_tokens": 100, "cost": 0.5}', 0.5),
        ('{"prompt_tokens": 1000, "completion_tokens": 100}', 0.0014),
        ('{"prompt_tokens": 0, "completion_tokens": 0}', 1e-6),  # a text of four characters
        ("null", 1e-6),
    ],
)
def test_a_reply_costs_what_the_price_says_at_least(usage, least):
    with answering(200, {}, saying(usage)) as endpoint:
        reply, client = reply_of(endpoint.url, price={"prompt": 1.0, "completion": 4.0})
    assert reply.usage["cost"] >= least
    assert client.spent == reply.usage["cost"]


def test_replies_that_say_they_cost_nothing_do_not_widen_a_budget():
    said = saying('{"prompt_tokens": 1000, "completion_tokens": 1000, "cost": 0}')  # 0.005 USD
    with answering(200, {}, said) as endpoint:
        model = registry.Model("m", endpoint.url, "m", price={"prompt": 1.0, "completion": 4.0})

        async def ask():
            client = chat_client.Client(model, retries=0, budget=0.011)
            try:
                for _ in range(6):
                    await client.ask([{"role": "user", "content": "x"}])
            finally:
                await client.close()

        with pytest.raises(Fault, match="budget of 0.011 USD is used up"):
            asyncio.run(ask())
        assert len(endpoint.asked) == 2


# Files that others could have made


@pytest.fixture
def victim(tmp_path):
    """A file elsewhere that must stay as it is."""
    path = tmp_path / "elsewhere/victim"
    path.parent.mkdir()
    path.write_text("mine\n")
    yield path
    assert path.read_text() == "mine\n"


def plants(place, how, victim):
    """Plant at a place what somebody else could."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    if how == "link":
        place.symlink_to(victim)
    elif how == "dangling link":
        place.symlink_to(victim.with_name("new"))
    elif how == "pipe":
        os.mkfifo(place)
    else:
        place.write_text("")
        if how == "writable":
            place.chmod(0o666)
        elif os.geteuid():
            pytest.skip("only root can give a file away")
        else:
            os.chown(place, 65534, 65534)


HOWS = ["link", "dangling link", "pipe", "writable", "of another"]


@pytest.mark.parametrize("how", ["link", *(pytest.param(how, marks=LONG) for how in HOWS[1:])])
def test_a_journal_that_others_could_have_made_is_refused_and_nothing_is_asked(
    tmp_path, victim, how
):
    journal = tmp_path / "run/journal/gen.jsonl"
    plants(journal, how, victim)
    row = json.dumps({"id": "a", "messages": [{"role": "user", "content": "x"}]}) + "\n"
    with answering(200, {}, saying()) as endpoint:
        command = ["chat-generate", "--base-url", endpoint.url, "--slug", "m"]
        done = subprocess.run(
            [*command, "--run", tmp_path / "run"],
            input=row,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 69, done.stderr
        assert f"{journal} " in done.stderr and "somebody else could have made it; " in done.stderr
        assert not endpoint.asked and not (victim.parent / "new").exists()
        # What is to be done is said, and does it: the folder may be a link, to another disk.
        journal.unlink()
        journal.parent.rmdir()
        (tmp_path / "disk").mkdir()
        journal.parent.symlink_to(tmp_path / "disk")
        for asked in (1, 1):
            again = subprocess.run(
                [*command, "--run", tmp_path / "run"], input=row, env=ENVIRONMENT, text=True
            )
            assert again.returncode == 0 and len(endpoint.asked) == asked
    assert not (tmp_path / "disk/gen.jsonl").stat().st_mode & stat.S_IWOTH


def opens(folder, kind):
    """What opens a file of a kind below a folder."""
    from decksmith.bench.evalserver import jobs, worker
    from decksmith.people.demo.studio import Studio
    from decksmith.train.rewards.reward_queue import RewardStore

    calls = {
        "token": lambda: web.secret(folder, "DECKSMITH_NO_TOKEN"),
        "rewards.db": lambda: RewardStore(folder),
        "jobs.db": lambda: jobs.Store(folder),
        "lock": lambda: worker._lock(folder),
        "decks/.lock": lambda: Studio(folder, {}),
        f"{'a' * 32}/journal.jsonl": lambda: DeckAsk.load(folder, "a" * 32),
        "x.jsonl": lambda: stream.Journal(folder / "x.jsonl", "x"),
    }
    return calls[kind]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "kind",
    [
        "token",
        "rewards.db",
        "jobs.db",
        "lock",
        "decks/.lock",
        f"{'a' * 32}/journal.jsonl",
        "x.jsonl",
    ],
)
def test_tokens_databases_locks_and_journals_that_others_could_have_made_are_refused(
    tmp_path, victim, kind, how
):
    if how == "writable" and "lock" in kind:
        pytest.skip("a lock has nothing in it")
    plants(tmp_path / "root" / kind, how, victim)
    with pytest.raises(cli.Missing, match="somebody else could have made it") as caught:
        opens(tmp_path / "root", kind)()
    assert str(tmp_path / "root" / kind) in str(caught.value)
    assert not (victim.parent / "new").exists()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *(("secret", "link"), ("votes.db", "writable")),
        *(pytest.param("secret", how, marks=LONG) for how in ("writable", "of another")),
        *(pytest.param("votes.db", how, marks=LONG) for how in ("link", "of another")),
    ],
)
def test_a_study_whose_secret_or_votes_others_could_have_made_is_not_served(
    study, tmp_path, victim, name, how
):
    copy = tmp_path / "study"
    subprocess.run(["cp", "-r", study, copy], check=True)
    Study(copy).close_file()
    plants(copy / name, how, victim)
    done = subprocess.run(
        ["vote-serve", "--study", copy], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 69 and f"{copy / name} " in done.stderr


def test_what_the_group_may_write_is_no_secret_but_a_record_of_a_shared_folder(tmp_path):
    (tmp_path / "token").write_text("sesame")
    (tmp_path / "token").chmod(0o664)
    with pytest.raises(cli.Missing, match="chmod go-w"):
        web.secret(tmp_path, "DECKSMITH_NO_TOKEN")
    (tmp_path / "token").chmod(0o644)
    assert web.secret(tmp_path, "DECKSMITH_NO_TOKEN") == "sesame"
    before = os.umask(0)
    try:
        for _ in "ab":
            stream.Journal(tmp_path / "x.jsonl", "x").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.jsonl").stat().st_mode) == 0o664


def test_the_owner_s_link_is_said_to_a_terminal_and_to_no_log(study, tmp_path):
    command, address = ["vote-serve", "--study", study], study / "server.json"
    with open(tmp_path / "log", "wb") as log, served(command, address, log) as (_, facts):
        assert stat.S_IMODE(address.stat().st_mode) == 0o600
    said = (tmp_path / "log").read_text()
    assert "/owner/" not in said and f"`owner` of {address}" in said
    ours, theirs = pty.openpty()
    with served(command, address, theirs) as (_, facts):
        shown = b""
        while b"closes the study" not in shown or b"\n" not in shown.partition(b"closes the")[2]:
            shown += os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    assert facts["owner"].encode() in shown
