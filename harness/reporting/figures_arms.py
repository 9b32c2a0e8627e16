"""Figures that compare arms: speed against accuracy, tokens per pass, and every way of decoding at its best setting.

They draw a Cell or Ways and compute no statistic. Every function returns None where there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from harness import formatting
from harness.analysis.evidence.best_settings import Way, name_of, telling_arms
from harness.analysis.figures.accuracy import MARGIN
from harness.analysis.results import ArmResult, Cell
from harness.formatting import one_line
from harness.reporting import svg
from harness.reporting.cells import between
from harness.reporting.sentences import lossless
from harness.reporting.svg import MOST_ARMS, Drawing
from harness.stats.quantity import Quantity

Speed = Callable[[ArmResult], Quantity]
SPEED_AXIS = {True: "wall speedup over NTP (x)", False: "NFE speedup: decode tokens per pass (x)"}
"""By whether the part was timed."""


def speed_accuracy(cell: Cell) -> Drawing | None:
    """Accuracy against wall speedup (untimed parts: NFE speedup), a point per arm."""

    def speed(arm: ArmResult) -> Quantity:
        return arm.wall_speedup if cell.timed else arm.passes_saved

    few = telling_arms(cell, MOST_ARMS)
    arms = [arm for arm in few if arm.accuracy.value is not None and speed(arm).value is not None]
    sbd = sorted((arm for arm in arms if not arm.is_ntp), key=lambda arm: _value(speed(arm)))
    ntp = [arm for arm in arms if arm.is_ntp]
    if not sbd:
        return None
    with svg.new_axes(height_in=3.2) as (figure, axes):
        axes.axvline(1, color=svg.MUTED, lw=0.8)
        for kind in dict.fromkeys((name_of(arm.label), arm.block_size) for arm in sbd):
            line = [arm for arm in sbd if (name_of(arm.label), arm.block_size) == kind]
            colour = svg.GREEN if line[0].lossless else svg.VERMILION
            ends = [_value(speed(arm)) for arm in line], [100 * _value(arm.accuracy) for arm in line]
            axes.plot(*ends, color=colour, lw=0.9, ls=":")
            for arm in line:
                _point(axes, arm, speed(arm), colour)
        for arm in ntp:
            _point(axes, arm, speed(arm), svg.BLUE)
        axes.set_xlabel(SPEED_AXIS[cell.timed])
        axes.set_ylabel("accuracy (%)")
        axes.set_xlim(min(0.8, axes.get_xlim()[0]), axes.get_xlim()[1] * 1.12)
        axes.set_ylim(axes.get_ylim()[0], axes.get_ylim()[1] + 0.06 * (axes.get_ylim()[1] - axes.get_ylim()[0]))
        axes.grid(axis="y")
        first = [*ntp, sbd[-1], sbd[0]]  # the caption is about these
        if len(arms) <= MOST_NAMED:
            first += [arm for arm in sbd[1:-1] if arm not in first]
        named = {arm.label: (_value(speed(arm)), 100 * _value(arm.accuracy)) for arm in first}
        svg.name_points(axes, [svg.Named(text=label, at=at) for label, at in named.items()])
        caption = _caption(sbd, ntp, speed, cell.timed)
        return svg.drawing(figure, "Speed against accuracy", caption, ("measured",))


def _point(axes: Axes, arm: ArmResult, x: Quantity, colour: str) -> None:
    """A point with the 95 % intervals of both its values."""
    centre, height = _value(x), 100 * _value(arm.accuracy)
    named, right = ", ".join(filter(None, (arm.label, lossless(arm)))), _with_ends(arm.accuracy, formatting.percent)
    svg.dot(axes, centre, height, "o", colour, f"{named}: {_with_ends(x, formatting.ratio)}, {right} of the answers right")
    svg.interval(axes, x, height, colour)
    svg.interval(axes, arm.accuracy, centre, colour, unit=0.01, upright=True)


def _with_ends(found: Quantity, write: Callable[[float], str]) -> str:
    """``3.16x (2.90x – 3.45x)``."""
    ends = between(found, write)
    return write(_value(found)) + (f" ({ends})" if ends else "")


def _caption(sbd: Sequence[ArmResult], ntp: Sequence[ArmResult], speed: Speed, timed: bool) -> str:
    """What the slowest and the fastest SBD arm reach."""
    ends = [sbd[0]] if len(sbd) == 1 else [sbd[0], sbd[-1]]
    unit = "by the clock" if timed else "fewer passes"
    said = [
        f"{arm.label}: {formatting.ratio(_value(speed(arm)))} {unit}, {formatting.percent(_value(arm.accuracy))} right"
        for arm in ends
    ]
    reference = f" NTP: {formatting.percent(_value(ntp[0].accuracy))} right." if ntp else ""
    green = " Green: lossless in exact arithmetic." if any(arm.lossless for arm in sbd) else ""
    return f"{'; '.join(said)}.{reference}{green} Lines: 95 % intervals."


MOST_NAMED = 7
"""Arms that bear names in the drawing of accuracy; of more only NTP, the slowest and the fastest, the others tell theirs."""
MOST_STRIPS = 5
"""Arms in the drawing of tokens per pass; it says how many more there are."""


def tokens_per_pass(cell: Cell) -> Drawing | None:
    """Share of row-passes by the tokens they made final, one strip per arm, those with the fewest passes first."""
    every = [arm for arm in cell.arms if not arm.is_ntp and any(arm.final_tokens_histogram)]
    if not every:
        return None
    arms = sorted(every, key=lambda arm: -_value(arm.nfe_speedup))[:MOST_STRIPS]
    widest = max(len(arm.final_tokens_histogram) for arm in arms)
    with svg.new_axes(height_in=0.6 + 0.62 * len(arms)) as (figure, axes):
        for i, arm in enumerate(reversed(arms)):
            _strip(axes, arm, i)
        axes.set_xlim(-0.6, widest - 0.4)
        axes.set_ylim(-0.05, len(arms))
        axes.set_xlabel("output tokens made final by one pass of one row")
        axes.set_xticks(range(0, widest, 1 + widest // 12))
        svg.name_rows(axes, ())
        caption = _tokens_caption(arms[0], len(every) - len(arms))
        marks = ("replayed",) if any(arm.replayed for arm in arms) else ("measured",)
        return svg.drawing(figure, "Tokens per pass", caption, marks)


def _strip(axes: Axes, arm: ArmResult, row: int) -> None:
    """Bars to their own scale under the arm's name."""
    counts = arm.final_tokens_histogram
    bars = axes.bar(range(len(counts)), [0.6 * count / max(counts) for count in counts], 0.8, bottom=row, color=svg.VERMILION)
    for tokens, (bar, count) in enumerate(zip(bars, counts, strict=True)):
        if count:
            share = formatting.percent(count / sum(counts))
            svg.tell(bar, f"{arm.label}: {share} of the passes make {tokens} token{'s' if tokens != 1 else ''} final")
    axes.axhline(row, color=svg.MUTED, lw=0.6)
    svg.name_above(axes, row + 0.62, f"{_value(arm.nfe_speedup):.2f} on average: {arm.label}", up=0.0)


