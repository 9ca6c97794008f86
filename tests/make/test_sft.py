"""make sft reads this site's settings; a dry run says what would be submitted, and a real one does not begin without the weights."""

import json
import shutil
import subprocess

import pytest
from shadow import ROOT, environment, make

pytestmark = pytest.mark.slow
SITE = 'SBATCH_PARTITION=site\nSBATCH_ACCOUNT=site\nHF_HOME="$SCRATCH/models"\nfalse\n'


@pytest.fixture
def root(tmp_path):
    folder = make(tmp_path / "root", [], "")
    for name in ("slurm", "containers"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.sif*"))
    (folder / "slurm/site.env").write_text(SITE)
    (folder / "data/chat").mkdir()
    for name, first in (("train", 0), ("test", 40)):
        rows = [row(number) for number in range(first, first + 20)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"data/chat/{name}.jsonl").write_text(text)
    return folder


def row(number):
    said = {"content": f"# Deck {number}", "reasoning_content": "So."}
    messages = [
        {"role": "system", "content": "You write decks."},
        {"role": "user", "content": f"Deck {number}, please."},
        {"role": "assistant", **said},
    ]
    return {"id": f"r{number}", "messages": messages}


def sft(root, *words):
    there = [f"--old-file=.venv/.{name}" for name in ("python", "corpus", "train", "local")]
    return subprocess.run(
        ["make", *there, "sft", *words],
        cwd=root,
        env=environment(
            root, HF_HUB_OFFLINE="1", SCRATCH=str(root.parent), SBATCH_PARTITION="mine"
        ),
        capture_output=True,
        text=True,
    )


def test_a_dry_run_prints_the_command_and_where_each_setting_comes_from_without_a_tokenizer(root):
    done = sft(root, "DRY=1")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert "sbatch --parsable --job-name=sft-nemotron_nano_lora" in lines["command"]
    assert lines["--partition"].endswith("mine   (SBATCH_PARTITION of the environment)")
    assert lines["--account"].endswith("(SBATCH_ACCOUNT of slurm/site.env)")
    assert f"{root.parent}/models" in lines["HF_HOME"]


def test_without_the_weights_nothing_is_submitted_and_the_command_is_named(root):
    done = sft(root)
    assert done.returncode == 2 and "sbatch" not in done.stdout
    name = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    assert f"{name} is not in {root.parent}/models/hub" in done.stderr
    assert f"bin/model-fetch {name}" in done.stderr
