"""Inspect's logs of runs: their structure always, and what Inspect's own reader makes of them where it is installed."""

import json
import sys
import zipfile
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.measure.results import inspect_log
from decksmith.measure.results.runs import load
from decksmith.measure.results.summary import fault_of, status_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import synthetic  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with decks that rendered, that the model failed at, and that were lost through nobody's fault."""
    folder = tmp_path_factory.mktemp("runs") / "smol"
    found = load([synthetic.run(folder, "smol", 0.45, 24, slides_too="plain")])[0]
    assert {status_of(record) for record in found["records"]} >= {"rendered", "failed", "excluded"}
    return found


@pytest.fixture(scope="module")
def log(run, tmp_path_factory):
    return next(inspect_log.export(tmp_path_factory.mktemp("logs"), [run]))


def member(log, name):
    with zipfile.ZipFile(log) as file:
        return json.loads(file.read(name))


def test_a_log_has_a_header_a_list_and_a_file_for_each_sample(run, log):
    with zipfile.ZipFile(log) as file:
        names = set(file.namelist())
    ids = [record["id"] for record in run["records"]]
    samples = {f"samples/{ident}_epoch_1.json" for ident in ids}
    assert names == samples | {"_journal/start.json", "summaries.json", "header.json"}
    header, listed = member(log, "header.json"), member(log, "summaries.json")
    assert (header["version"], header["status"]) == (2, "success")
    assert [one["id"] for one in listed] == ids
    lost = sum(status_of(record) == "excluded" for record in run["records"])
    assert header["results"]["completed_samples"] == len(ids) - lost
    found = {one["name"]: one["metrics"]["mean"]["value"] for one in header["results"]["scores"]}
    means = run["summary"]["means"]
    assert found["checks"] == means["renderable"]["checks"]["mean"]
    assert found["renders"] == means["floor"]["renders"]["mean"]


def test_a_sample_has_prompt_thought_reply_slides_scores_and_usage(run, log):
    record = next(one for one in run["records"] if status_of(one) == "rendered")
    sample = member(log, f"samples/{record['id']}_epoch_1.json")
    system, user, reply, slides = sample["messages"]
    assert (system["role"], user["content"]) == ("system", record["messages"][1]["content"])
    thought, text = reply["content"]
    assert thought == {"type": "reasoning", "reasoning": "Outline first."}
    assert text["text"] == sample["output"]["completion"] == record["gen"]["text"]
    assert slides["content"][0]["text"].endswith("The model never saw this message.")
    pictures = [part["image"] for part in slides["content"] if part["type"] == "image"]
    assert len(pictures) == len(record["render"]["slides"])
    assert all(uri.startswith("data:image/avif;base64,") for uri in pictures)
    assert sample["scores"]["checks"]["value"] == record["score"]["checks"]
    assert sample["metadata"]["findings"] == record["judge"]["findings"]
    usage = sample["output"]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (
        record["gen"]["usage"]["prompt_tokens"],
        record["gen"]["usage"]["completion_tokens"],
    )


def test_the_model_s_failure_is_scored_and_nobody_s_is_an_error(run, log):
    for record in run["records"]:
        sample = member(log, f"samples/{record['id']}_epoch_1.json")
        fault = fault_of(record)
        if status_of(record) == "failed":
            assert sample["scores"]["renders"]["value"] == 0
            said = sample["scores"]["renders"]["explanation"]
            assert said.startswith(f"a failure, {fault['class']}")
            assert "error" not in sample
        if status_of(record) == "excluded":
            assert sample["scores"] == {}
            assert sample["error"]["message"].startswith(f"{fault['kind']} fault, {fault['class']}")


def test_equal_runs_give_equal_bytes(run, log, tmp_path):
    assert next(inspect_log.export(tmp_path, [run])).read_bytes() == log.read_bytes()


def test_runs_of_two_models_are_no_retries_of_each_other(log, run, tmp_path):
    other = synthetic.run(tmp_path / "other", "other", 0.9, 2)
    written = next(inspect_log.export(tmp_path, load([other])))
    ids = [member(path, "header.json")["eval"] for path in (log, written)]
    assert ids[0]["task"] == ids[1]["task"] and ids[0]["task_id"] != ids[1]["task_id"]


def test_two_runs_that_would_be_one_file_are_refused_before_anything_is_written(run, tmp_path):
    with pytest.raises(cli.BadData, match="would both be .*smol_offline.eval; write them into two"):
        list(inspect_log.export(tmp_path, [run, run]))
    assert not list(tmp_path.iterdir())


def test_inspect_reads_what_was_written(run, log):
    reader = pytest.importorskip(
        "inspect_ai.log",
        reason="inspect_ai is not in the lock: pip install inspect_ai, and run this again",
    )
    found = reader.read_eval_log(str(log))
    assert (found.status, found.eval.model) == ("success", "smol")
    by_id = {sample.id: sample for sample in found.samples}
    assert list(by_id) == sorted(record["id"] for record in run["records"])
    for record in run["records"]:
        sample = by_id[record["id"]]
        assert sample.input[1].text == record["messages"][1]["content"]
        lost = status_of(record) == "excluded"
        assert (sample.error is not None) == lost
        assert lost or sample.scores["renders"].value == (not record["score"]["floored"])
    assert len(reader.read_eval_log_sample_summaries(str(log))) == len(run["records"])
    assert reader.read_eval_log(str(log), header_only=True).results.total_samples == len(by_id)
