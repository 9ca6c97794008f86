"""What one deck took: tokens, USD and seconds of its reply; under a condition, of all its samples and revisions."""

from typing import Any

from decksmith.core.records import Record

# What is added up over the samples and rounds of a deck.
COUNTED = ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cost")


def of_all(samples: list[Record]) -> Record:
    """Tokens, USD and seconds of all samples with their revisions and, where they were judged to choose, their judgings."""
    parts: list[Record] = []
    for sample in samples:
        parts.append(of(sample))
        judged = sample.get("judge")
        if isinstance(judged, dict) and isinstance(judged.get("usage"), dict):
            parts.append(part(judged["usage"], judged.get("by")))
    return total(parts)


def of(record: Record) -> Record:
    """Tokens, USD and seconds of a deck's reply and of its revisions: the keys of COUNTED and `seconds`; None where it is unknown."""
    if choice := record.get("choose"):
        return dict(choice["spent"])
    gen = record.get("gen") or {}
    parts = [part(gen.get("usage") or {}, gen.get("by"))]
    parts += [one["spent"] for one in (record.get("revise") or {}).get("rounds", [])]
    return total(parts)


def part(usage: Record, by: Record | None) -> Record:
    """What one reply took."""
    took: Any = (by or {}).get("latency", (by or {}).get("took"))
    return {**{name: usage.get(name) for name in COUNTED}, "seconds": took}


def total(parts: list[Record]) -> Record:
    """The sum of what several replies took; None where one of them does not say."""
    found: Record = {}
    for name in (*COUNTED, "seconds"):
        values = [part.get(name) for part in parts]
        known = [value for value in values if value is not None]
        found[name] = round(sum(known), 8) if len(known) == len(values) else None
    return found
