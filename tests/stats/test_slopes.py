"""A slope or stairs: shapes that were put in, and the fit against least squares with the covariance written out."""

from __future__ import annotations

import numpy as np
import pytest

from harness.stats.slopes import _best, _shapes, drifts
from tests.helpers.synthetic_history import autoregressive


def test_an_exact_slope_between_two_levels() -> None:
    """Up from point 24 to 72 of 97, which are places of the grid: every end and level exact, whatever steps stood for it."""
    points = 2.0 + 3.0 * np.clip((np.arange(97) - 24) / 48, 0, 1)
    (found,) = drifts(points, [30, 45, 60])
    assert (found.first, found.last, found.index, found.end) == (0, 2, 25, 72)
    assert (found.before, found.after) == pytest.approx((2.0, 5.0))


@pytest.mark.parametrize("rise", [[0.0, 1.0], [0.0, 0.5, 1.0], [0.0, 0.3, 0.7, 1.0]])
def test_stairs_stay_stairs(rise: list[float]) -> None:
    """One to three exact steps of the same direction, with and without a little noise."""
    for noise in (0.0, 0.02):
        points = np.repeat(rise, 40) + noise * np.random.default_rng(1).normal(size=40 * len(rise))
        assert drifts(points, [40 * i for i in range(1, len(rise))]) == []


def test_only_steps_in_one_direction_are_a_slope() -> None:
    """A slope up, a step down, a slope up: two drifts with the step between them."""
    slope = np.linspace(0, 1, 80)
    points = np.concatenate([slope, slope - 2]) + 0.02 * np.random.default_rng(2).normal(size=160)
    first, second = drifts(points, [25, 50, 80, 105, 130])
    assert (first.first, first.last, second.first, second.last) == (0, 1, 3, 4)


def test_what_is_done_within_a_few_points_is_a_step() -> None:
    """One point between the levels; and a stretch of ten points has no room for a line of ten."""
    points = np.clip((np.arange(80) - 40) / 2, 0, 1) + 0.02 * np.random.default_rng(3).normal(size=80)
    assert drifts(points, [41]) == []
    assert _shapes(10) is None


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_the_fit_is_that_of_the_covariance_written_out(phi: float) -> None:
    """Generalised least squares through the inverse of φ^|i - j|, shape by shape: the same shape, level and size."""
    points = autoregressive(np.random.default_rng(4), 40, phi) + 3 * np.clip((np.arange(40) - 10) / 15, 0, 1)
    shapes = _shapes(40)
    inverse = np.linalg.inv(np.fromfunction(lambda i, j: phi ** abs(i - j) if phi else (i == j) * 1.0, (40, 40)))
    costs, fits = [], []
    for shape in shapes[1]:
        design = np.column_stack([np.ones(40), shape])
        fit = np.linalg.solve(design.T @ inverse @ design, design.T @ inverse @ points)
        left = points - design @ fit
        costs.append(left @ inverse @ left)
        fits.append(fit)
    best, before, size = _best(points, shapes[1], phi)
    assert best == int(np.argmin(costs)) and (before, size) == pytest.approx(tuple(fits[best]))
