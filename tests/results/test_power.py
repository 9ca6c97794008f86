import copy
import sys
from pathlib import Path

import numpy
import pytest
from decksmith.core import cli
from decksmith.measure.results import power, runs, stats

sys.path[:0] = [
    str(Path(__file__).resolve().parents[1]),
    str(Path(__file__).resolve().parents[1] / "web"),
]
import bench_stats  # noqa: E402
import synthetic  # noqa: E402


def test_the_deviation_is_that_of_the_differences_by_prompt_counted_by_hand():
    a, b = {"p": 1.0, "q": 2.0, "r": 5.0, "only": 1.0}, {"p": 2.0, "q": 2.0, "r": 3.0}
    # Differences -1, 0, 2: their variance is 7 / 3.
    both = power.deviation([a, b])
    assert both.n == 3 and both.value**2 == pytest.approx(7 / 3)
    # Of one model alone: values 1, 2, 5, 1 vary by 43 / 12, and two such models by twice that.
    assert power.deviation([a]).value ** 2 == pytest.approx(2 * 43 / 12)


def test_what_two_models_find_hard_together_cancels():
    random = numpy.random.default_rng(1)
    hard = numpy.linspace(-1.7, 1.7, 400)  # variance 0.97
    a, b = ({str(i): hard[i] + random.normal(0, 0.3) for i in range(400)} for _ in range(2))
    assert power.deviation([a]).value ** 2 == pytest.approx(2 * (0.97 + 0.09), rel=0.1)
    assert power.deviation([a, b]).value ** 2 == pytest.approx(2 * 0.09, rel=0.2)


@pytest.mark.simulation
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(cell, marks=[] if n in (0, 6) else pytest.mark.long)
        for n, cell in enumerate(bench_stats.PROMISES)
    ],
)
def test_the_promised_power_is_within_three_points_of_the_one_found(cell):
    promised, found = bench_stats.promise(cell)
    assert abs(promised - found) < 0.03


def test_domains_that_agree_are_seen_and_prompts_that_stand_alone_are_not_blamed_on_them():
    random = numpy.random.default_rng(2)
    lean = numpy.repeat(random.normal(0, 1, 20), 6)
    gap = dict(enumerate(lean + random.normal(0, 1, 120)))
    none = dict.fromkeys(gap, 0.0)
    domains, alike = power.between_domains([gap, none], {n: f"d{n // 6}" for n in gap})
    assert domains == 20 and alike == pytest.approx(0.5, abs=0.15)
    assert power.between_domains([gap, none], dict.fromkeys(gap)) == (0, 0.0)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        synthetic.run(folder / name, name, skill, 24, slides_too=False)
        for name, skill in (("smol", 0.8), ("gpt-5.4", 0.9))
    ]


def test_a_plan_counts_requests_price_and_time_by_what_was_measured(pair):
    found = power.plan(runs.load([pair[1]]), effect=0.1)
    design = next(design for design in found.designs if design.reaches)
    n = design.prompts
    sd = found.deviation.value
    assert n == stats.smallest_sample(lambda n: stats.power(0.1, sd, n, found.expected))
    assert design.mde <= 0.1
    assert design.requests == n
    # Every stage of every synthetic record took the same two seconds, at once.
    assert (design.cost, design.seconds) == pytest.approx((n * 0.002, n * 2 / 24))


def test_cheaper_designs_than_the_one_that_reaches_the_effect_miss_it(pair):
    designs = power.plan(runs.load(pair), effect=0.1).designs
    reaches = [design.reaches for design in designs]
    assert reaches == sorted(reaches) and 0 < sum(reaches) < len(reaches)
    assert reaches == [design.mde <= 0.1 + 1e-6 for design in designs]
    assert [design.cost for design in designs] == sorted(design.cost for design in designs)


def test_replies_of_further_runs_of_one_model_are_averaged_and_paid_for(pair):
    (run,) = runs.load([pair[0]])
    one, two = power.plan([run]), power.plan([run, copy.deepcopy(run)])
    assert one.deviation == two.deviation
    for design, twice in zip(one.designs, two.designs, strict=True):
        assert twice.requests == 2 * design.requests
        assert twice.cost == pytest.approx(2 * design.cost)


def test_a_vision_judge_adds_its_requests_and_its_price(pair):
    loaded = runs.load(pair)
    for run in loaded:
        run["protocol"]["judge"] = {"kind": "vision", "model": "judge"}
        for record in run["records"]:
            if "judge" in record and "error" not in record["judge"]:
                usage = {"prompt_tokens": 5000, "completion_tokens": 500, "cost": 0.01}
                record["judge"]["usage"] = usage
                record["score"]["overall"] = 1 + 4 * record["score"].pop("checks")
    judged = [
        r for run in loaded for r in run["records"] if "error" not in r.get("judge", {"error": 0})
    ]
    share = len(judged) / 48  # floored decks are not judged
    design = next(d for d in power.plan(loaded).designs if d.prompts == 60)
    assert design.requests == round(120 + 120 * share)
    assert design.cost == pytest.approx(120 * (0.002 + share * 0.01))
    record = next(r for r in judged if "usage" in r["judge"])
    record["judge"]["usage"]["cost"] = None
    unknown = power.plan(loaded)
    assert unknown.designs[0].cost is None
    assert any("(the judge): the price is unknown" in note for note in unknown.notes)


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
        cli.BadData, match="^SmolLM2 135M: [0-5] prompts that render; a plan needs at least 6$"
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
        record["score"] |= {"checks": 0.5}
    with pytest.raises(cli.BadData, match="the scores do not vary"):
        power.plan(loaded)


def test_one_model_is_said_to_give_an_upper_bound(pair):
    text = power.markdown(power.plan(runs.load([pair[0]])))
    assert "upper bound" in text
    assert "upper bound" not in power.markdown(power.plan(runs.load(pair)))
