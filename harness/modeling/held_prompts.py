"""The prompts that a session read last, with the keys and values that came of them: who decodes them anew need not read them.

What is given back is bit for bit what was computed. Axes: B rows, W tokens of the longest prompt, V vocabulary, G KV heads,
D head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.decoding.session import Segment


@dataclass(frozen=True, slots=True)
class HeldPrompts:
    """``segment`` was fed, alone and with nothing before it, into the first slots of the buffers.

    ``logits``   (B, m, V), what the forward returned
    ``written``  (B, G, W, D) of every buffer it wrote to
    """

    segment: Segment
    logits: Tensor
    written: tuple[Tensor, ...]

    @classmethod
    def of(cls, segments: Sequence[Segment], logits: Tensor, buffers: Sequence[Tensor]) -> HeldPrompts | None:
        """What came of a forward with nothing before it; None where it was not one over prompts alone, all of them computed."""
        segment = segments[0]
        if len(segments) > 1 or segment.visibility != "causal" or segment.read is not None:
            return None
        width = segment.tokens.shape[1]
        # Whoever asked for the logits may write to them.
        return cls(segment, logits.clone(), tuple(buffer[:, :, :width].clone() for buffer in buffers))

    def answers(self, segments: Sequence[Segment]) -> bool:
        """Whether a forward over ``segments``, with nothing before them, is the one that is held."""
        held, asked = self.segment, segments[0]
        return (
            len(segments) == 1
            and (asked.visibility, asked.logits, asked.read) == (held.visibility, held.logits, held.read)
            and all(_same(getattr(asked, name), getattr(held, name)) for name in ("valid", "positions", "tokens"))
        )

    def given_back(self, buffers: Sequence[Tensor]) -> Tensor:
        """Writes to the buffers what the forward wrote; returns the logits it returned."""
        for buffer, written in zip(buffers, self.written, strict=True):
            buffer[:, :, : written.shape[2]] = written
        return self.logits.clone()


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other if one is None or other is None else torch.equal(one, other)
