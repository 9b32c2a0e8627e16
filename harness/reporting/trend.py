"""Writes the trend page: one HTML file that opens without a network, series with changes drawn first, all in a table.

A figure shows one series over its commits with the level before and after each change. It computes no statistic.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes

from harness.record.regular_file import write_whole
from harness.regression.history.trend import (
    ChangePoint,
    Judged,
    Trend,
    change_words,
    figure_words,
    finding,
    line_words,
    metric_words,
    remarks,
    series_words,
)
from harness.reporting import svg
from harness.reporting.assets import STYLES, fill_template
from harness.reporting.svg import Drawing
from harness.scenario.metrics import METRICS
from harness.stats.change_points import LevelChange

MOST_TICKS = 8
COLOURS = {"better": svg.GREEN, "worse": svg.VERMILION}


def trend_figure(one: Judged) -> Drawing:
    """``one`` as a drawing; its caption, also its text for screen readers, states the finding."""
    series = one.series
    about = f"{series.cell}, {series.arm}: {metric_words(series.metric)}"
    caption = f"{about}, {line_words(series.line)}. {series_words(one)}."
    with svg.new_axes(height_in=3.2) as (figure, axes):
        axes.plot(range(len(series.values)), series.values, "o", color=svg.MUTED, ms=3.2)
        _levels(axes, one)
        for found in one.changes:
            _mark(axes, found)
        # Some of the commits by name, evenly spaced; the table has those of the changes.
        labels = [point.label for point in series.points]
        every = max(1, -(-len(labels) // MOST_TICKS))
        axes.set_xticks(range(0, len(labels), every), labels[::every])
        axes.tick_params(axis="x", labelsize=7)
        axes.set_xlabel("commits, oldest first")
        axes.margins(y=0.18)
        axes.set_ylabel(f"{metric_words(series.metric)} ({METRICS[series.metric].unit})")
        axes.yaxis.set_major_formatter(lambda value, _: figure_words(series.metric, value).replace("\u00a0", " "))
        axes.grid(axis="y")
        marks = ("measured", "predicted") if "_error" in series.metric else ("measured",)
        return svg.drawing(figure, about, caption, marks)


def _levels(axes: Axes, one: Judged) -> None:
    """The level between changes; a series without a change has no estimated level."""
    start = -0.5
    for change in (found.change for found in one.changes):
        left, right = _span(change)
        axes.plot([start, left], [change.before, change.before], color=svg.BLUE, lw=1.6)
        if change.end is not None:
            axes.plot([left, right], [change.before, change.after], color=svg.BLUE, lw=1.6)
        start = right
    if one.changes:
        axes.plot([start, len(one.series.values) - 0.5], [one.changes[-1].change.after] * 2, color=svg.BLUE, lw=1.6)


def _span(change: LevelChange) -> tuple[float, float]:
    """The two points between which the level moves."""
    return (change.index - 0.5, change.index - 0.5) if change.end is None else (change.index - 1, change.end)


def _mark(axes: Axes, found: ChangePoint) -> None:
    colour, (place, end) = COLOURS[found.direction], _span(found.change)
    if found.reached is None:
        axes.axvline(place, color=colour, lw=1.0, ls="--")
        text = f"{found.direction}\n{found.last_old.label}..{found.first_new.label}"
    else:
        axes.axvspan(place, end, color=colour, alpha=0.1, lw=0)
        text = f"{found.direction}, drift\n{found.last_old.label}..{found.reached.label}"
    top = axes.get_xaxis_transform()
    axes.annotate(text, (place, 1.0), (4, -2), xycoords=top, textcoords="offset points", color=colour, va="top", fontsize=8)


MOST_DRAWINGS = 24
"""A page with more drawings is slow to write and too long to read; the table has every series."""


def write_trend(trend: Trend, file: Path) -> Path:
    """Write the page.

    Raises:
        StorageError: the disk refuses.
    """
    write_whole(file, render(trend).encode())
    return file


def render(trend: Trend) -> str:
    """The page as one HTML document, without a script."""
    ordered = sorted(trend.judged, key=lambda one: (not one.changes, one.reason is not None))
    worth = [one for one in ordered if one.reason is None]
    return fill_template(
        "trend.html.j2",
        styles=STYLES[:1],
        trend=trend,
        finding=finding(trend),
        remarks=remarks(trend),
        changes=[(line_words(one.series.line), _about(one), change_words(one, found)) for one, found in trend.found],
        drawings=svg.placed(map(trend_figure, worth[:MOST_DRAWINGS]), "trend"),
        undrawn=len(worth) - len(worth[:MOST_DRAWINGS]),
        rows=[_row(one) for one in ordered],
    )


def _about(one: Judged) -> str:
    return f"{one.series.cell}, {one.series.arm}, {metric_words(one.series.metric)}"


def _row(one: Judged) -> tuple[str | int, ...]:
    """A series in the table: cell, arm, figure, commits, newest, finding, and where it was measured."""
    series = one.series
    newest = figure_words(series.metric, series.values[-1])
    about = (series.cell, series.arm, metric_words(series.metric), len(series.points), newest)
    return (*about, series_words(one), line_words(series.line))
