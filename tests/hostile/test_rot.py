"""Bits that flip on a disk: what they change is said, and no result changes in silence."""

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
import synthetic
from decksmith.bench.evalserver import jobs
from decksmith.core import cli, stream
from decksmith.measure.decks import pictures
from decksmith.measure.judging import scoring
from decksmith.measure.results import claims, runs, verify
from decksmith.people.demo import ask, studio
from decksmith.train.rewards import reward_queue
from shadow import ROOT, core, endpoint, environment, make

pytestmark = pytest.mark.slow

sys.path.insert(0, str(cli.ROOT / "make"))
import run_table  # noqa: E402

# Eleven seconds each: FLIPS=100 make test TESTS=tests/hostile/test_rot.py, and thirty in `make fuzz`.
FLIPS = int(os.environ.get("FLIPS") or (30 if "DECKSMITH_FUZZ" in os.environ else 3))


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def bits(path):
    return 8 * path.stat().st_size


@pytest.mark.parametrize("free", [False, True])
def test_flipped_bits_of_a_journal_are_noticed_or_change_nothing(tmp_path, monkeypatch, free):
    said, path = [], tmp_path / f"journal/{'render' if free else 'gen'}.jsonl"
    monkeypatch.setattr(cli, "say", said.append)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # hundreds of openings
    journal = stream.Journal(path, "gen")
    values = {f"p{n}": (stream.fingerprint(n), {"text": f"# {n} é"}) for n in range(3)}
    for ident, (inputs, value) in values.items():
        journal.put(ident, inputs, value)
    journal.close()
    whole, silent, noticed = path.read_bytes(), [], 0
    tried = random.Random(free).sample(range(bits(path) - 256), 400)
    for bit in [
        *tried,
        *range(bits(path) - 256, bits(path)),
    ]:  # all of the last checksum and line end
        path.write_bytes(whole)
        flip(path, bit)
        said.clear()
        try:
            journal = stream.Journal(path, "gen")
        except cli.BadData as refusal:
            said.append(str(refusal))
            assert not free and path.read_bytes() != whole
            read = values
        else:
            read = {
                ident: (inputs, journal.get(ident, inputs)) for ident, (inputs, _) in values.items()
            }
            journal.close()
        noticed += bool(said)
        assert all(f"{path}: damaged on its disk: line" in line for line in said)
        if read != values and not said:
            silent.append(bit)
    assert silent == [] and noticed > 500


def test_a_damaged_reply_is_refused_until_somebody_asks_for_repair(tmp_path, monkeypatch):
    path = tmp_path / "gen.jsonl"
    journal = stream.Journal(path, "gen")
    for ident in "abc":
        journal.put(ident, "0" * 64, {"text": ident})
    journal.close()
    lines = path.read_bytes().splitlines(keepends=True)
    flip(path, 8 * len(lines[0]) + 8 * (lines[1].index(b'"text":"b') + 8))
    for _ in range(2):  # nothing is lost by asking
        with pytest.raises(
            cli.BadData, match=r"gen.jsonl: damaged on its disk: line 2 \(b\)\. .*REPAIR=1"
        ):
            stream.Journal(path, "gen")
    with pytest.raises(cli.BadData, match=r"line 2 \(b\)"):
        list(stream.journal(path))
    monkeypatch.setenv("REPAIR", "1")
    assert [entry["id"] for _, entry in stream.journal(path)] == ["a", "c"]
    journal = stream.Journal(path, "gen")
    assert [journal.get(ident, "0" * 64) for ident in "abc"] == [{"text": "a"}, None, {"text": "c"}]
    journal.put("b", "0" * 64, {"text": "b again"})
    journal.close()
    monkeypatch.delenv("REPAIR")
    assert [entry["id"] for _, entry in stream.journal(path)] == ["a", "c", "b"]
    assert (tmp_path / "gen.jsonl.damaged").read_bytes().count(b"\n") == 1
    assert stream.Journal(path, "gen").get("b", "0" * 64) == {"text": "b again"}


