"""The study on disk: who votes, what they said, and who made which deck.

A study is a folder. `pairs.jsonl`, `study.json` and `secret` say who made which deck: they are its
owner's, and nothing of them goes to a rater but a pair's id, its request and the names of its
pictures. Ids and names are keyed hashes: they say nothing without the secret. `votes.db` (SQLite)
holds raters and votes; what `act` has returned from is on the disk.
"""

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
import threading
import unicodedata
from base64 import b32encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from decksmith.core import cli, incoming, stream, validation
from decksmith.people.study import queues, raters, records
from decksmith.people.study.records import Rater, StudyAbout, StudyPair, Vote, preferred

if TYPE_CHECKING:
    from itsdangerous import URLSafeSerializer

MOST_RATERS = 20_000
SCHEMA = cli.ROOT / "assets/schemas/votes.sql"
VERSION = 2  # of this schema

Action = Literal["vote", "skip", "undo"]


class SheetPair(TypedDict):
    """What a rater is told of a pair: picture names by side."""

    id: str
    request: str
    left: list[str]
    right: list[str]


class Sheet(TypedDict):
    """All that a rater's page is told. `rater` is a name; `done` has the ballots by pair; `acted`
    has the pairs of `done` and `skipped`, the last one last."""

    title: str
    question: str
    rater: str
    closed: bool
    choices: dict[str, str]
    dimensions: dict[str, str]
    tags: dict[str, str]
    pairs: list[SheetPair]
    done: dict[str, dict[str, object]]
    skipped: list[str]
    acted: list[str]


class PlainCounts(TypedDict):
    """The votes on two models, counted."""

    models: list[str]
    labels: list[str]
    wins: list[int]
    tie: int
    bad: int
    votes: int


class Conflict(Exception):
    """What is asked contradicts what is stored."""


class Closed(Conflict):
    """The study is closed: votes neither come nor go."""


# What the folder holds


