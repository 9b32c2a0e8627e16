"""Attention on the emulated GPU: operators that torch has for GPUs alone, as strict about what they are asked as real ones."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _scores(query: Tensor, keys: Tensor, scale: float | None) -> Tensor:
    """(..., H, Q, K) in float32; G KV heads are shared by H / G query heads each."""
    keys = keys.repeat_interleave(query.shape[-3] // keys.shape[-3], dim=-3)
    return query.float() @ keys.float().transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)


def _mean(scores: Tensor, said: Tensor, like: Tensor) -> Tensor:
    """Values weighted by the softmax of their scores; 0 where nothing is seen."""
    said = said.repeat_interleave(scores.shape[-3] // said.shape[-3], dim=-3)
    return (scores.softmax(dim=-1).nan_to_num(0.0) @ said.float()).to(like.dtype)


def _hidden(scores: Tensor) -> Tensor:
    """What a causal query does not see: both sequences begin together."""
    return torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)


def scaled_dot_product_flash(
    query: Tensor,
    keys: Tensor,
    said: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """aten::_scaled_dot_product_flash_attention: (B, H, Q, D)."""
    assert not dropout and not mask
    scores = _scores(query, keys, scale)
    if causal:
        scores = scores.masked_fill(_hidden(scores), -math.inf)
    return _mean(scores, said, query), scores.logsumexp(dim=-1)


def scaled_dot_product_efficient(
    query: Tensor,
    keys: Tensor,
    said: Tensor,
    bias: Tensor | None,
    with_sums: bool,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor]:
    """aten::_scaled_dot_product_efficient_attention: (B, H, Q, D). Its log-sum-exp, padded, is for gradients alone."""
    assert not dropout and not with_sums
    scores = _scores(query, keys, scale)
    if causal:
        scores = scores.masked_fill(_hidden(scores), -math.inf)
    return (_mean(scores if bias is None else scores + bias.float(), said, query),)


def flash_forward(
    query: Tensor,
    keys: Tensor,
    said: Tensor,
    asked: Tensor,
    starts: Tensor,
    widest: int,
    longest: int,
    dropout: float,
    causal: bool,
    mask: bool,
    *,
    scale: float | None = None,
    seqused_k: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """aten::_flash_attention_forward over packed runs, (T, H, D). A run without keys gets log-sum-exp +inf; its output is never
    written. The kernel reads even behind the keys, so that is refused here.
    """
    assert not dropout and not mask and all(one is None for one in others.values())
    runs, count = asked.numel() - 1, keys.shape[0]
    tables = [asked, starts, *([] if seqused_k is None else [seqused_k])]
    assert all(one.dtype == torch.int32 and one.is_contiguous() for one in tables) and starts.numel() == runs + 1
    used = starts.diff().tolist() if seqused_k is None else seqused_k.tolist()
    assert len(used) == runs
    out = torch.full_like(query, math.nan)
    sums = torch.full((query.shape[1], query.shape[0]), math.nan, dtype=torch.float32)
    for (first, last), begin, length in zip(itertools.pairwise(asked.tolist()), starts.tolist(), used, strict=False):
        assert 0 <= first <= last <= query.shape[0] and last - first <= widest and length <= longest
        if length <= 0:
            sums[:, first:last] = math.inf
            continue
        assert 0 <= begin <= begin + length <= count, f"keys {begin} to {begin + length} of {count} are read"
        own, seen, told = (
            one.transpose(0, 1) for one in (query[first:last], keys[begin : begin + length], said[begin : begin + length])
        )
        scores = _scores(own, seen, scale)
        if causal:  # both sequences end together
            width = last - first
            scores = scores.masked_fill(torch.ones(width, length, dtype=torch.bool).triu(length - width + 1), -math.inf)
        sums[:, first:last] = scores.logsumexp(dim=-1)
        out[first:last] = _mean(scores, told, query).transpose(0, 1)
    return out, sums


ON_CPU = {
    aten._flash_attention_forward.default: flash_forward,
    aten._scaled_dot_product_flash_attention.default: scaled_dot_product_flash,
    aten._scaled_dot_product_efficient_attention.default: scaled_dot_product_efficient,
}
