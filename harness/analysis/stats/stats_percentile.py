"""A percentile of values with an interval that assumes no distribution over prompts, widened by what processes differ in."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
from scipy import special

from harness.analysis.stats.quantity import CONFIDENCE, FEWEST_PROCESSES, Quantity, absent
from harness.analysis.stats.stats_crossed import filled, gather


def percentile(values: Sequence[float], percent: float, confidence: float = CONFIDENCE) -> Quantity:
    """The smallest value that at least ``percent`` of the values do not exceed, in their unit, with its interval.

    The ends are two of the values. Where so few values have none that lies beyond the percentile with the wanted certainty,
    there is no interval.

    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd ed. (1999), section 3.2, as scipy has it.
    """
    if not len(values):
        return absent("no values to take a percentile of")
    from scipy.stats import quantile_test  # here: it takes a second to load, and not every command needs it

    n, share = len(values), percent / 100
    value = float(np.quantile(values, share, method="inverted_cdf"))
    ends = quantile_test(values, p=share).confidence_interval(confidence_level=confidence)
    if math.isnan(ends.low) or math.isnan(ends.high):
        return Quantity(value=value, n=n, reason=f"{n} values are too few for an interval of the {percent:g}th percentile")
    return Quantity(value=value, low=float(ends.low), high=float(ends.high), n=n, method="order statistics")


def percentile_over_processes(
    values: Sequence[float],
    prompts: Sequence[Hashable],
    processes: Sequence[Hashable],
    percent: float,
    confidence: float = CONFIDENCE,
) -> Quantity:
    """The percentile over prompts of each prompt's mean over processes (both by label), for positive ``values``.

    From three processes on each end is further away, in logarithms: √(a² + b²), a being how far the end of ``percentile`` is
    and b = t(Q - 1) · s / √Q over the percentiles of the Q processes. With fewer the interval is about these processes only.

    Source: S. K. Banerjee, Sankhya A 23 (1961) 359: squared distances of independent errors, each at the wanted level, add up
    to an interval that holds with at least that level.
    """
    if not len(values):
        return absent("no values to take a percentile of")
    cells = gather(np.array([[value] for value in values]), prompts, processes)
    empty = cells.counts == 0
    table = cells.sums[:, :, 0] / np.maximum(cells.counts, 1)
    if empty.any():
        table = np.exp(filled(np.log(np.where(empty, 1.0, table)), empty))
    found, told = percentile(table.mean(axis=1).tolist(), percent, confidence), table.shape[1]
    if found.value is None or found.low is None or found.high is None or cells.too_empty:
        return Quantity(value=found.value, n=found.n, processes=told, reason=found.reason or cells.too_empty)
    between, beside = 0.0, "these processes only"
    if told >= FEWEST_PROCESSES:
        own = np.log(np.quantile(table, percent / 100, axis=0, method="inverted_cdf"))
        between = float(special.stdtrit(told - 1, 0.5 + confidence / 2) * own.std(ddof=1)) / math.sqrt(told)
        beside = f"and t over {told} processes"
    ends = (found.value * math.exp(side * math.hypot(math.log(end / found.value), between))
            for side, end in ((-1, found.low), (1, found.high)))  # fmt: skip
    low, high = ends
    return Quantity(value=found.value, low=low, high=high, n=found.n, method=f"order statistics {beside}", processes=told)


def values_for_percentile(percent: float, confidence: float = CONFIDENCE) -> int:
    """Fewest values with which ``percentile`` has an interval: one lies beyond either side with the wanted certainty."""
    rarer = min(percent, 100 - percent) / 100
    return math.ceil(math.log((1 - confidence) / 2) / math.log1p(-rarer))
