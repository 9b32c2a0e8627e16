"""A model on the devices that share it, with an assumed acceptance: speed, GPUs and cost at any batch and context.

``break_even`` finds the batches at which Set Block Decoding pays. It prices every batch, because they need not form one range.
Small batches are bound by weights, so a block is nearly free; on a mixture of experts a block visits more experts and may lose.
Larger batches are bound by arithmetic, where SBD computes more. At long contexts the cache is read once per pass instead of
once per token, so SBD can pay again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from harness.capacity.acceptance import AssumedAcceptance
from harness.capacity.results import ArmPlan, Band, BreakEven, Goal, Workload
from harness.hardware.profile import HardwareProfile
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.ceilings import Ceilings
from harness.roofline.memory import MemoryNeed
from harness.roofline.operation import PassCounts
from harness.roofline.pricing import price_counts
from harness.roofline.speedup import SpeedupGrid, SpeedupPrediction, predict_grid, predict_speedup, price_three_passes

BATCHES_SEARCHED = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """``deployment.tensor_parallel`` devices of the kind that ``ceilings`` describe.

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
        priced = _at_batch(self.shape, self.deployment, self.ceilings, self.acceptance.block_size, batch, context_tokens)
        return replace(priced, passes_per_block=self.acceptance.passes_at(batch))

    def at_each(self, batches: NDArray[np.int_], context_tokens: int) -> SpeedupGrid:
        """NTP and SBD at every one of ``batches``."""
        return predict_grid(
            self.shape, self.deployment, self.ceilings, block_size=self.acceptance.block_size,
            passes_per_block=self.acceptance.passes_at(batches), batch=batches, context_tokens=context_tokens,
        )  # fmt: skip

    def at_all(self, context_tokens: int) -> SpeedupPrediction:
        """NTP and SBD at all of ``batches``; numbers that depend on the batch are arrays of as many entries."""
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


def break_even(replica: Replica, context_tokens: int, largest_batch: int) -> BreakEven:
    """Where SBD pays at this context, over all batches of the replica, whether they fit (``largest_batch``) or not."""
    everywhere = replica.at_all(context_tokens)
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


MILLION = 1e6
S_PER_HOUR = 3600.0
J_PER_KWH = 3.6e6
_ROUNDING = 1e-9  # relative: an exact multiple needs no further replica


def figures_at(
    replica: Replica, profile: HardwareProfile, workload: Workload, goal: Goal, method: Literal["ntp", "sbd"], batch: int,
    need: MemoryNeed,
) -> ArmPlan:  # fmt: skip
    """Every figure of ``method`` at ``batch`` rows per replica."""
    decoding = _tokens_per_s(replica.at(batch, workload.context_tokens), method)
    prefill_s = _prefill_s(replica, workload)
    whole = _with_prefill(decoding, prefill_s, workload.output_tokens)
    devices = replica.deployment.tensor_parallel
    per_gpu = _scaled(whole, 1 / devices)
    price, power = profile.price_usd_per_hour, profile.power_w
    return ArmPlan(
        method=method,
        reason=None,
        tensor_parallel=devices,
        batch=batch,
        memory=need,
        passes_per_block=replica.acceptance.passes_at(batch) if method == "sbd" else None,
        tokens_per_s_per_user=_scaled(decoding, 1 / batch),
        tokens_per_s_per_gpu=per_gpu,
        prefill_s=prefill_s,
        gpus=devices * _replicas(goal, workload, whole.expected),
        gpus_serial=devices * _replicas(goal, workload, whole.low),
        usd_per_million_tokens=_per_million(price.value, S_PER_HOUR, per_gpu),
        usd_reason=None if price.value is not None else f"price not known: {price.source}",
        kwh_per_million_tokens=_per_million(power.value, J_PER_KWH, per_gpu),
        kwh_reason=None if power.value is not None else f"power not known: {power.source}",
    )


def _tokens_per_s(prediction: SpeedupPrediction, method: Literal["ntp", "sbd"]) -> Band:
    """Of the whole batch, decoding; lowest with nothing overlapped."""
    low, high = prediction.batch / prediction.ntp.high_s, prediction.batch / prediction.ntp.low_s
    if method == "ntp":
        return Band(low=low, expected=prediction.ntp_tokens_per_s, high=high)
    return Band(
        low=low * prediction.wall_speedup_serial,
        expected=prediction.sbd_tokens_per_s,
        high=high * prediction.wall_speedup_overlapped,
    )


def _prefill_s(replica: Replica, workload: Workload) -> Band | None:
    """One prompt alone, in one pass, the same in both arms; None without a prompt, 0 for an empty one."""
    tokens = workload.prompt_tokens
    if tokens is None:
        return None
    if tokens == 0:
        return Band(low=0.0, expected=0.0, high=0.0)
    prompt = PassCounts(rows=1, query=tokens, context=0, logits=1, kept=tokens)
    price = price_counts(replica.shape, replica.deployment, prompt, replica.ceilings)
    return Band(low=price.low_s, expected=price.expected_s, high=price.high_s)


def _with_prefill(decoding: Band, prefill_s: Band | None, output_tokens: int | None) -> Band:
    """Tokens per second of a replica that decodes nothing during a prefill: 1 / (1 / rate + prefill / output)."""
    if prefill_s is None or output_tokens is None:
        return decoding
    return Band(
        low=1 / (1 / decoding.low + prefill_s.high / output_tokens),
        expected=1 / (1 / decoding.expected + prefill_s.expected / output_tokens),
        high=1 / (1 / decoding.high + prefill_s.low / output_tokens),
    )


def gpus_needed(arm: ArmPlan | None, goal: Goal, workload: Workload) -> tuple[int, int] | None:
    """GPUs for the requests of ``goal`` with replicas as in ``arm``, as expected and with nothing overlapped; None: no plan."""
    if arm is None or arm.tensor_parallel is None or arm.tokens_per_s_per_gpu is None:
        return None
    devices, per_gpu = arm.tensor_parallel, arm.tokens_per_s_per_gpu
    expected, serial = (_replicas(goal, workload, rate * devices) for rate in (per_gpu.expected, per_gpu.low))
    return devices * expected, devices * serial


def _replicas(goal: Goal, workload: Workload, replica_tokens_per_s: float) -> int:
    """Replicas for the requested load, fully used; one without a requested load."""
    if goal.requests_per_s is None or workload.output_tokens is None:
        return 1
    return max(1, math.ceil(goal.requests_per_s * workload.output_tokens / replica_tokens_per_s * (1 - _ROUNDING)))


def _per_million(rate: float | None, unit: float, tokens_per_s: Band) -> Band | None:
    """``rate`` per device for a million tokens: USD/h with seconds per hour, or W with J per kWh."""
    if rate is None:
        return None
    amount = rate * MILLION / unit
    return Band(low=amount / tokens_per_s.high, expected=amount / tokens_per_s.expected, high=amount / tokens_per_s.low)


def _scaled(band: Band, factor: float) -> Band:
    return Band(low=band.low * factor, expected=band.expected * factor, high=band.high * factor)
