"""Deterministic metrics: equality, or a declared tolerance; a change is named from what to what."""

from __future__ import annotations

from harness.gate_metric import DeterministicMetric
from harness.judgement import Judgement


def judge_deterministic(
    metric: DeterministicMetric, base: float | str | None, new: float | str | None, why_absent: str | None = None
) -> Judgement:
    """BASE's value against NEW's: met, missed, or void where one is absent (``why_absent``), NaN, or of another type.

    ``value`` is the difference NEW - BASE in the metric's unit, None for text (a hash), whose reason names both.

    Raises:
        UserError: text judged as lower or higher better.
    """
    raise NotImplementedError
