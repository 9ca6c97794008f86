"""What the reward `layout` pays for decks that were made to please a metric and no reader, beside what good decks get.

  nice .venv/bin/python3 tests/reward_attack.py [--page]

The bad decks are those of tests/gaming.py, which all answer one request; the good ones are data/reference and data/gold, each
for its own request. --page writes the tables into docs/rewards.md.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests")]

import gaming  # noqa: E402

PAGE = ROOT / "docs/rewards.md"
NEAR = 0.05  # a bad deck that gets so little less than the honest one is not told from it
STAGES = ("deck-parse", "deck-illustrate", "deck-render", "deck-reward")
DRAFT = ("domain", "audience", "theme", "slides", "language", "features", "outline")


def bad_decks():
    """[(row, deck)]: the honest deck, then the bad ones, all for the same request."""
    prompt = json.loads((gaming.DECKS / "prompt.json").read_text())
    found = {name: text for name, text in gaming.decks().items() if not gaming.designed(name)}
    names = ["honest", *sorted({*found} - {"honest"})]
    return [({**prompt, "id": name}, found[name]) for name in names]


def good_decks():
    """[(row, deck)] of the decks that people wrote as well as they could."""
    found = []
    for line in (ROOT / "data/prompts.jsonl").read_text().splitlines():
        row = json.loads(line)
        path = ROOT / "data/reference" / f"{row['id']}.md"
        if path.is_file():
            kept = {key: row[key] for key in ("id", "messages", "asks", "checklist")}
            found.append((kept, path.read_text()))
    for folder in sorted((ROOT / "data/gold").glob("g*")):
        seed = json.loads((folder / "seed.json").read_text())
        asks = {key: seed[key] for key in DRAFT if seed.get(key)}
        request = {"role": "user", "content": (folder / "PROMPT.md").read_text()}
        row = {"id": folder.name, "messages": [request], "asks": asks}
        found.append((row, (folder / "deck.md").read_text()))
    return found


def rewards(run, decks):
    """{id: reward} of [(row, deck)] by `layout`, through the stages of the pipeline."""
    rows = "".join(json.dumps({**row, "gen": {"text": text}}) + "\n" for row, text in decks)
    for stage in STAGES:
        done = subprocess.run(
            [ROOT / "bin" / stage, "--run", run],
            input=rows,
            env={**os.environ, "DECKSMITH_PROTOCOL": "offline"},
            text=True,
            check=True,
            stdout=subprocess.PIPE,
        )
        rows = done.stdout
    found = map(json.loads, rows.splitlines())
    return {record["id"]: record["reward"]["reward"] for record in found}


def bad_table(found):
    """The rewards of the bad decks as markdown, the highest first; bold where the honest one is not told from it."""
    honest = found["honest"]
    bad = {name: value for name, value in found.items() if name != "honest"}
    near = [name for name, value in bad.items() if value > honest - NEAR]
    lines = [
        f"{len(near)} of {len(bad)} bad decks get within {NEAR:g} of the honest deck, or more (bold).",
        "",
        "| deck | reward |",
        "|---|---:|",
        f"| the honest deck | {honest:.2f} |",
    ]
    for name in sorted(bad, key=lambda name: (-bad[name], name)):
        shown = f"**{bad[name]:.2f}**" if name in near else f"{bad[name]:.2f}"
        lines.append(f"| {name.replace('_', ' ')} | {shown} |")
    return "\n".join(lines)


def good_table(found):
    """What the good decks get, as markdown."""
    values = sorted(found.values())
    cells = (sum(values) / len(values), values[0], values[-1])
    shown = " | ".join(f"{value:.2f}" for value in cells)
    return f"| good decks | mean | lowest | highest |\n|---:|---:|---:|---:|\n| {len(values)} | {shown} |"


def written(page, tables):
    """The page with its tables replaced: {name: markdown} between `<!-- name -->` and `<!-- /name -->`."""
    for name, text in tables.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        page = place.sub(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)
    return page


def main():
    with tempfile.TemporaryDirectory() as run:
        tables = {
            "bad": bad_table(rewards(run, bad_decks())),
            "good": good_table(rewards(run, good_decks())),
        }
    print(*tables.values(), sep="\n\n")
    if "--page" in sys.argv:
        PAGE.write_text(written(PAGE.read_text(), tables))


if __name__ == "__main__":
    main()
