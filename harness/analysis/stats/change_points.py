"""Where the level of a series of figures changed: ruptures proposes, a seeded permutation test judges.

Knows no record, commit or database: it is handed numbers in their order. Noise may be correlated from one point to the next (a
first-order autoregression); noise that remembers much longer, or differs before and after, can still look like a change.

Whether a stretch of points has two levels: a seeded permutation test of its best split, with a tail for small p-values.

Knows no metric: it is handed numbers, whose order means nothing if there is one level.
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

from harness.analysis.stats.correlated import MOST, PER_MAD, lag1_of_differences, lag1_of_residuals, whitened
from harness.analysis.stats.slopes import Drift, correlation_about_line, drifts

PERMUTATIONS = 399
TAIL = 0.05
"""Where fewer orders than this share split as well, the p-value is extrapolated from the order at this share."""
CHUNK = 1 << 20
SEED = 20260417


def split_p(points: NDArray[np.float64], split: int, min_segment: int, permutations: int = PERMUTATIONS) -> float:
    """How often ``points`` [n] in random order split at least as well, somewhere, as these do at ``split``.

    The best split of every random order is taken, for ``split`` was chosen as the best of this one: a test at a fixed place
    would call the noise's own best place significant. Source: Matteson and James, JASA 109 (2014) 334, section 3, with least
    squares as the divergence.

    Below TAIL the count is too small to be read. There p is that of a split named beforehand, R² ~ Beta(1/2, (n - 2) / 2) for
    normal points, times the number of independent splits: as many as the orders themselves show at TAIL, and more in proportion
    to R² farther out (James, James and Siegmund, Biometrika 74 (1987) 71: tail b φ(b) of the best split, φ(b) ÷ b of one).
    """
    size = len(points)
    centred = points - points.mean()
    total = float(np.sum(centred**2))
    if total == 0.0:
        return 1.0
    places = np.arange(min_segment, size - min_segment + 1)
    weights = size / (places * (size - places)) / total
    seen = min(1.0, float(centred[:split].sum()) ** 2 * size / (split * (size - split)) / total) * (1 - 1e-9)
    best = np.concatenate([
        (centred[orders].cumsum(axis=1)[:, places - 1] ** 2 * weights).max(axis=1) for orders in _orders(size, permutations)
    ])  # fmt: skip
    as_good, enough = int((best >= seen).sum()), int(TAIL * (1 + permutations))
    if as_good >= enough:
        return (1 + as_good) / (1 + permutations)
    at_tail = float(np.partition(best, -enough)[-enough])
    more_splits = seen / at_tail
    return min(TAIL, TAIL * more_splits * _one_split_p(seen, size) / _one_split_p(at_tail, size))


def _one_split_p(explained: float, size: int) -> float:
    """Probability that a split named beforehand explains at least this share of the squares of normal points."""
    from scipy import special

    return float(special.betainc((size - 2) / 2, 0.5, max(0.0, 1 - explained)))


def _orders(size: int, permutations: int) -> Iterator[NDArray[np.int64]]:
    """So many random orders of ``size`` points, the same each time, in pieces that memory takes easily."""
    rows = max(1, CHUNK // size)
    for start in range(0, permutations, rows):
        yield _piece(size, min(rows, permutations - start), start)


@lru_cache(maxsize=64)
def _piece(size: int, rows: int, seed: int) -> NDArray[np.int64]:
    """Remembered, for the series of a history are mostly of one length, and making orders takes longer than using them."""
    orders = np.tile(np.arange(size), (rows, 1))
    return np.random.default_rng((SEED, seed)).permuted(orders, axis=1, out=orders)


MIN_SEGMENT = 5
"""Fewest points of a level. Of a change that is younger nothing is said or, if it is plain, that it came a little earlier."""
ALPHA = 0.002
"""Chance of any false change among the series that are looked at together, at one look. A team looks again after every new
point: benchmarks/history_trend.py counts the false alarms of a year."""
MIN_CHANGE = 0.01
"""Smaller changes are not reported, however certain: 1 % of a ratio's level, or 0.01 of a share or an error."""
PENALTY = 2.0
"""Times σ² log n, the price of one more change to ruptures: that of the Schwarz criterion for a change of mean; its place, the
other parameter, is left to the judge."""
Scale = Literal["ratio", "difference"]
ChangeKind = Literal["step", "drift"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The level is another one from point ``index`` on; of a drift, it begins to move there and is another from ``end`` on.

    Levels are medians, of a drift the ends of its line. ``size``: after ÷ before - 1 on the scale *ratio*, after - before on
    the scale *difference*. ``p``: times the changes of its series; of a drift, the largest of the steps in its place.
    """

    index: int
    before: float
    after: float
    size: float
    p: float
    kind: ChangeKind = "step"
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Plateau:
    """Changes that may stand together, with their p-values, and the noise's correlation with its last value about them."""

    changes: tuple[tuple[int, float], ...]
    correlation: float

    @property
    def p(self) -> float:
        """The largest p-value."""
        return max((p for _, p in self.changes), default=0.0)


@dataclass(frozen=True, slots=True)
class Examined:
    """A series and every stage of dropping the weakest of its changes, most changes first and none last."""

    points: NDArray[np.float64]
    judged: NDArray[np.float64]
    scale: Scale
    stages: tuple[Plateau, ...]

    @property
    def p(self) -> float:
        """The smallest level at which a change stands; 1 where none was proposed."""
        return min((stage.p for stage in self.stages if stage.changes), default=1.0)

    def standing(self, level: float) -> Plateau:
        """The first stage whose changes all stand at ``level``."""
        return next(stage for stage in self.stages if stage.p <= level)


def find_changes(
    values: Sequence[float], scale: Scale, min_change: float = MIN_CHANGE, alpha: float = ALPHA, min_segment: int = MIN_SEGMENT
) -> tuple[Change, ...]:
    """Every change of one series, in order; arguments as of ``examine`` and ``changes_at``, the level being ``alpha``."""
    return changes_at(examine(values, scale, min_segment), alpha, min_change)


def examine(values: Sequence[float], scale: Scale, min_segment: int = MIN_SEGMENT) -> Examined:
    """Propose and test changes, at no level yet; the same values give the same answer.

    Args:
        values: figures in their order, all finite; positive on the scale *ratio*, which is judged in logarithms.
        scale: whether a change is a factor or a difference.
        min_segment: fewest points of a level.

    Raises:
        ValueError: a value is not finite, or not positive on the scale *ratio*.
    """
    points = np.asarray(values, dtype=float)
    if not np.isfinite(points).all() or (scale == "ratio" and (points <= 0).any()):
        raise ValueError("a series needs finite values, and positive ones where changes are ratios")
    judged = np.log(points) if scale == "ratio" else points
    stages = _stages(judged, min_segment) if len(points) >= 2 * min_segment else (Plateau((), 0.0),)
    return Examined(points, judged, scale, stages)


def common_level(examined: Sequence[Examined], alpha: float = ALPHA) -> float:
    """The level for each of several series at which any false change among them has at most the chance ``alpha``.

    That at which Holm's step-down test of their p-values stops; series without a proposal count, for they were looked at.
    """
    from harness.analysis.stats.one_sided import holm

    return max((test.level for test in holm([one.p for one in examined], alpha)), default=alpha)


def changes_at(one: Examined, level: float, min_change: float = MIN_CHANGE) -> tuple[Change, ...]:
    """The changes that stand at ``level`` and whose ``size`` is at least ``min_change``, steps or drifts."""
    stage = one.standing(level)
    return tuple(_measured(one, stage, min_change)) if stage.changes else ()


def _stages(points: NDArray[np.float64], min_segment: int) -> tuple[Plateau, ...]:
    """The proposals with their p-values, then without the weakest, whose neighbours become one level, and so on.

    ruptures is given a correlation a standard deviation low: it may propose too much. The judge takes it a standard error high,
    for it is known no better. It is estimated about the levels of each stage, about a line, or from differences and then two
    deviations high, whichever is least: a slope cut into few steps leaves much.
    """
    rough, spread = lag1_of_differences(points), 1.5 / math.sqrt(len(points))
    left = propose(whitened(points, max(0.0, rough - spread)), min_segment)
    line = correlation_about_line(points) if left else (1.0, 0.0)
    stages = []
    while left:
        phi, error = min(lag1_of_residuals(points, left), line, (rough + spread, spread))
        high = min(MOST, phi + error)
        white = whitened(points, high, left)
        ends = [0, *left, len(points)]
        places = zip(ends, left, ends[2:], strict=False)
        raw = [split_p(white[start:end], cut - start, min_segment) for start, cut, end in places]
        stages.append(Plateau(tuple((place, min(1.0, len(left) * p)) for place, p in zip(left, raw, strict=True)), phi))
        del left[max(range(len(left)), key=lambda i: raw[i])]
    return (*stages, Plateau((), lag1_of_residuals(points, ())[0]))


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
    robust = float(np.median(steps)) * PER_MAD / math.sqrt(2)
    exact = robust <= 1e-12 * float(np.abs(points).max())
    return float(np.sqrt(np.mean(steps**2) / 2)) if exact else robust


def _measured(one: Examined, stage: Plateau, min_change: float) -> list[Change]:
    """The changes that are large enough; one that is too small is no boundary between levels."""
    left = _steps_and_drifts(one, stage)
    while True:
        changes = _with_levels(one, left)
        small = [i for i, change in enumerate(changes) if abs(change.size) < min_change]
        if not small:
            return changes
        del left[min(small, key=lambda i: abs(changes[i].size))]


def _steps_and_drifts(one: Examined, stage: Plateau) -> list[tuple[float, int, Drift | None]]:
    """In order: the p-value, the first index, and the line where it is no step."""
    steps = [(p, index, None) for index, p in stage.changes]
    left: list[tuple[float, int, Drift | None]] = list(steps)
    for found in reversed(drifts(one.judged, [index for _, index, _ in steps])):
        p = max(p for p, _, _ in steps[found.first : found.last + 1])
        left[found.first : found.last + 1] = [(p, found.index, found)]
    return left


def _with_levels(one: Examined, left: Sequence[tuple[float, int, Drift | None]]) -> list[Change]:
    """The medians of the points between changes are the levels about a step, unless a line next to it tells them."""
    starts = [0, *(drift.end if drift else index for _, index, drift in left)]
    ends = [*(index for _, index, _ in left), len(one.points)]
    levels = [float(np.median(one.points[a:b])) if a < b else math.nan for a, b in zip(starts, ends, strict=True)]
    for i, (_, _, drift) in enumerate(left):
        if drift:
            levels[i : i + 2] = [_unscaled(one.scale, drift.before), _unscaled(one.scale, drift.after)]
    return [
        Change(
            index=index, before=a, after=b, size=_size(one.scale, a, b), p=p, kind="drift" if drift else "step",
            end=drift.end if drift else None,
        ) for (p, index, drift), (a, b) in zip(left, pairwise(levels), strict=True)
    ]  # fmt: skip


def _unscaled(scale: Scale, judged: float) -> float:
    return math.exp(judged) if scale == "ratio" else judged


def _size(scale: Scale, before: float, after: float) -> float:
    return after / before - 1 if scale == "ratio" else after - before
