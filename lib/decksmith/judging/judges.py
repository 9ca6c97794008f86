"""The judge of a protocol: the offline measures, a vision model, or a panel of them."""

import hashlib
from pathlib import Path
from typing import Any

from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.decks import words
from decksmith.judging import identity, offline, vision
from decksmith.judging.panel import Panel
from decksmith.judging.vision import Vision


class Offline:
    """Deterministic measures (decksmith.judging.offline)."""

    valid = close = None

    def __init__(self, protocol: Protocol, run: Path, jobs: int | None) -> None:
        self.run, self.jobs, self.protocol = run, jobs, protocol
        self.judging = identity.judging(protocol)
        self.rubric = stream.fingerprint(self.judging)
        # What was judged by other code is judged again: it costs little.
        here = Path(__file__).parent  # not imported to be read: legibility needs numpy
        files = [Path(offline.__file__), here / "legibility.py", Path(words.__file__)]
        code = b"".join(file.read_bytes() for file in files)
        self.code = hashlib.sha256(code).hexdigest()

    def inputs(self, record: Record) -> list[Any]:
        render = {
            key: record["render"].get(key) for key in ("slides", "expected", "errors", "xray")
        }
        return [
            self.judging,
            self.code,
            vision.request_of(record),
            record.get("asks"),
            record.get("checklist"),
            record.get("deck", {}).get("sha256"),
            render,
            vision.digests(self.run, record),
        ]

    def work(self, record: Record, seed: int = 0) -> Record:
        return {
            **offline.judge(
                record, self.run, self.protocol.measures, self.protocol.judge["needed"]
            ),
            "rubric": self.rubric,
        }


def open_judge(
    protocol: Protocol,
    run: str | Path,
    *,
    jobs: int | None = None,
    base_url: str | None = None,
    key_env: str | None = None,
    budget: float | None = None,
) -> Offline | Vision | Panel:
    """The protocol's judge, with what stream.stage needs: `work`, `inputs`, `valid`, `jobs`, `close`.

    budget: USD that it may spend; the offline judge spends nothing.

    Raises cli.BadConfig for an unknown model or a missing key.
    """
    if protocol.judge["kind"] == "offline":
        return Offline(protocol, Path(run), jobs or 1)
    if len(protocol.judges) > 1:
        return Panel(protocol, Path(run), jobs, base_url, key_env, budget)
    return Vision(protocol, Path(run), jobs, base_url, key_env, budget)


def inputs(protocol: Protocol, run: Path, record: Record) -> list[Any]:
    """What the verdict of the protocol's judge on a record depends on; `run` the folder. Asks nobody and needs no key."""
    if protocol.judge["kind"] == "offline":
        return Offline(protocol, run, 1).inputs(record)
    return vision.vision_inputs(identity.judging(protocol), run, record)