def _tokens_caption(best: ArmResult, others: int) -> str:
    counts = best.final_tokens_histogram
    alone = counts[1] / sum(counts) if len(counts) > 1 else 0.0
    more = f" {others} other arms need more passes." if others else ""
    return (
        f"{formatting.percent(alone, 0)} of the passes of {best.label} make a single token final, as every NTP pass does. "
        f"Each strip has its own scale.{more}"
    )


def _value(quantity: Quantity) -> float:
    """The value of a quantity; 0 for a label that is drawn without one."""
    return quantity.value if quantity.value is not None else 0.0


MOST_WAYS, LONGEST_WAY = 12, 44
ROOM_FOR_WORDS = 1.65
"""Width of the figure, in widths of the longest bar."""


def ways_compared(ways: Sequence[Way], timed: bool) -> Drawing | None:
    """A bar per way."""
    if not ways:
        return None
    shown = ways[:MOST_WAYS]
    with svg.new_axes(height_in=0.8 + 0.36 * len(shown)) as (figure, axes):
        axes.axvline(1, color=svg.FAINT, lw=0.8)
        for row, way in enumerate(shown):
            _bar(axes, way, row)
        axes.set_ylim(len(shown) - 0.4, -0.85)
        axes.set_xlim(0, axes.get_xlim()[1] * ROOM_FOR_WORDS)
        axes.set_xlabel(SPEED_AXIS[timed])
        svg.name_rows(axes, ())
        real = "measured" if timed else "counted"
        marks = tuple(dict.fromkeys("replayed" if way.arm.replayed else real for way in shown))
        caption = _ways_caption(ways, timed)
        return svg.drawing(figure, "Every way at its best setting", caption, marks, f"{caption} {_every(shown)}")


