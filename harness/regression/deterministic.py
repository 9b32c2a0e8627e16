"""Judges deterministic metrics: equality, or a declared tolerance; a change is given with both values."""

from __future__ import annotations

import math

from harness.analysis.judgement import Judgement, State
from harness.analysis.stats.quantity import Quantity, absent, exact
from harness.errors import UserError
from harness.regression.gate_metrics import DeterministicMetric

Value = float | str | None
ROUNDING = 1e-9
"""Relative slack of a tolerance, so that 0.4 - 0.3 is within 0.1; equality has none."""
RUN_AGAIN = "run both sides with the same version and the same scenario, so that each records it"


def judge_deterministic(metric: DeterministicMetric, base: Value, new: Value, why_absent: str | None = None) -> Judgement:
    """BASE's value against NEW's: met, missed, or void where one is absent (``why_absent``), not finite, or of another type.

    ``value`` is NEW's and ``base`` BASE's, in the metric's unit; None for text (a hash), where the reason names both.

    Raises:
        UserError: text judged as lower or higher better.
    """
    fault = fault_of(base, new, why_absent)
    if fault:
        return judged(metric, "void", absent(fault), fault)
    if isinstance(base, str) or isinstance(new, str):
        if metric.better != "equal":
            raise UserError(f"{metric.metric} is text ({base!r}): only better: equal can be judged, not {metric.better}")
        same = base == new
        reason = f"the same: {base}" if same else f"changed from {base} to {new}"
        return judged(metric, "met" if same else "missed", absent("text is no number; the reason has it", n=1), reason)
    assert base is not None and new is not None
    state, reason = judged_numbers(metric, base, new)
    return judged(metric, state, exact(new, n=1), reason, float(base))


def judged_numbers(metric: DeterministicMetric, base: float, new: float) -> tuple[State, str]:
    """State and reason of two finite numbers."""
    difference = new - base
    if difference == 0:
        return "met", f"the same: {base:,} {metric.unit}"
    relative = f" ({difference / abs(base):+.3%})" if base else ""
    change = f"from {base:,} to {new:,} {metric.unit}{relative}"
    if abs(difference) <= allowed(metric, base) * (1 + ROUNDING):
        return "met", f"changed within its tolerance {change}"
    if metric.better == "equal":
        return "missed", f"changed {change}"
    if (difference > 0) == (metric.better == "higher"):
        return "met", f"better, {change}"
    return "missed", f"worse, {change}"


def allowed(metric: DeterministicMetric, base: float) -> float:
    """Change that the metric tolerates, in its unit."""
    return max(metric.absolute, metric.relative * abs(base))


def fault_of(base: Value, new: Value, why_absent: str | None) -> str | None:
    """Why the two cannot be compared, or None."""
    sides = (("BASE", base), ("NEW", new))
    if missing := [name for name, value in sides if value is None]:
        return f"{' and '.join(missing)}: no value ({why_absent or 'not recorded'})"
    if isinstance(base, str) != isinstance(new, str):
        return f"BASE has {base!r}, NEW has {new!r}: text and a number cannot be compared"
    if odd := [f"{name} has {value}" for name, value in sides if isinstance(value, float) and not math.isfinite(value)]:
        return f"{' and '.join(odd)}: not a finite number"
    return None


def judged(metric: DeterministicMetric, state: State, value: Quantity, reason: str, base: float | None = None) -> Judgement:
    """The judgement with the metric's own description."""
    return Judgement(
        subject=metric.subject, metric=metric.metric, kind="deterministic", state=state, cell=metric.cell, value=value,
        unit=metric.unit, better=metric.better, bound=bound_in_words(metric), basis=metric.basis, sizes={"runs": 2},
        reason=reason, remedy=RUN_AGAIN if state == "void" else None, base=base,
    )  # fmt: skip


def bound_in_words(metric: DeterministicMetric) -> str:
    """The permitted values of NEW."""
    direction = {"equal": "equal to BASE", "lower": "at most BASE", "higher": "at least BASE"}[metric.better]
    given = [f"{metric.absolute:g} {metric.unit}"] if metric.absolute else []
    given += [f"{metric.relative:.3%} of it"] if metric.relative else []
    return f"{direction}, {' or '.join(given)} let pass" if given else direction
