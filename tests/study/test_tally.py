"""What people's votes say, against tables counted by hand and against planted truths."""

import itertools
import json
import sys
from pathlib import Path
from typing import get_args

import numpy
import pytest
from decksmith.core import cli
from decksmith.people.study import (
    agreement,
    estimates,
    intervals,
    raters,
    records,
    tally,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import bench_tally  # noqa: E402

SIDES = ("left", "right")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 400)


def vote(rater, prompt, left, right, choice, kind="vote", pair=None, **more):
    """A vote as Study.votes() yields it."""
    return {
        "pair": pair or f"{prompt}-{left}-{right}",
        "kind": kind,
        "of": None,
        "expect": None,
        "rater": rater,
        "prompt": prompt,
        "left": left,
        "right": right,
        "choice": choice,
        "dimensions": {},
        "tags": [],
        "seconds": 20.0,
        "seen": True,
        "source": "web",
        "at": "2026-11-21T20:00:00.000+00:00",
        "order": 1,
        **more,
    }


def of_study(found):
    """A tally as that of a study."""
    return {**found, "study": {"title": "Votes"}}


def planted(
    seed, strength, raters=20, prompts=30, each=40, bias=0.0, tie=-0.7, by_prompt=0.4, by_rater=0.4
):
    """Votes whose truth is known: log strengths of models, which raters and prompts shift, an advantage of the left, the log weight of a tie."""
    random, models = numpy.random.default_rng(seed), sorted(strength)
    tastes = [
        {
            kind: random.normal(0, sd, (n, len(models)))
            for kind, n, sd in (("prompt", prompts, by_prompt), ("rater", raters, by_rater))
        }
    ]
    found = []
    for rater in range(raters):
        for at in range(each):
            prompt = (at + rater) % prompts
            a, b = random.choice(len(models), 2, replace=False)
            lean = [
                strength[models[m]] + tastes[0]["prompt"][prompt, m] + tastes[0]["rater"][rater, m]
                for m in (a, b)
            ]
            chance = bench_tally.chances(lean[0] - lean[1] + bias, tie)
            choice = ("left", "right", "tie")[random.choice(3, p=chance)]
            found.append(
                vote(
                    f"r{rater}",
                    f"p{prompt}",
                    models[a],
                    models[b],
                    choice,
                    pair=f"{prompt}-{a}-{b}",
                )
            )
    return list({(one["rater"], one["pair"]): one for one in found}.values())


def fitted(wins, models, prior, monkeypatch):
    """Strengths from `{(left, right): (for left, for right, tied)}` with next to no prior."""
    monkeypatch.setattr(estimates, "PRIOR", prior)
    rows = sorted(wins)
    left, right = numpy.array([[models.index(name) for name in row] for row in rows]).T
    return estimates.fit(
        numpy.array([[wins[row] for row in rows]], dtype=float), left, right, len(models)
    )[0]


# Strengths


def test_two_models_have_the_strengths_that_can_be_counted_by_hand(monkeypatch):
    # a on the left: 4 : 1 : 2, so difference + bias = log 4 and a tie weighs 2 / sqrt(4 * 1); on the right 1 : 1 : 1, so they are equal.
    a, b, bias, tie = fitted(
        {("a", "b"): (40, 10, 20), ("b", "a"): (20, 20, 20)}, ["a", "b"], 1e4, monkeypatch
    )
    assert (a - b, bias, tie) == pytest.approx((numpy.log(2), numpy.log(2), 0), abs=1e-4)
    assert a + b == pytest.approx(0, abs=1e-6)
    assert bench_tally.chances(numpy.log(4), 0.0) == pytest.approx([4 / 7, 1 / 7, 2 / 7])


