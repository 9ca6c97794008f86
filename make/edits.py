"""Edits as they are written (data/edits/edits.jsonl) become prompts; and three editors of a script, to compare models with.

  record-sample --protocol edit < data/edits/edits.jsonl | python3 make/edits.py

A line names its deck's file, and has as `edit` pairs of texts: the first stands in the deck once, and the second in its place
in the deck as it should be.
"""

import difflib
import io
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Literal, cast

import click
from decksmith.core import cli, stream
from decksmith.core.records import Edit, PromptRow, Record
from decksmith.measure.decks import clean, conditions, edits
from decksmith.measure.decks.parser import Deck
from decksmith.measure.judging import edited
from typing_extensions import TypedDict

SYSTEM = (
    "You edit slide decks in Slidev Markdown. Change what the request asks for and nothing else: every other slide stays as "
    "it is, to the letter. Reply with the whole deck and nothing else"
)


class EditRow(TypedDict):
    """A line of data/edits/edits.jsonl."""

    id: Annotated[str, "unique and stable"]
    sets: Annotated[list[Literal["open", "held"]], "which half: for training, or for measuring"]
    deck: Annotated[str, "the deck's file, seen from the checkout"]
    kind: Annotated[str, "one of KINDS"]
    level: Annotated[Literal[1, 2, 3], "1 names place and text, 2 describes them, 3 implies some"]
    language: Annotated[str, "of deck and request, ISO 639-1"]
    request: Annotated[str, "as a person would write it"]
    may: Annotated[
        Record, "what may change (edited.py); `lines`: those that the edit below changes"
    ]
    checks: Annotated[list[Record], "what must hold afterwards, and does not before"]
    edit: Annotated[list[list[str]], "the reference: pairs of texts"]


EDITORS = "results/edits"  # a folder for each editor of a script
TEXT = "{http://schemas.openxmlformats.org/drawingml/2006/main}t"
KINDS = tuple(
    "number shorten translate table diagram move split remove insert notes theme term".split()
)


def prompt(row: EditRow) -> PromptRow:
    """The prompt of an edit. Raises cli.BadData for a deck that is not there, or a reference that cannot be applied."""
    before, after = before_after(row)
    may = {
        number: _kept_lines(before, after, int(number)) if how == "lines" else how
        for number, how in row["may"].items()
    }
    edit: Edit = {
        "kind": row["kind"],
        "level": row["level"],
        "deck": row["deck"],
        "before": before,
        "slides": len(Deck.parse(after).shown),
        "may": may,
        "checks": row["checks"],
    }
    if is_office(row):
        edit["imported"] = f"{OFFICE}/{row['id']}-nothing"
    asked = f"{row['request']}{edits.BEFORE}{before}"
    return {
        "id": row["id"],
        "sets": cast(list[str], row["sets"]),
        "messages": [
            {"role": "system", "content": f"{SYSTEM}."},
            {"role": "user", "content": asked},
        ],
        "asks": {"domain": row["kind"], "language": row["language"]},
        "checklist": [],
        "edit": edit,
    }


def before_after(row: EditRow) -> tuple[str, str]:
    """The deck of an edit, and as its reference leaves it. Raises cli.BadData."""
    if is_office(row):
        return _read(row, "nothing"), _read(row, "perfect")
    try:
        before = clean.clean((cli.ROOT / row["deck"]).read_text(encoding="utf-8"))[0]
        return before, edits.replaced(before, blocks(before, row["edit"]))
    except (OSError, edits.NoEdit) as error:
        raise cli.BadData(f"{row['id']}: {error}") from None


def blocks(text: str, pairs: list[list[str]]) -> str:
    """Search-and-replace blocks of whole lines that replace each first text, which the deck has once, by its second. Raises
    edits.NoEdit."""
    said = []
    for old, new in pairs:
        places = len(re.findall(f"(?={re.escape(old)})", text))  # they may overlap
        if places != 1:
            raise edits.NoEdit(f"{old[:60]!r} is at {places} places of the deck")
        at = text.index(old)
        begin, end = text.rfind("\n", 0, at) + 1, (text + "\n").index("\n", at + len(old))
        lines = text[begin:end]
        change = text[begin:at] + new + text[at + len(old) : end]
        body = f"{change}\n" if change else ""
        said.append(f"<<<<<<< SEARCH\n{lines}\n=======\n{body}>>>>>>> REPLACE")
        text = text[:begin] + change + text[end:] if change else text[:begin] + text[end + 1 :]
    return "\n".join(said) + "\n"


