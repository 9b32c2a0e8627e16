"""What a forward pass, or a whole recorded trace, must cost on given ceilings.

Each operation needs a memory time (bytes / bandwidth) and a compute time (flops / matrix rate). Overlapped it takes the
longer of the two, in sequence their sum; the truth lies between, max + (1 - overlap) * min, or above where the two hinder
each other (stall). Traffic between devices comes on top, in sequence. Knows no clock and no record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from harness.deployment import Deployment
from harness.errors import UnknownHardwareError
from harness.modelshape import ModelShape
from harness.roofline.arrays import choose, larger, smaller
from harness.roofline.ceilings import Ceilings
from harness.roofline.operation import Operation, PassCounts
from harness.roofline.ops import count_operations, forward_operations, sampler_operation
from harness.trace import ForwardPass


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCost:
    """Price of one operation: seconds on the memory side, the arithmetic side and the link, and the three ways to add them."""

    name: str
    bytes_: float
    flops: float
    memory_s: float
    compute_s: float
    link_s: float
    low_s: float
    expected_s: float
    high_s: float

    @property
    def bound(self) -> Literal["memory", "compute"]:
        """Which side is the longer one."""
        return "memory" if self.memory_s >= self.compute_s else "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPrice:
    """Price of one pass or of a trace on one device, in seconds, with the sampler that follows each forward.

    ``low_s``       memory and arithmetic fully overlapped
    ``expected_s``  overlapped as the ceilings say
    ``high_s``      nothing overlapped, stalls included
    ``forward_s``   the part of ``expected_s`` that is the forward itself
    ``fixed_s``     cost that is neither bytes nor flops; 0 where the ceilings know none
    ``bytes_``, ``flops``, ``operations`` describe the forward; ``sampler`` stands apart (None: no logits were wanted).

    Of a mixture of experts bytes are expectations, so they need not be whole numbers.
    """

    low_s: float
    expected_s: float
    high_s: float
    forward_s: float
    fixed_s: float
    bytes_: float
    flops: float
    operations: tuple[OperationCost, ...]
    sampler: OperationCost | None

    @property
    def sampler_s(self) -> float:
        """The part of ``expected_s`` that is not the forward."""
        return self.expected_s - self.forward_s


def pass_bytes(shape: ModelShape, deployment: Deployment | str, forward_pass: ForwardPass) -> float:
    """Modelled bytes of one forward pass (weights, KV read and written, activations), without the sampler."""
    return sum(operation.bytes_ for operation in forward_operations(shape, deployment, forward_pass))


def price_pass(shape: ModelShape, deployment: Deployment | str, forward_pass: ForwardPass, ceilings: Ceilings) -> PassPrice:
    """Price one recorded pass: see price_counts.

    Raises:
        UserError: unknown dtype, or heads that cannot be split over the devices.
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    return price_counts(shape, deployment, PassCounts.of(forward_pass), ceilings)


def price_counts(shape: ModelShape, deployment: Deployment | str, counts: PassCounts, ceilings: Ceilings) -> PassPrice:
    """Price one pass on each of the devices that share it. A dtype for ``deployment``: everything in it, on one device.

    Raises:
        UserError: unknown dtype, or heads that cannot be split over the devices.
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    operations = tuple(_cost(operation, ceilings) for operation in count_operations(shape, deployment, counts))
    sampler = sampler_operation(shape, counts)
    sampler_cost = None if sampler is None else _cost(sampler, ceilings)
    fixed_s = (ceilings.fixed_s_per_pass or 0.0) + shape.layers * (ceilings.fixed_s_per_layer or 0.0)
    low_s, expected_s, high_s = _sides(operations)
    sampler_low_s, sampler_s, sampler_high_s = _sides(() if sampler_cost is None else (sampler_cost,))
    hidden = ceilings.fixed_hidden
    forward_s = larger(fixed_s, expected_s) if hidden else fixed_s + expected_s
    return PassPrice(
        low_s=(larger(fixed_s, low_s) if hidden else fixed_s + low_s) + sampler_low_s,
        expected_s=forward_s + sampler_s,
        high_s=fixed_s + high_s + sampler_high_s,
        forward_s=forward_s,
        fixed_s=fixed_s,
        bytes_=sum(operation.bytes_ for operation in operations),
        flops=sum(operation.flops for operation in operations),
        operations=operations,
        sampler=sampler_cost,
    )


def price_trace(
    shape: ModelShape, deployment: Deployment | str, passes: Iterable[ForwardPass], ceilings: Ceilings
) -> PassPrice:
    """Sum over the passes; operations of the same name are added up. An empty trace costs 0.

    Raises:
        UserError, UnknownHardwareError: as price_counts.
    """
    known: dict[PassCounts, PassPrice] = {}
    prices = []
    for counts in map(PassCounts.of, passes):
        if counts not in known:
            known[counts] = price_counts(shape, deployment, counts, ceilings)
        prices.append(known[counts])
    samplers = [price.sampler for price in prices if price.sampler is not None]
    return PassPrice(
        low_s=sum(price.low_s for price in prices),
        expected_s=sum(price.expected_s for price in prices),
        high_s=sum(price.high_s for price in prices),
        forward_s=sum(price.forward_s for price in prices),
        fixed_s=sum(price.fixed_s for price in prices),
        bytes_=sum(price.bytes_ for price in prices),
        flops=sum(price.flops for price in prices),
        operations=_added(operation for price in prices for operation in price.operations),
        sampler=_added(samplers)[0] if samplers else None,
    )


def _cost(operation: Operation, ceilings: Ceilings) -> OperationCost:
    memory_s = operation.bytes_ / ceilings.bandwidth_bytes_per_s
    if operation.kind == "sampler" and ceilings.sampler_s_per_logit is not None:
        memory_s = operation.logits * ceilings.sampler_s_per_logit  # measured as a whole, so it is not split further
    compute_s = operation.flops / ceilings.matrix_flops_per_s(operation.tokens)
    longer, shorter = larger(memory_s, compute_s), smaller(memory_s, compute_s)
    overlap = 1.0 if ceilings.overlap is None else ceilings.overlap
    # Memory and arithmetic can only hinder each other where there are both.
    stall = choose(operation.flops > 0, ceilings.stall, 1.0)
    link_s = _link_s(operation, ceilings)
    return OperationCost(
        name=operation.name,
        bytes_=operation.bytes_,
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
            "it; choose one device, or a profile with link_bytes_per_s"
        )
    return operation.link_bytes / ceilings.link_bytes_per_s


def _sides(costs: tuple[OperationCost, ...]) -> tuple[float, float, float]:
    return sum(cost.low_s for cost in costs), sum(cost.expected_s for cost in costs), sum(cost.high_s for cost in costs)


def _added(costs: Iterable[OperationCost]) -> tuple[OperationCost, ...]:
    by_name: dict[str, list[OperationCost]] = {}
    for cost in costs:
        by_name.setdefault(cost.name, []).append(cost)
    fields = ("bytes_", "flops", "memory_s", "compute_s", "link_s", "low_s", "expected_s", "high_s")
    return tuple(
        OperationCost(name=name, **{field: sum(getattr(cost, field) for cost in same) for field in fields})
        for name, same in by_name.items()
    )