def test_the_strengths_of_a_published_table_are_found_again(monkeypatch):
    # Baseball, American League 1987, East (Agresti, Categorical Data Analysis, 2nd edition, table 10.10 and its Bradley-Terry fit).
    teams = ["Milwaukee", "Detroit", "Toronto", "New York", "Boston", "Cleveland", "Baltimore"]
    won = [
        [0, 7, 9, 7, 7, 9, 11],
        [6, 0, 7, 5, 11, 9, 9],
        [4, 6, 0, 7, 7, 8, 12],
        [6, 8, 6, 0, 6, 7, 10],
        [6, 2, 6, 7, 0, 7, 12],
        [4, 4, 5, 6, 6, 0, 6],
        [2, 4, 1, 3, 1, 7, 0],
    ]
    half = {
        (teams[i], teams[j]): (won[i][j] / 2, won[j][i] / 2, 0)
        for i, j in itertools.permutations(range(7), 2)
    }
    found = fitted(half, teams, 1e3, monkeypatch)
    assert found[:7] - found[6] == pytest.approx(
        [1.581, 1.436, 1.294, 1.248, 1.108, 0.684, 0], abs=2e-3
    )
    assert found[7] == pytest.approx(0, abs=1e-6)


def test_the_prior_moves_thirty_votes_by_less_than_a_hundredth_of_their_error():
    free = numpy.log(20 / 10)
    a, b, *_ = estimates.fit(
        numpy.array([[[10, 5, 0], [5, 10, 0]]], dtype=float),
        numpy.array([0, 1]),
        numpy.array([1, 0]),
        2,
    )[0]
    error = (1 / 20 + 1 / 10) ** 0.5
    assert abs(a - b - free) < 0.04 * error


def test_planted_strengths_ties_and_bias_lie_in_their_intervals():
    votes = planted(
        1,
        {"base": -0.5, "tuned": 0.5, "other": 0.0},
        raters=40,
        prompts=60,
        bias=0.4,
        by_prompt=0,
        by_rater=0,
    )
    found = estimates.strengths(votes)
    for model, truth in (("base", -0.5), ("tuned", 0.5), ("other", 0.0)):
        assert found["models"][model]["lo"] < truth < found["models"][model]["hi"]
    assert found["bias"]["lo"] < 0.4 < found["bias"]["hi"] and found["bias"]["lo"] > 0
    value, *_ = estimates.fitted(votes, ["base", "other", "tuned"])
    assert value[4] == pytest.approx(-0.7, abs=0.15)  # the log weight of a tie
    (pair,) = [pair for pair in found["pairs"] if (pair["a"], pair["b"]) == ("base", "tuned")]
    assert pair["log_odds"]["lo"] < -1 < pair["log_odds"]["hi"] < 0


@pytest.mark.long("test_the_error_is_that_of_both_clusters_less_their_cells")
@pytest.mark.simulation
def test_about_95_of_100_intervals_hold_the_truth_where_raters_and_prompts_differ():
    held = narrow = 0
    for seed in range(60):
        votes = planted(
            100 + seed,
            {"a": 0.0, "b": 0.0},
            raters=12,
            prompts=20,
            each=20,
            by_prompt=0.8,
            by_rater=0.8,
        )
        value, error, freedom = estimates.fitted(votes, ["a", "b"])
        lo, hi = intervals.ends(value, error, freedom)
        held += lo[4] <= 0 <= hi[4]
        single = intervals.spread(
            lambda s: s[:, :1] / s[:, 1:],
            numpy.array([[records.preferred(v) == "a", 1.0] for v in votes]),
            [{**one, "prompt": at, "rater": "one"} for at, one in enumerate(votes)],
        )
        narrow += (
            abs(
                single[0][0]
                - 0.5
                + sum(records.preferred(v) is None for v in votes) / 2 / len(votes)
            )
            < 1.96 * single[1][0]
        )
    assert held >= 52  # of 60; 57 are expected
    assert narrow < held  # votes that are taken for independent hold it more rarely


