import numpy
import pytest
from decksmith import stats


def test_a_mean_comes_with_the_interval_that_can_be_counted_by_hand():
    # Three values: all resamples alike happen with probability 1/27, more than 2.5 %, so the interval is their whole range.
    assert stats.mean([1, 2, 3]) == {"mean": 2.0, "lo": 1.0, "hi": 3.0, "n": 3}


def test_one_value_has_a_mean_but_no_interval_and_none_has_neither():
    assert stats.mean([2.5]) == {"mean": 2.5, "lo": None, "hi": None, "n": 1}
    assert stats.mean([]) == {"mean": None, "lo": None, "hi": None, "n": 0}


def test_the_interval_is_scipy_s_percentile_interval_at_the_widened_level():
    from scipy.stats import bootstrap, norm, t
    values = numpy.random.default_rng(3).normal(3, 1, 40)
    level = 1 - 2 * norm.cdf(-numpy.sqrt(40 / 39) * t.ppf(0.975, 39))
    other = bootstrap((values,), numpy.mean, method="percentile", n_resamples=20_000, confidence_level=level,
                      rng=numpy.random.default_rng(5)).confidence_interval
    ours = stats.mean(values)
    assert (ours["lo"], ours["hi"]) == pytest.approx((other.low, other.high), abs=0.02)


def test_the_same_values_always_give_the_same_interval_whether_resamples_were_kept_or_drawn_again(monkeypatch):
    values = list(numpy.random.default_rng(4).normal(3, 1, 30))
    kept = stats.mean(values)
    monkeypatch.setattr(stats, "_kept", stats._drawn)
    assert stats.mean(values) == kept


def test_columns_with_gaps_are_as_if_each_were_alone():
    values = numpy.random.default_rng(5).normal(3, 1, (40, 2))
    values[30:, 1] = numpy.nan
    both, alone = stats.means(values), stats.means(values[:30, 1:])
    assert both["n"].tolist() == [40, 30]
    assert both["mean"][1] == pytest.approx(alone["mean"][0])
    # The gaps add the chance of how many of the rows with a value are drawn, nothing else.
    assert [both["lo"][1], both["hi"][1]] == pytest.approx([alone["lo"][0], alone["hi"][0]], abs=0.03)


def one(a, b):
    found = stats.differences(numpy.array(a, dtype=float)[:, None], numpy.array(b, dtype=float)[:, None])
    return {name: column[0] for name, column in found.items()}


def test_a_paired_difference_can_be_counted_by_hand():
    # Differences 1, 1, 1, 1, 1, 0: of the 64 exchanges, the 2 * 2 that keep the five ones together are as far from 0.
    found = one([2, 3, 4, 5, 3, 3], [1, 2, 3, 4, 2, 3])
    assert found["mean"] == pytest.approx(5 / 6) and found["p"] == 4 / 64
    assert (found["n"], found["wins"], found["ties"], found["losses"]) == (6, 5, 1, 0)
    assert found["sd"] == pytest.approx(numpy.std([1, 1, 1, 1, 1, 0], ddof=1))
    assert found["effect"] == pytest.approx(5 / 6 / found["sd"])


@pytest.mark.parametrize("n", [12, 60])
def test_the_p_value_is_scipy_s(n):
    from scipy.stats import permutation_test
    random = numpy.random.default_rng(n)
    a = random.normal(3, 1, n)
    b = a + random.normal(0.25, 0.8, n)
    other = permutation_test((a - b,), numpy.mean, permutation_type="samples", n_resamples=numpy.inf if n < 20 else 20_000, vectorized=True,
                             rng=numpy.random.default_rng(0))
    assert one(a, b)["p"] == pytest.approx(other.pvalue, abs=1e-9 if n < 20 else 0.01)


def test_a_prompt_that_only_one_side_answered_counts_for_that_side_alone():
    found = one([4, 4, numpy.nan, 2], [3, numpy.nan, 1, 2])
    assert found["mean"] == pytest.approx(10 / 3 - 2) and found["n"] == 2


def test_nothing_in_common_is_no_difference_and_no_p():
    found = one([1, numpy.nan], [numpy.nan, 1])
    assert found["n"] == 0 and numpy.isnan(found["lo"]) and numpy.isnan(found["p"])


def test_holm_multiplies_the_smallest_by_all_and_never_falls():
    assert stats.holm([0.01, 0.04, 0.03, numpy.nan]) == pytest.approx([0.03, 0.06, 0.06, numpy.nan], nan_ok=True)
    assert stats.holm([0.6, 0.7]).tolist() == [1.0, 1.0]


def test_power_needed_and_mde_are_each_other_s_inverse():
    from scipy.stats import nct, t
    limit = t.ppf(0.975, 33)
    assert stats.power(0.5, 1, 34) == pytest.approx(nct.sf(limit, 33, 0.5 * 34**0.5) + nct.cdf(-limit, 33, 0.5 * 34**0.5))
    assert stats.power(0.5, 1, 33) < 0.8 <= stats.power(0.5, 1, 34) and stats.needed(0.5, 1) == 34
    assert stats.power(stats.mde(2.0, 50), 2.0, 50) == pytest.approx(0.8)


def test_six_models_and_six_hundred_prompts_with_gaps_are_one_draw():
    random = numpy.random.default_rng(6)
    a, b = random.normal(3, 1, (600, 100)), random.normal(3, 1, (600, 100))
    a[random.random(a.shape) < 0.02] = numpy.nan
    found = stats.differences(a, b)
    assert 0.01 < (found["p"] <= 0.05).mean() < 0.12
    # An interval without 0 and a small p say the same nearly always.
    assert (((found["lo"] > 0) | (found["hi"] < 0)) == (found["p"] <= 0.05)).mean() >= 0.97
