"""A figure over processes, and of two runs of the same prompts: with an interval, and the probability of a ratio by chance.

The unit is the fresh process, because repeats inside one process share its conditions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

import numpy as np
from scipy import special

from harness.frozen import frozen
from harness.stats.crossed import NO_SPREAD, Cells, Grouped, gather, variance_of_mean, variance_over_processes, within_strata
from harness.stats.quantity import CONFIDENCE, FEWEST_PROCESSES, Floats, Quantity, Variance, absent, added_up, t_reach
from harness.stats.ratios import within

SAME_RATIO = "all processes and prompts gave the same ratio: no spread, no interval"
SAME = "all processes gave the same figure: no spread, no interval"
TOO_FEW = f"an interval over processes takes {FEWEST_PROCESSES} of them"
File = Mapping[int, float]
"""Of each request, by its place: what it adds to the log figure of its file, which is the mean over them."""


@frozen
class Observations:
    """Positive figures of one run, each with its prompt and process; every process has every prompt, or prompts of its own.
    Prompts may be ``Grouped``.
    """

    values: Sequence[float]
    prompts: Sequence[Hashable]
    processes: Sequence[Hashable]


class RatioOfRuns(NamedTuple):
    """NEW / BASE, and ``p`` of "both are alike", two-sided; None with fewer than three processes on a side."""

    ratio: Quantity
    p: float | None = None


def ratio_of_runs(base: Observations, new: Observations, confidence: float = CONFIDENCE) -> RatioOfRuns:
    """Geometric mean of NEW / BASE over prompts, with a two-sided interval on the log ratios.

    From three processes a side on, two samples of processes are compared, each process one mean over the prompts. The wider of
    two intervals is given: Welch's, and the one of equal variances. With 3 processes beside 10 on a machine of two states,
    Welch's alone flags 20 % of runs of one code. The other alone flags up to 7 %, the wider one at most 5 %. The variance of
    the change between prompts of a stratum, beyond noise, is added: the prompts are a sample too. With fewer processes the
    interval is that of the prompts and about these processes only. Where every process has prompts of its own, it is paired
    with the one of the other run that has the same.

    Raises:
        ValueError: the runs have other prompts, or a process lacks a prompt.

    Source: B. L. Welch, Biometrika 34 (1947) 28; F. E. Satterthwaite, Biometrics Bull. 2 (1946) 110.
    """
    if not base.values or not new.values:
        return RatioOfRuns(absent("no pairs to compare"))
    bad = [value for value in (*base.values, *new.values) if not (value > 0 and math.isfinite(value))]
    if bad:
        return RatioOfRuns(absent(f"{len(bad)} figures are not positive finite numbers, such as {bad[0]}: no ratio"))
    if set(base.prompts) != set(new.prompts):
        raise ValueError("two runs are compared over the same prompts")
    cells = _cells(base), _cells(new)
    if cells[0].own and cells[1].own:
        means, away = cells[0].by_process(cells[1].means.sum(axis=1, keepdims=True) - cells[0].means)
        shown = Quantity(value=math.exp(means.mean()), n=len(away), processes=len(means))
        errors = [variance_over_processes(means, away) or Variance(0.0, 1.0)]
        return _tested(shown, errors, f"{len(means)} pairs of processes with prompts of their own", confidence)
    tables = [one.units(one.means) for one in cells]
    by_prompt = tables[1].mean(axis=1) - tables[0].mean(axis=1)
    mean, sides = float(by_prompt.mean()), [table.shape[1] for table in tables]
    shown = Quantity(value=math.exp(mean), n=len(cells[0].unit), processes=min(sides))
    if len(by_prompt) < 2:
        return RatioOfRuns(shown.without_interval(f"one {cells[0].sampled} only: no interval"))
    of_prompts = within_strata(by_prompt - mean, cells[0].stratum)
    errors = _errors(tables, of_prompts) if min(sides) >= FEWEST_PROCESSES else [of_prompts]
    return _tested(shown, errors, f"{sides[0]} processes of BASE beside {sides[1]} of NEW", confidence)


def _tested(shown: Quantity, errors: Sequence[Variance], told: str, confidence: float) -> RatioOfRuns:
    ratio = _within(shown, errors, confidence, SAME_RATIO, f"t on log ratios, {shown.these_processes_only or told}")
    if (ratio.processes or 0) < FEWEST_PROCESSES or ratio.low is None:
        return RatioOfRuns(ratio)
    away = -abs(math.log(shown.value or 1.0))
    return RatioOfRuns(ratio, max(2 * float(special.stdtr(one.degrees, away / math.sqrt(one.value))) for one in errors))


def ratio_of_files(over: Sequence[File], under: Sequence[File], confidence: float = CONFIDENCE) -> Quantity:
    """Geometric mean of ``over`` ÷ that of ``under``, each file one process; nothing pairs a process with another.

    From three processes a side on it has an interval. Files that hold the same prompts repeat one draw of them, so a side's
    error is that of places crossed with files (``variance_of_mean``): where the files hold other prompts at a place, only their
    spread is left of it. Both errors add up, as in Welch's test. With the spread of the files alone, claims over 5 files of the
    same 50 prompts were falsely confirmed in 20 % of runs, with this in 3 %.
    """
    figures = [[fmean(file.values()) for file in side] for side in (over, under)]
    mean, fewest = fmean(figures[0]) - fmean(figures[1]), min(map(len, figures))
    shown = Quantity(value=math.exp(mean), n=min(sum(map(len, side)) for side in (over, under)), processes=fewest)
    if fewest < FEWEST_PROCESSES:
        return shown.without_interval(f"{fewest} processes on a side, without pairs: an interval takes {FEWEST_PROCESSES}")
    tables = [np.array([[file[at] for file in side] for at in set.intersection(*map(set, side))]) for side in (over, under)]
    if min(map(len, tables)) < 2:
        return shown.without_interval("fewer than two requests at the same places in all files of a side: no interval")
    known = [found for found in map(variance_of_mean, tables) if found is not None]
    told = f"t on log means of {len(over)} processes beside {len(under)}, unpaired"
    return _within(shown, [added_up(known)], confidence, SAME, told)


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
    data = np.log(values) if logarithmic else np.asarray(values, dtype=float)
    mean, method = float(data.mean()), f"over {count} processes"
    shown = Quantity(value=math.exp(mean) if logarithmic else mean, n=n, processes=count)
    if count < FEWEST_PROCESSES:
        return shown.without_interval(TOO_FEW)
    error = Variance(float(data.var(ddof=1)) / count, count - 1)
    if logarithmic:
        return _within(shown, [error], confidence, SAME, f"t on logarithms {method}")
    half = error.reach(confidence)
    if half <= NO_SPREAD * max(1.0, mean):
        return shown.without_interval(SAME)
    return replace(shown, low=max(0.0, mean - half), high=mean + half, method=f"t {method}")


def percentile_ratio(
    over: Sequence[Sequence[float]], under: Sequence[Sequence[float]], percent: float, n: int, confidence: float = CONFIDENCE
) -> Quantity:
    """The percentile of all values ``over`` ÷ that of all ``under``, both by process, with the t interval of the jackknife over
    processes: a mean of the processes' own ratios is biased where a percentile of few values is.

    Source: R. G. Miller, Biometrika 61 (1974) 1; percentiles by R. Hyndman and Y. Fan, definition 8.
    """
    count = len(over)

    def without(left: int | None) -> float:
        """The log ratio of all processes but one."""
        sides = ([one for i, one in enumerate(side) if i != left] for side in (over, under))
        a, b = (float(np.percentile(np.concatenate(side), percent, method="median_unbiased")) for side in sides)
        return math.log(a / b)

    shown = Quantity(value=math.exp(without(None)), n=n, processes=count)
    if count < FEWEST_PROCESSES:
        return shown.without_interval(TOO_FEW)
    error = Variance((count - 1) * float(np.var([without(i) for i in range(count)])), count - 1)
    return _within(shown, [error], confidence, SAME, f"t by the jackknife over {count} processes")


def within_pooled(
    found: Quantity, values: Sequence[Sequence[float]], percent: float, confidence: float = CONFIDENCE
) -> Quantity:
    """A percentile over processes with the wider interval of two: ``found``'s own, and that of all ``values`` together.

    A process with few values shows a tail rarely, so that the spread of its percentiles hides it. The other interval ends where
    a t test over processes finds another share of values below than ``percent``, with no less than the binomial error.

    Source: R. S. Woodruff, J. Am. Stat. Assoc. 47 (1952) 635; W. G. Cochran, Sampling Techniques (1977), equation 6.13.
    """
    if found.low is None or found.high is None:
        return found
    every, wanted, count = np.sort(np.concatenate(values)), percent / 100, len(values)
    below = np.array([np.searchsorted(np.sort(one), every, side="right") for one in values])
    share = below.sum(axis=0) / len(every)
    away = below - share * np.array([[len(one)] for one in values])
    error = np.sqrt((away**2).sum(axis=0) * count / (count - 1)) / len(every)
    reach, least = t_reach(count - 1, confidence), math.sqrt(wanted * (1 - wanted) / len(every))
    if reach * least >= min(wanted, 1 - wanted):
        return found.without_interval(f"{len(every)} values in {count} processes are too few to bound percentile {percent:g}")
    kept = np.flatnonzero(np.abs(share - wanted) <= reach * np.maximum(error, least))
    if not len(kept):  # most values are one
        return found
    low, high = (float(every[at]) for at in (max(0, kept[0] - 1), kept[-1] + 1))
    return replace(found, low=min(found.low, low), high=max(found.high, high))


def _within(ratio: Quantity, errors: Sequence[Variance], confidence: float, same: str, method: str) -> Quantity:
    """The ratio with the wider interval of these errors of its logarithm; ``same``: why there is none without spread."""
    mean = math.log(ratio.value or 1.0)
    if min(error.value for error in errors) <= NO_SPREAD**2 * max(1.0, mean**2):
        return ratio.without_interval(same)
    half = max(error.reach(confidence) for error in errors)
    return within(ratio, (half, half), method)


def sign_test_p(differences: Sequence[float]) -> float | None:
    """Two-sided p of "a pair gains as often as it loses"; None where no pair differs.

    Source: Q. McNemar, Psychometrika 12 (1947) 153, in its exact binomial form.
    """
    lost, won = sum(one < 0 for one in differences), sum(one > 0 for one in differences)
    return min(1.0, 2 * float(special.bdtr(min(lost, won), lost + won, 0.5))) if lost + won else None


def _cells(one: Observations) -> Cells:
    """Log figures by prompt and process; clusters of prompts count where processes share prompts."""
    prompts = one.prompts
    if len({*one.processes}) > 1 and len({*prompts}) == len({*zip(prompts, one.processes, strict=True)}):
        prompts = [
            Grouped(label.stratum, label.prompt, label.prompt) if isinstance(label, Grouped) else label for label in prompts
        ]
    cells = gather(np.log(np.asarray(one.values, dtype=float))[:, None], prompts, one.processes)
    if not (cells.own or cells.counts.all()):
        raise ValueError("every process of a run must have every prompt")
    return cells


def _errors(tables: Sequence[Floats], of_prompts: Variance) -> list[Variance]:
    """Of the difference of two means over processes (columns), by Welch and by equal variances; the prompts' variance beyond
    noise is added to each.
    """
    prompts, counts = len(tables[0]), [table.shape[1] for table in tables]
    squares = [float(((table.mean(axis=0) - table.mean()) ** 2).sum()) for table in tables]
    free, both = sum(counts) - 2, sum(1 / count for count in counts)
    welch = added_up([Variance(one / (count - 1) / count, count - 1) for one, count in zip(squares, counts, strict=True)])
    found = [welch, Variance(sum(squares) / free * both, free)]
    left = [table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean() for table in tables]
    degrees = (prompts - 1) * free
    noise = sum(float((one**2).sum()) for one in left) / degrees * both / prompts
    if of_prompts.value <= noise:
        return found
    return [added_up([of_prompts, Variance(-noise, degrees), one]) for one in found]
