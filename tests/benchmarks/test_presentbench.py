"""PresentBench's layout, with a case of our own words."""

import json
import subprocess
import sys

from decksmith.bench.benchmarks import tasks
from decksmith.core import cli
from decksmith.measure.decks import sources
from decksmith.measure.judging import prompt_rows

PROGRAM = cli.ROOT / "assets/benchmarks/presentbench.py"

CODE = {"__type__": "partial", "func": "utils.count_pages.check_slide_count", "args": []}


def case(root, name="academia/CVPR 2025/A paper (final)", **files):
    folder = root / "presentbench" / name
    judge = {
        "material_independent_checklist_1": ["Is there a title?", CODE],
        "material_dependent_checklist_1": ["Does a slide name 94 millimetres?"],
        "material_dependent_checklist_3": ["Is page 1 right?"],
    }
    written = {
        "generation_task/judge_prompt.json": json.dumps(judge),
        "generation_task/generation_prompt.md": "Make 12 slides of the paper.\n",
        "material.md": "# Rain\n\n94 millimetres fell.\n",
        "material_1.md": "# More\n\nAnd 12 more.\n",
        "material_1.pdf": "the same as a picture",
        "../../common_judge_prompt.json": json.dumps(
            {"material_dependent_checklist_2": ["Is the source named?"]}
        ),
        **files,
    }
    for path, text in written.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (folder / path).write_text(text)


def rows(root):
    done = subprocess.run([sys.executable, PROGRAM, root], capture_output=True, text=True)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_case_becomes_a_prompt_with_its_material_and_its_questions_in_words(
    tmp_path, monkeypatch
):
    case(tmp_path)
    monkeypatch.setattr(sources, "FOLDER", tmp_path)
    _, (printed,), _ = rows(tmp_path)
    (row,) = prompt_rows.rows(printed)
    assert row["id"] == "academia-CVPR-2025-A-paper-final-"
    assert row["source"] == {"path": "academia/CVPR 2025/A paper (final)"}
    assert row["asks"] == {"slides": 12, "language": "en", "domain": "academia"}
    assert [item["id"] for item in row["checklist"]] == ["i1.1", "d1.1", "d2.1"]
    assert [source["name"] for source in row["sources"]] == ["material.md", "material_1.md"]
    assert "94 millimetres fell." in row["messages"][1]["content"]
    (again,) = prompt_rows.rows(json.dumps(row))
    assert again == row
    prompt_rows.valid(row)


def test_the_other_name_of_the_instructions_is_read_too(tmp_path):
    case(
        tmp_path,
        **{
            "generation_task/generation_prompt.md": None,
            "generation_task/instructions.md": "Nine slides",
        },
    )
    _, (printed,), _ = rows(tmp_path)
    assert printed["request"] == "Nine slides"


def test_what_is_missing_is_named(tmp_path):
    status, _, said = rows(tmp_path)
    assert status and "hf download PresentBench/PresentBench" in said.splitlines()[-1]
    case(tmp_path, **{"generation_task/generation_prompt.md": None})
    status, _, said = rows(tmp_path)
    assert status and "has no request, or no material" in said.splitlines()[-1]


def test_it_is_one_of_the_benchmarks_and_a_row_keeps_where_its_case_is(monkeypatch):
    monkeypatch.setitem(
        tasks.load("presentbench")["source"],
        "program",
        """echo '{"id": "a", "source": {"path": "b"}}'""",
    )
    assert list(tasks.prepare("presentbench", cli.ROOT / "data/bench")) == [
        {"id": "a", "source": {"path": "b"}}
    ]
