"""Votes that others collected: a file of them becomes a study that vote-tally counts as its own.

In comes a CSV or JSONL file, one row for each vote, and beside it, where there are such, scores of
the decks (docs/records.md, "Scores of another tool"). A file is taken whole or not at all.
docs/votes.md has the columns.
"""

import contextlib
import csv
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypedDict

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from decksmith.core import cli, stream
from decksmith.measure.results import runs
from decksmith.people.study import records, store, tally
from decksmith.people.study.records import DIMENSIONS, LONGEST_VIEW, SIDES, Choice, SideOrTie

# By which names a column is known. `choice` may name a side by any name of the side's column, or
# the maker.
COLUMNS = {
    "prompt": ("prompt", "prompt_id", "question_id"),
    "pair": ("pair", "pair_id"),
    "rater": ("rater", "rater_id", "judge"),
    "left": ("left", "a", "model_a"),
    "right": ("right", "b", "model_b"),
    "choice": ("choice", "winner"),
    "time": ("time", "at", "tstamp"),
    "seconds": ("seconds",),
    "kind": ("kind",),
    **{name: (name,) for name in DIMENSIONS},
}
NEITHER: dict[str, Choice] = {
    "tie": "tie",
    "bad": "bad",
    "both bad": "bad",
    "both_bad": "bad",
    "tie (bothbad)": "bad",
}
LONGEST = 200  # characters of a name
SHOWN = 10  # bad rows that are named

Cells = dict[str, object]  # a row of the file, by column
Columns = dict[str, str]  # {field: its column}


def _visible(name: str) -> str:
    if not name.isprintable():
        raise ValueError("has characters that cannot be seen")
    return name


def _iso(said: str) -> str:
    """ISO 8601 or seconds since 1970 as ISO 8601 in UTC; a time without a zone is UTC."""
    try:
        try:
            at = datetime.fromtimestamp(float(said), UTC)
        except ValueError:
            at = datetime.fromisoformat(said)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError("write 2026-11-21T20:00:00Z, or seconds since 1970") from None
    if at > datetime.now(UTC):
        raise ValueError(
            f"is in the future by this machine's clock ({datetime.now(UTC):%F %R} UTC)"
        )
    return at.isoformat(timespec="milliseconds")


Name = Annotated[str, Field(max_length=LONGEST), AfterValidator(_visible)]


class ImportedVote(BaseModel):
    """The cells of a row by field, and what they mean. A vote without a prompt is on a pair."""

    model_config = ConfigDict(coerce_numbers_to_str=True, str_strip_whitespace=True)

    rater: Name
    left: Name
    right: Name
    choice: str
    prompt: Name = ""
    pair: Name = ""
    time: Annotated[str, AfterValidator(_iso)] = ""
    seconds: float | None = Field(default=None, ge=0, le=LONGEST_VIEW)
    content: SideOrTie | None = None
    design: SideOrTie | None = None
    coherence: SideOrTie | None = None

    line: int = 0  # of the file
    ident: str = ""  # of the pair in the study, made of prompt, pair and makers
    means: Choice = "tie"  # what `choice` says

    @property
    def preferred(self) -> str:
        """The maker whose deck the vote prefers, or its choice."""
        return getattr(self, self.means) if self.means in SIDES else self.means


class Taken(TypedDict):
    """What vote-import prints. votes: new ones; unscored: decks without scores that were voted on;
    unread: columns."""

    file: str
    votes: int
    same: int
    raters: int
    prompts: int
    makers: list[str]
    unscored: list[tuple[str, str]]
    unread: list[str]


# The file


