"""The door for chat data: what people bring becomes train.jsonl, test.jsonl and report.json once, in
a folder that is named after its content. assets/chat-shapes.jq says what becomes of a row.
"""

import hashlib
import itertools
import json
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.train.corpus import chat_sources, overlap
from decksmith.train.corpus.chat_sources import TAKEN
from decksmith.train.corpus.records import ChatReport, TrainRow, Turn

SHAPES = cli.ROOT / "assets/chat-shapes.jq"
PROMPTS = cli.ROOT / "data/prompts.jsonl"  # what an evaluation asks is no training
SHARE, LEAST = 0.05, 16  # of the rows held out, and how many at least; a fifth of few rows
COPIED = 40  # characters from which an equal answer is a copy; a shorter one may be a label
BLOCK, COMPARED = 500, 4000  # rows compared with the prompts at once; characters of each
LOOKED = 100  # rows in which columns are sought
SAID = 400  # characters of a list of columns
PLACES = 5  # that are named of each reason
TRAIN, TEST, NEITHER = range(3)


# A row that can be trained on: its place, itself, the mark of its group, and whether it is held out.
Kept = tuple[str, TrainRow, int, bool]


def mark(text: str) -> int:
    """A text as 64 bits; blanks and the case of letters are no matter."""
    plain = " ".join(text.casefold().split()).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(plain, digest_size=8).digest())


def talk(row: TrainRow) -> list[Turn]:
    """The conversation of a row, of a pair the better one."""
    return row.get("messages") or [*row["context"], *row["completions"][0]["completion"]]


def asked(row: TrainRow) -> str:
    """What a conversation asks, the answers of tools included."""
    return "\n".join(turn["content"] for turn in talk(row) if turn["role"] in ("user", "tool"))


def convert(data: str, section: str, out: Path) -> ChatReport:
    """Make OUT/train.jsonl, OUT/test.jsonl and OUT/report.json of `data` (chat_sources.parts), as
    `section`, sft, dpo or what the first row is for, trains on them; nothing where they are made of it already. The report is
    written last. Raises cli.BadData, cli.Missing, cli.TryAgain."""
    sha256, parts = chat_sources.parts(data)
    code = [SHAPES, PROMPTS, Path(__file__), Path(str(chat_sources.__file__))]
    made_by = hashlib.sha256(b"".join(path.read_bytes() for path in code)).hexdigest()
    inputs, path = stream.fingerprint([data, sha256, section, made_by]), out / "report.json"
    if path.is_file() and (known := stream.json_file(path)).get("inputs") == inputs:
        return cast(ChatReport, known)
    path.unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out) as staged:
        report = Conversion(data, parts, section).into(out, staged)
    report |= {"sha256": sha256, "inputs": inputs}
    stream.write(path, json.dumps(report, indent=2) + "\n")
    return report


def sentences(report: ChatReport) -> Iterator[str]:
    """What was taken, what becomes of it, how it was parted, and what was dropped."""
    counts, shapes = report["counts"], ", ".join(report["shapes"])
    yield f"{report['source']}: {counts['read']:,} rows, {shapes} ({report['kind']})"
    yield ", ".join(f"{name} -> {made}" for name, made in report["columns"].items())[:SAID]
    held = f"{counts['test']:,} held out, {report['split']}"
    yield f"{counts['train']:,} rows to train on, {held}"
    for reason, (count, *places) in report["dropped"].items():
        more = ".." if int(count) > len(places) else ""
        yield f"dropped: {count} x {reason} ({', '.join(filter(None, [*places, more]))})"


