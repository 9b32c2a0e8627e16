"""Whether a stretch of points has two levels: a seeded permutation test of its best split, with a tail for small p-values.

Knows no metric: it is handed numbers, whose order means nothing if there is one level.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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
