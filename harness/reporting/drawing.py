"""What a figure is to the page: a drawing, its finding in words, and on what kind of figures it rests."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

MOST_ARMS = 10
"""More arms than this in one drawing cannot be told apart; the table has them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """An inline SVG with its heading, the finding in words and the marks (measured, predicted, ...) that hold for it."""

    heading: str
    image: Markup
    caption: str
    marks: tuple[str, ...]
