"""Descriptions, generated rows and prompts of benchmarks."""

import base64
import hashlib
import json
import pickle
import sys
import zlib
from collections import Counter

import pytest
from decksmith.bench.benchmarks import grading, sources, tasks
from decksmith.core import cli, stream

sys.path.insert(0, str(cli.ROOT / "make"))
import bench_asked  # noqa: E402

# One row as each source gives it: field names from the datasets' cards and from inspect-evals 0.26.0, words ours.
MCQ = {"question": "Q", "choices": ["a", "b", "c", "d"], "answer": 2, "subject": "law"}
ROWS = {
    "gsm8k": ({"question": "Q", "answer": "So it is.\n#### 1,234"}, "1234", None),
    "math-500": (
        {"problem": "Q", "answer": "\\frac{1}{2}", "subject": "Algebra"},
        "\\frac{1}{2}",
        "Algebra",
    ),
    "minif2f": (
        {"name": "two", "formal_statement": "import Mathlib\n\ntheorem two : 1 + 1 = 2 := by\n"},
        {"statement": "import Mathlib\n\ntheorem two : 1 + 1 = 2 := by\n", "name": "two"},
        None,
    ),
    "aime24": ({"ID": "2024-I-1", "Problem": "Q", "Answer": 33}, "33", None),
    "aime25": ({"id": "0", "problem": "Q", "answer": "033"}, "033", None),
    "hmmt_feb25": ({"problem_idx": 1, "problem": "Q", "answer": "\\sqrt{2}"}, "\\sqrt{2}", None),
    "mmlu": (MCQ, "C", "law"),
    "mmlu-pro": (
        {"question": "Q", "options": ["a"] * 10, "answer": "J", "category": "law"},
        "J",
        "law",
    ),
    "gpqa-diamond": (
        {
            "Question": "Q",
            "Correct Answer": "r",
            "Incorrect Answer 1": "x",
            "Incorrect Answer 2": "y",
            "Incorrect Answer 3": "z",
            "High-level domain": "Physics",
        },
        "A",
        "Physics",
    ),
    "ifeval": (
        {
            "prompt": "P",
            "instruction_id_list": ["punctuation:no_comma"],
            "kwargs": [{"num_words": None}],
        },
        {"instructions": ["punctuation:no_comma"], "arguments": [{}]},
        "punctuation",
    ),
    "mbpp": (
        {
            "prompt": "P",
            "test_list": ["assert f() == 1"],
            "test_imports": ["import math"],
            "code": "import re\ndef sum(x):\n  def g(): pass\nclass\tK: pass",
        },
        {"tests": ["import math\nassert f() == 1"], "names": ["sum", "K"]},
        None,
    ),
    "hle": ({"question": "Q", "image": "", "answer": "7", "category": "Math"}, "7", "Math"),
    "arena-hard-v2": (
        {
            "uid": "u",
            "prompt": "P",
            "category": "hard_prompt",
            "joined": {
                "messages": [
                    {"role": "user", "content": "P"},
                    {"role": "assistant", "content": {"answer": "B"}},
                ]
            },
        },
        {"baseline": "B"},
        "hard_prompt",
    ),
}


def made(monkeypatch, name, rows):
    monkeypatch.setitem(sources.READERS, "hub", lambda spec: ("c" * 40, rows))
    return list(tasks._rows(tasks.load(name), {}))


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_the_source_becomes_a_row_of_ours(monkeypatch, name):
    row, expected, subset = ROWS[name]
    (found,) = made(monkeypatch, name, [row])
    assert found["id"] == f"{name}-00001"
    assert (found["task"]["expected"], found["task"]["subset"], found["task"]["revision"]) == (
        expected,
        subset,
        "c" * 40,
    )
    assert tasks.messages(found)[-1]["content"]


def test_every_description_loads_and_has_its_template():
    for name in tasks.names():
        spec = tasks.load(name)
        assert spec.get("grader") in (None, *tasks.GRADERS)
        assert "template" not in spec or tasks.template(spec["template"])


def test_a_row_that_lacks_its_answer_is_named(monkeypatch):
    with pytest.raises(cli.BadData, match="math-500: row 2 has no expected"):
        made(monkeypatch, "math-500", [ROWS["math-500"][0], {"problem": "Q", "subject": "s"}])
    with pytest.raises(
        cli.BadData, match="gsm8k: row 1: assets/benchmarks/gsm8k.toml does not fit it"
    ):
        made(monkeypatch, "gsm8k", [{"question": "Q"}])


