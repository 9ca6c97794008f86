"""How often the checks are right: a part of docs/judge-card.md. `make screenshots` takes its picture: a planted defect of each.

  .venv/bin/python3 tests/exam/checks_card.py --run RUN [--real RUN2]      (make judge-card)

Recall: one defect at a time is put into decks that people wrote for a request; found is one that brings a finding of its check
that the deck had not. False alarms: findings on decks that people wrote for a request (data/gold, data/reference), on decks in
six scripts (tests/fixtures/scripts), and on the public talks of `make real-decks`.
"""

import argparse
import asyncio
import hashlib
import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "lib"), str(Path(__file__).parent)]

from decksmith.core import stream  # noqa: E402
from decksmith.core.protocol import Protocol  # noqa: E402
from decksmith.measure.decks import clean, lint, pictures  # noqa: E402
from decksmith.measure.decks.records import Finding  # noqa: E402
from decksmith.measure.judging import checks  # noqa: E402
from decksmith.measure.render import pool  # noqa: E402
from PIL import Image, ImageDraw  # noqa: E402
from planted_defects import CHECKS, Case  # noqa: E402

OFFLINE = Protocol.load("offline")
EACH = 20  # versions with a defect, of as many decks
MARK = "seen", "unseen"


def half(ident: str) -> str:
    """Whether a deck was looked at while limits were set."""
    return MARK[1 - hashlib.sha256(ident.encode()).digest()[0] % 2]


def ours() -> list[dict]:
    """The decks that people wrote for a request, as records with `gen`: gold, reference, and those in six scripts."""
    found = []
    kept = ("domain", "audience", "theme", "slides", "language", "features", "outline")
    for folder in sorted((ROOT / "data/gold").iterdir()):
        seed = json.loads((folder / "seed.json").read_text())
        messages = [{"role": "user", "content": (folder / "PROMPT.md").read_text()}]
        asks = {key: seed[key] for key in kept if key in seed}
        row = {"id": folder.name, "messages": messages, "asks": asks, "checklist": []}
        found.append({**row, "gen": {"text": (folder / "deck.md").read_text()}})
    prompts = map(json.loads, (ROOT / "data/prompts.jsonl").read_text().splitlines())
    rows = {row["id"]: row for row in prompts}
    for path in sorted((ROOT / "data/reference").glob("p*.md")):
        found.append({**rows[path.stem], "gen": {"text": path.read_text()}})
    for path in sorted((ROOT / "tests/fixtures/scripts").glob("*.md")):
        asks = {"language": path.stem.split("-")[0]}
        messages = [{"role": "user", "content": ""}]
        found.append({"id": path.stem, "asks": asks, "messages": messages, "checklist": []})
        found[-1]["gen"] = {"text": path.read_text()}
    return found


def prepared(run: Path, record: dict) -> dict:
    """The record with its deck and drawn pictures in the run folder."""
    record["deck"] = clean.parse(run, record)
    record["images"] = pictures.illustrate(run, record)
    return record


async def judged(run: Path, records: list[dict]) -> list[dict]:
    """The records, rendered and checked; those that do not render are left out and named."""
    drawer = pool.Pool(OFFLINE, jobs=2, kept=pool.kept_folder())
    limit = asyncio.Semaphore(2)

    async def draw(record: dict) -> None:
        async with limit:
            record["render"] = await drawer.render(run, record)

    try:
        await asyncio.gather(*(draw(record) for record in records if "render" not in record))
    finally:
        await drawer.close()
    for record in records:
        if fault := stream.fault(record):
            print(f"{record['id']} does not render: {fault['message']}", file=sys.stderr)
        else:
            record["judge"] = checks.judge(record, run, lint.limits())
    return [record for record in records if "judge" in record]


