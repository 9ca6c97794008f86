"""Logs of other tools as graded rows of ours. Every form was made by the tool itself once (lm-eval 0.4.13, inspect_ai 0.3.285, lighteval
0.13.0, evals 3.0.1.post1, crfm-helm 0.5) and is written here by hand with the same keys."""

import io
import json
import random
import struct
import zipfile

import fuzz
import pyarrow
import pyarrow.parquet
import pytest
from decksmith.bench.benchmarks import groups, harnesses, metrics
from decksmith.core import cli, stream

pytestmark = pytest.mark.slow

DATE = "2026-11-24T17-03-25.245785"
DAYS = "mon tue wed thu fri sat sun".split()


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def put(folder, name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


# The forms, each of questions 0 .. n-1 of which those in `right` are right


def lm_eval(folder, right, n=30, task="mini", version=2.0, model="org/m", prompt="p"):
    rows = [
        {
            "doc_id": k,
            "doc": {"question": f"{k}?", "subject": DAYS[k % 7]},
            "target": str(k),
            "arguments": {"gen_args_0": {"arg_0": f"{prompt} {k}", "arg_1": {"until": ["\n"]}}},
            "resps": [["x"]],
            "filtered_resps": ["x"],
            "filter": name,
            "metrics": ["exact_match", "f1"],
            "doc_hash": f"d{k}",
            "prompt_hash": f"{prompt}{k}",
            "target_hash": f"t{k}",
            "exact_match": float(k in right) if name == "strict" else 1.0,
            "f1": 0.25,
        }
        for name in ("strict", "flexible")
        for k in range(n)
    ]
    means = {f"exact_match,{name}": 0.0 for name in ("strict", "flexible")}
    means["exact_match,strict"] = len(right) / n
    said = {"results": {task: means}, "versions": {task: version}, "n-shot": {task: 0}}
    config = {"model": "hf", "model_args": f"pretrained={model},dtype=auto"}
    put(folder, f"results_{DATE}.json", {**said, "config": config, "configs": {task: {}}})
    return put(folder, f"samples_{task}_{DATE}.jsonl", lines(rows))


def eval_log(right, n=30, epochs=1, model="org/m", version=0, lost=(), **header):
    """The header and the summaries of a log of Inspect."""
    listed = [
        {
            "id": f"q/{k}",
            "epoch": epoch,
            "input": f"{k}?",
            "target": str(k),
            "metadata": {"category": DAYS[k % 7]},
            "scores": {} if k in lost else {"match": {"value": "C" if k in right else "I"}},
            "model_usage": {model: {"input_tokens": 4, "output_tokens": 11}},
            **({"error": "the sandbox went away"} if k in lost else {}),
        }
        for epoch in range(1, epochs + 1)
        for k in range(n)
    ]
    made = {"version": 2, "status": "success", "plan": {"steps": [{"solver": "generate"}]}}
    made["eval"] = {"task": "inspect_evals/mini", "task_version": version, "model": model}
    made["results"] = {
        "scores": [
            {"name": "match", "scorer": "match", "params": {}, "metrics": {}},
        ],
        "headline": {"scorer": "match", "score": "match", "metric": "accuracy"},
    }
    return {**made, **header}, listed


def inspect(folder, right, name="log.eval", packing=zipfile.ZIP_DEFLATED, **more):
    header, listed = eval_log(right, **more)
    if name.endswith(".json"):
        return put(folder, name, json.dumps({**header, "samples": listed}, indent=1).encode())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", packing) as file:
        file.writestr("header.json", json.dumps(header))
        file.writestr("summaries.json", json.dumps(listed))
        file.writestr("samples/../../../escape.json", "{}")
    return put(folder, name, buffer.getvalue())


def zstandard(path):
    """The same zip with every file packed as Zstandard, as Inspect packs today: method 93, which zipfile cannot write."""
    with zipfile.ZipFile(path) as file:
        members = {info.filename: file.read(info) for info in file.infolist()}
    body, directory = b"", b""
    for name, data in members.items():
        sink = pyarrow.BufferOutputStream()
        with pyarrow.CompressedOutputStream(sink, "zstd") as packed:
            packed.write(data)
        packed, crc = sink.getvalue().to_pybytes(), zipfile.crc32(data)
        common = struct.pack("<HHHHIIIHH", 63, 0, 93, 0, 0x21 << 0, crc, len(packed), len(data), 0)
        common = struct.pack(
            "<HHHHHIIIHH", 63, 0, 93, 0, 33, crc, len(packed), len(data), len(name), 0
        )
        directory += struct.pack("<IH", 0x02014B50, 63) + common
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name.encode()
        body += struct.pack("<I", 0x04034B50) + common + name.encode() + packed
    end = struct.pack(
        "<IHHHHIIH", 0x06054B50, 0, 0, len(members), len(members), len(directory), len(body), 0
    )
    path.write_bytes(body + directory + end)
    return path


def lighteval(folder, right, n=30, model="org/m"):
    rows = [
        {
            "doc": {
                "query": f"{k}?",
                "choices": ["a", "b"],
                "gold_index": 0,
                "specific": {"subset": DAYS[k % 7]},
                "id": str(k),
                "task_name": "mini|0",
            },
            "metric": {"acc": int(k in right)},
            "model_response": {"text": ["x"]},
        }
        for k in range(n)
    ]
    said = {
        "config_general": {"model_config": {"model_name": model, "generation_parameters": {}}},
        "results": {"mini|0": {"acc": len(right) / n}},
        "config_tasks": {"mini|0": {"version": 1}},
        "versions": {},
    }
    put(folder, f"results/org/results_{DATE}.json", said)
    path = folder / f"details/org/{DATE}/details_mini|0_{DATE}.parquet"
    path.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def openai_evals(folder, right, n=30, model="org/m"):
    spec = {"completion_fns": [model], "eval_name": "mini.dev.v0", "base_eval": "mini"}
    run = {"eval_spec": {"cls": "Match", "args": {"samples_jsonl": "x.jsonl"}}}
    rows = [{"spec": {**spec, "run_config": run}}]
    rows.append({"final_report": {"accuracy": len(right) / n}, "run_id": "r"})
    for k in range(n):
        event = {"run_id": "r", "event_id": k, "sample_id": f"mini.dev.{k}"}
        rows.append({**event, "type": "sampling", "data": {"prompt": "p", "sampled": ["x"]}})
        data = {"correct": k in right, "expected": str(k), "picked": None, "sampled": "x"}
        rows.append({**event, "type": "match", "data": data})
        rows.append({**event, "type": "metrics", "data": {"accuracy": 1.0, "f1_score": 0.5}})
    return put(folder, "mini.jsonl", lines(rows))


def helm(folder, right, n=30, trials=1, model="org/m"):
    def stat(name, value):
        return {"name": {"name": name, "split": "test"}, "count": 1, "sum": value, "mean": value}

    rows = [
        {
            "instance_id": f"id{k}",
            "train_trial_index": trial,
            "stats": [stat("num_prompt_tokens", 7), stat("num_output_tokens", 5)]
            + [stat("exact_match", float(k in right)), stat("logprob", -3.5)],
            **({"perturbation": {"name": "typos"}} if turned else {}),
        }
        for trial in range(trials)
        for turned in (False, True)
        for k in range(n)
    ]
    run = folder / f"mini:subject=anatomy,model={model.replace('/', '_')}"
    adapter = {"method": "generation", "model": model, "temperature": 0.0}
    name = f"mini:subject=anatomy,model={model.replace('/', '_')}"
    put(run, "run_spec.json", {"name": name, "scenario_spec": {"c": "m"}, "adapter_spec": adapter})
    return put(run, "per_instance_stats.json", json.dumps(rows, indent=2).encode())


FORMS = [lm_eval, inspect, lighteval, openai_evals, helm]
FEW = [pytest.param(x, marks=[] if x in FORMS[:2] else pytest.mark.long) for x in FORMS]


def graded(path, **given):
    return [
        row
        for some in harnesses.logs(path, given).values()
        for log in some
        for row in harnesses.rows(log)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_known_by_its_content_and_gives_its_questions_scores_and_groups(
    tmp_path, form, capsys
):
    path = form(tmp_path, {*range(12)})
    found = graded(path)
    assert len(found) == 30 and len({row["id"] for row in found}) == 30
    assert all(stream.ID.match(row["id"]) for row in found)
    assert sum(row["grade"]["score"] for row in found) == 12
    assert {row["gen"]["model"]["name"] for row in found} == {"org/m"}
    summary = metrics.summarize(
        metrics.read(enumerate(found, 1), lean=True)[found[0]["task"]["bench"]]
    )
    assert metrics.main_score(summary) == 0.4
    said = capsys.readouterr().err
    assert (
        f"{path}: 30 rows of {found[0]['task']['bench']} by org/m (" in said and ": 0.400" in said
    )
    if form in (lm_eval, lighteval, openai_evals):
        assert "0.400, as the log says)" in said
    if form in (lm_eval, inspect, lighteval):
        assert {row["task"]["subset"] for row in found} == {*DAYS}
    # A folder that it lies in is as good as the file.
    assert graded(tmp_path) == found


def test_what_the_files_of_lm_eval_say_is_kept(tmp_path, capsys):
    path = lm_eval(tmp_path, {1, 2, 3}, task="mmlu_anatomy")
    row = graded(path)[1]
    assert row["id"] == "mmlu_anatomy-00001"
    assert row["task"]["revision"] == "lm-eval 2"  # of the file beside it
    assert row["task"]["metric"] == "exact_match,strict"
    assert "; 30 of other metrics left out" in capsys.readouterr().err
    (path.parent / f"results_{DATE}.json").unlink()
    assert graded(path)[1]["gen"]["model"]["name"] == "unknown"
    assert sum(row["grade"]["score"] for row in graded(path, metric="exact_match,flexible")) == 30
    assert graded(path, metric="f1")[0]["grade"]["score"] == 0.25
    assert graded(path, metric="f1", scale=(0, 0.5), model="mine")[0]["grade"]["score"] == 0.5
    with pytest.raises(cli.BadData, match="no score bleu; it has exact_match, f1"):
        graded(path, metric="bleu")


def test_epochs_are_samples_of_one_question_and_a_sample_with_an_error_has_no_score(
    tmp_path, capsys
):
    found = graded(inspect(tmp_path, {0, 1}, n=5, epochs=3, lost={4}))
    assert [row["id"] for row in found[:1]] == [
        f"inspect_evals-mini-q-0-{stream.fingerprint('q/0')[:8]}~0"
    ]
    questions = metrics.read(enumerate(found, 1))["inspect_evals-mini"]
    assert {len(samples) for samples in questions.values()} == {3} and len(questions) == 5
    summary = metrics.summarize(questions)
    assert (summary["samples"], summary["coverage"]) == (3, 0.8)
    assert summary["errors"]["classes"][0]["class"] == "no-score"
    assert "; 3 without a score" in capsys.readouterr().err
    assert metrics.main_score(summary) == 0.5


def test_logs_of_inspect_are_read_as_zip_with_either_packing_and_as_json(tmp_path):
    want = graded(inspect(tmp_path, {3, 4}))
    assert graded(zstandard(inspect(tmp_path, {3, 4}, "zstd.eval"))) == want
    assert graded(inspect(tmp_path, {3, 4}, "log.json")) == want
    started = inspect(tmp_path, set(), "begun.json", status="started")
    with pytest.raises(cli.BadData, match="has not ended"):
        graded(started)


def test_helms_trials_are_samples_and_its_perturbed_questions_are_left_out(tmp_path):
    found = graded(helm(tmp_path, {1, 2}, trials=2))
    assert len(found) == 60 and found[0]["id"].endswith("~0")
    assert found[0]["task"]["bench"] == "mini-subject-anatomy"
    assert found[0]["gen"]["usage"] == {"prompt_tokens": 7, "completion_tokens": 5}


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
        "finish_reason": "stop",
        **more,
    }


def test_a_folder_of_nemo_skills_with_its_seeds_gives_their_score(tmp_path, capsys):
    folder = tmp_path / "aime25"
    put(folder, "metrics.json", {"aime25": {"pass@1[avg-of-2]": {"symbolic_correct": 75.0}}})
    put(folder, "output-rs0.jsonl", lines([skills_row(1, True), skills_row(2, True)]))
    put(folder, "output-rs1.jsonl", lines([skills_row(1, False), skills_row(2, True)]))
    found = graded(folder)
    assert [row["id"] for row in found] == [f"aime25-0000{n}~{k}" for k in (0, 1) for n in (1, 2)]
    said = metrics.summarize(metrics.read(enumerate(found, 1))["aime25"])
    assert said["modes"]["pass@1[avg-of-2]"]["symbolic_correct"] == 0.75
    assert said["modes"]["pass@1[avg-of-2]"]["avg_tokens"] == 12
    put(folder, "output-rs0_chunk_1.jsonl", lines([skills_row(1, True)]))
    with pytest.raises(cli.BadData, match="not joined"):
        graded(folder)


@pytest.mark.parametrize(
    "bench, verdict, right",
    [
        ("hle", {"judgement": "Reasoning.\nJudgement: Yes"}, True),
        ("hle", {"judgement": "Judgement: yes\nno, Judgement: no"}, False),
        ("hle", {"judgement": "Judgement: perhaps"}, False),
        ("humaneval", {"is_correct": True, "is_correct-plus": False}, True),
        ("humaneval-plus", {"is_correct": True, "is_correct-plus": False}, False),
        ("livecodebench", {"graded_list": [True]}, True),
        ("ifeval", {"strict_eval": {"follow_all_instructions": False}}, False),
    ],
)
def test_every_kind_of_verdict_of_nemo_skills_is_read(tmp_path, bench, verdict, right):
    row = skills_row(1, True, **verdict)
    del row["symbolic_correct"]
    put(tmp_path / bench, "output.jsonl", lines([row]))
    (found,) = graded(tmp_path / bench)
    assert found["grade"]["score"] == float(right)


def imported(path):
    """(benchmark, model, {question: score or error class}) of a log of one tool."""
    ((name, (log,)),) = harnesses.logs(path).items()
    found = {}
    for record in harnesses.rows(log):
        grade = record["grade"]
        value = grade["error"]["class"] if "error" in grade else grade["score"]
        found[record["id"].removeprefix(f"{name}-")] = value
    return name, log.head["model"], found


def test_a_report_of_swe_bench_has_a_row_for_each_instance_and_no_verdict_of_a_broken_machine(
    tmp_path,
):
    report = {"resolved_ids": ["o__n-1"], "unresolved_ids": ["o__n-2", "o__n-5"]}
    report |= {"empty_patch_ids": ["o__n-3"], "error_ids": ["o__n-4", "o__n-5"]}
    report |= {"infra_failure_ids": ["o__n-5"], "incomplete_ids": ["o__n-6"], "schema_version": 2}
    name, model, found = imported(put(tmp_path, "org__m.run1.json", report))
    assert (name, model) == ("swe-bench", "org/m")
    scores = {"o__n-1": 1.0, "o__n-2": 0.0, "o__n-3": 0.0, "o__n-4": 0.0}
    assert found == scores | {"o__n-5": "infra-failure"}


def test_results_of_tau_bench_are_samples_of_its_tasks(tmp_path):
    def run(task, trial, reward):
        said = {"task_id": task, "trial": trial, "termination_reason": "infrastructure_error"}
        return said | {"reward_info": None if reward is None else {"reward": reward}}

    runs = [run("3", 0, 1.0), run("3", 1, 0.0), run("4", 0, 0.0), run("4", 1, None)]
    info = {"agent_info": {"llm": "org/m"}, "environment_info": {"domain_name": "retail"}}
    info |= {"user_info": {"llm": "u"}, "git_commit": "c"}
    log = put(tmp_path, "one.json", {"info": info, "tasks": [], "simulations": runs})
    name, model, found = imported(log)
    assert (name, model) == ("tau2-retail", "org/m")
    rest = {"4~0": 0.0, "4~1": "infrastructure_error"}
    assert found == {"3~0": 1.0, "3~1": 0.0} | rest


def test_results_of_bigcodebench_are_samples_of_its_tasks(tmp_path):
    kept = {"BigCodeBench/1": ["pass", "fail"], "BigCodeBench/2": ["timeout", "pass"]}
    tried = {
        task: [{"task_id": task, "solution": "x", "status": one, "details": {}} for one in some]
        for task, some in kept.items()
    }
    log = {"date": "2026-11-28 10:00", "eval": tried}
    path = put(
        tmp_path,
        "org--m--main--bigcodebench-hard-complete--vllm-0-1-sanitized_eval_results.json",
        log,
    )
    name, model, found = imported(path)
    assert (name, model) == ("bigcodebench", "org/m")
    assert sorted(found.values()) == [0.0, 0.0, 1.0, 1.0]


def test_rollouts_of_nemo_gym_are_samples_of_their_tasks(tmp_path):
    def rollout(task, number, text, **said):
        parts = [{"type": "output_text", "text": text}]
        output = [{"type": "reasoning"}, {"type": "message", "role": "assistant", "content": parts}]
        usage = {"input_tokens": 9, "output_tokens": 4}
        response = {"model": "served", "output": output, "usage": usage}
        asked = {"input": [{"role": "user", "content": f"question {task}"}]}
        key = {"_ng_task_index": task, "_ng_rollout_index": number}
        return {**key, "responses_create_params": asked, "response": response, **said}

    rows = [
        rollout(1, 0, "b", reward=0.0, extracted_answer="b"),
        rollout(0, 1, "no", reward=1.0),
        rollout(0, 0, "a", reward=2.0),
        rollout(2, 0, "", reward=0.0, mask_sample=True, failure_kind="verifier_timeout"),
    ]
    path = put(tmp_path / "gym-aime24", "rollouts.jsonl", lines(rows))
    found = {row["id"]: row for row in graded(path)}
    assert found["gym-aime24-00001~0"]["grade"]["score"] == 1.0
    assert found["gym-aime24-00001~1"]["gen"]["text"] == "no"
    assert found["gym-aime24-00002~0"]["grade"]["answer"] == "b"
    assert found["gym-aime24-00003~0"]["grade"]["error"]["class"] == "verifier_timeout"
    assert found["gym-aime24-00001~0"]["gen"]["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": 4,
    }


# What is refused


@pytest.mark.parametrize("value", ["True", "0.7", 7, -0.1, [1], {"a": 1}, 1e300])
def test_a_score_that_is_none_is_refused_and_never_made_into_one(tmp_path, value):
    path = lm_eval(tmp_path, {1})
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[4]["exact_match"] = value
    path.write_bytes(lines(rows))
    with pytest.raises(
        cli.BadData, match=r"samples_mini.*: record 5: .*(--scale LO,HI|Infinity|number)"
    ):
        graded(path)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "null"])
