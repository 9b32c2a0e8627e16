"""Deterministic metrics: a change is named from what to what, and nothing is compared that was not recorded."""

from __future__ import annotations

import json
import math
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.judgement import Judgements, State, to_json
from harness.errors import UserError
from harness.regression.gate_metrics import DeterministicMetric, Value, judge_deterministic
from harness.scenario.metrics import Better


def metric(better: Better = "equal", absolute: float = 0.0, relative: float = 0.0) -> DeterministicMetric:
    """Forward passes of some cell."""
    return DeterministicMetric(
        metric="forward_passes", subject="SBD k=16", cell={"arm": "sbd"}, unit="passes", better=better, absolute=absolute,
        relative=relative,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("one", "base", "new", "state", "words"),
    [
        (metric(), 1040, 1040, "met", "the same: 1,040 passes"),
        (metric(), 40, 41, "missed", "changed from 40 to 41 passes (+2.500%)"),
        (metric(), 40, 39, "missed", "changed from 40 to 39 passes (-2.500%)"),
        (metric(), 2**60, 2**60 + 1, "missed", "changed from"),
        (metric(), 0, 3, "missed", "changed from 0 to 3 passes"),
        (metric("lower"), 40, 39, "met", "better, from 40 to 39 passes"),
        (metric("lower"), 40, 41, "missed", "worse, from 40 to 41 passes"),
        (metric("higher"), 40, 41, "met", "better"),
        (metric("higher"), 40, 39, "missed", "worse"),
        (metric(absolute=2), 40, 42, "met", "changed within its tolerance from 40 to 42"),
        (metric(absolute=2), 40, 43, "missed", "changed from 40 to 43"),
        (metric(absolute=0.1), 0.3, 0.4, "met", "within its tolerance"),
        (metric("lower", relative=0.1), 40, 44, "met", "within its tolerance"),
        (metric("lower", relative=0.1), 40, 45, "missed", "worse, from 40 to 45"),
        (metric(relative=0.1, absolute=10), -40, -50, "met", "within its tolerance"),
        (metric(), "a1b2", "a1b2", "met", "the same: a1b2"),
        (metric(), "a1b2", "c3d4", "missed", "changed from a1b2 to c3d4"),
        (metric(), None, 40, "void", "BASE: no value (not recorded)"),
        (metric(), None, None, "void", "BASE and NEW: no value"),
        (metric(), 40, math.nan, "void", "NEW has nan: not a finite number"),
        (metric(), 40, "40", "void", "BASE has 40, NEW has '40': text and a number cannot be compared"),
    ],
)
def test_equal_within_tolerance_changed_or_void(
    one: DeterministicMetric, base: Value, new: Value, state: State, words: str
) -> None:
    """Every answer with its reason; the JSON has no NaN."""
    judgement = judge_deterministic(one, base, new)
    assert (judgement.state, judgement.kind) == (state, "deterministic") and words in judgement.reason
    assert (judgement.remedy is not None) == (state == "void")
    json.dumps(to_json(Judgements(title="t", runs=(), judgements=(judgement,))), allow_nan=False)


def test_both_values_and_the_bound_are_shown() -> None:
    """NEW's and BASE's in the metric's unit, none for a hash; the bound tells what is let pass; why one is absent is kept."""
    judgement = judge_deterministic(metric("lower", absolute=1, relative=0.05), 40, 43)
    assert (judgement.value.value, judgement.base, judgement.unit) == (43.0, 40.0, "passes")
    assert judgement.bound == "at most BASE, 1 passes or 5.000% of it let pass"
    text = judge_deterministic(metric(), "a", "b")
    assert text.value.value is None and text.base is None
    assert "no CUDA device" in judge_deterministic(metric(), 1, None, "no CUDA device").reason


@given(st.integers(-100, 100), st.integers(-100, 100), st.integers(0, 20))
def test_swapping_base_and_new_mirrors(base: int, new: int, absolute: int) -> None:
    """What is worse one way round is no worse the other way round; a change of equal is one both ways."""
    ways = [judge_deterministic(metric("lower", absolute=absolute), *pair).state for pair in ((base, new), (new, base))]
    assert ways.count("missed") == (abs(new - base) > absolute)
    equal = {judge_deterministic(metric(absolute=absolute), *pair).state for pair in ((base, new), (new, base))}
    assert equal == {"missed" if abs(new - base) > absolute else "met"}


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_text_has_no_direction(better: Literal["lower", "higher"]) -> None:
    """A hash cannot be lower."""
    with pytest.raises(UserError, match="only better: equal"):
        judge_deterministic(metric(better), "a", "b")


@pytest.mark.parametrize("given_", [-1.0, math.nan, math.inf])
def test_a_tolerance_is_a_number_of_at_least_0(given_: float) -> None:
    """An infinite one would let everything pass."""
    with pytest.raises(UserError, match="at least 0"):
        metric(absolute=given_)
