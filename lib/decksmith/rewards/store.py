"""Rewards that were given, on disk: a deck that has one is never rendered again, also after kill -9."""

import json
import sqlite3
import time
from pathlib import Path

from decksmith.core import cli
from decksmith.core.records import Record

SCHEMA = "CREATE TABLE IF NOT EXISTS rewards (key TEXT PRIMARY KEY, value TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID"


class Store:
    """ROOT/rewards.db: values (JSON objects) by key. One process has a root, from here until `close`.

    What `put` returned from survives the end of this process; a power cut may take the last of them, which are then made
    anew. Raises cli.TryAgain for a root that another process has, cli.BadData for a file that is no such database.
    """

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        path = root / "rewards.db"
        self.db = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            # The lock is kept, so that no memory is shared with others: that does not work on network file systems.
            self.db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = NORMAL")
            self.db.execute(SCHEMA)
            self.db.execute("BEGIN EXCLUSIVE")
            self.db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self.db.close()
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise cli.TryAgain(
                    f"{root}: another reward-serve has this folder; give another with --root"
                ) from None
            raise
        except sqlite3.DatabaseError as error:
            self.db.close()
            raise cli.BadData(f"{path}: {error}; remove it to begin with an empty one") from None

    def get(self, key: str) -> Record | None:
        """The value of a key, or None."""
        row = self.db.execute("SELECT value FROM rewards WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        value: Record = json.loads(row[0])
        return value

    def put(self, key: str, value: Record) -> None:
        """Keep a value. Raises sqlite3.OperationalError where the disk is full."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        row = (key, text.encode("utf-8", "replace").decode(), time.time())
        self.db.execute("INSERT OR REPLACE INTO rewards VALUES (?, ?, ?)", row)

    def __len__(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM rewards").fetchone()[0])

    def close(self) -> None:
        self.db.close()