def test_the_error_is_that_of_both_clusters_less_their_cells(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 4000)
    random = numpy.random.default_rng(4)
    prompts, people = random.integers(0, 25, 900), random.integers(0, 15, 900)
    values = (
        random.normal(size=900) + random.normal(size=25)[prompts] + random.normal(size=15)[people]
    )
    value, error, freedom = intervals.spread(
        lambda s: s[:, :1] / s[:, 1:],
        numpy.stack([values, numpy.ones(900)], axis=1),
        [{"prompt": a, "rater": b} for a, b in zip(prompts, people, strict=True)],
    )
    off = values - values.mean()

    def clustered(labels):
        sums = numpy.bincount(labels, weights=off)
        return (sums**2).sum() / 900**2 * len(sums) / (len(sums) - 1)

    cells = numpy.unique(prompts * 15 + people, return_inverse=True)[1]
    assert value[0] == pytest.approx(values.mean()) and freedom == 14
    assert error[0] == pytest.approx(
        (clustered(prompts) + clustered(people) - clustered(cells)) ** 0.5, rel=0.06
    )


def test_with_few_raters_prompts_alone_are_resampled_and_the_tally_says_so():
    votes = planted(3, {"a": 0.2, "b": -0.2}, raters=intervals.RATERS - 1, prompts=12, each=12)
    found = tally.tally(votes)
    assert found["resampled"] == "prompts"
    assert "the intervals speak for these people, not for others" in tally.markdown(of_study(found))


def test_the_sentence_itself_says_that_few_people_said_it():
    votes = [vote(f"r{r}", f"p{n}", "a", "b", "left") for r in range(10) for n in range(10)]
    few, enough = (
        [pair["sentence"] for pair in estimates.preferences(some)]
        for some in (votes[: 10 * (intervals.RATERS - 1)], votes)
    )
    assert few[0].startswith("a beats b by 1.00 [") and few[0].endswith(
        "]; this speaks for these 4 people only"
    )
    assert enough[0].startswith("a beats b by 1.00 [") and "only" not in enough[0]
    # Of three models the pair that few people saw says so, and the others do not.
    third = [vote("r0", f"p{n}", "a", "c", ("left", "right")[n % 2]) for n in range(10)]
    said = {pair["b"]: pair["sentence"] for pair in estimates.preferences([*votes, *third])}
    assert said["c"].endswith("; this speaks for one person only") and "only" not in said["b"]


def test_who_saw_a_pair_with_its_sides_the_other_way_round_agrees_all_the_same():
    decks = {"x": {"a": {"overall": 4}, "b": {"overall": 3}}}
    same = [
        vote("r0", "p", "a", "b", "left", pair="x"),
        vote("r1", "p", "b", "a", "right", pair="x"),
        vote("r2", "p", "b", "a", "tie", pair="x"),
    ]
    other = [
        vote("r0", "p", "a", "b", "left", pair="x"),
        vote("r1", "p", "b", "a", "left", pair="x"),
    ]
    assert (
        agreement.of_people(same[:2])["another"]["mean"] == 1.0
        and agreement.of_people(same)["another"]["mean"] == 0.75
    )
    assert agreement.of_people(other)["another"]["mean"] == 0.0
    assert [
        agreement.of_judge(some, decks)["overall"]["choice"]["mean"] for some in (same, other)
    ] == [
        1.0,
        0.5,
    ]


def test_one_prompt_gives_no_interval():
    found = tally.tally(
        [vote(f"r{n}", "p1", "a", "b", "left" if n % 3 else "right") for n in range(12)]
    )
    assert found["pairs"][0]["share"] == {"mean": 0.6667, "lo": None, "hi": None, "n": 12}
    assert (
        found["pairs"][0]["sentence"]
        == "a and b: inconclusive (1 shared prompt, at least 6 are needed; difference 0.33)"
    )


def test_where_all_agree_the_interval_is_not_of_no_width():
    # 10 prompts, all for a: the lower end is the share of which ten in a row have a chance of 2.5 %.
    (pair,) = estimates.preferences([vote("r", f"p{n}", "a", "b", "left") for n in range(10)])
    assert pair["share"] == {"mean": 1.0, "lo": round(0.025**0.1, 4), "hi": 1.0, "n": 10}
    assert pair["sentence"] == "a beats b by 1.00 [0.38, 1.00]; this speaks for one person only"


# Where strengths are not finite


