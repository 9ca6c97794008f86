"""Votes that others collected: a file of them becomes a study that vote-tally counts as its own.

A row is a Vote (docs/records.md) in JSONL, or a row of CSV with the same names; it needs a prompt, a
rater, two makers and a choice. Beside it come, where there are such, scores of the decks. A file is
taken whole or not at all.
"""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, TypedDict, cast

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from decksmith.core import cli, stream
from decksmith.measure.results import runs
from decksmith.people.study import records, store
from decksmith.people.study.records import CHOICES, LONGEST_VIEW, SIDES, Choice, SideOrTie

LONGEST = 200  # characters of a name
SHOWN = 10  # bad rows that are named
CLOCKS = timedelta(minutes=10)  # the clocks of two machines may be so far apart

# What others call a choice (LMArena and FastChat), beside the maker's own name.
ALSO = {
    "a": "left",
    "model_a": "left",
    "b": "right",
    "model_b": "right",
    "both bad": "bad",
    "both_bad": "bad",
    "tie (bothbad)": "bad",
}

Rows = Iterator[tuple[int, dict[str, object]]]  # by line


def _visible(name: str) -> str:
    if not name.isprintable():
        raise ValueError("has characters that cannot be seen")
    return name


def _maker(name: str) -> str:
    if name in CHOICES:
        raise ValueError(f"no maker can be called that: {', '.join(CHOICES)} are choices")
    return name


def _past(at: datetime) -> datetime:
    """A time in UTC, which one without a zone is in already."""
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    if at > datetime.now(UTC) + CLOCKS:
        raise ValueError(
            f"is in the future by this machine's clock ({datetime.now(UTC):%F %R} UTC)"
        )
    return at


Name = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(_visible)]
Maker = Annotated[Name, AfterValidator(_maker)]


class ImportedVote(BaseModel):
    """What is read of a row. `choice` may also be a maker."""

    model_config = ConfigDict(coerce_numbers_to_str=True, str_strip_whitespace=True)

    prompt: Name = Field(validation_alias=AliasChoices("prompt", "prompt_id", "question_id"))
    rater: Name = Field(validation_alias=AliasChoices("rater", "rater_id", "judge"))
    left: Maker = Field(validation_alias=AliasChoices("left", "a", "model_a"))
    right: Maker = Field(validation_alias=AliasChoices("right", "b", "model_b"))
    choice: str = Field(validation_alias=AliasChoices("choice", "winner"))
    at: Annotated[datetime, AfterValidator(_past)] | None = Field(
        default=None, validation_alias=AliasChoices("at", "time", "tstamp")
    )
    seconds: float | None = Field(default=None, ge=0, le=LONGEST_VIEW)
    dimensions: dict[records.Dimension, SideOrTie] = {}

    @property
    def pair(self) -> str:
        """The id of the pair in the study: a prompt and two makers."""
        made = [self.prompt, "", sorted((self.left, self.right))]
        return str(stream.fingerprint(made))[:16]

    @property
    def means(self) -> Choice:
        """What `choice` says. Raises ValueError."""
        if self.left == self.right:
            raise ValueError(f"right: {self.right!r} made both decks; a vote compares two makers")
        said = ALSO.get(self.choice, self.choice)
        said = {self.left: "left", self.right: "right"}.get(said, said)
        if said not in CHOICES:
            known = ", ".join([*CHOICES, self.left, self.right])
            raise ValueError(f"choice: {self.choice[:60]!r} is none of {known}")
        return cast(Choice, said)

    @property
    def preferred(self) -> str:
        """The maker whose deck the vote prefers, or its choice."""
        return getattr(self, self.means) if self.means in SIDES else self.means


class Taken(TypedDict):
    """What vote-import prints; votes: new ones; kept: of pairs that the rater has voted on."""

    file: str
    votes: int
    kept: int
    raters: int
    prompts: int
    makers: list[str]


# The file


