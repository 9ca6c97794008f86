"""The adapter for training loops: against the real eval server with a model on loopback, and against servers that misbehave."""

import contextlib
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import types

import pytest
import waits
from decksmith.bench.evalserver import eval_client as loop
from decksmith.core import cli

pytestmark = pytest.mark.slow

PYTHON = sys.executable


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in [
        name for name in os.environ if name.startswith("DECKSMITH_EVAL") or name == "SLURM_JOB_ID"
    ]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    """A model that answers every question alike."""
    reply = tmp_path_factory.mktemp("router") / "reply"
    reply.write_text("The answer is \\boxed{7}.")
    process = subprocess.Popen(
        [PYTHON, cli.ROOT / "tests/endpoint.py", "--model", "m", "--reply", reply],
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process.stdout.readline().strip().removesuffix("/v1")
    process.kill()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("eval")


def serve(root):
    return subprocess.Popen(
        [cli.ROOT / "bin/eval-serve", "--root", root, "--limit", "1"],
        env=os.environ | {"IMAGES": "off"},
        stderr=open(root / "said", "a"),
    )


@pytest.fixture(scope="module")
def server(root):
    process = [serve(root)]
    loop.ready(root / "server.json", waits.HANG)
    yield process
    process[0].send_signal(signal.SIGINT)
    process[0].wait(waits.HANG)


@pytest.mark.long("test_passing_trouble_is_asked_through")
def test_the_loop_of_the_documentation_runs_as_it_stands_there(server, root, router):
    block = re.search(r"```python\n(.*?)```", (cli.ROOT / "docs/eval-server.md").read_text(), re.S)[
        1
    ]
    assert "range(41)" in block
    done = subprocess.run(
        [PYTHON, "-c", block.replace("range(41)", "range(21)")],
        text=True,
        capture_output=True,  # two evaluations of three
        env=os.environ
        | {
            "PYTHONPATH": f"{cli.ROOT}/lib",
            "ROUTER": router,
            "DECKSMITH_EVAL_ADDRESS": str(root / "server.json"),
        },
    )
    assert done.returncode == 0, done.stderr
    found = {
        int(line.split(" ", 1)[0]): eval(line.split(" ", 1)[1]) for line in done.stdout.splitlines()
    }
    assert list(found) == [0, 20] and found[20]["train/loss"] < found[0]["train/loss"]
    for metrics in found.values():
        assert metrics["eval/arithmetic/pass@1[avg-of-2]/num_entries"] == 1.0
        assert metrics["eval/arithmetic/delegate/ok"] == metrics["eval/delegate/ok"] == 1.0
        assert all(name == "train/loss" or name.startswith("eval/") for name in metrics)


@pytest.mark.long(
    "tests/evalserver/test_server.py::test_a_server_killed_half_way_finishes_only_what_is_left"
)
def test_a_server_that_is_killed_and_comes_back_is_found_again_and_nothing_is_evaluated_twice(
    server, root, router, monkeypatch
):
    monkeypatch.setenv("DECKSMITH_EVAL_ADDRESS", str(root / "server.json"))
    found = {}
    asks = threading.Thread(
        target=lambda: found.update(
            loop.evaluate(7, [router], [{"name": "arithmetic"}], run="killed")
        )
    )
    asks.start()
    waits.until(lambda: jobs(root, "killed") and jobs(root, "killed")[0]["status"] == "running")
    server[0].kill()
    server[0].wait()
    server[0] = serve(root)
    asks.join(waits.HANG)
    assert found["eval/delegate/ok"] == found["eval/arithmetic/delegate/ok"] == 1.0
    assert [job["status"] for job in jobs(root, "killed")] == ["done"]


def jobs(root, run):
    found = loop.address(root / "server.json")
    with (
        contextlib.suppress(OSError),
        loop._open(
            f"{found['url']}/jobs?run={run}", headers={"Authorization": f"Bearer {found['token']}"}
        ) as reply,
    ):
        return json.load(reply)["jobs"]


def test_what_the_server_refuses_is_a_metric_and_hard_an_exception(
    server, root, router, monkeypatch, caplog
):
    found = loop.address(root / "server.json")
    monkeypatch.setenv("DECKSMITH_EVAL_URL", found["url"] + "/evaluate")
    metrics = loop.evaluate(1, router, "arithmetic")
    assert (metrics["eval/delegate/ok"], metrics["eval/delegate/refused"]) == (
        0.0,
        1.0,
    ) and "the token is missing or wrong" in caplog.text
    monkeypatch.setenv("DECKSMITH_EVAL_TOKEN", found["token"])
    assert loop.evaluate(1, router, "needle:0")["eval/delegate/refused"] == 1.0
    assert loop.evaluate(1, "http://192.0.2.1:1", "arithmetic")["eval/delegate/refused"] == 1.0
    with pytest.raises(loop.EvaluationFailed, match="no benchmark 'no-such-benchmark'"):
        loop.evaluate(1, router, "no-such-benchmark", on_failure="hard")


# Servers that misbehave


class Odd(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.server.asked.append(
            (dict(self.headers), json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        )
        self.server.answers.pop(0)(self) if len(self.server.answers) > 1 else self.server.answers[
            0
        ](self)

    def do_GET(self):
        self.whole(200, '{"status": "ok", "weight_version": "v7"}')

    def log_message(self, *_):
        pass

    def whole(self, status, text, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def chunks(self, *parts, pause=0.0, last=True):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            self.wfile.write(f"{len(part):x}\r\n{part}\r\n".encode())
            self.wfile.flush()
            time.sleep(pause)
        if last:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True


@pytest.fixture
def odd():
    made = []

    def start(*answers):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd)
        server.asked, server.answers, server.url = (
            [],
            list(answers),
            f"http://127.0.0.1:{server.server_address[1]}",
        )
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        made.append(server)
        return server

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


GOOD = '{"raw_metrics": {"a": {"pass@1": {"s": 0.5, "n": 3, "yes": true, "none": null, "word": "x", "nan": NaN, "list": [1]}}}}'


def good(handler):
    handler.whole(200, GOOD)


@pytest.mark.parametrize(
    "first",
    [
        lambda handler: handler.whole(503, "later"),
        lambda handler: handler.whole(429, "slow down"),
        lambda handler: handler.whole(200, "no JSON"),
        lambda handler: handler.chunks(" ", " ", last=False),
        lambda handler: handler.chunks('{"raw_met', last=False),
        lambda handler: handler.chunks(" ", pause=1.5),
    ],
    ids=["503", "429", "garbage", "cut after blanks", "cut in the answer", "silence"],
)
def test_passing_trouble_is_asked_through(odd, first, monkeypatch):
    monkeypatch.setattr(loop, "SILENCE", 1.0)
    server = odd(first, good)
    found = loop.evaluate(3, "http://r:1", "a:4 b", url=server.url, patience=30)
    assert found.pop("eval/delegate/seconds") > 0
    assert found == {
        "eval/a/pass@1/s": 0.5,
        "eval/a/pass@1/n": 3.0,
        "eval/a/pass@1/yes": 1.0,
        "eval/delegate/ok": 1.0,
    }
    assert [body for _, body in server.asked] == [
        {
            "rollout_id": 3,
            "router_url": "http://r:1",
            "on_failure": "soft",
            "benchmarks": [{"name": "a", "n_samples_per_eval_prompt": 4}, {"name": "b"}],
        }
    ] * 2


def test_an_evaluation_longer_than_the_silence_is_one_request(odd, monkeypatch):
    monkeypatch.setattr(loop, "SILENCE", 1.0)
    server = odd(lambda handler: handler.chunks(*" " * 12, GOOD, pause=0.15))
    assert (
        loop.evaluate(
            0,
            ["http://r:1", "http://r:2"],
            [{"name": "a"}],
            url=server.url,
            run="x",
            model="m",
        )["eval/delegate/ok"]
        == 1.0
    )
    ((_, body),) = server.asked
    assert (body["router_url"], body["router_urls"], body["run"], body["model"]) == (
        "http://r:1",
        ["http://r:1", "http://r:2"],
        "x",
        "m",
    )


@pytest.mark.parametrize(
    ("answer", "kind", "asked"),
    [
        (lambda handler: handler.whole(400, '{"error": "unknown key"}'), "refused", 1),
        (lambda handler: handler.whole(404, "<html>"), "refused", 1),
        (
            lambda handler: handler.whole(307, "", Location="http://127.0.0.1:9/evaluate"),
            "refused",
            1,
        ),
        (lambda handler: handler.whole(500, '{"error": "x"}'), "failed", 1),
        (lambda handler: handler.whole(200, "{}"), "failed", 1),
        (lambda handler: handler.whole(200, "[]"), "failed", 1),
        (lambda handler: handler.whole(200, '{"raw_metrics": null}'), "failed", 1),
        (lambda handler: handler.whole(503, "x"), "unreachable", None),
        (lambda handler: handler.whole(200, "[" * 100_000), "unreachable", None),
        (lambda handler: handler.whole(200, "<html>"), "unreachable", None),
        (lambda handler: handler.chunks(" ", last=False), "unreachable", 2),
    ],
    ids=[
        "400",
        "404",
        "redirect",
        "500",
        "empty",
        "list",
        "null",
        "503",
        "depth",
        "page",
        "always cut",
    ],
)
def test_lasting_trouble_is_a_metric_by_name(odd, answer, kind, asked, monkeypatch):
    monkeypatch.setattr(loop, "TRIES", 2)
    server = odd(answer)
    found = loop.evaluate(3, "http://r:1", "a", url=server.url, patience=0.5)
    assert (found["eval/delegate/ok"], found[f"eval/delegate/{kind}"]) == (0.0, 1.0)
    assert len(server.asked) == asked or asked is None and server.asked
    with pytest.raises(loop.EvaluationFailed):
        loop.evaluate(3, "http://r:1", "a", url=server.url, patience=0.1, on_failure="hard")


def test_a_limit_of_all_ends_the_waiting_even_while_the_server_lives(odd):
    server = odd(lambda handler: handler.chunks(*" " * 100, GOOD, pause=0.1))
    assert (
        loop.evaluate(0, "http://r:1", "a", url=server.url, limit=0.5)["eval/delegate/late"] == 1.0
    )


def test_no_server_no_address_and_odd_arguments_never_raise(monkeypatch, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    assert (
        loop.evaluate(0, "http://r:1", "a", url=f"http://127.0.0.1:{port}", patience=0.3)[
            "eval/delegate/unreachable"
        ]
        == 1.0
    )
    assert loop.evaluate(0, "http://r:1", "a")["eval/delegate/unreachable"] == 1.0
    monkeypatch.setenv("DECKSMITH_EVAL_ADDRESS", str(tmp_path / "none.json"))
    assert loop.evaluate(0, "http://r:1", "a", patience=0.3)["eval/delegate/unreachable"] == 1.0
    for odd in (
        (None, "http://r:1", "a"),
        (0, [], "a"),
        (0, "http://r:1", "a:x"),
        (0, "http://r:1", [1]),
        (0, "http://r:1", "a", object()),
    ):
        assert (
            loop.evaluate(
                *odd[:3],
                url="http://127.0.0.1:1",
                patience=0.1,
                **({"model": odd[3]} if len(odd) > 3 else {}),
            )["eval/delegate/ok"]
            == 0.0
        )


# The address file


def test_the_command_prints_what_a_shell_needs_quoted_and_waits_for_health(odd, tmp_path):
    server = odd(good)
    path = tmp_path / "server.json"
    write = threading.Timer(
        0.6,
        lambda: path.write_text(json.dumps({"url": server.url, "token": "a'b $(c)", "job": None})),
    )
    write.start()
    script = f'eval "$({PYTHON} {cli.ROOT}/lib/decksmith/bench/evalserver/eval_client.py {path} 20)" && echo "$DECKSMITH_EVAL_URL $DECKSMITH_EVAL_TOKEN $no_proxy"'
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, env=os.environ | {"no_proxy": "here"}
    )
    assert done.stdout == f"{server.url} a'b $(c) here,127.0.0.1\n"


@pytest.mark.parametrize(
    ("job", "squeue", "status", "said"),
    [
        (None, "echo RUNNING", 75, "no eval server answers: http://127.0.0.1:9:"),
        ("12", "echo RUNNING", 75, "no eval server answers"),
        ("12", "exit 0", 69, "is left over: job 12 is no longer in the queue"),
        ("12", "echo COMPLETING", 69, "is left over: job 12 is COMPLETING"),
        (
            "12",
            "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
            69,
            "is left over",
        ),
        (
            "12",
            "echo 'Unable to contact slurm controller' >&2; exit 1",
            75,
            "no eval server answers",
        ),
    ],
)
def test_a_file_of_a_job_that_is_over_is_told_from_a_server_that_is_late(
    tmp_path, job, squeue, status, said
):
    (tmp_path / "server.json").write_text(
        json.dumps({"url": "http://127.0.0.1:9", "token": "t", "job": job})
    )
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n{squeue}\n")
    (tmp_path / "squeue").chmod(0o755)
    done = subprocess.run(
        [
            PYTHON,
            cli.ROOT / "lib/decksmith/bench/evalserver/eval_client.py",
            tmp_path / "server.json",
            "0",
        ],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert (done.returncode, done.stdout) == (status, "") and said in done.stderr
    assert done.stderr.startswith("waiting up to 0 s: no eval server answers") == (status == 75)


# Trainers, with stand-ins for their classes


def test_it_is_one_file_that_needs_nothing(tmp_path):
    shutil.copy(loop.__file__, tmp_path / "loop.py")
    code = "import loop, sys; print(sorted(name for name in sys.modules if name.split('.')[0] in ('requests', 'aiohttp', 'numpy', 'decksmith', 'yaml', 'omegaconf')))"
    done = subprocess.run(
        [PYTHON, "-S", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.fixture
def trainer(monkeypatch, tmp_path, odd):
    """(args, the server, give): the settings of a trainer whose --eval-config is the one that ships; give(**modules) makes modules."""
    server = odd(good)
    monkeypatch.setenv("DECKSMITH_EVAL_URL", server.url)
    monkeypatch.setenv("DECKSMITH_EVAL_TOKEN", "s3cret")
    args = types.SimpleNamespace(
        eval_config=str(cli.ROOT / "assets/multi_tasks.yaml"),
        sglang_router_ip="10.0.0.1",
        sglang_router_port=3333,
        eval_temperature=None,
        rollout_temperature=1.0,
        eval_top_k=20,
        rollout_top_k=-1,
        n_samples_per_eval_prompt=2,
    )

    def give(**modules):
        for name, members in modules.items():
            parts = name.split("__")
            for end in range(1, len(parts) + 1):
                module = sys.modules.get(".".join(parts[:end])) or types.ModuleType(
                    ".".join(parts[:end])
                )
                monkeypatch.setitem(sys.modules, module.__name__, module)
            vars(sys.modules[".".join(parts)]).update(members)

    return args, server, give


class Output:
    def __init__(self, data, metrics=None):
        self.data, self.metrics = data, metrics


@pytest.mark.parametrize(
    "own", [Output({"held_out": {}}, {"eval/held_out": 0.5}), {"held_out": {}}], ids=["new", "old"]
)
def test_slime_gets_the_delegates_metrics_beside_its_own(trainer, own):
    args, server, give = trainer
    give(
        slime__rollout__base_types={"RolloutFnEvalOutput": Output},
        slime__rollout__sglang_rollout={
            "generate_rollout": lambda *given, evaluation: (
                own if (given, evaluation) == ((args, 5, "source"), True) else None
            )
        },
    )
    output = loop.slime(args, 5, "source", evaluation=True)
    assert (
        output.data == {"held_out": {}}
        and output.metrics["eval/a/pass@1/s"] == 0.5
        and output.metrics["eval/delegate/ok"] == 1.0
    )
    assert output.metrics.get("eval/held_out") == (0.5 if isinstance(own, Output) else None)
    ((headers, body),) = server.asked
    assert (headers["Authorization"], headers["X-Run-Id"]) == ("Bearer s3cret", "by-hand")
    assert body == {
        "rollout_id": 5,
        "router_url": "http://10.0.0.1:3333",
        "on_failure": "soft",
        "run": "by-hand",
        "benchmarks": [
            {
                "name": "aime25",
                "n_samples_per_eval_prompt": 8,
                "temperature": 0.6,
                "top_p": 0.95,
                "top_k": 20,
                "max_response_len": 32768,
            },
            {
                "name": "gsm8k",
                "n_samples_per_eval_prompt": 1,
                "temperature": 0.6,
                "top_p": 0.95,
                "top_k": 20,
                "max_response_len": 8192,
            },
        ],
    }


def test_slime_goes_on_without_server_and_with_a_file_that_cannot_be_read_unless_told(
    trainer, monkeypatch, tmp_path
):
    args, server, give = trainer
    give(
        slime__rollout__base_types={"RolloutFnEvalOutput": Output},
        slime__rollout__sglang_rollout={
            "generate_rollout": lambda *_, evaluation: Output({"x": {}})
        },
    )
    server.answers[:] = [lambda handler: handler.whole(400, '{"error": "no"}')]
    assert loop.slime(args, 5, None).metrics["eval/delegate/refused"] == 1.0
    args.eval_config = str(tmp_path / "none.yaml")
    assert loop.slime(args, 5, None).metrics == {
        "eval/delegate/ok": 0.0,
        "eval/delegate/failed": 1.0,
    }
    monkeypatch.setenv("DECKSMITH_EVAL_FAILURE", "hard")
    with pytest.raises(OSError):
        loop.slime(args, 5, None)
    args.eval_config = None
    assert loop.slime(args, 5, None).data == {"x": {}}


def test_the_delegates_are_found_in_base64_and_those_without_url_are_left_out():
    import base64

    text = "eval: {delegate: [{name: skills, datasets: [{name: a}]}, {name: skills, url: http://e/evaluate, datasets: [{name: b, top_p: null}]}]}"
    args = types.SimpleNamespace(
        eval_config="base64:" + base64.b64encode(text.encode()).decode(), rollout_top_p=0.9
    )
    assert loop.configured(args) == [
        {"benchmarks": [{"name": "b"}], "url": "http://e/evaluate", "headers": {}, "run": None}
    ]