def test_a_score_that_is_no_number_is_no_score(tmp_path, value):
    path = lm_eval(tmp_path, {1})
    path.write_text(path.read_text().replace('"exact_match": 1.0', f'"exact_match": {value}', 1))
    found = graded(path)
    assert "error" in found[1]["grade"] and sum("error" in row["grade"] for row in found) == 1


def test_what_is_no_log_is_refused_with_what_it_is_and_what_is_taken(tmp_path):
    means = put(tmp_path, "results.json", {"results": {}, "configs": {}})
    with pytest.raises(cli.BadData) as refused:
        harnesses.logs(means)
    said = str(refused.value)
    assert "a file with the keys results, configs (means alone say nothing of a question)" in said
    assert (
        "lm-eval: samples_TASK_DATE.jsonl, by `lm_eval .. --log_samples --output_path DIR`" in said
    )
    for name, data in (
        ("a.csv", b"id,score\n1,1\n"),
        ("b", b""),
        ("c.eval", b"PK\3\4x"),
        ("d", b"PAR1"),
    ):
        with pytest.raises(cli.BadData, match=str(tmp_path / name)):
            harnesses.logs(put(tmp_path, name, data))
    with pytest.raises(cli.BadData, match="a folder of 0 files"):
        (tmp_path / "empty").mkdir()
        harnesses.logs(tmp_path / "empty")


