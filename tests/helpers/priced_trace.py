"""A whole trace on the roofline, pass by pass and written out: what sums of the program are held against."""

from __future__ import annotations

from collections.abc import Iterable

from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.record.trace import ForwardPass
from harness.roofline.ceilings import Ceilings
from harness.roofline.operations import PassCounts
from harness.roofline.pricing import OperationCost, PassPrice, price_counts


def price_trace(
    shape: ModelShape, deployment: Deployment | str, passes: Iterable[ForwardPass], ceilings: Ceilings
) -> PassPrice:
    """Sum over the passes; operations of the same name are added up. An empty trace costs 0. Errors as in price_counts."""
    known: dict[PassCounts, PassPrice] = {}
    prices = []
    for counts in map(PassCounts.of, passes):
        if counts not in known:
            known[counts] = price_counts(shape, deployment, counts, ceilings)
        prices.append(known[counts])
    samplers = [price.sampler for price in prices if price.sampler is not None]
    return PassPrice(
        forward=_summed(price.forward for price in prices),
        after=_summed(price.after for price in prices),
        fixed_s=sum(price.fixed_s for price in prices),
        bytes_=sum(price.bytes_ for price in prices),
        flops=sum(price.flops for price in prices),
        operations=_added(operation for price in prices for operation in price.operations),
        sampler=_added(samplers)[0] if samplers else None,
    )


def _summed(bands: Iterable[tuple[float, float, float]]) -> tuple[float, float, float]:
    low_s, expected_s, high_s = (sum(side) for side in zip((0.0, 0.0, 0.0), *bands, strict=True))
    return low_s, expected_s, high_s


def _added(costs: Iterable[OperationCost]) -> tuple[OperationCost, ...]:
    by_name: dict[str, list[OperationCost]] = {}
    for cost in costs:
        by_name.setdefault(cost.name, []).append(cost)
    fields = ("bytes_", "flops", "memory_s", "compute_s", "link_s", "low_s", "expected_s", "high_s")
    return tuple(
        OperationCost(name=name, **{field: sum(getattr(cost, field) for cost in same) for field in fields})
        for name, same in by_name.items()
    )
