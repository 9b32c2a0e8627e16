"""Values of single passes in a comparison: time, bytes and flops of each kind, and the rates of the machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.frozen import frozen
from harness.scenario.metrics import PRICES
from harness.stats.quantity import Quantity

EX_ANTE_SHAPE, *_, DURING_RUN = PRICES
"""The top rung is priced twice: from the passes measured before the first sample of the part, and from all of them."""


def rung_of(price: str) -> str:
    """The rung of ceilings behind a price."""
    return DURING_RUN if price == EX_ANTE_SHAPE else price


def price_words(price: str) -> str:
    """The reader's name of a price: its rung, and on the top one what was known."""
    return {EX_ANTE_SHAPE: "shape-calibrated, ex-ante", DURING_RUN: "shape-calibrated during the run"}.get(price, price)


def reasons_in_words(reasons: Mapping[str, str]) -> dict[str, str]:
    """Why prices are absent, by their words; once where both of the top rung are absent for the same reason."""
    alike = reasons.get(EX_ANTE_SHAPE) == reasons.get(DURING_RUN)
    return {(rung_of(price) if alike else price_words(price)): why for price, why in reasons.items()}


def one_a_rung(prices: Iterable[str]) -> list[str]:
    """Each rung once, the top one ex-ante where it has both: for a figure with one line per rung."""
    found = list(prices)
    return [price for price in found if price != DURING_RUN or EX_ANTE_SHAPE not in found]


@frozen
class PassWidth:
    """One kind of decode pass: its method, its role (``draft by NAME`` for a draft model), and the query tokens of each row.

    ``measured_s`` is the median with the quartiles, ``predicted_s`` by PRICES the mean price with its band. ``cost`` is the
    measured median over the median NTP pass of the same batch. ``bytes_`` and ``flops`` are modelled means of a pass without
    its sampler. ``attained_flops_per_s`` is modelled flops ÷ measured time, pass by pass: median and quartiles.
    """

    method: str
    role: str
    query_tokens: int
    count: int
    measured_s: Quantity
    predicted_s: dict[str, Quantity]
    cost: Quantity
    predicted_cost: dict[str, Quantity]
    bytes_: float
    flops: float
    attained_flops_per_s: Quantity

    @property
    def intensity_flops_per_byte(self) -> float:
        """Arithmetic intensity (Williams, Waterman and Patterson 2009): modelled flops over modelled bytes."""
        return self.flops / self.bytes_


@frozen
class PassCurve:
    """The roofline over query tokens per row, at the run's context and batch: points (tokens, low, expected, high).

    ``rung``: one of PRICES.
    """

    rung: str
    context_tokens: int
    points: tuple[tuple[int, float, float, float], ...]


@frozen
class Roof:
    """The ceilings of one rung: memory rate, and matrix rate by the lines of the matrices (tokens, FLOP/s)."""

    rung: str
    device_name: str
    bandwidth_bytes_per_s: float
    matrix_rates: tuple[tuple[int, float], ...]

    @property
    def peak_flops_per_s(self) -> float:
        """The highest matrix rate."""
        return max(rate for _, rate in self.matrix_rates)

    @property
    def ridge_flops_per_byte(self) -> float:
        """The intensity above which arithmetic limits instead of memory, at the highest matrix rate."""
        return self.peak_flops_per_s / self.bandwidth_bytes_per_s
