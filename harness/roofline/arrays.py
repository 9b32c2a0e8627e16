"""Operations that Python spells differently for a number and for an array, so that every formula is written once.

A count or a time in this package is a number, or a numpy array with one entry per cell of a grid. The annotations say
``int`` or ``float`` for both. Everything that is not +, -, * and / uses these functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Points = tuple[tuple[int, float], ...]


def larger(one: Any, other: Any) -> Any:
    """The larger of the two, entry by entry."""
    return np.maximum(one, other) if _is_array(one, other) else max(one, other)


def smaller(one: Any, other: Any) -> Any:
    """The smaller of the two, entry by entry."""
    return np.minimum(one, other) if _is_array(one, other) else min(one, other)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """``yes`` where the condition holds, else ``no``."""
    return np.where(condition, yes, no) if isinstance(condition, np.ndarray) else (yes if condition else no)


def is_one_of(value: Any, known: Sequence[int]) -> Any:
    """Whether it is among ``known``, entry by entry."""
    return np.isin(value, known) if isinstance(value, np.ndarray) else value in known


def some(condition: Any) -> bool:
    """Whether the condition holds anywhere."""
    return bool(np.any(condition)) if isinstance(condition, np.ndarray) else bool(condition)


def interpolate(points: Points, at: Any) -> Any:
    """Value at ``at`` on the log-log line through the neighbouring points; the outermost values beyond them."""
    if len(points) == 1:
        return points[0][1]
    if isinstance(at, np.ndarray):
        places, values = np.log(np.array(points, dtype=float)).T
        return np.exp(np.interp(np.log(np.maximum(at, points[0][0])), places, values))
    if at <= points[0][0]:
        return points[0][1]
    for (low, low_value), (high, high_value) in pairwise(points):
        if at <= high:
            share = math.log(at / low) / math.log(high / low)
            return low_value * math.exp(share * math.log(high_value / low_value))
    return points[-1][1]


def _is_array(one: Any, other: Any) -> bool:
    return isinstance(one, np.ndarray) or isinstance(other, np.ndarray)
