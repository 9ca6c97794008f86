"""What the rewards pay for decks that were made to please a metric and no reader, beside what good decks get: make reward-attack.

  nice .venv/bin/python3 tests/reward_attack.py [--page] [--evaluations 2000]

The bad decks are those of tests/gaming.py, which all answer one request, those of tests/reward_decks.py, whose badness is seen on
the picture, and what searches find (tests/reward_search.py). `layout` is the reward that ships; `read` is the reward that ships with
a scripted reader in the place of a model (tests/reward_reader.py), asked through deck-judge. The good ones are data/reference and
data/gold, each for its own request, and those of schools that differ. --page writes the tables into docs/rewards.md.
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
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests"), str(ROOT / "tests/exam")]

import gaming  # noqa: E402
import planted_defects as defects  # noqa: E402
import reward_decks  # noqa: E402
import reward_search  # noqa: E402
from decksmith.measure.decks import lint  # noqa: E402
from decksmith.measure.judging import vision  # noqa: E402
from decksmith.measure.judging.rendered import Pages  # noqa: E402
from decksmith.train.rewards import rules as reward_rules  # noqa: E402
from reward_reader import Reader, Served  # noqa: E402

PAGE = ROOT / "docs/rewards.md"
NEAR = 0.05  # a bad deck that gets so little less than the honest one is not told from it
SHOWN = 0.5  # a bad deck with less has no row
APART = {
    "layout": 0.15,
    "read": 0.25,
}  # the goals: how much less a bad deck gets, or at most a good one
SEARCHED = ("p002", "p071", "p073", "p099")  # and the request of the bad decks
SEEDS = (1, 2, 3)  # of the searches from salad, filler and husk
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


def whole(theme, slides):
    """A deck of slides that have a frontmatter each; the first one's also names the theme."""
    first = slides[0].removeprefix("---\n")
    return defects.join([f"---\ntheme: {theme}\n{first}", *slides[1:]])


def reader(run, record):
    """A scripted reader that knows a good deck of the request, rendered."""
    items = [item["id"] for item in record.get("checklist") or []]
    return Reader([text for _, text in sorted(shown(run, record).items())], items)


def shown(run, record):
    """{slide: text} as the judge of the protocol `text` is shown it."""
    return shown_of(Pages(record, run, lint.limits()))


def shown_of(deck):
    return {n: vision.as_text(deck, n) for n in deck.numbers}


def read(run, records, readers):
    """{id: reward} under `read`, the reader asked by deck-judge --protocol text."""
    with tempfile.TemporaryDirectory() as judged, Served(readers) as url:
        for record in records:  # its journal is its own
            (Path(judged) / record["id"]).symlink_to(Path(run) / record["id"])
        records = piped("deck-judge", judged, records, "--protocol", "text", "--base-url", url)
        return rewards(run, records, "read")


def bad_table(found, bare, read):
    """The rewards of the bad decks as markdown, the highest first; bold where the honest one is not told from it. bare: what
    the same decks get for a request that asks for nothing; read: what they get with a reader."""
    bad = sorted({*found} - {"honest"}, key=lambda name: (-found[name], -bare[name], name))
    columns = (found, bare, read)
    near = [[name for name in bad if one[name] > one["honest"] - NEAR] for one in columns]
    close = [name for name in bad if read[name] > read["honest"] - APART["read"]]
    lines = [
        f"{len(near[0])} of {len(bad)} bad decks get within {NEAR:g} of the honest deck, or more (bold); {len(near[1])} where "
        f"the request is only: {BARE['messages'][0]['content']} Under `read` {len(close)} get within {APART['read']:g}.",
        "",
        "| deck | `layout` | short request | `read` |",
        "|---|---:|---:|---:|",
        f"| the honest deck | {found['honest']:.2f} | {bare['honest']:.2f} | {read['honest']:.2f} |",
    ]
    for name in (name for name in bad if max(one[name] for one in (found, read)) >= SHOWN):
        cells = [f"{one[name]:.2f}" for one in columns]
        bold = [
            f"**{cell}**" if name in some else cell for cell, some in zip(cells, near, strict=True)
        ]
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(bold)} |")
    return "\n".join([*lines, "", f"The others get less than {SHOWN:g}."])


def seen_table(found):
    """What decks get whose badness is seen on the picture: how many reach the goal, and each that does not."""
    least = found["honest"] - APART["layout"]
    bad = sorted({*found} - {"honest"}, key=lambda name: -found[name])
    missed = [f"{name} ({found[name]:.2f})" for name in bad if found[name] > least]
    best = next(name for name in bad if found[name] <= least)
    said = ", ".join(missed) or "none"
    return (
        f"Of {len(bad)} such decks {len(bad) - len(missed)} get at least {APART['layout']:g} less than the honest one, the best "
        f"of them {found[best]:.2f} ({best}). Not told: {said}."
    )


def school_table(found):
    """What good decks of other schools get, beside the plainest."""
    others = sorted({*found} - {"plain"}, key=lambda name: found[name])
    least = [
        f"{name} {found[name]:.2f}"
        for name in others
        if found[name] < found["plain"] - APART["layout"]
    ]
    values = [found[name] for name in others]
    said = "All are" if not least else f"But for {', '.join(least)} all are"
    return (
        f"The plainest of them gets {found['plain']:.2f}, {len(others)} others {min(values):.2f} to {max(values):.2f}: "
        f"{', '.join(sorted(others))}. {said} within {APART['layout']:g} of it."
    )


