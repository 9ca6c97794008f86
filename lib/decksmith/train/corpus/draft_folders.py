"""The folder of one draft, `<run>/work/<id>`: what the author is given, where the draft stands, its
lock.

An author is given seed.json, INSTRUCTIONS.md, EXAMPLE.md and, from its second attempt, reasons.txt;
it writes PROMPT.md, think.md and deck.md. run.log has what it said, status.json where the draft
stands. Folders are locked one by one, so that processes and hosts can share a run.
"""

import asyncio
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, cast

from decksmith.core import cli, stream
from decksmith.measure.decks import templates
from decksmith.models.records import Usage
from decksmith.train.corpus import drafts, rules
from decksmith.train.corpus.records import DraftFault, Seed

GIVEN = ("seed.json", "INSTRUCTIONS.md", "EXAMPLE.md", "reasons.txt", templates.FILE)
OURS = {*GIVEN, *drafts.FILES, "status.json", "run.log", "delivery.json", ".lock"}
GOLD = cli.ROOT / "data/gold"

# status.json. state: waiting, running, refused, valid, failed, interrupted or infra; class: of the
# last refusal; cut: where the last reply of a model was cut off; usage: what all of its replies
# used.
Status = TypedDict(
    "Status",
    {
        "id": str,
        "state": str,
        "attempt": int,
        "seed_sha": str,
        "instructions_sha": str,
        "author": str,
        "started": str,
        "ended": str | None,
        "rc": int | None,
        "class": str | None,
        "reasons": list[str],
        "noted": list[str],
        "sha256": dict[str, str],
        "usage": Usage,
        "cut": DraftFault,
        "walls": str,
    },
    total=False,
)

# delivery.json: what an attempt brought. rc: the exit status of a command. class: what is held
# against its behaviour; said: the last that it said.
Delivery = TypedDict(
    "Delivery",
    {
        "attempt": int,
        "rc": int | None,
        "files": dict[str, str],
        "reasons": list[str],
        "noted": list[str],
        "class": str | None,
        "said": str,
    },
    total=False,
)


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
    """The folder of the gold draft nearest to a seed: theme first, then language and features in
    common."""
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

    return GOLD / min(_gold(), key=distance)[0]


def _example_text(folder: Path) -> str:
    seed = json.dumps(drafts.seed(folder), ensure_ascii=False, indent=1)
    parts = ["# A draft that was accepted", "Its seed was:", f"```json\n{seed}\n```"]
    for name in drafts.FILES:
        text = (folder / name).read_text(encoding="utf-8").strip()
        parts += [f"## {name}", f"`````md\n{text}\n`````"]
    return "\n\n".join(parts) + "\n"


def give(folder: Path, ident: str, seed: Seed) -> None:
    """Lay out in the folder what the author is given, where it is not there yet. The seed's
    template is the run's."""
    told = rules.instructions()
    if under := seed.get("template"):
        template = templates.held(folder.parents[1], under, ident)
        templates.put(folder, template)
        told += f"\n{template.system()}\n"
    given = {
        "seed.json": json.dumps({"id": ident, **seed}, ensure_ascii=False, indent=1) + "\n",
        "INSTRUCTIONS.md": told,
        "EXAMPLE.md": _example_text(example(ident, seed)),
    }
    for name, wanted in given.items():
        if text(folder / name) != wanted:
            stream.write(folder / name, wanted)


def text(path: Path) -> str | None:
    """The text of a file that an author may have written, or None where it cannot be read."""
    try:
        return drafts.read(path).decode("utf-8", "replace")
    except OSError:
        return None


def hashes(folder: Path) -> dict[str, str]:
    """{name: sha256} of those of the draft's three files that are there."""
    found = {}
    for name in drafts.FILES:
        with contextlib.suppress(OSError):
            found[name] = hashlib.sha256(drafts.read(folder / name)).hexdigest()
    return found


def _object(path: Path) -> object:
    """The JSON object in a file; an empty one where there is none."""
    try:
        value = json.loads(drafts.read(path))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def load(folder: Path) -> Status:
    """Where the draft of a folder stands; empty before its first attempt."""
    return cast(Status, _object(folder / "status.json"))


def delivery(folder: Path) -> Delivery:
    """What an attempt brought that was not judged; empty where there is none."""
    return cast(Delivery, _object(folder / "delivery.json"))


def save(folder: Path, status: Status, news: Status) -> None:
    """Write status.json with some news; `status` is updated too."""
    status.update(news)
    stream.write(folder / "status.json", json.dumps(status, ensure_ascii=False, indent=1) + "\n")


def begin(folder: Path, ident: str, seed: Seed) -> Status:
    """A fresh status. What was written for another seed, by other instructions or another author
    goes to `before/`."""
    for name in (*drafts.FILES, "delivery.json", "reasons.txt"):
        if (folder / name).exists():
            (folder / "before").mkdir(exist_ok=True)
            os.replace(folder / name, folder / "before" / name)
    return cast(Status, {"id": ident, "state": "waiting", "attempt": 0, **key(seed)})


def sweep(folder: Path) -> None:
    """Take away what a command without walls left besides the files that belong there, and
    `before`."""
    for entry in list(os.scandir(folder)):
        if entry.name == "before":
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name not in OURS or not entry.is_file(follow_symlinks=False):
            os.unlink(entry.path)


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
