"""Where the history changed: every series with its change points, each between two named commits, and why a speedup moved.

A figure, a change and a trend have the same words on the terminal and on the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from statistics import median
from typing import Literal

from harness import formatting
from harness.frozen import frozen
from harness.regression.history.series import HistoryLine, Point, Series, read_lines
from harness.regression.history.store import History, Wanted
from harness.regression.metrics import SPEEDUP, reason_of
from harness.scenario.metrics import METRICS, Better
from harness.stats.change_points import ALPHA, MIN_CHANGE, MIN_SEGMENT, Examined, LevelChange, changes_at, common_level, examine

TREND_VERSION = 2
"""Version of the JSON form. From 2 on ``alpha`` is of all series together, and a change may be a drift."""
Versions = dict[str, tuple[str | None, str | None]]
"""Of software by name, (before, after)."""
LAST = 200
"""Number of newest commits of each line by default: half a year of nightly runs."""


@frozen
class ChangePoint:
    """The change came after ``last_old`` and with ``first_new`` or a commit between them that was not measured.

    ``reached``: where a drift reached its new level or, at the newest commit, its present one; None of a step.
    ``also_changed``: versions of software that differ between its ends, (before, after).
    """

    change: LevelChange
    direction: Literal["better", "worse"]
    last_old: Point
    first_new: Point
    reached: Point | None
    also_changed: Versions

    @property
    def settled(self) -> int:
        """The index of the first point of the new level."""
        return self.change.end or self.change.index


@frozen
class Judged:
    """A series with its changes, oldest first; ``reason`` says why it was not tested.

    ``correlation``: of the noise of a commit with that of the one before, about the given levels; None: not tested.
    """

    series: Series
    changes: tuple[ChangePoint, ...]
    correlation: float | None
    reason: str | None


@frozen
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
    notes: tuple[str, ...]
    alpha: float = ALPHA
    level: float
    min_segment: int = MIN_SEGMENT
    version: int = TREND_VERSION

    @property
    def tested(self) -> int:
        """Series long enough for a test."""
        return sum(judged.reason is None for judged in self.judged)

    @property
    def found(self) -> list[tuple[Judged, ChangePoint]]:
        """Every change with its series."""
        return [(judged, change) for judged in self.judged for change in judged.changes]

    def newly_worse(self, points: int) -> list[tuple[Judged, ChangePoint]]:
        """Changes for the worse within the newest ``points`` of their series: new steps, and drifts that continue."""
        return [
            (judged, change)
            for judged, change in self.found
            if change.direction == "worse" and change.settled >= len(judged.series.points) - points
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
    level = common_level([series for series in examined if len(series.points) >= 2 * MIN_SEGMENT])
    changes = [changes_at(series, level, min_change) for series in examined]
    together = zip(lines.series, examined, changes, strict=True)
    return Trend(
        place=history.place,
        judged=tuple(_judged(series, tested, level, own) for series, tested, own in together),
        runs=lines.runs,
        outdated=lines.outdated,
        comparison_version=lines.comparison_version,
        min_change=min_change,
        last=last,
        notes=lines.notes,
        level=level,
    )


def to_json(trend: Trend) -> dict[str, object]:
    """As plain JSON values with their ``version``."""
    plain = {field.name: getattr(trend, field.name) for field in fields(trend) if field.name != "judged"}
    return plain | {"tested": trend.tested, "series": [_plain(judged) for judged in trend.judged]}


def _plain(judged: Judged) -> dict[str, object]:
    series = judged.series
    return asdict(series.line) | {
        "cell": series.cell,
        "arm": series.arm,
        "metric": series.metric,
        "unit": METRICS[series.metric].unit,
        "better": METRICS[series.metric].better,
        "correlation": judged.correlation,
        "reason": judged.reason,
        "points": [_point(point) | {"value": value} for point, value in zip(series.points, series.values, strict=True)],
        "changes": [
            asdict(change.change)
            | {
                "direction": change.direction,
                "last_old": _point(change.last_old),
                "first_new": _point(change.first_new),
                "reached": _point(change.reached) if change.reached else None,
                "also_changed": change.also_changed,
            }
            for change in judged.changes
        ],
    }


def _point(point: Point) -> dict[str, object]:
    plain = {"label": point.label} | asdict(point)
    del plain["software"]
    return plain


def _judged(series: Series, examined: Examined, level: float, changes: Iterable[LevelChange]) -> Judged:
    better, least, points = METRICS[series.metric].better, 2 * MIN_SEGMENT, series.points
    short = f"{len(points)} commits, and two levels need {least}" if len(points) < least else None
    named = [
        ChangePoint(
            change=change,
            direction="better" if improves(change, better) else "worse",
            last_old=points[change.index - 1],
            first_new=points[change.index],
            reached=None if change.end is None else points[change.end],
            also_changed=_differing(points[change.index - 1], points[change.end or change.index]),
        )
        for change in changes
    ]
    correlation = None if short else examined.standing(level).correlation
    return Judged(series=series, changes=tuple(named), correlation=correlation, reason=short)


def improves(change: LevelChange, better: Better) -> bool:
    """Whether the new level is the better one. A prediction error improves towards 0 from either side."""
    if better == "nearer_zero":
        return abs(change.after) < abs(change.before)
    return (change.after > change.before) == (better == "higher")


def _differing(old: Point, new: Point) -> Versions:
    """Versions of software; records of the first form of the database have none."""
    before, after = json.loads(old.software), json.loads(new.software)
    names = sorted(before.keys() | after.keys()) if before and after else []
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def cause(trend: Trend, judged: Judged, change: ChangePoint) -> str | None:
    """Whether the arm or NTP moved a speedup; None of another figure, or where their times are not among the series."""
    series, at = judged.series, judged.changes.index(change)
    if series.metric != SPEEDUP:
        return None
    start = judged.changes[at - 1].settled if at else 0
    end = judged.changes[at + 1].change.index if at + 1 < len(judged.changes) else len(series.points)
    sides = series.points[start : change.change.index], series.points[change.settled : end]
    beside = [other.series for other in trend.judged if (other.series.line, other.series.cell) == (series.line, series.cell)]
    return reason_of(series.arm, {other.arm: _moved(other, *sides) for other in beside if other.metric == "time_per_token_s"})


def _moved(series: Series, before: Sequence[Point], after: Sequence[Point]) -> float | None:
    """Median after ÷ median before, of the same commits."""
    by_label = dict(zip((point.label for point in series.points), series.values, strict=True))
    old, new = ([by_label[point.label] for point in side if point.label in by_label] for side in (before, after))
    return median(new) / median(old) if old and new and median(old) > 0 else None


ABOUT = {
    "wall_speedup": "wall speedup",
    "nfe_speedup": "NFE speedup",
    "time_per_token_s": "time per decode token",
    "tokens_per_s": "decode tokens per second",
    "ceiling_share": "share of the read ceiling",
    "accuracy": "accuracy",
    "accuracy_difference": "accuracy less that of NTP",
    "wall_speedup_error": "prediction error of the wall speedup",
    "decode_error": "prediction error of the decode time",
}


NO_RUN = "no run is kept that was asked for; `sbd history add RUN` keeps one"


def metric_words(name: str) -> str:
    """``wall_speedup_error.datasheet``: prediction error of the wall speedup (datasheet rung)."""
    base, _, rung = name.partition(".")
    words = ABOUT.get(base) or METRICS[name].words
    return f"{words} ({rung} rung)" if rung else words


def figure_words(metric: str, value: float) -> str:
    """A value with its unit: ``2.31x``, ``31.5 ms``, ``+4.3 %``."""
    base, unit = metric.partition(".")[0], METRICS[metric].unit
    if unit == "x":
        return formatting.ratio(value)
    if unit in ("s", "s/token"):
        return formatting.seconds(value)
    if unit.endswith("/s"):
        return f"{formatting.rate(value)}\u00a0{unit}"
    if base == "accuracy_difference":
        return formatting.points(value)
    return formatting.signed_percent(value) if base.endswith("_error") else formatting.percent(value)


def line_words(line: HistoryLine) -> str:
    """Scenario, machine and branch."""
    branch = f"branch {line.branch}" if line.branch is not None else "branch not known"
    return f"{line.scenario_name} [{line.scenario_digest[:8]}] on {line.machine} [{line.fingerprint}], {branch}"


def change_words(judged: Judged, point: ChangePoint) -> str:
    """The change in one sentence, without its figure."""
    metric, change = judged.series.metric, point.change
    before, after = (figure_words(metric, level) for level in (change.before, change.after))
    size = formatting.points if METRICS[metric].scale == "difference" else formatting.signed_percent
    moved = f"{before} to {after} ({size(change.size)})"
    if point.reached is None:
        words = f"{point.direction}: {moved}, after {point.last_old.label} and by {point.first_new.label}"
    else:
        commits = point.settled - change.index + 1
        newest = ", the newest" if change.end == len(judged.series.points) - 1 else ""  # it is still on the line
        words = (
            f"{point.direction}: a drift, not a step: {moved} over {commits} commits, from about "
            f"{point.last_old.label} to about {point.reached.label}{newest}"
        )
    words += " (p < 1e-6)" if change.p < 1e-6 else f" (p = {change.p:.2g})"  # smaller ones are extrapolated: not distinguished
    versions = [f"{name} {old or 'none'} to {new or 'none'}" for name, (old, new) in point.also_changed.items()]
    return f"{words}; also changed: {', '.join(versions)}" if versions else words


def series_words(judged: Judged) -> str:
    """What the series shows: its changes, no change, or why it was not tested."""
    series = judged.series
    if judged.reason is not None:
        return f"not looked at: {judged.reason}"
    if judged.changes:
        return "; ".join(change_words(judged, change) for change in judged.changes)
    low, high = (figure_words(series.metric, end) for end in (min(series.values), max(series.values)))
    known = f"; correlation with the commit before {judged.correlation:.2f}" if judged.correlation else ""
    return f"no change of level in {len(series.points)} commits ({low} to {high}{known})"


SPARKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], longest: int = 24) -> str:
    """The newest ``longest`` values as bars between their least and their greatest; equal ones are all in the middle."""
    newest = [float(value) for value in values[-longest:]]
    low, span = min(newest), max(newest) - min(newest)
    top = len(SPARKS) - 1
    return "".join(SPARKS[top // 2 if span == 0 else round(top * (value - low) / span)] for value in newest)


def finding(trend: Trend) -> str:
    """How many changes were found, and how often chance alone shows any."""
    changes, tested = len(trend.found), trend.tested
    newest = f", the newest {trend.last} commits of each" if trend.last is not None else ""
    looked = f"{changes} {'change' if changes == 1 else 'changes'} in {tested} series of {trend.runs} runs{newest}"
    return f"{looked}; if nothing had changed, one look in {1 / trend.alpha:.0f} would show any change"


def remarks(trend: Trend) -> list[str]:
    """What was left out, and what to do about it."""
    short = len(trend.judged) - trend.tested
    notes = [*trend.notes]
    if not trend.runs:
        notes.append(NO_RUN)
    if short:
        least, longest = 2 * trend.min_segment, max(len(judged.series.points) for judged in trend.judged)
        notes.append(f"{short} series are too short: two levels need {least} commits")
        if longest < least:
            more = formatting.count(least - longest)
            notes.append(f"the longest has {longest}, so the first verdict can come after {more} more")
    if trend.outdated:
        notes.append(
            f"{trend.outdated} of {trend.runs} runs are left out, their figures are of older formulas than version "
            f"{trend.comparison_version}: `sbd history rebuild` derives them again, --outdated uses them as they are"
        )
    return notes
