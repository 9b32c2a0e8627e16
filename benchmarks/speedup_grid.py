"""Expected wall speedups of many cells at once: the formulas of harness.roofline.speedup on arrays, one entry per cell.

A cell is one batch size, block size, number of passes per block and context. A whole grid has one model, one deployment and one
device's ceilings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.errors import UserError
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.ceilings import Ceilings
from harness.roofline.speedup import SpeedupPrediction, price_three_steps
from harness.roofline.step import DecodeArm
from harness.scenario.arms import Batching

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
    """As price_three_steps for every cell. The four axes broadcast against each other as numpy arrays do.

    Raises:
        UserError: a size below 1, fewer than one pass per block or more than k (the first such cell is named), unknown dtype.
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
        found[:, some] = _figures(price_three_steps(shape, deployment, ceilings, arm, rows, context), rows)
    return SpeedupGrid(**dict(zip(SpeedupGrid.__dataclass_fields__, found.reshape(-1, *given[0].shape), strict=True)))


def _entries(axis: Cells) -> Any:
    """One axis of the grid, where the formulas say int or float."""
    return axis


def _figures(prediction: SpeedupPrediction, rows: Any) -> Any:
    """One row per field of SpeedupGrid, in that order."""
    speedups = [getattr(prediction, name) for name in list(SpeedupGrid.__dataclass_fields__)[:3]]
    ntp_tokens_per_s = rows / prediction.ntp.expected_s
    tokens_per_s = [ntp_tokens_per_s, ntp_tokens_per_s * prediction.wall_speedup]
    return [*speedups, *tokens_per_s, *(price.expected_s for price in (prediction.ntp, prediction.first, prediction.later))]


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
