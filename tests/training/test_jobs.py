"""Jobs: what of a recipe moves into the snapshot, and what Slurm's answers mean."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from decksmith.core import cli, slurm
from decksmith.train.training import jobs, slurm_hosts


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A function: the Job of a recipe in a checkout of the test's own, for this machine or (`far`) another one's checkout."""
    root = tmp_path / "here"
    (root / "slurm").mkdir(parents=True)
    (root / "slurm/sft.sbatch").write_text("#!/bin/bash\n#SBATCH --time=1\n")
    monkeypatch.setattr(cli, "ROOT", root)

    def make(recipe, far=None):
        run = root / "results/sft/one"
        run.mkdir(parents=True, exist_ok=True)
        (run / "recipe.yaml").write_text(recipe.format(root=root, run=run))
        if far:
            monkeypatch.setattr(slurm_hosts.SlurmHost, "root", Path(far))
        return jobs.Job(root / "slurm/sft.sbatch", run, host="login" if far else "")

    return make


RECIPE = """# kept
cluster: {{num_nodes: 2, gpus_per_node: 8}}
sft: {{max_num_steps: 3, seed: 1}}
policy: {{model_name: /base, tokenizer: {{chat_template: {root}/t/x.jinja}}, precision: bfloat16, generation: {{seed: 2}}}}
checkpointing: {{checkpoint_dir: {run}/checkpoints}}
data: {{train: {{data_path: {root}/data/v0.1/train.jsonl}}}}
defaults: /opt/elsewhere.yaml
"""


