"""Votes on some prompts and a judge on all: a judge that follows people narrows the interval, one that does not changes nothing."""

import sys
from pathlib import Path

import numpy
import pytest
from decksmith.core import cli
from decksmith.people.study import import_votes, intervals, predicted, store

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bench_tally  # noqa: E402


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 200)


def shares(follows, repeats=25, **design):
    """Means of width over the votes' own and of what the judge moved, over some studies."""
    found = [
        predicted.predict(
            "a",
            "b",
            *bench_tally.judged(numpy.random.default_rng(seed), follows=follows, net=0.2, **design),
        )
        for seed in range(repeats)
    ]
    widths = [
        (one["joined"]["hi"] - one["joined"]["lo"]) / (one["alone"]["hi"] - one["alone"]["lo"])
        for one in found
    ]
    return float(numpy.mean(widths)), found


DESIGN = {"prompts": 300, "voted": 40, "raters": 12}


def test_a_judge_that_follows_people_saves_votes_and_one_that_does_not_costs_next_to_none():
    narrow, good = shares(0.95, **DESIGN)
    wide, junk = shares(0.0, **DESIGN)
    assert narrow < 0.9 < 0.98 < wide < 1.05
    assert numpy.median([one["saved"] for one in good]) > 20
    assert numpy.median([one["saved"] for one in junk]) < 5


def test_a_judge_that_prefers_what_people_do_not_still_helps_as_its_weight_is_fitted():
    rng = numpy.random.default_rng(3)
    signs, votes, gaps = bench_tally.judged(rng, follows=0.95, net=0.2, **DESIGN)
    plain = predicted.predict("a", "b", signs, votes, gaps)
    turned = predicted.predict(
        "a", "b", signs, votes, {prompt: -7 * gap for prompt, gap in gaps.items()}
    )
    assert turned["weight"] < 0 < plain["weight"]
    assert turned["joined"] == plain["joined"]


def test_voted_prompts_that_the_judge_favours_are_no_gain():
    """The judge says the voted prompts are unlike the rest, and people follow it: the share moves to what the rest would say."""
    signs = [1] * 15 + [-1] * 5
    votes = [{"prompt": f"p{n}", "rater": f"r{n % 7}"} for n in range(20)]
    gaps = {f"p{n}": 1.0 if n < 15 else -1.0 for n in range(20)}
    gaps |= {f"q{n}": (-1.0) ** n for n in range(400)}
    found = predicted.predict("a", "b", signs, votes, gaps)
    assert found["alone"]["mean"] == 0.75
    assert abs(found["joined"]["mean"] - 0.5) < 0.03


def test_without_prompts_beyond_the_votes_the_votes_stand_alone():
    signs, votes, gaps = bench_tally.judged(numpy.random.default_rng(1), 20, 20, 6, 0.9, 0.2)
    found = predicted.predict("a", "b", signs, votes, gaps)
    assert found["joined"] == found["alone"] and found["saved"] == 0


def test_how_many_votes_would_tell_is_found_by_voting():
    """As many votes more as it says tell the two apart in most studies of that size."""
    told = 0
    for seed in range(20):
        rng = numpy.random.default_rng([seed, 8])
        signs = rng.choice([1, -1, 0], 60, p=[0.5, 0.3, 0.2])
        votes = [{"prompt": f"p{n}", "rater": f"r{n}"} for n in range(60)]
        found = predicted.predict("a", "b", signs, votes, {})
        if found["more"]:
            n = 60 + found["more"]
            again = rng.choice(
                [1, -1, 0], n, p=numpy.array([(signs == s).mean() for s in (1, -1, 0)])
            )
            more = [{"prompt": f"p{k}", "rater": f"r{k}"} for k in range(n)]
            told += predicted.predict("a", "b", again, more, {})["more"] == 0
        else:
            told += found["more"] == 0
    assert told >= 13


def test_votes_on_other_models_are_named(tmp_path):
    (tmp_path / "votes.csv").write_text("prompt,rater,left,right,choice\np1,ada,one,two,left\n")
    import_votes.take(tmp_path / "in", tmp_path / "votes.csv", None)
    study = store.finished(tmp_path / "in")
    run = {"path": tmp_path / "x", "name": "three", "label": "three", "records": []}
    with pytest.raises(cli.BadData, match="it has one, two"):
        predicted.of_study(study, [run, {**run, "name": "four", "label": "four"}])


def test_votes_that_all_agree_tell_and_a_judge_without_their_prompts_is_not_said_to_have_helped():
    votes = [{"prompt": f"p{n}", "rater": f"r{n}"} for n in range(8)]
    found = predicted.predict("a", "b", [1] * 8, votes, {f"q{n}": n % 5 for n in range(100)})
    assert found["more"] == 0 and found["alone"]["lo"] > 0.5
    said = predicted.sentences([found])
    assert "That tells them apart" in said and "8 prompts alone" in said and "108" not in said
