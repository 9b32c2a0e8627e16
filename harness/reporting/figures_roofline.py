"""The roofline plot: every kind of pass of a part under the ceilings of the machine.

Draws RooflinePoint and Roof values; computes no statistic. Source of the plot: Williams, Waterman and Patterson 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from harness import units
from harness.compare_explain import RooflinePoint
from harness.compare_pass_values import Roof
from harness.reporting import svg
from harness.reporting.drawing import Drawing

SHAPES = {"decide": "o", "commit+decide": "s", "draft": "^", "verify": "v"}
GIGA = 1e9
MOST_LABELS = 9


def roofline_plot(points: Sequence[RooflinePoint], roofs: Sequence[Roof], name: str) -> Drawing | None:
    """Flops per byte against FLOP/s, both logarithmic: measured passes filled, what the best rung predicts for them hollow."""
    if not points:
        return None
    with svg.styled():
        figure, axes = svg.new_axes(height_in=4.0)
        axes.set(xscale="log", yscale="log")
        ends = _ends(points, roofs)
        for i, roof in enumerate(roofs):
            _roof(axes, roof, ends, below=i > 0)
        for point in points:
            _point(axes, point)
        for point in points if len(points) <= MOST_LABELS else _outermost(points):
            _name(axes, point, with_batch=len({one.batch_size for one in points}) > 1)
        axes.set_xlim(ends)
        axes.set_ylim(axes.get_ylim()[0] / 1.3, axes.get_ylim()[1] * 1.6)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if axis is axes.xaxis else (1, 3)))
            axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            axis.set_minor_locator(NullLocator())
        axes.set_xlabel("arithmetic intensity, modelled (flops per byte)")
        axes.set_ylabel("attained (GFLOP/s)")
        caption = roofline_sentence(points, roofs)
        image = svg.to_inline(figure, name, caption)
    predicted = ("predicted",) if any(point.predicted_flops_per_s for point in points) else ()
    return Drawing(heading="Passes under the roofline", image=image, caption=caption, marks=("measured", "modelled", *predicted))


def _ends(points: Sequence[RooflinePoint], roofs: Sequence[Roof]) -> tuple[float, float]:
    places = [point.intensity_flops_per_byte for point in points] + [roof.ridge_flops_per_byte for roof in roofs]
    return min(places) / 2, max(places) * 4


def _roof(axes: Axes, roof: Roof, ends: tuple[float, float], below: bool) -> None:
    colour, ridge = svg.RUNGS.get(roof.rung, svg.MUTED), roof.ridge_flops_per_byte
    peak, memory = roof.peak_flops_per_s / GIGA, roof.bandwidth_bytes_per_s / GIGA
    axes.plot([ends[0], ridge, ends[1]], [ends[0] * memory, peak, peak], color=colour, lw=1.4)
    axes.plot([ridge], [peak], "D", color=colour, ms=4)
    text = f"{roof.rung}: {units.gigabytes(roof.bandwidth_bytes_per_s)} GB/s up to the ridge at {ridge:.3g} flops per byte,"
    text += f"\nmatrix peak {_giga(roof.peak_flops_per_s)} GFLOP/s beyond"
    axes.annotate(text, (ends[1], peak), (-2, -4 if below else 4), textcoords="offset points", ha="right",
                  va="top" if below else "bottom", color=colour, fontsize=9)  # fmt: skip


def _point(axes: Axes, point: RooflinePoint) -> None:
    x, attained = point.intensity_flops_per_byte, point.attained_flops_per_s
    colour, shape = svg.BLUE if point.width.method == "ntp" else svg.VERMILION, SHAPES.get(point.width.role, "P")
    if attained.low is not None and attained.high is not None:
        axes.plot([x, x], [attained.low / GIGA, attained.high / GIGA], color=colour, lw=1.4)
    axes.plot([x], [(attained.value or 0.0) / GIGA], shape, color=colour, ms=6.5, zorder=3)
    for rung, predicted in list(point.predicted_flops_per_s.items())[:1]:
        axes.plot([x], [predicted / GIGA], shape, mfc="none", mec=svg.RUNGS.get(rung, svg.MUTED), ms=9, mew=1.3)


def _name(axes: Axes, point: RooflinePoint, with_batch: bool) -> None:
    text = point_words(point) + (f", batch {point.batch_size}" if with_batch else "")
    at = (point.intensity_flops_per_byte, (point.attained_flops_per_s.value or 0.0) / GIGA)
    axes.annotate(text, at, (8, -11), textcoords="offset points", fontsize=9)


def _outermost(points: Sequence[RooflinePoint]) -> list[RooflinePoint]:
    """Of each role at the smallest and the largest batch, where there are too many points to name them all."""
    sizes = [point.batch_size for point in points]
    return [point for point in points if point.batch_size in (min(sizes), max(sizes)) and point.width.role != "commit+decide"]


def point_words(point: RooflinePoint) -> str:
    """``NTP``, ``decide, 16 tokens``."""
    return "NTP" if point.width.method == "ntp" else f"{point.width.role}, {point.width.query_tokens} tokens"


def roofline_sentence(points: Sequence[RooflinePoint], roofs: Sequence[Roof]) -> str:
    """Which side of the ridge the passes lie on, and what they reach."""
    reached = [(point, point.attained_flops_per_s.value or 0.0) for point in points]
    said = "; ".join(
        f"{point_words(point)}{f' at batch {point.batch_size}' if len({one.batch_size for one in points}) > 1 else ''}: "
        f"{point.intensity_flops_per_byte:.3g} flops per byte, {_giga(rate)} GFLOP/s"
        for point, rate in (reached if len(reached) <= MOST_LABELS else [reached[0], reached[-1]])
    )
    rungs = "".join(_side(points, roof) for roof in roofs[:1])
    best = next((rung for point in points for rung in point.predicted_flops_per_s), None)
    hollow = f" Hollow: what the {best} roofline predicts for the same passes." if best else ""
    return f"{said}.{rungs}{hollow}"


def _side(points: Sequence[RooflinePoint], roof: Roof) -> str:
    below = [point for point in points if point.intensity_flops_per_byte < roof.ridge_flops_per_byte]
    kinds = f"{len(below)} of {len(points)} kinds of pass lie below" if len(below) < len(points) else "every kind of pass lies below"
    return f" By the {roof.rung} ceilings {kinds} the ridge, where memory limits."


def _giga(flops_per_s: float) -> str:
    return units.rate(flops_per_s / GIGA)
