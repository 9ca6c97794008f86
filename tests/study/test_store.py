"""pairs.py and store.py: balanced pairs that say nothing, queues that overlap as planned, votes that are stored once and for good."""

import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from decksmith.core import cli, validation
from decksmith.people.study import records, store
from decksmith.people.study.pairs import build
from decksmith.people.study.store import Closed, Conflict, Study
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import ballots  # noqa: E402

BALLOT = {"choice": "left", "seconds": 3.25, "seen": True}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        ballots.run(folder / name, prompts=14, slides=slides, size=98)
        for name, slides in (("alpha", 3), ("beta", 4), ("gamma", 3))
    ]


@pytest.fixture(scope="module")
def built(tmp_path_factory, runs):
    folder = tmp_path_factory.mktemp("built") / "study"
    build(folder, runs, seed=1, prompts=12, repeats=0.2, gold=0.1, per_rater=20, raters_per_pair=3)
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory, runs):
    folder = tmp_path_factory.mktemp("small") / "study"
    build(folder, runs[:2], seed=1, prompts=6)
    return folder


@pytest.fixture
def study(tmp_path, small):
    opened = Study(shutil.copytree(small, tmp_path / "study"))
    yield opened
    opened.close_file()


def lines(folder):
    return [json.loads(line) for line in (folder / "pairs.jsonl").read_text().split("\n")[:-1]]


# Pairs


def test_each_two_models_meet_on_the_same_requests_and_each_is_as_often_left_as_right(built):
    pairs = [pair for pair in lines(built) if pair["kind"] == "vote"]
    met = {}
    for pair in pairs:
        met.setdefault(tuple(sorted((pair["left"]["run"], pair["right"]["run"]))), []).append(pair)
    assert {between: len(found) for between, found in met.items()} == {
        ("alpha", "beta"): 12,
        ("alpha", "gamma"): 12,
        ("beta", "gamma"): 12,
    }
    assert len({frozenset(pair["prompt"] for pair in found) for found in met.values()}) == 1
    for between, found in met.items():
        assert sum(pair["left"]["run"] == between[0] for pair in found) == 6
    for start in range(0, 36, 6):  # any stretch has all models and many requests
        stretch = pairs[start : start + 6]
        assert Counter(
            tuple(sorted((pair["left"]["run"], pair["right"]["run"]))) for pair in stretch
        ) == dict.fromkeys(met, 2)
        assert len({pair["prompt"] for pair in stretch}) >= 4


def test_the_requests_are_spread_over_the_domains(tmp_path, runs):
    build(tmp_path / "study", runs[:2], seed=4, prompts=6)
    domains = {
        ballots.synthetic.prompt(index)["id"]: ballots.synthetic.prompt(index)["asks"]["domain"]
        for index in range(14)
    }
    assert (
        len(
            {
                domains[pair["prompt"]]
                for pair in lines(tmp_path / "study")
                if pair["kind"] == "vote"
            }
        )
        == 6
    )


def test_one_in_so_many_comes_again_with_sides_swapped(built):
    pairs = {pair["id"]: pair for pair in lines(built)}
    repeats = [pair for pair in pairs.values() if pair["kind"] == "repeat"]
    assert len(repeats) == 8
    for pair in repeats:
        first = pairs[pair["of"]]
        assert (pair["left"], pair["right"], pair["prompt"]) == (
            first["right"],
            first["left"],
            first["prompt"],
        )
        assert not {*pair["pictures"]["left"], *pair["pictures"]["right"]} & {
            *first["pictures"]["left"],
            *first["pictures"]["right"],
        }


