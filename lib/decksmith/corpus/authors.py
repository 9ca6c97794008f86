"""Authors of drafts: whoever writes one, attempts are made until the rules are kept, and their reasons go into the next.

A seed has a folder (workfolders.py), an author is a command in a cell of its own (author_command.py) or a model of the
registry (author_model.py), and the validator decides.
"""

import asyncio
import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any, Protocol

from decksmith.core import stream
from decksmith.core.records import Record
from decksmith.core.stream import Fault
from decksmith.corpus import drafts, mend, rules, workfolders
from decksmith.corpus.workfolders import Seed, Status

# What an attempt brought: {"rc", "files": {name: text}, "reasons", "noted", "class", "said"}, all but `files` optional.
Delivery = dict[str, Any]


class Author(Protocol):
    """Whoever writes drafts. A draft belongs to the author of this `name`."""

    name: str

    async def ready(self, parent: Path) -> contextlib.AbstractAsyncContextManager[Any]:
        """Get ready to write drafts in folders of `parent`: the context in which one is written."""
        ...

    async def attempt(self, folder: Path, seed: Seed, status: Status) -> Delivery:
        """Write the draft once. Raises stream.Fault for what is not the author's fault."""
        ...

    async def close(self) -> None:
        """Give back what is held between attempts."""
        ...


async def write(
    run: Path | str, record: Record, author: Author, *, retries: int = 2, mended: bool = False
) -> Record:
    """The `draft` value of a record (docs/records.md). Each attempt is judged by rules.faults, after mend.fix if `mended`.

    A valid draft of the same seed and instructions is kept; a failure of the same author is kept until there are more
    attempts to make. Raises stream.Fault for a seed that is wrong and for what the author did not bring about.
    """
    ident, seed = record["id"], record["seed"]
    folder = Path(run).resolve() / "work" / ident
    folder.parent.mkdir(parents=True, exist_ok=True)
    async with await author.ready(folder.parent), workfolders.held(ident, folder):
        status, wanted = workfolders.load(folder), workfolders.key(seed)
        if {name: status.get(name) for name in wanted} != wanted:
            status = workfolders.begin(folder, ident, wanted)
        workfolders.give(folder, ident, seed)
        if bad := next((f for f in rules.faults(folder, seed) if f["file"] == "seed.json"), None):
            raise Fault("model", "seed", f"{bad['message']}; {bad['remedy']}")
        if _is_valid(folder, seed, status):
            # A kill between the verdict and here leaves it.
            (folder / "delivery.json").unlink(missing_ok=True)
            return _good(folder, status)
        if status.get("author") != author.name:
            status = workfolders.begin(folder, ident, wanted) | {"author": author.name}
        try:
            return await _attempts(folder, seed, status, author, retries, mended)
        except asyncio.CancelledError:
            workfolders.save(folder, status, {"state": "interrupted"})
            raise
        except Fault as fault:
            news = {
                "state": "infra",
                "ended": workfolders.now(),
                "class": fault.error["class"],
                "reasons": [fault.error["message"]],
            }
            workfolders.save(folder, status, news)
            raise


def _is_valid(folder: Path, seed: Seed, status: Status) -> bool:
    """Whether a draft that was finished before keeps the rules; a failed one may have been mended by a person."""
    state = status.get("state")
    by_hand = state == "failed" and status.get("sha256") != workfolders.hashes(folder)
    return (state == "valid" or by_hand) and not rules.faults(folder, seed)


async def _attempts(
    folder: Path, seed: Seed, status: Status, author: Author, retries: int, mended: bool
) -> Record:
    while True:
        done = _delivered(folder, status)
        if done is None:
            # An attempt that was begun and did not end, or failed without the author's fault, does not count.
            if status["state"] not in ("running", "interrupted", "infra"):
                if status["attempt"] > retries:
                    return _bad(folder, status)
                status["attempt"] += 1
            news = {
                "state": "running",
                "started": workfolders.now(),
                "ended": None,
                "rc": None,
                "pid": os.getpid(),
                "host": socket.gethostname(),
            }
            workfolders.save(folder, status, news)
            done = {**await author.attempt(folder, seed, status), "attempt": status["attempt"]}
            stream.write(folder / "delivery.json", json.dumps(done))
        await asyncio.to_thread(_judge, folder, seed, status, done, mended)
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
            workfolders.save(folder, status, {"state": "failed"})


def _delivered(folder: Path, status: Status) -> Delivery | None:
    """What an attempt brought whose process was killed before it was judged, or None."""
    done = workfolders.load(folder, "delivery.json")
    is_open = status["state"] in ("running", "interrupted")
    return done if is_open and done.get("attempt") == status["attempt"] else None


def _judge(folder: Path, seed: Seed, status: Status, done: Delivery, mended: bool) -> None:
    """Put the files of an attempt in place and say in status.json and reasons.txt what the validator says."""
    reasons, noted = list(done.get("reasons", [])), list(done.get("noted", []))
    conduct = done.get("class")  # what is held against the author besides its files
    if conduct not in ("escaped", "secret"):
        for name, text in done["files"].items():
            stream.write(folder / name, text.encode("utf-8", "surrogateescape"))
    if mended:
        noted += ["mended: {file}:{line}: {message}".format(**f) for f in mend.fix(folder)]
    faults = rules.faults(folder, seed)
    news: Status = {"rc": done.get("rc"), "ended": workfolders.now()}
    if not faults and conduct in (None, "timeout", "crash"):
        noted += reasons
        news |= {"state": "valid", "class": None, "reasons": []}
        (folder / "reasons.txt").unlink(missing_ok=True)
    else:
        kind = conduct or _kind(faults)
        if kind == "empty":
            status_said = f"exit status {done.get('rc')}, it said: {done.get('said')}"
            reasons.insert(0, f"the author wrote nothing ({status_said})")
        reasons += ["{file}:{line}: {message} ({rule}); {remedy}".format(**f) for f in faults]
        news |= {"state": "refused", "class": kind, "reasons": reasons}
        stream.write(folder / "reasons.txt", "\n".join(reasons) + "\n")
    status.pop("noted", None)
    if noted:
        news["noted"] = noted
    workfolders.save(folder, status, news | {"sha256": workfolders.hashes(folder)})


def _kind(faults: list[drafts.Fault]) -> str:
    """The class under which faults are counted."""
    missing = {fault["file"] for fault in faults if fault["rule"] == "missing"}
    if len(missing) == len(drafts.FILES):
        return "empty"
    if "deck.md" in missing:
        return "no-deck"
    if any(fault["rule"] == "language" for fault in faults):
        return "language"
    return "invalid"


def _value(folder: Path, status: Status) -> Record:
    told = {name: status[name] for name in ("noted", "usage") if status.get(name)}
    return {
        "path": f"work/{folder.name}",
        "attempts": status["attempt"],
        "author": status.get("author"),
        **told,
    }


def _good(folder: Path, status: Status) -> Record:
    sums = workfolders.hashes(folder)
    if status.get("sha256") != sums or status["state"] != "valid":
        news: Status = {"state": "valid", "reasons": [], "sha256": sums, "class": None}
        workfolders.save(folder, status, news)
    return _value(folder, status) | {"sha256": sums}


def _bad(folder: Path, status: Status) -> Record:
    message = f"{status['reasons'][0]} (after {status['attempt']} attempts)"
    error = {"kind": "model", "class": status["class"], "message": message}
    return _value(folder, status) | {"error": error}
