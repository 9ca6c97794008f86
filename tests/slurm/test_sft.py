"""slurm/sft.sbatch as on a site: real Slurm, real Apptainer, real Ray with 16 (fake) GPUs over two nodes, as an ordinary user.

Only the inside of NVIDIA's image is a stand-in: train.def puts Ray, torch and run_sft.py where that image has its own. It is built once
(three minutes) and kept in /var/tmp/decksmith-slurm; the tests take about ten minutes on two cores.
"""

import fcntl
import hashlib
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cluster import ROOT, USER, _free_ports, _until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
HERE = Path(__file__).parent
CACHE = Path("/var/tmp/decksmith-slurm/images")
# Two nodes share this host and its two cores: few workers, little memory. The rest says how long one waits here for what takes minutes there.
SITE = """DECKSMITH_TMP={tmp}
RAY_FLAGS="--num-cpus=2 --object-store-memory=80000000"
GLOO_SOCKET_IFNAME=lo
OMP_NUM_THREADS=1
ODD="a, b 'c' \\"d\\" \\$e"
SFT_READY_S=240
SFT_BEAT_S=20
"""


def packages():
    """Ray, and torch at the trainer's version, as pip takes them."""
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["train"]
    return ["ray==2.60.0", next(item for item in group if str(item).startswith("torch"))]


