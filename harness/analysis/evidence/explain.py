"""The values of a comparison that explain a speedup, in the order of explanation and ready to be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from itertools import accumulate
from operator import mul

from harness.analysis.judge.verdict import QUESTION
from harness.analysis.results import ArmResult, Cell, Comparison
from harness.analysis.tally.pass_values import PassWidth
from harness.frozen import frozen
from harness.stats.quantity import Quantity, quotient

CLAIMED = {"wall_speedup": "faster by the clock", "nfe_speedup": "fewer forward passes"}
"""Metrics of claims that state a factor; of several the first one here is drawn."""
STEPS = ("fewer passes", "rows that wait", "cost of a pass", "sampler and loop")
"""The fields of Factors, in their order."""


@frozen
class Claimed:
    """The least that a claim states, and of which metric; ``source`` None: no author is named."""

    metric: str
    at_least: float
    source: str | None

    @property
    def words(self) -> str:
        """``at least 3x fewer forward passes``."""
        return f"at least {self.at_least:g}x {CLAIMED[self.metric]}"


@frozen
class Step:
    """One factor of the wall speedup, and the speedup before and after it."""

    name: str
    factor: float
    before: float
    after: float


@frozen
class Waterfall:
    """From 1x, the speed of NTP, to the measured wall speedup, factor by factor, each a geometric mean over prompts.

    The last step ends exactly at ArmResult.factors.product; ``measured`` is the same speedup with its interval.
    """

    arm: ArmResult
    batch_size: int
    claimed: Claimed | None
    steps: tuple[Step, ...]
    measured: Quantity

    @property
    def product(self) -> float:
        """Product of the steps."""
        return self.steps[-1].after


@frozen
class RooflinePoint:
    """One kind of pass on the roofline: modelled flops per byte, FLOP/s measured and (by PRICES) predicted."""

    width: PassWidth
    batch_size: int
    intensity_flops_per_byte: float
    attained_flops_per_s: Quantity
    predicted_flops_per_s: dict[str, float]


@frozen
class Residual:
    """One arm by one price: the wall speedup (geometric mean over prompts), measured and predicted.

    Errors are predicted ÷ measured - 1. ``time_error`` is that of the decode time, which NTP has too. ``price``: one of PRICES.
    ``size``: the batch size or the load, in words.
    """

    arm: ArmResult
    batch_size: int
    size: str
    price: str
    measured: Quantity
    predicted: Quantity
    speedup_error: float | None
    time_error: float | None


def waterfall(cell: Cell, arm: ArmResult, claimed: Claimed | None = None) -> Waterfall | None:
    """None where the factors of the arm are not known."""
    if arm.factors is None:
        return None
    factors = astuple(arm.factors)
    levels = [1.0, *accumulate(factors, mul)]
    steps = tuple(
        Step(name=name, factor=factor, before=before, after=after)
        for name, factor, before, after in zip(STEPS, factors, levels, levels[1:], strict=False)
    )
    return Waterfall(arm=arm, batch_size=cell.batch_size, claimed=claimed, steps=steps, measured=arm.wall_speedup)


def claimed_of(comparison: Comparison, cell: Cell, arm: ArmResult) -> Claimed | None:
    """The claim that this arm of this cell was judged by: of the scenario, else the paper's and ours, else None."""
    judged = comparison.judgements
    found = [
        Claimed(metric=bound.metric, at_least=bound.min, source=claim.source)
        for claim, judgement in zip(judged.claims, judged.judgements, strict=True)
        if claim is not QUESTION and judgement.cell == cell.names | {"arm": arm.label}
        for bound in claim.bounds
        if bound.metric in CLAIMED and bound.min is not None
    ]
    return min(found, key=lambda one: list(CLAIMED).index(one.metric), default=None)


def roofline_points(cells: Sequence[Cell]) -> list[RooflinePoint]:
    """Every kind of pass that was timed, of all batch sizes of a part."""
    return [
        RooflinePoint(
            width=width,
            batch_size=cell.batch_size,
            intensity_flops_per_byte=width.intensity_flops_per_byte,
            attained_flops_per_s=width.attained_flops_per_s,
            predicted_flops_per_s={rung: width.flops / price.value for rung, price in width.predicted_s.items() if price.value},
        )
        for cell in cells
        for width in cell.pass_widths
        if width.attained_flops_per_s.value is not None and width.bytes_ > 0
    ]


def residuals(cells: Sequence[Cell]) -> list[Residual]:
    """Every arm that was predicted, NTP included, by every price, ex-ante ones first."""
    return [
        Residual(
            arm=arm,
            batch_size=cell.batch_size,
            size=cell.size_words,
            price=one.price,
            measured=arm.wall_speedup,
            predicted=one.wall_speedup,
            speedup_error=None if arm.is_ntp else one.wall_speedup_error.value,
            time_error=one.decode_error.value,
        )
        for cell in cells
        for arm in cell.arms
        for one in arm.predictions
        if arm.wall_speedup.value is not None and one.wall_speedup.value is not None
    ]


@frozen
class Bandwidth:
    """Bytes per second of one arm's forwards: modelled, counted by the device, and the read ceiling; absent ones say why."""

    arm: ArmResult
    batch_size: int
    modelled: Quantity
    measured: Quantity
    ceiling: Quantity


def bandwidths(cells: Sequence[Cell]) -> list[Bandwidth]:
    """Of every timed arm; the ceiling is the divisor of ArmResult.ceiling_share."""
    return [
        Bandwidth(
            arm=arm,
            batch_size=cell.batch_size,
            modelled=arm.modelled_bandwidth_bytes_per_s,
            measured=arm.measured_bandwidth_bytes_per_s,
            ceiling=quotient(arm.modelled_bandwidth_bytes_per_s, arm.ceiling_share, "no ceiling", arm.ceiling_share.method),
        )
        for cell in cells
        for arm in cell.arms
        if arm.modelled_bandwidth_bytes_per_s.value is not None
    ]
