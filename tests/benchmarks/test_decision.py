"""Figures of `benchmarks.decision` from records whose speedups are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import decision
from benchmarks.verdict_errors.records import paired_run
from harness.record.schema import Run
from harness.runner.planned_looks import TIME_IS_UP


def record(speedup: float, spread: float = 0.02, ended: str = "decided") -> Run:
    """One arm in four processes that differ by ``spread``."""
    luck = spread * np.array([-1.0, 1.0, -0.5, 0.5])
    run = paired_run(np.full(6, 50.0), math.log(speedup) + np.broadcast_to(luck, (1, 6, 4)), own=True)
    return run.model_copy(update={"sessions": [*run.sessions, {"event": "end", "reason": ended}]})


def test_runs_that_agree_are_decided_without_contradiction() -> None:
    """Ten at 2x are refuted at 3x; the half width is that of the runs that took their whole time and of those unstopped."""
    wide = record(2.0, spread=0.1, ended=TIME_IS_UP)
    found = decision.figures([record(2.0)] * 9 + [wide], [wide], [3.0] * 9 + [3.9])
    assert (found["decided_of_ten"], found["contradictions"], found["minutes_max"]) == (10, 0, 3.9)
    assert found["bound"] == 3.0 and found["speedup_mean"] == pytest.approx(2.0) and found["whole_time_of_ten"] == 1
    value = decision.judged_at(wide, 3.0).value
    assert found["half_width_pct_median"] == pytest.approx(100 * (math.sqrt(value.high / value.low) - 1), abs=0.01)


def test_runs_decided_against_each_other_are_counted_in_pairs() -> None:
    """Two confirmed and eight refuted are sixteen contradictions; an open one is none."""
    found = decision.figures([record(6.0)] * 2 + [record(1.5)] * 8, [record(1.5)], [3.0] * 10)
    assert (found["decided_of_ten"], found["contradictions"]) == (10, 16)
    found = decision.figures([record(1.5)] * 9 + [record(3.0, spread=0.5)], [record(1.5)], [3.0] * 10)
    assert (found["decided_of_ten"], found["contradictions"]) == (9, 0)


@pytest.mark.parametrize(("speedup", "bound"), [(3.2, 2.4), (2.8, 3.6)])
def test_a_mean_near_the_bound_is_judged_at_one_further_away(speedup: float, bound: float) -> None:
    """By a fifth, on the other side."""
    found = decision.figures([record(speedup)] * 10, [record(speedup)], [3.0] * 10)
    assert found["bound"] == pytest.approx(bound) and found["decided_of_ten"] == 10
