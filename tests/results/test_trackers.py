"""Runs in MLflow and W&B: what is said of a run always, and what the trackers' own readers find where they are installed."""

import json
import struct
import sys
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.measure.results import trackers
from decksmith.measure.results.runs import load
from decksmith.measure.results.summary import rendering, status_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import synthetic  # noqa: E402

HOW = "is not in the lock: pip install it, and run this again"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "smol+greedy"
    return load([synthetic.run(folder, "smol", 0.45, 6)])[0]


def test_a_run_is_its_parameters_its_measures_with_intervals_and_a_row_for_each_deck(run):
    params, figures, rows = trackers.params(run), trackers.figures(run), trackers.rows(run)
    assert params["protocol_hash"] == run["protocol"]["hash"]
    assert params["slug"] == "smol" and params["condition"] == "greedy"
    checks = run["summary"]["means"]["renderable"]["checks"]
    found = [figures.get(name) for name in ("checks", "checks_low", "checks_high")]
    assert found == [checks[name] for name in ("mean", "lo", "hi")]
    assert (figures["renders"], figures["decks"]) == rendering(run["summary"])
    assert "checks_failures_as_1" not in figures and "overall" not in figures
    assert [row["id"] for row in rows] == [record["id"] for record in run["records"]]
    assert [row["status"] for row in rows] == [status_of(record) for record in run["records"]]
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    json.dumps([params, figures, rows], allow_nan=False)


def test_marks_are_of_rendered_decks_and_with_failures_as_1_they_are_called_that(tmp_path):
    (run,) = load([synthetic.run(tmp_path, "smol", 0.45, 6, reads=True)])
    figures, means = trackers.figures(run), run["summary"]["means"]
    assert figures["overall"] == means["renderable"]["overall"]["mean"]
    assert figures["overall_failures_as_1"] == means["floor"]["overall"]["mean"]


def test_the_slides_of_a_deck_are_one_picture_and_a_deck_without_any_has_none(run):
    for record in run["records"]:
        slides = len((record.get("render") or {}).get("slides") or [])
        picture = trackers.sheet(run, record)
        if not slides:
            assert picture is None
        else:
            assert picture.size == (320 * min(4, slides), 180 * -(-slides // 4))


def test_a_package_that_is_missing_is_said_with_the_command(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(cli.Missing, match="python3 -m pip install wandb"):
        next(trackers.export("wandb", tmp_path / "out", [run]))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_mlflow_reads_the_run_back_and_what_is_there_is_not_written_again(
    run, tmp_path, monkeypatch
):
    mlflow = pytest.importorskip("mlflow", reason=f"mlflow {HOW}")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    place = client.create_experiment("decksmith", (tmp_path / "artifacts").as_uri())
    killed = client.create_run(place, tags={trackers.MARK: trackers.identity(run)})
    ids = [next(trackers.export("mlflow", tmp_path, [run])) for _ in range(2)]
    assert ids[0] == ids[1] != killed.info.run_id
    assert [one.info.run_id for one in client.search_runs([place])] == ids[:1]
    kept = client.get_run(ids[0])
    assert kept.data.params == {name: str(value) for name, value in trackers.params(run).items()}
    assert kept.data.metrics == pytest.approx(trackers.figures(run))
    table = json.loads(Path(client.download_artifacts(ids[0], "decks.json")).read_text())
    assert [
        dict(zip(table["columns"], row, strict=True)) for row in table["data"]
    ] == trackers.rows(run)
    drawn = [record["id"] for record in run["records"] if trackers.sheet(run, record)]
    listed = [Path(one.path).stem for one in client.list_artifacts(ids[0], "slides")]
    assert listed == sorted(drawn)


def logged(data):
    """The records of a .wandb file: a LevelDB log of blocks of 32 KiB, the first with a header of 7 bytes."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


@pytest.mark.slow
def test_wandb_reads_the_run_back(run, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason=f"wandb {HOW}")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = Path(next(trackers.export("wandb", tmp_path, [run])))
    kept, config = {}, {}
    for data in logged(next(folder.glob("*.wandb")).read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        said = [*record.run.config.update, *record.config.update]
        config |= {item.key: json.loads(item.value_json) for item in said if item.key}
        kept |= {item.key: json.loads(item.value_json) for item in record.summary.update}
    assert {name: config[name] for name in trackers.params(run)} == trackers.params(run)
    figures = trackers.figures(run)
    assert {name: kept[name] for name in figures} == pytest.approx(figures)
    table = json.loads(next(folder.glob("files/media/table/*.json")).read_text())
    rows = trackers.rows(run)
    assert [row[0] for row in table["data"]] == [row["id"] for row in rows]
    drawn = sum(trackers.sheet(run, record) is not None for record in run["records"])
    assert drawn and len(list(folder.glob("files/media/images/*.png"))) == drawn
