"""The planner: where a model fits, how fast NTP and SBD decode there, what that costs, and at which batches SBD pays.

It computes from a shape, profiles and an acceptance. Every figure is a prediction on the rung of its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from harness.capacity.acceptance import AssumedAcceptance
from harness.capacity.figures import figures_at
from harness.capacity.replica import Replica, break_even, thinned
from harness.capacity.results import ArmPlan, Band, BreakEven, DevicePlan, Goal, Method, Plan, Sourced, Workload
from harness.capacity.serving import serve_each
from harness.capacity.wording import missing_figures, notes_of
from harness.errors import UnknownHardwareError, UserError
from harness.hardware.figures import PeakDtype, SourcedFigure
from harness.hardware.links import Link, ask_for_link
from harness.hardware.profile import HardwareProfile
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.anchored import ProfileRung, reached_in_words, what_if_ceilings
from harness.roofline.ceilings import Ceilings, joined
from harness.roofline.memory import MEMORY_RESERVE, MemoryNeed, memory_need

DEGREES = (1, 2, 4, 8)  # devices per replica to try where the split is not given
_SAME = 1e-9  # relative; smaller differences of throughput are rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Everything a plan depends on but the devices.

    ``deployment``      its ``tensor_parallel`` is replaced by the degrees that are tried
    ``degrees``         devices per stage to try, smallest first; of several, those that do not divide the heads are left out
    ``link``            what joins the devices of a replica; None: what is known of each device
    ``matrix_dtype``    whose peak bounds all arithmetic; None: the deployment's dtype
    ``memory_reserve``  share of a device's memory that is kept for the runtime, fragmentation and the prefill's activations
    ``contexts``        contexts for break-even besides the workload's own
    ``rung``            the ceilings to price on; None: the best that a profile has

    Raises:
        UserError: a reserve outside [0, 1), a dtype without a peak, a context below 0, no degree that divides the heads, or a
            batch of unknown acceptance.
    """

    shape: ModelShape
    deployment: Deployment
    acceptance: AssumedAcceptance
    workload: Workload
    goal: Goal
    degrees: tuple[int, ...] = DEGREES
    matrix_dtype: str | None = None
    memory_reserve: float = MEMORY_RESERVE
    contexts: tuple[int, ...] = ()
    rung: ProfileRung | None = None
    link: Link | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.memory_reserve < 1:
            raise UserError(f"a memory reserve of {self.memory_reserve:g} was given; it is a share, from 0 to below 1")
        if self.rate_dtype not in get_args(PeakDtype):
            raise UserError(f"no device has a peak for {self.rate_dtype!r}; allowed are {', '.join(get_args(PeakDtype))}")
        if min(self.contexts, default=0) < 0:
            raise UserError(f"got a context of {min(self.contexts)} tokens; it must be at least 0")
        if not self.possible_degrees:
            raise UserError(
                f"{self.shape.name} has {self.shape.heads} attention heads, which cannot be split evenly over "
                f"{' or '.join(map(str, self.degrees))} devices; choose a divisor of {self.shape.heads}"
            )
        known = self.acceptance.largest_batch
        if self.goal.batch is not None and known is not None and self.goal.batch > known:
            raise UserError(f"passes per block are given up to batch {known}, not for {self.goal.batch}; give them for it too")
        if self.goal.requests_per_s is not None and self.workload.output_tokens is None:
            raise UserError("requests per second were given, but not how many tokens a request writes; give its output tokens")

    @property
    def rate_dtype(self) -> str:
        """The dtype whose peak bounds all arithmetic."""
        return self.matrix_dtype or self.deployment.dtype

    def split(self, degree: int) -> Deployment:
        """The deployment with a replica of ``degree`` devices."""
        return replace(self.deployment, tensor_parallel=degree)

    @property
    def possible_degrees(self) -> tuple[int, ...]:
        """Degrees over which heads, and experts that are shared out, can be split."""
        widths = [] if self.deployment.attention_data_parallel else [self.shape.heads]
        if self.deployment.expert_parallel and self.shape.moe is not None:
            widths.append(self.shape.moe.experts)
        return tuple(sorted(degree for degree in self.degrees if degree >= 1 and all(width % degree == 0 for width in widths)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDevice:
    """A profile with the figures that a plan needs, and the question."""

    question: Question
    profile: HardwareProfile
    ceilings: Ceilings
    budget_bytes: float

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


def device_of(question: Question, profile: HardwareProfile) -> PlannedDevice | str:
    """The device with its ceilings and the memory that may be used, or the figures that it lacks."""
    lacking = missing_figures(profile, question.rate_dtype)
    try:
        ceilings = what_if_ceilings(profile, question.rate_dtype, question.rung)
    except UnknownHardwareError as error:
        return lacking or str(error)
    if profile.memory_bytes.value is None:
        return lacking
    budget_bytes = profile.memory_bytes.value * (1 - question.memory_reserve)
    return PlannedDevice(question=question, profile=profile, ceilings=ceilings, budget_bytes=budget_bytes)


def plan(question: Question, profiles: Sequence[HardwareProfile]) -> Plan:
    """The plan for every profile, in their order; a profile that lacks a figure gets the reason instead."""
    found = Plan(
        model=question.shape.name,
        params=question.shape.params,
        deployment=question.deployment,
        matrix_dtype=question.rate_dtype,
        acceptance=question.acceptance,
        workload=question.workload,
        goal=question.goal,
        memory_reserve=question.memory_reserve,
        devices=tuple(_device_plan(question, profile) for profile in profiles),
        notes=(),
    )
    return replace(found, notes=notes_of(question.shape, found))


def _device_plan(question: Question, profile: HardwareProfile) -> DevicePlan:
    price, power = sourced(profile.price_usd_per_hour), sourced(profile.power_w)
    unplanned = DevicePlan(hardware=profile.name, rung=None, reason=None, price_usd_per_hour=price, power_w=power)
    device = device_of(question, profile)
    if isinstance(device, str):
        return replace(unplanned, reason=device)
    sbd = _arm_plan(device, "sbd")
    contexts = sorted({question.workload.context_tokens, *question.contexts})
    return replace(
        unplanned,
        rung=device.ceilings.rung,
        reached=reached_in_words(profile, sbd.tensor_parallel or 1),
        arithmetic=device.ceilings.arithmetic(question.deployment),
        ntp=_arm_plan(device, "ntp"),
        sbd=sbd,
        wall_speedup=_speedup(device, sbd),
        break_even=tuple(_break_even(device, context, sbd) for context in contexts),
    )


def _arm_plan(device: PlannedDevice, method: Method) -> ArmPlan:
    """The smallest split that fits; for a speed goal, of the splits that reach it the one with most tokens/s per GPU.

    The smallest split that reaches a speed serves few rows at a time, so it is often the most expensive.
    """
    question, reasons, possible = device.question, list[str](), list[ArmPlan]()
    for degree in question.possible_degrees:
        need = device.need(method, degree, question.workload.longest_tokens)
        found = device.no_link(degree) or _batch(device, method, degree, need)
        if isinstance(found, str):
            reasons.append(found)
            continue
        replica = device.replica(degree)
        possible.append(figures_at(replica, device.profile, question.workload, question.goal, method, found, need))
        if question.goal.tokens_per_s_per_user is None:
            break
    return max(possible, key=_per_gpu) if possible else ArmPlan(method=method, reason=_joined(reasons))


def _per_gpu(arm: ArmPlan) -> float:
    return arm.tokens_per_s_per_gpu.expected if arm.tokens_per_s_per_gpu else 0.0


def _batch(device: PlannedDevice, method: Method, degree: int, need: MemoryNeed) -> int | str:
    """The batch that reaches the goal at this split, or why no batch does."""
    goal = device.question.goal
    if need.largest_batch < (goal.batch or 1):
        return too_small(need, goal.batch or 1, device.words(degree))
    if goal.batch is not None:
        return goal.batch
    replica = device.replica(degree)
    coarse = thinned(min(need.largest_batch, len(replica.batches)))
    found = _search(device, replica, method, coarse)
    if isinstance(found, str):
        return f"{found} on {device.words(degree)}"
    if len(coarse) == coarse[-1]:
        return found  # every batch was asked
    at = int(np.searchsorted(coarse, found))
    around = np.arange(coarse[max(at - 1, 0)], coarse[min(at + 1, len(coarse) - 1)] + 1)
    best = _search(device, replica, method, around)
    assert isinstance(best, int), "one of them is fast enough"
    return best


def _search(device: PlannedDevice, replica: Replica, method: Method, batches: NDArray[np.int_]) -> int | str:
    """The smallest batch with most tokens per second of those that are fast enough, or what the fastest one reaches."""
    sizes = batches.astype(float)
    per_user, tokens_per_s, _ = serve_each(replica, replica.arm(method, sizes), sizes, device.question.workload)
    fast_enough = per_user >= (device.question.goal.tokens_per_s_per_user or 0) * (1 - _SAME)
    if not fast_enough.any():
        fastest = int(np.argmax(per_user))
        return f"at most {per_user[fastest]:.3g} tokens/s per user (batch {batches[fastest]})"
    useful = np.where(fast_enough, tokens_per_s, 0.0)
    return int(batches[np.argmax(useful >= useful.max() * (1 - _SAME))])


def _speedup(device: PlannedDevice, sbd: ArmPlan) -> Band | None:
    """Wall speedup at SBD's own batch and split."""
    if sbd.batch is None or sbd.tensor_parallel is None:
        return None
    found = device.replica(sbd.tensor_parallel).at(sbd.batch, device.question.workload.context_tokens)
    sides = (found.wall_speedup, found.wall_speedup_overlapped, found.wall_speedup_serial)
    return Band(low=min(sides), expected=found.wall_speedup, high=max(sides))


def _break_even(device: PlannedDevice, context: int, sbd: ArmPlan) -> BreakEven:
    """At the split of SBD's plan where this is its context, else at the smallest split that holds a row of it."""
    workload, degrees = device.question.workload, device.question.possible_degrees
    own = context == workload.context_tokens
    if own and sbd.tensor_parallel is not None:
        degrees = (sbd.tensor_parallel,)
    reasons = []
    for degree in degrees:
        need = device.need("sbd", degree, workload.longest_tokens if own else context)
        refused = device.no_link(degree) or (too_small(need, 1, device.words(degree)) if need.largest_batch < 1 else None)
        if refused is None:
            return break_even(device.replica(degree), context, need.largest_batch)
        reasons.append(refused)
    return BreakEven(context_tokens=context, reason=_joined(reasons))


def _joined(reasons: Sequence[str]) -> str:
    """The reasons of the smallest and the largest split; those between add nothing."""
    return "; ".join(dict.fromkeys((reasons[0], reasons[-1])))


def too_small(need: MemoryNeed, batch: int, devices: str) -> str:
    """Why a batch does not fit."""
    needed, there = need.total_bytes(batch) / 1e9, need.budget_bytes / 1e9
    return f"batch {batch} on {devices} needs {needed:.3g} GB each, {there:.3g} are usable"


def sourced(figure: SourcedFigure) -> Sourced:
    """A profile's figure as a plan shows it."""
    return Sourced(value=figure.value, source=figure.source, date=figure.date, grade=figure.grade)
