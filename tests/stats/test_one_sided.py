"""One-sided bounds against scipy, Holm against a hand-worked example and its definition."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from harness.stats.one_sided import HolmTest, freed_mean, holm, sample_mean

values = st.lists(st.floats(-1, 1), min_size=2, max_size=12)


@given(values, st.floats(-1, 1), st.sampled_from((0.002, 0.01, 0.05)))
def test_p_values_and_bounds_are_scipys(data: list[float], bound: float, level: float) -> None:
    """p and bound on either side equal those of scipy's one-sample t test, wherever there is a spread."""
    mean = sample_mean(data)
    if mean.standard_error is None or mean.standard_error < 1e-6:
        return
    above, below = (scipy_stats.ttest_1samp(data, bound, alternative=side) for side in ("greater", "less"))
    assert (mean.p_above(bound), mean.p_below(bound)) == pytest.approx((above.pvalue, below.pvalue), abs=1e-9)
    bounds = above.confidence_interval(1 - level).low, below.confidence_interval(1 - level).high
    assert (mean.low(level), mean.high(level)) == pytest.approx(bounds, rel=1e-9, abs=1e-9)


def test_without_spread_the_bound_is_the_sign_tests() -> None:
    """2^-6 = 0.0156 rejects at 0.05 and not at 0.01; one value never does; on the bound itself nothing is shown."""
    six, one = sample_mean([0.1] * 6), sample_mean([0.1])
    assert six.p_above(0.02) == 1 / 64 and six.p_below(0.02) == 1.0
    assert six.p_above(0.1) == six.p_below(0.1) == 1.0
    assert six.low(0.05) == six.high(0.05) == pytest.approx(0.1) and six.low(0.01) is None
    assert one.p_above(0.02) == 0.5 and one.low(0.05) is None


@pytest.mark.parametrize("data", [[], [1.0, math.nan], [math.inf]])
def test_no_mean_of_nothing_or_nan(data: list[float]) -> None:
    """Whoever asks has to have looked before."""
    with pytest.raises(ValueError, match="finite"):
        sample_mean(data)


TERMS = ((1.0, 0.0, -1.0, 0.0) * 3, (0.0, 1.0, 0.0, -1.0) * 3)


def test_without_outliers_it_is_least_squares() -> None:
    """Residuals all of one size: estimate and standard error are those of a regression, s² (X'X)⁻¹ with nine degrees."""
    design = np.column_stack([np.ones(12), *TERMS])
    residuals = np.array([1, -1, 1, -1, 1, -1, 1, -1, -1, 1, -1, 1.0])
    assert np.abs(design.T @ residuals).max() == 0
    data = design @ np.array([0.03, 0.2, -0.1]) + 0.01 * residuals
    mean = freed_mean(data.tolist(), TERMS)
    error = math.sqrt((0.01**2 * residuals @ residuals / 9) * np.linalg.inv(design.T @ design)[0, 0])
    assert (mean.mean, mean.standard_error) == (pytest.approx(0.03), pytest.approx(error))
    assert mean.p_above(0.02) == pytest.approx(scipy_stats.t.sf(0.01 / error, 9))


def test_an_outlier_moves_the_mean_no_further_than_its_weight() -> None:
    """A value wrong by 1 or by 100 moves it alike, and by less than the standard error; the average moves by a twelfth."""
    data = np.random.default_rng(8).normal(0.03, 0.01, 12)
    plain = freed_mean(data.tolist(), TERMS)
    near, far = (freed_mean([*data[:-1], data[-1] + wrong], TERMS) for wrong in (1.0, 100.0))
    assert near.mean == pytest.approx(far.mean, abs=1e-9) and near.standard_error == pytest.approx(far.standard_error)
    assert plain.standard_error is not None and abs(near.mean - plain.mean) < 2 * plain.standard_error
    assert np.mean([*data[:-1], data[-1] + 1.0]) - data.mean() > 10 * plain.standard_error


def test_the_level_of_the_freed_mean_is_held() -> None:
    """Over 4,000 normal samples of 12 with two effects the one-sided 5 % test rejects a true mean in 4 to 7 %."""
    draws = np.random.default_rng(6).normal(0, 1, (4_000, 12))
    design = np.column_stack(TERMS) @ np.array([3.0, -5.0])
    rejected = np.mean([freed_mean((one + design).tolist(), TERMS).p_above(0.0) <= 0.05 for one in draws])
    assert 0.04 <= rejected <= 0.07


