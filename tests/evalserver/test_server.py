"""The eval server's queue and its two doors. Most of it is tried with stages that do nothing in no time (tests/fixtures/eval/stage), so that
what the queue does stands alone; the last tests run the real scripts against a router of ours and the embedded engine."""

import asyncio
import itertools
import json
import math
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import requests
import waits
from decksmith.bench.evalserver import jobqueue, jobs, request
from decksmith.bench.evalserver import router as eval_router
from decksmith.bench.evalserver import worker as eval_worker
from decksmith.bench.evalserver.eval_client import ENDED, EvaluationFailed
from decksmith.bench.evalserver.eval_client import Server as Asked
from decksmith.bench.evalserver.jobs import Job, Store
from decksmith.bench.evalserver.request import Settings
from decksmith.core import cli, web
from delegates import ROOT, DelegateError, Server, flat, payload, trainer

pytestmark = pytest.mark.slow

# The documented client


def left(server, body, run=None):
    """The job of a client that asks and goes; the server has noticed both."""
    headers = {"Authorization": f"Bearer {server.token}"} | ({"X-Run-Id": run} if run else {})
    known = {job["job_id"] for job in server.jobs()}
    with requests.post(
        f"{server.url}/evaluate", json=body, headers=headers, timeout=waits.HANG, stream=True
    ):
        found = waits.until(lambda: {job["job_id"] for job in server.jobs()} - known)
    (ident,) = found
    waits.until(lambda: server.job(ident)["waiting"] == 0)
    return ident


@pytest.mark.long(
    "test_two_clients_with_the_same_request_share_one_job_and_one_after_delivery_opens_the_next_attempt"
)
def test_a_client_with_a_short_read_timeout_gets_its_metrics_at_the_first_attempt(serving, router):
    server, one = serving(), router()
    server.pace(1)
    said = server.ask("POST", "/evaluate", payload(one, "needle")).content
    assert said.startswith(b" ")  # while nothing is done; it restarts the client's read timeout
    assert flat(json.loads(said)["raw_metrics"]) == {
        "eval/needle/pass@1/accuracy": 0.5,
        "eval/needle/pass@1/num_entries": 3.0,
        "eval/needle/pass@1/truncated": 0.0,
        "eval/needle/delegate/ok": 1.0,
        "eval/needle/delegate/n_errors": 0.0,
        "eval/needle/delegate/coverage": 1.0,
        "eval/needle/delegate/seconds": pytest.approx(waits.HANG, abs=waits.HANG),
    }
    assert server.asked() == ["needle-1", "needle-2", "needle-3"]


@pytest.mark.long(
    "test_two_clients_with_the_same_request_share_one_job_and_one_after_delivery_opens_the_next_attempt"
)
def test_three_timeouts_cause_one_run_and_the_fourth_attempt_gets_its_result(serving, router):
    server, one = serving(), router()
    server.pace(0.7)
    with pytest.raises(DelegateError, match="timed out"):
        trainer(server, payload(one, "needle"), timeout=0.1, attempts=3)
    assert trainer(server, payload(one, "needle"))["eval/needle/delegate/ok"] == 1
    assert server.asked() == ["needle-1", "needle-2", "needle-3"]
    assert [job["status"] for job in server.jobs()] == ["done"]


def test_two_clients_with_the_same_request_share_one_job_and_one_after_delivery_opens_the_next_attempt(
    serving, router
):
    server, one = serving(), router()
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(trainer(server, payload(one, "needle"))))
        for _ in range(2)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert answers[0] == answers[1] and len(server.asked()) == 3
    key, _, attempt = server.jobs()[0]["job_id"].partition(".")
    trainer(server, payload(one, "needle"))
    assert [job["job_id"] for job in server.jobs()] == [f"{key}.2", f"{key}.1"] and attempt == "1"
    assert len(server.asked()) == 6


def test_a_benchmark_that_fails_does_not_lose_the_others(serving, router):
    server, one = serving(), router()
    (server.folder / "house/broken").write_text("arithmetic\n")
    found = trainer(server, payload(one, "needle", "arithmetic", "mbpp"))
    assert {
        key: value
        for key, value in found.items()
        if "seconds" not in key and "num_entries" not in key and "truncated" not in key
    } == {
        "eval/needle/pass@1/accuracy": 0.5,
        "eval/needle/delegate/ok": 1,
        "eval/needle/delegate/n_errors": 0,
        "eval/needle/delegate/coverage": 1,
        "eval/arithmetic/delegate/ok": 0,
        "eval/arithmetic/delegate/n_errors": 1,
        "eval/arithmetic/delegate/coverage": 0,
        "eval/mbpp/pass@1/accuracy": 0.5,
        "eval/mbpp/delegate/ok": 1,
        "eval/mbpp/delegate/n_errors": 0,
        "eval/mbpp/delegate/coverage": 1,
    }
    job = server.jobs()[0]
    assert job["status"] == "partial"
    assert server.job(job["job_id"])["benchmarks"]["arithmetic"]["error"] == (
        "bench-grade ended with status 1: bench-grade: the grader of arithmetic broke"
    )


@pytest.mark.long("test_a_benchmark_that_fails_does_not_lose_the_others")
def test_where_all_or_nothing_is_asked_a_failure_is_500_and_asking_again_does_only_what_failed(
    serving, router
):
    server, one = serving(), router()
    server.pace(0)
    (server.folder / "house/broken").write_text("arithmetic\n")
    hard = payload(one, "needle", "arithmetic", on_failure="hard")
    with pytest.raises(DelegateError):
        trainer(server, hard)  # a blank was sent before it failed, so the first time it is cut
    said = server.ask("POST", "/evaluate", hard)
    assert said.status_code == 500 and said.json()["error"] == (
        f"{server.jobs()[0]['job_id']} is partial: arithmetic: bench-grade ended with status 1: bench-grade: the grader of arithmetic broke"
    )
    (server.folder / "house/broken").unlink()
    assert trainer(server, hard)["eval/arithmetic/delegate/ok"] == 1
    assert sorted(server.asked()) == [
        "arithmetic-1",
        "arithmetic-2",
        "arithmetic-3",
        "needle-1",
        "needle-2",
        "needle-3",
    ]


