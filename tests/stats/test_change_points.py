"""LevelChange points: levels, drifts and correlated noise that were put in; one level for several series by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.change_points import (
    ALPHA,
    MIN_CHANGE,
    MIN_SEGMENT,
    Examined,
    LevelChange,
    Plateau,
    Scale,
    changes_at,
    common_level,
    examine,
    propose,
)
from tests.helpers.synthetic_history import autoregressive, stepped


def find_changes(
    values: Sequence[float], scale: Scale, min_change: float = MIN_CHANGE, alpha: float = ALPHA, min_segment: int = MIN_SEGMENT
) -> tuple[LevelChange, ...]:
    """Every change of one series, in order; arguments as of ``examine`` and ``changes_at``, the level being ``alpha``."""
    return changes_at(examine(values, scale, min_segment), alpha, min_change)


def test_a_step_of_3_percent_is_found_and_a_flat_history_left_alone() -> None:
    """After 40 of 80 commits at 1 % noise, within ± 3 and no other, and none of a flat one; in at least 95 % of 200 histories
    each; benchmarks/history_trend.py has the figures of more.
    """
    random = np.random.default_rng(1)
    found = flat = 0
    for _ in range(200):
        changes = find_changes(stepped(random), "ratio")
        found += len(changes) == 1 and abs(changes[0].index - 40) <= 3
        flat += not find_changes(stepped(random, factor=1.0), "ratio")
    assert found >= 190 and flat >= 190


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


def test_correlated_noise_is_no_change_and_hides_no_step() -> None:
    """Of 200 flat series of 200 points a third showed a change at 0.3 before the correlation was taken out."""
    random = np.random.default_rng(6)
    for correlation, flat_at_least in ((0.3, 195), (0.5, 193), (0.8, 190)):
        noise = [0.01 * autoregressive(random, 200, correlation) for _ in range(200)]
        assert sum(not find_changes(list(np.exp(one)), "ratio") for one in noise) >= flat_at_least
        if correlation == 0.3:
            stepping = [find_changes(list(np.exp(one + 0.03 * (np.arange(200) >= 100))), "ratio") for one in noise]
            assert sum([change.kind for change in one] == ["step"] for one in stepping) >= 190


def test_a_ramp_is_told_as_a_drift_with_its_ends() -> None:
    """From 3 to 3.3 over points 60 to 140, in noise of 1 % that remembers 0.3: one drift, its ends within a place or two."""
    random = np.random.default_rng(7)
    line = np.log(1.1) * np.clip((np.arange(200) - 60) / 80, 0, 1)
    found = [find_changes(list(3 * np.exp(line + 0.01 * autoregressive(random, 200, 0.3))), "ratio") for _ in range(50)]
    drifts = [one[0] for one in found if [change.kind for change in one] == ["drift"]]
    assert len(drifts) >= 45
    assert np.median([one.index for one in drifts]) == pytest.approx(60, abs=9)
    assert np.median([one.end for one in drifts if one.end]) == pytest.approx(140, abs=9)
    assert np.median([one.before for one in drifts]) == pytest.approx(3.0, rel=0.005)
    assert np.median([one.size for one in drifts]) == pytest.approx(0.1, abs=0.005)


def test_a_drift_is_followed_by_a_step_with_levels_that_meet() -> None:
    """Up a slope over 100 points, then down at once: the step begins at the level that the slope reached."""
    random = np.random.default_rng(8)
    level = np.where(np.arange(160) < 120, np.clip(np.arange(160) / 100, 0, 1), 0.2)
    drift, step = find_changes(list(level + 0.02 * random.normal(size=160)), "difference")
    assert (drift.kind, step.kind, step.index, step.end) == ("drift", "step", 120, None)
    assert step.before == drift.after == pytest.approx(1.0, abs=0.02) and step.after == pytest.approx(0.2, abs=0.02)


def test_a_drift_in_steps_below_the_smallest_change_is_told_whole() -> None:
    """Half a percent a step would not be said of any one of them; the whole is 4 %."""
    values = [3.0 * math.exp(0.005 * (i // 10)) for i in range(90)]
    noisy = np.array(values) * np.exp(0.004 * np.random.default_rng(9).normal(size=90))
    (change,) = find_changes(list(noisy), "ratio")
    assert change.kind == "drift" and change.size == pytest.approx(0.041, abs=0.006)


def _examined(*p_values: float) -> list[Examined]:
    """Series whose one proposal has these p-values; 1 for none."""
    points = np.array([1.0] * 5 + [2.0] * 5)
    return [
        Examined(points, points, "difference", ((Plateau(((5, p),), 0.0),) if p < 1 else ()) + (Plateau((), 0.0),))
        for p in p_values
    ]


def test_the_level_of_several_series_by_hand() -> None:
    """Holm at 0.002: one alone has it all; of four, 0.0004 passes 0.002 / 4, 0.0006 passes / 3, it stops at / 2."""
    assert common_level([]) == common_level(_examined(1.0)) == common_level(_examined(1e-9)) == ALPHA == 0.002
    four = _examined(0.0006, 0.5, 0.0004, 1.0)
    level = common_level(four)
    assert level == pytest.approx(0.001)
    assert [len(changes_at(one, level)) for one in four] == [1, 0, 1, 0]
    assert not changes_at(_examined(0.0006)[0], common_level(_examined(0.0006, 1.0, 1.0, 1.0)))


def test_a_stage_stands_only_if_its_weakest_change_does() -> None:
    """Two changes at 0.01 and 0.001, alone the second has 0.0001: at 0.02 both are told, at 0.005 one."""
    points = np.array([1.0] * 5 + [2.0] * 5 + [1.0] * 5)
    stages = (Plateau(((5, 0.001), (10, 0.01)), 0.0), Plateau(((5, 0.0001),), 0.0), Plateau((), 0.0))
    one = Examined(points, points, "difference", stages)
    assert one.p == 0.0001
    assert [[change.index for change in changes_at(one, level)] for level in (0.02, 0.005, 1e-5)] == [[5, 10], [5], []]


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
    """Four commits at twice the level are seen, as a level of five that begins a commit too soon; three are not.

    Three of 40 values lie within the five at either end in 2 C(5, 3) of C(40, 3) orders, 0.00202, and look correlated there;
    four in 0.0001.
    """
    (change,) = find_changes([1.0] * 36 + [2.0] * 4, "ratio")
    assert (change.index, change.after) == (35, 2.0)
    assert find_changes([1.0] * 37 + [2.0] * 3, "ratio") == ()


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
        cuts
        for many in range(4)
        for cuts in itertools.combinations(range(1, 12), many)
        if all(b - a >= 3 for a, b in itertools.pairwise([0, *cuts, 12]))
    ]
    assert tuple(propose(points, 3)) == min(every, key=cost)


@pytest.mark.parametrize("values", [[1.0, math.nan] * 10, [1.0, math.inf] * 10, [1.0, 0.0] * 10])
def test_what_is_no_figure_is_refused(values: list[float]) -> None:
    """Never a finding from NaN, nor a logarithm of nothing."""
    with pytest.raises(ValueError, match="finite"):
        find_changes(values, "ratio")