@given(st.lists(st.floats(-0.1, 0.1), min_size=12, max_size=12), st.floats(-0.1, 0.1))
def test_the_freed_mean_moves_with_its_values(data: list[float], shift: float) -> None:
    """What is added to all values is added to the mean, and what is mirrored is mirrored."""
    plain, moved = freed_mean(data, TERMS), freed_mean([one + shift for one in data], TERMS)
    mirrored = freed_mean([-one for one in data], TERMS)
    assert moved.mean == pytest.approx(plain.mean + shift, abs=1e-6) and mirrored.mean == pytest.approx(-plain.mean, abs=1e-9)


def test_half_of_the_values_equal_falls_back_to_least_squares() -> None:
    """A timer with coarse steps: no scale to tell outliers by, so the spread of all counts."""
    mean = freed_mean([0.0] * 11 + [0.12], TERMS)
    assert mean.mean == pytest.approx(0.01) and mean.standard_error is not None and mean.p_above(0.0) > 0.05
    with pytest.raises(ValueError, match="2 values for a mean and 1 effects"):
        freed_mean([0.1, 0.2], ((1.0, -1.0),))


def test_holm_by_hand() -> None:
    """p 0.010, 0.040, 0.012, 0.030 at 0.05: 0.010 <= 0.05/4, 0.012 <= 0.05/3, then 0.030 > 0.05/2 stops, so 0.040 is not asked.

    Bonferroni (0.0125 for all) would agree here, an uncorrected test would reject all four, and a test that forgot to stop
    would reject 0.040 <= 0.05/1.
    """
    assert holm([0.010, 0.040, 0.012, 0.030], 0.05) == (
        HolmTest(True, 0.05 / 4, 4 * 0.010),
        HolmTest(False, 0.05 / 2, 2 * 0.030),
        HolmTest(True, 0.05 / 3, 4 * 0.010),
        HolmTest(False, 0.05 / 2, 2 * 0.030),
    )
    assert [one.rejected for one in holm([0.013, 0.013], 0.05, family=4)] == [False, False]
    assert [one.adjusted_p for one in holm([0.5, 0.9], 0.05)] == [1.0, 1.0] and holm([], 0.05) == ()


@given(st.lists(st.sampled_from((0.001, 0.009, 0.0125, 0.02, 0.03, 0.05, 0.2)), min_size=1, max_size=5))
def test_holm_is_the_closed_bonferroni_test(p_values: list[float]) -> None:
    """By definition: a hypothesis is rejected if Bonferroni rejects every set of hypotheses that contains it."""
    everything = range(len(p_values))
    sets = [one for size in range(1, len(p_values) + 1) for one in combinations(everything, size)]
    for index, test in enumerate(holm(p_values, 0.05)):
        assert test.rejected == all(min(p_values[i] for i in one) <= 0.05 / len(one) for one in sets if index in one)
        assert test.rejected == (p_values[index] <= test.level) == (test.adjusted_p <= 0.05)


def test_units_to_decide_have_the_power() -> None:
    """By scipy's noncentral t the planned number of values decides with 90 %, and a value fewer with less."""
    data = [0.00, 0.05, 0.01, 0.04, 0.045]
    mean, deviation = float(np.mean(data)), float(np.std(data, ddof=1))
    n = sample_mean(data).units_to_decide(0.02, 0.05)
    enough, fewer = (
        scipy_stats.nct.sf(scipy_stats.t.ppf(0.95, m - 1), m - 1, (mean - 0.02) / deviation * math.sqrt(m)) for m in (n, n - 1)
    )
    assert fewer < 0.9 <= enough


def test_units_to_decide_know_when_there_is_no_plan() -> None:
    """On the bound, without spread, or beyond reach: None; two far apart for next to no spread."""
    assert sample_mean([0.01, 0.03]).units_to_decide(0.02, 0.05) is None
    assert sample_mean([0.1, 0.1]).units_to_decide(0.02, 0.05) is None
    assert sample_mean([0.0, 0.1, 0.06001]).units_to_decide(0.0533, 0.05) is None
    assert sample_mean([0.0, 1e-9]).units_to_decide(5.0, 0.0001) == 2
