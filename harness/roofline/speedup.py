"""Expected wall speedup of SBD over NTP before anything runs, from the one model of a batch (harness.roofline.step).

With l passes a block of k tokens, a row writes k / l tokens a step: the speedup is k * t(NTP step) / (l * t(SBD step)). At one
row, and in lockstep, this is equation 16 of arXiv 2509.04185, k * t(1) / (t(2k) + (l - 1) * t(k)). Every pass is priced in
full: all layers, LM head, KV traffic, sampler and known fixed costs. In lockstep the caller gives the slowest row's passes.

A grid evaluates the same formulas on arrays, one entry per cell. A cell is one batch size, block size, number of passes per
block and context. A whole grid has one model, one deployment and one device's ceilings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.errors import UserError
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.record.trace import ForwardPass, Role
from harness.roofline.ceilings import Ceilings
from harness.roofline.pricing import PassPrice
from harness.roofline.step import NTP, DecodeArm, price_kinds
from harness.scenario.arms import Batching


class WallSpeedups:
    """The wall speedups of a prediction whose times are known for every overlap of memory and arithmetic."""

    __slots__ = ()

    def _speedup(self, side: str) -> float:
        raise NotImplementedError

    @property
    def wall_speedup(self) -> float:
        """Ratio of expected times per decode token, NTP / SBD."""
        return self._speedup("expected_s")

    @property
    def wall_speedup_overlapped(self) -> float:
        """The same with memory and arithmetic fully overlapped in both arms."""
        return self._speedup("low_s")

    @property
    def wall_speedup_serial(self) -> float:
        """The same with nothing overlapped in either arm."""
        return self._speedup("high_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupPrediction(WallSpeedups):
    """Prices of a step of NTP and of the two kinds of step of SBD, and the figures from them.

    ``passes_per_block``  the committing or checking one included
    ``tokens_per_block``  that become final: k, or with verified SBD fewer
    ``first``, ``later``  in lockstep, and at one row: the first pass of a block and a later one. Ragged: the two steps, with
                          more and with fewer rows that open a block, that stand for all (harness.roofline.step)
    ``first_passes``      of the passes of a block, how many are ``first``; in lockstep one
    """

    block_size: int
    passes_per_block: float
    batch: int
    context_tokens: int
    batching: Batching
    ntp: PassPrice
    first: PassPrice
    later: PassPrice
    first_passes: float
    tokens_per_block: float

    @property
    def nfe_speedup(self) -> float:
        """Tokens per pass."""
        return self.tokens_per_block / self.passes_per_block

    @property
    def ntp_tokens_per_s(self) -> float:
        """Expected tokens per second of the whole batch, NTP."""
        return self.batch / self.ntp.expected_s

    @property
    def sbd_tokens_per_s(self) -> float:
        """Expected tokens per second of the whole batch, SBD."""
        return self.ntp_tokens_per_s * self.wall_speedup

    def sbd_step_s(self, side: str = "expected_s") -> float:
        """Mean seconds of a step of SBD; ``side`` is a field of PassPrice."""
        return self._block_s(side) / self.passes_per_block

    def _block_s(self, side: str) -> float:
        first_s, later_s = (getattr(price, side) for price in (self.first, self.later))
        found: float = self.first_passes * first_s + (self.passes_per_block - self.first_passes) * later_s
        return found

    def _speedup(self, side: str) -> float:
        speedup: float = self.tokens_per_block * getattr(self.ntp, side) / self._block_s(side)
        return speedup


def predict_speedup(
    shape: ModelShape,
    deployment: Deployment | str,
    ceilings: Ceilings,
    *,
    block_size: int,
    passes_per_block: float,
    batch: int,
    context_tokens: int,
    batching: Batching = "ragged",
) -> SpeedupPrediction:
    """Price NTP and SBD at ``context_tokens`` known tokens per row before the block.

    The first pass of a block feeds 2k tokens (the previous block, whose KV it keeps, and k masks); later passes feed k.
    At the start the previous block is not in the cache yet, so the first pass reads k tokens less of it.
    ``passes_per_block`` is the mean of a row; in lockstep, that of the slowest row.

    Raises:
        UserError: a size below 1, a context below 0, fewer than one pass per block or more than k, unknown dtype.
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    if block_size < 1 or batch < 1 or context_tokens < 0 or not 1 <= passes_per_block <= block_size:
        raise UserError(
            f"given were block_size {block_size}, passes_per_block {passes_per_block}, batch {batch}, context_tokens "
            f"{context_tokens}; sizes must be at least 1, the context at least 0, and 1 <= passes_per_block <= block_size"
        )
    arm = DecodeArm(block_size=block_size, passes_per_block=passes_per_block, batching=batching)
    return price_three_steps(shape, deployment, ceilings, arm, batch, context_tokens)


