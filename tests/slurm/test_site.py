"""`make site` asks real clusters: typed GPUs beside a partition without any, and no GRES at all. What it writes is what jobs are
submitted with, and `module` is there in a job that got no environment."""

import re
import subprocess

import pytest
from cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

APART = """\
PartitionName=cpu Nodes=n1 Default=YES MaxTime=1-00:00:00 State=UP
PartitionName=h100 Nodes=n2 MaxTime=04:00:00 State=UP"""
MODULES = """\
module() { [ "$1" = load ] && export DECK_MODULE="$2" NOT_THERE_$DECK_UNSET=1; }
"""


def site(slurm, place, **env):
    """What `make site` writes into site.env, as {name: value}; and its stderr."""
    done = slurm.run(["make", "site"], cwd=place, env={"YES": "1", **env})
    lines = (place / "slurm/site.env").read_text().splitlines()
    return dict(line.partition("  #")[0].split("=", 1) for line in lines), done.stderr


def described(slurm, place, *sbatch):
    """The sbatch command that job-submit would run for a recipe of two nodes with eight GPUs."""
    run = place / "results/sft/run"
    slurm.run(["mkdir", "-p", run])
    (run / "recipe.yaml").write_text(
        "sft: {max_num_steps: 2}\ncluster: {num_nodes: 2, gpus_per_node: 8}\n"
        f"policy: {{model_name: {run}}}\ncheckpointing: {{checkpoint_dir: {run}/checkpoints}}\n"
    )
    words = ["bin/job-submit", "slurm/sft.sbatch", "--run", run, "--dry-run", *sbatch]
    return slurm.run(words, cwd=place).stdout.splitlines()[0]


def test_a_typed_cluster_with_cpu_nodes_apart_is_understood_and_jobs_ask_as_it_wants():
    with Cluster(kind="h100", gres=("n2",), partitions=APART) as slurm:
        place = slurm.checkout()
        found, _ = site(slurm, place, SCRATCH=str(slurm.work))
        assert found == {
            "SBATCH_PARTITION": "h100",
            "CPU_PARTITION": "cpu",
            "GPUS": "--gres=gpu:h100:N",
            "SBATCH_TIMELIMIT": "04:00:00",
            "HF_HOME": f"{slurm.work}/huggingface",
        }
        assert " --gres=gpu:h100:8 " in described(slurm, place)
        het = described(slurm, place, "--", ":", "--nodes=4")
        assert re.search(r" : --job-name=\S+-rewards --nodes=4 --partition=cpu ", het)
        own = described(slurm, place, "--", ":", "--nodes=4", "--partition=mine")
        assert "cpu" not in own
        typed_by_hand(slurm, place)
        # A second time there is nothing left to say, and what somebody wrote stays.
        text = (place / "slurm/site.env").read_text()
        (place / "slurm/site.env").write_text(text.replace("=h100  #", "=cpu  #"))
        _, said = site(slurm, place, SCRATCH=str(slurm.work))
        assert "Slurm says nothing that slurm/site.env lacks" in said


def typed_by_hand(slurm, place):
    """slurm/sbatch takes a job where site.env says; what sbatch alone took elsewhere says so and ends."""
    words = ["--parsable", "slurm/bench.sbatch", "true"]
    job = slurm.run([place / "slurm/sbatch", *words], cwd=place).stdout.strip()
    assert slurm.wait(job, 60) == ("COMPLETED", 0)
    assert slurm.show(job)["Partition"] == "h100"
    server = ["slurm/sbatch", "--test-only", "slurm/serve.sbatch"]
    assert "in partition h100" in slurm.run(server, cwd=place).stderr
    alone = slurm.run(["sbatch", *words], cwd=place).stdout.strip()
    assert slurm.wait(alone, 60) == ("FAILED", 78)
    said = (place / f"slurm-{alone}.out").read_text()
    assert "in partition cpu, not in h100 of slurm/site.env" in said and "slurm/sbatch" in said
    # On purpose elsewhere.
    own = slurm.run([place / "slurm/sbatch", "--partition=cpu", *words], cwd=place).stdout.strip()
    assert slurm.wait(own, 60) == ("COMPLETED", 0)


def test_an_image_that_is_not_there_is_said_before_anything_is_made(slurm):
    place = slurm.checkout("bare")
    (place / "data/chat").mkdir()
    serve = ["serve", "SBATCH=sbatch", "ADAPTER=results/none"]
    for image, words in (("train", ["sft"]), ("serve", serve)):
        done = slurm.run(["make", *words], cwd=place, check=False)
        assert done.returncode == 2 and not (place / "results/sft").exists()
        mend = f"{place}/containers/{image}.sif is not there; make image-{image}"
        said = [
            line
            for line in done.stderr.splitlines()
            if not line.startswith(("results/sft/", "setting up"))
        ]
        assert said[0] == mend, done.stderr
    (place / "slurm/site.env").write_text("CONTAINER=pyxis\n")
    done = slurm.run(["containers/need", "serve"], cwd=place, check=False)
    assert done.returncode == 69 and "enroot import -o" in done.stderr
    (place / "slurm/site.env").write_text("CONTAINER=none\n")
    slurm.run(["containers/need", "serve"], cwd=place)


def test_where_slurm_knows_no_gpus_whole_nodes_are_asked_for_and_sbatch_takes_it():
    with Cluster(gres=()) as slurm:
        place = slurm.checkout()
        found, _ = site(slurm, place)
        assert found == {"GPUS": "--exclusive"}
        assert "gres" not in described(slurm, place)
        # As `make serve SBATCH=sbatch` gives it: the script's own line for one GPU is taken back.
        words = ["sbatch", "--test-only", "--gres=none", found["GPUS"], "slurm/serve.sbatch"]
        assert "to start at" in slurm.run(words, cwd=place).stderr
        refused = slurm.run(["sbatch", "--test-only", "slurm/serve.sbatch"], cwd=place, check=False)
        assert refused.returncode and "Invalid generic resource" in refused.stderr


def test_a_module_is_loaded_in_a_job_that_gets_no_environment(slurm):
    place = slurm.checkout("modules")
    start = place / "lmod/init"
    start.mkdir(parents=True)
    (start / "bash").write_text(MODULES)
    subprocess.run(["chmod", "-R", "a+rX", place / "lmod"], check=True)
    run = place / "results/module"
    (place / "slurm/site.env").write_text("CONTAINER=none\nmodule load apptainer/1.4\n")
    (place / "slurm/says.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --export=NONE\nset -u\nRUN=$1\n"
        f"export LMOD_PKG={place}/lmod\n"
        '. "$RUN/snapshot/slurm/lib.sh"\necho "module $DECK_MODULE" $-\n'
    )
    slurm.run(["git", "add", "-A"], cwd=place)
    slurm.run(["mkdir", "-p", run])
    words = ["bin/job-submit", "slurm/says.sbatch", "--run", run, "--wait"]
    said = slurm.run(words, cwd=place).stdout
    assert "module apptainer/1.4" in said and "u" in said.split()[-1], said
