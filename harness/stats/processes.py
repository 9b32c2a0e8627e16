"""A figure that every process gives once, with its interval over processes: the fresh process is the unit of replication."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from harness.stats.bootstrap import NO_SPREAD
from harness.stats.quantity import CONFIDENCE, FEWEST_PROCESSES, Quantity, absent
from harness.stats.ratios import LARGEST_LOG

SAME = "all processes gave the same figure: no spread, no interval"


def over_processes(values: Sequence[float], n: int, confidence: float = CONFIDENCE) -> Quantity:
    """The geometric mean of one positive figure a process, with the t interval of the mean of its logarithms.

    Where a figure is 0, as a goodput can be, it is the mean and the t interval of the figures themselves, cut off at 0. With
    fewer than three processes there is no interval.

    Args:
        values: one a process, none below 0.
        n: what the figures rest on, such as requests.
    """
    count = len(values)
    if not count:
        return absent("no process has such a figure")
    logarithmic = min(values) > 0
    found = np.log(values) if logarithmic else np.asarray(values, dtype=float)
    mean, of_value = float(found.mean()), math.exp if logarithmic else float
    shown = Quantity(value=of_value(mean), n=n, processes=count)
    if count < FEWEST_PROCESSES:
        return shown.without_interval(f"an interval over processes takes {FEWEST_PROCESSES} of them")
    half = float(special.stdtrit(count - 1, 0.5 + confidence / 2) * found.std(ddof=1)) / math.sqrt(count)
    if half <= NO_SPREAD * max(1.0, abs(mean)):
        return shown.without_interval(SAME)
    if logarithmic and not abs(mean) + half < LARGEST_LOG:
        return shown.without_interval("so wide an interval says nothing")
    low, high = of_value(mean - half), of_value(mean + half)
    how = "t on logarithms" if logarithmic else "t"
    return Quantity(
        value=shown.value, low=max(0.0, low), high=high, n=n, method=f"{how} over {count} processes", processes=count
    )
