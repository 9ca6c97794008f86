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
        [
            "make",
            *there,
            *(words if words[:1] in (("dpo",), ("rft",), ("rl",)) else ("sft", *words)),
        ],
        cwd=root,
        env=environment(
            root, HF_HUB_OFFLINE="1", SCRATCH=str(root.parent), SBATCH_PARTITION="mine"
        ),
        capture_output=True,
        text=True,
    )


def test_a_dry_run_prints_the_command_and_what_would_be_frozen_without_a_tokenizer(root):
    done = sft(root, "DRY=1")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert "sbatch --parsable --job-name=sft-nemotron_nano_lora" in lines["command"]
    assert {"command", "images"} <= lines.keys(), done.stdout


@pytest.mark.parametrize("words, rows", [([], "1"), (["PREVIEW=0"], "0")])
def test_one_row_is_shown_unless_somebody_says_how_many(root, words, rows):
    assert f" --preview {rows} " in sft(root, "-n", *words).stdout


@pytest.mark.long("test_a_dry_run_prints_the_command_and_what_would_be_frozen_without_a_tokenizer")
def test_without_the_weights_nothing_is_submitted_and_the_command_is_named(root):
    done = sft(root)
    image = f"{root}/containers/train.sif"
    assert f"{image} is not there; make image-train\n" in done.stderr
    (root / "containers/train.sif").touch()
    done = sft(root)
    assert done.returncode == 2 and "sbatch" not in done.stdout
    name = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    assert f"{name} is not in {root.parent}/models/hub" in done.stderr
    assert f"bin/model-fetch {name}" in done.stderr


def pair(number):
    one = row(number)["messages"]
    worse = {**one[-1], "content": f"# Worse {number}"}
    sides = [{"rank": 0, "completion": [one[-1]]}, {"rank": 1, "completion": [worse]}]
    return {"id": f"r{number}", "context": one[:2], "completions": sides}


@pytest.mark.long("test_a_dry_run_prints_the_command_and_what_would_be_frozen_without_a_tokenizer")
def test_dpo_says_what_it_lacks_and_submits_the_driver_of_dpo_on_the_merged_model(root):
    run = root / "results/sft/nemotron-nano-lora"
    shutil.copytree(ROOT / "tests/fixtures/sft/thinker", run / "merged")
    (run / "merged/config.json").write_text("{}")
    # As sft-check says: NeMo-RL's DPO would put it before every prompt.
    setting = json.loads((run / "merged/tokenizer_config.json").read_text())
    del setting["bos_token"]
    (run / "merged/tokenizer_config.json").write_text(json.dumps(setting))
    done = sft(root, "dpo", "DRY=1")
    assert done.returncode == 2 and "no chat data in data/pairs; DATA= takes" in done.stderr
    (root / "data/pairs").mkdir()
    for name, first in (("train", 0), ("test", 60)):
        lines = [json.dumps(pair(number)) + "\n" for number in range(first, first + 40)]
        (root / f"data/pairs/{name}.jsonl").write_text("".join(lines))
    thinks = "SET=policy.tokenizer.chat_template_kwargs.enable_thinking=true"
    done = sft(root, "dpo", "DRY=1", thinks)
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert "slurm/sft.sbatch" in lines["command"]
    assert lines["SFT_DRIVER"].split()[1] == "examples/run_dpo.py"
    assert "--nodes=1 " in lines["command"] and lines["SFT_STEPS"].split()[1] == "2"
    check = json.loads((root / "results/dpo/nemotron-nano-lora/check.json").read_text())
    assert check["ok"] and check["model"] == str(run / "merged")


@pytest.mark.long("test_a_dry_run_prints_the_command_and_what_would_be_frozen_without_a_tokenizer")
def test_rft_is_sft_on_the_best_rows(root):
    shutil.copytree(root / "data/chat", root / "data/best")
    done = sft(root, "rft", "DRY=1")
    assert done.returncode == 0, done.stderr
    assert '"recipe": "results/rft/nemotron-nano-lora/recipe.yaml"' in done.stdout


@pytest.fixture
def planted(root):
    """What `make rl` is asked with, by a sample that was planted."""
    run = root / "results/sft/nemotron-nano-lora"
    shutil.copytree(ROOT / "tests/fixtures/sft/thinker", run / "merged")
    (run / "merged/config.json").write_text("{}")
    (root / "data/rl").mkdir()
    asked = [json.loads(line) for line in (ROOT / "data/prompts.jsonl").read_text().splitlines()]
    sampled = []
    for name, some in (("train", asked[:40]), ("test", asked[40:46])):
        lines = [json.dumps({**one, "id": f"t{k}"}) for k, one in enumerate(some)]
        (root / f"data/rl/{name}.jsonl").write_text("\n".join(lines))
        for k in range(len(some)):
            for n in range(4):
                sample = {"sample": {"of": f"t{k}", "k": n}}
                reward = {"reward": n / 4, "masked": False}
                sampled.append({"id": f"t{k}~{n}", "gen": sample, "reward": reward})
    (root / "planted.jsonl").write_text("".join(json.dumps(one) + "\n" for one in sampled))
    short = (
        "SET=policy.generation.max_new_tokens=4096"  # this tokenizer's tokens are bytes, or nearly
    )
    words = ("rl", "DRY=1", "PLANTED=planted.jsonl", "FLAGS=: --nodes=4")
    return [*words, f"{short} env.judge.host=node7"]


@pytest.mark.long(
    "tests/training/test_rl_check.py::test_a_sample_of_other_prompts_and_one_without_rewards_say_nothing"
)
def test_rl_is_checked_by_its_planted_sample_before_the_job_is_described(root, planted):
    done = sft(root, *planted)
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert " --nodes=4 " in lines["command"] and "slurm/rl.sbatch" in lines["command"]
    assert lines["SFT_DRIVER"].split()[1] == "examples/nemo_gym/run_grpo_nemo_gym.py"
    check = json.loads((root / "results/rl/nemotron-nano-lora/check.json").read_text())
    assert check["ok"] and check["rollouts"] == 128


@pytest.mark.long(
    "tests/training/test_rl_check.py::test_a_sample_of_other_prompts_and_one_without_rewards_say_nothing"
)
def test_rl_says_what_it_lacks(root, planted):
    done = sft(root, *planted[:-1], planted[-1].partition(" env.")[0])
    assert done.returncode == 2 and "SET='env.judge.host=HOST' names it" in done.stderr
    done = sft(root, *planted, "PACE=5")
    assert done.returncode == 2 and "times as many servers would do" in done.stderr
