"""The roofline plot of a part's passes under the machine's ceilings, and pass time against query tokens with the roofline.

It draws RooflinePoint and Roof values and a cell of a Comparison, and computes no statistic.
Source of the plot: Williams, Waterman and Patterson 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from harness import formatting
from harness.analysis.explain import RooflinePoint
from harness.analysis.pass_values import PassCurve, PassWidth, Roof, one_a_rung, price_words, rung_of
from harness.analysis.results import Cell
from harness.reporting import svg
from harness.reporting.svg import Drawing

SHAPES = {"decide": "o", "commit+decide": "s", "draft": "^", "verify": "v"}
GIGA = 1e9
MOST_LABELS = 9


def roofline_plot(points: Sequence[RooflinePoint], roofs: Sequence[Roof], name: str) -> Drawing | None:
    """Flops per byte against FLOP/s, both logarithmic: measured passes filled, the best rung's predictions hollow."""
    if not points:
        return None
    with svg.new_axes(height_in=4.0) as (figure, axes):
        axes.set(xscale="log", yscale="log")
        places = [point.intensity_flops_per_byte for point in points] + [roof.ridge_flops_per_byte for roof in roofs]
        ends = (min(places) / 3, max(places) * 4)
        for roof in roofs:
            _roof(axes, roof, ends)
        for point in points:
            _point(axes, point)
        for point in named(points):
            _name(axes, point, with_batch=len({one.batch_size for one in points}) > 1)
        axes.set_xlim(ends)
        axes.set_ylim(axes.get_ylim()[0] / 1.3, axes.get_ylim()[1] * 1.6)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if axis is axes.xaxis else (1, 3)))
            axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            axis.set_minor_locator(NullLocator())
        axes.set_xlabel("arithmetic intensity, modelled (flops per byte)")
        axes.set_ylabel("attained (GFLOP/s)")
        predicted = ("predicted",) if any(point.predicted_flops_per_s for point in points) else ()
        marks = ("measured", "modelled", *predicted)
        return svg.drawing(figure, name, "Passes under the roofline", roofline_sentence(points, roofs), marks)


def _roof(axes: Axes, roof: Roof, ends: tuple[float, float]) -> None:
    colour, ridge = svg.RUNGS.get(roof.rung, svg.MUTED), roof.ridge_flops_per_byte
    peak, memory = roof.peak_flops_per_s / GIGA, roof.bandwidth_bytes_per_s / GIGA
    axes.plot([ends[0], ridge, ends[1]], [ends[0] * memory, peak, peak], color=colour, lw=1.4)
    axes.plot([ridge], [peak], "D", color=colour, ms=4)
    axes.annotate(f"{roof.rung} read rate\n{formatting.gigabytes(roof.bandwidth_bytes_per_s)} GB/s",
                  (ends[0], ends[0] * memory),
                  (12, -2), textcoords="offset points", va="top", color=colour, fontsize=9)  # fmt: skip
    text = f"{roof.rung} matrix peak {_giga(roof.peak_flops_per_s)} GFLOP/s\nridge at {ridge:.3g} flops per byte"
    side, offset = ("left", -4) if ridge**2 < ends[0] * ends[1] else ("right", 4)  # to the side with more room
    axes.annotate(text, (ridge, peak), (offset, 6), textcoords="offset points", ha=side,
                  va="bottom", color=colour, fontsize=9)  # fmt: skip


def _point(axes: Axes, point: RooflinePoint) -> None:
    x, attained = point.intensity_flops_per_byte, point.attained_flops_per_s
    colour, shape = svg.BLUE if point.width.method == "ntp" else svg.VERMILION, SHAPES.get(point.width.role, "P")
    if attained.low is not None and attained.high is not None:
        axes.plot([x, x], [attained.low / GIGA, attained.high / GIGA], color=colour, lw=1.4)
    axes.plot([x], [(attained.value or 0.0) / GIGA], shape, color=colour, ms=6.5, zorder=3)
    for price, predicted in list(point.predicted_flops_per_s.items())[:1]:
        axes.plot([x], [predicted / GIGA], shape, mfc="none", mec=svg.RUNGS.get(rung_of(price), svg.MUTED), ms=9, mew=1.3)


