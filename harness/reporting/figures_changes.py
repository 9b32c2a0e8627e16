"""The figures of several runs side by side: each timed change with its interval, and each arm's speedup in every run.

They draw values of harness.regression.side_by_side and compute no statistic.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from harness import formatting
from harness.regression.changes import Change, Outcome
from harness.regression.side_by_side import Against, SharedArm
from harness.reporting.svg import (
    GREEN,
    MUTED,
    SERIES,
    VERMILION,
    Drawing,
    beside,
    drawing,
    interval,
    name_above,
    name_rows,
    new_axes,
)

MOST_ROWS = 24
"""More rows than this cannot be read in one drawing; the table has them all."""
ROW_IN = 0.46
COLOURS: dict[Outcome, str] = {"better": GREEN, "worse": VERMILION}
SHAPES: dict[Outcome, str] = {"better": "^", "worse": "v"}
METRIC_WORDS = {"decode_s_per_token": "time per token", "wall_speedup": "wall speedup", "prefill_s": "prefill"}


def changes_figure(against: Against) -> Drawing | None:
    """The timed changes with their intervals, around no change; None where none has an interval."""
    known = [change for change in against.compared.changes if change.kind == "timed" and change.ratio.value is not None]
    if not known:
        return None
    shown = sorted(known, key=lambda change: change.metric)[:MOST_ROWS]
    with new_axes(height_in=0.9 + ROW_IN * len(shown)) as (figure, axes):
        for row, change in enumerate(shown):
            ratio, colour = change.ratio, COLOURS.get(change.outcome, MUTED)
            interval(axes, ratio, row, colour, lw=2)
            inside = "none" if ratio.these_processes_only else colour
            axes.plot([ratio.value or 1.0], [row], SHAPES.get(change.outcome, "o"), color=colour, mfc=inside, ms=6)
        _name(axes, [_row_words(change) for change in shown])
        axes.set_xlabel(f"change from run A to run {against.letter}, with its 95 % interval")
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))  # no change is a tick
        axes.xaxis.set_major_formatter(lambda value, _: formatting.signed_percent(value - 1).replace("\u00a0", " "))
        decided = [
            f"{_row_words(change)} {change.outcome}, {formatting.signed_percent((change.ratio.value or 1) - 1)}"
            for change in shown
            if change.outcome in COLOURS
        ]
        caption = f"Run {against.letter} against run A: {'; '.join(decided) or 'no time is shown to be better or worse'}. "
        caption += "A triangle up is better, down is worse, a circle is neither."
        if any(change.ratio.these_processes_only for change in shown):
            caption += " A hollow mark: the interval is about the processes alone that were measured."
        caption += f" {len(known) - len(shown)} more are in the table." if len(known) > len(shown) else ""
        return drawing(figure, f"Times of run {against.letter} against run A", caption, ("measured",))


def _name(axes: Axes, labels: Sequence[str]) -> None:
    """A row per label, which stands above its marks and has the whole width; 1, no difference, is a line."""
    axes.axvline(1, color=MUTED, lw=1.0, zorder=0)
    for row, label in enumerate(labels):
        name_above(axes, row, label)
    name_rows(axes, ())
    axes.set_ylim(len(labels) - 0.4, -0.85)
    axes.grid(axis="x")


def _row_words(change: Change) -> str:
    return f"{METRIC_WORDS.get(change.metric, change.metric)}, {change.subject}"


def speedups_figure(arms: Sequence[SharedArm], letters: Sequence[str]) -> Drawing | None:
    """The wall speedup of every shared arm in every run; None where no arm was timed."""
    shown = [arm for arm in arms if any(one is not None and one.value is not None for one in arm.wall_speedups)]
    if not shown:
        return None
    rows = shown[: max(1, MOST_ROWS // len(letters))]
    colours = (MUTED, *islice(cycle(SERIES), len(letters) - 1))
    with new_axes(height_in=0.9 + ROW_IN * len(rows) * (0.6 + 0.4 * len(letters))) as (figure, axes):
        for row, arm in enumerate(rows):  # the first run on top
            places = np.linspace(row - 0.06, row + 0.3, len(letters))
            for letter, speed, colour, at in zip(letters, arm.wall_speedups, colours, places, strict=True):
                if speed is not None and speed.value is not None:
                    interval(axes, speed, at, colour, lw=2)
                    axes.plot([speed.value], [at], "o", color=colour, ms=4.5)
                    beside(axes, speed.high or speed.value, at, letter, 8, colour)
        _name(axes, [f"{arm.label}, {arm.part}, batch {arm.batch_size}" for arm in rows])
        axes.set_xlabel("wall speedup over NTP, with its 95 % interval (1: as fast as NTP)")
        axes.xaxis.set_major_formatter("{x:g}x")
        each = []
        for arm in rows:
            speeds = zip(letters, arm.wall_speedups, strict=True)
            words = (f"{at} {formatting.ratio(one.value) if one and one.value is not None else 'none'}" for at, one in speeds)
            each.append(f"{arm.label} in {arm.part}: {', '.join(words)}")
        caption = "; ".join(each)
        caption += ". Each run's interval is its own: whether they differ is told by the paired changes, not by their overlap."
        caption += f" {len(shown) - len(rows)} more arms are in the table." if len(shown) > len(rows) else ""
        return drawing(figure, "Wall speedup, run by run", caption, ("measured",))
