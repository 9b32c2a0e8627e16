"""Figures over the load of a part: its speedup, measured and predicted, and where each is gone; rows that wait."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from harness import formatting
from harness.analysis.evidence.break_even import Points, SpeedByLoad, break_even
from harness.analysis.results import Cell
from harness.reporting.cells import Marks
from harness.reporting.svg import (
    MUTED,
    SERIES,
    Drawing,
    Named,
    dot,
    drawing,
    interval,
    log_ticks,
    name_lines,
    name_points,
    new_axes,
)

MOST = 4
TICKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 7, 10)


def speed_by_load(lines: Sequence[SpeedByLoad]) -> Drawing | None:
    """A line per arm; None with fewer than two loads. Filled marks are measured, hollow ones predicted; diamonds are where a
    line crosses 1, squares stand for arrivals.
    """
    shown = lines[:MOST]
    if not shown:
        return None
    with new_axes(height_in=3.2) as (figure, axes):
        axes.axhline(1, color=MUTED, lw=0.8)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")  # as a break-even is interpolated
        named = []  # where a line crosses 1, and what a square stands for
        for colour, one in zip(SERIES, shown, strict=False):
            _draw(axes, one, colour)
            ends = [gone for gone in (one.measured_break_even, one.predicted_break_even) if gone is not None]
            named += [Named(text=formatting.figure(gone, 2), at=(gone, 1.0), colour=colour) for gone in ends]
            arrived = [(at.words, (at.in_flight, at.speed.value or 1.0)) for at in one.arrived]
            named += [Named(text=text, at=at, colour=colour) for text, at in arrived]
        ticks = sorted({size for one in shown for size, _ in one.measured})
        name_lines(axes)
        log_ticks(axes.xaxis, ticks)
        axes.margins(y=0.12)
        log_ticks(axes.yaxis, TICKS, "x")
        in_flight = any(one.in_flight for one in shown)
        axes.set_xlabel("requests in flight" if in_flight else "batch size (requests at once)")
        axes.set_ylabel("speed against NTP")
        name_points(axes, named, [(size, speed.value or 1.0) for one in shown for size, speed in one.measured])
        marks: Marks = ("measured", "predicted") if any(one.predicted for one in shown) else ("measured",)
        return drawing(figure, "Speedup by load", " ".join(map(_sentences, shown)), marks)


def _draw(axes: Axes, one: SpeedByLoad, colour: str) -> None:
    sizes = [size for size, _ in one.measured]
    axes.plot(sizes, [speed.value or 0.0 for _, speed in one.measured], "-", color=colour, label=one.label)
    for size, speed in one.measured:
        dot(axes, size, speed.value or 0.0, "o", colour, f"{one.label} at {size}: {formatting.ratio(speed.value or 0.0)}", 5)
        interval(axes, speed, size, colour, upright=True)
    if one.predicted:
        axes.plot(*zip(*one.predicted, strict=True), "o--", color=colour, ms=5, mfc="none", lw=1.0)
    for at in one.arrived:
        text = f"{one.label} at {at.words}: {formatting.ratio(at.speed.value or 0.0)}"
        dot(axes, at.in_flight, at.speed.value or 0.0, "s", colour, text)
        interval(axes, at.speed, at.in_flight, colour, upright=True)
        if at.predicted is not None:
            axes.plot(at.in_flight, at.predicted, "s", color=colour, ms=6, mfc="none")
    for gone, words in ((one.measured_break_even, ""), (one.predicted_break_even, ", predicted")):
        if gone is not None:
            text = f"{one.label} is as fast as NTP at {formatting.figure(gone, 2)}{words}"
            dot(axes, gone, 1, "D", colour, text, 7, hollow=bool(words), above=3)


def _sentences(one: SpeedByLoad) -> str:
    said = f"The speedup of {one.label} {_gone(one.measured_points, one.in_flight)}"
    if ends := one.break_even_ends:
        low, high = (formatting.figure(end, 2) for end in ends)
        said += f" ({low} to {high} by the ends of its intervals)"
    said += f"; predicted (hollow), it {_gone(one.predicted, one.in_flight)}." if one.predicted else "."
    for at in one.arrived:
        speed, flying = formatting.ratio(at.speed.value or 0.0), formatting.figure(at.in_flight, 2)
        said += f" At {at.words} (square; {flying} in flight on average) it is {speed}."
    return said


def _gone(points: Points, in_flight: bool) -> str:
    """``is gone at about 2.3 in flight``, ``is not gone up to 4 in flight``, or that it is below 1 from the first load on."""
    what = "in flight" if in_flight else "at once"
    first, last = points[0], points[-1]
    at = break_even(points)
    if at is not None:
        return f"is gone at about {formatting.figure(at, 2)} {what}"
    if first[1] <= 1:
        return f"is at or below 1 already with {first[0]:g} {what}"
    return f"is not gone up to {last[0]:g} {what}"


def straggler_loss(cells: Sequence[Cell]) -> Drawing | None:
    """Active rows per pass relative to NTP, over the batch sizes of a part: the effect of waiting for the slowest row."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for cell in cells:
        for arm in cell.arms:
            if not arm.is_ntp and arm.factors is not None:
                lines.setdefault(arm.label, []).append((cell.batch_size, arm.factors.rows_per_pass))
    sizes = sorted({size for line in lines.values() for size, _ in line})
    if sizes in ([], [1]):
        return None
    shown = sorted(lines.items(), key=lambda named: named[1][-1][1])[: len(SERIES)]
    with new_axes() as (figure, axes):
        axes.axhline(1, color=MUTED, lw=0.8)
        for colour, (label, line) in zip(SERIES, shown, strict=False):
            axes.plot(*zip(*line, strict=True), "-", color=colour, label=label)
            for size, share in line:
                dot(axes, size, share, "o", colour, f"{label}, batch {size}: ×{formatting.figure(share, 3)}", 5)
        axes.set_xscale("log", base=2)
        name_lines(axes)
        log_ticks(axes.xaxis, sizes)
        axes.margins(y=0.08)
        axes.set(ylim=0, xlabel="batch size (rows)", ylabel="active rows per pass ÷ NTP's")
        label, line = shown[0]
        caption = (
            f"At batch {line[-1][0]}, rows that wait for the slowest row of their batch change the speedup of {label} by ×"
            f"{formatting.figure(line[-1][1], 3)}. 1 is no loss; NTP's own rows wait too, so a factor may lie above 1."
        )
        replayed = any(arm.replayed for cell in cells for arm in cell.arms)
        return drawing(figure, "Rows that wait for the slowest", caption, ("measured",), replayed=replayed)
