"""One style for every figure, SVG from matplotlib inside the page, and a figure with its finding and its basis.

Colours are CSS variables, so the page's light and dark themes apply to figures too. One width serves a phone and a column of a
wide page; a mark tells its value on hover and on focus (``tell``); a label that finds no free place is left out
(``name_points``), since its mark tells the same. Knows no run.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any
from urllib.parse import quote, unquote

import matplotlib
from markupsafe import Markup, escape
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, NullLocator
from matplotlib.transforms import Bbox

from harness.formatting import one_line
from harness.frozen import frozen
from harness.stats.quantity import Quantity

matplotlib.use("svg")

# Okabe and Ito's palette, safe for the common kinds of colour blindness, as matplotlib's colours and the page's variables.
_VARIABLES = {
    "#111213": "ink",
    "#6b6c6d": "muted",
    "#d1d2d3": "faint",
    "#0072b2": "blue",
    "#d55e00": "vermilion",
    "#009e73": "green",
    "#cc79a7": "purple",
}
INK, MUTED, FAINT, BLUE, VERMILION, GREEN, PURPLE = _VARIABLES
SERIES = (VERMILION, GREEN, PURPLE, BLUE)
RUNGS = {"shape-calibrated": GREEN, "calibrated": PURPLE, "datasheet": MUTED}
"""One colour per rung of ceilings, the same in every figure; NTP is blue and SBD vermilion."""
STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "text.parse_math"), False),
    "svg.fonttype": "none",
    "svg.hashsalt": "sbd",
    "font.size": 10,
    "axes.linewidth": 0.8,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "figure.constrained_layout.use": True,
}


WIDTH_IN = 4.5
"""Of every figure: text of 9 to 10 points has 10 to 11 pixels on a page of 390, and 13 to 15 in a column of a wide one."""


@contextmanager
def new_axes(height_in: float = 3.0) -> Iterator[tuple[Figure, Axes]]:
    """A figure outside global state, with one pair of axes, drawn in the house style."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, height_in))
        yield figure, figure.add_subplot()


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows 0, 1, ... in place of the vertical axis; without names, the lines carry theirs as text."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


LONGEST_NAME = 56
"""Characters that the width of a figure holds."""


def name_above(axes: Axes, row: float, text: str, up: float = 0.17) -> None:
    """Name a horizontal bar above its left end, where the name has the whole width."""
    place, short = ("axes fraction", "data"), one_line(text, LONGEST_NAME)
    name = axes.annotate(short, (0, row - up), (2, 1), xycoords=place, textcoords="offset points", va="bottom", fontsize=9)
    name.set_in_layout(False)


TICKS_APART = 0.1
"""Least distance of two ticks of a logarithmic axis, as a share of its length."""


def log_ticks(axis: Axis, ticks: Sequence[float], suffix: str = "") -> None:
    """Label a logarithmic axis at those of these places that it shows and that are far enough apart; 1 is among them."""
    low, high = sorted(axis.get_view_interval())
    least = TICKS_APART * math.log(high / low)
    kept: list[float] = []
    for tick in sorted((tick for tick in ticks if low <= tick <= high), key=lambda tick: tick != 1):
        if all(abs(math.log(tick / other)) >= least for other in kept):
            kept.append(tick)
    axis.set_major_locator(FixedLocator(sorted(kept)))
    axis.set_major_formatter(f"{{x:g}}{suffix}")
    axis.set_minor_locator(NullLocator())


def tell(artist: Artist, text: str) -> None:
    """Let a mark say ``text`` on hover, on focus and to a screen reader."""
    artist.set_gid(TOLD + quote(" ".join(text.split())))


def dot(
    axes: Axes,
    x: float,
    y: float,
    shape: str,
    colour: str,
    text: str,
    size: float = 6.0,
    hollow: bool = False,
    above: float = 2,
) -> None:
    """A mark that tells ``text``; ``above``: what it covers lies lower."""
    (mark,) = axes.plot([x], [y], shape, color=colour, mfc="none" if hollow else colour, ms=size, zorder=above)
    tell(mark, text)


def interval(
    axes: Axes, found: Quantity, at: float, colour: str = INK, lw: float = 1.2, unit: float = 1.0, upright: bool = False
) -> None:
    """The interval of a value, divided by ``unit``, as a line at this place of the other axis; none without one."""
    if found.low is not None and found.high is not None:
        ends, places = [found.low / unit, found.high / unit], [at, at]
        axes.plot(*((places, ends) if upright else (ends, places)), color=colour, lw=lw)


def beside(axes: Axes, x: float, y: float, text: str, size: float = 9.0, colour: str = INK, weight: str = "normal") -> None:
    """A text to the right of a bar's end."""
    axes.annotate(text, (x, y), (5, 0), textcoords="offset points", va="center", fontsize=size, color=colour, fontweight=weight)


def name_lines(axes: Axes) -> None:
    """Name the lines above the axes, where no mark is."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        frameon=False,
        fontsize=9,
        borderaxespad=0.2,
        handlelength=1.4,
        labelspacing=0.3,
    )


TOLD = "told-"
"""Begins the id of such a mark in matplotlib's SVG; the text follows, percent-encoded."""
Point = tuple[float, float]
PLACES = ((7, 5), (7, -5), (-7, 5), (-7, -5), (0, 8), (0, -8), (9, 0), (-9, 0), (0, 22), (0, -22), (7, 18), (7, -18))
"""Where a label may stand, best first: its distance from the mark in points."""
MARK_PX = 5.0
"""Half the side of the square that a mark keeps free of labels."""
WIDER, HIGHER = 1.06, 1.1
"""A browser's letters may be larger than those that matplotlib measures."""


