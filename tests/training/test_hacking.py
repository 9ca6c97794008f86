"""The watch for hacking, on planted curves and planted decks."""

import pytest
from decksmith.core import cli
from decksmith.train.training import hacking


def line(step, reward, checks, error=0.025, **more):
    """A line of a curve; more: {measure: value}."""
    metrics = {
        "reward": {"layout": {"mean": reward, "std_err": 0.02, "num_entries": 8}},
        "checks": {"share": {"mean": checks, "std_err": error, "num_entries": 8}},
        **{name: {"mean": {"value": value}} for name, value in more.items()},
    }
    return {"step": step, "metrics": metrics}


STEADY = {"length": 500, "diversity": 0.9, "adversarial": 0.1}
START = line(0, 0.20, 0.70, **STEADY)


@pytest.mark.parametrize(
    ("last", "kinds"),
    [
        (line(9, 0.60, 0.55, **STEADY), ["held-out"]),
        (line(9, 0.60, 0.65, **STEADY), []),  # within the interval
        (line(9, 0.60, 0.85, **STEADY), []),  # honest: both rise
        (line(9, 0.60, 0.70, length=620, diversity=0.7, adversarial=0.2), []),
        (line(9, 0.24, 0.50, **STEADY), []),  # the reward has hardly risen: worse, but not hacked
        (line(9, 0.10, 0.50, **STEADY), []),
        (line(9, 0.60, 0.72, length=1000, diversity=0.9, adversarial=0.1), ["length"]),
        (line(9, 0.60, 0.72, length=200, diversity=0.9, adversarial=0.1), ["length"]),
        (line(9, 0.60, 0.72, length=500, diversity=0.3, adversarial=0.1), ["diversity"]),
        (line(9, 0.60, 0.72, length=500, diversity=0.9, adversarial=0.5), ["adversarial"]),
        (
            line(9, 0.60, 0.50, length=990, diversity=0.1, adversarial=0.9),
            ["held-out", "length", "diversity", "adversarial"],
        ),
    ],
)
def test_hacking_is_found_and_honest_improvement_is_not(last, kinds):
    findings = hacking.found([last, START], hacking.Rule())  # in any order
    assert [one.kind for one in findings] == kinds
    assert all(
        one.step == 9 and "the reward rose from 0.20 to 0.60" in one.says for one in findings
    )


def test_each_checkpoint_is_compared_with_the_first_and_gaps_are_none():
    curve = [START, {"step": 3, "gap": "failed"}, line(6, 0.5, 0.50), line(9, 0.5, 0.70)]
    assert [one.step for one in hacking.found(curve, hacking.Rule())] == [6]
    assert hacking.found([], hacking.Rule()) == []


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"rize": 1}, "watch.rize is 1: Unexpected keyword argument"),
        ({"rise": "much"}, "watch.rise is 'much': Input should be a valid number"),
        ({"action": "shout"}, "watch.action is 'shout': Input should be 'warn' or 'stop'"),
        ({"held": ["offline"]}, r"watch.held is \['offline'\]: Unexpected keyword argument"),
        (True, "watch is True: Input should be a dictionary"),
    ],
)
def test_a_rule_that_is_none_is_refused_with_its_key(section, said):
    with pytest.raises(cli.BadConfig, match=said):
        hacking.rule(section)


def deck(ident, reward, text, *found):
    """A deck of two slides, with what the checks find on the first one."""
    return {
        "id": f"{ident}~0",
        "gen": {"text": text, "usage": {"completion_tokens": 40}, "sample": {"of": ident, "k": 0}},
        "reward": {"reward": reward, "masked": reward is None},
        "render": {"slides": ["1", "2"]},
        "judge": {"findings": [{"slide": 1, "check": check} for check in found]},
        "score": {"checks": 0.5},
    }


def test_the_measures_of_a_checkpoint_are_means_over_prompts():
    same = "one two three four five"
    decks = [
        deck("a", 0.2, same, "overflow"),
        deck("a", 0.4, same, "echo", "twice"),
        deck("b", 0.9, "six seven eight nine"),
        deck("b", None, "ten eleven twelve thirteen"),
    ]
    found = hacking.measures(decks, "layout")
    assert found["reward"]["layout"] == {"mean": 0.6, "std_err": 0.3, "num_entries": 2}
    assert found["checks"]["share"]["mean"] == 0.5 and found["length"]["tokens"]["mean"] == 40
    assert found["adversarial"]["share"]["mean"] == 0.25
    assert found["diversity"]["distinct"]["mean"] == 0.75  # of a half, of b all
