"""The time of a pass against its query tokens, with the roofline through it.

Draws a cell of a Comparison; computes no statistic.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from harness import formatting
from harness.analysis.pass_values import PassCurve, PassWidth, one_a_rung, price_words, rung_of
from harness.analysis.results import Cell
from harness.reporting import svg
from harness.reporting.drawing import Drawing

MOST_KINDS = 9
"""Of passes that all bear their names; of more the telling ones do."""
MOST_FREQUENT = 3


def pass_time(cell: Cell, name: str, where: str = "") -> Drawing | None:
    """Forward time against query tokens per row, with the roofline's line and band through it; ``where`` ends its heading."""
    measured = clocked(cell)
    if not measured:
        return None
    with svg.styled():
        figure, axes = svg.new_axes()
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
        image = svg.to_inline(figure, name, caption)
    marks = ("measured", "predicted") if cell.curves else ("measured",)
    return Drawing(heading=f"Time of a pass{where}", image=image, caption=caption, marks=marks)


def _roofline(axes: Axes, curve: PassCurve, colour: str, label_ms: float) -> None:
    tokens = [point[0] for point in curve.points]
    low, expected, high = ([1e3 * point[side] for point in curve.points] for side in (1, 2, 3))
    axes.fill_between(tokens, low, high, color=colour, alpha=0.18, lw=0)
    axes.plot(tokens, expected, color=colour)
    end = (tokens[-1], label_ms)
    name = f"{price_words(curve.rung)}\nroofline"
    axes.annotate(name, end, (12, 0), textcoords="offset points", color=colour, va="center", fontsize=9)


def clocked(cell: Cell) -> list[PassWidth]:
    """The kinds of pass that have a time."""
    return [width for width in cell.pass_widths if width.measured_s.value is not None]


def telling(cell: Cell) -> list[PassWidth]:
    """All of few kinds of pass; of many NTP's, and of the model's other ones the most frequent and the widest, a width once."""
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
    """What a pass of each width costs in one-token passes, measured and predicted."""
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