def read(path: Path) -> tuple[list[ImportedVote], list[str]]:
    """The votes of a CSV or JSONL file, and the names of columns that are not read. A vote that
    comes twice is there once, and a row of another kind than vote is none. Raises cli.BadData that
    names line, column and value of bad rows."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise cli.Missing(
            f"{path}: cannot be read ({error.strerror}); --votes names a CSV or JSONL file"
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise cli.BadData(f"{path}:{line}: not UTF-8; save it as CSV in UTF-8") from None
    header, rows = (_jsonl if text.lstrip()[:1] == "{" else _csv)(path, text)
    columns, unread = _columns(path, header)
    votes: dict[tuple[str, str], ImportedVote] = {}
    wrong: list[str] = []
    for line, cells in rows:
        if cells.get(columns.get("kind", "")) not in (None, "", "vote"):
            continue
        try:
            vote = _vote(line, cells, columns)
            first = votes.setdefault((vote.rater, vote.ident), vote)
            _no_other(vote, first.preferred, f"in line {first.line}")
        except ValueError as error:
            wrong.append(f"{path}:{line}: {error}")
    if wrong:
        more = [f"{len(wrong) - SHOWN:,} rows more cannot be used"] if len(wrong) > SHOWN else []
        raise cli.BadData("\n".join([*wrong[:SHOWN], *more, "nothing was taken"]))
    if not votes:
        raise cli.BadData(f"{path}: there is no vote in it")
    return list(votes.values()), unread


def _csv(path: Path, text: str) -> tuple[list[str], list[tuple[int, Cells]]]:
    """`(columns, [(line, cells)])`."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[int, Cells]] = []
    line = 1
    try:
        header = [name.strip() for name in next(reader, [])]
        line = reader.line_num + 1
        for cells in reader:
            if cells and len(cells) != len(header):
                raise cli.BadData(
                    f"{path}:{line}: {len(cells)} cells, and {len(header)} columns in the header; "
                    "nothing was taken"
                )
            if cells:
                rows.append((line, dict(zip(header, cells, strict=True))))
            line = reader.line_num + 1
    except csv.Error as error:
        raise cli.BadData(f"{path}:{line}: not CSV ({error}); nothing was taken") from None
    return header, rows


def _jsonl(path: Path, text: str) -> tuple[list[str], list[tuple[int, Cells]]]:
    rows: list[tuple[int, Cells]] = []
    names: dict[str, None] = {}  # in the order in which they come
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = stream.json_object(line)
        except ValueError as error:
            raise cli.BadData(f"{path}:{number}: {error}; nothing was taken") from None
        said = row.get("dimensions")
        if isinstance(said, dict):
            row = {**row, "dimensions": None, **said}
        names |= dict.fromkeys(row)
        rows.append((number, row))
    return [name for name in names if name != "dimensions"], rows


def _columns(path: Path, header: Sequence[str]) -> tuple[Columns, list[str]]:
    """`({field: its column}, columns that are not read)`."""
    found: Columns = {}
    for field, names in COLUMNS.items():
        there = [name for name in header if name.lower() in names]
        if len(there) > 1:
            raise cli.BadData(
                f"{path}:1: columns {' and '.join(there)} both say the {field}; leave one out"
            )
        if there:
            found[field] = there[0]
    shown = ", ".join(header) or "none"
    for field in ("rater", "left", "right", "choice"):
        if field not in found:
            others = ", ".join(COLUMNS[field][1:])
            raise cli.BadData(f"{path}:1: no column {field} (or {others}); there are: {shown}")
    if "prompt" not in found and "pair" not in found:
        raise cli.BadData(f"{path}:1: no column prompt and no column pair; there are: {shown}")
    return found, [name for name in header if name not in found.values()]


def _vote(line: int, cells: Cells, columns: Columns) -> ImportedVote:
    """The vote of a row. Raises ValueError that names the column."""
    said = {field: cells.get(columns[field]) for field in columns if field != "kind"}
    given = {
        field: value
        for field, value in said.items()
        if value is not None and (not isinstance(value, str) or value.strip())
    }
    try:
        vote = ImportedVote.model_validate(given)
    except ValidationError as error:
        raise ValueError(_sentence(error, columns)) from None
    if not vote.prompt and not vote.pair:
        column = columns.get("prompt") or columns["pair"]
        raise ValueError(f"{column}: is empty: a vote is on a prompt or on a pair")
    if vote.left == vote.right:
        raise ValueError(
            f"{columns['right']}: {vote.right!r} made both decks; a vote compares two makers"
        )
    vote.prompt = vote.prompt or vote.pair
    makers = sorted((vote.left, vote.right))
    vote.ident = str(stream.fingerprint([vote.prompt, vote.pair, makers]))[:16]
    vote.line, vote.means = line, _choice(vote, columns["choice"])
    return vote


def _sentence(error: ValidationError, columns: Columns) -> str:
    first = error.errors()[0]
    column = columns[str(first["loc"][0])]
    if first["type"] == "missing":
        return f"{column}: is empty"
    why = first["msg"].removeprefix("Value error, ")
    return f"{column}: {str(first['input'])[:60]!r}: {why}"


def _choice(vote: ImportedVote, column: str) -> Choice:
    """What a row prefers: a side by any name of its column, a maker, or neither."""
    said, lower = vote.choice, vote.choice.lower()
    meant = {NEITHER[lower]} if lower in NEITHER else set[Choice]()
    meant |= {side for side in SIDES if lower in COLUMNS[side] or said == getattr(vote, side)}
    if not meant:
        known = f"left, right, tie, bad, {vote.left}, {vote.right}"
        raise ValueError(f"{column}: {said[:60]!r} is none of {known}")
    if len(meant) > 1:
        raise ValueError(
            f"{column}: {said[:60]!r} is a side and the maker on the other side, or no side; "
            "name the makers differently"
        )
    return meant.pop()


