"""Look for bad decks that the reward takes for good ones, and print what was found as a table.

  nice .venv/bin/python3 tests/reward_attack.py --run results/attack --decks 500 [--page]

Each kind of bad deck that people thought of (tests/adversaries.py), then a search: of the decks that it has made it changes
one of the best, renders that, and goes on. No gene of theirs answers a request, so that whatever comes near the good deck
shows what the reward cannot tell. The same seed goes the same way; what was rendered stands in a journal, and a run that was
killed goes on from there. --page writes the tables of docs/rewards.md. Exit 1: some bad deck is not MARGIN below the good one
for its request.
"""

import argparse
import asyncio
import random
import re
import sys
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests")]

import adversaries  # noqa: E402
from decksmith.core import stream  # noqa: E402
from decksmith.core.protocol import Protocol  # noqa: E402
from decksmith.measure.decks import clean, pictures  # noqa: E402
from decksmith.measure.render import pool  # noqa: E402
from decksmith.train.rewards.components import reward  # noqa: E402
from decksmith.train.rewards.rules import MEASURES, read  # noqa: E402

PAGE = ROOT / "docs/rewards.md"
MARGIN = 0.2
# Requests with and without a checklist and an outline, in three languages.
TARGETS = ("seeds", "p073", "p010", "g006-sourdough-jar", "g005-dunkler-himmel")
LOW = 0.75  # a good deck below this lost much to a gate
KNOWN = {"shuffled_lines"}  # only a reader can tell
FIRST, PICKED, CROSSED = 10, 4, 0.25  # genomes to begin with; of how many the parent is the best
SEED = 1


class Scorer:
    """Decks to rewards, through a renderer that stays warm and a journal that is kept."""

    def __init__(self, run, rules):
        self.run, self.rules = Path(run), rules
        self.pool = pool.Pool(rules.protocol, kept=pool.kept_folder())
        self.source = pictures.providers("drawn")
        self.journal = stream.Journal(self.run / "journal" / "reward.jsonl", "reward")

    async def close(self):
        await self.pool.close()
        self.journal.close()

    async def score(self, row, deck):
        """The value of `reward` for a deck's text; raises AssertionError where our own renderer fails."""
        inputs = stream.fingerprint([row, deck, self.rules.sha256, self.pool.engine])
        if found := self.journal.get(row["id"], inputs):
            return found
        record = {**row, "gen": {"text": deck}}
        record["deck"] = clean.parse(self.run, record)
        record["images"] = pictures.illustrate(self.run, record, self.source)
        record["render"] = await self.pool.render(self.run, record)
        value = reward(record, self.rules, self.run)
        assert not value["masked"], value["why"]
        self.journal.put(row["id"], inputs, value)
        return value


async def kinds(scorer, target, without=()):
    """{kind: reward} of the kinds that people thought of."""
    made = {k: deck for k, deck in adversaries.suite(target).items() if k not in without}
    return {kind: (await scorer.score(target.row, deck))["reward"] for kind, deck in made.items()}


async def search(scorer, target, decks, seed=SEED):
    """[(reward, genome)] of so many bad decks, in the order in which they were made."""
    chance, found = random.Random(f"{seed} {target.name}"), []
    while len(found) < decks:
        genome = _next(found, chance)
        deck = adversaries.built(target, genome)
        found.append(((await scorer.score(target.row, deck))["reward"], genome))
    return found


def _next(found, chance):
    """The genome to try after those that were: at first one of chance, then a change of one of the best."""
    if len(found) < FIRST:
        if len(found) % 5 == 4:
            return adversaries.Genome(ruin=(chance.choice(adversaries.RUINS),))
        drawn = {gene: chance.choice(values) for gene, values in adversaries.GENES.items()}
        return adversaries.Genome(seed=chance.randrange(1 << 30), **drawn)
    one, other = (max(chance.sample(found, PICKED), key=lambda row: row[0])[1] for _ in "12")
    if not one.ruin and not other.ruin and chance.random() < CROSSED:
        one = adversaries.crossed(one, other, chance)
    return adversaries.mutated(one, chance)


def described(genome):
    """The genes of a genome that matter, in words."""
    if genome.ruin:
        return "ruined: " + ", ".join(genome.ruin).replace("_", " ")
    genes = asdict(genome)
    return ", ".join(
        f"{name} {genes[name]}" for name in ("words", "shape", "near", "paired", "lines")
    )


