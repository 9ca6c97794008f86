"""Votes from elsewhere: a file of votes that others collected becomes a study that vote-tally
counts as its own.

In comes a CSV or JSONL file, one row for each vote, and beside it, where there are such, scores of
the decks (docs/records.md, "Scores of another tool"). A file is taken whole or not at all.
docs/votes.md has the columns.
"""

import contextlib
import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.results import runs
from decksmith.study import messages, store

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
    "of": ("of",),
    "expect": ("expect",),
}
NEITHER = {"tie": "tie", "bad": "bad", "both bad": "bad", "both_bad": "bad", "tie (bothbad)": "bad"}
KINDS = ("vote", "repeat", "gold")
LONGEST = 200  # characters of a name
SHOWN = 10  # bad rows that are named
SIDES = ("left", "right")

Row = dict[str, Any]  # of the file, by column
Vote = dict[str, Any]  # as `read` has it
Columns = dict[str, str]  # {field: its column}
Scores = dict[tuple[str, str, int], dict[str, float | None]]  # by maker, prompt and sample


class _Bad(Exception):
    """What is wrong with a row."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(f"{column}: {message}")


# The file


def read(path: Path) -> tuple[list[Vote], list[str]]:
    """The votes of a CSV or JSONL file, and the names of columns that are not read.

    A vote: {"line", "kind", "pair", "prompt", "rater", "left", "right", "choice" (left, right,
    tie or bad), "dimensions", "seconds", "at", "of", "expect"}. A vote that comes twice is there
    once. Raises cli.BadData that names line, column and value of bad rows."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise cli.Missing(
            f"{path}: cannot be read ({error.strerror}); --votes names a CSV or JSONL file"
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise cli.BadData(f"{path}:{line}: not UTF-8; save it as CSV in UTF-8") from None
    rows, columns, unread = (_jsonl if text.lstrip()[:1] == "{" else _csv)(path, text)
    votes: list[Vote] = []
    wrong: list[str] = []
    pairs: dict[str, tuple[int, dict[str, Any]]] = {}
    said: dict[tuple[str, str], tuple[int, str]] = {}
    for line, row in rows:
        try:
            vote = {"line": line, **_vote(row, columns)}
            _same_pair(vote, pairs)
            if _first(vote, said):
                votes.append(vote)
        except _Bad as error:
            wrong.append(f"{path}:{line}: {error}")
    if wrong:
        more = [f"{len(wrong) - SHOWN:,} rows more cannot be used"] if len(wrong) > SHOWN else []
        raise cli.BadData("\n".join([*wrong[:SHOWN], *more, "nothing was taken"]))
    if not votes:
        raise cli.BadData(f"{path}: there is no vote in it")
    return votes, unread


