"""Where runs lie: names, the commands that make them, the list of what there is."""

import json
import re
import sys
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.measure.results import layout

sys.path.insert(0, str(cli.ROOT / "make"))
import run_table  # noqa: E402


@pytest.mark.parametrize(
    "folder, name, command",
    [
        ("results/runs/smol/offline", "smol", "make baseline MODEL=smol PROTOCOL=offline"),
        (
            "results/runs/smol/offline@mine/shard-1-of-4",
            "smol",
            "make baseline MODEL=smol PROTOCOL=offline PROMPTS=mine.jsonl",
        ),
        (
            "results/runs/smol/offline@my-briefs.csv-1a2b3c4d",
            "smol",
            "make baseline MODEL=smol PROTOCOL=offline PROMPTS=my-briefs.csv",
        ),
        (
            "results/runs/smol+best-of-4/offline",
            "smol+best-of-4",
            "make baseline MODEL=smol CONDITION=best-of-4 PROTOCOL=offline",
        ),
        ("results/runs/smol", "smol", "make baseline MODEL=smol"),
        ("elsewhere/runs/first", "first", "make baseline MODEL=NAME"),
    ],
)
def test_a_run_is_called_by_its_model_and_made_by_its_protocol(tmp_path, folder, name, command):
    assert layout.run_name(tmp_path / folder) == name
    assert layout.make_command(tmp_path / folder) == command


def run(root: Path, place: str, **summary) -> Path:
    folder = root / "results/runs" / place
    folder.mkdir(parents=True)
    measure = {"offline": "checks"}.get(folder.name, "overall")
    means = {"renderable": {measure: {"mean": 3.25 if measure == "overall" else 0.614}}}
    faults = {"kinds": {"model": 1, "renderer": 0, "judge": 0, "infra": 0}}
    kept = {
        "n": 2,
        "partial": 0,
        "faults": faults,
        "means": means,
        "cost": 0.125,
        "judge_cost": None,
        **summary,
    }
    (folder / "summary.json").write_text(json.dumps(kept))
    return folder


def test_a_folder_of_runs_names_them(tmp_path):
    first, second = run(tmp_path, "smol/offline"), run(tmp_path, "smol/published")
    said = str(layout.missing(first.parent))
    assert f"holds 2: {first}, {second}" in said
    assert "`make baseline MODEL=gpt`" in str(layout.missing(tmp_path / "results/runs/gpt"))


def test_the_list_has_a_line_for_each_finished_run(tmp_path):
    runs = tmp_path / "results/runs"
    assert "make baseline" in run_table.table(runs)[0]
    run(tmp_path, "smol/offline", cost=None)
    run(tmp_path, "gpt/published", judge_cost=0.25)
    run(tmp_path, "mini/offline", cost=0.0031)
    (runs / "gpt/offline").mkdir()
    head, *rows = (re.split("  +", line) for line in run_table.table(runs))
    assert head == ["model", "protocol", "renders", "score", "USD", "made"]
    assert [row[:5] for row in rows[:-2]] == [
        ["gpt", "published", "1 of 2", "3.25 of 5", "0.38"],
        ["mini", "offline", "1 of 2", "61 % of checks", "<0.01"],
        ["smol", "offline", "1 of 2", "61 % of checks", "-"],
    ]