def versions(run: Path, good: list[dict], each: int = EACH) -> list[dict]:
    """Each defect in `each` decks that have a place for it, other decks for each defect, as records with `planted`."""
    found = []
    asked = [record for record in good if "outline" in record["asks"] or record["checklist"]]
    for name, make in CHECKS.items():
        made = 0
        for record in sorted(asked, key=lambda r: stream.shuffled(f"{name} {r['id']}")) * 2:
            ident = f"planted/{record['id']}/{name}{made if name == 'checklist' else ''}"
            case = Case(record, clean.illustrated(run, record)[1], ident)
            if made < each and (version := make(case)) and ident not in {r["id"] for r in found}:
                found.append(planted(run, record, ident, version))
                found[-1]["planted"] = name
                made += 1
    return found


def planted(run: Path, record: dict, ident: str, version: str | tuple[str, dict]) -> dict:
    """The record of a deck's version, its files in the run folder."""
    text, asks = version if isinstance(version, tuple) else (version, {})
    stream.write(run / ident / "deck.md", text)
    for picture in (run / record["id"] / "images").glob("*"):
        stream.write(run / ident / "images" / picture.name, picture.read_bytes())
    deck = {**record["deck"], "path": f"{ident}/deck.md"}
    deck["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    kept = {key: record[key] for key in ("messages", "checklist")}
    return {
        **kept,
        "asks": {**record["asks"], **asks},
        "id": ident,
        "of": record["id"],
        "deck": deck,
    }


CLASS = {"error": "katex"}  # what a planted defect is called where it is an error of the renderer
# What people who wrote public talks were not asked for.
ASKED = (*checks.ASKED_CHECKS, "slides", "language", "echo", "bare")


def new(record: dict, originals: dict[str, dict]) -> list[Finding]:
    """The findings of a planted defect's check that the original has not: more of them, or of what was asked for, others."""
    name = CLASS.get(record["planted"], record["planted"])
    found, before = (
        [one for one in deck["judge"]["findings"] if one["check"] == name]
        for deck in (record, originals[record["of"]])
    )
    if name in checks.ASKED_CHECKS:
        known = {one["message"] for one in before}
        return [one for one in found if one["message"] not in known]
    return found if len(found) > len(before) else []


def recall(good: list[dict], versions: list[dict]) -> dict[str, dict[str, list[str]]]:
    """{defect: {"found": ids of decks, "missed": ids}}."""
    originals = {record["id"]: record for record in good}
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: {"found": [], "missed": []})
    for record in versions:
        found[record["planted"]]["found" if new(record, originals) else "missed"].append(
            record["of"]
        )
    return found


def alarms(
    records: list[dict],
) -> tuple[dict[str, list[tuple[str, int | None, str]]], int, Counter]:
    """({check: findings}, slides, {asked check: things asked}) of good decks. Slides that fail or were changed are left
    out, and one that its author shows in several talks counts once."""
    found: dict[str, list[tuple[str, int | None, str]]] = defaultdict(list)
    things: Counter = Counter()
    shown = set()
    slides = 0
    for record in records:
        left_out = {error.get("slide") for error in record["render"].get("errors") or []}
        left_out.update(record.get("changed") or [])
        for page in record["render"]["xray"]:
            key = (
                record["id"].rpartition("-")[0] if "from" in record else record["id"],
                page["text"],
            )
            if page["slide"] not in left_out and len(page["text"]) > 20 and key in shown:
                left_out.add(page["slide"])
            shown.add(key)
        slides += len({page["slide"] for page in record["render"]["xray"]} - left_out)
        things.update(one["check"] for one in record["judge"]["asked"])
        seen = set()
        for one in record["judge"]["findings"]:
            key = one["check"], one["slide"]
            if one["slide"] not in left_out and (one["slide"] is None or key not in seen):
                seen.add(key)
                found[one["check"]].append((record["id"], one["slide"], one["message"]))
    return found, slides, things


def rate(wrong: int, of: int) -> str:
    return f"{wrong} of {of} ({100 * wrong / of:.1f} %)" if of else "-"


