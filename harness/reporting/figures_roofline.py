"""The roofline plot of a part's passes under the machine's ceilings, and pass time against query tokens with the roofline.

It draws RooflinePoint and Roof values and a cell of a Comparison, and computes no statistic.
Source of the plot: Williams, Waterman and Patterson 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from harness import formatting
from harness.analysis.evidence.explain import RooflinePoint
from harness.analysis.results import Cell
from harness.analysis.tally.pass_values import PassWidth, Roof, one_a_rung, price_words, rung_of
from harness.reporting.svg import (
    BLUE,
    MUTED,
    RUNGS,
    VERMILION,
    Drawing,
    Named,
    Point,
    dot,
    drawing,
    interval,
    name_lines,
    name_points,
    new_axes,
)

SHAPES = {"decide": "o", "commit+decide": "s", "draft": "^", "verify": "v"}
GIGA, MILLI = 1e9, 1e-3
MOST_LABELS = 9


def roofline_plot(points: Sequence[RooflinePoint], roofs: Sequence[Roof]) -> Drawing | None:
    """Flops per byte against FLOP/s, both logarithmic: measured passes filled, the best rung's predictions hollow."""
    if not points:
        return None
    with new_axes(height_in=3.8) as (figure, axes):
        axes.set(xscale="log", yscale="log")
        places = [point.intensity_flops_per_byte for point in points] + [roof.ridge_flops_per_byte for roof in roofs]
        ends = (min(places) / 3, max(places) * 4)
        for roof in roofs:
            _roof(axes, roof, ends)
        for point in points:
            x, attained, shape = point.intensity_flops_per_byte, point.attained_flops_per_s, SHAPES.get(point.width.role, "P")
            colour = BLUE if point.width.method == "ntp" else VERMILION
            interval(axes, attained, x, colour, 1.4, GIGA, upright=True)
            text = f"{point_words(point)}, batch {point.batch_size}: {_reached(point)}"
            dot(axes, *_place(point), shape, colour, text, 6.5, above=3)
            for price, predicted in list(point.predicted_flops_per_s.items())[:1]:
                colour = RUNGS.get(rung_of(price), MUTED)
                axes.plot([x], [predicted / GIGA], shape, mfc="none", mec=colour, ms=9, mew=1.3)
        if roofs:
            name_lines(axes)
        axes.set_xlim(ends)
        axes.margins(y=0.12)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 3)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(NullLocator())
        axes.set(xlabel="arithmetic intensity, modelled (flops per byte)", ylabel="attained (GFLOP/s)")
        several = len({point.batch_size for point in points}) > 1
        names = [
            Named(text=f"{point_words(one)}, batch {one.batch_size}" if several else point_words(one), at=_place(one))
            for one in named(points)
        ]
        name_points(axes, names, list(map(_place, points)))
        marks = ("measured", "modelled") + ("predicted",) * any(point.predicted_flops_per_s for point in points)
        return drawing(figure, "Passes under the roofline", roofline_sentence(points, roofs), marks)


def _roof(axes: Axes, roof: Roof, ends: tuple[float, float]) -> None:
    colour, ridge = RUNGS.get(roof.rung, MUTED), roof.ridge_flops_per_byte
    peak, memory = roof.peak_flops_per_s / GIGA, roof.bandwidth_bytes_per_s / GIGA
    rate = formatting.gigabytes(roof.bandwidth_bytes_per_s)
    text = (
        f"{roof.rung} matrix peak {formatting.gigabytes(roof.peak_flops_per_s)} GFLOP/s,\n"
        f"read rate {rate} GB/s, ridge at {ridge:.3g} flops per byte"
    )
    axes.plot([ends[0], ridge, ends[1]], [ends[0] * memory, peak, peak], color=colour, lw=1.4, label=text)
    dot(axes, ridge, peak, "D", colour, text, 4)


def _reached(point: RooflinePoint) -> str:
    rate = formatting.gigabytes(point.attained_flops_per_s.value or 0.0)
    return f"{point.intensity_flops_per_byte:.3g} flops per byte, {rate} GFLOP/s"


def _place(point: RooflinePoint) -> Point:
    return point.intensity_flops_per_byte, (point.attained_flops_per_s.value or 0.0) / GIGA


def named(points: Sequence[RooflinePoint]) -> list[RooflinePoint]:
    """The points to label: all, else those of the smallest and the largest batch, else NTP's and both ends of intensity."""
    if len(points) <= MOST_LABELS:
        return list(points)
    sizes = [point.batch_size for point in points]
    outer = [point for point in points if point.batch_size in (min(sizes), max(sizes)) and point.width.role != "commit+decide"]
    if len(outer) <= MOST_LABELS:
        return outer
    ordered = sorted(points, key=lambda point: point.intensity_flops_per_byte)
    ends = [ordered[0], ordered[-1]]
    return ends + [point for point in points if point.width.method == "ntp" and point not in ends][: MOST_LABELS - len(ends)]


def point_words(point: RooflinePoint) -> str:
    """``NTP``, ``decide, 16 tokens``."""
    tokens = point.width.query_tokens
    return "NTP" if point.width.method == "ntp" else f"{point.width.role}, {tokens} token{'s' if tokens != 1 else ''}"


