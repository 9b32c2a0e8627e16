"""Rules that pick which masked positions of a block become final. Axes: B rows, k slots of the block.

A solver is a pure function from the block's entropies to a set; SOLVERS is the registry a scenario names them from.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Solver = Callable[[Tensor, Tensor, float], Tensor]


def entropy_bounded(entropy: Tensor, masked: Tensor, gamma: float) -> Tensor:
    """Equation 8: the s masked slots of lowest entropy, s the largest with H_(1) + … + H_(s-1) ≤ γ; the last is not charged.

    Args:
        entropy: (B, k) in nats.
        masked: (B, k) bool, the slots to choose from.
        gamma: bound in nats, ≥ 0.

    Returns:
        (B, k) bool; at least one slot in every row that has a masked one. Ties go to the earlier slot.
    """
    cost = entropy.double().clamp(min=0).masked_fill(~masked, float("inf"))
    ordered, index = cost.sort(dim=-1, stable=True)
    charged_before = torch.nn.functional.pad(ordered.cumsum(dim=-1)[:, :-1], (1, 0))
    return torch.zeros_like(masked).scatter(-1, index, charged_before <= gamma) & masked


def lowest_entropy(entropy: Tensor, masked: Tensor, count: Tensor) -> Tensor:
    """The ``count`` (B,) masked slots of lowest entropy in each row, (B, k) bool: what replayed acceptance decides by."""
    cost = entropy.double().masked_fill(~masked, float("inf"))
    rank = cost.argsort(dim=-1, stable=True).argsort(dim=-1)
    return (rank < count[:, None]) & masked


SOLVERS: dict[str, Solver] = {"entropy_bounded": entropy_bounded}
