"""The figures that a history keeps of a comparison, each with its unit, interval and reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.analysis.results import ArmResult, Cell, Comparison
from harness.analysis.stats.quantity import Quantity, absent
from harness.regression.history.metrics import METRICS, Figure

ALL_TASKS = "all"
ONE_BY_DEFINITION = ("wall_speedup", "nfe_speedup")


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
        "time_per_token_s": reciprocal(arm.tokens_per_s),
        "tokens_per_s": arm.tokens_per_s,
        "ceiling_share": arm.ceiling_share,
        "accuracy": arm.accuracy,
        "accuracy_difference": arm.accuracy_difference,
    }
    for one in arm.predictions:
        found[f"decode_error.{one.price}"] = one.decode_error
        if not arm.is_ntp:
            found[f"wall_speedup_error.{one.price}"] = one.wall_speedup_error
    return found


def reciprocal(rate: Quantity) -> Quantity:
    """Seconds per token from tokens per second, its interval turned round."""
    if not rate.value:
        return absent(rate.reason or "no tokens were decoded", rate.n)
    low, high = (None if end is None or end == 0 else 1 / end for end in (rate.high, rate.low))
    return replace(rate, value=1 / rate.value, low=low, high=high)
