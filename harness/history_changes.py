"""Where the level of a series of figures changed: ruptures proposes, a seeded permutation test judges.

Knows no record, commit or database: it is handed numbers in their order. The test asks whether the figures could stand in any
order, so a machine that drifts slowly, with no step at all, can look like a change; the noise of a stretch must be about the
same before and after.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.stats_one_sided import holm

MIN_SEGMENT = 5
"""Fewest points of a level. Of a change that is younger nothing is said or, if it is plain, that it came a little earlier."""
ALPHA = 0.01
"""A change is kept if its p-value, Holm-adjusted over the changes of its series, is at most this."""
MIN_CHANGE = 0.01
"""Smaller changes are not reported, however certain: 1 % of a ratio's level, or 0.01 of a share or an error."""
PENALTY = 2.0
"""Times σ² log n, the price of one more change to ruptures: that of the Schwarz criterion for a change of mean; its place, the
other parameter, is left to the judge."""
PERMUTATIONS_PER_CHANGE = 200
"""p-values are multiples of 1 / (200 m) for m proposed changes: the strictest step of Holm, 0.01 / m, has two of them."""
CHUNK = 1 << 20
SEED = 20260417
Scale = Literal["ratio", "difference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The level is another one from point ``index`` on; levels are medians, ``size`` is after ÷ before - 1 on the scale *ratio*
    and after - before on the scale *difference*. ``p``: Holm-adjusted.
    """

    index: int
    before: float
    after: float
    size: float
    p: float


def find_changes(
    values: Sequence[float], scale: Scale, min_change: float = MIN_CHANGE, alpha: float = ALPHA, min_segment: int = MIN_SEGMENT
) -> tuple[Change, ...]:
    """Every change of level, in order; the same values give the same answer.

    Args:
        values: figures in their order, all finite; positive on the scale *ratio*, which is judged in logarithms.
        scale: whether a change is a factor or a difference.
        min_change: the smallest ``size`` that is reported.
        alpha: chance that a series without any change is given one.
        min_segment: fewest points of a level.

    Raises:
        ValueError: a value is not finite, or not positive on the scale *ratio*.
    """
    points = np.asarray(values, dtype=float)
    if not np.isfinite(points).all() or (scale == "ratio" and (points <= 0).any()):
        raise ValueError("a series needs finite values, and positive ones where changes are ratios")
    if len(points) < 2 * min_segment:
        return ()
    judged = np.log(points) if scale == "ratio" else points
    kept = _judge(judged, propose(judged, min_segment), alpha, min_segment)
    return tuple(_measured(points, kept, scale, min_change))


def propose(points: NDArray[np.float64], min_segment: int) -> list[int]:
    """First indices of new levels, by exact penalised least squares (PELT, Killick et al., JASA 107 (2012) 1590)."""
    from ruptures import KernelCPD

    noise = _noise(points)
    if noise == 0.0:
        return []
    unit = ((points - np.median(points)) / noise).reshape(-1, 1)
    found = KernelCPD(kernel="linear", min_size=min_segment).fit(unit).predict(pen=PENALTY * math.log(len(points)))
    return [int(index) for index in found[:-1]]


def _noise(points: NDArray[np.float64]) -> float:
    """Deviation of a point about its level, by the differences of neighbours, which a change of level hardly moves.

    Their median where it is not 0; counted figures are constant for long, there it is the root mean square of them all.
    """
    steps = np.abs(np.diff(points))
    robust = float(np.median(steps)) / 0.6745 / math.sqrt(2)
    exact = robust <= 1e-12 * float(np.abs(points).max())
    return float(np.sqrt(np.mean(steps**2) / 2)) if exact else robust


def _judge(points: NDArray[np.float64], proposed: list[int], alpha: float, min_segment: int) -> list[tuple[int, float]]:
    """The proposals that stand with their adjusted p-values: the weakest is dropped, its neighbours become one level, again."""
    permutations = PERMUTATIONS_PER_CHANGE * len(proposed) - 1
    known: dict[tuple[int, int, int], float] = {}
    left = list(proposed)
    while left:
        ends = [0, *left, len(points)]
        raw = []
        for place in zip(ends, left, ends[2:], strict=False):
            if place not in known:
                known[place] = permutation_p(points[place[0] : place[2]], place[1] - place[0], permutations, min_segment)
            raw.append(known[place])
        adjusted = [one.adjusted_p for one in holm(raw, alpha)]
        weakest = max(range(len(left)), key=lambda i: raw[i])
        if adjusted[weakest] <= alpha:
            return list(zip(left, adjusted, strict=True))
        del left[weakest]
    return []


def permutation_p(points: NDArray[np.float64], split: int, permutations: int, min_segment: int) -> float:
    """How often the same points in random order split at least as well, somewhere, as these do at ``split``.

    The best split of every random order is taken, for ``split`` was chosen as the best of this one: a test at a fixed place
    would call the noise's own best place significant. Source: Matteson and James, JASA 109 (2014) 334, section 3, with least
    squares as the divergence.
    """
    size = len(points)
    centred = points - points.mean()
    places = np.arange(min_segment, size - min_segment + 1)
    weights = size / (places * (size - places))
    seen = float(centred[:split].sum()) ** 2 * size / (split * (size - split)) * (1 - 1e-9)
    as_good = 0
    for orders in _orders(size, permutations):
        sums = centred[orders].cumsum(axis=1)[:, places - 1]
        as_good += int(((sums**2 * weights).max(axis=1) >= seen).sum())
    return (1 + as_good) / (1 + permutations)


def _orders(size: int, permutations: int) -> Iterator[NDArray[np.int64]]:
    """So many random orders of ``size`` points, the same each time, in pieces that memory takes easily."""
    rows = max(1, CHUNK // size)
    for start in range(0, permutations, rows):
        yield _piece(size, min(rows, permutations - start), start)


@lru_cache(maxsize=8)
def _piece(size: int, rows: int, seed: int) -> NDArray[np.int64]:
    """Remembered, for the series of a history are mostly of one length, and making orders takes longer than using them."""
    orders = np.tile(np.arange(size), (rows, 1))
    return np.random.default_rng((SEED, seed)).permuted(orders, axis=1, out=orders)


def _measured(points: NDArray[np.float64], kept: list[tuple[int, float]], scale: Scale, min_change: float) -> list[Change]:
    """The changes that are large enough; one that is too small is no boundary between levels."""
    left = list(kept)
    while True:
        ends = [0, *(index for index, _ in left), len(points)]
        levels = [float(np.median(points[start:end])) for start, end in pairwise(ends)]
        sizes = [b / a - 1 if scale == "ratio" else b - a for a, b in pairwise(levels)]
        small = [i for i, size in enumerate(sizes) if abs(size) < min_change]
        if not small:
            return [
                Change(index=index, before=levels[i], after=levels[i + 1], size=sizes[i], p=p)
                for i, (index, p) in enumerate(left)
            ]
        del left[min(small, key=lambda i: abs(sizes[i]))]
