"""The card of the checks, docs/judge-card.md: how many planted defects each check finds, and on how many slides of good decks it
is wrong.

  .venv/bin/python3 tests/exam/checks_card.py --run RUN [--real RUN2] > docs/judge-card.md      (make judge-card)

Recall: one defect at a time is put into decks that people wrote (data/gold); found is one that brings a finding of its check that
the deck had not. False alarms: findings on decks that people wrote for the request (data/gold, data/reference), on decks in six
scripts (tests/fixtures/scripts), and on the public talks of `make real-decks`. Half of all decks, by the hash of the id, were looked at
while limits were set; the other half was not.
"""

import argparse
import asyncio
import hashlib
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "lib"), str(Path(__file__).parent)]

from decksmith.core import stream  # noqa: E402
from decksmith.core.protocol import Protocol  # noqa: E402
from decksmith.measure.decks import clean, pictures  # noqa: E402
from decksmith.measure.judging import checks, judges  # noqa: E402
from decksmith.measure.render import pool  # noqa: E402
from planted_defects import CHECKS, Case  # noqa: E402

OFFLINE = Protocol.load("offline")
PLANTED = 24  # gold decks that defects are put into, beside those with a checklist
MARK = "unseen", "seen"


def half(ident: str) -> str:
    """Whether a deck was looked at while limits were set."""
    return MARK[hashlib.sha256(ident.encode()).digest()[0] % 2]


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
    record["images"] = pictures.illustrate(run, record, pictures.providers("drawn"))
    return record


async def judged(run: Path, records: list[dict]) -> list[dict]:
    """The records, rendered and judged by the offline protocol; each is kept."""
    drawer = pool.Pool(OFFLINE, jobs=2, kept=pool.kept_folder())
    judge = judges.open_judge(OFFLINE, run)
    limit = asyncio.Semaphore(2)

    async def one(record: dict) -> dict:
        async with limit:
            if "render" not in record:
                record["render"] = await drawer.render(run, record)
            if not stream.fault(record):
                said = judge.work(record)
                record["judge"] = await said if asyncio.iscoroutine(said) else said
            return record

    try:
        return list(await asyncio.gather(*map(one, records)))
    finally:
        await drawer.close()
        if judge.close:
            await judge.close()


def versions(run: Path, good: list[dict]) -> list[dict]:
    """Each defect in each of the decks that have a place for it, as records with `planted`."""
    found = []
    gold = sorted((r for r in good if r["id"][0] == "g"), key=lambda r: stream.shuffled(r["id"]))
    for record in [*gold[:PLANTED], *(r for r in good if r["checklist"])]:
        text = clean.illustrated(run, record)[1]
        images = sorted((run / record["id"] / "images").glob("*"))
        for name, make in CHECKS.items():
            made = make(Case(record, text, name))
            if not made:
                continue
            changed, asks = made if isinstance(made, tuple) else (made, {})
            ident = f"planted/{record['id']}/{name}"
            stream.write(run / ident / "deck.md", changed)
            for picture in images:
                stream.write(run / ident / "images" / picture.name, picture.read_bytes())
            deck = {**record["deck"], "path": f"{ident}/deck.md"}
            deck["sha256"] = hashlib.sha256(changed.encode()).hexdigest()
            version = {key: record[key] for key in ("messages", "asks", "checklist")}
            version["asks"] = {**version["asks"], **asks}
            found.append(
                {**version, "id": ident, "of": record["id"], "planted": name, "deck": deck}
            )
    return found


def count(record: dict) -> Counter:
    """How many findings of each check a judged deck has."""
    return Counter(one["check"] for one in record["judge"]["findings"])


def recall(good: list[dict], planted: list[dict]) -> dict[str, dict[str, list[str]]]:
    """{check: {"found": ids, "missed": ids}} of the planted defects; one that does not render is left out."""
    originals = {record["id"]: record for record in good}
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: {"found": [], "missed": []})
    for record in planted:
        if "judge" in record:
            name = record["planted"]
            more = (
                count(record)[CLASS.get(name, name)]
                > count(originals[record["of"]])[CLASS.get(name, name)]
            )
            found[name]["found" if more else "missed"].append(record["of"])
    return found


CLASS = {"error": "katex"}  # what a planted defect is called where it is an error of the renderer
ASKED = (*checks.ASKED_CHECKS, "slides", "language", "echo", "bare")


