"""Drafts checked: by their text, and rendered where a protocol is given; and the table of a run."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.measure.decks import lint, pictures, templates
from decksmith.measure.decks.records import Deck, Render
from decksmith.measure.render import pool as render_pool
from decksmith.measure.render import toolchain
from decksmith.train.corpus import drafts, rules
from decksmith.train.corpus.drafts import fault
from decksmith.train.corpus.records import Check, DraftFault, DraftRecord

OVERFLOW_PX = 16  # content may reach so far past the slide or its own box: half a line of text


class Checker:
    """The stage `check` over the drafts of a run.

    protocol: decks are drawn as it says, by `jobs` workers; None: the text alone. Pictures and
    slides go to `<scratch>/<id>`. tally counts kept, dropped, undecided, unwritten and `rule
    <name>`.
    """

    def __init__(self, run: Path, protocol: Protocol | None, *, jobs: int, scratch: Path):
        self.run, self.protocol, self.jobs, self.scratch = run, protocol, jobs, scratch
        self.engine = toolchain.engine(protocol.render["scale"]) if protocol else None
        self.pool: render_pool.Pool | None = None
        self.tally: Counter[str] = Counter()

    async def close(self) -> None:
        """End the workers."""
        if self.pool:
            await self.pool.close()

    def expect(self, record: DraftRecord) -> list[DraftRecord]:
        """Count a draft that nobody wrote."""
        self.tally["unwritten"] += "error" in (record.get("draft") or {})
        return [record]

    def inputs(self, record: DraftRecord) -> list[object]:
        """What the `check` value of a record depends on."""
        found = drafts.hashes(self.run / record["draft"]["path"])
        hashes = [found.get(name) for name in drafts.FILES]
        return [rules.VERSION, record["seed"], hashes, self.engine]

    async def check(self, record: DraftRecord) -> Check:
        """The `check` value of a record."""
        folder = self.run / record["draft"]["path"]
        found = rules.faults(folder, record["seed"])
        value: Check = {"rendered": False, "faults": found}
        has_deck = not any(f["rule"] == "missing" and f["file"] == "deck.md" for f in found)
        if self.protocol and has_deck:
            render = await self._draw(record)
            value["rendered"] = True
            seen = {(f["line"], f["rule"]) for f in found}
            text = (folder / "deck.md").read_bytes().decode(errors="replace")
            more = [f for f in rendered(render, text) if (f["line"], f["rule"]) not in seen]
            value["faults"] = found = sorted(found + more, key=drafts.place)
            ours = next((e for e in render["errors"] if e["kind"] != "model"), None)
            if ours and not found:
                value["error"] = ours
        if found:
            message = "{file}:{line}: {message}; {remedy}".format(**found[0])
            value["error"] = {"kind": "model", "class": found[0]["rule"], "message": message}
        self._count(record, value["faults"][1:], value)  # the stage tells the first one
        return value

    def recall(self, record: DraftRecord, value: Check) -> bool:
        """Count and tell a verdict of the journal too."""
        self._count(record, value["faults"], value)
        return True

    def _count(self, record: DraftRecord, told: list[DraftFault], value: Check) -> None:
        for one in told:
            stream.warn(record["id"], drafts.sentence(one))
        self.tally.update({f"rule {one['rule']}" for one in value["faults"]})
        undecided = "undecided" if "error" in value else "kept"
        self.tally["dropped" if value["faults"] else undecided] += 1

    async def _draw(self, record: DraftRecord) -> Render:
        """The `render` value of a draft's deck, with drawn pictures and in its template."""
        assert self.protocol
        self.pool = self.pool or render_pool.Pool(self.protocol, jobs=self.jobs)
        ident, folder = record["id"], self.run / record["draft"]["path"]
        (self.scratch / ident).mkdir(parents=True, exist_ok=True)
        path = (folder / "deck.md").resolve()
        deck: Deck = {"path": os.path.relpath(path, self.scratch.resolve())}
        if under := record["seed"].get("template"):
            template = templates.held(folder, under, ident)
            deck["template"] = templates.put(self.scratch, template)
        drawn: Record = {"id": ident, "deck": deck}
        drawn["images"] = pictures.illustrate(self.scratch, drawn)
        return cast(Render, await self.pool.render(self.scratch, drawn))

    def table(self) -> Iterator[str]:
        """Lines: how many drafts were kept, and how many each rule dropped; one draft may break
        several."""
        tally = self.tally
        ours = f"{tally['undecided']} undecided (a fault of ours), " if tally["undecided"] else ""
        kept = f"{tally['kept']} kept, {tally['dropped']} dropped"
        yield f"drafts {kept}, {ours}{tally['unwritten']} never written"
        broken = {key[5:]: count for key, count in tally.items() if key.startswith("rule ")}
        for rule, count in sorted(broken.items(), key=lambda item: (-item[1], item[0])):
            yield f"{rule:>20} {count:5d}"


def rendered(value: Render, text: str) -> list[DraftFault]:
    """The faults of a draft that its `render` value shows; `text` is the deck that was rendered."""
    out = [
        fault("deck.md", error.get("line") or 1, error["class"], error["message"].split("\n")[0])
        for error in value["errors"]
        if error["kind"] == "model"
    ]
    broken = {error.get("slide") for error in value["errors"]}
    # {slide: px by which its content reaches too far}; what stands in for a slide that failed may.
    reach: dict[int | None, float] = {
        page["slide"]: max(page["overflow"]["x"], page["overflow"]["y"])
        for page in value["xray"]
        if page["slide"] not in broken
    }
    overflows = set()
    for finding in lint.findings({"render": value}, text):
        rule, line, slide = finding["check"], finding["line"] or 1, finding["slide"]
        message = f"slide {slide}: {finding['message']}"
        if rule in ("overflow", "off-canvas") and reach.get(slide, 0) > OVERFLOW_PX:
            out.append(fault("deck.md", line, "overflow", message))
            overflows.add(slide)
        elif rule == "blank" and not any(f["line"] == line for f in out):
            out.append(fault("deck.md", line, "blank", message))
    for page in value["xray"]:  # what the page measures and no box explains
        slide, px = page["slide"], reach.get(page["slide"], 0)
        if px > OVERFLOW_PX and slide not in overflows:
            message = f"slide {slide}: content reaches {px:g} px past the slide"
            out.append(fault("deck.md", page["line"], "overflow", message))
    return sorted(out, key=drafts.place)


def feed(folders: Iterable[Path | str], run: Path) -> None:
    """Put records of drafts' folders on stdin: the id is the folder's name, the path is relative to
    the run folder."""
    with tempfile.TemporaryFile() as file:
        for folder in folders:
            place = Path(folder).resolve()
            record: DraftRecord = {
                "id": place.name,
                "seed": drafts.seed(folder),
                "draft": {"path": os.path.relpath(place, run.resolve())},
            }
            file.write(stream.dumps(record) + b"\n")
        file.flush()
        file.seek(0)
        os.dup2(file.fileno(), 0)
