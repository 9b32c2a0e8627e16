"""The attention kernels of captured forwards, by the name that a part's ``attention`` gives, and those that torch may choose.

sdpa, the default, is torch itself: its flash kernel over runs. Tensors that this kernel does not take (float32, a CPU) get
scaled_dot_product_attention under a mask. flex is torch's FlexAttention: tensors say which blocks of keys to visit. Blocks that
every query of a row sees whole are visited without a mask. The choice holds for every arm, prompts and generate() included.
Axes: B rows, Q query tokens, H query heads, G KV heads, D head dimension, C slots, N blocks of BLOCK slots.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from harness.engine import flash_attention
from harness.engine.attention_masks import folded_mask
from harness.engine.compiling import allow_kinds_of_forward
from harness.engine.flash_attention import FlashRuns
from harness.engine.kv_cache import CapturedAttention, ForwardKind, SeenSlots, folded_attention
from harness.frozen import positional

BLOCK = 128
"""FlexAttention's own width of a block, for queries and keys."""


class FlexBlocks:
    """A harness.engine.kv_cache.CapturedAttention."""

    def __init__(self, fed: ForwardKind) -> None:
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
            per_query_block(reached - whole),
            per_query_block((whole[:, None] + self._blocks).clamp(max=last)),
            per_query_block(whole),
            per_query_block(self._blocks.expand(seen.shape[0], -1)),
            BLOCK_SIZE=BLOCK,
            mask_mod=sees,
            seq_lengths=self._lengths,
        )
        return FlexReading(mask, self._attend)


@positional
class FlexReading:
    """A harness.engine.kv_cache.Attending: the blocks that one forward visits, and the kernel that visits them."""

    mask: Any
    kernel: Callable[..., Any]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """See Attending."""
        held = [buffer.view(query.shape[0], -1, *buffer.shape[1:]).transpose(1, 2) for buffer in (keys, values)]
        out: Tensor = self.kernel(query, held[0], held[1], block_mask=self.mask, scale=scaling, enable_gqa=True)
        return out.transpose(1, 2)


@cache
def _kernel(device_type: str) -> Callable[..., Any]:
    """One kernel for all forwards: torch.compile keeps its results with the function."""
    if device_type == "cpu":
        return flex_attention
    allow_kinds_of_forward()
    return torch.compile(flex_attention, dynamic=False)


class MaskedSlots:
    """A harness.engine.kv_cache.CapturedAttention that reads every slot of a row; slots not seen have weight 0."""

    def __init__(self, fed: ForwardKind) -> None:
        self._fed = fed
        self._seen = SeenSlots(fed)
        self._slots = torch.arange(fed.slots, device=fed.device)

    def read(self, used: Tensor) -> MaskedReading:
        """See CapturedAttention."""
        visible = self._slots < self._seen.of(used)[:, :, None]  # (B, Q, C)
        return MaskedReading(folded_mask(visible, self._fed.shared, self._fed.dtype))


@positional
class MaskedReading:
    """A harness.engine.kv_cache.Attending. ``mask`` (B, 1, H / G * Q, C) as attention_masks.folded_mask makes it: heads that
    share a KV head are further queries of it.
    """

    mask: Tensor

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
        """See Attending."""
        held = [buffer.view(query.shape[0], -1, *buffer.shape[1:]).transpose(1, 2) for buffer in (keys, values)]
        return folded_attention(query, held[0], held[1], self.mask, scaling).transpose(1, 2)


OPTIONS: dict[str, Callable[[ForwardKind], CapturedAttention]] = {"flash": FlashRuns, "masked": MaskedSlots, "flex": FlexBlocks}


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
        "flash_attention": cuda.flash_sdp_enabled(),
        "efficient_attention": cuda.mem_efficient_sdp_enabled(),
        "cudnn_attention": cuda.cudnn_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }
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
