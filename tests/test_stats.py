"""Intervals against scipy's own distributions, and degenerate input that must never become NaN."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from harness import stats

PAIRS = [(3.0, 1.0), (2.5, 1.0), (8.0, 2.0), (2.7, 0.9)]


def test_geometric_mean_ratio_is_the_t_interval_of_the_logs() -> None:
    """Value and interval equal scipy's t interval on log ratios."""
    logs = np.log([a / b for a, b in PAIRS])
    low, high = scipy_stats.t.interval(0.95, len(logs) - 1, loc=logs.mean(), scale=scipy_stats.sem(logs))
    got = stats.geometric_mean_ratio(PAIRS)
    assert got.value == pytest.approx(scipy_stats.gmean(np.exp(logs)), rel=1e-12)
    assert (got.low, got.high) == (pytest.approx(math.exp(low), rel=1e-12), pytest.approx(math.exp(high), rel=1e-12))


def test_repeats_of_a_prompt_are_one_observation() -> None:
    """Doubling every pair as a second repeat changes neither value nor interval nor n."""
    once = stats.geometric_mean_ratio(PAIRS)
    twice = stats.geometric_mean_ratio(PAIRS + PAIRS, clusters=[0, 1, 2, 3, 0, 1, 2, 3])
    assert twice.n == 4
    assert (twice.value, twice.low, twice.high) == pytest.approx((once.value, once.low, once.high), rel=1e-12)


@pytest.mark.parametrize("width", [0.01, 0.05, 0.3])
def test_prompts_for_a_width_are_the_fewest(width: float) -> None:
    """By brute force over n with scipy's t: one prompt fewer would not be enough."""
    ratio = stats.geometric_mean_ratio(PAIRS)
    spread = np.log([a / b for a, b in PAIRS]).std(ddof=1)
    enough = next(n for n in range(2, 10**6) if scipy_stats.t.ppf(0.975, n - 1) * spread / math.sqrt(n) <= math.log1p(width))
    assert stats.prompts_for_width(ratio, width) == enough
    assert stats.prompts_for_width(stats.absent("nothing"), width) is None


def test_ratio_interval_covers_the_truth() -> None:
    """Over 600 draws of 20 prompts the 95 % interval covers the true ratio between 92 and 98 % of the time."""
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(600):
        ratios = np.exp(rng.normal(math.log(3.0), 0.25, 20))
        got = stats.geometric_mean_ratio([(float(r), 1.0) for r in ratios])
        assert got.low is not None and got.high is not None
        covered += got.low <= 3.0 <= got.high
    assert 0.92 <= covered / 600 <= 0.98


@pytest.mark.parametrize("pairs", [[(3.0, 1.0)], [(3.0, 1.0), (6.0, 2.0), (9.0, 3.0)]])
def test_degenerate_ratios_keep_the_value_and_say_why_there_is_no_interval(pairs: list[tuple[float, float]]) -> None:
    """One prompt, or no spread: value 3, interval None, a reason."""
    got = stats.geometric_mean_ratio(pairs)
    assert got.value == pytest.approx(3.0) and got.low is None and got.high is None and got.reason


def test_no_pairs_is_absent_with_a_reason() -> None:
    """Nothing in, None and a reason out, for every statistic."""
    for got in (
        stats.geometric_mean_ratio([]),
        stats.ratio_of_totals([]),
        stats.wilson_interval(0, 0),
        stats.paired_lower_bound([]),
    ):
        assert got.value is None and got.reason


def test_a_time_of_zero_is_refused() -> None:
    """A log of zero would be minus infinity: refused, not swallowed."""
    with pytest.raises(ValueError, match="positive"):
        stats.geometric_mean_ratio([(1.0, 0.0)])


def test_ratio_of_totals_by_hand() -> None:
    """(3 + 2.5 + 8 + 2.7) / (1 + 1 + 2 + 0.9)."""
    assert stats.ratio_of_totals(PAIRS).value == pytest.approx(16.2 / 4.9, rel=1e-15)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (57, 60), (5901, 6000)])
def test_wilson_equals_scipy(k: int, n: int) -> None:
    """The Wilson interval equals scipy.stats.binomtest's."""
    want = scipy_stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
    got = stats.wilson_interval(k, n)
    assert (got.low, got.high) == pytest.approx((want.low, want.high), abs=1e-12)


def test_paired_bound_is_the_one_sided_t_bound() -> None:
    """With enough pairs that differ, the bound inverts scipy's one-sided paired t test at p = 0.05."""
    data = [1.0] * 12 + [-1.0] * 15 + [0.0] * 273
    got = stats.paired_lower_bound(data)
    assert got.low is not None
    test = scipy_stats.ttest_1samp(data, popmean=got.low, alternative="greater")
    assert test.pvalue == pytest.approx(0.05, abs=1e-9)
    assert got.value == pytest.approx(-0.01) and got.method == "t on paired differences"


def test_no_differing_pair_gives_the_exact_rule_of_three() -> None:
    """300 equal pairs: a difference of probability p stays unseen 300 times with probability (1-p)^300 = 0.05."""
    got = stats.paired_lower_bound([0.0] * 300)
    assert got.value == 0 and got.low is not None and got.reason
    assert (1 + got.low) ** 300 == pytest.approx(0.05)
    assert got.low == pytest.approx(-3 / 300, rel=0.01)


def test_few_losses_use_the_exact_binomial_bound() -> None:
    """3 losses and 1 win in 60: the share of losses is bounded as scipy's exact one-sided test bounds it."""
    got = stats.paired_lower_bound([-1.0] * 3 + [1.0] + [0.0] * 56)
    exact = scipy_stats.binomtest(3, 60, alternative="less").proportion_ci(0.95, method="exact")
    assert got.low == pytest.approx(-exact.high, abs=1e-12) and got.reason


def test_one_lucky_win_does_not_prove_more_than_no_difference_at_all() -> None:
    """A t bound alone would call 80 pairs with one win 'within 1 point'; the bound must not."""
    lucky, equal = stats.paired_lower_bound([1.0] + [0.0] * 79), stats.paired_lower_bound([0.0] * 80)
    assert lucky.low is not None and equal.low is not None
    assert lucky.low <= equal.low + 1e-12 and equal.low < -0.03


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=1, max_size=60))
def test_paired_bound_is_a_number_below_the_mean(data: list[float]) -> None:
    """For any differences: finite, at least -1, never above the mean."""
    got = stats.paired_lower_bound(data)
    assert got.value is not None and got.low is not None
    assert -1 - 1e-12 <= got.low <= got.value + 1e-12


def test_pairs_needed_is_the_first_number_that_can_show_it() -> None:
    """With one pair fewer the bound of all-equal data is at or below the margin."""
    n = stats.pairs_needed(0.01)
    enough, short = stats.paired_lower_bound([0.0] * n), stats.paired_lower_bound([0.0] * (n - 1))
    assert enough.low is not None and short.low is not None
    assert short.low <= -0.01 < enough.low
