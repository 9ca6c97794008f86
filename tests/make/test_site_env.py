"""make/site.py on what Slurm says at other sites; tests/slurm/test_site.py asks real ones."""

import os
import subprocess
import sys

import pytest
from decksmith.core import cli

sys.path.insert(0, str(cli.ROOT / "make"))
import site_env  # noqa: E402


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:8", {"": 8}),
        ("gpu", {"": 1}),
        ("gpu:h100:4(S:0-1)", {"h100": 4}),
        ("gpu:a100:4(S:0,3),nvme:1500", {"a100": 4}),
        ("gpu:a100_3g.20gb:2(S:0),gpu:a100:1(S:1)", {"a100_3g.20gb": 2, "a100": 1}),
        ("shard:16(S:0-1),craynetwork:4", {}),
        ("(null)", {}),
    ],
)
def test_gpus_of_a_node_are_counted_by_type(text, gpus):
    assert site_env.gpus(text) == gpus


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("30:00", 30),
        ("4:00:00", 240),
        ("2-00:00:00", 2880),
        ("7-12:30:00", 10830),
        ("infinite", None),
        ("n/a", None),
    ],
)
def test_a_time_limit_is_read_as_sinfo_writes_it(text, minutes):
    assert site_env.minutes(text) == minutes


SINFO = """\
cpu*|up|1-00:00:00|120|(null)
gpu|up|2-00:00:00|3|gpu:a100:4(S:0-1)
gpu|up|2-00:00:00|10|gpu:h100:4(S:0-1)
debug|up|30:00|2|gpu:a100:4(S:0-1)
old|down|infinite|9|gpu:v100:8
"""


def test_a_partition_with_two_kinds_of_nodes_counts_by_the_larger_and_one_that_is_down_does_not():
    found = site_env.partitions(SINFO)
    assert [one.name for one in found] == ["gpu", "debug", "cpu"]
    assert found[0].gpus == {"h100": 4} and found[0].all_gpus == 40
    assert found[2].is_default and not found[2].gpus


def said(folder, programs, **more):
    """(status, stdout, stderr) of make/site_env.py where Slurm's programs are these scripts."""
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    env = {"PATH": str(folder), "USER": "ada", "HOME": str(folder), **more}
    done = subprocess.run(
        [sys.executable, cli.ROOT / "make/site_env.py"],
        env=env | {"PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def here(tmp_path):
    if (cli.ROOT / "slurm/site.env").exists():
        pytest.skip("this checkout has a site.env")
    return tmp_path


def test_accounts_partitions_typed_gpus_and_a_module_are_proposed_and_nothing_is_written(here):
    # A site whose submit plugin wants a type, and knows --gpus-per-node alone.
    programs = {
        "sinfo": f"/bin/cat << 'EOF'\n{SINFO}EOF",
        "sacctmgr": "printf 'physics|\\nchem|\\nphysics|\\n'",
        "sbatch": 'case "$*" in *--gpus-per-node=h100:1*) exit 0 ;; esac; echo "name a type" >&2; exit 1',
        "srun": "echo usage",
        "scontrol": "echo 'TmpFS                   = /local'",
        "bash": "echo apptainer/1.3.4",
    }
    status, out, err = said(here, programs, SCRATCH="/scratch/ada/")
    assert status == 78 and err == "site: nothing was written; YES=1 writes it\n"
    assert [line.partition("  #")[0] for line in out.splitlines()] == [
        "SBATCH_ACCOUNT=physics",
        "SBATCH_PARTITION=gpu",
        "CPU_PARTITION=cpu",
        "GPUS=--gpus-per-node=h100:N",
        "module load apptainer/1.3.4",
        "HF_HOME=/scratch/ada/huggingface",
        "DECKSMITH_TMP=/local",
    ]
    assert "others: chem" in out
    assert not os.path.exists(cli.ROOT / "slurm/site.env")


def test_a_refusal_of_every_way_is_quoted_with_its_remedy(here):
    refusal = "sbatch: error: Invalid account or account/partition combination specified"
    programs = {
        "sinfo": "echo 'sinfo: a warning' >&2; echo 'gpu*|up|infinite|2|gpu:8'",
        "sbatch": f"echo '{refusal}' >&2; exit 1",
        "srun": "echo '--container-image'",
    }
    _, out, err = said(here, programs)
    assert out == "CONTAINER=pyxis  # srun has --container-image\n"
    assert f"{refusal}; name yours, SBATCH_ACCOUNT" in err


def test_without_slurm_one_sentence_says_where_to_run_it(here):
    assert said(here, {}) == (
        69,
        "",
        "site: there is no sinfo here: run this on a login node\n",
    )
