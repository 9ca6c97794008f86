"""make dose on a real Slurm: seven trainings as an array. The command is killed, then a task, twice; the same line goes on, and trains
nothing twice."""

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster import USER, _until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(5400)]
WORDS = (
    "TRAINER=trl",
    "RECIPE=smol-lora",
    "ROWS=8",
    "REPLY=0",
    "SET=sft.max_num_epochs=1",
    "SBATCH=sbatch",
)


def test_an_array_whose_command_and_a_task_are_killed_goes_on_by_the_same_line(slurm):
    site = slurm.ready("dose")
    slurm.run(["make", "results/rehearsal/chat/report.json"], cwd=site)

    def dose():
        return slurm.run(["make", "dose", *WORDS], cwd=site, check=False)

    killed = subprocess.Popen(
        ["make", "dose", *WORDS],
        cwd=site,
        user=USER,
        group=USER,
        extra_groups=[],
        env=slurm.env,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    metrics = site / "results/dose/steps-8/metrics.jsonl"
    _until(1800, "the first trains", lambda: killed.poll() is not None or metrics.is_file())
    os.killpg(killed.pid, signal.SIGKILL)

    def jobs():
        running = ["squeue", "--me", "--states=R", "--noheader", "--format=%F"]
        return {*slurm.run(running).stdout.split()}

    with ThreadPoolExecutor() as pool:
        asked = pool.submit(dose)
        (job,) = jobs()
        slurm.run(["scancel", "--signal=KILL", "--full", f"{job}_0"])
        _until(3600, "its task comes again", lambda: asked.done() or jobs() - {job})
        slurm.run(["scancel", "--signal=KILL", "--full", f"{max(jobs())}_0"])
        first = asked.result()
    assert f"job {job} of an earlier start is at it: waiting for its end" in first.stderr
    logs = {path.name: path.read_text()[-1500:] for path in site.glob("results/dose/log/*")}
    assert first.returncode == 2 and "type the same command again" in first.stderr, (first, logs)
    held = {
        path.parent.name: path.stat().st_mtime_ns for path in site.glob("results/dose/*/held.json")
    }
    assert len(held) == 6 and "steps-8" not in held

    again = dose()
    assert again.returncode == 0, again.stderr
    assert "1 of 7 trainings to come, 8 steps in all, and 0 decks" in again.stderr
    now = {
        path.parent.name: path.stat().st_mtime_ns for path in site.glob("results/dose/*/held.json")
    }
    assert len(now) == 7 and held.items() <= now.items()
    took = (site / "results/dose/took.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["id"] for line in took) == sorted(now)  # each was trained once
    tasks = [path.name.rpartition("_")[2] for path in site.glob("results/dose/log/*")]
    assert sorted(tasks) == ["0.out", "0.out", *(f"{n}.out" for n in range(7))]
    assert again.stdout.count("| same ") == 8 and again.stdout.count("doubling the rows") == 2
