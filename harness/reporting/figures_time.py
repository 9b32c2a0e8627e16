"""Figures about time: a pass against its query tokens with the roofline through it, and predicted against measured decodes.

Draw cells of a Comparison; compute no statistic. Every function returns None where there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from harness import units
from harness.compare_values import ArmResult, Cell, PassCurve, PassWidth
from harness.reporting import svg
from harness.reporting.drawing import MOST_ARMS, Drawing

CURVE_COLOURS = (svg.GREEN, svg.PURPLE)
BATCH_COLOURS = (svg.VERMILION, svg.GREEN, svg.PURPLE)


def pass_time(cell: Cell, name: str) -> Drawing | None:
    """Forward time against query tokens per row, with the roofline's line and band through it."""
    measured = [width for width in cell.pass_widths if width.measured_s.value is not None]
    if not measured:
        return None
    with svg.styled():
        figure, axes = svg.new_axes()
        for colour, curve in zip(CURVE_COLOURS, cell.curves, strict=False):
            _roofline(axes, curve, colour)
        for width in measured:
            _pass_point(axes, width)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(axes.get_xlim()[0], axes.get_xlim()[1] * 1.5)
        axes.set_ylim(0, axes.get_ylim()[1] * 1.12)
        axes.set_xlabel("query tokens of each row in the pass")
        axes.set_ylabel("time of one forward pass (ms)")
        axes.grid(axis="y")
        caption = pass_time_sentence(cell) + " Points: median with quartiles; band: from fully overlapped to not overlapped."
        image = svg.to_inline(figure, name, caption)
    marks = ("measured", "predicted") if cell.curves else ("measured",)
    return Drawing(heading="Time of a pass", image=image, caption=caption, marks=marks)


def _roofline(axes: Axes, curve: PassCurve, colour: str) -> None:
    tokens = [point[0] for point in curve.points]
    low, expected, high = ([1e3 * point[side] for point in curve.points] for side in (1, 2, 3))
    axes.fill_between(tokens, low, high, color=colour, alpha=0.18, lw=0)
    axes.plot(tokens, expected, color=colour)
    end = (tokens[-1], expected[-1])
    axes.annotate(f"{curve.rung}\nroofline", end, (8, 0), textcoords="offset points", color=colour, va="center", fontsize=9)


def _pass_point(axes: Axes, width: PassWidth) -> None:
    value, low, high = (1e3 * (x or 0.0) for x in (width.measured_s.value, width.measured_s.low, width.measured_s.high))
    colour = svg.BLUE if width.method == "ntp" else svg.VERMILION
    axes.plot([width.query_tokens] * 2, [low, high], color=colour, lw=1.4)
    axes.plot([width.query_tokens], [value], "o" if width.role != "commit+decide" else "s", color=colour, ms=6)
    text = f"{'NTP' if width.method == 'ntp' else width.role}\n{units.seconds(value / 1e3)}"
    axes.annotate(text, (width.query_tokens, max(value, high)), (0, 7), textcoords="offset points", ha="center", fontsize=9)


def pass_time_sentence(cell: Cell) -> str:
    """What a pass of each width costs in one-token passes, measured and predicted."""
    said = []
    for width in cell.pass_widths:
        if width.method == "ntp" or width.cost.value is None:
            continue
        predicted = [f"{rung} roofline {units.ratio(cost.value)}" for rung, cost in width.predicted_cost.items() if cost.value]
        beside = f" ({', '.join(predicted)})" if predicted else ""
        said.append(f"{width.query_tokens} query tokens ({width.role}) take {units.ratio(width.cost.value)}{beside}")
    if not said:
        return "Time of a forward pass by its query tokens; there are no two kinds of pass to compare."
    return f"Against a one-token NTP pass, {'; '.join(said)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """One arm's decode time, measured and predicted with its band, in seconds."""

    cell: Cell
    arm: ArmResult
    measured_s: float
    low_s: float
    predicted_s: float
    high_s: float
    error: float


def _points(summaries: Sequence[Cell], rung: str) -> list[_Point]:
    found = []
    for cell in summaries:
        for arm in cell.arms:
            for one in arm.predictions:
                price, measured, error = one.decode_s, arm.decode_s.value, one.decode_error.value
                if (
                    one.rung != rung
                    or not measured
                    or not price.value
                    or price.low is None
                    or price.high is None
                    or error is None
                ):
                    continue
                found.append(
                    _Point(
                        cell=cell,
                        arm=arm,
                        measured_s=measured,
                        low_s=price.low,
                        predicted_s=price.value,
                        high_s=price.high,
                        error=error,
                    )
                )
    return found


def predicted_measured(summaries: Sequence[Cell], rung: str, name: str) -> Drawing | None:
    """Decode wall time per arm of one part (all its batch sizes), predicted against measured, with the line of equality."""
    points = _points(summaries, rung)
    if not points:
        return None
    every = [x for point in points for x in (point.measured_s, point.predicted_s)]
    ends = (min(every) * 0.7, max(every) * 1.6)
    with svg.styled():
        figure, axes = svg.new_axes(height_in=4.2)
        axes.plot(ends, ends, color=svg.MUTED, lw=0.9, ls="--")
        axes.annotate("predicted = measured", (ends[1], ends[1]), (-40, -4), textcoords="offset points", ha="right", va="top",
                      color=svg.MUTED, fontsize=9)  # fmt: skip
        _draw_points(axes, points)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axes.set_xlabel("measured decode wall time, all samples of an arm (s)")
        axes.set_ylabel("predicted (s)")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            axis.set_minor_locator(NullLocator())
        caption = _equality_caption(rung, points)
        image = svg.to_inline(figure, name, caption)
    heading = f"Decode time by the {rung} roofline"
    return Drawing(heading=heading, image=image, caption=caption, marks=("measured", "predicted"))


def _draw_points(axes: Axes, points: list[_Point]) -> None:
    sizes = list(dict.fromkeys(point.cell.batch_size for point in points))
    for point in points:
        cell, arm = point.cell, point.arm
        colour = svg.BLUE if arm.is_ntp else BATCH_COLOURS[sizes.index(cell.batch_size) % len(BATCH_COLOURS)]
        axes.plot([point.measured_s] * 2, [point.low_s, point.high_s], color=colour, lw=1.4)
        axes.plot([point.measured_s], [point.predicted_s], "o", color=colour, ms=6)
        if len(points) > 2 * MOST_ARMS:
            continue
        where = "" if len(sizes) == 1 else f", batch {cell.batch_size}"
        at = (point.measured_s, point.predicted_s)
        axes.annotate(arm.label + where, at, (8, -12), textcoords="offset points", fontsize=9)


def _equality_caption(rung: str, points: list[_Point]) -> str:
    errors = [point.error for point in points]
    low, high = units.signed_percent(min(errors)), units.signed_percent(max(errors))
    return (
        f"Against the measured decode time of {len(points)} arms the {rung} roofline is off by {low} to {high}. "
        "Above the dashed line it predicts too long, below too short; bars are its band."
    )
