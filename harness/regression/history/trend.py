"""Where the history changed: every series with its change points, each between two named commits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from sqlalchemy import Connection, select

from harness.regression.history.database import RECORDS, rows
from harness.regression.history.series import Point, Series, read_lines
from harness.regression.history.store import History, Wanted
from harness.scenario.metrics import METRICS, Better
from harness.stats.change_points import ALPHA, MIN_CHANGE, MIN_SEGMENT, Change, Examined, changes_at, common_level, examine

TREND_VERSION = 2
"""Version of the JSON form. From 2 on ``alpha`` is of all series together, and a change may be a drift."""
LAST = 200
"""Number of newest commits of each line by default: half a year of nightly runs."""
AT_ONCE = 500
"""Most values in one statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """The change came after ``last_old`` and with ``first_new`` or a commit between them that was not measured.

    ``reached``: where a drift reached its new level or, at the newest commit, its present one; None of a step.
    ``also_changed``: versions of software that differ between its ends, (before, after).
    """

    change: Change
    direction: Literal["better", "worse"]
    last_old: Point
    first_new: Point
    reached: Point | None
    also_changed: dict[str, tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A series with its changes, oldest first; ``reason`` says why it was not tested.

    ``correlation``: of the noise of a commit with that of the one before, about the given levels; None: not tested.
    """

    series: Series
    changes: tuple[ChangePoint, ...]
    correlation: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """All changes found. ``alpha`` is the chance of any false change in all series at this look. ``level`` is that of each
    series alone by Holm's test; the other parameters are in stats.change_points.
    """

    place: str
    judged: tuple[Judged, ...]
    runs: int
    outdated: int
    comparison_version: int | None
    min_change: float
    last: int | None
    notes: tuple[str, ...] = ()
    alpha: float = ALPHA
    level: float = ALPHA
    min_segment: int = MIN_SEGMENT
    version: int = TREND_VERSION

    @property
    def tested(self) -> int:
        """Series long enough for a test."""
        return sum(one.reason is None for one in self.judged)

    @property
    def found(self) -> list[tuple[Judged, ChangePoint]]:
        """Every change with its series."""
        return [(one, change) for one in self.judged for change in one.changes]

    def newly_worse(self, points: int) -> list[tuple[Judged, ChangePoint]]:
        """Changes for the worse within the newest ``points`` of their series: new steps, and drifts that continue."""
        return [
            (one, found)
            for one, found in self.found
            if found.direction == "worse" and (found.change.end or found.change.index) >= len(one.series.points) - points
        ]


def trend(
    history: History,
    wanted: Wanted,
    metrics: Sequence[str],
    cell: str = "*",
    min_change: float = MIN_CHANGE,
    last: int | None = LAST,
    outdated: bool = False,
) -> Trend:
    """Read the series and look for changes; arguments as of read_lines and changes_at.

    Raises:
        StorageError: the database refuses.
    """
    with history.reading() as connection:
        lines = read_lines(connection, wanted, metrics, cell, last, outdated)
        examined = [examine(series.values, METRICS[series.metric].scale) for series in lines.series]
        level = common_level([one for one in examined if len(one.points) >= 2 * MIN_SEGMENT])
        changes = [changes_at(one, level, min_change) for one in examined]
        software = _software(
            connection,
            (
                series.points[i]
                for series, found in zip(lines.series, changes, strict=True)
                for change in found
                for i in _ends(change)
            ),
        )
    together = zip(lines.series, examined, changes, strict=True)
    return Trend(
        place=history.place,
        judged=tuple(_judged(series, one, level, found, software) for series, one, found in together),
        runs=lines.runs,
        outdated=lines.outdated,
        comparison_version=lines.comparison_version,
        min_change=min_change,
        last=last,
        notes=lines.notes,
        level=level,
    )


def to_json(found: Trend) -> dict[str, Any]:
    """As plain JSON values with their ``version``."""
    plain = {field.name: getattr(found, field.name) for field in fields(found) if field.name != "judged"}
    return plain | {"tested": found.tested, "series": [_plain(one) for one in found.judged]}


def _plain(one: Judged) -> dict[str, Any]:
    series = one.series
    return asdict(series.line) | {
        "cell": series.cell,
        "arm": series.arm,
        "metric": series.metric,
        "unit": METRICS[series.metric].unit,
        "better": METRICS[series.metric].better,
        "correlation": one.correlation,
        "reason": one.reason,
        "points": [_point(point) | {"value": value} for point, value in zip(series.points, series.values, strict=True)],
        "changes": [
            asdict(found.change)
            | {
                "direction": found.direction,
                "last_old": _point(found.last_old),
                "first_new": _point(found.first_new),
                "reached": _point(found.reached) if found.reached else None,
                "also_changed": found.also_changed,
            }
            for found in one.changes
        ],
    }


def _point(point: Point) -> dict[str, Any]:
    return {"label": point.label} | asdict(point)


def _ends(change: Change) -> tuple[int, int]:
    """The points whose software is compared: on either side of a step, at both ends of a drift."""
    return change.index - 1, change.index if change.end is None else change.end


def _judged(
    series: Series, examined: Examined, level: float, changes: Iterable[Change], software: dict[str, dict[str, str]]
) -> Judged:
    better, least = METRICS[series.metric].better, 2 * MIN_SEGMENT
    short = f"{len(series.points)} commits, and two levels need {least}" if len(series.points) < least else None
    named = [
        ChangePoint(
            change=change,
            direction="better" if improves(change, better) else "worse",
            last_old=series.points[change.index - 1],
            first_new=series.points[change.index],
            reached=None if change.end is None else series.points[change.end],
            also_changed=_differing(*(software[series.points[i].run_ids[-1]] for i in _ends(change))),
        )
        for change in changes
    ]
    correlation = None if short else examined.standing(level).correlation
    return Judged(series=series, changes=tuple(named), correlation=correlation, reason=short)


def improves(change: Change, better: Better) -> bool:
    """Whether the new level is the better one. A prediction error improves towards 0 from either side."""
    if better == "nearer_zero":
        return abs(change.after) < abs(change.before)
    return (change.after > change.before) == (better == "higher")


def _software(connection: Connection, points: Iterable[Point]) -> dict[str, dict[str, str]]:
    """Versions at the newest run of each point, by run id."""
    run_ids = sorted({point.run_ids[-1] for point in points})
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(run_ids), AT_ONCE):
        asked = select(RECORDS.c.run_id, RECORDS.c.software).where(RECORDS.c.run_id.in_(run_ids[start : start + AT_ONCE]))
        found |= {run_id: json.loads(text) for run_id, text in rows(connection, asked)}
    return found


def _differing(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Of records that tell versions; those of the first form of the database do not."""
    if not before or not after:
        return {}
    names = sorted(before.keys() | after.keys())
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}
