"""Pure functions on logits: from what the model says to a token and its entropy. Axes: B rows, n positions, V vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor


def suppress(logits: Tensor, token_ids: Tensor) -> Tensor:
    """Make ``token_ids`` (s,) impossible: the mask token, above all, is never an answer. Works in place on (B, n, V)."""
    return logits.index_fill_(-1, token_ids, float("-inf"))


def draw(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """The token of each position, (B, n): the argmax at temperature 0, else a sample of softmax(logits / temperature)."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    wide = logits.to(_accurate(logits)) / temperature
    # Gumbel-max: one pass over the vocabulary, no normalisation, and exact.
    noise = torch.empty_like(wide).exponential_(generator=generator).log_().neg_()
    return (wide + noise).argmax(dim=-1)


def entropy(logits: Tensor, temperature: float) -> Tensor:
    """Entropy of each position's distribution in nats, (B, n), in float32 or better.

    At temperature 0 it is the entropy at temperature 1 (design.md), else that of softmax(logits / temperature).
    """
    wide = logits.to(_accurate(logits))
    log_p = torch.log_softmax(wide if temperature == 0 else wide / temperature, dim=-1)
    nats: Tensor = torch.special.entr(log_p.exp()).sum(dim=-1)
    return nats


def _accurate(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32
