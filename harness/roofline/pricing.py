"""What a forward pass, or a whole recorded trace, must cost on given ceilings.

Each operation needs a memory time (bytes / bandwidth) and a compute time (flops / matrix rate). Overlapped it takes the
longer of the two, in sequence their sum; the truth lies between, max + (1 - overlap) * min, or above where the two hinder
each other (stall). Knows no clock and no record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from harness.modelshape import ModelShape
from harness.roofline.ceilings import Ceilings
from harness.roofline.ops import Operation, forward_operations, sampler_operation
from harness.trace import ForwardPass


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCost:
    """Price of one operation: seconds on the memory side and the arithmetic side, and the three ways to add them."""

    name: str
    bytes_: int
    flops: int
    memory_s: float
    compute_s: float
    low_s: float
    expected_s: float
    high_s: float

    @property
    def bound(self) -> Literal["memory", "compute"]:
        """Which side is the longer one."""
        return "memory" if self.memory_s >= self.compute_s else "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPrice:
    """Price of one pass or of a trace, in seconds, with the sampler that follows each forward.

    ``low_s``       memory and arithmetic fully overlapped
    ``expected_s``  overlapped as the ceilings say
    ``high_s``      nothing overlapped, stalls included
    ``forward_s``   the part of ``expected_s`` that is the forward itself
    ``fixed_s``     cost that is neither bytes nor flops; 0 where the ceilings know none
    ``bytes_``, ``flops``, ``operations`` describe the forward; ``sampler`` stands apart (None: no logits were wanted).
    """

    low_s: float
    expected_s: float
    high_s: float
    forward_s: float
    fixed_s: float
    bytes_: int
    flops: int
    operations: tuple[OperationCost, ...]
    sampler: OperationCost | None

    @property
    def sampler_s(self) -> float:
        """The part of ``expected_s`` that is not the forward."""
        return self.expected_s - self.forward_s


def pass_bytes(shape: ModelShape, dtype: str, forward_pass: ForwardPass) -> int:
    """Modelled bytes of one forward pass (weights, KV read and written, activations), without the sampler."""
    return sum(operation.bytes_ for operation in forward_operations(shape, dtype, forward_pass))


def price_pass(shape: ModelShape, dtype: str, forward_pass: ForwardPass, ceilings: Ceilings) -> PassPrice:
    """Price one pass.

    Raises:
        UserError: unknown dtype.
    """
    operations = tuple(_cost(operation, ceilings) for operation in forward_operations(shape, dtype, forward_pass))
    sampler = sampler_operation(shape, forward_pass)
    sampler_cost = None if sampler is None else _cost(sampler, ceilings)
    fixed_s = (ceilings.fixed_s_per_pass or 0.0) + shape.layers * (ceilings.fixed_s_per_layer or 0.0)
    low_s, expected_s, high_s = _sides(operations)
    sampler_low_s, sampler_s, sampler_high_s = _sides(() if sampler_cost is None else (sampler_cost,))
    hidden = ceilings.fixed_hidden
    forward_s = max(fixed_s, expected_s) if hidden else fixed_s + expected_s
    return PassPrice(
        low_s=(max(fixed_s, low_s) if hidden else fixed_s + low_s) + sampler_low_s,
        expected_s=forward_s + sampler_s,
        high_s=fixed_s + high_s + sampler_high_s,
        forward_s=forward_s,
        fixed_s=fixed_s,
        bytes_=sum(operation.bytes_ for operation in operations),
        flops=sum(operation.flops for operation in operations),
        operations=operations,
        sampler=sampler_cost,
    )


def price_trace(shape: ModelShape, dtype: str, passes: Iterable[ForwardPass], ceilings: Ceilings) -> PassPrice:
    """Sum over the passes; operations of the same name are added up. An empty trace costs 0.

    Raises:
        UserError: unknown dtype.
    """
    known: dict[tuple[int, ...], PassPrice] = {}
    prices = []
    for one in passes:
        key = (one.rows, one.padded_query, one.padded_context, max(one.logit_tokens, default=0), sum(one.kept_tokens))
        if key not in known:
            known[key] = price_pass(shape, dtype, one, ceilings)
        prices.append(known[key])
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
    if operation.logits and ceilings.sampler_s_per_logit is not None:
        memory_s = operation.logits * ceilings.sampler_s_per_logit  # measured as a whole, so it is not split further
    compute_s = operation.flops / ceilings.matrix_flops_per_s(operation.tokens) if operation.flops else 0.0
    longer, shorter = max(memory_s, compute_s), min(memory_s, compute_s)
    overlap = 1.0 if ceilings.overlap is None else ceilings.overlap
    stall = ceilings.stall if operation.flops else 1.0  # memory and arithmetic can only hinder each other where there are both
    return OperationCost(
        name=operation.name,
        bytes_=operation.bytes_,
        flops=operation.flops,
        memory_s=memory_s,
        compute_s=compute_s,
        low_s=longer,
        expected_s=stall * (longer + (1 - overlap) * shorter),
        high_s=stall * (longer + shorter),
    )


def _sides(costs: tuple[OperationCost, ...]) -> tuple[float, float, float]:
    return sum(cost.low_s for cost in costs), sum(cost.expected_s for cost in costs), sum(cost.high_s for cost in costs)


def _added(costs: Iterable[OperationCost]) -> tuple[OperationCost, ...]:
    by_name: dict[str, list[OperationCost]] = {}
    for cost in costs:
        by_name.setdefault(cost.name, []).append(cost)
    fields = ("bytes_", "flops", "memory_s", "compute_s", "low_s", "expected_s", "high_s")
    return tuple(
        OperationCost(name=name, **{field: sum(getattr(cost, field) for cost in same) for field in fields})
        for name, same in by_name.items()
    )