def test_an_attention_item_is_a_deck_beside_a_visibly_damaged_copy_of_itself(built):
    gold = [pair for pair in lines(built) if pair["kind"] == "gold"]
    assert [pair["expect"] for pair in gold].count("left") == len(gold) / 2 == 2
    for pair in gold:
        whole, other = pair["expect"], {"left": "right", "right": "left"}[pair["expect"]]
        assert pair[other] == {**pair[whole], "broken": True}
        assert len(pair["pictures"][whole]) == len(pair["pictures"][other])
        for good, bad in zip(pair["pictures"][whole], pair["pictures"][other], strict=True):
            with (
                Image.open(built / "pictures" / good) as one,
                Image.open(built / "pictures" / bad) as two,
            ):
                assert one.size == two.size
                assert sum(
                    a != b for a, b in zip(one.tobytes(), two.tobytes(), strict=True)
                ) > 0.01 * len(one.tobytes())


def test_the_same_seed_gives_the_same_pairs_and_ids_that_say_nothing(tmp_path, runs, small):
    def drawn(folder):
        return [
            (pair["kind"], pair["prompt"], pair["left"], pair["right"], pair["expect"])
            for pair in lines(folder)
        ]

    build(tmp_path / "same", runs[:2], seed=1, prompts=6)
    build(tmp_path / "drawn", runs[:2], prompts=6)
    assert drawn(tmp_path / "same") == drawn(small) != drawn(tmp_path / "drawn")
    assert not {pair["id"] for pair in lines(tmp_path / "same")} & {
        pair["id"] for pair in lines(small)
    }
    with pytest.raises(cli.BadData, match="was made with seed 1; another seed is another study"):
        build(tmp_path / "same", runs, seed=7)


def test_called_again_it_adds_what_is_missing_and_changes_no_line_and_no_picture(tmp_path, runs):
    folder = tmp_path / "study"
    first = build(folder, runs[:2], prompts=4)
    before = (folder / "pairs.jsonl").read_bytes()
    pictures = {path.name: path.read_bytes() for path in (folder / "pictures").iterdir()}
    assert build(folder, runs[:2], prompts=4)["added"] == {"vote": 0, "repeat": 0, "gold": 0}
    assert (folder / "pairs.jsonl").read_bytes() == before
    more = build(
        folder, [runs[2]], prompts=6
    )  # the runs that the study had are paired with the new one
    assert (first["pairs"]["vote"], more["pairs"]["vote"], more["added"]["vote"]) == (4, 18, 14)
    assert (folder / "pairs.jsonl").read_bytes().startswith(before)
    assert (
        pictures.items()
        <= {path.name: path.read_bytes() for path in (folder / "pictures").iterdir()}.items()
    )
    sides = Counter()
    for pair in lines(folder):
        if pair["kind"] == "vote":
            between = tuple(sorted((pair["left"]["run"], pair["right"]["run"])))
            sides[between] += 1 if pair["left"]["run"] == between[0] else -1
    assert set(sides.values()) == {0}


def test_pictures_are_bare_pixels_of_one_width_for_both_sides_and_their_names_say_nothing(tmp_path):
    runs = [
        ballots.run(tmp_path / "sharp", prompts=2, size=196),
        ballots.run(tmp_path / "plain", prompts=2, size=98),
    ]
    for path in (tmp_path / "plain").rglob("*.png"):
        with Image.open(path) as picture:
            exif = picture.getexif()
            exif[0x010E] = "made by plain"
            picture.save(path, exif=exif, icc_profile=b"x" * 200)
    build(tmp_path / "study", runs, gold=0, repeats=0)
    for pair in lines(tmp_path / "study"):
        for name in [*pair["pictures"]["left"], *pair["pictures"]["right"]]:
            data = (tmp_path / "study" / "pictures" / name).read_bytes()
            with Image.open(tmp_path / "study" / "pictures" / name) as picture:
                assert (picture.format, picture.width, dict(picture.getexif())) == ("WEBP", 98, {})
                assert "icc_profile" not in picture.info
            assert data[12:16] in (b"VP8 ", b"VP8L") and b"plain" not in data
    names = {path.name for path in (tmp_path / "study" / "pictures").iterdir()}
    assert len(names) == 12 and all(len(name) == 31 for name in names)