def _kept_lines(before: str, after: str, number: int) -> list[str]:
    """The lines of a slide that the reference leaves as they are."""
    old, new = before.split("\n"), after.split("\n")
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    stay = {block.a + at for block in blocks for at in range(block.size)}
    slide = Deck.parse(before).slides[number - 1]
    return [old[at] for at in range(slide.start - 1, slide.end) if at in stay and old[at].strip()]


def chats(row: EditRow) -> Iterator[Record]:
    """An edit as chat rows, which ask for the whole deck and for blocks; none where the reference is not judged 1."""
    asked = prompt(row)
    before, after = before_after(row)
    found = edited.verdict(asked["edit"], after)
    unmet = [one for one in found["asked"] if not one["yes"] and "redrawn" not in one["what"]]
    if unmet or found["findings"]:
        stream.warn(row["id"], "no row: its reference is not what it asks for")
        return
    for name, reply in (("plain", after), ("blocks", blocks(before, row["edit"]))):
        under = conditions.load(name)
        messages = under.messages(cast(Record, asked)) if under else asked["messages"]
        said = [*messages, {"role": "assistant", "content": reply}]
        yield {"id": f"{row['id']}-{name}", "messages": said}


# --- PowerPoint files: each text of a pair stands in one run of the file ------------------------------------------------

OFFICE = "data/decks/edits"  # as deck-import keeps them


def is_office(row: EditRow) -> bool:
    """Whether an edit is of a PowerPoint file."""
    return row["deck"].endswith(".pptx")


def office(row: EditRow, editor: str) -> bytes:
    """The file as an editor of a script leaves it. Raises cli.BadData."""
    from pptx import Presentation

    path = cli.ROOT / row["deck"]
    if editor == "nothing":
        return path.read_bytes()
    show = Presentation(str(path))
    runs = [run for slide in show.slides for run in slide._element.iter(TEXT)]
    for old, new in row["edit"]:
        found = [run for run in runs if old in (run.text or "")]
        if len(found) != 1:
            raise cli.BadData(f"{row['id']}: {old!r} is in {len(found)} runs of {row['deck']}")
        found[0].text = found[0].text.replace(old, new)
    for run in runs if editor == "rewrite" else ():
        run.text += " again"
    show.save(file := io.BytesIO())
    return file.getvalue()


def _read(row: EditRow, editor: str) -> str:
    """The same as deck-import reads it. Raises cli.BadData, cli.Missing."""
    from decksmith.measure.render import imported

    path = cli.ROOT / EDITORS / editor / f"{row['id']}.pptx"
    stream.write(path, office(row, editor))
    into, ident = cli.ROOT / OFFICE, f"{row['id']}-{editor}"
    imported.import_deck(ident, path, None, into)
    return (into / f"{ident}.md").read_text(encoding="utf-8")


# --- editors of a script: what a measure must give them is known -------------------------------------------------------


def perfect(row: EditRow) -> str:
    """The reference, as search-and-replace blocks."""
    return blocks(before_after(row)[0], row["edit"])


def rewrite(row: EditRow) -> str:
    """The deck as the reference leaves it, with every line of text rewritten."""
    text = before_after(row)[1]
    lines = text.split("\n")
    for slide in Deck.parse(text).slides:
        for at, line in enumerate(slide.prose.split("\n"), slide.content_line - 1):
            if line.strip() and line.lstrip()[0] not in "|:<{}$!":
                lines[at] += " again"
    return "\n".join(lines)


def nothing(row: EditRow) -> str:
    """The deck as it was."""
    return before_after(row)[0]


SCRIPTED: dict[str, Callable[[EditRow], str]] = {
    "perfect": perfect,
    "rewrite": rewrite,
    "nothing": nothing,
}


@cli.command(__doc__)
@click.option("--scripted", is_flag=True, help="Write the scripted editors' decks too.")
@click.option("--train", is_flag=True, help="Print rows to train on in place of prompts.")
def main(scripted: bool, train: bool) -> None:
    for _, row in stream.records("/dev/stdin", EditRow):
        if train and "held" in row["sets"]:
            continue  # what is measured is not trained on
        for record in chats(row) if train else [prompt(row)]:
            stream.emit(record)
        for name, editor in SCRIPTED.items() if scripted else ():
            path = cli.ROOT / EDITORS / name / row["id"]
            if is_office(row):
                stream.write(path.with_suffix(".pptx"), office(row, name))
            else:
                stream.write(path.with_suffix(".md"), editor(row).encode())


if __name__ == "__main__":
    main()
