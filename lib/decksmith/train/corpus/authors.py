"""Authors of drafts: whoever writes one, attempts are made until the rules are kept, and reasons go
into the next.

An author is a command in a cell of its own (author_command.py) or a model of the registry
(author_model.py), and the validator decides. In the folder of a draft, `<run>/work/<id>`, it is
given seed.json, INSTRUCTIONS.md, EXAMPLE.md and, from its second attempt, reasons.txt; it writes
PROMPT.md, think.md and deck.md.
"""

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict, cast

from decksmith.core import stream
from decksmith.core.records import Error
from decksmith.core.stream import Fault
from decksmith.measure.decks import templates
from decksmith.train.corpus import drafts, rules
from decksmith.train.corpus.drafts import Status
from decksmith.train.corpus.records import Draft, DraftFault, DraftRecord, Seed

if TYPE_CHECKING:
    from decksmith.train.corpus.author_command import Command
    from decksmith.train.corpus.author_model import ModelAuthor

GIVEN = ("seed.json", "INSTRUCTIONS.md", "EXAMPLE.md", "reasons.txt", templates.FILE)


class Delivery(TypedDict, total=False):
    """What an attempt brought; delivery.json until it is judged.

    rc: the exit status of a command. conduct: the class of what is held against its behaviour.
    said: the last that it said.
    """

    attempt: int
    rc: int | None
    files: dict[str, str]
    reasons: list[str]
    noted: list[str]
    conduct: str | None
    said: str


# Whoever writes drafts; a draft belongs to the author of its `name`.
Author: TypeAlias = "Command | ModelAuthor"


def key(seed: Seed) -> dict[str, str]:
    """What a finished draft belongs to: {"seed_sha", "instructions_sha"}."""
    return {
        "seed_sha": stream.fingerprint(seed),
        "instructions_sha": hashlib.sha256(rules.instructions().encode()).hexdigest(),
    }


def example(ident: str, seed: Seed) -> Path:
    """The folder of the gold draft nearest to a seed: theme first, then language and features in
    common."""
    asked = set(seed.get("features") or [])

    def distance(folder: Path) -> tuple[bool, bool, float, str]:
        gold = drafts.gold()[folder]
        has = set(gold.get("features") or [])
        return (
            gold.get("theme") != seed.get("theme"),
            gold.get("language") != seed.get("language"),
            len(asked ^ has) / 10 - len(asked & has),
            hashlib.sha256(
                f"{ident}:{folder.name}".encode()
            ).hexdigest(),  # equals are drawn by lot
        )

    return min(drafts.gold(), key=distance)


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
        if drafts.text(folder / name) != wanted:
            stream.write(folder / name, wanted)


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
    async with drafts.held(ident, folder):
        status = cast(Status, drafts.json_object(folder / "status.json"))
        if any(status.get(name) != value for name, value in key(seed).items()):
            status = _begin(folder, ident, seed)
        give(folder, ident, seed)
        if bad := next((f for f in rules.faults(folder, seed) if f["file"] == "seed.json"), None):
            raise Fault("model", "seed", f"{bad['message']}; {bad['remedy']}")
        # A failed one may have been mended by a person.
        by_hand = status.get("state") == "failed" and status.get("sha256") != drafts.hashes(folder)
        if (status.get("state") == "valid" or by_hand) and not rules.faults(folder, seed):
            # A kill between the verdict and here leaves it.
            (folder / "delivery.json").unlink(missing_ok=True)
            return _good(folder, status)
        if status.get("author") != author.name:
            status = _begin(folder, ident, seed)
            status["author"] = author.name
        try:
            return await _attempts(folder, seed, status, author, retries)
        except asyncio.CancelledError:
            drafts.save(folder, status, {"state": "interrupted"})
            raise
        except Fault as fault:
            error = fault.error
            news: Status = {"state": "infra", "kind": error["class"]}
            drafts.save(folder, status, {**news, "reasons": [error["message"]]})
            raise


def _begin(folder: Path, ident: str, seed: Seed) -> Status:
    """A fresh status. What was written for another seed, by other instructions or another author
    goes to `before/`."""
    for name in (*drafts.FILES, "delivery.json", "reasons.txt"):
        if (folder / name).exists():
            (folder / "before").mkdir(exist_ok=True)
            os.replace(folder / name, folder / "before" / name)
    return cast(Status, {"id": ident, "state": "waiting", "attempt": 0, **key(seed)})


async def _attempts(
    folder: Path, seed: Seed, status: Status, author: Author, retries: int
) -> Draft:
    while True:
        # What an attempt brought whose process was killed before it was judged.
        done = cast(Delivery, drafts.json_object(folder / "delivery.json"))
        is_open = status["state"] in ("running", "interrupted")
        if not is_open or done.get("attempt") != status["attempt"]:
            # An attempt that was begun and did not end, or failed without the author's fault, does
            # not count.
            if status["state"] not in ("running", "interrupted", "infra"):
                if status["attempt"] > retries:
                    said = f"{status['reasons'][0]} (after {status['attempt']} attempts)"
                    kind = status.get("kind") or "invalid"
                    error: Error = {"kind": "model", "class": kind, "message": said}
                    return {**_value(folder, status), "error": error}
                status["attempt"] += 1
            drafts.save(folder, status, {"state": "running", "rc": None})
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
            f"attempt {status['attempt']} of {max(status['attempt'], retries + 1)}: {status.get('kind')}: "
            f"{status['reasons'][0]}{'; once more' if more else ''}",
        )
        if not more:
            drafts.save(folder, status, {"state": "failed"})


def _judge(folder: Path, seed: Seed, status: Status, done: Delivery) -> None:
    """Put the files of an attempt in place; say in status.json and reasons.txt what the validator
    says."""
    reasons, noted = list(done.get("reasons", [])), list(done.get("noted", []))
    conduct = done.get("conduct")
    if conduct not in ("escaped", "secret"):
        for name, text in done["files"].items():
            stream.write(folder / name, text.encode("utf-8", "surrogateescape"))
    faults = rules.faults(folder, seed)
    news: Status = {"rc": done.get("rc")}
    if not faults and conduct in (None, "timeout", "crash"):
        noted += reasons
        news |= {"state": "valid", "kind": None, "reasons": []}
        (folder / "reasons.txt").unlink(missing_ok=True)
    else:
        kind = conduct or _kind(faults)
        if kind == "empty":
            ended = f"exit status {done.get('rc')}, it said: {done.get('said')}"
            reasons.insert(0, f"the author wrote nothing ({ended})")
        reasons += map(drafts.sentence, faults)
        news |= {"state": "refused", "kind": kind, "reasons": reasons}
        stream.write(folder / "reasons.txt", "\n".join(reasons) + "\n")
    status.pop("noted", None)
    if noted:
        news["noted"] = noted
    drafts.save(folder, status, {**news, "sha256": drafts.hashes(folder)})


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
    sums = drafts.hashes(folder)
    if status.get("sha256") != sums or status["state"] != "valid":
        news: Status = {"state": "valid", "reasons": [], "sha256": sums, "kind": None}
        drafts.save(folder, status, news)
    return {**_value(folder, status), "sha256": sums}
