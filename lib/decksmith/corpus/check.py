"""One draft checked: by its text, rendered where a render.Pool is given, mended where asked; and the table of a run."""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from decksmith.core import stream
from decksmith.corpus import drafts, mend, rules
from decksmith.corpus.drafts import FILES, Fault, fault
from decksmith.decks import lint, pictures, templates
from decksmith.decks.templates import Template
from decksmith.render.pool import Pool

OVERFLOW_PX = 16  # content may reach so far past the slide or its own box: half a line of text


async def check(
    run: Path | str,
    record: dict[str, Any],
    profile: str = "strict",
    *,
    fix: bool = False,
    pool: Pool | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The `check` value of a record: its draft against a profile, rendered where a Pool is given.

    Pictures and slides go to `<scratch>/<id>`, by default below `<run>/check`. `fix` first mends what is mechanical in
    the files themselves.
    """
    folder = Path(run) / record["draft"]["path"]
    fixed = mend.fix(folder) if fix else []
    found = rules.faults(folder, record["seed"], profile)
    value = {"profile": profile, "rendered": False, "faults": found, "fixed": fixed}
    has_deck = not any(f["rule"] == "missing" and f["file"] == "deck.md" for f in found)
    if pool and has_deck:
        place = scratch or Path(run) / "check"
        under = record["seed"].get("template")
        template = templates.held(folder, under, record["id"]) if under else None
        render = await draw(folder / "deck.md", record["id"], pool, place, template)
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
    return value


def rendered(value: dict[str, Any], text: str) -> list[Fault]:
    """The faults of a draft that its `render` value (docs/records.md) shows; `text` is the deck that was rendered."""

    def wrong(line: int, rule: str, message: str) -> Fault:
        return fault("deck.md", line, rule, message)

    out = [
        wrong(e.get("line") or 1, e["class"], e["message"].split("\n")[0])
        for e in value["errors"]
        if e["kind"] == "model"
    ]
    reach = _reach(value)
    overflows = set()
    for finding in lint.findings({"render": value}, text):
        rule, line, slide = finding["rule"], finding["line"] or 1, finding["slide"]
        message = f"slide {slide}: {finding['message']}"
        if rule in ("overflow", "off-canvas") and reach.get(slide, 0) > OVERFLOW_PX:
            out.append(wrong(line, "overflow", message))
            overflows.add(slide)
        elif rule == "blank" and not any(f["line"] == line for f in out):
            out.append(wrong(line, "blank", message))
    for page in value["xray"]:  # what the page measures and no box explains
        slide, px = page["slide"], reach.get(page["slide"], 0)
        if px > OVERFLOW_PX and slide not in overflows:
            message = f"slide {slide}: content reaches {px:g} px past the slide"
            out.append(wrong(page["line"], "overflow", message))
    for one in out:
        one["remedy"] = rules.STRICT.get(one["rule"], "mend what the renderer names")
    return sorted(out, key=drafts.place)


def _reach(value: dict[str, Any]) -> dict[int | None, float]:
    """{slide: px by which its content reaches too far}, without slides that failed: what stands in for them may overflow."""
    broken = {e.get("slide") for e in value["errors"]}
    return {
        page["slide"]: max((page.get("overflow") or {}).values(), default=0)
        for page in value["xray"]
        if page["slide"] not in broken
    }


async def draw(
    path: Path, ident: str, pool: Pool, scratch: Path, template: Template | None = None
) -> dict[str, Any]:
    """The `render` value of the deck at `path`, with drawn pictures and in a template, under `<scratch>/<ident>`."""
    (scratch / ident).mkdir(parents=True, exist_ok=True)
    deck: dict[str, Any] = {"path": os.path.relpath(path.resolve(), scratch.resolve())}
    if template:
        deck["template"] = templates.put(scratch, template)
    record: dict[str, Any] = {"id": ident, "deck": deck}
    record["images"] = pictures.illustrate(scratch, record, pictures.providers("drawn"))
    return await pool.render(scratch, record)


def inputs(run: Path | str, record: dict[str, Any], profile: str, engine: Any = None) -> list[Any]:
    """What the `check` value of a record depends on."""
    folder = Path(run) / record["draft"]["path"]
    hashes: list[str | None] = []
    for name in FILES:
        try:
            hashes.append(hashlib.sha256(drafts.read(folder / name)).hexdigest())
        except OSError:
            hashes.append(None)
    return [rules.VERSION, profile, record["seed"], hashes, engine]


def feed(folders: Iterable[Path | str], run: Path | str) -> None:
    """Put records of drafts' folders on stdin: the id is the folder's name, the path is relative to the run folder."""
    with tempfile.TemporaryFile() as file:
        for folder in folders:
            whole = Path(folder).resolve()
            draft = {"path": os.path.relpath(whole, Path(run).resolve())}
            record = {"id": whole.name, "seed": drafts.seed(folder), "draft": draft}
            file.write(stream.dumps(record) + b"\n")
        file.flush()
        file.seek(0)
        os.dup2(file.fileno(), 0)


def table(tally: Mapping[str, int]) -> Iterator[str]:
    """Lines that say how many drafts were kept and, by rule, how many of them each rule dropped; one draft may break
    several. `tally` counts kept, dropped, undecided, unwritten and `rule <name>`."""
    words = {
        "kept": "kept",
        "dropped": "dropped",
        "undecided": "undecided (a fault of ours)",
        "unwritten": "never written",
    }
    counts = [
        f"{tally[key]} {word}" for key, word in words.items() if tally[key] or key != "undecided"
    ]
    yield "drafts " + ", ".join(counts)
    broken = {key.removeprefix("rule "): n for key, n in tally.items() if key.startswith("rule ")}
    for rule, number in sorted(broken.items(), key=lambda item: (-item[1], item[0])):
        yield f"{rule:>20} {number:5d}"