@pytest.fixture(scope="module")
def image():
    parts = [HERE / "train.def", HERE / "run_sft.py"]
    sif = (
        CACHE
        / f"train-{hashlib.sha256(b''.join(part.read_bytes() for part in parts) + repr(packages()).encode()).hexdigest()[:16]}.sif"
    )
    CACHE.mkdir(parents=True, exist_ok=True)
    shutil.chown(CACHE, USER, USER)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if sif.exists():
            return sif
        work = CACHE / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        for part in parts:
            shutil.copy(part, work)
        index = (
            []
            if os.environ.get("PIP_FIND_LINKS")
            else ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]
        )
        subprocess.run([sys.executable, "-m", "venv", work / "pip"], check=True)  # ours has none
        subprocess.run(
            [
                work / "pip/bin/pip",
                "download",
                "--quiet",
                "--only-binary=:all:",
                "--python-version=3.11",
                *index,
                "--dest",
                work / "wheels",
                *packages(),
            ],
            check=True,
        )  # bookworm has Python 3.11
        mirror = subprocess.run(
            [
                "apt-get",
                "indextargets",
                "--format",
                "$(REPO_URI)",
                "Created-By: Packages",
                "Codename: bookworm",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()[0]
        subprocess.run(["chown", "-R", f"{USER}:{USER}", work], check=True)
        done = subprocess.run(
            [
                "nice",
                "-n",
                "10",
                "apptainer",
                "build",
                "--mksquashfs-args",
                "-comp gzip -Xcompression-level 1",
                "--build-arg",
                f"MIRROR={mirror}",
                "--build-arg",
                f"WHEELS={work}/wheels",
                "--build-arg",
                f"DRIVER={work}/run_sft.py",
                work / "train.sif",
                work / "train.def",
            ],
            user=USER,
            group=USER,
            extra_groups=[],
            cwd=work,
            capture_output=True,
            text=True,
            env={
                "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
                "HOME": f"/home/{USER}",
                "APPTAINER_TMPDIR": str(work),
            },
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        (work / "train.sif").rename(sif)
        shutil.rmtree(work)
    return sif


@pytest.fixture(scope="module")
def site(slurm, image):
    """A checkout on a shared file system, with the train image and this site's settings."""
    place = slurm.checkout()
    _site(slurm, place)
    (place / "containers/train.sif").symlink_to(image)
    rows = []
    for folder in sorted((ROOT / "data/gold").iterdir())[:12]:
        rows.append(
            {
                "id": folder.name,
                "messages": [
                    {"role": "system", "content": "You write decks."},
                    {"role": "user", "content": (folder / "PROMPT.md").read_text()},
                    {
                        "role": "assistant",
                        "content": (folder / "deck.md").read_text(),
                        "reasoning_content": (folder / "think.md").read_text(),
                    },
                ],
            }
        )
    (place / "data/chat").mkdir()
    for name, some in (("train", rows[:8]), ("test", rows[8:])):
        (place / f"data/chat/{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in some)
        )
    subprocess.run(["chown", "-R", f"{USER}:{USER}", place / "data/chat"], check=True)
    yield place
    shutil.rmtree(_tmp(slurm))


def _tmp(slurm):
    """The nodes' local disk: short, since sockets lie there."""
    return Path("/tmp") / slurm.root.name


def _site(slurm, place):
    (place / "slurm/site.env").write_text(SITE.format(tmp=_tmp(slurm)))
    _tmp(slurm).mkdir(exist_ok=True)
    shutil.chown(_tmp(slurm), USER, USER)
    (place / "results").mkdir()
    shutil.chown(place / "results", USER, USER)


@pytest.fixture
def run(slurm, site, request):
    """A function: the run folder of this test with its recipe, by the real sft-config; `standin` says what goes wrong."""

    def make(*overrides, steps=12, pause=0.7, **wrong):
        folder = (
            site
            / "results/sft"
            / re.sub(r"\W+", "_", request.node.name.removeprefix("test_"))[-32:]
        )
        slurm.run(
            [
                site / "bin/sft-config",
                "--data",
                "data/chat",
                "--run",
                folder,
                "policy.model_name=/base",  # none is needed: the stand-in trains a model of its own
                "policy.train_global_batch_size=4",
                f"sft.max_num_steps={steps}",
                "sft.val_period=3",
                "checkpointing.save_period=3",
                f"standin.pause={pause}",
                *(f"standin.{name}={value}" for name, value in wrong.items()),
                *overrides,
            ],
            cwd=site,
        )
        return folder

    return make


def submit(slurm, site, folder, *words):
    return slurm.run(
        [site / "bin/job-submit", "slurm/sft.sbatch", "--run", folder, *words], cwd=site
    ).stdout.strip()


def log(folder):
    return "".join(path.read_text() for path in sorted((folder / "slurm").glob("*.out")))


def metrics(folder):
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def starts(folder):
    return [json.loads(line) for line in (folder / "slurm/starts.jsonl").read_text().splitlines()]


def said(folder):
    """The launcher's own lines without time and paths."""
    text = log(folder).replace(str(folder), "RUN")
    return re.findall(r"^sft: [\d:]+ \+\d+ s: (.*)", text, re.M)


def nothing_left(slurm):
    def left():
        return [command for command in slurm.processes().values() if "job-submit" not in command]

    _until(30, "no process of a job is left", lambda: not left(), left)
    assert not list(_tmp(slurm).iterdir())


def test_a_dry_run_prints_the_command_and_what_would_be_frozen_and_changes_nothing(
    slurm, site, run
):
    folder = run()
    before = sorted(folder.rglob("*"))
    out = slurm.run(
        [
            site / "bin/job-submit",
            "slurm/sft.sbatch",
            "--run",
            folder,
            "--dry-run",
            "--",
            "--time=01:00:00",
        ],
        cwd=site,
        env={"SBATCH_ACCOUNT": "physics"},
    ).stdout
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()}
    assert lines["command"].startswith("sbatch --parsable --job-name=sft-") and lines[
        "command"
    ].endswith(f"--time=01:00:00 {folder}/snapshot/slurm/sft.sbatch {folder}")
    assert lines["SFT_STEPS"] == "12"
    assert {"data/data/train.jsonl", "data/data/test.jsonl"} <= json.loads(lines["data"]).keys()
    assert sorted(folder.rglob("*")) == before
    assert slurm.run(["squeue", "-h"]).stdout == ""


def test_it_trains_over_two_nodes_and_goes_on_after_usr1_from_its_checkpoint(slurm, site, run):
    folder = run()
    output = open(slurm.work / "followed", "w+")
    follower = subprocess.Popen(
        [site / "bin/job-submit", "slurm/sft.sbatch", "--run", folder, "--wait"],
        cwd=site,
        user=USER,
        group=USER,
        extra_groups=[],
        env=slurm.env | {"DECKSMITH_POLL_S": "1"},
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
    )
    _until(
        240,
        "step 5 is trained",
        lambda: len(metrics(folder)) >= 5 or follower.poll() is not None,
        lambda: log(folder),
    )
    job = (folder / "slurm/job").read_text().strip()

    # What is edited now must not reach the second start.
    edited = {
        path: path.read_text()
        for path in (
            site / "data/chat/train.jsonl",
            folder / "data/train.jsonl",
            folder / "recipe.yaml",
            site / "slurm/ray-node.sh",
            site / "slurm/lib.sh",
        )
    }
    try:
        for path in edited:
            path.write_text("exit 1\n")
        slurm.run(["scancel", "--batch", "--signal=USR1", job])
        _until(
            60,
            "the job is requeued",
            lambda: slurm.show(job)["JobState"] == "PENDING",
            lambda: log(folder),
        )
        nothing_left(slurm)
        first = len(metrics(folder))
        slurm.hurry(job)
        assert slurm.wait(job, 300) == ("COMPLETED", 0), log(folder)
        assert follower.wait(30) == 0
    finally:
        follower.kill()
        for path, text in edited.items():
            path.write_text(text)

    begun = [line for line in starts(folder) if "from" in line]
    assert [line["restart"] for line in begun] == [0, 1]
    assert begun[0]["nodes"] == ["n1", "n2"]
    saved = begun[1]["from"]
    assert saved in (3, 6) and saved <= first
    # Each step once, and from the checkpoint on once more what was lost after it.
    assert [line["step"] for line in metrics(folder)] == [
        *range(1, first + 1),
        *range(saved + 1, 13),
    ]
    losses = [line["loss"] for line in metrics(folder)]
    assert losses[-1] < losses[0] - 0.5 and losses[first] < losses[0]
    if first > saved:  # the same weights see the same rows again
        assert losses[first] == pytest.approx(losses[saved], abs=1e-4)
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [
        "step_12",
        "step_3",
        "step_6",
        "step_9",
    ]
    assert (
        json.loads((folder / "checkpoints/step_12/training_info.json").read_text())["total_steps"]
        == 12
    )

    driver = (folder / f"slurm/{folder_name(folder)}-{job}/driver.log").read_text()
    assert "Ray has 16 GPUs on 2 nodes" in driver
    assert (
        driver.count(
            f"'uid': {pwd.getpwnam(USER).pw_uid}, 'image': 'train.sif', 'home': '/home/decksmith'"
        )
        == 2
    )
    again = (folder / f"slurm/{folder_name(folder)}-{job}-r1/driver.log").read_text()
    assert f"from step {saved} of 12" in again
    lines = [line for line in said(folder) if not line.startswith("checkpoint at")]
    assert [re.sub(r"(answers at|to save after) [\d:.]+", r"\1 _", line) for line in lines] == [
        f"job {job}, start 1, on n1 n2: from step 0 of 12; logs in RUN/slurm/{folder_name(folder)}-{job}",
        "Ray's head answers at _",
        "Ray has 16 GPUs on 2 nodes",
        "driver started, to save after _ of training",
        "ending: preempted",
        f"requeued at step {saved} of 12: preempted",
        f"job {job}, start 2, on n1 n2: from step {saved} of 12; logs in RUN/slurm/{folder_name(folder)}-{job}-r1",
        "Ray's head answers at _",
        "Ray has 16 GPUs on 2 nodes",
        "driver started, to save after _ of training",
        "ending: the driver ended with 0",
        "done: 12 of 12 steps",
    ]
    followed = (slurm.work / "followed").read_text()
    assert followed == log(folder)
    record = json.loads((folder / "job.json").read_text())
    assert (
        record["job"] == job
        and record["nodes"] == ["n1", "n2"]
        and record["seeds"] == {"sft.seed": 42}
    )
    assert (
        record["argv"][0] == "sbatch"
        and re.fullmatch(r"[0-9a-f]{40}", record["revision"]["commit"])
        and record["images"]["train"]["base"].startswith("nvcr.io/")
    )
    assert (folder / f"slurm/{folder_name(folder)}-{job}/env").stat().st_mode & 0o077 == 0
    nothing_left(slurm)

    # A finished run that is submitted again trains nothing.
    before = metrics(folder)
    assert slurm.wait(submit(slurm, site, folder), 60) == ("COMPLETED", 0)
    assert (
        said(folder)[-2:] == ["ending: nothing is left to train", "done: 12 of 12 steps"]
        and metrics(folder) == before
    )


def folder_name(folder):
    return f"sft-{folder.name}"


def test_a_driver_that_saves_in_time_and_says_0_is_started_again_and_scancel_ends_all_of_it(
    slurm, site, run
):
    folder = run(pause=1, steps=200)
    job = submit(
        slurm,
        site,
        folder,
        "--env",
        "SFT_SETUP_S=3000",
        "--env",
        "SFT_SAVE_S=520",
        "--",
        "--time=01:00:00",
    )  # 80 s for Ray and training
    _until(
        300,
        "the job is requeued",
        lambda: (
            re.search("requeued|ended", log(folder))
            and slurm.show(job)["JobState"] in ("PENDING", "FAILED")
        ),
        lambda: log(folder),
    )
    info = [
        json.loads(path.read_text())
        for path in (folder / "checkpoints").glob("step_*/training_info.json")
    ]
    saved = max(one["total_steps"] for one in info)
    assert 0 < saved < 200
    assert f"requeued at step {saved} of 200: the driver ended with 0" in log(folder)
    slurm.hurry(job)
    _until(
        200,
        "the driver runs again",
        lambda: log(folder).count("driver started") == 2,
        lambda: log(folder),
    )
    slurm.run(["scancel", job])
    _until(
        60,
        "the job has ended",
        lambda: slurm.show(job)["JobState"] == "CANCELLED",
        lambda: slurm.show(job),
    )
    assert re.fullmatch(r"stopped at step \d+ of 200: scancel or preemption", said(folder)[-1])
    nothing_left(slurm)


def test_usr1_before_a_checkpoint_requeues_when_preempted_and_ends_when_the_time_limit_sent_it(
    slurm, site, run
):
    folder = run(steps=200)
    job = submit(slurm, site, folder)
    _until(60, "the job has begun", lambda: "start 1" in log(folder), lambda: slurm.show(job))
    slurm.run(["scancel", "--batch", "--signal=USR1", job])
    _until(90, "it is requeued", lambda: "ed at step" in log(folder), lambda: log(folder))
    assert said(folder)[-1] == "requeued at step 0 of 200: preempted"
    slurm.run(["scancel", job])
    nothing_left(slurm)

    patience = [f"--env=SFT_{name}_S=10" for name in ("SETUP", "SAVE")]
    limit = ["--time=2", "--signal=B:USR1@60"]  # Slurm sends it up to a minute early
    words = ["sft.val_period=200", "checkpointing.save_period=200"]
    job = submit(slurm, site, run(*words, steps=200), *patience, "--", *limit)
    assert slurm.wait(job, 200) == ("FAILED", 75), log(folder)
    last = said(folder)[-1]
    assert last.startswith("ended at step 0 of 200: the time limit is near; no new checkpoint")
    nothing_left(slurm)


def test_a_crash_without_a_new_checkpoint_is_not_tried_again(slurm, site, run):
    folder = run(pause=0, crash_at=2)
    job = submit(slurm, site, folder, "--env", "DECKSMITH_NET=lo")
    assert slurm.wait(job, 200) == ("FAILED", 1)
    assert said(folder)[-1].startswith(
        "ended at step 0 of 12: the driver ended with 1; no new checkpoint since this start, so it is not tried again; see RUN"
    )
    assert (
        "the stand-in was told to crash here"
        in next((folder / "slurm").glob("*/driver.log")).read_text()
    )
    # Where a network is named, NCCL and gloo are on it too.
    told = next((folder / "slurm").glob("*/env")).read_text()
    assert "NCCL_SOCKET_IFNAME=lo\nGLOO_SOCKET_IFNAME=lo\nRAY_ADDRESS=127.0.0.1:" in told
    nothing_left(slurm)


def test_a_network_that_a_node_is_not_on_is_named_before_anything_starts(slurm, site, run):
    folder = run()
    for net in ("ib9", "*-no-such-network"):
        job = submit(slurm, site, folder, "--env", f"DECKSMITH_NET={net}")
        assert slurm.wait(job, 60) == ("FAILED", 69)
        assert f"no address for n1 on the network DECKSMITH_NET={net} of slurm/site.env" in log(
            folder
        )
    nothing_left(slurm)


def test_a_silent_driver_is_ended(slurm, site, run):
    folder = run(pause=0, hang_at=2)
    job = submit(slurm, site, folder, "--env", "SFT_STALL_S=25")
    assert slurm.wait(job, 240) == ("FAILED", 1)
    assert "ended at step 0 of 12: the driver has said nothing for 25 s; no new checkpoint" in log(
        folder
    )
    nothing_left(slurm)


@pytest.mark.parametrize(
    "wrong, reason",
    [
        ({"pause": 1}, r"the driver ended with 1; n2 does not answer"),
        ({"pause": 0, "hang_at": 2}, r"n2 has given no sign of life for 20 s"),
    ],
    ids=["driver crashes", "driver hangs"],
)
def test_a_node_that_dies_requeues_the_job_with_the_reason_in_one_line_and_leaves_no_process(
    slurm, site, run, wrong, reason
):
    folder = run("sft.val_period=60", "checkpointing.save_period=60", steps=60, **wrong)
    job = submit(slurm, site, folder, "--", "--time=01:00:00")
    _until(240, "step 1 is trained", lambda: metrics(folder), lambda: log(folder))
    slurm.kill("n2")
    _until(150, "the launcher has ended", lambda: "ed at step" in log(folder), lambda: log(folder))
    last = said(folder)[-1]  # behind it stand Slurm's own words
    assert re.search(f"^requeued at step 0 of 60: {reason}$", last), log(folder)
    nothing_left(slurm)
    slurm.run(["scancel", job])
    slurm.revive("n2")
    assert slurm.wait(job, 120)[0] in ("CANCELLED", "NODE_FAIL")


@pytest.fixture
def login(slurm, tmp_path):
    """A real sshd on loopback that lets hpc in -> the command that reaches it."""
    here = slurm.work / "ssh"
    here.mkdir()
    here.chmod(0o700)
    for name in ("host", "key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", here / name], check=True
        )
    shutil.copy(here / "key.pub", here / "authorized")
    port = _free_ports(1)[0]
    (here / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {here}/host\nPidFile {here}/pid\nAuthorizedKeysFile {here}/authorized\n"
        f"StrictModes no\nUsePAM yes\nPasswordAuthentication no\nSetEnv SLURM_CONF={slurm.conf}\n"
    )
    subprocess.run(["chown", "-R", f"{USER}:{USER}", here], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    subprocess.run(["/usr/sbin/sshd", "-f", here / "config", "-E", here / "log"], check=True)
    yield f"ssh -F none -i {here}/key -p {port} -o StrictHostKeyChecking=no -o UserKnownHostsFile={here}/known -l {USER}"
    os.kill(int((here / "pid").read_text()), 15)


def test_over_ssh_the_snapshot_is_sent_the_log_followed_across_a_requeue_and_the_product_fetched(
    slurm, login
):
    far, near = slurm.checkout("far"), slurm.checkout("near")
    for place in (far, near):
        _site(slurm, place)
    (far / "slurm/site.env").write_text("SITE=far\nSBATCH_PARTITION=gpu\n")
    # A script that the login node does not have.
    (near / "slurm/hello.sbatch").write_text("""#!/bin/bash
#SBATCH --export=NONE
#SBATCH --requeue
#SBATCH --open-mode=append
RUN=$1
. "$RUN/snapshot/slurm/lib.sh"
say "on $(hostname), $SITE, $WHAT, restart $RESTART, code in ${CODE#"$DECKSMITH_HOME"/}"
if [ "$RESTART" = 0 ]; then trap 'exit 1' TERM; scontrol requeue "$SLURM_JOB_ID"; sleep 30 & wait; fi
mkdir -p "$RUN/adapter" "$RUN/checkpoints/step_1/optimizer"
echo weights > "$RUN/adapter/weights"; echo big > "$RUN/checkpoints/step_1/optimizer/state"
exit 3
""")
    words = [
        "job-submit",
        "slurm/hello.sbatch",
        "--run",
        "results/x/ssh",
        "--host",
        "127.0.0.1:" + str(far),
        "--env",
        'WHAT=it\'s, "this" $x',
    ]
    environment = slurm.env | {
        "DECKSMITH_SSH": login,
        "DECKSMITH_POLL_S": "1",
        "TMPDIR": str(slurm.work),
    }
    del environment["SLURM_CONF"]  # this machine knows no Slurm
    dry = subprocess.run(
        [near / "bin" / words[0], *words[1:], "--dry-run"],
        cwd=near,
        user=USER,
        group=USER,
        extra_groups=[],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert dry.returncode == 0, dry.stderr
    assert f"sbatch --parsable --job-name=hello-ssh --chdir={far}/results/x/ssh" in dry.stdout
    assert not (near / "results/x").exists() and not (far / "results/x").exists()
    follower = subprocess.Popen(
        [near / "bin" / words[0], *words[1:], "--wait"],
        cwd=near,
        user=USER,
        group=USER,
        extra_groups=[],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    number = far / "results/x/ssh/slurm/job"
    _until(
        120,
        "the job has run once",
        lambda: list(number.parent.glob("*.out")) or follower.poll() is not None,
        lambda: follower.stderr.read(),
    )
    job = number.read_text().strip()
    _until(
        60,
        "it is requeued",
        lambda: slurm.show(job)["JobState"] == "PENDING",
        lambda: slurm.show(job),
    )
    slurm.hurry(job)
    out, err = follower.communicate(timeout=240)
    assert follower.returncode == 3, out + err
    name = os.uname().nodename
    assert re.findall(r"s: (.*)", out) == [
        f'on {name}, far, it\'s, "this" $x, restart {n}, code in results/x/ssh/snapshot'
        for n in (0, 1)
    ]
    assert (near / "results/x/ssh/adapter/weights").read_text() == "weights\n"
    assert not (near / "results/x/ssh/checkpoints/step_1/optimizer").exists()
    assert not (far / "slurm/hello.sbatch").exists()
    assert json.loads((near / "results/x/ssh/job.json").read_text())["place"] == "127.0.0.1"