def test_no_benchmarks_are_a_warning_and_no_job(serving, router):
    server = serving()
    assert server.ask("POST", "/evaluate", payload(router())).json() == {
        "job_id": None,
        "warning": "no benchmarks were asked for",
        "raw_metrics": {},
        "runs": [],
    }
    assert server.jobs() == []


# Dying and coming back


def test_a_server_killed_half_way_finishes_only_what_is_left(serving, router):
    server, one = serving("--jobs", "1"), router()
    server.pace(0.4)
    ident = server.ask("POST", "/jobs", payload(one, "needle", "arithmetic", "mbpp")).json()[
        "job_id"
    ]
    server.until(lambda job: job["benchmarks"]["arithmetic"].get("asked", 0) >= 1, ident)
    before = server.url
    server.kill()
    waits.until(
        lambda: (server.folder / "eval/jobs" / ident / "arithmetic/result.json").exists()
    )  # it went on by itself
    server.start()
    assert server.url == before  # where the clients look for it
    found = trainer(server, payload(one, "needle", "arithmetic", "mbpp"))
    assert all(found[f"eval/{name}/delegate/ok"] == 1 for name in ("needle", "arithmetic", "mbpp"))
    assert server.asked() == [
        f"{name}-{i}" for name in ("needle", "arithmetic", "mbpp") for i in (1, 2, 3)
    ]


@pytest.mark.long("test_a_server_killed_half_way_finishes_only_what_is_left")
def test_a_benchmark_that_still_runs_is_taken_up_by_the_next_server(serving, router):
    server, one = serving(), router()
    server.pace(1)
    ident = server.ask("POST", "/jobs", payload(one, "needle")).json()["job_id"]
    server.until(lambda job: job["benchmarks"]["needle"].get("asked", 0) >= 1, ident)
    worker = json.loads((server.folder / "eval/jobs" / ident / "needle/process.json").read_text())
    server.kill(signal.SIGTERM)
    assert "1 benchmarks go on by themselves" in (server.folder / "said").read_text()
    server.start()
    os.kill(worker["pid"], 0)
    assert server.until(lambda job: job["status"] == "done", ident)["status"] == "done"
    assert (
        json.loads((server.folder / "eval/jobs" / ident / "needle/process.json").read_text())
        == worker
    )
    assert server.asked() == ["needle-1", "needle-2", "needle-3"]


@pytest.mark.long("test_a_server_killed_half_way_finishes_only_what_is_left")
def test_after_a_lost_machine_a_benchmark_goes_on_from_its_journal(serving, router):
    server, one = serving(), router()
    server.pace(0.5)
    ident = server.ask("POST", "/jobs", payload(one, "needle")).json()["job_id"]
    server.until(lambda job: job["benchmarks"]["needle"].get("asked", 0) >= 1, ident)
    server.kill()
    assert eval_worker.send(server.folder / "eval/jobs" / ident / "needle", signal.SIGKILL)
    server.pace(0)
    server.start()
    server.until(lambda job: job["status"] == "done", ident)
    asked = server.asked()
    assert (
        asked.count("needle-1") == 1
        and set(asked) == {"needle-1", "needle-2", "needle-3"}
        and len(asked) <= 4
    )  # the one in flight, twice


@pytest.mark.long("test_a_worker_that_dies_each_time_fails_its_benchmark_alone")
def test_a_worker_that_is_killed_is_started_again(serving, router):
    server, one = serving(), router()
    server.pace(0.5)
    ident = server.ask("POST", "/jobs", payload(one, "needle")).json()["job_id"]
    server.until(lambda job: job["benchmarks"]["needle"].get("asked", 0) >= 1, ident)
    eval_worker.send(server.folder / "eval/jobs" / ident / "needle", signal.SIGKILL)
    assert server.until(lambda job: job["status"] in ENDED, ident)["status"] == "done"


def test_a_worker_that_dies_each_time_fails_its_benchmark_alone(serving, router):
    server, one = serving(), router()
    (
        server.folder / "house/bin/bench-prompt"
    ).unlink()  # nothing to execute: the worker ends with a traceback
    ident = server.ask("POST", "/jobs", payload(one, "needle")).json()["job_id"]
    found = server.until(lambda job: job["status"] in ENDED, ident)
    assert (
        found["status"] == "failed"
        and "its process was killed 3 times: FileNotFoundError"
        in found["benchmarks"]["needle"]["error"]
    )


def test_sigterm_cuts_the_answer_without_its_last_chunk_and_a_retry_rejoins(serving, router):
    server, one = serving(), router()
    server.pace(1)
    body = json.dumps(payload(one, "needle")).encode()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as raw:
        raw.sendall(
            b"POST /evaluate HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
            % (server.token.encode(), len(body), body)
        )
        got = b""
        while got.count(b"1\r\n \r\n") < 2:
            got += raw.recv(4096)
        server.kill(signal.SIGTERM)
        try:
            while more := raw.recv(4096):
                got += more
        except ConnectionResetError:
            pass
    assert (
        got.startswith(b"HTTP/1.1 200 OK\r\n")
        and b"Transfer-Encoding: chunked" in got
        and b"0\r\n\r\n" not in got
    )
    server.start()
    assert trainer(server, payload(one, "needle"))["eval/needle/delegate/ok"] == 1
    assert server.asked() == ["needle-1", "needle-2", "needle-3"]


@pytest.mark.long("test_sigterm_cuts_the_answer_without_its_last_chunk_and_a_retry_rejoins")
def test_ctrl_c_ends_the_benchmarks_too_and_the_next_server_goes_on(serving, router):
    server, one = serving(), router()
    server.pace(1)
    ident = server.ask("POST", "/jobs", payload(one, "needle")).json()["job_id"]
    server.until(lambda job: job["benchmarks"]["needle"].get("asked", 0) >= 1, ident)
    server.kill(signal.SIGINT)
    assert server.process.returncode == 0 and not eval_worker.busy(
        server.folder / "eval/jobs" / ident / "needle"
    )
    server.pace(0)
    server.start()
    assert server.until(lambda job: job["status"] in ENDED, ident)["status"] == "done"
    assert server.asked().count("needle-1") == 1


