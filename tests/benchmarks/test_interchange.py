"""Results of other harnesses as rows of ours, and ours as their files."""

import json
import zipfile

import pytest
from decksmith.bench.benchmarks import interchange, metrics
from decksmith.core import cli, stream


def skills_row(number, right, **more):
    """One row as NeMo-Skills writes it (names from its sources, words ours)."""
    return {
        "problem": f"What is {number}+1?",
        "expected_answer": str(number + 1),
        "generation": f"So \\boxed{{{number + 1 if right else 0}}}",
        "predicted_answer": str(number + 1 if right else 0),
        "symbolic_correct": right,
        "num_generated_tokens": 12,
        "num_input_tokens": 9,
        "generation_start_time": 1_760_000_000.0 + number,
        "generation_time": 2.0,
        "finish_reason": "stop",
        **more,
    }


def outputs(folder, rows, name="output.jsonl", metrics_json=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    if metrics_json:
        (folder / "metrics.json").write_text(json.dumps(metrics_json))
    return folder


def test_a_folder_of_nemo_skills_with_its_seeds_gives_their_score(tmp_path, capsys):
    folder = tmp_path / "aime25"
    said = {"aime25": {"pass@1[avg-of-2]": {"symbolic_correct": 75.0}}}
    outputs(folder, [skills_row(1, True), skills_row(2, True)], "output-rs0.jsonl", said)
    outputs(folder, [skills_row(1, False), skills_row(2, True)], "output-rs1.jsonl")
    rows = list(interchange.skills(folder, "aime25", "theirs"))
    assert [row["id"] for row in rows[:2]] == ["aime25-00001~0", "aime25-00001~1"]
    found = metrics.summarize(metrics.read(enumerate(rows, 1))["aime25"])
    assert found["modes"]["pass@1[avg-of-2]"]["symbolic_correct"] == 0.75
    assert found["modes"]["pass@1[avg-of-2]"]["avg_tokens"] == 12
    assert "aime25: 75.00 %, as in their metrics.json" in capsys.readouterr().err
    outputs(folder, [skills_row(1, True)], "output-rs1.jsonl")
    with pytest.raises(cli.BadData, match=r"output-rs0.jsonl: 2, output-rs1.jsonl: 1 rows"):
        list(interchange.skills(folder, "aime25", "theirs"))
    outputs(folder, [])
    with pytest.raises(cli.BadData, match="remove those of one run"):
        list(interchange.skills(folder, "aime25", "theirs"))


@pytest.mark.parametrize(
    "bench, verdict, right",
    [
        ("hle", {"judgement": "Reasoning.\nJudgement: Yes"}, True),
        ("hle", {"judgement": "Judgement: perhaps"}, False),
        ("humaneval", {"is_correct": True, "is_correct-plus": False}, True),
        ("humaneval-plus", {"is_correct": True, "is_correct-plus": False}, False),
        ("livecodebench", {"graded_list": [True]}, True),
        (
            "ifeval",
            {
                "strict_eval": {
                    "follow_all_instructions": False,
                    "follow_instruction_list": [True, False],
                }
            },
            False,
        ),
    ],
)
def test_every_kind_of_verdict_is_read(tmp_path, bench, verdict, right):
    row = skills_row(1, True, **verdict)
    del row["symbolic_correct"]
    (found,) = interchange.skills(outputs(tmp_path / bench, [row]), bench, "m")
    assert found["grade"]["score"] == float(right)


def test_what_cannot_be_read_is_named_and_rows_without_a_verdict_can_be_graded_here(tmp_path):
    row = skills_row(1, True)
    del row["symbolic_correct"]
    folder = outputs(tmp_path / "aime25", [row])
    with pytest.raises(cli.BadData, match=r"output.jsonl:1: no verdict in this row; --ungraded"):
        list(interchange.skills(folder, "aime25", "m"))
    (found,) = interchange.skills(folder, "aime25", "m", ungraded=True)
    assert "grade" not in found and found["task"]["expected"] == "2"
    with pytest.raises(cli.Missing, match="no output.jsonl"):
        list(interchange.skills(tmp_path, "aime25", "m"))
    outputs(folder, [{"generation": 3}])
    with pytest.raises(cli.BadData, match=r"output.jsonl:1: a row of NeMo-Skills"):
        list(interchange.skills(folder, "aime25", "m"))
    outputs(folder, [row], "output-rs0_chunk_1.jsonl")
    with pytest.raises(cli.BadData, match="not joined"):
        list(interchange.skills(folder, "aime25", "m"))


@pytest.fixture
def graded(tmp_path):
    """A model's folder with one benchmark of four rows, of which the last has no grade."""
    rows = [skills_row(n, n < 3) for n in range(4)]
    found = list(interchange.skills(outputs(tmp_path / "aime25", rows), "aime25", "org/m"))
    found[3]["grade"] = {"error": {"kind": "judge", "class": "grader-timeout", "message": "m"}}
    lines = b"".join(stream.dumps(row) + b"\n" for row in found)
    stream.write(tmp_path / "m/aime25/rows.jsonl", lines)
    return tmp_path / "m"


def test_results_become_a_log_of_inspect_in_which_a_row_without_a_grade_has_an_error(
    tmp_path, graded
):
    (path,) = interchange.inspect(tmp_path / "out", graded)
    assert path.name == "org__m_aime25.eval"
    with zipfile.ZipFile(path) as log:
        header = json.loads(log.read("header.json"))
        last = json.loads(log.read("samples/aime25-00004_epoch_1.json"))
        first = json.loads(log.read("samples/aime25-00001_epoch_1.json"))
    assert header["results"]["scores"][0]["metrics"]["mean"]["value"] == 1.0
    assert (header["results"]["total_samples"], header["results"]["completed_samples"]) == (4, 3)
    assert first["scores"] == {"symbolic_correct": {"value": 1.0, "answer": "1"}}
    assert last["scores"] == {} and last["error"]["message"].startswith(
        "judge fault, grader-timeout"
    )


def rollout(task, number, text, **said):
    """A line as NeMo Gym's collector writes it; its keys are those of 0.7.0, its content ours."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": number,
        "responses_create_params": {"input": [{"role": "user", "content": f"question {task}"}]},
        "response": {
            "model": "served",
            "output": [
                {"type": "reasoning", "summary": []},
                {"type": "message", "role": "assistant", "content": content},
            ],
            "usage": {"input_tokens": 9, "output_tokens": 4},
        },
        **said,
    }


def test_rollouts_of_nemo_gym_become_graded_samples_of_their_tasks(tmp_path):
    rows = [
        rollout(1, 0, "b", reward=0.0, extracted_answer="b"),
        rollout(0, 1, "no", reward=1.0),
        rollout(0, 0, "a", reward=1.0),
        rollout(2, 0, "", reward=0.0, mask_sample=True, failure_kind="verifier_timeout"),
    ]
    path = tmp_path / "rollouts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = list(interchange.gym(path, "gym-aime24", "theirs"))
    assert [(one["id"], one["gen"]["text"]) for one in found] == [
        ("gym-aime24-00001~0", "a"),
        ("gym-aime24-00001~1", "no"),
        ("gym-aime24-00002", "b"),
        ("gym-aime24-00003", ""),
    ]
    assert [one["grade"].get("verdict") for one in found] == ["right", "right", "wrong", None]
    assert found[3]["grade"]["error"]["class"] == "verifier_timeout"
    assert found[0]["messages"] == [{"role": "user", "content": "question 0"}]
    assert found[0]["gen"]["usage"] == {"prompt_tokens": 9, "completion_tokens": 4}
    assert "grade" not in next(interchange.gym(path, "gym-aime24", "theirs", ungraded=True))
    path.write_text('{"reward": 1}\n')
    with pytest.raises(cli.BadData, match=r"rollouts.jsonl:1: a rollout has _ng_task_index"):
        list(interchange.gym(path, "gym-aime24", "theirs"))
    for broken in ({"output": "x"}, {"output": [7]}, {"usage": ["x"]}, {"output": 7}):
        path.write_text(json.dumps({"_ng_task_index": 0, "response": broken}) + "\n")
        with pytest.raises(cli.BadData, match=r"rollouts.jsonl:1: "):
            list(interchange.gym(path, "gym-aime24", "theirs"))
