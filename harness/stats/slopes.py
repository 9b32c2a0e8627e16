"""Whether a series has steps or a slope, and how strongly the noise of neighbours is correlated.

Steps in one direction are held against one straight line between two levels. The noise is a first-order autoregression about
levels: x_t = level_t + u_t, u_t = φ u_(t-1) + e_t, with independent e_t.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.frozen import positional

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
    one, two = (_variance_of_clipped(points[lag:] - points[:-lag]) for lag in (1, 2))
    return 0.0 if not one else min(MOST, max(0.0, two / one - 1))


def _variance_of_clipped(values: Floats) -> float:
    size = np.abs(values)
    return float(np.mean(np.minimum(size, 3.0 * PER_MAD * float(np.median(size))) ** 2))


def lag1_of_residuals(points: Floats, cuts: Sequence[int]) -> tuple[float, float]:
    """φ of ``points`` [n] about the mean of each stretch between ``cuts``, with its standard error √((1 - φ²) ÷ n).

    Fitting m means takes (1 + 3φ) m ÷ n from the estimate, so that is added. Source: Marriott and Pope, Biometrika 41 (1954)
    390 (m = 1); Bartlett's standard error. Residuals of rounding alone have no correlation.
    """
    residuals = _about_steps(points, cuts)
    if np.abs(residuals).max() <= ROUNDING * np.abs(points).max():
        return 0.0, 0.0
    return lag1(residuals, len(cuts) + 1)


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


Floats = NDArray[np.float64]
MIN_DRIFT = 10
"""A line over fewer points counts as a step."""
KNOTS = 25
"""Number of evenly spaced places tried for either end of a line: its ends are known to 1/25 of the stretch at best."""


@positional
class Drift:
    """In place of steps ``first`` to ``last``: leaves ``before`` at point ``index``, reaches ``after`` at ``end``."""

    first: int
    last: int
    index: int
    end: int
    before: float
    after: float


def drifts(points: Floats, cuts: Sequence[int]) -> list[Drift]:
    """The runs of steps in one direction that a line fits better.

    Both are fitted from the level before the first step to the level after the last, each with its own noise correlation. The
    Schwarz criterion n log(S ÷ n) + p log n compares them. S is the sum of squares of the innovations. p counts levels and
    places: 2 k + 1 of k steps, 4 of a line.

    Args:
        points: the series [n].
        cuts: first indices of new levels, in order.
    """
    ends = [0, *cuts, len(points)]
    levels = [float(points[a:b].mean()) for a, b in pairwise(ends)]
    found = []
    for first, last in _runs([after > before for before, after in pairwise(levels)]):
        start, stop = ends[first], ends[last + 2]
        line = _line(points[start:stop])
        if line is None:
            continue
        own = [cut - start for cut in cuts[first : last + 1]]
        if _cost(line.residuals, 4, 2) < _cost(_about_steps(points[start:stop], own), 2 * len(own) + 1, len(own) + 1):
            index, end = start + line.last_old + 1, start + line.first_new
            found.append(Drift(first, last, index, end, line.before, line.after))
    return found


def correlation_about_line(points: Floats) -> tuple[float, float]:
    """The noise's lag-1 correlation about the best line between two levels, with its standard error.

    On a slope it is far smaller than about any few steps, and on steps larger; (1, 0) where a line needs more points.
    """
    line = _line(points)
    return (1.0, 0.0) if line is None else lag1(line.residuals, 3)


def _runs(rises: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """First and last step of each run in one direction."""
    start = 0
    for _, run in groupby(rises):
        end = start + len(list(run))
        yield start, end - 1
        start = end


def _about_steps(points: Floats, cuts: Sequence[int]) -> Floats:
    return np.concatenate([part - part.mean() for part in np.split(points, list(cuts))])


def _cost(residuals: Floats, parameters: int, fitted: int) -> float:
    """The Schwarz criterion of a fit by its residuals; -inf where they are 0."""
    n, (phi, _) = len(residuals), lag1(residuals, fitted)
    squares = float(np.sum((residuals[1:] - phi * residuals[:-1]) ** 2) + (1 - phi**2) * residuals[0] ** 2)
    return n * math.log(squares / n) + parameters * math.log(n) if squares > 0 else -math.inf


class _Line(NamedTuple):
    residuals: Floats
    last_old: int
    first_new: int
    before: float
    after: float


def _line(points: Floats) -> _Line | None:
    """The best line between two levels; None where the stretch is too short for one.

    Fitted twice, by least squares and then with the correlation that this leaves (Cochrane and Orcutt, JASA 44 (1949) 32).
    """
    shapes = _shapes(len(points))
    if shapes is None:
        return None
    phi = 0.0
    for _ in range(2):
        best, before, size = _best(points, shapes[1], phi)
        residuals = points - before - size * shapes[1][best]
        phi = lag1(residuals, 2)[0]
    last_old, first_new = shapes[0][best]
    return _Line(residuals, last_old, first_new, before, before + size)


def _best(points: Floats, shapes: Floats, phi: float) -> tuple[int, float, float]:
    """Which of ``shapes`` [m, n] fits ``points`` [n] best, its level before and its size, by generalised least squares."""
    (flat,), (target,), slopes = (_innovations(x, phi) for x in (np.ones((1, len(points))), points[None], shapes))
    level = flat / np.linalg.norm(flat)
    slopes_left = slopes - np.outer(slopes @ level, level)
    target_left = target - (target @ level) * level
    along, power = slopes_left @ target_left, np.sum(slopes_left**2, axis=1)
    best = int(np.argmax(along**2 / power))
    size = float(along[best] / power[best])
    alone = _innovations((points - size * shapes[best])[None], phi)[0] @ level
    return best, float(alone / (flat @ level)), size


def _innovations(rows: Floats, phi: float) -> Floats:
    made = rows.copy()
    made[:, 1:] -= phi * rows[:, :-1]
    made[:, 0] *= math.sqrt(1 - phi**2)
    return made


@lru_cache(maxsize=64)
def _shapes(size: int) -> tuple[list[tuple[int, int]], Floats] | None:
    """Every line between two of the places: (last point at 0, first point at 1) and its values [m, size]."""
    places = np.unique(np.linspace(0, size - 1, min(KNOTS, size)).round().astype(int))
    pairs = [(int(a), int(b)) for a in places for b in places if b - a >= MIN_DRIFT]
    if not pairs:
        return None
    at = np.arange(size)
    return pairs, np.array([np.clip((at - a) / (b - a), 0.0, 1.0) for a, b in pairs])
