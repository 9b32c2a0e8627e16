"""Tables of prompts crossed with processes: cells, units in strata, and the variance of a mean.

A mean is over prompts. Independent are units, drawn in each stratum: prompts, or clusters of related ones (``Grouped``).

Prompts and processes are crossed: every process decodes every prompt. A nested analysis (resampling processes, then prompts
within them) counts differences between prompts as noise of the process. It covered 58 to 67 % where 95 % is nominal.

Where every process has prompts of its own, its mean is one figure, and the interval is over processes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from harness.frozen import frozen, positional
from harness.stats.quantity import FEWEST_PROCESSES, Floats, Spread, Variance

Ints = npt.NDArray[np.int64]

SHARE_FILLED = 0.8
"""Of the prompts that every process must have: two processes then share prompts, and few cells are estimated."""
NO_SPREAD = 1e-12


@positional
class VarianceOfMean(Variance):
    """That of the mean of a table: the part ``of_prompts``, and the spread."""

    of_prompts: float
    spread: Spread


class Grouped(NamedTuple):
    """The label of a prompt in a cluster of related ones (itself, where it has none) of a stratum."""

    stratum: Hashable
    cluster: Hashable
    prompt: Hashable


@frozen
class Cells:
    """Sums of some columns and counts of observations by prompt and process, in the order of their labels.

    ``sums``     shape (prompts, processes, columns)
    ``counts``   shape (prompts, processes); 0 where a process lacks a prompt
    ``unit``     number of the independent unit of each prompt: itself, or its cluster
    ``stratum``  number of the stratum of each unit
    """

    sums: Floats
    counts: Ints
    unit: Ints
    stratum: Ints

    @property
    def sampled(self) -> str:
        """What the units are."""
        return "prompt" if len(self.stratum) == len(self.unit) else "cluster"

    @property
    def own(self) -> bool:
        """Whether no prompt is in two processes, of several."""
        return self.counts.shape[1] > 1 and bool(((self.counts > 0).sum(axis=1) == 1).all())

    @property
    def mean(self) -> float:
        """Of the first column: over the table, or over processes with prompts of their own."""
        return float(self.by_process(self.means)[0].mean() if self.own else self.means.mean())

    def by_process(self, table: Floats) -> tuple[Floats, Floats]:
        """Of a table whose prompts are in one process each: the means of processes, and how far each prompt is off that of its
        process and stratum.
        """
        own = self.counts > 0
        values, place, stratum = table[own], own.argmax(axis=1), self.stratum[self.unit]
        away = values.copy()
        for one in {*zip(place.tolist(), stratum.tolist(), strict=True)}:
            rows = (place == one[0]) & (stratum == one[1])
            away[rows] -= values[rows].mean()
        return np.array([values[place == j].mean() for j in range(own.shape[1])]), away

    @property
    def means(self) -> Floats:
        """Of the first column, by prompt and process; empty cells of a crossed table are filled."""
        table = self.sums[:, :, 0] / np.maximum(self.counts, 1)
        return table if self.own else filled(table, self.counts == 0)

    def by_unit(self, rows: Floats) -> Floats:
        """The sum of the rows of each unit, from one row a prompt."""
        found = np.zeros((len(self.stratum), *rows.shape[1:]))
        np.add.at(found, self.unit, rows)
        return found

    def units(self, table: Floats) -> Floats:
        """One row a unit, from ``table`` (prompts, processes). Its mean over the rows is that of ``table`` in every process.

        A row is off that mean by what the unit adds beyond the mean of its stratum in that process, so that the variance of the
        rows' mean is that of the prompts' mean. Strata keep their weights.

        Source: W. G. Cochran, Sampling Techniques, 3rd ed. (1977), equations 5.7 and 11.30 (strata; unequal clusters).
        """
        count, sizes, away = len(self.stratum), np.bincount(self.stratum), table.copy()
        for one in range(len(sizes)):
            rows = self.stratum[self.unit] == one
            away[rows] -= table[rows].mean(axis=0)
        scale = count / len(table) * np.sqrt(sizes / np.maximum(sizes - 1, 1) * (count - 1) / count)
        return np.asarray(table.mean(axis=0) + scale[self.stratum, None] * self.by_unit(away))

    def variance(self, table: Floats) -> VarianceOfMean | None:
        """Of the mean of a table (prompts, processes), whose empty cells are filled first; None: no spread."""
        if self.own:
            return variance_over_processes(*self.by_process(table))
        empty, each = self.counts == 0, len(self.unit) / len(self.stratum)
        return variance_of_mean(self.units(filled(table, empty)), int(empty.sum()), self.stratum, each)

    @property
    def too_empty(self) -> str | None:
        """Why this is not a crossed design, else None."""
        worst = float((self.counts > 0).mean(axis=0).min())
        if worst >= SHARE_FILLED or self.own:
            return None
        return f"a process has {worst:.0%} of the prompts, {SHARE_FILLED:.0%} are needed to tell prompts from processes"


def gather(columns: Floats, prompts: Sequence[Hashable], processes: Sequence[Hashable]) -> Cells:
    """Sort observations, ``columns`` of shape (observations, columns), into cells by the labels of each.

    Labels are sorted by their text, so the order of the observations does not matter. A prompt that is not ``Grouped`` is its
    own unit, of one stratum. Strata of one unit are one together; where there is one alone, it joins the last. They are chosen
    by size, not by value, so no variance is smaller for it (Cochran, 1977, 5A.12).
    """
    rows = {label: i for i, label in enumerate(sorted(set(prompts), key=repr))}
    places = {label: j for j, label in enumerate(sorted(set(processes), key=repr))}
    row, place = np.array([rows[label] for label in prompts]), np.array([places[label] for label in processes])
    sums, counts = np.zeros((len(rows), len(places), columns.shape[1])), np.zeros((len(rows), len(places)), dtype=np.int64)
    order = np.lexsort((*columns.T, place, row))  # so that sums of floats do not depend on the input order
    np.add.at(sums, (row[order], place[order]), columns[order])
    np.add.at(counts, (row, place), 1)
    groups = [label[:2] if isinstance(label, Grouped) else ("", label) for label in rows]
    units = {group: i for i, group in enumerate(sorted(set(groups), key=repr))}
    sizes = Counter(stratum for stratum, _ in units)
    strata = {label: i for i, label in enumerate(one for one in sizes if sizes[one] > 1)}
    rest = len(strata) - (len(sizes) - len(strata) == 1 < len(sizes))
    stratum = np.array([strata.get(label, rest) for label, _ in units])
    unit = np.array([units[group] for group in groups])
    cells = Cells(sums=sums, counts=counts, unit=unit, stratum=stratum)
    if cells.own and len({*zip(unit[row].tolist(), place.tolist(), strict=True)}) > len(units):  # processes share clusters
        return gather(columns, [Grouped(*one[:2], one[:2]) for one in prompts if isinstance(one, Grouped)], processes)
    return cells


def filled(table: Floats, empty: npt.NDArray[np.bool_]) -> Floats:
    """``table`` (prompts, processes) with its ``empty`` cells estimated from prompt and process together.

    Source: F. Yates, Empire J. Exp. Agric. 1 (1933) 129: the least-squares fit of prompt + process, here by iteration.
    """
    if not empty.any():
        return table
    known = np.where(empty, np.nan, table)
    found = np.where(empty, np.nanmean(known), table)
    for _ in range(200):
        fit = found.mean(axis=1, keepdims=True) + found.mean(axis=0, keepdims=True) - found.mean()
        change = float(np.abs(np.where(empty, fit - found, 0.0)).max())
        found = np.where(empty, fit, found)
        if change <= NO_SPREAD:
            break
    return found


def variance_of_mean(table: Floats, empty: int = 0, stratum: Ints | None = None, each: float = 1.0) -> VarianceOfMean | None:
    """Variance of the mean of a full table (units, processes), with ``empty`` cells filled; None: no spread.

    From three processes on: (MS units + MS processes - MS residual) / (PQ), with Satterthwaite's degrees of freedom. The
    process part is at least 0. With fewer: MS units / (PQ) with P - 1, about these processes only. ``stratum`` of each unit
    (default: one): the strata's means are removed (Cells.units). ``each``: prompts of a unit, on average.

    Source: two-way layout with random effects, one figure per cell; F. E. Satterthwaite, Biometrics Bull. 2 (1946) 110.
    """
    units, processes = table.shape
    cells = units * processes
    by_unit, by_process = table.mean(axis=1, keepdims=True) - table.mean(), table.mean(axis=0, keepdims=True) - table.mean()
    own = within_strata(by_unit[:, 0], stratum)
    value, degrees, process = own.value, own.degrees, None
    if processes >= FEWEST_PROCESSES:
        residual_degrees = max(1, (units - 1) * (processes - 1) - empty)
        left = table - table.mean() - by_unit - by_process
        residual = float((left**2).sum()) / residual_degrees / cells
        of_processes = units * float((by_process**2).sum()) / (processes - 1) / cells
        added = max(0.0, of_processes - residual)
        if added > 0:
            value = own.value + added
            squares = (own.value**2 + residual**2 * (units - 1) / residual_degrees) / own.degrees
            squares += of_processes**2 / (processes - 1)
            degrees = max(value**2 / squares, min(own.degrees, processes - 1))  # at least those of one part alone
        process = math.sqrt(added * processes)
    if math.sqrt(value) <= NO_SPREAD * max(1.0, abs(float(table.mean()))):
        return None
    spread = Spread(prompt=math.sqrt(own.value * units * each), process=process, of_unit=each)
    return VarianceOfMean(value, degrees, of_prompts=own.value, spread=spread)


def variance_over_processes(means: Floats, away: Floats) -> VarianceOfMean | None:
    """Variance of the mean of the processes' ``means``, with one degree of freedom fewer than there are; None: no spread.

    With fewer than three the variance is that of prompts, about these processes only. ``away``: of each prompt from its mean.
    """
    count, free = len(means), max(1, len(away) - len(means))
    of_prompts = float((away**2).sum()) / free / len(away)
    value, degrees, process = of_prompts, float(free), None
    if count >= FEWEST_PROCESSES:
        value, degrees = float(means.var(ddof=1)) / count, count - 1.0
        process = math.sqrt(max(0.0, value - of_prompts) * count)
    if math.sqrt(value) <= NO_SPREAD * max(1.0, abs(float(means.mean()))):
        return None
    spread = Spread(prompt=math.sqrt(of_prompts * len(away)), process=process)
    return VarianceOfMean(value, degrees, of_prompts=of_prompts, spread=spread)


def within_strata(away: Floats, stratum: Ints | None = None) -> Variance:
    """Of the mean of units that are so far ``away`` from it (Cells.units).

    The degrees of freedom are those of Satterthwaite over the strata, with unbiased estimates of both squares: (Σs²)² ÷
    Σ(s⁴ ÷ (f + 2)) - 2, at most Σf. Plain ones are 4 of 10 where each of ten strata has f = 1.
    """
    stratum = np.zeros(len(away), dtype=np.int64) if stratum is None else stratum
    squares, free = np.bincount(stratum, away**2), np.bincount(stratum) - 1
    whole, degrees = float(squares.sum()), float(free.sum())
    if whole > 0 and len(free) > 1:
        degrees = min(degrees, 1 / float(((squares / whole) ** 2 / (free + 2)).sum()) - 2)
    return Variance(whole / (len(away) - 1) / len(away), degrees)
