"""The interval of a ratio that was measured several times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import exp, log, sqrt

from scipy import stats


def ratio_interval(ratios: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """(geometric mean, low, high) of two or more ratios, by the t distribution on their logarithms."""
    logs = [log(one) for one in ratios]
    half = float(stats.t.ppf((1 + level) / 2, len(logs) - 1)) * statistics.stdev(logs) / sqrt(len(logs))
    middle = statistics.fmean(logs)
    return exp(middle), exp(middle - half), exp(middle + half)
