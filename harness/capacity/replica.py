"""A question on one kind of device: a replica's memory, and its speed at any batch and context.

``break_even`` finds the batches at which Set Block Decoding pays. It looks at all, because they need not form one range.
Small batches are bound by weights, so a block is nearly free; on a mixture of experts a block visits more experts and may lose.
Larger batches are bound by arithmetic, where SBD computes more. At long contexts the cache is read once per pass instead of
once per token, so SBD can pay again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.capacity.acceptance import AssumedAcceptance
from harness.capacity.question import Question
from harness.capacity.results import J_PER_KWH, S_PER_HOUR, BreakEven, DeploymentPlan, Method, Ranges, per_million
from harness.errors import UnknownHardwareError
from harness.frozen import frozen
from harness.hardware.links import ask_for_link
from harness.hardware.profile import HardwareProfile
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.anchored import what_if_ceilings
from harness.roofline.ceilings import Ceilings, joined
from harness.roofline.pricing import SummedPrice
from harness.roofline.step import NTP, DecodeArm, SpeedupPrediction, price_step, price_three_steps
from harness.roofline.storage import MemoryNeed, memory_need

BATCHES_SEARCHED = 8192
FIRST_THINNED, LARGER_BATCHES = 64, 256


@frozen
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
        return np.arange(1, min(self.acceptance.largest_batch or BATCHES_SEARCHED, BATCHES_SEARCHED) + 1)

    def at(self, batch: Any, context_tokens: int) -> SpeedupPrediction:
        """NTP and SBD at one batch, or at each of an array; then numbers that depend on the batch are arrays too."""
        arm = self.acceptance.arm_at(batch)
        return price_three_steps(self.shape, self.deployment, self.ceilings, arm, batch, context_tokens)

    @property
    def price_step(self) -> partial[SummedPrice]:
        """harness.roofline.step.price_step on these devices."""
        return partial(price_step, self.shape, self.deployment, self.ceilings)

    def arm(self, method: Method, batch: Any) -> DecodeArm:
        """How rows of ``method`` decode in a batch; ``batch`` is a number or an array."""
        return NTP if method == "ntp" else self.acceptance.arm_at(batch)


@frozen
class PlannedDevice:
    """A profile with its ceilings, and the question."""

    question: Question
    profile: HardwareProfile
    ceilings: Ceilings

    @property
    def budget_bytes(self) -> float:
        """The memory that may be used; 0 where it is not known."""
        return (self.profile.memory_bytes.value or 0.0) * (1 - self.question.memory_reserve)

    def deployment(self, method: Method, reason: str | None = None, misses: float | None = None) -> DeploymentPlan:
        """One without figures yet, or the reason why there is none."""
        return DeploymentPlan(
            hardware=self.profile.name,
            rung=self.ceilings.rung,
            method=method,
            arithmetic=self.ceilings.arithmetic(self.question.deployment),
            reason=reason,
            misses=misses,
        )

    def costed(self, row: DeploymentPlan) -> DeploymentPlan:
        """The deployment with what its devices and its tokens cost."""
        price, power, speed = self.profile.price_usd_per_hour, self.profile.power_w, row.tokens_per_s_per_gpu
        return replace(
            row,
            usd_per_hour=None if price.value is None else (row.gpus or 0) * price.value,
            usd_per_million_tokens=per_million(price.value, S_PER_HOUR, speed),
            usd_reason=None if price.value is not None else f"price not known: {price.source}",
            kwh_per_million_tokens=per_million(power.value, J_PER_KWH, speed),
            kwh_reason=None if power.value is not None else f"power not known: {power.source}",
        )

    def replica(self, degree: int) -> Replica:
        """``degree`` of these devices with the question's model."""
        return Replica(
            shape=self.question.shape,
            deployment=self.question.split(degree),
            ceilings=self.linked(degree),
            acceptance=self.question.acceptance,
        )

    def linked(self, degree: int) -> Ceilings:
        """The ceilings with the link of a stage's devices, or of stages of one device."""
        joins = degree if degree > 1 else self.question.deployment.pipeline_parallel
        return joined(self.ceilings, self.profile, joins, self.question.link) if joins > 1 else self.ceilings

    def words(self, degree: int) -> str:
        """``1 device``, ``4 devices``: of a replica."""
        devices = self.question.split(degree).devices
        return "1 device" if devices == 1 else f"{devices} devices"

    def need(self, method: Method, degree: int, tokens: int) -> MemoryNeed:
        """Of each of ``degree`` devices, for rows of so many tokens at their longest."""
        block = self.question.acceptance.block_size if method == "sbd" else None
        split = self.question.split(degree)
        return memory_need(
            self.question.shape,
            split,
            tokens=tokens,
            block_size=block,
            budget_bytes=self.budget_bytes,
            shared_tokens=self.question.workload.shared_tokens if tokens >= self.question.workload.longest_tokens else 0,
            verified=self.question.acceptance.tokens_per_check is not None,
        )

    def no_link(self, degree: int) -> str | None:
        """Why a split cannot be priced; None where it can."""
        split = self.question.split(degree)
        if split.devices == 1 or self.linked(degree).link_bytes_per_s is not None:
            return None
        return ask_for_link(self.profile, split.devices)

    def splits(self, method: Method, tokens: int, batch: int = 1) -> Iterator[tuple[int, MemoryNeed, str | None]]:
        """Every degree with its need for rows of so many tokens, and why it cannot serve a batch of them; None: it can."""
        for degree in self.question.possible_degrees:
            need = self.need(method, degree, tokens)
            small = None if need.largest_batch >= batch else need.refusal(batch, self.question.split(degree).devices)
            yield degree, need, self.no_link(degree) or small


