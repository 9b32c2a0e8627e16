"""Seconds per emitted token of a method, from the price of each of its model calls. Knows no method by name."""

from __future__ import annotations

from dataclasses import dataclass

from harness.roofline.ceilings import Ceilings
from harness.roofline.methods.calls import MethodTrace
from harness.roofline.pricing import price_pass


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodPrice:
    """Modelled seconds and bytes per token that a row emits; in a batch, every row emits one in that time.

    ``low_s`` memory and arithmetic overlapped, ``expected_s`` as the ceilings say, ``high_s`` nothing overlapped.
    """

    low_s: float
    expected_s: float
    high_s: float
    bytes_: float

    def speedup_of(self, other: MethodPrice) -> tuple[float, float, float]:
        """(low, expected, high) wall speedup of ``other`` over this one; both overlap alike, or neither does."""
        ends = (self.low_s / other.low_s, self.high_s / other.high_s)
        expected = self.expected_s / other.expected_s
        return min(*ends, expected), expected, max(*ends, expected)


def price_method(trace: MethodTrace, dtype: str, ceilings: Ceilings) -> MethodPrice:
    """Price every call with its sampler and add them up by count.

    Raises:
        UserError: unknown dtype.
    """
    low_s = expected_s = high_s = moved = 0.0
    for call in trace.calls:
        price = price_pass(call.shape, dtype, call.forward_pass, ceilings)
        low_s += call.count_per_token * price.low_s
        expected_s += call.count_per_token * price.expected_s
        high_s += call.count_per_token * price.high_s
        moved += call.count_per_token * price.bytes_
    return MethodPrice(low_s=low_s, expected_s=expected_s, high_s=high_s, bytes_=moved)
