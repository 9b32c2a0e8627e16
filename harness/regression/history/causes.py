"""Why a speedup's level changed: the times per token of the arm and of NTP before and after, in the same commits."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from harness.regression.history.series import Point, Series
from harness.regression.history.trend import ChangePoint, Judged, Trend
from harness.regression.reasons import why_moved

SPEEDUP, TIME = "wall_speedup", "time_per_token_s"


def cause(found: Trend, one: Judged, change: ChangePoint) -> str | None:
    """Whether the arm or NTP moved; None of another figure, or where their times are not among the series."""
    if one.series.metric != SPEEDUP:
        return None
    before, after = _sides(one, change)
    beside = [
        other.series
        for other in found.judged
        if other.series.metric == TIME and (other.series.line, other.series.cell) == (one.series.line, one.series.cell)
    ]
    own = next((other for other in beside if other.arm == one.series.arm), None)
    ntp = next((other for other in beside if other.arm.startswith("NTP")), None)
    ratios = [_ratio(other, before, after) for other in (ntp, own)]
    return None if ratios[0] is None or ratios[1] is None else why_moved(ratios[0], ratios[1])


def _sides(one: Judged, change: ChangePoint) -> tuple[Sequence[Point], Sequence[Point]]:
    """The points of the levels before and after the change."""
    at = [found.change for found in one.changes].index(change.change)
    start = (one.changes[at - 1].change.end or one.changes[at - 1].change.index) if at else 0
    end = one.changes[at + 1].change.index if at + 1 < len(one.changes) else len(one.series.points)
    points = one.series.points
    return points[start : change.change.index], points[change.change.end or change.change.index : end]


def _ratio(series: Series | None, before: Sequence[Point], after: Sequence[Point]) -> float | None:
    """Median after ÷ median before, of the same commits."""
    if series is None:
        return None
    by_label = dict(zip((point.label for point in series.points), series.values, strict=True))
    sides = [[by_label[point.label] for point in side if point.label in by_label] for side in (before, after)]
    return float(median(sides[1]) / median(sides[0])) if all(sides) and median(sides[0]) > 0 else None
