"""Figures that no source gives, over a stated range: what a system costs from one end to the other, and where it beats another.

A range is an assumption and is labelled so. All assumed figures of a system go from their worst end to their best together;
a *share* is how far they are, from 0 to 1. Where both ends are equal, the figure is a setting that is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

from pydantic import Field, model_validator

from harness.config_file import StrictModel, Text
from harness.frozen import frozen
from harness.roofline.methods.calls import MethodTrace
from harness.roofline.pricing import SummedPrice

STEPS = 24
"""Parts of a range that are priced; where it begins to pay is then halved in on."""
HALVINGS = 20


class AssumedFigure(StrictModel):
    """The ends of a range, and why these: ``worst`` and ``best`` for the system's speed."""

    worst: float = Field(ge=0)
    best: float = Field(ge=0)
    why: Text

    @model_validator(mode="after")
    def _labelled(self) -> Self:
        if not self.why.startswith("assumption: "):
            raise ValueError(f"got the reason {self.why!r}; it begins with 'assumption: ', since no source gives the figure")
        return self

    def at(self, share: float) -> float:
        """The figure at a share of the way from the worst end to the best."""
        return self.worst + share * (self.best - self.worst)


def figures_at(assumed: Mapping[str, AssumedFigure], share: float) -> dict[str, float]:
    """Every assumed figure at that share."""
    return {name: figure.at(share) for name, figure in assumed.items()}


@frozen
class PricedRange:
    """A system at the worst and the best end, and the prices between. ``faster``: spans of shares where it beats the other
    system by expected seconds per token; None where it is compared with none.
    """

    worst: MethodTrace
    best: MethodTrace
    prices: tuple[SummedPrice, ...]
    faster: tuple[tuple[float, float], ...] | None


def priced_range(
    trace: Callable[[float], MethodTrace],
    price: Callable[[MethodTrace], SummedPrice],
    other: Callable[[float], SummedPrice] | None,
) -> PricedRange:
    """Price ``trace`` at shares from 0 to 1; ``other``: the price to beat at a share."""
    shares = [step / STEPS for step in range(STEPS + 1)]
    return PricedRange(
        worst=trace(0.0),
        best=trace(1.0),
        prices=tuple(price(trace(share)) for share in shares),
        faster=None if other is None else spans(lambda share: price(trace(share)).expected_s < other(share).expected_s, shares),
    )


def spans(holds: Callable[[float], bool], shares: list[float]) -> tuple[tuple[float, float], ...]:
    """(from, to) of every stretch of the rising ``shares`` on which ``holds``; ends between two shares are halved in on."""
    found: list[tuple[float, float]] = []
    begun: float | None = None
    held = [holds(share) for share in shares]
    for number, (share, now) in enumerate(zip(shares, held, strict=True)):
        if now and begun is None:
            begun = share if number == 0 else _turn(holds, shares[number - 1], share)
        elif not now and begun is not None:
            found.append((begun, _turn(holds, share, shares[number - 1])))
            begun = None
    return (*found, (begun, shares[-1])) if begun is not None else tuple(found)


def _turn(holds: Callable[[float], bool], outside: float, inside: float) -> float:
    """The end of a stretch, where it still holds."""
    for _ in range(HALVINGS):
        middle = (outside + inside) / 2
        outside, inside = (outside, middle) if holds(middle) else (middle, inside)
    return inside
