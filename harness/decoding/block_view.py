"""What a pass says of the open blocks, figure by figure: computed when a solver first asks for it, and then kept.

A figure of the whole vocabulary costs the sampler a walk over it, so no solver pays for one that it does not read.
Axes: B rows, k slots of the block, V vocabulary.
"""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from harness.decoding.sampling import FiguresOf, sampler_of


class BlockView:
    """``masked`` (B, k) bool: the slots to choose from. ``logits`` (B, k, V): as sampling.usable makes them. ``sampler``: who
    reads them, by default their device's own.

    Every figure is of the distribution that entropies are taken of: that at temperature 1 where decoding is greedy.
    """

    def __init__(self, logits: Tensor, masked: Tensor, temperature: float, sampler: FiguresOf | None = None) -> None:
        self.masked = masked
        self.vocabulary: int = logits.shape[-1]
        """V, tokens that are never an answer included."""
        self._figures = (sampler or sampler_of(logits.device.type))(logits, temperature)

    @cached_property
    def tokens(self) -> Tensor:
        """(B, k): the likeliest token of each slot, sampling.NO_TOKEN where there is none."""
        return self._figures.tokens

    @cached_property
    def entropy(self) -> Tensor:
        """(B, k), in nats."""
        return self._figures.entropy

    @cached_property
    def confidence(self) -> Tensor:
        """(B, k), float64: the largest probability of each slot."""
        return self._figures.confidence

    @cached_property
    def margin(self) -> Tensor:
        """(B, k), float64: how far the largest probability of each slot lies above the next, if there is a next."""
        return self._figures.margin
