"""A model on the devices that share it, with the acceptance it is taken to have: prices any batch at any context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.capacity_acceptance import Acceptance
from harness.deployment import Deployment
from harness.modelshape import ModelShape
from harness.roofline.ceilings import Ceilings
from harness.roofline.decode import SpeedupPrediction, predict_speedup
from harness.roofline.grid import SpeedupGrid, predict_grid

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
        return predict_speedup(
            self.shape, self.deployment, self.ceilings, block_size=self.acceptance.block_size,
            passes_per_block=self.acceptance.passes_at(batch), batch=batch, context_tokens=context_tokens,
        )  # fmt: skip

    def at_each(self, batches: NDArray[np.int_], context_tokens: int) -> SpeedupGrid:
        """NTP and SBD at every one of ``batches``."""
        return predict_grid(
            self.shape, self.deployment, self.ceilings, block_size=self.acceptance.block_size,
            passes_per_block=self.acceptance.passes_at(batches), batch=batches, context_tokens=context_tokens,
        )  # fmt: skip