@pytest.mark.long("test_a_server_killed_half_way_finishes_only_what_is_left")
def test_a_database_that_is_none_is_said_and_folders_without_a_job_are_left_alone(serving, router):
    server, one = serving(), router()
    server.pace(0)
    done = server.ask("POST", "/jobs", payload(one, "needle")).json()["job_id"]
    server.until(lambda job: job["status"] == "done", done)
    server.kill(signal.SIGTERM)
    (server.folder / "eval/jobs.db").write_bytes(b"garbage" * 1000)
    words = [ROOT / "bin/eval-serve", "--root", server.folder / "eval"]
    said = subprocess.run(words, env=server.env, capture_output=True, text=True)
    assert said.returncode == 65 and "jobs.db: file is not a database; remove it" in said.stderr
    (server.folder / "eval/jobs.db").unlink()
    (server.folder / "eval/port").write_text("99999999999")
    server.start()
    assert server.jobs() == []
    again = server.ask("POST", "/jobs", payload(one, "needle")).json()["job_id"]
    assert again == done[:-1] + "2"  # what lies there was of weights that nobody knows
    server.until(lambda job: job["status"] == "done", again)
    assert len(server.asked()) == 6


@pytest.mark.parametrize(
    "what", ["result.json", pytest.param("summary.json", marks=pytest.mark.long)]
)
def test_a_result_that_is_garbage_fails_its_benchmark_or_is_made_again(serving, router, what):
    server, one = serving(), router()
    server.pace(0.5)
    ident = server.ask("POST", "/jobs", payload(one, "needle")).json()["job_id"]
    server.until(lambda job: job["benchmarks"]["needle"].get("asked", 0) >= 1, ident)
    server.kill()
    folder = server.folder / "eval/jobs" / ident / "needle"
    waits.until(lambda: (folder / "result.json").exists())
    (folder / what).write_text('{"needle": ')
    server.start()
    found = server.until(lambda job: job["status"] in ENDED, ident)
    assert found["status"] == ("done" if what == "result.json" else "failed")
    assert server.asked() == ["needle-1", "needle-2", "needle-3"]


def test_one_server_has_a_root(serving, router):
    server = serving()
    second = subprocess.run(
        [ROOT / "bin/eval-serve", "--root", server.folder / "eval"],
        env=server.env,
        capture_output=True,
        text=True,
    )
    assert second.returncode == 75
    assert (
        second.stderr
        == f"eval-serve: {server.folder}/eval: another eval-serve has this folder; give another with --root\n"
    )
    assert server.ask("GET", "/health").json() == {"status": "ok"}


def test_states_that_cannot_be_written_do_not_end_a_job(tmp_path, router, monkeypatch, capsys):
    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    async def ask():
        async with jobqueue.Queue(Settings(tmp_path / "eval", model="m")) as queue:
            job, _ = await queue.submit(payload(one, "needle"))
            monkeypatch.setattr(Store, "put", full)
            await job.done.wait()
            monkeypatch.undo()
            return job.id

    async def again():
        async with jobqueue.Queue(Settings(tmp_path / "eval", model="m")) as queue:
            job = queue.jobs[ident]
            assert job.state["status"] == "queued"
            await job.done.wait()
            return job.answer()

    one, house = router(), Server(tmp_path)
    environment = {**house.env, "PYTHONPATH": str(ROOT / "lib")}
    house.pace(0)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        ident = asyncio.run(ask())
        assert "its state is not kept" in capsys.readouterr().err
        assert asyncio.run(again())["status"] == "done" and len(house.asked()) == 3


def test_a_request_that_cannot_be_kept_leaves_nothing_for_the_next_server(tmp_path, monkeypatch):
    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    async def ask():
        async with jobqueue.Queue(Settings(tmp_path)) as queue:
            monkeypatch.setattr(Store, "put", full)
            with pytest.raises(cli.TryAgain, match="disk is full"):
                await queue.submit(
                    {
                        "rollout_id": 0,
                        "router_url": "http://127.0.0.1:9",
                        "benchmarks": [{"name": "needle"}],
                    }
                )

    asyncio.run(ask())
    assert list((tmp_path / "jobs").iterdir()) == []


