"""Imported votes: what docs/votes.md shows is run as it stands, and what comes out is counted by hand."""

import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from decksmith.core import cli, stream
from decksmith.people.study import (
    import_votes,
    intervals,
    pairs,
    store,
    tally,
    vote_app,
)

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "web")]
import ballots  # noqa: E402

PAGE = (cli.ROOT / "docs/votes.md").read_text().partition("## Imported votes")[2]
HEADER = "prompt,rater,left,right,choice,at\n"
MAKERS = ("base", "tuned")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 400)


def block(kind):
    return re.search(rf"^```{kind}\n(.*?)^```", PAGE, re.M | re.S)[1]


def collected(folder, prompts=12, raters=8):
    """votes.csv, whose votes follow Design with some noise, and scores.jsonl; returns the rows and {(maker, prompt): scores}."""
    dice, rows, scores = random.Random(3), [], {}
    for prompt in range(prompts):
        for maker in MAKERS:
            scores[maker, f"p{prompt:03}"] = {
                "design": round(dice.uniform(1, 3) + 1.5 * (maker == "tuned"), 2),
                "content": round(dice.uniform(1, 5), 2),
            }
        for rater in range(raters):
            sides = dice.sample(MAKERS, 2)  # each person has an order of their own
            left, right = (scores[maker, f"p{prompt:03}"]["design"] for maker in sides)
            gap = left - right + dice.gauss(0, 1)
            choice = "tie" if abs(gap) < 0.4 else "left" if gap > 0 else "right"
            rows.append(
                (
                    f"p{prompt:03}",
                    f"rater {rater}",
                    *sides,
                    choice,
                    f"2026-11-21T20:{prompt:02}:{rater:02}Z",
                )
            )
    (folder / "votes.csv").write_text(HEADER + "".join(",".join(row) + "\n" for row in rows))
    (folder / "scores.jsonl").write_text(
        "".join(
            json.dumps(
                {"model": maker, "id": prompt, "scores": said, "rendered": True, "error_kind": None}
            )
            + "\n"
            for (maker, prompt), said in scores.items()
        )
    )
    return rows, scores


def followed(rows, scores, measure):
    """By hand: how often the number is higher for the deck that a person prefers, of the untied votes."""
    credit = [
        0.5
        if scores[b, prompt][measure] == scores[a, prompt][measure]
        else float((scores[a, prompt][measure] > scores[b, prompt][measure]) == (choice == "left"))
        for prompt, _, a, b, choice, _ in rows
        if choice != "tie"
    ]
    return sum(credit) / len(credit)


@pytest.mark.slow
def test_the_commands_of_the_page_give_what_can_be_counted_by_hand(tmp_path):
    rows, scores = collected(tmp_path)
    (tmp_path / "bin").symlink_to(cli.ROOT / "bin")
    done = subprocess.run(
        ["bash", "-euc", block("sh")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "IMAGES": "off",
            "DECKSMITH_ROOT": str(cli.ROOT),
            "PATH": f"{Path(sys.executable).parent}:{cli.ROOT}/tests/tools:{os.environ['PATH']}",
        },
    )
    assert (done.returncode, done.stderr) == (0, "")
    imported, *table, sentence = done.stdout.splitlines()
    assert json.loads(imported) == {
        "file": "votes.csv",
        "votes": 96,
        "kept": 0,
        "raters": 8,
        "prompts": 12,
        "makers": ["base", "tuned"],
    }
    assert "| base and tuned | 96 |" in "\n".join(table) and "| Design |" in "\n".join(table)
    wins = {
        maker: sum(
            choice in ("left", "right") and (a, b)[choice == "right"] == maker
            for _, _, a, b, choice, _ in rows
        )
        for maker in MAKERS
    }
    tied = sum(choice == "tie" for *_, choice, _ in rows)
    found = json.loads((tmp_path / "results/elsewhere/tally/tally.json").read_text())
    (pair,) = found["pairs"]
    assert tied > 5 and [pair[key] for key in ("for_a", "for_b", "tied", "votes")] == [
        wins["base"],
        wins["tuned"],
        tied,
        96,
    ]
    assert pair["share"]["mean"] == pytest.approx((wins["base"] + tied / 2) / 96, abs=1e-4)
    assert sentence == f"- {pair['sentence']}" and sentence.startswith("- tuned beats base by ")
    for measure in ("design", "content"):
        assert found["judge"][measure]["choice"]["mean"] == pytest.approx(
            followed(rows, scores, measure), abs=1e-4
        )
    overall = {deck: {"overall": sum(said.values()) / 2} for deck, said in scores.items()}
    assert found["judge"]["overall"]["choice"]["mean"] == pytest.approx(
        followed(rows, overall, "overall"), abs=1e-4
    )
    assert found["judge"]["design"]["choice"]["mean"] > found["judge"]["content"]["choice"]["mean"]
    assert found["study"]["unjudged"] == [] and found["agreement"]["pairs"] == 12
    left = [choice == "left" for *_, choice, _ in rows if choice != "tie"]
    assert found["position"]["left"]["mean"] == pytest.approx(sum(left) / len(left), abs=1e-4)


