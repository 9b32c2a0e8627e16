"""How many more prompts would decide an open claim, planned for a power of 90 %.

The plan assumes that the value stays as measured, at a cautious bound of its spread. It says so, and adds the numbers for a
truth at either end of the interval. A plan that nobody will run is none: then it says what would help instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist

from harness.scenario.claims import Bound
from harness.stats import quantity
from harness.stats.quantity import Quantity
from harness.stats.sample_size import (
    POWER,
    SampleSize,
    cautious,
    cautious_share,
    pairs_to_decide,
    prompts_to_decide,
    values_for_percentile,
)

Plan = Callable[[float], SampleSize]
"""From the true value of the figure to the total number of prompts that decides its claim."""
MOST_TIMES = 10
"""A plan of more times the decodes of the run is no advice."""
SAME = "the value equals the bound: no number of prompts tells them apart"


def more_prompts(bound: Bound, value: Quantity, sd: Quantity | None, unit: str) -> str:
    """In words. ``sd``: of a loss of accuracy, over prompts. ``unit``: of counting times (Cell.unit_of_times)."""
    if bound.definition.of_requests:
        return "more processes, or more requests in a sample; how many is not planned for a figure over requests"
    if bound.metric == "accuracy_loss_points":
        return _said(bound, value, lambda loss: _for_accuracy(bound, loss, value, sd), "prompts")
    if bound.metric == "identical_to_ntp":
        return _said(bound, value, lambda share: _for_share(bound, share), "prompts")
    percentile = bound.definition.percentile
    if percentile is not None and value.low is None:
        wanted = values_for_percentile(percentile)
        return f"{max(1, wanted - value.n)} more {unit} ({wanted} in all) give it an interval"
    if percentile is not None:
        return f"more {unit}; how many is not planned for a percentile"
    of = " of other tasks or clusters" if value.spread and value.spread.of_unit > 1 else ""
    return _said(bound, value, lambda ratio: _for_ratio(bound, ratio, value), unit + of)


def straddled(bound: Bound, value: Quantity) -> list[float]:
    """The limits to separate the value from: the one it is beyond, or else all that its interval contains."""
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


def _for_ratio(bound: Bound, true: float, value: Quantity) -> SampleSize:
    """The largest number that any limit requires."""
    shift = 1.0 if bound.definition.either_way else 0.0  # predicted ÷ measured is the ratio
    spread = None if value.spread is None else cautious(value.spread, value.n, value.processes)
    ratio = replace(value, value=true + shift, spread=spread)
    limits = straddled(bound, replace(value, value=true))
    sizes = [prompts_to_decide(ratio, limit + shift) for limit in limits if limit + shift > 0]
    unplanned = next((size for size in sizes if size.prompts is None), None)
    return unplanned or max(sizes, key=lambda size: size.prompts or 0, default=SampleSize(prompts=None, reason=value.reason))


def _for_accuracy(bound: Bound, true: float, value: Quantity, sd: Quantity | None) -> SampleSize:
    """Either end by itself, with at least the pairs that tolerate one lost answer; related prompts multiply the number.

    Where pairs differed, the share of differing pairs is the upper bound of ``cautious_share``; else one answer is lost.
    """
    if sd is None or sd.value is None:
        return SampleSize(prompts=None, reason=(sd.reason if sd else None) or value.reason)
    seen = (sd.value / 100) ** 2 * (value.n - 1) / value.n + ((value.value or 0.0) / 100) ** 2
    differing, needed = cautious_share(seen, sd.n) if seen > 0 else 0.0, 0
    for limit in straddled(bound, replace(value, value=true)):
        if true == limit:
            return SampleSize(prompts=None, reason=SAME)
        gain, beyond = (-true, -limit) if true < limit else (true, limit)
        needed = max(needed, pairs_to_decide(gain / 100, differing, beyond / 100))
        if true < limit < true + 100:
            needed = max(needed, quantity.pairs_needed((limit - true) / 100, losses=1))
    given = f"at most {differing:.1%} of the answers differing" if differing else "at most one answer lost"
    return SampleSize(prompts=math.ceil(needed * value.n / sd.n), given=given)


def _for_share(bound: Bound, true: float) -> SampleSize:
    """n = ((z(97.5 %) √(L(1-L)) + z(90 %) √(p(1-p))) ÷ (p-L))² tells a share p from the limit L.

    Source: the normal approximation for one proportion; at p = 1 Wilson's lower end reaches L at this n.
    """
    needed = 0
    for limit in [one for one in bound.limits if one is not None]:
        distance = abs(limit - true)
        if not 0 < limit < 1:
            return SampleSize(prompts=None, reason=f"no sample shows a share to be {limit:g}; claim less, or gate on the count")
        if distance == 0:
            return SampleSize(prompts=None, reason=SAME)
        spread = ((limit, (1 + quantity.CONFIDENCE) / 2), (true, POWER))
        reach = sum(NormalDist().inv_cdf(level) * math.sqrt(share * (1 - share)) for share, level in spread)
        needed = max(needed, math.ceil((reach / distance) ** 2))
    return SampleSize(prompts=needed)


def _said(bound: Bound, value: Quantity, plan: Plan, unit: str) -> str:
    size = SampleSize(prompts=None, reason=value.reason) if value.value is None else plan(value.value)
    if size.prompts is None and size.processes:  # a plan was looked for, and none of any size decides
        return _beyond(size.reason or "", value)
    if size.prompts is None or value.value is None:
        return f"no number of {unit} can be planned: {size.reason or 'there is no interval to plan from'}"
    in_all = max(size.prompts, value.n + 1)
    times = in_all * (size.processes or 1) / (max(1, value.n) * (value.processes or 1))
    if times > MOST_TIMES:
        return _beyond(f"it takes {times:,.0f} times these decodes", value)
    fresh = f", each in {size.processes} fresh processes" if (size.processes or 1) > 1 else ""
    given, why = f", {size.given}" if size.given else "", f" ({size.reason})" if size.reason else ""
    return (
        f"{in_all - value.n:,} more {unit} ({in_all:,} in all{fresh}) would decide it with {POWER:.0%} power if it stays at "
        f"{_shown(bound, value.value)}{given}{why}; {_at_the_ends(bound, value, plan)}"
    )


def _beyond(why: str, value: Quantity) -> str:
    """What would help, by the larger part of the variance."""
    spread, found = value.spread, "a wider margin, or another metric"
    if spread and (spread.process or 0.0) ** 2 / (value.processes or 1) > spread.prompt**2 / value.n:
        found = f"more processes or a quieter machine, for processes differ most (by {spread.process:.1%})"
    elif spread:
        found = f"longer answers or another metric, for prompts differ most (by {spread.prompt:.1%})"
    return f"not decidable with this design: {why}; what would help: {found}"


def _at_the_ends(bound: Bound, value: Quantity, plan: Plan) -> str:
    """The number for a truth at either end of the interval; no number decides a truth at the bound."""
    sizes = [(end, plan(end)) for end in (value.low, value.high) if end not in (None, value.value)]
    said = [
        f"{max(size.prompts, value.n + 1):,} in all at {_shown(bound, end)}"
        for end, size in sizes
        if end is not None and size.prompts is not None
    ]
    return ", ".join([*said, "none if the truth is at the bound"])


def _shown(bound: Bound, value: float) -> str:
    """``3.06x``, ``0.5 points lost``."""
    if bound.definition.either_way:
        return f"{value:+.1%}"
    if bound.metric == "accuracy_loss_points":
        return f"{value + 0.0:.3g} points lost"  # + 0.0 turns -0 into 0
    unit = bound.definition.unit
    return f"{value:.4g}{'' if unit == 'x' else ' '}{unit}"
