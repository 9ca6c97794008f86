"""Metrics in trackers: as numbers here, and by the trackers' own clients, offline, where they are installed."""

import sys

import pytest
from decksmith.bench.benchmarks import harnesses
from decksmith.core import cli

SUMMARY = {
    "coverage": 1.0,
    "modes": {"pass@1": {"accuracy": 0.5, "std_err": None, "num_entries": 3}},
}
NUMBERS = {"x/coverage": 1.0, "x/pass-1/accuracy": 0.5, "x/pass-1/num_entries": 3.0}


def test_metrics_are_numbers_under_their_benchmark_and_mode():
    assert harnesses.flat({"x": SUMMARY}) == NUMBERS


def test_a_tracker_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(cli.Missing, match="pip install wandb"):
        harnesses.send("wandb", "m", {"x": SUMMARY})


def test_mlflow_has_one_run_of_results_that_are_sent_twice(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/runs")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    harnesses.send("mlflow", "m", {"x": SUMMARY})
    harnesses.send("mlflow", "m", {"x": SUMMARY | {"coverage": 0.5}})
    (run,) = mlflow.search_runs(experiment_names=["decksmith"], output_format="list")
    assert run.info.run_name == "m"
    assert run.data.metrics == NUMBERS | {"x/coverage": 0.5}


def test_wandb_takes_them_offline(tmp_path, monkeypatch, capfd):
    pytest.importorskip("wandb")
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    harnesses.send("wandb", "m", {"x": SUMMARY})
    assert "x/pass-1/accuracy 0.5" in capfd.readouterr().err
