"""Attention masks: which tokens of a list of segments are real, which may attend to which, whose logits are wanted.

Both sessions read segments through these functions. A boolean mask is True where a query may attend. Under ``eager`` attention
transformers adds a boolean mask to the scores instead of applying it, without an error; here it becomes additive floats. Axes:
B rows, Q queries (the tokens of all segments), K keys. Results are on the CPU unless a device is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from harness.decoding.session import Segment, upload

_LARGEST_KEPT = 256


def validity(segments: Sequence[Segment]) -> Tensor | None:
    """(B, Q) bool, False on padding; None without padding."""
    if all(s.valid is None for s in segments):
        return None
    return torch.cat([torch.ones(s.tokens.shape, dtype=torch.bool) if s.valid is None else s.valid for s in segments], dim=1)


def inside(segments: Sequence[Segment], first: int = 0) -> Tensor:
    """(Q - first, Q) bool: which fed token (second axis) a fed token from ``first`` on may attend to, padding aside. See
    Segment for the rule. No intermediate tensor has more lines, because a prompt has too many.
    """
    if all(s.seen is None for s in segments) and sum(s.tokens.shape[1] for s in segments) <= _LARGEST_KEPT:
        return _inside_of_blocks(tuple((s.tokens.shape[1], s.visibility) for s in segments))[first:]
    return _inside(((s.tokens.shape[1], s.visibility, s.seen) for s in segments), first)


@lru_cache(maxsize=64)
def _inside_of_blocks(shapes: tuple[tuple[int, str], ...]) -> Tensor:
    """Cached by widths and visibilities: a decoder asks for the same few often. The result must not be written to."""
    return _inside(((width, visibility, None) for width, visibility in shapes), 0)


def _inside(segments: Iterable[tuple[int, str, Tensor | None]], first: int) -> Tensor:
    """Every segment sees all before it, and of itself what its visibility says or its own (n, n) mask allows."""
    segments = tuple(segments)
    total = sum(width for width, _, _ in segments)
    visible = torch.zeros(total - first, total, dtype=torch.bool)
    start = 0
    for width, visibility, seen in segments:
        begin, end = max(start, first), start + width
        if begin < end:
            lines = visible[begin - first : end - first]
            lines[:, :start] = True
            lines[:, start:end] = True if seen is None else seen[begin - start :]
            if visibility == "causal":
                lines[:, start:end].tril_(begin - start)
        start = end
    return visible


def wanted_logits(segments: Sequence[Segment], device: torch.device) -> Tensor | int:
    """What transformers calls ``logits_to_keep``: how many at the end, or, where they lie apart, their indices."""
    indices: list[int] = []
    end = 0
    for segment in segments:
        end += segment.tokens.shape[1]
        indices.extend(range(end - segment.logits, end))
    at_the_end = indices and indices == list(range(end - len(indices), end))
    return len(indices) if at_the_end else upload(indices, device, torch.long)


LINES = {"cuda": 16}
"""By kind of device, the divisor of the length of a mask's line. On a GPU memory-efficient attention copies any other mask in
every layer.
"""


def attention_input(visible: Tensor, attention: str, dtype: torch.dtype) -> Tensor:
    """Shape ``visible`` (B, Q, K) bool into the 4D mask (B, 1, Q, K) that transformers passes on untouched."""
    mask = visible[:, None]
    if attention != "eager":
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)


def folded_mask(visible: Tensor, shared: int, dtype: torch.dtype) -> Tensor:
    """(B, 1, shared Q, K) floats from ``visible`` (B, Q, K) bool: 0 where a query may attend, else minus infinity. The queries
    repeat for each of the ``shared`` heads of a KV head. One mask per forward serves every layer.
    """
    rows, queries, width = visible.shape
    padding = -width % LINES.get(visible.device.type, 1)
    held = torch.zeros(rows, 1, shared, queries, width + padding, dtype=dtype, device=visible.device)
    held[..., :width].masked_fill_(~visible[:, None, None], float("-inf"))
    return held.flatten(2, 3)[..., :width]
