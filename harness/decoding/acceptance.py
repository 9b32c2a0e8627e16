"""Rules that choose what a pass makes final: a solver on what the model says of the block, or a replayed number.

Replayed acceptance reads the same entropies as the entropy-bounded solver, after the same forward pass and sampler; only the
choice is overridden. So a replayed run costs what a real one of the same acceptance would cost with that solver.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from harness.decoding.session import upload
from harness.decoding.solvers import BlockView, Solver, lowest

DRAWN_AHEAD = 16
"""Blocks whose passes a replay draws at once. Behind a forward that has emptied the caches the first draw costs as much as the
other fifteen, and a real acceptance does not have that cost.
"""
PassesPerBlock = Callable[[random.Random], int]
"""Draws how many passes a block takes."""


class Rule(NamedTuple):
    """How one pass chooses: ``choose(view, *tensors)``, (B, k) bool, a pure function. Rules with the same ``choose`` differ in
    their tensors alone, so what is compiled for one of them serves all.
    """

    choose: Callable[..., Tensor]
    tensors: tuple[Tensor, ...] = ()


class Acceptance:
    """Chooses slots pass by pass as the rule of the pass says, told when a block begins."""

    def begin_block(self, row: int, masked: int) -> None:
        """A block of ``row`` begins with so many masked slots; most acceptances have no memory."""

    def rule(self, rows: int) -> Rule:
        """How the next pass of so many rows chooses, once a pass."""
        raise NotImplementedError

    def choose(self, view: BlockView) -> Tensor:
        """(B, k) bool: the slots that become known in this pass, all of them masked ones."""
        choose, tensors = self.rule(view.masked.shape[0])
        return choose(view, *tensors)


class SolverAcceptance(Acceptance):
    """A solver with its knobs, by name (``gamma=0.1``)."""

    def __init__(self, solver: Solver, **knobs: float) -> None:
        bounds = {name: torch.tensor(value, dtype=torch.float64) for name, value in knobs.items() if isinstance(value, float)}
        counts = tuple((name, value) for name, value in knobs.items() if name not in bounds)
        self._rule = Rule(_by_solver(solver, tuple(bounds), counts), tuple(bounds.values()))

    def rule(self, rows: int) -> Rule:
        """The solver's, in every pass."""
        return self._rule


EVERY_SLOT = Rule(lambda view: view.masked)


class EverySlot(Acceptance):
    """The acceptance of a one-step draft: all masked slots at once."""

    def rule(self, rows: int) -> Rule:
        """Every masked slot."""
        return EVERY_SLOT


class ReplayedAcceptance(Acceptance):
    """Each row draws its passes of a block from ``draw_passes`` and spreads its slots evenly over them. Every row has its own
    random stream, so it draws the same passes whatever the other rows do.
    """

    def __init__(self, draw_passes: PassesPerBlock, seed: int) -> None:
        self._draw_passes = draw_passes
        self._stream_of = cache(lambda row: self._drawn(random.Random(f"replay/{seed}/{row}")))
        self._quotas: dict[int, list[int]] = {}

    def begin_block(self, row: int, masked: int) -> None:
        """Draw the row's passes for this block."""
        self._quotas[row] = spread(masked, min(next(self._stream_of(row)), masked)) if masked else []

    def _drawn(self, rng: random.Random) -> Iterator[int]:
        while True:
            yield from [self._draw_passes(rng) for _ in range(DRAWN_AHEAD)]

    def rule(self, rows: int) -> Rule:
        """The next quota of each row, lowest entropies first."""
        quotas = (self._quotas.get(row) for row in range(rows))
        counts = [quota.pop(0) if quota else 0 for quota in quotas]
        return Rule(_lowest_entropies, (torch.tensor(counts),))


@cache
def _by_solver(solver: Solver, bounds: tuple[str, ...], counts: tuple[tuple[str, float], ...]) -> Callable[..., Tensor]:
    """The solver as a function of its ``bounds``, in this order; ``counts`` are part of it."""

    def choose(view: BlockView, *values: Tensor) -> Tensor:
        return solver(view, **dict(zip(bounds, values, strict=True)), **dict(counts))

    return choose


def _lowest_entropies(view: BlockView, counts: Tensor) -> Tensor:
    return lowest(view.entropy, view.masked, upload(counts, view.masked.device)[:, None])


def spread(slots: int, passes: int) -> list[int]:
    """Split ``slots`` over ``passes`` as evenly as integers allow."""
    return [slots * (i + 1) // passes - slots * i // passes for i in range(passes)]


def assumed_passes(block_size: int, mean_passes: float) -> PassesPerBlock:
    """Draws 1 + Binomial(k-1, (mean-1)/(k-1)): support 1..k and exactly the given mean. An assumption, labelled so.

    Raises:
        ValueError: the mean is outside 1..k.
    """
    if not 1 <= mean_passes <= block_size:
        raise ValueError(f"{mean_passes} passes per block of {block_size}: must lie between 1 and the block size")
    if block_size == 1:
        return lambda rng: 1
    chance = (mean_passes - 1) / (block_size - 1)
    return lambda rng: 1 + sum(rng.random() < chance for _ in range(block_size - 1))


def recorded_passes(passes_per_block: Sequence[int]) -> PassesPerBlock:
    """Draws from the passes per block of a recorded trace."""
    return lambda rng: rng.choice(passes_per_block)
