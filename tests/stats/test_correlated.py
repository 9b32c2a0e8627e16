"""Correlation from one value to the next: against noise whose correlation was put in, and against its recursion written out."""

from __future__ import annotations

import numpy as np
import pytest

from harness.stats.slopes import MOST, lag1, lag1_of_differences, lag1_of_residuals, whitened
from tests.helpers.synthetic_history import autoregressive


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_the_estimate_is_unbiased_about_levels_that_were_fitted(correlation: float) -> None:
    """Four levels in 80 points: without the correction the mean estimate lies 0.06 to 0.14 too low. 0 is the least there is."""
    random = np.random.default_rng(1)
    cuts = (20, 40, 60)
    levels = np.repeat([0.0, 5.0, 2.0, 9.0], 20)
    estimates = [lag1_of_residuals(levels + autoregressive(random, 80, correlation), cuts) for _ in range(600)]
    phis = np.array([phi for phi, _ in estimates])
    if correlation:
        assert phis.mean() == pytest.approx(correlation, abs=0.045)
    else:
        assert np.mean(phis > 0) == pytest.approx(0.5, abs=0.09)  # as often below 0 as above
    assert estimates[0][1] == pytest.approx(np.sqrt((1 - phis[0] ** 2) / 80))


def test_steps_and_slopes_hardly_move_the_estimate_from_differences() -> None:
    """A step of ten deviations, or a slope of ten over the series, in 200 points: by less than 0.06 on average."""
    random = np.random.default_rng(2)
    noise = [autoregressive(random, 200, 0.4) for _ in range(200)]
    shapes = [np.zeros(200), 10.0 * (np.arange(200) >= 90), np.linspace(0, 10, 200)]
    plain, stepping, sloping = (np.mean([lag1_of_differences(one + shape) for one in noise]) for shape in shapes)
    assert plain == pytest.approx(0.4, abs=0.03)
    assert stepping == pytest.approx(plain, abs=0.06) and sloping == pytest.approx(plain, abs=0.06)


def test_the_estimate_by_hand() -> None:
    """1, 1, -1, -1 about 0 with nothing fitted: (1 - 1 + 1) / 4. One mean fitted: (1/4 + 1/4) / (1 - 3/4) is over the most."""
    residuals = np.array([1.0, 1.0, -1.0, -1.0])
    assert lag1(residuals, 0) == pytest.approx((0.25, np.sqrt((1 - 0.25**2) / 4)))
    assert lag1(residuals, 1)[0] == MOST
    assert lag1(np.zeros(8), 1) == (0.0, 0.0)


def test_one_wild_value_does_not_hide_a_correlation() -> None:
    """A value of 30 deviations holds nine tenths of the squares, and its neighbours know nothing of it."""
    noise = autoregressive(np.random.default_rng(3), 200, 0.6)
    wild = noise.copy()
    wild[77] += 30
    assert lag1_of_residuals(wild, ())[0] == pytest.approx(lag1_of_residuals(noise, ())[0], abs=0.08)


def test_whitening_undoes_the_recursion_and_leaves_no_spike_at_a_known_step() -> None:
    """Each value less its level is again what was new in it, ÷ (1 - φ); levels are kept."""
    random = np.random.default_rng(4)
    new, phi = random.normal(size=60), 0.7
    noise = new.copy()
    for i in range(1, 60):
        noise[i] = phi * noise[i - 1] + new[i]
    level = np.where(np.arange(60) < 30, 3.0, 50.0)
    white = whitened(level + noise, phi, (30,))
    inside = [i for i in range(60) if i not in (0, 30)]
    assert (white - level)[inside] == pytest.approx(new[inside] / (1 - phi))
    assert abs(white[30] - 50) < 12  # without the cut: 0.7 × 47 ÷ 0.3 = 110 above its level
    assert whitened(level, 0.0) is level


def test_counted_figures_are_not_correlated() -> None:
    """Most neighbours are equal: there is no noise to estimate from."""
    assert lag1_of_differences(np.array([3.0] * 20 + [3.2] * 6)) == 0.0
    assert lag1_of_residuals(np.array([3.0] * 20 + [3.2] * 6), (20,)) == (0.0, 0.0)
