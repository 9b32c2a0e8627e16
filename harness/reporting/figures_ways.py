"""The figure of a part with very many arms: every way of decoding at its best setting, the fastest on top.

Draws Ways; computes no statistic.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from harness import units
from harness.compare_accuracy import MARGIN
from harness.compare_ways import Way
from harness.reporting import svg
from harness.reporting.drawing import Drawing

MOST_WAYS = 30
ROOM_FOR_WORDS = 1.75
"""Of the width of the longest bar: the width of the figure."""


def ways_compared(ways: Sequence[Way], arms: int, timed: bool, name: str, where: str = "") -> Drawing | None:
    """A bar per way; ``arms`` is how many it was chosen from, ``where`` ends the heading."""
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
        caption = _caption(ways, arms, timed)
        image = svg.to_inline(figure, name, caption)
    marks = ("replayed",) if any(way.arm.replayed for way in shown) else ("measured",) if timed else ("counted",)
    return Drawing(heading=f"Every way at its best setting{where}", image=image, caption=caption, marks=marks)


def _bar(axes: Axes, way: Way, row: int) -> None:
    """Filled where it keeps NTP's accuracy, green where it writes NTP's very tokens by construction; its words above it."""
    colour = svg.GREEN if way.lossless else svg.VERMILION
    axes.barh(row, way.speed.value or 0.0, 0.3, facecolor="none" if way.keeps is False else colour, edgecolor=colour, lw=1.2)
    if way.speed.low is not None and way.speed.high is not None:
        axes.plot([way.speed.low, way.speed.high], [row, row], color=svg.INK, lw=1.2)
    axes.annotate(way.arm.label, (0, row - 0.17), (2, 1), textcoords="offset points", va="bottom", fontsize=9)
    end = max(way.speed.value or 0.0, way.speed.high or 0.0)
    axes.annotate(_words(way), (end, row), (5, 0), textcoords="offset points", va="center", fontsize=9)


def _words(way: Way) -> str:
    said = [units.ratio(way.speed.value or 0.0)]
    if way.arm.accuracy.value is not None:
        said.append(f"{units.percent(way.arm.accuracy.value)} right")
    if way.query_tokens_per_token is not None:
        said.append(f"{units.figure(way.query_tokens_per_token, 3)} fed a token")
    return ", ".join(said)


def _caption(ways: Sequence[Way], arms: int, timed: bool) -> str:
    """Who leads with and without loss, and how to read the bars."""
    unit = "by the clock" if timed else "fewer passes"
    leaders = {
        " lossless against NTP": next((way for way in ways if way.lossless and way.keeps is not False), None),
        " of the others that keep NTP's accuracy": next((way for way in ways if not way.lossless and way.keeps), None),
    }
    found = {who: way for who, way in leaders.items() if way is not None} or {"": ways[0]}
    said = [f"{who}: {way.arm.label}, {units.ratio(way.speed.value or 0.0)} {unit}" for who, way in found.items()]
    left_out = f" {len(ways) - MOST_WAYS} slower ones are in the table only." if len(ways) > MOST_WAYS else ""
    return (
        f"Fastest{';'.join(said)}. Of {arms} arms, each way's fastest setting that loses at most {100 * MARGIN:g} point of "
        "accuracy to NTP; hollow: none does, so the most accurate one. Green: equal to NTP by construction. Fed: query tokens "
        "of the target. Chosen on the very decodes, which flatters them a little; lines at the ends are 95 % intervals."
        f"{left_out}"
    )
