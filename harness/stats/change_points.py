"""Change points in a series of figures: ruptures proposes them, a seeded permutation test of the best split judges them.

Noise may be correlated from one point to the next (a first-order autoregression). Noise with a longer memory, or with other
properties before and after, can still look like a change. Small p-values are extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.frozen import frozen
from harness.stats.slopes import (
    MOST,
    PER_MAD,
    Drift,
    Floats,
    correlation_about_line,
    drifts,
    lag1_of_differences,
    lag1_of_residuals,
    whitened,
)

PERMUTATIONS = 399
TAIL = 0.05
"""Below this share of better orders the p-value is extrapolated from the order at this share."""
CHUNK = 1 << 20
SEED = 20260417


def split_p(points: Floats, split: int, min_segment: int, permutations: int = PERMUTATIONS) -> float:
    """Share of random orders of ``points`` [n] whose best split is at least as good as this one at ``split``.

    Each random order is split at its best place, because ``split`` was chosen as the best here. A test at a fixed place would
    call the noise's own best place significant. Source: Matteson and James, JASA 109 (2014) 334, section 3, with least squares
    as the divergence.

    Below TAIL the count is too small. There p is that of one split named beforehand, times the number of independent splits.
    For normal points the former follows from R² ~ Beta(1/2, (n - 2) / 2). The orders show the latter at TAIL, and it grows in
    proportion to R² farther out. Source: James, James and Siegmund, Biometrika 74 (1987) 71: tail b φ(b) of the best split,
    φ(b) ÷ b of one.
    """
    size = len(points)
    centred = points - points.mean()
    total = float(np.sum(centred**2))
    if total == 0.0:
        return 1.0
    places = np.arange(min_segment, size - min_segment + 1)
    weights = size / (places * (size - places)) / total
    seen = min(1.0, float(centred[:split].sum()) ** 2 * size / (split * (size - split)) / total) * (1 - 1e-9)
    best = np.concatenate(
        [(centred[orders].cumsum(axis=1)[:, places - 1] ** 2 * weights).max(axis=1) for orders in _orders(size, permutations)]
    )
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
    """This many random orders of ``size`` points, the same each time, in pieces that fit in memory."""
    rows = max(1, CHUNK // size)
    for start in range(0, permutations, rows):
        yield _piece(size, min(rows, permutations - start), start)


@lru_cache(maxsize=64)
def _piece(size: int, rows: int, seed: int) -> NDArray[np.int64]:
    """Cached: most series of a history have one length, and making orders takes longer than using them."""
    orders = np.tile(np.arange(size), (rows, 1))
    return np.random.default_rng((SEED, seed)).permuted(orders, axis=1, out=orders)


MIN_SEGMENT = 5
"""Fewest points of a level. A younger change is not reported or, if it is plain, reported a little too early."""
ALPHA = 0.002
"""Chance of any false change among all series at one look. Teams look again after every new point: benchmarks/history_trend.py
counts the false alarms of a year."""
MIN_CHANGE = 0.01
"""Smaller changes are not reported, however certain: 1 % of a ratio's level, or 0.01 of a share or an error."""
PENALTY = 2.0
"""Times σ² log n, the price of one more change to ruptures: that of the Schwarz criterion for a change of mean. The place, its
other parameter, is left to the test."""
Scale = Literal["ratio", "difference"]
ChangeKind = Literal["step", "drift"]


@frozen
class LevelChange:
    """A change of level at point ``index``; a drift leaves the old level there and reaches the new one at ``end``.

    Levels are medians, of a drift the ends of its line. ``size``: after ÷ before - 1 on the scale *ratio*, after - before on
    the scale *difference*. ``p``: times the number of changes of its series; of a drift, the largest p of the steps it
    replaces.
    """

    index: int
    before: float
    after: float
    size: float
    p: float
    kind: ChangeKind = "step"
    end: int | None = None


class Plateau(NamedTuple):
    """Changes that may stand together, with their p-values, and the lag-1 correlation of the noise about them."""

    changes: tuple[tuple[int, float], ...]
    correlation: float

    @property
    def p(self) -> float:
        """The largest p-value."""
        return max((p for _, p in self.changes), default=0.0)


