"""An interval as a small picture: a bar with its value, the limits it is held against, and the side of them that is asked.

Drawn for a column of one width, so that its text is as large on a phone as on a desk. Knows no claim: it is handed numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from harness.analysis.stats.quantity import Quantity

WIDTH, HEIGHT, EDGE = 260.0, 40.0, 10.0
MIDDLE, TEXT = 13.0, 36.0
LETTER = 6.2
"""About the width of a letter of the labels, in units of the drawing."""
Ends = tuple[float, float]
"""The least and the greatest value of the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an interval is held against: the least and the most it may be, and a value that is worth a line (NTP is 1)."""

    low: float | None = None
    high: float | None = None
    reference: tuple[float, str] | None = None

    @property
    def values(self) -> list[float]:
        """Every value that must be on the axis."""
        found = [self.low, self.high, self.reference[0] if self.reference else None]
        return [value for value in found if value is not None]


def ends_of(shown: Sequence[tuple[Quantity, Limits]], from_zero: bool) -> Ends:
    """An axis that holds all of these, with some room at the sides; begins at 0 where that is the natural end."""
    values = [x for quantity, limits in shown for x in (quantity.value, quantity.low, quantity.high, *limits.values)]
    known = [x for x in values if x is not None] or [0.0, 1.0]
    low, high = min(known), max(known)
    room = 0.12 * ((high - low) or abs(high) or 1.0)
    return (0.0 if from_zero and low >= 0 else low - room), high + room


def interval_bar(quantity: Quantity, limits: Limits, ends: Ends, write: Callable[[float], str], said: str) -> Markup:
    """The picture; ``said`` states the finding in words and is read out in its stead."""
    start, end = ends

    def at(value: float) -> float:
        return EDGE + (WIDTH - 2 * EDGE) * (value - start) / (end - start)

    parts = [_allowed(limits, at), f'<line class="axis" x1="{EDGE}" x2="{WIDTH - EDGE}" y1="{MIDDLE}" y2="{MIDDLE}"/>']
    labels: list[tuple[float, str]] = []
    for sign, limit in (("≥", limits.low), ("≤", limits.high)):
        if limit is not None:
            parts.append(_upright("limit", at(limit)))
            labels.append((at(limit), f"{sign} {write(limit)}"))
    if limits.reference is not None:
        parts.append(_upright("reference", at(limits.reference[0])))
        labels.append((at(limits.reference[0]), limits.reference[1]))
    if quantity.low is not None and quantity.high is not None:
        left, wide = at(quantity.low), max(at(quantity.high) - at(quantity.low), 1)
        parts.append(f'<rect class="interval" x="{left:.1f}" y="{MIDDLE - 3.5}" width="{wide:.1f}" height="7"/>')
    if quantity.value is not None:
        parts.append(f'<circle class="value" cx="{at(quantity.value):.1f}" cy="{MIDDLE}" r="5"/>')
    parts += _labels(labels)
    box = f'class="bar" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(said)}"'
    return Markup(f"<svg {box}>{''.join(parts)}</svg>")


def _allowed(limits: Limits, at: Callable[[float], float]) -> str:
    """The side of the limits that is asked for, as a shaded ground."""
    if limits.low is None and limits.high is None:
        return ""
    left = EDGE if limits.low is None else at(limits.low)
    right = WIDTH - EDGE if limits.high is None else at(limits.high)
    return f'<rect class="asked" x="{left:.1f}" y="2" width="{right - left:.1f}" height="{2 * (MIDDLE - 2)}"/>'


def _upright(kind: str, x: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="1" y2="{2 * MIDDLE - 1}"/>'


def _labels(labels: Sequence[tuple[float, str]]) -> list[str]:
    """The labels under the axis, kept inside the drawing; the later of two that would touch is left out."""
    drawn: list[tuple[float, float]] = []
    found = []
    for x, text in labels:
        half = LETTER * len(text) / 2
        middle = min(max(x, half), WIDTH - half)
        if any(abs(middle - other) < half + taken + 4 for other, taken in drawn):
            continue
        drawn.append((middle, half))
        found.append(f'<text x="{middle:.1f}" y="{TEXT}" text-anchor="middle">{escape(text)}</text>')
    return found
