"""The judge of a protocol: the offline checks, a vision model, or a panel of them."""

import asyncio
import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack, cast

from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import By, Record
from decksmith.measure.decks.records import Limits
from decksmith.measure.judging import checks, edited, identity, reading, vision
from decksmith.measure.judging.records import Answer, Cap, DeckRecord, Judge, Observation
from decksmith.measure.judging.rendered import Pages
from decksmith.measure.judging.scoring import JUDGED
from decksmith.measure.judging.vision import Access, Vision
from decksmith.models.replies import added


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
        render = {key: record["render"].get(key) for key in seen}
        digests = vision.digests(self.run, record)
        return [self.judging, *asked, sha256, render, digests]

    async def work(self, record: DeckRecord, seed: int = 0) -> Judge:
        """Raises cli.Missing where the embedded model, which reads a deck's text, cannot run."""
        pages = await asyncio.to_thread(Pages, dict(record), self.run, self.limits)
        said = await self.reader.verdict(pages.readable, pages.asks.get("language"))
        value = await asyncio.to_thread(checks.verdict, pages, said)
        return {**value, "rubric": self.rubric}

    async def close(self) -> None:
        self.reader.close()


class Panel:
    """The models of a protocol's judge, each as vision.Vision. What one of them has said is kept in a journal of its
    own (`run/journal/judge-NAME.jsonl`): a panel that was cut off asks only those who had not answered."""

    valid = None

    def __init__(self, protocol: Protocol, run: Path, **access: Unpack[Access]) -> None:
        if (budget := access.get("budget")) is not None:
            access["budget"] = budget / len(protocol.judges)
        self.run, self.protocol, self.judging = run, protocol, identity.judging(protocol)
        self.members = {
            name: Vision(protocol.alone(name), run, name, **access) for name in protocol.judges
        }
        self.jobs = max(member.jobs for member in self.members.values())
        self.journals: dict[str, stream.Journal] = {}

    def inputs(self, record: DeckRecord) -> list[object]:
        return vision.vision_inputs(self.judging, self.run, record)

    async def work(self, record: DeckRecord, seed: int = 0) -> Judge:
        """What the panel says of a record. Raises stream.Fault where a member could not be asked; a member without a
        usable reply is a fault of the judge, for the verdicts of one run are all of the same panel."""
        asked = [self._said(name, record, seed) for name in self.members]
        said: dict[str, Judge] = {}
        found = await asyncio.gather(*asked, return_exceptions=True)
        for name, one in zip(self.members, found, strict=True):
            if isinstance(one, BaseException):
                raise one
            said[name] = one
        attempts = sum(len(one["replies"]) for one in said.values())
        return {**joined(self.protocol, said), "by": cast(By, {"attempts": attempts})}

    async def _said(self, name: str, record: DeckRecord, seed: int) -> Judge:
        """What one member says, from its journal where it said it before."""
        member = self.members[name]
        if name not in self.journals:
            path = self.run / "journal" / f"judge-{name}.jsonl"
            self.journals[name] = stream.Journal(path, "judge")
        journal = self.journals[name]
        key = stream.fingerprint([member.inputs(record), seed])
        kept = cast(Judge | None, journal.get(record["id"], key))
        if kept is not None and member.valid(record, kept):
            return kept
        value = await member.work(record, seed=seed)
        if "error" not in value:
            journal.put(record["id"], key, dict(value))
        return value

    async def close(self) -> None:
        for member in self.members.values():
            await member.close()
        for journal in self.journals.values():
            journal.close()


Judging = Offline | Vision | Panel | edited.Edits


