"""A bigram term: what a drafted token says of the one behind it, for drafts that one forward makes side by side.

The slots of a block of masks are predicted together, so slot i does not know which token slot i - 1 became. A low-rank term
over pairs of tokens, E_c U D e_p for a candidate c behind p, tells it, one slot after the other and without another forward. It
chooses among each slot's likeliest candidates alone. (Hydra, arXiv 2402.05109, and the sampler of arXiv 2507.11851 add such a
dependence by small networks.) Drafts are checked, so the term decides how often they are right and never what is written. Axes:
B rows, k slots, V vocabulary, H width, r rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

CANDIDATES = 32
"""Of a slot. A draft that is right is nearly always among so few, and a sum over the vocabulary would read the whole head."""
Draw = Callable[[Tensor, int], Tensor]
"""(B, 1, V) scores of a slot, and the slot: the token that is drawn, (B, 1)."""


@dataclass(frozen=True, slots=True)
class Bigram:
    """``before`` (V, H), the input embeddings e; ``head`` (V, H), the output embeddings E; ``down`` (r, H); ``up`` (H, r)."""

    before: Tensor
    head: Tensor
    down: Tensor
    up: Tensor

    def drafts(self, logits: Tensor, first: Tensor, draw: Draw) -> Tensor:
        """(B, k): the token ``first`` (B,) of slot 0, and behind it one draft for each other slot of ``logits`` (B, k, V)."""
        scores, candidates = logits[:, 1:].topk(min(CANDIDATES, logits.shape[-1]), dim=-1)
        made = [first[:, None]]
        for slot in range(1, logits.shape[1]):
            told = self.term(made[-1][:, 0].clamp(min=0))  # a slot whose logits name no token is below 0
            among = candidates[:, slot - 1]
            more = (self.head[among] @ told[..., None])[..., 0]  # (B, candidates)
            whole = torch.full_like(logits[:, slot], -torch.inf)
            made.append(draw(whole.scatter_(1, among, scores[:, slot - 1] + more)[:, None], slot))
        return torch.cat(made, dim=1)

    def term(self, before: Tensor) -> Tensor:
        """U D e of the tokens ``before``: (..., H), which adds to a slot's last hidden state."""
        told: Tensor = torch.nn.functional.linear(torch.nn.functional.linear(self.before[before], self.down), self.up)
        return told
