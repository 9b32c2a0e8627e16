"""A model on the devices that share it, with the acceptance it is taken to have: prices any batch at any context."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.capacity.acceptance import Acceptance
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.ceilings import Ceilings
from harness.roofline.grid import SpeedupGrid, predict_grid
from harness.roofline.speedup import SpeedupPrediction, predict_speedup, price_three_passes

BATCHES_SEARCHED = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """``deployment.tensor_parallel`` devices of the kind that ``ceilings`` describe.

    Both methods raise UnknownHardwareError where there are several devices and their link rate is not known.
    """

    shape: ModelShape
    deployment: Deployment
    ceilings: Ceilings
    acceptance: Acceptance

    @property
    def batches(self) -> NDArray[np.int_]:
        """All batches from 1 to BATCHES_SEARCHED, or to the largest one whose acceptance is known."""
        known = self.acceptance.largest_batch
        return np.arange(1, (BATCHES_SEARCHED if known is None else min(known, BATCHES_SEARCHED)) + 1)

    def at(self, batch: int, context_tokens: int) -> SpeedupPrediction:
        """NTP and SBD at one batch."""
        priced = _at_batch(self.shape, self.deployment, self.ceilings, self.acceptance.block_size, batch, context_tokens)
        return replace(priced, passes_per_block=self.acceptance.passes_at(batch))

    def at_each(self, batches: NDArray[np.int_], context_tokens: int) -> SpeedupGrid:
        """NTP and SBD at every one of ``batches``."""
        return predict_grid(
            self.shape, self.deployment, self.ceilings, block_size=self.acceptance.block_size,
            passes_per_block=self.acceptance.passes_at(batches), batch=batches, context_tokens=context_tokens,
        )  # fmt: skip

    def at_all(self, context_tokens: int) -> SpeedupPrediction:
        """NTP and SBD at every one of ``batches``: an array of as many entries wherever a number depends on the batch."""
        batches = self.batches
        block_size = self.acceptance.block_size
        priced = _at_batches_to(self.shape, self.deployment, self.ceilings, block_size, len(batches), context_tokens)
        return replace(priced, passes_per_block=self.acceptance.passes_at(batches))


# What a pass costs does not depend on how many of them a block takes, so plans that differ in the acceptance alone share it.
@lru_cache(maxsize=64)
def _at_batch(
    shape: ModelShape, deployment: Deployment, ceilings: Ceilings, block_size: int, batch: int, context_tokens: int
) -> SpeedupPrediction:
    return predict_speedup(
        shape, deployment, ceilings, block_size=block_size, passes_per_block=block_size, batch=batch,
        context_tokens=context_tokens,
    )  # fmt: skip


@lru_cache(maxsize=8)  # of 2 MB each
def _at_batches_to(
    shape: ModelShape, deployment: Deployment, ceilings: Ceilings, block_size: int, last_batch: int, context_tokens: int
) -> SpeedupPrediction:
    counts: Any = np.arange(1.0, last_batch + 1)  # an array where the formulas say int
    priced = price_three_passes(shape, deployment, ceilings, block_size, block_size, counts, context_tokens)
    ntp, first, later = (replace(one, operations=(), sampler=None) for one in (priced.ntp, priced.first, priced.later))
    return replace(priced, ntp=ntp, first=first, later=later)
