"""Grading a query by what it gives: SQLite runs it and the reference on the same database, read only.

SQLite alone reads the reply, under an authorizer that knows reading and nothing else: no other file, no
setting, no extension. Time is CPU time.
"""

import itertools
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from decksmith.bench.benchmarks.graders.code import blocks
from decksmith.bench.benchmarks.records import Grade, Task
from decksmith.core import cli
from decksmith.core.stream import Fault

SECONDS = 30.0  # of a query, as BIRD has it
MOST = 200_000  # rows of a result
LONGEST = 10 << 20  # bytes of a value
COLUMNS = 5  # of a result that is also compared with its columns in other orders
READS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
Rows = list[tuple[Any, ...]]


def grade(task: Task, text: str) -> Grade:
    """The grade of a reply by `expected`: {sql, database, set}. With `set` rows count once and in no order, as
    BIRD compares; else they count as often as they come, in the reference's order where it ends in
    one, the columns in any order. Raises cli.Missing without the database, Fault where the
    reference fails."""
    expected, said = task["expected"], query(text)
    if said is None:
        return {"verdict": "no_answer"}
    path = Path(cli.ROOT, expected["database"])
    if not path.is_file():
        raise cli.Missing(f"{path} is not there; docs/benchmarks.md says where databases come from")
    try:
        wanted = rows(path, expected["sql"])
    except sqlite3.Error as error:
        raise Fault("judge", "reference-fails", f"the row's own query: {error}") from None
    try:
        found = rows(path, said)
    except (sqlite3.Error, sqlite3.Warning, OverflowError, MemoryError) as error:
        detail = {"said": f"{type(error).__name__}: {error}"[:300]}
        return {"verdict": "wrong", "answer": said[:2000], "detail": detail}
    right = set(found) == set(wanted)
    if not expected.get("set"):
        right = _alike(wanted, found, ordered=_ordered(expected["sql"]))
    return {"verdict": "right" if right else "wrong", "answer": said[:2000]}


def query(text: str) -> str | None:
    """The query of a reply: its last block of SQL, else a text that is one; None without one."""
    text = text.rpartition("</think>")[2]
    found = [block.code for block in blocks(text) if block.language in ("sql", "sqlite", "")]
    said = found[-1] if found else text
    return said.strip() if found or re.match(r"\s*(select|with)\b", said, re.I) else None


def rows(path: Path, sql: str) -> Rows:
    """What a query gives, numbers rounded to six places. Raises sqlite3.Error, also for one that writes, takes more
    than SECONDS of CPU time, or gives more than MOST rows."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        db.text_factory = lambda data: data.decode(errors="replace")
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        db.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in READS else sqlite3.SQLITE_DENY
        )
        end = time.process_time() + SECONDS
        db.set_progress_handler(lambda: time.process_time() > end, 10_000)
        found = db.execute(sql).fetchmany(MOST + 1)
    if len(found) > MOST:
        raise sqlite3.DataError(f"more than {MOST:,} rows")
    return [tuple(map(_rounded, row)) for row in found]


def _rounded(value: object) -> object:
    return round(value, 6) if isinstance(value, float) else value


def _ordered(sql: str) -> bool:
    """Whether a query ends in an order of its own, not of a part in brackets."""
    return bool(re.search(r"\border\s+by\b[^)]*\Z", sql, re.I))


def _alike(wanted: Rows, found: Rows, ordered: bool) -> bool:
    """Whether two results are the same, also with the columns of the second in another order."""
    if len(wanted) != len(found) or (wanted and len(wanted[0]) != len(found[0])):
        return False

    def same(order: Sequence[int] | None = None) -> bool:
        rows = found if order is None else [tuple(row[at] for at in order) for row in found]
        return wanted == rows if ordered else Counter(wanted) == Counter(rows)

    if same() or not wanted or len(wanted[0]) > COLUMNS:
        return same()
    return any(same(order) for order in itertools.permutations(range(len(wanted[0]))))
