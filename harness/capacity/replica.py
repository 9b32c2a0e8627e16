"""A model on the devices that share it, with an assumed acceptance: its speed at any batch and context.

``break_even`` finds the batches at which Set Block Decoding pays. It prices every batch, because they need not form one range.
Small batches are bound by weights, so a block is nearly free; on a mixture of experts a block visits more experts and may lose.
Larger batches are bound by arithmetic, where SBD computes more. At long contexts the cache is read once per pass instead of
once per token, so SBD can pay again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.capacity.acceptance import AssumedAcceptance
from harness.capacity.results import BreakEven, Method
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.ceilings import Ceilings
from harness.roofline.speedup import SpeedupGrid, SpeedupPrediction, predict_grid, predict_speedup
from harness.roofline.step import NTP, DecodeArm

BATCHES_SEARCHED = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """``deployment.devices`` devices of the kind that ``ceilings`` describe, with their link.

    Its methods, and the functions of this module, raise UnknownHardwareError for several devices whose link rate is not known.
    """

    shape: ModelShape
    deployment: Deployment
    ceilings: Ceilings
    acceptance: AssumedAcceptance

    @property
    def batches(self) -> NDArray[np.int_]:
        """All batches from 1 to BATCHES_SEARCHED, or to the largest one whose acceptance is known."""
        known = self.acceptance.largest_batch
        return np.arange(1, (BATCHES_SEARCHED if known is None else min(known, BATCHES_SEARCHED)) + 1)

    def at(self, batch: int, context_tokens: int) -> SpeedupPrediction:
        """NTP and SBD at one batch."""
        return _at_batch(self, batch, context_tokens)

    def at_each(self, batches: NDArray[np.int_], context_tokens: int) -> SpeedupGrid:
        """NTP and SBD at every one of ``batches``."""
        return predict_grid(
            self.shape, self.deployment, self.ceilings, block_size=self.acceptance.block_size,
            passes_per_block=self.acceptance.passes_at(batches), batch=batches, context_tokens=context_tokens,
            batching=self.acceptance.batching,
        )  # fmt: skip

    def arm(self, method: Method, batch: Any) -> DecodeArm:
        """How rows of ``method`` decode in a batch; ``batch`` is a number or an array."""
        if method == "ntp":
            return NTP
        found = self.acceptance
        return DecodeArm(block_size=found.block_size, passes_per_block=found.passes_at(batch), batching=found.batching)


@lru_cache(maxsize=64)
def _at_batch(replica: Replica, batch: int, context_tokens: int) -> SpeedupPrediction:
    found = replica.acceptance
    return predict_speedup(
        replica.shape, replica.deployment, replica.ceilings, block_size=found.block_size,
        passes_per_block=found.passes_at(batch), batch=batch, context_tokens=context_tokens, batching=found.batching,
    )  # fmt: skip


def break_even(replica: Replica, context_tokens: int, largest_batch: int) -> BreakEven:
    """Where SBD pays at this context, over all batches of the replica, whether they fit (``largest_batch``) or not."""
    everywhere = replica.at_each(replica.batches, context_tokens)
    sides: tuple[Any, ...] = (everywhere.wall_speedup, everywhere.wall_speedup_overlapped, everywhere.wall_speedup_serial)
    (pays, overlapped, serial), searched = map(paying_ranges, sides), len(replica.batches)
    last = pays[0][1] if pays and pays[0][1] < searched else None
    return BreakEven(
        context_tokens=context_tokens,
        reason=None,
        tensor_parallel=replica.deployment.tensor_parallel,
        searched_batch=searched,
        largest_batch=largest_batch,
        pays=pays,
        pays_overlapped=overlapped,
        pays_serial=serial,
        last_batch=last,
        tokens_per_pass=None if last is None else last * replica.acceptance.block_size,
    )


def paying_ranges(wall_speedup: NDArray[np.float64]) -> tuple[tuple[int, int], ...]:
    """(first, last batch) of every run of batches with a speedup above 1; entry i is the speedup at batch i + 1."""
    edges = np.diff(np.concatenate(([0], (wall_speedup > 1).astype(int), [0])))
    starts, ends = np.flatnonzero(edges == 1) + 1, np.flatnonzero(edges == -1)
    return tuple((int(start), int(end)) for start, end in zip(starts, ends, strict=True))