def test_nobody_works_on_for_a_benchmark_that_is_said_to_have_failed(tmp_path, router, monkeypatch):
    def broken(_, job, name):
        if child := job.children.get(name):
            seen.append(child)
            raise ValueError("a bug of ours")

    async def ask():
        async with jobqueue.Queue(Settings(tmp_path / "eval", model="m")) as queue:
            job, _ = await queue.submit(payload(router(), "needle"))
            await job.done.wait()
            return job

    seen, house = [], Server(tmp_path)
    house.pace(2)
    for name, value in {**house.env, "PYTHONPATH": str(ROOT / "lib")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(jobqueue.Queue, "_at_work", broken)
    job = asyncio.run(ask())
    assert (
        job.state["status"] == "failed"
        and "a bug of ours" in job.state["benchmarks"]["needle"]["error"]
    )
    assert seen[0].poll() is not None and not eval_worker.busy(job.folder / "needle")


def test_idle_connections_of_strangers_do_not_use_up_what_the_queue_needs(serving, router):
    import contextlib
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        server = serving()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with contextlib.ExitStack() as idle:
        for _ in range(300):
            idle.enter_context(
                socket.create_connection(
                    ("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=waits.HANG
                )
            ).sendall(b"GET /health HTTP/1.1\r\n")
        assert trainer(server, payload(router(), "needle"))["eval/needle/delegate/ok"] == 1


def test_the_client_takes_its_token_nowhere_else(router):
    other = router(health={"status": "ok"})
    client = Asked(router(health=(302, {"Location": f"{other.url}/health"})).url, patience=0)
    with pytest.raises(EvaluationFailed, match="HTTP 302"):
        client.ask("GET", "/health")
    assert other.seen == []


# Ending jobs


def test_cancelling_ends_all_processes_of_a_job_and_tells_whoever_waits(serving, router):
    server, one = serving("--jobs", "1"), router()
    server.pace(60)
    got = []
    client = threading.Thread(
        target=lambda: got.append(trainer(server, payload(one, "needle", "mbpp")))
    )
    client.start()
    waits.until(lambda: "needle-1" in server.asked())
    ident = server.jobs()[0]["job_id"]
    following = server.ask("POST", "/jobs", payload(one, "arithmetic", rollout=1)).json()["job_id"]
    server.pace(0)
    assert server.ask("POST", f"/jobs/{ident}/cancel").json() == {
        "job_id": ident,
        "status": "cancelled",
    }
    assert not eval_worker.busy(server.folder / "eval/jobs" / ident / "needle")
    client.join()
    assert got == [
        {
            f"eval/{name}/delegate/{key}": value
            for name in ("needle", "mbpp")
            for key, value in {
                "ok": 0,
                "n_errors": 0,
                "seconds": 0,
                "coverage": 0,
                "skipped_cancelled": 1,
            }.items()
        }
    ]
    assert server.until(lambda job: job["status"] in ENDED, following)["status"] == "done"
    assert server.asked() == ["needle-1", "arithmetic-1", "arithmetic-2", "arithmetic-3"]
    assert server.ask("POST", f"/jobs/{ident}/cancel").json()["status"] == "cancelled"
    again = server.ask("POST", "/jobs", payload(one, "needle", "mbpp")).json()
    assert again["created"] and again["job_id"] == ident[:-1] + "2"


@pytest.mark.long("test_cancelling_ends_all_processes_of_a_job_and_tells_whoever_waits")
def test_a_newer_rollout_supersedes_older_ones_of_its_run_that_nobody_waits_for(serving, router):
    server, one = serving("--jobs", "1"), router()
    server.pace(60)

    def leave(rollout, run):
        return left(server, payload(one, "needle", rollout=rollout), run)

    five, other, seven = leave(5, "a"), leave(5, "b"), leave(7, "a")
    assert (
        server.job(five)["status"] == "superseded"
        and server.job(five)["why"] == "rollout 7 of a came"
    )
    assert server.job(other)["status"] in ("queued", "running") and server.job(seven)["status"] in (
        "queued",
        "running",
    )
    six = leave(6, "a")  # an older one ends no newer one
    assert server.job(seven)["status"] != "superseded"
    somebody = threading.Thread(
        target=lambda: trainer(server, payload(one, "needle", rollout=7, run="a"))
    )
    somebody.start()
    waits.until(lambda: server.job(seven)["waiting"] == 1)
    leave(8, "a")
    assert (
        server.job(six)["status"] == "superseded" and server.job(seven)["status"] != "superseded"
    )  # somebody waits for it
    posted = server.ask("POST", "/jobs", payload(one, "needle", rollout=8, run="c")).json()
    server.ask("POST", "/jobs", payload(one, "needle", rollout=9, run="c"))
    assert server.job(posted["job_id"])["status"] != "superseded"  # two checkpoints are both wanted
    server.ask("POST", f"/jobs/{seven}/cancel")
    somebody.join()


# Weights


@pytest.mark.long(
    "test_two_clients_with_the_same_request_share_one_job_and_one_after_delivery_opens_the_next_attempt"
)
def test_results_of_named_weights_are_kept_for_ever_and_what_is_missing_is_done_in_the_same_job(
    serving, router
):
    server, one = serving(), router()
    server.pace(0)
    (server.folder / "house/broken").write_text("arithmetic\n")
    named = payload(one, "needle", "arithmetic", checkpoint="step_100")
    assert trainer(server, named)["eval/arithmetic/delegate/ok"] == 0
    (server.folder / "house/broken").unlink()
    for _ in range(3):
        assert trainer(server, named)["eval/arithmetic/delegate/ok"] == 1
    assert len(server.jobs()) == 1 and len(server.asked()) == 6
    trainer(server, named | {"checkpoint": "step_200"})
    assert len(server.asked()) == 12


@pytest.mark.long(
    "test_two_clients_with_the_same_request_share_one_job_and_one_after_delivery_opens_the_next_attempt"
)
def test_weights_that_change_meanwhile_are_reported_and_a_job_of_other_weights_is_not_joined(
    serving, router
):
    server, one = serving(), router(model_info={"weight_version": 7})
    server.pace(0.5)
    first = left(server, payload(one, "needle"))
    server.until(lambda job: job["benchmarks"]["needle"]["status"] == "running", first)
    one.answers["model_info"] = {"weight_version": 8}
    assert trainer(server, payload(one, "needle"))["eval/needle/delegate/weights_changed"] == 0
    assert [(job["job_id"], job["status"]) for job in server.jobs()] == [
        (first[:-1] + "2", "done"),
        (first, "superseded"),
    ]
    posted = server.ask("POST", "/jobs", payload(one, "needle", rollout=1)).json()["job_id"]
    server.until(lambda job: job["benchmarks"]["needle"]["status"] == "running", posted)
    one.answers["model_info"] = {"weight_version": 9}
    server.until(lambda job: job["status"] == "done", posted)
    assert server.job(posted)["raw_metrics"]["needle"]["delegate"]["weights_changed"] == 1


# The real router of sglang, between us and two servers

SGLANG = ROOT / ".venv-vllm/bin/sglang-router"
real_router = pytest.mark.skipif(
    not SGLANG.exists(), reason="no .venv-vllm here: make test-vllm installs it"
)


class Fleet:
    """Two servers that answer slowly, and sglang's router in front of them."""

    def __init__(self, folder):
        self.folder, self.processes, urls = folder, [], []
        for n in (0, 1):
            (folder / f"weights{n}").write_text("7")
            more = ("--model", "policy", "--weights", folder / f"weights{n}")
            words = (ROOT / "tests/endpoint.py", "--latency", "0.5", *more)
            server = subprocess.Popen(
                [sys.executable, *words, "--log", folder / f"asked{n}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # the router tries whether they speak gRPC
            )
            self.processes.append(server)
            urls.append(server.stdout.readline().decode().strip().removesuffix("/v1"))
        ports = []
        for _ in range(2):
            with socket.socket() as held:
                held.bind(("127.0.0.1", 0))
                ports.append(held.getsockname()[1])
        self.router_url = f"http://127.0.0.1:{ports[0]}"
        arguments = ["launch", "--host", "127.0.0.1", "--policy", "round_robin"]
        arguments += ["--port", str(ports[0]), "--prometheus-port", str(ports[1])]
        with open(folder / "router.log", "wb") as log:
            router = subprocess.Popen(
                [SGLANG, *arguments, "--worker-urls", *urls],
                stdout=log,
                stderr=log,
                env={**os.environ, "no_proxy": "127.0.0.1"},
            )
        self.processes.append(router)
        waits.until(lambda: self.healthy() == 2, router)

    def healthy(self):
        """How many servers the router has found well."""
        try:
            found = requests.get(f"{self.router_url}/workers", timeout=waits.HANG).json()["workers"]
        except (requests.exceptions.RequestException, ValueError):
            return 0
        return sum(each["is_healthy"] for each in found)

    def asked(self, n):
        """The questions that a server answered."""
        lines = (self.folder / f"asked{n}").read_text().splitlines()
        return [json.loads(line)["key"] for line in lines if json.loads(line)["status"] == 200]

    def end(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture
def fleet(tmp_path):
    made = Fleet(tmp_path)
    yield made
    made.end()


def through(fleet):
    return {"rollout_id": 0, "router_url": fleet.router_url, "benchmarks": [{"name": "arithmetic"}]}


def begun(server, fleet):
    """The id of a job of which a few questions were answered."""
    ident = server.ask("POST", "/jobs", through(fleet)).json()["job_id"]
    server.until(lambda job: job["benchmarks"]["arithmetic"].get("asked", 0) >= 3, ident)
    return ident


@pytest.mark.engine
@real_router
def test_through_sglang_s_router_the_model_has_its_servers_name_and_one_that_dies_costs_nothing(
    serving, fleet
):
    listed = requests.get(f"{fleet.router_url}/v1/models", timeout=waits.HANG).json()["data"]
    assert [each["id"] for each in listed] == [eval_router.UNKNOWN]
    server = serving("--limit", "24", "--requests", "2", stages=False)
    ident = begun(server, fleet)
    fleet.processes[1].kill()
    job = server.until(lambda job: job["status"] in ENDED, ident)
    told = job["raw_metrics"]["arithmetic"]["delegate"]
    assert job["model"] == "policy" and job["status"] == "done"
    assert told["coverage"] == 1 and told["n_errors"] == 0 and told["weights_changed"] == 0
    first, second = fleet.asked(0), fleet.asked(1)
    assert first and second and len(set(first + second)) == len(first + second) == 24


# The router itself answers /get_model_info for one of its servers alone.
@pytest.mark.engine
@real_router
@pytest.mark.parametrize("n", (0, 1))
def test_weights_that_change_in_one_server_behind_sglang_s_router_are_noticed(serving, fleet, n):
    server = serving("--limit", "12", "--requests", "2", stages=False)
    ident = begun(server, fleet)
    (fleet.folder / f"weights{n}").write_text("8")
    job = server.until(lambda job: job["status"] in ENDED, ident)
    assert job["benchmarks"]["arithmetic"]["weights"] == "7"
    assert job["raw_metrics"]["arithmetic"]["delegate"]["weights_changed"] == 1


# The model's name, and where it is asked


def test_the_router_says_what_its_model_is_called_and_the_request_or_the_flag_where_it_does_not(
    serving, router
):
    server = serving()
    server.pace(0)

    def slug(one, **more):
        trainer(server, payload(one, "needle", rollout=slug.n, **more))
        slug.n += 1
        line = (server.folder / "house/asked").read_text().splitlines()[-1]
        return re.search(r"--slug=(\S+) --base-url=(\S+)/v1 ", line).groups()

    slug.n = 0
    plain, silent, several = (
        router(),
        router(v1_models=(404, {})),
        router(v1_models={"data": [{"id": "base"}, {"id": "m"}]}),
    )
    assert slug(plain) == ("policy", plain.url)
    assert slug(silent) == ("m", silent.url)
    assert slug(several) == ("m", several.url)
    assert slug(plain, model="asked") == ("asked", plain.url)
    away = router(v1_models=(307, {"Location": f"{plain.url}/v1/models"}))
    plain.seen.clear()
    assert (
        slug(away) == ("m", away.url) and plain.seen == []
    )  # what it points to is no router of ours


def test_a_router_that_does_not_answer_fails_the_job_softly(tmp_path, monkeypatch):
    monkeypatch.setattr(jobqueue, "PATIENCE", 0.5)

    async def go():
        async with jobqueue.Queue(Settings(tmp_path)) as queue:
            job, _ = await queue.submit(
                {
                    "rollout_id": 0,
                    "router_url": "http://127.0.0.1:9",
                    "benchmarks": [{"name": "needle"}],
                }
            )
            await job.done.wait()
            return job.answer()

    found = asyncio.run(go())
    assert found["raw_metrics"] == {
        "needle": {"delegate": {"ok": 0, "n_errors": 1, "seconds": 0.0, "coverage": 0.0}}
    }
    assert found["runs"][0]["error"].startswith("http://127.0.0.1:9 did not answer for 0 s: ")


@pytest.mark.parametrize(
    "url, allow, found",
    [
        ("http://127.0.0.1:3333", (), "http://127.0.0.1:3333"),
        ("http://localhost:3333/v1/", (), "http://127.0.0.1:3333"),
        ("http://[::1]:3333", (), "http://[::1]:3333"),
        ("http://10.1.2.3:3333", ("10.1.0.0/16",), "http://10.1.2.3:3333"),
        ("HTTP://Gpu-7.Site:80", ("gpu-*",), "http://gpu-7.site:80"),
        ("https://gpu-7.site", ("gpu-?.site",), "https://gpu-7.site:443"),
        ("http://10.1.2.3:3333", ("10.2.0.0/16", "gpu-*"), None),
        ("http://169.254.169.254/", (), None),
        ("http://169.254.169.254/v1", ("gpu-*",), None),
        ("http://gpu-7@evil.example:80", ("gpu-*",), None),
        ("http://evil.example\\@gpu-7:80", ("gpu-*",), None),
        ("http://127.0.0.1:3333/admin", (), None),
        ("http://127.0.0.1:3333/v1/../admin", (), None),
        ("http://127.0.0.1:3333?x=1", (), None),
        ("http://127.0.0.1:3333#/v1", (), None),
        ("http://127.0.0.1:99999", (), None),
        (
            "http://2130706433:3333",
            (),
            "http://127.0.0.1:3333",
        ),  # the same address, written as one number
        ("ftp://127.0.0.1", (), None),
        ("file:///etc/passwd", (), None),
        ("http://", (), None),
        ("http://gpu-7 --slug=x:80", ("gpu-*",), None),
        ("--help", ("*",), None),
        ("http://no-such-host.invalid", (), None),
    ],
)
def test_a_router_is_this_machine_or_one_that_was_allowed_and_nothing_else_of_its_url_counts(
    url, allow, found
):
    if "[" in url and not web.is_own("::1"):
        pytest.skip("this machine speaks no IPv6")
    if found is None:
        with pytest.raises(cli.BadData, match="router_url: "):
            asyncio.run(eval_router.trusted(url, allow))
    else:
        assert asyncio.run(eval_router.trusted(url, allow)) == found


# What is refused, and how

BENCH = {"name": "needle"}


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"rollout_id": None}, "rollout_id is missing: the trainer's step, a whole number"),
        ({"rollout_id": "seven"}, "rollout_id: 'seven' is not the trainer's step, a whole number"),
        ({"rollout_id": True}, "rollout_id: 'True' is not the trainer's step, a whole number"),
        ({"rollout_id": 1.5}, "rollout_id: '1.5' is not the trainer's step, a whole number"),
        (
            {"router_url": None},
            "router_url is missing: where the model is asked, http://HOST:PORT without /v1 (or a list of them as router_urls)",
        ),
        (
            {"router_url": ["http://127.0.0.1"]},
            "router_url: \"['http://127.0.0.1']\" is not http://HOST:PORT",
        ),
        (
            {"benchmarks": {"name": "needle"}},
            "benchmarks: \"{'name': 'needle'}\" is not a list of objects",
        ),
        ({"benchmarks": [BENCH, BENCH]}, "needle is there twice"),
        (
            {"benchmarks": [BENCH | {"tempreature": 1}]},
            "needle: unknown key 'tempreature'; there are: "
            + ", ".join(request.Benchmark.model_fields),
        ),
        (
            {"benchmarks": [BENCH | {"n_samples_per_eval_prompt": 0}]},
            "needle: n_samples_per_eval_prompt: '0' is not a whole number from 1 to 1024",
        ),
        (
            {"benchmarks": [BENCH | {"temperature": "0.5"}]},
            "needle: temperature: '0.5' is not a number from 0 to 100",
        ),
        (
            {"benchmarks": [BENCH | {"top_p": 0}]},
            "needle: top_p: '0' is not a number from 1e-09 to 1",
        ),
        (
            {"defaults": {"stop": ["x"]}},
            "defaults: unknown key 'stop'; there are: " + ", ".join(request.Sampling.model_fields),
        ),
        ({"checkpoint": "a\nb"}, "checkpoint: not a line of at most 500 characters"),
        ({"run": ["a"]}, "run: not a line of at most 500 characters"),
        ({"on_failure": "explode"}, "on_failure: 'explode' is not soft or hard"),
        (
            {"judge": {"api_key_env": "HF_TOKEN"}},
            "unknown key 'judge'; there are: " + ", ".join(request.Request.model_fields),
        ),
        (
            {"n_tasks": 3},
            "unknown key 'n_tasks'; there are: " + ", ".join(request.Request.model_fields),
        ),
    ],
)
def test_a_wrong_request_is_400_before_anything_runs_and_says_what_is_wrong(
    refusing, changes, sentence
):
    said = refusing.ask(
        "POST",
        "/evaluate",
        {"rollout_id": 0, "router_url": "http://127.0.0.1:9", "benchmarks": [BENCH], **changes},
    )
    assert said.status_code == 400
    assert said.json() == {"error": sentence}
    assert refusing.jobs() == []


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("refusing")).start()
    yield server
    server.kill(signal.SIGINT)


