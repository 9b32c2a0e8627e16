"""Change points: the judge against every order there is, Holm against its worked form, levels that were put in."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.history_changes import MIN_SEGMENT, find_changes, permutation_p, propose
from tests.synthetic_history import stepped

WITHIN = 3


def found_and_flat(histories: int, seed: int) -> tuple[int, int]:
    """Of so many histories: with a 3 % step after 40 of 80 commits at 1 % noise, how many are given that change, and no other,
    within ± 3 commits; without a step, how many are given none.
    """
    random = np.random.default_rng(seed)
    found = flat = 0
    for _ in range(histories):
        changes = find_changes(stepped(random), "ratio")
        found += len(changes) == 1 and abs(changes[0].index - 40) <= WITHIN
        flat += not find_changes(stepped(random, factor=1.0), "ratio")
    return found, flat


def test_a_step_of_3_percent_is_found_and_a_flat_history_left_alone() -> None:
    """In at least 95 % of 200 histories each; benchmarks/history_trend.py has the figures of more."""
    found, flat = found_and_flat(200, seed=1)
    assert found >= 190 and flat >= 190


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
    estimate = permutation_p(points, 3, 20_000, min_segment=2)
    exact = as_good / len(orders)
    assert exact == pytest.approx(2 * math.factorial(3) * math.factorial(4) / math.factorial(7), rel=1e-9)
    assert estimate == pytest.approx(exact, abs=5 * math.sqrt(exact / 20_000))


def test_the_best_place_of_noise_is_not_significant() -> None:
    """Testing the noise's own best split as if it had been named before would call a third of these changes."""
    random = np.random.default_rng(3)
    p_values = []
    for _ in range(200):
        points = random.normal(size=30)
        places = np.arange(MIN_SEGMENT, 30 - MIN_SEGMENT + 1)
        sums = (points - points.mean()).cumsum()[places - 1]
        best = int(places[np.argmax(sums**2 / (places * (30 - places)))])
        p_values.append(permutation_p(points, best, 199, MIN_SEGMENT))
    assert np.mean(np.array(p_values) <= 0.05) < 0.11  # 5 % ± 4 standard errors


def test_two_changes_with_their_levels() -> None:
    """Up by a fifth and back: both are named, with the medians on either side."""
    random = np.random.default_rng(2)
    values = np.concatenate([np.full(30, 2.0), np.full(25, 2.4), np.full(30, 2.0)]) * np.exp(random.normal(0, 0.005, 85))
    first, second = find_changes(list(values), "ratio")
    assert (first.index, second.index) == (30, 55)
    assert first.before == np.median(values[:30]) and first.after == second.before == np.median(values[30:55])
    assert first.size == pytest.approx(0.2, abs=0.01) and second.size == pytest.approx(-1 / 6, abs=0.01)


def test_counted_figures_have_no_noise_and_still_a_change() -> None:
    """A constant series has none, one that steps has one, on either scale."""
    assert find_changes([3.0] * 40, "ratio") == find_changes([0.0] * 40, "difference") == ()
    (change,) = find_changes([3.0] * 20 + [3.2] * 6, "ratio")
    assert (change.index, change.before, change.after) == (20, 3.0, 3.2)
    (change,) = find_changes([0.0] * 20 + [-0.05] * 6, "difference")
    assert change.size == pytest.approx(-0.05)


def test_one_wild_run_is_no_level() -> None:
    """A single value three times as high changes nothing."""
    random = np.random.default_rng(4)
    values = stepped(random, factor=1.0)
    values[30] *= 3
    assert find_changes(values, "ratio") == ()


def test_what_is_too_small_or_too_young_is_not_said() -> None:
    """A certain change of 0.5 % is under the 1 % that is reported; two commits are no level; nine are no two levels."""
    random = np.random.default_rng(5)
    values = stepped(random, factor=1.005, noise=0.0005)
    assert find_changes(values, "ratio") == ()
    assert [change.index for change in find_changes(values, "ratio", min_change=0.003)] == [40]
    assert find_changes([1.0] * 38 + [2.0] * 2, "ratio") == ()
    assert find_changes([1.0] * 4 + [2.0] * 5, "ratio") == ()


def test_a_change_younger_than_a_level_may_be_placed_early() -> None:
    """Three or four commits at twice the level are seen, as a level of five that begins a commit or two too soon."""
    for young in (3, 4):
        (change,) = find_changes([1.0] * (40 - young) + [2.0] * young, "ratio")
        assert (change.index, change.after) == (35, 2.0)


@given(st.floats(1e-6, 1e6), st.integers(0, 20))
def test_the_unit_does_not_matter(unit: float, seed: int) -> None:
    """Seconds or milliseconds: the same changes at the same places, of the same size."""
    values = stepped(np.random.default_rng(seed), commits=40, step=20)
    plain, scaled = find_changes(values, "ratio"), find_changes([unit * value for value in values], "ratio")
    assert [one.index for one in plain] == [one.index for one in scaled]
    assert [one.size for one in plain] == pytest.approx([one.size for one in scaled], rel=1e-6)


def test_the_proposals_are_those_of_all_segmentations() -> None:
    """Twelve points, every way to cut them: the cheapest by squares about the means plus the price of a cut."""
    random = np.random.default_rng(9)
    points = np.concatenate([random.normal(0, 1, 6), random.normal(5, 1, 6)])
    noise = np.median(np.abs(np.diff(points))) / 0.6745 / math.sqrt(2)
    unit = points / noise

    def cost(cuts: tuple[int, ...]) -> float:
        ends = [0, *cuts, 12]
        parts = [unit[a:b] for a, b in itertools.pairwise(ends)]
        return sum(float(((part - part.mean()) ** 2).sum()) for part in parts) + 2.0 * math.log(12) * len(cuts)

    every = [
        cuts for many in range(4) for cuts in itertools.combinations(range(1, 12), many)
        if all(b - a >= 3 for a, b in itertools.pairwise([0, *cuts, 12]))
    ]  # fmt: skip
    assert tuple(propose(points, 3)) == min(every, key=cost)


@pytest.mark.parametrize("values", [[1.0, math.nan] * 10, [1.0, math.inf] * 10, [1.0, 0.0] * 10])
def test_what_is_no_figure_is_refused(values: list[float]) -> None:
    """Never a finding from NaN, nor a logarithm of nothing."""
    with pytest.raises(ValueError, match="finite"):
        find_changes(values, "ratio")