def test_only_decks_that_rendered_are_paired_unless_asked_and_what_is_not_the_models_fault_never(
    tmp_path,
):
    runs = [
        ballots.run(tmp_path / "good", prompts=6, size=98),
        ballots.run(tmp_path / "bad", prompts=6, failed=(0, 1), excluded=(2,), size=98),
    ]
    assert build(tmp_path / "some", runs, gold=0, repeats=0)["pairs"]["vote"] == 3
    assert build(tmp_path / "all", runs, gold=0, repeats=0, failed=True)["pairs"]["vote"] == 5
    bare = [pair for pair in lines(tmp_path / "all") if [] in pair["pictures"].values()]
    assert sorted(pair["prompt"] for pair in bare) == ["p001", "p002"]
    with pytest.raises(cli.BadData) as error:
        build(
            tmp_path / "none",
            [runs[0], ballots.run(tmp_path / "worse", prompts=6, failed=range(6))],
        )
    assert str(error.value) == (
        "there is no request for which two of these runs have a rendered deck\n  good: 6 of 6 rendered\n"
        "  worse: 0 of 6 rendered (6 yaml)\n  --failed also pairs answers that gave no accepted deck"
    )
    assert not (tmp_path / "none" / "pairs.jsonl").exists()
    both = [
        ballots.run(tmp_path / name, prompts=2, failed=range(2), size=98) for name in ("w", "v")
    ]
    with pytest.raises(cli.BadData, match="and another an answer to show") as error:
        build(tmp_path / "none", both, failed=True)
    assert "--failed" not in str(error.value)


def test_of_several_samples_one_is_drawn(tmp_path):
    runs = [
        ballots.run(tmp_path / name, prompts=12, samples=3, slides=1, size=98)
        for name in ("one", "two")
    ]
    build(tmp_path / "study", runs, seed=1, gold=0, repeats=0)
    pairs = lines(tmp_path / "study")
    assert len(pairs) == 12
    assert {pair["left"]["sample"] for pair in pairs} == {0, 1, 2}


def test_what_cannot_be_compared_is_refused_by_name(tmp_path, runs):
    other = ballots.run(tmp_path / "other", prompts=3, request="Something else", size=98)
    for words, said in (
        ([tmp_path / "nothing"], "there is no run .*nothing"),
        ([runs[0]], "one run has nothing to be compared with"),
        ([runs[0], other], "p001 is not the same request in both"),
        ([runs[0], ballots.run(tmp_path / "x" / "alpha", prompts=1, size=98)], "have one name"),
    ):
        with pytest.raises((cli.BadData, cli.Missing), match=said):
            build(tmp_path / "study", words)
    (runs[0] / "protocol.json").write_text(
        '{"sampling": {"temperature": 0}, "judge": {"name": "a"}}'
    )
    (other / "protocol.json").write_text('{"sampling": {"temperature": 1}, "judge": {"name": "b"}}')
    try:
        with pytest.raises(
            cli.BadData,
            match="differ in more than the model; people would vote on that too\n  sampling.temperature: 0 != 1$",
        ):
            build(tmp_path / "study", [runs[0], other])
    finally:
        (runs[0] / "protocol.json").unlink()
    (ballots.run(tmp_path / "gone", prompts=3, size=98) / "p001" / "slides" / "01.png").unlink()
    with pytest.raises(
        cli.BadData, match="this slide is not there; `make baseline MODEL=NAME` renders it again"
    ):
        build(tmp_path / "study", [runs[0], tmp_path / "gone"])
    (tmp_path / "gone" / "p001" / "slides" / "01.png").write_bytes(b"\x89PNG no picture")
    with pytest.raises(cli.BadData, match="01.png: cannot be read as a picture"):
        build(tmp_path / "study", [runs[0], tmp_path / "gone"])
    (tmp_path / "gone" / "scores.jsonl").write_text(
        (tmp_path / "gone" / "scores.jsonl")
        .read_text()
        .replace("p001/slides/01.png", "../alpha/scores.jsonl")
    )
    build(tmp_path / "study", [runs[0], tmp_path / "gone"], failed=True)
    # An attention item may be of it: that shows the other run's deck alone.
    pairs = store.pairs_of(tmp_path / "study").values()
    assert "p001" not in {pair["prompt"] for pair in pairs if pair["kind"] == "vote"}