def price_three_steps(
    shape: ModelShape, deployment: Deployment | str, ceilings: Ceilings, arm: DecodeArm, batch: int, context_tokens: int
) -> SpeedupPrediction:
    """As predict_speedup, unchecked, for any arm with blocks; with numpy arrays as counts the prices are arrays too
    (harness.roofline.operation).
    """
    ((_, ntp),) = price_kinds(shape, deployment, ceilings, NTP, batch, context_tokens)
    (share, first), (_, later) = price_kinds(shape, deployment, ceilings, arm, batch, context_tokens)
    return SpeedupPrediction(
        block_size=arm.block_size,
        passes_per_block=arm.passes_per_block,
        batch=batch,
        context_tokens=context_tokens,
        batching=arm.batching,
        ntp=ntp,
        first=first,
        later=later,
        first_passes=1.0 if arm.batching == "lockstep" else share * arm.passes_per_block,
        tokens_per_block=arm.tokens_per_block,
    )


def describe_pass(role: Role, batch: int, query: int, context: int, *, logits: int, kept: int = 0) -> ForwardPass:
    """A pass written by hand, every row alike, for pricing only (nothing is decided in it)."""
    return ForwardPass(
        role=role,
        query_tokens=(query,) * batch,
        context_tokens=(context,) * batch,
        logit_tokens=(logits,) * batch,
        kept_tokens=(kept,) * batch,
        decided_tokens=(0,) * batch,
        final_tokens=(0,) * batch,
        active=(True,) * batch,
        padded_query=query,
        padded_context=context,
    )


Cells = NDArray[np.float64]

# Cells priced together: their arrays of intermediate results stay in a core's cache.
CELLS_AT_ONCE = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupGrid:
    """The figures of SpeedupPrediction for every cell of a grid, in the shape the axes broadcast to.

    ``ntp_pass_s``, ``first_pass_s`` and ``later_pass_s`` are the expected seconds of the three kinds of step.
    """

    wall_speedup: Cells
    wall_speedup_overlapped: Cells
    wall_speedup_serial: Cells
    ntp_tokens_per_s: Cells
    sbd_tokens_per_s: Cells
    ntp_pass_s: Cells
    first_pass_s: Cells
    later_pass_s: Cells


def predict_grid(
    shape: ModelShape,
    deployment: Deployment | str,
    ceilings: Ceilings,
    *,
    block_size: ArrayLike,
    passes_per_block: ArrayLike,
    batch: ArrayLike,
    context_tokens: ArrayLike,
    batching: Batching = "ragged",
) -> SpeedupGrid:
    """As predict_speedup for every cell. The four axes broadcast against each other as numpy arrays do.

    Raises:
        UserError: a cell that predict_speedup would refuse (the first one is named), unknown dtype.
        UnknownHardwareError: a split over devices whose link rate is not known.
    """
    axes = (block_size, passes_per_block, batch, context_tokens)
    given = np.broadcast_arrays(*(np.asarray(axis, dtype=float) for axis in axes))
    cells = np.stack([axis.ravel() for axis in given])
    _check(cells)
    found = np.empty((len(SpeedupGrid.__dataclass_fields__), cells.shape[1]))
    for start in range(0, cells.shape[1], CELLS_AT_ONCE):
        some = slice(start, start + CELLS_AT_ONCE)
        block, passes, rows, context = (_entries(axis[some]) for axis in cells)
        arm = DecodeArm(block_size=block, passes_per_block=passes, batching=batching)
        found[:, some] = _figures(price_three_steps(shape, deployment, ceilings, arm, rows, context))
    return SpeedupGrid(**dict(zip(SpeedupGrid.__dataclass_fields__, found.reshape(-1, *given[0].shape), strict=True)))


def _entries(axis: Cells) -> Any:
    """One axis of the grid, where the formulas say int or float."""
    return axis


def _figures(prediction: SpeedupPrediction) -> Any:
    """One row per field of SpeedupGrid, in that order."""
    rows = [getattr(prediction, name) for name in list(SpeedupGrid.__dataclass_fields__)[:5]]
    return rows + [price.expected_s for price in (prediction.ntp, prediction.first, prediction.later)]


def _check(cells: Cells) -> None:
    block_size, passes, batch, context = cells
    possible = (block_size >= 1) & (batch >= 1) & (context >= 0) & (passes >= 1) & (passes <= block_size)
    whole = np.all(cells[[0, 2, 3]] % 1 == 0, axis=0)
    if np.all(possible & whole):
        return
    bad = cells[:, np.argmin(possible & whole)]
    raise UserError(
        f"cell block_size {bad[0]:g}, passes_per_block {bad[1]:g}, batch {bad[2]:g}, context_tokens {bad[3]:g}: sizes must be "
        "whole and at least 1, the context whole and at least 0, and 1 <= passes_per_block <= block_size"
    )
