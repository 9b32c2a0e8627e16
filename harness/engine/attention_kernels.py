"""Which attention kernels run: decided here for every arm, for prompts and for generate() alike, and named for the record."""

from __future__ import annotations

from typing import Any

import torch

from harness.engine import flash_attention
from harness.engine.captured_attention import option_of

LEFT_OUT = "cudnn: torch's first choice on Hopper plans for 23 to 37 ms whenever a shape is new, as in every pass of NTP"
"""The kernel that scaled_dot_product_attention may not choose on a GPU, with the reason."""


def choose_kernels(device: torch.device | str, backends: Any = torch.backends.cuda) -> None:
    """Told before anything runs on ``device``; holds for the whole process. ``backends`` may be a fake."""
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
    """What attends in passes that are captured into graphs, by what their part asks for."""
    option = option_of(attention, device, dtype, head_dim)
    if option == "masked":
        return "scaled_dot_product_attention over whole rows, under a mask of what is used of each"
    if option == "flex":
        return "torch FlexAttention, compiled, over the blocks in use of each row"
    # An implementation that somebody has activated takes the place of torch's own; older releases have only that.
    activated = getattr(torch.nn.attention, "current_flash_attention_impl", lambda: None)()
    return f"{flash_attention.OPERATOR} ({activated or 'flash attention 2'}) over the used part of each row"
