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

_LARGEST_KEPT = 256


def validity(segments: Sequence[Segment]) -> Tensor | None:
    """(B, Q) bool, False on padding; None where there is none."""
    if all(s.valid is None for s in segments):
        return None
    return torch.cat(
        [torch.ones(s.tokens.shape, dtype=torch.bool) if s.valid is None else s.valid.cpu() for s in segments], dim=1
    )


def inside(segments: Sequence[Segment]) -> Tensor:
    """(Q, Q) bool: which fed token (second axis) a fed token may look at, padding aside. See Segment for the rule."""
    shapes = tuple((s.tokens.shape[1], s.visibility) for s in segments)
    if any(s.seen is not None for s in segments) or sum(width for width, _ in shapes) > _LARGEST_KEPT:
        return _inside(_own(s.tokens.shape[1], s.visibility) if s.seen is None else s.seen for s in segments)
    return _inside_of_blocks(shapes)


@lru_cache(maxsize=64)
def _inside_of_blocks(shapes: tuple[tuple[int, str], ...]) -> Tensor:
    """Made once per widths and visibilities: a decoder asks for the same few over and over. Nobody writes to it."""
    return _inside(_own(width, visibility) for width, visibility in shapes)


def _own(width: int, visibility: str) -> Tensor:
    """(width, width) bool: what the tokens of one segment see of each other."""
    everything = torch.ones(width, width, dtype=torch.bool)
    return everything.tril() if visibility == "causal" else everything


def _inside(owns: Iterable[Tensor]) -> Tensor:
    """Every segment sees all before it, and of itself what its own (n, n) says."""
    owns = tuple(owns)
    total = sum(own.shape[0] for own in owns)
    visible = torch.zeros(total, total, dtype=torch.bool)
    start = 0
    for own in owns:
        end = start + own.shape[0]
        visible[start:end, :start] = True
        visible[start:end, start:end] = own
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
    return len(indices) if at_the_end else torch.tensor(indices, dtype=torch.long, device=device)
