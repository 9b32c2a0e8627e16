"""The figures of several runs side by side: each timed change with its interval, and each arm's speedup in every run.

They draw values of harness.regression.side_by_side and compute no statistic.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from harness import formatting
from harness.formatting import one_line
from harness.regression.changes import Change, Outcome
from harness.regression.side_by_side import Against, SharedArm
from harness.reporting import svg
from harness.reporting.svg import Drawing
from harness.stats.quantity import Quantity

MOST_ROWS = 24
"""More rows than this cannot be read in one drawing; the table has them all."""
ROW_IN = 0.46
LONGEST = 100
"""Letters of a label above its bars; more do not fit the width."""
COLOURS: dict[Outcome, str] = {"better": svg.GREEN, "worse": svg.VERMILION}
SHAPES: dict[Outcome, str] = {"better": "^", "worse": "v"}
METRIC_WORDS = {"decode_s_per_token": "time per token", "wall_speedup": "wall speedup", "prefill_s": "prefill"}


def changes_figure(against: Against) -> Drawing | None:
    """The timed changes as bars around zero; None where no change has an interval."""
    known = [change for change in against.compared.changes if change.kind == "timed" and change.ratio.value is not None]
    if not known:
        return None
    shown = sorted(known, key=lambda change: change.metric)[:MOST_ROWS]
    caption = _changes_words(against, shown, len(known))
    with svg.new_axes(height_in=0.9 + ROW_IN * len(shown)) as (figure, axes):
        for place, change in enumerate(reversed(shown)):
            _bar(axes, place, change)
        axes.axvline(0, color=svg.MUTED, lw=1.0, zorder=0)
        _rows(axes, [_row_words(change) for change in reversed(shown)])
        axes.set_xlabel(f"change from run A to run {against.letter}, with its 95 % interval")
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: formatting.signed_percent(value).replace("\u00a0", " ")))
        return svg.drawing(figure, f"Times of run {against.letter} against run A", caption, ("measured",))


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """A row per label, from the bottom up; the label stands above its bars, which have the whole width."""
    for place, label in enumerate(labels):
        axes.annotate(
            one_line(label, LONGEST),
            (0, place + 0.42),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    svg.name_rows(axes, ())
    axes.set_ylim(-0.45, len(labels) - 0.35)
    axes.grid(axis="x")


def _bar(axes: Axes, place: int, change: Change) -> None:
    ratio, outcome = change.ratio, change.outcome
    assert ratio.value is not None
    colour = COLOURS.get(outcome, svg.MUTED)
    _band(axes, ratio, place, colour, 1)
    inside = "none" if ratio.these_processes_only else colour
    axes.plot(ratio.value - 1, place, SHAPES.get(outcome, "o"), color=colour, markerfacecolor=inside, ms=6)


def _band(axes: Axes, found: Quantity, at: float, colour: str, less: float = 0.0) -> None:
    """The interval, ``less`` taken off it."""
    if found.low is not None and found.high is not None:
        ends = [found.low - less, found.high - less]
        axes.plot(ends, [at, at], color=colour, lw=3.2, alpha=0.55, solid_capstyle="butt")


def _changes_words(against: Against, shown: Sequence[Change], known: int) -> str:
    found = [
        f"{_row_words(change)} {change.outcome}, {formatting.signed_percent((change.ratio.value or 1) - 1)}"
        for change in shown
        if change.outcome in COLOURS
    ]
    said = f"Run {against.letter} against run A: {'; '.join(found) or 'no time is shown to be better or worse'}. "
    said += "A triangle up is better, down is worse, a circle is neither."
    if any(change.ratio.these_processes_only for change in shown):
        said += " A hollow mark: the interval is about the processes alone that were measured."
    return f"{said} {known - len(shown)} more are in the table." if known > len(shown) else said


def _row_words(change: Change) -> str:
    return f"{METRIC_WORDS.get(change.metric, change.metric)}, {change.subject}"


def speedups_figure(arms: Sequence[SharedArm], letters: Sequence[str]) -> Drawing | None:
    """The wall speedup of every shared arm in every run; None where no arm was timed."""
    shown = [arm for arm in arms if any(one is not None and one.value is not None for one in arm.wall_speedups)]
    if not shown:
        return None
    rows = shown[: max(1, MOST_ROWS // len(letters))]
    caption = _speedups_words(rows, letters, len(shown))
    with svg.new_axes(height_in=0.9 + ROW_IN * len(rows) * (0.6 + 0.4 * len(letters))) as (figure, axes):
        for place, arm in enumerate(reversed(rows)):
            _speedups(axes, place, arm, letters)
        axes.axvline(1, color=svg.MUTED, lw=1.0, zorder=0)
        _rows(axes, [f"{arm.label}, {arm.part}, batch {arm.batch_size}" for arm in reversed(rows)])
        axes.set_xlabel("wall speedup over NTP, with its 95 % interval (1: as fast as NTP)")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
        return svg.drawing(figure, "Wall speedup, run by run", caption, ("measured",))


def _speedups(axes: Axes, place: int, arm: SharedArm, letters: Sequence[str]) -> None:
    """The runs of one arm, the first on top."""
    for number, (letter, speed) in enumerate(zip(letters, arm.wall_speedups, strict=True)):
        if speed is None or speed.value is None:
            continue
        at = place + 0.18 * (1 - 2 * number / max(len(letters) - 1, 1)) - 0.12
        colour = svg.MUTED if number == 0 else svg.SERIES[(number - 1) % len(svg.SERIES)]
        _band(axes, speed, at, colour)
        axes.plot(speed.value, at, "o", color=colour, ms=4.5)
        svg.beside(axes, speed.high or speed.value, at, letter, 8, colour)


def _speedups_words(rows: Sequence[SharedArm], letters: Sequence[str], known: int) -> str:
    found = []
    for arm in rows:
        speeds = zip(letters, arm.wall_speedups, strict=True)
        each = (f"{at} {formatting.ratio(one.value) if one and one.value is not None else 'none'}" for at, one in speeds)
        found.append(f"{arm.label} in {arm.part}: {', '.join(each)}")
    said = (
        "; ".join(found)
        + ". Each run's interval is its own: whether they differ is told by the paired changes, not by their overlap."
    )
    return f"{said} {known - len(rows)} more arms are in the table." if known > len(rows) else said
