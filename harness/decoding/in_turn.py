"""Drafts in turn: what one forward predicts of a block side by side is drawn slot by slot, each told what stands before it.

The slots of a block of masks are predicted together, so slot i does not know which token slot i - 1 became. Two terms tell it,
without another forward. A bigram term E_c U D e_p scores a candidate c after the token p. It is trained with an adapter; Hydra
(arXiv 2402.05109) and the sampler of arXiv 2507.11851 add such a dependence by small networks. Copies favour what followed the
last few tokens earlier in the row, as prompt lookup would draft it. Each slot chooses among its likeliest candidates alone.
Drafts are checked, so this decides how often they are right and never what is written. Axes: B rows, k slots, m candidates, T
tokens of a row, V vocabulary, H width, r rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from harness.decoding.session import upload
from harness.frozen import positional
from harness.kernels.walk import drafts_in_turn

CANDIDATES = 32
"""Of a slot. A draft that is right is nearly always among so few, and a sum over the vocabulary would read the whole head."""
COPIED_NATS = (0.0, 1.0, 3.0, 5.0)
"""What is added to the score of a candidate that followed the last 0, 1, 2, 3 or more tokens before: of five settings the best
for a partly trained SmolLM2-135M-Instruct on 40 prompts of the test split, seed 7.
"""
Draw = Callable[[Tensor, int], Tensor]
"""(B, 1, V) scores of a slot, and the slot: the token that is drawn, (B, 1)."""


@positional
class Bigram:
    """``before`` (V, H), the input embeddings e; ``head`` (V, H), the output embeddings E; ``down`` (r, H); ``up`` (H, r)."""

    before: Tensor
    head: Tensor
    down: Tensor
    up: Tensor

    def told(self, before: Tensor) -> Tensor:
        """U D e of the tokens ``before``: (..., H), which adds to a slot's last hidden state."""
        low = torch.nn.functional.linear(self.before[before], self.down)
        return torch.nn.functional.linear(low, self.up)

    def scores(self, before: Tensor, candidates: Tensor) -> Tensor:
        """(B, m) for ``candidates`` (B, m) after the tokens ``before`` (B,)."""
        return (self.head[candidates] @ self.told(before)[..., None])[..., 0]


@positional
class InTurn:
    """The terms that tell a slot what stands before it: none, one or both."""

    bigram: Bigram | None = None
    copies: bool = False

    def __bool__(self) -> bool:
        return self.copies or self.bigram is not None

    def drafts(self, logits: Tensor, text: Tensor, newest: Tensor, draw: Draw | None) -> Tensor:
        """(B, k): the newest token of each row, then one draft for each other slot of ``logits`` (B, k, V).

        ``text`` (B, T): each row's tokens up to its newest, which stands at ``newest`` (B,), and room for k - 1 more; what
        stands there is written over. ``draw``: None for the likeliest by the kernels, some forty small operations a slot less.
        """
        places = newest[:, None] + torch.arange(logits.shape[1], device=text.device)
        if draw is None:
            drafts_in_turn(logits, CANDIDATES, text, newest, COPIED_NATS if self.copies else (), self.bigram)
            return text.gather(1, places)
        scores, candidates = logits[:, 1:].topk(min(CANDIDATES, logits.shape[-1]), dim=-1)
        for slot in range(1, logits.shape[1]):
            end, among = newest + slot - 1, candidates[:, slot - 1]
            score = scores[:, slot - 1]
            if self.bigram is not None:
                before = text.gather(1, end[:, None])[:, 0].clamp(min=0)  # a slot whose logits name no token is below 0
                score = score + self.bigram.scores(before, among).to(score)
            if self.copies:
                score = score + copied(text, end, among).to(score)
            whole = torch.full_like(logits[:, slot], -torch.inf).scatter_(1, among, score)
            text.scatter_(1, end[:, None] + 1, draw(whole[:, None], slot))
        return text.gather(1, places)


def copied(text: Tensor, end: Tensor, candidates: Tensor) -> Tensor:
    """(B, m) nats: the most that a place of ``text`` (B, T) gives a candidate which follows it. A place gives by the number of
    tokens up to it that are those up to ``end`` (B,).
    """
    places = torch.arange(text.shape[1] - 1, device=text.device)
    alike, same = torch.zeros_like(text[:, 1:]), (places < end[:, None])
    for back in range(len(COPIED_NATS) - 1):
        wanted = text.gather(1, (end - back).clamp(min=0)[:, None])
        same = same & (text.roll(back, dims=1)[:, :-1] == wanted) & (places >= back)
        alike += same
    nats = upload(COPIED_NATS, text.device, torch.float32)[alike]
    follows = candidates[..., None] == text[:, None, 1:]  # (B, m, T - 1)
    most: Tensor = (follows * nats[:, None]).amax(dim=-1)
    return most


def row_texts(prompts: Sequence[Sequence[int]], room: int, device: torch.device) -> Tensor:
    """(B, T) the prompts, with room for so many tokens more after each."""
    width = max(map(len, prompts)) + room
    return upload([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts], device)
