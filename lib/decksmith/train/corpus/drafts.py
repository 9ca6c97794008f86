"""A draft on disk: a folder with a seed and three files that an author wrote, what is wrong with
them, and where the draft stands.

The files are a stranger's: they are never read through a link or from a pipe, and only so many
bytes of them. run.log has what the author said, status.json where the draft stands. Folders are
locked one by one, so that processes and hosts can share a run.
"""

import asyncio
import contextlib
import fcntl
import functools
import hashlib
import json
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypedDict, cast

from decksmith.core import cli, incoming, stream, workspace
from decksmith.measure.decks.parser import THEMES
from decksmith.models.records import Usage
from decksmith.train.corpus.records import DraftFault, Seed

GOLD = cli.ROOT / "data/gold"
FILES = ("PROMPT.md", "think.md", "deck.md")
SEED_THEMES = tuple(name for name, theme in THEMES.items() if theme["seeds"])
FEATURES = ("code", "mermaid", "katex", "table", "image", "two-cols", "quote", "clicks", "notes")
HEADINGS = (  # of think.md
    "Reading the user prompt",
    "Theme fit",
    "Narrative arc",
    "Key slide mapping",
    "Image & feature choices",
    "Self-review",
)
LEAST = {"PROMPT.md": 40, "think.md": 400, "deck.md": 300}  # bytes
WORDS = (250, 1200)  # of think.md
SLIDES_OFF = 2  # slides more or fewer than asked
LARGEST = 1 << 18  # bytes of a file that is read
# Each strict rule with what to do about it.
STRICT = {
    rule: remedy.replace("OFF", str(SLIDES_OFF)).replace("THEMES", ", ".join(THEMES))
    for rule, remedy in tomllib.loads((cli.ROOT / "assets/remedies.toml").read_text())[
        "draft"
    ].items()
}


class Status(TypedDict, total=False):
    """status.json. state: waiting, running, refused, valid, failed, interrupted or infra; kind: of
    the last refusal; cut: where the last reply of a model was cut off; usage: of all its replies."""

    id: str
    state: str
    attempt: int
    seed_sha: str
    instructions_sha: str
    author: str
    rc: int | None
    kind: str | None
    reasons: list[str]
    noted: list[str]
    sha256: dict[str, str]
    usage: Usage
    cut: DraftFault


def fault(file: str, line: int, rule: str, message: str) -> DraftFault:
    """One thing that is wrong with a draft; lines are 1-based."""
    other = (
        "follow the template" if rule.startswith("template-") else "mend what the renderer names"
    )
    remedy = STRICT.get(rule, other)
    return {"file": file, "line": line, "rule": rule, "message": message, "remedy": remedy}


def place(fault: DraftFault) -> tuple[int, int]:
    """What faults are sorted by: file, then line."""
    return FILES.index(fault["file"]) if fault["file"] in FILES else -1, fault["line"]


def sentence(fault: DraftFault) -> str:
    """A fault as one line: where, what, by which rule, and what to do about it."""
    return "{file}:{line}: {message} ({rule}); {remedy}".format(**fault)


def line_at(text: str, offset: int) -> int:
    """The line (1-based) of an offset in a text."""
    return text.count("\n", 0, offset) + 1


def seed(folder: Path | str) -> Seed:
    """The seed of a draft's folder, from its seed.json. Raises cli.BadData naming the file."""
    path = Path(folder) / "seed.json"
    value = stream.json_file(path)
    return cast(Seed, {key: item for key, item in value.items() if key != "id"})


@functools.cache
def gold() -> dict[Path, Seed]:
    """The seeds of data/gold by their folders, in order."""
    return {path.parent: seed(path.parent) for path in sorted(GOLD.glob("*/seed.json"))}


def read(path: Path | str) -> bytes:
    """The bytes of a file that an author wrote: never through a link, never from a pipe. Raises
    OSError, also for a file of more than LARGEST bytes."""
    return workspace.take(path, LARGEST)


def text(path: Path) -> str | None:
    """The text of a file that an author may have written, or None where it cannot be read."""
    try:
        return read(path).decode("utf-8", "replace")
    except OSError:
        return None


def texts(folder: Path | str) -> tuple[dict[str, str | None], list[DraftFault]]:
    """({name: text or None}, faults) of a draft's three files. Links and what is no regular file
    count as missing."""
    found: dict[str, str | None] = dict.fromkeys(FILES)
    faults = []
    for name in FILES:
        try:
            data = read(Path(folder) / name)
        except OSError as error:
            message = f"the file cannot be read ({error.strerror or error})"
            faults.append(fault(name, 1, "missing", message))
            continue
        found[name] = data.decode(errors="replace")
        try:
            data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            faults.append(fault(name, line, "encoding", "the file is not UTF-8"))
    return found, faults


def hashes(folder: Path) -> dict[str, str]:
    """{name: sha256} of those of the draft's three files that are there."""
    found = {}
    for name in FILES:
        with contextlib.suppress(OSError):
            found[name] = hashlib.sha256(read(folder / name)).hexdigest()
    return found


def json_object(path: Path) -> dict[str, object]:
    """The JSON object in a file of the folder; an empty one where there is none."""
    try:
        return stream.json_object(read(path))
    except (OSError, ValueError):
        return {}


def save(folder: Path, status: Status, news: Status) -> None:
    """Write status.json with some news; `status` is updated too."""
    status.update(news)
    stream.write(folder / "status.json", json.dumps(status, ensure_ascii=False, indent=1) + "\n")


@contextlib.asynccontextmanager
async def held(ident: str, folder: Path) -> AsyncIterator[None]:
    """The folder's lock; whoever comes second waits and then finds the draft finished."""
    folder.mkdir(exist_ok=True)
    with open(incoming.own(folder / ".lock", closed=0), "r+b") as file:
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


def total_usage(used: Usage | None, usage: Usage) -> Usage:
    """The tokens and the cost of all replies; what is not known of one adds nothing."""
    total = cast(dict[str, float | None], dict(usage))
    for name, had in cast(dict[str, float | None], used or {}).items():
        if had is not None:
            total[name] = round((total.get(name) or 0) + had, 8)
    return cast(Usage, total)