@pytest.mark.parametrize(
    "name",
    [
        "../../x",
        "needle/../needle",
        "/etc",
        "",
        ".",
        "needle:8",
        "published",
        "nedle",
        7,
        ["needle"],
        None,
        "needle\x00",
        "-h",
    ],
)
def test_only_a_benchmark_of_ours_can_be_named(refusing, name):
    asked = {"rollout_id": 0, "router_url": "http://127.0.0.1:9", "benchmarks": [{"name": name}]}
    hard = {**asked, "on_failure": "hard"}
    for path, body in (("/jobs", asked), ("/jobs", hard), ("/evaluate", hard)):
        said = refusing.ask("POST", path, body)
        assert said.status_code == 400
        assert said.json()["error"].startswith("no benchmark ") and "needle" in said.json()["error"]
    assert list((refusing.folder / "eval/jobs").iterdir()) == []


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'"x"', b"null", b'{"rollout_id": NaN}', b"[" * 100_000, b"\xff"]
)
def test_a_body_that_is_no_object_is_400(refusing, body):
    said = requests.post(
        f"{refusing.url}/evaluate",
        data=body,
        headers={"Authorization": f"Bearer {refusing.token}"},
        timeout=waits.HANG,
    )
    assert said.status_code == 400 and set(said.json()) == {"error"}


