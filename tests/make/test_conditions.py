"""Scripted models with planted gains: each gain is found under its condition, and no other.

CI runs one model and two conditions; `make conditions-check` runs all (GAINS=all).
"""

import json
import os
import subprocess

import pytest
from shadow import core, endpoint, environment, make

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PLANTED = {"sheet": "cheatsheet", "sampler": "best-of-4", "reviser": "revise", "flat": None}
EVERY = os.environ.get("GAINS") == "all"
MODELS = [*PLANTED] if EVERY else ["reviser"]
CONDITIONS = ["plain", "cheatsheet", "best-of-4", "revise"] if EVERY else ["plain", "revise"]
ENTRY = '[{name}]\nlabel = "{name}"\nbase_url = "{url}"\nslug = "{name}"\njobs = 4\nprice = {{ prompt = 1, completion = 1 }}\n'


def baseline(root, *arguments):
    command = ["make", "baseline", f"MODEL={' '.join(MODELS)}", "YES=1", *arguments]
    return subprocess.run(
        command, cwd=root, env=environment(root, YES="1"), capture_output=True, text=True
    )


def asked(root):
    lines = (root / "asked.jsonl").read_text().splitlines()
    return [json.loads(line)["key"] for line in lines]


@pytest.mark.timeout(1500)
@pytest.mark.long(
    "tests/make/test_baseline.py::test_the_embedded_model_needs_no_key_and_no_network_and_is_asked_once"
)
def test_each_planted_gain_is_found_and_no_other_and_nothing_is_asked_twice(tmp_path):
    server, url = endpoint(tmp_path, "--log", "asked.jsonl", "--gains")
    try:
        root = make(
            tmp_path,
            core(24 if EVERY else 10),
            "".join(ENTRY.format(name=m, url=url) for m in MODELS),
        )
        done = baseline(root, f"CONDITION={' '.join(CONDITIONS)}")
        assert done.returncode == 0, done.stdout + done.stderr
        before, run = asked(root), f"results/runs/{MODELS[0]}+{CONDITIONS[-1]}/offline"
        again = f"bin/chat-generate --model {MODELS[0]} --condition {CONDITIONS[-1]} --protocol offline --run {run}"
        with open(root / run / "prompts.jsonl") as prompts:
            subprocess.run(
                again.split(), cwd=root, env=environment(root), stdin=prompts, check=True
            )
        assert asked(root) == before
    finally:
        server.kill()
    runs = [str(path.parent) for path in sorted(root.glob("results/runs/*/*/summary.json"))]
    assert len(runs) == len(MODELS) * len(CONDITIONS)
    for model in MODELS:
        own = [path for path in runs if path.split("/")[-2].partition("+")[0] == model]
        compared = json.loads(
            subprocess.run(
                [root / "bin/run-compare", "--json", *own],
                env=environment(root),
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        found = {
            (pair["a"], pair["b"]): pair for pair in compared["pairs"] if pair["clause"] == "better"
        }
        for condition in CONDITIONS[1:]:
            pair = found[model, f"{model} + {condition}"]
            planted = PLANTED[model] == condition
            assert (pair["verdict"] == "beats") == planted, pair["sentence"]
            if planted:
                higher = f"Where both render, {model} + {condition} passes"
                assert pair["sentence"].startswith(higher), pair["sentence"]
            said = next(one for one in compared["headlines"] if f"{model} + {condition}" in one)
            if condition != "revise" or planted:
                assert "times as much (USD)" in said
        assert compared["costs"]["unit"] == "usd"
    told = root / run / "condition.json"
    told.write_text(told.read_text().replace('"rounds": 2', '"rounds": 3'))
    done = subprocess.run(
        [root / "bin/run-compare", *runs], env=environment(root), capture_output=True, text=True
    )
    assert done.returncode == 65 and "condition.json gives" in done.stderr
