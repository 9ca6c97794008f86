import numpy
import pytest
from decksmith.measure.results import stats


def test_a_mean_comes_with_the_interval_that_can_be_counted_by_hand():
    # Without a scale three values bear Student's t: 2 -+ 4.303 / sqrt(3).
    assert stats.mean([1, 2, 3]) == {"mean": 2.0, "lo": -0.4841, "hi": 4.4841, "n": 3}
    assert stats.mean([1, 2, 3], (1, 5)) == {"mean": 2.0, "lo": 1.0, "hi": 4.4841, "n": 3}


def test_one_value_has_a_mean_but_no_interval_and_none_has_neither():
    assert stats.mean([2.5], (1, 5)) == {"mean": 2.5, "lo": None, "hi": None, "n": 1}
    assert stats.mean([], (1, 5)) == {"mean": None, "lo": None, "hi": None, "n": 0}


def test_where_nothing_varies_the_interval_knows_what_so_many_prompts_can_fail_to_show():
    # Twelve prompts miss what 1 - 0.04 ** (1 / 12) = 23.5 % of all do with a chance of 4 %: decks that fail and get 1.
    share = 1 - 0.04 ** (1 / 12)
    found = stats.mean([4.0] * 12, (1, 5))
    assert found["lo"] == pytest.approx(4 - 3 * share, abs=1e-4) and found["hi"] == 4.0
    assert stats.mean([1.0] * 12, (1, 5))["hi"] == pytest.approx(1 + 4 * share, abs=1e-4)
    both = one([4.0] * 12, [4.0] * 12, (1, 5))
    assert (both["lo"], both["hi"], both["p"]) == (
        pytest.approx(-3 * share),
        pytest.approx(3 * share),
        1.0,
    )


def test_the_empirical_likelihood_is_the_one_that_an_optimizer_finds():
    from scipy.optimize import minimize
    from scipy.stats import t

    values = numpy.array([1.0, 1.0, 2.5, 3.0, 3.2, 3.4, 3.5, 3.5, 4.0, 4.1])
    n, scale = len(values), (0.0, 5.0)
    support = numpy.append(values, scale[0])
    centre = values.mean()
    rest = (values - centre)[:, None]
    down, _ = stats._likelihood(
        rest,
        rest == rest,
        numpy.array([centre]),
        numpy.array([centre]),
        numpy.array([n - 1.0]),
        0.0,
    )
    limit = t.ppf(0.975, n - 1) ** 2
    # The lowest mean of weights on the values and the end whose likelihood ratio is within the limit.
    lowest = minimize(
        lambda w: w @ support,
        numpy.append(numpy.full(n, 0.95 / n), 0.05),
        bounds=[(1e-6, 1)] * (n + 1),
        constraints=[
            {"type": "eq", "fun": lambda w: w.sum() - 1},
            {"type": "ineq", "fun": lambda w: limit + 2 * numpy.log(n * w[:n]).sum()},
        ],
    ).fun
    assert centre + down[0] == pytest.approx(lowest, abs=1e-4)