def test_of_many_damaged_lines_ten_are_named(tmp_path):
    path = tmp_path / "gen.jsonl"
    good = stream.summed({"id": "a", "inputs": "0", "gen": {"text": "a"}}) + b"\n"
    path.write_bytes(good.replace(b'"text":"a"', b'"text":"b"') * 1500)
    with pytest.raises(cli.BadData, match=r"line 1 \(a\), 2 .*, 10 \(a\) and 1,490 more\. "):
        list(stream.journal(path))


def test_lines_from_before_there_were_checksums_are_read(tmp_path):
    path = tmp_path / "gen.jsonl"
    path.write_bytes(b'{"id":"a","inputs":"%s","gen":{"text":"old"}}\n' % (b"0" * 64))
    assert stream.Journal(path, "gen").get("a", "0" * 64) == {"text": "old"}
    assert [entry for _, entry in stream.journal(path)] == [json.loads(path.read_bytes())]


def test_a_damaged_reward_is_made_again_and_a_damaged_job_is_another_one(tmp_path, capsys):
    rewards = reward_queue.RewardStore(tmp_path / "rewards")
    rewards.put("key", {"reward": 0.5, "masked": False})
    assert rewards.get("key") == {"reward": 0.5, "masked": False}
    rewards.db.execute("UPDATE rewards SET value = replace(value, '0.5', '0.7')")
    assert rewards.get("key") is None
    assert "the reward key is damaged on its disk" in capsys.readouterr().err
    rewards.close()
    store = jobs.Store(tmp_path / "jobs")
    for ident in ("a.1", "b.1"):
        store.put(ident, {"run": "r"}, {"status": "done", "benchmarks": {"x": {"metrics": 0.5}}})
    store.db.execute("UPDATE jobs SET state = replace(state, '0.5', '0.7') WHERE id = 'a.1'")
    assert [ident for ident, _, _ in store.jobs()] == ["b.1"]
    assert "a.1 is damaged in jobs.db" in capsys.readouterr().err
    store.close()


def test_a_damaged_deck_of_a_visitor_is_shown_to_nobody_and_kept(tmp_path):
    deck = ask.DeckAsk(tmp_path / "decks", "0" * 32)
    deck.say(None, "asked", visitor="ada", models=[])
    deck.say(0, "text", text="# Tides")
    deck.close()
    whole = deck.path.read_bytes()
    deck.path.write_bytes(whole.replace(b"Tides", b"Uides"))
    with pytest.raises(ValueError, match="line 2 of its journal is damaged"):
        ask.DeckAsk.load(tmp_path / "decks", deck.id)
    deck.path.write_bytes(whole.replace(b'"ada"', b'"eda"'))
    opened = studio.Studio(tmp_path, {})
    assert deck.path.exists() and not opened.may_see("ada", deck.id)


@pytest.fixture
def finished(tmp_path):
    """Two finished runs, one under results/runs."""
    folders = [tmp_path / "results/runs" / name / "offline" for name in ("a", "b")]
    for folder, name in zip(folders, "ab", strict=True):
        rows = [synthetic.record(folder, name, 0.7, index) for index in range(3)]
        prompts = [
            {key: row[key] for key in ("id", "messages", "asks", "checklist")} for row in rows
        ]
        for row in rows:
            inputs = stream.fingerprint(["score", scoring.weighed(row)])
            row["score"]["by"] = {"tool": "deck-score", "inputs": inputs}
        synthetic.write(folder, rows)
        stream.write_records(folder / "prompts.jsonl", prompts)
    return folders


def compared(folders):
    loaded = runs.load(folders)
    verify.check(loaded)
    listed = [line[:-16] for line in run_table.table(folders[0].parents[1])]  # without the day
    return json.dumps(claims.compare(loaded)), listed


def test_flipped_bits_of_a_finished_run_are_noticed_or_change_nothing(finished, monkeypatch):
    said = []
    monkeypatch.setattr(cli, "say", said.append)
    expected, dice, silent = compared(finished), random.Random(35), []
    slides = sorted(finished[0].glob("*/slides/*.png"))
    named = ("scores.jsonl", "summary.json", "protocol.json", "prompts.jsonl")
    for path in [
        *(finished[0] / name for name in named for _ in range(12)),
        *dice.sample(slides, 4),
    ]:
        whole, bit = path.read_bytes(), dice.randrange(bits(path))
        flip(path, bit)
        said.clear()
        if path.suffix == ".png":
            assert not pictures.is_whole(path)
        try:
            found = compared(finished)
        except cli.BadData:
            found = expected
        if found != expected and "damaged" not in "".join(said):
            silent.append((path.name, bit))
        path.write_bytes(whole)
    assert compared(finished) == expected and silent == []


