"""Attention of a captured forward by torch's FlexAttention: tensors say which blocks of keys to visit.

Blocks that every query of a row sees whole are visited without a mask, other blocks that a query sees with one. On a GPU the
kernel is compiled for the shapes at hand; uncompiled it is plain arithmetic, also for a CPU. Axes: B rows, Q query tokens, H
query heads, G KV heads, D head dimension, C slots, N blocks of BLOCK slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from harness.engine.compiling import allow_kinds_of_forward
from harness.engine.kv_cache import Fed, SeenSlots

BLOCK = 128
"""FlexAttention's own width of a block, for queries and keys."""


class FlexBlocks:
    """A harness.engine.kv_cache.CapturedAttention."""

    def __init__(self, fed: Fed) -> None:
        self._seen = SeenSlots(fed)
        self._lengths = (sum(width for width, _ in fed.parts), fed.slots)
        self._query_blocks = -(-self._lengths[0] // BLOCK)
        self._blocks = torch.arange(-(-fed.slots // BLOCK), dtype=torch.int32, device=fed.device)
        self._attend = _kernel(fed.device.type)

    def read(self, used: Tensor) -> FlexReading:
        """See CapturedAttention."""
        seen = self._seen.of(used)
        whole = seen.amin(dim=1) // BLOCK  # blocks that every query of the row sees all of
        reached = (seen.amax(dim=1) + BLOCK - 1) // BLOCK

        def sees(row: Tensor, head: Tensor, query: Tensor, slot: Tensor) -> Tensor:
            return slot < seen[row, query]

        def per_query_block(one: Tensor) -> Tensor:  # (B, ...) to (B, 1, query blocks, ...)
            spread = one[:, None, None]
            return spread.expand(-1, 1, self._query_blocks, *one.shape[1:]).contiguous()

        last = self._blocks.shape[0] - 1
        mask: Any = BlockMask.from_kv_blocks(
            per_query_block(reached - whole), per_query_block((whole[:, None] + self._blocks).clamp(max=last)),
            per_query_block(whole), per_query_block(self._blocks.expand(seen.shape[0], -1)),
            BLOCK_SIZE=BLOCK, mask_mod=sees, seq_lengths=self._lengths,
        )  # fmt: skip
        return FlexReading(mask, self._attend)


@dataclass(frozen=True, slots=True)
class FlexReading:
    """A harness.engine.kv_cache.Reading: the blocks that one forward visits, and the kernel that visits them."""

    mask: Any
    kernel: Callable[..., Any]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """See Reading."""
        held = [one.view(query.shape[0], -1, *one.shape[1:]).transpose(1, 2) for one in (keys, values)]
        out: Tensor = self.kernel(query, held[0], held[1], block_mask=self.mask, scale=scaling, enable_gqa=True)
        return out.transpose(1, 2)


@cache
def _kernel(device_type: str) -> Callable[..., Any]:
    """One kernel for all forwards: torch.compile keeps its results with the function."""
    kernel: Callable[..., Any] = flex_attention
    if device_type == "cpu":
        return kernel
    allow_kinds_of_forward()
    compiled: Callable[..., Any] = torch.compile(kernel, dynamic=False)
    return compiled
