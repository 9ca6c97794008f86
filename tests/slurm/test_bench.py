"""`make bench` in parts under a real Slurm: general benchmarks of the embedded model, one part killed with -9 and submitted again."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from cluster import USER, _until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
BENCH = ("arithmetic", "instructions", "humaneval")
WORDS = ("make", "bench", "MODEL=local", f"BENCH={' '.join(BENCH)}", "LIMIT=8")


@pytest.fixture(scope="module")
def site(slurm):
    place = slurm.checkout("benching")
    (place / ".venv/.bench").touch()  # its packages are among those of .venv/.dev
    registry = place / "assets/models.toml"
    head, tail = registry.read_text().split("[local]")
    registry.write_text(
        f"{head}[local]{tail.replace('max_tokens = 1024', 'max_tokens = 24', 1)}"
    )  # half a minute instead of five
    return place


def submit(slurm, site, *words, **env):
    return slurm.run(
        ["sbatch", "--parsable", *words, "slurm/bench.sbatch", *WORDS], cwd=site, env=env
    ).stdout.strip()


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def outcome(folder):
    """What two equal runs share: all but who did it when."""

    def stable(value):
        if isinstance(value, dict):
            return {
                key: stable(inner)
                for key, inner in value.items()
                if key not in ("by", "gen_seconds")
            }
        return [stable(inner) for inner in value] if isinstance(value, list) else value

    return {
        name: stable(
            [
                [json.loads(line) for line in lines(folder / name / "rows.jsonl")],
                json.loads((folder / "eval-results" / name / "metrics.json").read_text()),
            ]
        )
        for name in BENCH
    }


def test_two_parts_of_which_one_is_killed_and_submitted_again_are_the_run_made_in_one_piece(
    slurm, site
):
    results = site / "results/bench/local"
    journals = [
        results / name / f"shard-1-of-2/journal/{stage}.jsonl"
        for name in BENCH
        for stage in ("gen", "grade")
    ]
    job = submit(slurm, site, "--array=1-2", SHARDS="2")
    _until(
        300,
        "part 1 is within its second benchmark",
        lambda: lines(journals[2]),
        lambda: [len(lines(path)) for path in journals],
    )
    for pid in slurm.processes():
        environment = Path(f"/proc/{pid}/environ")
        if environment.exists() and b"SLURM_ARRAY_TASK_ID=1\0" in environment.read_bytes():
            os.kill(pid, signal.SIGKILL)
    assert slurm.wait(f"{job}_1", 60)[0] == "FAILED"
    assert slurm.wait(f"{job}_2", 300) == ("COMPLETED", 0), (
        site / f"slurm-{job}_2.out"
    ).read_text()
    kept = [path.read_text().rpartition("\n")[0] if path.exists() else "" for path in journals]

    incomplete = slurm.run(["make", "bench-merge", *WORDS[2:4]], cwd=site, check=False)
    assert (
        incomplete.returncode == 2
        and "results/bench/local/instructions: part 1 of 2 lacks instructions-0"
        in incomplete.stderr
    )
    assert "Do these again: --array=1\n" in incomplete.stderr

    again = submit(slurm, site, "--wait", "--array=1", SHARDS="2")
    assert slurm.wait(f"{again}_1", 60) == ("COMPLETED", 0), (
        site / f"slurm-{again}_1.out"
    ).read_text()
    merged = slurm.run(["make", "bench-merge", *WORDS[2:4]], cwd=site)
    assert [line.split()[:3] for line in merged.stdout.splitlines() if line.startswith(BENCH)] == [
        [name, "pass@1", "8"] for name in BENCH
    ]
    for path, before in zip(
        journals, kept, strict=True
    ):  # what was there stayed, and nothing was asked or graded twice
        ids = [json.loads(line)["id"] for line in lines(path)]
        assert path.read_text().startswith(before) and len(ids) == len(set(ids)) > 0
    first = outcome(results)
    assert [len(first[name][0]) for name in BENCH] == [8, 8, 8]

    asked = {
        path: path.read_bytes() for name in BENCH for path in (results / name / "journal").iterdir()
    }
    slurm.run(WORDS, cwd=site)  # in one piece, from the joined journals: nothing is asked
    assert {path: path.read_bytes() for path in asked} == asked and outcome(results) == first
    shutil.rmtree(results)
    whole = submit(slurm, site, "--wait")  # and without them
    assert slurm.wait(whole, 60) == ("COMPLETED", 0), (site / f"slurm-{whole}.out").read_text()
    assert outcome(results) == first
    assert results.owner() == USER