def page(good: list[dict], versions: list[dict], real: list[dict]) -> str:
    """The part of the page as markdown."""
    mine, slides, things = alarms(good)
    theirs = {mark: alarms([r for r in real if half(r["id"]) == mark]) for mark in MARK}
    lines = ["# Defects found, and false alarms", ""]
    lines += [
        f"{len(versions)} versions of {len({r['of'] for r in versions})} decks with one defect each; {len(good)} good decks of ours "
        f"({slides} slides), {len(real)} public talks ({sum(theirs[mark][1] for mark in MARK)} slides that could be shown as their "
        "authors made them, each counted once). Half of all decks, by the hash of the id, was looked at while limits were set.",
        "",
        "| check | found, seen half | found, unseen half | wrong on ours | wrong on talks, seen half | unseen half |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, of in recall(good, versions).items():
        cells = []
        for mark in MARK:
            yes, no = (sum(half(ident) == mark for ident in of[key]) for key in ("found", "missed"))
            cells.append(f"{yes} of {yes + no}")
        check = CLASS.get(name, name)
        cells.append(rate(len(mine[check]), things[name] or slides))
        for mark in MARK:
            found, n, _ = theirs[mark]
            cells.append("-" if name in ASKED else rate(len(found[check]), n))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    shares = sorted(r["judge"]["checks"]["passed"] / r["judge"]["checks"]["of"] for r in good)
    lines += [
        "",
        f"Our good decks pass {100 * shares[len(shares) // 2]:.0f} % of their checks in the median, "
        f"{100 * shares[0]:.0f} % at the least.",
    ]
    return "\n".join(lines) + "\n"


@dataclass
class Planted:
    """A slide with a planted defect, and what its check says of it."""

    check: str
    message: str
    picture: Image.Image  # the finding's box in red
    source: str  # the deck without the defect, a path in the checkout


# Of few decks, those that have a place for each defect.
FEW = 12


async def pictures_of(run: Path) -> list[Planted]:
    """A slide with a defect of each check that is about a slide."""
    gold = [record for record in ours() if (ROOT / "data/gold" / record["id"]).is_dir()][:FEW]
    good = await judged(run, [prepared(run, record) for record in gold])
    originals = {record["id"]: record for record in good}
    found: dict[str, Planted] = {}
    for record in await judged(run, versions(run, good, 2)):
        places = {int(Path(path).stem): run / path for path in record["render"]["slides"]}
        shown = [one for one in reversed(new(record, originals)) if one["slide"] in places]
        if shown and record["planted"] not in found:
            picture = framed(places[shown[0]["slide"]], shown[0]["box"])
            source = f"data/gold/{record['of']}/deck.md"
            kept = Planted(record["planted"], shown[0]["message"], picture, source)
            found[record["planted"]] = kept
    return list(found.values())


def framed(path: Path, box: list[int] | None) -> Image.Image:
    """A slide's picture with a finding's box."""
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    if box:
        x, y, width, height = box
        right, bottom = picture.width - 1, picture.height - 1
        ends = [max(0, x), max(0, y), min(right, x + width), min(bottom, y + height)]
        if ends[2] > ends[0] and ends[3] > ends[1]:
            ImageDraw.Draw(picture).rectangle(ends, outline="red", width=4)
    return picture


async def main(run: Path, real: Path | None, listing: bool) -> None:
    good = await judged(run, [prepared(run, r) for r in ours()])
    planted_ones = await judged(run, versions(run, good))
    public = []
    if real and (real / "rendered.jsonl").is_file():
        for line in (real / "rendered.jsonl").read_text().splitlines():
            record = {"asks": {}, "checklist": [], "messages": [], **json.loads(line)}
            if len((record.get("render") or {}).get("slides") or []) >= 3:
                public.append(record)
        public = await judged(real, public)
    if listing:
        for name, of in recall(good, planted_ones).items():
            print(name, len(of["found"]), "missed", of["missed"])
        for title, records in (("ours", good), ("public", public)):
            for name, found in alarms(records)[0].items():
                print(title, name, len(found), found[:8])
        return
    print(page(good, planted_ones, public), end="")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--list", action="store_true", help="what was missed, and what was wrong")
    given = parser.parse_args()
    asyncio.run(main(given.run, given.real, given.list))
