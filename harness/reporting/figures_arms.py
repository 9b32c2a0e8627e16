"""Figures that compare arms: speed against accuracy, tokens per pass, and every way of decoding at its best setting.

They draw a Cell or Ways and compute no statistic. Every function returns None where there is nothing to draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from harness import formatting
from harness.analysis.accuracy import MARGIN
from harness.analysis.best_settings import Way
from harness.analysis.results import ArmResult, Cell
from harness.analysis.stats.quantity import Quantity
from harness.reporting import svg
from harness.reporting.svg import MOST_ARMS, Drawing

Speed = Callable[[ArmResult], Quantity]
CROWDED = (0.25, 0.08)
"""Shares of the axes; of points that are closer, every other label goes below."""


def speed_accuracy(cell: Cell, name: str, where: str = "") -> Drawing | None:
    """Accuracy against wall speedup (untimed parts: NFE speedup), a point per arm; ``where`` ends the heading."""

    def speed(arm: ArmResult) -> Quantity:
        return arm.wall_speedup if cell.timed else arm.nfe_speedup

    arms = [arm for arm in cell.arms if arm.accuracy.value is not None and speed(arm).value is not None]
    sbd = sorted((arm for arm in arms if not arm.is_ntp), key=lambda arm: _value(speed(arm)))
    ntp = [arm for arm in arms if arm.is_ntp]
    if not sbd:
        return None
    with svg.new_axes() as (figure, axes):
        axes.axvline(1, color=svg.MUTED, lw=0.8)
        for colour, size in zip(svg.SERIES, dict.fromkeys(arm.block_size for arm in sbd), strict=False):
            line = [arm for arm in sbd if arm.block_size == size]
            ends = [_value(speed(arm)) for arm in line], [100 * _value(arm.accuracy) for arm in line]
            axes.plot(*ends, color=colour, lw=0.9, ls=":")
            for arm in line:
                _point(axes, arm, speed(arm), colour)
        for arm in ntp:
            _point(axes, arm, speed(arm), svg.BLUE)
        _name_points(axes, [*ntp, *sbd], speed)
        axes.set_xlabel("wall-clock speedup over NTP (x)" if cell.timed else "NFE speedup: decode tokens per forward pass (x)")
        axes.set_ylabel("accuracy (%)")
        axes.set_xlim(min(0.8, axes.get_xlim()[0]), axes.get_xlim()[1] * 1.12)
        axes.set_ylim(axes.get_ylim()[0], axes.get_ylim()[1] + 0.06 * (axes.get_ylim()[1] - axes.get_ylim()[0]))
        axes.grid(axis="y")
        caption = _caption(sbd, ntp, speed, cell.timed)
        return svg.drawing(figure, name, f"Speed against accuracy{where}", caption, ("measured",))


def _point(axes: Axes, arm: ArmResult, x: Quantity, colour: str) -> None:
    """A point with the 95 % intervals of both its values."""
    centre, height = _value(x), 100 * _value(arm.accuracy)
    axes.plot([centre], [height], "o", color=colour, ms=6)
    if x.low is not None and x.high is not None:
        axes.plot([x.low, x.high], [height, height], color=colour, lw=1.2)
    if arm.accuracy.low is not None and arm.accuracy.high is not None:
        axes.plot([centre, centre], [100 * arm.accuracy.low, 100 * arm.accuracy.high], color=colour, lw=1.2)


def _name_points(axes: Axes, arms: Sequence[ArmResult], speed: Speed) -> None:
    """Labels above the points, or below where the label of the point to the left is in that place."""
    width, height = (high - low for low, high in (axes.get_xlim(), axes.get_ylim()))
    before, below = (-math.inf, 0.0), True
    for arm in sorted(arms, key=lambda arm: _value(speed(arm))):
        at = (_value(speed(arm)), 100 * _value(arm.accuracy))
        crowded = at[0] - before[0] < CROWDED[0] * width and abs(at[1] - before[1]) < CROWDED[1] * height
        below = crowded and not below
        right = at[0] > axes.get_xlim()[0] + 0.75 * width
        offset = (-7 if right else 7, -13 if below else 6)
        axes.annotate(arm.label, at, offset, textcoords="offset points", ha="right" if right else "left", fontsize=9)
        before = at


def _caption(sbd: Sequence[ArmResult], ntp: Sequence[ArmResult], speed: Speed, timed: bool) -> str:
    """What the slowest and the fastest SBD arm reach."""
    ends = [sbd[0]] if len(sbd) == 1 else [sbd[0], sbd[-1]]
    unit = "times as fast as NTP by the clock" if timed else "times fewer passes"
    said = [f"{arm.label}: {_value(speed(arm)):.2f} {unit}, {formatting.percent(_value(arm.accuracy))} correct" for arm in ends]
    reference = f" NTP: {formatting.percent(_value(ntp[0].accuracy))} correct." if ntp else ""
    return f"{'; '.join(said)}.{reference} Whiskers are 95 % intervals."


def tokens_per_pass(cell: Cell, name: str) -> Drawing | None:
    """Share of row-passes by the tokens they made final, one strip per arm."""
    arms = [arm for arm in cell.arms if not arm.is_ntp and any(arm.final_tokens_histogram)]
    if not arms:
        return None
    widest = max(len(arm.final_tokens_histogram) for arm in arms)
    with svg.new_axes(height_in=0.9 + 0.62 * len(arms)) as (figure, axes):
        for i, arm in enumerate(reversed(arms)):
            _strip(axes, arm, i, widest)
        axes.set_xlim(-0.6, widest * 1.28 + 1)
        axes.set_ylim(-0.05, len(arms))
        axes.set_xlabel("output tokens made final by one pass of one row")
        axes.set_xticks(range(0, widest, 2 if widest > 12 else 1))
        svg.name_rows(axes, ())
        caption = _tokens_caption(max(arms, key=lambda arm: _value(arm.nfe_speedup)))
        marks = ("replayed",) if any(arm.replayed for arm in arms) else ("measured",)
        return svg.drawing(figure, name, "Tokens per pass", caption, marks)


def _strip(axes: Axes, arm: ArmResult, row: int, widest: int) -> None:
    counts = arm.final_tokens_histogram
    axes.bar(range(len(counts)), [0.8 * count / max(counts) for count in counts], 0.8, bottom=row, color=svg.VERMILION)
    axes.axhline(row, color=svg.MUTED, lw=0.6)
    label = f"{arm.label}\nmean {_value(arm.nfe_speedup):.2f}"
    axes.text(widest + 0.2, row + 0.08, label, va="bottom", fontsize=9)


def _tokens_caption(best: ArmResult) -> str:
    counts = best.final_tokens_histogram
    alone = counts[1] / sum(counts) if len(counts) > 1 else 0.0
    return (
        f"A pass of {best.label} makes {_value(best.nfe_speedup):.2f} output tokens final on average; "
        f"{formatting.percent(alone, 0)} of its passes yield a single one. An NTP pass yields exactly one. "
        "Each strip is scaled to its tallest bar."
    )


def _value(quantity: Quantity) -> float:
    """The value of a quantity; 0 for a label that is drawn without one."""
    return quantity.value if quantity.value is not None else 0.0


MOST_WAYS = 30
ROOM_FOR_WORDS = 1.75
"""Width of the figure, in widths of the longest bar."""


def ways_compared(ways: Sequence[Way], timed: bool, name: str, where: str = "") -> Drawing | None:
    """A bar per way; ``where`` ends the heading."""
    if not ways:
        return None
    shown = ways[:MOST_WAYS]
    with svg.new_axes(height_in=0.8 + 0.36 * len(shown)) as (figure, axes):
        axes.axvline(1, color=svg.FAINT, lw=0.8)
        for row, way in enumerate(shown):
            _bar(axes, way, row)
        axes.set_ylim(len(shown) - 0.4, -0.85)
        axes.set_xlim(0, axes.get_xlim()[1] * ROOM_FOR_WORDS)
        axes.set_xlabel("wall-clock speedup over NTP (x)" if timed else "NFE speedup: decode tokens per forward pass (x)")
        svg.name_rows(axes, ())
        real = "measured" if timed else "counted"
        marks = tuple(dict.fromkeys("replayed" if way.arm.replayed else real for way in shown))
        return svg.drawing(figure, name, f"Every way at its best setting{where}", _ways_caption(ways, timed), marks)


def _bar(axes: Axes, way: Way, row: int) -> None:
    """Filled where it keeps NTP's accuracy, pale where no answer was checked, green where it is lossless."""
    colour = svg.GREEN if way.lossless else svg.VERMILION
    axes.barh(row, way.speed.value or 0.0, 0.3, facecolor="none", edgecolor=colour, lw=1.2)
    if way.keeps is not False:
        axes.barh(row, way.speed.value or 0.0, 0.3, color=colour, alpha=1.0 if way.keeps else 0.3)
    if way.speed.low is not None and way.speed.high is not None:
        axes.plot([way.speed.low, way.speed.high], [row, row], color=svg.INK, lw=1.2)
    axes.annotate(way.arm.label, (0, row - 0.17), (2, 1), textcoords="offset points", va="bottom", fontsize=9)
    end = max(way.speed.value or 0.0, way.speed.high or 0.0)
    axes.annotate(_words(way), (end, row), (5, 0), textcoords="offset points", va="center", fontsize=9)


