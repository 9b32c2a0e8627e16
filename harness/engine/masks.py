"""Attention masks in one form for every caller, and the one trap about them in one place.

Axes: B rows, Q queries, K keys. A boolean mask says True where a query may attend. transformers adds a boolean mask to
the scores under ``eager`` attention instead of applying it (a silent error), so this module turns it into additive
floats there. Nothing here knows a model.
"""

from __future__ import annotations

import torch
from torch import Tensor

LINES = {"cuda": 16}
"""By kind of device, of what number a line of a mask should be a multiple: on a GPU memory-efficient attention would copy any
other mask in every layer.
"""


def attention_input(visible: Tensor, attention: str, dtype: torch.dtype) -> Tensor:
    """Shape ``visible`` (B, Q, K) bool into the 4D mask (B, 1, Q, K) that transformers passes on untouched."""
    mask = visible[:, None]
    if attention != "eager":
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


def folded_mask(visible: Tensor, shared: int, dtype: torch.dtype) -> Tensor:
    """(B, 1, shared Q, K) floats from ``visible`` (B, Q, K) bool: 0 where a query may attend, else minus infinity; the queries
    once for each of the ``shared`` heads of a KV head. Made once per forward: from booleans every layer would make it anew.
    """
    rows, queries, width = visible.shape
    padding = -width % LINES.get(visible.device.type, 1)
    held = torch.zeros(rows, 1, shared, queries, width + padding, dtype=dtype, device=visible.device)
    held[..., :width].masked_fill_(~visible[:, None, None], float("-inf"))
    return held.flatten(2, 3)[..., :width]


def doubled_sequence(clean_valid: Tensor, noisy_block: Tensor, noisy_start: Tensor, block_size: int) -> Tensor:
    """The training mask of the paper's Fig. 8/9 over [x ; x̂] (arXiv 2509.04185, section 3.2).

    x→x causal; x̂→x̂ inside the same block, both directions; x̂→x only to tokens before the first of its own block;
    x→x̂ never.

    Args:
        clean_valid: (B, L) bool, False on right padding of x.
        noisy_block: (B, N) int, index of the block each token of x̂ belongs to; -1 on padding (a block of its own kind).
        noisy_start: (B,) int, position in x of the first token of x̂ (0 doubles the whole sequence).
        block_size: tokens per block.

    Returns:
        (B, L+N, L+N) bool, True where the query (first axis) may attend to the key.
    """
    rows, clean = clean_valid.shape
    noisy = noisy_block.shape[1]
    index = torch.arange(clean, device=clean_valid.device)
    visible = torch.zeros(rows, clean + noisy, clean + noisy, dtype=torch.bool, device=clean_valid.device)
    visible[:, :clean, :clean] = index[None, :] <= index[:, None]
    block_start = noisy_start[:, None] + noisy_block.clamp(min=0) * block_size  # (B, N)
    visible[:, clean:, :clean] = (index[None, None, :] < block_start[:, :, None]) & clean_valid[:, None, :]
    visible[:, clean:, clean:] = noisy_block[:, :, None] == noisy_block[:, None, :]
    return visible
