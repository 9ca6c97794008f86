"""`make smoke`: what is handed to Slurm, and what is said where Slurm refuses it; sinfo and sbatch are scripts that answer as theirs."""

import os
import subprocess

import pytest
from decksmith.core import cli, slurm

pytestmark = pytest.mark.slow

# As sbatch of Slurm 22.05 to 25.05 says them.
REFUSALS = {
    "Invalid generic resource (gres) specification": "sinfo -o %G",
    "Invalid account or account/partition combination specified": "SBATCH_ACCOUNT",
    "invalid partition specified: gpu": "SBATCH_PARTITION",
    "Requested time limit is invalid (missing or exceeds some limit)": "FLAGS=--time",
    "Requested node configuration is not available": "--cpus-per-task",
    "Invalid qos specification": "SBATCH_QOS",
}


def smoke(tmp_path, gres, sbatch):
    """(status, what sbatch was called with, stderr); nothing is set up (-o)."""
    for name, text in (("sinfo", f"echo '{gres}'"), ("sbatch", f'echo "$@" > argv; {sbatch}')):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{text}\n")
        path.chmod(0o755)
    tools = [".venv/.corpus", ".venv/.train", ".venv/.local", "run-tools"]
    old = [word for name in [*tools, "assets/engine/node_modules/.done"] for word in ("-o", name)]
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env = {name: value for name, value in env.items() if not name.startswith("SBATCH_")}
    done = subprocess.run(
        ["make", *old, "smoke"], cwd=cli.ROOT, env=env, capture_output=True, text=True
    )
    return done.returncode, (tmp_path / "argv").read_text(), done.stderr


@pytest.mark.parametrize(
    ("shown", "asked"),
    [
        ("(null)", None),
        pytest.param("gpu:8(S:0-1)", "--gres=gpu:8 ", marks=pytest.mark.long),
        ("gpu:h100:4,nvme:1", "--gres=gpu:h100:4 "),
    ],
)
def test_a_gres_is_asked_for_where_the_cluster_has_one(tmp_path, shown, asked):
    text = (cli.ROOT / "slurm/smoke.sbatch").read_text()
    assert "#SBATCH --gres" not in text
    _, argv, _ = smoke(tmp_path, shown, "exit 1")
    assert (asked in argv) if asked else "--gres" not in argv


@pytest.mark.parametrize(
    "refusal",
    [pytest.param(name, marks=[pytest.mark.long] if n else []) for n, name in enumerate(REFUSALS)],
)
def test_a_refusal_of_sbatch_is_said_with_its_remedy(tmp_path, refusal):
    said = f"sbatch: error: Batch job submission failed: {refusal}"
    status, _, words = smoke(tmp_path, "(null)", f"echo '{said}' >&2; exit 1")
    assert status and refusal in words and REFUSALS[refusal] in words
    assert REFUSALS[refusal] in slurm.remedy(said)


def test_of_a_refusal_that_nobody_knows_the_words_stay():
    assert slurm.remedy("sbatch: error: the moon is full") is None