def read(path: Path) -> list[ImportedVote]:
    """The votes of a CSV or JSONL file, each once; a row of another kind than vote is none. Raises
    cli.BadData that names line, column and value of bad rows."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise cli.Missing(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise cli.BadData(f"{path}: not UTF-8; save it in UTF-8") from None
    votes: dict[tuple[str, str], ImportedVote] = {}
    wrong: list[str] = []
    try:
        for line, cells in (_jsonl if text.lstrip()[:1] in ("{", "[") else _csv)(text):
            if cells.get("kind", "vote") != "vote":
                continue
            try:
                vote = _vote(cells)
                before = votes.setdefault((vote.rater, vote.pair), vote).preferred
                if vote.preferred != before:
                    raise ValueError(
                        f"choice: {vote.rater!r} preferred {before} of this pair before"
                    )
            except ValueError as error:
                wrong.append(f"{path}:{line}: {error}")
    except (csv.Error, ValueError) as error:
        raise cli.BadData(f"{path}: {error}; nothing was taken") from None
    if wrong:
        more = [f"{len(wrong) - SHOWN:,} rows more cannot be used"] if len(wrong) > SHOWN else []
        raise cli.BadData("\n".join([*wrong[:SHOWN], *more, "nothing was taken"]))
    if not votes:
        raise cli.BadData(f"{path}: there is no vote in it; docs/votes.md has the columns")
    return list(votes.values())


def _csv(text: str) -> Rows:
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="", strict=True)
    names, before = [name.strip() for name in reader.fieldnames or ()], 1
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"line 1: there are two columns {twice[0]!r}")
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # of a row that may be many lines long: where it begins
            raise ValueError(f"line {before + 1}: {error}") from None
        before = reader.line_num
        if "" in row or None in row.values():
            raise ValueError(f"line {reader.line_num}: not as many cells as columns in the header")
        yield reader.line_num, {name.strip(): cell for name, cell in row.items() if cell.strip()}


def _jsonl(text: str) -> Rows:
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                yield number, stream.json_object(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None


def _vote(cells: dict[str, object]) -> ImportedVote:
    """The vote of a row. Raises ValueError that names the column."""
    try:
        vote = ImportedVote.model_validate({k: v for k, v in cells.items() if v not in (None, "")})
    except ValidationError as error:
        first = error.errors()[0]
        column, why = first["loc"][0], first["msg"].removeprefix("Value error, ")
        if first["type"] == "missing":
            raise ValueError(f"{column}: there is none; the row has {', '.join(cells)}") from None
        raise ValueError(f"{column}: {str(first['input'])[:60]!r}: {why}") from None
    return vote


# The study


def take(folder: Path, path: Path, scores: Path | None = None) -> Taken:
    """Put the votes of `path`, and the scores beside them, into the study in `folder`, which is
    made unless there; a vote that stands is kept. Raises cli.BadData, and then nothing was taken."""
    votes = read(path)
    if scores is not None:
        if not scores.is_file():
            raise cli.Missing(f"{scores}: no such file; --scores names a JSONL file")
        runs.load([scores])
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with store.locked(folder):
        about, pairs = _about(folder, path), store.pairs_of(folder)
        if pairs:
            study = store.Study(folder)
            is_closed = study.closed
            study.close_file()
            if is_closed:
                raise cli.BadData(f"{folder}: this study is closed; name another folder")
        for vote in votes:
            pairs.setdefault(vote.pair, _pair(vote))
        sides = [side for pair in pairs.values() for side in (pair["left"], pair["right"])]
        makers = sorted({side["run"] for side in sides})
        about["runs"] = [{"name": name, "label": name, "path": ""} for name in makers]
        # Scores and pairs first: whoever sees a vote sees all that belongs to it.
        if scores is not None:
            stream.write(folder / "scores.jsonl", scores.read_bytes())
        store.write(folder, about, pairs.values())
        study = store.Study(folder)
        try:
            stored = study.enter(
                (vote.rater, vote.pair, _ballot(vote), _time(vote)) for vote in votes
            )
        finally:
            study.close_file()
    return {
        "file": str(path),
        "votes": stored,
        "kept": len(votes) - stored,
        "raters": len({vote.rater for vote in votes}),
        "prompts": len({vote.prompt for vote in votes}),
        "makers": makers,
    }


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
        "id": vote.pair,
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
    return {
        "choice": vote.means,
        "dimensions": vote.dimensions,
        "tags": [],
        "seconds": vote.seconds,
        "seen": True,
        "left": vote.left,
        "right": vote.right,
    }


def _time(vote: ImportedVote) -> str:
    return vote.at.isoformat(timespec="milliseconds") if vote.at else ""
