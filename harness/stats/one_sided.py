"""One-sided tests of a mean against a bound, and Holm's correction for several of them at once.

Data without spread get an exact bound instead of a t bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special

from harness.frozen import frozen
from harness.stats.quantity import Floats, t_reach

POWER = 0.9
MOST_UNITS = 10_000
"""Larger plans are not given."""
NO_SPREAD = 1e-12
LARGEST_NCP = 1e5
"""Beyond this scipy's noncentral t turns into NaN; its power is 1 long before."""
HUBER = 1.345
"""Residuals beyond this many standard deviations count as this many: 95 % as precise as the mean for normal values."""
FEWEST_FOR_OUTLIERS = 8
"""Among fewer values outliers cannot be identified."""
MAD_OF_NORMAL = float(special.ndtri(0.75))
ITERATIONS = 50


@frozen
class SampleMean:
    """A mean of ``n`` independent values; ``standard_error`` is None where they do not differ (one value included).

    ``terms``: the number of effects estimated beside the mean; each costs a degree of freedom.

    Without spread a t bound does not exist; the sign test gives an exact one-sided bound. If the median lies on the other side
    of a bound, n equal values on one side have probability at most 2^-n.
    """

    mean: float
    standard_error: float | None
    n: int
    terms: int = 0

    @property
    def degrees(self) -> int:
        """Degrees of freedom of t."""
        return self.n - 1 - self.terms

    def p_above(self, bound: float) -> float:
        """p of "the mean is at most ``bound``", small where it is clearly above: t with n - 1 - terms degrees of freedom."""
        if self.standard_error is None:
            # A difference of rounding alone is on the bound, not above it.
            return 0.5 ** (self.degrees + 1) if self.mean - bound > NO_SPREAD * max(1.0, abs(bound)) else 1.0
        return float(special.stdtr(self.degrees, (bound - self.mean) / self.standard_error))

    def p_below(self, bound: float) -> float:
        """p of "the mean is at least ``bound``", small where it is clearly below."""
        return replace(self, mean=-self.mean).p_above(-bound)

    def low(self, level: float) -> float | None:
        """Lower one-sided bound, mean - t · standard error, wrong with probability ``level``; None: too few values."""
        if self.standard_error is None:
            return self.mean if 0.5 ** (self.degrees + 1) <= level else None
        return self.mean + float(special.stdtrit(self.degrees, level)) * self.standard_error

    def high(self, level: float) -> float | None:
        """Upper one-sided bound."""
        mirrored = replace(self, mean=-self.mean).low(level)
        return None if mirrored is None else -mirrored

    def units_to_decide(self, bound: float, level: float) -> int | None:
        """Fewest values at which the test at ``level`` tells mean from ``bound`` with a power of POWER, at this mean and
        spread.

        None without spread, or above MOST_UNITS. Source: noncentral t, ncp = √n · δ / s.
        """
        if self.standard_error is None or self.mean == bound:
            return None
        effect = abs(self.mean - bound) / (self.standard_error * math.sqrt(self.n))
        quantiles = float(special.ndtri(1 - level)) + float(special.ndtri(POWER))
        if effect * math.sqrt(MOST_UNITS) <= quantiles:
            return None
        start = max(2 + self.terms, math.floor((quantiles / effect) ** 2))
        return next((n for n in range(start, MOST_UNITS) if t_power(n, effect, level, self.terms) >= POWER), None)


def t_power(n: int, effect: float, level: float, terms: int) -> float:
    """Probability that a one-sided t test of ``n`` values at ``level`` sees an ``effect`` in standard deviations."""
    degrees = n - 1 - terms
    critical = -float(special.stdtrit(degrees, level))
    return 1 - float(special.nctdtr(degrees, min(effect * math.sqrt(n), LARGEST_NCP), critical))


def sample_mean(values: Sequence[float]) -> SampleMean:
    """The mean with its standard error (corrected deviation).

    Raises:
        ValueError: no value, or one that is not finite.
    """
    n = _counted(values)
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((one - mean) ** 2 for one in values) / (n - 1)) if n > 1 else 0.0
    error = spread / math.sqrt(n) if spread > NO_SPREAD * max(1.0, abs(mean)) else None
    return SampleMean(mean=mean, standard_error=error, n=n)


def _counted(values: Sequence[float]) -> int:
    if not values or not all(map(math.isfinite, values)):
        raise ValueError("a mean needs at least one value, all of them finite")
    return len(values)