def alarms(
    records: list[dict],
) -> tuple[dict[str, list[tuple[str, int | None, str]]], int, Counter]:
    """({check: findings}, slides, {asked check: things asked}) of good decks; slides that fail or were changed are left out."""
    found: dict[str, list[tuple[str, int | None, str]]] = defaultdict(list)
    slides, things = 0, Counter()
    for record in records:
        broken = {error.get("slide") for error in record["render"].get("errors") or []}
        broken.update(record.get("changed") or [])
        slides += len({page["slide"] for page in record["render"]["xray"]} - broken)
        things.update(one["check"] for one in record["judge"]["asked"])
        seen = set()
        for one in record["judge"]["findings"]:
            key = one["check"], one["slide"]
            if one["slide"] not in broken and (one["slide"] is None or key not in seen):
                seen.add(key)
                found[one["check"]].append((record["id"], one["slide"], one["message"]))
    return found, slides, things


def rate(wrong: int, of: int) -> str:
    return f"{100 * wrong / of:.1f} %" if of else "-"


def page(good: list[dict], planted: list[dict], real: list[dict]) -> str:
    """The card as markdown."""
    lines = ["# Card of the checks", ""]
    lines += [(__doc__ or "").split("\n\n", 2)[2].replace("\n", " ").strip(), ""]
    lines += [f"Planted: {len(planted)} versions of {len({r['of'] for r in planted})} decks. Good decks: {len(good)} of ours, "
              f"{len(real)} public talks that render. `make judge-card` writes this page.", ""]  # fmt: skip
    lines += [
        "| check | planted | found, seen half | found, unseen half | wrong on ours | wrong on public talks, seen | unseen |"
    ]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    hits = recall(good, planted)
    mine, slides, things = alarms(good)
    theirs = {mark: alarms([r for r in real if half(r["id"]) == mark]) for mark in MARK}
    for name in CHECKS:
        of = hits[name]
        cells = [str(len(of["found"]) + len(of["missed"]))]
        for mark in ("seen", "unseen"):
            yes, no = (sum(half(ident) == mark for ident in of[key]) for key in ("found", "missed"))
            cells.append(f"{yes} of {yes + no}")
        real_name = CLASS.get(name, name)
        cells.append(rate(len(mine[real_name]), things[name] or slides))
        for mark in ("seen", "unseen"):
            found, n, _ = theirs[mark]
            cells.append("-" if name in ASKED else rate(len(found[real_name]), n))
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    shown = sum(theirs[mark][1] for mark in MARK)
    lines += ["", f"Wrong: per slide ({slides} of ours, {shown} of public talks), or per thing that was asked for. Checks of what was "
              "asked for are asked of our decks alone; on public talks nobody asked for anything. What looks like a false alarm is "
              "counted as one, also where the talk does have the fault.", ""]  # fmt: skip
    passed = sorted(r["judge"]["checks"]["passed"] / r["judge"]["checks"]["of"] for r in good)
    lines += [f"Our good decks pass {100 * passed[len(passed) // 2]:.0f} % of their checks in the median, {100 * passed[0]:.0f} % at "
              "the least."]  # fmt: skip
    return "\n".join(lines) + "\n"


async def main(run: Path, real: Path | None, listing: bool) -> None:
    good = [r for r in await judged(run, [prepared(run, r) for r in ours()]) if "judge" in r]
    planted = await judged(run, versions(run, good))
    public = []
    if real and (real / "rendered.jsonl").is_file():
        for line in (real / "rendered.jsonl").read_text().splitlines():
            record = {"asks": {}, "checklist": [], "messages": [], **json.loads(line)}
            if len((record.get("render") or {}).get("slides") or []) >= 3:
                public.append(record)
        public = [r for r in await judged(real, public) if "judge" in r]
    if listing:
        for name, of in recall(good, planted).items():
            print(name, "missed", of["missed"])
        for title, records in (("ours", good), ("public", public)):
            for name, found in alarms(records)[0].items():
                print(title, name, len(found), found[:8])
        return
    print(page(good, planted, public), end="")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--list", action="store_true", help="what was missed, and what was wrong")
    given = parser.parse_args()
    asyncio.run(main(given.run, given.real, given.list))
