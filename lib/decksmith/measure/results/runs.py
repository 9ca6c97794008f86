"""Several runs side by side: loaded from folders or from files of another tool's scores, held against each other, and named
as the tables and plots name them."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError

from decksmith.core import cli, stream
from decksmith.core.records import Numbers, Optionals, Record
from decksmith.measure.decks import conditions
from decksmith.measure.decks.records import Rendered
from decksmith.measure.judging import identity, scoring
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.results import layout
from decksmith.measure.results.comparison import Run
from decksmith.measure.results.records import Identity, ScoreRow, Summary
from decksmith.measure.results.summary import TITLES, Light, place, summarize
from decksmith.measure.results.text import few, interval
from decksmith.models import registry

OFFLINE = (
    "no model or person has read these decks; docs/judge-card.md says how often each check is right"
)
EXTERNAL = "scores of another tool"  # stands where a run has the name of its protocol
FILES = ("protocol.json", "scores.jsonl", "summary.json")  # that every run folder has
AGREEMENTS = cli.ROOT / "results/judges"  # how far judges follow people, by rubric
COLORS = ("#2f6f9f", "#c8553d", "#4f8a5b", "#8a5a9e", "#c2912b", "#4b5563", "#b0567f", "#2a8c8c")


def load(paths: Sequence[str | Path], other_prompts: bool = False) -> list[Run]:
    """Read the runs in these folders, ordered by label. A file is read as scores of another tool (`ScoreRow`, docs/records.md), one
    run for each model in it. What they say of themselves is taken as it stands: verify.check looks whether it is true.

    other_prompts: they may have been asked other prompts (see `keep_common`).
    Raises cli.Missing when a folder lacks a file, cli.BadData when the runs differ in anything but the model: such numbers
    do not belong in one table.
    """
    runs: list[Run] = []
    asked: dict[str, object] = {}
    for path in map(Path, paths):
        runs += _read_scores(path) if path.is_file() else [in_folder(path, asked)]
    places = Counter((str(run["path"].resolve()), run["name"]) for run in runs)
    for (where, _), n in places.items():
        if n > 1:
            raise cli.BadData(f"{where} is named twice; a run cannot be compared with itself")
    for other in runs[1:]:
        _same_protocol(runs[0], other, other_prompts)
    return in_order(runs)


def in_order(runs: list[Run]) -> list[Run]:
    """Runs ordered by label, each with its place among those given, and a label and a color of its own."""
    for order, run in enumerate(runs):
        run["order"] = order
    _tell_apart(runs)
    return sorted(runs, key=lambda run: (run["label"].casefold(), run["name"]))


def _tell_apart(runs: list[Run]) -> None:
    """Add its name to the label of a run where another has the same label, or its path where also the name is the same; and give
    the runs without a color of their own one that no other has, as long as there is one."""
    labels = Counter(run["label"] for run in runs)
    names = Counter(run["name"] for run in runs)
    for run in runs:
        if labels[run["label"]] > 1:
            run["label"] += f" ({run['path'] if names[run['name']] > 1 else run['name']})"
    taken = {run["color"] for run in runs}
    free = [color for color in COLORS if color not in taken]
    spare = itertools.chain(free, itertools.cycle(COLORS))
    for run in sorted(runs, key=lambda run: run["name"]):
        run["color"] = run["color"] or next(spare)


def _same_protocol(first: Run, other: Run, other_prompts: bool) -> None:
    """Raises cli.BadData unless both runs held the same fixed."""
    if is_external(first) != is_external(other):
        raise cli.BadData(
            f"{first['path']} and {other['path']}: one is a run and one a file of scores of another tool; nothing says that "
            "both were made alike, so they do not belong in one table"
        )
    held, theirs = (cast(Record, {**run["protocol"]}) for run in (first, other))
    if other_prompts:
        held["prompts"] = theirs["prompts"] = None
    if differing := identity.differences(held, theirs):
        said = [
            f"{first['path']} and {other['path']} differ in more than the model; their scores do not belong in one table",
            f"  {first['path']}/protocol.json != {other['path']}/protocol.json:",
            *(f"  {line}" for line in differing),
        ]
        raise cli.BadData("\n".join(said))


def unmatched(runs: list[Run]) -> str | None:
    """Who lacks decks that another run has, as text, or None: whoever leaves out what failed looks better than it is."""
    decks = [set(map(place, run["records"])) for run in runs]
    every = set().union(*decks)
    prompts, said = {of for of, _ in every}, []
    for run, own in zip(runs, decks, strict=True):
        lacking = {of for of, _ in every - own}
        gone = sorted(lacking - {of for of, _ in own})
        thin = sorted(lacking - set(gone))
        for what, idents in (("", gone), ("samples of ", thin)):
            if idents:
                named = f"{what}{len(idents)} of {len(prompts)} prompts ({few(idents)})"
                said.append(f"{run['label']} lacks {named}")
    return "; ".join(said) or None


def keep_common(runs: list[Run]) -> None:
    """Leave in each run only the decks that all have, and name the others in `left_out`. Raises cli.BadData where there are
    none, or other prompts by one id."""
    shared = set.intersection(*(set(map(place, run["records"])) for run in runs))
    if not shared:
        names = " and ".join(run["label"] for run in runs)
        raise cli.BadData(f"no deck is common to {names}; they have no prompt in common")
    asked: dict[str, tuple[str, str]] = {}
    for run in runs:
        records = [record for record in run["records"] if place(record) in shared]
        run["left_out"] = [record["id"] for record in run["records"] if place(record) not in shared]
        run["records"], run["summary"] = records, summarize(enumerate(records, 1), run["path"])
        run.pop("made_from", None)
        for ident, row in identity.prompts(cast(list[Record], records)).items():
            first, holder = asked.setdefault(ident, (row, run["label"]))
            if first != row:
                raise cli.BadData(
                    f"{ident} asks one thing in {holder} and another in {run['label']}; they have only its id in common"
                )


def in_folder(folder: Path, asked: dict[str, object] | None = None) -> Run:
    """The finished run in a folder; `asked` as in Light. Raises cli.Missing, cli.BadData."""
    make = layout.make_command(folder)
    if not (folder / "scores.jsonl").is_file() and not (folder / "summary.json").is_file():
        raise layout.missing(folder)
    for name in FILES:
        if not (folder / name).is_file():
            raise cli.Missing(f"{folder} has no {name}; `{make}` makes it")
    summary = cast(Summary, _object(folder / "summary.json", make))
    protocol = _object(folder / "protocol.json", make)
    rows: list[DeckRecord] = []
    altered: list[str] = []
    seen = Light(asked)
    for _, found in stream.records(folder / "scores.jsonl", Rendered):
        record = cast(DeckRecord, found)
        if not isinstance(record.get("score"), dict):
            raise cli.BadData(
                f'{folder}/scores.jsonl: {record["id"]}: no "score" in this record; `{make}` writes it'
            )
        if _is_altered(record):
            altered.append(record["id"])
        rows.append(seen.take(record))
    run = of(folder, summary, cast(Identity, protocol), rows)
    run["made_from"], run["altered"] = seen.fingerprint(), altered
    return run


def _is_altered(record: DeckRecord) -> bool:
    """Whether a record is another than the one that its score was made from."""
    inputs = cast(Record, record["score"].get("by") or {}).get("inputs")
    weighed = ["score", scoring.weighed(cast(Record, record))]
    return bool(inputs) and inputs != stream.fingerprint(weighed)


def whole(run: Run, wanted: Collection[str] | None = None) -> Iterator[DeckRecord]:
    """The records of a run, or those of these ids, with their X-rays, one after the other."""
    if "made_from" not in run:
        yield from run["records"]
        return
    with open(run["path"] / "scores.jsonl", "rb") as file:
        for record, line in zip(run["records"], filter(bytes.strip, file), strict=True):
            if wanted is None or record["id"] in wanted:
                yield cast(DeckRecord, stream.loads(line))


def of(folder: Path, summary: Summary, protocol: Identity, rows: list[DeckRecord]) -> Run:
    """A run of `folder` with these scored records, which may be its first ones. Raises cli.Missing, cli.BadData."""
    make = layout.make_command(folder)
    under = any((record.get("gen") or {}).get("condition") for record in rows)
    name = layout.run_name(folder)
    about = summary.get("model") or {}
    model = about.get("name") or conditions.split(name)[0]
    condition = about.get("condition")
    known = registry.models().get(model)
    label = known.label or model if known else model
    own = known and not condition and known.color != registry.Model.color
    return {
        "path": folder,
        "name": name,
        "order": 0,
        "label": f"{label} + {condition['name']}" if condition else label,
        "color": known.color if known and own else "",
        "summary": summary,
        "protocol": protocol,
        "records": rows,
        "condition": _object(folder / "condition.json", make) if under else None,
        "unshipped": identity.unshipped(cast(Record, protocol), cast(list[Record], rows)),
        "left_out": None,
        "remedy": f"`{make}` does these again and nothing else",
    }


def _object(path: Path, make: str) -> Record:
    if not path.is_file():
        raise cli.Missing(f"there is no {path}; `{make}` makes it")
    try:
        return stream.json_object(path.read_bytes())
    except ValueError as error:
        raise cli.BadData(f"{path}: {error}; delete it and `{make}`") from None


# Scores of another tool


def is_external(run: Run) -> bool:
    """Whether a run is scores of another tool and nothing else."""
    return run["protocol"].get("protocol") == EXTERNAL


def with_decks(runs: list[Run], what: str) -> list[Run]:
    """These runs; raises cli.BadData for one that is scores alone. what: what needs more than that, "a report"."""
    for run in filter(is_external, runs):
        raise cli.BadData(f"{run['path']} has scores only; {what} needs the decks of a run")
    return runs


def _read_scores(path: Path) -> Iterator[Run]:
    """The runs in a file of scores, one for each model. Without weights every dimension counts the same.

    Raises cli.BadData for a row that is not of this form, or that has other dimensions or weights than the first.
    """
    models: dict[str, dict[str, list[DeckRecord]]] = {}
    names, weights = set[str](), Numbers()
    for number, found in stream.records(path):
        where = f"{path}:{number}: {found['id']}"
        row = _checked(where, found)
        if not models:
            names = set(row["scores"])
            weights = row.get("weights") or dict.fromkeys(sorted(names), 1.0)
        if row["scores"].keys() != names:
            theirs, ours = (", ".join(sorted(each)) for each in (row["scores"], names))
            raise cli.BadData(f"{where}: scores for {theirs}, and for {ours} in the first row")
        if row.get("weights", weights) != weights:
            theirs, ours = json.dumps(row["weights"]), json.dumps(weights)
            raise cli.BadData(f"{where}: weights are {theirs}, and {ours} in the first row")
        samples = models.setdefault(row["model"], {}).setdefault(row["id"], [])
        samples.append(_scored(row, weights, len(samples)))
    if not models:
        raise cli.BadData(f"{path} is empty; a file of scores has one row for each deck")
    equal = len(set(weights.values())) == 1
    overall = f"{'Mean' if equal else 'Weighted mean'} of the dimensions"
    if len(weights) == 1:
        overall = f"Overall ({next(iter(weights))})"
    held = {"protocol": EXTERNAL, "score": {"overall": overall, "weights": weights}}
    for model, prompts in models.items():
        records = [record for samples in prompts.values() for record in samples]
        yield {
            "path": path,
            "name": model,
            "order": 0,
            "label": model,
            "color": "",
            "summary": summarize(enumerate(records, 1), path),
            "protocol": cast(Identity, held),
            "records": records,
            "condition": None,
            "unshipped": [],
            "left_out": None,
            "remedy": "have these scored again",
        }


def _checked(where: str, found: object) -> ScoreRow:
    """A row that has the form. Raises cli.BadData."""
    try:
        row = TypeAdapter(ScoreRow).validate_python(found, strict=True)
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(map(str, fault["loc"]))
        raise cli.BadData(
            f'{where}: {field}: {fault["msg"]}; a row of scores needs "model" (a name), "rendered" (true or false) and '
            '"scores" (an object)'
        ) from None
    if not row["scores"]:
        raise cli.BadData(f"{where}: scores is empty")
    for name, value in row["scores"].items():
        if value is not None and not 1 <= value <= 5:
            raise cli.BadData(
                f"{where}: scores.{name} is {json.dumps(value)}; it is a number from 1 to 5, or null"
            )
    weights = row.get("weights", dict.fromkeys(row["scores"], 1.0))
    usable = all(0 <= value < math.inf for value in weights.values())
    if weights.keys() != row["scores"].keys() or not usable or not any(weights.values()):
        raise cli.BadData(
            f"{where}: weights is {json.dumps(weights)}; it has a number from 0 for each dimension of scores "
            f"({', '.join(sorted(row['scores']))}), not all 0"
        )
    return row


def _scored(row: ScoreRow, weights: Numbers, k: int) -> DeckRecord:
    """A row as deck-score would have it: of a model's failure 1 in every dimension, of another's no overall score."""
    kind, scores = row.get("error_kind"), cast(Optionals, row["scores"])
    if not row["rendered"]:
        kind = kind or "model"
    elif None in scores.values():
        kind = kind or "judge"
    if kind == "model":
        scores = dict.fromkeys(scores, 1.0)
    overall = None
    if kind in (None, "model"):
        total = sum((scores[name] or 0) * weight for name, weight in weights.items())
        overall = total / sum(weights.values())
    fault = {
        "stage": "judge" if row["rendered"] else "render",
        "kind": kind,
        "class": "as-reported",
        "message": "reported by the other tool",
    }
    score = {
        "overall": overall,
        "judge_only": None,
        "checklist": None,
        "dimensions": scores,
        "rendered": row["rendered"] and kind != "model",
        "floored": kind == "model",
        "fault": fault if kind else None,
    }
    gen = {"model": {"name": row["model"]}, "sample": {"of": row["id"], "k": k}}
    return cast(DeckRecord, {"id": row["id"], "gen": gen, "score": score})


# How runs are named


def caption(runs: list[Run]) -> str:
    """Who judged, in words."""
    judge = judged_by(runs)
    if is_external(runs[0]):
        return f"Scores as {' and '.join(sorted({run['path'].name for run in runs}))} gives them"
    if judge is None:
        return "No deck was judged"
    about = [*([OFFLINE] if offline(runs) else []), agreement_said(runs)]
    return f"Judge: {judge} ({'; '.join(about)})"


def judged_by(runs: list[Run]) -> str | None:
    """The judge's name, None where nothing was judged."""
    return next((run["summary"]["judge"] for run in runs if run["summary"]["judge"]), None)


