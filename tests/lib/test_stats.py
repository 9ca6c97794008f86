import numpy
import pytest
from decksmith import stats


def test_a_mean_comes_with_the_percentile_interval_that_can_be_counted_by_hand():
    # Three values: all resamples alike happen with probability 1/27, more than 2.5 %, so the interval is their whole range.
    assert stats.mean([1, 2, 3]) == {"mean": 2.0, "lo": 1.0, "hi": 3.0, "n": 3}


def test_one_value_has_a_mean_but_no_interval_and_none_has_neither():
    assert stats.mean([2.5]) == {"mean": 2.5, "lo": None, "hi": None, "n": 1}
    assert stats.mean([]) == {"mean": None, "lo": None, "hi": None, "n": 0}


def test_the_interval_agrees_with_scipy():
    from scipy.stats import bootstrap
    values = numpy.random.default_rng(3).normal(3, 1, 40)
    other = bootstrap((values,), numpy.mean, method="percentile", n_resamples=20_000, rng=numpy.random.default_rng(5)).confidence_interval
    ours = stats.mean(values)
    assert (ours["lo"], ours["hi"]) == pytest.approx((other.low, other.high), abs=0.02)


def test_the_same_values_always_give_the_same_interval_whether_resamples_were_kept_or_drawn_again(monkeypatch):
    values = list(numpy.random.default_rng(4).normal(3, 1, 30))
    kept = stats.mean(values)
    monkeypatch.setattr(stats, "_kept", stats._drawn)
    assert stats.mean(values) == kept


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    random = numpy.random.default_rng(0)
    found = [stats.mean(random.normal(0, 1, 60)) for _ in range(300)]
    assert 0.90 < sum(one["lo"] <= 0 <= one["hi"] for one in found) / 300 < 0.98


def test_paired_differences_use_the_shared_keys_only():
    assert stats.paired({"a": 3, "b": 2, "only-here": 9}, {"a": 1, "b": 2, "only-there": 0}) == {"mean": 1.0, "lo": 0.0, "hi": 2.0, "n": 2}
