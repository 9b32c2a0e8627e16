"""How many prompts would do: for an interval of a given width, or to decide a claim.

Plans from a ratio that was measured (its value and its spread); knows no record and no claim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import special

from harness.stats import CONFIDENCE, Quantity

POWER = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSize:
    """So many prompts in all (not in addition), each decoded in so many fresh processes; None with a ``reason``."""

    prompts: int | None
    processes: int | None = None
    reason: str | None = None


def prompts_to_decide(ratio: Quantity, bound: float, power: float = POWER, confidence: float = CONFIDENCE) -> SampleSize:
    """Fewest prompts at which the two-sided interval of ``ratio`` would leave ``bound`` out with this ``power``.

    ``ratio`` is a speedup with its interval, from geometric_mean_ratio or ratio_of_totals. ``processes`` is as many as it
    has, unless no number of prompts would do with those: then both are given, with the reason. ``prompts`` is None, with the
    reason, where it cannot be planned: no interval to plan from, or a value that equals the bound.

    Raises:
        ValueError: ``bound`` is not a positive number, ``power`` not between ``1 - confidence`` and 1.
    """
    if ratio.value is None or ratio.spread is None:
        return SampleSize(prompts=None, reason=ratio.reason or "no interval to plan from")
    distance = abs(math.log(ratio.value / bound))
    if distance == 0:
        return SampleSize(prompts=None, reason="the value equals the bound: no number of prompts tells them apart")
    needed = (float(special.ndtri(0.5 + confidence / 2)) + float(special.ndtri(power))) * ratio.spread.prompt / distance
    return SampleSize(prompts=max(2, math.ceil(needed**2)), processes=ratio.processes)
