"""Which figures of a comparison a history follows, in which unit, and which way is better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.compare_pricing import RUNGS
from harness.compare_values import ArmResult, Cell, Comparison
from harness.errors import UserError
from harness.history_changes import Scale
from harness.stats import Quantity, absent

Better = Literal["higher", "lower", "nearer_zero"]
ALL_TASKS = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedMetric:
    """A figure that is followed. ``scale``: it changes by a factor, or by a difference where it may be 0 or negative."""

    name: str
    unit: str
    better: Better
    scale: Scale = "ratio"
    by_default: bool = False


METRICS = {
    metric.name: metric
    for metric in (
        TrackedMetric(name="wall_speedup", unit="x", better="higher", by_default=True),
        TrackedMetric(name="nfe_speedup", unit="x", better="higher", by_default=True),
        TrackedMetric(name="time_per_token_s", unit="s/token", better="lower", by_default=True),
        TrackedMetric(name="tokens_per_s", unit="tokens/s", better="higher"),
        TrackedMetric(name="ceiling_share", unit="share", better="higher"),
        TrackedMetric(name="accuracy", unit="share", better="higher", scale="difference"),
        TrackedMetric(name="accuracy_difference", unit="share", better="higher", scale="difference"),
        *(
            TrackedMetric(name=f"{name}.{rung}", unit="share", better="nearer_zero", scale="difference", by_default=default)
            for name, default in (("wall_speedup_error", True), ("decode_error", False))
            for rung in RUNGS
        ),
    )
}
"""By name. ``*_error.<rung>``: predicted ÷ measured - 1, by the ceilings of that rung."""
DEFAULT_METRICS = tuple(name for name, metric in METRICS.items() if metric.by_default)
ONE_BY_DEFINITION = ("wall_speedup", "nfe_speedup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of one arm in one cell, ``value`` None with its ``reason``. ``cell``: part/task/b<batch size>."""

    cell: str
    arm: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    unit: str
    better: Better
    reason: str | None


def known_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """The metrics meant by ``names``; a name without its rung means all rungs, no name the default ones.

    Raises:
        UserError: there is no such metric.
    """
    meant: list[str] = []
    for name in names:
        found = [one for one in METRICS if one == name or one.startswith(f"{name}.")]
        if not found:
            raise UserError(f"--metric {name}: is not followed; known are {', '.join(METRICS)}")
        meant += found
    return tuple(dict.fromkeys(meant)) or DEFAULT_METRICS


def figures_of(comparison: Comparison) -> tuple[Figure, ...]:
    """Every figure that is followed, cell by cell; those that hold for NTP by definition are left out."""
    return tuple(figure for cell in comparison.cells for arm in cell.arms for figure in _of_arm(cell, arm))


def cell_name(cell: Cell) -> str:
    """``reference/word_problems/b1``; ``reference/all/b1`` over several tasks."""
    return f"{cell.part}/{cell.task or ALL_TASKS}/b{cell.batch_size}"


def _of_arm(cell: Cell, arm: ArmResult) -> Iterator[Figure]:
    for name, quantity in _quantities(arm).items():
        if arm.is_ntp and name in ONE_BY_DEFINITION:
            continue
        metric = METRICS[name]
        yield Figure(
            cell=cell_name(cell), arm=arm.label, metric=name, value=quantity.value, low=quantity.low, high=quantity.high,
            n=quantity.n, unit=metric.unit, better=metric.better, reason=quantity.reason,
        )  # fmt: skip


def _quantities(arm: ArmResult) -> dict[str, Quantity]:
    found = {
        "wall_speedup": arm.wall_speedup,
        "nfe_speedup": arm.nfe_speedup,
        "time_per_token_s": _reciprocal(arm.tokens_per_s),
        "tokens_per_s": arm.tokens_per_s,
        "ceiling_share": arm.ceiling_share,
        "accuracy": arm.accuracy,
        "accuracy_difference": arm.accuracy_difference,
    }
    for one in arm.predictions:
        found[f"decode_error.{one.rung}"] = one.decode_error
        if not arm.is_ntp:
            found[f"wall_speedup_error.{one.rung}"] = one.wall_speedup_error
    return found


def _reciprocal(rate: Quantity) -> Quantity:
    """Seconds per token from tokens per second, its interval turned round."""
    if not rate.value:
        return absent(rate.reason or "no tokens were decoded", rate.n)
    low, high = (None if end is None or end == 0 else 1 / end for end in (rate.high, rate.low))
    return replace(rate, value=1 / rate.value, low=low, high=high)
