"""The words of a report: what each measure is, in which unit, and where the docs say more."""

from typing import NamedTuple

from decksmith.measure.judging import offline
from decksmith.measure.results.comparison import Run
from decksmith.measure.results.runs import measures as measured
from decksmith.measure.results.runs import titles

# The units of the offline measures that are no share from 0 to 1.
UNITS = {
    "overflow": "px",
    "contrast": ": 1",
    "smallest": "px",
    "pictures": "pictures",
    "density": "words",
    "hierarchy": "times",
    "variety": "kinds per √slides",
}
SHARE = "of 1"


class Word(NamedTuple):
    """An entry of the glossary: what it is called, its unit ("" without one), a sentence, a page of docs/ with its section."""

    name: str
    unit: str
    says: str
    page: str


SCORES = {
    "judge_only": "The overall score without VisCraft: what the judge alone gives.",
    "viscraft": "What the deck's markdown uses of Slidev, counted by the scan that the protocol names.",
    "design": "How soundly the slides are laid out.",
    "content": "Whether what was asked for is there.",
    "coherence": "Whether the deck opens, goes on and closes as one talk.",
}
WORDS = [
    Word(
        "floor",
        "1 to 5",
        "The mean over all prompts in which a deck that the model failed at counts 1. The headline is about it.",
        "protocol.md#score",
    ),
    Word(
        "rendered decks only",
        "1 to 5",
        "The mean over the decks that rendered. It rewards failing on hard prompts: read it beside the share that rendered.",
        "protocol.md#score",
    ),
    Word(
        "checklist",
        "0 to 1",
        "The share of the request's checklist that the judge found in the deck.",
        "protocol.md#score",
    ),
    Word(
        "craft, craft-v5",
        "1 to 5",
        "Two scans that count features of the markdown; nobody looks. craft-v5 is the published one, and easily satisfied.",
        "protocol.md#score",
    ),
    Word(
        "grounding, coverage",
        "0 to 1",
        "Of prompts with documents: the share of a deck's figures and names that the documents have, and of their headings that "
        "the deck takes up. No part of the score.",
        "prompts.md#documents",
    ),
    Word(
        "kept",
        "0 to 1",
        "Of prompts with turns: the share of the slides that a follow-up should not change and did not. No part of the score.",
        "prompts.md#turns",
    ),
    Word(
        "X-ray",
        "",
        "What the renderer measured of a slide's page: words, boxes, type sizes, contrast, overflow. The line below a picture is from it.",
        "records.md",
    ),
    Word(
        "[low, high]",
        "",
        "The 95 % interval of a mean or a difference, over prompts.",
        "statistics.md",
    ),
    Word(
        "not separated, inconclusive",
        "",
        "What a test says of two models. Not separated: the interval of their difference holds 0. Inconclusive: something keeps it from saying anything, and the reason stands beside it.",
        "statistics.md",
    ),
    Word(
        "model, renderer, judge and infra faults",
        "",
        "Whose doing it was that a deck has no score of its own. Only the model's count against it; the others are left out and counted.",
        "records.md#common-to-every-stage",
    ),
    Word(
        "truncated",
        "",
        "The reply ended at the token limit. What it holds is rendered and judged.",
        "protocol.md#score",
    ),
]


def glossary(runs: list[Run]) -> list[Word]:
    """The words that a report of these runs uses, scores first."""
    named = titles(runs)
    shown = [name for name in measured(runs) if name in SCORES]
    weights = (runs[0]["protocol"].get("score") or {}).get("weights") or {}
    parts = [f"{weight:g} {named.get(name, name)}" for name, weight in weights.items()]
    overall = f"The protocol's score of a deck: {' + '.join(parts)}." if parts else ""
    words = [Word(named["overall"], "1 to 5", overall, "protocol.md#score")] if overall else []
    words += [Word(named[name], "1 to 5", SCORES[name], "protocol.md#score") for name in shown]
    return words + WORDS


def measures(runs: list[Run]) -> dict[str, list[str]]:
    """`{name: [unit, sentence]}` of the offline measures that these runs' decks have."""
    found = {
        name: None
        for run in runs
        for record in run["records"]
        for name in (record.get("judge") or {}).get("measures") or {}
    }
    known = [name for name in found if name in offline.MEASURES]
    return {name: [UNITS.get(name, SHARE), sentence(name)] for name in known}


def sentence(name: str) -> str:
    """What an offline measure is, as docs/protocol.md says it."""
    return " ".join((offline.MEASURES[name].__doc__ or "").split())