KILLED_AFTER_TWENTY = """
import os, signal, sys
seen = []
def killed(event, arguments):
    if event == "os.rename" and "/pictures/" in str(arguments[1]):
        seen.append(arguments[1])
        if len(seen) > 20:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(killed)
"""


@pytest.mark.long("test_what_was_acknowledged_survives_a_kill")
def test_a_build_that_is_killed_leaves_the_study_whole_and_the_next_one_completes_it(
    tmp_path, runs
):
    folder, code = (
        tmp_path / "study",
        KILLED_AFTER_TWENTY
        + "from decksmith.people.study import pairs; pairs.build(sys.argv[1], sys.argv[2:], seed=1, prompts=14)",
    )
    build(folder, runs[:2], seed=1, prompts=2)
    before = (folder / "pairs.jsonl").read_bytes()
    have = len(list((folder / "pictures").iterdir()))
    building = subprocess.Popen(
        [sys.executable, "-c", code, folder, *runs],
        env={**os.environ, "PYTHONPATH": str(cli.ROOT / "lib")},
    )
    assert building.wait() == -signal.SIGKILL
    assert len(list((folder / "pictures").iterdir())) >= have + 20
    assert (folder / "pairs.jsonl").read_bytes() == before
    assert len(Study(folder).pairs) == len(before.splitlines())
    build(folder, runs, seed=1, prompts=14)
    assert (folder / "pairs.jsonl").read_bytes().startswith(before)
    assert Counter(pair["kind"] for pair in lines(folder))["vote"] == 42
    assert all(
        (folder / "pictures" / name).stat().st_size
        for pair in lines(folder)
        for side in ("left", "right")
        for name in pair["pictures"][side]
    )


# Raters and queues


def test_everybody_gets_so_many_pairs_two_thirds_of_them_shared_and_everybody_an_order_of_their_own(
    built, tmp_path
):
    study = Study(shutil.copytree(built, tmp_path / "copy"))
    queues = [study.queue(study.rater(study.add_rater(f"rater {n}"))) for n in range(6)]
    kinds = [Counter(study.pairs[pair]["kind"] for pair in queue) for queue in queues]
    assert [(kind["vote"], kind["gold"]) for kind in kinds] == [(20, 3)] * 6
    votes = [{pair for pair in queue if study.pairs[pair]["kind"] == "vote"} for queue in queues]
    counts = Counter(pair for chosen in votes for pair in chosen)
    assert len(counts) == 36 and set(counts.values()) <= {2, 3, 4}
    assert all(max(len(one & two) for two in votes if two is not one) >= 13 for one in votes)
    for queue in queues:
        for place, pair in enumerate(queue):
            if study.pairs[pair]["kind"] == "repeat":
                assert place - queue.index(study.pairs[pair]["of"]) > len(queue) // 4
    assert len({tuple(sorted(queue, key=queue.index)) for queue in queues}) == 6
    study.close_file()


def test_a_queue_stays_as_it_is_when_the_study_grows_and_more_can_be_asked_for(tmp_path, runs):
    folder = tmp_path / "study"
    build(folder, runs[:2], prompts=3)
    study = Study(folder)
    rater = study.rater(study.add_rater("Ada"))
    before = study.queue(rater)
    build(folder, runs, prompts=5)
    assert (study.queue(rater), len(study.pairs)) == (before, len(lines(folder)))
    assert study.more(rater, 4) >= 4
    assert study.queue(rater)[: len(before)] == before
    while study.more(rater, 10):
        pass
    assert len(study.queue(rater)) == len(set(study.queue(rater))) == len(study.pairs)
    study.close_file()