class Conversion:
    """One conversion: every row is read once, and a few numbers of it stay in memory."""

    def __init__(self, data: str, parts: list[chat_sources.Part], section: str):
        sides = [part.side for part in parts]
        held = next((side for side in ("validation", "test") if side in sides), "")
        if "train" not in sides:
            raise cli.BadData(f"{data} has rows of {held} alone; name the file to train on")
        self.data, self.section, self.split = data, section, held and f"its {held} set"
        self.parts = [part for part in parts if part.side in ("train", held)]
        self.read = stream.program(f"false as $columns | {SHAPES.read_text()}")
        self.becomes = stream.program(f"true as $columns | {SHAPES.read_text()}")
        self.columns: dict[str, str] = {}
        self.asked, self.answers, self.groups = array("Q"), array("Q"), array("Q")
        self.side = array("b")  # of each row: TRAIN, TEST or NEITHER
        self.seen: set[int] = set()  # contents and ids
        self.counts: Counter[str] = Counter()  # reasons for which rows are dropped, and others
        self.shapes: Counter[str] = Counter()
        self.places: dict[str, list[str]] = {}  # of each reason
        self.rewards: set[str] = set()

    def into(self, out: Path, staged: IO[bytes]) -> ChatReport:
        """Write both sides. Raises cli.BadData where one of them has no row."""
        for row in self._apart(itertools.chain(*map(self._rows, self.parts))):
            staged.write(stream.dumps(row) + b"\n")
        if not self.split:
            self._part()
        self._leave_out()
        counts = self.counts
        for side, name in enumerate(("train", "test")):
            counts[name] = stream.write_records(out / f"{name}.jsonl", self._of(side, staged))
        report: ChatReport = {
            "source": self.data,
            "kind": self.parts[0].kind,
            "shapes": dict(self.shapes.most_common()),
            "columns": self.columns,
            "split": self.split,
            "counts": {key: counts[key] for key in ("read", "train", "test", "reasoned", "tools")},
            "dropped": {why: [str(counts[why]), *where] for why, where in self.places.items()},
            "rewards": sorted(self.rewards),
        }
        if not counts["train"] or not counts["test"]:
            lack = "held out" if counts["train"] else "trained on"
            _, columns, _, *why = (line.removeprefix("dropped: ") for line in sentences(report))
            said, mend = f"none of {counts['read']:,} rows can be {lack}", f"taken are {TAKEN}"
            if counts["no answer"]:
                mend = f"a model answers requests: make baseline PROMPTS={self.data}"
            if self.shapes and not any("columns" in reason for reason in why):
                mend = "give rows that ask other things than each other and data/prompts.jsonl"
            else:
                said += f" ({columns})"
            raise cli.BadData(f"{self.data}: {'; '.join([said, *why, mend])}")
        return report

    def _drop(self, reason: str, *place: str) -> None:
        if reason not in self.places and len(self.places) > LOOKED:
            reason = "other reasons"
        self.counts[reason] += 1
        if self.counts[reason] <= PLACES:
            self.places.setdefault(reason, []).extend(place)

    def _rows(self, part: chat_sources.Part) -> Iterator[Kept]:
        """What can be trained on of a part."""
        where = f"{Path(part.name).name} " if len(self.parts) > 1 else ""
        for place, row in part.rows():
            self.counts["read"] += 1
            try:
                if isinstance(row, str):
                    raise ValueError(row)
                yield where + place, *self._row(row), part.side != "train"
            except ValueError as error:
                self._drop(str(error), where + place)

    def _row(self, row: Record) -> tuple[TrainRow, int]:
        """A row with an id, and the mark of its group. Raises ValueError for one of which nothing can
        be trained, or that came before, and cli.BadData for one that another target trains on."""
        try:
            found = self.read(row)
            if self.counts["read"] <= LOOKED:
                self.columns |= self.becomes(row)
        except (TypeError, ValueError):  # bytes and dates of a table
            raise ValueError("a value that no JSON can say") from None
        if why := found.get("unfit"):
            raise ValueError(why)
        made, group = found["row"], found["group"]
        self.section = self.section or ("dpo" if "context" in made else "sft")
        if ("context" in made) != (self.section == "dpo"):
            holds, other = ("pairs", "dpo") if "context" in made else ("conversations", "sft")
            said = f"{self.data} holds {holds} ({found['shape']}), which this does not train on"
            raise cli.BadData(f"{said}; type: make {other} DATA={self.data}")
        content = stream.fingerprint(made)
        ident, own = str(found["id"] or ""), mark(content)
        if own in self.seen:
            raise ValueError("the same as an earlier row")
        if not stream.ID.match(ident) or mark(f"id {ident}") in self.seen:
            ident = f"c{content[:16]}"
        self.seen |= {own, mark(f"id {ident}")}
        kept = stream.typed({"id": ident, **made}, TrainRow)
        self.shapes[found["shape"]] += 1
        self.rewards |= {found["reward"]} - {None}
        return kept, mark(str(group) if isinstance(group, str | int) else asked(kept))

    def _apart(self, rows: Iterator[Kept]) -> Iterator[TrainRow]:
        """The rows that are not near a prompt of the evaluation; keeps the marks of each."""
        held = [cast(TrainRow, prompt) for _, prompt in stream.records(PROMPTS)]
        prompts = [overlap.plain(asked(prompt)[:COMPARED]) for prompt in held]
        while block := [*itertools.islice(rows, BLOCK)]:
            texts = [overlap.plain(asked(row)[:COMPARED]) for _, row, *_ in block]
            near = {at: held[other]["id"] for at, other, _ in overlap.jaccard(texts, prompts)}
            for index, (place, row, group, is_test) in enumerate(block):
                if index in near:
                    self._drop("near a prompt of data/prompts.jsonl", f"{place}: {near[index]}")
                    continue
                answer = talk(row)[-1]["content"]
                self.asked.append(mark(asked(row)))
                self.answers.append(mark(answer) if len(answer) >= COPIED else 0)
                self.groups.append(group)
                self.side.append(is_test)
                self.counts["reasoned"] += any("reasoning_content" in turn for turn in talk(row))
                self.counts["tools"] += "tools" in row
                yield row

    def _part(self) -> None:
        """Hold out whole groups, else whole requests, in the order of their hashes: as many rows as
        the share, and never more than twice as many. Where a row stands is no matter."""
        total = len(self.asked)
        want = max(1, round(SHARE * total), min(LEAST, total // 5))
        ways = [(self.groups, "by whole groups"), (self.asked, "by requests")]
        for units, how in ways[self.groups == self.asked :]:
            sizes, taken, held = Counter(units), 0, set()
            for unit in sorted(sizes):
                if taken < want and taken + sizes[unit] <= min(2 * want, total - 1):
                    held.add(unit)
                    taken += sizes[unit]
            self.side, self.split = array("b", [unit in held for unit in units]), how
            if 2 * taken >= want:
                break

    def _leave_out(self) -> None:
        """Take from what is held out the rows whose request or answer is trained on, too."""

        def marks(wanted: int) -> Iterator[tuple[int, int]]:
            for at, side in enumerate(self.side):
                if side == wanted:
                    yield at, self.asked[at]
                    yield at, self.answers[at]

        tested = {mark for _, mark in marks(TEST)} - {0}
        both = {mark for _, mark in marks(TRAIN) if mark in tested}
        for at in {at for at, mark in marks(TEST) if mark in both}:
            self.side[at] = NEITHER
            self._drop("held out, but its request or answer is trained on")

    def _of(self, wanted: int, staged: IO[bytes]) -> Iterator[Record]:
        """The rows of a side. One with a thought is the first: the trainer's loader takes its keys
        from the first 10 MB (datasets 5.2.0, measured)."""

        def lines() -> Iterator[bytes]:
            staged.seek(0)
            return (line for line, side in zip(staged, self.side, strict=True) if side == wanted)

        first = next((line for line in lines() if b'"reasoning_content":' in line), None)
        rest = (line for line in lines() if line != first)
        yield from map(stream.json_object, itertools.chain([first] if first else [], rest))
