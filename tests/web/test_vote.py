"""The pages of a blind study in the pinned Chromium, against the real server: tests/web/vote.mjs does the looking, this file makes the study.

`python tests/web/test_vote.py docs/vote.png` takes its picture: a deck of data/gold as it was written, beside itself in another theme.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import waits
from decksmith.core import cli
from decksmith.people.study import pairs, store

sys.path.insert(0, str(Path(__file__).parent))
import ballots  # noqa: E402

pytestmark = pytest.mark.browser

TESTS = Path(os.environ.get("PLAYWRIGHT") or cli.ROOT / "tests")
NODE = cli.ROOT / ".venv" / "bin" / "node"


def voted(tmp_path, mode, count):
    """Drive the pages of a study of eight pairs; so many votes are then stored."""
    for needed in (
        TESTS / "node_modules" / "playwright-core",
        cli.ROOT / "assets" / "renderer" / "node_modules",
    ):
        assert needed.exists(), f"{needed} is missing: make setup"
    names = ["openly-named-model", "another-secret-model"]
    runs = [
        ballots.run(tmp_path / name, prompts=6, slides=slides, failed=failed)
        for name, slides, failed in ((names[0], 2, ()), (names[1], 3, (5,)))
    ]
    study = tmp_path / "study"
    study.mkdir()
    (study / "secret").write_bytes(
        b"the same queues in every run 004"
    )  # the browser's steps know who sees what first
    assert pairs.build(study, runs, seed=5, failed=True)["pairs"] == {
        "vote": 6,
        "repeat": 1,
        "gold": 1,
    }
    done = subprocess.run(
        [NODE, Path(__file__).with_name("vote.mjs"), mode, study],
        capture_output=True,
        text=True,
        timeout=waits.HANG,
        env={**os.environ, "IDENTITIES": ",".join(names)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == {"votes": count, "raters": 3, "trouble": []}
    opened = store.Study(study)
    votes = list(opened.votes())
    assert len(votes) == len({(vote["rater"], vote["pair"]) for vote in votes}) == count
    assert all(vote["seen"] and vote["seconds"] > 0 for vote in votes)
    opened.close_file()


def test_a_queue_is_voted_on_by_keyboard_and_phone_through_a_reload_a_killed_server_and_hostile_texts(
    tmp_path,
):
    voted(tmp_path, "check", 11)


@pytest.mark.long(
    "test_a_queue_is_voted_on_by_keyboard_and_phone_through_a_reload_a_killed_server_and_hostile_texts"
)
def test_two_windows_of_one_person_agree_and_every_page_can_be_used_by_everybody(tmp_path):
    voted(tmp_path, "whole", 13)


def picture(place, out):
    """Make and render a study of one request, and write what a person sees of it."""
    gold = next((cli.ROOT / "data/gold").glob("g003-*"))
    text, request, runs = (
        (gold / "deck.md").read_text(),
        (gold / "PROMPT.md").read_text().strip(),
        [],
    )
    for name, theme in (("written", "apple-basic"), ("restyled", "default")):
        run = place / name
        run.mkdir()
        records = json.dumps(
            {
                "id": "g003",
                "messages": [{"role": "user", "content": request}],
                "gen": {"text": text.replace("theme: apple-basic", f"theme: {theme}", 1)},
            }
        ).encode()
        for script in ("deck-parse", "deck-illustrate", "deck-render"):
            records = subprocess.run(
                [cli.ROOT / "bin" / script, "--run", run],
                input=records,
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
        (run / "scores.jsonl").write_bytes(records)
        runs.append(run)
    pairs.build(place / "study", runs, seed=3, repeats=0, gold=0)
    subprocess.run(
        [NODE, Path(__file__).with_name("vote.mjs"), "screenshot", place / "study", out], check=True
    )
    ballots.smaller(out)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        picture(Path(folder), Path(sys.argv[1]))
