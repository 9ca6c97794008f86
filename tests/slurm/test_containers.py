"""CONTAINER=apptainer, pyxis and none: the same job files, with Ray and gloo over two nodes that have nothing but the checkout in common.

Pyxis cannot be installed here. `srun` and `enroot` below stand in for it: they say so, write down the command line that Pyxis would get,
and enter the image by Apptainer instead, with the mounts that the flags name.
"""

import json
import os
import shutil
import subprocess
import tempfile

import pytest
from cluster import ROOT, USER, Cluster, _until
from test_sft import CACHE, _site, _tmp, image, log, metrics, nothing_left, packages, said  # noqa: F401

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
PYXIS = """#!/usr/bin/python3
import os, sys
words, flags, rest = sys.argv[1:], {}, []
while words and words[0].startswith("-"):
    word = words.pop(0)
    if word.startswith(("--container-", "--no-container-")):
        name, _, value = word.partition("=")
        flags[name] = value
    else:
        rest.append(word)
with open(os.environ["STANDIN_LOG"], "a") as file:
    file.write(" ".join([*rest, *map("=".join, flags.items()), "--", *words]) + "\\n")
inside = []
if flags:
    print("stand-in for Pyxis: Apptainer enters", flags["--container-image"], file=sys.stderr)
    inside = ["apptainer", "--silent", "exec", "--no-home"]
    inside += ["--bind=" + mount for mount in flags["--container-mounts"].split(",")]
    inside += [flags["--container-image"]]
os.execv("/usr/bin/srun", ["srun", *rest, *inside, *words])
"""
ENROOT = '#!/bin/sh\necho "stand-in for enroot: $*" >> "$STANDIN_LOG"\n'


@pytest.fixture(scope="module")
def slurm():
    """Two nodes of which each has a /tmp/ds.. of its own."""
    with tempfile.TemporaryDirectory(prefix="ds", dir="/tmp") as apart:
        os.chmod(apart, 0o1777)
        with Cluster(apart=apart) as running:
            yield running


@pytest.fixture(scope="module")
def site(slurm, image):  # noqa: F811
    place = slurm.checkout()
    _site(slurm, place)
    text = (place / "slurm/site.env").read_text().splitlines()
    settings = [line for line in text if not line.startswith("DECKSMITH_TMP=")]
    (place / "slurm/site.env").write_text("\n".join([*settings, f"DECKSMITH_TMP={slurm.apart}\n"]))
    (place / "containers/train.sif").symlink_to(image)
    (place / "data/chat").mkdir()
    for name, numbers in (("train", range(8)), ("test", range(8, 12))):
        (place / f"data/chat/{name}.jsonl").write_text("".join(map(_row, numbers)))
    subprocess.run(["chown", "-Rh", f"{USER}:{USER}", place / "data/chat"], check=True)
    yield place
    shutil.rmtree(_tmp(slurm))


def _row(number):
    """A line of chat rows, unlike any other: what comes twice is left out."""
    deck = "".join(f"# Slide {k} of deck {number}\n" for k in range(20))
    thought = f"So, the number is {number}."
    messages = [
        {"role": "user", "content": f"A deck about the number {number}, please."},
        {"role": "assistant", "content": deck, "reasoning_content": thought},
    ]
    return json.dumps({"id": f"r{number}", "messages": messages}) + "\n"


@pytest.fixture
def settings(site):
    """Add lines to slurm/site.env for one test."""
    path = site / "slurm/site.env"
    before = path.read_text()
    yield lambda *lines: path.write_text(before + "\n".join(lines) + "\n")
    path.write_text(before)


