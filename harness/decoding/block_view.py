"""What a pass says of the open blocks, figure by figure: computed when a solver first asks for it, and then kept.

A figure of the whole vocabulary costs the sampler a walk over it, so no solver pays for one that it does not read.
Axes: B rows, k slots of the block, V vocabulary.
"""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from harness.decoding import sampling


class BlockView:
    """``masked`` (B, k) bool: the slots to choose from. ``logits`` (B, k, V): as sampling.usable makes them.

    Every figure is of the distribution that entropies are taken of: that at temperature 1 where decoding is greedy.
    """

    def __init__(self, logits: Tensor, masked: Tensor, temperature: float) -> None:
        self.masked = masked
        self._logits = logits
        self._temperature = temperature

    @property
    def vocabulary(self) -> int:
        """V, tokens that are never an answer included."""
        return self._logits.shape[-1]

    @cached_property
    def entropy(self) -> Tensor:
        """(B, k), in nats."""
        return sampling.entropy(self._logits, self._temperature)

    @cached_property
    def confidence(self) -> Tensor:
        """(B, k), float64: the largest probability of each slot."""
        return sampling.likeliest(self._logits, self._temperature, 1)[..., 0]

    @cached_property
    def margin(self) -> Tensor:
        """(B, k), float64: how far the largest probability of each slot lies above the next, if there is a next."""
        if self.vocabulary == 1:
            return self.confidence
        first, second = sampling.likeliest(self._logits, self._temperature, 2).unbind(dim=-1)
        return first - second
