"""One style for every figure, SVG from matplotlib inside the page, and a figure with its finding and its basis.

Colours are CSS variables, so the page's light and dark themes apply to figures too. Knows no data.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

matplotlib.use("svg")

# Okabe and Ito's palette, safe for the common kinds of colour blindness. Keys are matplotlib's colours.
INK, MUTED, FAINT = "#111213", "#6b6c6d", "#d1d2d3"
BLUE, VERMILION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
SERIES = (VERMILION, GREEN, PURPLE, BLUE)
RUNGS = {"shape-calibrated": GREEN, "calibrated": PURPLE, "datasheet": MUTED}
"""One colour per rung of ceilings, the same in every figure; NTP is blue and SBD vermilion."""
_VARIABLES = {
    INK: "ink", MUTED: "muted", FAINT: "faint", BLUE: "blue", VERMILION: "vermilion", GREEN: "green", PURPLE: "purple",
}  # fmt: skip
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


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the house style and leave matplotlib's settings as they were."""
    with matplotlib.rc_context(STYLE):
        yield


@contextmanager
def new_axes(height_in: float = 3.4) -> Iterator[tuple[Figure, Axes]]:
    """A figure outside global state, with one pair of axes, drawn in the house style.

    Text of 9 to 10 points has 11 to 12 pixels on the narrowest page.
    """
    with styled():
        figure = Figure(figsize=(6.4, height_in))
        yield figure, figure.add_subplot()


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows 0, 1, ... in place of the vertical axis; without names, the lines carry theirs as text."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def log_ticks(axis: Axis, ticks: Sequence[float], suffix: str = "") -> None:
    """Label a logarithmic axis at those of these places that it shows."""
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}{suffix}"))
    axis.set_minor_locator(NullLocator())


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The same places, moved up until they are ``gap`` apart, for labels that would overlap."""
    moved = list(places)
    order = sorted(range(len(moved)), key=lambda i: moved[i])
    for below, above in pairwise(order):
        moved[above] = max(moved[above], moved[below] + gap)
    return moved


def to_inline(figure: Figure, name: str, alt: str) -> Markup:
    """The figure as an SVG element without outside references; ``name`` makes its ids unique.

    ``alt`` states the finding in words for screen readers.
    """
    buffer = io.StringIO()
    FigureCanvasSVG(figure)  # its text sizes determine the layout
    engine = figure.get_layout_engine()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a foreign letter that the font lacks stays empty
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
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    for drawn, variable in _VARIABLES.items():
        svg = svg.replace(drawn, f"var(--{variable})")
    title = f'<title id="{name}-title">{escape(alt)}</title>'
    svg = svg.replace("<svg", f'<svg role="img" aria-labelledby="{name}-title"', 1)
    return Markup(svg[: svg.index(">") + 1] + title + svg[svg.index(">") + 1 :])


MOST_ARMS = 10
"""More arms than this in one drawing cannot be told apart; the table has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """An inline SVG with its heading, the finding in words and its marks (measured, predicted, ...)."""

    heading: str
    image: Markup
    caption: str
    marks: tuple[str, ...]


def drawing(figure: Figure, name: str, heading: str, caption: str, marks: tuple[str, ...], aloud: str = "") -> Drawing:
    """The finished figure (see ``to_inline``); ``aloud`` is read out in place of the caption."""
    return Drawing(heading=heading, image=to_inline(figure, name, aloud or caption), caption=caption, marks=marks)
