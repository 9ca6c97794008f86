"""What the second act of the rehearsal would run, by make's own word; nothing is run."""

import subprocess

from decksmith.core import cli


def would(*words):
    """The lines that make would run."""
    done = subprocess.run(
        ["make", "-n", *words], cwd=cli.ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_grpo_on_this_machine_goes_on_from_an_adapter_and_asks_no_cluster():
    said = would("rl", "TRAINER=trl", "FROM=results/x", "DATA=data/y", "STEPS=2")
    assert (
        "sft-config --recipe smol-grpo --data data/y --run results/rl/x grpo.max_num_steps=2"
        in (" ".join(said.split()))
    )
    assert f"start.adapter={cli.ROOT}/results/x/adapter" in said
    assert (
        "bin/sft-train --run results/rl/x" in said and "bin/model-export --run results/rl/x" in said
    )
    assert "rl-check" not in said and "job-submit" not in said


def test_the_acts_phases_are_in_order_and_the_rows_are_split_before_they_are_trained():
    phases = [
        line.split("|")[2] for line in would("rehearsal-rl").splitlines() if line.startswith("  '")
    ]
    names = [phase.strip("'\\ ").removeprefix("results/rehearsal-rl/") for phase in phases]
    assert names[1:] == [
        "-j2 rehearsal-rl-before",  # two models write side by side, each on one core
        "samples.jsonl",
        "rft/adapter/manifest.json",
        "dpo/adapter/manifest.json",
        "grpo/adapter/manifest.json",
        "-j2 rehearsal-rl-runs",
        "rehearsal-rl-report",
    ]
    said = would("results/test-act/pairs/report.json", "A=results/test-act", "RL_PROMPTS=3")
    order = [
        "chat-overlap",
        "record-sample --limit 3",
        "deck-reward",
        "chat-prefer",
    ]
    places = [said.index(word) for word in order]
    assert places == sorted(places)