def _csv(path: Path, text: str) -> tuple[list[tuple[int, Row]], Columns, list[str]]:
    """`(rows [(line, {column: text})], {field: column}, columns that are not read)`."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[int, Row]] = []
    line = 1
    try:
        header = [name.strip() for name in next(reader, [])]
        columns, unread = _columns(path, header)
        line = reader.line_num + 1
        for cells in reader:
            if cells:
                if len(cells) != len(header):
                    raise cli.BadData(
                        f"{path}:{line}: {len(cells)} cells, and {len(header)} columns in the header; nothing was taken"
                    )
                rows.append((line, dict(zip(header, cells, strict=True))))
            line = reader.line_num + 1
    except csv.Error as error:
        raise cli.BadData(f"{path}:{line}: not CSV ({error}); nothing was taken") from None
    return rows, columns, unread


def _jsonl(path: Path, text: str) -> tuple[list[tuple[int, Row]], Columns, list[str]]:
    rows: list[tuple[int, Row]] = []
    names: dict[str, None] = {}  # in the order in which they come
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise cli.BadData(
                    f"{path}:{number}: not JSON ({error}); nothing was taken"
                ) from None
            if not isinstance(row, dict):
                raise cli.BadData(f"{path}:{number}: not a JSON object; nothing was taken")
            said = row.pop("dimensions", None) or {}
            row |= said if isinstance(said, dict) else {"dimensions": said}
            names |= dict.fromkeys(row)
            rows.append((number, row))
    columns, unread = _columns(path, list(names))
    return rows, columns, unread


def _columns(path: Path, header: Sequence[str]) -> tuple[Columns, list[str]]:
    """`({field: its column}, columns that are not read)`."""
    known = {name: (name,) for name in messages.DIMENSIONS} | COLUMNS
    found: Columns = {}
    for field, names in known.items():
        there = [name for name in header if name.lower() in names]
        if len(there) > 1:
            raise cli.BadData(
                f"{path}:1: columns {' and '.join(there)} both say the {field}; leave one out"
            )
        if there:
            found[field] = there[0]
    for field in ("rater", "left", "right", "choice"):
        if field not in found:
            raise cli.BadData(
                f"{path}:1: no column {field} (or {', '.join(COLUMNS[field][1:])}); there are: {', '.join(header) or 'none'}"
            )
    if "prompt" not in found and "pair" not in found:
        raise cli.BadData(
            f"{path}:1: no column prompt and no column pair; there are: {', '.join(header)}"
        )
    return found, [name for name in header if name not in found.values()]


class _Cells:
    """The cells of a row by field; each method raises _Bad that names the column."""

    def __init__(self, row: Row, columns: Columns) -> None:
        self.row, self.columns = row, columns

    def column(self, *fields: str) -> str:
        """The column of the first of these fields that the file has; a field's own name where it
        has none."""
        return next((self.columns[field] for field in fields if field in self.columns), fields[0])

    def text(self, field: str) -> str | None:
        """What stands there, None for nothing."""
        value = self.row.get(self.columns[field]) if field in self.columns else None
        if isinstance(value, bool) or not isinstance(value, str | int | float | None):
            raise _Bad(self.columns[field], f"{json.dumps(value)[:60]} is no text")
        return None if value is None else str(value).strip() or None

    def name(self, field: str) -> str | None:
        value = self.text(field)
        if value is not None and (len(value) > LONGEST or not value.isprintable()):
            raise _Bad(
                self.columns[field],
                f"{value[:60]!r} is longer than {LONGEST} characters or has some that cannot be seen",
            )
        return value

    def needed(self, field: str) -> str:
        value = self.name(field)
        if value is None:
            raise _Bad(self.columns[field], "is empty")
        return value

    def one_of(self, field: str, allowed: Sequence[str]) -> str | None:
        value = self.text(field)
        if value is not None and value not in allowed:
            raise _Bad(self.columns[field], f"{value[:60]!r} is none of {', '.join(allowed)}")
        return value


def _vote(row: Row, columns: Columns) -> Vote:
    """One vote; raises _Bad."""
    cells = _Cells(row, columns)
    found: Vote = {
        "kind": cells.one_of("kind", KINDS) or "vote",
        "rater": cells.needed("rater"),
        "left": cells.needed("left"),
        "right": cells.needed("right"),
        "prompt": cells.name("prompt"),
        "pair": cells.name("pair"),
        "of": cells.name("of"),
        "expect": cells.one_of("expect", SIDES),
    }
    found["prompt"] = found["prompt"] or found["pair"]
    if found["prompt"] is None:
        raise _Bad(cells.column("prompt", "pair"), "is empty: a vote is on a prompt or on a pair")
    if found["left"] == found["right"] and found["kind"] != "gold":
        raise _Bad(
            columns["right"], f"{found['right']!r} made both decks; a vote compares two makers"
        )
    if found["kind"] == "gold" and found["expect"] is None:
        raise _Bad(
            cells.column("expect"), "is empty: an attention item (kind gold) expects left or right"
        )
    dimensions = {name: cells.one_of(name, (*SIDES, "tie")) for name in messages.DIMENSIONS}
    return {
        **found,
        "choice": _choice(cells.text("choice"), found, columns["choice"]),
        "at": _time(cells.text("time"), cells.column("time")),
        "seconds": _seconds(cells.text("seconds"), cells.column("seconds")),
        "dimensions": {name: value for name, value in dimensions.items() if value},
    }


def _choice(said: str | None, vote: Vote, column: str) -> str:
    if said is None:
        raise _Bad(column, "is empty")
    meant = {side for side in ("left", "right") if said.lower() in COLUMNS[side]}
    if vote["kind"] != "gold":
        meant |= {side for side in ("left", "right") if said == vote[side]}
    if said.lower() in NEITHER:
        meant.add(NEITHER[said.lower()])
    if not meant:
        raise _Bad(
            column,
            f"{said[:60]!r} is none of left, right, tie, bad, {vote['left']}, {vote['right']}",
        )
    if len(meant) > 1:
        raise _Bad(
            column,
            f"{said[:60]!r} is a side and the maker on the other side, or no side; name the makers differently",
        )
    return meant.pop()


def _time(said: str | None, column: str) -> str:
    """ISO 8601 or seconds since 1970 as ISO 8601 in UTC; a time without a zone is UTC. "" where
    nothing is said."""
    if said is None:
        return ""
    try:
        try:
            at = datetime.fromtimestamp(float(said), UTC)
        except ValueError:
            at = datetime.fromisoformat(said)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise _Bad(
            column, f"{said[:60]!r} is no time; write 2026-11-21T20:00:00Z, or seconds since 1970"
        ) from None
    return at.isoformat(timespec="milliseconds")


def _seconds(said: str | None, column: str) -> float | None:
    if said is None:
        return None
    try:
        value = float(said)
    except ValueError:
        value = math.nan
    if not 0 <= value <= messages.LONGEST_VIEW:
        raise _Bad(
            column, f"{said[:60]!r} is no number of seconds from 0 to {messages.LONGEST_VIEW}"
        )
    return value


def _same_pair(vote: Vote, pairs: dict[str, tuple[int, dict[str, Any]]]) -> None:
    """Give the vote the id of its pair, and see that a pair is always the same two decks; raises
    _Bad."""
    makers = sorted((vote["left"], vote["right"]))

    def made(kind: str) -> str:
        return str(stream.fingerprint([kind, vote["prompt"], makers]))[:16]

    vote["pair"] = vote["pair"] or made(vote["kind"])
    vote["of"] = (vote["of"] or made("vote")) if vote["kind"] == "repeat" else None
    about = {"kind": vote["kind"], "prompt": vote["prompt"], "makers": makers}
    line, before = pairs.setdefault(vote["pair"], (vote["line"], about))
    for key, value in about.items():
        if before[key] != value:
            raise _Bad(
                "pair",
                f"{vote['pair']!r} has {key} {_words(value)}, and {_words(before[key])} in line {line}",
            )


def _words(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else " and ".join(value)


def _first(vote: Vote, said: dict[tuple[str, str], tuple[int, str]]) -> bool:
    """Whether this is the first time that the rater says this of the pair; raises _Bad where it
    was something else before."""
    line, before = said.setdefault((vote["rater"], vote["pair"]), (vote["line"], preferred(vote)))
    if before != preferred(vote):
        raise _Bad(
            "choice",
            f"{vote['rater']!r} prefers {preferred(vote)} here and {before} in line {line}, of the same pair",
        )
    return bool(line == vote["line"])


def preferred(vote: Vote) -> str:
    """The maker whose deck a vote prefers, or its choice; of an attention item, its side."""
    choice: str = vote["choice"]
    sided = choice in SIDES and vote["kind"] != "gold"
    return str(vote[choice]) if sided else choice


# The study


def made(study: store.Study) -> bool:
    """Whether the votes of this study come from elsewhere."""
    return "outside" in study.about


def refuse(study: store.Study) -> None:
    """Raises cli.BadData where there are no pictures to vote on."""
    if made(study):
        raise cli.BadData(
            f"{study.folder} has votes from elsewhere and no pictures; vote-tally counts it, and nobody can vote in it"
        )


def take(folder: Path, path: Path, scores: Path | None = None) -> dict[str, Any]:
    """Put the votes of `path`, and the scores beside them, into the study in `folder`, which is
    made unless there.

    Returns {"file", "is": "stored" or "same", "votes": new ones, "same", "raters", "prompts",
    "makers", "unscored": decks without scores among those that were voted on, "unread":
    columns}. Raises cli.BadData, and then nothing was taken; a file that came before changes
    nothing."""
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
        pairs = _with_votes(folder, path, votes)
        makers = sorted({pair[side]["run"] for pair in pairs.values() for side in SIDES})
        about["runs"] = [
            {"name": name, "label": name, "path": "", "protocol": ""} for name in makers
        ]
        # Scores and pairs first: whoever sees a vote sees all that belongs to it.
        if scores is not None:
            stream.write(folder / "scores.jsonl", scores.read_bytes())
        stream.write(folder / "study.json", json.dumps(about, ensure_ascii=False, indent=1) + "\n")
        lines = (stream.dumps(pair) + b"\n" for pair in pairs.values())
        stream.write(folder / "pairs.jsonl", b"".join(lines))
        with _opened(folder) as study:
            entered = ((vote["rater"], vote["pair"], _ballot(vote), vote["at"]) for vote in votes)
            stored = study.enter(entered)
            judged, *_ = measures(study)
    decks = {
        (vote[side], vote["prompt"], 0)
        for vote in votes
        if vote["kind"] == "vote"
        for side in SIDES
    }
    return {
        "file": str(path),
        "is": "stored" if stored else "same",
        "votes": stored,
        "same": len(votes) - stored,
        "raters": len({vote["rater"] for vote in votes}),
        "prompts": len({vote["prompt"] for vote in votes}),
        "makers": makers,
        "unscored": [list(deck[:2]) for deck in sorted(decks - judged.keys())],
        "unread": unread,
    }


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[store.Study]:
    study = store.Study(folder)
    try:
        yield study
    finally:
        study.close_file()


def _about(folder: Path, path: Path) -> dict[str, Any]:
    """study.json of the folder, or of a new study, with `path` as its latest source."""
    about = store.about_of(folder) or {
        "title": f"Votes of {path.name}",
        "question": "",
        "seed": None,
        "raters_per_pair": 1,
        "per_rater": 0,
        "runs": [],
        "made": [],
        "outside": [],
    }
    if "outside" not in about:
        raise cli.BadData(
            f"{folder} was made by pair-build; votes from elsewhere need a folder of their own"
        )
    source = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    about["outside"] = [one for one in about["outside"] if one != source] + [source]
    return about


def _with_votes(folder: Path, path: Path, votes: Sequence[Vote]) -> dict[str, store.Pair]:
    """The pairs of the study in `folder`, where there is one, and those of `votes`. Raises
    cli.BadData where these contradict it."""
    if not (folder / "pairs.jsonl").exists():
        pairs: dict[str, store.Pair] = {}
    else:
        with _opened(folder) as study:
            pairs = dict(study.pairs)
            _fits(path, votes, study)
    for vote in votes:
        pairs.setdefault(vote["pair"], _pair(vote))
    return pairs


def _pair(vote: Vote) -> store.Pair:
    """The pair of a vote, as pairs.jsonl has it; there are no pictures."""
    sides = {
        side: {"model": vote[side], "run": vote[side], "sample": 0, "rendered": True}
        for side in SIDES
    }
    return {
        "id": vote["pair"],
        "kind": vote["kind"],
        "prompt": vote["prompt"],
        "request": "",
        **sides,
        "pictures": {"left": [], "right": []},
        "of": vote["of"],
        "expect": vote["expect"],
        "round": 1,
    }


def _ballot(vote: Vote) -> dict[str, Any]:
    """What is stored of a vote. The sides are the vote's own: elsewhere one person may have seen
    left what another saw right."""
    return {
        "choice": vote["choice"],
        "dimensions": vote["dimensions"],
        "tags": [],
        "seconds": vote["seconds"],
        "seen": True,
        "left": vote["left"],
        "right": vote["right"],
    }


def _fits(path: Path, votes: Sequence[Vote], study: store.Study) -> None:
    """Raises cli.BadData where votes contradict what the study has."""
    if study.closed:
        raise cli.BadData(f"{study.folder} is closed: votes neither come nor go")
    pairs = study.pairs
    stands = {(vote["rater"], vote["pair"]): preferred(vote) for vote in study.votes()}
    for vote in votes:
        where = f"{path}:{vote['line']}:"
        if vote["pair"] in pairs and _decks(pairs[vote["pair"]]) != _decks(_pair(vote)):
            raise cli.BadData(
                f"{where} pair: {vote['pair']!r} is of another prompt or of other makers in the study; nothing was taken"
            )
        said = stands.get((vote["rater"], vote["pair"]))
        if said not in (None, preferred(vote)):
            raise cli.BadData(
                f"{where} choice: {vote['rater']!r} prefers {preferred(vote)} here and {said} in the study, of the same pair; "
                "nothing was taken"
            )


def _decks(pair: store.Pair) -> tuple[str, str, list[str]]:
    """What makes two pairs the same question, whatever stands left."""
    return pair["kind"], pair["prompt"], sorted(pair[side]["run"] for side in SIDES)


def measures(study: store.Study) -> tuple[Scores, dict[str, float] | None, list[str]]:
    """`({(maker, prompt, 0): measures}, weights of the dimensions, makers without scores)` from the
    scores beside the votes.

    Overall is the plain mean of the dimensions, so the weights are equal. Of several samples of
    a deck the mean counts, because a vote does not say which of them was seen; a sample without
    scores is left out."""
    names = {run["name"] for run in study.about["runs"]}
    if not (study.folder / "scores.jsonl").exists():
        return {}, None, sorted(names)
    samples: dict[tuple[str, str, int], list[dict[str, float | None]]] = {}
    weights: dict[str, float] | None = None
    for run in runs.load([study.folder / "scores.jsonl"]):
        for record in run["records"]:
            said = record["score"]
            weights = weights or {name: 1 / len(said["dimensions"]) for name in said["dimensions"]}
            found = samples.setdefault((run["name"], record["id"], 0), [])
            found.append({"overall": said["overall"], **said["dimensions"]})
    scores = {
        deck: {name: _mean(one[name] for one in some) for name in some[0]}
        for deck, some in samples.items()
    }
    return scores, weights, sorted(names - {maker for maker, *_ in scores})


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of those values that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def remedy(study: store.Study, name: str) -> str:
    """What puts scores of the run `name` beside the votes, as the end of a sentence."""
    if made(study):
        return "`vote-import --votes .. --scores FILE` brings them"
    return f"`make baseline MODEL={name}` makes them"
