"""slurm/eval.sbatch on a real Slurm: beside the trainer, in a hetjob, alone; with the real eval server and a router that answers."""

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
from cluster import USER, _until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

# A training loop: its router, an evaluation of each step by the adapter, and what GPUs it sees.
TRAINER = """#!/bin/bash
set -eu
echo "$(hostname) $SLURMD_NODENAME ${CUDA_VISIBLE_DEVICES:-none}" > trainer
rm -f router
.venv/bin/python3 tests/endpoint.py --model m --reply reply.txt > router &
trap 'kill $!' EXIT
until [ -s router ]; do sleep 0.1; done
export PYTHONPATH=lib
.venv/bin/python3 - "$(cat router)" "$@" <<'LOOP'
import json, sys
from decksmith.bench.evalserver import eval_client
router = sys.argv[1].removesuffix("/v1")
for step in sys.argv[2:]:
    print(json.dumps(eval_client.evaluate(step, router, "arithmetic", run="toy", defaults={"limit": 2}, patience=20)), flush=True)
LOOP
"""


@pytest.fixture(scope="module")
def site(slurm):
    place = slurm.checkout("evaluating")
    (place / "results").mkdir()
    (place / "trainer.sh").write_text(TRAINER)
    (place / "trainer.sh").chmod(0o755)
    (place / "reply.txt").write_text("The answer is \\\\boxed{7}.")
    subprocess.run(
        [
            "chown",
            "-Rh",
            f"{USER}:{USER}",
            place / "results",
            place / "trainer.sh",
            place / "reply.txt",
        ],
        check=True,
    )
    return place


def submit(slurm, site, *words, **env):
    return (
        slurm.run(["sbatch", "--parsable", *words], cwd=site, env=env).stdout.strip().split(";")[0]
    )


def log(site, job):
    path = site / f"slurm-{job}.out"
    return path.read_text() if path.exists() else ""