def test_without_its_token_the_server_says_only_that_it_lives(refusing):
    assert requests.get(f"{refusing.url}/health", timeout=waits.HANG).text == '{"status": "ok"}'
    for headers in (
        {},
        {"Authorization": "Bearer x"},
        {"Authorization": refusing.token},
        {"Authorization": "Bearer "},
    ):
        for method, path in (
            ("POST", "/evaluate"),
            ("GET", "/jobs"),
            ("POST", "/jobs"),
        ):
            said = requests.request(
                method, refusing.url + path, json={}, headers=headers, timeout=waits.HANG
            )
            assert said.status_code == 401 and said.json() == {
                "error": "the token is missing or wrong: Authorization: Bearer TOKEN"
            }
    with pytest.raises(DelegateError, match="401"):
        trainer(refusing, {}, headers={})
    for file in ("token", "server.json"):
        assert (refusing.folder / "eval" / file).stat().st_mode & 0o777 == 0o600


def test_wrong_paths_and_methods_and_jobs_are_json_errors(refusing):
    for method, path, status in (
        ("GET", "/evaluate", 405),
        ("GET", "/nothing", 404),
        ("GET", "/jobs/x", 404),
        ("GET", "/jobs/..%2f..%2fetc", 404),
        ("POST", "/jobs/x/cancel", 404),
    ):
        said = refusing.ask(method, path)
        assert said.status_code == status and set(said.json()) == {"error"}, path


