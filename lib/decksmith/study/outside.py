"""Votes from elsewhere: a file of votes that others collected becomes a study that vote-tally counts as its own.

In comes a CSV or JSONL file, one row for each vote, and beside it, where there are such, scores of the decks (docs/records.md, "Scores
of another tool"). A file is taken whole or not at all. docs/votes.md has the columns.
"""

import csv
import hashlib
import io
import json
import math
from datetime import UTC, datetime
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.results import runs
from decksmith.study import messages, store

# By which names a column is known. `choice` may name a side by any name of the side's column, or the maker.
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


class _Bad(Exception):
    """What is wrong with a row: `(column, message)`."""


# The file


def read(path: Path) -> tuple[list[dict], list[str]]:
    """The votes of a CSV or JSONL file, and the names of columns that are not read.

    A vote: {"line", "kind", "pair", "prompt", "rater", "left", "right", "choice" (left, right, tie or bad), "dimensions", "seconds",
    "at", "of", "expect"}. A vote that comes twice is there once. Raises cli.BadData that names line, column and value of bad rows."""
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
    votes, wrong, pairs, said = [], [], {}, {}
    for line, row in rows:
        try:
            vote = {"line": line, **_vote(row, columns)}
            _same_pair(vote, pairs)
            if _first(vote, said):
                votes.append(vote)
        except _Bad as error:
            wrong.append(f"{path}:{line}: {error.args[0]}: {error.args[1]}")
    if wrong:
        more = [f"{len(wrong) - SHOWN:,} rows more cannot be used"] if len(wrong) > SHOWN else []
        raise cli.BadData("\n".join([*wrong[:SHOWN], *more, "nothing was taken"]))
    if not votes:
        raise cli.BadData(f"{path}: there is no vote in it")
    return votes, unread


def _csv(path, text):
    """`(rows [(line, {column: text})], {field: column}, columns that are not read)`."""
    reader, rows, line = csv.reader(io.StringIO(text, newline=""), strict=True), [], 1
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


def _jsonl(path, text):
    rows, names = [], {}
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


def _columns(path, header):
    """`({field: its column}, columns that are not read)`."""
    known = {name: (name,) for name in messages.DIMENSIONS} | COLUMNS
    found = {}
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


def _vote(row, columns):
    """One vote; raises _Bad."""

    def cell(field):
        value = row.get(columns.get(field))
        if isinstance(value, bool) or not isinstance(value, str | int | float | None):
            raise _Bad(columns[field], f"{json.dumps(value)[:60]} is no text")
        return None if value is None or not str(value).strip() else str(value).strip()

    def name(field, needed=True):
        value = cell(field)
        if value is None and needed:
            raise _Bad(columns[field], "is empty")
        if value is not None and (len(value) > LONGEST or not value.isprintable()):
            raise _Bad(
                columns[field],
                f"{value[:60]!r} is longer than {LONGEST} characters or has some that cannot be seen",
            )
        return value

    def one_of(field, allowed, default=None):
        value = cell(field)
        if value is not None and value not in allowed:
            raise _Bad(columns[field], f"{value[:60]!r} is none of {', '.join(allowed)}")
        return value or default

    found = {
        "kind": one_of("kind", KINDS, "vote"),
        "rater": name("rater"),
        "left": name("left"),
        "right": name("right"),
        "prompt": name("prompt", False),
        "pair": name("pair", False),
        "of": name("of", False),
        "expect": one_of("expect", ("left", "right")),
    }
    if found["prompt"] is None and found["pair"] is None:
        raise _Bad(
            columns.get("prompt") or columns["pair"], "is empty: a vote is on a prompt or on a pair"
        )
    found["prompt"] = found["prompt"] or found["pair"]
    if found["left"] == found["right"] and found["kind"] != "gold":
        raise _Bad(
            columns["right"], f"{found['right']!r} made both decks; a vote compares two makers"
        )
    if found["kind"] == "gold" and found["expect"] is None:
        raise _Bad(
            columns.get("expect", "expect"),
            "is empty: an attention item (kind gold) expects left or right",
        )
    dimensions = {
        dimension: one_of(dimension, ("left", "right", "tie"))
        for dimension in messages.DIMENSIONS
        if dimension in columns
    }
    return {
        **found,
        "choice": _choice(cell("choice"), found, columns["choice"]),
        "at": _time(cell("time"), columns.get("time")),
        "seconds": _seconds(cell("seconds"), columns.get("seconds")),
        "dimensions": {key: value for key, value in dimensions.items() if value},
    }