def device_of(question: Question, profile: HardwareProfile) -> PlannedDevice | str:
    """The device with its ceilings and the memory that may be used, or the figures that it lacks."""
    lacking = _missing_figures(profile, question.rate_dtype)
    try:
        ceilings = what_if_ceilings(profile, question.rate_dtype, question.rung)
    except UnknownHardwareError as error:
        return lacking or str(error)
    if profile.memory_bytes.value is None:
        return lacking
    return PlannedDevice(question=question, profile=profile, ceilings=ceilings)


def joined_reasons(reasons: Sequence[str]) -> str:
    """The reasons of the smallest and the largest split; those between add nothing."""
    return "; ".join(dict.fromkeys((reasons[0], reasons[-1])))


def _missing_figures(profile: HardwareProfile, dtype: str) -> str:
    """Every figure that a plan needs and this profile lacks, with the profile's reason; empty: the profile is complete."""
    peaks = {str(name): figure for name, figure in profile.peak_flops_per_s.items()}
    needed = {f"{dtype} peak": peaks.get(dtype), "bandwidth": profile.bandwidth_bytes_per_s, "memory": profile.memory_bytes}
    return "; ".join(
        f"no {name} ({figure.source})" for name, figure in needed.items() if figure is not None and figure.value is None
    )


def break_even(replica: Replica, context_tokens: int, largest_batch: int) -> BreakEven:
    """Where SBD pays at this context, over all batches of the replica, whether they fit (``largest_batch``) or not."""
    searched = len(replica.batches)
    pays, overlapped, serial = map(paying_ranges, _speedups(replica, context_tokens))
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
def _speedups(replica: Replica, context_tokens: int) -> NDArray[np.float64]:
    """(3, batches) wall speedups: expected, overlapped, serial."""
    at = replica.at(replica.batches.astype(float), context_tokens)
    return np.array([at.wall_speedup, at.wall_speedup_overlapped, at.wall_speedup_serial])


def paying_ranges(wall_speedup: NDArray[np.float64]) -> Ranges:
    """(first, last batch) of every run of batches with a speedup above 1; entry i is the speedup at batch i + 1."""
    edges = np.diff(np.concatenate(([0], (wall_speedup > 1).astype(int), [0])))
    starts, ends = np.flatnonzero(edges == 1) + 1, np.flatnonzero(edges == -1)
    return tuple((int(start), int(end)) for start, end in zip(starts, ends, strict=True))
