import copy
import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from decksmith.core import cli
from decksmith.measure.results import power, runs, stats, summary

sys.path[:0] = [
    str(Path(__file__).resolve().parents[1]),
    str(Path(__file__).resolve().parents[1] / "web"),
]
import bench_stats  # noqa: E402
import synthetic  # noqa: E402


def test_components_of_a_balanced_case_are_what_one_computes_by_hand():
    # Two prompts, two samples, two judgings. Judge: mean square 2 (differences of 2). Sample: means 2, 4 | 6, 8 vary by 2, less 2/2.
    # Prompt: means 3, 7 vary by 8, less 1/2 for the samples and 2/4 for the judgings.
    scores = {"a": [[1, 3], [3, 5]], "b": [[5, 7], [7, 9]]}
    parts = power.components([scores])
    assert replace(parts, spread=None) == power.Parts(None, 7.0, 1.0, 2.0, n=2)
    assert power.deviation(parts, 2, 4) ** 2 == pytest.approx(2 * (7 + 1 / 2 + 2 / 8))


def test_what_two_models_find_hard_together_cancels():
    random = numpy.random.default_rng(1)
    hard = numpy.linspace(-1.7, 1.7, 400)  # variance 0.97
    a, b = ({str(i): [[hard[i] + random.normal(0, 0.3)]] for i in range(400)} for _ in range(2))
    alone, together = power.components([a]), power.components([a, b])
    assert alone.interaction == pytest.approx(0.97 + 0.09, rel=0.1)
    assert together.interaction == pytest.approx(
        0.09, rel=0.2
    ) and together.prompt == pytest.approx(0.97, rel=0.1)
    assert together.sample is None and together.judge is None


def test_components_are_right_on_average_when_cells_have_unequal_sizes():
    random, found = numpy.random.default_rng(2), []
    for _ in range(60):
        models = []
        common = random.normal(0, 0.5, 40)
        for _ in range(2):
            own = common + random.normal(0, 0.4, 40)
            models.append(
                {
                    str(p): [
                        [
                            own[p] + sample + judging
                            for judging in random.normal(0, 0.3, random.integers(1, 4))
                        ]
                        for sample in random.normal(0, 0.6, random.integers(1, 5))
                    ]
                    for p in range(40)
                }
            )
        found.append(power._moments(power._cells(models), None))
    names = ("prompt", "interaction", "sample", "judge")
    means = {name: numpy.mean([getattr(parts, name) for parts in found]) for name in names}
    assert means == pytest.approx(
        {"prompt": 0.25, "interaction": 0.16, "sample": 0.36, "judge": 0.09}, rel=0.15
    )


def test_a_known_judge_noise_is_taken_out_of_what_it_would_hide_in():
    scores = {
        str(p): [[float(value)], [float(value) + 1]]
        for p, value in enumerate([1, 2, 3, 4, 5, 2, 3])
    }
    without, known = power.components([scores]), power.components([scores], judge=0.2)
    assert known.sample == pytest.approx(
        without.sample - 0.2
    ) and known.interaction == pytest.approx(without.interaction)
    assert (without.judge, known.judge) == (None, 0.2)
    assert power.deviation(known) == pytest.approx(power.deviation(without)) and power.deviation(
        known, 1, 3
    ) < power.deviation(known)


@pytest.mark.simulation
def test_the_planned_effect_is_within_ten_percent_of_the_simulated_one():
    parts = bench_stats.pilot(numpy.random.default_rng(3), 400, samples=2, judgings=2)
    for n, k in ((30, 1), (60, 2)):
        planned = stats.mde(power.deviation(parts, k), n)
        assert bench_stats.simulated_mde(n, k, near=planned, repeats=400) == pytest.approx(
            planned, rel=0.10
        )


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        synthetic.run(folder / name, name, skill, 24, slides_too=False)
        for name, skill in (("smol", 0.8), ("gpt-5.4", 0.9))
    ]


def test_a_plan_counts_requests_price_and_time_by_what_was_measured(pair):
    found = power.plan(runs.load([pair[1]]), effect=0.5)
    design = next(design for design in found.designs if design.reaches)
    n = design.prompts
    assert n == stats.needed(0.5, power.deviation(found.parts)) and design.mde <= 0.5
    assert (design.samples, design.judgings, design.requests) == (1, 1, n)
    # Every stage of every synthetic record took the same two seconds, at once.
    assert (design.cost, design.seconds) == pytest.approx((n * 0.002, n * 2 / 24))


