"""The roofline plot: every kind of pass of a part under the ceilings of the machine.

Draws RooflinePoint and Roof values; computes no statistic. Source of the plot: Williams, Waterman and Patterson 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from harness import formatting
from harness.analysis.pass_values import Roof, price_words, rung_of
from harness.analysis.explain import RooflinePoint
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
        for roof in roofs:
            _roof(axes, roof, ends)
        for point in points:
            _point(axes, point)
        for point in named(points):
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
    marks = ("measured", "modelled", *predicted)
    return Drawing(heading="Passes under the roofline", image=image, caption=caption, marks=marks)


def _ends(points: Sequence[RooflinePoint], roofs: Sequence[Roof]) -> tuple[float, float]:
    places = [point.intensity_flops_per_byte for point in points] + [roof.ridge_flops_per_byte for roof in roofs]
    return min(places) / 3, max(places) * 4


def _roof(axes: Axes, roof: Roof, ends: tuple[float, float]) -> None:
    colour, ridge = svg.RUNGS.get(roof.rung, svg.MUTED), roof.ridge_flops_per_byte
    peak, memory = roof.peak_flops_per_s / GIGA, roof.bandwidth_bytes_per_s / GIGA
    axes.plot([ends[0], ridge, ends[1]], [ends[0] * memory, peak, peak], color=colour, lw=1.4)
    axes.plot([ridge], [peak], "D", color=colour, ms=4)
    axes.annotate(f"{roof.rung} read rate\n{formatting.gigabytes(roof.bandwidth_bytes_per_s)} GB/s", (ends[0], ends[0] * memory),
                  (12, -2), textcoords="offset points", va="top", color=colour, fontsize=9)  # fmt: skip
    text = f"{roof.rung} matrix peak {_giga(roof.peak_flops_per_s)} GFLOP/s\nridge at {ridge:.3g} flops per byte"
    side, offset = ("left", -4) if ridge**2 < ends[0] * ends[1] else ("right", 4)  # to where there is more room
    axes.annotate(text, (ridge, peak), (offset, 6), textcoords="offset points", ha=side,
                  va="bottom", color=colour, fontsize=9)  # fmt: skip


def _point(axes: Axes, point: RooflinePoint) -> None:
    x, attained = point.intensity_flops_per_byte, point.attained_flops_per_s
    colour, shape = svg.BLUE if point.width.method == "ntp" else svg.VERMILION, SHAPES.get(point.width.role, "P")
    if attained.low is not None and attained.high is not None:
        axes.plot([x, x], [attained.low / GIGA, attained.high / GIGA], color=colour, lw=1.4)
    axes.plot([x], [(attained.value or 0.0) / GIGA], shape, color=colour, ms=6.5, zorder=3)
    for price, predicted in list(point.predicted_flops_per_s.items())[:1]:
        axes.plot([x], [predicted / GIGA], shape, mfc="none", mec=svg.RUNGS.get(rung_of(price), svg.MUTED), ms=9, mew=1.3)


def _name(axes: Axes, point: RooflinePoint, with_batch: bool) -> None:
    text = point_words(point) + (f", batch {point.batch_size}" if with_batch else "")
    at = (point.intensity_flops_per_byte, (point.attained_flops_per_s.value or 0.0) / GIGA)
    offset, side = ((-9, 5), "right") if point.width.role == "commit+decide" else ((9, -10), "left")
    axes.annotate(text, at, offset, textcoords="offset points", ha=side, fontsize=9)


def named(points: Sequence[RooflinePoint]) -> list[RooflinePoint]:
    """All of few points; of more those of each role at the smallest and the largest batch; where these are too many as well,
    NTP's, the least and the most intense one.
    """
    if len(points) <= MOST_LABELS:
        return list(points)
    sizes = [point.batch_size for point in points]
    found = [point for point in points if point.batch_size in (min(sizes), max(sizes)) and point.width.role != "commit+decide"]
    if len(found) <= MOST_LABELS:
        return found
    ordered = sorted(points, key=lambda point: point.intensity_flops_per_byte)
    ends = [ordered[0], ordered[-1]]
    return ends + [point for point in points if point.width.method == "ntp" and point not in ends][: MOST_LABELS - len(ends)]


def point_words(point: RooflinePoint) -> str:
    """``NTP``, ``decide, 16 tokens``."""
    return "NTP" if point.width.method == "ntp" else f"{point.width.role}, {point.width.query_tokens} tokens"


def roofline_sentence(points: Sequence[RooflinePoint], roofs: Sequence[Roof]) -> str:
    """What the least and the most intense kind of pass reach, and which side of the ridge they lie on."""
    ordered = sorted(points, key=lambda point: point.intensity_flops_per_byte)
    with_batch = len({point.batch_size for point in points}) > 1
    said = [
        f"{point_words(point)}{f' at batch {point.batch_size}' if with_batch else ''}: "
        f"{point.intensity_flops_per_byte:.3g} flops per byte, {_giga(point.attained_flops_per_s.value or 0.0)} GFLOP/s"
        for point in (ordered if len(ordered) < 3 else (ordered[0], ordered[-1]))
    ]
    best = next((rung for point in points for rung in point.predicted_flops_per_s), None)
    hollow = f" Filled: measured; hollow: what the {price_words(best)} roofline predicts for the same passes." if best else ""
    return f"{'; '.join(said)}.{''.join(_side(points, roof) for roof in roofs[:1])}{hollow}"


def _side(points: Sequence[RooflinePoint], roof: Roof) -> str:
    """Where the passes lie by one rung's ceilings; passes faster than its peak say that the ceilings are too low."""
    below = [point for point in points if point.intensity_flops_per_byte < roof.ridge_flops_per_byte]
    some = f"{len(below)} of {len(points)} kinds of pass lie"
    kinds = some if len(below) < len(points) else "every kind of pass lies"
    said = f" By the {roof.rung} ceilings {kinds} below the ridge ({roof.ridge_flops_per_byte:.3g}), where memory limits."
    above = [point for point in points if (point.attained_flops_per_s.value or 0.0) > roof.peak_flops_per_s]
    return f"{said} {len(above)} of them are faster than the peak: it was found too low." if above else said


def _giga(flops_per_s: float) -> str:
    return formatting.rate(flops_per_s / GIGA)