def test_the_file_that_the_page_shows_is_taken(tmp_path):
    (tmp_path / "votes.csv").write_text(block("csv"))
    assert import_votes.take(tmp_path / "study", tmp_path / "votes.csv")["votes"] == 2
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    shown = {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}
    fields = import_votes.ImportedVote.model_fields
    also = {
        name for field in fields.values() for name in getattr(field.validation_alias, "choices", [])
    }
    assert shown == {*fields, *also, "kind"}


def take(tmp_path, text, name="votes.csv", **how):
    (tmp_path / name).write_text(text)
    return import_votes.take(tmp_path / "study", tmp_path / name, **how)


def votes(tmp_path):
    study = store.Study(tmp_path / "study")
    found = list(study.votes())
    study.close_file()
    return found


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("p1,ada,one,two,first,", "choice: 'first' is none of left, right, tie, bad, one, two"),
        ("p1,ada,one,two,,", "choice: there is none; the row has prompt, rater, left, right"),
        ("p1,ada,one,one,left,", "right: 'one' made both decks; a vote compares two makers"),
        ("p1,,one,two,left,", "rater: there is none"),
        (
            "p1,a\x07da,one,two,left,",
            r"rater: 'a\x07da': has characters that cannot be seen",
        ),
        (f"p1,{'x' * 300},one,two,left,", "rater: 'xxxx"),
        (
            "p1,ada,one,two,left,yesterday",
            "at: 'yesterday': Input should be a valid datetime",
        ),
        (
            "p0,grace,two,one,left,",
            "choice: 'grace' preferred one of this pair before",
        ),
        ("p1,ada,tie,two,tie,", "left: 'tie': no maker can be called that"),
    ],
)
def test_a_bad_row_is_named_with_line_column_and_value_and_nothing_is_taken(tmp_path, row, said):
    with pytest.raises(cli.BadData, match=re.escape(f"{tmp_path}/votes.csv:4: {said}")) as error:
        take(tmp_path, f"{HEADER}p0,grace,one,two,left,\np0,ada,one,two,left,\n{row}\n")
    assert str(error.value).endswith("nothing was taken") and not (tmp_path / "study").exists()


