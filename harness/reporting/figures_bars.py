"""Figures of bars, a row for each arm: bandwidth against its ceiling, energy per token, every way at its best setting.

They draw values of a Comparison or Ways and compute no statistic. Every function returns None where there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness import formatting
from harness.analysis.evidence.best_settings import Way
from harness.analysis.evidence.explain import Bandwidth
from harness.analysis.figures.accuracy import MARGIN
from harness.analysis.results import ArmResult, Cell
from harness.formatting import one_line
from harness.frozen import frozen
from harness.reporting.cells import with_ends
from harness.reporting.figures_arms import SPEED_AXIS
from harness.reporting.sentences import lossless
from harness.reporting.svg import (
    BLUE,
    GREEN,
    INK,
    MOST_ARMS,
    PURPLE,
    VERMILION,
    Drawing,
    beside,
    drawing,
    interval,
    name_above,
    name_lines,
    name_rows,
    new_axes,
    tell,
)
from harness.stats.quantity import Quantity

ENERGY = "joules_per_token"


@frozen
class Bar:
    """One bar: its length ``of`` a quantity, the text beside it, and what it tells on hover.

    ``solid``  how much of the colour fills it; 0 is hollow
    ``unit``   the quantity is divided by it
    """

    of: Quantity
    text: str
    told: str
    colour: str
    solid: float = 1.0
    unit: float = 1.0


def _drawing(
    heading: str,
    rows: Sequence[tuple[str, Sequence[Bar]]],
    axis: str,
    caption: str,
    marks: tuple[str, ...],
    aloud: str = "",
    lines: Sequence[tuple[float, str]] = (),
    room: float = 1.3,
) -> Drawing:
    """A row for each name, with its bars and their intervals below it.

    ``lines``  places of the axis with an upright line each, and its name
    ``room``   of the axis, in widths of the longest bar
    """
    with new_axes(height_in=0.85 + 0.19 * sum(1 + len(bars) for _, bars in rows)) as (figure, axes):
        for place, name in lines:
            axes.axvline(place, color=PURPLE, lw=1.2, label=name)
        for row, (name, bars) in enumerate(rows):
            name_above(axes, row, name, up=0.08)
            for number, bar in enumerate(bars):
                place = row + 0.2 + 0.3 * (number - (len(bars) - 1) / 2)
                value, high = ((end or 0.0) / bar.unit for end in (bar.of.value, bar.of.high))
                if bar.solid:
                    axes.barh(place, value, 0.24, color=bar.colour, alpha=bar.solid)
                (outline,) = axes.barh(place, value, 0.24, facecolor="none", edgecolor=bar.colour, lw=1.2)
                tell(outline, bar.told)
                interval(axes, bar.of, place, lw=1.4, unit=bar.unit)
                beside(axes, max(value, high), place, bar.text)
        if lines:
            name_lines(axes)
        name_rows(axes, ())
        axes.set(xlim=(0, axes.get_xlim()[1] * room), ylim=(len(rows) - 0.4, -0.55), xlabel=axis)
        return drawing(figure, heading, caption, marks, aloud)


def _names(arms: Sequence[tuple[ArmResult, int]]) -> list[str]:
    """Of arms, with their batch size where these differ."""
    several = len({size for _, size in arms}) > 1
    return [f"{arm.label}, batch {size}" if several else arm.label for arm, size in arms]


def bandwidth_bars(bandwidths: Sequence[Bandwidth]) -> Drawing | None:
    """Modelled and counted bytes per second of every arm, with the read ceiling as a line where one may be claimed."""
    shown = bandwidths[:MOST_ARMS]
    if not shown:
        return None
    names = _names([(one.arm, one.batch_size) for one in shown])
    ceilings = {one.ceiling.value: one.ceiling.method for one in shown if one.ceiling.value is not None}
    counted = any(one.measured.value is not None for one in shown)
    return _drawing(
        "Bandwidth",
        list(zip(names, map(_moved, shown), strict=True)),
        "bytes moved by the forwards (GB/s)",
        _bandwidth_sentence(shown),
        ("modelled", "measured") if counted else ("modelled",),
        lines=[(at / 1e9, f"{method}, {formatting.gigabytes(at)} GB/s") for at, method in ceilings.items()],
    )


def _moved(one: Bandwidth) -> list[Bar]:
    """Modelled, hollow; counted, where a counter was read."""
    modelled = _rate(one.arm, one.modelled, "modelled", _colour(one.arm), solid=0.0)
    return [modelled] if one.measured.value is None else [modelled, _rate(one.arm, one.measured, "counted", INK)]


def _rate(arm: ArmResult, rate: Quantity, word: str, colour: str, solid: float = 1.0) -> Bar:
    text = formatting.gigabytes(rate.value or 0.0)
    return Bar(of=rate, text=f"{text} {word}", told=f"{arm.label}: {text} GB/s {word}", colour=colour, solid=solid, unit=1e9)


def _colour(arm: ArmResult) -> str:
    return BLUE if arm.is_ntp else VERMILION


def _bandwidth_sentence(shown: Sequence[Bandwidth]) -> str:
    said = []
    for one in (shown[0], shown[-1]) if len(shown) > 1 else shown:
        share = one.arm.ceiling_share
        of = f", {formatting.percent(share.value, 0)} of the {share.method}" if share.value is not None else ""
        said.append(f"{one.arm.label} moves {formatting.gigabytes(one.modelled.value or 0.0)} GB/s as modelled{of}")
    missing = [one.ceiling.reason for one in shown if one.ceiling.value is None and one.ceiling.reason]
    why = f" No ceiling is drawn: {missing[0].rstrip('.')}." if len(missing) == len(shown) else ""
    return f"{'; '.join(said)}.{why}"


def energy_bars(cells: Sequence[Cell]) -> Drawing | None:
    """Joules per output token of every arm that was metered, with its interval."""
    metered = [(arm, cell.batch_size) for cell in cells for arm in cell.arms if ENERGY in arm.figures]
    metered = [one for one in metered if one[0].figures[ENERGY].value is not None][:MOST_ARMS]
    if not metered:
        return None
    bars = []
    for arm, _ in metered:
        joules = arm.figures[ENERGY]
        text = formatting.rate(joules.value or 0.0)
        bars.append(Bar(of=joules, text=text, told=f"{arm.label}: {text} J per output token", colour=_colour(arm)))
    return _drawing(
        "Energy",
        [(name, [bar]) for name, bar in zip(_names(metered), bars, strict=True)],
        "energy per output token, prefill and decode (J)",
        "Lines: 95 % intervals.",
        ("measured",),
        f"{'; '.join(bar.told for bar in bars)}.",
    )


MOST_WAYS, LONGEST_WAY = 12, 44
ROOM_FOR_WORDS = 1.65


def ways_compared(ways: Sequence[Way], timed: bool) -> Drawing | None:
    """A bar per way: filled where it keeps NTP's accuracy, pale where no answer was checked, green where it is lossless."""
    if not ways:
        return None
    shown = ways[:MOST_WAYS]
    bars, real = list[Bar](), "measured" if timed else "counted"
    left_out = f" {len(ways) - MOST_WAYS} slower ways are in the table." if len(ways) > MOST_WAYS else ""
    caption = (
        f"{_leaders(ways, timed)} Each way's fastest setting that lost at most {100 * MARGIN:g} point of accuracy, of "
        f"{sum(way.settings for way in ways)} arms, chosen on these decodes. Green: lossless in exact arithmetic; "
        f"hollow: every setting lost more; pale: its accuracy is not known.{left_out}"
    )
    for way in shown:
        right, fed, text = way.arm.accuracy, way.arm.query_tokens_per_token, formatting.ratio(way.speed.value or 0.0)
        told = f"{', '.join(filter(None, (one_line(way.arm.label, LONGEST_WAY), lossless(way.arm))))}: "
        told += with_ends(way.speed, formatting.ratio)
        if right.value is not None:
            text += f", {formatting.percent(right.value)} right"
            told += f", {with_ends(right, formatting.percent)} of the answers right"
        told += f", {formatting.figure(fed, 3)} query tokens fed for a token" if fed is not None else ""
        colour, solid = GREEN if way.lossless else VERMILION, {True: 1.0, None: 0.3, False: 0.0}[way.keeps]
        bars.append(Bar(of=way.speed, text=text, told=told, colour=colour, solid=solid))
    return _drawing(
        "Every way at its best setting",
        [(one_line(way.arm.label, LONGEST_WAY), [bar]) for way, bar in zip(shown, bars, strict=True)],
        SPEED_AXIS[timed],
        caption,
        tuple(dict.fromkeys("replayed" if way.arm.replayed else real for way in shown)),
        " ".join([caption, *(f"{bar.told}." for bar in bars)]),
        lines=((1.0, "NTP"),),
        room=ROOM_FOR_WORDS,
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
