"""Simulated people vote over HTTP on a study whose truth is known, and vote-tally has to find it: `make vote-demo`.

  python tests/vote_demo.py [FOLDER]

The runs are drawn here, the rest is real: pair-build, vote-serve, its pages' requests, the owner closing the study, vote-tally. Twenty
people differ in taste, lean a little to the left, tie, and three of them are careless: they never look and click left. Prints what was
planted beside what was found; exit 1 when a vote was lost or doubled, a careless person counted, or an interval misses by its own width.
"""

import asyncio
import json
import math
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests/web")]

import synthetic  # noqa: E402
from decksmith.people.study import store  # noqa: E402

STRENGTH = {"ash": -0.6, "birch": -0.1, "cedar": 0.7}
BIAS, TIE, TASTE = (
    0.25,
    -0.9,
    0.25,
)  # log odds of the left side, log weight of a tie, sd of a person's and a prompt's own leaning
PEOPLE, CARELESS, PROMPTS, EACH = 20, 3, 24, 40


def choice(dice, lean):
    """left, right or tie by Davidson's model."""
    weights = [math.exp(lean / 2), math.exp(-lean / 2), math.exp(TIE)]
    return dice.choices(["left", "right", "tie"], weights)[0]


async def person(session, link, number, pairs, leaning):
    """One person's visit, as the page makes it; returns the votes that the server said are stored, {pair: choice}."""
    dice, stored = random.Random(f"person {number}"), {}
    taste = {model: dice.gauss(0, TASTE) for model in STRENGTH}
    async with session.get(f"{link}sheet") as answer:
        sheet = await answer.json()
    for pair in sheet["pairs"]:
        async with session.get(f"{link}p/{pair['left'][0]}") as answer:
            assert answer.status == 200 and (await answer.read())[:4] == b"RIFF"
        about = pairs[
            pair["id"]
        ]  # a person sees decks; this one's opinion of them is planted by their makers
        sides = [
            STRENGTH[about[side]["model"]]
            + taste[about[side]["model"]]
            + leaning[about["prompt"], about[side]["model"]]
            for side in ("left", "right")
        ]
        said = "left" if number < CARELESS else choice(dice, sides[0] - sides[1] + BIAS)
        if about["kind"] == "gold" and number >= CARELESS and dice.random() < 0.98:
            said = about["expect"]
        ballot = {
            "choice": said,
            "dimensions": {"design": said}
            if number >= CARELESS and dice.random() < 0.3 and said != "bad"
            else {},
            "tags": [],
            "seconds": round(1.1 if number < CARELESS else dice.gammavariate(4, 5), 1),
            "seen": True,
        }
        body = {"pair": pair["id"], "key": f"demo-{number}-{pair['id']}", "ballot": ballot}
        for _ in range(
            1 + (dice.random() < 0.1)
        ):  # some send it twice, as a page does whose answer got lost
            async with session.post(f"{link}vote", json=body) as answer:
                assert answer.status == 200, await answer.text()
        stored[pair["id"]] = said
    return stored


async def visit(url, owner, pairs):
    import aiohttp

    dice = random.Random("prompts")
    leaning = {
        (f"p{n + 1:03d}", model): dice.gauss(0, TASTE) for n in range(PROMPTS) for model in STRENGTH
    }
    async with aiohttp.ClientSession() as session:
        async with session.post(
            f"{owner}raters", json={"names": [f"Person {number}" for number in range(PEOPLE)]}
        ) as answer:
            links = [url + one["link"] for one in (await answer.json())["links"]]
        done = await asyncio.gather(
            *(person(session, link, number, pairs, leaning) for number, link in enumerate(links))
        )
        async with session.post(f"{owner}close", json={}) as answer:
            assert answer.status == 200
    return done


def main(folder):
    if folder.exists() and not (folder / "vote-demo").exists():
        sys.exit(f"vote_demo: {folder} is not of an earlier vote-demo; name another")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "vote-demo").touch()
    for model in STRENGTH:
        records = [
            synthetic.record(folder / "runs" / model, model, 1.0, index, slides_too="plain")
            for index in range(PROMPTS)
        ]
        for record in records:
            del record["render"]["slides"][3:]  # a deck of three slides is enough for nobody's eyes
        synthetic.write(folder / "runs" / model, records)
    study = folder / "study"
    runs = [folder / "runs" / model for model in STRENGTH]
    subprocess.run(
        [
            ROOT / "bin/pair-build",
            "--study",
            study,
            "--seed",
            "1",
            "--prompts",
            str(PROMPTS),
            "--per-rater",
            str(EACH),
            "--gold",
            "0.1",
            "--overlap",
            "6",
            "--title",
            "Rehearsal",
            *runs,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    server = subprocess.Popen([ROOT / "bin/vote-serve", "--study", study])
    try:
        while not (study / "server.json").exists():
            if server.poll() is not None:
                sys.exit("vote_demo: vote-serve ended before it listened")
            time.sleep(0.1)
        where, started = json.loads((study / "server.json").read_text()), time.monotonic()
        stored = asyncio.run(visit(where["url"], where["owner"], store.Study(study).pairs))
        took = time.monotonic() - started
    finally:
        server.terminate()
        server.wait()
    told = subprocess.run(
        [ROOT / "bin/vote-tally", "--study", study], check=True, stdout=subprocess.PIPE
    ).stdout
    return report(json.loads(told), store.Study(study), stored, took)


def report(found, study, stored, took):
    """Print planted beside found; 1 when something is wrong."""
    votes, names = list(study.votes()), {rater["id"]: rater["name"] for rater in study.raters()}
    acknowledged, there = (
        sorted(item for one in stored for item in one.items()),
        sorted((vote["pair"], vote["choice"]) for vote in votes),
    )
    careless = {f"Person {number}" for number in range(CARELESS)}
    out = {names[one["rater"]]: one["excluded"] for one in found["people"] if one["excluded"]}
    print(
        f"{PEOPLE} people, {CARELESS} of them careless, cast {len(votes)} votes over HTTP in {took:.0f} s; "
        f"{'none lost, none double' if acknowledged == there else f'NOT those that were acknowledged ({len(acknowledged)})'}."
    )
    print(
        f"The rule left out {len(careless & out.keys())} of the careless and {len(out.keys() - careless)} of the others"
        + (f", for instance: {next(iter(out.values()))}.\n" if out else ".\n")
    )
    rows = [
        (
            f"{pair['a']} and {pair['b']}, log odds",
            STRENGTH[pair["a"]] - STRENGTH[pair["b"]],
            pair["log_odds"],
        )
        for pair in found["strengths"]["pairs"]
    ]
    rows.append(("advantage of the left side", BIAS, found["strengths"]["bias"]))
    print("| | planted | found | 95 % interval | |\n|---|---:|---:|---:|---|")
    far = 0
    for name, truth, value in rows:
        inside = value["lo"] <= truth <= value["hi"]
        far += not 2 * value["lo"] - value["mean"] <= truth <= 2 * value["hi"] - value["mean"]
        print(
            f"| {name} | {truth:.2f} | {value['mean']:.2f} | [{value['lo']:.2f}, {value['hi']:.2f}] | {'inside' if inside else 'outside'} |"
        )
    print("\n" + "\n".join(f"- {pair['sentence']}" for pair in found["pairs"]))
    print(f"\nOne interval in twenty is to miss. Everything is in {study.folder}/tally.")
    return (
        1
        if acknowledged != there or careless - out.keys() or len(out.keys() - careless) > 2 or far
        else 0
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "results/blindtest/vote-demo"))
