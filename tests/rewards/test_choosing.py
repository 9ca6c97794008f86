"""Which of several samples is kept, and what all of them took."""

import dataclasses

from decksmith.measure.decks import conditions
from decksmith.measure.results import usage
from decksmith.train.rewards import choosing

BEST = conditions.load("best-of-4")
JUDGED = dataclasses.replace(BEST, samples={"n": 3, "choose": "judge"})


def sample(k, overall=None, prompt="p1", **more):
    usage = {"prompt_tokens": 10, "completion_tokens": 100, "reasoning_tokens": 0, "cost": 0.5}
    gen = {"sample": {"of": prompt, "k": k}, "usage": usage, "by": {"latency": 2.0}}
    score = {} if overall is None else {"score": {"overall": overall}}
    return {"id": f"{prompt}~{k}", "gen": gen, **more, **score}


def test_the_best_by_the_rule_goes_by_its_prompts_id_and_what_all_took_is_added_up():
    failed = sample(0, 5.0, render={"error": {"kind": "model", "class": "x", "message": "y"}})
    (kept,) = choosing.chosen([failed, sample(1, 2.0), sample(2, 2.0)], JUDGED, ".")
    assert (kept["id"], kept["choose"]["k"]) == ("p1", 1)  # the first of equals
    assert kept["choose"]["worth"] == [None, 2.0, 2.0]
    assert kept["choose"]["spent"] == {
        "prompt_tokens": 30,
        "completion_tokens": 300,
        "reasoning_tokens": 0,
        "cost": 1.5,
        "seconds": 6.0,
    }
    assert usage.of(kept) == kept["choose"]["spent"]


def test_the_offline_judge_chooses_by_the_share_of_checks():
    found = [{**sample(k), "score": {"checks": share}} for k, share in enumerate((0.5, 0.9, 0.7))]
    (kept,) = choosing.chosen(found, JUDGED, ".")
    assert kept["choose"]["k"] == 1 and kept["choose"]["worth"] == [0.5, 0.9, 0.7]


def test_a_sample_that_was_lost_through_no_fault_of_its_model_leaves_the_prompt_undecided():
    lost = sample(1, gen={"error": {"kind": "infra", "class": "timeout", "message": "late"}})
    lost["gen"]["sample"] = {"of": "p1", "k": 1}
    (kept,) = choosing.chosen([sample(0, 2.0), {**lost, "score": {}}, sample(2, 3.0)], JUDGED, ".")
    assert kept["choose"]["error"]["kind"] == "infra"
    (short,) = choosing.chosen([sample(0, 2.0), sample(1, 3.0)], JUDGED, ".")
    assert short["choose"]["error"]["class"] == "samples-missing"


def test_what_the_judge_chooses_passes_until_it_is_judged_and_what_was_chosen_passes():
    early = [sample(k) for k in range(3)]
    assert [*choosing.chosen(early, JUDGED, ".")] == early
    kept = {**sample(0, 3.0), "id": "p1", "choose": {}}
    assert [*choosing.chosen([kept], BEST, ".")] == [kept]
