"""Decks that lie in a folder and are read as if a model had written them: `base_url = "files:data/reference/"`.

A folder has `ID.md` or `ID/deck.md` for each prompt's id. Nobody is asked, so that nothing is sampled and nothing paid.
"""

import hashlib
from pathlib import Path

from decksmith.core import cli
from decksmith.core.records import Record
from decksmith.core.stream import ID, Fault
from decksmith.models.registry import FILES, Model

LARGEST = 1_000_000  # bytes of a deck


class Folder:
    """The decks of one registry entry. Raises cli.Missing where its folder is none."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.name = model.base_url.removeprefix(FILES).strip()
        self.path = (cli.ROOT / self.name).resolve()
        if not self.name or not self.path.is_dir():
            raise cli.Missing(
                f"{model.name}: {self.path} is no folder; base_url is {FILES}FOLDER/, seen from "
                f"{cli.ROOT}, and FOLDER has ID.md or ID/deck.md for each prompt"
            )

    def find(self, ident: str) -> tuple[Path, bytes]:
        """(file, its bytes) of the deck for this prompt.

        Raises Fault("infra", ..), since no model was asked: `no-file` where there is none, `bad-file` for a name or a link
        that leads out of the folder, and for a file that cannot be a deck.
        """
        names = (f"{ident}.md", f"{ident}/deck.md")
        if not ID.match(ident):
            raise _lacking("bad-file", f"the id {ident!r} can be no file's name")
        found = next((self.path / name for name in names if (self.path / name).exists()), None)
        if found is None:
            wanted = " nor ".join(names)
            raise _lacking("no-file", f"{self.path} has neither {wanted}")
        if not found.resolve().is_relative_to(self.path):
            raise _lacking("bad-file", f"{found} is a link out of {self.path}")
        if not found.is_file() or found.stat().st_size > LARGEST:
            raise _lacking("bad-file", f"{found} is no file of at most {LARGEST} bytes")
        return found, found.read_bytes()

    def inputs(self, record: Record) -> Record:
        """What the reply to a record depends on: the folder and the deck's sha256, null where there is no deck."""
        try:
            return {"files": self.name, "sha256": _sha256(self.find(record["id"])[1])}
        except Fault:
            return {"files": self.name, "sha256": None}

    def read(self, record: Record) -> Record:
        """The `gen` value of a record (docs/records.md). Raises Fault as `find` does."""
        found, data = self.find(record["id"])
        none = {"prompt_tokens": 0, "completion_tokens": 0, "reasoning_tokens": 0, "cost": 0.0}
        return {
            "text": data.decode("utf-8", "replace"),
            "reasoning": "",
            "finish_reason": "stop",
            "usage": none,
            "model": {
                "name": self.model.name,
                "slug": self.model.slug,
                "params": {},
                "files": self.name,
            },
            "by": {"files": f"{found.relative_to(self.path)}", "sha256": _sha256(data)},
        }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _lacking(cls: str, message: str) -> Fault:
    """Final until the folder changes: the other decks are scored meanwhile, this one is excluded and counted."""
    return Fault("infra", cls, message, retriable=False)
