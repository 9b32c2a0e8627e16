"""A source of noise that records what it is asked for."""

from __future__ import annotations

from typing import ClassVar

import torch

from harness.decoding.sampling import PositionNoise


class Recorded(PositionNoise):
    """Remembers the noise of every position of every row, and sees to it that it never changes while it is within reach."""

    every: ClassVar[dict] = {}

    def draw(self, logits, first):
        """As its parent."""
        tokens = super().draw(logits, first)
        for row, start in enumerate(self._starts):
            for position in range(start, start + self._width):
                noise = self._held[row, position % self._width]
                assert torch.equal(self.every.setdefault((row, position), noise.clone()), noise)
        return tokens