def test_a_token_is_one_raters_and_one_studys_and_the_same_name_is_the_same_rater(
    study, tmp_path, runs
):
    token = study.add_rater("  Ada\u00a0 Lovelace ")
    assert study.add_rater("ADA lovelace") == token
    assert study.raters()[0]["name"] == "Ada Lovelace"
    with pytest.raises(Conflict, match="this name is taken"):
        study.add_rater("ada lovelace", address="192.0.2.7")
    build(tmp_path / "other", runs[:2], prompts=2)
    other = Study(tmp_path / "other")
    other.add_rater("Ada Lovelace")
    assert study.rater(token) and other.rater(token) is None
    assert study.rater(("A" if token[0] != "A" else "B") + token[1:]) is None
    assert (
        study.rater("") is None
        and study.rater(study.owner) is None
        and study.rater(study.token("nobody")) is None
    )
    other.close_file()


@pytest.mark.parametrize(
    "name", ["", "   ", "x" * 41, "a\x00b", "a\u202eb", "\u200b", "\ud800", None, 7]
)
def test_a_name_is_short_and_can_be_seen(study, name):
    with pytest.raises(cli.BadData):
        study.add_rater(name)


def test_a_rater_is_told_the_request_and_the_pictures_and_nothing_of_who_made_them(study):
    rater = study.rater(study.add_rater("Ada"))
    sheet = study.sheet(rater)
    assert {key for pair in sheet["pairs"] for key in pair} == {"id", "request", "left", "right"}
    text = json.dumps(sheet)
    for secret in ("alpha", "beta", "p001", "p002", "gold", "repeat", "sample", "seed"):
        assert secret not in text


# Votes


def test_a_vote_is_stored_once_whatever_is_sent_again(study):
    rater = study.rater(study.add_rater("Ada"))
    pair, other = study.queue(rater)[:2]
    assert study.act("vote", rater, pair, BALLOT, key="key-0001") == "stored"
    assert study.act("vote", rater, pair, {**BALLOT, "tags": []}, key="key-0001") == "same"
    with pytest.raises(Conflict, match="brought something else"):
        study.act("vote", rater, pair, {**BALLOT, "choice": "tie"}, key="key-0001")
    with pytest.raises(Conflict, match="there is a vote on this pair"):
        study.act("vote", rater, pair, {**BALLOT, "choice": "tie"}, key="key-0002")
    assert [vote["choice"] for vote in study.votes()] == ["left"]
    with pytest.raises(Conflict):
        study.act("skip", rater, pair, key="key-0003")
    assert study.act("undo", rater, pair, key="key-0004") == "stored"
    assert study.act("undo", rater, pair, key="key-0004") == "same"
    assert study.act("vote", rater, pair, BALLOT, key="key-0001") == "same" and not list(
        study.votes()
    ), "a late copy does not bring back what was undone"
    assert study.act("vote", rater, pair, {**BALLOT, "choice": "bad"}, key="key-0005") == "stored"
    assert study.act("skip", rater, other, key="key-0006") == "stored" and study.sheet(rater)[
        "skipped"
    ] == [other]
    assert study.act("undo", rater, other, key="key-0007") == "stored"
    assert study.act("undo", rater, other, key="key-0007") == "same"
    assert (study.sheet(rater)["skipped"], [vote["choice"] for vote in study.votes()]) == (
        [],
        ["bad"],
    )


def test_a_vote_knows_all_that_the_tally_needs(study):
    rater = study.rater(study.add_rater("Ada"))
    for place, pair in enumerate(study.queue(rater), 1):
        study.act(
            "vote",
            rater,
            pair,
            {**BALLOT, "dimensions": {"design": "tie"}, "tags": ["looks", "request"]},
            key=f"key-{place:04}",
        )
    votes = list(study.votes())
    assert [vote["order"] for vote in votes] == list(range(1, len(votes) + 1))
    about = study.pairs[votes[0]["pair"]]
    assert votes[0] == {
        "pair": about["id"],
        "kind": about["kind"],
        "of": about["of"],
        "expect": about["expect"],
        "rater": rater,
        "prompt": about["prompt"],
        "left": about["left"]["model"],
        "right": about["right"]["model"],
        "choice": "left",
        "dimensions": {"design": "tie"},
        "tags": ["looks", "request"],
        "seconds": 3.25,
        "seen": True,
        "source": "web",
        "at": votes[0]["at"],
        "order": 1,
    }
    [row] = study.results()
    assert (row["models"], sum(row["wins"]), row["votes"]) == (["alpha", "beta"], 6, 6)


