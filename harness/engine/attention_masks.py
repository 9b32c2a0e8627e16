"""What a list of segments says about its fed tokens: which are real, who may look at whom, whose logits are wanted.

Both sessions read segments through these functions. Axes: B rows, Q tokens of all segments together. Results are on the
CPU unless a device is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from harness.decoding.session import Segment
from harness.decoding.uploading import upload

_LARGEST_KEPT = 256


def validity(segments: Sequence[Segment]) -> Tensor | None:
    """(B, Q) bool, False on padding; None where there is none."""
    if all(s.valid is None for s in segments):
        return None
    return torch.cat(
        [torch.ones(s.tokens.shape, dtype=torch.bool) if s.valid is None else s.valid for s in segments], dim=1
    )


def inside(segments: Sequence[Segment], first: int = 0) -> Tensor:
    """(Q - first, Q) bool: which fed token (second axis) a fed token from ``first`` on may look at, padding aside. See
    Segment for the rule. Nothing of more lines is made on the way, for those of a prompt would be too many.
    """
    if all(s.seen is None for s in segments) and sum(s.tokens.shape[1] for s in segments) <= _LARGEST_KEPT:
        return _inside_of_blocks(tuple((s.tokens.shape[1], s.visibility) for s in segments))[first:]
    return _inside(((s.tokens.shape[1], s.visibility, s.seen) for s in segments), first)


@lru_cache(maxsize=64)
def _inside_of_blocks(shapes: tuple[tuple[int, str], ...]) -> Tensor:
    """Made once per widths and visibilities: a decoder asks for the same few over and over. Nobody writes to it."""
    return _inside(((width, visibility, None) for width, visibility in shapes), 0)


def _inside(segments: Iterable[tuple[int, str, Tensor | None]], first: int) -> Tensor:
    """Every segment sees all before it, and of itself what its visibility says, or its (n, n) where it brings one."""
    segments = tuple(segments)
    total = sum(width for width, _, _ in segments)
    visible = torch.zeros(total - first, total, dtype=torch.bool)
    start = 0
    for width, visibility, seen in segments:
        begin, end = max(start, first), start + width
        if begin < end:
            lines = visible[begin - first : end - first]
            lines[:, :start] = True
            lines[:, start:end] = _own(begin - start, width, visibility) if seen is None else seen[begin - start :]
        start = end
    return visible


def _own(first: int, width: int, visibility: str) -> Tensor:
    """(width - first, width) bool: what the tokens of one segment see of each other, from its token ``first`` on."""
    everything = torch.ones(width - first, width, dtype=torch.bool)
    return everything.tril(first) if visibility == "causal" else everything


def wanted_logits(segments: Sequence[Segment], device: torch.device) -> Tensor | int:
    """What transformers calls ``logits_to_keep``: how many at the end, or, where they lie apart, their indices."""
    indices: list[int] = []
    end = 0
    for segment in segments:
        end += segment.tokens.shape[1]
        indices.extend(range(end - segment.logits, end))
    at_the_end = indices and indices == list(range(end - len(indices), end))
    return len(indices) if at_the_end else upload(indices, device, torch.long)