def test_all_bad_rows_are_named_up_to_a_number(tmp_path):
    with pytest.raises(cli.BadData) as error:
        take(tmp_path, HEADER + "p1,,one,two,left,\n" * 25)
    lines = str(error.value).splitlines()
    assert (
        lines[0]
        == f"{tmp_path}/votes.csv:2: rater: there is none; the row has prompt, left, right, choice"
        and lines[9].startswith(f"{tmp_path}/votes.csv:11: ")
    )
    assert lines[10:] == ["15 rows more cannot be used", "nothing was taken"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no vote in it"),
        (HEADER + "p1,ada,one,two,left\n", "line 2: not as many cells as columns"),
        (HEADER + 'p1,"ada,one,two,left,', "line 2: unexpected end of data"),
        (HEADER + "p1,ada,one,two," + "x" * 140_000, "line 2: field larger"),
        ("prompt,rater,left,right,choice,choice\n", "line 1: there are two columns 'choice'"),
        ('[{"prompt": "p1"}]', "line 1: not a JSON object"),
        (HEADER, "there is no vote in it"),
        ('{"prompt": "p1"}\n{', "votes.csv: line 2: not JSON"),
        ('{"a": 1}\n[]\n', "votes.csv: line 2: not a JSON object"),
        (
            '{"prompt": ["x"], "rater": "r", "left": "a", "right": "b", "choice": "tie"}',
            "votes.csv:1: prompt: \"['x']\": Input should be a valid string",
        ),
    ],
)
def test_a_file_that_is_none_says_why(tmp_path, text, said):
    csv.field_size_limit(131_072)  # of this process: a test before may have raised it
    with pytest.raises(cli.BadData, match=re.escape(said)):
        take(tmp_path, text)
    assert not (tmp_path / "study").exists()


def test_a_file_in_another_encoding_or_none_is_said_to_be_one(tmp_path):
    (tmp_path / "votes.csv").write_bytes(
        HEADER.encode() + "p1,zoë,one,two,left,\n".encode("latin-1")
    )
    with pytest.raises(cli.BadData, match="votes.csv: not UTF-8"):
        import_votes.take(tmp_path / "study", tmp_path / "votes.csv")
    with pytest.raises(cli.Missing, match="nothing.csv: cannot be read"):
        import_votes.take(tmp_path / "study", tmp_path / "nothing.csv")
    take(tmp_path, HEADER + "p1,ada,one,two,left,\n")
    with pytest.raises(cli.Missing, match="--scores names a JSONL file"):
        import_votes.take(tmp_path / "study", tmp_path / "votes.csv", tmp_path / "nothing.jsonl")
    (tmp_path / "scores.jsonl").write_text(
        '{"model":"one","id":"p1","scores":{"design":9},"rendered":true,"error_kind":null}\n'
    )
    with pytest.raises(cli.BadData, match="scores.jsonl:1: p1: scores.design is 9"):
        import_votes.take(tmp_path / "study", tmp_path / "votes.csv", tmp_path / "scores.jsonl")


def test_a_maker_is_a_choice_and_rows_that_are_no_votes_are_left_out(tmp_path):
    row = {"prompt": "x", "rater": 5, "left": "one", "right": "two", "choice": "one"}
    rows = [
        {**row, "dimensions": {"design": "right"}, "seconds": 3.5, "at": 1732219200},
        {**row, "kind": "repeat", "choice": "right"},
        {**row, "kind": "gold", "right": "one"},
    ]
    done = take(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "votes.jsonl")
    assert (done["votes"], done["prompts"]) == (1, 1)
    (vote,) = votes(tmp_path)
    keys = ("kind", "prompt", "rater", "choice", "dimensions", "seconds", "at")
    said = ["vote", "x", "5", "left", {"design": "right"}, 3.5, "2024-11-21T20:00:00.000+00:00"]
    assert [vote[key] for key in keys] == said


def test_a_file_comes_once_and_another_is_added(tmp_path):
    first, second = (
        HEADER + "p1,ada,one,two,left,\np1,ada,one,two,left,\n",
        HEADER + "p1,ada,two,one,right,\np2,bob,one,six,tie,\n",
    )
    done = [take(tmp_path, first) for _ in range(2)]
    assert [[one[key] for key in ("votes", "kept")] for one in done] == [[1, 0], [0, 1]]
    done = take(tmp_path, second, "more.csv")
    assert ([done[key] for key in ("votes", "kept")], done["makers"]) == (
        [1, 1],
        ["one", "six", "two"],
    )
    assert len(votes(tmp_path)) == 2
    about = json.loads((tmp_path / "study/study.json").read_text())
    assert about["imported"] == ["votes.csv", "more.csv"]
    study = store.Study(tmp_path / "study")
    study.close()
    study.close_file()
    files = {path: path.read_bytes() for path in (tmp_path / "study").glob("*.json*")}
    with pytest.raises(cli.BadData, match="is closed"):
        take(tmp_path, second.replace("six", "ten"), "third.csv")
    assert files == {path: path.read_bytes() for path in files}


