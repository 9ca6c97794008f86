"""A deck goes back to its model: what is better is kept, what is no deck changes nothing, and a kill costs nothing twice."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/make"))
from shadow import core, endpoint, environment, make  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.slow]
ENTRY = '[{name}]\nbase_url = "{url}"\nslug = "{name}"\njobs = 1\nprice = {{ prompt = 1, completion = 1 }}\n'
RENDERED = (
    "bin/chat-generate --model $M --condition revise --protocol offline --run $R < data/prompts.jsonl | \
bin/deck-parse --run $R | bin/deck-illustrate --run $R | bin/deck-render --run $R > $R.jsonl"
)
REVISED = "exec bin/deck-revise --model $M --condition revise --run $R < $R.jsonl"


def shell(root, model, command, **options):
    env = environment(root, M=model, R=model)
    return subprocess.Popen(["bash", "-o", "pipefail", "-c", command], cwd=root, env=env, **options)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("revise")
    server, url = endpoint(folder, "--log", "asked.jsonl", "--gains", "--latency", "0.5")
    entries = "".join(ENTRY.format(name=name, url=url) for name in ("reviser", "flat"))
    make(folder, core(2), entries)
    yield folder
    server.kill()


def asked(root):
    return len((root / "asked.jsonl").read_text().splitlines())


def test_a_better_deck_is_kept_and_a_kill_asks_for_nothing_twice(root):
    assert shell(root, "reviser", RENDERED).wait() == 0
    replies = root / "reviser/journal/revise-reply.jsonl"
    first = shell(root, "reviser", REVISED, stdout=subprocess.DEVNULL)
    while not (replies.exists() and replies.read_bytes().count(b"\n")):
        assert first.poll() is None
        time.sleep(0.02)
    os.kill(first.pid, 9)
    first.wait()
    done = shell(root, "reviser", REVISED, stdout=subprocess.PIPE)
    records = [json.loads(line) for line in done.communicate()[0].splitlines()]
    assert done.returncode == 0 and len(records) == 2
    lines = [json.loads(line) for line in replies.read_text().splitlines()]
    assert len({(line["id"], line["inputs"]) for line in lines}) == len(lines)
    for record in records:
        told = record["revise"]["rounds"][0]
        assert (
            told["kept"] and told["worth"][1] > told["worth"][0] and record["revise"]["kept"] == 1
        )
        assert told["spent"]["cost"] > 0
        assert record["deck"]["path"] == f"{record['id']}~r1/deck.md"
        assert (root / "reviser" / record["render"]["slides"][0]).is_file()
    before = asked(root)
    assert shell(root, "reviser", REVISED, stdout=subprocess.DEVNULL).wait() == 0
    assert asked(root) == before


@pytest.mark.long("test_a_better_deck_is_kept_and_a_kill_asks_for_nothing_twice")
def test_a_reply_that_changes_nothing_is_a_round_that_is_not_kept(root):
    assert shell(root, "flat", RENDERED).wait() == 0
    done = shell(root, "flat", REVISED, stdout=subprocess.PIPE)
    given = [json.loads(line) for line in (root / "flat.jsonl").read_text().splitlines()]
    for line, before in zip(done.communicate()[0].splitlines(), given, strict=True):
        record = json.loads(line)
        assert [told["why"] for told in record["revise"]["rounds"]] == [
            "the model's reply changes nothing"
        ] * 2
        assert record["revise"]["kept"] == 0
        assert record["render"] == before["render"] and record["deck"] == before["deck"]
