"""The folder of one draft, `<run>/work/<id>`: what the author is given, where the draft stands, and the folder's lock.

An author is given seed.json, INSTRUCTIONS.md, EXAMPLE.md and, from its second attempt, reasons.txt; it writes PROMPT.md,
think.md and deck.md. run.log has what it said, status.json where the draft stands. Folders are locked one by one, so that
processes and hosts can share a run.
"""

import asyncio
import contextlib
import fcntl
import functools
import hashlib
import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.corpus import drafts, rules
from decksmith.decks import templates

GIVEN = ("seed.json", "INSTRUCTIONS.md", "EXAMPLE.md", "reasons.txt", templates.FILE)
OURS = {*GIVEN, *drafts.FILES, "status.json", "run.log", "delivery.json", ".lock"}
GOLD = cli.ROOT / "data/gold"

Seed = dict[str, Any]
Status = dict[str, Any]


def key(seed: Seed) -> dict[str, str]:
    """What a finished draft belongs to: {"seed_sha", "instructions_sha"}."""
    return {
        "seed_sha": stream.fingerprint(seed),
        "instructions_sha": hashlib.sha256(rules.instructions().encode()).hexdigest(),
    }


@functools.cache
def _gold() -> list[tuple[str, Seed]]:
    """[(name, seed)] of data/gold, in order."""
    found = sorted(path.parent for path in GOLD.glob("*/seed.json"))
    return [(folder.name, drafts.seed(folder)) for folder in found]


def example(ident: str, seed: Seed) -> Path:
    """The folder of the gold draft nearest to a seed: theme first, then language and features in common.

    Raises cli.Missing where there are no gold drafts.
    """
    asked = set(seed.get("features") or [])

    def distance(entry: tuple[str, Seed]) -> tuple[bool, bool, float, str]:
        name, gold = entry
        has = set(gold.get("features") or [])
        return (
            gold.get("theme") != seed.get("theme"),
            gold.get("language") != seed.get("language"),
            len(asked ^ has) / 10 - len(asked & has),
            hashlib.sha256(f"{ident}:{name}".encode()).hexdigest(),  # equals are drawn by lot
        )

    gold = _gold()
    if not gold:
        raise cli.Missing("data/gold holds no drafts to show as examples")
    return GOLD / min(gold, key=distance)[0]


def _example_text(folder: Path) -> str:
    seed = json.dumps(drafts.seed(folder), ensure_ascii=False, indent=1)
    parts = ["# A draft that was accepted", "Its seed was:", f"```json\n{seed}\n```"]
    for name in drafts.FILES:
        text = (folder / name).read_text(encoding="utf-8").strip()
        parts += [f"## {name}", f"`````md\n{text}\n`````"]
    return "\n\n".join(parts) + "\n"


def give(folder: Path, ident: str, seed: Seed) -> None:
    """Lay out in the folder what the author is given, where it is not there yet. The seed's template is the run's."""
    told = rules.instructions()
    if seed.get("template"):
        template = templates.held(folder.parents[1], seed["template"], ident)
        templates.put(folder, template)
        told += f"\n{template.system()}\n"
    given = {
        "seed.json": json.dumps({"id": ident, **seed}, ensure_ascii=False, indent=1) + "\n",
        "INSTRUCTIONS.md": told,
        "EXAMPLE.md": _example_text(example(ident, seed)),
    }
    for name, whole in given.items():
        if text(folder / name) != whole:
            stream.write(folder / name, whole)


def text(path: Path) -> str | None:
    """The text of a file that an author may have written, or None where it cannot be read."""
    try:
        return drafts.read(path).decode("utf-8", "replace")
    except OSError:
        return None


def hashes(folder: Path) -> dict[str, str]:
    """{name: sha256} of those of the draft's three files that are there."""
    return {
        name: hashlib.sha256(drafts.read(folder / name)).hexdigest()
        for name in drafts.FILES
        if text(folder / name) is not None
    }


def load(folder: Path, name: str = "status.json") -> dict[str, Any]:
    """The JSON object in a file of the folder; empty where there is none."""
    try:
        value = json.loads(drafts.read(folder / name))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def save(folder: Path, status: Status, news: Status) -> None:
    """Write status.json with some news; `status` is updated too."""
    status.update(news)
    stream.write(folder / "status.json", json.dumps(status, ensure_ascii=False, indent=1) + "\n")


def begin(folder: Path, ident: str, wanted: dict[str, str]) -> Status:
    """A fresh status; what was written for another seed, by other instructions or another author goes to `before/`."""
    for name in (*drafts.FILES, "delivery.json", "reasons.txt"):
        if (folder / name).exists():
            (folder / "before").mkdir(exist_ok=True)
            os.replace(folder / name, folder / "before" / name)
    return {"id": ident, "state": "waiting", "attempt": 0, **wanted}


def now() -> str:
    """The time as status.json and run.log have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextlib.asynccontextmanager
async def held(ident: str, folder: Path) -> AsyncIterator[None]:
    """The folder's lock; whoever comes second waits and then finds the draft finished."""
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "r+b") as file:
        said = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    stream.warn(ident, "another process is at work on this draft; waiting for it")
                said = True
                await asyncio.sleep(0.2)
        for rest in folder.glob("*.tmp"):
            rest.unlink(missing_ok=True)
        yield


def is_held(folder: Path) -> bool:
    """Whether some process holds the folder's lock."""
    try:
        with open(folder / ".lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