def test_two_logs_of_one_task_or_of_two_models_in_a_folder_are_not_mixed(tmp_path):
    lm_eval(tmp_path, {1}, task="one")
    (tmp_path / f"samples_one_{DATE}.jsonl").rename(
        tmp_path / "samples_one_2026-01-01T00-00-00.jsonl"
    )
    lm_eval(tmp_path, {1}, task="one")
    with pytest.raises(cli.BadData, match="are both of one; name one of them"):
        harnesses.logs(tmp_path)
    lm_eval(tmp_path / "x/a", {1}, task="one", model="org/a")
    lm_eval(tmp_path / "x/b", {1}, task="two", model="org/b")
    with pytest.raises(cli.BadData, match="has logs of org/a, org/b"):
        harnesses.logs(tmp_path / "x")


def test_a_zip_that_unpacks_to_more_than_any_log_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(harnesses, "ALL", 8 << 20)
    monkeypatch.setattr(harnesses, "LARGEST", 4 << 20)
    header, listed = eval_log({1})
    for summaries in (b"[" + b" " * (64 << 20), b'[{"id": "' + b"x" * (64 << 20)):
        path = tmp_path / "bomb.eval"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("header.json", json.dumps(header))
            file.writestr("summaries.json", summaries)
        assert path.stat().st_size < 1 << 17
        with pytest.raises(cli.BadData, match="unpacks to more than|not JSON"):
            graded(path)