async def attack(run, rules, names, decks):
    """(one row for each target: {target, good, kinds: {kind: reward}, found: [(reward, genome)]};
    {id: reward} of all the decks that people wrote)."""
    scorer, rows = Scorer(run, rules), []
    targets = adversaries.targets(names)
    try:
        good = {
            target.name: (await scorer.score(target.row, target.deck))["reward"]
            for target in adversaries.targets()
        }
        for target in targets:
            known = await kinds(scorer, target)
            rows.append({"target": target.name, "good": good[target.name], "kinds": known})
            _say(f"{target.name}: {len(rows[-1]['kinds'])} kinds", [{**rows[-1], "found": []}])
        for target, row in zip(targets, rows, strict=True):
            row["found"] = await search(scorer, target, decks // len(targets))
            _say(f"{target.name}: {len(row['found'])} decks", [{**row, "kinds": {}}])
    finally:
        await scorer.close()
    return rows, good


def _say(done, rows):
    print(
        "; ".join([done, *(f"{kind} has {value:.2f}" for _, kind, value in near(rows))]),
        file=sys.stderr,
    )


def near(rows):
    """What is not MARGIN below the good deck of its request: [(target, kind or genome, reward)]."""
    lost = []
    for row in rows:
        bad = [
            *row["kinds"].items(),
            *((described(genome), value) for value, genome in row["found"]),
        ]
        lost += [
            (row["target"], kind, value)
            for kind, value in bad
            if kind not in KNOWN and value > row["good"] - MARGIN
        ]
    return lost


def table(rows):
    """What was tried and found, as markdown."""
    lines = [
        "| request | good deck | kinds | best of them | searched | best found |",
        "|---" * 6 + "|",
    ]
    for row in rows:
        told = {kind: value for kind, value in row["kinds"].items() if kind not in KNOWN}
        kind = max(told, key=told.get)
        value, genome = max(row["found"], key=lambda found: found[0])
        lines.append(
            f"| {row['target']} | {row['good']:.2f} | {len(told)} | {told[kind]:.2f} {kind.replace('_', ' ')} "
            f"| {len(row['found'])} | {value:.2f} {described(genome)} |"
        )
    return "\n".join(lines)


def of_good(good):
    """What the good decks get, as markdown."""
    values = sorted(good.values())
    cells = (sum(values) / len(values), values[0], values[-1])
    shown = " | ".join(f"{value:.2f}" for value in cells)
    low = sum(value < LOW for value in values)
    lines = ["| good decks | mean | lowest | highest | lost much to a gate |", "|---:" * 5 + "|"]
    return "\n".join([*lines, f"| {len(values)} | {shown} | {low} |"])


def components(rules):
    """The components of a reward and the evaluation's measures in them, as markdown; in the page's
    own words and order."""
    lines = [
        "| component | weight | gate | what it is | offline measures |",
        "|---|---:|---:|---|---|",
    ]
    words = dict(re.findall(r"(?m)^\| `(\w+)` \|[^|]*\|[^|]*\| (.*?) \| .* \|$", PAGE.read_text()))
    for name in sorted(rules.used, key=[*words].index):
        weight, gate = rules.weights.get(name), rules.gates.get(name)
        shown = "" if weight is None else f"{weight:g}", "" if gate is None else f"{gate.least:g}"
        cells = (*shown, words[name], ", ".join(MEASURES[name]) or "none")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def unrewarded():
    """What evaluates and is no part of the reward, as markdown."""
    offline, rules = Protocol.load("offline"), read("rendered")
    return ", ".join(
        f"`{name}`" for name in sorted({*offline.measures} - {*rules.shared_with(offline)})
    )


def written(page, tables):
    """The page with its tables replaced: {name: markdown} between `<!-- name -->` and `<!-- /name -->`."""
    for name, text in tables.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        page = place.sub(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)
    return page


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--run", default=ROOT / "results/attack", type=Path)
    parser.add_argument("--rules", default="rendered")
    parser.add_argument("--decks", default=500, type=int)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("targets", nargs="*", default=TARGETS)
    asked = parser.parse_args()
    attacked = attack(asked.run, read(asked.rules), asked.targets, asked.decks)
    rows, good = asyncio.run(attacked)
    print(table(rows), of_good(good), sep="\n\n")
    if asked.page:
        tables = {
            "attack": table(rows),
            "good": of_good(good),
            "components": components(read("rendered")),
            "unrewarded": unrewarded(),
        }
        PAGE.write_text(written(PAGE.read_text(), tables))
    return 1 if near(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
