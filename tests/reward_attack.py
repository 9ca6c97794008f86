"""What a reward that does not read (`layout`) pays for decks that were made to please a metric and no reader, beside what good decks get.

  nice .venv/bin/python3 tests/reward_attack.py [--rules NAME] [--page]

The bad decks are those of tests/gaming.py, which all answer one request; the good ones are data/reference and data/gold, each
for its own request. --page writes the tables into docs/rewards.md.
"""

import argparse
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
STAGES = ("deck-parse", "deck-illustrate", "deck-render")
# A request that asks for nothing that can be matched, in place of the long one.
BARE = {
    "messages": [{"role": "user", "content": "A talk on starting a seed library."}],
    "asks": {},
    "checklist": [],
}
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


def rendered(run, decks):
    """[(row, deck)] as records that deck-render is done with."""
    records = [{**row, "gen": {"text": text}} for row, text in decks]
    for stage in STAGES:
        records = piped(stage, run, records)
    return records


def rewards(run, records, rules="layout"):
    """{id: reward} of rendered records."""
    found = piped("deck-reward", run, records, "--rules", rules)
    return {record["id"]: record["reward"]["reward"] for record in found}


def piped(stage, run, records, *flags):
    """Records through one stage of the pipeline."""
    done = subprocess.run(
        [ROOT / "bin" / stage, "--run", run, *flags],
        input="".join(json.dumps(record) + "\n" for record in records),
        env={**os.environ, "DECKSMITH_PROTOCOL": "offline"},
        text=True,
        check=True,
        stdout=subprocess.PIPE,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def bad_table(found, bare):
    """The rewards of the bad decks as markdown, the highest first; bold where the honest one is not told from it. bare: what
    the same decks get for a request that asks for nothing."""
    bad = sorted({*found} - {"honest"}, key=lambda name: (-found[name], -bare[name], name))
    near = [[name for name in bad if one[name] > one["honest"] - NEAR] for one in (found, bare)]
    lines = [
        f"{len(near[0])} of {len(bad)} bad decks get within {NEAR:g} of the honest deck, or more (bold); {len(near[1])} where "
        f"the request is only: {BARE['messages'][0]['content']}",
        "",
        "| deck | reward | short request |",
        "|---|---:|---:|",
        f"| the honest deck | {found['honest']:.2f} | {bare['honest']:.2f} |",
    ]
    for name in bad:
        cells = [f"{found[name]:.2f}", f"{bare[name]:.2f}"]
        for column in (0, 1):
            if name in near[column]:
                cells[column] = f"**{cells[column]}**"
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", default="layout")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as run:
        bad = rendered(run, bad_decks())
        bare = [{**record, **BARE} for record in bad]
        tables = {
            "bad": bad_table(rewards(run, bad, asked.rules), rewards(run, bare, asked.rules)),
            "good": good_table(rewards(run, rendered(run, good_decks()), asked.rules)),
        }
    print(*tables.values(), sep="\n\n")
    if asked.page:
        PAGE.write_text(written(PAGE.read_text(), tables))


if __name__ == "__main__":
    main()