def test_a_damaged_vote_is_refused_until_somebody_asks_for_repair(study, monkeypatch):
    rater = study.rater(study.add_rater("Ada"))
    pairs = study.queue(rater)[:2]
    for number, pair in enumerate(pairs):
        study.act("vote", rater, pair, BALLOT, key=f"key-000{number}")
    with study.changing():
        changed = "UPDATE votes SET ballot = replace(ballot, 'left', 'lefu') WHERE pair = ?"
        study._db.execute(changed, pairs[:1])
    with pytest.raises(
        cli.BadData, match=f"the vote of {rater} on {pairs[0]} is damaged.*REPAIR=1"
    ):
        list(study.votes())
    assert list(study.sheet(rater)["done"]) == pairs[1:]
    monkeypatch.setenv("REPAIR", "1")
    assert [vote["pair"] for vote in study.votes()] == pairs[1:]
    study.act("undo", rater, pairs[0], key="key-0002")
    study.act("vote", rater, pairs[0], BALLOT, key="key-0003")
    monkeypatch.delenv("REPAIR")
    assert len(list(study.votes())) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"choice": "both"},
        {"choice": ["left"]},
        {"seen": False},
        {"seen": 1},
        {"seconds": -1},
        {"seconds": True},
        {"seconds": float("nan")},
        {"seconds": 1e9},
        {"dimensions": {"price": "left"}},
        {"dimensions": {"design": "bad"}},
        {"dimensions": [] or [1]},
        {"tags": "looks"},
        {"tags": [["looks"]]},
        {"more": 1},
    ],
)
def test_a_ballot_that_is_none_is_refused_and_nothing_is_stored(study, change):
    rater = study.rater(study.add_rater("Ada"))
    with pytest.raises(cli.BadData):
        study.act("vote", rater, study.queue(rater)[0], {**BALLOT, **change}, key="key-0001")
    for pair, key in (
        ("k3v9q2wd", "key-0001"),
        (None, "key-0001"),
        (study.queue(rater)[0], "short"),
        (study.queue(rater)[0], "x" * 65),
        (study.queue(rater)[0], None),
    ):
        with pytest.raises(cli.BadData):
            study.act("vote", rater, pair, BALLOT, key=key)
    assert not list(study.votes())


def test_a_closed_study_takes_no_vote_and_gives_none_back_until_it_is_opened(study):
    rater = study.rater(study.add_rater("Ada"))
    pair, other = study.queue(rater)[:2]
    study.act("vote", rater, pair, BALLOT, key="key-0001")
    study.close()
    for call in (
        lambda: study.act("vote", rater, other, BALLOT, key="key-0002"),
        lambda: study.act("undo", rater, pair, key="key-0003"),
        lambda: study.add_rater("Ben"),
        lambda: study.act("skip", rater, other, key="key-0004"),
        lambda: study.more(rater),
    ):
        with pytest.raises(Closed):
            call()
    assert study.act("vote", rater, pair, BALLOT, key="key-0001") == "same"
    assert study.sheet(rater)["closed"] and study.add_rater("Ada")
    study.open()
    assert study.act("vote", rater, other, BALLOT, key="key-0002") == "stored"


def test_what_is_done_in_one_transaction_is_undone_together_and_another_process_can_write_after(
    study,
):
    rater = study.rater(study.add_rater("Ada"))
    one, two, three = study.queue(rater)[:3]
    with pytest.raises(Conflict), study.changing():
        study.act("vote", rater, one, BALLOT, key="key-0001")
        study.act("vote", rater, one, BALLOT, key="key-0002")
    assert not list(study.votes())
    with study.changing():
        study.act("vote", rater, one, BALLOT, key="key-0001")
        study.act("vote", rater, three, BALLOT, key="key-0002")
    beside = Study(study.folder)  # the transaction is over: another process sees it, and can write
    beside._db.execute("PRAGMA busy_timeout = 100")
    assert {vote["pair"] for vote in beside.votes()} == {one, three}
    assert (
        beside.act("undo", rater, one, key="key-0005") == "stored"
        and study.act("vote", rater, two, BALLOT, key="key-0006") == "stored"
    )
    assert {vote["pair"] for vote in beside.votes()} == {two, three}
    beside.close_file()


