"""Authors of drafts: whoever writes one, attempts are made until the rules are kept, and reasons go
into the next.

A seed has a folder (draft_folders.py), an author is a command in a cell of its own
(author_command.py) or a model of the registry (author_model.py), and the validator decides.
"""

import asyncio
import json
from pathlib import Path
from typing import Protocol

from decksmith.core import stream
from decksmith.core.stream import Fault
from decksmith.train.corpus import draft_folders, drafts, rules
from decksmith.train.corpus.draft_folders import Delivery, Status
from decksmith.train.corpus.records import Draft, DraftFault, DraftRecord, Seed


class Author(Protocol):
    """Whoever writes drafts. A draft belongs to the author of this `name`."""

    name: str

    async def ready(self, parent: Path) -> None:
        """Get ready to write drafts in folders of `parent`."""
        ...

    async def attempt(self, folder: Path, seed: Seed, status: Status) -> Delivery:
        """Write the draft once. Raises stream.Fault for what is not the author's fault."""
        ...

    async def close(self) -> None:
        """Give back what is held between attempts."""
        ...


async def write(run: Path | str, record: DraftRecord, author: Author, *, retries: int = 2) -> Draft:
    """The `draft` value of a record (docs/records.md). Each attempt is judged by rules.faults.

    A valid draft of the same seed and instructions is kept; a failure of the same author is kept
    until there are more attempts to make. Raises stream.Fault for a wrong seed and for what the
    author did not bring about.
    """
    ident, seed = record["id"], record["seed"]
    folder = Path(run).resolve() / "work" / ident
    folder.parent.mkdir(parents=True, exist_ok=True)
    await author.ready(folder.parent)
    async with draft_folders.held(ident, folder):
        status = draft_folders.load(folder)
        if any(status.get(name) != value for name, value in draft_folders.key(seed).items()):
            status = draft_folders.begin(folder, ident, seed)
        draft_folders.give(folder, ident, seed)
        if bad := next((f for f in rules.faults(folder, seed) if f["file"] == "seed.json"), None):
            raise Fault("model", "seed", f"{bad['message']}; {bad['remedy']}")
        if _is_valid(folder, seed, status):
            # A kill between the verdict and here leaves it.
            (folder / "delivery.json").unlink(missing_ok=True)
            return _good(folder, status)
        if status.get("author") != author.name:
            status = draft_folders.begin(folder, ident, seed)
            status["author"] = author.name
        try:
            return await _attempts(folder, seed, status, author, retries)
        except asyncio.CancelledError:
            draft_folders.save(folder, status, {"state": "interrupted"})
            raise
        except Fault as fault:
            news: Status = {
                "state": "infra",
                "ended": draft_folders.now(),
                "class": fault.error["class"],
                "reasons": [fault.error["message"]],
            }
            draft_folders.save(folder, status, news)
            raise


def _is_valid(folder: Path, seed: Seed, status: Status) -> bool:
    """Whether a finished draft keeps the rules; a failed one may have been mended by a person."""
    state = status.get("state")
    by_hand = state == "failed" and status.get("sha256") != draft_folders.hashes(folder)
    return (state == "valid" or by_hand) and not rules.faults(folder, seed)


async def _attempts(
    folder: Path, seed: Seed, status: Status, author: Author, retries: int
) -> Draft:
    while True:
        done = _delivered(folder, status)
        if done is None:
            # An attempt that was begun and did not end, or failed without the author's fault, does
            # not count.
            if status["state"] not in ("running", "interrupted", "infra"):
                if status["attempt"] > retries:
                    return _bad(folder, status)
                status["attempt"] += 1
            begun: Status = {"state": "running", "started": draft_folders.now(), "ended": None}
            draft_folders.save(folder, status, begun | {"rc": None})
            done = await author.attempt(folder, seed, status)
            done["attempt"] = status["attempt"]
            stream.write(folder / "delivery.json", json.dumps(done))
        await asyncio.to_thread(_judge, folder, seed, status, done)
        (folder / "delivery.json").unlink(missing_ok=True)
        if status["state"] == "valid":
            return _good(folder, status)
        more = status["attempt"] <= retries
        stream.warn(
            status["id"],
            f"attempt {status['attempt']} of {max(status['attempt'], retries + 1)}: {status['class']}: "
            f"{status['reasons'][0]}{'; once more' if more else ''}",
        )
        if not more:
            draft_folders.save(folder, status, {"state": "failed"})


def _delivered(folder: Path, status: Status) -> Delivery | None:
    """What an attempt brought whose process was killed before it was judged, or None."""
    done = draft_folders.delivery(folder)
    is_open = status["state"] in ("running", "interrupted")
    return done if is_open and done.get("attempt") == status["attempt"] else None


def _judge(folder: Path, seed: Seed, status: Status, done: Delivery) -> None:
    """Put the files of an attempt in place; say in status.json and reasons.txt what the validator
    says."""
    reasons, noted = list(done.get("reasons", [])), list(done.get("noted", []))
    conduct = done.get("class")  # what is held against the author besides its files
    if conduct not in ("escaped", "secret"):
        for name, text in done["files"].items():
            stream.write(folder / name, text.encode("utf-8", "surrogateescape"))
    faults = rules.faults(folder, seed)
    news: Status = {"rc": done.get("rc"), "ended": draft_folders.now()}
    if not faults and conduct in (None, "timeout", "crash"):
        noted += reasons
        news |= {"state": "valid", "class": None, "reasons": []}
        (folder / "reasons.txt").unlink(missing_ok=True)
    else:
        kind = conduct or _kind(faults)
        if kind == "empty":
            ended = f"exit status {done.get('rc')}, it said: {done.get('said')}"
            reasons.insert(0, f"the author wrote nothing ({ended})")
        reasons += map(drafts.sentence, faults)
        news |= {"state": "refused", "class": kind, "reasons": reasons}
        stream.write(folder / "reasons.txt", "\n".join(reasons) + "\n")
    status.pop("noted", None)
    if noted:
        news["noted"] = noted
    news["sha256"] = draft_folders.hashes(folder)
    draft_folders.save(folder, status, news)


def _kind(faults: list[DraftFault]) -> str:
    """The class under which faults are counted."""
    missing = {fault["file"] for fault in faults if fault["rule"] == "missing"}
    if len(missing) == len(drafts.FILES):
        return "empty"
    if "deck.md" in missing:
        return "no-deck"
    if any(fault["rule"] == "language" for fault in faults):
        return "language"
    return "invalid"


def _value(folder: Path, status: Status) -> Draft:
    value: Draft = {
        "path": f"work/{folder.name}",
        "attempts": status["attempt"],
        "author": status.get("author"),
    }
    if noted := status.get("noted"):
        value["noted"] = noted
    if usage := status.get("usage"):
        value["usage"] = usage
    return value


def _good(folder: Path, status: Status) -> Draft:
    sums = draft_folders.hashes(folder)
    if status.get("sha256") != sums or status["state"] != "valid":
        news: Status = {"state": "valid", "reasons": [], "sha256": sums, "class": None}
        draft_folders.save(folder, status, news)
    return {**_value(folder, status), "sha256": sums}


def _bad(folder: Path, status: Status) -> Draft:
    message = f"{status['reasons'][0]} (after {status['attempt']} attempts)"
    kind = status["class"] or "invalid"
    return {
        **_value(folder, status),
        "error": {"kind": "model", "class": kind, "message": message},
    }