def test_questions_with_a_picture_are_left_out_and_numbers_stay(monkeypatch):
    rows = [{**ROWS["hle"][0], "image": "data:.."}, ROWS["hle"][0]]
    assert [row["id"] for row in made(monkeypatch, "hle", rows)] == ["hle-00002"]


CONTEST = {
    "question_content": "Q",
    "starter_code": "",
    "question_id": "q",
    "difficulty": "easy",
    "metadata": json.dumps({"func_name": "put"}),
    "public_test_cases": json.dumps([{"input": "1", "output": "1", "testtype": "functional"}]),
}


def test_hidden_tests_are_unpacked_and_a_pickle_that_names_code_is_refused(monkeypatch):
    class Evil:
        def __reduce__(self):
            return print, ("run",)

    def packed(data):
        return base64.b64encode(zlib.compress(pickle.dumps(data))).decode()

    hidden = packed(json.dumps([{"input": "2", "output": "2", "testtype": "functional"}]))
    (found,) = made(monkeypatch, "livecodebench", [{**CONTEST, "private_test_cases": hidden}])
    assert found["task"]["expected"] == {
        "function": "put",
        "cases": [
            {"input": "1", "output": "1", "kind": "functional"},
            {"input": "2", "output": "2", "kind": "functional"},
        ],
    }
    with pytest.raises(cli.BadData, match="builtins.print"):
        made(monkeypatch, "livecodebench", [{**CONTEST, "private_test_cases": packed(Evil())}])


def test_generated_rows_are_the_same_everywhere():
    found = {
        name: list(tasks._rows(tasks.load(name), {}))
        for name in (
            "arithmetic",
            "briefs",
            "instructions",
            "multilingual",
            "needle",
            "replies",
            "tools",
        )
    }
    assert {name: len(rows) for name, rows in found.items()} == {
        "arithmetic": 200,
        "briefs": 60,
        "instructions": 150,
        "multilingual": 120,
        "needle": 160,
        "replies": 128,
        "tools": 40,
    }
    assert {
        name: hashlib.sha256(b"".join(map(stream.dumps, rows))).hexdigest()[:12]
        for name, rows in found.items()
    } == {
        "arithmetic": "f0688f71816f",
        "briefs": "f26e28019a03",
        "instructions": "ddb08cebb051",
        "multilingual": "df296bcbcacd",
        "needle": "18c143ef098b",
        "replies": "bf883e191928",
        "tools": "33088de06826",
    }


def test_each_generated_problem_is_graded_right_with_its_own_answer():
    for row in tasks._rows(tasks.load("arithmetic"), {}):
        assert (
            grading.grade(
                tasks.load("arithmetic"), row["task"], f"So \\boxed{{{row['task']['expected']}}}"
            )["verdict"]
            == "right"
        )
    row = next(tasks._rows(tasks.load("needle"), {}))
    assert (
        grading.grade(tasks.load("needle"), row["task"], row["task"]["fields"]["text"])["verdict"]
        == "right"
    )


def choice(number):
    return {
        "id": f"gpqa-diamond-{number:05d}",
        "task": {
            "bench": "gpqa-diamond",
            "expected": "A",
            "fields": {"question": "Q", "choices": ["right", "x", "y", "z"]},
        },
    }


def test_choices_are_shuffled_by_id_and_the_grader_finds_the_letter_that_was_shown():
    letters = Counter()
    for number in range(200):
        row = choice(number)
        asked = tasks.messages(row)[0]["content"]
        shown = next(line for line in asked.splitlines() if line.endswith(". right"))
        assert tasks.right_letter(row) == shown[0]
        sample = {**row, "id": row["id"] + "~3", "gen": {"sample": {"of": row["id"], "k": 3}}}
        assert (
            tasks.right_letter(sample) == shown[0] and tasks.messages(sample)[0]["content"] == asked
        )
        letters[shown[0]] += 1
    assert min(letters.values()) > 30


def problem(text, number=1):
    return {
        "id": f"arithmetic-{number:05d}",
        "task": {"bench": "arithmetic", "fields": {"problem": text}, "expected": "1"},
    }


SHOTS = [
    {"id": f"s{i}", "fields": {"problem": text}, "answer": f"A{i}"}
    for i, text in enumerate(
        (
            "Trains leave two stations.",
            "A baker bakes bread and rolls.",
            "A bus leaves a station.",
            "Rolls cost two coins at the baker.",
        )
    )
]


