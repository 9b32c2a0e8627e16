"""A percentile of values with an interval that assumes no distribution: two order statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from harness.stats import CONFIDENCE, Quantity, absent


def percentile(values: Sequence[float], percent: float, confidence: float = CONFIDENCE) -> Quantity:
    """The smallest value that at least ``percent`` of the values do not exceed, in their unit, with its interval.

    The r-th smallest value lies above the true percentile where fewer than r values lie below it, which has the probability
    of a binomial distribution. Where so few values have none that lies beyond the percentile with the wanted certainty,
    there is no interval.

    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd ed. (1999), section 3.2.
    """
    if not values:
        return absent("no values to take a percentile of")
    ordered, n, share = sorted(values), len(values), percent / 100
    at_most = special.bdtr(np.arange(n), n, share)  # P(at most r - 1 values below the percentile), r = 1 .. n
    tail = (1 - confidence) / 2
    low, high = np.flatnonzero(at_most <= tail), np.flatnonzero(1 - at_most <= tail)
    value = ordered[max(1, math.ceil(share * n)) - 1]
    if not len(low) or not len(high):
        return Quantity(value=value, n=n, reason=f"{n} values are too few for an interval of the {percent:g}th percentile")
    return Quantity(value=value, low=ordered[low[-1]], high=ordered[high[0]], n=n, method="order statistics")


def values_for_percentile(percent: float, confidence: float = CONFIDENCE) -> int:
    """Fewest values with which ``percentile`` has an interval: one lies beyond either side with the wanted certainty."""
    rarer = min(percent, 100 - percent) / 100
    return math.ceil(math.log((1 - confidence) / 2) / math.log1p(-rarer))
