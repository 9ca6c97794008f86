"""Finished runs as runs of an experiment tracker: MLflow, or Weights & Biases. Both get the parameters that make a run what it is,
its measures with their intervals, a table of the decks, and a picture of each. Neither package is in the lock.
"""

import importlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from decksmith import __version__
from decksmith.core import cli, stream
from decksmith.core.records import prompt_of
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.results import usage
from decksmith.measure.results.comparison import Run
from decksmith.measure.results.report_pictures import inside_run, slides
from decksmith.measure.results.runs import measures, offline, with_decks
from decksmith.measure.results.summary import SHARES, fault_of, found_of, rendering, status_of
from decksmith.models.records import Gen

if TYPE_CHECKING:
    from PIL.Image import Image

DeckRow = dict[str, str | float | None]  # a row of the table

TILE = (320, 180)  # pixels of a slide in the picture of a deck
ACROSS = 4
LONGEST = 20_000  # characters of a request or a reply in the table
MARK = "decksmith.run"  # a tag of MLflow's run: what was exported, so that it is not done twice


def export(tracker: str, out: Path, runs: list[Run]) -> Iterator[str]:
    """Write each run (runs.load) with `tracker`, a key of TRACKERS, into the folder `out`; yields what names it there.

    Raises cli.Missing for a package that is not installed, cli.BadData for scores without decks.
    """
    with_decks(runs, "an export")
    try:
        package = importlib.import_module(tracker)
    except ImportError:
        raise cli.Missing(
            f"{tracker} is not installed; it is not in the lock: .venv/bin/python3 -m pip install {tracker}"
        ) from None
    out.mkdir(parents=True, exist_ok=True)
    for run in runs:
        yield TRACKERS[tracker](package, out.resolve(), run)


# What is said of a run


def params(run: Run) -> dict[str, object]:
    """What makes the run what it is, by name."""
    protocol, summary = run["protocol"], run["summary"]
    return {
        "model": run["name"],
        "slug": summary["model"]["slug"] or "",
        "label": run["label"],
        "protocol": protocol.get("protocol") or "unknown",
        "protocol_hash": protocol.get("hash") or "unknown",
        "condition": run["name"].partition("+")[2] or "none",
        "judge": summary["judge"] or "none",
        "prompts": summary["prompts"],
        "decksmith": __version__,
        **{f"asked.{name}": value for name, value in summary["asked"]["parameters"].items()},
    }


def figures(run: Run) -> dict[str, float]:
    """How many decks render, of how many; the means of these decks as `NAME`, with the ends of their 95 % intervals as
    `NAME_low` and `NAME_high`; the means that count failures as 1 as `NAME_failures_as_1`; tokens, USD."""
    summary = run["summary"]
    made, counted = rendering(summary)
    found: dict[str, float | None] = {"renders": made, "decks": counted}
    for name in measures([run]):
        if name == "renders":
            continue
        if rendered := summary["means"]["renderable"].get(name):
            found[name] = rendered["mean"]
            found[f"{name}_low"], found[f"{name}_high"] = rendered["lo"], rendered["hi"]
        floor = summary["means"]["floor"].get(name)
        if floor and name not in SHARES and not offline([run]):
            found[f"{name}_failures_as_1"] = floor["mean"]
    found |= {"truncated": summary["truncated"], "usd": summary["cost"]}
    if summary["tokens"]["records"]:
        found |= {f"{name}_tokens": summary["tokens"][name] for name in ("prompt", "completion")}
    return {name: float(value) for name, value in found.items() if value is not None}


def rows(run: Run) -> list[DeckRow]:
    """A row for each deck, all with the same keys in the same order."""
    scored, found = measures([run]), []
    for record in run["records"]:
        gen: Gen = record.get("gen") or {}
        fault, took, values = fault_of(record), usage.of(record), found_of(record)
        asked = [message.get("content") for message in record.get("messages") or []]
        row: DeckRow = {
            "id": record["id"],
            "prompt": prompt_of(record),
            "status": status_of(record),
            "fault": fault["class"] if fault else None,
            "message": fault["message"] if fault else None,
            **{name: values.get(name) for name in scored},
            "slides": len(slides(record)),
            "tokens_out": took["completion_tokens"],
            "usd": took["cost"],
            "seconds": took["seconds"],
            "request": str(asked[-1] if asked else "")[:LONGEST],
            "reply": str(gen.get("text") or "")[:LONGEST],
        }
        found.append(row)
    return found