def test_examples_come_as_turns_before_the_question_and_never_are_the_question():
    row = problem("Trains leave two stations.")
    said = tasks.messages(row, SHOTS, 2)
    assert [m["role"] for m in said] == ["user", "assistant", "user", "assistant", "user"]
    assert said[-1]["content"].startswith("Trains leave two stations.\n")
    assert all("Trains" not in m["content"] for m in said[:-1])
    assert tasks.messages(row, SHOTS, 2) == said


def test_pictures_become_parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").write_bytes(b"PNG")
    row = problem("Look")
    row["task"]["fields"]["images"] = ["a.png", "https://example.org/b.png"]
    text = tasks.messages(problem("Look"))[0]["content"]
    assert tasks.messages(row) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": text},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,UE5H"}},
                {"type": "image_url", "image_url": {"url": "https://example.org/b.png"}},
            ],
        }
    ]


@pytest.mark.parametrize(
    "path", ["../secret.png", "/etc/passwd", "in/../../secret.png", "link.png"]
)
def test_a_row_cannot_have_a_file_outside_of_the_folder_sent(tmp_path, monkeypatch, path):
    (tmp_path / "secret.png").write_bytes(b"PNG")
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    (tmp_path / "in/link.png").symlink_to("../secret.png")
    row = problem("Look")
    row["task"]["fields"]["images"] = [path]
    with pytest.raises(cli.BadData, match="is not in"):
        tasks.messages(row)


def test_what_is_fetched_is_pinned_and_those_without_a_known_commit_are_named():
    sources = {name: tasks.load(name)["source"] for name in tasks.names()}
    assert {
        name for name, source in sources.items() if "hub" in source and "revision" not in source
    } == {"published", "spider"}
    assert all(source["revision"] for source in sources.values() if "package" in source)


def test_a_revision_that_can_move_and_a_judge_that_is_not_named_are_refused(monkeypatch, tmp_path):
    (tmp_path / "assets/benchmarks").mkdir(parents=True)
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    whole = 'title = "T"\nsource = { hub = "a/b", split = "test", revision = "%s" }\nrow = "."\ngrader = "%s"\nlicence = "MIT"\n'
    made = 'title = "T"\nsource = { %s }\nlicence = "MIT"\ngrader = "math"\n'
    for name, text, said in (
        ("misspelt", made % 'generated = "quizz", rows = 2, seed = 1', "'quizz' is none of arith"),
        ("unseeded", made % 'generated = "briefs", rows = 2', "a generated one rows and seed"),
        ("moving", whole % ("main", "math"), "revision 'main' can move"),
        ("judged", whole % ("a" * 40, "rubric"), "needs judge"),
        (
            "lenient",
            whole % ("a" * 40, "math") + 'margin = "2 %"\n',
            "margin is '2 %'; it is a share",
        ),
    ):
        (tmp_path / f"assets/benchmarks/{name}.toml").write_text(text)
        with pytest.raises(cli.BadConfig, match=said):
            tasks.load(name)


def test_a_template_that_asks_for_what_is_not_there_is_refused():
    with pytest.raises(cli.BadData, match="asks for {question}; the row has problem"):
        tasks.filled("{question}", {"problem": "x"}, "r")
    assert (
        tasks.filled("\\boxed{} {problem}", {"problem": "{problem}"}, "r") == "\\boxed{} {problem}"
    )


@pytest.mark.parametrize(
    "each, model, found",
    [
        (
            "aime25:4",
            None,
            "--samples 4 --seed 0 --temperature 0.7 --top-p 0.95 --max-tokens 32768",
        ),
        ("gsm8k:1", "smol", "--temperature 0.0 --max-tokens 1024"),
        (
            "math-500",
            "gpt-5.4",
            "--samples 4 --seed 0 --temperature 0.7 --top-p 0.95 --max-tokens 16384",
        ),
        ("gsm8k:0", None, "--temperature 0.0 --max-tokens 2048"),
    ],
)
def test_name_and_number_become_the_flags_of_the_client(each, model, found):
    assert bench_asked.flags(each, model) == found


def test_every_benchmark_of_ours_says_which_published_figures_it_may_stand_beside():
    named = {path.stem for path in (cli.ROOT / "assets/benchmarks").glob("*.toml")}
    said = {name: tasks.load(name).get("beside", "") for name in named}
    assert [name for name, text in said.items() if len(text.split()) < 4] == []
    alone = [name for name in said if tasks.load(name)["kind"] in ("generated", "own", "file")]
    assert [name for name in alone if not said[name].startswith("none")] == []
