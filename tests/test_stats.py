"""Intervals against scipy's own distributions, and degenerate input that must never become NaN."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from harness import stats


def test_nothing_is_absent_with_a_reason() -> None:
    """Nothing in, None and a reason out."""
    for got in (stats.wilson_interval(0, 0), stats.paired_lower_bound([])):
        assert got.value is None and got.reason


ONLY = [(None, None), (1, "this process only"), (2, "these 2 processes only"), (3, None)]


@pytest.mark.parametrize(("processes", "words"), ONLY)
def test_from_three_processes_on_an_interval_is_about_others_too(processes: int | None, words: str | None) -> None:
    """Fewer do not show how processes differ, and the words say so."""
    assert stats.Quantity(value=3.0, processes=processes).these_processes_only == words


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