def sheet(run: Run, record: DeckRecord) -> "Image | None":
    """The slides of a deck in one picture, four in a row; None where there are none."""
    from PIL import Image

    files = [file for path in slides(record) if (file := inside_run(run, path))]
    if not files:
        return None
    (width, height), across = TILE, min(ACROSS, len(files))
    made = Image.new("RGB", (width * across, height * math.ceil(len(files) / ACROSS)), "white")
    for at, file in enumerate(files):
        try:
            with Image.open(file) as slide:
                small = slide.convert("RGB").resize(TILE)
        except OSError as error:
            stream.warn(f"{run['name']}/{file.name}", f"cannot be read as a picture ({error})")
            continue
        made.paste(small, (at % ACROSS * width, at // ACROSS * height))
    return made


def identity(run: Run) -> str:
    """The same for the same finished run, wherever it lies."""
    return stream.fingerprint([run["name"], run["protocol"], rows(run)])


# The trackers


def _mlflow(mlflow: ModuleType, out: Path, run: Run) -> str:
    """A run of the experiment `decksmith`: of the server that MLFLOW_TRACKING_URI names, else of OUT/mlflow.db. One that was
    cut off is deleted and done again. Returns the run's id."""
    own = not os.environ.get("MLFLOW_TRACKING_URI")
    if own:
        mlflow.set_tracking_uri(f"sqlite:///{out / 'mlflow.db'}")
    if own and mlflow.get_experiment_by_name("decksmith") is None:
        mlflow.create_experiment("decksmith", artifact_location=(out / "artifacts").as_uri())
    mlflow.set_experiment("decksmith")
    mark = identity(run)
    wanted = f"tags.`{MARK}` = '{mark}'"
    for old in mlflow.search_runs(filter_string=wanted, output_format="list"):
        if old.info.status == "FINISHED":
            return str(old.info.run_id)
        mlflow.delete_run(old.info.run_id)
    with mlflow.start_run(run_name=run["label"], tags={MARK: mark}) as started:
        mlflow.log_params(params(run))
        mlflow.log_metrics(figures(run))
        lines = rows(run)
        columns = {name: [line[name] for line in lines] for name in lines[0]}
        mlflow.log_table(columns, "decks.json")
        mlflow.log_dict(run["protocol"], "protocol.json")
        for record in run["records"]:
            if picture := sheet(run, record):
                mlflow.log_image(picture, f"slides/{record['id']}.png")
    return str(started.info.run_id)


def _wandb(wandb: ModuleType, out: Path, run: Run) -> str:
    """A run of the project that WANDB_PROJECT names, else `decksmith`. Its id is the run's own: a second export replaces the
    first. Returns its page; where WANDB_MODE is offline, the folder that `wandb sync` takes."""
    settings = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True)
    started = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or "decksmith",
        id=identity(run)[:16],
        resume="allow",
        name=run["label"],
        config={**params(run), "protocol_json": run["protocol"]},
        dir=str(out),
        settings=settings,
    )
    lines = rows(run)
    table = wandb.Table(columns=list(lines[0]), data=[list(line.values()) for line in lines])
    sheets = ((record["id"], sheet(run, record)) for record in run["records"])
    pictures = [wandb.Image(picture, caption=name) for name, picture in sheets if picture]
    started.summary.update(figures(run))
    started.log({"decks": table, "slides": pictures})
    place = Path(started.dir).parent if started.offline else started.url
    started.finish()
    return str(place)


TRACKERS: dict[str, Callable[[ModuleType, Path, Run], str]] = {"mlflow": _mlflow, "wandb": _wandb}
