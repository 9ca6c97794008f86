"""Ballots: what goes out is one file that needs nothing else; what comes back is whole, signed and taken once, or refused."""

import hashlib
import hmac
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.study import ballots, pairs, store

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import ballots as drawn  # noqa: E402


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A study of two runs with six pairs; tests work on copies."""
    folder = tmp_path_factory.mktemp("built")
    pairs.build(
        folder / "study",
        [drawn.run(folder / name, prompts=8, slides=2, size=40) for name in ("one", "two")],
        prompts=6,
        seed=1,
        gold=0,
    )
    return folder / "study"


@pytest.fixture
def study(built, tmp_path):
    import shutil

    return store.Study(shutil.copytree(built, tmp_path / "study"))


def exported(study, name="Ada"):
    """`(what export returned, the page, what the page carries)`."""
    made = ballots.export(study, name, study.folder / "ballots")
    page = Path(made["path"]).read_text()
    return (
        made,
        page,
        json.loads(
            re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1]
        ),
    )


def answered(data, choice="left", leave=0, skip=0):
    """What the page's payload says after votes on all pairs but the last `leave`; the first `skip` are passed over."""
    pairs = [pair["id"] for pair in data["sheet"]["pairs"]][: len(data["sheet"]["pairs"]) - leave]
    ballot = {"choice": choice, "dimensions": {}, "tags": [], "seconds": 9.5, "seen": True}
    return {
        "study": data["study"],
        "rater": data["rater"],
        "at": "2026-11-21T20:00:00.000Z",
        "answers": [
            {"pair": pair, "key": f"key-of-{pair}", "ballot": ballot} for pair in pairs[skip:]
        ],
        "skipped": [{"pair": pair, "key": f"key-of-{pair}"} for pair in pairs[:skip]],
    }


def signed(data, said, key=None):
    payload = json.dumps(said)
    return json.dumps(
        {
            "ballot": 1,
            "payload": payload,
            "signature": hmac.new(
                bytes.fromhex(key or data["key"]), payload.encode(), hashlib.sha256
            ).hexdigest(),
        }
    )


def came(study, text, **how):
    path = study.folder / "answers.json"
    path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
    return ballots.merge(study, path, **how)


# Out


def test_a_ballot_needs_nothing_but_itself_and_says_nothing_of_who_made_what(study):
    made, page, data = exported(study)
    assert made == {
        "rater": data["rater"],
        "name": "Ada",
        "pairs": len(data["sheet"]["pairs"]),
        "bytes": len(page.encode()),
        "path": str(study.folder / "ballots" / f"ada-{data['rater']}.html"),
    }
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert (
        "default-src &#39;none&#39;" in policy
        and "connect-src" not in policy
        and "unsafe" not in policy
    )
    assert not re.findall(r'(?:src|href)="(?!data:)[^"]+"', page)
    wanted = {
        name for pair in data["sheet"]["pairs"] for side in ("left", "right") for name in pair[side]
    }
    assert data["pictures"].keys() == wanted and all(
        text.startswith("UklGR") for text in data["pictures"].values()
    )
    for secret in (study.secret.hex(), study.owner, '"one"', '"two"', "gold", "expect", "model"):
        assert secret not in json.dumps({**data, "pictures": None}), secret


def test_the_policy_has_the_hashes_of_exactly_the_script_and_style_that_are_there(study):
    import base64

    page = exported(study)[1]
    policy = re.search(r'content="(default-src[^"]*)"', page)[1].replace("&#39;", "'")
    for kind, text in (
        ("script", re.findall(r"<script>(.*?)</script>", page, re.S)),
        ("style", re.findall(r"<style>(.*?)</style>", page, re.S)),
    ):
        assert len(text) == 1
        assert (
            f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(text[0].encode()).digest()).decode()}'"
            in policy
        )


def test_the_same_person_gets_the_same_ballot_and_another_another_key(study):
    first, again, other = exported(study), exported(study), exported(study, "Grace")
    assert first[1] == again[1]
    assert first[2]["key"] != other[2]["key"] and first[2]["study"] == other[2]["study"]


def test_a_name_in_other_letters_gets_a_file_name_all_the_same(study):
    assert re.fullmatch(r"ballot-[a-z2-7]+\.html", Path(exported(study, "愛子")[0]["path"]).name)
    assert re.fullmatch(
        r"etc-passwd-[a-z2-7]+\.html", Path(exported(study, "../../etc/passwd")[0]["path"]).name
    )


def test_a_closed_study_gives_no_ballots(study):
    study.close()
    with pytest.raises(store.Closed):
        ballots.export(study, "Ada", study.folder)


# And back


def test_answers_are_stored_once_however_often_their_file_comes(study):
    data = exported(study)[2]
    text, n = signed(data, answered(data, skip=1)), len(data["sheet"]["pairs"])
    assert came(study, text) == {
        "file": str(study.folder / "answers.json"),
        "is": "stored",
        "rater": "Ada",
        "votes": n - 1,
        "same": 0,
        "differ": 0,
        "why": None,
    }
    votes = list(study.votes())
    assert len(votes) == n - 1 and {
        (v["choice"], v["source"], v["seconds"], v["rater"]) for v in votes
    } == {("left", "ballot", 9.5, data["rater"])}
    again = came(study, text)
    assert (again["is"], again["votes"], again["same"]) == ("same", 0, n - 1)
    assert list(study.votes()) == votes


