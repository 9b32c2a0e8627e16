"""Speedups over paired decodes with intervals that respect prompts crossed with processes.

Two estimators: the geometric mean of per-prompt ratios (every prompt counts the same) and the ratio of totals normalised by
tokens (long decodes weigh more). Both are about the population of prompts. With fewer than three processes they are about these
processes only, which ``method`` says.

Degenerate input gives the value without interval, or no value, each with its reason; never NaN.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from harness.stats.bootstrap import influences, log_ratio, quantiles
from harness.stats.crossed import Cells, VarianceOfMean, gather
from harness.stats.quantity import CONFIDENCE, Floats, Quantity, absent, t_reach

FEWEST_PROMPTS_FOR_TOTALS = 5
"""With 3 prompts the bootstrap covered 89 % where 95 % is nominal (benchmarks/interval_coverage)."""
LEAST_EFFECTIVE_SHARE = 1 / 3
"""Least effective share of prompts for an interval of a ratio of totals. Three slow prompts in a hundred left 29 to 63 %
coverage; lengths of lognormal spread 0.5 have 0.78, of 1.0 have 0.37 (benchmarks/verdict_errors)."""
LARGEST = 1e75
"""Largest time or count, its inverse the smallest: a product or quotient of four stays a finite float."""
LARGEST_LOG = 690.0
SAME_RATIO = "all prompts gave the same ratio: no spread, no interval"

Pairs = Sequence[tuple[float, float]]
Labels = Sequence[Hashable] | None
"""One a pair; None: every prompt its own, all processes one."""


def geometric_mean_ratio(
    pairs: Pairs, clusters: Labels = None, processes: Labels = None, confidence: float = CONFIDENCE
) -> Quantity:
    """Geometric mean of ``a / b`` over prompts, with a two-sided t interval on the log ratios.

    Args:
        pairs: positive ``(a, b)``, same unit.
        clusters: the prompt of each pair, ``Grouped`` where prompts have strata or relatives; repeats are averaged per prompt
            and process first (default: every pair its own).
        processes: the process of each pair (default: all from one).
        confidence: coverage of the interval.

    Source: mean of log ratios ± t · standard error, exponentiated; standard error of bootstrap.variance_of_mean.
    """
    wrong = _wrong(pairs)
    if wrong:
        return wrong
    cells = _log_ratios(pairs, clusters, processes)
    told = cells.counts.shape[1] if processes is not None else None
    shown = Quantity(value=math.exp(cells.mean), n=len(cells.counts), processes=told)
    if len(cells.stratum) < 2:
        return shown.without_interval(f"one {cells.sampled} only: no interval")
    variance = cells.variance(cells.means)
    if cells.too_empty or variance is None:
        return shown.without_interval(cells.too_empty or SAME_RATIO)
    half = variance.reach(confidence)
    return _within(shown, (half, half), "t on log ratios", variance, cells.own)


def ratio_of_totals(
    pairs: Pairs, tokens: Pairs | None = None, clusters: Labels = None, processes: Labels = None, confidence: float = CONFIDENCE
) -> Quantity:
    """(Σa ÷ Σ tokens of a) ÷ (Σb ÷ Σ tokens of b), with a bootstrap-t interval over prompts.

    Args:
        pairs: positive ``(a, b)``, same unit.
        tokens: what each of them is divided by (default: 1 each, so that the value is Σa ÷ Σb).
        clusters: the prompt of each pair (default: every pair its own).
        processes: the process of each pair (default: all from one); from three on the interval is widened by
            what they add, as in geometric_mean_ratio, on the influence of each prompt in each process.
        confidence: coverage of the interval.

    No interval where a few prompts hold most of a total. With w the share of each prompt, 1 / Σw² is the effective number of
    prompts (L. Kish, Survey Sampling, 1965, section 11.7). It must be at least a third of their number.
    """
    counted = tokens if tokens is not None else [(1.0, 1.0)] * len(pairs)
    wrong = _wrong(pairs) or _wrong(counted)
    if wrong:
        return wrong
    columns = np.array([(a, n, b, m) for (a, b), (n, m) in zip(pairs, counted, strict=True)], dtype=float)
    a, of_a, b, of_b = map(math.fsum, columns.T)
    cells = _gathered(columns, clusters, processes)
    told = cells.sums.shape[1] if processes is not None else None
    shown = Quantity(value=(a / b) / (of_a / of_b), n=len(cells.sums), processes=told)
    if (units := len(cells.stratum)) < FEWEST_PROMPTS_FOR_TOTALS:
        prompts = f"one {cells.sampled} only" if units == 1 else f"{units} {cells.sampled}s only"
        return shown.without_interval(f"{prompts}: no interval; a ratio of totals takes {FEWEST_PROMPTS_FOR_TOTALS}")
    if unfit := cells.too_empty or _concentrated(cells):
        return shown.without_interval(unfit)
    return _within_bootstrap(shown, cells, confidence)


def ratio_percentiles(pairs: Pairs, clusters: Labels = None) -> tuple[float, float, float] | None:
    """10th, 50th and 90th percentile over prompts of each prompt's geometric mean ratio; None where there is no ratio."""
    if _wrong(pairs):
        return None
    p10, p50, p90 = np.exp(np.quantile(_log_ratios(pairs, clusters, None).means[:, 0], [0.1, 0.5, 0.9])).tolist()
    return p10, p50, p90


