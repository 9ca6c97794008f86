"""The checklist's answers beside a person's: a page of one file on which somebody answers the items of some decks, and the
count of how often text match, judge and people say the same."""

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from decksmith.core import cli, pages, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.judging import offline
from decksmith.results import report_pictures
from decksmith.results.text import interval, markdown_table
from decksmith.study import intervals

WIDTH, QUALITY = 720, 60  # of a slide's picture
LARGEST = 4 << 20  # bytes of a file of answers
Answers = dict[tuple[str, str], bool]  # by deck and item


def chosen(run: Path, decks: int) -> list[Record]:
    """So many of the run's judged decks with a checklist, by lot that depends on their ids alone; more of them keep those
    of fewer. Raises cli.BadData where there is none."""
    every = [record for _, record in stream.records(run / "scores.jsonl")]
    fit = [
        record
        for record in every
        if record.get("checklist") and (record.get("judge") or {}).get("checklist")
    ]
    if not fit:
        raise cli.BadData(f"{run}: no deck with a checklist was judged")
    return sorted(fit, key=lambda record: stream.shuffled(record["id"]))[:decks]


def page(run: Path, decks: int, who: str) -> str:
    """The page for one person: requests, slides and items, and nothing of what anybody answered."""
    rows = []
    for record in chosen(run, decks):
        asked = [m["content"] for m in record.get("messages") or [] if m.get("role") == "user"]
        slides = [
            report_pictures.data_uri(report_pictures.avif(run / path, WIDTH, QUALITY), "image/avif")
            for path in record["render"].get("slides") or []
        ]
        items = [{"id": item["id"], "ask": item["ask"]} for item in record["checklist"]]
        rows.append(
            {"id": record["id"], "request": "\n\n".join(asked), "slides": slides, "items": items}
        )
    data = {"run": _named(run), "who": who, "decks": rows}
    script = pages.script("audit.js")
    return str(
        pages.template("audit.html.j2").render(
            {
                "policy": pages.policy(script, _style(), "data:"),
                "script": pages.as_is(script),
                "style": pages.as_is(_style()),
                "data": pages.data(data),
            }
        )
    )


@functools.cache
def _style() -> str:
    """audit.css with the fonts in it and the colours of the report."""
    report = (pages.WEB / "report.css").read_text()
    colours = re.findall(r"^:root[^{]*\{[^}]*\}", report, re.M)
    return "\n".join([pages.faces(), *colours, (pages.WEB / "audit.css").read_text()])


def _named(run: Path) -> str:
    """What a file of answers says of the run that it belongs to."""
    ids = sorted(
        [record["id"], (record.get("deck") or {}).get("sha256")]
        for _, record in stream.records(run / "scores.jsonl")
    )
    return stream.fingerprint(ids)[:16]


# And back


def read(run: Path, paths: Iterable[Path]) -> dict[str, Answers]:
    """`{person: answers}` of files that the page saved. Raises cli.BadData naming the file: not one of this run, another
    answer of the same person, an item that is not there."""
    mine = _named(run)
    items = {
        (record["id"], item["id"])
        for _, record in stream.records(run / "scores.jsonl")
        for item in record.get("checklist") or []
    }
    found: dict[str, Answers] = {}
    for path in paths:
        said = _object(path)
        if said.get("run") != mine:
            raise cli.BadData(f"{path}: the answers of another run, or its decks were made anew")
        of = found.setdefault(str(said.get("who") or path.stem)[:100], {})
        for deck, answers in (said.get("answers") or {}).items():
            for item, yes in answers.items():
                if (deck, item) not in items or not isinstance(yes, bool):
                    raise cli.BadData(
                        f"{path}: {deck}: {item}: no such item, or its answer is no yes or no"
                    )
                if of.setdefault((deck, item), yes) != yes:
                    raise cli.BadData(
                        f"{path}: {deck}: {item}: answered otherwise in another file of the same person"
                    )
    return found


def _object(path: Path) -> Record:
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("too large")
        said = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise cli.Missing(f"{path}: {error.strerror}") from None
    except ValueError:
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("answers"), dict):
        raise cli.BadData(f'{path}: no file of answers; the page saves one by "Save my answers"')
    return said


