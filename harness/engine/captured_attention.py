"""The attention kernels of captured forwards, by the name that a part's ``attention`` gives, and those that torch may choose.

sdpa, the default, is torch itself: its flash kernel over runs. Tensors that this kernel does not take (float32, a CPU) get
scaled_dot_product_attention under a mask. The choice holds for every arm, prompts and generate() included, and is recorded.
Axes: B rows, Q query tokens, H query heads, G KV heads, D head dimension, C slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from harness.engine import flash_attention
from harness.engine.attention_masks import folded_mask
from harness.engine.flash_attention import FlashRuns
from harness.engine.flex_attention import FlexBlocks
from harness.engine.kv_cache import CapturedAttention, Fed, SeenSlots


class MaskedSlots:
    """A harness.engine.kv_cache.CapturedAttention that reads every slot of a row; slots not seen have weight 0."""

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
    """A harness.engine.kv_cache.Reading. ``mask`` (B, 1, H / G * Q, C) as attention_masks.folded_mask makes it: heads that
    share a KV head are further queries of it.
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
    """The entry of OPTIONS that a part's ``attention`` means for such tensors."""
    if attention != "sdpa":
        return attention
    return "flash" if flash_attention.takes_flash(device, dtype, head_dim) else "masked"


LEFT_OUT = "cudnn: torch's first choice on Hopper plans for 23 to 37 ms whenever a shape is new, as in every pass of NTP"
"""The kernel that scaled_dot_product_attention may not choose on a GPU, with the reason."""


def choose_kernels(device: torch.device | str, backends: Any = torch.backends.cuda) -> None:
    """Forbid the kernel of LEFT_OUT in this process, before anything runs on ``device``. ``backends`` may be a fake."""
    if torch.device(device).type == "cuda":
        backends.enable_cudnn_sdp(False)


def kernels_left() -> list[str]:
    """What scaled_dot_product_attention may choose from in this process, by torch's names."""
    cuda: Any = torch.backends.cuda
    enabled = {
        "flash_attention": cuda.flash_sdp_enabled(), "efficient_attention": cuda.mem_efficient_sdp_enabled(),
        "cudnn_attention": cuda.cudnn_sdp_enabled(), "math": cuda.math_sdp_enabled(),
    }  # fmt: skip
    return [name for name, is_on in enabled.items() if is_on]


def captured_kernel(attention: str, device: torch.device, dtype: torch.dtype, head_dim: int) -> str:
    """The kernel that attends in passes captured into graphs, by the ``attention`` that their part asks for."""
    option = option_of(attention, device, dtype, head_dim)
    if option == "masked":
        return "scaled_dot_product_attention over whole rows, under a mask of what is used of each"
    if option == "flex":
        return "torch FlexAttention, compiled, over the blocks in use of each row"
    # An activated implementation replaces torch's own; older releases have only torch's own.
    activated = getattr(torch.nn.attention, "current_flash_attention_impl", lambda: None)()
    return f"{flash_attention.OPERATOR} ({activated or 'flash attention 2'}) over the used part of each row"