def test_cheaper_designs_than_the_one_that_reaches_the_effect_miss_it(pair):
    designs = power.plan(runs.load(pair), effect=0.3).designs
    reaches = [design.reaches for design in designs]
    assert reaches == sorted(reaches) and 0 < sum(reaches) < len(reaches)
    assert reaches == [design.mde <= 0.3 + 1e-6 for design in designs]
    assert [design.cost for design in designs] == sorted(design.cost for design in designs)


def test_equal_replies_of_one_model_are_judged_again_and_others_are_further_samples(pair):
    (run,) = runs.load([pair[0]])
    again, other = copy.deepcopy(run), copy.deepcopy(run)
    for record in other["records"]:
        record["gen"]["text"] = record["gen"].get("text", "") + "!"
    assert {tuple(map(len, cells)) for cells in power._scores([run, again]).values()} == {(2,)}
    assert {tuple(map(len, cells)) for cells in power._scores([run, other]).values()} == {(1, 1)}
    assert (
        power._scores([run, again]).keys()
        == summary.columns(run["records"], "floor")["overall"].keys()
    )


def test_a_vision_judge_adds_its_requests_and_its_price_and_judging_again_tells_its_noise(pair):
    loaded = [*runs.load(pair), *runs.load(pair)]
    dice = numpy.random.default_rng(4)
    for run in loaded:
        run["protocol"]["judge"] = {"kind": "vision", "model": "judge"}
        for record in run["records"]:
            if "judge" in record and "error" not in record["judge"]:
                usage = {"prompt_tokens": 5000, "completion_tokens": 500, "cost": 0.01}
                record["judge"]["usage"] = usage
                record["score"]["overall"] += dice.normal(0, 0.3)
    judged = [
        r for run in loaded for r in run["records"] if "error" not in r.get("judge", {"error": 0})
    ]
    share = len(judged) / 96
    found = power.plan(loaded)
    assert found.parts.judge == pytest.approx(0.09 * share, rel=0.5)  # floored decks are not judged
    one, three = (
        next(d for d in found.designs if (d.prompts, d.samples, d.judgings) == (60, 1, r))
        for r in (1, 3)
    )
    assert three.mde < one.mde
    assert (one.requests, three.requests) == (round(120 + 120 * share), round(120 + 360 * share))
    assert three.cost - one.cost == pytest.approx(120 * 2 * share * 0.01)
    unknown = power.plan(loaded[:2])
    assert unknown.parts.judge is None
    assert any("judge's own noise is unknown" in note for note in unknown.notes)


def test_an_unknown_price_is_said(pair):
    loaded = runs.load([pair[1]])
    for record in loaded[0]["records"]:
        record["gen"].get("usage", {})["cost"] = None
    text = power.markdown(power.plan(loaded))
    assert "| unknown | 2 s |" in text
    assert "- gpt-5.4: the price is unknown: no `price` in assets/models.toml" in text


def test_runs_that_cannot_carry_a_plan_are_refused_in_words(pair, tmp_path):
    few = synthetic.run(tmp_path / "smol", "smol", 0.99, 5, slides_too=False)
    with pytest.raises(
        cli.BadData, match="^SmolLM2 135M: [0-5] prompts with a score; a plan needs at least 6$"
    ):
        power.plan(runs.load([few]))
    loaded = runs.load(pair)
    loaded[1]["summary"]["rendered"] = 0
    found = power.plan(loaded)
    assert found.models == ["GPT-5.4"]
    assert (
        found.notes[0]
        == "SmolLM2 135M is left out: none of its decks rendered, so its scores do not vary."
    )
    with pytest.raises(
        cli.BadData, match="^SmolLM2 135M: no deck rendered, so every score is the floor"
    ):
        power.plan(loaded[1:])
    loaded = runs.load([pair[0]])
    for record in loaded[0]["records"]:
        record["score"]["overall"] = 3.0
    with pytest.raises(cli.BadData, match="the scores do not vary"):
        power.plan(loaded)


def test_one_sample_and_one_model_are_said_to_be_what_they_are(pair):
    text = power.markdown(power.plan(runs.load([pair[0]])))
    assert (
        "prompt and sample cannot be told apart" in text
        and "upper bound" in text
        and "| Prompt, with sample |" in text
    )
    assert "upper bound" not in power.markdown(power.plan(runs.load(pair)))
