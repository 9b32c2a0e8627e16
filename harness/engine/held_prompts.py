"""The prompts that lie in a session's buffers: who decodes the same batch anew need not read them again.

Decoding writes behind the prompts only, so their keys and values are there still, to the last bit, and take no memory of their
own. Axes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harness.decoding.session import Segment


@dataclass(frozen=True, slots=True)
class HeldPrompts:
    """``segment`` was fed alone, with nothing before it, and ``logits`` (B, m, V) came of it. Its rows have ``lengths``."""

    segment: Segment
    logits: Tensor
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, segments: Sequence[Segment], logits: Tensor) -> HeldPrompts | None:
        """What a forward with nothing before it leaves; None where it was not over prompts alone, to be gone on with."""
        segment = segments[0]
        if len(segments) > 1 or segment.visibility != "causal" or segment.logits > 1 or segment.read is not None:
            return None
        rows, width = segment.tokens.shape
        lengths = (width,) * rows if segment.valid is None else tuple(segment.valid.sum(dim=1).tolist())
        # Whoever made the segment and asked for the logits may write to both.
        return cls(replace(segment, tokens=segment.tokens.clone()), logits.clone(), lengths)

    def answers(self, segments: Sequence[Segment]) -> bool:
        """Whether a forward over ``segments``, with nothing before them, is the one that is held."""
        held, asked = self.segment, segments[0]
        return (
            len(segments) == 1
            and (asked.visibility, asked.logits, asked.read) == (held.visibility, held.logits, held.read)
            and all(_same(getattr(asked, name), getattr(held, name)) for name in ("valid", "positions", "tokens"))
        )

    def lie_before(self, committed: Sequence[int]) -> bool:
        """Whether a forward behind so many committed tokens of each row writes over none of the prompts."""
        return all(length <= kept for length, kept in zip(self.lengths, committed, strict=True))


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other if one is None or other is None else torch.equal(one, other)