def _name(axes: Axes, point: RooflinePoint, with_batch: bool) -> None:
    text = point_words(point) + (f", batch {point.batch_size}" if with_batch else "")
    at = (point.intensity_flops_per_byte, (point.attained_flops_per_s.value or 0.0) / GIGA)
    offset, side = ((-9, 5), "right") if point.width.role == "commit+decide" else ((9, -10), "left")
    axes.annotate(text, at, offset, textcoords="offset points", ha=side, fontsize=9)


def named(points: Sequence[RooflinePoint]) -> list[RooflinePoint]:
    """The points to label: all, else those of the smallest and the largest batch, else NTP's and both ends of intensity."""
    if len(points) <= MOST_LABELS:
        return list(points)
    sizes = [point.batch_size for point in points]
    found = [point for point in points if point.batch_size in (min(sizes), max(sizes)) and point.width.role != "commit+decide"]
    if len(found) <= MOST_LABELS:
        return found
    ordered = sorted(points, key=lambda point: point.intensity_flops_per_byte)
    ends = [ordered[0], ordered[-1]]
    return ends + [point for point in points if point.width.method == "ntp" and point not in ends][: MOST_LABELS - len(ends)]


def point_words(point: RooflinePoint) -> str:
    """``NTP``, ``decide, 16 tokens``."""
    return "NTP" if point.width.method == "ntp" else f"{point.width.role}, {point.width.query_tokens} tokens"


def roofline_sentence(points: Sequence[RooflinePoint], roofs: Sequence[Roof]) -> str:
    """What the passes of least and most intensity reach, and their side of the ridge."""
    ordered = sorted(points, key=lambda point: point.intensity_flops_per_byte)
    with_batch = len({point.batch_size for point in points}) > 1
    said = [
        f"{point_words(point)}{f' at batch {point.batch_size}' if with_batch else ''}: "
        f"{point.intensity_flops_per_byte:.3g} flops per byte, {_giga(point.attained_flops_per_s.value or 0.0)} GFLOP/s"
        for point in (ordered if len(ordered) < 3 else (ordered[0], ordered[-1]))
    ]
    best = next((rung for point in points for rung in point.predicted_flops_per_s), None)
    hollow = f" Filled: measured; hollow: what the {price_words(best)} roofline predicts for the same passes." if best else ""
    return f"{'; '.join(said)}.{''.join(_side(points, roof) for roof in roofs[:1])}{hollow}"


def _side(points: Sequence[RooflinePoint], roof: Roof) -> str:
    """The side of one rung's ridge; passes faster than its peak show that the ceilings are too low."""
    below = [point for point in points if point.intensity_flops_per_byte < roof.ridge_flops_per_byte]
    some = f"{len(below)} of {len(points)} kinds of pass lie"
    kinds = some if len(below) < len(points) else "every kind of pass lies"
    said = f" By the {roof.rung} ceilings {kinds} below the ridge ({roof.ridge_flops_per_byte:.3g}), where memory limits."
    above = [point for point in points if (point.attained_flops_per_s.value or 0.0) > roof.peak_flops_per_s]
    return f"{said} {len(above)} of them are faster than the peak: it was found too low." if above else said


def _giga(flops_per_s: float) -> str:
    return formatting.rate(flops_per_s / GIGA)


MOST_KINDS = 9
"""Up to so many kinds of pass are all named; of more only the telling ones are."""
MOST_FREQUENT = 3