def offline(runs: list[Run]) -> bool:
    """Whether the judge was the embedded one, which computes measures and sees nothing."""
    judge = runs[0]["protocol"].get("judge") or {}
    return bool(judge.get("kind") == "offline")


def of_edits(runs: list[Run]) -> bool:
    """Whether the requests were to change a deck (docs/edit.md)."""
    return bool((runs[0]["protocol"].get("judge") or {}).get("kind") == "edit")


def titles(runs: list[Run]) -> dict[str, str]:
    """The measures' titles, with what this protocol means by Overall and by VisCraft."""
    score = runs[0]["protocol"].get("score") or {}
    scan = score.get("viscraft")
    return {
        **TITLES,
        "overall": score.get("overall") or "Overall",
        "viscraft": f"VisCraft ({TITLES.get(scan, scan)})" if scan else "VisCraft",
    }


def measures(runs: list[Run]) -> list[str]:
    """The measures that any of these runs has a mean of, in the order of the tables."""
    found = {name for run in runs for means in run["summary"]["means"].values() for name in means}
    return [name for name in TITLES if name in found] + sorted(found - {*TITLES})


# How far a judge follows people, kept by judge-compare


def rubric(runs: list[Run]) -> str | None:
    """The hash of protocol, instructions and model by which the decks of these runs were judged; None where none was."""
    judged = (record.get("judge") or {} for run in runs for record in run["records"])
    return next((value["rubric"] for value in judged if value.get("rubric")), None)


def keep_agreement(rubric: str, found: Record) -> Path:
    """Keep what was found of a judge, `{"judge", "study", "votes", "agreement": {"mean", "lo", "hi"}}`; returns the file."""
    stream.write(path := _agreement(rubric), json.dumps(found, ensure_ascii=False) + "\n")
    return path


def agreement_said(runs: list[Run]) -> str:
    """What is known of how far the judge of these runs follows people: of the one with this very rubric, whatever others
    are called. Raises cli.BadData for a file that `keep_agreement` did not write."""
    path = _agreement(rubric(runs) or "")
    if not path.is_file():
        return "not yet compared with people's judgements"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        share = interval(found["agreement"])
        return f"it prefers what people prefer in a share of {share} of {found['votes']} votes ({found['study']})"
    except (ValueError, KeyError, TypeError) as error:
        raise cli.BadData(f"{path}: judge-compare --keep writes it anew ({error!r})") from None


def _agreement(rubric: str) -> Path:
    return AGREEMENTS / f"{rubric[:16]}.json"
