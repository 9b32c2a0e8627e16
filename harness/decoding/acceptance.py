"""Rules that choose what a pass makes final: a solver on what the model says of the block, or a replayed number.

Replayed acceptance reads the same entropies as the entropy-bounded solver, after the same forward pass and sampler; only the
choice is overridden. So a replayed run costs what a real one of the same acceptance would cost with that solver.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import torch
from torch import Tensor

from harness.decoding.session import upload
from harness.decoding.solvers import BlockView, Solver, lowest

DRAWN_AHEAD = 16
"""Blocks whose passes a replay draws at once. After a forward that has emptied the caches the first draw costs as much as the
other fifteen, and a real acceptance does not have that cost.
"""
PassesPerBlock = Callable[[random.Random], int]
"""Draws how many passes a block takes."""


class Acceptance:
    """Chooses slots pass by pass, told when a block begins."""

    def begin_block(self, row: int, masked: int) -> None:
        """A block of ``row`` begins with so many masked slots; most acceptances have no memory."""

    def choose(self, view: BlockView) -> Tensor:
        """(B, k) bool: the slots that become known in this pass, all of them masked ones; asked once a pass."""
        raise NotImplementedError


class SolverAcceptance(Acceptance):
    """A solver with its knobs, by name (``gamma=0.1``)."""

    def __init__(self, solver: Solver, **knobs: float) -> None:
        self._solver = solver
        self._knobs: dict[str, object] = {
            name: torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else value
            for name, value in knobs.items()
        }

    def choose(self, view: BlockView) -> Tensor:
        """The solver's, in every pass."""
        return self._solver(view, **self._knobs)


class EverySlot(Acceptance):
    """The acceptance of a one-step draft: all masked slots at once."""

    def choose(self, view: BlockView) -> Tensor:
        """Every masked slot."""
        return view.masked


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

    def choose(self, view: BlockView) -> Tensor:
        """The next quota of each row, lowest entropies first."""
        quotas = (self._quotas.get(row) for row in range(len(view.masked)))
        counts = torch.tensor([quota.pop(0) if quota else 0 for quota in quotas])
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