def _no_other(vote: ImportedVote, before: str, where: str) -> None:
    """Raises ValueError where a rater said something else of the same pair before."""
    if vote.preferred != before:
        raise ValueError(
            f"choice: {vote.rater!r} prefers {vote.preferred} here and {before} {where}, "
            "of the same pair"
        )


# The study


def take(folder: Path, path: Path, scores: Path | None = None) -> Taken:
    """Put the votes of `path`, and the scores beside them, into the study in `folder`, which is
    made unless there. Raises cli.BadData, and then nothing was taken; a file that came before
    changes nothing."""
    votes, unread = read(path)
    if scores is not None:
        if not scores.is_file():
            raise cli.Missing(
                f"{scores}: no such file; --scores names a JSONL file (docs/records.md)"
            )
        runs.load([scores])
    about = _about(folder, path)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with store.locked(folder):
        pairs = store.pairs_of(folder)
        if pairs:
            with _opened(folder) as study:
                _fits(path, votes, study)
        for vote in votes:
            pairs.setdefault(vote.ident, _pair(vote))
        sides = [side for pair in pairs.values() for side in (pair["left"], pair["right"])]
        makers = sorted({side["run"] for side in sides})
        about["runs"] = [{"name": name, "label": name, "path": ""} for name in makers]
        # Scores and pairs first: whoever sees a vote sees all that belongs to it.
        if scores is not None:
            stream.write(folder / "scores.jsonl", scores.read_bytes())
        store.write(folder, about, pairs.values())
        with _opened(folder) as study:
            stored = study.enter(
                (vote.rater, vote.ident, _ballot(vote), vote.time) for vote in votes
            )
            judged, _ = tally.scores_of(study)
    decks = {(maker, vote.prompt) for vote in votes for maker in (vote.left, vote.right)}
    return {
        "file": str(path),
        "votes": stored,
        "same": len(votes) - stored,
        "raters": len({vote.rater for vote in votes}),
        "prompts": len({vote.prompt for vote in votes}),
        "makers": makers,
        "unscored": sorted(deck for deck in decks if (*deck, 0) not in judged),
        "unread": unread,
    }


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[store.Study]:
    study = store.Study(folder)
    try:
        yield study
    finally:
        study.close_file()


def _about(folder: Path, path: Path) -> records.StudyAbout:
    """study.json of the folder, or of a new study, with `path` as its latest source."""
    about: records.StudyAbout = store.about_of(folder) or {
        "title": f"Votes of {path.name}",
        "question": "",
        "seed": None,
        "raters_per_pair": 1,
        "per_rater": 0,
        "runs": [],
        "imported": [],
    }
    if "imported" not in about:
        raise cli.BadData(
            f"{folder} was made by pair-build; imported votes need a folder of their own"
        )
    if path.name not in about["imported"]:
        about["imported"].append(path.name)
    return about


def _pair(vote: ImportedVote) -> records.StudyPair:
    """The pair of a vote, as pairs.jsonl has it; there are no pictures."""
    left, right = vote.left, vote.right
    return {
        "id": vote.ident,
        "kind": "vote",
        "prompt": vote.prompt,
        "request": "",
        "left": {"model": left, "run": left, "sample": 0},
        "right": {"model": right, "run": right, "sample": 0},
        "pictures": {"left": [], "right": []},
        "of": None,
        "expect": None,
    }


def _ballot(vote: ImportedVote) -> dict[str, object]:
    """What is stored of a vote. The sides are the vote's own: one person may have seen left what
    another saw right."""
    dimensions = {name: getattr(vote, name) for name in DIMENSIONS if getattr(vote, name)}
    return {
        "choice": vote.means,
        "dimensions": dimensions,
        "tags": [],
        "seconds": vote.seconds,
        "seen": True,
        "left": vote.left,
        "right": vote.right,
    }


def _fits(path: Path, votes: Sequence[ImportedVote], study: store.Study) -> None:
    """Raises cli.BadData where votes contradict what the study has."""
    if study.closed:
        raise cli.BadData(f"{study.folder} is closed: votes neither come nor go")
    stands = {(vote["rater"], vote["pair"]): vote for vote in study.votes()}
    for vote in votes:
        if stored := stands.get((vote.rater, vote.ident)):
            try:
                _no_other(vote, records.preferred(stored) or stored["choice"], "in the study")
            except ValueError as error:
                raise cli.BadData(f"{path}:{vote.line}: {error}; nothing was taken") from None
