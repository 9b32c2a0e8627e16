"""What a forward pass, or a whole recorded trace, must cost on given ceilings.

Each operation needs a memory time (bytes / bandwidth) and a compute time (flops / matrix rate). Overlapped it takes the
longer of the two, in sequence their sum. The expected time is max + (1 - overlap) * min, times the stall factor where the
two hinder each other. Where no overlap was measured the expected time is the middle of the two ends. Traffic between devices
comes on top, in sequence: bytes / link rate, and a latency for every transfer that waits for another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import add
from typing import Any

from harness.errors import UnknownHardwareError
from harness.frozen import frozen
from harness.models import ModelShape
from harness.models.deployment import Deployment, as_deployment
from harness.record.trace import ForwardPass
from harness.roofline.ceilings import Ceilings, PassFactors
from harness.roofline.operation import Operation, PassCounts, choose, interpolate, larger, smaller
from harness.roofline.operations import Groups, batch_lines, count_operations, groups_of, sampler_operation

UNMEASURED_OVERLAP = 0.5
"""Nobody measured it: half way between memory and arithmetic side by side and one after the other."""
Sides = tuple[float, float, float]
"""Seconds: memory and arithmetic fully overlapped, as expected, not overlapped."""
ATTENTION = "attention"


@frozen
class OperationCost:
    """Price of one operation: seconds on the memory side, the arithmetic side and the link, and their three sums."""

    name: str
    bytes_: float
    flops: float
    memory_s: float
    compute_s: float
    link_s: float
    low_s: float
    expected_s: float
    high_s: float


@frozen
class PassPrice:
    """Price of one pass or of a trace on one device, in seconds, with what follows each forward.

    ``forward``   of the forward itself: with memory and arithmetic fully overlapped, as the ceilings expect, and with nothing
                  overlapped; on the top rung the range of these around measured passes
    ``after``     the same of what follows it: the sampler, on the top rung the loop too
    ``fixed_s``   cost that is neither bytes nor flops; 0 where the ceilings know none
    ``bytes_`` cross to the device's memory; they, ``flops`` and ``operations`` describe the forward; ``sampler`` stands apart
    (None: no logits were wanted).

    Of a mixture of experts bytes are expectations, so they need not be whole numbers.
    """

    forward: Sides
    after: Sides
    fixed_s: float
    bytes_: float
    flops: float
    operations: tuple[OperationCost, ...]
    sampler: OperationCost | None

    @property
    def low_s(self) -> float:
        """The whole pass at its fastest."""
        return self.forward[0] + self.after[0]

    @property
    def expected_s(self) -> float:
        """The whole pass as expected."""
        return self.forward[1] + self.after[1]

    @property
    def high_s(self) -> float:
        """The whole pass at its slowest."""
        return self.forward[2] + self.after[2]

    @property
    def forward_s(self) -> float:
        """The part of ``expected_s`` that is the forward itself."""
        return self.forward[1]

    @property
    def sampler_s(self) -> float:
        """The part of ``expected_s`` that is not the forward."""
        return self.after[1]


def price_pass(shape: ModelShape, deployment: Deployment | str, forward_pass: ForwardPass, ceilings: Ceilings) -> PassPrice:
    """Price one recorded pass: see price_counts, also for its errors."""
    return price_counts(shape, deployment, PassCounts.of(forward_pass), ceilings)


def price_counts(shape: ModelShape, deployment: Deployment | str, counts: Groups, ceilings: Ceilings) -> PassPrice:
    """Price one pass on each of the devices that share it. A dtype for ``deployment``: everything in it, on one device.

    Several groups of rows make one pass (harness.roofline.operations).

    Raises:
        UserError: unknown dtype, or heads that cannot be split over the devices.
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    deployed = as_deployment(deployment)
    lines = batch_lines(counts, deployed)
    counted = count_operations(shape, deployed, counts, visited_experts=ceilings.visited_experts(shape, lines))
    operations = tuple(_cost(operation, ceilings.for_weights(deployed, operation.name)) for operation in counted)
    sampler = sampler_operation(shape, counts, deployed.pipeline_parallel)
    sampler_cost = None if sampler is None else _cost(sampler, ceilings)
    fixed_s = ceilings.fixed_s(shape, deployed)
    low_s, expected_s, high_s = _sides(operations)
    beside = larger if ceilings.fixed_hidden else add
    forward: Sides = (beside(fixed_s, low_s), beside(fixed_s, expected_s), fixed_s + high_s)
    after = _sides(() if sampler_cost is None else (sampler_cost,))
    if ceilings.factors is not None:
        forward, after = _by_factors(forward, operations, _joined(counts), ceilings.factors)
    return PassPrice(
        forward=forward,
        after=after,
        fixed_s=fixed_s,
        bytes_=sum(operation.bytes_ for operation in operations),
        flops=sum(operation.flops for operation in operations),
        operations=operations,
        sampler=sampler_cost,
    )


