"""The judge of a protocol: the offline checks, or a model that reads."""

import asyncio
import hashlib
from pathlib import Path
from typing import Unpack, cast

from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.measure.decks.records import Limits
from decksmith.measure.judging import checks, edited, identity, reading, vision
from decksmith.measure.judging.records import DeckRecord, Judge
from decksmith.measure.judging.rendered import Pages
from decksmith.measure.judging.vision import Access, Vision


class Offline:
    """Deterministic checks (decksmith.measure.judging.checks)."""

    valid = None

    def __init__(self, protocol: Protocol, run: Path, jobs: int) -> None:
        self.limits = cast(Limits, protocol.checks)
        self.reader = reading.Reader(
            self.limits["reads_bits"],
            self.limits["reads_characters"],
            run / "journal" / "reads.jsonl",
        )
        self.run, self.jobs, self.protocol = run, jobs, protocol
        self.judging = identity.judging(protocol)
        self.rubric = stream.fingerprint(self.judging)

    def inputs(self, record: DeckRecord) -> list[object]:
        asked = [vision.request_of(record), record.get("asks"), record.get("checklist")]
        sha256 = record.get("deck", {}).get("sha256")
        seen = ("slides", "expected", "errors", "xray")
        drawn = stream.dumps([record["render"].get(key) for key in seen])
        digests = vision.digests(self.run, record)
        return [self.judging, *asked, sha256, hashlib.sha256(drawn).hexdigest(), digests]

    async def work(self, record: DeckRecord, seed: int = 0) -> Judge:
        """Raises cli.Missing where the embedded model, which reads a deck's text, cannot run."""
        pages = await asyncio.to_thread(Pages, dict(record), self.run, self.limits)
        said = await self.reader.verdict(pages.readable, pages.asks.get("language"))
        value = await asyncio.to_thread(checks.verdict, pages, said)
        return {**value, "rubric": self.rubric}

    async def close(self) -> None:
        self.reader.close()


Judging = Offline | Vision | edited.Edits


def open_judge(protocol: Protocol, run: str | Path, **access: Unpack[Access]) -> Judging:
    """The protocol's judge, with what stream.stage needs: `work`, `inputs`, `valid`, `jobs`, `close`. The offline judge
    has no use for `access`, but for its jobs. Raises cli.BadConfig for an unknown model or a missing key."""
    if protocol.judge["kind"] == "offline":
        return Offline(protocol, Path(run), access.get("jobs") or 1)
    if protocol.judge["kind"] == "edit":
        return edited.Edits(protocol, Path(run), access.get("jobs") or 1)
    kind = vision.Text if protocol.judge["kind"] == "text" else Vision
    return kind(protocol, Path(run), **access)