def test_a_name_from_a_log_is_no_path_and_no_markdown(tmp_path):
    path = inspect(
        tmp_path,
        {1},
        eval={"task": "../../x|<b>@you", "model": "`rm`\n#1 @me", "task_version": "| |"},
    )
    row = graded(path)[0]
    assert row["task"]["bench"] == "x-b-you" and row["gen"]["model"]["name"] == "rm-1-me"
    assert stream.ID.match(row["id"]) and "|" not in row["task"]["revision"]


@pytest.mark.fuzz
@pytest.mark.parametrize("form", FEW)
def test_of_damaged_files_of_each_form_none_gives_a_traceback_or_rubbish(tmp_path, form):
    """Bytes changed, cut out, doubled; values swapped for others."""
    path = form(tmp_path, {1, 2}, n=4)
    whole, draw = path.read_bytes(), random.Random(form.__name__)
    spoilt = [
        b"NaN",
        b'"True"',
        b"7",
        b"-1",
        b"null",
        b"[]",
        b"{}",
        b'"\\ud800"',
        b"1e999",
        b"\xff",
    ]
    read = 0
    for _ in range(fuzz.times(400)):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            at, size = draw.randrange(len(data) or 1), draw.randint(1, 12)
            kind = draw.randrange(4)
            if kind == 0:
                data[at : at + 1] = bytes([draw.randrange(256)])
            elif kind == 1:
                del data[at : at + size * 10]
            elif kind == 2:
                data[at:at] = data[at : at + size * 20]
            else:
                colon = data.find(b": ", at)
                if colon > 0:
                    end = min(
                        (found for mark in b",}]\n" if (found := data.find(mark, colon)) > 0),
                        default=colon + 2,
                    )
                    data[colon + 2 : end] = draw.choice(spoilt)
        path.write_bytes(data)
        try:
            for row in graded(path):
                grade = row["grade"]
                assert "error" in grade or (
                    type(grade["score"]) is float or grade["score"] in (0, 1)
                )
                assert "error" in grade or 0 <= grade["score"] <= 1
                assert stream.ID.match(row["id"]), row["id"]
            read += 1
        except cli.Stop as stop:
            assert str(path.parent.parent.parent) in str(stop) and "\n" not in str(stop)
    assert 0 < read < fuzz.times(400)


