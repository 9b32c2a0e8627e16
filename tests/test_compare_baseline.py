"""A baseline that is slower than generate() is found out, and the report stops speaking of a speedup."""

from __future__ import annotations

import re

import pytest

from harness.compare import compare
from harness.compare_baseline import state_of
from harness.reporting.page import render
from harness.stats import Quantity, absent
from tests import synthetic_run as synthetic


def checked(dynamic: float, static: float, jitter: float = 0.1):
    """A run in which generate() takes so many times as long as NTP, and its comparison."""
    caches = tuple(
        synthetic.Arm(label=f"generate(), {cache} cache", cache=cache, slower=slower)
        for cache, slower in (("dynamic", dynamic), ("static", static))
    )
    run = synthetic.build(synthetic.Part(arms=(*synthetic.ARMS, *caches), jitter=jitter))
    return run, compare(run)


def test_the_fastest_mode_is_what_counts():
    """Put in: 1.5 and 1.2 times as slow; NTP is held beside the second, and neither becomes an arm."""
    run, comparison = checked(1.5, 1.2)
    check = comparison.cells[0].baseline_check
    assert [mode.ntp_speed.value for mode in check.modes] == [pytest.approx(1.5, rel=0.01), pytest.approx(1.2, rel=0.01)]
    assert check.best == "generate(), static cache"
    assert check.modes[1].ntp_speed.low < 1.2 < check.modes[1].ntp_speed.high
    assert check.state == "kept_up"
    assert "at 1.20x the speed of transformers" in render(run, comparison)
    assert [arm.label for arm in comparison.cells[0].arms] == [arm.label for arm in synthetic.ARMS]


@pytest.mark.parametrize(
    ("value", "low", "high", "state"),
    [
        (1.2, 1.1, 1.3, "kept_up"),
        (0.99, 0.97, 1.01, "kept_up"),
        (0.99, 0.96, 1.02, "not_shown"),
        (0.96, 0.91, 1.01, "not_shown"),
        (0.96, 0.93, 0.99, "slow"),
        (0.5, 0.4, 0.6, "slow"),
        (0.5, None, None, "slow"),
        (1.2, None, None, "not_shown"),
    ],
)
def test_what_an_interval_shows(value, low, high, state):
    """Hand-drawn intervals around 1 and around 1 less the tolerance of 3 %."""
    assert state_of([Quantity(value=value, low=low, high=high, n=8)]) == state


def test_every_mode_counts():
    """A mode with a wide interval, or without a time, shows nothing; a faster one makes the baseline slow."""
    good, wide = Quantity(value=1.0, low=0.99, high=1.01, n=8), Quantity(value=1.01, low=0.8, high=1.27, n=8)
    assert state_of([good, good]) == "kept_up"
    assert state_of([good, wide]) == state_of([good, absent("void")]) == "not_shown"
    assert state_of([good, Quantity(value=0.9, low=0.85, high=0.95, n=8)]) == "slow"


def test_a_slow_baseline_takes_the_word_speedup_from_the_answer():
    """generate() in two thirds of the time: the card says so in large type and claims nothing."""
    run, comparison = checked(0.66, 1.2)
    assert comparison.cells[0].baseline_check.state == "slow"
    page = render(run, comparison)
    assert "against a slow baseline, and no speedup is claimed" in page
    (large,) = re.findall(r'<p class="big">.*?</p>', page)
    assert "the speed of a slow baseline" in large and "faster" not in large
    assert re.search(r"∅</span> void</span> 3-5x faster by the clock", page)


def test_an_unchecked_baseline_is_said():
    """An old run, or a scenario without the check."""
    run = synthetic.build(synthetic.Part())
    assert compare(run).cells[0].baseline_check.state == "unchecked"
    assert "was not held against" in render(run, compare(run))
