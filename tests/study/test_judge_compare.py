"""Judges with planted agreement and planted biases beside planted people: each plant is found, and no other."""

import csv
import json
import random
import shutil
from dataclasses import replace

import pytest
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import identity
from decksmith.measure.results import runs
from decksmith.people.study import import_votes, judge_compare, store

PROMPTS = [f"p{n:03}" for n in range(60)]
MAKERS = ("ada", "bob")


@pytest.fixture(scope="module")
def truth():
    """Which maker's deck is better, and which is longer, of each prompt; the two have nothing to do with each other."""
    random.seed(7)
    return {
        prompt: {"better": random.choice(MAKERS), "longer": random.choice(MAKERS)}
        for prompt in PROMPTS
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory, truth):
    """Six people prefer the better deck in 85 of 100 cases."""
    folder = tmp_path_factory.mktemp("study")
    random.seed(8)
    with open(folder / "votes.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["prompt", "rater", "left", "right", "choice"])
        for prompt in PROMPTS:
            for rater in range(6):
                left, right = random.sample(MAKERS, 2)
                good = truth[prompt]["better"] == left
                rows.writerow(
                    [
                        prompt,
                        rater,
                        left,
                        right,
                        "left" if good == (random.random() < 0.85) else "right",
                    ]
                )
    import_votes.take(folder / "in", folder / "votes.csv", None)
    return store.Study(folder / "in")


def scored(path, prefers):
    """A file of scores of a judge that gives 4 to the deck of `prefers(prompt)` and 2 to the other."""
    with open(path, "w") as file:
        for prompt in PROMPTS:
            for maker in MAKERS:
                scores = {"content": 4 if prefers(prompt) == maker else 2}
                row = {"id": prompt, "model": maker, "rendered": True, "scores": scores}
                file.write(json.dumps(row) + "\n")
    return path


@pytest.fixture(scope="module")
def found(study, truth, tmp_path_factory):
    folder = tmp_path_factory.mktemp("judges")
    random.seed(9)
    coins = {prompt: random.choice(MAKERS) for prompt in PROMPTS}
    judges = [
        judge_compare.read(study, "wise", [scored(folder / "w", lambda p: truth[p]["better"])]),
        judge_compare.read(study, "long", [scored(folder / "l", lambda p: truth[p]["longer"])]),
        judge_compare.read(study, "coin", [scored(folder / "c", coins.get)]),
    ]
    for one in judges:
        one.traits = {
            (maker, prompt, 0): {"words": 200.0 if truth[prompt]["longer"] == maker else 100.0}
            for prompt in PROMPTS
            for maker in MAKERS
        }
    return judge_compare.compare(study, judges)


def judge(found, name):
    return next(one for one in found["judges"] if one["judge"] == name)


def inside(figure, value):
    return figure["lo"] <= value <= figure["hi"]


def test_planted_agreement_is_found_with_its_interval(found):
    assert inside(judge(found, "wise")["agreement"], 0.85)
    assert inside(judge(found, "long")["agreement"], 0.5)
    assert inside(judge(found, "coin")["agreement"], 0.5)
    assert found["people"]["another"]["mean"] < judge(found, "wise")["agreement"]["mean"]


def judged(*rubrics):
    """Runs whose decks were judged by these rubrics."""
    return [{"records": [{"judge": {"rubric": rubric}}]} for rubric in rubrics]


def test_what_is_kept_of_a_judge_stands_in_the_captions_under_its_rubric_and_no_other(
    found, tmp_path, monkeypatch
):
    monkeypatch.setattr(runs, "AGREEMENTS", tmp_path)
    named = [
        {**one, "of": "eye", "rubric": "1f" * 32 if one["judge"] == "wise" else ""}
        for one in found["judges"]
    ]
    judge_compare.keep({**found, "judges": named})
    assert [path.name for path in tmp_path.iterdir()] == [f"{'1f' * 8}.json"]
    share = f"{judge(found, 'wise')['agreement']['mean']:.2f}"
    assert f"a share of {share} [" in runs.agreement_said(judged("1f" * 32))
    assert runs.agreement_said(judged("2f" * 32)) == "not yet compared with people's judgements"
    (tmp_path / f"{'1f' * 8}.json").write_text("{}")
    with pytest.raises(cli.BadData, match="judge-compare --keep writes it anew"):
        runs.agreement_said(judged("1f" * 32))


def test_another_check_is_another_judge_which_nobody_has_held_beside_people(
    found, tmp_path, monkeypatch
):
    """The name stays; what the checks are does not."""
    monkeypatch.setattr(runs, "AGREEMENTS", tmp_path / "judges")
    protocol = Protocol.load("offline")
    before = stream.fingerprint(identity.judging(protocol))
    judge_compare.keep({**found, "judges": [{**found["judges"][0], "rubric": before}]})
    assert "a share of" in runs.agreement_said(judged(before))
    room = tmp_path / "lib/decksmith/measure"
    for name in identity.CHECKING:
        (room / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(cli.ROOT / "lib/decksmith/measure" / name, room / name)
    with open(room / "judging/checks.py", "a") as code:
        code.write("SLIDE_CHECKS['long'] = lambda pages: iter(())\n")
    monkeypatch.setattr(identity.cli, "ROOT", tmp_path)
    identity.checks_code.cache_clear()
    after = stream.fingerprint(identity.judging(protocol))
    monkeypatch.undo()
    identity.checks_code.cache_clear()
    monkeypatch.setattr(runs, "AGREEMENTS", tmp_path / "judges")
    assert after != before
    assert runs.agreement_said(judged(after)) == "not yet compared with people's judgements"


def test_other_limits_of_the_checks_are_another_judge():
    protocol = Protocol.load("offline")
    limits = {**protocol.checks, "words": 151}
    one, other = (identity.judging(each) for each in (protocol, replace(protocol, checks=limits)))
    assert stream.fingerprint(one) != stream.fingerprint(other)


def test_a_planted_bias_to_length_is_found_and_in_no_other_judge(found):
    drawn = {name: judge(found, name)["drawn_to"]["words"] for name in ("wise", "long", "coin")}
    assert drawn["long"]["judge"]["mean"] == 1 and drawn["long"]["difference"]["lo"] > 0.2
    assert inside(drawn["wise"]["difference"], 0)
    assert inside(drawn["coin"]["difference"], 0)


def test_the_sentences_separate_the_judges_that_differ(found):
    said = {(pair["a"], pair["b"]): pair for pair in found["differences"]}
    assert said["wise", "coin"]["verdict"] == said["wise", "long"]["verdict"] == "beats"
    assert said["wise", "coin"]["sentence"].startswith("wise beats coin by 0.")
    assert "share of people's votes that it follows (360 votes)" in said["wise", "coin"]["sentence"]
    assert said["long", "coin"]["verdict"] == "not separated"


MARKS = [
    {"overall": 3, "judge_only": mark, "dimensions": {"content": 3}, "floored": False}
    for mark in (2, 4)
]
CHECKS = [{"checks": 0.4, "floored": False}, {"checks": 0.9, "floored": False}]
FLOORED = [{"checks": None, "floored": True}, {"checks": 0.1, "floored": False}]


def write_runs(folder, truth, worse, better, rubrics=("1f", "1f")):
    """The folders of two runs whose better deck has the score `better`."""
    for maker, rubric in zip(MAKERS, rubrics, strict=True):
        rows = [
            {
                "id": prompt,
                "gen": {"text": "one two"},
                "score": better if truth[prompt]["better"] == maker else worse,
                "judge": {
                    "judge": "eye/v1",
                    "rubric": rubric * 32,
                    "usage": {"cost": 0.25},
                    "by": {"took": 2.0},
                },
            }
            for prompt in PROMPTS
        ]
        (folder / maker).mkdir()
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / maker / "scores.jsonl").write_text("".join(lines))
    return [folder / maker for maker in MAKERS]


@pytest.mark.parametrize("scores", [MARKS, CHECKS, FLOORED], ids=["marks", "checks", "floored"])
def test_a_judge_is_also_read_from_the_runs_that_it_judged(study, truth, tmp_path, scores):
    read = judge_compare.read(study, "eye", write_runs(tmp_path, truth, *scores))
    found = judge_compare.compare(study, [read])
    (report,) = found["judges"]
    assert (report["of"], report["cost"], report["seconds"]) == ("eye/v1", 0.25, 2.0)
    assert report["rubric"] == "1f" * 32
    assert inside(report["agreement"], 0.85)
    text = judge_compare.markdown(found)
    assert "| eye " in text and "another person" in text


def test_decks_that_were_judged_by_two_rubrics_are_no_one_judges(study, truth, tmp_path):
    folders = write_runs(tmp_path, truth, *CHECKS, rubrics=("1f", "2f"))
    with pytest.raises(cli.BadData, match="eye is two judges: this deck was judged by 2f2f"):
        judge_compare.read(study, "eye", folders)


def test_a_judge_of_other_decks_is_named(study, tmp_path):
    path = tmp_path / "other.jsonl"
    path.write_text('{"id":"q1","model":"ada","rendered":true,"scores":{"content":3}}\n')
    with pytest.raises(cli.BadData, match="other: none of the study's pairs has both decks"):
        judge_compare.read(study, "other", [path])
    with pytest.raises(cli.Missing, match="a judge is NAME=a run's folder or a file"):
        judge_compare.read(study, "none", [tmp_path / "none"])
    path.write_text("")
    with pytest.raises(cli.BadData, match=r"other\.jsonl is empty"):
        judge_compare.read(study, "other", [path])