# Two logs, compared


def compared(a, b, margin=None):
    sides = [harnesses.load(path) for path in (a, b)]
    return metrics.judged(metrics.compare(*sides, margin), *harnesses.labels((a, b), sides))


@pytest.mark.parametrize("form", FEW)
def test_two_logs_are_compared_by_question(tmp_path, form):
    a = form(tmp_path / "a", {*range(0, 200, 4)}, n=200, model="org/a")
    b = form(tmp_path / "b", {*range(0, 200, 2)}, n=200, model="org/b")
    (entry,) = compared(a, b)
    assert entry["verdict"] == "worse", entry["sentence"]
    assert (entry["difference"]["n"], entry["difference"]["mean"]) == (200, -0.25)
    assert "org/a is worse than org/b, by 0.25 [" in entry["sentence"]
    grouped = form in (lm_eval, inspect, lighteval)
    assert entry["difference"]["clusters"] == (7 if grouped else 0)
    assert ("clustered by group (7 groups)" in entry["sentence"]) is grouped
    (same,) = compared(b, b, 0.1)
    assert same["verdict"] == "holds"


def test_questions_that_one_has_alone_are_named_and_left_out(tmp_path):
    a = lm_eval(tmp_path / "a", {*range(20)}, n=40)
    b = lm_eval(tmp_path / "b", {*range(20)}, n=44)
    (entry,) = compared(a, b)
    assert entry["difference"]["n"] == 40
    said = "Left out, since only b has them: 4 (mini-00040, mini-00041, mini-00042, ..)"
    assert said in entry["sentence"]


