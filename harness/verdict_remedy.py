"""What would decide a claim that these prompts leave open: how many more, planned for a power of 90 %.

Plans from the value that was measured and a cautious bound of its spread, so it is an estimate itself. Knows no arm and no run.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

from harness import stats
from harness.claims import METRICS, PREDICTION_ERRORS, Bound
from harness.stats import Quantity
from harness.stats_percentile import values_for_percentile
from harness.stats_planning import POWER, SampleSize, cautious, prompts_to_decide


def more_prompts(bound: Bound, value: Quantity, sd: Quantity | None, batch_size: int) -> str:
    """In words. ``sd``: of a loss of accuracy, over prompts. At ``batch_size`` above 1 what is timed is counted in batches."""
    if bound.metric == "accuracy_loss_points":
        return _said(_for_accuracy(bound, value, sd), value.n, "prompts")
    if bound.metric == "identical_to_ntp":
        return _said(_for_share(bound, value), value.n, "prompts")
    unit = "prompts" if batch_size == 1 else f"batches of {batch_size}"
    if not METRICS[bound.metric].averaged:
        return _for_percentile(bound, value, unit)
    return _said(_for_ratio(bound, value), value.n, unit)


def straddled(bound: Bound, value: Quantity) -> list[float]:
    """The limits that have to be told from the value: the one it is beyond, or else all that its interval reaches across."""
    if value.value is None:
        return []
    low, high = bound.limits
    if low is not None and value.value < low:
        return [low]
    if high is not None and value.value > high:
        return [high]
    limits = [limit for limit in (low, high) if limit is not None]
    if value.low is None or value.high is None:
        return limits
    return [limit for limit in limits if value.low < limit < value.high]


def _for_ratio(bound: Bound, value: Quantity) -> SampleSize:
    """The most that any of the limits asks for."""
    shift = 1.0 if bound.metric in PREDICTION_ERRORS else 0.0  # predicted ÷ measured is the ratio
    value_at, low, high = (None if end is None else end + shift for end in (value.value, value.low, value.high))
    spread = None if value.spread is None else cautious(value.spread, value.n)
    ratio = replace(value, value=value_at, low=low, high=high, spread=spread)
    sizes = [prompts_to_decide(ratio, limit + shift) for limit in straddled(bound, value) if limit + shift > 0]
    unplanned = next((size for size in sizes if size.prompts is None), None)
    return unplanned or max(sizes, key=lambda size: size.prompts or 0, default=SampleSize(prompts=None, reason=value.reason))


def _for_accuracy(bound: Bound, value: Quantity, sd: Quantity | None) -> SampleSize:
    """Two one-sided tests: n = ((z(95 %) + z(90 %)) · sd ÷ (δ - loss))², and no fewer than could show it at all.

    Source: the normal approximation for a paired non-inferiority test.
    """
    if value.value is None or sd is None or sd.value is None:
        return SampleSize(prompts=None, reason=(sd.reason if sd else None) or value.reason)
    needed = 0
    for limit in straddled(bound, value):
        distance = abs(limit - value.value)
        if distance == 0:
            return SampleSize(prompts=None, reason="the value equals the bound: no number of prompts tells them apart")
        z = NormalDist().inv_cdf(stats.CONFIDENCE) + NormalDist().inv_cdf(POWER)
        at_least = stats.pairs_needed(distance / 100) if distance < 100 else 2
        needed = max(needed, at_least, math.ceil((z * sd.value / distance) ** 2))
    return SampleSize(prompts=needed)


def _for_share(bound: Bound, value: Quantity) -> SampleSize:
    """n = ((z(97.5 %) √(L (1 - L)) + z(90 %) √(p (1 - p))) ÷ (p - L))² tells a share p from the limit L.

    Source: the normal approximation for one proportion; at p = 1 it is where Wilson's lower end reaches L.
    """
    needed = 0
    for limit in [one for one in bound.limits if one is not None]:
        distance = abs(limit - (value.value or 0.0))
        if not 0 < limit < 1:
            return SampleSize(prompts=None, reason=f"no sample shows a share to be {limit:g}; claim less, or gate on the count")
        if distance == 0:
            return SampleSize(prompts=None, reason="the value equals the bound: no number of prompts tells them apart")
        spread = ((limit, (1 + stats.CONFIDENCE) / 2), (value.value or 0.0, POWER))
        reach = sum(NormalDist().inv_cdf(level) * math.sqrt(share * (1 - share)) for share, level in spread)
        needed = max(needed, math.ceil((reach / distance) ** 2))
    return SampleSize(prompts=needed)


def _for_percentile(bound: Bound, value: Quantity, unit: str) -> str:
    if value.low is None:
        wanted = values_for_percentile(float(bound.metric.removeprefix("latency_p").removesuffix("_s")))
        return f"{max(1, wanted - value.n)} more {unit} ({wanted} in all) give it an interval"
    return f"more {unit}; how many is not planned for a percentile"


def _said(size: SampleSize, n: int, unit: str) -> str:
    if size.prompts is None:
        return f"no number of {unit} can be planned: {size.reason or 'there is no interval to plan from'}"
    more = max(1, size.prompts - n)
    fresh = f", each in {size.processes} fresh processes" if (size.processes or 1) > 1 else ""
    why = f" ({size.reason})" if size.reason else ""
    return f"{more:,} more {unit} ({n + more:,} in all{fresh}) would decide it with {POWER:.0%} power{why}"