def test_what_vote_tally_writes_of_our_own_studies_can_be_taken(tmp_path):
    runs = [ballots.run(tmp_path / name, prompts=8, slides=3, size=40) for name in ("one", "two")]
    pairs.build(tmp_path / "own", runs, prompts=8, seed=1, gold=0.2, repeats=0.3)
    study, dice = store.Study(tmp_path / "own"), random.Random(1)
    for n in range(6):
        rater = study.rater(study.add_rater(f"person {n}"))
        for pair in study.queue(rater):
            choice = study.pairs[pair]["expect"] or dice.choice(["left", "right", "tie", "bad"])
            said = {} if choice in ("bad", "tie") else {"design": choice}
            study.act(
                "vote",
                rater,
                pair,
                {"choice": choice, "dimensions": said, "seconds": 8, "seen": True},
                key=f"key {pair}",
            )
    own, cast = tally.of_study(study)
    (tmp_path / "votes.jsonl").write_bytes(b"".join(stream.dumps(vote) + b"\n" for vote in cast))
    import_votes.take(tmp_path / "taken", tmp_path / "votes.jsonl")
    found, same = tally.of_study(store.Study(tmp_path / "taken"))
    keys = ("rater", "prompt", "choice", "dimensions", "at")
    said = [
        sorted(([vote[key] for key in keys] for vote in some if vote["kind"] == "vote"), key=str)
        for some in (cast, same)
    ]
    assert said[0] == said[1]
    for key in ("pairs", "models", "raters", "agreement"):
        assert found[key] == own[key], key
    study.close_file()
    with pytest.raises(cli.BadData, match="was made by pair-build"):
        import_votes.take(tmp_path / "own", tmp_path / "votes.jsonl")


def test_nobody_can_vote_where_there_are_no_pictures(tmp_path):
    take(tmp_path, HEADER + "p1,ada,one,two,left,\n")
    with pytest.raises(cli.BadData, match="has imported votes and no pictures"):
        vote_app.serve(tmp_path / "study")
    with pytest.raises(cli.BadData, match="has imported votes"):
        pairs.build(
            tmp_path / "study",
            [ballots.run(tmp_path / name, prompts=1, slides=1, size=40) for name in ("one", "two")],
        )


@pytest.mark.slow
def test_makers_may_have_any_name_that_can_be_seen(tmp_path):
    makers = ["a$x^$|b<script>", "**two** zwölf"]
    take(
        tmp_path,
        HEADER
        + "".join(
            f'p{n},"=cmd, {rater}",{makers[rater % 2]},{makers[1 - rater % 2]},{makers[0]},\n'
            for n in range(8)
            for rater in range(8)
        ),
    )
    study = store.Study(tmp_path / "study")
    found, cast = tally.of_study(study)
    assert found["pairs"][0]["sentence"].startswith(f"{makers[0]} beats {makers[1]} by 1.00 [")
    assert {vote["rater"] for vote in cast} == {f"=cmd, {n}" for n in range(8)}
    study.close_file()


def test_decks_without_scores_are_counted_and_samples_are_averaged(tmp_path):
    rows = [
        ("one", "p1", 2, None),
        ("one", "p1", 4, None),
        ("two", "p1", 3.5, None),
        ("one", "p2", None, "judge"),
    ]
    (tmp_path / "scores.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "model": maker,
                    "id": prompt,
                    "scores": {"design": score},
                    "rendered": True,
                    "error_kind": kind,
                }
            )
            + "\n"
            for maker, prompt, score, kind in rows
        )
    )
    take(
        tmp_path,
        HEADER + "p1,ada,one,two,right,\np2,ada,one,two,left,\np3,ada,two,six,left,\n",
        scores=tmp_path / "scores.jsonl",
    )
    study = store.Study(tmp_path / "study")
    found, without = tally.scores_of(study)
    given = {deck: (one["overall"], one["design"]) for deck, one in found.items()}
    assert (given["one", "p1", 0], given["one", "p2", 0]) == ((3, 3), (None, None))
    assert without == ["six"]
    tallied, _ = tally.of_study(study)
    assert (
        tallied["judge"]["design"]["choice"]["n"] == 1
        and tallied["judge"]["design"]["choice"]["mean"] == 1.0
    )
    study.close_file()