def test_other_prompts_are_said_and_other_questions_and_versions_are_refused(tmp_path):
    a = lm_eval(tmp_path / "a", {1, 2}, model="org/a")
    b = lm_eval(tmp_path / "b", {1, 2}, model="org/b", prompt="<|user|>")
    (entry,) = compared(a, b, 0.5)
    assert "the prompts differ on 30 of 30 questions" in entry["sentence"]
    (entry,) = compared(a, lm_eval(tmp_path / "c", {1, 2}, model="org/c", version=3.0))
    assert entry["verdict"] == "refused" and "(revision: lm-eval 2, lm-eval 3)" in entry["sentence"]
    changed = b.read_text().replace("7?", "seven?")
    b.write_text(changed)
    (entry,) = compared(a, b)
    assert entry["verdict"] == "refused" and "prompts: " in entry["sentence"]
    other = inspect(tmp_path, {1}, model="org/d", plan={"steps": [{"solver": "think"}]})
    (entry,) = compared(inspect(tmp_path, {1}, "e.eval"), other, 0.5)
    assert "the settings differ (steps)" in entry["sentence"]


def test_too_few_groups_are_no_clusters(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "DAYS", ["mon", "tue", "wed"] * 3)
    a = lm_eval(tmp_path / "a", {*range(9)})
    (entry,) = compared(a, a, 0.5)
    assert entry["difference"]["clusters"] == 0
    assert "3 groups are too few to cluster by" in entry["sentence"]


