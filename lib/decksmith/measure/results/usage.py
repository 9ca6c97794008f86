"""What one deck took: tokens, USD and seconds of its reply; under a condition, of all its samples and revisions."""

from collections.abc import Iterable
from typing import TypeVar, cast

from decksmith.core.records import By
from decksmith.measure.judging.records import DeckRecord, Revise, Spent
from decksmith.models.records import Gen, Usage

Number = TypeVar("Number", int, float)


def of_all(samples: Iterable[DeckRecord]) -> Spent:
    """What all samples took with their revisions and, where they were judged to choose, their judgings."""
    parts: list[Spent] = []
    for sample in samples:
        parts.append(of(sample))
        judged = sample.get("judge")
        if judged and judged.get("usage"):
            parts.append(part(judged["usage"], _seconds(judged.get("by"))))
    return total(parts)


def of(record: DeckRecord) -> Spent:
    """What a deck's reply and its revisions took."""
    if choice := record.get("choose"):
        return choice["spent"]
    gen: Gen = record.get("gen") or {}
    revised: Revise = record.get("revise") or {}
    rounds = [one["spent"] for one in revised.get("rounds", [])]
    return total([part(gen.get("usage"), _seconds(gen.get("by"))), *rounds])


def part(usage: Usage | None, seconds: float | None) -> Spent:
    """What one reply took; None where it does not say."""
    known = {**(usage or {}), "seconds": seconds}
    return cast(Spent, {kind: known.get(kind) for kind in Spent.__annotations__})


def _seconds(by: By | None) -> float | None:
    """From request to reply; of what was not asked for, how long it took."""
    return by.get("latency", by.get("took")) if by else None


def total(parts: list[Spent]) -> Spent:
    """The sum of what several replies took; None where one of them does not say."""
    rows = cast(list[dict[str, float | None]], parts)
    sums = {kind: added(row[kind] for row in rows) for kind in Spent.__annotations__}
    return cast(Spent, {kind: one if one is None else round(one, 8) for kind, one in sums.items()})


def added(values: Iterable[Number | None]) -> Number | None:
    """The sum; None where any is unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None
