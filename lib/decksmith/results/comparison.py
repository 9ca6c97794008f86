"""What a loaded run is, and what a comparison of several holds: the values that this room's modules hand each other."""

from pathlib import Path
from typing import Literal, NotRequired, TypedDict

from decksmith.core.records import Record
from decksmith.judging.records import DeckRecord
from decksmith.results.records import Identity, Summary

Accounting = Literal["floor", "renderable", "scored"]
Verdict = Literal["beats", "not separated", "inconclusive"]


class Trained(TypedDict):
    reward: str  # the names of the rewards
    shared: list[str] | None  # the measures that they and the score have in common
    others: list[str]  # the score's other measures


class Guided(TypedDict):
    by: str  # the reward that chose the decks, or "judge"
    shared: list[str]  # the measures that it and the score have in common


class Run(TypedDict):
    """One run, as runs.load returns it. What other rooms know of it they add before it is compared: see the last three keys."""

    path: Path  # its folder, or the file of scores
    name: str  # model, and condition behind a +
    order: int  # its place among those that were named
    label: str  # what tables call it, unique among the runs that were loaded together
    color: str
    summary: Summary  # computed anew from the records
    protocol: Identity  # protocol.json; of a file of scores its name and weights alone
    records: list[DeckRecord]  # scored
    condition: Record | None  # condition.json
    unshipped: list[str]  # in what its protocol differs from the shipped one of its name
    left_out: list[str] | None  # decks that not all runs have (--common)
    remedy: str  # what does missing decks again
    trained: NotRequired[Trained]  # on which reward (rewards.rules.note_training)
    guided: NotRequired[Guided]  # what chose its decks (rewards.rules.note_training)
    chain: NotRequired[dict[str, list[Record]]]  # benchmarks by earlier run (metrics.note_chain)
