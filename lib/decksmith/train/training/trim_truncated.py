"""Answers that were cut off at the token limit, cut back to their last whole slide: a filter over deck records.

    chat-generate --samples 4 .. | python3 -m decksmith.train.training.trim_truncated | deck-parse ..

Best-of-n training and preference pairs take answers that have ended. A small model seldom ends a deck by itself; of what it
wrote, all slides but the last one are whole. An answer of fewer whole slides than a deck has stays as it was.
"""

from typing import cast

from decksmith.core import cli, stream
from decksmith.measure.decks.parser import Deck
from decksmith.measure.judging.records import DeckRecord

FEWEST = 3  # slides of a deck


def trim_truncated(record: DeckRecord) -> DeckRecord:
    """The record with its answer cut back where enough is whole; `gen.cut_back`: by how many characters."""
    said = record.get("gen") or {}
    if said.get("finish_reason") != "length":
        return record
    deck = Deck.parse(said["text"])
    if len(deck.slides) <= FEWEST:
        return record
    kept = deck.text[: deck.slides[-1].offset].rstrip().removesuffix("---").rstrip() + "\n"
    gone = len(deck.text) - len(kept)
    return {**record, "gen": {**said, "text": kept, "finish_reason": "stop", "cut_back": gone}}


def main() -> None:
    for _, record in stream.records("/dev/stdin"):
        stream.emit(dict(trim_truncated(cast(DeckRecord, record))))


if __name__ == "__main__":
    cli.ends_with(main)