def measured(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def nothing_left(slurm, site):
    _until(30, "no process is left", lambda: not slurm.processes(), slurm.processes)
    assert not list((site / "results/eval").rglob("server.json"))


def evaluated(text, steps):
    found = measured(text)
    assert [one["eval/delegate/ok"] for one in found] == [1.0] * steps, text
    assert all(
        one["eval/arithmetic/pass@1/num_entries"] == 2 and one["eval/arithmetic/delegate/ok"] == 1
        for one in found
    )


def test_beside_the_trainer_two_steps_are_evaluated_and_the_jobs_status_is_the_trainers(
    slurm, site
):
    job = submit(
        slurm, site, "--gres=gpu:8", "slurm/eval.sbatch", "--jobs 1", "./trainer.sh", "0", "1"
    )
    assert slurm.wait(job, 400) == ("COMPLETED", 0), log(site, job)
    evaluated(log(site, job), 2)
    assert (site / "trainer").read_text().split()[2] == "0,1,2,3,4,5,6,7"
    assert "the server answers at http://127.0.0.1:" in log(
        site, job
    ) and "the command ended with status 0" in log(site, job)
    nothing_left(slurm, site)
    failing = submit(
        slurm,
        site,
        "slurm/eval.sbatch",
        "",
        "sh",
        "-c",
        'exit "$((40 + ${#DECKSMITH_EVAL_TOKEN}))"',
    )
    assert slurm.wait(failing, 120) == ("FAILED", 83), log(site, failing)  # 43 characters of token
    nothing_left(slurm, site)


def test_in_a_hetjob_the_gpus_are_the_trainers_and_the_server_is_on_the_other_node(slurm, site):
    job = submit(
        slurm,
        site,
        "--exclusive",
        "--gres=gpu:8",
        ":",
        "--exclusive",
        "--cpus-per-task=4",
        "slurm/eval.sbatch",
        "--jobs 1",
        "./trainer.sh",
        "0",
    )
    address = site / f"results/eval/job-{job}/server.json"
    _until(
        120,
        "the server answers",
        lambda: address.exists() or "ended" in log(site, job),
        lambda: log(site, job),
    )
    server = next(
        pid
        for pid, command in slurm.processes().items()
        if "bin/eval-serve" in command and "srun" not in command
    )
    environment = dict(
        one.split("=", 1)
        for one in Path(f"/proc/{server}/environ").read_text().split("\0")
        if "=" in one
    )
    assert slurm.wait(job, 240) == ("COMPLETED", 0), log(site, job)
    evaluated(log(site, job), 1)
    _, node, gpus = (site / "trainer").read_text().split()
    assert gpus == "0,1,2,3,4,5,6,7" and "CUDA_VISIBLE_DEVICES" not in environment
    assert {node, environment["SLURMD_NODENAME"]} == {"n1", "n2"}
    nothing_left(slurm, site)


def test_alone_it_is_found_by_its_address_file_a_second_one_steps_back_and_a_crash_is_mended(
    slurm, site
):
    server = submit(slurm, site, "slurm/eval.sbatch", "--jobs 1")
    address = site / "results/eval/server.json"
    find = [
        site / "bin/within",
        "tools",
        "python3",
        "-m",
        "decksmith.bench.evalserver.eval_client",
        address,
        "120",
    ]
    said = slurm.run(find, cwd=site).stdout
    found = json.loads(slurm.run(["cat", address]).stdout)
    assert (found["job"], oct(address.stat().st_mode)[-3:]) == (server, "600")
    assert f"export DECKSMITH_EVAL_URL={found['url']} DECKSMITH_EVAL_TOKEN={found['token']}" in said

    second = submit(slurm, site, "slurm/eval.sbatch", "")
    assert slurm.wait(second, 60) == ("FAILED", 69) and "a server answers already" in log(
        site, second
    )
    os.kill(found["pid"], signal.SIGSTOP)  # too busy to answer: its folder is its own all the same
    third = submit(slurm, site, "slurm/eval.sbatch", "", "true", EVAL_ROOT="results/eval")
    assert slurm.wait(third, 60) == ("FAILED", 69) and "another eval-serve has this folder" in log(
        site, third
    )
    os.kill(found["pid"], signal.SIGCONT)
    assert json.loads(address.read_text()) == found

    trainer = submit(
        slurm,
        site,
        "--gres=gpu:8",
        "--wrap",
        f'eval "$(python3 lib/decksmith/bench/evalserver/eval_client.py {address})" && ./trainer.sh 0',
    )
    assert slurm.wait(trainer, 240) == ("COMPLETED", 0), log(site, trainer)
    evaluated(log(site, trainer), 1)

    os.kill(found["pid"], signal.SIGKILL)
    _until(
        60,
        "it is started again",
        lambda: (
            (new := json.loads(address.read_text()))["pid"] != found["pid"] and alive(new["url"])
        ),
        lambda: log(site, server),
    )
    assert json.loads(address.read_text())["url"] == found["url"]
    assert "the server ended (status 137); it is started again (1 of 5)" in log(site, server)

    slurm.run(["scancel", "--batch", "--signal=USR1", server])
    assert slurm.wait(server, 60) == ("FAILED", 75)
    assert "the time limit is near" in log(site, server)
    nothing_left(slurm, site)


def alive(url):
    try:
        return urllib.request.urlopen(url + "/health", timeout=2).status == 200
    except OSError:
        return False


def test_a_file_that_a_dead_job_left_behind_is_told_from_one_of_a_server(slurm, site):
    folder = site / "results/left"
    folder.mkdir()
    (folder / "server.json").write_text(
        json.dumps(
            {"url": "http://127.0.0.1:9", "token": "t", "job": "99999", "pid": 1, "host": "n1"}
        )
    )
    subprocess.run(["chown", "-R", f"{USER}:{USER}", folder], check=True)
    stale = slurm.run(
        [
            site / "bin/within",
            "tools",
            "python3",
            "-m",
            "decksmith.bench.evalserver.eval_client",
            folder / "server.json",
            "60",
        ],
        cwd=site,
        check=False,
    )
    assert (stale.returncode, stale.stdout) == (69, "")
    assert "is left over: job 99999 is no longer in the queue" in stale.stderr
    server = submit(slurm, site, "slurm/eval.sbatch", "", EVAL_ROOT="results/left")
    _until(
        60,
        "the new server's file is there",
        lambda: (
            json.loads((folder / "server.json").read_text())["job"] == server
            if (folder / "server.json").exists()
            else False
        ),
        lambda: log(site, server),
    )
    slurm.run(["scancel", server])
    slurm.wait(server, 60)
    _until(30, "no process is left", lambda: not slurm.processes(), slurm.processes)
    assert not (folder / "server.json").exists()


def test_a_trainer_that_is_ended_and_a_server_that_cannot_start_end_the_job_with_the_reason(
    slurm, site
):
    job = submit(slurm, site, "slurm/eval.sbatch", "", "sleep", "600")
    _until(
        120,
        "the command runs",
        lambda: any(command == "sleep 600" for command in slurm.processes().values()),
        lambda: log(site, job),
    )
    slurm.run(["scancel", "--batch", "--signal=TERM", job])
    assert slurm.wait(job, 60) == ("FAILED", 143), log(site, job)
    nothing_left(slurm, site)
    wrong = submit(slurm, site, "slurm/eval.sbatch", "--no-such-option", "true")
    assert slurm.wait(wrong, 60) == ("FAILED", 69)
    assert "No such option" in log(site, wrong) and "the server ended before it answered" in log(
        site, wrong
    )
    nothing_left(slurm, site)