def roofline_sentence(points: Sequence[RooflinePoint], roofs: Sequence[Roof]) -> str:
    """What the passes of least and most intensity reach, and their side of the ridge."""
    ordered = sorted(points, key=lambda point: point.intensity_flops_per_byte)
    with_batch = len({point.batch_size for point in points}) > 1
    said = [
        f"{point_words(point)}{f' at batch {point.batch_size}' if with_batch else ''}: {_reached(point)}"
        for point in (ordered if len(ordered) < 3 else (ordered[0], ordered[-1]))
    ]
    best = next((rung for point in points for rung in point.predicted_flops_per_s), None)
    hollow = f" Hollow: predicted, {price_words(best)}." if best else ""
    side = ""
    for roof in roofs[:1]:  # passes faster than its peak show that the ceilings are too low
        below = sum(point.intensity_flops_per_byte < roof.ridge_flops_per_byte for point in points)
        above = sum((point.attained_flops_per_s.value or 0.0) > roof.peak_flops_per_s for point in points)
        kinds = f"{below} of {len(points)} kinds of pass lie" if below < len(points) else "every kind of pass lies"
        side = f" By the {roof.rung} ceilings {kinds} below the ridge ({roof.ridge_flops_per_byte:.3g}), where memory limits."
        side += f" {above} of them are faster than the peak: it was found too low." if above else ""
    return f"{'; '.join(said)}.{side}{hollow}"


MOST_KINDS = 9
"""Up to so many kinds of pass are all named; of more only the telling ones are."""
MOST_FREQUENT, MOST_SAID = 3, 3


def pass_time(cell: Cell) -> Drawing | None:
    """Forward time against query tokens per row, with the roofline's line and band."""
    measured = clocked(cell)
    if not measured:
        return None
    with new_axes() as (figure, axes):
        curves = [curve for curve in cell.curves if curve.rung in one_a_rung(other.rung for other in cell.curves)]
        for curve in curves:
            tokens, low, expected, high = np.array(curve.points).T
            colour = RUNGS.get(rung_of(curve.rung), MUTED)
            axes.fill_between(tokens, 1e3 * low, 1e3 * high, color=colour, alpha=0.18, lw=0)
            axes.plot(tokens, 1e3 * expected, color=colour, label=f"{price_words(curve.rung)} roofline")
        for width in measured:
            time, colour = width.measured_s, BLUE if width.method == "ntp" else VERMILION
            interval(axes, time, width.query_tokens, colour, 1.4, MILLI, upright=True)
            quartiles = f"quartiles {formatting.seconds(time.low or 0.0)} and {formatting.seconds(time.high or 0.0)}"
            text = f"{_pass_name(width).text}, {width.query_tokens} query tokens, {quartiles}"
            dot(axes, *_pass_place(width), "s" if width.role == "commit+decide" else "o", colour, text)
        if curves:
            name_lines(axes)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.margins(x=0.08, y=0.18)
        axes.set(xlabel="query tokens of each row in the pass", ylabel="time of one forward pass (ms)", ylim=0)
        axes.grid(axis="y")
        named = sorted(telling(cell), key=lambda width: (width.method != "ntp", -width.query_tokens))
        name_points(axes, list(map(_pass_name, named)), list(map(_pass_place, measured)))
        marks = ("measured", "predicted") if cell.curves else ("measured",)
        return drawing(figure, "Time of a pass", pass_time_sentence(cell), marks)


def clocked(cell: Cell) -> list[PassWidth]:
    """The kinds of pass that have a time."""
    return [width for width in cell.pass_widths if width.measured_s.value is not None]


def telling(cell: Cell) -> list[PassWidth]:
    """All of few kinds of pass; of many NTP's, the most frequent ones and the widest, each width once."""
    widths = clocked(cell)
    if len(widths) <= MOST_KINDS:
        return widths
    ntp = [width for width in widths if width.method == "ntp"]
    own = [width for width in widths if width.method != "ntp" and " by " not in width.role]
    by_width = {width.query_tokens: width for width in sorted(own, key=lambda width: width.count)}
    frequent = sorted(by_width.values(), key=lambda width: width.count)[-MOST_FREQUENT:]
    chosen = {id(width) for width in (*ntp, *frequent, *([by_width[max(by_width)]] if by_width else []))}
    return [width for width in widths if id(width) in chosen]


def _pass_name(width: PassWidth) -> Named:
    role = "NTP" if width.method == "ntp" else width.role
    return Named(text=f"{role}, {formatting.seconds(width.measured_s.value or 0.0)}", at=_pass_place(width))


def _pass_place(width: PassWidth) -> Point:
    return width.query_tokens, 1e3 * (width.measured_s.value or 0.0)


def pass_time_sentence(cell: Cell) -> str:
    """The cost of the widest passes in one-token passes, measured and predicted by the best rung."""
    said = []
    named = telling(cell)
    costly = [width for width in named if width.method != "ntp" and width.cost.value is not None]
    for width in sorted(costly, key=lambda width: width.query_tokens)[-MOST_SAID:]:
        best = next((price.value for price in width.predicted_cost.values() if price.value), None)
        beside = f" (predicted {formatting.ratio(best)})" if best else ""
        cost = formatting.ratio(width.cost.value or 0.0)
        said.append(f"{width.query_tokens} query tokens ({width.role}) take {cost}{beside}")
    if not said:
        return "Time of a forward pass by its query tokens; there are no two kinds of pass to compare."
    others = len(clocked(cell)) - len(named)
    beside = f" {others} other kinds of pass are in the table." if others else ""
    return f"Against a one-token NTP pass, {'; '.join(said)}.{beside}"