def _choice(said, vote, column):
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


def _time(said, column):
    """ISO 8601 or seconds since 1970 as ISO 8601 in UTC; a time without a zone is UTC. "" where nothing is said."""
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


def _seconds(said, column):
    try:
        value = None if said is None else float(said)
    except ValueError:
        value = math.nan
    if value is not None and not 0 <= value <= 86_400:
        raise _Bad(column, f"{said[:60]!r} is no number of seconds from 0 to 86400")
    return value


def _same_pair(vote, pairs):
    """Give the vote the id of its pair, and see that a pair is always the same two decks; raises _Bad."""
    makers = sorted((vote["left"], vote["right"]))

    def made(kind):
        return stream.fingerprint([kind, vote["prompt"], makers])[:16]

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


def _words(value):
    return value if isinstance(value, str) else " and ".join(value)


def _first(vote, said):
    """Whether this is the first time that the rater says this of the pair; raises _Bad where it was something else before."""
    line, before = said.setdefault((vote["rater"], vote["pair"]), (vote["line"], preferred(vote)))
    if before != preferred(vote):
        raise _Bad(
            "choice",
            f"{vote['rater']!r} prefers {preferred(vote)} here and {before} in line {line}, of the same pair",
        )
    return line == vote["line"]


def preferred(vote: dict) -> str:
    """The maker whose deck a vote prefers, or its choice; of an attention item, its side."""
    return (
        vote[vote["choice"]]
        if vote["choice"] in ("left", "right") and vote["kind"] != "gold"
        else vote["choice"]
    )


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