def train(slurm, site, name):
    folder = site / "results/sft" / name
    words = ["policy.model_name=/base", "policy.train_global_batch_size=4", "sft.max_num_steps=4"]
    words += ["sft.val_period=2", "checkpointing.save_period=2"]
    slurm.run([site / "bin/sft-config", "--data", "data/chat", "--run", folder, *words], cwd=site)
    job = slurm.run(
        [site / "bin/job-submit", "slurm/sft.sbatch", "--run", folder], cwd=site
    ).stdout.strip()
    state = slurm.wait(job, 400)
    logs = "".join(path.read_text() for path in sorted(folder.glob("slurm/*/*.log")))
    assert state == ("COMPLETED", 0), log(folder) + logs
    assert [line["step"] for line in metrics(folder)] == [1, 2, 3, 4]
    assert said(folder)[-1] == "done: 4 of 4 steps"
    nothing_left(slurm)
    nodes = subprocess.run(
        ["nsenter", "--mount", f"--target={slurm._pid('slurmd-n2')}", "ls", "-A", slurm.apart],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert not [name for name in [*os.listdir(slurm.apart), *nodes.split()] if job in name]
    return job, next(folder.glob("slurm/*/driver.log")).read_text()


def test_apptainer_on_nodes_that_share_no_temporary_folder(slurm, site):
    _, driver = train(slurm, site, "apptainer")
    assert "Ray has 16 GPUs on 2 nodes" in driver and "'image': 'train.sif'" in driver


def test_pyxis_gets_image_name_and_mounts_on_every_step_and_the_container_goes_at_the_end(
    slurm, site, settings
):
    stand = slurm.work / "standin"
    stand.mkdir()
    stand.chmod(0o755)
    for name, text in (("srun", PYXIS), ("enroot", ENROOT)):
        (stand / name).write_text(text)
        (stand / name).chmod(0o755)
    calls = slurm.work / "calls"
    settings(
        "CONTAINER=pyxis",
        f"TRAIN_IMAGE={site}/containers/train.sif",
        f"PATH={stand}:$PATH",
        f"STANDIN_LOG={calls}",
    )
    job, driver = train(slurm, site, "pyxis")
    assert "Ray has 16 GPUs on 2 nodes" in driver and "stand-in for Pyxis" in driver
    tmp = f"{slurm.apart}/ds{job}"
    lines = calls.read_text().splitlines()
    steps = {word: line for line in lines for word in line.split() if "--job-name=" in word}
    assert steps.keys() >= {
        f"--job-name={name}" for name in ("ray-head", "ray-worker-1", "ready", "driver")
    }
    for line in steps.values():
        assert f" --container-image={site}/containers/train.sif --container-mounts=" in line
        mounts = line.split("--container-mounts=")[1].split()[0].split(",")
        for place in (site, site / "results/sft/pyxis", slurm.apart, tmp):
            assert f"{place}:{place}" in mounts
        flags = f"--no-container-mount-home= --container-remap-root= --container-name=ds{job}"
        assert f" {flags} -- " in line
    unpacked = next(n for n, line in enumerate(lines) if line.endswith(" -- true"))
    assert "--nodes=2 --ntasks-per-node=1" in lines[unpacked]
    assert unpacked < next(n for n, line in enumerate(lines) if "ray-head" in line)
    ends = [line for line in lines if line.startswith("stand-in for enroot")]
    assert ends == [f"stand-in for enroot: remove -f pyxis_ds{job} pyxis_{job}_ds{job}"] * 2


@pytest.fixture(scope="module")
def installed():
    """What CONTAINER=none wants on the nodes: Ray and torch in an environment of the system's Python, kept for the next time."""
    place = CACHE.parent / "venv"
    if not (place / "bin/ray").exists():
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run(["/usr/bin/python3", "-m", "venv", place], check=True)
        install = [place / "bin/pip", "install", "--quiet", *packages(), "pyyaml", "numpy"]
        subprocess.run(install, check=True)
    return place


def test_none_takes_what_the_nodes_have_installed(slurm, site, settings, installed):
    there = slurm.work / "nemo-rl/examples"
    there.mkdir(parents=True)
    shutil.copy(ROOT / "tests/slurm/run_sft.py", there)
    settings("CONTAINER=none", f"NEMO_RL_VENV={installed}", f"NEMO_RL_HOME={there.parent}")
    (site / "containers/train.sif").rename(site / "containers/away")
    try:
        _, driver = train(slurm, site, "none")
    finally:
        (site / "containers/away").rename(site / "containers/train.sif")
    assert "Ray has 16 GPUs on 2 nodes" in driver and "'image': None" in driver


def test_models_and_temporary_folder_of_site_env_are_seen_in_a_jobs_container(
    slurm, site, settings
):
    real, named = slurm.work / "disk/models", slurm.work / "models"
    real.mkdir(parents=True)
    (real / "mark").write_text("weights\n")
    named.symlink_to(real)
    subprocess.run(["chown", "-Rh", f"{USER}:{USER}", real.parent, named], check=True)
    settings(f"HF_HOME={named}")
    (site / "slurm/look.sbatch").write_text("""#!/bin/bash
RUN=$1
. "$RUN/snapshot/slurm/lib.sh"
own_tmp
mkdir -p "$RUN/home"
printf 'HF_HOME=%q\\nTMPDIR=%q\\n' "$HF_HOME" "$TMP" > "$LOGS/env"
"$CODE/slurm/image.sh" train "$LOGS/env" sh -c 'cat "$HF_HOME/mark"; touch "$TMPDIR/here" && echo "$APPTAINER_NAME"'
ls "$TMP"
rm -r "$TMP"
""")
    run = site / "results/look"
    job = slurm.run(
        [site / "bin/job-submit", "slurm/look.sbatch", "--run", run], cwd=site
    ).stdout.strip()
    assert slurm.wait(job, 60) == ("COMPLETED", 0)
    _until(5, "its log is there", lambda: list((run / "slurm").glob("*.out")))
    assert log(run) == "weights\ntrain.sif\nhere\n"
