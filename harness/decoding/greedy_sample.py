"""What a pass says at temperature 0, as pure functions of tensors: a fuse makes few kernels of them.

Above it the draw takes a generator, which no compiler takes. Axes: B rows, n positions, k slots of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property

import torch
from torch import Tensor

from harness.decoding.open_blocks import decided
from harness.decoding.sampling import LEAST_LOG_P, FiguresOf, TorchFigures, sampler_of, widened
from harness.decoding.session import NO_TOKEN
from harness.decoding.solvers import BlockView


class FusibleFigures(TorchFigures):
    """In operations that a compiler fuses into two loops, maximum and sums.

    H = log S - T / S. S is the sum of exp(x - max), T that of (x - max) exp(x - max); no term is negative.
    """

    def __init__(self, logits: Tensor, temperature: float) -> None:
        super().__init__(widened(logits, temperature), temperature)
        # An int64 is slow to compare.
        self._ids = torch.arange(logits.shape[-1], dtype=self._logits.dtype, device=logits.device)

    @cached_property
    def _highest(self) -> Tensor:
        return self._logits.amax(dim=-1, keepdim=True)

    @cached_property
    def _powers(self) -> tuple[Tensor, Tensor, Tensor]:
        """x - max, exp(x - max) and its sum S."""
        below = (self._logits - self._highest).clamp(min=LEAST_LOG_P)
        powers = below.exp()
        return below, powers, powers.sum(dim=-1)

    @cached_property
    def tokens(self) -> Tensor:
        """See TorchFigures."""
        last = self._logits.shape[-1]
        tokens = torch.where(self._logits == self._highest, self._ids, last).amin(dim=-1).long()
        return torch.where(self._highest[..., 0].abs() < torch.inf, tokens, NO_TOKEN)

    @cached_property
    def entropy(self) -> Tensor:
        """See TorchFigures."""
        below, powers, total = self._powers
        return total.log() - (powers * below).sum(dim=-1) / total

    @cached_property
    def confidence(self) -> Tensor:
        """See TorchFigures."""
        return 1 / self._powers[2].double()

    @cached_property
    def margin(self) -> Tensor:
        """See TorchFigures."""
        _, powers, total = self._powers
        of_others = torch.where(self._ids == self.tokens[..., None], 0.0, powers).amax(dim=-1)
        return self.confidence - of_others / total.double()


def next_tokens(logits: Tensor) -> tuple[Tensor]:
    """The likeliest token of each position, (B, n), from usable logits (B, n, V); else NO_TOKEN."""
    return (_sampler(logits)(logits, 0.0).tokens,)


@cache
def block_sample(choose: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """The sampler of a block by an acceptance's rule: one function for each rule, because a fuse compares identities."""

    def sample(logits: Tensor, masked: Tensor, block: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From usable logits (B, k, V), and masked slots and tokens of the block (B, k): see open_blocks.decided."""
        view = BlockView(logits, masked, 0.0, _sampler(logits))
        return decided(choose(view, *tensors), view.tokens, block, masked)

    return sample


def _sampler(logits: Tensor) -> FiguresOf:
    """The device's own, if that is one walk."""
    own = sampler_of(logits.device.type)
    return FusibleFigures if own is TorchFigures else own