@frozen
class SummedPrice:
    """Modelled seconds, bytes and flops of passes, each as often as it is expected. Numbers, or arrays of a grid.

    ``low_s`` memory and arithmetic overlapped, ``expected_s`` as the ceilings say, ``high_s`` nothing overlapped.
    """

    low_s: Any
    expected_s: Any
    high_s: Any
    bytes_: Any
    flops: Any

    def speedup_of(self, other: SummedPrice) -> tuple[float, float, float]:
        """(low, expected, high) wall speedup of ``other`` over this one; both overlap alike, or neither does."""
        ends = (self.low_s / other.low_s, self.high_s / other.high_s)
        expected = self.expected_s / other.expected_s
        return min(*ends, expected), expected, max(*ends, expected)


def sum_prices(prices: Iterable[tuple[Any, PassPrice | SummedPrice]]) -> SummedPrice:
    """The sum of prices, each times its expected count; nothing for no price."""
    counted = list(prices)
    low_s, expected_s, high_s, moved, flops = (
        sum((count * getattr(price, name) for count, price in counted), 0.0)
        for name in ("low_s", "expected_s", "high_s", "bytes_", "flops")
    )
    return SummedPrice(low_s=low_s, expected_s=expected_s, high_s=high_s, bytes_=moved, flops=flops)


def _cost(operation: Operation, ceilings: Ceilings) -> OperationCost:
    moved = operation.memory_bytes(ceilings.cache_bytes)
    memory_s = moved / ceilings.bandwidth_bytes_per_s
    if operation.kind == "attention" and ceilings.attention_bytes_per_s is not None:
        memory_s = moved / ceilings.attention_bytes_per_s
    if operation.kind == "sampler" and ceilings.sampler_s_per_logit is not None:
        memory_s = operation.logits * ceilings.sampler_s_per_logit  # measured as a whole, so it is not split further
    rate = ceilings.matrix_flops_per_s(operation.tokens)
    if operation.kind == "attention":
        rate = ceilings.attention_flops_per_s(operation.tokens, operation.sharing)
    compute_s = operation.flops / rate
    longer, shorter = larger(memory_s, compute_s), smaller(memory_s, compute_s)
    overlap = UNMEASURED_OVERLAP if ceilings.overlap is None else ceilings.overlap
    # Only an operation with arithmetic can stall: memory and arithmetic hinder each other.
    stall = choose(operation.flops > 0, ceilings.stall, 1.0)
    link_s = _link_s(operation, ceilings)
    return OperationCost(
        name=operation.name,
        bytes_=moved,
        flops=operation.flops,
        memory_s=memory_s,
        compute_s=compute_s,
        link_s=link_s,
        low_s=longer + link_s,
        expected_s=stall * (longer + (1 - overlap) * shorter) + link_s,
        high_s=stall * (longer + shorter) + link_s,
    )


def _link_s(operation: Operation, ceilings: Ceilings) -> float:
    if operation.kind != "link":
        return 0.0
    if ceilings.link_bytes_per_s is None:
        raise UnknownHardwareError(
            f"the ceilings of {ceilings.device_name!r} have no link rate, so a model split over devices cannot be priced on "
            "it; name the link (--link pcie5, or GB/s in one direction), or choose one device"
        )
    # A fitted latency of all-reduces is part of the fixed cost.
    latency_s = ceilings.link_latency_s if ceilings.all_reduce_s is None else 0.0
    return operation.link_bytes / ceilings.link_bytes_per_s + operation.link_hops * latency_s


def _by_factors(
    forward: Sides, operations: tuple[OperationCost, ...], counts: PassCounts, factors: PassFactors
) -> tuple[Sides, Sides]:
    """Forward and what follows it, corrected by measured passes (see PassFactors).

    The band is the range of the three overlaps, each with its own factor, widened by the spread of the measured passes.
    """
    attention = _sides(tuple(cost for cost in operations if cost.name == ATTENTION))
    by_lines = (factors.overlapped, factors.expected, factors.serial)
    low_s, expected_s, high_s = (
        own + interpolate(points, counts.lines) * (whole - own)
        for whole, own, points in zip(forward, attention, by_lines, strict=True)
    )
    shortest, longest = factors.spread_at(counts.lines)
    after_s = factors.after_s(counts)
    return (
        shortest * smaller(expected_s, smaller(low_s, high_s)),
        expected_s,
        longest * larger(expected_s, larger(low_s, high_s)),
    ), (after_s, after_s, after_s)


def _joined(counts: Groups) -> PassCounts:
    """Several groups as one with the same lines, for corrections that know only lines and logits."""
    first, *others = groups_of(counts)
    if not others:
        return first
    groups = (first, *others)
    rows: Any = sum(group.rows for group in groups)  # a mean row has a broken number of lines, as a grid may have of rows
    lines, logits = sum(group.lines for group in groups), sum(group.logit_lines for group in groups)
    return PassCounts(rows=rows, query=lines / rows, context=first.context, logits=logits / rows, kept=0)


def _sides(costs: tuple[OperationCost, ...]) -> Sides:
    sides = ("low_s", "expected_s", "high_s")
    low_s, expected_s, high_s = (sum((getattr(cost, side) for cost in costs), 0.0) for side in sides)
    return low_s, expected_s, high_s
