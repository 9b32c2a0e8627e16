"""The figure of the speedup over the load: measured with its interval, predicted beside it, and where each is gone."""

from __future__ import annotations

from collections.abc import Sequence

from harness import formatting
from harness.analysis.break_even import SpeedByLoad
from harness.reporting import svg
from harness.reporting.cells import Marks
from harness.reporting.svg import Drawing

MOST = 4


def speed_by_load(found: Sequence[SpeedByLoad], name: str) -> Drawing | None:
    """A line per arm; None with fewer than two batch sizes."""
    shown = found[:MOST]
    if not shown:
        return None
    with svg.new_axes(height_in=3.2) as (figure, axes):
        axes.axhline(1, color=svg.MUTED, lw=0.8)
        places = svg.spread([one.measured[-1][1].value or 1.0 for one in shown], 0.1)
        for colour, one, place in zip(svg.SERIES, shown, places, strict=False):
            sizes = [size for size, _ in one.measured]
            axes.plot(sizes, [speed.value or 0.0 for _, speed in one.measured], "o-", color=colour, ms=5)
            for size, speed in one.measured:
                if speed.low is not None and speed.high is not None:
                    axes.plot([size, size], [speed.low, speed.high], color=colour, lw=1.2)
            if one.predicted:
                axes.plot(*zip(*one.predicted, strict=True), "o--", color=colour, ms=5, mfc="none", lw=1.0)
            at = (sizes[-1], place)
            axes.annotate(one.label, at, (8, 0), textcoords="offset points", va="center", color=colour, fontsize=9)
        axes.set_xscale("log", base=2)
        axes.set_xlim(axes.get_xlim()[0], axes.get_xlim()[1] * 2.2)
        svg.log_ticks(axes.xaxis, sorted({size for one in shown for size, _ in one.measured}))
        axes.set_ylim(0, axes.get_ylim()[1])
        axes.set_xlabel("batch size (requests at once)")
        axes.set_ylabel("speed against NTP")
        marks: Marks = ("measured", "predicted") if any(one.predicted for one in shown) else ("measured",)
        return svg.drawing(figure, name, "Speedup by load", " ".join(map(_sentence, shown)), marks)


def _sentence(one: SpeedByLoad) -> str:
    sizes = f"batch {one.measured[0][0]} to {one.measured[-1][0]}"
    said = f"The speedup of {one.label} {_gone(one.measured_break_even, sizes)}"
    return f"{said}; predicted (hollow), it {_gone(one.predicted_break_even, sizes)}." if one.predicted else f"{said}."


def _gone(size: float | None, sizes: str) -> str:
    return f"is not gone from {sizes}" if size is None else f"is gone at a batch of about {formatting.figure(size, 2)}"
