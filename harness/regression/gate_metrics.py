"""The metrics of a regression gate, timed and deterministic, each with its direction and tolerance.

Deterministic metrics are judged here: by equality, or the tolerance of the table of metrics; a change has both values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.judge.judgement import Judgement, State
from harness.errors import UserError
from harness.regression.metrics import MOST_TIMED_METRICS, CellMetric
from harness.stats.quantity import Quantity, absent, exact

MARGIN = 0.02
"""Least margin of a timed metric: a slowdown of up to 2 % is permitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedMetric(CellMetric):
    """One primary metric of a timed gate; the pairs are handed in under its ``key``.

    ``margin``  permitted slowdown, as a ratio: 0.02 is 2 %; max(MARGIN, noise floor), see ``noise_floor.margin``
    ``margin_source``  where the margin is from, in words

    Raises:
        UserError: a margin below 0 or not finite.
    """

    margin: float = MARGIN
    margin_source: str = "least margin of a timed metric"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise UserError(f"margin {self.margin} of {self.key}: give a ratio of at least 0, such as 0.02 for 2 %")

    @property
    def sign(self) -> int:
        """+1 where a growing figure is a slowdown, -1 where a shrinking one is."""
        return 1 if self.definition.better == "lower" else -1


def check_timed(metrics: Sequence[TimedMetric]) -> None:
    """Refuse a set of timed metrics that no gate can judge.

    Raises:
        UserError: none, more than five, or two under one key.
    """
    keys = [one.key for one in metrics]
    if not 1 <= len(keys) <= MOST_TIMED_METRICS:
        raise UserError(
            f"{len(keys)} timed metrics ({', '.join(keys) or 'none'}); a gate takes 1 to {MOST_TIMED_METRICS}, for each more "
            "makes all the others less likely to be found slower: choose the primary ones, or run a second gate"
        )
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise UserError(f"the timed metrics {', '.join(twice)} are given twice; give each once")


def log_ratio(base: float, new: float) -> float:
    """d = log(NEW / BASE) of one pair of fresh processes, from their medians; NaN where a figure is no positive number.

    The gate answers NaN with a void judgement that names the pair, so a failed process is always reported.
    """
    positive = all(math.isfinite(one) and one > 0 for one in (base, new))
    return math.log(new / base) if positive else math.nan


Value = float | str | None
ROUNDING = 1e-9
"""Relative slack of a tolerance, so that 1.1 - 1 is within a tenth of 1; equality has none."""
RUN_AGAIN = "run both sides with the same version and the same scenario, so that each records it"


def judge_deterministic(metric: CellMetric, base: Value, new: Value, why_absent: str | None = None) -> Judgement:
    """BASE's value against NEW's: met, missed, or void where one is absent (``why_absent``), not finite, or of another type.

    A number may change by the metric's tolerance, a share of BASE's value. ``better`` says which changes beyond that count:
    ``equal`` any, ``lower`` a growth, ``higher`` a shrinking. Text admits ``equal`` only. ``value`` is NEW's and
    ``base`` BASE's, in the metric's unit; None for text (a hash), where the reason names both.

    Raises:
        UserError: text judged as lower or higher better.
    """
    if fault := fault_of(base, new, why_absent):
        return judged(metric, "void", absent(fault), fault)
    if isinstance(base, str) or isinstance(new, str):
        better = metric.definition.better
        if better != "equal":
            raise UserError(f"{metric.name} is text ({base!r}): only better: equal can be judged, not {better}")
        same = base == new
        reason = f"the same: {base}" if same else f"changed from {base} to {new}"
        return judged(metric, "met" if same else "missed", absent("text is no number; the reason has it", n=1), reason)
    assert base is not None and new is not None
    state, reason = judged_numbers(metric, base, new)
    return judged(metric, state, exact(new, n=1), reason, float(base))


def judged_numbers(metric: CellMetric, base: float, new: float) -> tuple[State, str]:
    """State and reason of two finite numbers."""
    difference, definition = new - base, metric.definition
    if difference == 0:
        return "met", f"the same: {base:,} {metric.unit}"
    relative = f" ({difference / abs(base):+.3%})" if base else ""
    change = f"from {base:,} to {new:,} {metric.unit}{relative}"
    if abs(difference) <= definition.tolerance * abs(base) * (1 + ROUNDING):
        return "met", f"changed within its tolerance {change}"
    if definition.better == "equal":
        return "missed", f"changed {change}"
    if (difference > 0) == (definition.better == "higher"):
        return "met", f"better, {change}"
    return "missed", f"worse, {change}"


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


def judged(metric: CellMetric, state: State, value: Quantity, reason: str, base: float | None = None) -> Judgement:
    """The judgement with the metric's own description."""
    one = metric.definition
    bound = {"equal": "equal to BASE", "lower": "at most BASE", "higher": "at least BASE"}[one.better]
    bound += f", {one.tolerance:.3%} of it let pass" if one.tolerance else ""
    return Judgement(
        **metric.described,
        kind="deterministic",
        state=state,
        value=value,
        unit=metric.unit,
        bound=bound,
        sizes={"runs": 2},
        reason=reason,
        remedy=RUN_AGAIN if state == "void" else None,
        base=base,
    )