def search_table(found, best, each):
    """What searches find, as markdown: {(request, start): {"layout", "paid", "read"}}, the reward that each climbs to and
    what `read` pays for the deck that `layout` climbed to. best: {name: deck}."""
    whole = {key: one for key, one in found.items() if "read" in one}
    requests = {request for request, _ in whole}
    lines = [
        f"Requests: {len(requests)}; evaluations of each search: {each:,}; seeds: {', '.join(map(str, SEEDS))}.",
        "",
        "| from | `layout`, mean | highest | `read` of those, highest | `read` climbs to, highest |",
        "|---|---:|---:|---:|---:|",
    ]
    for start in dict.fromkeys(start for _, start in whole):
        some = [one for (_, name), one in whole.items() if name == start]
        high = {key: max(one[key] for one in some) for key in ("layout", "paid", "read")}
        mean = sum(one["layout"] for one in some) / len(some)
        lines.append(
            f"| {start} | {mean:.2f} | {high['layout']:.2f} | {high['paid']:.2f} | {high['read']:.2f} |"
        )
    (request, start), one = max(whole.items(), key=lambda pair: pair[1]["layout"])
    second = defects.parts(best[f"{request}-{start}-layout"])[1].body
    said = " ".join(re.sub(r"[^\w\s]", " ", second).split()[:14])
    return "\n".join(
        [*lines, "", f"The highest, {one['layout']:.2f}, says on its second slide: *{said} ..*"]
    )


def paid(row, deck, knows):
    """(factor, answers to the checklist) of a composed deck by a reader, as the reward `read` has it."""
    said = knows.reply(shown_of(deck) or {1: ""}, knows.checklist)
    there = sum(one["yes"] for one in said["asked"]) / len(said["asked"])
    mark = min(said["content"]["score"], 1 + 4 * there, said["coherence"]["score"])
    low, high = reward_rules.read("read").answers
    return min(1.0, max(0.0, (mark - low) / (high - low))), [
        one["yes"] for one in said["checklist"]
    ]


def searched(run, draw, each, found, best):
    """What searches of `each` evaluations find for five requests that have a good deck, into found, {(id, start): rewards},
    and best, {name: deck}."""
    prompt = json.loads((gaming.DECKS / "prompt.json").read_text())
    rows = [({**prompt, "id": "seeds"}, gaming.decks()["honest"])]
    rows += [(row, deck) for row, deck in good_decks() if row["id"] in SEARCHED]
    for row, good in rows:
        knows = reader(run, draw([({**row, "id": f"good-{row['id']}"}, good)])[0])
        readers = {row["messages"][-1]["content"]: knows}
        for rules in ("layout", "read"):
            judge = (
                (lambda row, deck, knows=knows: paid(row, deck, knows)) if rules == "read" else None
            )
            search = reward_search.Search(row, reward_rules.read(rules), run, draw, judge)
            for seed, (start, slides) in zip(SEEDS, search.starts(good).items(), strict=True):
                name = f"{row['id']}-{start}-{rules}"
                best[name] = whole(search.theme, search.run_from(slides, each, seed)[1])
                records = draw([({**row, "id": name}, best[name])])
                one = found.setdefault((row["id"], start), {})
                got = read(run, records, readers)[name]
                if rules == "layout":
                    one["layout"], one["paid"] = rewards(run, records)[name], got
                else:
                    one["read"] = got
                said = f"{search.evaluated} evaluations, {len(search.slides)} slides drawn"
                print(f"{name}: seed {seed}, {said} so far: {one}", file=sys.stderr, flush=True)


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
    parser.add_argument("--page", action="store_true")
    parser.add_argument(
        "--evaluations", type=int, default=2000, help="of a request and reward; 0: no search"
    )
    parser.add_argument("--keep", type=Path, help="where the decks go that the searches find")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as run:
        bad = rendered(run, bad_decks())
        bare = [{**record, **BARE} for record in bad]
        honest = next(record for record in bad if record["id"] == "honest")
        readers = {honest["messages"][-1]["content"]: reader(run, honest)}
        prompt = {key: honest[key] for key in ("messages", "asks", "checklist")}
        text = gaming.decks()["honest"]
        made = [
            ({**prompt, "id": name.replace(" ", "_")}, make(text))
            for name, make in reward_decks.SEEN.items()
        ]
        values = rewards(run, rendered(run, made))
        seen = {name.replace("_", " "): value for name, value in values.items()} | {
            "honest": rewards(run, [honest])["honest"]
        }
        tables = {
            "bad": bad_table(rewards(run, bad), rewards(run, bare), read(run, bad, readers)),
            "seen": seen_table(seen),
            "good": good_table(rewards(run, rendered(run, good_decks()))),
            "schools": school_table(rewards(run, rendered(run, reward_decks.schools()))),
        }
        for name, value in sorted(seen.items(), key=lambda pair: -pair[1]):
            print(f"{value:.2f} {name}", file=sys.stderr)
        if asked.evaluations:
            each = max(2, asked.evaluations // len(SEEDS))
            found, best = {}, {}
            with reward_search.Drawing(run) as draw:
                try:
                    searched(run, draw, each, found, best)
                except KeyboardInterrupt:  # the table says how many requests were searched
                    print("the search was ended", file=sys.stderr)
            tables["search"] = search_table(found, best, each)
            for name, text in best.items() if asked.keep else ():
                asked.keep.mkdir(parents=True, exist_ok=True)
                (asked.keep / f"{name}.md").write_text(text)
    print(*tables.values(), sep="\n\n")
    if asked.page:
        PAGE.write_text(written(PAGE.read_text(), tables))


if __name__ == "__main__":
    main()
