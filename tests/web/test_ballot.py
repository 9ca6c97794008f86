"""A ballot from disk in the pinned Chromium: tests/web/ballot.mjs votes, this file makes the ballot and takes what comes back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.study import ballots, pairs, people, store, tally

sys.path.insert(0, str(Path(__file__).parent))
import ballots as drawn  # noqa: E402

pytestmark = pytest.mark.browser

TESTS = Path(os.environ.get("PLAYWRIGHT") or cli.ROOT / "tests")
NODE = cli.ROOT / ".venv" / "bin" / "node"


def test_a_ballot_is_voted_on_from_disk_through_a_reload_asks_the_network_for_nothing_and_its_answers_are_tallied(
    tmp_path, monkeypatch
):
    for needed in (
        TESTS / "node_modules" / "playwright-core",
        cli.ROOT / "assets" / "renderer" / "node_modules",
    ):
        assert needed.exists(), f"{needed} is missing: make setup"
    runs = [drawn.run(tmp_path / name, prompts=7, slides=2) for name in ("one", "two")]
    pairs.build(tmp_path / "study", runs, seed=5, prompts=7, gold=0, repeats=0.15)
    study = store.Study(tmp_path / "study")
    made = ballots.export(study, "Zoë <b>&amp;", tmp_path / "out")
    done = subprocess.run(
        [NODE, Path(__file__).with_name("ballot.mjs"), made["path"], tmp_path / "saved"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found, half = json.loads(done.stdout), made["pairs"] // 2
    assert found == {
        "all": made["pairs"],
        "half": half,
        "early": f"1 of {made['pairs']}",
        "after": f"{half + 1} of {made['pairs']}",
        "kept": "Not kept by this browser",
        "chosen": ("lrtb" * 9)[:half] + ("lrtb" * 9)[half : made["pairs"]],
        "file": f"answers-zoe-b-amp-{made['rater']}.json",
        "trouble": [],
    }

    saved = tmp_path / "saved"
    (saved / "changed.json").write_text(
        (saved / "answers.json")
        .read_text()
        .replace("right", "left ", 1)
        .replace("left ", "left", 1)
    )
    assert "signature does not fit" in ballots.merge(study, saved / "changed.json")["why"]
    assert ballots.merge(study, saved / "kept-nowhere.json")["why"].startswith(
        f"{made['pairs'] - 1} of {made['pairs']} pairs have no answer yet"
    )
    first = ballots.merge(study, saved / "half.json", unfinished=True)
    rest = ballots.merge(study, saved / "answers.json")
    assert (first["is"], first["votes"], rest["is"], rest["votes"], rest["same"]) == (
        "stored",
        half,
        "stored",
        made["pairs"] - half,
        half,
    )
    votes = list(study.votes())
    words = {"l": "left", "r": "right", "t": "tie", "b": "bad"}
    assert [vote["choice"] for vote in votes] == [words[key] for key in found["chosen"]]
    assert all(vote["seconds"] > 0 and vote["source"] == "ballot" for vote in votes)
    study.close()
    monkeypatch.setitem(
        people.RULE, "seconds", 0
    )  # this person looks at a slide for a third of a second
    counted, _ = tally.of_study(study)
    assert counted["votes"]["all"] == made["pairs"] and counted["study"]["closed"]