def _within(shown: Quantity, reach: tuple[float, float], method: str, variance: VarianceOfMean, own: bool) -> Quantity:
    """The ratio with the interval that reaches this far below and above on the log scale."""
    design = "prompts of their own in" if own else "prompts crossed with"
    told = shown.these_processes_only or (f"{design} {shown.processes} processes" if shown.processes else None)
    return within(replace(shown, spread=variance.spread), reach, f"{method}, {told}" if told else method)


def within(ratio: Quantity, reach: tuple[float, float], method: str) -> Quantity:
    """A ratio with the interval that reaches this far below and above on the log scale."""
    value = ratio.value or 0.0
    if not abs(math.log(value)) + max(reach) < LARGEST_LOG:
        return ratio.without_interval("so wide an interval says nothing")
    return replace(ratio, low=value * math.exp(-reach[0]), high=value * math.exp(reach[1]), method=method)


def _within_bootstrap(shown: Quantity, cells: Cells, confidence: float) -> Quantity:
    """The bootstrap's quantiles for the units' variance, stretched by the variance that processes add.

    The quantiles are those of one stratum: the time of base is scaled until all strata have one ratio.
    """
    by_unit = cells.by_unit(cells.sums.sum(axis=1))
    totals = by_unit.sum(axis=0)
    variance = cells.variance(influences(cells.sums.reshape(-1, 4), totals).reshape(cells.counts.shape))
    if variance is None:
        return shown.without_interval(SAME_RATIO)
    for stratum in range(int(cells.stratum.max()) + 1):
        rows = cells.stratum == stratum
        by_unit[rows, 0] /= math.exp(log_ratio(by_unit[rows].sum(axis=0)) - log_ratio(totals))
    student = t_reach(len(by_unit) - 1, confidence)
    half = variance.reach(confidence)
    below, above = quantiles(by_unit, confidence) if math.sqrt(variance.of_prompts) > 1e-12 else (student, student)
    reach = below / student * half, above / student * half
    if not all(map(math.isfinite, reach)):
        return shown.without_interval("nearly all prompts gave the same ratio: the few others are too few for an interval")
    return _within(shown, reach, "bootstrap-t", variance, cells.own)


def _concentrated(cells: Cells) -> str | None:
    """Why the prompts are too unequal for an interval: how few of them hold half of a total."""
    shares = cells.by_unit(cells.sums.sum(axis=1)) / cells.sums.sum(axis=(0, 1))  # (units, 4)
    effective = 1 / (shares**2).sum(axis=0)
    worst = int(effective.argmin())
    if effective[worst] >= LEAST_EFFECTIVE_SHARE * len(shares):
        return None
    largest = np.cumsum(np.sort(shares[:, worst])[::-1])
    half = int(np.searchsorted(largest, 0.5)) + 1
    return (
        f"{half} of {len(shares)} {cells.sampled}s hold {largest[half - 1]:.0%} of a total, which weighs as "
        f"{effective[worst]:.1f} equal {cells.sampled}s: no interval of a ratio of totals; take the geometric mean"
    )


def _wrong(pairs: Pairs) -> Quantity | None:
    """Why no value exists: no pairs, or pairs without a ratio."""
    if not pairs:
        return absent("no pairs to compare")
    fine = [1 / LARGEST <= a <= LARGEST and 1 / LARGEST <= b <= LARGEST for a, b in pairs]  # False for NaN
    if not all(fine):
        bad = [pair for pair, good in zip(pairs, fine, strict=True) if not good]
        return absent(f"{len(bad)} of {len(pairs)} pairs are not positive finite numbers, such as {bad[0]}: no ratio")
    return None


def _log_ratios(pairs: Pairs, clusters: Labels, processes: Labels) -> Cells:
    logs = np.array([[math.log(a) - math.log(b)] for a, b in pairs])
    return _gathered(logs, clusters, processes)


def _gathered(columns: Floats, clusters: Labels, processes: Labels) -> Cells:
    n = len(columns)
    return gather(columns, clusters if clusters is not None else range(n), processes if processes is not None else [0] * n)


def ratio_of_independent(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """(low, expected, high) of a ratio of two such triples with independent errors.

    The squared distances of their ends from the middle, in logarithms, add up (propagation of independent errors).
    """
    return product_of_independent(over, [1 / value for value in reversed(under)])


def product_of_independent(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """(low, expected, high) of a product of two such triples, by the same rule."""
    first, second = (np.log(np.asarray(triple)) for triple in (one, other))
    down, up = math.hypot(first[1] - first[0], second[1] - second[0]), math.hypot(first[2] - first[1], second[2] - second[1])
    middle = float(first[1] + second[1])
    return math.exp(middle - down), math.exp(middle), math.exp(middle + up)