def _bar(axes: Axes, way: Way, row: int) -> None:
    """Filled where it keeps NTP's accuracy, pale where no answer was checked, green where it is lossless."""
    colour = svg.GREEN if way.lossless else svg.VERMILION
    (outline,) = axes.barh(row, way.speed.value or 0.0, 0.3, facecolor="none", edgecolor=colour, lw=1.2)
    svg.tell(outline, _said(way))
    if way.keeps is not False:
        axes.barh(row, way.speed.value or 0.0, 0.3, color=colour, alpha=1.0 if way.keeps else 0.3)
    svg.interval(axes, way.speed, row)
    svg.name_above(axes, row, one_line(way.arm.label, LONGEST_WAY))
    end = max(way.speed.value or 0.0, way.speed.high or 0.0)
    svg.beside(axes, end, row, _words(way))


def _words(way: Way) -> str:
    right = way.arm.accuracy.value
    return formatting.ratio(way.speed.value or 0.0) + (f", {formatting.percent(right)} right" if right is not None else "")


def _every(ways: Sequence[Way]) -> str:
    return " ".join(f"{_said(way)}." for way in ways)


def _said(way: Way) -> str:
    """All that a bar stands for."""
    right, fed = way.arm.accuracy, way.arm.query_tokens_per_token
    said = f"{', '.join(filter(None, (one_line(way.arm.label, LONGEST_WAY), lossless(way.arm))))}: "
    said += _with_ends(way.speed, formatting.ratio)
    said += f", {_with_ends(right, formatting.percent)} of the answers right" if right.value is not None else ""
    return said + (f", {formatting.figure(fed, 3)} query tokens fed for a token" if fed is not None else "")


def _ways_caption(ways: Sequence[Way], timed: bool) -> str:
    """The fastest ways, with and without loss, and how to read the bars."""
    left_out = f" {len(ways) - MOST_WAYS} slower ways are in the table." if len(ways) > MOST_WAYS else ""
    return (
        f"{_leaders(ways, timed)} Each way's fastest setting that lost at most {100 * MARGIN:g} point of accuracy, of "
        f"{sum(way.settings for way in ways)} arms, chosen on these decodes. Green: lossless in exact arithmetic; "
        f"hollow: every setting lost more; pale: its accuracy is not known.{left_out}"
    )


def _leaders(ways: Sequence[Way], timed: bool) -> str:
    """The fastest way of each kind that keeps NTP's accuracy; without one, the fastest of all."""

    def said(way: Way) -> str:
        return f"{way.arm.label}, {formatting.ratio(way.speed.value or 0.0)} {'by the clock' if timed else 'fewer passes'}"

    exact = next((way for way in ways if way.lossless and way.keeps is not False), None)
    lossy = next((way for way in ways if not way.lossless and way.keeps), None)
    if exact is not None:
        others = f"; of the others that keep NTP's accuracy: {said(lossy)}" if lossy is not None else ""
        return f"Fastest without loss in exact arithmetic: {said(exact)}{others}."
    if lossy is not None:
        return f"Fastest that keeps NTP's accuracy: {said(lossy)}."
    checked = any(way.keeps is not None for way in ways)
    why = "No way keeps NTP's accuracy" if checked else "No accuracy is known"
    return f"{why}; fastest: {said(ways[0])}."