def compare(run: Path, people: Mapping[str, Answers]) -> dict[str, Any]:
    """How often two of people, judge and text match give an item the same answer, JSON-able.

    Raises cli.BadData where nobody answered anything."""
    asked = {item for answers in people.values() for item in answers}
    if not asked:
        raise cli.BadData("no answer in these files")
    records = {
        record["id"]: record
        for _, record in stream.records(run / "scores.jsonl")
        if record["id"] in {deck for deck, _ in asked}
    }
    judge = {
        (ident, answer["id"]): bool(answer["yes"])
        for ident, record in records.items()
        for answer in (record.get("judge") or {}).get("checklist") or []
    }
    text = _matched(run, records.values())
    names = sorted(people)
    twos = [
        ("person and judge", [(name, people[name], judge) for name in names]),
        ("person and text match", [(name, people[name], text) for name in names]),
        (
            "judge and text match",
            [("judge", {item: judge[item] for item in asked & judge.keys()}, text)],
        ),
        (
            "two persons",
            [
                (f"{a} {b}", people[a], people[b])
                for at, a in enumerate(names)
                for b in names[at + 1 :]
            ],
        ),
    ]
    return {
        "judge": next(
            (record["judge"]["judge"] for record in records.values() if record.get("judge")), None
        ),
        "people": len(people),
        "decks": len({deck for deck, _ in asked}),
        "items": len(asked),
        "agreement": [_agreement(name, sides) for name, sides in twos if sides],
        "differ": _differ(records, people, judge),
    }


def _matched(run: Path, records: Iterable[Record]) -> Answers:
    """What the offline judge's text match says of the items."""
    protocol = Protocol.load("offline")
    found = {}
    for record in records:
        said = offline.judge(record, run, protocol.measures, protocol.judge["needed"])
        for answer in said["checklist"]:
            found[record["id"], answer["id"]] = bool(answer["yes"])
    return found


def _agreement(name: str, sides: Sequence[tuple[str, Answers, Answers]]) -> dict[str, Any]:
    """The share of items on which two say the same with its interval over decks and people, Cohen's kappa, and how often
    each says yes."""
    rows = [
        ({"prompt": item[0], "rater": who}, a[item], b[item])
        for who, a, b in sides
        for item in sorted(a.keys() & b.keys())
    ]
    same = intervals.share([float(a == b) for _, a, b in rows], [vote for vote, *_ in rows])
    return {
        "between": name,
        "same": same,
        "kappa": _kappa(Counter((a, b) for _, a, b in rows)),
        "yes": [_share(a for _, a, _ in rows), _share(b for *_, b in rows)],
    }


def _share(values: Iterable[bool]) -> float | None:
    known = list(values)
    return round(sum(known) / len(known), 4) if known else None


def _kappa(table: Counter[tuple[bool, bool]]) -> float | None:
    """Cohen's kappa (1960, Educational and Psychological Measurement 20:37); None where chance alone explains all."""
    n = table.total()
    if not n:
        return None
    seen = (table[True, True] + table[False, False]) / n
    first, second = (
        (table[True, True] + table[pair]) / n for pair in ((True, False), (False, True))
    )
    chance = first * second + (1 - first) * (1 - second)
    return None if chance == 1 else round((seen - chance) / (1 - chance), 4)


def _differ(
    records: Mapping[str, Record], people: Mapping[str, Answers], judge: Answers
) -> list[Record]:
    """The items of which a person says something else than the judge."""
    asks = {
        (ident, item["id"]): item["ask"]
        for ident, record in records.items()
        for item in record.get("checklist") or []
    }
    return [
        {"deck": item[0], "item": item[1], "ask": asks[item], "person": name, "says": yes}
        for name, answers in sorted(people.items())
        for item, yes in sorted(answers.items())
        if item in judge and judge[item] != yes
    ]


def markdown(found: Mapping[str, Any]) -> str:
    """The count as markdown."""
    rows = [
        [
            one["between"],
            interval(one["same"]),
            "-" if one["kappa"] is None else f"{one['kappa']:.2f}",
            *("-" if share is None else f"{100 * share:.0f} %" for share in one["yes"]),
        ]
        for one in found["agreement"]
    ]
    header = ["Between", "Same answer", "Kappa", "Yes, the first", "Yes, the second"]
    lines = [
        f"Items: {found['items']}, decks: {found['decks']}, people: {found['people']}. The judge is {found['judge']}.",
        "",
        *markdown_table(header, rows, 1),
        "",
    ]
    for one in found["differ"]:
        says, other = ("yes", "no") if one["says"] else ("no", "yes")
        lines.append(
            f"- {one['deck']}, {one['item']}: {one['ask']}: {one['person']} says {says}, the judge {other}"
        )
    return "\n".join(lines) + "\n"