def test_a_model_that_never_won_has_no_strength_and_the_tally_says_why():
    votes = planted(5, {"a": 0.0, "b": 0.0}, raters=6, prompts=10, each=10)
    votes += [
        vote(f"r{r}", f"p{p}", *names, side)
        for r in range(6)
        for p in range(10)
        for names, side in ((("a", "poor"), "left"),)
    ]
    found = tally.tally(votes)
    assert found["strengths"]["groups"] in ([["a", "b"], ["poor"]], [["poor"], ["a", "b"]])
    assert (
        found["strengths"]["models"]["poor"]["mean"] is None
        and found["strengths"]["models"]["a"]["mean"] is not None
    )
    assert [(pair["a"], pair["b"]) for pair in found["strengths"]["pairs"]] == [("a", "b")]
    text = tally.markdown(of_study(found))
    assert "The votes do not join all models" in text and "| poor | – |" in text
    # What was counted stands all the same.
    (pair,) = [pair for pair in found["pairs"] if pair["b"] == "poor" and pair["a"] == "a"]
    assert (pair["for_a"], pair["share"]["mean"], pair["verdict"]) == (60, 1.0, "beats")


def test_one_tie_joins_what_would_fall_apart():
    votes = [vote("r", f"p{n}", "a", "b", "left") for n in range(8)]
    assert estimates.groups(votes, ["a", "b"]) in ([["a"], ["b"]], [["b"], ["a"]])
    assert estimates.groups([*votes, vote("r", "p9", "a", "b", "tie")], ["a", "b"]) == [["a", "b"]]


def test_models_that_never_met_are_in_groups_of_their_own():
    votes = [
        vote("r", f"p{n}", *names, side)
        for n in range(8)
        for names in (("a", "b"), ("c", "d"))
        for side in SIDES
    ]
    assert sorted(estimates.groups(votes, list("abcd"))) == [["a", "b"], ["c", "d"]]
    found = estimates.strengths(votes)
    assert [(pair["a"], pair["b"]) for pair in found["pairs"]] == [
        ("a", "b"),
        ("c", "d"),
    ]


# Counting


def test_preferences_are_counted_whatever_side_a_model_was_on():
    votes = [
        vote("r1", "p1", "a", "b", "left"),
        vote("r2", "p1", "b", "a", "right"),
        vote("r1", "p2", "b", "a", "left"),
        vote("r2", "p2", "a", "b", "tie"),
        vote("r1", "p3", "a", "b", "bad"),
    ]
    (pair,) = estimates.preferences(votes)
    assert {key: pair[key] for key in ("a", "b", "votes", "for_a", "for_b", "tied", "bad")} == {
        "a": "a",
        "b": "b",
        "votes": 5,
        "for_a": 2,
        "for_b": 1,
        "tied": 1,
        "bad": 1,
    }
    assert pair["share"]["mean"] == 0.6 and pair["difference"]["mean"] == 0.2


def test_the_sentences_are_those_of_claims_with_one_family_of_pairs():
    votes = planted(6, {"a": 1.2, "b": -1.2, "c": -1.2}, raters=20, prompts=30, each=60)
    said = [pair["sentence"] for pair in estimates.preferences(votes)]
    assert (
        said[0].startswith("a beats b by 0.")
        and said[1].startswith("a beats c by 0.")
        and said[2].startswith("b is not separated from c")
    )
    assert {pair["family"] for pair in estimates.preferences(votes)} == {3}


def test_both_bad_is_no_preference_and_is_counted_with_each_model():
    votes = planted(7, {"a": 0.5, "b": -0.5}, raters=10, prompts=12, each=12)
    bad = [vote(f"r{r}", f"q{n}", "a", "b", "bad") for r in range(10) for n in range(6)]
    found = tally.tally(votes + bad)
    share = 60 / (len(votes) + 60)
    assert found["models"]["a"]["bad"]["mean"] == pytest.approx(share, abs=1e-3)
    (alone,) = estimates.preferences(votes)
    assert abs(found["pairs"][0]["difference"]["mean"]) < abs(alone["difference"]["mean"])