def _words(way: Way) -> str:
    said = [formatting.ratio(way.speed.value or 0.0)]
    if way.arm.accuracy.value is not None:
        said.append(f"{formatting.percent(way.arm.accuracy.value)} right")
    if way.arm.query_tokens_per_token is not None:
        said.append(f"{formatting.figure(way.arm.query_tokens_per_token, 3)} fed a token")
    return ", ".join(said)


def _ways_caption(ways: Sequence[Way], timed: bool) -> str:
    """The fastest ways, with and without loss, and how to read the bars."""
    left_out = f" {len(ways) - MOST_WAYS} slower ones are in the table only." if len(ways) > MOST_WAYS else ""
    return (
        f"{_leaders(ways, timed)} Of {sum(way.settings for way in ways)} arms besides NTP, each way's fastest setting that was "
        f"seen to lose at most {100 * MARGIN:g} point of accuracy to NTP. Hollow: none was, so the most accurate one; pale: no "
        "answer was checked. Green: lossless against NTP by construction. Fed: query tokens of the target. Chosen on the very "
        f"decodes, which flatters them a little; lines at the ends are 95 % intervals.{left_out} "
        f"Other drawings of single arms show NTP and the first {MOST_ARMS - 1} of these ways."
    )


def _leaders(ways: Sequence[Way], timed: bool) -> str:
    """The fastest way of each kind that keeps NTP's accuracy; without one, the fastest of all."""

    def said(way: Way) -> str:
        return f"{way.arm.label}, {formatting.ratio(way.speed.value or 0.0)} {'by the clock' if timed else 'fewer passes'}"

    lossless = next((way for way in ways if way.lossless and way.keeps is not False), None)
    lossy = next((way for way in ways if not way.lossless and way.keeps), None)
    if lossless is not None:
        others = f"; of the others that keep NTP's accuracy: {said(lossy)}" if lossy is not None else ""
        return f"Fastest lossless against NTP: {said(lossless)}{others}."
    if lossy is not None:
        return f"Fastest that keeps NTP's accuracy: {said(lossy)}."
    checked = any(way.keeps is not None for way in ways)
    why = "No way keeps NTP's accuracy" if checked else "No answer was checked"
    return f"{why}; fastest: {said(ways[0])}."