def test_the_t_part_is_scipy_s_and_with_clusters_of_one_size_that_of_the_cluster_means():
    from scipy.stats import ttest_1samp

    random = numpy.random.default_rng(3)
    values = random.normal(0.3, 1, (40, 1))

    def student(rows, label):
        sums, sizes = (
            stats._gathered(rows - rows.mean(), label),
            stats._gathered(numpy.ones_like(rows), label),
        )
        return [
            found[0]
            for found in stats._student(
                numpy.array([rows.mean()]), sums, sizes, numpy.array([len(rows)])
            )
        ]

    for label, other in (
        (None, values),
        (numpy.arange(40) // 5, values.reshape(8, 5).mean(axis=1)),
    ):
        test = ttest_1samp(other.ravel(), 0)
        ends = test.confidence_interval()
        assert student(values, label) == pytest.approx(
            [ends.low, ends.high, test.pvalue, len(other) - 1]
        )


def test_degrees_of_freedom_fall_where_a_cluster_outweighs_the_others():
    values = numpy.random.default_rng(4).normal(0, 1, (40, 1))
    sizes = numpy.array([21, *[1] * 19])[:, None]
    freedom = stats._student(numpy.zeros(1), sizes * 0.0, sizes.astype(float), numpy.array([40]))[3]
    assert freedom < 5 < 19
    found = stats.means(values, clusters=["one"] * 21 + [None] * 19)
    assert found["clusters"] == 20 and stats.rule(20) == "clustered by domain (20 domains)"


@pytest.mark.parametrize("clusters", [None, ["one"] * 12, [None] * 12, list("abcdefghijkl")])
def test_clusters_count_only_where_one_has_two_prompts_and_there_is_another(clusters):
    found = stats.means(numpy.arange(12.0)[:, None], clusters=clusters)
    alone = stats.means(numpy.arange(12.0)[:, None])
    assert {name: column.tolist() for name, column in found.items()} == {
        name: column.tolist() for name, column in alone.items()
    }
    assert found["clusters"] == 0 and stats.rule(0) == "each prompt by itself"


def test_columns_with_gaps_are_as_if_each_were_alone():
    values = numpy.random.default_rng(5).normal(3, 1, (40, 2))
    values[30:, 1] = numpy.nan
    both, alone = (
        stats.means(values, clusters=list(range(10)) * 4),
        stats.means(values[:30, 1:], clusters=list(range(10)) * 3),
    )
    assert both["n"].tolist() == [40, 30]
    assert [both[name][1] for name in ("mean", "lo", "hi")] == pytest.approx(
        [alone[name][0] for name in ("mean", "lo", "hi")]
    )


def one(a, b, scale=None, clusters=None, strict=False):
    found = stats.differences(
        numpy.array(a, dtype=float)[:, None],
        numpy.array(b, dtype=float)[:, None],
        scale,
        clusters,
        strict,
    )
    return {name: column[0] for name, column in found.items()}


def test_a_paired_difference_can_be_counted_by_hand():
    # Differences 1, 1, 1, 1, 1, 0: of the 64 exchanges, the 2 * 2 that keep the five ones together are as far from 0.
    found = one([2, 3, 4, 5, 3, 3], [1, 2, 3, 4, 2, 3])
    assert found["mean"] == pytest.approx(5 / 6) and found["p"] == 4 / 64
    assert (found["n"], found["wins"], found["ties"], found["losses"]) == (6, 5, 1, 0)
    assert found["sd"] == pytest.approx(numpy.std([1, 1, 1, 1, 1, 0], ddof=1))
    assert found["effect"] == pytest.approx(5 / 6 / found["sd"])


@pytest.mark.parametrize("n", [12, 60])
def test_the_permutation_test_is_scipy_s(n):
    from scipy.stats import permutation_test

    random = numpy.random.default_rng(n)
    a = random.normal(3, 1, n)
    b = a + random.normal(0.25, 0.8, n)
    other = permutation_test(
        (a - b,),
        numpy.mean,
        permutation_type="samples",
        n_resamples=numpy.inf if n < 20 else 20_000,
        vectorized=True,
        rng=numpy.random.default_rng(0),
    )
    assert stats.exchanged((a - b)[:, None])[0] == pytest.approx(
        other.pvalue, abs=1e-9 if n < 20 else 0.01
    )
    assert one(a, b)["p"] >= stats.exchanged((a - b)[:, None])[0]


def test_whole_clusters_are_exchanged():
    # Five clusters that all point one way: 2 of 32 exchanges are as far, however many prompts each has.
    found = one([3.0] * 30, [1.0] * 15 + [2.0] * 15, clusters=[n // 6 for n in range(30)])
    assert found["clusters"] == 5 and found["p"] == 2 / 32


def test_p_and_interval_never_contradict_each_other():
    random = numpy.random.default_rng(8)
    a, b = (
        numpy.where(
            random.random((20, 400)) < floor, 1.0, 3 + shift + 0.2 * random.normal(size=(20, 400))
        )
        for floor, shift in ((0.1, 0.3), (0, 0))
    )
    for clusters in (None, [n // 2 for n in range(20)]):
        found = stats.differences(a, b, (1, 5), clusters)
        apart = (found["lo"] > 0) | (found["hi"] < 0)
        assert 0 < apart.sum() < 400 and apart[found["p"] <= 0.0499].all()


def test_a_model_that_fails_rarely_is_not_found_better_for_want_of_failures():
    # One model fails at a tenth of its decks and makes up for it with the others: before, 3 of 10 draws of 12 prompts were claims.
    random = numpy.random.default_rng(9)
    mean = 2.8
    a, b = (
        numpy.where(
            random.random((12, 600)) < floor,
            1.0,
            (mean - floor) / (1 - floor) + 0.1 * random.normal(size=(12, 600)),
        )
        for floor in (0.1, 0)
    )
    found = stats.differences(a, b, (1, 5))
    assert (((found["lo"] > 0) | (found["hi"] < 0)) & (found["p"] <= 0.05)).mean() <= 0.05


def test_one_win_and_29_ties_rule_out_little():
    # Five in a hundred questions lost would stay unseen among thirty in 0.95 ** 30 = 21 % of all draws.
    found = one([1.0] * 30, [1.0] * 29 + [0.0], (0, 1), strict=True)
    assert -0.2 < found["lo"] < -0.05 and found["hi"] > 0.1


def test_nothing_in_common_is_no_difference_and_no_p():
    found = one([1, numpy.nan], [numpy.nan, 1])
    assert found["n"] == 0 and numpy.isnan(found["lo"]) and numpy.isnan(found["p"])


def test_holm_multiplies_the_smallest_by_all_and_never_falls():
    assert stats.holm([0.01, 0.04, 0.03, numpy.nan]) == pytest.approx(
        [0.03, 0.06, 0.06, numpy.nan], nan_ok=True
    )
    assert stats.holm([0.6, 0.7]).tolist() == [1.0, 1.0]


def column(*values):
    return numpy.array(values, dtype=float)[:, None]


def test_no_deck_of_twelve_bounds_the_share_as_clopper_and_pearson_do():
    found = stats.entry(stats.shares(column(*[0] * 12)), 0)
    assert found == {"mean": 0.0, "lo": 0.0, "hi": round(1 - 0.025 ** (1 / 12), 4), "n": 12}
    assert stats.shares(column(1))["hi"][0] != stats.shares(column(1))["hi"][0]  # one deck: none


def test_a_share_is_the_exact_one_of_so_many_fewer_prompts_where_domains_agree():
    from scipy.stats import binomtest

    values = column(*([1] * 4 + [0] * 4) * 5)
    exact = binomtest(20, 40).proportion_ci()
    alone, together = stats.shares(values), stats.shares(values, [n // 4 for n in range(40)])
    assert (alone["lo"][0], alone["hi"][0]) == pytest.approx((exact.low, exact.high))
    assert together["lo"][0] < alone["lo"][0] - 0.1 and together["clusters"][0] == 10


def test_the_paired_test_of_shares_is_mcnemar_s_and_by_domain_the_sign_flip():
    from scipy.stats import binomtest

    a, b = column(*[1] * 9, *[0] * 11), column(*[0] * 8, 1, 1, *[0] * 10)
    found = stats.share_differences(a, b)
    assert (found["wins"][0], found["losses"][0]) == (8, 1)
    assert found["p"][0] == pytest.approx(binomtest(1, 9).pvalue)
    labels = [n // 4 for n in range(20)]
    assert stats.share_differences(a, b, labels)["p"] == stats.exchanged(a - b, labels)


def test_the_interval_of_paired_shares_is_t_s_with_one_more_of_each():
    from scipy.stats import ttest_1samp

    a, b = column(*[1] * 9, *[0] * 3), column(*[0] * 12)
    ends = ttest_1samp([1] * 10 + [0] * 3 + [-1], 0).confidence_interval()
    found = stats.share_differences(a, b)
    assert ends.high > 1 and (found["lo"][0], found["hi"][0]) == pytest.approx((ends.low, 1))
    same = stats.share_differences(a, a)
    assert same["p"][0] == 1 and same["lo"][0] == -same["hi"][0] < -0.2


def test_where_no_deck_failed_the_second_clause_is_as_wide_as_t():
    from scipy.stats import ttest_rel

    random = numpy.random.default_rng(2)
    a, b = random.normal(0.6, 0.1, (12, 1)), random.normal(0.5, 0.1, (12, 1))
    ends = ttest_rel(a[:, 0], b[:, 0])
    found = stats.t_differences(a, b, (0, 1))
    assert (found["lo"][0], found["hi"][0], found["p"][0]) == pytest.approx(
        (*ends.confidence_interval(), ends.pvalue)
    )


def test_where_most_prompts_are_ties_the_interval_allows_for_one_more_that_is_none():
    tied, one = column(*[0.9] * 12), column(*[0.9] * 11, 0.5)
    same, found = stats.t_differences(tied, tied, (0, 1)), stats.t_differences(tied, one, (0, 1))
    assert same["p"][0] == 1 and same["lo"][0] == -same["hi"][0] < -0.01
    ends = ttest_of([0.0] * 11 + [0.4, 0.4, -0.4])
    assert (found["lo"][0], found["hi"][0]) == pytest.approx(ends)
    half = stats.t_differences(column(*[0.9] * 6, *[0.8] * 6), column(*[0.9] * 6, *range(6)))
    assert (half["lo"][0], half["hi"][0]) == pytest.approx(
        ttest_of([0.0] * 6 + [0.8 - n for n in range(6)])
    )


@pytest.mark.parametrize("test", [stats.t_differences, stats.share_differences])
def test_prompts_of_one_domain_alone_are_as_if_each_stood_by_itself(test):
    a, b = column(1, 0, 1, 1, 0, 1, 1, 1), column(0, 1, 0, 1, 0, 1, 0, 0)
    alone, one = (test(a, b, clusters=labels) for labels in (None, ["history"] * 8))
    assert numpy.isfinite(one["lo"]).all()
    assert {name: each.tolist() for name, each in one.items()} == {
        name: each.tolist() for name, each in alone.items()
    }


def ttest_of(gaps):
    from scipy.stats import ttest_1samp

    ends = ttest_1samp(gaps, 0).confidence_interval()
    return ends.low, ends.high


def test_power_is_that_of_t_and_mcnemar_and_falls_with_domains_and_tests():
    from scipy.stats import binom, nct, t

    limit, one = t.ppf(0.975, 33), stats.Expected(tests=1)
    exact = nct.sf(limit, 33, 0.5 * 34**0.5)
    assert stats.power(0.5, 1, 34, one) == pytest.approx(exact, abs=0.015)
    assert stats.power(0.5, 1, 34) < stats.power(0.5, 1, 34, one)
    lean = stats.Expected(domains=8, alike=0.3)
    assert stats.power(0.5, 1, 34, lean) < stats.power(0.5, 1, 34) - 0.2
    # Seven wins of any number and no loss are p = 0.016; fewer are no claim at 0.025.
    assert stats.render_power(20, 0.4, 0.0) == pytest.approx(binom.sf(6, 20, 0.4), abs=0.015)


def test_the_smallest_sample_and_the_smallest_effect_are_each_other_s_inverse():
    wanted = stats.smallest_sample(lambda n: stats.power(0.3, 1.0, n))
    least = stats.smallest_effect(lambda effect: stats.power(effect, 1.0, wanted), 5.0)
    assert least == pytest.approx(0.3, abs=0.01)
    assert stats.smallest_sample(lambda n: stats.power(0.001, 1.0, n), most=1000) is None
    assert stats.smallest_effect(lambda effect: 0.5, 1.0) == float("inf")


def test_six_models_and_six_hundred_prompts_with_gaps_hold_the_rate():
    random = numpy.random.default_rng(6)
    a, b = random.normal(3, 1, (600, 100)), random.normal(3, 1, (600, 100))
    a[random.random(a.shape) < 0.02] = numpy.nan
    found = stats.differences(a, b, (1, 5), [n // 6 for n in range(600)])
    assert (found["clusters"] == 100).all() and 0.01 < (found["p"] <= 0.05).mean() < 0.12