def test_scores_are_weighed_as_their_file_says(tmp_path):
    """Both makers are better in one of two dimensions; which of them the judge prefers is a matter of the weights."""
    for design, prefers in ((0.1, "one"), (0.9, "two")):
        rows = [
            {
                "model": maker,
                "id": "p1",
                "rendered": True,
                "scores": {"content": content, "design": 6 - content},
                "weights": {"content": 1 - design, "design": design},
            }
            for maker, content in (("one", 5), ("two", 1))
        ]
        folder = tmp_path / prefers
        folder.mkdir()
        scores = folder / "scores.jsonl"
        scores.write_text("".join(json.dumps(row) + "\n" for row in rows))
        take(folder, HEADER + "p1,ada,one,two,left,\n", scores=scores)
        study = store.Study(folder / "study")
        judged, _ = tally.scores_of(study)
        assert max(judged, key=lambda deck: judged[deck]["overall"])[0] == prefers
        tallied, _ = tally.of_study(study)
        assert tallied["judge"]["overall"]["choice"]["mean"] == (prefers == "one")
        study.close_file()


def test_a_vote_in_the_future_is_named(tmp_path):
    with pytest.raises(cli.BadData, match="at: '2126-01-01': is in the future by this machine"):
        take(tmp_path, HEADER + "p1,ada,one,two,left,2126-01-01\n")


@pytest.mark.long("tests/study/test_store.py::test_what_was_acknowledged_survives_a_kill")
def test_a_taking_that_is_killed_is_made_good_by_the_next(tmp_path):
    (tmp_path / "votes.csv").write_text(
        HEADER + "".join(f"p{n},ada,one,two,left,\n" for n in range(300))
    )
    code = (
        "import os, signal, sys; from pathlib import Path; from decksmith.core import stream; from decksmith.people.study import import_votes\n"
        "calls, write = [], stream.write\n"
        "def dying(path, data):\n    calls.append(path)\n    len(calls) > int(sys.argv[2]) and os.kill(os.getpid(), signal.SIGKILL)\n    write(path, data)\n"
        "stream.write = dying\nfolder = Path(sys.argv[1])\nimport_votes.take(folder / 'study', folder / 'votes.csv')"
    )
    for writes in (0, 1):
        shutil.rmtree(tmp_path / "study", ignore_errors=True)
        done = subprocess.run(
            [sys.executable, "-c", code, tmp_path, str(writes)],
            env={**os.environ, "PYTHONPATH": str(cli.ROOT / "lib")},
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
        assert import_votes.take(tmp_path / "study", tmp_path / "votes.csv")["votes"] == 300
        assert len(votes(tmp_path)) == 300


def test_the_columns_of_an_arena_are_read_too(tmp_path):
    rows = [
        {
            "question_id": "q1",
            "judge": "ada",
            "model_a": "x",
            "model_b": "y",
            "winner": winner,
            "tstamp": 1763668991.5 + n,
        }
        for n, winner in enumerate(["model_a", "model_b", "tie", "tie (bothbad)"])
    ]
    for n, row in enumerate(rows):
        row["question_id"] = f"q{n}"
    (tmp_path / "arena.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    votes = import_votes.read(tmp_path / "arena.jsonl")
    assert [(vote.prompt, vote.means) for vote in votes] == [
        ("q0", "left"),
        ("q1", "right"),
        ("q2", "tie"),
        ("q3", "bad"),
    ]
    assert all(vote.at for vote in votes)