def open_judge(protocol: Protocol, run: str | Path, **access: Unpack[Access]) -> Judging:
    """The protocol's judge, with what stream.stage needs: `work`, `inputs`, `valid`, `jobs`, `close`. The offline judge
    has no use for `access`, but for its jobs. Raises cli.BadConfig for an unknown model or a missing key."""
    if protocol.judge["kind"] == "offline":
        return Offline(protocol, Path(run), access.get("jobs") or 1)
    if protocol.judge["kind"] == "edit":
        return edited.Edits(protocol, Path(run), access.get("jobs") or 1)
    if len(protocol.judges) > 1:
        return Panel(protocol, Path(run), **access)
    return vision.opened(protocol, Path(run), **access)


def joined(protocol: Protocol, said: Mapping[str, Judge]) -> Judge:
    """The value of `judge` of what the members of the protocol's panel said, each as vision.Vision has it."""
    judging = identity.judging(protocol)
    kept: Judge = {
        "replies": [path for one in said.values() for path in one["replies"]],
        "usage": added(*(one["usage"] for one in said.values())),
        "rubric": stream.fingerprint(judging),
    }
    for name, one in said.items():
        if "error" in one:
            message = f"{name}: {one['error']['message']}"
            return {"error": {**one["error"], "message": message}, **kept}
    return {"judge": judging["slug"], **combined(protocol.judge["combine"], said), **kept}


def combined(rule: str, said: Mapping[str, Judge]) -> Judge:
    """One verdict of those of several models, in the same form. rule: "mean", "median" or "majority" (the
    score that most gave). A checklist item counts where more than half say yes."""
    every = list(said.values())
    return {
        "scores": {name: _joined(rule, _scores(every, name)) for name in JUDGED},
        "given": {name: _joined(rule, [one["given"][name] for one in every]) for name in JUDGED},
        "why": {
            dimension: "\n".join(f"{name}: {one['why'][dimension]}" for name, one in said.items())
            for dimension in JUDGED
        },
        "evidence": {
            dimension: _named({name: one["evidence"][dimension] for name, one in said.items()})
            for dimension in JUDGED
        },
        "observations": cast(
            list[Observation], _named({name: one["observations"] for name, one in said.items()})
        ),
        "caps": cast(list[Cap], _named({name: one["caps"] for name, one in said.items()})),
        "checklist": [*map(_answer, zip(*(one["checklist"] for one in every), strict=True))],
        "disagreement": disagreement(every),
        "members": {
            name: {key: one[key] for key in ("judge", "scores", "usage")}
            for name, one in said.items()
        },
        "seen": every[0]["seen"],
    }


def _scores(said: list[Judge], name: str) -> list[float]:
    return [score for one in said if (score := one["scores"][name]) is not None]


def _named(lists: Mapping[str, Sequence[Mapping[str, object]]]) -> list[Record]:
    """What the members list, one after the other, each with the name of who said it."""
    return [{**one, "by": name} for name, listed in lists.items() for one in listed]


def _joined(rule: str, scores: list[float]) -> float:
    if rule == "mean":
        return round(statistics.fmean(scores), 4)
    return statistics.median(scores if rule == "median" else statistics.multimode(scores))


def _answer(answers: tuple[Answer, ...]) -> Answer:
    """What a panel says of one checklist item; the slide is that of the first who says yes."""
    slides = [answer["slide"] for answer in answers if answer["yes"]]
    yes = len(slides) * 2 > len(answers)
    return {"id": answers[0]["id"], "yes": yes, "slide": slides[0] if yes else None}


def disagreement(said: list[Judge]) -> dict[str, float]:
    """How far two models are apart, averaged over all twos: `{dimension: points, "checklist": share of the items}`."""
    apart = {}
    for name in JUDGED:
        twos = itertools.combinations(_scores(said, name), 2)
        apart[name] = statistics.fmean(abs(a - b) for a, b in twos)
    if items := len(said[0]["checklist"]):
        shares = []
        for a, b in itertools.combinations(said, 2):
            both = zip(a["checklist"], b["checklist"], strict=True)
            shares.append(sum(x["yes"] != y["yes"] for x, y in both) / items)
        apart["checklist"] = statistics.fmean(shares)
    return {name: round(value, 4) for name, value in apart.items()}