def test_an_earlier_part_and_the_whole_add_up(study):
    data = exported(study)[2]
    assert came(study, signed(data, answered(data, leave=4)))["why"].startswith("4 of ")
    assert list(study.votes()) == []
    part = came(study, signed(data, answered(data, leave=4)), unfinished=True)
    whole = came(study, signed(data, answered(data)))
    assert (part["is"], whole["is"], part["votes"] + whole["votes"]) == (
        "stored",
        "stored",
        len(data["sheet"]["pairs"]),
    )
    assert whole["same"] == part["votes"]


def test_a_vote_that_stands_is_kept_and_the_other_is_counted(study):
    data = exported(study)[2]
    first = data["sheet"]["pairs"][0]["id"]
    study.vote(
        data["rater"], first, {"choice": "tie", "seconds": 3, "seen": True}, key="from-the-web"
    )
    done = came(study, signed(data, answered(data)))
    assert (done["is"], done["differ"], done["why"]) == (
        "stored",
        1,
        "1 of its pairs have other votes already; those stand",
    )
    assert {vote["pair"]: vote["choice"] for vote in study.votes()}[first] == "tie"


def tampered(text):
    return text.replace("left", "right", 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (tampered, "the signature does not fit"),
        (lambda text: text[:-40], "no JSON: cut off, or not a file of answers"),
        (lambda text: b"\xff\xfe\x00", "no JSON"),
        (lambda text: "", "no JSON"),
        (lambda text: "[" * 100_000, "no JSON"),
        (lambda text: "[]", "not a file of answers"),
        (
            lambda text: '{"ballot": true, "payload": "{}", "signature": ""}',
            "not a file of answers",
        ),
        (
            lambda text: text.replace('"ballot": 1', '"ballot": 2', 1),
            "of another version of decksmith",
        ),
        (
            lambda text: text.replace('"signature": "', '"signature": "\\ud800', 1),
            "no JSON",
        ),
        (lambda text: "<!doctype html><p>the page itself", "this is a page"),
        (lambda text: text + " " * ballots.LARGEST, "larger than 4 MiB"),
    ],
)
def test_a_file_that_is_not_as_it_was_saved_is_refused_whole(study, change, why):
    data = exported(study)[2]
    done = came(study, change(signed(data, answered(data))))
    assert (done["is"], done["rater"]) == ("refused", None) and why in done["why"]
    assert list(study.votes()) == []


def changed(**more):
    return lambda said: {**said, **more}


def first_answer(**more):
    return lambda said: {**said, "answers": [{**said["answers"][0], **more}, *said["answers"][1:]]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (changed(study="0" * 16), "of another study"),
        (
            first_answer(pair="aaaaaaaaaa"),
            "answers 1: 'aaaaaaaaaa' is no pair of this rater's ballot",
        ),
        (first_answer(pair=["x"]), """answers 1: pair: "['x']" is not the id of a pair"""),
        (first_answer(key="k"), "answers 1: key: 'k' is not a name of 8 to 64 characters"),
        (first_answer(more=1), "answers 1: unknown key 'more'; there are: pair, key, ballot"),
        (
            first_answer(ballot={"choice": "both"}),
            "answers 1: ballot: choice: 'both' is not one of left, right, tie, bad",
        ),
        (
            first_answer(ballot={"choice": "left", "seconds": 1, "seen": False}),
            "answers 1: seen is not true",
        ),
        (
            lambda said: {**said, "answers": [*said["answers"], said["answers"][0]]},
            "a pair is answered twice",
        ),
        (
            lambda said: {
                **said,
                "skipped": [{key: said["answers"][0][key] for key in ("pair", "key")}],
            },
            "a pair is answered twice",
        ),
        (changed(answers=[7]), "not a file of answers"),
        (changed(rater="\ud800"), "not a file of answers"),
        (changed(answers={}), "not a file of answers"),
    ],
)
def test_what_is_signed_and_still_wrong_is_refused_whole(study, change, why):
    data = exported(study)[2]
    done = came(study, signed(data, change(answered(data))))
    assert done["is"] == "refused" and why in done["why"]
    assert list(study.votes()) == []


def test_nobody_signs_for_another(study):
    ada, grace = exported(study)[2], exported(study, "Grace")[2]
    assert (
        "signature does not fit"
        in came(study, signed(ada, {**answered(ada), "rater": grace["rater"]}))["why"]
    )


def test_a_rater_whom_the_study_lost_is_named_as_such(study):
    data = exported(study)[2]
    said = {**answered(data), "rater": "nobody"}
    assert (
        "votes.db is not the one"
        in came(study, signed(data, said, ballots.key(study, "nobody").hex()))["why"]
    )


def test_a_closed_study_takes_nothing(study):
    data = exported(study)[2]
    study.close()
    assert (
        came(study, signed(data, answered(data)))["why"]
        == "the study is closed: votes neither come nor go"
    )
    assert list(study.votes()) == []


def test_an_import_that_is_killed_has_stored_all_or_nothing_and_goes_on_when_it_is_run_again(study):
    data = exported(study)[2]
    path = study.folder / "answers.json"
    path.write_text(signed(data, answered(data)))
    script = """if True:
        import os, sys
        from decksmith.study import ballots, store
        vote, left = store.Study.vote, [3]
        def dying(*words, **more):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), 9)
            return vote(*words, **more)
        store.Study.vote = dying
        ballots.merge(store.Study(sys.argv[1]), sys.argv[2])
    """
    done = subprocess.run(
        [sys.executable, "-c", script, study.folder, path],
        env={"PYTHONPATH": str(cli.ROOT / "lib"), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == -9
    assert list(store.Study(study.folder).votes()) == []
    assert ballots.merge(study, path)["votes"] == len(data["sheet"]["pairs"])