def _votes(folder, rater, number, ready):
    study = Study(folder)
    ready.wait()
    for pair in study.queue(rater):
        for attempt in range(2):
            try:
                study.act("vote", rater, pair, BALLOT, key=f"key-{number}-{pair}-{attempt}")
            except Conflict:
                pass


def test_processes_that_vote_on_the_same_pairs_at_once_store_each_once(tmp_path, small):
    folder = shutil.copytree(small, tmp_path / "study")
    context = multiprocessing.get_context("fork")
    rater = (study := Study(folder)).rater(study.add_rater("Ada"))
    study.close_file()
    for name in ("votes.db-wal", "votes.db-shm"):
        (folder / name).unlink(missing_ok=True)
    ready = context.Event()
    processes = [
        context.Process(target=_votes, args=(folder, rater, number, ready)) for number in range(4)
    ]
    for process in processes:
        process.start()
    ready.set()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    study = Study(folder)
    assert len(list(study.votes())) == len(study.queue(rater))
    study.close_file()


def test_what_was_acknowledged_survives_a_kill(tmp_path, built):
    folder = shutil.copytree(built, tmp_path / "study")
    code = (
        "import sys; from decksmith.people.study.store import Study; s = Study(sys.argv[1]); r = s.rater(s.add_rater('Ada'))\n"
        "for n, p in enumerate(s.queue(r)): s.act('vote', r, p, {'choice': 'tie', 'seconds': 1, 'seen': True}, key=f'key-{n:04}'); print(p, flush=True)"
    )
    voting = subprocess.Popen(
        [sys.executable, "-c", code, folder],
        env={**os.environ, "PYTHONPATH": str(cli.ROOT / "lib")},
        stdout=subprocess.PIPE,
        text=True,
    )
    said = [voting.stdout.readline().strip() for _ in range(5)]
    voting.send_signal(signal.SIGKILL)
    said += voting.stdout.read().split()
    voting.wait()
    study = Study(folder)
    votes = [vote["pair"] for vote in study.votes()]
    assert votes[: len(said)] == said and len(votes) <= len(said) + 1
    study.close_file()


def test_a_damaged_study_is_said_to_be_one(tmp_path, runs, small):
    with pytest.raises(
        cli.Missing, match="decks is no study; `make vote .* STUDY=decks` makes one"
    ):
        Study(tmp_path / "results/blindtest/decks")
    with pytest.raises(cli.Missing, match="is no study; `pair-build --study .*` makes one"):
        Study(tmp_path)
    folder = shutil.copytree(small, tmp_path / "study")
    (folder / "votes.db").write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(cli.BadData, match="votes.db cannot be used"):
        Study(folder)
    (folder / "votes.db").unlink()
    later = sqlite3.connect(folder / "votes.db")
    later.execute("PRAGMA user_version = 9")
    later.close()
    with pytest.raises(cli.BadData, match="of another version"):
        Study(folder)
    assert ((folder / "secret").stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (
        0o600,
        0o700,
    )
    (folder / "secret").write_bytes(b"short")
    with pytest.raises(cli.BadData, match="secret is damaged"):
        build(folder, runs[:2], prompts=7)


def test_every_tag_and_dimension_that_the_page_offers_is_taken():
    said = {"tags": list(records.TAGS), "dimensions": dict.fromkeys(records.DIMENSIONS, "tie")}
    taken = validation.check(records.Ballot, {**BALLOT, **said}).model_dump()
    assert {key: taken[key] for key in said} == said
    assert set(records.CHOICES) == {"left", "right", "tie", "bad"}
