"""A model on the devices that share it, with an assumed acceptance: its speed at any batch and context.

``break_even`` finds the batches at which Set Block Decoding pays. It looks at all, because they need not form one range.
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
from harness.roofline.speedup import SpeedupPrediction, price_three_steps
from harness.roofline.step import NTP, DecodeArm

BATCHES_SEARCHED = 8192
FIRST_THINNED, LARGER_BATCHES = 64, 256


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

    def at_each(self, batches: NDArray[np.int_], context_tokens: int) -> SpeedupPrediction:
        """NTP and SBD at every one of ``batches``; numbers that depend on the batch are arrays of as many entries."""
        sizes: Any = batches.astype(float)  # an array where the formulas say int
        arm = self.acceptance.arm_at(sizes)
        return price_three_steps(self.shape, self.deployment, self.ceilings, arm, sizes, context_tokens)

    def arm(self, method: Method, batch: Any) -> DecodeArm:
        """How rows of ``method`` decode in a batch; ``batch`` is a number or an array."""
        return NTP if method == "ntp" else self.acceptance.arm_at(batch)


@lru_cache(maxsize=64)
def _at_batch(replica: Replica, batch: int, context_tokens: int) -> SpeedupPrediction:
    arm = replica.acceptance.arm_at(batch)
    return price_three_steps(replica.shape, replica.deployment, replica.ceilings, arm, batch, context_tokens)


def break_even(replica: Replica, context_tokens: int, largest_batch: int) -> BreakEven:
    """Where SBD pays at this context, over all batches of the replica, whether they fit (``largest_batch``) or not."""
    searched = len(replica.batches)
    pays, overlapped, serial = map(paying_ranges, _speedups(replica, context_tokens, searched))
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


def thinned(last: int) -> NDArray[np.int_]:
    """Batches from 1 to ``last``: all small ones, then steps of about 2 %."""
    if last <= FIRST_THINNED:
        return np.arange(1, last + 1)
    larger = np.geomspace(FIRST_THINNED, last, LARGER_BATCHES).round().astype(int)
    return np.unique(np.concatenate([np.arange(1, FIRST_THINNED), larger]))


@lru_cache(maxsize=32)  # plans that differ in the batch alone share it; of 200 kB each
def _speedups(replica: Replica, context_tokens: int, last: int) -> NDArray[np.float64]:
    """(3, last) wall speedups: expected, overlapped, serial.

    Between thinned batches of which all or none pay, entries are only above 1 or not; where that changes, each is priced.
    """
    coarse = thinned(last)
    found = _sides(replica, context_tokens, coarse)
    whole = found[:, np.searchsorted(coarse, np.arange(1, last + 1))]
    changes = np.flatnonzero(((found > 1)[:, 1:] != (found > 1)[:, :-1]).any(axis=0))
    between = [np.arange(coarse[at] + 1, coarse[at + 1]) for at in changes]
    batches = np.concatenate([*between, np.zeros(0, dtype=int)]).astype(int)
    if len(batches):
        whole[:, batches - 1] = _sides(replica, context_tokens, batches)
    return whole


def _sides(replica: Replica, context_tokens: int, batches: NDArray[np.int_]) -> NDArray[np.float64]:
    at = replica.at_each(batches, context_tokens)
    return np.array([at.wall_speedup, at.wall_speedup_overlapped, at.wall_speedup_serial])


def paying_ranges(wall_speedup: NDArray[np.float64]) -> tuple[tuple[int, int], ...]:
    """(first, last batch) of every run of batches with a speedup above 1; entry i is the speedup at batch i + 1."""
    edges = np.diff(np.concatenate(([0], (wall_speedup > 1).astype(int), [0])))
    starts, ends = np.flatnonzero(edges == 1) + 1, np.flatnonzero(edges == -1)
    return tuple((int(start), int(end)) for start, end in zip(starts, ends, strict=True))