def now() -> str:
    """The time as text that sorts."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def keyed(secret: bytes, *words: object, size: int = 16) -> str:
    """A name that says nothing: lower-case letters and digits, of `size` bytes of a keyed hash."""
    digest = hmac.digest(secret, _joined(words), "sha256")
    return b32encode(digest[:size]).decode().rstrip("=").lower()


def dice(*words: object) -> float:
    """A number from 0 to 1 that depends on `words` alone."""
    return int.from_bytes(hashlib.sha256(_joined(words)).digest()[:8]) / (1 << 64)


def _joined(words: Iterable[object]) -> bytes:
    return "\x1f".join(map(str, words)).encode()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[bytes]:
    """The study's secret, made on the first call; one process at a time has it."""
    path = folder / "secret"
    with open(incoming.own(path, mode=0o600, closed=incoming.SECRET), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        secret = file.read()
        if len(secret) != 32:
            if (folder / "pairs.jsonl").exists():
                raise cli.BadData(
                    f"{folder}/secret is damaged: raters' links and the pairs' names depend on "
                    "it; bring it back from a copy"
                )
            secret = secrets.token_bytes(32)
            file.seek(0)
            file.truncate()
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        yield secret


def about_of(folder: Path) -> StudyAbout | None:
    """study.json of a folder, or None; raises cli.BadData for one that is damaged."""
    path = folder / "study.json"
    return cast(StudyAbout, stream.json_file(path)) if path.exists() else None


def pairs_of(folder: Path) -> dict[str, StudyPair]:
    """{id: pair} of pairs.jsonl, in its order; empty where there is none."""
    path = folder / "pairs.jsonl"
    if not path.exists():
        return {}
    return {pair["id"]: cast(StudyPair, pair) for _, pair in stream.journal(path)}


def write(folder: Path, about: StudyAbout, pairs: Iterable[StudyPair]) -> None:
    """Write study.json, then pairs.jsonl: whoever sees a pair sees all that belongs to it."""
    stream.write(folder / "study.json", json.dumps(about, ensure_ascii=False, indent=1) + "\n")
    lines = (stream.summed(pair) + b"\n" for pair in pairs)
    stream.write(folder / "pairs.jsonl", b"".join(lines))


# The people and their votes


def _maker(folder: Path) -> str:
    """What to type for a study in this folder: make's own are in results/blindtest."""
    if folder.parts[-3:-1] == ("results", "blindtest"):
        return f'`make vote MODEL="NAME NAME" STUDY={folder.name}`'
    return f"`pair-build --study {folder} RUN RUN`"


class Study:
    """A study that was built. Several processes may have it open; what a method that changes it has
    returned from is on the disk."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        for name in ("study.json", "pairs.jsonl", "secret"):
            if not (self.folder / name).is_file():
                raise cli.Missing(f"{self.folder} is no study; {_maker(self.folder)} makes one")
        own = incoming.own(self.folder / "secret", os.O_RDONLY, closed=incoming.SECRET)
        with open(own, "rb") as file:
            self.secret = file.read()
        self._stamp: list[tuple[int, int, int]] = []
        self._about: StudyAbout
        self._pairs: dict[str, StudyPair]
        self._lock = threading.RLock()
        try:
            self._open_database()
        except sqlite3.DatabaseError as error:
            raise cli.BadData(f"{self.folder}/votes.db cannot be used: {error}") from None

    def _open_database(self) -> None:
        os.close(incoming.own(self.folder / "votes.db", mode=0o644, closed=incoming.SECRET))
        self._db = sqlite3.connect(
            self.folder / "votes.db", timeout=60, isolation_level=None, check_same_thread=False
        )
        # Changing the journal's mode does not wait for another process that is doing the same. The
        # lock is on another file than the database: SQLite's own locks on that would go when it is
        # closed here (sqlite.org/howtocorrupt.html).
        with open(self.folder / "study.json", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._db.execute("PRAGMA journal_mode = WAL")
        # In WAL mode NORMAL could lose what was acknowledged to a power cut.
        self._db.execute("PRAGMA synchronous = FULL")
        with self.changing():
            version = self._value("PRAGMA user_version")
            if (said := self._value("PRAGMA integrity_check")) != "ok":
                raise sqlite3.DatabaseError(said)
            if version == 0:
                for statement in SCHEMA.read_text().split(";\n"):
                    self._db.execute(statement)
        if version not in (0, VERSION):
            raise cli.BadData(
                f"{self.folder}/votes.db is of another version of decksmith ({version}): count "
                "its votes with that one, or let pair-build make a study in another folder"
            )

    def close_file(self) -> None:
        """Close the database; every method fails from here on."""
        self._db.close()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """One durable transaction of all that is changed meanwhile; what raises undoes all of
        it."""
        with self._lock:
            if self._db.in_transaction:  # a part of a larger one
                yield
                return
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                yield

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def _value(self, query: str, *values: object) -> Any:
        """The first column of the first row, or None where there is no row."""
        rows = self._rows(query, *values)
        return rows[0][0] if rows else None

    def _column(self, query: str, *values: object) -> list[str]:
        """The first column of all rows."""
        return [row[0] for row in self._rows(query, *values)]

    # What is asked

    @property
    def about(self) -> StudyAbout:
        """study.json."""
        self._refresh()
        return self._about

    @property
    def pairs(self) -> dict[str, StudyPair]:
        """{id: pair} as in pairs.jsonl, with those that were added meanwhile."""
        self._refresh()
        return self._pairs

    @property
    def imported(self) -> bool:
        """Whether the votes of this study were imported."""
        return "imported" in self.about

    def _refresh(self) -> None:
        """Read the files again where they changed."""
        info = [os.stat(self.folder / name) for name in ("study.json", "pairs.jsonl")]
        stamp = [(each.st_ino, each.st_mtime_ns, each.st_size) for each in info]
        if stamp != self._stamp:
            about = about_of(self.folder)
            assert about is not None  # os.stat has just found it
            self._about, self._pairs, self._stamp = about, pairs_of(self.folder), stamp

    def _signer(self, salt: str) -> "URLSafeSerializer":
        """A serializer under the study's secret; another `salt` is another kind of signature."""
        from itsdangerous import URLSafeSerializer

        how = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        # The name says nothing of where this file stands: with another one no link of a study would
        # open any more.
        return URLSafeSerializer(self.secret, salt=f"decksmith.blindtest.{salt}", signer_kwargs=how)

    def _signed(self, salt: str, token: str) -> object:
        """What a token of ours says, or None."""
        from itsdangerous import BadSignature

        try:
            return self._signer(salt).loads(token)
        except (BadSignature, UnicodeError):
            return None

    @property
    def owner(self) -> str:
        """The token of the study's owner."""
        return str(self._signer("owner").dumps("owner"))

    def owned(self, token: str) -> bool:
        """Whether this is the token of the study's owner."""
        return self._signed("owner", token) == "owner"

    # Raters

    def add_rater(self, name: str, *, address: str | None = None) -> str:
        """The token of the rater of this name, who is added unless there. The same name has the
        same token in this study, whatever happens to votes.db.

        address: of whoever chose the name; of an invitation by the owner None. Of a name that was
        chosen a keyed hash of its network is kept. Raises Conflict where a chosen name is taken
        already.

        A name that somebody chose for themselves is taken for everybody else: an invitation
        would be to vote as them."""
        name = raters.handle(name)
        folded = unicodedata.normalize("NFKC", name).casefold()
        rater = keyed(self.secret, "rater", folded, size=6)
        with self.changing():
            stands = self._value("SELECT source FROM raters WHERE folded = ?", folded)
            if stands and address is not None:
                raise Conflict("this name is taken; if it is yours, open your personal link")
            if stands == "handle":
                raise Conflict(
                    f"somebody chose the name {name} for themselves: give another name, or open "
                    "theirs below"
                )
            if not stands:
                self._open_only()
                if self._value("SELECT count(*) FROM raters") >= MOST_RATERS:
                    raise Conflict("this study has as many raters as it can take")
                network, source = None, "link"
                if address is not None:
                    network = keyed(self.secret, "network", raters.network_of(address), size=8)
                    source = "handle"
                self._db.execute(
                    "INSERT INTO raters (id, name, folded, source, at, network) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (rater, name, folded, source, now(), network),
                )
                self._give(rater, self.about["per_rater"])
        return self.token(rater)

    def token(self, rater: str) -> str:
        """The signed token of a rater's id: the last part of the personal link."""
        return str(self._signer("rater").dumps(rater))

    def rater(self, token: str) -> str | None:
        """The id of the rater with this token, or None."""
        rater = self._signed("rater", token)
        if isinstance(rater, str) and self._rows("SELECT 1 FROM raters WHERE id = ?", rater):
            return rater
        return None

    def raters(self) -> list[Rater]:
        """Every rater in the order in which they came."""
        rows = self._rows("""
            SELECT id, name, source, at, network,
              (SELECT count(*) FROM given WHERE rater = id),
              (SELECT count(*) FROM votes WHERE rater = id),
              (SELECT count(*) FROM given WHERE rater = id AND skipped),
              (SELECT max(at) FROM votes WHERE rater = id)
            FROM raters ORDER BY rowid""")
        return [cast(Rater, dict(zip(Rater.__annotations__, row, strict=True))) for row in rows]

    # Queues

    def more(self, rater: str, n: int = 10) -> int:
        """Give a rater up to `n` pairs more, of those that have too few votes; returns how many
        there were."""
        with self.changing():
            self._open_only()
            return self._give(rater, n, only_needed=True)

    def _give(self, rater: str, n: int, only_needed: bool = False) -> int:
        """Put `n` more pairs at the end of a rater's queue, with the repeats and the attention
        items that belong to so many."""
        given = dict(self._rows("SELECT pair, count(*) FROM given GROUP BY pair"))
        votes = dict(self._rows("SELECT pair, count(*) FROM votes GROUP BY pair"))
        queue = queues.drawn(
            self.pairs,
            set(self.queue(rater)),
            given,
            votes if only_needed else None,
            each=self.about["raters_per_pair"],
            n=n,
            lot=lambda pair: keyed(self.secret, rater, pair),
            dice=lambda text: dice(self.secret.hex(), rater, text),
        )
        last = self._value("SELECT coalesce(max(place), 0) FROM given WHERE rater = ?", rater)
        self._db.executemany(
            "INSERT INTO given (rater, place, pair) VALUES (?, ?, ?)",
            [(rater, last + at, pair) for at, pair in enumerate(queue, 1)],
        )
        return len(queue)

    def queue(self, rater: str) -> list[str]:
        """The ids of the pairs a rater was given, in the rater's own order."""
        return self._column("SELECT pair FROM given WHERE rater = ? ORDER BY place", rater)

    def sheet(self, rater: str) -> Sheet:
        """All that a rater's page is told."""
        given = [self.pairs[pair] for pair in self.queue(rater) if pair in self.pairs]
        votes = self._rows(
            "SELECT ballot, rater, pair, source, at FROM votes WHERE rater = ?", rater
        )
        done = {row[2]: ballot for row in votes if (ballot := self._ballot(*row))}
        skipped = self._column("SELECT pair FROM given WHERE rater = ? AND skipped", rater)
        acted = self._column(
            "SELECT pair FROM events WHERE rater = ? GROUP BY pair ORDER BY max(n)", rater
        )
        return {
            "title": self.about["title"],
            "question": self.about["question"],
            "rater": str(self._value("SELECT name FROM raters WHERE id = ?", rater)),
            "closed": self.closed,
            "choices": records.CHOICES,
            "dimensions": records.DIMENSIONS,
            "tags": records.TAGS,
            "pairs": [
                {
                    "id": pair["id"],
                    "request": pair["request"],
                    "left": pair["pictures"]["left"],
                    "right": pair["pictures"]["right"],
                }
                for pair in given
            ],
            "done": done,
            "skipped": skipped,
            "acted": [pair for pair in acted if pair in {*done, *skipped}],
        }

    # Votes

    def act(
        self,
        what: Action,
        rater: str,
        pair: str,
        ballot: Mapping[str, object] | None = None,
        *,
        key: str,
    ) -> str:
        """Store a rater's vote on a pair (with its `ballot`), pass over it, or take back what was
        said of it, which stays in the table of events. Returns "stored", or "same" when this key
        has brought it before; it is on the disk by then.

        Raises cli.BadData for a ballot or key that is none and for a pair that the rater was not
        given, Conflict where another ballot of this rater stands for the pair or the key has
        brought something else, Closed when the study is closed."""
        validation.check(records.PairRequest, {"pair": pair, "key": key})
        text = None
        if what == "vote":
            checked = validation.check(records.Ballot, dict(ballot or {}))
            text = json.dumps(checked.model_dump())
        with self.changing():
            before = self._rows(
                "SELECT what, pair, ballot FROM events WHERE rater = ? AND key = ?", rater, key
            )
            if before and before[0] != (what, pair, text):
                raise Conflict("this key has brought something else before")
            if before:
                return "same"
            self._open_only()
            here = (rater, pair)
            # SQLite takes no text that is no Unicode; ids are letters and digits.
            given = "SELECT 1 FROM given WHERE rater = ? AND pair = ?"
            if not pair.isascii() or not self._rows(given, *here):
                raise cli.BadData("this pair is not in the rater's queue")
            stands = self._rows("SELECT 1 FROM votes WHERE rater = ? AND pair = ?", *here)
            if stands and what != "undo":
                raise Conflict("there is a vote on this pair; undo it first")
            self._db.execute(
                "INSERT INTO events (rater, key, what, pair, ballot, at) VALUES (?, ?, ?, ?, ?, ?)",
                (rater, key, what, pair, text, now()),
            )
            self._db.execute("DELETE FROM votes WHERE rater = ? AND pair = ?", here)
            if what == "vote":
                self._insert_vote(json.loads(str(text)), rater, pair, "web", now())
            self._db.execute(
                "UPDATE given SET skipped = ? WHERE rater = ? AND pair = ?", (what == "skip", *here)
            )
        return "stored"

    def _insert_vote(self, ballot: Mapping[str, object], *row: str) -> None:
        """row: rater, pair, source, time. The ballot is kept with a checksum of all of it."""
        text = stream.summed({**ballot, "row": row}).decode()
        self._db.execute(
            "INSERT INTO votes (ballot, rater, pair, source, at) VALUES (?, ?, ?, ?, ?)",
            (text, *row),
        )

    def _ballot(self, text: str, *row: str) -> dict[str, object] | None:
        """The ballot of a row of votes; None where any of it is damaged."""
        found = stream.unsummed(text.encode())
        return found if found and found.pop("row", [*row]) == [*row] else None

    def votes(self) -> Iterator[Vote]:
        """Every vote that stands, with the identities, in the order of raters and their queues:
        what vote-tally reads (docs/records.md)."""
        pairs = self.pairs
        rows = self._rows("""
            SELECT votes.rater, votes.pair, votes.ballot, votes.source, votes.at, given.place
            FROM votes
            JOIN given ON given.rater = votes.rater AND given.pair = votes.pair
            JOIN raters ON raters.id = votes.rater
            ORDER BY raters.rowid, given.place""")
        for rater, ident, text, source, at, place in rows:
            if (ballot := self._ballot(text, rater, ident, source, at)) is None:
                stream.lost(f"{self.folder}/votes.db: the vote of {rater} on {ident} is damaged")
            elif pair := pairs.get(ident):
                vote = {
                    "pair": ident,
                    "kind": pair["kind"],
                    "of": pair["of"],
                    "expect": pair["expect"],
                    "rater": rater,
                    "prompt": pair["prompt"],
                    "left": pair["left"]["model"],
                    "right": pair["right"]["model"],
                    # Of an imported vote its own sides: a pair may have been shown either way.
                    **ballot,
                    "source": source,
                    "at": at,
                    "order": place,
                }
                yield cast(Vote, vote)

    def enter(self, votes: Iterable[tuple[str, str, Mapping[str, object], str]]) -> int:
        """Store votes that were cast elsewhere, [(rater's name, pair, ballot, time)], all or
        none; returns how many were not there yet. A rater's id is the name, and the ballot has
        "left" and "right", the models that stood there."""
        stored = 0
        with self.changing():
            self._open_only()
            places = dict(self._rows("SELECT rater, max(place) FROM given GROUP BY rater"))
            for rater, pair, ballot, at in votes:
                self._db.execute(
                    "INSERT OR IGNORE INTO raters (id, name, folded, source, at) "
                    "VALUES (?, ?, ?, 'imported', ?)",
                    (rater, rater, rater, at),
                )
                if self._rows("SELECT 1 FROM votes WHERE rater = ? AND pair = ?", rater, pair):
                    continue
                places[rater] = places.get(rater, 0) + 1
                self._db.execute(
                    "INSERT INTO given (rater, place, pair) VALUES (?, ?, ?)",
                    (rater, places[rater], pair),
                )
                self._insert_vote(ballot, rater, pair, "imported", at)
                stored += 1
        return stored

    # Open and closed

    @property
    def closed(self) -> bool:
        """Whether its owner has closed the study: votes neither come nor go, and results may be
        seen."""
        return self.recall("closed") is not None

    def close(self) -> None:
        """Close the study."""
        self.remember("closed", now())

    def open(self) -> None:
        """Open the study again."""
        with self.changing():
            self._db.execute("DELETE FROM state WHERE name = 'closed'")

    def _open_only(self) -> None:
        if self.closed:
            raise Closed("this study is closed")

    def remember(self, name: str, value: str) -> None:
        """Keep a text under a name beside the votes."""
        with self.changing():
            self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    def recall(self, name: str) -> str | None:
        """The text that was kept under a name, or None."""
        found: str | None = self._value("SELECT value FROM state WHERE name = ?", name)
        return found

    def results(self) -> list[PlainCounts]:
        """Plain counts for each two models, of the votes alone (no repeats, no attention items);
        intervals are vote-tally's."""
        labels = {run["name"]: run["label"] for run in self.about["runs"]}
        met: dict[tuple[str, ...], list[Vote]] = defaultdict(list)
        for vote in self.votes():
            if vote["kind"] == "vote":
                met[tuple(sorted((vote["left"], vote["right"])))].append(vote)
        found: list[PlainCounts] = []
        for models, votes in sorted(met.items()):
            winners = [preferred(vote) for vote in votes]
            choices = [vote["choice"] for vote in votes]
            found.append(
                {
                    "models": [*models],
                    "labels": [labels.get(name, name) for name in models],
                    "wins": [winners.count(name) for name in models],
                    "tie": choices.count("tie"),
                    "bad": choices.count("bad"),
                    "votes": len(votes),
                }
            )
        return found


def finished(folder: Path) -> Study:
    """A study whose votes may be counted: closed, or of imported votes. Raises cli.BadData for one that is open."""
    study = Study(folder)
    if not study.closed and not study.imported:
        raise cli.BadData(
            f"{folder} is open; close it first, on the owner's page or by vote-tally --study {folder} --close"
        )
    return study