def test_gold_repeats_and_unseen_decks_are_in_no_strength():
    votes = planted(8, {"a": 0.5, "b": -0.5}, raters=8, prompts=10, each=10)
    more = [
        vote("r0", "p1", "a", "a", "left", kind="gold", pair="g1", expect="left"),
        vote("r0", "p1", "b", "a", "left", kind="repeat", pair="x", of="1-0-1"),
        vote("r0", "p99", "a", "b", "left", seen=False),
    ]
    plain, found = tally.tally(votes), tally.tally(votes + more)
    assert found["strengths"] == plain["strengths"] and found["pairs"] == plain["pairs"]
    assert (found["votes"]["gold"], found["votes"]["repeats"], found["votes"]["unseen"]) == (
        1,
        1,
        1,
    )


def test_without_a_vote_that_counts_nothing_is_said():
    with pytest.raises(cli.BadData, match="no vote counts"):
        tally.tally([])


# Raters


def of_rater(name, failed, of, against, turned, seconds=20.0):
    """Votes of one rater who failed so many gold items and turned so many repeats round."""
    found = [
        vote(
            name,
            f"g{n}",
            "a",
            "a",
            "right" if n < failed else "left",
            kind="gold",
            pair=f"g{n}",
            expect="left",
            seconds=seconds,
        )
        for n in range(of)
    ]
    for n in range(turned):
        found += [
            vote(name, f"p{n}", "a", "b", "left", pair=f"v{n}", seconds=seconds),
            vote(
                name,
                f"p{n}",
                "b",
                "a",
                "left" if n < against else "right",
                kind="repeat",
                pair=f"w{n}",
                of=f"v{n}",
                seconds=seconds,
            ),
        ]
    return found


@pytest.mark.parametrize(
    ("failed", "of", "against", "turned", "seconds", "why"),
    [
        (1, 3, 0, 4, 20, None),
        (2, 3, 0, 4, 20, "failed 2 of 3 gold items"),
        (2, 2, 0, 4, 20, None),
        (0, 4, 4, 5, 20, None),
        (0, 4, 4, 4, 20, None),
        (0, 4, 5, 5, 20, "chose the other deck in all of 5 swapped repeats"),
        (0, 0, 3, 3, 20, None),
        (0, 3, 0, 2, 1.4, "median of 1.4 s a vote"),
        (
            3,
            3,
            5,
            5,
            1.0,
            "failed 3 of 3 gold items and chose the other deck in all of 5 swapped repeats and median of 1.0 s a vote",
        ),
    ],
)
def test_a_rater_is_left_out_by_the_rule_alone(failed, of, against, turned, seconds, why):
    (found,) = raters.summaries(of_rater("r", failed, of, against, turned, seconds))
    assert found["excluded"] == why
    assert found["gold"] == {"n": of, "failed": failed}
    assert found["repeats"] == {"n": turned, "same": turned - against, "against": against}


def test_votes_of_raters_who_are_left_out_are_counted_and_change_nothing():
    votes = planted(9, {"a": 1.0, "b": -1.0}, raters=10, prompts=12, each=12, tie=-3)
    careless = [
        {**one, "rater": f"x{one['rater']}", "choice": "left", "seconds": 0.5} for one in votes[:60]
    ]
    found = tally.tally(votes + careless)
    assert found["votes"]["of_raters_left_out"] == 60 and found["raters"] == 10
    assert found["pairs"] == tally.tally(votes)["pairs"]


# Agreement


def test_alpha_is_that_of_a_published_example():
    # Krippendorff 2011, Computing Krippendorff's Alpha-Reliability, example A: two observers, binary data, alpha = 0.095.
    first, second = "0100000010", "1110010000"
    votes = [
        vote(name, f"p{n}", "a", "b", SIDES[int(said[n])])
        for name, said in (("x", first), ("y", second))
        for n in range(10)
    ]
    found = agreement.of_people(votes)
    assert found["pairs"] == 10
    assert found["alpha"] == pytest.approx(0.095, abs=5e-4)


