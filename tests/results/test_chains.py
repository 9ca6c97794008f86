"""A chain of trainings in the order in which its runs are given, with general benchmarks beside it."""

import itertools
import json
import sys
from pathlib import Path

from decksmith.bench.benchmarks import metrics
from decksmith.core.protocol import Protocol
from decksmith.measure.results import claims, report_data, tables
from decksmith.measure.results.runs import load

sys.path.insert(0, str(Path(__file__).parent))
import test_claims  # noqa: E402

STEPS = [0.1 * n for n in range(-5, 6)]
BASE = [3 + step for step in STEPS * 3]
BETTER = [value + 0.4 + wobble for value, wobble in zip(BASE, itertools.cycle([0.3, -0.3, 0.0]))]


def planted(folder, **models):
    """The runs of `{model: overall scores}`, in that order."""
    for name, values in models.items():
        rows = [test_claims.record(str(n), name, overall=value) for n, value in enumerate(values)]
        test_claims.synthetic.write(folder / name, rows, Protocol.load("published"))
    return load([folder / name for name in models])


def of_marks(rows):
    """The rows of a chain's table on the second clause, without the column that says so; the first is how many render."""
    assert {row[2] for row in rows[::2]} == {"Renders"}
    return [[*row[:2], *row[3:]] for row in rows[1::2]]


def graded(folder, right, of=300):
    """Results of a benchmark: the first `right` of ten questions are answered, always the same ones."""
    (folder / "arithmetic").mkdir(parents=True)
    rows = [
        {
            "id": f"q{n}",
            "task": {"bench": "arithmetic", "fields": {}, "expected": "1", "revision": "r"},
            "messages": [],
            "gen": {"text": "t", "model": {"name": folder.name}, "sampling": {}},
            "grade": {"verdict": "x", "score": float(n % 10 < right), "answer": "a", "detail": {}},
        }
        for n in range(of)
    ]
    (folder / "arithmetic/rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_each_step_is_held_against_the_one_before_it_and_the_first_and_benchmarks_stand_beside(
    tmp_path,
):
    runs = planted(tmp_path, z_base=BASE, sft=BETTER, grpo=BETTER)
    for model, right in {"z_base": 8, "sft": 8, "grpo": 3}.items():
        graded(tmp_path / "bench" / model, right)
    metrics.note_chain(runs, tmp_path / "bench")
    compared = claims.compare(runs)
    title, header, rows, note = tables.chain_table(runs, compared)
    assert header[:4] == ["Step", "Against", "Of", "Prompts"]
    assert header[4:7] == ["Difference", "p corrected", "Verdict"]
    rows = of_marks(rows)
    assert [(*row[:3], row[5]) for row in rows] == [
        ("sft", "z_base", "33", "better"),
        ("grpo", "sft", "33", "not separated"),
        ("grpo", "z_base", "33", "better"),
    ]
    assert rows[0][3].startswith("0.40 [0.")
    assert header[7] == "arithmetic"
    assert rows[0][6].endswith("holds")
    assert [row[6].startswith("-0.50 [-0.") and row[6].endswith("worse") for row in rows[1:]] == [
        True,
        True,
    ]
    # Tests and sentences are those of the headline: no pair is corrected twice, in two families.
    steps = claims.chain_steps(runs, compared)
    assert all(any(step["sentence"] in line for line in compared["headlines"]) for step in steps)
    assert {step["family"] for step in steps} == {6}
    assert f"**{title}**" in tables.markdown(runs, compared)
    assert report_data.command(runs).startswith("bin/run-report --chain --out ")


def test_a_later_step_that_lost_is_said_to_be_worse_and_no_benchmarks_are_said_to_be_none(tmp_path):
    runs = planted(tmp_path, sft=BETTER, dpo=BASE)
    metrics.note_chain(runs, tmp_path / "bench")
    _, header, rows, note = tables.chain_table(runs, claims.compare(runs))
    rows = of_marks(rows)
    assert [row[5] for row in rows] == ["worse"] and rows[0][3].startswith("-0.40 [-0.")
    assert header[-1] == "Verdict" and note.endswith(tables.NO_BENCHMARKS)


def test_a_model_without_results_leaves_a_dash_and_one_that_was_asked_otherwise_is_not_compared(
    tmp_path,
):
    runs = planted(tmp_path, one=BASE, two=BASE, three=BASE, four=BASE)
    for model, of in {"one": 300, "two": 300, "four": 20}.items():
        graded(tmp_path / "bench" / model, 8, of)
    metrics.note_chain(runs, tmp_path / "bench")
    _, _, rows, _ = tables.chain_table(runs, claims.compare(runs))
    cells = {(row[0], row[1]): row[6] for row in of_marks(rows)}
    assert cells["three", "two"] == cells["three", "one"] == "–"
    assert cells["four", "one"] == "not compared"


def test_runs_that_are_no_chain_have_no_such_table(tmp_path):
    runs = planted(tmp_path, a=BASE, b=BASE)
    assert tables.CHAIN not in [title for title, *_ in tables.tables(runs, claims.compare(runs))]
