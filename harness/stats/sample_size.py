"""The number of prompts for an interval of a given width, or to decide a claim; and percentiles with their intervals.

Plans assume a true value, such as the measured one. The interval of a percentile assumes no distribution over prompts; it is
widened by the differences between processes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from harness.frozen import frozen
from harness.stats.bootstrap import SPREAD_CONFIDENCE, hidden
from harness.stats.crossed import filled, gather
from harness.stats.quantity import (
    CONFIDENCE,
    FEWEST_PROCESSES,
    Quantity,
    Spread,
    Variance,
    absent,
    added_up,
    effective_pairs,
    lost_share,
    t_reach,
)

POWER = 0.9
MOST_PROMPTS = 1_000_000
MOST_PROCESSES = 50
WORTH_MORE_PROCESSES = 2.0
"""More processes are recommended only where they save this factor of decodes."""


@frozen
class SampleSize:
    """A total of prompts (not additional ones), each decoded in ``processes`` fresh processes; None with a ``reason``.

    ``given``: what is assumed besides the value and its spread.
    """

    prompts: int | None
    processes: int | None = None
    reason: str | None = None
    given: str | None = None


def prompts_for_width(ratio: Quantity, width: float) -> int | None:
    """Fewest prompts at which the t interval of ``ratio`` would reach no further than ``width`` (0.05: 5 %) above its value.

    The spread and the number of processes are assumed to stay. None where ``ratio`` has no interval, or where no number of
    prompts is enough.
    """
    spread = ratio.spread
    if spread is None:
        return None

    def enough(prompts: int) -> bool:
        return _variance(spread, prompts, ratio.processes).reach(CONFIDENCE) <= math.log1p(width)

    return _fewest(enough)


def prompts_to_decide(ratio: Quantity, bound: float, power: float = POWER) -> SampleSize:
    """Fewest prompts at which the two-sided interval of ``ratio`` would exclude ``bound`` with this ``power``.

    ``ratio`` is a speedup with its interval, from geometric_mean_ratio or ratio_of_totals. ``processes`` is as many as it has.
    It is more, with the reason, where a million prompts cannot offset the difference between processes. It is also more where
    more processes need less than half the decodes in all. ``prompts`` is None, with the reason, without an interval to plan
    from or where the value equals the bound.

    Source: power of the t test from the noncentral t distribution at the observed value and spread.

    Raises:
        ValueError: ``bound`` is not a positive number, or ``power`` is not between 0.5 and 1.
    """
    if not (math.isfinite(bound) and bound > 0) or not 0.5 <= power < 1:
        raise ValueError(f"bound {bound}, power {power}: a ratio is held against a positive bound, with a power of 0.5 to 1")
    spread = ratio.spread
    if ratio.value is None or spread is None:
        return SampleSize(prompts=None, reason=ratio.reason or "no interval to plan from")
    distance = abs(math.log(ratio.value / bound))
    if distance < 1e-12:
        return SampleSize(prompts=None, reason="the value equals the bound: no number of prompts tells them apart")

    def reached(prompts: int, processes: int | None) -> float:
        """Chance that the interval leaves out the bound."""
        planned = _variance(spread, prompts, processes)
        critical = t_reach(planned.degrees, CONFIDENCE)
        return 1 - float(special.nctdtr(planned.degrees, distance / math.sqrt(planned.value), critical))

    def fewest(processes: int | None) -> int | None:
        return _fewest(lambda prompts: reached(prompts, processes) >= power)

    own = fewest(ratio.processes)
    if not spread.process or ratio.processes is None:
        return SampleSize(prompts=own, processes=ratio.processes, reason=None if own else _too_many("this spread"))
    return _with_more_processes(fewest, ratio.processes, own)


def pairs_to_decide(difference: float, differing: float, limit: float) -> int:
    """Fewest pairs at which the lower bound of a paired difference is above ``limit`` with a power of POWER.

    ``difference`` (above ``limit``) and the share of ``differing`` pairs are assumed true. All three are shares.

    Source: J. Nam, Biometrics 53 (1997) 1422, for the score test; half an answer is added because the distribution is exact.
    """
    differing = min(1.0, max(differing, abs(difference)))
    distance = difference - limit
    lost = lost_share(1.0, (differing + difference) / 2, (differing - difference) / 2, limit)
    under_limit, under_truth = 2 * lost + limit - limit**2, differing - difference**2
    sure, likely = map(float, special.ndtri([(1 + CONFIDENCE) / 2, POWER]))
    reach = sure * math.sqrt(under_limit) + likely * math.sqrt(under_truth)
    return math.ceil(((reach + math.sqrt(reach**2 + 2 * distance)) / (2 * distance)) ** 2)


def cautious_share(share: float, pairs: int) -> float:
    """The share that few ``pairs`` may hide: its one-sided 80 % upper bound (Clopper-Pearson)."""
    seen = share * pairs
    return 1.0 if seen >= pairs else float(special.betaincinv(seen + 1, pairs - seen, SPREAD_CONFIDENCE))


def cautious(spread: Spread, prompts: int, processes: int | None = None) -> Spread:
    """The spread that few ``prompts`` and ``processes`` may have hidden: one-sided 80 % upper bounds of standard deviations.

    Plans for 90 % power from 8 prompts were simulated. With the observed spread they decided 80 to 84 % of claims, with this
    one 88 % or more.
    """
    process = spread.process and spread.process * hidden(processes or 2)
    return replace(spread, prompt=spread.prompt * hidden(prompts / spread.of_unit), process=process)


def _with_more_processes(fewest: Callable[[int | None], int | None], processes: int, own: int | None) -> SampleSize:
    """The design with the fewest decodes in all; the ``own`` number of prompts where more processes save little."""
    designs = ((more, fewest(more)) for more in range(processes + 1, MOST_PROCESSES + 1))
    best = min(((more * prompts, more, prompts) for more, prompts in designs if prompts), default=None)
    if own is not None and (best is None or own * processes <= WORTH_MORE_PROCESSES * best[0]):
        return SampleSize(prompts=own, processes=processes)
    if best is None:
        return SampleSize(prompts=None, processes=processes, reason=_too_many(f"{MOST_PROCESSES} processes"))
    _, more, prompts = best
    instead = "no number of prompts would do" if own is None else f"it would take {own} prompts"
    reason = f"the processes differ: with {processes} of them {instead}"
    return SampleSize(prompts=prompts, processes=more, reason=reason)


def _too_many(what: str) -> str:
    return f"with {what}, {MOST_PROMPTS:,} prompts are not enough"


def _variance(spread: Spread, prompts: int, processes: int | None) -> Variance:
    """Of the log ratio in a design with this spread."""
    parts = [Variance(spread.prompt**2 / prompts, max(2.0, prompts / spread.of_unit) - 1)]
    if spread.process and processes is not None:
        parts.append(Variance(spread.process**2 / processes, processes - 1))
    return added_up(parts)


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """Fewest prompts that are ``enough``, two at least; None where a million are not enough."""
    high = 2
    while not enough(high):
        if high >= MOST_PROMPTS:
            return None
        high = min(2 * high, MOST_PROMPTS)
    return bisect_left(range(high), True, lo=high // 2 + 1, key=enough)


def percentile(
    values: Sequence[float], percent: float, confidence: float = CONFIDENCE, clusters: Sequence[Hashable] | None = None
) -> Quantity:
    """The smallest value that at least ``percent`` of the values do not exceed, in their unit, with its interval.

    The ends are two of the values. Without a value beyond the percentile with the wanted certainty, the interval is absent.
    Related values (``clusters``) count as fewer, evenly spaced among them.

    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd ed. (1999), section 3.2, as in scipy; of related values R. S.
    Woodruff, JASA 47 (1952) 635, with the design effect of ``effective_pairs``.
    """
    if not len(values):
        return absent("no values to take a percentile of")
    from scipy.stats import quantile_test  # here: loading takes a second, and few commands need it

    n, share = len(values), percent / 100
    value = float(np.quantile(values, share, method="inverted_cdf"))
    if clusters is not None and (count := effective_pairs([float(one <= value) for one in values], clusters)) < n:
        values = np.quantile(values, (np.arange(count) + 0.5) / count, method="inverted_cdf").tolist()
    ends = quantile_test(values, p=share).confidence_interval(confidence_level=confidence)
    if math.isnan(ends.low) or math.isnan(ends.high):
        return Quantity(
            value=value, n=n, reason=f"{len(values)} values are too few for an interval of the {percent:g}th percentile"
        )
    return Quantity(value=value, low=float(ends.low), high=float(ends.high), n=n, method="order statistics")


def percentile_over_processes(
    values: Sequence[float],
    prompts: Sequence[Hashable],
    processes: Sequence[Hashable],
    percent: float,
    confidence: float = CONFIDENCE,
) -> Quantity:
    """The percentile over prompts of each prompt's mean over processes (both by label), for positive ``values``. Strata are
    ignored, which makes an interval no shorter.

    From three processes on each end is √(a² + b²) away, in logarithms. a is the distance of the end of ``percentile``; b = t(Q
    - 1) · s / √Q over the percentiles of the Q processes. With fewer the interval is about these processes only.

    Source: S. K. Banerjee, Sankhya A 23 (1961) 359. Added squared distances of independent errors, each at the wanted level,
    give an interval of at least that level.
    """
    if not len(values):
        return absent("no values to take a percentile of")
    cells = gather(np.array([[value] for value in values]), prompts, processes)
    empty = cells.counts == 0
    table = cells.sums[:, :, 0] / np.maximum(cells.counts, 1)
    if empty.any() and not cells.own:
        table = np.exp(filled(np.log(np.where(empty, 1.0, table)), empty))
    by_prompt, told = table.sum(axis=1) if cells.own else table.mean(axis=1), table.shape[1]
    found = percentile(by_prompt.tolist(), percent, confidence, cells.unit.tolist())
    if found.value is None or not found.low or found.high is None or cells.too_empty:
        return replace(found, processes=told).without_interval(cells.too_empty or "a value of 0 has no ratio")
    between, beside = 0.0, "these processes only"
    if told >= FEWEST_PROCESSES:
        columns = [column[~lacks] if cells.own else column for column, lacks in zip(table.T, empty.T, strict=True)]
        by_process = np.log([np.quantile(column, percent / 100, method="inverted_cdf") for column in columns])
        between = t_reach(told - 1, confidence) * float(by_process.std(ddof=1)) / math.sqrt(told)
        beside = f"and t over {told} processes"
    low, high = (
        found.value * math.exp(side * math.hypot(math.log(end / found.value), between))
        for side, end in ((-1, found.low), (1, found.high))
    )
    return replace(found, low=low, high=high, method=f"order statistics {beside}", processes=told)


def values_for_percentile(percent: float) -> int:
    """Fewest values with which ``percentile`` has an interval: one is beyond either side with the wanted certainty."""
    rarer = min(percent, 100 - percent) / 100
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log1p(-rarer))
