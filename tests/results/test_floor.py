"""The floor of a protocol: what two runs of one model say of it, and what a headline and a plan say then."""

import json
import os
import subprocess
import sys

import numpy
import pytest
from decksmith.core import cli
from decksmith.measure.results import floor

SHARE = (0, 1)


def gaps(n=40, shift=0.0, seed=1):
    return numpy.random.default_rng(seed).normal(shift, 0.1, n)


def test_a_source_whose_runs_could_be_swapped_counts_chance_alone_and_less_of_it_on_more_prompts():
    found = floor.source(gaps(), SHARE, True, ["a", "b"])
    sd = 0.1 / numpy.sqrt(40)
    assert floor.reach(found, 40) == pytest.approx(2.02 * sd, rel=0.3)
    assert found["mean"] == pytest.approx(0.8 * sd, rel=0.3)
    assert floor.reach(found, 160) == pytest.approx(floor.reach(found, 40) / 2)


def test_a_source_that_moves_the_mean_does_so_on_any_number_of_prompts():
    found = floor.source(gaps(shift=0.1), SHARE, False, ["a", "b"])
    assert floor.reach(found, 10_000) > abs(found["seen"]) > 0.07
    assert found["mean"] == pytest.approx(abs(found["seen"]))


def test_runs_that_are_alike_leave_a_floor_that_so_few_prompts_cannot_rule_out():
    found = floor.source(numpy.zeros(12), SHARE, True, ["a", "b"])
    assert (found["alike"], found["seen"], found["mean"]) == (12, 0, 0)
    assert 0 < floor.reach(found, 12) < 0.05
    with pytest.raises(cli.BadData, match="5 prompts whose decks render in both; a floor needs 6"):
        floor.source(numpy.zeros(5), SHARE, True, ["a", "b"])


@pytest.fixture
def run(tmp_path):
    """A run in a folder of runs, by what its protocol has."""
    held = {"protocol": "offline", "sampling": {"temperature": 0.7, "seed": 1}, "hash": "x"}

    def made(model="smol", **protocol):
        shown = held | {"prompts": {"count": 3}} | protocol
        return {"path": tmp_path / "runs" / model / "offline", "protocol": shown}

    return made


@pytest.fixture
def kept(run):
    sources = {
        "seed": floor.source(gaps(), SHARE, True, ["a", "b"]),
        "engine": floor.source(gaps(shift=0.1), SHARE, False, ["a", "c"]),
    }
    found = {"protocol": "offline", "model": "smol", "is_share": True, "sources": sources}
    floor.path_of(run()).parent.mkdir()
    floor.path_of(run()).write_text(json.dumps(found))
    return floor.path_of(run())


def test_too_few_prompts_are_said_before_anything_is_asked(tmp_path):
    command = [sys.executable, cli.ROOT / "make/floor.py", tmp_path / "floor", "smol"]
    environment = os.environ | {"LIMIT": "5", "PYTHONPATH": str(cli.ROOT / "lib")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 78 and "LIMIT=5: a floor needs 6 prompts" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_headline_below_the_floor_says_so_by_its_largest_source(run, kept):
    said = floor.below(run(), 0.03, 40)
    assert said.startswith(
        "; below this protocol's floor: one model differs from itself by up to 1"
    )
    assert said.endswith("points (95 %, by engine on 40 prompts)")
    assert floor.below(run(), -0.5, 40) == ""


def test_a_floor_holds_for_other_prompts_and_seeds_and_for_no_other_protocol(run, kept):
    other_seed = {"temperature": 0.7, "seed": 9}
    same = run(hash="y", prompts={"count": 99}, sampling=other_seed)
    assert floor.path_of(same) == floor.path_of(run("another")) == kept
    assert floor.below(run(sampling={"temperature": 1.0}), 0.0, 40) == ""
    assert floor.planned(run(sampling={"temperature": 1.0})) == []
    assert "on 30 prompts" in floor.planned(same)[0]


def test_a_damaged_file_names_the_command(run, kept):
    kept.write_text(json.dumps({"sources": {}}))
    with pytest.raises(cli.BadData, match="make floor writes it anew"):
        floor.below(run(), 0.01, 40)


def test_sources_that_were_measured_before_stay_with_the_floor_of_the_same_model(run, kept):
    sys.path.append(str(cli.ROOT / "make"))
    import floor as made  # of make/

    seed = floor.source(gaps(seed=2), SHARE, True, ["a", "d"])
    new = {"protocol": "offline", "model": "smol", "is_share": True, "sources": {"seed": seed}}
    both = made.joined(kept, {**new})
    assert {*both["sources"]} == {"seed", "engine"} and both["sources"]["seed"] == seed
    other = made.joined(kept, {**new, "model": "another", "sources": {"seed": seed}})
    assert [*other["sources"]] == ["seed"]


def test_the_table_says_of_each_source_what_its_own_prompts_said():
    sys.path.append(str(cli.ROOT / "make"))
    import floor as made  # of make/

    seed = floor.source(gaps(17), SHARE, True, ["a", "d"])
    sources = {"seed": seed, "engine": floor.source(gaps(30), SHARE, False, ["a", "c"])}
    *_, row, _ = made.table({"is_share": True, "sources": sources})
    assert f"of 17 | {100 * seed['seen']:.1f} | {100 * seed['mean']:.1f} |" in row
    assert f"| {100 * floor.reach(seed, 17):.1f} |" in row