class Examined(NamedTuple):
    """A series and every stage of removing its weakest change, most changes first and none last."""

    points: Floats
    judged: Floats
    scale: Scale
    stages: tuple[Plateau, ...]

    @property
    def p(self) -> float:
        """The smallest level at which a change stands; 1 where none was proposed."""
        return min((stage.p for stage in self.stages if stage.changes), default=1.0)

    def standing(self, level: float) -> Plateau:
        """The first stage whose changes all stand at ``level``."""
        return next(stage for stage in self.stages if stage.p <= level)


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


def common_level(examined: Sequence[Examined]) -> float:
    """The level for each of several series at which any false change among them has at most the chance ALPHA.

    Holm's step-down test of their p-values stops at this level; series without a proposal count too.
    """
    from harness.stats.one_sided import holm

    return max((test.level for test in holm([one.p for one in examined], ALPHA)), default=ALPHA)


def changes_at(one: Examined, level: float, min_change: float = MIN_CHANGE) -> tuple[LevelChange, ...]:
    """The changes that stand at ``level`` and whose ``size`` is at least ``min_change``, steps or drifts. A smaller one
    separates no levels.
    """
    stage = one.standing(level)
    left = _steps_and_drifts(one, stage) if stage.changes else []
    while True:
        changes = _with_levels(one, left)
        small = [i for i, change in enumerate(changes) if abs(change.size) < min_change]
        if not small:
            return changes
        del left[min(small, key=lambda i: abs(changes[i].size))]


def _stages(points: Floats, min_segment: int) -> tuple[Plateau, ...]:
    """The proposals with their p-values, then without the weakest, whose neighbours become one level, and so on.

    ruptures uses the correlation less one deviation, so it may propose too many. The test uses it plus one standard error. The
    estimate is the least of three: about the levels of each stage, about a line, and from differences plus one more deviation.
    A slope cut into few steps leaves much correlation.
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


def propose(points: Floats, min_segment: int) -> list[int]:
    """First indices of new levels, by exact penalised least squares (PELT, Killick et al., JASA 107 (2012) 1590)."""
    from ruptures import KernelCPD

    noise = _noise(points)
    if noise == 0.0:
        return []
    unit = ((points - np.median(points)) / noise).reshape(-1, 1)
    found = KernelCPD(kernel="linear", min_size=min_segment).fit(unit).predict(pen=PENALTY * math.log(len(points)))
    return [int(index) for index in found[:-1]]


def _noise(points: Floats) -> float:
    """Standard deviation about the level, from differences of neighbours, which a change of level hardly moves.

    From their median where that is not 0. Counted figures are constant for long, and then it is from the root mean square.
    """
    steps = np.abs(np.diff(points))
    robust = float(np.median(steps)) * PER_MAD / math.sqrt(2)
    exact = robust <= 1e-12 * float(np.abs(points).max())
    return float(np.sqrt(np.mean(steps**2) / 2)) if exact else robust


_Standing = tuple[float, int, Drift | None]
"""The p-value, the first index, and the line of a drift (None for a step)."""


def _steps_and_drifts(one: Examined, stage: Plateau) -> list[_Standing]:
    """In order."""
    left: list[_Standing] = [(p, index, None) for index, p in stage.changes]
    for found in reversed(drifts(one.judged, [index for _, index, _ in left])):
        p = max(p for p, _, _ in left[found.first : found.last + 1])
        left[found.first : found.last + 1] = [(p, found.index, found)]
    return left


def _with_levels(one: Examined, left: Sequence[_Standing]) -> tuple[LevelChange, ...]:
    """Levels about a step are medians of the points between changes, unless an adjacent line gives them."""
    starts = [0, *(drift.end if drift else index for _, index, drift in left)]
    ends = [*(index for _, index, _ in left), len(one.points)]
    levels = [float(np.median(one.points[a:b])) if a < b else math.nan for a, b in zip(starts, ends, strict=True)]
    ratio = one.scale == "ratio"
    for i, (_, _, drift) in enumerate(left):
        if drift:
            levels[i : i + 2] = [math.exp(judged) if ratio else judged for judged in (drift.before, drift.after)]
    return tuple(
        LevelChange(
            index=index,
            before=a,
            after=b,
            size=b / a - 1 if ratio else b - a,
            p=p,
            kind="drift" if drift else "step",
            end=drift.end if drift else None,
        )
        for (p, index, drift), (a, b) in zip(left, pairwise(levels), strict=True)
    )