def test_how_often_another_person_agrees_can_be_counted_by_hand():
    # Of three people two say left and one right: each left agrees with one of two others, the right with none.
    votes = [
        vote("x", "p1", "a", "b", "left"),
        vote("y", "p1", "a", "b", "left"),
        vote("z", "p1", "a", "b", "right"),
        vote("x", "p2", "a", "b", "left"),
    ]
    found = agreement.of_people(votes)
    assert found["another"]["mean"] == pytest.approx(1 / 3, abs=1e-4) and found["another"]["n"] == 3


@pytest.mark.simulation
@pytest.mark.parametrize("tie", [-9.0, 0.0])
def test_a_judge_who_knows_what_most_people_prefer_is_above_another_person(tie):
    random, votes, decks = numpy.random.default_rng(3), [], {}
    for prompt in range(300):
        lean = random.normal(0, 1.5)
        decks[f"p{prompt}-a-b"] = {"a": {"overall": 3 + lean}, "b": {"overall": 3.0}}
        chance = bench_tally.chances(lean, tie)
        votes += [
            vote(
                f"r{(prompt + k) % 9}",
                f"p{prompt}",
                "a",
                "b",
                ("left", "right", "tie")[random.choice(3, p=chance)],
            )
            for k in range(3)
        ]
    found, shared = (
        agreement.of_people(votes),
        agreement.of_judge(votes, decks)["overall"]["shared"],
    )
    assert found["another"]["hi"] < shared["mean"] < 1
    text = tally.markdown(of_study(tally.tally(votes, decks)))
    assert "Another person is no ceiling" in text and "are the ceiling" not in text


def test_where_nobody_shared_a_pair_no_agreement_is_claimed():
    found = agreement.of_people(
        [vote("x", "p1", "a", "b", "left"), vote("y", "p2", "a", "b", "left")]
    )
    assert (
        found["pairs"] == 0
        and found["alpha"] is None
        and found["another"] == {"mean": None, "lo": None, "hi": None, "n": 0}
    )


def test_where_everybody_always_says_the_same_alpha_is_unknown():
    found = agreement.of_people(
        [vote(name, f"p{n}", "a", "b", "left") for name in "xy" for n in range(8)]
    )
    assert found["alpha"] is None and found["another"]["mean"] == 1.0


# The judge


def test_the_judge_s_agreement_can_be_counted_by_hand():
    decks = {
        "p1-a-b": {"a": {"overall": 4, "design": 3}, "b": {"overall": 3, "design": 3}},
        "p2-a-b": {"a": {"overall": 2, "design": 5}, "b": {"overall": 3, "design": 1}},
        "p3-a-b": {"a": {"overall": None, "design": 1}, "b": {"overall": 3, "design": 2}},
    }
    votes = [
        vote("x", "p1", "a", "b", "left", dimensions={"design": "left"}),
        vote("x", "p2", "a", "b", "left", dimensions={"design": "tie"}),
        vote("x", "p3", "a", "b", "right"),
        vote("x", "p4", "a", "b", "left"),
        vote("y", "p1", "a", "b", "tie"),
    ]
    found = agreement.of_judge(votes, decks)
    assert (found["overall"]["choice"]["mean"], found["overall"]["choice"]["n"]) == (0.5, 2)
    assert found["design"]["choice"]["mean"] == pytest.approx((0.5 + 1 + 1) / 3, abs=1e-4)
    assert (found["design"]["own"]["mean"], found["design"]["own"]["n"]) == (0.5, 1)
    assert (found["overall"]["shared"]["mean"], found["overall"]["shared"]["n"]) == (1.0, 1)


# Files


def test_equal_votes_give_an_equal_tally():
    votes = planted(13, {"a": 0.5, "b": -0.5}, raters=8, prompts=10, each=10)
    first, second = tally.tally(votes), tally.tally(votes)
    assert json.dumps(first) == json.dumps(second)


def test_what_is_taken_is_what_the_page_offers():
    for taken, offered in (
        (records.Choice, records.CHOICES),
        (records.Dimension, records.DIMENSIONS),
        (records.Tag, records.TAGS),
    ):
        assert get_args(taken) == tuple(offered)