@pytest.mark.long("test_two_logs_are_compared_by_question")
def test_a_comment_is_short_markdown_whatever_the_number_of_benchmarks(tmp_path):
    for k in range(40):
        lm_eval(tmp_path / "a", {*range(k % 20)}, task=f"t{k}", model="org/a", n=25)
        lm_eval(tmp_path / "b", {*range(15)}, task=f"t{k}", model="org/b", n=25)
    entries = []
    for k in range(40):
        a, b = (tmp_path / side / f"samples_t{k}_{DATE}.jsonl" for side in "ab")
        entries += metrics.compare(harnesses.load(a), harnesses.load(b))
    metrics.corrected(entries)
    metrics.judged(entries, "org/a", "org/b")
    said = harnesses.comment(
        "org/a", "org/b", entries, "said", "Looked", "bench-compare --comment a b"
    )
    assert said.startswith("### said\n\n| Benchmark |") and said.count("\n") < 60
    assert "22 more, none worse off than the last of these" in said
    assert "\n\n    bench-compare --comment a b\n\n" in said


def test_a_plan_from_logs_says_how_many_questions_find_a_difference(tmp_path):
    a = harnesses.load(lm_eval(tmp_path / "a", {*range(0, 200, 4)}, n=200))["mini"]
    b = harnesses.load(lm_eval(tmp_path / "b", {*range(0, 200, 5)}, n=200))["mini"]
    n, deviation, finds, wanted = groups.needed([a, b], 0.1, 1)
    assert n == "200" and 0.5 < float(deviation) < 0.7
    assert 100 < int(wanted.replace(",", "")) < 600
    one = groups.needed([a], 0.1, 1)
    assert 0.5 < float(one[1]) < 0.7 and one[0] == "200"
    assert groups.needed([dict([*a.items()][:3])], 0.1, 1) == ["3", "–", "–", "–"]


def test_a_task_that_only_one_has_is_not_compared_and_says_what_to_name(tmp_path):
    lm_eval(tmp_path / "a/x", {1}, task="one", model="org/a")
    lm_eval(tmp_path / "a/y", {1}, task="two", model="org/a")
    b = lm_eval(tmp_path / "b", {1}, task="one", model="org/b")
    one, two = compared(tmp_path / "a", b, 0.5)
    assert one["verdict"] == "holds"
    assert two["sentence"] == "two: not compared; org/b has no results (name a log of it)"