def freed_mean(values: Sequence[float], terms: tuple[tuple[float, ...], ...]) -> SampleMean:
    """The mean of values that contain other effects, which are estimated beside it and removed; robust to outliers.

    ``terms``: for each effect its weight in each value; they and a constant are linearly independent. From eight values on, the
    mean is Huber's M-estimate of the regression on 1 and the terms. Its scale is the median of the absolute residuals, without
    the smallest ones (as many as parameters). With fewer values it is least squares. Without terms it is ``sample_mean``.

    Source: P. J. Huber, Robust Statistics (1981), 7.8 (modified residuals) and 7.6 (covariance, its factor K for small n).

    Raises:
        ValueError: no value, one that is not finite, or no more values than effects and a mean.
    """
    if not terms:
        return sample_mean(values)
    n, fitted = _counted(values), 1 + len(terms)
    if n <= fitted:
        raise ValueError(f"{n} values for a mean and {len(terms)} effects")
    design, solve, leverage = _design(terms)
    data: Floats = np.asarray(values)
    found: Floats = solve @ data
    residuals: Floats = data - design @ found
    squares = float(residuals @ residuals)
    if math.sqrt(squares / (n - fitted)) <= NO_SPREAD * max(1.0, float(np.abs(data).max())):
        return SampleMean(mean=float(found[0]), standard_error=None, n=n, terms=len(terms))
    variance = leverage * squares / (n - fitted)
    if n >= FEWEST_FOR_OUTLIERS and (robust := _huber(data, design, solve)) is not None:
        found, squares_of_one = robust
        variance = leverage * squares_of_one
    return SampleMean(mean=float(found[0]), standard_error=math.sqrt(variance), n=n, terms=len(terms))


@lru_cache(maxsize=1024)
def _design(terms: tuple[tuple[float, ...], ...]) -> tuple[Floats, Floats, float]:
    """The matrix of 1 and the terms (values, effects), its least-squares inverse, and the mean's share of the variance."""
    design: Floats = np.column_stack([np.ones(len(terms[0])), *terms])
    inverse = np.linalg.inv(design.T @ design)
    return design, inverse @ design.T, float(inverse[0, 0])


def _huber(data: Floats, design: Floats, solve: Floats) -> tuple[Floats, float] | None:
    """(effects, variance of one value) by modified residuals from least squares on; None where half the residuals are 0."""
    n, fitted = design.shape
    found: Floats = solve @ data
    for _ in range(ITERATIONS):
        residuals = data - design @ found
        sizes = np.sort(np.abs(residuals))[fitted:]
        left = len(sizes)
        scale = float(sizes[(left - 1) // 2] + sizes[left // 2]) / (2 * MAD_OF_NORMAL)
        if scale <= NO_SPREAD:
            return None
        bent = np.clip(residuals, -HUBER * scale, HUBER * scale)
        step = solve @ bent
        found = found + step
        if float(np.abs(step).max()) <= 1e-9 * scale:
            break
    unbent = float((np.abs(residuals) <= HUBER * scale).mean())
    factor = 1 + fitted / n * (1 - unbent) / unbent
    return found, factor**2 * float(bent @ bent) / (n - fitted) / unbent**2


def prediction_bound(values: Sequence[float], probability: float) -> float:
    """Bound on one more value, either side of 0, with at least ``probability``: |mean| + t(n-1) · s · √(1 + 1/n).

    Source: prediction interval of a normal sample, its farther end taken on both sides. Without spread: |mean|.
    """
    mean = sample_mean(values)
    spread = (mean.standard_error or 0.0) * math.sqrt(mean.n)
    reach = t_reach(mean.n - 1, probability) if spread else 0.0
    return abs(mean.mean) + reach * spread * math.sqrt(1 + 1 / mean.n)


class HolmTest(NamedTuple):
    """Whether a hypothesis is rejected, the level it was tested at (its own bound agrees there), and its adjusted p."""

    rejected: bool
    level: float
    adjusted_p: float


def holm(p_values: Sequence[float], alpha: float, family: int | None = None) -> tuple[HolmTest, ...]:
    """Holm's step-down test: wrong about any of the hypotheses with probability at most ``alpha``.

    The smallest p is compared with alpha / family, the next with alpha / (family - 1), until one is not rejected. That one and
    all above it are compared with the level at which the test stopped. Equal p share the stricter level. The adjusted p is the
    least ``alpha`` that rejects the hypothesis, at most 1.

    Args:
        p_values: one per hypothesis.
        family: hypotheses not rejected so far, those included that have no p here (default: as many as ``p_values``).

    Source: S. Holm, Scand. J. Statist. 6 (1979) 65. scipy has no step-down test.
    """
    family = len(p_values) if family is None else family
    level, adjusted, going, results = 0.0, 0.0, True, dict[float, HolmTest]()
    for step, p in enumerate(sorted(p_values)):
        if p in results:
            continue
        level = alpha / (family - step) if going else level
        going = going and p <= level
        adjusted = max(adjusted, min(1.0, (family - step) * p))
        results[p] = HolmTest(rejected=going, level=level, adjusted_p=adjusted)
    return tuple(results[p] for p in p_values)