# The better door


@pytest.mark.long("test_many_jobs_are_loaded_and_listed")
def test_a_job_can_be_listed_looked_at_and_watched(serving, router):
    server, one = serving(), router()
    server.pace(0.3)
    first = server.ask("POST", "/jobs", payload(one, "needle", rollout="7", run="a"))
    assert first.status_code == 202
    ident = first.json()["job_id"]
    assert first.json() == {"job_id": ident, "status": "queued", "created": True}
    assert (
        server.ask("POST", "/jobs", payload(one, "needle", rollout=7, run="a")).json()["created"]
        is False
    )
    told = list(Asked(address=server.folder / "eval/server.json").watch(ident))
    assert told[-1] == {
        "status": "done",
        "benchmarks": {"needle": "done"},
        "done": {"needle": None},
    }
    assert all(one != other for one, other in itertools.pairwise(told))
    found = server.job(ident)
    assert (found["status"], found["model"], found["run"], found["rollout_id"]) == (
        "done",
        "policy",
        "a",
        7,
    )
    assert found["sampling"] == {
        "needle": {
            "n_samples_per_eval_prompt": 1,
            "temperature": 0.0,
            "top_p": 1.0,
            "top_k": -1,
            "seed": 0,
            "limit": 0,
            "max_response_len": 128,
        }
    }
    server.ask("POST", "/jobs", payload(one, "mbpp", run="b"))
    assert [
        len(server.jobs(**query))
        for query in (
            {},
            {"run": "a"},
            {"run": "x"},
            {"status": "done", "run": "a"},
            {"status": "failed"},
        )
    ] == [2, 1, 0, 1, 0]
    assert (
        found["delivered"] is None
        and server.ask("GET", f"/jobs/{ident}/result").json()["raw_metrics"] == found["raw_metrics"]
    )
    assert server.job(ident)["delivered"]


def test_what_is_not_said_is_explicit_and_what_is_said_wins():
    offered, plain = request.names(), Settings(Path("."))
    assert "slidevbench" in offered and "published" not in offered
    assert request.defaults("aime25", plain) == {
        "name": "aime25",
        "n_samples_per_eval_prompt": 8,
        "temperature": 0.7,
        "top_p": 0.95,
        "top_k": -1,
        "seed": 0,
        "limit": 0,
        "max_response_len": 32768,
    }
    assert request.defaults("slidevbench", plain) == {
        "name": "slidevbench",
        "protocol": "offline",
        "n_samples_per_eval_prompt": 1,
        "temperature": 0.7,
        "top_p": 0.95,
        "top_k": -1,
        "seed": 1,
        "limit": 0,
        "max_response_len": 4096,
    }
    settings = Settings(Path("."), limit=5)
    found = asyncio.run(
        request.wanted(
            {
                "rollout_id": 3,
                "router_url": "http://127.0.0.1:9",
                "defaults": {"temperature": 0.6, "top_k": 20},
                "benchmarks": [
                    {"name": "aime25", "n_samples_per_eval_prompt": 4, "temperature": None},
                    {"name": "aime24", "temperature": 1, "limit": 2},
                ],
            },
            settings,
            "run-id",
        )
    )
    assert found == {
        "run": "run-id",
        "rollout_id": 3,
        "router_urls": ["http://127.0.0.1:9"],
        "model": None,
        "checkpoint": None,
        "weight_version": None,
        "on_failure": None,
        "door": "jobs",
        "notes": [],
        "unknown": [],
        "benchmarks": [
            {
                "name": "aime25",
                "n_samples_per_eval_prompt": 4,
                "temperature": 0.6,
                "top_p": 0.95,
                "top_k": 20,
                "seed": 0,
                "limit": 5,
                "max_response_len": 32768,
            },
            {
                "name": "aime24",
                "n_samples_per_eval_prompt": 8,
                "temperature": 1.0,
                "top_p": 0.95,
                "top_k": 20,
                "seed": 0,
                "limit": 2,
                "max_response_len": 32768,
            },
        ],
    }


