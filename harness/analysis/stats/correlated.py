"""Lag-1 correlation of the noise of a series, and the series with independent noise.

The model is a first-order autoregression about levels: x_t = level_t + u_t, u_t = φ u_(t-1) + e_t, with independent e_t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MOST = 0.95
"""Nearer to 1 a level cannot be told from noise. Negative correlation counts as 0: it makes levels steadier."""
OUTLIER = 4.0
"""Residuals beyond this many robust deviations are clipped to it: one outlier hides a correlation."""
ROUNDING = 1e-12
"""Residuals below this share of the largest value are rounding, not noise: counted figures have none."""
PER_MAD = 1 / 0.6745
"""Deviation of normal values ÷ the median of their absolute values."""


def lag1_of_differences(points: Floats) -> float:
    """φ of ``points`` [n] with steps at unknown places: v₂ ÷ v₁ - 1, v_h being the variance of x_(t+h) - x_t.

    A step moves h of the differences of lag h, and a slow drift all of them by little; large differences are clipped. The
    standard deviation is about 1.5 ÷ √n. 0 where most neighbours are equal, as in counted figures. Source: Chakar, Lebarbier,
    Lévy-Leduc and Robin, Bernoulli 23 (2017) 1408, section 2, who take medians. Variances of clipped values scatter half as
    much.
    """
    one, two = (_variance_of_clipped(points[lag:] - points[:-lag], 3.0) for lag in (1, 2))
    return 0.0 if not one else min(MOST, max(0.0, two / one - 1))


def _variance_of_clipped(values: Floats, at: float) -> float:
    size = np.abs(values)
    return float(np.mean(np.minimum(size, at * PER_MAD * float(np.median(size))) ** 2))


def lag1_of_residuals(points: Floats, cuts: Sequence[int]) -> tuple[float, float]:
    """φ of ``points`` [n] about the mean of each stretch between ``cuts``, with its standard error √((1 - φ²) ÷ n).

    Fitting m means takes (1 + 3φ) m ÷ n from the estimate, so that is added. Source: Marriott and Pope, Biometrika 41 (1954)
    390 (m = 1); Bartlett's standard error. Residuals of rounding alone have no correlation.
    """
    ends = [0, *cuts, len(points)]
    residuals = np.concatenate([points[a:b] - points[a:b].mean() for a, b in pairwise(ends)])
    if np.abs(residuals).max() <= ROUNDING * np.abs(points).max():
        return 0.0, 0.0
    return lag1(residuals, len(ends) - 1)


def lag1(residuals: Floats, fitted: int) -> tuple[float, float]:
    """The same of ``residuals`` [n] about a model of ``fitted`` means or slopes; 0 where n is too small for them."""
    n = len(residuals)
    middle = PER_MAD * float(np.median(np.abs(residuals)))
    drawn_in = np.clip(residuals, -OUTLIER * middle, OUTLIER * middle) if middle > 0 else residuals
    power = float(np.sum(drawn_in**2))
    share = fitted / n
    if power == 0.0 or 3 * share > 0.8:
        return 0.0, 0.0
    seen = float(np.sum(drawn_in[1:] * drawn_in[:-1])) / power
    phi = min(MOST, max(0.0, (seen + share) / (1 - 3 * share)))
    return phi, math.sqrt((1 - phi**2) / n)


def whitened(points: Floats, phi: float, cuts: Sequence[int] = ()) -> Floats:
    """``points`` [n] with independent noise about the same levels: (x_t - φ x_(t-1)) ÷ (1 - φ).

    The first point of each stretch between ``cuts`` has no neighbour at its level. Its deviation from the median is scaled to
    the variance of the others, so that a known step leaves no spike. Source: Prais and Winsten (1954).
    """
    if phi == 0.0:
        return points
    made = np.empty_like(points)
    made[1:] = (points[1:] - phi * points[:-1]) / (1 - phi)
    ends = [0, *cuts, len(points)]
    for start, end in pairwise(ends):
        level = float(np.median(points[start:end]))
        made[start] = level + math.sqrt((1 + phi) / (1 - phi)) * (points[start] - level)
    return made
