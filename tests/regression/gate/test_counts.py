"""Deterministic metrics: a change is named from what to what, and nothing is compared that was not recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import product
from typing import Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.judge.judgement import Judgements, State, to_json
from harness.errors import UserError
from harness.regression.counted import Value
from harness.regression.gate.counts import judge_deterministic
from harness.regression.metrics import CellMetric
from harness.scenario.metrics import METRICS, Better, Metric


@pytest.fixture(autouse=True, scope="module")
def _table() -> Iterator[None]:
    """Metrics of every direction, with and without a tolerance, beside those of the program."""
    with pytest.MonkeyPatch.context() as patch:
        for better, share in product(get_args(Better), (0.0, 0.05, 0.1)):
            name = f"{better} {share}"
            patch.setitem(METRICS, name, Metric(name=name, unit="passes", better=better, basis="counted", tolerance=share))
        yield


def metric(better: Better = "equal", tolerance: float = 0.0) -> CellMetric:
    """Forward passes of some cell."""
    return CellMetric(name=f"{better} {tolerance}", part="reference", batch_size=1, arm="sbd", label="SBD k=16")


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
        (metric("equal", 0.05), 40, 42, "met", "changed within its tolerance from 40 to 42"),
        (metric("equal", 0.05), 40, 43, "missed", "changed from 40 to 43"),
        (metric("equal", 0.1), 1.0, 1.1, "met", "within its tolerance"),
        (metric("lower", 0.1), 40, 44, "met", "within its tolerance"),
        (metric("lower", 0.1), 40, 45, "missed", "worse, from 40 to 45"),
        (metric("equal", 0.1), -40, -44, "met", "within its tolerance"),
        (metric(), "a1b2", "a1b2", "met", "the same: a1b2"),
        (metric(), "a1b2", "c3d4", "missed", "changed from a1b2 to c3d4"),
        (metric(), None, 40, "void", "BASE: no value (not recorded)"),
        (metric(), None, None, "void", "BASE and NEW: no value"),
        (metric(), 40, math.nan, "void", "NEW has nan: not a finite number"),
        (metric(), 40, "40", "void", "BASE has 40, NEW has '40': text and a number cannot be compared"),
    ],
)
def test_equal_within_tolerance_changed_or_void(one: CellMetric, base: Value, new: Value, state: State, words: str) -> None:
    """Every answer with its reason; the JSON has no NaN."""
    judgement = judge_deterministic(one, base, new)
    assert (judgement.state, judgement.kind) == (state, "deterministic") and words in judgement.reason
    assert (judgement.remedy is not None) == (state == "void")
    json.dumps(to_json(Judgements(title="t", runs=(), judgements=(judgement,))), allow_nan=False)


def test_both_values_and_the_bound_are_shown() -> None:
    """NEW's and BASE's in the metric's unit, none for a hash; the bound tells what is let pass; why one is absent is kept."""
    judgement = judge_deterministic(metric("lower", 0.05), 40, 43)
    assert (judgement.value.value, judgement.base, judgement.unit) == (43.0, 40.0, "passes")
    assert judgement.bound == "at most BASE, 5.000% of it let pass"
    text = judge_deterministic(metric(), "a", "b")
    assert text.value.value is None and text.base is None
    assert "no CUDA device" in judge_deterministic(metric(), 1, None, "no CUDA device").reason


@given(st.integers(-100, 100), st.integers(-100, 100))
def test_a_tolerance_is_a_share_of_base(base: int, new: int) -> None:
    """Up to a tenth of BASE's size passes either way, more does not."""
    state = judge_deterministic(metric("equal", 0.1), base, new).state
    assert state == ("missed" if 10 * abs(new - base) > abs(base) else "met")


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_text_has_no_direction(better: Literal["lower", "higher"]) -> None:
    """A hash cannot be lower."""
    with pytest.raises(UserError, match="only better: equal"):
        judge_deterministic(metric(better), "a", "b")