def take(folder: Path, path: Path, scores: Path | None = None) -> dict:
    """Put the votes of `path`, and the scores beside them, into the study in `folder`, which is made unless there.

    Returns {"file", "is": "stored" or "same", "votes": new ones, "same", "raters", "prompts", "makers", "unscored": decks without scores
    among those that were voted on, "unread": columns}. Raises cli.BadData, and then nothing was taken; a file that came before changes nothing."""
    votes, unread = read(path)
    if scores is not None:
        if not scores.is_file():
            raise cli.Missing(
                f"{scores}: no such file; --scores names a JSONL file (docs/records.md)"
            )
        runs.load([scores])
    about = {
        "title": f"Votes of {path.name}",
        "question": "",
        "seed": None,
        "raters_per_pair": 1,
        "per_rater": 0,
        "runs": [],
        "made": [],
        "outside": [],
    }
    if known := store.about_of(folder):
        about = known
        if "outside" not in about:
            raise cli.BadData(
                f"{folder} was made by pair-build; votes from elsewhere need a folder of their own"
            )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with store.locked(folder):
        study = store.Study(folder) if (folder / "pairs.jsonl").exists() else None
        pairs = dict(study.pairs) if study else {}
        try:
            _fits(path, votes, study, pairs)
        finally:
            if study:
                study.close_file()
        for vote in votes:
            pairs.setdefault(
                vote["pair"],
                {
                    "id": vote["pair"],
                    "kind": vote["kind"],
                    "prompt": vote["prompt"],
                    "request": "",
                    **{
                        side: {
                            "model": vote[side],
                            "run": vote[side],
                            "sample": 0,
                            "rendered": True,
                        }
                        for side in ("left", "right")
                    },
                    "pictures": {"left": [], "right": []},
                    "of": vote["of"],
                    "expect": vote["expect"],
                    "round": 1,
                },
            )
        makers = sorted(
            {pair[side]["run"] for pair in pairs.values() for side in ("left", "right")}
        )
        about["runs"] = [
            {"name": name, "label": name, "path": "", "protocol": ""} for name in makers
        ]
        source = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        about["outside"] = [one for one in about["outside"] if one != source] + [source]
        # Scores and pairs first: whoever sees a vote sees all that belongs to it.
        if scores is not None:
            stream.write(folder / "scores.jsonl", scores.read_bytes())
        stream.write(folder / "study.json", json.dumps(about, ensure_ascii=False, indent=1) + "\n")
        stream.write(
            folder / "pairs.jsonl", b"".join(stream.dumps(pair) + b"\n" for pair in pairs.values())
        )
        study = store.Study(folder)
        try:
            stored = study.enter(
                [(vote["rater"], vote["pair"], _ballot(vote), vote["at"]) for vote in votes]
            )
            judged = measures(study)[0] if (folder / "scores.jsonl").exists() else {}
        finally:
            study.close_file()
    decks = {
        (vote[side], vote["prompt"], 0)
        for vote in votes
        if vote["kind"] == "vote"
        for side in ("left", "right")
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


def _ballot(vote):
    """What is stored of a vote. The sides are the vote's own: elsewhere one person may have seen left what another saw right."""
    return {
        "choice": vote["choice"],
        "dimensions": vote["dimensions"],
        "tags": [],
        "seconds": vote["seconds"],
        "seen": True,
        "left": vote["left"],
        "right": vote["right"],
    }


def _fits(path, votes, study, pairs):
    """Raises cli.BadData where votes contradict what the study has."""
    if study and study.closed:
        raise cli.BadData(f"{study.folder} is closed: votes neither come nor go")
    stands = (
        {(vote["rater"], vote["pair"]): preferred(vote) for vote in study.votes()} if study else {}
    )
    for vote in votes:
        before, where = pairs.get(vote["pair"]), f"{path}:{vote['line']}:"
        if before and (
            before["kind"],
            before["prompt"],
            {before[side]["run"] for side in ("left", "right")},
        ) != (vote["kind"], vote["prompt"], {vote["left"], vote["right"]}):
            raise cli.BadData(
                f"{where} pair: {vote['pair']!r} is of another prompt or of other makers in the study; nothing was taken"
            )
        if (said := stands.get((vote["rater"], vote["pair"]), preferred(vote))) != preferred(vote):
            raise cli.BadData(
                f"{where} choice: {vote['rater']!r} prefers {preferred(vote)} here and {said} in the study, of the same pair; "
                "nothing was taken"
            )


def measures(study: store.Study) -> tuple[dict, dict | None, list[str]]:
    """`({(maker, prompt, 0): measures}, weights of the dimensions, makers without scores)` from the scores beside the votes.

    Overall is the plain mean of the dimensions, so the weights are equal. Of several samples of a deck the mean counts, because a vote
    does not say which of them was seen; a sample without scores is left out."""
    names = {run["name"] for run in study.about["runs"]}
    if not (study.folder / "scores.jsonl").exists():
        return {}, None, sorted(names)
    values, weights = {}, None
    for run in runs.load([study.folder / "scores.jsonl"]):
        for record in run["records"]:
            said = record["score"]
            weights = weights or {name: 1 / len(said["dimensions"]) for name in said["dimensions"]}
            values.setdefault((run["name"], record["id"], 0), []).append(
                {"overall": said["overall"], **said["dimensions"]}
            )
    found = {}
    for deck, samples in values.items():
        means = {
            name: [sample[name] for sample in samples if sample[name] is not None]
            for name in samples[0]
        }
        found[deck] = {
            name: sum(some) / len(some) if some else None for name, some in means.items()
        }
    return found, weights, sorted(names - {maker for maker, *_ in found})


def remedy(study: store.Study, name: str) -> str:
    """What puts scores of the run `name` beside the votes, as the end of a sentence."""
    return (
        "`vote-import --votes .. --scores FILE` brings them"
        if made(study)
        else f"`make baseline MODEL={name}` makes them"
    )
