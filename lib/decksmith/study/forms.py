"""Sets of human judgements that others published, as votes: pairs, rankings and ratings, each described by a TOML file
(assets/votes, checked by assets/schemas/votes.json)."""

import csv
import io
import itertools
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.study.messages import DIMENSIONS

FOLDER = cli.ROOT / "assets/votes"
EVERYBODY = "everybody"  # the rater of a set that does not say who
SHOWN = 10  # bad rows that are named


def load(name: str) -> Record:
    """A description by its name in assets/votes or by path. Raises cli.BadConfig with the file and the key."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        form = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = ", ".join(sorted(found.stem for found in FOLDER.glob("*.toml")))
        raise cli.BadConfig(f"no description {path}; there are: {known}") from None
    except (OSError, ValueError) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    schema = json.loads((cli.ROOT / "assets/schemas/votes.json").read_text(encoding="utf-8"))
    if wrong := best_match(Draft202012Validator(schema).iter_errors(form)):
        where = ".".join(map(str, wrong.absolute_path)) or "top level"
        raise cli.BadConfig(f"{path}: {where}: {wrong.message}")
    return form


def find(form: Record, source: Path | None) -> Path:
    """The file of a set: in the folder `source`, or from the Hub at the pinned revision. Raises cli.Missing, cli.TryAgain."""
    if source is not None:
        path = source / form["file"] if source.is_dir() else source
        if not path.is_file():
            raise cli.Missing(f"{form['title']}: there is no {path}")
        return path
    if "hub" not in form:
        raise cli.Missing(
            f"{form['title']}: name the folder that has {form['file']}: --votes FOLDER"
        )
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise cli.Missing("huggingface_hub is not here; `make .venv/.hub` installs it") from None
    try:
        return Path(
            hf_hub_download(
                form["hub"], form["file"], repo_type="dataset", revision=form["revision"]
            )
        )
    except Exception as error:
        raise cli.TryAgain(
            f"{form['title']}: {error}; or name its folder: --votes FOLDER"
        ) from None


def votes(form: Record, path: Path) -> list[Record]:
    """The votes in a file of a set, as `outside.read` takes them. Of rankings and ratings each two decks that one person
    placed for one prompt are a vote; equal places are a tie. Raises cli.BadData that names file, row and column."""
    rows = list(_rows(path))
    wrong = [
        f"{path}: row {number}: no {theirs!r}, which is the {ours}"
        for number, row in rows
        for ours, theirs in form["columns"].items()
        if ours not in ("rater", *DIMENSIONS) and row.get(theirs) in (None, "")
    ]
    found = list(
        _pairs(form, path, rows, wrong)
        if form["kind"] == "pairs"
        else _placed(form, path, rows, wrong)
    )
    if wrong:
        more = [f"{len(wrong) - SHOWN:,} rows more"] if len(wrong) > SHOWN else []
        raise cli.BadData("\n".join([*wrong[:SHOWN], *more, "nothing was taken"]))
    return found


def _rows(path: Path) -> Iterator[tuple[int, Record]]:
    """The rows of a JSON array, JSONL or CSV file, from 1."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        if path.suffix == ".csv":
            rows: list[Any] = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        elif path.suffix == ".json":
            rows = json.loads(text)
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, csv.Error) as error:
        raise cli.BadData(
            f"{path}: cannot be read as {path.suffix[1:] or 'JSONL'}: {error}"
        ) from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise cli.BadData(f"{path}: not a list of rows")
    yield from enumerate(rows, 1)


def _cell(form: Record, row: Record, name: str) -> str:
    return str(row.get(form["columns"].get(name, "")) or "")


def _pairs(
    form: Record, path: Path, rows: list[tuple[int, Record]], wrong: list[str]
) -> Iterator[Record]:
    choices = form.get("choices") or {}
    for number, row in rows:
        said = _cell(form, row, "choice")
        choice = choices.get(said, said)
        if said and choice not in ("left", "right", "tie", "bad"):
            wrong.append(
                f"{path}: row {number}: {said!r} is none of {', '.join(choices) or 'left, right, tie, bad'}"
            )
            continue
        yield {
            "prompt": _cell(form, row, "prompt"),
            "rater": _cell(form, row, "rater") or EVERYBODY,
            "left": _cell(form, row, "left"),
            "right": _cell(form, row, "right"),
            "choice": choice,
        }


def _placed(
    form: Record, path: Path, rows: list[tuple[int, Record]], wrong: list[str]
) -> Iterator[Record]:
    """The votes of rankings (1 is best) and ratings (more is better)."""
    sign = -1.0 if form["kind"] == "ranks" else 1.0
    names = ["value", *(name for name in DIMENSIONS if name in form["columns"])]
    placed: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(dict)
    for number, row in rows:
        values = {}
        for name in names:
            try:
                values[name] = sign * float(_cell(form, row, name))
            except ValueError:
                wrong.append(
                    f"{path}: row {number}: {form['columns'][name]}: {_cell(form, row, name)!r} is no number"
                )
        by = (_cell(form, row, "prompt"), _cell(form, row, "rater") or EVERYBODY)
        maker = _cell(form, row, "maker")
        if maker in placed[by]:
            wrong.append(f"{path}: row {number}: {by[1]} placed {maker} twice for {by[0]}")
        placed[by][maker] = values
    if wrong:
        return
    for (prompt, rater), makers in placed.items():
        for left, right in itertools.combinations(sorted(makers), 2):
            sides = {name: _side(makers[left][name], makers[right][name]) for name in names}
            choice = sides.pop("value")
            yield {
                "prompt": prompt,
                "rater": rater,
                "left": left,
                "right": right,
                "choice": choice,
                **sides,
            }


def _side(left: float, right: float) -> str:
    return "tie" if left == right else "left" if left > right else "right"


def written(folder: Path, name: str, form: Record, path: Path) -> Path:
    """The votes of a set as a file of the study in `folder`, which outside.take takes."""
    target = folder / "imported" / f"{Path(name).stem}.jsonl"
    stream.write(target, b"".join(stream.dumps(vote) + b"\n" for vote in votes(form, path)))
    return target