@frozen
class Named:
    """A label for the mark at ``at``, in the units of the axes."""

    text: str
    at: Point
    colour: str = INK


@contextmanager
def _foreign_letters() -> Iterator[None]:
    """A letter that the font lacks stays empty, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        yield


@_foreign_letters()
def name_points(axes: Axes, named: Sequence[Named], marks: Sequence[Point] = ()) -> list[str]:
    """Name marks where a name lies on no other text and on no mark; to be called when the axes have their limits.

    A name stands nearest to its own mark, or to one that covers it, and on a line only where no place is free of lines.

    Args:
        named: in the order of their importance: the later ones find less room.
        marks: more places that stay free.

    Returns:
        The texts that found no place.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # lays out
    taken = [text.get_window_extent() for text in axes.texts if text.get_text()]
    dots = [_pixels(axes, at) for at in dict.fromkeys((*(one.at for one in named), *marks))]
    taken += [Bbox.from_bounds(x - MARK_PX, y - MARK_PX, 2 * MARK_PX, 2 * MARK_PX) for x, y in dots]
    lines = [line.get_transform().transform_path(line.get_path()) for line in axes.lines if len(line.get_path()) > 1]
    left_out = []
    for one in named:
        rivals = [dot for dot in dots if math.dist(dot, _pixels(axes, one.at)) > MARK_PX]
        box = _place(axes, one, taken, rivals, lines) or _place(axes, one, taken, rivals, ())
        if box is None:
            left_out.append(one.text)
        else:
            taken.append(box)
    return left_out


def _pixels(axes: Axes, at: Point) -> Point:
    x, y = axes.transData.transform(at)
    return float(x), float(y)


def _place(axes: Axes, one: Named, taken: Sequence[Bbox], rivals: Sequence[Point], lines: Sequence[Path]) -> Bbox | None:
    """Draw the label at the first free place that is nearer to its mark than to a rival's, and return its box."""
    room, own = axes.get_window_extent(), _pixels(axes, one.at)
    for x, y in PLACES:
        side = "left" if x > 0 else "right" if x else "center"  # of the label, which is next to the mark
        edge = "bottom" if y > 0 else "top" if y else "center"
        how: Any = {"ha": side, "va": edge, "fontsize": 9, "color": one.colour}
        label = axes.annotate(one.text, one.at, (x, y), textcoords="offset points", **how)
        label.set_in_layout(False)
        box = label.get_window_extent().expanded(WIDER, HIGHER)
        inside = room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0 and box.y1 <= room.y1 + 4
        crossed = any(map(box.overlaps, taken)) or any(line.intersects_bbox(box, filled=False) for line in lines)
        if inside and not crossed and all(_distance(box, own) < _distance(box, rival) for rival in rivals):
            return box
        label.remove()
    return None


def _distance(box: Bbox, to: Point) -> float:
    """From the nearest point of ``box``."""
    return math.hypot(max(box.x0 - to[0], to[0] - box.x1, 0.0), max(box.y0 - to[1], to[1] - box.y1, 0.0))


UNNAMED = "\ue000"
"""Begins the ids of a drawing until it has its place on a page."""


def to_inline(figure: Figure, alt: str) -> Markup:
    """The figure as an SVG element without outside references; its ids are those of ``placed``.

    ``alt`` states the finding in words for screen readers.
    """
    buffer = io.StringIO()
    FigureCanvasSVG(figure)  # its text sizes determine the layout
    engine = figure.get_layout_engine()
    with _foreign_letters():
        if engine is not None:
            engine.execute(figure)
            with matplotlib.rc_context({"figure.constrained_layout.use": False}):
                figure.set_layout_engine(None)  # else savefig repeats the layout and draws the figure twice
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</defs>", "", svg, count=1, flags=re.DOTALL)
    head, body = svg[: svg.index(">")], svg[svg.index(">") :]
    svg = re.sub(r'\s(?:xmlns(?::\w+)?|width|height|version)="[^"]*"', "", head) + body
    svg = svg.replace("xlink:href=", "href=")
    svg = _telling(svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{UNNAMED}-", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    for drawn, variable in _VARIABLES.items():
        svg = svg.replace(drawn, f"var(--{variable})")
    return Markup(svg.replace("<svg", f'<svg role="group" aria-label="{escape(alt)}"', 1))


def _telling(svg: str) -> str:
    """Marks that tell their value: the first can be reached by Tab, the others from it by the arrow keys (figures.js)."""
    stops = count()

    def mark(found: re.Match[str]) -> str:
        stop = 0 if next(stops) == 0 else -1
        text = escape(unquote(found[1]))
        return f'<g class="told" role="img" tabindex="{stop}" aria-label="{text}"><title>{text}</title>'

    return re.sub(rf'<g id="{TOLD}([^"]*)">', mark, svg)


MOST_ARMS = 10
"""More arms than this in one drawing cannot be told apart; the table has them all."""


@frozen
class Drawing:
    """An inline SVG with its heading, the finding in words and its marks (measured, predicted, ...)."""

    heading: str
    image: Markup
    caption: str
    marks: tuple[str, ...]


def drawing(
    figure: Figure, heading: str, caption: str, marks: tuple[str, ...], aloud: str = "", replayed: bool = False
) -> Drawing:
    """The finished figure (see ``to_inline``); ``aloud`` is read out in place of the caption."""
    marks += ("replayed",) * replayed
    return Drawing(heading=heading, image=to_inline(figure, aloud or caption), caption=caption, marks=marks)


def placed(drawings: Iterable[Drawing], name: str) -> list[Drawing]:
    """The drawings of a page, their ids made unique by ``name`` and their number."""
    return [replace(one, image=one.image.replace(UNNAMED, f"{name}-{number}")) for number, one in enumerate(drawings)]