# The exam: a real run, whose pipeline and comparison are repeated after each flip.

REGISTRY = """
[fake]
base_url = "{url}"
slug = "fake"
[reference]
base_url = "files:data/reference/"
slug = "reference"
"""
PIPELINE = """R=results/runs/$M/offline; mkdir -p $R; cp -n data/prompts.jsonl $R
bin/chat-generate --model $M --protocol offline --run $R < $R/prompts.jsonl | bin/deck-parse --run $R |
bin/deck-illustrate --run $R | bin/deck-render --run $R | bin/deck-judge --run $R | bin/deck-scan --run $R |
bin/deck-score > $R/scores.jsonl; bin/run-summarize --run $R < $R/scores.jsonl > $R/summary.json"""


def shell(root, line, **more):
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=root,
        env=environment(root, DECKSMITH_RENDERS="off", **more),
        capture_output=True,
        text=True,
    )


def outcome(root):
    """What the comparison says, and what the pipeline makes of the journals once more; with all that stderr said."""
    run = root / "results/runs/fake/offline"
    looks = list(root.glob("results/runs/*/offline/journal/looks.jsonl"))
    for path in looks:
        path.unlink()
    seen = shell(
        root, "bin/run-compare --json results/runs/fake/offline results/runs/reference/offline"
    )
    again = shell(root, f"rm results/runs/fake/offline/scores.jsonl; {PIPELINE}", M="fake")
    lines = (run / "scores.jsonl").read_text().splitlines()
    made = (
        [json.dumps(without_by(json.loads(line))) for line in lines]
        if not again.returncode
        else None
    )
    first = seen.stdout if seen.returncode in (0, 65) and seen.stdout else None
    return first, made, [seen.stderr, again.stderr]


def without_by(value):
    if isinstance(value, dict):
        return {key: without_by(part) for key, part in value.items() if key != "by"}
    return [without_by(part) for part in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@pytest.mark.long("test_flipped_bits_of_a_finished_run_are_noticed_or_change_nothing")
def test_of_random_bits_in_a_real_run_none_changes_a_result_in_silence(tmp_path):
    server, url = endpoint(tmp_path)
    root = make(tmp_path / "root", core(2), REGISTRY.format(url=url))
    (root / "data/reference").symlink_to(ROOT / "data/reference")
    for model in ("fake", "reference"):
        done = shell(root, PIPELINE, M=model)
        assert done.returncode == 0, done.stderr
    server.kill()  # whatever was asked before and is asked again fails
    kept, run = tmp_path / "kept", root / "results/runs/fake/offline"
    shutil.copytree(root / "results", kept)
    expected, dice, counts = outcome(root), random.Random(35), {"same": 0, "said": 0}
    assert expected[0] and expected[1], expected
    silent = []
    for _ in range(FLIPS):
        shutil.rmtree(root / "results")
        shutil.copytree(kept, root / "results")
        # Each kind of file as often as any other: most bytes are of pictures.
        files = sorted(path for path in run.rglob("*") if path.is_file())
        kinds = sorted({path.suffix if path.suffix != ".jsonl" else path.name for path in files})
        kind = dice.choice(kinds)
        path = dice.choice([path for path in files if path.name.endswith(kind)])
        bit = dice.randrange(bits(path)) if bits(path) else 0
        if not bits(path):
            continue
        flip(path, bit)
        seen, made, stderr = outcome(root)
        text = "\n".join(stderr)
        assert "Traceback" not in text, (path, bit, text)
        same = (seen, made) == expected[:2]
        said = seen is None or made is None or "damaged" in text
        counts["same" if same else "said"] += 1
        print(path.relative_to(run), bit, "same" if same else "said" if said else "SILENT")
        if not same and not said:
            silent.append((str(path.relative_to(run)), bit))
    print(counts)
    assert silent == []
