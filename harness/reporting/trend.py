"""Writes the trend page: one HTML file that opens without a network, the series with changes drawn first, all in a table.

Reads a Trend only and computes no statistic of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.record.journal import write_whole
from harness.regression.history.wording import (
    change_words,
    figure_words,
    finding,
    line_words,
    metric_words,
    remarks,
    series_words,
)
from harness.regression.history.trend import Judged, Trend
from harness.reporting.drawing import Drawing
from harness.reporting.figures_trend import trend_figure

MOST_DRAWINGS = 24
"""A page of more drawings takes long to write and nobody reads it to the end; the table has every series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One series in the table."""

    line: str
    cell: str
    arm: str
    metric: str
    commits: int
    newest: str
    said: str


def write_trend(trend: Trend, file: Path) -> Path:
    """Write the page.

    Raises:
        StorageError: the disk refuses.
    """
    write_whole(file, render(trend).encode())
    return file


def render(trend: Trend) -> str:
    """The page as one HTML document: no script, no request, every text from the history escaped."""
    environment = Environment(loader=PackageLoader("harness.reporting"), autoescape=True, undefined=StrictUndefined)
    loader = environment.loader
    ordered = sorted(trend.judged, key=lambda one: (not one.changes, one.reason is not None))
    worth = [one for one in ordered if one.reason is None]
    changes = [(one, change_words(one, found)) for one, found in trend.found]
    return environment.get_template("trend.html.j2").render(
        style=Markup(loader.get_source(environment, "style.css")[0]) if loader else "",
        place=trend.place,
        finding=finding(trend),
        remarks=remarks(trend),
        changes=[(line_words(one.series.line), _about(one), said) for one, said in changes],
        drawings=_drawings(worth[:MOST_DRAWINGS]),
        undrawn=len(worth) - len(worth[:MOST_DRAWINGS]),
        rows=[_row(one) for one in ordered],
        alpha=trend.alpha,
        level=trend.level,
        min_change_pct=100 * trend.min_change,
        min_segment=trend.min_segment,
        comparison_version=trend.comparison_version,
        version=trend.version,
    )


def _drawings(judged: list[Judged]) -> list[Drawing]:
    return [trend_figure(one, f"trend-{i}") for i, one in enumerate(judged)]


def _about(one: Judged) -> str:
    return f"{one.series.cell}, {one.series.arm}, {metric_words(one.series.metric)}"


def _row(one: Judged) -> Row:
    series = one.series
    return Row(
        line=line_words(series.line),
        cell=series.cell,
        arm=series.arm,
        metric=metric_words(series.metric),
        commits=len(series.points),
        newest=figure_words(series.metric, series.values[-1]),
        said=series_words(one),
    )
