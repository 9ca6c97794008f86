"""make shard as an array of eight on a real Slurm: a node is lost for good in the middle. Its tasks go on where its processes
died, on the other node, and the merged run is the one made in one piece. The endpoint is a script that answers with our decks."""

import json
import shutil
import subprocess
import sys
from collections import Counter

import pytest
from cluster import ROOT, USER, _until
from decksmith.core import stream

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
WORDS = ("MODEL=scripted", "PROMPTS=asked.jsonl")
PARTS, ASKED = 8, 48
KEPT = ("gen", "deck", "render", "judge")
SCRIPTED = """
[scripted]
base_url = "{}"
slug = "model-1"
color = "#7a5cc2"
"""


@pytest.fixture(scope="module")
def site(slurm):
    place, decks = slurm.ready("array"), slurm.work / "decks"
    decks.mkdir()
    for path in ROOT.glob("data/reference/*.md"):
        shutil.copy(path, decks)
    words = [sys.executable, ROOT / "tests/endpoint.py", "--decks", decks]
    words += ["--log", slurm.work / "asked"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    with open(place / "assets/models.toml", "a") as registry:
        registry.write(SCRIPTED.format(server.stdout.readline().strip()))
    with open(place / "asked.jsonl", "w") as file:
        for number in range(ASKED):
            said = f"A deck of {5 + number % 4} slides about tide pool {number}."
            row = {"id": f"p{number}", "messages": [{"role": "user", "content": said}]}
            file.write(json.dumps(row) + "\n")
    yield place
    server.kill()
    server.wait()


def lines(path):
    found = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [line for line in found if line.endswith(b"\n")]


def ids(path):
    return [json.loads(line)["id"] for line in lines(path)]


def scored(run):
    """What two equal runs share: what was said, drawn, judged and scored, and not by whom or when."""
    found = {}
    for record in map(json.loads, lines(run)):
        judged = {key: value for key, value in record["score"].items() if key != "by"}
        found[record["id"]] = (record["gen"]["text"], record["render"].get("slides"), judged)
    return found


def test_of_eight_parts_on_two_nodes_those_of_a_lost_node_go_on_at_the_other(slurm, site):
    words = ["--array=1-8", "--cpus-per-task=16", "slurm/bench.sbatch", "make", "shard", *WORDS]
    submitted = slurm.run(["sbatch", "--parsable", *words], cwd=site, env={"SHARDS": f"{PARTS}"})
    job = submitted.stdout.strip()
    whole = Counter(stream.part(f"p{number}", PARTS) for number in range(ASKED))

    def journals(part):
        found = site.glob(f"results/runs/scripted/offline@*/shard-{part}-of-{PARTS}/journal")
        return {name: path / f"{name}.jsonl" for path in found for name in KEPT}

    def on_lost():
        told = slurm.run(["squeue", "--me", "--noheader", "--array", "--format=%K %N"]).stdout
        return [int(line.split()[0]) for line in told.splitlines() if line.endswith(" n2")]

    def drawing():
        return {n: [len(ids(path)) for path in journals(n).values()] for n in on_lost()}

    def in_the_middle():
        now = drawing()
        replied = len(now) == 4 and all(each[:1] == [whole[n]] for n, each in now.items())
        return replied and any(0 < each[2] < each[0] for each in now.values())

    _until(600, "four tasks have all replies, and n2 draws", in_the_middle, drawing)
    lost = on_lost()
    slurm.kill("n2")
    kept = {
        path: path.read_bytes().rpartition(b"\n")[0]
        for n in lost
        for path in journals(n).values()
        if path.exists()
    }

    def requeued():
        return all(slurm.show(f"{job}_{part}").get("Restarts") == "1" for part in lost)

    _until(300, "Slurm gives the node up", requeued, lambda: slurm.run(["squeue"]).stdout)
    for part in lost:
        slurm.hurry(f"{job}_{part}")
    for part in range(1, PARTS + 1):
        assert slurm.wait(f"{job}_{part}", 600) == ("COMPLETED", 0)
        assert slurm.show(f"{job}_{part}")["NodeList"] == "n1"
    for path, before in kept.items():  # what was paid for stayed, and nothing was done twice
        assert path.read_bytes().startswith(before) and len({*ids(path)}) == len(ids(path))
    asked = Counter(json.loads(line)["key"] for line in lines(slurm.work / "asked"))
    assert len(asked) == ASKED and {*asked.values()} == {1}

    slurm.run(["make", "merge", *WORDS], cwd=site)
    (run,) = site.glob("results/runs/scripted/offline@*/scores.jsonl")
    merged = scored(run)
    assert len(merged) == ASKED
    shutil.rmtree(site / "results/runs")
    slurm.run(["make", "shard", *WORDS], cwd=site)
    assert scored(run) == merged
    assert run.owner() == USER
