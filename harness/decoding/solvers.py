"""Rules that pick which masked slots of a block become final. Axes: B rows, k slots of the block, V vocabulary.

A solver is a pure function of what a pass says of the block (BlockView) and of its knobs:

    solver(view, **knobs) -> (B, k) bool, at least one slot in every row that has a masked one

Ties go to the earlier slot, and nothing waits for the device. All are lossy: their output is not that of one token a pass. A
figure of the whole vocabulary costs the sampler a walk over it. A BlockView therefore computes a figure when a solver first
asks for it, and keeps it. Names, knobs and sources: harness.scenario.solvers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.decoding.sampling import FiguresOf, figures_of


class BlockView:
    """``masked`` (B, k) bool: the slots to choose from. ``logits`` (B, k, V): as sampling.usable makes them. ``sampler``: who
    reads them, by default their device's own.

    Every figure is of the distribution that entropies are taken of: that at temperature 1 where decoding is greedy.
    """

    def __init__(self, logits: Tensor, masked: Tensor, temperature: float, sampler: FiguresOf | None = None) -> None:
        self.masked = masked
        self.vocabulary: int = logits.shape[-1]
        """V, tokens that are never an answer included."""
        self._figures = figures_of(logits, temperature, sampler)

    @cached_property
    def tokens(self) -> Tensor:
        """(B, k): the likeliest token of each slot, NO_TOKEN where a slot names none."""
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
        """(B, k), float64: the largest probability of each slot less the next, if a next exists."""
        return self._figures.margin


Solver = Callable[..., Tensor]


def entropy_bounded(view: BlockView, *, gamma: float) -> Tensor:
    """Equation 8: the s masked slots of lowest entropy, s the largest with H_(1) + … + H_(s-1) ≤ γ; the last is not charged."""
    nats = view.entropy.clamp(min=0)
    charged_before = torch.where(_before(nats, view.masked), nats[:, None], 0).sum(dim=-1, dtype=torch.float64)
    return (charged_before <= gamma) & view.masked


def entropy_bounded_confidence(view: BlockView, *, gamma: float) -> Tensor:
    """Equation 18, likeliest slots first: the longest such prefix U with Σ_U H - max_U H ≤ γ."""
    return _entropy_bounded(view, -view.confidence, gamma)


def entropy_bounded_margin(view: BlockView, *, gamma: float) -> Tensor:
    """Equation 18, slots of widest margin first: the longest such prefix U with Σ_U H - max_U H ≤ γ."""
    return _entropy_bounded(view, -view.margin, gamma)


def threshold(view: BlockView, *, tau: float) -> Tensor:
    """Every slot of confidence τ or more, and the likeliest one in any case."""
    return (view.confidence >= tau) & view.masked | _likeliest(view, 1)


def threshold_strict(view: BlockView, *, tau: float) -> Tensor:
    """Every slot of confidence above τ, and the likeliest one in any case."""
    return (view.confidence > tau) & view.masked | _likeliest(view, 1)


def factor(view: BlockView, *, factor: float) -> Tensor:
    """The n likeliest slots, n the largest with (n + 1)(1 - c_(n)) < f, and the likeliest one in any case.

    The rule of Fast-dLLM's theorem; eq. B.1 of the SBD paper prints it without the 1 -.
    """
    cost, index = _ordered(-view.confidence, view.masked)
    rank = _ranks(view.masked)
    return _chosen((((rank + 1) * (1 + cost)) < factor) | (rank == 1), index, view.masked)


def factor_fastdllm(view: BlockView, *, factor: float) -> Tensor:
    """As Fast-dLLM released it: the likeliest slots up to the first with c_(n) < 1 - f / (n + 1). That first one is left out
    unless it is the last masked one, so two masked slots always both become final. A slot just on the bound stays in.
    """
    cost, index = _ordered(-view.confidence, view.masked)
    rank = _ranks(view.masked)
    slots = view.masked.sum(dim=-1, keepdim=True)
    within = (-cost >= 1 - factor / (rank + 1)) | (rank == 1)
    count = within.sum(dim=-1, keepdim=True)
    return _chosen(within | (count >= slots - 1), index, view.masked)


def frechet(view: BlockView, *, delta: float) -> Tensor:
    """The n likeliest slots, n the largest with L_n - U_n > δ, and the likeliest one in any case.

    L_n = c_(1) + … + c_(n) - (n - 1) is the Fréchet bound on all n being right; U_n = 1 - c_(n). The bound's floor at 0
    decides nothing where δ ≥ 0.
    """
    cost, index = _ordered(1 - view.confidence, view.masked)
    least = 1 - cost.cumsum(dim=-1)  # Σ c - (n - 1) = 1 - Σ (1 - c)
    return _chosen((least - cost > delta) | (_ranks(view.masked) == 1), index, view.masked)


def longest_prefix(view: BlockView, *, tau: float) -> Tensor:
    """The leading masked slots of confidence above τ, and the first one in any case."""
    return _leading(view.confidence > tau, view.masked)


def longest_prefix_entropy(view: BlockView, *, tau: float) -> Tensor:
    """The leading masked slots with 1 - H / log V above τ, and the first one in any case."""
    largest = math.log(max(view.vocabulary, 2))  # the one word of a vocabulary of one is certain: entropy 0
    return _leading(1 - view.entropy.double() / largest > tau, view.masked)


def top_k(view: BlockView, *, tokens: int) -> Tensor:
    """So many likeliest slots in every pass."""
    return _likeliest(view, tokens)


def uniform(view: BlockView, *, steps: int) -> Tensor:
    """k / ``steps`` likeliest slots in every pass, the remainder one by one in the first passes: a block in so many passes."""
    return _likeliest(view, _quota(view.masked, steps))


def low_confidence_dynamic(view: BlockView, *, tau: float, steps: int) -> Tensor:
    """Every slot of confidence above τ if those are as many as ``uniform`` would take; else what that takes."""
    above = (view.confidence > tau) & view.masked
    quota = _quota(view.masked, steps)
    return torch.where(above.sum(dim=-1, keepdim=True) >= quota, above, _likeliest(view, quota))


def _entropy_bounded(view: BlockView, cost: Tensor, gamma: float) -> Tensor:
    """Equation 18 in the order of ``cost``; a running sum of all but the largest, so that nothing cancels."""
    _, index = _ordered(cost, view.masked)
    nats = view.entropy.double().clamp(min=0).gather(-1, index)
    largest_before = pad(nats.cummax(dim=-1).values[:, :-1], (1, 0))
    return _chosen(torch.minimum(nats, largest_before).cumsum(dim=-1) <= gamma, index, view.masked)


def _quota(masked: Tensor, steps: int) -> Tensor:
    """(B, 1): how many slots the uniform schedule takes next. It counts the slots that are left instead of passes, so a row
    ahead of the schedule goes on where it is.
    """
    share, remainder = divmod(masked.shape[-1], steps)
    late = masked.sum(dim=-1, keepdim=True) > share * (steps - remainder)
    return share + late.long()


def _leading(sure: Tensor, masked: Tensor) -> Tensor:
    """The masked slots before the first masked one that is not ``sure``, and the first of all."""
    unsure_before = pad((masked & ~sure).cumsum(dim=-1)[:, :-1], (1, 0))
    first = masked & (masked.cumsum(dim=-1) == 1)
    return masked & sure & (unsure_before == 0) | first


def _likeliest(view: BlockView, count: int | Tensor) -> Tensor:
    return lowest(-view.confidence, view.masked, count)


def lowest(cost: Tensor, masked: Tensor, count: int | Tensor) -> Tensor:
    """(B, k) bool: the ``count`` ((B, 1), or of all rows) masked slots of least ``cost``."""
    return (_before(cost, masked).sum(dim=-1) < count) & masked


def _before(cost: Tensor, masked: Tensor) -> Tensor:
    """(B, k, k) bool: True where the masked slot of the column comes before that of the row, by ``cost``. A NaN is before and
    after nothing. In a narrow block, comparing all pairs takes fewer and cheaper operations than sorting and going back.
    """
    costs = torch.where(masked, cost, math.inf)
    mine, other = costs[:, :, None], costs[:, None]
    slots = torch.arange(masked.shape[-1], device=masked.device)
    return torch.where(slots < slots[:, None], other <= mine, other < mine)


def _ordered(cost: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
    """(B, k) twice: the costs from least to most, slots that are not masked last at infinity; and the slot each came from."""
    return cost.masked_fill(~masked, math.inf).sort(dim=-1, stable=True)


def _ranks(masked: Tensor) -> Tensor:
    """(k,), float64: 1, 2, …, k."""
    return torch.arange(1, masked.shape[-1] + 1, dtype=torch.float64, device=masked.device)


def _chosen(of_rank: Tensor, index: Tensor, masked: Tensor) -> Tensor:
    """From ranks, (B, k) or (k,), back to slots."""
    return torch.zeros_like(masked).scatter(-1, index, of_rank.expand_as(index)) & masked
