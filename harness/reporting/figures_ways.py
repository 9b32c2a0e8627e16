"""The figure of a part with very many arms: every way of decoding at its best setting, the fastest on top.

Draws Ways; computes no statistic.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from harness import formatting
from harness.analysis.accuracy import MARGIN
from harness.analysis.best_settings import Way
from harness.reporting import svg
from harness.reporting.drawing import MOST_ARMS, Drawing

MOST_WAYS = 30
ROOM_FOR_WORDS = 1.75
"""Of the width of the longest bar: the width of the figure."""


def ways_compared(ways: Sequence[Way], timed: bool, name: str, where: str = "") -> Drawing | None:
    """A bar per way; ``where`` ends the heading."""
    if not ways:
        return None
    shown = ways[:MOST_WAYS]
    with svg.styled():
        figure, axes = svg.new_axes(height_in=0.8 + 0.36 * len(shown))
        axes.axvline(1, color=svg.FAINT, lw=0.8)
        for row, way in enumerate(shown):
            _bar(axes, way, row)
        axes.set_ylim(len(shown) - 0.4, -0.85)
        axes.set_xlim(0, axes.get_xlim()[1] * ROOM_FOR_WORDS)
        axes.set_xlabel("wall-clock speedup over NTP (x)" if timed else "NFE speedup: decode tokens per forward pass (x)")
        svg.rows_only(axes)
        caption = _caption(ways, timed)
        image = svg.to_inline(figure, name, caption)
    real = "measured" if timed else "counted"
    marks = tuple(dict.fromkeys("replayed" if way.arm.replayed else real for way in shown))
    return Drawing(heading=f"Every way at its best setting{where}", image=image, caption=caption, marks=marks)


def _bar(axes: Axes, way: Way, row: int) -> None:
    """Filled where it keeps NTP's accuracy, pale where no answer was checked, green where it is lossless; its name above it."""
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


def _caption(ways: Sequence[Way], timed: bool) -> str:
    """Who leads, with and without loss, and how to read the bars."""
    left_out = f" {len(ways) - MOST_WAYS} slower ones are in the table only." if len(ways) > MOST_WAYS else ""
    return (
        f"{_leaders(ways, timed)} Of {sum(way.settings for way in ways)} arms besides NTP, each way's fastest setting that was "
        f"seen to lose at most {100 * MARGIN:g} point of accuracy to NTP. Hollow: none was, so the most accurate one; pale: no "
        "answer was checked. Green: lossless against NTP by construction. Fed: query tokens of the target. Chosen on the very "
        f"decodes, which flatters them a little; lines at the ends are 95 % intervals.{left_out} "
        f"Other drawings of single arms show NTP and the first {MOST_ARMS - 1} of these ways."
    )


def _leaders(ways: Sequence[Way], timed: bool) -> str:
    """The fastest of both kinds that keep NTP's accuracy; where none does, the fastest of all."""

    def said(way: Way) -> str:
        return f"{way.arm.label}, {formatting.ratio(way.speed.value or 0.0)} {'by the clock' if timed else 'fewer passes'}"

    lossless = next((way for way in ways if way.lossless and way.keeps is not False), None)
    lossy = next((way for way in ways if not way.lossless and way.keeps), None)
    if lossless is not None and lossy is not None:
        return f"Fastest lossless against NTP: {said(lossless)}; of the others that keep NTP's accuracy: {said(lossy)}."
    if lossless is not None:
        return f"Fastest lossless against NTP: {said(lossless)}."
    if lossy is not None:
        return f"Fastest that keeps NTP's accuracy: {said(lossy)}."
    checked = any(way.keeps is not None for way in ways)
    why = "No way keeps NTP's accuracy" if checked else "No answer was checked"
    return f"{why}; fastest: {said(ways[0])}."
