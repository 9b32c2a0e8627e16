"""The ways in which a captured forward can read the buffers, by name.

A part's ``attention`` picks one. sdpa, the default, is torch itself: its flash kernel over runs, or, for tensors which that
does not take (float32, a CPU), scaled_dot_product_attention under a mask. Axes: B rows, Q query tokens, H query heads, G KV
heads, D head dimension, C slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from harness.engine import flash_attention
from harness.engine.flash_runs import FlashRuns
from harness.engine.flex_attention import FlexBlocks
from harness.engine.masks import folded_mask
from harness.engine.used_kv import CapturedAttention, Fed, SeenSlots


class MaskedSlots:
    """A harness.engine.used_kv.CapturedAttention: every slot of a row is read, and those not seen weigh nothing."""

    def __init__(self, fed: Fed) -> None:
        self._fed = fed
        self._seen = SeenSlots(fed)
        self._slots = torch.arange(fed.slots, device=fed.device)

    def read(self, used: Tensor) -> MaskedReading:
        """See CapturedAttention."""
        visible = self._slots < self._seen.of(used)[:, :, None]  # (B, Q, C)
        return MaskedReading(folded_mask(visible, self._fed.shared, self._fed.dtype))


@dataclass(frozen=True, slots=True)
class MaskedReading:
    """A harness.engine.used_kv.Reading. ``mask`` (B, 1, H / G * Q, C) as masks.folded_mask makes it: heads that share one are
    further queries of their KV head.
    """

    mask: Tensor

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """See Reading."""
        rows, heads, tokens, size = query.shape
        held = [one.view(rows, -1, *one.shape[1:]).transpose(1, 2) for one in (keys, values)]
        folded = query.reshape(rows, keys.shape[1], -1, size)
        out = scaled_dot_product_attention(folded, held[0], held[1], attn_mask=self.mask, scale=scaling)
        return out.reshape(rows, heads, tokens, size).transpose(1, 2)


OPTIONS: dict[str, Callable[[Fed], CapturedAttention]] = {"flash": FlashRuns, "masked": MaskedSlots, "flex": FlexBlocks}


def option_of(attention: str, device: torch.device, dtype: torch.dtype, head_dim: int) -> str:
    """Which of OPTIONS a part's ``attention`` means for such tensors."""
    if attention != "sdpa":
        return attention
    return "flash" if flash_attention.takes_flash(device, dtype, head_dim) else "masked"
