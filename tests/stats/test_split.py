"""The permutation test of a split: against every order there is, its tail against very many orders."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from harness.stats.change_points import PERMUTATIONS, TAIL, split_p


def test_the_p_value_is_that_of_all_orders() -> None:
    """Seven points in all 5040 orders: the share of orders whose best split is at least as good, by sums of squares."""
    points = np.array([1.0, 2.1, 1.4, 5.0, 6.2, 5.5, 6.1])

    def gain(order: tuple[float, ...], split: int) -> float:
        """By how much two means fit better than one."""
        parts = (order[:split], order[split:])
        about = [sum((x - sum(part) / len(part)) ** 2 for x in part) for part in (order, *parts)]
        return about[0] - about[1] - about[2]

    seen = gain(tuple(points), 3)
    orders = list(itertools.permutations(points))
    as_good = sum(max(gain(order, split) for split in range(2, 6)) >= seen - 1e-9 for order in orders)
    estimate = split_p(points, 3, 2, permutations=20_000)
    exact = as_good / len(orders)
    assert exact == pytest.approx(2 * math.factorial(3) * math.factorial(4) / math.factorial(7), rel=1e-9)
    assert estimate == pytest.approx(exact, abs=5 * math.sqrt(exact / 20_000))


def test_the_tail_is_that_of_very_many_orders() -> None:
    """p of about 1 in 1,000, read from 399 orders, against 200,000: within a factor of two, normal or skewed."""
    random = np.random.default_rng(4)
    for points in (random.normal(size=40), random.exponential(size=40)):
        moved = points + 1.3 * points.std() * (np.arange(40) >= 15)
        tail, many = split_p(moved, 15, 5), _counted(moved, 15, 200_000, np.random.default_rng(1))
        assert 1e-4 < many < TAIL and many / 2 < tail < 2 * many


def _counted(points: np.ndarray, split: int, orders: int, random: np.random.Generator) -> float:
    """The share of shuffles whose best split explains as much; sums of squares, written out."""
    as_good, seen = 0, _explained(points)[split - 5]
    for _ in range(orders // 1000):
        shuffled = random.permuted(np.tile(points, (1000, 1)), axis=1)
        as_good += int((_explained(shuffled).max(axis=-1) >= seen - 1e-12).sum())
    return as_good / orders


def _explained(points: np.ndarray) -> np.ndarray:
    size, whole = points.shape[-1], points.sum(axis=-1, keepdims=True)
    first = points.cumsum(axis=-1)[..., 4 : size - 5]
    n = np.arange(5, size - 4)
    return first**2 / n + (whole - first) ** 2 / (size - n) - whole**2 / size


def test_what_has_no_noise_is_certain_and_what_has_no_spread_is_not() -> None:
    """Two exact levels have a p-value near 0, short as they are; one exact level has 1; counts stay in (0, 1]."""
    assert split_p(np.array([1.0] * 5 + [2.0] * 5), 5, 5) < 1e-12
    assert split_p(np.full(20, 3.0), 10, 5) == 1.0
    noise = np.random.default_rng(2).normal(size=30)
    assert all(1 / (1 + PERMUTATIONS) <= split_p(noise, at, 5) <= 1 for at in range(5, 26))