def pass_time(cell: Cell, name: str, where: str = "") -> Drawing | None:
    """Forward time against query tokens per row, with the roofline's line and band; ``where`` ends the heading."""
    measured = clocked(cell)
    if not measured:
        return None
    with svg.new_axes() as (figure, axes):
        top = max(1e3 * (x or 0) for width in measured for x in (width.measured_s.high, width.measured_s.value))
        curves = [curve for curve in cell.curves if curve.rung in one_a_rung(other.rung for other in cell.curves)]
        top = max([top, *(1e3 * curve.points[-1][3] for curve in curves)])
        places = svg.spread([1e3 * curve.points[-1][2] for curve in curves], 0.14 * top)
        for curve, place in zip(curves, places, strict=True):
            _roofline(axes, curve, svg.RUNGS.get(rung_of(curve.rung), svg.MUTED), place)
        named = telling(cell)
        for width in measured:
            _pass_point(axes, width, top, width in named)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(axes.get_xlim()[0] / 1.25, axes.get_xlim()[1] * 2.1)
        axes.set_ylim(0, axes.get_ylim()[1] * 1.12)
        axes.set_xlabel("query tokens of each row in the pass")
        axes.set_ylabel("time of one forward pass (ms)")
        axes.grid(axis="y")
        caption = pass_time_sentence(cell) + " Points: median with quartiles; band: from fully overlapped to not overlapped."
        marks = ("measured", "predicted") if cell.curves else ("measured",)
        return svg.drawing(figure, name, f"Time of a pass{where}", caption, marks)


def _roofline(axes: Axes, curve: PassCurve, colour: str, label_ms: float) -> None:
    tokens = [point[0] for point in curve.points]
    low, expected, high = ([1e3 * point[side] for point in curve.points] for side in (1, 2, 3))
    axes.fill_between(tokens, low, high, color=colour, alpha=0.18, lw=0)
    axes.plot(tokens, expected, color=colour)
    name = f"{price_words(curve.rung)}\nroofline"
    axes.annotate(name, (tokens[-1], label_ms), (12, 0), textcoords="offset points", color=colour, va="center", fontsize=9)


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


def _pass_point(axes: Axes, width: PassWidth, top_ms: float, named: bool) -> None:
    value, low, high = (1e3 * (x or 0.0) for x in (width.measured_s.value, width.measured_s.low, width.measured_s.high))
    colour = svg.BLUE if width.method == "ntp" else svg.VERMILION
    axes.plot([width.query_tokens] * 2, [low, high], color=colour, lw=1.4)
    axes.plot([width.query_tokens], [value], "o" if width.role != "commit+decide" else "s", color=colour, ms=6)
    if not named:
        return
    text = f"{'NTP' if width.method == 'ntp' else width.role}\n{formatting.seconds(value / 1e3)}"
    predicted = next((1e3 * price.value for price in width.predicted_s.values() if price.value), 0.0)
    below = predicted > value and low > top_ms / 6  # away from the line, but not onto the axis
    at, offset, side = (low, -5, "top") if below else (high, 5, "bottom")
    axes.annotate(text, (width.query_tokens, at), (0, offset), textcoords="offset points", ha="center", va=side, fontsize=9)


def pass_time_sentence(cell: Cell) -> str:
    """The cost of a pass of each width in one-token passes, measured and predicted."""
    said = []
    named = telling(cell)
    for width in named:
        if width.method == "ntp" or width.cost.value is None:
            continue
        costs = {price: width.predicted_cost[price].value for price in one_a_rung(width.predicted_cost)}
        predicted = [f"{price_words(price)} roofline {formatting.ratio(cost)}" for price, cost in costs.items() if cost]
        beside = f" ({', '.join(predicted)})" if predicted else ""
        said.append(f"{width.query_tokens} query tokens ({width.role}) take {formatting.ratio(width.cost.value)}{beside}")
    if not said:
        return "Time of a forward pass by its query tokens; there are no two kinds of pass to compare."
    others = len(clocked(cell)) - len(named)
    beside = f" {others} other kinds of pass are in the table." if others else ""
    return f"Against a one-token NTP pass, {'; '.join(said)}.{beside}"