def files(root):
    for name in ("t/x.jinja", "data/v0.1/train.jsonl"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_every_file_that_the_recipe_names_is_frozen_and_the_folders_stay(made, tmp_path):
    files(tmp_path / "here")
    one = made(RECIPE)
    text, run = one.recipe.text, one.run
    assert f"chat_template: {run}/snapshot/data/t/x.jinja" in text
    assert (
        f"data_path: {run}/snapshot/data/v0_1/train.jsonl" in text
    )  # NeMo-RL cuts at the first dot
    assert f"checkpoint_dir: {run}/checkpoints" in text and "defaults: /opt/elsewhere.yaml" in text
    assert one.recipe.seeds == {"sft.seed": 1, "policy.generation.seed": 2}
    one.freeze()
    assert (run / "snapshot/data/v0_1/train.jsonl").read_text() == "data/v0.1/train.jsonl"


def test_on_another_machine_every_path_is_that_machines(made, tmp_path):
    files(tmp_path / "here")
    one = made(RECIPE, far="/scratch/me/decksmith")
    assert str(tmp_path) not in one.recipe.text
    assert (
        "data_path: /scratch/me/decksmith/results/sft/one/snapshot/data/v0_1/train.jsonl"
        in one.recipe.text
    )
    assert (
        one._assignments()["SFT_CHECKPOINTS"] == "/scratch/me/decksmith/results/sft/one/checkpoints"
    )
    assert one.argv[-1] == "/scratch/me/decksmith/results/sft/one"


def test_the_reward_of_a_run_and_the_host_of_its_reader_reach_the_job_whatever_form_the_recipe_has(
    made, tmp_path
):
    files(tmp_path / "here")
    for env in (
        "env:\n  rules: read\n  judge:\n    host: node7\n",
        "env: {{judge: {{host: node7}}, rules: read}}\n",
    ):
        given = made(RECIPE + env)._assignments()
        assert (given["RL_REWARD_RULES"], given["DECKSMITH_JUDGE"]) == ("read", "node7")
    given = made(RECIPE + "env: {{rules: layout, judge: {{host: null}}}}\n")._assignments()
    assert given["RL_REWARD_RULES"] == "layout" and "DECKSMITH_JUDGE" not in given


def test_two_files_that_would_become_one_are_refused(made, tmp_path):
    files(tmp_path / "here")
    (tmp_path / "here/other/v0_1").mkdir(parents=True)
    (tmp_path / "here/other/v0_1/train.jsonl").write_text("")
    with pytest.raises(cli.BadConfig, match="rename a folder"):
        made(RECIPE + "more: {root}/other/v0_1/train.jsonl\n")


def test_a_snapshot_takes_the_working_tree_without_what_git_ignores(made, tmp_path):
    root = tmp_path / "here"
    files(root)
    one = made(RECIPE)
    for name, text in (
        (".gitignore", "results/\nslurm/site.env\n*.sif\n"),
        ("slurm/site.env", "SBATCH_ACCOUNT=x\n"),
        ("lib/new.py", ""),
        ("notes/draft", ""),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "containers").mkdir()
    (root / "containers/train.sif").write_text("image")
    for words in (["init", "-q"], ["add", "slurm", ".gitignore"]):
        assert cli.git(*words) is not None
    one.freeze()
    snapshot = one.run / "snapshot"
    assert (snapshot / "lib/new.py").exists() and not (
        snapshot / "notes"
    ).exists()  # new code counts, other new files do not
    assert (snapshot / "slurm/site.env").exists() and not (snapshot / "slurm/site.env").is_symlink()
    assert (snapshot / "containers/train.sif").is_symlink() and (
        snapshot / "containers/train.sif"
    ).read_text() == "image"
    assert (snapshot / "results").resolve() == root / "results"


@pytest.mark.parametrize(
    "state, code, status",
    [
        ("COMPLETED", "0:0", 0),
        ("FAILED", "3:0", 3),
        ("CANCELLED", "0:15", 143),
        ("TIMEOUT", "0:0", 1),
        ("NODE_FAIL", "0:0", 1),
    ],
)
def test_a_job_ends_as_its_state_says(state, code, status):
    assert slurm.exit_status({"JobState": state, "ExitCode": code}) == status


def test_an_array_is_several_tasks():
    text = "JobId=7 ArrayJobId=5 JobState=RUNNING ExitCode=0:0\nJobId=5 ArrayJobId=5 JobState=FAILED ExitCode=1:0\n"
    assert [(task["JobId"], task["JobState"]) for task in slurm.tasks(text)] == [
        ("7", "RUNNING"),
        ("5", "FAILED"),
    ]


@pytest.mark.parametrize("text", ["A", "A B=1", "1A=2", "A=b\nC=d"])
def test_a_variable_that_is_none_is_refused(text):
    with pytest.raises(cli.BadConfig):
        jobs.assignment(text)


@pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh")
def test_what_ssh_says_is_no_lack_of_a_checkout(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    config = tmp_path / "config"
    config.write_text(f"Host login\n  HostName 127.0.0.1\n  Port {port}\n")
    monkeypatch.setenv("DECKSMITH_SSH", f"ssh -F {config}")
    host = slurm_hosts.SlurmHost("login")
    with pytest.raises(cli.TryAgain, match="ssh does not get there .*Connection refused"):
        host.root  # noqa: B018
    host.close()
    # ssh there, and no checkout
    monkeypatch.setenv("DECKSMITH_SSH", "sh -c 'cd /; eval \"$0\"'")
    there = slurm_hosts.SlurmHost("login")
    there.command = ["sh", "-c"]
    with pytest.raises(cli.Missing, match="no checkout in decksmith"):
        there.root  # noqa: B018
    there.close()


def start(restart, step, end=None, reason="", job="7"):
    lines = [{"job": job, "restart": restart, "from": step, "nodes": ["n1"], "at": "now"}]
    if end is not None:
        lines += [{"job": job, "restart": restart, "to": end, "seconds": 9, "reason": reason}]
    return lines


PREEMPTED = "scancel or preemption"
STARTS = {
    "none": ([], 0),
    "preempted": ([start(n, 40, 40, PREEMPTED) for n in range(9)], 0),
    "killed": ([start(n, 40) for n in range(3)], 3),
    "silent": ([start(0, 40), start(1, 40, 40, "n2 has given no sign of life for 180 s")], 2),
    "gone": ([start(0, 40, 40, "the driver ended with 1; n2 does not answer")], 1),
    "elsewhere": ([start(0, 4), start(1, 4, 40, "the time limit is near"), start(2, 40)], 0),
    "another job's": ([start(n, 40, job="8") for n in range(9)], 0),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_start_counts_as_lost_where_a_node_went_and_not_where_it_was_preempted(tmp_path, name):
    starts, lost = STARTS[name]
    (tmp_path / "slurm").mkdir()
    lines = [json.dumps(line, separators=(",", ":")) + "\n" for one in starts for line in one]
    (tmp_path / "slurm/starts.jsonl").write_text("".join(lines))
    source = (cli.ROOT / "slurm/train.sh").read_text()
    function = re.search(r"(?ms)^lost_starts\(\) \{.*?^\}$", source)[0]
    done = subprocess.run(
        ["bash", "-c", f"{function}\nlost_starts 40"],
        env={"RUN": str(tmp_path), "SLURM_JOB_ID": "7", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == (str(lost), "")
