"""What was read out of requests, as a table, and as rows to be corrected.

  bin/prompt-check < mine.txt | bin/within tools python3 make/asked_table.py mine.txt

The rows are written to mine.checked.jsonl beside the requests. A file there that somebody corrected stays as it is.
"""

import json
import unicodedata
from pathlib import Path

import click
from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.decks import sources
from decksmith.measure.judging import asked, checks
from decksmith.measure.results import text

HEADER = ["request", "slides", "lang", "theme", "for", "shows", "headings", "figures"]
CHECKED = ".checked"


def complete(row: Record) -> Record:
    """A row with everything that can be corrected: elements and figures, also where there are none."""
    shown = sorted(checks.asked_figures(row), key=lambda digits: (len(digits), digits))
    return {**row, "asks": {"features": [], **row["asks"], "figures": shown}}


def cells(row: Record) -> list[str]:
    """What was read of a row, for its line of the table."""
    asks, said = row["asks"], sources.request(row)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in said[:23])
    most, least = asks.get("slides"), asks.get("fewest")
    slides = f"{least}-{most}" if least and most else f"{least}+" if least else str(most or "")
    values = [slides, asks.get("language"), asks.get("theme"), asks.get("audience")]
    values += [
        " ".join(asks["features"]),
        len(asks.get("outline") or []),
        " ".join(asks["figures"]),
    ]
    shown = [
        text.printable(value or "-", width)
        for value, width in zip(values, (6, 5, 11, 10, 16, 8, 7), strict=True)
    ]
    return [text.printable(said, 23 - wide // 2), *shown]


def untouched(path: Path) -> bool:
    """Whether a file of checked rows still says what is read of its requests: nobody corrected it."""
    for _, row in stream.records(path):
        again = {**row, "asks": asked.read(sources.request(row))}
        if row.get("checklist") or complete(again)["asks"] != row["asks"]:
            return False
    return True


@cli.command(__doc__)
@click.argument("beside", type=click.Path(path_type=Path))
def main(beside: Path) -> None:
    rows = [complete(row) for _, row in stream.records("/dev/stdin")]
    print("\n".join(text.columns([HEADER, *map(cells, rows)], len(HEADER))))
    print(
        '"-" was not asked for, or not plainly; what every deck is checked for stands in docs/checks.md.'
    )
    if CHECKED in beside.suffixes:
        print(f"Next: make baseline PROMPTS={beside}")
        return
    path = beside.with_name(f"{beside.stem or beside.name}{CHECKED}.jsonl")
    written = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.exists() and path.read_text(encoding="utf-8") != written and not untouched(path):
        print(f"{path} was corrected by somebody and stays as it is; move it away for a new one.")
    else:
        stream.write(path, written)
        print(f"Correct `asks` of {path} where it is wrong.")
    print(f"Next: make baseline PROMPTS={path}")


if __name__ == "__main__":
    main()
