"""A draft on disk: a folder with a seed and three files that an author wrote, and the form of a
fault in them.

The files are a stranger's: they are never read through a link or from a pipe, and only so many
bytes of them.
"""

import json
import os
import stat
from pathlib import Path
from typing import cast

from decksmith.core import cli
from decksmith.measure.decks.parser import THEMES
from decksmith.models.records import Usage
from decksmith.train.corpus.records import DraftFault, Seed

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
LARGEST = 1 << 18  # bytes of a file that is read


def fault(file: str, line: int, rule: str, message: str) -> DraftFault:
    """One thing that is wrong with a draft; lines are 1-based."""
    return {"file": file, "line": line, "rule": rule, "message": message}


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
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise cli.BadData(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise cli.BadData(f"{path}: not a JSON object")
    kept = {key: item for key, item in value.get("seed", value).items() if key != "id"}
    return cast(Seed, kept)


def read(path: Path | str) -> bytes:
    """The bytes of a file that an author wrote: never through a link, never from a pipe.

    Raises OSError, also for a file of more than LARGEST bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise OSError("no regular file")
        if info.st_size > LARGEST:
            raise OSError(f"more than {LARGEST >> 10} kB")
        return file.read()


def texts(folder: Path | str) -> tuple[dict[str, str | None], list[DraftFault]]:
    """({name: text or None}, faults) of a draft's three files.

    Links and what is no regular file count as missing.
    """
    found: dict[str, str | None] = {}
    faults = []
    for name in FILES:
        found[name] = None
        try:
            data = read(Path(folder) / name)
        except OSError as error:
            message = f"the file cannot be read ({error.strerror or error})"
            faults.append(fault(name, 1, "missing", message))
            continue
        try:
            found[name] = data.decode()
        except UnicodeDecodeError as error:
            found[name] = data.decode(errors="replace")
            line = data.count(b"\n", 0, error.start) + 1
            faults.append(fault(name, line, "encoding", "the file is not UTF-8"))
    return found, faults


def total_usage(used: Usage | None, usage: Usage) -> Usage:
    """The tokens and the cost of all replies; what is not known of one adds nothing."""
    total = cast(dict[str, float | None], dict(usage))
    for name, had in cast(dict[str, float | None], used or {}).items():
        if had is not None:
            total[name] = round((total.get(name) or 0) + had, 8)
    return cast(Usage, total)
