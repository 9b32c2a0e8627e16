"""The results of flash attention's pieces merged in one launch, in Triton; imported only where Triton exists.

In torch's operations it is six of every layer. Axes as in harness.engine.flash_attention: T queries of all copies, G KV heads,
D head dimension.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


def merge(outs: Tensor, lses: Tensor, empty: Tensor, copies: int, shared: int) -> Tensor:
    """As harness.engine.flash_attention.merge, in the outputs' own type and contiguous."""
    total, groups, size = outs.shape
    merged = outs.new_empty(total // copies // shared, groups, shared, size)
    _merge[total // copies, groups](outs, lses, empty, merged, COPIES=copies, SHARED=shared, SIZE=size)
    return merged


@triton.jit
def _merge(outs, lses, empty, merged, COPIES: tl.constexpr, SHARED: tl.constexpr, SIZE: tl.constexpr):
    """One query of one KV head: every part of it at once."""
    query, queries = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    group, groups = tl.program_id(1), tl.num_programs(1)
    part, column = tl.arange(0, triton.next_power_of_2(COPIES)), tl.arange(0, triton.next_power_of_2(SIZE))
    at, inside = part * queries + query, column < SIZE
    nothing = tl.load(empty + at, mask=part < COPIES, other=1) != 0
    lse = tl.load(lses + group * queries * COPIES + at, mask=part < COPIES, other=0.0)
    lse = tl.where(nothing, -3.4028234663852886e38, lse)
    weights = tl.exp(lse - tl.max(lse, axis=0))
    places = (at * groups + group)[:, None] * SIZE + column
    out = tl.load(outs + places, mask=inside & (nothing == 0)[:, None], other=0.0).to(tl.float32)
    found = tl.sum(weights[:, None] * out, axis=0) / tl.sum(weights, axis=0)
    place = (query // SHARED * groups + group) * SHARED + query % SHARED
    tl.store(merged + place * SIZE + column, found, mask=inside)