def test_many_jobs_are_loaded_and_listed(tmp_path):
    settings = Settings(tmp_path)
    body = {"rollout_id": 0, "router_url": "http://127.0.0.1:9", "benchmarks": [BENCH]}
    asked = asyncio.run(request.wanted(body, settings))
    store = Store(tmp_path)
    for number in range(1000):
        job = Job(store, tmp_path / "jobs" / f"{number:016x}.1", {**asked, "rollout_id": number})
        job.state |= {"status": "done", "benchmarks": {"needle": {"status": "done"}}}
        job.save()
    store.close()

    async def go():
        return [job.brief()["rollout_id"] for job in jobqueue.Queue(settings).jobs.values()]

    assert asyncio.run(go()) == list(range(1000))


# Numbers


def test_only_the_largest_k_is_reported_and_only_numbers():
    mode = {
        "accuracy": 0.25,
        "std_err": None,
        "interval": [0, 1],
        "no_answer": 0.0,
        "num_entries": 4,
        "avg_tokens": 7,
        "gen_seconds": math.nan,
        "scored": 4,
    }
    summary = {
        "metric": "accuracy",
        "truncated": 0.5,
        "coverage": 0.75,
        "errors": {"n": 2},
        "subsets": {"computer science/C++ (hard)": {"pass@1[avg-of-4]": mode}},
        "modes": {
            "pass@1[avg-of-4]": mode | {"accuracy_statistics": {"avg": 0.25}},
            **{f"{kind}@{k}": mode for k in (1, 2, 4) for kind in ("pass", "majority")},
        },
    }
    kept = {"accuracy": 0.25, "no_answer": 0.0, "num_entries": 4, "avg_tokens": 7}
    assert jobs.reported("gsm8k", summary, 4) == (
        {
            "gsm8k": {
                "pass@1[avg-of-4]": kept | {"truncated": 0.5},
                "pass@4": kept,
                "majority@4": kept,
            },
            "gsm8k-computer_science_C++_hard_": {
                "pass@1[avg-of-4]": {"accuracy": 0.25, "num_entries": 4}
            },
        },
        0.75,
        2,
    )


def test_a_curve_of_decks_follows_overall_or_the_share_of_checks_with_failures_as_0():
    kinds = {"model": 1, "renderer": 0, "judge": 0, "infra": 0}
    summary = {"n": 4, "prompts": 4, "truncated": 1, "faults": {"kinds": kinds}}
    means = {"floor": {"renders": {"mean": 0.75}}, "renderable": {"checks": {"mean": 0.8}}}
    (decks, coverage, errors) = jobs.reported("slidevbench", {**summary, "means": means}, 1)
    values = decks["slidevbench"]["pass@1"]
    assert [*values.items()][:3] == [("worth", 0.6), ("checks", 0.8), ("renders", 0.75)]
    assert (values["truncated"], coverage, errors) == (0.25, 1, 0)
    means["floor"]["overall"] = {"mean": 3.5}
    means["renderable"] = {"overall": {"mean": 4.2}}
    (decks, _, _) = jobs.reported("slidevbench", {**summary, "means": means}, 1)
    assert [*decks["slidevbench"]["pass@1"].items()][:2] == [("overall", 3.5), ("renders", 0.75)]


# The real scripts


@pytest.mark.long("tests/evalserver/test_eval_client.py::test_passing_trouble_is_asked_through")
@pytest.mark.engine
def test_the_embedded_engine_is_evaluated_by_the_real_scripts_and_a_kill_costs_nothing_but_time(
    serving,
):
    from decksmith.models import embedded

    lease = embedded.lease()
    try:
        server = serving("--limit", "2", "--requests", "1", stages=False)
        asked = {
            "rollout_id": 0,
            "router_url": lease.base_url,
            "defaults": {"max_response_len": 24},
            "benchmarks": [{"name": "arithmetic", "n_samples_per_eval_prompt": 2, "top_k": 20}],
        }
        ident = server.ask("POST", "/jobs", asked).json()["job_id"]
        folder = server.folder / "eval/jobs" / ident / "arithmetic"
        server.until(lambda job: job["benchmarks"]["arithmetic"].get("asked", 0) >= 1, ident)
        server.kill()
        eval_worker.send(folder, signal.SIGKILL)
        waits.until(lambda: not eval_worker.busy(folder))
        kept = (folder / "journal/gen.jsonl").read_bytes()
        kept = kept[: kept.rfind(b"\n") + 1]
        server.start()
        found = trainer(server, asked)
    finally:
        lease.close()
    assert kept and (folder / "journal/gen.jsonl").read_bytes().startswith(kept)
    rows = [json.loads(line) for line in (folder / "journal/gen.jsonl").open()]
    assert sorted(row["id"] for row in rows) == [
        f"arithmetic-0000{i}~{k}" for i in (1, 2) for k in (0, 1)
    ]
    assert {row["gen"]["sampling"]["top_k"] for row in rows} == {20} and {
        row["gen"]["model"]["slug"] for row in rows
    } == {"smol"}
    assert (
        found["eval/arithmetic/delegate/ok"] == 1
        and found["eval/arithmetic/pass@2/num_entries"] == 2
    )
    assert {key.rpartition("/")[0] for key in found if key.startswith("eval/arithmetic/p")} == {
        "eval/arithmetic/pass@1[avg-of-2]",
        "eval/arithmetic/pass@2",
    }
    assert len(server.jobs()) == 1


@pytest.mark.long("tests/evalserver/test_eval_client.py::test_passing_trouble_is_asked_through")
def test_slidevbench_is_one_of_the_benchmarks(serving, tmp_path):
    endpoint = subprocess.Popen(
        [ROOT / ".venv/bin/python3", ROOT / "tests/endpoint.py", "--model", "policy"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        server = serving("--limit", "1", stages=False)
        found = trainer(
            server,
            {
                "rollout_id": 0,
                "router_url": endpoint.stdout.readline().strip(),
                "benchmarks": [{"name": "slidevbench", "n_samples_per_eval_prompt": 2}],
            },
        )
    finally:
        endpoint.terminate()
    assert (
        found["eval/slidevbench/delegate/ok"]
        == found["eval/slidevbench/pass@1[avg-of-2]/renders"]
        == 1
    )
    assert 0 < found["eval/slidevbench/pass@1[avg-of-2]/worth"] <= 1
