"""Is a hosted judge still the judge that it was? The same decks judged on two days.

`python3 -m decksmith.results.drift FIRST NOW` compares two files of deck-judge (`make judge-drift`); without files it prints
the decks, as records with `gen`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.judging.scoring import JUDGED
from decksmith.results import judgecard, stats, text

TOLERATED = 0.25  # points by which the mean may move and the judge be the same
GOLD = 18  # gold decks beside the reference decks
SAID = {
    "the same": "This is the same judge",
    "another": "This is another judge",
    "undecided": "Nobody can say yet whether this is the same judge",
}


def decks() -> Iterator[Record]:
    """The decks that are judged again and again: the reference decks with their prompts, and gold decks."""
    for _, prompt in stream.records(cli.ROOT / "data/prompts.jsonl"):
        path = cli.ROOT / "data/reference" / f"{prompt['id']}.md"
        if path.is_file():
            yield {**prompt, "gen": {"text": path.read_text(encoding="utf-8")}}
    yield from judgecard.gold(GOLD)


def compare(first: Iterable[Record], now: Iterable[Record]) -> dict[str, Any]:
    """What became of a judge between two judgings of the same decks: `{"verdict": "the same", "another" or "undecided",
    "change": {dimension or "mean": figure}, "equal": share of equal scores, "checklist": share of equal answers, "decks"}`.

    Raises cli.BadData where fewer than stats.FEWEST decks were judged both times."""
    before, after = _judged(first), _judged(now)
    both = sorted(before.keys() & after.keys())
    if len(both) < stats.FEWEST:
        raise cli.BadData(f"{len(both)} decks were judged both times, {stats.FEWEST} are needed")
    change = {
        name: stats.mean([_score(after[one], name) - _score(before[one], name) for one in both])
        for name in ("mean", *JUDGED)
    }
    equal = [
        float(before[one]["scores"][name] == after[one]["scores"][name])
        for one in both
        for name in JUDGED
    ]
    answers = [
        float(old["yes"] == new["yes"])
        for one in both
        for old, new in zip(before[one]["checklist"], after[one]["checklist"], strict=True)
    ]
    return {
        "decks": len(both),
        "verdict": _verdict(change["mean"]),
        "change": change,
        "equal": round(fmean(equal), 4),
        "checklist": round(fmean(answers), 4) if answers else None,
    }


def _judged(records: Iterable[Record]) -> dict[str, Record]:
    said = {record["id"]: record.get("judge") or {} for record in records}
    return {ident: value for ident, value in said.items() if "scores" in value}


def _score(value: Record, name: str) -> float:
    scores = value["scores"]
    return fmean(scores[one] for one in JUDGED) if name == "mean" else scores[name]


def _verdict(change: Record) -> str:
    if change["lo"] is None:
        return "undecided"
    if -TOLERATED < change["lo"] and change["hi"] < TOLERATED:
        return "the same"
    return "undecided" if change["lo"] <= 0 <= change["hi"] else "another"


def sentence(found: dict[str, Any]) -> str:
    """The comparison in words."""
    moved = ", ".join(
        f"{'the mean of the three' if name == 'mean' else name} {text.interval(figure)}"
        for name, figure in found["change"].items()
    )
    share = f"{100 * found['equal']:.0f} % of the scores are equal"
    if found["checklist"] is not None:
        share += f", {100 * found['checklist']:.0f} % of the checklist's answers"
    return f"{SAID[found['verdict']]}, by {found['decks']} decks. Moved: {moved}. {share[0].upper() + share[1:]}."


@cli.command(__doc__)
@click.argument("first", required=False, type=click.Path(path_type=Path, exists=True))
@click.argument("now", required=False, type=click.Path(path_type=Path, exists=True))
def main(first: Path | None, now: Path | None) -> int:
    if first is None or now is None:
        for record in decks():
            stream.emit(record)
        return 0
    rows = [[record for _, record in stream.records(path)] for path in (first, now)]
    found = compare(*rows)
    click.echo(sentence(found))
    return 65 if found["verdict"] == "another" else 0


if __name__ == "__main__":
    main()
