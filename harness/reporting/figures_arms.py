"""Figures that compare arms: speed against accuracy, and tokens per pass.

They draw a Cell and compute no statistic. Every function returns None where there is nothing to draw.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import attrgetter

from harness import formatting
from harness.analysis.evidence.best_settings import name_of, telling_arms
from harness.analysis.results import ArmResult, Cell
from harness.reporting.cells import with_ends
from harness.reporting.sentences import lossless
from harness.reporting.svg import (
    BLUE,
    GREEN,
    MOST_ARMS,
    MUTED,
    VERMILION,
    Drawing,
    Named,
    dot,
    drawing,
    interval,
    name_above,
    name_points,
    name_rows,
    new_axes,
    tell,
)
from harness.stats.quantity import Quantity

Speed = Callable[[ArmResult], Quantity]
SPEED_AXIS = {True: "wall speedup over NTP (x)", False: "NFE speedup: decode tokens per pass (x)"}
"""By whether the part was timed."""


def speed_accuracy(cell: Cell) -> Drawing | None:
    """Accuracy against wall speedup (untimed parts: NFE speedup), a point per arm."""
    speed: Speed = attrgetter("wall_speedup" if cell.timed else "passes_saved")
    few = telling_arms(cell, MOST_ARMS)
    arms = [arm for arm in few if arm.accuracy.value is not None and speed(arm).value is not None]
    at = {arm.label: (_value(speed(arm)), 100 * _value(arm.accuracy)) for arm in arms}
    sbd = sorted((arm for arm in arms if not arm.is_ntp), key=lambda arm: at[arm.label])
    ntp = [arm for arm in arms if arm.is_ntp]
    if not sbd:
        return None
    with new_axes(height_in=3.2) as (figure, axes):
        axes.axvline(1, color=MUTED, lw=0.8)
        for _, settings in groupby(sorted(sbd, key=_kind), key=_kind):
            line = list(settings)
            axes.plot(*zip(*(at[arm.label] for arm in line), strict=True), color=_colour(line[0]), lw=0.9, ls=":")
        for arm in arms:  # points with the 95 % intervals of both values
            (x, y), found, colour = at[arm.label], speed(arm), _colour(arm)
            named, right = ", ".join(filter(None, (arm.label, lossless(arm)))), with_ends(arm.accuracy, formatting.percent)
            dot(axes, x, y, "o", colour, f"{named}: {with_ends(found, formatting.ratio)}, {right} of the answers right")
            interval(axes, found, y, colour)
            interval(axes, arm.accuracy, x, colour, unit=0.01, upright=True)
        axes.margins(x=0.12, y=0.06)
        axes.set(xlabel=SPEED_AXIS[cell.timed], ylabel="accuracy (%)")
        axes.set_xlim(left=min(0.8, axes.get_xlim()[0]))
        axes.grid(axis="y")
        first = [*ntp, sbd[-1], sbd[0], *(sbd[1:-1] if len(arms) <= MOST_NAMED else ())]  # the caption is about the first three
        name_points(axes, [Named(text=label, at=at[label]) for label in dict.fromkeys(arm.label for arm in first)])
        unit = "by the clock" if cell.timed else "fewer passes"
        words = [
            f"{arm.label}: {formatting.ratio(at[arm.label][0])} {unit}, {formatting.percent(_value(arm.accuracy))} right"
            for arm in (sbd[0], sbd[-1])
        ]
        reference = f" NTP: {formatting.percent(_value(ntp[0].accuracy))} right." if ntp else ""
        green = " Green: lossless in exact arithmetic." if any(arm.lossless for arm in sbd) else ""
        caption = f"{'; '.join(dict.fromkeys(words))}.{reference}{green} Lines: 95 % intervals."
        return drawing(figure, "Speed against accuracy", caption, ("measured",))


def _kind(arm: ArmResult) -> tuple[str, int]:
    """What a line joins: a way of decoding, at one block size."""
    return name_of(arm.label), arm.block_size or 0


def _colour(arm: ArmResult) -> str:
    return BLUE if arm.is_ntp else GREEN if arm.lossless else VERMILION


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
    with new_axes(height_in=0.6 + 0.62 * len(arms)) as (figure, axes):
        for row, arm in enumerate(reversed(arms)):  # bars to their own scale under the arm's name
            counts = arm.final_tokens_histogram
            heights = [0.6 * count / max(counts) for count in counts]
            bars = axes.bar(range(len(counts)), heights, 0.8, bottom=row, color=VERMILION)
            for tokens, (bar, count) in enumerate(zip(bars, counts, strict=True)):
                if count:
                    share = formatting.percent(count / sum(counts))
                    tell(bar, f"{arm.label}: {share} of the passes make {tokens} token{'s' if tokens != 1 else ''} final")
            axes.axhline(row, color=MUTED, lw=0.6)
            name_above(axes, row + 0.62, f"{_value(arm.nfe_speedup):.2f} on average: {arm.label}", up=0.0)
        xlabel = "output tokens made final by one pass of one row"
        axes.set(xlim=(-0.6, widest - 0.4), ylim=(-0.05, len(arms)), xlabel=xlabel, xticks=range(0, widest, 1 + widest // 12))
        name_rows(axes, ())
        best, others = arms[0], len(every) - len(arms)
        counts = best.final_tokens_histogram
        alone = formatting.percent(counts[1] / sum(counts) if len(counts) > 1 else 0.0, 0)
        more = f" {others} other arms need more passes." if others else ""
        caption = (
            f"{alone} of the passes of {best.label} make a single token final, as every NTP pass does. "
            f"Each strip has its own scale.{more}"
        )
        marks = ("replayed",) if any(arm.replayed for arm in arms) else ("measured",)
        return drawing(figure, "Tokens per pass", caption, marks)


def _value(quantity: Quantity) -> float:
    """The value of a quantity; 0 for a label that is drawn without one."""
    return quantity.value if quantity.value is not None else 0.0
